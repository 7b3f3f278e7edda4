"""Planes for Armv7E-M with the DSP extension: two taps at a time.

An element is an int16, so that SMLAD multiplies two neighbours. Where taps are not neighbours, an element is a word of
the two that are: it and the one a dilation after it. Words of the plane may be unaligned.

The weights of a small window stay in registers. Then words of the plane are loaded once for all outputs of a block, of
which every other one may begin in the upper half of a word: `multiplies` says which weights it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from ....base.target import SLOW_FLASH
from ...ir import Array
from ...ops.base import Form, Sums
from ..blocks.plane import Axis, Ends, Numbers, Plane
from ..blocks.plane_cores import Thumb
from ..micro import Part
from .weight_words import factors

# Paces (`bench-cycles`): with slow flash; and, of weights in registers against compiled code, on a core that issues
# one instruction at a time: loads stand one by one.
FETCHING, PACE = 1.15, 0.85
MAX_SUMMED = 9  # weights that are summed at run time, so that a bias of two bytes replaces a start value


HELD = ("r1", "r2", "r3", "r4", "r5", "r6")  # weights that stay in registers
HELD_SUMS, LOADED = ("r7", "r8", "r9", "r10"), ("r11", "r12", "lr")  # beside them: sums, words of the plane in turn
Pair = tuple[int, int]  # taps in the low and the high half of a word; -1: none


def tap_words(taps: int, first: int) -> list[Pair]:
    """Taps of a row as words when the first one lies at column `first` (0 or 1) of the words."""
    column = [-1] * first + list(range(taps))
    column += [-1] * (len(column) % 2)
    return list(zip(column[::2], column[1::2], strict=True))


def multiplies(taps: int, stride: int) -> tuple[list[Pair], list[list[tuple[str, int, int]]]]:
    """Words of weights of a row, and for each output of a pair its (instruction, word of weights, word of the plane).

    A tap alone in a word is taken from a full word that holds it.
    """
    needed = [tap_words(taps, 0), tap_words(taps, stride % 2)]
    full = list(dict.fromkeys(p for row in needed for p in row if -1 not in p))
    held: list[Pair] = list(full)
    outputs: list[list[tuple[str, int, int]]] = []
    for o, row in enumerate(needed):
        outputs.append([])
        for at, pair in enumerate(row):
            word = at + o * (stride // 2)
            if -1 not in pair:
                outputs[o].append(("smlad", held.index(pair), word))
                continue
            tap = max(pair)
            if not any(tap in p for p in held):
                held.append((tap, -1))
            place = next(i for i, p in enumerate(held) if tap in p)
            half = "b" if held[place][0] == tap else "t"
            outputs[o].append((f"smla{half}{'b' if pair[0] == tap else 't'}", place, word))
    return held, outputs


class Words(Thumb):
    variant, width, each = "dsp plane", 2, 14
    scalars: ClassVar[tuple[str, ...]] = ("zero", "unit", "low", "high")
    own = ("start", "factor", "second")
    store = "strh"
    over = 3
    weights: tuple[str, ...] = ("r8", "r9", "r10", "r11", "r12")  # two taps each

    def __init__(self, p: Plane) -> None:
        super().__init__(p)
        self.pairs, self.products = multiplies(p.run.taps, p.run.stride)
        few = len(self.pairs) * p.lines.taps <= len(HELD) and p.run.taps <= len(HELD_SUMS)
        near = p.lines.taps * p.lines.dilation * self.line < self.far and p.together * p.run.stride * self.item < 256
        self.held = few and near and not p.looped and p.run.dilation == 1
        if self.held:
            self.sums, self.weights = HELD_SUMS, HELD

    @classmethod
    def ends(cls, s: Sums) -> Ends | None:
        code = factors(s)
        if s.finish == "sums":
            return None
        scalars: Numbers = {"y_zero": s.y_zero, **code.scalars, **s.bounds(s.finish.endswith("_clamped"))}
        bias = s.start + s.x_zero * s.weights.astype(np.int64).sum(axis=(1, 2, 3))
        if code.unit and s.window[0] * s.window[1] <= MAX_SUMMED and bool((abs(bias) < 2**15).all()):
            how, clamped, _ = code.finish.partition("_clamped")
            return Ends(f"{how}_bias{clamped}", code.words, bias.astype("<i2")[:, None].view(np.int8), scalars)
        numbers = np.concatenate([s.start[:, None], code.words], axis=1)
        return Ends(code.finish, numbers, np.zeros((s.out[2], 0)), scalars)

    @classmethod
    def stream(cls, rows: Array, dilation: int) -> Array:
        return rows[:, :, cls.order(rows.shape[2])]

    @classmethod
    def order(cls, taps: int) -> list[int]:
        """The order of taps in the stream: SXTB16 takes every other byte, so taps 1 and 2 of four change places."""
        order = list(range(taps))
        for at in range(1, taps - 1, 4):
            order[at : at + 2] = order[at + 1], order[at]
        return order

    @classmethod
    def serves(cls, p: Plane) -> bool:
        return p.run.dilation < 60  # reach of a store's negative offset

    def pace(self, form: Form) -> float:
        return PACE if self.held else FETCHING if SLOW_FLASH in form.core else 1.0

    @classmethod
    def item_of(cls, run: Axis) -> int:
        return 2 if 1 in (run.dilation, run.taps) else 4

    @property
    def lead(self) -> int:
        return self.p.run.dilation * 4 if self.item == 4 else 0

    @property
    def bytes(self) -> int:
        """Bytes of the scratch. A last word may begin at the last element of a line."""
        return max(16, self.lead + self.p.lines.reach * self.line + 4 * (self.p.run.reach % 2 == 0))

    def padding(self) -> list[str]:
        return [*super().padding(), "sxtb r2, r2", "pkhbt r2, r2, r2, lsl #16"]

    def stored(self, register: str, number: int) -> list[str]:
        again = f"strh {register}, [r1, #{4 * (number - self.p.run.dilation) + 2}]"
        return super().stored(register, number) + ([again] if self.item == 4 else [])

    def begin(self) -> list[str]:
        two, biased, taps = "2" in self.p.finish, "_bias" in self.p.finish, self.p.taps
        code = self.words((*(() if biased else ("start",)), "factor", *(("second",) if two else ())))
        code += [] if two else [*self.get("r6", "unit"), f"ror r6, r6, r{5 - biased}", *self.put("r6", "second")]
        code += [*self.get("r1", "taps"), *self.add("r3", "r1", taps + 2 * biased), *self.put("r3", "taps")]
        if biased:
            code += [f"ldrsh lr, [r1, #{taps}]", *super().padding(), "sxtb r2, r2", "rsb r12, r2, #0"]
            code += [line for t in range(0 if self.held else taps)
                     for line in (f"ldrsb r2, [r1, #{t}]", "smlabb lr, r2, r12, lr")]  # fmt: skip
        code += self.begun_at()
        code += self.all_weights(biased) if self.held else []
        return code + (self.put("lr", "start") if self.held or (biased and self.p.looped) else [])

    def all_weights(self, biased: bool) -> list[str]:
        """Load the weights of a channel to registers, row by row through those of sums; the zero point is in r12."""
        code, taps = ["mov r11, r1"], self.p.run.taps
        code += ["pkhbt r12, r12, r12, lsl #16"] if biased else []
        for row in range(self.p.lines.taps):
            own = HELD[row * len(self.pairs) :]
            code += [f"ldrsb r{7 + t}, [r11, #{row * taps + at}]" for at, t in enumerate(self.order(taps))]
            code += [f"pkhbt {w}, r{7 + low}, r{7 + high}, lsl #16" if high >= 0 else f"mov {w}, r{7 + low}"
                     for w, (low, high) in zip(own, self.pairs, strict=False)]  # fmt: skip
            code += [f"{name} lr, {own[place]}, r12, lr" for name, place, _ in self.products[0] if biased]
        return code

    def pieces(self) -> Iterator[list[int]]:
        """Taps of a row whose weights are in registers at a time."""
        size = 2 * len(self.weights)
        size = self.p.run.taps if self.p.run.taps <= size else size // 4 * 4
        for begin in range(0, self.p.run.taps, size):
            yield list(range(begin, min(self.p.run.taps, begin + size)))

    def widened(self, taps: list[int], at: int) -> list[str]:
        """Load weights of taps from byte `at` on, two in a register."""
        code = list[str]()
        for four in range(0, len(taps), 4):
            low, high, count = self.weights[four // 2], (*self.weights, "")[four // 2 + 1], len(taps) - four
            if count > 2:
                code += [f"ldr {low}, [r1, #{at + four}]", f"sxtb16 {high}, {low}, ror #8", f"sxtb16 {low}, {low}"]
            else:
                code.append(f"ldrsb {low}, [r1, #{at + four}]")
                second = [f"ldrsb r2, [r1, #{at + four + 1}]", f"pkhbt {low}, {low}, r2, lsl #16"]
                code += second if count == 2 else []
        return code

    def row_of_held(self, count: int, row: int) -> list[str]:
        """Products with weights in registers. The last sum's register holds the start value until its first product."""
        last, pairs, run = self.sums[count - 1], len(self.pairs), self.p.run
        code = [] if row else self.get(last, "start")
        first, loaded, on = row * self.p.lines.dilation * self.line, 0, count * run.stride * self.item
        waiting = sorted((word + o // 2 * run.stride, o, name, self.weights[row * pairs + place])
                         for o in range(count) for name, place, word in self.products[o % 2])  # fmt: skip
        for word, o, name, weight in waiting:
            for load in range(loaded, min(waiting[-1][0] + 1, word + len(LOADED)) if word >= loaded else 0):
                begins = row == load == 0
                place = f"[r0], #{on}" if begins else f"[r0, #{first + 4 * load - on}]"
                code.append(f"ldr {LOADED[load % 3]}, {place}")
                loaded = load + 1
            code.append(
                f"{name} {self.sums[o]}, {weight}, {LOADED[word % 3]}, {self.sums[o] if o in self.begun else last}"
            )
            self.begun.add(o)
        self.ahead["r0"] = on
        return code

    def row(self, count: int, row: int) -> list[str]:
        if self.held:
            return self.row_of_held(count, row)
        code, run = list[str](), self.p.run
        first = row * self.p.lines.dilation * self.line
        for taps in self.pieces():
            code += self.widened(taps, row * run.taps + taps[0])
            pairs = [(o, i, o * run.stride + t * run.dilation) for o in range(count) for i, t in enumerate(taps[::2])]
            columns = sorted({c for _, _, c in pairs})
            for two in zip(columns[::2], [*columns[1::2], -1], strict=False):  # a load after a load is faster
                code += [f"ldr {x}, [r0, #{first + c * self.item}]" for x, c in zip(("r2", "r3"), two, strict=True)
                         if c >= 0]  # fmt: skip
                for x, column in zip(("r2", "r3"), two, strict=True):
                    for o, i, c in pairs:
                        if c == column:
                            multiply = "smlabb" if 2 * i + 1 == len(taps) else "smlad"
                            code.append(f"{multiply} {self.sums[o]}, {x}, {self.weights[i]}, {self.first(o)}")
        return code

    def results(self, count: int) -> list[Part]:
        how, sums = self.p.finish.partition("_")[0], self.sums[:count]
        factor, second, zero = LOADED if self.held else ("r8", "r9", "r10")
        code = [line for r, n in ((factor, "factor"), (second, "second"), (zero, "zero")) for line in self.get(r, n)]
        product, last = "smmla" if how.startswith("once") else "smmlar", "smmlsr" if "2" in how else "smmlar"
        code += [f"{product} {v}, {v}, {factor}, {v}" for v in sums]
        code += [f"add {v}, {v}, {v}, asr #31" for v in sums] if how.startswith("signed") else []
        code += [f"{last} {v}, {v}, {second}, {zero}" for v in sums]
        if self.p.finish.endswith("_clamped"):
            code += [*self.get(factor, "low"), *self.get(second, "high")]
            code += [line for v in sums for bound, than in ((factor, "lt"), (second, "gt"))
                     for line in (f"cmp {v}, {bound}", f"it {than}", f"mov{than} {v}, {bound}")]  # fmt: skip
        else:
            code += [f"ssat {v}, #8, {v}" for v in sums]
        return [*code, *self.get("r11", "out"), *self.put_out(sums, "r11")]

    def out_on(self, name: str) -> list[str]:
        return [*self.move("r11", name), *self.put("r11", "out")] if self.numbers[name] else []
