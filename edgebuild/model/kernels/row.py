"""Rows of a folder of kernels: the op and the core that a kernel is for, and the function that makes it.

Rows get convolutions in a canonical form; see `canonical`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..ir import Graph, Op
from ..ops import SPECS
from ..ops.base import Form, Kernel, Sums
from ..ops.spatial import shifted

CONVOLUTION, DEPTHWISE = "convolution", "depthwise"  # kinds of sums, for any kind of op


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
        """Whether the op begins within a row of its operand: its padding is negative."""
        return min(self.op.attrs.get("pad", (0,))) < 0 and self.form.rolled

    @cached_property
    def plain(self) -> Kernel:
        """The op's own kernel in portable C."""
        make = SPECS[self.op.kind].kernel
        assert make is not None, f"{self.op.kind} has no kernel"
        return make(self.op, self.graph, self.form)


@dataclass(frozen=True)
class Row:
    """A kernel of a folder: `make` returns None if one of the kernel's conditions does not hold for the layer.

    `kind`: of the op, or of its sums. `core`: words that the target's core must all have. `calls`: a library that it
    calls and the request must allow. `gathers`: it gathers its operands first, and is preferred if the form has a
    granularity. `crops`: it supports negative padding, with which it begins within a row of its operand. `shifts`: it
    supports results that are `shifted`.
    """

    kind: str
    core: frozenset[str]
    make: Callable[[KernelLayer], Kernel | None]
    calls: str = ""
    gathers: bool = False
    crops: bool = False
    shifts: bool = False

    def serves(self, layer: KernelLayer) -> bool:
        """Whether the kind is the layer's, and the request allows the kernel."""
        if self.kind not in layer.kinds or (layer.cropped and not self.crops):
            return False
        if shifted(layer.op) and not self.shifts:
            return False
        return self.calls in ("", layer.form.wish.calls)


def of_sums(make: Callable[[Sums, Form], Kernel | None]) -> Callable[[KernelLayer], Kernel | None]:
    """`Row.make` of kernels that need only the sums of a layer; None for layers without sums, such as floats."""

    def of_layer(layer: KernelLayer) -> Kernel | None:
        return make(layer.sums, layer.form) if layer.sums is not None else None

    return of_layer


# Canonical convolutions, with fewer axes.
#
# A window as wide as the image covers contiguous memory: its columns are channels of one column. An image of one
# column is an image of one row, whose pixels kernels take several at a time.

MAX_ZEROS = 4096  # most bytes of weights that are added as zeros
KINDS = ("conv2d", "depthwise_conv2d")


def canonical(op: Op, graph: Graph, rolled: bool) -> tuple[Op, Graph]:
    """The op, and the graph with its tensors, in canonical form, or both unchanged. `rolled`: rows stay rows."""
    if op.kind not in KINDS:
        return op, graph
    (x, w), y = graph.operands(op)[:2], graph.result(op)
    if w.data is None or x.shape[0] != 1:
        return op, graph
    weights, channels = w.data, x.shape[3]
    names = ("stride", "dilation", "pad")
    axes = [(x.shape[1 + i], y.shape[1 + i], *(op.attrs[name][i] for name in names)) for i in (0, 1)]
    given = list(axes)
    for turn in (0, 1):
        size, out, _, dilation, pad = axes[1]
        if (out, pad, size) != (1, 0, weights.shape[2]) or (dilation > 1 and size > 1):
            break
        if size > 1 and (op.kind != "conv2d" or op.attrs.get("groups", 1) > 1):
            break
        channels *= size
        weights = weights.reshape(*weights.shape[:2], 1, -1) if size > 1 else weights
        axes[1] = 1, 1, 1, 1, 0
        if axes[0][0] > 1 and not (turn or rolled):
            axes, weights = axes[::-1], weights.swapaxes(1, 2)
    if axes == given:
        return op, graph
    (h, oh, *rows), (width, ow, *columns) = axes
    tensors = {
        x.name: replace(x, shape=(1, h, width, channels)),
        w.name: replace(w, shape=weights.shape, data=weights.copy()),
        y.name: replace(y, shape=(1, oh, ow, y.shape[3])),
    }
    attrs = {**op.attrs, **{name: (rows[i], columns[i]) for i, name in enumerate(names)}}
    ends = [
        max(0, (n - 1) * s + (taps - 1) * d + 1 - size - pad)
        for (size, n, s, d, pad), taps in zip(axes, weights.shape[1:3], strict=True)
    ]
    attrs["pad"] = (*attrs["pad"], *ends)
    return replace(op, attrs=attrs), replace(graph, tensors={**graph.tensors, **tensors})


def ungrouped(op: Op, graph: Graph) -> tuple[Op, Graph] | None:
    """A grouped convolution as one of all channels, with weights of 0 between groups; None if these would be many."""
    if op.kind != "conv2d" or (groups := op.attrs.get("groups", 1)) == 1:
        return None
    w = graph.operands(op)[1]
    near = op.attrs["dilation"][1] == 1 or w.shape[2] == 1
    if w.data is None or not near or w.elements * (groups - 1) > MAX_ZEROS:
        return None
    k, fh, fw, c = w.shape
    data = np.zeros((groups, k // groups, fh, fw, groups, c), w.data.dtype)
    for group, own in enumerate(w.data.reshape(groups, k // groups, fh, fw, c)):
        data[group, :, :, :, group] = own
    whole = replace(w, shape=(k, fh, fw, groups * c), data=data.reshape(k, fh, fw, -1))
    return replace(op, attrs={**op.attrs, "groups": 1}), replace(graph, tensors={**graph.tensors, whole.name: whole})


def by_channel(op: Op, graph: Graph) -> tuple[Op, Graph] | None:
    """A convolution whose groups have one channel each as a depthwise one; None for others."""
    if op.kind != "conv2d":
        return None
    x, w = graph.operands(op)[:2]
    if w.data is None or w.shape[3] > 1 or x.shape[3] == 1:
        return None
    turned = replace(w, shape=(1, *w.shape[1:3], w.shape[0]), data=np.ascontiguousarray(w.data.transpose(3, 1, 2, 0)))
    attrs = {name: value for name, value in op.attrs.items() if name != "groups"}
    return replace(op, kind="depthwise_conv2d", attrs=attrs), replace(graph, tensors={**graph.tensors, w.name: turned})
