"""Constants folded, pairs of ops that one kernel computes, and transposes that leave the graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ... import ops
from ...ir import Array, Graph, Op, Quant, Tensor, after_move, origin_of, real_values
from ...ir.axes import elementwise
from ...ops.base import unchanged
from ..rewrite import Edit, unused

SUMS = ("conv2d", "depthwise_conv2d", "dense", "transpose_conv2d")  # sums of products: weights, then a bias
OPEN = (None, None)


def fold_constant(op: Op, graph: Graph) -> Edit | None:
    """An op on constants is a constant.

    A move of values with one scale keeps it. TFLite's quantised ops have an exact meaning; ONNX means real numbers.
    """
    operands = [graph.tensors[n] for n in op.inputs]
    if op.kind == "copy":  # an output of the graph, which is computed
        return None
    if not operands or not all(t.constant for t in operands):
        return None
    spec, first, y = ops.SPECS[op.kind], operands[0], graph.tensors[op.outputs[0]]
    quantised = [t for t in operands if t.quant is not None]
    one = all(t.quant == first.quant or (t.quant is None and t.dtype != "float32") for t in operands)
    moved = spec.exact and one and first.quant is not None and first.quant.per_tensor
    settled = op.kind == "dequantize" or (graph.arithmetic.fixed_point and y.dtype != "float32")
    settled = settled and all(t.quant is None or t.quant.per_tensor for t in operands)
    if quantised and not (moved or settled):
        real = graph.arithmetic.rounds_once and (y.dtype == "float32" or op.kind == "quantize")
        if not real or op.kind == "dequantize" or (spec.exact and one):
            return None  # weights with a scale for each channel keep them
        values = {t.name: Tensor(t.name, t.shape, "float32", None, real_values(t)) for t in quantised}
        graph = replace(graph, tensors={**graph.tensors, **values})
        operands = [graph.tensors[n] for n in op.inputs]
    quant = first.quant if moved else y.quant
    data = np.ascontiguousarray(spec.reference(op, graph, *(t.data for t in operands)))
    if y.name in graph.outputs:
        source = Tensor(unused(f"{y.name}@constant", graph), data.shape, y.dtype, quant, data)
        return Edit((op,), (Op("copy", op.name, (source.name,), op.outputs, {}, op.origin),), (source,))
    return Edit((op,), (), (Tensor(y.name, data.shape, y.dtype, quant, data),))


def constant_second(op: Op, graph: Graph) -> Edit | None:
    """Sums and products have their constant as second operand."""
    if op.kind in ("add", "mul") and graph.tensors[op.inputs[0]].constant and not graph.tensors[op.inputs[1]].constant:
        return Edit((op,), (replace(op, inputs=(op.inputs[1], op.inputs[0])),))
    return None


def _per_channel(op: Op, graph: Graph) -> Array | None:
    """A float constant second operand as one value per channel of the last dimension, if it is that."""
    y, c = graph.tensors[op.outputs[0]], graph.tensors[op.inputs[1]]
    if c.data is None or c.quant is not None or c.dtype != "float32" or not y.shape:
        return None
    if c.elements != 1 and (not c.shape or c.elements != c.shape[-1] or c.shape[-1] != y.shape[-1]):
        return None
    return np.broadcast_to(c.data.ravel(), (y.shape[-1],))


def _sum_before(op: Op, graph: Graph) -> Op | None:
    """The unclamped float sum of products whose only reader is `op`."""
    first = graph.producers.get(op.inputs[0])
    if first is None or first.kind not in SUMS or first.attrs["clamp"] != OPEN:
        return None
    weights = graph.tensors[first.inputs[1]]
    plain = graph.tensors[first.outputs[0]].dtype == "float32" and weights.data is not None and weights.quant is None
    return first if plain and graph.only_consumer(first.outputs[0]) is op else None


def fold_scale(op: Op, graph: Graph) -> Edit | None:
    """mul(sum of products, constant per channel): into weights and bias (batch normalisation's scale)."""
    if op.kind != "mul" or (factor := _per_channel(op, graph)) is None or (first := _sum_before(op, graph)) is None:
        return None
    w = graph.tensors[first.inputs[1]]
    along = -1 if first.kind == "depthwise_conv2d" else 0
    shape = [1] * len(w.shape)
    shape[along] = -1
    scaled = [_derived(w, w.array * factor.reshape(shape), op)]
    if len(first.inputs) > 2:
        bias = graph.tensors[first.inputs[2]]
        scaled.append(_derived(bias, bias.array.ravel() * factor, op))
    joined = replace(
        first, inputs=(first.inputs[0], *(t.name for t in scaled)), outputs=op.outputs, attrs=_merged(first, op)
    )
    return Edit((first, op), (joined,), tuple(scaled))


def fold_offset(op: Op, graph: Graph) -> Edit | None:
    """add(sum of products, constant per channel): into the bias (and batch normalisation's offset)."""
    if op.kind != "add" or (offset := _per_channel(op, graph)) is None or (first := _sum_before(op, graph)) is None:
        return None
    total = offset
    if len(first.inputs) > 2:
        old = graph.tensors[first.inputs[2]].data
        assert old is not None
        total = offset + old.ravel()
    bias = _derived(graph.tensors[op.inputs[1]], np.ascontiguousarray(total), op)
    joined = replace(first, inputs=(*first.inputs[:2], bias.name), outputs=op.outputs, attrs=_merged(first, op))
    return Edit((first, op), (joined,), (bias,))


def _derived(t: Tensor, data: Array, op: Op) -> Tensor:
    return Tensor(f"{t.name}@{op.outputs[0]}", data.shape, "float32", None, data.astype(np.float32))


def _merged(first: Op, second: Op) -> dict[str, Any]:
    """The first op's attributes with both activations: clamp(clamp(x)) as one, where the order allows."""
    (a, b), (c, d) = first.attrs["clamp"], second.attrs["clamp"]
    low = max((v for v in (a, c) if v is not None), default=None)
    high = min((v for v in (b, d) if v is not None), default=None)
    return {**first.attrs, "clamp": (low, high)}


def fuse_clamp(op: Op, graph: Graph) -> Edit | None:
    """clamp(op(x)) = op with that clamp, for float results and for equal quantisation on both sides."""
    first = graph.producers.get(op.inputs[0]) if op.kind == "clamp" else None
    if first is None or not ops.SPECS[first.kind].clamps or graph.only_consumer(first.outputs[0]) is not op:
        return None
    x, y = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if x.quant != y.quant or first.attrs.get("as_stored"):  # the first one's bounds are of another quantisation
        return None
    attrs = _merged(first, op)
    low, high = attrs["clamp"]
    if low is not None and high is not None and low > high:
        return None
    return Edit((first, op), (replace(first, outputs=op.outputs, attrs=attrs),))


def drop_clamp(op: Op, graph: Graph) -> Edit | None:
    """A clamp without bounds."""
    if op.kind != "clamp" or op.attrs["clamp"] != OPEN or op.outputs[0] in graph.outputs:
        return None
    if graph.tensors[op.inputs[0]].quant != graph.tensors[op.outputs[0]].quant:
        return None
    return Edit((op,), rename={op.outputs[0]: op.inputs[0]})


def fuse_pad(op: Op, graph: Graph) -> Edit | None:
    """conv(pad(x)) = conv with that padding, if the border is real zero and lies along rows and columns.

    A transpose from NCHW may stand between, or the reshape that it is where there is one channel.
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
    """The first and the last rows and columns of a window that lie in padding for every output add nothing."""
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


RULES = (fold_constant, constant_second, fold_scale, fold_offset, fuse_pad, fuse_clamp, drop_clamp)


# Transposes and reshapes: moved down until they meet their inverse, dropped or folded into constants.

MOVES = ("transpose", "reshape")


def drop_identity(op: Op, graph: Graph) -> Edit | None:
    """A transpose, reshape, take, slice or cast that changes nothing; outputs of the graph keep their name."""
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
    """A transpose that only moves dimensions of size 1 keeps the order of the elements."""
    if op.kind != "transpose" or graph.tensors[op.inputs[0]].constant:
        return None
    shape = graph.tensors[op.inputs[0]].shape
    if [p for p in op.attrs["perm"] if shape[p] > 1] != sorted(p for p in op.attrs["perm"] if shape[p] > 1):
        return None
    return Edit((op,), (replace(op, kind="reshape", attrs={"shape": graph.tensors[op.outputs[0]].shape}),))


def merge_transposes(op: Op, graph: Graph) -> Edit | None:
    """Two transposes in a row are one."""
    first = graph.producer(op.inputs[0], "transpose") if op.kind == "transpose" else None
    if first is None:
        return None
    perm = tuple(first.attrs["perm"][p] for p in op.attrs["perm"])
    return Edit((op,), (replace(op, inputs=first.inputs, attrs={"perm": perm}),))


def merge_reshapes(op: Op, graph: Graph) -> Edit | None:
    """Two reshapes in a row are one."""
    first = graph.producer(op.inputs[0], "reshape") if op.kind == "reshape" else None
    return Edit((op,), (replace(op, inputs=first.inputs),)) if first is not None else None


def sink_transpose(op: Op, graph: Graph) -> Edit | None:
    """f(transpose(x), transpose(y), constant) = transpose(f(x, y, constant')) for elementwise f, concat, pad, mean.

    Operands of one element without dimensions stay as they are.
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
    if "index" in op.attrs or spec.view or spec.part is not unchanged:  # attributes for the dimensions that it has now
        return False
    relation = ops.nest(op, graph)
    operands = [(i, graph.tensors[n]) for i, n in enumerate(op.inputs)]
    return all(elementwise(relation, i) for i, t in operands if not t.constant and t.shape)


def _attrs_before(op: Op, perm: tuple[int, ...]) -> dict[str, Any] | None:
    """The attributes that the op has in front of the transpose; None for ops that this is not about."""
    if op.kind == "concat":
        return {**op.attrs, "axis": perm[op.attrs["axis"]]}
    if op.kind == "pad":
        return {**op.attrs, "pads": tuple(op.attrs["pads"][perm.index(d)] for d in range(len(perm)))}
    if "axes" in op.attrs:
        return {**op.attrs, "axes": tuple(sorted(perm[a] for a in op.attrs["axes"]))}
    return None


def _constant_before(t: Tensor, perm: tuple[int, ...], user: str) -> Tensor:
    """The constant whose transpose is `t`, broadcast to the rank of the permutation."""
    wide = t.array.reshape((1,) * (len(perm) - len(t.shape)) + t.shape)
    data = np.ascontiguousarray(wide.transpose(np.argsort(perm)))
    quant = t.quant
    if quant is not None and quant.axis is not None:
        quant = Quant(quant.scale, quant.zero_point, perm[quant.axis + len(perm) - len(t.shape)])
    return Tensor(f"{t.name}@{user}", data.shape, t.dtype, quant, data)


def reshape_before_elementwise(op: Op, graph: Graph) -> Edit | None:
    """clamp(reshape(x)) = reshape(clamp(x)), and so for all elementwise ops of one operand.

    Brings activations and quantisations next to the op that computes x, so that they can be fused.
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
    """transpose(dequantize(x)) = dequantize(transpose(x)), and so for reshapes, parts and borders of zeros.

    Together with the two rules above this brings quantize to the op that computes a value and
    dequantize to the op that reads it, whatever moves stand between them.
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
    """dense(reshape(transpose(x))) = dense'(reshape(x)): the weights' columns take the transpose's order."""
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
