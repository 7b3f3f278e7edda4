"""A quantised ONNX model compared op by op.

onnxruntime computes QDQ models in float and rounds at the end of each op, so one op may differ from it by a step.
Behind many of them, or behind a softmax, one step has become several, and no fixed allowance tells right from wrong.
Hence in two parts: every op by itself, fed with the oracle's own values, is within the allowance; and the firmware
computes exactly what all the ops together do.

A C library and numpy differ in the last bit of a real function. Where that bit decides how a real number is rounded to
an integer, both integers are right, of each element by itself. A sum of such elements has an interval of right results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .. import ops
from ..ir import Graph, Op, Tensor, origin_of
from ..ops.base import Interval
from ..ops.fixedpoint import limits
from .oracles import OFF_STEP, Array, Reference
from .orders import possible_places, tells_places
from .rounding import distance, largest

RELATIVE = 1e-4  # of floats, to the largest value
# Of the largest real number of a tensor, in which sums may differ: 8 units in the last place of float32. A sum whose
# terms cancel is small, and its rounding is not.
LAST_BITS = 1e-6
MOVES: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "transpose": np.transpose,
    "reshape": np.reshape,
    "take": lambda x, kept: np.take(x, kept, axis=-1),
}
Oracle = tuple[dict[str, Array], dict[str, Array]]  # `tensors` and `reals` of a vector


def stepwise(
    graph: Graph,
    inputs: Sequence[Sequence[Array]],
    expected: Reference,
    seen: Sequence[Mapping[str, Array]] = (),
) -> Reference | None:
    """Outputs that the firmware must give exactly; None if an op by itself is further from `expected` than it allows.

    `graph`: canonical; `inputs`: per vector, one array per input. `seen`: per vector, what the firmware gave, by tensor
    name; where the last bits of real numbers decide, the nearest right value to it is told.
    """
    rows, tensors = [], []
    reals = expected.reals or [{}] * len(expected.tensors)
    given = seen or [{}] * len(inputs)
    for vector, oracle, found in zip(inputs, zip(expected.tensors, reals, strict=True), given, strict=True):
        shaped = [x.reshape(graph.tensors[name].shape) for name, x in zip(graph.inputs, vector, strict=True)]
        if not _ops_are_near(graph, dict(zip(graph.inputs, shaped, strict=True)), oracle, expected.slack):
            return None
        own = _nearest(graph, shaped, found) if found else ops.run(graph, *shaped)
        rows.append([own[name] for name in graph.outputs])
        tensors.append(dict(own))
    return Reference(rows, tensors, slack=0)


def _nearest(graph: Graph, inputs: Sequence[Array], found: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor's value, moved towards those found as far as the last bits of real numbers can move it.

    Ops behind a tensor that was found take its moved value: of many elements, some may be rounded up and others down.
    Where it was not found, each of its elements may be either, so ops behind it have intervals of results.
    """
    values = {t.name: t.data for t in graph.tensors.values() if t.data is not None}
    values |= dict(zip(graph.inputs, inputs, strict=True))
    ways = {share: dict(values) for share in (0.0, -LAST_BITS, LAST_BITS)}
    open_: dict[str, Interval] = {}  # tensors whose elements may have one of several values
    found = _reshaped(graph, found)
    for op in graph.ops:
        name = op.outputs[0]
        for share, way in ways.items():
            way[name] = _rounded(op, graph, way, share)
        if tells_places(op) and name in found:
            (x,) = op.inputs
            operand = open_.get(x) or _around([way[x] for way in ways.values()])
            places = possible_places(op, graph, operand, ways[0.0][name], found[name])
            for way in ways.values():
                way[name] = places
            continue
        results = [*(way[name] for way in ways.values()), *_ends(op, graph, values | ways[0.0], open_)]
        if all(np.array_equal(results[0], y) for y in results[1:]):
            continue
        low, high = _around(results)
        value = found.get(name)
        if value is None or value.size != results[0].size:
            open_[name] = low, high
            continue
        for way in ways.values():
            way[name] = np.clip(value.reshape(low.shape), low, high).astype(low.dtype)
    return ways[0.0]


