"""TEMPLATE of an operator: each row of the last dimension minus its mean.

Copy it into a module of `edgebuild/model/ops` and `template_op.c.j2` into the template file beside it, after a line
`%% template`; replace TEMPLATE and `template` everywhere.
docs/add-an-operator.md lists the other parts of an operator. `tests/ops/test_template.py` compiles both unchanged.
"""

from __future__ import annotations

import numpy as np

from ..ir import Array, Graph, Nest, Op, Same
from .base import Form, Kernel, Spec, is_float


def nest(op: Op, graph: Graph) -> Nest:
    """The axis of each dimension: the operand's dimensions index the result, too."""
    (x,) = graph.operands(op)
    names = tuple(f"i{d}" for d in range(len(x.shape)))
    return Nest(dict(zip(names, x.shape, strict=True)), names, (tuple(map(Same, names)),))


def reference(op: Op, graph: Graph, x: Array) -> Array:
    """Compute the result in numpy. Tests compare the C with it, so it must not share the C's formula."""
    return np.asarray(x - x.mean(axis=-1, keepdims=True, dtype=np.float64)).astype(np.float32)


def known_form(op: Op, graph: Graph) -> str | None:
    """Rows of float32: users read this docstring as the limit, and the returned text as the violation."""
    (x,) = graph.operands(op)
    return None if is_float(x) and x.shape else f"{x.dtype} of {len(x.shape)} dimensions"


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """Return the C function: a template, the prefix of its name, and the numbers that the template prints."""
    (x,) = graph.operands(op)
    columns = x.shape[-1]
    shape = {"N": x.elements // columns, "C": columns}
    return Kernel("template_op.c.j2", f"template_{columns}", shape, estimate=12.0 * x.elements)


SPEC = Spec(kind="template", nest=nest, reference=reference, kernel=kernel, limits=(known_form,))
