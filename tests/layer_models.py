"""TFLite files of one layer each, of the sizes that networks of microcontrollers have, for `bench-kernels`.

The convolutions, products of matrices and elementwise functions that the public models lack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.ir import Array, Quant
from tests.graphs.tflite_models import SAME, File

IN = Quant((0.05,), (-7,))


@dataclass
class Layer:
    """A file under construction. Values of `kind`, int8 or int16, have a scale of 0.05 or 0.0005."""

    kind: str

    def __post_init__(self) -> None:
        self.file, self.rng = File(), np.random.default_rng(7)
        self.quant = IN if self.kind == "int8" else Quant((0.0005,), (0,))
        self.spread = 40 if self.kind == "int8" else 4000

    def input(self, shape: Sequence[int]) -> int:
        return self.file.tensor(f"x{len(self.file.tensors)}", shape, self.kind, self.quant)

    def list_of(self, *values: int) -> int:
        return self.file.tensor("list", (len(values),), "int32", None, np.array(values, np.int32))

    def done(self, name: str, operands: Sequence[int], shape: Sequence[int], quant: Quant, options: Any) -> bytes:
        y = self.file.tensor("y", shape, self.kind, quant)
        self.file.operator(name, operands, [y], options)
        return self.file.pack([i for i in operands if self.file.tensors[i].buffer == 0], [y])

    def sum(self, name: str, x: int, w: Array, channels: int, shape: Sequence[int], options: Any) -> bytes:
        """A sum of products with a bias and a scale for each channel."""
        axis = w.shape.index(channels) if name == "DEPTHWISE_CONV_2D" else 0
        scales = tuple(float(np.float32(s)) for s in self.rng.uniform(0.002, 0.004, channels))
        weights = self.file.tensor("w", w.shape, "int8", Quant(scales, (0,) * channels, axis), w)
        products = Quant(tuple(s * self.quant.scale[0] for s in scales), (0,) * channels, 0)
        wide = np.int64 if self.kind == "int16" else np.int32
        values = self.rng.integers(-5000, 5000, channels).astype(wide)
        bias = self.file.tensor("b", (channels,), str(np.dtype(wide)), products, values)
        terms = w.size // channels
        factor = 0.003 * self.quant.scale[0] * 70 * self.spread * sqrt(terms) / self.spread
        quant = Quant((float(np.float32(factor)),), (3,) if self.kind == "int8" else (0,))
        operands = [x, weights, bias]
        if name == "TRANSPOSE_CONV":
            operands = [self.list_of(*shape), weights, x, bias]
        return self.done(name, operands, shape, quant, options)

    def weights(self, *shape: int) -> Array:
        return np.asarray(self.rng.integers(-127, 128, shape), np.int8)


def conv(
    h: int, w: int, c: int, k: int, taps: tuple[int, int], groups: int = 1, dilation: int = 1, stride: int = 1,
    kind: str = "int8",
) -> Callable[[], bytes]:  # fmt: skip
    """SAME padding; height 1 makes a 1-D convolution."""

    def make() -> bytes:
        f, options = Layer(kind), schema.Conv2DOptionsT()
        options.padding, options.strideH, options.strideW = SAME, stride if h > 1 else 1, stride
        options.dilationHFactor, options.dilationWFactor = dilation if h > 1 else 1, dilation
        shape = (1, -(-h // options.strideH), -(-w // stride), k)
        return f.sum("CONV_2D", f.input((1, h, w, c)), f.weights(k, *taps, c // groups), k, shape, options)

    return make


def depthwise(h: int, w: int, c: int, taps: tuple[int, int], stride: int, kind: str = "int8") -> Callable[[], bytes]:
    def make() -> bytes:
        f, options = Layer(kind), schema.DepthwiseConv2DOptionsT()
        options.padding, options.strideH, options.strideW = SAME, stride, stride
        options.dilationHFactor, options.dilationWFactor, options.depthMultiplier = 1, 1, 1
        shape = (1, -(-h // stride), -(-w // stride), c)
        return f.sum("DEPTHWISE_CONV_2D", f.input((1, h, w, c)), f.weights(1, *taps, c), c, shape, options)

    return make


def transposed(h: int, w: int, c: int, k: int, taps: int, stride: int, kind: str = "int8") -> Callable[[], bytes]:
    def make() -> bytes:
        f, options = Layer(kind), schema.TransposeConvOptionsT()
        options.padding, options.strideH, options.strideW = SAME, stride, stride
        shape = (1, h * stride, w * stride, k)
        return f.sum("TRANSPOSE_CONV", f.input((1, h, w, c)), f.weights(k, taps, taps, c), k, shape, options)

    return make


def dense(rows: int, c: int, k: int, kind: str = "int8") -> Callable[[], bytes]:
    def make() -> bytes:
        f = Layer(kind)
        options = schema.FullyConnectedOptionsT()
        return f.sum("FULLY_CONNECTED", f.input((rows, c)), f.weights(k, c), k, (rows, k), options)

    return make


def matmul(batch: int, n: int, c: int, k: int, turned: bool, kind: str = "int8") -> Callable[[], bytes]:
    def make() -> bytes:
        f, options = Layer(kind), schema.BatchMatMulOptionsT()
        options.adjX, options.adjY = False, turned
        operands = [f.input((1, batch, n, c)), f.input((1, batch, *((k, c) if turned else (c, k))))]
        quant = Quant((float(np.float32(f.quant.scale[0] ** 2 * f.spread * 2 * sqrt(c))),), f.quant.zero_point)
        return f.done("BATCH_MATMUL", operands, (1, batch, n, k), quant, options)

    return make


def function(name: str, shape: Sequence[int], quant: Quant | None, options: Any, kind: str = "int8",
             operands: int = 1) -> Callable[[], bytes]:  # fmt: skip
    """An elementwise function. `quant` of the result: the operand's if None."""

    def make() -> bytes:
        f = Layer(kind)
        return f.done(name, [f.input(shape) for _ in range(operands)], shape, quant or f.quant, options)

    return make


