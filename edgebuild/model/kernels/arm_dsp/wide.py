"""int16 values times int8 weights (TFLite's 16x8), if no sum can leave 32 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ...ir import Array, Graph, Op
from ...ops import elementwise, spatial
from ...ops.base import Constant, Kernel, Traffic, zero_of
from ...ops.spatial import words
from ..micro import Function, Loop, Part, Unrolled, pushed
from ..row import KernelLayer


def fits(op: Op, graph: Graph) -> bool:
    """Whether it is an int16 image, int8 weights, no zero points, and TFLite's 64-bit rounding by 17 bits or more."""
    (x, w), y = graph.operands(op)[:2], graph.result(op)
    types = (x.dtype, w.dtype, y.dtype) == ("int16", "int8", "int16") and w.data is not None
    if not types or not graph.arithmetic.fixed_point or zero_of(x) or not spatial.wide(op, graph):
        return False
    _, shift = spatial.multipliers(op, graph)
    return spatial.narrow(op, graph) and bool(((shift > -33) & (shift < -1)).all())


def ends(op: Op, graph: Graph) -> tuple[str, dict[str, int | float]]:
    """The suffix of functions for the result's bounds, and the scalars that they need."""
    y = graph.result(op)
    low, high = spatial.bounds(op, y)
    if (low, high) == (-(2**15), 2**15 - 1):
        return "", {"y_zero": zero_of(y)}
    return "_clamped", {"y_zero": zero_of(y), "low": low, "high": high}


def start(op: Op, graph: Graph) -> Array:
    (k,), bias = graph.result(op).shape[-1:], graph.operands(op)[2].data
    return np.zeros(k, np.int64) if bias is None else bias.astype(np.int64).ravel()


def rescaling(op: Op, graph: Graph) -> Array:
    """Two constants a channel, K x 2: M * 2^16 and -2^(32 - right), where right = -1 - shift."""
    mantissa, shift = (a.astype(np.int64) for a in spatial.multipliers(op, graph))
    return np.stack([mantissa << 16, -(2 ** (33 + shift))], axis=1)


def ended(sums: Sequence[str], factors: Sequence[tuple[str, str]], zero: str, bounds: Sequence[str]) -> list[str]:
    """Instructions that rescale sums by both constants of each, and clamp them to the bounds or to int16."""
    code = list[str]()
    for v, (first, second) in zip(sums, factors, strict=True):
        code += [f"smmul {v}, {v}, {first}", f"smmlsr {v}, {v}, {second}, {zero}"]
        for bound, than in zip(bounds, ("lt", "gt"), strict=False):
            code += [f"cmp {v}, {bound}", f"it {than}", f"mov{than} {v}, {bound}"]
        code += [] if bounds else [f"ssat {v}, #16, {v}"]
    return code


