"""Networks that are hard to roll: pools of one row, residuals whose skip comes first, a model without any ops."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.compile import compile_model, prepare
from edgebuild.model.ir import Graph, Op, Quant, Tensor
from edgebuild.model.ops.base import Form, Kernel
from edgebuild.model.plan.check.interpret import interpret
from edgebuild.model.plan.rolling import RollingGraph
from edgebuild.model.plan.search import STRIPS
from edgebuild.model.plan.tiling.paths import Tiling, part_ranges, paths
from edgebuild.model.verify import verify
from tests.graphs import random_inputs
from tests.kernels.test_gathered import network
from tests.ops.host import run_on_host, write
from tests.ops.test_host import compare
from tests.rolling.test_rolling import planned

OPEN = (None, None)
UNIT = {"stride": (1, 1), "dilation": (1, 1), "clamp": OPEN}


class Net:
    """A float graph, op by op."""

    def __init__(self, *shape: int) -> None:
        self.tensors = {"x": Tensor("x", shape, "float32")}
        self.ops: list[Op] = []

    def add(self, kind: str, *inputs: str, **attrs: object) -> str:
        name = f"{kind}{len(self.ops)}"
        op = Op(kind, name, inputs, (name,), attrs)
        self.tensors[name] = Tensor(name, ops.result_shape(op, Graph("net", (), self.tensors, (), ())), "float32")
        self.ops.append(op)
        return name

    def conv(self, x: str, out: int, taps: int, stride: int = 1) -> str:
        w = f"w{len(self.ops)}"
        shape = (out, taps, taps, self.tensors[x].shape[3])
        data = np.random.default_rng(len(self.ops)).standard_normal(shape).astype(np.float32)
        self.tensors[w] = Tensor(w, shape, "float32", None, data)
        return self.add("conv2d", x, w, **{**UNIT, "stride": (stride, stride)}, pad=(taps // 2,) * 4)

    def pool(self, kind: str, x: str, window: tuple[int, int], stride: tuple[int, int], pad: int = 0) -> str:
        attrs = {**UNIT, "stride": stride, "pad": (pad,) * 4}
        return self.add(f"{kind}_pool2d", x, window=window, **attrs)

    def graph(self, *outputs: str) -> Graph:
        return Graph("net", tuple(self.ops), self.tensors, ("x",), outputs)


def pools() -> list[Graph]:
    """A convolution and a pool that leaves one row, of every kind that there is."""
    graphs = []
    for kind in ("max", "avg"):
        for window, stride, pad in (
            ((8, 6), (1, 1), 0), ((8, 2), (2, 2), 0), ((5, 3), (4, 1), 0), ((8, 3), (1, 2), 1), ((6, 6), (6, 6), 0),
        ):  # fmt: skip
            net = Net(1, 8, 6, 2)
            y = net.pool(kind, net.conv("x", 9, 3), window, stride, pad)
            graphs.append(net.graph(net.conv(y, 2, 1)))
    return graphs


def residuals() -> list[Graph]:
    """Inverted residuals that name the skip first and last, and two of them after each other."""
    graphs = []
    for skip_first in (True, False):
        for blocks in (1, 2):
            net = Net(1, 12, 6, 3)
            y = net.conv("x", 4, 3)
            for _ in range(blocks):
                branch = net.conv(net.conv(net.conv(y, 10, 1), 10, 5), 4, 1)
                y = net.add("add", *((y, branch) if skip_first else (branch, y)), clamp=OPEN)
            graphs.append(net.graph(net.conv(y, 2, 3, 2)))
    return graphs


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("make", [pools, residuals])
def test_rolled_networks_compute_the_same(make: Callable[[], list[Graph]], tmp_path: Path) -> None:
    graphs = make()
    inputs = [random_inputs(graph, 2, seed) for seed, graph in enumerate(graphs)]
    assert any(planned(graph, tile="rolling").tiled for graph in graphs)
    results = run_on_host(graphs, inputs, tmp_path, tile="rolling")
    for graph, vectors, rows in zip(graphs, inputs, results, strict=True):
        for vector, row in zip(vectors, rows, strict=True):
            compare(graph, vector, row)


def behind_a_view() -> tuple[Graph, str]:
    """A dense layer that reads rows of a value that is kept whole for another reader."""
    net = Net(1, 6, 4, 8)
    y = net.conv("x", 4, 3)
    data = np.linspace(-1, 1, 192, dtype=np.float32).reshape(2, 96)
    net.tensors["w"] = Tensor("w", data.shape, "float32", None, data)
    sums = net.add("dense", net.add("reshape", y, shape=(1, 96)), "w", clamp=OPEN)
    return net.graph(sums, net.conv(y, 4, 1)), "dense"


def behind_sums() -> tuple[Graph, str]:
    """A function of elements that reads rows of a sum, each of one element, and makes larger ones of them."""
    net, quant = Net(1, 4, 4, 5), Quant((0.5,), (3,))
    sums = net.add("mean", "x", axes=(1, 2))
    for name in ("x", sums):
        net.tensors[name] = replace(net.tensors[name], dtype="int8", quant=quant)
    return net.graph(net.add("dequantize", sums)), "dequantize"


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("make", [behind_a_view, behind_sums])
def test_rows_of_what_is_there_whole(
    make: Callable[[], tuple[Graph, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels find rows of operands that lie in no ring; they cost nothing here, so that the fastest plan has them."""
    graph, kind = make()
    spec = ops.SPECS[kind]

    def cheap(op: Op, graph: Graph, form: Form) -> Kernel:
        assert spec.kernel is not None
        return replace(spec.kernel(op, graph, form), estimate=0.001 if form.rolled else 1e6)

    monkeypatch.setitem(ops.SPECS, kind, replace(spec, kernel=cheap))
    fast: dict[str, Any] = {"tile": "rolling", "ram": 1 << 20}
    steps = planned(graph, **fast).steps
    assert kind in [op.kind for step in steps if step.rolled for op in step.ops]
    inputs = [random_inputs(graph, 2, 1)]
    for vector, row in zip(inputs[0], run_on_host([graph], inputs, tmp_path, **fast)[0], strict=True):
        compare(graph, vector, row)


