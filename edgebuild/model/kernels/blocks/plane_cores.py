"""The `Core` of each instruction set for planes: Thumb, Armv7-M, Armv6-M and RV32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ...ops.base import Sums
from ..micro import Instruction, Loop, Part, in_order, moved, pushed
from .plane import Core, Ends, Plane, numbers, table
from .two_in_one import SAVED, rv_bounded, rv_frame, rv_rescaled, v6_frame, v6_result, v7_result
from .two_in_one import Ends as Rounding

# Planes in Thumb: what instruction sets of Arm have in common, and those of Armv7-M and Armv6-M without extensions.


class Thumb(Core):
    """The stack frame, from the stack pointer up: numbers of the function, the first four arguments, registers."""

    x, w, past, source, to = "r0", "r1", "lr", "r0", "r1"
    rows, count, end, spare = "r10", "lr", "r9", "r12"
    far = 4095
    text: ClassVar[dict[str, str]] = {
        "get": "ldr {}, [sp, #{}]", "put": "str {}, [sp, #{}]", "until": "cmp {}, {}; bne {}", "jump": "b {}",
        "equal": "cmp {}, {}; beq {}", "within": "cmp {}, {}; bls {}", "back": "subs {0}, {0}, #1; bne {1}",
    }  # fmt: skip
    scalars: ClassVar[tuple[str, ...]] = ("low", "high")
    own: ClassVar[tuple[str, ...]]  # numbers of the core
    sums: tuple[str, ...] = ("r4", "r5", "r6", "r7")
    store = "strb"
    saved_words = 9

    def __init__(self, p: Plane) -> None:
        super().__init__(p)
        self.ahead = {self.x: 0, self.w: 0}  # bytes by which a pointer is ahead; the next `add` subtracts them

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.loaded, "channels left", "channel", "times left", "lines left", "last", "out", *self.own)

    @property
    def rounding(self) -> Rounding:
        return Rounding(self.p.finish.startswith("away"), self.p.finish.endswith("_clamped"))

    @property
    def loaded(self) -> tuple[str, ...]:
        """Numbers of the layer that come from a table."""
        if not self.loads:
            return ()
        return (*numbers(self), *(f"unused {n}" for n in range(len(table(self)) - len(numbers(self)))))

    def enter(self, arguments: Sequence[str]) -> list[Part]:
        count = len(self.names)
        self.at = {n: 4 * i for i, n in enumerate(self.names)}
        self.at |= {n: 4 * (count + i + (self.saved_words if i > 3 else 0)) for i, n in enumerate(arguments)}
        return [
            *self.saved(), "push {r0-r3}", moved(16), f"sub sp, #{4 * count}", moved(4 * count),
            f"/* sp: {', '.join(f'{at} {name}' for name, at in self.at.items())} */",
            *(self.table() if self.loads else ()),
        ]  # fmt: skip

    def table(self) -> list[Part]:
        """Copy the numbers of the layer into the frame."""
        turn = ("0:", "ldm r1!, {r4-r7}", "stm r0!, {r4-r7}", "subs r2, r2, #1", "bne 0b")
        turns = len(self.loaded) // 4
        return ["mov r0, sp", *self.get("r1", "numbers"), f"movs r2, #{turns}", Loop(turns, turn)]

    def saved(self) -> list[Part]:
        return ["push {r4-r11, lr}", pushed((*(f"r{n}" for n in range(4, 12)), "lr"))]

    def leave(self) -> list[Part]:
        size = 4 * len(self.names) + 16
        return [f"add sp, #{size}", moved(-size), "pop {r4-r11, pc}"]

    def set(self, register: str, number: int) -> list[str]:
        return [f"movw {register}, #{number % 65536}"] + [f"movt {register}, #{number >> 16}"] * (number > 65535)

    def add(self, to: str, of: str, number: int | str) -> list[str]:
        if isinstance(number, str):
            return [f"add {to}, {of}, {number}"]
        number = self.rest(to, of, number)
        sign, size = "add" if number > 0 else "sub", abs(number)
        if size > 4095:
            other = self.temporary(to)
            return [*self.set(other, size), f"{sign} {to}, {of}, {other}"]
        return [f"{sign} {to}, {of}, #{size}"] if size else [f"mov {to}, {of}"] if to != of else []

    def rest(self, to: str, of: str, number: int) -> int:
        """Bytes by which a pointer still has to advance, of `number` in all."""
        if to == of and to in self.ahead:
            number, self.ahead[to] = number - self.ahead[to], 0
        return number

    def temporary(self, place: str) -> str:
        return "r3" if place == self.spare else self.spare

    def padding(self) -> list[str]:
        """Four bytes of padding in r2."""
        return self.get("r2", "pad")

    def clear(self) -> list[Part]:
        loaded = [*self.add("r6", "r0", 0), *self.move("r6", "bytes")]
        end = loaded if self.loads else self.add("r6", "r0", self.numbers["bytes"])
        copies = [f"mov {r}, r2" for r in ("r3", "r4", "r5")]
        turn = ("0:", "stm r0!, {r2-r5}", *self.emit("until", "r0", "r6", "0b"))
        rest = ", ".join(f"r{2 + i}" for i in range(self.bytes % 16 // 4))
        behind = [f"stm r0!, {{{rest}}}"] if rest else []
        return [*self.get("r0", "plane"), *end, *self.padding(), *copies, Loop("bytes", turn), *behind]

    def listed(self) -> list[str]:
        return ["ldr r0, [" + self.rows + "], #4", *self.get(self.spare, "channel"), f"add r0, r0, {self.spare}"]

    def few(self, count: int) -> list[Part]:
        code, step, at = list[Part](), self.p.run.step, 0
        most = min(7, self.far // step + 1)
        while at < count:
            some = range(min(most, count - at))
            code += [f"ldrsb r{2 + i}, [r0{f', #{i * step}' if i else ''}]" for i in some]
            code += [line for i in some for line in self.stored(f"r{2 + i}", at + i)]
            code += self.add("r0", "r0", len(some) * step)
            at += len(some)
        return [*code, *self.add("r1", "r1", count * self.item)]

    def stored(self, register: str, number: int) -> list[str]:
        return [f"{self.store} {register}, [r1, #{number * self.item}]"]

    def begun_at(self) -> list[str]:
        """Set the pointers to the first window, the weights and the result of a channel."""
        code = [*self.get("r2", "y"), *self.put("r2", "out"), *self.add("r2", "r2", 1), *self.put("r2", "y")]
        code += [*self.get("r0", "plane"), *self.add("r0", "r0", self.lead)]
        return code + (self.add(self.past, self.w, self.p.lines.taps * self.row_bytes) if self.p.looped else [])

    def first(self, sum_: int) -> str:
        """The register to which a sum's next product is added: lr with the start value at first, then the sum."""
        begun = sum_ in self.begun
        self.begun.add(sum_)
        return self.sums[sum_] if begun else "lr"

    def starts(self, count: int) -> list[str]:
        return [*self.get("r4", "start"), *(f"mov {r}, r4" for r in self.sums[1:count])]

    def words(self, names: Sequence[str]) -> list[str]:
        """Load the numbers of the next channel's end."""
        registers = [f"r{4 + i}" for i in range(len(names))]
        code = [*self.get("r3", "ends"), f"ldm r3!, {{{', '.join(registers)}}}", *self.put("r3", "ends")]
        for register, name in zip(registers, names, strict=True):
            start_stays = name == "start" and not self.p.looped
            code += [f"mov lr, {register}"] if start_stays else self.put(register, name)
        return code

    def bounded(self, register: str, other: str) -> list[str]:
        """Clamp to the bounds, or to int8."""
        if not self.p.finish.endswith("_clamped"):
            return [f"ssat {register}, #8, {register}"]
        code = list[str]()
        for name, than in (("low", "lt"), ("high", "gt")):
            code += [*self.get(other, name), f"cmp {register}, {other}", f"it {than}", f"mov{than} {register}, {other}"]
        return code

    def put_out(self, registers: Sequence[str], place: str) -> list[str]:
        """Store the results and advance the pointer."""
        code, step, on = list[str](), self.p.run.step_y, 0
        for register in registers:
            if on > self.far:
                code, on = [*code, *self.add(place, place, on)], 0
            code.append(f"strb {register}, [{place}{f', #{on}' if on else ''}]")
            on += step
        return [*code, *self.add(place, place, on), *self.put(place, "out")]

    def out_on(self, name: str) -> list[str]:
        return [*self.get(self.spare, "out"), *self.move(self.spare, name), *self.put(self.spare, "out")]


