"""One small network in the forms that exporters and quantisers write, against onnxruntime on the file as it is."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.formats import read_model
from edgebuild.model.verify import verify
from tests.exporters.writer import Net

FLOAT, UINT8, INT32 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT32
RNG = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def proto(
    nodes: list[Any], x: tuple[int, ...], opset: int = 17, kind: int = FLOAT, result: int = FLOAT, **constants: Any
) -> onnx.ModelProto:
    """A model of these nodes from `x` to `y`, whose shape is inferred."""
    inputs, outputs = [helper.make_tensor_value_info("x", kind, x)], [helper.make_tensor_value_info("y", result, None)]
    values = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, values), opset_imports=opsets, ir_version=8
    )
    return shape_inference.infer_shapes(model)


def network(opset: int = 17) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "w1"], ["d"], "grouped", group=2, pads=[1, 0, 0, 1]),
        helper.make_node("GlobalAveragePool", ["d"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], "dense", transB=1),
    ]
    parameters = {"w0": weights(8, 3, 3, 3), "b0": weights(8), "w1": weights(6, 4, 2, 2)}
    return proto(nodes, (1, 3, 8, 8), opset, **parameters, w2=weights(5, 6), b2=weights(5))


def quantised(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
            vectors = RNG.standard_normal((8, *shape)).astype(np.float32)
            self.left: Iterator[dict[str, np.ndarray]] = iter([{"x": v} for v in vectors])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)

    logging.getLogger().setLevel(logging.ERROR)  # it recommends pre-processing on every call
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, f"{folder}/a.onnx")
        quantize_static(f"{folder}/a.onnx", f"{folder}/b.onnx", Reader(), **options)
        return onnx.load(f"{folder}/b.onnx")


def spread() -> onnx.ModelProto:
    node = helper.make_node(
        "ConvTranspose", ["x", "w", "b"], ["y"], strides=[2, 2], pads=[1, 0, 1, 0], output_padding=[1, 1]
    )
    return proto([node], (1, 4, 5, 6), w=weights(4, 3, 3, 3), b=weights(3))


def line() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[2, 1], strides=[2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["y"], dilations=[2]),
    ]
    return proto(nodes, (1, 4, 20), w=weights(6, 4, 4), b=weights(6), v=weights(3, 6, 3))


def attention() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "t"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "x"], ["y"]),
    ]
    return proto(nodes, (1, 5, 8))


def function() -> onnx.ModelProto:
    body = helper.make_function("own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])],
                                [helper.make_opsetid("", 17)])  # fmt: skip
    model = proto([helper.make_node("Add", ["x", "x"], ["t"]), helper.make_node("Relu", ["t"], ["y"])], (1, 4))
    model.graph.node[0].CopyFrom(helper.make_node("Twice", ["x"], ["t"], domain="own"))
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("own", 1))
    return model


def open_shape() -> onnx.ModelProto:
    model = network()
    for i, name in ((0, "N"), (2, "H"), (3, "W")):
        model.graph.input[0].type.tensor_type.shape.dim[i].dim_param = name
    del model.graph.value_info[:]
    return model


I8, U8, I16, U16 = QuantType.QInt8, QuantType.QUInt8, QuantType.QInt16, QuantType.QUInt16
CONTRIB = {"UseQDQContribOps": True}


def with_types(activations: QuantType, stored: QuantType, **options: Any) -> Callable[[], onnx.ModelProto]:
    return lambda: quantised(network(), activation_type=activations, weight_type=stored, **options)


FORMS: dict[str, Callable[[], onnx.ModelProto]] = {
    "float": network,
    "opset 11": lambda: network(11),
    "opset 21": lambda: network(21),
    "qdq int8 per tensor": with_types(I8, I8),
    "qdq int8 per channel": with_types(I8, I8, per_channel=True),
    "qdq uint8": with_types(U8, U8),
    "qdq uint8, int8 weights": with_types(U8, I8, per_channel=True),
    "qdq symmetric": with_types(I8, I8, extra_options={"ActivationSymmetric": True, "WeightSymmetric": False}),
    "qdq int16": with_types(I16, I8, extra_options=CONTRIB),
    "qdq uint16": with_types(U16, U8, extra_options=CONTRIB),
    "qoperator int8": with_types(I8, I8, quant_format=QuantFormat.QOperator, per_channel=True),
    "qoperator uint8": with_types(U8, U8, quant_format=QuantFormat.QOperator),
    "transpose convolution": spread,
    "transpose convolution, groups, 1-D": lambda: proto(
        [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[3], output_shape=[15], group=2)],
        (1, 4, 5),
        w=weights(4, 2, 4),
    ),
    "transpose convolution int8": lambda: quantised(spread()),
    "1-D": line,
    "1-D int8": lambda: quantised(line(), per_channel=True),
    "products of activations": attention,
    "products of activations int8": lambda: quantised(attention()),
    "gemm with factors": lambda: proto(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], alpha=0.5, beta=2.0)], (1, 6), w=weights(6, 4), b=weights(4)
    ),
    "integer matmul": lambda: proto(
        [helper.make_node("MatMulInteger", ["x", "w", "xz", "wz"], ["y"])], (1, 10), kind=UINT8, result=INT32,
        w=RNG.integers(0, 255, (10, 4)).astype(np.uint8), xz=np.uint8(7), wz=np.uint8(120),
    ),
    "integer convolution": lambda: proto(
        [helper.make_node("ConvInteger", ["x", "w", "xz"], ["y"], pads=[1, 1, 1, 1])], (1, 2, 5, 5), kind=UINT8,
        result=INT32, w=RNG.integers(-100, 100, (3, 2, 3, 3)).astype(np.int8), xz=np.uint8(7),
    ),
    "float16 weights": lambda: proto(
        [helper.make_node("Cast", ["h"], ["w"], to=FLOAT), helper.make_node("Conv", ["x", "w"], ["y"])], (1, 3, 8, 8),
        h=weights(4, 3, 3, 3).astype(np.float16),
    ),
    "weights only": lambda: proto(
        [helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0), helper.make_node("Conv", ["x", "w"], ["y"])],
        (1, 3, 8, 8), q=RNG.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8),
        s=np.array([0.1, 0.2, 0.01, 0.03], np.float32),
    ),
    "function": function,
    "double precision": lambda: proto(
        [helper.make_node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE), helper.make_node("Mul", ["d", "f"], ["m"]),
         helper.make_node("Exp", ["m"], ["e"]), helper.make_node("Cast", ["e"], ["y"], to=FLOAT)], (1, 3, 4),
        f=np.array([0.1, 0.2, 1 / 3, 0.4], np.float64),
    ),
    "local response normalisation": lambda: proto(
        [helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3, 1, 1], pads=[1, 0, 0, 1, 0, 0])],
        (1, 1, 6, 2, 3),
    ),
    "padding in five dimensions": lambda: proto(
        [helper.make_node("Pad", ["x", "p", "v"], ["y"])], (1, 2, 3, 2, 2), p=np.array([0, 0, 1, 0, 0, 0, 0, 2, 0, 0]),
        v=np.float32(0.5),
    ),
    "mean of numbers without dimensions": lambda: proto(
        [helper.make_node("Mean", ["a", "b", "x"], ["y"])], (), a=np.float32(1), b=np.float32(4)
    ),
    "reduction of nothing": lambda: proto(
        [helper.make_node("ReduceL2", ["x"], ["y"], noop_with_empty_axes=1)], (2, 3), opset=18
    ),
    "padding of what is left of a cut": lambda: proto(
        [helper.make_node("Pad", ["x", "p"], ["y"], mode="wrap")], (1, 5), opset=19, p=np.array([0, 2, 0, -3]),
    ),
    "padding by a number that is no step": lambda: proto(
        [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
         helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]), helper.make_node("Pad", ["d", "p", "v"], ["r"]),
         helper.make_node("QuantizeLinear", ["r", "t", "z"], ["e"]),
         helper.make_node("DequantizeLinear", ["e", "t", "z"], ["y"])], (1, 2, 4, 5),
        p=np.array([0, 0, 1, 0, 0, 0, 0, 2]), s=np.float32(0.1), t=np.float32(0.01), z=np.int8(0), v=np.float32(-0.35),
    ),
    "padding by bytes": lambda: proto(
        [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), helper.make_node("Pad", ["q", "p", "v"], ["r"]),
         helper.make_node("DequantizeLinear", ["r", "s", "z"], ["y"])], (1, 2, 4, 5),
        p=np.array([0, 0, 1, 0, 0, 0, 0, 2]), s=np.float32(0.03), z=np.uint8(120), v=np.uint8(95),
    ),
    "padding of 16 bits": lambda: proto(
        [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
         helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]), helper.make_node("Pad", ["d", "p", "v"], ["r"]),
         helper.make_node("QuantizeLinear", ["r", "s", "z"], ["t"]),
         helper.make_node("DequantizeLinear", ["t", "s", "z"], ["y"])], (1, 2, 4, 5), opset=21,
        p=np.array([0, 0, 1, 0, 0, 0, 0, 2]), s=np.float32(0.001), z=np.int16(0), v=np.float32(1.5),
    ),
    "quantised image, by lines": lambda: proto(
        [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
         helper.make_node("Resize", ["q", "", "f"], ["r"], mode="linear"),
         helper.make_node("DequantizeLinear", ["r", "s", "z"], ["y"])], (1, 2, 4, 5),
        s=np.float32(0.03), z=np.uint8(120), f=np.array([1, 1, 2, 2], np.float32),
    ),
}  # fmt: skip


def verified(model: Path, **options: str) -> dict[str, Any]:
    request = model_request(model, "model", "host", options)
    artifacts = compile_model(request)
    result = verify(model, load_target("host"), artifacts, reading=(request.shape, request.outputs))
    return {**result, **json.loads(next(a.data for a in artifacts if a.name == "model_report.json"))}


@pytest.mark.needs("gcc")
def test_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="weights.bin")
    assert verified(tmp_path / "m.onnx")["equal"]


@pytest.mark.needs("gcc")
def test_shapes_that_are_left_open(tmp_path: Path) -> None:
    onnx.save(open_shape(), tmp_path / "m.onnx")
    result = verified(tmp_path / "m.onnx", shape="x=1,3,10,12")
    assert result["equal"] and result["inputs"][0]["shape"] == [1, 3, 10, 12]
    with pytest.raises(EdgebuildError, match="dynamic shape"):
        verified(tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match="input 'x' is Nx3xHxW, not 1x4x10x12"):
        verified(tmp_path / "m.onnx", shape="x=1,4,10,12")


def test_sizes_of_one_name_are_equal(tmp_path: Path) -> None:
    """That of a state, which has the batch second, follows from the input's."""
    shapes: dict[str, list[str | int]] = {"x": ["batch", "n"], "state": [2, "batch", "n"]}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Add", ["x", "state"], ["y"])], "g", inputs, [output])
    onnx.save(helper.make_model(graph), tmp_path / "model.onnx")
    read = read_model(tmp_path / "model.onnx", (("x", (1, 6)),))
    assert read.tensors["state"].shape == (2, 1, 6)
    with pytest.raises(EdgebuildError, match="input 'x' has the dynamic shape 1xn"):
        read_model(tmp_path / "model.onnx")


