"""The vector of `NAME_selftest()`: inputs that are drawn, and the outputs that the operators' meanings make of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ops
from ..plan.search import Plan
from .names import access_functions


def self_test(plan: Plan) -> dict[str, list[dict[str, Any]]]:
    """Function, symbol and bytes of each input and output. States have their first values."""
    graph, rng, functions = plan.graph, np.random.default_rng(1), access_functions(plan)
    starts = {graph.inputs[s.read]: s.start for s in graph.states}
    given = list[Any]()
    for t in map(graph.tensors.__getitem__, graph.inputs):
        low, high = (0, 2) if t.dtype == "bool" else (np.iinfo(t.dtype).min, int(np.iinfo(t.dtype).max) + 1)
        drawn = rng.integers(low, high, t.shape) if t.name not in starts else starts[t.name]
        given.append(
            np.zeros(t.shape, t.dtype) if drawn is None else np.asarray(drawn).astype(t.dtype).reshape(t.shape)
        )
    values = ops.run(graph, *given) | dict(zip(graph.inputs, given, strict=True))
    rows = {}
    for side, names in (("inputs", graph.ports_in), ("outputs", graph.ports_out)):
        rows[side] = [
            {
                "function": functions[n],
                "symbol": f"{plan.name}_{side}_{i}",
                "data": [*np.ascontiguousarray(values[n]).tobytes()],
            }
            for i, n in enumerate(names)
        ]
    return rows
