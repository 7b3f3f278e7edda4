"""Paths through a function by symbolic execution, which of two programs one input may lead to, and whether they agree.

Two paths agree if they have the same events in the same order, and leave the same values of all behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product, takewhile
from typing import Any

import z3

from edgebuild.driver.layout.registers import Slot
from edgebuild.driver.prove.hardware import (
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
from edgebuild.driver.prove.interpreter import Interpreter
from edgebuild.driver.prove.places import Memory
from edgebuild.driver.prove.values import Cut, Decisions, Int, Lasts, Pruned, Real, bits_of

PATHS = 1024  # through one function


@dataclass(frozen=True)
class Path:
    """A path through a function: its decisions, and what it did and left behind."""

    decisions: Decisions
    hardware: Hardware
    memory: Memory
    value: Any
    env: dict[str, Any]
    at: tuple[int, int] | None  # the head of a loop where it is cut; None: it ends

    @property
    def conditions(self) -> tuple[Any, ...]:
        return tuple(self.decisions.path)

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(self.hardware.events)


Unfinished = tuple[tuple[Any, ...], tuple[Event, ...]]  # conditions of a path, and its events so far


class Tree:
    """The paths through a function by their conditions, which alternate where they part."""

    def __init__(self, paths: list[Path], depth: int = 0) -> None:
        self.path = next((w for w in paths if len(w.conditions) == depth), None)
        longer = (w for w in paths if len(w.conditions) > depth)
        parts: dict[int, list[Path]] = {}
        for w in longer:
            parts.setdefault(w.conditions[depth].get_id(), []).append(w)
        assert not (self.path and parts), "a path that ends goes on"
        self.branches = [(p[0].conditions[depth], Tree(p, depth + 1)) for p in parts.values()]


def together(solver: z3.Solver, a: Tree, b: Tree, swapped: bool = False) -> Iterator[tuple[Path, Path]]:
    """The pairs of paths that one input may lead to. Steps go down the two trees in turn."""
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
    """All paths behind some decisions, and whether some were cut off. Raises Unknown if there are more than `limit`.

    `check` is called with each of them as it is found.
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
    """One path after the other; None for one that is not followed to its end, which `program.pruned` then says."""
    todo: list[list[bool]] = [list(prefix)]
    program.pruned, program.unfinished = False, []
    while todo:
        choices = todo.pop()
        value, at = None, None
        try:
            value = program.run(name, choices)
        except Cut as cut:
            at = cut.at
        except Lasts:
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
    """Raise Different if the generated code does not end where the source does."""
    answer = ask(solver_of(*a.conditions, z3.Not(z3.Or(*(z3.And(*b.conditions) for b in paths)))))
    if answer == z3.sat:
        difference = Different("the source ends, and the generated code does not")
        difference.case, difference.path = a.conditions, a.events
        raise difference
    if answer == z3.unknown:
        raise Unknown("the solver gives up on the conditions")


def matched(mine: list[Path], theirs: list[Path]) -> Iterator[tuple[Path, Path]]:
    """The pairs of paths that one input may lead to, each compared. Raises Different or Unknown."""
    near: dict[int, list[Path]] = {}
    for a, b in together(solver_of(), Tree(mine), Tree(theirs)) if theirs else ():
        near.setdefault(id(a), []).append(b)
    for a in mine:
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


def compare_unfinished(mine: list[Unfinished], theirs: list[Unfinished]) -> None:
    """Raise Different where paths that are not followed to their ends differ as far as both are followed."""
    for (conditions, events), (others, its) in product(mine, theirs):
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
    mine, theirs = by_name(a.env), by_name(b.env)  # at the head of a loop
    for name in shared(a, b):
        same(solver, bits_of(mine[name]), bits_of(theirs[name]), f"the variable '{name.partition('.')[0]}'")
    for key, times in a.hardware.loads.items():
        if (its := b.hardware.loads.get(key, 0)) < times:
            raise Different(f"'{key[1]}' is read {times} times, in the generated code {its} times")
    _same_bus(solver, a.hardware.bus, b.hardware.bus)
    if a.hardware.open_orders != b.hardware.open_orders:
        raise Unknown("C leaves the order of accesses in an expression open, and the other side has another expression")


