"""Graphs of parts compute what the whole ops do: every path that discovery finds, whether it saves memory or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgebuild.model import ops
from edgebuild.model.ir import Graph, Op, Tensor, dump, verify
from edgebuild.model.passes.canonicalize import canonicalize
from edgebuild.model.plan.tiling.paths import Estimate, Tiling, counts, overlap, part_ranges, paths, tiled
from tests.conftest import by_day
from tests.graphs import examples, random_inputs, small_graphs
from tests.ops.host import run_on_host
from tests.ops.test_host import compare

METHODS = frozenset(["fdt", "ffmt", "both"])
GRAPHS = len(by_day(range(60)))


def tilings(graph: Graph) -> list[Tiling]:
    """One number of parts for every path around every tensor; which one changes from path to path."""
    several = []
    for op in graph.ops:
        for path in paths(graph, op.outputs[0], METHODS):
            tried = list(counts(graph, path))
            tiling = Tiling(path, tried[len(several) % len(tried)])
            if part_ranges(graph, tiling) is not None:
                several.append(tiling)
    return several


def graphs() -> list[Graph]:
    return [canonicalize(graph) for graph in examples(small_graphs(), GRAPHS)]


def test_references_agree() -> None:
    """Well formed, the same result, and as many multiply-accumulates as estimated: int8 exactly, float to rounding."""
    seen = set()
    for seed, graph in enumerate(graphs()):
        (vector,) = random_inputs(graph, 1, seed)
        want = ops.run(graph, *vector)
        for tiling in tilings(graph):
            parts = tiled(graph, tiling)
            verify(parts, ops.result_shape)
            have = ops.run(parts, *vector)
            ranges = part_ranges(graph, tiling)
            assert ranges is not None
            extra = ops.macs(parts) - ops.macs(graph)
            assert extra == Estimate(graph, tiling, ranges).cost.extra_macs, dump(parts)
            seen.add((tiling.path.method, tiling.path.fan_in))
            for name in graph.outputs:
                if want[name].dtype.kind == "f":
                    largest = max(float(abs(v).max()) for v in want.values() if v.dtype.kind == "f" and v.size)
                    np.testing.assert_allclose(have[name], want[name], rtol=1e-5, atol=1e-5 * largest)
                else:
                    np.testing.assert_array_equal(have[name], want[name], err_msg=dump(parts))
    assert seen >= {("fdt", False), ("fdt", True), ("ffmt", False), ("both", False)}


def floats(shapes: dict[str, tuple[int, ...]], *nodes: Op) -> Graph:
    """A graph of ops from tensor `x` to the result of the last."""
    tensors = {name: Tensor(name, shape, "float32") for name, shape in shapes.items()}
    return Graph("float", nodes, tensors, ("x",), nodes[-1].outputs)


def test_a_line_of_a_softmax_is_not_cut() -> None:
    """Lines are cut from each other; every element of one needs all of it."""
    softmax = Op("softmax", "s", ("x",), ("p",), {"beta": 1.0})
    mean = Op("mean", "m", ("p",), ("y",), {"axes": (1,)})
    graph = floats({"x": (1, 2, 3, 4), "p": (1, 2, 3, 4), "y": (1, 3, 4)}, softmax, mean)
    several = tilings(graph)
    cut = [axis for t in several for axis in part_ranges(graph, t).axes[0]]  # type: ignore[union-attr]
    assert cut
    assert "i3" not in cut
    (vector,) = random_inputs(graph, 1)
    for tiling in several:
        parts = tiled(graph, tiling)
        np.testing.assert_allclose(ops.run(parts, *vector)["y"], ops.run(graph, *vector)["y"], rtol=1e-5)


def test_ops_of_a_path_may_have_other_numbers_of_dimensions() -> None:
    """Overlaps are looked for along the dimension that is cut, wherever each op has it."""
    shapes = {"x": (1, 6), "w": (8, 6), "d": (1, 8), "r": (1, 8), "v": (1, 1, 1, 8), "y": (1, 1, 1, 8)}
    dense = Op("dense", "d", ("x", "w"), ("d",), {"clamp": (None, None)})
    relu = Op("clamp", "r", ("d",), ("r",), {"clamp": (0.0, None)})
    view = Op("reshape", "v", ("r",), ("v",), {"shape": (1, 1, 1, 8)})
    last = Op("clamp", "y", ("v",), ("y",), {"clamp": (0.0, 6.0)})
    graph = floats(shapes, dense, relu, view, last)
    weights = Tensor("w", (8, 6), "float32", data=np.ones((8, 6), np.float32))
    graph = Graph("float", graph.ops, {**graph.tensors, "w": weights}, ("x",), ("y",))
    chains = [path for op in graph.ops for path in paths(graph, op.outputs[0], METHODS)]
    assert any(len(path.ops) == 4 for path in chains)
    assert not any(overlap(graph, path) for path in chains)


def test_ops_of_one_node_may_be_cut_alike() -> None:
    """A recurrent layer becomes several ops under its name; each path has parts of its operand of its own."""
    shapes = {"x": (2, 8)} | {f"{n}{i}": (2, size) for i in "ab" for n, size in (("r", 8), ("y", 3))}
    nodes, tensors = [], {name: Tensor(name, shape, "float32") for name, shape in shapes.items()}
    for i in "ab":
        nodes.append(Op("clamp", "node", ("x",), (f"r{i}",), {"clamp": (0.0, None)}))
        nodes.append(Op("dense", "node", (f"r{i}", "w"), (f"y{i}",), {"clamp": (None, None)}))
    tensors["w"] = Tensor("w", (3, 8), "float32", data=np.arange(24, dtype=np.float32).reshape(3, 8))
    graph = parts = Graph("recurrent", tuple(nodes), tensors, ("x",), ("ya", "yb"))
    for i in "ab":
        path = next(p for p in paths(parts, f"r{i}", METHODS) if p.fan_in and len(p.ops) == 2)
        parts = tiled(parts, Tiling(path, (2,)))
    verify(parts, ops.result_shape)
    results = [name for op in parts.ops for name in op.outputs]
    assert len(set(results)) == len(results), dump(parts)
    (vector,) = random_inputs(graph, 1)
    for name in graph.outputs:
        np.testing.assert_allclose(ops.run(parts, *vector)[name], ops.run(graph, *vector)[name], rtol=1e-5)


def test_one_constant_may_be_cut_in_two_ways() -> None:
    """Two layers share square weights; their path cuts rows of them for one and columns for the other."""
    nodes = [Op("dense", f"d{i}", (x, "w"), (y,), {"clamp": (None, None)}) for i, (x, y) in enumerate(("xh", "hy"))]
    graph = floats(dict.fromkeys("xhy", (1, 6)) | {"w": (6, 6)}, *nodes)
    weights = Tensor("w", (6, 6), "float32", data=np.arange(36, dtype=np.float32).reshape(6, 6))
    graph = Graph("float", graph.ops, {**graph.tensors, "w": weights}, ("x",), ("y",))
    path = next(p for p in paths(graph, "h", METHODS) if p.fan_in and len(p.ops) == 2)
    (vector,) = random_inputs(graph, 1)
    parts = tiled(graph, Tiling(path, (2,)))
    np.testing.assert_allclose(ops.run(parts, *vector)["y"], ops.run(graph, *vector)["y"], rtol=1e-5)


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("kind", ["conv2d", "transpose_conv2d"])
def test_groups_of_channels_stay_together(kind: str, groups: int) -> None:
    """An output channel chooses its group of input channels, so parts along the channels would read others."""
    size = (2, 2) if kind == "conv2d" else (4, 4)
    attrs = {"clamp": (None, None), "stride": (1, 1), "dilation": (1, 1), "groups": groups}
    attrs |= {"pad": (0, 0, 0, 0)} if kind == "conv2d" else {"pad": (0, 0), "size": size}
    relu = Op("clamp", "r", ("h",), ("y",), {"clamp": (0.0, None)})
    shape, result = (8, 2, 2, 4 // groups), (1, *size, 8)
    layer = Op(kind, "c", ("x", "w"), ("h",), attrs)
    graph = floats({"x": (1, 3, 3, 4), "w": shape, "h": result, "y": result}, layer, relu)
    weights = Tensor("w", shape, "float32", data=np.random.default_rng(groups).normal(size=shape).astype(np.float32))
    graph = Graph("float", graph.ops, {**graph.tensors, "w": weights}, ("x",), ("y",))
    (vector,) = random_inputs(graph, 1)
    several = tilings(graph)
    assert several
    for tiling in several:
        have = ops.run(tiled(graph, tiling), *vector)["y"]
        np.testing.assert_allclose(have, ops.run(graph, *vector)["y"], rtol=1e-5, atol=1e-5, err_msg=str(tiling.path))


def test_no_part_is_without_an_operand() -> None:
    """Every second row of a transposed convolution with a stride above its window takes no row of its operand."""
    attrs = {"clamp": (None, None), "stride": (2, 1), "dilation": (1, 1), "groups": 1, "pad": (0, 0), "size": (6, 4)}
    layers = (
        Op("transpose_conv2d", "t", ("x", "w"), ("h",), attrs),
        Op("clamp", "r", ("h",), ("y",), {"clamp": (0.0, None)}),
    )
    graph = floats({"x": (1, 3, 4, 2), "w": (2, 1, 1, 2), "h": (1, 6, 4, 2), "y": (1, 6, 4, 2)}, *layers)
    weights = Tensor("w", (2, 1, 1, 2), "float32", data=np.arange(4, dtype=np.float32).reshape(2, 1, 1, 2))
    graph = Graph("float", graph.ops, {**graph.tensors, "w": weights}, ("x",), ("y",))
    path = next(p for p in paths(graph, "h", METHODS) if len(p.ops) == 2 and p.cut == (1,))
    assert part_ranges(graph, Tiling(path, (3,))) is not None
    assert part_ranges(graph, Tiling(path, (6,))) is None


@pytest.mark.slow
@pytest.mark.needs("gcc")
def test_plans_of_parts_compute_the_same(tmp_path: Path) -> None:
    """The parts through schedule, layout and code, under the sanitizers, against the whole graph's meaning."""
    whole, parts = [], []
    for at, graph in enumerate(graphs()):
        several = tilings(graph)
        for tiling in several[at % 3 :: 5]:
            whole.append(graph)
            parts.append(tiled(graph, tiling))
    assert len(parts) > 40
    inputs = [random_inputs(graph, 2, seed) for seed, graph in enumerate(whole)]
    results = run_on_host(parts, inputs, tmp_path, tile="off")
    for graph, vectors, rows in zip(whole, inputs, results, strict=True):
        for vector, row in zip(vectors, rows, strict=True):
            compare(graph, vector, row, reordered=True)


@pytest.mark.one_in(2)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("tile", ["fdt", "ffmt"])
def test_tiled_plans_compute_what_the_graph_does(tile: str, tmp_path: Path) -> None:
    """The choice of the exploration, with as many multiply-accumulates done twice as it likes."""
    networks = graphs()
    inputs = [random_inputs(graph, 2, seed) for seed, graph in enumerate(networks)]
    results = run_on_host(networks, inputs, tmp_path, tile=tile, max_mac_overhead=400.0)
    for graph, vectors, rows in zip(networks, inputs, results, strict=True):
        for vector, row in zip(vectors, rows, strict=True):
            compare(graph, vector, row, reordered=True)