def test_no_path_is_cut_into_more_parts_than_it_has_columns() -> None:
    net = Net(1, 24, 3, 4)
    graph = net.graph(net.conv(net.conv("x", 16, 3), 4, 3))
    narrow = [p for p in paths(graph, "conv2d0", frozenset(["ffmt"])) if 2 in p.cut]
    assert narrow and all(part_ranges(graph, Tiling(p, (max(STRIPS),) * len(p.cut))) is None for p in narrow)


def test_a_model_that_only_reshapes() -> None:
    net = Net(1, 4, 4, 3)
    graph = net.graph(net.add("reshape", "x", shape=(1, 48)))
    for tile in ("off", "rolling", "auto", "fdt", "ffmt"):
        assert planned(graph, tile=tile).arena_bytes == 192
    assert len(planned(graph, tile="auto").trade_off) == 1


def whole_numbers(kind: str, *more: int, shape: tuple[int, ...] = (1, 4, 4, 3), **attrs: object) -> onnx.ModelProto:
    """One op on int8 without a scale."""
    x = helper.make_tensor_value_info("x", TensorProto.INT8, [1, 4, 4, 3])
    y = helper.make_tensor_value_info("y", TensorProto.INT8, shape)
    bounds = [numpy_helper.from_array(np.array(v, np.int8), f"bound{i}") for i, v in enumerate(more)]
    node = helper.make_node(kind, ["x", *(b.name for b in bounds)], ["y"], **attrs)
    graph = helper.make_graph([node], "g", [x], [y], bounds)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def test_int8_without_a_scale(tmp_path: Path) -> None:
    """Clip and MaxPool take whole numbers as they are."""
    file = tmp_path / "m.onnx"
    x = np.arange(-24, 24, dtype=np.int8).reshape(1, 4, 4, 3)
    onnx.save(whole_numbers("Clip", -5, 17), file)
    assert (ops.run(prepare(file), x)["y"] == x.clip(-5, 17)).all()
    onnx.save(whole_numbers("MaxPool", shape=(1, 4, 1, 3), kernel_shape=[4, 1]), file)
    assert (ops.run(prepare(file), x)["y"] == x.max(axis=2, keepdims=True)).all()


@pytest.mark.needs("gcc")
def test_a_streamed_input_that_the_first_op_takes_up(tmp_path: Path) -> None:
    """Its rows stand where those of the result do, in no ring of their own."""
    pytest.importorskip("onnxruntime")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 5, 4, 1]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), tmp_path / "m.onnx")
    artifacts = compile_model(model_request(tmp_path / "m.onnx", "model", "host", {"stream_input": "rows"}))
    assert verify(tmp_path / "m.onnx", load_target("host"), artifacts)["equal"]


