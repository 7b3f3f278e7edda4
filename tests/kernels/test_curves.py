"""Sigmoid and tanh of int16 as lines: every int16 at scales of all sizes, and numbers of elements that leave a rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.target import load_target
from edgebuild.model.ir import Graph, Op, Quant, Tensor
from edgebuild.model.kernels import kernel_of
from edgebuild.model.ops import SPECS
from edgebuild.model.ops.pointwise import attributes
from edgebuild.model.plan.search import form_of
from tests.kernels.processor import run_on
from tests.kernels.test_processors import NEEDS

SCALES = (2.0**-12, 2.0**-11, 2.0**-15, 3.1e-4, 2.4e-5, 7e-3, 1.7e-6, 0.5)
EVERY = np.arange(-(2**15), 2**15).astype(np.int16)


def curve(function: str, scale: float, count: int) -> Graph:
    x = Tensor("x", (1, count), "int16", Quant((float(np.float32(scale)),), (0,)))
    y = Tensor("y", (1, count), "int16", Quant((2.0**-15,), (0,)))
    op = Op("pointwise", "curve", ("x",), ("y",), attributes(function))
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
        assert kernel_of(graph.ops[0], graph, form).template.endswith("curve.c.j2")
        for (x,), (y,) in zip(vectors, rows, strict=True):
            assert np.array_equal(y, SPECS["pointwise"].reference(graph.ops[0], graph, x))
