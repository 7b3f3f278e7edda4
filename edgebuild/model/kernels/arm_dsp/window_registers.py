"""Convolutions of at most nine products a sum for Armv7E-M with DSP: the taps of two pixels stay in registers.

Rows of the image are widened to lines of int16 with their padding, from which a register takes two neighbours. So nine
taps take five words of weights, where blocks of four channels take twelve taps. The assembly is printed for each layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....base.target import DUAL_ISSUE, SLOW_FLASH
from ...ir import Array
from ...ops import spatial
from ...ops.base import C_TYPES, Constant, Form, Kernel, Sums, Traffic
from ...ops.spatial import sums_shape, words
from ..micro import Function, Loop, Part, framed, moved
from ..row import KernelLayer
from . import wide
from .factors import two_words

TAPS = ("r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10")
WEIGHTS, SUMS = ("r1", "lr"), ("r11", "r12")  # weights take turns
PACE = 1.5  # on a core that issues two instructions at once (`bench-cycles`): each product waits for its sum
WAITING = 1.3  # the same where flash is slow
REACH = 4095  # of the offset of a load or store
Shape = dict[str, Any]


@dataclass(frozen=True)
class Window:
    """`rows` of `run` values that are neighbours in a line; those of the second pixel begin `advance` values later.

    A row has a register of two values for each two of a pixel. A last one shares its register with the second pixel's.
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
        """Instructions for a channel: sums in r11 and r12, then its factors in what would be the next WEIGHTS."""
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
        """Of the weights of a channel."""
        return self.rows * (self.run // 2) + (-(-self.rows // 2) if self.run % 2 else 0)

    def packed(self, weights: Array) -> Array:
        """K x rows x run to K x words: pairs of each row, then last ones of two rows each."""
        even = self.run // 2 * 2
        halves = [weights[:, :, :even].reshape(len(weights), -1)]
        if self.run % 2:
            halves.append(np.pad(weights[:, :, even], ((0, 0), (0, self.rows % 2))))
        both = np.concatenate(halves, axis=1).astype(np.int64).reshape(len(weights), -1, 2)
        return np.asarray((both[..., 0] & 0xFFFF) | both[..., 1] << 16)


@dataclass(frozen=True)
class Pairs:
    """The function of a layer: `channels` of two pixels at a time. `finish`: as of `Sums`, or "wide" of int16."""

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
        """Channels that are written out for a turn."""
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
        """Channel i of those together; then the first factor's register has the place of channel 0's result."""
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


def bytes_(s: Sums, form: Form) -> Kernel | None:
    """int8. Of channels that are a multiple of four, blocks of four taps take as few instructions, without lines."""
    if s.finish == "sums" or not s.fits or s.weights.shape[3] != s.size[2] or s.size[2] % 4 == 0:
        return None
    ends, clamped = two_words(s), s.finish.endswith("_clamped")
    scalars: dict[str, int | float] = {"x_zero": s.x_zero, "y_zero": s.y_zero}
    scalars |= {"low": s.low, "high": s.high} if clamped else {}
    shape = sums_shape(s, form) | {"finish": ends.finish, "wide": False, "bounds": clamped}
    return _few(s.stem, s.weights, s.start, ends.words, shape, scalars, form)


def halves(layer: KernelLayer) -> Kernel | None:
    """int16."""
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
    """`shape`: letters of the template."""
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
