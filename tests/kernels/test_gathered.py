"""Kernels for grouped, dilated and transposed convolutions, for products of computed matrices, and for int16 values.

The layers are random, with numbers of channels that blocks of four leave a remainder of, whole and row by row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
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


@dataclass
class Wide(Net):
    """A network of sums whose taps are no neighbours in memory, of values in int8 or int16."""

    integer: str = "int8"
    channels: tuple[int, ...] = (1, 3, 4, 8, 12, 20, 32)
    together: tuple[int, ...] = (1, 2, 4, 5, 8)  # channels of a group's result
    columns: tuple[int, ...] = (4, 8, 20, 60, 7)  # of a dense layer's operand

    def quant(self, scale: float) -> Quant:
        """TFLite's int16 has no zero points."""
        return super().quant(scale) if self.integer == "int8" else Quant((float(np.float32(scale / 200)),), (0,))

    def start(self) -> Tensor:
        size = tuple(int(n) for n in self.rng.integers(1, 9, 2))
        shape = (1, *size, int(self.pick(*self.channels)))
        return self.keep(Tensor("x", shape, self.integer, self.quant(0.02)))

    def add(self, kind: str, operands: Sequence[Tensor], quant: Quant, **attrs: Any) -> Tensor:
        result = super().add(kind, operands, quant, **attrs)
        return self.keep(replace(result, dtype=self.integer))

    def summed(self, kind: str, x: Tensor, k: int, taps: tuple[int, ...], **attrs: Any) -> Tensor:
        shape = (1, *taps, k) if kind == "depthwise_conv2d" else (k, *taps, x.shape[-1] // attrs.get("groups", 1))
        data, axis = self.rng.integers(-127, 128, shape).astype(np.int8), 3 if kind == "depthwise_conv2d" else 0
        scales = tuple(float(s) for s in (0.01 * self.rng.uniform(0.3, 1, k)).astype(np.float32))
        w = self.keep(Tensor(f"w{len(self.ops)}", data.shape, "int8", Quant(scales, (0,) * k, axis), data))
        assert x.quant is not None
        spread = 74 * 74 / 60 if self.integer == "int8" else 74 * 19000 / 15000
        typical = max(scales) * x.quant.scale[0] * spread * sqrt(data.size / k) * (1 if self.integer == "int8" else 200)
        dtype = "int32" if self.integer == "int8" else "int64"
        bias = self.rng.integers(-(2**12), 2**12, k).astype(dtype)
        quant = Quant(tuple(s * x.quant.scale[0] for s in scales), (0,) * k, 0)
        b = self.keep(Tensor(f"b{len(self.ops)}", (k,), dtype, quant, bias))
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
        k = groups * int(self.pick(*self.together))
        return self.summed("conv2d", x, k, (taps[0], taps[1]), groups=groups, dilation=dilation, stride=stride, pad=pad)

    def transpose_conv2d(self, x: Tensor) -> Tensor:
        groups = int(self.pick(*(g for g in (1, 1, 2) if x.shape[3] % g == 0)))
        taps, stride, pad, more = ([int(n) for n in self.rng.integers(low, 4, 2)] for low in (1, 1, -1, 0))
        dilation = self.pick((1, 1), (1, 1), (2, 1), (1, 2))
        full = [(n - 1) * s + (t - 1) * d + 1 for n, s, t, d in zip(x.shape[1:3], stride, taps, dilation, strict=True)]
        size = tuple(max(1, n - p + m) for n, p, m in zip(full, pad, more, strict=True))
        attrs = {"groups": groups, "dilation": dilation, "stride": tuple(stride), "pad": tuple(pad), "size": size}
        return self.summed("transpose_conv2d", x, groups * int(self.pick(1, 3, 4, 8)), (taps[0], taps[1]), **attrs)

    def upwards(self, x: Tensor) -> Tensor:
        """A transposed convolution whose columns do not overlap, as those of U-nets."""
        taps, stride = ([int(n) for n in self.rng.integers(low, 4, 2)] for low in (1, 2))
        taps[1] = min(taps[1], stride[1])
        size = (max(1, (x.shape[1] - 1) * stride[0] + taps[0] - 1), x.shape[2] * stride[1])
        attrs = {"groups": 1, "dilation": (1, 1), "stride": tuple(stride), "pad": (int(taps[0] > 1), 0), "size": size}
        return self.summed("transpose_conv2d", x, int(self.pick(1, 3, 4, 7)), (taps[0], taps[1]), **attrs)

    def depthwise_conv2d(self, x: Tensor) -> Tensor:
        k = x.shape[3]
        taps = tuple(int(n) for n in self.rng.integers(1, 5, 2))
        pad = tuple(
            max(n // 2, n - size) for n, size in zip((*taps, *taps), (*x.shape[1:3], *x.shape[1:3]), strict=True)
        )
        attrs = {"stride": self.pick((1, 1), (2, 2)), "dilation": (1, 1), "pad": pad}
        return self.summed("depthwise_conv2d", x, k, (taps[0], taps[1]), **attrs)

    def dense(self, x: Tensor) -> Tensor:
        rows, c = int(self.pick(1, 1, 3)), int(self.pick(*self.columns))
        x = self.tensors["x"] = replace(x, shape=(rows, c))
        return self.summed("dense", x, int(self.rng.integers(1, 11)), ())

    def batch_matmul(self, _: Tensor) -> Tensor:
        (n, k), c, turned = self.rng.integers(1, 9, 2), int(self.rng.integers(4, 40)), self.pick(False, True)
        front = tuple(int(m) for m in self.rng.integers(1, 3, 2))
        sizes = ((*front, int(n), c), (*front, *((int(k), c) if turned else (c, int(k)))))
        x, w = (self.keep(Tensor(t, s, self.integer, self.quant(0.02))) for t, s in zip("xw", sizes, strict=True))
        spread = 0.02 * 0.02 * 74 * 74 * sqrt(c) / 60
        scale = self.quant(spread if self.integer == "int8" else spread * self.pick(1, 1, 0.25, 2, 4, 16))
        return self.add("batch_matmul", [x, w], scale, clamp=(None, None), turned=turned)


KINDS = {"conv2d": "dsp gathered taps", "transpose_conv2d": "dsp gathered taps", "batch_matmul": "dsp two columns"}


WIDE = {"conv2d": "dsp gathered taps", "transpose_conv2d": "dsp gathered taps", "depthwise_conv2d": "dsp taps of int16",
        "dense": "dsp 1 pixel of int16", "batch_matmul": "dsp pairs of int16"}  # fmt: skip


def network(seed: int, *kinds: str, integer: str = "int8", **sizes: tuple[int, ...]) -> Graph:
    rng = np.random.default_rng(seed)
    net = Wide(rng, str(rng.choice(["tflite", "onnx"])) if integer == "int8" else "tflite", integer=integer, **sizes)
    x = first = net.start() if kinds != ("batch_matmul",) else Tensor("", (), "int8")
    for kind in kinds:
        x = getattr(net, kind)(x)
    inputs = ("x", "w") if not first.name else ("x",)
    return Graph("random", tuple(net.ops), net.tensors, inputs, (x.name,), net.arithmetic)


def variants(graphs: list[Graph], target: str = TARGET) -> Counter[str]:
    form = form_of(load_target(target))
    return Counter(kernel_of(op, g, form).variant for g in graphs for op in g.ops)


@pytest.mark.one_in(3)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_single_layers(kind: str, tmp_path: Path) -> None:
    """Those of the sizes above, and those of the tests of operators."""
    graphs = [network(seed, kind) for seed in range(40)]
    graphs += [g for g in examples(single_ops(kind), 60) if g.result(g.ops[0]).dtype == "int8"][:20]
    assert variants(graphs)[KINDS[kind]] > 16
    check(TARGET, graphs, tmp_path)


@pytest.mark.slow
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", [TARGET, "mps3-an547"])
def test_odd_numbers_of_channels(target: str, tmp_path: Path) -> None:
    """Of a window or a group, up to the lengths at which copies change their way, and what blocks of four leave."""
    sizes = {"channels": (1, 2, 5, 6, 7, 9, 10, 14, 18, 22), "together": (1, 2, 3, 5, 6, 7)}
    kinds = ("conv2d", "transpose_conv2d")
    drawn = [(kind, integer, seed) for kind in kinds for integer in ("int8", "int16") for seed in range(20)]
    graphs = [network(seed, kind, integer=integer, **sizes) for kind, integer, seed in drawn]
    form = form_of(load_target(TARGET))
    chosen = [kernel_of(op, g, form) for g in graphs for op in g.ops]
    narrow = [k.shape for k in chosen if k.shape.get("flat") and not k.shape["wide"]]
    assert min(Counter(shape["rest"] for shape in narrow).values()) > 2, narrow
    runs = Counter(k.shape["wide"] for k in chosen if k.shape.get("flat") and k.shape["run"] != 1)
    assert min(runs[False], runs[True]) > 2, runs
    check(target, graphs, tmp_path)


@pytest.mark.needs(*NEEDS)
def test_large_sums(tmp_path: Path) -> None:
    """Sums that no word has beside another one: whole, row by row, of odd numbers of channels, in groups."""
    sizes = {"channels": (1040, 1101, 2100), "together": (1, 2, 5, 6), "columns": (1300, 1601)}
    drawn = [("conv2d", 12), ("dense", 8), ("transpose_conv2d", 8)]
    graphs = [network(seed, kind, **sizes) for kind, count in drawn for seed in range(count)]
    form = form_of(load_target(TARGET))
    chosen = [kernel_of(op, g, form) for g in graphs for op in g.ops]
    single = Counter(k.template for k in chosen if k.variant == "dsp 1 pixel, large sums")
    rests = Counter(k.shape["rest"] for k in chosen if k.shape.get("paired") and k.shape["blocks"])
    assert min(len(single), rests[0], rests[1]) > 1, (single, rests)
    check(TARGET, graphs, tmp_path)
    (tmp_path / "rows").mkdir()
    check(TARGET, [replace(g) for g in graphs[:4]], tmp_path / "rows", tile="rolling")


@pytest.mark.one_in(4)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", [TARGET, "mps3-an547", "riscv-virt"])
def test_columns_that_do_not_overlap(target: str, tmp_path: Path) -> None:
    """Those that one input makes are one pixel of the kernel; whole and row by row."""
    form = form_of(load_target(target))
    graphs = [network(seed, "upwards", integer=integer) for integer in ("int8", "int16") for seed in range(16)]
    shapes = [kernel_of(op, g, form).shape for g in graphs for op in g.ops]
    assert sum(shape.get("columns") not in (None, shape["OW"]) for shape in shapes) > 8, shapes
    check(target, graphs, tmp_path)
    (tmp_path / "rows").mkdir()
    chains = [network(seed, "upwards", "conv2d") for seed in range(10)]
    check(target, chains, tmp_path / "rows", tile="rolling")


@pytest.mark.needs(*NEEDS)
def test_vectors(tmp_path: Path) -> None:
    """With MVE, whole and row by row."""
    graphs = [network(seed, kind) for kind in ("conv2d", "transpose_conv2d") for seed in range(30)]
    assert variants(graphs, "mps3-an547")["mve gathered taps"] > 24
    check("mps3-an547", graphs, tmp_path)
    chains = [network(seed, "conv2d", "transpose_conv2d", "conv2d") for seed in range(12)]
    (tmp_path / "rows").mkdir()
    check("mps3-an547", chains, tmp_path / "rows", tile="rolling")


@pytest.mark.one_in(3)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", ["riscv-virt", "mps2-an385", "microbit"])
def test_without_vectors(target: str, tmp_path: Path) -> None:
    """In blocks of registers, whole and row by row."""
    count = 5 if target == "microbit" else 14  # as much as its memory holds
    graphs = [network(seed, kind) for kind in KINDS for seed in range(count)]
    chosen = variants(graphs, target)
    assert min(chosen["gathered taps"], chosen["two columns"]) > count // 3, chosen
    check(target, graphs, tmp_path)
    if target == "riscv-virt":
        chains = [network(seed, "conv2d", "transpose_conv2d", "conv2d") for seed in range(12)]
        (tmp_path / "rows").mkdir()
        check(target, chains, tmp_path / "rows", tile="rolling")


@pytest.mark.one_in(2)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", [TARGET, "riscv-virt"])
def test_wide_layers(target: str, tmp_path: Path) -> None:
    """Values of 16 bits: vectors on one processor, sums in 32 bits on all."""
    graphs = [network(seed, kind, integer="int16") for kind in WIDE for seed in range(16)]
    graphs += [g for g in examples(single_ops("batch_matmul"), 60) if g.result(g.ops[0]).dtype == "int16"]
    graphs += [network(seed, "conv2d", integer="int16", channels=(1, 2)) for seed in range(100, 130)]
    counts = variants(graphs)
    assert min(counts[name] for name in [*WIDE.values(), "dsp taps in registers"]) > 4, counts
    check(target, graphs, tmp_path)


@pytest.mark.one_in(2)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("integer", ["int8", "int16"])
def test_rows(integer: str, tmp_path: Path) -> None:
    """Chains, row by row: rings of rows, and parts of results whose padding is cut."""
    graphs = [network(seed, "conv2d", "transpose_conv2d", "conv2d", integer=integer) for seed in range(8)]
    graphs += [network(seed, "transpose_conv2d", "conv2d", integer=integer) for seed in range(8)]
    graphs += [network(seed, "conv2d", "depthwise_conv2d", integer=integer) for seed in range(8)]
    assert all(ops.SPECS[op.kind].rows(op, g) for g in graphs for op in g.ops)
    check(TARGET, graphs, tmp_path, tile="rolling")


@pytest.mark.needs(*NEEDS)
def test_wide_elements(tmp_path: Path) -> None:
    """Sums and products of int16, at both ends of the type, too."""
    graphs = [g for kind in ("add", "mul") for g in examples(single_ops(kind), 250)]
    graphs = [g for g in graphs if g.result(g.ops[0]).dtype == "int16" and g.arithmetic == "tflite"]
    counts = variants(graphs)
    assert min(counts["dsp sums of int16"], counts["dsp products of int16"]) > 8, counts
    check(TARGET, graphs, tmp_path)


@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", ["riscv-virt", "mps3-an547"])
def test_channels_whose_factor_is_nothing(target: str, tmp_path: Path) -> None:
    """A factor below 2^-32 makes every result the zero point, in groups as elsewhere."""
    graphs = []
    for graph in [network(seed, "conv2d") for seed in range(8)]:
        w = graph.tensors[graph.ops[0].inputs[1]]
        assert w.quant is not None
        scales = (1e-16, *w.quant.scale[1:])
        bias = graph.tensors[graph.ops[0].inputs[2]]
        x = graph.tensors["x"]
        assert x.quant is not None and bias.quant is not None
        starts = replace(bias.quant, scale=(1e-16 * x.quant.scale[0], *bias.quant.scale[1:]))
        changed = {w.name: replace(w, quant=replace(w.quant, scale=scales)), bias.name: replace(bias, quant=starts)}
        graphs.append(replace(graph, tensors={**graph.tensors, **changed}))
    check(target, graphs, tmp_path)
