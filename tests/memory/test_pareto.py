"""The front of memory against time: nothing on it is dominated, and its ends are those of the two cuts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import plan_model
from edgebuild.model.plan.cuts import untiled
from edgebuild.model.plan.pareto import point_of
from edgebuild.model.plan.ways import little_more
from tests.zoo.builders import ZOO, quantized

DIGITS = Path(__file__).parents[2] / "sample_projects" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("zoo") / "resnet8.onnx"
    file.write_bytes(quantized(ZOO["resnet8"]()).SerializeToString())
    return file


@pytest.mark.parametrize("target", ["host", "mps2-an386"])
@pytest.mark.parametrize("name", ["digits", "resnet"])
def test_every_way_is_worth_showing(name: str, target: str, request: pytest.FixtureRequest) -> None:
    model = DIGITS if name == "digits" else request.getfixturevalue("resnet")
    chip = load_target(target)
    plan = plan_model(model_request(model, "m", target, {"tile": "auto"}), chip)
    ways = plan.trade_off
    assert all(a.peak_bytes < b.peak_bytes and a.instructions > b.instructions for a, b in pairwise(ways))
    assert plan.cutter.least_peak <= ways[0].peak_bytes <= little_more(plan.cutter.least_peak)
    assert ways[-1].instructions <= point_of(plan.cutter, untiled(plan.cutter)).instructions
    assert any(p.peak_bytes <= plan.schedule.peak for p in ways)


def test_a_limit_gets_the_way_of_the_front(resnet: Path) -> None:
    chip = load_target("mps2-an386")
    ways = plan_model(model_request(resnet, "m", "mps2-an386", {"tile": "auto"}), chip).trade_off
    assert len(ways) > 3
    for way in (ways[1], ways[-1]):
        bounded = plan_model(model_request(resnet, "m", "mps2-an386", {"tile": "auto", "ram": way.peak_bytes}), chip)
        assert bounded.schedule.peak <= way.peak_bytes
        total = sum(s.instructions for s in bounded.steps)
        assert total == pytest.approx(way.instructions, rel=0.02)
