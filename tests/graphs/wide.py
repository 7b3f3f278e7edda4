"""Graphs of one op for the kinds that are rows of tables: elementwise functions and what moves values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgebuild.model.ir import Graph, Quant, Tensor
from edgebuild.model.ops import pointwise, reductions
from edgebuild.model.ops import pointwise as pointwise_op
from edgebuild.model.ops.functions import FUNCTIONS

from .single import KINDS, beyond, single, window
from .source import Source

REAL = [name for name, row in FUNCTIONS.items() if row.real]
INTEGER = [name for name, row in FUNCTIONS.items() if row.integer]
UNARY = [name for name in REAL if FUNCTIONS[name].arity == 1 and not FUNCTIONS[name].result]
STEADY = ["difference", "product", "minimum", "maximum", "prelu", "squared_difference"]  # no poles, no jumps
PAIRS = [*pointwise.TWO, *pointwise.COMPARISONS]


def pointwise(s: Source) -> Graph:
    """Floats, plain integers, or int8 with scales, where the function has that form."""
    if s.real:
        return plain_pointwise(s, s.pick(*REAL), "float32")
    if s.pick(False, True):
        return plain_pointwise(s, s.pick(*INTEGER), s.pick("int32", "int64", "int8"))
    if s.arithmetic == "onnx" and s.pick(False, True):
        shape = s.shape(1, 4)
        operands = [s.tensor("a", shape, s.quant()), s.tensor("b", shape[s.between(0, len(shape)) :], s.quant())]
        return _quantised(s, s.pick(*STEADY), operands)
    if s.pick(False, True) or s.arithmetic == "onnx":
        x = s.tensor("x", s.shape(1, 4), s.quant())
        return _quantised(s, s.pick(*UNARY), [x])
    shape = s.shape(1, 4)
    second = s.pick(s.tensor, s.constant)("b", shape[s.between(0, len(shape)) :], s.quant())
    return _quantised(s, s.pick(*PAIRS, "prelu"), [s.tensor("a", shape, s.quant()), second])


def _quantised(s: Source, function: str, operands: list[Tensor]) -> Graph:
    attrs = pointwise_op.attributes(function)
    if "to" in attrs:
        return single(s, "pointwise", operands, None, "bool", **attrs)
    attrs["clamp"] = s.clamp()
    return single(s, "pointwise", operands, s.quant(), "int8", **attrs)


def plain_pointwise(s: Source, function: str, dtype: str) -> Graph:
    """Operands of one shape, or broadcast, one of them perhaps a constant."""
    row, shape = FUNCTIONS[function], s.shape(1, 5, most=4)
    if function in ("not", "and", "or", "xor"):
        dtype = "bool"
    if function in ("shift_left", "shift_right"):
        dtype = s.pick("uint8", "uint32", "uint64")
    if function == "shifted_product":
        dtype = "int32"
    operands = []
    for i in range(row.arity):
        own = dtype if i or not row.condition else "bool"
        part = shape if s.pick(True, False) else tuple(s.pick(1, n) for n in shape)[s.between(0, len(shape)) :]
        data = s.rng.integers(1, 4, part).astype(own) if i == 1 and s.pick(False, True) else None
        operands.append(Tensor(f"x{i}", part, own, None, data))
    attrs: dict[str, Any] = pointwise_op.attributes(function)
    return single(s, "pointwise", operands, None, attrs.get("to", dtype), **attrs)


def copy(s: Source) -> Graph:
    x = s.pick(s.tensor, s.constant)("x", s.shape(1, 4), s.quant())
    return single(s, "copy", [x], x.quant)


def take(s: Source) -> Graph:
    """For each dimension nothing, a progression, or any indices, perhaps with places outside."""
    x = s.tensor("x", s.shape(1, 5, most=4), s.quant())
    index: list[tuple[int, ...] | None] = []
    for n in x.shape:
        anywhere = tuple(s.between(s.pick(0, -1), n - 1) for _ in range(s.between(1, 5)))
        shifted = (*range(1, n), -1)
        repeated = tuple(i // 2 for i in range(2 * n))
        index.append(s.pick(None, None, tuple(range(n))[:: s.pick(1, -1, 2)], anywhere, repeated, shifted))
    value = s.pick(None, 3) if not s.real else s.pick(None, 1.5)
    return single(s, "take", [x], x.quant, index=tuple(index), value=value)


def reduction(kind: str) -> Any:
    """Floats and plain integers; extremes of quantised values, too."""

    def make(s: Source) -> Graph:
        shape = s.shape(1, 4)
        axes = tuple(d for d in range(len(shape)) if s.pick(True, False)) or (0,)
        if s.real or (kind in reductions.EXTREMES and s.pick(True, False)):
            x = s.tensor("x", shape, s.quant())
            return single(s, kind, [x], x.quant, axes=axes)
        dtype = s.pick("int32", "int64")
        return single(s, kind, [Tensor("x", shape, dtype)], None, dtype, axes=axes)

    return make


def arg(s: Source) -> Graph:
    x = s.tensor("x", s.shape(1, 4), s.quant())
    attrs = {"axis": s.between(0, len(x.shape) - 1), "largest": s.pick(True, False), "last": s.pick(True, False)}
    to = s.pick("int32", "int64")
    return single(s, "arg", [x], None, to, **attrs, to=to)


def topk(s: Source) -> Graph:
    dtype = s.pick("float32", "int32", "int8", "int16")
    x = Tensor("x", s.shape(1, 4), dtype, Quant((0.5,), (0,)) if dtype in ("int8", "int16") else None)
    axis, indices = s.between(0, len(x.shape) - 1), s.pick(True, False)
    attrs = {"axis": axis, "k": s.between(1, x.shape[axis]), "largest": s.pick(True, False), "indices": indices}
    return single(s, "topk", [x], None if indices else x.quant, "int64" if indices else x.dtype, **attrs)


def blend(s: Source) -> Graph:
    x = Tensor("x", s.shape(1, 4), "float32")
    axis, taps, count = s.between(0, len(x.shape) - 1), s.between(1, 4), s.between(1, 6)
    index = s.rng.integers(s.pick(0, -1), x.shape[axis], (count, taps)).tolist()  # -1: no element
    weight, offset = s.rng.uniform(-1, 1, (count, taps)).tolist(), s.pick(0.0, 1.5)
    tables = {"index": tuple(map(tuple, index)), "weight": tuple(map(tuple, weight)), "offset": (offset,) * count}
    return single(s, "blend", [x], None, "float32", axis=axis, **tables)


def integer_sums(s: Source) -> Graph:
    """Bytes without a scale, and a zero point that is computed or known."""
    attrs, taps, size = window(s, beyond)
    (channels, out), groups, dtype = s.pair(1, 4), s.pick(1, 1, 2, 3), s.pick("int8", "uint8")
    x = Tensor("x", (s.pick(1, 1, 2), *size, channels * groups), dtype)
    weights = s.rng.integers(-255, 256, (out * groups, *taps, channels)).astype(s.pick(np.int8, np.int16))
    zero = Tensor("zero", (), dtype, None, s.pick(None, np.array(5, dtype)))
    operands = [x, Tensor("w", weights.shape, str(weights.dtype), None, weights), zero]
    return single(s, "integer_sums", operands, None, "int32", groups=groups, **attrs, to="int32")


def trees(s: Source) -> Graph:
    """Full trees of a depth each, whose leaves speak of one target or of several."""
    features, targets, rng = s.between(1, 5), s.between(1, 3), s.rng
    nodes: dict[str, list[Any]] = {name: [] for name in ("feature", "threshold", "yes", "no")}
    entries: list[tuple[int, float]] = []

    def grow(depth: int) -> int:
        at = len(nodes["feature"])
        for name in nodes:
            nodes[name].append(0)
        if depth:
            own = rng.integers(features), rng.normal(), grow(depth - 1), grow(depth - 1)
        else:
            first = len(entries)
            entries.extend((int(rng.integers(targets)), rng.normal()) for _ in range(s.between(0, 2)))
            own = -1, 0.0, first, len(entries)
        for name, value in zip(nodes, own, strict=True):
            nodes[name][at] = value
        return at

    roots = [grow(s.between(0, 4)) for _ in range(s.between(1, 4))]
    columns = {
        **nodes,
        "root": roots,
        "target": [k for k, _ in entries] or [0],
        "weight": [v for _, v in entries] or [0],
    }
    if s.pick(False, True):
        columns["missing"] = [bool(b) for b in rng.integers(0, 2, len(nodes["yes"]))]
    kinds = {"threshold": "float32", "weight": "float32", "missing": "bool"}
    tables = []
    for name, values in columns.items():
        data = np.array(values, kinds.get(name, "int16"))
        tables.append(Tensor(name, data.shape, str(data.dtype), None, data))
    x = Tensor("x", (s.between(1, 3), features), "float32")
    return single(s, "trees", [x, *tables], None, "float32", targets=targets)


def distances(s: Source) -> Graph:
    features = s.between(1, 6)
    vectors = s.rng.normal(size=(s.between(1, 9), features)).astype(np.float32)
    operands = [
        Tensor("x", (s.between(1, 3), features), "float32"),
        Tensor("v", vectors.shape, "float32", None, vectors),
    ]
    return single(s, "distances", operands, None, "float32")


def coupling(s: Source) -> Graph:
    classes = s.between(2, 6)
    x = Tensor("x", (s.between(1, 3), classes * (classes - 1) // 2), "float32")
    return single(s, "coupling", [x], None, "float32", classes=classes)


def _table(s: Source, shape: tuple[int, ...]) -> Tensor:
    return s.pick(s.tensor, s.constant)("table", shape, s.quant())


def gather(s: Source) -> Graph:
    """Along any axis, or for each sample by its own indices; indices reach beyond both ends of the table."""
    table = _table(s, s.shape(1, 3))
    axis, batch = s.between(0, len(table.shape) - 1), 0
    lead: tuple[int, ...] = ()
    if len(table.shape) > 1 and s.pick(False, True):
        axis = batch = 1
        lead = table.shape[:1]
    index = Tensor("index", (*lead, *s.shape(1, 2)), s.pick("int32", "int64"))
    return single(s, "gather", [table, index], table.quant, axis=axis, batch=batch)


def detection(s: Source) -> Graph:
    """Boxes around anchors of a grid; scores of few values, so that some are equal."""
    count, classes, most = s.between(1, 20), s.between(1, 3), s.between(1, 8)
    anchors = np.concatenate([s.rng.uniform(0, 1, (count, 2)), s.rng.uniform(0.1, 0.5, (count, 2))], axis=1)
    boxes = Tensor("boxes", (1, count, s.pick(4, 6)), "float32")
    scores = Tensor("scores", (1, count, classes + s.pick(0, 1)), "float32")
    attrs: dict[str, Any] = {"most": most, "classes": classes, "per_class": s.pick(0, 0, 1, 3, 100)}
    attrs |= {"score_threshold": s.pick(-100.0, 0.3), "iou_threshold": s.pick(0.1, 0.5, 1.0)}
    attrs |= {"y_scale": 10.0, "x_scale": 9.0, "h_scale": 5.0, "w_scale": 4.5}
    operands = [boxes, scores, Tensor("anchors", (count, 4), "float32", None, anchors.astype(np.float32))]
    return single(s, "detection", operands, None, "float32", **attrs)


def scatter(s: Source) -> Graph:
    return _scattered(s, "scatter", s.pick("int32", "int64", "int8"), "none")


def scatter_reduce(s: Source) -> Graph:
    return _scattered(s, "scatter_reduce", s.pick("int32", "int64"), s.pick("add", "mul", "max", "min"))


def _scattered(s: Source, kind: str, dtype: str, reduction: str) -> Graph:
    """Places may be those of a constant, negative, twice the same, or outside."""
    (rows, columns), count = s.pair(1, 5), s.between(1, 4)
    dtype, quant = "float32" if s.real else dtype, s.quant() if dtype == "int8" else None
    data = s.rng.integers(-rows, rows, count) if s.pick(False, True) else None
    index = Tensor("index", (count,), "int64" if data is not None else s.pick("int32", "int64"), None, data)
    operands = [Tensor("x", (rows, columns), dtype, quant), index, Tensor("update", (count, columns), dtype, quant)]
    return single(s, kind, operands, quant, dtype, reduction=reduction)


def gather_nd(s: Source) -> Graph:
    table = _table(s, s.shape(1, 4))
    batch = s.between(0, len(table.shape) - 1) if s.pick(False, True) else 0
    depth = s.between(1, len(table.shape) - batch)
    index = Tensor("index", (*table.shape[:batch], *s.shape(0, 2), depth), s.pick("int32", "int64"))
    return single(s, "gather_nd", [table, index], table.quant, batch=batch)


def grid_sample(s: Source) -> Graph:
    """Places in and far outside of the image, on halves of pixels, and what is no number; either may be a constant."""
    s = replace(s, arithmetic="onnx", real=True)
    shape, rank = s.shape(4, 4), (s.between(1, 4), s.between(1, 4), 2)
    makers = s.pick((s.tensor, s.tensor), (s.constant, s.tensor), (s.tensor, s.constant))
    operands = [
        make(name, size, None)
        for make, name, size in zip(makers, ("x", "grid"), (shape, (shape[0], *rank)), strict=True)
    ]
    if operands[1].data is not None:
        odd = s.rng.choice([-1, 1, 0, -3, 7, 1e9, -np.inf, 0.5], operands[1].shape)
        data = np.where(s.rng.random(odd.shape) < 0.3, odd, operands[1].data).astype(np.float32)
        operands[1] = replace(operands[1], data=data)
    attrs = {"taps": s.pick(1, 2, 4), "corners": s.pick(True, False)}
    return single(s, "grid_sample", operands, None, padding=s.pick("zeros", "border", "reflection"), **attrs)


KINDS |= {name: reduction(name) for name in reductions.JOINS}
KINDS |= {"grid_sample": grid_sample}
KINDS |= {
    "arg": arg,
    "blend": blend,
    "gather": gather,
    "gather_nd": gather_nd,
    "scatter": scatter,
    "scatter_reduce": scatter_reduce,
    "detection": detection,
    "integer_sums": integer_sums,
    "topk": topk,
}
KINDS |= {
    "distances": distances,
    "coupling": coupling,
    "trees": trees,
    "take": take,
    "pointwise": pointwise,
    "copy": copy,
}
