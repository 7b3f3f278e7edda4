"""Operators on the stored numbers between QuantizeLinear and DequantizeLinear, against onnxruntime.

Brevitas writes activations and weights of fewer than eight bits so, with a Clip.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.formats import read_model
from edgebuild.model.ops import run
from edgebuild.model.passes.canonicalize import canonicalize
from edgebuild.model.verify import verify

SHAPE = (1, 2, 4, 4)
QONNX = "onnx.brevitas"
ZEROS = {"int8": 5, "uint8": 131, "uint8 from 0": 0, "int16": -7, "uint16": 33000}
NARROW = ("int8", "uint8", "uint8 from 0")  # those that onnxruntime knows in Clip and Pad
DEQUANTISED, WHOLE = "DequantizeLinear", "none"
# By name: operator, its operands behind the first, attributes, and what follows it.
CASES: dict[str, tuple[str, list[str], dict[str, Any], str]] = {
    "bounds": ("Clip", ["low", "high"], {}, DEQUANTISED),
    "upper bound": ("Clip", ["", "high"], {}, DEQUANTISED),
    "lower bound": ("Clip", ["low"], {}, DEQUANTISED),
    "bounds of an output": ("Clip", ["low", "high"], {}, WHOLE),
    "border": ("Pad", ["pads", "low"], {}, DEQUANTISED),
    "border of nothing": ("Pad", ["pads"], {}, DEQUANTISED),
    "more channels": ("Concat", ["more"], {"axis": 1}, DEQUANTISED),
    "as real numbers": ("Cast", [], {"to": TensorProto.FLOAT}, WHOLE),
    "as whole numbers": ("Cast", [], {"to": TensorProto.INT32}, WHOLE),
}
ANY = ("more channels", "as real numbers", "as whole numbers")


def model(case: str, kind: str, plain: bool = False) -> onnx.ModelProto:
    """`plain`: the input is an integer, and read both as one and dequantised."""
    operator, operands, attributes, then = CASES[case]
    zero, dtype = ZEROS[kind], np.dtype(kind.split()[0])
    constants: dict[str, Any] = {
        "s": np.array(0.03, np.float32), "z": np.array(zero, dtype), "low": np.array(zero, dtype),
        "high": np.array(zero + 15, dtype), "pads": np.array([0, 0, 1, 1, 0, 0, 1, 0]),
        "more": (zero + np.arange(16).reshape(1, 1, 4, 4)).astype(dtype),
    }  # fmt: skip
    code = helper.np_dtype_to_tensor_dtype(dtype)
    first = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"])
    nodes = [] if plain else [first]
    nodes.append(helper.make_node(operator, ["x" if plain else "q", *operands], ["r"], **attributes))
    result = attributes.get("to", code)
    if plain or then == DEQUANTISED:
        nodes.append(helper.make_node("DequantizeLinear", ["x" if plain else "r", "s", "z"], ["y"]))
        result = TensorProto.FLOAT
    else:
        nodes.append(helper.make_node("Identity", ["r"], ["y"]))
    read = {name for node in nodes for name in node.input}
    stored = [numpy_helper.from_array(c, n) for n, c in constants.items() if n in read]
    x = helper.make_tensor_value_info("x", code if plain else TensorProto.FLOAT, SHAPE)
    outputs = [helper.make_tensor_value_info("y", result, [None] * 4)]
    outputs += [helper.make_tensor_value_info("r", attributes["to"], [None] * 4)] if plain else []
    graph = helper.make_graph(nodes, "one", [x], outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(("case", "kind"), [(c, k) for c in CASES for k in ZEROS if k in NARROW or c in ANY])
def test_equals_onnxruntime(case: str, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(model(case, kind), file)
    artifacts = compile_model(model_request(file, "model", "host", {}))
    assert verify(file, load_target("host"), artifacts)["equal"]


def test_an_input_that_is_read_in_both_ways_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(model("as real numbers", "uint8", plain=True), file)
    with pytest.raises(EdgebuildError, match="'x' is read as plain uint8, too"):
        compile_model(model_request(file, "model", "host", {}))


def qonnx(bits: float, mode: str = "ROUND", **own: int) -> onnx.ModelProto:
    """Inputs of few bits, times weights of few bits that stand turned, as Brevitas writes a linear layer."""
    nodes = [
        helper.make_node("Neg", ["n"], ["x"]),
        helper.make_node("Quant", ["x", "s", "z", "bits"], ["xs"], domain=QONNX, rounding_mode=mode, **own),
        helper.make_node("Quant", ["w", "ws", "wz", "bits"], ["wq"], domain=QONNX, signed=1, narrow=1),
        helper.make_node("Transpose", ["wq"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["xs", "wt"], ["sums"]),
        helper.make_node("BipolarQuant", ["w", "ws"], ["b"], domain=QONNX),
        helper.make_node("Transpose", ["b"], ["bt"], perm=[1, 0]),
        helper.make_node("MatMul", ["xs", "bt"], ["more"]),
        helper.make_node("Add", ["more", "sums"], ["both"]),
        helper.make_node("BipolarQuant", ["both", "ws"], ["y"], domain=QONNX),
    ]
    rng = np.random.default_rng(0)
    stored = {"s": np.float32(0.25), "z": np.float32(0), "bits": np.float32(bits), "wz": np.float32(0)}
    stored |= {"w": rng.normal(size=(5, 6)).astype(np.float32), "ws": np.float32(0.5)}
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in {"n": (1, 6), "sums": (1, 5), "y": (1, 5)}.items()
    ]
    held = [numpy_helper.from_array(np.asarray(v), n) for n, v in stored.items()]
    graph = helper.make_graph(nodes, "one", values[:1], values[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6)


@pytest.mark.parametrize("signed", [0, 1])
@pytest.mark.parametrize("narrow", [0, 1])
@pytest.mark.parametrize("bits", [2, 3, 8, 12])
def test_qonnx_is_its_definition(bits: int, narrow: int, signed: int, tmp_path: Path) -> None:
    """Its files import no domain of the nodes. numpy states Quant as its documentation does."""
    onnx.save(qonnx(bits, narrow=narrow, signed=signed), tmp_path / "model.onnx")
    graph = canonicalize(read_model(tmp_path / "model.onnx"))
    x = np.float32([[-900.1, -0.375, 0.125, 0.376, 1.3, 900.1]])
    low = narrow - 2 ** (bits - 1) if signed else 0
    high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1 - narrow
    weights = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "model.onnx").graph.initializer}["w"]
    most = 2 ** (bits - 1) - 1
    want = np.clip(np.rint(x / 0.25), low, high) * 0.25 @ (np.clip(np.rint(weights / 0.5), -most, most) * 0.5).T
    more = np.clip(np.rint(x / 0.25), low, high) * 0.25 @ np.where(weights >= 0, 0.5, -0.5).T
    have = run(graph, -x)
    np.testing.assert_allclose(have[graph.outputs[0]], want, rtol=1e-6)
    np.testing.assert_array_equal(have[graph.outputs[1]], np.where(want + more >= 0, 0.5, -0.5))
    stored = {t.dtype for t in graph.tensors.values() if t.constant and t.elements == 30}
    assert stored == {"int8" if bits <= 8 else "int16"} or bits > 8


@pytest.mark.parametrize(
    ("model", "text"),
    [(qonnx(1), "16 whole bits"), (qonnx(2.5), "16 whole bits"), (qonnx(4, "FLOOR"), "rounding mode FLOOR")],
)
def test_what_qonnx_may_not_be(model: onnx.ModelProto, text: str, tmp_path: Path) -> None:
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(EdgebuildError, match=text):
        read_model(tmp_path / "model.onnx")


@pytest.mark.needs("gcc")
def test_qonnx_is_judged_by_onnxruntime(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(qonnx(3, narrow=0, signed=1), file)
    assert verify(file, load_target("host"), compile_model(model_request(file, "model", "host", {})))["equal"]
