"""Sums of real numbers in blocks of channels: equal to the plain kernels' to the last bit, and right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model import kernels
from edgebuild.model.ir import Graph, Op, Quant, dump
from edgebuild.model.kernels import floats, kernel_of
from edgebuild.model.kernels.floats import BLOCKS, KINDS, block_of, of_core, starts
from edgebuild.model.plan.search import form_of
from tests.conftest import by_day
from tests.graphs import examples, random_inputs, small_graphs, thrown
from tests.kernels.processor import run_on
from tests.kernels.test_processors import NEEDS, preferring
from tests.ops.test_host import compare

IN_C, IN_REGISTERS = "channels in registers", "pixels and channels in registers"
CORES = ("mps2-an386", "mps2-an500", "mps3-an547")


def of_floats(graph: Graph, target: str, variant: str) -> bool:
    form = form_of(load_target(target))
    served = [kernel_of(op, replace(graph), form) for op in graph.ops if op.kind in KINDS]
    return any(variant in {k.variant, *(other.variant for other in k.alternatives)} for k in served)


def with_int8_weights(graph: Graph) -> Graph:
    """The same with weights of a byte, as TFLite has them in hybrid layers."""
    name = graph.ops[0].inputs[1]
    w = graph.tensors[name]
    if graph.ops[0].kind == "batch_matmul":
        return graph
    data = np.clip(np.round(w.data * 40), -127, 127).astype(np.int8)
    small = replace(w, dtype="int8", quant=Quant((0.025,), (0,)), data=data)
    return replace(graph, tensors={**graph.tensors, name: small})


def check(target: str, graphs: list[Graph], folder: Path, tile: str = "off", exact: bool = True) -> None:
    """`exact`: results are those of the plain kernels to the last bit, where products and sums are not fused."""
    graphs = by_day(graphs)
    inputs = [random_inputs(graph, 2, seed) for seed, graph in enumerate(graphs)]
    results = []
    small = form_of(load_target(target), ModelRequest(Path("x"), "small", target, optimize="size"))
    variants = {kernel_of(op, replace(g), small).variant for g in graphs for op in g.ops if op.kind in KINDS}
    assert not variants & {IN_C, IN_REGISTERS}
    for optimize in ("balanced", "size") if exact else ("balanced",):
        (own := folder / optimize).mkdir()
        fresh = [replace(graph) for graph in graphs]  # a graph keeps the kernels that were chosen for it
        results.append(run_on(load_target(target), fresh, inputs, own, tile=tile, optimize=optimize))
    for graph, vectors, rows, others in zip(graphs, inputs, results[0], results[-1], strict=True):
        for vector, row, other in zip(vectors, rows, others, strict=True):
            compare(graph, vector, row)
            assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(row, other, strict=True))


@pytest.mark.slow
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target, most", [("mps2-an386", 8), ("mps2-an386", 3), ("mps3-an547", 3)])
def test_single_layers(target: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of numbers of channels that blocks do not divide, of int8 weights, and of products of two operands."""
    monkeypatch.setattr(floats, "MAX_SUMS", most)
    monkeypatch.setattr(kernels, "by_cost", preferring(IN_C))
    graphs = [g for kind in KINDS for g in [g for g in thrown(kind, 200) if of_floats(g, target, IN_C)][:12]]
    graphs = [with_int8_weights(g) if at % 3 == 2 else g for at, g in enumerate(graphs)]
    chosen = [kernel_of(g.ops[0], replace(g), form_of(load_target(target))) for g in graphs]
    assert {g.ops[0].kind for g in graphs} == set(KINDS)
    assert {k.shape["scaled"] for k in chosen} == {False, True}
    assert {k.shape["overlap"] for k in chosen} == {False, most < 8}
    check(target, graphs, tmp_path)


def pointwise(graph: Graph) -> Graph:
    """A convolution with the first tap of its window alone, without padding or strides."""
    op, image = graph.ops[0], graph.tensors[graph.inputs[0]].shape
    w, y = graph.tensors[op.inputs[1]], graph.tensors[graph.outputs[0]]
    assert w.data is not None
    w = replace(w, shape=(len(w.data), 1, 1, w.shape[3]), data=w.data[:, :1, :1])
    y = replace(y, shape=(*image[:3], len(w.data)))
    op = replace(op, attrs=op.attrs | {"stride": (1, 1), "dilation": (1, 1), "pad": (0, 0, 0, 0)})
    return replace(graph, ops=(op,), tensors={**graph.tensors, w.name: w, y.name: y})


def with_channels(graph: Graph, values: int, results: int) -> Graph:
    """The layer with other numbers of channels, of one group: its weights and biases come again and again."""
    op, tensors = graph.ops[0], dict(graph.tensors)
    w = tensors[op.inputs[1]]
    taps = w.shape[1:3]
    shapes = {op.inputs[1]: (1, *taps, results) if op.kind == "depthwise_conv2d" else (results, *taps, values)}
    shapes |= dict.fromkeys(op.inputs[2:], (results,))
    for name, shape in shapes.items():
        tensors[name] = replace(tensors[name], shape=shape, data=np.resize(tensors[name].array, shape))
    for name, channels in ((op.inputs[0], values), (op.outputs[0], results)):
        tensors[name] = replace(tensors[name], shape=(*tensors[name].shape[:3], channels))
    attrs = op.attrs | ({"groups": 1} if "groups" in op.attrs else {})
    return replace(graph, ops=(replace(op, attrs=attrs),), tensors=tensors)


