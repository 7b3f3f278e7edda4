"""Sizes that indices among the inputs must stay below, so that random ones are in range."""

from __future__ import annotations

from pathlib import Path


def table_rows(model: Path, form: str) -> int | None:
    """Rows of the smallest constant table that a computed index looks into; None where there is none."""
    rows = _onnx_tables(model) if form == "onnx" else _tflite_tables(model)
    return min(rows, default=None)


def _onnx_tables(model: Path) -> list[int]:
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    tables = {tensor.name: tensor.dims for tensor in graph.initializer}
    return [
        tables[node.input[0]][0]
        for node in graph.node
        if node.op_type == "Gather" and node.input[0] in tables and node.input[1] not in tables
    ]


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
