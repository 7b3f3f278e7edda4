"""Kernels that gcc, once it knows every argument, takes for functions without effect."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.ir import Graph, Op, Quant, Tensor
from tests.kernels.processor import run_on
from tests.kernels.test_processors import NEEDS

UNIT = Quant((0.05,), (3,))


def two_layers(rows: int, first: int, second: int, seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    weights = Quant((0.01,), (0,))
    tensors = {"x": Tensor("x", (rows, 1), "int8", UNIT)}
    nodes, taps = [], 1
    for name, k in (("h", first), ("y", second)):
        w = rng.integers(-127, 128, (k, taps)).astype(np.int8)
        b = rng.integers(-3000, 3000, k).astype(np.int32)
        tensors |= {
            f"{name}w": Tensor(f"{name}w", w.shape, "int8", weights, w),
            f"{name}b": Tensor(f"{name}b", b.shape, "int32", Quant((0.0005,), (0,)), b),
            name: Tensor(name, (rows, k), "int8", UNIT),
        }
        operand = "x" if name == "h" else "h"
        nodes.append(Op("dense", name, (operand, f"{name}w", f"{name}b"), (name,), {"clamp": (None, None)}))
        taps = k
    return Graph("", (), tensors, ("x",), ("y",), "onnx").with_ops(nodes)


@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", ["mps2-an385", "microbit", "riscv-virt"])
def test_no_call_is_dropped(target: str, tmp_path: Path) -> None:
    graphs = [
        two_layers(rows, 2, second, seed) for seed, (rows, second) in enumerate([(2, 17), (2, 9), (4, 17), (1, 33)])
    ]
    inputs = [
        [[np.random.default_rng(i).integers(-128, 128, (g.tensors["x"].shape)).astype(np.int8)]]
        for i, g in enumerate(graphs)
    ]
    for graph, vectors, rows in zip(graphs, inputs, run_on(load_target(target), graphs, inputs, tmp_path), strict=True):
        (y,) = rows[0]
        assert np.array_equal(y, ops.run(graph, *vectors[0])["y"])
