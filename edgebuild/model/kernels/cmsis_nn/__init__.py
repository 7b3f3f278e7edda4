"""Kernels that are calls of CMSIS-NN, for `--backend cmsis-nn`. The application provides the library.

Only its wrappers are called, which exist since version 4 and choose an implementation by themselves. Dense layers are
called as 1x1 convolutions. Their rounding is TFLite's with the double rounding that the library has by default.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...ops.base import Constant, Form, Kernel, Sums
from ...ops.spatial import sums_shape
from ..row import CONVOLUTION, DEPTHWISE, Row, of_sums

CMSIS_NN = "cmsis-nn"
# Instructions for a multiply-accumulate of convolution and of depthwise: each a constant, and more the fewer
# taps, output channels or channels there are. Fitted to counts of the library's kernels in TFLite Micro, gcc -O3.
COSTS = {
    "mve": ((0.12, 17.0, 2.0), (2.3, 24.0)),
    "dsp": ((1.45, 41.0, 10.0), (7.4, 20.0)),
    "": ((8.0, 41.0, 20.0), (12.0, 20.0)),
}
CHANNELS_MVE = 124  # channels that its depthwise kernel for Helium takes at once


def _core(form: Form) -> str:
    return next((word for word in ("mve", "dsp") if word in form.core), "")


def _scratch(s: Sums, form: Form, depthwise: bool) -> int:
    """At least what the library's `get_buffer_size` functions ask for, in any of its versions."""
    (fh, fw), taps = s.window, s.weights[0].size
    if not depthwise:
        return -(-taps // 16) * 64
    return {"mve": 4 * CHANNELS_MVE * fh * fw + 16, "dsp": 2 * s.size[2] * fh * fw, "": 0}[_core(form)]


def _kernel(depthwise: bool, s: Sums, form: Form) -> Kernel | None:
    """A call of arm_convolve_wrapper_s8, or of arm_depthwise_conv_wrapper_s8 if there are as many outputs as inputs."""
    if depthwise and s.size[2] != s.out[2]:
        return None
    if not s.arithmetic.fixed_point or form.rolled or form.granularity or not s.fits:
        return None
    weights = s.weights.astype(np.int64)
    bias = s.start + s.x_zero * weights.sum(axis=(1, 2, 3))  # the library adds the zero point itself
    if (abs(bias) >= 2**31).any():
        return None
    packed = s.weights.transpose(1, 2, 0, 3) if depthwise else s.weights
    constants = (
        Constant("w", np.ascontiguousarray(packed), "weights"),
        Constant("bias", bias.astype(np.int32), "bias"),
        Constant("multiplier", s.mantissa.astype(np.int32), "Q0.31"),
        Constant("shift", (-s.right).astype(np.int32), "left if positive"),
    )
    (conv, by_taps, by_channels), (single, by_width) = COSTS[_core(form)]
    each = single + by_width / s.size[2] if depthwise else conv + by_taps / s.weights[0].size + by_channels / s.out[2]
    scratch = _scratch(s, form, depthwise)
    shape = sums_shape(s, form) | {"depthwise": depthwise, "scratch": scratch}
    scalars = {**s.scalars, "x_zero": s.x_zero}
    cost = 0.0 if form.small else 300 + s.macs * each  # if size counts, the library counts once for all layers
    return Kernel(
        "cmsis_nn/conv.c.j2", f"cmsis_{s.stem}", shape, constants, scalars,
        scratch=scratch, variant=CMSIS_NN, estimate=cost,
    )  # fmt: skip


ROWS = (
    Row(CONVOLUTION, frozenset(), of_sums(partial(_kernel, False)), calls=CMSIS_NN),
    Row(DEPTHWISE, frozenset(), of_sums(partial(_kernel, True)), calls=CMSIS_NN),
)
