"""Quantised ops from the QDQ form: dequantize -> float op -> quantize becomes one integer op."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ... import ops
from ...ir import Graph, Op, Quant, Tensor, real_values
from ...ops.base import check_limits
from ...ops.fixedpoint import limits
from ...ops.pointwise import TABLES
from ...ops.spatial import bias_quant, centred, symmetric_weights
from ..rewrite import Edit, unused
from .fuse import OPEN, SUMS

SHIFTED = ("conv2d", "depthwise_conv2d", "dense")  # sums that a product and a shift may follow
NEAR = 0.25  # steps of a result that a rounded constant may move it, beside the half step of its own rounding


def integer_op(op: Op, graph: Graph) -> Edit | None:
    """An op between dequantize of all its operands and one quantize of its result works on int8."""
    spec, y = ops.SPECS[op.kind], op.outputs[0]
    quantize = graph.only_consumer(y)
    if spec.float_only or quantize is None or quantize.kind != "quantize":
        return None
    inputs, constants, others = list[str](), list[Tensor](), set[str]()
    for position, name in enumerate(op.inputs):
        t = graph.tensors[name]
        source = graph.producer(name, "dequantize")
        bias = position == 2 and op.kind in SUMS
        if source is not None:
            inputs.append(source.inputs[0])
        elif bias and t.constant:
            constants.append(_bias(t, graph.tensors[inputs[0]], graph.tensors[inputs[1]], op))
            inputs.append(constants[-1].name)
        elif t.constant and t.quant is not None:
            inputs.append(name)
        elif (
            small := _quantised(t, op, graph.tensors[inputs[0]] if inputs else t, graph.result(quantize))
        ) is not None:
            constants.append(small)
            inputs.append(small.name)
        elif t.dtype not in ("float32", "int8", "int16"):  # indices, conditions
            inputs.append(name)
            others.add(name)
        else:
            return None
    joined = replace(op, inputs=tuple(inputs), outputs=quantize.outputs)
    wider = replace(graph, tensors={**graph.tensors, **{t.name: t for t in constants}})
    same = graph.arithmetic.rounds_once or _equal_in_floats(joined, wider, others)
    return Edit((op, quantize), (joined,), tuple(constants)) if same and _has_form(joined, wider, others) else None


def _has_form(op: Op, graph: Graph, others: set[str]) -> bool:
    """Whether the op is quantised in the types of its operands and result: one, or what sums of products are.

    `others`: operands that are no values.
    """
    spec = ops.SPECS[op.kind]
    types = [graph.tensors[n].dtype for n in (*op.inputs, *op.outputs) if n not in others]
    if op.kind in SUMS:
        supported = {types[0], types[1]} <= {"int8", "int16"} and types[-1] in spec.integers
    else:
        supported = len(set(types)) == 1 and (spec.exact or types[0] in spec.integers)
    return supported and (spec.exact or check_limits(spec, op, graph) is None)  # a requantize follows what is exact


def _equal_in_floats(op: Op, graph: Graph, others: set[str]) -> bool:
    """Whether the integer op does what dequantize, the float op and quantize do: in TFLite arithmetic few do.

    Values that are moved or bounded in one quantisation, and int8 functions whose table goes through floats.
    """
    quants = {graph.tensors[n].quant for n in (*op.inputs, *op.outputs) if n not in others}
    if ops.SPECS[op.kind].exact or op.kind == "clamp":
        return len(quants) == 1
    table = op.kind == "pointwise" and len(op.inputs) == 1 and graph.result(op).dtype == "int8"
    return table and op.attrs["function"] not in TABLES


def _bias(t: Tensor, x: Tensor, w: Tensor, op: Op) -> Tensor:
    """The bias in steps of scale(x) * scale(w), int64 beside int16, else int32; one that is stored so is kept."""
    if t.dtype == "int32" and t.quant is not None:
        return t
    quant, dtype = bias_quant(x, w), "int64" if x.dtype == "int16" else "int32"
    steps = np.rint(real_values(t).astype(np.float64).ravel() / np.array(quant.scale))
    most = 2**46 if dtype == "int64" else 2**31
    data = np.clip(steps, -most, most - 1).astype(dtype)
    return Tensor(f"{t.name}@{op.outputs[0]}", data.shape, dtype, quant, data)


def _quantised(t: Tensor, op: Op, x: Tensor, y: Tensor) -> Tensor | None:
    """A float constant beside x in int8: 255 steps over its own range, zero included.

    None where this would move y by more than `NEAR` steps: the op then stays in float.
    """
    if t.data is None or t.quant is not None or t.dtype != "float32" or op.kind not in ("add", "mul"):
        return None
    if x.quant is None or y.quant is None or not np.isfinite(t.data).all():
        return None
    low, high = min(0.0, float(t.data.min())), max(0.0, float(t.data.max()))
    scale = (high - low) / 255 or 1.0
    zero = round(-128 - low / scale)
    data = np.clip(np.rint(t.data / scale) + zero, -128, 127).astype(np.int8)
    most = max(abs(end - x.quant.zero_point[0]) for end in limits(x.dtype)) * x.quant.scale[0]
    error = np.abs((data.astype(np.float64) - zero) * scale - t.data).max() * (most if op.kind == "mul" else 1.0)
    if error > NEAR * y.quant.scale[0]:
        return None
    return Tensor(f"{t.name}@{op.outputs[0]}", t.shape, "int8", Quant((scale,), (zero,)), data)


def centred_weights(op: Op, graph: Graph) -> Edit | None:
    """Quantised weights with a zero point become weights without, in int8 where these fit, else in int16."""
    w = graph.tensors[op.inputs[1]] if op.kind in SUMS else None
    if w is None or w.data is None or w.quant is None or not any(w.quant.zero_point):
        return None
    without = replace(centred(w), name=unused(f"{w.name}@centred", graph))
    return Edit((op,), (replace(op, inputs=(op.inputs[0], without.name, *op.inputs[2:])),), (without,))


def requantize_moves(op: Op, graph: Graph) -> Edit | None:
    """An int8 op that only moves or selects values cannot change their scale: a requantize follows it.

    Of several operands each is brought to the result's scale; constants are so at once. Indices have no scale.
    TFLite's kernels move the integers as they are, whatever scales the file tells.
    """
    spec, y = ops.SPECS[op.kind], graph.tensors[op.outputs[0]]
    if not spec.exact or y.quant is None or graph.arithmetic.fixed_point:
        return None
    values = {n: t for n in op.inputs if (t := graph.tensors[n]).quant is not None}
    wrong = {n: t for n, t in values.items() if t.quant != y.quant}
    if not wrong:
        return None
    if len(values) == 1 and not any(t.constant for t in wrong.values()):
        ((_, x),) = wrong.items()
        inner = replace(y, name=f"{y.name}@own", quant=x.quant, origin=None)
        after = Op("requantize", op.name, (inner.name,), (y.name,), {}, op.origin)
        return Edit((op,), (replace(op, outputs=(inner.name,)), after), (inner,))
    new = {n: replace(_in_steps_of(t, y), name=f"{n}@{y.name}", origin=None) for n, t in wrong.items()}
    before = [Op("requantize", op.name, (n,), (t.name,), {}, op.origin) for n, t in new.items() if not t.constant]
    moved = replace(op, inputs=tuple(new[n].name if n in new else n for n in op.inputs))
    return Edit((op,), (*before, moved), tuple(new.values()))


def _in_steps_of(t: Tensor, y: Tensor) -> Tensor:
    """The tensor in the quantisation of `y`, and so its values if it is a constant."""
    assert y.quant is not None
    if t.data is None:
        return replace(t, quant=y.quant)
    steps = np.rint(real_values(t) / np.float32(y.quant.scale[0])) + y.quant.zero_point[0]
    return replace(t, dtype=y.dtype, quant=y.quant, data=np.clip(steps, *limits(y.dtype)).astype(y.dtype))


def quantize_of_dequantize(op: Op, graph: Graph) -> Edit | None:
    """int8 -> real -> int8: nothing if the scales are equal, else one requantize."""
    first = graph.producer(op.inputs[0], "dequantize") if op.kind == "quantize" else None
    if first is None:
        return None
    x, y = graph.tensors[first.inputs[0]], graph.tensors[op.outputs[0]]
    if (x.quant, x.dtype) == (y.quant, y.dtype):
        return None if op.outputs[0] in graph.outputs else Edit((op,), rename={y.name: x.name})
    if graph.arithmetic.fixed_point:  # whose requantize rounds in fixed point
        return None
    return Edit((op,), (Op("requantize", op.name, first.inputs, op.outputs, {}, op.origin),))


def saturating_clamp(op: Op, graph: Graph) -> Edit | None:
    """quantize(clamp(x)) = quantize(x) where the int8 range has the same bounds: what a zero point of -128 says."""
    quantize = graph.only_consumer(op.outputs[0]) if op.kind == "clamp" else None
    if quantize is None or quantize.kind != "quantize":
        return None
    quant = graph.tensors[quantize.outputs[0]].quant
    assert quant is not None
    low, high = op.attrs["clamp"]
    lowest, highest = (
        (q - quant.zero_point[0]) * quant.scale[0] for q in limits(graph.tensors[quantize.outputs[0]].dtype)
    )
    if (low is None or lowest >= low) and (high is None or highest <= high):
        return Edit((op,), rename={op.outputs[0]: op.inputs[0]})
    return None


def quantised_input(op: Op, graph: Graph) -> Edit | None:
    """A graph input that is only ever quantised in one way is an int8 input: the application quantises.

    Not so a state, whose two ends may have two scales.
    """
    if op.kind != "quantize" or op.inputs[0] not in graph.ports_in or graph.only_consumer(op.inputs[0]) is not op:
        return None
    x, y = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if op.outputs[0] in graph.outputs:
        return None
    return Edit((op,), rename={y.name: x.name}, tensors=(replace(x, dtype=y.dtype, quant=y.quant),))


def dequantised_output(op: Op, graph: Graph) -> Edit | None:
    """A graph output that dequantises an int8 result is that result: the header tells its scale."""
    if op.kind != "dequantize" or op.outputs[0] not in graph.ports_out or graph.consumers[op.outputs[0]]:
        return None
    source = graph.producers.get(op.inputs[0])
    if source is None or op.inputs[0] in graph.outputs or len(graph.consumers[op.inputs[0]]) > 1:
        return None
    y = graph.tensors[op.outputs[0]]
    x = graph.tensors[op.inputs[0]]
    result = replace(y, dtype=x.dtype, quant=x.quant)
    return Edit((source, op), (replace(source, outputs=(y.name,)),), (result,))


def dequantise_constants(op: Op, graph: Graph) -> Edit | None:
    """An op that stayed in float reads its quantised constants as real values; weights of sums bring their scales."""
    values = [graph.tensors[n] for n in (*op.inputs, *op.outputs)]
    if op.kind == "dequantize" or not any(t.dtype == "float32" and not t.constant for t in values):
        return None
    stay = op.inputs[1:2] if op.kind in SUMS and symmetric_weights(op, graph) is None else ()
    operands = {n: graph.tensors[n] for n in op.inputs if n not in stay}
    new = {n: t for n, t in operands.items() if t.constant and t.quant is not None}
    if not new:
        return None
    real = {n: Tensor(f"{n}@real", t.shape, "float32", None, real_values(t)) for n, t in new.items()}
    inputs = tuple(real[n].name if n in real else n for n in op.inputs)
    return Edit((op,), (replace(op, inputs=inputs),), tuple(real.values()))


def shifted_sums(op: Op, graph: Graph) -> Edit | None:
    """A product and a shift of int32 sums, or of these plus a constant, is how the sums become results.

    Where a channel's factor is less than 1, its weights are negative or 0 instead.
    """
    if op.attrs.get("function") != "shifted_product":
        return None
    chain = _sums_before(op, graph)
    if chain is None:
        return None
    first, before = chain[0], [graph.tensors[o.inputs[1]] for o in chain[1:]]
    (x, w, *bias), y, total = graph.operands(first), graph.result(op), graph.result(first)
    whole = [t.quant.scale if t.quant is not None else () for t in (x, w, total)]
    types = (x.dtype, w.dtype, total.dtype, y.quant is None)
    if types != ("int8", "int8", "int32", False) or whole != [(1.0,)] * 3 or first.attrs["clamp"] != OPEN:
        return None
    if total.shape != y.shape:  # factors that repeat the sums
        return None
    count, numbers = y.shape[-1], [*(graph.tensors[n] for n in op.inputs[1:]), *before]
    if any(t.data is None or (t.elements != 1 and (t.elements, *t.shape[-1:]) != (count, count)) for t in numbers):
        return None
    factor, more, *start = (np.broadcast_to(t.array.ravel().astype(np.int64), count) for t in numbers)
    axis = w.shape.index(count, 3) if first.kind == "depthwise_conv2d" else 0
    sign, along = np.sign(factor), [-1 if d == axis else 1 for d in range(len(w.shape))]
    signed = w.array * sign.reshape(along)
    begin = sign * sum((b.array.ravel().astype(np.int64) for b in bias), np.zeros(count, np.int64) + sum(start))
    if signed.max(initial=0) > limits("int8")[1] or np.abs(begin).max() > limits("int32")[1]:
        return None
    scales = tuple((np.maximum(np.abs(factor), 1) * 0.5 ** op.attrs["bits"]).tolist())
    weights = replace(w, name=unused(f"{w.name}@{y.name}", graph), quant=Quant(scales, (0,) * count, axis),
                      data=signed.astype(np.int8))  # fmt: skip
    rest = (
        Tensor(f"{y.name}@bias", (count,), "int32", bias_quant(x, weights), begin.astype(np.int32)),
        Tensor(f"{y.name}@added", (count,), "int32", None, more.astype(np.int32)),
    )
    attrs = {**first.attrs, "bits": int(op.attrs["bits"]), "clamp": (op.attrs["low"], op.attrs["high"])}
    inputs = (x.name, weights.name, *(t.name for t in rest))
    return Edit((*chain, op), (replace(first, inputs=inputs, outputs=op.outputs, attrs=attrs),), (weights, *rest))


def _sums_before(op: Op, graph: Graph) -> tuple[Op, ...] | None:
    """Sums of products that nothing but the op reads, and an op that adds a constant to them if there is one."""
    first, chain = graph.producers.get(op.inputs[0]), tuple[Op, ...]()
    if first is not None and first.attrs.get("function") == "sum" and graph.only_consumer(first.outputs[0]) is op:
        op, chain = first, (first,)
        first = graph.producers.get(op.inputs[0])
    single = first is not None and first.kind in SHIFTED and graph.only_consumer(first.outputs[0]) is op
    return (first, *chain) if single and first is not None else None


RULES = (saturating_clamp, centred_weights, integer_op, quantize_of_dequantize, requantize_moves)
SURFACE = (quantised_input, dequantised_output)
REMAINS = (shifted_sums, dequantise_constants)
