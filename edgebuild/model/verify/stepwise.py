"""A quantised ONNX model compared op by op.

onnxruntime computes QDQ models in float and rounds at the end of each op, so one op may differ from it by a step.
Behind many of them, or behind a softmax, one step has become several, and no fixed allowance tells right from wrong.
Hence in two parts: every op by itself, fed with the oracle's own values, is within the allowance; and the firmware
computes exactly what all the ops together do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import ops
from ..ir import Graph
from .oracles import NHWC, Array, Reference

RELATIVE = 1e-4  # of floats, to the largest value


def stepwise(graph: Graph, inputs: Sequence[Sequence[Array]], expected: Reference) -> Reference | None:
    """Outputs that the firmware must give exactly; None if an op by itself is further from `expected` than it allows.

    `graph`: canonical; `inputs`: per vector, one array per input.
    """
    rows, tensors = [], []
    for vector, oracle in zip(inputs, expected.tensors, strict=True):
        shaped = [x.reshape(graph.tensors[name].shape) for name, x in zip(graph.inputs, vector, strict=True)]
        if not _ops_are_near(graph, dict(zip(graph.inputs, shaped, strict=True)), oracle, expected.slack):
            return None
        own = ops.run(graph, *shaped)
        rows.append([own[name] for name in graph.outputs])
        tensors.append(dict(own))
    return Reference(rows, tensors, slack=0)


def _ops_are_near(graph: Graph, values: dict[str, Array], oracle: dict[str, Array], slack: int) -> bool:
    """Run every op on the oracle's values where it has them. `values`: those of the inputs; the others are added."""
    for op in graph.ops:
        operands = [values[t.name] if t.data is None else t.data for t in graph.operands(op)]
        value = ops.SPECS[op.kind].reference(op, graph, *operands)
        theirs = _of_oracle(oracle, op.outputs[0], value)
        if theirs is not None and not _near(value, theirs, slack):
            return False
        values[op.outputs[0]] = value if theirs is None else theirs
    return True


def _of_oracle(oracle: dict[str, Array], name: str, like: Array) -> Array | None:
    """The oracle's value of a tensor, if it has one of this name: the canonical graph marks what it turned around."""
    plain, *marks = name.split("@")
    found = oracle.get(plain) if marks in ([], ["nhwc"]) else None
    if found is not None and marks:
        found = found.transpose(NHWC) if found.ndim == 4 else None
    return found if found is not None and (found.shape, found.dtype) == (like.shape, like.dtype) else None


def _near(value: Array, theirs: Array, slack: int) -> bool:
    difference = float(np.max(np.abs(value.astype(np.float64) - theirs.astype(np.float64)), initial=0.0))
    if value.dtype.kind == "f":
        return difference <= RELATIVE * float(np.max(np.abs(theirs), initial=0.0))
    return difference <= slack
