"""Bring a graph into the canonical form that all later stages expect, by rewrite rules.

A rule matches one op with its neighbours and returns an edit, or None. Only this module has patterns of several
operators. Each rule states the condition under which the edit leaves every output unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...base.errors import grouped
from .. import ops
from ..ir import (
    Array,
    Graph,
    Op,
    Quant,
    Tensor,
    after_move,
    elementwise,
    origin_of,
    real_values,
    rename,
    sort_ops,
    verify,
)
from ..ops.base import check_limits, unchanged
from ..ops.fixedpoint import limits
from ..ops.pointwise import TABLES
from ..ops.spatial import bias_quant, centred, sums_fit, symmetric_weights


@dataclass(frozen=True)
class Edit:
    """Replace the ops `remove` by the ops `insert`, add `tensors`, then replace each operand `x` by `rename[x]`."""

    remove: tuple[Op, ...]
    insert: tuple[Op, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    rename: dict[str, str] = field(default_factory=dict)


def unused(name: str, graph: Graph, new: Container[str] = ()) -> str:
    """`name`, with ' appended until it is neither a tensor of the graph nor in `new`."""
    while name in graph.tensors or name in new:
        name += "'"
    return name


Rule = Callable[[Op, Graph], Edit | None]


def rewrite(graph: Graph, rules: Sequence[Rule]) -> Graph:
    """Apply the rules until none matches. Of edits that touch the same tensors, one is applied per sweep."""
    while True:
        edits, touched = [], set[str]()
        for op in graph.ops:
            if op.outputs[0] in touched:
                continue
            edit = next((e for rule in rules if (e := rule(op, graph)) is not None), None)
            if edit is None or touched & (reach := _reach(edit, graph)):
                continue
            edits.append(edit)
            touched |= reach
        if not edits:
            return graph
        graph = _apply(graph, edits)


def _reach(edit: Edit, graph: Graph) -> set[str]:
    """The tensors whose producers or readers an edit changes, and its new tensors.

    Graph inputs do not count as read: they have no producer, so edits of their readers are independent.
    """
    ops = (*edit.remove, *edit.insert)
    read = {n for op in ops for n in op.inputs}.difference(graph.inputs)
    written = {n for op in ops for n in op.outputs} | {t.name for t in edit.tensors}
    return read | written | edit.rename.keys() | set(edit.rename.values())


def _apply(graph: Graph, edits: Sequence[Edit]) -> Graph:
    removed = {op.outputs[0] for e in edits for op in e.remove}
    inserted = {e.remove[-1].outputs[0]: e.insert for e in edits}
    ops: list[Op] = []
    for op in graph.ops:
        ops += inserted.get(op.outputs[0], ()) if op.outputs[0] in removed else (op,)
    names = {old: new for e in edits for old, new in e.rename.items()}
    pool = {**graph.tensors, **{t.name: t for e in edits for t in e.tensors}}
    return drop_dead(sort_ops(rename(replace(graph, ops=tuple(ops), tensors=pool), names)))


def drop_dead(graph: Graph) -> Graph:
    """Remove ops that no output needs."""
    needed, kept = set(graph.outputs), list[Op]()
    for op in reversed(graph.ops):
        if needed.intersection(op.outputs):
            kept.append(op)
            needed.update(op.inputs)
    return graph.with_ops(reversed(kept))


SUMS = ("conv2d", "depthwise_conv2d", "dense", "transpose_conv2d")  # sums of products: weights, then a bias
OPEN = (None, None)


def fold_constant(op: Op, graph: Graph) -> Edit | None:
    """Compute an op whose operands are all constants.

    Ops that only move values of one scale keep it. TFLite's quantised ops are computed in integers, ONNX's in floats.
    """
    operands = [graph.tensors[n] for n in op.inputs]
    if op.kind == "copy":  # writes a constant output of the graph
        return None
    if not operands or not all(t.constant for t in operands):
        return None
    spec, first, y = ops.SPECS[op.kind], operands[0], graph.tensors[op.outputs[0]]
    quantised = [t for t in operands if t.quant is not None]
    one = all(t.quant == first.quant or (t.quant is None and t.dtype != "float32") for t in operands)
    moved = spec.exact and one and first.quant is not None and first.quant.per_tensor
    settled = op.kind == "dequantize" or (graph.arithmetic.fixed_point and y.dtype != "float32")
    single = operands[:1] if op.kind in SUMS else operands  # weights may have a scale for each channel
    settled = settled and all(t.quant is None or t.quant.per_tensor for t in single)
    if quantised and not (moved or settled):
        real = y.dtype == "float32" or (graph.arithmetic.rounds_once and op.kind == "quantize")
        if not real or op.kind == "dequantize" or (spec.exact and one):
            return None  # weights with a scale for each channel keep them
        values = {t.name: Tensor(t.name, t.shape, "float32", None, real_values(t)) for t in quantised}
        graph = replace(graph, tensors={**graph.tensors, **values})
        operands = [graph.tensors[n] for n in op.inputs]
    quant = first.quant if moved else y.quant
    data = np.asarray(spec.reference(op, graph, *(t.data for t in operands)), order="C")
    if y.name in graph.outputs:
        source = Tensor(unused(f"{y.name}@constant", graph), data.shape, y.dtype, quant, data)
        return Edit((op,), (Op("copy", op.name, (source.name,), op.outputs, {}, op.origin),), (source,))
    return Edit((op,), (), (Tensor(y.name, data.shape, y.dtype, quant, data),))


