"""ONNX files: float32, and int8 in the QDQ form of onnxruntime's static quantiser.

A DequantizeLinear of a constant is read as a quantised constant; those of activations become
`dequantize` and `quantize` ops that the canonicaliser later fuses into integer ops. ONNX is NCHW:
spatial ops are read between two transposes, which the canonicaliser then moves together and drops.
uint8 values become int8 by subtracting 128 from value and zero point alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from ..errors import EdgebuildError, fail
from ..ir import Array, Graph, Quant, Tensor, real_values
from ..ops import ONNX_READERS
from .builder import Builder, Node, check_surface

OPSETS = range(13, 100)
TYPES = {1: "float32", 2: "uint8", 3: "int8", 6: "int32", 7: "int64", 9: "bool"}
TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


class OnnxNode(Node):
    def __init__(self, builder: Builder, proto: onnx.NodeProto, opset: int) -> None:
        super().__init__(builder, proto.name or proto.output[0], proto.op_type, proto.input, proto.output)
        self._attrs = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
        self.proto, self.opset = proto, opset

    def attr(self, name: str, default: Any) -> Any:
        value = self._attrs.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def result(
        self, name: str, shape: tuple[int, ...], kind: str, inputs: Sequence[str], attrs: dict[str, Any]
    ) -> Tensor:
        first = self.builder.tensors[inputs[0]]
        dtype = attrs.get("to", "float32" if first.quant is not None and first.constant else first.dtype)
        return Tensor(name, shape, dtype)

    def nhwc(self, position: int) -> str:
        """Operand `position`, transposed from NCHW."""
        x = self.tensor(position)
        if len(x.shape) != 4:
            raise self.error(f"input '{x.name}' of shape {x.shape}", "only N x C x H x W is supported")
        view = Tensor(f"{self.outputs[0]}@in", tuple(x.shape[p] for p in TO_NHWC), x.dtype)
        self._add("transpose", [x.name], view, {"perm": TO_NHWC})
        return view.name

    def emit_nchw(self, kind: str, inputs: Sequence[str], **attrs: Any) -> None:
        """Add an NHWC op and transpose its result to the node's NCHW output."""
        shape = self._shape(kind, inputs, attrs)
        inner = Tensor(f"{self.outputs[0]}@nhwc", shape, "float32")
        self._add(kind, inputs, inner, attrs)
        final = Tensor(self.outputs[0], tuple(shape[p] for p in TO_NCHW), "float32")
        self._add("transpose", [inner.name], final, {"perm": TO_NCHW})

    def permuted(self, t: Tensor, perm: Sequence[int]) -> str:
        """A constant with its dimensions in another order."""
        assert t.data is not None
        name = f"{t.name}@{''.join(map(str, perm))}"
        quant = t.quant
        if quant is not None and quant.axis is not None:
            quant = Quant(quant.scale, quant.zero_point, list(perm).index(quant.axis % len(perm)))
        data = np.ascontiguousarray(t.data.transpose(perm))
        self.builder.tensors[name] = Tensor(name, data.shape, t.dtype, quant, data)
        return name

    def flat_bias(self, t: Tensor, channels: int) -> str:
        """A constant bias as a vector of `channels`."""
        assert t.data is not None
        if t.elements not in (1, channels):
            raise self.error(f"bias '{t.name}' of shape {t.shape} for {channels} outputs")
        data = np.ascontiguousarray(np.broadcast_to(t.data.ravel(), (channels,)))
        name = f"{t.name}@flat"
        self.builder.tensors[name] = Tensor(name, (channels,), t.dtype, t.quant, data)
        return name

    def real(self, t: Tensor) -> Array:
        """The real values of a constant, whether it is quantised or not."""
        return real_values(t)

    def dtype_of(self, code: int) -> str:
        if code not in TYPES:
            raise self.error(f"type {onnx.TensorProto.DataType.Name(code)}", "use FLOAT, INT32 or INT8")
        return TYPES[code]


def read_onnx(path: Path) -> Graph:
    """An ONNX model, as a graph in "onnx" arithmetic."""
    hints = ["the file is truncated or damaged, or breaks the ONNX standard"]
    try:
        model = onnx.load(path)
        onnx.checker.check_model(model)
        if any(isinstance(name, bytes) for name in _names(model.graph)):  # how protobuf gives what is no UTF-8
            raise ValueError("a name is not UTF-8")
    except Exception as problem:  # protobuf and the checker have no common base class
        first = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise fail(f"not a valid ONNX model: {first}", file=path.name, hints=hints) from None
    try:
        return _read(model, path.name)
    except (IndexError, KeyError, OverflowError, TypeError, ValueError) as problem:
        text = f"not a valid ONNX model: {type(problem).__name__}: {problem}"
        raise fail(text, file=path.name, hints=hints) from None


