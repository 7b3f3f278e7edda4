"""Quantised ONNX networks whose scales lie where kernels do not want them, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnxruntime import InferenceSession
from onnxruntime.quantization import QuantType

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.compile import compile_model
from edgebuild.model.formats import read_model
from edgebuild.model.verify import verify
from tests.exporters.writer import Net, quantised


class Quantised(Net):
    """Values between QuantizeLinear and DequantizeLinear, in `integer`."""

    def __init__(self, integer: type = np.int8) -> None:
        super().__init__("t{number}", 21)
        self.integer, self.zero = integer, 3 if integer is np.int8 else 0

    def q(self, x: str, scale: float) -> str:
        parameters = self.stored(scale), self.stored(self.zero, self.integer)
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, *parameters), *parameters)


def along(net: Net, axis: int, *shape: int) -> str:
    """Weights with a scale for each index of one dimension."""
    w = net.rng.normal(0, 1, shape)
    scale = np.abs(w).max(axis=tuple(d for d in range(len(shape)) if d != axis % len(shape)), keepdims=True) / 127
    steps, zero = net.stored(np.rint(w / scale), np.int8), net.stored(np.zeros(scale.size), np.int8)
    return net.op("DequantizeLinear", steps, net.stored(scale.ravel()), zero, axis=axis)


def weights_of_three_dimensions(axis: int) -> onnx.ModelProto:
    net = Quantised()
    return net.done(net.q(net.op("MatMul", net.q(net.input("x", (3, 5, 8)), 0.03), along(net, axis, 3, 8, 6)), 0.1))


def weights_along_inputs() -> onnx.ModelProto:
    """Scales for each input of sums, which are as many as outputs."""
    net = Quantised()
    x = net.q(net.input("x", (1, 4, 4, 4)), 0.02)
    deep = net.op("Reshape", x, net.stored([1, 4, 2, 2, 4], np.int64))
    sums = (
        net.op("MatMul", x, along(net, 0, 4, 4)),
        net.op("Gemm", net.op("Flatten", x, axis=3), along(net, -1, 4, 4), transB=1),
        net.op("Conv", x, along(net, -3, 4, 4, 2, 2)), net.op("ConvTranspose", x, along(net, 0, 4, 4, 2, 2)),
        net.op("Conv", deep, along(net, 1, 4, 4, 1, 2, 2)), net.op("ConvTranspose", deep, along(net, 0, 4, 4, 1, 2, 2)),
    )  # fmt: skip
    return net.done(*(net.q(y, 0.05) for y in sums))


def constant_first() -> onnx.ModelProto:
    """A constant times a computed matrix, in float and quantised."""
    net = Quantised()
    x = net.input("x", (1, 8, 6))
    left = net.op("MatMul", net.weight(4, 8), x)
    return net.done(left, net.q(net.op("MatMul", net.q(net.weight(5, 8), 0.02), net.q(x, 0.03)), 0.1))


def gather(computed: bool) -> onnx.ModelProto:
    """The table has another scale than the result."""
    net = Quantised()
    index = net.input("i", (1, 5), TensorProto.INT64)
    table = net.weight(12, 6)
    if computed:
        table = net.op("Reshape", net.input("x", (1, 72)), net.stored([12, 6], np.int64))
    return net.done(net.q(net.op("Gather", net.q(table, 0.02), index, axis=0), 0.03))


def reduced_constant() -> onnx.ModelProto:
    """A quantised constant whose extremes, sum and largest elements the graph computes."""
    net = Quantised()
    x, c = net.input("x", (1, 6)), net.stored(net.rng.integers(-90, 90, (5, 6)), np.int8)
    real = net.op("DequantizeLinear", c, net.stored(0.02), net.stored(3, np.int8))
    axes = net.stored([0], np.int64)
    parts = [net.op(kind, real, axes, keepdims=1) for kind in ("ReduceMax", "ReduceMin", "ReduceSum")]
    best, _ = net.ops("TopK", real, net.stored([1], np.int64), count=2, axis=0)
    for part in (*parts, best):
        x = net.op("Add", x, part)
    return net.done(net.q(x, 0.05))


def concat() -> onnx.ModelProto:
    """A constant part with a scale of its own."""
    net = Quantised()
    parts = [net.q(net.weight(1, 1, 6), 0.005), net.q(net.input("x", (1, 4, 6)), 0.02)]
    return net.done(net.q(net.op("Concat", *parts, axis=1), 0.03))


def power() -> onnx.ModelProto:
    """A quantised exponent."""
    net = Quantised()
    return net.done(net.op("Pow", net.q(net.input("x", (2, 7)), 0.02), net.q(net.value(2.0), 0.1)))


def functions(integer: type) -> onnx.ModelProto:
    """Functions of several operands, each of its own scale."""
    net = Quantised(integer)
    fine = 1.0 if integer is np.int8 else 1 / 128
    x, z = net.q(net.input("x", (2, 7)), 0.02 * fine), net.q(net.input("z", (1, 7)), 0.03 * fine)
    positive = net.op("Add", net.op("Abs", z), net.value(1.0))
    above = net.op("Greater", x, net.q(net.value([0.2]), 0.002))
    results = {
        0.04: net.op("Sub", x, z), 0.041: net.op("Div", x, positive), 0.02: net.op("Max", x, z),
        0.021: net.op("Min", x, z, net.value(0.5)), 0.025: net.op("Where", above, x, z),
        0.022: net.op("PRelu", x, net.q(net.value([0.1]), 0.001)),
    }  # fmt: skip
    return net.done(*(net.q(y, scale * fine) for scale, y in results.items()))


def without_a_value(integer: type) -> onnx.ModelProto:
    """Results that are no number become the lowest step."""
    net = Quantised(integer)
    x = net.op("Sub", net.q(net.input("x", (2, 7)), 0.03), net.q(net.value([1.5]), 0.02))
    steps = net.q(x, 0.03)
    return net.done(*(net.q(net.op(kind, steps), 0.02) for kind in ("Log", "Sqrt", "Acosh")))


def far_below_the_last_bit_of_1() -> onnx.ModelProto:
    """e^x - 1 is x there. onnxruntime computes it in float32, in which it is 0."""
    net = Quantised()
    x = net.q(net.input("x", (2, 7)), 1e-38)
    return net.done(*(net.q(net.op(kind, x), 1e-38) for kind in ("Elu", "Selu", "Celu")))


def functions_of_one(integer: type) -> onnx.ModelProto:
    net = Quantised(integer)
    fine = 1.0 if integer is np.int8 else 1 / 128
    x = net.q(net.input("x", (2, 7)), 0.03 * fine)
    results = [net.op("Sigmoid", x), net.op("Tanh", x), net.op("Softmax", x, axis=-1), net.op("Erf", x)]
    results += [net.op("ReduceMean", x, net.stored([1], np.int64)), net.op("LeakyRelu", x, alpha=0.2)]
    return net.done(*(net.q(y, 0.01 * fine) for y in results))


def far_zero_points(zero: int) -> onnx.ModelProto:
    """int16 values that are all on one side of their zero point, and all of their range: products need 33 bits."""
    net = Quantised(np.int16)
    net.zero = zero
    a, b = (net.q(net.input(name, (1, 3, 6, 6)), 2.0**-15) for name in "ab")
    each, matrix = net.q(net.op("Mul", a, b), 2.0**-14), net.q(net.op("MatMul", a, b), 2.0**-12)
    return net.done(each, matrix, net.q(net.op("Add", each, matrix), 2.0**-12))


def scaled_product(turned: int) -> onnx.ModelProto:
    """A QGemm whose alpha is a part of its bias's scale."""
    net = Quantised()
    x, scale, zero = net.input("x", (4, 8)), net.stored(0.03), net.stored(3, np.int8)
    w = net.stored(net.rng.integers(-127, 128, (6, 8) if turned else (8, 6)), np.int8)
    bias = net.stored(net.rng.integers(-9000, 9000, 6), np.int32)
    y = net.stored(0.1), net.stored(-5, np.int8)
    operands = net.op("QuantizeLinear", x, scale, zero), scale, zero, w, net.stored(0.02), net.stored(0, np.int8), bias
    (product,) = net.ops("QGemm", *operands, *y, count=1, domain="com.microsoft", alpha=0.25, transB=turned)
    return net.done(net.op("DequantizeLinear", product, *y))


