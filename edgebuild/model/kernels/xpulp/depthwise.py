"""Depthwise convolutions of 3x3 for XpulpV2: a word holds four columns of a channel's row, of which weights use three.

Four channels at a time are copied to planes with padding, four pixels by four channels transposed in registers. A word
of columns 0 to 3 gives the products of one row of windows 0 and 1; for window 1, weights are shifted by one byte.
Halves of two words give those of windows 2 and 3. Start values are part of the rounding term.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ...ops.base import Constant, Form, Kernel, Sums, Traffic
from ...ops.spatial import in_place, sums_shape, words
from ..blocks.two_in_one import rv_frame
from ..micro import Function, Loop, Part
from .dot import Product, ends, factors_into, raw_ends, result
from .encoding import hardware_loop, printed

ROOM = 4096  # bytes of planes, beyond which rows are computed in bands
FRAME = 96
SLOTS = {"low": 52, "high": 56, "plane": 60, "y": 64, "rows": 68, "size": 72, "left": 76, "w": 80}
SUMS, WEIGHTS, HIGHER = ("t4", "t5", "t6", "s10"), ("s0", "s1", "s2"), ("s3", "s4", "s5")
WORDS = (("s6", "s7"), ("s8", "s9"))
HALVES = "0x20001"  # for shuffles: the upper half of one word below the lower half of the other


@dataclass(frozen=True)
class Windows:
    """The function for windows of channels with rows of `pitch` bytes; `tail`: windows of a row after groups.

    `started`: sums have start values, because their rounding depends on their sign.
    """

    encoding: str
    stride: int
    pitch: int
    tail: int
    started: bool
    product: Product
    clamped: bool

    @property
    def name(self) -> str:
        ends = f"{'started_' if self.started else ''}{self.product.name}{'_clamped' if self.clamped else ''}"
        return f"eb_{self.encoding}_windows{self.stride}_{self.pitch}_{self.tail}_{ends}"

    @property
    def group(self) -> int:
        """Windows that begin in four columns."""
        return 4 // self.stride


def _group(d: Windows, count: int) -> list[str]:
    """Compute `count` windows of a group."""
    code = list[str]()
    loads = [
        [f"lw {one}, {row * d.pitch}(t0)", *([f"lw {other}, {row * d.pitch + 4}(t0)"] if count > d.group // 2 else [])]
        for row, (one, other) in enumerate((WORDS[0], WORDS[1], WORDS[0]))
    ]
    code += loads[0] + loads[1] + ([f"mv {v}, a1" for v in SUMS[:count]] if d.started else [])
    for row, (one, other) in enumerate((WORDS[0], WORDS[1], WORDS[0])):
        name = "cv.dotsp.b" if row == 0 and not d.started else "cv.sdotsp.b"
        for half in range(2):
            if half and count > d.group // 2:
                code.append(f"cv.shuffle2.h {one}, {other}, t3")
            weights = (WEIGHTS, HIGHER)[: d.group // 2]
            for n, w in enumerate(weights, half * len(weights)):
                code += [f"{name} {SUMS[n]}, {one}, {w[row]}"] if n < count else []
        code += loads[2] if row == 0 else []
    for v in SUMS[:count]:
        code += result(v, d.product)
        bounds = [_slot("lw", "a6", "low"), _slot("lw", "a7", "high"), f"cv.max {v}, {v}, a6", f"cv.min {v}, {v}, a7"]
        code += bounds if d.clamped else []
        code.append(f"cv.sb.by {v}, (t1), t2")
    return code


def _slot(name: str, register: str, slot: str) -> str:
    return f"{name} {register}, {SLOTS[slot]}(sp)"


@cache
def function(d: Windows) -> Function:
    """The function for four channels, one after the other."""
    kinds = ["const int8_t *plane", "const int32_t *w", "int8_t *y", "int32_t step", "int32_t groups", "int32_t rows"]
    kinds += ["int32_t size", *(["int32_t low", "int32_t high"] if d.clamped else [])]
    bounds = [_slot("sw", "a7", "low"), f"lw a7, {FRAME}(sp)", _slot("sw", "a7", "high")] if d.clamped else []
    saved = {"a0": "plane", "a2": "y", "a5": "rows", "a6": "size", "t0": "left"}
    enter = [*bounds, "li t0, 4", *(_slot("sw", r, slot) for r, slot in saved.items())]
    started = ["cv.lw a6, (a1), 4", _slot("sw", "a1", "w"), "mv a1, a6"] if d.started else []
    head: list[Part] = [
        "3:", *(_slot("lw", r, slot) for r, slot in (("s11", "plane"), ("t1", "y"), ("t0", "rows"))),
        *(f"cv.lw {r}, (a1), 4" for r in WEIGHTS), *(f"slli {h}, {w}, 8" for h, w in zip(HIGHER, WEIGHTS, strict=True)),
        *factors_into(d.product), *started,
    ]  # fmt: skip
    row: list[Part] = []
    row += ["mv t0, s11", f"addi s11, s11, {d.stride * d.pitch}"]
    row += [*hardware_loop(0, "ra", "groups", [*_group(d, d.group), "addi t0, t0, 4"])]
    row += _group(d, d.tail) if d.tail else ["nop", "nop"]
    alone = ["mv t0, s11", f"addi s11, s11, {d.stride * d.pitch}", *_group(d, d.tail)] if d.tail else ["nop"] * 3
    after = [_slot("lw", "a6", "plane"), _slot("lw", "a7", "size"), "add a6, a6, a7", _slot("sw", "a6", "plane")]
    after += [_slot("lw", "a6", "y"), "addi a6, a6, 1", _slot("sw", "a6", "y"), *([_slot("lw", "a1", "w")] * d.started)]
    after += [_slot("lw", "a6", "left"), "addi a6, a6, -1", _slot("sw", "a6", "left"), "bnez a6, 3b"]
    channel = (
        *head, "beqz ra, 1f", *hardware_loop(1, "t0", "rows", row), "j 2f",
        "1:", *hardware_loop(1, "t0", 0, alone), "2:", *after,
    )  # fmt: skip
    parts: list[Part] = [
        *rv_frame(FRAME)[0], *enter, "mv t2, a3", "mv ra, a4", f"li t3, {HALVES}", Loop(4, channel),
        *rv_frame(FRAME)[1],
    ]  # fmt: skip
    remark = (
        f"Windows of 3x3 of four channels, in planes of `size` bytes whose rows lie {d.pitch} bytes apart, in `rows` "
        f"rows of `groups` times {d.group} and {d.tail} more; `step`: from one result to the next. w, by channel: "
        "three words of weights, then factors."
    )
    return printed(d.encoding, d.name, kinds, remark, parts)


@cache
def planes(encoding: str) -> Function:
    """The function that copies rows of four channels to planes, four pixels at a time; the last four may overlap."""
    block = ["cv.lw.by a6, (t0), a4", "cv.lw.by a7, (t0), a4", "cv.lw.by t1, (t0), a4", "cv.lw.by t2, (t0), a4"]
    block += ["mv t3, a6", "cv.shuffle2.b a6, a7, t5", "cv.shuffle2.b t3, a7, t6"]
    block += ["mv t4, t1", "cv.shuffle2.b t1, t2, t5", "cv.shuffle2.b t4, t2, t6"]
    block += ["cv.pack a7, t1, a6", "cv.shuffle2.h a6, t1, ra", "cv.pack t2, t4, t3", "cv.shuffle2.h t3, t4, ra"]
    block += ["cv.sw a7, (a1), 4", "cv.sw a6, (a2), 4", "cv.sw t2, (a3), 4", "cv.sw t3, (a5), 4"]
    (enter, leave), places = rv_frame(16, ("ra", "s0", "s1", "s2")), ("a1", "a2", "a3", "a5")
    odd = ["addi a6, a0, -4", *(f"add {place}, {place}, a6" for place in places), "mul a6, a6, a4", "add t0, t0, a6"]
    row = ["1:", *hardware_loop(0, "s0", "blocks", block), "beqz a0, 2f", Loop("odd", (*odd, *block))]
    row += ["2:", *(f"add {place}, {place}, s2" for place in places), "addi s1, s1, -1", "bnez s1, 1b"]
    parts: list[Part] = [
        *enter, "mv t0, a0", "mv s0, a2", "mv s1, a6", "mv s2, a7", "mv a0, a3", "add a2, a1, a5", "add a3, a2, a5",
        "add a5, a3, a5", "li t5, 0x05010400", "li t6, 0x07030602", "li ra, 0x30001", Loop("rows", tuple(row)), *leave,
    ]  # fmt: skip
    kinds = ("const int8_t *x", "int8_t *to", "int32_t blocks", "int32_t rest", "int32_t step", "int32_t plane",
             "int32_t rows", "int32_t on")  # fmt: skip
    remark = (
        "Four channels of `rows` rows of `blocks` times four pixels, which lie `step` bytes apart, to four planes of "
        "`plane` bytes, whose rows lie `on` bytes behind the end of those before. `rest`: pixels behind the blocks, "
        "which are brought with those before them."
    )
    return printed(encoding, f"eb_{encoding}_planes", kinds, remark, parts)


PER_FOUR, PER_CALL, PER_ROW_OF_CHANNEL = 60, 40, 9  # cycles of C, and waits


def depthwise(encoding: str, s: Sums, form: Form) -> Kernel | None:
    """The kernel for 3x3 windows that overlap or touch, with channels in fours."""
    (_, w, c), (oh, ow, k), (sy, sx) = s.size, s.out, s.stride
    plain = s.window == (3, 3) and s.dilation == (1, 1) and sy == sx and sx in (1, 2) and c == k and c % 4 == 0
    if not plain or w < 4 or min(s.pad) < 0 or (e := raw_ends(s) or ends(s)) is None:
        return None
    started = e is not raw_ends(s)
    wanted = (ow - 1) * sx + 3
    pitch = -(-max(s.pad[1] + w, wanted) // 4) * 4 + 4
    if 2 * pitch + 4 > 2047:
        return None
    most = max(1, (ROOM // (4 * pitch) - 3) // sy + 1)
    band = 1 if form.rolled else oh if oh <= most else most
    rows = (band - 1) * sy + 3
    group = 4 // sx
    d = Windows(encoding, sx, pitch, ow % group, started, e.product, not s.full_range)
    shape: dict[str, Any] = sums_shape(s, form) | {
        "windows": d.name, "planes": f"eb_{encoding}_planes", "pitch": pitch, "band": band, "rows": rows,
        "plane": rows * pitch, "groups": ow // group, "blocks": w // 4, "rest": w % 4,
        "words": 3 + e.words.shape[1] + started,
        "clamped": d.clamped, "padded_rows": s.padded_rows,
    }  # fmt: skip
    taps = np.pad(s.weights.reshape(k, 3, 3), ((0, 0), (0, 0), (0, 1)))
    packed = np.ascontiguousarray(taps).view("<i4").reshape(k, 3)
    start = s.start[:, None][:, : int(started)]
    stream = words(np.concatenate([packed, e.words, start], axis=1))
    scalars = {"x_zero": s.x_zero, **s.bounds(d.clamped)}
    bands, out_rows = (1, 1) if form.rolled else (-(-oh // band), oh)
    waits = (4 if e.product.way == "high" else 0) * ow
    each = function(d).executed(groups=ow // group, rows=out_rows / bands)
    each += 4 * out_rows / bands * (waits + PER_ROW_OF_CHANNEL / 3)
    calls = rows if form.rolled else bands
    filled = planes(encoding).executed(blocks=w // 4, odd=w % 4 > 0, rows=bands * rows / calls)
    bring = calls * (filled + PER_CALL) + 2 * bands * rows
    cost = 60 + k / 4 * (bands * (each + PER_FOUR) + bring)
    constant = Constant("w", stream.ravel(), "weights and factors by channel")
    return Kernel(
        "xpulp/kernels.c:depthwise", s.stem, shape, (constant,), scalars,
        scratch=4 * rows * pitch, variant="xpulp windows", estimate=cost,
        in_place=in_place(s, form) if band == oh else "", traffic=Traffic(channels_in=4, channels_out=1),
    )  # fmt: skip
