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


@pytest.mark.parametrize(("scale", "ends"), [(0.03, (3, 18)), (0.03, (18, 3)), (3e37, (3, 18))])
def test_bounds_are_those_of_steps(scale: float, ends: tuple[int, int], tmp_path: Path) -> None:
    """Bounds that cross give the upper one, and float32 has no real number for those of large steps."""
    changed = model("bounds", "int8")
    for name, value in {"s": np.float32(scale), "low": np.int8(ends[0]), "high": np.int8(ends[1])}.items():
        stored = next(t for t in changed.graph.initializer if t.name == name)
        stored.CopyFrom(numpy_helper.from_array(np.asarray(value), name))
    onnx.save(changed, tmp_path / "model.onnx")
    graph = canonicalize(read_model(tmp_path / "model.onnx"))
    assert all(low is None or low <= high for low, high in (op.attrs.get("clamp", (None, None)) for op in graph.ops))
    x = np.random.default_rng(0).integers(-128, 128, graph.tensors[graph.inputs[0]].shape).astype(np.int8)
    np.testing.assert_array_equal(run(graph, x)[graph.outputs[0]], np.minimum(np.maximum(x, ends[0]), ends[1]))


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


def layers_of_few_bits(bits: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray[Any, np.dtype[np.float32]]]]:
    """Two linear layers with biases in steps. The first one's factors have both signs, and one is 0."""
    rng, most = np.random.default_rng(bits), 2 ** (bits - 1) - 1
    own = {"w": rng.normal(size=(16, 24)), "v": rng.normal(size=(9, 16)), "b": rng.normal(size=16) * 4}
    own |= {"c": rng.normal(size=9), "gamma": rng.normal(size=16) + 0.1, "beta": rng.normal(size=16) * 2}
    own |= {"mean": rng.normal(size=16), "var": rng.random(16) + 0.5, "bs": np.array(0.11), "z": np.array(0)}
    own |= {"s": np.array(0.7 / most), "ws": np.array(2.5 / most), "t": np.array(9.0 / most), "bits": np.array(bits)}
    own["gamma"][3], own["eight"] = 0.0, np.array(8)
    stored = {name: value.astype(np.float32) for name, value in own.items()}
    few: dict[str, Any] = {"domain": QONNX, "signed": 1, "narrow": 1}
    node = helper.make_node
    nodes = [
        node("Quant", ["x", "s", "z", "bits"], ["xs"], **few),
        node("Quant", ["w", "ws", "z", "bits"], ["wq"], **few),
        node("Quant", ["b", "bs", "z", "eight"], ["bq"], **few),
        node("Gemm", ["xs", "wq"], ["products"], transB=1),
        node("Add", ["products", "bq"], ["sums"]),
        node("BatchNormalization", ["sums", "gamma", "beta", "mean", "var"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("Quant", ["r", "t", "z", "bits"], ["a"], domain=QONNX, signed=0),
        node("Quant", ["v", "ws", "z", "bits"], ["vq"], **few),
        node("Transpose", ["vq"], ["vt"], perm=[1, 0]),
        node("Quant", ["c", "bs", "z", "eight"], ["cq"], **few),
        node("Gemm", ["a", "vt", "cq"], ["others"]),
        node("Quant", ["others", "t", "z", "bits"], ["y"], **few),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in {"x": (1, 24), "y": (1, 9)}.items()]
    held = [numpy_helper.from_array(v, n) for n, v in stored.items()]
    graph = helper.make_graph(nodes, "layers", values[:1], values[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), stored


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_a_layer_of_few_bits_is_one_op(bits: int, tmp_path: Path) -> None:
    """Each layer on its own operands, in float64: right but for a bias that is rounded to a step of the weights."""
    model, own = layers_of_few_bits(bits)
    onnx.save(model, tmp_path / "model.onnx")
    graph = canonicalize(read_model(tmp_path / "model.onnx"))
    assert [op.kind for op in graph.ops] == ["clamp", "dense", "dense"]
    assert all(t.dtype == "int8" for op in graph.ops for t in (*graph.operands(op)[:2], graph.result(op)))
    real, most, rng = {n: v.astype(np.float64) for n, v in own.items()}, 2 ** (bits - 1) - 1, np.random.default_rng(0)

    def steps(name: str, scale: str, high: int) -> Any:
        return np.clip(np.rint(own[name] / own[scale]), -high, high) * real[scale]

    x = rng.integers(-most, most + 1, (99, 24)).astype(np.int8)
    rows = [run(graph, row[None]) for row in x]
    hidden, last = (np.concatenate([values[name] for values in rows]).astype(int) for name in ("a@steps", "y"))
    sums = x * real["s"] @ steps("w", "ws", most).T + steps("b", "bs", 127)
    others = hidden * real["t"] @ steps("v", "ws", most).T + steps("c", "bs", 127)
    factor = real["gamma"] / np.sqrt(real["var"] + 1e-5)
    normalised = (sums - real["mean"]) * factor + real["beta"]
    sizes = np.where(factor == 0, np.abs(factor).max(), np.abs(factor)) * real["s"], real["t"]
    ends = (0, 2**bits - 1), (-most, most)
    for total, have, size, end in zip((normalised, others), (hidden, last), sizes, ends, strict=True):
        rounded = size * real["ws"] / 2 ** (8 - bits) / 2  # half a step of the bias
        off = np.abs(np.clip(total / real["t"], *end) - have) - rounded / real["t"]
        assert off.max() <= 0.5 + 1e-5 and np.unique(have).size > 2