def constant_second(op: Op, graph: Graph) -> Edit | None:
    """Make the constant the second operand of a sum or product."""
    if op.kind in ("add", "mul") and graph.tensors[op.inputs[0]].constant and not graph.tensors[op.inputs[1]].constant:
        return Edit((op,), (replace(op, inputs=(op.inputs[1], op.inputs[0])),))
    return None


def _per_channel(op: Op, graph: Graph) -> Array | None:
    """A constant second operand as one float per channel of the last dimension; None if it has another shape."""
    y, c = graph.tensors[op.outputs[0]], graph.tensors[op.inputs[1]]
    if c.data is None or (c.quant is None and c.dtype != "float32") or not y.shape:
        return None
    if c.elements != 1 and (not c.shape or c.elements != c.shape[-1] or c.shape[-1] != y.shape[-1]):
        return None
    return np.broadcast_to(real_values(c).ravel(), (y.shape[-1],))


def _sum_before(op: Op, graph: Graph) -> Op | None:
    """The unclamped float sum of products that only `op` reads, if its weights are float or have zero points of 0."""
    first = graph.producers.get(op.inputs[0])
    if first is None or first.kind not in SUMS or first.attrs["clamp"] != OPEN:
        return None
    weights, real = graph.tensors[first.inputs[1]], graph.tensors[first.outputs[0]].dtype == "float32"
    plain = weights.data is not None and (weights.quant is None or not any(weights.quant.zero_point))
    return first if real and plain and graph.only_consumer(first.outputs[0]) is op else None


def fold_scale(op: Op, graph: Graph) -> Edit | None:
    """mul(sum of products, constant per channel): fold into weights and bias (batch normalisation's scale).

    Not if a folded weight overflows float32: the original result may still be finite for small inputs.
    """
    if op.kind != "mul" or (factor := _per_channel(op, graph)) is None or (first := _sum_before(op, graph)) is None:
        return None
    factors = [_weights_times(factor, graph.tensors[first.inputs[1]], first, op)]
    for bias in (graph.tensors[n] for n in first.inputs[2:]):
        with np.errstate(over="ignore", invalid="ignore"):
            factors.append(_derived(bias, real_values(bias).ravel() * factor, op))
    new = tuple(t for t in factors if t is not None and np.isfinite(t.array).all())
    inputs = (first.inputs[0], *(t.name for t in new))
    joined = replace(first, inputs=inputs, outputs=op.outputs, attrs=_merged(first, op))
    return Edit((first, op), (joined,), new) if len(new) == len(factors) else None


def _weights_times(factor: Array, w: Tensor, first: Op, op: Op) -> Tensor | None:
    """Weights times a factor per channel. In quantised weights the scales take its magnitude, the integers its sign.

    None if the integers or the float32 scales overflow.
    """
    along = len(w.shape) - 1 if first.kind == "depthwise_conv2d" else 0
    shape = [-1 if d == along else 1 for d in range(len(w.shape))]
    with np.errstate(over="ignore", invalid="ignore"):
        if w.quant is None:
            return _derived(w, w.array * factor.reshape(shape), op)
        steps = w.array.astype(np.int64) * np.sign(factor).astype(np.int64).reshape(shape)
        scale = np.array(w.quant.scale) * np.where(factor == 0, abs(factor).max() or 1.0, abs(factor))
    fits = steps.max(initial=0) <= limits(w.dtype)[1] and (scale <= np.finfo(np.float32).max).all()
    if not fits or w.quant.axis not in (None, along):
        return None
    quant = Quant(tuple(scale.tolist()), (0,) * len(scale), along)
    return Tensor(f"{w.name}@{op.outputs[0]}", w.shape, w.dtype, quant, steps.astype(w.dtype))


def fold_offset(op: Op, graph: Graph) -> Edit | None:
    """add(sum of products, constant per channel): fold into the bias (batch normalisation's offset)."""
    if op.kind != "add" or (offset := _per_channel(op, graph)) is None or (first := _sum_before(op, graph)) is None:
        return None
    total = offset
    if len(first.inputs) > 2:
        with np.errstate(over="ignore", invalid="ignore"):
            total = offset + real_values(graph.tensors[first.inputs[2]]).ravel()
        if not np.isfinite(total).all():
            return None
    bias = _derived(graph.tensors[op.inputs[1]], np.ascontiguousarray(total), op)
    joined = replace(first, inputs=(*first.inputs[:2], bias.name), outputs=op.outputs, attrs=_merged(first, op))
    return Edit((first, op), (joined,), (bias,))


def _derived(t: Tensor, data: Array, op: Op) -> Tensor:
    return Tensor(f"{t.name}@{op.outputs[0]}", data.shape, "float32", None, data.astype(np.float32))


def _merged(first: Op, second: Op) -> dict[str, Any]:
    """The first op's attributes with the intersection of both ops' clamps."""
    (a, b), (c, d) = first.attrs["clamp"], second.attrs["clamp"]
    low = max((v for v in (a, c) if v is not None), default=None)
    high = min((v for v in (b, d) if v is not None), default=None)
    return {**first.attrs, "clamp": (low, high)}


