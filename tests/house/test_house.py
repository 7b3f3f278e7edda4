"""What no tool checks: passes know no operators, files stay readable, what is generated says whose it is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from edgebuild import __version__, ops
from edgebuild.compile import compile_model
from edgebuild.request import ModelRequest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "edgebuild"
LINES = 600


def sources(*folders: Path, suffix: str) -> list[Path]:
    return sorted(f for folder in folders for f in folder.rglob(f"*{suffix}") if "__pycache__" not in f.parts)


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize(
    "file", [*sources(PACKAGE, ROOT / "tests", suffix=".py"), *sources(PACKAGE, suffix=".j2")], ids=name
)
def test_files_are_short(file: Path) -> None:
    assert len(file.read_text().splitlines()) < LINES


@pytest.mark.parametrize(
    "file",
    [
        f
        for f in sources(PACKAGE / "passes", PACKAGE / "memory", PACKAGE / "emit", suffix=".py")
        if "canonicalize" not in name(f)  # pairs of ops are its subject
    ],
    ids=name,
)
def test_algorithms_name_no_operator(file: Path) -> None:
    """What is true of an operator stands in `ops`; others ask it and never decide by its name."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Compare() | ast.match_case():
                names = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
            case ast.Subscript(slice=ast.Constant(value=key)):
                names = [key]
            case ast.Dict(keys=keys):  # a table by operator has nothing but operators
                names = [k.value for k in keys if isinstance(k, ast.Constant)]
                names = names if names and all(n in ops.SPECS for n in names) else []
            case _:
                continue
        for operator in ops.SPECS:
            assert operator not in names, f"{name(file)}:{getattr(node, 'lineno', 0)}: decides by '{operator}'"


@pytest.mark.parametrize("target", ["host", "mps2-an386"])
def test_generated_files_say_their_licence(target: str) -> None:
    """Users own what is made of their model, and each file says so. Weights and report have no place for it."""
    model = ROOT / "sample_projects" / "digits" / "digits.onnx"
    for artifact in compile_model(ModelRequest(model, "digits", target)):
        if not artifact.name.endswith((".bin", ".json")):
            assert b"SPDX-License-Identifier: " in artifact.data, artifact.name


def test_version_is_written_once_more_for_cmake_and_agrees() -> None:
    text = (PACKAGE / "cmake" / "EdgeBuildConfigVersion.cmake").read_text()
    assert re.search(r"set\(PACKAGE_VERSION (\S+)\)", text).group(1) == __version__  # type: ignore[union-attr]


def test_samples_are_short() -> None:
    for file in (ROOT / "sample_projects").glob("*/*"):
        if file.name in ("SConscript", "CMakeLists.txt"):
            assert len(file.read_text().splitlines()) <= 20, name(file)
    for sample in (ROOT / "sample_projects").iterdir():
        assert (sample / "SConscript").exists() and (sample / "CMakeLists.txt").exists(), name(sample)
