"""The picture of clocks: its areas are the plan's energies, its width is the budget."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest

from edgebuild.clock.configs import PowerModel, clock_plan
from edgebuild.clock.tree import load_clock_tree
from edgebuild.model.emit.pictures import HEIGHT, LEFT, RIGHT, WIDTH, clock_picture, stretches
from edgebuild.model.energy.layer_cost import CodeStretch, Work, layer_points
from edgebuild.model.energy.select import ClockSchedule, problem_of, select

MODEL = PowerModel(clock_plan(load_clock_tree("stm32f767"), 50_000_000), "flash")


def schedule(slack: float) -> ClockSchedule:
    """Layers that only compute, and others that mostly wait: with long ones a switch between them is worth its time."""
    layers = []
    for k in range(6):
        execute = CodeStretch(3e6) if k % 2 else CodeStretch(2e5, flash_lines=3e5)
        access = CodeStretch(1e5, sram_lines=2e4)
        works = [Work(f"l<{k}>", 0, execute + access), Work(f"l<{k}>", 8, execute, access, 3)]
        layers.append(layer_points(f"l<{k}>", works, MODEL))
    fastest = sum(min(p.time_us for p in y.points) for y in layers)
    problem = problem_of(layers, MODEL, fastest * (1 + slack))
    return ClockSchedule(MODEL, problem, select(problem), ())


@pytest.mark.parametrize("slack", [0.05, 0.2, 1.0])
def test_stretches_are_the_plan(slack: float) -> None:
    s = schedule(slack)
    parts = list(stretches(s))
    assert sum(p.time_us for p in parts) == pytest.approx(s.problem.budget_us)
    assert sum(p.time_us * p.mw / 1000 for p in parts) == pytest.approx(s.selection.energy_uj)
    for a, b in pairwise(parts):
        assert b.start_us == pytest.approx(a.start_us + a.time_us)
    switches = [p.title.split(":")[0] for p in parts if " to " in p.title]
    assert switches == [f"{a} to {b}" for a, b in s.selection.switched]


def test_the_svg_is_whole_and_the_same_twice() -> None:
    s = schedule(0.2)
    text = clock_picture(s).svg()
    assert text == clock_picture(schedule(0.2)).svg()
    space = "{http://www.w3.org/2000/svg}"
    bars = [r for r in ElementTree.fromstring(text).findall(f"{space}rect") if r.find(f"{space}title") is not None]
    assert len(bars) == 2 * len(list(stretches(s)))
    for rect in bars:
        x, y, w, h = (float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
        assert x >= LEFT and x + w <= WIDTH - RIGHT + 0.5 and y >= 0 and y + h <= HEIGHT
    assert "l<1>" in (bars[1].findtext(f"{space}title") or "") + (bars[2].findtext(f"{space}title") or "")
