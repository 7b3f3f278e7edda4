"""Operators of com.microsoft that onnxruntime's optimiser makes of several standard ones, as these again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...base.errors import fail

# Activations of fused products, and their attributes in the order in which the node tells their numbers.
ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Clip": (),
}  # fmt: skip
OWN = ("activation", "activation_params", "activation_alpha", "activation_beta", "activation_gamma")


class Fused:
    """A node that is read as several: `file` for errors, `graph` for constants."""

    def __init__(self, node: onnx.NodeProto, graph: onnx.GraphProto, file: str) -> None:
        self.node, self.graph, self.file = node, graph, file
        self.name = node.name or node.output[0]
        self.attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}

    def at(self, position: int) -> str:
        return self.node.input[position] if position < len(self.node.input) else ""

    def between(self, what: str) -> str:
        return f"{self.node.output[0]}@{what}"

    def made(self, operator: str, inputs: list[str], output: str = "", **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(operator, inputs, [output or self.node.output[0]], self.name, **attributes)

    def constant(self, what: str, value: Any) -> str:
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(value, np.float32), self.between(what)))
        return self.between(what)

    def with_bias(self, position: int) -> Iterator[onnx.NodeProto]:
        """x plus a bias that may be left out, as tensor `biased`."""
        name = "Add" if self.at(position) else "Identity"
        yield self.made(name, [n for n in (self.at(0), self.at(position)) if n], self.between("biased"))


def gelu(approximate: str) -> Callable[[Fused], Iterator[onnx.NodeProto]]:
    def parts(f: Fused) -> Iterator[onnx.NodeProto]:
        yield from f.with_bias(1)
        yield f.made("Gelu", [f.between("biased")], approximate=approximate)

    return parts


def quick_gelu(f: Fused) -> Iterator[onnx.NodeProto]:
    """x * sigmoid(alpha * x)."""
    yield f.made("Mul", [f.at(0), f.constant("alpha", f.attributes.get("alpha", 1.702))], f.between("scaled"))
    yield f.made("Sigmoid", [f.between("scaled")], f.between("gate"))
    yield f.made("Mul", [f.at(0), f.between("gate")])


def product(f: Fused) -> Iterator[onnx.NodeProto]:
    """MatMul with its last two dimensions turned, times alpha."""
    own = f.attributes
    if own.get("transBatchA", 0) or own.get("transBatchB", 0):
        text = "transBatchA or transBatchB"
        raise fail(text, file=f.file, node=f.name, kind=f.node.op_type, hints=["supported: transA and transB"])
    alpha, names = own.get("alpha", 1.0), [f.at(0), f.at(1)]
    output = f.between("product") if alpha != 1 else f.node.output[0]
    if own.get("transA", 0) or own.get("transB", 0):
        left, right = "ba" if own.get("transA", 0) else "ab", "cb" if own.get("transB", 0) else "bc"
        yield f.made("Einsum", names, output, equation=f"...{left},...{right}->...ac")
    else:
        yield f.made("MatMul", names, output)
    if alpha != 1:
        yield f.made("Mul", [output, f.constant("alpha", alpha)])


def normalised_sum(f: Fused) -> Iterator[onnx.NodeProto]:
    """SkipLayerNormalization: x + skip + bias, and that normalised; the sum is the fourth result."""
    outputs = [*f.node.output, "", "", ""][:4]
    total = outputs[3] or f.between("sum")
    first = f.between("skipped") if f.at(4) else total
    yield f.made("Add", [f.at(0), f.at(1)], first)
    if f.at(4):
        yield f.made("Add", [first, f.at(4)], total)
    operands = [name for name in (total, f.at(2), f.at(3)) if name]
    kept = outputs[:3] if any(outputs[1:3]) else outputs[:1]
    epsilon = f.attributes.get("epsilon", 1e-12)
    yield helper.make_node("LayerNormalization", operands, kept, f.name, axis=-1, epsilon=epsilon)


def activated(operator: str) -> Callable[[Fused], Iterator[onnx.NodeProto]]:
    """FusedConv and FusedGemm: the product, for a convolution plus a fourth operand, and an activation."""

    def parts(f: Fused) -> Iterator[onnx.NodeProto]:
        own = f.attributes
        kind = own.get("activation", b"").decode()
        if kind and kind not in ACTIVATIONS:
            hint = f"supported: {', '.join(ACTIVATIONS)}"
            raise fail(f"activation {kind}", file=f.file, node=f.name, kind=f.node.op_type, hints=[hint])
        numbers = list(own.get("activation_params", [])) or [own[n] for n in OWN[2:4] if n in own]
        product, added = f.between("product"), f.at(3)
        inputs = [*f.node.input][:3] if f.at(2) else [*f.node.input][:2]
        yield f.made(operator, inputs, product, **{n: v for n, v in own.items() if n not in OWN})
        if added:
            yield f.made("Add", [product, added], f.between("sum"))
        last = f.between("sum") if added else product
        if kind == "Clip":
            yield f.made("Clip", [last, *(f.constant(f"bound{i}", v) for i, v in enumerate(numbers[:2]))])
        else:
            yield f.made(kind or "Identity", [last], **dict(zip(ACTIVATIONS.get(kind, ()), numbers, strict=False)))

    return parts


FUSED: Mapping[str, Callable[[Fused], Iterator[onnx.NodeProto]]] = {
    "Gelu": gelu("none"),
    "BiasGelu": gelu("none"),
    "FastGelu": gelu("tanh"),
    "QuickGelu": quick_gelu,
    "FusedMatMul": product,
    "FusedConv": activated("Conv"),
    "FusedGemm": activated("Gemm"),
    "SkipLayerNormalization": normalised_sum,
}
