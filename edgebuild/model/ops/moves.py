"""Ops that move values and compute nothing: views, slices, joins, padding, transposes, messages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from ..ir import ITEM_BYTES, Array, Dim, Fixed, Graph, Nest, Offset, Op, Same, Whole, numbered, same
from . import base
from .base import C_TYPES, SAME, Constant, Form, Kernel, Ranges, Spec, zero_of

# RESHAPE, Flatten, Squeeze and their like: the same bytes under another shape; free.


def reshape_nest(op: Op, graph: Graph) -> Nest:
    """Index relation. If only dimensions of size 1 differ, the others stay; else any element may be anywhere."""
    (x,), extents = graph.operands(op), numbered(op.attrs["shape"])
    dims: tuple[Dim, ...] = tuple(Whole(n) for n in x.shape)
    if [n for n in x.shape if n > 1] == [n for n in extents.values() if n > 1]:
        kept = iter(name for name, n in extents.items() if n > 1)
        dims = tuple(Same(next(kept)) if n > 1 else Fixed() for n in x.shape)
    return Nest(extents, tuple(extents), (dims,))


def same_elements(op: Op, graph: Graph) -> str | None:
    """The result has as many elements as the operand."""
    x, shape = graph.operands(op)[0], op.attrs["shape"]
    return None if x.elements == prod(shape) else f"elements of shape {x.shape} as {tuple(shape)}"


RESHAPE = Spec(
    "reshape", reshape_nest, lambda op, graph, x: x.reshape(op.attrs["shape"]), view=True, exact=True,
    part=lambda op, graph, out, x: {**op.attrs, "shape": tuple(past - first for first, past in out)},
    limits=(same_elements,),
)  # fmt: skip


# Parts of a tensor: `slice` copies one, `span` is a view of one whose elements are neighbours.
#
# Tiling inserts them; both take `begin` and `size` of every dimension.

# Instructions of a call of memcpy, and of each byte that it copies; counted on Cortex-M0 and M4 with hal/src/mem.c.
SHORT, WORDS, BYTES = (14.0, 1.0), (26.0, 0.75), (24.0, 5.0)


def slice_nest(op: Op, graph: Graph) -> Nest:
    (x,), extents = graph.operands(op), numbered(op.attrs["size"])
    parts = zip(extents.items(), op.attrs["begin"], x.shape, strict=True)
    dims = tuple(Same(name) if size == n else Offset(name, -begin, n) for (name, size), begin, n in parts)
    return Nest(extents, tuple(extents), (dims,))


def slice_reference(op: Op, graph: Graph, x: Array) -> Array:
    return x[tuple(slice(b, b + n) for b, n in zip(op.attrs["begin"], op.attrs["size"], strict=True))]


def neighbours(shape: tuple[int, ...], ranges: Ranges) -> bool:
    """Whether the elements of this part of a tensor are contiguous."""
    cut = next((d for d, (first, past) in enumerate(ranges) if past - first > 1), len(shape))
    return all(past - first == n for (first, past), n in list(zip(ranges, shape, strict=True))[cut + 1 :])


def slice_inside(op: Op, graph: Graph) -> str | None:
    """The part lies within the tensor, which has at most 4 dimensions."""
    return _beyond(op.attrs["begin"], op.attrs["size"], graph.operands(op)[0].shape)


def _beyond(begin: Sequence[int], size: Sequence[int], whole: Sequence[int]) -> str | None:
    ends = tuple(b + n for b, n in zip(begin, size, strict=True))
    bad = len(whole) > 4 or any(end > n for end, n in zip(ends, whole, strict=True))
    return f"{begin} to {ends} of {whole}" if bad else None


def one_run(op: Op, graph: Graph) -> str | None:
    """The elements of the part stand one after the other."""
    (x,) = graph.operands(op)
    ranges = tuple((b, b + n) for b, n in zip(op.attrs["begin"], op.attrs["size"], strict=True))
    return None if neighbours(x.shape, ranges) else f"{ranges} of {x.shape}"


def start(op: Op, graph: Graph) -> int:
    """Bytes before the part's first element."""
    (x,) = graph.operands(op)
    return sum(b * step for b, step in zip(op.attrs["begin"], base.steps(x.shape), strict=True)) * ITEM_BYTES[x.dtype]


