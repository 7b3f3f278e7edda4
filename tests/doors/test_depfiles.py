"""Depfiles with the names that paths may have: make, ninja and CMake read them, or the command says which it is."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgebuild.base.depfile import cmake_depfile, make_depfile, unread_by_make
from edgebuild.base.errors import EdgebuildError
from edgebuild.cli import main
from tests.conftest import ROOT, run
from tests.doors.projects import DIGITS
from tests.fuzz.hostile import shown

SIGNS = "".join(c for c in map(chr, range(1, 127)) if c not in "\n;/")
PAIRS = (
    "\\",
    "\\ ",
    "\\\t",
    "\\#",
    "\\:",
    "\\=",
    "\\|",
    "\\$",
    "\\%",
    "\\*",
    "\\[",
    "[a]",
    "[!a]",
    "a",
    "*",
    "?",
    "~",
    "é",
)
NINJA = "!%()+,-.:=@[]_{}~ #$é"  # what ninja 1.11 has in a path, besides letters and digits
OLD, NEW = 1_500_000_000, 1_700_000_000


def files(folder: Path, names: Sequence[str]) -> list[str]:
    for name in names:
        (folder / name).touch()
        os.utime(folder / name, (OLD, OLD))
    return [str(folder / name) for name in names]


def fits(name: str) -> bool:
    return name not in (".", "..") and not (name.endswith(")") and "(" in name)


@pytest.mark.needs("make")
def test_make_reads_any_name_that_it_can_write(tmp_path: Path) -> None:
    """Each of many files is newer than its target, and none is: first no rule runs, then all do."""
    random = Random(5)
    names = {"".join(random.choices(PAIRS + tuple(SIGNS), k=random.randint(1, 5))) for _ in range(250)}
    names = sorted({*(f"a{c}b" for c in SIGNS), *(f"{c}" for c in SIGNS), *names})
    names = [name for name in names if fits(name)]
    (place := tmp_path / "in").mkdir()
    paths = files(place, [*names, "first", "last"])
    rules = [
        f"{make_depfile(f't{n}', [paths[-2], path, paths[-1]])}\t@echo ran {n}\n" for n, path in enumerate(paths[:-2])
    ]
    targets = files(tmp_path, [f"t{n}" for n in range(len(names))])
    makefile = "\n".join(["all: " + " ".join(f"t{n}" for n in range(len(names))), *rules])
    (tmp_path / "GNUmakefile").write_bytes(os.fsencode(makefile))
    for target in targets:
        os.utime(target, (OLD + 1, OLD + 1))
    assert "ran" not in run("make", "-s", "-r", cwd=tmp_path)
    for path in paths[:-2]:
        os.utime(path, (NEW, NEW))
    assert len(run("make", "-s", "-r", cwd=tmp_path).splitlines()) == len(names)


@pytest.mark.needs("make")
def test_a_name_with_brackets_beside_what_it_would_fit(tmp_path: Path) -> None:
    path, other, target = files(tmp_path, ["m[1].onnx", "m1.onnx", "t"])
    os.utime(target, (OLD + 1, OLD + 1))
    (tmp_path / "Makefile").write_text(f"{make_depfile('t', [other, path])}\t@echo ran\n")
    assert run("make", "-s", cwd=tmp_path) == ""
    os.utime(path, (NEW, NEW))
    assert run("make", "-s", cwd=tmp_path) == "ran\n"


@pytest.mark.needs("ninja")
def test_ninja_reads_the_same_names(tmp_path: Path) -> None:
    names = [f"a{c}b" for c in NINJA] + ["a\\b", "m[1].onnx"]
    paths = files(tmp_path, names)
    (tmp_path / "given.d").write_text(make_depfile("out", paths))
    rule = "rule r\n  command = cp given.d out.d && touch out\n  depfile = out.d\nbuild out: r\n"
    (tmp_path / "build.ninja").write_text(rule)
    run("ninja", cwd=tmp_path)
    assert "no work to do" in run("ninja", cwd=tmp_path)
    for path in paths:
        os.utime(tmp_path / "out", (OLD + 60, OLD + 60))
        os.utime(path, (OLD + 120, OLD + 120))
        assert "no work to do" not in run("ninja", cwd=tmp_path), path
        assert "no work to do" in run("ninja", cwd=tmp_path), path
        os.utime(path, (OLD, OLD))


@pytest.mark.needs("cmake")
@pytest.mark.parametrize("form", ["Ninja", "Unix Makefiles"])
def test_cmake_reads_the_form_of_builds(form: str, tmp_path: Path) -> None:
    names = [f"a{c}b" for c in NINJA.replace("%", "") + "|*?<>&;'"]
    text = cmake_depfile(str(tmp_path / "o.stamp"), [str(tmp_path / name) for name in names])
    (tmp_path / "in.d").write_text(text)
    places = [tmp_path] * 4
    run("cmake", "-E", "cmake_transform_depfile", form, "gccdepfile", *places, "in.d", "out.d", cwd=tmp_path)
    written = (tmp_path / "out.d").read_text().replace("\\ ", " ").replace("\\#", "#").replace("$$", "$")
    assert all(f"{name} \\" in written or f"{name}\n" in written for name in names), written


@pytest.mark.parametrize(
    ("target", "path", "reason"),
    [
        ("n.c", "a;b", "a path with a ';' cannot stand in a depfile"),
        ("n.c", "a\nb", "a path with a line break"),
        ("a\tb/n.c", "x", "a path with a tab"),
        ("n.c", "a(b)", "make looks into an archive"),
    ],
)
def test_what_make_cannot_write_is_refused(target: str, path: str, reason: str) -> None:
    with pytest.raises(EdgebuildError, match=reason.replace("(", "\\(")) as error:
        make_depfile(target, [path])
    assert shown(str(error.value))


def test_what_make_takes_for_an_assignment_is_reported() -> None:
    assert (
        unread_by_make("n.c", ["a=b", "c"]) is None
        and unread_by_make("a=b/n.c", ["c"])
        and unread_by_make("n.c", ["="])
    )
    assert make_depfile("n.c", ["a=b", "c"]).startswith("n.c: \\\n  c ")


def external(folder: Path, data: str) -> Path:
    """A model whose weights are in a file of this name."""
    ports = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 300]) for n in "xy"]
    weights = numpy_helper.from_array(np.ones((300, 300), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(folder / "net.onnx"), save_as_external_data=True, location=data)
    return folder / "net.onnx"


def test_the_command_writes_nothing_with_a_depfile_that_make_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = external(tmp_path, "a;b")
    words = ["model", str(model), "--target", "host", "-o", str(tmp_path / "out")]
    assert main([*words, "--depfile", str(tmp_path / "d")]) == 1
    assert "a;b: error: a path with a ';' cannot stand in a depfile" in capsys.readouterr().err
    assert not (tmp_path / "out").exists() and not (tmp_path / "d").exists()
    assert main(words) == 0


CMAKELISTS = """\
cmake_minimum_required(VERSION 3.20)
project(app LANGUAGES C)
find_package(EdgeBuild REQUIRED)
add_model(net MODEL net.onnx)
"""


@pytest.mark.one_in(2)
@pytest.mark.needs("cmake", "make", "ninja", "gcc")
@pytest.mark.parametrize(("generator", "data"), [("Unix Makefiles", "a b=$#%c"), ("Ninja", "a:b =c")])
def test_builds_see_files_of_any_name(generator: str, data: str, tmp_path: Path) -> None:
    external(tmp_path, data)
    (tmp_path / "CMakeLists.txt").write_text(CMAKELISTS)
    package = f"-DEdgeBuild_DIR={ROOT / 'edgebuild' / 'build' / 'cmake'}"
    run("cmake", "-G", generator, package, "-S", tmp_path, "-B", tmp_path / "b", env={"EDGEBUILD_CACHE": ""})
    outputs = [run("cmake", "--build", tmp_path / "b", cwd=tmp_path)]
    outputs.append(run("cmake", "--build", tmp_path / "b", cwd=tmp_path))
    (tmp_path / data).write_bytes(np.full((300, 300), 2, np.float32).tobytes())
    os.utime(tmp_path / data, (NEW * 2, NEW * 2))
    outputs.append(run("cmake", "--build", tmp_path / "b", cwd=tmp_path))
    assert ["Generating net" in text for text in outputs] == [True, False, True], outputs


def test_a_request_with_a_line_break_in_a_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder := tmp_path / "a\nb").mkdir()
    (folder / "digits.onnx").write_bytes((DIGITS / "digits.onnx").read_bytes())
    members = {"schema": 1, "kind": "model", "name": "n", "source": "digits.onnx", "target": "host", "output": "."}
    (folder / "n.req.json").write_text(json.dumps({**members, "options": {}}))
    assert main(["run", str(folder / "n.req.json")]) == 1
    assert "a path with a line break cannot stand in stamps" in capsys.readouterr().err
    assert {f.name for f in folder.iterdir()} == {"digits.onnx", "n.req.json"}


def test_a_path_that_makefiles_of_cmake_cannot_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The build goes on without that file, and says so. CMake would write what make refuses in all later builds."""
    external(tmp_path, "a:b")
    members = {"schema": 1, "kind": "model", "name": "n", "source": "net.onnx", "target": "host", "output": "."}
    (tmp_path / "n.req.json").write_text(json.dumps({**members, "options": {}}))
    assert main(["run", str(tmp_path / "n.req.json")]) == 0
    assert not capsys.readouterr().err and "a:b" in (tmp_path / "n.d").read_text()
    (tmp_path / "n.stamp").unlink()
    assert main(["run", "--makefiles", str(tmp_path / "n.req.json")]) == 0
    assert "a:b: warning: CMake has no way to write this path" in capsys.readouterr().err
    assert "a:b" not in (tmp_path / "n.d").read_text() and "n_report.json" in (tmp_path / "n.d").read_text()
