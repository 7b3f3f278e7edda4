"""Slice from a computed start to that start plus a constant, as Gather: its length is known, its place is not.

JAX exports dynamic_slice so, PyTorch x[i : i + 3] and narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from ...ir import Array, Op
from .onnx_node import OnnxNode
from .windows import Parts

MOST = 64  # elements of a tensor of places
DEEPEST = 32  # chain of nodes in front of one
REMEDY = "slice from a start to the same start plus a constant, in steps of 1"

Sums = tuple[Array, Array]  # of each element: the name of a computed number or "", and the constant added to it


def sliced(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """The parts; None if starts and ends are constants.

    ONNX counts a negative start from the end. A start beyond the last place of all the elements is moved there: ONNX
    would have fewer elements.
    """
    if len(node.inputs) < 3 or all(node.tensor(i).data is not None for i in (1, 2)):
        return None
    x, count = node.tensor(0), node.tensor(1).elements
    axes = _numbers(node, 3, "axes", list(range(count)))
    steps = _numbers(node, 4, "steps", [1] * count)
    (roots, starts), (others, ends) = (_sums(node, node.inputs[i], 0) for i in (1, 2))
    if not count == starts.size == ends.size == len(axes) == len(steps) or not all(
        -len(x.shape) <= axis < len(x.shape) for axis in axes
    ):
        raise node.error(f"{starts.size} starts, {ends.size} ends and axes {axes} of {len(x.shape)} dimensions")
    parts, name, known = Parts(node), x.name, list[list[int]]()
    for i, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        start, end = int(starts.flat[i]), int(ends.flat[i])
        if not roots.flat[i] and not others.flat[i]:
            known.append([start, end, axis, step])
            continue
        if roots.flat[i] != others.flat[i] or step != 1:
            raise node.error(f"its length along axis {axis} is computed by the graph", REMEDY)
        name = _gathered(parts, name, i, axis, end - start)
    return parts.done(parts.op("Slice", name, *(parts.longs(*n) for n in zip(*known, strict=True))) if known else name)


def _numbers(node: OnnxNode, position: int, what: str, default: list[int]) -> list[int]:
    given = len(node.inputs) > position and node.inputs[position]
    return [int(n) for n in np.ravel(np.asarray(node.constant(position, what).data))] if given else default


def _gathered(parts: Parts, x: str, place: int, axis: int, length: int) -> str:
    """`length` elements along an axis from the start at this place of the node's starts."""
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
    """A tensor of whole numbers, element by element, as far as sums and moves of elements tell."""
    t = node.builder.tensors[name]
    if t.data is not None:
        return np.full(t.shape, "", object), t.data.astype(np.int64)
    op = next((op for op in reversed(node.builder.ops) if name in op.outputs), None)
    if op is not None and depth < DEEPEST and t.elements <= MOST and t.dtype in ("int32", "int64"):
        operands = [node.builder.tensors[n] for n in op.inputs]
        if op.kind in KNOWN and all(o.elements <= MOST and o.dtype in ("int32", "int64") for o in operands):
            found = KNOWN[op.kind](op, [_sums(node, n, depth + 1) for n in op.inputs])
            if found is not None:
                return found
    names = np.array([f"{name}[{i}]" for i in range(t.elements)], object)
    return names.reshape(t.shape), np.zeros(t.shape, np.int64)


def _sum(op: Op, operands: list[Sums]) -> Sums | None:
    """A sum or difference whose second, or of a sum either, operand is constant."""
    if op.attrs["function"] not in ("sum", "difference") or op.attrs["clamp"] != (None, None):
        return None
    (names, a), (others, b) = operands
    names, others = np.broadcast_arrays(names, others)
    if op.attrs["function"] == "difference":
        return None if (others != "").any() else (names, np.asarray(a - b))
    return None if ((names != "") & (others != "")).any() else (np.asarray(names + others, object), np.asarray(a + b))


def _taken(op: Op, operands: list[Sums]) -> Sums | None:
    """Elements at known places."""
    shape = operands[0][0].shape
    tables = [range(n) if t is None else t for n, t in zip(shape, op.attrs["index"], strict=True)]
    if any(i < 0 for table in tables for i in table):
        return None
    places = np.ix_(*tables)
    return operands[0][0][places], operands[0][1][places]


KNOWN: Mapping[str, Callable[[Op, list[Sums]], Sums | None]] = {
    "reshape": lambda op, given: (given[0][0].reshape(op.attrs["shape"]), given[0][1].reshape(op.attrs["shape"])),
    "cast": lambda op, given: given[0],
    "concat": lambda op, given: (np.concatenate([a for a, _ in given], op.attrs["axis"]),
                                 np.concatenate([b for _, b in given], op.attrs["axis"])),
    "pointwise": _sum,
    "take": _taken,
}  # fmt: skip
PLACES = {"Slice": sliced}
