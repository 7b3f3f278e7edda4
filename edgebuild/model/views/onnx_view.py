"""A graph as an ONNX file for viewers such as Netron: ops in a domain of their own, and the plan as metadata.

Such a file is looked at, not read back: no other program computes these ops. The text form (`formats.text`) is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...base.errors import fail

if TYPE_CHECKING:
    from ..ir import Graph, Op, Tensor

DOMAIN = "edgebuild"
IR_VERSION = 10  # the first in which nodes have metadata
MOST = (1 << 31) - (1 << 20)  # bytes of a protobuf message, but for names
INT64 = 1 << 63
NOT_OF_OPS = ("kind", "name")  # columns of a report's layers that the node says itself


def onnx_file(graph: Graph, report: Mapping[str, Any] | None = None) -> bytes:
    """The graph, valid for `onnx.checker`. With a report, each node has its row of layers and its result's place.

    Scales and zero points are quantisation annotations. Raises EdgebuildError for constants of over 2 GB.
    """
    from onnx import GraphProto, helper, numpy_helper

    read = dict.fromkeys(n for op in graph.ops for n in op.inputs)
    constants = [t for n in (*read, *graph.outputs) if (t := graph.tensors[n]).data is not None]
    if sum(t.bytes for t in constants) > MOST:
        raise fail("constants of more than 2 GB do not go into an ONNX file", file=graph.file)
    drawn = GraphProto(name=graph.file)
    drawn.input.extend(_value(graph.tensors[name]) for name in graph.inputs)
    drawn.output.extend(_value(graph.tensors[name]) for name in dict.fromkeys(graph.outputs))
    results = [graph.result(op) for op in graph.ops]
    drawn.value_info.extend(_value(t) for t in results if t.name not in graph.outputs)
    drawn.initializer.extend(numpy_helper.from_array(t.array, t.name) for t in {t.name: t for t in constants}.values())
    drawn.node.extend(_nodes(graph, report or {"layers": (), "layout": {"buffers": ()}}))
    for name in dict.fromkeys((*graph.inputs, *read, *(t.name for t in results))):
        _annotate(drawn, graph.tensors[name])
    domains = [helper.make_opsetid(DOMAIN, 1), helper.make_opsetid("", 21)]
    model = helper.make_model(drawn, opset_imports=domains, ir_version=IR_VERSION, producer_name="edgebuild")
    if report:
        helper.set_model_props(model, {k: str(v) for k, v in {**report["totals"], **report["ram"]}.items()})
    return bytes(model.SerializeToString(deterministic=True))


def _value(t: Tensor) -> Any:
    import numpy as np
    from onnx import helper

    return helper.make_tensor_value_info(t.name, helper.np_dtype_to_tensor_dtype(np.dtype(t.dtype)), t.shape)


def _nodes(graph: Graph, report: Mapping[str, Any]) -> Iterator[Any]:
    from onnx import helper

    rows = {(row["kind"], row["name"]): row for row in report["layers"]}
    count = Counter((op.kind, op.name) for op in graph.ops)  # a node of the file may have become several ops
    places = {b["name"]: b for b in report["layout"]["buffers"]}
    for op in graph.ops:
        node = helper.make_node(op.kind, op.inputs, op.outputs, op.name, op.origin, DOMAIN)
        node.attribute.extend(helper.make_attribute(k, v) for k, v in sorted(_attributes(op)))
        place = {f"arena_{k}": places.get(op.outputs[0], {}).get(k) for k in ("memory", "offset", "bytes", "rows")}
        row = rows.get((op.kind, op.name), {}) if count[op.kind, op.name] == 1 else {}
        for key, value in {**row, **place}.items():
            if value is not None and key not in NOT_OF_OPS:
                node.metadata_props.add(key=key, value=str(value))
        yield node


def _attributes(op: Op) -> Iterator[tuple[str, Any]]:
    """Numbers, texts and rows of numbers as they are; what ONNX has no type for as text, and nothing for None."""
    for key, value in op.attrs.items():
        of = {type(v) for v in value} if isinstance(value, tuple) else {type(value)}
        fits = of in ({int}, {bool}) and all(abs(v) < INT64 for v in (value if isinstance(value, tuple) else (value,)))
        if value is not None:
            yield key, value if fits or of in ({float}, {str}) else str(value)


def _annotate(drawn: Any, t: Tensor) -> None:
    """Add scales and zero points of a tensor, as initialisers that its annotation names."""
    import numpy as np
    from onnx import numpy_helper

    if t.quant is None:
        return
    note = drawn.quantization_annotation.add(tensor_name=t.name)
    for key, values, kind in (("SCALE", t.quant.scale, "f4"), ("ZERO_POINT", t.quant.zero_point, "i4")):
        name = f"{t.name} {key.lower().replace('_', ' ')}"
        drawn.initializer.append(numpy_helper.from_array(np.array(values, kind), name))
        note.quant_parameter_tensor_names.add(key=f"{key}_TENSOR", value=name)
