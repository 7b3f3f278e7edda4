"""Sums of products of real numbers in registers: micro-kernels in assembly for Arm's floating-point units.

Four channels of four pixels, or of one, for all groups of four channels. Each sum begins with its bias and grows in the
order of the plain kernel. Cortex-M4 and M33 take three cycles for VFMA, two for VMUL and VADD (DDI 0439D, table 7-1).
So they round product and sum, and results are the plain kernel's to the last bit. Others fuse both, and round once.

The weights of four channels are `packed`: those of a tap, then of the next one. Of a computed matrix the four are
`columns`, neighbours that lie a step from tap to tap, or `rows`, each with its taps side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise

from ....base.target import DUAL_ISSUE
from ..micro import Function, Loop, Part, asm, moved, pushed

FIELDS = ("bias", "runs", "taps", "x_step", "w_tap", "w_step", "w_back", "y_step", "back", "blocks", "low", "high")
AT = {name: 4 * i for i, name in enumerate(FIELDS)}  # bytes in eb_float_sums_t
WEIGHTS = PACKED, COLUMNS, ROWS = "packed", "columns", "rows"
SAVED = tuple(f"r{n}" for n in range(4, 12))
PIXELS = ("r4", "r5", "r6", "r7")  # pointers to the pixels' values


def singles(first: int, count: int) -> list[str]:
    return [f"s{n}" for n in range(first, first + count)]


@dataclass(frozen=True)
class Block:
    """`pixels` x 4 sums.

    r0: eb_float_sums_t, r1: runs of taps, r2: results, r3: bias, r12: bytes of weights of the groups before, lr: groups
    left. In a run r8 points to weights and r9 counts taps.
    """

    pixels: int
    weights: str
    fused: bool = False

    name = property(lambda self: f"eb_float{self.pixels}_{self.weights}{'_fused' * self.fused}")
    unroll = property(lambda self: 2 if self.pixels == 4 else 4)  # taps of a turn
    spare = property(lambda self: 8 if self.pixels == 1 else 28)  # the first of four registers for products

    def begin(self) -> list[Part]:
        """The bias to the sums of each pixel; products of matrices have none."""
        if self.weights != PACKED:
            return ["movs r9, #0", *(f"vmov {a}, {b}, r9, r9" for a, b in _pairs(singles(0, 4 * self.pixels)))]
        return [f"vldmia r3{'!' * (p == self.pixels - 1)}, {{s{4 * p}-s{4 * p + 3}}}" for p in range(self.pixels)]

    def operands(self) -> list[str]:
        """Pointers of a run."""
        code = ["ldm r10!, {r4, r8}", f"ldrd r9, r7, [r0, #{AT['taps']}]", "add r8, r8, r12"]
        code += [f"add {q}, {p}, r7" for p, q in pairwise(PIXELS)] if self.pixels == 4 else []
        if self.weights == PACKED:
            return code
        code.append(f"ldr r3, [r0, #{AT['w_tap']}]")
        return code + (["add r10, r8, r3", "add r11, r10, r3", "add r3, r11, r3"] if self.weights == ROWS else [])

    def taps(self, count: int) -> list[str]:
        """So many taps."""
        values = [singles(4 * self.pixels + count * p, count) for p in range(self.pixels)]
        code = [f"vldmia {p}!, {{{_listed(v)}}}" for p, v in zip(PIXELS, values, strict=False)]
        if self.weights == ROWS:
            return code + self._of_rows(values, count)
        several = self.pixels == 1 and self.weights == PACKED
        first = 16 if self.pixels == 1 else 24
        held = [singles(first + (4 * t if self.pixels == 1 else 0), 4) for t in range(count)]
        code += [f"vldmia r8!, {{s{first}-{held[-1][3]}}}"] if several else []
        for t, four in enumerate(held):
            if not several:
                code += [f"vldmia r8{'!' * (self.weights == PACKED)}, {{{_listed(four)}}}"]
                code += ["add r8, r8, r3"] * (self.weights == COLUMNS)
            terms = [(f"s{4 * p + c}", v[t], four[c]) for p, v in enumerate(values) for c in range(4)]
            code += self._added(terms)
        return code

    def _of_rows(self, values: list[list[str]], count: int) -> list[str]:
        """Channel by channel, the taps of each side by side."""
        code, pointers = list[str](), ("r8", "r10", "r11", "r3")
        held = [singles(16 + 4 * c if self.pixels == 1 else 24 + 2 * (c % 2), count) for c in range(4)]
        loads = [f"vldmia {r}!, {{{_listed(w)}}}" for r, w in zip(pointers, held, strict=True)]
        if self.pixels == 1:
            terms = [(f"s{c}", values[0][t], held[c][t]) for t in range(count) for c in range(4)]
            return loads + self._added(terms)
        for c, load in enumerate(loads):
            terms = [(f"s{4 * p + c}", v[t], held[c][t]) for t in range(count) for p, v in enumerate(values)]
            code += [load, *self._added(terms)]
        return code

    def _added(self, terms: list[tuple[str, str, str]]) -> list[str]:
        """Products to sums; four products stand before their sums, which so wait for none."""
        if self.fused:
            return [f"vfma.f32 {total}, {x}, {w}" for total, x, w in terms]
        code, held = list[str](), singles(self.spare, 4)
        for at in range(0, len(terms), 4):
            some = list(zip(held, terms[at : at + 4], strict=True))
            code += [f"vmul.f32 {product}, {x}, {w}" for product, (_, x, w) in some]
            code += [f"vadd.f32 {total}, {total}, {product}" for product, (total, _, _) in some]
        return code

    def bounded(self) -> list[Part]:
        """Results within bounds that are finite; what is not a number remains so."""
        code: list[Part] = []
        for bound, infinite, label in (("low", "cmn r4, #0x800000", "7:"), ("high", "cmp r4, #0x7f800000", "8:")):
            each = list[str]()
            for n in range(4 * self.pixels):
                each += [f"vcmpe.f32 s{n}, s16", "vmrs APSR_nzcv, fpscr", f"it {'mi' if bound == 'low' else 'gt'}"]
                each.append(f"vmov{'mi' if bound == 'low' else 'gt'}.f32 s{n}, s16")
            code += [f"ldr r4, [r0, #{AT[bound]}]", infinite, f"beq.w {label[0]}f", "vmov s16, r4"]
            code += [Loop(bound, tuple(each)), label]
        return code

    def stored(self) -> list[str]:
        if self.pixels == 1:
            return ["vstmia r2!, {s0-s3}"]
        code = [f"ldr r5, [r0, #{AT['y_step']}]", "add r4, r2, r5", "vstmia r2!, {s0-s3}"]
        code += ["vstmia r4, {s4-s7}", "add r4, r4, r5", "vstmia r4, {s8-s11}", "add r4, r4, r5"]
        return [*code, "vstmia r4, {s12-s15}"]

    def products(self) -> list[Part]:
        return [
            f"subs r9, r9, #{self.unroll}", "blt 4f",
            Loop("turns", ("3:", *self.taps(self.unroll), f"subs r9, r9, #{self.unroll}", "bge 3b")),
            "4:", f"adds r9, r9, #{self.unroll}", "ble 6f",
            Loop("rest", ("5:", *self.taps(1), "subs r9, r9, #1", "bne 5b")),
            "6:",
        ]  # fmt: skip

    def parts(self) -> tuple[Part, ...]:
        """The whole function."""
        run: tuple[Part, ...] = (*self.operands(), *self.products())
        if self.weights == PACKED:
            run = ("2:", *run, "subs r11, r11, #1", "bgt 2b")
        first = [f"ldr r11, [r0, #{AT['runs']}]"] if self.weights == PACKED else []
        ends = ["cmp r11, #0", "ble.w 9f"] if self.weights == PACKED else []
        block: tuple[Part, ...] = (
            "1:", *self.begin(), *first, "mov r10, r1", *ends, Loop("runs", run), "9:",
            *self.bounded(), *self.stored(), *_next(self.weights),
        )  # fmt: skip
        return (
            "push {r4-r11, lr}", pushed((*SAVED, "lr")), "vpush {d8-d15}", moved(64),
            *([f"ldr r3, [r0, #{AT['bias']}]"] if self.weights == PACKED else []),
            f"ldr lr, [r0, #{AT['blocks']}]", "mov r12, #0", Loop("blocks", block),
            "vpop {d8-d15}", moved(-64), "pop {r4-r11, pc}",
        )  # fmt: skip

    def remark(self) -> str:
        text = {PACKED: "of all taps in turn", COLUMNS: "side by side in each tap", ROWS: "each with its taps in a row"}
        pixels = "Four pixels" if self.pixels == 4 else "One pixel"
        return f"{pixels} by groups of four channels, whose weights lie {text[self.weights]}."

    def function(self) -> Function:
        return Function(
            self.name, ("EB_REG const eb_float_sums_t *sums", "EB_REG const float *const *list", "EB_REG float *y"),
            f"{self.remark()} `list`: for each run of taps, the values and the weights.", self.parts(),
            ("eb_float_sums_t",),
        )  # fmt: skip


def _next(weights: str) -> list[Part]:
    """The next group of four channels; the last one may begin within the one before."""
    return [
        f"ldrd r4, r5, [r0, #{AT['w_step']}]", "add r12, r12, r4", "subs lr, lr, #1", "beq 0f",
        "cmp lr, #1", "bne.w 1b",
        Loop("last", (f"ldr r4, [r0, #{AT['back']}]", "sub r12, r12, r5", "sub r2, r2, r4",
                      *(["sub r3, r3, r4"] if weights == PACKED else []), "b.w 1b")), "0:",
    ]  # fmt: skip


def _pairs(names: list[str]) -> list[tuple[str, str]]:
    return list(zip(names[::2], names[1::2], strict=True))


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]}-{names[-1]}"


SLOTS = ("sums", "list", "y", "bias", "before", "left", "runs", "at", "rest")  # words of the stack
SP = {name: f"[sp, #{4 * i}]" for i, name in enumerate(SLOTS)}
SPACE = 40
SCALARS = (("r0", "r1", "r2", "r3"), ("r9", "r10", "r11", "r12"))  # values of two pixels


@dataclass(frozen=True)
class Vectors(Block):
    """The same with MVE: the four channels are lanes. q0 to q3: sums of the pixels, q4 to q7: weights of taps."""

    name = property(lambda self: f"eb_mve_float{self.pixels}_{self.weights}")
    unroll = property(lambda self: 2 if self.weights == ROWS else 4)

    def begin(self) -> list[Part]:
        if self.weights != PACKED:
            return [f"vmov.i32 q{p}, #0" for p in range(self.pixels)]
        return [f"ldr r3, {SP['bias']}", *(f"vldrw.u32 q{p}, [r3]" for p in range(self.pixels))]

    def operands(self) -> list[str]:
        code = [f"ldr r0, {SP['sums']}", f"ldr r10, {SP['at']}", "ldm r10!, {r4, r8}", f"str r10, {SP['at']}"]
        code += [f"ldr r2, {SP['before']}", f"ldrd r9, r3, [r0, #{AT['taps']}]", "add r8, r8, r2"]
        code += [f"add {q}, {p}, r3" for p, q in pairwise(PIXELS)] if self.pixels == 4 else []
        code += [f"ldr r3, [r0, #{AT['w_tap']}]"] if self.weights != PACKED else []
        code += [f"str r3, {SP['bias']}"] if self.weights == COLUMNS else []
        if self.weights == ROWS:
            code += ["subs r8, r8, #4", "add r10, r8, r3", "add r11, r10, r3", "add r12, r11, r3"]
            code += ["vmov q7[2], q7[0], r8, r11", "vmov q7[3], q7[1], r10, r12"]
        return code

    def taps(self, count: int) -> list[str]:
        held, columns = [f"q{4 + t}" for t in range(count)], self.weights == COLUMNS
        code = [f"ldr r12, {SP['bias']}"] if columns else []
        for w in held:
            code.append(f"vldrw.u32 {w}, " + {PACKED: "[r8], #16", COLUMNS: "[r8]", ROWS: "[q7, #4]!"}[self.weights])
            code += ["add r8, r8, r12"] * columns
        together = {4: 2, 2: 4, 1: 4}[count]  # pixels whose values are in registers at once
        names = [r for four in SCALARS for r in four]
        for first in range(0, self.pixels, together):
            pixels = list(enumerate(PIXELS))[: self.pixels][first : first + together]
            values = {p: names[i * count : (i + 1) * count] for i, (p, _) in enumerate(pixels)}
            code += [_scalars(pointer, values[p]) for p, pointer in pixels]
            code += [f"vfma.f32 q{p}, {w}, {values[p][t]}" for t, w in enumerate(held) for p, _ in pixels]
        return code

    def bounded(self) -> list[Part]:
        return [f"ldr r0, {SP['sums']}", *_within(self.pixels)]

    def stored(self) -> list[str]:
        code = [f"ldr r2, {SP['y']}", f"ldr r5, [r0, #{AT['y_step']}]", "vstrw.32 q0, [r2]", "mov r4, r2"]
        for p in range(1, self.pixels):
            code += ["add r4, r4, r5", f"vstrw.32 q{p}, [r4]"]
        return code

    def products(self) -> list[Part]:
        shift = self.unroll // 2
        return [
            "bic r9, r9, r9, asr #31", f"and r2, r9, #{self.unroll - 1}", f"lsr r9, r9, #{shift}",
            f"str r2, {SP['rest']}", "wls lr, r9, 4f",
            Loop("turns", ("3:", *self.taps(self.unroll), "le lr, 3b")),
            "4:", f"ldr r9, {SP['rest']}", "wls lr, r9, 6f",
            Loop("rest", ("5:", *self.taps(1), "le lr, 5b")), "6:",
        ]  # fmt: skip

    def parts(self) -> tuple[Part, ...]:
        run = ("2:", *self.operands(), *self.products(), f"ldr r11, {SP['runs']}", "subs r11, r11, #1",
               f"str r11, {SP['runs']}", "bgt 2b")  # fmt: skip
        block: tuple[Part, ...] = (
            "1:", *self.begin(), f"ldr r10, {SP['list']}", f"ldr r0, {SP['sums']}",
            f"ldr r11, [r0, #{AT['runs']}]", f"str r10, {SP['at']}", f"str r11, {SP['runs']}", "cmp r11, #0", "ble 9f",
            Loop("runs", run), "9:", *self.bounded(), *self.stored(),
            f"ldrd r8, r4, {SP['bias']}", f"ldrd r6, r7, [r0, #{AT['w_step']}]",
            *asm(f"""
            ldr r10, {SP['left']}
            ldr r5, [r0, #{AT['back']}]
            adds r2, r2, #16
            add r4, r4, r6
            add r8, r8, #16
            subs r10, r10, #1
            cmp r10, #1
            ittt eq /* the last group may begin within the one before */
            subeq r2, r2, r5
            subeq r4, r4, r7
            subeq r8, r8, r5
            str r2, {SP['y']}
            strd r8, r4, {SP['bias']}
            str r10, {SP['left']}
            cmp r10, #0
            bgt 1b
            """),
        )  # fmt: skip
        return (
            "push {r4-r11, lr}", pushed((*SAVED, "lr")), "vpush {d8-d15}", moved(64),
            f"sub sp, sp, #{SPACE}", moved(SPACE), "stm sp, {r0, r1, r2}",
            f"ldr r3, [r0, #{AT['bias']}]", f"ldr r4, [r0, #{AT['blocks']}]", "movs r5, #0",
            f"str r3, {SP['bias']}", f"strd r5, r4, {SP['before']}", Loop("blocks", block),
            f"add sp, sp, #{SPACE}", moved(-SPACE), "vpop {d8-d15}", moved(-64), "pop {r4-r11, pc}",
        )  # fmt: skip


def _within(vectors: int) -> list[str]:
    """Bounds of vectors; what is not a number remains so."""
    code = [f"ldrd r4, r5, [r0, #{AT['low']}]"]
    for q in range(vectors):
        code += [f"vpt.f32 lt, q{q}, r4", f"vdupt.32 q{q}, r4", f"vpt.f32 gt, q{q}, r5", f"vdupt.32 q{q}, r5"]
    return code


@dataclass(frozen=True)
class Channels(Block):
    """Sums over one channel each: one pixel by groups of 4 x `pixels` channels. A run is a row of the window.

    r5: bytes from tap to tap, r6: bytes of weights of the groups before, r7: groups left, r12: bytes of channels
    before.
    """

    vectors: bool = False

    name = property(lambda self: f"eb_{'mve_' * self.vectors}float_channels{4 * self.pixels}{'_fused' * self.fused}")
    unroll = property(lambda self: 1)
    spare = property(lambda self: 28)

    def remark(self) -> str:
        return f"One pixel by groups of {4 * self.pixels} channels, with sums over one channel each."

    def taps(self, count: int) -> list[str]:
        quads, most = range(self.pixels), 4 * self.pixels
        if self.vectors:
            code = [f"vldrw.u32 q{2 + q}, [r4{f', #{16 * q}' * (q > 0)}]" for q in quads]
            code += ["add r4, r4, r5", *(f"vldrw.u32 q{4 + q}, [r8], #16" for q in quads)]
            return code + [f"vfma.f32 q{q}, q{2 + q}, q{4 + q}" for q in quads]
        totals, values, weights = (singles(first, most) for first in (0, 8, 16))
        code = [f"vldmia r4, {{{_listed(values)}}}", "add r4, r4, r5", f"vldmia r8!, {{{_listed(weights)}}}"]
        return code + self._added(list(zip(totals, values, weights, strict=True)))

    def parts(self) -> tuple[Part, ...]:
        quads, step, every = range(self.pixels), 16 * self.pixels, f"{{s0-s{4 * self.pixels - 1}}}"
        first, last = ([f"vldmia r3!, {every}"], [f"vstmia r2!, {every}"])
        if self.vectors:
            first, last = (
                [f"{op} q{q}, [{p}], #16" for q in quads] for op, p in (("vldrw.u32", "r3"), ("vstrw.32", "r2"))
            )
        block: tuple[Part, ...] = (
            "1:", *first, f"ldr r11, [r0, #{AT['runs']}]", "mov r10, r1", "cmp r11, #0", "ble.w 9f",
            Loop("runs", (
                "2:", "ldm r10!, {r4, r8}", f"ldrd r9, r5, [r0, #{AT['taps']}]", "add r4, r4, r12", "add r8, r8, r6",
                "cmp r9, #0", "ble 6f",
                Loop("turns", ("3:", *self.taps(1), "subs r9, r9, #1", "bne 3b")),
                "6:", "subs r11, r11, #1", "bgt 2b",
            )),
            "9:", *(_within(self.pixels) if self.vectors else self.bounded()), *last,
            *asm(f"""
            ldr r4, [r0, #{AT['w_step']}]
            ldr r5, [r0, #{AT['back']}]
            add r12, r12, #{step}
            add r6, r6, r4
            subs r7, r7, #1
            beq 0f
            cmp r7, #1
            bne.w 1b
            """),
            Loop("last", asm("sub r12, r12, r5\n sub r2, r2, r5\n sub r3, r3, r5\n b.w 1b")), "0:",
        )  # fmt: skip
        return (
            "push {r4-r11, lr}", pushed((*SAVED, "lr")), "vpush {d8-d15}", moved(64), f"ldr r3, [r0, #{AT['bias']}]",
            f"ldr r7, [r0, #{AT['blocks']}]", "mov r12, #0", "mov r6, r12", Loop("blocks", block),
            "vpop {d8-d15}", moved(-64), "pop {r4-r11, pc}",
        )  # fmt: skip


def _scalars(pointer: str, registers: list[str]) -> str:
    listed = ", ".join(registers)
    if len(registers) == 4:
        return f"ldm {pointer}!, {{{listed}}}"
    return f"{'ldrd' if len(registers) == 2 else 'ldr'} {listed}, [{pointer}], #{4 * len(registers)}"


BLOCKS: dict[str, Block] = {
    b.name: b
    for pixels in (4, 1)
    for weights in WEIGHTS
    for b in (Block(pixels, weights), Block(pixels, weights, True), Vectors(pixels, weights))
}
CHANNELS = [Channels(quads, "", *how) for quads in (1, 2) for how in ((), (True,), (False, True))]
BLOCKS |= {b.name: b for b in CHANNELS}
COPIES = {"eb_mve_copy_words": 4, "eb_copy_words": 16}  # words of a turn


def copy_words(name: str) -> Function:
    """Operands over which results lie go elsewhere first."""
    if COPIES[name] == 4:
        turn = Loop("turns", asm("1:\n vldrw.u32 q0, [r1], #16\n vstrw.32 q0, [r0], #16\n letp lr, 1b"))
        parts: tuple[Part, ...] = (
            "push {r4, lr}",
            pushed(("r4", "lr")),
            "wlstp.32 lr, r2, 2f",
            turn,
            "2:",
            "pop {r4, pc}",
        )
    else:
        turn = Loop("turns", asm("1:\n vldmia r1!, {s0-s15}\n vstmia r0!, {s0-s15}\n subs r2, r2, #16\n bge 1b"))
        rest = Loop("rest", asm("3:\n vldmia r1!, {s0}\n vstmia r0!, {s0}\n subs r2, r2, #1\n bne 3b"))
        parts = ("subs r2, r2, #16", "blt 2f", turn, "2:", "adds r2, r2, #16", "ble 4f", rest, "4:", "bx lr")
    names = ("EB_REG float *to", "EB_REG const float *from", "EB_REG int32_t count")
    return Function(name, names, "`count` words from one place to another.", parts)


FUNCTIONS = {name: block.function for name, block in BLOCKS.items()}
FUNCTIONS |= {name: partial(copy_words, name) for name in COPIES}


def copying(name: str, words: int) -> float:
    """Instructions of a call."""
    count, rest = divmod(words, COPIES[name])
    return _micro(name).executed(turns=count + (rest > 0) * (COPIES[name] == 4), rest=rest)


def of_core(core: frozenset[str], rest: str) -> str:
    """The name of a core's function: `rest` of it begins behind "float"."""
    vectors, fused = "mve" in core, DUAL_ISSUE in core
    return f"eb_{'mve_' * vectors}float{rest}{'_fused' * (fused and not vectors)}"


def pace(function: str, pixels: int) -> float:
    """Cycles of an instruction over those of plain C with floats: several words come in one (`bench-cycles`)."""
    if "channels" in function:
        return 1.2 if "mve" in function else 1.55 if "fused" in function else 1.25
    four, one = (1.55, 1.45) if "mve" in function else (1.95, 2.5) if "fused" in function else (1.2, 1.45)
    return four if pixels == 4 else one


@cache
def _micro(name: str) -> Function:
    return FUNCTIONS[name]()


@cache
def executed_by(name: str, blocks: int, runs: float, taps: int, bounds: tuple[bool, bool]) -> float:
    """Instructions of a call: so many groups of channels, runs, taps in a run, and which bounds are finite."""
    unroll = BLOCKS[name].unroll
    turns = {
        "blocks": blocks,
        "last": (blocks > 1) / blocks,
        "runs": runs,
        "turns": taps // unroll,
        "rest": taps % unroll,
    }
    return _micro(name).executed(**turns | dict(zip(("low", "high"), map(int, bounds), strict=True)))
