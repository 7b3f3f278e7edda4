"""TEMPLATE of a kernel: computes the op of `template_op.py` two columns at a time.

Copy `make` to a folder of `edgebuild/model/kernels`, and ROW to the ROWS of its `__init__`. `template_kernel.c.j2` goes
there too, as a file, or as a part of one after a line `%% NAME`.
docs/add-a-kernel.md lists the other fields of a kernel. `tests/ops/test_template.py` compiles both unchanged.
"""

from __future__ import annotations

from dataclasses import replace

from ..ops.base import Kernel
from .row import KernelLayer, Row

CORE = frozenset[str]()  # features that the target's core must have, such as "dsp"; empty: any core


def make(layer: KernelLayer) -> Kernel | None:
    """Return the kernel if rows have an even number of columns, otherwise None."""
    plain = layer.plain
    if int(plain.shape["C"]) % 2:
        return None
    count = int(plain.shape["N"]) * int(plain.shape["C"])
    return replace(plain, template="template_kernel.c.j2", variant="template pairs", estimate=8.0 * count)


ROW = Row("template", CORE, make)
