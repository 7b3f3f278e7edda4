"""Float networks in ONNX, as the quantiser takes them: one sample at a time, batch normalisation folded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from ...base.errors import MissingTool, fail, visible
from ...base.inputs import MODEL, read_bytes
from ..formats.format import file_kind
from ..formats.onnx.onnx_checks import load

Array = NDArray[Any]
Row = dict[str, Array]  # one sample: the value of each input
INSTALL = "pip install 'edgebuild[verify]'"
EXPORTS = {
    ".pt2": ["it may hold pickled objects, which torch runs as it loads them; if you trust it, this makes one:",
             "program = torch.export.load('net.pt2')",
             "torch.onnx.export(program, dynamo=True).save('net.onnx')"],
    ".tflite": ["TensorFlow's converter quantises while it writes such a file: docs/models.md",
                "or export the network to ONNX"],
    ".keras": ["these lines make one:", "network = keras.saving.load_model('net.keras')",
               "network.export('net.onnx', format='onnx')"],
}  # fmt: skip
QUANTISED = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul",
             "MatMulInteger", "ConvInteger"}  # fmt: skip


@dataclass(frozen=True)
class Port:
    """An input: its name, and the shape of one sample with the batch of 1. Dimensions that are open are None."""

    name: str
    shape: tuple[int | None, ...]


def float_model(path: Path) -> onnx.ModelProto:
    """The network of an ONNX file. Raises EdgebuildError for other formats, and for what is quantised already."""
    file = visible(path.name)
    if path.suffix in EXPORTS:
        raise fail("is no ONNX file", file=file, hints=EXPORTS[path.suffix])
    if path.suffix != ".onnx" and (kind := file_kind(path, read_bytes(path, "cannot read the model", MODEL))):
        raise fail(f"is no ONNX file but {kind[0]}", file=file, hints=[kind[1]])
    model = load(path, file)
    if kinds := sorted({n.op_type for n in model.graph.node} & QUANTISED):
        raise fail(f"is quantised already: it has {kinds[0]}", file=file,
                   hints=["give the network as it was exported in float32"])  # fmt: skip
    constants = {t.name for t in model.graph.initializer}
    for value in (v for v in model.graph.input if v.name not in constants):
        if value.type.tensor_type.elem_type != TensorProto.FLOAT:
            raise fail(f"input '{visible(value.name)}' is no float32", file=file)
    return model


def ports(model: onnx.ModelProto) -> list[Port]:
    """The inputs that a caller gives."""
    constants = {t.name for t in model.graph.initializer}
    return [Port(v.name, _shape(v)) for v in model.graph.input if v.name not in constants]


def _shape(value: onnx.ValueInfoProto) -> tuple[int | None, ...]:
    dims = value.type.tensor_type.shape.dim
    return tuple(d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None for d in dims)


def folded(model: onnx.ModelProto, row: Row) -> onnx.ModelProto:
    """The network in the shapes of this sample, as onnxruntime simplifies it: constants and normalisations folded."""
    import onnxruntime

    fixed = onnx.ModelProto.FromString(model.SerializeToString())
    for value in fixed.graph.input:
        if value.name in row:
            _fix(value, row[value.name].shape)
    del fixed.graph.value_info[:]
    with TemporaryDirectory() as folder:
        simple = Path(folder) / "simple.onnx"
        session(fixed, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC, simple)
        result = onnx.load(simple)
    used = {node.domain for node in result.graph.node} | {""}
    opsets = [o for o in result.opset_import if o.domain in used]
    del result.opset_import[:]
    result.opset_import.extend(opsets)
    return onnx.shape_inference.infer_shapes(result)


def _fix(value: onnx.ValueInfoProto, shape: Sequence[int]) -> None:
    kind = value.type.tensor_type.elem_type
    value.CopyFrom(helper.make_tensor_value_info(value.name, kind, shape))


def session(model: onnx.ModelProto, level: Any = None, simple: Path | None = None) -> Any:
    """A session of onnxruntime that computes the network as it is written, in one thread: the same numbers each time.

    `simple`: where the network goes that it makes at this `level`. Raises EdgebuildError with its words.
    """
    onnxruntime = runtime()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level or onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if simple is not None:
        options.optimized_model_filepath = str(simple)
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # its exceptions have no class in common
        raise fail(f"onnxruntime cannot run the network: {_words(problem)}") from None


def runtime() -> Any:
    """The package onnxruntime. Raises MissingTool."""
    try:
        import onnxruntime
    except ImportError:
        from ...base.errors import Diagnostic

        raise MissingTool(Diagnostic("onnxruntime is not installed", hints=(INSTALL,))) from None
    return onnxruntime


def run(model: onnx.ModelProto, rows: Sequence[Row], names: Sequence[str] = ()) -> list[Array]:
    """For each output, or each tensor of these `names`, the values of all samples: [samples, ...]."""
    if names:
        model = with_outputs(model, names)
    runner = session(model)
    try:
        values = [runner.run(list(names) or None, row) for row in rows]
    except Exception as problem:
        raise fail(f"onnxruntime cannot run the network: {_words(problem)}") from None
    return [np.stack([v[i] for v in values]) for i in range(len(values[0]))]


def with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """A copy of the network that gives these tensors."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return copy


def _words(problem: Exception) -> str:
    return str(problem).split("Status Message: ")[-1].strip().splitlines()[0]
