"""Operators of com.microsoft that onnxruntime's optimiser makes of several standard ones, as these again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ....base.errors import fail

# Activations of fused products, and their attributes in the order in which the node tells their numbers.
ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Clip": (),
    "Elu": ("alpha",), "Selu": ("alpha", "gamma"), "Softplus": (), "Softsign": (), "ThresholdedRelu": ("alpha",),
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

    def list_of(self, what: str, *values: int) -> str:
        self.graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), self.between(what)))
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


def root_mean_square(f: Fused) -> Iterator[onnx.NodeProto]:
    """SimplifiedLayerNormalization: x over the root of its mean square; that root's reciprocal is the second result."""
    axis, rate = f.attributes.get("axis", -1), [*f.node.output, ""][1] or f.between("rate")
    if axis != -1:
        raise fail(f"axis {axis}", file=f.file, node=f.name, kind=f.node.op_type, hints=["supported: -1"])
    yield from _by_root(f, f.at(0), f.at(1), f.attributes.get("epsilon", 1e-5), rate)


def root_of_sum(f: Fused) -> Iterator[onnx.NodeProto]:
    """SkipSimplifiedLayerNormalization: that of x + skip + bias, which is the fourth result."""
    outputs = [*f.node.output, "", "", ""][:4]
    total, first = outputs[3] or f.between("sum"), f.between("skipped")
    yield f.made("Add", [f.at(0), f.at(1)], first if f.at(3) else total)
    if f.at(3):
        yield f.made("Add", [first, f.at(3)], total)
    yield from _by_root(f, total, f.at(2), f.attributes.get("epsilon", 1e-12), f.between("rate"))


def _by_root(f: Fused, x: str, scale: str, epsilon: float, rate: str) -> Iterator[onnx.NodeProto]:
    square, mean, root, unit = (f.between(name) for name in ("square", "mean", "root", "unit"))
    yield f.made("Mul", [x, x], square)
    yield f.made("ReduceMean", [square], mean, axes=[-1], keepdims=1)
    yield f.made("Add", [mean, f.constant("epsilon", epsilon)], f.between("more"))
    yield f.made("Sqrt", [f.between("more")], root)
    yield f.made("Reciprocal", [root], rate)
    yield f.made("Mul", [x, rate], unit)
    yield f.made("Mul", [unit, scale])


def embedded(f: Fused) -> Iterator[onnx.NodeProto]:
    """EmbedLayerNormalization: rows for words, places and kinds, their sum, and that normalised."""
    if f.at(7) or any(f.node.output[1:2]) or f.attributes.get("mask_index_type", 0):
        text = "a mask, or its index as a result"
        raise fail(text, file=f.file, node=f.name, kind=f.node.op_type, hints=["supported: without them"])
    total, first = [*f.node.output, "", ""][2] or f.between("sum"), f.between("placed")
    yield f.made("Gather", [f.at(2), f.at(0)], f.between("words"), axis=0)
    if f.at(8):
        yield f.made("Gather", [f.at(3), f.at(8)], f.between("places"), axis=0)
    else:  # as many of the first places as there are words
        yield f.made("Shape", [f.at(0)], f.between("count"), start=1)
        whole = f.list_of("from", 0), f.between("count"), f.list_of("axis", 0)
        yield f.made("Slice", [f.at(3), *whole], f.between("places"))
    yield f.made("Add", [f.between("words"), f.between("places")], first if f.at(1) else total)
    if f.at(1):
        yield f.made("Gather", [f.at(4), f.at(1)], f.between("kinds"), axis=0)
        yield f.made("Add", [first, f.between("kinds")], total)
    epsilon = f.attributes.get("epsilon", 1e-12)
    yield f.made("LayerNormalization", [total, f.at(5), f.at(6)], axis=-1, epsilon=epsilon)


