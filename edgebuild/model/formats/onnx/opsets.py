"""ONNX files of older opsets, converted by the onnx package, with what its converter passes over."""

from __future__ import annotations

import onnx
from onnx import helper

from ....base.errors import fail
from .control_flow import graphs
from .signatures import OWN_DOMAINS

OLDEST, LOWEST = 13, 7  # opset that is read, and from which the onnx package converts to it
CONVERTED = ("Upsample",)  # operators that only older opsets have
PLACES = 11  # opset that first has attributes for the places of Resize
FOLDED = 1  # axis from which an older Hardmax takes all dimensions as one, by default


def newer(model: onnx.ModelProto, file: str) -> onnx.ModelProto:
    """The model in an opset that is read, converted by the onnx package if it is older."""
    opset = next((o.version for o in model.opset_import if o.domain in OWN_DOMAINS), 0)
    if opset < LOWEST and not _same(model, opset):
        return model
    if opset < LOWEST:
        for own in model.opset_import:
            own.version = LOWEST if own.domain in OWN_DOMAINS else own.version
    if opset >= OLDEST:
        return model
    from onnx import version_converter

    for graph in graphs(model.graph):
        _fold_hardmax(graph)
    try:
        model = version_converter.convert_version(model, OLDEST)
    except Exception as problem:  # the converter is C++ and has exceptions of its own
        first = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        text = f"opset {opset} cannot be converted to {OLDEST}: {first}"
        raise fail(text, file=file, hints=[f"export it with opset {OLDEST} or later"]) from None
    if opset < PLACES:
        _tell_places(model.graph)
    return model


def _same(model: onnx.ModelProto, opset: int) -> bool:
    """Whether all operators are in this old opset what they are in the lowest one that can be converted."""
    nodes = [node for part in graphs(model.graph) for node in part.node if node.domain in OWN_DOMAINS]
    known = all(onnx.defs.has(node.op_type, opset) for node in nodes)
    return opset > 0 and known and all(_since(node.op_type, opset) == _since(node.op_type, LOWEST) for node in nodes)


def _since(operator: str, opset: int) -> int:
    return int(onnx.defs.get_schema(operator, opset).since_version)


def _fold_hardmax(graph: onnx.GraphProto) -> None:
    """Before opset 13 Hardmax works on a matrix: the dimensions from its axis on are one."""
    nodes = list[onnx.NodeProto]()
    for node in graph.node:
        if node.op_type != "Hardmax" or node.domain not in OWN_DOMAINS:
            nodes.append(node)
            continue
        axis = next((a.i for a in node.attribute if a.name == "axis"), FOLDED)
        (x,), (y,) = node.input, node.output
        nodes += [
            helper.make_node("Shape", [x], [f"{y}@shape"]),
            helper.make_node("Flatten", [x], [f"{y}@matrix"], axis=axis),
            helper.make_node("Hardmax", [f"{y}@matrix"], [f"{y}@hardmax"], node.name, axis=1),
            helper.make_node("Reshape", [f"{y}@hardmax", f"{y}@shape"], [y]),
        ]
    del graph.node[:]
    graph.node.extend(nodes)


def _tell_places(graph: onnx.GraphProto) -> None:
    """Upsample, and Resize of opset 10, begin at the first element; the converter leaves the newer default."""
    for part in graphs(graph):
        for node in part.node:
            if node.op_type == "Resize" and node.domain in OWN_DOMAINS:
                node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
                node.attribute.append(helper.make_attribute("nearest_mode", "simple"))
