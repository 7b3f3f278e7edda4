"""Ways through a function by symbolic execution, and which ways of two programs one input may lead to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import z3

from edgebuild.driver.prove.effort import Unknown, ask
from edgebuild.driver.prove.hardware import BusAccess, Event, Key
from edgebuild.driver.prove.program import Program
from edgebuild.driver.prove.values import Cut, Pruned

WAYS = 1024  # through one function


@dataclass(frozen=True)
class Way:
    conditions: tuple[Any, ...]
    events: tuple[Event, ...]
    state: dict[Key, Any]
    globals: dict[str, Any]
    memory: dict[int, Any]
    value: Any
    loads: dict[Key, int]
    obligations: tuple[tuple[Any, str], ...]
    env: dict[str, Any] = field(default_factory=dict)
    taken: tuple[bool, ...] = ()  # the decisions
    at: tuple[int, int] | None = None  # the head of a loop where it is cut; None: it ends
    bus: tuple[BusAccess, ...] = ()


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


def together(solver: z3.Solver, a: Tree, b: Tree, swapped: bool = False) -> Iterator[tuple[Way, Way]]:
    """The pairs of ways that one input may lead to. Steps go down the two trees in turn."""
    if not a.branches and not b.branches:
        assert a.way and b.way
        yield (b.way, a.way) if swapped else (a.way, b.way)
    elif not a.branches:
        yield from together(solver, b, a, not swapped)
    else:
        for condition, branch in a.branches:
            solver.push()
            solver.add(condition)
            if len(a.branches) == 1 or ask(solver) != z3.unsat:
                yield from together(solver, b, branch, not swapped)
            solver.pop()


def all_ways(program: Program, name: str, prefix: tuple[bool, ...] = (), limit: int = WAYS) -> tuple[list[Way], bool]:
    """All ways behind some decisions, and whether some were cut off. Raises Unknown if there are more than `limit`."""
    found: list[Way] = []
    ways = each_way(program, name, prefix)
    for way in ways:
        if way is not None:
            found.append(way)
        if len(found) > limit:
            raise Unknown("too many ways through the function")
    return found, program.pruned


def each_way(program: Program, name: str, prefix: tuple[bool, ...] = ()) -> Iterator[Way | None]:
    """One way after the other; None for one that is not followed to its end, which `program.pruned` then says."""
    todo: list[list[bool]] = [list(prefix)]
    program.pruned = False
    while todo:
        taken = todo.pop()
        value, at = None, None
        try:
            value = program.run(name, taken)
        except Cut as cut:
            at = cut.at
        except Pruned:
            program.pruned = True
            todo += program.decisions.open
            yield None
            continue
        except RecursionError:
            raise Unknown("an expression that is too deep") from None
        h, d = program.hardware, program.decisions
        todo += d.open
        yield Way(
            tuple(d.path),
            tuple(h.events),
            h.state,
            program.globals,
            program.memory,
            value,
            h.loads,
            (*h.obligations, *((z3.BoolVal(False), f"half of '{leaf}' is stored") for (_, leaf), _ in h.halves)),
            program.env if at else {},
            tuple(d.taken[: d.number]),
            at,
            tuple(h.bus),
        )
