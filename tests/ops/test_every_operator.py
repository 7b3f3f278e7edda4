"""Every operator name that a reader accepts is compared with an oracle: TFLM, onnxruntime, the standard's own tests."""

from __future__ import annotations

import json
import re
import warnings
from collections import defaultdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.model import ops
from edgebuild.model.formats import read_model
from edgebuild.model.formats.onnx.onnx_operators import READERS as ONNX_READERS
from edgebuild.model.formats.tflite.tflite_operators import READERS as TFLITE_READERS
from edgebuild.model.formats.tflite.tflite_reader import read_tflite
from edgebuild.model.ir import Array, Quant
from edgebuild.model.passes.canonicalize import canonicalize
from edgebuild.model.verify.rounding import largest
from tests.conftest import ROOT
from tests.fuzz import onnx_writer
from tests.fuzz.networks import drawn
from tests.fuzz.recipe import choice
from tests.graphs import OPERATORS
from tests.graphs.tflite_models import VALID, Draft, schema
from tests.importers.test_onnx import onnxruntime_outputs
from tests.ops.test_tflm import interpreted

# Operators that the converter writes and TFLM has not; what they are made of is compared in other tests.
UNKNOWN_TO_TFLM = {"GELU", "POW", "REDUCE_ANY", "REDUCE_PROD", "RELU_N1_TO_1", "SELECT", "SIGN", "TILE"}
UNKNOWN_TO_TFLM |= {"LOCAL_RESPONSE_NORMALIZATION", "ONE_HOT", "TOPK_V2", "RELU_0_TO_1", "REVERSE_SEQUENCE", "DENSIFY"}
NETWORKS = 120
SURFACE = {np.dtype(t) for t in (np.float32, np.int8, np.uint8, np.int32, np.int64, np.bool_)}


def test_every_tflite_operator_has_a_strategy() -> None:
    """Operators with a generator here are compared with TFLM by test_tflm.py; others have files of their own."""
    drawn = {name.split()[0] for name in OPERATORS}
    files = (
        ROOT / f"tests/importers/test_{name}.py"
        for name in ("state", "lstm", "loops", "detection", "signal", "beyond_tflm", "landmarks")
    )
    words = {word for file in files for word in re.findall(r'"[^"\n]*"', file.read_text(encoding="utf-8"))}
    missing = set(TFLITE_READERS) - drawn - UNKNOWN_TO_TFLM
    missing = {name for name in missing if not {f'"{name}"', f'"{name.removeprefix("custom ")}"'} & words}
    assert not missing, (
        f"{sorted(missing)}: add to OPERATORS in tests/graphs/tflite_tables.py how a file of each is drawn, or to "
        "UNKNOWN_TO_TFLM in tests/ops/test_every_operator.py that TFLite Micro has no such operator"
    )


@pytest.mark.parametrize("name", sorted(UNKNOWN_TO_TFLM))
def test_tflm_has_no_such_operator(name: str, tmp_path: Path) -> None:
    f = Draft(choice(0))
    x = f.input((1, 4), None, "float32")
    data = f.done(name, [x, x], (1, 4), None, None, "float32")
    with pytest.raises(AssertionError, match=f"Didn't find op for builtin opcode '{name}'"):
        interpreted([data], [[[np.zeros((1, 4), np.float32)]]], tmp_path)


def test_an_activation_of_its_own_is_that_which_tflm_fuses(tmp_path: Path) -> None:
    """RELU_N1_TO_1 against an average of single elements with this activation fused."""
    models = {}
    for fused in (False, True):
        f = Draft(choice(3))
        q, shape = f.quant(0.03), (1, 3, 5, 2)
        options = schema.Pool2DOptionsT()
        options.padding, options.strideH, options.strideW, options.filterHeight, options.filterWidth = VALID, 1, 1, 1, 1
        options.fusedActivationFunction = 2
        name = "AVERAGE_POOL_2D" if fused else "RELU_N1_TO_1"
        models[fused] = f.done(name, [f.input(shape, q)], shape, q, options if fused else None)
    x = np.random.default_rng(0).integers(-128, 128, (1, 3, 5, 2)).astype(np.int8)
    (want,) = interpreted([models[True]], [[[x]]], tmp_path)
    graph = read_tflite(models[False], "n1.tflite")
    np.testing.assert_array_equal(ops.run(graph, x)[graph.outputs[0]], want[0][0])
    assert len(np.unique(want[0][0])) > 5


