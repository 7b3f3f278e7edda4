"""Blocks of image models as libraries for PyTorch have them: attention over pixels, gates, unusual pools and heads."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from .torch_vision import DYNAMO, TRACED
from .writer import Net


def _silu(net: Net, x: str) -> str:
    return net.op("Mul", x, net.op("Sigmoid", x))


def _head(net: Net, x: str, inner: int, out: int = 3) -> str:
    return net.linear(net.op("Flatten", net.op("GlobalAveragePool", x), axis=1), out, inner)


def mobilevit() -> onnx.ModelProto:
    """Patches unfolded to 4 sequences of pixels, a transformer over each, folded back, joined with the input."""
    net = Net(TRACED, 17)
    x = _silu(net, net.conv(net.input("x", (1, 3, 16, 16)), 6, 3, (3, 3), strides=[2, 2], pads=[1, 1, 1, 1]))
    y = net.conv(_silu(net, net.conv(x, 6, 6, (3, 3), pads=[1, 1, 1, 1])), 8, 6, (1, 1))
    y = net.op("Transpose", net.op("Reshape", y, net.longs(32, 2, 4, 2)), perm=[0, 2, 1, 3])
    y = net.op("Transpose", net.op("Reshape", y, net.longs(1, 8, 16, 4)), perm=[0, 3, 2, 1])
    y = net.op("Reshape", y, net.longs(4, 16, 8))
    z = net.op("LayerNormalization", y, net.spread(8), net.weight(8, fan=20), axis=-1, epsilon=1e-5)
    z = net.op("Transpose", net.op("Reshape", net.projected(z, 8, 24), net.longs(4, 16, 3, 2, 4)), perm=[2, 0, 3, 1, 4])
    q, k, v = (net.op("Gather", z, net.value(i, np.int64), axis=0) for i in range(3))
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = net.op("Softmax", net.op("Mul", scores, net.value(0.5)), axis=-1)
    z = net.op("Transpose", net.op("MatMul", scores, v), perm=[0, 2, 1, 3])
    y = net.op("Add", y, net.projected(net.op("Reshape", z, net.longs(4, 16, 8)), 8, 8))
    z = net.op("LayerNormalization", y, net.spread(8), net.weight(8, fan=20), axis=-1, epsilon=1e-5)
    y = net.op("Add", y, net.projected(_silu(net, net.projected(z, 8, 16)), 16, 8))
    y = net.op("Transpose", net.op("Reshape", y, net.longs(1, 4, 16, 8)), perm=[0, 3, 2, 1])
    y = net.op("Transpose", net.op("Reshape", y, net.longs(32, 4, 2, 2)), perm=[0, 2, 1, 3])
    y = _silu(net, net.conv(net.op("Reshape", y, net.longs(1, 8, 8, 8)), 6, 8, (1, 1)))
    both = net.op("Concat", x, y, axis=1)
    return net.done(_head(net, _silu(net, net.conv(both, 8, 12, (3, 3), pads=[1, 1, 1, 1])), 8))


def channel_attention() -> onnx.ModelProto:
    """ECA's Conv1d over channels, CBAM's maps of mean and maximum, a blurred pool behind a reflected border."""
    net = Net(DYNAMO, 18)
    x = net.op("Relu", net.conv(net.input("x", (1, 3, 12, 12)), 8, 3, (3, 3), pads=[1, 1, 1, 1]))
    gate = net.op("ReduceMean", x, net.stored([2, 3], np.int64), keepdims=0)
    gate = net.op("Unsqueeze", gate, net.stored([1], np.int64))
    gate = net.op("Conv", gate, net.weight(1, 1, 3), kernel_shape=[3], pads=[1, 1])
    gate = net.op("Reshape", net.op("Sigmoid", gate), net.stored([1, 8, 1, 1], np.int64))
    x = net.op("Mul", x, net.op("Expand", gate, net.op("Shape", x)))
    axis = net.stored([1], np.int64)
    both = net.op("Concat", net.op("ReduceMean", x, axis, keepdims=1), net.op("ReduceMax", x, axis, keepdims=1), axis=1)
    place = net.op("Sigmoid", net.conv(both, 1, 2, (7, 7), pads=[3, 3, 3, 3]))
    x = net.op("Mul", x, place)
    x = net.op("Pad", x, net.stored([0, 0, 1, 1, 0, 0, 1, 1], np.int64), mode="reflect")
    blur = np.outer([1, 2, 1], [1, 2, 1])[None, None].repeat(8, 0) / 16
    x = net.op("Conv", x, net.stored(blur), group=8, strides=[2, 2], kernel_shape=[3, 3])
    return net.done(_head(net, x, 8))


def convnext_v2() -> onnx.ModelProto:
    """Global response normalisation: ReduceL2 over both axes, its share of the mean; padding as TensorFlow's SAME."""
    net = Net(TRACED, 17)
    x = net.op("Pad", net.input("x", (1, 3, 11, 11)), net.longs(0, 0, 0, 0, 0, 0, 1, 1), net.value(0.0))
    x = net.conv(x, 8, 3, (4, 4), strides=[4, 4])
    y = net.conv(x, 8, 1, (7, 7), pads=[3, 3, 3, 3], group=8)
    y = net.op("Transpose", y, perm=[0, 2, 3, 1])
    y = net.op("LayerNormalization", y, net.spread(8), net.weight(8, fan=20), axis=-1, epsilon=1e-6)
    y = net.projected(y, 8, 16)
    y = net.op("Mul", net.op("Mul", y, net.op("Add", net.op("Erf", net.op("Div", y, net.value(np.sqrt(2)))),
                                              net.value(1.0))), net.value(0.5))  # fmt: skip
    norm = net.op("ReduceL2", y, axes=[1, 2], keepdims=1)
    mean = net.op("Add", net.op("ReduceMean", norm, axes=[-1], keepdims=1), net.value(1e-6))
    z = net.op("Mul", y, net.op("Div", norm, mean))
    y = net.op("Add", net.op("Add", net.weight(16, fan=20), net.op("Mul", net.spread(16), z)), y)
    y = net.op("Transpose", net.projected(y, 16, 8), perm=[0, 3, 1, 2])
    return net.done(_head(net, net.op("Add", x, y), 8))