def few_bits(f: Fused) -> Iterator[onnx.NodeProto]:
    """MatMulNBits: weights of 4 or 8 bits with a scale for each block of a row, as real numbers."""
    bits, block, k, n = (f.attributes.get(name, 0) for name in ("bits", "block_size", "K", "N"))
    known = {t.name: numpy_helper.to_array(t) for t in f.graph.initializer}
    stored = [known.get(f.at(i)) for i in (1, 2, 3)]
    computed = any(f.at(i) and f.at(i) not in known for i in (1, 2, 3)) or f.attributes.get("weight_prepacked", 0)
    if bits not in (4, 8) or f.at(4) or computed or (stored[2] is not None and stored[2].dtype != np.uint8):
        text = "weights that are computed, packed, sorted by an index, or of other than 4 or 8 bits"
        raise fail(text, file=f.file, node=f.name, kind=f.node.op_type, hints=["supported: constant, 4 or 8 bits"])
    blocks, (packed, scales, zeros) = -(-k // block), stored

    def unpacked(data: Any, count: int) -> Any:
        """Numbers of each row of bytes, the lower half of a byte first."""
        rows = np.asarray(data, np.uint8).reshape(n, -1)
        both = rows if bits == 8 else np.stack([rows & 15, rows >> 4], axis=-1).reshape(n, -1)
        return both[:, :count].astype(np.float32)

    middle = np.float32(1 << (bits - 1)) if zeros is None else unpacked(zeros, blocks)[..., None]
    steps = unpacked(packed, blocks * block).reshape(n, blocks, block) - middle
    weights = (steps * np.asarray(scales, np.float32).reshape(n, blocks, 1)).reshape(n, -1)[:, :k]
    product = f.between("product") if f.at(5) else f.node.output[0]
    yield f.made("MatMul", [f.at(0), f.constant("weights", np.ascontiguousarray(weights.T))], product)
    if f.at(5):
        yield f.made("Add", [product, f.at(5)])


def activated(operator: str) -> Callable[[Fused], Iterator[onnx.NodeProto]]:
    """FusedConv and FusedGemm: the product, for a convolution plus a fourth operand, and an activation."""

    def parts(f: Fused) -> Iterator[onnx.NodeProto]:
        own = f.attributes
        kind = own.get("activation", b"").decode()
        if kind and kind not in ACTIVATIONS:
            hint = f"supported: {', '.join(ACTIVATIONS)}"
            raise fail(f"activation {kind}", file=f.file, node=f.name, kind=f.node.op_type, hints=[hint])
        numbers, names = list(own.get("activation_params", [])), ACTIVATIONS.get(kind, ())
        told = dict(zip(names, numbers, strict=False))
        told |= {name: own[f"activation_{name}"] for name in names if f"activation_{name}" in own}
        product, added = f.between("product"), f.at(3)
        inputs = [*f.node.input][:3] if f.at(2) else [*f.node.input][:2]
        yield f.made(operator, inputs, product, **{n: v for n, v in own.items() if n not in OWN})
        if added:
            yield f.made("Add", [product, added], f.between("sum"))
        last = f.between("sum") if added else product
        if kind == "Clip":
            yield f.made("Clip", [last, *(f.constant(f"bound{i}", v) for i, v in enumerate(numbers[:2]))])
        else:
            yield f.made(kind or "Identity", [last], **told)

    return parts


def pool_of_last(f: Fused) -> Iterator[onnx.NodeProto]:
    """NhwcMaxPool: of images whose channels stand last."""
    first, last = channels_first(2 + len(f.attributes["kernel_shape"]))
    yield f.made("Transpose", [f.at(0)], f.between("first"), perm=first)
    yield f.made("MaxPool", [f.between("first")], f.between("pooled"), **f.attributes)
    yield f.made("Transpose", [f.between("pooled")], perm=last)


def channels_first(rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The order of N ... C as N C ..., and the one back."""
    return (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)


def choice_of_steps(f: Fused) -> Iterator[onnx.NodeProto]:
    """QLinearWhere: two quantised operands, each with its scale and zero point, then those of the result."""
    for at, name in ((1, "one"), (4, "other")):
        yield f.made("DequantizeLinear", [f.at(i) for i in range(at, at + 3)], f.between(name))
    yield f.made("Where", [f.at(0), f.between("one"), f.between("other")], f.between("chosen"))
    yield f.made("QuantizeLinear", [f.between("chosen"), f.at(7), f.at(8)])


def part(f: Fused, name: str, which: int, axis: int) -> Iterator[onnx.NodeProto]:
    """Query, key or value of three that lie side by side along `axis`, the last one; as tensor `part` of its name."""
    whole, out = f.between(f"{name}.three{which}"), f.between(f"{name}.{which}")
    sizes = f.list_of(f"{name}.sizes{which}", *[0] * axis, 3, -1)
    yield f.made("Reshape", [name, sizes], whole)
    index = f.list_of(f"{name}.index{which}", which)
    yield f.made("Gather", [whole, index], f"{out}.kept", axis=axis)
    yield f.made("Reshape", [f"{out}.kept", f.list_of(f"{name}.flat{which}", *[0] * axis, -1)], out)


def heads(f: Fused, which: int, name: str, turned: tuple[int, ...]) -> Iterator[onnx.NodeProto]:
    """Values of batch x length x channels, as batch x length x heads x rest in the order `turned`."""
    flat, apart = f.between(f"flat{which}"), f.between(f"apart{which}")
    yield f.made("Transpose", [name], flat, perm=[0, 1, 2])  # of another rank it is refused
    yield f.made("Reshape", [flat, f.list_of(f"split{which}", 0, 0, f.attributes["num_heads"], -1)], apart)
    yield f.made("Transpose", [apart], f.between(f"heads{which}"), perm=turned)


def attended(f: Fused, names: list[str], added: str) -> Iterator[onnx.NodeProto]:
    """softmax(Q K^T * scale + added) V for each head. Scale: one over the root of a head's channels."""
    own, between = f.attributes, f.between
    for which, (name, turned) in enumerate(zip(names, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True)):
        yield from heads(f, which, name, turned)
    scale = f.constant("scale", own["scale"]) if own.get("scale", 0) else between("scale")
    if not own.get("scale", 0):
        yield f.made("Shape", [between("heads0")], between("shape"))
        yield f.made("Gather", [between("shape"), f.list_of("last", 3)], between("channels"))
        yield f.made("Cast", [between("channels")], between("real"), to=onnx.TensorProto.FLOAT)
        yield f.made("Sqrt", [between("real")], between("root"))
        yield f.made("Reciprocal", [between("root")], scale)
    yield f.made("Mul", [between("heads0"), scale], between("scaled"))
    yield f.made("MatMul", [between("scaled"), between("heads1")], between("scores"))
    scores = between("scores")
    if own.get("unidirectional", 0):
        low = numpy_helper.from_array(np.array([own.get("mask_filter_value", -10000.0)], np.float32))
        yield f.made("Shape", [scores], between("sizes"))
        yield f.made("ConstantOfShape", [between("sizes")], between("low"), value=low)
        yield f.made("Trilu", [between("low"), f.list_of("above", 1)], between("later"), upper=1)
        yield f.made("Add", [scores, between("later")], between("causal"))
        scores = between("causal")
    if added:
        yield f.made("Add", [scores, added], between("added"))
        scores = between("added")
    yield f.made("Softmax", [scores], between("shares"), axis=-1)
    yield f.made("MatMul", [between("shares"), between("heads2")], between("mixed"))
    yield f.made("Transpose", [between("mixed")], between("together"), perm=[0, 2, 1, 3])
    yield f.made("Reshape", [between("together"), f.list_of("merged", 0, 0, -1)])


def without(f: Fused, missing: Mapping[str, int], needed: Mapping[str, int]) -> None:
    """Refuse operands, results and rotations that no part knows, and forms that leave others out."""
    unknown = [f"operand {name}" for name, position in missing.items() if f.at(position)]
    unknown += [f"result '{name}'" for name in f.node.output[1:] if name]
    unknown += [name for name in ("do_rotary",) if f.attributes.get(name, 0)]
    for text in unknown[:1]:
        raise fail(text, file=f.file, node=f.name, kind=f.node.op_type, hints=["supported: without it"])
    for name, position in needed.items():
        if not f.at(position):
            hint = "supported: query, key and value as operands of their own"
            raise fail(f"no operand {name}", file=f.file, node=f.name, kind=f.node.op_type, hints=[hint])


def attention(f: Fused) -> Iterator[onnx.NodeProto]:
    """Query, key and value by one matrix: three products."""
    without(f, {"mask_index": 3, "past": 4, "past_sequence_length": 6}, {"weights": 1})
    if len(set(f.attributes.get("qkv_hidden_sizes", ()))) > 1:
        hint = "supported: equal sizes"
        raise fail("qkv_hidden_sizes", file=f.file, node=f.name, kind=f.node.op_type, hints=[hint])
    names = [f.between(f"operand{which}") for which in range(3)]
    for which, name in enumerate(names):
        yield from part(f, f.at(1), which, 1)
        product = f.between(f"product{which}") if f.at(2) else name
        yield f.made("MatMul", [f.at(0), f.between(f"{f.at(1)}.{which}")], product)
        if f.at(2):
            yield from part(f, f.at(2), which, 0)
            yield f.made("Add", [product, f.between(f"{f.at(2)}.{which}")], name)
    yield from attended(f, names, f.at(5))


def heads_of_attention(f: Fused) -> Iterator[onnx.NodeProto]:
    """MultiHeadAttention: operands of batch x length x channels, each plus its third of the bias."""
    unread = {"key_padding_mask": 4, "past_key": 6, "past_value": 7, "past_sequence_length": 8, "cache_indirection": 9}
    without(f, unread, {"key": 1, "value": 2})
    names = [f.at(which) for which in range(3)]
    if f.at(3):
        for which in range(3):
            yield from part(f, f.at(3), which, 0)
            biased = f.between(f"operand{which}")
            yield f.made("Add", [names[which], f.between(f"{f.at(3)}.{which}")], biased)
            names[which] = biased
    yield from attended(f, names, f.at(5))


FUSED: Mapping[str, Callable[[Fused], Iterator[onnx.NodeProto]]] = {
    "Gelu": gelu("none"),
    "BiasGelu": gelu("none"),
    "FastGelu": gelu("tanh"),
    "QuickGelu": quick_gelu,
    "FusedMatMul": product,
    "NhwcMaxPool": pool_of_last,
    "QLinearWhere": choice_of_steps,
    "FusedConv": activated("Conv"),
    "FusedGemm": activated("Gemm"),
    "SkipLayerNormalization": normalised_sum,
    "LayerNormalization": lambda f: iter(
        [helper.make_node("LayerNormalization", f.node.input, f.node.output, f.name, **f.attributes)]
    ),
    "SimplifiedLayerNormalization": root_mean_square,
    "SkipSimplifiedLayerNormalization": root_of_sum,
    "EmbedLayerNormalization": embedded,
    "MatMulNBits": few_bits,
    "Attention": attention,
    "MultiHeadAttention": heads_of_attention,
}
