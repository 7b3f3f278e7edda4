"""A tile by itself is that part of the whole, for every operator that DMA units move, by the operators' meaning."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.model import ops
from edgebuild.model.compile import prepare
from edgebuild.model.ir import Array, Graph, Op
from edgebuild.model.plan.dma.levels import cut_axes
from edgebuild.model.plan.hierarchy.nest import Range
from edgebuild.model.plan.tiling.paths import graph_of_part, one_part
from tests.fuzz.networks import WRITERS
from tests.fuzz.recipe import Layer, Recipe

SEEDS = 2
FORMS = ("tflite", "tflite_float", "tflite_int16", "qdq", "float")


def graphs(form: str, folder: Path) -> Iterator[Graph]:
    """Networks of one operator each, as far as the fuzzer's input suits it."""
    for number, word in product(range(SEEDS), WRITERS[form].operators(form)):
        layers = Layer(0, "input", (), number), Layer(1, word, (0, 0), number)
        recipe = Recipe(form, number, layers)
        with suppress(EdgebuildError, ValueError):  # ValueError: the operator takes no such input
            (file := folder / f"network.{recipe.suffix}").write_bytes(WRITERS[form].write(recipe))
            yield prepare(file)


def tile(op: Op, graph: Graph, rng: Random) -> dict[str, Range]:
    """A drawn part of the axes that may be cut."""
    extents, ranges = ops.nest(op, graph).extents, dict[str, Range]()
    for axis in cut_axes(ops.nest(op, graph)):
        first = rng.randrange(extents[axis])
        ranges[axis] = first, rng.randint(first + 1, extents[axis])
    return ranges


def values(op: Op, graph: Graph, rng: np.random.Generator) -> list[Array]:
    """The constants, and numbers for what the op reads besides."""
    return [
        t.data if t.data is not None
        else rng.uniform(0.5, 4, t.shape).astype(t.dtype) if np.dtype(t.dtype).kind == "f"
        else rng.integers(0, 2 if t.dtype == "bool" else 100, t.shape).astype(t.dtype)
        for t in graph.operands(op)
    ]  # fmt: skip


def check(op: Op, graph: Graph, seed: int) -> None:
    turn = tile(op, graph, Random(seed))
    spec, given = ops.SPECS[op.kind], values(op, graph, np.random.default_rng(seed))
    part, small = graph_of_part(op, graph, turn)
    _, reads, written = one_part(graph, op, turn)
    out, *wanted = (tuple(slice(*r) for r in ranges) for ranges in (written, *reads))
    whole = spec.reference(op, graph, *given)
    mine = spec.reference(part, small, *(x[w] for x, w in zip(given, wanted, strict=True)))
    assert mine.shape == whole[out].shape, f"{op.kind} {turn}"
    np.testing.assert_allclose(mine, whole[out], rtol=1e-5, err_msg=f"{op.kind} {turn}")
    assert not [limit for limit in spec.limits if limit(part, small)], f"{op.kind} {turn}"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("form", FORMS)
def test_tiles_are_parts_of_the_whole(form: str, tmp_path: Path) -> None:
    seen = set()
    for number, graph in enumerate(graphs(form, tmp_path)):
        for op in graph.ops:
            if not ops.SPECS[op.kind].view and cut_axes(ops.nest(op, graph)):
                check(op, graph, number)
                seen.add(op.kind)
    assert len(seen) > 8
