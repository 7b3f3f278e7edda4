"""Random small ONNX models as exporters write them: NCHW, batch normalisation behind convolutions, shapes inferred."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, shape_inference

from edgebuild.model.ir import Array

from .source import Source, sources

OPSET = 17


class OnnxFile:
    """A model under construction. `shapes` has that of every tensor."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[str] = []
        self.shapes: dict[str, tuple[int, ...]] = {}

    def input(self, shape: Sequence[int]) -> str:
        name = f"in{len(self.inputs)}"
        self.inputs.append(name)
        self.shapes[name] = tuple(shape)
        return name

    def constant(self, value: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def normal(self, *shape: int, size: float = 1.0) -> str:
        return self.constant((size * self.rng.standard_normal(shape)).astype(np.float32))

    def node(self, operator: str, inputs: Sequence[str], shape: Sequence[int], **attributes: Any) -> str:
        name = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name, **attributes))
        self.shapes[name] = tuple(shape)
        return name

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """The checked model. Raises if a shape given to `node` is not that of the standard."""

        def value(name: str) -> Any:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name])

        graph = helper.make_graph(
            self.nodes, "random", [value(n) for n in self.inputs], [value(n) for n in outputs], self.constants
        )
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
        onnx.checker.check_model(model, full_check=True)
        return shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


