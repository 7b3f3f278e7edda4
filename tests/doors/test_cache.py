"""The cache of compiled models: same content, same bytes; anything else, another entry."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest

from edgebuild.base import cache
from edgebuild.base.artifacts import Artifact
from edgebuild.base.installation import code_files
from edgebuild.base.request import ModelRequest, model_outputs, model_request
from tests.conftest import ROOT

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"

AS_NOBODY = """
import os, sys
from pathlib import Path
from edgebuild.base import cache
from edgebuild.base.request import model_request
from edgebuild.model import choices
for name in ("EDGEBUILD_CACHE", "XDG_CACHE_HOME", "HOME"):
    os.environ.pop(name, None)
os.environ |= {"HOME": home for home in sys.argv[1:]}
request = model_request(Path("m.onnx"), "n", "host", {})
choices.files(request)  # all modules are there now: the home of who installed them may be closed, too
os.setgroups([])
os.setgid(54321)
os.setuid(54321)
print(choices.files(request), choices.read(request), cache.folder())
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ModelRequest]:
    monkeypatch.setenv("EDGEBUILD_CACHE", str(tmp_path / "cache"))
    return []


def compiled(made: list[ModelRequest], source: Path, **options: Any) -> tuple[Artifact, ...]:
    def compile_model(request: ModelRequest) -> tuple[Artifact, ...]:
        made.append(request)
        return tuple(Artifact(name, f"{len(made)} {name}".encode()) for name in model_outputs(request.name))

    request = model_request(source, "digits", "host", options)
    return cache.compiled(request, [str(f) for f in request.files], compile_model)


def test_a_hit_needs_the_same_content(made: list[ModelRequest], tmp_path: Path) -> None:
    first = compiled(made, DIGITS)
    elsewhere = tmp_path / "elsewhere" / DIGITS.name
    elsewhere.parent.mkdir()
    shutil.copy(DIGITS, elsewhere)
    assert compiled(made, elsewhere) == first and len(made) == 1
    assert compiled(made, DIGITS, tile="rolling") != first and len(made) == 2
    elsewhere.write_bytes(DIGITS.read_bytes() + b"\0")
    assert compiled(made, elsewhere) != first and len(made) == 3
    assert len(list(cache.entries())) == 3


def test_what_a_calibration_says_counts_and_where_it_is_does_not(made: list[ModelRequest], tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "c.yaml").write_text("1")
        compiled(made, DIGITS, calibration=str(tmp_path / folder / "c.yaml"))
    assert len(made) == 1
    (tmp_path / "b" / "c.yaml").write_text("2")
    compiled(made, DIGITS, calibration=str(tmp_path / "b" / "c.yaml"))
    assert len(made) == 2


def test_half_an_entry_is_none(made: list[ModelRequest]) -> None:
    compiled(made, DIGITS)
    (entry,) = cache.entries()
    (entry / "digits.c").unlink()
    compiled(made, DIGITS)
    assert len(made) == 2


@pytest.mark.parametrize("link", [False, True])
def test_what_stands_in_the_place_of_an_entry_goes(link: bool, made: list[ModelRequest], tmp_path: Path) -> None:
    compiled(made, DIGITS)
    (entry,) = cache.entries()
    other = entry.rename(tmp_path / "other")
    if link:
        (other / "digits.c").write_text("changed")
        entry.symlink_to(other)
    else:
        entry.write_text("a file")
    wanted = compiled(made, DIGITS)
    assert len(made) == 2 and compiled(made, DIGITS) == wanted and len(made) == 2


def test_what_is_not_kept(made: list[ModelRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of a time limit depend on the machine; with the cache off nothing is written."""
    compiled(made, DIGITS, time_limit=5)
    assert not list(cache.entries())
    monkeypatch.setenv("EDGEBUILD_CACHE", "")
    compiled(made, DIGITS)
    compiled(made, DIGITS)
    assert len(made) == 3 and cache.folder() is None


def test_a_user_without_a_home_and_one_with_the_home_of_another(tmp_path: Path) -> None:
    """As containers are run: no line in the list of users, and no HOME, or that of root."""
    if os.getuid():
        pytest.skip("only root may be somebody else")
    for home in (None, tmp_path / "closed"):
        (tmp_path / "closed").mkdir(mode=0o700, exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, *([str(home)] if home else [])], cwd=ROOT, capture_output=True, text=True
        )
        assert done.stdout.startswith("[]"), done.stderr


def test_clear(made: list[ModelRequest]) -> None:
    compiled(made, DIGITS)
    assert cache.clear() == 1 and cache.clear() == 0


def test_a_corrupted_entry_is_never_taken(made: list[ModelRequest], tmp_path: Path) -> None:
    """150 entries, each damaged in one place: cut, changed, exchanged, of another key, or without a file."""
    random = Random(0)
    right = compiled(made, DIGITS)
    (entry,) = cache.entries()
    whole = tmp_path / "whole"
    shutil.copytree(entry, whole)
    right_by_name = {a.name: a.data for a in right}
    for _ in range(150):
        shutil.rmtree(entry, ignore_errors=True)
        shutil.copytree(whole, entry)
        damage(entry, random)
        seen: list[ModelRequest] = []
        for artifact in compiled(seen, DIGITS):
            if not seen:
                assert artifact.data == right_by_name[artifact.name]
        assert seen, "the damage was not seen"


def damage(entry: Path, random: Random) -> None:
    """Change something in the folder of an entry."""
    files = sorted(entry.iterdir())
    file, other = random.sample(files, 2)
    data = bytearray(file.read_bytes())
    match random.randrange(6):
        case 0:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            file.write_bytes(data)
        case 1:
            file.write_bytes(data[: random.randrange(len(data))])
        case 2:
            file.write_bytes(data + b"\0")
        case 3:
            file.unlink()
        case 4:
            file.write_bytes(other.read_bytes())
        case 5:
            listed = (entry / cache.LIST).read_bytes()
            (entry / cache.LIST).write_bytes(listed.replace(listed[:64], listed[:63] + b"x"))


def test_all_code_and_hal_files_are_in_the_key(made: list[ModelRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in an installed package: its templates may have been replaced by others of the same version."""
    names = {Path(file).name for file in code_files()}
    assert {"request.py", "weights.S.j2", "model.c.j2", "cortex_m.c", "firmware.ld", "mps2-an386.yaml"} <= names
    changed = tempfile.NamedTemporaryFile(suffix=".j2")  # noqa: SIM115
    compiled(made, DIGITS)
    monkeypatch.setattr(cache, "code_files", lambda: (*code_files(), changed.name))
    compiled(made, DIGITS)
    changed.write(b"another template")
    changed.flush()
    compiled(made, DIGITS)
    assert len(made) == 3


def test_a_model_that_changes_meanwhile_is_not_kept(made: list[ModelRequest], tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"one")
    request = model_request(model, "m", "host", {})

    def compile_model(request: ModelRequest) -> tuple[Artifact, ...]:
        model.write_bytes(b"two")
        return tuple(Artifact(name, b"two") for name in model_outputs("m"))

    cache.compiled(request, [str(model)], compile_model)
    assert not list(cache.entries())
