"""Loops by induction: what both sides have in common at the head of a loop, they have again when they come back there.

A function is cut at the heads of its own loops. Between two cuts there are few paths, whatever the number of turns. At
a head both sides have proved to have the same events behind them, the same registers, objects and local variables. From
there on all of these have new values that nothing is known of but that both sides share them. Constants, and parameters
that are not assigned, keep their values as long as every path to the head agrees (Floyd, 1967; here for two programs).

What holds for any such values holds for those of each turn. Where it does not, the proof by turns has the last word.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

import z3

from edgebuild.driver.prove.compare import Path, all_paths, by_name, matched, shared
from edgebuild.driver.prove.hardware import ADDRESS, Different, Pointer, Unknown, ask, solver_of
from edgebuild.driver.prove.interpreter import Interpreter, heads
from edgebuild.driver.prove.objects import Closure
from edgebuild.driver.prove.places import body_of
from edgebuild.driver.prove.values import Cut, Int, Real, bits_of
from edgebuild.driver.source import ir

SEGMENT, ROUNDS = 128, 64  # paths from one cut on; segments

Head = tuple[int, int]  # number of the loop, and whether its condition was tested before


class Gone:
    """The value of a variable that the two sides hold in unlike forms."""

    def __getattr__(self, name: str) -> Any:
        raise Unknown("a variable across a loop")


# Of each variable that has the same value on both sides: the value, if it is known, and the bits that may be other than
# zero; -1 for all of them.
Facts = dict[str, tuple[Any, int]]


@dataclass
class LoopNode:
    """A head, the facts and the choices of the path that led there first, and what all paths so far have in common."""

    path: tuple[Facts, ...]
    choices: tuple[tuple[bool, ...], tuple[bool, ...]]
    facts: Facts
    waits: bool = True


@dataclass
class Heads:
    """Replays the starts that lead to a head, and cuts at the next one."""

    starts: tuple[Facts, ...]
    seen: int = 0
    numbers: dict[int, int] = field(default_factory=dict)  # of loops, by their places

    def __call__(self, program: Interpreter, body: ir.Node, turn: int) -> None:
        at = (self.numbers[body.span[0]], turn)
        if self.seen == len(self.starts):
            raise Cut(at)
        _begin(program, self.starts[self.seen])
        self.seen += 1


def _begin(program: Interpreter, facts: Facts) -> None:
    program.restart()
    keys = dict(zip(program.shared_names(), program.env, strict=True))
    names = {key: name for name, key in by_name(keys).items()}
    for key, value in program.env.items():
        name = names[key]
        constant, mask = facts.get(name, (None, 0))
        if constant is not None:
            program.env[key] = constant
        elif isinstance(value, Closure) and not value.copies:
            continue
        elif name not in facts:
            program.env[key] = Gone()
        elif isinstance(value, Pointer):
            program.env[key] = Pointer(z3.BitVec(f"head {name}", ADDRESS))
        elif isinstance(value, Real):
            program.env[key] = Real(z3.BitVec(f"head {name}", value.bits.size()))
        else:
            bits = z3.BitVec(f"head {name}", value.bits.size())
            program.env[key] = Int(bits & mask if mask >= 0 else bits, value.signed)


def has_loops(program: Interpreter, name: str) -> bool:
    function = program.functions[name]
    return function.body is not None and next(heads(program, body_of(function)), None) is not None


def by_induction(name: str, source: Interpreter, other: Interpreter) -> tuple[bool, bool]:
    """(proved, a few turns only of loops in functions that it calls). Nothing follows from a failure."""
    numbers = [_numbers(p, name) for p in (source, other)]
    if None in numbers or len(numbers[0] or ()) != len(numbers[1] or ()):
        return False, False
    aliases = _aliases(source, other, name) if source.side.in_order else {}
    for other.aliases in (aliases, {}) if aliases else ({},):
        with suppress(Different, Unknown, RecursionError):
            try:
                return True, _Induction(name, (source, other), (numbers[0] or {}, numbers[1] or {})).run()
            finally:
                source.heads = other.heads = None
    return False, False


def _aliases(source: Interpreter, other: Interpreter, name: str) -> dict[str, str]:
    """Names of the source for local variables that it lacks: those of one type are paired in their order."""
    mine, its = ({d.name: d.type.canonical.text for d in p.local_variables(name)} for p in (source, other))
    pairs: dict[str, str] = {}
    for word, type_ in its.items():
        fits = (n for n, t in mine.items() if t == type_ and n not in its and n not in pairs.values())
        if word not in mine and (fit := next(fits, None)):
            pairs[word] = fit
    return pairs


def _numbers(program: Interpreter, name: str) -> dict[int, int] | None:
    """The loops of a function in their order, by where their bodies begin; None if two cannot be told apart."""
    loops = list(heads(program, body_of(program.functions[name])))
    starts = [(c.body if isinstance(c, ir.Loop) else c).span[0] for c in loops]
    return {at: i for i, at in enumerate(starts)} if len(set(starts)) == len(starts) else None


class _Induction:
    def __init__(self, name: str, sides: tuple[Interpreter, Interpreter], numbers: tuple[dict[int, int], ...]) -> None:
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
            self.segment((*node.path, node.facts), node.choices)
        raise Unknown("too many loops")

    def segment(self, starts: tuple[Facts, ...], choices: tuple[tuple[bool, ...], ...]) -> None:
        """Compare all paths from one head to the next."""
        source, other = self.sides
        source.hints = []
        mine = self.paths(0, starts, choices[0])
        other.assumed = list({h.get_id(): h for h in source.hints}.values())
        theirs = self.paths(1, starts, choices[1])
        if not (mine and theirs):
            raise Unknown("no path leads on")
        for a, b in matched(mine, theirs):
            if a.at:
                self.arrive(a, b, starts)

    def paths(self, side: int, starts: tuple[Facts, ...], choices: tuple[bool, ...]) -> list[Path]:
        program = self.sides[side]
        numbers = self.numbers[side]

        def heads(program: Interpreter, body: ir.Node, turn: int) -> None:
            if program.decisions is not current[0]:
                current[:] = [program.decisions, Heads(starts, 0, numbers)]
            current[1](program, body, turn)

        current: list[Any] = [None, None]
        program.heads = heads
        paths, pruned = all_paths(program, self.name, choices, SEGMENT)
        self.pruned = self.pruned or pruned
        return paths

    def arrive(self, a: Path, b: Path, starts: tuple[Facts, ...]) -> None:
        """Add what holds at the end of a pair of paths to what is known of the head there."""
        assert a.at
        values, theirs = by_name(a.env), by_name(b.env)
        masks, facts = self._masks(a), Facts()
        for name in shared(a, b):
            value = values[name]
            lasts = _lasting(value) and bits_of(value).eq(bits_of(theirs[name]))
            facts[name] = value if lasts else None, masks.get(name, -1)
        first, second = (tuple(w.decisions.choices[: w.decisions.number]) for w in (a, b))
        node = self.nodes.setdefault(a.at, LoopNode(starts, (first, second), facts))
        common = {n: _common(fact, facts[n]) for n, fact in node.facts.items() if n in facts}
        if len(common) < len(node.facts) or any(common[n] is not fact for n, fact in node.facts.items()):
            node.facts, node.waits = common, True

    def _masks(self, a: Path) -> dict[str, int]:
        """The bits that belong to fields, of variables that hold a register of which all other bits are zero."""
        solver, masks = solver_of(*a.conditions), dict[str, int]()
        for name, key in by_name({key: key for key in a.env}).items():
            value, home = a.env[key], self.sides[0].views.homes.get(key)
            mask = reduce(or_, (s.cover for s in home[1].slots), 0) if home else 0
            if mask and isinstance(value, Int) and ask(solver, value.bits & ~mask != 0) == z3.unsat:
                masks[name] = mask
        return masks


def _common(fact: tuple[Any, int], other: tuple[Any, int]) -> tuple[Any, int]:
    """The facts of a variable on both of two paths; the first fact itself where they agree."""
    agree = fact[0] is None or (other[0] is not None and bits_of(fact[0]).eq(bits_of(other[0])))
    if agree and fact[1] in (-1, other[1]):
        return fact
    return fact[0] if agree else None, fact[1] if fact[1] == other[1] else -1


def _lasting(value: Any) -> bool:
    """A constant, or a parameter as it was passed: what other symbols mean changes from head to head."""
    bits = z3.simplify(bits_of(value))
    return z3.is_bv_value(bits) or (z3.is_const(bits) and str(bits).startswith("argument "))
