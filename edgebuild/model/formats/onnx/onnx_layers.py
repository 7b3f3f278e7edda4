"""A node of an ONNX file, and readers of sums of products, windows, normalisations, elementwise ops and reductions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import onnx

from ...ir import Array, Quant, Tensor
from ...ops import functions, spatial
from ...ops.base import is_float
from ...ops.pointwise import attributes
from .. import compose
from ..builder import GraphBuilder
from ..channels_first import ChannelsFirstNode, convolution, pool, transpose_convolution

TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float32",
    11: "float32", 12: "uint32", 13: "uint64", 16: "float32",
}  # fmt: skip
# Type in the file -> type in the graph, and the number subtracted from values and zero points.
SIGNED = {
    "int8": ("int8", 0), "uint8": ("int8", 128), "int16": ("int16", 0), "uint16": ("int16", 2**15),
    "int32": ("int32", 0),
}  # fmt: skip


class OnnxNode(ChannelsFirstNode):
    bound = ": --bind {}=... makes one of it"

    def __init__(self, builder: GraphBuilder, proto: onnx.NodeProto, opset: int) -> None:
        super().__init__(builder, proto.name or proto.output[0], proto.op_type, proto.input, proto.output)
        self.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
        self.proto, self.opset = proto, opset

    def attr(self, name: str, default: Any) -> Any:
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def floats(self, name: str) -> Array:
        """An attribute with a list of numbers as float32; empty if it is missing."""
        return np.array(self.attr(name, []), np.float32)

    def stored(self, t: Tensor) -> Array:
        """Values of an unquantised constant as activations of its type are stored: uint8 less 128."""
        return np.asarray(t.data, np.int64) - SIGNED[t.dtype][1]

    def dtype_of(self, code: int) -> str:
        if code not in TYPES:
            raise self.error(f"type {onnx.TensorProto.DataType.Name(code)}", "use FLOAT, INT32 or INT8")
        return TYPES[code]


def _plane(node: Any, name: str, default: int, dims: int, ends: int = 1) -> tuple[int, ...]:
    """An attribute with a number per spatial dimension, extended to two: a 1-D signal is an image of one row."""
    numbers = listed(node, name, default, dims, ends)
    return tuple(numbers) if dims == 2 else tuple(n for end in numbers for n in (default, end))


def listed(node: Any, name: str, default: int, dims: int, ends: int = 1) -> list[int]:
    """An attribute with a number for each end of each spatial dimension. Raises EdgebuildError for another count."""
    values = [int(n) for n in node.attr(name, [default] * dims * ends)]
    if len(values) != dims * ends:
        raise node.error(f"{name} {values} for {dims} spatial dimensions", f"give {dims * ends} numbers")
    return values


def _dims(node: Any, window: Sequence[int]) -> int:
    """Number of spatial dimensions of the node's window. Raises EdgebuildError if kernel_shape is not the weights'."""
    stated = tuple(node.attr("kernel_shape", window))
    if stated != tuple(window):
        raise node.error(f"kernel_shape {list(stated)} for weights of {list(window)}", "give both the same size")
    if len(window) not in (1, 2):
        raise node.error(f"{len(window)}-D window", "1-D and 2-D windows are supported")
    return len(window)


def window_of(node: Any, window: Sequence[int]) -> dict[str, Any]:
    """Stride, dilation and padding of a windowed ONNX node as attributes, with auto_pad resolved."""
    dims = _dims(node, window)
    stride, dilation = _plane(node, "strides", 1, dims), _plane(node, "dilations", 1, dims)
    auto, size, window = node.attr("auto_pad", "NOTSET"), node.image_size(), (1, *window)[-2:]
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        top, left, bottom, right = compose.same_pad(size, window, stride, dilation)
        pad = (top, left, bottom, right) if auto == "SAME_UPPER" else (bottom, right, top, left)
    else:
        top, left, bottom, right = _plane(node, "pads", 0, dims, 2) if auto == "NOTSET" else (0, 0, 0, 0)
        pad = (top, left, bottom, right)
    return {"stride": stride, "dilation": dilation, "pad": pad, "clamp": (None, None)}


def spread_of(node: Any, window: Sequence[int]) -> dict[str, Any]:
    """Stride, dilation, padding and output size of a ConvTranspose node, by its specification."""
    dims = _dims(node, window)
    stride, dilation = _plane(node, "strides", 1, dims), _plane(node, "dilations", 1, dims)
    sizes = zip(node.image_size()[-dims:], window, stride[-dims:], dilation[-dims:], strict=True)
    spread = [spread_size(node, d, *side, dims) for d, side in enumerate(sizes)]
    pad, size = zip(*[(0, 1)] * (2 - dims), *spread, strict=True)
    return {"stride": stride, "dilation": dilation, "pad": pad, "size": size}


def spread_size(node: Any, d: int, size: int, taps: int, stride: int, dilation: int, dims: int) -> tuple[int, int]:
    """Leading padding, and size of the result, of a ConvTranspose node along dimension d of `dims`."""
    auto, wanted = node.attr("auto_pad", "NOTSET"), node.attr("output_shape", [])[-dims:]
    full = stride * (size - 1) + listed(node, "output_padding", 0, dims)[d] + (taps - 1) * dilation + 1
    if not wanted and not auto.startswith("SAME"):
        pads = listed(node, "pads", 0, dims, 2) if auto == "NOTSET" else [0] * 2 * dims
        return pads[d], full - pads[d] - pads[dims + d]
    out = wanted[d] if wanted else min(full, size * stride)  # if the stride exceeds the window, there is no overlap
    spare = max(0, full - out)
    return (spare // 2 if auto == "SAME_UPPER" else spare - spare // 2), out


MATRICES = "Gemm takes matrices: export MatMul and Add for products of more dimensions"


def read_gemm(node: Any) -> None:
    """Read Gemm, alpha x w + beta b. Factors are multiplied into constants; computed operands get a mul.

    With computed weights it is a product of two activations.
    """
    if max(len(node.tensor(at).shape) for at in (0, 1)) > 2:
        raise node.error(f"operands of shapes {node.tensor(0).shape} and {node.tensor(1).shape}", MATRICES)
    x = node.turned(node.inputs[0], (1, 0)) if node.attr("transA", 0) else node.inputs[0]
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    turned = bool(node.attr("transB", 0))
    w = node.scaled_along(node.tensor(1), 0 if turned else 1)
    channels = w.shape[0 if turned else 1]
    in_row = not bias or (node.tensor(2).constant and node.tensor(2).elements in (1, channels))
    if w.constant and in_row:
        weights = node.scaled(node.permuted(w, (0, 1) if turned else (1, 0)), node.attr("alpha", 1.0))
        operands = [node.scaled(node.flat_bias(node.tensor(2), channels), node.attr("beta", 1.0))] if bias else []
        node.emit("dense", [x, weights, *operands], clamp=compose.OPEN)
        return
    product = node.before("product") if bias else node
    if w.constant:
        weights = node.scaled(product.permuted(w, (0, 1) if turned else (1, 0)), node.attr("alpha", 1.0))
        product.emit("dense", [x, weights], clamp=compose.OPEN)
    else:
        compose.matmul(product, _times(node, x, node.attr("alpha", 1.0)), node.inputs[1], turned, compose.OPEN)
    if bias:
        node.emit("add", [product.outputs[0], _times(node, bias, node.attr("beta", 1.0))], clamp=compose.OPEN)


def _times(node: Any, name: str, factor: float) -> str:
    """Name of a float tensor times a number."""
    if node.builder.tensors[name].constant:
        return str(node.scaled(name, factor))
    return name if factor == 1.0 else str(node.inner("mul", [name, node.array(np.float32(factor))], clamp=compose.OPEN))


OUTER = "ABCDEFGH"  # letters for the dimensions of an ellipsis
Operand = tuple[str, str]  # letters of its dimensions, name


def read_einsum(node: Any) -> None:
    terms, out = _einsum_terms(node)
    sizes: dict[str, int] = {}
    for position, letters in enumerate(terms):
        for letter, size in zip(letters, node.tensor(position).shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise node.error(f"'{letter}' is {sizes[letter]} and {size}", "sizes must be equal; none is broadcast")
    names = list(node.inputs)
    for position, letters in enumerate(terms):
        letters, names[position] = _diagonal(node, letters, names[position])
        elsewhere = {*out, *"".join(terms[:position] + terms[position + 1 :])}
        terms[position], names[position] = _einsum_sum(node, names[position], letters, elsewhere)
    operands = list(zip(terms, names, strict=True))
    # Operands are contracted in pairs, the smallest product first. Kernels need the constant operand second.
    while len(operands) > 1:
        first, second, rest = _einsum_pair(node, operands, out, sizes)
        if node.builder.tensors[first[1]].constant:
            first, second = second, first
        name, letters = _einsum_product(
            node, [first[1], second[1]], [first[0], second[0]], _einsum_wanted(rest, out), sizes
        )
        operands = [(letters, node.reshaped(name, tuple(sizes[c] for c in letters)) if rest else name), *rest]
    letters, name = operands[0]
    name, perm = node.reshaped(name, tuple(sizes[c] for c in letters)), tuple(letters.index(c) for c in out)
    if perm == tuple(range(len(perm))):
        node.emit("reshape", [name], shape=tuple(sizes[c] for c in out))
    else:
        node.emit("transpose", [name], perm=perm)


def _diagonal(node: Any, letters: str, name: str) -> Operand:
    """Letters and name of an operand after taking diagonals, so that each letter occurs once."""
    while letter := next((c for c in letters if letters.count(c) > 1), ""):
        first, second = letters.index(letter), letters.rindex(letter)
        rest = [at for at in range(len(letters)) if at not in (first, second)]
        view = node.turned(name, (first, second, *rest))
        size, _, *others = node.builder.tensors[view].shape
        run = prod(others)  # the diagonal of n x n is the first column of n x (n + 1)
        rows = node.inner("pad", [node.reshaped(view, (size * size, run))], pads=((0, size), (0, 0)), value=0)
        column = node.reshaped(rows, (size, size + 1, run))
        column = node.inner("slice", [column], begin=(0, 0, 0), size=(size, 1, run))
        name = node.reshaped(column, (size, *others))
        letters = letter + "".join(letters[at] for at in rest)
    return letters, name


def _einsum_pair(
    node: Any, operands: list[Operand], out: str, sizes: dict[str, int]
) -> tuple[Operand, Operand, list[Operand]]:
    """The pair of operands, not both constant, with the smallest product, and the remaining operands."""

    def size(places: tuple[int, int]) -> int:
        rest = [x for i, x in enumerate(operands) if i not in places]
        return prod(sizes[c] for c in {*operands[places[0]][0], *operands[places[1]][0]} & {*_einsum_wanted(rest, out)})

    computed = [not node.builder.tensors[name].constant for _, name in operands]
    pairs = [pair for pair in combinations(range(len(operands)), 2) if any(computed[i] for i in pair)]
    i, j = min(pairs or [(0, 1)], key=size)
    return operands[i], operands[j], operands[:i] + operands[i + 1 : j] + operands[j + 1 :]


def _einsum_wanted(rest: list[Operand], out: str) -> str:
    return out + "".join(letters for letters, _ in rest)


def _einsum_terms(node: Any) -> tuple[list[str], str]:
    """Letters of the operands' dimensions and of the result's. Raises EdgebuildError for a malformed equation."""
    left, arrow, out = node.attr("equation", "").replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(node.inputs):
        raise node.error(f"equation '{left}' of {len(node.inputs)} operands", "one term for each operand is expected")
    wide = 0
    for position, letters in enumerate(terms):
        rest = len(node.tensor(position).shape) - len(letters.replace("...", ""))
        if "..." in letters:
            wide = max(wide, rest)
            terms[position] = letters.replace("...", OUTER[wide - rest : wide])
        if len(terms[position]) != len(node.tensor(position).shape):
            raise node.error(
                f"'{letters}' for shape {node.tensor(position).shape}", "one letter a dimension is expected"
            )
    every = "".join(terms)
    if not arrow:
        out = OUTER[:wide] + "".join(sorted(c for c in set(every) if every.count(c) == 1 and c not in OUTER))
    return terms, out.replace("...", OUTER[:wide])


def _einsum_sum(node: Any, name: str, letters: str, wanted: set[str]) -> tuple[str, str]:
    """Sum an operand over the dimensions that are not `wanted` elsewhere. Returns its letters and its new name."""
    axes = tuple(d for d, letter in enumerate(letters) if letter not in wanted)
    if not axes:
        return letters, name
    return "".join(c for c in letters if c in wanted), node.inner("reduce_sum", [name], axes=axes)


def _einsum_product(node: Any, names: list[str], terms: list[str], out: str, sizes: dict[str, int]) -> tuple[str, str]:
    """Contract two operands over their common letters that are not in `out`. Returns name and letters."""
    a, b = terms
    batch = "".join(c for c in a if c in b and c in out)
    inner = "".join(c for c in a if c in b and c not in out)
    left, right = ("".join(c for c in t if c not in batch + inner) for t in terms)

    def size(letters: str) -> int:
        return prod(sizes[c] for c in letters)

    def matrix(name: str, letters: str, order: str) -> str:
        perm = tuple(letters.index(c) for c in order)
        return name if perm == tuple(range(len(perm))) else str(node.turned(name, perm))

    rows = matrix(names[0], a, batch + left + inner)
    if not batch and node.builder.tensors[names[1]].constant:
        flat = node.reshaped(rows, (size(left), size(inner)))
        columns = node.reshaped(matrix(names[1], b, right + inner), (size(right), size(inner)))
        return node.inner("dense", [flat, columns], clamp=compose.OPEN), left + right
    turned = b != batch + inner + right
    columns = matrix(names[1], b, batch + (right + inner if turned else inner + right))
    second = (size(right), size(inner)) if turned else (size(inner), size(right))
    operands = [
        node.reshaped(rows, (1, size(batch), size(left), size(inner))),
        node.reshaped(columns, (1, size(batch), *second)),
    ]
    return node.inner("batch_matmul", operands, turned=turned, clamp=compose.OPEN), batch + left + right


def read_conv2d(node: Any) -> None:
    w = node.constant(1, "weights")
    attrs, bias = window_of(node, w.shape[2:]), [name for name in node.inputs[2:3] if name]
    convolution(node, w, bias, node.attr("group", 1), attrs)


def read_conv_transpose(node: Any) -> None:
    w = node.constant(1, "weights")
    bias = node.constant(2, "bias") if node.has(2) else None
    transpose_convolution(node, w, bias, node.attr("group", 1), spread_of(node, w.shape[2:]))


def read_pool(node: Any, kind: str) -> None:
    window = tuple(node.attr("kernel_shape", []))
    attrs = window_of(node, window)
    if kind == "avg_pool2d":
        attrs["count_include_pad"] = bool(node.attr("count_include_pad", 0))
    ceil = node.attr("ceil_mode", 0) and not node.attr("auto_pad", "NOTSET").startswith("SAME")
    pool(node, kind, window, attrs, ceil)


ONE_PIXEL: dict[str, Any] = {"stride": (1, 1), "dilation": (1, 1), "pad": (0, 0, 0, 0), "groups": 1}


def read_dynamic_quantize(node: Any) -> None:
    """Read DynamicQuantizeLinear: result, scale and zero point, the latter two if used."""
    x = node.inputs[0]
    axes = tuple(range(len(node.tensor(0).shape)))
    ends = [node.inner(kind, [x], axes=axes) for kind in ("reduce_min", "reduce_max")]
    step = node.apply("step_of_range", *ends)
    zero = node.apply("zero_of_range", ends[0], step)
    node.emit_function("steps_from_zero", x, step, zero)
    names = [*node.outputs, "", ""]
    if names[1]:
        node.emit("reshape", [step], output=1, shape=())
    if names[2]:
        node.emit("cast", [zero], output=2, to="uint8")


def _integer_weights(node: Any, axis: int) -> Tensor:
    """Constant weights with their zero points subtracted, which are along `axis` if there are several."""
    w = node.constant(1, "weights")
    zeros = node.given(3, "zero point of the weights")
    if zeros is None or not zeros.any():
        return w
    zeros = np.ravel(zeros).astype(int)
    quant = Quant((1.0,) * zeros.size, tuple(int(z) for z in zeros), axis if zeros.size > 1 else None)
    return spatial.centred(Tensor(f"{w.name}@centred", w.shape, w.dtype, quant, w.data))


def _integer_zero(node: Any) -> str:
    """Name of the zero point of operand 0; of a constant 0 if the node has none."""
    if node.has(2):
        return str(node.inputs[2])
    return str(node.array(np.zeros((), node.tensor(0).dtype)))


def read_matmul_integer(node: Any) -> None:
    w = _integer_weights(node, 1)
    if w.data is None or len(w.shape) != 2:
        raise node.error(f"weights of shape {w.shape}", "a constant matrix is supported")
    x, columns = node.tensor(0), w.shape[1]
    rows = node.reshaped(node.inputs[0], (1, 1, x.elements // w.shape[0], w.shape[0]))
    turned = node.array(w.data.T[:, None, None, :])
    node.emit_as("integer_sums", [rows, turned, _integer_zero(node)], (*x.shape[:-1], columns), **ONE_PIXEL, to="int32")


def read_conv_integer(node: Any) -> None:
    w = _integer_weights(node, 0)
    attrs = window_of(node, w.shape[2:])
    turned = np.moveaxis(w.array if len(w.shape) == 4 else w.array[:, :, None], 1, 3)
    del attrs["clamp"]
    operands = [node.nhwc(), node.array(turned), _integer_zero(node)]
    node.emit_nchw("integer_sums", operands, groups=node.attr("group", 1), **attrs, to="int32")


def read_softmax(node: Any) -> None:
    """Read Softmax. Before opset 13 the dimensions from `axis` on are flattened."""
    x = node.tensor(0)
    axis = compose.axis_of(node, node.attr("axis", 1 if node.opset < 13 else -1), len(x.shape))
    if node.opset < 13:
        rows = node.reshaped(node.inputs[0], (prod(x.shape[:axis]), prod(x.shape[axis:])))
        return node.emit_as("softmax", [rows], x.shape, beta=1.0)
    compose.along_last(node, axis, "softmax", beta=1.0)


def read_instance_normalization(node: Any) -> None:
    """Read InstanceNormalization: normalise each channel of each sample."""
    x = node.tensor(0)
    result, *_ = compose.normalised(node, x.name, tuple(range(2, len(x.shape))), node.attr("epsilon", 1e-5))
    channels, others = x.shape[1], len(x.shape) - 2
    compose.scaled(node, result, *(compose.by_channel(node, node.inputs[i], channels, others) for i in (1, 2)))


def read_layer_normalization(node: Any) -> None:
    """Read LayerNormalization over all dimensions from an axis on. Outputs 1 and 2: mean, 1 / deviation."""
    rank = len(node.tensor(0).shape)
    axes = tuple(range(compose.axis_of(node, node.attr("axis", -1), rank), rank))
    compose.layer_normalised(node, axes, [*node.inputs[1:], "", ""], node.attr("epsilon", 1e-5))


def read_mean_variance_normalization(node: Any) -> None:
    x = node.tensor(0)
    axes = tuple(sorted({compose.axis_of(node, axis, len(x.shape)) for axis in node.attr("axes", [0, 2, 3])}))
    _, rest, variance = compose.centred(node, x.name, axes)
    deviation = compose.plus(node, node.apply("sqrt", variance), compose.TINY)
    node.emit_function("quotient", rest, deviation)


def read_local_response(node: Any) -> None:
    """Read LRN: a window of `size` channels, dimension 1; alpha is divided by `size`."""
    size = node.attr("size", 0)
    if size < 1:
        raise node.error(f"size {size}", "it must be at least 1")
    alpha = node.attr("alpha", 1e-4) / size
    compose.local_response(node, 1, (size - 1) // 2, size // 2, node.attr("bias", 1.0), alpha, node.attr("beta", 0.75))


TAPS = {"nearest": 1, "bilinear": 2, "linear": 2, "bicubic": 4, "cubic": 4}
PADDINGS = ("zeros", "border", "reflection")


def read_grid_sample(node: Any) -> None:
    mode, padding = node.attr("mode", "linear"), node.attr("padding_mode", "zeros")
    x, grid = node.tensor(0), node.tensor(1)
    if mode not in TAPS or padding not in PADDINGS:
        raise node.error(f"mode {mode}, padding {padding}", f"supported: {', '.join(TAPS)}; {', '.join(PADDINGS)}")
    if len(x.shape) != 4 or len(grid.shape) != 4 or grid.shape[0] != x.shape[0] or grid.shape[3] != 2:
        raise node.error(f"an image of shape {x.shape}, places of shape {grid.shape}",
                         "supported: N x C x H x W and N x rows x columns x 2")  # fmt: skip
    corners = bool(node.attr("align_corners", 0))
    attrs = {"taps": TAPS[mode], "corners": corners, "padding": padding}
    node.emit_nchw("grid_sample", [node.nhwc(), node.inputs[1]], **attrs)


def read_affine_grid(node: Any) -> None:
    """Read AffineGrid: coordinates of all pixels of an image of constant size, times a matrix per image."""
    theta, size = node.tensor(0), node.numbers(1, "size")
    sides, corners = size[2:], bool(node.attr("align_corners", 0))
    rank = len(sides)
    if rank not in (2, 3) or theta.shape != (size[0], rank, rank + 1) or min(size) < 1 or min(sides) < 1 + corners:
        raise node.error(f"matrices of shape {theta.shape} for an image of {size}",
                         "supported: N x 2 x 3 for N x C x H x W, N x 3 x 4 for N x C x D x H x W")  # fmt: skip
    lines = [np.linspace(-1, 1, n) if corners else (2 * np.arange(n) + 1) / n - 1 for n in sides]
    places = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(sides)], axis=-1).reshape(-1, rank + 1)
    rows = node.reshaped(node.inputs[0], (size[0] * rank, rank + 1))
    product = node.inner("dense", [rows, node.array(places.astype(np.float32))], clamp=compose.OPEN)
    turned = node.turned(node.reshaped(product, (size[0], rank, len(places))), (0, 2, 1))
    node.emit("reshape", [turned], shape=(size[0], *sides, rank))


# Readers of ONNX operators that compute element by element, or reduce dimensions.

# Elementwise functions whose name is the operator's in snake case, and then those with another name.
OF_ONE_NAME = (
    "Abs Neg Sign Floor Ceil Round Reciprocal Sqrt Exp Log Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh "
    "Tanh Sigmoid HardSigmoid HardSwish LeakyRelu ThresholdedRelu Elu Selu Celu Softplus Softsign Swish Mish Shrink "
    "Not Equal Greater Less And Or Xor Where"
)
FUNCTIONS_OF = {name: re.sub(r"\B([A-Z])", r"_\1", name).lower() for name in OF_ONE_NAME.split()} | {
    "IsNaN": "is_nan", "Sub": "difference", "Div": "quotient", "PRelu": "prelu", "GreaterOrEqual": "greater_equal",
    "LessOrEqual": "less_equal", "BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor",
    "BitwiseNot": "bit_not",
}  # fmt: skip


def read_function(node: Any, function: str) -> None:
    """Read an elementwise function, whose parameters are named like the node's attributes."""
    row = functions.FUNCTIONS[function]
    to = node.tensor(1).dtype if row.condition else ""
    node.emit_function(function, to=to, **{n: node.attr(n, v) for n, v in row.parameters.items()})


