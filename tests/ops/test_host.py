"""Every op's C against its numpy meaning, on this machine under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgebuild.model import ops
from edgebuild.model.ir import Arithmetic, Graph, Op, Quant, Tensor, dump, verify
from edgebuild.model.ops import elementwise
from edgebuild.model.ops.base import Form, check_limits
from tests.conftest import by_day
from tests.graphs import KINDS, covering, described, edges, random_inputs
from tests.graphs.source import Dice
from tests.ops.host import run_on_host

MAX_GRAPHS = 16  # of a kind
VECTORS = 4


def test_every_kind_has_a_strategy() -> None:
    """But those that take two devices: tests/distribute runs them."""
    kinds = {kind for kind, spec in ops.SPECS.items() if not spec.link}
    assert KINDS.keys() == kinds, (
        f"{sorted(KINDS.keys() ^ kinds)}: KINDS in tests/graphs/single.py says how one is drawn"
    )


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("kind", KINDS)
def test_c_computes_what_the_reference_does(kind: str, tmp_path: Path) -> None:
    """int8 bit by bit, float to 1e-5 of the largest result."""
    graphs = covering(kind, len(by_day(range(MAX_GRAPHS))))
    if kind in ("add", "mul"):  # of floats whose open bounds are infinite
        graphs += [KINDS[kind](Dice(None, np.random.default_rng(seed), "onnx", True)) for seed in range(8)]
    for graph in graphs:
        verify(graph, ops.result_shape)
        assert check_limits(ops.SPECS[kind], graph.ops[0], graph) is None, dump(graph)
    inputs = [random_inputs(graph, VECTORS, seed) + edges(graph, seed) for seed, graph in enumerate(graphs)]
    results = run_on_host(graphs, inputs, tmp_path)
    for graph, vectors, rows in zip(graphs, inputs, results, strict=True):
        for vector, row in zip(vectors, rows, strict=True):
            compare(graph, vector, row)


def compare(graph: Graph, vector: list[np.ndarray], row: list[np.ndarray], reordered: bool = False) -> None:
    """`reordered`: sums may have been added up in another order, so floats are as near as the largest on the way."""
    expected = ops.run(graph, *vector)
    largest = max((float(abs(v).max()) for v in expected.values() if v.dtype.kind == "f" and v.size), default=0.0)
    for name, actual in zip(graph.outputs, row, strict=True):
        want = expected[name]
        if want.dtype.kind == "f":
            scale = largest if reordered else float(abs(want[np.isfinite(want)]).max(initial=0))
            np.testing.assert_allclose(actual, want, rtol=1e-5, atol=1e-5 * scale, err_msg=dump(graph))
        else:
            np.testing.assert_array_equal(actual, want, err_msg=described(graph))


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("factor", [2.0**6, 2.0**8.7, 2.0**12, 2.0**21, 2.0**33])
def test_large_sums_meet_large_factors(factor: float, tmp_path: Path) -> None:
    """ONNX rounds the exact product: what does not fit int32 is at the end of int8, not wrapped around."""
    bias = np.array([2**30, -(2**30), 2**23, -1, 0, 1], np.int32)
    weights = np.array([[1], [-1], [127], [1], [1], [-1]], np.int8)
    quant = Quant((1.0,), (0,))
    tensors = {
        "x": Tensor("x", (1, 1), "int8", quant),
        "w": Tensor("w", (6, 1), "int8", quant, weights),
        "b": Tensor("b", (6,), "int32", quant, bias),
        "y": Tensor("y", (1, 6), "int8", Quant((1 / factor,), (-3,))),
    }
    op = Op("dense", "dense", ("x", "w", "b"), ("y",), {"clamp": (None, None)})
    graph = Graph("large", (op,), tensors, ("x",), ("y",), "onnx")
    vectors = [[np.array([[value]], np.int8)] for value in (-128, -1, 0, 1, 127)]
    (rows,) = run_on_host([graph], [vectors], tmp_path)
    exact = weights.astype(object) @ np.arange(-128, 128, dtype=object).reshape(1, -1) + bias.astype(object)[:, None]
    for (vector,), row in zip(vectors, rows, strict=True):
        want = [max(-128, min(127, round(float(v) * factor) - 3)) for v in exact[:, int(vector[0, 0]) + 128]]
        assert row[0].ravel().tolist() == want


@pytest.mark.needs("gcc")
def test_sums_whose_parts_are_rounded(tmp_path: Path) -> None:
    """All pairs of int8, where ties keep the sum from being linear: operands and result are rounded one by one."""
    graphs = []
    for a, b, y in ((1.0, 0.7, 1.0), (0.3, 0.9, 0.6), (1.0, 0.3, 2.0), (0.7, 0.5, 1.4)):
        tensors = {n: Tensor(n, (1, 65536), "int8", Quant((s,), (7,))) for n, s in zip("aby", (a, b, y), strict=True)}
        op = Op("add", "sum", ("a", "b"), ("y",), {"clamp": (None, None)})
        graphs.append(Graph("sum", (op,), tensors, ("a", "b"), ("y",), Arithmetic.TFLITE))
    shapes = [elementwise.elementwise_kernel(g.ops[0], g, Form()).shape for g in graphs]
    assert all("{eb_scale_parts}" in str(s["steps"]) and not s["linear"] for s in shapes), shapes
    every = np.arange(-128, 128, dtype=np.int8)
    pairs = [np.repeat(every, 256)[None], np.tile(every, 256)[None]]
    for graph, (row,) in zip(graphs, run_on_host(graphs, [[pairs]] * len(graphs), tmp_path), strict=True):
        compare(graph, pairs, row)
