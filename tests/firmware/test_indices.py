"""Sizes that indices among a model's inputs stay below."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.model.verify.vectors import bounds

X = (11, 7, 5)
# Operator, shape of its index, attributes, sizes that the index counts
LOOKUPS: list[tuple[str, tuple[int, ...], dict[str, int], list[int]]] = [
    ("Gather", (2,), {}, [11]),
    ("Gather", (2,), {"axis": 2}, [5]),
    ("GatherElements", (11, 7, 5), {"axis": 1}, [7]),
    ("GatherND", (4, 2), {}, [11, 7]),
    ("GatherND", (11, 2), {"batch_dims": 1}, [7, 5]),
    ("ScatterND", (4, 1), {}, [11]),
]


def saved(folder: Path, nodes: list[Any], inputs: dict[str, tuple[int, tuple[int, ...]]], **tables: Any) -> Path:
    given = [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()]
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in tables.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", given, [result], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.parametrize(("operator", "shape", "attributes", "sizes"), LOOKUPS)
def test_an_index_among_the_inputs(
    operator: str, shape: tuple[int, ...], attributes: dict[str, int], sizes: list[int], tmp_path: Path
) -> None:
    inputs = {"x": (TensorProto.FLOAT, X), "i": (TensorProto.INT64, shape)}
    updates = ["u"] if operator.startswith("Scatter") else []
    inputs |= {"u": (TensorProto.FLOAT, (4, 7, 5))} if updates else {}
    nodes = [helper.make_node("Identity", ["i"], ["j"]), helper.make_node("Reshape", ["j", "shape"], ["k"]),
             helper.make_node(operator, ["x", "k", *updates], ["y"], **attributes)]  # fmt: skip
    file = saved(tmp_path, nodes, inputs, shape=np.array(shape, np.int64))
    assert bounds(file) == (None, {"i": min(sizes)})


def test_the_smallest_table_counts_and_constant_indices_do_not(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Concat", ["i", "j"], ["both"], axis=0),
        helper.make_node("Gather", ["large", "both"], ["a"]),
        helper.make_node("Reshape", ["j", "s"], ["k"]),
        helper.make_node("Gather", ["small", "k"], ["b"]),
        helper.make_node("Gather", ["a", "fixed"], ["c"]),
        helper.make_node("Sum", ["b", "c"], ["y"]),
    ]
    inputs = dict.fromkeys("ijs", (TensorProto.INT64, (2,)))
    tables = {"large": np.ones((9, 3), np.float32), "small": np.ones((4, 3), np.float32), "fixed": np.array([0, 1])}
    assert bounds(saved(tmp_path, nodes, inputs, **tables)) == (4, {"i": 9, "j": 4})
