"""Rounding of sums whose terms cancel: as much as that of their terms. What a nudge turned is none of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgebuild.model.compile import prepare
from edgebuild.model.ir import Graph
from edgebuild.model.verify.cancelling import bounds
from edgebuild.model.verify.rounding import MOST, limit
from tests.exporters.writer import Net

ROUNDING = 2.0**-24


def graph_of(net: Net, folder: Path, y: str) -> Graph:
    onnx.save(net.done(y), folder / "m.onnx")
    return prepare(folder / "m.onnx")


def kernel_regression(folder: Path, size: float) -> Graph:
    """Exponentials of distances, weighted by numbers of which one half takes the other's back."""
    net = Net("{kind}_{number}", 17)
    near = net.op("Exp", net.op("Neg", net.op("Mul", x := net.input("x", (1, 8)), x)))
    weights = np.repeat(np.float32(size) * np.array([1.0, -1.0], np.float32), 4).reshape(8, 1)
    return graph_of(net, folder, net.op("Add", net.op("MatMul", near, net.stored(weights)), net.stored(0.25)))


@pytest.mark.parametrize("size", [1e4, 1e7])
def test_a_sum_that_cancels_is_as_uncertain_as_its_terms(size: float, tmp_path: Path) -> None:
    graph, value = kernel_regression(tmp_path, size), np.linspace(0.3, 0.3001, 8, dtype=np.float32)[None]
    found = bounds(graph, [[value]])[graph.outputs[0]]
    assert 8 * size * ROUNDING <= found <= 8 * size * MOST
    y, far = np.ones((1, 1), np.float32), size * ROUNDING
    assert limit(y, far) <= MOST and limit(y, far, found) == far


def test_what_a_nudge_turns_is_no_rounding(tmp_path: Path) -> None:
    net = Net("{kind}_{number}", 17)
    above = net.op("Greater", net.input("x", (1, 8)), net.stored(np.full((1, 8), 0.5, np.float32)))
    graph = graph_of(net, tmp_path, net.op("Where", above, net.stored(100.0), net.stored(-100.0)))
    value = np.full((1, 8), 0.5, np.float32)
    assert bounds(graph, [[value]])[graph.outputs[0]] == pytest.approx(MOST * 100)
