"""Ranks of parameter operands and values of attributes that operators ask for and the onnx package's checker passes.

The rules are those of the operators' documentation where onnxruntime refuses what breaks them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

VECTOR, SINGLE = (1,), (0, 1)
# Operator: ranks of its parameter operands by their position.
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
RANKS: Mapping[str, Mapping[int, Sequence[int]]] = {
    **{f"Reduce{name}": {1: VECTOR} for name in REDUCTIONS},
    **{key: {1: VECTOR} for key in ("Reshape", "Split", "Tile")},
    "Expand": {1: SINGLE},
    "Unsqueeze": {1: SINGLE},
    "Squeeze": {1: VECTOR},
    "Slice": {1: VECTOR, 2: VECTOR, 3: VECTOR, 4: VECTOR},
    "MatMulInteger": {2: SINGLE, 3: SINGLE},
    "ConvInteger": {2: SINGLE, 3: SINGLE},
    "QLinearConv": {1: SINGLE, 2: SINGLE, 4: SINGLE, 5: SINGLE, 6: SINGLE, 7: SINGLE},
    "QLinearMatMul": {1: SINGLE, 2: SINGLE, 6: SINGLE, 7: SINGLE},
    "QGemm": {1: SINGLE, 2: SINGLE, 4: SINGLE, 5: SINGLE, 7: SINGLE, 8: SINGLE},
    **{key: {1: VECTOR, 2: VECTOR} for key in ("InstanceNormalization", "GroupNormalization")},
    "BatchNormalization": {1: VECTOR, 2: VECTOR, 3: VECTOR, 4: VECTOR},
}
FLAG = (0, 1)
PADS = (b"NOTSET", b"SAME_UPPER", b"SAME_LOWER", b"VALID")
WINDOWED = ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "LpPool",
            "QLinearAveragePool")  # fmt: skip
# Operator: the values that its attributes may have.
VALUES: Mapping[str, Mapping[str, Sequence[int | bytes]]] = {
    **{key: {"auto_pad": PADS, "storage_order": FLAG} for key in WINDOWED},
    "TopK": {"largest": FLAG, "sorted": FLAG},
    "Gelu": {"approximate": (b"none", b"tanh")},
    "LpNormalization": {"p": (1, 2)},
}
ROWS = ("LayerNormalization", "RMSNormalization")
SMOOTH = ("antialias", "exclude_outside")  # of a Resize that weighs elements


def broken(node: onnx.NodeProto, shapes: Mapping[str, Sequence[int]]) -> str | None:
    """Tell what is wrong with a node's parameters. `shapes`: of constants and inputs of the graph by name."""
    for at, allowed in RANKS.get(node.op_type, {}).items():
        name = node.input[at] if at < len(node.input) else ""
        if name in shapes and len(shapes[name]) not in allowed:
            most = "a vector" if allowed == VECTOR else "one number or a vector"
            return f"operand {at} '{name}' has {len(shapes[name])} dimensions; it must be {most}"
    if node.op_type == "QLinearMatMul" and node.input[3] in shapes:
        matrix = tuple(shapes[node.input[3]])
        for name in node.input[4:6]:
            if len(shapes.get(name, ())) > 1 and tuple(shapes[name]) != (*matrix[:-2], 1, matrix[-1]):
                return f"'{name}' has the shape {tuple(shapes[name])}; it must be one number or one for each column"
    own = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    for name, values in VALUES.get(node.op_type, {}).items():
        if name in own and own[name] not in values:
            return f"attribute '{name}' is {_shown(own[name])}; allowed: {', '.join(map(_shown, values))}"
    if node.op_type in ROWS and node.input[0] in shapes:
        return _unfit(node.input, own.get("axis", -1), shapes)
    if node.op_type == "Resize" and own.get("mode", b"nearest") == b"nearest":
        wrong = [name for name in SMOOTH if own.get(name, 0)]
        return f"attribute '{wrong[0]}' of a Resize that takes the nearest" if wrong else None
    return None


def _unfit(names: Sequence[str], axis: int, shapes: Mapping[str, Sequence[int]]) -> str | None:
    """Tell what is wrong with the axis or the factors of a normalisation of all elements from the axis on."""
    rank = len(shapes[names[0]])
    if not -rank <= axis < rank:
        return f"axis {axis} of an operand of {rank} dimensions"
    wide = [n for n in names[1:] if len(shapes.get(n, ())) > rank]
    return f"'{wide[0]}' has {len(shapes[wide[0]])} dimensions, the operand {rank}" if wide else None


def _shown(value: int | bytes) -> str:
    return repr(value.decode(errors="replace")) if isinstance(value, bytes) else str(value)


def known_shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Shapes of the graph's inputs and constants by name; 0 for a size that is open."""
    inputs = [(v.name, v.type.tensor_type.shape) for v in graph.input if v.type.tensor_type.HasField("shape")]
    found = {name: tuple(d.dim_value for d in shape.dim) for name, shape in inputs}
    found |= {t.name: tuple(t.dims) for t in graph.initializer}
    for node in (n for n in graph.node if n.op_type == "Constant" and n.output):
        values = [helper.get_attribute_value(a) for a in node.attribute if not a.name.startswith("sparse")]
        for value in values:
            found[node.output[0]] = tuple(value.dims) if isinstance(value, onnx.TensorProto) else np.shape(value)
    return found
