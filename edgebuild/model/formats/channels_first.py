"""Nodes of formats with images in N x C x H x W, converted to ops on N x H x W x C."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np

from .. import ops
from ..ir import Quant, Tensor, after_move, real_values
from .builder import Node
from .compose import Pad

TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


class ChannelsFirstNode(Node):
    def result(
        self, name: str, shape: tuple[int, ...], kind: str, inputs: Sequence[str], attrs: dict[str, Any]
    ) -> Tensor:
        first = self.builder.tensors[inputs[0]]
        dtype = attrs.get("to", "float32" if first.quant is not None and first.constant else first.dtype)
        keeps = ops.SPECS[kind].exact and not first.constant and dtype == first.dtype
        return Tensor(name, shape, dtype, first.quant if keeps else None)

    def scaled(self, name: str, factor: float) -> str:
        """Name of a constant times `factor`; a positive factor of a quantised constant is multiplied into its scale."""
        t = self.builder.tensors[name]
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

    def nhwc(self) -> str:
        """Name of the first operand, transposed from NCHW to NHWC."""
        x = self.tensor(0)
        size, perm = self.image_size(), TO_NHWC if len(x.shape) == 4 else (0, 2, 1)
        origin, shape = after_move(x, "transpose", perm), tuple(x.shape[p] for p in perm)
        turned = Tensor(f"{self.outputs[0]}@in", shape, x.dtype, x.quant, origin=origin)
        self._add("transpose", [x.name], turned, {"perm": perm})
        return self.reshaped(turned.name, (x.shape[0], *size, x.shape[1]))

    def image_size(self) -> tuple[int, int]:
        """Rows and columns of the first operand; a 1-D signal is an image of one row."""
        x = self.tensor(0)
        if len(x.shape) not in (3, 4):
            raise self.error(f"input '{x.name}' of shape {x.shape}", "N x C x H x W and N x C x L are supported")
        return (1, *x.shape[2:])[-2:]  # type: ignore[return-value]

    def as_image(self, w: Tensor) -> Tensor:
        """Constant weights, with a 1-D window reshaped to a window of height 1."""
        if len(w.shape) != 3:
            return w
        return self.builder.tensors[self.store(f"{w.name}@2d", w.array[:, :, None], w.quant)]

    def before(self, what: str) -> Self:
        """A copy of this node with a new result, for computing an intermediate tensor of this node."""
        other = copy(self)
        other.outputs = [f"{self.outputs[0]}@{what}"]
        return other

    def ungrouped(self, w: Tensor, group: int) -> Tensor:
        """Constant weights C x (K / group) x window of a ConvTranspose as K x (C / group) x window."""
        if group < 1 or w.shape[0] % group:
            raise self.error(f"group {group} of {w.shape[0]} channels", "groups must divide the channels")
        w = self.scaled_along(w, 1)
        parts = w.array.reshape(group, w.shape[0] // group, *w.shape[1:]).swapaxes(1, 2)
        data = np.ascontiguousarray(parts.reshape(-1, *parts.shape[2:]))
        quant = w.quant
        if quant is not None and quant.axis is not None:
            quant = Quant(quant.scale * group, quant.zero_point * group, 0)
        return self.builder.tensors[self.store(f"{w.name}@out", data, quant)]

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
        """Name of a constant transposed by `perm`."""
        name = f"{t.name}@{''.join(map(str, perm))}"
        quant = t.quant
        if quant is not None and quant.axis is not None:
            quant = Quant(quant.scale, quant.zero_point, list(perm).index(quant.axis))
        return self.store(name, np.ascontiguousarray(t.array.transpose(perm)), quant)

    def flat_bias(self, t: Tensor, channels: int) -> str:
        """Name of a constant bias, broadcast to a vector of `channels`."""
        if t.elements not in (1, channels):
            raise self.error(f"bias '{t.name}' of shape {t.shape} for {channels} outputs")
        data = np.ascontiguousarray(np.broadcast_to(t.array.ravel(), (channels,)))
        return self.store(f"{t.name}@flat", data, t.quant)

    real = staticmethod(real_values)


WHOLE: dict[str, Any] = {"stride": (1, 1), "dilation": (1, 1), "pad": (0, 0, 0, 0), "clamp": (None, None)}


def convolution(node: ChannelsFirstNode, w: Tensor, bias: Sequence[str], group: int, attrs: dict[str, Any]) -> None:
    """Emit a convolution with constant weights K x (C / group) x window; depthwise if each channel is a group."""
    x, w = node.nhwc(), node.as_image(node.scaled_along(w, 0))
    if w.shape[1] == 1 and group == node.tensor(0).shape[1] and group > 1:
        node.emit_nchw("depthwise_conv2d", [x, node.permuted(w, (1, 2, 3, 0)), *bias], **attrs)
    else:
        node.emit_nchw("conv2d", [x, node.permuted(w, (0, 2, 3, 1)), *bias], groups=group, **attrs)


def transpose_convolution(
    node: ChannelsFirstNode, w: Tensor, bias: Tensor | None, group: int, attrs: dict[str, Any]
) -> None:
    """Emit a transposed convolution. Constant weights are C x (K / group) x FH x FW, or without FH for 1-D signals."""
    name = node.permuted(node.as_image(node.ungrouped(w, group)), (0, 2, 3, 1))
    more = [node.flat_bias(bias, node.builder.tensors[name].shape[0])] if bias is not None else []
    node.emit_nchw("transpose_conv2d", [node.nhwc(), name, *more], groups=group, clamp=(None, None), **attrs)


def pool(node: ChannelsFirstNode, kind: str, window: tuple[int, ...], attrs: dict[str, Any], ceil: bool) -> None:
    """Emit a pool. `ceil`: round output sizes up, so the last window may reach beyond the padded image."""
    x, window = node.nhwc(), (1, *window)[-2:]
    if ceil:
        x, attrs = _with_ceil(node, x, window, attrs)
    node.emit_nchw(kind, [x], window=window, **attrs)


def _with_ceil(
    node: ChannelsFirstNode, x: str, window: tuple[int, ...], attrs: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Operand and attributes with ceil_mode's extra padding, which averages never count."""
    own, pad = attrs["pad"], _ceil_pad(node.image_size(), window, attrs)
    if attrs.get("count_include_pad", False) and pad != own:
        if any(own):  # averages count the file's own padding, so it becomes a pad op
            x = node.inner("pad", [x], pads=((0, 0), own[::2], own[1::2], (0, 0)), value=None)
        pad = tuple(whole - part for whole, part in zip(pad, own, strict=True))
        attrs = {**attrs, "count_include_pad": False}
    return x, {**attrs, "pad": pad}


def _ceil_pad(size: Sequence[int], window: Sequence[int], attrs: dict[str, Any]) -> Pad:
    """Padding with so much more at the end that rounding down gives ceil_mode's output size."""
    stride, dilation, pad = (attrs[name] for name in ("stride", "dilation", "pad"))
    out = list(pad)
    for i in range(2):
        room = size[i] + pad[i] + pad[i + 2] - (window[i] - 1) * dilation[i] - 1
        steps = -(-room // stride[i])
        if steps * stride[i] >= size[i] + pad[i]:  # the last window would start in the padding
            steps -= 1
        out[i + 2] += max(0, steps * stride[i] - room)
    return out[0], out[1], out[2], out[3]


def global_average(node: ChannelsFirstNode) -> None:
    """Emit the average of all pixels."""
    node.emit_nchw("avg_pool2d", [node.nhwc()], window=tuple(node.image_size()), **WHOLE)
