"""Small operators of ai.onnx.ml that converters of scikit-learn write, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.model import ops
from edgebuild.model.formats import read_model
from edgebuild.model.passes.canonicalize import canonicalize
from tests.importers.test_onnx import onnxruntime_outputs

SHAPE = (4, 5)


def model(operator: str, elements: int, result: int, domain: int = 4, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(operator, ["x"], ["y"], "node", domain="ai.onnx.ml", **attributes)
    shape = (*SHAPE, len(attributes.get("cats_int64s", "ab"))) if operator == "OneHotEncoder" else SHAPE
    x, y = (helper.make_tensor_value_info(n, t, s) for n, t, s in (("x", elements, SHAPE), ("y", result, shape)))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", domain)]
    return helper.make_model(helper.make_graph([node], "ml", [x], [y]), opset_imports=opsets, ir_version=8)


def stored(*values: int) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.array(values, np.int64), "values")


INT, FLOAT = TensorProto.INT64, TensorProto.FLOAT
KEYS = {"keys_int64s": [3, -2, 7, 0]}
CASES: dict[str, tuple[Any, ...]] = {
    "whole numbers": ("LabelEncoder", INT, INT, {**KEYS, "values_int64s": [10, -20, 30, 40]}),
    "with a default": ("LabelEncoder", INT, INT, {**KEYS, "values_int64s": [1, 2, 3, 4], "default_int64": 99}),
    "into floats": ("LabelEncoder", INT, FLOAT, {**KEYS, "values_floats": [0.5, 1.5, -2.0, 7.0], "default_float": 9.0}),
    "into floats without a default": ("LabelEncoder", INT, FLOAT, {**KEYS, "values_floats": [0.5, 1.5, -2.0, 7.0]}),
    "tensors": ("LabelEncoder", INT, INT, {"keys_tensor": stored(1, 5, 2), "values_tensor": stored(4, 4, 9),
                                           "default_tensor": stored(77)}),
    "binarizer": ("Binarizer", FLOAT, FLOAT, {"threshold": 0.25}),
    "imputer": ("Imputer", FLOAT, FLOAT, {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0, 5.0],
                                            "replaced_value_float": float("nan")}),
    "categories": ("OneHotEncoder", INT, FLOAT, {"cats_int64s": [3, -2, 7, 0], "zeros": 1}),
    "categories of real numbers": ("OneHotEncoder", FLOAT, FLOAT, {"cats_int64s": [0, -1, 1], "zeros": 1}),
    "imputer of one": ("Imputer", FLOAT, FLOAT, {"imputed_value_floats": [8.0], "replaced_value_float": 0.25}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_equals_onnxruntime(name: str, tmp_path: Path) -> None:
    operator, elements, result, attributes = CASES[name]
    proto = model(operator, elements, result, **attributes)
    onnx.save(proto, tmp_path / "m.onnx")
    graph, rng = canonicalize(read_model(tmp_path / "m.onnx")), np.random.default_rng(7)
    for _ in range(5):
        x = rng.integers(-6, 12, SHAPE) if elements == INT else rng.normal(size=SHAPE).astype(np.float32)
        if elements == FLOAT:
            x[0, 0], x[2, 3] = 0.25, np.nan if operator == "Imputer" else -0.25
        mine, theirs = ops.run(graph, x)[graph.outputs[0]], onnxruntime_outputs(proto, [x])[0]
        np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(np.signbit(mine), np.signbit(theirs))  # the default is -0


@pytest.mark.parametrize("elements", [INT, FLOAT])
def test_columns_beside_each_other(elements: int, tmp_path: Path) -> None:
    """Operands with as many columns as are asked for, with more, and with fewer."""
    shapes = [(4, 3), (4, 5), (4, 2), (4, 1)]
    names = [f"x{i}" for i in range(4)]
    sizes = {"inputdimensions": [3, 2, 4, 1]}
    node = helper.make_node("FeatureVectorizer", names, ["y"], "node", domain="ai.onnx.ml", **sizes)
    ports = [helper.make_tensor_value_info(n, elements, s) for n, s in zip(names, shapes, strict=True)]
    graph = helper.make_graph([node], "ml", ports, [helper.make_tensor_value_info("y", FLOAT, (4, 10))])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(proto, tmp_path / "m.onnx")
    values = [np.random.default_rng(7).integers(-9, 9, s) for s in shapes]
    values = [x if elements == INT else x.astype(np.float32) for x in values]
    mine = ops.run(canonicalize(read_model(tmp_path / "m.onnx")), *values)
    np.testing.assert_array_equal(mine["y"], onnxruntime_outputs(proto, values)[0])


def test_categories_that_are_words_are_refused(tmp_path: Path) -> None:
    proto = model("OneHotEncoder", INT, FLOAT, cats_strings=["a", "b"])
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match="words"):
        read_model(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"keys_int64s": [4], "values_strings": ["a"]}, "words"),
        ({"keys_int64s": [0, 1 << 20], "values_int64s": [1, 2]}, "between"),
        ({"keys_floats": [0.5], "values_int64s": [1]}, "whole numbers"),
    ],
)
def test_what_is_refused_says_why(attributes: dict[str, Any], message: str, tmp_path: Path) -> None:
    kind = FLOAT if "keys_floats" in attributes else INT
    result = TensorProto.STRING if "values_strings" in attributes else INT
    onnx.save(model("LabelEncoder", kind, result, **attributes), tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match=message):
        read_model(tmp_path / "m.onnx")
