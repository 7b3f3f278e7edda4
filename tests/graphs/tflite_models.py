"""Random .tflite files of one operator, written with the object API of the schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt
from typing import Any

import flatbuffers
import numpy as np
from hypothesis import strategies as st
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.ir import Array, Quant
from edgebuild.model.ops.fixedpoint import limits

from .source import Source, sources

TYPES = {
    "float32": 0,
    "float16": 1,
    "int32": 2,
    "uint8": 3,
    "int64": 4,
    "bool": 6,
    "int16": 7,
    "int8": 9,
    "resource": 13,
    "list": 14,
}
TYPES |= {"uint32": 15, "uint64": 12}
SAME, VALID = 0, 1
ACTIVATIONS = (0, 0, 1, 2, 3)  # NONE, RELU, RELU_N1_TO_1, RELU6


class File:
    """A model under construction: one subgraph."""

    def __init__(self) -> None:
        self.buffers = [schema.BufferT()]  # the first is the empty one, by the format's own rule
        self.tensors: list[Any] = []
        self.operators: list[Any] = []
        self.codes: list[Any] = []

    def tensor(
        self, name: str, shape: Sequence[int], dtype: str, quant: Quant | None = None, data: Array | None = None
    ) -> int:
        """Add a tensor; its number. One with data is a constant."""
        t = schema.TensorT()
        t.name, t.shape, t.type, t.buffer = name.encode(), list(shape), TYPES[dtype], 0
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = list(np.ascontiguousarray(data).tobytes())
            t.buffer = len(self.buffers)
            self.buffers.append(buffer)
        if quant is not None:
            t.quantization = schema.QuantizationParametersT()
            t.quantization.scale, t.quantization.zeroPoint = list(quant.scale), list(quant.zero_point)
            t.quantization.quantizedDimension = quant.axis or 0
        self.tensors.append(t)
        return len(self.tensors) - 1

    def operator(self, name: str, inputs: Sequence[int], outputs: Sequence[int], options: Any = None) -> None:
        """Add an operator; `options` is an object of the schema, or the bytes of a custom operator's."""
        code, custom = schema.OperatorCodeT(), name.removeprefix("custom ")
        code.builtinCode = getattr(schema.BuiltinOperator, name if custom == name else "CUSTOM")
        code.customCode = custom.encode() if custom != name else None
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        op = schema.OperatorT()
        op.opcodeIndex, op.inputs, op.outputs = len(self.codes), list(inputs), list(outputs)
        if isinstance(options, bytes):
            op.customOptions = list(options)
        elif options is not None:
            op.builtinOptions = options
            op.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
        self.codes.append(code)
        self.operators.append(op)

    def pack(self, inputs: Sequence[int], outputs: Sequence[int], more: Sequence[File] = ()) -> bytes:
        """The file's bytes. `more`: further subgraphs, which share the buffers of this one."""
        graphs, codes = [], list[Any]()
        for file, surface in ((self, (inputs, outputs)), *((other, ((), ())) for other in more)):
            graph = schema.SubGraphT()
            graph.name, graph.tensors, graph.operators = b"main", file.tensors, file.operators
            graph.inputs, graph.outputs = list(surface[0]), list(surface[1])
            for op in file.operators:
                op.opcodeIndex += len(codes)
            codes += file.codes
            graphs.append(graph)
        model = schema.ModelT()
        model.version, model.subgraphs, model.buffers, model.operatorCodes = 3, graphs, self.buffers, codes
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


