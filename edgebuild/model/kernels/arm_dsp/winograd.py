"""Winograd's convolutions for Armv7E-M with DSP: 16 products instead of 36 for four outputs of a window of 3x3.

F(2x2, 3x3) of Lavin and Gray, "Fast Algorithms for Convolutional Networks" (2016), section 4.1. Weights are transformed
when the model is compiled, with a G twice as large, so that they are whole numbers. Every sum is then four times the
convolution's. That is exact, so the results are the reference's, bit by bit.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ....base.target import DUAL_ISSUE, SLOW_FLASH
from ...ir import Array
from ...ops.base import Constant, Form, Kernel, Sums, Traffic
from ...ops.spatial import computed_once, sums_shape, words
from ..micro import Function, Loop, Part, framed, moved
from .dot import FINISHES, Finish
from .weight_words import factors

TWICE_G = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]])
PLACES = 16  # elements of a tile of 4x4, each of which has its own matrix of channels
TILES = 4  # tiles that share a pair of words of weights in registers
ROOM = 64  # channels of the tiles that are transformed at a time with slow flash: weights serve them all


REGISTERS = tuple(f"r{n}" for n in range(4, 12))
SUMS = REGISTERS[:4], REGISTERS[4:]  # sums of two tiles each, for both channels


def _in_place(a: str, b: str, c: str, d: str, third: str) -> list[str]:
    """A row or a column of the transformation of four numbers: in place but for the third, which goes to `third`."""
    return [f"ssub16 {third}, {c}, {b}", f"ssub16 {a}, {a}, {c}", f"ssub16 {d}, {b}, {d}", f"sadd16 {b}, {b}, {c}"]


def tile() -> Function:
    """Transform a tile. Loads are single, because a load after a load takes one cycle (Cortex-M4 TRM, 3.3.2)."""
    body: list[Part] = ["1:"]
    for row in range(4):
        body += ["add r12, r2, lr", "ldr r4, [r2]", "ldr r5, [r2, lr]", "ldr r6, [r2, lr, lsl #1]"]
        body += ["ldr r7, [r12, lr, lsl #1]", "add r2, r2, r3" if row < 3 else "sub r2, r2, r3, lsl #1"]
        body += [f"sxtb16 r{8 + i}, r{4 + i}" for i in range(4)] + _in_place("r8", "r9", "r10", "r11", "r12")
        body += [f"str {r}, [sp, #{16 * row + 4 * i}]" for i, r in enumerate(("r8", "r9", "r12", "r11"))]
        body += [f"sxtb16 r{4 + i}, r{4 + i}, ror #8" for i in range(4)] + _in_place("r4", "r5", "r6", "r7", "r12")
        body += [f"str {r}, [sp, #{64 + 16 * row + 4 * i}]" for i, r in enumerate(("r4", "r5", "r12", "r7"))]
    body.append("sub r2, r2, r3")
    for half in (0, 1):
        for column in range(4):
            body += [f"ldr r{4 + row}, [sp, #{64 * half + 16 * row + 4 * column}]" for row in range(4)]
            body += ["add r12, r0, r1", *_in_place("r4", "r5", "r6", "r7", "r8"), "str r4, [r0]", "str r5, [r0, r1]"]
            body += ["str r8, [r0, r1, lsl #1]", "str r7, [r12, r1, lsl #1]", "add r0, r0, r1, lsr #2"]
        body += ["sub r0, r0, r1", "add r0, r0, #16"]
    body += ["ldr r12, [sp, #128]", "add r2, r2, #4", "cmp r2, r12", "bne 1b"]
    return framed(
        "eb_winograd_tile", "int32_t *to, int32_t place, const int8_t *from, int32_t line, int32_t c",
        "The 4x4 inputs of a tile of c channels, a multiple of four, as the transformation has them: at each of 16 "
        "places, which are `place` bytes apart, words of bytes 0, 2 and 1, 3 of each four channels, to every fourth "
        "word. `line`: from a row to the next. The rows of both halves stand on the stack before they are transformed "
        "by columns.",
        REGISTERS,
        ("sub sp, sp, #132", moved(132), "ldr lr, [sp, #168]", "lsl r1, r1, #2", "add r4, r2, lr", "str r4, [sp, #128]",
         Loop("fours", tuple(body)), "add sp, sp, #132", moved(-132)),
    )  # fmt: skip


def _product(at: int, v: str, begins: bool) -> str:
    operands = f"{v}, {('r2', 'r3')[at % 2]}, {('r12', 'lr')[at // 2]}"
    return f"smuad {operands}" if begins else f"smlad {operands}, {v}"


def _step(begins: bool = False) -> list[str]:
    """Two taps of four tiles with two channels. `begins`: they are the first, so sums need not be zero before them."""
    code = ["ldr r2, [r1], #4", "ldr r3, [r1], #4"]
    for some in SUMS:
        code += ["ldr r12, [r0], #4", "ldr lr, [r0], #4", *(_product(i, v, begins) for i, v in enumerate(some))]
    return code


def _dual_step(begins: bool = False, last: bool = False) -> list[str]:
    """A step for a core that issues two instructions and waits two cycles for a load (hal/cycles/cortex-m7.yaml).

    The words of the first products are in r2, r3, r12 and lr; those of the next step are loaded in between.
    `last`: r0 is compared with the end before lr is loaded.
    """
    code = list[str]()
    for tiles, some in enumerate(SUMS):
        for i, v in enumerate(some):
            code.append(_product(i, v, begins))
            code += ["ldr r12, [r0], #4"] if i == 1 else []
            code += ["ldr r2, [r1], #4"] if i == 2 and tiles else []
        code += ["ldr lr, [sp, #4]"] if tiles and last else []
        code += ["ldr r3, [r1], #4"] if tiles else []
        code += ["cmp r0, lr"] if tiles and last else []
        code.append("ldr lr, [r0], #4")
    return code


AT = {"group": 92, "groups": 96, "v_end": 100, "k": 104, "row": 108, "zero": 112, "unit": 116}  # bytes from sp


def _places(unroll: int, dual: bool) -> list[Part]:
    """Sums of all places for two channels."""
    step = _dual_step if dual else _step
    turns: list[Part] = [*step(True), "b 5f", Loop("turns", ("4:", *step())), "5:"]
    for n in range(unroll - 1):
        turns += _dual_step(last=n == unroll - 2) if dual else _step()
    if dual:
        return [
            "ldr r2, [r1], #4", "ldr r3, [r1], #4", "ldr r12, [r0], #4", "ldr lr, [r0], #4",
            "2: /* a place; r0 and r1 are two words ahead */", "str r1, [sp]", f"ldr r1, [sp, #{AT['group']}]",
            "add r1, r1, r0", "sub r1, r1, #4", "str r1, [sp, #4]", "ldr r1, [sp]", *turns, "bne 4b", "str r1, [sp]",
            "ldr r1, [sp, #12]", "stm r1!, {r4-r11}", "str r1, [sp, #12]", f"ldr r4, [sp, #{AT['v_end']}]",
            "ldr r1, [sp]", "sub r5, r0, #8", "cmp r5, r4", "bne 2b", "sub r1, r1, #8",
        ]  # fmt: skip
    return [
        "2: /* a place */", "str r1, [sp]", "ldr r12, [sp, #12]", f"ldr r2, [sp, #{AT['groups']}]",
        "str r12, [sp, #8]", "add r12, r12, #32", "strd r12, r2, [sp, #12]", "3: /* a group of tiles */",
        f"ldr lr, [sp, #{AT['group']}]",
        "ldr r1, [sp]", "add lr, lr, r0", "str lr, [sp, #4]", *turns, "ldr lr, [sp, #4]", "cmp r0, lr", "bne 4b",
        "ldr r12, [sp, #8]", "ldr lr, [sp, #16]", "stm r12!, {r4-r11}", "add r12, r12, #480", "subs lr, lr, #1",
        "str r12, [sp, #8]", "str lr, [sp, #16]", "bne 3b", f"ldr r12, [sp, #{AT['v_end']}]", "cmp r0, r12",
        "bne 2b",
    ]  # fmt: skip


def _tile_of_results() -> list[str]:
    """The results of a tile of 2x2 in r4, r6 and, below them, r5, r7, from the sums of its places."""
    code = list[str]()
    for column in range(4):
        up, down = f"r{4 + 2 * column}", f"r{5 + 2 * column}"
        code += [f"ldr {r}, [r0, #{32 * (4 * i + column)}]" for i, r in enumerate(("r2", "r3", "r12", "lr"))]
        code += ["add r2, r2, r3", "sub r3, r3, r12", f"add {up}, r2, r12", f"sub {down}, r3, lr"]
    for a, b, c, d in (REGISTERS[::2], REGISTERS[1::2]):
        code += [f"add {a}, {a}, {b}", f"sub {b}, {b}, {c}", f"add {a}, {a}, {c}", f"sub {b}, {b}, {d}"]
    return code


def _results(finish: Finish) -> list[Part]:
    """Rescale and store results of two channels of all tiles."""
    bound = AT["unit"] + 4 * finish.unit
    tile: list[Part] = ["7: /* a tile */", *_tile_of_results(), "ldr r8, [sp, #20]", "ldr r9, [sp, #24]"]
    tile += ["ldr r10, [sp, #28]", f"ldr r11, [sp, #{AT['zero']}]"]
    for v in SUMS[0]:
        tile.append(f"add {v}, r8, {v}, asr #2 /* four times the sum of products */")
        tile += finish.scaled([v], ["r9"], ["r10"], "r11", "")[: None if not finish.clamped else -1]
    if finish.clamped:
        tile += [f"ldr r2, [sp, #{bound}]", f"ldr r3, [sp, #{bound + 4}]"]
        tile += [line for v in SUMS[0] for limit, than in (("r2", "lt"), ("r3", "gt"))
                 for line in (f"cmp {v}, {limit}", f"it {than}", f"mov{than} {v}, {limit}")]  # fmt: skip
    tile += ["ldr r2, [r1], #4", "ldr r3, [sp, #36]", f"ldr r8, [sp, #{AT['k']}]", f"ldr r12, [sp, #{AT['row']}]"]
    tile += ["ldr lr, [sp, #16]", "add r2, r2, r3", "add r12, r12, r2", "strb r4, [r2]", "strb r6, [r2, r8]"]
    tile += ["strb r5, [r12]", "strb r7, [r12, r8]", "subs lr, lr, #1", "str lr, [sp, #16]"]
    tile += ["lsl lr, lr, #30 /* zero behind the last tile of a group; the flags stay */", "add r0, r0, #8", "beq 8f"]
    tile += ["cmp lr, #0", "it eq", "addeq r0, r0, #480", "b 7b"]
    second = ["ldr r12, [r1], #4"] if finish.two else [f"ldr r12, [sp, #{AT['unit']}]", "ror r12, r12, r3"]
    return [
        "6: /* results of a channel */", "ldr r2, [r1], #4", "ldr r3, [r1], #4", *second, "str r2, [sp, #20]",
        "strd r3, r12, [sp, #24]", "ldr r12, [sp, #36]", f"ldr r2, [sp, #{AT['groups']}]", "ldr r0, [sp, #48]",
        "str r1, [sp, #32]", "and r12, r12, #1", "add r0, r0, r12, lsl #2", "lsl r2, r2, #2", "ldr r1, [sp, #44]",
        "str r2, [sp, #16]", Loop("tiles", tuple(tile)), "8:", "ldr r12, [sp, #36]", "ldr r1, [sp, #32]",
        f"ldr lr, [sp, #{AT['k']}]", "add r12, r12, #1", "str r12, [sp, #36]", "tst r12, #1", "bne 6b",
        "cmp r12, lr", "bne 1b",
    ]  # fmt: skip


def products(unroll: int, dual: bool, end: str) -> Function:
    """The function for all channels. `dual`: for dual-issue cores. `unroll`: steps of two taps that are written out."""
    finish = Finish(end)
    more = ["unit"] * finish.unit + ["low", "high"] * finish.clamped
    return framed(
        f"eb_winograd{unroll}_{'dual_' if dual else ''}{end}",
        "const int32_t *v, const int32_t *w, int8_t *const *tiles, int32_t *sums, int32_t group, int32_t groups, "
        "const int32_t *v_end, int32_t k, int32_t row, int32_t zero" + "".join(f", int32_t {name}" for name in more),
        "Results of groups of four tiles for k channels. v: for each of 16 places, by groups, words of two taps of "
        "four tiles. w: for each two channels by place the words of both, then for each the start value and "
        f"{'two factors' if finish.two else 'a factor'}. The results of tile i go to tiles[i], those of its second row "
        "`row` behind. sums: room for 16 places of all tiles and two channels. group: bytes of v for a group"
        f"{', of which there is one' if dual else ''}. r4, r6, r8, r10 sums of the four tiles for the first channel, "
        "the others for the second.",
        REGISTERS,
        ("sub sp, sp, #56", moved(56),
         "/* sp: 0 w of this place, 4 end of the group, 8 and 12 where its sums and those of the place go, */",
         "/* 16 groups or tiles, 20 start value, 24 two factors, 32 w, 36 channel, 40 v, 44 tiles, 48 sums; */",
         f"/* {', '.join(f'{at} {n}' for n, at in AT.items() if n != 'unit')} {', '.join(('', *more))} */",
         "str r0, [sp, #40]", "strd r2, r3, [sp, #44]", "mov r12, #0", "str r12, [sp, #36]", "1: /* two channels */",
         "ldr r0, [sp, #40]", "ldr r12, [sp, #48]", "str r12, [sp, #12]", *_places(unroll, dual), *_results(finish),
         "add sp, sp, #56", moved(-56)),
    )  # fmt: skip


FUNCTIONS = {"eb_winograd_tile": tile} | {
    f"eb_winograd{unroll}_{'dual_' * dual}{end}": partial(products, unroll, dual, end)
    for unroll in (2, 4) for dual in (False, True) for end in FINISHES
}  # fmt: skip


def transformed(weights: Array) -> Array:
    """4 G g G^T of weights K x 3 x 3 x C: K x 4 x 4 x C, of at most 1,152 in absolute value."""
    return np.einsum("ia,kabc,jb->kijc", TWICE_G, weights.astype(np.int64), TWICE_G)


@computed_once
def stream(s: Sums) -> Array:
    """The stream by pairs of channels: by place the words of two taps of both, then start value and factors of each."""
    k = s.out[2]
    fours = transformed(s.weights).reshape(k // 2, 2, PLACES, -1, 4)[..., [0, 2, 1, 3]]
    halves = fours.reshape(k // 2, 2, PLACES, -1, 2, 2) & 0xFFFF
    packed = (halves[..., 0] | halves[..., 1] << 16).transpose(0, 2, 3, 4, 1).reshape(k // 2, -1)
    ends = np.concatenate([s.start[:, None], factors(s).words], axis=1).reshape(k // 2, -1)
    return words(np.concatenate([packed, ends], axis=1))


def _serves(s: Sums, form: Form) -> bool:
    """Whether flash does not count, outputs come in 2x2 tiles, channels in words, and four times a sum fits int32."""
    (oh, ow, k), c = s.out, s.size[2]
    plain = s.window == (3, 3) and s.stride == (1, 1) and s.dilation == (1, 1) and s.weights.shape[3] == c
    whole = c % 4 == 0 and k % 2 == 0 and min(oh, ow) >= 2
    exact = s.finish != "sums" and bool(s.bound.max() < 2**29)
    return form.wish.optimize == "speed" and not form.rolled and plain and whole and exact


def winograd(s: Sums, form: Form) -> Kernel | None:
    """The kernel: 3.6 times the weights' flash for about two thirds of the time; the scratch holds the tiles."""
    if not _serves(s, form):
        return None
    c, (oh, ow, _) = s.size[2], s.out
    across, tiles = -(-ow // 2), -(-ow // 2) * -(-oh // 2)
    groups = min(-(-tiles // TILES), max(1, min(4, ROOM // c)) if SLOW_FLASH in form.core else 1)
    at_once, padded = TILES * groups, s.padded_rows or s.padded_columns
    inputs, sums, pointers = 2 * PLACES * c * at_once, 4 * PLACES * 2 * at_once, 4 * at_once  # bytes
    shape = sums_shape(s, form) | {
        **factors(s).shape, "across": across, "tiles": tiles, "at_once": at_once, "groups": groups,
        "group": 2 * c, "place": 2 * c * groups, "sums_at": inputs // 4, "pointers_at": (inputs + sums) // 4,
        "patch_at": inputs + sums + pointers, "unroll": 4 if c % 8 == 0 else 2, "dual": DUAL_ISSUE in form.core,
        "bounds": s.finish.endswith("_clamped"),
        "padded": padded, "padded_rows": s.padded_rows, "padded_columns": s.padded_columns,
    }  # fmt: skip
    scalars = {"y_zero": s.y_zero, **factors(s).scalars, **s.bounds(bool(shape["bounds"]))}
    scalars = {"x_zero": s.x_zero, **scalars} if padded else scalars
    constant = Constant("w", stream(s).ravel(), "transformed weights, start values and factors by pairs of channels")
    return Kernel(
        "arm_dsp/windows.c:winograd", s.stem, shape, (constant,), scalars,
        scratch=inputs + sums + pointers + (PLACES * c if padded else 0), variant="dsp winograd",
        estimate=_instructions(s, tiles, groups),
        pace=1 + 0.12 / groups if SLOW_FLASH in form.core else 0.91,  # against TWO_PIXELS (`verify --cycles`)
        traffic=Traffic(passes=-(-tiles // at_once)),
    )  # fmt: skip


def _instructions(s: Sums, tiles: int, groups: int) -> float:
    """Instructions of a call: all tiles of a last pass are computed, some more than once."""
    c, k, at_once = s.size[2], s.out[2], TILES * groups
    computed = -(-tiles // at_once) * at_once
    result = 79 + 4 * s.finish.startswith("signed") + 26 * s.finish.endswith("_clamped")
    products = PLACES * ((7 + (0.375 if c % 8 == 0 else 0.75)) * c + 15 + 8 / groups) / TILES
    patched = computed - tiles + _at_borders(s)
    return computed * (100 + 61 * c + k * (products / 2 + result)) + patched * 16 * (10 + 2 * c)


def _at_borders(s: Sums) -> int:
    """Tiles that read padding."""
    counts = []
    for size, out, pad in zip(s.size[:2], s.out[:2], s.pad, strict=True):
        starts = [min(2 * i, out - 2) - pad for i in range(-(-out // 2))]
        counts.append((len(starts), sum(0 <= at <= size - 4 for at in starts)))
    (rows, inner_rows), (columns, inner_columns) = counts
    return rows * columns - inner_rows * inner_columns
