"""Operators of ONNX that networks are drawn from. With the layers, all names that our readers accept.

Operators that need nothing but operands are taken from the registry: the standard's own schema tells how many they
read. So a new operator of this kind is drawn as soon as it is read. The others have a row each, which takes the
writer and one or two values, and tells its result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from edgebuild.model.formats.onnx.onnx_operators import READERS as ONNX_READERS

from .recipe import DoesNotFit, common_divisors

OPSET = 20
Make = Callable[..., Any]

# Operators whose float results are the same to the last bit, if those of their operands are.
MOVES = ("Identity", "Dropout", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Concat")
MOVES += (
    "Gather",
    "GatherND",
    "GatherElements",
    "Compress",
    "Expand",
    "Tile",
    "DepthToSpace",
    "SpaceToDepth",
    "Pad",
    "Where",
    "MaxPool",
)
STEPS = ("Floor", "Ceil", "Round", "Sign")
KEEP = {
    *MOVES,
    *STEPS,
    "Abs",
    "Neg",
    "Relu",
    "Max",
    "Min",
    "Clip",
    "TopK",
    "Cast",
    "CastLike",
    "Mod",
    "ReduceMax",
    "ReduceMin",
}
COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
# Where functions are defined, and stay among numbers of some size.
DOMAIN = {"Acos": "unit", "Asin": "unit", "Atanh": "unit", "Tan": "unit", "Acosh": "above one", "Log": "positive"}
DOMAIN |= {"Sqrt": "positive", "Reciprocal": "positive", "ReduceLogSum": "positive"}
DOMAIN |= dict.fromkeys(("Exp", "Cosh", "Sinh"), "small")


@cache
def by_schema(count: int) -> tuple[str, ...]:
    """Operators of the registry that compute a float tensor of `count` float tensors, with no attribute needed."""
    names = []
    for name in sorted(ONNX_READERS):
        if name in {*ROWS, *LAYERS} or not onnx.defs.has(name, OPSET):
            continue
        schema = onnx.defs.get_schema(name, OPSET)
        ports = [schema.inputs[min(i, len(schema.inputs) - 1)] for i in range(count)] if schema.inputs else []
        enough = schema.min_input == min(count, schema.min_input) and schema.max_input >= count and len(ports) == count
        alike = enough and {p.type_str for p in ports} == {schema.outputs[0].type_str}
        required = any(a.required or count > 1 for a in schema.attributes.values())  # two operands: not Conv, not Gemm
        if alike and not required and "tensor(float)" in ports[0].types and (schema.min_input or 1) >= min(count, 2):
            names.append(name)
    return tuple(names)


def ints(w: Any, values: Any) -> str:
    return str(w.constant(np.array(values, np.int64)))


def number(w: Any, value: float) -> str:
    return str(w.constant(np.array(value, np.float32)))


def into(w: Any, domain: str, x: Any) -> Any:
    """The value, brought into a domain."""
    if domain == "unit":
        return w.node("Mul", [w.node("Tanh", [x]), number(w, 0.9)])
    if domain == "small":
        return w.node("Clip", [x, number(w, -4), number(w, 4)])
    return w.node("Add", [w.node("Abs", [x]), number(w, 0.5 if domain == "positive" else 1.1)])


def within(name: str) -> Make:
    return lambda w, x, *_: w.node(name, [into(w, DOMAIN[name], x)])


def step(name: str) -> Make:
    return lambda w, x, *_: w.node(name, [w.exactly(x)])


def product(w: Any, x: Any, *_: Any) -> Any:
    return w.node("ReduceProd", [into(w, "unit", x), ints(w, [len(x.shape) - 1])], keepdims=w.s.pick(0, 1))


# ---- two operands, truth values


def partner(w: Any, x: Any, others: Any) -> Any:
    for y in others:
        pairs = zip(x.shape[::-1], y.shape[::-1], strict=False)
        if len(x.shape) == len(y.shape) and all(1 in pair or len(set(pair)) == 1 for pair in pairs):
            return y
    return w.input_like(x) if w.s.pick(True, False) else w.normal(*w.s.pick(x.shape, (1,) * len(x.shape)))


def exact_partner(w: Any, x: Any, others: Any) -> Any:
    y = partner(w, x, others)
    return y if isinstance(y, str) else w.exactly(y)


def truth(w: Any, x: Any, *others: Any, name: str = "") -> Any:
    x = w.exactly(x)
    return w.node(name or w.s.pick(*COMPARISONS), [x, exact_partner(w, x, others)])


def chosen(w: Any, condition: Any, x: Any) -> Any:
    y = w.s.pick(w.input_like, lambda x: number(w, 0.5))(x)
    return w.node("Where", [condition, *w.s.pick((x, y), (y, x))])


def comparison(name: str) -> Make:
    return lambda w, x, *others: chosen(w, truth(w, x, *others, name=name), x)


def logical(name: str) -> Make:
    def make(w: Any, x: Any, *others: Any) -> Any:
        a = truth(w, x, *others)
        return chosen(w, w.node(name, [a] if name == "Not" else [a, truth(w, w.input_like(a))]), x)

    return make


def bitwise(name: str) -> Make:
    """Of whole parts, eight times as fine."""

    def make(w: Any, x: Any, *_: Any) -> Any:
        fine = w.node("Mul", [w.exactly(x), number(w, 8)])
        whole = w.node("Cast", [fine], to=TensorProto.INT32)
        other = [] if name == "BitwiseNot" else [str(w.constant(np.array(w.s.between(1, 30), np.int32)))]
        return w.node("Cast", [w.node(name, [whole, *other])], to=TensorProto.FLOAT)

    return make


def divided(name: str) -> Make:
    def make(w: Any, x: Any, *_: Any) -> Any:
        shape = w.s.pick(x.shape, (1,) * len(x.shape))
        data = w.constant(w.s.rng.choice([-3.0, -0.75, 0.5, 2.5], shape).astype(np.float32))
        return w.node("Mod", [w.exactly(x), data], fmod=1) if name == "Mod" else w.node("Div", [x, data])

    return make


def power(w: Any, x: Any, *_: Any) -> Any:
    square = w.s.pick(True, False)
    return w.node("Pow", [x if square else into(w, "positive", x), number(w, 2 if square else w.s.pick(0.5, 1.7, -1))])


def prelu(w: Any, x: Any, *_: Any) -> Any:
    shape = (x.shape[1], *(1 for _ in x.shape[2:])) if len(x.shape) > 1 else (1,)
    return w.node("PRelu", [x, w.normal(*w.s.pick(shape, (1,)))])


# ---- places


def axis_of(w: Any, x: Any) -> int:
    if len(x.shape) < 2:
        raise DoesNotFit
    return int(w.s.between(1, len(x.shape) - 1))


def place(name: str) -> Make:
    """Rows of a table, by where the largest or smallest of a line is."""

    def make(w: Any, x: Any, *_: Any) -> Any:
        axis = axis_of(w, x)
        more = {"select_last_index": 1} if w.s.between(0, 3) == 0 else {}
        index = w.node(name, [w.exactly(x)], axis=w.s.pick(axis, axis - len(x.shape)), keepdims=0, **more)
        table = w.constant(w.s.rng.standard_normal((x.shape[axis], *w.s.pick((), (3,)))).astype(np.float32))
        return w.node("Gather", [table, index], axis=0)

    return make


def top(w: Any, x: Any, *_: Any) -> Any:
    """The largest or smallest of a line; a table is looked up by where they are, so that both results are read."""
    axis = axis_of(w, x)
    count, attributes = w.s.between(1, x.shape[axis]), {"axis": axis, "largest": w.s.pick(0, 1)}
    values, places = w.several("TopK", [w.exactly(x), ints(w, [count])], 2, **attributes)
    table = w.constant(w.s.rng.standard_normal(x.shape[axis]).astype(np.float32))
    return w.node("Add", [values, w.node("Gather", [table, places], axis=0)])


def cast(w: Any, x: Any, *_: Any) -> Any:
    return w.node("Cast", [w.node("Cast", [w.exactly(x)], to=TensorProto.INT32)], to=TensorProto.FLOAT)


def gather(w: Any, x: Any, *_: Any) -> Any:
    axis = axis_of(w, x)
    index = w.s.rng.integers(-x.shape[axis], x.shape[axis], w.s.between(1, 5))
    return w.node("Gather", [x, ints(w, index)], axis=axis)


def gather_nd(w: Any, x: Any, *_: Any) -> Any:
    depth, count = w.s.between(1, len(x.shape)), w.s.between(1, 5)
    index = np.stack([w.s.rng.integers(0, n, (1, count)) for n in x.shape[:depth]], axis=-1)
    return w.node("GatherND", [x, ints(w, index)])


def slice_(w: Any, x: Any, *_: Any) -> Any:
    axis = axis_of(w, x)
    n = x.shape[axis]
    first, last = sorted((w.s.between(0, n - 1), w.s.between(0, n - 1)))
    start, end, step_ = w.s.pick((first, last + 1, 1), (first - n, 2**31, 2), (last, first - n - 1, -1))
    return w.node("Slice", [x, *(ints(w, [v]) for v in (start, end, w.s.pick(axis, axis - len(x.shape)), step_))])


def split(w: Any, x: Any, *_: Any) -> Any:
    axis = axis_of(w, x)
    n = x.shape[axis]
    if w.s.pick(True, False) or n < 3:
        first = w.s.between(1, max(n - 1, 1))
        sizes = [first, n - first] if n > first else [n]
        return w.s.pick(*w.several("Split", [x, ints(w, sizes)], len(sizes), axis=axis))
    return w.s.pick(*w.several("Split", [x], 2, axis=axis, num_outputs=2))


def expand(w: Any, x: Any, *_: Any) -> Any:
    return w.node("Expand", [x, ints(w, [x.shape[0], *(w.s.between(1, 4) if n == 1 else n for n in x.shape[1:])])])


def tile(w: Any, x: Any, *_: Any) -> Any:
    copies = [1, *(w.sizes.of(f"copies {d}", w.s.pick(1, 1, 2, 3)) for d in range(1, len(x.shape)))]
    return w.node("Tile", [x, ints(w, copies)])


def blocks(name: str) -> Make:
    def make(w: Any, x: Any, *_: Any) -> Any:
        c, h, v = w.image(x)
        fits = [n for n in (2, 3) if (c % n**2 == 0 if name == "DepthToSpace" else h % n == v % n == 0)]
        if not fits:
            raise DoesNotFit
        mode = {"mode": w.s.pick("DCR", "CRD")} if name == "DepthToSpace" else {}
        return w.node(name, [x], blocksize=w.s.pick(*fits), **mode)

    return make


def resize(w: Any, x: Any, *_: Any) -> Any:
    w.image(x)
    size = [*x.shape[:2], *(w.sizes.of(f"size {d}", w.s.between(1, 20)) for d in range(2))]
    nearest = {"mode": "nearest", "nearest_mode": w.s.pick("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")}
    how = w.s.pick({"mode": "linear"}, nearest)
    where = w.s.pick("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    return w.node("Resize", [x, "", "", ints(w, size)], coordinate_transformation_mode=where, **how)


# ---- sums, cells


def conv_transpose(w: Any, x: Any, *_: Any) -> Any:
    c, *_ = w.image(x)
    taps = [w.sizes.of(f"window {d}", w.s.between(1, 4)) for d in range(2)]
    strides = [w.sizes.of(f"stride {d}", w.s.between(1, 3)) for d in range(2)]
    group = w.s.pick(1, 1, *common_divisors(c, c))
    pads = [w.s.between(0, (k - 1) // 2) for k in taps]
    weights = w.normal(c, w.sizes.of("channels", w.s.between(1, 4)), *taps, size=(2 / (c * prod(taps))) ** 0.5)
    output = [w.s.pick(0, 0, min(1, s - 1)) for s in strides]
    more = {"strides": strides, "pads": pads * 2, "group": group, "output_padding": output}
    return w.node("ConvTranspose", [x, weights], **more)


def instance_norm(w: Any, x: Any, *_: Any) -> Any:
    c, h, v = w.image(x)
    if h * v < 3:  # the variance of two values says next to nothing
        raise DoesNotFit
    return w.node("InstanceNormalization", [x, w.normal(c), w.normal(c)])


def local_response(w: Any, x: Any, *_: Any) -> Any:
    w.image(x)
    return w.node("LRN", [x], size=w.s.pick(1, 3, 5), alpha=w.s.pick(0.5, 0.1), beta=w.s.pick(0.75, 0.5), bias=1.0)


def layer_norm(w: Any, x: Any, *_: Any) -> Any:
    if x.shape[-1] < 3:
        raise DoesNotFit
    return w.node("LayerNormalization", [x, w.normal(x.shape[-1])], axis=-1, epsilon=0.01)


def mean_variance(w: Any, x: Any, *_: Any) -> Any:
    _, h, v = w.image(x)
    if h * v < 3:
        raise DoesNotFit
    return w.node("MeanVarianceNormalization", [x], axes=w.s.pick([2, 3], [0, 2, 3]))


def sampled(w: Any, x: Any, *_: Any) -> Any:
    """An image at places that are an input, a constant or made of matrices, some of them outside."""
    channels, *_ = w.image(x)
    shape = batch, rows, columns, _ = x.shape[0], w.s.between(1, 5), w.s.between(1, 5), 2
    padding, corners = w.s.pick("zeros", "border", "reflection"), w.s.pick(0, 1)
    source = w.s.pick("constant", "input", "matrices")
    if source == "matrices":
        size = w.constant(np.array([batch, channels, rows, columns], np.int64))
        places = w.node("AffineGrid", [w.given((batch, 2, 3)), size], align_corners=corners)
    else:
        places = w.normal(*shape) if source == "constant" else w.given(shape)
    return w.node("GridSample", [x, places], mode=w.s.pick("linear", "nearest"), padding_mode=padding,
                  align_corners=corners)  # fmt: skip


def batch_product(w: Any, x: Any, *_: Any) -> Any:
    """With itself turned around, or with another value."""
    if len(x.shape) < 3 or prod(x.shape) > 4000:
        raise DoesNotFit
    *front, _, c = x.shape
    if w.s.pick(True, False):
        y = w.node("Transpose", [x], perm=[*range(len(front)), len(front) + 1, len(front)])
    else:
        y = w.given((*front, c, w.s.between(1, 8)))
    scaled = w.node("Mul", [x, number(w, c**-0.5)])
    return w.node("MatMul", [scaled, y])


def einsum(w: Any, x: Any, *_: Any) -> Any:
    """Products of matrices under names: the second operand is an input."""
    if len(x.shape) != 4 or prod(x.shape) > 4000:
        raise DoesNotFit
    n, a, _, c = x.shape
    equation, shape = w.s.pick(("nabc,nacd->nabd", (n, a, c, 3)), ("nabc,nadc->nabd", (n, a, 4, c)))
    return w.node("Einsum", [w.node("Mul", [x, number(w, c**-0.5)]), w.given(shape)], equation=equation)


def running_sum(w: Any, x: Any, *_: Any) -> Any:
    axis = np.array(w.s.between(-len(x.shape), len(x.shape) - 1), np.int64)
    x = w.node("Mul", [x, number(w, 1 / max(x.shape))])
    return w.node("CumSum", [x, w.constant(axis)], exclusive=w.s.pick(0, 1), reverse=w.s.pick(0, 1))


def one_hot(w: Any, x: Any, *_: Any) -> Any:
    """Places of the largest as vectors."""
    if len(x.shape) < 2:
        raise DoesNotFit
    axis = w.s.between(1, len(x.shape) - 1)
    index = w.node("ArgMax", [w.exactly(x)], axis=axis, keepdims=0)
    values = w.constant(np.array([-1.0, 2.0], np.float32))
    return w.node("OneHot", [index, ints(w, w.s.between(1, 6)), values], axis=w.s.pick(-1, 1))


def hard_max(w: Any, x: Any, *_: Any) -> Any:
    if len(x.shape) < 2:
        raise DoesNotFit
    return w.node("Hardmax", [w.exactly(x)], axis=w.s.between(1, len(x.shape) - 1))


def triangle(w: Any, x: Any, *_: Any) -> Any:
    if len(x.shape) < 3:
        raise DoesNotFit
    return w.node("Trilu", [x, ints(w, w.s.between(-2, 2))], upper=w.s.pick(0, 1))


def length_pool(w: Any, x: Any, *_: Any) -> Any:
    window = [min(w.s.between(1, 3), n) for n in w.image(x)[1:]]
    return w.node("LpPool", [x], kernel_shape=window, p=w.s.pick(1, 2), strides=[w.s.between(1, 2)] * 2)


def reversed_sequence(w: Any, x: Any, *_: Any) -> Any:
    if len(x.shape) < 2:
        raise DoesNotFit
    lengths = ints(w, [w.s.between(1, x.shape[1])] * x.shape[0])
    return w.node("ReverseSequence", [x, lengths], time_axis=1, batch_axis=0)


def scattered(w: Any, x: Any, *_: Any) -> Any:
    """Some rows in the place of others."""
    count = w.s.between(1, 3)
    places = [[w.s.between(0, n - 1) for n in x.shape[:2]] for _ in range(count)]
    rows = w.constant(w.s.rng.standard_normal((count, *x.shape[2:])).astype(np.float32))
    return w.node("ScatterND", [x, ints(w, places), rows])


def elements(w: Any, x: Any) -> tuple[int, Any]:
    """An axis, and places of elements along it: known ones, or those in the order of a line's largest."""
    axis = axis_of(w, x)
    if w.s.between(0, 2):
        shape = [w.s.between(1, n) for n in x.shape]
        return axis, w.constant(w.s.rng.integers(-x.shape[axis], x.shape[axis], shape))
    return axis, w.several("TopK", [w.exactly(x), ints(w, [w.s.between(1, x.shape[axis])])], 2, axis=axis)[1]


