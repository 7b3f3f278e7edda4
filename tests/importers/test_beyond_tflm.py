"""TFLite operators and tensors that TensorFlow Lite Micro does not have, against other judges and their own source."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.compile import compile_model
from edgebuild.model.formats.tflite.tflite_reader import read_tflite
from edgebuild.model.ir import Array, Graph, Quant
from edgebuild.model.ops.fixedpoint import quantize_multiplier, quotient_is_open
from edgebuild.model.passes.canonicalize import canonicalize
from edgebuild.model.verify import verify
from tests.graphs import random_inputs
from tests.graphs.tflite_models import SAME, VALID, File
from tests.graphs.tflite_sparse import sparse
from tests.importers.test_onnx import onnxruntime_outputs
from tests.kernels.processor import run_on
from tests.ops.host import run_on_host
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


def averages(data: Array, steps: list[tuple[Axes, Axes, bool]]) -> tuple[bytes, Any]:
    """A file in uint8 of averages of an image beside itself, and their results: windows, strides, whether it pads."""

    def average(x: Array, window: Axes, stride: Axes, same: bool) -> Array:
        sides = list(zip(x.shape, window, stride, strict=True))
        size = [-(-n // s) if same else (n - k) // s + 1 for n, k, s in sides]
        firsts = [(max(0, (m - 1) * s + k - n) // 2 if same else 0) for m, (n, k, s) in zip(size, sides, strict=True)]
        y = np.zeros(size, np.int64)
        for at in np.ndindex(*size):
            cut = [slice(max(0, i * s - p), i * s - p + k) for i, (_, k, s), p in zip(at, sides, firsts, strict=True)]
            y[at] = (int(x[*cut].sum()) + x[*cut].size // 2) // x[*cut].size
        return y

    f, quant, shape = File(), Quant((0.5,), (131,)), data.shape
    image = f.tensor("x", (1, *shape, 1), "uint8", quant)
    want, result = np.hstack([data, data]), f.tensor("twice", (1, shape[0], 2 * shape[1], 1), "uint8", quant)
    beside = schema.ConcatenationOptionsT()
    beside.axis = 2
    f.operator("CONCATENATION", [image, image], [result], beside)
    for window, stride, same in steps:
        want = average(want, window, stride, same)
        options = schema.Pool2DOptionsT()
        options.filterHeight, options.filterWidth = window
        (options.strideH, options.strideW), options.padding = stride, SAME if same else VALID
        before, result = result, f.tensor(f"y{result}", (1, *want.shape, 1), "uint8", quant)
        f.operator("AVERAGE_POOL_2D", [before], [result], options)
    return f.pack([image], [result]), (data.reshape(1, *shape, 1), want.reshape(1, *want.shape, 1))


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("tile", ["off", "rolling"])
def test_averages_of_unsigned_elements(tile: str, tmp_path: Path) -> None:
    """TFLite's uint8 kernel rounds halves up, its int8 kernel away from zero. The last one has no linear form."""
    rng = np.random.default_rng(2)
    files = [
        averages(rng.integers(0, 256, (9, 8)), [((2, 2), (1, 2), False)]),
        averages(rng.integers(0, 256, (9, 7)), [((2, 2), (1, 1), True), ((3, 4), (2, 2), True)]),
        averages(rng.integers(0, 256, (12, 8)), [((2, 2), (2, 2), False), ((6, 8), (1, 1), False)]),
        averages(np.tile([0, 1], (67, 16)), [((2, 1), (1, 1), False), ((66, 64), (1, 1), False)]),
    ]
    graphs = [canonicalize(read_tflite(data, "u.tflite")) for data, _ in files]
    signed = [[(np.asarray(x - 128, np.int8), np.asarray(y - 128, np.int8)) for x, y in [both]] for _, both in files]
    have = run_on_host(graphs, [[[x] for x, _ in rows] for rows in signed], tmp_path, tile=tile)
    for graph, rows, mine in zip(graphs, signed, have, strict=True):
        np.testing.assert_array_equal(mine[0][0], rows[0][1])
        np.testing.assert_array_equal(ops.run(graph, rows[0][0])[graph.outputs[0]], rows[0][1])


