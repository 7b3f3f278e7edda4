"""Windows that no op has, as nodes that there are: in three dimensions, with weights that the graph computes.

A dimension is gathered: of n elements the windows' places, out x taps of them. Gathered depth stands beside the
channels of a convolution in two dimensions. Where all dimensions are gathered, a convolution is a product of matrices.
Pools go through two dimensions first and then through the third one: sums, counts and extremes come out the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ...ir import Tensor
from .onnx_node import OnnxNode

SPACE = 3  # dimensions of a window that no op has


class Parts:
    """The nodes that a node is read as."""

    def __init__(self, node: OnnxNode) -> None:
        self.node, self.made = node, list[onnx.NodeProto]()

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{self.node.outputs[0]}@part{len(self.made)}"
        self.made.append(helper.make_node(kind, inputs, [name], self.node.name, **attributes))
        return name

    def longs(self, *values: int) -> str:
        return self.node.array(np.array(values, np.int64))

    def reshape(self, x: str, *shape: int) -> str:
        return self.op("Reshape", x, self.longs(*shape))

    def done(self, x: str) -> list[onnx.NodeProto]:
        self.made.append(helper.make_node("Identity", [x], self.node.outputs[:1], self.node.name))
        return self.made


@dataclass(frozen=True)
class Side:
    """One spatial dimension of a window."""

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
        """Out x taps: indices into the padded dimension."""
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
    auto, found = node.attr("auto_pad", "NOTSET"), list[Side]()
    for at, (size, k) in enumerate(zip(sizes, taps, strict=True)):
        stride, dilation = listed["strides"][at], listed["dilations"][at]
        before, after = (listed["pads"][at], listed["pads"][at + count]) if auto == "NOTSET" else (0, 0)
        if auto.startswith("SAME"):
            total = max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
            less, more = total // 2, total - total // 2
            before, after = (less, more) if auto == "SAME_UPPER" else (more, less)
        found.append(Side(size, k, stride, dilation, before, after))
        if found[-1].out < 1:
            raise node.error(f"a window of {list(taps)} on {list(sizes)}", "it must fit into the padded input")
    return found


def gathered(parts: Parts, x: str, found: Sequence[Side], beyond: str = "") -> str:
    """N x C x ... with out x taps in place of each of the first spatial dimensions; `beyond`: what padding has."""
    rank = len(parts.node.tensor(0).shape)
    pads = np.zeros((2, rank), int)
    for at, side in enumerate(found):
        pads[:, 2 + at] = side.before, side.after
    if pads.any():
        x = parts.op("Pad", x, parts.longs(*(int(n) for n in pads.ravel())), *([beyond] if beyond else []))
    for at, side in enumerate(found):
        x = parts.op("Gather", x, parts.node.array(side.places), axis=2 + 2 * at)
    return x


def convolution(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """Conv with computed weights, or with constant ones in three dimensions; None: there is an op for it."""
    x, w = node.tensor(0), node.tensor(1)
    if len(w.shape) != len(x.shape) or len(x.shape) < 3 or (w.constant and len(x.shape) != 2 + SPACE):
        return None
    found = sides(node, x.shape[2:], node.attr("kernel_shape", w.shape[2:]))
    group, (k, c) = node.attr("group", 1), w.shape[:2]
    if group < 1 or c * group != x.shape[1] or k % group or tuple(s.taps for s in found) != w.shape[2:]:
        raise node.error(f"weights of shape {w.shape} in {group} groups for an input of {x.shape}",
                         "weights are K x C / groups x window; groups divide K")  # fmt: skip
    return _by_depth(node, found, group) if w.constant else _by_product(node, found, group)


def _by_depth(node: OnnxNode, found: Sequence[Side], group: int) -> list[onnx.NodeProto]:
    parts, x, w, (deep, *plane) = Parts(node), node.tensor(0), node.tensor(1), found
    if w.quant is not None and w.quant.axis not in (None, 0):
        raise node.error("weights are quantised along their input channels", "quantise along axis 0")
    assert w.data is not None
    data = w.data.reshape(w.shape[0], w.shape[1] * deep.taps, *w.shape[3:])
    flat = replace(w, name=f"{w.name}@{node.outputs[0]}", shape=data.shape, data=data)
    node.builder.tensors[flat.name] = flat
    y = parts.op("Transpose", gathered(parts, x.name, [deep]), perm=[0, 2, 1, 3, 4, 5])
    y = parts.reshape(y, -1, x.shape[1] * deep.taps, *x.shape[3:])
    pads = [s.before for s in plane] + [s.after for s in plane]
    own = {"strides": [s.stride for s in plane], "dilations": [s.dilation for s in plane], "pads": pads, "group": group}
    y = parts.op("Conv", y, flat.name, *node.inputs[2:], **own)
    y = parts.reshape(y, x.shape[0], deep.out, w.shape[0], *(s.out for s in plane))
    return parts.done(parts.op("Transpose", y, perm=[0, 2, 1, 3, 4]))


def _by_product(node: OnnxNode, found: Sequence[Side], group: int) -> list[onnx.NodeProto]:
    parts, (n, c, *_), w = Parts(node), node.tensor(0).shape, node.tensor(1)
    count, out, taps = len(found), [s.out for s in found], [s.taps for s in found]
    both = [size for s in found for size in (s.out, s.taps)]
    terms, k = c // group * prod(taps), w.shape[0] // group
    y = parts.reshape(gathered(parts, node.inputs[0], found), n, group, c // group, *both)
    places, windows = range(3, 3 + 2 * count, 2), range(4, 4 + 2 * count, 2)
    y = parts.reshape(parts.op("Transpose", y, perm=[1, 0, *places, 2, *windows]), group, n * prod(out), terms)
    turned = parts.op("Transpose", parts.reshape(w.name, group, k, terms), perm=[0, 2, 1])
    y = parts.reshape(parts.op("MatMul", y, turned), group, n, *out, k)
    y = parts.op("Transpose", y, perm=[1, 0, 2 + count, *range(2, 2 + count)])
    y = parts.reshape(y, n, group * k, *out)
    if len(node.inputs) > 2 and node.inputs[2]:
        y = parts.op("Add", y, parts.reshape(node.inputs[2], -1, *[1] * count))
    return parts.done(y)


def pool(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """MaxPool and AveragePool in three dimensions."""
    x, window = node.tensor(0), [int(n) for n in node.attr("kernel_shape", [])]
    if len(x.shape) != 2 + SPACE or len(window) != SPACE:
        return None
    sides(node, x.shape[2:], window)
    parts, (n, c, *size) = Parts(node), x.shape

    def through(y: str, dims: Sequence[int]) -> str:
        """The pool in these dimensions; one alone has columns without a window beside it."""

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
    shape = onnx.shape_inference.infer_shapes(_alone(node)).graph.output[0].type.tensor_type.shape
    return parts.done(parts.reshape(y, *(d.dim_value for d in shape.dim)))


KEPT = ("auto_pad", "ceil_mode", "count_include_pad")


def _alone(node: OnnxNode) -> onnx.ModelProto:
    """A model of the node, of which the onnx package tells the shape of the result."""
    x = helper.make_tensor_value_info(node.inputs[0], onnx.TensorProto.FLOAT, node.tensor(0).shape)
    y = onnx.ValueInfoProto(name=node.outputs[0])
    y.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    graph = helper.make_graph([node.proto], "alone", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.opset)])


def global_pool(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """A pool over all of more than two dimensions."""
    x = node.tensor(0)
    if len(x.shape) < 2 + SPACE:
        return None
    parts = Parts(node)
    y = parts.op(node.origin, parts.reshape(x.name, *x.shape[:3], prod(x.shape[3:])))
    return parts.done(parts.reshape(y, *x.shape[:2], *[1] * len(x.shape[2:])))


def integer_product(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """MatMulInteger with constant weights for each matrix of a batch: a product for each of them."""
    x, w = node.tensor(0), node.tensor(1)
    if w.data is None or len(w.shape) < 3 or len(x.shape) < 2:
        return None
    zeros = node.tensor(3) if len(node.inputs) > 3 and node.inputs[3] else None
    if zeros is not None and zeros.elements != 1:
        return None
    batch = np.broadcast_shapes(x.shape[:-2], w.shape[:-2])
    data = np.broadcast_to(w.data, (*batch, *w.shape[-2:])).reshape(-1, *w.shape[-2:])
    parts, rows = Parts(node), x.shape[-2:]
    wide = parts.op("Expand", x.name, parts.longs(*batch, *rows)) if x.shape[:-2] != batch else x.name
    flat, products = parts.reshape(wide, -1, *rows), []
    for at, matrix in enumerate(data):
        name = node.fresh(f"matrix{at}")
        node.builder.tensors[name] = Tensor(name, matrix.shape, w.dtype, None, np.ascontiguousarray(matrix))
        one = parts.op("Slice", flat, parts.longs(at), parts.longs(at + 1), parts.longs(0))
        products.append(parts.op("MatMulInteger", one, name, *node.inputs[2:]))
    joined = parts.op("Concat", *products, axis=0) if len(products) > 1 else products[0]
    return parts.done(parts.reshape(joined, *batch, rows[0], w.shape[-1]))


def length_pool(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """LpPool in three dimensions: a root of the average of powers, times the number of elements."""
    window, p = node.attr("kernel_shape", []), node.attr("p", 2)
    if len(window) != SPACE:
        return None
    if p < 1 or node.attr("ceil_mode", 0):
        raise node.error(f"p {p}, ceil_mode {node.attr('ceil_mode', 0)}", "supported: p from 1 on, ceil_mode 0")
    parts, own = Parts(node), {k: v for k, v in node.attributes.items() if k not in ("p", "ceil_mode")}
    y = parts.op("Pow", parts.op("Abs", node.inputs[0]), node.array(np.array(p, np.float32)))
    y = parts.op("AveragePool", y, **{**own, "count_include_pad": 1})
    y = parts.op("Mul", y, node.array(np.array(prod(window), np.float32)))
    return parts.done(parts.op("Pow", y, node.array(np.array(1 / p, np.float32))))


PARTS: Mapping[str, Callable[[OnnxNode], list[onnx.NodeProto] | None]] = {
    "Conv": convolution, "MaxPool": pool, "AveragePool": pool, "GlobalAveragePool": global_pool,
    "GlobalMaxPool": global_pool, "MatMulInteger": integer_product, "LpPool": length_pool,
}  # fmt: skip
