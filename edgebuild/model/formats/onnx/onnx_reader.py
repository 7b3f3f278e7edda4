"""Read ONNX files: float32, and int8 in the QDQ form of onnxruntime's static quantiser.

A DequantizeLinear of a constant is read as a quantised constant. Those of activations become
`dequantize` and `quantize` ops, which the canonicaliser later fuses into integer ops. ONNX is NCHW:
spatial ops are put between two transposes, which the canonicaliser moves together and drops.
uint8 values become int8 by subtracting 128 from values and zero points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
import onnx.inliner
from onnx import numpy_helper

from ....base.errors import fail, visible
from ...ir import Arithmetic, Graph, Quant, Tensor, real_values
from ..builder import GraphBuilder, Node, checked_size, needed
from ..compose import axis_of, batch_normalised, dequantize
from . import control_flow, onnx_ml, other_nodes, preparation
from .fused import CELLS
from .integers import REQUANT, name_domain, read_shifted
from .onnx_checks import OWN_DOMAINS, UNKNOWN, check, check_types, in_checked_form, load, opset_of
from .onnx_layers import SIGNED, TYPES, OnnxNode
from .onnx_operators import READERS
from .other_nodes import PARTS, PLACES, dequantised, quantised, spread
from .preparation import bind, prepared

OPSETS = range(7, 100)
NEWEST = onnx.defs.onnx_opset_version()
UNROLLED = ("Range",)  # not inlined, because its body is a Loop; with constants it is folded


def read_onnx(
    path: Path,
    shapes: Mapping[str, Sequence[int]] = MappingProxyType({}),
    outputs: Sequence[str] = (),
    bound: Mapping[str, Sequence[int | float]] = MappingProxyType({}),
) -> Graph:
    """An ONNX model, up to its outputs or `outputs`, as a graph in ONNX arithmetic. Raises EdgebuildError.

    `shapes`: of inputs, by name. `bound`: values of inputs that become constants, by name.
    """
    file = visible(path.name)
    model = load(path, file)
    name_domain(model)
    in_checked_form(model, file)
    bind(model.graph, file, bound)
    _add_default_attributes(model)
    check(model, file, outputs or [value.name for value in model.graph.output])
    try:
        check_types(model, file)
        return _read(prepared(model, file, shapes, outputs), file)
    except (ArithmeticError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as problem:
        text = f"not a valid ONNX model: {type(problem).__name__}: {problem}"
        hint = "it breaks the ONNX standard where the checker does not look, or edgebuild has a fault: please report it"
        raise fail(text, file=file, hints=[hint]) from None


def _read(model: onnx.ModelProto, file: str) -> Graph:
    opset = opset_of(model)
    if opset not in OPSETS:
        hint = "convert it with onnx.version_converter or export it again"
        raise fail(f"opset {opset}; edgebuild reads {OPSETS.start} and later", file=file, hints=[hint])
    model = _inlined(model)
    builder = GraphBuilder(file, Arithmetic.ONNX)
    builder.tensors |= {t.name: t for t in (_constant(proto, file) for proto in model.graph.initializer)}
    inputs = [_input(v, file) for v in model.graph.input if v.name not in builder.tensors]
    builder.tensors |= {t.name: t for t in inputs}

    outputs = [v.name for v in model.graph.output]
    wanted = needed([(control_flow.reads(node), node.output) for node in model.graph.node], outputs)
    nodes = [OnnxNode(builder, proto, opset) for proto, used in zip(model.graph.node, wanted, strict=True) if used]
    builder.read(nodes, _check_operator, _read_node, outputs)
    return builder.finish([t.name for t in inputs], outputs)


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its own functions inlined, and with the standard's bodies of operators without a reader here."""
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    done = list[tuple[str, str]]()
    while (bodies := _with_bodies(model)) != done:  # bodies may contain further operators with bodies
        model, done = _with_bodies_inlined(model, bodies), bodies
    return model


