"""Every variant of the kernels against the numpy meaning, bit by bit, on the processors that it was made for.

Shapes, strides, paddings, channel remainders, zero points and multipliers are random, extremes included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from math import log2
from pathlib import Path

import pytest

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model import kernels, ops
from edgebuild.model.ir import Array, Graph, Tensor, elementwise
from edgebuild.model.kernels import kernel_of
from edgebuild.model.kernels.blocks import elements
from edgebuild.model.ops.base import Form, Kernel
from edgebuild.model.plan.choose import plan
from edgebuild.model.plan.search import form_of
from tests.conftest import by_day
from tests.graphs import examples, random_inputs, single_ops, small_graphs, thrown
from tests.kernels.processor import run_on, run_plans
from tests.ops.test_host import compare

VECTORS = 3
KINDS = {"conv2d": 24, "depthwise_conv2d": 24, "dense": 16, "avg_pool2d": 8, "add": 8, "softmax": 4}
TARGETS = ("mps2-an385", "mps2-an386", "mps2-an500", "mps3-an547", "riscv-virt")
SUMS = ("conv2d", "depthwise_conv2d")
VARIANTS = {  # of sums, which networks that are rolled must have among theirs
    "mps2-an385": ("pairs, 4 pixels", "plane, 5 outputs"),
    "m4-flash-model": ("dsp 4 pixels", "dsp 2 pixels", "dsp 2 pixels, packed taps", "dsp 2 pixels, int8", "dsp 1 pixel",
                       "dsp taps", "dsp 1 pixel, row pointers", "dsp taps in registers", "dsp plane"),
    "mps3-an547": ("mve columns", "mve direct", "mve plane"),
    "riscv-virt": ("4 pixels x 4 channels", "plane, 5 outputs", "pairs, 6 pixels"),
}  # fmt: skip
PARTS = 4
TOGETHER = {"microbit": 24}  # models that fit into its memory
NEEDS = ("qemu-system-arm", "qemu-system-riscv32", "arm-none-eabi-gcc", "riscv64-unknown-elf-gcc")


@cache
def drawn_ops(kind: str, count: int) -> tuple[Graph, ...]:
    return tuple(examples(single_ops(kind), count))


@cache
def drawn_networks(count: int) -> tuple[Graph, ...]:
    return tuple(examples(small_graphs(), count))


def integer(kind: str, count: int) -> list[Graph]:
    """Copies, for a graph keeps the kernels that were chosen for it."""
    layers = [g for g in drawn_ops(kind, 3 * count) if g.result(g.ops[0]).dtype == "int8"]
    return [replace(g) for g in layers[:count]]


def halves(graph: Graph) -> Graph:
    """The network with powers of two as scales: its results are often halfway between two steps."""

    def power(tensor: Tensor) -> Tensor:
        if tensor.quant is None:
            return tensor
        return replace(
            tensor, quant=replace(tensor.quant, scale=tuple(2.0 ** round(log2(s)) for s in tensor.quant.scale))
        )

    return replace(graph, tensors={name: power(tensor) for name, tensor in graph.tensors.items()})


def check(target: str, graphs: list[Graph], folder: Path, **options: str) -> None:
    """Outputs on random inputs are those of the references; one graph in four has powers of two as scales.

    By day, each second graph.
    """
    graphs = by_day(halves(graph) if at % 4 == 2 else graph for at, graph in enumerate(graphs))
    inputs = [random_inputs(graph, VECTORS, seed) for seed, graph in enumerate(graphs)]
    results = run_on(load_target(target), graphs, inputs, folder, **options)
    for graph, vectors, rows in zip(graphs, inputs, results, strict=True):
        for vector, row in zip(vectors, rows, strict=True):
            compare(graph, vector, row)


@pytest.mark.one_in(6)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", TARGETS)
def test_single_ops(target: str, tmp_path: Path) -> None:
    check(target, [g for kind, count in KINDS.items() for g in integer(kind, count)], tmp_path)


@pytest.mark.needs(*NEEDS)
def test_pools_of_the_dsp_extension(tmp_path: Path) -> None:
    """Four channels at a time: means and maxima, also under padding."""
    form = form_of(load_target("mps2-an386"))
    graphs = [g for kind in ("avg_pool2d", "max_pool2d") for g in integer(kind, 200)]
    chosen = [g for g in graphs if kernel_of(g.ops[0], g, form).variant == "dsp four at once"]
    assert all(sum(g.ops[0].kind == kind for g in chosen) >= 5 for kind in ("avg_pool2d", "max_pool2d")), len(chosen)
    check("mps2-an386", chosen[:40], tmp_path)


@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", ["microbit", "mps2-an386", "riscv-virt"])
def test_rescaled_values_from_a_table(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of fewer elements than are worth it."""
    monkeypatch.setattr(elements, "MIN_ELEMENTS", 1)
    graphs, form = [g for kind in ("clamp", "requantize") for g in integer(kind, 16)], form_of(load_target(target))
    chosen = [g for g in graphs if kernel_of(g.ops[0], g, form).variant == "table"]
    assert len(chosen) >= 12, len(chosen)
    check(target, chosen, tmp_path)


