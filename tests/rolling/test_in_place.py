"""Results over the operands of their ops: kernels that state it compute the same on every core, and plans use it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgebuild.base.request import ModelRequest, model_request
from edgebuild.base.target import load_target
from edgebuild.model import kernels, ops
from edgebuild.model.compile import compile_model, plan_model
from edgebuild.model.ir import Graph, Op, Quant, Tensor
from edgebuild.model.kernels import kernel_of
from edgebuild.model.kernels.blocks import elements
from edgebuild.model.ops import moves
from edgebuild.model.ops.moves import cycle_starts, swapped
from edgebuild.model.plan import search
from edgebuild.model.plan.choose import plan
from edgebuild.model.plan.search import Plan
from edgebuild.model.verify import verify
from tests.graphs import random_inputs
from tests.kernels.processor import run_plans
from tests.ops.host import run_on_host
from tests.rolling.test_networks import Net
from tests.rolling.test_rolling import planned as plan_of
from tests.zoo.builders import ZOO, quantized
from tests.zoo.builders import Net as Onnx

CORES = {"mps2-an386": 3, "mps3-an547": 2, "riscv-virt": 2, "microbit": 1}  # and kernels in place, at least


def network(height: int, width: int, seed: int) -> bytes:
    """A planar image, and layers that keep, grow and shrink its pixels; height x width may be odd."""
    net = Onnx("in_place", (3, height, width), seed, 13)
    x = net.conv("input", 8, (1, 1))
    x = net.conv(x, 8, (3, 3), depthwise=True)
    x = net.conv(x, 12, (1, 1))
    x = net.conv(x, 12, (3, 3), depthwise=True, relu=False)
    x = net.conv(x, 4, (1, 1))
    return quantized(net.model(net.conv(x, 4, (3, 3), stride=2))).SerializeToString()


def planned(file: Path, target: str) -> Plan:
    return plan_model(model_request(file, "model", target, {"tile": "off"}), load_target(target))


@pytest.mark.parametrize("target", CORES)
@pytest.mark.parametrize(("height", "width"), [(9, 11), (16, 10)])
def test_kernels_work_in_place_as_they_state(
    target: str, height: int, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "ALONE", 3.0)  # least memory, though faster kernels need both images side by side
    file = tmp_path / "model.onnx"
    file.write_bytes(network(height, width, height))
    choice = planned(file, target)
    assert sum(s.in_place for s in choice.steps) >= CORES[target], [s.name for s in choice.steps if s.in_place]
    assert not choice.tiled
    variants = [kernel_of(s.ops[0], choice.graph, s.forms[0]).variant for s in choice.steps if s.in_place]
    by_pairs = target in ("riscv-virt", "microbit") and height * width % 4 == 0  # blocks that read no pixel twice
    assert not by_pairs or any(variant.startswith("pairs") for variant in variants)
    artifacts = compile_model(model_request(file, "model", target, {"tile": "off"}))
    assert verify(file, load_target(target), artifacts)["equal"]


def shapes() -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    for shape in ((1, 3, 4, 5), (2, 3, 1, 4), (1, 7, 1, 6), (3, 5), (4, 2, 3)):
        yield from ((shape, perm) for perm in permutations(range(len(shape))))


def test_cycles_of_a_transposition_reach_every_element() -> None:
    for shape, perm in shapes():
        x = np.arange(int(np.prod(shape)))
        wanted = x.reshape(shape).transpose(perm).ravel()
        if (matrix := swapped(shape, perm)) is None:
            continue
        rows, columns, inner = matrix
        y = x.reshape(-1, inner).copy()
        for start in cycle_starts(rows, columns) or ():
            held, to = y[start].copy(), start
            while (source := to % rows * columns + to // rows) != start:
                y[to] = y[source]
                to = source
            y[to] = held
        assert np.array_equal(y.ravel(), wanted), (shape, perm)
    assert sum(swapped(*case) is not None for case in shapes()) > 20


@pytest.mark.parametrize("divides", [True, False])
def test_transpositions_of_random_matrices_run_in_place(
    divides: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In C, on this machine, against numpy: no copy of the operand is left in the arena."""
    monkeypatch.setattr(search, "ALONE", 9.0)  # there is nothing else here that its instructions could be a part of
    one_by_one = moves.in_place_transpose
    monkeypatch.setattr(moves, "in_place_transpose", lambda op, graph, **_: one_by_one(op, graph, divides))
    monkeypatch.setattr(kernels, "ROWS", tuple(row for row in kernels.ROWS if row.make is not elements.in_blocks))
    rng = np.random.default_rng(7)
    graphs = []
    for _ in range(6):
        net = Net(1, *(int(n) for n in rng.integers(2, 9, 3)))
        graphs.append(net.graph(net.add("transpose", "x", perm=(0, 2, 3, 1))))
    inputs = [random_inputs(graph, 1, seed) for seed, graph in enumerate(graphs)]
    results = run_on_host(graphs, inputs, tmp_path, tile="off")
    for graph, [vector], [[got]] in zip(graphs, inputs, results, strict=True):
        assert np.array_equal(got, ops.run(graph, *vector)[graph.outputs[0]])
        assert plan_of(graph, tile="off").arena_bytes == graph.tensors["x"].bytes


