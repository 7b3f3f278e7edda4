"""One inference for the sample program of an exported library: its inputs by a formula, and what it must come to."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgebuild.base.request import ModelRequest
from edgebuild.model import ops
from edgebuild.model.compile import graph_of
from edgebuild.model.ir import Array, Tensor
from edgebuild.model.ops.base import C_TYPES
from edgebuild.model.verify.vectors import bounds

MOST = 32  # elements of an output that are compared
FACTORS, SHIFT = (0x9E3779B1, 0x85EBCA6B), 15  # of the mixing of MurmurHash3's kind that fills the inputs
CLASSES = 10  # below which integers stay where the model looks nothing up
SHARE = 1e-3  # of the largest element of floats: two C libraries differ by less


def sample(request: ModelRequest, report: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The inference of a model by its operators' own meanings in numpy, as its inputs and outputs in C.

    `value`: of an input, C for its element of `h`. `rows`: of an output, C of what is right at which place.
    """
    graph = graph_of(request)
    table, sizes = bounds(request.source)
    inputs, values = list[dict[str, Any]](), graph.first_states
    for tensor, port in zip(graph.ports_in, report["inputs"], strict=True):
        t = graph.tensors[tensor]
        value, values[t.name] = _filled(t, sizes.get(t.name, table) or CLASSES)
        inputs.append({"function": port["function"], "type": C_TYPES[t.dtype], "elements": t.elements, "value": value})
    results = ops.run(graph, *(values[name] for name in graph.inputs))
    whole = all(t.dtype.startswith(("int", "uint")) for t in graph.tensors.values() if t.data is None)
    outputs = [_output(p, results[tensor], whole) for tensor, p in zip(graph.ports_out, report["outputs"], strict=True)]
    return {"inputs": inputs, "outputs": outputs}


def _filled(t: Tensor, size: int) -> tuple[str, Array]:
    """C for element i, where `h` mixes the bits of i, and all elements."""
    h: Array = np.arange(1, t.elements + 1, dtype=np.uint32) * np.uint32(FACTORS[0])
    h = (h ^ (h >> SHIFT)) * np.uint32(FACTORS[1])
    byte = (h >> 24).astype(np.uint8)
    dtype = np.dtype(t.dtype)
    if dtype.kind == "f":
        return "(float)(int8_t)(h >> 24) / 64.0f", (byte.view(np.int8).astype(dtype) / dtype.type(64)).reshape(t.shape)
    if dtype.kind == "b":
        return "(h >> 24) & 1u", (byte & 1).astype(dtype).reshape(t.shape)
    if dtype.itemsize >= 4:
        return f"(h >> 24) % {size}u", (byte % size).astype(dtype).reshape(t.shape)
    unused = 32 - 8 * dtype.itemsize
    return f"({C_TYPES[t.dtype]})(h >> {unused})", (h >> unused).astype(dtype).reshape(t.shape)


def _output(port: dict[str, Any], result: Array, whole: bool) -> dict[str, Any]:
    """`whole`: the model computes with integers alone, so its results are exact."""
    flat = np.ravel(result)
    places = range(0, flat.size, -(-flat.size // MOST))
    real = flat.dtype.kind == "f"
    texts = {at: _literal(flat[at], real) for at in places if np.isfinite(flat[at])}
    rows = [f"{{{at}, {text}}}" for at, text in texts.items()]
    largest = float(np.max(np.abs(flat[np.isfinite(flat)]), initial=0.0)) if real else 0.0
    tolerance = _literal(max(SHARE * largest, 1e-6), real) if real else "0" if whole else "1"
    named = {"function": port["function"], "type": C_TYPES[port["dtype"]], "elements": flat.size}
    return {**named, "rows": rows, "tolerance": tolerance}


def _literal(number: Any, real: bool) -> str:
    if not real:
        least = f"(-{-int(number) - 1} - 1)"  # of which there is no literal
        return least if number < -0x7FFFFFFF else f"{int(number)}{'u' if number > 0x7FFFFFFF else ''}"
    text = f"{float(number):.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"
