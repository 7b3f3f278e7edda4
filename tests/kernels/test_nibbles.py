"""Weights of four bits that kernels keep two a byte: bit by bit on the processors that they were made for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.target import load_target
from edgebuild.model import kernels
from edgebuild.model.ir import Array, Graph
from edgebuild.model.kernels import kernel_of
from edgebuild.model.ops.base import Form, Kernel
from edgebuild.model.plan.search import form_of
from tests.kernels.test_gathered import network
from tests.kernels.test_processors import NEEDS, check

SIZES = {"channels": (1, 3, 4, 5, 6, 8, 12, 31), "together": (1, 2, 3, 4, 5, 8)}
BITS = ((-8, 7), (-7, 7), (0, 7), (-8, -8))  # of weights: all that there are, as TFLite has them, and the ends


def narrowed(graph: Graph, number: int) -> Graph:
    """The network with weights of four bits; the ends of their range are among them."""
    low, high = BITS[number % len(BITS)]
    rng, tensors = np.random.default_rng(number), dict(graph.tensors)
    for op in graph.ops:
        w = tensors[op.inputs[1]]
        data: Array = rng.integers(low, high + 1, w.shape).astype(np.int8)
        tensors[w.name] = replace(w, data=data)
    return replace(graph, tensors=tensors)


def layers(count: int, channels: tuple[int, ...] = SIZES["channels"]) -> list[Graph]:
    together = SIZES["together"]
    return [
        narrowed(network(seed, kind, channels=channels, together=together), seed)
        for seed in range(count)
        for kind in ("conv2d", "dense")
    ]


DSP = ("dsp 1 pixel", "dsp 1 pixel, int16", "dsp 2 pixels", "dsp 2 pixels, packed taps")
CASES = [("mps2-an386", f"{variant}, 4-bit weights") for variant in DSP]
CASES += [(target, "") for target in ("microbit", "mps2-an385", "riscv-virt")]  # whatever keeps weights two a byte


@pytest.mark.one_in(3)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target, variant, tile", [(*case, tile) for case in CASES for tile in ("off", "rolling")])
def test_layers(target: str, variant: str, tile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary = kernels.by_cost

    def by_cost(candidates: list[Kernel], form: Form) -> list[Kernel]:
        return [k for k in candidates if k.shape.get("nibbles") and variant in ("", k.variant)] or ordinary(
            candidates, form
        )

    monkeypatch.setattr(kernels, "by_cost", by_cost)
    form, drawn = form_of(load_target(target)), layers(60, (1, 3, 5, 6)) if "taps" in variant else layers(30)
    drawn = [g for g in drawn if kernel_of(g.ops[0], g, form).shape.get("nibbles")]
    assert len(drawn) >= 8, len(drawn)
    check(target, drawn[:16], tmp_path, tile=tile)
