"""Windows of few taps for Armv7E-M with DSP: depthwise sums, and convolutions with their taps in registers.

Depthwise sums of four channels of a pixel at a time, straight from the operand: rows of a ring cost no more.

A list has the address of the pixel under each tap of the window. int8: two taps share a word; only windows of a few
sizes, because their taps are unrolled. int16: any window, tap by tap in a loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from ....base.target import DUAL_ISSUE, SLOW_FLASH
from ...ir import Array
from ...ops import spatial
from ...ops.base import C_TYPES, Constant, Form, Kernel, Sums, Traffic
from ...ops.spatial import computed_once, sums_shape, words
from ..micro import Function, Loop, Part, Unrolled, framed, moved, pushed
from ..row import KernelLayer
from . import wide
from .convolution import borders
from .dot import FINISHES, Finish, within
from .weight_words import bounds, factors, two_words

WRITTEN_OUT = tuple(range(2, 26))  # taps of windows of int8
PIXEL, GENERAL = 48, 25  # instructions of compiled C (`bench-kernels`): a pixel; a result of a sum
# The same of int8, fitted to random layers: a row of the window; a pixel, that its window is tested for padding, a tap;
# a pixel whose window has padding.
ROW, INSIDE, TESTED, TAP, BORDER = 13, 10, 7, 1.9, 14
# Paces (`bench-cycles`): each tap is a load, on a core that issues one instruction at a time; and from a slow flash. On
# a core that issues two, person detection's layers take 0.83 cycles of an instruction, as planes take 0.85.
LOADING, FETCHING, TOGETHER = 1.12, 1.8, 0.83
SAVED = (*(f"r{n}" for n in range(3, 12)), "lr")
REMARK = (
    "Channels c to c_end, four at a time, each channel by itself. taps: where the pixel under each tap lies. "
    "w: for each four channels the start values, weights, and factors. r4 to r7 the sums."
)


def _parameters(item: str, finish: Finish, more: tuple[str, ...]) -> tuple[str, ...]:
    result = "int32_t" if finish.sums else item
    given = (f"const {item} *const *taps", "const int32_t *w", "int32_t c", f"{result} *y", "int32_t c_end", *more)
    return tuple(f"EB_REG {each}" for each in given)


def bytes_(taps: int, end: str) -> Function:
    """The function for int8 and a window of so many taps."""
    finish = Finish(end)
    more = ("zero", *(["unit"] if finish.unit else []), *(["low4", "high4"] if finish.clamped else []))
    at = {name: 44 + 4 * i for i, name in enumerate(more)}
    group = ["1:", "ldm r1!, {r4-r7}"]
    for pair in range(taps // 2):
        group += [f"ldrd r8, r9, [r0, #{8 * pair}]", "ldr r8, [r8, r2]", "ldr r9, [r9, r2]"]
        group += ["pkhbt r10, r8, r9, lsl #16", "pkhtb r11, r9, r8, asr #16", "ldm r1!, {r8, r9, r12, lr}"]
        for both, (even, odd), (w, w1) in (("r10", ("r4", "r5"), ("r8", "r9")), ("r11", ("r6", "r7"), ("r12", "lr"))):
            group += [f"sxtb16 r3, {both}", f"smlad {even}, r3, {w}, {even}"]
            group += [f"sxtb16 {both}, {both}, ror #8", f"smlad {odd}, {both}, {w1}, {odd}"]
    if taps % 2:
        group += [f"ldr r8, [r0, #{4 * taps - 4}]", "ldr r8, [r8, r2]", "ldm r1!, {r12, lr}"]
        group += ["sxtb16 r10, r8", "sxtb16 r11, r8, ror #8", "smlabb r4, r10, r12, r4", "smlatt r6, r10, r12, r6"]
        group += ["smlabb r5, r11, lr, r5", "smlatt r7, r11, lr, r7"]
    group.append("ldr r10, [sp]")
    if finish.sums:
        group += ["stm r10!, {r4-r7}", "str r10, [sp]"]
    else:
        group += [f"ldrd r3, r11, [sp, #{at['zero']}]" if finish.unit else f"ldr r3, [sp, #{at['zero']}]"]
        group += ["add r10, r10, r2", *_scaled(finish)]
        group += [f"bfi r4, r{4 + i}, #{8 * i}, #8" for i in (1, 2, 3)]
        group += [f"ldrd r8, r9, [sp, #{at['low4']}]", *within("r4", "r8", "r9", "r12")] if finish.clamped else []
        group.append("str r4, [r10]")
    group += ["ldr r8, [sp, #40]", "adds r2, r2, #4", "cmp r2, r8", "bne 1b"]
    places = ", ".join(f"{place} {name}" for name, place in {"y": 0, "c_end": 40, **at}.items())
    return Function(
        f"eb_taps{taps}_{end}", _parameters("int8_t", finish, tuple(f"int32_t {name}" for name in more)),
        f"{REMARK} A window has {taps} taps, of which two share a word.",
        ("push {r3-r11, lr}", pushed(SAVED), f"/* sp: {places} */", Loop("fours", tuple(group)), "pop {r3-r11, pc}"),
    )  # fmt: skip


def _scaled(finish: Finish) -> list[str]:
    load, sums, factor = "ldm r1!, {r8, r9, r12, lr}", ("r4", "r5", "r6", "r7"), ("r8", "r9", "r12", "lr")
    if not finish.two:
        return [load, *finish.scaled(sums, factor, factor, "r3", "r11")]
    return [
        line for at in (0, 2) for line in (load, *finish.scaled(sums[at : at + 2], factor[::2], factor[1::2], "r3", ""))
    ]


def halves(clamped: bool) -> Function:
    """The function for int16 and any window; each channel has a scale of its own."""
    body = ("ldr r9, [r0], #4", "ldm r1!, {r10, r11}", "add r9, r9, r2", "ldr r8, [r9]", "ldr r9, [r9, #4]",
            "smlabb r4, r8, r10, r4", "smlatt r5, r8, r10, r5", "smlabb r6, r9, r11, r6", "smlatt r7, r9, r11, r7",
            )  # fmt: skip
    past = ("ldr r3, [sp, #48]",)
    taps = Unrolled(
        "taps", ("sub lr, r3, r0", "tst lr, #4 /* an odd number of taps enters in the middle */", "bne 3f"), (3, 3),
        (("2:", *body), ("3:", *body)), ("cmp r0, r3", "bne 2b"),
    )  # fmt: skip
    group: list[Part] = ["1:", *(past if clamped else ()), "ldm r1!, {r4-r7}", taps]
    group += ["ldr r12, [sp, #4]", "ldr r0, [sp, #52]", *(["ldrd r3, lr, [sp, #56]"] if clamped else [])]
    for sums in (("r4", "r5"), ("r6", "r7")):
        group.append("ldm r1!, {r8-r11}")
        group += wide.ended(sums, (("r8", "r9"), ("r10", "r11")), "r0", ("r3", "lr") if clamped else ())
        group += [f"strh {v}, [r12], #2" for v in sums]
    group += ["str r12, [sp, #4]", "ldr r0, [sp]", "ldr lr, [sp, #44]", "add r2, r2, #8", "cmp r2, lr", "bne 1b"]
    more = ("const int16_t *const *taps_end", "int32_t zero", *(("int32_t low", "int32_t high") if clamped else ()))
    return Function(
        f"eb_wide_taps{'_clamped' if clamped else ''}", _parameters("int16_t", Finish("wide"), more),
        f"{REMARK} Weights are int16; c counts bytes.",
        ("push {r0, r3-r11, lr}", pushed(("r0", *SAVED)),
         f"/* sp: 0 taps, 4 y, 44 c_end, 48 taps_end, 52 zero{', 56 low, 60 high' if clamped else ''} */",
         *(() if clamped else past), Loop("fours", tuple(group)), "pop {r0, r3-r11, pc}"),
    )  # fmt: skip


FUNCTIONS = {f"eb_taps{n}_{end}": partial(bytes_, n, end) for n in WRITTEN_OUT for end in (*FINISHES, "sums")}
FUNCTIONS |= {f"eb_wide_taps{'_clamped' * clamped}": partial(halves, clamped) for clamped in (False, True)}


@cache
def _micro(name: str) -> Function:
    """A function by name, cached for estimates."""
    return FUNCTIONS[name]()


@computed_once
def stream(s: Sums) -> Array:
    """The stream by four channels: start values, a word of two taps' weights for each, the last odd tap, factors."""
    blocks, taps = s.out[2] // 4, s.window[0] * s.window[1]
    w = s.weights.reshape(blocks, 4, taps).astype(np.int64) & 0xFFFF
    pairs = w[:, :, 0 : taps - 1 : 2] | w[:, :, 1::2] << 16
    parts = [s.start.reshape(blocks, 4), pairs.transpose(0, 2, 1).reshape(blocks, -1)]
    if taps % 2:
        parts.append(w[:, :2, -1] | w[:, 2:, -1] << 16)
    parts.append(factors(s).words.reshape(blocks, -1))
    return words(np.concatenate(parts, axis=1))