# Operators in uint8: options, input, and the result of LiteRT 2.3.0's reference kernel.
UNSIGNED: list[tuple[str, dict[str, bool], list[list[int]], list[list[int]]]] = [
    (
        "L2_NORMALIZATION",
        {},
        [[104, 164, 140], [185, 75, 138], [135, 223, 117], [88, 229, 204], [108, 147, 150], [172, 115, 235]],
        [[49, 225, 155], [217, 36, 140], [134, 254, 109], [85, 225, 200], [41, 189, 200], [175, 110, 246]],
    ),
    (
        "RESIZE_BILINEAR",
        {},
        [[210, 29, 171], [134, 239, 204]],
        [[210, 120, 29, 100, 171, 171], [185, 142, 99, 141, 182, 182], [159, 164, 169, 181, 193, 193],
         *[[134, 187, 239, 222, 204, 204]] * 3],
    ),
    (
        "RESIZE_BILINEAR",
        {"alignCorners": True},
        [[176, 231, 31], [6, 148, 2]],
        [[176, 194, 213, 231, 164, 98, 31], [142, 166, 190, 214, 151, 88, 25], [108, 138, 168, 198, 138, 79, 19],
         [74, 110, 145, 181, 125, 69, 14], [40, 82, 123, 165, 112, 60, 8], [6, 53, 101, 148, 99, 51, 2]],
    ),
    (
        "RESIZE_BILINEAR",
        {"halfPixelCenters": True},
        [[178, 60, 33], [137, 172, 154]],
        [*[[178, 161, 111, 60, 48, 37, 33]] * 2, [164, 155, 126, 97, 87, 77, 73], [151, 148, 142, 135, 126, 117, 114],
         *[[137, 142, 157, 172, 164, 157, 154]] * 2],
    ),
]  # fmt: skip


def of_unsigned(kind: str, options: dict[str, bool], shape: Axes, size: Axes) -> Graph:
    """One operator in uint8, whose image, or rows, become of `size`."""
    rows = kind == "L2_NORMALIZATION"
    form: Any = schema.L2NormOptionsT() if rows else schema.ResizeBilinearOptionsT()
    vars(form).update(options)
    f, quant = File(), Quant((0.1,), (131,))
    x = f.tensor("x", shape, "uint8", quant)
    sizes = [] if rows else [f.tensor("size", (2,), "int32", None, np.int32(size))]
    y = f.tensor("y", (1, *size, *shape[3:]), "uint8", Quant((1 / 128,), (128,)) if rows else quant)
    f.operator(kind, [x, *sizes], [y], form)
    return canonicalize(read_tflite(f.pack([x], [y]), "u.tflite"))


@pytest.mark.needs("gcc")
def test_lengths_and_images_of_unsigned_elements(tmp_path: Path) -> None:
    """TFLite's uint8 kernels round otherwise than those of int8: in these, a step or two beside."""
    graphs, signed = list[Graph](), list[Array]()
    for kind, options, given, wanted in UNSIGNED:
        image = (np.expand_dims(given, 0) - 128).astype(np.int8)
        signed.append(image if kind == "L2_NORMALIZATION" else image[..., None])
        graphs.append(of_unsigned(kind, options, signed[-1].shape, np.array(wanted).shape))
    have = run_on_host(graphs, [[[x]] for x in signed], tmp_path)
    for graph, x, mine, (_, _, _, wanted) in zip(graphs, signed, have, UNSIGNED, strict=True):
        for result in (mine[0][0], ops.run(graph, x)[graph.outputs[0]]):
            np.testing.assert_array_equal(np.squeeze(result).astype(np.int32) + 128, wanted)


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
def test_images_of_unsigned_elements_where_the_compiler_fuses(tmp_path: Path) -> None:
    """In gnu11, gcc rounds a product and its sum once, where the processor can: some halves would go the other way."""
    target = load_target("mps2-an386")
    flags = ("-std=gnu11" if flag.startswith("-std=") else flag for flag in target.toolchain.cflags)
    target = replace(target, toolchain=replace(target.toolchain, cflags=tuple(flags)))
    graph = of_unsigned("RESIZE_BILINEAR", {"halfPixelCenters": True}, (1, 3, 9, 11), (7, 12))
    vectors = random_inputs(graph, 4, 0)
    for vector, (have,) in zip(vectors, run_on(target, [graph], [vectors], tmp_path)[0], strict=True):
        np.testing.assert_array_equal(have, ops.run(graph, *vector)[graph.outputs[0]])


