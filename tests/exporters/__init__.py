"""Networks written node by node as exporters write them: their names, their idioms, their detours."""

from __future__ import annotations

from collections.abc import Callable

import onnx
from onnxruntime.quantization import QuantType

from . import (
    jax,
    keras,
    keras_more,
    machines,
    tabular,
    torch_blocks,
    torch_idioms,
    torch_mixed,
    torch_sequences,
    torch_speech,
    torch_vision,
)
from .writer import quantised

NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    **torch_vision.NETWORKS,
    **torch_sequences.NETWORKS,
    **torch_idioms.NETWORKS,
    **torch_blocks.NETWORKS,
    **torch_mixed.NETWORKS,
    **torch_speech.NETWORKS,
    **keras.NETWORKS,
    **keras_more.NETWORKS,
    **tabular.NETWORKS,
    **machines.NETWORKS,
    **jax.NETWORKS,
}
# onnxruntime 1.31's quantiser stops: it compares an array of scales with one here, or a group's scales with all biases.
PER_TENSOR = ("jax mlp", "torch style_transfer")
ACTIVATIONS = {
    "qdq": QuantType.QInt8,
    "qdq uint8": QuantType.QUInt8,
    "qdq int16": QuantType.QInt16,
    "qdq uint16": QuantType.QUInt16,
}
FORMS = ("float", *ACTIVATIONS)


def exported(name: str, form: str) -> onnx.ModelProto:
    """The network in one of FORMS: as it is, or quantised with activations of 8 or 16 bits."""
    model = NETWORKS[name]()
    if form == "float":
        return model
    return quantised(model, ACTIVATIONS[form], per_channel=name not in PER_TENSOR)
