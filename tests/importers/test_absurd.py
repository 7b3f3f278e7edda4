"""Sizes that no network has are refused before any work; what a file names and nothing computes is told by name."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest
from edgebuild.model import ops
from edgebuild.model.compile import compile_model
from edgebuild.model.formats import read_model
from edgebuild.model.formats.tflite.tflite_operators import READERS
from edgebuild.model.formats.tflite.tflite_reader import read_tflite
from edgebuild.model.ir import Graph, Op, Quant, Tensor
from edgebuild.model.ops import reductions, spatial
from tests.graphs.tflite_models import SAME, VALID, File

STEPS = Quant((0.1,), (3,), None)


def pool(kind: str, shape: tuple[int, ...], window: tuple[int, int], padding: int, stride: int = 1) -> bytes:
    f, options = File(), schema.Pool2DOptionsT()
    options.filterHeight, options.filterWidth = window
    options.strideH, options.strideW, options.padding = stride, stride, padding
    sides = shape[1:3] if padding == SAME else [n - k + 1 for n, k in zip(shape[1:3], window, strict=True)]
    quant = None if kind == "L2_POOL_2D" else STEPS
    dtype = "int8" if quant else "float32"
    x = f.tensor("x", shape, dtype, quant)
    y = f.tensor("y", [shape[0], *(-(-n // stride) for n in sides), shape[3]], dtype, quant)
    f.operator(kind, [x], [y], options)
    return f.pack([x], [y])


@pytest.mark.parametrize("kind", ["AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"])
@pytest.mark.parametrize(
    ("shape", "window"), [((1, 48, 48, 8), (1001, 33)), ((1, 8, 8, 1), (3, 2000)), ((1, 2000, 2000, 8), (2000, 2000))]
)
def test_windows_without_measure(kind: str, shape: tuple[int, ...], window: tuple[int, int]) -> None:
    with pytest.raises(EdgebuildError, match=rf"windows of {window[0]}x{window[1]} on {shape[1]}x{shape[2]}"):
        read_tflite(pool(kind, shape, window, SAME), "pool.tflite")


def test_padding_without_measure() -> None:
    with pytest.raises(EdgebuildError, match="makes 8x8 an image of"):
        read_tflite(pool("MAX_POOL_2D", (1, 8, 8, 1), (3, 2**31 - 1), SAME), "pool.tflite")


def test_windows_of_networks_that_run_on_small_images() -> None:
    for shape, window, padding in (((1, 1, 1, 4), (7, 7), SAME), ((1, 2, 3, 4), (9, 5), SAME),
                                   ((1, 3000, 3000, 1), (3000, 3000), VALID)):  # fmt: skip
        for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
            assert read_tflite(pool(kind, shape, window, padding), "pool.tflite").ops


def test_the_rule_for_windows_is_that_of_their_elements() -> None:
    """Against a count of the elements under every window."""
    seen = set[bool]()
    for size, taps, stride, dilation, before, after in product(
        range(1, 6), (1, 2, 3), (1, 2), (1, 2, 5), *[range(5)] * 2
    ):
        out = (size + before + after - (taps - 1) * dilation - 1) // stride + 1
        if out < 1:
            continue
        x, y = Tensor("x", (1, size, 1, 1), "float32"), Tensor("y", (1, out, 1, 1), "float32")
        attrs = {"window": (taps, 1), "stride": (stride, 1), "dilation": (dilation, 1), "pad": (before, 0, after, 0)}
        op = Op("max_pool2d", "y", ("x",), ("y",), attrs)
        graph = Graph("pool", (op,), {"x": x, "y": y}, ("x",), ("y",), "onnx")
        assert ops.result_shape(op, graph) == y.shape
        under = spatial.taps(np.ones(x.shape, bool), op, (taps, 1), (out, 1), fill=0)
        inside = bool(np.any([u for *_, u in under], axis=0).all())
        assert (reductions.windows_inside(op, graph) is None) == inside, attrs
        seen.add(inside)
    assert seen == {True, False}


ABSURD = {
    "Expand": ([2**40, 1], {}),
    "Tile": ([2**40, 1], {}),
    "OneHot": (2**40, {}),
    "Pad": ([2**40, 0, 0, 0], {"mode": "edge"}),
}


@pytest.mark.parametrize("operator", ABSURD)
def test_results_without_measure(operator: str, tmp_path: Path) -> None:
    """A table of all places would take the whole memory before the result's size is looked at."""
    size, attributes = ABSURD[operator]
    one_hot = operator == "OneHot"
    more = {"size": np.array(size)} | ({"values": np.array([0, 1], np.float32)} if one_hot else {})
    x = helper.make_tensor_value_info("x", TensorProto.INT64 if one_hot else TensorProto.FLOAT, [1, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    constants = [numpy_helper.from_array(v, n) for n, v in more.items()]
    graph = helper.make_graph([helper.make_node(operator, ["x", *more], ["y"], **attributes)], "g", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(EdgebuildError, match=r"has [0-9]{13,} bytes"):
        read_model(tmp_path / "m.onnx")


def test_a_node_for_which_the_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(node: object) -> None:
        raise MemoryError

    f = File()
    x, y = f.tensor("x", (2, 3), "float32"), f.tensor("y", (2, 3), "float32")
    f.operator("TANH", [x], [y])
    monkeypatch.setitem(READERS, "TANH", short)
    with pytest.raises(EdgebuildError, match="not enough memory") as error:
        read_tflite(f.pack([x], [y]), "m.tflite")
    assert error.value.diagnostics[0].kind == "TANH"


def test_an_operand_that_nothing_computes() -> None:
    f = File()
    x, lost = f.tensor("x", (2, 3), "float32"), f.tensor("lost", (3, 4), "float32")
    y = f.tensor("y", (2, 4), "float32")
    f.operator("BATCH_MATMUL", [x, lost], [y], schema.BatchMatMulOptionsT())
    with pytest.raises(EdgebuildError, match="reads 'lost', which nothing computes"):
        read_tflite(f.pack([x], [y]), "lost.tflite")


def test_a_tensor_that_two_operators_write() -> None:
    f = File()
    x, y = f.tensor("x", (2, 3), "float32"), f.tensor("y", (2, 3), "float32")
    for operator in ("RELU", "TANH"):
        f.operator(operator, [x], [y])
    with pytest.raises(EdgebuildError, match="tensor 'y' is written twice"):
        read_tflite(f.pack([x], [y]), "twice.tflite")


@pytest.mark.parametrize(("operator", "options"), [("ADD", schema.AddOptionsT()), ("MUL", schema.MulOptionsT())])
def test_a_result_of_a_type_that_the_operator_has_not(tmp_path: Path, operator: str, options: object) -> None:
    f = File()
    a, b = (f.tensor(name, (1, 4), "int8", STEPS) for name in "ab")
    y = f.tensor("y", (1, 4), "uint8")  # without a scale no legacy uint8, which is read as int8
    f.operator(operator, [a, b], [y], options)
    (tmp_path / "m.tflite").write_bytes(f.pack([a, b], [y]))
    with pytest.raises(EdgebuildError, match="'y' is uint8"):
        compile_model(ModelRequest(tmp_path / "m.tflite", "m", "host"))
