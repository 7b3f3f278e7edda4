"""What the ops on two operands of equal or broadcast shape share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..axes import Dim, Fixed, Nest, Same
from ..ir import Graph, Op, Tensor
from . import linear, spatial
from .base import Constant, Form, Kernel, is_float, zero_of


def from_tflite(kind: str, options_type: str) -> Any:
    def read(node: Any) -> None:
        options = node.options(options_type)
        node.emit(kind, node.inputs, clamp=spatial.tflite_clamp(node, options.FusedActivationFunction()))

    return read


def from_onnx(kind: str) -> Any:
    def read(node: Any) -> None:
        node.emit(kind, node.inputs, clamp=(None, None))

    return read


def out_shape(a: Tensor, b: Tensor) -> tuple[int, ...]:
    rank = max(len(a.shape), len(b.shape))
    left, right = ((1,) * (rank - len(t.shape)) + t.shape for t in (a, b))
    return tuple(max(m, n) for m, n in zip(left, right, strict=True))


def nest(op: Op, graph: Graph) -> Nest:
    a, b = graph.operands(op)
    shape = out_shape(a, b)
    names = tuple(f"i{d}" for d in range(len(shape)))

    def dims(t: Tensor) -> tuple[Dim, ...]:
        skipped = len(shape) - len(t.shape)
        return tuple(Same(names[skipped + d]) if n == shape[skipped + d] else Fixed() for d, n in enumerate(t.shape))

    return Nest(dict(zip(names, shape, strict=True)), names, (dims(a), dims(b)))


def broadcastable(op: Op, graph: Graph) -> str | None:
    """Operand shapes are equal, or one has size 1 (or no dimension) where they differ; at most 4 dimensions."""
    a, b = graph.operands(op)
    for m, n in zip(reversed(a.shape), reversed(b.shape), strict=False):
        if m != n and 1 not in (m, n):
            return f"shapes {a.shape} and {b.shape}"
    return f"{len(out_shape(a, b))} dimensions" if len(out_shape(a, b)) > 4 else None


def _strides(t: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Elements to step in `t` for each of four output dimensions; 0 where it is broadcast."""
    strides, step = [0] * len(shape), 1
    for back in range(1, len(t.shape) + 1):
        strides[-back] = step if t.shape[-back] > 1 else 0
        step *= t.shape[-back]
    return (0,) * (4 - len(shape)) + tuple(strides)


def rows(op: Op, graph: Graph) -> str:
    """Rows by themselves, if both operands have all of them."""
    a, b = graph.operands(op)
    return "each" if a.shape == b.shape and not b.constant and len(a.shape) > 1 else ""


def kernel(op: Op, graph: Graph, form: Form, scaling: Mapping[str, int], found: linear.Linear | None = None) -> Kernel:
    """The loop over all elements; `scaling` are the scalar parameters of the quantised form, which may be linear."""
    a, b = graph.operands(op)
    y = graph.result(op)
    flat = a.shape == b.shape == y.shape
    shape: dict[str, Any] = {"operator": op.kind, "float": is_float(y), "flat": flat, "arithmetic": graph.arithmetic}
    shape |= {"unroll": False, "N": y.elements, "rolled": form.rolled, "rings": form.rings or (0, 0)}
    if form.rolled:
        shape["N"] = y.elements // y.shape[1]
    if not flat:
        shape["dims"] = (1,) * (4 - len(y.shape)) + y.shape
        shape["step0"], shape["step1"] = _strides(a, y.shape), _strides(b, y.shape)
    scalars = spatial.float_bounds(op)
    if not is_float(y):
        low, high = spatial.bounds(op, y)
        zeros: dict[str, int | float] = {"x0_zero": zero_of(a), "x1_zero": zero_of(b), "y_zero": zero_of(y)}
        scalars = {**zeros, **scaling, "low": low, "high": high}
    if found is not None:
        low, high = spatial.bounds(op, y)
        factors = ("x0_mul", "x1_mul") if op.kind == "add" else ("y_mul",)
        scalars = {} if op.kind == "add" else {"x0_zero": zero_of(a), "x1_zero": zero_of(b)}
        scalars |= {**dict(zip(factors, found.factors, strict=True)), "offset": found.offset}
        split = "armv6-m" in form.features and op.kind == "add"
        shape |= {"arithmetic": "split" if split else "linear", "shift": found.shift, "low": low, "high": high}
        saturates = bool({"armv7-m", "armv7e-m", "dsp"} & form.features)
        shape |= {"saturate": saturates and (low, high) == (-128, 127)}
        shape |= {"unroll": flat and shape["N"] % 4 == 0 and not form.small}
    stem = f"{op.kind}_{y.elements}" if flat else f"{op.kind}_{'x'.join(map(str, y.shape))}"
    constants = (Constant("x1", b.data),) if b.data is not None else ()
    template, variant, each = _variant(op, form.features, flat, found)
    return Kernel(template, stem, shape, constants, scalars, variant=variant, estimate=20 + each * int(shape["N"]))


def _variant(op: Op, features: frozenset[str], flat: bool, found: linear.Linear | None) -> tuple[str, str, float]:
    """Template, its name, and instructions for an element."""
    if found is not None and flat and "mve" in features:
        return "elementwise_mve.c.j2", "mve", 3.5
    if found is not None and flat and "dsp" in features and op.kind == "add":
        return "add_dsp.c.j2", "dsp four at once", 7.0
    return "elementwise.c.j2", *(("linear", 13.0) if found is not None else ("portable", 60.0))
