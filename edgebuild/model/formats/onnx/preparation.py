"""ONNX files of several forms brought into the one that is read: opset 13 or later, QDQ, no functions, static shapes.

QOperator nodes (QLinearConv and their like) become DequantizeLinear, the operator on real numbers, QuantizeLinear: what
they compute by definition. The canonicaliser makes one integer op of these again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ....base.dataclass import dataclass
from ....base.errors import did_you_mean, fail
from .control_flow import graphs, reads
from .microsoft import FUSED, Fused, channels_first
from .onnx_checks import NORMALISES
from .opsets import OLDEST, newer
from .recurrent import DYNAMIC
from .signatures import MICROSOFT, OWN_DOMAINS, TABLE
from .zero_points import LIKE, add_borders_and_halves, add_zero_points


@dataclass(frozen=True)
class Quantised:
    """A QOperator: its operator on real numbers, where (value, scale, zero point) begin, where (scale, zero) of the
    result do, and the position of an int32 bias; attributes that are its own only. `real`: the result is so where its
    zero point is left out."""

    operator: str
    operands: tuple[int, ...] = (0,)
    result: int = 3
    bias: int | None = None
    drop: tuple[str, ...] = ("channels_last",)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    real: bool = False


QUANTISED = {
    "QLinearConv": Quantised("Conv", (0, 3), 6, 8),
    "QLinearMatMul": Quantised("MatMul", (0, 3), 6),
    "QLinearAdd": Quantised("Add", (0, 3), 6),
    "QLinearMul": Quantised("Mul", (0, 3), 6),
    "QGemm": Quantised("Gemm", (0, 3), 7, 6, real=True),
    "QLinearGlobalAveragePool": Quantised("GlobalAveragePool"),
    "QLinearAveragePool": Quantised("AveragePool"),
    "QLinearSigmoid": Quantised("Sigmoid"),
    "QLinearLeakyRelu": Quantised("LeakyRelu"),
    "QLinearSoftmax": Quantised("Softmax", drop=("opset",)),
    "QLinearReduceMean": Quantised("ReduceMean"),
}
MOVES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Gather", "Slice", "Identity", "Expand", "Tile")
INTEGER = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
# What onnxruntime makes of a dynamically quantised product, and where its scales, zero points and bias stand: of the
# first operand, which one that quantises it itself has none of, and of the weights.
FLOAT_PRODUCTS = {"MatMulIntegerToFloat": (2, 4, 3, 5, 6), "DynamicQuantizeMatMul": (None, None, 2, 3, 4)}


def prepared(
    model: onnx.ModelProto, file: str, shapes: Mapping[str, Sequence[int]], outputs: Sequence[str]
) -> onnx.ModelProto:
    """The model with these shapes of inputs and up to these outputs, in the form that is read."""
    if not any(o.domain in OWN_DOMAINS for o in model.opset_import):  # as of a file that is a forest and nothing else
        model.opset_import.append(helper.make_opsetid("", OLDEST))
    if model.functions:
        from onnx import inliner

        model = inliner.inline_local_functions(model)
    cut(model.graph, file, outputs)
    set_shapes(model.graph, file, shapes)
    model = newer(model, file)
    _constants_first(model.graph)
    for part in reversed(list(graphs(model.graph))):  # bodies first, which the nodes around them take along
        nodes = [made for node in part.node for made in real_form(node, part, file)]
        told = [n for n in nodes if any(a.name == LIKE for a in n.attribute)] if part is not model.graph else []
        if told:  # a body does not know the types of what is around it
            raise fail("a zero point is left out in a body", file=file, node=_name(told[0]), hints=["give it"])
        del part.node[:]
        part.node.extend(nodes)
    if any(node.op_type == "LayerNormalization" for part in graphs(model.graph) for node in part.node):
        _at_least(model, NORMALISES)
    add_zero_points(model.graph)
    add_borders_and_halves(model.graph)
    _dequantised_first(model.graph)
    return model


def _at_least(model: onnx.ModelProto, opset: int) -> None:
    """Tell an opset in which an operator has a body. What is read of the older ones has the same meaning there."""
    for own in model.opset_import:
        if own.domain in OWN_DOMAINS:
            own.version = max(own.version, opset)


def cut(graph: onnx.GraphProto, file: str, outputs: Sequence[str]) -> None:
    """Make `outputs` those of the graph, and drop the nodes that they do not need."""
    if not outputs:
        return
    written = {name for node in graph.node for name in node.output}
    for name in outputs:
        if name not in written:
            raise fail(f"option 'outputs': no node writes '{name}'{did_you_mean(name, sorted(written))}", file=file)
    needed, kept = set(outputs), []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(reads(node))
    del graph.node[:], graph.output[:]
    graph.node.extend(reversed(kept))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    inputs = [value for value in graph.input if value.name in needed]
    del graph.input[:]
    graph.input.extend(inputs)


def set_shapes(graph: onnx.GraphProto, file: str, shapes: Mapping[str, Sequence[int]]) -> None:
    """Give inputs the shapes that were asked for; a first dimension that is left open is a batch of 1.

    Sizes of one name are equal in all inputs, as the standard says of them.
    """
    values, sizes = {value.name: value for value in graph.input}, dict[str, int]()
    for name, shape in shapes.items():
        if name not in values:
            text = f"option 'shape': the model has no input '{name}'{did_you_mean(name, sorted(values))}"
            raise fail(text, file=file, hints=["inputs: " + ", ".join(sorted(values))])
        own = values[name].type.tensor_type.shape
        fits = len(own.dim) == len(shape) and all(
            not d.HasField("dim_value") or d.dim_value in (0, n) for d, n in zip(own.dim, shape, strict=True)
        )
        if own.dim and not fits:
            shown = "x".join(str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in own.dim)
            raise fail(f"option 'shape': input '{name}' is {shown}, not {'x'.join(map(str, shape))}", file=file)
        sizes = {d.dim_param: n for d, n in zip(own.dim, shape, strict=False) if d.dim_param} | sizes
        own.Clear()
        for n in shape:
            own.dim.add().dim_value = n
    open_ = [value.type.tensor_type.shape.dim for name, value in values.items() if name not in shapes]
    for dims in open_:
        if len(dims) > 1 and not dims[0].HasField("dim_value"):
            dims[0].dim_value = sizes.setdefault(dims[0].dim_param, 1) if dims[0].dim_param else 1
    for d in (d for dims in open_ for d in dims if d.dim_param in sizes):
        d.dim_value = sizes[d.dim_param]


def bind(graph: onnx.GraphProto, file: str, values: Mapping[str, Sequence[int | float]]) -> None:
    """Make constants of inputs. One number fills an input; open sizes are what the numbers need, or 1."""
    inputs = {value.name: value for value in graph.input}
    for name, numbers in values.items():
        if name not in inputs:
            text = f"option 'bind': the model has no input '{name}'{did_you_mean(name, sorted(inputs))}"
            raise fail(text, file=file, hints=["inputs: " + ", ".join(sorted(inputs))])
        try:
            graph.initializer.append(_bound(inputs[name], numbers))
        except (OverflowError, TypeError, ValueError) as problem:
            raise fail(f"option 'bind': input '{name}': {problem}", file=file) from None
        graph.input.remove(inputs[name])


def _bound(value: onnx.ValueInfoProto, numbers: Sequence[int | float]) -> onnx.TensorProto:
    """A constant in place of an input. Raises an exception of numpy's or ValueError if it cannot hold the numbers."""
    kind = value.type.tensor_type
    sizes = [d.dim_value for d in kind.shape.dim]
    if sizes.count(0) == 1:
        sizes[sizes.index(0)] = len(numbers) // prod(n for n in sizes if n)
    shape = [n or 1 for n in sizes]
    if len(numbers) not in (1, prod(shape)):
        raise ValueError(f"{len(numbers)} numbers for the shape {'x'.join(map(str, shape))}")
    exact = np.array(numbers, np.int64 if all(isinstance(n, int) for n in numbers) else np.float64)
    with np.errstate(all="ignore"):
        data = exact.astype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    if (data.dtype.kind in "biu" and (data != exact).any()) or not np.isfinite(data.astype(np.float64)).all():
        name = onnx.TensorProto.DataType.Name(kind.elem_type)
        raise ValueError(f"{','.join(map(str, numbers))} is not of type {name}")
    whole = data.reshape(shape) if len(numbers) > 1 else np.broadcast_to(data[0], shape)
    return numpy_helper.from_array(np.ascontiguousarray(whole).reshape(shape), value.name)


