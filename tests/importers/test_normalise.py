"""Normalisation of values far from 0: nothing is left of a variance that is the difference of two large squares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.ir import Array
from edgebuild.model.verify import verify

SHAPE, FAR = (2, 6, 4, 3), 300.0
CASES: dict[str, tuple[str, tuple[int, ...], dict[str, Any], tuple[int, ...]]] = {  # operator, scale, attributes, axes
    "layer": ("LayerNormalization", (3,), {}, (3,)),
    "layer from an axis on": ("LayerNormalization", (4, 3), {"axis": 2}, (2, 3)),
    "groups": ("GroupNormalization", (6,), {"num_groups": 3}, ()),
    "instances": ("InstanceNormalization", (6,), {}, (2, 3)),
    "mean and variance of all images": ("MeanVarianceNormalization", (), {}, (0, 2, 3)),
    "mean and variance": ("MeanVarianceNormalization", (), {"axes": [0, 2, 3]}, (0, 2, 3)),
}


def drawn(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).normal(0, 1, shape).astype(np.float32)


def exact(x: Array, name: str, scale: Array, offset: Array) -> Array:
    """The result in double precision."""
    operator, shape, attributes, axes = CASES[name]
    wide = x.astype(np.float64)
    if "num_groups" in attributes:
        wide, axes = wide.reshape(SHAPE[0], attributes["num_groups"], -1), (2,)
    rest = wide - wide.mean(axes, keepdims=True)
    y = (rest / np.sqrt(rest.var(axes, keepdims=True) + (1e-5 if shape else 0))).reshape(SHAPE)
    if operator in ("GroupNormalization", "InstanceNormalization"):
        scale, offset = (v.reshape(1, -1, 1, 1) for v in (scale, offset))
    return np.asarray(y * scale + offset if shape else y)


def save(
    file: Path, operator: str, shape: tuple[int, ...], stored: dict[str, Array], attributes: dict[str, Any]
) -> None:
    """A model of one node."""
    value, result = (helper.make_tensor_value_info(v, TensorProto.FLOAT, shape) for v in "xy")
    nodes = [helper.make_node(operator, ["x", *stored], ["y"], **attributes)]
    constants = [numpy_helper.from_array(data, key) for key, data in stored.items()]
    graph = helper.make_graph(nodes, "one", [value], [result], constants)
    opset = 21 if operator == "GroupNormalization" else 17
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), file)


def run(file: Path, x: Array) -> dict[str, Any]:
    """Report of `verify` on the model for this input."""
    artifacts = compile_model(ModelRequest(file, "model", "host"))
    return verify(file, load_target("host"), artifacts, x.reshape(1, -1))


@pytest.mark.one_in(2)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", CASES)
def test_normalisation_far_from_zero(name: str, tmp_path: Path) -> None:
    operator, shape, attributes, _ = CASES[name]
    scale, offset = drawn(*shape), drawn(*shape, 2)[..., 0]
    stored = {"scale": scale, "offset": np.ascontiguousarray(offset)} if shape else {}
    save(tmp_path / "m.onnx", operator, SHAPE, stored, attributes)
    x = drawn(*SHAPE) + np.float32(FAR)
    report = run(tmp_path / "m.onnx", x)
    wanted = exact(x, name, scale, offset).ravel()
    assert np.abs(np.array(report["output"]) - wanted).max() < 1e-3
    assert report["equal"] or operator == "GroupNormalization"  # of which onnxruntime computes the standard's body


@pytest.mark.one_in(2)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", CASES)
def test_normalisation_of_equal_values(name: str, tmp_path: Path) -> None:
    """Equal values become zeros, whatever rounding makes of their mean."""
    shape, file = (2, 6, 40, 30), tmp_path / "m.onnx"
    operator, many, attributes, _ = CASES[name]
    ones = {"layer": (30,), "layer from an axis on": (40, 30)}.get(name, many)
    stored = {"scale": np.ones(ones, np.float32), "offset": np.zeros(ones, np.float32)} if many else {}
    save(file, operator, shape, stored, attributes)
    report = run(file, np.full(shape, 2 / 3, np.float32))
    assert np.abs(np.array(report["output"])).max() < 1e-5
