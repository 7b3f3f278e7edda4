"""PAD, PADV2, Pad: a border of one value around the tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Nest, Offset, Same
from . import loops, moves
from .base import Form, Kernel, Spec, zero_of
from .slice import part_shape

MOST_DIMENSIONS = 4


def from_tflite(node: Any) -> None:
    """TFLM's border without a value is the zero point of the result, whatever the operand's is; of int16 it is 0."""
    pads = np.asarray(node.constant(1, "paddings").data).reshape(-1, 2)
    if len(node.inputs) > 2:
        fill = node.constant(2, "value")
        _emit(node, _pairs(pads), np.ravel(fill.data)[0].item())
    else:
        x, quant = node.tensor(0), node.output_quant()
        zero = 0 if quant is None or x.dtype == "int16" else quant.zero_point[0]
        _emit(node, _pairs(pads), None if zero == zero_of(x) else zero)


def from_onnx(node: Any) -> None:
    listed = node.constant(1, "pads").data if len(node.inputs) > 1 else node.attr("pads", [])
    value = _onnx_value(node) if len(node.inputs) > 2 and node.inputs[2] else None
    pads = np.reshape(listed, (2, -1)).T
    if len(node.inputs) > 3 and node.inputs[3]:
        rank, axes = len(node.tensor(0).shape), [int(a) for a in np.ravel(node.constant(3, "axes").data)]
        full = np.zeros((rank, 2), int)
        full[[moves.axis_of(node, a, rank) for a in axes]] = pads
        pads = full
    mode = node.attr("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise node.error(f"mode {mode}", "constant, reflect, edge and wrap are supported")
    if mode != "constant":
        return moves.bordered(node, _pairs(pads), mode)
    if np.min(pads, initial=0) < 0:
        cut = node.before("cut")
        moves.bordered(cut, _pairs(np.minimum(pads, 0)), mode)
        node.inputs, pads = [*cut.outputs, *node.inputs[1:]], np.maximum(pads, 0)
    _emit(node, _pairs(pads), value)


def _onnx_value(node: Any) -> int | float | None:
    """The border's value: real, or as it is stored (int) where a QOperator file has bytes of the operand's scale."""
    fill = node.constant(2, "value")
    if node.tensor(0).quant is not None and fill.quant is None and fill.dtype != "float32":
        return int(np.ravel(node.stored(fill))[0])
    return float(np.ravel(node.real(fill))[0]) or None


def _emit(node: Any, pads: tuple[tuple[int, int], ...], value: Any) -> None:
    """The op; neighbouring dimensions that stay as they are become one if there are too many."""
    x = node.tensor(0)
    if len(x.shape) <= MOST_DIMENSIONS or len(pads) != len(x.shape):
        return node.emit("pad", node.inputs[:1], pads=pads, value=value)
    sizes, joined = list[int](), list[tuple[int, int]]()
    for n, pair in zip(x.shape, pads, strict=True):
        if joined and not any(pair) and not any(joined[-1]):
            sizes[-1] *= n
        else:
            sizes.append(n)
            joined.append(pair)
    shape = tuple(n + sum(pair) for n, pair in zip(x.shape, pads, strict=True))
    node.emit_as("pad", [node.reshaped(node.inputs[0], tuple(sizes))], shape, pads=tuple(joined), value=value)


def _pairs(pads: Array) -> tuple[tuple[int, int], ...]:
    return tuple((int(before), int(after)) for before, after in pads)


def nest(op: Op, graph: Graph) -> Nest:
    (x,) = graph.operands(op)
    names = tuple(f"i{d}" for d in range(len(x.shape)))
    extents = {name: n + sum(p) for name, n, p in zip(names, x.shape, op.attrs["pads"], strict=True)}
    kept = any(map(any, op.attrs["pads"]))  # else the border is filled first, so it does not work in place
    dims = tuple(
        Same(name) if kept and not any(p) else Offset(name, p[0], n)
        for name, n, p in zip(names, x.shape, op.attrs["pads"], strict=True)
    )
    return Nest(extents, names, (dims,))


def fill(op: Op, graph: Graph) -> int | float:
    """The stored value of the border: real zero by default; of integers, the last one for infinity."""
    x = graph.operands(op)[0]
    value = op.attrs["value"]
    if value is None:
        return zero_of(x)
    if x.quant is None or isinstance(value, int):
        return value if isinstance(value, int) else float(value)
    ends = np.iinfo(x.dtype)
    return int(np.clip(np.rint(value / x.quant.scale[0]) + zero_of(x), ends.min, ends.max))


def reference(op: Op, graph: Graph, x: Array) -> Array:
    return np.pad(x, op.attrs["pads"], constant_values=fill(op, graph))


def growing(op: Op, graph: Graph) -> str | None:
    """Padding adds elements at either end of any of at most 4 dimensions; it removes none."""
    if any(n < 0 for pair in op.attrs["pads"] for n in pair):
        return f"padding {op.attrs['pads']}"
    rank = len(graph.operands(op)[0].shape)
    return f"{rank} dimensions" if rank > 4 else None


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,) = graph.operands(op)
    y = graph.result(op)
    start = sum(p[0] * step for p, step in zip(op.attrs["pads"], loops.steps(y.shape), strict=True))
    shape = {**part_shape(x.shape, y.shape, x.dtype, there="y", here="x", start=start), "fill": y.elements}
    return Kernel("runs.c.j2", f"pad_{'x'.join(map(str, x.shape))}", shape, (), {"value": fill(op, graph)})


SPEC = Spec(
    kind="pad",
    nest=nest,
    reference=reference,
    kernel=kernel,
    tflite={"PAD": from_tflite, "PADV2": from_tflite},
    onnx={"Pad": from_onnx},
    exact=True,
    limits=(growing,),
)
