"""Decoupled kernels on a simulated Cortex-M7: the same results bit for bit, whatever is gathered at once."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import prepare
from edgebuild.model.energy.layer_cost import GRANULARITIES
from edgebuild.model.ir import Graph
from edgebuild.model.kernels import kernel_of
from edgebuild.model.plan.choose import plan
from edgebuild.model.plan.search import Plan, form_of
from edgebuild.model.plan.section import whole_form
from tests.conftest import ROOT
from tests.graphs import examples, random_inputs
from tests.graphs.single import beyond, sum_graph, window
from tests.graphs.source import sources
from tests.kernels.processor import run_plans
from tests.ops.test_host import compare

TARGET = load_target("mps2-an500")
MODELS = ROOT.parent / "shared" / "models"
NEEDS = ("qemu-system-arm", "arm-none-eabi-gcc")
KINDS = ("conv2d", "depthwise_conv2d")


def decoupled(graph: Graph, name: str, g: int, lfo: bool = True) -> Plan:
    """A plan in which every op that can be is decoupled."""
    chosen = {}
    for op in graph.ops:
        wanted = {op.outputs[0]: (g, lfo)}
        if op.kind in KINDS and kernel_of(op, graph, whole_form(op, form_of(TARGET), wanted)).traffic.rounds:
            chosen |= wanted
    return plan(graph, TARGET, ModelRequest(Path("x"), name, TARGET.name), chosen)


def rectified(graph: Graph) -> Graph:
    """With a result that takes the whole of int8 and is clamped at its zero point by that alone."""
    y, (op,) = graph.tensors["y"], graph.ops
    assert y.quant is not None
    tensors = {**graph.tensors, "y": replace(y, quant=replace(y.quant, zero_point=(-128,)))}
    return replace(graph, ops=(replace(op, attrs={**op.attrs, "clamp": (None, None)}),), tensors=tensors)


@st.composite
def layers(draw: st.DrawFn) -> Graph:
    """A pointwise or a depthwise convolution with enough channels, windows of all kinds among the latter."""
    s = draw(sources([("tflite", False), ("onnx", False)]))
    finish = s.pick(rectified, lambda graph: graph)
    if s.pick(True, False):
        channels, out = 4 * s.between(1, 10), s.between(1, 30)
        x = s.tensor("x", (1, *s.pair(1, 7), channels), s.quant())
        attrs = {"stride": (1, 1), "dilation": (1, 1), "pad": (0, 0, 0, 0)}
        return finish(sum_graph(s, "conv2d", x, s.weights("w", (out, 1, 1, channels), 0), out, channels, **attrs))
    attrs, taps, size = window(s, beyond)
    attrs["dilation"] = (s.pick(1, 2), 1)
    channels = s.between(2, 37)
    x = s.tensor("x", (1, *(n + 2 * taps[0] for n in size), channels), s.quant())
    w = s.weights("w", (1, *taps, channels), 3)
    return finish(sum_graph(s, "depthwise_conv2d", x, w, channels, prod(taps), **attrs))


def candidates() -> list[Graph]:
    return [graph for graph in examples(layers(), 90) if decoupled(graph, "n", 2).cutter.decoupled]


@pytest.mark.one_in(6)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("g", GRANULARITIES[1:])
def test_results_do_not_change(g: int, tmp_path: Path) -> None:
    plans = [decoupled(graph, f"g{i}", g, lfo=bool(i % 2)) for i, graph in enumerate(candidates())]
    plans = [p for p in plans if p.cutter.decoupled]
    assert {p.graph.ops[0].kind for p in plans} == set(KINDS)
    inputs = [random_inputs(p.graph, 2, seed) for seed, p in enumerate(plans)]
    for p, vectors, rows in zip(plans, inputs, run_plans(TARGET, plans, inputs, tmp_path), strict=True):
        for vector, row in zip(vectors, rows, strict=True):
            compare(p.graph, vector, row)


@pytest.mark.one_in(2)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("model", ["mlperf_kws", "person_detect"])
def test_whole_networks(model: str, tmp_path: Path) -> None:
    file = MODELS / f"{model}.tflite"
    if not file.is_file():
        pytest.skip("the models are not at hand")
    graph = prepare(file)
    plain = plan(graph, TARGET, ModelRequest(file, "plain", TARGET.name))
    plans = [plain, *(decoupled(graph, f"g{g}", g) for g in (2, 8, 16))]
    assert all(len(p.cutter.decoupled) >= 8 for p in plans[1:])
    inputs = random_inputs(graph, 2, 0)
    expected, *others = run_plans(TARGET, plans, [inputs] * len(plans), tmp_path)
    for rows in others:
        for want, have in zip(expected, rows, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(want, have, strict=True))


def test_the_buffer_is_part_of_the_plan() -> None:
    graph = next(g for g in candidates() if g.ops[0].kind == "depthwise_conv2d")
    choice = decoupled(graph, "n", 2)
    (name, size), *_ = choice.steps[0].inner.items()
    assert size >= 2 * plan(graph, TARGET, ModelRequest(Path("x"), "n", TARGET.name)).steps[0].inner[name] - 4
    assert name in choice.places
