"""Paths through two programs by symbolic execution, their comparison, and the proof of loops by induction.

One input may lead to a pair of paths, one per program. They agree if they have the same events in the same order, and
leave equal registers, objects and variables.

Induction: the loop invariant is that both sides agree at the head of a loop. A function is cut at the heads of its
loops, so there are few paths between two cuts, whatever the number of turns. After a head, registers, objects and local
variables have new symbols that both sides share. Constants, and parameters that are not assigned, keep their values
as long as every path to the head agrees (Floyd, 1967; here for two programs). Paths that meet again behind a
statement may be cut there as well: n such statements then have 2n paths, in place of 2**n.

A proof for arbitrary symbols holds for each turn. If it fails, the proof by unrolling decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from itertools import product, takewhile
from operator import or_
from typing import Any

import z3

from ..layout.registers import Slot
from ..source import ir
from .hardware import (
    ADDRESS,
    INDEX,
    BusAccess,
    Different,
    Event,
    Hardware,
    Key,
    Outside,
    Pointer,
    Unknown,
    ask,
    neutral_of,
    solver_of,
)
from .interpreter import JOIN, Interpreter, heads, joins
from .objects import Closure
from .places import Memory, body_of
from .values import Cut, Decisions, EndlessWait, Int, Pruned, Real, bits_of

PATHS = 1024  # through one function


@dataclass(frozen=True)
class Path:
    """A path through a function: its decisions, its events, and the final state and result."""

    decisions: Decisions
    hardware: Hardware
    memory: Memory
    value: Any
    env: dict[str, Any]
    at: tuple[int, int] | None  # the head of a loop at which it is cut; None if it reaches the end

    @property
    def conditions(self) -> tuple[Any, ...]:
        return tuple(self.decisions.path)

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(self.hardware.events)


Unfinished = tuple[tuple[Any, ...], tuple[Event, ...]]  # conditions of a path, and its events so far


class Tree:
    """The paths through a function as a binary tree of their conditions."""

    def __init__(self, paths: list[Path], depth: int = 0) -> None:
        self.path = next((w for w in paths if len(w.conditions) == depth), None)
        longer = (w for w in paths if len(w.conditions) > depth)
        parts: dict[int, list[Path]] = {}
        for w in longer:
            parts.setdefault(w.conditions[depth].get_id(), []).append(w)
        assert not (self.path and parts), "a path that ends goes on"
        self.branches = [(p[0].conditions[depth], Tree(p, depth + 1)) for p in parts.values()]


def together(solver: z3.Solver, a: Tree, b: Tree, swapped: bool = False) -> Iterator[tuple[Path, Path]]:
    """The pairs of paths that one input may lead to. The recursion descends the two trees in turn."""
    if not a.branches and not b.branches:
        assert a.path and b.path
        yield (b.path, a.path) if swapped else (a.path, b.path)
    elif not a.branches:
        yield from together(solver, b, a, not swapped)
    else:
        for condition, branch in a.branches:
            solver.push()
            solver.add(condition)
            if len(a.branches) == 1 or ask(solver) != z3.unsat:
                yield from together(solver, b, branch, not swapped)
            solver.pop()


def all_paths(
    program: Interpreter,
    name: str,
    prefix: tuple[bool, ...] = (),
    limit: int = PATHS,
    check: Callable[[Path], None] = lambda path: None,
) -> tuple[list[Path], bool]:
    """(all paths that begin with the decisions `prefix`, whether some were cut off).

    `check` is called with each path. Raises Unknown if there are more than `limit`.
    """
    paths: list[Path] = []
    for path in each_path(program, name, prefix):
        if path is not None:
            check(path)
            paths.append(path)
        if len(paths) > limit:
            raise Unknown("too many paths through the function")
    return paths, program.pruned


def each_path(program: Interpreter, name: str, prefix: tuple[bool, ...] = ()) -> Iterator[Path | None]:
    """One path after the other; None for a path that is not followed to its end (`program.pruned`)."""
    todo: list[list[bool]] = [list(prefix)]
    program.pruned, program.unfinished = False, []
    while todo:
        choices = todo.pop()
        value, at = None, None
        try:
            value = program.run(name, choices)
        except Cut as cut:
            at = cut.at
        except EndlessWait:
            pass
        except Pruned:
            program.pruned = True
            program.unfinished.append((tuple(program.decisions.path), tuple(program.hardware.events)))
            todo += program.decisions.open
            yield None
            continue
        except RecursionError:
            raise Unknown("an expression that is too deep") from None
        todo += program.decisions.open
        env = program.shared_names() if at else {}
        yield Path(program.decisions, program.hardware, program.memory, value, env, at)


def covered(a: Path, paths: list[Path]) -> None:
    """Raise Different if some input leads the source down path `a`, and the generated code down none of `paths`."""
    answer = ask(solver_of(*a.conditions, z3.Not(z3.Or(*(z3.And(*b.conditions) for b in paths)))))
    if answer == z3.sat:
        difference = Different("the source ends, and the generated code does not")
        difference.case, difference.path = a.conditions, a.events
        raise difference
    if answer == z3.unknown:
        raise Unknown("the solver gives up on the conditions")


def matched(originals: list[Path], generated: list[Path]) -> Iterator[tuple[Path, Path]]:
    """The pairs of paths that one input may lead to, each compared. Raises Different or Unknown."""
    near: dict[int, list[Path]] = {}
    for a, b in together(solver_of(), Tree(originals), Tree(generated)) if generated else ():
        near.setdefault(id(a), []).append(b)
    for a in originals:
        for b in near.get(id(a), []):
            compare(a, b)
            yield a, b
        covered(a, near.get(id(a), []))


def compare(a: Path, b: Path) -> None:
    """Raise Different if some input leads to both paths and they differ."""
    solver = solver_of(*a.conditions, *b.conditions)
    if ask(solver) == z3.unsat:
        return
    try:
        _compare(solver, a, b)
    except Different as difference:
        difference.case, difference.path = difference.case or tuple(solver.assertions()), a.events
        raise


def compare_unfinished(originals: list[Unfinished], generated: list[Unfinished]) -> None:
    """Raise Different if two unfinished paths differ in the events that both have."""
    for (conditions, events), (others, its) in product(originals, generated):
        solver, shared = solver_of(*conditions, *others), min(len(events), len(its))
        if ask(solver) == z3.sat:
            try:
                for x, y in zip(events[:shared], its, strict=False):
                    _next_events(solver, (x,), (y,), (0, 0))
            except Different as difference:
                difference.case, difference.path = difference.case or tuple(solver.assertions()), events
                raise


def _compare(solver: z3.Solver, a: Path, b: Path) -> None:
    if a.at != b.at:
        raise Different("one side ends where the other goes on")
    for holds, wrong in b.hardware.obligations:
        if not _holds(solver, holds):
            raise Different(wrong)
    for (_, leaf), _ in b.hardware.halves:
        raise Different(f"half of '{leaf}' is stored")
    _events(solver, a, b)
    _same_state(solver, a.hardware.state, b.hardware.state, None, "at the end")
    x, y = (Outside(w.hardware.calls, w.memory.arrays, w.memory.globals) for w in (a, b))
    _same_outside(solver, x, y, "at the end")
    if a.value is not None and b.value is None:
        raise Different("the generated code returns no value")
    if a.value is not None:
        same(solver, bits_of(a.value), bits_of(b.value), "the value that it returns")
    left, right = by_name(a.env), by_name(b.env)  # at the head of a loop
    for name in shared(a, b):
        same(solver, bits_of(left[name]), bits_of(right[name]), f"the variable '{name.partition('.')[0]}'")
    for key, times in a.hardware.loads.items():
        if (its := b.hardware.loads.get(key, 0)) < times:
            raise Different(f"'{key[1]}' is read {times} times, in the generated code {its} times")
    _same_bus(solver, a.hardware.bus, b.hardware.bus)
    if a.hardware.open_orders != b.hardware.open_orders:
        raise Unknown("C leaves the order of accesses in an expression open, and the other side has another expression")


def _same_bus(solver: z3.Solver, planned: list[BusAccess], generated: list[BusAccess]) -> None:
    """Raise Different unless the bus accesses are those planned from merging: their kinds, addresses, sizes and order,
    and the values of plain registers and of bits outside of fields. Raise Unknown if the hardware cannot see the
    difference."""
    for n, (x, y) in enumerate(zip(planned, generated, strict=False)):
        if (x.kind, x.size, x.kind == "call" and x.name) != (y.kind, y.size, y.kind == "call" and y.name):
            _unplanned(planned[n:], generated[n:])
        if x.address is not None and not _holds(solver, x.address == y.address):
            _unplanned(planned[n:], generated[n:])
        if x.kind == "w" and not y.matters and not all(_as_planned(solver, x, field) for field in y.fields):
            raise Different(f"the store of '{y.name}' has another value")
        for low, value in x.rest:
            if not _holds(solver, z3.Extract(low + value.size() - 1, low, y.value) == value):
                raise Different(f"the store of '{y.name}' has other bits than it should where no field is")
    if len(planned) != len(generated):
        n = min(len(planned), len(generated))
        _unplanned(planned[n:], generated[n:])


def _unplanned(planned: list[BusAccess], generated: list[BusAccess]) -> None:
    text = f"the next bus access of the source {_on_bus(planned)}, of the generated code {_on_bus(generated)}"
    if any(x and x[0].matters for x in (planned, generated)):
        raise Different(text)
    raise Unknown(text)


def _on_bus(accesses: list[BusAccess]) -> str:
    if not accesses:
        return "is none"
    x = accesses[0]
    if x.kind == "call":
        return f"stands behind '{x.name}'"
    return f"{'reads' if x.kind == 'r' else 'stores'} {x.size} bytes of '{x.name}'"


def _as_planned(solver: z3.Solver, planned: BusAccess, field: tuple[Key, Slot, Any, Any, Any]) -> bool:
    """Whether a plain field gets the source's value or, if the source writes none, keeps its own."""
    key, slot, place, new, old = field
    leaf = planned.stored is None or key[1] in planned.stored
    if leaf and planned.state is not None and _holds(solver, new == z3.Select(planned.state[key], place)):
        return True
    neutral = neutral_of(slot)
    kept = _holds(solver, new == old) or (neutral is not None and _holds(solver, new == neutral))
    return kept and (not leaf or slot.count > 1)


