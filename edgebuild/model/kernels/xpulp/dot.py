"""Micro-kernels for XpulpV2: sums of int8 over all channels, four products an instruction.

A `Dot` sums `pixels` x `channels` at once. For each word of four taps it loads a word of weights for each channel and a
word of each pixel, one ahead of its products, so that none waits for a load. The stream of weights holds for each block
of channels: start values; for each word of taps those of the channels; then each channel's factors (`ends.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..blocks.two_in_one import rv_frame
from ..micro import Function, Loop, Part
from .encoding import all_encoded, hardware_loop, printed
from .ends import Product

SUMS = ("t0", "t1", "t2", "t3", "t4", "t5", "t6", *(f"s{n}" for n in range(12)), "ra")
WEIGHTS, PIXELS = ("a2", "a3", "a4", "a5"), ("a6", "a7")
FRAME = 96
REACH = 2047  # of the offset of a load


@dataclass(frozen=True)
class Dot:
    """Words of pixels lie `spacing` bytes from each other, and those of a pixel `step`.

    `rows`: of a window begin where a list says; else the pixels are one row. `started`: sums have start values; else
    these are part of the rounding, and the first word of one row, which has at least two, begins the sums. `product`:
    as of `Ends`.
    `clamped`: bounds other than those of int8 are parameters, four times in a word.
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
        """The pixel that the pointer has."""
        return (self.pixels - 1) // 2

    @property
    def serves(self) -> bool:
        """Sums fit the registers, and pixels the reach of loads."""
        far = (self.pixels - 1 - self.base) * self.spacing
        return self.pixels * self.channels <= len(SUMS) and far <= REACH and self.step <= REACH

    @property
    def order(self) -> list[int]:
        """Pixels as they are loaded: the one last whose load moves the pointer."""
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
    """Of a word of taps."""
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
    """Of all sums, channel by channel."""
    code = list[str]()
    for c in range(d.channels):
        code += factors_into(d.product)
        for p in range(d.pixels):
            code += result(_sum(d, p, c), d.product)
    return code


def factors_into(p: Product, away: str = "a0") -> list[str]:
    """A channel's factors, from where a1 points to: m or low and high in a2 and a3, r in a4, s in a5."""
    registers = ["a2", *(["a3"] if p.way != "high" else []), "a4", "a5", *([away] if p.away else [])]
    return [f"cv.lw {r}, (a1), 4" for r in registers]


def result(v: str, p: Product) -> list[str]:
    """The sum in register v becomes a result; a6 and a7 are lost."""
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
    """The whole function, as the target's assembler takes it."""
    kinds = [*PARAMETERS[d.rows], *(["int32_t low4", "int32_t high4"] if d.clamped else [])]
    names = [k.split("*")[-1].split(" ")[-1] for k in kinds]
    registers = dict(zip(names, (f"a{n}" for n in range(8)), strict=False))
    head: list[Part] = [".option push", ".option norvc", ".balign 4", *rv_frame(FRAME)[0]]
    head += [f"sw {r}, {SLOTS[n]}(sp)" for n, r in registers.items() if n != "w"]
    for i, n in enumerate(names[8:]):
        head += [f"lw t0, {FRAME + 4 * i}(sp)", f"sw t0, {SLOTS[n]}(sp)"]
    after = [f"lw a2, {SLOTS['blocks']}(sp)", "addi a2, a2, -1", f"sw a2, {SLOTS['blocks']}(sp)", "bnez a2, 1b"]
    block: tuple[Part, ...] = ("1:", *_starts(d), *_taps(d), *_results(d), *_stores(d), *after)
    parts = (*head, Loop("blocks", block), *rv_frame(FRAME)[1], ".option pop")
    remark = (
        f"{d.pixels} pixels whose words lie {d.spacing} bytes apart, in blocks of {d.channels} channels; results of a "
        "pixel lie `step` behind those of the one before. w: start values, words of weights and factors by blocks."
    )
    return printed(d.name, kinds, remark, all_encoded(parts, d.encoding))


WAITS = {"mulh": 4}  # cycles beyond one
BRANCH = 2


def cycles(d: Dot, words: float, rows: float, blocks: float) -> float:
    """Of a call, on CV32E40P: instructions, `mulh` and branches (hal/cycles/cv32e40p.yaml)."""
    f = function(d)
    code = f.executed(words=words - d.first, rows=rows, blocks=blocks)
    high = d.pixels * d.channels * WAITS["mulh"] if d.product.way == "high" else 0
    return code + blocks * (high + BRANCH) + 4
