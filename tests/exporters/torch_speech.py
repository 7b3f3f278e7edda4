"""Speech and language from PyTorch and its libraries: transducers, conformers, encoders and decoders of text."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from .torch_vision import DYNAMO, TRACED
from .writer import Net

LOWEST = float(np.finfo(np.float32).min)


def transducer() -> onnx.ModelProto:
    """An RNN-T: encoder frames and a prediction LSTM over labels, added for every pair, tanh, log-softmax."""
    net = Net(TRACED, 17)
    frames, labels = net.input("frames", (1, 5, 6)), net.input("labels", (1, 3), TensorProto.INT64)
    words = net.op("Transpose", net.op("Gather", net.weight(10, 4, fan=4), labels), perm=[1, 0, 2])
    weights = [net.weight(1, 24, n, fan=n) for n in (4, 6)]
    y, *_ = net.ops("LSTM", words, *weights, net.weight(1, 48, fan=20), count=3, hidden_size=6)
    y = net.op("Transpose", net.op("Squeeze", y, net.longs(1)), perm=[1, 0, 2])
    x = net.op("Unsqueeze", net.projected(frames, 6, 8), net.longs(2))
    y = net.op("Unsqueeze", net.projected(y, 6, 8), net.longs(1))
    joint = net.op("Tanh", net.op("Add", x, y))
    return net.done(net.op("LogSoftmax", net.projected(joint, 8, 10), axis=-1))


def conformer() -> onnx.ModelProto:
    """Half-step feed-forward, the convolution module with a GLU, relative positions by pad, view and slice."""
    net = Net(TRACED, 17)
    x = net.input("x", (1, 6, 8))

    def normed(y: str) -> str:
        return net.op("LayerNormalization", y, net.spread(8), net.weight(8, fan=20), axis=-1, epsilon=1e-5)

    y = net.projected(normed(x), 8, 16)
    y = net.projected(net.op("Mul", y, net.op("Sigmoid", y)), 16, 8)
    x = net.op("Add", x, net.op("Mul", y, net.value(0.5)))
    y = normed(x)
    q, k, v = (
        net.op("Transpose", net.op("Reshape", net.projected(y, 8, 8), net.longs(1, -1, 2, 4)), perm=[0, 2, 1, 3])
        for _ in range(3)
    )
    content = net.op("MatMul", net.op("Add", q, net.weight(2, 1, 4)), net.op("Transpose", k, perm=[0, 1, 3, 2]))
    place = net.op("MatMul", net.op("Add", q, net.weight(2, 1, 4)), net.weight(1, 2, 4, 11, fan=4))
    place = net.op("Reshape", net.op("Pad", place, net.longs(0, 0, 0, 1, 0, 0, 0, 0)), net.longs(1, 2, 12, 6))
    place = net.op("Slice", place, net.longs(1), net.longs(2**63 - 1), net.longs(2))
    place = net.op("Reshape", place, net.longs(1, 2, 6, 11))
    place = net.op("Slice", place, net.longs(0), net.longs(6), net.longs(3))
    scores = net.op("Div", net.op("Add", content, place), net.value(2.0))
    y = net.op("Transpose", net.op("MatMul", net.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    x = net.op("Add", x, net.projected(net.op("Reshape", y, net.longs(1, -1, 8)), 8, 8))
    y = net.conv(net.op("Transpose", normed(x), perm=[0, 2, 1]), 16, 8, (1,))
    a, b = net.ops("Split", y, net.longs(8, 8), count=2, axis=1)
    y = net.op("Mul", a, net.op("Sigmoid", b))
    y = net.normalised(net.conv(y, 8, 1, (5,), pads=[2, 2], group=8), 8)
    y = net.op("Transpose", net.conv(net.op("Mul", y, net.op("Sigmoid", y)), 8, 8, (1,)), perm=[0, 2, 1])
    return net.done(net.projected(normed(net.op("Add", x, y)), 8, 4))


def bert() -> onnx.ModelProto:
    """Embeddings of words, places and kinds; a mask of whole numbers turned to the lowest float; pooler with tanh."""
    net = Net(TRACED, 14)
    ids, mask = (net.input(n, (1, 7), TensorProto.INT64) for n in ("input_ids", "attention_mask"))
    kinds = net.input("token_type_ids", (1, 7), TensorProto.INT64)
    kinds = net.op("Cast", net.op("Greater", kinds, net.value(4, np.int64)), to=TensorProto.INT64)
    mask = net.op("Cast", net.op("Greater", mask, net.value(2, np.int64)), to=TensorProto.INT64)
    x = net.op("Add", net.op("Gather", net.weight(30, 8, fan=8), ids), net.op("Gather", net.weight(2, 8, fan=8), kinds))
    places = net.op("Slice", net.value(np.arange(16)[None], np.int64), net.longs(0), net.longs(7), net.longs(1))
    x = net.op("Add", x, net.op("Gather", net.weight(16, 8, fan=8), places))

    def normed(y: str) -> str:
        rest = net.op("Sub", y, net.op("ReduceMean", y, axes=[-1]))
        square = net.op("ReduceMean", net.op("Pow", rest, net.value(2.0)), axes=[-1])
        y = net.op("Div", rest, net.op("Sqrt", net.op("Add", square, net.value(1e-12))))
        return net.op("Add", net.op("Mul", y, net.spread(8)), net.weight(8, fan=20))

    x = normed(x)
    seen = net.op("Cast", net.op("Unsqueeze", mask, net.longs(1, 2)), to=TensorProto.FLOAT)
    low = net.op("Mul", net.op("Sub", net.value(1.0), seen), net.value(LOWEST))
    q, k, v = (
        net.op("Transpose", net.op("Reshape", net.projected(x, 8, 8), net.longs(0, 0, 2, 4)), perm=[0, 2, 1, 3])
        for _ in range(3)
    )
    scores = net.op("Div", net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2])), net.value(2.0))
    scores = net.op("Softmax", net.op("Add", scores, low), axis=-1)
    y = net.op("Reshape", net.op("Transpose", net.op("MatMul", scores, v), perm=[0, 2, 1, 3]), net.longs(0, 0, 8))
    x = normed(net.op("Add", net.projected(y, 8, 8), x))
    y = net.projected(x, 8, 16)
    half = net.op("Add", net.op("Erf", net.op("Div", y, net.value(1.4142135))), net.value(1.0))
    y = net.projected(net.op("Mul", net.op("Mul", y, half), net.value(0.5)), 16, 8)
    x = normed(net.op("Add", y, x))
    first = net.op("Tanh", net.linear(net.op("Gather", x, net.value(0, np.int64), axis=1), 8, 8))
    return net.done(x, net.linear(first, 2, 8))


def llama() -> onnx.ModelProto:
    """RMSNorm by parts, rotated halves, keys shared by heads (Expand), a cache joined with Concat, SwiGLU."""
    net = Net(DYNAMO, 18)
    x, past_k, past_v = (net.input(n, s) for n, s in (("x", (1, 1, 8)), ("k", (1, 1, 4, 4)), ("v", (1, 1, 4, 4))))

    def normed(y: str) -> str:
        square = net.op("ReduceMean", net.op("Mul", y, y), net.stored([-1], np.int64), keepdims=1)
        rate = net.op("Reciprocal", net.op("Sqrt", net.op("Add", square, net.stored(1e-6))))
        return net.op("Mul", net.op("Mul", y, rate), net.spread(8))

    def product(y: str, out: int) -> str:
        return net.op("MatMul", y, net.weight(8, out, fan=8))

    def heads(y: str, count: int) -> str:
        y = net.op("Reshape", y, net.stored([1, 1, count, 4], np.int64))
        return net.op("Transpose", y, perm=[0, 2, 1, 3])

    angles = 4.0 / 100.0 ** (np.arange(2) / 2)
    cosine, sine = (net.stored(np.tile(f(angles), 2)[None, None, None]) for f in (np.cos, np.sin))

    def rotated(y: str) -> str:
        low, high = (
            net.op("Slice", y, *(net.stored([n], np.int64) for n in (i, j, 3))) for i, j in ((0, 2), (2, 2**63 - 1))
        )
        turned = net.op("Concat", net.op("Neg", high), low, axis=-1)
        return net.op("Add", net.op("Mul", y, cosine), net.op("Mul", turned, sine))

    y = normed(x)
    q = rotated(heads(product(y, 8), 2))
    k = net.op("Concat", past_k, rotated(heads(product(y, 4), 1)), axis=2)
    v = net.op("Concat", past_v, heads(product(y, 4), 1), axis=2)
    wide = net.stored([1, 1, 2, 5, 4], np.int64)
    both, axis = net.stored([1, 2, 5, 4], np.int64), net.stored([2], np.int64)
    keys, values = (net.op("Reshape", net.op("Expand", net.op("Unsqueeze", z, axis), wide), both) for z in (k, v))
    scores = net.op("Mul", net.op("MatMul", q, net.op("Transpose", keys, perm=[0, 1, 3, 2])), net.stored(0.5))
    y = net.op("MatMul", net.op("Softmax", scores, axis=-1), values)
    y = net.op("Reshape", net.op("Transpose", y, perm=[0, 2, 1, 3]), net.stored([1, 1, 8], np.int64))
    x = net.op("Add", x, product(y, 8))
    y = normed(x)
    gate, up = product(y, 16), product(y, 16)
    gate = net.op("Mul", gate, net.op("Sigmoid", gate))
    x = net.op("Add", x, net.op("MatMul", net.op("Mul", gate, up), net.weight(16, 8, fan=16)))
    return net.done(product(normed(x), 12), k, v)


def crnn() -> onnx.ModelProto:
    """Text from a strip of pixels: pools of uneven strides, columns as steps, a GRU in both directions, log-softmax."""
    net = Net(TRACED, 17)
    x = net.op("Relu", net.conv(net.input("strip", (1, 1, 8, 20)), 4, 1, (3, 3), pads=[1, 1, 1, 1]))
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Relu", net.normalised(net.conv(x, 6, 4, (3, 3), pads=[1, 1, 1, 1]), 6))
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 1], pads=[0, 1, 0, 1])
    x = net.op("Relu", net.conv(x, 6, 6, (2, 2)))
    x = net.op("Transpose", net.op("Squeeze", x, net.longs(2)), perm=[2, 0, 1])
    weights = [net.weight(2, 15, n, fan=n) for n in (6, 5)]
    y, _ = net.ops("GRU", x, *weights, net.weight(2, 30, fan=20), count=2, hidden_size=5, direction="bidirectional",
                   linear_before_reset=1)  # fmt: skip
    y = net.op("Reshape", net.op("Transpose", y, perm=[0, 2, 1, 3]), net.longs(0, 0, -1))
    return net.done(net.op("LogSoftmax", net.projected(y, 10, 8), axis=2))


def vocoder() -> onnx.ModelProto:
    """WaveNet with conditions, weights that were normalised (g * v / |v|), a HiFi-GAN end: LeakyRelu, ConvTranspose."""
    net = Net(TRACED, 17)
    x, mel = net.conv(net.input("x", (1, 1, 16)), 4, 1, (1,)), net.input("mel", (1, 3, 16))
    skips = []
    for dilation in (1, 2, 4):
        v = net.weight(8, 4, 2)
        norm = net.op("ReduceL2", v, axes=[1, 2], keepdims=1)
        weight = net.op("Mul", v, net.op("Div", net.spread(8, 1, 1), norm))
        padded = net.op("Pad", x, net.longs(0, 0, dilation, 0, 0, 0))
        y = net.op("Conv", padded, weight, net.weight(8, fan=20), dilations=[dilation], kernel_shape=[2])
        y = net.op("Add", y, net.conv(mel, 8, 3, (1,)))
        a, b = net.ops("Split", y, net.longs(4, 4), count=2, axis=1)
        y = net.op("Mul", net.op("Tanh", a), net.op("Sigmoid", b))
        skips.append(net.conv(y, 4, 4, (1,)))
        x = net.op("Mul", net.op("Add", x, net.conv(y, 4, 4, (1,))), net.value(0.7071067))
    y = net.op("LeakyRelu", net.op("Add", net.op("Add", *skips[:2]), skips[2]), alpha=0.1)
    y = net.op("ConvTranspose", y, net.weight(4, 3, 4, fan=12), net.weight(3, fan=20), strides=[2], pads=[1, 1],
               kernel_shape=[4])  # fmt: skip
    y = net.op("LeakyRelu", net.op("ConvTranspose", y, net.weight(3, 1, 3), group=3, strides=[1], pads=[1, 1],
                                   kernel_shape=[3]), alpha=0.01)  # fmt: skip
    return net.done(net.op("Tanh", net.conv(y, 1, 3, (7,), pads=[3, 3])))


def separator() -> onnx.ModelProto:
    """Conv-TasNet: a strided encoder, global layer norm, masks times the encoding, overlap-add by ConvTranspose."""
    net = Net(DYNAMO, 18)
    x = net.op("Relu", net.op("Conv", net.input("mix", (1, 1, 40)), net.weight(6, 1, 4), strides=[2]))
    axes = net.stored([1, 2], np.int64)
    rest = net.op("Sub", x, net.op("ReduceMean", x, axes, keepdims=1))
    power = net.op("ReduceMean", net.op("Mul", rest, rest), axes, keepdims=1)
    y = net.op("Div", rest, net.op("Sqrt", net.op("Add", power, net.stored(1e-8))))
    y = net.op("Add", net.op("Mul", y, net.spread(6, 1)), net.weight(6, 1, fan=20))
    for dilation in (1, 2):
        z = net.op("PRelu", net.conv(y, 8, 6, (1,)), net.spread(1, 1, low=0.1, high=0.3))
        z = net.conv(z, 8, 1, (3,), group=8, dilations=[dilation], pads=[dilation, dilation])
        z = net.op("InstanceNormalization", z, net.spread(8), net.weight(8, fan=20), epsilon=1e-5)
        y = net.op("Add", y, net.conv(z, 6, 8, (1,)))
    masks = net.op("Reshape", net.op("Sigmoid", net.conv(y, 12, 6, (1,))), net.stored([1, 2, 6, 19], np.int64))
    parts = net.op("Mul", net.op("Unsqueeze", x, net.stored([1], np.int64)), masks)
    parts = net.op("Reshape", parts, net.stored([2, 6, 19], np.int64))
    y = net.op("ConvTranspose", parts, net.weight(6, 1, 4), strides=[2])
    return net.done(net.op("Reshape", y, net.stored([1, 2, -1], np.int64)))


NETWORKS = {f"torch {f.__name__}": f for f in (transducer, conformer, bert, llama, crnn, vocoder, separator)}
