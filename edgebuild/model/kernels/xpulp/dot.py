"""Sums over all channels for XpulpV2: the operands of micro-kernels, the micro-kernels, and their streams of weights.

Pixels that are their own window, or whose rows need no padding, are read in place. Else the rows under a window
are copied to lines with their padding, each once. Where a row of a window has few words, or its taps are no
neighbours, the words of several pixels are gathered side by side first.

Micro-kernels for XpulpV2: sums of int8 over all channels, four products an instruction.

A `Dot` sums `pixels` x `channels` at once. For each word of four taps it loads a word of weights for each channel and a
word of each pixel, one ahead of its products, so that none waits for a load. The stream of weights holds for each block
of channels: start values; for each word of taps those of the channels; then each channel's factors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from ...ir import Arithmetic, Array
from ...ops import fixedpoint
from ...ops.base import Constant, Form, FourBytes, Kernel, Sums, Traffic
from ...ops.spatial import computed_once, sums_shape, words
from ..blocks.two_in_one import rv_frame
from ..micro import Function, Loop, Part
from ..phases import group
from .encoding import hardware_loop, printed

# The rescaling of sums on XpulpV2: a product, a shifted sum and a clip, exact for every sum that can occur.
#
# A result is g(x) = (p(x) + r) >> s within bounds, where p is about x * m / 2^e. Results of the reference rise with x,
# and so do these: they agree on all sums if each result begins at the same x. The product has three forms:
#
# - "two": x * low >> e, plus x * high, for m = high * 2^e + low. Three cycles.
# - "mid": (x >> j) * low >> k, plus x * high: more bits of m, fewer of x. Four cycles.
# - "high": `mulh` of x << n. Six cycles.
#
# Where the reference rounds halves away from zero, results of negative sums begin later: `away` is subtracted from p.

NEAR = 4  # sums around a result's beginning in real numbers, among which the reference's lies
STEPS = sorted(range(-12, 13), key=abs)  # eighths of a sum by which the rounding may be moved
FAR = 2**40
WORD = 30  # bits of a product, which leaves one for a sum of two
LAYERS = 64  # layers whose factors are cached


@dataclass(frozen=True)
class Product:
    """A form of the product. `way`: two, mid or high; `bits`: e, k or n; `dropped`: j; `away`: is subtracted or not."""

    way: str
    bits: int
    dropped: int = 0
    away: bool = False

    @property
    def name(self) -> str:
        return f"{self.way}{self.bits}{f'_{self.dropped}' if self.dropped else ''}{'_away' if self.away else ''}"

    @property
    def scale(self) -> int:
        """The e of x * m / 2^e."""
        return 32 - self.bits if self.way == "high" else self.bits + self.dropped

    @property
    def words(self) -> int:
        """Words of a channel's factors."""
        return (3 if self.way == "high" else 4) + self.away

    @property
    def cycles(self) -> int:
        return {"two": 3, "mid": 4, "high": 6}[self.way] + 2 * self.away

    def fits(self, most: Array, m: Array, away: Array, rounding: Array) -> Array:
        """Whether p of sums up to `most`, with the rounding added, stays in int32."""
        ends = [abs(self.of(x, m, away) + rounding) for x in (most, -most)]
        return np.asarray((np.maximum(*ends) < 2**31) & (abs(rounding) < 2**31))

    def of(self, x: Array, m: Array, away: Array) -> Array:
        """p(x), as the instructions compute it."""
        if self.way == "high":
            product = x * m >> self.scale
        else:
            low, high = m & ((1 << self.scale) - 1), m >> self.scale
            product = ((x >> self.dropped) * low >> self.bits) + x * high
        return product - np.where(x < 0, away, 0)


@dataclass(frozen=True)
class Ends:
    """The rescaling of sums. `words`, by channel: m, or low and high; r; s; what is subtracted for negative sums."""

    product: Product
    words: Array


@computed_once
def ends(s: Sums) -> Ends | None:
    """Ends by the product of fewest cycles that is exact in all channels; None if there is none."""
    return _ends(s, np.zeros_like(s.start))


@computed_once
def raw_ends(s: Sums) -> Ends | None:
    """Ends for sums that begin at 0, with start values in the rounding; None for "signed" results."""
    return None if s.finish.startswith("signed") else _ends(s, s.start)


