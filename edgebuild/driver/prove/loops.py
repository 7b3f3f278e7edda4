"""Loops by induction: what both sides have in common at the head of a loop, they have again when they come back there.

A function is cut at the heads of its own loops. Between two cuts there are few ways, whatever the number of turns. At a
head both sides have proved to have the same events behind them, the same registers, objects and local variables. From
there on all of these have new values that nothing is known of but that both sides share them. Constants, and parameters
that are not assigned, keep their values as long as every way to the head agrees (Floyd, 1967; here for two programs).

What holds for any such values holds for those of each turn. Where it does not, the proof by turns has the last word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import z3
from clang.cindex import Cursor, CursorKind

from edgebuild.driver.prove.compare import by_name, compare, covered, shared
from edgebuild.driver.prove.effort import Unknown, solver_of
from edgebuild.driver.prove.hardware import ADDRESS, Different, Hardware, Pointer
from edgebuild.driver.prove.lambdas import Closure
from edgebuild.driver.prove.program import Program, is_head
from edgebuild.driver.prove.reals import Real
from edgebuild.driver.prove.relation import Form, fields_of, form_of, word_of
from edgebuild.driver.prove.sides import SideSource
from edgebuild.driver.prove.values import Cut, Int, bits_of
from edgebuild.driver.prove.volatiles import Generated
from edgebuild.driver.prove.ways import Tree, Way, all_ways, together
from edgebuild.driver.source import clang

LOOPS = (CursorKind.WHILE_STMT, CursorKind.DO_STMT, CursorKind.FOR_STMT)
SEGMENT, ROUNDS = 128, 64  # ways from one cut on; segments

Head = tuple[int, int]  # number of the loop, and whether its condition was tested before


class Gone:
    """The value of a variable that the two sides hold in unlike forms."""

    def __getattr__(self, name: str) -> Any:
        raise Unknown("a variable across a loop")

    def __getitem__(self, key: object) -> Any:
        raise Unknown("a variable across a loop")


@dataclass(frozen=True)
class Start:
    """Facts at a head: the variables that have the same values on both sides, and the values that are known."""

    names: tuple[str, ...]
    kept: tuple[tuple[str, Any], ...]
    held: tuple[tuple[str, Form], ...] = ()  # variables that hold a register


@dataclass
class LoopNode:
    """A head, the way that led there first on each side, and what all ways so far have in common."""

    way: tuple[Start, ...]
    taken: tuple[tuple[bool, ...], tuple[bool, ...]]
    names: set[str]
    kept: dict[str, Any]
    held: dict[str, Form]
    waits: bool = True

    @property
    def start(self) -> Start:
        return Start(tuple(sorted(self.names)), tuple(sorted(self.kept.items())), tuple(sorted(self.held.items())))


@dataclass
class Heads:
    """Replays the starts that lead to a head, and cuts at the next one."""

    starts: tuple[Start, ...]
    seen: int = 0
    numbers: dict[int, int] = field(default_factory=dict)  # of loops, by their places

    def __call__(self, program: Program, body: Cursor, turn: int) -> None:
        at = (self.numbers[clang.span(body)[0]], turn)
        if self.seen == len(self.starts):
            raise Cut(at)
        _begin(program, self.starts[self.seen])
        self.seen += 1


def _begin(program: Program, start: Start) -> None:
    hints, views = program.hardware.hints, program.views
    program.hardware = Hardware(program.dialect, program.layout, hints=hints, views=views)
    program.hardware.touch_all()
    program.globals, program.memory, program.decisions.path = {}, {}, []
    known, held = dict(start.kept), dict(start.held)
    names = dict(zip(by_name({k: k for k in program.env}).values(), by_name(program.env), strict=True))
    for key, value in program.env.items():
        name = names[key]
        if name in known:
            program.env[key] = known[name]
        elif isinstance(value, Closure) and not value.copies:
            continue
        elif name in held and isinstance(value, dict):
            program.env[key] = fields_of(held[name], name)
        elif name in held:
            program.env[key] = Int(word_of(held[name], name, value.bits.size()), value.signed)
        elif name not in start.names:
            program.env[key] = Gone()
        elif isinstance(value, Pointer):
            program.env[key] = Pointer(z3.BitVec(f"head {name}", ADDRESS))
        elif isinstance(value, Real):
            program.env[key] = Real(z3.BitVec(f"head {name}", value.bits.size()))
        else:
            program.env[key] = Int(z3.BitVec(f"head {name}", value.bits.size()), value.signed)


def has_loops(program: Program, name: str) -> bool:
    return next(_heads(program.functions[name]), None) is not None


def _heads(function: Cursor) -> Iterator[Cursor]:
    """Loops, and labels to which a jump goes back."""
    for c in clang.preorder(function):
        if c.kind in LOOPS or (c.kind == CursorKind.LABEL_STMT and is_head(function, c)):
            yield c


def by_induction(name: str, source: SideSource, other: Generated) -> tuple[bool, bool]:
    """(proved, a few turns only of loops in functions that it calls). Nothing follows from a failure."""
    try:
        numbers = [_numbers(p, name) for p in (source, other)]
        if None in numbers or len(numbers[0] or ()) != len(numbers[1] or ()):
            return False, False
        return True, _Induction(name, (source, other), (numbers[0] or {}, numbers[1] or {})).run()
    except (Different, Unknown, RecursionError):
        return False, False
    finally:
        source.heads = other.heads = None


def _numbers(program: Program, name: str) -> dict[int, int] | None:
    """The loops of a function in their order, by where their bodies begin; None if two cannot be told apart."""
    found: dict[int, int] = {}
    heads = list(_heads(program.functions[name]))
    for c in heads:
        body = clang.children(c)[0 if c.kind == CursorKind.DO_STMT else -1] if c.kind in LOOPS else c
        found[clang.span(body)[0]] = len(found)
    return found if len(found) == len(heads) else None


class _Induction:
    def __init__(self, name: str, sides: tuple[SideSource, Generated], numbers: tuple[dict[int, int], ...]) -> None:
        self.name, self.sides, self.numbers = name, sides, numbers
        self.nodes: dict[Head, LoopNode] = {}
        self.pruned = False

    def run(self) -> bool:
        """Whether some turns were left out. Raises Different or Unknown where the induction fails."""
        self.segment((), ((), ()))
        for _ in range(ROUNDS):
            node = next((n for n in self.nodes.values() if n.waits), None)
            if node is None:
                return self.pruned
            node.waits = False
            self.segment((*node.way, node.start), node.taken)
        raise Unknown("too many loops")

    def segment(self, starts: tuple[Start, ...], taken: tuple[tuple[bool, ...], ...]) -> None:
        """Compare all ways from one head to the next."""
        source, other = self.sides
        source.hints = []
        mine = self.ways(0, starts, taken[0])
        other.assumed = list({h.get_id(): h for h in source.hints}.values())
        theirs = self.ways(1, starts, taken[1])
        if not (mine and theirs):
            raise Unknown("no way leads on")
        solver = solver_of()
        near: dict[int, list[Way]] = {}
        for a, b in together(solver, Tree(mine), Tree(theirs)):
            near.setdefault(id(a), []).append(b)
        for a in mine:
            covered(a, near.get(id(a), []))
            for b in near.get(id(a), []):
                compare(a, b)
                if a.at:
                    self.arrive(a, b, starts)

    def ways(self, side: int, starts: tuple[Start, ...], taken: tuple[bool, ...]) -> list[Way]:
        program = self.sides[side]
        numbers = self.numbers[side]

        def heads(program: Program, body: Cursor, turn: int) -> None:
            if program.decisions is not current[0]:
                current[:] = [program.decisions, Heads(starts, 0, numbers)]
            current[1](program, body, turn)

        current: list[Any] = [None, None]
        program.heads = heads
        found, pruned = all_ways(program, self.name, taken, SEGMENT)
        self.pruned = self.pruned or pruned
        return found

    def arrive(self, a: Way, b: Way, starts: tuple[Start, ...]) -> None:
        """Add what holds at the end of a pair of ways to what is known of the head there."""
        assert a.at
        values, theirs = by_name(a.env), by_name(b.env)
        names = set(shared(a, b))
        kept = {n: values[n] for n in names if _lasting(values[n]) and bits_of(values[n]).eq(bits_of(theirs[n]))}
        held = self._held(a, values, theirs)
        node = self.nodes.get(a.at)
        if node is None:
            self.nodes[a.at] = LoopNode(starts, (a.taken, b.taken), names, kept, held)
            return
        agreed = {n: v for n, v in node.kept.items() if n in kept and bits_of(v).eq(bits_of(kept[n]))}
        alike = {n: form for n, form in node.held.items() if held.get(n) == form}
        if names >= node.names and len(agreed) == len(node.kept) and alike == node.held:
            return
        node.names &= names
        node.kept, node.waits = {n: v for n, v in agreed.items() if n in node.names}, True
        node.held = alike

    def _held(self, a: Way, mine: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Form]:
        """Variables that hold a register, and how the sides write it; those without a value yet are left out."""
        solver = solver_of(*a.conditions)
        pairs = ((n, mine[n], theirs[n]) for n in mine if isinstance(mine[n], dict) and isinstance(theirs.get(n), Int))
        forms = ((n, form_of(solver, self.sides[0].layout, fields, word)) for n, fields, word in pairs)
        return {n: form for n, form in forms if form is not None}


def _lasting(value: Any) -> bool:
    """A constant, or a parameter as it was passed: what other symbols mean changes from head to head."""
    bits = z3.simplify(bits_of(value))
    return z3.is_bv_value(bits) or (z3.is_const(bits) and str(bits).startswith("argument "))
