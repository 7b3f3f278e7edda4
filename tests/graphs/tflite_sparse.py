"""Sparse constants of TFLite files, as converters write them."""

from __future__ import annotations

import numpy as np
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.ir import Array


def sparse(
    w: Array, order: list[int], block: dict[int, int], csr: set[int]
) -> tuple[schema.SparsityParametersT, Array]:
    """The sparsity and the numbers of a tensor; `block`: size by dimension; `csr`: numbers of the sparse levels.

    A level holds those indices below which there is a number that is not 0.
    """
    for d, size in sorted(block.items(), reverse=True):  # each block's dimension goes to the end, the first one first
        w = w.reshape(*w.shape[:d], w.shape[d] // size, size, *w.shape[d + 1 :])
        w = np.moveaxis(w, d + 1, 2)
    w = w.transpose(order)
    parameters = schema.SparsityParametersT()
    parameters.traversalOrder, parameters.blockMap, parameters.dimMetadata = list(order), list(block), []
    kept = np.zeros((1, 0), np.int64)  # index of each entry so far
    for level, size in enumerate(w.shape):
        metadata, rows, segments = schema.DimensionMetadataT(), [], [0]
        for entry in kept:
            below = [i for i in range(size) if level not in csr or w[(*entry, i)].any()]
            rows += [(*entry, i) for i in below]
            segments.append(len(rows))
        if level in csr:
            metadata.format = schema.DimensionType.SPARSE_CSR
            metadata.arraySegmentsType = metadata.arrayIndicesType = schema.SparseIndexVector.Int32Vector
            metadata.arraySegments, metadata.arrayIndices = schema.Int32VectorT(), schema.Int32VectorT()
            metadata.arraySegments.values, metadata.arrayIndices.values = segments, [row[-1] for row in rows]
        else:
            metadata.format, metadata.denseSize = schema.DimensionType.DENSE, size
        parameters.dimMetadata.append(metadata)
        kept = np.array(rows, np.int64).reshape(len(rows), level + 1)
    return parameters, np.array([w[tuple(entry)] for entry in kept], w.dtype)
