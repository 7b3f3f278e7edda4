"""Sums of products for Armv8.1-M with MVE (Helium): sixteen products of int8 at a time, as functions in assembly.

The loops are assembly, because VMLADAVA takes sums in even registers only, and gcc moves them to odd ones and back.
They are whole functions, so that the user's optimisation level does not affect them.

The weights are a stream of groups of four channels: four start values, then the taps (16 of each channel in turn, the
last ones fewer), four multipliers and four shifts (int8, negative: to the right).

Sums become results as `finish` says: VQRDMULH is round(x * M / 2^31), halves up, and VRSHL the rounding shift, halves
up as well. For negative results the reference does that only if they are clamped away ("relu") or moved by one first
("signed"). VQDMULH does not round: both together then round once ("once"). "_clamped": bounds other than those of
int8. "sums": int32 are stored, which the caller requantises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import ClassVar

import numpy as np

from ...ir import Array
from ...ops.base import Form, Sums
from ..blocks.plane import Ends, Plane
from ..blocks.plane_cores import Thumb
from ..micro import Function, Loop, Part, Unrolled, asm, moved, pushed

LANES = 16
FINISHES = ("relu", "relu_clamped", "signed", "signed_clamped", "once", "once_clamped", "sums")
SUMS = (("r0", "r2", "r4", "r6"), ("r8", "r10", "r12", "lr"))  # registers of the first pixel's sums, of the second's
PIXELS, AT, WEIGHTS = ("q0", "q1"), ("r9", "r11"), "r5"  # their registers and pointers
SAVED = tuple(f"r{n}" for n in range(4, 12))


def _load(vector: str, pointer: str) -> str:
    return f"vldrb.u8 {vector}, [{pointer}], #16"


def multiplied(finish: str) -> str:
    """The instruction that multiplies sums by their factors, for this finish."""
    return f"{'vqdmulh' if finish.startswith('once') else 'vqrdmulh'}.s32"


def _sixteen(pixels: int, started: bool = False, ahead: bool = False) -> list[str]:
    """Sixteen taps with four channels: loads alternate with products, so that both units work at once.

    `started`: the pixels and the first weights are loaded; `ahead`: those of the next sixteen are loaded at the end.
    """
    if pixels == 1:  # loads take longer than products
        return [
            _load("q0", "r9"), _load("q2", WEIGHTS), _load("q3", WEIGHTS), "vmladava.s8 r0, q2, q0",
            _load("q2", WEIGHTS), "vmladava.s8 r2, q3, q0", _load("q3", WEIGHTS), "vmladava.s8 r4, q2, q0",
            "vmladava.s8 r6, q3, q0",
        ]  # fmt: skip
    code = [] if started else [_load("q0", "r9"), _load("q2", WEIGHTS)]
    code += ["vmladava.s8 r0, q2, q0", *([] if started else [_load("q1", "r11")])]
    code += [_load("q3", WEIGHTS), "vmladava.s8 r8, q2, q1", "vmladava.s8 r2, q3, q0"]
    code += [_load("q2", WEIGHTS), "vmladava.s8 r10, q3, q1", "vmladava.s8 r4, q2, q0"]
    code += [_load("q3", WEIGHTS), "vmladava.s8 r12, q2, q1", "vmladava.s8 r6, q3, q0"]
    return [*code, *([_load("q0", "r9")] if ahead else []), "vmladava.s8 lr, q3, q1",
            *([_load("q2", WEIGHTS), _load("q1", "r11")] if ahead else [])]  # fmt: skip


def _taps(pixels: int, past: str) -> list[Part]:
    """Code for all taps; for an odd number of sixteens the loop is entered at label 3."""
    first = (*("3:", _load("q0", "r9"), _load("q2", WEIGHTS), _load("q1", "r11"), "b 6f"),) if pixels == 2 else ()
    bodies = (
        (("2:", *_sixteen(2, ahead=True)), ("6:", *_sixteen(2, started=True)))
        if pixels == 2
        else (("2:", *_sixteen(1)), ("3:", *_sixteen(1)))
    )
    then = "t" if pixels == 2 else ""
    rest = ["vctp.8 r7 /* lanes behind the last tap read as 0 */", f"vpst{then}", "vldrbt.u8 q0, [r9]"]
    rest += ["vldrbt.u8 q1, [r11]"] if pixels == 2 else []
    for channel in range(4):
        rest += [f"vldrb.u8 q2, [{WEIGHTS}]", f"add {WEIGHTS}, {WEIGHTS}, r7"]
        rest += [f"vmladava.s8 {SUMS[pixel][channel]}, q2, {PIXELS[pixel]}" for pixel in range(pixels)]
    return [
        Unrolled("sixteens", first, (0, 4 if first else 0), bodies, (f"cmp r9, {past}", "bne 2b")), "4:",
        *(["ldr r7, [sp, #16]"] if pixels == 2 else []), "cbz r7, 5f", Loop("rest", tuple(rest)), "5:",
    ]  # fmt: skip


def _entered(pointer: str) -> tuple[str, ...]:
    """Set r4 to the end of a pixel's last sixteen taps, r6 to the loop's entry, r7 to the number of taps after that."""
    return asm(f"""
        bic r4, r7, #15
        add r4, r4, {pointer}
        adr.w r6, 2f
        tst r7, #16
        it ne
        adrne.w r6, 3f
        cmp r7, #16
        it lo
        adrlo.w r6, 4f
        orr r6, r6, #1
        and r7, r7, #15
        """)


def _ends(finish: str, at: int) -> list[str]:
    """Load the zero point and the bounds from the stack to vectors."""
    code = [] if finish == "sums" else [f"ldr r0, [sp, #{at}]", "vdup.16 q4, r0"]
    if finish.endswith("_clamped"):
        code += [f"ldrd r0, r2, [sp, #{at + 4}]", "vdup.8 q5, r0", "vdup.8 q6, r2"]
    return code


def _results(pixels: int, finish: str) -> list[str]:
    """Rescale and store sums of four channels; loads alternate with moves, so that both units work at once."""
    vectors = PIXELS[:pixels]
    code = [
        "vldrw.u32 q2, [r5], #16",
        "vmov q0[2], q0[0], r0, r4",
        "vldrb.s32 q3, [r5], #4",
        "vmov q0[3], q0[1], r2, r6",
    ]
    code += ["vmov q1[2], q1[0], r8, r12", "vmov q1[3], q1[1], r10, lr"] if pixels == 2 else []
    code += [f"{multiplied(finish)} {q}, {q}, q2" for q in vectors]
    if finish.startswith("signed"):
        for q in vectors:
            code += [f"vshr.s32 q2, {q}, #31 /* halves away from zero */", f"vadd.i32 {q}, {q}, q2"]
    code += [f"vrshl.s32 {q}, {q}, q3" for q in vectors]
    code += ["vqmovnb.s32 q0, q0", *(["vqmovnt.s32 q0, q1 /* the pixels take turns */"] if pixels == 2 else [])]
    code += ["vqadd.s16 q0, q0, q4", "vqmovnb.s16 q0, q0"]
    code += ["vmax.s8 q0, q0, q5", "vmin.s8 q0, q0, q6"] if finish.endswith("_clamped") else []
    code.append("vstrb.32 q0, [r1], #4")
    return code + (["vshr.u32 q0, q0, #16", "vstrb.32 q0, [r3], #4"] if pixels == 2 else [])


def function(pixels: int, finish: str) -> Function:
    """The function for one pixel or two by groups of four channels, w to w_end."""
    item = "int32_t" if finish == "sums" else "int8_t"
    kept = 0 if finish == "sums" else 48 if finish.endswith("_clamped") else 16
    vectors = "d8-d13" if kept == 48 else "d8-d9"
    xs, ys = (("x0", "x1"), ("y0", "y1")) if pixels == 2 else (("x",), ("y",))
    kinds = [*(f"const int8_t *{x}" for x in xs), "const int32_t *w", *(f"{item} *{y}" for y in ys)]
    kinds += ["const int32_t *w_end", "int32_t taps", "int32_t zero", "int32_t low", "int32_t high"]
    head = _two(finish, kept) if pixels == 2 else _one(finish, kept)
    return Function(
        f"eb_mve{pixels}_{finish}", tuple(f"EB_REG {kind}" for kind in kinds),
        f"`taps` int8 of {'two pixels each' if pixels == 2 else 'one pixel'} by groups of four channels, w to w_end.",
        (".p2align 2 /* for adr */", "push {r4-r11, lr}", pushed((*SAVED, "lr")),
         *((f"vpush {{{vectors}}}", moved(kept)) if kept else ()), *head,
         *((f"vpop {{{vectors}}}", moved(-kept)) if kept else ()), "pop {r4-r11, pc}"),
    )  # fmt: skip


def _two(finish: str, kept: int) -> list[Part]:
    stored: list[str] = ["stm r1!, {r0, r2, r4, r6}", "stm r3!, {r8, r10, r12, lr}", "adds r5, r5, #20"]
    return [
        f"ldr r7, [sp, #{kept + 44}]", *_entered("r0"), "push {r0, r1, r6, r7}", moved(16), "push {r4}", moved(4),
        "/* sp: 0 past the last sixteen, 4 x0, 8 x1, 12 where the loop is entered, 16 rest */",
        "mov r5, r2", "mov r1, r3", f"ldr r3, [sp, #{kept + 56}]", *_ends(finish, kept + 68),
        Loop("groups", (
            "1:", "ldm r5, {r0, r2, r4, r6}", "ldm r5!, {r8, r10, r12, lr}", "ldm sp, {r7, r9, r11, pc}",
            *_taps(2, "r7"), *(stored if finish == "sums" else _results(2, finish)),
            f"ldr r0, [sp, #{kept + 60}]", "cmp r5, r0", "bne 1b",
        )),
        "add sp, sp, #20", moved(-20),
    ]  # fmt: skip


def _one(finish: str, kept: int) -> list[Part]:
    stored = ["stm r1!, {r0, r2, r4, r6}", "adds r5, r5, #20"]
    return [
        "mov r11, r0", "mov r5, r1", "mov r1, r2", f"ldr r7, [sp, #{kept + 36}]", *_entered("r11"),
        "mov r12, r4", "mov r10, r6", *_ends(finish, kept + 40),
        Loop("groups", (
            "1:", "ldm r5!, {r0, r2, r4, r6}", "mov r9, r11", "bx r10",
            *_taps(1, "r12"), *(stored if finish == "sums" else _results(1, finish)), "cmp r5, r3", "bne 1b",
        )),
    ]  # fmt: skip


FUNCTIONS = {f"eb_mve{n}_{finish}": partial(function, n, finish) for finish in FINISHES for n in (2, 1)}


@cache
def micro(pixels: int, finish: str) -> Function:
    """A function by its numbers, cached for estimates."""
    return function(pixels, finish)


@dataclass(frozen=True)
class Pairs:
    """How a layer's own function loops over the taps of two pixels.

    `sizes`: taps of each chunk. `before` chunks precede a loop of `turns` iterations with four chunks each. `between`
    their products are the numbered steps that store the previous pair. `second`: the pointer register of the second
    pixel.
    """

    sizes: tuple[int, ...]
    before: int
    turns: int
    between: tuple[tuple[tuple[int, ...], ...], ...]
    second: str
    first_moves: int
    second_moves: int
    last_moves: int
    on: int
    zero: str
    group_stays: bool


def pairs(taps: int, advance: int, steps: int) -> Pairs:
    """The loops for `taps` and for `steps` of storing. Pixels at steps of `advance` bytes share a pointer if near."""
    sizes = [LANES] * (taps // LANES) + [taps % LANES] * (taps % LANES > 0)
    n, whole = len(sizes), taps // LANES
    turns = (whole - 5) // 4 if whole > 13 else 0
    before = n if not turns else whole - 1 - 4 * turns
    near = advance <= 127
    jump = advance - LANES * (n - 1) if near else 2 * advance - LANES * n  # from a pixel's end to the next pair
    fits = near and abs(jump) <= 127
    each = -(-steps // min(before, 4))
    places = {1: (2,), 2: (2, 4), 3: (2, 4, 6), 4: (1, 2, 4, 6)}.get(each, tuple(i * 7 // each for i in range(each)))
    where = [(step // each, places[step % each]) for step in range(steps)]
    between = tuple(
        tuple(tuple(step for step, place in enumerate(where) if place == (i, k)) for k in range(7))
        for i in range(before)
    )
    return Pairs(
        tuple(sizes), before, turns, between, "r9" if near else "r11", advance if near else LANES,
        LANES - advance if near else LANES, (jump if fits else 0) if near else LANES, 0 if fits else jump,
        "r11" if near else "q3" if turns > 1 else "r7", near and turns <= 1,
    )  # fmt: skip


def plus(to: str, source: str, number: int, over: str = "r0") -> list[str]:
    """Add a number to a register, into another one; `over`: a third register if the number does not fit."""
    if abs(number) > 4095:
        whole = [f"movw {over}, #{abs(number) % 65536}"] + [f"movt {over}, #{abs(number) >> 16}"] * (
            abs(number) > 65535
        )
        return [*whole, f"{'add' if number > 0 else 'sub'} {to}, {source}, {over}"]
    if number:
        return [f"{'addw' if number > 0 else 'subw'} {to}, {source}, #{abs(number)}"]
    return [f"mov {to}, {source}"] if to != source else []


@dataclass(frozen=True)
class LayerFunction:
    """The function of one layer, with its sizes as constants: two pixels at a time, by groups of four channels.

    `full` channels, `taps` bytes under each pixel, pixels at steps of `advance`, results of `beside`, `group` bytes
    of weights of four channels. Loads alternate with products, so that both units work at once. The sums of a pair are
    rescaled between the products of the next pair. A group of four channels is computed for all pixels, so its
    multipliers and shifts stay in registers.
    """

    pairs: Pairs
    full: int
    taps: int
    group: int
    finish: str
    beside: int
    advance: int

    @property
    def clamped(self) -> bool:
        return self.finish.endswith("_clamped")

    def _pixel(self, vector: str, at: str, moves: int, whole: bool) -> list[str]:
        """Load taps of a pixel from the pointer `at` and advance it. Lanes after the last tap read as 0."""
        load = f"vldrb{'' if whole else 't'}.u8 {vector}, [{at}]{f', #{moves}' if moves else ''}"
        return [load] if whole else ["vpst", load]

    def _chunk(self, i: int, between: tuple[tuple[int, ...], ...]) -> list[str]:
        """The products of chunk i. Its q0 and q2 are loaded before; those of the next chunk are loaded at the end.

        `between`: steps of storing after the first product, the second one and so on.
        """
        c, mla = self.pairs, "vmladava.s8" if i else "vmladav.s8"
        more, weights = i + 1 < len(c.sizes), f"vldrb.u8 q2, [r5], #{c.sizes[i]}"
        code = [f"{mla} r0, q2, q0", *self._stored(between[0])]
        code += self._pixel("q1", c.second, c.second_moves if more else c.last_moves, c.sizes[i] == LANES)
        code += [f"{mla} r8, q2, q1", *self._stored(between[1]), weights, f"{mla} r2, q2, q0"]
        code += [*self._stored(between[2]), f"{mla} r10, q2, q1", *self._stored(between[3]), weights]
        code += [
            f"{mla} r4, q2, q0",
            *self._stored(between[4]),
            f"{mla} r12, q2, q1",
            *self._stored(between[5]),
            weights,
        ]
        code += [f"{mla} r6, q2, q0", *self._stored(between[6])]
        code += (
            self._pixel("q0", "r9", c.first_moves, c.sizes[i + 1] == LANES) if more else ["vmov q4[2], q4[0], r0, r4"]
        )
        code.append(f"{mla} lr, q2, q1")
        return code + ([f"vldrb.u8 q2, [r5], #{c.sizes[i + 1]}"] if more else [])

    def _stored(self, steps: tuple[int, ...]) -> list[str]:
        """Some of the steps that narrow both pixels' results, int32 in order, and store them at [r3]."""
        code = [
            "vqmovnb.s32 q4, q4",
            "vqmovnt.s32 q4, q5",
            f"vqadd.s16 q4, q4, {self.pairs.zero}",
            "vqmovnb.s16 q4, q4",
        ]
        if self.clamped:
            code += ["vldrb.u8 q5, [sp]", "vmax.s8 q4, q4, q5", "vldrb.u8 q5, [sp, #16]", "vmin.s8 q4, q4, q5"]
        code += ["vstrb.32 q4, [r3]", "vshr.u32 q4, q4, #16"]
        code += [f"vstrb.32 q4, [r3, #{self.beside}]"] if self.beside < 128 else [
            f"addw r3, r3, #{self.beside}", "vstrb.32 q4, [r3]"
        ]  # fmt: skip
        return [code[step] for step in steps if step < len(code)]

    def function(self, name: str) -> Function:
        c, at = self.pairs, 96 if self.clamped else 64  # bytes above which the first registers are pushed
        kinds = ["const int8_t *x", "const int32_t *w", "int8_t *y", "const int8_t *last", "const int32_t *w_end"]
        kinds += ["int32_t zero"] + ["int32_t low", "int32_t high"] * self.clamped
        bounds = asm(f"""
            ldrd r0, r2, [sp, #124]
            sub sp, sp, #32
            {moved(32)}
            vdup.8 q4, r0
            vdup.8 q5, r2
            vstrb.8 q4, [sp]
            vstrb.8 q5, [sp, #16]
            """) if self.clamped else ()  # fmt: skip
        last, held = c.sizes[-1], "0 bounds, " if self.clamped else ""
        places = f"/* sp: {held}{at} x, {at + 4} four channels' weights, {at + 8} y, {at + 12} last, "
        places += f"{at + 52} w_end, {at + 56} zero */"
        head = [
            ".p2align 2", "push {r0-r11, lr}", pushed((*(f"r{n}" for n in range(12)), "lr")),
            "vpush {d8-d15}", moved(64),
            "mov r7, r1", *bounds,
            places,
            *([f"movs r0, #{last}", "vctp.8 r0"] if last < LANES else []),
            *([f"ldr r0, [sp, #{at + 56}]", "vdup.16 q3, r0"] if c.zero == "q3" else []),
        ]  # fmt: skip
        tail = asm(f"""
            {"add sp, sp, #32" if self.clamped else ""}
            {moved(-32) if self.clamped else ""}
            vpop {{d8-d15}}
            {moved(-64)}
            add sp, sp, #16
            {moved(-16)}
            pop {{r4-r11, pc}}
            """)
        remark = (
            f"{self.full} channels of pairs of pixels, {self.taps} bytes under each. `last`: results of the last pair. "
            "r0 r2 r4 r6 sums of the first pixel, r8 r10 r12 lr of the second; q0 and q1 pixels, from r9"
            f"{' and r11' if c.second == 'r11' else ''}; q2 weights, from r5; r1 results, q4 q5 r3 those of the pair "
            f"before; q6 and q7 multipliers and shifts, q3 {'zero point' if c.zero == 'q3' else 'start values'}."
        )
        group = Loop("groups", tuple(self._group(at)))
        return Function(name, tuple(f"EB_REG {kind}" for kind in kinds), remark, (*head, group, *tail))

    def _group(self, at: int) -> list[Part]:
        """Compute four channels of all pairs."""
        c = self.pairs
        code: list[Part] = ["1:", *plus("r5", "r7", self.group - 20), f"ldr r9, [sp, #{at}]", "vldrw.u32 q6, [r5]"]
        code += [f"ldr r1, [sp, #{at + 8}]", "vldrb.s32 q7, [r5, #16]", "add r5, r7, #16"]
        code += [] if c.zero == "q3" else ["vldrw.u32 q3, [r7]"]
        code += ["mov r3, r1", f"vldrb.u8 q2, [r5], #{c.sizes[0]}"]
        code += plus("r11", "r9", self.advance) if c.second == "r11" else []
        code += [] if c.group_stays else [f"str r7, [sp, #{at + 4}]"]
        code += [] if c.zero == "q3" else [f"ldr {c.zero}, [sp, #{at + 56}]"]
        code.append(Loop("pairs", tuple(self._pair(at))))
        code += self._stored(tuple(range(20)))
        code += [] if c.group_stays else [f"ldr r7, [sp, #{at + 4}]"]
        code += plus("r7", "r7", self.group)
        return code + list(asm(f"""
            ldrd r0, r1, [sp, #{at + 8}]
            adds r0, r0, #4
            adds r1, r1, #4
            strd r0, r1, [sp, #{at + 8}]
            ldr r0, [sp, #{at + 52}]
            cmp r7, r0
            bne 1b
            """))  # fmt: skip

    def _pair(self, at: int) -> list[Part]:
        """Compute four channels of two pixels."""
        c, nothing, high = self.pairs, ((),) * 7, multiplied(self.finish)
        code: list[Part] = ["2: /* what the first turn stores is nothing yet; the next one overwrites it */"]
        code += self._pixel("q0", "r9", c.first_moves, c.sizes[0] == LANES)
        for i in range(c.before):
            code += self._chunk(i, c.between[i])
        four = [line for i in range(4) for line in self._chunk(c.before + i, nothing)] if c.turns else []
        if c.turns > 1:
            code += [f"movs r7, #{c.turns}", Loop(c.turns, ("3:", *four, "subs r7, r7, #1", "bne 3b"))]
        else:
            code += four
        for i in range(c.before + 4 * c.turns, len(c.sizes)):
            code += self._chunk(i, nothing)
        code += ["vmov q4[3], q4[1], r2, r6", "vmov q5[2], q5[0], r8, r12"]
        code += [] if c.group_stays else [f"ldr r2, [sp, #{at + 4}]"]
        code += ["vldrw.u32 q2, [r2]"] if c.zero == "q3" else []
        start = "q2" if c.zero == "q3" else "q3"
        code += [f"vadd.i32 q4, q4, {start}", "vmov q5[3], q5[1], r10, lr", f"vadd.i32 q5, q5, {start}"]
        code += [f"{high} q4, q4, q6", "mov r3, r1", f"{high} q5, q5, q6"]
        code.append(f"add r5, {'r7' if c.group_stays else 'r2'}, #16")
        if self.finish.startswith("signed"):
            code += ["vshr.s32 q0, q4, #31 /* halves away from zero */", "vadd.i32 q4, q4, q0", "vshr.s32 q1, q5, #31"]
        code.append("vrshl.s32 q4, q4, q7")
        code += ["vadd.i32 q5, q5, q1"] if self.finish.startswith("signed") else []
        code += plus("r9", "r9", c.on) + (plus("r11", "r11", c.on) if c.second == "r11" else [])
        code += [f"ldr r2, [sp, #{at + 12}]", *plus("r1", "r1", 2 * self.beside), "vrshl.s32 q5, q5, q7"]
        return [*code, "cmp r3, r2", f"vldrb.u8 q2, [r5], #{c.sizes[0]}", "bne 2b"]


