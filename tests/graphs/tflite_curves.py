"""Random .tflite files of one operator: sigmoid and tanh of int16, which TFLM takes from a table of lines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgebuild.model.ir import Quant

from .tflite_models import OPERATORS, Draft


def curve(name: str) -> Callable[[Draft], bytes]:
    def make(f: Draft) -> bytes:
        shape, power = f.shape(), f.s.between(-16, -8)
        scale = 2.0**power * f.s.pick(1.0, float(f.s.rng.uniform(1, 2)))
        x = f.input(shape, Quant((float(np.float32(scale)),), (0,)))
        return f.done(name, [x], shape, Quant((2.0**-15,), (0,)))

    return make


OPERATORS |= {f"{name} int16": curve(name) for name in ("LOGISTIC", "TANH")}
