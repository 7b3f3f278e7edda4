"""Kernels of the DSP extension for depthwise windows whose weights stay in registers, and for products of elements."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.target import load_target
from edgebuild.model import kernels, ops
from edgebuild.model.ir import Graph, Tensor
from edgebuild.model.kernels import kernel_of
from edgebuild.model.kernels.arm_dsp.plane_words import Words
from edgebuild.model.plan.search import form_of
from tests.kernels.test_gathered import TARGET, Wide
from tests.kernels.test_processors import NEEDS, check, preferring
from tests.kernels.test_vectors import Net

WAITS = "m4-flash-model"


def network(seed: int) -> Graph:
    net = Wide(np.random.default_rng(seed), "tflite" if seed % 2 else "onnx")
    x = net.start()
    pad = tuple(int(max(n, 2 - size // 2)) for n, size in zip(net.rng.integers(0, 3, 4), x.shape[1:3] * 2, strict=True))
    y = net.summed("depthwise_conv2d", x, x.shape[3], (3, 3), stride=(1, 1), dilation=(1, 1), pad=pad)
    return Graph("random", tuple(net.ops), net.tensors, ("x",), (y.name,), net.arithmetic)


def strided(seed: int, layers: int) -> Graph:
    """Depthwise layers in a row, with any stride, so that lines end anywhere in fours and are long enough for loops."""
    net = Wide(np.random.default_rng(seed), "tflite" if seed % 2 else "onnx")
    shape = (1, *(int(net.pick(2, 3, 5, 8, 9, 12, 17, 31, 46)) for _ in range(2)), int(net.pick(1, 3, 8, 300)))
    x = net.keep(Tensor("x", shape, "int8", net.quant(0.02)))
    y = x
    for _ in range(layers):
        pad = tuple(
            int(max(n, 2 - size // 2)) for n, size in zip(net.rng.integers(0, 3, 4), (*y.shape[1:3],) * 2, strict=True)
        )
        stride = net.pick((1, 1), (2, 2), (1, 2), (2, 1))
        k = int(net.pick(1, 2, 7)) if y.shape[3] == 1 else y.shape[3]
        y = net.summed("depthwise_conv2d", y, k, (3, 3), stride=stride, dilation=(1, 1), pad=pad)
    return Graph("random", tuple(net.ops), net.tensors, ("x",), (y.name,), net.arithmetic)


@pytest.mark.one_in(2)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("tile", ["off", "rolling"])
def test_weights_in_registers(tile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, along rows and along columns, and row by row."""
    monkeypatch.setattr(kernels, "by_cost", preferring("dsp plane"))
    form = form_of(load_target(TARGET))
    graphs = [strided(seed, 1 if tile == "off" else 3) for seed in range(60)]
    chosen = [(g, kernel_of(g.ops[0], g, form)) for g in graphs]
    planes = [(g, k.shape["function"].plane) for g, k in chosen if k.variant == "dsp plane"]  # type: ignore[union-attr]
    held = [(g, p) for g, p in planes if Words(p).held]
    sums = [s for g, _ in held if (s := ops.SPECS[g.ops[0].kind].sums(g.ops[0], g)) is not None]
    assert len(held) > 25 and len({s.finish for s in sums}) == 6
    assert {(p.run.step_y >= p.lines.step_y, s.stride) for s, (_, p) in zip(sums, held, strict=True)} == set(
        product((False, True), product((1, 2), (1, 2)))
    )
    assert {p.times > 1 for _, p in held} == {False, True}
    check(TARGET, [g for g, _ in held], tmp_path, tile=tile)


def eights(seed: int) -> Graph:
    """A dense layer of as many channels as eights make, with any number of fours of taps."""
    net = Wide(np.random.default_rng(seed), "tflite" if seed % 2 else "onnx")
    shape = (1, 4 * int(net.pick(1, 2, 3, 4, 5, 6, 7, 40)))
    x = net.keep(Tensor("x", shape, "int8", net.quant(0.02)))
    y = net.summed("dense", x, int(net.pick(8, 16, 72)), ())
    return Graph("random", tuple(net.ops), net.tensors, ("x",), (y.name,), net.arithmetic)


