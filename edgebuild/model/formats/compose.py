"""Operators that several formats have, composed of ops. Readers of a format extract the parameters and call these.

LRN, LOCAL_RESPONSE_NORMALIZATION: x / (bias + alpha * sum of squares of neighbouring channels)^beta. The sum is a
`blend` along the channels, with alpha as its weights and bias as offset.

Normalisations compute the variance as the mean of (x - mean)^2, as onnxruntime does. ONNX's function bodies subtract
the square of the mean from the mean of squares: in float32 this cancels if the mean is a thousand times larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ..ir import Array, Quant, Tensor, real_values
from ..ops import elementwise, indexing
from ..ops.base import is_float
from .builder import Reader

Pad = tuple[int, int, int, int]  # top, left, bottom, right


def same_pad(size: Sequence[int], window: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Pad:
    """TensorFlow's SAME padding: output = ceil(size / stride), the odd row or column at the end."""
    total = []
    for n, k, s, d in zip(size, window, stride, dilation, strict=True):
        out = -(-n // s)
        total.append(max((out - 1) * s + (k - 1) * d + 1 - n, 0))
    top, left = total[0] // 2, total[1] // 2
    return top, left, total[0] - top, total[1] - left


POINTWISE = {"add": "sum", "mul": "product"}  # kind -> function of `pointwise` for operands that the kind refuses


def arithmetic(node: Any, kind: str, clamp: Any) -> None:
    """Emit add or mul, or `pointwise` for plain integers and for broadcasts that need more loops than add's kernel."""
    x = node.tensor(0)
    real = is_float(x) or (x.quant is not None and x.dtype != "int32")
    if real and not _beyond_loops(x, node.tensor(1)):
        node.emit(kind, node.inputs, clamp=clamp)
    else:
        node.emit("pointwise", node.inputs, function=POINTWISE[kind], clamp=clamp)


def _beyond_loops(a: Tensor, b: Tensor) -> bool:
    try:
        return len(elementwise._turns(a, b, elementwise.out_shape(a, b))) > elementwise.LOOPS
    except ValueError:  # shapes do not fit; the limits of the op report it
        return False


def emits(kind: str, **attrs: Any) -> Reader:
    """A reader that emits one op with these attributes."""
    return lambda node: node.emit(kind, node.inputs, **attrs)


def axes_of(node: Any, listed: Any, rank: int) -> tuple[int, ...]:
    """The listed axes, sorted and from 0; all axes if none are listed."""
    if listed is None or np.size(listed) == 0:
        return tuple(range(rank))
    return tuple(sorted({axis_of(node, int(a), rank) for a in np.ravel(listed)}))


def kept_shape(x: Tensor, axes: tuple[int, ...], keep: bool) -> tuple[int, ...]:
    return tuple(1 if d in axes else n for d, n in enumerate(x.shape) if keep or d not in axes)


def over_norm(node: Any, axes: tuple[int, ...], before: str, after: str, least: float) -> None:
    """Emit x / max(norm, least), where norm = after(sum of before(x) over the axes).

    Without a `least`, a norm of 0 gives 0.
    """
    total = node.apply(before, node.inputs[0])
    total = node.inner("reduce_sum", [total], axes=axes)
    if after:
        total = node.apply(after, total)
    if least:
        total = node.apply("maximum", node.array(np.float32(least)), total)
    else:
        none = node.apply("equal", total, node.array(np.float32(0)))
        operands = [none, node.array(np.float32(np.inf)), total]
        total = node.apply("where", *operands, to="float32")
    norm = node.reshaped(total, kept_shape(node.tensor(0), axes, True))
    node.emit_function("quotient", node.inputs[0], norm)


def running_sum(node: Any, exclusive: bool, backwards: bool, product: bool = False) -> None:
    axis = axis_of(node, node.numbers(1, "axis")[0], len(node.tensor(0).shape))
    node.emit("running_sum", node.inputs[:1], axis=axis, exclusive=exclusive, reverse=backwards, product=product)


Index = Sequence[int] | Array


def whole_index(x: Tensor) -> list[Index]:
    return [range(n) for n in x.shape]


def values_at(
    node: Any, name: str, index: Sequence[Index], shape: Sequence[int] | None = None, output: int = 0
) -> None:
    """Emit the node's output: values of tensor `name` at these indices per axis, reshaped to `shape` if given."""
    x = node.builder.tensors[name]
    tables = tuple(tuple(int(i) for i in table) for table in index)
    own = tuple(map(len, tables))
    shape = own if shape is None else tuple(shape)
    if not all(map(len, tables)):  # an empty tensor, which function bodies of ONNX operators concatenate with others
        y = replace(x, name=node.outputs[output], shape=shape, data=np.zeros(shape, x.dtype), origin=None)
        node.builder.tensors[y.name] = y
        return
    moved = moving(tables, x)
    if not any(moved):
        node.emit("reshape", [name], output=output, shape=shape)
    elif own == shape:
        node.emit("take", [name], output=output, index=moved)
    else:
        inner = node.inner("take", [name], index=moved)
        node.emit("reshape", [inner], output=output, shape=shape)


def moving(index: Sequence[Index], x: Tensor) -> tuple[tuple[int, ...] | None, ...]:
    """The attribute `index` of `take`: a table per dimension, None for dimensions that do not change."""
    tables = [tuple(int(i) for i in table) for table in index]
    return tuple(None if t == tuple(range(n)) else t for t, n in zip(tables, x.shape, strict=True))


def axis_of(node: Any, axis: int, rank: int) -> int:
    """The axis counted from 0; `axis` may count from the end. Raises EdgebuildError if there is no such axis."""
    if not -rank <= axis < rank:
        raise node.error(f"axis {axis} of {rank} dimensions")
    return axis % rank


def parts_along(node: Any, name: str, axis: int, sizes: Sequence[int]) -> None:
    """Emit slices of these sizes along the axis, one per output that is used."""
    x, start = node.builder.tensors[name], 0
    if sum(sizes) != x.shape[axis] or len(sizes) != len(node.outputs):
        raise node.error(f"parts {tuple(sizes)} of {x.shape[axis]} for {len(node.outputs)} outputs")
    for output, size in enumerate(sizes):
        index = whole_index(x)
        index[axis] = range(start, start + size)
        start += size
        if node.outputs[output]:
            values_at(node, name, index, output=output)


def stacked(node: Any, axis: int) -> None:
    """Emit a stack: all operands get a new dimension and are concatenated along it."""
    x = node.tensor(0)
    axis = axis_of(node, axis, len(x.shape) + 1)
    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    views = [node.inner("reshape", [name], shape=shape) for name in node.inputs]
    node.emit("concat", views, axis=axis)


def reversed_along(node: Any, axes: Sequence[int]) -> None:
    x, index = node.tensor(0), whole_index(node.tensor(0))
    for axis in axes:
        d = axis_of(node, axis, len(x.shape))
        index[d] = range(x.shape[d])[::-1]
    values_at(node, node.inputs[0], index)


def identity(node: Any) -> None:
    """Emit the first operand. A constant, which may be quantised, stays one: exporters share equal constants so."""
    x = node.tensor(0)
    if x.constant:
        node.builder.tensors[node.outputs[0]] = replace(x, name=node.outputs[0])
        return
    node.emit("reshape", node.inputs[:1], shape=node.tensor(0).shape)


def expanded(node: Any, shape: Sequence[int]) -> None:
    x = node.tensor(0)
    try:
        shape = np.broadcast_shapes(tuple(shape), x.shape)
    except ValueError:
        raise node.error(f"shape {x.shape} cannot be broadcast to {tuple(shape)}") from None
    node.check_size(shape, x.dtype)
    wide = (1,) * (len(shape) - len(x.shape)) + x.shape
    name = node.reshaped(node.inputs[0], wide)
    values_at(node, name, [range(n) if n == m else [0] * n for n, m in zip(shape, wide, strict=True)])


def read_expand(node: Any) -> None:
    expanded(node, node.numbers(1, "shape"))


def read_tile(node: Any) -> None:
    x, repeats = node.tensor(0), node.numbers(1, "repeats")
    node.check_size([n * r for n, r in zip(x.shape, repeats, strict=True)], x.dtype)
    values_at(node, node.inputs[0], [list(range(n)) * r for n, r in zip(x.shape, repeats, strict=True)])


def rearranged(node: Any, name: str, inner: Sequence[int], perm: Sequence[int], shape: Sequence[int]) -> None:
    """Emit reshape(transpose(reshape(x, inner), perm), shape)."""
    view = node.reshaped(name, tuple(inner))
    turned = node.inner("transpose", [view], perm=tuple(perm))
    node.emit("reshape", [turned], shape=tuple(shape))


def check_blocks(node: Any, block: int, *sizes: int) -> None:
    if block < 1 or any(n % block for n in sizes):
        raise node.error(f"blocks of {block} in {sizes}")


def values_along(node: Any, axis: int, index: Array, shape: Sequence[int], name: str = "") -> None:
    """Emit a gather with constant indices, from tensor `name` or the first operand."""
    name = name or node.inputs[0]
    x = node.builder.tensors[name]
    index = np.where(index < 0, index + x.shape[axis], index)
    if index.min(initial=0) < 0 or index.max(initial=0) >= x.shape[axis]:
        raise node.error(f"index {int(index.max())} of dimension {axis}, which has {x.shape[axis]}")
    tables = whole_index(x)
    tables[axis] = index.ravel()
    values_at(node, name, tables, shape)


def bordered(node: Any, pads: Sequence[tuple[int, int]], mode: str) -> None:
    """Emit a border that repeats, mirrors or extends the tensor. `mode`: numpy's name. Negative pads cut off first."""
    x, index = node.tensor(0), list[Index]()
    node.check_size([n + max(b, 0) + max(a, 0) for n, (b, a) in zip(x.shape, pads, strict=True)], x.dtype)
    for n, (before, after) in zip(x.shape, pads, strict=True):
        grown, kept = (max(before, 0), max(after, 0)), np.arange(n)[max(-before, 0) : n - max(-after, 0)]
        if max(grown) and (not len(kept) or (mode == "reflect" and max(grown) >= len(kept) > 1)):
            raise node.error(f"a border of {max(grown)} by mode {mode} of {len(kept)} elements")
        more: dict[str, Any] = {"constant_values": -1} if mode == "constant" else {}
        index.append(np.pad(kept, grown, mode, **more))  # type: ignore[call-overload]
    values_at(node, node.inputs[0], index)


MAX_DIMENSIONS = 4


def padded(node: Any, pads: tuple[tuple[int, int], ...], value: Any) -> None:
    """Emit `pad`. Unpadded neighbouring dimensions are merged if there are more than MAX_DIMENSIONS."""
    x = node.tensor(0)
    if len(x.shape) <= MAX_DIMENSIONS or len(pads) != len(x.shape):
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


def border(node: Any, pads: Array, mode: str, value: Any) -> None:
    """Emit a border. `mode`: numpy's name; `value`: for "constant". Negative pads cut elements off."""
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise node.error(f"mode {mode}", "constant, reflect, edge and wrap are supported")
    if mode != "constant":
        return bordered(node, pairs(pads), mode)
    if np.min(pads, initial=0) < 0:
        cut = node.before("cut")
        bordered(cut, pairs(np.minimum(pads, 0)), mode)
        node.inputs, pads = [*cut.outputs, *node.inputs[1:]], np.maximum(pads, 0)
    padded(node, pairs(pads), value)


def pairs(pads: Array) -> tuple[tuple[int, int], ...]:
    return tuple((int(before), int(after)) for before, after in pads)


def gathered(node: Any, axis: int, batch: int) -> None:
    table, index = node.tensor(0), node.tensor(1)
    axis = axis_of(node, axis, len(table.shape))
    batch = batch + len(index.shape) if batch < 0 else batch
    if index.data is not None and not batch and index.quant is None:
        shape = table.shape[:axis] + index.shape + table.shape[axis + 1 :]
        return values_along(node, axis, index.data.astype(np.int64), shape)
    if batch and axis != batch:
        raise node.error(f"batch_dims {batch} and axis {axis}", "the axis behind the batch dimensions is supported")
    node.emit("gather", node.inputs, axis=axis, batch=batch)


def gathered_nd(node: Any) -> None:
    """Emit a gather of slices. Constant indices are flattened to one dimension, which `take` can select from."""
    x, index, batch = node.tensor(0), node.tensor(1), node.attr("batch_dims", 0) if hasattr(node, "attr") else 0
    if not index.shape or not 0 <= batch <= len(x.shape) - index.shape[-1]:
        raise node.error(f"places of shape {index.shape} in {x.shape}, {batch} batch dimensions")
    if index.data is not None and index.quant is None and index.shape[:batch] == x.shape[:batch]:
        depth, lead = batch + index.shape[-1], np.indices(index.shape[:-1])[:batch]  # batch indices are implicit
        places = [*lead, *np.moveaxis(index.data.astype(np.int64), -1, 0)]
        sizes = x.shape[:depth]
        if any((p < -n).any() or (p >= n).any() for p, n in zip(places, sizes, strict=True)):
            raise node.error(f"indices {index.data.min()} to {index.data.max()} in {sizes}")
        flat = np.ravel_multi_index(tuple(p % n for p, n in zip(places, sizes, strict=True)), sizes)
        rows = node.reshaped(node.inputs[0], (prod(sizes), *x.shape[depth:]))
        return values_along(node, 0, np.asarray(flat), (*index.shape[:-1], *x.shape[depth:]), rows)
    node.emit("gather_nd", node.inputs, batch=batch)


def scattered(node: Any, places: Array | str, table: tuple[int, int], update: int, reduction: str) -> None:
    """Emit a scatter into `table` (rows, elements of a row): constant `places` as a take from old and new rows."""
    if reduction not in indexing.JOINS:
        raise node.error(f"reduction {reduction}", f"supported: {', '.join(indexing.JOINS)}")
    (rows, run), shape = table, node.tensor(0).shape
    count = node.tensor(update).elements // run
    names = [node.reshaped(node.inputs[0], table), node.reshaped(node.inputs[update], (count, run))]
    if reduction == "none" and not isinstance(places, str):
        index = np.arange(rows)
        index[places.ravel()] = rows + np.arange(count)  # of several updates of one row, the last counts
        return values_along(node, 0, index, shape, node.inner("concat", names, axis=0))
    at = node.array(places.ravel().astype(np.int32)) if not isinstance(places, str) else node.reshaped(places, (count,))
    kind = "scatter" if reduction == "none" else "scatter_reduce"
    node.emit_as(kind, [names[0], at, names[1]], shape, reduction=reduction)


def blended(node: Any, passes: list[tuple[int, list[list[int]], list[list[float]], list[float]]]) -> None:
    """Emit one blend per changed dimension. Those that shrink the tensor come first, so that later ones cost less."""
    name = node.inputs[0]
    ordered = sorted(passes, key=lambda p: len(p[1]) / node.tensor(0).shape[p[0]])
    for position, (axis, index, weight, offset) in enumerate(ordered, start=1):
        attrs = {"axis": axis, "offset": tuple(offset)}
        attrs |= {"index": tuple(map(tuple, index)), "weight": tuple(map(tuple, weight))}
        if position == len(ordered):
            return node.emit("blend", [name], **attrs)
        name = node.inner("blend", [name], **attrs)
    node.emit("reshape", [name], shape=node.tensor(0).shape)


def emit_where(node: Any, condition: str, yes: str, no: str, dtype: str) -> None:
    node.emit_function("where", condition, yes, no, to=dtype)


def emit_branch(node: Any, condition: str, yes: str, no: str, output: int) -> None:
    """Emit output number `output` as a selection between two branches' results, of the same shape and type."""
    a, b = (node.builder.tensors[name] for name in (yes, no))
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        seen = f"branches give {a.dtype} of shape {a.shape} and {b.dtype} of shape {b.shape}"
        raise node.error(seen, "both are computed where the condition is; give them one type and shape")
    node.emit_function("where", condition, yes, no, output=output, to=a.dtype)


def from_end(node: Any, index: str, size: str, zero: str) -> str:
    """Name of an index with `size` added where it is negative."""
    below, around = node.apply("less", index, zero), node.apply("sum", index, size)
    return str(node.apply("where", below, around, index, to=node.builder.tensors[index].dtype))


def is_place(node: Any, index: str, axis: int, depth: int) -> str:
    """Name of `place == index`, with places 0 to depth - 1 along an axis of which `index` has one element."""
    t = node.builder.tensors[index]
    shape = [depth if d == axis else 1 for d in range(len(t.shape))]
    node.check_size(shape, t.dtype)
    places = node.array(np.arange(depth).astype(t.dtype).reshape(shape))
    return str(node.apply("equal", index, places))


def reversed_sequences(node: Any, time: int, batch: int) -> None:
    """Emit sequences reversed up to their lengths, as a gather of rows, one per time step and sample."""
    x, lengths, rank = node.tensor(0), node.tensor(1), len(node.tensor(0).shape)
    fits = min(time, batch) >= 0 and max(time, batch) < rank and time != batch and len(lengths.shape) == 1
    if not fits or lengths.elements != x.shape[batch]:
        raise node.error(f"{lengths.elements} sequences along axis {time}, batch axis {batch} of {x.shape}")
    order = (*sorted((time, batch)), *(d for d in range(rank) if d not in (time, batch)))
    shape = tuple(x.shape[d] for d in order)
    turned = node.inputs[0] if order == tuple(range(rank)) else node.turned(node.inputs[0], order)
    rows = node.reshaped(turned, (shape[0] * shape[1], *shape[2:]))
    places = np.indices(shape[:2])[:: 1 if time < batch else -1]  # time and batch of each row
    steps = (shape[1], 1)[:: 1 if time < batch else -1]
    if lengths.data is None:
        chosen = node.inner("gather", [rows, _reversed_index(node, places, steps)], axis=0, batch=0)
    else:
        count = lengths.data.astype(np.int64)
        if count.min(initial=0) < 0 or count.max(initial=0) > x.shape[time]:
            raise node.error(f"sequences of {sorted({*count.tolist()})} elements, of {x.shape[time]}")
        at, ends = places[0], count[places[1]]
        index = (np.where(at < ends, ends - 1 - at, at) * steps[0] + places[1] * steps[1]).ravel()
        tables = moving([index, *(range(n) for n in shape[2:])], node.builder.tensors[rows])
        chosen = node.inner("take", [rows], index=tables) if any(tables) else rows
    whole = node.reshaped(chosen, shape)
    node.emit("transpose", [whole], perm=tuple(order.index(d) for d in range(rank)))


def _reversed_index(node: Any, places: Array, steps: Sequence[int]) -> str:
    """Name of the computed index of each row, for computed lengths."""
    shape = (1, -1) if steps[1] == 1 else (-1, 1)
    count = node.reshaped(node.inner("cast", node.inputs[1:2], to="int32"), tuple(
        places.shape[d + 1] if n < 0 else n for d, n in enumerate(shape)))  # fmt: skip
    at, past, others, step = (
        node.array(np.asarray(a, np.int32)) for a in (places[0], places[0] + 1, places[1] * steps[1], steps[0])
    )
    mirrored = node.apply("difference", count, past)
    inside = node.apply("less", at, count, to="bool")
    row = node.apply("where", inside, mirrored, at, to="int32")
    scaled = node.apply("product", row, step)
    index = node.apply("sum", scaled, others)
    return str(node.reshaped(index, (places[0].size,)))


def matmul(node: Any, first: str, second: str, turned: bool, clamp: tuple[float | None, float | None]) -> None:
    """Emit the product of tensors of 1 to 4 dimensions by the rules of numpy's matmul. `turned`: w is transposed."""
    x, w = node.builder.tensors[first], node.builder.tensors[second]
    if x.constant and not w.constant:
        return _swapped(node, first, second, turned)
    if w.data is not None and w.quant is not None and not w.quant.per_tensor:
        second = node.array(node.real(w))  # scales along a dimension of the matrix: as real numbers
    if not x.shape or not w.shape:
        raise node.error(f"operands of shapes {x.shape} and {w.shape}", "1 dimension or more are supported")
    rows, depth = (1, *x.shape)[-2:]
    matrix = w.shape[-2:] if len(w.shape) > 1 else (*w.shape, 1)
    columns = matrix[0] if turned else matrix[1]
    first, second, left, right, batch = _batched(node, first, second)
    shape = (*batch, *((rows,) if len(x.shape) > 1 else ()), *((columns,) if len(w.shape) > 1 else ()))
    operands = [node.reshaped(first, (*left, rows, depth)), node.reshaped(second, (*right, *matrix))]
    node.emit_as("batch_matmul", operands, shape, turned=turned, clamp=clamp)


Sizes = tuple[int, ...]


def _batched(node: Any, first: str, second: str) -> tuple[str, str, Sizes, Sizes, Sizes]:
    """Two operands of a product, two sizes of each before its matrix, and those of the result.

    Neighbours among the dimensions become one where both operands have them, or one repeats the same matrices along
    them. Where more than two remain, both operands are repeated.
    """
    x, w = (node.builder.tensors[name].shape for name in (first, second))
    rank = max(len(x), len(w), 2) - 2
    left, right = ((1,) * (rank - len(s[:-2])) + s[:-2] for s in (x, w))
    try:
        batch = np.broadcast_shapes(left, right)
    except ValueError:
        raise node.error(f"operands of shapes {x} and {w} cannot be broadcast") from None
    merged, kinds = list[tuple[int, int]](), list[tuple[bool, bool]]()
    for m, n in ((m, n) for m, n in zip(left, right, strict=True) if max(m, n) > 1):
        if kinds[-1:] == [(m > 1, n > 1)]:
            merged[-1] = merged[-1][0] * m, merged[-1][1] * n
        else:
            merged.append((m, n))
            kinds.append((m > 1, n > 1))
    if len(merged) > 2:
        first = _repeated(node, "left", first, (*batch, *x[-2:]))
        second = _repeated(node, "right", second, (*batch, *w[-2:]))
        merged = [(prod(batch), prod(batch))]
    merged = [(1, 1)] * (2 - len(merged)) + merged
    return first, second, (merged[0][0], merged[1][0]), (merged[0][1], merged[1][1]), batch


def _repeated(node: Any, side: str, name: str, shape: Sizes) -> str:
    wide = node.before(side)
    wide.inputs = [name]
    expanded(wide, shape)
    return str(wide.outputs[0])


def _swapped(node: Any, first: str, second: str, turned: bool) -> None:
    """Emit a constant times a computed operand as (w^T x^T)^T, because kernels need the computed one first."""
    x, w = node.builder.tensors[first], node.builder.tensors[second]

    def last_two(count: int) -> tuple[int, ...]:
        return (*range(count - 2), count - 1, count - 2)

    if len(w.shape) == 1:  # a vector has no transpose
        return matmul(node, second, first, len(x.shape) > 1, (None, None))
    columns = second if turned else node.turned(second, last_two(len(w.shape)))
    if len(x.shape) == 1:
        return matmul(node, columns, first, False, (None, None))
    product = node.before("swapped")
    matmul(product, columns, first, True, (None, None))
    node.emit("transpose", product.outputs, perm=last_two(max(len(x.shape), len(w.shape))))


def matrix_product(node: Any) -> None:
    """Emit the product of the first two operands by the rules of numpy's matmul; a dense layer if w is constant."""
    x, w = node.tensor(0), node.tensor(1)
    if w.data is None or len(w.shape) != 2 or len(x.shape) < 2:
        matmul(node, node.inputs[0], node.inputs[1], False, OPEN)
        return
    rows = (
        node.inputs[0] if len(x.shape) == 2 else node.reshaped(node.inputs[0], (x.elements // w.shape[0], w.shape[0]))
    )
    columns = node.permuted(node.scaled_along(w, 1), (1, 0))
    node.emit_as("dense", [rows, columns], (*x.shape[:-1], w.shape[1]), clamp=OPEN)


def rows_times(node: Any, weights: str, bias: str) -> None:
    """Emit rows of the first operand times weights K x C, plus a bias unless it is ""."""
    x, w = node.tensor(0), node.builder.tensors[weights]
    if w.constant and len(w.shape) == 2 and x.shape[-1:] == w.shape[1:]:
        flat = node.reshaped(x.name, (x.elements // w.shape[1], w.shape[1]))
        operands = [flat, node.scaled_along(w, 0).name]
        operands += [node.flat_bias(node.builder.tensors[bias], w.shape[0])] if bias else []
        return node.emit_as("dense", operands, (*x.shape[:-1], w.shape[0]), clamp=OPEN)
    product = node.before("product") if bias else node
    matmul(product, x.name, w.name, True, OPEN)
    if bias:
        node.emit("add", [product.outputs[0], bias], clamp=OPEN)


def along_last(node: Any, axis: int, kind: str, **attrs: Any) -> None:
    """Emit an op that works along the last dimension, with transposes if `axis` is another one."""
    rank = len(node.tensor(0).shape)
    if axis == rank - 1:
        return node.emit(kind, node.inputs[:1], **attrs)
    perm = tuple(rank - 1 if d == axis else axis if d == rank - 1 else d for d in range(rank))
    turned = node.inner("transpose", node.inputs[:1], perm=perm)
    node.emit("transpose", [node.inner(kind, [turned], **attrs)], perm=perm)


OPEN = (None, None)
TINY = 1e-9  # MeanVarianceNormalization adds it to the standard deviation


def mean_of(node: Any, name: str, axes: tuple[int, ...]) -> str:
    """Name of the mean, whose `axes` have size 1."""
    return str(node.reshaped(node.inner("mean", [name], axes=axes), kept_shape(node.builder.tensors[name], axes, True)))


def centred(node: Any, name: str, axes: tuple[int, ...]) -> tuple[str, str, str]:
    """Names of the mean, of x - mean, and of the variance, whose `axes` have size 1.

    The mean is subtracted twice, because rounding leaves a remainder the first time. If all values are nearly equal,
    that remainder is divided by the small square root of epsilon.
    """
    mean = mean_of(node, name, axes)
    once = node.apply("difference", name, mean)
    rest = node.apply("difference", once, mean_of(node, once, axes))
    squares = node.apply("square", rest)
    return mean, rest, mean_of(node, squares, axes)


def plus(node: Any, name: str, number: float) -> str:
    return str(node.apply("sum", name, node.array(np.float32(number))))


def normalised(node: Any, name: str, axes: tuple[int, ...], epsilon: float) -> tuple[str, str, str]:
    """Names of (x - mean) / sqrt(variance + epsilon), of the mean, and of 1 / sqrt(variance + epsilon)."""
    mean, rest, variance = centred(node, name, axes)
    norm = node.apply("rsqrt", plus(node, variance, epsilon))
    return node.inner("mul", [rest, norm], clamp=OPEN), mean, norm


def quantize(node: Any, quant: Quant, dtype: str, less: int, ends: Sequence[int]) -> None:
    """Emit round(x / scale) + zero point, halves to even, clamped to `ends` in the file's numbers.

    A constant is stored with the file's type and numbers. See `dequantize` for the parameters.
    """
    x, (low, high) = node.tensor(0), (end - less for end in ends)
    if x.data is not None:
        shape = (
            [1] * len(x.shape) if quant.axis is None else [-1 if d == quant.axis else 1 for d in range(len(x.shape))]
        )
        scale, zero = (np.reshape(n, shape) for n in (quant.scale, quant.zero_point))
        steps = np.clip(np.rint(x.data / scale) + zero, low, high) + less
        node.store(node.outputs[0], steps.astype("uint8" if less else dtype))
        return
    if quant.axis is not None:
        raise node.error("a scale for each channel of a computed tensor", "supported: one scale")
    if (low, high) != (np.iinfo(dtype).min, np.iinfo(dtype).max):  # the type's own range saturates without a clamp
        bounds = tuple((end - quant.zero_point[0]) * quant.scale[0] for end in (low, high))
        node.inputs = [node.inner("clamp", node.inputs[:1], clamp=bounds)]
    node.add("quantize", node.inputs[:1], Tensor(node.outputs[0], x.shape, dtype, quant), {})


def dequantize(node: Any, quant: Quant, dtype: str, less: int) -> None:
    """Emit the first operand dequantised. A constant stays quantised; an input of the graph gets the scale.

    `dtype`: type in the graph. `less`: how much values and zero points are less than in the file, 128 for uint8.
    """
    x = node.tensor(0)
    if x.data is not None:
        data = (x.data.astype(np.int64) - less).astype(dtype)
        stored = Tensor(node.outputs[0], x.shape, dtype, quant, data)
        with np.errstate(over="ignore"):
            reals = real_values(stored)
        if not np.isfinite(reals).all():  # a mask with the lowest float, which rounding made infinite
            stored = Tensor(stored.name, x.shape, "float32", None, reals)
        node.builder.tensors[stored.name] = stored
        return
    if x.quant is None or x.quant != quant:
        if x.quant is not None:
            raise node.error(f"'{x.name}' is dequantised with another scale than it was quantised with")
        if less and any(x.name in op.outputs for op in node.builder.ops):
            raise node.error(f"'{x.name}' is {x.dtype} that nothing quantised", "dequantise the input itself")
        if less and any(x.name in op.inputs for op in node.builder.ops):
            raise node.error(f"'{x.name}' is read as plain {x.dtype}, too", "cast the real numbers")
        node.builder.tensors[x.name] = Tensor(x.name, x.shape, dtype, quant)  # an integer input of the graph
    node.add("dequantize", [x.name], Tensor(node.outputs[0], x.shape, "float32"), {})


def scaled(node: Any, name: str, scale: str, offset: str) -> None:
    """Emit the node's output: tensor `name` times `scale`, plus `offset`, each unless ""."""
    if scale and offset:
        name = node.inner("mul", [name, scale], clamp=OPEN)
    if offset:
        node.emit("add", [name, offset], clamp=OPEN)
    elif scale:
        node.emit("mul", [name, scale], clamp=OPEN)
    else:
        node.emit("reshape", [name], shape=node.builder.tensors[name].shape)


def layer_normalised(node: Any, axes: tuple[int, ...], parameters: Sequence[str], epsilon: float) -> None:
    """Emit a normalisation over the axes. `parameters`: scale and offset. Outputs 1 and 2: mean, 1 / deviation."""
    x = node.tensor(0)
    result, *more = normalised(node, x.name, axes, epsilon)
    scaled(node, result, parameters[0], parameters[1])
    for output, name in enumerate(more, start=1):
        if output < len(node.outputs) and node.outputs[output]:
            node.emit("reshape", [name], output=output, shape=kept_shape(x, axes, True))


def group_normalised(node: Any, groups: int, parameters: Sequence[str], epsilon: float) -> None:
    """Emit a normalisation of each group of channels of each sample. `parameters`: scale and offset per channel."""
    x = node.tensor(0)
    batch, channels, *size = x.shape
    if groups < 1 or channels % groups:
        raise node.error(f"{groups} groups of {channels} channels", "groups must divide the channels")
    parts = node.reshaped(x.name, (batch, groups, x.elements // batch // groups))
    result = node.reshaped(normalised(node, parts, (2,), epsilon)[0], x.shape)
    scaled(node, result, *(by_channel(node, name, channels, len(size)) for name in parameters))


def by_channel(node: Any, name: str, channels: int, others: int) -> str:
    """Name of a vector over the channels, reshaped to broadcast over `others` later dimensions; "" stays ""."""
    if name and (count := node.builder.tensors[name].elements) != channels:
        raise node.error(f"operand '{name}' has {count} numbers for {channels} channels", "it must have one for each")
    return node.reshaped(name, (1, channels, *(1 for _ in range(others)))) if name else ""


def batch_normalised(node: Any, epsilon: float) -> None:
    """Emit a factor and an offset per channel (dimension 1), which the canonicaliser folds into the op before.

    The operands after the first are scale, offset, mean and variance; scale and offset may be left out.
    """
    x, channels = node.tensor(0), node.tensor(0).shape[1:2]
    scale, offset, mean, variance = (
        real_values(node.constant(at, "parameter")).astype(np.float64)
        if node.inputs[at]
        else np.full(channels, at == 1)
        for at in range(1, 5)
    )
    with np.errstate(all="ignore"):  # a variance of 0 gives infinities, as in onnxruntime
        factor = scale / np.sqrt(variance + epsilon)
        parts = {"scale": factor.astype(np.float32), "offset": (offset - mean * factor).astype(np.float32)}
    for part, values in parts.items():
        node.store(f"{node.outputs[0]}@{part}", values.reshape((-1,) + (1,) * (len(x.shape) - 2)))
    product = Tensor(f"{node.outputs[0]}@scaled", x.shape, x.dtype)
    node.add("mul", [x.name, f"{node.outputs[0]}@scale"], product, {"clamp": OPEN})
    result = Tensor(node.outputs[0], x.shape, x.dtype)
    node.add("add", [product.name, f"{node.outputs[0]}@offset"], result, {"clamp": OPEN})


def local_response(node: Any, axis: int, before: int, after: int, bias: float, alpha: float, beta: float) -> None:
    """Emit LRN along `axis`. `before`, `after`: channels of the window on either side, cut at the ends."""
    count = node.tensor(0).shape[axis]
    reach = np.arange(-min(before, count - 1), min(max(after, 0), count - 1) + 1)
    at = np.arange(count)[:, None] + reach
    inside = (at >= 0) & (at < count) & (reach <= after)
    index, weight = np.where(inside, at, indexing.OUTSIDE), np.where(inside, alpha, 0.0)
    squares = node.apply("square", node.inputs[0])
    attrs = {"index": _nested(index), "weight": _nested(weight), "offset": (float(bias),) * count}
    base = node.inner("blend", [squares], axis=axis, **attrs)
    power = [base, node.array(np.float32(-beta))]
    node.emit("mul", [node.inputs[0], node.apply("power", *power)], clamp=OPEN)


def _nested(table: Any) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(row) for row in table.tolist())
