"""Zero points that a file leaves out: 0 in a type that the standard tells, or that follows from the node before."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LIKE = "like"  # attribute of a QuantizeLinear of our making: the tensor whose type the result has


def tell_zero_points(graph: onnx.GraphProto) -> None:
    """Give each QuantizeLinear and DequantizeLinear its zero point as a constant where the type of it is known."""
    known = {t.name: t for t in graph.initializer}
    types = {v.name: v.type.tensor_type.elem_type for v in graph.input} | {n: t.data_type for n, t in known.items()}
    made = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        kind = _type(node.output[0] if node.op_type == "QuantizeLinear" else node.input[0], made, types)
        for at in reversed([i for i, a in enumerate(node.attribute) if a.name == LIKE]):
            del node.attribute[at]
        if not kind or (len(node.input) > 2 and node.input[2]) or node.input[1] not in known:
            continue
        zero = f"{node.output[0]}@zero_point"
        data = np.zeros(tuple(known[node.input[1]].dims), helper.tensor_dtype_to_np_dtype(kind))
        graph.initializer.append(numpy_helper.from_array(data, zero))
        node.input[2:] = [zero]
        types[zero] = kind


def _type(name: str, made: Mapping[str, onnx.NodeProto], types: Mapping[str, int]) -> int:
    """The type of a tensor of integers; other nodes than QuantizeLinear hand on that of what they read first."""
    while name not in types:
        node = made.get(name)
        if node is None or not node.input or node.op_type == "Cast":
            return 0
        given = {a.name: a for a in node.attribute}
        if node.op_type != "QuantizeLinear":
            name = node.input[0]
        elif len(node.input) > 2 and node.input[2]:
            name = node.input[2]
        elif LIKE in given:
            name = given[LIKE].s.decode()
        else:
            return given["output_dtype"].i if "output_dtype" in given else int(TensorProto.UINT8)
    return types[name]
