"""Depthwise outputs of four channels at a time for MVE: whole functions in assembly, each for one layer.

`Columns`: a window is one vector of a channel's columns. `Words`: a window is 16 words of columns, a byte of each of
four channels in a word, which VLD4 takes apart. Loads stand between products, so that both units work at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from ..micro import Function, Loop, Part, moved, pushed
from .lanes import SAVED, multiplied, plus

AWAY = "/* halves away from zero */"


@dataclass(frozen=True)
class Columns:
    """A row of `outputs`. `plane`: bytes of a channel's columns; `advance`: from a window to the next."""

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
        """Columns of the other channels, from those of the first in r1."""
        return [f"add {to}, {of}, #{self.plane}" for of, to in pairwise(("r1", "r8", "r9", "r10"))]

    def windows(self) -> list[Part]:
        """Sums and results; columns of each channel at r1 r8 r9 r10, results to r3, start values at r5."""
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
    """All channels of a row. `used` pixels of rows of the window come to their columns, from x with `of` channels.

    `rows`: of the window; `narrow`: eight lanes hold all pixels. `step`: bytes of the weights of four channels.
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
        """Rows to columns."""
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
    """All outputs of an image, or of a row, along its `upright` columns or its rows: `outer` lines of `inner` outputs.

    `high`: taps of the window across lines; `over`, `along`: strides; `before_lines`, `before`: padding. x has `lines`
    of `used` pixels `beside` apart, `line` from one to the next, or lists them; `behind` pixels of padding follow.
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
        """Two outputs of four channels; then the next two's windows are in q0 to q3."""
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
        """A line of x, or of padding, to its columns."""
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