def read_mod(node: Any) -> None:
    signed = "remainder" if node.attr("fmod", 0) else "mod"
    node.emit_function("unsigned_remainder" if node.tensor(0).dtype == "uint8" else signed)


def read_pow(node: Any) -> None:
    """Read Pow. The result has the type of the base. Integers to real exponents are computed in float32.

    Exponents that are whole constants are converted to the type of the base, which makes powers of integers exact.
    """
    base, exponent = node.tensor(0), node.tensor(1)
    power = node.inputs[1]
    whole = exponent.data is not None and all(float(n).is_integer() for n in exponent.data.flat)
    if base.quant is None and base.dtype != "float32" and exponent.dtype == "float32" and not whole:
        real = node.apply("power", node.inner("cast", [node.inputs[0]], to="float32"), power)
        return node.emit("cast", [real], to=base.dtype)
    if exponent.data is not None and exponent.quant is not None:
        power = node.array(node.real(exponent))
    elif exponent.dtype != base.dtype:
        computed = exponent.data is None
        power = node.inner("cast", [power], to=base.dtype) if computed else node.array(exponent.data, like=base)
    node.emit_function("power", node.inputs[0], power)


def read_chain(node: Any, function: str) -> None:
    """Read Min, Max, Sum of several operands: one op for each operand after the first."""
    node.chained(node.inputs, "pointwise", True, **attributes(function))


