"""Calls of an engine beside the core: which ops an engine computes bit for bit, and what it is given.

A shift that rounds halves to even is ONNX's division by a power of two. A shift that rounds down serves where the
result is clamped at its zero point for TFLite's two roundings: with M = 2^30, ((x + 1) >> 1) to the right by r with
halves away from zero is (x + 1 + 2^r) >> (r + 1) for all results that the clamp lets through. The constant is part of
the bias.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....base.dataclass import dataclass
from ....base.levels import Engine
from ...ir import Graph, Op
from ...ops import SPECS
from ...ops.base import Constant, Form, Kernel, Sums

HALF = 2**30  # a mantissa of 1/2: the factor is a power of two


def pattern_of(op: Op, sums: Sums | None) -> str:
    """The struct of eb_engine.h that an op fills; empty if none does."""
    if sums is None or op.attrs.get("groups", 1) != 1:
        return ""
    if op.kind == "dense":
        return "dense"
    if sums.depthwise:
        return "depthwise" if sums.weights.shape[3] == 1 and sums.size[2] == sums.out[2] else ""
    return "conv2d"


@dataclass(frozen=True)
class Shift:
    """Bits to the right, the number that is added before, and whether halves go to even."""

    bits: int
    constant: int = 0
    to_even: bool = False


def shift_of(s: Sums, rounding: Sequence[str]) -> Shift | str:
    """The shift for all channels of an engine that knows these ways of rounding; or why there is none."""
    if not (s.mantissa == HALF).all():
        return "its scales are no powers of two, and the engine requantises by a shift"
    if len(set(s.right.tolist())) != 1:
        return "its channels have different shifts, and the engine has one for all"
    right = int(s.right[0])
    if not -1 <= right < 30:
        return f"a shift by {right + 1}"
    if right < 0 or (right == 0 and s.arithmetic.fixed_point):
        return Shift(right + 1, right + 1)
    if not s.arithmetic.fixed_point:
        no = "its halves are rounded to even, and the engine rounds down"
        return Shift(right + 1, to_even=True) if "even" in rounding else no
    if "down" not in rounding:
        return "its halves are not rounded to even, as the engine does it"
    if not s.rectified:
        return "negative halves are rounded away from zero, and the engine rounds down"
    return Shift(right + 1, 1 + (1 << right))


def refusal(op: Op, graph: Graph, engine: Engine) -> str:
    """Why an engine does not compute an op bit for bit; empty if it does."""
    s = SPECS[op.kind].sums(op, graph)
    pattern = pattern_of(op, s)
    if s is None or pattern not in engine.patterns:
        return f"{engine.name} has no pattern for it"
    if s.dilation != (1, 1):
        return f"its window is dilated, which {engine.name} does not know"
    if s.x_zero and (s.padded_rows or s.padded_columns):
        return f"padding is {s.x_zero} in its input, and 0 in {engine.name}"
    if not s.fits:
        return "its sums may leave 32 bits"
    if engine.requantise == "multiply":
        return "" if s.arithmetic.fixed_point else f"its halves are rounded to even, which {engine.name} does not do"
    found = shift_of(s, engine.rounding)
    if isinstance(found, str):
        return found
    return "" if (s.bound + found.constant < 2**30).all() else "its sums may leave 31 bits"


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """The function that hands an op to the engine of `form`, which does not refuse it."""
    engine, s = form.engine, SPECS[op.kind].sums(op, graph)
    assert engine is not None and s is not None
    pattern = pattern_of(op, s)
    (h, w, c), (oh, ow, k), (fh, fw) = s.size, s.out, s.window
    shape: dict[str, int | str | bool | tuple[int, ...]] = {
        "function": f"eb_engine_{engine.name}_{pattern}", "pattern": pattern,
        "H": h, "W": w, "C": c, "OH": oh, "OW": ow, "K": k, "FH": fh,
        "FW": fw, "SY": s.stride[0], "SX": s.stride[1], "PY": s.pad[0], "PX": s.pad[1],
        "multiplies": engine.requantise == "multiply",
    }  # fmt: skip
    constants: tuple[Constant, ...] = (Constant("w", s.weights, "weights"),)
    scalars: dict[str, int | float] = {"y_zero": s.y_zero, "low": s.low, "high": s.high}
    if engine.requantise == "multiply":
        start = Constant("bias", s.start.astype(np.int32), "with the zero point folded in")
        constants = (*constants, start, *s.rescaling)
    else:
        found = shift_of(s, engine.rounding)
        assert not isinstance(found, str), found
        start = Constant("bias", (s.start + found.constant).astype(np.int32), "with zero point and rounding folded in")
        constants, scalars = (*constants, start), {"shift": found.bits, **scalars}
        shape["to_even"] = found.to_even
    stem = f"{engine.name}_{s.stem}"
    return Kernel("offload/call.c.j2", stem, shape, constants, scalars, variant=engine.name, estimate=1.0)
