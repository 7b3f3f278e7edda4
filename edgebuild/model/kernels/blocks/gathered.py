"""Grouped and transposed convolutions and products of computed matrices in plain C: blocks of sums in registers.

What lies under the taps of two pixels is copied side by side, as is a pair of columns of a matrix.
"""

from __future__ import annotations

import numpy as np

from ...ops import contractions, spatial
from ...ops.base import Constant, Kernel, zero_of
from ...ops.spatial import words
from .. import phases
from ..row import KernelLayer
from .sum_kernels import SumsCore, finish, packed

LARGEST = 2**15  # terms of a sum of a product of matrices, each of which is below 2^16


def grouped(channels: int, core: SumsCore, layer: KernelLayer) -> Kernel | None:
    """An ordinary convolution of one group has kernels that are better."""
    return convolution(channels, core, layer) if layer.op.attrs.get("groups", 1) > 1 else None


def convolution(channels: int, core: SumsCore, layer: KernelLayer) -> Kernel | None:
    """Two pixels by `channels` sums at a time."""
    (op, graph), form = phases.joined(layer.op, layer.graph), layer.form
    taps = phases.taps(op, graph)
    (x, w), sums = graph.operands(op)[:2], phases.int8_sums(op, graph, taps)
    if not sums or form.small:
        return None
    weights = [each.weights[:, :, 0] for each in sums]  # those of channels whose results are all zero are gone
    s, (k, _, _, c) = sums[0], w.shape
    own = phases.groups(op, k)
    kg, most = k // len(own), max(part.shape[1] for part in weights)
    block = next(b for b in (4, 2, 1) if b <= channels and kg % b == 0)
    how = [finish(each) for each in sums]
    ends, rest = how[0] if len({e for e, _ in how}) == 1 else ("general", s.rescaling)
    heads, at = [], 0
    for n, part in enumerate(weights):
        heads.append((at, n * k, kg * part.shape[1] * c))
        at += part.size
    table = phases.places(taps, heads)
    shape = phases.shape(layer, op, graph, table) | {
        "block": block, "unroll": next(u for u in (4, 2, 1) if c % u == 0), "finish": ends, "rescale": core.rescale,
        "list": -(-2 * most * c // 4) * 4, "zeros": -(-2 * most * c // 4) * 4 + 8 * most,
    }  # fmt: skip
    shape.pop("separate")  # its list has one base for all rows
    stream = [packed(part[group].reshape(kg, -1), block).ravel() for part in weights for group in own]
    constants = (
        Constant("w", np.concatenate(stream), "by phases, groups and blocks of channels"),
        Constant("start", words(np.concatenate([each.start for each in sums])), "bias with the zero point folded in"),
        Constant("places", table.ravel(), "of each phase: its weights, start values, a group's weights, taps"),
        *rest,
    )
    scalars = {"x_zero": s.x_zero} | ({"y_zero": s.y_zero} if ends == "general" else {})
    mean = sum(part.shape[1] for part in weights) / len(weights)
    per_mac = core.product * (2 + (2 + block) / (2 * block))
    pair = 40 + mean * 22 + len(own) * (10 + mean * (10 + 8 * c)) + 2 * k * (mean * c * per_mac + core.result)
    return Kernel(
        "blocks/sum_kernels.c:gathered", layer.plain.stem, shape, constants, {**scalars, "low": s.low, "high": s.high},
        scratch=-(-2 * most * c // 4) * 4 + 8 * most + x.shape[3], variant="gathered taps",
        estimate=60 + 3 * x.shape[3] + phases.pairs(op, graph, form) * pair,
    )  # fmt: skip


def product(core: SumsCore, layer: KernelLayer) -> Kernel | None:
    """Blocks of two rows and two columns. An odd one at the end is computed with the one before it."""
    op, graph, k = layer.op, layer.graph, layer.plain
    (x, w), y, c = graph.operands(op), graph.result(op), graph.operands(op)[0].shape[3]
    if {x.dtype, w.dtype, y.dtype} != {"int8"} or not 4 <= c < LARGEST or layer.form.small:
        return None
    a, b, n, columns = y.shape
    m, (low, high) = contractions.multiplier(op, graph), spatial.bounds(op, y)
    shape = {
        **k.shape, "last_n": max(0, n - 2), "last_k": max(0, columns - 2), "down": min(1, n - 1),
        "across": min(1, columns - 1), "unroll": next(u for u in (4, 2, 1) if c % u == 0),
    }  # fmt: skip
    scalars = {"x0_zero": zero_of(x), "x1_zero": zero_of(w), "multiplier": m.mantissa, "shift": m.shift}
    blocks = -(-n // 2) * (4 * core.result + 20 + 3.4 * 4 * core.product * c)
    return Kernel(
        "blocks/sum_kernels.c:matmul", k.stem, shape, k.constants,
        {**scalars, "y_zero": zero_of(y), "low": low, "high": high},
        scratch=4 * c, variant="two columns", estimate=30.0 + a * b * -(-columns // 2) * (20 + 12 * c + blocks),
    )  # fmt: skip
