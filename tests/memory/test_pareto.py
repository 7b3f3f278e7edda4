"""Memory against time: cuts that are shown beside a plan, and what a limit of memory gets."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.build.run import summary
from edgebuild.model.compile import compile_model, plan_model
from edgebuild.model.plan.choose import FLASH_FOR_RAM
from edgebuild.model.plan.cuts import little_more
from edgebuild.model.plan.search import NEAR, point_of
from edgebuild.model.plan.section import cost, instructions
from tests.zoo.builders import ZOO, quantized

DIGITS = Path(__file__).parents[2] / "sample_projects" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("zoo") / "resnet8.onnx"
    file.write_bytes(quantized(ZOO["resnet8"]()).SerializeToString())
    return file


@pytest.mark.parametrize("target", ["host", "mps2-an386"])
@pytest.mark.parametrize("name", ["digits", "resnet"])
def test_every_point_is_worth_showing(name: str, target: str, request: pytest.FixtureRequest) -> None:
    model = DIGITS if name == "digits" else request.getfixturevalue("resnet")
    chip = load_target(target)
    plan = plan_model(model_request(model, "m", target, {"tile": "auto"}), chip)
    shown, front = plan.trade_off, [point_of(plan.cutter, cut) for cut in plan.cutter.front]
    assert all(a.peak_bytes < b.peak_bytes and a.cost > b.cost for a, b in pairwise(front))
    assert plan.cutter.least_peak <= front[0].peak_bytes <= little_more(plan.cutter.least_peak)
    assert front[-1].cost <= point_of(plan.cutter, plan.cutter.untiled).cost
    assert plan.point in shown and all(a.peak_bytes < b.peak_bytes for a, b in pairwise(shown))
    assert not any(plan.point.undercuts(p) or p.undercuts(plan.point) for p in shown)


def test_a_limit_gets_the_point_of_the_front(resnet: Path) -> None:
    chip = load_target("mps2-an386")
    ways = plan_model(model_request(resnet, "m", "mps2-an386", {"tile": "auto"}), chip).trade_off
    assert len(ways) > 3
    for point in (ways[1], ways[-1]):
        bounded = plan_model(model_request(resnet, "m", "mps2-an386", {"tile": "auto", "ram": point.peak_bytes}), chip)
        assert bounded.schedule.peak <= point.peak_bytes
        total = sum(s.instructions for s in bounded.steps)
        assert total == pytest.approx(point.instructions, rel=0.02)


def test_more_memory_than_is_of_use_is_not_used(resnet: Path) -> None:
    """A limit far above what the model needs: of equally fast plans the one of least memory."""
    chip = load_target("mps2-an386")
    fast = plan_model(model_request(resnet, "m", "mps2-an386", {"tile": "auto", "ram": 1 << 20}), chip)
    quickest = min(cost(cut) for cut in fast.cutter.front)
    assert fast.point.cost <= NEAR * quickest
    enough = [p for p in map(partial(point_of, fast.cutter), fast.cutter.front) if p.cost <= NEAR * quickest]
    assert fast.arena_bytes <= min(p.peak_bytes + p.flash_bytes / FLASH_FOR_RAM for p in enough)
    rolled = plan_model(model_request(resnet, "m", "mps2-an386", {"tile": "rolling", "ram": 1 << 20}), chip)
    assert rolled.arena_bytes <= fast.untiled_bytes


def test_a_tiled_plan_says_what_it_costs(resnet: Path) -> None:
    """Against `--tile off`, in the summary and in the report; a plan that is that one costs nothing."""
    artifacts = compile_model(model_request(resnet, "m", "mps2-an386", {"tile": "rolling"}))
    content = json.loads(next(a.data for a in artifacts if a.name.endswith("_report.json")))
    chip = load_target("mps2-an386")
    rolled, off = (plan_model(model_request(resnet, "m", "mps2-an386", {"tile": t}), chip) for t in ("rolling", "off"))
    more = instructions(rolled.steps) / instructions(off.steps) - 1
    assert more > 0.05 and content["price"]["instructions"] == pytest.approx(more, abs=0.01)
    assert off.price == (1, 1)
    (line,) = (line for line in summary(artifacts).splitlines() if "against --tile off" in line)
    assert f"{content['price']['instructions']:+.1%} instructions" in line and f"({off.arena_bytes} B)" in line
    assert "layout optimal)" in summary(artifacts)