def part_shape(
    sizes: Sequence[int], whole: Sequence[int], dtype: str, there: str, here: str, start: str | int = "start"
) -> dict[str, Any]:
    """The numbers of `runs` in moves.c.j2. `there`, `here`: C parameters of the whole tensor and of the part."""
    turns, run = base.runs(sizes, whole)
    names = {"there": there, "here": here, "start": start, "fill": 0, "more": False}
    return {"loops": turns, "run": run, "item": ITEM_BYTES[dtype], "all": prod(sizes) == prod(whole), **names}


def runs_cost(sizes: Sequence[int], item: int) -> float:
    """Instructions to copy a part, row by row of its last dimension: by words where the bytes of a row allow it."""
    size = sizes[-1] * item
    each = SHORT if size <= 8 else WORDS if size % 4 == 0 else BYTES
    return prod(sizes[:-1]) * (each[0] + each[1] * size)


def slice_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """The kernel that copies runs of the part; in row form, of one row."""
    (x,) = graph.operands(op)
    size, whole = ((1, 1, *s[2:]) if form.rolled else s for s in (op.attrs["size"], x.shape))
    shape = part_shape(size, whole, x.dtype, there="x", here="y")
    stem = f"slice_{'x'.join(map(str, op.attrs['size']))}"
    first = {"start": start(op, graph) // ITEM_BYTES[x.dtype]}
    cost = runs_cost(size, ITEM_BYTES[x.dtype])
    return Kernel("moves.c:runs", stem, shape, (), first, placed=form.rolled, estimate=cost)


def slice_part(op: Op, graph: Graph, out: Ranges, x: Ranges) -> dict[str, Any]:
    """Attributes of a part: the begin of its result in its piece of the operand, and its size."""
    places = zip(op.attrs["begin"], out, x, strict=True)
    begin = tuple(b + first - low for b, (first, _), (low, _) in places)
    return {"begin": begin, "size": tuple(past - first for first, past in out)}


def slice_rows(op: Op, graph: Graph) -> str:
    """Return "each" for a part with all rows, which is copied row by row; else ""."""
    (x,) = graph.operands(op)
    return "each" if len(x.shape) > 2 and tuple(op.attrs["size"][:2]) == x.shape[:2] else ""


SLICE = Spec(
    "slice", slice_nest, slice_reference, slice_kernel, rows=slice_rows, part=slice_part, exact=True,
    limits=(slice_inside,),
)  # fmt: skip
SPAN = Spec("span", slice_nest, slice_reference, view=True, start=start, exact=True, limits=(slice_inside, one_run))


# CONCATENATION, Concat: the operands one after the other along one dimension.


def concat_nest(op: Op, graph: Graph) -> Nest:
    parts, axis = graph.operands(op), op.attrs["axis"]
    extents = numbered(parts[0].shape)
    operands, name, start = [], tuple(extents)[axis], 0
    for t in parts:
        dims = list(same(*extents))
        dims[axis] = Offset(name, start, t.shape[axis])
        start += t.shape[axis]
        operands.append(tuple(dims))
    return Nest({**extents, name: start}, tuple(extents), tuple(operands))


def shapes_agree(op: Op, graph: Graph) -> str | None:
    """Operands have the same shape but along the axis."""
    rest = {(*t.shape[: op.attrs["axis"]], *t.shape[op.attrs["axis"] + 1 :]) for t in graph.operands(op)}
    return f"shapes {[t.shape for t in graph.operands(op)]}" if len(rest) > 1 else None


def concat_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """The kernel that copies `outer` times one run of each operand: activations x0, x1, ..., constants c0, c1, ..."""
    parts, axis = graph.operands(op), op.attrs["axis"]
    size = ITEM_BYTES[parts[0].dtype]
    runs = tuple(prod(t.shape[axis:]) * size for t in parts)
    starts = tuple(sum(runs[:i]) for i in range(len(runs)))
    outer = prod(parts[0].shape[2 if form.rolled else 0 : axis])
    shape: dict[str, Any] = {"outer": outer, "runs": runs, "starts": starts, "step": sum(runs)}
    shape["operands"] = base.operand_names(parts)
    constants = base.constants_of(parts, shape["operands"])
    cost = sum(runs_cost((outer, run // size), size) for run in runs)
    return Kernel("moves.c:concat", f"concat_{len(parts)}", shape, constants, placed=form.rolled, estimate=cost)


CONCAT = Spec(
    "concat", concat_nest, lambda op, graph, *parts: np.concatenate(parts, axis=op.attrs["axis"]), concat_kernel,
    rows=lambda op, graph: "each" if op.attrs["axis"] > 1 and not any(t.constant for t in graph.operands(op)) else "",
    exact=True, limits=(shapes_agree,),
)  # fmt: skip


# A part written into its place in a tensor that may have other parts already: how tiles become one tensor.
#
# Operands: the tensor so far, if it has any part yet, and the part. The kernel works in place if no later op reads the
# tensor so far. Attributes: `shape` of the whole, `begin` of the part in every dimension. With no tensor so far, the
# rest is undefined.


def insert_nest(op: Op, graph: Graph) -> Nest:
    part, extents = graph.operands(op)[-1], numbered(op.attrs["shape"])
    places = zip(extents.items(), op.attrs["begin"], part.shape, strict=True)
    dims = tuple(Same(name) if n == whole else Offset(name, b, n) for (name, whole), b, n in places)
    return Nest(extents, tuple(extents), (*[same(*extents)] * (len(op.inputs) - 1), dims))


def insert_reference(op: Op, graph: Graph, *operands: Array) -> Array:
    part = operands[-1]
    y = operands[0].copy() if len(operands) > 1 else np.zeros(op.attrs["shape"], part.dtype)
    y[tuple(slice(b, b + n) for b, n in zip(op.attrs["begin"], part.shape, strict=True))] = part
    return y


def insert_inside(op: Op, graph: Graph) -> str | None:
    """The part lies within the tensor, which has at most 4 dimensions."""
    return _beyond(op.attrs["begin"], graph.operands(op)[-1].shape, op.attrs["shape"])


def insert_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """The kernel that copies runs of the part; in row form, of one row."""
    part, whole = graph.operands(op)[-1], op.attrs["shape"]
    if form.rolled:
        whole = (1, 1, *whole[2:])
    start = sum(b * step for b, step in zip(op.attrs["begin"], base.steps(whole), strict=True))
    more, size = len(op.inputs) > 1, ITEM_BYTES[part.dtype]
    size_of_part = (1, 1, *part.shape[2:]) if form.rolled else part.shape
    shape = part_shape(size_of_part, whole, part.dtype, there="y", here="x1" if more else "x")
    shape |= {"more": more, "bytes": prod(whole) * size}
    stem = f"insert_{'x'.join(map(str, part.shape))}"
    cost = runs_cost(size_of_part, size)
    return Kernel("moves.c:runs", stem, shape, (), {"start": start}, placed=form.rolled, estimate=cost)


def insert_part(op: Op, graph: Graph, out: Ranges, x: Ranges) -> dict[str, Any]:
    """Attributes of a part: the shape of its piece of the result, and where the inserted part begins in it."""
    begin = tuple(max(b - first, 0) for b, (first, _) in zip(op.attrs["begin"], out, strict=True))
    return {"shape": tuple(past - first for first, past in out), "begin": begin}


def insert_rows(op: Op, graph: Graph) -> str:
    """Return "each" for a part with all rows, which is inserted row by row; else ""."""
    part = graph.operands(op)[-1]
    return "each" if len(part.shape) > 2 and part.shape[:2] == tuple(op.attrs["shape"][:2]) else ""


INSERT = Spec(
    "insert", insert_nest, insert_reference, insert_kernel, rows=insert_rows, part=insert_part, exact=True,
    limits=(insert_inside,),
)  # fmt: skip


# PAD, PADV2, Pad: a border of one value around the tensor.


def pad_nest(op: Op, graph: Graph) -> Nest:
    (x,), pads = graph.operands(op), op.attrs["pads"]
    extents = numbered([n + sum(p) for n, p in zip(x.shape, pads, strict=True)])
    kept = any(map(any, pads))  # without padding y is filled first, so the op may not work in place
    places = zip(extents, x.shape, pads, strict=True)
    dims = tuple(Same(name) if kept and not any(p) else Offset(name, p[0], n) for name, n, p in places)
    return Nest(extents, tuple(extents), (dims,))


def fill(op: Op, graph: Graph) -> int | float:
    """The stored value of the border: real zero by default; an infinity is the nearest end of a quantised type."""
    x = graph.operands(op)[0]
    value = op.attrs["value"]
    if value is None:
        return zero_of(x)
    if x.quant is None or isinstance(value, int):
        return value if isinstance(value, int) else float(value)
    ends = np.iinfo(x.dtype)
    return int(np.clip(np.rint(value / x.quant.scale[0]) + zero_of(x), ends.min, ends.max))


def growing(op: Op, graph: Graph) -> str | None:
    """Padding adds elements at either end of any of at most 4 dimensions; it removes none."""
    if any(n < 0 for pair in op.attrs["pads"] for n in pair):
        return f"padding {op.attrs['pads']}"
    rank = len(graph.operands(op)[0].shape)
    return f"{rank} dimensions" if rank > 4 else None


def pad_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,) = graph.operands(op)
    y = graph.result(op)
    start = sum(p[0] * step for p, step in zip(op.attrs["pads"], base.steps(y.shape), strict=True))
    shape = {**part_shape(x.shape, y.shape, x.dtype, there="y", here="x", start=start), "fill": y.elements}
    return Kernel("moves.c:runs", f"pad_{'x'.join(map(str, x.shape))}", shape, (), {"value": fill(op, graph)})


PAD = Spec(
    "pad", pad_nest, lambda op, graph, x: np.pad(x, op.attrs["pads"], constant_values=fill(op, graph)), pad_kernel,
    exact=True, limits=(growing,),
)  # fmt: skip


# TRANSPOSE, Transpose: out[i_p0, i_p1, ...] = in[i_0, i_1, ...].


def transpose_nest(op: Op, graph: Graph) -> Nest:
    extents = numbered(graph.operands(op)[0].shape)
    return Nest(extents, tuple(f"i{p}" for p in op.attrs["perm"]), (same(*extents),))


def valid_permutation(op: Op, graph: Graph) -> str | None:
    """The permutation names every dimension once."""
    rank, perm = len(graph.operands(op)[0].shape), op.attrs["perm"]
    return None if sorted(perm) == list(range(rank)) else f"permutation {perm} of {rank} dimensions"


MAX_CYCLES = 256  # cycles of a transposition in place, whose starts are a table
WRITTEN_OUT = 4  # iterations of an inner loop that are unrolled here: gcc 12 does not always do it
MAX_ELEMENTS = 1 << 20  # elements that a search for the starts visits


def swapped(shape: tuple[int, ...], perm: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Rows, columns and block size of the matrix of blocks that the permutation transposes; None if it does not."""
    moved = [d for d in perm if shape[d] > 1]
    while moved and moved[-1] == max(moved):
        moved.pop()
    inner = prod(shape) // prod(shape[d] for d in moved)
    at = next((i for i in range(1, len(moved)) if moved[i] < moved[i - 1]), 0)
    if not moved or moved[at:] + moved[:at] != sorted(moved):
        return None
    return prod(shape[d] for d in moved[at:]), prod(shape[d] for d in moved[:at]), inner


@cache
def cycle_starts(rows: int, columns: int) -> tuple[int, ...] | None:
    """One place of every cycle of a matrix transposed in place: place i of the result comes from i * columns modulo
    (rows * columns - 1). None: there are too many. (Cate and Twigg, "Analysis of In-Situ Transposition", 1977.)
    """
    last = rows * columns - 1
    seen, starts = bytearray(last + 1), list[int]()
    for start in range(1, last):
        if seen[start]:
            continue
        at, length = start, 0
        while not seen[at]:
            seen[at] = 1
            at, length = at * columns % last, length + 1
        starts += [start] if length > 1 else []
        if len(starts) > MAX_CYCLES:
            return None
    return tuple(starts)


def in_place_transpose(op: Op, graph: Graph, divides: bool = True) -> Kernel | None:
    """The kernel that transposes a matrix in place, along its cycles; None if the op is no such transposition.

    If not `divides`, remainders are differences: for cores on which a division by a constant is no product.
    """
    (x,) = graph.operands(op)
    matrix = swapped(x.shape, op.attrs["perm"])
    if matrix is None or matrix[2] != 1 or x.elements > MAX_ELEMENTS:
        return None
    rows, columns, _ = matrix
    starts = cycle_starts(rows, columns)
    if not starts:
        return None
    folds, last = (min(rows, columns) - 1).bit_length(), x.elements - 1
    shape: dict[str, Any] = {"rows": rows, "columns": columns, "cycles": len(starts), "type": C_TYPES[x.dtype]}
    shape["forth"] = not divides and rows <= columns
    shape["folds"] = () if divides else tuple(last << n for n in reversed(range(folds)))
    return Kernel(
        "moves.c:transpose_in_place", f"transpose_{'x'.join(map(str, x.shape))}_in_place", shape,
        (Constant("starts", np.array(starts, np.int32), "a place of every cycle"),),
        variant="in place", estimate=(12.0 if divides else 8.0 + 3 * folds) * x.elements, in_place=SAME,
    )  # fmt: skip


def transpose_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,) = graph.operands(op)
    steps = base.steps(x.shape)
    turn = [d for d in range(len(x.shape)) if d != 1] if form.rolled else list(range(len(x.shape)))
    turned = [op.attrs["perm"][d] for d in turn]
    shape: dict[str, Any] = {"rolled": form.rolled, "row_step": steps[op.attrs["perm"][1]] if form.rolled else 0}
    ring = form.rings[0] if form.rings else 0  # rows of the ring of an operand whose rows are the result's
    shape["at"] = f"(row % {ring})" if ring else "row"
    turns = base.real_loops([x.shape[d] for d in turned], [steps[d] for d in turned])
    offsets: tuple[int, ...] = (0,)
    inner, count = turns[-1][0] if turns else 1, prod(x.shape[d] for d in turned)
    cost = 5.0 * count + 8 * count / inner  # `./sconsw bench-kernels` shows the error of the estimate
    if turns and inner <= WRITTEN_OUT:
        *outer, (_, step) = turns
        turns, offsets, cost = tuple(outer), tuple(range(0, inner * step, step)), 3.0 * count
    shape |= {"loops": turns, "offsets": offsets}
    shape |= {"item": ITEM_BYTES[x.dtype], "dtype": x.dtype}
    return Kernel("moves.c:transpose", f"transpose_{'x'.join(map(str, x.shape))}", shape, estimate=cost)


TRANSPOSE = Spec(
    "transpose", transpose_nest, lambda op, graph, x: np.ascontiguousarray(x.transpose(op.attrs["perm"])),
    transpose_kernel, rows=lambda op, graph: "each" if len(op.attrs["perm"]) > 1 else "", exact=True,
    limits=(valid_permutation,),
)  # fmt: skip


# Output rows handed to the application, which defines `function`; the model calls it for each row.


def hand_rows_nest(op: Op, graph: Graph) -> Nest:
    extents = numbered(graph.operands(op)[0].shape)
    return Nest({**extents, "none": 0}, ("none",), (same(*extents),))


def hand_rows_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,) = graph.operands(op)
    rows = form.rows if form.rolled else x.shape[1]
    shape = {"rows": rows, "row": x.elements // rows, "function": op.attrs["function"], "rolled": form.rolled}
    cost = 12.0 if form.rolled else 12.0 * rows
    return Kernel("moves.c:hand_rows", op.kind, shape, placed=form.rolled, counted=True, estimate=cost)


HAND_ROWS = Spec(
    "hand_rows", hand_rows_nest, lambda op, graph, x: np.zeros(0, graph.result(op).dtype), hand_rows_kernel,
    rows=lambda op, graph: "reduce", exact=True, link="output",
)  # fmt: skip


# Messages between the devices of a cluster: `send` and `receive`, which keep their order.
#
# Both take `message` (its number, the same on both sides), `device` (the other device; EVERYONE: a broadcast) and
# `wire` (low bytes of each element that are sent). `send` has an empty result; `receive` has no operand, and takes the
# `shape` of its result. The session of generated code is its variable `cluster`.

EVERYONE = 255


def send_nest(op: Op, graph: Graph) -> Nest:
    (x,) = graph.operands(op)
    return Nest({"none": 0}, ("none",), (tuple(Whole(n) for n in x.shape),))


def receive_nest(op: Op, graph: Graph) -> Nest:
    extents = numbered(op.attrs["shape"])
    return Nest(extents, tuple(extents), ())


def receive_reference(op: Op, graph: Graph) -> Array:
    """Placeholders that differ by message and element: one device alone does not know what it receives."""
    y = graph.result(op)
    return ((np.arange(y.elements) * 7 + 31 * op.attrs["message"]) % 119 - 59).astype(y.dtype).reshape(y.shape)


def link_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    t = (*graph.operands(op), graph.result(op))[0]
    item, wire = ITEM_BYTES[t.dtype], op.attrs["wire"]
    scalars = {"message": op.attrs["message"], "device": op.attrs["device"], "count": t.elements}
    stem = f"{op.kind}_{wire}_of_{item}"
    return Kernel(f"moves.c:{op.kind}", stem, {"item": item, "wire": wire}, (), scalars, fails=True)


SEND = Spec(
    "send", send_nest, lambda op, graph, x: np.zeros(0, graph.result(op).dtype), link_kernel, exact=True, link="send"
)
RECEIVE = Spec("receive", receive_nest, receive_reference, link_kernel, exact=True, link="receive")
