"""Parts of a tensor: `slice` copies one, `span` is a view of one whose elements are neighbours.

Tiling makes them; both take `begin` and `size` of every dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..ir import ITEM_BYTES, Array, Graph, Op
from ..ir.axes import Nest, Offset, Same
from . import loops
from .base import Form, Kernel, Ranges, Spec

# Instructions of a call of memcpy, and of each byte; counted on Cortex-M0 and M4 with hal/src/mem.c.
SHORT, WORDS, BYTES = (14.0, 1.0), (26.0, 0.75), (24.0, 5.0)


def nest(op: Op, graph: Graph) -> Nest:
    (x,) = graph.operands(op)
    names = tuple(f"i{d}" for d in range(len(x.shape)))
    parts = zip(names, op.attrs["begin"], x.shape, op.attrs["size"], strict=True)
    dims = tuple(Same(name) if size == n else Offset(name, -begin, n) for name, begin, n, size in parts)
    return Nest(dict(zip(names, op.attrs["size"], strict=True)), names, (dims,))


def reference(op: Op, graph: Graph, x: Array) -> Array:
    return x[tuple(slice(b, b + n) for b, n in zip(op.attrs["begin"], op.attrs["size"], strict=True))]


def neighbours(shape: tuple[int, ...], ranges: Ranges) -> bool:
    """The elements of this part of a tensor stand one after the other."""
    cut = next((d for d, (first, past) in enumerate(ranges) if past - first > 1), len(shape))
    return all(past - first == n for (first, past), n in list(zip(ranges, shape, strict=True))[cut + 1 :])


def inside(op: Op, graph: Graph) -> str | None:
    """The part lies within the tensor, which has at most 4 dimensions."""
    (x,) = graph.operands(op)
    ends = tuple(b + n for b, n in zip(op.attrs["begin"], op.attrs["size"], strict=True))
    bad = len(x.shape) > 4 or any(end > n for end, n in zip(ends, x.shape, strict=True))
    return f"{op.attrs['begin']} to {ends} of {x.shape}" if bad else None


def one_run(op: Op, graph: Graph) -> str | None:
    """The elements of the part stand one after the other."""
    (x,) = graph.operands(op)
    ranges = tuple((b, b + n) for b, n in zip(op.attrs["begin"], op.attrs["size"], strict=True))
    return None if neighbours(x.shape, ranges) else f"{ranges} of {x.shape}"


def start(op: Op, graph: Graph) -> int:
    """Bytes before the part's first element."""
    (x,) = graph.operands(op)
    steps = [prod(x.shape[d + 1 :]) for d in range(len(x.shape))]
    return sum(b * step for b, step in zip(op.attrs["begin"], steps, strict=True)) * ITEM_BYTES[x.dtype]


def part_shape(
    sizes: Sequence[int], whole: Sequence[int], dtype: str, there: str, here: str, start: str | int = "start"
) -> dict[str, Any]:
    """The numbers of runs.c.j2. `there`, `here`: the parameters with the whole and with the part alone."""
    found, run = loops.runs(sizes, whole)
    names = {"there": there, "here": here, "start": start, "fill": 0, "more": False}
    return {"loops": found, "run": run, "item": ITEM_BYTES[dtype], "all": prod(sizes) == prod(whole), **names}


def runs_cost(sizes: Sequence[int], item: int) -> float:
    """Instructions to copy a part, row by row of its last dimension: by words where the bytes of a row allow it."""
    size = sizes[-1] * item
    each = SHORT if size <= 8 else WORDS if size % 4 == 0 else BYTES
    return prod(sizes[:-1]) * (each[0] + each[1] * size)


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """Runs of the part; of one row where it runs by rows."""
    (x,) = graph.operands(op)
    size, whole = ((1, 1, *s[2:]) if form.rolled else s for s in (op.attrs["size"], x.shape))
    shape = part_shape(size, whole, x.dtype, there="x", here="y")
    stem = f"slice_{'x'.join(map(str, op.attrs['size']))}"
    first = {"start": start(op, graph) // ITEM_BYTES[x.dtype]}
    cost = runs_cost(size, ITEM_BYTES[x.dtype])
    return Kernel("runs.c.j2", stem, shape, (), first, placed=form.rolled, estimate=cost)


def part(op: Op, graph: Graph, out: Ranges, x: Ranges) -> dict[str, Any]:
    """Begin and size of what a piece of the result takes from a piece of the operand."""
    places = zip(op.attrs["begin"], out, x, strict=True)
    begin = tuple(b + first - low for b, (first, _), (low, _) in places)
    return {"begin": begin, "size": tuple(past - first for first, past in out)}


def rows(op: Op, graph: Graph) -> str:
    """A part that has all rows is copied row by row."""
    (x,) = graph.operands(op)
    return "each" if len(x.shape) > 2 and tuple(op.attrs["size"][:2]) == x.shape[:2] else ""


SLICE = Spec(
    kind="slice", nest=nest, reference=reference, kernel=kernel, rows=rows, part=part, exact=True, limits=(inside,)
)
SPAN = Spec(kind="span", nest=nest, reference=reference, view=True, start=start, exact=True, limits=(inside, one_run))
