"""The cache of compiled models: same content, same bytes; anything else, another entry."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from random import Random
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from edgebuild.base import cache, progress
from edgebuild.base.artifacts import Artifact
from edgebuild.base.errors import Diagnostic
from edgebuild.base.own_code import code_files
from edgebuild.base.request import ModelRequest, model_outputs, model_request
from edgebuild.base.text import FILE, NAME
from edgebuild.build import run
from edgebuild.cli import main
from tests.conftest import ROOT

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"

AS_NOBODY = """
import os, sys
from pathlib import Path
from edgebuild.base import cache, progress
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
def requests(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> list[ModelRequest]:
    monkeypatch.setenv("EDGEBUILD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    cache._secret.cache_clear()
    cache._warn_entry.cache_clear()
    return []


def compiled(requests: list[ModelRequest], source: Path, **options: Any) -> tuple[Artifact, ...]:
    def compile_model(request: ModelRequest) -> tuple[Artifact, ...]:
        requests.append(request)
        return tuple(Artifact(name, f"{len(requests)} {name}".encode()) for name in model_outputs(request.name))

    request = model_request(source, "digits", "host", options)
    return cache.compiled(request, [str(f) for f in request.files], compile_model)


def entries() -> list[Path]:
    content, where = cache.content(), cache.folder()
    assert content is not None and where is not None
    return [where / key[:2] / key[2:] for key in content.entries]


def test_a_hit_needs_the_same_content(requests: list[ModelRequest], tmp_path: Path) -> None:
    first = compiled(requests, DIGITS)
    elsewhere = tmp_path / "elsewhere" / DIGITS.name
    elsewhere.parent.mkdir()
    shutil.copy(DIGITS, elsewhere)
    assert compiled(requests, elsewhere) == first and len(requests) == 1
    assert compiled(requests, DIGITS, tile="rolling") != first and len(requests) == 2
    elsewhere.write_bytes(DIGITS.read_bytes() + b"\0")
    assert compiled(requests, elsewhere) != first and len(requests) == 3
    assert len(entries()) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"target": "mps2-an386", "tile": "rolling", "ram": "8K"},
        {"target": "mps3-an547", "arena": "caller"},
        {"target": "host", "steps": True, "selftest": True, "weights": "c"},
    ],
    ids=lambda options: options["target"],
)
def test_other_names_of_a_model_and_its_file_are_hits(
    options: dict[str, Any], requests: list[ModelRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes are those of a compilation without the cache, also where lines depend on the length of the name."""

    def request(name: str, file: Path) -> ModelRequest:
        return model_request(file, name, options["target"], {k: v for k, v in options.items() if k != "target"})

    monkeypatch.setattr(socket, "socket", lambda *arguments, **options: pytest.fail("the network is asked"))
    run.kept_or_compiled(request("digits", DIGITS))
    others = list[tuple[ModelRequest, tuple[Artifact, ...]]]()
    for name, file in (("d", "a b.onnx"), ("A_long_name_of_the_model_that_is_in_each_line", 'ü"*/.onnx')):
        copy = tmp_path / Path(file.replace("/", "")).with_suffix(".onnx")
        shutil.copy(DIGITS, copy)
        others.append((request(name, copy), run.compile_request(request(name, copy))))
    monkeypatch.setattr(run, "compile_request", lambda request: pytest.fail(f"{request.source} is compiled again"))
    for asked, wanted in others:
        assert run.kept_or_compiled(asked) == wanted


@pytest.mark.parametrize(
    "name", [FILE, NAME, NAME.upper(), NAME + FILE, "\x02[]\x03", "\\u0005", "\\u0004model\\u0004"]
)
def test_what_tensors_are_called_is_no_place_for_other_names(name: str, tmp_path: Path) -> None:
    """The file's name stands in comments alone, whatever a tensor is called, and the bytes are those of one model."""
    file = tmp_path / "f(void); int evil(void); int g.onnx"
    x, other, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3]) for n in (name, "other", "y"))
    graph = helper.make_graph([helper.make_node("Add", [name, "other"], ["y"])], "g", [x, other], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(file))
    request = model_request(file, "m", "host", {})
    artifacts = run.kept_or_compiled(request)
    assert artifacts == run.compile_request(request)
    for text in (a.data.decode() for a in artifacts if a.name.endswith((".c", ".h"))):
        assert "evil" in text and "evil" not in re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        assert not re.search(r"[\x00-\x08]", text)