def yolo_v8() -> onnx.ModelProto:
    """SPPF, nearest Resize, boxes as expected values of a distribution (Softmax, then a fixed convolution), scores."""
    net = Net(TRACED, 17)
    x = _silu(net, net.conv(net.input("images", (1, 3, 16, 16)), 8, 3, (3, 3), strides=[2, 2], pads=[1, 1, 1, 1]))
    a, b = net.ops("Split", x, net.longs(4, 4), count=2, axis=1)
    b = net.op("Add", b, _silu(net, net.conv(b, 4, 4, (3, 3), pads=[1, 1, 1, 1])))
    x = _silu(net, net.conv(net.op("Concat", a, b, axis=1), 8, 8, (1, 1)))
    deep = _silu(net, net.conv(x, 4, 8, (3, 3), strides=[2, 2], pads=[1, 1, 1, 1]))
    pools = [deep]
    for _ in range(3):
        pools.append(net.op("MaxPool", pools[-1], kernel_shape=[5, 5], pads=[2, 2, 2, 2], strides=[1, 1]))
    deep = _silu(net, net.conv(net.op("Concat", *pools, axis=1), 8, 16, (1, 1)))
    up = net.op("Resize", deep, "", net.value([1, 1, 2, 2]), mode="nearest", nearest_mode="floor",
                coordinate_transformation_mode="asymmetric")  # fmt: skip
    maps = [net.op("Concat", up, x, axis=1), deep]
    flat = []
    for y, inner, size in ((maps[0], 16, 64), (maps[1], 8, 16)):
        both = net.op("Concat", net.conv(y, 16, inner, (1, 1)), net.conv(y, 2, inner, (1, 1)), axis=1)
        flat.append(net.op("Reshape", both, net.longs(1, 18, size)))
    box, score = net.ops("Split", net.op("Concat", *flat, axis=2), net.longs(16, 2), count=2, axis=1)
    bins = net.op("Softmax", net.op("Transpose", net.op("Reshape", box, net.longs(1, 4, 4, 80)), perm=[0, 2, 1, 3]),
                  axis=1)  # fmt: skip
    box = net.op("Conv", bins, net.stored(np.arange(4).reshape(1, 4, 1, 1)), kernel_shape=[1, 1])
    box = net.op("Reshape", box, net.longs(1, 4, 80))
    low, high = (
        net.op("Slice", box, net.longs(i), net.longs(j), net.longs(1), net.longs(1)) for i, j in ((0, 2), (2, 4))
    )
    anchors = net.stored(np.random.default_rng(1).uniform(0, 8, (1, 2, 80)))
    low, high = net.op("Sub", anchors, low), net.op("Add", anchors, high)
    centre = net.op("Div", net.op("Add", low, high), net.value(2.0))
    box = net.op("Concat", centre, net.op("Sub", high, low), axis=1)
    box = net.op("Mul", box, net.stored(np.r_[np.full(64, 2.0), np.full(16, 4.0)][None]))
    return net.done(net.op("Concat", box, net.op("Sigmoid", score), axis=1))


