"""Constants that are computed while an ONNX file is read: those of absurd size are refused before any work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.model.formats.onnx.onnx_reader import read_onnx
from edgebuild.model.ir import Array, Graph
from edgebuild.model.ops import run

HUGE, ONES = 2**31, np.ones((1, 1, 4, 4), np.float32)
RNG = np.random.default_rng(0)
node = helper.make_node


def longs(*values: int) -> Array:
    return np.array(values, np.int64)


def written(folder: Path, nodes: Sequence[onnx.NodeProto], constants: dict[str, Array]) -> Path:
    """A model that adds the sum of the shape of 'z', which the nodes make of the constants, to its input."""
    ends = [
        node("Shape", ["z"], ["shape"]),
        node("Cast", ["shape"], ["real"], to=TensorProto.FLOAT),
        node("ReduceSum", ["real"], ["sum"], keepdims=0),
        node("Add", ["x", "sum"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
    stored = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph([*nodes, *ends], "computed", [x], [y], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")
    return folder / "m.onnx"


ZEROS = node("ConstantOfShape", ["shape of a"], ["a"])
LARGE: dict[str, tuple[list[onnx.NodeProto], dict[str, Array]]] = {
    "Tile": ([node("Tile", ["a", "n"], ["z"])], {"a": ONES, "n": longs(1, 1, HUGE, 1)}),
    "Pad": ([node("Pad", ["a", "n"], ["z"])], {"a": ONES, "n": longs(0, 0, 0, 0, 0, 0, HUGE, 0)}),
    "scales": ([node("Resize", ["a", "", "n"], ["z"])], {"a": ONES, "n": np.array([1, 1, 3e4, 3e4], np.float32)}),
    "sizes": ([node("Resize", ["a", "", "", "n"], ["z"], mode="cubic")], {"a": ONES, "n": longs(1, 1, 5000, 5000)}),
    "Expand": ([node("Expand", ["a", "n"], ["z"])], {"a": np.ones(1, np.float32), "n": longs(2**20, 2**20)}),
    "ConstantOfShape": ([node("ConstantOfShape", ["n"], ["z"])], {"n": longs(2**20, 2**20)}),
    "Range": ([node("Range", ["a", "b", "c"], ["z"])], {"a": np.array(0), "b": np.array(2**40), "c": np.array(1)}),
    "OneHot": (
        [node("OneHot", ["a", "n", "values"], ["z"])],
        {"a": longs(1), "n": np.array(2**40), "values": np.zeros(2, np.float32)},
    ),
    "Einsum": ([ZEROS, node("Einsum", ["a", "a"], ["z"], equation="i,j->ij")], {"shape of a": longs(100_000)}),
    "MatMul": (
        [ZEROS, node("Transpose", ["a"], ["b"], perm=[1, 0]), node("MatMul", ["b", "a"], ["z"])],
        {"shape of a": longs(1, 100_000)},
    ),
    "Gather": (
        [ZEROS, node("Cast", ["a"], ["i"], to=TensorProto.INT64), node("Gather", ["t", "i"], ["z"])],
        {"shape of a": longs(10_000), "t": np.ones((1, 10_000), np.float32)},
    ),
    "padding of Conv": (
        [node("Conv", ["a", "w"], ["z"], pads=[100_000] * 4)],
        {"a": ONES, "w": np.ones((1, 1, 1, 1), np.float32)},
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_constants_of_absurd_size(name: str, tmp_path: Path) -> None:
    with pytest.raises(EdgebuildError, match=r"a constant of shape [0-9x]+ is too large"):
        read_onnx(written(tmp_path, *LARGE[name]))


def test_windows_and_products_of_absurd_number(tmp_path: Path) -> None:
    pool = node("MaxPool", ["a"], ["z"], kernel_shape=[1000, 1000])
    with pytest.raises(EdgebuildError, match=r"a constant of [0-9]+ elements under its windows is too large"):
        read_onnx(written(tmp_path, [ZEROS, pool], {"shape of a": longs(1, 1, 2000, 2000)}))
    with pytest.raises(EdgebuildError, match="a constant of 8000000000 products is too large"):
        read_onnx(written(tmp_path, [ZEROS, node("MatMul", ["a", "a"], ["z"])], {"shape of a": longs(2000, 2000)}))


def loop(turns: int, *nodes: onnx.NodeProto) -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    """Nodes and constants of a loop whose body makes 'new' of 'old'."""
    given = [("turn", TensorProto.INT64, []), ("go", TensorProto.BOOL, []), ("old", TensorProto.FLOAT, None)]
    results = [("again", TensorProto.BOOL, []), ("new", TensorProto.FLOAT, None)]
    surface = [[helper.make_tensor_value_info(*v) for v in values] for values in (given, results)]
    body = helper.make_graph([node("Identity", ["go"], ["again"]), *nodes], "body", *surface)
    constants = {"n": np.array(turns), "true": np.array(True), "a": np.ones(1, np.float32)}
    return [node("Loop", ["n", "true", "a"], ["z"], body=body)], constants


def test_loops_on_constants_alone(tmp_path: Path) -> None:
    doubled = node("Concat", ["old", "old"], ["new"], axis=0)
    assert read_onnx(written(tmp_path, *loop(4, doubled))).ops
    with pytest.raises(EdgebuildError, match="a constant of shape 8388608 is too large"):
        read_onnx(written(tmp_path, *loop(60, doubled)))
    with pytest.raises(EdgebuildError, match="more than 256 turns"):
        read_onnx(written(tmp_path, *loop(2**40, node("Identity", ["old"], ["new"]))))


def test_constants_that_are_too_large_together(tmp_path: Path) -> None:
    many = [node("Neg", [f"a{i}" if i else "a"], [f"a{i + 1}"]) for i in range(20)]
    with pytest.raises(EdgebuildError, match="a constant of shape 4194304 is too large"):
        read_onnx(written(tmp_path, [ZEROS, *many, node("Neg", ["a20"], ["z"])], {"shape of a": longs(2**22)}))


def test_ranges_without_an_end_and_operands_that_do_not_fit(tmp_path: Path) -> None:
    ends = {"a": np.float32(0), "b": np.float32(np.inf), "c": np.float32(1)}
    with pytest.raises(EdgebuildError, match=r"a range from 0\.0 to inf in steps of 1\.0"):
        read_onnx(written(tmp_path, [node("Range", ["a", "b", "c"], ["z"])], {k: np.array(v) for k, v in ends.items()}))
    with pytest.raises(EdgebuildError, match="cannot be computed from its constants"):  # NonZero has no op
        bad = [node("NonZero", ["a"], ["n"]), node("Cast", ["n"], ["p"], to=1), node("Det", ["p"], ["z"])]
        read_onnx(written(tmp_path, bad, {"a": longs(2, 1, 1)}))


def test_functions_of_the_standard_have_their_default_attributes(tmp_path: Path) -> None:
    graph = read_onnx(written(tmp_path, [node("HannWindow", ["n"], ["z"])], {"n": np.array(8)}))
    (sums,) = (t for t in graph.tensors.values() if t.name == "sum")
    assert sums.data is not None and sums.data == 8


def test_an_operator_computes_what_the_evaluator_is_too_strict_for(tmp_path: Path) -> None:
    """PyTorch gives the axis of CumSum as a list of one."""
    nodes = [node("CumSum", ["a", "axis"], ["sizes"]), node("ConstantOfShape", ["sizes"], ["z"])]
    graph = read_onnx(written(tmp_path, nodes, {"a": longs(1, 2, 3), "axis": longs(0)}))
    assert [op.kind for op in graph.ops] == ["add"]
    (total,) = (t.data for t in graph.tensors.values() if t.name == "sum")
    assert total == 1 + 3 + 6  # the sum of the shape


@pytest.mark.parametrize("condition", [[[True]], [[False]], [[True, False, True, True]]])
def test_constants_may_hold_nan_where_no_op_computes_with_it(condition: list[list[bool]], tmp_path: Path) -> None:
    """As in jax.numpy.var: Where chooses between a variance and NaN by a condition that is the same everywhere."""
    sizes = {"x": 1, "z": 2, "s": 2}
    x, *outputs = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [m, 4]) for n, m in sizes.items())
    constants = {"c": np.array(condition), "nan": np.full((2, 1), np.nan, np.float32)}
    stored = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    nodes = [node("Where", ["c", "x", "nan"], ["z"]), node("Add", ["x", "nan"], ["s"])]

    def read(count: int) -> Graph:
        graph = helper.make_graph(nodes[:count], "choice", [x], outputs[:count], stored)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, tmp_path / "m.onnx")
        return read_onnx(tmp_path / "m.onnx")

    value, graph = RNG.normal(size=(1, 4)).astype(np.float32), read(1)
    expected = np.where(condition, value, np.full((2, 4), np.nan, np.float32))
    assert np.array_equal(run(graph, value)[graph.outputs[0]], expected, equal_nan=True)
    assert any(op.attrs.get("function") == "where" for op in graph.ops) == (len(condition[0]) > 1)
    with pytest.raises(EdgebuildError, match="constant 'nan' holds values that are not numbers"):
        read(2)
