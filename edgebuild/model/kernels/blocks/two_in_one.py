"""Two products in one multiplication: micro-kernels for cores whose multiplier has 32 bits, one product at a time.

Operands of 32 bits hold two values, v0 + 65536 v1. A sum of products with it is S0 + 65536 S1, as long as both stay
within 16 bits; see `pairs.py` for how taps are grouped so that they do. After a group its upper half is added to S1;
the whole is added to T, which is S0 + 65536 S1 modulo 2^32, so that S0 = T - 65536 S1 in the end.

`packs` says what lies in an operand: "pixels", two of x beside a weight; or "channels", two of w beside a value. Four
weights then lie in a word, each with 128 added. Bytes 1 and 3 are an operand w1 + 65536 w3. The whole word is
w0 + 65536 w2 + 256 (w1 + 65536 w3): its sum less 256 times that of the operand is the sum of w0 + 65536 w2. What the
128s add is the same for all channels: `starts` subtracts it beforehand.

There is a loop for each size of groups; `runs` says which sizes follow each other. gcc spills in these loops, and with
-Os it does not unroll them, so they are whole functions in assembly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from ..micro import Cases, Function, Instruction, Loop, Part, asm, in_order, length, moved, pushed

Lines = tuple[str, ...]
OUTSIDE = 0.25  # share of results that bounds change, in networks of `./sconsw bench-kernels`, random inputs


@dataclass(frozen=True)
class TwoInOne:
    """Sums of `pixels` x `channels` at once; `loops`: sizes of the groups in one iteration of each loop."""

    pixels: int
    channels: int
    packs: str
    loops: tuple[tuple[int, ...], ...]

    @property
    def across(self) -> int:
        """Pairs of pixels."""
        return self.pixels // 2


@dataclass(frozen=True)
class Ends:
    """The end of a micro-kernel: rounding `away` from zero or up; `clamped`: bounds are parameters, not int8's."""

    away: bool
    clamped: bool


def parameters(m: TwoInOne, ends: Ends) -> Lines:
    kinds = {"pixels": ("int32_t *x", "int8_t *w", "int32_t step"), "channels": ("int8_t *x", "int32_t *w", "")}
    x, w, step = kinds[m.packs]
    listed = [f"const {x}", f"const {w}", "const int32_t *rescale", "int8_t *y", "const uint8_t *runs"]
    listed += [step or "const int32_t *starts", "int32_t blocks", "int32_t offset"]
    return tuple(f"EB_REG {p}" for p in listed + ["int32_t low", "int32_t high"] * ends.clamped)


def remark(m: TwoInOne) -> str:
    if m.packs == "channels":
        return f"One pixel, {m.channels} channels at a time, four of them in a word of w, each weight with 128 added."
    words = {1: "in a word of x", 2: "the words of pixels 0, 1 and 2, 3 side by side in x",
             3: "the words of pixels 0, 1 and 2, 3 and 4, 5 side by side in x"}[m.across]  # fmt: skip
    return (
        f"{m.pixels} pixels, {words}; blocks of {m.channels} channels, their weights side by side; "
        "results of a pixel lie `step` behind those of the one before."
    )


def _cases(dispatch: Lines, table: Lines, hops: int, loops: Mapping[object, Lines], back: Lines) -> Cases:
    """A loop for each size, after a branch table of which `hops` instructions run."""
    text = [*dispatch, *table]
    for lines in loops.values():
        text += [*lines, *back]
    sizes = {key: length(lines) for key, lines in loops.items()}
    return Cases("runs", tuple(text), length(dispatch) + hops, sizes, length(back))


# RV32IM: t0 to t5 a group's sums, s0 to s5 T, s6 to s11 S1, t6 0x8000 where pixels are packed. Where channels are:
# t0 to t3 a group's sums, s0 to s3 T, s4 to s7 S1, s8 0x00FF00FF, s9 starts left, s10 the table of entries, s11 and t4
# the start of a group.
SAVED = ("ra", *(f"s{n}" for n in range(12)))
FRAME = 96


def rv_frame(size: int, saved: Sequence[str] = SAVED) -> tuple[list[Part], list[Part]]:
    """Instructions that save registers in a stack frame, and those that restore them and return."""
    stores = [f"sw {r}, {4 * i}(sp)" for i, r in enumerate(saved)]
    loads = [f"lw {r}, {4 * i}(sp)" for i, r in enumerate(saved)]
    enter: list[Part] = [f"addi sp, sp, -{size}", moved(size), *stores, moved(-4 * len(saved)), pushed(saved)]
    return enter, [*loads, f"addi sp, sp, {size}", moved(-size), "ret"]


RV_AT = {"x": 52, "rescale": 56, "y": 60, "runs": 64, "step": 68, "starts": 68, "blocks": 72, "offset": 76}
RUNS_LEFT = 80


