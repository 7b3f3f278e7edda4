"""Expand nodes without an op: 3-D windows, per-channel scales, slices at computed positions, Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ...ir import Array, Op
from ..compose import moving
from .onnx_layers import TYPES, OnnxNode, listed, spread_size

# Windows without an op: in three dimensions, or with computed weights.
#
# Gathering a dimension of n elements copies the elements of all windows, out x taps. If only depth is gathered, it is
# merged with the channels of a 2-D convolution. If all dimensions are gathered, a convolution is a matrix product.
# Pools run over two dimensions first and then over the third; sums, counts and extremes are the same.
#
# ConvTranspose in three dimensions, Col2Im and MaxUnpool scatter elements. MaxUnpool writes them where a MaxPool found
# its largest elements, according to the second result of MaxPool.

SPACE = 3  # dimensions of windows that ops lack


class Parts:
    """The expansion of a node. `prefix`: of names of tensors between the new nodes."""

    def __init__(self, node: OnnxNode, prefix: str = "") -> None:
        self.node, self.nodes, self.prefix = node, list[onnx.NodeProto](), prefix or f"{node.outputs[0]}@part"

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.end(f"{self.prefix}{len(self.nodes)}", kind, *inputs, **attributes)

    def end(self, output: str, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node that writes tensor `output`, and return the name."""
        self.nodes.append(helper.make_node(kind, inputs, [output], self.node.name, **attributes))
        return output

    def constant(self, data: Array) -> str:
        return self.node.array(data)

    def longs(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def reshape(self, x: str, *shape: int) -> str:
        return self.op("Reshape", x, self.longs(*shape))

    def done(self, x: str) -> list[onnx.NodeProto]:
        self.end(self.node.outputs[0], "Identity", x)
        return self.nodes


@dataclass(frozen=True)
class Side:
    """One spatial dimension of an image and its window. `before`, `after`: padding."""

    size: int
    taps: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def out(self) -> int:
        return (self.size + self.before + self.after - (self.taps - 1) * self.dilation - 1) // self.stride + 1

    @property
    def places(self) -> Any:
        """Indices [out, taps] into the padded dimension."""
        return np.add.outer(np.arange(self.out) * self.stride, np.arange(self.taps) * self.dilation)


def sides(node: OnnxNode, sizes: Sequence[int], taps: Sequence[int]) -> list[Side]:
    count = len(taps)
    listed = {
        name: [int(n) for n in node.attr(name, [default] * count * ends)]
        for name, default, ends in (("strides", 1, 1), ("dilations", 1, 1), ("pads", 0, 2))
    }
    lengths = len(sizes), *(len(v) // (2 if name == "pads" else 1) for name, v in listed.items())
    if set(lengths) != {count} or min(*listed["strides"], *listed["dilations"], *taps) < 1:
        raise node.error(f"a window of {list(taps)} with {listed} on {list(sizes)}", "give a number for each dimension")
    auto, result = node.attr("auto_pad", "NOTSET"), list[Side]()
    for at, (size, k) in enumerate(zip(sizes, taps, strict=True)):
        stride, dilation = listed["strides"][at], listed["dilations"][at]
        before, after = (listed["pads"][at], listed["pads"][at + count]) if auto == "NOTSET" else (0, 0)
        if auto.startswith("SAME"):
            total = max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
            less, more = total // 2, total - total // 2
            before, after = (less, more) if auto == "SAME_UPPER" else (more, less)
        result.append(Side(size, k, stride, dilation, before, after))
        if result[-1].out < 1:
            raise node.error(f"a window of {list(taps)} on {list(sizes)}", "it must fit into the padded input")
    return result


def gathered(parts: Parts, x: str, window: Sequence[Side], beyond: str = "") -> str:
    """N x C x ... with each of the first spatial dimensions gathered to out x taps. `beyond`: value of padding."""
    rank = len(parts.node.tensor(0).shape)
    pads = np.zeros((2, rank), int)
    for at, side in enumerate(window):
        pads[:, 2 + at] = side.before, side.after
    if pads.any():
        x = parts.op("Pad", x, parts.longs(*(int(n) for n in pads.ravel())), *([beyond] if beyond else []))
    for at, side in enumerate(window):
        x = parts.op("Gather", x, parts.node.array(side.places), axis=2 + 2 * at)
    return x


def convolution(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """Expand Conv with computed weights, or with constant ones in three dimensions; None if there is an op for it."""
    x, w = node.tensor(0), node.tensor(1)
    if len(w.shape) != len(x.shape) or len(x.shape) < 3 or (w.constant and len(x.shape) != 2 + SPACE):
        return None
    window = sides(node, x.shape[2:], node.attr("kernel_shape", w.shape[2:]))
    group, (k, c) = node.attr("group", 1), w.shape[:2]
    if group < 1 or c * group != x.shape[1] or k % group or tuple(s.taps for s in window) != w.shape[2:]:
        raise node.error(f"weights of shape {w.shape} in {group} groups for an input of {x.shape}",
                         "weights are K x C / groups x window; groups divide K")  # fmt: skip
    return _by_depth(node, window, group) if w.constant else _by_product(node, window, group)


def _by_depth(node: OnnxNode, window: Sequence[Side], group: int) -> list[onnx.NodeProto]:
    parts, x, w, (deep, *plane) = Parts(node), node.tensor(0), node.scaled_along(node.tensor(1), 0), window
    data = w.array.reshape(w.shape[0], w.shape[1] * deep.taps, *w.shape[3:])
    flat = node.store(f"{w.name}@{node.outputs[0]}", data, w.quant)
    y = parts.op("Transpose", gathered(parts, x.name, [deep]), perm=[0, 2, 1, 3, 4, 5])
    y = parts.reshape(y, -1, x.shape[1] * deep.taps, *x.shape[3:])
    pads = [s.before for s in plane] + [s.after for s in plane]
    own = {"strides": [s.stride for s in plane], "dilations": [s.dilation for s in plane], "pads": pads, "group": group}
    y = parts.op("Conv", y, flat, *node.inputs[2:], **own)
    y = parts.reshape(y, x.shape[0], deep.out, w.shape[0], *(s.out for s in plane))
    return parts.done(parts.op("Transpose", y, perm=[0, 2, 1, 3, 4]))


def _by_product(node: OnnxNode, window: Sequence[Side], group: int) -> list[onnx.NodeProto]:
    parts, (n, c, *_), w = Parts(node), node.tensor(0).shape, node.tensor(1)
    count, out, taps = len(window), [s.out for s in window], [s.taps for s in window]
    both = [size for s in window for size in (s.out, s.taps)]
    terms, k = c // group * prod(taps), w.shape[0] // group
    y = parts.reshape(gathered(parts, node.inputs[0], window), n, group, c // group, *both)
    places, windows = range(3, 3 + 2 * count, 2), range(4, 4 + 2 * count, 2)
    y = parts.reshape(parts.op("Transpose", y, perm=[1, 0, *places, 2, *windows]), group, n * prod(out), terms)
    turned = parts.op("Transpose", parts.reshape(w.name, group, k, terms), perm=[0, 2, 1])
    y = parts.reshape(parts.op("MatMul", y, turned), group, n, *out, k)
    y = parts.op("Transpose", y, perm=[1, 0, 2 + count, *range(2, 2 + count)])
    y = parts.reshape(y, n, group * k, *out)
    if node.has(2):
        y = parts.op("Add", y, parts.reshape(node.inputs[2], -1, *[1] * count))
    return parts.done(y)


def pool(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """Expand MaxPool and AveragePool in three dimensions; None for others."""
    x, window = node.tensor(0), [int(n) for n in node.attr("kernel_shape", [])]
    if len(x.shape) != 2 + SPACE or len(window) != SPACE:
        return None
    sides(node, x.shape[2:], window)
    parts, (n, c, *size) = Parts(node), x.shape

    def through(y: str, dims: Sequence[int]) -> str:
        """Pool over two dimensions, or over one with a window of 1 along columns."""

        def of(name: str, default: int, ends: int = 1) -> list[int]:
            listed = node.attr(name, [default] * SPACE * ends)
            rest = [default] * (2 - len(dims))
            return [n for end in range(ends) for n in ([listed[SPACE * end + d] for d in dims] + rest)]

        own = {"kernel_shape": [window[d] for d in dims] + [1] * (2 - len(dims)), "strides": of("strides", 1)}
        own |= {"dilations": of("dilations", 1)} if "dilations" in node.attributes else {}
        own |= {"pads": of("pads", 0, 2)} if node.attr("auto_pad", "NOTSET") == "NOTSET" else {}
        more = {name: node.attributes[name] for name in KEPT if name in node.attributes}
        return parts.op(node.origin, y, **own, **more)

    y = through(parts.reshape(x.name, n, c * size[0], *size[1:]), (1, 2))
    y = through(parts.reshape(y, n, c, size[0], -1), (0,))
    shape = onnx.shape_inference.infer_shapes(_model_of(node)).graph.output[0].type.tensor_type.shape
    return parts.done(parts.reshape(y, *(d.dim_value for d in shape.dim)))


KEPT = ("auto_pad", "ceil_mode", "count_include_pad")


def _model_of(node: OnnxNode) -> onnx.ModelProto:
    """A model of this node alone, from which the onnx package infers the result's shape."""
    x = helper.make_tensor_value_info(node.inputs[0], onnx.TensorProto.FLOAT, node.tensor(0).shape)
    y = onnx.ValueInfoProto(name=node.outputs[0])
    y.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    graph = helper.make_graph([node.proto], "alone", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.opset)])


def global_pool(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """Expand a global pool over more than two spatial dimensions; None for others."""
    x = node.tensor(0)
    if len(x.shape) < 2 + SPACE:
        return None
    parts = Parts(node)
    y = parts.op(node.origin, parts.reshape(x.name, *x.shape[:3], prod(x.shape[3:])))
    return parts.done(parts.reshape(y, *x.shape[:2], *[1] * len(x.shape[2:])))


def integer_product(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """Expand MatMulInteger with batched constant weights to one product per matrix; None for others."""
    x, w = node.tensor(0), node.tensor(1)
    if w.data is None or len(w.shape) < 3 or len(x.shape) < 2:
        return None
    zeros = node.tensor(3) if node.has(3) else None
    if zeros is not None and zeros.elements != 1:
        return None
    batch = np.broadcast_shapes(x.shape[:-2], w.shape[:-2])
    data = np.broadcast_to(w.data, (*batch, *w.shape[-2:])).reshape(-1, *w.shape[-2:])
    parts, rows = Parts(node), x.shape[-2:]
    wide = parts.op("Expand", x.name, parts.longs(*batch, *rows)) if x.shape[:-2] != batch else x.name
    flat, products = parts.reshape(wide, -1, *rows), []
    for at, matrix in enumerate(data):
        name = node.store(node.fresh(f"matrix{at}"), np.ascontiguousarray(matrix))
        one = parts.op("Slice", flat, parts.longs(at), parts.longs(at + 1), parts.longs(0))
        products.append(parts.op("MatMulInteger", one, name, *node.inputs[2:]))
    joined = parts.op("Concat", *products, axis=0) if len(products) > 1 else products[0]
    return parts.done(parts.reshape(joined, *batch, rows[0], w.shape[-1]))


def length_pool(node: OnnxNode) -> list[onnx.NodeProto]:
    """Expand LpPool and GlobalLpPool: the root of the average of powers times the number of elements."""
    window, p = list(node.attr("kernel_shape", node.tensor(0).shape[2:])), node.attr("p", 2)
    if p < 1 or node.attr("ceil_mode", 0):
        raise node.error(f"p {p}, ceil_mode {node.attr('ceil_mode', 0)}", "supported: p from 1 on, ceil_mode 0")
    parts, own = Parts(node), {k: v for k, v in node.attributes.items() if k not in ("p", "ceil_mode")}
    y = parts.op("Mul", *node.inputs * 2) if p == 2 else parts.op("Abs", *node.inputs)
    y = parts.op("Pow", y, node.array(np.array(p, np.float32))) if p > 2 else y
    y = parts.op("AveragePool", y, **{**own, "kernel_shape": window, "count_include_pad": 1})
    y = parts.op("Mul", y, node.array(np.array(prod(window), np.float32)))
    y = parts.op("Pow", y, node.array(np.array(1 / p, np.float32))) if p > 2 else y
    return parts.done(parts.op("Sqrt", y) if p == 2 else y)


def transpose_convolution(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """Expand ConvTranspose in three dimensions: depth slices of a result are merged with the channels of a 2-D one."""
    x, w = node.tensor(0), node.tensor(1)
    if len(x.shape) != 2 + SPACE or len(w.shape) != 2 + SPACE or w.data is None:
        return None
    if w.shape[0] != x.shape[1]:
        raise node.error(f"weights of shape {w.shape} for an input of {x.shape}", "weights are C x K / groups x window")
    w = node.scaled_along(w, 1)
    strides, dilations = (listed(node, name, 1, SPACE) for name in ("strides", "dilations"))
    spread = [
        spread_size(node, d, x.shape[2 + d], w.shape[2 + d], strides[d], dilations[d], SPACE) for d in range(SPACE)
    ]
    parts, (pad, out), taps = Parts(node), spread[0], w.shape[2]
    table = np.add.outer(np.arange(out) + pad, -np.arange(taps) * dilations[0])  # slice number times stride
    inside = (table % strides[0] == 0) & (table >= 0) & (table < x.shape[2] * strides[0])
    end = parts.longs(0, 0, 0, 0, 0, 0, 0, 1, 0, 0)  # appends a slice of zeros, for taps without a slice
    y = x.name if inside.all() else parts.op("Pad", x.name, end)
    y = parts.op("Gather", y, node.array(np.where(inside, table // strides[0], x.shape[2])), axis=2)
    y = parts.op("Transpose", y, perm=[0, 2, 1, 3, 4, 5])
    y = parts.reshape(y, -1, x.shape[1] * taps, *x.shape[3:])
    data = w.array.swapaxes(1, 2).reshape(w.shape[0] * taps, w.shape[1], *w.shape[3:])
    flat = node.store(f"{w.name}@{node.outputs[0]}", np.ascontiguousarray(data), w.quant)
    own = {name: list(v)[1:] for name, v in node.attributes.items() if name in PER_SIDE}
    if "pads" in node.attributes:
        own["pads"] = [node.attributes["pads"][at] for at in (1, 2, 4, 5)]
    own |= {name: node.attributes[name] for name in ("group", "auto_pad") if name in node.attributes}
    y = parts.op("ConvTranspose", y, flat, *node.inputs[2:], **own)
    channels = w.shape[1] * node.attr("group", 1)
    y = parts.reshape(y, x.shape[0], out, channels, *(size for _, size in spread[1:]))
    return parts.done(parts.op("Transpose", y, perm=[0, 2, 1, 3, 4]))


PER_SIDE = ("strides", "dilations", "output_padding", "output_shape", "kernel_shape")


def columns_to_image(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """Expand Col2Im of images to a transposed convolution whose weights put each element at its own position."""
    x, (image, block) = node.tensor(0), (node.numbers(i, "a shape") for i in (1, 2))
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
    """Expand MaxPool with its second result: the flat index of each window's largest element in the whole tensor."""
    if len(node.outputs) < 2 or not node.outputs[1]:
        return pool(node)
    x, window = node.tensor(0), [int(n) for n in node.attr("kernel_shape", [])]
    size, (n, c) = x.shape[2:], x.shape[:2]
    if len(size) not in (1, 2) or node.attr("ceil_mode", 0):
        raise node.error(
            "Indices of a pool in three dimensions, or with ceil_mode", "1-D and 2-D windows are supported"
        )
    placed, parts = sides(node, size, window), Parts(node)
    if node.outputs[0]:
        own = {k: v for k, v in node.attributes.items() if k != "storage_order"}
        parts.end(node.outputs[0], "MaxPool", node.inputs[0], **own)
    y = gathered(parts, x.name, placed, node.array(np.array(-np.inf, np.float32)))
    count, out = len(placed), [s.out for s in placed]
    y = parts.op("Transpose", y, perm=[0, 1, *range(2, 2 + 2 * count, 2), *range(3, 3 + 2 * count, 2)])
    chosen = parts.op("ArgMax", parts.reshape(y, n, c, *out, prod(window)), axis=-1, keepdims=0)
    steps = [int(s) for s in np.cumprod([1, *size[:0:-1]])[::-1]]  # strides of the flat index
    if node.attr("storage_order", 0):
        steps = [int(s) for s in np.cumprod([1, *size[:-1]])]
    first = np.zeros((n, c, *out), np.int64) + np.arange(n * c).reshape(n, c, *[1] * count) * prod(size)
    taps = np.zeros(window, np.int64)
    for d, side in enumerate(placed):
        along = [1] * count
        along[d] = -1
        first += (np.arange(side.out) * side.stride - side.before).reshape(along) * steps[d]
        taps += (np.arange(side.taps) * side.dilation).reshape(along) * steps[d]
    within = parts.op("Gather", node.array(taps.ravel()), chosen, axis=0)
    parts.end(node.outputs[1], "Identity", parts.op("Add", within, node.array(first)))
    return parts.nodes


def unpooled(node: OnnxNode) -> list[onnx.NodeProto]:
    """Expand MaxUnpool: scatter elements into zeros at the flat indices of operand 1."""
    x, window = node.tensor(0), [int(n) for n in node.attr("kernel_shape", [])]
    count = len(window)
    strides, pads = listed(node, "strides", 1, count), listed(node, "pads", 0, count, 2)
    size = [(x.shape[2 + d] - 1) * strides[d] - pads[d] - pads[count + d] + window[d] for d in range(count)]
    shape = [*x.shape[:2], *size]
    if node.has(2):
        given = node.numbers(2, "output_shape")
        if given != shape:  # the standard counts places in `shape`, onnxruntime in the given one
            raise node.error(f"output_shape {given} where the window gives {shape}", "leave output_shape out")
    parts = Parts(node)
    zeros = node.array(np.zeros(prod(shape), np.float32))
    y = parts.op("ScatterElements", zeros, parts.reshape(node.inputs[1], -1), parts.reshape(x.name, -1), axis=0)
    return parts.done(parts.reshape(y, *shape))


def eye(node: OnnxNode) -> list[onnx.NodeProto]:
    """Expand EyeLike to one of a constant, because only the operand's shape and type matter."""
    x, parts = node.tensor(0), Parts(node)
    zeros = node.array(np.zeros(x.shape, np.float32 if x.quant else x.dtype))
    return parts.done(parts.op("EyeLike", zeros, **node.attributes))


def choice(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """Expand Where to the operand that a constant condition chooses everywhere; None if it is not constant or varies.

    Nothing reads the other operand: in JAX's variance it is NaN.
    """
    condition, *operands = (node.tensor(i) for i in range(3))
    if condition.data is None or condition.data.min() != condition.data.max():
        return None
    chosen, parts = operands[not condition.data.all()], Parts(node)
    if chosen.quant is not None:
        return None
    shape = np.broadcast_shapes(condition.shape, *(t.shape for t in operands))
    return parts.done(parts.op("Expand", chosen.name, parts.longs(*shape)) if chosen.shape != shape else chosen.name)


PARTS: Mapping[str, Callable[[OnnxNode], list[onnx.NodeProto] | None]] = {
    "Conv": convolution, "MaxPool": places_of_largest, "AveragePool": pool, "GlobalAveragePool": global_pool,
    "GlobalMaxPool": global_pool, "MatMulInteger": integer_product, "LpPool": length_pool, "GlobalLpPool": length_pool,
    "ConvTranspose": transpose_convolution, "Col2Im": columns_to_image, "MaxUnpool": unpooled,
    "EyeLike": eye, "Where": choice,
}  # fmt: skip


# QuantizeLinear and DequantizeLinear of computed values with several scales are expanded to arithmetic.
#
# Kernels support one scale per tensor. With a scale per channel or block, the integers are plain numbers.


def quantised(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """Expand to saturate(round(x / scale) + zero point), halves to even; None for a single scale."""
    scales = spread(node)
    if scales is None:
        return None
    (scale, zero), parts = scales, Parts(node)
    kind = onnx.helper.np_dtype_to_tensor_dtype(zero.dtype)
    if kind not in TYPES:
        raise node.error(f"quantised type {zero.dtype}", "with a scale for each channel: integers of 8 to 32 bits")
    limits = np.iinfo(zero.dtype)
    y = parts.op("Round", parts.op("Div", node.inputs[0], node.array(scale)))
    y = parts.op("Add", y, node.array(zero.astype(np.float32)))
    y = parts.op("Clip", y, *(node.array(np.array(end, np.float32)) for end in (limits.min, limits.max)))
    return parts.done(parts.op("Cast", y, to=kind))


def dequantised(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """Expand to (x - zero point) * scale; None for a single scale."""
    scales = spread(node)
    if scales is None or node.tensor(0).quant is not None:
        return None
    (scale, zero), parts = scales, Parts(node)
    y = parts.op("Cast", node.inputs[0], to=onnx.TensorProto.FLOAT)
    y = parts.op("Sub", y, node.array(zero.astype(np.float32)))
    return parts.done(parts.op("Mul", y, node.array(scale)))


def spread(node: OnnxNode) -> tuple[Array, Array] | None:
    """Scales and zero points in shapes that broadcast to the operand's; None for a single scale."""
    x, scale = node.tensor(0), node.constant(1, "scale").array
    if scale.size == 1 and not node.attr("block_size", 0):
        return None
    zero = node.given(2, "zero point")
    if zero is None:
        zero = np.zeros(scale.shape, x.dtype if node.origin == "DequantizeLinear" else "uint8")
    rank, block = len(x.shape), node.attr("block_size", 0)
    axis = node.attr("axis", 1) + (rank if node.attr("axis", 1) < 0 else 0)
    if not 0 <= axis < rank:
        raise node.error(f"axis {node.attr('axis', 1)} of an operand of {rank} dimensions")
    wanted = tuple(-(-n // block) if d == axis else n for d, n in enumerate(x.shape)) if block else (x.shape[axis],)
    whole = x.constant or (np.isfinite(scale).all() and (scale > 0).all())
    if scale.shape != wanted or zero.shape != wanted or not whole or (block and block < 1):
        raise node.error(
            f"scales of shape {scale.shape} and zero points of {zero.shape} along axis {axis} of {x.shape}"
        )
    if block:
        cut = tuple(slice(n) for n in x.shape)
        return np.repeat(scale, block, axis)[cut].astype(np.float32), np.repeat(zero, block, axis)[cut]
    shape = [x.shape[axis] if d == axis else 1 for d in range(rank)]
    return scale.reshape(shape).astype(np.float32), zero.reshape(shape)


# Slice from a computed start to that start plus a constant becomes Gather, because its length is constant.
#
# JAX exports dynamic_slice so, PyTorch x[i : i + 3] and narrow.

MAX_ENDS = 64  # elements of a tensor of starts or ends
DEEPEST = 32  # length of the chain of nodes that computes one
REMEDY = "slice from a start to the same start plus a constant, in steps of 1"

Sums = tuple[Array, Array]  # per element: name of a computed number or "", and a constant addend


def sliced(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """Expand Slice with computed starts; None if starts and ends are constants.

    A negative start counts from the end. A start too near the end is moved so that all elements are inside: ONNX
    would return fewer elements.
    """
    if len(node.inputs) < 3 or all(node.tensor(i).data is not None for i in (1, 2)):
        return None
    x, count = node.tensor(0), node.tensor(1).elements
    axes, steps = node.numbers(3, "axes", range(count)), node.numbers(4, "steps", [1] * count)
    (roots, starts), (others, ends) = (_sums(node, node.inputs[i], 0) for i in (1, 2))
    if not count == starts.size == ends.size == len(axes) == len(steps) or not all(
        -len(x.shape) <= axis < len(x.shape) for axis in axes
    ):
        raise node.error(f"{starts.size} starts, {ends.size} ends and axes {axes} of {len(x.shape)} dimensions")
    parts, name, constant = Parts(node), x.name, list[list[int]]()
    for i, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        start, end = int(starts.flat[i]), int(ends.flat[i])
        if not roots.flat[i] and not others.flat[i]:
            constant.append([start, end, axis, step])
            continue
        if roots.flat[i] != others.flat[i] or step != 1:
            raise node.error(f"its length along axis {axis} is computed by the graph", REMEDY)
        name = _gathered(parts, name, i, axis, end - start)
    return parts.done(
        parts.op("Slice", name, *(parts.longs(*n) for n in zip(*constant, strict=True))) if constant else name
    )


def _gathered(parts: Parts, x: str, place: int, axis: int, length: int) -> str:
    """Name of `length` elements along an axis, from start number `place` of the node."""
    node, size = parts.node, parts.node.tensor(0).shape[axis]
    if not 1 <= length <= size:
        raise node.error(f"{length} elements of {size} along axis {axis}")
    zero, sizes, most = (node.array(np.array([n], np.int32)) for n in (0, size, size - length))
    at = parts.op("Slice", node.inputs[1], parts.longs(place), parts.longs(place + 1), parts.longs(0))
    at = parts.op("Cast", at, to=onnx.TensorProto.INT32)
    at = parts.op("Where", parts.op("Less", at, zero), parts.op("Add", at, sizes), at)
    at = parts.op("Min", parts.op("Max", at, zero), most)
    index = parts.op("Add", at, node.array(np.arange(length, dtype=np.int32)))
    return parts.op("Gather", x, index, axis=axis)


def _sums(node: OnnxNode, name: str, depth: int) -> Sums:
    """Elements of an integer tensor as computed number plus constant, traced through sums and moves."""
    t = node.builder.tensors[name]
    if t.data is not None:
        return np.full(t.shape, "", object), t.data.astype(np.int64)
    op = next((op for op in reversed(node.builder.ops) if name in op.outputs), None)
    if op is not None and depth < DEEPEST and t.elements <= MAX_ENDS and t.dtype in ("int32", "int64"):
        operands = [node.builder.tensors[n] for n in op.inputs]
        if op.kind in SUMS_OF_KIND and all(o.elements <= MAX_ENDS and o.dtype in ("int32", "int64") for o in operands):
            sums = SUMS_OF_KIND[op.kind](op, [_sums(node, n, depth + 1) for n in op.inputs])
            if sums is not None:
                return sums
    names = np.array([f"{name}[{i}]" for i in range(t.elements)], object)
    return names.reshape(t.shape), np.zeros(t.shape, np.int64)


def _sum(op: Op, operands: list[Sums]) -> Sums | None:
    """`Sums` of a sum with a constant operand, or of a difference with a constant second one; else None."""
    if op.attrs["function"] not in ("sum", "difference") or op.attrs["clamp"] != (None, None):
        return None
    (names, a), (others, b) = operands
    names, others = np.broadcast_arrays(names, others)
    if op.attrs["function"] == "difference":
        return None if (others != "").any() else (names, np.asarray(a - b))
    return None if ((names != "") & (others != "")).any() else (np.asarray(names + others, object), np.asarray(a + b))


def _elements(op: Op, operands: list[Sums]) -> Sums | None:
    """`Sums` of a take with constant indices."""
    shape = operands[0][0].shape
    tables = [range(n) if t is None else t for n, t in zip(shape, op.attrs["index"], strict=True)]
    if any(i < 0 for table in tables for i in table):
        return None
    places = np.ix_(*tables)
    return operands[0][0][places], operands[0][1][places]


SUMS_OF_KIND: Mapping[str, Callable[[Op, list[Sums]], Sums | None]] = {
    "reshape": lambda op, given: (given[0][0].reshape(op.attrs["shape"]), given[0][1].reshape(op.attrs["shape"])),
    "cast": lambda op, given: given[0],
    "concat": lambda op, given: (np.concatenate([a for a, _ in given], op.attrs["axis"]),
                                 np.concatenate([b for _, b in given], op.attrs["axis"])),
    "pointwise": _sum,
    "take": _elements,
}  # fmt: skip
PLACES = {"Slice": sliced}


# DFT and STFT of constant length: real lines of 2^n by an FFT kernel, others by a matrix product.
#
# The matrix has a row per number of a line, and real and imaginary part of each frequency in adjacent columns.

MAX_LINE = 2048  # longest line that is transformed by a matrix
OPEN = (None, None)


def dft(node: OnnxNode) -> None:
    x, (length,) = node.tensor(0), node.numbers(1, "dft_length", [0])
    rank, back, half = len(x.shape), bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    axis = (node.attr("axis", 1) if node.opset < 20 else node.numbers(2, "axis", [-2])[0]) % rank
    if axis == rank - 1 or x.shape[-1] not in (1, 2) or (half and back == (x.shape[-1] == 1)):
        raise node.error(f"axis {axis} of {x.shape}, inverse {back}, onesided {half}",
                         "values end in 1 or 2 parts; onesided: real ones, inverse: complex ones")  # fmt: skip
    size = x.shape[axis]
    length = length or (2 * (size - 1) if half and back else size)
    if half and back and size != length // 2 + 1:
        raise node.error(f"{size} frequencies for a length of {length}", f"{length // 2 + 1} are expected")
    order = (*(d for d in range(rank - 1) if d != axis), axis, rank - 1)
    lines = node.turned(x.name, order)
    lead = tuple(x.shape[d] for d in order[:-2])
    spectrum = _transformed(node, lines, (*lead, size, x.shape[-1]), length, back, half)
    shape = node.builder.tensors[spectrum].shape
    turned = tuple(order.index(d) for d in range(rank))
    if turned == tuple(range(rank)):
        node.emit("reshape", [spectrum], shape=shape)
    else:
        node.emit("transpose", [spectrum], perm=turned)


def stft(node: OnnxNode) -> None:
    """Read STFT: the transform of frames of a signal, each multiplied by a window."""
    x, (step,) = node.tensor(0), node.numbers(1, "frame_step", [0])
    window = np.ravel(node.real(node.constant(2, "window"))) if node.has(2) else None
    length = node.numbers(3, "frame_length", [0])[0] or (window.size if window is not None else x.shape[1])
    parts = x.shape[2] if len(x.shape) == 3 else 1
    half = bool(node.attr("onesided", 1))
    sizes = window is None or window.size == length
    if len(x.shape) not in (2, 3) or parts > 2 or (half and parts == 2) or not sizes or not step or step < 1:
        raise node.error(f"a signal of {x.shape}, frames of {length} every {step}",
                         "N x length x 1 or 2; onesided is for real ones; a window is as long as a frame")  # fmt: skip
    if not 1 <= length <= x.shape[1]:
        raise node.error(f"frames of {length} in a signal of {x.shape[1]}", "a frame is not longer than the signal")
    count = (x.shape[1] - length) // step + 1
    places = np.add.outer(np.arange(count) * step, np.arange(length)).ravel()
    signal = node.reshaped(x.name, (*x.shape[:2], parts))
    index = moving((range(x.shape[0]), tuple(int(p) for p in places), range(parts)), node.builder.tensors[signal])
    samples = node.inner("take", [signal], index=index) if any(index) else signal
    frames = node.reshaped(samples, (x.shape[0], count, length, parts))
    if window is not None:
        weights = node.array(np.float32(window).reshape(length, 1))
        frames = node.inner("mul", [frames, weights], clamp=OPEN)
    spectrum = _transformed(node, frames, (x.shape[0], count, length, parts), length, False, half)
    node.emit("reshape", [spectrum], shape=node.builder.tensors[spectrum].shape)


def _transformed(node: OnnxNode, x: str, shape: tuple[int, ...], length: int, back: bool, half: bool) -> str:
    """Transform ... x size x parts to ... x frequencies x 2, or `back` from `half` of them to ... x length x 1."""
    *lead, size, parts = shape
    if node.builder.tensors[x].dtype != "float32":
        raise node.error(f"values of {node.builder.tensors[x].dtype}", "supported: float32")
    if half and 4 <= length <= 1 << 14 and not length & (length - 1) and size <= length:
        product = node.inner("irfft" if back else "rfft", [node.reshaped(x, (*lead, size * parts))], length=length)
        return node.reshaped(product, (*lead, length, 1) if back else (*lead, length // 2 + 1, 2))
    if length > MAX_LINE or length < 1:
        hint = f"at most {MAX_LINE}, but for real lines of a power of two onesided"
        raise node.error(f"a length of {length}", hint)
    results = 1 if half and back else 2
    count = length // 2 + 1 if half else length
    matrix = _real_matrix(length) if results == 1 else _matrix(size, parts, length, back, count)
    flat = node.reshaped(x, (int(np.prod(lead)), size * parts))
    product = node.inner("dense", [flat, node.array(np.ascontiguousarray(matrix.T))], clamp=OPEN)
    return node.reshaped(product, (*lead, matrix.shape[1] // results, results))


def _matrix(size: int, parts: int, length: int, back: bool, count: int) -> Array:
    """Matrix [size * parts, count * 2] of a DFT. Rows of numbers beyond `length` are 0."""
    turns = np.outer(np.arange(size), np.arange(count)) % length * (2 * np.pi / length) * (1 if back else -1)
    cosine, sine = (f(turns) * (np.arange(size) < length)[:, None] / (length if back else 1) for f in (np.cos, np.sin))
    rows: list[Any] = [np.stack([cosine, sine], axis=-1), np.stack([-sine, cosine], axis=-1)][:parts]
    return np.stack(rows, axis=1).reshape(size * parts, count * 2).astype(np.float32)


def _real_matrix(length: int) -> Array:
    """Matrix [(length // 2 + 1) * 2, length] of an inverse real DFT."""
    matrix = _matrix(length, 2, length, True, length)[: (length // 2 + 1) * 2, ::2].reshape(-1, 2, length).copy()
    matrix[1 : (length + 1) // 2] *= 2  # all frequencies but 0 and length / 2, whose conjugates are left out
    return matrix.reshape(-1, length)


READERS = {"DFT": dft, "STFT": stft}