def read_mean(node: Any) -> None:
    """Read Mean: the sum, divided by the number of operands."""
    total = node.chained(node.inputs, "pointwise", False, **attributes("sum"))
    count = node.array(np.float32(len(node.inputs)))
    node.emit_function("quotient", total, count)


def read_is_inf(node: Any) -> None:
    """Read IsInf: compare with the largest finite number, for one or both signs; for no sign, x > x is never true."""
    signs = bool(node.attr("detect_negative", 1)), bool(node.attr("detect_positive", 1))
    largest = node.array(np.finfo(np.float32).max * np.float32(1 if signs[1] else -1))
    x = node.apply("abs", node.inputs[0]) if all(signs) else node.inputs[0]
    node.emit_function("greater" if signs[1] else "less", x, largest if any(signs) else x)


def read_cast_like(node: Any) -> None:
    """Read CastLike: cast to the type of operand 1, which is float if that is quantised."""
    x, like = node.tensor(0), node.tensor(1)
    to = "float32" if like.quant is not None else like.dtype
    if x.data is not None and x.quant is None:
        node.builder.tensors[node.outputs[0]] = replace(x, name=node.outputs[0], dtype=to, data=x.data.astype(to))
        return
    if x.dtype == to:
        return node.emit("reshape", node.inputs[:1], shape=x.shape)
    node.emit("cast", node.inputs[:1], to=to)


