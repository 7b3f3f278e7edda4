"""The verdict on each function: proved, refuted with the difference, or unknown with the reason.

Each way through the source is compared with each way through the generated code that the same inputs can take. Both
must have the same events in the same order, find the same values in all fields at each of them and at the end, and
return the same. Loops of a fixed count are run through. Of a loop that waits, a few turns are: then the verdict says
`bounded`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import z3

from edgebuild.base.artifacts import Artifact
from edgebuild.driver.prove.hardware import INDEX, Different, Event, Key, Pointer, Unknown
from edgebuild.driver.prove.program import Program
from edgebuild.driver.prove.sides import Generated, Source
from edgebuild.driver.prove.values import Pruned
from edgebuild.driver.source import clang
from edgebuild.driver.stages import Driver

WAYS = 1024  # through one function
TIME_MS = 20_000  # for one question to the solver


@dataclass(frozen=True)
class Verdict:
    """`what`: "proved", "refuted" or "unknown"; `why`: the difference, or what the proof cannot follow."""

    function: str
    what: str
    why: str = ""
    bounded: bool = False


@dataclass(frozen=True)
class Way:
    conditions: tuple[Any, ...]
    events: tuple[Event, ...]
    state: dict[Key, Any]
    globals: dict[str, Any]
    memory: dict[int, Any]
    value: Any
    loads: dict[Key, int]
    obligations: tuple[Any, ...]


class Tree:
    """The ways through a function by their conditions, which alternate where they part."""

    def __init__(self, ways: list[Way], depth: int = 0) -> None:
        self.way = next((w for w in ways if len(w.conditions) == depth), None)
        longer = (w for w in ways if len(w.conditions) > depth)
        parts: dict[int, list[Way]] = {}
        for w in longer:
            parts.setdefault(w.conditions[depth].get_id(), []).append(w)
        assert not (self.way and parts), "a way that ends goes on"
        self.branches = [(p[0].conditions[depth], Tree(p, depth + 1)) for p in parts.values()]


def _together(solver: z3.Solver, a: Tree, b: Tree, swapped: bool = False) -> Iterator[tuple[Way, Way]]:
    """The pairs of ways that one input may lead to. Steps go down the two trees in turn."""
    if not a.branches and not b.branches:
        assert a.way and b.way
        yield (b.way, a.way) if swapped else (a.way, b.way)
    elif not a.branches:
        yield from _together(solver, b, a, not swapped)
    else:
        for condition, branch in a.branches:
            solver.push()
            solver.add(condition)
            if len(a.branches) == 1 or solver.check() != z3.unsat:
                yield from _together(solver, b, branch, not swapped)
            solver.pop()


def prove(driver: Driver, triple: str, artifacts: tuple[Artifact, ...]) -> list[Verdict]:
    """A verdict for each function of the driver, on the generated C among its products."""
    if driver.source.unit.cpp:
        return [Verdict(name, "unknown", "the proof reads C") for name in driver.cdfg.functions]
    header, text = (next(a for a in artifacts if a.name == driver.request.name + end) for end in ("_hal.h", ".c"))
    folders = dict.fromkeys(str(p.parent) for p in driver.request.sources)
    flags = (*(word for f in folders for word in ("-I", f)), *driver.request.flags)
    # The header stands in front, so that its functions are the own ones of the unit; its guard makes the include empty.
    unit = clang.parse("generated.c", header.data + text.data, triple, flags, unsaved=(header,))
    source = Source(driver.source.unit, driver.dialect, driver.layout, False)
    other = Generated(unit, driver.dialect, driver.layout, True)
    return [_verdict(name, source, other) for name in driver.cdfg.functions]


def _verdict(name: str, source: Source, other: Generated) -> Verdict:
    bounded = False
    try:
        for program in (source, other):
            program.hints, program.answers = [], {}
        mine, also = _ways(source, name)
        other.hints = list({h.get_id(): h for h in source.hints}.values())
        theirs, open_ = _ways(other, name)
        bounded = open_ or also
        if not mine:
            raise Unknown("no way through the function ends soon")
        solver = z3.Solver()
        solver.set("timeout", TIME_MS)
        near: dict[int, list[Way]] = {}
        for a, b in _together(solver, Tree(mine), Tree(theirs)) if theirs else ():
            near.setdefault(id(a), []).append(b)
        for a in mine:
            _covered(a, near.get(id(a), []))
            for b in near.get(id(a), []):
                _compare(a, b)
    except Different as difference:
        return Verdict(name, "refuted", str(difference))
    except Unknown as reason:
        return Verdict(name, "unknown", str(reason))
    except RecursionError:
        return Verdict(name, "unknown", "a way with too many conditions")
    return Verdict(name, "proved", "", bounded)


def _ways(program: Program, name: str) -> tuple[list[Way], bool]:
    """All ways through a function, and whether some were cut off."""
    todo: list[list[bool]] = [[]]
    found: list[Way] = []
    bounded = False
    while todo:
        if len(found) > WAYS:
            raise Unknown("too many ways through the function")
        taken = todo.pop()
        try:
            value = program.run(name, taken)
            h = program.hardware
            conditions, events = tuple(program.decisions.path), tuple(h.events)
            obligations = tuple(h.obligations)
            way = Way(conditions, events, h.state, program.globals, program.memory, value, h.loads, obligations)
            found.append(way)
        except Pruned:
            bounded = True
        except RecursionError:
            raise Unknown("an expression that is too deep") from None
        todo += program.decisions.open
    return found, bounded


def _covered(a: Way, ways: list[Way]) -> None:
    """Raise Different if the generated code does not end where the source does."""
    solver = z3.Solver()
    solver.set("timeout", TIME_MS)
    solver.add(*a.conditions, z3.Not(z3.Or(*(z3.And(*b.conditions) for b in ways))))
    answer = solver.check()
    if answer == z3.sat:
        raise Different("the source ends, and the generated code does not")
    if answer == z3.unknown:
        raise Unknown("the solver gives up on the conditions")


def _compare(a: Way, b: Way) -> None:
    """Raise Different if some input leads to both ways and they differ."""
    solver = z3.Solver()
    solver.set("timeout", TIME_MS)
    solver.add(*a.conditions, *b.conditions)
    if solver.check() == z3.unsat:
        return
    if not all(_holds(solver, o) for o in b.obligations):
        raise Different("a store of an array's element changes what lies beside the array")
    _events(solver, a, b)
    _same_state(solver, a.state, b.state, None, "at the end")
    for name in sorted(a.globals.keys() & b.globals.keys()):
        _same(solver, _bits(a.globals[name]), _bits(b.globals[name]), f"the variable '{name}'")
    for width in a.memory.keys() & b.memory.keys():
        _same_state(
            solver, {("", "an object"): a.memory[width]}, {("", "an object"): b.memory[width]}, None, "at the end"
        )
    if a.value is not None and b.value is not None:
        _same(solver, _bits(a.value), _bits(b.value), "the value that it returns")
    for key, times in a.loads.items():
        if b.loads.get(key, 0) < times:
            raise Different(f"'{key[1]}' is read {times} times, in the generated code {b.loads.get(key, 0)} times")


def _events(solver: z3.Solver, a: Way, b: Way) -> None:
    """Raise Different unless the generated events are those of the source.

    One bus access stores some ordered fields: the next ones of the source, and others as they are. How many of the
    source's are meant is open where a field is stored as it was; the first difference of the longest match is told.
    """
    tried: set[tuple[int, int]] = set()
    first: list[Different] = []
    todo = [(0, 0)]
    while todo:
        i, j = todo.pop()
        if (i, j) in tried:
            continue
        tried.add((i, j))
        if i == len(a.events) and j == len(b.events):
            return
        try:
            todo += _next_events(solver, a.events[i:], b.events[j:], (i, j))
        except Different as difference:
            first.append(difference)
    raise first[0]


def _next_events(
    solver: z3.Solver, mine: tuple[Event, ...], theirs: tuple[Event, ...], at: tuple[int, int]
) -> list[tuple[int, int]]:
    """Where both sides may go on after the next event of the generated code; the best last."""
    if theirs and theirs[0].kind == "store":
        batch, rest = _batch(theirs)
        found = _stores(solver, mine, batch, alone=len(batch) == rest)
        # what one access writes with a side effect stands behind its stores
        return [(at[0] + n, at[1] + len(batch)) for n in found]
    if not mine or not theirs or (mine[0].kind, mine[0].key) != (theirs[0].kind, theirs[0].key):
        raise Different(f"the source {_said(mine)}, the generated code {_said(theirs)}")
    x, y = mine[0], theirs[0]
    for left, right in zip(x.values, y.values, strict=True):
        _same(solver, left, right, f"the access of '{x.key[1]}'")
    _same_state(solver, x.state, y.state, x.device, f"at the access of '{x.key[1]}'")
    return [(at[0] + 1, at[1] + 1)]


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
        if y is None or (matched and not _holds(solver, x.values[1] == y.values[1])):
            break
        _same(solver, x.values[0], y.values[0], f"the place of '{x.key[1]}'")
        _same(solver, x.values[1], y.values[1], f"the value stored to '{x.key[1]}'")
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
    return list(range(least, matched + 1))


def _kept(solver: z3.Solver, x: Event, batch: list[Event]) -> bool:
    """Whether a bus access stores a field as it was, so that the source's store may be another one."""
    y = next(e for e in batch if _spot(e) == _spot(x))
    return _holds(solver, y.values[1] == y.before)


