"""MobileNetV2 (Sandler et al., CVPR 2018, table 2), for benches: too large for the tests that take every network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import onnx
from onnx import numpy_helper

from .builders import OPSET, Net

# Expansion, channels, repeats, stride of the first of them.
BLOCKS = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


def mobilenet_v2(seed: int = 0, opset: int = OPSET, width: float = 1.0, size: int = 224) -> onnx.ModelProto:
    """Colour image of `size` x `size`, channels last as a camera has them -> 1000 classes."""
    net = Net("mobilenet_v2", (size, size, 3), seed, opset)
    x = net.add("Transpose", ["input"], (3, size, size), perm=(0, 3, 1, 2))
    x = relu6(net, net.conv(x, scaled(32, width), (3, 3), stride=2, relu=False))
    for expansion, channels, repeats, stride in BLOCKS:
        for number in range(repeats):
            x = block(net, x, expansion, scaled(channels, width), stride if number == 0 else 1)
    x = relu6(net, net.conv(x, max(1280, scaled(1280, width)), (1, 1), relu=False))
    return net.model(net.dense(net.flatten(net.global_average_pool(x)), 1000))


def block(net: Net, x: str, expansion: int, channels: int, stride: int) -> str:
    """Expand, filter each channel, project; a sum around it where the shape stays."""
    inner = net.shapes[x][0] * expansion
    y = x if expansion == 1 else relu6(net, net.conv(x, inner, (1, 1), relu=False))
    y = relu6(net, net.conv(y, inner, (3, 3), stride, depthwise=True, relu=False))
    y = net.conv(y, channels, (1, 1), relu=False)
    return net.sum(x, y) if stride == 1 and net.shapes[x] == net.shapes[y] else y


def relu6(net: Net, x: str) -> str:
    for name, value in (("zero", 0.0), ("six", 6.0)):
        if not any(c.name == name for c in net.constants):
            net.constants.append(numpy_helper.from_array(np.array(value, np.float32), name))
    return net.add("Clip", [x, "zero", "six"], net.shapes[x])


def scaled(channels: int, width: float) -> int:
    """The nearest multiple of 8, not below nine tenths of what the width asks for, as in the authors' code."""
    wanted = channels * width
    nearest = max(8, int(wanted + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * wanted else nearest


LARGE: dict[str, Callable[..., onnx.ModelProto]] = {
    "mobilenet_v2_100_224": mobilenet_v2,
    "mobilenet_v2_035_144": partial(mobilenet_v2, width=0.35, size=144),
}
