"""TFLite weights of 4 bits, two a byte: read as int8, equal to TFLite Micro, which unpacks them at run time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.formats import read_model
from edgebuild.model.ir import Array, Quant
from edgebuild.model.verify import verify
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


def layer(kind: str, seed: int) -> tuple[bytes, Array]:
    """A file of one layer with weights of 4 bits, and the weights."""
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
    x = f.tensor("x", x_shape, "int8", Quant((0.05,), (3,)))
    w = f.tensor("w", shape, "int8", quant, values)
    f.tensors[w].type, f.buffers[f.tensors[w].buffer].data = INT4, packed(values)
    y = f.tensor("y", out, "int8", Quant((0.04,), (-5,)))
    options = OPTIONS[kind]()
    if kind != "FULLY_CONNECTED":
        options.padding, options.strideH, options.strideW = VALID, 1, 1
        options.dilationHFactor = options.dilationWFactor = 1
    if kind == "DEPTHWISE_CONV_2D":
        options.depthMultiplier = 1
    own = Quant(tuple(float(np.float32(0.05 * s)) for s in scales), (0,) * len(scales), 0 if len(scales) > 1 else None)
    bias = f.tensor("b", (out[-1],), "int32", own, rng.integers(-99, 100, out[-1]).astype(np.int32))
    f.operator(kind, [x, w, bias], [y], options)
    return bytes(f.pack([x], [y])), values


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("kind", OPTIONS)
def test_weights_of_4_bits(kind: str, seed: int, tmp_path: Path) -> None:
    data, values = layer(kind, seed)
    file = tmp_path / "model.tflite"
    file.write_bytes(data)
    kept = [t for t in read_model(file).tensors.values() if t.name == "w"]
    assert np.array_equal(np.asarray(kept[0].data), values)
    result = verify(file, load_target("host"), compile_model(model_request(file, "model", "host", {})))
    assert result["equal"], result
