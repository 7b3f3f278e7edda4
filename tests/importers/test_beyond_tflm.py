"""TFLite operators and tensors that TensorFlow Lite Micro does not have, against other judges and their own source."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.base.errors import EdgebuildError
from edgebuild.model import ops
from edgebuild.model.formats.tflite.tflite_reader import read_tflite
from edgebuild.model.ir import Array
from tests.graphs.tflite_models import VALID, File
from tests.importers.test_onnx import onnxruntime_outputs
from tests.ops.test_tflm import interpreted

Axes = tuple[int, int]


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize(("shape", "axes"), [((4, 3), (0, 1)), ((3, 5, 2), (1, 0)), ((2, 3, 4, 5), (2, 0)),
                                             ((2, 3, 4, 5), (1, 3)), ((3, 4, 2), (2, 1))])  # fmt: skip
def test_reversed_sequences(shape: tuple[int, ...], axes: Axes, computed: bool) -> None:
    """onnxruntime has the operator for the first two axes: others are brought there."""
    rng, (time, batch) = np.random.default_rng(0), axes
    x = rng.normal(size=shape).astype(np.float32)
    lengths = rng.integers(1, shape[time] + 1, shape[batch]).astype(np.int32)
    f, options = File(), schema.ReverseSequenceOptionsT()
    options.seqDim, options.batchDim = axes
    inputs = [
        f.tensor("x", shape, "float32"),
        f.tensor("l", lengths.shape, "int32", None, None if computed else lengths),
    ]
    y = f.tensor("y", shape, "float32")
    f.operator("REVERSE_SEQUENCE", inputs, [y], options)
    graph = read_tflite(f.pack(inputs if computed else inputs[:1], [y]), "r.tflite")
    have = ops.run(graph, *([x, lengths] if computed else [x]))[graph.outputs[0]]
    node = helper.make_node("ReverseSequence", ["x", "l"], ["y"], time_axis=0, batch_axis=1)
    moved = np.ascontiguousarray(np.moveaxis(x, axes, (0, 1)))
    ports = [helper.make_tensor_value_info("x", 1, moved.shape), helper.make_tensor_value_info("l", 7, lengths.shape)]
    body = helper.make_graph([node], "r", ports, [helper.make_tensor_value_info("y", 1, moved.shape)])
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    want = onnxruntime_outputs(model, [moved, lengths.astype(np.int64)])[0]
    np.testing.assert_array_equal(have, np.moveaxis(want, (0, 1), axes))


def transposed(options: bytes, x: Array, w: Array, bias: Array, shape: tuple[int, ...]) -> bytes:
    f = File()
    inputs = [f.tensor("x", x.shape, "float32"), f.tensor("w", w.shape, "float32", None, w),
              f.tensor("b", bias.shape, "float32", None, bias)]  # fmt: skip
    y = f.tensor("y", shape, "float32")
    f.operator("custom Convolution2DTransposeBias", inputs, [y], options)
    return f.pack(inputs[:1], [y])


def scattered(x: Array, w: Array, bias: Array, stride: Axes, same: bool) -> Array:
    """As MediaPipe's transpose_conv_bias.cc defines it: each input adds to the outputs in its reach."""
    sides = list(zip(x.shape[1:3], w.shape[1:3], stride, strict=True))
    less = [max(0, k - (n - 1) % s - 1) if same else 0 for n, k, s in sides]
    size = [s * (n - 1) + k - p for (n, k, s), p in zip(sides, less, strict=True)]
    y = np.tile(bias.astype(np.float64), (1, *size, 1))
    for row, column, fy, fx in np.ndindex(*x.shape[1:3], *w.shape[1:3]):
        at = row * stride[0] + fy - less[0] // 2, column * stride[1] + fx - less[1] // 2
        if 0 <= at[0] < size[0] and 0 <= at[1] < size[1]:
            y[0, at[0], at[1]] += w[:, fy, fx].astype(np.float64) @ x[0, row, column]
    return y


