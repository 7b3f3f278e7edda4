"""Kernels for Armv8.1-M with MVE (Helium): dot products of sixteen int8 and requantisation of four channels at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ...ir import Array
from ...ops.base import PIXELS, Constant, Form, Kernel, Sums, Traffic, zero_of
from ...ops.spatial import in_place, sums_shape
from .. import phases
from ..micro import Function, Loop, Part, moved, pushed
from ..row import KernelLayer
from . import lanes
from .lanes import LANES, SAVED, multiplied, plus

# Depthwise outputs of four channels at a time for MVE: whole functions in assembly, each for one layer.
#
# `Columns`: a window is one vector of a channel's columns. `Words`: a window is 16 words of columns, a byte of each of
# four channels in a word, which VLD4 splits by channel. Loads alternate with products, so that both units work at once.

AWAY = "/* halves away from zero */"


@dataclass(frozen=True)
class Columns:
    """The function for a row of `outputs`. `plane`: bytes of a channel's columns; `advance`: between windows."""

    taps: int
    plane: int
    outputs: int
    advance: int
    channels: int
    finish: str

    @property
    def clamped(self) -> bool:
        return self.finish.endswith("_clamped")

    @property
    def planes(self) -> list[str]:
        """Pointers to the columns of the other channels, from those of the first in r1."""
        return [f"add {to}, {of}, #{self.plane}" for of, to in pairwise(("r1", "r8", "r9", "r10"))]

    def windows(self) -> list[Part]:
        """Code for sums and results; columns of each channel at r1 r8 r9 r10, results to r3, start values at r5."""
        step, end = f"#{self.advance}", list[str]()
        code = ["7:", f"vldrb.u8 q1, [r1], {step}", f"vldrb.u8 q0, [r8], {step}", "vmladav.s8 r0, q1, q4"]
        code += [f"vldrb.u8 q1, [r9], {step}", "vmladav.s8 r2, q0, q5", f"vldrb.u8 q0, [r10], {step}"]
        code += ["vmladav.s8 r4, q1, q6", "vldrw.u32 q1, [r5]", "vmladav.s8 r6, q0, q7", "vmov q0[2], q0[0], r0, r4"]
        code += ["vmov q0[3], q0[1], r2, r6", "vadd.i32 q0, q0, q1", f"{multiplied(self.finish)} q0, q0, q3"]
        code += [f"vshr.s32 q1, q0, #31 {AWAY}", "vadd.i32 q0, q0, q1"] if self.finish.startswith("signed") else []
        code += ["vrshl.s32 q0, q0, q2", "vqmovnb.s32 q0, q0"]
        if self.clamped:
            code += ["vldrh.u16 q1, [r11]", "vqadd.s16 q0, q0, q1", "vqmovnb.s16 q0, q0", "vldrb.u8 q1, [r11, #16]"]
            code += ["vmax.s8 q0, q0, q1", "vldrb.u8 q1, [r11, #32]", "vmin.s8 q0, q0, q1"]
        else:
            code += ["vqadd.s16 q0, q0, r11", "vqmovnb.s16 q0, q0"]
        if self.channels < 4:
            for j in range(self.channels):
                end += [f"vmov.u8 r0, q0[{4 * j}]", "strb r0, [r3], #1"]
        elif self.channels < 128:
            end = [f"vstrb.32 q0, [r3], #{self.channels}"]
        else:
            end = ["vstrb.32 q0, [r3]", f"add.w r3, r3, #{self.channels}"]
        begin = [f"movw r4, #{self.outputs}", "dls lr, r4"]
        return [*begin, Loop("outputs", (*code, *end, "le lr, 7b"))]

    def function(self, name: str) -> Function:
        ends = "const int16_t *" if self.clamped else "int32_t "
        parameters = ("const uint8_t *turn", "const int8_t *columns", "const int8_t *w", "int8_t *y", f"{ends}ends")
        taps = [f"add {to}, {of}, #{n}" for to, of, n in zip(
            ("r0", "r2", "r4", "r6"), ("r5", "r0", "r2", "r4"), (36, *(self.taps,) * 3), strict=True)]  # fmt: skip
        loads = [f"vldrbt.u8 q{4 + i}, [{r}, q0]" for i, r in enumerate(("r0", "r2", "r4", "r6"))]
        return Function(
            name, tuple(f"EB_REG {p}" for p in parameters),
            "A row of outputs of four channels. A window is one piece of 16 bytes; weights behind the last tap are 0. "
            "r0 r2 r4 r6 sums, r1 r8 r9 r10 columns of each channel, r5 weights, r3 result; q4 to q7 weights, turned "
            "to where the window's first row lies, q3 and q2 multipliers and shifts.",
            ("push {r4-r11, lr}", pushed((*SAVED, "lr")), "vpush {d8-d15}", moved(64), "ldr r11, [sp, #100]",
             "mov r5, r2", "vldrb.u8 q0, [r0]", f"movs r4, #{self.taps}", "vctp.8 r4", *taps, "vpstttt", *loads,
             "vldrw.u32 q3, [r5, #16]", "vldrb.s32 q2, [r5, #32]", *self.planes, *self.windows(), "vpop {d8-d15}",
             moved(-64), "pop {r4-r11, pc}"),
        )  # fmt: skip


