"""Planes for Armv7E-M with the DSP extension: two taps at a time.

An element is an int16, so that SMLAD multiplies two neighbours. Where taps are not neighbours, an element is a word of
the two that are: it and the one a dilation behind it. Words of the plane may be unaligned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from ....base.target import SLOW_FLASH
from ...ir import Array
from ...ops.base import Form, Sums
from ..blocks.plane import Axis, Ends, Plane
from ..blocks.plane_thumb import Thumb
from ..micro import Part
from .factors import factors

FETCHING = 1.15  # pace where flash is slow (`bench-cycles`)


class Words(Thumb):
    variant, width = "dsp plane", 2
    scalars: ClassVar[tuple[str, ...]] = ("zero", "unit", "low", "high")
    own = ("start", "factor", "second")
    store = "strh"
    over = 3
    weights = ("r8", "r9", "r10", "r11", "r12")  # two taps each

    @classmethod
    def ends(cls, s: Sums) -> Ends | None:
        code = factors(s)
        if s.finish == "sums":
            return None
        bounds = {"low": s.low, "high": s.high} if s.finish.endswith("_clamped") else {}
        numbers = np.concatenate([s.start[:, None], code.words], axis=1)
        return Ends(code.finish, numbers, np.zeros((s.out[2], 0)), {"y_zero": s.y_zero, **code.scalars, **bounds})

    @classmethod
    def stream(cls, rows: Array, dilation: int) -> Array:
        """SXTB16 takes every other byte: of four taps, or three, the second and the third change places."""
        order = np.arange(rows.shape[2])
        for at in range(0, rows.shape[2] - 2, 4):
            order[[at + 1, at + 2]] = order[[at + 2, at + 1]]
        return rows[:, :, order]

    @classmethod
    def serves(cls, p: Plane) -> bool:
        return p.run.dilation < 60  # the offset of a store before a place

    @classmethod
    def pace(cls, form: Form) -> float:
        return FETCHING if SLOW_FLASH in form.core else 1.0

    @classmethod
    def item_of(cls, run: Axis) -> int:
        return 2 if 1 in (run.dilation, run.taps) else 4

    @property
    def lead(self) -> int:
        return self.p.run.dilation * 4 if self.item == 4 else 0

    def padding(self) -> list[str]:
        return [*super().padding(), "sxtb r2, r2", "pkhbt r2, r2, r2, lsl #16"]

    def stored(self, register: str, number: int) -> list[str]:
        again = f"strh {register}, [r1, #{4 * (number - self.p.run.dilation) + 2}]"
        return super().stored(register, number) + ([again] if self.item == 4 else [])

    def begin(self) -> list[str]:
        two = "2" in self.p.finish
        code = self.words(("start", "factor", "second") if two else ("start", "factor"))
        code += [] if two else [*self.get("r6", "unit"), "ror r6, r6, r5", *self.put("r6", "second")]
        code += [*self.get("r1", "taps"), *self.add("r3", "r1", self.p.taps), *self.put("r3", "taps")]
        return [*code, *self.begun_at()]

    def pieces(self) -> Iterator[list[int]]:
        """Taps of a row whose weights are in registers at a time."""
        size = 2 * len(self.weights)
        size = self.p.run.taps if self.p.run.taps <= size else size // 4 * 4
        for begin in range(0, self.p.run.taps, size):
            yield list(range(begin, min(self.p.run.taps, begin + size)))

    def widened(self, taps: list[int], at: int) -> list[str]:
        """Weights of taps from byte `at` on, two in a register."""
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

    def row(self, count: int, row: int) -> list[str]:
        code, run = list[str](), self.p.run
        first = row * self.p.lines.dilation * self.line
        for taps in self.pieces():
            code += self.widened(taps, row * run.taps + taps[0])
            pairs = [(o, i, o * run.stride + t * run.dilation) for o in range(count) for i, t in enumerate(taps[::2])]
            columns = sorted({c for _, _, c in pairs})
            for two in zip(columns[::2], [*columns[1::2], -1], strict=False):  # a load behind a load is the faster one
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
        code = [line for r, n in (("r8", "factor"), ("r9", "second"), ("r10", "zero"), ("r11", "out"))
                for line in self.get(r, n)]  # fmt: skip
        product, last = "smmla" if how.startswith("once") else "smmlar", "smmlsr" if "2" in how else "smmlar"
        code += [f"{product} {v}, {v}, r8, {v}" for v in sums]
        code += [f"add {v}, {v}, {v}, asr #31" for v in sums] if how.startswith("signed") else []
        code += [f"{last} {v}, {v}, r9, r10" for v in sums]
        code += [f"ssat {v}, #8, {v}" for v in sums if not self.p.finish.endswith("_clamped")]
        code += [line for v in sums for line in self.bounded(v, "r2") if self.p.finish.endswith("_clamped")]
        return [*code, *self.put_out(sums, "r11")]
