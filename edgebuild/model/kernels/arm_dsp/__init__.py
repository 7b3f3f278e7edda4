"""Armv7E-M with the DSP extension: Cortex-M4, M7, and M33 and later cores with DSP."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ....base.target import SLOW_FLASH
from ...ops import elementwise, spatial
from ...ops.base import Kernel, zero_of
from ..blocks import elements, plane
from ..row import CONVOLUTION, DEPTHWISE, KernelLayer, Row, of_sums
from . import convolution, matrix, taps, wide, winograd
from .plane_words import Words


def add(layer: KernelLayer) -> Kernel | None:
    """An elementwise sum, four elements at a time."""
    k = layer.plain
    if k.variant != "linear" or not k.shape["flat"]:
        return None
    cost = 20.0 + 7 * int(str(k.shape["N"]))
    return replace(k, template="arm_dsp/elements.c:add", variant="dsp four at once", estimate=cost)


def mul(layer: KernelLayer) -> Kernel | None:
    """An elementwise product that is rounded twice, in a few instructions."""
    k, y = layer.plain, layer.graph.result(layer.op)
    if y.dtype != "int8" or not layer.graph.arithmetic.fixed_point or (k.variant == "linear" and not k.shape["below"]):
        return None
    factor = elementwise.mul_factor(layer.op, layer.graph)
    if not -31 <= factor.shift <= -1 or spatial.bounds(layer.op, y) != (-128, 127):
        return None
    scalars: dict[str, int | float] = {name: k.scalars[name] for name in ("x0_zero", "x1_zero")}
    scalars |= {"y_zero": zero_of(y), "y_mul": 2 * factor.mantissa - 2**32, "y_shift": -(2 ** (32 + factor.shift))}
    shape = {**k.shape, "linear": False, "unroll": False, "ends": "eb_scale_signed"}
    turn = 1 if "mve" in layer.form.core else 2  # instructions of a loop's end
    cost = 20.0 + (10 + turn - 2 * elementwise.has_single_element(k.shape)) * int(str(k.shape["N"]))
    return replace(k, shape=shape, scalars=scalars, variant="dsp products", estimate=cost)


def pool(layer: KernelLayer, most: int = 255) -> Kernel | None:
    """A pool of four channels at a time; sums of at most `most` pixels, by default as many as fit int16."""
    k, x, y = layer.plain, layer.graph.operands(layer.op)[0], layer.graph.result(layer.op)
    average = bool(k.shape.get("average"))
    if k.template != "reductions.c:pool2d" or x.dtype != "int8" or x.shape[0] != 1 or x.shape[3] % 4:
        return None
    height, width = layer.op.attrs["window"]
    taps = height * width
    if average and not (k.shape["linear"] and taps <= most):
        return None
    windows = y.shape[2] if layer.form.rolled else y.shape[1] * y.shape[2]
    tap, rest = (5.3, 75) if average else (4.5, _maximum_rest(k, taps, any(layer.op.attrs["pad"])))
    cost = windows * (20 + x.shape[3] / 4 * (taps * tap + 6.0 * height + rest))
    shape = {**k.shape, "xpulp": ""}
    return replace(k, template="arm_dsp/elements.c:pool2d", shape=shape, variant="dsp four at once", estimate=cost)


def _maximum_rest(k: Kernel, taps: int, padded: bool) -> int:
    """Instructions of four maxima besides those of rows and taps: compilers unroll windows of up to 4 taps."""
    clamped = (k.scalars["low"], k.scalars["high"]) != (-128, 127)
    return (70 if taps > 4 else 34 if padded else 2) + 18 * clamped


CORE = frozenset({"dsp"})
WAITS = CORE | {SLOW_FLASH}
ROWS = (
    *(Row(CONVOLUTION, CORE, of_sums(v.kernel)) for v in convolution.VARIANTS),
    *(Row(CONVOLUTION, WAITS, of_sums(v.kernel)) for v in convolution.WAITING),
    Row(CONVOLUTION, CORE, of_sums(taps.bytes_in_registers)),
    Row(CONVOLUTION, CORE, of_sums(winograd.winograd)),
    Row(DEPTHWISE, CORE, of_sums(taps.of_bytes)),
    *(
        Row(kind, CORE, of_sums(partial(plane.depthwise, Words, Words.blocks)), crops=True)
        for kind in (DEPTHWISE, CONVOLUTION)
    ),
    Row("conv2d", CORE, convolution.convolution),
    Row("conv2d", CORE, taps.halves_in_registers),
    Row("transpose_conv2d", CORE, convolution.gathered),
    Row("dense", CORE, wide.dense),
    Row("depthwise_conv2d", CORE, taps.of_halves),
    *(Row(kind, CORE, add) for kind in ("add", "pointwise")),
    Row("mul", CORE, mul),
    Row("avg_pool2d", CORE, pool),
    Row("max_pool2d", CORE, pool),
    Row("add", CORE, wide.total),
    Row("mul", CORE, wide.product),
    Row("batch_matmul", CORE, matrix.product),
    Row("batch_matmul", CORE, matrix.halves),
    Row("batch_matmul", CORE, matrix.wide),
    Row("svdf_state", CORE, matrix.state),
    Row("svdf", CORE, matrix.total),
    Row("pointwise", CORE, elements.linear_pieces("arm_dsp/elements.c:curve", "dsp lines", 6.0, 1.0)),
)
