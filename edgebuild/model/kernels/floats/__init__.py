"""Sums of products of real numbers in registers: several channels at a time, and of several pixels where the core can.

Cores with Arm's floating-point units have micro-kernels in assembly. On others, and for int8 weights and few channels,
a block of B channels in C loads B + 1 numbers for B multiply-accumulates. Each sum grows in the order of the plain
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
# Four channels of four pixels, or of one, for all groups of four channels. Each sum begins with its bias and grows in
# the order of the plain kernel. Cortex-M4 and M33 take three cycles for VFMA, two for VMUL and VADD (DDI 0439D, table
# 7-1). So they round product and sum, and results are the plain kernel's to the last bit. Others fuse both, and round
# once.
#
# The weights of four channels are `packed`: those of a tap, then of the next one. Of a computed matrix the four are
# `columns`, neighbours that lie a step from tap to tap, or `rows`, each with its taps side by side. In sums over one
# channel each, the `channels` of a tap meet as many values: there a run is a row of the window.

FIELDS = ("bias", "runs", "taps", "x_step", "w_tap", "w_step", "w_back", "y_step", "back", "blocks", "low", "high")
AT = {name: f"[r0, #{4 * i}]" for i, name in enumerate(FIELDS)}  # of eb_float_sums_t
PACKED, COLUMNS, IN_ROWS, CHANNELS = "packed", "columns", "rows", "channels"
REMARKS = {
    PACKED: "whose weights lie of all taps in turn", COLUMNS: "whose weights lie side by side in each tap",
    IN_ROWS: "whose weights lie each with its taps in a row", CHANNELS: "with sums over one channel each",
}  # fmt: skip
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
    """`quads` x 4 sums: four channels of each pixel, or more channels of one.

    r0: eb_float_sums_t, r1: runs of taps, r2: results, r3: bias, r12: bytes of weights of the groups before, lr: groups
    left. In a run r8 points to weights and r9 counts taps. With sums over one channel each, r6: bytes of the channels
    before, r7: bytes from tap to tap.
    """

    quads: int
    weights: str
    fused: bool = False

    unit = ""
    unroll = property(lambda self: 1 if self.weights == CHANNELS else 2 if self.quads == 4 else 4)  # taps of a turn

    @property
    def name(self) -> str:
        block = f"_channels{4 * self.quads}" if self.weights == CHANNELS else f"{self.quads}_{self.weights}"
        return f"eb_{self.unit}float{block}{'_fused' * self.fused}"

    @property
    def pointers(self) -> tuple[str, ...]:
        """To the values of each pixel."""
        return POINTERS[: 1 if self.weights == CHANNELS else self.quads]

    def quad(self, op: str, number: int, pointer: str, ahead: bool) -> str:
        """A load (ld) or store (st) of four sums, which may move the pointer ahead."""
        return _moved_words(f"v{op}mia", pointer + "!" * ahead, singles(4 * number, 4))

    def zeros(self) -> list[str]:
        sums = singles(0, 4 * self.quads)
        return ["movs r9, #0", *(f"vmov {a}, {b}, r9, r9" for a, b in zip(sums[::2], sums[1::2], strict=True))]

    def begin(self) -> list[str]:
        """The bias to the sums of each pixel; products of matrices have none."""
        if self.weights in (COLUMNS, IN_ROWS):
            return self.zeros()
        return [self.quad("ld", q, "r3", self.weights == CHANNELS or q == self.quads - 1) for q in range(self.quads)]

    def operands(self) -> list[str]:
        """Pointers of a run."""
        code = ["ldm r10!, {r4, r8}", f"ldrd r9, r7, {AT['taps']}", "add r8, r8, r12"]
        code += ["add r4, r4, r6"] * (self.weights == CHANNELS)
        code += [f"add {q}, {p}, r7" for p, q in pairwise(self.pointers)]
        code += [f"ldr r3, {AT['w_tap']}"] * (self.weights in (COLUMNS, IN_ROWS))
        return code + ["add r10, r8, r3", "add r11, r10, r3", "add r3, r11, r3"] * (self.weights == IN_ROWS)

    def taps(self, count: int) -> list[str]:
        """So many taps."""
        if self.weights == CHANNELS:
            sums, x, w = (singles(first, 4 * self.quads) for first in (0, 8, 16))
            code = [_moved_words("vldmia", "r4", x), "add r4, r4, r7", _moved_words("vldmia", "r8!", w)]
            return code + self._added(list(zip(sums, x, w, strict=True)))
        one = self.quads == 1
        values = [singles(4 * self.quads + count * p, count) for p in range(self.quads)]
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
        together = one and self.weights == PACKED
        code += [_moved_words("vldmia", "r8!", singles(16, 4 * count))] * together
        for t in range(count):
            four = singles(16 + 4 * t if one else 24, 4)
            if not together:
                code += [_moved_words("vldmia", "r8" + "!" * (self.weights == PACKED), four)]
                code += ["add r8, r8, r3"] * (self.weights == COLUMNS)
            code += self._added([(f"s{4 * p + c}", v[t], four[c]) for p, v in enumerate(values) for c in range(4)])
        return code

    def _added(self, terms: list[tuple[str, str, str]]) -> list[str]:
        """Products to sums; four products stand before their sums, which so wait for none."""
        if self.fused:
            return [f"vfma.f32 {total}, {x}, {w}" for total, x, w in terms]
        code, spare = list[str](), singles(8 if self.quads == 1 and self.weights != CHANNELS else 28, 4)
        for first in range(0, len(terms), 4):
            four = list(zip(spare, terms[first : first + 4], strict=True))
            code += [f"vmul.f32 {product}, {x}, {w}" for product, (_, x, w) in four]
            code += [f"vadd.f32 {total}, {total}, {product}" for product, (total, _, _) in four]
        return code

    def bounded(self) -> list[Part]:
        """Results within bounds that are finite; what is not a number remains so."""
        code = list[Part]()
        for bound, infinite, when, label in (
            ("low", "cmn r4, #0x800000", "mi", 7),
            ("high", "cmp r4, #0x7f800000", "gt", 8),
        ):
            each = list[str]()
            for s in singles(0, 4 * self.quads):
                each += [f"vcmpe.f32 {s}, s16", "vmrs APSR_nzcv, fpscr", f"it {when}", f"vmov{when}.f32 {s}, s16"]
            code += [f"ldr r4, {AT[bound]}", infinite, f"beq.w {label}f", "vmov s16, r4"]
            code += [Loop(bound, tuple(each)), f"{label}:"]
        return code

    def stored(self) -> list[str]:
        if len(self.pointers) == 1:
            return [self.quad("st", q, "r2", True) for q in range(self.quads)]
        code = [f"ldr r5, {AT['y_step']}", "add r4, r2, r5", self.quad("st", 0, "r2", True)]
        return code + [line for q in (1, 2, 3) for line in (self.quad("st", q, "r4", False), "add r4, r4, r5")][:-1]

    def products(self) -> list[Part]:
        """All taps of a run, `unroll` of them a turn."""
        code: list[Part] = [f"subs r9, r9, #{self.unroll}", f"blt {4 if self.unroll > 1 else 6}f",
                Loop("turns", ("3:", *self.taps(self.unroll), f"subs r9, r9, #{self.unroll}", "bge 3b"))]  # fmt: skip
        if self.unroll > 1:
            code += ["4:", f"adds r9, r9, #{self.unroll}", "ble 6f"]
            code += [Loop("rest", ("5:", *self.taps(1), "subs r9, r9, #1", "bne 5b"))]
        return [*code, "6:"]

    def parts(self) -> tuple[Part, ...]:
        """The whole function. The last group of channels may begin within the one before."""
        windows, channels = self.weights in (PACKED, CHANNELS), self.weights == CHANNELS
        run: list[Part] = [*self.operands(), *self.products()]
        block: tuple[Part, ...] = (
            "1:", *self.begin(), *[f"ldr r11, {AT['runs']}"] * windows, "mov r10, r1",
            *["cmp r11, #0", "ble.w 9f"] * windows,
            Loop("runs", ("2:", *run, "subs r11, r11, #1", "bgt 2b") if windows else tuple(run)), "9:",
            *self.bounded(), *self.stored(),
            f"ldrd r4, r5, {AT['w_step']}", *[f"add r6, r6, #{16 * self.quads}"] * channels,
            "add r12, r12, r4", "subs lr, lr, #1", "beq 0f", "cmp lr, #1", "bne.w 1b",
            Loop("last", (f"ldr r4, {AT['back']}", "sub r12, r12, r5", "sub r2, r2, r4", *["sub r3, r3, r4"] * windows,
                          *["sub r6, r6, r4"] * channels, "b.w 1b")), "0:",
        )  # fmt: skip
        return (*[f"ldr r3, {AT['bias']}"] * windows, f"ldr lr, {AT['blocks']}", "mov r12, #0",
                *["mov r6, r12"] * channels, Loop("blocks", block))  # fmt: skip

    def function(self) -> Function:
        pixels = "Four pixels" if len(self.pointers) == 4 else "One pixel"
        groups = f"{4 * self.quads}" if self.weights == CHANNELS else "four"
        return Function(
            self.name, ("EB_REG const eb_float_sums_t *sums", "EB_REG const float *const *list", "EB_REG float *y"),
            f"{pixels} by groups of {groups} channels, {REMARKS[self.weights]}. "
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

    def quad(self, op: str, number: int, pointer: str, ahead: bool) -> str:
        return f"v{op}rw.{'u' * (op == 'ld')}32 q{number}, [{pointer}]{', #16' * ahead}"

    def zeros(self) -> list[str]:
        return [f"vmov.i32 q{q}, #0" for q in range(self.quads)]

    def taps(self, count: int) -> list[str]:
        if self.weights == CHANNELS:
            code = [f"vldrw.u32 q{2 + q}, [r4{f', #{16 * q}' * (q > 0)}]" for q in range(self.quads)]
            code += ["add r4, r4, r7", *(self.quad("ld", 4 + q, "r8", True) for q in range(self.quads))]
            return code + [f"vfma.f32 q{q}, q{2 + q}, q{4 + q}" for q in range(self.quads)]
        weights, columns = [f"q{4 + t}" for t in range(count)], self.weights == COLUMNS
        address = {PACKED: "[r8], #16", COLUMNS: "[r8]", IN_ROWS: "[q7, #4]!"}[self.weights]
        code = ["ldr r12, [sp, #12] /* bytes from tap to tap */"] * columns
        for w in weights:
            code += [f"vldrw.u32 {w}, {address}", *["add r8, r8, r12"] * columns]
        load = {4: "ldm {}!, {{{}}}", 2: "ldrd {1}, [{0}], #8", 1: "ldr {1}, [{0}], #4"}[count]
        together = min(4, 8 // count)  # pixels whose values are in registers at once
        for first in range(0, self.quads, together):
            values = {p: SCALARS[(p - first) * count :][:count] for p in range(self.quads)[first : first + together]}
            code += [load.format(POINTERS[p], ", ".join(v)) for p, v in values.items()]
            code += [f"vfma.f32 q{p}, {w}, {v[t]}" for t, w in enumerate(weights) for p, v in values.items()]
        return code

    def bounded(self) -> list[Part]:
        """Greater decides both bounds: LT is the inverse of GE, thus true of what is not a number (DDI 0553B, VPT)."""
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


SHAPES = [(quads, weights) for weights in (PACKED, COLUMNS, IN_ROWS) for quads in (4, 1)]
SHAPES += [(1, CHANNELS), (2, CHANNELS)]
BLOCKS: dict[str, Block] = {
    block.name: block
    for quads, weights in SHAPES
    for block in (
        Block(quads, weights), Block(quads, weights, fused=True), Vectors(quads, weights),
    )
}  # fmt: skip


def copy_words() -> Function:
    """Operands over which results lie go elsewhere first."""
    turn = Loop("turns", ("1:", "vldmia r1!, {s0-s15}", "vstmia r0!, {s0-s15}", "subs r2, r2, #16", "bge 1b"))
    rest = Loop("rest", ("3:", "vldmia r1!, {s0}", "vstmia r0!, {s0}", "subs r2, r2, #1", "bne 3b"))
    return Function(
        COPY, ("EB_REG float *to", "EB_REG const float *from", "EB_REG int32_t count"),
        "`count` words from one place to another.",
        ("subs r2, r2, #16", "blt 2f", turn, "2:", "adds r2, r2, #16", "ble 4f", rest, "4:", "bx lr"),
    )  # fmt: skip


FUNCTIONS = {name: block.function for name, block in BLOCKS.items()} | {COPY: copy_words}


def of_core(core: frozenset[str], rest: str) -> str:
    """The name of a core's function: `rest` of it begins behind "float"."""
    return f"eb_mve_float{rest}" if "mve" in core else f"eb_float{rest}{'_fused' * (DUAL_ISSUE in core)}"


