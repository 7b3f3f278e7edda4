"""Rows of a folder of kernels: for which op and which core a kernel is, and how it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from ..ir import Graph, Op
from ..ops import SPECS
from ..ops.base import Form, Kernel, Sums
from ..ops.spatial import shifted

CONVOLUTION, DEPTHWISE = "convolution", "depthwise"  # kinds of sums, whatever ops they are


@dataclass(frozen=True)
class KernelLayer:
    """An op for which a kernel is wanted. `sums` describes it if it is a sum of products in int8."""

    op: Op
    graph: Graph
    form: Form
    sums: Sums | None

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of rows that may serve."""
        if self.sums is None:
            return (self.op.kind,)
        return self.op.kind, DEPTHWISE if self.sums.depthwise else CONVOLUTION

    @property
    def cropped(self) -> bool:
        """Whether the op begins within a row of its operand."""
        return min(self.op.attrs.get("pad", (0,))) < 0 and self.form.rolled

    @cached_property
    def plain(self) -> Kernel:
        """The op's own kernel in portable C."""
        make = SPECS[self.op.kind].kernel
        assert make is not None, f"{self.op.kind} has no kernel"
        return make(self.op, self.graph, self.form)


@dataclass(frozen=True)
class Row:
    """A kernel that there is: `make` answers None where one of its conditions does not hold for the layer.

    `kind`: of the op, or of its sums. `core`: words that the target's core must all have. `calls`: a library that it
    calls and the request must allow. `gathers`: it is the first choice for layers that
    gather their operands first. `crops`: it may begin within a row of its operand, which is padding below 0.
    `shifts`: it makes results that are `shifted`.
    """

    kind: str
    core: frozenset[str]
    make: Callable[[KernelLayer], Kernel | None]
    calls: str = ""
    gathers: bool = False
    crops: bool = False
    shifts: bool = False

    def serves(self, layer: KernelLayer) -> bool:
        """The kind is the layer's, and the core and the request allow it."""
        if self.kind not in layer.kinds or (layer.cropped and not self.crops):
            return False
        if shifted(layer.op) and not self.shifts:
            return False
        return self.calls in ("", layer.form.wish.calls) and self.core <= layer.form.core


def of_sums(make: Callable[[Sums, Form], Kernel | None]) -> Callable[[KernelLayer], Kernel | None]:
    """For rows that ask for nothing but the sums of a layer; a layer without them, such as one of floats, has none."""

    def of_layer(layer: KernelLayer) -> Kernel | None:
        return make(layer.sums, layer.form) if layer.sums is not None else None

    return of_layer
