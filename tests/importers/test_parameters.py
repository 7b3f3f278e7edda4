"""Parameters that ONNX operators do not allow, on the standard's own node tests: refused as by onnxruntime."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.model.formats import read_model
from edgebuild.model.formats.onnx.onnx_checks import RANKS, RULES
from tests import bench_onnx

onnxruntime = pytest.importorskip("onnxruntime")
RECURRENT = ("LSTM", "GRU", "RNN")
RAW = ("LayerNormalization", "RMSNormalization", *RECURRENT)
TRIES: tuple[Any, ...] = (-1, 2, 3, "", "bogus")


@cache
def standard() -> dict[str, onnx.ModelProto]:
    """The first node test of each operator."""
    models: dict[str, onnx.ModelProto] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in bench_onnx.cases():
            models.setdefault(case.operator, case.model)
    return models


def runs(model: onnx.ModelProto) -> bool:
    """Whether onnxruntime loads it and runs it on zeros."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    constants = {t.name for t in model.graph.initializer}
    fed = {}
    for value in (v for v in model.graph.input if v.name not in constants):
        sizes = [d.dim_value for d in value.type.tensor_type.shape.dim]
        fed[value.name] = np.zeros(sizes, helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        session.run(None, fed)
    except Exception:  # onnxruntime has its own, and none in common
        return False
    return True


def changed(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Copies of a node test: each constant with one dimension more, each attribute of the table with other values."""
    node = model.graph.node[0]
    for at, constant in enumerate(model.graph.initializer):
        copy, data = deepcopy(model), numpy_helper.to_array(constant)
        copy.graph.initializer[at].CopyFrom(numpy_helper.from_array(data[None, None], constant.name))
        yield f"{constant.name} with dimensions more", copy
    for name, values in RULES["values"].get(node.op_type, {}).items():
        for value in (v for v in TRIES if isinstance(v, str) == isinstance(values[0], str)):
            copy = deepcopy(model)
            kept = [a for a in node.attribute if a.name != name]
            del copy.graph.node[0].attribute[:]
            copy.graph.node[0].attribute.extend([*kept, helper.make_attribute(name, value)])
            yield f"{name}={value}", copy
    if node.op_type in RECURRENT:
        copy = deepcopy(model)
        del copy.graph.node[0].attribute[:]
        yield "no attributes", copy


@pytest.mark.parametrize("operator", sorted({*RANKS, *RULES["values"], *RAW} & {*bench_onnx.OPERATORS}))
def test_what_onnxruntime_refuses_is_refused(operator: str, tmp_path: Path) -> None:
    whole, file = standard()[operator], tmp_path / "m.onnx"
    whole.ir_version = min(whole.ir_version, 10)
    if not runs(whole):
        pytest.skip("onnxruntime does not know the operator's version")
    accepted = []
    for what, model in changed(whole):
        onnx.save(model, file)
        try:
            read_model(file)
        except EdgebuildError:
            continue
        if not runs(model):
            accepted.append(what)
    assert not accepted