def matrices() -> Iterator[Graph]:
    """Planes to pixels and back, of few channels and of many; rows that are whole vectors, and others."""
    sizes = ((3, 10, 12), (1, 40, 9), (4, 32, 8), (3, 48, 48), (8, 6, 10), (17, 9, 9), (18, 16, 4), (2, 50, 3))
    for at, (channels, height, width) in enumerate(sizes):
        for shape, perm in (((1, channels, height, width), (0, 2, 3, 1)), ((1, height, width, channels), (0, 3, 1, 2))):
            x = Tensor("x", shape, "int8", Quant((0.1,), (3,)))
            y = replace(x, name="y", shape=tuple(shape[d] for d in perm))
            if at % 3 == 2:
                x, y = (replace(t, dtype="float32", quant=None) for t in (x, y))
            op = Op("transpose", "y", ("x",), ("y",), {"perm": perm})
            yield Graph("matrix", (op,), {"x": x, "y": y}, ("x",), ("y",))


@pytest.mark.parametrize(
    ("target", "optimize"), [("mps2-an386", "speed"), ("mps3-an547", "speed"), ("riscv-virt", "size")]
)
def test_transpositions_by_blocks(target: str, optimize: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices where they stand, by blocks, on cores; they take hardly more than the operand."""
    monkeypatch.setattr(search, "ALONE", 9.0)
    monkeypatch.setattr(kernels, "ROWS", tuple(r for r in kernels.ROWS if r.make is not elements.along_cycles))
    graphs, chip = list(matrices()), load_target(target)
    plans = [
        plan(g, chip, ModelRequest(Path("x"), f"g{i}", target, tile="off", optimize=optimize))
        for i, g in enumerate(graphs)
    ]
    variants = Counter(kernel_of(g.ops[0], g, p.steps[0].forms[0]).variant for g, p in zip(graphs, plans, strict=True))
    inside = [name for name in variants if name.endswith("in place by blocks")]
    assert len(inside) == 1 + (target == "mps3-an547") and sum(variants[name] for name in inside) > 10, variants
    inputs = [random_inputs(graph, 1, seed) for seed, graph in enumerate(graphs)]
    for graph, [vector], [[got]] in zip(graphs, inputs, run_plans(chip, plans, inputs, tmp_path), strict=True):
        assert np.array_equal(got, ops.run(graph, *vector)[graph.outputs[0]])


@pytest.mark.parametrize("target", ["mps2-an386", "mps3-an547"])
def test_a_mobilenet_takes_little_more_than_its_largest_tensor(target: str, tmp_path: Path) -> None:
    """Its planar image becomes pixels where it stands, and depthwise layers with a stride run row by row."""
    file = tmp_path / "model.onnx"
    file.write_bytes(quantized(ZOO["mobilenet_v1"]()).SerializeToString())
    assert planned(file, target).arena_bytes <= 48 * 48 * 16 + 1500


def test_numbers_of_64_bits_lie_on_multiples_of_8(tmp_path: Path) -> None:
    """Indices of three images below the values that they fetch, which begin 20 bytes lower where bytes alone count."""
    x, y = (onnx.helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [1, 3, 1, 1]), ("y", [1, 3, 1, 3])))
    table = onnx.numpy_helper.from_array(np.arange(3, dtype=np.float32).reshape(1, 3), "table")
    nodes = [
        onnx.helper.make_node("ArgMin", ["x"], ["i"], axis=3, keepdims=0),
        onnx.helper.make_node("Gather", ["table", "i"], ["y"], axis=0),
    ]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y], [table]), ir_version=8)
    model.opset_import[0].version = 17
    file = tmp_path / "model.onnx"
    onnx.save(model, file)
    for options in ({"tile": "rolling"}, {"objective": "ram"}):
        request = model_request(file, "model", "host", options)
        choice = plan_model(request, load_target("host"))
        wide = [n for n, t in choice.graph.tensors.items() if t.dtype == "int64" and n in choice.places]
        assert wide and all(choice.places[n].offset % 8 == 0 for n in wide)
        assert verify(file, load_target("host"), compile_model(request))["equal"]


def test_no_result_lies_over_what_is_also_read_as_a_view(tmp_path: Path) -> None:
    """x and x without its first dimension are one storage: element by element in one of the two is not enough."""
    text = """<ir_version: 8, opset_import: ["": 13]> views (float[1, 9, 5, 2] x) => (float[1, 9, 5, 2] y)
        <int64[1] first = {0}> { a = Relu(x)  view = Squeeze(a, first)  b = Sub(view, a)  y = Tanh(b) }"""
    onnx.save(onnx.parser.parse_model(text), path := tmp_path / "views.onnx")
    for tile in ("off", "rolling"):
        choice = plan_model(model_request(path, "views", "host", {"tile": tile}), load_target("host"))
        assert [op.kind for section in choice.steps for op in section.ops][1:] == ["pointwise", "pointwise"]
