"""Float32 sums of products in registers: several channels at a time, and several pixels if the core can.

Cores with Arm's floating-point units have micro-kernels in assembly. On others, and for int8 weights and few channels,
a block of B channels in C loads B + 1 numbers for B multiply-accumulates. Each sum adds in the order of the plain
kernel, so the results are the same to the last bit, unless products and sums are fused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, product
from typing import Any

import numpy as np

from ....base.target import DUAL_ISSUE
from ...ir import Array
from ...ops.base import PIXELS, PORTABLE, Form, Kernel, is_float
from ...ops.spatial import rolled
from ..micro import Function, Loop, Part, moved, pushed
from ..row import KernelLayer, Row

# Sums of products of real numbers in registers: micro-kernels in assembly for Arm's floating-point units.
#
# Up to four channels of four pixels, or of one, block by block. Each sum begins with its bias and adds in
# the order of the plain kernel. Cortex-M4 and M33 take three cycles for VFMA, two for VMUL and VADD (DDI 0439D, table
# 7-1). So their kernels round product and sum, and results are the plain kernel's to the last bit. Other kernels fuse
# both, and round once.
#
# The weights of four channels are `packed`: those of a tap, then of the next one. Those of a computed matrix are
# `columns`, neighbours with a step from tap to tap, or `rows`, each with its taps side by side. In sums over one
# channel each, the `channels` of a tap are multiplied by as many values, or fewer by a `multiplier`: a run is a row of
# the window. Blocks of `groups` are packed, too. They have at most the channels of their group, and may read values of
# their own.

FIELDS = (
    "bias", "runs", "taps", "x_step", "w_tap", "w_step", "w_back", "y_step", "back", "blocks", "low", "high",
    "x_at", "x_block", "w_at", "x_back",
)  # fmt: skip
AT = {name: f"[r0, #{4 * i}]" for i, name in enumerate(FIELDS)}  # fields of eb_float_sums_t
PACKED, COLUMNS, IN_ROWS, CHANNELS, GROUPS = "packed", "columns", "rows", "channels", "groups"
REMARKS = {
    PACKED: "whose weights lie of all taps in turn", COLUMNS: "whose weights lie side by side in each tap",
    IN_ROWS: "whose weights lie each with its taps in a row", CHANNELS: "with sums over one channel each",
    GROUPS: "each with values of its own",
}  # fmt: skip
NUMBERS = {2: "two", 3: "three", 4: "four", 6: "6", 8: "8"}
SAVED = tuple(f"r{n}" for n in range(4, 12))
COPY = "eb_copy_floats"
POINTERS = ("r4", "r5", "r6", "r7")  # pointers to the pixels' values


def singles(first: int, count: int) -> list[str]:
    return [f"s{n}" for n in range(first, first + count)]


def _moved_words(op: str, pointer: str, registers: list[str]) -> str:
    """A load or store of neighbouring registers."""
    return f"{op} {pointer}, {{{registers[0]}{f'-{registers[-1]}' * (len(registers) > 1)}}}"


@dataclass(frozen=True)
class Block:
    """Sums of `pixels` x `channels`: up to four channels of each of four pixels, or channels of one.

    r0: eb_float_sums_t, r1: runs of taps, r2: results, r3: bias, r12: bytes of weights of the blocks before, lr: blocks
    left. In a run r8 points to weights and r9 counts taps. With sums over one channel each, r6: bytes of the values
    before, r7: bytes from tap to tap; `multiplier` sums take each value.
    """

    pixels: int
    channels: int
    weights: str
    fused: bool = False
    multiplier: int = 1

    unit = ""

    @property
    def unroll(self) -> int:
        """Taps of an iteration."""
        return 1 if self.weights == CHANNELS else 2 if self.pixels == 4 else 4

    @property
    def name(self) -> str:
        few, times = f"{self.channels}" * (self.channels < 4), f"_times{self.multiplier}" * (self.multiplier > 1)
        block = f"_channels{self.channels}{times}" if self.weights == CHANNELS else f"{self.pixels}_{self.weights}{few}"
        return f"eb_{self.unit}float{block}{'_fused' * self.fused}"

    @property
    def pointers(self) -> tuple[str, ...]:
        """Registers that point to the values of each pixel."""
        return POINTERS[: self.pixels]

    def sums(self, op: str, pixel: int, pointer: str, ahead: bool) -> list[str]:
        """Loads (ld) or stores (st) of the sums of a pixel, which may move the pointer ahead."""
        own = singles(self.channels * pixel, self.channels)
        return [_moved_words(f"v{op}mia", pointer + "!" * ahead, own)]

    def zeros(self) -> list[str]:
        sums = singles(0, self.pixels * self.channels)
        return ["movs r9, #0", *(f"vmov {a}, {b}, r9, r9" for a, b in zip(sums[::2], sums[1::2], strict=True))]

    def begin(self) -> list[str]:
        """Load the bias into the sums of each pixel; products of matrices have none."""
        if self.weights in (COLUMNS, IN_ROWS):
            return self.zeros()
        return [code for p in range(self.pixels) for code in self.sums("ld", p, "r3", p == self.pixels - 1)]

    def operands(self) -> list[str]:
        """Set the pointers of a run."""
        code = ["ldm r10!, {r4, r8}", *[f"ldr r9, {AT['x_at']}", "add r4, r4, r9"] * (self.weights == GROUPS)]
        code += [f"ldrd r9, r7, {AT['taps']}", "add r8, r8, r12", *["add r4, r4, r6"] * (self.weights == CHANNELS)]
        code += [f"add {q}, {p}, r7" for p, q in pairwise(self.pointers)]
        code += [f"ldr r3, {AT['w_tap']}"] * (self.weights in (COLUMNS, IN_ROWS))
        return code + ["add r10, r8, r3", "add r11, r10, r3", "add r3, r11, r3"] * (self.weights == IN_ROWS)

    def taps(self, count: int) -> list[str]:
        """Load and multiply so many taps."""
        if self.weights == CHANNELS:
            x, w = singles(8, self.channels // self.multiplier), singles(16, self.channels)
            code = [_moved_words("vldmia", "r4", x), "add r4, r4, r7", _moved_words("vldmia", "r8!", w)]
            return code + self._added([(f"s{c}", x[c // self.multiplier], w[c]) for c in range(self.channels)])
        one, channels, columns = self.pixels == 1, self.channels, self.weights == COLUMNS
        values = [singles(4 * self.pixels + count * p, count) for p in range(self.pixels)]
        code = [_moved_words("vldmia", f"{p}!", v) for p, v in zip(self.pointers, values, strict=True)]
        if self.weights == IN_ROWS:  # channel by channel, the taps of each side by side
            weights = [singles(16 + 4 * c if one else 24 + 2 * (c % 2), count) for c in range(4)]
            loads = [
                _moved_words("vldmia", f"{p}!", w) for p, w in zip(("r8", "r10", "r11", "r3"), weights, strict=True)
            ]
            if one:
                terms = [(f"s{c}", values[0][t], weights[c][t]) for t in range(count) for c in range(4)]
                return code + loads + self._added(terms)
            for c, load in enumerate(loads):
                terms = [(f"s{4 * p + c}", v[t], weights[c][t]) for t in range(count) for p, v in enumerate(values)]
                code += [load, *self._added(terms)]
            return code
        together = one and not columns
        code += [_moved_words("vldmia", "r8!", singles(16, channels * count))] * together
        for t in range(count):
            own = singles(16 + channels * t if one else 24, channels)
            if not together:
                code += [_moved_words("vldmia", "r8" + "!" * (not columns), own), *["add r8, r8, r3"] * columns]
            terms = [(f"s{channels * p + c}", v[t], own[c]) for p, v in enumerate(values) for c in range(channels)]
            code += self._added(terms)
        return code

    def _added(self, terms: list[tuple[str, str, str]]) -> list[str]:
        """Add products to sums; four products precede their additions, which therefore do not wait."""
        if self.fused:
            return [f"vfma.f32 {total}, {x}, {w}" for total, x, w in terms]
        code, spare = list[str](), singles(8 if self.pixels == 1 and self.weights != CHANNELS else 28, 4)
        for first in range(0, len(terms), 4):
            four = list(zip(spare, terms[first : first + 4], strict=False))
            code += [f"vmul.f32 {product}, {x}, {w}" for product, (_, x, w) in four]
            code += [f"vadd.f32 {total}, {total}, {product}" for product, (total, _, _) in four]
        return code

    def bounded(self) -> list[Part]:
        """Clamp results to finite bounds; NaN stays NaN.

        Bounds of the largest numbers affect infinities alone. If the sum of all results is finite, each is; then r9 is
        1, else 0. r7, r8: 0 for an infinite bound, -1 for the largest number.
        """
        sums = singles(0, self.pixels * self.channels)
        total = [f"vadd.f32 s16, {'s16' if i > 1 else 's0'}, {s}" for i, s in enumerate(sums) if i] or ["vmov s16, s0"]
        all_finite = (*total, "vmov r9, s16", "lsls r9, r9, #1", "cmp r9, #0xff000000", "ite lo", "movlo r9, #1",
                      "movhs r9, #0", "6:")  # fmt: skip
        code: list[Part] = [f"ldrd r4, r5, {AT['low']}", "add r7, r4, #0x800000", "sub r8, r5, #0x7f800000",
                            "movs r9, #0", "cmn r8, #1", "bne 6f", Loop("largest", all_finite)]  # fmt: skip
        for bound, value, code_of, when, label in (("low", "r4", "r7", "mi", 7), ("high", "r5", "r8", "gt", 8)):
            each = [f"vmov s16, {value}"]
            for s in sums:
                each += [f"vcmpe.f32 {s}, s16", "vmrs APSR_nzcv, fpscr", f"it {when}", f"vmov{when}.f32 {s}, s16"]
            code += [f"add {code_of}, {code_of}, r9", f"cmp {code_of}, r9", f"bls.w {label}f"]
            code += [Loop(bound, tuple(each)), f"{label}:"]
        return code

    def stored(self) -> list[str]:
        code = self.sums("st", 0, "r2", True)
        if self.pixels == 1:
            return code
        code = [f"ldr r5, {AT['y_step']}", "add r4, r2, r5", *code]
        return code + [line for p in (1, 2, 3) for line in (*self.sums("st", p, "r4", False), "add r4, r4, r5")][:-1]

    def products(self) -> list[Part]:
        """All taps of a run, `unroll` of them in an iteration."""
        code: list[Part] = [f"subs r9, r9, #{self.unroll}", f"blt {4 if self.unroll > 1 else 6}f",
                Loop("turns", ("3:", *self.taps(self.unroll), f"subs r9, r9, #{self.unroll}", "bge 3b"))]  # fmt: skip
        if self.unroll > 1:
            code += ["4:", f"adds r9, r9, #{self.unroll}", "ble 6f"]
            code += [Loop("rest", ("5:", *self.taps(1), "subs r9, r9, #1", "bne 5b"))]
        return [*code, "6:"]

    def parts(self) -> tuple[Part, ...]:
        """Code of the whole function. The last block of channels may overlap the one before."""
        channels, groups = self.weights == CHANNELS, self.weights == GROUPS
        windows, first = self.weights == PACKED or channels or groups, f"ldr r12, {AT['w_at']}"
        run: list[Part] = [*self.operands(), *self.products()]
        block: tuple[Part, ...] = (
            "1:", *self.begin(), *[f"ldr r11, {AT['runs']}"] * windows, "mov r10, r1",
            *["cmp r11, #0", "ble.w 9f"] * windows,
            Loop("runs", ("2:", *run, "subs r11, r11, #1", "bgt 2b") if windows else tuple(run)), "9:",
            *self.bounded(), *self.stored(),
            *[f"ldrd r4, r5, {AT['x_at']}", "add r4, r4, r5", f"str r4, {AT['x_at']}"] * groups,
            f"ldrd r4, r5, {AT['w_step']}", *[f"add r6, r6, #{4 * self.channels // self.multiplier}"] * channels,
            "add r12, r12, r4", "subs lr, lr, #1", "beq 0f", "cmp lr, #1", "bne.w 1b",
            Loop("last", (f"ldr r4, {AT['back']}", "sub r12, r12, r5", "sub r2, r2, r4", *["sub r3, r3, r4"] * windows,
                          *[f"ldr r4, {AT['x_back']}", "sub r6, r6, r4"] * channels, "b.w 1b")), "0:",
        )  # fmt: skip
        return (*[f"ldr r3, {AT['bias']}"] * windows, f"ldr lr, {AT['blocks']}", first if groups else "mov r12, #0",
                *["mov r6, r12"] * channels, Loop("blocks", block))  # fmt: skip

    def function(self) -> Function:
        pixels = "Four pixels" if self.pixels == 4 else "One pixel"
        blocks = "of one channel" if self.channels == 1 else f"of {NUMBERS[self.channels]} channels"
        times = f", {NUMBERS[self.multiplier]} for each value" if self.multiplier > 1 else ""
        return Function(
            self.name, ("EB_REG eb_float_sums_t *sums", "EB_REG const float *const *list", "EB_REG float *y"),
            f"{pixels} by blocks {blocks}, {REMARKS[self.weights]}{times}. "
            "`list`: for each run of taps, the values and the weights.",
            ("push {r4-r11, lr}", pushed((*SAVED, "lr")), "vpush {d8-d15}", moved(64), *self.parts(),
             "vpop {d8-d15}", moved(-64), "pop {r4-r11, pc}"),
            ("eb_float_sums_t",),
        )  # fmt: skip


SCALARS = ("r0", "r1", "r2", "r3", "r9", "r10", "r11", "r12")  # values of pixels


class Vectors(Block):
    """Sums with MVE: four channels are lanes. q0 to q3: sums, q4 to q7: weights of taps.

    Values of pixels take most registers of the core, so what these hold between runs is on the stack meanwhile.
    """

    unit = "mve_"
    unroll = property(lambda self: {CHANNELS: 1, IN_ROWS: 2}.get(self.weights, 4))
    quads = property(lambda self: self.pixels * self.channels // 4)  # vectors of sums

    def quad(self, op: str, number: int, pointer: str, ahead: bool) -> str:
        """A load (ld) or store (st) of four words, which may move the pointer ahead."""
        return f"v{op}rw.{'u' * (op == 'ld')}32 q{number}, [{pointer}]{', #16' * ahead}"

    def sums(self, op: str, pixel: int, pointer: str, ahead: bool) -> list[str]:
        each = self.channels // 4
        return [self.quad(op, each * pixel + q, pointer, ahead) for q in range(each)]

    def begin(self) -> list[str]:
        """Load the bias; before it, if each value goes to two lanes, the offsets of values."""
        pairs = ["movs r4, #0", "vidup.u32 q6, r4, #1", "vshr.u32 q6, q6, #1", "vshl.i32 q6, q6, #2", "movs r4, #8",
                 "vadd.i32 q7, q6, r4"]  # fmt: skip
        return [*pairs * (self.multiplier == 2), *super().begin()]

    def zeros(self) -> list[str]:
        return [f"vmov.i32 q{q}, #0" for q in range(self.quads)]

    def _of_channels(self) -> list[str]:
        """A tap of sums over one channel each. With a multiplier from four on, all lanes of a vector share a value."""
        quads = range(self.quads)
        code = [self.quad("ld", 4 + q, "r8", True) for q in quads]
        if self.multiplier < 4:
            at = [f", q{6 + q}" if self.multiplier == 2 else f", #{16 * q}" * (q > 0) for q in quads]
            code += [f"vldrw.u32 q{2 + q}, [r4{at[q]}]" for q in quads]
            return [*code, "add r4, r4, r7", *(f"vfma.f32 q{q}, q{2 + q}, q{4 + q}" for q in quads)]
        for q in quads:
            code += [f"ldr r5, [r4, #{4 * q}]"] * (q < self.channels // self.multiplier)
            code.append(f"vfma.f32 q{q}, q{4 + q}, r5")
        return [*code, "add r4, r4, r7"]

    def taps(self, count: int) -> list[str]:
        if self.weights == CHANNELS:
            return self._of_channels()
        weights, columns = [f"q{4 + t}" for t in range(count)], self.weights == COLUMNS
        address = {COLUMNS: "[r8]", IN_ROWS: "[q7, #4]!"}.get(self.weights, "[r8], #16")
        code = ["ldr r12, [sp, #12] /* bytes from tap to tap */"] * columns
        for w in weights:
            code += [f"vldrw.u32 {w}, {address}", *["add r8, r8, r12"] * columns]
        load = {4: "ldm {}!, {{{}}}", 2: "ldrd {1}, [{0}], #8", 1: "ldr {1}, [{0}], #4"}[count]
        together = min(4, 8 // count)  # pixels whose values are in registers at once
        for first in range(0, self.pixels, together):
            values = {p: SCALARS[(p - first) * count :][:count] for p in range(self.pixels)[first : first + together]}
            code += [load.format(POINTERS[p], ", ".join(v)) for p, v in values.items()]
            code += [f"vfma.f32 q{p}, {w}, {v[t]}" for t, w in enumerate(weights) for p, v in values.items()]
        return code

    def bounded(self) -> list[Part]:
        """Clamp by GT for both bounds: LT is the inverse of GE, and thus true for NaN (DDI 0553B, VPT)."""
        code: list[Part] = [f"ldrd r4, r5, {AT['low']}", "vdup.32 q7, r4"]
        for q in range(self.quads):
            code += [f"vpt.f32 gt, q7, q{q}", f"vmovt q{q}, q7", f"vpt.f32 gt, q{q}, r5", f"vdupt.32 q{q}, r5"]
        return code

    def products(self) -> list[Part]:
        if self.weights == CHANNELS:
            return super().products()
        code = ["vmov q7[2], q7[0], r8, r11", "vmov q7[3], q7[1], r10, r3", "movs r10, #4", "vsub.i32 q7, q7, r10"]
        return [
            *code * (self.weights == IN_ROWS), "bic r9, r9, r9, asr #31", "push {r0-r3, r9-r12, lr}", moved(36),
            f"lsr r9, r9, #{self.unroll // 2}", "wls lr, r9, 4f",
            Loop("turns", ("3:", *self.taps(self.unroll), "le lr, 3b")),
            "4:", "ldr r9, [sp, #16] /* taps */", f"and r9, r9, #{self.unroll - 1}", "wls lr, r9, 6f",
            Loop("rest", ("5:", *self.taps(1), "le lr, 5b")), "6:", "pop {r0-r3, r9-r12, lr}", moved(-36),
        ]  # fmt: skip


class Pixels(Vectors):
    """Sums with MVE of fewer than four channels: four pixels are lanes, whose values a gather loads.

    q0 to q2: sums of each channel, q5: values, q6: bytes from the first pixel to each, q7: addresses of values.
    """

    unroll = property(lambda self: 4 // self.channels)
    quads = property(lambda self: self.channels)

    @staticmethod
    def _offsets(to: str, step: str) -> list[str]:
        """Bytes from the first pixel to each."""
        return ["movs r4, #0", f"vidup.u32 {to}, r4, #1", f"ldr r4, {AT[step]}", f"vmul.i32 {to}, {to}, r4"]

    def begin(self) -> list[str]:
        bias = [line for q in range(self.quads) for line in ("ldr r4, [r3], #4", f"vdup.32 q{q}, r4")]
        return [*self._offsets("q6", "x_step"), *bias]

    def operands(self) -> list[str]:
        return [*Block(1, self.channels, self.weights).operands(), "subs r4, #4", "vadd.i32 q7, q6, r4"]

    def taps(self, count: int) -> list[str]:
        scalars = POINTERS[: count * self.channels]
        load = {1: "ldr {}, [r8], #4", 2: "ldrd {}, [r8], #8"}.get(len(scalars), "ldm r8!, {{{}}}")
        code = [load.format(", ".join(scalars))]
        for t in range(count):
            of_tap = scalars[t * self.channels :][: self.channels]
            code += ["vldrw.u32 q5, [q7, #4]!", *(f"vfma.f32 q{q}, q5, {w}" for q, w in enumerate(of_tap))]
        return code

    def products(self) -> list[Part]:
        return Block.products(self)

    def stored(self) -> list[str]:
        each = [line for q in range(self.quads) for line in (f"vstrw.32 q{q}, [r2, q7]", "adds r2, #4")]
        return [*self._offsets("q7", "y_step"), *each]


TIMES = {1: (8, 4), 2: (8, 4), 3: (6,), 4: (8,), 8: (8,)}  # channels of a block, by multiplier


def _all_blocks() -> list[Block]:
    """The micro-kernels for each unit."""
    shapes = [(pixels, 4, weights, 1) for weights in (PACKED, COLUMNS, IN_ROWS) for pixels in (4, 1)]
    shapes += [(1, channels, CHANNELS, multiplier) for multiplier, some in TIMES.items() for channels in some]
    shapes += [(pixels, channels, GROUPS, 1) for channels in (1, 2, 3, 4) for pixels in (4, 1)]
    blocks = list[Block]()
    for pixels, channels, weights, multiplier in shapes:
        blocks += [Block(pixels, channels, weights, fused, multiplier) for fused in (False, True)]
        if channels % 4 == 0:
            blocks.append(Vectors(pixels, channels, weights, multiplier=multiplier))
        elif pixels == 4:
            blocks.append(Pixels(pixels, channels, weights))
    return blocks


BLOCKS: dict[str, Block] = {block.name: block for block in _all_blocks()}


def copy_words() -> Function:
    """The function that copies operands before results overwrite them."""
    turn = Loop("turns", ("1:", "vldmia r1!, {s0-s15}", "vstmia r0!, {s0-s15}", "subs r2, r2, #16", "bge 1b"))
    rest = Loop("rest", ("3:", "vldmia r1!, {s0}", "vstmia r0!, {s0}", "subs r2, r2, #1", "bne 3b"))
    return Function(
        COPY, ("EB_REG float *to", "EB_REG const float *from", "EB_REG int32_t count"),
        "`count` words from one place to another.",
        ("subs r2, r2, #16", "blt 2f", turn, "2:", "adds r2, r2, #16", "ble 4f", rest, "4:", "bx lr"),
    )  # fmt: skip


FUNCTIONS = {name: block.function for name, block in BLOCKS.items()} | {COPY: copy_words}


def of_core(core: frozenset[str], rest: str) -> str:
    """The name of a core's function; `rest` follows "float". Cores with MVE use scalar ones if there are no others."""
    vectors = f"eb_mve_float{rest}"
    if "mve" in core and vectors in BLOCKS:
        return vectors
    return f"eb_float{rest}{'_fused' * (not core.isdisjoint({'mve', DUAL_ISSUE}))}"


