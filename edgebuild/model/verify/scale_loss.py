"""Loss by other scales than those of the file: see passes/powers.py."""

from __future__ import annotations

from math import inf, log10
from pathlib import Path
from typing import Any

import numpy as np

from .. import ops
from ..compile import prepare
from ..ir import Array, Graph, Tensor, reals_of
from ..passes.powers import FORMAT
from .oracles import Reading

MOST = 200.0  # dB


def scale_loss(model: Path, graph: Graph, vectors: list[list[Array]], reading: Reading) -> dict[str, Any]:
    """Compare the real outputs of a graph of other scales with those of its file, both by the ops' meanings.

    Returns `loss`: the signal-to-noise ratio in dB, and how often the largest is the same.
    Nothing for a graph with the scales of the file.
    """
    if graph.format != FORMAT:
        return {}
    first = prepare(model, *reading)

    def outputs(g: Graph, vector: list[Array]) -> list[Array]:
        values = ops.run(g, *vector)
        return [np.ravel(real_values(values[name], g.tensors[name])).astype(np.float64) for name in g.outputs]

    before, after = list[Array](), list[Array]()
    for vector in vectors:
        reals = [real_values(x, graph.tensors[n]) for x, n in zip(vector, graph.inputs, strict=True)]
        given = [stored(x, first.tensors[n]) for x, n in zip(reals, first.inputs, strict=True)]
        again = [stored(real_values(x, first.tensors[n]), graph.tensors[n])
                 for x, n in zip(given, graph.inputs, strict=True)]  # fmt: skip
        before += outputs(first, given)
        after += outputs(graph, again)
    noise = sum(float(((a - b) ** 2).sum()) for a, b in zip(before, after, strict=True))
    signal = sum(float((a**2).sum()) for a in before)
    same = sum(int(a.argmax() == b.argmax()) for a, b in zip(before, after, strict=True))
    snr = inf if not noise else 10 * log10(signal / noise) if signal else 0.0
    return {"loss": {"snr_db": round(min(snr, MOST), 2), "same_largest": same / max(1, len(before))}}


def real_values(x: Array, t: Tensor) -> Array:
    return x if t.quant is None else reals_of(x, t)


def stored(real: Array, t: Tensor) -> Array:
    if t.quant is None:
        return real
    ends = np.iinfo(t.dtype)
    whole = np.rint(real / t.quant.scale[0]) + t.quant.zero_point[0]
    return np.clip(whole, ends.min, ends.max).astype(t.dtype)