def _read(model: onnx.ModelProto, file: str) -> Graph:
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset not in OPSETS:
        hint = "convert it with onnx.version_converter or export it again"
        raise fail(f"opset {opset}; edgebuild reads {OPSETS.start} and later", file=file, hints=[hint])
    builder = Builder(file, "onnx")
    builder.tensors |= {t.name: t for t in (_constant(proto, file) for proto in model.graph.initializer)}
    inputs = [_input(v, file) for v in model.graph.input if v.name not in builder.tensors]
    builder.tensors |= {t.name: t for t in inputs}

    nodes = [OnnxNode(builder, proto, opset) for proto in model.graph.node]
    _refuse_unknown(nodes, file)
    for node in nodes:
        _read_node(node)
    graph = builder.finish([t.name for t in inputs], [v.name for v in model.graph.output])
    check_surface(graph)
    return graph


def _names(graph: onnx.GraphProto) -> Iterator[Any]:
    for node in graph.node:
        yield from (node.name, *node.input, *node.output)
    yield from (value.name for value in (*graph.input, *graph.output))


def _constant(proto: onnx.TensorProto, file: str) -> Tensor:
    try:
        data = numpy_helper.to_array(proto)
    except (KeyError, TypeError, ValueError):
        raise fail(f"constant '{proto.name}' is damaged: type, shape and data disagree", file=file) from None
    if data.dtype.kind == "f" and np.isnan(data).any():
        raise fail(f"constant '{proto.name}' holds values that are not numbers", file=file)
    return Tensor(proto.name, data.shape, str(data.dtype), None, data)


def _input(value: onnx.ValueInfoProto, file: str) -> Tensor:
    kind = value.type.tensor_type
    sizes = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim]
    if not all(isinstance(n, int) and n > 0 for n in sizes):
        shown = "x".join(map(str, sizes))
        hint = "fix it, e.g. with onnxruntime.tools.make_dynamic_shape_fixed, or export with static shapes"
        raise fail(f"input '{value.name}' has the dynamic shape {shown}", file=file, hints=[hint])
    if kind.elem_type not in (1, 3, 6):
        name = onnx.TensorProto.DataType.Name(kind.elem_type)
        raise fail(f"input '{value.name}' is {name}", file=file, hints=["use FLOAT, INT8 or INT32"])
    return Tensor(value.name, tuple(int(n) for n in sizes), TYPES[kind.elem_type])


def _refuse_unknown(nodes: Sequence[OnnxNode], file: str) -> None:
    problems = []
    for node in nodes:
        if node.proto.domain not in ("", "ai.onnx") or node.origin not in {*ONNX_READERS, *SPECIAL, *FOLDED}:
            full = f"{node.proto.domain}.{node.origin}" if node.proto.domain else node.origin
            problems.append(node.error(f"operator {full} is not supported", "edgebuild ops lists what is supported"))
    if problems:
        raise EdgebuildError(*(d for p in problems for d in p.diagnostics))


def _read_node(node: OnnxNode) -> None:
    tensors = node.builder.tensors
    for name in node.inputs:
        if name and name not in tensors:
            raise node.error(f"reads '{name}', which nothing computes")
    if node.origin == "Shape":
        shape = np.array(tensors[node.inputs[0]].shape, np.int64)
        tensors[node.outputs[0]] = Tensor(node.outputs[0], shape.shape, "int64", None, shape)
    elif node.origin == "Constant" or (node.origin != "DequantizeLinear" and _all_constant(node)):
        _fold(node)
    elif node.origin in SPECIAL:
        SPECIAL[node.origin](node)
    elif node.origin in ONNX_READERS:
        ONNX_READERS[node.origin](node)
    else:
        raise node.error(f"operator {node.origin} is supported on constants only")


def _all_constant(node: OnnxNode) -> bool:
    read = [node.builder.tensors[n] for n in node.inputs if n]
    return bool(read) and all(t.constant and t.quant is None for t in read)


