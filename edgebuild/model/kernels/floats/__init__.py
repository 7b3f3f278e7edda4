"""Sums of products of real numbers, several channels at a time, for cores that have registers for them.

A block of B channels loads B + 1 numbers for B multiply-accumulates. Each sum grows in the order of the plain kernel,
so the results are the same to the last bit, unless a compiler joins products and sums.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...ir import Array
from ...ops.base import PORTABLE, Kernel, is_float
from ..row import KernelLayer, Row

RESULT = 6.0  # instructions of a result: `bench-kernels` shows the error of estimates
MOST = 8  # sums in registers; with as many weights and two values they fit into 32


def block_of(channels: int) -> int:
    """Channels of a block: as many as make the fewest blocks, and those as small as will do."""
    return -(-channels // -(-channels // MOST))


def starts(channels: int) -> list[int]:
    """The first channel of each block. The last block begins within the one before it where they do not divide."""
    block = block_of(channels)
    return [min(at, channels - block) for at in range(0, channels, block)]


def packed(weights: Array, channels: int) -> Array:
    """Weights K x taps in the order of reading: for each block of channels, tap by tap, those of all channels."""
    block, rows = block_of(channels), weights.reshape(channels, -1)
    return np.concatenate([np.ascontiguousarray(rows[at : at + block].T).ravel() for at in starts(channels)])


def convolution(layer: KernelLayer) -> Kernel | None:
    """Of one group: with several, a result reads few channels."""
    x, w = layer.graph.operands(layer.op)[:2]
    if layer.op.attrs.get("groups", 1) > 1:
        return None
    return _blocks(layer, "conv", w.elements // w.shape[0], 30 + 14 * w.shape[1], 2 - x.shape[3] % 2)


def dense(layer: KernelLayer) -> Kernel | None:
    """Whole: a layer that is fed by rows keeps its sums in memory."""
    columns = layer.graph.operands(layer.op)[1].shape[1]
    return None if layer.form.rolled else _blocks(layer, "dense", columns, 12, 2 - columns % 2)


def depthwise(layer: KernelLayer) -> Kernel | None:
    """A result for each channel, or all of them from one."""
    x, w = layer.graph.operands(layer.op)[:2]
    if x.shape[3] not in (1, w.shape[3]):
        return None
    return _blocks(layer, "depthwise", w.shape[1] * w.shape[2], 30 + 14 * w.shape[1], 1)


def product(layer: KernelLayer) -> Kernel | None:
    """Neighbouring columns of a product of matrices."""
    return _blocks(layer, "matmul", layer.graph.operands(layer.op)[0].shape[3], 16, 1)


def _blocks(layer: KernelLayer, template: str, taps: int, rest: int, unroll: int) -> Kernel | None:
    """The plain kernel in blocks. `rest`: instructions of a block beside its products and results."""
    k, y = layer.plain, layer.graph.result(layer.op)
    channels = y.shape[-1]
    block = block_of(channels)
    if not is_float(y) or block == 1 or layer.form.small:
        return None
    scaled = bool(k.shape.get("scaled"))
    shape = {
        **k.shape, "block": block, "overlap": channels % block > 0, "unroll": unroll,
        "depthwise": template == "depthwise",
        "scaled": scaled, "cast": k.shape.get("cast", ""), "biased": not scaled and template != "matmul",
    }  # fmt: skip
    constants = k.constants
    if template in ("conv", "dense"):
        weights = replace(constants[0], data=packed(constants[0].data, channels), note="by blocks of channels")
        constants = (weights, *constants[1:])
    turn = (2 if template == "depthwise" else 1) * block + 1 + 2 * block + 4 / unroll
    if "mve" in layer.form.core and block % 4 == 0:  # the compiler makes vectors of them
        turn = (1.7 if template == "depthwise" else 1.2) * block
    windows = y.elements // channels // (y.shape[1] if layer.form.rolled else 1)
    file = "conv" if template == "depthwise" else template
    return replace(
        k, template=f"floats/{file}.c.j2", shape=shape, constants=constants, variant="channels in registers",
        estimate=40 + windows * (30 + len(starts(channels)) * (rest + taps * turn + RESULT * block)),
    )  # fmt: skip


KINDS = {"conv2d": convolution, "dense": dense, "depthwise_conv2d": depthwise, "batch_matmul": product}
CORES = ("fpu", "f", PORTABLE)
ROWS = tuple(Row(kind, frozenset({core}), make, crops=True) for core in CORES for kind, make in KINDS.items())
