"""Sequences from PyTorch: recurrent layers, temporal convolutions, transformers."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from .torch_vision import DYNAMO, TRACED
from .writer import Net


def _zeros(net: Net, x: str, layers: int, hidden: int) -> str:
    """The first state as a trace has it: ConstantOfShape of a shape put together from that of the input."""
    batch = net.op("Gather", net.op("Shape", x), net.value(1, np.int64), axis=0)
    batch = net.op("Unsqueeze", batch, net.longs(0))
    shape = net.op("Concat", net.longs(layers), batch, net.longs(hidden), axis=0)
    return net.op("ConstantOfShape", shape, value=numpy_helper.from_array(np.zeros(1, np.float32)))


def gru() -> onnx.ModelProto:
    """nn.GRU(batch_first=True), its last step, nn.Linear."""
    net = Net(TRACED, 17)
    x = net.op("Transpose", net.input("frames", (1, 7, 5)), perm=[1, 0, 2])
    weights = [net.weight(1, 18, n, fan=n) for n in (5, 6)]
    start, bias = _zeros(net, x, 1, 6), net.weight(1, 36, fan=20)
    y, _ = net.ops("GRU", x, *weights, bias, "", start, count=2, hidden_size=6, linear_before_reset=1)
    y = net.op("Transpose", net.op("Squeeze", y, net.longs(1)), perm=[1, 0, 2])
    return net.done(net.linear(net.op("Gather", y, net.value(-1, np.int64), axis=1), 4, 6))


def lstm() -> onnx.ModelProto:
    """Two layers of nn.LSTM, the first in both directions: Transpose and Reshape between them."""
    net = Net(TRACED, 17)
    x = net.op("Transpose", net.input("x", (1, 6, 4)), perm=[1, 0, 2])
    for inner, ways, kind in ((4, 2, "bidirectional"), (10, 1, "forward")):
        weights = [net.weight(ways, 20, n, fan=n) for n in (inner, 5)]
        starts = [_zeros(net, x, ways, 5) for _ in range(2)]
        bias = net.weight(ways, 40, fan=20)
        x, *_ = net.ops("LSTM", x, *weights, bias, "", *starts, count=3, direction=kind, hidden_size=5)
        x = net.op("Reshape", net.op("Transpose", x, perm=[0, 2, 1, 3]), net.longs(0, 0, -1))
    y = net.op("Slice", x, net.longs(-1), net.longs(np.iinfo(np.int64).max), net.longs(0), net.longs(1))
    return net.done(net.linear(net.op("Squeeze", y, net.longs(0)), 3, 5))


def gru_cell() -> onnx.ModelProto:
    """nn.GRUCell, called once: its state goes in and out."""
    net = Net(TRACED, 13)
    x, h = net.input("x", (1, 5)), net.input("h", (1, 6))
    own, back = net.linear(x, 18, 5), net.linear(h, 18, 6)
    r, z, n = net.ops("Split", own, net.longs(6, 6, 6), count=3, axis=1)
    hr, hz, hn = net.ops("Split", back, net.longs(6, 6, 6), count=3, axis=1)
    reset = net.op("Sigmoid", net.op("Add", r, hr))
    keep = net.op("Sigmoid", net.op("Add", z, hz))
    new = net.op("Tanh", net.op("Add", n, net.op("Mul", reset, hn)))
    state = net.op("Add", new, net.op("Mul", keep, net.op("Sub", h, new)))
    return net.done(net.linear(state, 2, 6), state)


def tcn() -> onnx.ModelProto:
    """Temporal blocks: Conv1d padded on both sides, chomped by Slice, residual 1x1."""
    net = Net(TRACED, 13)
    x, inner = net.input("signal", (1, 3, 24)), 3
    for dilation in (1, 2, 4):
        y = net.conv(x, 6, inner, (3,), dilations=[dilation], pads=[2 * dilation] * 2)
        y = net.op("Slice", y, net.longs(0), net.longs(-2 * dilation), net.longs(2), net.longs(1))
        y = net.op("Relu", net.normalised(y, 6))
        x = net.op("Relu", net.op("Add", y, x if inner == 6 else net.conv(x, 6, inner, (1,))))
        inner = 6
    return net.done(net.linear(net.op("Flatten", net.op("GlobalAveragePool", x), axis=1), 4, 6))


def wave_unet() -> onnx.ModelProto:
    """A 1-D denoiser: strided Conv1d, ConvTranspose1d, linear interpolation, skip."""
    net = Net(TRACED, 13)
    x = net.input("noisy", (1, 1, 32))
    first = net.op("LeakyRelu", net.conv(x, 6, 1, (5,), strides=[2], pads=[2, 2]), alpha=0.2)
    second = net.op("LeakyRelu", net.conv(first, 8, 6, (5,), strides=[2], pads=[2, 2]), alpha=0.2)
    up = net.op("ConvTranspose", second, net.weight(8, 6, 4, fan=16), net.weight(6, fan=20), strides=[2], pads=[1, 1])
    both = net.op("Concat", up, first, axis=1)
    scales = net.value([1.0, 1.0, 2.0])
    up = net.op("Resize", both, "", scales, mode="linear", coordinate_transformation_mode="align_corners")
    return net.done(net.op("Tanh", net.conv(up, 1, 12, (3,), pads=[1, 1])))


def _layer_norm(net: Net, x: str, width: int) -> str:
    """nn.LayerNorm before opset 17."""
    rest = net.op("Sub", x, net.op("ReduceMean", x, axes=[-1]))
    variance = net.op("ReduceMean", net.op("Pow", rest, net.value(2.0)), axes=[-1])
    y = net.op("Div", rest, net.op("Sqrt", net.op("Add", variance, net.value(1e-5))))
    return net.op("Add", net.op("Mul", y, net.spread(width)), net.weight(width, fan=20))


def _gelu(net: Net, x: str) -> str:
    half = net.op("Erf", net.op("Div", x, net.value(np.sqrt(2))))
    return net.op("Mul", net.op("Mul", x, net.op("Add", half, net.value(1.0))), net.value(0.5))


def transformer() -> onnx.ModelProto:
    """nn.TransformerEncoderLayer as opset 13 has it: one projection, Shape arithmetic, heads by Reshape."""
    net, width, heads = Net(TRACED, 13), 8, 2
    x = net.input("tokens", ("batch", 6, 8))
    merged = net.projected(x, width, 3 * width)
    q, k, v = net.ops("Split", merged, net.longs(8, 8, 8), count=3, axis=2)

    def split(y: str, perm: list[int]) -> str:
        batch, steps = (
            net.op("Unsqueeze", net.op("Gather", net.op("Shape", y), net.value(i, np.int64), axis=0), net.longs(0))
            for i in (0, 1)
        )
        shape = net.op("Concat", batch, steps, net.longs(heads), net.longs(width // heads), axis=0)
        return net.op("Transpose", net.op("Reshape", y, shape), perm=perm)

    scaled = net.op("Div", split(q, [0, 2, 1, 3]), net.op("Sqrt", net.value(float(width // heads))))
    scores = net.op("Softmax", net.op("MatMul", scaled, split(k, [0, 2, 3, 1])), axis=-1)
    seen = net.op("Transpose", net.op("MatMul", scores, split(v, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
    seen = net.projected(net.op("Reshape", seen, net.longs(0, 0, width)), width, width)
    x = _layer_norm(net, net.op("Add", x, seen), width)
    deep = net.projected(_gelu(net, net.projected(x, width, 16)), 16, width)
    x = _layer_norm(net, net.op("Add", x, deep), width)
    return net.done(net.linear(net.op("ReduceMean", x, axes=[1], keepdims=0), 3, width))


def vit() -> onnx.ModelProto:
    """A vision transformer by dynamo: fused LayerNormalization and Gelu, class token, attention per head in 3-D."""
    net, width = Net(DYNAMO, 20), 8
    x = net.conv(net.input("pixels", (1, 3, 12, 12)), width, 3, (4, 4), strides=[4, 4])
    x = net.op("Transpose", net.op("Reshape", x, net.stored([1, width, 9], np.int64)), perm=[0, 2, 1])
    token = net.op("Expand", net.weight(1, 1, width), net.stored([1, 1, width], np.int64))
    x = net.op("Add", net.op("Concat", token, x, axis=1), net.weight(1, 10, width, fan=50))
    y = net.op("LayerNormalization", x, net.spread(width), net.weight(width, fan=20), axis=-1, epsilon=1e-6)
    parts = []
    for _ in range(3):
        part = net.op("Reshape", net.projected(y, width, width), net.stored([1, 10, 2, 4], np.int64))
        parts.append(net.op("Reshape", net.op("Transpose", part, perm=[0, 2, 1, 3]), net.stored([2, 10, 4], np.int64)))
    scores = net.op("MatMul", net.op("Mul", parts[0], net.stored(0.5)), net.op("Transpose", parts[1], perm=[0, 2, 1]))
    seen = net.op("Reshape", net.op("MatMul", net.op("Softmax", scores, axis=-1), parts[2]),
                  net.stored([1, 2, 10, 4], np.int64))  # fmt: skip
    seen = net.op("Reshape", net.op("Transpose", seen, perm=[0, 2, 1, 3]), net.stored([1, 10, width], np.int64))
    x = net.op("Add", x, net.projected(seen, width, width))
    y = net.op("LayerNormalization", x, net.spread(width), net.weight(width, fan=20), axis=-1, epsilon=1e-6)
    x = net.op("Add", x, net.projected(net.op("Gelu", net.projected(y, width, 16)), 16, width))
    first = net.op("Gather", x, net.stored(0, np.int64), axis=1)
    return net.done(net.linear(first, 4, width))


def text() -> onnx.ModelProto:
    """nn.Embedding of whole numbers, padding masked by Equal and Where, mean over what is left."""
    net = Net(TRACED, 17)
    tokens = net.input("tokens", (1, 9), TensorProto.INT64)
    words = net.op("Gather", net.weight(30, 6, fan=6), tokens)
    real = net.op("Cast", net.op("Not", net.op("Equal", tokens, net.value(0, np.int64))), to=TensorProto.FLOAT)
    mask = net.op("Unsqueeze", real, net.longs(-1))
    total = net.op("ReduceSum", net.op("Mul", words, mask), net.longs(1), keepdims=0)
    count = net.op("Clip", net.op("ReduceSum", mask, net.longs(1), keepdims=0), net.value(1.0))
    return net.done(net.op("Softmax", net.linear(net.op("Div", total, count), 3, 6), axis=1))


def causal_attention() -> onnx.ModelProto:
    """scaled_dot_product_attention with a causal mask: scales on both sides, Where with -inf as a number, Trilu."""
    net = Net(TRACED, 14)
    x = net.input("x", (1, 5, 8))
    root = net.value(8**-0.25)
    q, k, v = (net.projected(x, 8, 8) for _ in range(3))
    k = net.op("Mul", net.op("Transpose", k, perm=[0, 2, 1]), root)
    mask = net.op("Trilu", net.value(np.ones((5, 5))), upper=0)
    mask = net.op("Where", net.op("Cast", mask, to=TensorProto.BOOL), net.value(0.0), net.value(-1e4))
    scores = net.op("Add", net.op("MatMul", net.op("Mul", q, root), k), mask)
    return net.done(net.projected(net.op("MatMul", net.op("Softmax", scores, axis=-1), v), 8, 8))


NETWORKS = {
    f"torch {f.__name__}": f for f in (gru, lstm, gru_cell, tcn, wave_unet, transformer, vit, text, causal_attention)
}
