"""Idioms of PyTorch: assigned slices, masks, one-hot vectors, rolled tensors, normalisations over channels."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from .torch_vision import DYNAMO, TRACED
from .writer import Net


def assigned_slice() -> onnx.ModelProto:
    """y = x.clone(); y[:, 1:3] = conv(x)[:, :2]: ScatterND at a grid of places."""
    net = Net(TRACED, 17)
    x = net.input("x", (1, 4, 6, 6))
    y = net.op("Relu", net.conv(x, 4, 4, (3, 3), pads=[1, 1, 1, 1]))
    part = net.op("Slice", y, net.longs(0), net.longs(2), net.longs(1))
    grid = np.stack(np.meshgrid([0], [1, 2], indexing="ij"), axis=-1)
    y = net.op("ScatterND", x, net.value(grid, np.int64), part)
    return net.done(net.linear(net.op("Flatten", net.op("GlobalAveragePool", y), axis=1), 3, 4))


def one_hot() -> onnx.ModelProto:
    """F.one_hot of class numbers, joined with features, an MLP with SiLU, a clamp."""
    net = Net(TRACED, 17)
    places = net.op("OneHot", net.input("kind", (1, 2), TensorProto.INT64), net.value(10, np.int64),
                    net.value([0, 1], np.int64), axis=-1)  # fmt: skip
    flat = net.op("Reshape", net.op("Cast", places, to=TensorProto.FLOAT), net.longs(1, 20))
    x = net.linear(net.op("Concat", flat, net.input("numbers", (1, 5)), axis=1), 12, 25)
    x = net.op("Mul", x, net.op("Sigmoid", x))
    return net.done(net.op("Clip", net.linear(x, 3, 12), net.value(-2.0), net.value(2.0)))


def convnext() -> onnx.ModelProto:
    """A depthwise 7 x 7, LayerNorm of channels last, two linear layers with GELU, a scale per channel, a skip."""
    net = Net(DYNAMO, 18)
    x = net.conv(net.input("x", (1, 3, 12, 12)), 6, 3, (4, 4), strides=[4, 4])
    y = net.conv(x, 6, 1, (7, 7), group=6, pads=[3, 3, 3, 3])
    y = net.op("Transpose", y, perm=[0, 2, 3, 1])
    y = net.op("LayerNormalization", y, net.spread(6), net.weight(6, fan=20), axis=-1, epsilon=1e-6)
    y = net.projected(y, 6, 24)
    half = net.op("Mul", y, net.value(0.5))
    y = net.op("Mul", half, net.op("Add", net.op("Erf", net.op("Div", y, net.value(2**0.5))), net.value(1.0)))
    y = net.op("Mul", net.projected(y, 24, 6), net.weight(6, fan=3))
    x = net.op("Add", net.op("Transpose", y, perm=[0, 3, 1, 2]), x)
    return net.done(net.linear(net.op("Flatten", net.op("GlobalAveragePool", x), axis=1), 4, 6))


def shifted_windows() -> onnx.ModelProto:
    """torch.roll as two Slices and a Concat, windows by Reshape and Transpose, attention with a Trilu mask."""
    net = Net(TRACED, 17)
    x = net.input("x", (1, 4, 4, 6))
    for axis in (1, 2):
        late = net.op("Slice", x, net.longs(1), net.longs(4), net.longs(axis))
        x = net.op("Concat", late, net.op("Slice", x, net.longs(0), net.longs(1), net.longs(axis)), axis=axis)
    x = net.op("Transpose", net.op("Reshape", x, net.longs(1, 2, 2, 2, 2, 6)), perm=[0, 1, 3, 2, 4, 5])
    x = net.op("Reshape", x, net.longs(4, 4, 6))
    q, k, v = (net.projected(x, 6, 6) for _ in range(3))
    scores = net.op("Mul", net.op("MatMul", q, net.op("Transpose", k, perm=[0, 2, 1])), net.value(0.4))
    mask = net.op("Trilu", net.value(np.full((4, 4), -1e4)), net.value(1, np.int64), upper=1)
    seen = net.op("MatMul", net.op("Softmax", net.op("Add", scores, mask), axis=-1), v)
    kept = net.op("Trilu", seen, net.value(1, np.int64), upper=0)
    return net.done(net.projected(net.op("Reshape", kept, net.longs(1, 96)), 96, 3))


def style_transfer() -> onnx.ModelProto:
    """Reflected borders, InstanceNorm2d(affine), a grouped transpose convolution, Tanh."""
    net = Net(TRACED, 17)
    pads = net.value([0, 0, 2, 2, 0, 0, 2, 2], np.int64)
    x = net.conv(net.op("Pad", net.input("x", (1, 2, 8, 8)), pads, mode="reflect"), 6, 2, (5, 5), strides=[2, 2])
    x = net.op("Relu", net.op("InstanceNormalization", x, net.spread(6), net.weight(6, fan=20), epsilon=1e-5))
    weight = net.weight(6, 2, 3, 3, fan=27)
    x = net.op("ConvTranspose", x, weight, net.weight(4, fan=20), group=2, kernel_shape=[3, 3], strides=[2, 2],
               pads=[1, 1, 1, 1], output_padding=[1, 1])  # fmt: skip
    return net.done(net.op("Tanh", net.conv(x, 2, 4, (3, 3), pads=[1, 1, 1, 1])))


def metric() -> onnx.ModelProto:
    """A generalised mean pool by LpPool, cosine similarity to prototypes, the best of them by TopK."""
    net = Net(TRACED, 17)
    x = net.op("Relu", net.conv(net.input("x", (1, 1, 9, 9)), 6, 1, (3, 3), strides=[2, 2]))
    x = net.op("LpPool", x, kernel_shape=[4, 4], p=2)
    x = net.op("Flatten", x, axis=1)
    length = net.op("Max", net.op("ReduceL2", x, axes=[1], keepdims=1), net.value(1e-8))
    near = net.op("MatMul", net.op("Div", x, length), net.weight(6, 5, fan=12))
    best, _ = net.ops("TopK", near, net.longs(2), count=2, axis=-1)
    return net.done(best, near)


NETWORKS = {
    f"torch {f.__name__}": f for f in (assigned_slice, one_hot, convnext, shifted_windows, style_transfer, metric)
}
