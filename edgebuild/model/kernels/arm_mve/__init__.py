"""Armv8.1-M with MVE (Helium): Cortex-M55 and M85.

This module has elementwise ops, pools and means: vector forms of the ops' own kernels, 4 to 16 numbers at a time.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

from ...ir import ITEM_BYTES
from ...ops.base import Kernel, Loop
from ..blocks import elements, plane
from ..row import CONVOLUTION, DEPTHWISE, KernelLayer, Row, of_sums
from . import sum_kernels
from .lanes import Vectors


def elementwise(layer: KernelLayer) -> Kernel | None:
    """Sums and products of neighbours, row by row where an operand is repeated."""
    k = layer.plain
    if k.variant != "linear":
        return None
    n, shift, offset = (int(str(value)) for value in (k.shape["N"], k.shape["shift"], k.scalars["offset"]))
    steps = [cast("tuple[int, ...]", k.shape.get(name, (0, 0, 0, 1))) for name in ("step0", "step1")]
    dims = cast("tuple[int, ...]", k.shape.get("dims", (1, 1, 1, n)))
    if any(step[-1] > 1 for step in steps) or not any(step[-1] for step in steps):
        return None
    half = 1 << shift - 1  # what the second of two narrowing shifts adds
    narrow = 17 <= shift <= 24 and abs(offset) + half < 2**30  # the operands reach 2^30
    scalars = {**k.scalars, "offset": offset - half} if narrow else k.scalars
    shape = {**k.shape, "dims": dims, "step0": steps[0], "step1": steps[1], "narrow": narrow, "run": dims[-1]}
    shape["repeated"] = tuple(not step[-1] for step in steps)
    more = (layer.op.kind == "mul") + 3 * bool(k.shape["below"])  # beside those of a sum, of four elements
    each = 4 * (2.4 if narrow else 2.7) + more  # of four elements
    row = 8 * ("dims" in k.shape) + each * (dims[-1] // 8 * 2 + -(-(dims[-1] % 8) // 4))
    cost = 20.0 + n // dims[-1] * row
    return replace(
        k, template="arm_mve/elements.c:elementwise", shape=shape, scalars=scalars, variant="mve", estimate=cost
    )


def rescaled(layer: KernelLayer) -> Kernel | None:
    k = layer.plain
    if not k.shape["linear"]:
        return None  # less than a vector: a call of gcc 12's code was seen to miss what the call before it wrote
    cost = 4.75 * int(str(k.shape["N"]))
    return replace(k, template="arm_mve/elements.c:convert", variant="mve", estimate=cost)


def mean(layer: KernelLayer) -> Kernel | None:
    """A mean by vectors, if the innermost loop over kept dimensions is contiguous."""
    k, x = layer.plain, layer.graph.operands(layer.op)[0]
    if k.template != "reductions.c:mean" or not k.shape["linear"]:
        return None
    kept = cast("tuple[Loop, ...]", k.shape["kept"])
    if not kept or kept[-1][1] != 1:  # a last dimension of one element makes no loop
        return None
    return replace(k, template="arm_mve/elements.c:mean", variant="mve", estimate=1.4 * x.elements)


def pool(layer: KernelLayer) -> Kernel | None:
    """A pool of neighbouring channels: sixteen at a time, or as many as sums of int16 or int32 leave room for."""
    k, x, y = layer.plain, layer.graph.operands(layer.op)[0], layer.graph.result(layer.op)
    average = bool(k.shape["average"])
    if (
        k.template != "reductions.c:pool2d"
        or x.dtype != "int8"
        or x.shape[0] != 1
        or (average and not k.shape["linear"])
    ):
        return None
    taps = layer.op.attrs["window"][0] * layer.op.attrs["window"][1]
    lanes = 16 if not average else 8 if taps <= 255 else 4
    reads = (y.shape[2] if layer.form.rolled else y.shape[1] * y.shape[2]) * taps
    cost = reads * -(-x.shape[3] // lanes) * (4.3 + 15 / taps)
    return replace(
        k, template="arm_mve/elements.c:pool2d", shape={**k.shape, "lanes": lanes}, variant="mve", estimate=cost
    )


def dense_rows(layer: KernelLayer) -> Kernel | None:
    """A dense layer that gets one row of its operand at a time."""
    k = layer.plain
    if k.template != "contractions.c:dense_rows" or not k.shape["folded"]:
        return None
    channels, rows, taps = (int(str(k.shape[letter])) for letter in ("K", "rows", "C"))
    return replace(k, template="arm_mve/elements.c:dense_rows", estimate=channels * (15 + taps / rows * 0.25))


def _spread(layer: KernelLayer) -> dict[str, Any] | None:
    """Template numbers to scatter planes of bytes to pixels of few channels, sixteen at once; None for other ops."""
    matrix, (x,) = elements.matrix(layer), layer.graph.operands(layer.op)
    if matrix is None or ITEM_BYTES[x.dtype] != 1 or matrix[0] > 17:
        return None
    return {"offsets": tuple(range(0, 16 * matrix[0], matrix[0])), "planes": matrix[0], "length": matrix[1]}


def spread(layer: KernelLayer) -> Kernel | None:
    """A transposition from planes to pixels."""
    letters = None if layer.form.in_place else _spread(layer)
    if letters is None:
        return None
    cost = letters["planes"] * (20 + 9.0 * -(-letters["length"] // 16))
    shape = {**layer.plain.shape, **letters}
    return replace(layer.plain, template="arm_mve/elements.c:transpose", shape=shape, variant="mve", estimate=cost)


def spread_in_blocks(layer: KernelLayer) -> Kernel | None:
    """A transposition from planes to pixels, in place."""
    k, letters = elements.in_blocks(layer), _spread(layer)
    if k is None or letters is None or not k.shape["planes"]:
        return None
    shape = {**k.shape, "spread": True, "offsets": letters["offsets"], "copy": "eb_copy_bytes"}
    short, block, blocks = (int(str(shape[name])) for name in ("short", "block", "blocks"))
    cost = elements.copies(shape, 20, 0.2) + blocks * short * (15 + 9 * -(-block // 16))
    return replace(k, shape=shape, variant="mve in place by blocks", estimate=cost)


CORE = frozenset({"mve"})
ROWS = (
    *(
        Row(CONVOLUTION, CORE, of_sums(partial(sum_kernels.convolution, lean, own)))
        for lean in (0, 4, 2)
        for own in (True, False)
    ),
    Row(CONVOLUTION, CORE, of_sums(sum_kernels.strips)),
    Row(DEPTHWISE, CORE, of_sums(sum_kernels.depthwise)),
    *(
        Row(kind, CORE, of_sums(partial(plane.depthwise, Vectors, Vectors.blocks)), crops=True)
        for kind in (DEPTHWISE, CONVOLUTION)
    ),
    Row(DEPTHWISE, CORE, of_sums(partial(sum_kernels.depthwise_lines, False))),
    Row(DEPTHWISE, CORE, of_sums(partial(sum_kernels.depthwise_lines, True))),
    Row(DEPTHWISE, CORE, of_sums(sum_kernels.depthwise_row)),
    Row(DEPTHWISE, CORE, of_sums(sum_kernels.depthwise_channels)),
    Row("conv2d", CORE, sum_kernels.gathered_convolution),
    Row("transpose_conv2d", CORE, sum_kernels.gathered),
    Row("dense", CORE, dense_rows),
    *(Row(kind, CORE, elementwise) for kind in ("add", "mul", "pointwise")),
    Row("pointwise", CORE, elements.linear_pieces("arm_mve/elements.c:curve", "mve lines", 3.25, 0.25)),
    Row("clamp", CORE, rescaled),
    Row("requantize", CORE, rescaled),
    Row("transpose", CORE, spread),
    Row("transpose", CORE, spread_in_blocks),
    Row("mean", CORE, mean),
    Row("avg_pool2d", CORE, pool),
    Row("max_pool2d", CORE, pool),
)