# Planes for Armv8.1-M with MVE: a row of a window is a vector, or several of sixteen bytes.
#
# Lanes after the last tap have weights of 0. At dilations of two and four, loads of weights spread them by as many
# bytes; for other dilations the stream has zeros between them.

HELD = ("q3", "q4", "q5", "q6", "q7")  # weights of rows that stay in registers
SPACINGS = (1, 2, 4)  # bytes from a tap to the next, for which there is a load
PACE = 1.35  # loads are close to the instructions that wait for them (`bench-cycles`)


class Vectors(Thumb):
    """r3 points to the result, r8 to r11 are start value, multiplier, shift and zero point, q2 offsets of results."""

    variant, width = "mve plane", LANES
    x, w, past, source, to = "r1", "r5", "r7", "r0", "r2"
    rows, count, spare = "r4", "r6", "r12"
    far = 1 << 20
    sums = ("r0", "r2", "r4", "r6")
    scalars: ClassVar[tuple[str, ...]] = ("zero", "low", "high")
    own: ClassVar[tuple[str, ...]] = ()
    saved_words = 25

    def __init__(self, p: Plane) -> None:
        super().__init__(p)
        spread = p.run.dilation not in SPACINGS
        self.spacing = 1 if spread else p.run.dilation
        self.lanes = LANES // self.spacing
        self.tail = self.row_bytes % self.lanes or self.lanes
        self.held = not p.looped and self.row_bytes <= self.lanes and p.lines.taps <= len(HELD)

    @classmethod
    def ends(cls, s: Sums) -> Ends | None:
        if s.finish == "sums":
            return None
        numbers, bounds = np.stack([s.start, s.mantissa], axis=1), s.bounds(s.finish.endswith("_clamped"))
        return Ends(s.finish, numbers, -s.right[:, None], {"y_zero": s.y_zero, **bounds})

    @classmethod
    def stream(cls, rows: Array, dilation: int) -> Array:
        if dilation in SPACINGS:
            return rows
        code = np.zeros((*rows.shape[:2], (rows.shape[2] - 1) * dilation + 1), rows.dtype)
        code[:, :, ::dilation] = rows
        return code

    @classmethod
    def serves(cls, p: Plane) -> bool:
        return p.run.step * 7 < 1 << 16 and p.run.taps * p.lines.taps < 4000

    def pace(self, form: Form) -> float:
        return PACE

    @property
    def row_bytes(self) -> int:
        run = self.p.run
        return run.taps if run.dilation in SPACINGS else (run.taps - 1) * run.dilation + 1

    def copied(self, used: int) -> int:
        return -(-used // 8) * 8

    def saved(self) -> list[Part]:
        return [*super().saved(), "vpush {d8-d15}", moved(64)]

    def enter(self, arguments: Sequence[str]) -> list[Part]:
        code = [*super().enter(arguments), *self.predicate(), "movs r0, #0", "vidup.u32 q2, r0, #1"]
        return [*code, *self.set("r0", self.p.run.step_y), "vmul.i32 q2, q2, r0"]

    def leave(self) -> list[Part]:
        size = 4 * len(self.names) + 16
        return [f"add sp, #{size}", moved(-size), "vpop {d8-d15}", moved(-64), "pop {r4-r11, pc}"]

    def predicate(self) -> list[str]:
        """Set the predicate to the lanes of a row's last taps."""
        return [f"movs r0, #{self.tail}", f"vctp.{8 * self.spacing} r0"] if self.tail < self.lanes else []

    def prepared(self) -> list[str]:
        code = ["movs r0, #0", "vidup.u16 q1, r0, #1", *self.set("r0", self.p.run.step), "vmul.i16 q1, q1, r0"]
        return [*code, *self.set("r9", 8 * self.p.run.step)]

    def copy(self) -> list[Part]:
        turn = ("0:", "vldrb.u16 q0, [r0, q1]", "add r0, r0, r9", "vstrb.16 q0, [r2], #8", "letp lr, 0b")
        return [*self.set("lr", self.p.run.used), "dlstp.16 lr, lr", Loop(-(-self.p.run.used // 8), turn)]

    def few(self, count: int) -> list[Part]:
        """Nothing: `copy` copies whole lines."""
        return []

    def begin(self) -> list[str]:
        taps = self.p.lines.taps * self.row_bytes
        code = [*self.get("r0", "ends"), "ldm r0!, {r8, r9}", *self.put("r0", "ends"), *self.get("r5", "taps")]
        code += [*self.add("r0", "r5", taps), "ldrsb r10, [r0], #1", *self.put("r0", "taps"), *self.get("r11", "zero")]
        code += [*self.get("r3", "y"), "adds r0, r3, #1", *self.put("r0", "y"), *self.get("r1", "plane")]
        if self.held:
            return code + [line for q in HELD[: self.p.lines.taps] for line in self.weights(q, self.row_bytes)]
        return code + (self.add("r7", "r5", taps) if self.p.looped else [])

    def weights(self, vector: str, taps: int) -> list[str]:
        """Load the next weights of a row into a vector."""
        load, item = f"{vector}, [r5], #{taps}", f"u{8 * self.spacing}"
        return [f"vldrb.{item} {load}"] if taps == self.lanes else ["vpst", f"vldrbt.{item} {load}"]

    def starts(self, count: int) -> list[str]:
        return [f"movs {r}, #0" for r in self.sums[:count]]

    def row(self, count: int, row: int) -> list[str]:
        code, on = list[str](), self.p.run.stride
        first, last = row * self.p.lines.dilation * self.line, (count - 1) * on + self.row_bytes * self.spacing
        place = "r1"
        if first + last > 127:
            code += self.add("r12", "r1", first)
            place, first = "r12", 0
        for begin in range(0, self.row_bytes, self.lanes):
            taps, w = min(self.lanes, self.row_bytes - begin), HELD[row] if self.held else HELD[0]
            if not self.held:
                code += self.weights(w, taps)
                self.ahead["r5"] += taps
            loads = [f"vldrb.u8 q{o % 2}, [{place}, #{first + o * on + begin * self.spacing}]" for o in range(count)]
            code.append(loads[0])
            for o in range(count):
                code += loads[o + 1 : o + 2]
                code.append(f"vmladav{'a' if o in self.begun else ''}.s8 {self.sums[o]}, {w}, q{o % 2}")
                self.begun.add(o)
        return code

    def results(self, count: int) -> list[Part]:
        how = self.p.finish
        code: list[Part] = ["vmov q0[2], q0[0], r0, r4", "vmov q0[3], q0[1], r2, r6", "vadd.i32 q0, q0, r8"]
        code.append(f"{'vqdmulh' if how.startswith('once') else 'vqrdmulh'}.s32 q0, q0, r9")
        code += ["vshr.s32 q1, q0, #31", "vadd.i32 q0, q0, q1"] if how.startswith("signed") else []
        code += ["vrshl.s32 q0, r10", "vadd.i32 q0, q0, r11"]
        if how.endswith("_clamped"):
            for name, most in (("low", "vmax"), ("high", "vmin")):
                code += [*self.get("r0", name), "vdup.32 q1, r0", f"{most}.s32 q0, q0, q1"]
        else:
            code += ["vqmovnb.s32 q0, q0", "vqmovnb.s16 q0, q0"]
        code += ["vstrb.32 q0, [r3, q2]"] if count == 4 else [
            f"movs r0, #{count}", "vctp.32 r0", "vpst", "vstrbt.32 q0, [r3, q2]", *self.predicate()
        ]  # fmt: skip
        return [*code, *self.add("r3", "r3", count * self.p.run.step_y)]

    def out_on(self, name: str) -> list[str]:
        return self.move("r3", name)
