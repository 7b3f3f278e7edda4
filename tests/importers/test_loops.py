"""Files of converters: shapes computed around open batches, loops of recurrent layers in graphs of their own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.compile import compile_model
from edgebuild.model.formats import read_model
from edgebuild.model.formats.tflite import tflite_reader
from edgebuild.model.ir import Quant
from edgebuild.model.verify import oracles, verify
from tests.graphs.tflite_models import File
from tests.ops.test_tflm import interpreted

HIDDEN, STEPS, RNG = 5, 4, np.random.default_rng(3)


def weights(*shape: int) -> Any:
    return RNG.normal(0, 0.4, shape).astype(np.float32)


def loop(turns: int | None = STEPS, step: int = 1) -> bytes:
    """A simple recurrent cell as Keras' converter writes it; `turns`: None for as many as an input says."""
    graph, condition, body = File(), File(), File()
    condition.buffers = body.buffers = graph.buffers
    shapes: list[tuple[tuple[int, ...], str]] = [((), "int32"), ((1, HIDDEN), "float32"), ((STEPS, 3), "float32")]
    if turns is None:
        shapes.append(((), "int32"))
    state, x = (graph.tensor(n, s, "float32") for n, s in (("h", (1, HIDDEN)), ("x", (STEPS, 3))))
    start = graph.tensor("start", (), "int32", None, np.array(0, np.int32))
    given = [start, state, x, *([graph.tensor("turns", (), "int32")] if turns is None else [])]
    for inner in (condition, body):
        for i, (shape, kind) in enumerate(shapes):
            inner.tensor(f"given{i}", shape, kind)
    last = 3 if turns is None else condition.tensor("turns", (), "int32", None, np.array(turns, np.int32))
    condition.operator("LESS", [0, last], [condition.tensor("on", (), "bool")], schema.LessOptionsT())
    one = body.tensor("one", (), "int32", None, np.array(step, np.int32))
    following = body.tensor("next", (), "int32")
    body.operator("ADD", [0, one], [following], schema.AddOptionsT())
    w, u = (body.tensor(n, s, "float32", None, weights(*s)) for n, s in (("w", (HIDDEN, 3)), ("u", (HIDDEN, HIDDEN))))
    row = body.tensor("row", (1, 3), "float32")
    gather = schema.GatherOptionsT()
    gather.axis, gather.batchDims = 0, 0
    at = body.tensor("at", (1,), "int32")
    shape = body.tensor("shape", (1,), "int32", None, np.array([1], np.int32))
    body.operator("RESHAPE", [0, shape], [at], schema.ReshapeOptionsT())
    body.operator("GATHER", [2, at], [row], gather)
    sums = [body.tensor(n, (1, HIDDEN), "float32") for n in ("wx", "uh", "sum", "new")]
    body.operator("FULLY_CONNECTED", [row, w, -1], [sums[0]], schema.FullyConnectedOptionsT())
    body.operator("FULLY_CONNECTED", [1, u, -1], [sums[1]], schema.FullyConnectedOptionsT())
    body.operator("ADD", sums[:2], [sums[2]], schema.AddOptionsT())
    body.operator("TANH", [sums[2]], [sums[3]])
    results = [graph.tensor(f"result{i}", shape, kind) for i, (shape, kind) in enumerate(shapes)]
    options = schema.WhileOptionsT()
    options.condSubgraphIndex, options.bodySubgraphIndex = 1, 2
    graph.operator("WHILE", given, results, options)
    rest = given[3:]
    more = [(condition, range(len(shapes)), [len(condition.tensors) - 1])]
    more.append((body, range(len(shapes)), [following, sums[3], 2, *([3] if rest else [])]))
    return packed(graph, [state, x, *rest], [results[1]], more)


