"""Zeros that a file leaves out, and stored numbers that it reads.

A zero point is 0 in a type that the standard tells, or that follows from the node before. Borders of stored numbers are
0 as these are stored. Unsigned ones, which are stored here less half of their range, are cast as the file means them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Operators whose result has the type of what they read first, numbers of the same scale.
HAND_ON = (
    *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Identity", "Expand", "Tile", "Gather"),
    *("Split", "Clip", "Max", "Min", "MaxPool", "Pad", "Concat", "Resize", "DepthToSpace", "SpaceToDepth"),
)
HALF: Mapping[int, int] = {TensorProto.UINT8: 2**7, TensorProto.UINT16: 2**15}
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


def tell_stored(graph: onnx.GraphProto) -> None:
    """Behind tell_zero_points: give Pad of stored numbers its 0, and Cast of unsigned ones half of their range."""
    known = {t.name: t for t in graph.initializer}
    made = {name: node for node in graph.node for name in node.output}
    nodes = list[onnx.NodeProto]()
    for node in graph.node:
        if node.op_type not in ("Pad", "Cast") or not (kind := _stored_type(node.input[0], made, known)):
            nodes.append(node)
        elif node.op_type == "Pad":
            zero = numpy_helper.from_array(
                np.zeros((), helper.tensor_dtype_to_np_dtype(kind)), f"{node.output[0]}@zero"
            )
            graph.initializer.append(zero)
            node.input[:] = [*node.input[:2], (*node.input[2:3], "")[0] or zero.name, *node.input[3:]]
            nodes.append(node)
        else:
            nodes += _whole(node, graph, HALF.get(kind, 0))
    del graph.node[:]
    graph.node.extend(nodes)


def _whole(node: onnx.NodeProto, graph: onnx.GraphProto, half: int) -> list[onnx.NodeProto]:
    """A Cast of stored numbers, to which `half` is added."""
    if not half:
        return [node]
    signed, whole, added = (f"{node.output[0]}@{part}" for part in ("signed", "whole", "half"))
    graph.initializer.append(numpy_helper.from_array(np.array(half, np.int32), added))
    last = onnx.NodeProto()
    last.CopyFrom(node)
    last.input[0] = whole
    first = helper.make_node("Cast", node.input[:1], [signed], node.name, to=TensorProto.INT32)
    return [first, helper.make_node("Add", [signed, added], [whole], node.name), last]


def _stored_type(name: str, made: Mapping[str, onnx.NodeProto], known: Mapping[str, onnx.TensorProto]) -> int:
    """The type of numbers that a QuantizeLinear made, and that nodes only moved since or compared; else 0."""
    while (node := made.get(name)) is not None and node.op_type in HAND_ON:
        name = node.input[0]
    if node is None or node.op_type != "QuantizeLinear" or len(node.input) < 3 or node.input[2] not in known:
        return 0
    zero = known[node.input[2]]
    return zero.data_type if prod(zero.dims) == 1 else 0  # numbers of several scales are stored as they are


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
