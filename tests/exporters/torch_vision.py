"""Images from PyTorch: `torch.onnx.export`, the older one by tracing and the newer one by `dynamo=True`."""

from __future__ import annotations

import numpy as np
import onnx

from .writer import Net

TRACED = "/{kind}_{number}_output_0"  # names of the exporter that traces
DYNAMO = "val_{number}"


def cnn() -> onnx.ModelProto:
    """Conv, BatchNorm, ReLU, MaxPool, twice; flatten; two Linear. The batch is left open."""
    net = Net(TRACED, 13)
    x = net.input("input", ("batch_size", 1, 12, 12))
    for inner, out in ((1, 6), (6, 8)):
        x = net.op("Relu", net.normalised(net.conv(x, out, inner, (3, 3), pads=[1, 1, 1, 1], group=1), out))
        x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0], ceil_mode=0)
    x = net.op("Flatten", x, axis=1)
    return net.done(net.linear(net.op("Relu", net.linear(x, 16, 72)), 10, 16))


def mobilenet_v3() -> onnx.ModelProto:
    """Hard-swish as opset 13 writes it, and a squeeze-and-excite block with hard-sigmoid."""
    net = Net(TRACED, 13)

    def hard_swish(x: str) -> str:
        raised = net.op("Add", x, net.value(3.0))
        return net.op("Div", net.op("Mul", x, net.op("Clip", raised, net.value(0.0), net.value(6.0))), net.value(6.0))

    x = hard_swish(net.conv(net.input("input", (1, 3, 16, 16)), 8, 3, (3, 3), pads=[1, 1, 1, 1], strides=[2, 2]))
    wide = net.op("Relu", net.conv(x, 24, 8, (1, 1)))
    deep = net.op("Relu", net.conv(wide, 24, 1, (5, 5), pads=[2, 2, 2, 2], group=24))
    mean = net.op("GlobalAveragePool", deep)
    gate = net.op("HardSigmoid", net.conv(net.op("Relu", net.conv(mean, 8, 24, (1, 1))), 24, 8, (1, 1)), alpha=1 / 6)
    x = net.op("Add", net.conv(net.op("Mul", gate, deep), 8, 24, (1, 1)), x)
    x = net.op("Flatten", net.op("GlobalAveragePool", hard_swish(net.conv(x, 16, 8, (1, 1)))), axis=1)
    return net.done(net.linear(hard_swish(net.linear(x, 12, 16)), 5, 12))


def efficientnet() -> onnx.ModelProto:
    """SiLU as Sigmoid and Mul; squeeze-and-excite by ReduceMean over two axes with keepdims."""
    net = Net(TRACED, 17)

    def silu(x: str) -> str:
        return net.op("Mul", x, net.op("Sigmoid", x))

    x = silu(net.normalised(net.conv(net.input("x", (1, 3, 12, 12)), 8, 3, (3, 3), pads=[1, 1, 1, 1]), 8))
    deep = silu(net.conv(x, 8, 1, (3, 3), pads=[1, 1, 1, 1], group=8, strides=[2, 2]))
    mean = net.op("ReduceMean", deep, axes=[2, 3], keepdims=1)
    gate = net.op("Sigmoid", net.conv(silu(net.conv(mean, 2, 8, (1, 1))), 8, 2, (1, 1)))
    x = net.conv(net.op("Mul", deep, gate), 12, 8, (1, 1))
    return net.done(net.linear(net.op("ReduceMean", x, axes=[2, 3], keepdims=0), 6, 12))


def shufflenet() -> onnx.ModelProto:
    """A unit with chunk, and channel_shuffle by view, transpose, view."""
    net = Net(TRACED, 13)
    x = net.op("Relu", net.conv(net.input("images", (1, 3, 10, 10)), 8, 3, (3, 3), strides=[2, 2], pads=[1, 1, 1, 1]))
    left, right = net.ops("Split", x, net.longs(4, 4), count=2, axis=1)
    right = net.op("Relu", net.conv(right, 4, 4, (1, 1)))
    right = net.op("Relu", net.conv(net.conv(right, 4, 1, (3, 3), group=4, pads=[1, 1, 1, 1]), 4, 4, (1, 1)))
    x = net.op("Concat", left, right, axis=1)
    x = net.op("Reshape", x, net.longs(1, 2, 4, 5, 5))
    x = net.op("Reshape", net.op("Transpose", x, perm=[0, 2, 1, 3, 4]), net.longs(1, -1, 5, 5))
    x = net.op("Relu", net.conv(x, 8, 2, (3, 3), group=4, pads=[1, 1, 1, 1]))
    return net.done(net.linear(net.op("ReduceMean", x, axes=[2, 3], keepdims=0), 7, 8))


