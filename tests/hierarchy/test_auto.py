"""`--map auto`: runs that are fed by rows, tensors that stay, constants that come early; exact, and never slower."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.ir import Graph, Op, Quant, Tensor
from edgebuild.model.plan.dma import tiles
from edgebuild.model.plan.dma.assembly import SearchPath, assembled, mapped_plan, prefetches, search_of
from edgebuild.model.plan.dma.residency import Residency, Step
from edgebuild.model.plan.dma.streamed import PlannedRun
from edgebuild.model.plan.memory.problem import DoesNotFit
from edgebuild.model.plan.printed import StreamedRun, UncopiedOp
from edgebuild.model.plan.search import Plan, Planner
from edgebuild.model.verify import verify
from tests.conftest import by_day
from tests.graphs import examples, small_graphs, tiny_tflite
from tests.hierarchy.test_moved import MODES, check, transfers, with_cores
from tests.layer_models import conv

NETWORKS, MANY = len(by_day(range(8))), 60
HOST = load_target("host")


def request(name: str, method: str = "auto", target: str = "host") -> ModelRequest:
    return ModelRequest(Path("random"), name, target, tile="off", map=method)


def any_path(search: Residency, r: random.Random) -> tuple[Step, ...]:
    """Any way through the order of ops; runs and tensors that stay are preferred."""
    at, held, steps = 0, frozenset[str](), list[Step]()
    while at < len(search.cutter.order):
        options = list(search.options(at, held))
        wanted = [s for s in options if isinstance(s.by, PlannedRun) or s.held]
        steps.append(r.choice(wanted if wanted and r.random() < 0.8 else options))
        at = steps[-1].stop
        held = frozenset(n for n in steps[-1].held if search.cutter.life[n][1] >= at)
    return tuple(steps)


def any_plan(graph: Graph, name: str, seed: int) -> Plan:
    """A plan of random sections, in a first level that is none too large."""
    planner = Planner(graph, with_cores(seed), request(name))
    search, r = search_of(planner, random.Random(seed).choice((4 << 10, 16 << 10, 60 << 10))), random.Random(seed)
    while True:
        steps = any_path(search, r)
        path = SearchPath(steps, prefetches(steps, search.sizes, search.room) if r.random() < 0.8 else ())
        try:
            return assembled(planner, search, path)
        except DoesNotFit:
            continue


def runs(plans: list[Plan]) -> list[StreamedRun]:
    return [m for p in plans for m in p.moves.values() if isinstance(m, StreamedRun)]


@pytest.mark.needs("gcc")
def test_networks_in_random_sections(tmp_path: Path) -> None:
    plans = check(examples(small_graphs(), NETWORKS), tmp_path, any_plan)
    assert len(runs(plans)) >= NETWORKS // 2
    assert any(transfers(p) for p in plans) and any(m.held for m in runs(plans))


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("shape", [(1, 6, 4, 8), (1, 1, 24, 8)])
def test_runs_that_read_an_input_in_other_rows(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Through a view, which has 24 rows: the ring holds all rows of the input, and no row of the view comes again."""
    quant = Quant((0.5,), (3,))
    tensors = {name: Tensor(name, (1, 24, 8), "int8", quant) for name in ("view", "t", "y")}
    tensors["x"] = Tensor("x", shape, "int8", quant)
    low, high = ({"clamp": bounds, "as_stored": True} for bounds in ((-20.0, None), (None, 20.0)))
    operations = (
        Op("reshape", "view", ("x",), ("view",), {"shape": (1, 24, 8)}),
        Op("clamp", "t", ("view",), ("t",), low),
        Op("clamp", "y", ("t",), ("y",), high),
    )
    graph = Graph("views", operations, tensors, ("x",), ("y",), "tflite")

    def in_a_run(graph: Graph, name: str, seed: int) -> Plan:
        planner = Planner(graph, with_cores(seed), request(name))
        search = search_of(planner, 4 << 10)
        run = next(s for s in search.options(0, frozenset()) if isinstance(s.by, PlannedRun) and s.stop == 2)
        return assembled(planner, search, SearchPath((run,), ()))

    check([graph, graph, graph], tmp_path, in_a_run)


@pytest.mark.slow
@pytest.mark.needs("gcc")
def test_many_networks_in_random_sections(tmp_path: Path) -> None:
    check(examples(small_graphs(), MANY), tmp_path, any_plan)