SAVED = ("r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "lr")
ODD = "/* an odd number of groups of four taps enters in the middle */"


def function(pixels: int, clamped: bool) -> Function:
    """Sums of int16 with weights of int8: two pixels by pairs of channels, or one by groups of four."""
    two, bounds = pixels == 2, ["low", "high"] if clamped else []
    x, y = (["x0", "x1"], ["y0", "y1"]) if two else (["x"], ["y"])
    names = [*x, "w", *y, f"{x[0]}_end", "blocks", "zero", *bounds]
    item = "int32_t" if two else "int16_t"
    kinds = [*(f"const {item} *" for _ in x), "const int32_t *", *("int16_t *" for _ in y), f"const {item} *"]
    kinds += ["int32_t "] * (len(names) - len(kinds))
    w, saved = ("r2", ("r0", "r1", "r3", *SAVED)) if two else ("r1", ("r0", "r2", *SAVED))
    kept = [n for n in names[:4] if f"r{names.index(n)}" in saved and n != f"{x[0]}_end"]
    at = {n: 4 * i for i, n in enumerate(kept)}
    at |= {n: 4 * (len(saved) + i) for i, n in enumerate(names[4:])}
    body = _taps_of_two() if two else _taps_of_one()
    sums = ("r4", "r5", "r6", "r7")
    past = [f"ldr r12, [sp, #{at['x0_end']}]"] if two else []
    enter = (*past, f"sub r12, {'r12' if two else 'r3'}, r0", f"tst r12, #8 {ODD}", "bne 3f")
    taps = Unrolled("groups", enter, (3 + two,) * 2, (("2:", *body), ("3:", *body)),
                    (*past, f"cmp r0, {'r12' if two else 'r3'}", "bne 2b"))  # fmt: skip
    group: list[Part] = [
        "1:",
        f"ldm {w}!, {{r4{', r5' if two else '-r7'}}}",
        *(["mov r6, r4", "mov r7, r5"] if two else []),
    ]
    factors = (("r8", "r9"), ("r10", "r11"))
    ends = [f"ldrd r12, lr, [sp, #{at['low']}]"] if clamped else []
    constants, limits = f"ldm {w}!, {{r8-r11}}", ("r12", "lr") if clamped else ()
    if two:
        ends = [constants, f"ldr r0, [sp, #{at['zero']}]", "ldr r1, [sp, #8]", f"ldr r3, [sp, #{at['y1']}]", *ends]
        ends += _stored(sums, factors * 2, "r0", limits, ("r1", "r1", "r3", "r3"))
        ends += ["str r1, [sp, #8]", f"str r3, [sp, #{at['y1']}]"]
    else:
        ends = ["ldr r2, [sp, #4]", f"ldr r0, [sp, #{at['zero']}]", *ends]
        for some in (sums[:2], sums[2:]):
            ends += [constants, *_stored(some, factors, "r0", limits, ("r2", "r2"))]
        ends.append("str r2, [sp, #4]")
    ends += [f"ldr r12, [sp, #{at['blocks']}]", "subs r12, r12, #1", f"str r12, [sp, #{at['blocks']}]"]
    ends += ["ldm sp, {r0, r1}" if two else "ldr r0, [sp]", "bne 1b"]
    pushed_as = f"{'r0, r1, r3' if two else 'r0, r2, r4'}-r11"
    return Function(
        f"eb_wide{pixels}{'_clamped' if clamped else ''}",
        tuple(f"EB_REG {kind}{n}" for kind, n in zip(kinds, names, strict=True)),
        f"{'Two pixels' if two else 'One pixel'} of int16, by `blocks` {'pairs' if two else 'groups of four'} of "
        "channels. w: for each the start values, weights, and two constants a channel. Loads of x may be unaligned.",
        (f"push {{{pushed_as}, lr}}", pushed(saved), f"/* sp: {', '.join(f'{v} {n}' for n, v in at.items())} */",
         Loop("blocks", (*group, taps, *ends)), f"pop {{{pushed_as}, pc}}"),
    )  # fmt: skip


def _stored(
    sums: Sequence[str], factors: Sequence[tuple[str, str]], zero: str, bounds: Sequence[str], places: Sequence[str]
) -> list[str]:
    """Rescale and store sums, one after the other."""
    code = list[str]()
    for v, both, place in zip(sums, factors, places, strict=True):
        code += [*ended([v], [both], zero, bounds), f"strh {v}, [{place}], #2"]
    return code


def _taps_of_two() -> list[str]:
    """Four taps of two pixels with two channels."""
    code = ["ldrd r8, r9, [r2], #8", "ldrd r10, r11, [r0], #8", "ldrd r3, lr, [r1], #8"]
    for w, one, other in (("r8", "r4", "r6"), ("r9", "r5", "r7")):
        code += [f"sxtb16 r12, {w}", f"sxtb16 {w}, {w}, ror #8"]
        code += [f"smlad {one}, r12, r10, {one}", f"smlad {other}, r12, r3, {other}"]
        code += [f"smlad {one}, {w}, r11, {one}", f"smlad {other}, {w}, lr, {other}"]
    return code


def _taps_of_one() -> list[str]:
    """Four taps of a pixel with four channels."""
    code = ["ldm r1!, {r8-r11}", "ldr r12, [r0], #4", "ldr lr, [r0], #4"]
    for w, v in (("r8", "r4"), ("r9", "r5"), ("r10", "r6"), ("r11", "r7")):
        code += [f"sxtb16 r2, {w}", f"sxtb16 {w}, {w}, ror #8", f"smlad {v}, r2, r12, {v}", f"smlad {v}, {w}, lr, {v}"]
    return code


FUNCTIONS = {
    f"eb_wide{n}{'_clamped' * clamped}": partial(function, n, clamped) for n in (1, 2) for clamped in (False, True)
}
PAIRED = (0, 2, 1, 3)  # order of four weights in a word: neighbours are both in even bytes or both in odd ones


def stream(weights: Array, first: Array, factors: Array, block: int, order: Sequence[int] = PAIRED) -> Array:
    """The stream by blocks of channels: start values, words of four weights in this `order`, and the rescaling.

    `weights`: K x rows x taps; the taps of each row are padded to a multiple of four.
    """
    k = len(weights)
    missing = -k % block
    w = np.pad(weights.astype(np.int64), ((0, missing), (0, 0), (0, -weights.shape[2] % 4))) & 0xFF
    four = w.reshape(-1, block, w.shape[1] * w.shape[2] // 4, 4).transpose(0, 2, 1, 3)
    packed = np.bitwise_or.reduce([four[..., tap] << 8 * byte for byte, tap in enumerate(order)])
    blocks = len(packed)
    parts = [np.pad(first, (0, missing)).reshape(blocks, -1), packed.reshape(blocks, -1)]
    parts.append(np.pad(factors, ((0, missing), (0, 0))).reshape(blocks, -1))
    return words(np.concatenate(parts, axis=1))


def dense(layer: KernelLayer) -> Kernel | None:
    """The kernel of a dense layer: a row at a time, four channels of it at once."""
    op, graph = layer.op, layer.graph
    w = graph.operands(op)[1]
    if layer.form.rolled or not fits(op, graph) or w.data is None or w.shape[1] % 4:
        return None
    (k, c), n, (end, scalars) = w.shape, graph.operands(op)[0].shape[0], ends(op, graph)
    packed = stream(w.data[:, None], start(op, graph), rescaling(op, graph), 4)
    shape = {
        "N": n, "C": c, "K": k, "end": end, "blocks": k // 4, "tail": k % 4, "full": k // 4 * 4,
        "tail_at": k // 4 * packed.shape[1],
    }  # fmt: skip
    return Kernel(
        "arm_dsp/matrix.c:wide_dense", layer.plain.stem, shape, (constant(packed),), scalars,
        variant="dsp 1 pixel of int16",
        estimate=n * (30 + -(-k // 4) * (36 + 4.8 * c)), traffic=Traffic(passes=n),
    )  # fmt: skip


def _plain_halves(layer: KernelLayer) -> bool:
    """Whether the op is int16 in TFLite's arithmetic without zero points, and bounded by its type alone."""
    tensors = (*layer.graph.operands(layer.op), layer.graph.result(layer.op))
    if not layer.graph.arithmetic.fixed_point or any(t.dtype != "int16" or zero_of(t) for t in tensors):
        return False
    return spatial.bounds(layer.op, tensors[-1]) == (-(2**15), 2**15 - 1)


def product(layer: KernelLayer) -> Kernel | None:
    """The kernel of elementwise products, rounded twice in a few instructions."""
    k = layer.plain
    if not _plain_halves(layer) or not -31 <= (m := elementwise.mul_factor(layer.op, layer.graph)).shift <= -1:
        return None
    scalars = {"x0_zero": 0, "x1_zero": 0, "y_zero": 0} | _half_factor(m.mantissa, m.shift)
    shape, cost = {**k.shape, "ends": "eb_scale_halves"}, 20.0 + 13 * int(str(k.shape["N"]))
    return replace(k, shape=shape, scalars=scalars, variant="dsp products of int16", estimate=cost)


def total(layer: KernelLayer) -> Kernel | None:
    """The kernel of elementwise sums: each operand and the sum are rounded."""
    k = layer.plain
    if not _plain_halves(layer) or not k.shape["flat"]:
        return None
    f = elementwise.add_scaling(layer.op, layer.graph)
    if not -31 <= f["y_shift"] <= -1 or not all(-31 <= f[f"{name}_shift"] <= 0 for name in ("x0", "x1")):
        return None
    shape, scalars = {"N": k.shape["N"]}, {"y_zero": 0} | _half_factor(f["y_mul"], f["y_shift"])
    for name in ("x0", "x1"):
        shift = f[f"{name}_shift"]
        shape[f"ends{name[1]}"] = "_shifted" if shift else ""
        scalars |= {f"{name}_mul": f[f"{name}_mul"]} | ({f"{name}_shift": -(2 ** (32 + shift))} if shift else {})
    cost = 20.0 + 16 * int(str(k.shape["N"]))
    return replace(
        k, template="arm_dsp/elements.c:add_wide", shape=shape, scalars=scalars, variant="dsp sums of int16",
        estimate=cost,
    )  # fmt: skip


def _half_factor(mantissa: int, shift: int) -> dict[str, int | float]:
    """The factor of a result in the form of eb_scale_halves's parameters."""
    return {"y_mul": 2 * mantissa - 2**32, "y_shift": -(2 ** (32 + shift))}


def constant(packed: Array) -> Constant:
    return Constant("w", packed.ravel(), "start values, weights and rescaling by groups of channels")
