"""Limits of DMA units: alignment, the largest copy, and which memories they join; kept by plans, checked by both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import Target, load_target
from edgebuild.model.ir import Graph
from edgebuild.model.plan.check.replay import BrokenPlan, replay
from edgebuild.model.plan.dma.assembly import check_request, mapped_plan, with_dma_memories
from edgebuild.model.plan.dma.tiles import MappedOp
from edgebuild.model.plan.search import Plan, Planner
from tests.graphs import examples, small_graphs
from tests.hierarchy.test_auto import runs
from tests.hierarchy.test_moved import build, changed, check, in_tiles, run, transfers, with_cores
from tests.hierarchy.test_mutations import convolution, feed, four_tiles

NETWORKS = 6
WAYS = ("layer", "auto", "dory")


def by(target: Target, **limits: int) -> Target:
    """The target with a DMA unit of these limits."""
    return replace(target, dma=tuple(replace(d, **limits) for d in target.dma))


@pytest.mark.one_in(3)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize(("align", "largest"), [(4, 256), (16, 0), (32, 4096)])
def test_networks_by_units_that_ask_for_alignment(align: int, largest: int, tmp_path: Path) -> None:
    """Addresses of memories, row steps, borders of tiles and ends of constants: the DMA model looks at all of them."""

    def planned(graph: Graph, name: str, seed: int) -> Plan:
        chip = by(with_cores(seed), align=align, largest=largest)
        room = (1 << 11, 1 << 16)[seed % 2]
        chip = replace(chip, memories=tuple(replace(m, size=room) if m.level == 1 else m for m in chip.memories))
        asked = ModelRequest(Path("random"), name, "host", tile="off", map=WAYS[seed % 3])
        return mapped_plan(graph, chip, asked)

    plans = check(examples(small_graphs(), NETWORKS), tmp_path, planned)
    assert any(p.moves for p in plans) and (align > 4 or in_tiles(plans) or runs(plans))


def planned(target: Target) -> Plan:
    request = ModelRequest(Path("x"), "g0", "host", tile="off", map="layer")
    return mapped_plan(convolution(), target, request, four_tiles)


def lower(moved: MappedOp) -> MappedOp:
    """All buffers of the first level 8 bytes further on: right for all that counts but for alignment to 16."""
    return replace(moved.placed(8, None, {}), level1_bytes=moved.level1_bytes + 8)


MUTATIONS: dict[str, tuple[Callable[[MappedOp], MappedOp], dict[str, int]]] = {
    "addresses that are no multiples of 16": (lower, {"align": 16}),
    "pieces of more than 64 B": (lambda moved: moved, {"largest": 64}),
}


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", MUTATIONS)
def test_what_a_unit_cannot_do_is_caught(name: str, tmp_path: Path) -> None:
    """By the replay, and by the program that runs."""
    change, limits = MUTATIONS[name]
    sound = planned(load_target("host"))
    chip = by(sound.target, **limits)
    broken = changed(sound, MappedOp, change)
    with pytest.raises(BrokenPlan, match=r"aligned|a copy of more"):
        replay(sound.graph, broken.steps, sound.places, chip)
    build([replace(broken, target=chip)], 2, tmp_path)
    feed(tmp_path)
    assert "no DMA unit can do a copy" in run(tmp_path, "lazy").stderr


def test_memories_that_no_unit_joins_are_caught() -> None:
    sound = planned(load_target("host"))
    chip = replace(sound.target, dma=tuple(replace(d, between=("ROM", "L1")) for d in sound.target.dma))
    with pytest.raises(BrokenPlan, match="no DMA unit joins RAM and L1"):
        replay(sound.graph, sound.steps, sound.places, chip)


@pytest.mark.parametrize("method", WAYS)
def test_activations_lie_where_a_unit_reaches_them(method: str) -> None:
    """A memory that no DMA unit joins with the first level is none for activations, though the core reaches it."""
    graph = next(iter(examples(small_graphs(), 1)))
    asked = ModelRequest(Path("random"), "g", "host", tile="off", map=method)
    chip = load_target("host")
    home = chip.memory_named("RAM")
    other = replace(home, name="FAST", origin=3 << 30, level=0)
    peak = Planner(graph, chip, asked).untiled_bytes
    chip = replace(chip, memories=(other, *chip.memories))
    joined = with_dma_memories(chip)
    mapped = mapped_plan(graph, joined, asked)
    assert peak and {place.memory for place in mapped.places.values()} <= {"RAM", "L1"}
    with pytest.raises(EdgebuildError, match="joins L1 with a memory that has the role 'arena'"):
        with_dma_memories(replace(chip, dma=tuple(replace(d, between=("ROM", "L1")) for d in chip.dma)))


@pytest.mark.needs("gcc")
def test_weights_beside_the_second_level_come_through_it(tmp_path: Path) -> None:
    """Two memories have level 2. One unit joins L1 with RAM alone, another RAM with the weights' memory."""

    def planned(graph: Graph, name: str, seed: int) -> Plan:
        chip = with_cores(seed)
        chip = replace(chip, memories=tuple(replace(m, level=min(m.level, 2)) for m in chip.memories))
        units = tuple(replace(chip.dma[0], between=pair) for pair in (("ROM", "RAM"), ("RAM", "L1")))
        asked = ModelRequest(Path("random"), name, "host", tile="off", map=WAYS[seed % 3])
        chip = replace(chip, dma=units)
        check_request(chip, asked)
        return mapped_plan(graph, chip, asked)

    plans = check(examples(small_graphs(), NETWORKS), tmp_path, planned)
    assert any(s.copy.into for p in plans for _, s in transfers(p))
