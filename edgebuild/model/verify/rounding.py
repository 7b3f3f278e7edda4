"""Tolerances between float results and an oracle's, and moved copies of models from which they are measured.

Firmware and oracle sum in different orders, so they round differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir import Graph

Array = NDArray[np.generic]
Rng = np.random.Generator
RELATIVE = 1e-5  # of the largest value of a tensor
ENDLESS = 3.4e38  # just below the largest number of float32, which counts as infinity
MAX_RELATIVE = 1e-3  # of the same: less than a step of eight bits, which a nudge may change by one as well
NUDGES = (1.0, 0.0, 0.5, 0.5, 0.5, 0.5)  # share of the elements that move up; a mean that cancels needs all or none
MARGIN = 8  # sums of n terms are rounded n times, but operands are moved only once


def distance(a: Array, b: Array) -> float:
    """The largest difference of two elements: 0 for equal infinities and for two NaN, infinite for one NaN.

    ENDLESS numbers are infinite: onnxruntime masks with the lowest of float32, where the standard has -inf.
    """
    x, y = _unbounded(a), _unbounded(b)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        differences = np.where(same, 0.0, np.abs(x - y))
    return float(np.max(np.nan_to_num(differences, nan=np.inf, posinf=np.inf), initial=0.0))


def _unbounded(a: Array) -> NDArray[np.float64]:
    x = a.astype(np.float64)
    return np.where(np.abs(x) > ENDLESS, np.copysign(np.inf, x), x)


def largest(a: Array) -> float:
    """The largest absolute value of the elements that are neither infinite nor as good as that."""
    values = np.abs(_unbounded(a))
    return float(np.max(values, where=np.isfinite(values), initial=0.0))


def limit(right: Array, moved: float = 0.0) -> float:
    """The largest difference that counts as rounding; 0 for integers. `moved`: result of `moves` for this tensor."""
    if right.dtype.kind != "f":
        return 0.0
    most = largest(right)
    return max(RELATIVE * most, min(moved, MAX_RELATIVE * most))


def moves(
    vectors: list[list[Array]], run: Callable[[list[list[Array]], Rng | None], Sequence[Mapping[str, Array]]]
) -> dict[str, float]:
    """How far each float tensor moves if inputs and constants move by one unit in the last place, times MARGIN.

    A sum whose terms cancel is small, but its rounding error is not, so RELATIVE is too strict for it. A computed sum
    of products is the exact one of operands that moved a little (Higham, Accuracy and Stability, 3.1).
    `run`: computes the tensors of each vector; with a generator, the model's constants are `nudged`.
    """
    rng, base = np.random.default_rng(1), run(vectors, None)
    most = {name: 0.0 for name, value in base[0].items() if value.dtype.kind == "f"}
    for up in NUDGES:
        near = run([[nudged(x, rng, up) for x in row] for row in vectors], rng)
        for shifted, original in zip(near, base, strict=True):
            most = {name: max(m, distance(shifted[name], original[name])) for name, m in most.items()}
    return {name: MARGIN * m if np.isfinite(m) else 0.0 for name, m in most.items()}


def nudged(x: Array, rng: Rng, up: float = 0.5) -> Array:
    """Floats moved by one unit in the last place, a share `up` of them upwards. 0, infinities and NaN do not move."""
    if x.dtype.kind != "f":
        return x
    most = float(np.finfo(str(x.dtype)).max)
    towards = np.where(rng.random(x.shape) < up, most, -most).astype(x.dtype)
    return np.asarray(np.where(np.isfinite(x) & (x != 0), np.nextafter(x, towards), x), x.dtype)


# Copies of models that oracles run beside the model itself.
#
# Copies with float constants moved by one unit in the last place show the effect of rounding in sums.
#
# In other copies both operands of ONNX's integer products are signed or both unsigned: onnxruntime is exact on these.
# On processors without VNNI it adds two products of uint8 and int8 in int16, which saturates (`vpmaddubsw`):
# 255 x 127 + 255 x 127 becomes 32,767. Moving weights and their zero point by 128 does not change the real numbers.

STEPS = ("QuantizeLinear", "DequantizeLinear")  # their float constants are scales, which do not move
ML = "ai.onnx.ml"
SUMMED = (  # attributes of ai.onnx.ml operators that enter sums; moved thresholds would change comparisons
    "base_values", "class_weights", "coefficients", "intercepts", "offset", "prob_a", "prob_b", "rho", "scale",
    "support_vectors", "target_weights",
)  # fmt: skip


# Positions of operands that determine a result's shape or select its elements.
SHAPES: Mapping[str, range] = {
    "ConstantOfShape": range(1), "Expand": range(1, 2), "If": range(1), "Loop": range(2), "OneHot": range(1, 2),
    "Pad": range(1, 4), "Range": range(3), "Reshape": range(1, 2), "Resize": range(1, 4), "Slice": range(1, 5),
    "Split": range(1, 2), "Squeeze": range(1, 2), "Tile": range(1, 3), "TopK": range(1, 2), "Unsqueeze": range(1, 2),
    "Upsample": range(1, 2),
}  # fmt: skip
WHOLE = {"Pow": 1}  # operand that does not move: a negative number has no power of 2.0000002
OF_SHAPES = ("Shape", "Size", "EyeLike")  # their results depend on the operand's shape, not on its values


def near_file(model: Path, form: str, rng: Rng, folder: Path) -> Path:
    """Write the model to `folder` with its float constants `nudged`, except scales and sources of shapes.

    `form`: onnx or tflite.
    """
    copy = folder / model.name
    copy.write_bytes((_near_onnx if form == "onnx" else _near_tflite)(model, rng))
    return copy


def near_graph(graph: Graph, rng: Rng) -> Graph:
    """The graph with its float constants `nudged`."""
    constants = ((name, t.data) for name, t in graph.tensors.items() if t.data is not None)
    near = {name: replace(graph.tensors[name], data=nudged(data, rng)) for name, data in constants}
    return replace(graph, tensors={**graph.tensors, **near})


def _near_onnx(model: Path, rng: Rng) -> bytes:
    import onnx

    from ..formats.onnx.control_flow import graphs

    proto = onnx.load(str(model))
    parts = list(graphs(proto.graph))
    nodes = [node for part in parts for node in part.node]
    fixed = {name for part in parts for name in _makes_shapes(part)}
    fixed |= {name for node in nodes if node.op_type in STEPS for name in node.input[1:]}
    fixed |= {n.input[WHOLE[n.op_type]] for n in nodes if n.op_type in WHOLE}
    given = [(t.name, t) for part in parts for t in part.initializer]
    given += [(n.output[0], a.t) for n in nodes if n.op_type == "Constant" for a in n.attribute]
    for name, tensor in given:
        if tensor.data_type == onnx.TensorProto.FLOAT and name not in fixed:
            moved = nudged(onnx.numpy_helper.to_array(tensor), rng)
            tensor.CopyFrom(onnx.numpy_helper.from_array(moved, tensor.name))
    for attribute in (a for node in nodes if node.domain == ML for a in node.attribute):
        if attribute.name in SUMMED:
            attribute.floats[:] = nudged(np.array(attribute.floats, np.float32), rng).tolist()
    return bytes(proto.SerializeToString())


def _makes_shapes(graph: Any) -> set[str]:
    """Names of tensors from which shapes are computed: a factor just below 2.0 would give 31 rows instead of 32."""
    makers = {name: node for node in graph.node for name in node.output}
    names = [node.input[i] for node in graph.node for i in SHAPES.get(node.op_type, ()) if i < len(node.input)]
    sources = set[str]()
    while names:
        name = names.pop()
        if name not in sources:
            sources.add(name)
            maker = makers.get(name)
            names += maker.input if maker is not None and maker.op_type not in OF_SHAPES else ()
    return sources


def _near_tflite(model: Path, rng: Rng) -> bytes:
    import tflite

    data = bytearray(model.read_bytes())
    file = tflite.Model.GetRootAsModel(data, 0)
    buffers: dict[int, Any] = {}
    for graph in map(file.Subgraphs, range(file.SubgraphsLength())):
        for tensor in map(graph.Tensors, range(graph.TensorsLength())):
            if tensor.Type() == tflite.TensorType.FLOAT32 and file.Buffers(tensor.Buffer()).DataLength():
                buffers[tensor.Buffer()] = file.Buffers(tensor.Buffer()).DataAsNumpy()
    for view in buffers.values():  # views of `data`, which change it
        view[:] = np.frombuffer(nudged(view.copy().view(np.float32), rng).tobytes(), np.uint8)
    return bytes(data)


PAIRS: Mapping[str, tuple[tuple[int, int, int], ...]] = {  # positions of x (-1: node makes it uint8), w, w's zero point
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
    """Rewrite products of uint8 and int8 in place; return the names of their nodes, in order."""
    import onnx

    if not any(node.op_type in PAIRS for node in _nodes(proto.graph)):
        return []
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*inferred.input, *inferred.value_info, *inferred.output)}
    return _rewritten(proto.graph, types, {t.name: t for t in proto.graph.initializer})


def _nodes(graph: Any) -> Iterator[Any]:
    """Nodes of a graph and of its subgraphs."""
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
                nodes += _with_moved_weights(
                    graph, node, w, zero, constants, 128 if kinds[0] == onnx.TensorProto.UINT8 else -128
                )
                mixed.append(node.name or node.output[0])
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return list(dict.fromkeys(mixed))


def _with_moved_weights(graph: Any, node: Any, w: int, zero: int, constants: Mapping[str, Any], by: int) -> list[Any]:
    """Move weights and zero point of a node by 128 or -128; return new nodes that move them if they are computed."""
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
