"""Elementwise functions of one to three operands, with broadcasting: the rows of functions.py in every form.

float32 and plain integers are computed by the row's C. int8 of one operand is a table of the 256 results. int8 of
more operands is computed as TFLM does where `quantised.py` has a form; values of one scale need none to be compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.templates import terms
from ..arithmetic import Arithmetic
from ..ir import Array, Graph, Op, Tensor
from . import elementwise, loops, quantised, spatial
from .base import C_TYPES, UNSIGNED, Constant, Form, Kernel, Spec, clip_float, is_float
from .functions import FUNCTIONS, WORDS, WRAPPED, ElementFunction

MOST_DIMENSIONS = 8
OPEN = (None, None)


def attributes(function: str, **parameters: Any) -> dict[str, Any]:
    """The attributes of an op of this function: its parameters, or their defaults."""
    row = FUNCTIONS[function]
    numbers = {name: float(parameters.get(name, default)) for name, default in row.parameters.items()}
    return {"function": function, "clamp": OPEN, **({"to": row.result} if row.result else {}), **numbers}


def row_of(op: Op) -> ElementFunction:
    return FUNCTIONS[op.attrs["function"]]


def reference(op: Op, graph: Graph, *operands: Array) -> Array:
    y, row = graph.result(op), row_of(op)
    if is_quantised(op, graph):
        return quantised.reference(op, graph, *operands)
    if row.arity == 1 and is_float(graph.operands(op)[0]):
        operands = (operands[0].astype(np.float64),)
    with np.errstate(all="ignore"):
        found = np.asarray(row.meaning(*operands, *(op.attrs[name] for name in row.parameters)))
        return clip_float(found, op.attrs["clamp"]) if is_float(y) else found.astype(y.dtype)


def moved(op: Op, graph: Graph, share: float, *operands: Array) -> Array:
    if is_quantised(op, graph):
        return quantised.moved(op, graph, share, *operands)
    return reference(op, graph, *operands)


def is_quantised(op: Op, graph: Graph) -> bool:
    """A quantised constant beside real numbers is read as real numbers in the end."""
    values = (*(t for t in graph.operands(op) if not t.constant), graph.result(op))
    return any(t.quant is not None and t.dtype != "int32" for t in values)


def known_form(op: Op, graph: Graph) -> str | None:
    """Operands are broadcast to at most 8 dimensions and are of one type, for which the function has a form."""
    row, operands = row_of(op), graph.operands(op)
    if len(operands) != row.arity:
        return f"{len(operands)} operands of {op.attrs['function']}"
    if len(graph.result(op).shape) > MOST_DIMENSIONS:
        return f"{len(graph.result(op).shape)} dimensions"
    values = operands[1:] if row.condition else operands
    mixed = not is_quantised(op, graph)
    types = sorted({"float32" if mixed and t.constant and t.quant is not None else t.dtype for t in values})
    if len(types) > 1:
        return f"operands are {' and '.join(types)}"
    if op.attrs["clamp"] != OPEN and not is_float(graph.result(op)) and not is_quantised(op, graph):
        return f"an activation after {types[0]}"
    if is_quantised(op, graph):
        return quantised.missing(op, graph)
    form = row.real if types == ["float32"] else row.integer if types[0] not in UNSIGNED else None
    return None if form else f"{op.attrs['function']} of {types[0]}"


def rows(op: Op, graph: Graph) -> str:
    """Rows by themselves, if all computed operands have all of them and constants are the same for each."""
    y = graph.result(op)
    computed = [t for t in graph.operands(op) if not t.constant]
    repeated = [t for t in graph.operands(op) if t.constant and any(n > 1 for n in t.shape[: 2 - len(y.shape) or None])]
    whole = all(t.shape == y.shape for t in computed)
    return "each" if whole and not repeated and len(y.shape) > 1 else ""


def operand_names(operands: tuple[Tensor, ...]) -> tuple[str, ...]:
    """Parameters of the kernel: activations are x, or x0, x1, ...; constants c0, c1, ..."""
    computed = sum(not t.constant for t in operands)
    activations = iter(["x"] if computed == 1 else [f"x{i}" for i in range(computed)])
    constants = iter(range(len(operands)))
    return tuple(f"c{next(constants)}" if t.constant else next(activations) for t in operands)


def literal_value(t: Tensor) -> int | float | None:
    """The number of a constant of one element, if it can be an argument."""
    if t.data is None or t.elements != 1:
        return None
    value = t.data.ravel()[0].item()
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return int(value) if abs(value) < 2**31 else None


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """One loop, or as many as broadcasting needs."""
    operands, y, row = graph.operands(op), graph.result(op), row_of(op)
    names = operand_names(operands)
    extents = (1, 1, *y.shape[2:]) if form.rolled else y.shape
    turns = loops.collapsed(extents, *(_steps(t, y, form) for t in operands))
    flat = len(turns) == 1 and all(step == 1 for step in turns[0][1:])
    numbers = {name: value for name, t in zip(names, operands, strict=True) if (value := literal_value(t)) is not None}
    at = [_element(names[i], numbers, i, turns, flat) for i in range(len(operands))]
    constants = [
        Constant(n, t.data, "operand")
        for n, t in zip(names, operands, strict=True)
        if t.data is not None and n not in numbers
    ]
    if is_quantised(op, graph):
        expression, more, tables = quantised.expression(op, graph, at)
        numbers |= more
        constants += tables
    else:
        numbers |= {name: float(op.attrs[name]) for name in row.parameters}
        expression = _text(op, operands[-1], graph.arithmetic).format(*at, **{n: n for n in row.parameters})
        if is_float(y) and (op.attrs["clamp"] != OPEN or op.attrs.get("finite", False)):
            expression, bounds = f"{{eb_clamp_float}}({expression}, low, high)", spatial.float_bounds(op, graph)
            numbers |= bounds
        elif not is_float(y):
            expression = f"({C_TYPES[y.dtype]})({expression})"
    shape: dict[str, Any] = {
        "expression": expression,
        "N": turns[0][0] if flat else 0,
        "loops": () if flat else tuple(turn[0] for turn in turns),
    }
    stem = f"{op.attrs['function']}_{'x'.join(map(str, y.shape)) or 1}"
    count = y.elements // (y.shape[1] if form.rolled else 1)
    cost = 20.0 + 30.0 * count
    return Kernel("pointwise.c.j2", stem, shape, tuple(constants), numbers, estimate=cost, placed=form.rolled)


def _text(op: Op, x: Tensor, arithmetic: Arithmetic) -> str:
    """C for an element, by the type of the operands."""
    row, function = row_of(op), op.attrs["function"]
    if x.dtype in WORDS and function in WRAPPED:
        return WRAPPED[function].replace("{word}", WORDS[x.dtype])
    if is_float(x) and arithmetic.passes_nan and row.onnx:
        return row.onnx
    return row.real if is_float(x) else row.integer


def _steps(t: Tensor, y: Tensor, form: Form) -> list[int]:
    own = loops.broadcast_steps(t.shape, len(y.shape))
    return [0, 0, *own[2:]] if form.rolled else own


def _element(
    name: str, numbers: dict[str, int | float], operand: int, turns: tuple[loops.Loop, ...], flat: bool
) -> str:
    """C for the operand's element of this turn."""
    if name in numbers:
        return name
    if flat:
        return f"{name}[i]"
    return f"{name}[{terms((turn[1 + operand] for turn in turns), 'i')}]"


SPEC = Spec(
    kind="pointwise",
    nest=elementwise.nest,
    reference=reference,
    kernel=kernel,
    rows=rows,
    clamps=True,
    integers=("int8", "int16"),
    plain=True,
    interval=quantised.interval,
    moved=moved,
    limits=(known_form,),
)