def _with_bodies(model: onnx.ModelProto) -> list[tuple[str, str]]:
    nodes = [node for part in control_flow.graphs(model.graph) for node in part.node]
    foreign = {node.op_type for node in nodes if not node.domain} - {*READERS, *SPECIAL, *UNROLLED}
    return [("", name) for name in sorted(foreign) if onnx.defs.has(name) and _has_body(name, NEWEST)]


def _with_bodies_inlined(model: onnx.ModelProto, bodies: list[tuple[str, str]]) -> onnx.ModelProto:
    _add_default_attributes(model)
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    declared = {value.name for value in (*model.graph.input, *model.graph.value_info)}
    for part in control_flow.graphs(model.graph):  # the inliner looks up all types in the outermost graph
        values = [onnx.helper.make_tensor_value_info(c.name, c.data_type, c.dims) for c in part.initializer]
        values += [*part.input, *part.value_info]
        model.graph.value_info.extend(value for value in values if value.name not in declared)
        declared |= {value.name for value in values}
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("", onnx.TensorProto.FLOAT, None))  # left out
    return onnx.inliner.inline_selected_functions(model, bodies, inline_schema_functions=True)


def _add_default_attributes(model: onnx.ModelProto) -> None:
    """Add missing attributes with their defaults to nodes with a body: the onnx package's inliner does not."""
    opset = opset_of(model)
    for node in (node for part in control_flow.graphs(model.graph) for node in part.node):
        if node.domain or not (onnx.defs.has(node.op_type, opset) and _has_body(node.op_type, opset)):
            continue
        given = {a.name for a in node.attribute}
        for name, attribute in onnx.defs.get_schema(node.op_type, opset).attributes.items():
            if name not in given and attribute.default_value.type:
                node.attribute.add().CopyFrom(attribute.default_value)
                node.attribute[-1].name = name


@cache
def _has_body(name: str, opset: int) -> bool:
    schema = onnx.defs.get_schema(name, opset)
    return bool(schema.has_function or schema.has_context_dependent_function)  # type: ignore[attr-defined]


def _constant(proto: onnx.TensorProto, file: str) -> Tensor:
    try:
        data = numpy_helper.to_array(proto)
    except (KeyError, TypeError, ValueError):
        raise fail(f"constant '{proto.name}' is damaged: type, shape and data disagree", file=file) from None
    data = preparation.in_float32(data)
    return Tensor(proto.name, data.shape, str(data.dtype), None, data)


def _input(value: onnx.ValueInfoProto, file: str) -> Tensor:
    kind = value.type.tensor_type
    sizes = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim]
    if not all(isinstance(n, int) and n > 0 for n in sizes):
        shown = "x".join(map(str, sizes))
        hint = f"fix it with --shape {value.name}=1,... or export with static shapes of at least 1"
        word = "empty" if 0 in sizes else "dynamic"
        raise fail(f"input '{value.name}' has the {word} shape {shown}", file=file, hints=[hint])
    if kind.elem_type not in TYPES:
        form = (value.type.WhichOneof("value") or "tensor_type").removesuffix("_type")
        name = onnx.TensorProto.DataType.Name(kind.elem_type) if form == "tensor" else f"no tensor but of kind '{form}'"
        hint = "use FLOAT, BOOL or integers; --outputs NAME... ends the model where it does not need this input"
        raise fail(f"input '{value.name}' is {name}", file=file, hints=[hint])
    return checked_size(Tensor(value.name, tuple(int(n) for n in sizes), TYPES[kind.elem_type]), file)


def _check_operator(node: Node) -> None:
    assert isinstance(node, OnnxNode)
    if node.proto.domain == onnx_ml.DOMAIN and node.origin in onnx_ml.ML_READERS:
        return
    if node.proto.domain not in OWN_DOMAINS:
        raise node.error(
            f"operator {node.proto.domain}.{node.origin} is not supported", REMEDIES.get(node.origin, UNKNOWN)
        )