@pytest.mark.parametrize("padding", [1, 2])
@pytest.mark.parametrize(
    ("size", "window", "stride"), [((3, 4), (2, 2), (2, 2)), ((4, 5), (3, 4), (2, 1)),
                                   ((5, 2), (4, 3), (3, 2)), ((1, 3), (1, 1), (2, 3))],
)  # fmt: skip
def test_convolution_of_mediapipe(size: Axes, window: Axes, stride: Axes, padding: int, tmp_path: Path) -> None:
    """Its VALID form is TRANSPOSE_CONV of TFLM; the SAME form is its own."""
    rng = np.random.default_rng(1)
    x, w = (rng.normal(size=s).astype(np.float32) for s in ((1, *size, 3), (2, *window, 3)))
    bias = np.float32([0.5, -2])
    want = scattered(x, w, bias, stride, padding == 1)
    data = transposed(struct.pack("<3i", padding, stride[1], stride[0]), x, w, bias, want.shape)
    graph = read_tflite(data, "t.tflite")
    have = ops.run(graph, x)[graph.outputs[0]]
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-5)
    if padding == 2:
        f, options = File(), schema.TransposeConvOptionsT()
        options.padding, options.strideH, options.strideW = VALID, *stride
        stored = [f.tensor("s", (4,), "int32", None, np.int32(want.shape)), f.tensor("w", w.shape, "float32", None, w)]
        inputs = [*stored, f.tensor("x", x.shape, "float32"), f.tensor("b", (2,), "float32", None, bias)]
        y = f.tensor("y", want.shape, "float32")
        f.operator("TRANSPOSE_CONV", inputs, [y], options)
        ((theirs,),) = interpreted([f.pack(inputs[2:3], [y])], [[[x]]], tmp_path)
        np.testing.assert_allclose(have.ravel(), np.ravel(theirs), rtol=1e-5, atol=1e-5)


def test_options_that_are_none() -> None:
    x, w, bias = np.zeros((1, 2, 2, 1), np.float32), np.zeros((1, 2, 2, 1), np.float32), np.zeros(1, np.float32)
    for options in (b"", struct.pack("<3i", 0, 1, 1), struct.pack("<3i", 1, 0, 1)):
        with pytest.raises(EdgebuildError, match=r"\(custom Convolution2DTransposeBias\): error: (options|padding)"):
            read_tflite(transposed(options, x, w, bias, (1, 2, 2, 1)), "t.tflite")


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
    told = schema.SparsityParametersT()
    told.traversalOrder, told.blockMap, told.dimMetadata = list(order), list(block), []
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
        told.dimMetadata.append(metadata)
        kept = np.array(rows, np.int64).reshape(len(rows), level + 1)
    return told, np.array([w[tuple(entry)] for entry in kept], w.dtype)


@pytest.mark.parametrize(
    ("order", "block", "csr"),
    [
        ([0, 1], {}, {1}),
        ([1, 0], {}, {1}),
        ([0, 1], {}, {0, 1}),
        ([0, 1, 2], {1: 4}, {1}),
        ([0, 1, 2, 3], {0: 2, 1: 4}, {1}),
    ],
)
@pytest.mark.parametrize("densify", [False, True])
def test_sparse_weights_are_dense_ones(order: list[int], block: dict[int, int], csr: set[int], densify: bool) -> None:
    rng = np.random.default_rng(3)
    w = rng.normal(size=(6, 8)).astype(np.float32) * (rng.random((6, 8)) < 0.3)
    w[2] = 0
    f = File()
    told, values = sparse(w, order, block, csr)
    x, y = f.tensor("x", (1, 8), "float32"), f.tensor("y", (1, 6), "float32")
    weights = f.tensor("w", (6, 8), "float32", None, values)
    f.tensors[weights].sparsity = told
    used = f.tensor("d", (6, 8), "float32") if densify else weights
    if densify:
        f.operator("DENSIFY", [weights], [used], schema.DensifyOptionsT())
    f.operator("FULLY_CONNECTED", [x, used, -1], [y], schema.FullyConnectedOptionsT())
    graph = read_tflite(f.pack([x], [y]), "s.tflite")
    fed = rng.normal(size=(1, 8)).astype(np.float32)
    np.testing.assert_allclose(ops.run(graph, fed)[graph.outputs[0]], fed @ w.T, rtol=1e-5, atol=1e-6)
    f.tensors[weights].sparsity.dimMetadata[-1].denseSize += 1
    f.tensors[weights].sparsity.traversalOrder[0] = 7
    with pytest.raises(EdgebuildError, match="not a valid TFLite file: levels of a sparse tensor"):
        read_tflite(f.pack([x], [y]), "s.tflite")
