"""SVDF with int16 states, four features or two steps in time at once.

Products of two computed matrices: two columns of the second, widened once, times the rows of the first.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from ...ir import Arithmetic
from ...ops import contractions, fixedpoint, spatial
from ...ops.base import Constant, Kernel, is_float, zero_of
from ...ops.fixedpoint import Multiplier
from ..micro import Function, Loop, Part, Unrolled, framed, moved
from ..row import KernelLayer

REGISTERS = tuple(f"r{n}" for n in range(4, 12))
SUMS = REGISTERS[:4]
# Functions for rows of int8: groups of four taps before the loop, and in an iteration; whether a last one overlaps.
KINDS = {"": (1, 1, False), "_ragged": (1, 1, True), "_even": (2, 2, False), "_odd": (1, 2, False)}
MAX_TERMS = 2**15  # most terms of a sum, each of which is below 2^16


def _four(first: bool = False) -> list[str]:
    """Products of four bytes in each of two rows with those of two widened columns; `first`: sums begin here."""
    code = ["ldr r9, [r1, r2]", "ldr r8, [r1], #4"]
    for half in (0, 1):
        code.append("ldm r0!, {r10, r11}")
        for x, sums in (("r8", SUMS[:2]), ("r9", SUMS[2:])):
            code.append(f"sxtab16 r12, r3, {x}{', ror #8' if half else ''}")
            code += [f"smuad {v}, r12, {w}" if first and not half else f"smlad {v}, r12, {w}, {v}"
                     for v, w in zip(sums, ("r10", "r11"), strict=True)]  # fmt: skip
    return code


def rows(kind: str, finish: str) -> Function:
    """The function for rows of int8, two at a time, by two columns."""
    ahead, together, ragged = KINDS[kind]
    places = "0 y, 4 two constants, 12 zero, 16 across, 20 down, 24 columns, 28 x_end"
    enter = ["ldr r12, [sp, #36]", "ldr r11, [sp, #40]", "sub sp, sp, #36", moved(36),
             f"/* sp: {places}{', 32 back' if ragged else ''} */",
             "ldm r12!, {r4-r8}", "mov lr, r3", "mov r3, r2", "stm sp, {r3-r8}", "strd r0, r11, [sp, #24]",
             *(("ldm r12, {r2, r3, r4}", "str r4, [sp, #32]") if ragged else ("ldm r12, {r2, r3}",))]  # fmt: skip
    turn: list[Part] = ["1:", *(line for n in range(ahead) for line in _four(n == 0))]
    turn.append(Loop("groups", ("2:", *_four() * together, "cmp r0, lr", "bne 2b")))
    turn += ["ldr r12, [sp, #32]", "sub r1, r1, r12", *_four()] if ragged else []
    turn += ["ldm sp, {r0, r8-r12}", "add r1, r1, r2"]
    for v in SUMS:
        turn.append(f"{'smmla' if finish == 'once' else 'smmlar'} {v}, {v}, r8, {v}")
        turn += [f"add {v}, {v}, {v}, asr #31 /* halves away from zero */"] if finish == "signed" else []
        turn += [f"smmlsr {v}, {v}, r9, r10", f"ssat {v}, #8, {v}"]
    for one, other in (SUMS[:2], SUMS[2:]):
        turn += [f"strb {one}, [r0]", f"strb {other}, [r0, r11]", "add r0, r0, r12"]
    turn += ["str r0, [sp]", "ldrd r0, r12, [sp, #24]", "cmp r1, r12", "bne 1b"]
    return framed(
        f"eb_rows{kind}_{finish}",
        "const int32_t *columns, const int8_t *x, int8_t *y, const int32_t *end, const int32_t *numbers, "
        "const int8_t *x_end",
        "Rows of int8 from x to x_end, two at a time, by two columns as eb_columns has them. numbers: two constants of "
        "the rescaling, zero point of y, from a column of y to the next, from a row of y to the next, from a row of x "
        f"to the next, -zero point of x in both halves{', bytes by which the last four lie back' if ragged else ''}. "
        f"r1 the rows, r4 to r7 the sums. `end`: of the columns{' but their last four' if ragged else ''}: "
        f"{ahead} fours and one turn or more of {together}.",
        REGISTERS, (*enter, Loop("rows", tuple(turn)), "add sp, sp, #36", moved(-36)),
    )  # fmt: skip


def _pair(letter: str, size: int) -> tuple[str, ...]:
    """Products of two values of int16 in each of two rows with those of two columns."""
    code = ["ldrd r12, lr, [r0], #8"]
    for place, sums in (("[r1, r2]", REGISTERS[4:]), (f"[r1], #{size}", SUMS)):
        code += [
            f"ldr{letter} r3, {place}",
            f"smlald {sums[0]}, {sums[1]}, r3, r12",
            f"smlald {sums[2]}, {sums[3]}, r3, lr",
        ]
    return tuple(code)


def rows_of_halves(odd: bool) -> Function:
    """The function for rows of int16. `odd`: a last value by itself; the other half of the columns' words is 0."""
    enter = ["ldrd r12, lr, [sp, #36]", "sub sp, sp, #40", moved(40),
             "/* sp: 0 y, 4 factor, 8 half, 16 shift, 20 across, 24 down, 28 columns, 32 end, 36 x_end */",
             "ldm r12!, {r4-r9}", "mov r10, r0", "mov r11, r3", "str r2, [sp]", "add r2, sp, #4",
             "stm r2, {r4-r11, lr}", "ldr r2, [r12]"]  # fmt: skip
    bodies = tuple((f"{2 + group}:", *_pair("", 4)) for group in range(4))
    into = ("lsls r3, r3, #28 /* the lowest bit of the count becomes the sign, the next the carry */",
            "bcc 6f", "bpl 4f", "b 3f", "6:", "bmi 5f")  # fmt: skip
    turn: list[Part] = ["1:", "sub r3, r3, r0", *(f"mov {v}, #0" for v in REGISTERS)]
    turn.append(Unrolled("pairs", into, (3, 3, 3, 4), bodies, ("ldr r3, [sp, #32]", "cmp r0, r3", "bne 2b")))
    turn += [*(_pair("h", 2) if odd else ()), "ldr r0, [sp, #4]", "ldr r3, [sp, #16]", "add r1, r1, r2"]
    for low, high in zip(REGISTERS[::2], REGISTERS[1::2], strict=True):
        turn += ["ldrd r12, lr, [sp, #8]", f"umlal r12, lr, {low}, r0", f"mla lr, {high}, r0, lr", "asr lr, lr, r3"]
        turn.append(f"ssat {low}, #16, lr")
    turn += ["ldr lr, [sp]", "ldrd r0, r12, [sp, #20]"]
    for one, other in (("r4", "r6"), ("r8", "r10")):
        turn += [f"strh {one}, [lr]", f"strh {other}, [lr, r0]", "add lr, lr, r12"]
    turn += ["str lr, [sp]", "add r12, sp, #28", "ldm r12, {r0, r3, r12}", "cmp r1, r12", "bne 1b"]
    return framed(
        f"eb_rows_halves{'_odd' if odd else ''}",
        "const uint32_t *columns, const int16_t *x, int16_t *y, const uint32_t *end, const int32_t *numbers, "
        "const int16_t *x_end",
        "Rows of int16 from x to x_end, two at a time, by two columns whose pairs of values lie side by side. Sums "
        "have 64 bits; a result is the upper word of sum * factor + half, shifted right. numbers: factor, two words of "
        "the half, shift, bytes from a column of y to the next, from a row of y to the next, from a row of x to the "
        f"next. `end`: of the columns' {'whole ' if odd else ''}pairs. r1 the rows, which may be unaligned, r4 to "
        "r11 the sums.",
        REGISTERS, (*enter, Loop("rows", tuple(turn)), "add sp, sp, #40", moved(-40)),
    )  # fmt: skip


