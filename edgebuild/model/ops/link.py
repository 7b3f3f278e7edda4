"""Messages between the devices of a cluster: `send` and `receive`, which keep their order.

Both take `message` (its number, the same on both sides), `device` (the other one; EVERYONE of a broadcast) and `wire`
(bytes of an element on the wire, the low ones of it). `send` has an empty result; `receive` has no operand, and takes
the `shape` of its result. The session of generated code is its variable `cluster`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import ITEM_BYTES, Array, Graph, Op
from ..ir.axes import Nest, Whole
from .base import Form, Kernel, Spec

EVERYONE = 255


def send_nest(op: Op, graph: Graph) -> Nest:
    (x,) = graph.operands(op)
    return Nest({"none": 0}, ("none",), (tuple(Whole(n) for n in x.shape),))


def receive_nest(op: Op, graph: Graph) -> Nest:
    names = tuple(f"i{d}" for d in range(len(op.attrs["shape"])))
    return Nest(dict(zip(names, op.attrs["shape"], strict=True)), names, ())


def send_reference(op: Op, graph: Graph, x: Array) -> Array:
    return np.zeros(0, graph.result(op).dtype)


def receive_reference(op: Op, graph: Graph) -> Array:
    """One device alone does not know what comes: numbers that tell messages and elements apart."""
    y = graph.result(op)
    return ((np.arange(y.elements) * 7 + 31 * op.attrs["message"]) % 119 - 59).astype(y.dtype).reshape(y.shape)


def send_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    return _kernel(op, "send", graph.operands(op)[0].elements, ITEM_BYTES[graph.operands(op)[0].dtype])


def receive_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    return _kernel(op, "receive", graph.result(op).elements, ITEM_BYTES[graph.result(op).dtype])


def _kernel(op: Op, what: str, count: int, item: int) -> Kernel:
    shape: dict[str, Any] = {"item": item, "wire": op.attrs["wire"]}
    scalars: dict[str, int | float] = {"message": op.attrs["message"], "device": op.attrs["device"], "count": count}
    return Kernel(f"{what}.c.j2", f"{what}_{op.attrs['wire']}_of_{item}", shape, (), scalars, fails=True)


SEND = Spec(kind="send", nest=send_nest, reference=send_reference, kernel=send_kernel, exact=True, link="send")
RECEIVE = Spec(
    kind="receive", nest=receive_nest, reference=receive_reference, kernel=receive_kernel, exact=True, link="receive"
)