def pace_of(function: str, pixels: int) -> float:
    """Cycles of an instruction relative to plain C with floats: one may load several words (`bench-cycles`)."""
    if "channels" in function:
        return 1.2 if "mve" in function else 1.55 if "fused" in function else 1.25
    four, one = (1.55, 1.45) if "mve" in function else (1.95, 2.5) if "fused" in function else (1.2, 1.45)
    return four if pixels == 4 else one


@cache
def _micro(name: str) -> Function:
    return FUNCTIONS[name]()


@cache
def executed_by(
    name: str, taps: int, blocks: int = 1, runs: float = 1, low: bool = True, high: bool = True, largest: bool = False
) -> float:
    """Instructions of a call. `taps`: in a run, or words to copy; `blocks`: of channels.

    `low`, `high`: which bounds every result is compared with; `largest`: whether the upper one is the largest number.
    """
    turns, rest = divmod(taps, BLOCKS[name].unroll if name in BLOCKS else 16)
    last = (blocks > 1) / blocks
    return _micro(name).executed(
        blocks=blocks, last=last, runs=runs, turns=turns, rest=rest, low=low, high=high, largest=largest
    )


RESULT = 6.0  # instructions of a result: `bench-kernels` shows the error of estimates
LAYER = 40  # instructions of a call
MAX_RUNS = 64  # most runs of taps under a window; their list is on the stack
MAX_SUMS = 8  # sums in registers; with as many weights and two values they fit into 32


