"""CumSum as a product with a triangle of ones: element (j, i) is one if sum j counts element i."""

from __future__ import annotations

from typing import Any

import numpy as np

from .moves import axis_of

OPEN = (None, None)


def from_onnx(node: Any) -> None:
    _emit(node, bool(node.attr("exclusive", 0)), bool(node.attr("reverse", 0)))


def from_tflite(node: Any) -> None:
    options = node.options("CumsumOptions")
    _emit(node, bool(options.Exclusive()), bool(options.Reverse()))


def _emit(node: Any, exclusive: bool, backwards: bool) -> None:
    x = node.tensor(0)
    if x.dtype != "float32":
        raise node.error(f"running sums of {x.dtype}", "supported: float32")
    axis = axis_of(node, int(np.ravel(node.constant(1, "axis").data)[0]), len(x.shape))
    perm = (*(d for d in range(len(x.shape)) if d != axis), axis)
    count = x.shape[axis]
    triangle = np.tril(np.ones((count, count), np.float32), -1 if exclusive else 0)
    weights = node.array(np.ascontiguousarray(triangle.T) if backwards else triangle)
    rows = node.reshaped(node.turned(node.inputs[0], perm), (x.elements // count, count))
    sums = node.reshaped(
        node.inner("dense", [rows, weights], clamp=OPEN, finite=False), tuple(x.shape[d] for d in perm)
    )
    node.emit("transpose", [sums], perm=tuple(int(p) for p in np.argsort(perm)))