def _constants_first(graph: onnx.GraphProto) -> None:
    """Tensors of Constant nodes become initialisers, so that operators find all constants in one place."""
    for at in reversed(range(len(graph.node))):
        node = graph.node[at]
        value = next((a.t for a in node.attribute if a.name == "value"), None)
        if node.op_type == "Constant" and node.domain in OWN_DOMAINS and value is not None:
            graph.initializer.add().CopyFrom(value)
            graph.initializer[-1].name = node.output[0]
            del graph.node[at]


def _dequantised_first(graph: onnx.GraphProto) -> None:
    """Integers of an input or a constant are dequantised before they are moved, so that their type has one meaning."""
    given = {value.name for value in (*graph.input, *graph.initializer)}
    made = {name: node for node in graph.node for name in node.output}
    nodes = list[onnx.NodeProto]()
    for node in graph.node:
        moves = list[onnx.NodeProto]()
        while node.op_type == "DequantizeLinear" and (move := made.get((moves or [node])[-1].input[0])):
            if move.op_type not in MOVES or move.domain not in OWN_DOMAINS:
                break
            moves.append(move)
        if moves and moves[-1].input[0] in given:
            name = f"{node.output[0]}@moved"
            nodes.append(helper.make_node(node.op_type, [moves[-1].input[0], *node.input[1:]], [f"{name}{len(moves)}"]))
            nodes[-1].attribute.extend(node.attribute)
            for at in reversed(range(len(moves))):
                copy = onnx.NodeProto()
                copy.CopyFrom(moves[at])
                copy.input[0], copy.output[0] = f"{name}{at + 1}", f"{name}{at}" if at else node.output[0]
                nodes.append(copy)
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


