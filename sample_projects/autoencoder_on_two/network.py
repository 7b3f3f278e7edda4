"""Writes autoencoder.onnx: the autoencoder of MLPerf Tiny (640, 4 x 128, 8, 4 x 128, 640) with weights from a seed.

Quantised to 8 bits; nobody trained it. Its weights take 2,048 bytes more than a micro:bit has flash.
Banbury et al., "MLPerf Tiny Benchmark", NeurIPS 2021, has the layers. Needs numpy and onnx.
"""

import itertools
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES, SEED = (640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640), 7
ONE = np.float32(6 / 255)  # scale of all activations, which lie between 0 and 6


def network() -> onnx.ModelProto:
    random, x = np.random.default_rng(SEED), "sound"
    nodes, constants = [], {"scale": ONE, "zero": np.int8(-128), "w.zero": np.int8(0)}
    for number, (inputs, outputs) in enumerate(itertools.pairwise(SIZES)):
        name = f"layer{number}"
        weights = random.normal(0, np.sqrt(2 / inputs), (outputs, inputs))
        scale = np.float32(np.abs(weights).max() / 127)
        constants |= {f"{name}.w": np.rint(weights / scale).astype(np.int8), f"{name}.scale": scale}
        nodes += [
            helper.make_node("DequantizeLinear", [f"{name}.w", f"{name}.scale", "w.zero"], [f"{name}.w.real"]),
            helper.make_node("DequantizeLinear", [x, "scale", "zero"], [f"{name}.x.real"]),
            helper.make_node("Gemm", [f"{name}.x.real", f"{name}.w.real"], [f"{name}.y"], name=name, transB=1),
            helper.make_node("QuantizeLinear", [f"{name}.y", "scale", "zero"], [name]),
        ]
        x = name
    nodes[-1].output[0] = "again"
    ports = [("sound", SIZES[0]), ("again", SIZES[-1])]
    inputs, outputs = (helper.make_tensor_value_info(n, TensorProto.INT8, (1, size)) for n, size in ports)
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "autoencoder", [inputs], [outputs], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    model = network()
    onnx.checker.check_model(model)
    with open(sys.argv[1], "wb") as file:
        file.write(model.SerializeToString(deterministic=True))
