"""QDQ networks by onnxruntime's quantiser: int8, weights symmetric and per channel, some layers in int16 or float."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Literal

import onnx

from .activation_ranges import Ranges

Wide = Literal["int16", "float", "none"]
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
ACTIVATIONS = ("Relu", "Clip")  # which are part of the layer before them
INT16_OPSET = 21  # from which QuantizeLinear makes int16


def layers(model: onnx.ModelProto) -> list[str]:
    """Names of the nodes with constant weights, in their order; nodes without a name get one."""
    constants = {t.name for t in model.graph.initializer}
    for i, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{i}"
    return [n.name for n in model.graph.node if n.op_type in PRODUCTS and not constants.isdisjoint(n.input)]


def quantised(
    model: onnx.ModelProto, ranges: Ranges, names: Sequence[str] = (), wide: Wide = "none"
) -> onnx.ModelProto:
    """The network with QuantizeLinear and DequantizeLinear around its operators.

    `names`: layers that stay in float, or whose activations are int16. `ranges`: of every activation.
    """
    from onnxruntime.quantization import CalibrationMethod, QDQQuantizer, QuantType
    from onnxruntime.quantization.calibrate import TensorsData
    from onnxruntime.quantization.registry import QDQRegistry

    copy = onnx.ModelProto.FromString(model.SerializeToString())
    layers(copy)
    options: dict[str, Any] = {"ActivationSymmetric": False, "WeightSymmetric": True}
    if wide == "int16" and names:
        copy = onnx.version_converter.convert_version(copy, INT16_OPSET) if _opset(copy) < INT16_OPSET else copy
        options["TensorQuantOverrides"] = _int16(copy, names, QuantType)
    quantiser = QDQQuantizer(
        onnx.shape_inference.infer_shapes(copy),
        per_channel=True,
        reduce_range=False,
        weight_qType=QuantType.QInt8,
        activation_qType=QuantType.QInt8,
        tensors_range=TensorsData(CalibrationMethod.MinMax, {n: _values(r) for n, r in ranges.items()}),
        nodes_to_quantize=[],
        nodes_to_exclude=list(names) if wide == "float" else [],
        op_types_to_quantize=list(QDQRegistry),
        extra_options=options,
    )
    logging.disable(logging.WARNING)  # of constants that it then leaves as they are
    try:
        quantiser.quantize_model()
    finally:
        logging.disable(logging.NOTSET)
    result = quantiser.model.model
    result.producer_name = "edgebuild"
    return result


def _opset(model: onnx.ModelProto) -> int:
    return max(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))


def _values(limits: tuple[float, float]) -> Any:
    import numpy as np

    return tuple(np.array(v, np.float32) for v in limits)


def _int16(model: onnx.ModelProto, names: Sequence[str], types: Any) -> dict[str, list[dict[str, Any]]]:
    """The types of the tensors that these layers read and make: int16, and int8 copies for their other readers."""
    constants = {t.name for t in model.graph.initializer}
    read: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            read.setdefault(name, []).append(node)
    inside, touched = set(names), set[str]()
    for node in (n for n in model.graph.node if n.name in names):
        touched |= {node.input[0], node.output[0]}
        while len(after := read.get(node.output[0], [])) == 1 and after[0].op_type in ACTIVATIONS:
            node = after[0]
            inside.add(node.name)
            touched.add(node.output[0])
    ends = {v.name for v in model.graph.output}
    overrides: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(touched - constants):
        others = {n.name for n in read.get(name, [])} - inside
        convert = {"convert": {"quant_type": types.QInt8, "recv_nodes": others}} if others and name not in ends else {}
        overrides[name] = [{"quant_type": types.QInt16, **convert}]
    return overrides