def of_bytes(s: Sums, form: Form) -> Kernel | None:
    """The depthwise kernel of int8."""
    c, (oh, ow, k), taps = s.size[2], s.out, s.window[0] * s.window[1]
    if c != k or c % 4 or taps not in WRITTEN_OUT or not s.fits:
        return None
    packed, ends, padded = stream(s), factors(s), s.padded_rows or s.padded_columns
    name = f"eb_taps{taps}_{ends.finish}"
    shape = sums_shape(s, form) | {
        **ends.shape,
        "padded": padded,
        "step": packed.shape[1],
        "dot": name,
        "item": "int8_t",
        "list": 0,
    }
    shape |= {"ends": (", unit" if ends.unit else "") + (", low4, high4" if s.finish.endswith("_clamped") else "")}
    scalars: dict[str, int | float] = {"x_zero": s.x_zero} if padded else {}
    scalars |= {"y_zero": s.y_zero, **ends.scalars, **bounds(s), **s.bounds(s.finish == "sums")}
    constants: tuple[Constant, ...] = (Constant("w", packed.ravel(), "by groups of four channels"),)
    each = _micro(name).executed(fours=c // 4)
    if s.finish == "sums":
        constants = (*constants, *s.rescaling)
        each = c / 4 * _micro(name).executed(fours=1) + c * GENERAL
    pixels = ow if form.rolled else oh * ow
    return Kernel(
        "arm_dsp/windows.c:taps", s.stem, shape, constants, scalars, scratch=c if padded else 0, variant="dsp taps",
        estimate=pixels * each + _listed(s, form) + c * (3 if padded else 0), traffic=Traffic(passes=pixels),
        pace=TOGETHER if DUAL_ISSUE in form.core else FETCHING if SLOW_FLASH in form.core else LOADING,
    )  # fmt: skip


def _listed(s: Sums, form: Form) -> float:
    """Instructions that list the taps of int8 of all pixels."""
    fh, fw = s.window
    edge = borders(s, form, 1, s.size[1] - 1 - (fw - 1) * s.dilation[1])
    padded = s.padded_rows or s.padded_columns
    part, rows = edge.part * padded, 1 if form.rolled else s.out[0]
    tap = 10.5 if 1 in s.window else 15 if fw in (2, 4) else 19  # of padding: its row and column are a quotient
    inside = (edge.passes - part) * (INSIDE + TAP * fh * fw + TESTED * padded)
    return 12 + rows * ROW * fh + inside + part * (BORDER + tap * fh * fw)


def of_halves(layer: KernelLayer) -> Kernel | None:
    """The depthwise kernel of int16."""
    op, graph, form = layer.op, layer.graph, layer.form
    (x, w), (oh, ow, k) = graph.operands(op)[:2], graph.result(op).shape[1:]
    if not wide.fits(op, graph) or w.data is None or x.shape[3] != k or k % 4 or x.shape[0] > 1:
        return None
    taps = w.shape[1] * w.shape[2]
    fours = w.data.reshape(taps, k // 4, 2, 2).astype(np.int64).transpose(1, 0, 2, 3)  # block, tap, word, half
    packed = (fours[..., 0] & 0xFFFF) | fours[..., 1] << 16
    parts = (wide.start(op, graph).reshape(-1, 4), packed.reshape(k // 4, -1), wide.rescaling(op, graph).reshape(-1, 8))
    end, scalars = wide.ends(op, graph)
    name = f"eb_wide_taps{end}"
    shape = {**spatial.window_shape(op, graph, w.shape[1:3], form), "dot": name, "item": "int16_t", "finish": "wide",
             "padded": True, "list": 2 * k, "ends": ", low, high" if end else ""}  # fmt: skip
    pixels = ow * (1 if form.rolled else oh)
    return Kernel(
        "arm_dsp/windows.c:taps", layer.plain.stem, shape, (wide.constant(words(np.concatenate(parts, axis=1))),),
        {"x_zero": 0, **scalars}, scratch=2 * k + 4 * taps, variant="dsp taps of int16", traffic=Traffic(passes=pixels),
        estimate=2 * k + pixels * (PIXEL + _micro(name).executed(fours=k // 4, taps=taps)),
    )  # fmt: skip


# Convolutions of at most nine products a sum for Armv7E-M with DSP: the taps of two pixels stay in registers.
#
# Rows of the image are widened to lines of int16 with their padding, from which a register takes two neighbours. So
# nine taps take five words of weights, where blocks of four channels take twelve taps. The assembly is printed for each
# layer.

TAPS = ("r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10")
WEIGHTS, SUMS = ("r1", "lr"), ("r11", "r12")  # weights take turns
PACE = 1.5  # on a core that issues two instructions at once (`bench-cycles`): each product waits for its sum
WAITING = 1.3  # with slow flash
REACH = 4095  # largest offset of a load or store, in bytes
Shape = dict[str, Any]


@dataclass(frozen=True)
class Window:
    """A window: `rows` of `run` neighbouring values in a line; the second pixel's begin `advance` values later.

    A register holds two values of a row of a pixel. An odd last value shares a register with the second pixel's.
    """

    rows: int
    run: int
    advance: int
    line: int  # values

    @property
    def loads(self) -> tuple[str, ...]:
        """Instructions for the taps of two pixels, the first of which begins at lr."""
        code, free = list[str](), iter(TAPS)
        for row in range(self.rows):
            for at in range(2 * row * self.line, 2 * (row * self.line + self.run // 2 * 2), 4):
                code += [f"ldr {next(free)}, [lr, #{place}]" for place in (at, at + 2 * self.advance)]
            if self.run % 2:
                register, at = next(free), 2 * (row * self.line + self.run - 1)
                if self.advance == 1:
                    code.append(f"ldr {register}, [lr, #{at}]")
                else:
                    code += [f"ldrh {register}, [lr, #{at}]", f"ldrh r1, [lr, #{at + 2 * self.advance}]"]
                    code.append(f"orr {register}, {register}, r1, lsl #16")
        return tuple(code)

    @property
    def products(self) -> tuple[str, ...]:
        """Instructions for a channel: sums in r11 and r12, then its factors in the registers of the next WEIGHTS."""
        pairs, single, word = list[tuple[int, str, str, str, str]](), list[str](), 0
        for row in range(self.rows):
            first = row * self.run
            for at in range(first, first + self.run // 2 * 2, 2):
                pairs.append((word, "smlad", "smlad", TAPS[at], TAPS[at + 1]))
                word += 1
            if self.run % 2:
                single.append(TAPS[first + self.run - 1])
        for i, both in enumerate(single):
            w = "bt"[i % 2]
            pairs.append((word + i // 2, f"smla{w}b", f"smla{w}t", both, both))
        code, start = ["ldrd r12, r1, [r0], #8"], "r12"
        for at, (own, one, other, left, right) in enumerate(pairs):
            if own % 2 and pairs[at - 1][0] < own:
                code.append("ldrd lr, r1, [r0], #8")
            weights = WEIGHTS[own % 2]
            code += [f"{one} r11, {weights}, {left}, {start}", f"{other} r12, {weights}, {right}, r12"]
            start = "r11"
        return (*code, "ldrd lr, r1, [r0], #8" if self.words % 2 else "ldr lr, [r0], #4")

    @property
    def words(self) -> int:
        """Words of a channel's weights."""
        return self.rows * (self.run // 2) + (-(-self.rows // 2) if self.run % 2 else 0)

    def packed(self, weights: Array) -> Array:
        """Weights, K x rows x run, as K x words: pairs of each row, then last ones of two rows each."""
        even = self.run // 2 * 2
        columns = [weights[:, :, :even].reshape(len(weights), -1)]
        if self.run % 2:
            columns.append(np.pad(weights[:, :, even], ((0, 0), (0, self.rows % 2))))
        both = np.concatenate(columns, axis=1).astype(np.int64).reshape(len(weights), -1, 2)
        return np.asarray((both[..., 0] & 0xFFFF) | both[..., 1] << 16)


@dataclass(frozen=True)
class Pairs:
    """The function of a layer: `channels` of two pixels at a time. `finish`: that of `Sums`, or "wide" for int16."""

    window: Window
    channels: int
    finish: str
    clamped: bool

    @property
    def item(self) -> int:
        """Bytes of a result."""
        return 2 if self.finish == "wide" else 1

    @property
    def together(self) -> int:
        """Channels that are unrolled in an iteration."""
        return next(n for n in (4, 2, 1) if self.channels % n == 0)

    @property
    def record(self) -> int:
        """Bytes of a channel: start value, weights, two factors."""
        return 4 * (3 + self.window.words)

    @property
    def factors(self) -> tuple[str, str]:
        """Registers of a channel's factors."""
        return WEIGHTS[self.window.words % 2], WEIGHTS[(self.window.words + 1) % 2]

    def _results(self, i: int) -> list[str]:
        """Rescale and store channel i of those together; then the first factor's register has channel 0's address."""
        (first, second), letter = self.factors, "h" if self.item == 2 else "b"
        if self.item == 2:
            code = [f"smmul {v}, {v}, {first}" for v in SUMS]
        else:
            away = ["add {0}, {0}, {0}, asr #31 /* halves away from zero */"] * self.finish.startswith("signed")
            product = "smmla" if self.finish.startswith("once") else "smmlar"
            each = [f"{product} {{0}}, {{0}}, {first}, {{0}}", *away]
            code = [line.format(v) for v in SUMS for line in each]
        code += [f"ldr {first}, [sp, #56]", *(f"smmlsr {v}, {v}, {second}, {first}" for v in SUMS)]
        if self.clamped:
            code += [f"ldr {first}, [sp, #60]", f"ldr {second}, [sp, #64]"]
            code += [line for v in SUMS for bound, than in ((first, "lt"), (second, "gt"))
                     for line in (f"cmp {v}, {bound}", f"it {than}", f"mov{than} {v}, {bound}")]  # fmt: skip
        else:
            code += [f"ssat {v}, #{8 * self.item}, {v}" for v in SUMS]
        code.append(f"ldr {first}, [sp, #8]")
        return code + [
            f"str{letter} {v}, [{first}, #{self.item * (i + n * self.channels)}]" for n, v in enumerate(SUMS)
        ]

    def function(self, name: str) -> Function:
        (first, second), on = self.factors, self.item * self.together
        turn = [line for i in range(self.together) for line in (*self.window.products, *self._results(i))]
        turn += [
            f"add {first}, {first}, #{on}",
            f"str {first}, [sp, #8]",
            f"ldr {second}, [sp, #16]",
            f"cmp r0, {second}",
        ]
        pair: list[Part] = ["1:", *self.window.loads, "ldr r0, [sp, #4]", Loop("turns", ("2:", *turn, "bne 2b"))]
        pair += [f"add {first}, {first}, #{self.item * self.channels}", f"str {first}, [sp, #8]", "ldr lr, [sp]"]
        pair += ["ldr r1, [sp, #12]", "cmp lr, r1", f"add lr, lr, #{4 * self.window.advance}", "str lr, [sp]", "bne 1b"]
        bounds = ", int32_t low, int32_t high" if self.clamped else ""
        return framed(
            name,
            f"const int16_t *line, const int32_t *w, {C_TYPES['int16' if self.item == 2 else 'int8']} *y, "
            f"const int16_t *last, int32_t zero{bounds}",
            "Pairs of neighbouring pixels: the windows of the first begin at `line`, of the last at `last`. w: for "
            "each channel the start value, words of two weights, two factors. r2 to r10 taps, r11 and r12 the sums.",
            tuple(f"r{n}" for n in range(4, 12)),
            ("sub sp, sp, #20", moved(20),
             f"/* sp: 0 line, 4 w, 8 y, 12 last, 16 end of w, 56 zero{', low, high' if self.clamped else ''} */",
             "stm sp, {r0-r3}", f"movw r0, #{self.channels * self.record}", "add r0, r0, r1", "str r0, [sp, #16]",
             "ldr lr, [sp]", Loop("pairs", tuple(pair)), "add sp, sp, #20", moved(-20)),
        )  # fmt: skip


def bytes_in_registers(s: Sums, form: Form) -> Kernel | None:
    """The kernel of int8; None for channels in fours, for which blocks of four taps are as cheap without lines."""
    if s.finish == "sums" or not s.fits or s.weights.shape[3] != s.size[2] or s.size[2] % 4 == 0:
        return None
    ends, clamped = two_words(s), s.finish.endswith("_clamped")
    scalars = {"x_zero": s.x_zero, "y_zero": s.y_zero, **s.bounds(clamped)}
    shape = sums_shape(s, form) | {"finish": ends.finish, "wide": False, "bounds": clamped}
    return _few(s.stem, s.weights, s.start, ends.words, shape, scalars, form)


def halves_in_registers(layer: KernelLayer) -> Kernel | None:
    """The kernel of int16 with taps in registers."""
    op, graph, form = layer.op, layer.graph, layer.form
    x, w = graph.operands(op)[:2]
    if not wide.fits(op, graph) or w.data is None or x.shape[0] > 1 or op.attrs.get("groups", 1) > 1:
        return None
    end, scalars = wide.ends(op, graph)
    shape = spatial.window_shape(op, graph, w.shape[1:3], form) | {"finish": "wide", "wide": True, "bounds": bool(end)}
    return _few(
        layer.plain.stem, w.data, wide.start(op, graph), wide.rescaling(op, graph), shape, {"x_zero": 0, **scalars},
        form,
    )  # fmt: skip


def _few(
    stem: str, weights: Array, start: Array, factors: Array, shape: Shape, scalars: dict[str, int | float], form: Form,
) -> Kernel | None:  # fmt: skip
    """The kernel with taps in registers; None if there are too many. `shape`: letters of the template."""
    (k, rows, across, c), item = weights.shape, 2 if shape["wide"] else 1
    width, step, outputs, pad = (shape[letter] for letter in ("W", "SX", "OW", "PX"))
    line = ((outputs - 1) * step + across) * c
    window = Window(rows, across * c, step * c, line + line % 2)
    near = shape["DX"] == 1 or across == 1
    reach = max(2 * rows * window.line, 4 * window.advance, (k + 4) * item) <= REACH
    if rows * window.run > len(TAPS) or outputs < 2 or not near or not reach or not 0 <= pad * c <= line:
        return None
    record = np.concatenate(
        [start.astype(np.int64)[:, None], window.packed(weights.reshape(k, rows, -1)), factors], axis=1
    )
    columns = min(width, outputs * step + across - step - pad)
    function = Pairs(window, k, str(shape["finish"]), bool(shape["bounds"]))
    shape |= {
        "line": window.line, "inner": max(0, columns) * c, "before": pad * c, "function": function,
        "type": C_TYPES["int16" if item == 2 else "int8"], "pairs": (outputs // 2 * 2 - 2) * window.advance,
        "odd": bool(outputs % 2), "last": (outputs - 2) * window.advance,
        "last_y": (outputs - 2) * k, "row_y": outputs * k,
    }  # fmt: skip
    output_rows = 1 if form.rolled else shape["OH"]
    turns = {"pairs": -(-outputs // 2), "turns": k // function.together}
    cost = 20 + output_rows * (32 + rows * (20 + 4 * line) + function.function("").executed(**turns))
    return Kernel(
        "arm_dsp/windows.c:window_registers", stem, shape, (Constant("w", words(record).ravel(), "by channel"),),
        scalars, scratch=2 * rows * window.line, variant="dsp taps in registers", estimate=cost,
        pace=PACE if DUAL_ISSUE in form.core else WAITING if SLOW_FLASH in form.core else 1.0,
        traffic=Traffic(passes=output_rows * -(-outputs // 2)),
    )  # fmt: skip