def _ends(s: Sums, left_out: Array) -> Ends | None:
    if not (s.fits and fixedpoint.fits(s.bound, -s.right).all()):
        return None
    products = _products(s.finish.startswith("signed"), int(_reach(s, left_out).max()).bit_length())
    return next((Ends(p, words) for p in products if (words := _words(s, left_out, p)) is not None), None)


def _reach(s: Sums, left_out: Array) -> Array:
    """The bound of each channel's sums, without the start values that are left out of them."""
    return np.asarray(np.maximum(s.bound - np.abs(left_out), 1))


def _words(s: Sums, left_out: Array, p: Product) -> Array | None:
    """Factors of all channels, cached for other tiles of the layer; None if a channel has none."""
    numbers = s.bound, s.mantissa, s.right, left_out, *(() if s.added is None else (s.added,))
    keys = [row.tobytes() for row in np.stack(numbers, axis=1).astype(np.int64)]
    factors = _factors(p, s.y_zero, s.low, s.high, s.arithmetic)
    if new := {key: at for at, key in enumerate(keys) if key not in factors}:
        own = np.array(list(new.values()))
        factors.update(zip(new, _exact(group(s, own), left_out[own], p), strict=True))
    words = [factors[key] for key in keys]
    return None if any(w is None for w in words) else np.array(words)


@lru_cache(LAYERS)
def _factors(p: Product, y_zero: int, low: int, high: int, arithmetic: Arithmetic) -> dict[bytes, Array | None]:
    """Cache of factors by all that they depend on in a channel: plans need the same in tiles of many sizes."""
    return {}


def _products(away: bool, bits: int) -> Iterator[Product]:
    """Products that may be exact, the quickest first."""
    free = WORD - bits
    if free >= 1:
        yield Product("two", free, 0, away)
        yield from (Product("mid", free, dropped, away) for dropped in (2, 3, 4))
    if free >= 0:
        yield Product("high", free, 0, away)


def _begins(s: Sums, results: Array, real: Array, half: Array | float) -> tuple[Array, Array]:
    """By channel, the least sum of each result above the lowest, and whether all lie where real numbers predict.

    -FAR: every sum reaches the result; FAR: none does, as in a channel whose weights are 0.
    """
    most = s.bound[:, None] + 1
    places = np.floor((results - s.y_zero - np.reshape(half, (-1, 1))) / real[:, None])
    guess = np.clip(places, -(2.0**40), 2.0**40).astype(np.int64)
    first = np.full(guess.shape, np.iinfo(np.int64).max)
    for near in range(NEAR, -NEAR - 1, -1):
        x = np.clip(guess + near, 1 - most, most - 1)
        first = np.where(_reference_results(s, x) >= results, x, first)
    below = np.clip(guess - NEAR - 1, 1 - most, most - 1)
    reached = first < np.iinfo(np.int64).max
    # A result that no sum near its predicted beginning reaches must be beyond all sums.
    right = np.where(reached, (_reference_results(s, below) < results) | (first == 1 - most), guess + NEAR >= most - 1)
    return np.where(first == 1 - most, -FAR, np.where(reached, first, FAR)), np.asarray(right.all(axis=1))


def _reference_results(s: Sums, x: Array) -> Array:
    """Results of the reference for sums `x`, channels x sums."""
    added = None if s.added is None else s.added[:, None]
    scaled = fixedpoint.requantize(x, s.mantissa[:, None], -s.right[:, None], s.arithmetic, added)
    return np.asarray(np.clip(scaled + s.y_zero, s.low, s.high))