def rounded_twice(total: Array, factor: float) -> Array:
    """Halves away from zero, at 31 bits behind the mantissa and then at the shift (gemmlowp's fixedpoint.h)."""
    fraction, exponent = np.frexp(factor)
    high = np.trunc((total * int(np.rint(fraction * 2**31)) + np.where(total < 0, 1 - 2**30, 2**30)) / 2**31)
    return np.asarray(np.sign(high) * np.floor(np.abs(high) / 2.0**-exponent + 0.5), np.int64)


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_products_of_scales_of_unsigned_elements(kind: str) -> None:
    """TFLite's uint8 kernels multiply the scales in float32, its int8 kernels in double: sums where these differ."""
    x_scale, w_scale, totals = np.float32(0.0173), np.float32(0.00331), np.arange(-(2**20), 2**20)
    y_scale = np.float32(float(x_scale) * float(w_scale) * 2**20 / 110)
    in_float, in_double = float(x_scale * w_scale) / float(y_scale), float(x_scale) * float(w_scale) / float(y_scale)
    bias = totals[rounded_twice(totals, in_float) != rounded_twice(totals, in_double)].astype(np.int32)
    assert len(bias)
    shape = {"CONV_2D": (len(bias), 1, 1, 1), "DEPTHWISE_CONV_2D": (1, 1, 1, len(bias))}.get(kind, (len(bias), 1))
    f, quants = File(), [Quant((float(s),), (128,)) for s in (x_scale, w_scale, y_scale)]
    x = f.tensor("x", (1,) * len(shape), "uint8", quants[0])
    w = f.tensor("w", shape, "uint8", quants[1], np.full(shape, 128, np.uint8))
    b = f.tensor("b", bias.shape, "int32", Quant((float(x_scale * w_scale),), (0,)), bias)
    y = f.tensor("y", (*(1,) * (len(shape) - 1), len(bias)), "uint8", quants[2])
    options = {"CONV_2D": schema.Conv2DOptionsT, "DEPTHWISE_CONV_2D": schema.DepthwiseConv2DOptionsT}.get(
        kind, schema.FullyConnectedOptionsT
    )()
    options.padding, options.strideH, options.strideW, options.depthMultiplier = VALID, 1, 1, len(bias)
    f.operator(kind, [x, w, b], [y], options)
    graph = canonicalize(read_tflite(f.pack([x], [y]), "u.tflite"))
    have = ops.run(graph, np.zeros((1,) * len(shape), np.int8))[graph.outputs[0]]
    np.testing.assert_array_equal(have.ravel(), rounded_twice(bias.astype(np.int64), in_float))


@pytest.mark.parametrize("kind", ["int8", "int16"])
def test_zeros_of_scale_0(kind: str, tmp_path: Path) -> None:
    """The first state of an unrolled LSTM as the converter writes it. Other numbers of scale 0 are refused."""
    f, quants = File(), [Quant((scale,), (0,)) for scale in (3e-5, 0.0, 3.59e-43)]
    x, y = (f.tensor(name, (1, 8), kind, quants[at]) for name, at in (("x", 0), ("y", 2)))
    data = np.zeros((1, 8), kind)
    f.operator("MUL", [x, f.tensor("z", (1, 8), kind, quants[1], data)], [y], schema.MulOptionsT())
    numbers = np.linspace(np.iinfo(kind).min, np.iinfo(kind).max, 8).astype(kind).reshape(1, 8)
    packed = f.pack([x], [y])
    graph = canonicalize(read_tflite(packed, "z.tflite"))
    [[[want]]] = interpreted([packed], [[[numbers]]], tmp_path)
    np.testing.assert_array_equal(ops.run(graph, numbers)[graph.outputs[0]], want)
    data[0, 0] = 1
    f.operator("MUL", [x, f.tensor("w", (1, 8), kind, quants[1], data)], [y], schema.MulOptionsT())
    with pytest.raises(EdgebuildError, match="tensor 'w' has scale 0"):
        read_tflite(f.pack([x], [y]), "z.tflite")


def test_options_that_are_none() -> None:
    x, w, bias = np.zeros((1, 2, 2, 1), np.float32), np.zeros((1, 2, 2, 1), np.float32), np.zeros(1, np.float32)
    for options in (b"", struct.pack("<3i", 0, 1, 1), struct.pack("<3i", 1, 0, 1)):
        with pytest.raises(EdgebuildError, match=r"\(custom Convolution2DTransposeBias\): error: (options|padding)"):
            read_tflite(transposed(options, x, w, bias, (1, 2, 2, 1)), "t.tflite")


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
    sparsity, values = sparse(w, order, block, csr)
    x, y = f.tensor("x", (1, 8), "float32"), f.tensor("y", (1, 6), "float32")
    weights = f.tensor("w", (6, 8), "float32", None, values)
    f.tensors[weights].sparsity = sparsity
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


def test_quotients_that_c_leaves_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """TFLite Micro shifts small quotients of int8 by more than 31 bits, to 127 on x86: its values are no verdict."""
    model, path, shape, q = File(), tmp_path / "div.tflite", (1, 512), Quant((0.1,), (0,))
    a, y = (model.tensor(name, shape, "int8", q) for name in "ay")
    b = model.tensor("b", shape, "int8", q, np.full(shape, 127, np.int8))
    model.operator("DIV", [a, b], [y], schema.DivOptionsT())
    path.write_bytes(model.pack([a], [y]))
    result = verify(path, load_target("host"), compile_model(model_request(path, "model", "host", {})))
    assert result["equal"]
    assert "C leaves open" in capsys.readouterr().err
    assert not quotient_is_open(np.array([1, 0]), np.array([128, 128]), quantize_multiplier(128.0))
