"""The networks of MLPerf Tiny and an irregular one, made from nothing but a seed.

The graphs look like an exporter's: NCHW, one image, batch normalisation after the convolutions, every shape inferred.
Weights are random but scaled (He et al., "Delving Deep into Rectifiers", ICCV 2015, equation 10), so activations keep
their size through the depth of a network. The layers of the four benchmark networks are those of Banbury et al.,
"MLPerf Tiny Benchmark", NeurIPS 2021, with TensorFlow's paddings.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

OPSET = 17
CALIBRATION_INPUTS = 16


class Net:
    """A graph under construction. Each method adds a layer behind tensor `x` and returns the name of its output."""

    def __init__(self, name: str, shape: tuple[int, ...], seed: int, opset: int) -> None:
        """`shape` is that of one input without the batch: (channels, height, width), or (features,)."""
        self.name, self.opset = name, opset
        self.random = np.random.default_rng(seed)
        self.shapes = {"input": shape}  # of every tensor, without the batch
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def conv(
        self,
        x: str,
        channels: int,
        kernel: tuple[int, int],
        stride: int = 1,
        depthwise: bool = False,
        relu: bool = True,
    ) -> str:
        """Convolution without bias, padded so that the size is divided by `stride`; batch normalisation; ReLU."""
        inputs, height, width = self.shapes[x]
        group = inputs if depthwise else 1
        shape = (channels, inputs // group, *kernel)
        (top, bottom), (left, right) = same_padding(height, kernel[0], stride), same_padding(width, kernel[1], stride)
        x = self.add(
            "Conv",
            [x, self.weights(shape, fan_in=math.prod(shape[1:]))],
            (channels, -(-height // stride), -(-width // stride)),
            kernel_shape=kernel,
            strides=(stride, stride),
            pads=(top, left, bottom, right),
            group=group,
        )
        x = self.normalise(x)
        return self.relu(x) if relu else x

    def separable(self, x: str, channels: int, stride: int = 1) -> str:
        """Depthwise 3x3 and pointwise convolution."""
        x = self.conv(x, self.shapes[x][0], (3, 3), stride, depthwise=True)
        return self.conv(x, channels, (1, 1))

    def dense(self, x: str, features: int) -> str:
        """Fully connected layer with bias."""
        (inputs,) = self.shapes[x]
        bias = self.constant("bias", self.random.normal(0, 0.1, features))
        return self.add("Gemm", [x, self.weights((features, inputs), inputs), bias], (features,), transB=1)

    def normalise(self, x: str) -> str:
        """Batch normalisation at inference, near the identity."""
        channels = self.shapes[x][0]
        gamma, variance = self.random.uniform(0.8, 1.25, (2, channels))
        beta, mean = self.random.normal(0, 0.1, (2, channels))
        roles = {"gamma": gamma, "beta": beta, "mean": mean, "variance": variance}
        return self.add("BatchNormalization", [x, *(self.constant(k, v) for k, v in roles.items())], self.shapes[x])

    def relu(self, x: str) -> str:
        return self.add("Relu", [x], self.shapes[x])

    def sum(self, x: str, y: str) -> str:
        return self.add("Add", [x, y], self.shapes[x])

    def concat(self, *parts: str) -> str:
        """Channels of all `parts`."""
        channels = sum(self.shapes[part][0] for part in parts)
        return self.add("Concat", list(parts), (channels, *self.shapes[parts[0]][1:]), axis=1)

    def average_pool(self, x: str) -> str:
        """Mean over the image, as a pool with the image's size."""
        channels, *kernel = self.shapes[x]
        return self.add("AveragePool", [x], (channels, 1, 1), kernel_shape=kernel)

    def global_average_pool(self, x: str) -> str:
        return self.add("GlobalAveragePool", [x], (self.shapes[x][0], 1, 1))

    def flatten(self, x: str) -> str:
        return self.add("Flatten", [x], (math.prod(self.shapes[x]),))

    def softmax(self, x: str) -> str:
        return self.add("Softmax", [x], self.shapes[x], axis=-1)

    def model(self, output: str) -> onnx.ModelProto:
        """The finished model with `output` as its only output, checked and with all shapes inferred."""
        self.nodes[-1].output[0] = "output"
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, (1, *self.shapes["input"]))],
            [helper.make_tensor_value_info("output", TensorProto.FLOAT, (1, *self.shapes[output]))],
            self.constants,
        )
        opsets = [helper.make_opsetid("", self.opset)]
        ir = helper.find_min_ir_version_for(opsets)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=ir, producer_name="edgebuild test zoo")
        return shape_inference.infer_shapes(model, check_type=True, strict_mode=True)

    # What the layers are made of ---------------------------------------------------------------------------------

    def add(self, op: str, inputs: list[str], shape: tuple[int, ...], **attributes: Any) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        self.shapes[name] = shape
        return name

    def weights(self, shape: tuple[int, ...], fan_in: int) -> str:
        return self.constant("weight", self.random.normal(0, math.sqrt(2 / fan_in), shape))

    def constant(self, role: str, value: np.ndarray) -> str:
        name = f"{role}_{len(self.nodes)}"
        self.constants.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after an axis so that its output has ceil(size / stride) elements; an odd one goes behind."""
    total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    return total // 2, total - total // 2


def ds_cnn(seed: int = 0, opset: int = OPSET) -> onnx.ModelProto:
    """Keyword spotting: 49 spectra of 10 coefficients -> 12 words."""
    net = Net("ds_cnn", (1, 49, 10), seed, opset)
    x = net.conv("input", 64, (10, 4), stride=2)
    for _ in range(4):
        x = net.separable(x, 64)
    x = net.flatten(net.average_pool(x))
    return net.model(net.softmax(net.dense(x, 12)))


def mobilenet_v1(
    seed: int = 0, opset: int = OPSET, width: float = 0.25, size: int = 96, classes: int = 2
) -> onnx.ModelProto:
    """MobileNetV1, as for visual wake words: colour image of `size` x `size` -> person or none."""
    net = Net("mobilenet_v1", (3, size, size), seed, opset)
    x = net.conv("input", int(32 * width), (3, 3), stride=2)
    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for channels, stride in blocks:
        x = net.separable(x, int(channels * width), stride)
    x = net.flatten(net.global_average_pool(x))
    return net.model(net.softmax(net.dense(x, classes)))


def resnet8(seed: int = 0, opset: int = OPSET) -> onnx.ModelProto:
    """Image classification: 32x32 colour image -> 10 classes, three residual blocks."""
    net = Net("resnet8", (3, 32, 32), seed, opset)
    x = net.conv("input", 16, (3, 3))
    for channels, stride in [(16, 1), (32, 2), (64, 2)]:
        y = net.conv(x, channels, (3, 3), stride)
        y = net.conv(y, channels, (3, 3), relu=False)
        shortcut = x if stride == 1 else net.conv(x, channels, (1, 1), stride, relu=False)
        x = net.relu(net.sum(shortcut, y))
    x = net.flatten(net.average_pool(x))
    return net.model(net.softmax(net.dense(x, 10)))


def autoencoder(seed: int = 0, opset: int = OPSET) -> onnx.ModelProto:
    """Anomaly detection: 5 spectra of 128 bands -> their reconstruction through 8 features.

    Without batch normalisation, as it is deployed: onnxruntime would quantise it apart from the dense layers.
    """
    net = Net("autoencoder", (640,), seed, opset)
    x = "input"
    for features in [128, 128, 128, 128, 8, 128, 128, 128, 128]:
        x = net.relu(net.dense(x, features))
    return net.model(net.dense(x, 640))


# Each entry is an operation and the entries that it reads; 0 is the input of the cell, 1 its first entry.
# p: pointwise convolution to the cell's width, d: depthwise 3x3, s: the same with stride 2, +: add, |: concat.
SWIFTNET_CELLS = {
    "a": (12, "p0 d1 p2 d1 p0 |1,3,5 p6 d7 p4 +5,7 d10 |4,8,11 p12 d9 +13,14 p11 d16 |10,15,17 p18 d13 +19,20"),
    "b": (20, "s0 p1 d2 p1 |2,3 p5 d4 +6,7 d8 p5 |3,8,10 p11 d9 p13 |12,14,9 d12 p15 +16,17 p18"),
    "c": (28, "s0 p1 p1 d2 d3 +4,5 |2,6 p7 d8 p5 d10 |4,9,11 p12 d6 +13,14 d15 |10,13,16 p17 d8 |15,19 p20 +18,21"),
}


def swiftnet_like(seed: int = 0, opset: int = OPSET) -> onnx.ModelProto:
    """An irregularly wired network for schedulers: three cells of 21, 19 and 22 operations.

    The sizes are those of the SwiftNet cells of Ahn et al., "Ordering Chaos", MLSys 2020; the wiring is our own.
    """
    net = Net("swiftnet_like", (3, 64, 64), seed, opset)
    x = net.conv("input", 12, (3, 3), stride=2)
    for width, wiring in SWIFTNET_CELLS.values():
        x = cell(net, x, width, wiring)
    x = net.flatten(net.global_average_pool(x))
    return net.model(net.dense(x, 2))


def cell(net: Net, x: str, width: int, wiring: str) -> str:
    """Add a cell of `SWIFTNET_CELLS` behind `x`; its output is that of its last entry."""
    tensors = [x]
    for entry in wiring.split():
        sources = [tensors[int(number)] for number in entry[1:].split(",")]
        first, channels = sources[0], net.shapes[sources[0]][0]
        match entry[0]:
            case "p":
                tensors.append(net.conv(first, width, (1, 1)))
            case "d":
                tensors.append(net.conv(first, channels, (3, 3), depthwise=True))
            case "s":
                tensors.append(net.conv(first, channels, (3, 3), stride=2, depthwise=True))
            case "+":
                tensors.append(net.sum(*sources))
            case "|":
                tensors.append(net.concat(*sources))
    return tensors[-1]


ZOO: dict[str, Callable[..., onnx.ModelProto]] = {
    builder.__name__: builder for builder in (ds_cnn, mobilenet_v1, resnet8, autoencoder, swiftnet_like)
}


# Quantisation ----------------------------------------------------------------------------------------------------


def random_inputs(model: onnx.ModelProto, count: int, seed: int) -> np.ndarray:
    """`count` inputs of `model`, float32 [count, 1, ...]: noise whose mean and size differ from input to input.

    The differences survive the mean over an image, which plain noise does not, so that outputs depend on inputs.
    """
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    random = np.random.default_rng(seed)
    each = (count, *shape[:2], *[1] * (len(shape) - 2))
    noise = random.normal(size=(count, *shape))
    return (noise * random.uniform(0.5, 1.5, each) + random.normal(size=each)).astype(np.float32)


class Calibration(CalibrationDataReader):  # type: ignore[misc]
    """One random input at a time, as the quantiser asks for them."""

    def __init__(self, inputs: np.ndarray) -> None:
        self.feeds: Iterator[dict[str, np.ndarray]] = iter([{"input": x} for x in inputs])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.feeds, None)


def quantized(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """`model` as onnxruntime quantises it: int8, QDQ, weights per channel, ranges from random inputs."""
    with tempfile.TemporaryDirectory() as folder:
        prepared, result = Path(folder, "prepared.onnx"), Path(folder, "quantized.onnx")
        copy = onnx.ModelProto.FromString(model.SerializeToString())  # the next call moves weights out of its input
        quant_pre_process(copy, prepared, skip_symbolic_shape=True)  # folds batch normalisation, among others
        quantize_static(
            prepared,
            result,
            Calibration(random_inputs(model, CALIBRATION_INPUTS, seed)),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
        )
        return shape_inference.infer_shapes(onnx.load(result), check_type=True, strict_mode=True)