LARGEST = float(np.finfo(np.float32).max)
BOUNDS = ((1, "maximum", "min"), (2, "minimum", "max"))  # of Clip: operand, function, name


def _ends_of_steps(node: Any, x: Tensor) -> tuple[float | None, ...] | None:
    """Dequantised integer bounds of a Clip; None if a clamp op cannot have them.

    If the bounds cross, all values become the upper one, as in the standard.
    """
    assert x.quant is not None
    if x.constant or not x.quant.per_tensor or x.dtype not in ("int8", "int16"):
        return None
    low, high = (int(np.ravel(node.constant(i, what).data)[0]) if node.has(i) else None for i, _, what in BOUNDS)
    if low is not None and high is not None:
        low = min(low, high)
    ends = tuple(None if b is None else (b - x.quant.zero_point[0]) * x.quant.scale[0] for b in (low, high))
    return ends if all(end is None or abs(end) <= LARGEST for end in ends) else None


def read_clip(node: Any) -> None:
    """Read Clip. Bounds are attributes up to opset 10 and operands from 11 on.

    A missing bound of floats is the largest finite number, as in the standard; an infinite bound is none.
    """

    def bound(position: int, name: str) -> float | None:
        value = node.attr(name, None)
        if node.has(position):
            value = np.ravel(node.real(node.constant(position, name)))[0]
        return None if value is None else float(value)

    x, name = node.tensor(0), node.inputs[0]
    operands = [(i, function, what) for i, function, what in BOUNDS if node.has(i)]
    if x.quant is not None:  # bounds are integers of the operand's scale
        ends = _ends_of_steps(node, x)
        if ends is not None:
            return node.add("clamp", node.inputs[:1], replace(x, name=node.outputs[0], origin=None), {"clamp": ends})
        for i, function, what in operands:
            name = node.apply(function, name, node.array(np.ravel(node.constant(i, what).data)[:1], like=x))
    elif is_float(x) and any(t.quant is None and not t.constant for t in (node.tensor(i) for i, *_ in operands)):
        for i, function, _ in operands:  # computed bounds, such as a spectrogram's largest value less 80 dB
            name = node.apply(function, name, node.inputs[i])
    else:
        low, high = bound(1, "min"), bound(2, "max")
        if is_float(x):
            low, high = (LARGEST * sign if v is None else v for v, sign in ((low, -1), (high, 1)))
            if low <= high and low < np.inf and high > -np.inf:
                return node.emit("clamp", node.inputs[:1], clamp=tuple(None if np.isinf(v) else v for v in (low, high)))
        else:
            low, high = (None if v is None or np.isinf(v) else v for v in (low, high))
        for (_, function, _), value in zip(BOUNDS, (low, high), strict=True):
            if value is not None:  # integers, and crossed bounds, of which the upper one takes effect
                name = node.apply(function, name, node.array(value, like=x))
    node.emit("reshape", [name], shape=x.shape)