@pytest.mark.parametrize("name", ["EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"])
def test_int16_values_are_compared_as_real_numbers(name: str) -> None:
    """TFLM says that no int16 is greater than another one, and has none of the other comparisons."""
    f, scales = Draft(choice(5, integer="int16")), (2.0**-8, 2.0**-10)
    operands = [f.input((1, 64), Quant((scale,), (0,))) for scale in scales]
    options = getattr(schema, f"{name.title().replace('_', '')}OptionsT")()
    graph = read_tflite(f.done(name, operands, (1, 64), None, options, "bool"), "compared.tflite")
    rng = np.random.default_rng(1)
    a, b = rng.integers(-8000, 8000, (1, 64)), rng.integers(-32000, 32000, (1, 64))
    b = np.where(np.arange(64) % 4 == 0, 4 * a, b)  # a quarter is equal
    want = getattr(np, name.lower())(a * scales[0], b * scales[1])
    have = ops.run(graph, a.astype(np.int16), b.astype(np.int16))[graph.outputs[0]]
    np.testing.assert_array_equal(have, want)
    assert want.any() and not want.all()


@pytest.mark.parametrize(("kind", "q"), [("float32", None), ("int8", Quant((0.05,), (3,))), ("bool", None)])
@pytest.mark.parametrize("axis", [-1, 0, 1, 2])
def test_one_hot(kind: str, q: Quant | None, axis: int, tmp_path: Path) -> None:
    """Against TFLM's EQUAL of indices and places. Indices below 0 and beyond the depth are nowhere."""
    f, shape, (on, off) = Draft(choice(0)), [2, 3], (1, 0) if kind == "bool" else (5, -2)
    shape.insert(2 if axis < 0 else axis, 4)
    numbers = {"depth": np.array(4, np.int32), "on": np.array(on, kind), "off": np.array(off, kind)}
    operands = [f.tensor(n, (), str(v.dtype), None if n == "depth" else q, v) for n, v in numbers.items()]
    options = schema.OneHotOptionsT()
    options.axis = axis
    graph = read_tflite(f.done("ONE_HOT", [f.input((2, 3), None, "int32"), *operands], shape, q, options, kind), "f")
    index = np.array([[0, 3, -1], [4, 1, 1]], np.int32)
    wide = np.expand_dims(index, axis)
    same, places = Draft(choice(0)), np.arange(4).reshape([4 if n == 1 else 1 for n in wide.shape])
    compared = [same.input(wide.shape, None, "int32"), same.list_of(places)]
    data = same.done("EQUAL", compared, shape, None, schema.EqualOptionsT(), "bool")
    (want,) = interpreted([data], [[[wide]]], tmp_path)
    have = ops.run(graph, index)[graph.outputs[0]]
    assert have.dtype == kind
    np.testing.assert_array_equal(have, np.where(want[0][0], on, off))


# Nodes that random networks do not have: attributes, shapes of the operands, constants behind them.
CASES: dict[str, list[tuple[dict[str, Any], tuple[int, ...], list[Array]]]] = {
    "Cast": [({"to": TensorProto.INT32}, (1, 2, 9), []), ({"to": TensorProto.FLOAT}, (1, 5), [])],
    "ConvTranspose": [
        ({"strides": [2, 2]}, (1, 3, 4, 5), [np.ones((3, 2, 2, 2), np.float32)]),
        ({"pads": [1, 0, 1, 0]}, (1, 2, 5, 3), [np.arange(18, dtype=np.float32).reshape(2, 1, 3, 3)]),
    ],
    "CumSum": [({}, (2, 3, 4), [np.array(1)]), ({"reverse": 1, "exclusive": 1}, (2, 5), [np.array(-1)])],
    "Dropout": [({}, (1, 4, 3), []), ({}, (1, 7), [np.float32(0.3)])],
    "Einsum": [
        ({"equation": "abc,cd->dab"}, (1, 2, 3), [np.arange(12, dtype=np.float32).reshape(3, 4)]),
        ({"equation": "abc,cab->b"}, (2, 3, 4), [np.arange(24, dtype=np.float32).reshape(4, 2, 3)]),
        ({"equation": "...ij,...jk"}, (2, 2, 3), [np.arange(18, dtype=np.float32).reshape(2, 3, 3)]),
        ({"equation": "abc->ca"}, (2, 3, 4), []),
    ],
    "PRelu": [({}, (1, 3, 4, 5), [np.array([[[0.1]], [[-0.5]], [[2]]], np.float32)])],
    "Gather": [({}, (1, 4), [])],
    "Not": [({}, (1, 5), [])],
}


