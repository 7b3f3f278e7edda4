"""Kernels for vectors with the numbers of channels that vectors leave a remainder of, whole and row by row.

The layers are random: windows, strides, paddings, zero points, activations, factors above and far below one, biases
that drive sums to int32's ends; in both arithmetics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, islice, product
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model import kernels, ops
from edgebuild.model.ir import Graph, Op, Quant, Tensor
from edgebuild.model.kernels import arm_mve, kernel_of
from edgebuild.model.kernels.arm_mve import sum_kernels
from edgebuild.model.kernels.row import CONVOLUTION, DEPTHWISE, Row, of_sums
from edgebuild.model.plan.choose import plan
from edgebuild.model.plan.search import form_of
from tests.kernels.test_processors import NEEDS, check, preferring

TARGET = "mps3-an547"
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 20, 31, 33, 48, 64)
SUMS = ("conv2d", "depthwise_conv2d", "dense")
OTHERS = ("add", "mul", "avg_pool2d", "max_pool2d", "mean", "requantize", "clamp")


@dataclass
class Net:
    """A chain of layers under construction on one input."""

    rng: np.random.Generator
    arithmetic: str
    ops: list[Op] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def pick(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def quant(self, scale: float) -> Quant:
        return Quant((float(np.float32(scale)),), (int(self.pick(-128, 0, 127, self.rng.integers(-128, 128))),))

    def keep(self, t: Tensor) -> Tensor:
        self.tensors[t.name] = t
        return t

    def add(self, kind: str, operands: Sequence[Tensor], quant: Quant, **attrs: Any) -> Tensor:
        name = f"{kind}_{len(self.ops)}"
        op = Op(kind, name, tuple(t.name for t in operands), (name,), attrs)
        draft = Tensor(name, (), "int8", quant)
        shape = ops.result_shape(op, Graph("", (op,), {**self.tensors, name: draft}, (), (name,), self.arithmetic))
        self.ops.append(op)
        return self.keep(replace(draft, shape=shape))

    def clamp(self) -> tuple[float | None, float | None]:
        return self.pick((None, None), (0.0, None), (0.0, 6.0), (-1.0, 1.0))  # type: ignore[no-any-return]

    def window(self, x: Tensor) -> tuple[tuple[int, int], dict[str, Any]]:
        taps = self.pick((1, 1), (3, 3), (3, 3), (5, 3), (2, 4), (1, 5), (4, 1), (10, 4))
        pad = tuple(int(self.rng.integers(0, n)) if self.rng.integers(2) else 0 for n in (*taps, *taps))
        taps = tuple(min(n, x.shape[1 + i] + pad[i] + pad[i + 2]) for i, n in enumerate(taps))
        stride = self.pick((1, 1), (1, 1), (2, 2), (1, 2), (3, 1))
        return taps, {"stride": stride, "dilation": (1, 1), "pad": pad}

    def layer(self, kind: str, x: Tensor) -> Tensor:
        """A sum of products, usually spread over all of int8."""
        attrs: dict[str, Any] = {}
        channels, axis = int(self.pick(*CHANNELS)), 0
        if kind == "dense":
            shape: tuple[int, ...] = (channels, x.shape[1])
        else:
            taps, attrs = self.window(x)
            shape = (channels, *taps, x.shape[3])
            if kind == "depthwise_conv2d":
                shape, axis = (1, *taps, x.shape[3] * int(self.pick(1, 1, 1, 2))), 3
        return self.products(kind, x, shape, axis, **attrs)

    def products(self, kind: str, x: Tensor, shape: tuple[int, ...], axis: int = 0, **attrs: Any) -> Tensor:
        data = self.rng.integers(-127, 128, shape).astype(np.int8)
        count = shape[axis]
        scales = tuple(float(s) for s in (0.01 * self.rng.uniform(0.3, 1, count)).astype(np.float32))
        w = self.keep(Tensor(f"w{len(self.ops)}", shape, "int8", Quant(scales, (0,) * count, axis), data))
        factor = self.pick(1, 1, 1, 1, 2.0**-12, 2.0**12)
        reach = int(self.pick(1, 2**12, 2**18, 2**28 if factor >= 1 else 1))
        quant = Quant(tuple(s * x.quant.scale[0] for s in scales), (0,) * count, 0)  # type: ignore[union-attr]
        start = self.rng.integers(-reach, reach + 1, count).astype(np.int32)
        b = self.keep(Tensor(f"b{len(self.ops)}", (count,), "int32", quant, start))
        typical = max(scales) * x.quant.scale[0] * 74 * 74 * sqrt(data.size / count) / 60  # type: ignore[union-attr]
        y = self.quant(typical * factor)
        return self.add(kind, [x, w, b], y, clamp=self.clamp(), **attrs)

    def other(self, kind: str, x: Tensor) -> Tensor:
        assert x.quant is not None
        if kind in ("add", "mul"):
            own = self.rng.uniform(0.5, 4) * x.quant.scale[0] * (1.0 if kind == "add" else 80 * x.quant.scale[0])
            return self.add(kind, [x, x], self.quant(own), clamp=self.clamp())
        if kind == "requantize":
            return self.add(kind, [x], self.quant(x.quant.scale[0] * self.rng.uniform(0.3, 3)))
        if kind == "clamp":
            return self.add(kind, [x], self.quant(x.quant.scale[0] * self.rng.uniform(0.3, 3)), clamp=self.clamp())
        if kind == "mean":
            axes = self.pick((1, 2), (1,), (2, 3), (3,), (2,))
            return self.add(kind, [x], self.quant(x.quant.scale[0] / 2), axes=axes)
        taps, attrs = self.window(x)
        taps = tuple(min(n, x.shape[1 + i]) for i, n in enumerate(taps))
        inside = tuple(min(n, t // 2) for n, t in zip(attrs["pad"], (*taps, *taps), strict=True))
        attrs["pad"] = self.pick((0, 0, 0, 0), inside)
        return self.add(kind, [x], x.quant, window=taps, clamp=self.clamp(), **attrs)


def random_net(seed: int, kinds: Sequence[str], length: int, wide: bool = False) -> Graph:
    rng = np.random.default_rng(seed)
    net = Net(rng, str(rng.choice(["tflite", "onnx"])))
    chosen = [str(rng.choice(list(kinds))) for _ in range(length)]
    shape = (1, int(rng.integers(3, 14)), int(rng.integers(1, 14)), int(net.pick(*CHANNELS)))
    if wide:
        shape = (1, int(rng.integers(2, 5)), int(net.pick(16, 32, 48, 48, 64, 80)), int(net.pick(1, 1, 1, 2, 3)))
    if chosen[0] == "dense":
        shape = (int(net.pick(1, 1, 2, 5)), int(net.pick(*CHANNELS, 100, 257)))  # type: ignore[assignment]
    first = x = net.keep(Tensor("x", shape, "int8", net.quant(0.02)))
    for kind in chosen:
        x = net.layer(kind, x) if kind in SUMS else net.other(kind, x)
    return Graph("random", tuple(net.ops), net.tensors, (first.name,), (x.name,), net.arithmetic)


def variants(graphs: Sequence[Graph]) -> Counter[str]:
    form = form_of(load_target(TARGET))
    return Counter(kernel_of(op, g, form).variant for g in graphs for op in g.ops)


@pytest.mark.one_in(4)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("kind", SUMS)
def test_sums(kind: str, tmp_path: Path) -> None:
    """Each layer by itself."""
    graphs = [random_net(seed, [kind], 1) for seed in range(60)]
    assert sum(n for name, n in variants(graphs).items() if name.startswith("mve")) > 30
    check(TARGET, graphs, tmp_path)


@pytest.mark.one_in(2)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("kind", ["conv2d", "depthwise_conv2d"])
def test_wide_rows(kind: str, tmp_path: Path) -> None:
    """Rows of few channels, as images have them. Their bytes may be as many as a step of the loop over them."""
    check(TARGET, [random_net(seed, [kind], 1, wide=True) for seed in range(700, 740)], tmp_path)


@pytest.mark.one_in(4)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", ["mps2-an386", "mps2-an385", "riscv-virt"])
def test_ends_of_sums(target: str, tmp_path: Path) -> None:
    """Each way from sums to results: roundings of both arithmetics, with bounds of int8 and others."""
    graphs = [random_net(seed, SUMS, 1) for seed in range(500, 570)]
    counts = Counter(layer.finish for g in graphs for op in g.ops if (layer := ops.SPECS[op.kind].sums(op, g)))
    assert min(counts[how] for how in ("relu", "relu_clamped", "signed", "signed_clamped", "once", "once_clamped")) > 0
    check(target, graphs, tmp_path)


@pytest.mark.one_in(4)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("lean, own", [(2, False), (2, True), (0, True)])
def test_convolutions(lean: int, own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variants with little scratch, though there is room for more, and those with functions of their own."""
    row = Row(CONVOLUTION, arm_mve.CORE, of_sums(partial(sum_kernels.convolution, lean, own)))
    monkeypatch.setattr(kernels, "ROWS", (row,))
    graphs = [random_net(seed, ["conv2d"], 1) for seed in range(100, 170)]
    counted = variants(graphs)
    assert sum(n for name, n in counted.items() if name.startswith("mve") and name.endswith(", own") == own) > 20
    assert not own or lean or counted["mve direct, own"] > 3
    check(TARGET, graphs, tmp_path)


