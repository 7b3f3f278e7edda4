"""Networks written node by node as exporters write them: their names, their idioms, their detours."""

from __future__ import annotations

from collections.abc import Callable

import onnx
from onnxruntime.quantization import QuantType

from . import keras, tabular, torch_sequences, torch_vision
from .writer import quantised

NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    **torch_vision.NETWORKS,
    **torch_sequences.NETWORKS,
    **keras.NETWORKS,
    **tabular.NETWORKS,
}
PER_TENSOR = ("jax mlp",)  # onnxruntime 1.31's quantiser compares an array of scales with one here, and stops
FORMS = ("float", "qdq", "qdq uint8")


def made(name: str, form: str) -> onnx.ModelProto:
    """The network in one of FORMS: as it is, or quantised with int8 or uint8 activations."""
    model = NETWORKS[name]()
    if form == "float":
        return model
    activations = QuantType.QInt8 if form == "qdq" else QuantType.QUInt8
    return quantised(model, activations, per_channel=name not in PER_TENSOR)
