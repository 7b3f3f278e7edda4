"""Copies of model files whose real constants moved by one step: what rounding of sums is like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .rounding import Rng, nudged

STEPS = ("QuantizeLinear", "DequantizeLinear")  # whose real constants are scales: a move of them is none of sums
ML = "ai.onnx.ml"
SUMMED = (  # attributes of its operators that sums of products have; not thresholds, where comparisons would turn
    "base_values", "class_weights", "coefficients", "intercepts", "offset", "prob_a", "prob_b", "rho", "scale",
    "support_vectors", "target_weights",
)  # fmt: skip


def near_file(model: Path, rng: Rng, folder: Path) -> Path:
    """Write the model into `folder` with its real constants `nudged`; scales stay."""
    copy = folder / f"near{model.suffix}"
    copy.write_bytes(_near_onnx(model, rng) if model.suffix == ".onnx" else _near_tflite(model, rng))
    return copy


def _near_onnx(model: Path, rng: Rng) -> bytes:
    import onnx

    proto = onnx.load(str(model))
    scales = {name for node in proto.graph.node if node.op_type in STEPS for name in node.input[1:]}
    given = [(t.name, t) for t in proto.graph.initializer]
    given += [(n.output[0], a.t) for n in proto.graph.node if n.op_type == "Constant" for a in n.attribute]
    for name, tensor in given:
        if tensor.data_type == onnx.TensorProto.FLOAT and name not in scales:
            moved = nudged(onnx.numpy_helper.to_array(tensor), rng)
            tensor.CopyFrom(onnx.numpy_helper.from_array(moved, tensor.name))
    for attribute in (a for node in proto.graph.node if node.domain == ML for a in node.attribute):
        if attribute.name in SUMMED:
            attribute.floats[:] = nudged(np.array(attribute.floats, np.float32), rng).tolist()
    return bytes(proto.SerializeToString())


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
