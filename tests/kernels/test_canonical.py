"""Images of one row or one column, which kernels see with fewer axes, and groups that they see as one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.ir import Graph, Tensor
from edgebuild.model.kernels import kernel_of
from edgebuild.model.kernels.row import by_channel, canonical, ungrouped
from edgebuild.model.passes.canonicalize import canonicalize, drop_taps, rewrite
from edgebuild.model.plan.search import form_of
from tests.graphs import random_inputs
from tests.kernels.test_gathered import Wide
from tests.kernels.test_processors import NEEDS, check
from tests.ops.test_host import compare


@dataclass
class Narrow(Wide):
    """Sizes of 1 are as frequent as others; windows reach over all of the image, and beyond."""

    def start(self) -> Tensor:
        size = self.pick((1, 7), (7, 1), (12, 1), (1, 1), (2, 3), (4, 4))
        return self.keep(Tensor("x", (1, *size, int(self.pick(1, 2, 6, 8))), self.integer, self.quant(0.02)))

    def around(self, x: Tensor, kind: str, k: int, groups: int) -> Tensor:
        taps, dilation = (tuple(int(n) for n in self.rng.integers(1, most, 2)) for most in (6, 3))
        reach = [(n - 1) * d for n, d in zip(taps, dilation, strict=True)]
        ends = [(r // 2, max(r - r // 2, r - r // 2 + 1 - n)) for r, n in zip(reach, x.shape[1:3], strict=True)]
        whole = bool(self.rng.integers(2)) and all(r < n for r, n in zip(reach, x.shape[1:3], strict=True))
        pad = (0, 0, 0, 0) if whole else (ends[0][0], ends[1][0], ends[0][1], ends[1][1])
        stride = self.pick((1, 1), (1, 1), (2, 2), (3, 2))
        more = {"groups": groups} if kind == "conv2d" else {}
        return self.summed(kind, x, k, (taps[0], taps[1]), dilation=dilation, stride=stride, pad=pad, **more)


def layer(seed: int, kind: str, integer: str = "int8") -> Graph:
    rng = np.random.default_rng(seed)
    net = Narrow(rng, str(rng.choice(["tflite", "onnx"])) if integer == "int8" else "tflite", integer=integer)
    x = net.start()
    groups = int(net.pick(*(g for g in (1, 1, 2) if x.shape[3] % g == 0))) if kind == "conv2d" else 1
    k = x.shape[3] if kind != "conv2d" else groups * int(net.pick(1, 3, 4, 8))
    y = net.around(x, kind, k, groups)
    return Graph("random", tuple(net.ops), net.tensors, ("x",), (y.name,), net.arithmetic)


def prepared(graph: Graph) -> Graph:
    """The graph in canonical form, without taps that always meet padding."""
    return rewrite(canonicalize(graph), (drop_taps,))


LAYERS = [(kind, integer, seed) for kind in ("conv2d", "depthwise_conv2d") for integer in ("int8", "int16")
          for seed in range(24 if integer == "int8" else 6)]  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", ["mps2-an386", "mps3-an547", "riscv-virt"])
def test_narrow_images(target: str, tmp_path: Path) -> None:
    graphs = [prepared(layer(seed, kind, integer)) for kind, integer, seed in LAYERS]
    changed = [g for g in graphs if canonical(g.ops[0], g, rolled=False)[0] is not g.ops[0]]
    assert len(changed) > len(graphs) // 4
    check(target, graphs, tmp_path)
    (tmp_path / "rows").mkdir()
    check(target, [replace(g) for g in graphs[::3]], tmp_path / "rows", tile="rolling")


def test_axes() -> None:
    """A column becomes a row; a window over all of the image becomes a sum over one pixel."""
    counts = Counter[str]()
    for kind, integer, seed in LAYERS:
        g = prepared(layer(seed, kind, integer))
        op, around = canonical(g.ops[0], g, rolled=False)
        _, height, width, _ = around.operands(op)[0].shape
        counts["row"] += (height, op is g.ops[0]) == (1, False) and width > 1
        counts["pixel"] += (height, width, op is g.ops[0]) == (1, 1, False)
        (x,) = random_inputs(g, 1, seed)[0]
        values = [t.data for t in around.operands(op)[1:]]
        spec, y = ops.SPECS[op.kind], g.result(g.ops[0])
        have = spec.reference(op, around, x.reshape(around.operands(op)[0].shape), *values)
        compare(g, [x], [have.reshape(y.shape)])
        for form in (ungrouped, by_channel):
            if (other := form(op, around)) is not None:
                counts[form.__name__] += 1
                values[0] = other[1].operands(other[0])[1].data
                one = ops.SPECS[other[0].kind].reference(*other, x.reshape(around.operands(op)[0].shape), *values)
                assert np.array_equal(one, have)
    assert min(counts[name] for name in ("row", "pixel", "ungrouped", "by_channel")) > 1, counts


def test_taps_in_padding() -> None:
    """Of a window that reaches beyond the image for every output, what lies outside is dropped."""
    fewer = 0
    for kind, integer, seed in LAYERS:
        graph = layer(seed, kind, integer)
        small = prepared(graph)
        fewer += small.operands(small.ops[0])[1].elements < graph.operands(graph.ops[0])[1].elements
        inputs = random_inputs(graph, 1, seed)[0]
        have, want = (ops.run(g, *inputs)[g.outputs[0]] for g in (small, graph))
        assert np.array_equal(have, want)
    assert fewer > len(LAYERS) // 5, fewer


def test_groups_become_one_where_that_is_faster() -> None:
    form = form_of(load_target("mps3-an547"))
    graphs = [layer(seed, "conv2d") for seed in range(60)]
    grouped = [kernel_of(g.ops[0], g, form).variant for g in graphs if g.ops[0].attrs["groups"] > 1]
    assert len({variant == "mve gathered taps" for variant in grouped}) == 2, grouped