def without_zero_points(integer: type) -> onnx.ModelProto:
    """They are 0 in the type of the values, also behind a move, or in the one that an attribute names."""
    net = Quantised(integer)
    scale, zero, x = net.stored(0.03), net.stored(0, integer), net.input("x", (2, 7))
    named = {"output_dtype": onnx.helper.np_dtype_to_tensor_dtype(np.dtype(integer))}
    steps = net.op("Transpose", net.op("QuantizeLinear", x, scale, zero))
    others = net.op("QuantizeLinear", net.op("Abs", x), scale, **named)
    weights = net.stored(net.rng.integers(0, 100, (7, 5)), integer)
    real = net.op("DequantizeLinear", weights, net.stored(np.full(5, 0.02)), axis=1)
    product = net.op("MatMul", net.op("DequantizeLinear", others, scale), real)
    return net.done(net.op("DequantizeLinear", steps, scale), net.q(product, 0.1))


def sums_without_zero_points() -> onnx.ModelProto:
    """QLinearAdd has results of its operands' type."""
    net = Quantised()
    scale, zero, x = net.stored(0.03), net.stored(0, np.int8), net.input("x", (2, 7))
    q = net.op("QuantizeLinear", x, scale, zero)
    (total,) = net.ops("QLinearAdd", q, scale, zero, q, scale, zero, scale, count=1, domain="com.microsoft")
    return net.done(net.op("DequantizeLinear", total, scale))


