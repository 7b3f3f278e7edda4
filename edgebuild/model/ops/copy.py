"""A tensor as it is under another name: outputs of the model that are its inputs or constants."""

from __future__ import annotations

from typing import Any

from ..ir import Array, Graph, Op
from . import elementwise
from .base import Constant, Form, Kernel, Spec


def reference(op: Op, graph: Graph, x: Array) -> Array:
    return x


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,) = graph.operands(op)
    shape: dict[str, Any] = {"N": x.elements}
    constants = (Constant("x", x.data, "operand"),) if x.data is not None else ()
    return Kernel("copy.c.j2", f"copy_{x.elements}", shape, constants)


SPEC = Spec(kind="copy", nest=elementwise.nest, reference=reference, kernel=kernel, exact=True)