ALL = tuple(f"r{n}" for n in range(12))
LEAVE = ("vpop {d8-d15}", moved(-64), "add sp, sp, #16", moved(-16), "pop {r4-r11, pc}")


@dataclass(frozen=True)
class RowOfColumns(Columns):
    """The function for all channels of a row. It copies `used` pixels of the window's rows to columns.

    `of`: channels of x. `rows`: of the window; `narrow`: eight lanes hold all pixels. `step`: bytes of four channels.
    """

    rows: int
    used: int
    of: int
    narrow: bool
    step: int

    def function(self, name: str) -> Function:
        ends = "const int16_t *" if self.clamped else "int32_t "
        parameters = ("const int8_t *const *rows", "const uint16_t *places", "const int8_t *w", "int8_t *y",
                      "int8_t *columns", "int32_t first", "int32_t n", f"{ends}ends")  # fmt: skip
        code: list[Part] = ["1:", "ldrd r2, r4, [sp, #64]", "vldrh.u16 q1, [r4]", "vadd.i16 q1, q1, r12"]
        code += ["vldrh.u16 q2, [r4, #16]", "ldrd r1, r0, [sp, #116]", "vadd.i16 q2, q2, r0", *self.planes]
        code += ["ldr r7, [sp, #124]", *self._filled(), "3:", f"movs r4, #{self.taps}", "vctp.8 r4", "vpstttt"]
        code += [f"vldrbt.u8 q{4 + j}, [r5, #{36 + j * self.taps}]" for j in range(4)]
        code += ["vldrw.u32 q3, [r5, #16]", "vldrb.s32 q2, [r5, #32]", "ldr r3, [sp, #76]", "add r3, r3, r12"]
        code += ["ldr r11, [sp, #128]", *self.windows(), f"adds r5, r5, #{self.step}", "add.w r12, r12, #4"]
        code += [f"movw r4, #{self.channels}", "cmp r12, r4", "bne 1b"]
        return Function(
            name, tuple(f"EB_REG {p}" for p in parameters),
            "All channels of a row of outputs, four at a time: `n` rows of x into their columns from slot `first` on, "
            "of which the others are padding, then the sums. A window is one piece of 16 bytes; weights behind the "
            "last tap are 0. r12 first of the four channels, r2 rows, r6 r4 row of the first two and of the last two "
            "channels, q1 and q2 where pixels lie in x and among the columns; then r0 r2 r4 r6 sums, r1 r8 r9 r10 "
            "columns of each channel, r5 weights, r3 result; q4 to q7 weights, q3 and q2 multipliers and shifts.",
            ("push {r0-r11, lr}", pushed((*ALL, "lr")), "vpush {d8-d15}", moved(64),
             "/* sp: 64 rows, 68 places, 76 y, 116 columns, 120 first, 124 n, 128 ends */", "mov r5, r2",
             "mov.w r12, #0", Loop("fours", tuple(code)), *LEAVE),
        )  # fmt: skip

    def _filled(self) -> list[Part]:
        """Copy rows to columns."""
        spread = ["vldrh.u16 q0, [r6, q1]", "vstrb.16 q0, [r1, q2]", "vshr.u16 q0, q0, #8", "vstrb.16 q0, [r8, q2]",
                  "vldrh.u16 q0, [r4, q1]", "vstrb.16 q0, [r9, q2]", "vshr.u16 q0, q0, #8", "vstrb.16 q0, [r10, q2]",
                  ]  # fmt: skip
        row = ("2:", "ldr r6, [r2], #4", "adds r4, r6, #2")
        if self.narrow:
            turn = (*row, *spread, "vadd.i16 q2, q2, r0", "le lr, 2b")
            return ["movs r0, #1", "wls lr, r7, 3f", Loop("rows", turn)]
        eight = ("4:", *spread, f"add.w r6, r6, #{8 * self.of}", f"add.w r4, r4, #{8 * self.of}", "vadd.i16 q2, q2, r0",
                 "letp lr, 4b")  # fmt: skip
        turns = (*row, "vmov q2, q4", "dlstp.16 lr, r11", Loop("eights", eight), "vadd.i16 q4, q4, r3",
                 "subs r7, r7, #1", "bne 2b")  # fmt: skip
        head = ["cbz r7, 3f", f"movs r0, #{8 * self.rows}", "movs r3, #1", f"movw r11, #{self.used}", "vmov q4, q2"]
        return [*head, Loop("rows", turns)]


