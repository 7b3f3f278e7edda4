"""The oracles themselves, on models small enough to be computed by hand, and what of the arena is compared."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.formats import read_model
from edgebuild.model.ir import Quant
from edgebuild.model.verify import _intact_buffers, verify
from edgebuild.model.verify.oracles import fit, reference
from edgebuild.model.verify.rounding import MAX_RELATIVE, RELATIVE, limit, near_file
from edgebuild.model.verify.vectors import random_inputs
from tests.fuzz.recipe import choice
from tests.graphs.tflite_models import Draft, File
from tests.importers.test_pt2 import written

pytest.importorskip("onnxruntime")
schema = pytest.importorskip("tflite_micro.tensorflow.lite.micro.python.schema_py_generated")

INT8 = {"dtype": "int8", "scale": 0.5, "zero_point": 3}


def tflite_relus(path: Path) -> None:
    """y = relu(mid), mid = relu(x) over four int8 elements of scale 1 and zero points -10, -10 and 5."""
    model, graph = schema.ModelT(), schema.SubGraphT()
    for name, zero_point in [("x", -10), ("mid", -10), ("y", 5)]:
        tensor, quant = schema.TensorT(), schema.QuantizationParametersT()
        quant.scale, quant.zeroPoint = [1.0], [zero_point]
        tensor.name, tensor.shape, tensor.type, tensor.quantization = name, [1, 4], schema.TensorType.INT8, quant
        graph.tensors = [*(graph.tensors or []), tensor]
    for source, result in [(0, 1), (1, 2)]:
        op = schema.OperatorT()
        op.opcodeIndex, op.inputs, op.outputs = 0, [source], [result]
        graph.operators = [*(graph.operators or []), op]
    graph.inputs, graph.outputs = [0], [2]
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.RELU
    code.version = 2
    model.version, model.subgraphs, model.operatorCodes, model.buffers = 3, [graph], [code], [schema.BufferT()]
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))


def onnx_file(
    path: Path, nodes: list[Any], x: list[int], y: list[int], constants: dict[str, Any], kind: int = 1, result: int = 1
) -> None:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, x)],
        [helper.make_tensor_value_info("y", result, y)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def test_tflite_micro_tells_outputs_and_intermediate_results(tmp_path: Path) -> None:
    tflite_relus(tmp_path / "m.tflite")
    inputs = [[np.array([row], np.int8)] for row in ([-128, -10, 0, 127], [1, 2, 3, -50])]
    report = {"model": {"format": "tflite"}, "inputs": [INT8], "outputs": [{**INT8, "name": "y"}]}
    expected = reference(tmp_path / "m.tflite", inputs, report)
    assert expected.slack == 0
    assert [o[0].tolist() for o in expected.outputs] == [[[5, 5, 15, 127]], [[16, 17, 18, 5]]]
    assert [t["mid"].tolist() for t in expected.tensors] == [[[-10, -10, 0, 127]], [[1, 2, 3, -10]]]


def test_a_model_that_tflite_micro_refuses_is_a_diagnostic(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(b"\0" * 64)
    with pytest.raises(EdgebuildError, match="the TFLite Micro interpreter cannot run this model"):
        report = {"model": {"format": "tflite"}, "inputs": [INT8], "outputs": [{**INT8, "name": "y"}]}
        reference(tmp_path / "m.tflite", [[np.zeros(4, np.int8)]], report)


def test_an_operator_that_tflite_micro_has_not_is_named(tmp_path: Path) -> None:
    file = File()
    x, y = (file.tensor(name, (1, 4), "float32") for name in "xy")
    file.operator("LOCAL_RESPONSE_NORMALIZATION", [x], [y])
    (tmp_path / "m.tflite").write_bytes(file.pack([x], [y]))
    report = {"model": {"format": "tflite"}, "inputs": [{"dtype": "float32"}]}
    with pytest.raises(EdgebuildError) as refused:
        reference(tmp_path / "m.tflite", [[np.zeros((1, 4), np.float32)]], report)
    assert "LOCAL_RESPONSE_NORMALIZATION" in str(refused.value) and "line" not in str(refused.value)


def test_tflite_of_int16_with_a_real_output_is_compared_as_integers(tmp_path: Path) -> None:
    file, q = File(), Quant((0.1,), (0,))
    x, m = (file.tensor(name, (1, 4), "int16", q) for name in "xm")
    y = file.tensor("y", (1, 4), "float32")
    options = schema.LeakyReluOptionsT()
    options.alpha = 0.5
    file.operator("LEAKY_RELU", [x], [m], options)
    file.operator("DEQUANTIZE", [m], [y])
    model = tmp_path / "m.tflite"
    model.write_bytes(file.pack([x], [y]))
    vectors = np.array([[-32768, -10, 3, 32767]], np.int16)
    result = verify(model, load_target("host"), compile_model(ModelRequest(model, "model", "host")), vectors)
    assert result["equal"] and result["output"] == [-16384, -5, 3, 32767]


def test_tflite_with_a_real_surface_is_compared_as_integers(tmp_path: Path) -> None:
    """QUANTIZE and DEQUANTIZE at the ends, as the converter writes them: the firmware works on int8."""
    file = File()
    ports = [Quant((0.1,), (3,)), Quant((0.037,), (-20,))]
    x = file.tensor("x", (1, 6), "float32")
    q = file.tensor("q", (1, 6), "int8", ports[0])
    p = file.tensor("p", (1, 6), "int8", ports[1])
    y = file.tensor("y", (1, 6), "float32")
    for name, a, b in [("QUANTIZE", x, q), ("RELU", q, p), ("DEQUANTIZE", p, y)]:
        file.operator(name, [a], [b])
    model = tmp_path / "m.tflite"
    model.write_bytes(file.pack([x], [y]))
    target = load_target("host")
    vectors = np.array([[-128, -10, 3, 4, 60, 127], [5, 6, 7, 8, 9, 10]], np.int8)
    result = verify(model, target, compile_model(ModelRequest(model, "model", "host")), vectors)
    assert result["equal"] and result["output"] == [-20, -20, -20, -17, 127, 127]
    wrong = {"dtype": "int8", "name": "y", "scale": 0.03, "zero_point": -20}
    report = {"model": {"format": "tflite"}, "inputs": [{**INT8, "scale": 0.1}], "outputs": [wrong]}
    with pytest.raises(EdgebuildError, match="no multiples of the scale"):
        reference(model, [[vectors[:1]]], report)


@pytest.mark.parametrize("stored", [np.int8, np.uint8])
def test_onnx_with_a_real_surface_is_compared_as_integers(tmp_path: Path, stored: type) -> None:
    """x -> Q -> DQ -> Relu -> Q -> DQ -> y, fed with and compared as int8, whatever the file stores."""
    zero = np.array(3 if stored is np.int8 else 131, stored)
    names = ["x", "q", "d", "r", "p", "y"]
    kinds = ["QuantizeLinear", "DequantizeLinear", "Relu", "QuantizeLinear", "DequantizeLinear"]
    nodes = [
        helper.make_node(kind, [a] if kind == "Relu" else [a, "s", "z"], [b])
        for kind, a, b in zip(kinds, names, names[1:], strict=False)
    ]
    onnx_file(tmp_path / "m.onnx", nodes, [1, 4], [1, 4], {"s": np.float32(0.5), "z": zero})
    port = {**INT8, "shape": [1, 4]}
    report = {"model": {"format": "onnx"}, "inputs": [{**port, "name": "x"}], "outputs": [{**port, "name": "y"}]}
    expected = reference(tmp_path / "m.onnx", [[np.array([[-128, 2, 4, 127]], np.int8)]], report)
    assert expected.outputs[0][0].dtype == np.int8 and expected.slack == 1
    assert expected.outputs[0][0].tolist() == [[3, 3, 4, 127]]
    assert expected.tensors[0]["r"].tolist() == expected.tensors[0]["p"].tolist() == [[3, 3, 4, 127]]


def test_unsigned_numbers_without_a_scale_are_compared_as_they_are(tmp_path: Path) -> None:
    onnx_file(
        tmp_path / "m.onnx",
        [helper.make_node("Cast", ["x"], ["y"], to=2)],
        [1, 3],
        [1, 3],
        {},
        result=TensorProto.UINT8,
    )
    port = {"shape": [1, 3]}
    report = {"model": {"format": "onnx"}, "inputs": [{**port, "name": "x", "dtype": "float32"}]}
    report |= {"outputs": [{**port, "name": "y", "dtype": "uint8"}]}
    (y,) = reference(tmp_path / "m.onnx", [[np.array([[0, 100, 255]], np.float32)]], report).outputs[0]
    assert y.dtype == np.uint8 and y.tolist() == [[0, 100, 255]]


def test_a_sparse_constant_is_no_result(tmp_path: Path) -> None:
    """onnxruntime fails where one is an output."""
    places, values = np.array([1, 3]), np.array([5, 7], np.float32)
    sparse = helper.make_sparse_tensor(numpy_helper.from_array(values), numpy_helper.from_array(places), [4])
    nodes = [helper.make_node("Constant", [], ["c"], sparse_value=sparse), helper.make_node("Add", ["x", "c"], ["y"])]
    onnx_file(tmp_path / "m.onnx", nodes, [1, 4], [1, 4], {})
    port = {"shape": [1, 4], "dtype": "float32"}
    report = {"model": {"format": "onnx"}, "inputs": [{**port, "name": "x"}], "outputs": [{**port, "name": "y"}]}
    (y,) = reference(tmp_path / "m.onnx", [[np.ones((1, 4), np.float32)]], report).outputs[0]
    assert y.tolist() == [[1, 6, 1, 8]]


def test_onnx_inputs_go_from_nhwc_to_nchw_and_results_come_back(tmp_path: Path) -> None:
    onnx_file(tmp_path / "m.onnx", [helper.make_node("Neg", ["x"], ["y"])], [1, 3, 2, 4], [1, 3, 2, 4], {})
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 4, 3)
    port = {"dtype": "float32", "shape": [1, 2, 4, 3]}
    report = {"model": {"format": "onnx"}, "inputs": [{**port, "name": "x"}], "outputs": [{**port, "name": "y"}]}
    (y,) = reference(tmp_path / "m.onnx", [[x]], report).outputs[0]
    back = fit(y, port["shape"])
    assert back is not None and np.array_equal(back, -x)
    assert fit(y, [1, 5]) is None


def test_random_inputs_are_seeded_cover_int8_and_stay_inside_of_tables(tmp_path: Path) -> None:
    gather = helper.make_node("Gather", ["table", "x"], ["y"])
    onnx_file(
        tmp_path / "t.onnx", [gather], [1, 40], [1, 40, 2], {"table": np.zeros((6, 2), np.float32)}, TensorProto.INT32
    )
    report = {"model": {"format": "onnx"}, "inputs": [{"name": "x", "dtype": "int32", "shape": [1, 40]}]}
    drawn = np.stack([row[0] for row in random_inputs(tmp_path / "t.onnx", report, 5)])
    assert drawn.dtype == np.int32 and set(np.unique(drawn)) == set(range(6))

    tflite_relus(tmp_path / "m.tflite")
    report = {"model": {"format": "tflite"}, "inputs": [{"name": "x", "dtype": "int8", "shape": [1, 4000]}]}
    first, second = (random_inputs(tmp_path / "m.tflite", report, 2) for _ in range(2))
    assert first[0][0].min() == -128 and first[0][0].max() == 127
    assert np.array_equal(first[1][0], second[1][0]) and not np.array_equal(first[0][0], first[1][0])


def buffer(name: str, offset: int, first: int, last: int, memory: str = "RAM", **more: str) -> dict[str, Any]:
    return {"name": name, "offset": offset, "bytes": 8, "first": first, "last": last, "memory": memory, **more}


def test_what_is_still_valid_is_what_nothing_has_written_over() -> None:
    buffers = [
        buffer("early", 0, 0, 1),
        buffer("in_place_before", 8, 1, 3),
        buffer("in_place_after", 8, 3, 3, overlaps="in_place_before"),
        buffer("seen", 16, 2, 3),
        buffer("view", 16, 3, 3, view_of="seen"),
        buffer("elsewhere", 8, 2, 3, memory="DTCM"),
    ]
    standing = [b["name"] for b in _intact_buffers({"layout": {"buffers": buffers}})]
    assert standing == ["in_place_after", "seen", "view", "elsewhere"]
    assert _intact_buffers({"layout": {"buffers": []}}) == []


def cancelling(path: Path, slip: float = 0.0) -> tuple[bool, float]:
    """A sum of 4,096 terms that nearly cancel, of weights off by `slip`: whether equal, and the difference."""
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((4096, 1)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    onnx_file(path, nodes, [1, 4096], [1, 1], {"w": weights + np.float32(slip)})
    artifacts = compile_model(ModelRequest(path, "model", "host"))
    onnx_file(path, nodes, [1, 4096], [1, 1], {"w": weights})
    x = rng.standard_normal((1, 4096)).astype(np.float32)
    x[0, 0] -= (np.float64(x[0]) @ np.float64(weights[:, 0]) - 0.05) / weights[0, 0]
    result = verify(path, load_target("host"), artifacts, inputs=x)
    return result["equal"], result["max_abs_diff"]


def test_rounding_of_a_sum_that_cancels_is_no_difference(tmp_path: Path) -> None:
    equal, difference = cancelling(tmp_path / "net.onnx")
    assert difference > RELATIVE * 0.05, "no cancellation: the test shows nothing"
    assert equal
    equal, difference = cancelling(tmp_path / "net.onnx", 1e-5)
    assert not equal and difference > MAX_RELATIVE * 0.05


def test_rounding_of_a_mean_that_a_constant_cancels_is_no_difference(tmp_path: Path) -> None:
    """Moves of the inputs cancel in the mean of what they make; the constant that is added to it moves alone."""
    rng = np.random.default_rng(5)
    x, w = rng.uniform(0.5, 1.5, (1, 64)).astype(np.float32), rng.uniform(0, 1, (64, 64)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("ReduceMean", ["m"], ["mean"], axes=[1]),
        helper.make_node("Add", ["mean", "b"], ["y"]),
    ]
    bias = np.float32(-(np.float64(x) @ np.float64(w)).mean() + 0.05).reshape(1, 1)
    onnx_file(tmp_path / "net.onnx", nodes, [1, 64], [1, 1], {"w": w, "b": bias})
    artifacts = compile_model(ModelRequest(tmp_path / "net.onnx", "model", "host"))
    result = verify(tmp_path / "net.onnx", load_target("host"), artifacts, inputs=x)
    assert result["max_abs_diff"] > RELATIVE * 0.05, "no cancellation: the test shows nothing"
    assert result["equal"]


def test_constants_of_near_files_move_by_one_step_and_scales_stay(tmp_path: Path) -> None:
    rng, constant = np.random.default_rng(1), np.array([0.0, 1.5, -2.0, np.inf], np.float32)
    steps = np.float32([0.5]), np.int8([3])
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["r"]),
        helper.make_node("Add", ["r", "c"], ["y"]),
    ]
    onnx_file(tmp_path / "net.onnx", nodes, [4], [4], {"c": constant, "s": steps[0][0], "z": steps[1][0]})
    near = onnx.load(str(near_file(tmp_path / "net.onnx", "onnx", rng, tmp_path))).graph.initializer
    constants = {t.name: numpy_helper.to_array(t) for t in near}
    assert (constants["s"], constants["z"]) == (0.5, 3)

    draft = Draft(choice(1))
    given, result = draft.input((4,), dtype="float32"), draft.tensor("y", (4,), "float32")
    draft.operator("ADD", [given, draft.tensor("c", (4,), "float32", None, constant)], [result], schema.AddOptionsT())
    (tmp_path / "net.tflite").write_bytes(draft.pack([given], [result]))
    read = read_model(near_file(tmp_path / "net.tflite", "tflite", rng, tmp_path)).tensors["c"].data
    for moved in (constants["c"], read):
        assert moved is not None and moved[0] == 0 and np.isinf(moved[3])
        for m, c in zip(moved[1:3], constant[1:3], strict=True):
            assert m in (np.nextafter(c, np.float32(-9)), np.nextafter(c, np.float32(9)))


def test_a_file_without_interpreter_is_judged_as_it_was_read(tmp_path: Path) -> None:
    """Values are those of the ops' meanings: with the same shapes, and for real numbers with what rounding does."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["r"]),
        helper.make_node("Relu", ["r"], ["a"]),
        helper.make_node("QuantizeLinear", ["a", "s", "z"], ["b"]),
        helper.make_node("DequantizeLinear", ["b", "s", "z"], ["y"]),
    ]
    onnx_file(tmp_path / "net.onnx", nodes, [1, 0], [1, 0], {"s": np.float32(0.3), "z": np.int8(3)})
    net = onnx.load(tmp_path / "net.onnx")
    for value in (*net.graph.input, *net.graph.output):
        value.type.tensor_type.shape.dim[1].dim_param = "n"
    onnx.save(net, tmp_path / "net.onnx")
    shape = (("x", (1, 4)),)
    wanted = ModelRequest(tmp_path / "net.onnx", "model", "host", shape=shape, scales="power-of-two")
    result = verify(wanted.source, load_target("host"), compile_model(wanted), reading=(shape, ()))
    assert result["equal"] and result["judge"].startswith("the ops' meanings in numpy")

    file = written("linear", tmp_path / "net.pt2")
    artifacts = compile_model(ModelRequest(file, "model", "host", weights="asm"))
    assert verify(file, load_target("host"), artifacts)["equal"]
    wrong = [
        replace(a, data=a.data[:-1] + bytes([a.data[-1] ^ 1])) if a.name == "model_weights.bin" else a
        for a in artifacts
    ]
    assert not verify(file, load_target("host"), wrong)["equal"]