@pytest.mark.needs(*NEEDS)
def test_svdf_of_the_dsp_extension(tmp_path: Path) -> None:
    """int16 states: features four at a time, times two at a time."""
    form = form_of(load_target("mps2-an386"))
    graphs = [g for kind in ("svdf_state", "svdf") for g in thrown(kind, 600)]
    variants = {"svdf_state": "dsp four features", "svdf": "dsp two times"}
    chosen = [g for g in graphs if kernel_of(g.ops[0], g, form).variant == variants[g.ops[0].kind]]
    assert all(sum(g.ops[0].kind == kind for g in chosen) >= 16 for kind in variants), len(chosen)
    check("mps2-an386", chosen, tmp_path)


@pytest.mark.needs(*NEEDS)
def test_the_smallest_processor(tmp_path: Path) -> None:
    check("microbit", [g for kind in KINDS for g in integer(kind, 4)], tmp_path)


def preferring(variant: str) -> Callable[[list[Kernel], Form], list[Kernel]]:
    """Instead of the order by estimates: this variant first, wherever its conditions hold."""
    ordinary = kernels.by_cost
    return lambda possible, form: [k for k in possible if k.variant == variant] or ordinary(possible, form)


def variants_of(graph: Graph, form: Form) -> set[str]:
    """Names of the variants that serve an operator of the graph, the chosen ones and others."""
    chosen = [kernel_of(op, graph, form) for op in graph.ops if not ops.SPECS[op.kind].view]
    return {k.variant for kernel in chosen for k in (kernel, *kernel.alternatives)}


def check_each(
    target: str, chosen: Sequence[tuple[Graph, str]], folder: Path, monkeypatch: pytest.MonkeyPatch, tile: str
) -> None:
    """Each graph with the variant that is named beside it, as `check` does. One firmware has as many as fit."""
    chip, plans = load_target(target), []
    graphs = [halves(graph) if at % 4 == 3 else replace(graph) for at, (graph, _) in enumerate(chosen)]
    for at, (graph, (_, variant)) in enumerate(zip(graphs, chosen, strict=True)):
        with monkeypatch.context() as patched:
            patched.setattr(kernels, "by_cost", preferring(variant))
            plans.append(plan(graph, chip, ModelRequest(Path("x"), f"g{at}", target, tile=tile)))
    inputs = [random_inputs(graph, VECTORS, seed) for seed, graph in enumerate(graphs)]
    step, results = TOGETHER.get(target, len(plans)), list[list[list[Array]]]()
    for first in range(0, len(plans), step):
        (folder / str(first)).mkdir()
        part = slice(first, first + step)
        results += run_plans(chip, plans[part], inputs[part], folder / str(first))
    for graph, vectors, rows in zip(graphs, inputs, results, strict=True):
        for vector, row in zip(vectors, rows, strict=True):
            compare(graph, vector, row)


@pytest.mark.one_in(PARTS)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target, part", [(target, part) for target in VARIANTS for part in range(PARTS)])
def test_every_variant(target: str, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks, row by row as far as that saves memory, with each variant; each target's first part runs by day."""
    form, by_variant = form_of(load_target(target)), dict[str, list[Graph]]()
    for graph in map(replace, drawn_networks(250)):
        if "float32" not in {t.dtype for t in graph.tensors.values()}:
            for variant in sorted(variants_of(graph, form) - {"portable"}):
                by_variant.setdefault(variant, []).append(graph)
    assert not set(VARIANTS[target]) - set(by_variant), f"{target}: the drawn networks take {sorted(by_variant)}"
    chosen = [(graph, variant) for variant, graphs in by_variant.items() for graph in graphs[part::PARTS][:1]]
    check_each(target, chosen, tmp_path, monkeypatch, tile="rolling")


@pytest.mark.one_in(2)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", ["mps2-an386", "riscv-virt"])
def test_row_forms(target: str, tmp_path: Path) -> None:
    """Chains of ops, rolled: the same kernels fed from rings."""
    graphs = [g for g in examples(small_graphs(), 60) if all(t.dtype != "float32" for t in g.tensors.values())][:30]
    assert any(not elementwise(ops.nest(op, g), 0) for g in graphs for op in g.ops)
    check(target, graphs, tmp_path, tile="rolling")
