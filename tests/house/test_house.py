"""Rules that no tool checks: passes know no operators, files stay readable, generated files state their licence."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgebuild import __version__
from edgebuild.base.request import ModelRequest
from edgebuild.model import ops
from edgebuild.model.compile import compile_model
from tests.house.test_floors import PACKAGE, tree

ROOT = Path(__file__).parents[2]
LINES = 800


def sources(*folders: Path, suffix: str) -> list[Path]:
    return sorted(f for folder in folders for f in folder.rglob(f"*{suffix}") if "__pycache__" not in f.parts)


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def test_files_are_short() -> None:
    for file in (*sources(PACKAGE, ROOT / "tests", suffix=".py"), *sources(PACKAGE, suffix=".j2")):
        assert len(file.read_text().splitlines()) < LINES, name(file)


def test_functions_fit_a_screen() -> None:
    """The longest has 60 lines, and 19 of 20 have at most 26."""
    lengths = sorted(
        (node.end_lineno - node.lineno + 1, f"{name(file)}:{node.lineno} {node.name}")
        for file in sources(PACKAGE, suffix=".py")
        for node in ast.walk(tree(file))
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None
    )
    assert lengths[-1][0] <= 60, lengths[-1]
    assert lengths[len(lengths) * 19 // 20][0] <= 26


KERNELS = PACKAGE / "model" / "kernels"


@pytest.mark.parametrize("wing", sorted(f.name for f in PACKAGE.iterdir() if f.is_dir() and f.name[0] != "_"))
def test_names_of_files_occur_once_in_a_wing(wing: str) -> None:
    """A name says what a file is for. Folders of kernels have files of one role for each processor."""
    seen: dict[str, Path] = {}
    for file in sources(PACKAGE / wing, suffix=".py"):
        first = seen.setdefault(file.name, file)
        role = first.parent.parent == file.parent.parent == KERNELS
        assert first == file or role or file.name == "__init__.py", f"{name(file)} and {name(first)}"


def test_modules_bind_no_constant_twice() -> None:
    """Files that were merged had margins of one name: the second pair held for both pictures."""
    for file in sources(PACKAGE, suffix=".py"):
        targets = [t for node in tree(file).body if isinstance(node, ast.Assign) for t in node.targets]
        leaves = [leaf for t in targets for leaf in (t.elts if isinstance(t, ast.Tuple) else [t])]
        names = [leaf.id for leaf in leaves if isinstance(leaf, ast.Name)]
        assert len({*names}) == len(names), f"{name(file)}: {[n for n in names if names.count(n) > 1]}"


def test_there_are_no_stubs() -> None:
    """A class knows none above its own; where it must be filled in, it is abstract and says so."""
    for file in sources(PACKAGE, suffix=".py"):
        assert "NotImplementedError" not in file.read_text(), name(file)


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    for file in sources(PACKAGE, ROOT / "tests", ROOT / "site_scons", suffix=".py"):
        assert not re.search(r'^ *"""What ', file.read_text(), re.MULTILINE), name(file)


def decisions(module: ast.Module) -> Iterator[tuple[int, list[Any]]]:
    """Lines that compare or look up constants, with these constants."""
    for node in ast.walk(module):
        match node:
            case ast.Compare() | ast.match_case():
                attributes = {
                    id(n.slice)
                    for n in ast.walk(node)
                    if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Attribute) and n.value.attr == "attrs"
                }
                names = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and id(n) not in attributes]
            case ast.Subscript(value=ast.Attribute(attr="attrs")):  # attributes have names of their own
                continue
            case ast.Subscript(slice=ast.Constant(value=key)):
                names = [key]
            case ast.Dict(keys=keys):  # a table by operator has nothing but operators
                names = [k.value for k in keys if isinstance(k, ast.Constant)]
                names = names if len(names) > 1 and all(n in ops.SPECS for n in names) else []
            case _:
                continue
        yield getattr(node, "lineno", 0), names


def test_algorithms_name_no_operator() -> None:
    """Facts about an operator stand in `ops`; other rooms ask for them and never decide by its name."""
    for file in sources(*(PACKAGE / "model" / room for room in ("passes", "plan", "energy", "emit")), suffix=".py"):
        for line, names in decisions(tree(file)) if "canonicalize" not in name(file) else ():  # pairs are its subject
            assert ops.SPECS.keys().isdisjoint(names), f"{name(file)}:{line}: decides by one of {names}"


PRINTERS = ("model/emit", "model/kernels", "model/ops", "model/plan", "driver/emit", "driver/prove", "clock")


@pytest.mark.parametrize("room", PRINTERS)
def test_generated_text_is_not_parsed(room: str) -> None:
    """Rooms that print C know what it needs, and have no regular expressions to find it in the text again.

    `clock/configs.py` reads words of the command line with one.
    """
    for file in sources(PACKAGE / room, suffix=".py"):
        names = (a.name for n in ast.walk(tree(file)) if isinstance(n, ast.Import) for a in n.names)
        assert "re" not in names or name(file).endswith("clock/configs.py"), name(file)
        assert '"#line' not in file.read_text(), f"{name(file)}: lines of the source are values, `LineMark`"


@pytest.mark.parametrize("target", ["host", "mps2-an386"])
def test_generated_files_say_their_licence(target: str) -> None:
    """Users own what is made of their model, and each file says so. Weights and report have no place for it."""
    model = ROOT / "sample_projects" / "digits" / "digits.onnx"
    for artifact in compile_model(ModelRequest(model, "digits", target)):
        if not artifact.name.endswith((".bin", ".json")):
            assert b"SPDX-License-Identifier: " in artifact.data, artifact.name


def test_version_is_written_once_more_for_cmake_and_agrees() -> None:
    text = (PACKAGE / "build" / "cmake" / "EdgeBuildConfigVersion.cmake").read_text()
    assert re.search(r"set\(PACKAGE_VERSION (\S+)\)", text).group(1) == __version__  # type: ignore[union-attr]


def test_samples_are_short() -> None:
    for file in (ROOT / "sample_projects").glob("*/*"):
        if file.name in ("SConscript", "CMakeLists.txt"):
            assert len(file.read_text().splitlines()) <= 20, name(file)
    for sample in (ROOT / "sample_projects").iterdir():
        assert (sample / "SConscript").exists() and (sample / "CMakeLists.txt").exists(), name(sample)


TOP = """.ci .gitattributes .gitignore CHANGELOG.md CMakeLists.txt CONTRIBUTING.md LICENSE README.md SConstruct
SECURITY.md docs edgebuild hal mkdocs.yml pyproject.toml sample_projects sconsw site_scons tests"""


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_nothing_strays_at_the_top() -> None:
    """Products of a command that was tried in the checkout are soon committed with all else."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split("/")[0] for line in listed.splitlines()} == set(TOP.split())