def test_what_a_calibration_says_counts_and_where_it_is_does_not(requests: list[ModelRequest], tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "c.yaml").write_text("1")
        compiled(requests, DIGITS, calibration=str(tmp_path / folder / "c.yaml"))
    assert len(requests) == 1
    (tmp_path / "b" / "c.yaml").write_text("2")
    compiled(requests, DIGITS, calibration=str(tmp_path / "b" / "c.yaml"))
    assert len(requests) == 2


def test_half_an_entry_is_none(requests: list[ModelRequest]) -> None:
    compiled(requests, DIGITS)
    (entry,) = entries()
    (entry / "digits.c").unlink()
    compiled(requests, DIGITS)
    assert len(requests) == 2


@pytest.mark.parametrize("form", ["file", "link", "folder", "pipe"])
def test_what_is_in_the_place_of_an_entry_stays(form: str, requests: list[ModelRequest], tmp_path: Path) -> None:
    compiled(requests, DIGITS)
    (entry,) = entries()
    other = entry.rename(tmp_path / "other")
    if form == "file":
        entry.write_text("a file")
    elif form == "link":
        entry.symlink_to(other)
    elif form == "folder":
        entry.mkdir()
        (entry / "digits.txt").write_text("a file")
    else:
        os.mkfifo(entry)
    compiled(requests, DIGITS)
    compiled(requests, DIGITS)
    assert len(requests) == 3
    assert cache.clear() == cache.Content(others=(entry.parent.name,))
    assert os.path.lexists(entry) and len(list(other.iterdir())) == len(model_outputs("digits")) + 3
    assert form != "folder" or (entry / "digits.txt").read_text() == "a file"


