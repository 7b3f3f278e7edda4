"""Bounds of activations in steps: TFLM rounds them in float32, halves away from zero, and the type's ends remain.

Tables of functions with scales at the end of float32.
"""

from __future__ import annotations

import numpy as np
import pytest

from edgebuild.model.ir import Op, Quant, Tensor
from edgebuild.model.ops.fixedpoint import clamp_bounds
from edgebuild.model.ops.pointwise import TABLES, WIDE

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


# Steps of int16 as LiteRT 2.3 computes them: scales of the operand and the result, operands, results.
LINES = {
    "gelu": (
        *(0.0003018491843249649, 0.000288749230094254),
        [-32768, -11829, -7953, -4112, -1178, 3173, 7417, 12766, 17263, 32767],
        [0, -2, -68, -461, -445, 2756, 7655, 13343, 18045, 32767],
    ),
    "gelu_tanh": (
        *(0.0003414538805373013, 0.0003414538805373013),
        [-32768, -7991, -4213, -558, 2459, 5592, 8864, 12664, 17170, 32767],
        [0, -24, -317, -237, 1964, 5434, 8854, 12663, 17170, 32766],
    ),
    "exp": (
        *(7.325829210458323e-05, 0.0003365638549439609),
        [-32768, -21524, -15624, -7626, -1315, 1561, 4814, 11277, 21459, 32767],
        [270, 614, 946, 1700, 2698, 3331, 4227, 6788, 14310, 32765],
    ),
}


@pytest.mark.parametrize("function", LINES)
def test_functions_on_lines_equal_litert(function: str) -> None:
    scale, unit, operands, results = LINES[function]
    x, y = (Tensor(name, (10,), "int16", Quant((s,), (0,))) for name, s in (("x", scale), ("y", unit)))
    op = Op("pointwise", "y", ("x",), ("y",), {"function": function, "clamp": (None, None)})
    assert WIDE[function][0](op, x, y, np.array(operands, np.int16)).tolist() == results