def coordinate_attention() -> onnx.ModelProto:
    """Means along either axis, joined, split again, two gates; ghost convolutions; hard swish as an operator."""
    net = Net(DYNAMO, 18)
    x = net.op("HardSwish", net.conv(net.input("x", (1, 3, 10, 8)), 8, 3, (3, 3), pads=[1, 1, 1, 1]))
    down = net.op("ReduceMean", x, net.stored([3], np.int64), keepdims=1)
    across = net.op("Transpose", net.op("ReduceMean", x, net.stored([2], np.int64), keepdims=1), perm=[0, 1, 3, 2])
    both = net.op("HardSwish", net.conv(net.op("Concat", down, across, axis=2), 4, 8, (1, 1)))
    down, across = net.ops("Split", both, net.stored([10, 8], np.int64), count=2, axis=2)
    across = net.op("Transpose", across, perm=[0, 1, 3, 2])
    gates = [net.op("Sigmoid", net.conv(y, 8, 4, (1, 1))) for y in (down, across)]
    x = net.op("Mul", net.op("Mul", x, gates[0]), gates[1])
    primary = net.op("Relu", net.conv(x, 6, 8, (1, 1)))
    cheap = net.op("Relu", net.conv(primary, 6, 1, (3, 3), pads=[1, 1, 1, 1], group=6))
    y = net.op("Slice", net.op("Concat", primary, cheap, axis=1), *(net.stored([n], np.int64) for n in (0, 10, 1)))
    return net.done(_head(net, y, 10))