def compressed(w: Any, x: Any, *_: Any) -> Any:
    """Elements of one dimension that a constant chooses, which may end before the dimension does."""
    if len(x.shape) < 2:
        raise DoesNotFit
    axis = w.s.between(1, len(x.shape) - 1)
    chosen = [w.s.pick(True, True, False) for _ in range(w.s.between(1, x.shape[axis]))]
    chosen[w.s.between(0, len(chosen) - 1)] = True
    shape = tuple(sum(chosen) if d == axis else n for d, n in enumerate(x.shape))
    condition = w.constant(np.array(chosen))
    return w.declared("Compress", x, [condition], shape, axis=w.s.pick(axis, axis - len(shape)))


def gather_elements(w: Any, x: Any, *_: Any) -> Any:
    x = w.exactly(x)
    axis, places = elements(w, x)
    return w.node("GatherElements", [x, places], axis=axis)


def scatter_elements(w: Any, x: Any, *_: Any) -> Any:
    x = w.exactly(x)
    axis, places = elements(w, x)
    update = w.node("GatherElements", [w.input_like(x), places], axis=axis)
    return w.node("ScatterElements", [x, places, update], axis=axis, reduction=w.s.pick("add", "max", "min"))


def shifted(w: Any, x: Any, *_: Any) -> Any:
    large = w.node("Clip", [w.node("Mul", [w.exactly(x), number(w, 20)]), number(w, 0), number(w, 255)])
    whole, by = w.node("Cast", [large], to=TensorProto.UINT8), np.array(w.s.between(0, 9), np.uint8)
    moved = w.node("BitShift", [whole, w.constant(by)], direction=w.s.pick("LEFT", "RIGHT"))
    return w.node("Cast", [moved], to=TensorProto.FLOAT)


