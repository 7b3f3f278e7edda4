"""Plain C in blocks that fit a core's registers, and assembly: RV32, Cortex-M0 and M3, and any other core."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...ops.base import PORTABLE, Kernel
from ..row import CONVOLUTION, DEPTHWISE, KernelLayer, Row, of_sums
from . import elements, pairs, plane, sum_kernels
from .plane_cores import Armv6m, Armv7m, Rv32
from .sum_kernels import SPLIT, SumsCore


def linear(times: float, letters: dict[str, str], layer: KernelLayer, broadcast: float = 0.0) -> Kernel | None:
    """The op's own kernel with other letters, at `times` its instructions. "clamp": only for the bounds of int8.

    `broadcast`: the factor in place of `times` if an operand is broadcast.
    """
    k = layer.plain
    fits = "clamp" not in letters or (k.shape.get("low"), k.shape.get("high")) == (-128, 127)
    odd = "scale" in letters and int(k.scalars.get("y_mul", 0)) % 2 > 0  # products in halves need even factors
    if k.variant != "linear" or not fits or odd:
        return None
    if broadcast and not k.shape["flat"] and not k.shape["below"]:
        times = broadcast
    return replace(k, shape={**k.shape, **letters}, estimate=times * k.estimate)


# One instruction clamps results to int8; products are in halves where there is no long multiplication. Factors of the
# instructions that the plain kernel takes (`./sconsw bench-kernels` shows the error).
SATURATED = partial(linear, 0.86, {"clamp": "eb_saturate"}, broadcast=0.92)
IN_HALVES = partial(linear, 2.8, {"scale": "eb_scale_split"})
WORDS = ("rv32", "armv7-m", "armv8-m.main", "armv6-m", PORTABLE)
RV32, M3, M33, M0, ANY = (frozenset({word}) for word in WORDS)
SATURATING = (M3, frozenset({"dsp"}))
BLOCKS = {  # (pixels, channels) to try, so that estimates rank blocks as `edgebuild tune` counts them
    RV32: (((4, 4), (3, 4), (5, 2)), SumsCore(18)),
    M3: (((3, 2), (2, 4), (2, 2)), SumsCore(8, mac=1.0, bring=8.5)),
    M33: (((3, 2), (2, 4), (2, 2)), SumsCore(8, mac=1.0, bring=8.5)),
    M0: (((2, 2), (1, 4)), SumsCore(4, 1.6, 45, SPLIT, mac=1.6, pixel=0.8)),
    ANY: (((2, 4),), SumsCore(18)),
}
CHANNELS = {RV32: 4, M3: 4, M33: 4, M0: 2, ANY: 4}  # channels of a block with two pixels whose taps are gathered
ROWS = (
    *(
        Row(CONVOLUTION, core, of_sums(partial(sum_kernels.convolution, *block, costs, nibbles=nibbles)), crops=True)
        for core, (blocks, costs) in BLOCKS.items()
        for nibbles in (False, True)
        for block in blocks
    ),
    *(
        Row(CONVOLUTION, core, of_sums(partial(pairs.convolution, how)), crops=True)
        for core, several in ((RV32, pairs.RV32), (M3, pairs.M3), (M33, pairs.M3), (M0, pairs.M0))
        for how in several
    ),
    *(Row(CONVOLUTION, RV32, of_sums(partial(pairs.convolution, how, away=True)), crops=True) for how in pairs.RV32),
    *(
        Row(CONVOLUTION, core, of_sums(partial(pairs.dense, f"eb_fours_{isa}")))
        for core, isa in ((RV32, "rv32"), (M3, "armv7m"), (M33, "armv7m"), (M0, "armv6m"))
    ),
    *(
        Row(kind, core, of_sums(partial(plane.depthwise, isa, (together,))), crops=True)
        for core, isa in ((RV32, Rv32), (M3, Armv7m), (M33, Armv7m), (M0, Armv6m))
        for kind in (DEPTHWISE, CONVOLUTION)
        for together in isa.blocks
    ),
    Row(DEPTHWISE, frozenset(), of_sums(sum_kernels.depthwise), crops=True),
    *(Row("conv2d", core, partial(sum_kernels.grouped, CHANNELS[core], costs)) for core, (_, costs) in BLOCKS.items()),
    *(
        Row("transpose_conv2d", core, partial(sum_kernels.gathered_convolution, CHANNELS[core], costs))
        for core, (_, costs) in BLOCKS.items()
    ),
    *(Row("batch_matmul", core, partial(sum_kernels.product, costs)) for core, (_, costs) in BLOCKS.items()),
    *(Row(kind, core, SATURATED) for kind in ("add", "mul", "pointwise") for core in SATURATING),
    *(Row(kind, RV32, partial(linear, 1.0, {}, broadcast=1.24)) for kind in ("add", "mul", "pointwise")),
    *(Row(kind, M0, IN_HALVES) for kind in ("add", "pointwise")),
    Row("mul", M0, partial(linear, 1.72, {"scale": "eb_scale_product_split"}, broadcast=1.94)),
    Row("transpose", frozenset(), elements.along_cycles),
    Row("transpose", frozenset(), elements.in_blocks),
    *(Row(kind, frozenset(), make) for kind in ("clamp", "requantize") for make in (elements.rescaled, elements.own)),
    *(Row("softmax", frozenset(), make) for make in (elements.own, elements.exponentials, elements.softmax_by_value)),
)