def _same_outside(solver: z3.Solver, a: Outside, b: Outside, when: str) -> None:
    """Raise Different unless objects and variables are equal. An untouched one is as the last unknown call left it."""
    for name in sorted(a.globals.keys() | b.globals.keys()):
        variable = bits_of(a.globals[name] if name in a.globals else b.globals[name])
        x, y = (
            bits_of(o.globals[name]) if name in o.globals else z3.BitVec(f"global {name}!{o.calls}", variable.size())
            for o in (a, b)
        )
        same(solver, x, y, f"the variable '{name}' {when}")
    for key in a.memory.keys() | b.memory.keys():
        sort = (a.memory[key] if key in a.memory else b.memory[key]).sort()
        x, y = (o.memory.get(key, z3.Const(f"memory {key}!{o.calls}", sort)) for o in (a, b))
        _same_state(solver, {("", "an object"): x}, {("", "an object"): y}, None, when)


def by_name(env: dict[str, Any]) -> dict[str, Any]:
    """Local variables by name and number (`i.0`, `i.1`), which are the same on both sides."""
    variables: dict[str, Any] = {}
    for key in sorted(env, key=lambda k: (k.partition("@")[0], int(k.partition("@")[2]))):
        word = key.partition("@")[0]
        variables[f"{word}.{sum(n.partition('.')[0] == word for n in variables)}"] = env[key]
    return variables