@pytest.mark.needs("gcc")
def test_a_model_is_cut(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "m.onnx")
    result = verified(tmp_path / "m.onnx", outputs="p")
    assert result["equal"] and [port["name"] for port in result["outputs"]] == ["p"]
    with pytest.raises(EdgebuildError, match="no node writes 'q'"):
        verified(tmp_path / "m.onnx", outputs="q")


def recurrent(kind: str, gates: int, **attributes: Any) -> onnx.ModelProto:
    """A recurrent node over four steps with a state before the first; its result of every step, and the last."""
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    hidden, features = 3, 5
    constants = {
        "w": RNG.standard_normal((ways, gates * hidden, features)),
        "b": RNG.standard_normal((ways, 2 * gates * hidden)),
    }
    constants |= {"r": RNG.standard_normal((ways, gates * hidden, hidden)), "h": RNG.standard_normal((ways, 1, hidden))}
    cell = {"c": RNG.standard_normal((ways, 1, hidden))} if kind == "LSTM" else {}
    node = helper.make_node(kind, ["x", "w", "r", "b", "", "h", *cell], ["y"], hidden_size=hidden, **attributes)
    return proto([node], (4, 1, features), **{n: v.astype(np.float32) for n, v in (constants | cell).items()})


def reshaped(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model behind a Reshape whose sizes are computed from a shape, as exporters write it."""
    x = model.graph.input[0]
    sizes = [d.dim_value for d in x.type.tensor_type.shape.dim]
    for name, value in {"first": [0], "past": [2], "rest": [-1]}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    before = [
        helper.make_node("Shape", ["x0"], ["sizes"]),
        helper.make_node("Slice", ["sizes", "first", "past"], ["lead"]),
        helper.make_node("Concat", ["lead", "rest"], ["all"], axis=0),
        helper.make_node("Reshape", ["x0", "all"], ["x"]),
    ]
    nodes = [*before, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    x.CopyFrom(helper.make_tensor_value_info("x0", onnx.TensorProto.FLOAT, [*sizes[:2], 1, sizes[2]]))
    return model


def product(equation: str, *shapes: tuple[int, ...]) -> onnx.ModelProto:
    """An Einsum; all operands but the first are constants."""
    constants = {f"w{i}": RNG.standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes[1:])}
    return proto([helper.make_node("Einsum", ["x", *constants], ["y"], equation=equation)], shapes[0], **constants)


def weighed(first: tuple[int, ...], second: tuple[int, ...]) -> onnx.ModelProto:
    """A constant times what is computed, by the rules of numpy's matmul."""
    constant = RNG.standard_normal(first).astype(np.float32)
    return proto([helper.make_node("MatMul", ["w", "x"], ["y"])], second, w=constant)


def running(axis: int, **attributes: int) -> onnx.ModelProto:
    """A CumSum whose axis is a Constant node."""
    where = helper.make_node("Constant", [], ["axis"], value=numpy_helper.from_array(np.array(axis, np.int64)))
    return proto([where, helper.make_node("CumSum", ["x", "axis"], ["y"], **attributes)], (3, 4, 5))


SUMS: dict[str, Callable[[], onnx.ModelProto]] = {
    "weights": lambda: product("bij,kj->bki", (2, 3, 4), (5, 4)),
    "heads": lambda: product("bqhd,bkhd->bhqk", (2, 3, 2, 4), (2, 5, 2, 4)),
    "outer": lambda: product("i,jk->kij", (3,), (4, 2)),
    "implicit": lambda: product("bj,jk", (2, 3), (3, 4)),
    "alone on one side": lambda: product("ijl,jkm->ik", (2, 3, 2), (3, 4, 3)),
    "ellipsis": lambda: product("...j,jk->...k", (2, 4, 3), (3, 2)),
    "one operand": lambda: product("ijk->ki", (2, 3, 4)),
    "linear attention": lambda: product("btd,bde,bt->bte", (2, 3, 4), (2, 4, 5), (2, 3)),
    "chain": lambda: product("ab,bc,cd,ae->ed", (2, 3), (3, 4), (4, 5), (2, 3)),
    "diagonals": lambda: product("bii,jkkk->jbik", (2, 3, 3), (4, 2, 2, 2)),
    "all at once": lambda: product("bi,bi,bi->b", (2, 3), (2, 3), (2, 3)),
    "constants that share nothing": lambda: product("ij,kl,jk->li", (2, 3), (4, 5), (3, 4)),
    "constant vector before": lambda: weighed((3,), (2, 3, 4)),
    "constant matrices before": lambda: weighed((2, 5, 3), (3,)),
    "two vectors": lambda: weighed((3,), (3,)),
    "five dimensions": lambda: weighed((2, 2, 1, 3, 4), (2, 2, 3, 4, 2)),
    "six dimensions, repeated in turn": lambda: weighed((2, 1, 3, 1, 2, 4), (3, 1, 2, 4, 2)),
    "both repeated in turn": lambda: weighed((2, 1, 3, 1, 2, 4), (1, 4, 1, 2, 4, 3)),
    "running": lambda: running(1),
    "running back": lambda: running(-1, reverse=1, exclusive=1),
}


def between(operator: str, shape: tuple[int, ...], **attributes: Any) -> onnx.ModelProto:
    """An operator of one or two int8 operands between QuantizeLinear and DequantizeLinear."""
    constants = {"scale": np.array(0.02, np.float32), "zero": np.array(3, np.int8), "axes": np.array([1], np.int64)}
    second = {"Sub": ["e"], "ReduceSum": ["axes"]}.get(operator, [])
    form = [("QuantizeLinear", "x", "q"), ("DequantizeLinear", "q", "d"), ("Sin", "d", "s")]
    form += [("QuantizeLinear", "s", "r"), ("DequantizeLinear", "r", "e")]
    nodes = [helper.make_node(o, [a, "scale", "zero"][: 1 if o == "Sin" else 3], [b]) for o, a, b in form]
    nodes.append(helper.make_node(operator, ["d", *second], ["f"], **attributes))
    nodes += [helper.make_node("QuantizeLinear", ["f", "scale", "zero"], ["g"])]
    return proto([*nodes, helper.make_node("DequantizeLinear", ["g", "scale", "zero"], ["y"])], shape, **constants)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("operator", ["Sub", "ReduceSum"])
def test_operators_without_an_integer_form_compute_real_numbers(operator: str, tmp_path: Path) -> None:
    onnx.save(between(operator, (2, 5)), tmp_path / "m.onnx")
    assert verified(tmp_path / "m.onnx")["equal"]


@pytest.mark.needs("gcc")
def test_moves_before_an_output(tmp_path: Path) -> None:
    """Its last operator works on int8; the file's real numbers are steps of the scale."""
    onnx.save(between("DepthToSpace", (1, 4, 3, 5), blocksize=2), tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    del model.graph.node[-2:]
    model.graph.node[-1].output[0] = "y"
    onnx.save(model, tmp_path / "m.onnx")
    assert verified(tmp_path / "m.onnx")["equal"]


def moved_before(kind: str) -> onnx.ModelProto:
    """Bytes above 127 that are moved before they are dequantised: of a table, or of the input."""
    table = RNG.integers(0, 255, (6, 4)).astype(np.uint8)
    constants = {"table": table, "scale": np.array(0.1, np.float32), "zero": np.array(140, np.uint8)}
    constants |= {"shape": np.array([2, 12], np.int64)}
    if kind == "table":
        first, shape, elements = helper.make_node("Gather", ["table", "x"], ["m"]), (3,), TensorProto.INT64
    else:
        first, shape, elements = helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]), (4, 6), TensorProto.UINT8
    nodes = [first, helper.make_node("Reshape", ["t", "shape"], ["m"])][: 1 if kind == "table" else 2]
    nodes += [
        helper.make_node("DequantizeLinear", ["m", "scale", "zero"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    return proto(nodes, shape, kind=elements, **constants)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("kind", ["table", "input"])
def test_integers_that_are_moved_before_they_are_dequantised(kind: str, tmp_path: Path) -> None:
    onnx.save(moved_before(kind), tmp_path / "m.onnx")
    assert verified(tmp_path / "m.onnx")["equal"]


def test_constants_that_a_body_with_a_loop_would_compute(tmp_path: Path) -> None:
    """The standard gives Range a body; unfold of PyTorch makes its places with it."""
    nodes = [
        helper.make_node("Range", ["first", "past", "step"], ["place"]),
        helper.make_node("Gather", ["x", "place"], ["m"], axis=1),
        helper.make_node("LayerNormalization", ["m", "scale"], ["y"]),
    ]
    numbers = {name: np.array(n, np.int64) for name, n in (("first", 5), ("past", 0), ("step", -2))}
    onnx.save(proto(nodes, (2, 7, 4), scale=np.ones(4, np.float32), **numbers), tmp_path / "m.onnx")
    assert verified(tmp_path / "m.onnx")["equal"]


CELLS: dict[str, Callable[[], onnx.ModelProto]] = {
    "lstm": lambda: recurrent("LSTM", 4),
    "lstm of a computed shape": lambda: reshaped(recurrent("LSTM", 4)),
    "lstm both ways": lambda: recurrent("LSTM", 4, direction="bidirectional"),
    "gru": lambda: recurrent("GRU", 3),
    "gru reset late": lambda: recurrent("GRU", 3, linear_before_reset=1, direction="reverse"),
    "rnn": lambda: recurrent("RNN", 1, activations=["Relu"]),
}


NETWORKS = {**FORMS, **SUMS, **CELLS}


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", NETWORKS)
def test_equals_onnxruntime(name: str, tmp_path: Path) -> None:
    onnx.save(NETWORKS[name](), tmp_path / "m.onnx")
    assert verified(tmp_path / "m.onnx")["equal"]


def test_boxes_are_cut_off(tmp_path: Path) -> None:
    """NonMaxSuppression is refused with a way out."""
    n = Net("t{number}", 17)
    boxes, scores = n.input("boxes", (1, 6, 4)), n.input("scores", (1, 2, 6))
    model = n.done(n.op("NonMaxSuppression", n.op("Relu", boxes), scores, n.longs(3)))
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match="NonMaxSuppression") as refusal:
        read_model(tmp_path / "m.onnx")
    assert "--outputs" in refusal.value.diagnostics[0].hints[0]
    assert read_model(tmp_path / "m.onnx", outputs=["t0"]).outputs == ("t0",)
