"""Operators that spread elements, as nodes that there are: ConvTranspose in three dimensions, Col2Im, MaxUnpool.

MaxUnpool puts elements where a MaxPool found its largest; these places are the second result of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

import numpy as np
import onnx

from .onnx_layers import listed, spread_size
from .onnx_node import OnnxNode
from .windows import PARTS, SPACE, Parts, gathered, sides


def transpose_convolution(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """ConvTranspose in three dimensions: the slices that a result reads stand beside the channels of two dimensions."""
    x, w = node.tensor(0), node.tensor(1)
    if len(x.shape) != 2 + SPACE or len(w.shape) != 2 + SPACE or w.data is None:
        return None
    if w.shape[0] != x.shape[1]:
        raise node.error(f"weights of shape {w.shape} for an input of {x.shape}", "weights are C x K / groups x window")
    if w.quant is not None and w.quant.axis not in (None, 1):
        raise node.error("weights are quantised along their input channels", "quantise along axis 1")
    strides, dilations = (listed(node, name, 1, SPACE) for name in ("strides", "dilations"))
    spread = [
        spread_size(node, d, x.shape[2 + d], w.shape[2 + d], strides[d], dilations[d], SPACE) for d in range(SPACE)
    ]
    parts, (pad, out), taps = Parts(node), spread[0], w.shape[2]
    table = np.add.outer(np.arange(out) + pad, -np.arange(taps) * dilations[0])  # times the stride: slices
    inside = (table % strides[0] == 0) & (table >= 0) & (table < x.shape[2] * strides[0])
    end = parts.longs(0, 0, 0, 0, 0, 0, 0, 1, 0, 0)  # a slice of zeros, for windows that reach none
    y = x.name if inside.all() else parts.op("Pad", x.name, end)
    y = parts.op("Gather", y, node.array(np.where(inside, table // strides[0], x.shape[2])), axis=2)
    y = parts.op("Transpose", y, perm=[0, 2, 1, 3, 4, 5])
    y = parts.reshape(y, -1, x.shape[1] * taps, *x.shape[3:])
    data = w.data.swapaxes(1, 2).reshape(w.shape[0] * taps, w.shape[1], *w.shape[3:])
    flat = replace(w, name=f"{w.name}@{node.outputs[0]}", shape=data.shape, data=np.ascontiguousarray(data))
    node.builder.tensors[flat.name] = flat
    own = {name: list(v)[1:] for name, v in node.attributes.items() if name in PER_SIDE}
    if "pads" in node.attributes:
        own["pads"] = [node.attributes["pads"][at] for at in (1, 2, 4, 5)]
    own |= {name: node.attributes[name] for name in ("group", "auto_pad") if name in node.attributes}
    y = parts.op("ConvTranspose", y, flat.name, *node.inputs[2:], **own)
    channels = w.shape[1] * node.attr("group", 1)
    y = parts.reshape(y, x.shape[0], out, channels, *(size for _, size in spread[1:]))
    return parts.done(parts.op("Transpose", y, perm=[0, 2, 1, 3, 4]))


PER_SIDE = ("strides", "dilations", "output_padding", "output_shape", "kernel_shape")


def _numbers(node: OnnxNode, position: int, what: str) -> list[int]:
    data = node.constant(position, what).data
    assert data is not None
    return [int(n) for n in data.ravel()]


def columns_to_image(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """Col2Im of images: a transpose convolution in which each element of a window has its own place."""
    x, (image, block) = node.tensor(0), (_numbers(node, i, "a shape") for i in (1, 2))
    if len(image) != 2 or len(block) != 2 or len(x.shape) != 3 or x.shape[1] % prod(block):
        raise node.error(f"blocks of {block} of {x.shape} for {image}", "supported: N x C * rows * columns x L, images")
    own = {name: listed(node, name, 1, 2) for name in ("strides", "dilations")}
    pads, channels = listed(node, "pads", 0, 2, 2), x.shape[1] // prod(block)
    places, more = [], []
    for d in range(2):
        room = image[d] + pads[d] + pads[d + 2] - (block[d] - 1) * own["dilations"][d] - 1
        places.append(room // own["strides"][d] + 1)
        more.append(room % own["strides"][d])
    if prod(places) != x.shape[2]:
        raise node.error(f"{x.shape[2]} blocks where {places} fit", "give as many as the image has places for")
    parts = Parts(node)
    one = np.eye(prod(block), dtype=np.float32).reshape(prod(block), 1, *block)
    weights = node.array(np.tile(one, (channels, 1, 1, 1)))
    y = parts.reshape(x.name, x.shape[0], x.shape[1], *places)
    return parts.done(parts.op("ConvTranspose", y, weights, group=channels, pads=pads, output_padding=more, **own))


def places_of_largest(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """MaxPool with its second result: of each window, where in the whole tensor the largest element lies."""
    if len(node.outputs) < 2 or not node.outputs[1]:
        return PARTS["MaxPool"](node)
    x, window = node.tensor(0), [int(n) for n in node.attr("kernel_shape", [])]
    size, (n, c) = x.shape[2:], x.shape[:2]
    if len(size) not in (1, 2) or node.attr("ceil_mode", 0):
        raise node.error(
            "Indices of a pool in three dimensions, or with ceil_mode", "1-D and 2-D windows are supported"
        )
    found, parts = sides(node, size, window), Parts(node)
    if node.outputs[0]:
        own = {k: v for k, v in node.attributes.items() if k != "storage_order"}
        parts.made.append(onnx.helper.make_node("MaxPool", node.inputs[:1], node.outputs[:1], node.name, **own))
    y = gathered(parts, x.name, found, node.array(np.array(-np.inf, np.float32)))
    count, out = len(found), [s.out for s in found]
    y = parts.op("Transpose", y, perm=[0, 1, *range(2, 2 + 2 * count, 2), *range(3, 3 + 2 * count, 2)])
    chosen = parts.op("ArgMax", parts.reshape(y, n, c, *out, prod(window)), axis=-1, keepdims=0)
    steps = [int(s) for s in np.cumprod([1, *size[:0:-1]])[::-1]]  # of a place, by dimension
    if node.attr("storage_order", 0):
        steps = [int(s) for s in np.cumprod([1, *size[:-1]])]
    first = np.zeros((n, c, *out), np.int64) + np.arange(n * c).reshape(n, c, *[1] * count) * prod(size)
    taps = np.zeros(window, np.int64)
    for d, side in enumerate(found):
        along = [1] * count
        along[d] = -1
        first += (np.arange(side.out) * side.stride - side.before).reshape(along) * steps[d]
        taps += (np.arange(side.taps) * side.dilation).reshape(along) * steps[d]
    within = parts.op("Gather", node.array(taps.ravel()), chosen, axis=0)
    total = parts.op("Add", within, node.array(first))
    parts.made.append(onnx.helper.make_node("Identity", [total], node.outputs[1:2], node.name))
    return parts.made


def unpooled(node: OnnxNode) -> list[onnx.NodeProto]:
    """MaxUnpool: zeros, and each element at the place that the second operand tells."""
    x, window = node.tensor(0), [int(n) for n in node.attr("kernel_shape", [])]
    count = len(window)
    strides, pads = listed(node, "strides", 1, count), listed(node, "pads", 0, count, 2)
    size = [(x.shape[2 + d] - 1) * strides[d] - pads[d] - pads[count + d] + window[d] for d in range(count)]
    shape = [*x.shape[:2], *size]
    if len(node.inputs) > 2 and node.inputs[2]:
        given = _numbers(node, 2, "output_shape")
        if given != shape:  # the standard counts places in `shape`, onnxruntime in the given one
            raise node.error(f"output_shape {given} where the window gives {shape}", "leave output_shape out")
    parts = Parts(node)
    zeros = node.array(np.zeros(prod(shape), np.float32))
    y = parts.op("ScatterElements", zeros, parts.reshape(node.inputs[1], -1), parts.reshape(x.name, -1), axis=0)
    return parts.done(parts.reshape(y, *shape))


SPREADS: Mapping[str, Callable[[OnnxNode], list[onnx.NodeProto] | None]] = {
    "ConvTranspose": transpose_convolution, "Col2Im": columns_to_image, "MaxPool": places_of_largest,
    "MaxUnpool": unpooled,
}  # fmt: skip
