"""Rolling execution: the memory it takes, the plans that replay refuses, inputs that are streamed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest, model_request
from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.compile import compile_model, prepare
from edgebuild.model.ir import Graph, Op, Quant, Tensor
from edgebuild.model.plan.check.interpret import interpret
from edgebuild.model.plan.check.replay import BrokenPlan, replay
from edgebuild.model.plan.choose import plan
from edgebuild.model.plan.memory.problem import Place
from edgebuild.model.plan.rolling import Rolled, RollingGraph, possible_starts, simulate
from edgebuild.model.plan.search import Plan
from edgebuild.model.plan.section import Consumed, cost, least_distance
from edgebuild.model.verify import measure, verify
from tests.conftest import ROOT, by_day
from tests.graphs import examples, small_graphs
from tests.graphs.tflite_models import File

MODELS = ROOT.parent / "shared" / "models"
DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"
OPEN = (None, None)

# Bytes of arena on the host (portable kernels need no scratch): every op whole, rolled, streamed.
# Published for the same networks: 53700 (FDT) for the first, 35840 (Vela) for the second.
BARS = {
    "mlperf_kws": (16000, 3996, 3700),
    "mlperf_resnet": (49152, 10800, 9400),
    "person_detect": (55296, 13100, 12000),
    "micro_speech": (5960, 2140, 580),
    "mlperf_ad": (768, 768, None),
    "paper_txt": (17408, 1250, 1250),
    "paper_mw": (13824, 1900, 800),
    "paper_cif": (144000, 29100, 21600),
}


def planned(graph: Graph, target: str = "host", **options: Any) -> Plan:
    return plan(graph, load_target(target), ModelRequest(Path("x"), "x", target, **options))


def check(graph: Graph, **options: Any) -> Plan:
    """Plan a copy of a graph, since graphs keep their kernels; the planner replays the plan, and it is interpreted."""
    decided = planned(graph := replace(graph), **options)
    interpret(graph, decided.graph, decided.steps)
    return decided


@pytest.mark.parametrize("name", BARS)
@pytest.mark.skipif(not MODELS.exists(), reason="the public models are not at hand")
def test_arenas_of_public_models(name: str) -> None:
    graph = prepare(MODELS / f"{name}.tflite")
    whole, rolled, streamed = BARS[name]
    assert planned(graph, tile="off").arena_bytes <= whole
    assert planned(graph, tile="rolling").arena_bytes <= rolled
    if streamed is not None:
        assert planned(graph, stream_input="rows").arena_bytes <= streamed


@pytest.mark.parametrize("options", [{"tile": "auto"}, {"ram": 16000}, {"tile": "auto", "ram": 16000}])
def test_the_least_memory_of_a_streamed_model_is_the_least_in_every_mode(options: dict[str, Any]) -> None:
    graph, asked = prepare(DIGITS), {"stream_input": "rows", "objective": "ram"}
    assert planned(graph, **asked, **options).arena_bytes == planned(graph, **asked).arena_bytes


def test_a_streamed_model_with_auto_takes_little_more_work_or_no_more_memory_than_the_fastest() -> None:
    graph, streamed = prepare(DIGITS), {"stream_input": "rows"}
    fastest = planned(graph, ram=1 << 20, tile="auto", **streamed)
    chosen, least = planned(graph, tile="auto", **streamed), planned(graph, **streamed)
    assert least.arena_bytes <= chosen.arena_bytes <= fastest.arena_bytes
    assert cost(chosen.steps) <= 1.1 * cost(fastest.steps)


def sums(name: str, shape: tuple[int, ...]) -> list[Tensor]:
    """Random float weights and a bias."""
    rng = np.random.default_rng(len(name))
    channels = shape[3] if shape[0] == 1 else shape[0]

    def constant(suffix: str, dims: tuple[int, ...]) -> Tensor:
        data = rng.standard_normal(dims).astype(np.float32)
        return Tensor(f"{name}{suffix}", dims, "float32", None, data)

    return [constant("_w", shape), constant("_b", (channels,))]


def running_example() -> Graph:
    """Stahl 2024, ch. 4: 32x8x1, conv 6x2 /2 to 32, depthwise 3x3, conv 1x1 to 64, pool, dense 6; float."""
    tensors = {"x": Tensor("x", (1, 32, 8, 1), "float32")}
    nodes: list[Op] = []

    def add(kind: str, x: str, name: str, weights: tuple[int, ...] | None, **attrs: Any) -> str:
        own = sums(name, weights) if weights else []
        tensors.update({t.name: t for t in own})
        op = Op(kind, name, (x, *(t.name for t in own)), (name,), attrs)
        shape = ops.result_shape(op, Graph("example", (), tensors, (), ()))
        tensors[name] = Tensor(name, shape, "float32")
        nodes.append(op)
        return name

    unit = {"stride": (1, 1), "dilation": (1, 1), "clamp": OPEN}
    y = add("conv2d", "x", "conv", (32, 6, 2, 1), **{**unit, "stride": (2, 2)}, pad=(2, 0, 2, 0))
    y = add("depthwise_conv2d", y, "depthwise", (1, 3, 3, 32), **unit, pad=(1, 1, 1, 1))
    y = add("conv2d", y, "pointwise", (64, 1, 1, 32), **unit, pad=(0, 0, 0, 0))
    y = add("avg_pool2d", y, "pool", None, window=(16, 4), stride=(1, 1), pad=(0, 0, 0, 0), clamp=OPEN)
    y = add("reshape", y, "flat", None, shape=(1, 64))
    y = add("dense", y, "dense", (6, 64), clamp=OPEN)
    return Graph("example", tuple(nodes), tensors, ("x",), (y,))


def test_the_running_example_of_the_thesis() -> None:
    """24576 B whole; the thesis reaches 16384 with three parts. Rolled: input, four rows of rings, sums and result."""
    graph = running_example()
    assert planned(graph, tile="off").arena_bytes == 16896  # 24576 B if no result lies over its operand
    rolled = planned(graph, tile="rolling")
    assert rolled.arena_bytes < 5000
    assert rolled.layout.optimal


def test_ram_limit_takes_the_fewest_calls() -> None:
    """Enough memory: nothing is tiled. Less: as little as has to be. Too little: a diagnostic that names the node."""
    graph = prepare(DIGITS)
    assert not planned(graph, ram=2048).tiled
    some, least = planned(graph, ram=1500), planned(graph, tile="rolling")
    assert some.tiled and some.arena_bytes <= 1500
    assert sum(s.calls for s in some.steps) <= sum(s.calls for s in least.steps)
    with pytest.raises(EdgebuildError, match=r"does not fit: arena .* memory RAM has 512 B"):
        planned(graph, ram=512)


def test_replay_refuses_broken_plans() -> None:
    """A ring of one row less, and any storage moved onto another one that is in use."""
    decided = planned(running_example(), tile="rolling")
    step = next(i for i, s in enumerate(decided.steps) if s.rolled)
    section = decided.steps[step]
    assert section.rolled is not None
    for name, rows in section.rolled.rings.items():
        if rows > 1:
            rings = {**section.rolled.rings, name: rows - 1}
            broken = replace(section, rolled=replace(section.rolled, rings=rings))
            steps = (*decided.steps[:step], broken, *decided.steps[step + 1 :])
            with pytest.raises(BrokenPlan):
                replay(decided.graph, steps, decided.places)
    first = next(iter(section.rolled.rings))
    moved = {**decided.places, first: Place(decided.places["x"].memory, decided.places["x"].offset)}
    with pytest.raises(BrokenPlan):
        replay(decided.graph, decided.steps, moved)


def naive_shift(rolling: RollingGraph, rolled: Rolled, operand: str, result: str) -> int:
    """The least distance at which no call writes over rows of the operand that are read then or later."""
    size_in, size_out = rolling.row_bytes[operand], rolling.row_bytes[result]
    least = 0
    for at, event in enumerate(rolled.events):
        name, _, past = event.writes or ("", 0, 0)
        later = [first for e in rolled.events[at:] for n, first, _ in e.reads if n == operand]
        if rolled.inside.get(name, name) == result and later:
            least = max(least, past * size_out - min(later) * size_in)
    return least


def naive_span(rolled: Rolled, ring: str) -> tuple[int, int]:
    """Numbers of the ops that are called between the writing of a row and its last reading."""
    seen = set[int]()
    for at, event in enumerate(rolled.events):
        if event.writes is not None and rolled.inside.get(event.writes[0], event.writes[0]) == ring:
            name, _, past = event.writes
            uses = [i for i, e in enumerate(rolled.events) if any(n == name and a < past <= b for n, a, b in e.reads)]
            seen |= {e.op for e in rolled.events[at : max([at, *uses]) + 1]}
    return min(seen), max(seen)


def test_tails_are_runs_of_their_own() -> None:
    """A part of a run as the tail of a longer one, against that part by itself."""
    tails = 0
    for graph in [*by_day(examples(small_graphs(), 60)), running_example()]:
        decided = planned(graph, tile="rolling")
        rolling, order = decided.rolling, decided.cutter.order
        for stop in range(1, len(order) + 1):
            starts = possible_starts(rolling, order[:stop])
            if starts:
                trace = simulate(rolling, order[min(starts) : stop])
            for start in starts:
                tail, alone = trace.tail(start - min(starts)), simulate(rolling, order[start:stop])
                tails += start > min(starts)
                assert {**alone.rings, **dict.fromkeys(tail.inside, 1)} == {
                    **tail.rings,
                    **dict.fromkeys(tail.inside, 1),
                }
                assert tail.results == alone.results and sum(tail.counts) == len(alone.events)
                for ring in tail.rings:
                    low, high = naive_span(tail, ring)
                    assert tail.spans[ring][0] <= low <= high <= tail.spans[ring][1]
                for x in tail.operands:
                    for y in tail.results:
                        least = least_distance(trace, tail, Consumed.of(trace, tail, x), y)
                        assert max(0, least) == naive_shift(rolling, tail, x, y)
    assert tails > 50


def test_views_alone_that_do_not_fit(tmp_path: Path) -> None:
    """A network without a step is told what its inputs take."""
    file = File()
    x = file.tensor("x", (1, 40), "int8", Quant((0.5,), (0,)))
    y = file.tensor("y", (4, 10), "int8", Quant((0.5,), (0,)))
    file.operator("RESHAPE", [x, file.tensor("shape", (2,), "int32", data=np.array([4, 10], np.int32))], [y])
    (tmp_path / "view.tflite").write_bytes(file.pack([x], [y]))
    with pytest.raises(EdgebuildError, match="does not fit: arena at least 40 B"):
        compile_model(model_request(tmp_path / "view.tflite", "view", "host", {"ram": 2}))


@pytest.mark.parametrize(("shape", "starts"), [((1, 8, 6, 1), []), ((1, 1, 48, 1), [0])])
def test_a_sum_over_rows_needs_rows_of_its_own(shape: tuple[int, ...], starts: list[int]) -> None:
    """An average over a view is not taken up row by row, if the rows below the view are others."""
    pool = {"window": shape[1:3], "stride": (1, 1), "pad": (0, 0, 0, 0), "clamp": (None, None)}
    nodes = (
        Op("clamp", "r", ("x",), ("r",), {"clamp": (0.0, None)}),
        Op("reshape", "v", ("r",), ("v",), {"shape": shape}),
        Op("avg_pool2d", "y", ("v",), ("y",), pool),
    )
    shapes = {"x": (1, 1, 8, 6), "r": (1, 1, 8, 6), "v": shape, "y": (1, 1, 1, 1)}
    tensors = {name: Tensor(name, size, "float32") for name, size in shapes.items()}
    rolling = RollingGraph(Graph("view", nodes, tensors, ("x",), ("y",)))
    assert rolling.storage == {"x": "x", "r": "r", "v": "r", "y": "y"}
    assert possible_starts(rolling, (nodes[0], nodes[2])) == starts


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("options", [{"tile": "rolling"}, {"stream_input": "rows"}], ids=["rolling", "streamed"])
def test_firmware_computes_the_same(options: dict[str, Any]) -> None:
    """Under the sanitizers, against onnxruntime; the arena is smaller than that of the whole ops."""
    pytest.importorskip("onnxruntime")
    artifacts = compile_model(model_request(DIGITS, "model", "host", options))
    report = json.loads(artifacts[-1].data)
    result = verify(DIGITS, load_target("host"), artifacts)
    assert result["equal"] and result["arena_bytes"] == report["ram"]["arena_bytes"] < 1300
    assert report["macs"]["generated"] == report["macs"]["model"]


@pytest.mark.needs("qemu-system-arm", "arm-none-eabi-gcc")
def test_streamed_on_the_processor() -> None:
    pytest.importorskip("onnxruntime")
    artifacts = compile_model(model_request(DIGITS, "model", "mps2-an386", {"stream_input": "rows"}))
    assert verify(DIGITS, load_target("mps2-an386"), artifacts)["equal"]


@pytest.mark.needs("arm-none-eabi-gcc")
def test_a_test_program_that_is_larger_than_the_memory(tmp_path: Path) -> None:
    """The model fits, since its input is brought by rows; the test program holds the input whole and does not."""
    surface = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 1, 56, 56))]
    result = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 1, 28, 28))]
    w = numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["t"], pads=[1, 1, 1, 1])]
    nodes += [helper.make_node("MaxPool", ["t"], ["y"], kernel_shape=[2, 2], strides=[2, 2])]
    opset = [helper.make_opsetid("", 13)]
    file = tmp_path / "m.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", surface, result, [w]), opset_imports=opset), file)
    artifacts = compile_model(model_request(file, "model", "microbit", {"stream_input": "rows"}))
    with pytest.raises(EdgebuildError, match=r"does not fit into RAM of microbit: [1-9][0-9]* B too many"):
        measure(load_target("microbit"), artifacts)


def test_what_cannot_be_streamed() -> None:
    graph = prepare(DIGITS)
    with pytest.raises(EdgebuildError, match="needs --arena static"):
        planned(graph, stream_input="rows", arena="caller")
    x, y = (Tensor(name, shape, "int8", Quant((1.0,), (0,))) for name, shape in (("x", (1, 2, 3, 1)), ("y", (1, 2, 3))))
    view = Op("reshape", "view", ("x",), ("y",), {"shape": y.shape})
    for kept in (("y",), ("x",)):
        with pytest.raises(EdgebuildError, match="an output is the input itself"):
            planned(Graph("views", (view,), {"x": x, "y": y}, ("x",), kept, "tflite"), stream_input="rows")
    with pytest.raises(EdgebuildError, match="cannot stream: no input"):
        planned(Graph("constant", (), {"x": x}, (), ("x",), "tflite"), stream_input="rows")


@pytest.mark.parametrize("tile", [None, "auto", "rolling"])
def test_an_input_that_is_needed_whole_cannot_be_streamed(tmp_path: Path, tile: str | None) -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, size]) for n, size in (("x", 8), ("y", 4)))
    weights = numpy_helper.from_array(np.ones((8, 4), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match="input 'x' cannot be streamed: an op needs it whole"):
        planned(prepare(tmp_path / "m.onnx"), stream_input="rows", tile=tile)
