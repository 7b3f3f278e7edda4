"""Nodes against their operators' signatures: the table is onnxruntime's, and what breaks it is refused as there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from edgebuild.base.errors import EdgebuildError
from edgebuild.model.formats import read_model
from edgebuild.model.formats.onnx.onnx_checks import CODES, MICROSOFT, TABLE, check_types, signature

state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
ADD: tuple[tuple[float | int, type], ...]
ADD = ((0.1, np.float32), (1, np.int8), (3, np.int8), (0.2, np.float32), (1, np.int8), (0.3, np.float32), (1, np.int8))
Change = Callable[[onnx.ModelProto], Any]


def schema_of(name: str) -> Any:
    """onnxruntime's first version of a norm is an operator of its own that it counts to the standard.

    So does the standard's of groups, which is deprecated.
    """
    own = ((MICROSOFT, name, 1), ("", name, 1), ("", name, 18))
    schemas = {(s.domain, s.name, s.since_version): s for s in state.get_all_operator_schema()}
    return next(schemas[key] for key in own if key in schemas)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_the_table_is_that_of_onnxruntime(name: str) -> None:
    schema, own = schema_of(name), signature(MICROSOFT, name, 1)
    assert own is not None and own.attributes is not None
    types = {t.type_param_str: {CODES[k] for k in t.allowed_type_strs} for t in schema.type_constraints}
    ports = list(own.inputs)
    if own.again:  # onnxruntime says no more than that there may be more of them
        ports, schema_inputs = ports[: -own.again], schema.inputs[:-1]
    else:
        schema_inputs = schema.inputs
    for mine, theirs in ((ports, schema_inputs), (own.outputs, schema.outputs)):
        assert len(mine) == len(theirs)
        for port, formal in zip(mine, theirs, strict=True):
            allowed = types.get(formal.typeStr) or {CODES[formal.typeStr]}
            assert set(port.types) == allowed, formal.name
            assert port.optional == ("Optional" in str(formal.option)), formal.name
        names: dict[str, set[str]] = {}
        for port, formal in zip(mine, theirs, strict=True):
            names.setdefault(port.variable, set()).add(formal.typeStr)
        assert all(len(kinds) == 1 for kinds in names.values()), names
    assert {n: required for n, (_, required) in own.attributes.items()} == {
        n: a.required for n, a in schema.attributes.items()
    }


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of what computes the cases' own values
def test_all_nodes_of_the_standard_s_own_tests_are_right() -> None:
    cases = [case.model for case in collect_testcases(None)]
    assert len(cases) > 1000
    for model in cases:
        check_types(model, "file")


def addition() -> onnx.ModelProto:
    """QLinearAdd of an input and a constant."""
    constants = [numpy_helper.from_array(np.array(v, t), f"c{i}") for i, (v, t) in enumerate(ADD)]
    node = helper.make_node("QLinearAdd", ["x", *(c.name for c in constants)], ["y"], "node", domain=MICROSOFT)
    ports = [[helper.make_tensor_value_info(n, TensorProto.INT8, [2, 3])] for n in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(helper.make_graph([node], "g", *ports, constants), opset_imports=opsets, ir_version=9)


def operand(model: onnx.ModelProto) -> None:
    model.graph.node[0].input.append("c6")


def result(model: onnx.ModelProto) -> None:
    model.graph.node[0].output.append("more")


def left_out(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[1] = ""


def another_type(model: onnx.ModelProto) -> None:
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.array(1, np.uint8), "c1"))


def scale_in_half(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(0.1, np.float16), "c0"))


def scale_with_a_dimension(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([0.1], np.float32), "c0"))


def declared(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32


def attribute(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.append(helper.make_attribute("axis", 1))


def domain(model: onnx.ModelProto) -> None:
    model.graph.node[0].domain = "org.example"
    model.opset_import.append(helper.make_opsetid("org.example", 1))


CHANGES = [
    (operand, "9 operands; at most 8"),
    (result, "2 results; at most 1"),
    (left_out, "operand 1 is missing"),
    (another_type, "operand 2 'c1' is UINT8, and one before it INT8"),
    (scale_in_half, "operand 1 'c0' is FLOAT16"),
    (scale_with_a_dimension, "operand 1 is no scalar"),
    (declared, "'y' is declared as INT32 and computed as INT8"),
    (attribute, "attribute 'axis'"),
    (domain, "operator org.example.QLinearAdd is not supported"),
]


def loads(model: onnx.ModelProto) -> bool:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # onnxruntime has its own, and none in common
        return False
    return True


def test_the_right_node_is_read(tmp_path: Path) -> None:
    onnx.save(addition(), tmp_path / "m.onnx")
    assert loads(addition())
    assert read_model(tmp_path / "m.onnx").ops


@pytest.mark.parametrize(("change", "message"), CHANGES, ids=[c.__name__ for c, _ in CHANGES])
def test_a_wrong_node_is_refused_as_by_onnxruntime(change: Change, message: str, tmp_path: Path) -> None:
    model = addition()
    change(model)
    assert not loads(model)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match=message):
        read_model(tmp_path / "m.onnx")


def test_concatenations_take_operands_by_threes(tmp_path: Path) -> None:
    """Scale and zero point of the result, then value, scale and zero point of each operand."""
    constants = [("s", 0.3, np.float32), ("z", 1, np.int8), ("a", 0.1, np.float32)]
    stored = [numpy_helper.from_array(np.array(v, t), n) for n, v, t in constants]
    for names, right in ((["x", "a", "z"] * 2, True), (["x", "a", "z", "x", "a"], False), (["x", "a"], False)):
        node = helper.make_node("QLinearConcat", ["s", "z", *names], ["y"], "node", domain=MICROSOFT, axis=1)
        ports = [[helper.make_tensor_value_info(n, TensorProto.INT8, [2, k])] for n, k in (("x", 3), ("y", 6))]
        graph = helper.make_graph([node], "g", *ports, stored)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        assert loads(model) == right
        if right:
            check_types(model, "file")
        else:
            with pytest.raises(EdgebuildError, match="operand"):
                check_types(model, "file")