def _reshaped(graph: Graph, found: Mapping[str, Array]) -> dict[str, Array]:
    """With the values of operands whose elements were found in another shape."""
    known = dict(found)
    for op in reversed(graph.ops):
        if op.kind == "reshape" and op.outputs[0] in known:
            known.setdefault(op.inputs[0], known[op.outputs[0]])
    return known


def _around(values: Sequence[Array]) -> Interval:
    return np.minimum.reduce(values), np.maximum.reduce(values)


def _ends(op: Op, graph: Graph, values: Mapping[str, Array], open_: Mapping[str, Interval]) -> Sequence[Array]:
    """The least and the largest result if operands lie between their ends; nothing where the op does not tell."""
    spec, y = ops.SPECS[op.kind], graph.result(op)
    transfer = ops.intervals.rising(spec.reference) if spec.exact else spec.interval
    moved = spec.exact or op.kind in ("dequantize", "topk")  # steps, though they are real numbers
    told = y.dtype in ("int8", "int16") or (moved and y.dtype == "float32")
    if transfer is None or not told or not any(name in open_ for name in op.inputs):
        return ()
    operands = [open_.get(name, (values[name], values[name])) for name in op.inputs]
    return [end.reshape(y.shape) for end in transfer(op, graph, *operands) or ()]


def _rounded(op: Op, graph: Graph, values: Mapping[str, Array], share: float) -> Array:
    """The op's result if real numbers are moved by a share of the largest before they become integers."""
    spec, operands = ops.SPECS[op.kind], [values[name] for name in op.inputs]
    if share and spec.moved is not None and graph.operands(op)[0].dtype != "float32":
        return spec.moved(op, graph, share, *operands).reshape(graph.result(op).shape)
    if share and graph.result(op).quant is not None:
        operands = [
            _moved(x, share) if t.dtype == "float32" and t.name in graph.producers else x
            for t, x in zip(graph.operands(op), operands, strict=True)
        ]
    return spec.reference(op, graph, *operands).reshape(graph.result(op).shape)


def _moved(x: Array, share: float) -> Array:
    return np.asarray(x + np.float32(share * largest(x)), x.dtype)


def _ops_are_near(graph: Graph, values: dict[str, Array], oracle: Oracle, slack: int) -> bool:
    """Run every op on the oracle's values where it has them. `values`: those of the inputs; the others are added."""
    for op in graph.ops:
        operands = [values[t.name] if t.data is None else t.data for t in graph.operands(op)]
        value = ops.SPECS[op.kind].reference(op, graph, *operands)
        theirs = value_of(graph.result(op), *oracle)
        if theirs is not None and not _near(value, theirs, slack):
            return False
        values[op.outputs[0]] = value if theirs is None else theirs
    return True


def value_of(t: Tensor, tensors: dict[str, Array], reals: dict[str, Array]) -> Array | None:
    """The oracle's value of a tensor, in the tensor's order; None where the oracle has none.

    `tensors`: the oracle's by name. `reals`: those that are real in the file. Integers count only if both
    have the same scale and zero point: real numbers must be steps of them, or the file's tensor must have them.
    """
    origin = origin_of(t)
    found = None
    if t.quant is not None and origin.name in reals:
        found = _in_steps(reals[origin.name], t)
    if found is None and origin.quant == t.quant:
        found = tensors.get(origin.name)
    if found is None:
        return None
    try:
        for kind, how in origin.moves:
            found = MOVES[kind](found, how)
    except (ValueError, IndexError):  # the file's tensor has another shape
        return None
    return found if (found.shape, found.dtype.name) == (t.shape, t.dtype) else None


def _in_steps(real: Array, t: Tensor) -> Array | None:
    """Real numbers as integers of the tensor's scale and zero point; None if they are none of its steps."""
    assert t.quant is not None
    if not t.quant.per_tensor:
        return None
    exact = real.astype(np.float64) / t.quant.scale[0] + t.quant.zero_point[0]
    steps, (low, high) = np.rint(exact), limits(t.dtype)
    fits = np.all(np.abs(exact - steps) <= OFF_STEP) and np.all((low <= steps) & (steps <= high))
    return steps.astype(t.dtype) if fits else None


def _near(value: Array, theirs: Array, slack: int) -> bool:
    return distance(value, theirs) <= (RELATIVE * largest(theirs) if value.dtype.kind == "f" else slack)
