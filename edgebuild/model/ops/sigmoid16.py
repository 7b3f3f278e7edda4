"""TFLM's sigmoid and tanh of int16: 256 values of the sigmoid, a 24th apart, and straight lines between them.

kernels/internal/reference/integer_ops/logistic.h and tanh.h. Arguments are in steps of 1 / (3 * 4096), results in
Q0.15.
"""

from __future__ import annotations

import numpy as np

from ..ir import Array
from .base import Constant


def _table() -> Array:
    """Values in Q0.16, less a 16th of the curve's second difference: lines between them err as much either way."""
    x = np.arange(256) / 24
    value = 1 / (1 + np.exp(-x))
    bend = value * (1 - value) * (1 - 2 * value) / 24**2
    values = np.rint(65536 * (value - bend / 16)).astype(np.int64)
    values[-1] = 65535
    return values


TABLE = _table()
CONSTANT = Constant("table", (TABLE - 2**15).astype(np.int16), "sigmoid(i / 24) in Q0.16, less 2^15")


def argument(value: Array, multiplier: int, shift: int) -> Array:
    """(x * multiplier) / 2^shift, halves up."""
    return np.asarray((value.astype(np.int64) * multiplier + ((1 << shift) >> 1)) >> shift)


def sigmoid(x: Array) -> Array:
    size = np.abs(x.astype(np.int64))
    at, rest = np.minimum(size >> 9, 254), size & 0x1FF
    a, b = TABLE[at], TABLE[at + 1]
    result = np.where(size >> 9 >= 255, 0x7FFF << 10, (a << 9) + rest * (b - a))
    return np.asarray(np.where(x >= 0, result + 512, (1 << 25) - result + 511) >> 10)


def tanh(x: Array) -> Array:
    """2 sigmoid(2x) - 1."""
    size = np.abs(x.astype(np.int64))
    at, rest = np.minimum(size >> 8, 254), size & 0xFF
    a, b = TABLE[at], TABLE[at + 1]
    result = np.where(size >> 8 >= 255, 0xFFFF << 8, (a << 8) + rest * (b - a))
    return np.asarray(np.where(x >= 0, result - (1 << 23) + 128, (1 << 23) - result + 127) >> 8)


def scaling(scale: float, powers: tuple[int, ...]) -> tuple[int, int]:
    """Multiplier and shift from steps of `scale` to arguments; `powers`: of 2 times 2^-12 at which it is exact."""
    for power in powers:
        if scale == 2.0 ** (power - 12):
            return 3 << power, 0
    multiplier, shift = scale * 4096.0 * 3.0, 0
    while multiplier <= 32767.0 / 2 and shift <= 30:
        multiplier, shift = multiplier * 2, shift + 1
    return int(multiplier), shift
