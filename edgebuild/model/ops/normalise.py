"""Readers of ONNX operators that take the mean out and divide by the standard deviation.

The variance is the mean of (x - mean)^2, as in onnxruntime. The standard's function bodies subtract the square of the
mean from the mean of squares: in float32 nothing is left of the variance where the mean is a thousand times larger.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from . import pointwise
from .moves import axis_of
from .reduction import kept_shape

OPEN = (None, None)
TINY = 1e-9  # that MeanVarianceNormalization adds to the standard deviation


def mean_of(node: Any, name: str, axes: tuple[int, ...]) -> str:
    """Name of the mean, whose `axes` have size 1."""
    return str(node.reshaped(node.inner("mean", [name], axes=axes), kept_shape(node.builder.tensors[name], axes, True)))


def centred(node: Any, name: str, axes: tuple[int, ...]) -> tuple[str, str, str]:
    """Names of the mean, of x - mean, and of the variance, whose `axes` have size 1.

    The mean is taken out twice. Rounding leaves some of it the first time, which counts where all values are equal or
    nearly so, because it is then divided by the small square root of epsilon.
    """
    mean = mean_of(node, name, axes)
    once = node.inner("pointwise", [name, mean], **pointwise.attributes("difference"))
    rest = node.inner("pointwise", [once, mean_of(node, once, axes)], **pointwise.attributes("difference"))
    squares = node.inner("pointwise", [rest], **pointwise.attributes("square"))
    return mean, rest, mean_of(node, squares, axes)


def plus(node: Any, name: str, number: float) -> str:
    return str(node.inner("pointwise", [name, node.array(np.float32(number))], **pointwise.attributes("sum")))


def normalised(node: Any, name: str, axes: tuple[int, ...]) -> tuple[str, str, str]:
    """Names of (x - mean) / sqrt(variance + epsilon), of the mean, and of what x - mean was multiplied by."""
    mean, rest, variance = centred(node, name, axes)
    norm = node.inner("pointwise", [plus(node, variance, node.attr("epsilon", 1e-5))], **pointwise.attributes("rsqrt"))
    return node.inner("mul", [rest, norm], clamp=OPEN), mean, norm


def scaled(node: Any, name: str, scale: str, offset: str) -> None:
    """Emit the node's output: times `scale`, plus `offset` if there is one."""
    if not offset:
        return node.emit("mul", [name, scale], clamp=OPEN)
    node.emit("add", [node.inner("mul", [name, scale], clamp=OPEN), offset], clamp=OPEN)


def instance_normalisation(node: Any) -> None:
    """Each channel of each sample."""
    x = node.tensor(0)
    shape = (1, x.shape[1], *(1 for _ in x.shape[2:]))
    result, *_ = normalised(node, x.name, tuple(range(2, len(x.shape))))
    scaled(node, result, *(node.reshaped(node.inputs[i], shape) for i in (1, 2)))


def layer_normalisation(node: Any) -> None:
    """All dimensions from an axis on. Mean and 1 / deviation are outputs, too."""
    x = node.tensor(0)
    axes = tuple(range(axis_of(node, node.attr("axis", -1), len(x.shape)), len(x.shape)))
    result, *more = normalised(node, x.name, axes)
    scaled(node, result, node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else "")
    for output, name in enumerate(more, start=1):
        if output < len(node.outputs) and node.outputs[output]:
            node.emit("reshape", [name], output=output, shape=kept_shape(x, axes, True))


def group_normalisation(node: Any) -> None:
    """Groups of channels of each sample."""
    x, groups = node.tensor(0), node.attr("num_groups", 0)
    batch, channels, *size = x.shape
    if groups < 1 or channels % groups:
        raise node.error(f"{groups} groups of {channels} channels", "groups must divide the channels")
    parts = node.reshaped(x.name, (batch, groups, prod(x.shape) // batch // groups))
    result = node.reshaped(normalised(node, parts, (2,))[0], x.shape)
    scaled(node, result, *(node.reshaped(name, (1, channels, *(1 for _ in size))) for name in node.inputs[1:3]))


def mean_variance_normalisation(node: Any) -> None:
    x = node.tensor(0)
    axes = tuple(sorted({axis_of(node, axis, len(x.shape)) for axis in node.attr("axes", [0, 2, 3])}))
    _, rest, variance = centred(node, x.name, axes)
    deviation = plus(node, node.inner("pointwise", [variance], **pointwise.attributes("sqrt")), TINY)
    node.emit("pointwise", [rest, deviation], **pointwise.attributes("quotient"))


ONNX = {
    "InstanceNormalization": instance_normalisation,
    "LayerNormalization": layer_normalisation,
    "GroupNormalization": group_normalisation,
    "MeanVarianceNormalization": mean_variance_normalisation,
}
