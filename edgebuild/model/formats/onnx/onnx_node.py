"""A node of an ONNX file as readers of operators see it: operands in NHWC, attributes, constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.inliner

from ...ir import Array, Tensor
from ..builder import GraphBuilder
from ..channels_first import ChannelsFirstNode

TYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float32",
    11: "float32",
    16: "float32",
}
# By the type in the file: the type here, and what is subtracted of value and zero point.
SIGNED = {
    "int8": ("int8", 0),
    "uint8": ("int8", 128),
    "int16": ("int16", 0),
    "uint16": ("int16", 2**15),
    "int32": ("int32", 0),
}


class OnnxNode(ChannelsFirstNode):
    def __init__(self, builder: GraphBuilder, proto: onnx.NodeProto, opset: int) -> None:
        super().__init__(builder, proto.name or proto.output[0], proto.op_type, proto.input, proto.output)
        self.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
        self.proto, self.opset = proto, opset

    def attr(self, name: str, default: Any) -> Any:
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def floats(self, name: str) -> Array:
        """An attribute that is a list of numbers; empty where it is not there."""
        return np.array(self.attr(name, []), np.float32)

    def stored(self, t: Tensor) -> Array:
        """The numbers of a constant without a scale, as activations are stored: those of uint8 less 128."""
        return np.asarray(t.data, np.int64) - SIGNED[t.dtype][1]

    def dtype_of(self, code: int) -> str:
        if code not in TYPES:
            raise self.error(f"type {onnx.TensorProto.DataType.Name(code)}", "use FLOAT, INT32 or INT8")
        return TYPES[code]
