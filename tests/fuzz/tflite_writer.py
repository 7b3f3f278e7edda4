"""A recipe as an int8 TFLite file, with random weights whose results spread over int8."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import numpy as np
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.ir import Array, Quant
from edgebuild.model.ops import TFLITE_READERS
from tests.graphs.tflite_models import ACTIVATIONS, SAME, VALID, File, output_size

from .recipe import Choice, Recipe, choice

# Of one operand, all of whose elements are computed alike: type of the options, and the result's fixed quantisation.
UNARY: dict[str, tuple[Any, Quant | None]] = {
    "RELU": (None, None),
    "RELU6": (None, None),
    "LOGISTIC": (None, Quant((1 / 256,), (-128,))),
    "TANH": (schema.TanhOptionsT if hasattr(schema, "TanhOptionsT") else None, Quant((1 / 128,), (0,))),
    "HARD_SWISH": (schema.HardSwishOptionsT, None),
    "LEAKY_RELU": (schema.LeakyReluOptionsT, None),
    "ELU": (None, None),
    "QUANTIZE": (schema.QuantizeOptionsT, None),
}
BINARY: dict[str, Any] = {"ADD": schema.AddOptionsT, "MUL": schema.MulOptionsT, "SUB": schema.SubOptionsT}
SAME_SCALES: dict[str, Any] = {"MAXIMUM": schema.MaximumMinimumOptionsT, "MINIMUM": schema.MaximumMinimumOptionsT}


@dataclass(frozen=True)
class Value:
    """A tensor of the file."""

    index: int
    shape: tuple[int, ...]
    quant: Quant


class DoesNotFit(Exception):
    """A layer cannot work on its operands; it is left out."""


class TfliteWriter:
    """The file under construction; every layer is a method of its operands. Images are 1 x H x W x C."""

    def __init__(self, recipe: Recipe) -> None:
        self.file, self.recipe = File(), recipe
        self.inputs: list[int] = []
        self.values: dict[int, Value] = {}
        self.s: Choice = choice(0)

    def write(self) -> bytes:
        """Raises ValueError where nothing is left to be computed."""
        for layer in self.recipe.layers:
            self.s = choice(layer.seed)
            operands = [self.values[n] for n in layer.operands]
            try:
                self.values[layer.number] = getattr(self, layer.word)(*operands)
            except DoesNotFit:
                self.values[layer.number] = operands[0]
        outputs = self._outputs()
        if not outputs:
            raise ValueError("no layer is left")
        read = {i for op in self.file.operators for i in op.inputs}
        return self.file.pack([i for i in self.inputs if i in read], outputs)

    def _outputs(self) -> list[int]:
        """Results that no layer reads or that the recipe names; int8 or, now and then, real numbers at the end."""
        read = {i for op in self.file.operators for i in op.inputs}
        written = [i for op in self.file.operators for i in op.outputs]
        named = {self.values[n].index for n in self.recipe.outputs if n in self.values}
        outputs = [i for i in written if i not in read or i in named]
        self.s = choice(self.recipe.seed)
        return [self._real(i) if self.s.between(0, 4) == 0 else i for i in outputs]

    def _real(self, index: int) -> int:
        t = self.file.tensors[index]
        if t.type != 9:
            return index
        y = self.file.tensor(f"real{index}", t.shape, "float32")
        self.file.operator("DEQUANTIZE", [index], [y], schema.DequantizeOptionsT())
        return y

    # ---- the parts of layers

    def emit(self, name: str, inputs: Sequence[int], shape: Sequence[int], quant: Quant, options: Any = None) -> Value:
        index = self.file.tensor(f"t{len(self.file.tensors)}", shape, "int8", quant)
        self.file.operator(name, inputs, [index], options)
        return Value(index, tuple(shape), quant)

    def constant(self, data: Array, quant: Quant | None = None) -> int:
        return self.file.tensor(f"c{len(self.file.tensors)}", data.shape, str(data.dtype), quant, data)

    def quant(self, scale: float) -> Quant:
        found = self.s.quant(float(np.float32(max(scale, 2.0**-24))))
        assert found is not None
        return found

    def sum(self, name: str, x: Value, data: Array, axis: int, terms: int, shape: Sequence[int], options: Any) -> Value:
        """A sum of products with weights scaled per tensor or per channel."""
        count = self.s.pick(1, data.shape[axis])
        scales = tuple(float(v) for v in (self.s.rng.uniform(0.25, 1, count) * 2.0**-7).astype(np.float32))
        zeros = (0,) * count
        weights = self.constant(data, Quant(scales, zeros, axis if count > 1 else None))
        products = Quant(tuple(float(np.float32(x.quant.scale[0] * v)) for v in scales), zeros, 0)
        reach = 2 ** self.s.between(0, 13)
        bias = self.s.rng.integers(-reach, reach + 1, shape[-1]).astype(np.int32)
        factor = self.s.pick(60.0, 60.0, 120.0, 30.0) / (74 * 74 * sqrt(terms))
        y = self.quant(max(products.scale) / factor)
        operands = [x.index, weights] + ([self.constant(bias, products)] if self.s.between(0, 4) else [])
        return self.emit(name, operands, shape, y, options)

    def weights(self, *shape: int) -> Array:
        return self.s.rng.integers(-127, 128, shape).astype(np.int8)

    def image(self, x: Value) -> tuple[int, int, int]:
        if len(x.shape) != 4:
            raise DoesNotFit
        return x.shape[1], x.shape[2], x.shape[3]

    def window(self, x: Value, options: Any, same: bool, dilated: bool) -> tuple[list[int], list[int]]:
        """Fill in stride, dilation, padding and activation; the window and the stride."""
        h, w, _ = self.image(x)
        taps = [min(self.s.pick(1, 2, 3, 3, 3, 4, 5), n) for n in (h, w)]
        if self.s.between(0, 5) == 0:
            taps = self.s.pick([1, taps[1]], [taps[0], 1], [h if h < 9 else 1, 1], [1, 1])
        stride = (1, 1) if same else self.s.pick((1, 1), (1, 1), (2, 2), (2, 1), (1, 2), (3, 3), self.s.pair(1, 3))
        dilation = (1, 1)
        if dilated and stride == (1, 1) and self.s.between(0, 3) == 0:
            dilation = self.s.pick((2, 2), (1, 2), (2, 1), (3, 3))
        options.padding = SAME if same else self.s.pick(SAME, VALID)
        if any((k - 1) * d + 1 > n for k, d, n in zip(taps, dilation, (h, w), strict=True)):
            options.padding = SAME
        options.strideH, options.strideW = stride
        if dilated:
            options.dilationHFactor, options.dilationWFactor = dilation
        options.fusedActivationFunction = self.s.pick(*ACTIVATIONS)
        size = output_size((h, w), taps, stride, options.padding, dilation)
        return taps, size

    # ---- layers

    def input(self) -> Value:
        s = self.s
        shape = s.pick(
            (1, s.between(3, 14), s.between(3, 14), s.pick(1, 2, 3, 4, 5, 8)),
            (1, s.between(6, 20), s.between(6, 20), s.pick(1, 2, 3)),
            (1, s.pick(1, 2, 17, 24), s.pick(1, 2, 9, 16), s.pick(1, 4, 16)),
        )
        return self._given(shape)

    def input_like(self, x: Value) -> Value:
        return self._given(x.shape)

    def _given(self, shape: tuple[int, ...]) -> Value:
        """An input, int8 or real numbers that are quantised first."""
        q = self.quant(2.0 ** -self.s.between(3, 6) * self.s.rng.uniform(1, 2))
        if self.s.between(0, 4) == 0:
            self.inputs.append(self.file.tensor(f"real{len(self.file.tensors)}", shape, "float32"))
            return self.emit("QUANTIZE", [self.inputs[-1]], shape, q, schema.QuantizeOptionsT())
        self.inputs.append(self.file.tensor(f"in{len(self.file.tensors)}", shape, "int8", q))
        return Value(self.inputs[-1], shape, q)

    def conv(self, x: Value, same: bool = False, channels: int = 0) -> Value:
        options = schema.Conv2DOptionsT()
        (fy, fx), (h, w) = self.window(x, options, same, dilated=True)
        c, k = x.shape[3], channels or self.s.pick(1, 2, 3, 4, 5, 7, 8, 12, 16, 17)
        data = self.weights(k, fy, fx, c)
        return self.sum("CONV_2D", x, data, 0, fy * fx * c, (1, h, w, k), options)

    def conv_same(self, x: Value) -> Value:
        return self.conv(x, same=True)

    def expand(self, x: Value) -> Value:
        return self._pointwise(x, self.image(x)[2] * self.s.pick(1, 2, 3))

    def conv_like(self, x: Value, like: Value) -> Value:
        return self._pointwise(x, self.image(like)[2])

    def _pointwise(self, x: Value, channels: int) -> Value:
        h, w, c = self.image(x)
        options = schema.Conv2DOptionsT()
        options.padding, options.strideH, options.strideW = SAME, 1, 1
        options.dilationHFactor = options.dilationWFactor = 1
        options.fusedActivationFunction = self.s.pick(*ACTIVATIONS)
        return self.sum("CONV_2D", x, self.weights(channels, 1, 1, c), 0, c, (1, h, w, channels), options)

    def depthwise(self, x: Value, same: bool = False) -> Value:
        options = schema.DepthwiseConv2DOptionsT()
        (fy, fx), (h, w) = self.window(x, options, same, dilated=True)
        if options.strideH != options.strideW:
            raise DoesNotFit  # TFLM has one stride for both
        multiplier = 1 if same else self.s.pick(1, 1, 1, 2, 3)
        options.depthMultiplier = multiplier
        k = x.shape[3] * multiplier
        return self.sum("DEPTHWISE_CONV_2D", x, self.weights(1, fy, fx, k), 3, fy * fx, (1, h, w, k), options)

    def depthwise_same(self, x: Value) -> Value:
        return self.depthwise(x, same=True)

    def pool(self, x: Value, same: bool = False) -> Value:
        options = schema.Pool2DOptionsT()
        taps, (h, w) = self.window(x, options, same, dilated=False)
        options.filterHeight, options.filterWidth = taps
        name = self.s.pick("MAX_POOL_2D", "AVERAGE_POOL_2D")
        return self.emit(name, [x.index], (1, h, w, x.shape[3]), x.quant, options)

    def pool_same(self, x: Value) -> Value:
        return self.pool(x, same=True)

    def global_pool(self, x: Value) -> Value:
        h, w, c = self.image(x)
        if self.s.pick(True, False):
            return self._mean(x, [1, 2], keep=True)
        options = schema.Pool2DOptionsT()
        options.padding, options.strideH, options.strideW = VALID, *self.s.pick((1, 1), (h, w))
        options.filterHeight, options.filterWidth = h, w
        name = self.s.pick("MAX_POOL_2D", "AVERAGE_POOL_2D", "AVERAGE_POOL_2D")
        return self.emit(name, [x.index], (1, 1, 1, c), x.quant, options)

    def mean(self, x: Value) -> Value:
        if len(x.shape) < 2:
            raise DoesNotFit
        axes = [1, 2] if len(x.shape) == 4 and self.s.pick(True, False) else [self.s.between(1, len(x.shape) - 1)]
        return self._mean(x, axes, keep=self.s.pick(True, False))

    def _mean(self, x: Value, axes: list[int], keep: bool) -> Value:
        options = schema.ReducerOptionsT()
        options.keepDims = keep
        shape = [1 if d in axes else n for d, n in enumerate(x.shape) if keep or d not in axes]
        y = self.s.pick(x.quant, self.quant(x.quant.scale[0] * self.s.rng.uniform(0.3, 1)))
        return self.emit("MEAN", [x.index, self.constant(np.array(axes, np.int32))], shape, y, options)

    def activation(self, x: Value) -> Value:
        name = self.s.pick(*(n for n in UNARY if n in TFLITE_READERS))
        options, quant = UNARY[name]
        made = options() if options else None
        if name == "LEAKY_RELU":
            made.alpha = float(np.float32(self.s.pick(0.1, 0.01, 0.3)))
        own = self.s.pick(x.quant, self.quant(x.quant.scale[0] * self.s.rng.uniform(0.4, 1.5)))
        return self.emit(name, [x.index], x.shape, quant or own, made)

    def gate(self, x: Value) -> Value:
        if "LOGISTIC" not in TFLITE_READERS or self.s.pick(True, False):
            return self.emit("RELU6", [x.index], x.shape, x.quant)
        return self.emit("LOGISTIC", [x.index], x.shape, Quant((1 / 256,), (-128,)))

    def identity(self, x: Value) -> Value:
        return x

    def binary(self, x: Value, y: Value) -> Value:
        known = [n for n in (*BINARY, *SAME_SCALES) if n in TFLITE_READERS]
        return self._two(self.s.pick("ADD", "ADD", *known), x, y)

    def add(self, x: Value, y: Value) -> Value:
        return self._two("ADD", x, y)

    def mul(self, x: Value, y: Value) -> Value:
        return self._two("MUL", x, y)

    def _two(self, name: str, x: Value, y: Value) -> Value:
        pairs = list(zip(x.shape, y.shape, strict=False))
        if len(x.shape) != len(y.shape) or any(1 not in pair and len(set(pair)) > 1 for pair in pairs):
            raise DoesNotFit
        shape = [max(m, n) for m, n in pairs]
        if name in SAME_SCALES:
            y = y if y.quant == x.quant else self.emit("QUANTIZE", [y.index], y.shape, x.quant)
            return self.emit(name, [x.index, y.index], shape, x.quant, SAME_SCALES[name]())
        options = BINARY[name]()
        options.fusedActivationFunction = self.s.pick(*ACTIVATIONS)
        scales = x.quant.scale[0], y.quant.scale[0]
        scale = prod(scales) * 80 if name == "MUL" else max(scales) * self.s.pick(1.0, 1.4, 2.0)
        return self.emit(name, [x.index, y.index], shape, self.quant(scale), options)

    def shift(self, x: Value) -> Value:
        """Plus or times a constant of one element, one per channel, or one per element."""
        shape = self.s.pick((1,) * len(x.shape), (*(1,) * (len(x.shape) - 1), x.shape[-1]), x.shape)
        quant = self.quant(x.quant.scale[0] * self.s.rng.uniform(0.3, 1))
        constant = Value(self.constant(self.weights(*shape), quant), shape, quant)
        return self._two(self.s.pick("ADD", "MUL"), *self.s.pick((x, constant), (constant, x)))

    def concat(self, *parts: Value) -> Value:
        x, *others = parts
        axes = [d for d in range(1, len(x.shape)) if all(_differ(x, y, d) for y in others)]
        if not axes or not others:
            raise DoesNotFit
        axis = axes[-1] if self.s.between(0, 2) else self.s.pick(*axes)
        same = [x] + [y if y.quant == x.quant else self.emit("QUANTIZE", [y.index], y.shape, x.quant) for y in others]
        shape = [sum(y.shape[d] for y in same) if d == axis else n for d, n in enumerate(x.shape)]
        options = schema.ConcatenationOptionsT()
        options.axis = axis
        return self.emit("CONCATENATION", [y.index for y in same], shape, x.quant, options)

    def pad(self, x: Value) -> Value:
        pads = [(0, 0)] + [self.s.pair(0, 2) for _ in x.shape[1:]]
        if self.s.between(0, 3) and len(pads) == 4:
            pads[3] = (0, 0)
        shape = [n + sum(p) for n, p in zip(x.shape, pads, strict=True)]
        operands = [x.index, self.constant(np.array(pads, np.int32))]
        if self.s.between(0, 3) == 0:
            value = np.array([self.s.between(-128, 127)], np.int8)
            return self.emit("PADV2", [*operands, self.constant(value, x.quant)], shape, x.quant)
        return self.emit("PAD", operands, shape, x.quant)

    def reshape(self, x: Value) -> Value:
        *_, c = x.shape
        shape = self.s.pick((1, prod(x.shape)), (1, prod(x.shape) // c, c), (1, 1, prod(x.shape) // c, c), x.shape)
        options = schema.ReshapeOptionsT()
        options.newShape = list(shape)
        return self.emit("RESHAPE", [x.index, self.constant(np.array(shape, np.int32))], shape, x.quant, options)

    def flatten(self, x: Value) -> Value:
        shape = (1, prod(x.shape))
        return self.emit("RESHAPE", [x.index, self.constant(np.array(shape, np.int32))], shape, x.quant)

    def transpose(self, x: Value) -> Value:
        perm = [0, *(1 + self.s.rng.permutation(len(x.shape) - 1))]
        data = np.array(perm, np.int32)
        return self.emit("TRANSPOSE", [x.index, self.constant(data)], [x.shape[p] for p in perm], x.quant)

    def expand_dims(self, x: Value) -> Value:
        if len(x.shape) > 3:
            raise DoesNotFit
        axis = self.s.between(1, len(x.shape))
        operands = [x.index, self.constant(np.array([axis], np.int32))]
        return self.emit("EXPAND_DIMS", operands, (*x.shape[:axis], 1, *x.shape[axis:]), x.quant)

    def squeeze_dims(self, x: Value) -> Value:
        ones = [d for d in range(1, len(x.shape)) if x.shape[d] == 1]
        if not ones:
            raise DoesNotFit
        options = schema.SqueezeOptionsT()
        options.squeezeDims = ones
        return self.emit("SQUEEZE", [x.index], [n for d, n in enumerate(x.shape) if d not in ones], x.quant, options)

    def dense(self, x: Value) -> Value:
        if len(x.shape) > 2:
            x = self.flatten(x)
        columns, k = x.shape[-1], self.s.pick(1, 2, 3, 5, 8, 10, 17)
        options = schema.FullyConnectedOptionsT()
        options.fusedActivationFunction = self.s.pick(*ACTIVATIONS)
        return self.sum("FULLY_CONNECTED", x, self.weights(k, columns), 0, columns, (1, k), options)

    def softmax(self, x: Value) -> Value:
        options = schema.SoftmaxOptionsT()
        options.beta = 1.0
        return self.emit("SOFTMAX", [x.index], x.shape, Quant((1 / 256,), (-128,)), options)


def _differ(x: Value, y: Value, axis: int) -> bool:
    """The shapes differ in this dimension at most."""
    return len(x.shape) == len(y.shape) and all(
        m == n for d, (m, n) in enumerate(zip(x.shape, y.shape, strict=True)) if d != axis
    )


WORDS = (
    "conv",
    "depthwise",
    "pool",
    "activation",
    "shift",
    "pad",
    "global_pool",
    "mean",
    "reshape",
    "transpose",
    "expand_dims",
    "squeeze_dims",
    "dense",
    "softmax",
)
Writer = Callable[[Recipe], bytes]


def write(recipe: Recipe) -> bytes:
    return TfliteWriter(recipe).write()
