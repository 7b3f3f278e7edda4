"""Depthwise layers of any window through planes, on every instruction set: results, and the count of instructions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import kernels, ops
from edgebuild.model.compile import compile_model, plan_model
from edgebuild.model.ir import Graph, Tensor
from edgebuild.model.kernels import kernel_of, printed
from edgebuild.model.plan.search import form_of
from edgebuild.model.verify import verify
from tests.kernels.test_gathered import Wide
from tests.kernels.test_processors import NEEDS, check, preferring
from tests.layer_models import depthwise

VARIANTS = {
    "microbit": "plane, 3 outputs", "mps2-an385": "plane, 4 outputs", "mps2-an386": "dsp plane",
    "mps3-an547": "mve plane", "riscv-virt": "plane, 3 outputs",
}  # fmt: skip
COUNT = 10  # networks for each processor; more do not fit the smallest


def layer(net: Wide, x: Tensor, most: int) -> Tensor:
    """Windows reach over images, and lines end anywhere in blocks."""
    taps = tuple(int(n) for n in net.rng.integers(1, 10, 2))
    dilation = net.pick((1, 1), (1, 1), (2, 2), (1, 3), (4, 1), (2, 5))
    reach = tuple((t - 1) * d + 1 for t, d in zip(taps, dilation, strict=True))
    pad = tuple(int(net.rng.integers(0, 3)) + max(0, -(-(r - size) // 2)) for r, size in
                zip(reach * 2, (*x.shape[1:3],) * 2, strict=True))  # fmt: skip
    attrs: dict[str, Any] = {"stride": tuple(int(n) for n in net.rng.integers(1, 4, 2)), "dilation": dilation}
    if x.shape[3] == 1 and net.rng.integers(2):
        return net.summed("conv2d", x, int(net.pick(1, 2, 3, 6)), taps, pad=pad, groups=1, **attrs)
    return net.summed("depthwise_conv2d", x, x.shape[3] * int(net.pick(1, 1, most)), taps, pad=pad, **attrs)


def network(seed: int, layers: int) -> Graph:
    net = Wide(np.random.default_rng(seed), "tflite" if seed % 2 else "onnx")
    size = (int(net.pick(1, 2, 5, 8, 13, 24)) for _ in range(2))
    y = net.keep(Tensor("x", (1, *size, int(net.pick(1, 2, 3, 5, 9))), "int8", net.quant(0.02)))
    for _ in range(layers):
        y = layer(net, y, 2)
    return Graph("random", tuple(net.ops), net.tensors, ("x",), (y.name,), net.arithmetic)


def drawn(target: str, count: int, layers: int = 1) -> list[Graph]:
    """Networks whose layers all go through planes."""
    form, layered = form_of(load_target(target)), []
    for graph in (network(seed, layers) for seed in range(8 * count)):
        variants = [kernel_of(op, graph, form).variant for op in graph.ops]
        if variants == [VARIANTS[target]] * layers and len(layered) < count:
            layered.append(graph)
    assert len(layered) == count, len(layered)
    return layered


@pytest.mark.one_in(6)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("tile", ["off", "rolling"])
@pytest.mark.parametrize("target", VARIANTS)
def test_any_window(target: str, tile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "by_cost", preferring(VARIANTS[target]))
    graphs = drawn(target, COUNT, 1 if tile == "off" else 2)
    if tile == "off":
        windows = {s.window for g in graphs if (s := ops.SPECS[g.ops[0].kind].sums(g.ops[0], g)) is not None}
        assert len(windows) > COUNT // 2
    check(target, graphs, tmp_path, tile=tile)


@pytest.mark.parametrize("target, most", [("mps2-an386", 4095), ("mps2-an385", 4095), ("riscv-virt", 2047)])
def test_offsets_are_within_reach(target: str, most: int, tmp_path: Path) -> None:
    """Of loads from long lines, whose rows lie as far from one another as an instruction reaches."""
    chip, count = load_target(target), 0
    for columns in (1019, 1362, 2041, 2044, 4090):
        for window in ((2, 2), (3, 4), (4, 4)):
            (file := tmp_path / "model.tflite").write_bytes(depthwise(4, columns, 1, window, 1)())
            planned = plan_model(model_request(file, "model", target, {"tile": "off"}), chip)
            kernel = kernel_of(planned.steps[0].ops[0], planned.graph, planned.steps[0].forms[0])
            for k in (k for k in (kernel, *kernel.alternatives) if k.variant == VARIANTS[target]):
                text, _ = printed(k, "void f(x)", "int8_t", "int8_t", "int32_t")
                offsets = [int(n) for both in re.findall(r"#(-?\d+)\]|(-?\d+)\(", text) for n in both if n]
                assert max(offsets) <= most, (columns, window, max(offsets))
                count += 1
    assert count > 9


@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", VARIANTS)
def test_estimates_are_counted(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for bounds, which change results that depend on the input."""
    monkeypatch.setattr(kernels, "by_cost", preferring(VARIANTS[target]))
    (file := tmp_path / "model.tflite").write_bytes(depthwise(11, 14, 5, (7, 4), 2)())
    request, chip = model_request(file, "model", target, {"tile": "off"}), load_target(target)
    planned = plan_model(request, chip)
    (step,) = planned.steps
    kernel = kernel_of(step.ops[0], planned.graph, step.forms[0])
    assert kernel.variant == VARIANTS[target]
    counted = verify(file, chip, compile_model(request), by_layer=True)["layers"][0]["instructions"]
    assert abs(kernel.estimate / counted - 1) < 0.02, (kernel.estimate, counted)