class Draft(File):
    """A file whose choices come from a source, in its type of integers."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.s = source

    def quant(self, scale: float | None = None) -> Quant:
        """TFLM wants the bounds of activation functions, 6 / scale, to be int32."""
        quant = self.s.quant(scale and max(scale, 2.0**-24))
        assert quant is not None
        return quant

    def shape(self, most: int = 5) -> tuple[int, ...]:
        """1 to 4 dimensions, the first of which is the batch."""
        return self.s.pick((self.s.between(1, most),), (1, *self.s.shape(1, 3, most)))

    def input(self, shape: Sequence[int], quant: Quant | None = None, dtype: str = "") -> int:
        return self.tensor(f"x{len(self.tensors)}", shape, dtype or self.s.integer, quant)

    def list_of(self, values: Sequence[int]) -> int:
        """A constant vector or matrix of int32."""
        data = np.array(values, np.int32)
        return self.tensor(f"list{len(self.tensors)}", data.shape, "int32", None, data)

    def done(
        self,
        name: str,
        inputs: Sequence[int],
        shape: Sequence[int],
        quant: Quant | None,
        options: Any = None,
        dtype: str = "",
    ) -> bytes:
        """The file of this operator with its result behind it. Operands without data are the graph's inputs."""
        y = self.tensor("y", shape, dtype or self.s.integer, quant)
        self.operator(name, inputs, [y], options)
        return self.pack([i for i in dict.fromkeys(inputs) if i >= 0 and self.tensors[i].buffer == 0], [y])

    def sum(self, name: str, x: int, w: Any, terms: int, shape: Sequence[int], options: Any) -> bytes:
        """A sum of products: weights, perhaps a bias, and a result that `terms` products spread over int8."""
        weights = self.tensor("w", w.shape, "int8", w.quant, w.data)
        scale, operands = self.tensors[x].quantization.scale[0], [x, weights]
        products = Quant(tuple(scale * s for s in w.quant.scale), (0,) * len(w.quant.scale), 0)
        if self.s.pick(True, False):
            wide = self.s.integer == "int16"
            reach = 2 ** self.s.between(0, 30 if wide else 18)
            bias = self.s.rng.integers(-reach, reach + 1, shape[-1]).astype(np.int64 if wide else np.int32)
            operands.append(self.tensor("bias", bias.shape, str(bias.dtype), products, bias))
        elif name == "FULLY_CONNECTED" and w.quant.per_tensor and self.s.pick(True, False):  # TFLM dies of it elsewhere
            operands.append(-1)
        factor = self.s.multiplier(60 / (74 * 74 * sqrt(terms)))
        if self.s.integer == "int16":
            factor = 2.0 ** self.s.pick(0, 0, 2, -9, -30) / (74 * sqrt(terms))
        y = self.quant(float(np.float32(max(products.scale) / factor)))
        if name == "TRANSPOSE_CONV":
            operands = [self.list_of(list(shape)), operands[1], operands[0], *operands[2:]]
        return self.done(name, operands, shape, y, options)


def image(f: Draft, taps: Sequence[int], dilation: Sequence[int] = (1, 1)) -> tuple[list[int], int]:
    """Rows, columns and channels of an image that is at least as large as a window; a padding scheme."""
    size = [f.s.between(1, 8) + (n - 1) * d for n, d in zip(taps, dilation, strict=True)]
    return [*size, f.s.between(1, 6)], f.s.pick(SAME, VALID)