def test_a_ring_that_is_in_use_until_the_next_row_is_brought(tmp_path: Path) -> None:
    """Behind the last op stands the application: its row comes while the second op's ring holds rows."""
    net = Net(1, 5, 2, 8)
    y = net.conv("x", 2, 1)
    t = net.add("pointwise", "x", function="elu", clamp=OPEN, alpha=1.0)
    plan = write(net.graph(y, net.conv(t, 1, 3)), "m", tmp_path, stream_input="rows")
    assert next(b.calls for b in plan.buffers if b.tensor == t) == (1, 3)
    assert f"to the caller's rows: {t} */" in (tmp_path / "m.c").read_text()


@pytest.mark.parametrize("kinds", [("conv2d", "transpose_conv2d"), ("conv2d", "transpose_conv2d", "conv2d")])
def test_transposed_readers_that_need_few_rows_or_none(kinds: tuple[str, ...]) -> None:
    """Rows that lie in cut padding read nothing: a reader may want no row of its operand, which is made all the same.

    On the host a plan whose replay fails raises, and every call is made by what its op means.
    """
    unread = 0
    for seed in range(60):
        graph = network(seed, *kinds, channels=(1, 3, 4, 5, 8, 9), together=(1, 2, 4, 5, 7))
        rolling = RollingGraph(graph)
        unread += all(first >= past for (_, first, past), *_ in rolling.reads(graph.ops[1]))
        choice = planned(graph, tile="rolling")
        interpret(graph, choice.graph, choice.steps)
        rings = [rows for step in choice.steps if step.rolled for rows in step.rolled.rings.values()]
        assert all(rows > 0 for rows in rings), seed
    assert unread


def _to_rows(file: Path, *outputs: str) -> Path:
    """Two convolutions to one channel, whose NCHW output is a view; `z` beside it has one row."""
    rng = np.random.default_rng(5)
    shapes = {"x": (1, 1, 12, 6), "y": (1, 1, 6, 6), "t": (1, 4, 12, 6), "z": (1, 4, 1, 1)}
    ports = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in shapes.items()}
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in (("v", (4, 1, 3, 3)), ("w", (1, 4, 3, 3)))
    ]
    nodes = [helper.make_node("Conv", ["x", "v"], ["t"], pads=[1, 1, 1, 1])]
    nodes += [helper.make_node("Conv", ["t", "w"], ["y"], pads=[1, 1, 1, 1], strides=[2, 1])]
    nodes += [helper.make_node("GlobalAveragePool", ["t"], ["z"])] if "z" in outputs else []
    graph = helper.make_graph(nodes, "g", [ports["x"]], [ports[n] for n in outputs], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), file)
    return file


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("more", [{}, {"stream_input": "rows"}, {"tile": "auto"}, {"steps": True}], ids=str)
def test_rows_of_the_output_are_handed_over_as_they_come(more: dict[str, Any], tmp_path: Path) -> None:
    """Against onnxruntime; without --tile auto, which keeps to the time of whole ops, the output is never whole."""
    pytest.importorskip("onnxruntime")
    file = _to_rows(tmp_path / "m.onnx", "y")
    artifacts = compile_model(model_request(file, "model", "host", {"stream_output": "rows", **more}))
    assert verify(file, load_target("host"), artifacts)["equal"]
    report = json.loads(next(a.data for a in artifacts if a.name == "model_report.json"))
    ring = next(b for b in report["layout"]["buffers"] if b["name"] == "y")
    assert report["output_rows"] == 6 and ("tile" in more or ring["rows"] == 1)
    header = next(a.data for a in artifacts if a.name == "model.h").decode()
    assert "void model_output_row(const float *row, int32_t number);" in header and "model_output(" not in header


def test_what_has_no_rows_of_an_output(tmp_path: Path) -> None:
    def refuses(text: str, *outputs: str, **options: Any) -> None:
        file = _to_rows(tmp_path / "m.onnx", *outputs)
        with pytest.raises(EdgebuildError, match=text):
            planned(prepare(file), stream_output="rows", **options)

    refuses("no rows of the output: 'z' has 1", "z")
    refuses("no rows of the output: 2 outputs", "y", "z")
    for options in ({"tile": "off"}, {"tile": "fdt"}, {"arena": "caller"}):
        refuses("--stream-output needs --arena static", "y", **options)
    with pytest.raises(EdgebuildError, match="--map goes with --tile off"):
        compile_model(model_request(tmp_path / "m.onnx", "m", "gap8", {"stream_output": "rows", "map": "auto"}))
