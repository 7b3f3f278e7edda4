"""TRANSPOSE, Transpose: out[i_p0, i_p1, ...] = in[i_0, i_1, ...]."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..axes import Nest, Same
from ..ir import ITEM_BYTES, Array, Graph, Op
from .base import Form, Kernel, Spec


def from_tflite(node: Any) -> None:
    perm = tuple(int(p) for p in np.ravel(node.constant(1, "permutation").data))
    node.emit("transpose", node.inputs[:1], perm=perm)


def from_onnx(node: Any) -> None:
    rank = len(node.tensor(0).shape)
    node.emit("transpose", node.inputs[:1], perm=tuple(node.attr("perm", list(reversed(range(rank))))))


def nest(op: Op, graph: Graph) -> Nest:
    (x,) = graph.operands(op)
    names = tuple(f"i{d}" for d in range(len(x.shape)))
    out = tuple(names[p] for p in op.attrs["perm"])
    return Nest(dict(zip(names, x.shape, strict=True)), out, (tuple(Same(name) for name in names),))


def reference(op: Op, graph: Graph, x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(op.attrs["perm"]))


def valid_permutation(op: Op, graph: Graph) -> str | None:
    """The permutation names every dimension once."""
    rank = len(graph.operands(op)[0].shape)
    return (
        None
        if sorted(op.attrs["perm"]) == list(range(rank))
        else f"permutation {op.attrs['perm']} of {rank} dimensions"
    )


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,) = graph.operands(op)
    steps = [prod(x.shape[d + 1 :]) for d in range(len(x.shape))]
    turn = [d for d in range(len(x.shape)) if d != 1] if form.rolled else list(range(len(x.shape)))
    loops = tuple((x.shape[p], steps[p]) for p in (op.attrs["perm"][d] for d in turn))
    shape: dict[str, Any] = {"rolled": form.rolled, "row_step": steps[op.attrs["perm"][1]] if form.rolled else 0}
    shape |= {"loops": loops, "item": ITEM_BYTES[x.dtype], "dtype": x.dtype}
    return Kernel("transpose.c.j2", f"transpose_{'x'.join(map(str, x.shape))}", shape)


SPEC = Spec(
    kind="transpose",
    nest=nest,
    reference=reference,
    kernel=kernel,
    tflite={"TRANSPOSE": from_tflite},
    onnx={"Transpose": from_onnx},
    rows=lambda op, graph: "each" if len(op.attrs["perm"]) > 1 else "",
    exact=True,
    limits=(valid_permutation,),
)
