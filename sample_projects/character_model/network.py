"""Write a character language model of a million parameters as an ONNX file: python network.py model.onnx

A transformer decoder in int8 (QuantizeLinear and DequantizeLinear), one character a call. Weights are random, from a
stated seed: the sample shows what such a model takes, not what it says. Only the last layer is made so that each
character has a likely successor, as after training. Else a float that is rounded the other way changes the text. Six
layers, four query heads that share one head of keys and values, so that 128 characters of both take 49,152 bytes.

Inputs: `token`; `mask`, which is added to the scores of the 128 places of the cache and of the new character; `cache`,
keys and values of each layer. Outputs: `logits`; `rows`, the new keys and values; and the cache as it is. An input that
is an output stays where it is from one call to the next. So the caller writes the new rows into it, and copies nothing.
"""

from __future__ import annotations

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, WIDTH, HIDDEN, LAYERS, HEADS, HEAD, PLACES, SEED = 96, 128, 512, 6, 4, 32, 128, 20
LARGEST = {"rows": 5.0, "normal": 5.0, "score": 8.0, "sum": 24.0, "hidden": 5.0, "logits": 16.0, "mask": 30.0}


class Network:
    """Nodes and constants under construction; each method adds an operator and gives the name of its real result."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(SEED)
        self.nodes, self.constants = list[onnx.NodeProto](), dict[str, np.ndarray]()

    def constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def node(self, kind: str, *operands: str, **attributes: object) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(operands), [name], name, **attributes))
        return name

    def real(self, stored: str, scale: np.ndarray, **attributes: object) -> str:
        zeros = self.constant(np.zeros(np.shape(scale), np.int8))
        return self.node("DequantizeLinear", stored, self.constant(np.float32(scale)), zeros, **attributes)

    def stored(self, real: str, largest: str, zero: int = 0) -> str:
        scale = 1 / 256 if largest == "share" else LARGEST[largest] / 127
        parameters = self.constant(np.float32(scale)), self.constant(np.int8(zero))
        return self.node("QuantizeLinear", real, *parameters)

    def op(self, largest: str, kind: str, *operands: str, **attributes: object) -> str:
        """An operator whose result is quantised; `largest` says what int8 reaches to."""
        zero = -128 if largest == "share" else 0
        stored = self.stored(self.node(kind, *operands, **attributes), largest, zero)
        scale, zero_point = self.nodes[-1].input[1:]
        return self.node("DequantizeLinear", stored, scale, zero_point)

    def weights(self, values: np.ndarray) -> str:
        """With a scale for each column."""
        scale = np.abs(values).max(axis=0) / 127
        return self.real(self.constant(np.round(values / scale).astype(np.int8)), scale, axis=1)

    def product(self, largest: str, x: str, columns: int, rows: int = WIDTH) -> str:
        weights = self.rng.normal(size=(rows, columns)) / np.sqrt(rows)
        return self.op(largest, "MatMul", x, self.weights(weights))

    def normalised(self, x: str) -> str:
        ones, zeros = self.constant(np.ones(WIDTH, np.float32)), self.constant(np.zeros(WIDTH, np.float32))
        return self.op("normal", "LayerNormalization", x, ones, zeros, axis=-1)

    def part(self, largest: str, x: str, begin: int, end: int, axis: int) -> str:
        return self.op(largest, "Slice", x, *(self.constant(np.array([n])) for n in (begin, end, axis)))

    def reshaped(self, largest: str, x: str, *shape: int) -> str:
        return self.op(largest, "Reshape", x, self.constant(np.array(shape)))


def attention(net: Network, x: str, cache: str, mask: str, layer: int) -> tuple[str, list[str]]:
    """The result of the heads for one character, and its keys and values. All scores together are four rows."""
    q = net.reshaped("rows", net.product("rows", x, HEADS * HEAD), HEADS, HEAD)
    new = [net.product("rows", x, HEAD) for _ in "kv"]
    held = [net.part("rows", cache, (2 * layer + i) * PLACES, (2 * layer + i + 1) * PLACES, 0) for i in (0, 1)]
    turned = [net.op("rows", "Transpose", keys, perm=[1, 0]) for keys in (held[0], new[0])]
    scores = net.op("score", "Concat", *(net.op("score", "MatMul", q, keys) for keys in turned), axis=1)
    shares = net.op("share", "Softmax", net.op("mask", "Add", scores, mask), axis=-1)
    parts = [net.part("share", shares, 0, PLACES, 1), net.part("share", shares, PLACES, PLACES + 1, 1)]
    both = [net.op("rows", "MatMul", share, values) for share, values in zip(parts, (held[1], new[1]), strict=True)]
    return net.reshaped("rows", net.op("rows", "Add", *both), 1, HEADS * HEAD), new


def model() -> onnx.ModelProto:
    net, rows = Network(), list[str]()
    table = net.rng.normal(size=(VOCABULARY, WIDTH)).clip(-LARGEST["rows"], LARGEST["rows"])
    stored = net.constant(np.round(table * 127 / LARGEST["rows"]).astype(np.int8))
    x = net.node("Gather", net.real(stored, np.float32(LARGEST["rows"] / 127)), "token", axis=0)
    x = net.op("sum", "Add", x, net.constant(np.zeros((1, WIDTH), np.float32)))
    cache, mask = (net.real(name, np.float32(LARGEST[of] / 127)) for name, of in (("cache", "rows"), ("mask", "mask")))
    for layer in range(LAYERS):
        seen, new = attention(net, net.normalised(x), cache, mask, layer)
        rows += new
        x = net.op("sum", "Add", x, net.product("sum", seen, WIDTH, HEADS * HEAD))
        hidden = net.op("hidden", "Relu", net.product("hidden", net.normalised(x), HIDDEN))
        x = net.op("sum", "Add", x, net.product("sum", hidden, WIDTH, HIDDEN))
    successors = table[net.rng.permutation(VOCABULARY)].T / np.sqrt(WIDTH)
    logits = net.stored(net.node("MatMul", net.normalised(x), net.weights(successors)), "logits")
    together = net.stored(net.node("Concat", *rows, axis=0), "rows")
    for result, name in ((logits, "logits"), (together, "rows"), ("cache", "kept")):
        net.nodes.append(helper.make_node("Identity", [result], [name], name))
    held, byte = (2 * LAYERS * PLACES, HEAD), TensorProto.INT8
    inputs = {"token": (TensorProto.INT64, (1,)), "mask": (byte, (1, PLACES + 1)), "cache": (byte, held)}
    outputs = {"logits": (byte, (1, VOCABULARY)), "rows": (byte, (2 * LAYERS, HEAD)), "kept": (byte, held)}
    ports = [[helper.make_tensor_value_info(n, *of) for n, of in each.items()] for each in (inputs, outputs)]
    constants = [numpy_helper.from_array(value, name) for name, value in net.constants.items()]
    graph = helper.make_graph(net.nodes, "characters", *ports, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    onnx.save(model(), sys.argv[1])
