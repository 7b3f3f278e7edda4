"""`--objective energy` from the model file to code that runs, its clocks under the register model."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebuild.base.artifacts import publish
from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import Target, firmware_support, hal_dir, link_flags, load_target
from edgebuild.build.papers import Net
from edgebuild.clock.emit import clock_files
from edgebuild.model import ops
from edgebuild.model.clocked import clocked_plan
from edgebuild.model.compile import emit, prepare
from edgebuild.model.emit.code import energy_words
from edgebuild.model.energy.select import TOLERANCE
from edgebuild.model.ir import Graph
from edgebuild.model.kernels import kernel_of
from edgebuild.model.plan.choose import plan
from edgebuild.model.plan.search import Plan
from tests.conftest import ROOT
from tests.graphs import examples, random_inputs, small_graphs
from tests.kernels.processor import run_plans
from tests.kernels.test_dae import layers

F767 = load_target("stm32f767")
MODELS = ROOT.parent / "shared" / "models"
HSE_HZ = 8_000_000


def network(name: str = "mlperf_kws") -> Graph:
    """A real model, or a network of the same kind where that is not at hand."""
    if (file := MODELS / f"{name}.tflite").is_file():
        return prepare(file)
    net = Net("separable", (20, 20, 8))
    x = net.conv("input", 48, (3, 3), 2)
    for _ in range(4):
        x = net.conv(net.depthwise(x), 48)
    return net.graph(x)


def request(qos: float | None, target: Target = F767) -> ModelRequest:
    return ModelRequest(Path("net"), "net", target.name, objective="energy", qos=qos, hse=HSE_HZ)


def fastest_ms(graph: Graph) -> float:
    with pytest.raises(EdgebuildError, match=r"the fastest plan takes [0-9.]+ ms; the budget is 0\.001") as caught:
        clocked_plan(graph, F767, request(0.001))
    text = str(caught.value)
    assert text.startswith(f"{graph.file}: error: ")
    return float(text.split(" takes ")[1].split(" ms")[0])


@cache
def tight_plan(name: str) -> Plan:
    """A plan whose budget is so tight that it has more than one configuration."""
    graph = network(name)
    return clocked_plan(graph, F767, request(1.15 * fastest_ms(graph)))


@pytest.fixture
def tight() -> Plan:
    return tight_plan("mlperf_kws")


def schedule_of(p: Plan) -> Any:
    assert p.clocks is not None
    return p.clocks


def test_the_plan_keeps_to_the_budget_and_beats_one_frequency(tight: Plan) -> None:
    clocks = schedule_of(tight)
    selection = clocks.selection
    assert selection.time_us + selection.mode.min_time_us <= clocks.problem.budget_us + 1e-6
    assert selection.switched
    for c in clocks.comparisons:
        assert c.plan.energy_uj <= c.single.energy_uj * (1 + 1e-9)
        assert c.plan.energy_uj <= min(c.baselines.values()) * (1 + 1e-9)


def test_what_was_chosen_is_what_is_emitted(tight: Plan) -> None:
    points = schedule_of(tight).points
    for section, point in zip(tight.steps, points, strict=True):
        kernels = [kernel_of(op, tight.graph, form) for op, form in zip(section.ops, section.forms, strict=True)]
        assert [f.granularity for f in section.forms] == [point.g]
        assert [k.traffic.rounds > 0 for k in kernels] == [point.g > 0]
    files = {a.name: a.data.decode(errors="replace") for a in emit(tight, "")}
    assert files["net.c"].count("NET_CLOCK(") == len(dict.fromkeys(changes(tight)))
    assert files["net_clock.h"].count("    X(") == len(points)
    data = json.loads(files["net_report.json"])["energy"]
    assert [(y["config"], y["g"]) for y in data["layers"]] == [(p.config, p.g) for p in points]
    assert [row["slack"] for row in data["iso_latency"]] == [0.1, 0.3, 0.5]
    assert all(row["saved"].keys() == {"busy", "gated", "stop"} for row in data["iso_latency"])
    assert data["sources"] == {"currents": "stm32f722", "stalls": "assumed"}
    assert "modelled" in energy_words(tight) and data["basis"] == "modelled"


@pytest.mark.one_in(4)
@pytest.mark.parametrize("chip", ["stm32f767", "stm32f429", "stm32f411"])
def test_plans_of_any_graph_keep_what_they_promise(chip: str) -> None:
    target = load_target(chip)
    for graph in [*examples(small_graphs(), 5), *examples(layers(), 5)]:
        p = clocked_plan(graph, target, request(20.0, target))
        clocks = schedule_of(p)
        assert clocks.selection.time_us + clocks.selection.mode.min_time_us <= 20_000
        assert clocks.selection.bound_uj <= clocks.selection.energy_uj
        for c in clocks.comparisons:
            assert 0 < c.plan.energy_uj <= min(c.single.energy_uj, *c.baselines.values()) * (1 + 2 * TOLERANCE)
        emit(p, "")


def changes(p: Plan) -> list[tuple[int, str]]:
    """Step and configuration of every switch of one inference; the return, if there is one, has the last number."""
    clocks = schedule_of(p)
    return list(zip(clocks.changes, clocks.table[0], strict=True))


def test_other_objectives_leave_the_clock_alone() -> None:
    p = plan(network(), F767, replace(request(None), objective="latency"))
    files = {a.name: a.data.decode(errors="replace") for a in emit(p, "")}
    assert p.clocks is None and "CLOCK" not in files["net.c"] and "#define EB" not in files["net_clock.h"]
    assert "energy" not in json.loads(files["net_report.json"])


@pytest.mark.parametrize(
    ("target", "qos", "words"),
    [
        (F767, None, "--objective energy needs --qos MS"),
        (load_target("mps2-an500"), 100.0, "target mps2-an500 has no clock tree"),
        (replace(F767, clocks="stm32l4x6"), 100.0, "stm32l4x6: currents are unknown"),
    ],
)
def test_refusals(target: Target, qos: float | None, words: str) -> None:
    graph = network()
    with pytest.raises(EdgebuildError, match=words):
        clocked_plan(graph, target, request(qos, target))
    assert plan(graph, target, replace(request(None, target), objective="latency")).clocks is None


# ---- the emitted code in a simulated Cortex-M7 with the chip's clock registers

MAIN = """
#include "clock_config.h"
volatile uint32_t probe_fault;
void eb_clock_error(eb_clock_fault fault) { probe_fault = 1u + (uint32_t)fault; }
int main(void) { return 0; }
"""


def decoupled_everywhere(p: Plan, g: int) -> Plan:
    """The plan's clocks, with every layer that can be decoupled gathering its operands at the HSE."""
    chosen = {}
    for op in p.graph.ops:
        form = replace(p.cutter.form, granularity=g)
        if op.kind in ("conv2d", "depthwise_conv2d") and kernel_of(op, p.graph, form).traffic.rounds:
            chosen[op.outputs[0]] = (g, True)
    assert len(chosen) >= 8
    return replace(plan(p.graph, p.target, p.request, chosen), clocks=p.clocks)