def keeps_dims(node: Any) -> bool:
    """The attribute keepdims. Raises EdgebuildError unless 0 or 1, because tools disagree on other values."""
    keep = node.attr("keepdims", 1)
    if keep not in (0, 1):
        raise node.error(f"keepdims {keep}", "it must be 0 or 1")
    return bool(keep)


def read_axes(node: Any) -> tuple[int, ...] | None:
    """Axes of a reduction, an attribute in older opsets and an operand in newer ones; None: no reduction."""
    given = node.has(1)
    listed = node.constant(1, "axes").data if given else node.attr("axes", None)
    if (listed is None or np.size(listed) == 0) and node.attr("noop_with_empty_axes", 0):
        return None
    return compose.axes_of(node, listed, len(node.tensor(0).shape))


def read_reduction(node: Any, kind: str, before: str = "", after: str = "") -> None:
    """Read a reduction, with elementwise functions `before` and `after` it."""
    axes, name = read_axes(node), node.inputs[0]
    if before:
        name = node.apply(before, name)
    keep = keeps_dims(node)
    x = node.tensor(0)
    if axes is None:
        return node.emit_function(after, name) if after else node.emit("reshape", [name], shape=x.shape)
    shape = compose.kept_shape(x, axes, keep)
    if not axes:
        axes, shape = (0,), ()
        name = node.reshaped(name, (1,))
    if not after:
        return node.emit_as(kind, [name], shape, axes=axes)
    total = node.inner(kind, [name], axes=axes)
    node.emit_function(after, node.reshaped(total, shape))


