"""Transposes and reshapes: moved down until they meet their inverse, dropped or folded into constants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ... import ops
from ...ir import Graph, Op, Quant, Tensor, after_move, origin_of
from ...ir.axes import elementwise
from ...ops.base import unchanged
from ..rewrite import Edit, unused

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


RULES = (
    drop_identity,
    merge_reshapes,
    transpose_as_reshape,
    merge_transposes,
    flatten_into_dense,
    sink_transpose,
    dequantize_last,
    reshape_before_elementwise,
)