@dataclass(frozen=True)
class Words:
    """The function for all outputs of an image, along rows or columns, or of a row: `outer` lines of `inner` outputs.

    `high`: taps of the window across lines; `over`, `along`: strides; `before_lines`, `before`: padding. x has `lines`
    of `used` pixels at a distance of `beside`, `line` from one to the next, or lists them; `behind` pixels of padding
    follow.
    `ahead`, `down`: from an output to the next, from a line to the next. `outside`: windows reach out of the image.
    `step`: bytes of the weights of four channels.
    """

    taps: int
    high: int
    over: int
    along: int
    before_lines: int
    before: int
    lines: int
    used: int
    behind: int
    line: int
    beside: int
    ahead: int
    down: int
    outer: int
    inner: int
    channels: int
    step: int
    outside: bool
    listed: bool
    finish: str

    @property
    def clamped(self) -> bool:
        return self.finish.endswith("_clamped")

    @property
    def turned(self) -> int:
        """Lanes by which the second output's weights are higher."""
        return self.high * self.along

    def _products(self, sum_: str, j: int, second: bool) -> list[str]:
        """The weights of channel j for the first or the second output: products with the windows."""
        at = 32 * j + (0 if second else self.turned)
        return [f"vldrb.u8 q4, [r5, #{at}]", f"vmladav.s8 {sum_}, q{j}, q4"]

    def _pair(self) -> list[str]:
        """Code for two outputs of four channels; after it, the next two's windows are in q0 to q3."""
        high, four = multiplied(self.finish), [f"vld4{i}.8 {{q0, q1, q2, q3}}, [r1]" for i in range(4)]
        code = [*self._products("r0", 0, False), *self._products("r8", 0, True), *self._products("r4", 2, False)]
        code += [*self._products("r12", 2, True), *self._products("r2", 1, False), "vmov q6[2], q6[0], r0, r4"]
        code += [*self._products("r10", 1, True), "vmov q7[2], q7[0], r8, r12", *self._products("r6", 3, False)]
        code += [*self._products("r0", 3, True), "vldrw.u32 q4, [r7]", "vmov q6[3], q6[1], r2, r6"]
        code += ["vmov q7[3], q7[1], r10, r0", "vadd.i32 q6, q6, q4", *plus("r1", "r1", 8 * self.turned)]
        code += [f"{high} q6, q6, q5", "vadd.i32 q7, q7, q4", four[0], f"{high} q7, q7, q5"]
        if self.finish.startswith("signed"):
            code += [f"vshr.s32 q4, q6, #31 {AWAY}", four[1], "vadd.i32 q6, q6, q4", "vshr.s32 q4, q7, #31", four[2]]
            code += ["vadd.i32 q7, q7, q4", "vldrb.s32 q4, [r7, #32]", "vrshl.s32 q6, q6, q4", "vqmovnb.s32 q6, q6"]
            code.append("vrshl.s32 q7, q7, q4")
        else:
            code += ["vldrb.s32 q4, [r7, #32]", "vrshl.s32 q6, q6, q4", four[1], "vqmovnb.s32 q6, q6", four[2]]
            code.append("vrshl.s32 q7, q7, q4")
        code += [*plus("r2", "r3", self.ahead), "vqmovnt.s32 q6, q7 /* the outputs take turns */", four[3]]
        code += ["vldrb.u8 q4, [r5, #-32]"] if self.clamped else []
        code += ["vqadd.s16 q6, q6, r9", "vqmovnb.s16 q6, q6"]
        code += ["vmax.s8 q6, q6, q4", "vldrb.u8 q4, [r5, #-16]", "vmin.s8 q6, q6, q4"] if self.clamped else []
        return [*code, "vstrb.32 q6, [r3]", *plus("r3", "r2", self.ahead), "vshr.u32 q6, q6, #16", "vstrb.32 q6, [r2]"]

    def _line(self) -> list[Part]:
        """Copy a line of x, or padding, to its columns."""
        padding, code = (
            f"str r6, [r11], #{4 * self.high}",
            list[Part](("2:", "ldrd r9, r11, [sp]", "ldr r6, [sp, #144]")),
        )
        if self.listed:
            code += ["ldr r9, [r9]", "ldr r0, [sp, #20]", *(("cmp r9, #0", "beq 4f") if self.outside else ())]
            code.append("add r9, r9, r0")
        elif self.outside:
            code += [f"movw r0, #{self.lines}", "cmp r8, r0", "bhs 4f"]
        code += [padding] * self.before + [f"movw r4, #{self.beside % 65536}"]
        code += [f"movt r4, #{self.beside >> 16}"] if self.beside > 65535 else []
        if self.used > 1:
            two = ("3:", "ldr r0, [r9]", "ldr r2, [r9, r4]", "add.w r9, r9, r4, lsl #1",
                   *(f"str {r}, [r11], #{4 * self.high}" for r in ("r0", "r2")), "le lr, 3b")  # fmt: skip
            code += [f"movw lr, #{self.used // 2}", "dls lr, lr", Loop("twos", two)]
        code += ["ldr r0, [r9]", f"str r0, [r11], #{4 * self.high}"] if self.used % 2 else []
        code += [padding] * self.behind
        if self.outside:
            code += ["b 5f", "4:", f"movw lr, #{self.before + self.used + self.behind}", "dls lr, lr"]
            code += [Loop("nothing", ("3:", padding, "le lr, 3b")), "5:"]
        code += ["ldrd r0, r2, [sp]", *plus("r0", "r0", self.line, "r4"), "adds r2, r2, #4", "strd r0, r2, [sp]"]
        return [*code, "cmp r8, r10", "add r8, r8, #1", "bne 2b"]

    def function(self, name: str) -> Function:
        windows, pair = [f"vld4{i}.8 {{q0, q1, q2, q3}}, [r1]" for i in range(4)], self._pair()
        line: list[Part] = [Loop("lines", tuple(self._line())), "push {r8, r10}", moved(8), "ldrd r1, r3, [sp, #16]"]
        line += [f"add r0, r1, #{4 * self.over}", *plus("r2", "r3", self.down, "r4"), "strd r0, r2, [sp, #16]"]
        line += ["ldr r9, [sp, #156]", *windows]
        if self.inner % 2:
            line += [*pair, *plus("r1", "r1", -4 * self.turned), *plus("r3", "r3", -self.ahead), *windows]
        if self.inner > 3:
            pairs = Loop("pairs", ("6:", *pair, "le lr, 6b"))
            line += [f"movw lr, #{self.inner // 2}", "dls lr, lr", pairs]
        else:
            line += pair
        line += ["pop {r8, r10}", moved(-8), f"add r10, r10, #{self.over}", "ldr r0, [sp, #16]", "subs r0, r0, #1"]
        group: list[Part] = ["1:", "ldr r5, [sp, #140]", f"movs r4, #{self.taps}", "vctp.8 r4", "vpstttt"]
        group += [f"vldrbt.u8 q{4 + j}, [r7, #{36 + j * self.taps}]" for j in range(4)]
        group += [f"vstrb.8 q{4 + j}, [r5, #{32 * j + self.turned}]" for j in range(4)]
        group += [
            "vldrw.u32 q5, [r7, #16]",
            "ldr r0, [sp, #88]",
            *plus("r0", "r0", -self.before_lines * self.line, "r2"),
        ]
        group += ["ldr r2, [sp, #100]", "strd r0, r2, [sp]", "ldr r0, [sp, #96]", "strd r2, r0, [sp, #8]"]
        group += [f"movw r0, #{self.outer}", "str r0, [sp, #16]", *_number("r8", -self.before_lines)]
        group += [
            *_number("r10", self.high - 1 - self.before_lines),
            Loop("outer", (*line, "str r0, [sp, #16]", "bne 2b")),
        ]
        for at in (20 if self.listed else 88, 96):
            group += [f"ldr r0, [sp, #{at}]", "adds r0, r0, #4", f"str r0, [sp, #{at}]"]
        group += [
            f"adds r7, r7, #{self.step}",
            "ldr r0, [sp, #92]",
            *plus("r0", "r0", self.step * self.channels // 4, "r2"),
        ]
        kinds = (f"const int8_t *{'const *' if self.listed else ''}x", "const int8_t *w", "int8_t *y",
                 "int8_t *columns", "int8_t *weights", "uint32_t padding", "int32_t zero")  # fmt: skip
        return Function(
            name, tuple(f"EB_REG {kind}" for kind in kinds),
            "All outputs of four channels after the other. A window is 16 words of columns, a byte of each channel in "
            "a word, and the next output's window shares them. A new line of x is written a word further than the one "
            "before it, to where nobody needs the column beside it any more. "
            f"{'x lists the rows under the windows. ' if self.listed else ''}r0 r2 r4 r6 sums of an output, r8 r10 r12 "
            "r0 of the next, r1 window, r3 result, r5 weights, r7 start values and shifts, q5 multipliers. Between "
            "lines: r8 line, r10 the last one under the window, r9 pixels, r11 columns.",
            (".p2align 2", "push {r0-r11, lr}", pushed((*ALL, "lr")), "vpush {d8-d15}", moved(64), "sub sp, sp, #24",
             moved(24), "/* sp: 0 line of x, 4 its columns, 8 windows, 12 line of y, 16 lines left, */",
             f"/* {'20 channel, ' if self.listed else ''}88 x, 96 y, 100 columns, 140 weights, 144 padding, */",
             "/* 148 zero */", "mov r7, r1", *(("movs r0, #0", "str r0, [sp, #20]") if self.listed else ()),
             Loop("fours", (*group, "cmp r7, r0", "bne 1b")), "add sp, sp, #24", moved(-24), *LEAVE),
        )  # fmt: skip


def _number(to: str, number: int) -> list[str]:
    return [f"movw {to}, #{number}" if number >= 0 else f"mvn {to}, #{-1 - number}"]


SHARED, COLUMNS, ROW = 1.35, 1.55, 1.75  # paces: loads are close to what waits for them (`bench-cycles`)
MAX_OVER = 32  # pixels that are copied before their results are written over them


def stream(s: Sums, taps: Array) -> Array:
    """Weights (K x taps) as eb_mve1 and eb_mve2 read them; channels after K in the last group are 0."""
    k, n = taps.shape
    groups = -(-k // 4)
    missing = 4 * groups - k
    w = np.pad(taps, ((0, missing), (0, 0))).reshape(groups, 4, n)
    full = n // LANES * LANES
    sixteens = w[:, :, :full].reshape(groups, 4, -1, LANES).transpose(0, 2, 1, 3).reshape(groups, -1)
    numbers = (np.pad(a, (0, missing)).reshape(groups, 4) for a in (s.start, s.mantissa))
    start, mantissa = (a.astype("<i4").view(np.int8) for a in numbers)
    shift = np.pad(-s.right, (0, missing)).reshape(groups, 4).astype(np.int8)
    parts = (start, sixteens.astype(np.int8), w[:, :, full:].reshape(groups, -1).astype(np.int8), mantissa, shift)
    return np.concatenate(parts, axis=1).view("<i4").astype(np.int32)


def convolution(lean: int, own: bool, s: Sums, form: Form) -> Kernel | None:
    """The kernel for two pixels at a time: from x if a window is contiguous, else from columns of a row of outputs.

    `lean`: for little scratch, the columns of so many outputs; 0: of a row. `own`: with a function for this layer
    alone. Pixels that results may overwrite are copied, too, in larger blocks.
    """
    over = s.pointwise and form.in_place
    if over:
        pixels = s.size[0] * s.size[1]  # side by side
        s, lean = replace(s, size=(1, pixels, s.size[2]), out=(1, pixels, s.out[2])), 4 * lean or MAX_OVER
    (h, w, c), (oh, ow, _), (fh, fw) = s.size, s.out, s.window
    if not s.fits or s.weights.shape[3] != c or (s.dilation[1] != 1 and fw > 1):
        return None
    inside = s.pad == (0, 0) and (ow - 1) * s.stride[1] + fw <= w and (oh - 1) * s.stride[0] < h
    lines, pixels = (1, ow if form.rolled else oh * ow) if s.pointwise else (1 if form.rolled else oh, ow)
    shape: dict[str, Any] = sums_shape(s, form)
    blocks = 1
    if fh == 1 and inside and not over:
        if lean:
            return None
        shape |= {"gather": "direct", "advance": s.stride[1] * c}
        scratch, gathering = 0, 0.0
    else:
        if lean:
            blocks, pixels = -(-ow // lean), min(ow, lean)
        columns = _columns(s, pixels)
        shape |= {"gather": "columns", "advance": s.stride[1] * fh * c, **columns}
        scratch = columns["column"] * columns["columns"]
        each = 0.2 * c if fh == 1 else 15 * c / columns["piece"] if c < LANES else 9 + 0.2 * c
        copied = columns["columns"] - columns["kept"] * (blocks > 1)
        gathering = lines * blocks * (40 + fh * (15 + copied * each) + 0.2 * columns["kept"] * fh * c)
    shape |= {"lines": lines, "pixels": pixels}
    name = f"mve {shape['gather']}{f' of {lean}' if lean else ''}{', own' if own else ''}"
    return _convolution(s, s.weights.transpose(0, 2, 1, 3), shape, name, own, scratch, gathering, blocks, over)


def strips(s: Sums, form: Form) -> Kernel | None:
    """The kernel for two outputs of a column at a time, from a copied strip of x as wide as the window."""
    (h, w, c), (oh, ow, _), (fh, fw) = s.size, s.out, s.window
    if form.rolled or not s.fits or s.weights.shape[3] != c or s.dilation != (1, 1):
        return None
    piece, rows = fw * c, (oh - 1) * s.stride[0] + fh
    copied = max(0, min(h, rows - s.pad[0]))
    padded_columns = s.pad[1] > 0 or (ow - 1) * s.stride[1] - s.pad[1] + fw > w
    shape = sums_shape(s, form) | {
        "gather": "strips", "advance": s.stride[0] * piece, "lines": ow, "pixels": oh, "piece": piece, "rows": rows,
        "copied": copied, "padded_columns": padded_columns, "padded": padded_columns or copied < rows,
    }  # fmt: skip
    gathering = ow * (30 + copied * (16 + 3 * (piece // LANES)))
    return _convolution(s, s.weights, shape, "mve strips, own", True, rows * piece, gathering, 1, False)


def _convolution(
    s: Sums,
    weights: Array,
    shape: dict[str, Any],
    name: str,
    own: bool,
    scratch: int,
    gathering: float,
    blocks: int,
    over: bool,
) -> Kernel | None:
    """The kernel for pixels that are gathered as `shape` says, at a cost of `gathering` instructions."""
    k, how, lines, pixels = s.out[2], s.finish, shape["lines"], shape["pixels"]
    taps = weights.reshape(k, -1)
    packed = stream(s, taps)
    step = s.out[1] * k if shape["gather"] == "strips" else k  # bytes from a pixel's results to the next one's
    bytes_ = 4 * packed.shape[1]
    if own and (how == "sums" or k < 4 or pixels < 2 or max(step, bytes_ // 16, shape["advance"] // 8) >= 2**12):
        return None
    if own:
        two = lanes.pairs(taps.shape[1], shape["advance"], 7 + (step >= 128) + 4 * how.endswith("_clamped"))
        shape["pairs"] = lanes.LayerFunction(two, k // 4 * 4, taps.shape[1], bytes_, how, step, shape["advance"])
    shape |= {
        "own": own, "finish": how, "taps": taps.shape[1], "step": packed.shape[1], "beside": step,
        "full": k // 4 * 4, "tail": k % 4, "full_words": k // 4 * packed.shape[1],
    }  # fmt: skip
    scalars: dict[str, int | float] = {"x_zero": s.x_zero} if shape.get("padded") else {}
    scalars |= {"y_zero": s.y_zero, **s.bounds(how == "sums" or how.endswith("_clamped"))}
    products = lines * blocks * _products(s, pixels, taps.shape[1], shape.get("pairs"))
    return Kernel(
        "arm_mve/sum_kernels.c:conv", s.stem, shape, (Constant("w", packed.ravel(), "by groups of four channels"),),
        scalars, scratch=scratch, variant=name, estimate=(30 if gathering else 0) + gathering + products,
        pace=1.0 if own else SHARED, traffic=Traffic(passes=lines * blocks * -(-pixels // 2)),
        in_place=PIXELS if over else "",
    )  # fmt: skip


def _columns(s: Sums, pixels: int) -> dict[str, Any]:
    """Layout of the columns under some neighbouring outputs in the scratch: FH x C bytes for each column.

    The next outputs reuse `kept` of the columns. `offsets`: where the bytes of one vector are stored.
    """
    (h, w, c), (oh, ow, _), (fh, fw) = s.size, s.out, s.window
    columns, column = (pixels - 1) * s.stride[1] + fw, fh * c
    last = (oh - 1) * s.stride[0] - s.pad[0] + (fh - 1) * s.dilation[0]
    across = next(n for n in range(max(1, LANES // c), 0, -1) if n == 1 or (n - 1) * column + c <= 256)
    offsets = [i // c * column + i % c for i in range(across * c)] if c < LANES else []
    padded_rows = s.pad[0] > 0 or last >= h
    outputs = -(-ow // pixels) * pixels  # outputs of whole blocks
    padded_columns = s.pad[1] > 0 or (outputs - 1) * s.stride[1] - s.pad[1] + fw > w
    return {
        "column": column, "columns": columns, "kept": max(0, fw - s.stride[1]),
        "padded_rows": padded_rows, "padded_columns": padded_columns, "padded": padded_rows or padded_columns,
        "piece": across * c, "offsets": tuple(offsets + [0] * (LANES - len(offsets))),
    }  # fmt: skip


# Fitted to `./sconsw bench-kernels`: a call, a sum's result in C, a pixel's last group.
CALL, GENERAL, COPIED = 14, 40, 4


def _products(s: Sums, pixels: int, taps: int, own: lanes.LayerFunction | None) -> float:
    """Instructions for a line of pixels: of the layer's own function, and of those that layers share."""
    turns = {"sixteens": taps // LANES, "rest": int(taps % LANES > 0)}
    k, whole, last = s.out[2], s.out[2] // 4, s.out[2] % 4 > 0

    def shared(together: int, groups: int, tail: bool) -> float:
        f = lanes.micro(together, s.finish)
        if s.finish == "sums":
            return -(-k // 4) * (f.executed(groups=1, **turns) + CALL) + k * together * GENERAL
        instructions = f.executed(groups=groups, **turns) + CALL if groups else 0.0
        return instructions + (f.executed(groups=1, **turns) + CALL + COPIED * together if tail else 0)

    one = pixels % 2 * shared(1, whole, last)
    if own is None:
        return one + pixels // 2 * shared(2, whole, last)
    tails = pixels // 2 * shared(2, 0, True) if last else 0.0
    return one + tails + own.function("").executed(groups=whole, pairs=pixels // 2) + CALL


def depthwise(s: Sums, form: Form) -> Kernel | None:
    """The kernel for four channels at a time through columns of the rows under the window: a window is one vector."""
    (_, w, c), (oh, ow, k), (fh, fw) = s.size, s.out, s.window
    how, taps, advance = s.finish, fh * fw, s.stride[1] * fh
    total = (ow - 1) * s.stride[1] + fw
    plane = total * fh
    used = max(0, min(w, total - s.pad[1]))
    unfit = taps > LANES or advance > 127 or 4 * (plane + 2 * fh) >= 2**12 or c * 7 >= 2**16 or k >= 2**12
    if unfit or s.dilation != (1, 1) or not s.fits or how == "sums":
        return None
    fours = c == k and c % 4 == 0
    spread = [pixel * fh + channel * plane for channel in range(4 if fours else 1) for pixel in range(8)]
    turned = [
        [lane // fh * fh + (lane - turn) % fh if lane < taps else 0 for lane in range(LANES)] for turn in range(fh)
    ]
    columns = 4 * plane + LANES  # the last window is read as sixteen bytes
    clamped = how.endswith("_clamped")
    shape: dict[str, Any] = sums_shape(s, form) | {
        "clamped": clamped, "plane": plane, "used": used, "function": Columns(taps, plane, ow, advance, k, how),
        "fours": fours, "M": k // c, "row_by_itself": False, "turned": tuple(map(tuple, turned)),
        "places": (*(pixel * c for pixel in range(8)), *spread),
        "ends": -(-columns // 4) * 4,
    }  # fmt: skip
    packed = _fours(s)
    shape["step"] = packed.shape[1] * 4
    scalars = {"x_zero": s.x_zero, "y_zero": s.y_zero, **s.bounds(clamped)}
    eights, rows = -(-used // 8), 1 if form.rolled else oh
    fill = 25 + 12 * eights if fours else 64 + 20 * eights + 28 * (k > c)
    fills = rows * min(s.stride[0], fh) if fours and not form.rolled else (rows - 1) * s.stride[0] + fh
    row = 14 + shape["function"].function("").executed(outputs=ow)
    cost = 30 + 0.7 * plane + -(-k // 4) * (fills * fill + rows * row)
    constant = Constant("w", packed.ravel().view(np.int8), "by fours of channels")
    return Kernel(
        "arm_mve/sum_kernels.c:depthwise", s.stem, shape, (constant,), scalars,
        scratch=shape["ends"] + 48 * clamped, variant="mve columns", estimate=cost,
        pace=ROW if form.rolled else COLUMNS, in_place=in_place(s, form) if fours else "",
        traffic=Traffic(channels_in=4, channels_out=4),
    )  # fmt: skip


def depthwise_lines(upright: bool, s: Sums, form: Form) -> Kernel | None:
    """The kernel for four channels of two outputs at a time: along rows of an image, or columns if `upright`.

    Windows are words of four channels, which VLD4 splits by channel; two outputs side by side share them.
    """
    (_, w, c), (_, ow, k) = s.size, s.out
    how, taps = s.finish, s.window[0] * s.window[1]
    line, beside = (c, w * c) if upright else (w * c, c)  # bytes from a line of x to the next, from a pixel to the next
    down, ahead = (k, ow * k) if upright else (ow * k, k)
    along = 0 if upright else 1
    across = 1 - along
    (fi, fo), (si, so), (pi, po) = ((v[along], v[across]) for v in (s.window, s.stride, s.pad))
    (size, lines), (inner, outer) = ((v[along], v[across]) for v in (s.size, s.out))
    outside = po > 0 or (outer - 1) * so - po + fo > lines
    if form.rolled:  # a list of rows, without those before the image
        line, po, outer = 4, 0, 1
    total = (inner - 1) * si + fi
    used = max(0, min(size, total - pi))
    unfit = taps + fo * si > LANES or inner < 2 or c != k or c % 4 or not used or max(fi, fo, so) + pi + po > 40
    if unfit or (form.rolled and upright) or s.dilation != (1, 1) or not s.fits or how == "sums":
        return None
    clamped = how.endswith("_clamped")
    packed = _fours(s, upright)
    function = Words(
        taps, fo, so, si, po, pi, lines, used, total - pi - used, line, beside, ahead, down, outer, inner, k,
        packed.shape[1] * 4, outside, form.rolled, how,
    )  # fmt: skip
    shape: dict[str, Any] = sums_shape(s, form) if form.rolled else {"rolled": False}
    shape |= {"function": function, "upright": upright, "outside": outside, "clamped": clamped}
    words = (outer - 1) * so + fo * max(total, si * (inner + 1)) + LANES
    scalars = {"x_zero": s.x_zero, "y_zero": s.y_zero, **s.bounds(clamped)}
    filled = (outer - 1) * so + fo
    per_pair = 46 + 2 * clamped + 4 * how.startswith("signed")
    cost = 80 + k // 4 * (45 + filled * (24 + 2.5 * used + total - used) + outer * (32 + (inner + 1) // 2 * per_pair))
    constant = Constant("w", packed.ravel().view(np.int8), "by fours of channels")
    return Kernel(
        "arm_mve/sum_kernels.c:depthwise_lines", s.stem, shape, (constant,), scalars,
        scratch=128 + 32 * clamped + 4 * words, variant=f"mve {'columns' if upright else 'rows'} of words",
        estimate=cost, in_place=in_place(s, form), traffic=Traffic(channels_in=4, channels_out=4),
    )  # fmt: skip


def depthwise_row(s: Sums, form: Form) -> Kernel | None:
    """The depthwise kernel of a single row: one loop computes all channels, and gathers each column once."""
    kernel = depthwise(s, form) if form.rolled else None
    if kernel is None or not kernel.shape["fours"] or kernel.shape["used"] == 0:
        return None
    (_, w, c), (_, ow, k), (fh, fw) = s.size, s.out, s.window
    total = (ow - 1) * s.stride[1] + fw
    used = min(w, total - s.pad[1])
    narrow = used <= 8  # lanes past the row's end copy its last pixel again
    if not narrow and 8 * max(c, fh) >= 2**12:
        return None
    pixels = [min(pixel, used - 1) if narrow else pixel for pixel in range(8)]
    places = (*(pixel * c for pixel in pixels), *((s.pad[1] + pixel) * fh for pixel in pixels))
    whole = kernel.shape["function"]
    assert isinstance(whole, Columns)
    function = RowOfColumns(
        whole.taps, whole.plane, whole.outputs, whole.advance, whole.channels, whole.finish, fh, used, c, narrow,
        int(str(kernel.shape["step"])),
    )  # fmt: skip
    cost = 70 + 15 * fh + 0.7 * total * fh
    cost += function.function("").executed(fours=k // 4, rows=fh, eights=-(-used // 8), outputs=ow)
    shape: dict[str, Any] = {**kernel.shape, "function": function, "places": places, "row_by_itself": True}
    return replace(kernel, shape=shape, variant="mve row of columns", estimate=cost, pace=ROW)


def depthwise_channels(s: Sums, form: Form) -> Kernel | None:
    """The kernel for eight channels at a time: windows of one column or row without padding, few outputs a line."""
    (_, w, c), (oh, ow, k), (fh, fw) = s.size, s.out, s.window
    taps, how = fh * fw, s.finish
    if c != k or c % 8 or min(fh, fw) > 1 or s.padded_rows or s.padded_columns or form.rolled or not s.fits:
        return None
    if how == "sums":
        return None
    along = w * c * s.dilation[0] if fh > 1 else c * s.dilation[1]
    groups = c // 8
    halves = [a.reshape(groups, 4, 2).transpose(0, 2, 1).reshape(groups, 8) for a in (s.start, s.mantissa, -s.right)]
    start, mantissa = (a.astype("<i4").view(np.int8) for a in halves[:2])
    weights = s.weights.reshape(groups, 8, taps).transpose(0, 2, 1).reshape(groups, -1).astype(np.int8)
    packed = np.concatenate([start, weights, mantissa, halves[2].astype(np.int8)], axis=1)
    clamped = how.endswith("_clamped")
    scalars = {"y_zero": s.y_zero, **s.bounds(clamped)}
    shape = sums_shape(s, form) | {"finish": how, "taps": taps, "along": along}
    each = groups * (24 + 8 * taps + 3 * clamped + 4 * how.startswith("signed"))
    return Kernel(
        "arm_mve/sum_kernels.c:depthwise_channels", s.stem, shape,
        (Constant("w", packed.ravel(), "by eights of channels"),), scalars,
        variant="mve channels", estimate=30 + oh * ow * (12 + each), traffic=Traffic(passes=oh * ow),
    )  # fmt: skip


def _fours(s: Sums, by_rows: bool = False) -> Array:
    """The stream by fours of channels: start values, multipliers, shifts, and weights by columns or rows.

    The last four end with the last channel, which is repeated if there are fewer than four.
    """
    k = s.out[2]
    first = [min(at, max(0, k - 4)) for at in range(0, k, 4)]
    channels = np.minimum(np.array(first)[:, None] + np.arange(4), k - 1)
    weights = s.weights[..., 0] if by_rows else s.weights[..., 0].transpose(0, 2, 1)
    weights = weights.reshape(k, -1)[channels].astype(np.int8)
    numbers = [a[channels].astype("<i4").view(np.int8) for a in (s.start, s.mantissa)]
    parts = (*numbers, (-s.right)[channels].astype(np.int8), weights.reshape(len(first), -1))
    return np.concatenate(parts, axis=1).view("<i4").astype(np.int32)


# Grouped, dilated and transposed convolutions: operands under the taps of two pixels are copied, group by group.


def gathered_convolution(layer: KernelLayer) -> Kernel | None:
    """The kernel of convolutions that others do not serve: with groups, or with columns that are not neighbours."""
    op, w = layer.op, layer.graph.operands(layer.op)[1]
    neighbours = op.attrs["dilation"][1] == 1 or w.shape[2] == 1
    return None if op.attrs.get("groups", 1) == 1 and neighbours else gathered(layer)


def gathered(layer: KernelLayer) -> Kernel | None:
    """The kernel that gathers the taps of two pixels; None unless all phases rescale alike."""
    (op, graph), form = phases.joined(layer.op, layer.graph), layer.form
    taps = phases.taps(op, graph)
    (x, w), own = graph.operands(op)[:2], phases.groups(op, graph.result(op).shape[3])
    sums = phases.int8_sums(op, graph, taps)
    if not sums or sums[0].finish == "sums" or not all(p.finish == sums[0].finish for p in sums):
        return None
    weights = [each.weights[:, :, 0] for each in sums]  # zero for channels whose results are all zero
    s, (k, _, _, c) = sums[0], w.shape
    kg, most = k // len(own), max(part.shape[1] for part in weights)
    streams = [
        [stream(phases.group(p, g), part[g].reshape(kg, -1)) for g in own]
        for p, part in zip(sums, weights, strict=True)
    ]
    heads, at = [], 0
    for parts in streams:
        step = parts[0].shape[1]
        heads.append((at, -(-kg // 4) * step))
        at += sum(part.size for part in parts)
    table = phases.places(taps, heads)
    columns, pixel, padded = (-(-n // 4) * 4 for n in (2 * most * c, x.shape[3], kg))
    shape = phases.shape(layer, op, graph, table) | {
        "finish": s.finish, "bounds": s.finish.endswith("_clamped"), "tail": kg % 4, "padded": padded,
        "list": columns, "zeros": columns + 8 * most, "made": columns + 8 * most + pixel,
    }  # fmt: skip
    constants = (
        Constant("w", np.concatenate([part.ravel() for parts in streams for part in parts]), "by phases and groups"),
        Constant("places", table.ravel(), "of each phase: its weights, the next group's, taps"),
    )
    scalars = {"x_zero": zero_of(x), "y_zero": s.y_zero, **s.bounds(bool(shape["bounds"]))}
    mean = sum(part.shape[1] for part in weights) / len(weights)
    products = 60 + -(-kg // 4) * (30 + 15 * -(-mean * c // 16))
    pair = 40 + mean * 22 + len(own) * (mean * (25 + c / 8) + products)
    pairs = phases.pairs(op, graph, form)
    return Kernel(
        "arm_mve/sum_kernels.c:gathered", layer.plain.stem, shape, constants, scalars,
        scratch=columns + 8 * most + pixel + (2 * padded if kg % 4 else 0), variant="mve gathered taps",
        estimate=60 + x.shape[3] + pairs * pair, traffic=Traffic(passes=pairs),
    )  # fmt: skip