def gathered() -> onnx.ModelProto:
    """Rows of a constant table by computed indices."""
    table = numpy_helper.from_array(np.arange(36, dtype=np.float32).reshape(12, 3), "table")
    x = helper.make_tensor_value_info("x", TensorProto.INT32, [1, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 3])
    node = helper.make_node("Gather", ["table", "x"], ["y"])
    return _model(helper.make_graph([node], "gather", [x], [y], [table]))


def denied() -> onnx.ModelProto:
    """Where a number is not above another one."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 5])
    y = helper.make_tensor_value_info("y", TensorProto.BOOL, [1, 5])
    nodes = [helper.make_node("Greater", ["x", "some"], ["above"]), helper.make_node("Not", ["above"], ["y"])]
    return _model(helper.make_graph(nodes, "not", [x], [y], [numpy_helper.from_array(np.float32(0.1), "some")]))


SPECIAL = {"Gather": gathered, "Not": denied}


def single(
    operator: str, attributes: dict[str, Any], shape: tuple[int, ...], constants: list[Array]
) -> onnx.ModelProto:
    if operator in SPECIAL:
        return SPECIAL[operator]()
    names = [f"c{i}" for i in range(len(constants))]
    node = helper.make_node(operator, ["x", *names], ["y"], **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", attributes.get("to", TensorProto.FLOAT), None)
    initializers = [numpy_helper.from_array(np.asarray(c), n) for c, n in zip(constants, names, strict=True)]
    model = _model(helper.make_graph([node], operator, [x], [y], initializers))
    return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def agree(model: onnx.ModelProto, folder: Path, seed: int) -> bool | None:
    """Whether our numpy meaning is onnxruntime's result; None if the model is refused or leaves the real numbers."""
    onnx.save(model, folder / "m.onnx")
    try:
        graph = canonicalize(read_model(folder / "m.onnx"))
    except EdgebuildError:
        return None
    rng = np.random.default_rng(seed)
    feeds = []
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        whole = value.type.tensor_type.elem_type == TensorProto.INT32
        feeds.append(rng.integers(0, 12, shape).astype(np.int32) if whole else rng.standard_normal(shape, np.float32))
    wanted = onnxruntime_outputs(model, feeds)
    if not all(np.isfinite(y).all() for y in wanted if y.dtype.kind == "f"):
        return None  # nothing to compare
    values = ops.run(graph, *feeds)
    size = max(map(largest, values.values()))
    return all(
        have.shape == want.shape and np.allclose(have, want, rtol=1e-4, atol=1e-5 * size)
        for have, want in zip((values[n] for n in graph.outputs), wanted, strict=True)
    )


@cache
def compared(folder: Path) -> set[str]:
    """The operators of random networks all of which were computed as onnxruntime does."""
    seen = set[str]()
    for seed in range(NETWORKS):
        recipe = drawn("float", seed)
        model = onnx_writer.OnnxWriter(recipe).write()
        agreed = agree(model, folder, seed)
        assert agreed is not False, recipe.described()
        seen |= {node.op_type for node in model.graph.node} if agreed else set()
    return seen


def by_standard(operator: str, folder: Path) -> list[str]:
    """The verdicts over the node tests of the ONNX package."""
    tests = node_tests().get(operator, [])
    return [f"{verdict(t, parameters, folder)} {t.name}" for t in tests for parameters in (False, True)]


