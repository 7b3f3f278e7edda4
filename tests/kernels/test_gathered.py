"""Kernels of the DSP extension for grouped, dilated and transposed convolutions and for products of computed matrices.

The layers are random, with numbers of channels that blocks of four leave a remainder of, whole and row by row.
"""

from __future__ import annotations

from collections import Counter
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.ir import Graph, Quant, Tensor
from edgebuild.model.kernels import kernel_of
from edgebuild.model.plan.search import form_of
from tests.graphs import examples, single_ops
from tests.kernels.test_processors import NEEDS, check
from tests.kernels.test_vectors import Net

TARGET = "mps2-an386"


class Wide(Net):
    """A network of sums whose taps are no neighbours in memory."""

    def start(self) -> Tensor:
        size = tuple(int(n) for n in self.rng.integers(1, 9, 2))
        return self.keep(Tensor("x", (1, *size, int(self.pick(1, 3, 4, 8, 12, 20, 32))), "int8", self.quant(0.02)))

    def summed(self, kind: str, x: Tensor, k: int, taps: tuple[int, int], **attrs: Any) -> Tensor:
        data = self.rng.integers(-127, 128, (k, *taps, x.shape[3] // attrs["groups"])).astype(np.int8)
        scales = tuple(float(s) for s in (0.01 * self.rng.uniform(0.3, 1, k)).astype(np.float32))
        w = self.keep(Tensor(f"w{len(self.ops)}", data.shape, "int8", Quant(scales, (0,) * k, 0), data))
        assert x.quant is not None
        typical = max(scales) * x.quant.scale[0] * 74 * 74 * sqrt(data.size / k) / 60
        bias = self.rng.integers(-(2**12), 2**12, k).astype(np.int32)
        quant = Quant(tuple(s * x.quant.scale[0] for s in scales), (0,) * k, 0)
        b = self.keep(Tensor(f"b{len(self.ops)}", (k,), "int32", quant, bias))
        return self.add(kind, [x, w, b], self.quant(typical), clamp=self.clamp(), **attrs)

    def conv2d(self, x: Tensor) -> Tensor:
        """In groups, dilated, or both."""
        groups = int(self.pick(*(g for g in (1, 2, 4, 8) if x.shape[3] % g == 0)))
        (h, w), reach = x.shape[1:3], self.rng.integers(1, 4, 2)
        taps = tuple(int(self.rng.integers(1, 4)) for _ in range(2))
        dilation = (int(reach[0]), int(reach[1]))
        far = [(n - 1) * d for n, d in zip(taps, dilation, strict=True)]
        pad = tuple(
            int(max(self.rng.integers(0, f + 1), f + 1 - n)) for f, n in zip((*far, *far), (h, w, h, w), strict=True)
        )
        stride = self.pick((1, 1), (2, 2), (1, 3))
        k = groups * int(self.pick(1, 2, 4, 5, 8))
        return self.summed("conv2d", x, k, (taps[0], taps[1]), groups=groups, dilation=dilation, stride=stride, pad=pad)

    def transpose_conv2d(self, x: Tensor) -> Tensor:
        groups = int(self.pick(*(g for g in (1, 1, 2) if x.shape[3] % g == 0)))
        taps, stride, pad, more = ([int(n) for n in self.rng.integers(low, 4, 2)] for low in (1, 1, -1, 0))
        dilation = self.pick((1, 1), (1, 1), (2, 1), (1, 2))
        full = [(n - 1) * s + (t - 1) * d + 1 for n, s, t, d in zip(x.shape[1:3], stride, taps, dilation, strict=True)]
        size = tuple(max(1, n - p + m) for n, p, m in zip(full, pad, more, strict=True))
        attrs = {"groups": groups, "dilation": dilation, "stride": tuple(stride), "pad": tuple(pad), "size": size}
        return self.summed("transpose_conv2d", x, groups * int(self.pick(1, 3, 4, 8)), (taps[0], taps[1]), **attrs)

    def batch_matmul(self, _: Tensor) -> Tensor:
        (n, k), c, turned = self.rng.integers(1, 9, 2), int(self.rng.integers(4, 40)), self.pick(False, True)
        front = tuple(int(m) for m in self.rng.integers(1, 3, 2))
        x = self.keep(Tensor("x", (*front, int(n), c), "int8", self.quant(0.02)))
        w = self.keep(Tensor("w", (*front, *((int(k), c) if turned else (c, int(k)))), "int8", self.quant(0.02)))
        scale = self.quant(0.02 * 0.02 * 74 * 74 * sqrt(c) / 60)
        return self.add("batch_matmul", [x, w], scale, clamp=(None, None), turned=turned)


KINDS = {"conv2d": "dsp gathered taps", "transpose_conv2d": "dsp gathered taps", "batch_matmul": "dsp two columns"}


def network(seed: int, *kinds: str) -> Graph:
    rng = np.random.default_rng(seed)
    net = Wide(rng, str(rng.choice(["tflite", "onnx"])))
    x = first = net.start() if kinds != ("batch_matmul",) else Tensor("", (), "int8")
    for kind in kinds:
        x = getattr(net, kind)(x)
    inputs = ("x", "w") if not first.name else ("x",)
    return Graph("random", tuple(net.ops), net.tensors, inputs, (x.name,), net.arithmetic)


def variants(graphs: list[Graph]) -> Counter[str]:
    form = form_of(load_target(TARGET))
    return Counter(kernel_of(op, g, form).variant for g in graphs for op in g.ops)


@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_single_layers(kind: str, tmp_path: Path) -> None:
    """Those of the sizes above, and those of the tests of operators."""
    graphs = [network(seed, kind) for seed in range(60)]
    graphs += [g for g in examples(single_ops(kind), 60) if g.result(g.ops[0]).dtype == "int8"][:20]
    assert variants(graphs)[KINDS[kind]] > 25
    check(TARGET, graphs, tmp_path)


@pytest.mark.needs(*NEEDS)
def test_rows(tmp_path: Path) -> None:
    """Chains, row by row: rings of rows, and parts of results whose padding is cut."""
    graphs = [network(seed, "conv2d", "transpose_conv2d", "conv2d") for seed in range(12)]
    graphs += [network(seed, "transpose_conv2d", "conv2d") for seed in range(12)]
    assert all(ops.SPECS[op.kind].rows(op, g) for g in graphs for op in g.ops)
    check(TARGET, graphs, tmp_path, tile="rolling")