def built(p: Plan, folder: Path, *more: str) -> Path:
    """The model, clocks managed, with its clock configurations in a program. `more`: functions to keep."""
    publish([*emit(p, ""), *clock_files(schedule_of(p).clocks), *firmware_support(p.target)], folder)
    (folder / "main.c").write_text(MAIN)
    tools = p.target.toolchain
    assert p.target.firmware is not None
    hal = [str(hal_dir() / s) for s in p.target.firmware.startup]
    flags = [*tools.cflags, "-DEDGEBUILD_CLOCKS", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-I."]
    clocks = [f"eb_clock_{name}" for name in ("init", "resume", "lfo")]
    keep = [f"-Wl,-u,{name}" for name in ("net_invoke", "net_input", "net_output", *clocks, *more)]
    sources = ["main.c", "net.c", "net_weights.S", "clock_config.c", f"-I{hal_dir() / 'include'}", *hal]
    link = [*link_flags(p.target, ("net_memory.ld",)), *keep, "-o", "net.elf", *tools.libs]
    done = subprocess.run([tools.compiler, *flags, *sources, *link], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "net.elf"


@pytest.mark.one_in(6)
@pytest.mark.needs("arm-none-eabi-gcc")
@pytest.mark.parametrize(
    ("model", "g"),
    [("mlperf_kws", 0), ("mlperf_kws", 4), ("mlperf_kws", 16), ("person_detect", 0), ("person_detect", 16)],
)
def test_a_clean_run(model: str, g: int, tmp_path: Path) -> None:
    """Two inferences with Stop mode between them: no violation, all the switches, the right results."""
    pytest.importorskip("unicorn", reason="the register model runs under unicorn")
    from tests.clocks.machine import Machine

    p = decoupled_everywhere(tight_plan(model), g) if g else tight_plan(model)
    clocks = schedule_of(p)
    machine = Machine(clocks.clocks, built(p, tmp_path), ram_size=0x80000, instructions=100_000_000)
    names = [c.name for c in clocks.clocks.configs]
    seen: list[str] = []
    watch(machine, "eb_clock_switch", lambda argument: seen.append(names[argument]))
    watch(machine, "eb_clock_lfo", lambda _: seen.append("lfo"))
    machine.call("eb_clock_init")
    seen.clear()
    for vector in random_inputs(p.graph, 2, 0):
        (x,), (name,) = vector, p.graph.outputs
        machine.call("net_input")
        machine.uc.mem_write(machine.returned(), np.ascontiguousarray(x).tobytes())
        machine.call("net_invoke")
        assert [c for c in seen if c != "lfo"] == [config for _, config in changes(p)]
        gathers = sum(k.traffic.rounds for k in kernels(p) if k.shape.get("lfo"))
        assert seen.count("lfo") == gathers and (gathers > 0 or not g)
        machine.call("net_output")
        t = p.graph.tensors[name]
        have = np.frombuffer(machine.uc.mem_read(machine.returned(), t.bytes), t.dtype)
        assert np.array_equal(have, ops.run(p.graph, x)[name].ravel())
        machine.model.stop_mode()
        machine.call("eb_clock_resume", names.index(clocks.selection.start))
        machine.expect(clocks.selection.start)
        seen.clear()


@cache
def several() -> Plan:
    """A plan for three budgets, the second of which is the shortest."""
    graph = network()
    shortest = 1.1 * fastest_ms(graph)
    return clocked_plan(graph, F767, replace(request(None), qos=(1.5 * shortest, shortest, 4 * shortest)))


@pytest.mark.slow
def test_several_budgets_share_their_kernels() -> None:
    """Each keeps to its time, and loses little against a plan of its own."""
    p = several()
    clocks = schedule_of(p)
    assert [problem.budget_us for problem, _ in clocks.budgets] == [1000 * ms for ms in p.request.budgets_ms]
    assert len({tuple(q.config for q in s.points) for _, s in clocks.budgets}) > 1
    for problem, s in clocks.budgets:
        assert s.time_us + s.mode.min_time_us <= problem.budget_us + 1e-6
        assert [q.g for q in s.points] == [section.forms[0].granularity for section in p.steps]
        own = schedule_of(clocked_plan(p.graph, F767, request(problem.budget_us / 1000)))
        assert own.selection.energy_uj * (1 - 2 * TOLERANCE) <= s.energy_uj <= 1.05 * own.selection.energy_uj
    files = {a.name: a.data.decode(errors="replace") for a in emit(p, "")}
    assert "#define NET_QOS_COUNT 3" in files["net.h"] and files["net_clock.h"].count("    X(") == 3 + 3 * len(p.steps)
    rows = json.loads(files["net_report.json"])["energy"]["budgets"]
    assert [row["configs"] for row in rows] == [[q.config for q in s.points] for _, s in clocks.budgets]
    with pytest.raises(EdgebuildError, match="several budgets need --arena static"):
        clocked_plan(p.graph, F767, replace(p.request, arena="caller"))
    with pytest.raises(EdgebuildError, match=r"the fastest plan takes .* the budget is 0\.001"):
        clocked_plan(p.graph, F767, replace(p.request, qos=(20.0, 0.001)))


def without_repeats(names: Sequence[str]) -> list[str]:
    return [b for a, b in pairwise(["", *names]) if a != b]


@pytest.mark.needs("arm-none-eabi-gcc")
def test_a_clean_run_under_each_budget(tmp_path: Path) -> None:
    """The application goes from budget to budget: no violation, the clocks of the budget, the right results."""
    pytest.importorskip("unicorn", reason="the register model runs under unicorn")
    from tests.clocks.machine import Machine

    p = several()
    clocks = schedule_of(p)
    elf = built(p, tmp_path, "net_set_qos")
    machine = Machine(clocks.clocks, elf, ram_size=0x80000, instructions=100_000_000)
    names = [c.name for c in clocks.clocks.configs]
    seen: list[str] = []
    watch(machine, "eb_clock_switch", lambda argument: seen.append(names[argument]))
    machine.call("eb_clock_init")
    (x,), (result,) = random_inputs(p.graph, 1, 0)[0], p.graph.outputs
    expected = ops.run(p.graph, x)[result].ravel()
    for asked, holds in ((None, 0), (1, 1), (2, 2), (3, 2), (-1, 2), (0, 0)):
        if asked is not None:
            machine.call("net_set_qos", asked & 0xFFFFFFFF)
        s = clocks.budgets[holds][1]
        machine.call("net_input")
        machine.uc.mem_write(machine.returned(), np.ascontiguousarray(x).tobytes())
        seen.clear()
        machine.call("net_invoke")
        path = [q.config for q in s.points] + ([s.start] if s.mode.returns else [])
        assert without_repeats(seen) == without_repeats(path)
        machine.call("net_output")
        t = p.graph.tensors[result]
        assert np.array_equal(np.frombuffer(machine.uc.mem_read(machine.returned(), t.bytes), t.dtype), expected)
        machine.expect(path[-1])


@pytest.mark.needs("qemu-system-arm", "arm-none-eabi-gcc")
def test_the_right_results_where_clocks_are_not_managed(tmp_path: Path) -> None:
    """On a board that has this chip's clocks in its description only, so the same code runs in QEMU."""
    board = replace(load_target("mps2-an500"), clocks="stm32f767")
    graph = network("person_detect")
    p = clocked_plan(graph, board, request(1000.0, board))
    assert p.cutter.decoupled
    inputs = random_inputs(graph, 2, 1)
    (rows,) = run_plans(board, [p], [inputs], tmp_path)
    for (x,), row in zip(inputs, rows, strict=True):
        expected = ops.run(graph, x)
        assert all(np.array_equal(expected[n], y) for n, y in zip(graph.outputs, row, strict=True))


def kernels(p: Plan) -> Sequence[Any]:
    return [kernel_of(op, p.graph, form) for s in p.steps for op, form in zip(s.ops, s.forms, strict=True)]


def watch(machine: Any, function: str, note: Any) -> None:
    """Call `note` with the argument of every call of a function."""
    import unicorn
    from unicorn import arm_const

    address = machine.symbols[function] & ~1
    action = lambda uc, at, size, data: note(uc.reg_read(arm_const.UC_ARM_REG_R0))  # noqa: E731
    machine.uc.hook_add(unicorn.UC_HOOK_CODE, action, begin=address, end=address)