# ---- QOperator nodes


def real_form(node: onnx.NodeProto, graph: onnx.GraphProto, file: str) -> Iterator[onnx.NodeProto]:
    """The nodes that a quantised operator stands for; any other node as it is."""
    if node.op_type in ("QuantizeLinear", "DequantizeLinear", DYNAMIC) and node.domain == MICROSOFT:
        node.domain = ""
    if node.op_type in INTEGER and node.domain in OWN_DOMAINS and _known_zeros(node, graph):
        yield from _integer(node, graph)
    elif node.op_type in FLOAT_PRODUCTS and node.domain == MICROSOFT:
        yield from _float_product(node, graph, file)
    elif node.op_type in FUSED and node.domain == MICROSOFT:
        yield from FUSED[node.op_type](Fused(node, graph, file))
    elif node.op_type == "QLinearConcat" and node.domain == MICROSOFT:
        yield from _concat(node)
    elif node.op_type in QUANTISED and node.domain in _domains(node.op_type):
        yield from _quantised(node, QUANTISED[node.op_type], graph, file)
    else:
        yield node


def _domains(operator: str) -> tuple[str, ...]:
    own = OWN_DOMAINS if onnx.defs.has(operator) else ()
    return (*own, MICROSOFT) if operator in TABLE else own


def _at(node: onnx.NodeProto, position: int) -> str:
    return node.input[position] if position < len(node.input) else ""


def _name(node: onnx.NodeProto) -> str:
    return node.name or node.output[0]


def _attributes(node: onnx.NodeProto, drop: Sequence[str]) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute if a.name not in drop}