class Armv7m(Thumb):
    """Products of single bytes.

    While a plane is filled, r8 is the distance to the next element, r11 three times that. r12 is the distance to the
    next row under a window if the row's weights leave it free.
    """

    loads = True
    in_registers: ClassVar[dict[str, str]] = {"line_on": "r6", "last_piece": "r7", "step": "r8"}
    own = ("start", "multiplier", "rounding", "shift")
    blocks = (5, 4, 3, 2, 1)
    sums = ("r4", "r5", "r6", "r7", "r11")
    weights = ("r8", "r9", "r10", "r11")

    @classmethod
    def serves(cls, p: Plane) -> bool:
        reach = (p.together - 1) * p.run.stride + (p.run.taps - 1) * p.run.dilation
        fits = p.run.taps < len(cls.weights) or p.together < len(cls.sums)  # both have r11
        return fits and max(reach, p.taps, p.turn * p.run.taps) <= cls.far

    def prepared(self) -> list[str]:
        return [*super().prepared(), "add r11, r8, r8, lsl #1"]

    def few(self, count: int) -> list[Part]:
        registers = ("r2", "r3", "r4", "r5", "r12")[:count]
        places, on = ("[r0]", "[r0, r8]", "[r0, r8, lsl #1]", "[r0, r11]"), ("r8", "r8, lsl #1", "r11", "r8, lsl #2")
        code = [line for first in range(0, count, 4) for line in (
                *(f"ldrsb {registers[first + i]}, {places[i]}" for i in range(min(4, count - first))),
                f"add r0, r0, {on[min(4, count - first) - 1]}")]  # fmt: skip
        return [*code, *(f"strb {r}, [r1, #{i}]" for i, r in enumerate(registers)), f"add r1, r1, #{count}"]

    def steps(self) -> list[str]:
        return self.get("r12", "row")

    def next_row(self) -> list[str]:
        return ["add r0, r0, r12"]

    def begin(self) -> list[str]:
        code = [*self.words(("start", "multiplier", "rounding")), *self.get("r1", "taps")]
        code += [f"ldrsb r3, [r1, #{self.p.taps}]", *self.put("r3", "shift"), *self.add("r3", "r1", self.p.taps + 1)]
        return [*code, *self.put("r3", "taps"), *self.begun_at()]

    def row(self, count: int, row: int) -> list[str]:
        code, run = list[str](), self.p.run
        at = row * run.taps
        for begin in range(0, run.taps, len(self.weights)):
            taps = range(begin, min(run.taps, begin + len(self.weights)))
            code += [f"ldrsb {w}, [r1, #{at + t}]" for w, t in zip(self.weights, taps, strict=False)]
            pairs = [(o, t, o * run.stride + t * run.dilation) for o in range(count) for t in taps]
            for number, column in enumerate(sorted({c for _, _, c in pairs})):
                x = ("r2", "r3")[number % 2]
                code.append(f"ldrsb {x}, [r0, #{column}]")
                code += [f"mla {self.sums[o]}, {x}, {self.weights[t - begin]}, {self.first(o)}"
                         for o, t, c in pairs if c == column]  # fmt: skip
        return code

    def results(self, count: int) -> list[Part]:
        code = [line for r, n in (("r8", "multiplier"), ("r9", "rounding"), ("r10", "shift"), ("r12", "out"),
                                  ("r3", "step_y")) for line in self.get(r, n)]  # fmt: skip
        for number, v in enumerate(self.sums[:count]):
            code += v7_result(v, self.rounding, self.at.get("low", 0), v, "r2", ("r8", "r9", "r10"))
            if number % 2:
                code += [f"strb {self.sums[number - 1]}, [r12]", f"strb {v}, [r12, r3]", "add r12, r12, r3, lsl #1"]
        code += [f"strb {self.sums[count - 1]}, [r12]", "add r12, r12, r3"] if count % 2 else []
        return [*code, *self.put("r12", "out")]