def pace_of(function: str, pixels: int) -> float:
    """Cycles of an instruction over those of plain C with floats: several words come in one (`bench-cycles`)."""
    if "channels" in function:
        return 1.2 if "mve" in function else 1.55 if "fused" in function else 1.25
    four, one = (1.55, 1.45) if "mve" in function else (1.95, 2.5) if "fused" in function else (1.2, 1.45)
    return four if pixels == 4 else one


@cache
def _micro(name: str) -> Function:
    return FUNCTIONS[name]()


@cache
def executed_by(
    name: str, taps: int, blocks: int = 1, runs: float = 1, bounds: tuple[bool, bool] = (True, True)
) -> float:
    """Instructions of a call: so many taps in a run or words, groups of channels, runs, and which bounds are finite."""
    turns, rest = divmod(taps, BLOCKS[name].unroll if name in BLOCKS else 16)
    last = (blocks > 1) / blocks
    return _micro(name).executed(
        blocks=blocks, last=last, runs=runs, turns=turns, rest=rest, low=bounds[0], high=bounds[1]
    )


RESULT = 6.0  # instructions of a result: `bench-kernels` shows the error of estimates
LAYER = 40  # instructions of a call
MOST_RUNS = 64  # of taps under a window; a list of them lies on the stack
MOST = 8  # sums in registers; with as many weights and two values they fit into 32


