"""Random graphs through schedule, layout and code, and run: sharing memory changes no result."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.model.passes.canonicalize import canonicalize
from tests.graphs import examples, random_inputs, small_graphs
from tests.ops.host import run_on_host
from tests.ops.test_host import compare

GRAPHS, VECTORS = 40, 3


@pytest.mark.one_in(2)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("tile", ["off", "rolling"])
def test_plans_compute_what_the_graph_does(tile: str, tmp_path: Path) -> None:
    """Schedule and layout are checked in `plan` itself; the sanitizers and the comparison check the code."""
    graphs = [canonicalize(graph) for graph in examples(small_graphs(), GRAPHS)]
    inputs = [random_inputs(graph, VECTORS, seed) for seed, graph in enumerate(graphs)]
    results = run_on_host(graphs, inputs, tmp_path, tile=tile)
    for graph, vectors, rows in zip(graphs, inputs, results, strict=True):
        for vector, row in zip(vectors, rows, strict=True):
            compare(graph, vector, row)