CHANNELS = {"depthwise_conv2d": ((5, 10), (7, 14), (3, 12), (2, 16)), "conv2d": ((3, 8), (3, 3), (3, 1))}


def drawn(target: str) -> list[Graph]:
    """Layers of each kind, those with the largest results; and windows of one tap, of several groups, too."""
    layers = {kind: [g for g in thrown(kind, 300) if of_floats(g, target, IN_REGISTERS)] for kind in KINDS}
    layers = {k: sorted(some, key=lambda g: -g.tensors[g.outputs[0]].elements)[:14] for k, some in layers.items()}
    graphs = [g for some in layers.values() for g in some]
    graphs += [with_channels(layers[kind][0], *some) for kind, pairs in CHANNELS.items() for some in pairs]
    return graphs + [pointwise(g) for g in graphs if g.ops[0].kind == "conv2d" and g.ops[0].attrs["groups"] > 1][:3]


@pytest.mark.one_in(4)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target, tile", [("mps2-an386", "off"), ("mps2-an386", "rolling"), ("mps2-an500", "off"),
                                          ("mps3-an547", "off"), ("mps3-an547", "rolling")])  # fmt: skip
def test_registers(target: str, tile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of four pixels and of one, groups, dilation, results that four does not divide, both forms of matrices."""
    monkeypatch.setattr(kernels, "by_cost", preferring(IN_REGISTERS))
    graphs = drawn(target)
    chosen = [kernel_of(g.ops[0], replace(g), form_of(load_target(target))) for g in graphs]
    windows = [k.shape for k in chosen if k.shape["most"] > 1]
    assert {s["groups"] > 1 for s in windows} == {s["whole"] for s in windows} == {False, True}
    assert {s["back"] > 0 for s in windows} == {s["OW"] > 7 for s in windows} == {False, True}
    rests = {name.removeprefix("eb_").removeprefix("mve_").removesuffix("_fused") for name in BLOCKS}
    own = {of_core(form_of(load_target(target)).core, rest.removeprefix("float")) for rest in rests}
    assert {k.shape[name] for k in chosen for name in ("one", "function")} == own
    check(target, graphs, tmp_path, tile, exact=target == "mps2-an386")


@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", CORES)
def test_results_over_the_pixels_of_groups(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group must not write its channels where the next one reads its own. Behind a clamp, x may be overwritten."""
    monkeypatch.setattr(kernels, "by_cost", preferring(IN_REGISTERS))
    layers = (pointwise(g) for g in thrown("conv2d", 300) if of_floats(g, target, IN_REGISTERS))
    graphs = [
        replace(
            g,
            inputs=("before",),
            ops=(Op("clamp", "first", ("before",), ("x",), {"clamp": (-1.0, 1.0)}), *g.ops),
            tensors={**g.tensors, "before": replace(g.tensors["x"], name="before")},
        )
        for g in layers
        if g.tensors["x"].elements != g.result(g.ops[0]).elements
    ]
    graphs = sorted(graphs, key=lambda g: g.ops[1].attrs["groups"])
    graphs = [*graphs[:3], *graphs[-5:]]
    assert {g.ops[1].attrs["groups"] > 1 for g in graphs} == {False, True}
    inputs = [random_inputs(graph, 1, seed) for seed, graph in enumerate(graphs)]
    rows = run_on(load_target(target), graphs, inputs, tmp_path, tile="off", objective="ram")
    for graph, [vector], [row] in zip(graphs, inputs, rows, strict=True):
        compare(graph, vector, row)


@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", CORES)
def test_not_a_number_stays_so(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the plain kernels: bounds of results, which may be infinite, replace none. Infinities remain, too."""
    monkeypatch.setattr(kernels, "by_cost", preferring(IN_REGISTERS))
    layers = [[g for g in thrown(kind, 100) if of_floats(g, target, IN_REGISTERS)] for kind in KINDS]
    graphs = [g for some in layers for g in sorted(some, key=lambda g: -g.tensors[g.outputs[0]].elements)[:2]]
    inputs = [random_inputs(graph, 1, seed) for seed, graph in enumerate(graphs)]
    for [[first, *_]] in inputs:
        first.flat[::7], first.flat[-1] = np.nan, -np.inf
    results = []
    for optimize in ("balanced", "size"):
        (own := tmp_path / optimize).mkdir()
        results.append(run_on(load_target(target), [replace(g) for g in graphs], inputs, own, optimize=optimize))
    for graph, [[row]], [[plain]] in zip(graphs, *results, strict=True):
        assert np.isnan(plain).any(), dump(graph)
        np.testing.assert_allclose(row, plain, rtol=1e-4, atol=1e-4, err_msg=dump(graph))


@pytest.mark.needs(*NEEDS)
def test_rows(tmp_path: Path) -> None:
    """Fed from rings."""
    graphs = [g for g in examples(small_graphs(), 400) if of_floats(g, "mps2-an386", IN_C)][:20]
    assert len(graphs) >= 10
    check("mps2-an386", graphs, tmp_path, tile="rolling")


def test_blocks_hold_all_channels() -> None:
    for channels in range(1, 70):
        first = starts(channels, block_of(channels))
        blocks = {at + c for at in first for c in range(block_of(channels))}
        assert blocks == set(range(channels)) and len(first) == -(-channels // 8)
