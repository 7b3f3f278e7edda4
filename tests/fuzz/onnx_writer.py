"""A recipe as an ONNX file: float, or made int8 by onnxruntime's static quantiser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from operator import le
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from edgebuild.model.ir import Array
from tests.graphs import powers_of_two, quantised

from .onnx_rows import KEEP, OPSET, ROWS, by_schema
from .recipe import BATCHES, Choice, DoesNotFit, Recipe, Sizes, choice, common_divisors, group_window, image_size

LARGEST = 60_000  # elements of a tensor


@dataclass(frozen=True)
class Value:
    """`exact`: no rounding of floats differs between us and onnxruntime on the way to it."""

    name: str
    shape: tuple[int, ...]
    exact: bool = False
    dtype: int = TensorProto.FLOAT


class OnnxWriter:
    """The graph under construction; every layer is a method of its operands. Images are N x C x H x W."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[Value] = []
        self.values: dict[int, Value] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.used: dict[int, dict[str, int]] = {}  # the sizes that a layer has drawn
        self.s: Choice = choice(0)
        self.sizes = Sizes({})
        self.batch = 1

    def write(self) -> onnx.ModelProto:
        """Raises ValueError where nothing is left to be computed."""
        for layer in self.recipe.layers:
            self.s, self.sizes = choice(layer.seed, "onnx", True), Sizes(dict(layer.most))
            operands = [self.values[n] for n in layer.operands]
            before = len(self.nodes)
            try:
                make = ROWS[layer.word] if layer.word in ROWS else type(self).__dict__[layer.word]
                self.values[layer.number] = make(self, *operands)
            except DoesNotFit:
                del self.nodes[before:]
                self.values[layer.number] = operands[0]
            self.used[layer.number] = self.sizes.used
        if not self.nodes:
            raise ValueError("no layer is left")
        read = {name for node in self.nodes for name in node.input}
        written = [name for node in self.nodes for name in node.output if name]
        named = {self.values[n].name for n in self.recipe.outputs if n in self.values}
        inputs = [v for v in self.inputs if v.name in read]
        outputs = [Value(n, self.shapes[n]) for n in written if n not in read or n in named]
        return self._model(inputs, outputs)

    def _model(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> onnx.ModelProto:
        ports = [
            [helper.make_tensor_value_info(v.name, TensorProto.FLOAT, v.shape) for v in p] for p in (inputs, outputs)
        ]
        read = {name for node in self.nodes for name in node.input}
        constants = [c for c in self.constants if c.name in read]
        graph = helper.make_graph(self.nodes, "random", *ports, constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
        onnx.checker.check_model(model, full_check=True)
        return shape_inference.infer_shapes(model, check_type=True, strict_mode=True)

    # ---- the parts of layers

    def node(self, operator: str, operands: Sequence[Value | str], **attributes: object) -> Value:
        """Add a node of one result; the standard's shape inference tells what it makes."""
        return self.several(operator, operands, 1, **attributes)[0]

    def several(
        self, operator: str, operands: Sequence[Value | str], count: int, free: bool = False, **attributes: object
    ) -> list[Value]:
        """Add a node of some results. `free`: the first dimension need not be the batch."""
        names = [v if isinstance(v, str) else v.name for v in operands]
        number, values = len(self.nodes), [v for v in operands if isinstance(v, Value)]
        results = [f"n{number}" if i == 0 else f"n{number}_{i}" for i in range(count)]
        node = helper.make_node(operator, names, results, f"{operator.lower()}{number}", **attributes)
        types = self._inferred(node, values, free)
        exact = operator in KEEP and all(v.exact for v in values)
        self.nodes.append(node)
        self.shapes |= {name: shape for name, (shape, _) in zip(results, types, strict=True)}
        return [Value(name, shape, exact, dtype) for name, (shape, dtype) in zip(results, types, strict=True)]

    def declared(
        self, operator: str, x: Value, operands: Sequence[str], shape: tuple[int, ...], **attributes: object
    ) -> Value:
        """Add a node whose result has this shape and the operand's type: the standard's inference does not tell it."""
        result = f"n{len(self.nodes)}"
        name = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, [x.name, *operands], [result], name, **attributes))
        self.shapes[result] = shape
        return Value(result, shape, x.exact and operator in KEEP, x.dtype)

    def _inferred(
        self, node: onnx.NodeProto, operands: Sequence[Value], free: bool
    ) -> list[tuple[tuple[int, ...], int]]:
        """Shapes and types of the results."""
        values = _infos(list(dict.fromkeys(operands)))
        used = [c for c in self.constants if c.name in node.input]
        results = [onnx.ValueInfoProto(name=name) for name in node.output]
        graph = helper.make_graph([node], "one", values, results, used)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        try:
            inferred = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        except (shape_inference.InferenceError, ValueError):
            raise DoesNotFit from None
        types = [value.type.tensor_type for value in inferred.graph.output]
        shapes = [tuple(d.dim_value for d in t.shape.dim) for t in types]
        if any(min(s, default=1) < 1 or (not free and s[:1] != (self.batch,)) or prod(s) > LARGEST for s in shapes):
            raise DoesNotFit
        return [(shape, t.elem_type) for shape, t in zip(shapes, types, strict=True)]

    def exactly(self, x: Value) -> Value:
        """The value, or an input in its place where results would jump with a rounding."""
        return x if x.exact else self.given(x.shape)

    def constant(self, value: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def normal(self, *shape: int, size: float = 1.0) -> str:
        return self.constant((size * self.s.rng.standard_normal(shape)).astype(np.float32))

    def weights(self, *shape: int, size: float = 1.0) -> str:
        """Normal ones; now and then training left output channels (the first dimension) without any."""
        data = (size * self.s.rng.standard_normal(shape)).astype(np.float32)
        if not self.s.between(0, 3):
            data[self.s.rng.random(len(data)) < self.s.pick(0.2, 0.5, 0.9)] = 0
        return self.constant(data)

    def image(self, x: Value) -> tuple[int, int, int]:
        if len(x.shape) != 4:
            raise DoesNotFit
        return x.shape[1], x.shape[2], x.shape[3]

    def window(self, x: Value, same: bool, dilated: bool) -> dict[str, list[int] | str]:
        """Kernel, stride, dilation and padding that suit the image."""
        _, h, w = self.image(x)
        s = self.s
        taps = [min(s.pick(1, 2, 3, 3, 3, 4, 5), n) for n in (h, w)]
        if s.between(0, 5) == 0:
            taps = s.pick([1, taps[1]], [taps[0], 1], [h if h < 9 else 1, 1], [1, 1])
        stride = [1, 1] if same else list(s.pick((1, 1), (1, 1), (2, 2), (2, 1), (1, 2), (3, 3), s.pair(1, 5)))
        dilation = list(s.pick((2, 2), (1, 2), (2, 1), (3, 3))) if dilated and s.between(0, 4) == 0 else [1, 1]
        taps = [self.sizes.of(f"window {d}", n) for d, n in enumerate(taps)]
        stride = [self.sizes.of(f"stride {d}", n) for d, n in enumerate(stride)]
        dilation = [self.sizes.of(f"dilation {d}", n) for d, n in enumerate(dilation)]
        reach = [(k - 1) * d for k, d in zip(taps, dilation, strict=True)]
        attributes: dict[str, list[int] | str] = {"kernel_shape": taps, "strides": stride, "dilations": dilation}
        if same:
            half = [n // 2 for n in reach]
            attributes["pads"] = [*half, *(n - m for n, m in zip(reach, half, strict=True))]
        elif dilation == [1, 1] and all(map(le, stride, taps)) and s.between(0, 3) == 0:  # else onnxruntime refuses
            attributes["auto_pad"] = s.pick("SAME_UPPER", "SAME_LOWER", "VALID")
        else:
            low = [max(r + 1 - n, 0) for r, n in zip(reach, (h, w), strict=True)]
            attributes["pads"] = [
                min(m + s.pick(0, 0, 1, 2), max(r, m)) for m, r in zip((*low, 0, 0), reach * 2, strict=True)
            ]
        return attributes

    # ---- layers

    def input(self) -> Value:
        s, of = self.s, self.sizes.of
        channels, rows, columns = s.pick(
            (s.pick(1, 2, 3, 4, 5, 8), s.between(3, 14), s.between(3, 14)),
            (s.pick(1, 2, 3), s.between(6, 20), s.between(6, 20)),
            (s.pick(1, 4, 16), s.pick(1, 2, 17, 24), s.pick(1, 2, 9, 16)),
            (s.pick(33, 64, 70, 130), s.between(1, 3), s.between(1, 3)),
            (s.pick(1, 3, 7, 12), *s.pick((1, 1), (1, s.between(2, 40)), (s.between(2, 40), 1))),
        )
        image = of("channels", channels), of("rows", rows), of("columns", columns)
        self.batch = of("batch", s.pick(*BATCHES))
        return self.given((self.batch, *image))

    def field(self) -> Value:
        rows, columns, channels = image_size(self.s, self.sizes.of)
        self.batch = 1
        return self.given((1, channels, rows, columns))

    def input_like(self, x: Value) -> Value:
        return self.given(x.shape)

    def given(self, shape: tuple[int, ...]) -> Value:
        self.inputs.append(Value(f"in{len(self.inputs)}", shape, exact=True))
        return self.inputs[-1]

    def conv(self, x: Value, same: bool = False, channels: int = 0, pointwise: bool = False) -> Value:
        c, *_ = self.image(x)
        k = channels or self.sizes.of("channels", self.s.pick(1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 33))
        attributes = self.window(x, same, dilated=True)
        if pointwise:
            attributes = {"kernel_shape": [1, 1]}
        fy, fx = attributes["kernel_shape"]
        groups = self.s.pick(*common_divisors(c, k)) if self.s.between(0, 3) == 0 else 1
        c = c // groups
        size = (2 / (c * int(fy) * int(fx))) ** 0.5
        bias = [self.normal(k)] if self.s.between(0, 3) else []
        weights = self.weights(k, c, int(fy), int(fx), size=size)
        return self.node("Conv", [x, weights, *bias], group=groups, **attributes)

    def conv_same(self, x: Value) -> Value:
        return self.conv(x, same=True)

    def window_of_groups(self, x: Value) -> Value:
        """Each window with all groups, pads, strides and dilations alike."""
        c, h, w = self.image(x)
        drawn = group_window(self.s, self.sizes.of, (h, w, c))
        reach = [(n - 1) * m for n, m in zip(drawn.taps, drawn.dilation, strict=True)]
        half = [n // 2 if drawn.padded else 0 for n in reach]
        pads = [*half, *(n - m if drawn.padded else 0 for n, m in zip(reach, half, strict=True))]
        weights = self.weights(drawn.results, c // drawn.groups, *drawn.taps, size=(2 / drawn.terms(c)) ** 0.5)
        bias = [self.normal(drawn.results)] if self.s.between(0, 3) else []
        return self.node(
            "Conv", [x, weights, *bias], kernel_shape=drawn.taps, strides=drawn.stride, dilations=drawn.dilation,
            group=drawn.groups, pads=pads,
        )  # fmt: skip

    def square(self, x: Value) -> Value:
        """A window of 3x3 between channels in fours, as in most layers of ResNet: some kernels serve no other shape."""
        if self.image(x)[0] % 4:
            x = self.conv(x, channels=4 * self.sizes.of("fours", self.s.pick(1, 2, 4, 6)), pointwise=True)
        (c, h, w), k = self.image(x), 2 * self.sizes.of("pairs", self.s.between(1, 9))
        pad = self.s.pick(1, 1, 0) if min(h, w) >= 3 else 1
        weights, bias = self.weights(k, c, 3, 3, size=(2 / (9 * c)) ** 0.5), self.normal(k)
        return self.node("Conv", [x, weights, bias], kernel_shape=[3, 3], pads=[pad] * 4)

    def expand(self, x: Value) -> Value:
        return self.clipped(
            self.conv(x, channels=self.image(x)[0] * self.sizes.of("factor", self.s.pick(1, 2, 3)), pointwise=True)
        )

    def conv_like(self, x: Value, like: Value) -> Value:
        return self.conv(x, channels=self.image(like)[0], pointwise=True)

    def clipped(self, x: Value) -> Value:
        if self.s.pick(True, False):
            return self.node("Relu", [x])
        bounds = [self.constant(np.float32(v)) for v in (self.s.pick(0, 0, -1), self.s.pick(1, 6, 6))]
        return self.node("Clip", [x, *bounds])

    def depthwise(self, x: Value, same: bool = False) -> Value:
        c, *_ = self.image(x)
        k = c * (1 if same else self.sizes.of("factor", self.s.pick(1, 1, 1, 2, 3) if c > 1 else self.s.pick(1, 5, 16)))
        attributes = self.window(x, same, dilated=True)
        fy, fx = (int(n) for n in attributes["kernel_shape"])
        bias = [self.normal(k)] if self.s.between(0, 3) else []
        weights = self.weights(k, 1, fy, fx, size=(2 / (fy * fx)) ** 0.5)
        return self.node("Conv", [x, weights, *bias], group=c, **attributes)

    def depthwise_same(self, x: Value) -> Value:
        return self.depthwise(x, same=True)

    def pool(self, x: Value, same: bool = False) -> Value:
        kind = self.s.pick("MaxPool", "AveragePool")
        attributes: dict[str, object] = dict(self.window(x, same, dilated=kind == "MaxPool"))
        if kind == "AveragePool":
            del attributes["dilations"]
        if "pads" in attributes and not same and self.s.between(0, 3) == 0:
            self.check_ceil(x, attributes)
            attributes["ceil_mode"] = 1
        taps, pads = attributes["kernel_shape"], attributes.get("pads", [0] * 4)
        assert isinstance(taps, list) and isinstance(pads, list)
        if any(p >= k for p, k in zip(pads, taps * 2, strict=True)):
            raise DoesNotFit  # onnxruntime wants padding smaller than the window
        if kind == "AveragePool" and "ceil_mode" not in attributes:
            attributes["count_include_pad"] = self.s.pick(0, 0, 1)
        return self.node(kind, [x], **attributes)

    def check_ceil(self, x: Value, attributes: dict[str, Any]) -> None:
        """Refuse windows that begin behind the image: shape inference counts them, nobody computes them."""
        for axis, size in enumerate(x.shape[2:]):
            taps, stride = (attributes[name][axis] for name in ("kernel_shape", "strides"))
            dilation = attributes.get("dilations", (1, 1))[axis]
            before, behind = attributes["pads"][axis], attributes["pads"][axis + 2]
            last = -((size + before + behind - dilation * (taps - 1) - 1) // -stride)
            if last * stride >= size + before:
                raise DoesNotFit

    def pool_same(self, x: Value) -> Value:
        return self.pool(x, same=True)

    def global_pool(self, x: Value) -> Value:
        self.image(x)
        if self.s.pick(True, False):
            return self.node(self.s.pick("GlobalAveragePool", "GlobalMaxPool"), [x])
        kind = self.s.pick("MaxPool", "AveragePool", "ReduceMean")
        if kind == "ReduceMean":
            return self.node(kind, [x, self.constant(np.array([2, 3], np.int64))], keepdims=1)
        return self.node(kind, [x], kernel_shape=list(x.shape[2:]))

    def mean(self, x: Value) -> Value:
        if len(x.shape) < 2:
            raise DoesNotFit
        axes = [2, 3] if len(x.shape) == 4 and self.s.pick(True, False) else [self.s.between(1, len(x.shape) - 1)]
        return self.node("ReduceMean", [x, self.constant(np.array(axes, np.int64))], keepdims=self.s.pick(0, 1))

    def activation(self, x: Value) -> Value:
        if self.s.pick(True, False):
            return self.clipped(x)
        return self.node(self.s.pick(*by_schema(1)), [x])

    def gate(self, x: Value) -> Value:
        return self.node("Sigmoid", [x])

    def identity(self, x: Value) -> Value:
        return x

    def binary(self, x: Value, y: Value) -> Value:
        others = [name for name in by_schema(2) if name != "Concat"]
        if x == y and x.shape[0] == 1 and self.s.pick(True, False):  # beside itself without its first dimension
            first = self.constant(np.zeros(1, np.int64))
            (view,) = self.several("Squeeze", [x, first], 1, free=True)
            x, y = self.s.pick((x, view), (view, x))
        return self.node(self.s.pick("Add", "Add", *others), [x, y])

    def add(self, x: Value, y: Value) -> Value:
        return self.node("Add", [x, y])

    def mul(self, x: Value, y: Value) -> Value:
        return self.node("Mul", [x, y])

    def shift(self, x: Value) -> Value:
        """Plus or times a constant of one element, one per channel, or one per element."""
        channels = (1, x.shape[1], *(1,) * (len(x.shape) - 2)) if len(x.shape) > 1 else x.shape
        constant = self.normal(*self.s.pick((), channels, x.shape))
        return self.node(self.s.pick("Add", "Mul"), list(self.s.pick((x, constant), (constant, x))))

    def normalise(self, x: Value) -> Value:
        c, *_ = self.image(x)
        gamma, variance = (self.constant(self.s.rng.uniform(0.5, 2, c).astype(np.float32)) for _ in range(2))
        return self.node("BatchNormalization", [x, gamma, self.normal(c), self.normal(c), variance])

    def concat(self, *parts: Value) -> Value:
        x, *others = parts
        shapes = [y.shape for y in others]
        axes = [d for d in range(1, len(x.shape)) if all(_differ(x.shape, y, d) for y in shapes)]
        if not axes or not others:
            raise DoesNotFit
        axis = axes[0] if self.s.between(0, 2) else self.s.pick(*axes)
        return self.node("Concat", list(parts), axis=self.s.pick(axis, axis - len(x.shape)))

    def pad(self, x: Value) -> Value:
        rank = len(x.shape)
        ends = [[0 if d < (2 if rank == 4 else 1) else self.s.between(0, 2) for d in range(rank)] for _ in range(2)]
        value = [self.constant(np.float32(self.s.pick(0.5, -1)))] if self.s.between(0, 3) == 0 else []
        return self.node("Pad", [x, self.constant(np.array([*ends[0], *ends[1]], np.int64)), *value])

    def reshape(self, x: Value) -> Value:
        b, n, c = self.batch, prod(x.shape) // self.batch, x.shape[-1]
        shape = self.s.pick((b, n), (b, -1), (b, n // c, c), (b, 1, n // c, c), (0, -1, 1, c), x.shape)
        return self.node("Reshape", [x, self.constant(np.array(shape, np.int64))])

    def reshape_to(self, x: Value, shape: tuple[int, ...]) -> Value:
        return self.node("Reshape", [x, self.constant(np.array(shape, np.int64))])

    def flatten(self, x: Value) -> Value:
        return self.node("Flatten", [x], axis=1)

    def transpose(self, x: Value) -> Value:
        perm = [0, *(1 + int(p) for p in self.s.rng.permutation(len(x.shape) - 1))]
        return self.node("Transpose", [x], perm=perm)

    def turn(self, x: Value) -> Value:
        return self.transpose(x)

    def shuffle(self, x: Value) -> Value:
        """Channels split into two or three parts, some of them changed, and put together in another order."""
        c, *_ = self.image(x)
        if c < 2:
            raise DoesNotFit
        cuts = sorted({self.s.between(1, c - 1), self.s.between(1, c - 1)})
        sizes = [b - a for a, b in zip((0, *cuts), (*cuts, c), strict=True)]
        parts = self.several("Split", [x, self.constant(np.array(sizes, np.int64))], len(sizes), axis=1)
        ways = [self.s.pick(self.identity, self.activation, self.conv_same, self.depthwise_same)(y) for y in parts]
        order = [int(i) for i in self.s.rng.permutation(len(ways))]
        return self.node("Concat", [ways[i] for i in order], axis=1)

    def squeeze_dims(self, x: Value) -> Value:
        ones = [d for d in range(1, len(x.shape)) if x.shape[d] == 1]
        if not ones:
            raise DoesNotFit
        return self.node("Squeeze", [x, self.constant(np.array(ones, np.int64))])

    def expand_dims(self, x: Value) -> Value:
        x = self.reshape_to(x, (self.batch, x.shape[1], -1)) if len(x.shape) > 3 else x
        return self.node("Unsqueeze", [x, self.constant(np.array([self.s.between(1, len(x.shape))], np.int64))])

    def dense(self, x: Value) -> Value:
        x = self.flatten(x) if len(x.shape) != 2 else x
        n, k = x.shape[1], self.sizes.of("channels", self.s.pick(1, 2, 3, 5, 8, 10, 17))
        size = n**-0.5
        if self.s.pick(True, False):
            factors = self.s.pick({}, {}, {"alpha": 0.5, "beta": 2.0})
            return self.node("Gemm", [x, self.weights(k, n, size=size), self.normal(k)], transB=1, **factors)
        x = self.node("MatMul", [x, self.normal(n, k, size=size)])
        return self.node("Add", [x, self.normal(k)]) if self.s.pick(True, False) else x

    def softmax(self, x: Value) -> Value:
        if self.recipe.form == "qoperator" and x.shape[-1] == 1:
            raise DoesNotFit  # onnxruntime's QLinearSoftmax makes 256 of 1.0, which is 0 in uint8
        return self.node("Softmax", [x], axis=-1)


def _infos(values: Sequence[Value]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(v.name, v.dtype, v.shape) for v in values]


def _differ(a: tuple[int, ...], b: tuple[int, ...], axis: int) -> bool:
    """The shapes differ in this dimension at most."""
    return len(a) == len(b) and all(m == n for d, (m, n) in enumerate(zip(a, b, strict=True)) if d != axis)


WORDS = (
    "conv", "depthwise", "pool", "activation", "shift", "normalise", "pad", "global_pool", "mean", "reshape",
    "transpose", "expand_dims", "squeeze_dims", "dense", "softmax",
)  # fmt: skip


def with_real_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """A QDQ model whose sums and products with constants have them as real numbers, off their steps."""
    constants = {c.name: c for c in model.graph.initializer}
    readers = {name: node for node in model.graph.node for name in node.input}
    for node in list(model.graph.node):
        constant = node.op_type == "DequantizeLinear" and all(name in constants for name in node.input)
        if not constant or readers[node.output[0]].op_type not in ("Add", "Mul"):
            continue
        values, scale, zero = (numpy_helper.to_array(constants[name]).astype(np.float32) for name in node.input)
        off = np.random.default_rng(values.size).uniform(-0.5, 0.5, values.shape)
        real = ((values - zero + off) * scale).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(real, node.output[0]))
        model.graph.node.remove(node)
    return model


def operators(form: str) -> tuple[str, ...]:
    return tuple(ROWS)


def in_double(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with MeanVarianceNormalization in double precision.

    onnxruntime computes the standard's body in float32, of which equal values leave nothing but rounding.
    """
    nodes = list[onnx.NodeProto]()
    for node in model.graph.node:
        if node.op_type != "MeanVarianceNormalization":
            nodes.append(node)
            continue
        (x,), (y,), (axes,) = node.input, node.output, (helper.get_attribute_value(a) for a in node.attribute)
        numbers = {f"{y}_axes": np.array(axes), f"{y}_tiny": np.float64(1e-9)}
        model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), name) for name, v in numbers.items())
        steps = [
            ("Cast", [x], "wide", {"to": TensorProto.DOUBLE}),
            ("ReduceMean", [f"{y}_wide", f"{y}_axes"], "mean", {}),
            ("Sub", [f"{y}_wide", f"{y}_mean"], "rest", {}),
            ("Mul", [f"{y}_rest", f"{y}_rest"], "square", {}),
            ("ReduceMean", [f"{y}_square", f"{y}_axes"], "variance", {}),
            ("Sqrt", [f"{y}_variance"], "deviation", {}),
            ("Add", [f"{y}_deviation", f"{y}_tiny"], "divisor", {}),
            ("Div", [f"{y}_rest", f"{y}_divisor"], "quotient", {}),
        ]
        nodes += [helper.make_node(kind, names, [f"{y}_{to}"], **more) for kind, names, to, more in steps]
        nodes.append(helper.make_node("Cast", [f"{y}_quotient"], [y], to=TensorProto.FLOAT))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def write(recipe: Recipe, twin: bool = False) -> bytes:
    """`twin`: the same network for onnxruntime, without an operator that it computes badly."""
    model, s = OnnxWriter(recipe).write(), choice(recipe.seed)
    if recipe.form in ("qdq", "qoperator"):
        try:
            model = quantised(model, s.pick(True, False), s.pick(True, False), operators=recipe.form == "qoperator")
        except (RuntimeError, AssertionError, Fail) as reason:  # as of values that are no number: they have no scale
            raise ValueError(f"onnxruntime's quantiser: {reason}") from None
    if recipe.form == "qdq":
        model = powers_of_two(model) if s.between(0, 3) == 0 else model
        model = with_real_constants(model) if s.between(0, 2) == 0 else model
    if choice(recipe.seed + 2).between(0, 2) == 0:  # many exporters name no node
        for node in model.graph.node:
            node.name = ""
    if twin:
        model = in_double(model)
    return bytes(model.SerializeToString())


writer = OnnxWriter
