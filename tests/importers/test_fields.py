"""TFLite files in which one field is another: what no interpreter means is refused by name, the rest is as in TFLM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.ir import Quant
from edgebuild.model.verify import verify
from tests.graphs.tflite_models import TYPES, File
from tests.importers.test_loops import branches, loop

Change = Callable[[Any], None]
FLOAT16 = 1


def one_operator(name: str, result: str = "float32", options: Any = None, *constants: Any) -> bytes:
    """x, 2 x 6 of float32, and constants; the result has the shape of x."""
    f = File()
    x, y = f.tensor("x", (2, 6), "float32"), f.tensor("y", (2, 6), result)
    stored = [f.tensor(f"c{i}", c.shape, str(c.dtype), None, c) for i, c in enumerate(constants)]
    f.operator(name, [x, *stored], [y], options)
    return f.pack([x], [y])


def changed(data: bytes, change: Change) -> bytes:
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(data, 0))
    change(model)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def other_options(m: Any) -> None:
    op = m.subgraphs[0].operators[0]
    op.builtinOptions, op.builtinOptionsType = schema.AddOptionsT(), schema.BuiltinOptions.AddOptions


def endless_option(m: Any) -> None:
    m.subgraphs[0].operators[0].builtinOptions.alpha = float("-inf")


def input_twice(m: Any) -> None:
    m.subgraphs[0].inputs = [0, 0]


def half_result(m: Any) -> None:
    m.subgraphs[0].tensors[1].type = FLOAT16


def half_input(m: Any) -> None:
    m.subgraphs[0].tensors[0].type = FLOAT16


def whole_result(m: Any) -> None:
    m.subgraphs[0].tensors[1].type = TYPES["int32"]


def variable_constant(m: Any) -> None:
    m.subgraphs[0].tensors[2].isVariable = True


def short_constant(m: Any) -> None:
    m.buffers[m.subgraphs[0].tensors[2].buffer].data = [0] * 7


def written_input(m: Any) -> None:
    m.subgraphs[0].inputs = [0, 1]


def written_constant(m: Any) -> None:
    m.subgraphs[0].tensors[1].buffer = m.subgraphs[0].tensors[2].buffer


def left_out(m: Any) -> None:
    m.subgraphs[0].operators[0].inputs = [-1, 0]


def left_out_part(m: Any) -> None:
    m.subgraphs[0].operators[0].inputs = [0, -1]


def negative_size(m: Any) -> None:
    sizes = m.subgraphs[0].tensors[3]
    m.buffers[sizes.buffer].data = list(np.array([2, -2], np.int32).tobytes())


def negative_begin(m: Any) -> None:
    m.buffers[m.subgraphs[0].tensors[2].buffer].data = list(np.array([-1, 0], np.int32).tobytes())


def written_in_a_body(m: Any) -> None:
    """The last operator of the loop's body writes what the one before has written."""
    body = m.subgraphs[2]
    body.operators[-1].outputs = body.operators[-2].outputs


def body_writes_its_input(m: Any) -> None:
    body = m.subgraphs[2]
    body.operators[-1].outputs = [body.inputs[1]]


def branch_writes_twice(m: Any) -> None:
    branch = m.subgraphs[1]
    branch.operators.append(branch.operators[-1])


def two_functions(m: Any) -> None:
    """The second signature begins at a graph that the first one calls, too."""
    keys = {b"infer": 0, b"train": 1}
    m.signatureDefs = [schema.SignatureDefT(signatureKey=key, subgraphIndex=i) for key, i in keys.items()]


def two_names(m: Any) -> None:
    m.signatureDefs = [schema.SignatureDefT(signatureKey=key, subgraphIndex=0) for key in (b"infer", b"again")]


def two_graphs(m: Any) -> None:
    m.subgraphs.append(m.subgraphs[0])