def unet_padded() -> onnx.ModelProto:
    """Odd sizes: transposed convolutions, a Pad of computed differences, a crop by a negative Pad, softmax of maps."""
    net = Net(TRACED, 13)
    x = net.input("x", (1, 1, 11, 13))
    first = net.op("Relu", net.normalised(net.conv(x, 4, 1, (3, 3), pads=[1, 1, 1, 1]), 4))
    down = net.op("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2])
    down = net.op("Relu", net.normalised(net.conv(down, 8, 4, (3, 3), pads=[1, 1, 1, 1]), 8))
    up = net.op("ConvTranspose", down, net.weight(8, 4, 2, 2), net.weight(4, fan=20), strides=[2, 2])
    sizes = [net.op("Shape", y) for y in (first, up)]
    rows, columns = (
        net.op("Sub", *(net.op("Gather", s, net.value(i, np.int64), axis=0) for s in sizes)) for i in (2, 3)
    )
    zero = net.longs(0)
    ends = [net.op("Unsqueeze", y, zero) for y in (rows, columns)]
    pads = net.op("Concat", net.longs(0, 0, 0, 0, 0, 0), *ends, axis=0)
    up = net.op("Pad", up, pads, net.value(0.0), mode="constant")
    y = net.op("Relu", net.conv(net.op("Concat", first, up, axis=1), 4, 8, (3, 3), pads=[1, 1, 1, 1]))
    y = net.op("Pad", y, net.longs(0, 0, -1, -2, 0, 0, -1, 1), net.value(0.5), mode="constant")
    return net.done(net.op("Softmax", net.conv(y, 3, 4, (1, 1)), axis=1))


def swin() -> onnx.ModelProto:
    """Windows by six dimensions, a table of relative positions by Gather, cosine attention, merged patches."""
    net = Net(TRACED, 16)
    x = net.conv(net.input("x", (1, 3, 16, 16)), 8, 3, (2, 2), strides=[2, 2])
    x = net.op("Transpose", x, perm=[0, 2, 3, 1])
    y = net.op("Reshape", x, net.longs(1, 2, 4, 2, 4, 8))
    y = net.op("Reshape", net.op("Transpose", y, perm=[0, 1, 3, 2, 4, 5]), net.longs(-1, 16, 8))
    y = net.op("Reshape", net.projected(y, 8, 24), net.longs(4, 16, 3, 2, 4))
    q, k, v = (net.op("Squeeze", z, net.longs(0)) for z in net.ops(
        "Split", net.op("Transpose", y, perm=[2, 0, 3, 1, 4]), net.longs(1, 1, 1), count=3, axis=0))  # fmt: skip

    def unit(z: str) -> str:
        norm = net.op("ReduceL2", z, axes=[-1], keepdims=1)
        return net.op("Div", z, net.op("Expand", net.op("Max", norm, net.value(1e-12)), net.op("Shape", z)))

    scores = net.op("MatMul", unit(q), net.op("Transpose", unit(k), perm=[0, 1, 3, 2]))
    factor = net.op("Exp", net.op("Min", net.weight(2, 1, 1), net.value(np.log(100))))
    places = np.add.outer(np.arange(4), -np.arange(4)) + 3
    index = (places[:, None, :, None] * 7 + places[None, :, None, :]).reshape(-1)
    bias = net.op("Gather", net.weight(49, 2, fan=4), net.value(index, np.int64), axis=0)
    bias = net.op("Transpose", net.op("Reshape", bias, net.longs(16, 16, 2)), perm=[2, 0, 1])
    scores = net.op("Add", net.op("Mul", scores, factor), net.op("Unsqueeze", bias, net.longs(0)))
    y = net.op("Transpose", net.op("MatMul", net.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    y = net.op("Reshape", net.projected(net.op("Reshape", y, net.longs(4, 16, 8)), 8, 8), net.longs(1, 2, 2, 4, 4, 8))
    y = net.op("Reshape", net.op("Transpose", y, perm=[0, 1, 3, 2, 4, 5]), net.longs(1, 8, 8, 8))
    x = net.op("Add", x, y)
    parts = [
        net.op("Slice", x, net.longs(i, j), net.longs(2**63 - 1, 2**63 - 1), net.longs(1, 2), net.longs(2, 2))
        for j in (0, 1)
        for i in (0, 1)
    ]
    merged = net.op("Reshape", net.op("Concat", *parts, axis=-1), net.longs(1, -1, 32))
    y = net.op("ReduceMean", net.projected(merged, 32, 8), axes=[1], keepdims=0)
    return net.done(net.linear(y, 3, 8))


def implicit() -> onnx.ModelProto:
    """Fourier features and sines (SIREN), a grid from Range, a snake activation, mixture of experts by TopK."""
    net = Net(TRACED, 17)
    x = net.input("places", (10, 2))
    angles = net.op("Mul", net.op("MatMul", x, net.weight(2, 6, fan=1)), net.value(2 * np.pi))
    y = net.op("Concat", net.op("Sin", angles), net.op("Cos", angles), axis=-1)
    y = net.op("Sin", net.op("Mul", net.linear(y, 12, 12), net.value(3.0)))
    y = net.linear(y, 12, 12)
    sine = net.op("Pow", net.op("Sin", net.op("Mul", y, net.spread(12))), net.value(2.0))
    y = net.op("Add", y, net.op("Mul", net.op("Reciprocal", net.spread(12)), sine))
    gates = net.op("Softmax", net.linear(y, 4, 12), axis=-1)
    best, _ = net.ops("TopK", gates, net.longs(1), count=2, axis=-1, largest=1, sorted=1)
    chosen = net.op("Where", net.op("GreaterOrEqual", gates, best), gates, net.value(0.0))
    experts = [net.op("Unsqueeze", net.op("Tanh", net.linear(y, 6, 12)), net.longs(1)) for _ in range(4)]
    mixed = net.op("MatMul", net.op("Unsqueeze", chosen, net.longs(1)), net.op("Concat", *experts, axis=1))
    return net.done(net.linear(net.op("Squeeze", mixed, net.longs(1)), 3, 6))


def adaptive() -> onnx.ModelProto:
    """PReLU of channels, pools with ceil mode and paddings that count, masked by a comparison, cumulative sums."""
    net = Net(TRACED, 19)
    x = net.conv(net.input("x", (1, 2, 14, 14)), 6, 2, (3, 3), pads=[1, 1, 1, 1])
    x = net.op("PRelu", x, net.spread(6, 1, 1, low=0.1, high=0.4))
    y = net.op("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1,
               count_include_pad=1)  # fmt: skip
    z = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1)
    y = net.op("Add", y, z)
    y = net.op("AveragePool", y, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, count_include_pad=0)
    mask = net.op("Cast", net.op("Greater", y, net.value(0.2)), to=TensorProto.FLOAT)
    y = net.op("Mul", y, mask)
    y = net.op("CumSum", net.op("ReduceMean", y, net.longs(2), keepdims=0), net.value(2, np.int64))
    return net.done(net.linear(net.op("Flatten", y, axis=1), 3, 24))


NETWORKS = {
    f"torch {f.__name__}": f
    for f in (
        mobilevit, channel_attention, convnext_v2, yolo_v8, coordinate_attention, unet_padded, swin, implicit, adaptive,
    )
}  # fmt: skip