def rv_rescaled(v: str, away: bool, numbers: Lines) -> list[Instruction]:
    """Rescale register v: times the multiplier, plus the rounding, shifted; uses a temporary."""
    multiplier, rounding, shift = numbers
    sign = f"%sign_{v}"
    code: list[Instruction] = [("slli", v, v, 2), ("mulh", v, v, multiplier)]
    code += [("addi", v, v, 1), ("srai", v, v, 1), ("srai", sign, v, 31), ("add", v, v, sign)] if away else []
    return [*code, ("add", v, v, rounding), ("sra", v, v, shift)]


def rv_bounded(stores: Mapping[str, Lines], bounds: Lines) -> list[Part]:
    """Clamp registers and store each by its lines. Branches are taken in the rare case, because that costs most."""
    code, outside = list[Part](), list[Part]()
    for n, (v, lines) in enumerate(stores.items()):
        code += [f"blt {v}, {bounds[0]}, {40 + n}f", f"bgt {v}, {bounds[1]}, {50 + n}f", f"{60 + n}:", *lines]
        for label, bound in zip((40 + n, 50 + n), bounds, strict=True):
            outside.append(Loop(OUTSIDE / 2, (f"{label}:", f"mv {v}, {bound}", f"j {60 + n}b")))
    return [*code, "j 39f", *outside, "39:"]


def _rv_numbers(channel: int) -> tuple[list[Instruction], Lines]:
    """Loads of a channel's multiplier, rounding and shift to temporaries; a7 points to those of the block."""
    names = tuple(f"%{n}_{channel}" for n in ("multiplier", "rounding", "shift"))
    return [("lw", n, 16 * channel + 4 * i + 4, "a7") for i, n in enumerate(names)], names


def rv32(m: TwoInOne, ends: Ends) -> list[Part]:
    slots = {**RV_AT, "low": FRAME, "high": FRAME + 4}
    first = [n for n in RV_AT if n != ("starts" if m.packs == "pixels" else "step")]
    inside = _rv_pixels(m, ends) if m.packs == "pixels" else _rv_channels(m, ends)
    head = [
        f"sw {r}, {slots[n]}(sp) /* {n} */" for r, n in zip(("a0", *(f"a{i}" for i in range(2, 8))), first, strict=True)
    ]
    after = asm(f"""
        addi a7, a7, {16 * m.channels}
        sw a7, {slots["rescale"]}(sp)
        addi a3, a3, {m.channels}
        sw a3, {slots["y"]}(sp)
        lw a0, {slots["blocks"]}(sp)
        addi a0, a0, -1
        sw a0, {slots["blocks"]}(sp)
        bnez a0, 1b
        """)
    constants = (
        ("lui t6, 8",) if m.packs == "pixels" else ("li s8, 0x00FF00FF", "la s10, 3f", f"addi a1, a1, {-8 * MAX_GROUP}")
    )
    enter, leave = rv_frame(FRAME)
    entries = _rv_entries() if m.packs == "channels" else ()
    return [*enter, *head, *constants, Loop("blocks", ("1:", *inside, *after)), *leave, *entries]


def _rv_pixels(m: TwoInOne, ends: Ends) -> list[Part]:
    p, code = m.across, list[Part]()
    code += [f"lw a2, {RV_AT['rescale']}(sp)", f"lw a6, {RV_AT['offset']}(sp)"]
    for channel in range(m.channels):
        t, s = channel * p, 6 + channel * p
        code += [f"lw s{s}, {16 * channel}(a2)", f"slli s{t}, s{s}, 16", f"add s{t}, s{t}, s{s}", f"add s{t}, s{t}, a6"]
        code += [line for i in range(1, p) for line in (f"mv s{t + i}, s{t}", f"mv s{s + i}, s{s}")]
    code += [f"lw a0, {RV_AT['x']}(sp)", f"lw a3, {RV_AT['runs']}(sp)", f"sw a3, {RUNS_LEFT}(sp)"]
    dispatch = asm(f"""
        2:
        lw a3, {RUNS_LEFT}(sp)
        la a6, 3f
        lbu a2, 0(a3)
        lbu a7, 1(a3)
        addi a3, a3, 3
        slli a2, a2, 2
        add a2, a2, a6
        sw a3, {RUNS_LEFT}(sp)
        jr a2
        """)
    jumps = (f"j 1{n}f" for n in range(1, len(m.loops) + 1))
    table = (".option push", ".option norvc", "3:", "j 20f", *jumps, ".option pop")
    loops: dict[object, Lines] = {
        n: (f"1{n}:", *_rv_turn(m, groups), f"bnez a7, 1{n}b") for n, groups in enumerate(m.loops, 1)
    }
    code += [_cases(dispatch, table, 1, loops, ("j 2b",)), "20:", *_rv_ends(m, ends)]
    return code


POOL = ("a2", "a3", "a4", "a5", "a6", "ra")  # temporaries of packed pixels: operands and products


