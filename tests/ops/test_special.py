"""Infinities, numbers that are none, and the largest and least floats: every pair of them, element by element.

Not here is what the oracles themselves leave open: sums that overflow in one order of their terms and not in another,
onnxruntime's Hardmax and MaxPool of what is not a number, its LRN (a running sum keeps an infinity that has left the
window), and TFLM's resizing of a side that stays as long as it was (an infinity times 0).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.compile import prepare
from edgebuild.model.formats.tflite.tflite_reader import read_tflite
from edgebuild.model.ir import Arithmetic, Array, Graph, Op, Quant, Tensor
from edgebuild.model.ops import run
from edgebuild.model.passes.canonicalize import canonicalize
from tests.graphs.tflite_models import File
from tests.ops.host import run_on_host
from tests.ops.test_tflm import interpreted

MAX_FLOAT = float(np.finfo(np.float32).max)
ENDS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -3.0, 5.5, 7.0, -7.0, 1e-40, -1e-40, 1e20, -1e20, 2e38, -2e38]
SPECIAL = np.array([*ENDS, MAX_FLOAT, -MAX_FLOAT, np.inf, -np.inf, np.nan], np.float32)
LEFT, RIGHT = (np.ascontiguousarray(x.reshape(1, -1)) for x in np.meshgrid(SPECIAL, SPECIAL))
ROWS = SPECIAL[(np.arange(len(SPECIAL))[:, None] + np.arange(3)) % len(SPECIAL)]  # three neighbours in each
BOUNDS = [(0, None), (None, 6), (0, 6), (None, None), (2, -2), (-np.inf, 2), (-3, np.inf), (-np.inf, np.inf),
          (np.inf, None), (None, -np.inf), (np.inf, np.inf), (0, MAX_FLOAT)]  # fmt: skip


def equal(mine: Array, theirs: Array, text: str) -> None:
    """To 1e-5 of each element, and what is not finite exactly."""
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(mine.ravel(), theirs.ravel(), rtol=1e-5, atol=1e-37, err_msg=text)


def onnx_file(
    kind: str, inputs: list[Array], constants: list[Any], file: Path, outputs: int = 1, **attributes: Any
) -> None:
    """A model of one operator. Constants are float32, if they are no arrays; None: the operand is left out."""
    names = [f"x{i}" for i in range(len(inputs))]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n, x in zip(names, inputs, strict=True)]
    held = [
        numpy_helper.from_array(c if isinstance(c, np.ndarray) else np.float32(c), f"c{i}")
        for i, c in enumerate(constants)
        if c is not None
    ]
    names += ["" if c is None else f"c{i}" for i, c in enumerate(constants)]
    types = [TensorProto.FLOAT, TensorProto.INT64][:outputs]  # a second output is one of places
    results = [helper.make_tensor_value_info(f"y{i}", t, None) for i, t in enumerate(types)]
    node = helper.make_node(kind, names, [r.name for r in results], **attributes)
    graph = helper.make_graph([node], "g", ports, results, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), file)


@pytest.mark.needs("gcc")
def test_onnx_equals_onnxruntime(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    cases: list[tuple[str, list[Array], list[float | None]]] = [("Clip", [SPECIAL], list(b)) for b in BOUNDS]
    cases += [(kind, [LEFT, RIGHT], []) for kind in ("Max", "Min", "Pow", "Add", "Sub", "Mul", "Div")]
    cases += [(kind, [SPECIAL], [c]) for kind in ("Max", "Min", "Pow") for c in (0.0, 2.0, -1.0, np.inf, -np.inf)]
    cases += [("Relu", [SPECIAL], []), ("Sign", [SPECIAL], []), ("Max", [LEFT, RIGHT, LEFT[:, ::-1].copy()], [])]
    graphs, wanted = list[Graph](), []
    for kind, inputs, constants in cases:
        onnx_file(kind, inputs, constants, tmp_path / "m.onnx")
        session = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
        wanted.append(session.run(None, {f"x{i}": x for i, x in enumerate(inputs)})[0])
        graphs.append(prepare(tmp_path / "m.onnx"))
    results = run_on_host(graphs, [[inputs] for _, inputs, _ in cases], tmp_path)
    for (kind, _, constants), mine, theirs in zip(cases, results, wanted, strict=True):
        equal(mine[0][0], theirs, f"{kind} {constants}")


IMAGE = np.ascontiguousarray(np.stack([ROWS, ROWS[::-1]], axis=-1)[None])  # 1 x 22 x 3 x 2
COORDINATES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_crop_and_resize")


def lines_of_onnx() -> list[tuple[str, list[Array], list[Any], int, dict[str, Any]]]:
    """Operators whose results take several elements: their inputs, constants, outputs and attributes."""
    planes = np.ascontiguousarray(IMAGE.transpose(0, 3, 1, 2))
    cases: list[Any] = [
        ("TopK", [ROWS], [np.array([k])], 2, {"largest": largest, "axis": 1}) for k in (1, 2, 3) for largest in (0, 1)
    ]
    cases += [("LpNormalization", [ROWS], [], 1, {"p": p}) for p in (1, 2)]
    cases += [("HardSwish", [SPECIAL], [], 1, {}), ("ReduceMax", [ROWS], [], 1, {}), ("ReduceMin", [ROWS], [], 1, {})]
    region = np.array([0, 0, -0.2, 0.1, 1, 1, 1.2, 0.8], np.float32)
    for mode in COORDINATES:
        for size in ((43, 5), (11, 2)):
            shape = np.array([1, 2, *size])
            attributes = {"mode": "linear", "coordinate_transformation_mode": mode, "extrapolation_value": 4.5}
            cases += [("Resize", [planes], [region, None, shape], 1, attributes)]
    return cases


@pytest.mark.needs("gcc")
def test_lines_equal_onnxruntime(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    cases, graphs, wanted = lines_of_onnx(), list[Graph](), []
    for kind, inputs, constants, outputs, attributes in cases:
        onnx_file(kind, inputs, constants, tmp_path / "m.onnx", outputs, **attributes)
        session = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
        wanted.append(session.run(None, {f"x{i}": x for i, x in enumerate(inputs)}))
        graphs.append(prepare(tmp_path / "m.onnx"))
    results = run_on_host(graphs, [[inputs] for _, inputs, _, _, _ in cases], tmp_path)
    for (kind, _, _, _, attributes), mine, theirs in zip(cases, results, wanted, strict=True):
        for a, b in zip(mine[0], theirs, strict=True):
            equal(a, b, f"{kind} {attributes}")


@pytest.mark.needs("gcc")
def test_powers_are_those_of_c(tmp_path: Path) -> None:
    """numpy calls the C library, which has the special cases of C11, F.10.4.4."""
    onnx_file("Pow", [LEFT, RIGHT], [], tmp_path / "m.onnx")
    ((mine,),) = run_on_host([prepare(tmp_path / "m.onnx")], [[[LEFT, RIGHT]]], tmp_path)[0]
    with np.errstate(all="ignore"):
        equal(mine, np.power(LEFT, RIGHT), "pow")


def test_powers_of_integers_with_real_exponents_equal_onnxruntime(tmp_path: Path) -> None:
    """An exponent is not converted to the type of the base: 9 to the power of 0.5 is 3. Whole ones are exact."""
    ort = pytest.importorskip("onnxruntime")
    x, file = np.array([9, 4, 2, 3, 2000000011]), tmp_path / "m.onnx"
    ports = [helper.make_tensor_value_info(n, TensorProto.INT64, x.shape) for n in "xy"]
    ports.append(helper.make_tensor_value_info("e", TensorProto.FLOAT, ()))
    for exponent, constant in ((0.5, True), (0.5, False), (1.5, False), (2.0, True), (-0.5, True)):
        e = np.float32(exponent)
        held, fed = ([numpy_helper.from_array(e, "e")], {}) if constant else ([], {"e": np.array(e)})
        given = {"x": x if exponent == 2 else x % 10, **fed}
        node = helper.make_node("Pow", ["x", "e"], ["y"])
        graph = helper.make_graph([node], "powers", [ports[0], *([] if constant else ports[2:])], [ports[1]], held)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
        (theirs,) = ort.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, given)
        assert np.array_equal(run(prepare(file), *given.values())["y"], theirs), exponent


def tflite_file(
    name: str, inputs: list[Array], shape: tuple[int, ...], options: Any, *constants: Array, dtype: str = "float32"
) -> bytes:
    file = File()
    surface = [file.tensor(f"x{i}", x.shape, "float32") for i, x in enumerate(inputs)]
    held = [file.tensor(f"c{i}", c.shape, str(c.dtype), None, c) for i, c in enumerate(constants)]
    y = file.tensor("y", shape, dtype)
    file.operator(name, [*surface, *held], [y], options)
    return file.pack(surface, [y])


def activated(name: str, code: int) -> Any:
    options = getattr(schema, f"{name.title()}OptionsT")()
    options.fusedActivationFunction = code
    return options


def pooled() -> Any:
    options = schema.Pool2DOptionsT()
    options.padding, options.strideH, options.strideW, options.filterHeight, options.filterWidth = 1, 1, 1, 1, 3
    return options


def resized(corners: bool, half: bool) -> Any:
    options = schema.ResizeBilinearOptionsT()
    options.alignCorners, options.halfPixelCenters = corners, half
    return options


def line_cases() -> list[tuple[str, list[Array], tuple[int, ...], Any, list[Array]]]:
    """Operators on several elements; places between numbers and their neighbours, of both signs."""
    few = np.where(np.abs(IMAGE) > 1e30, np.copysign(np.float32(np.inf), IMAGE), IMAGE)  # no sum overflows
    kept = schema.ReducerOptionsT()
    kept.keepDims, flat = True, schema.SoftmaxOptionsT()
    flat.beta = 1.0
    cases: list[Any] = [(n, [IMAGE], (1, 22, 1, 2), pooled(), []) for n in ("MAX_POOL_2D", "AVERAGE_POOL_2D")]
    cases += [("L2_POOL_2D", [IMAGE], (1, 22, 1, 2), pooled(), []), ("SOFTMAX", [ROWS], ROWS.shape, flat, [])]
    cases += [(n, [ROWS], (len(ROWS), 1), kept, [np.array([1], np.int32)]) for n in ("MEAN", "SUM")]
    for corners, half in ((False, False), (True, False), (False, True)):
        cases += [
            ("RESIZE_BILINEAR", [few], (1, *size, 2), resized(corners, half), [np.array(size, np.int32)])
            for size in ((43, 5), (11, 2))
        ]
    return cases


def tflite_cases() -> list[tuple[str, list[Array], tuple[int, ...], Any, list[Array]]]:
    pair, shape, short = [LEFT, RIGHT], LEFT.shape, (len(SPECIAL), 1)
    cases: list[Any] = [
        (n, pair, shape, activated(n, code), []) for n in ("ADD", "SUB", "MUL", "DIV") for code in range(4)
    ]
    cases += [(n, pair, shape, schema.MaximumMinimumOptionsT(), []) for n in ("MAXIMUM", "MINIMUM")]
    cases += [
        (n, [SPECIAL[None]], (1, len(SPECIAL)), None, []) for n in ("RELU", "RELU6", "HARD_SWISH", "LOGISTIC", "TANH")
    ]
    kept, norm, product = schema.ReducerOptionsT(), schema.L2NormOptionsT(), schema.BatchMatMulOptionsT()
    kept.keepDims, norm.fusedActivationFunction, product.adjX, product.adjY = True, 0, False, False
    cases += [(n, [ROWS], short, kept, [np.array([1], np.int32)]) for n in ("REDUCE_MAX", "REDUCE_MIN")]
    line = schema.CumsumOptionsT()
    line.exclusive, line.reverse = False, True
    cases += [("CUMSUM", [ROWS], ROWS.shape, line, [np.array([1], np.int32)])]
    cases += [("ADD_N", [LEFT, RIGHT, LEFT], shape, schema.AddNOptionsT(), [])]
    cases += [("L2_NORMALIZATION", [ROWS], ROWS.shape, norm, [])]
    cases += [("BATCH_MATMUL", [ROWS], short, product, [np.ones((3, 1), np.float32)])]
    return [*cases, *line_cases()]


@pytest.mark.needs("gcc")
def test_casts_end_at_the_ends_of_their_type(tmp_path: Path) -> None:
    """C leaves open what a float beyond an integer's range becomes."""
    files = []
    for dtype, code in (("int16", 7), ("int32", 2)):
        options = schema.CastOptionsT()
        options.inDataType, options.outDataType = 0, code
        files.append(tflite_file("CAST", [SPECIAL[None]], (1, len(SPECIAL)), options, dtype=dtype))
    graphs = [canonicalize(read_tflite(data, "cast.tflite")) for data in files]
    vectors = [[[SPECIAL[None]]]] * 2
    wanted = interpreted(files, vectors, tmp_path)
    for graph, mine, theirs in zip(graphs, run_on_host(graphs, vectors, tmp_path), wanted, strict=True):
        np.testing.assert_array_equal(mine[0][0].ravel(), theirs[0][0].ravel())
        np.testing.assert_array_equal(mine[0][0].ravel(), run(graph, SPECIAL[None])[graph.outputs[0]].ravel())


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("format", ["tflite", "onnx"])
def test_what_is_no_number_becomes_the_lowest_step(format: str, tmp_path: Path) -> None:
    """C and numpy agree on every float. Both formats leave open what one that is no number becomes."""
    op = Op("quantize", "quantize", ("x",), ("y",), {})
    tensors = {"x": Tensor("x", SPECIAL[None].shape, "float32")}
    tensors["y"] = Tensor("y", SPECIAL[None].shape, "int8", Quant((0.5,), (20,)))
    graph = Graph("special", (op,), tensors, ("x",), ("y",), Arithmetic(format))
    ((row,),) = run_on_host([graph], [[[SPECIAL[None]]]], tmp_path)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(row[0].ravel(), run(graph, SPECIAL[None])["y"].ravel())
    assert set(row[0].ravel()[np.isnan(SPECIAL)].tolist()) == {-128}


@pytest.mark.needs("gcc")
def test_tflite_equals_tflm(tmp_path: Path) -> None:
    cases = tflite_cases()
    files = [tflite_file(name, inputs, shape, options, *held) for name, inputs, shape, options, held in cases]
    graphs = [canonicalize(read_tflite(data, "special.tflite")) for data in files]
    vectors = [[inputs] for _, inputs, _, _, _ in cases]
    wanted = interpreted(files, vectors, tmp_path)
    results = run_on_host(graphs, vectors, tmp_path)
    for (name, _, _, options, _), mine, theirs in zip(cases, results, wanted, strict=True):
        equal(mine[0][0], theirs[0][0], f"{name} {getattr(options, 'fusedActivationFunction', '')}")
