"""A recipe as a TFLite file, with random weights whose results spread over the type of its activations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from tests.graphs.tflite_models import ACTIVATIONS, SAME, TYPES, VALID, File, output_size

from .recipe import BATCHES, DoesNotFit, Recipe, choice, common_divisors, group_window, image_size
from .tflite_parts import Parts, Value
from .tflite_rows import ROWS

# Operators that are drawn more often than the others.
ACTIVATION = ("RELU", "RELU6", "LOGISTIC", "TANH", "HARD_SWISH", "LEAKY_RELU", "ELU")
BINARY = ("ADD", "ADD", "MUL", "SUB", "MAXIMUM", "MINIMUM")
NAMES = (b"model/BiasAdd;model/Relu", b"model/BiasAdd;model/Conv2D", b"model/BiasAdd", b"PartitionedCall:0")


class TfliteWriter(Parts):
    """Every layer is a method of its operands, or an operator of the table. Images are N x H x W x C."""

    def __init__(self, recipe: Recipe, twin: bool = False) -> None:
        super().__init__(recipe, twin)
        self.values: dict[int, Value] = {}
        self.used: dict[int, dict[str, int]] = {}  # the sizes that a layer has drawn

    def write(self) -> bytes:
        """Raises ValueError where nothing is left to be computed."""
        for layer in self.recipe.layers:
            self.begin(layer)
            operands = [self.values[n] for n in layer.operands]
            before = len(self.file.operators), len(self.inputs)
            try:
                make = ROWS[layer.word].make if layer.word in ROWS else type(self).__dict__[layer.word]
                self.values[layer.number] = make(self, *operands)
            except DoesNotFit:
                del self.file.operators[before[0] :], self.file.codes[before[0] :], self.inputs[before[1] :]
                self.values[layer.number] = operands[0]
            self.used[layer.number] = self.sizes.used
        outputs = self._outputs()
        if not outputs:
            raise ValueError("no layer is left")
        read = {i for op in self.file.operators for i in op.inputs}
        files = self._first_values()
        for file in (self.file, *files) if self.recipe.form == "tflite_uint8" and not self.twin else ():
            _unsigned(file)
        return self.file.pack([i for i in self.inputs if i in read], outputs, files)

    def _outputs(self) -> list[int]:
        """Results that no layer reads or that the recipe names; now and then as real numbers at the end."""
        read = {i for op in self.file.operators for i in op.inputs}
        written = [i for op in self.file.operators for i in op.outputs]
        named = {self.values[n].index for n in self.recipe.outputs if n in self.values}
        handles = {i for i, t in enumerate(self.file.tensors) if t.type == TYPES["resource"]}
        outputs = [i for i in written if (i not in read or i in named) and i not in handles | self.aside]
        self.s = choice(self.recipe.seed)
        outputs = [self._real(i) if self.s.between(0, 4) == 0 else i for i in outputs]
        if choice(self.recipe.seed + 2).between(0, 2) == 0:  # converters' lists of fused names begin alike
            for index in written:
                self.file.tensors[index].name = NAMES[index % len(NAMES)]
        for number, index in enumerate(outputs):  # under one name in the twin, too
            self.file.tensors[index].name = f"y{number}".encode()
        return outputs

    def _real(self, index: int) -> int:
        t = self.file.tensors[index]
        if t.type != TYPES[self.kind] or self.real:
            return index
        y = self.file.tensor(f"real{index}", t.shape, "float32")
        self.file.operator("DEQUANTIZE", [index], [y], schema.DequantizeOptionsT())
        return y

    def _first_values(self) -> list[File]:
        """The graph that is called once, if a variable has a first value."""
        if not self.firsts:
            return []
        init = File()
        init.buffers = self.file.buffers
        for name, (value, quant) in self.firsts.items():
            options = schema.VarHandleOptionsT()
            options.container, options.sharedName = b"", name.encode()
            handle = init.tensor(f"handle of {name}", (), "resource")
            init.operator("VAR_HANDLE", [], [handle], options)
            first = init.tensor(f"first of {name}", value.shape, str(value.dtype), quant, value)
            init.operator("ASSIGN_VARIABLE", [handle, first], [], schema.AssignVariableOptionsT())
        return [init]

    # ---- layers

    def input(self) -> Value:
        s, of = self.s, self.sizes.of
        rows, columns, channels = s.pick(
            (s.between(3, 14), s.between(3, 14), s.pick(1, 2, 3, 4, 5, 8)),
            (s.between(6, 20), s.between(6, 20), s.pick(1, 2, 3)),
            (s.pick(1, 2, 17, 24), s.pick(1, 2, 9, 16), s.pick(1, 4, 16)),
            (s.between(1, 3), s.between(1, 3), s.pick(33, 64, 70, 130)),
            (*s.pick((1, 1), (1, s.between(2, 40)), (s.between(2, 40), 1)), s.pick(1, 3, 7, 12)),
        )
        image = of("rows", rows), of("columns", columns), of("channels", channels)
        self.batch = of("batch", s.pick(*BATCHES))
        return self.fresh((self.batch, *image))

    def field(self) -> Value:
        self.batch = 1
        return self.fresh((1, *image_size(self.s, self.sizes.of)))

    def input_like(self, x: Value) -> Value:
        return self.fresh(x.shape)

    def conv(self, x: Value, same: bool = False) -> Value:
        options = schema.Conv2DOptionsT()
        (fy, fx), (h, w) = self.window(x, options, same, dilated=True)
        c, k = x.shape[3], self.sizes.of("channels", self.s.pick(1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 33))
        if self.s.between(0, 3) == 0 and self.recipe.form != "tflite_uint8":
            groups = self.s.pick(*common_divisors(c, k))
            c = c // groups
        return self.sum("CONV_2D", x, (k, fy, fx, c), 0, fy * fx * c, (x.shape[0], h, w, k), options)

    def conv_same(self, x: Value) -> Value:
        return self.conv(x, same=True)

    def window_of_groups(self, x: Value) -> Value:
        """Each window with all groups, pads, strides and dilations alike. Files in uint8 have no groups."""
        h, w, c = self.image(x)
        drawn = group_window(self.s, self.sizes.of, (h, w, c), self.recipe.form != "tflite_uint8")
        options = schema.Conv2DOptionsT()
        options.padding = SAME if drawn.padded else VALID
        options.strideH, options.strideW = drawn.stride
        options.dilationHFactor, options.dilationWFactor = drawn.dilation
        options.fusedActivationFunction = self.s.pick(*ACTIVATIONS)
        size = output_size((h, w), drawn.taps, drawn.stride, options.padding, drawn.dilation)
        shape = drawn.results, *drawn.taps, c // drawn.groups
        return self.sum("CONV_2D", x, shape, 0, drawn.terms(c), (x.shape[0], *size, drawn.results), options)

    def square(self, x: Value) -> Value:
        """A window of 3x3 between channels in fours, as in most layers of ResNet: some kernels serve no other shape."""
        c, k = self.image(x)[2], 2 * self.sizes.of("pairs", self.s.between(1, 9))
        x = x if c % 4 == 0 else self._pointwise(x, 4 * self.sizes.of("fours", self.s.pick(1, 2, 4, 6)))
        h, w, c = self.image(x)
        options = schema.Conv2DOptionsT()
        options.padding = self.s.pick(SAME, SAME, VALID) if min(h, w) >= 3 else SAME
        options.strideH = options.strideW = options.dilationHFactor = options.dilationWFactor = 1
        options.fusedActivationFunction = self.s.pick(*ACTIVATIONS)
        size = output_size([h, w], [3, 3], [1, 1], options.padding)
        return self.sum("CONV_2D", x, (k, 3, 3, c), 0, 9 * c, (x.shape[0], *size, k), options)

    def expand(self, x: Value) -> Value:
        return self._pointwise(x, self.image(x)[2] * self.sizes.of("factor", self.s.pick(1, 2, 3)))

    def conv_like(self, x: Value, like: Value) -> Value:
        return self._pointwise(x, self.image(like)[2])

    def _pointwise(self, x: Value, channels: int) -> Value:
        h, w, c = self.image(x)
        options = schema.Conv2DOptionsT()
        options.padding, options.strideH, options.strideW = SAME, 1, 1
        options.dilationHFactor = options.dilationWFactor = 1
        options.fusedActivationFunction = self.s.pick(*ACTIVATIONS)
        return self.sum("CONV_2D", x, (channels, 1, 1, c), 0, c, (x.shape[0], h, w, channels), options)

    def depthwise(self, x: Value, same: bool = False) -> Value:
        options = schema.DepthwiseConv2DOptionsT()
        (fy, fx), (h, w) = self.window(x, options, same, dilated=True)
        if options.strideH != options.strideW:
            raise DoesNotFit  # TFLM has one stride for both
        options.depthMultiplier = 1
        if not same:
            factor = self.s.pick(1, 1, 1, 2, 3) if x.shape[3] > 1 else self.s.pick(1, 5, 16)
            options.depthMultiplier = self.sizes.of("factor", factor)
        k = x.shape[3] * options.depthMultiplier
        return self.sum("DEPTHWISE_CONV_2D", x, (1, fy, fx, k), 3, fy * fx, (x.shape[0], h, w, k), options)

    def depthwise_same(self, x: Value) -> Value:
        return self.depthwise(x, same=True)

    def pool(self, x: Value, same: bool = False) -> Value:
        options = schema.Pool2DOptionsT()
        taps, (h, w) = self.window(x, options, same, dilated=False)
        options.filterHeight, options.filterWidth = taps
        return self._pooled(x, (x.shape[0], h, w, x.shape[3]), options, "MAX_POOL_2D", "AVERAGE_POOL_2D")

    def _pooled(self, x: Value, shape: tuple[int, ...], options: object, *names: str) -> Value:
        name = self.s.pick(*names)
        if name == "AVERAGE_POOL_2D" and self.recipe.form == "tflite_uint8":
            raise DoesNotFit  # halves go up, those of the int8 twin that judges away from zero
        return self.emit(name, [x], shape, x.quant, options, exact=x.exact and name == "MAX_POOL_2D")

    def pool_same(self, x: Value) -> Value:
        return self.pool(x, same=True)

    def global_pool(self, x: Value) -> Value:
        h, w, c = self.image(x)
        if self.s.pick(True, False):
            return self._mean(x, [1, 2], keep=True)
        options = schema.Pool2DOptionsT()
        options.padding, options.strideH, options.strideW = VALID, *self.s.pick((1, 1), (h, w))
        options.filterHeight, options.filterWidth = h, w
        return self._pooled(x, (x.shape[0], 1, 1, c), options, "MAX_POOL_2D", "AVERAGE_POOL_2D", "AVERAGE_POOL_2D")

    def mean(self, x: Value) -> Value:
        if len(x.shape) < 2:
            raise DoesNotFit
        axes = [1, 2] if len(x.shape) == 4 and self.s.pick(True, False) else [self.s.between(1, len(x.shape) - 1)]
        return self._mean(x, axes, keep=self.s.pick(True, False))

    def _mean(self, x: Value, axes: list[int], keep: bool) -> Value:
        options = schema.ReducerOptionsT()
        options.keepDims = keep
        shape = [1 if d in axes else n for d, n in enumerate(x.shape) if keep or d not in axes]
        y = self.s.pick(x.quant, self.scaled(x, 0.3, 1))
        return self.emit("MEAN", [x, self.list_of(axes)], shape, y, options, exact=False)

    def activation(self, x: Value) -> Value:
        return self._one_of(ACTIVATION, x)

    def gate(self, x: Value) -> Value:
        return self._one_of(("RELU6", "LOGISTIC"), x)

    def binary(self, x: Value, y: Value) -> Value:
        if x is y and x.shape[0] == 1 and self.s.pick(True, False):  # beside itself without its first dimension
            shape = x.shape[1:]
            view = self.emit("RESHAPE", [x, self.list_of(shape)], shape, x.quant)
            x, y = self.s.pick((x, view), (view, x))
        return self._one_of(BINARY, x, y)

    def _one_of(self, names: Sequence[str], *operands: Value) -> Value:
        return ROWS[self.s.pick(*(n for n in names if self.recipe.rows in ROWS[n].forms))].make(self, *operands)

    def identity(self, x: Value) -> Value:
        return x

    def add(self, x: Value, y: Value) -> Value:
        return ROWS["ADD"].make(self, x, y)

    def mul(self, x: Value, y: Value) -> Value:
        return ROWS["MUL"].make(self, x, y)

    def shift(self, x: Value) -> Value:
        """Plus or times a constant of one element, one per channel, or one per element."""
        shape = self.s.pick((1,) * len(x.shape), (*(1,) * (len(x.shape) - 1), x.shape[-1]), x.shape)
        constant = self.filled(shape, self.scaled(x, 0.3, 1))
        return self._one_of(("ADD", "MUL"), *self.s.pick((x, constant), (constant, x)))

    def concat(self, *parts: Value) -> Value:
        x, *others = parts
        axes = [d for d in range(1, len(x.shape)) if all(_differ(x, y, d) for y in others)]
        if not axes or not others:
            raise DoesNotFit
        axis = axes[-1] if self.s.between(0, 2) else self.s.pick(*axes)
        same = [self.like(y, x.quant) for y in parts]
        shape = [sum(y.shape[d] for y in same) if d == axis else n for d, n in enumerate(x.shape)]
        options = schema.ConcatenationOptionsT()
        options.axis = axis
        return self.emit("CONCATENATION", same, shape, x.quant, options)

    def turn(self, x: Value) -> Value:
        return ROWS["TRANSPOSE"].make(self, x)

    def shuffle(self, x: Value) -> Value:
        """Channels split into two or three parts, some of them changed, and put together in another order."""
        *_, c = self.image(x)
        if c < 2:
            raise DoesNotFit
        cuts = sorted({self.s.between(1, c - 1), self.s.between(1, c - 1)})
        sizes = [b - a for a, b in zip((0, *cuts), (*cuts, c), strict=True)]
        options = schema.SplitVOptionsT()
        options.numSplits = len(sizes)
        axis = self.constant(np.array(3, np.int32))
        parts = self.several(
            "SPLIT_V", [x, self.list_of(sizes), axis], [(*x.shape[:3], n) for n in sizes], x.quant, options
        )
        ways = [self.s.pick(self.identity, self.activation, self.conv_same, self.depthwise_same)(y) for y in parts]
        return self.concat(*(ways[int(i)] for i in self.s.rng.permutation(len(ways))))

    def reshape(self, x: Value) -> Value:
        (*_, c), b, n = x.shape, self.batch, prod(x.shape) // self.batch
        shape = self.s.pick((b, n), (b, n // c, c), (b, 1, n // c, c), x.shape)
        options = schema.ReshapeOptionsT()
        options.newShape = list(shape)
        return self.emit("RESHAPE", [x, self.list_of(shape)], shape, x.quant, options)

    def flatten(self, x: Value) -> Value:
        shape = (self.batch, prod(x.shape) // self.batch)
        return self.emit("RESHAPE", [x, self.list_of(shape)], shape, x.quant)

    def dense(self, x: Value) -> Value:
        if len(x.shape) > 2:
            x = self.flatten(x)
        columns, k = x.shape[-1], self.sizes.of("channels", self.s.pick(1, 2, 3, 5, 8, 10, 17))
        options = schema.FullyConnectedOptionsT()
        options.fusedActivationFunction = self.s.pick(*ACTIVATIONS)
        return self.sum("FULLY_CONNECTED", x, (k, columns), 0, columns, (*x.shape[:-1], k), options)

    def softmax(self, x: Value) -> Value:
        if self.recipe.rows not in ROWS["SOFTMAX"].forms:
            raise DoesNotFit
        return ROWS["SOFTMAX"].make(self, x)


def _unsigned(file: File) -> None:
    """Write the int8 tensors in uint8, as files of 2018 to 2020 have them: 128 more, zero points, too."""
    for t in file.tensors:
        if t.type != TYPES["int8"] or t.quantization is None:
            continue
        t.type = TYPES["uint8"]
        t.quantization.zeroPoint = [zero + 128 for zero in t.quantization.zeroPoint]
        if t.buffer:
            data = file.buffers[t.buffer].data
            file.buffers[t.buffer].data = [byte ^ 128 for byte in data]


def _differ(x: Value, y: Value, axis: int) -> bool:
    """The shapes differ in this dimension at most."""
    return len(x.shape) == len(y.shape) and all(
        m == n for d, (m, n) in enumerate(zip(x.shape, y.shape, strict=True)) if d != axis
    )


WORDS = (
    "conv", "conv", "depthwise", "pool", "activation", "shift", "global_pool", "mean", "reshape", "dense", "softmax",
)  # fmt: skip


def operators(form: str) -> tuple[str, ...]:
    """The rows of the table that this form has."""
    form = Recipe(form, 0, ()).rows
    return tuple(name for name, row in ROWS.items() if form in row.forms)


def write(recipe: Recipe, twin: bool = False) -> bytes:
    """`twin`: the same network for TFLM, without operators that it has not."""
    return TfliteWriter(recipe, twin).write()


writer = TfliteWriter