def unet() -> onnx.ModelProto:
    """Two levels down and up: one by Resize with sizes from Shape, one by ConvTranspose; concatenated skips."""
    net = Net(TRACED, 13)

    def double(x: str, inner: int, out: int) -> str:
        x = net.op("Relu", net.normalised(net.conv(x, out, inner, (3, 3), pads=[1, 1, 1, 1]), out))
        return net.op("Relu", net.conv(x, out, out, (3, 3), pads=[1, 1, 1, 1]))

    first = double(net.input("image", (1, 1, 12, 16)), 1, 4)
    second = double(net.op("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2]), 4, 8)
    third = double(net.op("MaxPool", second, kernel_shape=[2, 2], strides=[2, 2]), 8, 12)
    up = net.op(
        "ConvTranspose", third, net.weight(12, 8, 2, 2, fan=12), net.weight(8, fan=20),
        kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0], dilations=[1, 1], group=1,
    )  # fmt: skip
    x = double(net.op("Concat", second, up, axis=1), 16, 8)
    scales = net.value([1.0, 1.0, 2.0, 2.0])
    up = net.op(
        "Resize", x, "", scales, coordinate_transformation_mode="pytorch_half_pixel", cubic_coeff_a=-0.75,
        mode="linear", nearest_mode="floor",
    )  # fmt: skip
    x = double(net.op("Concat", first, up, axis=1), 12, 4)
    return net.done(net.op("Sigmoid", net.conv(x, 1, 4, (1, 1))))


def super_resolution() -> onnx.ModelProto:
    """ESPCN: Tanh, and PixelShuffle by six dimensions as traces have it; a bicubic-free skip by nearest Resize."""
    net = Net(TRACED, 11)
    image = net.input("lr", (1, 1, 8, 8))
    x = net.op("Tanh", net.conv(image, 8, 1, (5, 5), pads=[2, 2, 2, 2]))
    x = net.conv(net.op("Tanh", net.conv(x, 8, 8, (3, 3), pads=[1, 1, 1, 1])), 4, 8, (3, 3), pads=[1, 1, 1, 1])
    x = net.op("Transpose", net.op("Reshape", x, net.longs(-1, 1, 2, 2, 8, 8)), perm=[0, 1, 4, 2, 5, 3])
    x = net.op("Reshape", x, net.longs(-1, 1, 16, 16))
    empty = net.value([])
    up = net.op(
        "Resize", image, empty, net.value([1.0, 1.0, 2.0, 2.0]), coordinate_transformation_mode="asymmetric",
        mode="nearest", nearest_mode="floor",
    )  # fmt: skip
    return net.done(net.op("Add", x, up))


def pixel_shuffle() -> onnx.ModelProto:
    """DepthToSpace in CRD order between PReLU, and a global skip."""
    net = Net(DYNAMO, 18)
    x = net.op("PRelu", net.conv(net.input("x", (1, 3, 7, 9)), 8, 3, (3, 3), pads=[1, 1, 1, 1]), net.weight(8, 1, 1))
    y = net.op("PRelu", net.conv(x, 8, 8, (3, 3), pads=[1, 1, 1, 1]), net.weight(8, 1, 1))
    x = net.conv(net.op("Add", x, y), 27, 8, (3, 3), pads=[1, 1, 1, 1])
    return net.done(net.op("Clip", net.op("DepthToSpace", x, blocksize=3, mode="CRD"), net.value(0.0), net.value(1.0)))


def yolo() -> onnx.ModelProto:
    """A decoded detection head: view, permute, sigmoid, split, grid and anchors."""
    net = Net(TRACED, 13)
    x = net.op("LeakyRelu", net.conv(net.input("images", (1, 3, 16, 16)), 8, 3, (3, 3), strides=[2, 2],
                                     pads=[1, 1, 1, 1]), alpha=0.1)  # fmt: skip
    levels = []
    for size, stride in ((4, 4), (2, 8)):
        x = net.op("LeakyRelu", net.conv(x, 8, 8, (3, 3), strides=[2, 2], pads=[1, 1, 1, 1]), alpha=0.1)
        head = net.op("Reshape", net.conv(x, 14, 8, (1, 1)), net.longs(1, 2, 7, size, size))
        head = net.op("Sigmoid", net.op("Transpose", head, perm=[0, 1, 3, 4, 2]))
        xy, wh, rest = net.ops("Split", head, net.longs(2, 2, 3), count=3, axis=4)
        grid = np.stack(np.meshgrid(np.arange(size), np.arange(size)), -1)[None, None] - 0.5
        xy = net.op("Mul", net.op("Add", net.op("Mul", xy, net.value(2.0)), net.value(grid)), net.value(float(stride)))
        wh = net.op("Pow", net.op("Mul", wh, net.value(2.0)), net.value(2.0))
        wh = net.op("Mul", wh, net.value(np.array([[[[[10, 13]]], [[[16, 30]]]]])))
        levels.append(net.op("Reshape", net.op("Concat", xy, wh, rest, axis=4), net.longs(1, -1, 7)))
    return net.done(net.op("Concat", *levels, axis=1))


def ssd() -> onnx.ModelProto:
    """Boxes and classes of two maps, permuted, viewed, concatenated: two outputs."""
    net = Net(TRACED, 13)
    x, boxes, classes = net.input("image", (1, 3, 12, 12)), [], []
    for inner in (3, 8):
        x = net.conv(x, inner, 1, (3, 3), group=inner, strides=[2, 2], pads=[1, 1, 1, 1])
        x = net.op("Clip", net.conv(x, 8, inner, (1, 1)), net.value(0.0), net.value(6.0))
        for parts, width in ((boxes, 4), (classes, 3)):
            head = net.op("Transpose", net.conv(x, 2 * width, 8, (3, 3), pads=[1, 1, 1, 1]), perm=[0, 2, 3, 1])
            parts.append(net.op("Reshape", head, net.longs(1, -1, width)))
    scores = net.op("Softmax", net.op("Concat", *classes, axis=1), axis=2)
    return net.done(net.op("Concat", *boxes, axis=1), scores)


def group_norm() -> onnx.ModelProto:
    """GroupNorm as a trace has it: view, InstanceNormalization with ones, view, scale and shift; Mish by parts."""
    net = Net(TRACED, 17)
    x = net.conv(net.input("x", (1, 3, 9, 9)), 8, 3, (3, 3), pads=[1, 1, 1, 1])
    y = net.op("Reshape", x, net.longs(0, 4, -1))
    y = net.op("InstanceNormalization", y, net.value(np.ones(4)), net.value(np.zeros(4)), epsilon=1e-5)
    y = net.op("Reshape", y, net.op("Shape", x))
    y = net.op("Add", net.op("Mul", y, net.spread(8, 1, 1)), net.weight(8, 1, 1, fan=20))
    y = net.op("Mul", y, net.op("Tanh", net.op("Softplus", y)))
    y = net.conv(y, 6, 8, (3, 3), strides=[2, 2])
    return net.done(net.linear(net.op("Flatten", net.op("GlobalMaxPool", y), axis=1), 4, 6))


def padded_pools() -> onnx.ModelProto:
    """Reflection padding, AvgPool2d that counts its padding, ceil mode, adaptive pools of both kinds side by side."""
    net = Net(TRACED, 17)
    pads = net.value([0, 0, 1, 2, 0, 0, 1, 2], np.int64)
    x = net.op("Pad", net.input("x", (1, 2, 11, 13)), pads, mode="reflect")
    x = net.op("Elu", net.conv(x, 6, 2, (3, 3)), alpha=1.0)
    x = net.op("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1)
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    both = net.op("Concat", net.op("GlobalAveragePool", x), net.op("GlobalMaxPool", x), axis=1)
    return net.done(net.linear(net.op("Flatten", both, axis=1), 3, 12))


def embedding_net() -> onnx.ModelProto:
    """A face embedding: GELU-free CNN, then F.normalize: ReduceL2, Clip, Expand by Shape, Div."""
    net = Net(TRACED, 17)
    x = net.op("PRelu", net.conv(net.input("face", (1, 1, 10, 10)), 6, 1, (3, 3), strides=[2, 2]), net.weight(6, 1, 1))
    x = net.linear(net.op("Flatten", net.normalised(x, 6), axis=1), 8, 96)
    norm = net.op("ReduceL2", x, axes=[1], keepdims=1)
    norm = net.op("Expand", net.op("Clip", norm, net.value(1e-12)), net.op("Shape", x))
    return net.done(net.op("Div", x, norm))


NETWORKS = {
    f"torch {f.__name__}": f
    for f in (
        cnn, mobilenet_v3, efficientnet, shufflenet, unet, super_resolution, pixel_shuffle, yolo, ssd, group_norm,
        padded_pools, embedding_net,
    )
}  # fmt: skip
