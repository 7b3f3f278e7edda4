"""Scales that are powers of two: results stay near those of the file, whatever constants its layers have."""

from __future__ import annotations

import numpy as np
import pytest

from edgebuild.model import ops
from edgebuild.model.ir import Array, Graph, Op, Quant, Tensor, reals_of, verify
from edgebuild.model.ops.base import quant_of
from edgebuild.model.passes.powers import powers_of_two

RNG = np.random.default_rng(4)
SCALE, STEP = 0.03, 0.0021  # of activations and of weights


def tensor(name: str, shape: tuple[int, ...], scale: float, zero: int = 0, data: Array | None = None) -> Tensor:
    return Tensor(name, shape, str(data.dtype) if data is not None else "int8", Quant((scale,), (zero,)), data)


def network(kind: str) -> Graph:
    """Two dense layers, one behind the other, with the same weights and bias; their inputs get different scales."""
    low, high, dtype = (-255, 256, np.int16) if kind == "int16" else (-127, 128, np.int8)
    w: Array = RNG.integers(low, high, (8, 8)).astype(dtype)
    b: Array = RNG.integers(-9000, 9000, 8).astype(np.int32)
    tensors = [
        tensor("x", (1, 8), SCALE, 60), tensor("y", (1, 8), SCALE, -128), tensor("z", (1, 8), 0.05, 3),
        tensor("w", (8, 8), STEP, 0, None if kind == "computed" else w), tensor("b", (8,), SCALE * STEP, 0, b),
    ]  # fmt: skip
    layers = [
        Op("dense", f"to {y}", (x, "w", "b"), (y,), {"clamp": bounds})
        for x, y, bounds in (("x", "y", (0.0, None)), ("y", "z", (None, None)))
    ]
    inputs = ("x", "w") if kind == "computed" else ("x",)
    return Graph("powers", tuple(layers), {t.name: t for t in tensors}, inputs, ("y", "z"))


@pytest.mark.parametrize("kind", ["int8", "int16", "computed"])
def test_results_stay_near(kind: str) -> None:
    """`int16`: weights of a file that have a zero point."""
    graph = network(kind)
    powers = powers_of_two(graph)
    verify(powers, ops.result_shape)
    for _ in range(20):
        real = {"x": RNG.uniform(-5, 2, (1, 8)), "w": RNG.uniform(-0.26, 0.26, (8, 8))}
        results = []
        for g in (graph, powers):
            stored = []
            for name in g.inputs:
                q = quant_of(g.tensors[name])
                stored.append(np.clip(np.rint(real[name] / q.scale[0]) + q.zero_point[0], -128, 127).astype(np.int8))
            values = ops.run(g, *stored)
            results.append([reals_of(values[name], g.tensors[name]) for name in g.outputs])
        for file, near in zip(*results, strict=True):
            assert np.abs(file - near).max() < 0.25, kind
