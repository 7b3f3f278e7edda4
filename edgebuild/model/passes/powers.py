"""Scales that are powers of two, for engines that requantise by a shift: `--scales power-of-two`.

The result is another network: `verify` prints how far its outputs are from those of the file. Every int8 tensor gets
the least power of two that holds its range, which stays as bounds of the result. Its zero point is 0; or -128 where it
has no negative values, and nobody pads it, as engines pad with 0. Weights of a layer get one scale for all channels:
that of the least squared error. Results are rounded once, halves to even.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log2

import numpy as np

from ..arithmetic import Arithmetic
from ..ir import Array, Graph, Op, Quant, Tensor
from ..ops import SPECS
from ..ops.spatial import shifted

FORMAT = "power-of-two"  # of a graph that no file holds
SUMS = ("conv2d", "depthwise_conv2d", "dense")
KEEPING = ("avg_pool2d",)  # that give the scale of their operand; all that move or select do
FREE = (*SUMS, "add", "mul", "sub")  # ops whose result may have any scale
LEAST = -14  # exponent: the scale of a tensor of zeros


def powers_of_two(graph: Graph) -> Graph:
    """The network with other scales and constants. Raises nothing: what has fixed scales keeps them."""
    groups = _groups(graph)
    fixed = {groups[op.outputs[0]] for op in graph.ops if op.kind not in FREE and not _passes(op, graph)}
    fixed |= {groups[n] for op in graph.ops if shifted(op) for n in (op.inputs[0], op.outputs[0])}
    tensors = dict(graph.tensors)
    members: dict[str, list[Tensor]] = {}
    for name, t in graph.tensors.items():
        if _scaled(t) and groups[name] not in fixed:
            members.setdefault(groups[name], []).append(t)
    padded = {groups[op.inputs[0]] for op in graph.ops if op.kind in SUMS and any(op.attrs.get("pad", ()))}
    for group, mine in members.items():
        zero = -128 if group not in padded and all(_zero(t) == -128 for t in mine) else 0
        quant = Quant((2.0 ** max(_exponent(t, zero) for t in mine),), (zero,))
        tensors |= {t.name: replace(t, quant=quant) for t in mine}
    for op in graph.ops:
        if op.kind in SUMS and not shifted(op):
            tensors |= _constants(op, graph, tensors)
    running = tuple(_bounded(op, graph) for op in graph.ops)
    return replace(graph, ops=running, tensors=tensors, arithmetic=Arithmetic.ONNX, format=FORMAT)


def _bounded(op: Op, graph: Graph) -> Op:
    """The op with the bounds that its result had by its type alone: many a ReLU is nothing but a zero point of -128."""
    y, bounds = graph.tensors[op.outputs[0]], op.attrs.get("clamp")
    if op.kind not in FREE or not _scaled(y) or bounds is None:
        return op
    assert y.quant is not None
    ends = tuple((end - _zero(y)) * y.quant.scale[0] for end in (-128, 127))
    low, high = bounds
    clamp = ends[0] if low is None else max(low, ends[0]), ends[1] if high is None else min(high, ends[1])
    return replace(op, attrs={**op.attrs, "clamp": clamp})


def _scaled(t: Tensor) -> bool:
    return t.dtype == "int8" and t.quant is not None and t.data is None


def _passes(op: Op, graph: Graph) -> bool:
    """Whether the result has the scale of the first operand."""
    return SPECS[op.kind].exact or op.kind in KEEPING


def _groups(graph: Graph) -> dict[str, str]:
    """Of each tensor the one that stands for all that share its scale."""
    leader = {name: name for name in graph.tensors}

    def find(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for op in graph.ops:
        if _passes(op, graph):
            for name in (*op.inputs, *op.outputs):
                if _scaled(graph.tensors[name]):
                    leader[find(name)] = find(op.outputs[0])
    return {name: find(name) for name in leader}


def _zero(t: Tensor) -> int:
    assert t.quant is not None
    return t.quant.zero_point[0]


def _exponent(t: Tensor, new: int) -> int:
    """The least power of two with which the values of a tensor fit on both sides of the `new` zero point."""
    assert t.quant is not None
    scale, zero = t.quant.scale[0], _zero(t)
    below = (zero + 128) * scale / (new + 128) if new > -128 else 0.0
    most = max((127 - zero) * scale / (127 - new), below)
    return max(LEAST, ceil(log2(most) - 1e-9)) if most > 0 else LEAST


def _constants(op: Op, graph: Graph, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights with one power of two, and the bias in the scale of their products with the input."""
    w = graph.tensors[op.inputs[1]]
    x, old_x = tensors[op.inputs[0]], graph.tensors[op.inputs[0]]
    if w.data is None or w.dtype != "int8" or w.quant is None or x.quant is None or old_x.quant is None:
        return {}
    real = w.data.astype(np.float64) * _along(w)
    most = float(abs(real).max())
    start = ceil(log2(most / 127) - 1e-9) if most > 0 else LEAST
    best = min((start, start - 1), key=lambda e: float(((_rounded(real, e) * 2.0**e - real) ** 2).sum()))
    changed = {w.name: replace(w, data=_rounded(real, best).astype(np.int8), quant=Quant((2.0**best,), (0,)))}
    if len(op.inputs) > 2 and (b := graph.tensors[op.inputs[2]]).data is not None:
        scales = np.array(w.quant.scale) * old_x.quant.scale[0]
        product = x.quant.scale[0] * 2.0**best
        bias = np.rint(b.data.astype(np.float64).ravel() * scales / product)
        kept = np.clip(bias, -(2**31), 2**31 - 1).astype(np.int32).reshape(b.shape)
        changed[b.name] = replace(b, data=kept, dtype="int32", quant=Quant((product,), (0,)))
    return changed


def _along(w: Tensor) -> Array:
    """The scales of weights, shaped for their axis."""
    assert w.quant is not None
    shape = [1] * len(w.shape)
    if w.quant.axis is not None and len(w.quant.scale) > 1:
        shape[w.quant.axis] = -1
    return np.reshape(np.array(w.quant.scale), shape)


def _rounded(real: Array, exponent: int) -> Array:
    return np.clip(np.rint(real / 2.0**exponent), -127, 127)
