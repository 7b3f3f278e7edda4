"""The search of sections leaves out none that a cut of least memory, or of fewest instructions, would have."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, combinations
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import prepare
from edgebuild.model.ir import Graph
from edgebuild.model.plan import cuts
from edgebuild.model.plan.choose import plan
from edgebuild.model.plan.cuts import NEVER, Cuts, Cutter, Interval, little_more
from edgebuild.model.plan.memory.layout import layout
from edgebuild.model.plan.memory.problem import BufferMemory
from edgebuild.model.plan.rolling import RollingGraph, Trace, possible_starts, simulate
from edgebuild.model.plan.search import Alternatives, Planner
from edgebuild.model.plan.section import cost, instructions
from edgebuild.model.plan.storage import layout_problem
from tests.bench_planning import chain
from tests.graphs import examples, small_graphs
from tests.rolling.test_networks import Net, pools, residuals
from tests.rolling.test_rolling import running_example


def all_sections(cutter: Cutter) -> Cuts:
    """Every section that there is, without a bound."""
    sections = list(cutter.wholes)
    for stop in range(1, len(cutter.order) + 1):
        for start in possible_starts(cutter.rolling, cutter.order[:stop]):
            trace = simulate(cutter.rolling, cutter.order[start:stop])
            sections += cutter.by_rows(trace, start, stop)
    return Cuts(len(cutter.order), cutter.enough, sections)


def long(blocks: int) -> Graph:
    """A chain of blocks that is longer than what is rolled at once, with a skip over every third."""
    net = Net(1, 12, 6, 3)
    y = net.conv("x", 4, 3)
    for i in range(blocks):
        z = net.conv(net.conv(y, 4 + i % 3, 3), 4, 1)
        y = net.add("add", y, z, clamp=(None, None)) if i % 3 == 0 else z
    return net.graph(net.conv(y, 2, 3, 2))


GRAPHS = [*pools(), *residuals(), running_example(), long(12), *examples(small_graphs(), 12)]


@pytest.mark.parametrize("number", range(len(GRAPHS)))
def test_the_bounded_search_finds_what_the_whole_one_finds(number: int) -> None:
    for target in ("host", "mps2-an386"):
        cutter = Planner(GRAPHS[number], load_target(target), ModelRequest(Path("x"), "x", target)).cutter
        if not cutter.order:
            continue
        exhaustive = all_sections(cutter)
        assert cutter.least_peak == exhaustive.least
        for share in (0, 0.25, 0.5, 1):
            bound = round(cutter.least_peak + share * (cutter.enough - cutter.least_peak))
            assert instructions(cutter.cuts.within(bound)) <= instructions(exhaustive.within(bound)) * 1.001
        most = 1.1 * instructions(cutter.untiled)
        assert max(cutter.profile(cutter.cuts.knee(most))) <= max(cutter.profile(exhaustive.knee(most))) * 1.02


@pytest.mark.parametrize("number", range(0, len(GRAPHS), 2))
def test_no_layout_of_the_steps_is_below_the_bound(number: int) -> None:
    """Whichever results leave their operands."""
    planner = Planner(GRAPHS[number], load_target("mps2-an386"), ModelRequest(Path("x"), "x", "mps2-an386"))
    cutter = planner.cutter
    for steps in {id(each): each for each in (cutter.untiled, cutter.cuts.tight(), cutter.cuts.within(0))}.values():
        bound, at = planner.plan(steps).lower_bound, list(accumulate((len(s.ops) for s in steps), initial=0))
        over = [i for i, s in enumerate(steps) if s.overlap is not None or s.overlaid][:5]
        least = NEVER
        for count in range(len(over) + 1):
            for freed in combinations(over, count):
                loose = [cutter.without_overlap(s, at[i]).section if i in freed else s for i, s in enumerate(steps)]
                problem, _ = layout_problem(cutter, loose, (BufferMemory("arena"),))
                least = min(least, layout(problem, effort=0.1).height)
        assert bound <= least


def test_few_runs_are_planned_behind_the_peak(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Runs are left out that take no more than every cut takes anyway, and cost more than shorter ones."""
    model, planned, by_rows = tmp_path / "chain.tflite", list[tuple[int, int]](), Cutter.by_rows
    model.write_bytes(chain(32))
    graph = prepare(model)

    def counted(cutter: Cutter, trace: Trace, start: int, stop: int) -> list[Interval]:
        planned.append((start, stop))
        return by_rows(cutter, trace, start, stop)

    monkeypatch.setattr(Cutter, "by_rows", counted)
    cutter = Planner(graph, load_target("mps2-an386"), ModelRequest(Path("x"), "x", "mps2-an386")).cutter
    few, count = cutter.cuts, len(planned)
    exhaustive = all_sections(cutter)
    assert count * 4 < len(planned) - count
    assert few.least == exhaustive.least
    for bound in (cutter.least_peak, little_more(cutter.least_peak), cutter.enough):
        assert cost(few.within(bound)) == pytest.approx(cost(exhaustive.within(bound)))


def test_a_search_that_ends_early_has_cuts_of_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer calls find no better cut, and none at all leaves every op by itself. A streamed input ends no search."""
    graph, peaks = long(12), list[int]()
    planner = Planner(graph, load_target("mps2-an386"), ModelRequest(Path("x"), "x", "mps2-an386"))
    for calls in (0, 3_000, cuts.MAX_CALLS):
        monkeypatch.setattr(cuts, "MAX_CALLS", calls)
        cutter = replace(planner.cutter)
        peaks.append(cutter.least_peak)
        assert any(s.run for s in cutter.cuts.within(0)) == (calls > 0)
        rolled = [at for at, each in cutter.cuts.starting.items() if any(i.stop > at + 1 for i in each)]
        assert not calls or max(rolled) > len(cutter.order) * 3 // 4
    assert peaks == sorted(peaks, reverse=True) and peaks[0] > peaks[-1]
    late = replace(planner.cutter, deadline=0.0)
    assert late.least_peak == peaks[0]
    streamed = replace(late, rolling=RollingGraph(graph, graph.inputs[0]))
    assert streamed.cuts.least is not None


def test_what_would_help_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that fits in no way is refused each time with the same ways that are no better."""
    looked, right = list[Alternatives](), Alternatives._streamed
    monkeypatch.setattr(Alternatives, "_streamed", lambda each: looked.append(each) or right(each))  # type: ignore[func-returns-value]
    request = ModelRequest(Path("x"), "x", "mps2-an386", tile="auto", ram=64)
    with pytest.raises(EdgebuildError, match="does not fit") as refused:
        plan(long(2), load_target("mps2-an386"), request)
    assert len(looked) == 1
    assert any("do not fit either" in hint for error in refused.value.diagnostics for hint in error.hints)
