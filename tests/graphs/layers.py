"""Graphs of one op for the kinds that TFLite alone has: the fused LSTM, sums and bilinear enlargement of integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgebuild.model.ir import Graph, Quant, Tensor
from edgebuild.model.ops.indexing import table

from .single import KINDS, mean, single
from .source import Source


def _tflite(s: Source) -> Source:
    return replace(s, arithmetic="tflite")


def total(s: Source) -> Graph:
    """Quantised, since sums of other numbers are reduce_sum's."""
    return mean(replace(_tflite(s), real=False), "sum")


def bilinear(s: Source) -> Graph:
    s = replace(_tflite(s), real=False, integer=s.pick("int8", "int16"))
    shape, corners = (1, *s.shape(3, 3)), s.pick(False, True)
    half = not corners and s.pick(False, True)
    rows, columns = (table(n, s.between(1, 9), corners, half) for n in shape[1:3])
    x = s.tensor("x", shape, s.quant())
    return single(s, "bilinear", [x], x.quant, rows=rows, columns=columns)


def lstm(s: Source) -> Graph:
    s = replace(_tflite(s), integer=s.pick("int8", "int16"))
    steps, inner, units = (s.between(1, 5) for _ in range(3))
    cell_scale = 2.0 ** -s.between(9, 14)
    hidden = None if s.real else Quant((1 / 128 if s.integer == "int8" else 2**-15,), (0,))
    x, h = s.tensor("x", (steps, inner), s.quant(0.01)), s.tensor("h", (1, units), hidden)
    quant = None if s.real else Quant((cell_scale,), (0,))
    c = Tensor("c", (1, units), "float32" if s.real else "int16", quant)
    weights = [s.rng.standard_normal((4 * units, n)) * (1 if s.real else 40) for n in (inner, units)]
    bias = s.rng.standard_normal(4 * units) * (1 if s.real else 500)
    wide = "int64" if s.integer == "int16" else "int32"
    types = ("float32",) * 3 if s.real else ("int8", "int8", wide)
    constants = [
        Tensor(
            name, data.shape, dtype, None, np.clip(data, -127, 127).astype(dtype) if name != "b" else data.astype(dtype)
        )
        for name, data, dtype in zip(("own", "back", "b"), (*weights, bias), types, strict=True)
    ]
    clip = s.pick(0, 0, 1)
    attrs = {"clip": float(clip) if s.real else int(clip / cell_scale)}
    if not s.real:
        factors = [tuple(float(f) for f in s.rng.uniform(0.01, 0.9, 4)) for _ in range(2)]
        attrs |= {"own": factors[0], "back": factors[1], "keep": 2.0**-15, "add": 2.0**-30 / cell_scale}
        attrs |= {"out": 2.0**-30 / (hidden.scale[0] if hidden else 1.0)}
    return single(s, "lstm", [x, h, c, *constants], None, "float32" if s.real else "int16", **attrs)


KINDS |= {"lstm": lstm, "sum": total, "bilinear": bilinear}