def _rv_turn(m: TwoInOne, groups: tuple[int, ...]) -> Lines:
    """One iteration of a loop: groups of taps one after the other."""
    p, code, tap = m.across, list[Instruction](), 0
    for number, size in enumerate(groups):
        for at in range(size):
            code += [("lw", f"%x{tap}_{pair}", 4 * (p * tap + pair), "a0") for pair in range(p)]
            for channel in range(m.channels):
                code.append(("lb", f"%w{tap}_{channel}", m.channels * tap + channel, "a1"))
                for pair in range(p):
                    total, product = f"t{p * channel + pair}", f"%p{tap}_{channel}_{pair}"
                    code += [("mul", product if at else total, f"%x{tap}_{pair}", f"%w{tap}_{channel}"),
                             ("add", total, total, product if at else "t6")]  # fmt: skip
            tap += 1
        if number == len(groups) - 1:
            code += [
                ("addi", "a0", "a0", 4 * p * tap),
                ("addi", "a1", "a1", m.channels * tap),
                ("addi", "a7", "a7", -1),
            ]
        for s, upper, t in ((f"s{n}", f"s{6 + n}", f"t{n}") for n in range(p * m.channels)):
            code += [("add", s, s, t), ("srai", t, t, 16), ("add", upper, upper, t)]
    return in_order(tuple(code), POOL)


def _rv_ends(m: TwoInOne, ends: Ends) -> list[Part]:
    p, code = m.across, list[Part]()
    places = (("a7", RV_AT["rescale"]), ("a3", RV_AT["y"]), ("a4", RV_AT["step"]), ("a5", FRAME), ("a6", FRAME + 4))
    code += [f"lw {r}, {at}(sp)" for r, at in places]
    for channel in range(m.channels):
        straight, numbers = _rv_numbers(channel)
        straight.append(("addi", "t0", "a3", channel))
        pairs = [(f"s{p * channel + pair}", f"s{6 + p * channel + pair}") for pair in range(p)]
        for low, high in pairs:
            straight += [("slli", f"%high_{low}", high, 16), ("sub", low, low, f"%high_{low}")]
        values = [v for pair in pairs for v in pair]
        straight += [line for v in values for line in rv_rescaled(v, ends.away, numbers)]
        code += in_order(tuple(straight), ("a0", "a2", "ra", "t1", "t2", "t3", "t4", "t5"))
        code += rv_bounded({v: (f"sb {v}, 0(t0)", "add t0, t0, a4") for v in values}, ("a5", "a6"))
    return code


MAX_GROUP = 24  # taps of a group, if loops are entered anywhere


def _rv_tap(number: int, first: bool) -> Lines:
    """A tap, counted from the end of its group: `first` starts the sums.

    a0 points to the end of the group in x, a1 MAX_GROUP taps before it in w: offsets are positive and instructions
    short.
    """
    code: list[Instruction] = [("lb", "%x", -number, "a0")]
    code += [("lw", f"%w{n}", 8 * (MAX_GROUP - number) + 4 * n, "a1") for n in (0, 1)]
    for n, even, odd in ((0, "t0", "t1"), (1, "t2", "t3")):
        code += [("srli", f"%upper{n}", f"%w{n}", 8), ("and", f"%odd{n}", f"%upper{n}", "s8")]
        for total, weights, start in ((even, f"%w{n}", "s11"), (odd, f"%odd{n}", "t4")):
            product = total if first else f"%p_{total}"
            code += [("mul", product, weights, "%x"), ("add", total, total, start if first else product)]
    return in_order(tuple(code), ("a2", "a3", "a4", "a5", *(() if first else ("s11", "t4"))))


