"""Planes in RV32IM: weights stay in registers where they all fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..micro import Loop, Part
from .plane import Core, Plane, numbers, table
from .two_in_one import SAVED, rv_frame, rv_result

MOST_HELD = 9  # weights


class Rv32(Core):
    """a3 to a7 are multiplier, rounding, shift and bounds, t6 the start value, s1 the place of the result.

    s10 is the distance to the next row under a window, s11 that to the next result.
    """

    loads = True

    x, w, past, source, to = "a0", "a1", "a2", "a0", "a1"
    rows, count, end, spare = "a2", "t6", "t5", "s0"
    far = 2047
    text: ClassVar[dict[str, str]] = {
        "get": "lw {}, {}(sp)", "put": "sw {}, {}(sp)", "until": "bne {}, {}, {}", "equal": "beq {}, {}, {}",
        "within": "bgeu {1}, {0}, {2}", "back": "addi {0}, {0}, -1; bnez {0}, {1}", "jump": "j {}",
    }  # fmt: skip
    scalars: ClassVar[tuple[str, ...]] = ("low", "high")
    kept = spare
    in_registers: ClassVar[dict[str, str]] = {
        "step": "s2", "line_on": "s3", "last_piece": "s4", "source_on": "s5", "piece_back": "s6",
    }  # fmt: skip
    blocks = (6, 5, 4, 3, 2, 1)
    sums = ("t2", "t3", "t4", "t5", "ra", "a2")

    def __init__(self, p: Plane) -> None:
        super().__init__(p)
        self.stays = not p.looped and p.taps <= MOST_HELD
        free = ["s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"]
        self.weights = [*free, self.w] if self.stays else free

    @classmethod
    def serves(cls, p: Plane) -> bool:
        reach = (p.together - 1) * p.run.stride + (p.run.taps - 1) * p.run.dilation
        return max(reach, p.taps, p.turn * p.run.taps) <= cls.far and not (p.looped and p.together == len(cls.sums))

    def enter(self, arguments: Sequence[str]) -> list[Part]:
        loaded = (*numbers(self), *(f"unused {n}" for n in range(len(table(self)) - len(numbers(self)))))
        names = (*loaded, "channels left", "channel", "times left", "lines left", "last", *arguments[:8])
        self.frame = -(-4 * (len(SAVED) + len(names)) // 16) * 16
        self.at = {n: 4 * (len(SAVED) + i) for i, n in enumerate(names)}
        self.at |= {n: self.frame + 4 * i for i, n in enumerate(arguments[8:])}
        clamped = self.p.finish.endswith("_clamped")
        bounds = [line for r, n, value in (("a6", "low", -128), ("a7", "high", 127))
                  for line in (self.get(r, n) if clamped else [f"li {r}, {value}"])]  # fmt: skip
        return [
            *rv_frame(self.frame)[0], *(f"sw a{i}, {self.at[n]}(sp)" for i, n in enumerate(arguments[:8])),
            *bounds, *self.get("t4", "numbers"), f"addi t0, sp, {4 * len(SAVED)}", f"addi t1, t0, {4 * len(loaded)}",
            Loop(len(loaded) // 2, ("0:", "lw t2, 0(t4)", "lw t3, 4(t4)", "sw t2, 0(t0)", "sw t3, 4(t0)",
                 "addi t4, t4, 8", "addi t0, t0, 8", "bne t0, t1, 0b")),
            *self.get("s10", "row"), *self.get("s11", "step_y"),
        ]  # fmt: skip

    def leave(self) -> list[Part]:
        return rv_frame(self.frame)[1]

    def set(self, register: str, number: int) -> list[str]:
        if -2048 <= number < 2048:
            return [f"li {register}, {number}"]
        upper, lower = (number + 2048) >> 12, (number + 2048) % 4096 - 2048
        return [f"lui {register}, {upper % (1 << 20)}"] + [f"addi {register}, {register}, {lower}"] * (lower != 0)

    def add(self, to: str, of: str, number: int | str) -> list[str]:
        if isinstance(number, str):
            return [f"add {to}, {of}, {number}"]
        if -2048 <= number < 2048:
            return [f"addi {to}, {of}, {number}"] if number or to != of else []
        return [*self.set("t0", number), f"add {to}, {of}, t0"]

    def temporary(self, place: str) -> str:
        return "t0"

    def clear(self) -> list[Part]:
        turn = (*(f"sw t1, {at}(a0)" for at in (0, 4, 8, 12)), "addi a0, a0, 16", *self.emit("until", "a0", "t5", "0b"))
        end = [*self.add("t5", "a0", 0), *self.move("t5", "bytes")]
        return [*self.get("a0", "plane"), *end, *self.get("t1", "pad"), Loop("bytes", ("0:", *turn))]

    def listed(self) -> list[str]:
        return ["lw a0, 0(a2)", "addi a2, a2, 4", *self.get("t0", "channel"), "add a0, a0, t0"]

    def few(self, count: int) -> list[Part]:
        registers = ("t1", "t2", "t3", "t4", "s7", "s8")[:count]
        code = [line for r in registers for line in (f"lb {r}, 0(a0)", "add a0, a0, s2")]
        return [*code, *(f"sb {r}, {i}(a1)" for i, r in enumerate(registers)), f"addi a1, a1, {count}"]

    def begin(self) -> list[str]:
        taps = self.p.taps
        code = [*self.get("t0", "ends"), "lw t6, 0(t0)", "lw a3, 4(t0)", "lw a4, 8(t0)", "addi t0, t0, 12"]
        code += [*self.put("t0", "ends"), *self.get("t1", "taps"), f"lb a5, {taps}(t1)"]
        code += [f"lb {w}, {i}(t1)" for i, w in enumerate(self.weights[:taps])] if self.stays else ["mv a1, t1"]
        code += self.add("a2", "t1", taps) if self.p.looped else []
        code += [*self.add("t1", "t1", taps + 1), *self.put("t1", "taps"), *self.get("s1", "y"), "addi t1, s1, 1"]
        return [*code, *self.put("t1", "y"), *self.get("a0", "plane")]

    def starts(self, count: int) -> list[str]:
        return [f"mv {r}, t6" for r in self.sums[:count]]

    def row(self, count: int, row: int) -> list[str]:
        code, run, size = list[str](), self.p.run, len(self.weights)
        at = row * run.taps
        for begin in range(0, run.taps, size):
            taps = range(begin, min(run.taps, begin + size))
            held = {t: self.weights[at + t if self.stays else t - begin] for t in taps}
            code += [] if self.stays else [f"lb {w}, {at + t}(a1)" for t, w in held.items()]
            pairs = [(o, t, o * run.stride + t * run.dilation) for o in range(count) for t in taps]
            for column in sorted({c for _, _, c in pairs}):
                code.append(f"lb t0, {column}(a0)")
                for o, t, c in pairs:
                    if c == column:
                        begun = self.sums[o] if o in self.begun else "t6"
                        code += [f"mul t1, t0, {held[t]}", f"add {self.sums[o]}, {begun}, t1"]
                        self.begun.add(o)
        return code

    def next_row(self) -> list[str]:
        return ["add a0, a0, s10"]

    def results(self, count: int) -> list[Part]:
        code = list[Part]()
        for v in self.sums[:count]:
            code += rv_result(v, self.p.finish.startswith("away"), ("a3", "a4", "a5"), ("a6", "a7"))
            code += [f"sb {v}, 0(s1)", "add s1, s1, s11"]
        return code

    def out_on(self, name: str) -> list[str]:
        return self.move("s1", name)
