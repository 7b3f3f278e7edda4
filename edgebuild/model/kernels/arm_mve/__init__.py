"""Armv8.1-M with MVE (Helium): Cortex-M55 and M85."""

from __future__ import annotations

from functools import partial

from .. import curves
from ..blocks import plane
from ..row import CONVOLUTION, DEPTHWISE, Row, of_sums
from . import elements, sum_kernels
from .plane_vectors import Vectors

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
    Row("dense", CORE, elements.dense_rows),
    Row("add", CORE, elements.elementwise),
    Row("mul", CORE, elements.elementwise),
    Row("pointwise", CORE, curves.linear_pieces("arm_mve/elements.c:curve", "mve lines", 3.25, 0.25)),
    Row("clamp", CORE, elements.rescaled),
    Row("requantize", CORE, elements.rescaled),
    Row("transpose", CORE, elements.spread),
    Row("transpose", CORE, elements.spread_in_blocks),
    Row("mean", CORE, elements.mean),
    Row("avg_pool2d", CORE, elements.pool),
    Row("max_pool2d", CORE, elements.pool),
)
