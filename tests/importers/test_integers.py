"""Networks of whole real numbers, as NEMO, quantlib, DORY and Deeploy write them, against onnxruntime."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model, prepare
from edgebuild.model.formats.onnx.integer_nodes import Form, integers, shift_of
from edgebuild.model.formats.onnx.integers import Numbers
from edgebuild.model.ir import Array, Graph, Op, Tensor
from edgebuild.model.ops import run
from edgebuild.model.ops.pointwise import attributes
from edgebuild.model.verify import verify
from edgebuild.model.verify.oracles import in_standard
from tests.exporters.writer import Net
from tests.ops.host import run_on_host
from tests.ops.meanings import INTEGER


class Whole(Net):
    """`domain`: of RequantShift, which quantlib changed from version to version."""

    def __init__(self, seed: int = 0, domain: str = "") -> None:
        super().__init__("t{number}", 13, seed)
        self.domain = domain

    def whole(self, low: int, high: int, *shape: int) -> str:
        return self.stored(self.rng.integers(low, high, shape))

    def requant(self, x: str, channels: int, div: float = 2.0**16, levels: int = 256, signed: int = 0) -> str:
        """With factors that use the range of the result."""
        shape = (channels, 1, 1) if channels else ()
        one = {name: numpy_helper.from_array(np.float32(value)) for name, value in
               (("div", div), ("n_levels_out", levels), ("signed", signed))}  # fmt: skip
        mul, add = self.whole(40, 900, *shape), self.whole(-(2**21), 2**22, *shape)
        return self.ops("RequantShift", x, mul, add, count=1, domain=self.domain, **one)[0]

    def ended(self, output: str) -> onnx.ModelProto:
        value = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "whole", self.inputs, [value], self.constants)
        opsets = [helper.make_opsetid(d, 13) for d in dict.fromkeys(["", self.domain])]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def residual(seed: int, domain: str = "") -> onnx.ModelProto:
    """Convolutions, a depthwise one, a pool, a sum of two results, and a dense layer."""
    net = Whole(seed, domain)
    x = net.op("Conv", net.input("x", (1, 3, 9, 8)), net.whole(-128, 128, 6, 3, 3, 3), pads=[1, 1, 1, 1])
    x = net.op("MaxPool", net.requant(x, 6), kernel_shape=[2, 2], strides=[1, 1])
    y = net.op("Conv", x, net.whole(-128, 128, 6, 1, 3, 3), net.whole(-999, 999, 6), group=6, pads=[1, 1, 1, 1])
    y = net.op("Add", x, net.requant(y, 6, 2.0**14, 16))
    z = net.op("Flatten", net.requant(y, 0, 2.0**9, 200, 1))
    dense = net.op("Gemm", z, net.whole(-128, 128, 5, 336), net.whole(-999, 999, 5), transB=1)
    return net.ended(net.requant(dense, 0, 2.0**17, 256, 1))


def stated_input(seed: int, kind: type[np.int8 | np.uint8]) -> onnx.ModelProto:
    """A QuantizeLinear says of which type it is."""
    net = Whole(seed)
    scale = net.stored(1.0), net.stored(0, kind)
    x = net.op("DequantizeLinear", net.op("QuantizeLinear", net.input("x", (1, 4, 5, 6)), *scale), *scale)
    return net.ended(net.requant(net.op("Conv", x, net.whole(-128, 128, 7, 4, 1, 1)), 7, 2.0**13, 255, 1))


def sum_of_inputs(seed: int) -> onnx.ModelProto:
    net = Whole(seed)
    a, b = (net.requant(net.input(name, (1, 4, 5)), 0, 2.0**12, 256, signed) for name, signed in (("a", 0), ("b", 1)))
    return net.ended(net.requant(net.op("Add", a, b), 0, 2.0**8))


class Chains(Whole):
    """Requantisations of several nodes."""

    def ints(self, low: int, high: int, *shape: int) -> str:
        return self.stored(self.rng.integers(low, high, shape), np.int32)

    def layer(self, x: str, channels: tuple[int, int], window: int = 3, **attributes: Any) -> str:
        w = self.whole(-64, 65, channels[1], channels[0] // attributes.get("group", 1), window, window)
        return self.op("Conv", x, w, pads=[window // 2] * 4, **attributes)

    def clipped(self, x: str, low: float = 0, high: float = 255) -> str:
        return self.op("Clip", x, self.stored(low), self.stored(high))

    def nemo(self, x: str, channels: int, div: int, kappa: tuple[int, int] = (300, 2048), high: int = 255) -> str:
        """Batch normalisation as kappa and lambda, then a quotient of int64."""
        shape = (1, channels, 1, 1) if channels else ()
        x = self.op("Mul", self.whole(*kappa, *shape), x)
        x = self.op("Cast", self.op("Add", x, self.whole(-(10**6), 10**7, *shape)), to=TensorProto.INT64)
        x = self.op("Div", self.op("Mul", x, self.longs(35)), self.longs(div))
        return self.clipped(self.op("Cast", self.op("Cast", x, to=TensorProto.INT64), to=TensorProto.FLOAT), high=high)

    def floored(self, x: str, channels: int, div: float, **ends: float) -> str:
        """A requantisation of quantlib before it had RequantShift."""
        x = self.op(
            "Add", self.op("Mul", x, self.whole(40, 900, channels, 1, 1)), self.whole(-(2**21), 2**22, channels, 1, 1)
        )
        return self.clipped(self.op("Floor", self.op("Div", x, self.stored(div))), **ends)

    def joined(self, a: str, b: str, factors: tuple[int, int], div: int) -> str:
        a, b = (self.op("Mul", x, self.value(n)) for x, n in zip((a, b), factors, strict=True))
        return self.op("Floor", self.op("Div", self.op("Add", a, b), self.value(div)))


def nemo(seed: int, div: int, kappa: tuple[int, int] = (300, 2048)) -> onnx.ModelProto:
    """Convolutions, one by depth, a pool, branches that join, a mean, and a dense layer whose sums are the result."""
    net = Chains(seed)
    x = net.nemo(net.layer(net.input("x", (1, 2, 10, 8)), (2, 6)), 6, div, kappa)
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    y = net.nemo(net.layer(net.nemo(net.layer(x, (6, 6), group=6), 6, div // 16, kappa), (6, 6), 1), 6, div // 4, kappa)
    x = net.joined(x, y, (40, 64), 64)
    y = net.nemo(net.layer(x, (6, 6)), 6, div)
    x = net.op("AveragePool", net.joined(y, x, (32, 32), 32), kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Mul", net.op("Mul", x, net.value(4)), net.value(33))
    x = net.op("Flatten", net.op("Floor", net.op("Div", x, net.value(128))))
    return net.ended(net.op("Gemm", x, net.whole(-99, 99, 5, 24), net.whole(-999, 999, 5), transB=1))


def floored(seed: int) -> onnx.ModelProto:
    """Results of 2 and 8 bits, with the notes that DORY reads, and a sum whose operands are requantised first."""
    net = Chains(seed)
    x = net.floored(net.layer(net.input("x", (1, 3, 6, 6)), (3, 4), weight_bits=2, bias_bits=32), 4, 2.0**17, high=3)
    y = net.floored(net.layer(x, (4, 4)), 4, 2.0**11, low=-128, high=127)
    own = {"in1_rq": 1, "in1_mul": 77, "in1_add": 64, "in1_shift": 7, "in1_n_levels": 256, "in2_rq": 0, "out_rq": 1}
    own |= {"out_mul": 5, "out_add": -9, "out_shift": 2, "out_n_levels": 128, "add_bits": 8}
    return net.ended(net.op("Add", net.op("Relu", y), x, **own))


def of_bytes(seed: int, opset: int = 10, kappa: int = 300) -> onnx.ModelProto:
    """Integers in the file, too, as MATCH writes them: opset 10 has none of its convolutions, bounds and pools."""
    net = Chains(seed)
    x = net.input("x", (1, 2, 6, 5), TensorProto.UINT8)
    for window, kind, w in ((3, np.int8, (3, 2, 3, 3)), (1, np.int8, (4, 3, 1, 1)), (1, np.uint8, (4, 4, 1, 1))):
        weights = net.stored(net.rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, w), kind)
        sums = net.op("Conv", x, weights, kernel_shape=[window] * 2, pads=[window // 2] * 4)
        x = net.op("Mul", net.op("Cast", sums, to=TensorProto.INT32), net.ints(40, kappa, 1, w[0], 1, 1))
        x = net.op("Add", x, net.ints(-(2**21), 2**22, 1, w[0], 1, 1))
        x = net.op("Floor", net.op("Div", x, net.stored([2**16], np.int32)))
        ends = {"min": 0.0, "max": 255.0} if opset < 11 else {}
        x = net.op("Clip", x, *(() if ends else (net.stored(0, np.int32), net.stored(255, np.int32))), **ends)
        x = net.op("MaxPool", net.op("Cast", x, to=TensorProto.UINT8), kernel_shape=[2, 2])
    weights = net.stored(net.rng.integers(-128, 128, (24, 3)), np.int8)
    sums = net.op("MatMul", net.op("Flatten", x), weights)
    model = net.ended(net.op("Add", net.op("Cast", sums, to=TensorProto.INT32), net.ints(-999, 999, 1, 3)))
    model.opset_import[0].version = opset
    return model


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "MATCH": lambda: of_bytes(13),
    "MATCH, opset 13": lambda: of_bytes(14, 13),
    "residual": lambda: residual(0),
    "residual in a domain of its own": lambda: residual(1, "PACTOps"),
    "signed input": lambda: stated_input(2, np.int8),
    "unsigned input": lambda: stated_input(2, np.uint8),
    "sum of inputs": lambda: sum_of_inputs(3),
    "NEMO": lambda: nemo(4, 2**23),
    "NEMO, quotients by 2^k - 1": lambda: nemo(5, 2**23 - 1),
    "NEMO, negative factors and zeros": lambda: nemo(6, 2**22, (-3, 4)),
    "quotients by 2^k - 1, negative factors": lambda: nemo(7, 2**21 - 1, (-900, 2)),
    "floors": lambda: floored(8),
}
FOREIGN = ("residual", "residual in a domain of its own", "signed input", "unsigned input", "sum of inputs")


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", NETWORKS)
def test_equal_to_onnxruntime(name: str, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(NETWORKS[name](), file)
    result = verify(file, load_target("host"), compile_model(model_request(file, "model", "host", {})))
    assert result["equal"] and result["judge"].startswith("onnxruntime"), result


def test_sums_are_those_of_integers(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(residual(0), file)
    graph = prepare(file)
    sums = [op for op in graph.ops if op.kind in ("conv2d", "depthwise_conv2d", "dense")]
    assert len(sums) == 3
    assert all(t.dtype == "int8" for op in sums for t in graph.operands(op)[:2])


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in FOREIGN])
def test_chains_are_integers_alone(name: str, tmp_path: Path) -> None:
    """Each layer of int8 is one op, and no result is a real number."""
    file = tmp_path / "model.onnx"
    onnx.save(NETWORKS[name](), file)
    graph = prepare(file)
    assert all(graph.result(op).dtype != "float32" for op in graph.ops)
    assert sum("bits" in op.attrs for op in graph.ops if op.kind.endswith("conv2d")) >= 2


def test_a_shift_reaches_each_result_at_the_same_number() -> None:
    """Against Python's integers, for factors of every sign, sums and divisors, at ends and at random."""
    rng, missing = np.random.default_rng(0), 0
    for _ in range(400):
        scale, spread = int(rng.choice([1, 40, 60])), int(rng.choice([1, 10**3, 10**8]))
        factor = integers(rng.integers(-3000, 3000, 5) * scale * (rng.random(5) > 0.1))
        added = integers(rng.integers(-spread, spread, 5))
        divisor = int(rng.choice([2**24 - 1, 2**20, 2**22 - 1, 1000, 3, 2**10, 1, 2**30]))
        low, high = [(0, 255), (-128, 127), (0, 3)][rng.integers(3)]
        of = -int(rng.integers(0, 10 ** rng.integers(1, 7))), int(rng.integers(1, 10 ** rng.integers(1, 7)))
        shift = shift_of(Form("x", factor, added, divisor, "Floor").reduced(), of, low, high)
        missing += shift is None
        if shift is None:
            continue
        x = integers(np.unique([*of, *rng.integers(of[0], of[1] + 1, 200)]))[:, None]
        want = np.clip((x * factor + added) // divisor, low, high)
        before, times, more = (integers(a) for a in (shift.before, shift.factor, shift.added))
        total = (x + before) * times
        assert all(abs(a).max() < 2**31 for a in (before, times, more, x + before)) and abs(total).max() < 2**62
        mine = np.clip((total + more + (1 << shift.bits >> 1)) >> shift.bits, shift.low, shift.high)
        np.testing.assert_array_equal(mine, want)
    assert missing <= 4  # a channel of no factor whose constant does not fit


def strange(text: str) -> onnx.ModelProto:
    """A chain with something that no integers have."""
    net = Chains(9)
    x = net.layer(net.input("x", (1, 2, 5, 5)), (2, 3))
    x = net.op("Mul", x, net.stored(np.full((3, 1, 1), 0.3 if text == "kappa" else 3.0)))
    divisor = {"zero": 0.0, "negative": -4.0, "several": np.full((3, 1, 1), 5.0) * [[[1]], [[2]], [[3]]], "share": 2.5}
    x = net.op("Floor", net.op("Div", x, net.stored(divisor.get(text, 64.0))))
    return net.ended(net.clipped(x, high=7.5 if text == "bound" else 255))


@pytest.mark.parametrize("text", ["kappa", "zero", "negative", "several", "share", "bound"])
def test_other_numbers_stay_real(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(strange(text), file)
    graph = prepare(file)
    if text != "bound":
        assert graph.tensors[graph.inputs[0]].dtype == "float32" and not capsys.readouterr().err
    assert graph.tensors[graph.outputs[0]].dtype == "float32"


def repeated() -> onnx.ModelProto:
    """Factors of four channels for sums of one."""
    net = Chains(10)
    x = net.layer(net.input("x", (1, 2, 5, 5)), (2, 1))
    return net.ended(
        net.clipped(net.op("Floor", net.op("Div", net.op("Mul", x, net.whole(3, 99, 4, 1, 1)), net.stored(2.0**9))))
    )


def bordered() -> onnx.ModelProto:
    """A border of numbers that 8 bits do not hold."""
    net = Chains(11)
    x = net.floored(net.layer(net.input("x", (1, 2, 5, 5)), (2, 3)), 3, 2.0**17)
    x = net.op("Pad", x, net.longs(0, 0, 1, 1, 0, 0, 1, 1), net.stored(300.0))
    return net.ended(net.floored(net.layer(x, (3, 2)), 2, 2.0**18))


def beyond() -> onnx.ModelProto:
    """Results that 32 bits do not hold, though the bounds of what follows do."""
    net = Chains(12)
    x = net.op("Mul", net.layer(net.input("x", (1, 2, 5, 5)), (2, 3)), net.stored(2.0**20))
    x = net.clipped(net.op("Floor", net.op("Div", x, net.stored(3.0))), -1e12, 1e12)
    y = net.floored(net.layer("x", (2, 3)), 3, 2.0**12)
    return net.ended(net.op("Add", x, y))


@pytest.mark.parametrize("make", [repeated, bordered, beyond])
def test_numbers_are_those_of_the_judge(make: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    file, model = tmp_path / "model.onnx", make()
    onnx.save(model, file)
    graph = prepare(file)
    x = np.random.default_rng(3).integers(0, 256, (1, 2, 5, 5))
    port, result = graph.tensors[graph.inputs[0]], graph.tensors[graph.outputs[0]]
    start = port.quant.zero_point[0] if port.quant is not None else 0
    values = run(graph, (x + start).astype(port.dtype))
    in_standard(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x.astype(np.float32)})
    zero = result.quant.zero_point[0] if result.quant is not None else 0
    np.testing.assert_array_equal(values[result.name].astype(np.float64) - zero, want)
    assert np.unique(want).size > 3


def test_whole_numbers_stay_whole_for_the_judge() -> None:
    """Quotients of real numbers alone are judged in doubles: those of places have a type that the file may note."""
    nodes = [
        helper.make_node("ArgMax", ["x"], ["at"]),
        helper.make_node("Div", ["at", "n"], ["row"]),
        helper.make_node("Cast", ["row"], ["y"], to=TensorProto.FLOAT),
    ]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", (9, 2)), ("y", (1, 2)))
    ]
    stored = [numpy_helper.from_array(np.array(3), "n"), numpy_helper.from_array(np.array(7, np.float16), "half")]
    model = helper.make_model(helper.make_graph(nodes, "g", ports[:1], ports[1:], stored))
    in_standard(model)
    assert [node.op_type for node in model.graph.node] == ["ArgMax", "Div", "Cast"]
    assert Numbers(model, "").words("half") == 7


def exactly(model: onnx.ModelProto, x: Array) -> Array:
    """The result of a file of `of_bytes` in numpy's int64: each node as it stands there, whatever type it is of."""
    held = {t.name: numpy_helper.to_array(t).astype(np.int64) for t in model.graph.initializer} | {"x": x}
    for node in model.graph.node:
        a, *others = (held[name] for name in node.input)
        own = {t.name: helper.get_attribute_value(t) for t in node.attribute}
        if node.op_type == "Conv":
            border = own["pads"][0]
            padded = np.pad(a, [(0, 0), (0, 0), (border, border), (border, border)])
            windows = np.lib.stride_tricks.sliding_window_view(padded, own["kernel_shape"], (2, 3))
            a = np.einsum("ncyxij,ocij->noyx", windows, others[0])
        elif node.op_type == "MaxPool":
            a = np.lib.stride_tricks.sliding_window_view(a, own["kernel_shape"], (2, 3)).max((4, 5))
        else:
            a = {"Mul": np.multiply, "Add": np.add, "Div": np.floor_divide, "MatMul": np.matmul}.get(
                node.op_type, {"Clip": lambda v, *_: v.clip(0, 255), "Flatten": lambda v: v.reshape(1, -1)}.get(
                    node.op_type, lambda v: v))(a, *others)  # fmt: skip
        held[node.output[0]] = a
    return held[model.graph.output[0].name]


@pytest.mark.parametrize("opset", [10, 13])
def test_integers_of_the_file_are_exact(opset: int, tmp_path: Path) -> None:
    """The judge of `verify` reads operators that the standard has in place of the file's; this reads the file's own."""
    file, model = tmp_path / "model.onnx", of_bytes(15, opset)
    onnx.save(model, file)
    graph = prepare(file)
    for seed in range(4):
        x = np.random.default_rng(seed).integers(0, 256, (1, 2, 6, 5))
        values = run(graph, (x - 128).astype(np.int8))
        np.testing.assert_array_equal(values[graph.outputs[0]], exactly(model, x))


UNSAID = {"residual": ["x"], "signed input": [], "unsigned input": [], "sum of inputs": ["a", "b"]}


@pytest.mark.parametrize("name", UNSAID)
def test_a_warning_names_inputs_of_unknown_sign(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what they are taken for, and what states it; of inputs that a node quantises there is none."""
    file = tmp_path / "model.onnx"
    onnx.save(NETWORKS[name](), file)
    graph, errors = prepare(file), capsys.readouterr().err
    assert re.findall(r"model\.onnx: warning: input '(\w)' is taken for uint8", errors) == UNSAID[name]
    assert re.findall(r"put QuantizeLinear and DequantizeLinear behind '(\w)'", errors) == UNSAID[name]
    zeros = [t.quant.zero_point for n in graph.inputs if (t := graph.tensors[n]).quant is not None]
    assert zeros == [(0,) if name == "signed input" else (-128,)] * len(graph.inputs)


@pytest.mark.needs("gcc")
def test_products_and_shifts_are_exact(tmp_path: Path) -> None:
    """At the ends of int32, and where the rounding decides."""
    rng, ends = np.random.default_rng(0), np.iinfo(np.int32)
    columns = [rng.integers(ends.min, ends.max, 64), rng.integers(-99, 99, 64), np.array([ends.min, ends.max] * 32)]
    values = [np.concatenate([rng.permutation(c) for c in columns]).astype(np.int32) for _ in range(3)]
    cases = [(0, -128, 127), (1, 0, 255), (16, 0, 255), (31, -100, 99)]
    inputs = [Tensor(f"x{i}", (192,), "int32") for i in range(3)]
    results = [Tensor(f"y{i}", (192,), "int16") for i in range(len(cases))]
    steps = tuple(
        Op("pointwise", y.name, ("x0", "x1", "x2"), (y.name,),
           attributes("shifted_product", to="int16", bits=bits, low=low, high=high))
        for y, (bits, low, high) in zip(results, cases, strict=True)
    )  # fmt: skip
    names = tuple(t.name for t in inputs), tuple(t.name for t in results)
    graph = Graph("table", steps, {t.name: t for t in (*inputs, *results)}, *names, "onnx")
    ((printed,),) = run_on_host([graph], [[values]], tmp_path)
    for mine, (bits, low, high) in zip(printed, cases, strict=True):
        exact = [INTEGER["shifted_product"](*map(int, row), bits, low, high) for row in zip(*values, strict=True)]
        np.testing.assert_array_equal(mine, exact)


def changed(**attributes: Any) -> onnx.ModelProto:
    model = residual(0)
    node = next(n for n in model.graph.node if n.op_type == "RequantShift")
    for name, value in attributes.items():
        next(a for a in node.attribute if a.name == name).t.CopyFrom(numpy_helper.from_array(np.float32(value)))
    return model


def with_computed_factor() -> onnx.ModelProto:
    model = residual(0)
    model.graph.node[1].input[1] = "x"
    return model


def with_half_a_factor() -> onnx.ModelProto:
    model = residual(0)
    name = next(n.input[1] for n in model.graph.node if n.op_type == "RequantShift")
    next(t for t in model.graph.initializer if t.name == name).CopyFrom(
        numpy_helper.from_array(np.full((6, 1, 1), 0.5, np.float32), name)
    )
    return model


WRONG: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "div": (lambda: changed(div=1000.0), "div is 1000"),
    "half a div": (lambda: changed(div=0.5), "attribute 'div' is no whole number"),
    "levels": (lambda: changed(n_levels_out=1000.0), "1000 levels"),
    "a computed factor": (with_computed_factor, "'mul' is computed by the graph"),
    "half a factor": (with_half_a_factor, "'mul' is not of whole numbers in 32 bits"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_requantisation_is_refused(name: str, tmp_path: Path) -> None:
    make, text = WRONG[name]
    file = tmp_path / "model.onnx"
    onnx.save(make(), file)
    with pytest.raises(EdgebuildError) as error:
        prepare(file)
    assert text in str(error.value) and "RequantShift" in str(error.value)
