"""Change scales to powers of two, for engines that requantise by a shift: `--scales power-of-two`.

The result is a different network; `verify` prints how far its outputs are from the file's. Every int8 tensor gets the
least power of two that covers its range, and a clamp keeps the range. Its zero point is 0, or -128 if it has no
negative values and no layer pads it, because engines pad with 0. Weights of a layer get one scale for all channels,
with the least squared error. Results are rounded once, halves to even.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, log2

import numpy as np

from ..ir import Arithmetic, Array, Graph, Op, Quant, Tensor, reals_of
from ..ops import SPECS
from ..ops.spatial import shifted

FORMAT = "power-of-two"  # format of the resulting graph
SUMS = ("conv2d", "depthwise_conv2d", "dense")
KEEPING = ("avg_pool2d",)  # ops, besides exact ones, whose result has the scale of their operand
FREE = (*SUMS, "add", "mul", "sub")  # ops whose result may have any scale
MIN_EXPONENT = -14  # exponent: the scale of a tensor of zeros


def powers_of_two(graph: Graph) -> Graph:
    """The network with scales of powers of two; tensors whose scale an op prescribes keep it. Raises nothing."""
    groups = _groups(graph)
    fixed = {groups[op.outputs[0]] for op in graph.ops if op.kind not in FREE and not _passes(op, graph)}
    fixed |= {groups[n] for op in graph.ops if shifted(op) for n in (op.inputs[0], op.outputs[0])}
    kept = (op for op in graph.ops if op.kind in SUMS and not _has_constants(op, graph))
    fixed |= {groups[n] for op in kept for n in op.inputs[:2]}  # the scale of the bias is the product of theirs
    tensors = dict(graph.tensors)
    members: dict[str, list[Tensor]] = {}
    for name, t in graph.tensors.items():
        if _scaled(t) and groups[name] not in fixed:
            members.setdefault(groups[name], []).append(t)
    padded = {groups[op.inputs[0]] for op in graph.ops if op.kind in SUMS and any(op.attrs.get("pad", ()))}
    for group, tied in members.items():
        zero = -128 if group not in padded and all(_zero(t) == -128 for t in tied) else 0
        quant = Quant((2.0 ** max(_exponent(t, zero) for t in tied),), (zero,))
        tensors |= {t.name: replace(t, quant=quant) for t in tied}
    running = list[Op]()
    for op in graph.ops:
        constants = _constants(op, graph, tensors) if _has_constants(op, graph) else []
        tensors |= {t.name: t for t in constants}
        inputs = (*op.inputs[: len(op.inputs) - len(constants)], *(t.name for t in constants))
        running.append(replace(_bounded(op, graph), inputs=inputs))
    changed = replace(graph, tensors=tensors, arithmetic=Arithmetic.ONNX, format=FORMAT)
    return changed.with_ops(running)


def _bounded(op: Op, graph: Graph) -> Op:
    """The op with a clamp to its result's old range, which may implement a ReLU by a zero point of -128 alone."""
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
    """For each tensor, the representative of the group of tensors that must share its scale."""
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
    """Exponent of the least power of two that, as scale with the `new` zero point, covers the tensor's range."""
    assert t.quant is not None
    scale, zero = t.quant.scale[0], _zero(t)
    below = (zero + 128) * scale / (new + 128) if new > -128 else 0.0
    most = max((127 - zero) * scale / (127 - new), below)
    return max(MIN_EXPONENT, ceil(log2(most) - 1e-9)) if most > 0 else MIN_EXPONENT


def _has_constants(op: Op, graph: Graph) -> bool:
    """Whether weights and bias of an op may be rescaled. Weights that had zero points may be int16 here."""
    if op.kind not in SUMS or shifted(op) or not _scaled(graph.tensors[op.inputs[0]]):
        return False
    w, *bias = (graph.tensors[name] for name in op.inputs[1:])
    return w.dtype in ("int8", "int16") and w.quant is not None and all(t.data is not None for t in (w, *bias))


def _constants(op: Op, graph: Graph, tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """Weights with a power of two as scale, and the bias with the scale of their products with the input.

    Constants that several ops read are copied under new names, because the ops' inputs may differ in scale.
    """
    w, *bias = (graph.tensors[name] for name in op.inputs[1:])
    x, old_x = tensors[op.inputs[0]], graph.tensors[op.inputs[0]]
    assert w.data is not None and w.quant is not None and x.quant is not None and old_x.quant is not None
    real = reals_of(w.data, w)
    most = float(abs(real).max())
    start = ceil(log2(most / 127) - 1e-9) if most > 0 else MIN_EXPONENT
    # The next smaller power clips the largest weights, but rounds the others less.
    best = min((start, start - 1), key=lambda e: float(((_rounded(real, e) * 2.0**e - real) ** 2).sum()))
    new = [replace(w, dtype="int8", data=_rounded(real, best).astype(np.int8), quant=Quant((2.0**best,), (0,)))]
    for b in bias:
        scales = np.array(w.quant.scale) * old_x.quant.scale[0]
        product = x.quant.scale[0] * 2.0**best
        sums = np.rint(b.array.astype(np.float64).ravel() * scales / product)
        data = np.clip(sums, -(2**31), 2**31 - 1).astype(np.int32).reshape(b.shape)
        new.append(replace(b, data=data, dtype="int32", quant=Quant((product,), (0,))))
    return [replace(t, name=f"{t.name}@{op.outputs[0]}") if len(graph.consumers[t.name]) > 1 else t for t in new]


def _rounded(real: Array, exponent: int) -> Array:
    return np.clip(np.rint(real / 2.0**exponent), -127, 127)
