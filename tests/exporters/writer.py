"""A graph under construction, and onnxruntime's quantiser around it."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

ML = "ai.onnx.ml"
VECTORS = 8  # of calibration
KINDS = {"tensor(float)": TensorProto.FLOAT, "tensor(int64)": TensorProto.INT64}


class Net:
    """Nodes in the order in which they are asked for. `style`: how results are named."""

    def __init__(self, style: str, opset: int = 17, seed: int = 0) -> None:
        self.style, self.opset, self.rng = style, opset, np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []

    def input(self, name: str, shape: Sequence[int | str], kind: int = TensorProto.FLOAT) -> str:
        """An input; a size given as a word is left open, as exporters do with the batch."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.ops(kind, *inputs, count=1, **attributes)[0]

    def ops(self, kind: str, *inputs: str, count: int, domain: str = "", **attributes: Any) -> list[str]:
        """A node with several results."""
        number = len(self.nodes)
        base = self.style.format(kind=kind, number=number)
        names = [base if count == 1 else f"{base}_output_{i}" for i in range(count)]
        self.nodes.append(helper.make_node(kind, inputs, names, f"{kind}_{number}", domain=domain, **attributes))
        return names

    def value(self, data: Any, dtype: Any = np.float32) -> str:
        """A constant as torch.onnx writes it: a Constant node."""
        return self.op("Constant", value=numpy_helper.from_array(np.asarray(data, dtype)))

    def longs(self, *data: int) -> str:
        return self.value(data, np.int64)

    def stored(self, data: Any, dtype: Any = np.float32, name: str = "") -> str:
        """A constant among the initializers."""
        name = name or f"const_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(data, dtype), name))
        return name

    def weight(self, *shape: int, fan: int = 0, name: str = "") -> str:
        fan = fan or int(np.prod(shape[1:])) or 1
        return self.stored(self.rng.normal(0, np.sqrt(2 / fan), shape), name=name)

    def spread(self, *shape: int, low: float = 0.7, high: float = 1.4) -> str:
        """Constants near 1: scales, variances."""
        return self.stored(self.rng.uniform(low, high, shape))

    def conv(self, x: str, out: int, inner: int, kernel: Sequence[int], **attributes: Any) -> str:
        """A convolution with bias. `inner`: input channels of one group."""
        weight, bias = self.weight(out, inner, *kernel), self.weight(out, fan=20)
        return self.op("Conv", x, weight, bias, kernel_shape=kernel, **attributes)

    def linear(self, x: str, out: int, inner: int) -> str:
        """torch.nn.Linear of a matrix."""
        return self.op(
            "Gemm", x, self.weight(out, inner), self.weight(out, fan=20), alpha=1.0, beta=1.0, transA=0, transB=1
        )

    def projected(self, x: str, inner: int, out: int) -> str:
        """torch.nn.Linear of more dimensions, and every dense layer of Keras: MatMul, then the bias."""
        return self.op("Add", self.op("MatMul", x, self.weight(inner, out, fan=inner)), self.weight(out, fan=20))

    def normalised(self, x: str, channels: int) -> str:
        """Batch normalisation that nobody folded."""
        mean, beta = self.weight(channels, fan=50), self.weight(channels, fan=50)
        return self.op("BatchNormalization", x, self.spread(channels), beta, mean, self.spread(channels), epsilon=1e-5)

    def done(self, *outputs: str) -> onnx.ModelProto:
        """The model, checked, with the outputs' shapes inferred."""
        values = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self.nodes, "main_graph", self.inputs, values, self.constants)
        opsets = [helper.make_opsetid("", self.opset)]
        versions = {ML: 3, "com.microsoft": 1}
        opsets += [helper.make_opsetid(d, versions[d]) for d in sorted({node.domain for node in self.nodes} - {""})]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        inferred = shape_inference.infer_shapes(model)
        unknown = [value for value in inferred.graph.output if not value.type.tensor_type.HasField("shape")]
        if unknown:  # onnx knows no types of these domains, onnxruntime does
            session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            kinds = {o.name: (KINDS[o.type], o.shape) for o in session.get_outputs()}
            for value in unknown:
                value.CopyFrom(helper.make_tensor_value_info(value.name, *kinds[value.name]))
        onnx.checker.check_model(inferred)
        del inferred.graph.value_info[:]  # files mostly come without
        return inferred


def fixed(shape: Any) -> list[int]:
    return [d.dim_value or 1 for d in shape.dim]


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """Random inputs: real numbers N(0, 1), whole ones from 0 to 9."""

    def __init__(self, model: onnx.ModelProto) -> None:
        rng = np.random.default_rng(1)
        self.left: Iterator[dict[str, Any]] = iter([self._vector(model, rng) for _ in range(VECTORS)])

    def _vector(self, model: onnx.ModelProto, rng: np.random.Generator) -> dict[str, Any]:
        feeds = {}
        for value in model.graph.input:
            kind, shape = value.type.tensor_type.elem_type, fixed(value.type.tensor_type.shape)
            whole = rng.integers(0, 10, shape).astype(helper.tensor_dtype_to_np_dtype(kind))
            feeds[value.name] = rng.standard_normal(shape).astype(np.float32) if kind == TensorProto.FLOAT else whole
        return feeds

    def get_next(self) -> dict[str, Any] | None:
        return next(self.left, None)


def quantised(
    model: onnx.ModelProto, activations: QuantType = QuantType.QInt8, per_channel: bool = True
) -> onnx.ModelProto:
    """The model in the QDQ form of onnxruntime's static quantiser, weights int8, per channel from opset 13 on."""
    logging.getLogger().setLevel(logging.ERROR)  # it recommends pre-processing on every call
    onnxruntime.set_default_logger_severity(3)
    with tempfile.TemporaryDirectory() as folder:
        prepared, result = Path(folder, "prepared.onnx"), Path(folder, "result.onnx")
        copy = onnx.ModelProto.FromString(model.SerializeToString())
        for value in copy.graph.input:  # the quantiser's own shape inference wants them closed
            for dim in value.type.tensor_type.shape.dim:
                dim.dim_value = dim.dim_value or 1
        onnx.save(copy, Path(folder, "given.onnx"))
        quant_pre_process(Path(folder, "given.onnx"), prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            result,
            Reader(copy),
            quant_format=QuantFormat.QDQ,
            per_channel=per_channel and model.opset_import[0].version >= 13,
            activation_type=activations,
            weight_type=QuantType.QInt8,
        )
        return onnx.load(result)