def _same_bus(solver: z3.Solver, planned: list[BusAccess], generated: list[BusAccess]) -> None:
    """Raise Different unless the bus accesses are those that merging left of the source: their kinds, addresses, sizes
    and order, and what plain registers and bits of no field get. Where the hardware would not see the difference, raise
    Unknown."""
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
    """Whether a plain field gets the value that the source gave it, or what it had if the source gave it none."""
    key, slot, place, new, old = field
    leaf = planned.stored is None or key[1] in planned.stored
    if leaf and planned.state is not None and _holds(solver, new == z3.Select(planned.state[key], place)):
        return True
    neutral = neutral_of(slot)
    kept = _holds(solver, new == old) or (neutral is not None and _holds(solver, new == neutral))
    return kept and (not leaf or slot.count > 1)


def _same_outside(solver: z3.Solver, a: Outside, b: Outside, when: str) -> None:
    """Objects and variables are alike; those that one side has not touched are as the last unknown call left them."""
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
    """Local variables by their names and, of those with one name, their order, which both sides share."""
    variables: dict[str, Any] = {}
    for key in sorted(env, key=lambda k: (k.partition("@")[0], int(k.partition("@")[2]))):
        word = key.partition("@")[0]
        variables[f"{word}.{sum(n.partition('.')[0] == word for n in variables)}"] = env[key]
    return variables


def shared(a: Path, b: Path) -> list[str]:
    """Names of local variables that are alike on both sides: numbers or addresses of one width."""
    mine, theirs = by_name(a.env), by_name(b.env)
    return [
        n
        for n in sorted(mine.keys() & theirs.keys())
        if isinstance(mine[n], Int | Pointer | Real)
        and type(mine[n]) is type(theirs[n])
        and bits_of(mine[n]).size() == bits_of(theirs[n]).size()
    ]


