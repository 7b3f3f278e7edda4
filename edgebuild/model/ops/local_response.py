"""LRN, LOCAL_RESPONSE_NORMALIZATION: x / (bias + alpha * sum of squares of the channels near by)^beta.

Made of other ops: the sum is a `blend` of neighbours along the channels, with alpha as its weights and bias as offset.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import pointwise
from .base import is_float
from .take import OUTSIDE


def from_onnx(node: Any) -> None:
    """A window of `size` channels; alpha is divided by it. Channels are dimension 1."""
    size = node.attr("size", 0)
    if size < 1:
        raise node.error(f"size {size}", "it must be at least 1")
    alpha = node.attr("alpha", 1e-4) / size
    _emit(node, 1, (size - 1) // 2, size // 2, node.attr("bias", 1.0), alpha, node.attr("beta", 0.75))


def from_tflite(node: Any) -> None:
    """TFLite's kernels leave channel c + radius out (reference_ops.h, LocalResponseNormalization)."""
    options, x = node.options("LocalResponseNormalizationOptions"), node.tensor(0)
    if not is_float(x):
        raise node.error(f"'{x.name}' is {x.dtype}", "supported: float32")
    radius = options.Radius()
    if radius < 0:
        raise node.error(f"radius {radius}", "it must be at least 0")
    _emit(node, len(x.shape) - 1, radius, radius - 1, options.Bias(), options.Alpha(), options.Beta())


def _emit(node: Any, axis: int, before: int, after: int, bias: float, alpha: float, beta: float) -> None:
    """`before`, `after`: channels of the window on either side, as far as there are any."""
    count = node.tensor(0).shape[axis]
    reach = np.arange(-min(before, count - 1), min(max(after, 0), count - 1) + 1)
    at = np.arange(count)[:, None] + reach
    inside = (at >= 0) & (at < count) & (reach <= after)
    index, weight = np.where(inside, at, OUTSIDE), np.where(inside, alpha, 0.0)
    squares = node.inner("pointwise", node.inputs[:1], **pointwise.attributes("square"))
    attrs = {"index": _nested(index), "weight": _nested(weight), "offset": (float(bias),) * count}
    base = node.inner("blend", [squares], axis=axis, **attrs)
    power = [base, node.array(np.float32(-beta))]
    node.emit("mul", [node.inputs[0], node.inner("pointwise", power, **pointwise.attributes("power"))], clamp=OPEN)


def _nested(table: Any) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(row) for row in table.tolist())


OPEN = (None, None)