def packed(graph: File, inputs: list[int], outputs: list[int], more: Any) -> bytes:
    """The file, with inputs and outputs of the inner graphs, which `File.pack` leaves empty."""
    import flatbuffers

    model = schema.ModelT.InitFromObj(
        schema.Model.GetRootAsModel(graph.pack(inputs, outputs, [file for file, _, _ in more]), 0)
    )
    for inner, (_, read, written) in zip(model.subgraphs[1:], more, strict=True):
        inner.inputs, inner.outputs = list(read), list(written)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def only(judge: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteRT is installed, or seems not to be."""
    if judge is not None:
        pytest.importorskip(judge)
    find, hidden = importlib.util.find_spec, {"ai_edge_litert"} - {judge}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *at: None if name in hidden else find(name, *at))


@pytest.mark.parametrize("judge", ["ai_edge_litert", None])
def test_the_judge_of_a_loop_of_real_numbers(
    judge: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    only(judge, monkeypatch)
    file = tmp_path / "loop.tflite"
    file.write_bytes(loop())
    oracles._warn.cache_clear()
    artifacts = compile_model(model_request(file, "model", "host", {}))
    assert verify(file, load_target("host"), artifacts)["equal"]
    assert ("pip install ai-edge-litert" in capsys.readouterr().err) == (judge is None)


@pytest.mark.parametrize("judge", ["ai_edge_litert", None])
def test_the_judge_of_what_tflm_cannot_run(
    judge: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    only(judge, monkeypatch)
    model = File()
    x, y = (model.tensor(name, (1, 12), "float32") for name in ("x", "y"))
    model.operator("GELU", [x], [y], schema.GeluOptionsT())
    file = tmp_path / "gelu.tflite"
    file.write_bytes(model.pack([x], [y]))
    artifacts = compile_model(model_request(file, "model", "host", {}))
    if judge is None:
        with pytest.raises(EdgebuildError, match="TFLite Micro interpreter cannot run") as caught:
            verify(file, load_target("host"), artifacts)
        assert "pip install ai-edge-litert" in caught.value.diagnostics[0].hints[-1]
    else:
        assert verify(file, load_target("host"), artifacts)["equal"]
        assert capsys.readouterr().err.count("so LiteRT judges") == 1


def branches(constant: bool | None = None, integer: bool = False) -> bytes:
    """The absolute value of an input or a sum, by an input or a known condition."""
    graph, yes, no = File(), File(), File()
    yes.buffers = no.buffers = graph.buffers
    kind, q = ("int8", Quant((0.05,), (3,))) if integer else ("float32", None)
    data = None if constant is None else np.array([constant])
    condition, x = graph.tensor("condition", (1,), "bool", None, data), graph.tensor("x", (1, 6), kind, q)
    for inner, operator in ((yes, "RELU"), (no, "ADD")):
        values = [inner.tensor(name, (1, 6), kind, q) for name in ("given", "found")]
        more = [inner.tensor("three", (1, 1), kind, q, np.full((1, 1), 63, kind))] if operator == "ADD" else []
        inner.operator(operator, [values[0], *more], values[1:], schema.AddOptionsT() if more else None)
    y, options = graph.tensor("y", (1, 6), kind, q), schema.IfOptionsT()
    options.thenSubgraphIndex, options.elseSubgraphIndex = 1, 2
    graph.operator("IF", [condition, x], [y], options)
    return packed(graph, [condition, x] if constant is None else [x], [y], [(yes, [0], [1]), (no, [0], [1])])


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("constant", [None, True, False])
def test_branches(constant: bool | None, integer: bool, tmp_path: Path) -> None:
    """Both are computed where the condition is; a branch that is never taken is not there."""
    data, rng = branches(constant, integer), np.random.default_rng(1)
    x = rng.integers(-60, 60, (1, 6)).astype(np.int8) if integer else rng.normal(0, 9, (1, 6)).astype(np.float32)
    vectors = [[x]] if constant is not None else [[np.array([c]), x] for c in (True, False)]
    (tmp_path / "if.tflite").write_bytes(data)
    graph = read_model(tmp_path / "if.tflite")
    for vector, want in zip(vectors, interpreted([data], [vectors], tmp_path)[0], strict=True):
        np.testing.assert_array_equal(ops.run(graph, *vector)[graph.outputs[0]], want[0])
    assert constant is None or {op.kind for op in graph.ops} <= {"clamp" if constant else "add", "reshape"}


@pytest.mark.parametrize(("turns", "step", "text"), [(None, 1, "computed by the graph"), (4, 0, "more than 256 turns")])
def test_loops_that_are_refused(turns: int | None, step: int, text: str, tmp_path: Path) -> None:
    file = tmp_path / "loop.tflite"
    file.write_bytes(loop(turns, step))
    with pytest.raises(EdgebuildError, match=text):
        read_model(file)


def listed(length: int = STEPS) -> bytes:
    """Running sums of the rows of x, in lists of TensorFlow, as Keras writes them of an open batch; and a length."""
    graph, condition, body = File(), File(), File()
    condition.buffers = body.buffers = graph.buffers
    rows, row = (STEPS, 1, 3), (1, 3)
    shapes: list[tuple[tuple[int, ...], str]] = [((), "int32"), (row, "float32"), ((), "list"), ((), "list")]
    whole = [np.array([-1, 3], np.int32), np.array(length, np.int32), np.array(0, np.int32)]
    x, state, own = (
        graph.tensor("x", rows, "float32"),
        graph.tensor("h", row, "float32"),
        graph.tensor("i", (), "list"),
    )
    form, count, start = (graph.tensor(f"c{i}", v.shape, "int32", None, v) for i, v in enumerate(whole))
    sums, size = graph.tensor("o", (), "list"), graph.tensor("length", (), "int32")
    graph.operator("custom FlexTensorListFromTensor", [x, form], [own], b"")
    graph.operator("custom FlexTensorListReserve", [form, count], [sums], b"")
    for inner in (condition, body):
        for i, (shape, kind) in enumerate(shapes):
            inner.tensor(f"given{i}", shape, kind)
    last = condition.tensor("turns", (), "int32", None, np.array(STEPS, np.int32))
    condition.operator("LESS", [0, last], [condition.tensor("on", (), "bool")], schema.LessOptionsT())
    one = body.tensor("one", (), "int32", None, np.array(1, np.int32))
    following, item, total = (
        body.tensor("next", (), "int32"),
        *(body.tensor(n, row, "float32") for n in ("item", "sum")),
    )
    body.operator("ADD", [0, one], [following], schema.AddOptionsT())
    body.operator("custom FlexTensorListGetItem", [2, 0, one], [item], b"")
    body.operator("ADD", [1, item], [total], schema.AddOptionsT())
    body.operator("custom FlexTensorListSetItem", [3, 0, total], [written := body.tensor("w", (), "list")], b"")
    results = [graph.tensor(f"result{i}", shape, kind) for i, (shape, kind) in enumerate(shapes)]
    options = schema.WhileOptionsT()
    options.condSubgraphIndex, options.bodySubgraphIndex = 1, 2
    graph.operator("WHILE", [start, state, own, sums], results, options)
    stacked = graph.tensor("y", (length, *row), "float32")
    graph.operator("custom FlexTensorListStack", [results[3], form], [stacked], b"")
    graph.operator("custom TensorListLength", [results[3]], [size], b"")
    more = [(condition, range(4), [len(condition.tensors) - 1]), (body, range(4), [following, total, 2, written])]
    return packed(graph, [x, state], [stacked, size], more)


def test_lists_of_tensors_are_read_without_an_op(tmp_path: Path) -> None:
    file = tmp_path / "lists.tflite"
    file.write_bytes(listed())
    graph = read_model(file)
    x, h = RNG.normal(0, 1, (STEPS, 1, 3)).astype(np.float32), np.ones((1, 3), np.float32)
    values = ops.run(graph, x, h)
    y, length = (values[name] for name in graph.outputs)
    np.testing.assert_allclose(y, 1 + np.cumsum(x, 0), rtol=1e-6)
    assert length == STEPS
    assert verify(file, load_target("host"), compile_model(model_request(file, "model", "host", {})))["equal"]


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (STEPS - 1, "place 3 of a list of 3 tensors"),
        (STEPS + 1, "element 4 of the list is read before it is written"),
        (1025, "a list of 1025 tensors"),
    ],
)
def test_lists_that_are_refused(length: int, text: str, tmp_path: Path) -> None:
    file = tmp_path / "lists.tflite"
    file.write_bytes(listed(length))
    with pytest.raises(EdgebuildError, match=text):
        read_model(file)


def test_a_list_out_of_a_branch_is_refused(tmp_path: Path) -> None:
    """Neither list is the result where the condition is computed."""
    graph, yes, no = File(), File(), File()
    yes.buffers = no.buffers = graph.buffers
    condition, x = graph.tensor("condition", (1,), "bool"), graph.tensor("x", (2, 3), "float32")
    form = graph.tensor("form", (1,), "int32", None, np.array([3], np.int32))
    rows, y = graph.tensor("rows", (), "list"), graph.tensor("y", (), "list")
    graph.operator("custom FlexTensorListFromTensor", [x, form], [rows], b"")
    for inner in (yes, no):
        inner.tensor("given", (), "list")
    options = schema.IfOptionsT()
    options.thenSubgraphIndex, options.elseSubgraphIndex = 1, 2
    graph.operator("IF", [condition, rows], [y], options)
    stacked = graph.tensor("stacked", (2, 3), "float32")
    graph.operator("custom FlexTensorListStack", [y, form], [stacked], b"")
    file = tmp_path / "lists.tflite"
    file.write_bytes(packed(graph, [condition, x], [stacked], [(yes, [0], [0]), (no, [0], [0])]))
    with pytest.raises(EdgebuildError, match="a branch gives a list or a variable"):
        read_model(file)


def test_moves_do_not_rescale(tmp_path: Path) -> None:
    """A move whose operand has another scale than its result, as calibration writes some."""
    model, x, y = File(), Quant((0.02,), (-6,)), Quant((0.025,), (11,))
    source = model.tensor("x", (1, 4, 6), "int8", x)
    axis = model.tensor("axis", (1,), "int32", None, np.array([1], np.int32))
    result = model.tensor("y", (1, 4, 6), "int8", y)
    model.operator("REVERSE_V2", [source, axis], [result], schema.ReverseV2OptionsT())
    file = tmp_path / "moved.tflite"
    file.write_bytes(model.pack([source], [result]))
    artifacts = compile_model(model_request(file, "model", "host", {"tile": "off"}))
    assert verify(file, load_target("host"), artifacts)["equal"]


def test_sizes_that_the_file_computes(tmp_path: Path) -> None:
    """A flattening as converters write it for an open batch: SHAPE, its first element, to a scalar, RESHAPE."""
    model, quant = File(), Quant((0.02,), (-6,))

    def numbers(name: str, *values: int) -> int:
        return model.tensor(name, (len(values),), "int32", None, np.array(values, np.int32))

    x, y = model.tensor("x", (2, 3, 4), "int8", quant), model.tensor("y", (2, 12), "int8", quant)
    sizes, first, batch = (model.tensor(n, s, "int32") for n, s in (("sizes", (3,)), ("first", ()), ("batch", ())))
    wanted, options, pack = model.tensor("wanted", (2,), "int32"), schema.StridedSliceOptionsT(), schema.PackOptionsT()
    twelve = model.tensor("twelve", (), "int32", None, np.array(12, np.int32))
    options.shrinkAxisMask, pack.valuesCount, pack.axis = 1, 2, 0
    model.operator("SHAPE", [x], [sizes], schema.ShapeOptionsT())
    model.operator("STRIDED_SLICE", [sizes, numbers("from", 0), numbers("to", 1), numbers("by", 1)], [first], options)
    model.operator("RESHAPE", [first, numbers("none")], [batch], schema.ReshapeOptionsT())
    model.operator("PACK", [batch, twelve], [wanted], pack)
    model.operator("RESHAPE", [x, wanted], [y], schema.ReshapeOptionsT())
    file = tmp_path / "sizes.tflite"
    file.write_bytes(model.pack([x], [y]))
    artifacts = compile_model(model_request(file, "model", "host", {"tile": "off"}))
    assert verify(file, load_target("host"), artifacts)["equal"]


def dilated(unsized: bool) -> bytes:
    """A dilated depthwise convolution as Keras writes it. `unsized`: the file says 1 where the batch is 4 parts."""
    model, parts = File(), 1 if unsized else 4

    def value(name: str, *shape: int) -> int:
        number = model.tensor(name, shape, "float32")
        model.tensors[number].shapeSignature = [-1, *shape[1:]] if unsized else None
        return number

    def numbers(name: str, *values: Any) -> int:
        return model.tensor(name, np.shape(values), "int32", None, np.array(values, np.int32))

    x, cut, summed, y = (
        value("x", 1, 8, 8, 2), value("cut", parts, 6, 6, 2), value("summed", parts, 4, 4, 2), value("y", 1, 8, 8, 2)
    )  # fmt: skip
    flat = value("flat", 1, 128)
    block, crops = numbers("block", 2, 2), numbers("crops", (0, 0), (0, 0))
    model.operator("SPACE_TO_BATCH_ND", [x, block, numbers("pads", (2, 2), (2, 2))], [cut])
    w = model.tensor("w", (1, 3, 3, 2), "float32", None, np.linspace(-1, 1, 18, dtype=np.float32).reshape(1, 3, 3, 2))
    options = schema.DepthwiseConv2DOptionsT()
    options.padding, options.strideH, options.strideW, options.depthMultiplier = 1, 1, 1, 1
    options.dilationHFactor = options.dilationWFactor = 1
    model.operator("DEPTHWISE_CONV_2D", [cut, w, -1], [summed], options)
    model.operator("BATCH_TO_SPACE_ND", [summed, block, crops], [y])
    model.operator("RESHAPE", [y, numbers("shape", -1, 128)], [flat], schema.ReshapeOptionsT())
    return model.pack([x], [flat])


def test_the_batch_of_an_open_file_is_that_of_the_operands(tmp_path: Path) -> None:
    """The twin that tells all sizes is the same network."""
    files = []
    for unsized in (False, True):
        files.append(tmp_path / f"{unsized}.tflite")
        files[-1].write_bytes(dilated(unsized))
    sized, unsized_one = (read_model(file) for file in files)
    assert sized.ops == unsized_one.ops


def test_a_slice_of_nothing_joins_nothing(tmp_path: Path) -> None:
    """Keras' loops replace a row of a list by the rows before it, the row, and those behind."""
    model = File()
    x, nothing = model.tensor("x", (4, 3), "float32"), model.tensor("n", (1, 3), "float32")
    begin, size = (model.tensor(f"at{v}", (2,), "int32", None, np.array(v, np.int32)) for v in ([4, 0], [0, 3]))
    y, options = model.tensor("y", (4, 3), "float32"), schema.ConcatenationOptionsT()
    options.axis = 0
    model.operator("SLICE", [x, begin, size], [nothing])
    model.operator("CONCATENATION", [nothing, x], [y], options)
    file = tmp_path / "nothing.tflite"
    file.write_bytes(model.pack([x], [y]))
    (op,) = read_model(file).ops
    assert (op.kind, op.inputs, op.outputs) == ("concat", ("x",), ("y",))


def test_padding_of_parts_is_a_real_zero(tmp_path: Path) -> None:
    """TFLite pads an int8 image with its zero point before it cuts it; only files that tell the batch pad as TFLM."""
    for unsized, value in ((True, 7), (False, 0)):
        model, quant = File(), Quant((0.1,), (7,))
        x, y = (
            model.tensor(n, s, "int8", quant) for n, s in (("x", (1, 4, 4, 1)), ("y", (1 if unsized else 4, 3, 3, 1)))
        )
        model.tensors[y].shapeSignature = [-1, 3, 3, 1] if unsized else None
        lists = [
            model.tensor(f"{v}", np.shape(v), "int32", None, np.array(v, np.int32)) for v in ([2, 2], [[1, 1]] * 2)
        ]
        model.operator("SPACE_TO_BATCH_ND", [x, *lists], [y])
        file = tmp_path / f"{unsized}.tflite"
        file.write_bytes(model.pack([x], [y]))
        assert read_model(file).ops[0].attrs["value"] == value


@pytest.mark.parametrize("zero_point", [-128, 0])
def test_reciprocal_roots_near_a_half(zero_point: int, tmp_path: Path) -> None:
    """TFLM's integer steps round one of these values unlike real numbers do."""
    model, scale = File(), (0.02703564055263996,)
    x = model.tensor("x", (1, 128), "int8", Quant(scale, (zero_point,)))
    y = model.tensor("y", (1, 128), "int8", Quant(scale, (-128,)))
    model.operator("RSQRT", [x], [y], None)
    file, target = tmp_path / "roots.tflite", load_target("host")
    file.write_bytes(model.pack([x], [y]))
    artifacts = compile_model(model_request(file, "model", "host", {}))
    values = np.arange(256 if zero_point == -128 else 128).reshape(-1, 128) + zero_point
    assert verify(file, target, artifacts, values.astype(np.int8))["equal"]


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("scales", [(0.001, 0.0007), (1e-7, 0.05), (3.0, 0.00001)])
def test_reciprocal_roots_of_words(scales: tuple[float, float], tmp_path: Path) -> None:
    """Every eighth of the int16 elements that TFLM takes, as normalisations of int16 networks have them."""
    model = File()
    x, y = (
        model.tensor(n, (1, 2**10), "int16", Quant((s,), (0,))) for n, s in zip("xy", np.float32(scales), strict=True)
    )
    model.operator("RSQRT", [x], [y], None)
    file = tmp_path / "roots.tflite"
    file.write_bytes(model.pack([x], [y]))
    artifacts = compile_model(model_request(file, "model", "host", {}))
    values = np.arange(0, 2**15, 8, dtype=np.int16).reshape(-1, 2**10)
    assert verify(file, load_target("host"), artifacts, values)["equal"]


def nested(levels: int, leaf: bool) -> bytes:
    """Branches that both name the graph of the next level: a small file that stands for 2^levels graphs."""
    inner = [File() for _ in range(levels)]
    top = File()
    for level, graph in enumerate([top, *inner]):
        graph.buffers = top.buffers
        condition = graph.tensor("condition", (1,), "bool", None)
        x, y = (graph.tensor(name, (1, 6), "float32", None) for name in ("x", "y"))
        if level < levels:
            options = schema.IfOptionsT()
            options.thenSubgraphIndex = options.elseSubgraphIndex = level + 1
            graph.operator("IF", [condition, condition, x], [y], options)
        elif leaf:
            graph.operator("RELU", [x], [y])
    ends = [(graph, [0, 1], [2 if leaf or level < levels - 1 else 1]) for level, graph in enumerate(inner)]
    return packed(top, [0, 1], [2], ends)


@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize(("levels", "text"), [(30, "copies of graphs"), (300, "in one another"), (4, "")])
def test_branches_in_branches_are_bounded(
    levels: int, text: str, leaf: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tflite_reader, "MAX_COPIES", 500)
    (tmp_path / "if.tflite").write_bytes(nested(levels, leaf))
    if text:
        with pytest.raises(EdgebuildError, match=text):
            read_model(tmp_path / "if.tflite")
    else:
        assert read_model(tmp_path / "if.tflite").ops
