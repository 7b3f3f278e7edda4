"""Loops by induction: what both sides have in common at the head of a loop, they have again when they come back there.

A function is cut at the heads of its own loops. Between two cuts there are few paths, whatever the number of turns. At
a head both sides have proved to have the same events behind them, the same registers, objects and local variables. From
there on all of these have new values that nothing is known of but that both sides share them. Constants, and parameters
that are not assigned, keep their values as long as every path to the head agrees (Floyd, 1967; here for two programs).

What holds for any such values holds for those of each turn. Where it does not, the proof by turns has the last word.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import z3

from edgebuild.driver.layout.registers import Layout, Register, Slot
from edgebuild.driver.prove.compare import Path, Tree, all_paths, by_name, compare, covered, shared, together
from edgebuild.driver.prove.hardware import ADDRESS, Different, Pointer, Unknown, ask, leaf_of, solver_of, unowned
from edgebuild.driver.prove.interpreter import Interpreter, heads
from edgebuild.driver.prove.objects import Closure
from edgebuild.driver.prove.places import body_of
from edgebuild.driver.prove.values import Cut, Held, Int, Real, bits_of
from edgebuild.driver.source import ir

SEGMENT, ROUNDS = 128, 64  # paths from one cut on; segments

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
    """A head, the path that led there first on each side, and what all paths so far have in common."""

    path: tuple[Start, ...]
    choices: tuple[tuple[bool, ...], tuple[bool, ...]]
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

    def __call__(self, program: Interpreter, body: ir.Node, turn: int) -> None:
        at = (self.numbers[body.span[0]], turn)
        if self.seen == len(self.starts):
            raise Cut(at)
        _begin(program, self.starts[self.seen])
        self.seen += 1


def _begin(program: Interpreter, start: Start) -> None:
    program.restart()
    kept, held = dict(start.kept), dict(start.held)
    keys = dict(zip(program.shared_names(), program.env, strict=True))
    names = {key: name for name, key in by_name(keys).items()}
    for key, value in program.env.items():
        name = names[key]
        if name in kept:
            program.env[key] = kept[name]
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
            self.segment((*node.path, node.start), node.choices)
        raise Unknown("too many loops")

    def segment(self, starts: tuple[Start, ...], choices: tuple[tuple[bool, ...], ...]) -> None:
        """Compare all paths from one head to the next."""
        source, other = self.sides
        source.hints = []
        mine = self.paths(0, starts, choices[0])
        other.assumed = list({h.get_id(): h for h in source.hints}.values())
        theirs = self.paths(1, starts, choices[1])
        if not (mine and theirs):
            raise Unknown("no path leads on")
        solver = solver_of()
        near: dict[int, list[Path]] = {}
        for a, b in together(solver, Tree(mine), Tree(theirs)):
            near.setdefault(id(a), []).append(b)
        for a in mine:
            covered(a, near.get(id(a), []))
            for b in near.get(id(a), []):
                compare(a, b)
                if a.at:
                    self.arrive(a, b, starts)

    def paths(self, side: int, starts: tuple[Start, ...], choices: tuple[bool, ...]) -> list[Path]:
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

    def arrive(self, a: Path, b: Path, starts: tuple[Start, ...]) -> None:
        """Add what holds at the end of a pair of paths to what is known of the head there."""
        assert a.at
        values, theirs = by_name(a.env), by_name(b.env)
        names = set(shared(a, b))
        kept = {n: values[n] for n in names if _lasting(values[n]) and bits_of(values[n]).eq(bits_of(theirs[n]))}
        held = self._held(a, values, theirs)
        node = self.nodes.get(a.at)
        if node is None:
            self.nodes[a.at] = LoopNode(starts, (a.choices, b.choices), names, kept, held)
            return
        agreed = {n: v for n, v in node.kept.items() if n in kept and bits_of(v).eq(bits_of(kept[n]))}
        alike = {n: form for n, form in node.held.items() if held.get(n) == form}
        if names >= node.names and len(agreed) == len(node.kept) and alike == node.held:
            return
        node.names &= names
        node.kept, node.waits = {n: v for n, v in agreed.items() if n in node.names}, True
        node.held = alike

    def _held(self, a: Path, mine: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Form]:
        """Variables that hold a register, and how the sides write it; those without a value yet are left out."""
        solver = solver_of(*a.conditions)
        pairs = ((n, mine[n], theirs[n]) for n in mine if isinstance(mine[n], dict) and isinstance(theirs.get(n), Int))
        forms = ((n, form_of(solver, self.sides[0].layout, fields, word)) for n, fields, word in pairs)
        return {n: form for n, form in forms if form is not None}


def _lasting(value: Any) -> bool:
    """A constant, or a parameter as it was passed: what other symbols mean changes from head to head."""
    bits = z3.simplify(bits_of(value))
    return z3.is_bv_value(bits) or (z3.is_const(bits) and str(bits).startswith("argument "))


# ---- variables that hold a register: the source has its fields, generated code a word


@dataclass(frozen=True)
class HeldField:
    """A field of the source's value: its name there, its bits in the word, the bits of its value, and the value of bits
    of no field in a literal."""

    name: tuple[Any, Any]
    lsb: int
    width: int
    size: int
    reset: int = 0


Form = tuple[HeldField, ...]


def form_of(solver: z3.Solver, layout: Layout, fields: Held, word: Int) -> Form | None:
    """The places of all fields in a word that has their values and else zeros; None if no register is like that.

    Bits of no field of silicon are among the fields. In a literal they have their values after reset.
    """
    for group in layout.groups.values():
        for register in group.registers:
            form = _placed(layout, group.group, register, fields)
            if form and word.bits.size() >= register.bits and _fits(solver, form, fields, word):
                return form
    return None


def _placed(layout: Layout, group: str, register: Register, fields: Held) -> Form | None:
    rests = {(group, leaf_of(register, s)): s for s in unowned(layout, register)}
    form = [HeldField(n, s.lsb, s.width, s.width, register.reset >> s.lsb & s.mask >> s.lsb) for n, s in rests.items()]
    for name, value in fields.items():
        if name in rests:
            continue
        at = next(_slots(group, register, name), None)
        if at is None:
            return None
        form.append(HeldField(name, *at, value.size()))
    return tuple(sorted(form, key=lambda f: f.lsb))


def _slots(group: str, register: Register, name: tuple[Any, Any]) -> Iterator[tuple[int, int]]:
    """(lowest bit, width) of a field that a variable holds: (field, indices), or of silicon alone (group, leaf)."""
    first, second = name
    for s in register.slots:
        if "r" not in s.access:
            continue
        if isinstance(second, str):
            if (group, leaf_of(register, s)) == name:
                yield s.lsb, s.width
        elif s.field and s.field[1] == first and len(second) <= 1:
            yield from _element(s, second)


def _element(s: Slot, indices: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    if s.count > 1:
        yield s.lsb + indices[0] * s.stride, s.width
    elif not indices or s.name.endswith(f"_{indices[0]}"):
        yield s.lsb, s.width


def _fits(solver: z3.Solver, form: Form, fields: Held, word: Int) -> bool:
    mask, same = 0, []
    for f in form:
        mask |= ((1 << f.width) - 1) << f.lsb
        inside = z3.Extract(f.width - 1, 0, fields.get(f.name, z3.BitVecVal(f.reset, f.size)))
        same.append(z3.Extract(f.lsb + f.width - 1, f.lsb, word.bits) == inside)
    rest = ((1 << word.bits.size()) - 1) & ~mask
    condition = z3.simplify(z3.And(*same, word.bits & rest == 0))
    return bool(z3.is_true(condition) or ask(solver, z3.Not(condition)) == z3.unsat)


def fields_of(form: Form, name: str) -> Held:
    """New values of all fields, which the words of `word_of` share."""
    return {f.name: z3.simplify(z3.ZeroExt(f.size - f.width, _symbol(f, name))) for f in form}


def word_of(form: Form, name: str, bits: int) -> Any:
    word = z3.BitVecVal(0, bits)
    for f in form:
        wide = z3.ZeroExt(bits - f.width, _symbol(f, name)) if bits > f.width else _symbol(f, name)
        word = word | wide << f.lsb
    return z3.simplify(word)


def _symbol(f: HeldField, name: str) -> Any:
    return z3.BitVec(f"head {name} {f.name}", f.width)
