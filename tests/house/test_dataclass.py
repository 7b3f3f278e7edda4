"""The package's own `dataclass` makes what that of the standard library makes."""

from __future__ import annotations

import ast
import dataclasses
import math
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import edgebuild.base.dataclass as own

PACKAGE = Path(__file__).parents[2] / "edgebuild"


def classes(dataclass: Any) -> dict[str, Any]:
    """Classes with all that the package uses of dataclasses."""

    @dataclass(frozen=True)
    class Empty:
        """No fields."""

    @dataclass(frozen=True)
    class One:
        """One field."""

        a: float = math.nan

    @dataclass(frozen=True)
    class Plain:
        """All sorts of fields."""

        a: int
        b: str = "b"
        c: tuple[int, ...] = ()
        d: dict[str, int] = field(default_factory=dict, hash=False)
        e: int = field(default=3, compare=False, repr=False)
        f: list[int] = field(default_factory=list, compare=False, kw_only=True)

        @cached_property
        def double(self) -> int:
            return 2 * self.a

    @dataclass(frozen=True)
    class Below(Plain):
        """One that inherits fields, gives one another default, and sets one itself."""

        b: str = "other"
        g: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "g", self.a + 1)

        def __repr__(self) -> str:
            return f"<{self.a}>"

    @dataclass(frozen=True, kw_only=True)
    class Named(Plain):
        """Fields by name alone."""

        h: int

    @dataclass(frozen=True)
    class Alike:
        """A class with an equality of its own."""

        a: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Alike) and self.a % 2 == other.a % 2

    @dataclass(frozen=True)
    class Hashed:
        """A class with a hash of its own."""

        a: list[int]

        def __hash__(self) -> int:
            return 5

    @dataclass(frozen=True, eq=False)
    class Itself:
        """Equal to itself alone."""

        a: int = 1

    @dataclass
    class Open:
        """Fields may be set."""

        a: int
        b: list[int] = field(default_factory=list)
        c: int = 4

    @dataclass(eq=False)
    class Node:
        """Fields may be set, and it is equal to itself alone."""

        a: Any = None

    return {name: value for name, value in locals().items() if isinstance(value, type)}


OURS, THEIRS = classes(own.dataclass), classes(dataclasses.dataclass)

CALLS: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    ("Empty", lambda c: (c["Empty"](), c["Empty"]() == c["Empty"](), hash(c["Empty"]()))),
    ("One", lambda c: (c["One"](), c["One"]() == c["One"](), c["One"](1.0) == c["One"](1), hash(c["One"](2.5)))),
    ("Plain", lambda c: (c["Plain"](1), c["Plain"](1, f=[2]), c["Plain"](1) == c["Plain"](1, e=4, f=[1]))),
    ("hash", lambda c: (hash(c["Plain"](1, "x", (2,))), hash(c["Plain"](1, d={"a": 1})) == hash(c["Plain"](1)))),
    ("other", lambda c: (c["Plain"](1) == c["Below"](1), c["Plain"](1) != c["Plain"](2), c["Plain"](1) == 1)),
    ("apart", lambda c: c["Plain"](1).d is c["Plain"](1).d),
    ("cached", lambda c: c["Plain"](4).double),
    ("Below", lambda c: (c["Below"](1), c["Below"](1).g, c["Below"](1).b, c["Below"](1) == c["Below"](1, "x"))),
    ("Named", lambda c: (c["Named"](1, h=2), c["Named"](1, "x", h=2) == c["Named"](1, h=2))),
    ("Alike", lambda c: (c["Alike"](1) == c["Alike"](3), hash(c["Alike"](1)))),
    ("Hashed", lambda c: hash(c["Hashed"]([1]))),
    ("Itself", lambda c: (c["Itself"](), c["Itself"]() == c["Itself"](), len({c["Itself"](), c["Itself"]()}))),
    ("Open", lambda c: (c["Open"](1), c["Open"](1) == c["Open"](1), c["Open"].__hash__, setattr(c["Open"](1), "a", 2))),
    ("Node", lambda c: (c["Node"]() == c["Node"](), len({c["Node"](), c["Node"]()}))),
    ("fields", lambda c: [(f.name, f.init, f.kw_only, f.compare) for name in c for f in fields(c[name])]),
    ("match", lambda c: [c[name].__match_args__ for name in c]),
    ("names", lambda c: [(c[name].__name__, is_dataclass(c[name]), c[name].__doc__) for name in c]),
    ("replace", lambda c: (replace(c["Plain"](1), b="x"), replace(c["Plain"](1, f=[3]), a=2).f)),
    ("asdict", lambda c: asdict(c["Plain"](1, d={"a": 1}))),
    ("nothing", lambda c: c["Plain"]()),
    ("too many", lambda c: c["One"](1, 2)),
    ("unknown", lambda c: c["One"](b=2)),
    ("by place", lambda c: c["Named"](1, "b", (), {}, 3, 4)),
    ("set", lambda c: setattr(c["Plain"](1), "a", 2)),
    ("new", lambda c: setattr(c["Plain"](1), "z", 2)),
    ("delete", lambda c: delattr(c["Plain"](1), "a")),
    ("unhashable", lambda c: hash(c["Open"](1))),
    ("of its fields", lambda c: hash(c["Plain"]([]))),
]


@pytest.mark.parametrize("call", [call for _, call in CALLS], ids=[name for name, _ in CALLS])
def test_as_the_standard_library(call: Callable[[dict[str, Any]], object]) -> None:
    def outcome(made: dict[str, Any]) -> str:
        try:
            return repr(call(made))
        except (TypeError, AttributeError) as error:
            return f"{type(error).__name__}: {error}"

    for _ in range(2):  # the first object of a class, and the next
        assert outcome(OURS) == outcome(THEIRS)


def test_a_frozen_object_says_so() -> None:
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        OURS["Plain"](1).a = 2


@own.dataclass(frozen=True)
class Sent:
    """Comes out of a pickle before one is made here."""

    a: int


def test_objects_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(Sent(1))) == Sent(1)


def test_an_object_may_contain_itself() -> None:
    loop = OURS["Open"](1)
    loop.b.append(loop)
    other = THEIRS["Open"](1)
    other.b.append(other)
    assert repr(loop) == repr(other)


def test_the_package_uses_its_own() -> None:
    """A class costs a quarter of a millisecond of each start otherwise."""
    for file in PACKAGE.rglob("*.py"):
        if file == Path(own.__file__ or ""):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "dataclasses":
                names = [alias.name for alias in node.names]
                assert "dataclass" not in names, f"{file}:{node.lineno}: take it from edgebuild/base/dataclass.py"
