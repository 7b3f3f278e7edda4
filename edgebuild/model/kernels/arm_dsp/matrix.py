"""Products of two computed matrices: two columns of the second, widened once, times the rows of the first."""

from __future__ import annotations

from ...arithmetic import Arithmetic
from ...ops import contractions, spatial
from ...ops.base import Kernel, zero_of
from ...ops.fixedpoint import Multiplier
from ..row import KernelLayer

LARGEST = 2**15  # of a sum's terms, each of which is below 2^16


def product(layer: KernelLayer) -> Kernel | None:
    """Blocks of two rows and two columns. An odd one at the end is computed with the one before it."""
    op, graph, k = layer.op, layer.graph, layer.plain
    (x, w), y = graph.operands(op), graph.result(op)
    m, c, (a, b, n, columns) = contractions.multiplier(op, graph), x.shape[3], y.shape
    finish = _finish(graph.arithmetic, m, c)
    fits = {x.dtype, w.dtype, y.dtype} == {"int8"} and 8 <= c < LARGEST
    if not fits or not finish or spatial.bounds(op, y) != (-128, 127):
        return None
    groups = -(-c // 4)
    shape = {
        **k.shape, **_pairs(n, c, columns), "finish": finish, "ragged": bool(c % 4), "kind": _kind(c),
        "fours": c // 4 * 4, "words": 4 * groups - 4 * bool(c % 4), "back": -c % 4,
    }  # fmt: skip
    scalars = {"x0_zero": zero_of(x), "x1_zero": zero_of(w), "y_zero": zero_of(y)}
    scalars |= {"m": 2 * m.mantissa - 2**32, "s": -(2 ** (32 + m.shift))}
    widen = (3.3 if op.attrs["turned"] else 3.8) * c + 20 + 50 * (c % 4 > 0)
    cost = 30.0 + a * b * -(-columns // 2) * (widen + 25 + -(-n // 2) * (32 + 16.3 * groups))
    return Kernel(
        "arm_dsp/matmul.c.j2", k.stem, shape, k.constants, scalars,
        scratch=16 * groups, variant="dsp two columns", estimate=cost,
    )  # fmt: skip


def _pairs(n: int, c: int, columns: int) -> dict[str, int | bool]:
    """Rows and columns in pairs, an odd one with the one before it; a single one is both."""
    return {
        "row": c if n > 1 else 0, "down": columns if n > 1 else 0, "end": c * max(1, n // 2 * 2),
        "odd": n > 1 and n % 2 == 1, "odd_x": (n - 2) * c, "odd_y": (n - 2) * columns, "odd_end": n * c,
        "last": max(0, columns - 2), "column": min(1, columns - 1),
    }  # fmt: skip


def halves(layer: KernelLayer) -> Kernel | None:
    """int16 of TFLite: blocks of two rows and two columns, in sums of 64 bits, of which one word is left."""
    op, graph, k = layer.op, layer.graph, layer.plain
    (x, w), y = graph.operands(op), graph.result(op)
    c, (a, b, n, columns), tensors = x.shape[3], y.shape, (x, w, y)
    if not graph.arithmetic.fixed_point or any(t.dtype != "int16" or zero_of(t) for t in tensors) or c < 2:
        return None
    m, full = contractions.multiplier(op, graph), spatial.bounds(op, y) == (-(2**15), 2**15 - 1)
    right = 15 - m.shift  # of sum * mantissa, halves up
    if not full or not 17 <= right <= 62:
        return None
    near = right <= 32
    scalars: dict[str, int | float] = {"factor": m.mantissa << (32 - right) if near else m.mantissa}
    scalars |= {"half": -(2**31) if near else 0, "half_high": 0 if near else 1 << (right - 33)}
    scalars["shift"] = max(0, right - 32)
    shape = {**k.shape, **_pairs(n, c, columns), "odd_c": bool(c % 2)}
    cost = 30.0 + a * b * -(-columns // 2) * (4 * c + 40 + -(-n // 2) * (60 + 3.7 * c))
    return Kernel(
        "arm_dsp/matmul_halves.c.j2", k.stem, shape, k.constants, scalars,
        scratch=4 * (c + c % 2), variant="dsp pairs of int16", estimate=cost,
    )  # fmt: skip


def wide(layer: KernelLayer) -> Kernel | None:
    """int16 with any bounds and scale: pairs of elements of a row meet those of two columns, in sums of 64 bits."""
    op, graph, k = layer.op, layer.graph, layer.plain
    (x, w), (a, b, n, columns) = graph.operands(op), graph.result(op).shape
    c = x.shape[3]
    if {x.dtype, w.dtype, graph.result(op).dtype} != {"int16"} or zero_of(x) or zero_of(w) or c % 2 or columns < 2:
        return None
    shape = {**k.shape, "turned": bool(op.attrs["turned"]), "step": next(n for n in (8, 4, 2, 1) if c % (2 * n) == 0)}
    scalars = {name: value for name, value in k.scalars.items() if name not in ("x0_zero", "x1_zero")}
    cost = 30.0 + a * b * -(-columns // 2) * (5 * c + 30 + n * (90 + 2.6 * c))
    return Kernel(
        "arm_dsp/matmul_wide.c.j2", k.stem, shape, k.constants, scalars,
        scratch=4 * c, variant="dsp columns of int16", estimate=cost,
    )  # fmt: skip


def _kind(c: int) -> str:
    """Of the functions for rows of c bytes: how they go through groups of four."""
    return "_ragged" if c % 4 else "" if c < 12 else "_odd" if c // 4 % 2 else "_even"


def _finish(arithmetic: Arithmetic, m: Multiplier, c: int) -> str:
    """As `Sums.finish`, for c terms below 2^16 each."""
    if not 1 <= -m.shift <= 31:
        return ""
    if arithmetic.fixed_point:
        return "signed"
    return "once" if 2**16 * c * (m.mantissa & -m.mantissa) < 2 ** (30 - m.shift) else ""
