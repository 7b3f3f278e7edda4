"""`edgebuild run` itself: what counts as a change, what it leaves behind, what it imports."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from edgebuild.base import cache, own_code
from edgebuild.base.artifacts import Artifact
from edgebuild.base.depfile import make_depfile
from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import DriverRequest, ModelRequest, model_outputs
from edgebuild.build import entry
from edgebuild.build import stamp as stamps
from edgebuild.build.header import write_plain
from edgebuild.build.run import run
from tests.conftest import ROOT
from tests.conftest import run as execute
from tests.graphs.onnx_models import OnnxFile


def products(name: str, data: bytes) -> tuple[Artifact, ...]:
    """Files of a model that have these bytes, but for the report."""
    return tuple(Artifact(f, b"{}\n" if f.endswith(".json") else data) for f in model_outputs(name))


@pytest.fixture
def request_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A request whose model is a text; to compile it is to copy it into all products."""

    def compile_model(request: ModelRequest) -> tuple[Artifact, ...]:
        return products(request.name, request.source.read_bytes())

    monkeypatch.setattr("edgebuild.model.compile.compile_model", compile_model)
    monkeypatch.setattr("edgebuild.build.run.summary", lambda artifacts: "")
    (tmp_path / "net.onnx").write_text("one")
    file = tmp_path / "out" / "net.req.json"
    file.parent.mkdir()
    members = {"schema": 1, "kind": "model", "name": "net", "source": "../net.onnx", "target": "host", "output": "."}
    file.write_text(json.dumps({**members, "options": {}}))
    return file


def test_current_after_the_run(request_file: Path) -> None:
    assert not stamps.is_current(str(request_file))
    assert run(request_file) == 0
    assert stamps.is_current(str(request_file))


def test_new_date_alone_is_no_change(request_file: Path) -> None:
    run(request_file)
    stamp = request_file.with_name("net.stamp")
    os.utime(stamp, (1, 1))
    os.utime(request_file.parent.parent / "net.onnx")
    assert stamps.is_current(str(request_file))
    assert stamp.stat().st_mtime > 1, "the stamp must be newer than what it stands for"


def test_an_input_of_the_future_is_a_change_each_time(request_file: Path) -> None:
    """Ninja takes its date for that of a product that keeps its own, and would miss edits until that date."""
    model = request_file.parent.parent / "net.onnx"
    for product, part in (("net.c", ""), ("net.h", ".header")):
        if part:
            shutil.copy(ROOT / "sample_projects" / "digits" / "digits.onnx", model)
        for future in (0, 1e5):
            os.utime(model, (time.time() + future, time.time() + future))
            assert write_plain(str(request_file), False) if part else run(request_file) == 0
            assert stamps.is_current(str(request_file), part) == (not future)
            date = request_file.with_name(product).stat().st_mtime
            os.utime(request_file.with_name(product), (1, 1))
        assert date > 1


def test_same_size_within_the_same_second_is_a_change(request_file: Path) -> None:
    model = request_file.parent.parent / "net.onnx"
    before = model.stat()
    run(request_file)
    model.write_text("two")
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))  # as on a file system with a coarse clock
    assert not stamps.is_current(str(request_file))


@pytest.mark.parametrize("name", ["net.c", "net_weights.bin"])
def test_lost_or_edited_product_is_a_change(request_file: Path, name: str) -> None:
    run(request_file)
    product = request_file.with_name(name)
    product.write_text("edited")
    assert not stamps.is_current(str(request_file))
    product.unlink()
    assert not stamps.is_current(str(request_file))
    run(request_file)
    assert product.read_text() == "one"


def test_changed_request_is_a_change(request_file: Path) -> None:
    run(request_file)
    request_file.write_text(request_file.read_text().replace("{}", '{"ram": "1K"}'))
    assert not stamps.is_current(str(request_file))


def test_stamp_of_another_version_does_not_count(request_file: Path) -> None:
    run(request_file)
    stamp = request_file.with_name("net.stamp")
    stamp.write_text(stamp.read_text().replace("stamp 2", "stamp 1"))
    assert not stamps.is_current(str(request_file))