def shared(a: Path, b: Path) -> list[str]:
    """Names of local variables that both sides hold in one form: numbers or addresses of equal width."""
    left, right = by_name(a.env), by_name(b.env)
    return [
        n
        for n in sorted(left.keys() & right.keys())
        if isinstance(left[n], Int | Pointer | Real)
        and type(left[n]) is type(right[n])
        and bits_of(left[n]).size() == bits_of(right[n]).size()
    ]


def _events(solver: z3.Solver, a: Path, b: Path) -> None:
    """Raise Different unless the generated events are those of the source.

    One bus access may store several ordered fields: the next ones of the source, and others with their old values. If a
    field is stored with its old value, the number of matching source events is ambiguous, so all are searched. The
    error is that of the longest match, which is tried first.
    """
    source, generated = _without_idle_parts(a.events), tuple(e for e in b.events if e.kind != "idle")
    tried: set[tuple[int, int]] = set()
    first: list[Different] = []
    todo = [(0, 0)]
    while todo:
        i, j = todo.pop()
        if (i, j) in tried:
            continue
        tried.add((i, j))
        if i == len(source) and j == len(generated):
            return
        if i < len(source) and source[i].kind == "idle":
            todo += [(i + 1, j + n) for n in _idle(solver, source[i], generated[j:])]
            if j == len(generated) or generated[j].kind not in ("store", "load"):
                continue
        if j < len(generated) and generated[j].kind == "load":
            todo += _loads(solver, source, generated, i, j)
            continue
        try:
            todo += _next_events(solver, source[i:], generated[j:], (i, j))
        except Different as difference:
            first.append(difference)
    raise first[0]


