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
from edgebuild.model.verify import verify

SHAPE = (1, 2, 4, 4)
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


@pytest.mark.one_in(4)
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


def test_qonnx_is_refused_with_the_form_that_is_read(tmp_path: Path) -> None:
    """Brevitas writes Quant with scale, zero point and width as operands, in a domain of its own."""
    node = helper.make_node("Quant", ["x", "s", "z", "bits"], ["y"], domain="qonnx.custom_op.general")
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE) for n in "xy"]
    stored = [numpy_helper.from_array(np.array(v, np.float32), n) for n, v in {"s": 0.1, "z": 0, "bits": 4}.items()]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("qonnx.custom_op.general", 1)]
    graph = helper.make_graph([node], "one", values[:1], values[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), tmp_path / "model.onnx")
    with pytest.raises(EdgebuildError, match="Quant is not supported") as caught:
        compile_model(model_request(tmp_path / "model.onnx", "model", "host", {}))
    assert "export QCDQ" in str(caught.value)