@cache
def node_tests() -> dict[str, list[Any]]:
    """The standard's own tests of one node each, with inputs and outputs, by operator."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        collected = collect_testcases(None)
    tests: dict[str, list[Any]] = defaultdict(list)
    for test in collected:
        nodes = test.model.graph.node
        if len(nodes) == 1 and not nodes[0].domain:
            tests[nodes[0].op_type].append(test)
    return tests


def verdict(test: Any, parameters: bool, folder: Path) -> str:
    """passed, refused or wrong. `parameters`: all operands but the first are constants of the file."""
    model = onnx.ModelProto.FromString(test.model.SerializeToString())
    inputs, outputs = ([np.asarray(x) for x in side] for side in test.data_sets[0])
    if any(x.dtype not in SURFACE for x in (*inputs, *outputs)):
        return "refused"
    for value, x in list(zip(model.graph.input, inputs, strict=True))[1:] if parameters else ():
        model.graph.initializer.append(numpy_helper.from_array(x, value.name))
        model.graph.input.remove(value)
    onnx.save(model, folder / "node.onnx")
    try:
        graph = canonicalize(read_model(folder / "node.onnx"))
    except EdgebuildError:
        return "refused"
    fed = [_as_own(x, graph.tensors[n]) for n, x in zip(graph.inputs, inputs, strict=False)]
    values = ops.run(graph, *fed)
    near = all(_near(values[n], _as_own(y, graph.tensors[n])) for n, y in zip(graph.outputs, outputs, strict=True))
    return "passed" if near else "wrong"


def _as_own(x: Array, t: Any) -> Array:
    """In the type and layout of the graph, which has int8 for uint8 and may have rows of pixels for planes."""
    if x.dtype == np.uint8 and t.dtype == "int8":
        x = (x.astype(np.int16) - 128).astype(np.int8)
    return x.astype(t.dtype) if x.shape == t.shape or x.ndim != 4 else x.transpose(0, 2, 3, 1).astype(t.dtype)


def _near(mine: Array, theirs: Array) -> bool:
    step = 1 if theirs.dtype.kind in "iu" and theirs.dtype.itemsize == 1 else 0  # the standard rounds some other way
    return mine.size == theirs.size and bool(
        np.allclose(
            mine.ravel().astype(float), theirs.ravel().astype(float), rtol=1e-4, atol=max(1e-5, step), equal_nan=True
        )
    )


def test_every_onnx_operator_is_compared(tmp_path: Path) -> None:
    """In random networks and in single nodes with onnxruntime, else with the node tests of the standard."""
    covered = compared(tmp_path)
    for operator in CASES.keys() & ONNX_READERS.keys():
        for seed, case in enumerate(CASES[operator]):
            assert agree(single(operator, *case), tmp_path, seed), f"{operator} {case[:2]}"
        covered |= {operator}
    verdicts = {name: by_standard(name, tmp_path) for name in sorted(set(ONNX_READERS) - covered)}
    wrong = [text for texts in verdicts.values() for text in texts if text.startswith("wrong")]
    missing = [name for name, texts in verdicts.items() if not any(t.startswith("passed") for t in texts)]
    assert not wrong, wrong
    assert not missing, (
        f"{missing}: onnxruntime and the standard's tests compared none of them with ours; add to CASES in "
        "tests/ops/test_every_operator.py a node of each: attributes, shape of the operand, constants"
    )


COUNTED = sorted({*ONNX_READERS, "LpPool", "LSTM", "GRU", "RNN"})
PASSED = Path(__file__).with_name("node_tests.json")  # of the standard's node tests, by operator, with this `onnx`
OTHERWISE = {  # onnxruntime's results are others than the standard's, and so are ours; dropout in training is random
    "test_averagepool_2d_ceil_last_window_starts_on_pad", "test_gridsample_bicubic", "test_training_dropout",
    "test_resize_downsample_scales_linear_align_corners", "test_resize_downsample_scales_cubic_align_corners",
    "test_training_dropout_default",
}  # fmt: skip


def test_node_tests_of_the_standard(tmp_path: Path) -> None:
    """None is wrong, and no operator passes fewer of them than it did, its operands constants or computed.

    `python -m tests.ops.test_every_operator` counts anew what passes.
    """
    verdicts = {name: by_standard(name, tmp_path) for name in COUNTED}
    wrong = {text.split()[1] for texts in verdicts.values() for text in texts if text.startswith("wrong")}
    assert wrong <= OTHERWISE
    least = json.loads(PASSED.read_text())
    if least["onnx"] != onnx.__version__:
        pytest.skip(f"node tests were counted with onnx {least['onnx']}")
    fewer = {name: count for name, count in least["passed"].items() if passed(verdicts[name]) < count}
    assert not fewer, f"of these so many node tests passed: {fewer}"


def passed(verdicts: list[str]) -> int:
    return sum(text.startswith("passed") for text in verdicts)


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        counts = {name: passed(by_standard(name, Path(folder))) for name in COUNTED}
    counted = {"onnx": onnx.__version__, "passed": {name: count for name, count in counts.items() if count}}
    PASSED.write_text(json.dumps(counted, indent=1) + "\n")