@pytest.mark.needs(*NEEDS)
def test_eight_channels(tmp_path: Path) -> None:
    form = form_of(load_target(WAITS))
    eight = [g for g in map(eights, range(80)) if kernel_of(g.ops[0], g, form).variant == "dsp 8 channels"]
    sums = [s for g in eight if (s := ops.SPECS[g.ops[0].kind].sums(g.ops[0], g)) is not None]
    assert len(eight) > 40 and len({s.finish for s in sums}) == 6 and len({s.size[2] // 4 % 4 for s in sums}) == 4
    check(WAITS, eight, tmp_path)


def product_of_two(seed: int) -> Graph:
    """Scales whose products often lie halfway between two results, flat and with broadcasting."""
    net = Net(np.random.default_rng(seed), "tflite")
    shapes = [(1, 6, 5, 7), net.pick((1, 6, 5, 7), (1, 1, 1, 7), (1, 6, 1, 1))]
    scale = float(net.pick(0.5, 0.25, 0.05))
    x, w = (net.keep(Tensor(n, s, "int8", net.quant(scale))) for n, s in zip("xw", shapes, strict=True))
    factor = float(net.pick(0.3, 0.32, 0.375, 0.4, 0.02))
    y = net.add("mul", [x, w], net.quant(scale * scale / factor), clamp=(None, None))
    return Graph("random", tuple(net.ops), net.tensors, ("x", "w"), (y.name,), "tflite")


def repeated_operand(seed: int) -> Graph:
    """A sum or a product that takes an operand, the first or the second, again for rows or for neighbours."""
    net = Net(np.random.default_rng(seed), "onnx")
    whole = (1, 6, 5, int(net.pick(7, 8, 12, 21)))
    part = net.pick((1, 1, 1, whole[3]), (1, 6, 1, 1), (1, 6, 5, 1), (1, 1, 5, whole[3]))
    shapes = [whole, part][:: 1 if seed % 2 else -1]
    x, w = (net.keep(Tensor(n, s, "int8", net.quant(0.03))) for n, s in zip("xw", shapes, strict=True))
    clamp = net.pick((None, None), (-1.0, 2.0))
    y = net.add(str(net.pick("add", "mul")), [x, w], net.quant(0.05), clamp=clamp)
    return Graph("random", tuple(net.ops), net.tensors, ("x", "w"), (y.name,), "onnx")


@pytest.mark.needs(*NEEDS)
def test_vectors_of_repeated_operands(tmp_path: Path) -> None:
    form = form_of(load_target("mps3-an547"))
    graphs = [repeated_operand(seed) for seed in range(32)]
    kernels = [kernel_of(g.ops[0], g, form) for g in graphs]
    chosen = [g for g, k in zip(graphs, kernels, strict=True) if k.variant == "mve"]
    assert {k.shape["repeated"] for k in kernels if k.variant == "mve"} == {
        (False, False),
        (True, False),
        (False, True),
    }
    assert {g.ops[0].kind for g in chosen} == {"add", "mul"}
    check("mps3-an547", chosen, tmp_path)


@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize(
    "target, variant",
    [(TARGET, "dsp products"), ("mps3-an547", "mve"), ("microbit", "linear"), ("riscv-virt", "linear")],
)
def test_products(target: str, variant: str, tmp_path: Path) -> None:
    """Those that are rounded twice: halves of negative ones, too, go away from zero."""
    form = form_of(load_target(target))
    graphs = [product_of_two(seed) for seed in range(24)]
    chosen = [g for g in graphs if (k := kernel_of(g.ops[0], g, form)).variant == variant and k.shape["below"]]
    assert len(chosen) > 5 and len({g.tensors["w"].shape for g in chosen}) == 3, len(chosen)
    check(target, chosen, tmp_path)
