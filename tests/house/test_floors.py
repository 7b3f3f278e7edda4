"""How the parts of the house may import each other.

Wings stand in the order of WINGS: a wing imports those before it, and `model` and `driver` do not know each other.
Within each folder, rooms (modules and packages directly below it) import each other in one direction, type hints
included.
"""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "edgebuild"
WINGS = [{"base"}, {"doors", "clock"}, {"model", "driver"}, {"build"}, {"cli"}]
FLOOR = {wing: number for number, wings in enumerate(WINGS) for wing in wings}
# The command starts in `build.entry`, whose short way out imports nothing; the rest of it is `cli`.
# `edgebuild.compile` is loaded when somebody asks for it.
LIFTS = {("build", "cli"), ("__main__", "build"), ("__init__", "build"), ("__init__", "base")}


@cache
def files() -> list[Path]:
    return sorted(f for f in PACKAGE.rglob("*.py") if "__pycache__" not in f.parts and "site_tools" not in f.parts)


def module(file: Path) -> tuple[str, ...]:
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


@cache
def imports(file: Path) -> list[tuple[int, tuple[str, ...]]]:
    """(line, module) of all imports from this package, those inside of functions too."""
    result = []
    here = ["edgebuild", *file.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(tree(file)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{origin}.{alias.name}" for alias in node.names]
        for name in dict.fromkeys(names):
            first, *rest = name.split(".")
            if first == "edgebuild" and rest and rest != ["__version__"]:
                result.append((node.lineno, tuple(rest)))
    return result


def test_wings_import_those_before_them() -> None:
    for file in files():
        here = module(file)[0]
        for line, (there, *_) in imports(file):
            allowed = there == here or (here, there) in LIFTS or FLOOR[there] < FLOOR[here]
            assert allowed, f"{file}:{line}: {here} imports {there}"


def test_imports_within_the_package_are_relative() -> None:
    for file in files():
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.ImportFrom) and not node.level:
                assert (node.module or "").split(".")[0] != "edgebuild", f"{file}:{node.lineno}: not relative"


@pytest.mark.parametrize(
    "folder", sorted({module(f)[:n] for f in files() for n in range(1, len(module(f)))}), ids="/".join
)
def test_rooms_of_a_folder_import_in_one_direction(folder: tuple[str, ...]) -> None:
    graph: dict[str, set[str]] = {}
    depth = len(folder)
    for file in files():
        mine = module(file)
        if mine[:depth] == folder and len(mine) > depth:
            rooms = (there[depth] for _, there in imports(file) if there[:depth] == folder and len(there) > depth)
            graph.setdefault(mine[depth], set()).update(room for room in rooms if room != mine[depth])
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"rooms of {'/'.join(folder)} import each other in a circle: {' -> '.join(error.args[1])}")


def test_there_are_few_doors() -> None:
    """A newcomer sees at one look what there is."""
    entries = {f.stem for f in PACKAGE.iterdir() if not f.name.startswith("_") and f.name != "py.typed"}
    assert entries == set(FLOOR)