def test_sums_of_machines_move_and_thresholds_of_trees_stay(tmp_path: Path) -> None:
    """Attributes of ai.onnx.ml are constants as others are."""
    node = helper.make_node("LinearRegressor", ["x"], ["y"], domain="ai.onnx.ml", coefficients=[1.5, -2.0, 0.5, 3.0])
    node.attribute.append(helper.make_attribute("nodes_values", [1.5]))
    onnx_file(tmp_path / "net.onnx", [node], [1, 4], [1, 1], {})
    near = onnx.load(str(near_file(tmp_path / "net.onnx", "onnx", np.random.default_rng(1), tmp_path))).graph.node[0]
    attributes = {a.name: list(a.floats) for a in near.attribute}
    assert attributes["nodes_values"] == [1.5]
    assert all(0 < abs(a - b) < 1e-6 for a, b in zip(attributes["coefficients"], [1.5, -2.0, 0.5, 3.0], strict=True))


def test_a_step_of_eight_bits_is_never_rounding() -> None:
    value = np.array([1.0, -0.5], np.float32)
    assert limit(value, moved=1.0) < 1 / 255
    assert limit(np.array([100], np.int8), moved=1.0) == 0


def test_tensors_of_one_name_are_distinguished(tmp_path: Path) -> None:
    """An output between two other tensors of its name is compared with itself."""
    draft, q = File(), [Quant((0.1,), (z,)) for z in (-10, 5, 20)]
    ids = [draft.tensor("same" if i else "x", (1, 8), "int8", q[i]) for i in range(3)]
    for source, result in pairwise(ids):
        draft.operator("RELU", [source], [result])
    path = tmp_path / "same.tflite"
    path.write_bytes(draft.pack(ids[:1], [ids[2], ids[1]]))
    verdict = verify(path, load_target("host"), compile_model(ModelRequest(path, "model", "host")))
    assert verdict["equal"] and verdict["compared"] == ["same#2", "same"]