def read_global_maximum(node: Any) -> None:
    """Read GlobalMaxPool: the maximum over all spatial dimensions, which become 1."""
    x = node.tensor(0)
    axes = tuple(range(2, len(x.shape)))
    node.emit_as("reduce_max", node.inputs[:1], compose.kept_shape(x, axes, True), axes=axes)


def read_log_sum_exp(node: Any) -> None:
    """Read ReduceLogSumExp. The largest element is subtracted first to avoid overflow."""
    x, axes = node.tensor(0), read_axes(node)
    if axes is None:
        return node.emit("reshape", node.inputs[:1], shape=x.shape)
    largest = node.reshaped(node.inner("reduce_max", node.inputs[:1], axes=axes), compose.kept_shape(x, axes, True))
    largest = node.inner("clamp", [largest], clamp=(-LARGEST, LARGEST))  # the difference of two infinities is NaN
    less = node.apply("difference", node.inputs[0], largest)
    powers = node.apply("exp", less)
    total = node.apply("log", node.inner("reduce_sum", [powers], axes=axes))
    shape = compose.kept_shape(x, axes, keeps_dims(node))
    node.emit_function("sum", node.reshaped(total, shape), node.reshaped(largest, shape))


def read_lp_normalization(node: Any) -> None:
    """Read LpNormalization: x / |x| along one axis, 0 where the norm is 0."""
    axes, power = (compose.axis_of(node, node.attr("axis", -1), len(node.tensor(0).shape)),), node.attr("p", 2)
    before, after = ("abs", "") if power == 1 else ("square", "sqrt")
    compose.over_norm(node, axes, before, after, 0.0)


