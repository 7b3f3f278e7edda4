"""Keras models through tf2onnx: channels last outside, transposes around every convolution, long names."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from .writer import Net

KERAS = "StatefulPartitionedCall/model/{kind}_{number}:0"


class Layers(Net):
    """Keras layers as tf2onnx writes them."""

    def __init__(self, opset: int = 15) -> None:
        super().__init__(KERAS, opset)

    def first(self, x: str) -> str:
        return self.op("Transpose", x, perm=[0, 3, 1, 2])

    def last(self, x: str) -> str:
        return self.op("Transpose", x, perm=[0, 2, 3, 1])

    def softmax(self, x: str) -> str:
        return self.op("Softmax", x, axis=-1)


def cnn() -> onnx.ModelProto:
    """Conv2D(same, relu), MaxPooling2D, Flatten, Dense, Softmax."""
    net = Layers()
    x = net.first(net.input("input_1", ("unk__31", 10, 10, 3)))
    x = net.op("Relu", net.op("Conv", x, net.weight(6, 3, 3, 3), net.weight(6, fan=20), auto_pad="SAME_UPPER"))
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], auto_pad="VALID")
    x = net.op("Relu", net.op("Conv", x, net.weight(8, 6, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER"))
    x = net.op("Reshape", net.last(x), net.stored([-1, 72], np.int64))
    x = net.op("Relu", net.projected(x, 72, 10))
    return net.done(net.softmax(net.projected(x, 10, 4)))


def mobilenet() -> onnx.ModelProto:
    """ZeroPadding2D, DepthwiseConv2D, batch normalisation as Mul and Add, ReLU6 as Min and Max."""
    net = Layers()
    x = net.op("Pad", net.input("input_1", (1, 12, 12, 3)), net.stored([0, 0, 0, 0, 0, 1, 1, 0], np.int64))
    x = net.op("Conv", net.first(x), net.weight(8, 3, 3, 3), strides=[2, 2], kernel_shape=[3, 3])
    x = net.op("Add", net.op("Mul", x, net.spread(1, 8, 1, 1)), net.weight(1, 8, 1, 1, fan=20))
    x = net.op("Max", net.op("Min", x, net.stored(6.0)), net.stored(0.0))
    x = net.op("Conv", x, net.weight(8, 1, 3, 3), group=8, auto_pad="SAME_UPPER", kernel_shape=[3, 3])
    x = net.op("Clip", x, net.stored(0.0), net.stored(6.0))
    x = net.op("GlobalAveragePool", net.op("Conv", x, net.weight(12, 8, 1, 1), net.weight(12, fan=20)))
    x = net.op("Squeeze", x, net.stored([2, 3], np.int64))
    return net.done(net.softmax(net.projected(x, 12, 5)))


def conv1d() -> onnx.ModelProto:
    """Conv1D and SeparableConv1D: two dimensions with a height of one, ExpandDims and Squeeze."""
    net = Layers()
    x, inner = net.input("signal", (1, 20, 3)), 3
    for out in (6, 8):
        y = net.op("Unsqueeze", x, net.stored([1], np.int64))
        y = net.op("Conv", net.first(y), net.weight(out, inner, 1, 5), strides=[1, 2], auto_pad="SAME_UPPER")
        y = net.op("Squeeze", net.last(y), net.stored([1], np.int64))
        x, inner = net.op("Relu", net.op("Add", y, net.weight(out, fan=20))), out
    x = net.op("ReduceMean", x, axes=[1], keepdims=0)
    return net.done(net.softmax(net.projected(x, 8, 4)))


def lstm() -> onnx.ModelProto:
    """LSTM(return_sequences=False), then Dense: the states are Slices of Y_h."""
    net = Layers()
    x = net.op("Transpose", net.input("sequence", (1, 8, 4)), perm=[1, 0, 2])
    weights, bias = [net.weight(1, 24, n, fan=n) for n in (4, 6)], net.weight(1, 48, fan=20)
    start = net.op("Expand", net.stored(np.zeros((1, 1, 1))), net.stored([1, 1, 6], np.int64))
    _, h, _ = net.ops("LSTM", x, *weights, bias, "", start, start, count=3, hidden_size=6, direction="forward")
    h = net.op("Squeeze", h, net.stored([0], np.int64))
    return net.done(net.op("Sigmoid", net.projected(h, 6, 1)))


def gru_denoiser() -> onnx.ModelProto:
    """Dense, GRU(reset_after=True) over all steps, Dense with a mask that multiplies the input."""
    net = Layers()
    x = net.input("bands", (1, 6, 8))
    y = net.op("Tanh", net.projected(x, 8, 6))
    y = net.op("Transpose", y, perm=[1, 0, 2])
    weights, bias = [net.weight(1, 18, 6, fan=6) for _ in range(2)], net.weight(1, 36, fan=20)
    y, _ = net.ops("GRU", y, *weights, bias, count=2, hidden_size=6, linear_before_reset=1, direction="forward")
    y = net.op("Transpose", net.op("Squeeze", y, net.stored([1], np.int64)), perm=[1, 0, 2])
    return net.done(net.op("Mul", x, net.op("Sigmoid", net.projected(y, 6, 8))))


def attention() -> onnx.ModelProto:
    """MultiHeadAttention: every product an Einsum; LayerNormalization by parts with Reciprocal."""
    net = Layers()
    x = net.input("tokens", (1, 6, 8))
    q, k, v = (
        net.op("Add", net.op("Einsum", x, net.weight(8, 2, 4, fan=8), equation="abc,cde->abde"), net.weight(2, 4))
        for _ in range(3)
    )
    scores = net.op("Einsum", k, net.op("Mul", q, net.stored(0.5)), equation="aecd,abcd->acbe")
    seen = net.op("Einsum", net.softmax(scores), v, equation="acbe,aecd->abcd")
    seen = net.op("Add", net.op("Einsum", seen, net.weight(2, 4, 8, fan=8), equation="abcd,cde->abe"), net.weight(8))
    x = net.op("Add", x, seen)
    mean = net.op("ReduceMean", x, axes=[-1], keepdims=1)
    rest = net.op("Sub", x, mean)
    variance = net.op("ReduceMean", net.op("Mul", rest, rest), axes=[-1], keepdims=1)
    factor = net.op("Reciprocal", net.op("Sqrt", net.op("Add", variance, net.stored(1e-3))))
    factor = net.op("Mul", factor, net.spread(8))
    x = net.op("Add", net.op("Mul", x, factor), net.op("Sub", net.weight(8, fan=20), net.op("Mul", mean, factor)))
    return net.done(net.projected(net.op("ReduceMean", x, axes=[1], keepdims=0), 8, 3))


def segmentation() -> onnx.ModelProto:
    """Conv2DTranspose and UpSampling2D in channels-last order, softmax over channels, argmax as int64."""
    net = Layers()
    x = net.first(net.input("input_1", (1, 8, 8, 2)))
    skip = net.op("Relu", net.op("Conv", x, net.weight(4, 2, 3, 3), net.weight(4, fan=9), auto_pad="SAME_UPPER"))
    x = net.op("AveragePool", skip, kernel_shape=[2, 2], strides=[2, 2], auto_pad="VALID")
    x = net.op("Relu", net.op("Conv", x, net.weight(6, 4, 3, 3), net.weight(6, fan=9), auto_pad="SAME_UPPER"))
    up = net.op("ConvTranspose", x, net.weight(6, 4, 3, 3, fan=24), strides=[2, 2], auto_pad="SAME_UPPER",
                output_shape=[8, 8])  # fmt: skip
    up = net.op("Concat", net.last(up), net.last(skip), axis=3)
    up = net.op(
        "Resize", net.first(up), "", net.stored([1.0, 1.0, 2.0, 2.0]), mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )  # fmt: skip
    x = net.last(net.op("Conv", up, net.weight(3, 8, 1, 1), net.weight(3, fan=20)))
    scores = net.softmax(x)
    return net.done(scores, net.op("ArgMax", scores, axis=3, keepdims=0))


def siamese() -> onnx.ModelProto:
    """Two inputs through shared weights, the Euclidean distance between them, two heads."""
    net = Layers()
    w, b = net.weight(10, 8, fan=10), net.weight(8, fan=20)
    sides = [
        net.op("LeakyRelu", net.op("Add", net.op("MatMul", net.input(name, (1, 10)), w), b), alpha=0.3)
        for name in ("left", "right")
    ]
    rest = net.op("Sub", *sides)
    square = net.op("ReduceSum", net.op("Mul", rest, rest), net.stored([1], np.int64), keepdims=1)
    distance = net.op("Sqrt", net.op("Max", square, net.stored(1e-7)))
    return net.done(distance, net.op("Sigmoid", net.projected(net.op("Abs", rest), 8, 1)))


def feature_columns() -> onnx.ModelProto:
    """Tabular data: an Embedding of whole numbers joined with scaled numbers; Dense with selu and swish."""
    net = Layers()
    kind = net.op("Cast", net.input("kind", (1, 2), TensorProto.INT32), to=TensorProto.INT64)
    words = net.op("Reshape", net.op("Gather", net.weight(12, 3, fan=3), kind), net.stored([-1, 6], np.int64))
    numbers = net.op("Sub", net.input("numbers", (1, 4)), net.weight(1, 4, fan=4))
    numbers = net.op("Div", numbers, net.spread(1, 4))
    x = net.op("Selu", net.projected(net.op("Concat", words, numbers, axis=1), 10, 8))
    x = net.projected(x, 8, 8)
    x = net.op("Mul", net.op("Sigmoid", x), x)
    return net.done(net.op("Softplus", net.projected(x, 8, 2)))


NETWORKS = {
    f"keras {f.__name__}": f
    for f in (cnn, mobilenet, conv1d, lstm, gru_denoiser, attention, segmentation, siamese, feature_columns)
}