def resized(name: str, h: int, w: int, c: int, options_type: Any) -> Callable[[], bytes]:
    """Twice as many rows and columns."""

    def make() -> bytes:
        f, options = Layer("int8"), options_type()
        options.halfPixelCenters, options.alignCorners = True, False
        return f.done(name, [f.input((1, h, w, c)), f.list_of(2 * h, 2 * w)], (1, 2 * h, 2 * w, c), f.quant, options)

    return make


def svdf(features: int, units: int, rank: int, memory: int) -> Callable[[], bytes]:
    def make() -> bytes:
        f, options = Layer("int8"), schema.SVDFOptionsT()
        options.rank, options.fusedActivationFunction = rank, 1
        filters, held = units * rank, Quant((0.002,), (0,))
        w = f.file.tensor("w", (filters, features), "int8", Quant((0.01,), (0,)), f.weights(filters, features))
        over = f.rng.integers(-3000, 3000, (filters, memory)).astype(np.int16)
        times = f.file.tensor("times", over.shape, "int16", Quant((0.0001,), (0,)), over)
        values = f.rng.integers(-2000, 2000, units).astype(np.int32)
        bias = f.file.tensor("b", (units,), "int32", Quant((held.scale[0] * 0.0001,), (0,)), values)
        x = f.input((1, features))
        state = f.file.tensor("state", (1, filters * memory), "int16", held)
        f.file.tensors[state].isVariable = True
        y = f.file.tensor("y", (1, units), "int8", Quant((0.01,), (-128,)))
        f.file.operator("SVDF", [x, w, times, bias, state], [y], options)
        return f.file.pack([x], [y])

    return make


