"""Estimates by which kernels are chosen: a table of all variants, so that none changes unseen.

Results do not depend on estimates, so no other test notices a wrong one; plans do. `bench-kernels` compares them with
what simulators count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.emit.call_loops import Letter, NumberNeeded
from edgebuild.model.ir import Array, Graph
from edgebuild.model.kernels import kernel_of, printed
from edgebuild.model.ops.base import Kernel
from edgebuild.model.plan.search import form_of
from tests.graphs import KINDS, thrown
from tests.graphs.single import WIDE, sum_graph
from tests.graphs.source import Dice

GOLDEN = Path(__file__).with_name("candidates.txt")
TARGETS = ("microbit", "mps2-an385", "mps2-an386", "m4-flash-model", "mps2-an500", "mps3-an547", "riscv-virt")
# rows, columns, channels, channels of the result, window, stride, padding, groups
CONVOLUTIONS = [
    (8, 8, 3, 8, (3, 3), 1, 1, 1), (8, 8, 8, 16, (1, 1), 1, 0, 1), (7, 6, 16, 12, (3, 3), 2, 1, 1),
    (10, 12, 1, 8, (4, 3), 2, 1, 1), (1, 1, 32, 10, (1, 1), 1, 0, 1), (9, 9, 1, 5, (5, 5), 1, 2, 1),
    (6, 6, 12, 8, (3, 3), 1, 1, 2), (12, 12, 16, 16, (3, 3), 1, 1, 1), (16, 16, 32, 32, (3, 3), 1, 1, 1),
    (16, 12, 1, 8, (3, 3), 2, 1, 1), (6, 7, 13, 7, (3, 2), 1, 0, 1),
]  # fmt: skip
DEPTHWISE = [
    (8, 8, 8, 8, (3, 3), 1, 1), (9, 7, 16, 16, (3, 3), 2, 1), (8, 8, 4, 4, (5, 5), 1, 2), (10, 1, 12, 12, (3, 1), 1, 0),
    (6, 6, 5, 10, (3, 3), 1, 1), (12, 12, 24, 24, (3, 3), 1, 1), (9, 1, 16, 16, (9, 1), 1, 0),
    (1, 7, 8, 8, (1, 5), 1, 0),
]  # fmt: skip
DENSE = [(1, 64, 10), (3, 33, 7), (1, 256, 32), (4, 16, 16)]
DRAWN = dict.fromkeys(WIDE, 20) | {
    "conv2d": 160,
    "mul": 120,
    "add": 60,
    "svdf": 60,
    "svdf_state": 60,
    "batch_matmul": 60,
}
TYPES = (("tflite", False), ("onnx", False), ("tflite", True), ("tflite", False, "int16"))


def layers() -> Iterator[Graph]:
    """Of sizes as networks have them, and small ones of every kind."""
    for number, form in enumerate(TYPES):
        s = Dice(None, np.random.default_rng(number), *form)  # type: ignore[arg-type]
        for h, w, c, k, taps, stride, pad, groups in CONVOLUTIONS:
            attrs = {"stride": (stride, stride), "dilation": (1, 1), "pad": (pad,) * 4, "groups": groups}
            x, weights = s.tensor("x", (1, h, w, c), s.quant()), s.weights("w", (k, *taps, c // groups), 0)
            yield sum_graph(s, "conv2d", x, weights, k, prod(taps) * c // groups, **attrs)
        for h, w, c, k, taps, stride, pad in DEPTHWISE:
            attrs = {"stride": (stride, stride), "dilation": (1, 1), "pad": (pad,) * 4}
            x, weights = s.tensor("x", (1, h, w, c), s.quant()), s.weights("w", (1, *taps, k), 3)
            yield sum_graph(s, "depthwise_conv2d", x, weights, k, prod(taps), **attrs)
        for n, c, k in DENSE:
            yield sum_graph(s, "dense", s.tensor("x", (n, c), s.quant()), s.weights("w", (k, c), 0), k, c)
    for kind in KINDS:
        yield from thrown(kind, DRAWN.get(kind, 6))


def shown() -> list[Graph]:
    """Those of one op that computes."""
    return [g for g in layers() if len(g.ops) == 1 and not ops.SPECS[g.ops[0].kind].view]


@pytest.fixture(scope="module")
def graphs() -> list[Graph]:
    return shown()


def table(target: str, graphs: list[Graph]) -> list[str]:
    """A line for each variant: of how many layers it is the kernel, and for how many it would do.

    Then sums over these: thousands of instructions, as many times the pace, bytes of scratch, and the fields of
    `Traffic`.
    """
    form, sums = form_of(load_target(target)), dict[tuple[str, str], Array]()
    for graph in graphs:
        (op,) = graph.ops
        first = kernel_of(op, graph, form)
        for kernel in (first, *first.alternatives):
            row = kernel is first, 1, kernel.estimate / 1e3, kernel.cost / 1e3, kernel.scratch, *astuple(kernel.traffic)
            key = op.kind, kernel.variant
            sums[key] = sums.get(key, 0) + np.array(row, float)
    return [" | ".join((f"{target} {kind}", variant, " ".join(f"{x:.6g}" for x in row)))
            for (kind, variant), row in sorted(sums.items())]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_candidates(target: str, graphs: list[Graph]) -> None:
    """After a change of an estimate that is meant: python -m tests.kernels.test_candidates"""
    want = [line for line in GOLDEN.read_text().splitlines() if line.startswith(f"{target} ")]
    have = table(target, graphs)
    assert have == want, "python -m tests.kernels.test_candidates writes tests/kernels/candidates.txt anew"


@pytest.mark.parametrize("target", ["mps2-an386", "mps3-an547"])
def test_sizes_of_copies_are_unsigned(target: str, graphs: list[Graph]) -> None:
    """Any number of a kernel may become a parameter of a function that ops share. Parameters are signed."""
    form, sizes, kernels = form_of(load_target(target)), set[str](), dict[str, Kernel]()
    for graph in (*graphs, *thrown("take", 12)):
        first = kernel_of(graph.ops[0], graph, form)
        for kernel in (first, *first.alternatives):
            kernels[re.sub(r"\d+", "", printed(kernel, "", "", "", "")[0])] = kernel
    for text, kernel in kernels.items():
        keys = kernel.shape if "memcpy" in text else {"tail"} & kernel.shape.keys()
        for key, n in ((key, n) for key in keys if type(n := kernel.shape[key]) is int):
            letter: Any = Letter(key.upper(), (n or 1, n + 2), frozenset({key}))
            with suppress(NumberNeeded):
                c, _ = printed(replace(kernel, shape={**kernel.shape, key: letter}), "", "", "", "")
                sizes |= {size for size in re.findall(r"memcpy\(.*, (.*)\);", c) if not size.isdigit()}
    assert {"(uint32_t)RUN", "(uint32_t)ROW_BYTES"} < sizes
    assert {size for size in sizes if not size.startswith("(uint32_t)")} == set()


if __name__ == "__main__":
    drawn = shown()
    GOLDEN.write_text("\n".join(line for target in TARGETS for line in table(target, drawn)) + "\n")


def test_an_op_that_is_not_of_the_graph_has_a_kernel_of_its_own() -> None:
    """A graph keeps the kernels of its own ops alone: parts of an op have its result, and other attributes."""
    graph, form = replace(thrown("conv2d", 4)[3]), form_of(load_target("mps2-an386"))
    (op,) = graph.ops
    own = kernel_of(op, graph, form)
    part = replace(op, attrs={**op.attrs, "clamp": (0.0, 100.0)})
    assert kernel_of(part, graph, form).scalars != own.scalars
    assert kernel_of(op, graph, form) is own