def test_what_is_not_kept(requests: list[ModelRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of a time limit depend on the machine; with the cache off nothing is written."""
    compiled(requests, DIGITS, time_limit=5)
    assert not entries()
    monkeypatch.setenv("EDGEBUILD_CACHE", "")
    compiled(requests, DIGITS)
    compiled(requests, DIGITS)
    assert len(requests) == 3 and cache.folder() is None


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


def snapshot(folder: Path) -> dict[str, bytes | str | None]:
    """All that lies below a folder: the bytes of files, the aims of links, None for others."""
    return {
        str(p.relative_to(folder)): os.readlink(p) if p.is_symlink() else p.read_bytes() if p.is_file() else None
        for p in sorted(folder.rglob("*"))
    }


def test_clear_leaves_what_is_no_entry(
    requests: list[ModelRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of the user's, named as the cache by mistake: with names like ours, links, and what was half written."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (tmp_path / "afar.c").write_text("behind a link")
    for name in ("thesis.tex", "ab/notes", f"ab/{'c' * 62}/digits.c", f"ab/{'d' * 62}/digests", "tuned/x.json"):
        (mine / name).parent.mkdir(parents=True, exist_ok=True)
        (mine / name).write_text("of the user")
    (mine / "ab" / ("e" * 62)).symlink_to(tmp_path)
    (mine / "ff").symlink_to(tmp_path)
    (mine / "ab" / f".{'f' * 62}.12.0").mkdir()
    os.mkfifo(mine / "ab" / ("1" * 62))
    foreign = snapshot(tmp_path)
    monkeypatch.setenv("EDGEBUILD_CACHE", str(mine))
    compiled(requests, DIGITS)
    (entry,) = entries()
    shutil.copytree(entry, entry.parent / f".{entry.name}.12.0")
    (entry.parent / f".{entry.name}.12.0" / "digits.h").unlink()
    size = sum(file.stat().st_size for file in entry.iterdir())
    assert main(["cache"]) == 0
    assert capsys.readouterr().out.startswith(f"{mine}: 1 entries, ")
    (entry / "mine.txt").write_text("of the user")
    assert main(["cache", "clear"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("removed 1 entries, ") and int(first.split(", ")[1][:-2].replace(",", "")) > size
    assert second.startswith(f"what is no entry stays in {mine}: ") and "thesis.tex" in second
    left = snapshot(tmp_path)
    assert left.pop(str((entry / "mine.txt").relative_to(tmp_path))) == b"of the user"
    assert foreign.items() <= left.items() and {*left} - {*foreign} <= {
        str(p.relative_to(tmp_path)) for p in (entry, entry.parent)
    }
    (entry / "mine.txt").unlink()


def test_a_list_that_names_other_files_removes_none(requests: list[ModelRequest], tmp_path: Path) -> None:
    victim = tmp_path / "victim.c"
    victim.write_text("of the user")
    compiled(requests, DIGITS)
    (entry,) = entries()
    key = entry.parent.name + entry.name
    for name in ("../../../victim.c", str(victim), "..", "", "digests"):
        (entry / cache.LIST).write_text(f"{key}\n{'0' * 64} {name}\n")
        cleared = cache.clear()
        assert cleared is not None and not cleared.entries
        assert victim.read_text() == "of the user" and (entry / "digits.c").exists()


def test_clear(requests: list[ModelRequest], capsys: pytest.CaptureFixture[str]) -> None:
    compiled(requests, DIGITS)
    assert main(["cache", "clear"]) == 0 and capsys.readouterr().out.startswith("removed 1 entries, ")
    assert main(["cache", "clear"]) == 0 and capsys.readouterr().out == "removed 0 entries, 0 B\n"


@pytest.mark.parametrize("how", ["group", "others", "owner", "file", "room", "entry"])
def test_a_folder_that_others_may_write_is_not_used(
    how: str, requests: list[ModelRequest], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The build goes on without, and says why where the user can do something."""
    cache._warn.cache_clear()
    right = compiled(requests, DIGITS)
    (entry,) = entries()
    where = entry.parents[1]
    if how == "owner":
        if os.getuid():
            pytest.skip("only root may give a folder away")
        os.chown(where, 12345, -1)
    elif how == "file":
        where.rename(tmp_path / "moved")
        where.write_text("a file")
    else:
        place = {"room": entry.parent, "entry": entry / "digits.c"}.get(how, where)
        place.chmod(place.stat().st_mode | (0o020 if how == "group" else 0o002))
    again = compiled(requests, DIGITS)
    errors = capsys.readouterr().err
    assert len(requests) == 2 and again != right
    if how in ("room", "entry"):
        assert "is not used: it is damaged, or somebody else wrote it" in errors if how == "entry" else not errors
        return
    compiled(requests, DIGITS)
    assert errors.startswith(f"{where}: warning: the cache is not used: ") and not capsys.readouterr().err
    before = snapshot(where) if how != "file" else {}
    assert main(["cache", "clear"]) == 1 and main(["cache"]) == 1
    assert before == (snapshot(where) if how != "file" else {})


@pytest.mark.parametrize("kind", ["pipe", "link", "device", "socket"])
def test_what_is_no_file_in_an_entry_neither_blocks_nor_is_followed(
    kind: str, requests: list[ModelRequest], tmp_path: Path
) -> None:
    right = compiled(requests, DIGITS)
    (entry,) = entries()
    for file in (entry / "digits.c", entry / cache.LIST):
        data = file.read_bytes()
        file.unlink()
        if kind == "pipe":
            os.mkfifo(file)
        elif kind == "link":
            (tmp_path / file.name).write_bytes(data)
            file.symlink_to(tmp_path / file.name)
        elif kind == "device":
            file.symlink_to("/dev/zero")
        else:
            with socket.socket(socket.AF_UNIX) as bound, chdir(entry):
                bound.bind(file.name)
        seen: list[ModelRequest] = []
        compiled(seen, DIGITS)
        assert seen
        shutil.rmtree(entry)
        compiled([], DIGITS)
    assert right


def test_a_corrupted_entry_is_never_used(requests: list[ModelRequest], tmp_path: Path) -> None:
    """150 entries, each damaged in one place: cut, changed, exchanged, of another key, or without a file."""
    random = Random(0)
    right = compiled(requests, DIGITS)
    (entry,) = entries()
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


def test_all_code_and_hal_files_are_in_the_key(requests: list[ModelRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in an installed package: its templates may have been replaced by others of the same version."""
    names = {Path(file).name for file in code_files()}
    assert {"request.py", "weights.j2", "model.c.j2", "cortex_m.c", "firmware.ld", "mps2-an386.yaml"} <= names
    compiled(requests, DIGITS)
    monkeypatch.setattr(cache, "code_at_start", lambda: "of other code")
    compiled(requests, DIGITS)
    assert len(requests) == 2


def test_a_model_is_not_kept_if_the_code_changes_meanwhile(
    requests: list[ModelRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as edited:
        edited.setattr(cache, "code_digest", lambda: "of other code")
        compiled(requests, DIGITS)
    assert cache.content() == cache.Content()


def test_a_model_that_changes_meanwhile_is_not_kept(requests: list[ModelRequest], tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"one")
    request = model_request(model, "m", "host", {})

    def compile_model(request: ModelRequest) -> tuple[Artifact, ...]:
        model.write_bytes(b"two")
        return tuple(Artifact(name, b"two") for name in model_outputs("m"))

    cache.compiled(request, [str(model)], compile_model)
    assert not entries()


def test_an_entry_of_another_is_not_used(
    requests: list[ModelRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With all digests right: who wrote it does not know this user's key. The user gets one word of it."""
    mine = os.environ["XDG_CONFIG_HOME"]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "of another"))
    compiled(requests, DIGITS)
    monkeypatch.setenv("XDG_CONFIG_HOME", mine)
    cache._secret.cache_clear()
    (entry,) = entries()
    damaged = cache.verified()
    assert damaged is not None and damaged.damaged == damaged.entries
    compiled(requests, DIGITS)
    text = capsys.readouterr().err
    assert len(requests) == 2 and text.count("warning") == 1 and f"{entry.parent.name}/{entry.name} is not used" in text
    compiled(requests, DIGITS)
    verified = cache.verified()
    assert len(requests) == 2 and verified is not None and not verified.damaged, "the entry was written anew"


def test_machines_that_share_a_key_share_entries(
    requests: list[ModelRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for home in ("a", "b"):
        monkeypatch.setenv("EDGEBUILD_CACHE_KEY", "ours")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / home))
        cache._secret.cache_clear()
        compiled(requests, DIGITS)
    assert len(requests) == 1 and not (tmp_path / "b").exists()


def test_the_key_is_for_its_user_alone(requests: list[ModelRequest]) -> None:
    compiled(requests, DIGITS)
    assert Path(os.environ["XDG_CONFIG_HOME"], "edgebuild", cache.SECRET).stat().st_mode & 0o777 == 0o600


def test_resigned_entries_are_not_used(requests: list[ModelRequest], capsys: pytest.CaptureFixture[str]) -> None:
    """Another product with its digest in the list: the seal is of the old list."""
    compiled(requests, DIGITS)
    (entry,) = entries()
    (entry / "digits.c").write_text("other")
    data = {name: (entry / name).read_bytes() for name in (*model_outputs("digits"), cache.WARNINGS)}
    (entry / cache.LIST).write_bytes(cache._list(entry.parent.name + entry.name, data))
    for artifact in compiled(requests, DIGITS):
        assert artifact.data != b"other"
    assert len(requests) == 2 and main(["cache", "verify"]) == 0


def test_verify_names_what_no_build_takes(requests: list[ModelRequest], capsys: pytest.CaptureFixture[str]) -> None:
    compiled(requests, DIGITS)
    compiled(requests, DIGITS, tile="rolling")
    assert main(["cache", "verify"]) == 0
    first, _ = entries()
    (first / "digits.h").write_text("other")
    capsys.readouterr()
    assert main(["cache", "verify"]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"{first}: damaged, or written by somebody else; no build takes it"
    ]


def test_the_bound_removes_what_was_not_asked_for_the_longest(
    requests: list[ModelRequest], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiles = ("off", "fdt", "ffmt", "rolling")
    for age, tile in enumerate(tiles):
        compiled(requests, DIGITS, tile=tile)
        newest = max(entries(), key=lambda e: e.stat().st_mtime)
        os.utime(newest, (1e9 + age, 1e9 + age))
    content = cache.content()
    assert content is not None and len(content.entries) == 4
    compiled(requests, DIGITS, tile="off")  # the oldest is asked for
    monkeypatch.setenv("EDGEBUILD_CACHE_SIZE", str(content.bytes * 3 // 4))
    compiled(requests, DIGITS, tile="auto")
    content = cache.content()
    assert content is not None and content.bytes <= cache.bound() and len(content.entries) == 3
    compiled(requests, DIGITS, tile="off")
    compiled(requests, DIGITS, tile="auto")
    assert len(requests) == 5
    compiled(requests, DIGITS, tile="fdt")
    assert len(requests) == 6 and main(["cache", "stats"]) == 0
    assert f"bound: {cache.bound():,} B" in capsys.readouterr().out
    trimmed = list[int]()
    monkeypatch.setattr(cache, "_trim", trimmed.append)
    cache.remember("question", 1)
    compiled(requests, DIGITS, tile="ffmt", ram="40K")
    assert len(requests) == 7 and len(trimmed) == 1, "each look at all entries takes time"


def test_warnings_of_a_compilation_are_given_again(
    requests: list[ModelRequest], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the place of the model that is asked for."""

    def compile_model(request: ModelRequest) -> tuple[Artifact, ...]:
        progress.warn(Diagnostic("odd", str(request.source), node="n", hints=("so",), severity="warning"))
        return tuple(Artifact(name, b"") for name in model_outputs(request.name))

    errors = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        shutil.copy(DIGITS, tmp_path / folder)
        request = model_request(tmp_path / folder / DIGITS.name, "digits", "host", {})
        cache.compiled(request, [str(request.source)], compile_model if folder == "a" else NEVER)
        errors.append(capsys.readouterr().err)
    assert "odd" in errors[0] and errors[1] == errors[0].replace(str(tmp_path / "a"), str(tmp_path / "b"))


def NEVER(request: ModelRequest) -> tuple[Artifact, ...]:
    raise AssertionError


def test_a_search_that_the_user_ended_is_not_kept(
    requests: list[ModelRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_stopped", True)
    compiled(requests, DIGITS)
    cache.remember("question", 1)
    assert not entries() and cache.remembered("question") is None


def test_answers_are_kept_as_data(requests: list[ModelRequest]) -> None:
    assert cache.remembered("question") is None
    cache.remember("question", {"offsets": [1, 2]})
    assert cache.remembered("question") == {"offsets": [1, 2]} and cache.remembered("other question") is None
    cleared = cache.clear()
    assert cleared is not None and len(cleared.entries) == 1 and cache.remembered("question") is None


TWO_BUILDS = """
import sys, time
from pathlib import Path
from edgebuild.base import cache, progress
from edgebuild.base.artifacts import Artifact
from edgebuild.base.request import model_outputs, model_request
def compile_model(request):
    print("compiles", flush=True)
    time.sleep(1)
    return tuple(Artifact(name, b"") for name in model_outputs(request.name))
request = model_request(Path(sys.argv[1]), "n", "host", {})
cache.compiled(request, [sys.argv[1]], compile_model)
"""


def test_of_two_builds_at_one_time_one_compiles(requests: list[ModelRequest]) -> None:
    command = [sys.executable, "-c", TWO_BUILDS, str(DIGITS)]
    builds = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sum(build.communicate()[0].count("compiles") for build in builds) == 1
    assert [f.name for entry in entries() for f in entry.parent.iterdir()] == [entry.name for entry in entries()]


def test_a_build_goes_on_when_another_one_is_killed(requests: list[ModelRequest]) -> None:
    command = [sys.executable, "-c", TWO_BUILDS.replace("sleep(1)", "sleep(60)"), str(DIGITS)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None and killed.stdout.readline()
        killed.kill()
    command[2] = TWO_BUILDS
    assert subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60).stdout == "compiles\n"
