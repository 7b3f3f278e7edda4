"""TEMPLATE of a kernel: another way to compute the op of `template_op.py`, two columns at once.

Copy `make` to a folder of `edgebuild/model/kernels`, and ROW to the ROWS of its `__init__`. `template_kernel.c.j2` goes
there too, as a file or as a part of one behind a line `%% NAME`.
docs/add-a-kernel.md says what else a kernel may state. `tests/ops/test_template.py` compiles both as they are.
"""

from __future__ import annotations

from dataclasses import replace

from ..ops.base import Kernel
from .row import KernelLayer, Row

CORE = frozenset[str]()  # words that the target's core must have, such as "dsp"; none: any core


def make(layer: KernelLayer) -> Kernel | None:
    """Rows of an even number of columns; None where a condition does not hold."""
    plain = layer.plain
    if int(plain.shape["C"]) % 2:
        return None
    count = int(plain.shape["N"]) * int(plain.shape["C"])
    return replace(plain, template="template_kernel.c.j2", variant="template pairs", estimate=8.0 * count)


ROW = Row("template", CORE, make)
