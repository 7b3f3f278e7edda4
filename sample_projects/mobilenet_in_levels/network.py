"""Writes mobilenet.onnx: MobileNetV1 of half width on 96x96 pixels, quantised, with weights from a seed.

It shows how much is moved, not what is seen: nobody trained it. Needs numpy and onnx.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIDE, WIDTH, CLASSES, SEED = 96, 0.5, 10, 7
BLOCKS = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
ONE = np.float32(6 / 255)  # scale of all activations, which lie between 0 and 6


class Network:
    """Nodes and constants as they are added; every activation is quantised alike."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(SEED)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {"scale": ONE, "zero": np.int8(-128)}

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants[name] = value
        return name

    def dequantized(self, name: str, scale: str, zero: str, **axis: int) -> str:
        self.nodes.append(helper.make_node("DequantizeLinear", [name, scale, zero], [f"{name}.real"], **axis))
        return f"{name}.real"

    def layer(self, x: str, kind: str, shape: tuple[int, ...], **attributes: object) -> str:
        """A layer with a scale of its weights for each channel, and without a bias."""
        name = f"layer{len([n for n in self.nodes if n.op_type in ('Conv', 'Gemm')])}"
        weights = self.random.normal(0, 1, shape) * np.sqrt(2 / np.prod(shape[1:]))
        scale = np.abs(weights).reshape(shape[0], -1).max(axis=1) / 127
        rounded = np.rint(weights / scale.reshape(-1, *[1] * (len(shape) - 1))).astype(np.int8)
        self.constant(f"{name}.w", rounded)
        self.constant(f"{name}.scale", scale.astype(np.float32))
        self.constant(f"{name}.zero", np.zeros(shape[0], np.int8))
        w = self.dequantized(f"{name}.w", f"{name}.scale", f"{name}.zero", axis=0)
        real = self.dequantized(x, "scale", "zero")
        self.nodes.append(helper.make_node(kind, [real, w], [f"{name}.y"], name=name, **attributes))
        self.nodes.append(helper.make_node("QuantizeLinear", [f"{name}.y", "scale", "zero"], [name]))
        return name

    def conv(self, x: str, inputs: int, outputs: int, window: int, stride: int = 1, group: int = 1) -> str:
        pads = [window // 2] * 4
        shape = (outputs, inputs // group, window, window)
        return self.layer(x, "Conv", shape, strides=[stride] * 2, pads=pads, group=group, kernel_shape=[window] * 2)


def network() -> onnx.ModelProto:
    net, channels = Network(), int(32 * WIDTH)
    x = net.conv("image", 3, channels, 3, 2)
    for wide, stride in BLOCKS:
        x = net.conv(x, channels, channels, 3, stride, channels)
        x, channels = net.conv(x, channels, int(wide * WIDTH), 1), int(wide * WIDTH)
    real = net.dequantized(x, "scale", "zero")
    net.nodes.append(helper.make_node("GlobalAveragePool", [real], ["mean.real"], name="mean"))
    net.nodes.append(helper.make_node("QuantizeLinear", ["mean.real", "scale", "zero"], ["mean"]))
    net.nodes.append(helper.make_node("Flatten", ["mean"], ["flat"]))
    net.layer("flat", "Gemm", (CLASSES, channels), transB=1)
    net.nodes[-1].output[0] = "scores"
    ports = [("image", (1, 3, SIDE, SIDE)), ("scores", (1, CLASSES))]
    inputs, outputs = (helper.make_tensor_value_info(n, TensorProto.INT8, shape) for n, shape in ports)
    constants = [numpy_helper.from_array(np.asarray(v), n) for n, v in net.constants.items()]
    graph = helper.make_graph(net.nodes, "mobilenet", [inputs], [outputs], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    model = network()
    onnx.checker.check_model(model)
    with open(sys.argv[1], "wb") as file:
        file.write(model.SerializeToString(deterministic=True))
