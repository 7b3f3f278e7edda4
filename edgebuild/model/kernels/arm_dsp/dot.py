"""Sums of products for Armv7E-M with the DSP extension: a `Micro` describes them, and is printed as assembly.

SMLAD adds two products of 16 bits to a sum. So that it works on int8, a word of an operand holds two taps of two
channels (or of two pixels) at a time: each half is 256 * b + a. SMLAD on the word sums 256 * B + A, SMLAD on its low
bytes (SXTB16) sums A. Their difference over 256 is B as long as |B| < 2^23.

A result is floor((x * M + 2^30) / 2^31), which is SMMLAR(x, 2 * M - 2^32, x), then rounded over `right` bits and moved
to the zero point: SMMLSR(y, -2^(32 - right), zero). That rounds halves up. The reference rounds them away from zero,
which differs for negative results only: "signed" corrects them. "once": SMMLA rounds the product down, so that both
together round once. "_clamped": bounds other than those of int8, each four times in a word.

Weights of four bits lie two a byte: a half of a word holds those of four channels for one tap, the first three plus 8.
One AND extracts each, as 1, 16, 256 or 4096 times its value, and so is its sum. The caller passes the correction for
the 8: -8 times the sum of each pixel's values.

Factors of a channel are one word (weight_words.py): ROR of `unit` by it is 2^(32 - right). A 2 in the name of an end
("relu2"): they are two words, and there is no unit.

The loops are whole functions in assembly, because gcc's scheduler spills them: 1.20 to 1.40 instead of 0.96
instructions per multiply-accumulate for a 1x1 convolution of 64 to 64 channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

from ..micro import Function, Loop, Part, Unrolled, asm, framed, pushed

Registers = Sequence[str]
X, W = "r0", "r1"  # pointers to the pixels' values and to the stream of weights
SUMS = ("r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11")
ENDS = ("relu", "signed", "once")  # ways to round a result
FINISHES = tuple(f"{how}{two}{clamped}" for two in ("", "2") for how in ENDS for clamped in ("", "_clamped"))


@dataclass(frozen=True)
class Micro:
    """`pixels` x `channels` sums in registers, for all groups of so many channels.

    `x`: the layout of the pixels' values, see OPERANDS. `packs`: what a word of an operand holds two of: "channels" of
    the weights, "pixels" of the values, "halves", which are taps of a channel in int16, or "" where each byte is
    widened; "nibbles": it holds eight weights of four bits. `loads`: what is loaded several words at a time ("x", "w",
    "starts"). Other words are loaded one by one, for a core on which a load after a load takes one cycle, a word of
    LDRD or LDM one and a half (Cortex-M4 TRM, 3.3.2).
    `ahead`: weights are loaded a step ahead of their products, for a core that issues two instructions and waits two
    cycles for a load (hal/cycles/cortex-m7.yaml).
    """

    name: str
    pixels: int
    channels: int
    x: str
    packs: str = "channels"
    loads: frozenset[str] = frozenset({"x", "w", "starts"})
    ahead: bool = False
    ends: tuple[str, ...] = (*FINISHES, "sums")

    @property
    def blocked(self) -> bool:
        """Whether a call computes several groups of channels."""
        return bool(self.packs) or self.pixels == 1


@dataclass(frozen=True)
class Operand:
    """A layout of the pixels' values: bytes of four taps of all pixels, the C type, and a description."""

    bytes: int
    item: str
    text: str


OPERANDS = {
    "bytes": Operand(4, "int8_t", "of int8 in x, which may be unaligned"),
    "listed": Operand(4, "int8_t *const", "of int8 in runs whose begins and ends x lists; they may be unaligned"),
    "halves": Operand(8, "int32_t", "of int16, in words of taps 0, 2 and 1, 3 of each four in x"),
    "every other": Operand(16, "int32_t", "of int16, in every other word of x, taps 0, 2 and 1, 3 of each four"),
    "paired halves": Operand(16, "int32_t", "interleaved in x as words of two int16"),
    "paired bytes": Operand(8, "int32_t", "interleaved in x as words of four int8"),
    "zipped": Operand(16, "int32_t", "as eb_zip4 has them in x"),
}
ONE_BY_ONE = frozenset({"starts"})
COUNTS = {1: "one", 2: "two", 3: "three", 4: "four", 8: "eight"}
FEW = (1, 2, 3)  # channels whose weights are int16: blocks of four channels would be partly idle
_LISTED = (
    Micro("eb_dot2", 2, 4, "paired halves"),
    Micro("eb_dot2n", 2, 4, "paired bytes"),
    Micro("eb_dot2_single", 2, 4, "paired halves", loads=ONE_BY_ONE),
    Micro("eb_dot2_dual", 2, 4, "paired halves", ahead=True, ends=FINISHES),
    Micro("eb_dot1w_single", 1, 4, "halves", loads=ONE_BY_ONE),
    Micro("eb_dot1", 1, 4, "bytes"),
    Micro("eb_dot1w", 1, 4, "halves"),
    Micro("eb_dot1i", 1, 4, "every other"),
    Micro("eb_dot1r", 1, 4, "listed"),
    Micro("eb_single4", 1, 4, "bytes", packs="", ends=FINISHES),
    *(Micro(f"eb_few{n}", 1, n, "bytes", packs="halves", ends=FINISHES) for n in FEW),
    *(Micro(f"eb_few{n}r", 1, n, "listed", packs="halves", ends=FINISHES) for n in FEW),
    Micro("eb_rest1", 2, 1, "paired halves", packs="", ends=FINISHES),
    Micro("eb_rest2", 2, 2, "paired halves", packs="", ends=FINISHES),
    Micro("eb_dot4", 4, 2, "zipped", packs="pixels", loads=frozenset(), ends=FINISHES),
    Micro("eb_dot2h", 2, 4, "paired halves", packs="nibbles"),
    Micro("eb_dot1h", 1, 4, "bytes", packs="nibbles"),
    Micro("eb_dot1wh", 1, 4, "halves", packs="nibbles"),
    Micro("eb_dot8", 1, 8, "halves", loads=frozenset(), ends=FINISHES),
)
MICROS = {m.name: m for m in _LISTED}
NIBBLES = ("0x000f000f", "0x00f000f0", "0x0f000f00", "0xf000f000")  # masks of a channel, in both halves of a word