def test_cut_stamp_does_not_count(request_file: Path) -> None:
    run(request_file)
    stamp = request_file.with_name("net.stamp")
    whole = stamp.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 10]
    for cut in [0, *ends[:-1], len(whole) - 1]:
        stamp.write_bytes(whole[:cut])
        assert not stamps.is_current(str(request_file)), f"cut at {cut}"
    stamp.write_bytes(whole)
    assert stamps.is_current(str(request_file))


def test_killed_while_writing_leaves_no_stamp(request_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that is killed between two products, and a model that is then as before."""
    run(request_file)
    model = request_file.parent.parent / "net.onnx"
    model.write_text("two")
    monkeypatch.setattr("edgebuild.build.run.publish", lambda artifacts, folder: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(request_file)
    model.write_text("one")
    assert not request_file.with_name("net.stamp").exists() and not stamps.is_current(str(request_file))


def test_external_weights_are_read_and_count(tmp_path: Path) -> None:
    """ONNX keeps large tensors in files beside the model: they are in the depfile, the stamp and the cache key."""
    model = save_with_external_weights(tmp_path)
    file = tmp_path / "out" / "m.req.json"
    file.parent.mkdir()
    members = {"schema": 1, "kind": "model", "name": "m", "source": "../m.onnx", "target": "host", "output": "."}
    file.write_text(json.dumps({**members, "options": {}}))
    assert run(file) == 0
    assert str(model.with_name("w.bin")) in shlex.split(file.with_name("m.d").read_text().replace("\\\n", " "))
    weights = file.with_name("m_weights.bin").read_bytes()
    data = bytearray(model.with_name("w.bin").read_bytes())
    data[2] ^= 0x40
    model.with_name("w.bin").write_bytes(data)
    assert not stamps.is_current(str(file))
    assert run(file) == 0
    assert file.with_name("m_weights.bin").read_bytes() != weights


def save_with_external_weights(folder: Path) -> Path:
    """A float network of one dense layer whose weights lie in w.bin."""
    file = OnnxFile(np.random.default_rng(0))
    x = file.input((1, 4))
    w = file.constant(np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32))
    model = file.model([file.node("MatMul", [x, w], (1, 8))])
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    return folder / "m.onnx"


def test_change_during_the_run_is_seen_by_the_next(request_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = request_file.parent.parent / "net.onnx"

    def compile_slowly(request: ModelRequest) -> tuple[Artifact, ...]:
        data = model.read_bytes()
        model.write_text("two")
        return products(request.name, data)

    monkeypatch.setattr("edgebuild.model.compile.compile_model", compile_slowly)
    run(request_file)
    assert not stamps.is_current(str(request_file))
    assert request_file.with_name("net.stamp").stat().st_mtime_ns < model.stat().st_mtime_ns


def test_change_during_the_run_that_is_undone(request_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stamp said that products of "two" were made of "one", for good. So did the cache."""
    model = request_file.parent.parent / "net.onnx"

    def compile_other(request: ModelRequest) -> tuple[Artifact, ...]:
        model.write_text("two")
        data = model.read_bytes()
        model.write_text("one")
        return products(request.name, data)

    monkeypatch.setattr("edgebuild.model.compile.compile_model", compile_other)
    monkeypatch.setenv("EDGEBUILD_CACHE", str(request_file.parent / "cache"))
    run(request_file)
    assert request_file.with_name("net.c").read_text() == "two"
    assert not stamps.is_current(str(request_file))
    assert cache.content() == cache.Content()


def test_copy_of_a_project_has_no_stamp(request_file: Path) -> None:
    """The copied stamp names the files of the original, which are as they were; the model of the copy is another."""
    run(request_file)
    copied = request_file.parent.parent.with_name("copied")
    shutil.copytree(request_file.parent.parent, copied)
    (copied / "net.onnx").write_text("two")
    assert not stamps.is_current(str(copied / "out" / request_file.name))
    assert stamps.is_current(str(request_file))


def test_header_that_changes_while_a_driver_is_generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers are known when they were read; what one held then, nobody knows if it was written since."""
    (header := tmp_path / "a.h").write_text("one")
    (tmp_path / "d.bf.c").write_text("")
    file = tmp_path / "d.req.json"
    members = {"schema": 1, "kind": "driver", "name": "d", "source": ["d.bf.c"], "target": "host", "output": "."}
    file.write_text(json.dumps({**members, "options": {}}))

    def generate(request: DriverRequest) -> tuple[tuple[Artifact, ...], SimpleNamespace, str]:
        data = header.read_bytes()
        header.write_text("two")
        return (
            (Artifact("d.c", data),),
            SimpleNamespace(files=(str(header),), absent=(), source=SimpleNamespace(lines=())),
            "",
        )

    monkeypatch.setattr("edgebuild.driver.command.generate", generate)
    run(file)
    assert not stamps.is_current(str(file))


def test_a_run_has_its_folder_for_itself(request_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed build may leave a run at work, and the next build starts another one for the same products."""
    folder = os.open(request_file.parent, os.O_RDONLY)
    seen = []

    def compile_model(request: ModelRequest) -> tuple[Artifact, ...]:
        with pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen.append(request)
        return products(request.name, b"")

    monkeypatch.setattr("edgebuild.model.compile.compile_model", compile_model)
    monkeypatch.setenv("EDGEBUILD_CACHE", "")
    assert entry.main(["run", str(request_file)]) == 0 and seen
    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(folder)


def test_failure_leaves_the_products_and_no_new_stamp(request_file: Path) -> None:
    run(request_file)
    stamp = request_file.with_name("net.stamp").read_text()
    (request_file.parent.parent / "net.onnx").unlink()
    with pytest.raises(EdgebuildError, match=r"net\.onnx: error: cannot read it"):
        run(request_file)
    assert request_file.with_name("net.c").read_text() == "one"
    assert request_file.with_name("net.stamp").read_text() == stamp
    assert not stamps.is_current(str(request_file))


def test_depfile_names_what_was_read(request_file: Path) -> None:
    run(request_file)
    target, *prerequisites = shlex.split(request_file.with_name("net.d").read_text().replace("\\\n", " "))
    assert target == f"{request_file.with_name('net.stamp')}:"
    assert str(request_file.parent.parent / "net.onnx") in prerequisites
    assert prerequisites == [str(request_file.parent.parent / "net.onnx"), own_code.KEPT]  # which stands for all code
    assert all(Path(p).is_absolute() and Path(p).exists() for p in prerequisites)


def test_depfile_escapes_as_make_reads(tmp_path: Path) -> None:
    names = ["with space", "dollar$", "number#"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "Makefile").write_text(make_depfile("all", names) + "\t@printf '%s\\n' $(foreach p,$+,x)\n")
    assert execute("make", "-s", cwd=tmp_path).split() == ["x"] * 4  # all there; make's lists split at the space


def test_a_run_looks_at_the_code_once_and_before_it_keeps_a_result(
    request_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look asks for the dates of all files of a checkout."""
    looks, look = list[str](), own_code.code_digest
    for module in (own_code, cache):
        monkeypatch.setattr(module, "code_digest", lambda: looks.append(look()) or looks[-1])
    monkeypatch.setenv("EDGEBUILD_CACHE", str(request_file.parent / "cache"))
    for counted in (2, 1):
        monkeypatch.setattr(own_code, "_AT_START", {})
        looks.clear()
        assert entry.main(["run", str(request_file)]) == 0
        assert len(looks) == counted


def test_no_change_imports_next_to_nothing(request_file: Path) -> None:
    run(request_file)
    program = (
        "import sys; before = set(sys.modules); from edgebuild.build.entry import main; "
        f"assert main(['run', {str(request_file)!r}]) == 0; print(*sorted(set(sys.modules) - before))"
    )
    added = set(execute(sys.executable, "-P", "-c", program).split())
    own = {"edgebuild", "edgebuild.base", "edgebuild.base.own_code", "edgebuild.build", "edgebuild.build.entry"}
    own |= {"edgebuild.base.atomic", "edgebuild.build.stamp"}
    assert {m for m in added if not m.startswith("_")} - {"itertools", "time"} == own | {"fcntl", "hashlib"}