def planned_jointly(graph: Graph, name: str, seed: int) -> Plan:
    return mapped_plan(graph, with_cores(seed), request(name))


@pytest.mark.needs("gcc")
def test_networks_as_they_are_planned(tmp_path: Path) -> None:
    check(examples(small_graphs(), NETWORKS), tmp_path, planned_jointly)


def in_three_levels(graph: Graph, name: str, seed: int) -> Plan:
    """A plan whose second level has room for half of the arena, and the third for the rest."""
    chip, asked = with_cores(seed), request(name, ("auto", "layer", "dory")[seed % 3])
    peak = Planner(graph, chip, asked).untiled_bytes
    far, home, near = chip.memories
    memories = (replace(home, size=max(64, peak // 2)), replace(far, roles=(*far.roles, "arena")), near)
    chip = replace(chip, memories=memories)
    return mapped_plan(graph, chip, asked)


@pytest.mark.slow
@pytest.mark.needs("gcc")
def test_what_the_second_level_has_no_room_for_lies_in_the_third(tmp_path: Path) -> None:
    plans = check(examples(small_graphs(), NETWORKS), tmp_path, in_three_levels)
    spilled = [p for p in plans if any(place.memory == "ROM" for place in p.places.values())]
    assert len(spilled) >= NETWORKS // 2 and any(p.request.map == "auto" for p in spilled)


def cycles(p: Plan) -> float:
    waited = sum(start.waited for _, start in transfers(p))
    reached = sum(s.moves.whole[0] for s in p.steps if isinstance(s.moves, UncopiedOp))
    return sum(m.cycles.total for m in p.moves.values()) + waited + reached


@pytest.mark.one_in(2)
@pytest.mark.parametrize("target", ["host", "pulp-cluster", "mps2-an521", "stm32h743"])
def test_never_slower_than_layer_by_layer(target: str) -> None:
    chip = load_target(target)
    for i, graph in enumerate(examples(small_graphs(), 4)):
        asked = request(f"g{i}", "auto", target)
        least = cycles(mapped_plan(graph, chip, asked))
        for method in ("layer", "dory"):
            other = replace(asked, map=method)
            assert least <= cycles(mapped_plan(graph, chip, other)) + 1e-6, (target, i, method)


@pytest.mark.needs("gcc")
def test_copies_of_the_running_program_are_those_of_the_report(tmp_path: Path) -> None:
    (tmp_path / "tiny.tflite").write_bytes(tiny_tflite())
    asked = ModelRequest(tmp_path / "tiny.tflite", "model", "host", map="auto")
    artifacts = compile_model(asked)
    report = json.loads(next(a.data for a in artifacts if a.name == "model_report.json"))
    for mode in MODES:
        verdict = verify(asked.source, HOST, artifacts, dma=mode)
        assert verdict["equal"] and verdict["dma"] == report["hierarchy"]["moved"]


def test_tiles_fit_whose_kernels_take_far_more_than_the_search_counts(tmp_path: Path) -> None:
    """Eight cores pack weights and scratch of their own: the first tiles of the search took twice the first level."""
    (tmp_path / "conv.tflite").write_bytes(conv(8, 8, 512, 512, (1, 1))())
    artifacts = compile_model(
        ModelRequest(tmp_path / "conv.tflite", "m", "pulp-cluster", map="layer", limit=(("L1", 22 << 10),))
    )
    report = json.loads(next(a.data for a in artifacts if a.name == "m_report.json"))
    assert [row["why"] for row in report["hierarchy"]["layers"]] == ["tiles by DMA"]


@pytest.mark.slow
def test_blocks_of_few_pixels_are_tried_where_many_channels_leave_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conv.tflite").write_bytes(conv(7, 7, 960, 160, (1, 1))())
    asked = ModelRequest(tmp_path / "conv.tflite", "m", "pulp-cluster", map="layer")

    def total() -> float:
        report = json.loads(next(a.data for a in compile_model(asked) if a.name == "m_report.json"))
        return float(report["hierarchy"]["cycles"]["total"])

    blocked = total()
    monkeypatch.setattr(tiles, "UNITS", tuple(unit for unit in tiles.UNITS if unit[0] == unit[1]))
    assert blocked < 0.95 * total()
