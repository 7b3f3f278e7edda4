"""Rolling in strips of columns: less memory than whole rows take, the same result, no more work than is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import onnx
import pytest

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.compile import compile_model, plan_model, prepare
from edgebuild.model.ir import Graph
from edgebuild.model.plan import search
from edgebuild.model.plan.memory.problem import Schedule
from edgebuild.model.plan.search import Plan
from edgebuild.model.plan.tiling.explore import TilingChoice
from edgebuild.model.plan.tiling.paths import Tiling
from edgebuild.model.verify import verify
from tests.zoo.builders import Net, quantized


def wide(seed: int = 1) -> onnx.ModelProto:
    """A wide picture that becomes small in a few layers, so that rows are what takes the memory."""
    net = Net("wide", (16, 64, 3), seed, 17)
    x = net.conv(net.add("Transpose", ["input"], (3, 16, 64), perm=(0, 3, 1, 2)), 12, (3, 3))
    x = net.conv(x, 12, (3, 3), stride=2)
    x = net.conv(x, 8, (3, 3), stride=2)
    x = net.flatten(net.global_average_pool(x))
    return net.model(net.dense(x, 4))


@pytest.fixture(scope="module", params=["float", "int8"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("strips") / f"wide_{request.param}.onnx"
    network = quantized(wide()) if request.param == "int8" else wide()
    file.write_bytes(network.SerializeToString())
    return file


def planned(model: Path, **options: object) -> Plan:
    return plan_model(model_request(model, "m", "host", options), load_target("host"))  # type: ignore[arg-type]


def test_less_memory_for_work_done_twice(model: Path) -> None:
    rows, free = planned(model, tile="rolling"), planned(model, tile="auto")
    strips = planned(model, objective="ram", max_mac_overhead=20)
    assert free.arena_bytes <= rows.arena_bytes and free.extra_macs <= 0
    assert strips.arena_bytes < rows.arena_bytes * 31 / 32
    assert strips.tiling is not None and strips.extra_macs > 0
    assert any(section.rolled for section in strips.steps)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("target", ["host", "mps2-an386", "riscv-virt"])
def test_the_result_is_that_of_the_model(model: Path, target: str) -> None:
    options = {"tile": "auto", "max_mac_overhead": 20}
    artifacts = compile_model(model_request(model, "model", target, options))
    assert verify(model, load_target(target), artifacts)["equal"]


def test_no_more_work_than_is_allowed(model: Path) -> None:
    for percent in (0, 3, 8):
        plan = planned(model, tile="auto", max_mac_overhead=percent)
        assert plan.extra_macs <= percent / 100 * ops.macs(prepare(model))


def test_steps_of_a_search_share_the_work_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step would save memory for 30 to 60 multiply-accumulates more; 100 are allowed in all."""

    def cutter(peak: int) -> Any:
        return SimpleNamespace(least_peak=peak, order=(), profile=lambda sections: (peak,), untiled=())

    def around(graph: Any, planner: Any) -> Iterator[TilingChoice]:
        left = (60, 30) if sum(cast(Any, graph)) < 300 else ()
        yield from (TilingChoice(0, 2, 0, extra, cast(Tiling, extra)) for extra in left)

    monkeypatch.setattr(search, "_around_the_peak", around)
    monkeypatch.setattr(search, "tiled", lambda graph, saved: (*graph, saved))

    def again(graph: Any) -> Any:
        return cutter(1000 - sum(graph)), None

    allowed, _, _ = search.in_strips(cast(Graph, ()), (cutter(1000), cast(Schedule, None)), again, 100, None)
    assert [choice.extra_macs for choice in allowed.tilings] == [60, 30]
