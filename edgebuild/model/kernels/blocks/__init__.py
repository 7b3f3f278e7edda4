"""Plain C in the shape of a core's registers: RV32, Cortex-M0 and M3, and whatever other core there is."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...ops.base import PORTABLE, Kernel
from ..row import CONVOLUTION, DEPTHWISE, KernelLayer, Row, of_sums
from . import fours, gathered, pairs, plane, sum_kernels, tables, transposed
from .plane_rv32 import Rv32
from .plane_thumb import Armv6m, Armv7m
from .sum_kernels import SPLIT, SumsCore


def split(layer: KernelLayer) -> Kernel | None:
    """Products in halves, for want of a long multiplication."""
    k = layer.plain
    if k.variant != "linear":
        return None
    return replace(k, shape={**k.shape, "scale": "eb_scale_split"}, estimate=IN_HALVES * k.estimate)


def called(layer: KernelLayer) -> Kernel | None:
    """Long multiplications are calls of the compiler's library."""
    k = layer.plain
    return replace(k, estimate=CALLED * k.estimate) if k.variant == "linear" else None


def saturated(layer: KernelLayer) -> Kernel | None:
    """Results kept within int8 by one instruction."""
    k = layer.plain
    if k.variant != "linear" or (k.shape["low"], k.shape["high"]) != (-128, 127):
        return None
    return replace(k, shape={**k.shape, "clamp": "eb_saturate"}, estimate=SATURATED * k.estimate)


# Of the instructions that comparisons, and long multiplications, take (`./sconsw bench-kernels` shows the error).
SATURATED, IN_HALVES, CALLED = 0.86, 2.55, 6.1
WORDS = ("rv32", "armv7-m", "armv8-m.main", "armv6-m", PORTABLE)
RV32, M3, M33, M0, ANY = (frozenset({word}) for word in WORDS)
SATURATING = (M3, frozenset({"dsp"}))
BLOCKS = {  # (pixels, channels) to try, so that estimates rank blocks as `edgebuild tune` counts them
    RV32: (((4, 4), (3, 4), (5, 2)), SumsCore(18)),
    M3: (((3, 2), (2, 4), (2, 2)), SumsCore(8, mac=1.0, bring=8.5)),
    M33: (((3, 2), (2, 4), (2, 2)), SumsCore(8, mac=1.0, bring=8.5)),
    M0: (
        ((2, 2), (1, 4)),
        SumsCore(4, 1.6, 45, SPLIT, mac=1.6, pixel=0.8),
    ),
    ANY: (((2, 4),), SumsCore(18)),
}
CHANNELS = {RV32: 4, M3: 4, M33: 4, M0: 2, ANY: 4}  # beside two pixels whose taps are gathered
ROWS = (
    *(
        Row(CONVOLUTION, core, of_sums(partial(sum_kernels.convolution, *block, costs)), crops=True)
        for core, (blocks, costs) in BLOCKS.items()
        for block in blocks
    ),
    *(
        Row(CONVOLUTION, core, of_sums(partial(pairs.convolution, how)), crops=True)
        for core, several in ((RV32, pairs.RV32), (M3, pairs.M3), (M33, pairs.M3), (M0, pairs.M0))
        for how in several
    ),
    *(Row(CONVOLUTION, RV32, of_sums(partial(pairs.convolution, how, away=True)), crops=True) for how in pairs.RV32),
    *(
        Row(CONVOLUTION, core, of_sums(partial(fours.dense, how)))
        for core, how in ((RV32, fours.RV32), (M3, fours.M3), (M33, fours.M3), (M0, fours.M0))
    ),
    *(
        Row(kind, core, of_sums(partial(plane.depthwise, isa, (together,))), crops=True)
        for core, isa in ((RV32, Rv32), (M3, Armv7m), (M33, Armv7m), (M0, Armv6m))
        for kind in (DEPTHWISE, CONVOLUTION)
        for together in isa.blocks
    ),
    Row(DEPTHWISE, frozenset(), of_sums(sum_kernels.depthwise), crops=True),
    *(Row("conv2d", core, partial(gathered.grouped, CHANNELS[core], costs)) for core, (_, costs) in BLOCKS.items()),
    *(
        Row("transpose_conv2d", core, partial(gathered.convolution, CHANNELS[core], costs))
        for core, (_, costs) in BLOCKS.items()
    ),
    *(Row("batch_matmul", core, partial(gathered.product, costs)) for core, (_, costs) in BLOCKS.items()),
    *(Row(kind, core, saturated) for kind in ("add", "mul") for core in SATURATING),
    Row("add", M0, split),
    *(Row(kind, M0, called) for kind in ("requantize", "clamp")),
    Row("transpose", frozenset(), transposed.along_cycles),
    Row("transpose", frozenset(), transposed.in_blocks),
    *(Row(kind, frozenset(), make) for kind in ("clamp", "requantize") for make in (tables.rescaled, tables.own)),
    *(Row("softmax", frozenset(), make) for make in (tables.own, tables.exponentials)),
)
