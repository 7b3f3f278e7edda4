"""Networks of whole real numbers with RequantShift, as quantlib and Deeploy write them, against onnxruntime."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model, prepare
from edgebuild.model.ir import Graph, Op, Tensor
from edgebuild.model.ops.pointwise import attributes
from edgebuild.model.verify import verify
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


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "residual": lambda: residual(0),
    "residual in a domain of its own": lambda: residual(1, "PACTOps"),
    "signed input": lambda: stated_input(2, np.int8),
    "unsigned input": lambda: stated_input(2, np.uint8),
    "sum of inputs": lambda: sum_of_inputs(3),
}


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


UNSAID = {"residual": ["x"], "signed input": [], "unsigned input": [], "sum of inputs": ["a", "b"]}


@pytest.mark.parametrize("name", UNSAID)
def test_a_warning_names_inputs_of_unknown_sign(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what they are taken for, and what states it; of inputs that a node quantises there is none."""
    file = tmp_path / "model.onnx"
    onnx.save(NETWORKS[name](), file)
    graph, said = prepare(file), capsys.readouterr().err
    assert re.findall(r"model\.onnx: warning: input '(\w)' is taken for uint8", said) == UNSAID[name]
    assert re.findall(r"put QuantizeLinear and DequantizeLinear behind '(\w)'", said) == UNSAID[name]
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