def _loads(
    solver: z3.Solver, source: tuple[Event, ...], generated: tuple[Event, ...], i: int, j: int
) -> list[tuple[int, int]]:
    """Positions in both event lists after one read access of the generated code. It serves some of the source's next
    reads, or none if the source does not use its values."""
    left = list(takewhile(lambda e: (e.kind, e.batch) == ("load", generated[j].batch), generated[j:]))
    behind = j + len(left)
    positions = [(i, behind)]
    while i < len(source) and source[i].kind == "load":
        x = source[i]
        same = [e for e in left if e.key == x.key]
        read = [e for e in same if _holds(solver, e.values[0] == x.values[0])][:1]
        if not read and same and _holds(solver, z3.Or([e.values[0] == x.values[0] for e in same])):
            read = same  # an element of unknown index, of an array in one register
        if not read:
            break
        left = [e for e in left if not any(e is y for y in read)]
        i += 1
        positions.append((i, behind))
    return positions


def _without_idle_parts(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The events, with one idle event for each access that has only idle ones, and none for the others."""
    busy = {e.batch for e in events if e.kind != "idle"}
    kept: list[Event] = []
    for e in events:
        if e.kind != "idle":
            kept.append(e)
        elif e.batch not in busy:
            busy.add(e.batch)
            kept.append(e)
    return tuple(kept)


def _idle(solver: z3.Solver, idle: Event, generated: tuple[Event, ...]) -> list[int]:
    """How many generated events match a write without effect: none, or a store of the register's old value."""
    if not generated or generated[0].kind != "store":
        return [0]
    batch, rest = _batch(generated)
    here = z3.Extract(idle.values[0].size() - 1, INDEX, idle.values[0])
    as_it_is = len(batch) == rest and all(
        e.key in idle.beside
        and _holds(solver, z3.Extract(e.values[0].size() - 1, INDEX, e.values[0]) == here)
        and _holds(solver, e.values[1] == e.before)
        for e in batch
    )
    return [0, rest] if as_it_is else [0]


def _next_events(
    solver: z3.Solver, originals: tuple[Event, ...], generated: tuple[Event, ...], at: tuple[int, int]
) -> list[tuple[int, int]]:
    """Positions in both event lists after the next event of the generated code, the best last."""
    if generated and generated[0].kind == "store":
        batch, rest = _batch(generated)
        real = [n for n, e in enumerate(originals) if e.kind != "idle"]
        counts = _stores(solver, tuple(originals[n] for n in real), batch, alone=len(batch) == rest)
        # an access's events with side effects follow its stores
        return [(at[0] + (real[n - 1] + 1 if n else 0), at[1] + len(batch)) for n in counts]
    first, second = (events[0] if events else None for events in (originals, generated))
    try:
        if first is None or second is None or (first.kind, first.key) != (second.kind, second.key):
            raise Different(f"the source {_in_words(originals)}, the generated code {_in_words(generated)}")
        _same_event(solver, first, second)
    except Different as difference:
        difference.events = first, second
        raise
    return [(at[0] + 1, at[1] + 1)]


def _same_event(solver: z3.Solver, x: Event, y: Event) -> None:
    if len(x.values) != len(y.values):
        raise Different(
            f"the source {_in_words((x,))} with {len(x.values)} values, the generated code with {len(y.values)}"
        )
    for left, right in zip(x.values, y.values, strict=True):
        same(solver, left, right, f"the access of '{x.key[1]}'")
    _same_state(solver, x.state, y.state, x.device, f"at the access of '{x.key[1]}'")
    if x.outside and y.outside:
        _same_outside(solver, x.outside, y.outside, f"at the call of '{x.key[1]}'")
    if x.seen and y.seen:
        try:
            _same_outside(solver, x.seen, y.seen, f"when '{x.text}' is stored")
        except Different as difference:
            raise Unknown(f"{difference}: an interrupt or DMA may see that") from None


def _batch(generated: tuple[Event, ...]) -> tuple[list[Event], int]:
    """The stores of the next bus access, which come first, and the number of all of its events."""
    access = [e for e in generated if e.kind in ("store", "w") and e.batch == generated[0].batch]
    return [e for e in access if e.kind == "store"], len(access)


def _stores(solver: z3.Solver, originals: tuple[Event, ...], batch: list[Event], alone: bool) -> list[int]:
    """The possible numbers of source stores that one bus access makes, ascending. Raises Different for none."""
    left = {_spot(e): e for e in batch}
    matched = 0
    for x in originals[: len(batch)]:
        y = left.get(_spot(x)) if x.kind == "store" else None
        if y is None or (matched and not _equal(solver, x, y)):  # the field of another group, or a later store
            break
        same(solver, x.values[0], y.values[0], f"the place of '{x.key[1]}'")
        same(solver, x.values[1], y.values[1], f"the value stored to '{x.key[1]}'")
        del left[_spot(x)]
        matched += 1
    for y in left.values():
        if not _holds(solver, y.values[1] == y.before):
            raise Different(f"a store changes '{y.key[1]}', and the source {_in_words(originals)}")
    if not matched and alone:
        raise Different(f"a store of '{batch[0].key[1]}' more than in the source")
    least = matched
    while least > alone and _kept(solver, originals[least - 1], batch):
        least -= 1
    return [n for n in range(least, matched + 1) if not _splits(originals, n)]


def _equal(solver: z3.Solver, x: Event, y: Event) -> bool:
    """Whether two stores have the same place and value."""
    return all(_holds(solver, left == right) for left, right in zip(x.values[:2], y.values[:2], strict=True))


def _splits(originals: tuple[Event, ...], n: int) -> bool:
    """Whether a split after `n` stores would cut an access of a whole register in the source."""
    inside = 0 < n < len(originals) and originals[n - 1].kind == originals[n].kind == "store"
    return inside and originals[n - 1].batch == originals[n].batch


def _kept(solver: z3.Solver, x: Event, batch: list[Event]) -> bool:
    """Whether a bus access stores a field's old value, so that a later access may be the source's store."""
    y = next(e for e in batch if _spot(e) == _spot(x))
    return _holds(solver, y.values[1] == y.before)


def _spot(e: Event) -> tuple[Key, int]:
    """The field of a store, and the index of its element; -1 if that is not constant."""
    index = z3.simplify(z3.Extract(INDEX - 1, 0, e.values[0]))
    return e.key, index.as_long() if z3.is_bv_value(index) else -1


VERBS = {"r": "reads", "w": "writes", "store": "stores", "load": "reads", "call": "calls", "idle": "writes nothing to"}


def _in_words(events: tuple[Event, ...]) -> str:
    return f"{VERBS[events[0].kind]} '{events[0].key[1]}'" if events else "does nothing more"


def _same_state(
    solver: z3.Solver, a: dict[Key, Any], b: dict[Key, Any], device: tuple[int, int] | None, when: str
) -> None:
    """Raise Different unless all fields of the device (None: of all devices) are equal at every place."""
    for key in sorted(a.keys() & b.keys()):
        if a[key].eq(b[key]):
            continue
        place = z3.BitVec("place", a[key].domain().size())
        different = [z3.Select(a[key], place) != z3.Select(b[key], place)]
        if device:
            base = z3.Extract(place.size() - 1, 32, place)
            different += [z3.UGE(base, device[0]), z3.ULT(base, device[0] + max(device[1], 1))]
        answer = ask(solver, *different)
        if answer == z3.sat:
            raise Different(f"'{key[1]}' has another value {when}")
        if answer == z3.unknown:
            raise Unknown(f"the solver gives up on '{key[1]}'")


def same(solver: z3.Solver, a: Any, b: Any, what: str) -> None:
    if a.size() != b.size():
        raise Different(f"{what} has another width")
    answer = ask(solver, a != b)
    if answer == z3.sat:
        difference = Different(f"{what} is another one")
        difference.case = (*solver.assertions(), a != b)
        raise difference
    if answer == z3.unknown:
        raise Unknown(f"the solver gives up on {what}")


def _holds(solver: z3.Solver, condition: Any) -> bool:
    """Whether a condition always holds. Raises Unknown if the solver gives up."""
    condition = z3.simplify(condition)
    if z3.is_true(condition):
        return True
    answer = ask(solver, z3.Not(condition))
    if answer == z3.unknown:
        raise Unknown("the solver gives up on a condition")
    return bool(answer == z3.unsat)


SEGMENT, ROUNDS = 128, 64  # most paths between two cuts; most segments of a function

Head = tuple[int, int]  # number of the loop, and whether its condition was tested before


class Gone:
    """The value of a variable that the two sides hold in different forms: any use raises Unknown."""

    def __getattr__(self, name: str) -> Any:
        raise Unknown("a variable across a loop")


# For each variable that is equal on both sides: (its value if that lasts, mask of bits that may be nonzero or -1)
Facts = dict[str, tuple[Any, int]]


@dataclass
class LoopNode:
    """A head of a loop: the facts and choices of the first path to it, and the facts that all paths so far share."""

    path: tuple[Facts, ...]
    choices: tuple[tuple[bool, ...], tuple[bool, ...]]
    facts: Facts
    waits: bool = True


@dataclass
class Heads:
    """Replays the heads on the path to a cut (`starts`), and cuts at the next head. Joins are heads, too."""

    starts: tuple[Facts, ...]
    seen: int = 0
    numbers: dict[int, int] = field(default_factory=dict)  # of cuts, by their keys

    def __call__(self, program: Interpreter, body: ir.Node, turn: int) -> None:
        number = self.numbers.get(_key(body, turn))
        if number is None:
            return
        at = (number, turn)
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
    return program.functions[name].body is not None and bool(_cuts(program, name, False))


def by_induction(name: str, source: Interpreter, other: Interpreter, joined: bool) -> tuple[bool, bool]:
    """(proved, whether loops in callees were only unrolled for a few turns). A failure refutes nothing.

    `joined`: the function is also cut where its paths meet again. Then few paths lead from one cut to the next.
    """
    cuts = [_cuts(p, name, joined) for p in (source, other)]
    numbers = [{at: i for i, at in enumerate(own)} for own in cuts]
    if [len(own) for own in cuts] != [len(numbers[0]), len(numbers[0])] or len(numbers[1]) < len(numbers[0]):
        return False, False
    aliases = _aliases(source, other, name) if source.side.in_order else {}
    for other.aliases in (aliases, {}) if aliases else ({},):
        with suppress(Different, Unknown, RecursionError):
            try:
                return True, _Induction(name, (source, other), (numbers[0], numbers[1])).run()
            finally:
                source.heads = other.heads = None
    return False, False


def _aliases(source: Interpreter, other: Interpreter, name: str) -> dict[str, str]:
    """The source's names of local variables whose names it lacks: variables of one type are paired in order."""
    types, its = ({d.name: d.type.canonical.text for d in p.local_variables(name)} for p in (source, other))
    pairs: dict[str, str] = {}
    for word, type_ in its.items():
        fits = (n for n, t in types.items() if t == type_ and n not in its and n not in pairs.values())
        if word not in types and (fit := next(fits, None)):
            pairs[word] = fit
    return pairs


def _cuts(program: Interpreter, name: str, joined: bool) -> list[int]:
    """The keys of a function's cuts: first of the heads of its loops."""
    body = body_of(program.functions[name])
    loops = [_key(c.body if isinstance(c, ir.Loop) else c, 0) for c in heads(program, body)]
    return loops + [_key(c, JOIN) for c in joins(body) if joined]


def _key(c: ir.Node, turn: int) -> int:
    """The key of a cut: the offset of a loop's body or a label; below zero for the statement before a join."""
    return ~c.span[0] if turn == JOIN else c.span[0]


class _Induction:
    def __init__(self, name: str, sides: tuple[Interpreter, Interpreter], numbers: tuple[dict[int, int], ...]) -> None:
        self.name, self.sides, self.numbers = name, sides, numbers
        self.nodes: dict[Head, LoopNode] = {}
        self.pruned = False

    def run(self) -> bool:
        """Run the induction. Returns whether some paths were cut off. Raises Different or Unknown if it fails."""
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
        originals = self.paths(0, starts, choices[0])
        other.assumed = list({h.get_id(): h for h in source.hints}.values())
        generated = self.paths(1, starts, choices[1])
        if not (originals and generated):
            raise Unknown("no path leads on")
        for a, b in matched(originals, generated):
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
        """Reduce the facts of the head at which a pair of paths ends to those that hold for this pair, too."""
        assert a.at
        values, others = by_name(a.env), by_name(b.env)
        masks, facts = self._masks(a), Facts()
        for name in shared(a, b):
            value = values[name]
            lasts = _lasting(value) and bits_of(value).eq(bits_of(others[name]))
            facts[name] = value if lasts else None, masks.get(name, -1)
        first, second = (tuple(w.decisions.choices[: w.decisions.number]) for w in (a, b))
        node = self.nodes.setdefault(a.at, LoopNode(starts, (first, second), facts))
        common = {n: _common(fact, facts[n]) for n, fact in node.facts.items() if n in facts}
        if len(common) < len(node.facts) or any(common[n] is not fact for n, fact in node.facts.items()):
            node.facts, node.waits = common, True

    def _masks(self, a: Path) -> dict[str, int]:
        """Masks of the fields' bits in variables that hold a register, if all other bits are zero."""
        solver, masks = solver_of(*a.conditions), dict[str, int]()
        for name, key in by_name({key: key for key in a.env}).items():
            value, home = a.env[key], self.sides[0].views.homes.get(key)
            mask = reduce(or_, (s.cover for s in home[1].slots), 0) if home else 0
            if mask and isinstance(value, Int) and ask(solver, value.bits & ~mask != 0) == z3.unsat:
                masks[name] = mask
        return masks


def _common(fact: tuple[Any, int], other: tuple[Any, int]) -> tuple[Any, int]:
    """The fact that holds on both paths; the same object as `fact` if both agree."""
    agree = fact[0] is None or (other[0] is not None and bits_of(fact[0]).eq(bits_of(other[0])))
    if agree and fact[1] in (-1, other[1]):
        return fact
    return fact[0] if agree else None, fact[1] if fact[1] == other[1] else -1


def _lasting(value: Any) -> bool:
    """Whether a value is a constant or an unchanged parameter; other symbols are renewed at each head."""
    bits = z3.simplify(bits_of(value))
    return z3.is_bv_value(bits) or (z3.is_const(bits) and bits.decl().name().startswith("argument "))