def _dequantised(node: onnx.NodeProto, at: int, inputs: Sequence[str], axis: int = 1) -> onnx.NodeProto:
    """A DequantizeLinear of the operand that begins at input `at`: its value, scale and zero point."""
    names = [name for name in inputs if name]
    return helper.make_node("DequantizeLinear", names, [f"{node.output[0]}@real{at}"], _name(node), axis=axis)


def _three(node: onnx.NodeProto, at: int) -> list[str]:
    return [_at(node, i) for i in range(at, at + 3)]


def _quantised(node: onnx.NodeProto, form: Quantised, graph: onnx.GraphProto, file: str) -> Iterator[onnx.NodeProto]:
    if any(a.name == "channels_last" and a.i for a in node.attribute):
        yield from _channels_last(node, form, graph, file)
        return
    attributes, operands = _attributes(node, form.drop) | dict(form.fixed), []
    axes = {"Conv": 0, "MatMul": 1, "Gemm": 0 if attributes.get("transB") else 1}
    for number, at in enumerate(form.operands):
        yield (made := _dequantised(node, at, _three(node, at), axes.get(form.operator, 1) if number else 1))
        operands.append(made.output[0])
    if form.bias is not None and _at(node, form.bias):
        yield (bias := _bias(node, form, graph, file))
        operands.append(bias.output[0])
    real = node.output[0] if form.real and not _at(node, form.result + 1) else f"{node.output[0]}@real"
    yield helper.make_node(form.operator, operands, [real], _name(node), **attributes)
    if real == node.output[0]:
        return
    zero = _at(node, form.result + 1)
    like = {} if zero else {LIKE: node.input[form.operands[0]]}
    inputs = [real, _at(node, form.result), *([zero] if zero else [])]
    yield helper.make_node("QuantizeLinear", inputs, list(node.output), _name(node), **like)


def _channels_last(
    node: onnx.NodeProto, form: Quantised, graph: onnx.GraphProto, file: str
) -> Iterator[onnx.NodeProto]:
    """The operator on N x C x H x W between two transposes. Weights are in this order; a global pool has four sizes."""
    kernel = next((t.dims for t in graph.initializer if form.bias and t.name == _at(node, form.operands[1])), ())
    window = _attributes(node, ()).get("kernel_shape", (0, 0))
    first, last = channels_first(len(kernel) or 2 + len(window))
    x, y, copy = f"{node.output[0]}@first", f"{node.output[0]}@last", onnx.NodeProto()
    yield helper.make_node("Transpose", node.input[:1], [x], _name(node), perm=first)
    copy.CopyFrom(node)
    copy.input[0], copy.output[0] = x, y
    next(a for a in copy.attribute if a.name == "channels_last").i = 0
    yield from _quantised(copy, form, graph, file)
    yield helper.make_node("Transpose", [y], list(node.output), _name(node), perm=last)


def _bias(node: onnx.NodeProto, form: Quantised, graph: onnx.GraphProto, file: str) -> onnx.NodeProto:
    """The int32 bias as real numbers: its scale is that of the products, which QGemm's alpha is a part of."""
    known = {t.name: t for t in graph.initializer}
    names = [_at(node, at + 1) for at in form.operands]
    if not all(name in known for name in names):
        raise fail("its scales are computed by the graph", file=file, node=_name(node), kind=node.op_type)
    own = known.get(_at(node, form.bias or 0))
    if form.operator == "Conv" and own is not None and len(own.dims) != 1:
        raise fail(f"bias of {len(own.dims)} dimensions", file=file, node=_name(node), kind=node.op_type)
    scales = [numpy_helper.to_array(known[name]).astype(np.float32) for name in names]
    factor = _attributes(node, form.drop).get("alpha", 1.0)
    product = np.ravel(scales[0] * scales[1] * np.float32(factor)).astype(np.float32)
    product = product[0] if product.size == 1 else product
    scale = numpy_helper.from_array(np.asarray(product), f"{node.output[0]}@bias_scale")
    zero = numpy_helper.from_array(np.zeros(product.shape, np.int32), f"{node.output[0]}@bias_zero")
    graph.initializer.extend([scale, zero])
    assert form.bias is not None
    inputs, output = [_at(node, form.bias), scale.name, zero.name], [f"{node.output[0]}@bias"]
    return helper.make_node("DequantizeLinear", inputs, output, _name(node), axis=0)