class Armv6m(Thumb):
    """Elements of the plane have 128 added, since only loads without a sign have an offset in their instruction.

    r8 is the distance to the next element while a plane is filled, then that to the next row under a window, r9 that
    to the next result, r11 the start value, r12 the rounding, lr points to the result. Offsets reach 31 bytes, so
    pointers advance with them.
    """

    loads = True
    in_registers: ClassVar[dict[str, str]] = {"line_on": "r7", "last_piece": "r10", "source_on": "r11"}
    past, rows, count, end, spare = "r10", "r4", "r6", "r5", "r3"
    far = 1 << 20
    text: ClassVar[dict[str, str]] = Thumb.text | {
        "within": "cmp {}, {}; bhi 9f; b {}; 9:", "until": "cmp {}, {}; beq 9f; b {}; 9:",
        "back": "subs {}, #1; beq 9f; b {}; 9:",
    }  # fmt: skip
    own = ("w", "multiplier", "shift", "here", "sum0", "sum1", "sum2", "sum3")

    @classmethod
    def ends(cls, s: Sums) -> Ends | None:
        code = super().ends(s)
        if code is not None:
            code.words[:, 0] -= 128 * s.weights.astype(np.int64).sum(axis=(1, 2, 3))
        return code

    def saved(self) -> list[Part]:
        return v6_frame()[0]

    def enter(self, arguments: Sequence[str]) -> list[Part]:
        return [*super().enter(arguments), *self.get("r3", "step_y"), "mov r9, r3"]

    def prepared(self) -> list[str]:
        high = ("step", "r8"), ("last_piece", "r10"), *(() if self.p.listed else (("source_on", "r11"),))
        return [*self.get("r7", "line_on"), *(line for n, r in high for line in (*self.get("r3", n), f"mov {r}, r3"))]

    def leave(self) -> list[Part]:
        size = 4 * len(self.names) + 16
        return [f"add sp, #{size}", moved(-size), *v6_frame()[1]]

    def set(self, register: str, number: int) -> list[str]:
        code = [f"movs {register}, #{number >> 8 * (max(1, (number.bit_length() + 7) // 8) - 1)}"]
        for byte in number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")[1:]:
            code += [f"lsls {register}, {register}, #8"] + [f"adds {register}, #{byte}"] * (byte > 0)
        return code

    def add(self, to: str, of: str, number: int | str) -> list[str]:
        if isinstance(number, str):
            return [*([f"mov {to}, {of}"] if to != of else []), f"add {to}, {number}"]
        number = self.rest(to, of, number)
        code, size = [f"mov {to}, {of}"] if to != of else [], abs(number)
        sign, other = "adds" if number > 0 else "subs", self.temporary(to)
        if to == self.past:  # a high register
            return [*self.set("r3", size), f"add r3, {of}", f"mov {to}, r3"]
        if size > 510:
            return [*code, *self.set(other, size), f"{sign} {to}, {to}, {other}"]
        return [*code, *(f"{sign} {to}, #{n}" for n in (min(size, 255), size - min(size, 255)) if n)]

    def temporary(self, place: str) -> str:
        return "r2" if place == "r3" else "r3"

    def padding(self) -> list[str]:
        return [*self.get("r2", "pad"), "movs r3, #128", "lsls r4, r3, #8", "orrs r3, r4", "lsls r4, r3, #16",
                "orrs r3, r4", "eors r2, r3"]  # fmt: skip

    def listed(self) -> list[str]:
        return ["ldm r4!, {r0}", *self.get("r2", "channel"), "adds r0, r0, r2"]

    def few(self, count: int) -> list[Part]:
        each = [line for i in range(count)
                for line in ("ldrb r2, [r0]", "add r0, r8", "adds r2, #128", f"strb r2, [r1, #{i}]")]  # fmt: skip
        return [*each, *self.add("r1", "r1", count)]

    def begin(self) -> list[str]:
        code = [*self.get("r3", "ends"), "ldm r3!, {r4, r5, r6}", *self.put("r3", "ends"), "mov r11, r4", "mov r12, r6"]
        code += [*self.put("r5", "multiplier"), *self.get("r1", "taps"), *self.put("r1", "w")]
        code += [*self.add("r2", "r1", self.p.taps), "ldrb r3, [r2]", "sxtb r3, r3", *self.put("r3", "shift")]
        code += ["adds r2, #1", *self.put("r2", "taps"), *self.get("r2", "y"), "mov lr, r2"]
        code += ["adds r2, #1", *self.put("r2", "y"), *self.get("r0", "plane"), *self.get("r3", "row"), "mov r8, r3"]
        return code + (self.add(self.past, self.w, self.p.taps) if self.p.looped else [])

    def starts(self, count: int) -> list[str]:
        return [f"mov {r}, r11" for r in self.sums[:count]]

    def near(self, place: str, offset: int, more: int = 0) -> tuple[list[str], int]:
        """Instructions until an offset from a pointer, and `more` after it, are in reach; the offset that remains."""
        if 0 <= offset - self.ahead[place] < 32 - more:
            return [], offset - self.ahead[place]
        step, self.ahead[place] = offset - self.ahead[place], offset
        sign, size = "adds" if step > 0 else "subs", abs(step)
        if size > 510:
            return [*self.set("r3", size), f"{sign} {place}, {place}, r3"], 0
        return [f"{sign} {place}, #{n}" for n in (min(size, 255), size - min(size, 255)) if n], 0

    def row(self, count: int, row: int) -> list[str]:
        code, run, begins = list[str](), self.p.run, not self.begun
        code += self.starts(count) if begins else []
        self.begun |= set(range(count))
        for tap in range(run.taps):
            on, at = self.near("r0", tap * run.dilation, (count - 1) * run.stride)
            code += on
            on, place = self.near("r1", row * run.taps + tap)
            code += [*on, f"ldrb r3, [r1, #{place}]", "sxtb r3, r3"]
            for o in range(count):
                code += [f"ldrb r2, [r0, #{at + o * run.stride}]", "muls r2, r3, r2"]
                code.append(f"adds {self.sums[o]}, {self.sums[o]}, r2")
        return code

    def results(self, count: int) -> list[Part]:
        code: list[Part] = [*self.put("r0", "here")]
        code += [line for i in range(count) for line in self.put(self.sums[i], f"sum{i}")]
        code += [
            *self.get("r1", "multiplier"),
            "lsrs r0, r1, #16",
            "uxth r1, r1",
            *self.get("r2", "shift"),
            "mov r7, lr",
        ]
        for i in range(count):
            code += [*self.get("r3", f"sum{i}"), *v6_result(self.rounding, self.at.get("low", 0)), "strb r3, [r7]"]
            code.append("add r7, r9")
        return [*code, "mov lr, r7", *self.get("r0", "here"), *self.get("r1", "w")]

    def next_row(self) -> list[str]:
        return ["add r0, r8"]

    def out_on(self, name: str) -> list[str]:
        return self.move("lr", name)


