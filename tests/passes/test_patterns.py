"""Each pattern by name: what goes in, and what is left of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgebuild.model import ops
from edgebuild.model.formats import read_model
from edgebuild.model.ir import Graph, Op, Quant, Tensor, dump
from edgebuild.model.passes.canonicalize import FOLDING, canonicalize, rewrite
from tests.graphs import quantised
from tests.graphs.onnx_models import OnnxFile

SHAPE = (1, 3, 6, 8)
Bounds = tuple[float | None, float | None]


class Model(OnnxFile):
    """Layers of fixed sizes: what varies is which ones there are."""

    def __init__(self) -> None:
        super().__init__(np.random.default_rng(0))
        self.x = self.input(SHAPE)

    def conv(self, x: str, out: int = 3, bias: bool = False) -> str:
        c, h, w = self.shapes[x][1:]
        operands = [x, self.normal(out, c, 3, 3, size=0.2), *([self.normal(out)] if bias else [])]
        return self.node("Conv", operands, (1, out, h, w), pads=[1, 1, 1, 1])

    def normalise(self, x: str) -> str:
        c = self.shapes[x][1]
        positive = [self.constant(self.rng.uniform(0.5, 2, c).astype(np.float32)) for _ in range(2)]
        operands = [x, positive[0], self.normal(c), self.normal(c), positive[1]]
        return self.node("BatchNormalization", operands, self.shapes[x])

    def relu(self, x: str) -> str:
        return self.node("Relu", [x], self.shapes[x])

    def canonical(self, folder: Path, *outputs: str, int8: bool = False) -> Graph:
        model = self.model(outputs)
        onnx.save(quantised(model) if int8 else model, folder / "m.onnx")
        return canonicalize(read_model(folder / "m.onnx"))


def kinds(graph: Graph) -> Counter[str]:
    return Counter(op.kind for op in graph.ops)


def test_batch_norm_and_relu_go_into_the_convolution(tmp_path: Path) -> None:
    for bias in (False, True):
        m = Model()
        graph = m.canonical(tmp_path, m.relu(m.normalise(m.conv(m.x, bias=bias))))
        assert kinds(graph) == {"transpose": 2, "conv2d": 1}, dump(graph)
        assert next(op for op in graph.ops if op.kind == "conv2d").attrs["clamp"] == (0.0, None)


def test_ops_that_read_one_input_are_fused_in_few_sweeps(tmp_path: Path) -> None:
    m, looks = Model(), Counter[str]()
    sums = [m.node("Add", [m.x, m.relu(m.node("Add", [m.x, m.normal()], SHAPE))], SHAPE) for _ in range(40)]
    onnx.save(m.model(sums), tmp_path / "m.onnx")
    graph = read_model(tmp_path / "m.onnx")

    def counted(op: Op, _: Graph) -> None:
        looks[op.name] += 1

    graph = rewrite(graph, [counted, *FOLDING])
    assert kinds(graph) == {"add": 80} and max(looks.values()) <= 4, looks


def test_batch_norm_stays_where_another_op_reads_the_convolution(tmp_path: Path) -> None:
    m = Model()
    x = m.conv(m.x)
    graph = m.canonical(tmp_path, m.normalise(x), m.relu(x))
    assert kinds(graph)["mul"] == 1, dump(graph)


def test_pad_goes_into_the_convolution(tmp_path: Path) -> None:
    for channels in (3, 1):
        m = Model()
        x = m.relu(m.conv(m.x)) if channels == 3 else m.input((1, 1, 6, 8))
        pads = m.constant(np.array([0, 0, 1, 0, 0, 0, 0, 2], np.int64))
        graph = m.canonical(tmp_path, m.conv(m.node("Pad", [x, pads], (1, channels, 7, 10))))
        assert "pad" not in kinds(graph), dump(graph)
        assert [op for op in graph.ops if op.kind == "conv2d"][-1].attrs["pad"] == (2, 1, 1, 3)


def test_pad_of_an_input_goes_into_the_convolution(tmp_path: Path) -> None:
    m = Model()
    pads = m.constant(np.array([0, 0, 1, 0, 0, 0, 0, 2], np.int64))
    graph = m.canonical(tmp_path, m.conv(m.node("Pad", [m.x, pads], (1, 3, 7, 10))))
    assert kinds(graph) == {"transpose": 2, "conv2d": 1}, dump(graph)


def test_pad_with_another_value_or_of_channels_stays(tmp_path: Path) -> None:
    for pads, value in (([0, 0, 1, 1, 0, 0, 1, 1], 2.0), ([0, 1, 0, 0, 0, 0, 0, 0], 0.0)):
        m = Model()
        operands = [m.x, m.constant(np.array(pads, np.int64)), m.constant(np.float32(value))]
        shape = tuple(n + pads[d] + pads[d + 4] for d, n in enumerate(SHAPE))
        graph = m.canonical(tmp_path, m.conv(m.node("Pad", operands, shape)))
        assert kinds(graph)["pad"] == 1, dump(graph)


def test_no_transposes_between_convolutions(tmp_path: Path) -> None:
    """Whatever stands between that works on any layout: sums, joins, activations, pools."""
    m = Model()
    a = m.relu(m.conv(m.x))
    b = m.node("Add", [a, m.conv(a)], SHAPE)
    c = m.node("Concat", [a, b], (1, 6, 6, 8), axis=1)
    d = m.node("MaxPool", [c], (1, 6, 3, 4), kernel_shape=[2, 2], strides=[2, 2])
    graph = m.canonical(tmp_path, m.conv(d))
    ends = [op for op in graph.ops if op.kind == "transpose"]
    assert [graph.ops[0], graph.ops[-1]] == ends, dump(graph)
    assert kinds(graph) == {"transpose": 2, "conv2d": 3, "add": 1, "concat": 1, "max_pool2d": 1}


def test_flatten_goes_into_the_dense_layer(tmp_path: Path) -> None:
    m = Model()
    flat = m.node("Flatten", [m.conv(m.x)], (1, 144))
    graph = m.canonical(tmp_path, m.node("Gemm", [flat, m.normal(5, 144), m.normal(5)], (1, 5), transB=1))
    assert kinds(graph) == {"transpose": 1, "conv2d": 1, "reshape": 1, "dense": 1}, dump(graph)


def test_matmul_and_add_are_one_dense_layer(tmp_path: Path) -> None:
    m = Model()
    flat = m.node("Flatten", [m.x], (1, 144))
    product = m.node("MatMul", [flat, m.normal(144, 5)], (1, 5))
    graph = m.canonical(tmp_path, m.relu(m.node("Add", [product, m.normal(5)], (1, 5))))
    assert kinds(graph) == {"reshape": 1, "dense": 1}, dump(graph)


def test_qdq_groups_become_int8_with_an_int8_surface(tmp_path: Path) -> None:
    m = Model()
    a = m.relu(m.conv(m.x))
    b = m.conv(m.node("Add", [a, m.conv(a)], SHAPE))
    pooled = m.node("GlobalAveragePool", [b], (1, 3, 1, 1))
    flat = m.node("Flatten", [pooled], (1, 3))
    graph = m.canonical(tmp_path, m.node("Gemm", [flat, m.normal(2, 3), m.normal(2)], (1, 2), transB=1), int8=True)
    assert {t.dtype for t in graph.tensors.values() if not t.constant} == {"int8"}, dump(graph)
    assert kinds(graph).keys() <= {"transpose", "conv2d", "add", "avg_pool2d", "reshape", "dense"}, dump(graph)
    assert all(graph.tensors[n].quant is not None for n in (*graph.inputs, *graph.outputs))


def test_operands_of_a_join_get_its_scale() -> None:
    """A graph of `concat` whose operands are quantised otherwise than its result."""
    quants = [Quant((0.5,), (0,)), Quant((0.25,), (3,))]
    parts = [Tensor(f"x{i}", (1, 2, 2, 2), "int8", q) for i, q in enumerate(quants)]
    y = Tensor("y", (1, 2, 2, 4), "int8", quants[0])
    op = Op("concat", "join", ("x0", "x1"), ("y",), {"axis": 3})
    graph = Graph("m", (op,), {t.name: t for t in (*parts, y)}, ("x0", "x1"), ("y",), "onnx")
    canonical = canonicalize(graph)
    assert [op.kind for op in canonical.ops] == ["requantize", "concat"], dump(canonical)
    assert {t.quant for t in canonical.operands(canonical.ops[1])} == {quants[0]}


def test_what_no_output_needs_is_dropped(tmp_path: Path) -> None:
    m = Model()
    kept, _ = m.relu(m.x), m.conv(m.conv(m.x))
    graph = m.canonical(tmp_path, kept)
    assert kinds(graph) == {"clamp": 1}, dump(graph)
    assert graph.inputs == ("in0",)


def test_identity_at_an_output_keeps_the_output_name() -> None:
    x, y, z = (Tensor(name, (1, 4), "float32") for name in "xyz")
    ops = (
        Op("clamp", "clamp", ("x",), ("y",), {"clamp": (0.0, None)}),
        Op("reshape", "same", ("y",), ("z",), {"shape": (1, 4)}),
    )
    graph = Graph("m", ops, {t.name: t for t in (x, y, z)}, ("x",), ("z",))
    assert canonicalize(graph).outputs == ("z",)
    both = replace(graph, outputs=("y", "z"))
    assert canonicalize(both).outputs == ("y", "z")


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ((-1.0, 4.0), (0.0, 6.0), (0.0, 4.0)),
        ((0.0, 6.0), (-1.0, 4.0), (0.0, 4.0)),
        ((None, 4.0), (0.0, None), (0.0, 4.0)),
        ((None, 3.0), (None, 2.0), (None, 2.0)),
        ((-2.0, None), (-3.0, None), (-2.0, None)),
    ],
)
def test_two_clamps_leave_what_both_do(first: Bounds, second: Bounds, both: Bounds) -> None:
    assert [(op.kind, op.attrs["clamp"]) for op in clamped(first, second).ops] == [("add", both)]


@pytest.mark.parametrize(("first", "second"), [((0.0, 2.0), (3.0, 4.0)), ((3.0, 4.0), (0.0, 2.0))])
def test_clamps_with_nothing_in_common_keep_their_order(first: Bounds, second: Bounds) -> None:
    x = np.array([[-1, 0.25, 0.75, 1, 1.25, 1.75, 3, 9]], np.float32)
    np.testing.assert_array_equal(ops.run(clamped(first, second), x)["y"], np.clip(np.clip(2 * x, *first), *second))


def clamped(first: Bounds, second: Bounds) -> Graph:
    """A sum within both bounds, one after the other, as it is canonical."""
    add = Op("add", "a", ("x", "x"), ("a",), {"clamp": (None, None)})
    clamps = [Op("clamp", y, (x,), (y,), {"clamp": b}) for x, y, b in (("a", "b", first), ("b", "y", second))]
    tensors = {n: Tensor(n, (1, 8), "float32") for n in "xaby"}
    return canonicalize(Graph("m", (add, *clamps), tensors, ("x",), ("y",), "onnx"))


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize(("scale", "bias", "integer"), [(0.01, 0.25, True), (1e-14, 0.25, False), (0.01, -1e9, False)])
def test_sums_that_no_integer_holds_stay_real(dtype: str, scale: float, bias: float, integer: bool) -> None:
    """A bias in steps of the products may be beyond the integers of the sums."""
    steps, weights = Quant((0.05,), (0,)), np.random.default_rng(0).integers(-127, 128, (3, 6)).astype(np.int8)
    tensors = [Tensor("x", (1, 6), dtype, steps), Tensor("a", (1, 6), "float32"), Tensor("s", (1, 3), "float32")]
    tensors += [Tensor("w", (3, 6), "int8", Quant((scale,), (0,)), weights), Tensor("y", (1, 3), dtype, steps)]
    tensors += [Tensor("b", (3,), "float32", data=np.float32([0, bias, 0.1]))]
    rows = [("dequantize", ("x",), "a"), ("dense", ("a", "w", "b"), "s"), ("quantize", ("s",), "y")]
    steps_of = tuple(Op(k, y, inputs, (y,), {"clamp": (None, None)} if k == "dense" else {}) for k, inputs, y in rows)
    graph = Graph("far", steps_of, {t.name: t for t in tensors}, ("x",), ("y",), "onnx")
    after = canonicalize(graph)
    assert (kinds(after) == {"dense": 1}) == integer, dump(after)
    x = np.arange(-3, 3, dtype=dtype)[None] * 20
    np.testing.assert_allclose(ops.run(after, x)["y"], ops.run(graph, x)["y"], atol=1)
