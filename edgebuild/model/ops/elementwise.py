"""Code that the ops on operands of equal or broadcast shape share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..ir import Graph, Op, Tensor
from ..ir.axes import Dim, Fixed, Nest, Same
from . import fixedpoint, linear, loops, spatial
from .base import Constant, Form, Kernel, is_float, zero_of

LOOPS = 4  # of the kernel's template


def out_shape(*operands: Tensor) -> tuple[int, ...]:
    return tuple(int(n) for n in np.broadcast_shapes(*(t.shape for t in operands)))


def nest(op: Op, graph: Graph) -> Nest:
    """Of any number of operands, each repeated along the axes that it lacks or has one element of."""
    operands = graph.operands(op)
    shape = out_shape(*operands)
    names = tuple(f"i{d}" for d in range(len(shape)))

    def dims(t: Tensor) -> tuple[Dim, ...]:
        skipped = len(shape) - len(t.shape)
        return tuple(Same(names[skipped + d]) if n == shape[skipped + d] else Fixed() for d, n in enumerate(t.shape))

    return Nest(dict(zip(names, shape, strict=True)), names, tuple(map(dims, operands)))


def known_result(op: Op, graph: Graph) -> str | None:
    """The result is int8, int16 or float32."""
    y = graph.result(op)
    return None if y.dtype in ("int8", "int16", "float32") else f"'{y.name}' is {y.dtype}"


def broadcastable(op: Op, graph: Graph) -> str | None:
    """Operand shapes are equal, or one has size 1 (or no dimension) where they differ; in at most 4 loops."""
    a, b = graph.operands(op)
    for m, n in zip(reversed(a.shape), reversed(b.shape), strict=False):
        if m != n and 1 not in (m, n):
            return f"shapes {a.shape} and {b.shape}"
    turns = _turns(a, b, out_shape(a, b))
    return f"{len(turns)} loops for shapes {a.shape} and {b.shape}" if len(turns) > LOOPS else None


def _turns(a: Tensor, b: Tensor, shape: tuple[int, ...]) -> tuple[loops.Loop, ...]:
    return loops.collapsed(shape, *(loops.broadcast_steps(t.shape, len(shape)) for t in (a, b)))


def rows(op: Op, graph: Graph) -> str:
    """Rows by themselves, if both operands have all of them."""
    a, b = graph.operands(op)
    return "each" if a.shape == b.shape and not b.constant and len(a.shape) > 1 else ""


def _beyond_words(a: Tensor, b: Tensor) -> bool:
    """A product of what is left of int16 values without their zero points leaves int32."""
    if a.dtype != "int16" or b.dtype != "int16":
        return False
    most = [max(abs(bound - zero_of(t)) for bound in fixedpoint.limits(t.dtype)) for t in (a, b)]
    return most[0] * most[1] >= 2**31


def kernel(op: Op, graph: Graph, form: Form, scaling: Mapping[str, int], found: linear.Linear | None = None) -> Kernel:
    """The loop over all elements; `scaling` are the scalar parameters of the quantised form, which may be linear."""
    a, b = graph.operands(op)
    y = graph.result(op)
    flat = a.shape == b.shape == y.shape
    shape: dict[str, Any] = {"operator": op.kind, "float": is_float(y), "flat": flat, "arithmetic": graph.arithmetic}
    shape["wide"] = op.kind == "mul" and graph.arithmetic.rounds_once and _beyond_words(a, b)
    shape |= {"linear": False, "unroll": False, "ends": "", "N": y.elements, "left": 20 if y.dtype == "int8" else 15}
    if form.rolled:
        shape["N"] = y.elements // y.shape[1]
    if not flat:
        turns = _turns(a, b, y.shape)
        turns = ((1, 0, 0),) * (LOOPS - len(turns)) + turns
        shape["dims"], shape["step0"], shape["step1"] = zip(*turns, strict=True)
    scalars = spatial.float_bounds(op, graph)
    if not is_float(y):
        low, high = spatial.bounds(op, y)
        zeros: dict[str, int | float] = {"x0_zero": zero_of(a), "x1_zero": zero_of(b), "y_zero": zero_of(y)}
        scalars = {**zeros, **scaling, "low": low, "high": high}
    if found is not None:
        low, high = spatial.bounds(op, y)
        factors = ("x0_mul", "x1_mul") if op.kind == "add" else ("y_mul",)
        scalars = {} if op.kind == "add" else {"x0_zero": zero_of(a), "x1_zero": zero_of(b)}
        scalars |= {**dict(zip(factors, found.factors, strict=True)), "offset": found.offset}
        shape |= {"linear": True, "shift": found.shift, "low": low, "high": high}
        shape |= {"scale": "eb_scale", "clamp": "eb_clamp"}  # C functions
        shape |= {"unroll": flat and shape["N"] % 4 == 0 and not form.small}
    stem = f"{op.kind}_{shape['N']}" if flat else f"{op.kind}_{'x'.join(map(str, y.shape))}"
    constants = (Constant("x1", b.data, "operand"),) if b.data is not None else ()
    variant, each = ("linear", 13) if found is not None else ("portable", 60)
    cost = 20.0 + each * int(shape["N"])
    return Kernel(
        "elementwise.c.j2", stem, shape, constants, scalars, variant=variant, estimate=cost, placed=form.rolled
    )
