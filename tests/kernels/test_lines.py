"""Depthwise convolutions of 3x3 in lines of a plane: rows or columns, even and odd, all ways in which sums end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.target import load_target
from edgebuild.model import kernels, ops
from edgebuild.model.ir import Graph
from edgebuild.model.kernels import kernel_of
from edgebuild.model.plan.search import form_of
from tests.kernels.test_gathered import TARGET, Wide
from tests.kernels.test_processors import NEEDS, check, preferring


def network(seed: int) -> Graph:
    net = Wide(np.random.default_rng(seed), "tflite" if seed % 2 else "onnx")
    x = net.start()
    pad = tuple(int(max(n, 2 - size // 2)) for n, size in zip(net.rng.integers(0, 3, 4), x.shape[1:3] * 2, strict=True))
    y = net.summed("depthwise_conv2d", x, x.shape[3], (3, 3), stride=(1, 1), dilation=(1, 1), pad=pad)
    return Graph("random", tuple(net.ops), net.tensors, ("x",), (y.name,), net.arithmetic)


@pytest.mark.needs(*NEEDS)
def test_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever its conditions hold, also where other kernels are estimated to be faster."""
    monkeypatch.setattr(kernels, "by_cost", preferring("dsp lines"))
    form = form_of(load_target(TARGET))
    graphs = [network(seed) for seed in range(80)]
    found = [(g, kernel_of(g.ops[0], g, form)) for g in graphs]
    taken = [(g, k) for g, k in found if k.variant == "dsp lines"]
    finishes = Counter(s.finish for g, _ in taken if (s := ops.SPECS[g.ops[0].kind].sums(g.ops[0], g)) is not None)
    assert len(taken) > 40 and len(finishes) == 6, finishes
    assert {(k.shape["upright"], k.shape["odd"]) for _, k in taken} == {(a, b) for a in (0, 1) for b in (0, 1)}
    check(TARGET, [g for g, _ in taken], tmp_path)
