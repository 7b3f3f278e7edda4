"""Run the kernels of a plan on values, without a compiler: each by its meaning, on the correct operands of its op.

`replay` shows that every call reads the bytes that it needs. This shows that the chosen kernels compute from them what
the ops of the model do. The meaning of a kernel is what it states about itself: its kind (`Kernel.computes`) and
the numbers that are printed into it. The result of every call is compared with the reference of the op, and the outputs
with those of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from random import Random
from typing import Any

import numpy as np

from ... import ops
from ...ir import Array, Graph, Op, Same, Tensor, Window, input_range
from ...kernels import kernel_of
from ...ops.base import Form, Kernel, Ranges
from ..printed import Step
from .machine import BrokenPlan, Callee, follows

ALWAYS = 3_000_000  # steps of innermost loops up to which every plan is interpreted
LETTERS = {"H", "W", "C", "SY", "SX", "PY", "PX", "DY", "DX"}  # of a window, among the numbers of a kernel
SIZES = ("N", "OH", "OW", "K", "FH", "FW", "M", "CG", "KG")  # that follow from the shapes of operands and result
CLOSE = 1e-4  # of the largest value: floats may be added up in another order


def small(graph: Graph) -> bool:
    """Whether to interpret plans of this graph costs next to nothing."""
    return sum(prod(ops.nest(op, graph).extents.values()) for op in graph.ops) <= ALWAYS


def interpret(model: Graph, graph: Graph, steps: Sequence[Step]) -> None:
    """Raise BrokenPlan unless every call makes the values that its op has, and every output those of the `model`.

    The `graph` that is planned may be another: ops of the model may be cut into parts.
    """
    rng = Random(0)  # numpy takes 15 ms to import its own
    inputs = [values(rng, graph.tensors[name]) for name in graph.inputs]
    with np.errstate(all="ignore"):  # values that no op uses may be anything
        expected, wanted = ops.run(graph, *inputs), ops.run(model, *inputs)
        for name in graph.outputs:
            compare(f"output {name} of the graph in parts", expected[name], wanted[name])
        try:
            for section in steps:
                for op, form in zip(section.ops, section.forms, strict=True):
                    _check_kernel(op, graph, form, expected)
        except (ArithmeticError, LookupError, ValueError) as error:
            raise BrokenPlan(f"a kernel cannot be run on what it finds: {error}") from error


def compare(name: str, got: Array, want: Array) -> None:
    """Raise BrokenPlan unless integers are equal, and floats differ only by the order of sums (CLOSE)."""
    got = got.reshape(want.shape)
    if want.dtype.kind != "f":
        same = np.array_equal(got, want)
    else:
        largest = float(np.max(np.abs(want), initial=0.0, where=np.isfinite(want)))
        same = np.allclose(got, want, rtol=CLOSE, atol=CLOSE * largest, equal_nan=True)
    if not same:
        far = np.abs(got.astype(np.float64) - want.astype(np.float64)).max()
        raise BrokenPlan(f"{name} has wrong values, off by up to {far:g}")


def values(rng: Random, t: Tensor) -> Array:
    """Values for an input; indices are 0 or 1."""
    if t.dtype == "float32":
        return (np.frombuffer(rng.randbytes(4 * t.elements), np.int32) / 2**30).astype(np.float32).reshape(t.shape)
    if t.dtype in ("int8", "uint8"):
        return np.frombuffer(rng.randbytes(t.elements), t.dtype).reshape(t.shape)
    return (np.frombuffer(rng.randbytes(t.elements), np.uint8) & 1).astype(t.dtype).reshape(t.shape)


def _check_kernel(op: Op, graph: Graph, form: Form, expected: Mapping[str, Array]) -> None:
    """Compare the results of all calls of an op's kernel with the reference of the op."""
    callee, kernel, want = Callee.of(graph, op, form), kernel_of(op, graph, form), expected[op.outputs[0]]
    stated = _as_stated(op, graph, kernel)
    operands = [expected[t.name] if t.data is None else t.data for t in graph.operands(op)]
    if form.rolled and callee.reduces and kernel.shape["rows"] != form.rows:
        raise BrokenPlan(f"{op.name} has its sums after {kernel.shape['rows']} calls, not {form.rows}")
    rows = range(want.shape[1]) if form.rolled and not callee.reduces and want.ndim > 1 else ()
    by_row = [need for row in rows if (need := _rows_read(callee, stated, graph, row))]
    if not rows or len(by_row) < len(rows):  # the kernel may read all: compare at once
        _compare(op.name, ops.SPECS[stated.kind].reference(stated, graph, *operands), want)
        return
    for row, need in zip(rows, by_row, strict=True):
        some, ranges = list(operands), dict[int, Ranges]()
        for i, (first, past) in need.items():
            some[i] = operands[i][:, first:past]
            ranges[i] = tuple((0, n) if d != 1 else (first, past) for d, n in enumerate(operands[i].shape))
        out = tuple((0, n) if d != 1 else (row, row + 1) for d, n in enumerate(want.shape))
        part, small_graph = _of_rows(stated, graph, some, out, ranges)
        value = ops.SPECS[part.kind].reference(part, small_graph, *some)
        _compare(f"row {row} of {op.name}", value, want[:, row : row + 1])


