"""A node of an ONNX file as readers of operators see it: operands in NHWC, attributes, constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx.inliner

from .. import ops
from ..ir import Array, Quant, Tensor, after_move, real_values
from .builder import GraphBuilder, Node

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
TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
# By the type in the file: the type here, and what is subtracted of value and zero point.
SIGNED = {
    "int8": ("int8", 0),
    "uint8": ("int8", 128),
    "int16": ("int16", 0),
    "uint16": ("int16", 2**15),
    "int32": ("int32", 0),
}


class OnnxNode(Node):
    def __init__(self, builder: GraphBuilder, proto: onnx.NodeProto, opset: int) -> None:
        super().__init__(builder, proto.name or proto.output[0], proto.op_type, proto.input, proto.output)
        self.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
        self.proto, self.opset = proto, opset

    def attr(self, name: str, default: Any) -> Any:
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def result(
        self, name: str, shape: tuple[int, ...], kind: str, inputs: Sequence[str], attrs: dict[str, Any]
    ) -> Tensor:
        first = self.builder.tensors[inputs[0]]
        dtype = attrs.get("to", "float32" if first.quant is not None and first.constant else first.dtype)
        keeps = ops.SPECS[kind].exact and not first.constant and dtype == first.dtype
        return Tensor(name, shape, dtype, first.quant if keeps else None)

    def nhwc(self) -> str:
        """The first operand, transposed from NCHW."""
        x = self.tensor(0)
        size, perm = self.image_size(), self._perm(x)
        origin, shape = after_move(x, "transpose", perm), tuple(x.shape[p] for p in perm)
        turned = Tensor(f"{self.outputs[0]}@in", shape, x.dtype, x.quant, origin=origin)
        self._add("transpose", [x.name], turned, {"perm": perm})
        return self.reshaped(turned.name, (x.shape[0], *size, x.shape[1]))

    def image_size(self) -> tuple[int, int]:
        """Rows and columns of the first operand; one spatial dimension is a row of height 1."""
        x = self.tensor(0)
        if len(x.shape) not in (3, 4):
            raise self.error(f"input '{x.name}' of shape {x.shape}", "N x C x H x W and N x C x L are supported")
        return (1, *x.shape[2:])[-2:]  # type: ignore[return-value]

    def _perm(self, x: Tensor) -> tuple[int, ...]:
        return TO_NHWC if len(x.shape) == 4 else (0, 2, 1)

    def as_image(self, w: Tensor) -> Tensor:
        """Constant weights of a 1-D window as those of a window of height 1."""
        assert w.data is not None
        if len(w.shape) != 3:
            return w
        data = w.data[:, :, None]
        wide = Tensor(f"{w.name}@2d", data.shape, w.dtype, w.quant, data)
        self.builder.tensors[wide.name] = wide
        return wide

    def scaled(self, name: str, factor: float) -> str:
        """A constant times a positive or negative number: its scale takes it up if it is quantised."""
        t = self.builder.tensors[name]
        assert t.data is not None
        if factor == 1.0:
            return name
        if t.quant is not None and factor > 0:
            changed = replace(t, quant=replace(t.quant, scale=tuple(s * factor for s in t.quant.scale)))
        else:
            data = (real_values(t) * np.float32(factor)).astype(np.float32)
            changed = replace(t, dtype="float32", quant=None, data=data)
        changed = replace(changed, name=f"{name}@{self.outputs[0]}")
        self.builder.tensors[changed.name] = changed
        return changed.name

    def before(self, what: str) -> OnnxNode:
        """A node like this one whose result this one reads on."""
        made = OnnxNode(self.builder, self.proto, self.opset)
        made.inputs, made.outputs = self.inputs, [f"{self.outputs[0]}@{what}"]
        return made

    def ungrouped(self, w: Tensor, group: int) -> Tensor:
        """Constant weights C x (K / group) x window of a ConvTranspose as K x (C / group) x window."""
        assert w.data is not None
        if group < 1 or w.shape[0] % group:
            raise self.error(f"group {group} of {w.shape[0]} channels", "groups must divide the channels")
        parts = w.data.reshape(group, w.shape[0] // group, *w.shape[1:]).swapaxes(1, 2)
        data = np.ascontiguousarray(parts.reshape(-1, *parts.shape[2:]))
        quant = w.quant
        if quant is not None and quant.axis is not None:
            if quant.axis % len(w.shape) != 1:
                raise self.error("weights are quantised along their input channels", "quantise along axis 1")
            quant = Quant(quant.scale * group, quant.zero_point * group, 0)
        turned = Tensor(f"{w.name}@out", data.shape, w.dtype, quant, data)
        self.builder.tensors[turned.name] = turned
        return turned

    def emit_nchw(self, kind: str, inputs: Sequence[str], **attrs: Any) -> None:
        """Add an NHWC op and transpose its result to the node's NCHW output."""
        shape = self._shape(kind, inputs, attrs)
        inner = self.result(f"{self.outputs[0]}@nhwc", shape, kind, inputs, attrs)
        order = TO_NCHW if len(self.tensor(0).shape) == 4 else (0, 3, 2)
        final = Tensor(self.outputs[0], tuple(shape[p] for p in order), inner.dtype, inner.quant)
        if order == TO_NCHW:
            self._add(kind, inputs, replace(inner, origin=after_move(final, "transpose", TO_NHWC)), attrs)
            self._add("transpose", [inner.name], final, {"perm": TO_NCHW})
            return
        flat = replace(final, name=f"{final.name}@flat", shape=(shape[0], *shape[2:]))
        flat = replace(flat, origin=after_move(final, "transpose", (0, 2, 1)))
        self._add(kind, inputs, replace(inner, origin=after_move(flat, "reshape", shape)), attrs)
        self._add("reshape", [inner.name], flat, {"shape": flat.shape})
        self._add("transpose", [flat.name], final, {"perm": (0, 2, 1)})

    def permuted(self, t: Tensor, perm: Sequence[int]) -> str:
        """A constant with its dimensions in another order."""
        assert t.data is not None
        name = f"{t.name}@{''.join(map(str, perm))}"
        quant = t.quant
        if quant is not None and quant.axis is not None:
            quant = Quant(quant.scale, quant.zero_point, list(perm).index(quant.axis % len(perm)))
        data = np.ascontiguousarray(t.data.transpose(perm))
        self.builder.tensors[name] = Tensor(name, data.shape, t.dtype, quant, data)
        return name

    def flat_bias(self, t: Tensor, channels: int) -> str:
        """A constant bias as a vector of `channels`."""
        assert t.data is not None
        if t.elements not in (1, channels):
            raise self.error(f"bias '{t.name}' of shape {t.shape} for {channels} outputs")
        data = np.ascontiguousarray(np.broadcast_to(t.data.ravel(), (channels,)))
        name = f"{t.name}@flat"
        self.builder.tensors[name] = Tensor(name, (channels,), t.dtype, t.quant, data)
        return name

    def floats(self, name: str) -> Array:
        """An attribute that is a list of numbers; empty where it is not there."""
        return np.array(self.attr(name, []), np.float32)

    def real(self, t: Tensor) -> Array:
        """The real values of a constant, whether it is quantised or not."""
        return real_values(t)

    def stored(self, t: Tensor) -> Array:
        """The numbers of a constant without a scale, as activations are stored: those of uint8 less 128."""
        return np.asarray(t.data, np.int64) - SIGNED[t.dtype][1]

    def dtype_of(self, code: int) -> str:
        if code not in TYPES:
            raise self.error(f"type {onnx.TensorProto.DataType.Name(code)}", "use FLOAT, INT32 or INT8")
        return TYPES[code]