def _read_node(node: Node) -> None:
    assert isinstance(node, OnnxNode)
    tensors = node.builder.tensors
    for name in node.inputs:
        if name in node.builder.unsupported_results:
            raise node.builder.unsupported_results[name]
        if name and name not in tensors:
            raise node.error(f"reads '{name}', which nothing computes")
    _refuse_random(node)
    if node.proto.domain == onnx_ml.DOMAIN:
        onnx_ml.ML_READERS[node.origin](node)
    elif node.origin in ("Shape", "Size"):
        _read_shape(node)
    elif node.origin == "Constant" or (node.origin != "DequantizeLinear" and _all_constant(node)):
        preparation.fold(node, READERS.get(node.origin))
    elif node.origin in control_flow.CONTROL:
        control_flow.CONTROL[node.origin](node, _read_body)
    elif node.origin in SPECIAL:
        SPECIAL[node.origin](node)
    elif (parts := EXPANDED[node.origin](node) if node.origin in EXPANDED else None) is not None:
        _read_parts(node, parts)
    elif node.origin in READERS:
        if node.origin in ORDERED:
            _scale_constants(node)
        READERS[node.origin](node)
    else:
        raise node.error(f"operator {node.origin} is not supported", REMEDIES.get(node.origin, UNKNOWN))


def _read_parts(node: OnnxNode, parts: Sequence[onnx.NodeProto]) -> None:
    """Read the nodes `parts` instead of `node`."""
    nodes = [OnnxNode(node.builder, part, node.opset) for part in parts]
    node.builder.read(nodes, _check_operator, _read_node, node.outputs)


def _refuse_random(node: OnnxNode) -> None:
    """Raise EdgebuildError for operators with random results, which the evaluator would fold to constants."""
    if node.origin in RANDOM and node.proto.domain in OWN_DOMAINS:
        raise node.error(f"operator {node.origin} is not supported", AT_RANDOM)
    if node.origin == "Dropout" and node.has(2):
        training = node.constant(2, "training_mode").data
        drops = not node.inputs[1] or np.any(real_values(node.constant(1, "ratio")))
        if np.any(training) and drops:
            raise node.error("training_mode is true: it drops elements at random", EVALUATION)


def _scale_constants(node: OnnxNode) -> None:
    """Give unquantised integer constants beside a quantised activation its scale, because they are in its steps."""
    tensors = node.builder.tensors
    read = [tensors[name] for name in node.inputs if name]
    scaled = next((t for t in read if t.quant is not None and not t.constant), None)
    for at, name in enumerate(node.inputs):
        if scaled is None or not name or (t := tensors[name]).data is None or t.quant is not None:
            continue
        dtype, less = SIGNED.get(t.dtype, ("", 0))
        if dtype == scaled.dtype:
            stored = replace(t, name=f"{name}@{node.outputs[0]}", dtype=dtype, quant=scaled.quant,
                           data=(t.data.astype(np.int64) - less).astype(dtype))  # fmt: skip
            tensors[stored.name] = stored
            node.inputs = [*node.inputs[:at], stored.name, *node.inputs[at + 1 :]]


def _read_body(node: OnnxNode, body: onnx.GraphProto, given: Sequence[str], prefix: str) -> list[str]:
    """Read a copy of a body on the inputs `given`; return the names of its outputs."""
    copy, outputs = control_flow.copied(body, given, prefix)
    node.builder.tensors |= {t.name: t for t in (_constant(p, node.builder.graph.file) for p in copy.initializer)}
    node.builder.read([OnnxNode(node.builder, p, node.opset) for p in copy.node], _check_operator, _read_node, outputs)
    return outputs


def _read_shape(node: OnnxNode) -> None:
    """Read Shape and Size as constants, because all shapes are static."""
    x = node.tensor(0)
    first, past = node.attr("start", 0), node.attr("end", None)
    value = np.array(x.shape[first:past] if node.origin == "Shape" else x.elements, np.int64)
    node.store(node.outputs[0], value)


