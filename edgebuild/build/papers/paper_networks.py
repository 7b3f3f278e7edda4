"""Networks of papers as tables of layers: graphs whose weights come from a seed, since only their shapes matter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from ...base.facts import read_facts
from ...model import ops
from ...model.formats.compose import same_pad
from ...model.ir import Graph, Op, Quant, Tensor, verify

ACTIVATION = Quant((6 / 255,), (-128,))  # of what comes out of a ReLU6
SIGNED = Quant((0.05,), (3,))
FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Row:
    """A layer, or a block of `repeats` times the same, whose stride is that of the first.

    `of`: the named result that it reads; empty: that of the row before. `name`: of its own result.
    `valid`: no padding. `expand`: of an inverted residual block. `parts`: named results that `concat` joins.
    """

    kind: str
    channels: int = 0
    window: tuple[int, int] = (1, 1)
    stride: int = 1
    repeats: int = 1
    expand: int = 1
    relu: bool = True
    valid: bool = False
    of: str = ""
    name: str = ""
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class NetworkTable:
    """`input`: rows, columns and channels; one number: of indices into a table of `words` rows. `real`: in float32."""

    input: tuple[int, ...]
    layers: tuple[Row, ...]
    words: int = 0
    real: bool = False


@dataclass(frozen=True)
class NetworkFile:
    networks: Mapping[str, NetworkTable]


def paper_network(name: str, width: float = 1.0, size: int = 0) -> Graph:
    """The graph of a network of networks.yaml. `width`: factor of all channels; `size`: rows and columns of the input.

    The results that no other layer reads are the outputs.
    """
    table = read_facts(NetworkFile, FOLDER / "networks.yaml").networks[name]
    shape = (size, size, *table.input[2:]) if size else table.input
    net = Net(name, shape, table.words, table.real)
    x, names = "input", dict[str, str]()
    for row in table.layers:
        channels = round(row.channels * width)
        for repeat in range(row.repeats):
            stride = row.stride if repeat == 0 else 1
            x = names[row.of] if row.of else x
            x = BLOCKS[row.kind](net, x, row, channels, stride, [names[part] for part in row.parts])
        names[row.name] = x
    return net.graph()


class Net:
    """A graph under construction. Each method adds a layer behind tensor `x` and returns the name of its result."""

    def __init__(self, name: str, shape: tuple[int, ...], words: int = 0, real: bool = False) -> None:
        self.name, self.random, self.words, self.real = name, np.random.default_rng(0), words, real
        dtype = "int32" if words else "float32" if real else "int8"
        self.tensors = {"input": Tensor("input", (1, *shape), dtype, SIGNED if dtype == "int8" else None)}
        self.ops: list[Op] = []

    def conv(
        self,
        x: str,
        channels: int,
        window: tuple[int, int] = (1, 1),
        stride: int = 1,
        relu: bool = True,
        valid: bool = False,
    ) -> str:
        shape = (channels, *window, self.tensors[x].shape[3])
        return self._windowed("conv2d", x, shape, window, stride, relu, valid)

    def depthwise(self, x: str, stride: int = 1, window: tuple[int, int] = (3, 3), relu: bool = True) -> str:
        return self._windowed("depthwise_conv2d", x, (1, *window, self.tensors[x].shape[3]), window, stride, relu)

    def max_pool(self, x: str, window: tuple[int, int]) -> str:
        """Largest of windows that do not overlap."""
        _, rows, columns, channels = self.tensors[x].shape
        attrs = {"window": window, "stride": window, "pad": (0, 0, 0, 0), "clamp": (None, None)}
        shape = (1, rows // window[0], columns // window[1], channels)
        return self._op("max_pool2d", [x], shape, self._quant(x), **attrs)

    def mean(self, x: str) -> str:
        """Of each channel."""
        shape = self.tensors[x].shape
        return self._op("mean", [x], (1, shape[-1]), self._quant(x), axes=tuple(range(1, len(shape) - 1)))

    def dense(self, x: str, features: int, relu: bool = False) -> str:
        """Of all elements of `x`."""
        if len(self.tensors[x].shape) > 2:
            x = self.flat(x)
        shape = (features, self.tensors[x].shape[1])
        return self._sum("dense", x, shape, (1, features), relu)

    def flat(self, x: str) -> str:
        shape = (1, prod(self.tensors[x].shape))
        return self._op("reshape", [x], shape, self._quant(x), shape=shape)

    def embedding(self, x: str, features: int) -> str:
        table = self._constant(f"w{len(self.ops)}", self._weights((self.words, features)), SIGNED)
        return self._op("gather", [table, x], (*self.tensors[x].shape, features), SIGNED, axis=0, batch=0)

    def add(self, x: str, y: str) -> str:
        return self._op("add", [x, y], self.tensors[x].shape, SIGNED, clamp=(None, None))

    def residual(self, x: str, channels: int, stride: int, expand: int) -> str:
        """Expand, filter each channel, project; a sum around it where the shape stays (Sandler et al., CVPR 2018)."""
        inputs = self.tensors[x].shape[3]
        y = self.conv(x, inputs * expand) if expand > 1 else x
        y = self.conv(self.depthwise(y, stride), channels, relu=False)
        return self.add(x, y) if stride == 1 and inputs == channels else y

    def concat(self, parts: list[str]) -> str:
        """Along the last axis."""
        shape = self.tensors[parts[0]].shape
        last = sum(self.tensors[part].shape[-1] for part in parts)
        return self._op("concat", parts, (*shape[:-1], last), SIGNED, axis=len(shape) - 1)

    def graph(self, output: str = "") -> Graph:
        """With this output; without, those results that no op reads."""
        read = {name for op in self.ops for name in op.inputs}
        outputs = tuple(op.outputs[0] for op in self.ops if op.outputs[0] not in read)
        graph = Graph(self.name, tuple(self.ops), self.tensors, ("input",), (output,) if output else outputs)
        verify(graph, ops.result_shape)
        return graph

    def _windowed(
        self,
        kind: str,
        x: str,
        shape: tuple[int, ...],
        window: tuple[int, int],
        stride: int,
        relu: bool,
        valid: bool = False,
    ) -> str:
        size, steps = self.tensors[x].shape[1:3], (stride, stride)
        reach = [0, 0] if not valid else [window[0] - 1, window[1] - 1]
        rows, columns = (-(-(n - less) // stride) for n, less in zip(size, reach, strict=True))
        pad = (0, 0, 0, 0) if valid else same_pad(size, window, steps, (1, 1))
        channels = shape[0] if kind == "conv2d" else shape[3]
        attrs = {"stride": steps, "dilation": (1, 1), "pad": pad}
        return self._sum(kind, x, shape, (1, rows, columns, channels), relu, **attrs)

    def _sum(
        self, kind: str, x: str, weights: tuple[int, ...], shape: tuple[int, ...], relu: bool, **attrs: object
    ) -> str:
        fan_in = prod(weights[1:3] if kind == "depthwise_conv2d" else weights[1:])
        step = self._quant(x).scale[0]
        scale, number = 1.0 / (40 * fan_in**0.5 * step), len(self.ops)
        w = self._constant(f"w{number}", self._weights(weights), Quant((scale,), (0,)))
        bias = self.random.integers(-900, 900, shape[-1], np.int32)
        b = self._constant(f"b{number}", bias, Quant((scale * step,), (0,)))
        clamp = (0.0, 6.0) if relu else (None, None)
        return self._op(kind, [x, w, b], shape, ACTIVATION if relu else SIGNED, **attrs, clamp=clamp)

    def _quant(self, x: str) -> Quant:
        return self.tensors[x].quant or SIGNED

    def _weights(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.random.integers(-127, 128, shape, np.int8)

    def _constant(self, name: str, data: np.ndarray, quant: Quant) -> str:
        data = data.astype(np.float32) / 127 if self.real else data
        self.tensors[name] = Tensor(name, data.shape, str(data.dtype), None if self.real else quant, data)
        return name

    def _op(self, kind: str, inputs: list[str], of: tuple[int, ...], quant: Quant, **attrs: object) -> str:
        """A layer with a result `of` this shape."""
        name = f"{kind}_{len(self.ops)}"
        self.tensors[name] = Tensor(name, of, "float32") if self.real else Tensor(name, of, "int8", quant)
        self.ops.append(Op(kind, name, tuple(inputs), (name,), attrs))
        return name


BLOCKS: dict[str, Callable[[Net, str, Row, int, int, list[str]], str]] = {
    "conv": lambda net, x, row, channels, stride, _: net.conv(x, channels, row.window, stride, row.relu, row.valid),
    "depthwise": lambda net, x, row, channels, stride, _: net.depthwise(x, stride, row.window, row.relu),
    "separable": lambda net, x, row, channels, stride, _: net.conv(net.depthwise(x, stride), channels),
    "residual": lambda net, x, row, channels, stride, _: net.residual(x, channels, stride, row.expand),
    "max_pool": lambda net, x, row, channels, stride, _: net.max_pool(x, row.window),
    "mean": lambda net, x, row, channels, stride, _: net.mean(x),
    "dense": lambda net, x, row, channels, stride, _: net.dense(x, row.channels, row.relu),
    "flat": lambda net, x, row, channels, stride, _: net.flat(x),
    "embedding": lambda net, x, row, channels, stride, _: net.embedding(x, channels),
    "concat": lambda net, x, row, channels, stride, parts: net.concat(parts),
}