def infinite(w: Any, x: Any, *_: Any) -> Any:
    far = w.node("Div", [x, w.node("Floor", [w.exactly(w.input_like(x))])])
    return chosen(w, w.node("IsInf", [far], detect_negative=w.s.pick(0, 1)), x)


def dynamic(w: Any, x: Any, *_: Any) -> Any:
    """Quantised as its own range says, then a product or a window of the bytes, and real numbers again."""
    quantised, scale, zero = w.several("DynamicQuantizeLinear", [w.exactly(x)], 3, free=True)
    kind = "ConvInteger" if len(x.shape) == 4 and w.s.pick(True, False) else "MatMulInteger"
    k = w.sizes.of("channels", w.s.between(1, 5))
    shape = (k, x.shape[1], 1, min(2, x.shape[3])) if kind == "ConvInteger" else (x.shape[-1], k)
    weights = w.constant(w.s.rng.integers(-127, 128, shape).astype(np.int8))
    sums = w.node(kind, [quantised, weights, zero])
    factor = w.several("Mul", [scale, number(w, 0.02)], 1, free=True)[0]
    return w.node("Mul", [w.node("Cast", [sums], to=TensorProto.FLOAT), factor])


def recurrent(name: str, gates: int) -> Make:
    def make(w: Any, x: Any, *_: Any) -> Any:
        n, hidden = prod(x.shape), w.sizes.of("hidden", w.s.between(1, 6))
        steps = [t for t in (2, 3, 4, 5, 6) if n % t == 0 and n // t <= 200]
        if not steps:
            raise DoesNotFit
        t = w.s.pick(*steps)
        direction = w.s.pick("forward", "reverse", "bidirectional")
        ways = 2 if direction == "bidirectional" else 1
        line = w.several("Reshape", [x, ints(w, [t, 1, n // t])], 1, free=True)[0]
        size = (n // t) ** -0.5
        weights = [w.normal(ways, gates * hidden, n // t, size=size), w.normal(ways, gates * hidden, hidden, size=0.4)]
        bias = [w.normal(ways, 2 * gates * hidden, size=0.3)] if w.s.pick(True, False) else []
        more = {"linear_before_reset": w.s.pick(0, 1)} if name == "GRU" else {}
        y = w.several(name, [line, *weights, *bias], 1, free=True, hidden_size=hidden, direction=direction, **more)[0]
        return w.node("Reshape", [y, ints(w, [1, t * ways, hidden])])

    return make


LAYERS = ("Conv", "Gemm", "BatchNormalization", "Softmax", "GlobalAveragePool", "GlobalMaxPool", "Transpose", "Flatten")
LAYERS += ("Squeeze", "Unsqueeze", "Reshape", "Concat", "Pad", "MaxPool", "AveragePool")
ROWS: dict[str, Make] = {
    **{name: within(name) for name in DOMAIN},
    **{name: step(name) for name in (*STEPS, "Shrink", "ThresholdedRelu")},
    **{name: comparison(name) for name in COMPARISONS},
    **{name: logical(name) for name in ("And", "Or", "Xor", "Not")},
    **{name: bitwise(name) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")},
    **{name: divided(name) for name in ("Div", "Mod")},
    **{name: place(name) for name in ("ArgMax", "ArgMin")},
    **{name: blocks(name) for name in ("DepthToSpace", "SpaceToDepth")},
    **{name: recurrent(name, gates) for name, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1))},
    "IsNaN": lambda w, x, *_: chosen(w, w.node("IsNaN", [x]), x),
    "Dropout": lambda w, x, *_: w.node("Dropout", [x]),
    "Gelu": lambda w, x, *_: w.node("Gelu", [x], approximate=w.s.pick("none", "tanh")),
    "ReduceProd": product,
    "Pow": power,
    "PRelu": prelu,
    "TopK": top,
    "Cast": cast,
    "CastLike": lambda w, x, *_: w.node("CastLike", [w.node("Cast", [w.exactly(x)], to=TensorProto.INT32), x]),
    "Gather": gather,
    "GatherND": gather_nd,
    "Slice": slice_,
    "Split": split,
    "Expand": expand,
    "Tile": tile,
    "Resize": resize,
    "ConvTranspose": conv_transpose,
    "InstanceNormalization": instance_norm,
    "LayerNormalization": layer_norm,
    "MeanVarianceNormalization": mean_variance,
    "GridSample": sampled,
    "MatMul": batch_product,
    "Einsum": einsum,
    "CumSum": running_sum,
    "LRN": local_response,
    "OneHot": one_hot,
    "Hardmax": hard_max,
    "Trilu": triangle,
    "LpPool": length_pool,
    "ReverseSequence": reversed_sequence,
    "ScatterND": scattered,
    "Compress": compressed,
    "GatherElements": gather_elements,
    "ScatterElements": scatter_elements,
    "BitShift": shifted,
    "IsInf": infinite,
    "DynamicQuantizeLinear": dynamic,
    "Where": comparison(""),
}


def elementwise(name: str) -> Make:
    return lambda w, x, *_: w.node(name, [x])


ROWS |= {name: elementwise(name) for name in by_schema(1)}
