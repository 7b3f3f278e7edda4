"""Broken runs by rows: the replay of the plan refuses each, and so does the running program by the DMA model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.ir import Graph, Op, Quant, Tensor
from edgebuild.model.plan.check.replay import BrokenPlan, replay
from edgebuild.model.plan.dma.assembly import SearchPath, assembled, prefetches, search_of
from edgebuild.model.plan.dma.residency import Step
from edgebuild.model.plan.printed import Start, Stream, StreamedRun, Wait
from edgebuild.model.plan.search import Plan, Planner
from tests.hierarchy.test_moved import changed, equal_by_mode, transfers, with_transfers


def convolutions() -> Graph:
    """Three of 3x3 on 12x6x8, padded."""
    rng = np.random.default_rng(1)
    quant, steps = Quant((0.1,), (3,)), list[Op]()
    tensors = {"t0": Tensor("t0", (1, 12, 6, 8), "int8", quant)}
    attrs = {"stride": (1, 1), "dilation": (1, 1), "pad": (1, 1, 1, 1), "clamp": (None, None)}
    for i in range(3):
        weights = rng.integers(-100, 100, (8, 3, 3, 8)).astype(np.int8)
        tensors[f"w{i}"] = Tensor(f"w{i}", weights.shape, "int8", Quant((0.01,), (0,)), weights)
        tensors[f"t{i + 1}"] = Tensor(f"t{i + 1}", (1, 12, 6, 8), "int8", quant)
        steps.append(Op("conv2d", f"conv{i}", (f"t{i}", f"w{i}"), (f"t{i + 1}",), attrs))
    return Graph("three", tuple(steps), tensors, ("t0",), ("t3",))


def planned() -> Plan:
    """The first op by itself, the others as a run; their constants come early."""
    request = ModelRequest(Path("x"), "g0", "host", tile="off", map="auto")
    planner = Planner(convolutions(), load_target("host"), request)
    search, nothing = search_of(planner, 60 << 10), frozenset[str]()
    alone = Step(0, 1, nothing, search.tiled(0, nothing, search.room))
    fed = search.run(1, 3, nothing, search.room)
    assert fed is not None
    steps = alone, Step(1, 3, nothing, fed)
    return assembled(planner, search, SearchPath(steps, prefetches(steps, search.sizes, search.room)))


def of_run(plan: Plan, change: Callable[[StreamedRun], StreamedRun]) -> Plan:
    return changed(plan, StreamedRun, change)


def of_streams(fed: bool, change: Callable[[Stream], Stream]) -> Callable[[Plan], Plan]:
    def changed(run_: StreamedRun) -> StreamedRun:
        streams = tuple(change(s) if s.fetched == fed else s for s in run_.streams)
        rings = {**run_.rolled.rings, **{s.storage: s.slots for s in streams}}
        return replace(run_, streams=streams, rolled=replace(run_.rolled, rings=rings))

    return lambda plan: of_run(plan, changed)


def without_the_last_takes(run_: StreamedRun) -> StreamedRun:
    """The DMA's ring is a row shorter than that of the kernels."""
    return replace(run_, streams=tuple(replace(s, slots=s.slots - 1) if s.fetched else s for s in run_.streams))


MUTATIONS: dict[str, Callable[[Plan], Plan]] = {
    "rows are fed into the row in use": lambda plan: of_run(plan, without_the_last_takes),
    "a result's only row is made while it is stored": of_streams(False, lambda s: replace(s, slots=1)),
    "a ring lies over another": of_streams(False, lambda s: replace(s, near=s.near - 8)),
    "a row too long": of_streams(True, lambda s: replace(s, bytes=s.bytes + 8)),
    "a row too few": of_streams(True, lambda s: replace(s, rows=s.rows - 1)),
    "constants that do not come": lambda plan: with_transfers(plan, lambda t: None),
    "constants that are not waited for": lambda plan: with_transfers(
        plan, lambda t: None if isinstance(t, Wait) else t
    ),
    "constants that come into bytes in use": lambda plan: with_transfers(
        plan, lambda t: replace(t, copy=replace(t.copy, near=0)) if isinstance(t, Start) else t
    ),
}


@pytest.mark.needs("gcc")
def test_the_sound_plan_passes(tmp_path: Path) -> None:
    plan = planned()
    assert transfers(plan) and any(isinstance(m, StreamedRun) for m in plan.moves.values())
    assert all(equal_by_mode(plan, feed, tmp_path))


def feed(folder: Path) -> bytes:
    rng = np.random.default_rng(2)
    inputs = [rng.integers(-128, 128, (1, 12, 6, 8)).astype(np.int8) for _ in range(2)]
    (folder / "in.bin").write_bytes(b"".join(x.tobytes() for x in inputs))
    return b"".join(ops.run(convolutions(), x)["t3"].tobytes() for x in inputs)


@pytest.mark.parametrize("name", MUTATIONS)
def test_replay_refuses(name: str) -> None:
    p = MUTATIONS[name](planned())
    with pytest.raises(BrokenPlan):
        replay(p.graph, p.steps, p.places, p.target, p.layout.heights["L1"])


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_running_program_is_caught(name: str, tmp_path: Path) -> None:
    assert not all(equal_by_mode(MUTATIONS[name](planned()), feed, tmp_path))