def fuse_clamp(op: Op, graph: Graph) -> Edit | None:
    """clamp(op(x)): move the clamp into the op, if both results have the same quantisation or none."""
    first = graph.producers.get(op.inputs[0]) if op.kind == "clamp" else None
    if first is None or not ops.SPECS[first.kind].clamps or graph.only_consumer(first.outputs[0]) is not op:
        return None
    x, y = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if x.quant != y.quant or first.attrs.get("as_stored"):  # the first op's bounds are of another quantisation
        return None
    attrs = _merged(first, op)
    low, high = attrs["clamp"]
    if low is not None and high is not None and low > high:
        return None
    return Edit((first, op), (replace(first, outputs=op.outputs, attrs=attrs),))


def drop_clamp(op: Op, graph: Graph) -> Edit | None:
    """Drop a clamp without bounds."""
    if op.kind != "clamp" or op.attrs["clamp"] != OPEN or op.outputs[0] in graph.outputs:
        return None
    if graph.tensors[op.inputs[0]].quant != graph.tensors[op.outputs[0]].quant:
        return None
    return Edit((op,), rename={op.outputs[0]: op.inputs[0]})


def fuse_pad(op: Op, graph: Graph) -> Edit | None:
    """conv(pad(x)): move the padding into the convolution, if it is of zeros along rows and columns.

    A transpose from NCHW may be between them, or a reshape that equals it for one channel.
    """
    if op.kind not in ("conv2d", "depthwise_conv2d"):
        return None
    turn = graph.producer(op.inputs[0], "transpose") or graph.producer(op.inputs[0], "reshape")
    first = graph.producer(turn.inputs[0] if turn is not None else op.inputs[0], "pad")
    if first is None or first.attrs["value"] is not None or len(first.attrs["pads"]) != 4:
        return None
    x, pads, source = graph.tensors[first.inputs[0]], first.attrs["pads"], first.inputs
    between: tuple[Op, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    if turn is not None:
        perm = turn.attrs.get("perm", (0, 2, 3, 1))
        wide = graph.tensors[first.outputs[0]].shape
        turned = graph.tensors[op.inputs[0]].shape
        if turn.kind == "reshape" and (wide[1] != 1 or turned != tuple(wide[p] for p in perm)):
            return None
        shape, pads = tuple(x.shape[p] for p in perm), tuple(pads[p] for p in perm)
        attrs = {"shape": shape} if turn.kind == "reshape" else turn.attrs
        origin = after_move(x, turn.kind, shape if turn.kind == "reshape" else perm)
        inner = replace(x, name=unused(f"{op.outputs[0]}@in", graph), shape=shape, origin=origin)
        between, tensors = (replace(turn, inputs=source, outputs=(inner.name,), attrs=attrs),), (inner,)
        source = (inner.name,)
    if any(pads[0]) or any(pads[3]):
        return None
    top, left, bottom, right = op.attrs["pad"]
    pad = (top + pads[1][0], left + pads[2][0], bottom + pads[1][1], right + pads[2][1])
    conv = replace(op, inputs=(*source, *op.inputs[1:]), attrs={**op.attrs, "pad": pad})
    return Edit((op,), (*between, conv), tensors)


def drop_taps(op: Op, graph: Graph) -> Edit | None:
    """Drop outer rows and columns of a window that are in the padding for every output: their products are 0."""
    w = graph.tensors[op.inputs[1]] if op.kind in ("conv2d", "depthwise_conv2d") else None
    if w is None or w.data is None or len(w.shape) != 4:
        return None
    x, y, attrs = graph.tensors[op.inputs[0]], graph.result(op), op.attrs
    kept, pad, ends = list[slice](), list[int](), list[int]()
    for i in (0, 1):
        taps, size, stride, dilation, before = (
            w.shape[1 + i], x.shape[1 + i], attrs["stride"][i], attrs["dilation"][i], attrs["pad"][i],
        )  # fmt: skip
        begins = range(-before, y.shape[1 + i] * stride - before, stride)
        inside = [t for t in range(taps) if any(0 <= b + t * dilation < size for b in begins)]
        if not inside or before < 0:
            return None
        first, past = min(inside[0], before // dilation), inside[-1] + 1
        kept, pad = [*kept, slice(first, past)], [*pad, before - first * dilation]
        ends.append(max(0, begins[-1] + (past - 1) * dilation + 1 - size))
        reach = (past - first - 1) * dilation + 1
        if (size + pad[i] + ends[i] - reach) // stride + 1 != y.shape[1 + i]:
            return None
    data = w.data[:, kept[0], kept[1]]
    if data.shape == w.shape:
        return None
    window = replace(w, name=unused(f"{w.name}@inside", graph), shape=data.shape, data=np.ascontiguousarray(data))
    return Edit(
        (op,),
        (replace(op, inputs=(op.inputs[0], window.name, *op.inputs[2:]), attrs={**attrs, "pad": (*pad, *ends)}),),
        (window,),
    )


FOLDING = (fold_constant, constant_second, fold_scale, fold_offset, fuse_pad, fuse_clamp, drop_clamp)


# Transposes and reshapes are moved towards the outputs until they meet their inverse, or are folded into constants.

MOVES = ("transpose", "reshape")


def drop_identity(op: Op, graph: Graph) -> Edit | None:
    """Drop a transpose, reshape, take, slice or cast without effect; outputs of the graph keep their name."""
    if op.kind not in (*MOVES, "take", "slice", "cast") or graph.tensors[op.inputs[0]].constant:
        return None
    x, y = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    turns = op.kind == "transpose" and op.attrs["perm"] != tuple(range(len(x.shape)))
    if turns or any(op.attrs.get("index", ())) or (x.shape, x.quant, x.dtype) != (y.shape, y.quant, y.dtype):
        return None
    if y.name not in graph.outputs:
        return Edit((op,), rename={y.name: x.name})
    source = graph.producers.get(x.name)
    if source is None or x.name in graph.outputs:
        return None
    return Edit((source, op), (replace(source, outputs=(y.name,)),), rename={x.name: y.name})


def transpose_as_reshape(op: Op, graph: Graph) -> Edit | None:
    """Replace a transpose that only moves dimensions of size 1 by a reshape: the elements keep their order."""
    if op.kind != "transpose" or graph.tensors[op.inputs[0]].constant:
        return None
    shape = graph.tensors[op.inputs[0]].shape
    if [p for p in op.attrs["perm"] if shape[p] > 1] != sorted(p for p in op.attrs["perm"] if shape[p] > 1):
        return None
    return Edit((op,), (replace(op, kind="reshape", attrs={"shape": graph.tensors[op.outputs[0]].shape}),))


def merge_transposes(op: Op, graph: Graph) -> Edit | None:
    """Merge two successive transposes."""
    first = graph.producer(op.inputs[0], "transpose") if op.kind == "transpose" else None
    if first is None:
        return None
    perm = tuple(first.attrs["perm"][p] for p in op.attrs["perm"])
    return Edit((op,), (replace(op, inputs=first.inputs, attrs={"perm": perm}),))


def merge_reshapes(op: Op, graph: Graph) -> Edit | None:
    """Merge two successive reshapes."""
    first = graph.producer(op.inputs[0], "reshape") if op.kind == "reshape" else None
    return Edit((op,), (replace(op, inputs=first.inputs),)) if first is not None else None


def sink_transpose(op: Op, graph: Graph) -> Edit | None:
    """f(transpose(x), transpose(y), constant) = transpose(f(x, y, constant')) for elementwise f, concat, pad, mean.

    Scalar operands do not change.
    """
    if op.kind in MOVES or op.kind == "dequantize":
        return None
    moving = [n for n in op.inputs if not graph.tensors[n].constant and graph.tensors[n].shape]
    sources = [graph.producer(n, "transpose") for n in moving]
    perms = {s.attrs["perm"] for s in sources if s is not None}
    if not moving or None in sources or len(perms) != 1:
        return None
    (perm,) = perms
    attrs = _attrs_before(op, perm)
    if attrs is None and not _elementwise(op, graph):
        return None
    constants, inputs = [], []
    for name in op.inputs:
        if not graph.tensors[name].constant:
            inputs.append(graph.producers[name].inputs[0] if name in moving else name)
            continue
        constants.append(_constant_before(graph.tensors[name], perm, op.outputs[0]))
        inputs.append(constants[-1].name)
    y = graph.tensors[op.outputs[0]]
    averaged = attrs["axes"] if attrs is not None and "axes" in attrs else ()
    kept = [p for p in perm if p not in averaged]
    after = tuple(sorted(kept).index(p) for p in kept)
    inner_shape = tuple(y.shape[after.index(d)] for d in range(len(after)))
    before = after_move(y, "transpose", tuple(after.index(d) for d in range(len(after))))
    inner = replace(y, name=unused(f"{y.name}@nhwc", graph), shape=inner_shape, origin=before)
    moved = replace(op, inputs=tuple(inputs), outputs=(inner.name,), attrs=attrs if attrs is not None else op.attrs)
    back = Op("transpose", op.name, (inner.name,), (y.name,), {"perm": after}, op.origin)
    return Edit((op,), (moved, back), (inner, *constants))


def _elementwise(op: Op, graph: Graph) -> bool:
    spec = ops.SPECS[op.kind]
    if "index" in op.attrs or spec.view or spec.part is not unchanged:  # attributes depend on the order of dimensions
        return False
    relation = ops.nest(op, graph)
    operands = [(i, graph.tensors[n]) for i, n in enumerate(op.inputs)]
    return all(elementwise(relation, i) for i, t in operands if not t.constant and t.shape)


def _attrs_before(op: Op, perm: tuple[int, ...]) -> dict[str, Any] | None:
    """Attributes of the op if it runs before the transpose; None for ops without attributes by axis."""
    if op.kind == "concat":
        return {**op.attrs, "axis": perm[op.attrs["axis"]]}
    if op.kind == "pad":
        return {**op.attrs, "pads": tuple(op.attrs["pads"][perm.index(d)] for d in range(len(perm)))}
    if "axes" in op.attrs:
        return {**op.attrs, "axes": tuple(sorted(perm[a] for a in op.attrs["axes"]))}
    return None


def _constant_before(t: Tensor, perm: tuple[int, ...], user: str) -> Tensor:
    """The constant whose transpose by `perm` is `t`, with the rank of `perm`."""
    wide = t.array.reshape((1,) * (len(perm) - len(t.shape)) + t.shape)
    data = np.ascontiguousarray(wide.transpose(np.argsort(perm)))
    quant = t.quant
    if quant is not None and quant.axis is not None:
        quant = Quant(quant.scale, quant.zero_point, perm[quant.axis + len(perm) - len(t.shape)])
    return Tensor(f"{t.name}@{user}", data.shape, t.dtype, quant, data)


def reshape_before_elementwise(op: Op, graph: Graph) -> Edit | None:
    """clamp(reshape(x)) = reshape(clamp(x)), and likewise all elementwise ops of one operand.

    This brings activations and quantisations next to the op that computes x, so that they can be fused.
    """
    fits = len(op.inputs) == 1 and op.kind not in MOVES and op.kind != "dequantize"
    first = graph.producer(op.inputs[0], "reshape") if fits else None
    if first is None or graph.only_consumer(op.inputs[0]) is None or not _elementwise(op, graph):
        return None
    x, y = graph.tensors[first.inputs[0]], graph.tensors[op.outputs[0]]
    before = after_move(y, "reshape", x.shape)
    inner = replace(y, name=unused(f"{y.name}@flat", graph), shape=x.shape, origin=before)
    moved = replace(op, inputs=(x.name,), outputs=(inner.name,))
    return Edit((first, op), (moved, replace(first, inputs=(inner.name,), outputs=(y.name,))), (inner,))


def dequantize_last(op: Op, graph: Graph) -> Edit | None:
    """transpose(dequantize(x)) = dequantize(transpose(x)), and likewise reshape, take and pad with zeros.

    With the two rules above this moves quantize up to the op that computes a value, and dequantize down to the op
    that reads it.
    """
    moves = op.kind in MOVES or (op.kind in ("take", "pad") and op.attrs.get("value") is None)
    first = graph.producer(op.inputs[0], "dequantize") if moves else None
    if first is None:
        return None
    x, y = graph.tensors[first.inputs[0]], graph.tensors[op.outputs[0]]
    inner = Tensor(unused(f"{y.name}@int8", graph), y.shape, x.dtype, x.quant, origin=origin_of(y))
    moved = replace(op, inputs=(x.name,), outputs=(inner.name,))
    return Edit((op,), (moved, replace(first, inputs=(inner.name,), outputs=(y.name,))), (inner,))


def flatten_into_dense(op: Op, graph: Graph) -> Edit | None:
    """dense(reshape(transpose(x))) = dense'(reshape(x)), with the weights' columns permuted accordingly."""
    if op.kind != "dense":
        return None
    flat = graph.producer(op.inputs[0], "reshape")
    turn = graph.producer(flat.inputs[0], "transpose") if flat is not None else None
    w = graph.tensors[op.inputs[1]]
    if flat is None or turn is None or w.data is None:
        return None
    x, turned = graph.tensors[turn.inputs[0]], graph.tensors[flat.inputs[0]]
    if graph.tensors[op.inputs[0]].shape != (1, x.elements):
        return None
    columns = w.data.reshape(w.shape[0], *turned.shape).transpose(0, *(1 + np.argsort(turn.attrs["perm"])))
    weights = replace(w, name=f"{w.name}@{op.outputs[0]}", data=np.ascontiguousarray(columns.reshape(w.shape)))
    origin = after_move(x, "reshape", (1, x.elements))
    straight = Tensor(unused(f"{x.name}@flat", graph), (1, x.elements), x.dtype, x.quant, origin=origin)
    reshape = replace(flat, inputs=(x.name,), outputs=(straight.name,), attrs={"shape": straight.shape})
    dense = replace(op, inputs=(straight.name, weights.name, *op.inputs[2:]))
    return Edit((op,), (reshape, dense), (straight, weights))


TRANSPOSES = (
    drop_identity,
    merge_reshapes,
    transpose_as_reshape,
    merge_transposes,
    flatten_into_dense,
    sink_transpose,
    dequantize_last,
    reshape_before_elementwise,
)


SHIFTED = ("conv2d", "depthwise_conv2d", "dense")  # sums that a multiplication and a shift may requantise
NEAR = 0.25  # steps by which rounding of a constant may change a result, in addition to the result's own rounding


def integer_op(op: Op, graph: Graph) -> Edit | None:
    """Make an op integer if all its operands are dequantised and its result is quantised once."""
    spec, y = ops.SPECS[op.kind], op.outputs[0]
    quantize = graph.only_consumer(y)
    if spec.float_only or quantize is None or quantize.kind != "quantize":
        return None
    inputs, constants, others = list[str](), list[Tensor](), set[str]()
    for position, name in enumerate(op.inputs):
        t = graph.tensors[name]
        source = graph.producer(name, "dequantize")
        bias = position == 2 and op.kind in SUMS
        if source is not None:
            inputs.append(source.inputs[0])
        elif t.constant and t.quant is not None and (t.dtype == "int32" or not bias):
            inputs.append(name)
        elif bias and t.constant:
            x, w = (graph.tensors[n] for n in inputs)
            constants += _weights_and_bias(t, x, w, op)
            inputs[1:] = [c.name for c in constants]
        elif (
            small := _quantised(t, op, graph.tensors[inputs[0]] if inputs else t, graph.result(quantize))
        ) is not None:
            constants.append(small)
            inputs.append(small.name)
        elif t.dtype not in ("float32", "int8", "int16"):  # indices, conditions
            inputs.append(name)
            others.add(name)
        else:
            return None
    joined = replace(op, inputs=tuple(inputs), outputs=quantize.outputs)
    wider = replace(graph, tensors={**graph.tensors, **{t.name: t for t in constants}})
    same = graph.arithmetic.rounds_once or _equal_in_floats(joined, wider, others)
    return Edit((op, quantize), (joined,), tuple(constants)) if same and _has_form(joined, wider, others) else None


def _has_form(op: Op, graph: Graph, others: set[str]) -> bool:
    """Whether the op has an integer form for the types of its operands and result, within its limits.

    `others`: operands that are indices or conditions, not values.
    """
    spec = ops.SPECS[op.kind]
    types = [graph.tensors[n].dtype for n in (*op.inputs, *op.outputs) if n not in others]
    if op.kind in SUMS:
        supported = {types[0], types[1]} <= {"int8", "int16"} and types[-1] in spec.integers
    else:
        supported = len(set(types)) == 1 and (spec.exact or types[0] in spec.integers)
    limited = not spec.exact and check_limits(spec, op, graph) is not None  # exact ops get a requantize later
    return supported and not limited and (op.kind not in SUMS or sums_fit(op, graph))


def _equal_in_floats(op: Op, graph: Graph, others: set[str]) -> bool:
    """Whether the integer op equals dequantize, float op and quantize in TFLite's fixed-point arithmetic.

    This holds for moves and clamps within one quantisation, and for int8 functions whose table is computed in floats.
    """
    quants = {graph.tensors[n].quant for n in (*op.inputs, *op.outputs) if n not in others}
    if ops.SPECS[op.kind].exact or op.kind == "clamp":
        return len(quants) == 1
    table = op.kind == "pointwise" and len(op.inputs) == 1 and graph.result(op).dtype == "int8"
    return table and op.attrs["function"] not in TABLES


def _weights_and_bias(t: Tensor, x: Tensor, w: Tensor, op: Op) -> tuple[Tensor, Tensor]:
    """Weights, and the bias in steps of scale(x) * scale(w): int64 for int16 inputs, else int32.

    Small int8 weights are multiplied by the largest power of two for which weights and bias still fit. The finer scale
    rounds the bias less.
    """
    steps = real_values(t).astype(np.float64).ravel() / np.array(bias_quant(x, w).scale)
    if x.dtype == w.dtype == "int8" and w.data is not None and w.quant is not None:
        most, least = int(np.abs(w.data.astype(np.int16)).max(initial=0)), np.abs(steps).max(initial=0)
        times = max((1 << k for k in range(1, 7) if most << k <= 127 and least * (1 << k) < 2**30), default=1)
        quant = replace(w.quant, scale=tuple(s / times for s in w.quant.scale))
        w = replace(w, name=f"{w.name}@{times}", quant=quant, data=w.data * np.int8(times)) if times > 1 else w
        steps *= times
    dtype, most = ("int64", 2**46) if x.dtype == "int16" else ("int32", 2**31)
    data = np.clip(np.nan_to_num(np.rint(steps), nan=most), -most, most - 1).astype(dtype)
    return w, Tensor(f"{t.name}@{op.outputs[0]}", data.shape, dtype, bias_quant(x, w), data)


def _quantised(t: Tensor, op: Op, x: Tensor, y: Tensor) -> Tensor | None:
    """The float operand of an add or mul quantised to int8: 255 steps over its range, which includes 0.

    None if this could change y by more than `NEAR` steps; the op then stays in float.
    """
    if t.data is None or t.quant is not None or t.dtype != "float32" or op.kind not in ("add", "mul"):
        return None
    if x.quant is None or y.quant is None or not np.isfinite(t.data).all():
        return None
    low, high = min(0.0, float(t.data.min())), max(0.0, float(t.data.max()))
    scale = (high - low) / 255 or 1.0
    zero = round(-128 - low / scale)
    data = np.clip(np.rint(t.data / scale) + zero, -128, 127).astype(np.int8)
    most = max(abs(end - x.quant.zero_point[0]) for end in limits(x.dtype)) * x.quant.scale[0]
    error = np.abs((data.astype(np.float64) - zero) * scale - t.data).max() * (most if op.kind == "mul" else 1.0)
    if error > NEAR * y.quant.scale[0]:
        return None
    return Tensor(f"{t.name}@{op.outputs[0]}", t.shape, "int8", Quant((scale,), (zero,)), data)


def centred_weights(op: Op, graph: Graph) -> Edit | None:
    """Subtract the zero point from quantised weights: int8 if the result fits, else int16."""
    w = graph.tensors[op.inputs[1]] if op.kind in SUMS else None
    if w is None or w.data is None or w.quant is None or not any(w.quant.zero_point):
        return None
    without = replace(centred(w), name=unused(f"{w.name}@centred", graph))
    return Edit((op,), (replace(op, inputs=(op.inputs[0], without.name, *op.inputs[2:])),), (without,))


def requantize_moves(op: Op, graph: Graph) -> Edit | None:
    """Add requantize ops around an int8 op that only moves or selects values, so that it need not change their scale.

    One operand: the requantize follows the op. Several: each operand is requantised to the result's scale first, and
    constants are converted here. So is the operand of a pad with a float border, which may be between its steps.
    Not in TFLite, whose kernels move the integers unchanged even if scales differ.
    """
    spec, y = ops.SPECS[op.kind], graph.tensors[op.outputs[0]]
    if not spec.exact or y.quant is None or graph.arithmetic.fixed_point:
        return None
    values = {n: t for n in op.inputs if (t := graph.tensors[n]).quant is not None}
    wrong = {n: t for n, t in values.items() if t.quant != y.quant}
    if not wrong:
        return None
    ((_, x), *_) = wrong.items()
    bordered = op.kind == "pad" and isinstance(op.attrs["value"], float) and x.dtype == y.dtype
    if len(values) == 1 and not x.constant and not bordered:
        inner = replace(y, name=f"{y.name}@own", quant=x.quant, origin=None)
        after = Op("requantize", op.name, (inner.name,), (y.name,), {}, op.origin)
        return Edit((op,), (replace(op, outputs=(inner.name,)), after), (inner,))
    new = {n: replace(_in_steps_of(t, y), name=f"{n}@{y.name}", origin=None) for n, t in wrong.items()}
    before = [Op("requantize", op.name, (n,), (t.name,), {}, op.origin) for n, t in new.items() if not t.constant]
    moved = replace(op, inputs=tuple(new[n].name if n in new else n for n in op.inputs))
    return Edit((op,), (*before, moved), tuple(new.values()))


def _in_steps_of(t: Tensor, y: Tensor) -> Tensor:
    """The tensor with the quantisation of `y`; a constant's values are requantised."""
    assert y.quant is not None
    if t.data is None:
        return replace(t, quant=y.quant)
    steps = np.rint(real_values(t) / np.float32(y.quant.scale[0])) + y.quant.zero_point[0]
    return replace(t, dtype=y.dtype, quant=y.quant, data=np.clip(steps, *limits(y.dtype)).astype(y.dtype))


def quantize_of_dequantize(op: Op, graph: Graph) -> Edit | None:
    """quantize(dequantize(x)): drop both if the scales are equal, else replace them by one requantize."""
    first = graph.producer(op.inputs[0], "dequantize") if op.kind == "quantize" else None
    if first is None:
        return None
    x, y = graph.tensors[first.inputs[0]], graph.tensors[op.outputs[0]]
    if (x.quant, x.dtype) == (y.quant, y.dtype):
        return None if op.outputs[0] in graph.outputs else Edit((op,), rename={y.name: x.name})
    if graph.arithmetic.fixed_point:  # a requantize would round in fixed point
        return None
    return Edit((op,), (Op("requantize", op.name, first.inputs, op.outputs, {}, op.origin),))


def saturating_clamp(op: Op, graph: Graph) -> Edit | None:
    """quantize(clamp(x)) = quantize(x) if the integer range is within the clamp, as for ReLU and zero point -128."""
    quantize = graph.only_consumer(op.outputs[0]) if op.kind == "clamp" else None
    if quantize is None or quantize.kind != "quantize":
        return None
    quant = graph.tensors[quantize.outputs[0]].quant
    assert quant is not None
    low, high = op.attrs["clamp"]
    lowest, highest = (
        (q - quant.zero_point[0]) * quant.scale[0] for q in limits(graph.tensors[quantize.outputs[0]].dtype)
    )
    if (low is None or lowest >= low) and (high is None or highest <= high):
        return Edit((op,), rename={op.outputs[0]: op.inputs[0]})
    return None


def quantised_input(op: Op, graph: Graph) -> Edit | None:
    """Make a float input whose only reader quantises it an int8 input, which the application quantises.

    Not for states, whose input and output may have different scales.
    """
    if op.kind != "quantize" or op.inputs[0] not in graph.ports_in or graph.only_consumer(op.inputs[0]) is not op:
        return None
    x, y = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if op.outputs[0] in graph.outputs:
        return None
    return Edit((op,), rename={y.name: x.name}, tensors=(replace(x, dtype=y.dtype, quant=y.quant),))


def dequantised_output(op: Op, graph: Graph) -> Edit | None:
    """Make the int8 operand of a final dequantize the graph's output; the header gives its scale."""
    if op.kind != "dequantize" or op.outputs[0] not in graph.ports_out or graph.consumers[op.outputs[0]]:
        return None
    source = graph.producers.get(op.inputs[0])
    if source is None or op.inputs[0] in graph.outputs or len(graph.consumers[op.inputs[0]]) > 1:
        return None
    y = graph.tensors[op.outputs[0]]
    x = graph.tensors[op.inputs[0]]
    result = replace(y, dtype=x.dtype, quant=x.quant)
    return Edit((source, op), (replace(source, outputs=(y.name,)),), (result,))


def dequantise_constants(op: Op, graph: Graph) -> Edit | None:
    """Dequantise constants of an op that stayed in float, except weights that its kernel reads as integers."""
    values = [graph.tensors[n] for n in (*op.inputs, *op.outputs)]
    if op.kind == "dequantize" or not any(t.dtype == "float32" and not t.constant for t in values):
        return None
    stay = op.inputs[1:2] if op.kind in SUMS and symmetric_weights(op, graph) is None else ()
    operands = {n: graph.tensors[n] for n in op.inputs if n not in stay}
    new = {n: t for n, t in operands.items() if t.constant and t.quant is not None}
    if not new:
        return None
    real = {n: Tensor(f"{n}@real", t.shape, "float32", None, real_values(t)) for n, t in new.items()}
    inputs = tuple(real[n].name if n in real else n for n in op.inputs)
    return Edit((op,), (replace(op, inputs=inputs),), tuple(real.values()))


def shifted_sums(op: Op, graph: Graph) -> Edit | None:
    """shifted_product(int32 sums, perhaps plus a constant): fold into the sums as their requantisation.

    Channels with a negative factor get weights of opposite sign, those with a factor of 0 weights of 0.
    """
    if op.attrs.get("function") != "shifted_product":
        return None
    chain = _sums_before(op, graph)
    if chain is None:
        return None
    first, before = chain[0], [graph.tensors[o.inputs[1]] for o in chain[1:]]
    (x, w, *bias), y, total = graph.operands(first), graph.result(op), graph.result(first)
    whole = [t.quant.scale if t.quant is not None else () for t in (x, w, total)]
    types = (x.dtype, w.dtype, total.dtype, y.quant is None)
    if types != ("int8", "int8", "int32", False) or whole != [(1.0,)] * 3 or first.attrs["clamp"] != OPEN:
        return None
    if total.shape != y.shape:  # the factors broadcast the sums
        return None
    count, numbers = y.shape[-1], [*(graph.tensors[n] for n in op.inputs[1:]), *before]
    if any(t.data is None or (t.elements != 1 and (t.elements, *t.shape[-1:]) != (count, count)) for t in numbers):
        return None
    factor, more, *start = (np.broadcast_to(t.array.ravel().astype(np.int64), count) for t in numbers)
    axis = w.shape.index(count, 3) if first.kind == "depthwise_conv2d" else 0
    sign, along = np.sign(factor), [-1 if d == axis else 1 for d in range(len(w.shape))]
    signed = w.array * sign.reshape(along)
    begin = sign * sum((b.array.ravel().astype(np.int64) for b in bias), np.zeros(count, np.int64) + sum(start))
    if signed.max(initial=0) > limits("int8")[1] or np.abs(begin).max() > limits("int32")[1]:
        return None
    scales = tuple((np.maximum(np.abs(factor), 1) * 0.5 ** op.attrs["bits"]).tolist())
    weights = replace(w, name=unused(f"{w.name}@{y.name}", graph), quant=Quant(scales, (0,) * count, axis),
                      data=signed.astype(np.int8))  # fmt: skip
    rest = (
        Tensor(f"{y.name}@bias", (count,), "int32", bias_quant(x, weights), begin.astype(np.int32)),
        Tensor(f"{y.name}@added", (count,), "int32", None, more.astype(np.int32)),
    )
    attrs = {**first.attrs, "bits": int(op.attrs["bits"]), "clamp": (op.attrs["low"], op.attrs["high"])}
    inputs = (x.name, weights.name, *(t.name for t in rest))
    return Edit((*chain, op), (replace(first, inputs=inputs, outputs=op.outputs, attrs=attrs),), (weights, *rest))


def _sums_before(op: Op, graph: Graph) -> tuple[Op, ...] | None:
    """Sums of products that only `op` reads, followed by an op that adds a constant to them, if any; else None."""
    first, chain = graph.producers.get(op.inputs[0]), tuple[Op, ...]()
    if first is not None and first.attrs.get("function") == "sum" and graph.only_consumer(first.outputs[0]) is op:
        op, chain = first, (first,)
        first = graph.producers.get(op.inputs[0])
    single = first is not None and first.kind in SHIFTED and graph.only_consumer(first.outputs[0]) is op
    return (first, *chain) if single and first is not None else None


QUANTISING = (saturating_clamp, centred_weights, integer_op, quantize_of_dequantize, requantize_moves)
SURFACE = (quantised_input, dequantised_output)
FLOAT_RULES = (shifted_sums, dequantise_constants)

STAGES = (
    ("transposes", TRANSPOSES),
    ("fold", (*TRANSPOSES, *FOLDING)),
    ("quantise", (*QUANTISING, *TRANSPOSES, *FOLDING)),
    ("surface", (*SURFACE, *TRANSPOSES, *FOLDING)),
    ("float", (*FLOAT_RULES, *FOLDING)),
)


def stages(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """The name and the resulting graph of each stage. `verify` fails on an invalid graph, which is a bug of a rule."""
    for name, rules in STAGES:
        graph = rewrite(drop_dead(graph), rules)
        verify(graph, ops.result_shape)
        yield name, graph


def canonicalize(graph: Graph) -> Graph:
    """Fold constants, fuse ops that one kernel computes, make integer ops of QDQ groups, remove transposes.

    Raises EdgebuildError that names every node beyond the limits of its operator.
    """
    *_, (_, final) = stages(graph)
    problems = [p for op in final.ops if (p := check_limits(ops.SPECS[op.kind], op, final)) is not None]
    if problems:
        raise grouped([d for p in problems for d in p.diagnostics])
    return final
