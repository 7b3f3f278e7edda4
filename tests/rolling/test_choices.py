"""Which plan is taken, that a failure of one ends no compilation, and that reports add up."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebuild.base.errors import STRICT, EdgebuildError
from edgebuild.base.request import ModelRequest, model_request
from edgebuild.base.target import load_target
from edgebuild.build.run import summary
from edgebuild.model.compile import compile_model
from edgebuild.model.emit.code import program
from edgebuild.model.emit.report import report
from edgebuild.model.ir import Graph
from edgebuild.model.plan import choose, search
from edgebuild.model.plan.check.replay import BrokenPlan
from edgebuild.model.plan.choose import KNEE, plan
from edgebuild.model.plan.memory.problem import ALIGN
from edgebuild.model.plan.search import NEAR, Plan, Planner
from edgebuild.model.plan.section import instructions
from edgebuild.model.plan.storage import live_set
from tests.conftest import ROOT, by_day
from tests.graphs import examples, small_graphs
from tests.rolling.test_networks import Net, pools, residuals
from tests.rolling.test_rolling import DIGITS, planned, running_example

CASES = ROOT.parent / "shared" / "cases"
WAYS: tuple[dict[str, Any], ...] = (
    {"tile": "off"}, {"tile": "rolling"}, {"tile": "fdt"}, {"tile": "ffmt"}, {"tile": "auto"},
)  # fmt: skip


@cache
def networks() -> list[Graph]:
    return [*by_day(examples(small_graphs(), 6)), *pools()[:2], *residuals()[:2], running_example()]


PLANS: dict[tuple[int, str], tuple[Graph, Plan]] = {}  # by graph and options


def on_m4(graph: Graph, **options: Any) -> Plan:
    """Kernels of this core need scratch."""
    key = id(graph), str(options)
    if key not in PLANS:
        request = ModelRequest(Path("x"), "x", "mps2-an386", **options)
        PLANS[key] = graph, plan(graph, load_target("mps2-an386"), request)
    return PLANS[key][1]


def test_the_least_memory_is_the_least_of_all_ways() -> None:
    for graph in networks():
        sizes = {str(options): on_m4(graph, **options).arena_bytes for options in WAYS}
        assert on_m4(graph, objective="ram").arena_bytes <= min(sizes.values()), sizes
        assert sizes["{'tile': 'auto'}"] <= sizes["{'tile': 'off'}"]


def test_memory_that_costs_nothing_is_saved_without_being_asked_for() -> None:
    """A convolution by rows over its own operand: a few calls more, and half of the memory."""
    net = Net(1, 32, 32, 8)
    graph = net.graph(net.conv(net.conv("x", 8, 3), 8, 3))
    plain, off = planned(graph), planned(graph, tile="off")
    assert plain.arena_bytes == off.arena_bytes < 1.2 * 4 * 32 * 32 * 8
    assert instructions(plain.steps) <= NEAR * instructions(plain.cutter.untiled)


def test_auto_takes_the_knee() -> None:
    """At most KNEE of the estimated instructions of the whole ops more; `--ram` asks for less memory at any price."""
    for graph in networks():
        chosen = on_m4(graph, tile="auto")
        most = KNEE * instructions(Planner(graph, chosen.target, chosen.request).cutter.untiled)
        assert instructions(chosen.steps) <= most
    for graph in (running_example(), *residuals()):
        least = on_m4(graph, objective="ram").arena_bytes
        room = (least + on_m4(graph, tile="off").arena_bytes) // 2
        fast = on_m4(graph, tile="auto", ram=room)
        assert fast.arena_bytes <= room
        assert instructions(fast.steps) <= instructions(on_m4(graph, objective="ram").steps)


def test_auto_buys_no_memory_with_much_flash() -> None:
    """Four bytes of flash are worth one of memory, at most."""
    for graph in networks():
        chosen, whole = on_m4(graph, tile="auto"), on_m4(graph)
        if whole.arena_bytes <= chosen.untiled_bytes:
            paid = chosen.flash_bytes - whole.flash_bytes
            assert paid <= choose.FLASH_FOR_RAM * (whole.arena_bytes - chosen.arena_bytes)


@pytest.mark.slow
def test_the_summary_says_what_less_memory_would_cost() -> None:
    artifacts = compile_model(model_request(DIGITS, "digits", "mps2-an386", {"tile": "auto"}))
    (line,) = (line for line in summary(artifacts).splitlines() if "less memory" in line)
    ways = json.loads(next(a.data for a in artifacts if a.name.endswith("_report.json")))["trade_off"]
    at = next(i for i, row in enumerate(ways) if row["chosen"])
    assert at > 0 and f" {ways[at - 1]['peak_bytes']} B for +" in line
    least = compile_model(model_request(DIGITS, "digits", "mps2-an386", {"objective": "ram"}))
    assert "less memory" not in summary(least)


def test_all_bytes_of_the_arena_are_explained() -> None:
    """By buffers of the report, their ends rounded up; what lives in a step adds up, and so does the untiled arena."""
    for graph in networks():
        for options in WAYS:
            chosen = on_m4(graph, **options)
            content = json.loads(report(program(chosen), "", 0))
            used = np.zeros(chosen.arena_bytes, bool)
            for b in content["layout"]["buffers"]:
                used[b["offset"] : b["offset"] + -(-b["bytes"] // ALIGN) * ALIGN] = True
            assert used.all()
            assert content["ram"]["untiled_arena_bytes"] == on_m4(graph, tile="off").arena_bytes
            for step, live in enumerate(chosen.schedule.profile):
                assert live_set(chosen.cutter, chosen.steps, step).bytes == live


@pytest.mark.parametrize("options", [{"tile": "off"}, {"tile": "rolling"}, {"tile": "ffmt"}, {}])
def test_what_is_live_where_a_model_does_not_fit_adds_up(options: dict[str, Any]) -> None:
    """Scratch, rings and newest rows are named, and results over operands taken off."""
    for graph in networks():
        with pytest.raises(EdgebuildError) as refused:
            on_m4(graph, ram=16, **options)
        (error,) = refused.value.diagnostics
        (live,) = (hint for hint in error.hints if hint.startswith("live at this step: "))
        parts = [int(size) for size in re.findall(r"\((\d+) B|(?<=, )(\d+) B between", live) for size in size if size]
        parts += [-int(size) for size in re.findall(r"less (\d+) B as", live)]
        needed = re.search(r"arena (?:at least )?(\d+) B", error.text)
        assert needed is not None and sum(parts) == int(needed.group(1)), live


def broken(*arguments: object, **printed: object) -> None:
    raise BrokenPlan("rolled\n  badly")


def test_a_failure_of_ours_ends_no_compilation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next best way is taken, and a warning names the one that failed; with EDGEBUILD_STRICT it is an error."""
    right = search.replay

    def fails(graph: Any, steps: Any, places: Any, **printed: Any) -> None:
        (broken if any(s.rolled for s in steps) else right)(graph, steps, places, **printed)

    monkeypatch.setattr(search, "replay", fails)
    for options in ({"tile": "auto"}, {"objective": "ram"}, {"tile": "rolling"}):
        with pytest.raises(BrokenPlan):
            planned(running_example(), **options)
    monkeypatch.delenv(STRICT)
    for options in ({"tile": "auto"}, {"objective": "ram"}, {"tile": "rolling"}):
        assert not any(s.rolled for s in planned(running_example(), **options).steps)
        errors = capsys.readouterr().err
        assert (
            "warning: internal failure of 'rolling': BrokenPlan: rolled badly\n" in errors and "report this" in errors
        )


def test_a_failure_of_printing_ends_no_compilation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from edgebuild.model import compile as compiler

    right = compiler.emit

    def fails(decided: Plan, digest: str) -> object:
        return broken() if decided.tiled else right(decided, digest)

    monkeypatch.setattr(compiler, "emit", fails)
    request = model_request(DIGITS, "model", "host", {"tile": "rolling"})
    with pytest.raises(BrokenPlan):
        compile_model(request)
    monkeypatch.delenv(STRICT)
    assert json.loads(compile_model(request)[-1].data)["tiling"] == []
    assert "printing the tiled plan" in capsys.readouterr().err
