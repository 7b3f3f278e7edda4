"""Planes for Armv8.1-M with MVE: a row of a window is a vector, or several of sixteen bytes.

Lanes behind the last tap have weights of 0. Where taps are two or four elements spacing, loads of weights leave as many
bytes between them; for other dilations the stream has zeros between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ...ir import Array
from ...ops.base import Form, Sums
from ..blocks.plane import Ends, Plane
from ..blocks.plane_cores import Thumb
from ..micro import Loop, Part, moved
from .lanes import LANES

HELD = ("q3", "q4", "q5", "q6", "q7")  # weights of rows that stay in registers
SPACINGS = (1, 2, 4)  # bytes from a tap to the next, for which there is a load
PACE = 1.35  # where loads stand close to what waits for them (`bench-cycles`)


class Vectors(Thumb):
    """r3 the place of the result, r8 to r11 start value, multiplier, shift and zero point, q2 where results go."""

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
        bounds = {"low": s.low, "high": s.high} if s.finish.endswith("_clamped") else {}
        numbers = np.stack([s.start, s.mantissa], axis=1)
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
        """Lanes of the last taps of a row."""
        return [f"movs r0, #{self.tail}", f"vctp.{8 * self.spacing} r0"] if self.tail < self.lanes else []

    def prepared(self) -> list[str]:
        code = ["movs r0, #0", "vidup.u16 q1, r0, #1", *self.set("r0", self.p.run.step), "vmul.i16 q1, q1, r0"]
        return [*code, *self.set("r9", 8 * self.p.run.step)]

    def copy(self) -> list[Part]:
        turn = ("0:", "vldrb.u16 q0, [r0, q1]", "add r0, r0, r9", "vstrb.16 q0, [r2], #8", "letp lr, 0b")
        return [*self.set("lr", self.p.run.used), "dlstp.16 lr, lr", Loop(-(-self.p.run.used // 8), turn)]

    def few(self, count: int) -> list[Part]:
        """Nothing: `copy` takes lines as a whole."""
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
        """The next weights of a row to a vector."""
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