class Net(OnnxFile):
    """Layers with drawn sizes. Images are N x C x H x W."""

    def __init__(self, s: Source) -> None:
        super().__init__(s.rng)
        self.s = s

    def conv(self, x: str) -> str:
        _, c, h, w = self.shapes[x]
        depthwise, taps, stride, dilation = (
            self.s.pick(True, False),
            self.s.pick(1, 3),
            self.s.pick(1, 1, 2),
            self.s.pick(1, 1, 2),
        )
        out = c * self.s.pick(1, 1, 2) if depthwise else self.s.between(1, 6)
        group = c if depthwise else 1
        bias = [self.normal(out)] if self.s.pick(True, False) else []
        half = taps // 2 * dilation
        size = [(n + 2 * half - (taps - 1) * dilation - 1) // stride + 1 for n in (h, w)]
        weights = self.normal(out, c // group, taps, taps, size=(2 / (c // group * taps * taps)) ** 0.5)
        attributes = {"group": group, "strides": [stride] * 2, "pads": [half] * 4, "dilations": [dilation] * 2}
        return self.node("Conv", [x, weights, *bias], (1, out, *size), **attributes)

    def normalise(self, x: str) -> str:
        c = self.shapes[x][1]
        gamma, variance = (self.constant(self.rng.uniform(0.5, 2, c).astype(np.float32)) for _ in range(2))
        operands = [x, gamma, self.normal(c), self.normal(c), variance]
        return self.node("BatchNormalization", operands, self.shapes[x])

    def relu(self, x: str) -> str:
        return self.node("Relu", [x], self.shapes[x])

    def clip(self, x: str) -> str:
        bounds = [self.constant(np.float32(v)) for v in (0, self.s.pick(1, 6))]
        return self.node("Clip", [x, *bounds], self.shapes[x])

    def pad(self, x: str) -> str:
        _, c, h, w = self.shapes[x]
        top, left, bottom, right = (self.s.between(0, 2) for _ in range(4))
        pads = self.constant(np.array([0, 0, top, left, 0, 0, bottom, right], np.int64))
        return self.node("Pad", [x, pads], (1, c, h + top + bottom, w + left + right))

    def pool(self, x: str) -> str:
        _, c, h, w = self.shapes[x]
        kind, taps, stride, pad = (
            self.s.pick("MaxPool", "AveragePool"),
            self.s.pick(2, 3),
            self.s.pick(1, 2),
            self.s.pick(0, 1),
        )
        attributes: dict[str, Any] = {"kernel_shape": [taps] * 2, "strides": [stride] * 2}
        if min(h, w) < taps or self.s.pick(False, True):
            attributes["auto_pad"] = self.s.pick("SAME_UPPER", "SAME_LOWER")
            size = [-(-n // stride) for n in (h, w)]
        else:
            up = self.s.pick(0, 1)
            room = [n + 2 * pad - taps for n in (h, w)]
            if any(-(-r // stride) * stride >= n + pad for r, n in zip(room, (h, w), strict=True)):
                up = 0  # the last window would lie in the padding: ONNX's own shape inference and onnxruntime disagree
            attributes |= {"pads": [pad] * 4, "ceil_mode": up}
            size = [(r + up * (stride - 1)) // stride + 1 for r in room]
        if kind == "AveragePool":
            attributes["count_include_pad"] = self.s.pick(0, 1)
        return self.node(kind, [x], (1, c, *size), **attributes)

    def scale(self, x: str) -> str:
        """Times or plus a constant: one number, one per channel, or one per element."""
        c = self.shapes[x][1]
        shape = self.s.pick((), (c, 1, 1), (1, c, 1, 1), self.shapes[x])
        return self.node(self.s.pick("Mul", "Add"), [x, self.normal(*shape)][:: self.s.pick(1, -1)], self.shapes[x])

    def turn(self, x: str) -> str:
        """There and back, with something between that does not care."""
        there = tuple(self.shapes[x][p] for p in (0, 2, 3, 1))
        y = self.node("Transpose", [x], there, perm=[0, 2, 3, 1])
        return self.node("Transpose", [self.relu(y)], self.shapes[x], perm=[0, 3, 1, 2])

    def sum(self, x: str, y: str) -> str:
        return self.node(self.s.pick("Add", "Mul"), [x, y], self.shapes[x])

    def concat(self, x: str, y: str) -> str:
        c = self.shapes[x][1] + self.shapes[y][1]
        return self.node("Concat", [x, y], (1, c, *self.shapes[x][2:]), axis=1)

    def head(self, x: str) -> str:
        n, c = 1, self.shapes[x][1]
        match self.s.pick("pool", "mean", "flatten", "reshape"):
            case "pool":
                x = self.node("GlobalAveragePool", [x], (1, c, 1, 1))
                x = self.node("Flatten", [x], (1, c))
            case "mean":
                x = self.node("ReduceMean", [x], (1, c), axes=[2, 3], keepdims=0)
            case "flatten":
                x = self.node("Flatten", [x], (1, prod(self.shapes[x])))
            case _:
                wanted = self.constant(np.array([1, -1], np.int64))
                x = self.node("Reshape", [x, wanted], (1, prod(self.shapes[x])))
        features, out = self.shapes[x][1], self.s.between(1, 6)
        size = features**-0.5
        if self.s.pick(True, False):
            x = self.node("Gemm", [x, self.normal(out, features, size=size), self.normal(out)], (n, out), transB=1)
        else:
            x = self.node("MatMul", [x, self.normal(features, out, size=size)], (n, out))
            x = self.node("Add", [x, self.normal(out)], (n, out))
        return self.s.pick(self.relu, self.softmax, lambda y: y)(x)

    def softmax(self, x: str) -> str:
        return self.node("Softmax", [x], self.shapes[x], axis=-1)


SINGLE = ("conv", "conv", "conv", "normalise", "relu", "clip", "pad", "pool", "scale", "turn")
DOUBLE = ("sum", "concat")
LAYERS = (*dict.fromkeys(SINGLE), *DOUBLE, "head", "softmax")


@st.composite
def onnx_layers(draw: st.DrawFn, layer: str) -> onnx.ModelProto:
    """A float model of one layer, which is a method of `Net`: one node, or a few for `turn` and `head`."""
    net = Net(draw(sources((("onnx", True),))))
    shape = (1, net.s.between(1, 4), net.s.between(3, 8), net.s.between(3, 8))
    operands = [net.input(shape) for _ in range(2 if layer in DOUBLE else 1)]
    return net.model([getattr(net, layer)(*operands)])


@st.composite
def onnx_models(draw: st.DrawFn) -> onnx.ModelProto:
    """A float model of about 3 to 12 nodes with one or two inputs; its outputs are what no node reads."""
    s = draw(sources((("onnx", True),)))
    net = Net(s)
    shape = (1, s.between(1, 4), s.between(3, 8), s.between(3, 8))
    images = [net.input(shape) for _ in range(s.pick(1, 1, 2))]
    for _ in range(s.between(2, 9)):
        x = s.pick(*images[-2:])
        word = s.pick(*SINGLE, *DOUBLE)
        if word == "sum":
            images.append(net.sum(x, s.pick(*(t for t in images if net.shapes[t] == net.shapes[x]))))
        elif word == "concat":
            images.append(net.concat(x, s.pick(*(t for t in images if net.shapes[t][2:] == net.shapes[x][2:]))))
        else:
            images.append(getattr(net, word)(x))
    last = net.head(images[-1]) if s.pick(True, True, False) else images[-1]
    read = {name for node in net.nodes for name in node.input}
    net.inputs = [name for name in net.inputs if name in read]
    results = [node.output[0] for node in net.nodes]
    return net.model([name for name in results if name not in read or name == last])


def feeds(model: onnx.ModelProto, count: int, seed: int) -> list[list[Array]]:
    """`count` random vectors, each with an array per input."""
    rng = np.random.default_rng(seed)
    shapes = [[d.dim_value for d in value.type.tensor_type.shape.dim] for value in model.graph.input]
    return [[rng.standard_normal(shape).astype(np.float32) for shape in shapes] for _ in range(count)]


def quantised(
    model: onnx.ModelProto, per_channel: bool = True, unsigned: bool = False, operators: bool = False
) -> onnx.ModelProto:
    """`model` as onnxruntime's static quantiser makes it int8 in the QDQ form, from random calibration data.

    `unsigned`: activations are uint8. `operators`: in the form of quantised operators.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            names = [value.name for value in model.graph.input]
            self.vectors: Iterator[dict[str, Array]] = (
                dict(zip(names, vector, strict=True)) for vector in feeds(model, 4, seed=7)
            )

        def get_next(self) -> dict[str, Array] | None:
            return next(self.vectors, None)

    logging.getLogger().setLevel(logging.ERROR)  # it recommends pre-processing on every call
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        onnx.save(model, source)
        types = {"activation_type": QuantType.QUInt8 if unsigned else QuantType.QInt8, "weight_type": QuantType.QInt8}
        form = QuantFormat.QOperator if operators else QuantFormat.QDQ
        quantize_static(source, result, Reader(), form, per_channel=per_channel, **types)
        return onnx.load(result)


def powers_of_two(model: onnx.ModelProto) -> onnx.ModelProto:
    """A quantised model with every scale at the nearest power of two, so that all its arithmetic is exact."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    constants = {t.name: t for t in model.graph.initializer}
    writers = {node.output[0]: node for node in model.graph.node}

    def scale_name(tensor: str) -> str:
        return str(writers[tensor].input[1])

    def scale(tensor: str) -> Array:
        return numpy_helper.to_array(constants[scale_name(tensor)])

    for node in model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            old = constants[node.input[1]]
            rounded = 2.0 ** np.rint(np.log2(numpy_helper.to_array(old)))
            old.CopyFrom(numpy_helper.from_array(rounded.astype(np.float32), old.name))
    for node in model.graph.node:
        if node.op_type in ("Conv", "Gemm") and len(node.input) > 2 and node.input[2] in writers:
            product = np.asarray(scale(node.input[0]) * scale(node.input[1]), np.float32)
            old = constants[scale_name(node.input[2])]
            old.CopyFrom(numpy_helper.from_array(product.reshape(list(old.dims)), old.name))
    return model