def _compare(where: str, value: Array, want: Array) -> None:
    if value.size != want.size:
        raise BrokenPlan(f"{where}: the kernel makes {value.size} values, not {want.size}")
    compare(where, value, want)


def _rows_read(callee: Callee, stated: Op, graph: Graph, row: int) -> dict[int, tuple[int, int]]:
    """Rows of every operand that the kernel reads for a row of the result; none: it may read all."""
    nest, relation = ops.nest(stated, graph), callee.relation
    if not all(follows(relation, i) and isinstance(relation.operands[i][1], Same | Window) for i in callee.operands):
        return {}
    needed = {i: input_range(nest, i, 1, row, row + 1) for i in callee.operands}
    return needed if all(first < past for first, past in needed.values()) else {}


def _as_stated(op: Op, graph: Graph, kernel: Kernel) -> Op:
    """The op that a kernel computes by the numbers printed into it, if these have the letters of a window.

    Raises BrokenPlan if it is made for other sizes: it would leave out values, or read those of neighbours.
    """
    kind, attrs = kernel.computes if kernel.computes is not None else (op.kind, dict[str, Any]())
    s, x = kernel.shape, (graph.operands(op) or (graph.result(op),))[0]
    stated = dict(op.attrs)
    if s.keys() >= LETTERS and (s["H"], s["W"], s["C"]) == x.shape[1:]:
        numbers = {"stride": (s["SY"], s["SX"]), "dilation": (s["DY"], s["DX"])}
        numbers |= {"pad": (s["PY"], s["PX"], *tuple(op.attrs.get("pad", ()))[2:])}
        stated |= {name: value for name, value in numbers.items() if name in op.attrs}
        stated_sizes = {name: s[name] for name in SIZES if name in s}
        if (wrong := {n: v for n, v in stated_sizes.items() if v != _sizes(op, graph).get(n, v)}) != {}:
            raise BrokenPlan(f"the kernel of {op.name} is made for {wrong}")
    return replace(op, kind=kind, attrs={**stated, **attrs})


def _sizes(op: Op, graph: Graph) -> dict[str, int]:
    """Values of the letters of SIZES, as far as the op has them."""
    x, *others = graph.operands(op)
    y, groups = graph.result(op).shape, int(op.attrs.get("groups", 1))
    sizes = dict(zip(("N", "OH", "OW", "K"), y, strict=False))
    if others and others[0].data is None:  # a sum goes on: its image is the second operand
        return sizes
    taps = op.attrs["window"] if "window" in op.attrs else others[0].shape[1:3] if others else ()
    sizes |= dict(zip(("FH", "FW"), taps, strict=False))
    return sizes | {"M": y[-1] // x.shape[-1], "CG": x.shape[-1] // groups, "KG": y[-1] // groups}


def _of_rows(
    op: Op, graph: Graph, operands: Sequence[Array], out: Ranges, read: Mapping[int, Ranges]
) -> tuple[Op, Graph]:
    """The op that makes rows `out` of its result from parts of its operands."""
    first = read.get(0, tuple((0, n) for n in graph.operands(op)[0].shape))
    attrs = ops.SPECS[op.kind].part(op, graph, out, first)
    y = graph.result(op)
    tensors = {t.name: replace(t, shape=v.shape) for t, v in zip(graph.operands(op), operands, strict=True)}
    tensors[y.name] = replace(y, shape=tuple(past - start for start, past in out))
    return replace(op, attrs=attrs), replace(graph, ops=(), tensors=tensors, inputs=(), outputs=())