FUNCTIONS = {f"eb_rows{kind}_{end}": partial(rows, kind, end) for kind in KINDS for end in ("signed", "once")}
FUNCTIONS |= {f"eb_rows_halves{'_odd' * odd}": partial(rows_of_halves, odd) for odd in (False, True)}


def product(layer: KernelLayer) -> Kernel | None:
    """The kernel of int8 in blocks of two rows and two columns; an odd last one is computed with the one before it."""
    op, graph, k = layer.op, layer.graph, layer.plain
    (x, w), y = graph.operands(op), graph.result(op)
    m, c, (a, b, n, columns) = contractions.multiplier(op, graph), x.shape[3], y.shape
    finish = _finish(graph.arithmetic, m, c)
    fits = {x.dtype, w.dtype, y.dtype} == {"int8"} and 8 <= c < MAX_TERMS
    if not fits or not finish or spatial.bounds(op, y) != (-128, 127):
        return None
    groups = -(-c // 4)
    shape = {
        **k.shape, **_pairs(n, c, columns), "item": "int8_t", "rows": f"eb_rows{_kind(c)}_{finish}",
        "ragged": bool(c % 4), "fours": c // 4 * 4, "words": 4 * groups - 4 * bool(c % 4), "back": -c % 4,
    }  # fmt: skip
    scalars = {"x0_zero": zero_of(x), "x1_zero": zero_of(w), "y_zero": zero_of(y)}
    scalars |= {"m": 2 * m.mantissa - 2**32, "s": -(2 ** (32 + m.shift))}
    widen = (3.3 if op.attrs["turned"] else 3.8) * c + 20 + 50 * (c % 4 > 0)
    cost = 30.0 + a * b * -(-columns // 2) * (widen + 25 + -(-n // 2) * (32 + 16.3 * groups))
    return Kernel(
        "arm_dsp/matrix.c:matmul", k.stem, shape, k.constants, scalars,
        scratch=16 * groups, variant="dsp two columns", estimate=cost,
    )  # fmt: skip


def _pairs(n: int, c: int, columns: int) -> dict[str, int | bool]:
    """Template numbers of pairs of rows and columns: an odd one with the one before it; a single one is both."""
    return {
        "row": c if n > 1 else 0, "down": columns if n > 1 else 0, "end": c * max(1, n // 2 * 2),
        "odd": n > 1 and n % 2 == 1, "odd_x": (n - 2) * c, "odd_y": (n - 2) * columns, "odd_end": n * c,
        "last": max(0, columns - 2), "column": min(1, columns - 1),
    }  # fmt: skip


def halves(layer: KernelLayer) -> Kernel | None:
    """The kernel of TFLite's int16 in blocks of two rows and two columns, with sums of 64 bits."""
    op, graph, k = layer.op, layer.graph, layer.plain
    (x, w), y = graph.operands(op), graph.result(op)
    c, (a, b, n, columns), tensors = x.shape[3], y.shape, (x, w, y)
    if not graph.arithmetic.fixed_point or any(t.dtype != "int16" or zero_of(t) for t in tensors) or c < 2:
        return None
    m, full = contractions.multiplier(op, graph), spatial.bounds(op, y) == (-(2**15), 2**15 - 1)
    right = 15 - m.shift  # right shift of sum * mantissa, halves up
    if not full or not 17 <= right <= 62:
        return None
    near = right <= 32
    scalars: dict[str, int | float] = {"factor": m.mantissa << (32 - right) if near else m.mantissa}
    scalars |= {"half": -(2**31) if near else 0, "half_high": 0 if near else 1 << (right - 33)}
    scalars["shift"] = max(0, right - 32)
    rows = f"eb_rows_halves{'_odd' if c % 2 else ''}"
    shape = {**k.shape, **_pairs(n, c, columns), "item": "int16_t", "rows": rows, "ragged": False, "words": c // 2 * 2}
    cost = 30.0 + a * b * -(-columns // 2) * (4 * c + 40 + -(-n // 2) * (60 + 3.7 * c))
    return Kernel(
        "arm_dsp/matrix.c:matmul", k.stem, shape, k.constants, scalars,
        scratch=4 * (c + c % 2), variant="dsp pairs of int16", estimate=cost,
    )  # fmt: skip


def wide(layer: KernelLayer) -> Kernel | None:
    """The kernel of int16 with any bounds and scale: pairs of elements of a row by two columns, in sums of 64 bits."""
    op, graph, k = layer.op, layer.graph, layer.plain
    (x, w), (a, b, n, columns) = graph.operands(op), graph.result(op).shape
    c = x.shape[3]
    if {x.dtype, w.dtype, graph.result(op).dtype} != {"int16"} or zero_of(x) or zero_of(w) or c % 2 or columns < 2:
        return None
    shape = {**k.shape, **_pairs(n, c, columns), "item": "int16_t", "rows": "", "ragged": False, "words": c,
             "step": next(n for n in (8, 4, 2, 1) if c % (2 * n) == 0)}  # fmt: skip
    scalars = {name: value for name, value in k.scalars.items() if name not in ("x0_zero", "x1_zero")}
    cost = 30.0 + a * b * -(-columns // 2) * (5 * c + 30 + n * (90 + 2.6 * c))
    return Kernel(
        "arm_dsp/matrix.c:matmul", k.stem, shape, k.constants, scalars,
        scratch=4 * c, variant="dsp columns of int16", estimate=cost,
    )  # fmt: skip


def _kind(c: int) -> str:
    """The suffix of the function for rows of c bytes: how it loops over groups of four."""
    return "_ragged" if c % 4 else "" if c < 12 else "_odd" if c // 4 % 2 else "_even"


def _finish(arithmetic: Arithmetic, m: Multiplier, c: int) -> str:
    """The finish of sums of c terms below 2^16, as in `Sums.finish`; "": none is exact."""
    if not 1 <= -m.shift <= 31:
        return ""
    if arithmetic.fixed_point:
        return "signed"
    return "once" if 2**16 * c * (m.mantissa & -m.mantissa) < 2 ** (30 - m.shift) else ""


def state(layer: KernelLayer) -> Kernel | None:
    """The kernel of an SVDF's state: features are widened once, with their zero point folded into the start values."""
    (old, x, w), y, k = layer.graph.operands(layer.op), layer.graph.result(layer.op), layer.plain
    if (old.dtype, x.dtype, y.dtype) != ("int16", "int8", "int16") or w.data is None:
        return None
    (filters, features), scalars = w.shape, _rounding_scalars(layer)
    if features % 4 or old.elements < 2 or scalars is None:
        return None
    start = (-zero_of(x) * w.data.astype(np.int64).sum(axis=1)).astype(np.int32)
    constants = *k.constants, Constant("start", start, "start values")
    shape = {**k.shape, "step": 2 if features % 8 == 0 else 1, "pairs": (old.elements - 1) // 2}
    estimate = 30.0 + 2 * features + 2.5 * old.elements + filters * (17 + 2.3 * features)
    return replace(
        k, template="arm_dsp/matrix.c:svdf", shape=shape, constants=constants, scalars=scalars, scratch=2 * features,
        variant="dsp four features", estimate=estimate,
    )  # fmt: skip


def total(layer: KernelLayer) -> Kernel | None:
    """The kernel of an SVDF's outputs: sums over time of pairs of int16."""
    (held, times), y, k = layer.graph.operands(layer.op)[:2], layer.graph.result(layer.op), layer.plain
    terms, units, scalars = int(str(k.shape["T"])), int(str(k.shape["U"])), _rounding_scalars(layer)
    if (held.dtype, times.dtype, y.dtype) != ("int16", "int16", "int8") or terms % 2 or scalars is None:
        return None
    shape = {**k.shape, "step": 2 if terms % 4 == 0 else 1}
    return replace(
        k, template="arm_dsp/matrix.c:svdf", shape=shape, scalars=scalars, variant="dsp two times",
        estimate=20 + units * (28 + 3.2 * terms),
    )  # fmt: skip


def _rounding_scalars(layer: KernelLayer) -> dict[str, int | float] | None:
    """Scalars of the rounding in two multiplications; None if results have other bounds than their type's."""
    k, y = layer.plain, layer.graph.result(layer.op)
    if not layer.graph.arithmetic.fixed_point or is_float(y):
        return None
    if (k.scalars["low"], k.scalars["high"]) != fixedpoint.limits(y.dtype):
        return None
    mantissa, shift = int(k.scalars["multiplier"]), int(k.scalars["shift"])
    if not -31 <= shift <= -1:
        return None
    return {"y_mul": 2 * mantissa - 2**32, "y_shift": -(2 ** (32 + shift)), "y_zero": zero_of(y)}