@dataclass(frozen=True)
class Finish:
    """The rescaling of sums: `how` of ENDS, `clamped` to bounds, factors of `two` words; or none."""

    name: str

    @property
    def sums(self) -> bool:
        return self.name == "sums"

    @property
    def clamped(self) -> bool:
        return self.name.endswith("_clamped")

    @property
    def two(self) -> bool:
        return "2" in self.name

    @property
    def unit(self) -> bool:
        """Whether second factors are computed by rotating the unit."""
        return not self.two and not self.sums

    def scaled(self, sums: Registers, factors: Registers, seconds: Registers, zero: str, unit: str) -> list[str]:
        """Rescale sums to int8, each by its two factors. With a unit, the second factor is computed from the first."""
        product = "smmla" if self.name.startswith("once") else "smmlar"
        code = [f"{product} {s}, {s}, {f}, {s}" for s, f in zip(sums, factors, strict=True)]
        if self.unit and unit:
            code += [f"ror {f}, {unit}, {f}" for f in dict.fromkeys(factors)]
        if self.name.startswith("signed"):
            code += [f"add {s}, {s}, {s}, asr #31 /* halves away from zero */" for s in sums]
        last = "smmlar" if self.unit else "smmlsr"
        code += [f"{last} {s}, {s}, {f}, {zero}" for s, f in zip(sums, seconds, strict=True)]
        return code + [f"ssat {s}, #8, {s}" for s in sums]


