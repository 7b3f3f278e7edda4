"""DFT and STFT against onnxruntime: lines of any length, by matrices or by the kernel for powers of two."""

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
from tests.importers.test_onnx import onnxruntime_outputs


def model(
    kind: str, shape: tuple[int, ...], operands: list[Any], opset: int = 20, **attributes: Any
) -> onnx.ModelProto:
    names = ["" if c is None else f"c{i}" for i, c in enumerate(operands)]
    stored = [numpy_helper.from_array(c, n) for c, n in zip(operands, names, strict=True) if c is not None]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    sizes = [None] * (4 if kind == "STFT" else len(shape))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, sizes)
    node = helper.make_node(kind, ["x", *names], ["y"], "node", **attributes)
    graph = helper.make_graph([node], "one", [x], [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def long(n: int) -> Any:
    return np.array(n, np.int64)


WINDOW = np.hanning(12).astype(np.float32)
CASES = {
    "dft": model("DFT", (2, 10, 1), []),
    "dft of complex lines": model("DFT", (1, 7, 3, 2), [None, long(1)]),
    "onesided": model("DFT", (3, 9, 1), [], onesided=1),
    "power of two": model("DFT", (3, 32, 1), [], onesided=1),
    "power of two, cut": model("DFT", (1, 21, 1), [long(16)], onesided=1),
    "filled up": model("DFT", (2, 5, 1), [long(16)], onesided=1),
    "longer": model("DFT", (2, 6, 2), [long(9)]),
    "inverse": model("DFT", (2, 6, 2), [], inverse=1),
    "axis of opset 17": model("DFT", (2, 4, 5, 1), [], opset=17, axis=2),
    "inverse of half": model("DFT", (2, 8, 2), [long(15)], inverse=1, onesided=1),
    "inverse of half, even": model("DFT", (1, 3, 6, 2), [None, long(-2)], inverse=1, onesided=1),
    "inverse of half, first axis": model("DFT", (4, 3, 2), [long(7), long(0)], inverse=1, onesided=1),
    "inverse of half, power of two": model("DFT", (3, 9, 2), [], inverse=1, onesided=1, opset=17),
    "inverse of one": model("DFT", (2, 1, 2), [long(1)], inverse=1, onesided=1),
    "inverse of two": model("DFT", (2, 2, 2), [long(2)], inverse=1, onesided=1),
    "stft": model("STFT", (1, 40, 1), [long(8), WINDOW]),
    "stft of powers of two": model("STFT", (2, 50, 1), [long(6), None, long(16)]),
    "stft of both sides": model("STFT", (1, 30), [long(5), WINDOW], onesided=0),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_onnxruntime(name: str, tmp_path: Path) -> None:
    proto = CASES[name]
    onnx.save(proto, tmp_path / "m.onnx")
    graph = read_model(tmp_path / "m.onnx")
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)
    (want,) = onnxruntime_outputs(proto, [x])
    have = ops.run(graph, x)[graph.outputs[0]]
    assert have.shape == want.shape
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (model("DFT", (1, 9, 2), [], onesided=1), "one-sided DFT requires real input"),
        (model("DFT", (1, 9, 1), [], onesided=1, inverse=1), "inverse one-sided DFT requires complex input"),
        (model("DFT", (1, 9, 2), [long(15)], onesided=1, inverse=1), "9 frequencies for a length of 15"),
        (model("DFT", (1, 5000, 1), []), "a length of 5000"),
        (model("STFT", (1, 9, 1), [long(4), WINDOW]), "frames of 12 in a signal of 9"),
    ],
)
def test_what_is_refused_says_why(proto: onnx.ModelProto, message: str, tmp_path: Path) -> None:
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match=message):
        read_model(tmp_path / "m.onnx")