@pytest.mark.parametrize("second", ["RELU", "RELU6"])
def test_a_clamp_behind_a_relu6_of_another_quantisation(tmp_path: Path, second: str) -> None:
    """TFLite Micro's RELU6 keeps the operand's numbers, so what reads them next has bounds of its own."""
    file, named = File(), Quant((0.02,), (20,))
    x = file.tensor("x", (1, 64), "int8", Quant((0.1,), (-50,)))
    mid, y = (file.tensor(name, (1, 64), "int8", named) for name in ("mid", "y"))
    file.operator("RELU6", [x], [mid])
    file.operator(second, [mid], [y])
    (tmp_path / "m.tflite").write_bytes(file.pack([x], [y]))
    artifacts = compile_model(ModelRequest(tmp_path / "m.tflite", "model", "host"))
    assert verify(tmp_path / "m.tflite", load_target("host"), artifacts)["equal"]


def test_inputs_on_which_onnxruntime_fails_are_a_diagnostic(tmp_path: Path) -> None:
    path = tmp_path / "mod.onnx"
    ports = [helper.make_tensor_value_info(name, TensorProto.INT32, [1, 4]) for name in "aby"]
    graph = helper.make_graph([helper.make_node("Mod", ["a", "b"], ["y"])], "g", ports[:2], ports[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    artifacts = compile_model(ModelRequest(path, "model", "host"))
    least = np.iinfo(np.int32).min
    rows = np.array([[-least - 1, -5, least, 7, -least - 2, 3, least + 1, -2]], np.int32)
    assert verify(path, load_target("host"), artifacts, inputs=rows)["equal"]
    with pytest.raises(EdgebuildError, match="onnxruntime cannot run this model with these inputs"):
        verify(path, load_target("host"), artifacts, inputs=np.zeros((1, 8), np.int32))


def test_models_that_onnxruntime_refuses_are_a_diagnostic(tmp_path: Path) -> None:
    """Its LSTM has no layout of batches first, though the standard has."""
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in {"x": (1, 2, 3), "y": (1, 2, 1, 4)}.items()
    )
    stored = [numpy_helper.from_array(np.ones((1, 16, n), np.float32), f"w{n}") for n in (3, 4)]
    cell = helper.make_node("LSTM", ["x", "w3", "w4"], ["y"], hidden_size=4, layout=1)
    graph = helper.make_graph([cell], "g", [x], [y], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    artifacts = compile_model(ModelRequest(tmp_path / "m.onnx", "model", "host"))
    with pytest.raises(EdgebuildError, match="onnxruntime cannot run this model"):
        verify(tmp_path / "m.onnx", load_target("host"), artifacts)


def test_models_of_which_onnxruntime_dies_are_a_diagnostic(tmp_path: Path) -> None:
    """Its QLinearSigmoid looks for a zero point that its own schema lets out."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in "xy")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("QLinearSigmoid", ["q", "scale", "zero", "scale"], ["s"], domain="com.microsoft"),
        helper.make_node("DequantizeLinear", ["s", "scale"], ["y"]),
    ]
    stored = [numpy_helper.from_array(np.float32(0.01), "scale"), numpy_helper.from_array(np.uint8(3), "zero")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], stored), opset_imports=opsets, ir_version=9)
    onnx.save(model, tmp_path / "m.onnx")
    artifacts = compile_model(ModelRequest(tmp_path / "m.onnx", "model", "host"))
    with pytest.raises(EdgebuildError, match="onnxruntime cannot run this model"):
        verify(tmp_path / "m.onnx", load_target("host"), artifacts)


def test_intermediate_sequences_are_not_compared(tmp_path: Path) -> None:
    path, ports = tmp_path / "m.onnx", [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3]) for n in "xy"]
    nodes = [
        helper.make_node("SequenceConstruct", ["c", "c"], ["both"]),
        helper.make_node("SequenceAt", ["both", "one"], ["second"]),
        helper.make_node("Add", ["x", "second"], ["y"]),
    ]
    constants = {"c": np.arange(3, dtype=np.float32), "one": np.array(1)}
    stored = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    assert verify(path, load_target("host"), compile_model(ModelRequest(path, "model", "host")))["equal"]


def test_remainders_of_floats_are_exact(tmp_path: Path) -> None:
    """Quotients of many digits, divisors that are tiny or endless: a difference of products would be far off."""
    path, rng = tmp_path / "mod.onnx", np.random.default_rng(5)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in "aby"]
    graph = helper.make_graph([helper.make_node("Mod", ["a", "b"], ["y"], fmod=1)], "g", ports[:2], ports[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    rows = (rng.standard_normal((1, 128)) * np.repeat([1e5, 0.3], 64)).astype(np.float32)
    rows[0, :3], rows[0, 64:69] = (1e30, -1e-38, 3.5), (7.0, 1e-39, np.inf, -np.inf, 2.0**-140)
    result = verify(path, load_target("host"), compile_model(ModelRequest(path, "model", "host")), inputs=rows)
    assert result["equal"] and result["max_abs_diff"] == 0


@pytest.mark.parametrize("name", ["y@output", "y\u200b"])
def test_outputs_may_have_any_name(tmp_path: Path, name: str) -> None:
    """Also one that looks like a name of ours, and one with a character that the report escapes."""
    model = tmp_path / "m.onnx"
    x, y, same = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in ("x", name, "x"))
    graph = helper.make_graph([helper.make_node("Sigmoid", ["x"], [name])], "g", [x], [y, same])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), model)
    artifacts = compile_model(ModelRequest(model, "model", "host"))
    verdict = verify(model, load_target("host"), artifacts)
    assert verdict["equal"] and len(verdict["compared"]) == 2


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(("kind", "branch"), [(TensorProto.FLOAT16, False), (TensorProto.BFLOAT16, True)])
def test_files_in_16_bits_are_computed_in_float32(tmp_path: Path, kind: int, branch: bool) -> None:
    """On both sides: onnxruntime would round each result. Also inside of a branch."""
    weights = np.random.default_rng(3).normal(0, 1, (16, 4)).astype(helper.tensor_dtype_to_np_dtype(kind))
    inner = [
        helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(weights, "w")),
        helper.make_node("MatMul", ["half", "w"], ["z"]),
    ]
    nodes = [helper.make_node("Cast", ["x"], ["half"], to=kind)]
    if branch:
        z = helper.make_tensor_value_info("z", kind, [1, 4])
        graph = helper.make_graph(inner, "inner", [], [z])
        nodes.append(helper.make_node("If", ["yes"], ["last"], then_branch=graph, else_branch=graph))
    else:
        nodes += [*inner, helper.make_node("Identity", ["z"], ["last"])]
    nodes.append(helper.make_node("Cast", ["last"], ["y"], to=TensorProto.FLOAT))
    file = tmp_path / "half.onnx"
    onnx_file(file, nodes, [1, 16], [1, 4], {"yes": np.array(True)}, kind)
    result = verify(file, load_target("host"), compile_model(ModelRequest(file, "model", "host")))
    assert result["equal"] and result["max_abs_diff"] < 1e-5


@pytest.mark.needs("gcc")
def test_a_streamed_input_in_the_shape_of_its_first_reader(tmp_path: Path) -> None:
    """PixelUnshuffle begins with a Reshape to six dimensions, whose rows are brought."""
    nodes = [
        helper.make_node("Reshape", ["x", "six"], ["parts"]),
        helper.make_node("Relu", ["parts"], ["r"]),
        helper.make_node("Reshape", ["r", "four"], ["y"]),
    ]
    sizes = {"six": np.array([1, 4, 3, 2, 4, 2], np.int64), "four": np.array([1, 4, 6, 8], np.int64)}
    onnx_file(tmp_path / "net.onnx", nodes, [1, 4, 6, 8], [1, 4, 6, 8], sizes)
    request = ModelRequest(tmp_path / "net.onnx", "model", "host", stream_input="rows")
    assert verify(tmp_path / "net.onnx", load_target("host"), compile_model(request))["equal"]


@pytest.mark.needs("gcc")
def test_tflite_weights_of_float16(tmp_path: Path) -> None:
    """The converter writes a DEQUANTIZE behind each of them, which TFLite Micro has not."""
    draft, rng = Draft(choice(1)), np.random.default_rng(1)
    x, y = draft.input((1, 12), dtype="float32"), draft.tensor("y", (1, 5), "float32")
    wide = []
    for name, shape in {"w": (5, 12), "b": (5,)}.items():
        half = draft.tensor(f"half_{name}", shape, "float16", None, rng.normal(0, 1, shape).astype(np.float16))
        wide.append(draft.tensor(name, shape, "float32"))
        draft.operator("DEQUANTIZE", [half], [wide[-1]], schema.DequantizeOptionsT())
    draft.operator("FULLY_CONNECTED", [x, *wide], [y], schema.FullyConnectedOptionsT())
    (tmp_path / "net.tflite").write_bytes(draft.pack([x], [y]))
    artifacts = compile_model(ModelRequest(tmp_path / "net.tflite", "model", "host"))
    assert verify(tmp_path / "net.tflite", load_target("host"), artifacts)["equal"]


@pytest.mark.needs("gcc")
def test_a_network_without_inputs_is_run_too(tmp_path: Path) -> None:
    node = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.array([1, -2], np.float32)))
    outputs = [helper.make_tensor_value_info("k", TensorProto.FLOAT, [2])]
    model = helper.make_model(helper.make_graph([node], "g", [], outputs), ir_version=8)
    onnx.save(model, tmp_path / "constant.onnx")
    artifacts = compile_model(ModelRequest(tmp_path / "constant.onnx", "model", "host"))
    result = verify(tmp_path / "constant.onnx", load_target("host"), artifacts)
    assert result["equal"] and result["output"] == [1, -2]
