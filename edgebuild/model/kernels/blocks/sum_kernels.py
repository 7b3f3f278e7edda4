"""Sums of products in register blocks of plain C, for cores without vector or dual multiplies.

A block of P pixels by B channels loads P + B bytes for P * B multiply-accumulates; the registers limit its size.
Where a window is not contiguous in memory, the pixels under it are copied side by side first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir import Array
from ...ops import contractions, spatial
from ...ops.base import PORTABLE, Constant, Form, Kernel, Sums, zero_of
from ...ops.spatial import in_place, sums_shape, words
from .. import phases
from ..row import KernelLayer

SPLIT = "eb_rescale_split"  # C function for cores without a long multiplication
HELD, MAX_TAPS = 16, 128  # most taps of a depthwise window that stay in registers; that are unrolled
# Instructions that a result of eb_requantize takes more than one that is rounded in few steps; `./sconsw bench-kernels`
# shows the error of the estimate.
GENERAL = 10.0
HALVED = 1.5  # instructions that extract a weight of four bits from its byte, less half a load


@dataclass(frozen=True)
class SumsCore:
    """Parameters of a core's estimates, fitted to `./sconsw bench-kernels`.

    `registers`: for sums and pointers to pixels. `product`: instructions of a multiply-accumulate, relative to a core
    whose instructions have three operands; `result`: instructions of one result; `mac`: of a product that is added,
    plus `pixel` for each further pixel of a block; `bring`: of a copied tap.
    """

    registers: int
    product: float = 1.0
    result: float = 14.0
    rescale: str = "eb_rescale"
    mac: float = 2.0
    pixel: float = 0.0
    bring: float = 5.0


def finish(s: Sums) -> tuple[str, tuple[Constant, ...]]:
    """The rescaling of sums, with the constants that it takes: "relu" in one shift, "signed" in two, or "general".

    relu: (high(4 x M) + rounding) >> shift, with the zero point inside of the rounding. Exact where 4 x stays in int32,
    the second shift is over at least one bit, and the result is clamped at the zero point or above, or rounded once.
    signed: the same in two steps, halves away from zero in the second. general: by eb_requantize.
    """
    how = s.finish.partition("_")[0]
    numbers = roundings(s, how)
    if numbers is None:
        return "general", s.rescaling
    rounding, shift = numbers
    constants = (
        Constant("rounding", rounding.astype(np.int32), "half of what is shifted out, and the zero point"),
        Constant("shift", shift.astype(np.int8), "to the right"),
    )
    return "signed" if how == "signed" else "relu", (s.rescaling[0], *constants)


def roundings(s: Sums, how: str) -> tuple[Array, Array] | None:
    """Rounding and shift of `finish` by channel; None if no short sequence computes the result."""
    shift = s.right + (how != "signed")
    small = (s.bound < 2**29).all() and s.right.max() < 30 and (np.abs(s.y_zero) * 2.0**shift < 2.0**30).all()
    return ((how == "relu") + 2 ** (shift - 1) + s.y_zero * 2**shift, shift) if small and how != "sums" else None


def packed(weights: Array, block: int) -> Array:
    """Weights K x taps in the order of reading: for each block of channels, tap by tap, a byte for each channel."""
    k, taps = weights.shape
    return np.ascontiguousarray(weights.reshape(k // block, block, taps).transpose(0, 2, 1))


def of_nibbles(weights: Array, block: int) -> Array | None:
    """Weights of four bits, the first of two in the lower half of a byte; None: too large, or of odd number."""
    if weights.min() < -8 or weights.max() > 7 or (block % 2 and weights.shape[1] % 2):
        return None
    pairs = packed(weights, block).reshape(-1, 2)
    return np.asarray((pairs[:, 0] & 15) | pairs[:, 1] << 4, np.int8)


def convolution(
    pixels: int, channels: int, core: SumsCore, s: Sums, form: Form, nibbles: bool = False
) -> Kernel | None:
    """The kernel with `pixels` x `channels` sums in registers, 2 x 2 if size counts; one pixel has twice the channels.

    Each pixel has a pointer; if they are copied, there is one for all. `nibbles`: weights of four bits, two a byte.
    """
    pixels, channels, steps = (2, 2, (1,)) if form.small else (pixels, channels, (4, 2, 1))
    (_, _, c), (oh, ow, k), (fh, fw) = s.size, s.out, s.window
    if not s.fits or (s.dilation[1] != 1 and fw > 1) or s.weights.shape[3] != c:
        return None
    count = ow if form.rolled else oh * ow
    line = count if s.pointwise else ow  # blocks of pixels do not cross rows of a window
    room = pixels if s.pointwise or form.scratch_limit is None else form.scratch_limit // (fh * fw * c)
    p = min(
        range(1, max(1, min(pixels, room)) + 1), key=lambda n: -(-line // n) * n * (2 + (n + channels) / (n * channels))
    )
    wanted = channels * 2 if p == 1 else channels
    block = next(b for b in (8, 4, 2, 1) if b <= wanted and k % b == 0)
    taps = fh * fw * c
    ends, rest = finish(s)
    weights = (of_nibbles if nibbles else packed)(s.weights.reshape(k, -1), block)
    if weights is None:
        return None
    steps = (2, *steps) if nibbles and block == 1 else steps  # whole bytes
    unroll = next(u for u in steps if taps % u == 0)
    shape = sums_shape(s, form) | {
        "pixels": p, "block": block, "taps": taps, "unroll": unroll,
        "count": count, "pointwise": s.pointwise, "finish": ends, "rescale": core.rescale, "run": fw * c,
        "nibbles": nibbles,
    }  # fmt: skip
    constants = (Constant("w", weights, "by blocks of channels"),
                 Constant("start", s.start.astype(np.int32), "bias with the zero point folded in"), *rest)  # fmt: skip
    scalars = {"x_zero": s.x_zero} if not s.pointwise else {}
    scalars |= {"y_zero": s.y_zero} if ends == "general" else {}
    spilled = max(0, p * block + (p if s.pointwise else 1) - core.registers)
    turn = 0.1 + 4 / (unroll * p * block)
    per_mac = core.product * (
        core.mac + (p + block + HALVED * block * nibbles) / (p * block) + turn + 0.15 * spilled
    ) + core.pixel * (p - 1)
    bring = 0 if s.pointwise else core.bring * taps + 10 * fh
    cost = count // line * -(-line // p) * p * (k * (taps * per_mac + core.result) + bring)
    return Kernel(
        "blocks/sum_kernels.c:conv", s.stem, shape, constants, {**scalars, "low": s.low, "high": s.high},
        scratch=0 if s.pointwise else p * taps, estimate=cost,
        variant=f"{p} pixels x {block} channels{', 4-bit weights' * nibbles}",
    )  # fmt: skip


def depthwise(s: Sums, form: Form) -> Kernel | None:
    """The kernel that computes one channel at a time, from a plane with the padding around it.

    For cores without a class in `plane_cores.py`, and for sums whose ends take many instructions.
    """
    (h, w, c), (oh, ow, k), (fh, fw) = s.size, s.out, s.window
    ends, rest = finish(s)
    if not s.fits or c != k or fh * fw > MAX_TAPS or (PORTABLE not in form.core and ends != "general"):
        return None
    step = 1 if form.rolled else s.dilation[0]  # rows of the plane between taps; by rows it has only those under taps
    rows = fh if form.rolled else max(s.pad[0] + h, (oh - 1) * s.stride[0] + (fh - 1) * step + 1)
    wanted = (ow - 1) * s.stride[1] + (fw - 1) * s.dilation[1] + 1
    skip, left = max(0, -s.pad[1]), max(0, s.pad[1])
    across = w - skip  # columns that are copied: of a part of a row those that it reads
    across = wanted - left if across - (wanted - left) >= s.stride[1] else across
    columns = max(left + across, wanted)
    together = 1 if form.small or fh * fw > HELD else 3  # outputs side by side
    reads = tuple(  # columns of the plane under 1, 2, ... outputs
        tuple(sorted({o * s.stride[1] + fx * s.dilation[1] for o in range(n) for fx in range(fw)}))
        for n in range(1, together + 1)
    )
    copied = 1 if form.small else next(u for u in (6, 5, 4, 3, 2, 1) if across % u == 0)
    shape: dict[str, Any] = sums_shape(s, form) | {
        "rows": rows, "columns": columns, "finish": ends, "rescale": "eb_rescale", "fill": min(h, rows - s.pad[0]),
        "PX": left, "skip": skip * c, "across": across, "step": step,
        "together": together, "reads": reads, "unroll": copied,
        "low": s.low, "high": s.high,
    }  # fmt: skip
    taps = s.weights.reshape(k, -1)
    constants = (Constant("w", np.ascontiguousarray(taps), "by channel"),
                 Constant("start", s.start.astype(np.int32), "bias with the zero point folded in"), *rest)  # fmt: skip
    scalars = {"x_zero": s.x_zero} | ({"y_zero": s.y_zero} if ends == "general" else {})
    outputs = ow if form.rolled else oh * ow
    loaded = fh * fw * (fh * fw > HELD)  # weights
    each = fh * (2 * fw + len(reads[-1]) / together) + loaded + 14 + GENERAL * (ends == "general")
    cost = c * (2.7 * rows * across + outputs * each)
    return Kernel(
        "blocks/sum_kernels.c:depthwise", s.stem, shape, constants, scalars,
        scratch=(rows + form.rolled) * columns, variant="plane", estimate=cost, in_place=in_place(s, form),
    )  # fmt: skip


# Grouped and transposed convolutions and products of computed matrices in plain C: blocks of sums in registers.
#
# The operands under the taps of two pixels are copied side by side, as is a pair of columns of a matrix.

MAX_TERMS = 2**15  # terms of a sum of a product of matrices, each of which is below 2^16


def grouped(channels: int, core: SumsCore, layer: KernelLayer) -> Kernel | None:
    """The kernel of a convolution in groups; None for one group, for which other kernels are better."""
    return gathered_convolution(channels, core, layer) if layer.op.attrs.get("groups", 1) > 1 else None


def gathered_convolution(channels: int, core: SumsCore, layer: KernelLayer) -> Kernel | None:
    """The kernel that gathers the taps of two pixels and computes at most `channels` channels of both at a time."""
    (op, graph), form = phases.joined(layer.op, layer.graph), layer.form
    taps = phases.taps(op, graph)
    (x, w), sums = graph.operands(op)[:2], phases.int8_sums(op, graph, taps)
    if not sums or form.small:
        return None
    weights = [each.weights[:, :, 0] for each in sums]  # zero for channels whose results are all zero
    s, (k, _, _, c) = sums[0], w.shape
    own = phases.groups(op, k)
    kg, most = k // len(own), max(part.shape[1] for part in weights)
    block = next(b for b in (4, 2, 1) if b <= channels and kg % b == 0)
    how = [finish(each) for each in sums]
    ends, rest = how[0] if len({e for e, _ in how}) == 1 else ("general", s.rescaling)
    heads, at = [], 0
    for n, part in enumerate(weights):
        heads.append((at, n * k, kg * part.shape[1] * c))
        at += part.size
    table = phases.places(taps, heads)
    shape = phases.shape(layer, op, graph, table) | {
        "block": block, "unroll": next(u for u in (4, 2, 1) if c % u == 0), "finish": ends, "rescale": core.rescale,
        "list": -(-2 * most * c // 4) * 4, "zeros": -(-2 * most * c // 4) * 4 + 8 * most,
    }  # fmt: skip
    shape.pop("separate")  # its list has one base for all rows
    stream = [packed(part[group].reshape(kg, -1), block).ravel() for part in weights for group in own]
    constants = (
        Constant("w", np.concatenate(stream), "by phases, groups and blocks of channels"),
        Constant("start", words(np.concatenate([each.start for each in sums])), "bias with the zero point folded in"),
        Constant("places", table.ravel(), "of each phase: its weights, start values, a group's weights, taps"),
        *rest,
    )
    scalars = {"x_zero": s.x_zero} | ({"y_zero": s.y_zero} if ends == "general" else {})
    mean = sum(part.shape[1] for part in weights) / len(weights)
    per_mac = core.product * (2 + (2 + block) / (2 * block)) + core.pixel
    pair = 40 + mean * 22 + len(own) * (10 + mean * (10 + 8 * c)) + 2 * k * (mean * c * per_mac + core.result)
    return Kernel(
        "blocks/sum_kernels.c:gathered", layer.plain.stem, shape, constants, {**scalars, "low": s.low, "high": s.high},
        scratch=-(-2 * most * c // 4) * 4 + 8 * most + x.shape[3], variant="gathered taps",
        estimate=60 + 3 * x.shape[3] + phases.pairs(op, graph, form) * pair,
    )  # fmt: skip


def product(core: SumsCore, layer: KernelLayer) -> Kernel | None:
    """The kernel with blocks of two rows and two columns; an odd last one is computed with the one before it."""
    op, graph, k = layer.op, layer.graph, layer.plain
    (x, w), y, c = graph.operands(op), graph.result(op), graph.operands(op)[0].shape[3]
    if {x.dtype, w.dtype, y.dtype} != {"int8"} or not 4 <= c < MAX_TERMS or layer.form.small:
        return None
    a, b, n, columns = y.shape
    m, (low, high) = contractions.multiplier(op, graph), spatial.bounds(op, y)
    shape = {
        **k.shape, "last_n": max(0, n - 2), "last_k": max(0, columns - 2), "down": min(1, n - 1),
        "across": min(1, columns - 1), "unroll": next(u for u in (4, 2, 1) if c % u == 0),
    }  # fmt: skip
    scalars = {"x0_zero": zero_of(x), "x1_zero": zero_of(w), "multiplier": m.mantissa, "shift": m.shift}
    blocks = -(-n // 2) * (4 * core.result + 20 + 3.4 * 4 * core.product * c)
    return Kernel(
        "blocks/sum_kernels.c:matmul", k.stem, shape, k.constants,
        {**scalars, "y_zero": zero_of(y), "low": low, "high": high},
        scratch=4 * c, variant="two columns", estimate=30.0 + a * b * -(-columns // 2) * (20 + 12 * c + blocks),
    )  # fmt: skip
