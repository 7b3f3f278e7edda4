"""Rooms and floors: an import may only point down, and peers on one floor do not import each other.

The table is the rule. A room is a module or a package directly below `edgebuild`; within a package anything goes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "edgebuild"

FLOORS = [
    # what everything stands on: words for mistakes, files, graphs, targets, requests
    {"errors", "progress"},
    {"artifacts", "axes", "entry", "facts", "ir", "request", "target"},
    # facts by op; where the parts of an installation are
    {"ops", "doors", "summary"},
    # what was compiled before
    {"cache"},
    {"choices"},
    # algorithms: each sees values of the floors below, and no other algorithm
    {"cost", "distribute", "energy", "hierarchy", "importers", "memory", "passes", "rolling"},
    {"sections", "tiling"},
    {"pareto", "replay", "storage", "strips"},
    {"explore"},
    {"dvfs"},  # a plan with its clocks
    {"emit"},
    {"drivers", "firmware"},
    {"compile"},
    {"verify"},
    # what people and build systems call
    {"calibrate", "cmake", "run", "scons", "tune"},
    {"cli"},
]
FLOOR = {room: number for number, floor in enumerate(FLOORS) for room in floor}
# The command starts on the lowest floor, because its short way out must not import anything, and takes the lift.
LIFTS = {("entry", "cli"), ("__main__", "entry")}


def files() -> list[Path]:
    return sorted(f for f in PACKAGE.rglob("*.py") if "__pycache__" not in f.parts and "site_tools" not in f.parts)


def room(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """(line, room) of all imports from this package, those inside of functions too."""
    here = ["edgebuild", *file.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(file.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" if module == "edgebuild" else module for alias in node.names]
        for name in dict.fromkeys(names):
            first, *rest = name.split(".")
            if first == "edgebuild" and rest:
                yield node.lineno, rest[0]


@pytest.mark.parametrize("file", files(), ids=lambda f: str(f.relative_to(PACKAGE)))
def test_imports_point_down(file: Path) -> None:
    here = room(file)
    if here == "__init__":
        assert not list(imports(file)), "the package itself stays empty: the no-change path imports it"
        return
    assert here in FLOOR or here == "__main__", f"{here} has no floor yet: put it into FLOORS"
    for line, there in imports(file):
        if there == here or (here, there) in LIFTS or there == "__version__":
            continue
        assert there in FLOOR, f"{file}:{line}: {there} has no floor yet: put it into FLOORS"
        assert FLOOR[there] < FLOOR[here], (
            f"{file}:{line}: {here} (floor {FLOOR[here]}) imports {there} ({FLOOR[there]})"
        )
