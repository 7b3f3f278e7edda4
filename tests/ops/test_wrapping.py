"""Integers whose sums and products leave their type go on at its other end, as in onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgebuild.model import ops
from edgebuild.model.ir import Arithmetic, Graph, Op, Quant, Tensor
from edgebuild.model.ops import pointwise
from edgebuild.model.ops.functions import FUNCTIONS, WRAPPED
from tests.ops.host import run_on_host

pytestmark = pytest.mark.needs("gcc")


def extreme(dtype: str, rng: np.random.Generator) -> np.ndarray:
    ends = np.iinfo(dtype)
    edges = np.array([ends.min, ends.max, 0, 1, ends.min + 1, ends.max - 1, ends.max // 2, ends.min // 2], dtype)
    return np.concatenate([edges, rng.integers(ends.min, ends.max, 24, dtype)])


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_elements(dtype: str, tmp_path: Path) -> None:
    """Under the sanitizers, which end the program at the first undefined sum."""
    rng, graphs, inputs = np.random.default_rng(0), [], []
    for function in WRAPPED:
        names = "ab"[: FUNCTIONS[function].arity]
        tensors = {n: Tensor(n, (32, 32), dtype) for n in (*names, "y")}
        op = Op("pointwise", function, tuple(names), ("y",), pointwise.attributes(function))
        graphs.append(Graph(function, (op,), tensors, tuple(names), ("y",), "onnx"))
        inputs.append([np.meshgrid(extreme(dtype, rng), extreme(dtype, rng))[: len(names)]])
    with np.errstate(all="ignore"):
        wanted = [ops.run(graph, *rows[0])["y"] for graph, rows in zip(graphs, inputs, strict=True)]
    for graph, ((have,),), want in zip(graphs, run_on_host(graphs, inputs, tmp_path), wanted, strict=True):
        np.testing.assert_array_equal(have, want, graph.file)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_reductions(dtype: str, tmp_path: Path) -> None:
    rng, graphs = np.random.default_rng(0), []
    for kind in ("reduce_sum", "reduce_prod"):
        tensors = {"x": Tensor("x", (4, 8), dtype), "y": Tensor("y", (4,), dtype)}
        graphs.append(Graph(kind, (Op(kind, kind, ("x",), ("y",), {"axes": (1,)}),), tensors, ("x",), ("y",), "onnx"))
    x = extreme(dtype, rng).reshape(4, 8)
    for graph, ((have,),) in zip(graphs, run_on_host(graphs, [[[x]], [[x]]], tmp_path), strict=True):
        np.testing.assert_array_equal(have, ops.run(graph, x)["y"], graph.file)


@pytest.mark.parametrize("arithmetic", ["tflite", "onnx"])
def test_products_that_leave_int32_when_they_are_scaled(arithmetic: str, tmp_path: Path) -> None:
    """Factors of powers of two, which need no product: only those that keep the scaled product in int32."""
    graphs, inputs = [], []
    for dtype, zero, scale in (*(("int16", 0, s) for s in (1.0, 0.5, 0.25, 2.0**-9)), ("int8", 127, 2.0**-15)):
        tensors = {n: Tensor(n, (32, 32), dtype, Quant((0.5,), (zero,))) for n in "ab"}
        tensors["y"] = Tensor("y", (32, 32), dtype, Quant((0.25 * scale,), (0,)))
        inputs.append([[*np.meshgrid(*[extreme(dtype, np.random.default_rng(0))] * 2)]])
        op = Op("mul", "mul", ("a", "b"), ("y",), {"clamp": (None, None)})
        graphs.append(Graph("mul", (op,), tensors, ("a", "b"), ("y",), Arithmetic(arithmetic)))
    for graph, [rows], ((have,),) in zip(graphs, inputs, run_on_host(graphs, inputs, tmp_path), strict=True):
        np.testing.assert_array_equal(have, ops.run(graph, *rows)["y"])


def test_shifts_that_the_type_does_not_have(tmp_path: Path) -> None:
    """The bits of a filter bank's root are computed: TFLM's C leaves shifts of 32 and more open."""
    tensors = {"x": Tensor("x", (3,), "uint64"), "bits": Tensor("bits", (), "int32"), "y": Tensor("y", (3,), "uint32")}
    op = Op("signal_root", "root", ("x", "bits"), ("y",), {})
    graph = Graph("root", (op,), tensors, ("x", "bits"), ("y",), "tflite")
    x = np.array([0, 10**6, 2**63], np.uint64)
    vectors = [[x, np.array(bits, np.int32)] for bits in (3, 31, 32, 40, -1)]
    (rows,) = run_on_host([graph], [vectors], tmp_path)
    for vector, (have,) in zip(vectors, rows, strict=True):
        np.testing.assert_array_equal(have, ops.run(graph, *vector)["y"])
        assert not have.any() or 0 <= int(vector[1]) < 32