def pairs(channels: int, taps: tuple[int, int], results: int, seed: int) -> Graph:
    net = Net(np.random.default_rng(seed), "tflite" if seed % 2 else "onnx")
    x = net.keep(Tensor("x", (1, taps[0], taps[1] + 4, channels), "int8", net.quant(0.02)))
    y = net.products("conv2d", x, (results, *taps, channels), stride=(1, 1), dilation=(1, 1), pad=(0, 0, 0, 0))
    return Graph("pairs", tuple(net.ops), net.tensors, ("x",), (y.name,), net.arithmetic)


@pytest.mark.needs(*NEEDS)
def test_pairs_of_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few and many taps, with a remainder and without; pixels near each other and far; few and many results."""
    row = Row(CONVOLUTION, arm_mve.CORE, of_sums(partial(sum_kernels.convolution, 0, True)))
    monkeypatch.setattr(kernels, "ROWS", (row,))
    sizes = product((3, 8, 16, 40, 64, 72, 130), ((1, 1), (1, 3), (3, 3)), (4, 127, 128))
    graphs = [pairs(*size, seed) for seed, size in enumerate(sizes)]
    form = form_of(load_target(TARGET))
    shapes = {id(g): kernel_of(g.ops[0], g, form).shape for g in graphs}
    graphs = [g for g in graphs if "pairs" in shapes[id(g)] and g.tensors["w0"].elements < 70_000]
    ways = Counter((shapes[id(g)]["pairs"].pairs.zero, shapes[id(g)]["pairs"].pairs.turns > 1) for g in graphs)
    assert len(ways) == 4, ways
    assert len({shapes[id(g)]["finish"] for g in graphs}) > 4
    for at in range(0, len(graphs), 16):
        (tmp_path / str(at)).mkdir()
        check(TARGET, graphs[at : at + 16], tmp_path / str(at))


@pytest.mark.needs(*NEEDS)
def test_strips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs one below the other, with padding at all sides, also where a window lies in it as a whole."""
    monkeypatch.setattr(kernels, "ROWS", (Row(CONVOLUTION, arm_mve.CORE, of_sums(sum_kernels.strips)),))
    graphs = [random_net(seed, ["conv2d"], 1, wide=seed % 5 == 0) for seed in range(1200, 1320)]
    chosen = [g for g in graphs if "mve strips, own" in variants([g])]
    assert len(chosen) > 30
    check(TARGET, chosen, tmp_path)