@dataclass(frozen=True)
class Dot:
    """A micro-kernel with a finish, as assembly."""

    m: Micro
    finish: Finish

    @property
    def sums(self) -> list[list[tuple[str, ...]]]:
        """Registers [pixel][pair of channels] or [pair of pixels][channel]: of the low bytes, of whole words."""
        across = self.m.channels if self.m.packs == "pixels" else -(-self.m.channels // 2)
        names = [tuple(SUMS[at : at + 2]) for at in range(0, self.m.pixels * self.m.channels, 2)]
        names = [pair[::-1] for pair in names] if self.m.packs == "pixels" else names  # their sums begin with the whole
        return [names[at : at + across] for at in range(0, len(names), across)]

    def of(self, pixel: int, channel: int) -> str:
        """The register of a sum, once words are separated."""
        if self.m.packs in ("channels", "nibbles"):
            return self.sums[pixel][channel // 2][channel % 2]
        if self.m.packs == "pixels":
            low, whole = self.sums[pixel // 2][channel]
            return whole if pixel % 2 else low
        return SUMS[pixel * self.m.channels + channel]

    @property
    def free(self) -> list[str]:
        """Registers for operands and, after the products, for factors."""
        used = SUMS[: self.m.pixels * self.m.channels]
        return [r for r in ("r2", "r3", "r8", "r9", "r10", "r11", "r12", "lr") if r not in used]

    @property
    def arguments(self) -> list[tuple[str, str]]:
        """C type and name of each parameter."""
        m, item = self.m, "int32_t" if self.finish.sums else "int8_t"
        results = {1: ["y"], 2: ["y0", "y1"], 4: ["y"]}[m.pixels]
        parameters = [(f"const {OPERANDS[m.x].item} *", "x"), ("const int32_t *", "w")]
        parameters += [(f"{item} *", y) for y in results]
        parameters += [("int32_t ", "step")] * (m.pixels == 4) + [(f"const {OPERANDS[m.x].item} *", "x_end")]
        parameters += [("int32_t ", "blocks")] * m.blocked + [("int32_t ", "zero")]
        parameters += [("int32_t ", "unit")] * self.finish.unit
        parameters += [("int32_t ", "low4"), ("int32_t ", "high4")] * self.finish.clamped
        return parameters + [("int32_t ", less) for less in self.less]

    @property
    def less(self) -> list[str]:
        """Parameters that correct the 8 added to weights, one for each pixel."""
        return [f"less{pixel}" for pixel in range(self.m.pixels)] if self.m.packs == "nibbles" else []

    def at(self, name: str) -> int:
        """Bytes from the stack pointer to an argument."""
        number = [n for _, n in self.arguments].index(name)
        first = 0 if self.m.blocked else -4  # without groups, x is read once
        return first + {0: 0, 2: 4, 3: 8}.get(number, 48 + 4 * (number - 4))

    def load(self, registers: Registers, pointer: str, several: bool, step: int = 4) -> list[str]:
        """Load words from a pointer and advance it; registers must ascend if several are loaded at once."""
        if several and len(registers) == 2:
            return [f"ldrd {registers[0]}, {registers[1]}, [{pointer}], #8"]
        if several and len(registers) > 2:
            return [f"ldm {pointer}!, {{{', '.join(registers)}}}"]
        return [f"ldr {r}, [{pointer}], #{step}" for r in registers]

    def stacked(self, wanted: dict[str, str]) -> list[str]:
        """Load arguments from the stack to registers; two are neighbours on the stack."""
        if len(wanted) == 2 and self.m.loads:
            return [f"ldrd {', '.join(wanted.values())}, [sp, #{self.at(next(iter(wanted)))}]"]
        return [f"ldr {register}, [sp, #{self.at(name)}]" for name, register in wanted.items()]


def function(m: Micro, finish: str) -> Function:
    """The micro-kernel with this finish as a whole function."""
    d = Dot(m, Finish(finish))
    saved = ["r0", "r2", "r3", *SUMS, "lr"][0 if m.blocked else 1 :]
    listed = f"{'r0, ' if m.blocked else ''}r2-r11"
    inside = [*_begin(d), *_products(d), *_separate(d), *_finished(d), *_stored(d)]
    body: list[Part] = [Loop("blocks", ("1:", *inside))] if m.blocked else inside
    places = ", ".join(f"{d.at(n)} {n}" for i, (_, n) in enumerate(d.arguments) if i != 1 and (i or m.blocked))
    return Function(
        f"{m.name}_{finish}",
        tuple(f"EB_REG {kind}{name}" for kind, name in d.arguments),
        _remark(d),
        (
            f"push {{{listed}, lr}}",
            pushed(saved),
            f"/* sp: {places} */",
            *body,
            f"pop {{{listed}, pc}}",
            *([] if m.loads else ("6:", "bpl 4b", "b 3b")),
        ),
    )


FUNCTIONS: dict[str, Callable[[], Function]] = {
    f"{m.name}_{end}": partial(function, m, end) for m in MICROS.values() for end in m.ends
}


@cache
def micro(name: str, finish: str) -> Function:
    """A micro-kernel by name, for estimates."""
    return FUNCTIONS[f"{name}_{finish}"]()


def _remark(d: Dot) -> str:
    m = d.m
    some = f"{COUNTS[m.channels]} channel{'s' * (m.channels > 1)}"
    some = "pairs of channels" if m.channels == 2 and m.blocked else f"{'groups of ' * m.blocked}{some}"
    some = f"by {'`blocks` ' * m.blocked}{some}"
    start = {"channels": "A, 256 B + A for each two channels", "pixels": "of both pixels for each channel",
             "nibbles": "A, 16 B, 256 C, 4096 D"}  # fmt: skip
    factors = "" if d.finish.sums else f", {'two factors' if d.finish.two else 'a factor'} a channel"
    results = {1: "", 2: "", 4: " Results of a pixel lie `step` behind the one before."}[m.pixels]
    return (
        f"{COUNTS[m.pixels].capitalize()} pixel{'s' * (m.pixels > 1)} {OPERANDS[m.x].text}, {some}. "
        f"w: {'for each of these ' if m.blocked else ''}start values {start.get(m.packs, '')}".rstrip()
        + f", words of weights{factors}.{results}"
        + (" The caller makes results of the sums." if d.finish.sums else "")
    )


def _begin(d: Dot) -> list[str]:
    """Load the pointer to the pixels and their end, then start values, copied to every pixel."""
    m, first = d.m, list(SUMS[: d.m.channels * (2 if d.m.packs == "pixels" else 1)])
    code = [f"ldr {X}, [sp]"] if m.blocked and m.x != "listed" else []
    code += [f"ldr {_past(d) or _left(d)}, [sp, #{d.at('x_end')}]"] if m.x != "listed" else []
    code += d.load(first, W, "starts" in m.loads)
    return code + [f"mov {SUMS[at]}, {SUMS[at % len(first)]}" for at in range(len(first), m.pixels * m.channels)]


def _past(d: Dot) -> str:
    """The register of the pixels' end if one is free in the loop; else ""."""
    if d.m.channels <= 4 // d.m.pixels:
        return "lr" if d.m.pixels == 1 else "r12"
    return ""


def _left(d: Dot) -> str:
    """The register of the bytes that are left before the first iteration."""
    return "r12" if d.m.blocked else "lr"


def _products(d: Dot) -> list[Part]:
    """Code for all taps, four at a time."""
    m, left, kept = d.m, _left(d), _past(d)
    count = 4 if m.blocked else 2  # groups of four taps that are written out for a turn
    bodies = tuple((f"{2 + at}:", *_body(d, at == count - 1)) for at in range(count))
    past = kept or ("r3" if m.ahead else "lr")
    end = [] if kept or m.ahead or m.packs == "pixels" else [f"ldr {past}, [sp, #{d.at('x_end')}]"]
    end += [] if m.packs == "pixels" else [f"cmp {X}, {past}"]
    taps = Unrolled("groups", *_entry(d, left), bodies, (*end, "bne 2b"))
    if m.x != "listed":
        ahead = [f"ldr lr, [{W}], #4"] if m.ahead else []
        return [*ahead, f"sub {left}, {kept or left}, {X}", taps]
    run: tuple[Part, ...] = (
        *asm(f"""
        7:
        ldm r2!, {{{X}, {past}}}
        sub {left}, {past}, {X}
        """),
        taps,
        *asm(f"""
        ldr {left}, [sp, #{d.at("x_end")}]
        cmp r2, {left}
        bne 7b
        """),
    )
    return [f"ldr r2, [sp, #{d.at('x')}]", Loop("runs", run)]


def _entry(d: Dot, left: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Enter the unrolled loop in the middle if groups are left over, by one or two bits of the bytes left."""
    if not d.m.blocked:
        return asm(f"""
        tst {left}, #16 /* an odd number of groups of four taps enters in the middle */
        bne 3f
        """), (2, 2)
    shift = 32 - OPERANDS[d.m.x].bytes.bit_length()
    bits = f"lsls {left}, {left}, #{shift} /* the count's lowest bit becomes the sign, the next the carry */"
    if not d.m.loads:  # two or three groups branch past the end, so that whole iterations begin without a taken branch
        return (bits, "bcs 6f", "bmi 5f"), (3, 3, 3, 4)
    return asm(f"""
        {bits}
        bcc 6f
        bpl 4f
        b 3f
        6:
        bmi 5f
        """), (3, 3, 3, 4)


def _body(d: Dot, last: bool) -> list[str]:
    """The products of four taps; `last`: of an iteration, so that a free register may get the end of the pixels."""
    if d.m.packs == "pixels":
        return [line for half in (0, 1) for line in _of_pixels(d, last and half == 1)]
    if not d.m.packs:
        return _widened(d)
    if d.m.packs == "halves":
        return _of_few(d)
    if d.m.ahead:
        return [line for half in (0, 1) for line in _prefetched(d, last and half == 1)]
    if d.m.channels == 8:
        return _of_eight(d)
    if d.m.pixels == 2:
        return [line for half in (0, 1) for line in _of_channels(d, half)]
    return _of_one_pixel(d)


def _both(d: Dot, words: Registers, values: Registers) -> list[str]:
    """Two taps: for each pair of channels a word of weights, for each pixel one of values.

    Weights of four bits are in the first word; the second is scratch for one channel after the other.
    """
    code = list[str]()
    if d.m.packs == "nibbles":
        for channel, mask in enumerate(NIBBLES):
            sums = [(d.of(pixel, channel), x) for pixel, x in enumerate(values)]
            code += [f"and {words[1]}, {words[0]}, #{mask}", *(f"smlad {v}, {words[1]}, {x}, {v}" for v, x in sums)]
        return code
    for pair, word in enumerate(words):
        code += [f"smlad {whole}, {word}, {x}, {whole}" for x, (_, whole) in _sums_of(d, pair, values)]
        code.append(f"sxtb16 {word}, {word}")
    for pair, word in enumerate(words):
        code += [f"smlad {low}, {word}, {x}, {low}" for x, (low, _) in _sums_of(d, pair, values)]
    return code


def _sums_of(d: Dot, pair: int, values: Registers) -> list[tuple[str, tuple[str, ...]]]:
    return [(x, d.sums[pixel][pair]) for pixel, x in enumerate(values)]


def _of_channels(d: Dot, half: int) -> list[str]:
    """Code for two taps of two pixels."""
    m = d.m
    if m.x == "paired bytes":  # of a word of each pixel, first bytes 0 and 2, then 1 and 3
        turn = ", ror #8" if half else ""
        code = [f"ldrd r2, r3, [{X}]{', #8' if half else ''}", f"sxtb16 r2, r2{turn}", f"sxtb16 r3, r3{turn}"]
        code += d.load(("r12", "lr"), W, True)
    else:
        words = ("r12", "lr")[: 1 if m.packs == "nibbles" else 2]
        x, w = d.load(("r2", "r3"), X, "x" in m.loads), d.load(words, W, "w" in m.loads)
        code = x + w if "w" in m.loads else w + x
    return code + _both(d, ("r12", "lr"), ("r2", "r3"))


def _of_one_pixel(d: Dot) -> list[str]:
    """Code for four taps of one pixel."""
    m, (even, odd), words, code = d.m, ("r8", "r3"), ["r9", "r10", "r11", "r12"], list[str]()
    first, second = words[:2], words[2:]
    if m.packs == "nibbles":
        words, first, second = words[:2], ["r9", "r11"], ["r10", "r11"]
    if OPERANDS[m.x].bytes == 4:
        code += [f"ldr {odd}, [{X}], #4", *d.load(words, W, True)]
        code += [f"sxtb16 {even}, {odd}", f"sxtb16 {odd}, {odd}, ror #8"]
    else:
        several, step = "x" in m.loads and m.x == "halves", OPERANDS[m.x].bytes // 2
        code += [*d.load((even, odd), X, several, step), *d.load(words, W, "w" in m.loads)]
    return code + _both(d, first, (even,)) + _both(d, second, (odd,))


def _prefetched(d: Dot, last: bool) -> list[str]:
    """Two taps of two pixels; the first word of weights is in lr."""
    code, values, (word, other) = [f"ldrd r2, r3, [{X}], #8"], ("r2", "r3"), ("lr", "r12")
    for pair in (0, 1):
        code.append(f"ldr {other}, [{W}], #4")
        (low, whole), (low1, whole1) = (d.sums[pixel][pair] for pixel in (0, 1))
        code += [f"smlad {whole}, {word}, r2, {whole}", f"smlad {whole1}, {word}, r3, {whole1}"]
        code += [f"sxtb16 {word}, {word}", f"smlad {low1}, {word}, {values[1]}, {low1}"]
        code += [f"ldr r3, [sp, #{d.at('x_end')}]"] if last and pair == 1 else []
        code.append(f"smlad {low}, {word}, {values[0]}, {low}")
        word, other = other, word
    return code


def _of_eight(d: Dot) -> list[str]:
    """Four taps of one pixel with eight channels: three or four words are loaded in a row, in order of use."""
    code = list[str]()
    steps = (  # loads of (register, pointer), then products of (pair of channels, weights, values)
        ((("r2", X), ("r3", W), ("r12", W), ("lr", W)), ((0, "r3", "r2"), (1, "r12", "r2"), (2, "lr", "r2"))),
        ((("r3", W), ("r12", X), ("lr", W)), ((3, "r3", "r2"), (0, "lr", "r12"))),
        ((("r2", W), ("r3", W), ("lr", W)), ((1, "r2", "r12"), (2, "r3", "r12"), (3, "lr", "r12"))),
    )
    for loads, products in steps:
        code += [f"ldr {register}, [{pointer}], #4" for register, pointer in loads]
        for pair, word, values in products:
            low, whole = d.sums[0][pair]
            code += [f"smlad {whole}, {word}, {values}, {whole}", f"sxtb16 {word}, {word}"]
            code.append(f"smlad {low}, {word}, {values}, {low}")
    return code


def _of_pixels(d: Dot, last: bool) -> list[str]:
    """Two taps of two channels in a word, with words of two pixels each."""
    values, channels = ("r2", "r3"), ("lr", "r12")
    code = [*d.load(("r12",), W, False), *d.load(values, X, False)]
    code += [f"ldr lr, [sp, #{d.at('x_end')}]", f"cmp {X}, lr"] if last else []  # for the branch at the end
    code += ["sxtb16 lr, r12", "sxtb16 r12, r12, ror #8"]
    for part in (1, 0):
        code += [f"uxtb16 {x}, {x}" for x in values] if part == 0 else []
        code += [
            f"smlad {d.sums[pair][c][part]}, {word}, {x}, {d.sums[pair][c][part]}"
            for pair, x in enumerate(values) for c, word in enumerate(channels)
        ]  # fmt: skip
    return code


def _widened(d: Dot) -> list[str]:
    """Four taps of two pixels, or of one, with a word of four weights for each channel."""
    if d.m.pixels == 1:
        code = ["ldr r3, [r0], #4", "ldm r1!, {r8, r9, r10, r11}", "sxtb16 r2, r3", "sxtb16 r3, r3, ror #8"]
        for c, word in enumerate(("r8", "r9", "r10", "r11")):
            v = d.of(0, c)
            code += [f"sxtb16 r12, {word}", f"smlad {v}, r12, r2, {v}"]
            code += [f"sxtb16 {word}, {word}, ror #8", f"smlad {v}, {word}, r3, {v}"]
        return code
    code = ["ldm r0!, {r8, r9, r10, r11}"]
    for c in range(d.m.channels):
        one, other = d.of(0, c), d.of(1, c)
        code += [f"ldr lr, [{W}], #4", "sxtb16 r2, lr"]
        code += [f"smlad {one}, r2, r8, {one}", f"smlad {other}, r2, r9, {other}", "sxtb16 lr, lr, ror #8"]
        code += [f"smlad {one}, lr, r10, {one}", f"smlad {other}, lr, r11, {other}"]
    return code


def _of_few(d: Dot) -> list[str]:
    """Four taps of one pixel: for each channel a word of its weights for taps 0 and 2, then one for taps 1 and 3."""
    n, code = d.m.channels, [f"ldr r3, [{X}], #4", "sxtb16 r8, r3", "sxtb16 r3, r3, ror #8"]
    words = ("r9", "r10", "r11", "r12")[: 2 * n if n < 3 else n]
    for i in range(2 * n):
        code += d.load(words, W, True) if i % len(words) == 0 else []
        code.append(f"smlad {d.of(0, i % n)}, {words[i % len(words)]}, {('r8', 'r3')[i // n]}, {d.of(0, i % n)}")
    return code


def _separate(d: Dot) -> list[str]:
    """Extract the upper sums of shared words: (whole - sum of low bytes) / 256. Or correct sums of nibbles."""
    if d.m.packs in ("", "halves"):
        return []
    if d.m.packs == "nibbles":
        registers = dict(zip(d.less, ("r2", "r3"), strict=False))
        code = d.stacked(registers)
        for pixel, less in enumerate(registers.values()):
            one, *others, last = (d.of(pixel, channel) for channel in range(4))
            code += [
                f"add {one}, {one}, {less}",
                *(f"add {v}, {less}, {v}, asr #{4 * n}" for n, v in enumerate(others, 1)),
            ]
            code.append(f"asr {last}, {last}, #12")
        return code
    pairs = [pair for some in d.sums for pair in some]
    return [f"sub {w}, {w}, {low}" for low, w in pairs] + [f"asr {w}, {w}, #8" for _, w in pairs]


def _finished(d: Dot) -> list[str]:
    """Rescale sums, with factors for as many channels at a time as there are registers."""
    m, finish = d.m, d.finish
    if finish.sums:
        return []
    each, several = 2 if finish.two else 1, bool(m.loads)
    zero, unit = "r0", "r2"
    code = d.stacked({"zero": zero, "unit": unit} if finish.unit else {"zero": zero})
    free = [r for r in d.free if not (finish.unit and r == unit)]
    if m.ahead:
        free = ["r12", "lr"]  # the first of which the loop has left in lr
    some = next(n for n in range(m.channels, 0, -1) if m.channels % n == 0 and n * each <= len(free))
    held = free[len(free) - some * each :]
    for first in range(0, m.channels, some):
        own = held[::-1] if m.ahead else held
        code += d.load(own[1:], W, False) if m.ahead and first == 0 else d.load(own, W, several)
        channels = [
            (c, own[(c - first) * each], own[(c - first) * each + each - 1]) for c in range(first, first + some)
        ]
        sums = [(d.of(p, c), one, two) for c, one, two in channels for p in range(m.pixels)]
        code += finish.scaled([s for s, _, _ in sums], [f for _, f, _ in sums], [f for _, _, f in sums], zero, unit)
    return code


def _joined(d: Dot) -> list[str]:
    """Pack results of up to four channels of a pixel into the first one's register, and clamp them to the bounds."""
    n = min(4, d.m.channels)
    words = [[d.of(p, c) for c in range(at, at + n)] for p in range(d.m.pixels) for at in range(0, d.m.channels, n)]
    code = [f"bfi {word[0]}, {word[i]}, #{8 * i}, #8" for i in range(1, n) for word in words]
    if d.finish.clamped:
        code += d.stacked({"low4": "r12", "high4": "lr"})
        code += [line for word in words for line in within(word[0], "r12", "lr", "r0")]
    return code


def within(register: str, low: str, high: str, other: str) -> list[str]:
    """Clamp four bytes of a register to bounds that are in every byte of a word."""
    return [f"ssub8 {other}, {register}, {low}", f"sel {register}, {register}, {low}",
            f"ssub8 {other}, {high}, {register}", f"sel {register}, {register}, {high}"]  # fmt: skip


def _stored(d: Dot) -> list[str]:
    """Store results and go on to the next group of channels."""
    if not d.m.blocked:
        return _stored_bytes(d)
    if d.m.packs == "pixels":
        return _stored_pairs(d)
    y, places = ("y0", ("r2", "r3")) if d.m.pixels == 2 else ("y", ("r2",))
    two = f"{'d' if len(places) == 2 else ''} {', '.join(places)}, [sp, #{d.at(y)}]"
    code = [f"ldr{two}", *([] if d.finish.sums else _joined(d)), f"ldr r12, [sp, #{d.at('blocks')}]"]
    for pixel, place in enumerate(places):
        if d.finish.sums:
            code.append(f"stm {place}!, {{{', '.join(d.of(pixel, c) for c in range(d.m.channels))}}}")
        elif d.m.channels in FEW:
            first, n = d.of(pixel, 0), d.m.channels
            code += [f"strh {first}, [{place}], #2"] * (n > 1) + [f"lsr {first}, {first}, #16"] * (n == 3)
            code += [f"strb {first}, [{place}], #1"] * (n % 2)
        else:
            code += [f"str {d.of(pixel, c)}, [{place}], #4" for c in range(0, d.m.channels, 4)]
    return [*code, "subs r12, r12, #1", f"str{two}", f"str r12, [sp, #{d.at('blocks')}]", "bne 1b"]


def _stored_pairs(d: Dot) -> list[str]:
    """Store two channels of four pixels and go on to the next group."""
    code = [f"bfi {d.of(p, 0)}, {d.of(p, 1)}, #8, #24" for p in range(4)]
    if d.finish.clamped:
        code += d.stacked({"low4": "r0", "high4": "lr"})
        for one, other in ((d.of(0, 0), d.of(1, 0)), (d.of(2, 0), d.of(3, 0))):
            code += [f"pkhbt {one}, {one}, {other}, lsl #16", *within(one, "r0", "lr", other)]
            code.append(f"lsr {other}, {one}, #16")
    return code + list(
        asm(f"""
        ldr r2, [sp, #{d.at("y")}]
        ldr r3, [sp, #{d.at("step")}]
        add r12, r2, r3, lsl #1
        strh {d.of(1, 0)}, [r2, r3]
        strh {d.of(2, 0)}, [r12]
        strh {d.of(3, 0)}, [r12, r3]
        strh {d.of(0, 0)}, [r2], #2
        ldr r12, [sp, #{d.at("blocks")}]
        str r2, [sp, #{d.at("y")}]
        subs r12, r12, #1
        str r12, [sp, #{d.at("blocks")}]
        bne 1b
        """)
    )


def _stored_bytes(d: Dot) -> list[str]:
    """Store one channel or two of two pixels."""
    code, channels = list[str](), range(d.m.channels)
    if d.finish.clamped:
        order = [d.of(p, c) for c in channels for p in (0, 1)]
        code += [f"bfi {order[0]}, {order[i]}, #{8 * i}, #8" for i in range(1, len(order))]
        code += [*d.stacked({"low4": "r12", "high4": "lr"}), *within(order[0], "r12", "lr", "r0")]
    code.append("ldm sp, {r2, r3}")
    for c in channels:
        at = f", #{c}" if c else ""
        if d.finish.clamped:
            code += ["lsr r4, r4, #8"] * bool(c) + [f"strb r4, [r2{at}]", "lsr r4, r4, #8", f"strb r4, [r3{at}]"]
        else:
            code += [f"strb {d.of(0, c)}, [r2{at}]", f"strb {d.of(1, c)}, [r3{at}]"]
    return code


# Functions that arrange operands as the dot products read them.

REGISTERS = tuple(f"r{n}" for n in range(4, 12))


# Two pixels share a word of two taps: each half holds 256 * x1 + x0 + 128, which is byte x1 over byte x0 ^ 0x80. SMLAD
# on the word sums 256 * Y1 + Y0, SMLAD on its low bytes (UXTB16) sums Y0; start values correct the 128. Words are
# loaded one by one, because a load after a load takes one cycle (Cortex-M4 TRM, 3.3.2).
SIGNS = (
    "mov r11, #0x00ff00ff",
    "uadd8 r4, r11, r11 /* from here SEL takes bytes 0 and 2 of its first operand, 1 and 3 of its second */",
    "mov r11, #0x80808080",
)


def _zipped(label: str) -> Loop:
    """Zip bytes of four pixels, from r1, r2, r3 and r12 to r0, up to lr, four at a time."""
    code = [f"ldr {to}, [{x}], #4" for to, x in (("r4", "r1"), ("r5", "r2"), ("r8", "r3"), ("r9", "r12"))]
    code += ["eor r4, r4, r11", "lsl r6, r5, #8", "lsr r7, r4, #8", "sel r4, r4, r6", "sel r6, r7, r5"]
    code += ["eor r8, r8, r11", "lsl r5, r9, #8", "lsr r7, r8, #8", "sel r5, r8, r5", "sel r7, r7, r9"]
    code += [f"str {word}, [r0], #4" for word in ("r4", "r5", "r6", "r7")]
    return Loop("fours", (f"{label}:", *code, "cmp r0, lr", f"bne {label}b"))


def zip4() -> Function:
    """The function that zips one row of four pixels."""
    return framed(
        "eb_zip4", "int32_t *to, const int8_t *const *pixels, int32_t n",
        "n bytes, a multiple of four, of four pixels: for each four taps the words of pixels 0 and 1 and of 2 and 3 "
        "for taps 0 and 2, then the same for taps 1 and 3.",
        (*REGISTERS[:6], "r11"),
        ("add lr, r0, r2, lsl #2", "ldm r1, {r1, r2, r3, r12}", *SIGNS, _zipped("1")),
    )  # fmt: skip


def zip4_rows() -> Function:
    """The function that zips all rows of a window of four pixels."""
    row: tuple[Part, ...] = ("1:", "add lr, r0, r10", _zipped("2"), "ldr r4, [sp, #36]", "ldr r5, [sp, #40]",
           *(f"add {x}, {x}, r4" for x in ("r1", "r2", "r3", "r12")), "subs r5, r5, #1", "str r5, [sp, #40]", "bne 1b",
           )  # fmt: skip
    return framed(
        "eb_zip4_rows",
        "int32_t *to, const int8_t *from, int32_t gap, int32_t n, int32_t line, int32_t rows",
        "As eb_zip4, for `rows` rows of taps: `line` bytes from a row to the next, `gap` from a pixel to the next.",
        REGISTERS,
        ("/* sp: 36 line, 40 rows */", "ldr r4, [sp, #36]", "lsl r10, r3, #2", "sub r4, r4, r3", "str r4, [sp, #36]",
         "add r3, r1, r2, lsl #1", "add r12, r3, r2", "add r2, r1, r2", *SIGNS, Loop("rows", row)),
    )  # fmt: skip


def gather(words: int) -> Function:
    """The function that gathers so many words of two pixels; 0: as many as a parameter says."""
    count, bytes_ = ("", ", int32_t n") if not words else (f"_{4 * words}", "")
    parameters = f"const int8_t *const *under, int32_t *to, const int32_t *end, int32_t at{bytes_}"
    remark = (
        f"{4 * words or 'n'} bytes{'' if words else ', a multiple of four,'} of two pixels under each tap, from their "
        "byte `at` on, to int16: interleaved, in words of bytes 0, 2 and 1, 3 of each four."
    )
    if not words:
        turn = ("2:", "ldr r6, [r4], #4", "ldr r7, [r5], #4", "sxtb16 r8, r6, ror #8", "sxtb16 r9, r7, ror #8",
                "sxtb16 r6, r6", "sxtb16 r7, r7", "stm r1!, {r6-r9}", "cmp r4, r12", "bne 2b")  # fmt: skip
        tap = ("1:", "ldrd r4, r5, [r0], #8", "add r4, r4, r3", "add r5, r5, r3", "add r12, r4, r10",
               Loop("fours", turn), "cmp r1, r2", "bne 1b")  # fmt: skip
        return framed("eb_gather2", parameters, remark, REGISTERS[:7], ("ldr r10, [sp, #32]", Loop("taps", tap)))
    code = ["1:", "ldrd r8, r12, [r0], #8"]
    for at in ("r3", "lr")[:words]:
        code += [f"ldr r4, [r8, {at}]", f"ldr r5, [r12, {at}]", "sxtb16 r6, r4, ror #8", "sxtb16 r7, r5, ror #8"]
        code += ["sxtb16 r4, r4", "sxtb16 r5, r5", "stm r1!, {r4-r7}"]
    head = ("add lr, r3, #4",) * (words == 2)
    return framed(
        f"eb_gather2{count}", parameters, remark, REGISTERS[:5],
        (*head, Loop("taps", (*code, "cmp r1, r2", "bne 1b"))),
    )  # fmt: skip


def _ends(label: int, letter: str, size: int) -> list[Part]:
    """Two loads that overlap, at the start and at the end of n bytes: `letter` of their size, once or twice in n."""
    code = ["1:", "ldrd r4, r5, [r0], #8", "add r4, r4, r10", "add r5, r5, r10"]
    for access, one, other in (("ldr", "r4", "r5"), ("str", "r2", "r3")):
        places = (("r6", one), ("r7", other), ("r8", f"{one}, r12"), ("r9", f"{other}, r12"))
        code += [f"{access}{letter} {register}, [{place}]" for register, place in places]
    code += ["add r2, r2, r11", "add r3, r3, r11", "cmp r0, r1", "bne 1b"]
    return [f"{label}:", f"sub r12, r11, #{size}", Loop("taps", tuple(code))]


def gapless() -> Function:
    """The function that copies any number of bytes of two pixels without gaps."""
    copies = ("ldr r6, [r4], #4", "ldr r7, [r5], #4", "str r6, [r2], #4", "str r7, [r3], #4")
    tap: tuple[Part, ...] = ("1:", "ldrd r4, r5, [r0], #8", "add r4, r4, r10", "add r5, r5, r10", "sub r12, r11, #4",
           Loop("words", ("2:", *copies, "subs r12, r12, #4", "bgt 2b")),
           "add r4, r4, r12 /* the last word begins within the one before it */",
           *(f"add {x}, {x}, r12" for x in ("r5", "r2", "r3")), "ldr r6, [r4]", "ldr r7, [r5]", *copies[2:],
           "cmp r0, r1", "bne 1b")  # fmt: skip
    leave = "pop {r4-r11, pc}"
    return framed(
        "eb_gapless2", "const void *under, const void *past, void *to, void *other, int32_t at, int32_t n",
        "n bytes of two pixels under each tap, from their byte `at` on, to `to` and `other` without gaps. Addresses "
        "may be unaligned.",
        REGISTERS,
        ("ldrd r10, r11, [sp, #36]", "cmp r11, #8", "ble 5f", Loop("taps", tap), leave, "5:", "cmp r11, #2", "blt 8f",
         "cmp r11, #4", "blt 7f", *_ends(6, "", 4), leave, *_ends(7, "h", 2), leave, *_ends(8, "b", 1)),
    )  # fmt: skip


FUNCTIONS |= {"eb_zip4": zip4, "eb_zip4_rows": zip4_rows, "eb_gapless2": gapless}
FUNCTIONS |= {f"eb_gather2{f'_{4 * n}' if n else ''}": partial(gather, n) for n in (0, 1, 2)}
