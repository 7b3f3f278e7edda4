"""Nodes of whole numbers that Deeploy has, against its formulas number by number, and against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.compile import compile_model, prepare
from edgebuild.model.verify import verify
from tests.importers.test_integers import Whole

Row = list[int]


def cut(a: int, b: int) -> int:
    """A quotient as C has it."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def bounded(values: Row) -> Row:
    return [min(max(v, -128), 127) for v in values]


def root_mean_square(x: Row, w: Row, shift: int) -> Row:
    root = isqrt(sum(v * v for v in x) // len(x) + 1)
    return bounded([cut(v * f, root) >> shift for v, f in zip(x, w, strict=True)])


def layer_norm(x: Row, w: Row, b: Row, shift: int) -> Row:
    mean = cut(sum(x), len(x))
    root = isqrt(sum((v - mean) ** 2 for v in x) // len(x) + 1)
    return bounded([(cut((v - mean) * f, root) + more) >> shift for v, f, more in zip(x, w, b, strict=True)])


def softmax(x: Row, a: int, b: int, c: int, step: int, levels: int) -> Row:
    terms = []
    for v in x:
        z = min((max(x) - v) // step, 31)
        terms.append((a * (v - max(x) + z * step + b) ** 2 + c) >> z)
    return [term * (levels - 1) // sum(terms) for term in terms]


def powers(x: Row, levels: int) -> Row:
    """ITAMax."""
    shifts = [(max(x) - v + 16) >> 5 for v in x]
    share = (levels - 1) * 256 // sum(256 >> s for s in shifts)
    return [share >> s for s in shifts]


def gelu(x: Row, b: int, one: int) -> Row:
    result = []
    for v in x:
        rest = min(abs(v), -b) + b
        sign = (v > 0) - (v < 0)
        result.append(v * ((one + sign * (one - rest * rest)) >> 1))
    return result


def quotient(x: Row, d: Row, delta: int, eps: int, eta: int) -> Row:
    result = []
    for v, by in zip(x, d, strict=True):
        over, under = delta * eta * v, eta * by + eps
        result.append(cut(over + (1 if over >= 0 else -1) * (under >> 1), under))
    return result


def mean(x: Row) -> Row:
    total, half = sum(x), len(x) >> 1
    return [
        (total + half) // len(x) if len(x) & (len(x) - 1) == 0 else cut(total + (half if total >= 0 else -half), len(x))
    ]


CONSTANTS = np.random.default_rng(5)
W, B = CONSTANTS.integers(-(10**6), 10**6, 24), CONSTANTS.integers(-(10**5), 10**5, 24)
EXP = {"coeffA": 1, "coeffB": 345, "coeffC": 62395, "log2": 255, "n_levels": 256}
STEEP = {"coeffA": 2, "coeffB": 86, "coeffC": 3881, "log2": 31, "n_levels": 128}
# Operator, attributes, constants behind the operand, and each row's result.
NODES: dict[str, tuple[str, dict[str, Any], list[Any], Callable[[Row], Row]]] = {
    "iRMSNorm": ("iRMSNorm", {"D": 2**14, "n_levels": 256}, [W], lambda x: root_mean_square(x, W.tolist(), 14)),
    "iLayerNorm": (
        "iLayerNorm",
        {"D": 2**14, "n_levels": 256},
        [W, B],
        lambda x: layer_norm(x, W.tolist(), B.tolist(), 14),
    ),
    "iSoftmax": ("iSoftmax", EXP, [], lambda x: softmax(x, *EXP.values())),
    "iSoftmax of steep steps": ("iSoftmax", STEEP, [], lambda x: softmax(x, *STEEP.values())),
    "ITAMax": ("ITAMax", {"n_levels": 256}, [], lambda x: powers(x, 256)),
    "iGELU": ("iGELU", {"b": -49, "one": 2674}, [], lambda x: gelu(x, -49, 2674)),
    "iHardswish": (
        "iHardswish",
        {"one_over_six": 42, "six": 245, "three": 122},
        [],
        lambda x: [v * min(max(v + 122, 0), 245) * 42 for v in x],
    ),
    "iNoNorm": (
        "iNoNorm",
        {"D": 2**16, "mul": 425, "n_levels": 256},
        [W // 8000, B // 20],
        lambda x: bounded([((v * w + b) * 425) >> 16 for v, w, b in zip(x, W // 8000, B // 20, strict=True)]),
    ),
    "TrueIntegerDiv": (
        "TrueIntegerDiv",
        {"Delta": 16384, "eps": 1, "eta": 200000, "y": 2},
        [],
        lambda x: [v * (16384 * 200000 // 400001) for v in x],
    ),
    "IntegerMean": ("IntegerMean", {"axes": [-1], "keepdims": 1}, [], mean),
}


def graph_of(operator: str, attributes: dict[str, Any], constants: list[Any], width: int, signed: int) -> Whole:
    """The op on the input itself, which is uint8, or behind a requantisation."""
    net = Whole(2)
    x = net.input("x", (1, 7, width))
    if signed:
        x = net.requant(x, 0, 2.0**10, 256, signed)
        net.constants[-1].CopyFrom(onnx.numpy_helper.from_array(np.array(-20000.0, np.float32), net.constants[-1].name))
    net.op(operator, x, *(net.stored(c) for c in constants), **attributes)
    return net


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("signed", (0, 1))
@pytest.mark.parametrize("name", NODES)
def test_equal_to_formula_and_judge(name: str, signed: int, tmp_path: Path) -> None:
    operator, attributes, constants, meaning = NODES[name]
    file = tmp_path / "model.onnx"
    width = 32 if name == "IntegerMean" else 24
    net = graph_of(operator, attributes, constants, width, signed)
    net.nodes[-1].domain = "PACTOps"
    model = net.ended(net.nodes[-1].output[0])
    model.opset_import.append(helper.make_opsetid("PACTOps", 1))
    onnx.save(model, file)
    graph = prepare(file)
    assert all(graph.result(op).dtype != "float32" or "norm" in name.lower() for op in graph.ops)
    x = np.random.default_rng(1).integers(-128, 128, graph.tensors[graph.inputs[0]].shape).astype(np.int8)
    values = ops.run(graph, x)
    rows = (x.astype(int) + 128).reshape(7, width)
    if signed:
        mul, add = (int(onnx.numpy_helper.to_array(t).ravel()[0]) for t in net.constants[:2])
        rows = np.clip((rows * mul + add + 512) >> 10, -128, 127)
    want = np.array([meaning(row) for row in rows.tolist()])
    result = graph.tensors[graph.outputs[0]]
    zero = result.quant.zero_point[0] if result.quant is not None else 0
    np.testing.assert_array_equal(values[result.name].reshape(want.shape).astype(int) - zero, want)
    assert rows.std() > 20 and want.std() > 0
    judged = verify(file, load_target("host"), compile_model(model_request(file, "model", "host", {})))
    assert judged["equal"] and judged["judge"].startswith("onnxruntime"), judged


@pytest.mark.needs("gcc")
def test_quotients_of_two_operands(tmp_path: Path) -> None:
    net, file = Whole(4), tmp_path / "model.onnx"
    over = net.requant(net.input("x", (1, 3, 20)), 0, 2.0**9, 256, 1)
    under = net.requant(net.input("d", (1, 3, 20)), 0, 2.0**11, 64)
    for at, more in ((1, -50000), (3, 0)):
        net.constants[at].CopyFrom(onnx.numpy_helper.from_array(np.array(more, np.float32), net.constants[at].name))
    onnx.save(net.ended(net.op("IntegerDiv", over, under, Delta=65536, eps=1, eta=7)), file)
    graph = prepare(file)
    rng = np.random.default_rng(1)
    values = ops.run(graph, *(rng.integers(-128, 128, (1, 3, 20)).astype(np.int8) for _ in range(2)))
    stored = [graph.tensors[f"{name}@steps"] for name in (over, under)]
    x, d = ((values[t.name].ravel().astype(int) - t.quant.zero_point[0]).tolist() for t in stored if t.quant)
    assert np.std(x) > 20 and np.std(d) > 10
    np.testing.assert_array_equal(values[graph.outputs[0]].ravel(), quotient(x, d, 65536, 1, 7))
    judged = verify(file, load_target("host"), compile_model(model_request(file, "model", "host", {})))
    assert judged["equal"], judged


WRONG: dict[str, tuple[str, dict[str, Any], list[Any], str]] = {
    "no attribute": ("iSoftmax", {"n_levels": 256}, [], "attribute 'coeffA' is no whole number"),
    "no whole attribute": ("iGELU", {"b": -49, "one": 0.5}, [], "attribute 'one' is no whole number"),
    "infinite": ("iGELU", {"b": -49, "one": float("inf")}, [], "attribute 'one' is no whole number"),
    "a step of 0": ("iSoftmax", {**EXP, "log2": 0}, [], "log2 is 0"),
    "long sums": ("iSoftmax", {**EXP, "coeffC": 2**30}, [], "sums of 24 terms up to"),
    "weights": ("iRMSNorm", {"D": 4, "n_levels": 256}, [W * 0.5 + 0.25], "'const_2' is not of whole numbers"),
    "large weights": ("iRMSNorm", {"D": 4, "n_levels": 256}, [W * 1000], "supported: products in 32 bits"),
    "a divisor of 0": ("TrueIntegerDiv", {"Delta": 1, "eps": 0, "eta": 5, "y": 0}, [], "the divisor 0 * 5 + 0"),
    "axes": ("IntegerMean", {"axes": [5], "keepdims": 1}, [], "axes [5]"),
    "large curves": ("iHardswish", {"one_over_six": 2**30, "six": 9, "three": 5}, [], "supported: 32 bits"),
    "D": ("iNoNorm", {"D": 0, "mul": 4, "n_levels": 256}, [W, B], "D is 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_nodes_are_refused(name: str, tmp_path: Path) -> None:
    operator, attributes, constants, text = WRONG[name]
    net, file = graph_of(operator, attributes, constants, 24, 1), tmp_path / "model.onnx"
    onnx.save(net.ended(net.nodes[-1].output[0]), file)
    with pytest.raises(EdgebuildError) as error:
        prepare(file)
    assert text in str(error.value) and operator in str(error.value)


def test_operands_of_unknown_size_are_refused(tmp_path: Path) -> None:
    net, file = Whole(3), tmp_path / "model.onnx"
    x = net.op("Sigmoid", net.input("x", (1, 4)))
    onnx.save(net.ended(net.op("iGELU", x, b=-49, one=2674)), file)
    with pytest.raises(EdgebuildError, match="is not of whole numbers"):
        prepare(file)


def test_a_float_root_mean_square_norm(tmp_path: Path) -> None:
    """RMSNorm of Deeploy is onnxruntime's SimplifiedLayerNormalization."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 8))
    w = onnx.numpy_helper.from_array(np.linspace(0.5, 2, 8, dtype=np.float32), "w")
    node = helper.make_node("RMSNorm", ["x", "w"], ["y"], eps=1e-3)
    graph = helper.make_graph([node], "norm", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [w])
    file = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), file)
    values = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    want = values / np.sqrt((values**2).mean(axis=1, keepdims=True) + 1e-3) * np.linspace(0.5, 2, 8)
    read = prepare(file)
    np.testing.assert_allclose(ops.run(read, values)[read.outputs[0]], want, rtol=1e-5)