IMAGE = (1, 16, 16, 16)
UNIT, SIGNED = Quant((1 / 256,), (-128,)), Quant((1 / 128,), (0,))
LAYERS: dict[str, Callable[[], bytes]] = {
    "conv 1-D 5 taps": conv(1, 64, 32, 32, (1, 5)),
    "conv 1-D 5 taps dilated": conv(1, 64, 32, 32, (1, 5), dilation=4),
    "conv 3x3 dilated": conv(12, 12, 16, 16, (3, 3), dilation=2),
    "conv 3x3 3 channels": conv(32, 32, 3, 16, (3, 3)),
    "conv 3x3 4 groups of 8": conv(12, 12, 32, 32, (3, 3), 4),
    "conv 3x3 8 groups of 4": conv(12, 12, 32, 32, (3, 3), 8),
    "conv 1x1 4 groups of 16": conv(12, 12, 64, 64, (1, 1), 4),
    "conv 1-D 4 groups of 8": conv(1, 64, 32, 32, (1, 5), 4),
    "conv 1-D 9 taps 1 channel": conv(1, 100, 1, 16, (1, 9)),
    "conv 3x3 3 groups of 5": conv(12, 12, 15, 15, (3, 3), 3),
    "transpose conv 3x3 / 2": transposed(8, 8, 16, 16, 3, 2),
    "transpose conv 2x2 / 2": transposed(8, 8, 32, 16, 2, 2),
    "transpose conv 4x4 / 2": transposed(8, 8, 16, 8, 4, 2),
    "transpose conv 2x2 / 2, 5 to 7": transposed(8, 8, 5, 7, 2, 2),
    "matmul 4 x 32x16 turned": matmul(4, 32, 16, 32, True),
    "matmul 4 x 32x32": matmul(4, 32, 32, 16, False),
    "matmul 7x13, 13x9": matmul(1, 7, 13, 9, False),
    "dense 32 rows": dense(32, 64, 64),
    "depthwise 3x3": depthwise(16, 16, 32, (3, 3), 1),
    "depthwise 3x3 / 2": depthwise(16, 16, 32, (3, 3), 2),
    "depthwise 5x5": depthwise(16, 16, 32, (5, 5), 1),
    "depthwise 1-D 9 taps": depthwise(1, 64, 32, (1, 9), 1),
    "int16 conv 3x3": conv(12, 12, 16, 16, (3, 3), kind="int16"),
    "int16 conv 1x1": conv(12, 12, 64, 32, (1, 1), kind="int16"),
    "int16 conv 1-D": conv(1, 64, 32, 32, (1, 5), kind="int16"),
    "int16 conv 1-D 9 taps 1 channel": conv(1, 100, 1, 16, (1, 9), kind="int16"),
    "int16 conv 1-D 4 groups of 8": conv(1, 64, 32, 32, (1, 5), 4, kind="int16"),
    "int16 matmul 4 x 32x32": matmul(4, 32, 32, 16, False, "int16"),
    "int16 matmul 7x13, 13x9": matmul(1, 7, 13, 9, False, "int16"),
    "int16 depthwise 3x3": depthwise(16, 16, 32, (3, 3), 1, "int16"),
    "int16 dense": dense(1, 256, 64, "int16"),
    "int16 transpose conv": transposed(8, 8, 16, 16, 3, 2, "int16"),
    "SVDF": svdf(40, 64, 2, 10),
    "LOGISTIC": function("LOGISTIC", IMAGE, UNIT, None),
    "TANH": function("TANH", IMAGE, SIGNED, None),
    "HARD_SWISH": function("HARD_SWISH", IMAGE, None, schema.HardSwishOptionsT()),
    "LOGISTIC int16": function("LOGISTIC", IMAGE, Quant((2.0**-15,), (0,)), None, "int16"),
    "TANH int16": function("TANH", IMAGE, Quant((2.0**-15,), (0,)), None, "int16"),
    "RELU": function("RELU", IMAGE, Quant((0.03,), (-128,)), None),
    "ADD": function("ADD", IMAGE, SIGNED, schema.AddOptionsT(), operands=2),
    "MUL": function("MUL", IMAGE, SIGNED, schema.MulOptionsT(), operands=2),
    "ADD int16": function("ADD", IMAGE, None, schema.AddOptionsT(), "int16", 2),
    "MUL int16": function("MUL", IMAGE, None, schema.MulOptionsT(), "int16", 2),
    "RESIZE_BILINEAR": resized("RESIZE_BILINEAR", 8, 8, 16, schema.ResizeBilinearOptionsT),
    "RESIZE_NEAREST": resized("RESIZE_NEAREST_NEIGHBOR", 8, 8, 16, schema.ResizeNearestNeighborOptionsT),
}  # fmt: skip
FUNCTIONS = ("LOGISTIC", "TANH", "HARD_SWISH", "RELU", "ADD", "MUL", "LOGISTIC int16", "TANH int16", "ADD int16",
             "MUL int16", "RESIZE_BILINEAR", "RESIZE_NEAREST")  # fmt: skip
ELEMENTS = {name: prod(IMAGE) for name in FUNCTIONS} | {"SVDF": 64 * 2 * (40 + 10)}  # of results; SVDF: products


def written(name: str, folder: Path) -> Path:
    """The file of a layer."""
    file = folder / f"{''.join(c if c.isalnum() else '_' for c in name)}.tflite"
    file.write_bytes(LAYERS[name]())
    return file