def block_of(channels: int) -> int:
    """Channels of a block: the fewest with which the number of blocks is least."""
    return -(-channels // -(-channels // MAX_SUMS))


def block_of_pixels(channels: int, core: frozenset[str]) -> int:
    """Channels of a block of four pixels: the number with the least work for all blocks, by instructions of a tap."""
    each = 8 if core.isdisjoint({"mve", DUAL_ISSUE}) else 4
    sizes = range(min(4, channels), 0, -1) if "mve" not in core else (min(4, channels),)
    return min(sizes, key=lambda size: -(-channels // size) * (each * size + 3))


def starts(channels: int, block: int) -> list[int]:
    """The first channel of each block. If blocks do not divide the channels, the last block overlaps the one before."""
    return [min(at, channels - block) for at in range(0, channels, block)]


def packed(rows: Array, block: int, groups: int = 1) -> Array:
    """Weights K x taps in the order of reading: for each block of channels, tap by tap, those of all channels."""
    return np.concatenate([
        np.ascontiguousarray(of_group[first : first + block].T).ravel()
        for of_group in np.split(rows, groups) for first in starts(len(of_group), block)
    ])  # fmt: skip


def _letters(layer: KernelLayer, joined: bool) -> dict[str, Any] | None:
    """The layer as windows on an image. Rows of a matrix are a `line`, as are pixels that are `joined`.

    None for layers of other types or forms. `tap_values`: values of a tap that a result sums.
    """
    s, kind = dict[str, Any](layer.plain.shape), layer.op.kind
    by_row = layer.form.rolled and kind == "dense"  # a layer that is fed by rows keeps its sums in memory
    if not is_float(layer.graph.result(layer.op)) or layer.form.small or by_row:
        return None
    depthwise, pixels = kind == "depthwise_conv2d", int(s["N"])
    if kind in ("conv2d", "depthwise_conv2d"):
        alone = (s["FH"], s["FW"], s["SY"], s["SX"]) == (1, 1, 1, 1) and not any(layer.op.attrs["pad"])
        joined &= alone and not depthwise and not layer.form.rolled
        pixels = pixels * s["H"] * s["W"] if joined else 0
    s = {"CG": s["C"], "KG": s["K"], "scaled": False, "cast": "", "weight": "float"} | s
    if pixels:
        s |= dict.fromkeys(("N", "H", "OH", "FH", "FW", "SX", "DX"), 1) | {"W": pixels, "OW": pixels, "PX": 0}
        s |= rolled(Form())
    s |= {"line": pixels > 0, "whole": depthwise or pixels > 0 or (s["DX"] == 1 and s["CG"] == s["C"])}
    s |= {"tap_values": 1 if depthwise else s["CG"], "by_channel": depthwise and s["C"] > 1}
    s |= dict.fromkeys(("overlap", "over", "either", "by_group"), False) | {"function": "", "one": "", "most": 1}
    s |= dict.fromkeys(("x_block", "x_back"), 0) | {"groups": 1}
    return s | {"matrix": kind == "batch_matmul"}


def blocks(layer: KernelLayer) -> Kernel | None:
    """The kernel in C with blocks of channels, for one group: with several, a result reads few channels."""
    k, s = layer.plain, _letters(layer, joined=False)
    if s is None or s["KG"] < s["K"] or (s.get("M", 1) > 1 and s["C"] > 1) or block_of(s["K"]) == 1:
        return None
    channels, block, depthwise = s["K"], block_of(s["K"]), layer.op.kind == "depthwise_conv2d"
    constants, unroll = k.constants, 1
    s |= {"block": block, "overlap": channels % block > 0, "packed": not (s["matrix"] or depthwise), "in_step": 1}
    s |= {"lane": 1, "tap_step": block, "biased": not (s["scaled"] or s["matrix"]), "value_step": 0}
    if s["packed"]:
        rows = constants[0].data.reshape(channels, -1)
        constants = (replace(constants[0], data=packed(rows, block), note="by blocks of channels"), *constants[1:])
        unroll, s["tap"], s["weight_step"] = 2 - s["C"] % 2, block * s["C"], rows.shape[1]
    elif depthwise:
        s |= {"in_step": s["DX"] * s["C"], "tap_step": channels, "tap": channels, "weight_step": 1}
        s["value_step"] = int(s["by_channel"])
    else:
        (s["lane"], s["tap_step"]), s["weight_step"] = s["at"], s["at"][0]
    s["unroll"] = unroll
    turn = (2 if depthwise else 1) * block + 1 + 2 * block + 4 / unroll
    if "mve" in layer.form.core and block % 4 == 0:  # the compiler makes vectors of them
        turn = (1.7 if depthwise else 1.2) * block
    rest, taps = 12 if s["line"] else 30 + 14 * s["FH"], s["FH"] * s["FW"] * s["tap_values"]
    places = _images(s) * s["OW"] * (1 if s["rolled"] else s["OH"])
    each = 30 + len(starts(channels, block)) * (rest + taps * turn + RESULT * block)
    return replace(
        k, template="floats/sums.c.j2", shape=s, constants=constants, variant="channels in registers",
        estimate=LAYER + places * each,
    )  # fmt: skip


def micro_kernels(layer: KernelLayer) -> Kernel | None:
    """The kernel by micro-kernels: four pixels by four channels, or eight or four sums over one channel each."""
    k, core, s = layer.plain, layer.form.core, _letters(layer, joined=True)
    if s is None or s["scaled"] or (s["matrix"] and s["K"] < 4):
        return None
    depthwise, times, values, count = layer.op.kind == "depthwise_conv2d", s.get("M", 1), s["CG"], s["KG"]
    if depthwise and (s["C"] == 1 or times not in TIMES):  # then each channel of the image is a group
        depthwise, values, count = False, 1, times
        s["whole"] = s["C"] == 1 and s["DX"] == 1
    runs = s["FH"] * (1 if s["whole"] else s["FW"])
    if runs > MAX_RUNS or (depthwise and s["K"] < 4):
        return None
    groups, some, taps = s["K"] // count, 4, s["FH"] * s["FW"] * s["tap_values"]
    s |= {"most": 4, "either": True, "groups": groups, "x_step": 4 * s["SX"] * s["C"], "list": str(2 * runs)}
    constants, rows, function = k.constants, None, f"%d_{PACKED}"
    if s["matrix"]:
        column, tap = s["at"]
        function, step = (f"%d_{COLUMNS}", tap) if column == 1 else (f"%d_{IN_ROWS}", column)
        s |= {"w_tap": 4 * step, "w_step": 16 * column, "w_back": 4 * (-count % 4) * column}
    elif depthwise:
        some = min((n for n in TIMES[times] if n <= count), key=lambda n: -(-count // n) * (2.1 * n + 4.8))
        s |= {"most": 1, "x_step": 4 * s["DX"] * s["C"], "x_back": 4 * (-count % some) // times}
        function = f"_channels{some}" + f"_times{times}" * (times > 1)
        rows = constants[0].data.reshape(-1, count).T
    else:
        some = block_of_pixels(count, core)
        rows = constants[0].data.reshape(s["K"], -1) if times == 1 else constants[0].data.reshape(-1, s["K"]).T
        s["over"] = s["line"] and groups == 1 and layer.form.in_place  # another group would read overwritten pixels
        function = f"%d_{GROUPS}{some if some < 4 else ''}" if groups > 1 or some < 4 else function
    if rows is not None:
        stream = replace(constants[0], data=packed(rows, some, groups), note=f"by {some} channels")
        constants = (stream, *constants[1:])
        s |= {"w_step": 4 * some * taps, "tap": some * s["tap_values"]}
    block_count = -(-count // some)
    s |= {"blocks": block_count, "back": 4 * (-count % some), "by_group": groups > 1 and block_count > 1}
    s |= {"result_step": count, "value_step": values, "weight_step": block_count * some * taps}
    if groups > block_count == 1:  # a block for each group
        s |= {"blocks": groups, "x_block": 4 * values}
    s |= {name: of_core(core, function.replace("%d", pixels)) for name, pixels in (("one", "1"), ("function", "4"))}
    kernel = replace(
        k, template="floats/sums.c.j2", shape=s, constants=constants, variant="pixels and channels in registers"
    )
    return _priced(replace(kernel, scratch=16 * s["C"], in_place=PIXELS) if s["over"] else kernel, s)


def inside(s: Mapping[str, Any], axis: str, at: int) -> int:
    """Taps of a window within the rows (Y) or columns (X) of the image, by the number of the result."""
    size, extent = ("H", "FH") if axis == "Y" else ("W", "FW")
    first, dilation = at * s[f"S{axis}"] - s[f"P{axis}"], s[f"D{axis}"]
    return sum(0 <= first + f * dilation < s[size] for f in range(s[extent]))


def _images(s: Mapping[str, Any]) -> int:
    return int(s["A"] * s["B"] if s["matrix"] else s["N"])


def _calls(s: Mapping[str, Any]) -> Mapping[tuple[int, int, int], int]:
    """How often a micro-kernel is called for an image, by pixels, runs and taps in a run."""
    rows = Counter([1] if s["line"] else (inside(s, "Y", oy) for oy in range(s["OH"])))
    columns, ox = Counter[tuple[int, int]](), 0
    while ox < s["OW"]:
        x0 = ox * s["SX"] - s["PX"]
        full = s["most"] > 1 and 0 <= x0 <= s["W"] - 3 * s["SX"] - (s["FW"] - 1) * s["DX"] - 1 and ox <= s["OW"] - 4
        columns[4 if full else 1, inside(s, "X", ox)] += 1
        ox += 4 if full else 1
    calls = Counter[tuple[int, int, int]]()
    for (fy, lines), ((pixels, fx), count) in product(rows.items(), columns.items()):
        runs, taps = (fy, fx) if s["whole"] else (fy * fx, 1)
        calls[pixels, runs, taps * s["tap_values"]] += lines * count
    return calls


def _block_cost(s: Mapping[str, Any], runs: int) -> float:
    """Instructions of C for a block of pixels (`bench-grid`)."""
    if s["most"] == 1:
        return 24 + 10 * runs
    return (12 if s["line"] else 12 + (17 if s["whole"] else 29) * runs) + (15 * s["groups"] if s["by_group"] else 0)


def _priced(k: Kernel, s: Mapping[str, Any]) -> Kernel:
    """The kernel with its estimate and pace, for the layer or for its average row. Micro-kernels are counted."""
    most = float(np.finfo(np.float32).max)
    low, high = (float(k.scalars[name]) for name in ("low", "high"))
    bounds = low > (-most if high == most else -np.inf), high < most, high == most
    each = {1: 0.0, 4: 0.0}
    for (pixels, runs, taps), count in _calls(s).items():
        name = s["function"] if pixels == s["most"] else s["one"]
        inner = (s["groups"] if s["by_group"] else 1) * executed_by(name, taps, s["blocks"], runs, *bounds)
        copied = 10 + executed_by(COPY, pixels * taps) if s["over"] else 0
        each[pixels] += _images(s) * count * (_block_cost(s, runs) + copied + inner)
    total = sum(each.values())
    pace = sum(n * pace_of(s["function"] if pixels == 4 else s["one"], pixels) for pixels, n in each.items()) / total
    always = [n for n in each if each[n]]
    if len(always) == 1:  # never four pixels, or always
        k = replace(k, shape={**s, "either": False, "most": always[0], "function": name})
    return replace(k, estimate=LAYER + total / (s["OH"] if s["rolled"] else 1), pace=pace)


KINDS = ("conv2d", "dense", "depthwise_conv2d", "batch_matmul")
ROWS = (
    *(Row(kind, frozenset({"fpu"}), micro_kernels, crops=True) for kind in KINDS),
    *(Row(kind, frozenset({core}), blocks, crops=True) for core in ("fpu", "f", PORTABLE) for kind in KINDS),
)
