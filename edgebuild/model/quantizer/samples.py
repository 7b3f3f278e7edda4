"""Samples and labels of the user's files, float networks, and the quality of quantised ones against them.

Quality is measured on samples that calibration did not use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from ...base.errors import Diagnostic, MissingTool, fail, visible
from ...base.inputs import MODEL, read_bytes
from ...base.progress import warn
from ..formats import file_kind, format_of
from ..formats.exporting import onnx_file
from ..formats.onnx.onnx_checks import load
from ..ir import Array
from ..verify.vectors import auc, classes, read_inputs, read_labels, rebuilds

# Float networks in ONNX, prepared for the quantiser: one sample at a time, batch normalisation folded.

Row = dict[str, Array]  # one sample: the value of each input
INSTALL = "pip install onnxruntime"
TFLITE = ["TensorFlow's converter quantises while it writes such a file: docs/models.md",
          "or export the network to ONNX"]  # fmt: skip
QUANTISED = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul",
             "MatMulInteger", "ConvInteger"}  # fmt: skip


@dataclass(frozen=True)
class Port:
    """An input: its name, and the shape of one sample with the batch of 1. Dynamic dimensions are None."""

    name: str
    shape: tuple[int | None, ...]


def float_model(path: Path) -> onnx.ModelProto:
    """The network of an ONNX file, or of a file that its framework's exporter converts to ONNX.

    Raises EdgebuildError for other formats, for quantised networks and for inputs that are not float32.
    """
    file = visible(path.name)
    data = read_bytes(path, "cannot read the model", MODEL)
    form = format_of(path, data)
    if form is not None and form.name == "tflite":
        raise fail("is no ONNX file", file=file, hints=TFLITE)
    if (form is None or not form.holds(data)) and path.suffix != ".onnx" and (kind := file_kind(path, data)):
        raise fail(f"is no ONNX file but {kind[0]}", file=file, hints=[kind[1]])
    with onnx_file(form, path) as copy:
        model = load(copy, file)
    if kinds := sorted({n.op_type for n in model.graph.node} & QUANTISED):
        raise fail(f"is quantised already: it has {kinds[0]}", file=file,
                   hints=["give the network as it was exported in float32"])  # fmt: skip
    constants = {t.name for t in model.graph.initializer}
    for value in (v for v in model.graph.input if v.name not in constants):
        if value.type.tensor_type.elem_type != TensorProto.FLOAT:
            raise fail(f"input '{visible(value.name)}' is no float32", file=file)
    return model


def ports(model: onnx.ModelProto) -> list[Port]:
    """The inputs of the network, without constants that are listed as inputs."""
    constants = {t.name for t in model.graph.initializer}
    return [Port(v.name, _shape(v)) for v in model.graph.input if v.name not in constants]


def _shape(value: onnx.ValueInfoProto) -> tuple[int | None, ...]:
    dims = value.type.tensor_type.shape.dim
    return tuple(d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None for d in dims)


def folded(model: onnx.ModelProto, row: Row) -> onnx.ModelProto:
    """The network with the shapes of this sample, simplified by onnxruntime: constants and normalisations folded."""
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
    """A session of onnxruntime in one thread, so results are reproducible; without optimisation by default.

    `simple`: file for the network optimised at `level`. Raises EdgebuildError with onnxruntime's message.
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
    """The package onnxruntime. Raises MissingTool if it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        from ...base.errors import Diagnostic

        raise MissingTool(Diagnostic("onnxruntime is not installed", hints=(INSTALL,))) from None
    return onnxruntime


def run(model: onnx.ModelProto, rows: Sequence[Row], names: Sequence[str] = ()) -> list[Array]:
    """For each output, or each tensor of `names`, the values of all samples: [samples, ...]. Raises EdgebuildError."""
    if names:
        model = with_outputs(model, names)
    runner = session(model)
    try:
        values = [runner.run(list(names) or None, row) for row in rows]
    except Exception as problem:
        raise fail(f"onnxruntime cannot run the network: {_words(problem)}") from None
    return [np.stack([v[i] for v in values]) for i in range(len(values[0]))]


def with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """A copy of the network whose outputs are these tensors."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return copy


def _words(problem: Exception) -> str:
    return str(problem).split("Status Message: ")[-1].strip().splitlines()[0]


MAX_DB = 120.0  # signal-to-noise ratio of equal results


@dataclass(frozen=True)
class Quality:
    """`accuracy`: share of right classes, None without labels. `sqnr`: signal to quantisation noise in dB.

    For an autoencoder `accuracy` is the area under its ROC curve, and `metric` is "auc".
    """

    accuracy: float | None
    sqnr: float
    metric: str = "accuracy"

    def drop_from(self, real: Quality) -> float:
        """Percentage points of accuracy lost against the float network; negative if it is better."""
        return 100 * ((real.accuracy or 0.0) - (self.accuracy or 0.0))


def signal_to_noise(right: Array, value: Array) -> float:
    """10 log10 of the ratio of the power of `right` to that of the difference, in dB, at most MAX_DB."""
    signal = float(np.sum(right.astype(np.float64) ** 2))
    noise = float(np.sum((right.astype(np.float64) - value) ** 2))
    return min(MAX_DB, 10 * float(np.log10(max(signal, 1e-30) / noise))) if noise else MAX_DB


