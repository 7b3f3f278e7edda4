"""A TFLite file under construction from a recipe: values, constants, quantisations, windows that suit an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import numpy as np
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.ir import Array, Quant
from tests.graphs.tflite_models import ACTIVATIONS, SAME, TYPES, VALID, File, output_size

from .recipe import INTEGERS, Choice, DoesNotFit, Layer, Recipe, Sizes, choice

SPREAD = {"int8": 60 / 74**2, "int16": 0.4 / 74}  # of the factor of a sum of products, so that results fill the type
FULL = {"int8": (-128, 127), "int16": (-(2**15), 2**15 - 1)}
POSITIVE = (1, 3)  # fused activations: RELU, RELU6
LARGEST = 60_000  # elements of a tensor


@dataclass(frozen=True)
class Value:
    """A tensor of the file. `exact`: no rounding of floats differs between us and an oracle on the way to it."""

    index: int
    shape: tuple[int, ...]
    quant: Quant | None
    exact: bool = True


class Parts:
    """`kind`: the type of activations. `twin`: operators that TFLM has not are made of others that it has."""

    def __init__(self, recipe: Recipe, twin: bool = False) -> None:
        self.file, self.recipe, self.twin = File(), recipe, twin
        self.aside = set[int]()  # results that the twin has not
        self.kind = INTEGERS.get(recipe.form, "float32")
        self.inputs: list[int] = []
        self.firsts: dict[str, tuple[Array, Quant | None]] = {}  # of variables: their first values
        self.weights: dict[tuple[str, tuple[int, ...]], tuple[int, Quant | None]] = {}  # of the last layer of a shape
        self.s: Choice = choice(0)
        self.sizes = Sizes({})
        self.batch = 1

    def begin(self, layer: Layer) -> None:
        self.s = choice(layer.seed, real=False, integer=INTEGERS.get(self.recipe.form, "int8"))
        self.sizes = Sizes(dict(layer.most))

    @property
    def real(self) -> bool:
        return self.kind == "float32"

    def dtype(self, x: Value) -> str:
        code = self.file.tensors[x.index].type
        return next(name for name, number in TYPES.items() if number == code)

    # ---- tensors

    def emit(
        self,
        name: str,
        inputs: Sequence[Value | int],
        shape: Sequence[int],
        quant: Quant | None,
        options: Any = None,
        dtype: str = "",
        exact: bool | None = None,
    ) -> Value:
        """Add an operator; its result. `dtype`: if not that of activations; `exact`: if operands do not tell."""
        return self.several(name, inputs, [shape], quant, options, dtype, exact)[0]

    def several(
        self,
        name: str,
        inputs: Sequence[Value | int],
        shapes: Sequence[Sequence[int]],
        quant: Quant | None,
        options: Any = None,
        dtype: str = "",
        exact: bool | None = None,
    ) -> list[Value]:
        if any(prod(shape) > LARGEST or min(shape, default=1) < 1 for shape in shapes):
            raise DoesNotFit
        if self.batch > 1 and any(tuple(shape[:1]) != (self.batch,) for shape in shapes):
            raise DoesNotFit  # rows of the tables are mostly about one image
        dtype = dtype or self.kind
        quant = quant if dtype in FULL else None
        exact = all(v.exact for v in inputs if isinstance(v, Value)) if exact is None else exact or dtype in FULL
        results = [
            Value(self.file.tensor(f"t{len(self.file.tensors)}", shape, dtype, quant), tuple(shape), quant, exact)
            for shape in shapes
        ]
        operands = [v.index if isinstance(v, Value) else v for v in inputs]
        self.file.operator(name, operands, [v.index for v in results], options)
        return results

    def constant(self, data: Array, quant: Quant | None = None) -> int:
        return self.file.tensor(f"c{len(self.file.tensors)}", data.shape, str(data.dtype), quant, data)

    def list_of(self, values: Any) -> int:
        return self.constant(np.array(values, np.int32))

    def number(self, value: float, like: Value) -> Value:
        """A real constant of one element."""
        shape = (1,) * len(like.shape)
        return Value(self.constant(np.full(shape, value, np.float32)), shape, None)

    def given(self, shape: Sequence[int], quant: Quant | None = None, dtype: str = "") -> Value:
        """An input of the graph."""
        dtype = dtype or self.kind
        self.inputs.append(self.file.tensor(f"in{len(self.file.tensors)}", shape, dtype, quant))
        return Value(self.inputs[-1], tuple(shape), quant)

    def fresh(self, shape: Sequence[int], quant: Quant | None = None) -> Value:
        """An input in the type of activations; now and then real numbers that are quantised first."""
        if self.real:
            return self.given(shape)
        q = quant or self.quant(self.scale())
        if self.s.between(0, 4) == 0:
            return self.emit("QUANTIZE", [self.given(shape, None, "float32")], shape, q, schema.QuantizeOptionsT())
        return self.given(shape, q)

    def filled(self, shape: Sequence[int], quant: Quant | None = None) -> Value:
        """A constant in the type of activations."""
        if self.real:
            return Value(self.constant(self.s.rng.standard_normal(tuple(shape)).astype(np.float32)), tuple(shape), None)
        q, (low, high) = quant or self.quant(self.scale()), FULL[self.kind]
        data = self.s.rng.integers(low, high + 1, tuple(shape)).astype(self.kind)
        return Value(self.constant(data, q), tuple(shape), q)

    def exactly(self, x: Value) -> Value:
        """The value, or an input in its place where results would jump with a rounding."""
        return x if x.exact or self.dtype(x) != "float32" else self.given(x.shape, None, "float32")

    # ---- quantisations

    def scale(self) -> float:
        bits = self.s.between(3, 6) + (8 if self.kind == "int16" else 0)
        return 2.0**-bits * self.s.rng.uniform(1, 2)

    def quant(self, scale: float, positive: bool = False) -> Quant | None:
        """A quantisation whose zero is mostly where both signs have room, or the `positive` values alone.

        Behind a zero at the other end little is left but one value, which hides what goes wrong before.
        """
        if self.real:
            return None
        low, high = FULL["int8"]
        near = self.s.pick(low, self.s.between(low, low + 20)) if positive else self.s.pick(0, self.s.between(-25, 25))
        zero = self.s.pick(*(near,) * 6, low, self.s.pick(high, self.s.between(low, high)))
        return Quant((float(np.float32(max(scale, 2.0**-24))),), (0 if self.kind == "int16" else zero,))

    def scaled(self, x: Value, low: float, high: float) -> Quant | None:
        """A scale between these multiples of the operand's."""
        if x.quant is None:
            return None
        return self.quant(x.quant.scale[0] * self.s.rng.uniform(low, high))

    def like(self, x: Value, quant: Quant | None) -> Value:
        """The value in another quantisation."""
        return x if x.quant == quant else self.emit("QUANTIZE", [x], x.shape, quant, schema.QuantizeOptionsT())

    def as_real(self, x: Value) -> Value:
        if self.dtype(x) == "float32":
            return x
        return self.emit("DEQUANTIZE", [x], x.shape, None, schema.DequantizeOptionsT(), "float32")

    def as_activation(self, x: Value) -> Value:
        """Real numbers in the type of activations again."""
        if self.real:
            return x
        return self.emit("QUANTIZE", [x], x.shape, self.quant(self.scale()), schema.QuantizeOptionsT())

    # ---- sums of products, windows

    def sum(
        self, name: str, x: Value, shape_of: Sequence[int], axis: int, terms: int, shape: Any, options: Any
    ) -> Value:
        """A sum of products with weights of `shape_of`, scaled per tensor or per channel."""
        operands: list[Value | int]
        if self.real:
            data = (self.s.rng.standard_normal(tuple(shape_of)) / sqrt(terms)).astype(np.float32)
            bias = self.s.rng.standard_normal(shape[-1]).astype(np.float32)
            operands = [x, self._weights(name, data, None)[0]] + ([self.constant(bias)] if self.s.between(0, 4) else [])
            return self.emit(name, self._ordered(name, operands, shape), shape, None, options, exact=False)
        assert x.quant is not None
        data = self.s.rng.integers(-127, 128, tuple(shape_of)).astype(np.int8)
        count = self.s.pick(1, data.shape[axis]) if self.recipe.form != "tflite_uint8" else 1
        parts = self.s.rng.uniform(0.25, 1, count)
        if self.recipe.form == "tflite_uint8":
            parts = np.ones(count)  # powers of two: the int8 twin's products of scales are not rounded to float32
        scales = tuple(float(v) for v in (parts * 2.0 ** -self.s.between(7, 10)).astype(np.float32))
        wide = self.kind == "int16"
        reach = 2 ** self.s.between(0, 20 if wide else 13)
        bias = self.s.rng.integers(-reach, reach + 1, shape[-1]).astype(np.int64 if wide else np.int32)
        self._unusual(np.moveaxis(data, axis, 0), bias)
        weights, own = self._weights(name, data, Quant(scales, (0,) * count, axis if count > 1 else None))
        scales, count = own.scale, len(own.scale)  # type: ignore[union-attr]
        products = Quant(tuple(float(np.float32(x.quant.scale[0] * v)) for v in scales), (0,) * count, 0)
        factor = self.s.pick(1.0, 1.0, 1.0, 2.0, 0.5, self.s.pick(1.0, 20.0, 0.004)) * SPREAD[self.kind] / sqrt(terms)
        operands = [x, weights] + ([self.constant(bias, products)] if self.s.between(0, 4) else [])
        quant = self.quant(max(products.scale) / factor, positive=options.fusedActivationFunction in POSITIVE)
        return self.emit(name, self._ordered(name, operands, shape), shape, quant, options)

    def _unusual(self, by_channel: Array, bias: Array) -> None:
        """Now and then training left channels without weights, some of them at an end of their range.

        Some converters write -128, and a channel whose weights have one sign reaches the largest sums.
        """
        if self.s.between(0, 3) == 0:
            dead = self.s.rng.random(len(by_channel)) < self.s.pick(0.2, 0.5, 0.9)
            by_channel[dead] = 0
            if self.s.pick(True, False):
                bias[dead] = self.s.rng.choice([-(2**28), 2**28, 0], dead.sum())
        if self.s.between(0, 7) == 0:
            far = self.s.rng.random(by_channel.shape) < self.s.pick(0.1, 1)
            by_channel[far] = self.s.pick(-128, 127)

    def _weights(self, name: str, data: Array, quant: Quant | None) -> tuple[int, Quant | None]:
        """A constant; now and then that of an earlier layer of the same kind and shape."""
        key = name, data.shape
        if key not in self.weights or self.s.between(0, 3):
            self.weights[key] = self.constant(data, quant), quant
        return self.weights[key]

    def _ordered(self, name: str, operands: list[Value | int], shape: Any) -> list[Value | int]:
        if name != "TRANSPOSE_CONV":
            return operands
        return [self.list_of(list(shape)), operands[1], operands[0], *operands[2:]]

    def image(self, x: Value) -> tuple[int, int, int]:
        if len(x.shape) != 4:
            raise DoesNotFit
        return x.shape[1], x.shape[2], x.shape[3]

    def window(self, x: Value, options: Any, same: bool, dilated: bool) -> tuple[list[int], list[int]]:
        """Fill in stride, dilation, padding and activation; the window and the size of the result."""
        h, w, _ = self.image(x)
        taps = [min(self.s.pick(1, 2, 3, 3, 3, 4, 5), n) for n in (h, w)]
        if self.s.between(0, 5) == 0:
            taps = self.s.pick([1, taps[1]], [taps[0], 1], [h if h < 9 else 1, 1], [1, 1])
        stride = (1, 1) if same else self.s.pick((1, 1), (1, 1), (2, 2), (2, 1), (1, 2), (3, 3), self.s.pair(1, 5))
        dilation = (1, 1)
        if dilated and stride == (1, 1) and self.s.between(0, 3) == 0:
            dilation = self.s.pick((2, 2), (1, 2), (2, 1), (3, 3))
        options.padding = SAME if same else self.s.pick(SAME, VALID)
        taps = [self.sizes.of(f"window {d}", n) for d, n in enumerate(taps)]
        stride = self.sizes.of("stride 0", stride[0]), self.sizes.of("stride 1", stride[1])
        dilation = self.sizes.of("dilation 0", dilation[0]), self.sizes.of("dilation 1", dilation[1])
        if any((k - 1) * d + 1 > n for k, d, n in zip(taps, dilation, (h, w), strict=True)):
            options.padding = SAME
        options.strideH, options.strideW = stride
        if dilated:
            options.dilationHFactor, options.dilationWFactor = dilation
        options.fusedActivationFunction = self.s.pick(*ACTIVATIONS)
        return taps, output_size((h, w), taps, stride, options.padding, dilation)
