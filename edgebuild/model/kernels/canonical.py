"""Convolutions as kernels see them: with fewer axes.

A window as wide as the image lies over one piece of memory: its columns are channels of one column. An image of one
column is an image of one row, whose pixels kernels take several at a time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..ir import Graph, Op

MOST_ZEROS = 4096  # bytes of weights
KINDS = ("conv2d", "depthwise_conv2d")


def canonical(op: Op, graph: Graph, rolled: bool) -> tuple[Op, Graph]:
    """The op and the graph with its tensors so changed; the same if nothing is. `rolled`: rows must stay rows."""
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
    """A grouped convolution as one of all channels, with weights of 0 between groups, where these are few."""
    if op.kind != "conv2d" or (groups := op.attrs.get("groups", 1)) == 1:
        return None
    w = graph.operands(op)[1]
    near = op.attrs["dilation"][1] == 1 or w.shape[2] == 1
    if w.data is None or not near or w.elements * (groups - 1) > MOST_ZEROS:
        return None
    k, fh, fw, c = w.shape
    data = np.zeros((groups, k // groups, fh, fw, groups, c), w.data.dtype)
    for group, own in enumerate(w.data.reshape(groups, k // groups, fh, fw, c)):
        data[group, :, :, :, group] = own
    whole = replace(w, shape=(k, fh, fw, groups * c), data=data.reshape(k, fh, fw, -1))
    return replace(op, attrs={**op.attrs, "groups": 1}), replace(graph, tensors={**graph.tensors, whole.name: whole})
