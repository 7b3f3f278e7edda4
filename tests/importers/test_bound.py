"""Inputs that the user binds, sizes that files leave open in several ways, and notes of shapes that are not true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.cli import main
from edgebuild.model import ops
from edgebuild.model.formats import bound_file, read_model
from edgebuild.model.ir import Array, Graph
from edgebuild.model.verify import oracles
from tests.importers.test_onnx import onnxruntime_outputs

FLOAT = TensorProto.FLOAT


def saved(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], stored: dict[str, Array], file: Path,
          notes: list[onnx.ValueInfoProto] | None = None) -> onnx.ModelProto:  # fmt: skip
    y = helper.make_empty_tensor_value_info("y")
    y.type.tensor_type.elem_type = FLOAT
    constants = [numpy_helper.from_array(np.asarray(v), n) for n, v in stored.items()]
    graph = helper.make_graph(nodes, "bound", inputs, [y], constants, value_info=notes or [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, file)
    return model


def branch(output: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(nodes, output, [], [helper.make_tensor_value_info(output, FLOAT, None)])


def with_rates(file: Path) -> onnx.ModelProto:
    """A branch for 16000 Hz; the other one holds an operator that nobody supports, and another shape."""
    same = branch("a", helper.make_node("Neg", ["x"], ["a"]))
    other = branch("c", helper.make_node("Det", ["x"], ["b"]), helper.make_node("Add", ["b", "d"], ["c"]))
    nodes = [
        helper.make_node("Equal", ["sr", "rate"], ["is"]),
        helper.make_node("Det", ["square"], ["d"], "unsupported"),
        helper.make_node("If", ["is"], ["y"], "rates", then_branch=same, else_branch=other),
    ]
    inputs = [helper.make_tensor_value_info(n, FLOAT, s) for n, s in (("x", (2, 2)), ("square", (3, 3)))]
    inputs.append(helper.make_tensor_value_info("sr", TensorProto.INT64, ()))
    return saved(nodes, inputs, {"rate": np.int64(16000)}, file)


def ran(graph: Graph, *fed: Array) -> Array:
    return ops.run(graph, *fed)[graph.outputs[0]]


def test_a_branch_that_never_runs_may_hold_anything(tmp_path: Path) -> None:
    model = with_rates(tmp_path / "m.onnx")
    graph = read_model(tmp_path / "m.onnx", bound=(("sr", (16000,)),))
    x, square = np.float32([[1, 2], [3, 4]]), np.eye(3, dtype=np.float32)
    want = onnxruntime_outputs(model, [x, square, np.asarray(16000)])[0]
    np.testing.assert_array_equal(ran(graph, x, square), want)
    for bound in ((), (("sr", (8000,)),)):
        with pytest.raises(EdgebuildError, match=r"\(Det\): error: operator Det is not supported"):
            read_model(tmp_path / "m.onnx", bound=bound)


def test_the_judge_reads_what_is_bound(tmp_path: Path) -> None:
    with_rates(tmp_path / "m.onnx")
    bound = model_request(tmp_path / "m.onnx", "m", "host", {"bind": "sr=16000"}).bind
    assert bound == (("sr", (16000,)),)
    with bound_file(tmp_path / "m.onnx", bound) as file:
        graph = onnx.load(file).graph
        assert file.name == "m.onnx" and [v.name for v in graph.input] == ["x", "square"]
        assert numpy_helper.to_array(graph.initializer[-1]) == 16000
    assert not file.exists()
    with bound_file(tmp_path / "m.onnx", ()) as file:
        assert file == tmp_path / "m.onnx"


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ("rate=1", "the model has no input 'rate'"),
        ("sr=1.5", "'sr': 1.5 is not of type INT64"),
        ("sr=1,2", "'sr': 2 numbers for the shape "),
        ("sr", "'sr' is no binding"),
        ("sr=", "'sr=' is no binding"),
        ("sr=nan", "'sr=nan' is no binding"),
        ("square=1,2,3", "'square': 3 numbers for the shape 3x3"),
        ("square=1e39", "'square': 1e+39 is not of type FLOAT"),
    ],
)
def test_what_no_input_can_be(binding: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_rates(tmp_path / "m.onnx")
    command = ["model", str(tmp_path / "m.onnx"), "--target", "host", "-o", str(tmp_path), "--bind", binding]
    assert main(command) == 1
    assert message in capsys.readouterr().err


def test_numbers_fill_an_open_size(tmp_path: Path) -> None:
    inputs = [helper.make_tensor_value_info(n, FLOAT, (1, s)) for n, s in (("x", 3), ("w", "n"))]
    saved([helper.make_node("Mul", ["x", "w"], ["y"])], inputs, {}, tmp_path / "m.onnx")
    x = np.float32([[1, 2, 3]])
    assert ran(read_model(tmp_path / "m.onnx", bound=(("w", (1, 2, 3)),)), x).tolist() == [[1, 4, 9]]
    assert ran(read_model(tmp_path / "m.onnx", bound=(("w", (5,)),)), x).tolist() == [[5, 10, 15]]


@pytest.mark.parametrize("size", [-1, 0])
def test_sizes_that_exporters_write_for_open_ones(size: int, tmp_path: Path) -> None:
    """Paddle writes -1 for each; the batch is 1 where nobody says otherwise, a 0 needs --shape."""
    x = helper.make_tensor_value_info("x", FLOAT, (size, 2, size))
    saved([helper.make_node("Relu", ["x"], ["y"])], [x], {}, tmp_path / "m.onnx")
    assert read_model(tmp_path / "m.onnx", (("x", (1, 2, 5)),)).tensors["y"].shape == (1, 2, 5)
    with pytest.raises(EdgebuildError, match="input 'x' has the dynamic shape 1x2x\\?" if size else "0x2x0"):
        read_model(tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match="option 'shape'"):
        read_model(tmp_path / "m.onnx", (("x", (1, 3, 5)),))


def test_notes_of_shapes_decide_nothing(tmp_path: Path) -> None:
    """PyTorch notes its constants, others wrong sizes, or no types. onnxruntime warns and runs the model."""
    x = helper.make_tensor_value_info("x", FLOAT, (1, 64))
    nodes = [
        helper.make_node("Unsqueeze", ["x", "last"], ["signal"]),
        helper.make_node("STFT", ["signal", "hop", "window", "length"], ["s"], onesided=1),
        helper.make_node("ReduceSum", ["s"], ["y"]),
    ]
    stored = {"last": np.int64([2]), "hop": np.int64(8), "window": np.hanning(16).astype(np.float32)}
    notes = [helper.make_tensor_value_info(n, FLOAT, s) for n, s in (("window", (16,)), ("s", (1, 7, 9, 2)))]
    notes += [helper.make_tensor_value_info("last", TensorProto.INT64, (1,))]
    model = saved(nodes, [x], {**stored, "length": np.int64(16)}, tmp_path / "m.onnx", notes)
    fed = np.random.default_rng(0).normal(size=(1, 64)).astype(np.float32)
    want = onnxruntime_outputs(model, [fed])[0]
    np.testing.assert_allclose(ran(read_model(tmp_path / "m.onnx"), fed), want, rtol=1e-4, atol=1e-5)
    for note in model.graph.value_info:
        note.type.tensor_type.shape.dim[0].dim_value += 3
    model.graph.value_info.add(name="signal")
    onnx.save(model, tmp_path / "m.onnx")
    np.testing.assert_allclose(ran(read_model(tmp_path / "m.onnx"), fed), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [9, 12, 15, 17])
def test_operators_of_onnxruntime_in_a_branch(opset: int, tmp_path: Path) -> None:
    """It knows LayerNormalization in older opsets than the standard does, and its own operators wherever they are."""
    own = helper.make_node("FastGelu", ["n"], ["a"], domain="com.microsoft")
    then = branch("a", helper.make_node("LayerNormalization", ["x", "s"], ["n"]), own)
    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=then, else_branch=branch("b", helper.make_node("Neg", ["x"], ["b"]))
    )
    x = helper.make_tensor_value_info("x", FLOAT, (2, 4))
    model = saved([node], [x], {"c": np.True_, "s": np.float32([1, 2, 3, 4])}, tmp_path / "m.onnx")
    model.opset_import[0].version = opset
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, tmp_path / "m.onnx")
    fed = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    want = onnxruntime_outputs(model, [fed])[0]
    np.testing.assert_allclose(ran(read_model(tmp_path / "m.onnx"), fed), want, rtol=1e-5, atol=1e-5)


def test_a_shape_that_is_an_input_can_be_bound(tmp_path: Path) -> None:
    inputs = [
        helper.make_tensor_value_info("x", FLOAT, (2, 3)),
        helper.make_tensor_value_info("s", TensorProto.INT64, (2,)),
    ]
    saved([helper.make_node("Reshape", ["x", "s"], ["y"])], inputs, {}, tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError) as refused:
        read_model(tmp_path / "m.onnx")
    assert "shape 's' is an input of the model" in str(refused.value)
    assert refused.value.diagnostics[0].hints == ("shape must be a constant: --bind s=... makes one of it",)
    assert read_model(tmp_path / "m.onnx", bound=(("s", (3, 2)),)).tensors["y"].shape == (3, 2)


@pytest.mark.parametrize("given", [{}, {"k": -1, "dtype": TensorProto.INT32}])
def test_a_diagonal_in_the_shape_of_an_input(given: dict[str, Any], tmp_path: Path) -> None:
    """EyeLike reads no element of its operand: its result is a constant."""
    x = helper.make_tensor_value_info("x", FLOAT, (3, 4))
    nodes = [
        helper.make_node("EyeLike", ["x"], ["d"], **given),
        helper.make_node("Cast", ["d"], ["f"], to=FLOAT),
        helper.make_node("Mul", ["x", "f"], ["y"]),
    ]
    model, fed = saved(nodes, [x], {}, tmp_path / "m.onnx"), np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    graph = read_model(tmp_path / "m.onnx")
    assert [op.kind for op in graph.ops] == ["mul"]
    np.testing.assert_array_equal(ran(graph, fed), onnxruntime_outputs(model, [fed])[0])


def test_outputs_without_types(tmp_path: Path) -> None:
    """onnxscript writes none, of a model and of its branches; onnxruntime infers them."""
    bodies = [
        helper.make_graph([helper.make_node(kind, ["x"], [name])], name, [], [onnx.ValueInfoProto(name=name)])
        for kind, name in (("Neg", "a"), ("Abs", "b"))
    ]
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], then_branch=bodies[0], else_branch=bodies[1]),
    ]
    model = saved(nodes, [helper.make_tensor_value_info("x", FLOAT, (2, 3))], {}, tmp_path / "m.onnx")
    model.graph.output[0].ClearField("type")
    model.graph.name = ""
    onnx.save(model, tmp_path / "m.onnx")
    for fed in (np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)):
        want = onnxruntime_outputs(model, [fed])[0]
        np.testing.assert_array_equal(ran(read_model(tmp_path / "m.onnx"), fed), want)


def test_unsigned_words_are_moved_and_cast(tmp_path: Path) -> None:
    """ML.NET writes classes as keys of uint32."""
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.UINT32),
        helper.make_node("Concat", ["a", "a"], ["b"], axis=1),
        helper.make_node("Cast", ["b"], ["c"], to=TensorProto.UINT64),
        helper.make_node("Cast", ["c"], ["y"], to=FLOAT),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.INT64, (1, 4))
    model, fed = saved(nodes, [x], {}, tmp_path / "m.onnx"), np.array([[0, -1, 2**31, 2**33 + 5]])
    np.testing.assert_array_equal(ran(read_model(tmp_path / "m.onnx"), fed), onnxruntime_outputs(model, [fed])[0])


@pytest.mark.parametrize("form", ["sequence", "optional"])
def test_an_input_that_is_no_tensor_is_named_by_its_kind(form: str, tmp_path: Path) -> None:
    kind = getattr(helper, f"make_{form}_type_proto")(helper.make_tensor_type_proto(FLOAT, (1, 2)))
    operator, *names = {"sequence": ("SequenceAt", "s", "0"), "optional": ("OptionalGetElement", "s")}[form]
    node = helper.make_node(operator, names, ["y"])
    saved([node], [helper.make_value_info("s", kind)], {"0": np.array(0)}, tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match=f"input 's' is no tensor but of kind '{form}'"):
        read_model(tmp_path / "m.onnx")


def test_the_judge_gets_no_inputs_that_the_outputs_do_not_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text, say, that edgebuild does not read. Nodes stand in a wrong order, which onnxruntime mends."""
    nodes = [helper.make_node(kind, [x], [y]) for kind, x, y in (("Neg", "a", "y"), ("Abs", "x", "a"))]
    nodes.append(helper.make_node("Identity", ["text"], ["other"]))
    inputs = [helper.make_tensor_value_info(n, t, (1, 2)) for n, t in (("text", TensorProto.STRING), ("x", FLOAT))]
    model = saved(nodes, inputs, {}, tmp_path / "m.onnx")
    model.graph.output[0].name = "other"
    onnx.save(model, tmp_path / "m.onnx")

    def in_this_process(judge: str, file: Path, data: bytes, rows: list[list[Array]]) -> dict[str, Array]:
        return {f"v0_o{o}": y for o, y in enumerate(onnxruntime_outputs(onnx.load_from_string(data), rows[0]))}

    monkeypatch.setattr(oracles, "_interpreted", in_this_process)
    port, fed = {"dtype": "float32", "name": "x"}, np.array([[1, -2]], np.float32)
    report = {"model": {"format": "onnx"}, "inputs": [port], "outputs": [{**port, "name": "y"}]}
    assert oracles.reference(tmp_path / "m.onnx", [[fed]], report, ((), ("y",))).outputs[0][0].tolist() == [[-1, -2]]