def _float_product(node: onnx.NodeProto, graph: onnx.GraphProto, file: str) -> Iterator[onnx.NodeProto]:
    """MatMulInteger, its sums times both scales, and the bias."""
    y, name = node.output[0], _name(node)
    scale_at, zero_at, w_scale, w_zero, bias = FLOAT_PRODUCTS[node.op_type]
    sizes = {t.name: tuple(t.dims) for t in graph.initializer}
    weights, added = sizes.get(node.input[1], ()), sizes.get(_at(node, bias))
    if weights and added is not None and prod(added) != weights[-1]:
        raise fail(f"bias of shape {added} for {weights[-1]} outputs", file=file, node=name, kind=node.op_type)
    if scale_at is None or zero_at is None:
        x, scale, zero = (f"{y}@{part}" for part in ("steps", "scale", "zero"))
        yield helper.make_node("DynamicQuantizeLinear", node.input[:1], [x, scale, zero], name)
    else:
        x, scale, zero = node.input[0], node.input[scale_at], _at(node, zero_at)
    yield helper.make_node("MatMulInteger", [x, node.input[1], zero, _at(node, w_zero)], [f"{y}@sums"], name)
    yield helper.make_node("Cast", [f"{y}@sums"], [f"{y}@real"], name, to=onnx.TensorProto.FLOAT)
    yield helper.make_node("Mul", [scale, node.input[w_scale]], [f"{y}@factor"], name)
    product = f"{y}@product" if _at(node, bias) else y
    yield helper.make_node("Mul", [f"{y}@real", f"{y}@factor"], [product], name)
    if _at(node, bias):
        yield helper.make_node("Add", [product, node.input[bias]], [y], name)


def _concat(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """QLinearConcat: scale and zero point of the result, then three inputs for each operand."""
    operands = [_dequantised(node, at, _three(node, at)) for at in range(2, len(node.input), 3)]
    yield from operands
    real = f"{node.output[0]}@real"
    yield helper.make_node("Concat", [o.output[0] for o in operands], [real], _name(node), **_attributes(node, ()))
    yield helper.make_node("QuantizeLinear", [real, *node.input[:2]], list(node.output), _name(node))


def _known_zeros(node: onnx.NodeProto, graph: onnx.GraphProto) -> bool:
    """The zero points are constants: then the operator is one on quantised values."""
    known = {t.name for t in graph.initializer}
    return all(name in known for name in (_at(node, 2), _at(node, 3)) if name)


def _integer(node: onnx.NodeProto, graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """ConvInteger, MatMulInteger: the same with scales of 1 and a result of type int32."""
    one, zero = f"{node.output[0]}@one", f"{node.output[0]}@zero"
    graph.initializer.append(numpy_helper.from_array(np.array(1, np.float32), one))
    graph.initializer.append(numpy_helper.from_array(np.array(0, np.int32), zero))
    known = {t.name: t for t in graph.initializer}
    operands, axis = [], 1 if node.op_type == "MatMulInteger" else 0
    for at in range(2):
        scale, own = one, _at(node, at + 2)
        if own in known and np.size(numpy_helper.to_array(known[own])) > 1:
            scale = f"{node.output[0]}@ones{at}"
            ones = np.ones(numpy_helper.to_array(known[own]).shape, np.float32)
            graph.initializer.append(numpy_helper.from_array(ones, scale))
        operands.append(_dequantised(node, at, [node.input[at], scale, own], axis))
    yield from operands
    real, names = f"{node.output[0]}@real", [o.output[0] for o in operands]
    yield helper.make_node(INTEGER[node.op_type], names, [real], _name(node), **_attributes(node, ()))
    yield helper.make_node("QuantizeLinear", [real, one, zero], list(node.output), _name(node))