def _spot(e: Event) -> tuple[Key, int]:
    """The field of a store, and its element where that is known."""
    index = z3.simplify(z3.Extract(INDEX - 1, 0, e.values[0]))
    return e.key, index.as_long() if z3.is_bv_value(index) else -1


def _said(events: tuple[Event, ...]) -> str:
    if not events:
        return "does nothing more"
    words = {"r": "reads", "w": "writes", "store": "stores", "call": "calls"}
    return f"{words[events[0].kind]} '{events[0].key[1]}'"


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
        answer = solver.check(*different)
        if answer == z3.sat:
            raise Different(f"'{key[1]}' has another value {when}")
        if answer == z3.unknown:
            raise Unknown(f"the solver gives up on '{key[1]}'")


def _same(solver: z3.Solver, a: Any, b: Any, what: str) -> None:
    if a.size() != b.size():
        raise Different(f"{what} has another width")
    answer = solver.check(a != b)
    if answer == z3.sat:
        raise Different(f"{what} is another one")
    if answer == z3.unknown:
        raise Unknown(f"the solver gives up on {what}")


def _holds(solver: z3.Solver, condition: Any) -> bool:
    return bool(solver.check(z3.Not(condition)) == z3.unsat)


def _bits(value: Any) -> Any:
    return value.value if isinstance(value, Pointer) else value.bits


def summary(verdicts: list[Verdict]) -> Iterator[str]:
    """Lines for people, and how many there are of each kind."""
    for v in verdicts:
        turns = " (a few turns of its loops)" if v.bounded else ""
        yield f"{v.function}: {v.what}{turns}{f': {v.why}' if v.why else ''}"
    kinds = [v.what for v in verdicts]
    yield ", ".join(f"{kinds.count(k)} {k}" for k in ("proved", "refuted", "unknown"))
