"""Grouped, dilated and transposed convolutions: what lies under the taps of two pixels is copied, group by group."""

from __future__ import annotations

import numpy as np

from ...ops.base import Constant, Kernel, Traffic, zero_of
from .. import phases
from ..row import KernelLayer
from .sum_kernels import stream


def convolution(layer: KernelLayer) -> Kernel | None:
    """Only what other kernels do not serve: groups, and columns that are not neighbours."""
    op, w = layer.op, layer.graph.operands(layer.op)[1]
    neighbours = op.attrs["dilation"][1] == 1 or w.shape[2] == 1
    return None if op.attrs.get("groups", 1) == 1 and neighbours else gathered(layer)


def gathered(layer: KernelLayer) -> Kernel | None:
    """All phases must end alike."""
    (op, graph), form = phases.joined(layer.op, layer.graph), layer.form
    taps = phases.taps(op, graph)
    (x, w), own = graph.operands(op)[:2], phases.groups(op, graph.result(op).shape[3])
    sums = phases.int8_sums(op, graph, taps)
    if not sums or sums[0].finish == "sums" or not all(p.finish == sums[0].finish for p in sums):
        return None
    weights = [each.weights[:, :, 0] for each in sums]  # those of channels whose results are all zero are gone
    s, (k, _, _, c) = sums[0], w.shape
    kg, most = k // len(own), max(part.shape[1] for part in weights)
    streams = [
        [stream(phases.group(p, g), part[g].reshape(kg, -1)) for g in own]
        for p, part in zip(sums, weights, strict=True)
    ]
    heads, at = [], 0
    for parts in streams:
        step = parts[0].shape[1]
        heads.append((at, -(-kg // 4) * step))
        at += sum(part.size for part in parts)
    table = phases.places(taps, heads)
    columns, pixel, padded = (-(-n // 4) * 4 for n in (2 * most * c, x.shape[3], kg))
    shape = phases.shape(layer, op, graph, table) | {
        "finish": s.finish, "bounds": s.finish.endswith("_clamped"), "tail": kg % 4, "padded": padded,
        "list": columns, "zeros": columns + 8 * most, "made": columns + 8 * most + pixel,
    }  # fmt: skip
    constants = (
        Constant("w", np.concatenate([part.ravel() for parts in streams for part in parts]), "by phases and groups"),
        Constant("places", table.ravel(), "of each phase: its weights, the next group's, taps"),
    )
    scalars: dict[str, int | float] = {"x_zero": zero_of(x), "y_zero": s.y_zero}
    scalars |= {"low": s.low, "high": s.high} if shape["bounds"] else {}
    mean = sum(part.shape[1] for part in weights) / len(weights)
    products = 60 + -(-kg // 4) * (30 + 15 * -(-mean * c // 16))
    pair = 40 + mean * 22 + len(own) * (mean * (25 + c / 8) + products)
    pairs = phases.pairs(op, graph, form)
    return Kernel(
        "arm_mve/sum_kernels.c:gathered", layer.plain.stem, shape, constants, scalars,
        scratch=columns + 8 * most + pixel + (2 * padded if kg % 4 else 0), variant="mve gathered taps",
        estimate=60 + x.shape[3] + pairs * pair, traffic=Traffic(passes=pairs),
    )  # fmt: skip
