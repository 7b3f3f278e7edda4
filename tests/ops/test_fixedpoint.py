"""Bounds of activations in steps: TFLM rounds them in float32, halves away from zero, and the type's ends remain.

Tables of functions with scales at the end of float32.
"""

from __future__ import annotations

import pytest

from edgebuild.model.ir import Op, Quant, Tensor
from edgebuild.model.ops.fixedpoint import clamp_bounds
from edgebuild.model.ops.pointwise import TABLES

BOUNDS = [
    (0.5, 3, (None, None), "int8", (-128, 127)),
    (0.5, 3, (0.0, 6.0), "int8", (3, 15)),
    (0.5, -120, (-1.25, 1.25), "int8", (-123, -117)),
    (0.5, -120, (-1.2, 1.2), "int8", (-122, -118)),
    (0.5, 100, (0.0, 60.0), "int8", (100, 127)),
    (0.5, -100, (-60.0, 0.0), "int8", (-128, -100)),
    (1e-30, 5, (-1e30, 1e30), "int8", (-128, 127)),  # a ratio that float32 does not hold
    (1e-30, 0, (-1e30, 1e30), "int16", (-32768, 32767)),
]


@pytest.mark.parametrize(("scale", "zero", "real", "dtype", "steps"), BOUNDS)
def test_bounds_of_an_activation(
    scale: float, zero: int, real: tuple[float | None, float | None], dtype: str, steps: tuple[int, int]
) -> None:
    assert clamp_bounds(Quant((scale,), (zero,)), *real, dtype) == steps


def test_reciprocal_roots_of_tiny_steps_have_the_largest_factor() -> None:
    """The product of the scales is 0 in float32."""
    x, y = (Tensor(name, (4,), "int8", Quant((1e-38,), (-128,))) for name in "xy")
    assert (TABLES["rsqrt"](Op("rsqrt", "y", ("x",), ("y",), {"clamp": (None, None)}), x, y)[1:] > 127).all()