def _events(solver: z3.Solver, a: Path, b: Path) -> None:
    """Raise Different unless the generated events are those of the source.

    One bus access stores some ordered fields: the next ones of the source, and others as they are. How many of the
    source's are meant is open where a field is stored as it was; the first difference of the longest match is told.
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
    """Where both sides may go on after one bus access of the generated code that reads: it serves some of the source's
    next reads, or none, where it reads what the source does not ask for."""
    left = list(takewhile(lambda e: (e.kind, e.batch) == ("load", generated[j].batch), generated[j:]))
    behind = j + len(left)
    positions = [(i, behind)]
    while i < len(source) and source[i].kind == "load":
        x = source[i]
        same = [e for e in left if e.key == x.key]
        read = [e for e in same if _holds(solver, e.values[0] == x.values[0])][:1]
        if not read and same and _holds(solver, z3.Or([e.values[0] == x.values[0] for e in same])):
            read = same  # an element of an array in one register, and nobody knows which
        if not read:
            break
        left = [e for e in left if not any(e is y for y in read)]
        i += 1
        positions.append((i, behind))
    return positions


def _without_idle_parts(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """One idle event for each access of the source that does nothing else."""
    busy = {e.batch for e in events if e.kind != "idle"}
    kept: list[Event] = []
    for e in events:
        if e.kind != "idle":
            kept.append(e)
        elif e.batch not in busy:
            busy.add(e.batch)
            kept.append(e)
    return tuple(kept)


def _idle(solver: z3.Solver, idle: Event, theirs: tuple[Event, ...]) -> list[int]:
    """How many generated events stand for a write that does nothing: none, or a store of its register as it is."""
    if not theirs or theirs[0].kind != "store":
        return [0]
    batch, rest = _batch(theirs)
    here = z3.Extract(idle.values[0].size() - 1, INDEX, idle.values[0])
    as_it_is = len(batch) == rest and all(
        e.key in idle.beside
        and _holds(solver, z3.Extract(e.values[0].size() - 1, INDEX, e.values[0]) == here)
        and _holds(solver, e.values[1] == e.before)
        for e in batch
    )
    return [0, rest] if as_it_is else [0]


def _next_events(
    solver: z3.Solver, mine: tuple[Event, ...], theirs: tuple[Event, ...], at: tuple[int, int]
) -> list[tuple[int, int]]:
    """Where both sides may go on after the next event of the generated code; the best last."""
    if theirs and theirs[0].kind == "store":
        batch, rest = _batch(theirs)
        real = [n for n, e in enumerate(mine) if e.kind != "idle"]
        counts = _stores(solver, tuple(mine[n] for n in real), batch, alone=len(batch) == rest)
        # what one access writes with a side effect stands behind its stores
        return [(at[0] + (real[n - 1] + 1 if n else 0), at[1] + len(batch)) for n in counts]
    try:
        if not mine or not theirs or (mine[0].kind, mine[0].key) != (theirs[0].kind, theirs[0].key):
            raise Different(f"the source {_said(mine)}, the generated code {_said(theirs)}")
        _same_event(solver, mine[0], theirs[0])
    except Different as difference:
        difference.events = mine[0] if mine else None, theirs[0] if theirs else None
        raise
    return [(at[0] + 1, at[1] + 1)]


def _same_event(solver: z3.Solver, x: Event, y: Event) -> None:
    if len(x.values) != len(y.values):
        raise Different(
            f"the source {_said((x,))} with {len(x.values)} values, the generated code with {len(y.values)}"
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


def _batch(theirs: tuple[Event, ...]) -> tuple[list[Event], int]:
    """The stores of the next bus access, and the number of all of its events; stores stand in front."""
    access = [e for e in theirs if e.kind in ("store", "w") and e.batch == theirs[0].batch]
    return [e for e in access if e.kind == "store"], len(access)


def _stores(solver: z3.Solver, mine: tuple[Event, ...], batch: list[Event], alone: bool) -> list[int]:
    """How many stores of the source one bus access may stand for, the most last. Raises Different if there are none."""
    left = {_spot(e): e for e in batch}
    matched = 0
    for x in mine[: len(batch)]:
        y = left.get(_spot(x)) if x.kind == "store" else None
        if y is None or (matched and not _equal(solver, x, y)):  # the field of another group, or a later store
            break
        same(solver, x.values[0], y.values[0], f"the place of '{x.key[1]}'")
        same(solver, x.values[1], y.values[1], f"the value stored to '{x.key[1]}'")
        del left[_spot(x)]
        matched += 1
    for y in left.values():
        if not _holds(solver, y.values[1] == y.before):
            raise Different(f"a store changes '{y.key[1]}', and the source {_said(mine)}")
    if not matched and alone:
        raise Different(f"a store of '{batch[0].key[1]}' more than in the source")
    least = matched
    while least > alone and _kept(solver, mine[least - 1], batch):
        least -= 1
    return [n for n in range(least, matched + 1) if not _splits(mine, n)]


def _equal(solver: z3.Solver, x: Event, y: Event) -> bool:
    """Whether two stores have the same place and value."""
    return all(_holds(solver, left == right) for left, right in zip(x.values[:2], y.values[:2], strict=True))


def _splits(mine: tuple[Event, ...], n: int) -> bool:
    """Whether one access of the source, that of a whole register, would go on behind its first `n` stores."""
    inside = 0 < n < len(mine) and mine[n - 1].kind == mine[n].kind == "store"
    return inside and mine[n - 1].batch == mine[n].batch


def _kept(solver: z3.Solver, x: Event, batch: list[Event]) -> bool:
    """Whether a bus access stores a field as it was, so that the source's store may be another one."""
    y = next(e for e in batch if _spot(e) == _spot(x))
    return _holds(solver, y.values[1] == y.before)


def _spot(e: Event) -> tuple[Key, int]:
    """The field of a store, and its element where that is known."""
    index = z3.simplify(z3.Extract(INDEX - 1, 0, e.values[0]))
    return e.key, index.as_long() if z3.is_bv_value(index) else -1


SAID = {"r": "reads", "w": "writes", "store": "stores", "load": "reads", "call": "calls", "idle": "writes nothing to"}


def _said(events: tuple[Event, ...]) -> str:
    return f"{SAID[events[0].kind]} '{events[0].key[1]}'" if events else "does nothing more"


def _same_state(
    solver: z3.Solver, a: dict[Key, Any], b: dict[Key, Any], device: tuple[int, int] | None, when: str
) -> None:
    """All fields of the device have the same values, whichever place one looks at."""
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