def output_size(
    size: Sequence[int], taps: Sequence[int], stride: Sequence[int], padding: int, dilation: Sequence[int] = (1, 1)
) -> list[int]:
    if padding == SAME:
        return [-(-n // s) for n, s in zip(size, stride, strict=False)]
    return [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(size, taps, stride, dilation, strict=False)]


def conv(f: Draft) -> bytes:
    taps, dilation = f.s.pair(1, 4), f.s.pick((1, 1), (1, 1), (2, 2), (1, 2))
    stride = f.s.pair(1, 3) if dilation == (1, 1) else (1, 1)
    (*size, channels), padding = image(f, taps, dilation)
    out = f.s.between(1, 6)
    options = schema.Conv2DOptionsT()
    options.padding, options.fusedActivationFunction = padding, f.s.pick(*ACTIVATIONS)
    options.strideH, options.strideW, options.dilationHFactor, options.dilationWFactor = *stride, *dilation
    x = f.input((1, *size, channels), f.quant())
    shape = (1, *output_size(size, taps, stride, padding, dilation), out)
    return f.sum("CONV_2D", x, f.s.weights("w", (out, *taps, channels), 0), prod(taps) * channels, shape, options)


def depthwise(f: Draft) -> bytes:
    taps, dilation = f.s.pair(1, 4), f.s.pick((1, 1), (1, 1), (2, 2))
    stride = (f.s.between(1, 3),) * 2 if dilation == (1, 1) else (1, 1)
    (*size, channels), padding = image(f, taps, dilation)
    multiplier = f.s.between(1, 3)
    options = schema.DepthwiseConv2DOptionsT()
    options.padding, options.fusedActivationFunction = padding, f.s.pick(*ACTIVATIONS)
    options.strideH, options.strideW, options.dilationHFactor, options.dilationWFactor = *stride, *dilation
    options.depthMultiplier = multiplier
    x = f.input((1, *size, channels), f.quant())
    shape = (1, *output_size(size, taps, stride, padding, dilation), channels * multiplier)
    w = f.s.weights("w", (1, *taps, channels * multiplier), 3)
    return f.sum("DEPTHWISE_CONV_2D", x, w, prod(taps), shape, options)


def transpose_conv(f: Draft) -> bytes:
    taps, stride, (*size, channels), out = f.s.pair(1, 4), f.s.pair(1, 3), (*f.s.pair(1, 5), f.s.between(1, 5)), 4
    options = schema.TransposeConvOptionsT()
    options.padding, options.strideH, options.strideW = f.s.pick(SAME, VALID), *stride
    own = [n * s if options.padding == SAME else (n - 1) * s + k for n, s, k in zip(size, stride, taps, strict=True)]
    x, w = f.input((1, *size, channels), f.quant()), f.s.weights("w", (out, *taps, channels), 0)
    return f.sum("TRANSPOSE_CONV", x, w, prod(taps) * channels, (1, *own, out), options)


def batch_matmul(f: Draft) -> bytes:
    front, (n, k), c = f.s.shape(0, 1, most=3), f.s.pair(1, 4), f.s.between(1, 20)
    options = schema.BatchMatMulOptionsT()
    options.adjX, options.adjY = f.s.pick(False, True), f.s.pick(False, True)
    x, w = (f.input((1, *front, *((b, a) if turn else (a, b))), f.quant())
            for turn, a, b in ((options.adjX, n, c), (options.adjY, c, k)))  # fmt: skip
    scale = f.tensors[x].quantization.scale[0] * f.tensors[w].quantization.scale[0]
    factor = 2.0 ** f.s.pick(0, -2, -9) / 2**14 if f.s.integer == "int16" else f.s.multiplier(60 / (74 * 74 * sqrt(c)))
    y = f.quant(float(np.float32(scale / factor)))
    return f.done("BATCH_MATMUL", [x, w], (1, *front, n, k), y, options)


def fully_connected(f: Draft) -> bytes:
    columns, out = f.s.between(1, 60), f.s.between(1, 8)
    options = schema.FullyConnectedOptionsT()
    options.fusedActivationFunction = f.s.pick(*ACTIVATIONS)
    options.keepNumDims = f.s.pick(False, True)
    front = (1, f.s.between(1, 3)) if options.keepNumDims else (1,)
    x = f.input((*front, columns), f.quant())
    return f.sum("FULLY_CONNECTED", x, f.s.weights("w", (out, columns), 0), columns, (*front, out), options)


def elementwise(name: str, options_type: Any) -> Callable[[Draft], bytes]:
    def make(f: Draft) -> bytes:
        shape = f.shape()
        other = f.s.pick(shape, shape, tuple(f.s.pick(1, n) for n in shape))
        scales = [f.s.scale(), f.s.scale() * f.s.pick(1.0, 2.0**-12, 2.0**8)]
        own = max(scales) if name in ("ADD", "SUB") else prod(scales)
        y = f.quant(float(np.float32(own / f.s.multiplier(1.0 if name in ("ADD", "SUB") else 1 / 80))))
        x0 = f.input(shape, f.quant(float(np.float32(scales[0]))))
        q1 = f.quant(float(np.float32(scales[1])))
        if f.s.between(0, 3) == 0:
            low, high = limits(f.s.integer)
            data = f.s.rng.integers(low, high + 1, other).astype(f.s.integer)
            x1 = f.tensor("constant", other, f.s.integer, q1, data)
        else:
            x1 = f.input(other, q1)
        options = options_type()
        options.fusedActivationFunction = f.s.pick(*ACTIVATIONS)
        return f.done(name, [x0, x1], shape, y, options)

    return make


def leaky_relu(f: Draft) -> bytes:
    shape, q, options = f.shape(), f.quant(), schema.LeakyReluOptionsT()
    options.alpha = f.s.pick(0.1, 0.3, 0.01, 1.5)
    y = f.quant(float(np.float32(q.scale[0] / f.s.multiplier(1.0))))
    return f.done("LEAKY_RELU", [f.input(shape, q)], shape, y, options)


def mean(name: str) -> Callable[[Draft], bytes]:
    """MEAN and SUM. The dimensions that TFLM has kernels for are any; ours too."""

    def make(f: Draft) -> bytes:
        shape = (1, *f.s.shape(1, 3, most=9))
        axes = [d for d in range(1, len(shape)) if f.s.pick(True, False)] or [len(shape) - 1]
        options = schema.ReducerOptionsT()
        options.keepDims = f.s.pick(True, False)
        out = [1 if d in axes else n for d, n in enumerate(shape) if options.keepDims or d not in axes]
        q = f.quant()
        y = f.s.pick(q, f.quant(float(np.float32(q.scale[0] / f.s.multiplier(1.0)))))
        return f.done(name, [f.input(shape, q), f.list_of(axes)], out, y, options)

    return make


def pool(name: str) -> Callable[[Draft], bytes]:
    def make(f: Draft) -> bytes:
        taps, stride = f.s.pair(1, 5), f.s.pair(1, 3)
        (*size, channels), padding = image(f, taps)
        options = schema.Pool2DOptionsT()
        options.padding, options.fusedActivationFunction = padding, f.s.pick(*ACTIVATIONS)
        options.strideH, options.strideW, options.filterHeight, options.filterWidth = *stride, *taps
        q = f.quant()
        shape = (1, *output_size(size, taps, stride, padding), channels)
        return f.done(name, [f.input((1, *size, channels), q)], shape, q, options)

    return make


def softmax(f: Draft) -> bytes:
    size = f.s.pick(f.s.between(1, 30), f.s.between(30, 400))
    shape = f.s.pick((1, size), (1, f.s.between(1, 3), size), (size,))
    options = schema.SoftmaxOptionsT()
    options.beta = f.s.pick(1.0, 0.5, 2.5)
    fine = f.s.integer == "int16"
    q = f.quant(2.0 ** -f.s.between(8, 16) * float(np.float32(f.s.rng.uniform(1, 2)))) if fine else f.quant()
    widens = not fine and f.s.pick(False, False, True)
    y = Quant((2.0**-16,), (-(2**15),)) if widens else Quant(*(((2.0**-15,), (0,)) if fine else ((1 / 256,), (-128,))))
    return f.done("SOFTMAX", [f.input(shape, q)], shape, y, options, "int16" if widens else "")


def pad(name: str) -> Callable[[Draft], bytes]:
    return lambda f: _pad(f, name)


def _pad(f: Draft, name: str) -> bytes:
    shape, q = f.shape(), f.quant()
    pads = [f.s.pair(0, 3) if d or len(shape) == 1 else (0, 0) for d in range(len(shape))]
    out = [n + sum(p) for n, p in zip(shape, pads, strict=True)]
    operands = [f.input(shape, q), f.list_of(pads)]
    if name == "PADV2":
        operands.append(f.tensor("value", (1,), "int8", q, np.array([f.s.between(-128, 127)], np.int8)))
    return f.done(name, operands, out, f.s.pick(q, f.quant(q.scale[0])) if name == "PAD" else q)


def concatenation(f: Draft) -> bytes:
    shape, q = f.shape(), f.quant()
    options = schema.ConcatenationOptionsT()
    axis = f.s.between(1, len(shape) - 1) if len(shape) > 1 else 0
    options.axis = f.s.pick(axis, axis - len(shape))
    sizes = [f.s.between(1, 4) for _ in range(f.s.between(1, 3))]
    parts = [f.input((*shape[:axis], n, *shape[axis + 1 :]), q) for n in sizes]
    return f.done("CONCATENATION", parts, (*shape[:axis], sum(sizes), *shape[axis + 1 :]), q, options)


def reshape(f: Draft) -> bytes:
    shape, q = f.shape(), f.quant()
    out = f.s.pick((prod(shape),), (1, *reversed(shape)))
    options = schema.ReshapeOptionsT()
    options.newShape = list(out)
    return f.done("RESHAPE", [f.input(shape, q), f.list_of(out)], out, q, options)


def expand_dims(f: Draft) -> bytes:
    shape, q = (1, *f.s.shape(0, 2)), f.quant()
    axis = f.s.between(1, len(shape))
    operands = [f.input(shape, q), f.list_of([f.s.pick(axis, axis - len(shape) - 1)])]
    return f.done("EXPAND_DIMS", operands, (*shape[:axis], 1, *shape[axis:]), q)


def squeeze(f: Draft) -> bytes:
    """All dimensions of size 1 behind the batch."""
    shape, q = (1, *(f.s.pick(1, n) for n in f.s.shape(0, 2)), 1), f.quant()
    ones = [d for d, n in enumerate(shape) if n == 1 and d]
    options = schema.SqueezeOptionsT()
    options.squeezeDims = ones
    out = [n for d, n in enumerate(shape) if d not in options.squeezeDims]
    return f.done("SQUEEZE", [f.input(shape, q)], out, q, options)


def transpose(f: Draft) -> bytes:
    shape, q = f.shape(), f.quant()
    perm = [0, *f.s.draw(st.permutations(range(1, len(shape))))]
    return f.done("TRANSPOSE", [f.input(shape, q), f.list_of(perm)], [shape[p] for p in perm], q)


def activation(name: str) -> Callable[[Draft], bytes]:
    def make(f: Draft) -> bytes:
        """With another scale than the operand's, too: TFLM's RELU rescales, its RELU6 only clamps."""
        shape, q = f.shape(), f.quant()
        y = f.s.pick(q, f.quant(float(np.float32(q.scale[0] / f.s.multiplier(1.0)))))
        return f.done(name, [f.input(shape, q)], shape, y)

    return make


def quantize(f: Draft) -> bytes:
    shape = f.shape()
    return f.done("QUANTIZE", [f.input(shape, None, "float32")], shape, f.quant())


def requantize(f: Draft) -> bytes:
    shape, q = f.shape(), f.quant()
    y = f.quant(float(np.float32(q.scale[0] / f.s.multiplier(1.0))))
    return f.done("QUANTIZE", [f.input(shape, q)], shape, y)


def dequantize(f: Draft) -> bytes:
    shape = f.shape()
    return f.done("DEQUANTIZE", [f.input(shape, f.quant())], shape, None, None, "float32")


def cast(f: Draft) -> bytes:
    shape = f.shape()
    source, to = f.s.pick(("float32", "int32"), ("int32", "float32"))
    options = schema.CastOptionsT()
    options.inDataType, options.outDataType = TYPES[source], TYPES[to]
    return f.done("CAST", [f.input(shape, None, source)], shape, None, options, to)


def gather(f: Draft) -> bytes:
    """Rows are at least as many as the largest index that tests draw."""
    q, columns, indices = f.quant(), f.s.shape(0, 2), (1, f.s.between(1, 5))
    data = f.s.rng.integers(-128, 128, (INDEX_ROWS, *columns)).astype(np.int8)
    table = f.tensor("table", data.shape, "int8", q, data)
    options = schema.GatherOptionsT()
    return f.done("GATHER", [table, f.input(indices, None, "int32")], (*indices, *columns), q, options)


INDEX_ROWS = 12
OPERATORS: dict[str, Callable[[Draft], bytes]] = {
    "ADD": elementwise("ADD", schema.AddOptionsT),
    "ADD int16": elementwise("ADD", schema.AddOptionsT),
    "AVERAGE_POOL_2D": pool("AVERAGE_POOL_2D"),
    "BATCH_MATMUL": batch_matmul,
    "BATCH_MATMUL int16": batch_matmul,
    "CAST": cast,
    "CONCATENATION": concatenation,
    "AVERAGE_POOL_2D int16": pool("AVERAGE_POOL_2D"),
    "CONV_2D": conv,
    "CONV_2D int16": conv,
    "DEPTHWISE_CONV_2D": depthwise,
    "DEPTHWISE_CONV_2D int16": depthwise,
    "DEQUANTIZE": dequantize,
    "DEQUANTIZE int16": dequantize,
    "EXPAND_DIMS": expand_dims,
    "FULLY_CONNECTED": fully_connected,
    "FULLY_CONNECTED int16": fully_connected,
    "GATHER": gather,
    "MAX_POOL_2D": pool("MAX_POOL_2D"),
    "MAX_POOL_2D int16": pool("MAX_POOL_2D"),
    "LEAKY_RELU int16": leaky_relu,
    "MEAN": mean("MEAN"),
    "MEAN int16": mean("MEAN"),
    "MUL": elementwise("MUL", schema.MulOptionsT),
    "MUL int16": elementwise("MUL", schema.MulOptionsT),
    "PAD": pad("PAD"),
    "PADV2": pad("PADV2"),
    "QUANTIZE": quantize,
    "QUANTIZE from float int16": quantize,
    "QUANTIZE int8": requantize,
    "QUANTIZE int16": requantize,
    "RELU": activation("RELU"),
    "RELU int16": activation("RELU"),
    "RELU6": activation("RELU6"),
    "RELU6 int16": activation("RELU6"),
    "RESHAPE": reshape,
    "SOFTMAX": softmax,
    "SOFTMAX int16": softmax,
    "SQUEEZE": squeeze,
    "SUB int16": elementwise("SUB", schema.SubOptionsT),
    "TRANSPOSE": transpose,
    "TRANSPOSE_CONV": transpose_conv,
    "TRANSPOSE_CONV int16": transpose_conv,
}


@st.composite
def tflite_files(draw: st.DrawFn, operator: str) -> bytes:
    """A file of this one of OPERATORS."""
    integer = "int16" if operator.endswith("int16") else "int8"
    return OPERATORS[operator](Draft(draw(sources((("tflite", False, integer),)))))
