"""Sizes that indices among the inputs must stay below, so that random ones are in range."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..formats import format_of

LOOKUPS = ("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND")  # in the first operand by the second
MOVES = ("Cast", "Concat", "Expand", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


def bounds(model: Path) -> tuple[int | None, dict[str, int]]:
    """Rows of the smallest constant table that a computed index looks into, and by input the smallest size it indexes.

    None and no entry where there is no such thing.
    """
    form = format_of(model, model.read_bytes())
    if form is None or form.name not in ("tflite", "onnx"):
        return None, {}
    if form.name == "tflite":
        return min(_tflite_tables(model), default=None), {}
    import onnx

    file = onnx.load(str(model), load_external_data=False)
    tables = {tensor.name: tensor.dims for tensor in file.graph.initializer}
    sizes: dict[str, int] = {}
    rows = []
    for node, extents in _lookups(file):
        if node.op_type == "Gather" and node.input[0] in tables:
            rows.append(tables[node.input[0]][0])
        for name in _sources(file.graph, node.input[1]):
            sizes[name] = min([*extents, sizes.get(name, extents[0])])
    return min(rows, default=None), sizes


def _lookups(file: Any) -> Iterator[tuple[Any, list[int]]]:
    """Nodes with a computed index, and the sizes of the dimensions which it counts."""
    import onnx

    shapes = {tensor.name: list(tensor.dims) for tensor in file.graph.initializer}
    constants = set(shapes)
    inferred = onnx.shape_inference.infer_shapes(file).graph
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        shapes.setdefault(value.name, [d.dim_value for d in value.type.tensor_type.shape.dim])
    for node in file.graph.node:
        if node.op_type not in LOOKUPS or node.input[1] in constants:
            continue
        shape, own = shapes.get(node.input[0], []), {a.name: a.i for a in node.attribute}
        extents = shape[own.get("axis", 0) :][:1]
        if node.op_type.endswith("ND"):
            first = own.get("batch_dims", 0)
            extents = shape[first : first + (shapes.get(node.input[1]) or [0])[-1]]
        if extents and min(extents) > 0:
            yield node, extents


def _sources(graph: Any, name: str) -> set[str]:
    """Inputs of the graph whose values reach this tensor as they are."""
    producers = {result: node for node in graph.node for result in node.output}
    surface, sources, seen, open_names = {value.name for value in graph.input}, set(), set[str](), [name]
    while open_names:
        name = open_names.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in surface:
            sources.add(name)
        elif name in producers and producers[name].op_type in MOVES:
            node = producers[name]
            open_names += node.input if node.op_type == "Concat" else node.input[:1]
    return sources


def _tflite_tables(model: Path) -> list[int]:
    import tflite

    file = tflite.Model.GetRootAsModel(model.read_bytes(), 0)
    graph = file.Subgraphs(0)
    rows = []
    for n in range(graph.OperatorsLength()):
        op = graph.Operators(n)
        code = file.OperatorCodes(op.OpcodeIndex())
        kind = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        if kind in (tflite.BuiltinOperator.GATHER, tflite.BuiltinOperator.EMBEDDING_LOOKUP):
            table, index = (0, 1) if kind == tflite.BuiltinOperator.GATHER else (1, 0)
            if file.Buffers(graph.Tensors(op.Inputs(index)).Buffer()).DataLength() == 0:
                rows.append(int(graph.Tensors(op.Inputs(table)).Shape(0)))
    return rows
