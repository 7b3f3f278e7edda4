"""Quantised values of several operands as ONNX defines them: dequantise, the function on real numbers, quantise.

Each element goes this way by itself, so no real tensor is stored. A difference needs no reals: both factors share one
binary point, and the exact sum is rounded once, as in add.py.
"""

from __future__ import annotations

import numpy as np

from ..ir import Array, Graph, Op
from . import add, fixedpoint, spatial
from .base import C_TYPES, scale_of, zero_of
from .functions import FUNCTIONS

Numbers = dict[str, int | float]
FAR = 2.0**30  # eb_round keeps results within this


def known(op: Op, graph: Graph) -> bool:
    """The function has a form for real numbers, and it is the arithmetic of the file's format."""
    return graph.arithmetic.rounds_once and bool(FUNCTIONS[op.attrs["function"]].real)


def reference(op: Op, graph: Graph, *operands: Array, share: float = 0.0) -> Array:
    """`share`: of the largest real result, by which all of them are moved before they are rounded."""
    y, row = graph.result(op), FUNCTIONS[op.attrs["function"]]
    if op.attrs["function"] == "difference":
        f = add.scaling(op, graph)
        a, b = (x.astype(np.int64) - zero_of(t) for x, t in zip(operands, graph.operands(op), strict=True))
        steps = fixedpoint.round_half_even(a * f["x0_mul"] - b * f["x1_mul"], int(f["point"]))
    else:
        real = [
            x if t.quant is None else (x.astype(np.int64) - zero_of(t)).astype(np.float32) * np.float32(scale_of(t))
            for x, t in zip(operands, graph.operands(op), strict=True)
        ]
        with np.errstate(all="ignore"):
            found = np.asarray(row.meaning(*real, *(op.attrs[n] for n in row.parameters))).astype(np.float32)
            found = found + np.float32(share) * np.max(np.abs(found), where=np.isfinite(found), initial=0.0)
            scaled = np.nan_to_num(found / np.float32(scale_of(y)), nan=-FAR, posinf=FAR, neginf=-FAR)
        steps = np.rint(np.clip(scaled, -FAR, FAR)).astype(np.int64)
    return np.clip(steps + zero_of(y), *spatial.bounds(op, y)).astype(y.dtype)


def expression(op: Op, graph: Graph, at: list[str]) -> tuple[str, Numbers]:
    """C for one element, from those of the operands, and the numbers that it names; shared C stands in braces."""
    y, row, function = graph.result(op), FUNCTIONS[op.attrs["function"]], op.attrs["function"]
    numbers: Numbers = {"y_zero": zero_of(y), **dict(zip(("low", "high"), spatial.bounds(op, y), strict=True))}
    values = [(i, t) for i, t in enumerate(graph.operands(op)) if t.quant is not None]
    numbers |= {f"x{i}_zero": zero_of(t) for i, t in values}
    if function == "difference":
        terms = [f"(int64_t)({at[i]} - x{i}_zero) * x{i}_mul" for i in range(2)]
        numbers |= add.scaling(op, graph)
        return _clamped(y.dtype, f"{{eb_round_half_even}}({terms[0]} - {terms[1]}, point)"), numbers
    numbers |= {f"x{i}_scale": scale_of(t) for i, t in values} | {"scale": scale_of(y)}
    numbers |= {name: float(op.attrs[name]) for name in row.parameters}
    real = list(at)
    for i, _ in values:
        real[i] = f"((float)({at[i]} - x{i}_zero) * x{i}_scale)"
    found = row.real.format(*real, **{n: n for n in row.parameters})
    return _clamped(y.dtype, f"{{eb_round}}(({found}) / scale)"), numbers


def _clamped(dtype: str, steps: str) -> str:
    return f"({C_TYPES[dtype]}){{eb_clamp}}({steps} + y_zero, low, high)"
