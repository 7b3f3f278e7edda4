"""A row shared by cores: each makes some of its columns, from rows of operands that all of them see whole.

A row of the result is contiguous, so part p of it begins p times the width of a part behind the row. Where column c
needs column c of the operands, a part of the op is the op of fewer columns. Where it needs those under a window, a part
is the op with other padding: none inside of the row, the op's own at its begin. At its end the padding is negative, for
there the kernel counts columns from the row's begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ... import ops
from ...ir import Graph, Op
from ...ir.axes import Same, Window, separable
from ...kernels import kernel_of
from ...ops.base import Form, Kernel
from ..printed import Share
from .parts import part_of

COLUMNS = 2  # the dimension of N x H x W x C
WINDOWS = ("conv2d", "depthwise_conv2d", "avg_pool2d", "max_pool2d")


def shared_row(op: Op, graph: Graph, form: Form, count: int) -> tuple[Share, ...] | None:
    """The kernels of at most `count` parts of a row, all with the same constants; None: one core makes the row."""
    y = graph.result(op)
    if len(y.shape) != 4 or min(count, y.shape[COLUMNS]) < 2 or (relation := _relation(op, graph)) is None:
        return None
    width = -(-y.shape[COLUMNS] // count)
    make = _same if isinstance(relation, Same) else _under_windows
    found = tuple(make(op, graph, form, width))
    kernels = [share.kernel for share in found]
    one = isinstance(relation, Same)
    if any(k.placed != one or k.counted or _contents(k) != _contents(kernels[0]) for k in kernels):
        return None
    return found


def _contents(kernel: Kernel) -> list[tuple[str, str, bytes]]:
    return [(c.name, str(c.data.dtype), c.data.tobytes()) for c in kernel.constants]


def _relation(op: Op, graph: Graph) -> Same | Window | None:
    """How columns of the operands follow from those of the result; None: in no way that a part could use."""
    nest, y = ops.nest(op, graph), graph.result(op)
    axis, found = nest.out[COLUMNS], list[Same | Window]()
    for dims, name in zip(nest.operands, op.inputs, strict=True):
        t = graph.tensors[name]
        along = [d for d in dims if d.axis == axis]
        if t.constant:
            if along:
                return None
            continue
        if len(dims) != 4 or along != [dims[COLUMNS]] or not isinstance(along[0], Same | Window):
            return None
        if isinstance(along[0], Same) and t.shape[COLUMNS] != y.shape[COLUMNS]:
            return None
        found.append(along[0])
    if not found or nest.out.count(axis) != 1 or not separable(nest, axis):
        return None
    windows = [relation for relation in found if isinstance(relation, Window)]
    if windows and (len(found) > 1 or op.kind not in WINDOWS):
        return None
    if windows and graph.tensors[op.inputs[0]].constant:
        return None
    return found[0]


def _same(op: Op, graph: Graph, form: Form, width: int) -> Iterator[Share]:
    """Equal parts, and what is left."""
    every = graph.result(op).shape[COLUMNS]
    whole, rest = divmod(every, width)
    for first, past, columns in ((0, whole, width), (whole, whole + 1, rest)):
        if columns:
            tensors = dict(graph.tensors)
            for name in (*op.inputs, *op.outputs):
                t = tensors[name]
                if not t.constant:
                    ranges = tuple((0, columns if d == COLUMNS else n) for d, n in enumerate(graph.tensors[name].shape))
                    tensors[name] = part_of(graph.tensors[name], ranges)
            part = replace(op)
            small = replace(graph, ops=(part,), tensors=tensors)
            yield Share(kernel_of(part, small, form), first, past, width, width)


def _under_windows(op: Op, graph: Graph, form: Form, width: int) -> Iterator[Share]:
    """Parts whose windows lie inside of the row, and those of which some reach beyond."""
    (nest, x, y), pad = (ops.nest(op, graph), graph.operands(op)[0], graph.result(op)), op.attrs["pad"]
    relation = nest.operands[0][COLUMNS]
    assert isinstance(relation, Window)
    reach, every = (nest.extents[relation.tap] - 1) * relation.dilation, y.shape[COLUMNS]

    def made(columns: int, left: int) -> Kernel:
        right = (columns - 1) * relation.stride + reach + 1 - left - x.shape[COLUMNS]
        part = replace(op, attrs={**op.attrs, "pad": (pad[0], left, pad[2], right)})
        ranges = tuple((0, columns if d == COLUMNS else n) for d, n in enumerate(y.shape))
        small = replace(graph, ops=(part,), tensors={**graph.tensors, y.name: part_of(y, ranges)})
        return kernel_of(part, small, form)

    inside: Share | None = None
    for number in range(-(-every // width)):
        first, past = number * width, min((number + 1) * width, every)
        low = first * relation.stride - relation.pad
        high = (past - 1) * relation.stride - relation.pad + reach
        if low >= 0 and high < x.shape[COLUMNS] and past - first == width:
            before = relation.pad
            inside = inside or Share(made(width, 0), number, number, width, width * relation.stride, before)
            inside = replace(inside, past=number + 1)
            continue
        if inside is not None:
            yield inside
            inside = None
        yield Share(made(past - first, -low), number, number + 1, width)
    if inside is not None:
        yield inside
