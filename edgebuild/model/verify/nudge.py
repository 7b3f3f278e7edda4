"""Copies of models whose real constants moved by one step: what rounding of sums is like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..ir import Graph
from .rounding import Rng, nudged

STEPS = ("QuantizeLinear", "DequantizeLinear")  # whose real constants are scales: a move of them is none of sums
ML = "ai.onnx.ml"
SUMMED = (  # attributes of its operators that sums of products have; not thresholds, where comparisons would turn
    "base_values", "class_weights", "coefficients", "intercepts", "offset", "prob_a", "prob_b", "rho", "scale",
    "support_vectors", "target_weights",
)  # fmt: skip


# Positions of operands that decide how large a result is, or which elements it has, rather than what these are.
SHAPES: Mapping[str, range] = {
    "ConstantOfShape": range(1), "Expand": range(1, 2), "If": range(1), "Loop": range(2), "OneHot": range(1, 2),
    "Pad": range(1, 4), "Range": range(3), "Reshape": range(1, 2), "Resize": range(1, 4), "Slice": range(1, 5),
    "Split": range(1, 2), "Squeeze": range(1, 2), "Tile": range(1, 3), "TopK": range(1, 2), "Unsqueeze": range(1, 2),
    "Upsample": range(1, 2),
}  # fmt: skip
WHOLE = {"Pow": 1}  # operand that stays: a negative number has no power of 2.0000002
OF_SHAPES = ("Shape", "Size")  # no value of their operand is in their result


def near_file(model: Path, form: str, rng: Rng, folder: Path) -> Path:
    """Write the model into `folder` with its real constants `nudged`; scales stay, and what shapes are made of.

    `form`: onnx or tflite.
    """
    copy = folder / model.name
    copy.write_bytes((_near_onnx if form == "onnx" else _near_tflite)(model, rng))
    return copy


def near_graph(graph: Graph, rng: Rng) -> Graph:
    """The graph with its real constants `nudged`."""
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
    """Names of tensors of which shapes are made: a step of a factor of 2.0 makes 31 rows of 32."""
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
    for view in buffers.values():  # of `data`
        view[:] = np.frombuffer(nudged(view.copy().view(np.float32), rng).tobytes(), np.uint8)
    return bytes(data)
