"""The plan of `--map auto`: the search over sections and tensors that stay, made into places, copies and calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from ....base import progress
from ....base.errors import fail
from ....base.request import ModelRequest
from ....base.target import Memory as TargetMemory
from ....base.target import Target
from ...ir import Graph
from ..hierarchy.mapper import NoMapping
from ..memory.layout import layout
from ..memory.problem import BufferMemory, DoesNotFit
from ..search import Plan, Planner
from ..storage import layout_problem
from .ahead import Early, early
from .assembly import EFFORT, Elsewhere, Found, assembled, elsewhere, far_memories, stage_plan
from .levels import nearest, rooms
from .residency import Residency, Step

PRICES = (16.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.1, 0.0)  # cycles that a copied byte of activations is held to cost
WAITS = (0.3, 1.0)  # the part that counts of waiting for constants, of which most come earlier
SLOWER = 1.02  # of the fastest plan: what one that moves fewer bytes may take
TRIES = 6  # layouts with less and less room


def auto_plan(graph: Graph, target: Target, request: ModelRequest) -> Plan:
    """The plan that moves fewest bytes of those that take little longer than the fastest, and no longer than by layers.

    Raises EdgebuildError where nothing fits.
    """
    planner = Planner(graph, target, request)
    near, _ = nearest(target)
    room = whole = rooms(target, None)[near.name]
    memories = far_memories(planner)
    homes = spilled(planner, memories)
    for _ in range(TRIES):
        search = search_of(planner, room, memories, homes)
        search.check_tiles()
        found = chosen(search)
        for kept in (found, replace(found, early=())):
            try:
                return assembled(planner, search, kept)
            except (DoesNotFit, NoMapping) as reason:
                progress.say(f"no layout of {room} B: {reason}")
            except Elsewhere as better:
                homes = {**homes, **better.homes}
                break
        else:
            room -= whole // 16
    raise fail(f"no layout of {near.name} was found", file=graph.file, hints=["use --map layer"])


def spilled(planner: Planner, memories: Sequence[BufferMemory]) -> dict[str, TargetMemory]:
    """The storages that the second level has no room for if every op runs by itself, and where they lie instead."""
    cutter = planner.cutter
    if len(memories) < 2:
        return {}
    steps = tuple(replace(cutter.whole(at), overlap=None) for at in range(len(cutter.order)))
    problem, inside = layout_problem(cutter, steps, memories)
    try:
        found = layout(problem, effort=EFFORT)
    except DoesNotFit:
        return {}
    return elsewhere(planner.target, memories[0].name, found, inside)


def search_of(
    planner: Planner,
    room: int,
    memories: Sequence[BufferMemory] = (),
    homes: Mapping[str, TargetMemory] = MappingProxyType({}),
) -> Residency:
    """The search within `room` bytes of the first level; `homes`: of storages that the second has no room for."""
    target, memories = planner.target, memories or far_memories(planner)
    spaces = nearest(target)[0], target.memory_named(memories[0].name), target.memory("weights")
    return Residency(planner.cutter, target, spaces, room, {m.name: m.capacity or 0 for m in memories}, homes)


def candidates(search: Residency) -> Iterator[Found]:
    """Paths by the price of a byte and of a wait; layer by layer the last."""
    for waits in WAITS:
        for price in PRICES:
            steps = search.best(price, waits)
            if steps is not None:
                yield from _found(search, steps, early(steps, search.sizes, search.room))
    steps = search.layerwise()
    if search.possible(steps):
        yield from _found(search, steps, ())
        yield from _found(search, steps, early(steps, search.sizes, search.room))


def _found(search: Residency, steps: tuple[Step, ...], early_: tuple[Early, ...]) -> Iterator[Found]:
    """The path, unless constants find no room on their way."""
    with suppress(DoesNotFit):
        staged = sum(s.waited for s in stage_plan(search, steps, early_))
        yield Found(steps, early_, staged)


def chosen(search: Residency) -> Found:
    """Fewest bytes of those that are hardly slower than the fastest, and not slower than layer by layer."""
    every = list(candidates(search))
    if not every:
        sizes = " and ".join(f"{name} has {size} B" for name, size in search.far.items())
        text = f"activations do not fit: {sizes} for them"
        raise fail(text, file=search.cutter.graph.file, hints=["use a target with more RAM"])
    layers = next((f.cycles for f in _found(search, search.layerwise(), ())), 0.0)
    most = min(max(layers, min(f.cycles for f in every)), SLOWER * min(f.cycles for f in every))
    return min((f for f in every if f.cycles <= most), key=lambda f: (f.bytes, f.cycles))