def read_arg(node: Any, largest: bool) -> None:
    x = node.tensor(0)
    axis = compose.axis_of(node, node.attr("axis", 0), len(x.shape))
    shape = compose.kept_shape(x, (axis,), keeps_dims(node))
    last = bool(node.attr("select_last_index", 0))
    node.emit_as("arg", node.inputs[:1], shape, axis=axis, largest=largest, last=last, to="int64")


def read_topk(node: Any) -> None:
    """Read TopK: one op for values and one for indices, each only if used."""
    x = node.tensor(0)
    axis = compose.axis_of(node, node.attr("axis", -1), len(x.shape))
    k = node.numbers(1, "k")[0] if len(node.inputs) > 1 else node.attr("k", 1)
    if not 1 <= k <= x.shape[axis]:
        raise node.error(f"k {k} of {x.shape[axis]}")
    common = {"axis": axis, "k": k, "largest": bool(node.attr("largest", 1))}
    for output, indices in enumerate((False, True)):
        if output < len(node.outputs) and node.outputs[output]:
            to = "int64" if indices else x.dtype
            node.emit("topk", node.inputs[:1], output=output, **common, indices=indices, to=to)


def read_cumsum(node: Any, product: bool = False) -> None:
    if product and node.tensor(0).quant is not None:
        raise node.error("products of quantised values", "dequantise them first")
    compose.running_sum(node, bool(node.attr("exclusive", 0)), bool(node.attr("reverse", 0)), product)