def _rv_channels(m: TwoInOne, ends: Ends) -> list[Part]:
    code: list[Part] = [f"lw a2, {RV_AT['rescale']}(sp)", f"lw a6, {RV_AT['offset']}(sp)"]
    lows = [pair // 2 * 4 + pair % 2 for pair in range(4)]  # channels whose sums are in the lower halves
    for pair, channel in enumerate(lows):
        code += [f"lw s{pair}, {16 * channel}(a2)", f"lw s{4 + pair}, {16 * channel + 32}(a2)"]
        code += [f"add s{pair}, s{pair}, a6", f"slli a3, s{4 + pair}, 16", f"add s{pair}, s{pair}, a3"]
    code += [f"lw a0, {RV_AT['x']}(sp)", f"lw ra, {RV_AT['runs']}(sp)", f"lw s9, {RV_AT['starts']}(sp)"]
    head = asm("""
        2:
        lbu t6, 0(ra)
        lbu a7, 1(ra)
        slli a2, t6, 1
        add a2, a2, s10
        lh t5, 0(a2)
        beqz t6, 20f
        """)
    dispatch = asm("""
        mul a7, a7, t6
        add a7, a7, a0
        add t5, t5, s10
        slli a6, t6, 3
        addi ra, ra, 2
        """)
    group = asm("""
        5: /* a group: the last tap, then as many before it as there are */
        lw t4, 0(s9)
        addi s9, s9, 4
        slli s11, t4, 8
        add s11, s11, t4
        add a0, a0, t6
        add a1, a1, a6
        """)
    begin = [*group, *_rv_tap(1, True), "jr t5"]
    end = ["101:"]
    for whole, odd in (("t0", "t1"), ("t2", "t3")):
        end += [f"slli a4, {odd}, 8", f"sub {whole}, {whole}, a4"]
    for n in range(4):
        end += [f"add s{n}, s{n}, t{n}", f"srai t{n}, t{n}, 16", f"add s{4 + n}, s{4 + n}, t{n}"]
    end.append("bne a0, a7, 5b")
    taps = [line for n in range(MAX_GROUP, 1, -1) for line in (f"{100 + n}:", *_rv_tap(n, False))]
    turns: dict[object, int] = {
        n: length(begin) + (n - 1) * length(_rv_tap(2, False)) + length(end) for n in range(1, MAX_GROUP + 1)
    }
    # The end of the list executes the first instructions alone.
    run = Cases("runs", (*head, *dispatch, *begin, *taps, *end, "j 2b"), length(head), turns, 1 + length(dispatch))
    places = (("a7", RV_AT["rescale"]), ("a3", RV_AT["y"]), ("a5", FRAME), ("a6", FRAME + 4))
    code += [run, "20:", *(f"lw {r}, {at}(sp)" for r, at in places)]
    straight, stores = list[Instruction](), dict[str, Lines]()
    for pair, channel in enumerate(lows):
        straight += [("slli", f"%high{pair}", f"s{4 + pair}", 16), ("sub", f"s{pair}", f"s{pair}", f"%high{pair}")]
        for v, c in ((f"s{pair}", channel), (f"s{4 + pair}", channel + 2)):
            loads, numbers = _rv_numbers(c)
            straight += [*loads, *rv_rescaled(v, ends.away, numbers)]
            stores[v] = (f"sb {v}, {c}(a3)",)
    pool = ("a0", "a2", "a4", "ra", *(f"t{n}" for n in range(7)))
    return [*code, *in_order(tuple(straight), pool), *rv_bounded(stores, ("a5", "a6"))]


def _rv_entries() -> Lines:
    """Entry points of groups of 1, 2, ... taps; an even number of halfwords, so that code is aligned to words."""
    entries = [
        ".half 0",
        *(f".half {100 + n}b - 3b" for n in range(1, MAX_GROUP + 1)),
        *([".half 0"] if MAX_GROUP % 2 == 0 else []),
    ]
    return ("3:", *entries)


# Armv7-M: r4 and r5 a group's sums, r6 and r7 T, r8 and r9 S1; r2 0x8000, or 0x00FF00FF where channels are packed.
V7_PUSHED = ("r0", *(f"r{n}" for n in range(2, 12)), "lr")


def v7_result(
    v: str, ends: Ends, low: int, to: str = "r5", lost: str = "r4", numbers: Lines = ("r3", "r10", "r11")
) -> list[str]:
    """Rescale register v: times the multiplier, plus the rounding, shifted, clamped to bounds on the stack."""
    multiplier, rounding, shift = numbers
    code = [f"lsl {v}, {v}, #2", f"smull {lost}, {to}, {v}, {multiplier}"]
    code += [f"add {to}, {to}, #1", f"asr {to}, {to}, #1", f"add {to}, {to}, {to}, asr #31"] if ends.away else []
    code += [f"add {to}, {to}, {rounding}", f"asr {to}, {to}, {shift}"]
    if not ends.clamped:
        return [*code, f"ssat {to}, #8, {to}"]
    for at, than in ((low, "lt"), (low + 4, "gt")):
        code += [f"ldr {lost}, [sp, #{at}]", f"cmp {to}, {lost}", f"it {than}", f"mov{than} {to}, {lost}"]
    return code


V6_HIGHS = ("r8", "r9", "r10", "r11")


def v6_frame() -> tuple[list[Part], list[Part]]:
    """Instructions that save r4 to r11, and those that restore them and return."""
    highs = [f"mov r{4 + i}, {r}" for i, r in enumerate(V6_HIGHS)]
    restored = [f"mov {r}, r{4 + i}" for i, r in enumerate(V6_HIGHS)]
    enter = [".syntax unified", "push {r4-r7, lr}", pushed(("r4", "r5", "r6", "r7", "lr")), *highs, "push {r4-r7}"]
    return [*enter, pushed(V6_HIGHS)], ["pop {r4-r7}", moved(-16), *restored, "pop {r4-r7, pc}"]


def armv7m(m: TwoInOne, ends: Ends) -> list[Part]:
    more = 0 if m.packs == "pixels" else 8  # bytes of the stack below the pushed registers
    at = {n: more + 4 * i for i, n in enumerate(("x", "rescale", "y"))}
    at |= {n: more + 48 + 4 * i for i, n in enumerate(("runs", "step", "blocks", "offset", "low", "high"))}
    inside = _v7_pixels(m, ends, at) if m.packs == "pixels" else _v7_channels(m, ends, at)
    after = asm(f"""
        ldr r12, [sp, #{at["blocks"]}]
        subs r12, r12, #1
        str r12, [sp, #{at["blocks"]}]
        bne 1b
        """)
    return [
        "push {r0, r2-r11, lr}", pushed(V7_PUSHED), *((f"sub sp, sp, #{more}", moved(more)) if more else ()),
        f"mov r2, #{'0x8000' if m.packs == 'pixels' else '0x00FF00FF'}",
        Loop("blocks", ("1:", *inside, *after)),
        *((f"add sp, sp, #{more}", moved(-more)) if more else ()), "pop {r0, r2-r11, pc}",
    ]  # fmt: skip


def _v7_table(labels: Sequence[int]) -> Lines:
    """Distances of a table branch; 0: no such label."""
    return ("3:", ".hword " + ", ".join(f"({label}f - 3b) / 2" if label else "0" for label in labels))


def _v7_carry() -> list[str]:
    """Add a group's sums to the totals."""
    return ["add r6, r6, r4", "add r8, r8, r4, asr #16", "add r7, r7, r5", "add r9, r9, r5, asr #16"]


def _v7_pixels(m: TwoInOne, ends: Ends, at: dict[str, int]) -> list[Part]:
    two = m.across == 2
    code: list[Part] = [f"ldr r12, [sp, #{at['rescale']}]", f"ldr r10, [sp, #{at['offset']}]", "ldr r8, [r12]"]
    code += ["add r6, r8, r8, lsl #16", "add r6, r6, r10"]
    code += (
        ["mov r7, r6", "mov r9, r8"] if two else ["ldr r9, [r12, #16]", "add r7, r9, r9, lsl #16", "add r7, r7, r10"]
    )
    code += [f"ldr r0, [sp, #{at['x']}]", f"ldr lr, [sp, #{at['runs']}]"]
    loops: dict[object, Lines] = {}
    for n, groups in enumerate(m.loops, 1):
        turn = list[str]()
        for size in groups:
            for tap in range(size):
                one, other = ("r4", "r5") if tap else ("r2", "r2")
                turn += asm(f"""
                    ldrd r10, r11, [r0], #8
                    ldrsb r12, [r1], #1
                    mla r4, r10, r12, {one}
                    mla r5, r11, r12, {other}
                    """) if two else asm(f"""
                    ldr r10, [r0], #4
                    ldrsb r11, [r1, #1]
                    ldrsb r12, [r1], #2
                    mla r5, r10, r11, {other}
                    mla r4, r10, r12, {one}
                    """)  # fmt: skip
            turn += _v7_carry()
        loops[n] = (f"1{n}:", *turn, "subs r3, r3, #1", f"bne 1{n}b")
    dispatch = ("2:", "ldrb r12, [lr], #1", "ldrb r3, [lr], #2", "tbh [pc, r12, lsl #1]")
    table = _v7_table((20, *range(11, 11 + len(m.loops))))
    code += [_cases(dispatch, table, 0, loops, ("b 2b",)), "20:"]
    code += ["sub r6, r6, r8, lsl #16 /* S0 */", "sub r7, r7, r9, lsl #16", f"ldr r0, [sp, #{at['step']}]"]
    places = ("[lr]", "[lr, r0]", "[lr, r0, lsl #1]", "[r12, r0, lsl #1]")
    for values in (("r6", "r8", "r7", "r9"),) if two else (("r6", "r8"), ("r7", "r9")):
        code += asm(f"""
            ldr r12, [sp, #{at["rescale"]}]
            add r12, r12, #4
            ldm r12!, {{r3, r10, r11}} /* multiplier, rounding, shift */
            str r12, [sp, #{at["rescale"]}]
            ldr lr, [sp, #{at["y"]}]
            add r12, lr, #1
            str r12, [sp, #{at["y"]}]
            """)
        code += ["add r12, lr, r0"] if two else []
        for v, place in zip(values, places, strict=False):
            code += [*v7_result(v, ends, at["low"]), f"strb r5, {place}"]
    return code


def _v7_channels(m: TwoInOne, ends: Ends, at: dict[str, int]) -> list[Part]:
    code: list[Part] = [f"ldr r12, [sp, #{at['rescale']}]", f"ldr r10, [sp, #{at['offset']}]"]
    code += [f"ldr r{6 + n}, [r12{f', #{16 * n}' if n else ''}]" for n in range(4)]
    code += ["add r6, r6, r10", "add r7, r7, r10", "add r6, r6, r8, lsl #16", "add r7, r7, r9, lsl #16"]
    code += [
        f"ldr r0, [sp, #{at['x']}]",
        f"ldr r11, [sp, #{at['runs']}]",
        f"ldr lr, [sp, #{at['step']}]",
        "str r11, [sp]",
    ]
    loops: dict[object, Lines] = {}
    for (size,) in m.loops:
        tap = asm("""
            ldrsb r10, [r0], #1
            ldr r11, [r1], #4
            and r12, r2, r11, lsr #8
            mla r4, r10, r11, r4
            mla r5, r10, r12, r5
            """)
        loops[size] = (f"{30 + size}:", "ldr r5, [lr], #4", "add r4, r5, r5, lsl #8", *(tap * size),
                       "sub r4, r4, r5, lsl #8", *_v7_carry(), "subs r3, r3, #1", f"bne {30 + size}b")  # fmt: skip
    dispatch = asm("""
        2:
        ldr r11, [sp]
        ldrb r12, [r11], #1
        ldrb r3, [r11], #1
        str r11, [sp]
        tbh [pc, r12, lsl #1]
        """)
    most = max(size for (size,) in m.loops)
    table = _v7_table((20, *(30 + n if (n,) in m.loops else 0 for n in range(1, most + 1))))
    code += [_cases(dispatch, table, 0, loops, ("b 2b",)), "20:"]
    code += [f"ldr r12, [sp, #{at['rescale']}]", f"ldr lr, [sp, #{at['y']}]"]
    code += ["sub r6, r6, r8, lsl #16 /* sums of the lower halves */", "sub r7, r7, r9, lsl #16"]
    for v in ("r6", "r7", "r8", "r9"):
        code += ["add r12, r12, #4", "ldm r12!, {r3, r10, r11} /* multiplier, rounding, shift */"]
        code += [*v7_result(v, ends, at["low"]), "strb r5, [lr], #1"]
    return [*code, f"str r12, [sp, #{at['rescale']}]", f"str lr, [sp, #{at['y']}]"]


# Armv6-M, packed pixels: r6 and r7 a group's sums, r8 and r9 T, r10 and r11 S1, r12 0x8000; -r2 weights are left of a
# run that ends at r1. Packed channels: r5 0x00FF00FF, r7 and r8 a group's sums, r9 and r10 T, r11 and r12 S1; -r6 taps
# are left of a run that ends at r0.
def v6_result(ends: Ends, low: int) -> list[Part]:
    """r3 times the multiplier with the halves r0, r1, the rounding in r12, the shift in r2; clobbers r4 to r6."""
    code: list[Part] = [*asm("""
        lsls r3, r3, #2
        uxth r4, r3
        asrs r3, r3, #16
        mov r5, r4
        muls r5, r1, r5
        lsrs r5, r5, #16
        muls r4, r0, r4
        adds r4, r4, r5
        mov r6, r3
        muls r6, r1, r6
        uxth r5, r4
        adds r6, r6, r5
        asrs r6, r6, #16
        lsrs r4, r4, #16
        muls r3, r0, r3
        adds r3, r3, r4
        adds r3, r3, r6 /* the upper word of the product */
        """)]  # fmt: skip
    code += ["adds r3, r3, #1", "asrs r3, r3, #1", "asrs r4, r3, #31", "adds r3, r3, r4"] if ends.away else []
    code += ["add r3, r12", "asrs r3, r3, r2"]
    if not ends.clamped:
        inside = Loop(OUTSIDE, ("asrs r3, r3, #31 /* 127 or -128 */", "movs r4, #127", "eors r3, r3, r4"))
        return [*code, "sxtb r4, r3", "cmp r4, r3", "beq 4f", inside, "4:"]
    for at, branch in ((low, "bge"), (low + 4, "ble")):
        code += [f"ldr r4, [sp, #{at}]", "cmp r3, r4", f"{branch} 4f", Loop(OUTSIDE, ("mov r3, r4",)), "4:"]
    return code


def armv6m(m: TwoInOne, ends: Ends) -> list[Part]:
    kept = ("x", "rescale", "y") if m.packs == "pixels" else ("x", "runs left", "rescale", "y")
    at = {n: 4 * i for i, n in enumerate(kept)}
    above = 4 * len(kept) + 36
    at |= {n: above + 4 * i for i, n in enumerate(("runs", "step", "blocks", "offset", "low", "high"))}
    inside = _v6_pixels(m, ends, at) if m.packs == "pixels" else _v6_channels(m, ends, at)
    after = asm(f"""
        mov r1, lr
        ldr r3, [sp, #{at["blocks"]}]
        subs r3, r3, #1
        str r3, [sp, #{at["blocks"]}]
        beq 5f
        b 1b
        5:
        """)
    enter, leave = v6_frame()
    return [
        *enter, f"push {{{'r0, r2, r3' if m.packs == 'pixels' else 'r0-r3'}}}", moved(4 * len(kept)),
        Loop("blocks", ("1:", *inside, *after)),
        f"add sp, #{4 * len(kept)}", moved(-4 * len(kept)), *leave,
    ]  # fmt: skip


def _v6_pixels(m: TwoInOne, ends: Ends, at: dict[str, int]) -> list[Part]:
    two = m.across == 2
    start = ("lsls r5, r4, #16", "adds r5, r5, r4", "adds r5, r5, r6")
    code: list[Part] = [f"ldr r7, [sp, #{at['rescale']}]", f"ldr r6, [sp, #{at['offset']}]", "ldr r4, [r7]"]
    code += ["mov r10, r4", *start, "mov r8, r5", *(() if two else ("ldr r4, [r7, #16]", *start))]
    code += ["mov r11, r4", "mov r9, r5", "movs r4, #128", "lsls r4, r4, #8", "mov r12, r4"]
    code += ["ldr r0, [sp]", f"ldr r4, [sp, #{at['runs']}]", "mov lr, r4"]
    loops: dict[object, Lines] = {n: _v6_turn(m, n, groups) for n, groups in enumerate(m.loops, 1)}
    dispatch = asm(f"""
        2:
        mov r4, lr
        ldrb r3, [r4]
        ldrb r2, [r4, #1]
        ldrb r5, [r4, #2]
        adds r4, r4, #3
        mov lr, r4
        muls r2, r5, r2
        {"" if two else "lsls r2, r2, #1"}
        adds r1, r1, r2
        rsbs r2, r2, #0
        lsls r3, r3, #1
        add pc, r3
        """)
    table = ("nop", "b 20f", *(f"b 1{n}f" for n in loops))
    code += [_cases(dispatch, table, 1, loops, ("b 2b",)), "20:", "mov lr, r1"]
    first, second = (("r8", "r10"), ("r8", "")), (("r9", "r11"), ("r9", ""))
    for values in (first + second,) if two else (first, second):
        code += asm(f"""
            ldr r7, [sp, #{at["rescale"]}]
            ldr r1, [r7, #4]
            lsrs r0, r1, #16 /* halves of the multiplier: r0 upper, r1 lower */
            uxth r1, r1
            ldr r2, [r7, #8]
            mov r12, r2 /* rounding */
            ldr r2, [r7, #12] /* shift */
            adds r7, r7, #16
            str r7, [sp, #{at["rescale"]}]
            ldr r7, [sp, #{at["y"]}]
            adds r3, r7, #1
            str r3, [sp, #{at["y"]}]
            """)
        for number, (whole, upper) in enumerate(values):
            code += asm(f"""
                mov r3, {whole}
                mov r4, {upper}
                mov {whole}, r4
                lsls r4, r4, #16
                subs r3, r3, r4 /* S0 */
                """) if upper else [f"mov r3, {whole} /* S1 */"]  # fmt: skip
            code += [*v6_result(ends, at["low"]), "strb r3, [r7]"]
            code += [f"ldr r4, [sp, #{at['step']}]", "adds r7, r7, r4"] if number + 1 < len(values) else []
    return code


def _v6_turn(m: TwoInOne, number: int, groups: tuple[int, ...]) -> Lines:
    code = [f"1{number}:"]
    for size in groups:
        code += ["mov r6, r12", "mov r7, r12"]
        for tap in range(size):
            on = ["adds r2, r2, #1"] if tap + 1 < size else []
            if m.across == 2:
                code += ["ldm r0!, {r4, r5}", "ldrsb r3, [r1, r2]", *on, "muls r4, r3, r4", "muls r5, r3, r5",
                         "adds r6, r6, r4", "adds r7, r7, r5"]  # fmt: skip
            else:
                code += ["ldm r0!, {r4}", "ldrsb r3, [r1, r2]", "adds r2, r2, #1", "ldrsb r5, [r1, r2]", *on,
                         "muls r3, r4, r3", "muls r5, r4, r5", "adds r6, r6, r3", "adds r7, r7, r5"]  # fmt: skip
        code += ["add r8, r6", "add r9, r7", "asrs r6, r6, #16", "asrs r7, r7, #16", "add r10, r6", "add r11, r7"]
        code.append("adds r2, r2, #1")
    return (*code, f"bne 1{number}b")


def _v6_fours(m: TwoInOne) -> dict[object, Lines]:
    """A loop for each size of groups of taps with four channels in a word."""
    loops: dict[object, Lines] = {}
    for (size,) in m.loops:
        turn = ["mov r2, lr", "ldm r2!, {r7}", "mov lr, r2", "mov r8, r7", "lsls r2, r7, #8", "adds r7, r7, r2"]
        for tap in range(size):
            turn += ["ldrsb r2, [r0, r6]", "ldm r1!, {r3}", "lsrs r4, r3, #8", "ands r4, r4, r5", "muls r3, r2, r3",
                     "muls r4, r2, r4", "adds r7, r7, r3", "add r8, r4"]  # fmt: skip
            turn += ["adds r6, r6, #1"] if tap + 1 < size else []
        turn += ["mov r4, r8", "lsls r2, r4, #8", "subs r7, r7, r2", "add r9, r7", "asrs r7, r7, #16", "add r11, r7",
                 "add r10, r4", "asrs r4, r4, #16", "add r12, r4", "adds r6, r6, #1"]  # fmt: skip
        loops[size] = (f"{30 + size}:", *turn, f"bne {30 + size}b")
    return loops


def _v6_channels(m: TwoInOne, ends: Ends, at: dict[str, int]) -> list[Part]:
    code: list[Part] = [f"ldr r7, [sp, #{at['rescale']}]", f"ldr r6, [sp, #{at['offset']}]"]
    for whole, upper, low, high in (("r9", "r11", 0, 32), ("r10", "r12", 16, 48)):
        code += [f"ldr r4, [r7, #{low}]", f"ldr r5, [r7, #{high}]", f"mov {upper}, r5", "lsls r5, r5, #16"]
        code += ["adds r5, r5, r4", "adds r5, r5, r6", f"mov {whole}, r5"]
    code += asm(f"""
        movs r5, #255
        lsls r4, r5, #16
        orrs r5, r5, r4
        ldr r0, [sp]
        ldr r4, [sp, #{at["step"]}]
        mov lr, r4
        ldr r4, [sp, #{at["runs"]}]
        str r4, [sp, #{at["runs left"]}]
        """)
    loops = _v6_fours(m)
    dispatch = asm(f"""
        2:
        ldr r4, [sp, #{at["runs left"]}]
        ldrb r3, [r4]
        ldrb r6, [r4, #1]
        adds r4, r4, #2
        str r4, [sp, #{at["runs left"]}]
        muls r6, r3, r6
        adds r0, r0, r6
        rsbs r6, r6, #0
        lsls r3, r3, #1
        add pc, r3
        """)
    most = max(size for (size,) in m.loops)
    table = ("nop", "b 20f", *(f"b {30 + n}f" if (n,) in m.loops else "nop" for n in range(1, most + 1)))
    code += [_cases(dispatch, table, 1, loops, ("b 2b",)), "20:", "mov lr, r1"]
    for whole, upper in (("r9", "r11"), ("r10", "r12")):
        code += [f"mov r3, {whole}", f"mov r4, {upper}", "lsls r4, r4, #16", "subs r3, r3, r4"]
        code.append(f"mov {whole}, r3 /* sum of the lower half */")
    code += ["mov r3, r12", "mov r8, r3"]
    for v in ("r9", "r10", "r11", "r8"):
        code += asm(f"""
            ldr r7, [sp, #{at["rescale"]}]
            ldr r1, [r7, #4]
            lsrs r0, r1, #16
            uxth r1, r1
            ldr r2, [r7, #8]
            mov r12, r2
            ldr r2, [r7, #12]
            adds r7, r7, #16
            str r7, [sp, #{at["rescale"]}]
            mov r3, {v}
            """)
        code += [*v6_result(ends, at["low"]), f"ldr r7, [sp, #{at['y']}]", "strb r3, [r7]"]
        code += ["adds r7, r7, #1", f"str r7, [sp, #{at['y']}]"]
    return code


SINGLE = tuple((size,) for size in range(1, 7))  # a group of 1 to 6 taps
V7_LOOPS = (*SINGLE, (3, 3), (4, 4), (5, 5))
FOURS = tuple((size,) for size in (1, 2, 3, 4, 6, 8, 12))
ANY = tuple((size,) for size in range(1, MAX_GROUP + 1))  # loops that are entered anywhere
EMITTERS = {"rv32": rv32, "armv7m": armv7m, "armv6m": armv6m}
SATURATE = ("armv7m", "armv6m")  # have forms without bounds, whose results saturate
MICROS = {
    "eb_pairs_rv32_6x1": TwoInOne(6, 1, "pixels", V7_LOOPS[:7]),
    "eb_pairs_rv32_6x2": TwoInOne(6, 2, "pixels", V7_LOOPS[:7]),
    "eb_pairs_rv32_4x3": TwoInOne(4, 3, "pixels", V7_LOOPS[:7]),
    "eb_pairs_rv32_2x6": TwoInOne(2, 6, "pixels", V7_LOOPS[:7]),
    "eb_fours_rv32": TwoInOne(1, 8, "channels", ANY),
    "eb_pairs_armv7m_4x1": TwoInOne(4, 1, "pixels", V7_LOOPS),
    "eb_pairs_armv7m_2x2": TwoInOne(2, 2, "pixels", V7_LOOPS),
    "eb_fours_armv7m": TwoInOne(1, 4, "channels", FOURS),
    "eb_pairs_armv6m_4x1": TwoInOne(4, 1, "pixels", V7_LOOPS[:8]),
    "eb_pairs_armv6m_2x2": TwoInOne(2, 2, "pixels", V7_LOOPS[:8]),
    "eb_fours_armv6m": TwoInOne(1, 4, "channels", FOURS[:-1]),  # branches do not reach over larger loops
}


def function(stem: str, ends: Ends) -> Function:
    """The micro-kernel of this stem with these ends, as a whole function."""
    m, isa = MICROS[stem], stem.split("_")[2]
    return Function(name(stem, ends), parameters(m, ends), remark(m), tuple(EMITTERS[isa](m, ends)))


def ends_of(stem: str, away: bool, bounded: bool) -> Ends:
    """The ends for these results: instruction sets that cannot saturate get the bounds of int8 as parameters."""
    return Ends(away, bounded or stem.split("_")[2] not in SATURATE)


def name(stem: str, ends: Ends) -> str:
    """Name of the function with these ends."""
    clamped = ends.clamped and stem.split("_")[2] in SATURATE
    return f"{stem}_{'away' if ends.away else 'up'}{'_clamped' if clamped else ''}"


FUNCTIONS = {
    name(stem, ends): partial(function, stem, ends)
    for stem in MICROS
    for away in (False, True)
    for ends in {ends_of(stem, away, bounded) for bounded in (False, True)}
}


@cache
def micro(called: str) -> Function:
    """A micro-kernel by name, for estimates."""
    return FUNCTIONS[called]()