@pytest.mark.one_in(2)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("upright", [False, True])
def test_depthwise_by_lines(upright: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of words, or columns, of images of all sizes: also where another kernel would cost less."""
    row = Row(DEPTHWISE, arm_mve.CORE, of_sums(partial(sum_kernels.depthwise_lines, upright)))
    monkeypatch.setattr(kernels, "ROWS", (row,))
    nets = (random_net(seed, ["depthwise_conv2d"], 1, wide=seed % 5 == 0) for seed in range(800, 1200))
    graphs = [g for g in nets if next(iter(variants([g]))).endswith("of words")]
    hows = Counter(layer.finish for g in graphs for op in g.ops if (layer := ops.SPECS[op.kind].sums(op, g)))
    assert len(graphs) > 40 and len(hows) == 6
    check(TARGET, graphs, tmp_path)


@pytest.mark.one_in(4)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", ["mps3-an547", "mps2-an386", "mps2-an385", "riscv-virt"])
def test_others(target: str, tmp_path: Path) -> None:
    graphs = [random_net(seed, OTHERS, 1) for seed in range(60)]
    assert variants(graphs)["mve"] > 18
    check(target, graphs, tmp_path)


@pytest.mark.needs(*NEEDS)
def test_means_of_any_dimensions(tmp_path: Path) -> None:
    """Dimensions of one element make no loop, and what lies side by side is then another dimension."""
    extents = product((1, 3), (1, 2), (1, 2, 5), (1, 2, 5))
    axes = [chosen for count in (1, 2, 3) for chosen in combinations(range(4), count)]
    graphs = []
    some = islice(enumerate(product(extents, axes)), 0, None, 11)  # 11 divides no number of either
    for seed, (shape, chosen) in some:
        net = Net(np.random.default_rng(seed), "onnx")
        x = net.keep(Tensor("x", shape, "int8", net.quant(0.02)))
        y = net.add("mean", [x], net.quant(0.01), axes=chosen)
        graphs.append(Graph("mean", tuple(net.ops), net.tensors, (x.name,), (y.name,), net.arithmetic))
    assert variants(graphs)["mve"] > 10
    check(TARGET, graphs, tmp_path)


@pytest.mark.needs(*NEEDS)
def test_rows(tmp_path: Path) -> None:
    """Chains, row by row."""
    graphs = [random_net(seed, ("conv2d", "depthwise_conv2d", "add", "max_pool2d"), 3) for seed in range(24)]
    graphs += [random_net(seed, ("depthwise_conv2d", "conv2d", "depthwise_conv2d"), 3) for seed in range(300, 330)]
    check(TARGET, graphs, tmp_path, tile="rolling")


def column(seed: int) -> Graph:
    """A depthwise layer whose window is one column or one row, as networks of sound have them."""
    net = Net(np.random.default_rng(seed), "tflite" if seed % 2 else "onnx")
    long, dilation, stride = (int(net.pick(*some)) for some in ((1, 2, 5, 9, 21), (1, 1, 2), (1, 2)))
    extent = (long - 1) * dilation + 1 + int(net.pick(0, 0, 1, 4))
    sizes = [(long, extent, dilation), (1, int(net.pick(1, 3)), 1)]
    (fh, h, dy), (fw, w, dx) = sizes[:: int(net.pick(1, -1))]
    x = net.keep(Tensor("x", (1, h, w, int(net.pick(8, 16, 40, 64))), "int8", net.quant(0.02)))
    attrs: dict[str, Any] = {"stride": (stride, stride), "dilation": (dy, dx), "pad": (0, 0, 0, 0)}
    y = net.products("depthwise_conv2d", x, (1, fh, fw, x.shape[3]), 3, **attrs)
    return Graph("column", tuple(net.ops), net.tensors, (x.name,), (y.name,), net.arithmetic)


@pytest.mark.needs(*NEEDS)
def test_depthwise_by_channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight channels at once, of one output and of many; all ends of sums."""
    monkeypatch.setattr(kernels, "ROWS", (Row(DEPTHWISE, arm_mve.CORE, of_sums(sum_kernels.depthwise_channels)),))
    graphs = [g for g in map(column, range(2000, 2090)) if "mve channels" in variants([g])]
    hows = Counter(layer.finish for g in graphs for op in g.ops if (layer := ops.SPECS[op.kind].sums(op, g)))
    assert len(graphs) > 40 and len(hows) == 6, hows
    check(TARGET, graphs, tmp_path)


def tower(seed: int) -> Graph:
    """Depthwise layers on a tall image, between layers that take few channels to many and back."""
    net = Net(np.random.default_rng(seed), "tflite" if seed % 2 else "onnx")
    channels, pad = int(net.pick(8, 12)), int(net.pick(0, 1))
    shape = (1, int(net.rng.integers(18, 30)), int(net.rng.integers(6, 12)), 2)
    x = first = net.keep(Tensor("x", shape, "int8", net.quant(0.02)))
    plain = {"stride": (1, 1), "dilation": (1, 1)}
    for layer in range(4):
        results = 2 if layer == 3 else channels
        x = net.products("conv2d", x, (results, 1, 1, x.shape[3]), pad=(0, 0, 0, 0), **plain)
        if layer < 3:
            x = net.products("depthwise_conv2d", x, (1, 3, 2, channels), 3, pad=(pad, 0, pad, 1), **plain)
    return Graph("tower", tuple(net.ops), net.tensors, (first.name,), (x.name,), net.arithmetic)


@pytest.mark.slow
@pytest.mark.needs(*NEEDS)
def test_rows_of_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Depthwise layers fed from rings, with rows outside of the image and without; rings with a separate row."""
    monkeypatch.setattr(kernels, "by_cost", preferring("mve rows of words"))
    graphs = [random_net(seed, ("depthwise_conv2d", "conv2d", "depthwise_conv2d"), 3) for seed in range(1400, 1440)]
    graphs += [tower(seed) for seed in range(16)]
    seen = Counter[tuple[bool, bool, bool]]()
    for graph in graphs:
        rolled = plan(graph, load_target(TARGET), ModelRequest(Path("x"), "x", TARGET, tile="rolling"))
        forms = [each for s in rolled.steps if s.rolled for each in zip(s.ops, s.forms, strict=True)]
        chosen = [(kernel_of(op, graph, form), form) for op, form in forms]
        words = [(k.shape, form) for k, form in chosen if k.variant == "mve rows of words"]
        seen.update((bool(shape["outside"]), any(f.rings or ()), any(f.separate)) for shape, f in words)
    assert len(seen) > 4, seen
    check(TARGET, graphs, tmp_path, tile="rolling")
