"""ONNX operators that are read as others, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.model import ops
from edgebuild.model.formats import read_model
from edgebuild.model.formats.onnx.onnx_operators import READERS as ONNX_READERS
from edgebuild.model.ir import Array
from tests.importers.test_onnx import onnxruntime_outputs

FLOAT, INT, UINT8, UINT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.UINT32
Case = tuple[str, tuple[int, ...], int, list[Any], dict[str, Any]]
PLACES = np.array([[0, 1], [1, -1], [0, 1]])  # one is there twice
AROUND = np.array([[0, -1, 3], [1, -4, 3], [1, 2, 0]])
NUMBERS = np.round(np.random.default_rng(2).normal(size=(3, 3)), 1).astype(np.float32)
JOINS = ("add", "mul", "max", "min")
CASES: dict[str, Case] = {
    "one hot": ("OneHot", (2, 3), INT, [4, np.array([0, 1], np.float32)], {}),
    "one hot, first axis": ("OneHot", (2, 3), INT, [5, np.array([-1.5, 2.5], np.float32)], {"axis": 0}),
    "one hot of whole numbers": ("OneHot", (4,), INT, [3, np.array([7, 9])], {"axis": -2}),
    "hard max": ("Hardmax", (2, 3, 4), FLOAT, [], {"axis": 1}),
    "above": ("Trilu", (2, 4, 5), FLOAT, [1], {"upper": 1}),
    "below": ("Trilu", (3, 3), FLOAT, [-1], {"upper": 0}),
    "below of whole numbers": ("Trilu", (4, 3), INT, [], {"upper": 0}),
    "lengths": ("LpPool", (1, 2, 6, 5), FLOAT, [], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}),
    "sizes": ("LpPool", (1, 3, 7), FLOAT, [], {"kernel_shape": [3], "p": 1}),
    "reversed": ("ReverseSequence", (2, 5, 3), FLOAT, [np.array([3, 3])], {"time_axis": 1, "batch_axis": 0}),
    "lengths, third powers": ("LpPool", (1, 2, 6, 5), FLOAT, [], {"kernel_shape": [3, 2], "p": 3}),
    "length of the image": ("GlobalLpPool", (2, 3, 6, 5), FLOAT, [], {"p": 3}),
    "lengths in space": ("LpPool", (1, 2, 4, 5, 6), FLOAT, [], {"kernel_shape": [2, 3, 2]}),
    "length of a space": ("GlobalLpPool", (1, 2, 3, 4, 5), FLOAT, [], {}),
    "reversed in part": ("ReverseSequence", (4, 3, 2), FLOAT, [np.array([1, 4, 3])], {"time_axis": 0, "batch_axis": 1}),
    "elements of rows": ("GatherElements", (3, 4), FLOAT, [np.array([[0, -1], [2, 1]])], {"axis": 1}),
    "elements of columns": ("GatherElements", (2, 3, 4), INT, [np.arange(12).reshape(1, 3, 4) % 2], {"axis": 0}),
    "rows": ("ScatterND", (3, 4, 2), FLOAT, [PLACES, np.arange(6, dtype=np.float32).reshape(3, 2)], {}),
    "elements": ("ScatterND", (3, 4), FLOAT, [PLACES[1:], np.array([5, 6], np.float32)], {}),
    **{f"rows, {r}": ("ScatterND", (3, 4, 2), FLOAT, [PLACES, NUMBERS[:3, :2]], {"reduction": r}) for r in JOINS},
    **{f"elements, {r}": ("ScatterElements", (4, 5), FLOAT, [AROUND, NUMBERS], {"reduction": r}) for r in JOINS},
    "replaced elements": ("ScatterElements", (4, 5), FLOAT, [AROUND[:2], NUMBERS[:2]], {"axis": -1}),
    "infinite": ("IsInf", (2, 5), FLOAT, [], {}),
    "infinite and negative": ("IsInf", (2, 5), FLOAT, [], {"detect_positive": 0}),
    "infinite and positive": ("IsInf", (2, 5), FLOAT, [], {"detect_negative": 0}),
    "nothing infinite": ("IsInf", (2, 5), FLOAT, [], {"detect_negative": 0, "detect_positive": 0}),
    **{
        f"{n} in five loops": (n, (3, 2, 3, 4, 5), FLOAT, [NUMBERS[:2, :2].reshape(2, 1, 2, 1).repeat(2, 2)], {})
        for n in ("Add", "Mul")
    },
    "shifted": ("BitShift", (2, 5), UINT8, [np.arange(5, dtype=np.uint8) * 2], {"direction": "LEFT"}),
    "shifted right": ("BitShift", (2, 5), UINT32, [np.arange(5, dtype=np.uint32) * 7], {"direction": "RIGHT"}),
}


def model(case: Case) -> onnx.ModelProto:
    operator, shape, dtype, constants, attributes = case
    names = [f"c{i}" for i in range(len(constants))]
    node = helper.make_node(operator, ["x", *names], ["y"], "node", **attributes)
    stored = [numpy_helper.from_array(np.asarray(c), n) for n, c in zip(names, constants, strict=True)]
    x, y = helper.make_tensor_value_info("x", dtype, shape), onnx.ValueInfoProto(name="y")
    graph = helper.make_graph([node], "one", [x], [y], stored)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)


def values(case: Case, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if case[2] == INT:
        return rng.integers(-3, 3, case[1])
    if case[2] == UINT8:
        return rng.integers(0, 256, case[1]).astype(np.uint8)
    if case[2] == UINT32:
        return rng.integers(0, 2**32, case[1]).astype(np.uint32)
    if case[0] == "IsInf":
        return rng.choice([-np.inf, np.inf, np.nan, 3.4e38, -3.4e38], case[1]).astype(np.float32)
    return np.round(rng.normal(size=case[1]), 1).astype(np.float32)


@pytest.mark.parametrize("name", CASES)
def test_equals_onnxruntime(name: str, tmp_path: Path) -> None:
    proto = model(CASES[name])
    onnx.save(proto, tmp_path / "m.onnx")
    graph = read_model(tmp_path / "m.onnx")
    for seed in range(5):
        x = values(CASES[name], seed)
        want = onnxruntime_outputs(proto, [x])[0]
        have = ops.run(graph, x)[graph.outputs[0]]
        assert have.dtype == want.dtype
        np.testing.assert_allclose(have, want, rtol=2e-6)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("lengths", {"p": 0}, "p 0"),
        ("lengths", {"ceil_mode": 1}, "ceil_mode 1"),
        ("elements of rows", {"axis": 2}, "axis 2"),
    ],
)
def test_what_is_refused_says_why(name: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    operator, shape, dtype, constants, attributes = CASES[name]
    proto = model((operator, shape, dtype, constants, attributes | changes))
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match=message):
        read_model(tmp_path / "m.onnx")


def test_more_updates_than_places_are_refused(tmp_path: Path) -> None:
    onnx.save(model(("ScatterElements", (4, 5), FLOAT, [AROUND[:2], NUMBERS], {})), tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match=r"updates of shape .* for indices of shape"):
        read_model(tmp_path / "m.onnx")


def test_sequences_that_are_too_long_are_refused(tmp_path: Path) -> None:
    onnx.save(
        model(("ReverseSequence", (2, 5), FLOAT, [np.array([3, 6])], {"time_axis": 1, "batch_axis": 0})),
        tmp_path / "m.onnx",
    )
    with pytest.raises(EdgebuildError, match=r"sequences of \[3, 6\]"):
        read_model(tmp_path / "m.onnx")


@pytest.mark.parametrize("name", [n for n in CASES if CASES[n][0].startswith(("GatherE", "Scatter"))])
def test_places_that_are_computed(name: str, tmp_path: Path) -> None:
    """All operands are inputs."""
    proto = model(CASES[name])
    for stored in proto.graph.initializer:
        proto.graph.input.append(helper.make_tensor_value_info(stored.name, stored.data_type, stored.dims))
    constants = [numpy_helper.to_array(stored) for stored in proto.graph.initializer]
    del proto.graph.initializer[:]
    onnx.save(proto, tmp_path / "m.onnx")
    graph = read_model(tmp_path / "m.onnx")
    x = values(CASES[name], 1)
    want = onnxruntime_outputs(proto, [x, *constants])[0]
    np.testing.assert_array_equal(ops.run(graph, x, *constants)[graph.outputs[0]], want)


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT8"])
def test_blocked_weights_are_real_numbers(kind: str, tmp_path: Path) -> None:
    """A scale and a zero point for each two rows; the last block has one."""
    code, low = TensorProto.DataType.Value(kind), 0 if kind == "UINT4" else -8
    rng = np.random.default_rng(0)
    w, zero = (rng.integers(low, low + 16, shape) for shape in ((5, 3), (3, 3)))
    scale = rng.uniform(0.1, 1, (3, 3)).astype(np.float32)
    stored = [helper.make_tensor(n, code, v.shape, v.ravel().tolist()) for n, v in (("w", w), ("zero", zero))]
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale", "zero"], ["real"], axis=0, block_size=2),
        helper.make_node("MatMul", ["x", "real"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, FLOAT, s) for n, s in (("x", (2, 5)), ("y", (2, 3))))
    graph = helper.make_graph(nodes, "blocked", [x], [y], [*stored, numpy_helper.from_array(scale, "scale")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(proto, tmp_path / "m.onnx")
    read, fed = read_model(tmp_path / "m.onnx"), rng.normal(size=(2, 5)).astype(np.float32)
    want = onnxruntime_outputs(proto, [fed])[0]
    np.testing.assert_allclose(ops.run(read, fed)[read.outputs[0]], want, rtol=1e-5, atol=1e-5)


def test_an_omitted_result_is_refused_at_its_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ONNX_READERS, "Dropout", ONNX_READERS["Identity"])
    drop = helper.make_node("Dropout", ["x"], ["d", "m"], "drop")
    back = helper.make_node("Where", ["m", "d", "x"], ["y"], "back")
    x = helper.make_tensor_value_info("x", FLOAT, (1, 3, 8, 8))
    y = helper.make_tensor_value_info("y", FLOAT, (1, 3, 8, 8))
    m = helper.make_tensor_value_info("m", onnx.TensorProto.BOOL, (1, 3, 8, 8))
    for nodes, output in (([drop, back], y), ([drop], m)):
        graph = helper.make_graph(nodes, "one", [x], [output])
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
        onnx.save(proto, tmp_path / "model.onnx")
        with pytest.raises(EdgebuildError, match=r"'drop' \(Dropout\).*result 2, 'm', is not supported"):
            read_model(tmp_path / "model.onnx")


@pytest.mark.parametrize("ratio", [0.0, 0.5])
@pytest.mark.parametrize("training", [None, False, True])
def test_dropout_is_the_identity_where_nothing_drops(ratio: float, training: bool | None, tmp_path: Path) -> None:
    """A mask keeps all; in training only a ratio of 0 does. Constants are no exception."""
    flags = [] if training is None else [numpy_helper.from_array(np.asarray(training), "t")]
    stored = [numpy_helper.from_array(np.asarray(ratio, np.float32), "r"), *flags]
    names = ["r", "t"][: len(stored)]
    nodes = [
        helper.make_node("Dropout", ["x", *names], ["d", "m"], "one"),
        helper.make_node("Dropout", ["c", *names], ["k"], "two"),
        helper.make_node("Where", ["m", "d", "k"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, FLOAT, (2, 3)) for n in "xy")
    stored.append(numpy_helper.from_array(np.full((2, 3), 7, np.float32), "c"))
    proto = helper.make_model(helper.make_graph(nodes, "drop", [x], [y], stored), ir_version=8,
                             opset_imports=[helper.make_opsetid("", 13)])  # fmt: skip
    onnx.save(proto, tmp_path / "m.onnx")
    if training and ratio:
        with pytest.raises(EdgebuildError, match=r"'one' and 1 more \(Dropout\): error: training_mode is true"):
            read_model(tmp_path / "m.onnx")
        return
    fed = np.arange(6, dtype=np.float32).reshape(2, 3)
    read = read_model(tmp_path / "m.onnx")
    np.testing.assert_array_equal(ops.run(read, fed)[read.outputs[0]], onnxruntime_outputs(proto, [fed])[0])
    np.testing.assert_array_equal(ops.run(read, fed)[read.outputs[0]], fed)