def block_of(channels: int) -> int:
    """Channels of a block: as many as make the fewest blocks, and those as small as will do."""
    return -(-channels // -(-channels // MOST))


def starts(channels: int, block: int) -> list[int]:
    """The first channel of each block. The last block begins within the one before it where they do not divide."""
    return [min(at, channels - block) for at in range(0, channels, block)]


def packed(rows: Array, block: int, groups: int = 1) -> Array:
    """Weights K x taps in the order of reading: for each block of channels, tap by tap, those of all channels."""
    return np.concatenate([
        np.ascontiguousarray(of_group[first : first + block].T).ravel()
        for of_group in np.split(rows, groups) for first in starts(len(of_group), block)
    ])  # fmt: skip


def _letters(layer: KernelLayer, joined: bool) -> dict[str, Any] | None:
    """The layer as windows on an image. Rows of a matrix are a `line`, as are pixels that are `joined`.

    None for layers of other types or forms. `tap_values`: those that a result sums.
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
    s |= dict.fromkeys(("overlap", "over", "either"), False) | {"function": "", "most": 1, "groups": 1}
    return s | {"matrix": kind == "batch_matmul"}


def blocks(layer: KernelLayer) -> Kernel | None:
    """Blocks of channels in C. Of one group: with several, a result reads few channels."""
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
    """Four pixels by four channels in the core's own instructions; or eight sums over one channel each, or four."""
    k, core, s = layer.plain, layer.form.core, _letters(layer, joined=True)
    if s is None or s["scaled"] or s["KG"] < 4 or s.get("M", 1) > 1:
        return None
    runs = s["FH"] * (1 if s["whole"] else s["FW"])
    if runs > MOST_RUNS:
        return None
    count, groups, some, taps = s["KG"], s["K"] // s["KG"], 4, s["FH"] * s["FW"] * s["tap_values"]
    s |= {"most": 4, "either": True, "groups": groups, "x_step": 4 * s["SX"] * s["C"], "list": str(2 * runs)}
    constants, rows, function = k.constants, None, f"%d_{PACKED}"
    if s["matrix"]:
        column, tap = s["at"]
        function, step = (f"%d_{COLUMNS}", tap) if column == 1 else (f"%d_{IN_ROWS}", column)
        s |= {"w_tap": 4 * step, "w_step": 16 * column, "w_back": 4 * (-count % 4) * column}
    elif layer.op.kind == "depthwise_conv2d":
        some = 8 if count >= 8 and -(-count // 8) * 8 * 2.7 < -(-count // 4) * 4 * 3.3 else 4
        s |= {"most": 1, "x_step": 4 * s["DX"] * s["C"]}
        rows, function = constants[0].data.reshape(-1, count).T, f"_channels{some}"
    else:
        rows = constants[0].data.reshape(s["K"], -1)
        s["over"] = s["line"] and groups == 1 and layer.form.over  # other groups read what a group writes over
    if rows is not None:
        stream = replace(constants[0], data=packed(rows, some, groups), note=f"by {some} channels")
        constants = (stream, *constants[1:])
        s |= {"w_step": 4 * some * taps, "tap": some * s["tap_values"]}
    by_group, block_count = groups > 1, -(-count // some)
    s |= {"blocks": block_count, "back": 4 * (-count % some), "function": of_core(core, function)}
    s |= {"value_step": s["CG"] * by_group, "weight_step": block_count * some * taps * by_group}
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
    if s["groups"] > 1:
        return 12 + s["groups"] * (50 + 20 * runs)
    if s["most"] == 1:
        return 17 * runs - 20
    return 12 if s["line"] else 12 + (17 if s["whole"] else 20) * runs


def _priced(k: Kernel, s: Mapping[str, Any]) -> Kernel:
    """The kernel with its estimate and pace, of the layer or of its mean row. Micro-kernels are counted."""
    bounds = bool(np.isfinite(k.scalars["low"])), bool(np.isfinite(k.scalars["high"]))
    each = {1: 0.0, 4: 0.0}
    for (pixels, runs, taps), count in _calls(s).items():
        name = s["function"].replace("%d", str(pixels))
        inner = s["groups"] * executed_by(name, taps, s["blocks"], runs, bounds)
        copied = 10 + executed_by(COPY, pixels * taps) if s["over"] else 0
        each[pixels] += _images(s) * count * (_block_cost(s, runs) + copied + inner)
    total = sum(each.values())
    pace = sum(n * pace_of(s["function"], pixels) for pixels, n in each.items()) / total
    always = [n for n in each if each[n]]
    if len(always) == 1:  # never four pixels, or always
        k = replace(k, shape={**s, "either": False, "most": always[0], "function": name})
    return replace(k, estimate=LAYER + total / (s["OH"] if s["rolled"] else 1), pace=pace)


KINDS = ("conv2d", "dense", "depthwise_conv2d", "batch_matmul")
ROWS = (
    *(Row(kind, frozenset({"fpu"}), micro_kernels, crops=True) for kind in KINDS),
    *(Row(kind, frozenset({core}), blocks, crops=True) for core in ("fpu", "f", PORTABLE) for kind in KINDS),
)