def own_bias(integer: type) -> onnx.ModelProto:
    """Biases in 8 bits, with a scale of their own and a zero point: their real values count."""
    net = Quantised()
    x, zero = net.q(net.input("x", (1, 4, 8, 8)), 0.03), net.stored(7, integer)
    steps = net.stored(net.rng.integers(0, 100, 5), integer)
    bias = net.op("DequantizeLinear", steps, net.stored(0.05), zero)
    return net.done(net.q(net.op("Conv", x, net.q(net.weight(5, 4, 3, 3), 0.02), bias), 0.1))


def weights_of_4_bits(kind: int, zero: int) -> onnx.ModelProto:
    """With one scale for each output."""
    net, low = Quantised(), -8 if kind == TensorProto.INT4 else 0
    values = net.rng.integers(low, low + 16, 16 * 6).tolist()
    net.constants.append(onnx.helper.make_tensor("w", kind, (16, 6), values))
    net.constants.append(onnx.helper.make_tensor("zeros", kind, (6,), [zero] * 6))
    real = net.op("DequantizeLinear", "w", net.stored(net.rng.uniform(0.05, 0.2, 6)), "zeros", axis=1)
    return net.done(net.q(net.op("MatMul", net.q(net.input("x", (1, 16)), 0.03), real), 0.1))