def _fold(node: OnnxNode) -> None:
    """Compute a node whose operands are all constants with the ONNX package's own evaluator."""
    from onnx.reference import ReferenceEvaluator

    tensors = node.builder.tensors
    read = [n for n in node.inputs if n]
    values = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(tensors[n].data.dtype), None)  # type: ignore[union-attr]
        for n in read
    ]
    results = [onnx.ValueInfoProto(name=n) for n in node.outputs if n]
    body = onnx.helper.make_graph([node.proto], "constant", values, results)
    model = onnx.helper.make_model(body, opset_imports=[onnx.helper.make_opsetid("", node.opset)])
    for name, data in zip(
        [n for n in node.outputs if n],
        ReferenceEvaluator(model).run(None, {n: tensors[n].data for n in read}),
        strict=True,
    ):
        data = np.asarray(data)
        tensors[name] = Tensor(name, data.shape, str(data.dtype), None, data)


def _quantisation(node: OnnxNode) -> tuple[Quant, bool]:
    """Scale and zero point of a Q or DQ node, for int8 values; and whether the values are uint8."""
    scale = node.constant(1, "scale").data
    zero = (
        node.constant(2, "zero point").data
        if len(node.inputs) > 2 and node.inputs[2]
        else np.zeros_like(scale, np.uint8)
    )
    assert scale is not None and zero is not None
    if zero.dtype not in (np.int8, np.uint8, np.int32):
        raise node.error(f"quantised type {zero.dtype}", "quantise to int8")
    if not (np.all(np.isfinite(scale)) and np.all(scale > 0)):
        raise node.error(f"scale {np.ravel(scale).min()}", "scales must be positive and finite")
    if zero.size != scale.size:
        raise node.error(f"{scale.size} scales and {zero.size} zero points")
    if node.attr("block_size", 0):
        raise node.error("blocked quantisation", "quantise per tensor or per channel")
    unsigned = zero.dtype == np.uint8
    zeros = tuple(int(z) - (128 if unsigned else 0) for z in np.ravel(zero))
    axis = node.attr("axis", 1) if scale.size > 1 else None
    return Quant(tuple(float(s) for s in np.ravel(scale)), zeros, axis), unsigned


def _read_dequantize(node: OnnxNode) -> None:
    x, (quant, unsigned) = node.tensor(0), _quantisation(node)
    if x.data is not None:
        data = (x.data.astype(np.int16) - 128).astype(np.int8) if unsigned else x.data
        node.builder.tensors[node.outputs[0]] = Tensor(node.outputs[0], x.shape, str(data.dtype), quant, data)
        return
    if x.quant is None or x.quant != quant:
        if x.dtype != "int8" or not quant.per_tensor or x.quant is not None:
            raise node.error(f"'{x.name}' is dequantised with another scale than it was quantised with")
        node.builder.tensors[x.name] = Tensor(x.name, x.shape, "int8", quant)  # an int8 input of the graph
    node._add("dequantize", [x.name], Tensor(node.outputs[0], x.shape, "float32"), {})


def _read_quantize(node: OnnxNode) -> None:
    x, (quant, _) = node.tensor(0), _quantisation(node)
    if not quant.per_tensor:
        raise node.error("an activation is quantised per channel", "quantise activations per tensor")
    node._add("quantize", [x.name], Tensor(node.outputs[0], x.shape, "int8", quant), {})


def _read_batch_norm(node: OnnxNode) -> None:
    """A scale and an offset per channel, which the canonicaliser folds into the op before."""
    x = node.tensor(0)
    scale, offset, mean, variance = (real_values(node.constant(i, "parameter")).astype(np.float64) for i in range(1, 5))
    factor = scale / np.sqrt(variance + node.attr("epsilon", 1e-5))
    shape = (-1,) + (1,) * (len(x.shape) - 2)
    parts = {"scale": factor, "offset": offset - mean * factor}
    for part, values in parts.items():
        data = values.astype(np.float32).reshape(shape)
        name = f"{node.outputs[0]}@{part}"
        node.builder.tensors[name] = Tensor(name, data.shape, "float32", None, data)
    scaled = Tensor(f"{node.outputs[0]}@scaled", x.shape, x.dtype)
    node._add("mul", [x.name, f"{node.outputs[0]}@scale"], scaled, {"clamp": (None, None)})
    node._add(
        "add",
        [scaled.name, f"{node.outputs[0]}@offset"],
        Tensor(node.outputs[0], x.shape, x.dtype),
        {"clamp": (None, None)},
    )


SPECIAL = {
    "DequantizeLinear": _read_dequantize,
    "QuantizeLinear": _read_quantize,
    "BatchNormalization": _read_batch_norm,
}
FOLDED = {"Constant", "ConstantOfShape", "Shape", "Slice", "Cast", "Sub", "Div", "Range", "Expand", "Where", "Equal"}
