"""Random IR graphs of several ops: chains, residual sums, fans of branches that are concatenated."""

from __future__ import annotations

from dataclasses import replace
from math import prod, sqrt
from typing import Any

import numpy as np
from hypothesis import strategies as st

from edgebuild.model import ops
from edgebuild.model.ir import Graph, Op, Quant, Tensor, verify

from .source import Source, sources

FORMS = (("tflite", False), ("onnx", False), ("tflite", True))
OPEN = {"clamp": (None, None)}


class Chain:
    """A graph under construction. Each method adds an op and returns its result."""

    def __init__(self, s: Source) -> None:
        self.s, self.ops, self.tensors = s, list[Op](), dict[str, Tensor]()

    def input(self, shape: tuple[int, ...]) -> Tensor:
        return self.keep(self.s.tensor(f"in{len(self.tensors)}", shape, self.s.quant()))

    def keep(self, t: Tensor) -> Tensor:
        self.tensors[t.name] = t
        return t

    def add(self, kind: str, operands: list[Tensor], quant: Quant | None, **attrs: Any) -> Tensor:
        name = f"{kind}{len(self.ops)}"
        draft = Tensor(name, (), operands[0].dtype, quant)
        op = Op(kind, name, tuple(t.name for t in operands), (name,), attrs)
        graph = Graph("random", (op,), {**self.tensors, name: draft}, (), (name,), self.s.arithmetic)
        self.ops.append(op)
        return self.keep(replace(draft, shape=ops.result_shape(op, graph)))

    def spread(self, factor: float) -> Quant | None:
        """A quantisation with this scale, if quantised at all."""
        return self.s.quant(float(np.float32(factor))) if not self.s.real else None

    def sum(self, kind: str, x: Tensor, w: Tensor, terms: int, **attrs: Any) -> Tensor:
        self.keep(w)
        bias = self.keep(self.s.bias(f"{w.name}_bias", x, w, w.shape[3 if kind == "depthwise_conv2d" else 0]))
        scale = x.quant.scale[0] * max(w.quant.scale) if x.quant and w.quant else 1.0
        y = self.spread(scale * 74 * 74 * sqrt(terms) / 60)
        return self.add(kind, [x, w, bias], y, clamp=self.s.clamp(), **attrs)

    def conv(self, x: Tensor) -> Tensor:
        taps, out = self.s.pick(1, 3), self.s.between(1, 6)
        stride = self.s.pick(1, 1, 2)
        w = self.s.weights(f"w{len(self.ops)}", (out, taps, taps, x.shape[3]), 0)
        return self.sum("conv2d", x, w, taps * taps * x.shape[3], **self.window(taps, stride), dilation=(1, 1))

    def grouped(self, x: Tensor) -> Tensor:
        """A convolution of groups of channels, as many as divide them."""
        groups = self.s.pick(*(n for n in range(1, x.shape[3] + 1) if x.shape[3] % n == 0))
        each = x.shape[3] // groups
        w = self.s.weights(f"w{len(self.ops)}", (groups * self.s.between(1, 4), 3, 3, each), 0)
        more = {**self.window(3, self.s.pick(1, 1, 2)), "dilation": (1, 1), "groups": groups}
        return self.sum("conv2d", x, w, 9 * each, **more)

    def depthwise(self, x: Tensor) -> Tensor:
        w = self.s.weights(f"w{len(self.ops)}", (1, 3, 3, x.shape[3]), 3)
        return self.sum("depthwise_conv2d", x, w, 9, **self.window(3, self.s.pick(1, 1, 2)), dilation=(1, 1))

    def window(self, taps: int, stride: int) -> dict[str, Any]:
        return {"stride": (stride, stride), "pad": (taps // 2,) * 4}

    def pool(self, x: Tensor) -> Tensor:
        kind = self.s.pick("max_pool2d", "avg_pool2d")
        return self.add(kind, [x], x.quant, window=(3, 3), **self.window(3, self.s.pick(1, 2)), **OPEN)

    def pad(self, x: Tensor) -> Tensor:
        return self.add("pad", [x], x.quant, pads=((0, 0), self.s.pair(0, 2), self.s.pair(0, 2), (0, 0)), value=None)

    def clamp(self, x: Tensor) -> Tensor:
        return self.add("clamp", [x], x.quant, clamp=self.s.clamp())

    def turn(self, x: Tensor) -> Tensor:
        return self.add("transpose", [x], x.quant, perm=self.s.pick((0, 2, 1, 3), (0, 3, 1, 2), (0, 1, 2, 3)))

    def reshape(self, x: Tensor) -> Tensor:
        _, h, w, c = x.shape
        return self.add("reshape", [x], x.quant, shape=self.s.pick((1, h * w, 1, c), (1, 1, h, w * c), x.shape))

    def two(self, x: Tensor, y: Tensor) -> Tensor:
        kind = self.s.pick("add", "mul")
        scales = [t.quant.scale[0] for t in (x, y) if t.quant] or [1.0]
        quant = self.spread(max(scales) if kind == "add" else prod(scales) * 80)
        return self.add(kind, [x, y], quant, clamp=self.s.clamp())

    def concat(self, x: Tensor, y: Tensor) -> Tensor:
        if y.quant != x.quant:
            y = self.add("requantize", [y], x.quant)
        return self.add("concat", [x, y], x.quant, axis=3)

    def head(self, x: Tensor) -> Tensor:
        """Mean over the image, or all of it flattened; a dense layer; perhaps softmax."""
        if self.s.pick(True, False):
            x = self.add("mean", [x], self.spread(x.quant.scale[0]) if x.quant else None, axes=(1, 2))
        x = self.add("reshape", [x], x.quant, shape=(1, x.elements))
        w = self.s.weights(f"w{len(self.ops)}", (self.s.between(1, 5), x.elements), 0)
        x = self.sum("dense", x, w, x.elements)
        if self.s.pick(True, False):
            x = self.add("softmax", [x], None if self.s.real else Quant((1 / 256,), (-128,)), beta=1.0)
        return x


SINGLE = ("conv", "depthwise", "pool", "pad", "clamp", "turn", "reshape")


@st.composite
def small_graphs(draw: st.DrawFn) -> Graph:
    """2 to 10 ops and a few more that these need. What no op reads is an output, with now and then one that is read."""
    s = draw(sources(FORMS))
    chain = Chain(s)
    shape = (1, s.between(3, 8), s.between(3, 8), s.between(1, 4))
    images = [chain.input(shape) for _ in range(s.pick(1, 1, 2))]
    for _ in range(s.between(2, 10)):
        x = s.pick(*images[-3:])
        same = [t for t in images if t.shape == x.shape]
        beside = [t for t in images if t.shape[:3] == x.shape[:3] and t.shape[3] + x.shape[3] < 20]
        word = s.pick(*SINGLE, "two", "concat")
        if word == "two":
            images.append(chain.two(x, s.pick(*same)))
        elif word == "concat" and beside:
            images.append(chain.concat(x, s.pick(*beside)))
        else:
            images.append(getattr(chain, word if word in SINGLE else "conv")(x))
    if s.pick(True, False):
        chain.head(images[-1])
    read = {name for op in chain.ops for name in op.inputs}
    outputs = [op.outputs[0] for op in chain.ops if op.outputs[0] not in read or s.between(0, 9) == 0]
    graph = s.graph(chain.ops, list(chain.tensors.values()), outputs)
    verify(graph, ops.result_shape)
    return graph
