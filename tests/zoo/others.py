"""Networks of other trades, seeded: sequences, attention, images from images, boxes.

As exporters write them (see tests/exporters), at sizes at which a microcontroller has something to do. The spotter is
a TFLite file, since SVDF is an operator of TFLite.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.ir import Quant
from tests.exporters.writer import Net
from tests.graphs.tflite_models import File

STYLE = "/{kind}_{number}_output_0"


def gru_denoiser(seed: int = 0) -> onnx.ModelProto:
    """Noise suppression, a frame a call: 22 bands, a GRU whose state goes in and out -> gains of the bands."""
    net = Net(STYLE, 17, seed)
    frame, state = net.input("input", (1, 22)), net.input("state", (1, 24))
    x = net.op("Tanh", net.linear(frame, 24, 22))
    own, back = net.linear(x, 72, 24), net.linear(state, 72, 24)
    (r, z, n), (hr, hz, hn) = (net.ops("Split", g, net.longs(24, 24, 24), count=3, axis=1) for g in (own, back))
    reset, keep = net.op("Sigmoid", net.op("Add", r, hr)), net.op("Sigmoid", net.op("Add", z, hz))
    new = net.op("Tanh", net.op("Add", n, net.op("Mul", reset, hn)))
    after = net.op("Add", new, net.op("Mul", keep, net.op("Sub", state, new)))
    gains = net.op("Sigmoid", net.linear(net.op("Concat", after, x, axis=1), 22, 48))
    return net.done(net.op("Mul", frame, gains), after)


def lstm_anomaly(seed: int = 0) -> onnx.ModelProto:
    """Vibration: 12 windows of 6 axes through an LSTM and back to the windows; the error of each axis."""
    net = Net(STYLE, 17, seed)
    x = net.input("input", (1, 12, 6))
    y = net.op("Transpose", x, perm=[1, 0, 2])
    weights = [net.weight(1, 64, n, fan=2 * n) for n in (6, 16)]
    y, *_ = net.ops("LSTM", y, *weights, net.weight(1, 128, fan=20), count=3, hidden_size=16)
    y = net.op("Transpose", net.op("Squeeze", y, net.longs(1)), perm=[1, 0, 2])
    rest = net.op("Sub", x, net.projected(y, 16, 6))
    return net.done(net.op("ReduceMean", net.op("Mul", rest, rest), axes=[1], keepdims=0))


def tiny_transformer(seed: int = 0) -> onnx.ModelProto:
    """Gestures: 32 steps of 6 sensors, two layers of two heads, mean over the steps -> 5 classes."""
    net, width, heads, steps = Net(STYLE, 17, seed), 16, 2, 32
    x = net.op("Add", net.projected(net.input("input", (1, steps, 6)), 6, width), net.weight(1, steps, width, fan=50))

    def head(y: str, perm: list[int]) -> str:
        shape = net.longs(1, steps, heads, width // heads)
        return net.op("Transpose", net.op("Reshape", net.projected(y, width, width), shape), perm=perm)

    def norm(y: str) -> str:
        return net.op("LayerNormalization", y, net.spread(width), net.weight(width, fan=20), axis=-1)

    for _ in range(2):
        y = norm(x)
        scores = net.op("MatMul", head(y, [0, 2, 1, 3]), head(y, [0, 2, 3, 1]))
        shares = net.op("Softmax", net.op("Div", scores, net.value(np.sqrt(width / heads))), axis=-1)
        seen = net.op("Transpose", net.op("MatMul", shares, head(y, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
        seen = net.op("Reshape", seen, net.longs(1, steps, width))
        x = net.op("Add", x, net.projected(seen, width, width))
        y = net.op("Relu", net.projected(norm(x), width, 2 * width))
        x = net.op("Add", x, net.projected(y, 2 * width, width))
    return net.done(net.op("Softmax", net.linear(net.op("ReduceMean", x, axes=[1], keepdims=0), 5, width), axis=1))


def u_net(seed: int = 0) -> onnx.ModelProto:
    """Segmentation: grey image of 48x48, two levels, transpose convolutions, skips -> 2 classes for each pixel."""
    net = Net(STYLE, 17, seed)

    def block(x: str, inner: int, out: int) -> str:
        for channels in (inner, out):
            x = net.op("Relu", net.normalised(net.conv(x, out, channels, (3, 3), pads=[1, 1, 1, 1]), out))
        return x

    def down(x: str) -> str:
        return net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])

    def up(x: str, inner: int, out: int) -> str:
        weight, bias = net.weight(inner, out, 2, 2, fan=inner), net.weight(out, fan=20)
        return net.op("ConvTranspose", x, weight, bias, kernel_shape=[2, 2], strides=[2, 2])

    first = block(net.input("input", (1, 1, 48, 48)), 1, 8)
    second = block(down(first), 8, 12)
    third = block(down(second), 12, 16)
    x = block(net.op("Concat", up(third, 16, 12), second, axis=1), 24, 12)
    x = block(net.op("Concat", up(x, 12, 8), first, axis=1), 16, 8)
    return net.done(net.conv(x, 2, 8, (1, 1)))


def ssd_head(seed: int = 0) -> onnx.ModelProto:
    """Objects: colour image of 48x48, separable layers, heads on two maps; boxes and scores of all anchors."""
    net = Net(STYLE, 13, seed)

    def separable(x: str, inner: int, out: int) -> str:
        x = net.conv(x, inner, 1, (3, 3), group=inner, strides=[2, 2], pads=[1, 1, 1, 1])
        return net.op("Clip", net.conv(x, out, inner, (1, 1)), net.value(0.0), net.value(6.0))

    x = net.op("Relu", net.conv(net.input("input", (1, 3, 48, 48)), 8, 3, (3, 3), strides=[2, 2], pads=[1, 1, 1, 1]))
    x, heads = separable(x, 8, 16), ([], [])  # type: tuple[str, tuple[list[str], list[str]]]
    for inner, out in ((16, 24), (24, 32)):
        x = separable(x, inner, out)
        for parts, width in zip(heads, (4, 3), strict=True):
            head = net.conv(x, 3 * width, out, (3, 3), pads=[1, 1, 1, 1])
            parts.append(net.op("Reshape", net.op("Transpose", head, perm=[0, 2, 3, 1]), net.longs(1, -1, width)))
    boxes, scores = (net.op("Concat", *parts, axis=1) for parts in heads)
    return net.done(boxes, net.op("Sigmoid", scores))


def super_resolution(seed: int = 0) -> onnx.ModelProto:
    """A luminance of 32x32 -> 64x64: convolutions, DepthToSpace, the image enlarged linearly beside them."""
    net = Net(STYLE, 17, seed)
    image = net.input("input", (1, 1, 32, 32))
    x = net.op("Relu", net.conv(image, 12, 1, (5, 5), pads=[2, 2, 2, 2]))
    x = net.op("Relu", net.conv(x, 8, 12, (3, 3), pads=[1, 1, 1, 1]))
    x = net.op("DepthToSpace", net.conv(x, 4, 8, (3, 3), pads=[1, 1, 1, 1]), blocksize=2, mode="CRD")
    scales = net.value([1.0, 1.0, 2.0, 2.0])
    large = net.op("Resize", image, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    return net.done(net.op("Add", x, large))


def svdf_spotter(seed: int = 0) -> bytes:
    """Keywords, a frame a call: two SVDF layers over 20 features, a dense layer -> 4 words. int8, states int16."""
    rng, f = np.random.default_rng(seed), File()

    def constant(name: str, shape: tuple[int, ...], dtype: str, most: int, scale: float) -> int:
        data = rng.integers(-most, most + 1, shape).astype(dtype)
        return int(f.tensor(name, shape, dtype, Quant((float(np.float32(scale)),), (0,)), data))

    source = x = f.tensor("input", (1, 20), "int8", Quant((0.05,), (-5,)))
    inner, scale = 20, 0.05
    for number, (units, memory, rank) in enumerate(((16, 8, 1), (12, 10, 2))):
        filters, after = units * rank, 0.04
        weights = constant(f"w{number}", (filters, inner), "int8", 127, 0.004)
        times = constant(f"t{number}", (filters, memory), "int16", 9000, 0.00004)
        bias = constant(f"b{number}", (units,), "int32", 9000, 0.0005 * 0.00004)
        state = f.tensor(f"s{number}", (1, filters * memory), "int16", Quant((0.0005,), (0,)))
        f.tensors[state].isVariable = True
        y = f.tensor(f"y{number}", (1, units), "int8", Quant((after,), (-128,)))
        options = schema.SVDFOptionsT()
        options.rank, options.fusedActivationFunction = rank, 1
        f.operator("SVDF", [x, weights, times, bias, state], [y], options)
        x, inner, scale = y, units, after
    weights = constant("w", (4, inner), "int8", 127, 0.01)
    bias = constant("b", (4,), "int32", 2000, scale * 0.01)
    scores = f.tensor("scores", (1, 4), "int8", Quant((0.1,), (3,)))
    f.operator("FULLY_CONNECTED", [x, weights, bias], [scores], schema.FullyConnectedOptionsT())
    return bytes(f.pack([source], [scores]))


OTHERS: dict[str, Callable[..., onnx.ModelProto]] = {
    builder.__name__: builder
    for builder in (gru_denoiser, lstm_anomaly, tiny_transformer, u_net, ssd_head, super_resolution)
}
