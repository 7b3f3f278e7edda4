"""Chains of results over their operands, which may reach further than any step."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import prepare
from edgebuild.model.plan.memory.layout import layout
from edgebuild.model.plan.memory.problem import BufferMemory
from edgebuild.model.plan.search import EFFORT_OF_LAYOUT, Planner
from edgebuild.model.plan.storage import layout_problem, least_bytes
from tests import bench_planning
from tests.bench_planning import Network


def branches(blocks: int) -> bytes:
    """Blocks of four branches of one to four convolutions, and their sum."""
    net = Network()
    net.convolution(3, 16, 2)
    for _ in range(blocks):
        before, ends = net.last, list[int]()
        for number in range(4):
            net.last = before
            for _ in range(1 + number):
                net.convolution(3, 16, depthwise=number % 2 == 0)
            ends.append(net.last)
        net.last = ends[0]
        for other in ends[1:]:
            net.sum(other)
    return net.done()


def test_no_cut_takes_more_than_with_its_results_over_operands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_planning, "SIZE", 16)
    file = tmp_path / "net.tflite"
    file.write_bytes(branches(1))
    request = ModelRequest(file, "net", "mps2-an386", tile="auto")
    planner = Planner(prepare(file), load_target("mps2-an386"), request)
    cutter, lower, longer = planner.cutter, 0, 0
    for cut in cutter.front:
        plan, least = planner.plan(cut), least_bytes(cutter, cut)
        kept = layout(layout_problem(cutter, cut, (BufferMemory("arena"),))[0], effort=EFFORT_OF_LAYOUT).height
        assert max(cutter.profile(cut)) <= least <= plan.arena_bytes <= kept
        lower += plan.arena_bytes < kept
        longer += least > max(cutter.profile(cut))
    assert lower and longer
