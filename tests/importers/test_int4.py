"""TFLite weights of 4 bits, two a byte, and weights of real layers ("hybrid") in 4 or 8: all are kept in int8.

TFLite Micro unpacks the former at run time. It has no hybrid layers, and runs them with their weights in float32.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.compile import compile_model
from edgebuild.model.formats import read_model
from edgebuild.model.ir import Array, Quant
from edgebuild.model.passes.canonicalize import canonicalize
from edgebuild.model.verify import oracles, verify
from tests.graphs.tflite_models import VALID, File

INT4 = 17
OPTIONS: dict[str, Any] = {
    "FULLY_CONNECTED": schema.FullyConnectedOptionsT,
    "CONV_2D": schema.Conv2DOptionsT,
    "DEPTHWISE_CONV_2D": schema.DepthwiseConv2DOptionsT,
}


def packed(values: Array) -> list[int]:
    """The first of two numbers in the lower half of the byte."""
    flat = np.append(values.ravel(), [0] * (values.size % 2)).astype(np.uint8) & 15
    return [int(b) for b in flat[::2] | flat[1::2] << 4]


def layer(kind: str, seed: int, real: bool, bits: int, constant: bool = False) -> tuple[bytes, Array]:
    """A file of one layer with weights of 4 or 8 bits and int8 or real activations, and the weights.

    `constant`: the layer reads a constant, and an input "z" is added to its result.
    """
    f, rng = File(), np.random.default_rng(seed)
    rows, columns, channels, results = (int(n) for n in rng.integers(3, 6, 4))
    x_shape = (1, columns) if kind == "FULLY_CONNECTED" else (1, rows, columns, channels)
    shapes = {
        "FULLY_CONNECTED": ((results, columns), (1, results), 0),
        "CONV_2D": ((results, 3, 3, channels), (1, rows - 2, columns - 2, results), 0),
        "DEPTHWISE_CONV_2D": ((1, 3, 3, channels), (1, rows - 2, columns - 2, channels), 3),
    }
    shape, out, axis = shapes[kind]
    values = rng.integers(-7, 8, shape).astype(np.int8)
    scales = tuple(
        float(np.float32(s)) for s in rng.uniform(0.01, 0.1, 1 if kind == "FULLY_CONNECTED" else shape[axis])
    )
    quant = Quant(scales, (0,) * len(scales), axis if len(scales) > 1 else None)
    dtype = "float32" if real else "int8"
    stored = rng.integers(-9, 9, x_shape).astype(dtype) if constant else None
    x = f.tensor("x", x_shape, dtype, None if real else Quant((0.05,), (3,)), stored)
    w = f.tensor("w", shape, "int8", quant, values)
    if bits == 4:
        f.tensors[w].type, f.buffers[f.tensors[w].buffer].data = INT4, packed(values)
    result = None if real else Quant((0.04,), (-5,))
    y = f.tensor("y", out, dtype, result)
    options = OPTIONS[kind]()
    if kind != "FULLY_CONNECTED":
        options.padding, options.strideH, options.strideW = VALID, 1, 1
        options.dilationHFactor = options.dilationWFactor = 1
    if kind == "DEPTHWISE_CONV_2D":
        options.depthMultiplier = 1
    own = Quant(tuple(float(np.float32(0.05 * s)) for s in scales), (0,) * len(scales), 0 if len(scales) > 1 else None)
    numbers = rng.integers(-99, 100, out[-1]).astype(np.float32 if real else np.int32)
    bias = f.tensor("b", (out[-1],), numbers.dtype.name, None if real else own, numbers)
    f.operator(kind, [x, w, bias], [y], options)
    if constant:
        z, total = (f.tensor(name, out, dtype, result) for name in ("z", "total"))
        f.operator("ADD", [z, y], [total], schema.AddOptionsT())
        return bytes(f.pack([z], [total])), values
    return bytes(f.pack([x], [y])), values


@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("kind", OPTIONS)
def test_a_layer_of_a_constant_is_one(kind: str, real: bool, tmp_path: Path) -> None:
    """As the first step of a GRU, whose state is 0: its kernel would have no operand that is computed."""
    data, _ = layer(kind, 4, real, 8, constant=True)
    (tmp_path / "model.tflite").write_bytes(data)
    graph = read_model(tmp_path / "model.tflite")
    final, x = canonicalize(graph), np.ones(graph.tensors["z"].shape, graph.tensors["z"].dtype)
    assert [op.kind for op in final.ops] == ["add"]
    np.testing.assert_allclose(*(ops.run(g, x)[g.outputs[0]] for g in (graph, final)), rtol=1e-5)


@pytest.mark.parametrize("computed", ["float32", "int8"])
def test_small_weights_leave_a_loop_one_of_real_numbers(computed: str, tmp_path: Path) -> None:
    f = File()
    x, y = (f.tensor(name, (1, 2), computed) for name in "xy")
    f.tensor("w", (1, 2), "int8", Quant((0.1,), (0,)), np.zeros((1, 2), np.int8))
    f.operator("WHILE", [x], [y], schema.WhileOptionsT())
    (tmp_path / "loop.tflite").write_bytes(f.pack([x], [y]))
    assert ("a loop" in oracles._misread(tmp_path / "loop.tflite")) == (computed == "float32")


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(("seed", "real", "bits"), [(1, False, 4), (2, True, 4), (3, True, 8)])
@pytest.mark.parametrize("kind", OPTIONS)
def test_small_weights(kind: str, seed: int, real: bool, bits: int, tmp_path: Path) -> None:
    data, values = layer(kind, seed, real, bits)
    file = tmp_path / "model.tflite"
    file.write_bytes(data)
    kept = [t for t in read_model(file).tensors.values() if t.name == "w"]
    assert np.array_equal(np.asarray(kept[0].data), values)
    result = verify(file, load_target("host"), compile_model(model_request(file, "model", "host", {})))
    assert result["equal"], result