ROW = np.arange(12, dtype=np.float32).reshape(2, 6)
SLICE = np.array([0, 0], np.int32), np.array([2, 6], np.int32)
LEAKY, ADD, PACKED = schema.LeakyReluOptionsT(), schema.AddOptionsT(), schema.ConcatenationOptionsT()
REFUSED: dict[str, tuple[Callable[[], bytes], Change, str]] = {
    "options": (lambda: one_operator("LEAKY_RELU", "float32", LEAKY), other_options, "options of another operator"),
    "endless": (lambda: one_operator("LEAKY_RELU", "float32", LEAKY), endless_option, "option Alpha is -inf"),
    "input twice": (lambda: one_operator("RELU"), input_twice, "input 'x' stands twice"),
    "half result": (lambda: one_operator("SQUARE"), half_result, "result 'y' is float16"),
    "half input": (lambda: one_operator("SQUARE"), half_input, "input 'x' is float16"),
    "whole result": (lambda: one_operator("SLICE", "float32", None, *SLICE), whole_result, "'y' int32"),
    "variable": (lambda: one_operator("ADD", "float32", ADD, ROW), variable_constant, "'c0' is a constant and a var"),
    "short": (lambda: one_operator("ADD", "float32", ADD, ROW), short_constant, "'c0' has 7 bytes of data"),
    "written input": (lambda: one_operator("RELU"), written_input, "'y' is an input and written"),
    "written constant": (
        lambda: one_operator("ADD", "float32", ADD, ROW), written_constant, "'y' is a constant and written"),
    "left out": (lambda: one_operator("ADD", "float32", ADD, ROW), left_out, "operand 0 is missing"),
    "left out part": (lambda: one_operator("CONCATENATION", "float32", PACKED, ROW), left_out_part, "operand 1 is m"),
    "size": (lambda: one_operator("SLICE", "float32", None, *SLICE), negative_size, r"sizes \[2, -2\]"),
    "begin": (lambda: one_operator("SLICE", "float32", None, *SLICE), negative_begin, r"begins \[-1, 0\]"),
    "twice in a loop": (loop, written_in_a_body, "is written twice"),
    "given to a loop": (loop, body_writes_its_input, "is an input and written"),
    "functions": (loop, two_functions, r"3 subgraphs; only .*(?s:.*)'infer' is 0, 'train' is 1(?s:.*)signature_keys"),
    "graphs": (lambda: one_operator("RELU"), two_graphs, "2 subgraphs; only models of one"),
    "twice in a branch": (branches, branch_writes_twice, "is written twice"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, tmp_path: Path) -> None:
    make, change, text = REFUSED[case]
    (tmp_path / "m.tflite").write_bytes(changed(make(), change))
    with pytest.raises(EdgebuildError, match=text):
        compile_model(model_request(tmp_path / "m.tflite", "model", "host", {}))


@pytest.mark.needs("gcc")
def test_one_function_may_have_two_names(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(changed(one_operator("RELU"), two_names))
    artifacts = compile_model(model_request(tmp_path / "m.tflite", "model", "host", {}))
    assert verify(tmp_path / "m.tflite", load_target("host"), artifacts)["equal"]


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("scale", [1.0, 0.001, float("nan")])
def test_scales_of_real_numbers_say_nothing(scale: float, tmp_path: Path) -> None:
    f, quant = File(), Quant((scale,), (3,))
    x, y = f.tensor("x", (2, 6), "float32", quant), f.tensor("y", (2, 6), "float32", quant)
    f.operator("FLOOR_MOD", [x, f.tensor("c", (6,), "float32", quant, ROW[0] + 1)], [y], schema.FloorModOptionsT())
    (tmp_path / "m.tflite").write_bytes(f.pack([x], [y]))
    artifacts = compile_model(model_request(tmp_path / "m.tflite", "model", "host", {}))
    assert verify(tmp_path / "m.tflite", load_target("host"), artifacts)["equal"]


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_a_border_is_the_zero_point_of_the_result(dtype: str, tmp_path: Path) -> None:
    """TFLite Micro pads with that of the result, though it moves the operand's numbers as they are; int16 with 0."""
    f = File()
    x = f.tensor("x", (1, 4, 3), dtype, Quant((0.1,), (-24,)))
    pads = f.tensor("pads", (3, 2), "int32", None, np.array([[0, 0], [1, 2], [0, 1]], np.int32))
    y = f.tensor("y", (1, 7, 4), dtype, Quant((0.2,), (5,)))
    f.operator("PAD", [x, pads], [y], schema.PadOptionsT())
    (tmp_path / "m.tflite").write_bytes(f.pack([x], [y]))
    artifacts = compile_model(model_request(tmp_path / "m.tflite", "model", "host", {}))
    assert verify(tmp_path / "m.tflite", load_target("host"), artifacts)["equal"]


@pytest.mark.parametrize(("lost", "text"), [("scale", "has no scale"), ("zeroPoint", "a scale and no zero point")])
def test_half_a_quantisation_is_refused(lost: str, text: str, tmp_path: Path) -> None:
    f, quant = File(), Quant((0.01,), (0,))
    ids = [f.tensor(name, (1, 6), "int16", quant) for name in "aby"]
    f.operator("MUL", ids[:2], ids[2:], schema.MulOptionsT())

    def lose(m: Any) -> None:
        setattr(m.subgraphs[0].tensors[2].quantization, lost, [])

    (tmp_path / "m.tflite").write_bytes(changed(f.pack(ids[:2], ids[2:]), lose))
    with pytest.raises(EdgebuildError, match=text):
        compile_model(model_request(tmp_path / "m.tflite", "model", "host", {}))


def test_places_of_more_dimensions_than_the_table_are_refused(tmp_path: Path) -> None:
    f = File()
    table, index = f.tensor("table", (12,), "float32", None, ROW.ravel()), f.tensor("x", (1, 1, 2), "int32")
    f.operator("GATHER_ND", [table, index], [y := f.tensor("y", (1, 1), "float32")])
    (tmp_path / "m.tflite").write_bytes(f.pack([index], [y]))
    with pytest.raises(EdgebuildError, match=r"places of shape \(1, 1, 2\) in \(12,\)"):
        compile_model(model_request(tmp_path / "m.tflite", "model", "host", {}))