def on_constants() -> onnx.ModelProto:
    """Operators whose operands are all quantised constants, of one scale and of several."""
    net = Quantised()
    x, coarse, fine = net.q(net.input("x", (3, 4)), 0.03), net.q(net.weight(3, 4), 0.11), net.q(net.weight(3, 4), 0.004)
    joined = net.q(net.op("Concat", coarse, fine, x, axis=0), 0.05)
    mixed = net.q(net.op("Concat", coarse, net.weight(2, 4), net.op("Relu", x), axis=0), 0.05)
    shares = net.q(net.op("Softmax", coarse, axis=-1), 0.004)
    product = net.q(net.op("MatMul", coarse, net.q(net.weight(4, 4), 0.02)), 0.05)
    turned = net.q(net.op("Transpose", net.q(net.weight(4, 3), 0.02), perm=[1, 0]), 0.03)
    return net.done(joined, mixed, *(net.q(net.op("Add", x, c), 0.05) for c in (shares, product, turned)))


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "weights along inputs": weights_along_inputs,
    **{f"weights, axis {axis}": lambda axis=axis: weights_of_three_dimensions(axis) for axis in range(3)},
    **{f"zero point {zero}": lambda zero=zero: far_zero_points(zero) for zero in (-32768, 32767, -20000)},
    **{f"product, turned {turned}": lambda turned=turned: scaled_product(turned) for turned in (0, 1)},
    **{f"no zero points, {t.__name__}": lambda t=t: without_zero_points(t) for t in (np.int8, np.uint8, np.int16)},
    "sums without zero points": sums_without_zero_points,
    **{f"own bias, {t.__name__}": lambda t=t: own_bias(t) for t in (np.int8, np.uint8)},
    "weights of int4": lambda: weights_of_4_bits(TensorProto.INT4, 0),
    "weights of uint4": lambda: weights_of_4_bits(TensorProto.UINT4, 8),
    "constant first": constant_first,
    "gather, constant": lambda: gather(False),
    "gather, computed": lambda: gather(True),
    "concat": concat,
    "reduced constant": reduced_constant,
    "operators on constants": on_constants,
    "power": power,
    **{f"no value, {t.__name__}": lambda t=t: without_a_value(t) for t in (np.int8, np.uint8, np.int16)},
    "far below the last bit of 1": far_below_the_last_bit_of_1,
    "functions int8": lambda: functions(np.int8),
    "functions int16": lambda: functions(np.int16),
    "one operand int8": lambda: functions_of_one(np.int8),
    "one operand int16": lambda: functions_of_one(np.int16),
}


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", NETWORKS)
def test_equal_to_onnxruntime(name: str, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(NETWORKS[name](), file)
    result = verify(file, load_target("host"), compile_model(model_request(file, "model", "host", {})))
    assert result["equal"], result


@pytest.mark.parametrize("integer", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("scale", [0.5, [0.1, 0.2, 3.0, 4.0, 5e4, 0.6, 0.7, 0.8]], ids=["one scale", "scales"])
def test_constants_in_steps(integer: type, scale: float | list[float], tmp_path: Path) -> None:
    """Those beyond an int32, infinite and no number as well: the onnx package's evaluator casts them to one.

    It has no DequantizeLinear of opset 13.
    """
    net = Quantised(integer)
    data, divisor = [0, 1, -1, 1e12, -1e12, 3e9, 127.4, -0.3], [0.0] * 3 + [1.0] * 5
    x, own = net.op("Div", net.stored(data), net.stored(divisor)), net.stored(scale)
    steps = net.op("QuantizeLinear", x, own, net.stored(np.full(np.shape(scale), 9), integer), axis=0)
    real = net.op("Cast", steps, to=TensorProto.FLOAT)
    model = net.done(net.op("Add", net.input("i", (8,)), real))
    model.opset_import[0].version = 13 if np.dtype(integer).itemsize == 1 else 21
    onnx.save(model, tmp_path / "m.onnx")
    fed = np.arange(8, dtype=np.float32)
    (want,) = InferenceSession(tmp_path / "m.onnx").run(None, {"i": fed})
    with np.errstate(divide="ignore", invalid="ignore"):
        graph = read_model(tmp_path / "m.onnx")
    np.testing.assert_array_equal(ops.run(graph, fed)[graph.outputs[0]], want)


@pytest.mark.needs("gcc")
def test_an_input_with_a_scale_for_each_channel(tmp_path: Path) -> None:
    net = Quantised()
    x = net.input("x", (1, 3, 4), TensorProto.INT8)
    real = net.op("DequantizeLinear", x, net.stored([0.1, 0.2, 0.3]), net.stored([0, 1, 2], np.int8), axis=1)
    file = tmp_path / "model.onnx"
    onnx.save(net.done(net.op("Relu", real)), file)
    result = verify(file, load_target("host"), compile_model(model_request(file, "model", "host", {})))
    assert result["equal"] and result["judge"] == "onnxruntime", result


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("form", [QuantType.QInt16, QuantType.QUInt16])
def test_masks_of_the_lowest_number(form: QuantType, tmp_path: Path) -> None:
    """onnxruntime rounds their scale up, so that the numbers are infinite once dequantised. Sums of them saturate."""
    net = Net("/{kind}_{number}")
    mask = net.stored(np.where(np.triu(np.ones((1, 6, 6)), 1), np.finfo(np.float32).min, 0))
    scores = net.op("Add", net.projected(net.input("x", (1, 6, 8)), 8, 6), mask)
    file = tmp_path / "model.onnx"
    onnx.save(quantised(net.done(net.op("Softmax", scores, axis=-1)), form), file)
    assert verify(file, load_target("host"), compile_model(model_request(file, "model", "host", {})))["equal"]


@pytest.mark.needs("gcc")
def test_constants_that_are_infinite_once_dequantised(tmp_path: Path) -> None:
    net = Quantised()
    x, low = net.input("x", (1, 6)), net.stored([-32768], np.int16)
    real = net.op("DequantizeLinear", low, net.stored(5.192376e33), net.stored(32767, np.int16))
    file = tmp_path / "model.onnx"
    onnx.save(net.done(net.op("Mul", x, real)), file)
    assert verify(file, load_target("host"), compile_model(model_request(file, "model", "host", {})))["equal"]
