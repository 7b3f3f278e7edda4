"""Flax and Equinox through jax2onnx: reductions and normalisations by parts, scans, loops over lax primitives."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from .writer import Net

JAX = "var_{kind}_{number}"


def _normed(net: Net, x: str, channels: int, axes: list[int]) -> str:
    """Flax's LayerNorm and GroupNorm: the variance is the mean of squares less the square of the mean."""
    mean = net.op("ReduceMean", x, axes=axes, keepdims=1)
    squares = net.op("ReduceMean", net.op("Mul", x, x), axes=axes, keepdims=1)
    variance = net.op("Max", net.op("Sub", squares, net.op("Mul", mean, mean)), net.stored(0.0))
    factor = net.op("Reciprocal", net.op("Sqrt", net.op("Add", variance, net.stored(1e-3))))
    return net.op("Mul", net.op("Sub", x, mean), net.op("Mul", factor, net.spread(channels)))


def _conv(net: Net, x: str, out: int, inner: int, kernel: tuple[int, ...], **attributes: object) -> str:
    """lax.conv_general_dilated of channels last: Transpose, Conv, Transpose, and the bias by itself."""
    rank = len(kernel) + 2
    y = net.op("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
    y = net.op("Conv", y, net.weight(out, inner, *kernel), kernel_shape=kernel, **attributes)
    y = net.op("Transpose", y, perm=[0, *range(2, rank), 1])
    return net.op("Add", y, net.weight(*[1] * (rank - 1), out, fan=20))


def resnet() -> onnx.ModelProto:
    """GroupNorm on a view of groups, silu as a product, reduce_window_max, a mean over both axes."""
    net = Net(JAX, 17)
    x = _conv(net, net.input("x", (1, 12, 12, 3)), 8, 3, (3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    groups = net.op("Reshape", x, net.stored([1, 6, 6, 2, 4], np.int64))
    y = net.op("Reshape", _normed(net, groups, 4, [1, 2, 4]), net.stored([1, 6, 6, 8], np.int64))
    y = _conv(net, net.op("Mul", y, net.op("Sigmoid", y)), 8, 8, (3, 3), pads=[1, 1, 1, 1])
    x = net.op("Transpose", net.op("Add", x, y), perm=[0, 3, 1, 2])
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    x = net.op("Transpose", x, perm=[0, 2, 3, 1])
    return net.done(net.projected(net.op("ReduceMean", x, axes=[1, 2], keepdims=0), 8, 5))


def mixer() -> onnx.ModelProto:
    """MLP-Mixer: patches by a strided convolution, tokens and channels mixed in turn, the exact GELU by Erf."""
    net = Net(JAX, 17)
    x = _conv(net, net.input("image", (1, 8, 8, 1)), 6, 1, (4, 4), strides=[4, 4])
    x = net.op("Reshape", x, net.stored([1, 4, 6], np.int64))

    def mixed(y: str, size: int) -> str:
        y = net.projected(y, size, 10)
        half = net.op("Mul", y, net.stored(0.5))
        y = net.op("Mul", half, net.op("Add", net.op("Erf", net.op("Div", y, net.stored(2**0.5))), net.stored(1.0)))
        return net.projected(y, 10, size)

    for _ in range(2):
        y = net.op("Transpose", _normed(net, x, 6, [-1]), perm=[0, 2, 1])
        x = net.op("Add", x, net.op("Transpose", mixed(y, 4), perm=[0, 2, 1]))
        x = net.op("Add", x, mixed(_normed(net, x, 6, [-1]), 6))
    return net.done(net.projected(net.op("ReduceMean", x, axes=[1], keepdims=0), 6, 3))


def wavenet() -> onnx.ModelProto:
    """Causal dilated convolutions behind a Pad, gates of tanh and sigmoid on halves, the sum of all skips."""
    net = Net(JAX, 17)
    x, skips = net.projected(net.input("samples", (1, 24, 2)), 2, 6), None
    for rate in (1, 2, 4):
        y = net.op("Pad", x, net.stored([0, 2 * rate, 0, 0, 0, 0], np.int64), net.stored(0.0))
        y = _conv(net, y, 12, 6, (3,), dilations=[rate])
        a, b = net.ops("Split", y, count=2, axis=2)
        y = net.op("Mul", net.op("Tanh", a), net.op("Sigmoid", b))
        skip = net.projected(y, 6, 8)
        skips, x = net.op("Add", skips, skip) if skips else skip, net.op("Add", x, net.projected(y, 6, 6))
    assert skips
    return net.done(net.projected(net.op("Max", skips, net.stored(0.0)), 8, 2))


def scan() -> onnx.ModelProto:
    """nn.RNN(GRUCell) as a Scan whose body has the cell; weights come from outside of it."""
    net = Net(JAX, 17)
    x = net.op("Squeeze", net.input("x", (1, 6, 4)), net.stored([0], np.int64))
    names = {"w": net.weight(4, 15, fan=4), "u": net.weight(5, 15, fan=5), "b": net.weight(15, fan=20)}
    half = net.stored(np.array([5, 5, 5]), np.int64)

    def body(name: str, kind: str, *inputs: str, outputs: tuple[str, ...] = (), **attributes: object) -> None:
        nodes.append(helper.make_node(kind, inputs, outputs or (name,), **attributes))

    nodes: list[onnx.NodeProto] = []
    body("row", "Unsqueeze", "now", net.stored([0], np.int64))
    body("xw", "MatMul", "row", names["w"])
    body("xb", "Add", "xw", names["b"])
    body("hu", "MatMul", "h", names["u"])
    body("", "Split", "xb", half, outputs=("xr", "xz", "xn"), axis=1)
    body("", "Split", "hu", half, outputs=("hr", "hz", "hn"), axis=1)
    for gate in "rz":
        body(f"{gate}_sum", "Add", f"x{gate}", f"h{gate}")
        body(gate, "Sigmoid", f"{gate}_sum")
    body("rn", "Mul", "r", "hn")
    body("n_sum", "Add", "xn", "rn")
    body("n", "Tanh", "n_sum")
    body("apart", "Sub", "h", "n")
    body("kept", "Mul", "z", "apart")
    body("next", "Add", "n", "kept")
    body("out", "Identity", "next")
    values = {"h": (1, 5), "now": (4,), "next": (1, 5), "out": (1, 5)}
    infos = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in values.items()}
    cell = helper.make_graph(nodes, "cell", [infos["h"], infos["now"]], [infos["next"], infos["out"]])
    start = net.stored(np.zeros((1, 5)))
    last, every = net.ops("Scan", start, x, count=2, body=cell, num_scan_inputs=1)
    return net.done(net.projected(last, 5, 3), net.op("Transpose", every, perm=[1, 0, 2]))


def decoder() -> onnx.ModelProto:
    """A VAE's decoder: a dense layer, two transpose convolutions, the clip of jnp, exp of half a log variance."""
    net = Net(JAX, 17)
    mean, spread = net.input("mean", (1, 4)), net.input("log_variance", (1, 4))
    noise = net.input("noise", (1, 4))
    z = net.op("Add", mean, net.op("Mul", net.op("Exp", net.op("Mul", spread, net.stored(0.5))), noise))
    x = net.op("Reshape", net.op("Elu", net.projected(z, 4, 54)), net.stored([1, 3, 3, 6], np.int64))
    for inner, out in ((6, 4), (4, 1)):
        y = net.op("Transpose", x, perm=[0, 3, 1, 2])
        y = net.op("ConvTranspose", y, net.weight(inner, out, 3, 3, fan=inner * 9), strides=[2, 2], pads=[0, 0, 1, 1])
        x = net.op("Add", net.op("Transpose", y, perm=[0, 2, 3, 1]), net.weight(out, fan=20))
        x = net.op("Max", x, net.stored(0.0)) if out > 1 else x
    return net.done(net.op("Min", net.op("Max", x, net.stored(-1.0)), net.stored(1.0)))


NETWORKS = {f"jax {f.__name__}": f for f in (resnet, mixer, wavenet, scan, decoder)}
