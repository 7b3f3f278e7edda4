"""Mistakes planted into the planner of movements, each of which the replay of the plan has to find.

What the planner and its check both worked out by one function would be wrong in both. So the mistakes are planted into
the functions of the planner, those above all that the check has its own of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.ir import Graph, Op, Quant, Tensor
from edgebuild.model.plan import search
from edgebuild.model.plan.check.replay import BrokenPlan
from edgebuild.model.plan.dma import assembly, levels, streamed, tiles
from edgebuild.model.plan.dma.assembly import SearchPath, assembled, mapped_plan, search_of
from edgebuild.model.plan.dma.residency import Step
from edgebuild.model.plan.hierarchy.nest import Mapped, Move, TiledLayer
from edgebuild.model.plan.memory.check import CheckFailed
from edgebuild.model.plan.memory.problem import Place
from edgebuild.model.plan.printed import CLEAN, Copy, Share, Start, Wait
from edgebuild.model.plan.rolling import RollingGraph
from edgebuild.model.plan.search import Plan, Planner
from edgebuild.model.plan.tiling import paths
from tests.hierarchy import test_caches, test_run_mutations, test_shares, test_staging
from tests.hierarchy.test_mutations import convolution, four_tiles

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


def in_tiles(graph: Graph, choose: Callable[[TiledLayer], Mapped]) -> Plan:
    request = ModelRequest(Path("x"), "g0", "host", tile="off", map="layer")
    return mapped_plan(graph, load_target("host"), request, choose)


def rows() -> Plan:
    return in_tiles(convolution(), four_tiles)


def channels() -> Plan:
    """Channels of the result in two tiles, each with weights of its own."""
    moves = Move("x", 0, 1), Move("weights", 1, 2), Move("y", 1, 2)
    return in_tiles(convolution(), lambda layer: Mapped({"y": 12, "x": 6, "k": 4}, ("k",), moves))


def of_a_slice() -> Plan:
    """A sum whose first operand begins behind the begin of its storage."""
    quant, shape = Quant((0.1,), (3,)), (1, 8, 4, 4)
    tensors = {
        "x": Tensor("x", (1, 12, 4, 4), "int8", quant),
        "v": Tensor("v", shape, "int8", quant),
        "z": Tensor("z", shape, "int8", quant),
        "y": Tensor("y", shape, "int8", quant),
    }
    cut = Op("span", "cut", ("x",), ("v",), {"begin": (0, 4, 0, 0), "size": shape})
    add = Op("add", "add", ("v", "z"), ("y",), {"clamp": (None, None)})
    request = ModelRequest(Path("x"), "g0", "host", tile="off", map="layer")
    return mapped_plan(Graph("slice", (cut, add), tensors, ("x", "z"), ("y",)), load_target("host"), request)


def run() -> Plan:
    """An op in tiles, and two as a run by rows whose constants come early."""
    return test_run_mutations.planned()


def reduced() -> Plan:
    """A convolution and the mean over its result, as a run by rows; sums stand in scratch."""
    net = test_run_mutations.convolutions()
    tensors = {**net.tensors, "m": Tensor("m", (1, 8), "int8", Quant((0.1,), (3,)))}
    mean = Op("mean", "mean", ("t1",), ("m",), {"axes": (1, 2)})
    graph = replace(net, ops=(net.ops[0], mean), tensors=tensors, outputs=("m",))
    planner = Planner(graph, load_target("host"), ModelRequest(Path("x"), "g0", "host", tile="off", map="auto"))
    planning, nothing = search_of(planner, 60 << 10), frozenset[str]()
    fed = planning.run(0, 2, nothing, planning.room)
    assert fed is not None
    return assembled(planner, planning, SearchPath((Step(0, 2, nothing, fed),), ()))


def resident() -> Plan:
    """Three convolutions, between which tensors stay in the first level."""
    request = ModelRequest(Path("x"), "g0", "host", tile="off", map="auto")
    planner = Planner(test_run_mutations.convolutions(), load_target("host"), request)
    planning = search_of(planner, 60 << 10)
    stays = frozenset(["t1"]), frozenset(["t1", "t2"]), frozenset(["t2"])
    steps = [Step(i, i + 1, held, planning.tiled(i, held, planning.room // 2)) for i, held in enumerate(stays)]
    placed = assembled(planner, planning, SearchPath(tuple(steps), ()))
    assert {placed.places[name].memory for name in ("t1", "t2")} == {"L1"}
    return placed


def cramped() -> Plan:
    """With so little of the first level that the op runs in many tiles."""
    target = test_caches.behind_a_cache(load_target("host"), 1 << 11)
    request = ModelRequest(Path("x"), "g0", "host", tile="off", map="layer")
    return mapped_plan(convolution(), target, request)


def on_cores(sizes: tuple[int, ...] = test_shares.WINDOWS[0]) -> Plan:
    """A run whose rows cores share."""
    return test_shares.in_one_run(test_shares.windowed("conv2d", *sizes), "g0", 1)


def in_equal_parts() -> Plan:
    """The same, with a last part as wide as the others, whose last window reaches beyond the row."""
    return on_cores(test_shares.WINDOWS[1])


def before(owner: Any, name: str, change: Callable[..., Any]) -> Plant:
    """Put a function in the place of one, which it is given as its first argument."""

    def plant(patch: Patch) -> None:
        right = getattr(owner, name)
        patch.setattr(owner, name, lambda *a, **k: change(right, *a, **k))

    return plant


def without_starts(patch: Patch) -> None:
    """Let every view begin where its storage does."""
    right = RollingGraph.views.func
    patch.setattr(RollingGraph, "views", property(lambda of: {n: (root, 0) for n, (root, _) in right(of).items()}))


def of_copies(change: Callable[[list[Copy]], list[Copy]]) -> Plant:
    """Change the copies that are made for a tile of activations."""

    return before(tiles.Tiles, "move", lambda right, *a: iter(change([*right(*a)])))


def without_waits() -> Plant:
    return before(tiles.Tiles, "run", lambda right, *a: (o for o in right(*a) if not isinstance(o, Wait)))


def of_the_run(change: Callable[[Any], Any]) -> Plant:
    """Change the order of a run, its counts and its rings."""
    return before(streamed, "batched", lambda right, *a: change(right(*a)))


def of_runs(change: Callable[[Any], Any]) -> Plant:
    return before(streamed.Streamer, "run", lambda right, *a: change(right(*a)))


def swapped(rolled: Any) -> Any:
    """The first row is used before it is brought."""
    order = list(rolled.order)
    at = next(i for i, n in enumerate(order) if n < len(rolled.run))
    order[at - 1], order[at] = order[at], order[at - 1]
    return replace(rolled, order=tuple(order))


def shifted(change: Callable[[str, Place], Place]) -> Plant:
    """Places in the first level that differ from those of the layout."""

    def placed(right: Any, self: Any, unplaced: Any, at: dict[str, int], *others: Any) -> Any:
        return right(self, unplaced, {n: change(n, Place("L1", offset)).offset for n, offset in at.items()}, *others)

    return before(assembly._Assembly, "_placed", placed)


def shared_wrongly(change: Callable[[Share], Share]) -> Plant:
    def under(right: Any, *arguments: Any) -> Iterator[Share]:
        return map(change, right(*arguments))

    return before(streamed, "_under_windows", under)


def no_end(right: Any, *arguments: Any) -> Iterator[Share]:
    """The last part of a row counts as one inside of it."""
    inside, last = right(*arguments)
    return iter([replace(inside, past=last.past)])


def of_the_neighbour(right: Any, op: Op, graph: Graph, part: Any) -> Any:
    """The kernel of a tile of output channels has the constants of the first."""
    size = part["k"][1] - part["k"][0]
    return right(op, graph, {**part, "k": (0, size)})


def short_lives(right: Any, *arguments: Any) -> Any:
    problem = right(*arguments)
    return replace(problem, buffers=tuple(replace(b, upper=b.lower + 1) for b in problem.buffers))


def no_cleaning(right: Any, *arguments: Any) -> Any:
    return {step: [op for op in operations if op.kind != CLEAN] for step, operations in right(*arguments).items()}


def late_slots(right: Any, *arguments: Any) -> Any:
    """Constants that fill slots come a place higher than the step looks for them."""
    starts = ((f, f.start, f.start.copy) for f in right(*arguments))
    return tuple(replace(f, start=replace(start, copy=replace(copy, near=copy.near + 8))) for f, start, copy in starts)


def of_transfers(change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Plant:
    """Change what stands before each step."""

    def changed(right: Any, *arguments: Any) -> tuple[Any, ...]:
        return tuple(replace(s, before=change(s.before)) for s in right(*arguments))

    return before(assembly, "with_transfers", changed)


def no_waits(ops: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(op for op in ops if not isinstance(op, Wait))


def higher(copy: Copy) -> Copy:
    return replace(copy, near=copy.near + 8)


PLANTED: dict[str, tuple[Plant, Callable[[], Plan]]] = {
    "tiles: the copies of a result are left out": (
        of_copies(lambda copies: [c for c in copies if c.fetch]), rows),
    "tiles: the copies of an operand are left out": (
        of_copies(lambda copies: [c for c in copies if not c.fetch or c.far == 0]), rows),
    "tiles: nobody waits for copies": (without_waits(), rows),
    "tiles: copies come from a row too low": (
        of_copies(lambda copies: [replace(c, far=c.far + 48) if c.fetch and c.far else c for c in copies]), rows),
    "tiles: a halo row short": (
        of_copies(lambda copies: [replace(c, bytes=c.bytes - 48) if c.fetch else c for c in copies]), rows),
    "tiles: the kernel of another tile": (before(
        tiles.Tiles, "run", lambda right, self, numbers: right(self, dict.fromkeys(numbers, 0))), rows),
    "tiles: constants of another tile": (before(tiles, "graph_of_part", of_the_neighbour), channels),
    "tiles: a part that needs a row less": (before(paths, "needed", lambda right, nest, i, *a: (
        tuple((f, p - 1) if d == 1 and i == 0 else (f, p) for d, (f, p) in enumerate(right(nest, i, *a))))), rows),
    "tiles: buffers that overlap": (
        before(tiles.Tiles, "near", lambda right, self, operand, n: right(self, operand, n) - 64 * (n % 2)), rows),
    "tiles: a view taken for its storage": (without_starts, of_a_slice),
    "run: a row used before it is brought": (of_the_run(swapped), run),
    "run: the calls in another order": (of_the_run(lambda f: replace(f, order=f.order[::-1])), run),
    "run: a call left out": (of_the_run(lambda f: replace(f, order=f.order[:-1])), run),
    "run: a row too few is made": (
        of_the_run(lambda f: replace(f, counts=tuple(n - 1 for n in f.counts[:2]) + f.counts[2:])), run),
    "run: a ring with a row less": (
        of_the_run(lambda f: replace(f, rings={n: max(1, r - 1) for n, r in f.rings.items()})), run),
    "run: kernels that look in rings of another size": (
        before(streamed.Streamer, "_chosen", lambda right, self, op, seen, *a: right(
            self, op, replace(seen, rings={n: r + 1 for n, r in seen.rings.items()}), *a)), run),
    "run: buffers that overlap": (
        shifted(lambda n, p: replace(p, offset=0) if n.startswith("constants") else p), run),
    "run: sums over the rows in use": (
        of_runs(lambda r: replace(r, scratch={n: min(r.places.values(), default=0) for n in r.scratch})), reduced),
    "run: rows of another size": (before(streamed, "row_bytes", lambda right, *a: right(*a) - 8), run),
    "cores: a column too far to the right": (shared_wrongly(lambda s: replace(s, before=s.before - 1)), on_cores),
    "cores: parts that are too near to each other": (shared_wrongly(lambda s: replace(s, step=s.step // 2)), on_cores),
    "cores: a window beyond the end of the row": (before(streamed, "_under_windows", no_end), in_equal_parts),
    "cores: the kernel of the first part for all": (
        before(streamed, "_under_windows", lambda right, *a: (
            lambda parts: iter([replace(s, kernel=parts[0].kernel) for s in parts]))([*right(*a)])), on_cores),
    "levels: a tensor that stays dies too early": (before(assembly._Assembly, "_near", short_lives), resident),
    "levels: more than the first level has": (
        before(levels, "rooms", lambda right, *a: dict.fromkeys(right(*a), 1 << 20)), cramped),
    "tiles: copies go 8 bytes lower than kernels look": (before(tiles.MappedOp, "shifted", lambda right, self, by: (
        right(self, by).with_copies(replace(c, near=c.near - 8) for c in right(self, by).copies)
        if max(by) >= 8 else right(self, by))), resident),
    "run: constants elsewhere than kernels look": (before(streamed.PlannedRun, "placed", lambda right, *a: (
        lambda run: replace(run, block_at=tuple(n + 8 for n in run.block_at)))(right(*a))), run),
    "transfers: constants that nobody waits for": (of_transfers(no_waits), run),
    "transfers: waits before their copies begin": (of_transfers(lambda ops: ops[::-1]), test_staging.in_parts),
    "transfers: constants that do not come": (of_transfers(lambda ops: ()), run),
    "transfers: constants of another step": (of_transfers(lambda ops: tuple(
        replace(op, copy=higher(op.copy)) if isinstance(op, Start) else op for op in ops)), run),
    "stage: constants that nobody waits for": (of_transfers(no_waits), test_staging.in_parts),
    "caches: nothing is cleaned": (before(assembly, "coherence", no_cleaning), test_caches.planned),
    "stage: constants a place too high": (before(assembly, "first_copies", late_slots), test_staging.in_parts),
    "order: a reader before its writer": (
        before(search, "schedule", lambda right, *a, **k: (lambda f: replace(f, order=f.order[::-1]))(right(*a, **k))),
        lambda: in_tiles(test_run_mutations.convolutions(), four_tiles)),
}  # fmt: skip


@cache
def accepted(make: Callable[[], Plan]) -> None:
    """Each plan is accepted without a mistake; several mistakes share it."""
    make()


@pytest.mark.parametrize("name", PLANTED)
def test_planted_mistakes_are_refused(name: str, monkeypatch: Patch) -> None:
    plant, make = PLANTED[name]
    accepted(make)
    plant(monkeypatch)
    with pytest.raises((BrokenPlan, CheckFailed)):
        make()
