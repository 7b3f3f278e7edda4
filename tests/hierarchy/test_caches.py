"""Caches between the core and the DMA unit: programs agree with the ops, and a step that is left out is caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import Target, load_target
from edgebuild.model.ir import Graph
from edgebuild.model.plan.check.machine import Bytes, Machine, Move
from edgebuild.model.plan.check.replay import BrokenPlan, replay
from edgebuild.model.plan.dma.assembly import mapped_plan
from edgebuild.model.plan.dma.levels import check_levels
from edgebuild.model.plan.memory.problem import Place
from edgebuild.model.plan.printed import CLEAN, INVALIDATE, CacheOp, Wait
from edgebuild.model.plan.search import Plan
from tests.graphs import examples, small_graphs
from tests.hierarchy.test_moved import check, equal_by_mode, transfers, with_cores, with_transfers
from tests.hierarchy.test_mutations import convolution, feed, four_tiles

NETWORKS = 12


def behind_a_cache(target: Target, room: int = 64 << 10) -> Target:
    """The target with its second level cached, and so much of the first."""
    sizes = {"L1": room, "RAM": 1 << 30, "ROM": 1 << 30}
    memories = [replace(m, cached=m.name == "RAM", size=sizes[m.name]) for m in target.memories]
    return replace(target, memories=tuple(memories))


def some_in_place(graph: Graph, name: str, seed: int) -> Plan:
    """In a first level so small that the core reaches some operands where they lie, behind its cache."""
    target = behind_a_cache(with_cores(seed), (1 << 11, 1 << 9, 1 << 16, 1 << 9)[seed % 4])
    request = ModelRequest(Path("random"), name, "host", tile="off", map="layer" if seed % 2 else "auto")
    return mapped_plan(graph, target, request)


@pytest.mark.slow
@pytest.mark.needs("gcc")
def test_networks_behind_a_cache(tmp_path: Path) -> None:
    plans = check(examples(small_graphs(), NETWORKS), tmp_path, some_in_place)
    kinds = {(op.kind, 0 < step < len(p.steps)) for p in plans for step, op in transfers(p, CacheOp)}
    assert {(CLEAN, True), (CLEAN, False), (INVALIDATE, False)} <= kinds


@pytest.mark.slow
@pytest.mark.needs("gcc")
def test_many_networks_behind_a_cache(tmp_path: Path) -> None:
    check(examples(small_graphs(), 60), tmp_path, some_in_place)


def planned() -> Plan:
    request = ModelRequest(Path("x"), "g0", "host", tile="off", map="layer")
    return mapped_plan(convolution(), behind_a_cache(load_target("host")), request, four_tiles)


def without(kind: str) -> Callable[[Plan], Plan]:
    def changed(p: Plan) -> Plan:
        return with_transfers(p, lambda t: None if isinstance(t, CacheOp) and t.kind == kind else t)

    return changed


MUTATIONS = {"no clean": without(CLEAN), "no invalidate": without(INVALIDATE)}


@pytest.mark.needs("gcc")
def test_the_sound_plan_passes(tmp_path: Path) -> None:
    assert all(equal_by_mode(planned(), feed, tmp_path))


@pytest.mark.parametrize("name", MUTATIONS)
def test_replay_refuses(name: str) -> None:
    p = MUTATIONS[name](planned())
    with pytest.raises(BrokenPlan):
        replay(p.graph, p.steps, p.places, p.target)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_running_program_is_caught(name: str, tmp_path: Path) -> None:
    assert not all(equal_by_mode(MUTATIONS[name](planned()), feed, tmp_path))


def test_buffers_take_whole_lines() -> None:
    p = planned()
    assert all(op.place.offset % 32 == 0 for _, op in transfers(p, CacheOp))
    assert p.layout.heights["RAM"] % 32 == 0


def test_where_nothing_is_moved_nothing_is_cleaned() -> None:
    tiny = behind_a_cache(load_target("host"), room=8)
    assert transfers(planned(), CacheOp) and not transfers(mapped_plan(convolution(), tiny, planned().request), CacheOp)


def test_a_first_level_behind_a_cache_is_refused() -> None:
    host = load_target("host")
    wrong = replace(host, memories=tuple(replace(m, cached=m.level == 1) for m in host.memories))
    with pytest.raises(EdgebuildError, match="first level L1 is cached"):
        check_levels(wrong)


def copying(source: Bytes, target: Bytes) -> Machine:
    """Two memories, of which A is cached; the core wrote the first bytes of A. A copy is under way."""
    machine = Machine({"A": 64, "B": 64}, cached=frozenset({"A"}))
    machine.write(replace(source, memory="A", owners=source.at + 5))
    machine.do(Move("step", 0, source, target, len(source.at)))
    return machine


def part(memory: str, first: int) -> Bytes:
    return Bytes(memory, np.arange(first, first + 8), np.zeros(0, np.int64))


def test_a_line_that_is_cleaned_under_a_copy_is_refused() -> None:
    """It changes what a copy reads, or what it has brought."""
    machine = copying(part("A", 0), part("B", 0))
    machine.do(CacheOp(CLEAN, "x", Place("A", 0), 8))
    with pytest.raises(BrokenPlan, match="is written while it is copied"):
        machine.do(Wait(0))
    machine = copying(part("B", 0), part("A", 32))
    machine.write(replace(part("A", 48), owners=np.arange(8)))
    machine.do(CacheOp(CLEAN, "x", Place("A", 48), 8))
    with pytest.raises(BrokenPlan, match="somebody writes where a copy goes"):
        machine.do(Wait(0))