# Planes in RV32IM: weights stay in registers where they all fit.

MAX_HELD = 9  # weights that stay in registers


class Rv32(Core):
    """a3 to a5 are multiplier, rounding and shift, t6 the start value, s1 points to the result.

    a6 and a7 are bounds where there are results, else temporaries. s10 is the distance to the next row under a window,
    s11 that to the next result.
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
        self.stays = not p.looped and p.taps <= MAX_HELD
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
        return [
            *rv_frame(self.frame)[0], *(f"sw a{i}, {self.at[n]}(sp)" for i, n in enumerate(arguments[:8])),
            *self.get("t4", "numbers"), f"addi t0, sp, {4 * len(SAVED)}", f"addi t1, t0, {4 * len(loaded)}",
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

    def written_rows(self, count: int) -> Sequence[str]:
        code = list[Instruction]()
        for row in range(self.p.turn):
            code += [*self._row(count, row), *([("add", "a0", "a0", "s10")] if self.p.moves(row) else [])]
        free = [r for r in self.sums[count:] if r != self.past or not self.p.looped]
        return in_order(tuple(code), ("t0", "t1", "a6", "a7", *free))

    def _row(self, count: int, row: int) -> list[Instruction]:
        code, run, size = list[Instruction](), self.p.run, len(self.weights)
        at = row * run.taps
        for begin in range(0, run.taps, size):
            taps = range(begin, min(run.taps, begin + size))
            held = {t: self.weights[at + t if self.stays else t - begin] for t in taps}
            code += [] if self.stays else [("lb", w, at + t, "a1") for t, w in held.items()]
            pairs = [(o, t, o * run.stride + t * run.dilation) for o in range(count) for t in taps]
            for column in sorted({c for _, _, c in pairs}):
                x = f"%x{row}_{begin}_{column}"
                code.append(("lb", x, column, "a0"))
                for o, t, c in pairs:
                    if c == column:
                        total, product = self.sums[o], f"%p{row}_{o}_{t}"
                        code.append(("mul", product, x, held[t]))
                        code.append(("add", total, total if o in self.begun else "t6", product))
                        self.begun.add(o)
        return code

    def results(self, count: int) -> list[Part]:
        clamped = self.p.finish.endswith("_clamped")
        code: list[Part] = [
            line for r, n, value in (("a6", "low", -128), ("a7", "high", 127))
            for line in (self.get(r, n) if clamped else [f"li {r}, {value}"])]  # fmt: skip
        values, away = self.sums[:count], self.p.finish.startswith("away")
        straight = tuple(i for v in values for i in rv_rescaled(v, away, ("a3", "a4", "a5")))
        code += in_order(straight, ("t0", "t1"))
        return [*code, *rv_bounded({v: (f"sb {v}, 0(s1)", "add s1, s1, s11") for v in values}, ("a6", "a7"))]

    def out_on(self, name: str) -> list[str]:
        return self.move("s1", name)
