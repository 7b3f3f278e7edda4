"""One small int8 model, always the same: convolution, depthwise convolution, pool, dense layer, softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.ir import Array, Quant

from .tflite_models import SAME, VALID, File

X = Quant((0.0625,), (-3,))
WEIGHTS = 0.0078125


class Tiny:
    """The parts of the model, so that a test can spoil one of them before it is packed."""

    def __init__(self) -> None:
        self.file = File()
        self.input = self.file.tensor("image", (1, 8, 8, 2), "int8", X)
        a = self.convolution(self.input, self.values(4, 3, 3, 2), (1, 8, 8, 4))
        b = self.depthwise(a, self.values(1, 3, 3, 4), (1, 4, 4, 4))
        c = self.pool(b, (1, 2, 2, 4))
        d = self.dense(c, self.values(3, 16), (1, 3))
        self.inputs = [self.input]
        self.output = self.file.tensor("classes", (1, 3), "int8", Quant((1 / 256,), (-128,)))
        options = schema.SoftmaxOptionsT()
        options.beta = 1.0
        self.file.operator("SOFTMAX", [d], [self.output], options)

    def pack(self) -> bytes:
        return self.file.pack(self.inputs, [self.output])

    def values(self, *shape: int) -> Array:
        """Numbers that look random and are the same with every library."""
        n = np.arange(int(np.prod(shape)), dtype=np.int64) + 17 * len(shape)
        return ((n * n * 31 + n * 7) % 251 - 125).astype(np.int8).reshape(shape)

    def constants(self, name: str, w: Array, channels: int) -> list[int]:
        weights = self.file.tensor(f"{name}/weights", w.shape, "int8", Quant((WEIGHTS,), (0,)), w)
        bias = (np.arange(channels) * 40 - 50).astype(np.int32)
        product = Quant((X.scale[0] * WEIGHTS,), (0,))
        return [weights, self.file.tensor(f"{name}/bias", bias.shape, "int32", product, bias)]

    def result(self, name: str, shape: tuple[int, ...]) -> int:
        return self.file.tensor(name, shape, "int8", X)

    def convolution(self, x: int, w: Array, shape: tuple[int, ...]) -> int:
        y = self.result("conv", shape)
        options = window(schema.Conv2DOptionsT(), SAME, 1)
        self.file.operator("CONV_2D", [x, *self.constants("conv", w, shape[3])], [y], options)
        return y

    def depthwise(self, x: int, w: Array, shape: tuple[int, ...]) -> int:
        y = self.result("depthwise", shape)
        options = window(schema.DepthwiseConv2DOptionsT(), SAME, 2)
        options.depthMultiplier = 1
        self.file.operator("DEPTHWISE_CONV_2D", [x, *self.constants("depthwise", w, shape[3])], [y], options)
        return y

    def pool(self, x: int, shape: tuple[int, ...]) -> int:
        y = self.result("pool", shape)
        options = schema.Pool2DOptionsT()
        options.padding, options.strideH, options.strideW, options.filterHeight, options.filterWidth = VALID, 2, 2, 2, 2
        self.file.operator("MAX_POOL_2D", [x], [y], options)
        return y

    def dense(self, x: int, w: Array, shape: tuple[int, ...]) -> int:
        y = self.result("dense", shape)
        options = schema.FullyConnectedOptionsT()
        self.file.operator("FULLY_CONNECTED", [x, *self.constants("dense", w, shape[1])], [y], options)
        return y


def window(options: Any, padding: int, stride: int) -> Any:
    options.padding, options.fusedActivationFunction = padding, 1
    options.strideH = options.strideW = stride
    options.dilationHFactor = options.dilationWFactor = 1
    return options


def tiny_tflite() -> bytes:
    return Tiny().pack()
