"""Names say what a thing is: words that say nothing, or make one guess, may not be bound in `edgebuild/` or `tests/`.

A name is checked word by word: `found_rows` binds `found`. docs/glossary.md has the terms to use instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.house.test_floors import PACKAGE, files

WORDS = {
    "found", "known", "made", "told", "said", "guest", "guests", "apart", "afar", "eaten", "stand", "stands", "taken",
}  # fmt: skip
BESIDE = {"edgebuild/model/plan": {"way", "ways"}, "tests": {"way"}}  # a plan is none, nor is an option
OF_LIBRARIES = {"parse_known_args"}  # overrides argparse's method, and so has its name


def bound(module: ast.Module) -> Iterator[str]:
    """Every name that a module binds: of variables, parameters, attributes, functions and classes."""
    for node in ast.walk(module):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def words(name: str) -> set[str]:
    """The words of a name in either case style."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


def folder(file: Path) -> str:
    return file.parent.relative_to(PACKAGE.parent).as_posix()


@cache
def sources() -> list[Path]:
    return [*files(), *sorted((PACKAGE.parent / "tests").rglob("*.py"))]


def count(where: str) -> dict[str, int]:
    """How often a folder binds each name with such a word."""
    banned = WORDS.union(*(more for room, more in BESIDE.items() if where.startswith(room)))
    counts: dict[str, int] = {}
    for file in (f for f in sources() if folder(f) == where):
        for name in bound(ast.parse(file.read_text())):
            if words(name) & banned and name not in OF_LIBRARIES:
                counts[name] = counts.get(name, 0) + 1
    return counts


@pytest.mark.parametrize("where", sorted({folder(f) for f in sources()}))
def test_names_are_plain(where: str) -> None:
    assert count(where) == {}, "names that say nothing; docs/glossary.md has the field's terms"


def test_names_are_split_into_words() -> None:
    module = ast.parse("def found_rows(known, *, x=1):\n    for SetApart in x:\n        self.made = tolder = (y := 2)")
    assert [n for n in bound(module) if words(n) & WORDS] == ["found_rows", "known", "SetApart", "made"]
