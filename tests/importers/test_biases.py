"""Biases as TensorFlow's converter writes them: their scales, their types, who judges them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from tests import layer_models

LAYERS: dict[str, Callable[[], bytes]] = {
    "convolution": layer_models.conv(5, 6, 3, 4, (3, 3), kind="int16"),
    "depthwise": layer_models.depthwise(5, 6, 4, (3, 3), 1, kind="int16"),
    "transposed": layer_models.transposed(3, 4, 3, 4, 3, 2, kind="int16"),
    "dense": layer_models.dense(2, 9, 4, kind="int16"),
    "dense int8": layer_models.dense(2, 9, 4),
}


def changed(data: bytes, change: Callable[[Any, Any, Any], None]) -> bytes:
    """The file with `change(tensor, buffer, options)` done to its bias, and to the options of its operator."""
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    bias = next(t for t in model.subgraphs[0].tensors if t.name == b"b")
    change(bias, model.buffers[bias.buffer], model.subgraphs[0].operators[0].builtinOptions)
    builder = flatbuffers.Builder(len(data))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def another_scale(bias: Any, buffer: Any, options: Any) -> None:
    bias.quantization.scale = [1.3 * scale for scale in bias.quantization.scale]


def int32(bias: Any, buffer: Any, options: Any) -> None:
    bias.type = options.quantizedBiasType = schema.TensorType.INT32
    numbers = np.frombuffer(bytes(buffer.data), np.int64).astype(np.int32)
    buffer.data = np.frombuffer(numbers.tobytes(), np.uint8)


def verified(data: bytes, file: Path) -> bool:
    file.write_bytes(data)
    artifacts = compile_model(model_request(file, "model", "host", {"tile": "off"}))
    return bool(verify(file, load_target("host"), artifacts)["equal"])


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("layer", LAYERS)
def test_a_bias_with_the_scale_of_another_layer(layer: str, tmp_path: Path) -> None:
    """Of layers that share weights the converter writes one bias, with the scale of any of them. TFLite reads on."""
    assert verified(changed(LAYERS[layer](), another_scale), tmp_path / "model.tflite")


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("layer", ["convolution", "transposed", "dense"])
def test_a_bias_of_int32_beside_int16(layer: str, tmp_path: Path) -> None:
    """The converter's `_experimental_full_integer_quantization_bias_type`. TFLite Micro takes most for int64.

    LiteRT refuses it of depthwise convolutions.
    """
    pytest.importorskip("ai_edge_litert")
    assert verified(changed(LAYERS[layer](), int32), tmp_path / "model.tflite")
