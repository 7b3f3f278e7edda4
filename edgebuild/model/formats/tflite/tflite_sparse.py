"""Sparse constants of TFLite files, as dense ones.

The format (schema.fbs, SparsityParameters; TACO's): levels in the order of traversal, each dense or with the indices
that are there. Dimensions behind the tensor's own are those of blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ...ir import Array
from .tflite_schema import tflite

VECTORS = {
    tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
    tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
    tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector,
}


def places(sparsity: Any, shape: Sequence[int]) -> Array:
    """Flat index in the dense tensor of every number that the file holds. Raises ValueError if levels and shape differ.

    `shape`: that of the dense tensor.
    """
    order = [int(n) for n in sparsity.TraversalOrderAsNumpy()]
    blocks = [int(n) for n in sparsity.BlockMapAsNumpy()] if sparsity.BlockMapLength() else []
    levels = [sparsity.DimMetadata(i) for i in range(sparsity.DimMetadataLength())]
    if sorted(order) != list(range(len(shape) + len(blocks))) or len(levels) != len(order):
        raise ValueError("levels of a sparse tensor that are not its dimensions")
    entries, found = np.zeros(1, np.int64), dict[int, Array]()
    for dimension, level in zip(order, levels, strict=True):
        entries, chosen, repeat = _entered(level, entries, prod(shape))
        found = {d: np.repeat(index, repeat) for d, index in found.items()} | {dimension: chosen}
    index = [found[d] for d in range(len(shape))]
    for block, d in enumerate(blocks, len(shape)):
        index[d] = index[d] * levels[order.index(block)].DenseSize() + found[block]
    return np.ravel_multi_index(tuple(index), tuple(shape)) if shape else entries


def _entered(level: Any, entries: Array, most: int) -> tuple[Array, Array, Array]:
    """Entries of a level below those of the level above, their indices, and how many each of the above has."""
    if level.Format() == tflite.DimensionType.DENSE:
        size = level.DenseSize()
        if size < 1 or size * len(entries) > most:
            raise ValueError(f"a dense level of {size}")
        inner = np.arange(size)
        return (entries[:, None] * size + inner).ravel(), np.tile(inner, len(entries)), np.full(len(entries), size)
    segments, indices = (_vector(level, what) for what in ("ArraySegments", "ArrayIndices"))
    starts, counts = segments[entries], segments[entries + 1] - segments[entries]
    if (counts < 0).any() or counts.sum() > most:
        raise ValueError("segments that go backwards")
    below = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    return below, indices[below], counts


def _vector(level: Any, what: str) -> Array:
    table, vector = getattr(level, what)(), VECTORS[getattr(level, f"{what}Type")()]()
    vector.Init(table.Bytes, table.Pos)
    return vector.ValuesAsNumpy().astype(np.int64)
