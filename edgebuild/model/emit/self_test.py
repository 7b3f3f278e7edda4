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
    inputs = graph.first_states
    for t in map(graph.tensors.__getitem__, graph.ports_in):
        low, high = (0, 2) if t.dtype == "bool" else (np.iinfo(t.dtype).min, int(np.iinfo(t.dtype).max) + 1)
        inputs[t.name] = rng.integers(low, high, t.shape).astype(t.dtype)
    values = ops.run(graph, *(inputs[name] for name in graph.inputs))

    def port(name: str, symbol: str) -> dict[str, Any]:
        data = np.ascontiguousarray(values[name]).tobytes()
        return {"function": functions[name], "symbol": f"{plan.name}_{symbol}", "data": [*data]}

    return {
        "inputs": [port(name, f"inputs_{i}") for i, name in enumerate(graph.ports_in)],
        "outputs": [port(name, f"outputs_{i}") for i, name in enumerate(graph.ports_out)],
    }