def _all_constant(node: OnnxNode) -> bool:
    """Whether a node is folded: all operands are constants, and it is no control flow, whose body is read instead.

    Quantised constants are not folded, because ops read them as such, except by reductions and FOLDED_IN_FLOAT.
    """
    read = [node.builder.tensors[n] for n in node.inputs if n]
    stored = any(t.quant is not None for t in read) and not node.origin.startswith(FOLDED_IN_FLOAT)
    constant = bool(read) and all(t.constant for t in read) and not stored
    return constant and node.origin not in control_flow.CONTROL


def _quantisation(node: OnnxNode) -> tuple[Quant, str, int]:
    """Quantisation of a QuantizeLinear or DequantizeLinear, its signed type, and the number to subtract from values."""
    scale, zero = node.constant(1, "scale").array, node.given(2, "zero point")
    if zero is None:
        zero = np.zeros_like(scale, node.tensor(0).dtype if node.origin == "DequantizeLinear" else np.uint8)
    if str(zero.dtype) in HALVES and node.origin == "DequantizeLinear" and node.tensor(0).constant:
        zero = zero.astype(np.int8)
    if str(zero.dtype) not in SIGNED:
        raise node.error(f"quantised type {zero.dtype}", f"quantise to one of: {', '.join(SIGNED)}")
    if not (np.all(np.isfinite(scale)) and np.all(scale > 0)):
        remedy = MASK if np.isinf(scale).any() else ""
        raise node.error(f"scale {np.ravel(scale).min()}", f"scales must be positive and finite{remedy}")
    if zero.size != scale.size:
        raise node.error(f"{scale.size} scales and {zero.size} zero points")
    dtype, less = SIGNED[str(zero.dtype)]
    zeros = tuple(int(z) - less for z in np.ravel(zero))
    axis = axis_of(node, node.attr("axis", 1), len(node.tensor(0).shape)) if scale.size > 1 else None
    return Quant(tuple(float(s) for s in np.ravel(scale)), zeros, axis), dtype, less


def _read_dequantize(node: OnnxNode) -> None:
    """Read DequantizeLinear. A blockwise quantised constant becomes float, as kernels have one scale per channel."""
    x = node.tensor(0)
    if x.constant and (scales := spread(node)) is not None and node.attr("block_size", 0):
        node.store(node.outputs[0], (x.array.astype(np.float32) - scales[1].astype(np.float32)) * scales[0])
        return
    if not x.constant and (parts := dequantised(node)):
        return _read_parts(node, parts)
    dequantize(node, *_quantisation(node))


def _read_quantize(node: OnnxNode) -> None:
    if parts := quantised(node):
        return _read_parts(node, parts)
    x, (quant, dtype, _) = node.tensor(0), _quantisation(node)
    node._add("quantize", [x.name], Tensor(node.outputs[0], x.shape, dtype, quant), {})


def _read_batch_norm(node: OnnxNode) -> None:
    if node.attr("training_mode", 0) or any(node.outputs[1:]):  # before opset 14, further results mean training
        raise node.error("it is in training mode and normalises by the batch's own statistics", EVALUATION)
    batch_normalised(node, node.attr("epsilon", 1e-5))


ORDERED = ("Clip", "Concat")  # operators that compare or move integers of one scale
FOLDED_IN_FLOAT = ("Reduce", "Global", "TopK", "CumSum")  # prefixes of operators that are folded in floats
HALVES = ("int4", "uint4")  # types of constants that become int8
SPECIAL = {
    "DequantizeLinear": _read_dequantize,
    "QuantizeLinear": _read_quantize,
    "BatchNormalization": _read_batch_norm,
    REQUANT: read_shifted,
    **other_nodes.READERS,
}
EXPANDED = {**PARTS, **CELLS, **PLACES}
CUT = "its result has no fixed size; end the model before it with --outputs and go on in the application"
REMEDIES = dict.fromkeys(("ConstantOfShape", "NonMaxSuppression", "NonZero", "Range", "Unique"), CUT)
RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
AT_RANDOM = "its results are random: make them an input of the model, which the application fills"
EVALUATION = "export the model for inference: model.eval() in PyTorch"
MASK = "; give a mask large numbers, as -1e4, in place of -inf before the model is quantised"
