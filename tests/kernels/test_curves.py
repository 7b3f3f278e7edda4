"""Sigmoid and tanh of int16 as lines: every int16 at scales of all sizes, and numbers of elements that leave a rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.ir import Graph, Op, Quant, Tensor
from edgebuild.model.kernels import kernel_of
from edgebuild.model.ops import SPECS
from edgebuild.model.ops.pointwise import attributes
from edgebuild.model.plan.choose import plan
from edgebuild.model.plan.search import form_of
from tests.graphs import random_inputs
from tests.kernels.processor import run_on, run_plans
from tests.kernels.test_processors import NEEDS
from tests.ops.test_host import compare

SCALES = (2.0**-12, 2.0**-11, 2.0**-15, 3.1e-4, 2.4e-5, 7e-3, 1.7e-6, 0.5)
EVERY = np.arange(-(2**15), 2**15).astype(np.int16)


def curve(function: str, scale: float, count: int, clamp: tuple[float | None, float | None] = (None, None)) -> Graph:
    x = Tensor("x", (1, count), "int16", Quant((float(np.float32(scale)),), (0,)))
    y = Tensor("y", (1, count), "int16", Quant((2.0**-15,), (0,)))
    op = Op("pointwise", "curve", ("x",), ("y",), {**attributes(function), "clamp": clamp})
    return Graph("", (), {"x": x, "y": y}, ("x",), ("y",), "tflite").with_ops([op])


@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", ["mps2-an386", "mps3-an547"])
def test_every_value(target: str, tmp_path: Path) -> None:
    counts = [EVERY.size // 16 + n for n in range(4)]
    graphs = [curve(f, s, counts[i % 4]) for f in ("sigmoid", "tanh") for i, s in enumerate(SCALES)]
    rng, inputs = np.random.default_rng(0), list[list[list[np.ndarray]]]()
    for graph in graphs:
        count = graph.tensors["x"].elements
        inputs.append([[np.resize(part, (1, count))] for part in np.array_split(rng.permutation(EVERY), 16)])
    form = form_of(load_target(target))
    for graph, vectors, rows in zip(graphs, inputs, run_on(load_target(target), graphs, inputs, tmp_path), strict=True):
        assert kernel_of(graph.ops[0], graph, form).template.endswith(".c:curve")
        for (x,), (y,) in zip(vectors, rows, strict=True):
            assert np.array_equal(y, SPECS["pointwise"].reference(graph.ops[0], graph, x))


@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", ["mps2-an385", "mps2-an386", "mps3-an547"])
def test_an_activation_that_follows(target: str, tmp_path: Path) -> None:
    """RELU and RELU_N1_TO_1 are part of the same op then, so no kernel may leave them out."""
    clamps = ((0.0, None), (-0.25, 0.5), (0.0, 6.0))
    graphs = [curve(f, 2.0**-12, 33, clamp) for f in ("sigmoid", "tanh") for clamp in clamps]
    values = np.linspace(-(2**15), 2**15 - 1, 33).astype(np.int16).reshape(1, 33)
    form = form_of(load_target(target))
    results = run_on(load_target(target), graphs, [[[values]]] * len(graphs), tmp_path)
    for graph, ((y,),) in zip(graphs, results, strict=True):
        low, high = graph.ops[0].attrs["clamp"]
        plain = SPECS["pointwise"].reference(curve(graph.ops[0].attrs["function"], 2.0**-12, 33).ops[0], graph, values)
        steps = (2**15 * low, 2**15 * high if high is not None else 2**15 - 1)
        assert np.array_equal(y, np.clip(plain, *np.clip(steps, -(2**15), 2**15 - 1))), kernel_of(
            graph.ops[0], graph, form
        )


@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", ["mps2-an386", "mps3-an547"])
def test_curves_of_one_network(target: str, tmp_path: Path) -> None:
    """Assembly has their numbers inside, so they share a function only where all of them are the same."""
    scales, functions, count = (2.0**-11, 2.0**-15, 2.0**-15, 2.0**-15), ("tanh", "sigmoid", "tanh"), 41
    names = ("x", "a", "b", "y")
    tensors = {n: Tensor(n, (1, count), "int16", Quant((s,), (0,))) for n, s in zip(names, scales, strict=True)}
    nodes = [
        Op("pointwise", f + o, (i,), (o,), attributes(f)) for f, i, o in zip(functions, names, names[1:], strict=False)
    ]
    graph = Graph("", (), tensors, ("x",), ("y",), "tflite").with_ops(nodes)
    values = np.linspace(-(2**15), 2**15 - 1, count).astype(np.int16).reshape(1, count)
    want = values
    for op in nodes:
        want = SPECS["pointwise"].reference(op, graph, want)
    for optimize in ("speed", "size"):
        ((results,),) = run_on(load_target(target), [graph], [[[values]]], tmp_path, optimize=optimize)
        assert np.array_equal(results[0], want)


@pytest.mark.needs(*NEEDS)
def test_rows_between_words(tmp_path: Path) -> None:
    """Row by row, each second row of 33 values begins in the middle of a word."""
    scales = {"x": 2.0**-12, "a": 2.0**-15, "b": 2.0**-15, "y": 2.0**-14}
    tensors = {n: Tensor(n, (1, 16, 11, 3), "int16", Quant((s,), (0,))) for n, s in scales.items()}
    nodes = [
        Op("pointwise", "a", ("x",), ("a",), attributes("sigmoid")),
        Op("pointwise", "b", ("x",), ("b",), attributes("tanh")),
        Op("mul", "y", ("a", "b"), ("y",), {"clamp": (None, None)}),
    ]
    graph, target = Graph("", (), tensors, ("x",), ("y",), "tflite").with_ops(nodes), load_target("mps2-an386")
    tiled = plan(graph, target, ModelRequest(Path("x"), "g0", target.name, objective="ram"))
    assert tiled.tiled
    vectors = random_inputs(graph, 2, 1)
    for vector, row in zip(vectors, run_plans(target, [tiled], [vectors], tmp_path)[0], strict=True):
        compare(graph, vector, row)