def _exact(s: Sums, left_out: Array, p: Product) -> list[Array | None]:
    """By channel, factors with which each result begins where the reference's does, verified; None: there are none."""
    results = np.arange(s.low + 1, s.high + 1, dtype=np.int64)[None]
    real = np.ldexp(s.mantissa.astype(float), (-31 - s.right).astype(int))  # steps of the result that a sum is worth
    half = 0.5 if s.added is None else np.ldexp(s.added.astype(float), (-31 - s.right).astype(int))
    begins, right = _begins(s, results, real, half)
    bound = _reach(s, left_out)
    begins = np.clip(begins - left_out[:, None], -bound[:, None], bound[:, None] + 1)
    largest = 2.0**31 - 1 if p.way == "high" else ((2**WORD - bound) // bound + 1.0) * 2.0**p.scale - 1
    reach = (s.bound + 1) * real + abs(s.y_zero) + abs(half - 0.5) + 2  # of p and r together, in results
    shift = np.minimum(np.floor(np.log2(largest / real)) - p.scale, np.floor(np.log2((2.0**31 - 1) / reach)))
    shift = np.minimum(shift, 30).astype(np.int64)
    sums = np.exp2(shift.astype(float)) * real  # units of p that a sum is worth
    away = np.rint(np.exp2((shift - s.right).astype(float))).astype(np.int64) * p.away
    middle = (s.y_zero + half) * np.exp2(shift.astype(float)) + left_out * sums
    middle += np.exp2((shift - s.right - 1).astype(float)) if s.added is None and s.arithmetic.fixed_point else 0
    ideal = np.maximum(np.rint(real * np.exp2((p.scale + shift).astype(float))).astype(np.int64), 1)
    missing, words = np.flatnonzero(right & (shift >= 1)), list[Array | None]([None] * len(real))
    for step in STEPS:
        at = missing
        rounding = np.rint(middle[at] + step * sums[at] / 8).astype(np.int64)
        begin = (results << shift[at, None]) - rounding[:, None]
        with np.errstate(over="ignore"):  # `_same` rejects results that overflow
            least, last = _interval(begins[at], begin, away[at, None], p.scale, bound[at])
        # The middle of an interval is safest, but far from the real factor where few results can occur.
        chosen = np.clip((least + last) // 2, ideal[at] - ideal[at] // 1024, ideal[at] + ideal[at] // 1024)
        good = (least <= chosen) & (chosen <= last) & (chosen <= np.broadcast_to(largest, real.shape)[at])
        good &= p.fits(bound[at], chosen, away[at], rounding)
        good &= _same(p, begins[at], begin, chosen, away[at], bound[at])
        for i, m, r in zip(at[good], chosen[good], rounding[good], strict=True):
            parts = [m] if p.way == "high" else [m & ((1 << p.scale) - 1), m >> p.scale]
            words[i] = np.array([*parts, r, shift[i], *([away[i]] if p.away else [])])
        missing = at[~good]
        if not len(missing):
            break
    return words


def _same(p: Product, begins: Array, begin: Array, m: Array, away: Array, bound: Array) -> Array:
    """By channel, whether p reaches `begin` at each of `begins` and not before."""
    factors, most = (m[:, None], away[:, None]), bound[:, None]
    at, before = p.of(np.minimum(begins, most), *factors), p.of(np.maximum(begins - 1, -most), *factors)
    reached, follows = begins <= most, begins > -most
    return np.asarray(((~reached | (at >= begin)) & (~follows | (before < begin))).all(axis=1))


def _interval(begins: Array, begin: Array, away: Array, e: int, bound: Array) -> tuple[Array, Array]:
    """The least and the last m with which x * m / 2^e reaches `begin` at x = `begins` and not before."""
    least, last = np.full(len(begins), 0), np.full(len(begins), 2**40)
    at, before = begin + np.where(begins < 0, away, 0) << e, begin + np.where(begins <= 0, away, 0) << e
    reached, follows = begins <= bound[:, None], begins > -bound[:, None]
    # x m >= b; and (x - 1) m < b, which is (1 - x) m >= 1 - b
    for x, b, there in ((begins, at, reached), (1 - begins, 1 - before, follows)):
        quotient = b // np.where(x == 0, 1, x)
        up = quotient + (quotient * x != b)
        least = np.maximum(least, np.where(there & (x > 0), up, 0).max(axis=1, initial=0))
        last = np.minimum(last, np.where(there & (x < 0), quotient, 2**40).min(axis=1, initial=2**40))
        last = np.where((there & (x == 0) & (b > 0)).any(axis=1), -1, last)
    return least, last


SUMS = ("t0", "t1", "t2", "t3", "t4", "t5", "t6", *(f"s{n}" for n in range(12)), "ra")
WEIGHTS, PIXELS = ("a2", "a3", "a4", "a5"), ("a6", "a7")
FRAME = 96
REACH = 2047  # largest offset of a load, in bytes


@dataclass(frozen=True)
class Dot:
    """A micro-kernel. Words of pixels lie at steps of `spacing` bytes, those of one pixel at `step`.

    `rows`: a list has the begins of a window's rows; else a window is one row. `started`: sums have start values; else
    these are part of the rounding, and the first word of one row, which has at least two, begins the sums. `product`:
    as of `Ends`. `clamped`: bounds other than those of int8 are parameters, four times in a word.
    """

    encoding: str
    pixels: int
    channels: int
    spacing: int
    step: int
    rows: bool
    started: bool
    product: Product
    clamped: bool

    @property
    def name(self) -> str:
        places = f"{self.spacing}_{self.step}_{'rows_' if self.rows else ''}{'started_' if self.started else ''}"
        shape = f"{self.pixels}x{self.channels}_{places}"
        return f"eb_{self.encoding}_dot{shape}{self.product.name}{'_clamped' if self.clamped else ''}"

    @property
    def first(self) -> int:
        """Words of a row that are summed before the loop."""
        return int(not (self.rows or self.started))

    @property
    def base(self) -> int:
        """The pixel that the pointer points to."""
        return (self.pixels - 1) // 2

    @property
    def serves(self) -> bool:
        """Whether sums fit the registers, and offsets of pixels the loads."""
        far = (self.pixels - 1 - self.base) * self.spacing
        return self.pixels * self.channels <= len(SUMS) and far <= REACH and self.step <= REACH

    @property
    def order(self) -> list[int]:
        """Pixels in the order of their loads: last the one whose load advances the pointer."""
        return [p for p in range(self.pixels) if p != self.base] + [self.base]


PARAMETERS = {
    False: ("const int8_t *x", "const int32_t *w", "int8_t *y", "int32_t words", "int32_t blocks", "int32_t step"),
    True: ("const int8_t *const *rows", "const int32_t *w", "int8_t *y", "int32_t words", "int32_t blocks",
           "int32_t step", "int32_t count", "int32_t at"),
}  # fmt: skip
KEPT = ("rows", "y", "words", "blocks", "step", "count", "at", "low4", "high4")  # parameters, in the frame
SLOTS = {name: 52 + 4 * at for at, name in enumerate(KEPT)} | {"x": 52}


def _sum(d: Dot, pixel: int, channel: int) -> str:
    return SUMS[pixel * d.channels + channel]


def products(d: Dot, name: str = "cv.sdotsp.b") -> list[str]:
    """Instructions of the products of a word of taps."""
    if d.pixels == 1:
        code = [f"cv.lw a6, (a0), {d.step}"]
        code += [f"cv.lw {WEIGHTS[c]}, (a1), 4" for c in range(min(2, d.channels))]
        for c in range(d.channels):
            code += [f"cv.lw {WEIGHTS[(c + 2) % 4]}, (a1), 4"] if c + 2 < d.channels else []
            code.append(f"{name} {_sum(d, 0, c)}, a6, {WEIGHTS[c % 4]}")
        return code
    code = [f"cv.lw {WEIGHTS[c]}, (a1), 4" for c in range(d.channels)]
    loads = []
    for n, p in enumerate(d.order):
        register, offset = PIXELS[n % 2], (p - d.base) * d.spacing
        loads.append(f"lw {register}, {offset}(a0)" if p != d.base else f"cv.lw {register}, (a0), {d.step}")
    code += loads[:2]
    for n, p in enumerate(d.order):
        code += [f"{name} {_sum(d, p, c)}, {PIXELS[n % 2]}, {WEIGHTS[c]}" for c in range(d.channels)]
        code += loads[n + 2 : n + 3]
    return code


def _starts(d: Dot) -> list[str]:
    if not d.started:
        return [] if d.first else [f"li {v}, 0" for v in SUMS[: d.pixels * d.channels]]
    code = [f"cv.lw {_sum(d, 0, c)}, (a1), 4" for c in range(d.channels)]
    return code + [f"mv {_sum(d, p, c)}, {_sum(d, 0, c)}" for p in range(1, d.pixels) for c in range(d.channels)]


def _taps(d: Dot) -> list[Part]:
    body: list[Part] = list(products(d))
    if not d.rows:
        first = products(d, "cv.dotsp.b") if d.first else []
        head = [f"lw a0, {SLOTS['x']}(sp)", *first, f"lw a2, {SLOTS['words']}(sp)"]
        return [*head, *_turns(0, "a2", "words", body)]
    row = ["cv.lw a0, (a2), 4", f"lw a7, {SLOTS['words']}(sp)", "sw a2, 88(sp)", "add a0, a0, a3"]
    ends = ["lw a2, 88(sp)", f"lw a3, {SLOTS['at']}(sp)"]
    head = [f"lw a7, {SLOTS['count']}(sp)", f"lw a2, {SLOTS['rows']}(sp)", f"lw a3, {SLOTS['at']}(sp)"]
    return [*head, *_turns(1, "a7", "rows", [*row, *_turns(0, "a7", "words", body), *ends])]


def _turns(number: int, register: str, named: str, body: list[Part]) -> list[Part]:
    padding = ["nop"] * max(0, 3 - len(body))
    return hardware_loop(number, register, named, [*body, *padding])


def _results(d: Dot) -> list[str]:
    """Instructions that rescale all sums, channel by channel."""
    code = list[str]()
    for c in range(d.channels):
        code += factors_into(d.product)
        for p in range(d.pixels):
            code += result(_sum(d, p, c), d.product)
    return code


def factors_into(p: Product) -> list[str]:
    """Load a channel's factors from a1: m or low and high to a2 and a3, r to a4, s to a5."""
    registers = ["a2", *(["a3"] if p.way != "high" else []), "a4", "a5", *(["a0"] if p.away else [])]
    return [f"cv.lw {r}, (a1), 4" for r in registers]


def result(v: str, p: Product) -> list[str]:
    """Rescale the sum in register v; clobbers a6 and a7."""
    match p.way:
        case "two":
            code = [f"mul a6, {v}, a2", f"srai a6, a6, {p.bits}", f"cv.mac a6, {v}, a3"]
        case "mid":
            code = [f"srai a6, {v}, {p.dropped}", "mul a6, a6, a2", f"srai a6, a6, {p.bits}", f"cv.mac a6, {v}, a3"]
        case _:
            code = [f"slli a6, {v}, {p.bits}", "mulh a6, a6, a2"]
    code += [f"srai a7, {v}, 31", "cv.mac a6, a7, a0"] if p.away else []
    return [*code, "cv.addNr a6, a4, a5", f"cv.clip {v}, a6, 8"]


def _stores(d: Dot) -> list[str]:
    code = [f"lw a2, {SLOTS['y']}(sp)", f"lw a3, {SLOTS['step']}(sp)"]
    code += [f"lw a4, {SLOTS['low4']}(sp)", f"lw a5, {SLOTS['high4']}(sp)"] if d.clamped else []
    code += [f"addi a7, a2, {d.channels}", f"sw a7, {SLOTS['y']}(sp)"]
    for p in range(d.pixels):
        for first in range(0, d.channels, 4):
            four = [_sum(d, p, c) for c in range(first, min(first + 4, d.channels))]
            padded = four + [four[-1]] * (4 - len(four))
            code += [f"cv.packlo.b a6, {padded[1]}, {padded[0]}", f"cv.packhi.b a6, {padded[3]}, {padded[2]}"]
            code += ["cv.max.b a6, a6, a4", "cv.min.b a6, a6, a5"] if d.clamped else []
            if len(four) == 4:
                code.append("cv.sw.by a6, (a2), a3" if d.channels == 4 else f"sw a6, {first}(a2)")
            else:
                for i in range(len(four)):
                    code += [f"sb a6, {first + i}(a2)", *(["srli a6, a6, 8"] if i + 1 < len(four) else [])]
                code.append("add a2, a2, a3")
    return code


@cache
def function(d: Dot) -> Function:
    """The micro-kernel as a whole function, in the target's encoding."""
    kinds = [*PARAMETERS[d.rows], *(["int32_t low4", "int32_t high4"] if d.clamped else [])]
    names = [k.split("*")[-1].split(" ")[-1] for k in kinds]
    registers = dict(zip(names, (f"a{n}" for n in range(8)), strict=False))
    head: list[Part] = [*rv_frame(FRAME)[0]]
    head += [f"sw {r}, {SLOTS[n]}(sp)" for n, r in registers.items() if n != "w"]
    for i, n in enumerate(names[8:]):
        head += [f"lw t0, {FRAME + 4 * i}(sp)", f"sw t0, {SLOTS[n]}(sp)"]
    after = [f"lw a2, {SLOTS['blocks']}(sp)", "addi a2, a2, -1", f"sw a2, {SLOTS['blocks']}(sp)", "bnez a2, 1b"]
    block: tuple[Part, ...] = ("1:", *_starts(d), *_taps(d), *_results(d), *_stores(d), *after)
    parts = (*head, Loop("blocks", block), *rv_frame(FRAME)[1])
    remark = (
        f"{d.pixels} pixels whose words lie {d.spacing} bytes apart, in blocks of {d.channels} channels; results of a "
        "pixel lie `step` behind those of the one before. w: start values, words of weights and factors by blocks."
    )
    return printed(d.encoding, d.name, kinds, remark, parts)


WAITS = {"mulh": 4}  # cycles of an instruction beyond one
BRANCH = 2


def cycles(d: Dot, words: float, rows: float, blocks: float) -> float:
    """Cycles of a call on CV32E40P: instructions, `mulh` and branches (hal/cycles/cv32e40p.yaml)."""
    f = function(d)
    code = f.executed(words=words - d.first, rows=rows, blocks=blocks)
    high = d.pixels * d.channels * WAITS["mulh"] if d.product.way == "high" else 0
    return code + blocks * (high + BRANCH) + 4


BLOCKS = ((5, 4), (4, 4), (3, 4), (2, 4), (1, 16), (1, 12), (1, 8), (1, 4))  # pixels and channels
FEW_WORDS = 8  # words of a window's row, below which rows are gathered instead of read one by one
CALL = (
    30  # cycles of C around a micro-kernel, with its arguments; this and those below: from `edgebuild verify --layers`
)
ROW_OF_CALL = 4  # cycles of a row's pointer in the list
PER_ROW, PER_WORD_COPIED, PER_PIECE, PER_WORD_GATHERED = 60, 4.5, 14, 4.0


@dataclass(frozen=True)
class Operand:
    """How a micro-kernel reads pixels.

    A window has `count` pieces of neighbouring taps, of `words` words each. `copied`: rows are copied to lines.
    `gathered`: words of several pixels are copied side by side. `lines`: number of lines in the scratch, of `line`
    bytes each.
    """

    count: int
    words: int
    bytes: int  # bytes of a piece
    copied: bool
    gathered: bool
    lines: int = 0
    line: int = 0


def _whole(n: int) -> int:
    return -(-n // 4) * 4


def operands(s: Sums, form: Form) -> Iterator[Operand]:
    """The operand layouts that the layer allows."""
    (_, w, c), (fh, fw) = s.size, s.window
    near = s.dilation[1] == 1 or fw == 1
    size = fw * c if near else c
    count, each = (fh if near else fh * fw), _whole(size) // 4
    if s.pointwise and c % 4 == 0:
        yield Operand(1, c // 4, c, False, False)
        return
    # Words that begin with the last tap of a row read beyond it: only lines have room for that.
    copied = s.padded_columns or size % 4 > 0
    lines = fh if form.rolled else (fh - 1) * s.dilation[0] + 1
    columns = max(s.pad[1] + w, (s.out[1] - 1) * s.stride[1] + (fw - 1) * s.dilation[1] + 1)
    line = _whole(columns * c) + 4
    room = (lines if copied else 0, line)
    if near:
        yield Operand(count, each, size, copied, False, *room)
    if not near or each < FEW_WORDS:
        yield Operand(count, each, size, copied, True, *room)


def stream(s: Sums, e: Ends, channels: int, count: int, started: bool) -> Array:
    """The stream by blocks of channels: start values (if any), weights, factors. The last block repeats some."""
    k = s.out[2]
    order = [*range(k // channels * channels), *(range(k - channels, k) if k % channels else ())]
    taps = s.weights.reshape(k, count, -1)[order]
    taps = np.pad(taps, ((0, 0), (0, 0), (0, -taps.shape[2] % 4)))
    packed = np.ascontiguousarray(taps).view("<i4").reshape(len(order) // channels, channels, -1)
    start = s.start[order].reshape(-1, channels)[:, : channels * started]
    factors = e.words[order].reshape(len(start), -1)
    return words(np.concatenate([start, packed.transpose(0, 2, 1).reshape(len(start), -1), factors], axis=1))


def convolution(encoding: str, block: tuple[int, int], s: Sums, form: Form) -> Kernel | None:
    """The kernel of fewest cycles over all operand layouts, for so many pixels and channels at a time."""
    c, (oh, ow, k), wanted = s.size[2], s.out, block[0]
    e = (raw_ends(s) or ends(s)) if s.weights.shape[3] == c and min(s.pad) >= 0 else None
    line = (ow if form.rolled else oh * ow) if s.pointwise and c % 4 == 0 else ow
    if e is None or line < wanted or (wanted == 1 and line > 1) or (k < block[1] and block != _smallest(wanted)):
        return None
    pixels, channels = wanted, min(block[1], k)
    candidates = [_kernel(encoding, pixels, channels, s, e, form, o) for o in operands(s, form)]
    return min((m for m in candidates if m is not None), key=lambda m: m.estimate, default=None)


def _smallest(pixels: int) -> tuple[int, int]:
    return min(b for b in BLOCKS if b[0] == pixels)


def _kernel(
    encoding: str, pixels: int, channels: int, s: Sums, e: Ends | None, form: Form, o: Operand
) -> Kernel | None:
    (h, _, c), (oh, ow, k) = s.size, s.out
    direct = s.pointwise and c % 4 == 0
    spacing, step = (4, 4 * pixels) if o.gathered else (s.stride[1] * c if not direct else c, 4)
    clamped = not s.full_range
    rows, words_of_row = not (direct or o.gathered), o.words * (o.count if o.gathered else 1)
    if e is raw_ends(s) and not rows and words_of_row < 2:
        e = ends(s)
    if e is None:
        return None
    started = e is not raw_ends(s)
    d = Dot(encoding, pixels, channels, spacing if pixels > 1 else 0, step, rows, started, e.product, clamped)
    out_rows = 1 if form.rolled else oh
    if not d.serves or h * s.size[1] * c >= 2**31:
        return None
    count = (ow if form.rolled else oh * ow) if direct else ow
    calls = (1 if direct else out_rows) * -(-count // pixels)
    blocks = [k // channels, *([1] if k % channels else [])]
    turns = {"words": words_of_row, "rows": o.count}
    # Unaligned words take two accesses; with an odd number of bytes in a pixel, three words of four are unaligned.
    across = 0 if o.gathered or direct else {0: 0, 2: 0.5}.get(spacing % 4, 0.75) * pixels * o.words * o.count
    work = (
        sum(across * b for b in blocks)
        + sum(cycles(d, blocks=b, **turns) + CALL for b in blocks)
        + (0 if direct else ROW_OF_CALL * o.count)
    )
    bring = pixels * o.count * (PER_PIECE + PER_WORD_GATHERED * o.words) if o.gathered else 0
    copies = o.count if form.rolled else h
    copying = copies * (PER_ROW + PER_WORD_COPIED * o.line / 4) if o.copied else 0
    weights = stream(s, e, channels, o.count, d.started)
    padded = s.padded_rows or s.padded_columns
    lines = o.lines * o.line if o.copied else 0
    zeros = o.line if s.padded_rows else 0
    columns = 4 * pixels * o.count * o.words if o.gathered else 0
    shape = sums_shape(s, form) | {
        "dot": d.name, "direct": direct, "gathered": o.gathered, "copied": o.copied, "clamped": clamped,
        "pixels": pixels, "count": count, "blocks": blocks[0], "tail": len(blocks) > 1,
        "tail_at": blocks[0] * weights.shape[1], "last_k": k - channels, "words": o.words,
        "turns": words_of_row - d.first, "pieces": o.count, "across": o.count // s.window[0],
        "lines": o.lines, "line": o.line, "zeros_at": lines, "columns_at": lines + zeros,
        "padded_rows": s.padded_rows, "outside": o.copied or s.padded_rows,
        "base": d.base if o.gathered else d.base * spacing,
        "row_bytes": min(s.size[1], (ow - 1) * s.stride[1] + (s.window[1] - 1) * s.dilation[1] + 1 - s.pad[1]) * c,
        "before": s.pad[1] * c,
    }  # fmt: skip
    scalars: dict[str, int | float] = {"x_zero": s.x_zero} if shape["outside"] and padded else {}
    shape["padded"] = bool(scalars)
    if clamped:
        scalars |= {name: _four(bound) for name, bound in (("low4", s.low), ("high4", s.high))}
    note = f"start values, weights and factors by {channels} channels"
    return Kernel(
        "xpulp/kernels.c:conv", s.stem, shape, (Constant("w", weights.ravel(), note),), scalars,
        scratch=lines + zeros + columns, variant=f"xpulp {pixels} pixels x {channels} channels",
        estimate=calls * (work + bring) + copying + 60, traffic=Traffic(passes=calls),
    )  # fmt: skip


def _four(bound: int) -> FourBytes:
    word = (bound & 0xFF) * 0x01010101
    return FourBytes(word - (word >> 31 << 32))