def quality(model: onnx.ModelProto, rows: Sequence[Row], right: Sequence[Array], labels: Array | None) -> Quality:
    """Quality on `rows` against the float network's outputs `right`. Classes are those of the first output."""
    outputs = run(model, rows)
    sqnr = min(signal_to_noise(a, b) for a, b in zip(right, outputs, strict=True))
    inputs = only_input(rows)
    if labels is not None and inputs is not None and rebuilds(inputs, outputs[0], labels):
        return Quality(auc(inputs, outputs[0], labels), sqnr, "auc")
    return Quality(None if labels is None else float(np.mean(classes(outputs[0]) == labels)), sqnr)


def only_input(rows: Sequence[Row]) -> Array | None:
    """Samples [samples, ...] of a network with one input; None if it has several."""
    return np.stack([next(iter(row.values())) for row in rows]) if len(rows[0]) == 1 else None


MIN_SAMPLES = 16  # samples, below which the user is warned
MAX_SAMPLES = 256  # most samples for calibration, and for the measurement of quality


@dataclass(frozen=True)
class Samples:
    """Samples for calibration and for measuring quality, disjoint if there are two or more. `labels`: of `judge`."""

    calibrate: Sequence[Row]
    judge: Sequence[Row]
    labels: Array | None


def read_samples(data: Path, labels: Path | None, ports: Sequence[Port]) -> Samples:
    """Split samples alternately into `calibrate` and `judge`, at most MAX_SAMPLES evenly spread ones each."""
    rows, right = read_rows(data, labels, ports)
    if len(rows) < MIN_SAMPLES:
        what = f"{len(rows)} samples are few" if len(rows) > 1 else "one sample, which calibrates and judges, is few"
        text = f"{what}: the ranges of activations may be wrong for others"
        warn(Diagnostic(text, str(data), severity="warning", hints=(f"give {MIN_SAMPLES} or more, of every kind",)))
    judges = _spread(range(1 if len(rows) > 1 else 0, len(rows), 2))
    calibrate = [rows[i] for i in _spread(range(0, len(rows), 2))]
    return Samples(calibrate, [rows[i] for i in judges], None if right is None else right[judges])


def _spread(numbers: range) -> list[int]:
    places = np.linspace(0, len(numbers) - 1, min(len(numbers), MAX_SAMPLES)).round().astype(int)
    return [numbers[place] for place in places]


def read_rows(data: Path, labels: Path | None, ports: Sequence[Port]) -> tuple[list[Row], Array | None]:
    """All samples, and the class of each, None without `labels`.

    Raises EdgebuildError for samples of wrong shape or type, and for a wrong number of labels.
    """
    if not ports:
        raise fail("the network has no input, so samples are of no use", file=str(data))
    columns = [_column(array, port, data) for array, port in _arrays(data, ports)]
    counts = {len(column) for column in columns}
    if len(counts) > 1:
        raise fail(
            "the inputs have different numbers of samples",
            file=str(data),
            hints=[", ".join(f"'{visible(p.name)}': {len(c)}" for p, c in zip(ports, columns, strict=True))],
        )
    count = counts.pop()
    names = [port.name for port in ports]
    rows = [dict(zip(names, (column[i] for column in columns), strict=True)) for i in range(count)]
    if labels is None:
        return rows, None
    right = read_labels(labels)
    if len(right) != count:
        raise fail(f"{len(right)} labels of {count} samples", file=str(labels), hints=["one whole number for each"])
    return rows, right


def _arrays(data: Path, ports: Sequence[Port]) -> list[tuple[Any, Port]]:
    given = read_inputs(data)
    names = ", ".join(visible(port.name) for port in ports)
    if not isinstance(given, Mapping):
        if len(ports) > 1:
            raise fail(f"one array for {len(ports)} inputs", file=str(data),
                       hints=[f"numpy.savez with an array for each of {names}"])  # fmt: skip
        return [(given, ports[0])]
    if len(ports) == len(given) == 1:
        return [(next(iter(given.values())), ports[0])]
    if missing := [port.name for port in ports if port.name not in given]:
        raise fail(f"no array '{visible(missing[0])}'", file=str(data), hints=[f"the network's inputs: {names}"])
    if unknown := sorted(given.keys() - {port.name for port in ports}):
        raise fail(f"the network has no input '{visible(unknown[0])}'", file=str(data),
                   hints=[f"its inputs: {names}"])  # fmt: skip
    return [(given[port.name], port) for port in ports]


def _column(array: Any, port: Port, data: Path) -> Array:
    """Values [samples, *shape of the input] in float32. The file may leave out the batch of 1."""
    name, file = visible(port.name), str(data)
    if np.dtype(array.dtype).kind != "f":
        raise fail(f"'{name}' is {array.dtype}", file=file,
                   hints=["give the float values that the network was trained on, scaled as there"])  # fmt: skip
    shape, wanted = tuple(array.shape), port.shape
    whole = _fits(shape[1:], wanted)
    if not shape or not shape[0] or not (whole or (wanted[:1] in ((1,), (None,)) and _fits(shape[1:], wanted[1:]))):
        takes = ", ".join("any" if n is None else str(n) for n in wanted)
        raise fail(
            f"'{name}' has shape {list(shape)}", file=file, hints=[f"a sample is [{takes}]: give [samples, ...]"]
        )
    values = np.asarray(array.unpacked() if hasattr(array, "unpacked") else array, np.float32)
    if not np.isfinite(values).all():
        raise fail(f"'{name}' has values that are no finite numbers", file=file)
    return values if whole else values[:, None]


def _fits(shape: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(shape) == len(wanted) and all(n in (None, m) for n, m in zip(wanted, shape, strict=True))
