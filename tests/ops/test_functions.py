"""Functions of one float over all that a float can be, against numpy in double precision."""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.ir import Array
from edgebuild.model.verify import verify

EXACT: dict[str, Callable[[Array], Array]] = {
    "Acos": np.arccos, "Acosh": np.arccosh, "Asin": np.arcsin, "Asinh": np.arcsinh, "Atan": np.arctan,
    "Atanh": np.arctanh, "Ceil": np.ceil, "Cos": np.cos, "Cosh": np.cosh, "Erf": np.vectorize(erf), "Exp": np.exp,
    "Floor": np.floor, "Log": np.log, "Reciprocal": np.reciprocal, "Round": np.rint,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Sin": np.sin, "Sinh": np.sinh,
    "Softplus": lambda x: np.logaddexp(x, 0), "Sqrt": np.sqrt, "Tan": np.tan, "Tanh": np.tanh,
}  # fmt: skip
ZEROS = ("Acos", "Acosh", "Cos", "Log", "Sin", "Tan")  # elsewhere than at 0: errors near them count against 1
ENDS = [0.0, -0.0, 1.0, -1.0, 2047.999, 2048.0, 3.4028235e38, -3.4028235e38, np.inf, -np.inf, np.nan]


def values() -> Array:
    """Of every size, near 0, near the bounds of domains, and the ends of the range."""
    r = np.random.default_rng(7)
    sizes = 10.0 ** r.uniform(-37, 38.5, 1500) * r.choice([-1, 1], 1500)
    return np.concatenate([sizes, r.normal(0, 1, 500), r.uniform(-3000, 3000, 500), ENDS]).astype(np.float32)


@pytest.mark.needs("gcc")
def test_functions_of_all_floats(tmp_path: Path) -> None:
    x, file = values(), tmp_path / "m.onnx"
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, len(x)]) for name in ("x", *EXACT)]
    nodes = [helper.make_node(name, ["x"], [name]) for name in EXACT]
    graph = helper.make_graph(nodes, "functions", ports[:1], ports[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), file)
    artifacts = compile_model(ModelRequest(file, "model", "host"))
    verdict = verify(file, load_target("host"), artifacts, x[None])
    with np.errstate(all="ignore"):
        for name, seen in zip(EXACT, np.array(verdict["output"], np.float64).reshape(len(EXACT), -1), strict=True):
            exact = EXACT[name](x.astype(np.float64))
            rounded = exact.astype(np.float32)
            finite = np.isfinite(rounded)
            assert np.array_equal(seen[~finite], rounded[~finite], equal_nan=True), name
            limit = 1e-6 * np.abs(exact[finite]) + 1e-6 * (name in ZEROS)
            assert np.all(np.abs(seen[finite] - exact[finite]) <= np.maximum(limit, 1e-37)), name
