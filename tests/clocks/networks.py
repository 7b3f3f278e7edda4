"""Networks of the kind that the literature measures for energy, as int8 graphs with random weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np

from edgebuild.model import ops
from edgebuild.model.formats.compose import same_pad
from edgebuild.model.ir import Graph, Op, Quant, Tensor, verify

ACTIVATION = Quant((6 / 255,), (-128,))  # of what comes out of a ReLU6
SIGNED = Quant((0.05,), (3,))


class Net:
    """A graph under construction. Each method adds a layer behind tensor `x` and returns the name of its result."""

    def __init__(self, name: str, side: int, channels: int) -> None:
        self.name, self.random = name, np.random.default_rng(0)
        self.tensors = {"input": Tensor("input", (1, side, side, channels), "int8", SIGNED)}
        self.ops: list[Op] = []

    def conv(self, x: str, channels: int, kernel: int = 1, stride: int = 1, relu: bool = True) -> str:
        shape = (channels, kernel, kernel, self.tensors[x].shape[3])
        return self._sum("conv2d", x, shape, channels, kernel, stride, prod(shape[1:]), relu)

    def depthwise(self, x: str, stride: int = 1, kernel: int = 3) -> str:
        channels = self.tensors[x].shape[3]
        shape = (1, kernel, kernel, channels)
        return self._sum("depthwise_conv2d", x, shape, channels, kernel, stride, kernel**2, True)

    def add(self, x: str, y: str) -> str:
        return self._op("add", [x, y], self.tensors[x].shape, SIGNED, clamp=(None, None))

    def graph(self, output: str) -> Graph:
        graph = Graph(self.name, tuple(self.ops), self.tensors, ("input",), (output,))
        verify(graph, ops.result_shape)
        return graph

    def _sum(
        self,
        kind: str,
        x: str,
        shape: tuple[int, ...],
        channels: int,
        kernel: int,
        stride: int,
        fan_in: int,
        relu: bool,
    ) -> str:
        quant, result = self.tensors[x].quant, ACTIVATION if relu else SIGNED
        assert quant is not None
        height, width = self.tensors[x].shape[1:3]
        scale = 1.0 / (40 * fan_in**0.5 * quant.scale[0])
        at = str(len(self.ops))
        w = self._constant(f"w{at}", self.random.integers(-127, 128, shape, np.int8), Quant((scale,), (0,)))
        b = self._constant(
            f"b{at}", self.random.integers(-900, 900, channels, np.int32), Quant((scale * quant.scale[0],), (0,))
        )
        attrs = {
            "stride": (stride, stride),
            "dilation": (1, 1),
            "pad": same_pad((height, width), (kernel, kernel), (stride, stride), (1, 1)),
            "clamp": (0.0, 6.0) if relu else (None, None),
        }
        return self._op(kind, [x, w, b], (1, -(-height // stride), -(-width // stride), channels), result, **attrs)

    def _constant(self, name: str, data: np.ndarray, quant: Quant) -> str:
        self.tensors[name] = Tensor(name, data.shape, str(data.dtype), quant, data)
        return name

    def _op(self, kind: str, inputs: list[str], shape: tuple[int, ...], quant: Quant, **attrs: object) -> str:
        name = f"{kind}_{len(self.ops)}"
        self.tensors[name] = Tensor(name, shape, "int8", quant)
        self.ops.append(Op(kind, name, tuple(inputs), (name,), attrs))
        return name


def mobilenet_v2(name: str, side: int, blocks: list[tuple[int, int, int, int]], stem: int, head: int) -> Graph:
    """Inverted residual blocks (expansion, channels, repeats, stride of the first) behind a 3x3 stem of stride 2."""
    net = Net(name, side, 3)
    x = net.conv("input", stem, 3, 2)
    for expansion, channels, repeats, first_stride in blocks:
        for r in range(repeats):
            stride, inputs = first_stride if r == 0 else 1, net.tensors[x].shape[3]
            y = net.conv(x, inputs * expansion) if expansion > 1 else x
            y = net.conv(net.depthwise(y, stride), channels, relu=False)
            x = net.add(x, y) if stride == 1 and inputs == channels else y
    return net.graph(net.conv(x, head) if head else x)


def mobilenet_v1(name: str, side: int, width: float) -> Graph:
    """The person-detection network of TensorFlow Lite Micro at width 0.25: grey image, depthwise separable blocks."""
    net = Net(name, side, 1)
    x = net.conv("input", int(32 * width), 3, 2)
    rows = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for channels, stride in rows:
        x = net.conv(net.depthwise(x, stride), int(channels * width))
    return net.graph(x)


V2 = [(1, 8, 1, 1), (6, 8, 2, 2), (6, 16, 3, 2), (6, 24, 4, 2), (6, 32, 3, 1), (6, 56, 3, 2), (6, 112, 1, 1)]
VWW = [(1, 8, 1, 1), (4, 16, 2, 2), (5, 24, 3, 2), (5, 40, 3, 2), (5, 48, 2, 1), (5, 96, 2, 2)]
NETWORKS: dict[str, Callable[[], Graph]] = {
    "MobileNetV2-like": partial(mobilenet_v2, "MobileNetV2-like", 96, V2, 16, 448),
    "VWW-like": partial(mobilenet_v2, "VWW-like", 80, VWW, 16, 0),
    "person-detection-like": partial(mobilenet_v1, "person-detection-like", 96, 0.25),
}
