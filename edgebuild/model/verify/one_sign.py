"""ONNX files rewritten so that both operands of integer products have one sign: onnxruntime is exact on these.

Its products of uint8 and int8 add two of them in int16, which saturates, on processors without VNNI (`vpmaddubsw`).
255 x 127 + 255 x 127 becomes 32,767. Moving the weights and their zero point by 128 changes nothing in real numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

PAIRS: Mapping[str, tuple[tuple[int, int, int], ...]] = {  # positions of x (-1: uint8 is made of it), w, w's zero point
    "MatMulInteger": ((0, 1, 3),),
    "ConvInteger": ((0, 1, 3),),
    "QLinearMatMul": ((0, 3, 5),),
    "QLinearConv": ((0, 3, 5),),
    "QGemm": ((0, 3, 5),),
    "MatMulIntegerToFloat": ((0, 1, 5),),
    "DynamicQuantizeMatMul": ((-1, 1, 3),),
    "DynamicQuantizeLSTM": ((-1, 1, 9), (-1, 2, 11)),
    "QAttention": ((0, 1, 7),),
}


def in_one_sign(proto: Any) -> list[str]:
    """Rewrite such products in place. Returns the names of nodes that multiplied uint8 and int8, in order."""
    import onnx

    if not any(node.op_type in PAIRS for node in _nodes(proto.graph)):
        return []
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*inferred.input, *inferred.value_info, *inferred.output)}
    return _rewritten(proto.graph, types, {t.name: t for t in proto.graph.initializer})


def _nodes(graph: Any) -> Iterator[Any]:
    """Nodes of a graph and of the bodies in it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _rewritten(graph: Any, types: dict[str, int], constants: dict[str, Any]) -> list[str]:
    import onnx

    types |= {t.name: t.data_type for t in graph.initializer}
    mixed, nodes = list[str](), list[Any]()
    for node in graph.node:
        for inner in (a.g for a in node.attribute if a.HasField("g")):
            mixed += _rewritten(inner, types, constants | {t.name: t for t in inner.initializer})
        if node.op_type == "Constant" and node.attribute[0].HasField("t"):
            constants[node.output[0]] = node.attribute[0].t
            types[node.output[0]] = node.attribute[0].t.data_type
        for x, w, zero in PAIRS.get(node.op_type, ()):
            kinds = (onnx.TensorProto.UINT8 if x < 0 else types.get(node.input[x], 0), types.get(node.input[w], 0))
            if sorted(kinds) == [onnx.TensorProto.UINT8, onnx.TensorProto.INT8]:
                nodes += _moved(graph, node, w, zero, constants, 128 if kinds[0] == onnx.TensorProto.UINT8 else -128)
                mixed.append(node.name or node.output[0])
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return list(dict.fromkeys(mixed))


def _moved(graph: Any, node: Any, w: int, zero: int, constants: Mapping[str, Any], by: int) -> list[Any]:
    """Move weights and zero point of a node by 128. Returns the nodes that do so where they are computed."""
    import onnx

    types = {np.uint8: onnx.TensorProto.UINT8, np.int8: onnx.TensorProto.INT8}
    kind, inserted = (np.uint8 if by > 0 else np.int8), list[Any]()
    while len(node.input) <= zero:
        node.input.append("")
    for at in (w, zero):
        name, new = node.input[at], f"{node.output[0]}@sign{at}"
        held = constants.get(name)
        if held is not None or not name:
            values = np.zeros((), np.int32) if held is None else onnx.numpy_helper.to_array(held).astype(np.int32)
            graph.initializer.append(onnx.numpy_helper.from_array((values + by).astype(kind), new))
        else:  # computed by the graph
            whole = onnx.numpy_helper.from_array(np.array(by, np.int32), f"{new}@by")
            graph.initializer.append(whole)
            inserted.append(onnx.helper.make_node("Cast", [name], [f"{new}@wide"], to=onnx.TensorProto.INT32))
            inserted.append(onnx.helper.make_node("Add", [f"{new}@wide", whole.name], [f"{new}@moved"]))
            inserted.append(onnx.helper.make_node("Cast", [f"{new}@moved"], [new], to=types[kind]))
        node.input[at] = new
    return inserted
