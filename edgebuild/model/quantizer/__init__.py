"""Float networks become int8 ones: the ways to quantise are tried, and measured on samples that none of them saw."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import onnx

from ...base.errors import Diagnostic, fail, visible
from ...base.progress import warn
from ..verify.accuracy import check_classes
from .corrections import ACTIVATIONS, corrected, equalised
from .samples import Array, Quality, Row, Samples, float_model, folded, ports, quality, read_samples, run, runtime

# QDQ networks by onnxruntime's quantiser: int8, weights symmetric and per channel, some layers in int16 or float.
#
# Ranges of activations, from samples: what a scale has to cover, and what it may cut off.

Ranges = dict[str, tuple[float, float]]  # by name of a tensor
METHODS = ("minmax", "percentile", "entropy", "mse")
PERCENTILE = 99.99  # per cent of the values that the range covers
BINS = 2048
CHUNK = 16  # samples of which all activations are in memory at once
STEPS = 255  # of an int8 scale
DOUBTFUL = 0.5  # accuracy of a float network below which its samples may not be those of its training
SHARES = np.linspace(0.2, 1, 81)  # of the whole range, tried for the least square error


def ranges(model: onnx.ModelProto, rows: Sequence[Row], method: str) -> Ranges:
    """The range of each activation by one of METHODS.

    minmax, percentile and entropy are onnxruntime's. mse takes the share of the whole range with the least square
    error of rounding and clipping, after the histogram of values. Raises EdgebuildError for values too far from others.
    """
    from onnxruntime.quantization import CalibrationMethod
    from onnxruntime.quantization.calibrate import create_calibrator

    kinds = {"minmax": CalibrationMethod.MinMax, "entropy": CalibrationMethod.Entropy}
    options = {
        "percentile": {"symmetric": False, "percentile": PERCENTILE, "num_bins": BINS},
        "mse": {"symmetric": False, "num_bins": BINS},
    }
    with TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):  # it prints what it does
        file = Path(folder) / "model.onnx"
        onnx.save(model, file)
        calibrator = create_calibrator(
            file,
            augmented_model_path=str(Path(folder) / "seen.onnx"),
            calibrate_method=kinds.get(method, CalibrationMethod.Percentile),
            extra_options=options.get(method, {}),
        )
        try:
            for start in range(0, len(rows), CHUNK):
                calibrator.collect_data(_Reader(rows[start : start + CHUNK]))
        except ValueError as reason:  # numpy counts no values whose differences are beyond float32
            hint = "give the samples in the units that the network was trained with"
            raise fail("samples give activations near the largest float32", hints=[hint]) from reason
        if method == "mse":
            return {name: _least_error(*seen[:4]) for name, seen in calibrator.collector.histogram_dict.items()}
        data = calibrator.compute_data()
    return {name: (float(np.min(low)), float(np.max(high))) for name, (low, high) in _limits(data)}


def _limits(data: Any) -> Iterator[tuple[str, tuple[Array, Array]]]:
    for name in data.keys():  # noqa: SIM118  (not a mapping)
        yield name, data[name].range_value


class _Reader:
    """Samples as onnxruntime's calibration asks for them."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = iter(rows)

    def get_next(self) -> Row | None:
        return next(self._rows, None)

    def __iter__(self) -> Iterator[Row]:
        return self._rows


def _least_error(counts: Array, edges: Array, low: float, high: float) -> tuple[float, float]:
    """The range of which an int8 scale has the least square error on a histogram of values in low..high."""
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    middles = (edges[:-1] + edges[1:]) / 2

    def error(share: float) -> float:
        bottom, step = low * share, (high - low) * share / STEPS or 1.0
        rounded = np.clip(np.rint((middles - bottom) / step), 0, STEPS) * step + bottom
        return float(np.sum(counts * (middles - rounded) ** 2))

    share = float(min(SHARES[::-1], key=error))
    return low * share, high * share


Wide = Literal["int16", "float", "none"]
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
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
        nodes_to_exclude=[*_transposed_in_groups(copy), *(names if wide == "float" else ())],
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


def _transposed_in_groups(model: onnx.ModelProto) -> list[str]:
    """Names of transpose convolutions in groups: onnxruntime takes scales of one group for those of all channels."""
    transposed = [node for node in model.graph.node if node.op_type == "ConvTranspose"]
    return [n.name for n in transposed if any(a.name == "group" and a.i > 1 for a in n.attribute)]


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


FEW = 32  # samples that rank layers by what they lose
CORRECTING = 64  # samples whose mean error goes into biases


@dataclass(frozen=True)
class Trial:
    """One way to quantise. `wide`: the layers that are not int8, by their names."""

    way: str
    model: onnx.ModelProto
    quality: Quality
    wide: tuple[str, ...] = ()


@dataclass(frozen=True)
class Quantised:
    """All that was tried, in this order, and which it is. `calibrated`, `judged`: numbers of samples."""

    real: Quality
    trials: list[Trial]
    chosen: Trial
    calibrated: int
    judged: int

    @property
    def drop(self) -> float:
        """Points of accuracy that the chosen one loses; 0 without labels."""
        return self.chosen.quality.drop_from(self.real)


def quantise(
    model: Path,
    data: Path,
    labels: Path | None = None,
    methods: Sequence[str] = METHODS,
    most_drop: float = 1.0,
    wide: Wide = "int16",
    report: Callable[[Trial], None] = lambda trial: None,
) -> Quantised:
    """Quantise the network of an ONNX file: int8, weights symmetric and per channel.

    `data`: samples (.npz by input, or .npy), float32 as in training. `labels`: class numbers. The best of the
    calibration `methods` is tried with equalised weights and corrected biases. If it still loses more than `most_drop`
    points of accuracy, the layers that lose most become `wide`. Each trial goes to `report` when it is measured.
    Raises EdgebuildError for what cannot be read or run, MissingTool without onnxruntime.
    """
    runtime()
    network = float_model(model)
    samples = read_samples(data, labels, ports(network))
    simple = folded(network, samples.calibrate[0])
    if not layers(simple):
        raise fail("has no convolution or matrix product with constant weights", file=visible(model.name),
                   hints=["there is nothing that int8 would make smaller"])  # fmt: skip
    bench = _Bench(simple, samples, report, labels)
    chosen = _choose(bench, simple, methods, most_drop, wide)
    return Quantised(bench.real, bench.trials, chosen, len(samples.calibrate), len(samples.judge))


class _Bench:
    """Measures trials and keeps them. `real`: of the float network."""

    def __init__(
        self, simple: onnx.ModelProto, samples: Samples, report: Callable[[Trial], None], labels: Path | None
    ) -> None:
        self.samples, self._report = samples, report
        self._right = run(simple, samples.judge)
        if samples.labels is not None and labels is not None:
            check_classes(samples.labels, self._right[0], labels)
        self.real = quality(simple, samples.judge, self._right, samples.labels)
        if self.real.accuracy is not None and self.real.accuracy < DOUBTFUL:
            text = f"the float network gets {self.real.accuracy:.0%} of the labels right"
            if self.real.metric == "auc":
                text = (
                    f"the float network rebuilds samples of label 0 worse than those of 1: AUC {self.real.accuracy:.2f}"
                )
            hints = ("are samples scaled as in training, and labels in their order?",)
            warn(Diagnostic(text, str(labels), severity="warning", hints=hints))
        self.trials: list[Trial] = []

    def measured(self, way: str, model: onnx.ModelProto, wide: tuple[str, ...] = ()) -> Trial:
        trial = Trial(way, model, quality(model, self.samples.judge, self._right, self.samples.labels), wide)
        self.trials.append(trial)
        self._report(trial)
        return trial

    def best(self, trials: Sequence[Trial]) -> Trial:
        """The most accurate, where more than the float network is luck; of equal ones that with least noise."""
        most = self.real.accuracy or 0.0
        return max(trials, key=lambda t: (min(t.quality.accuracy or 0.0, most), t.quality.sqnr))


def _choose(bench: _Bench, simple: onnx.ModelProto, methods: Sequence[str], most_drop: float, wide: Wide) -> Trial:
    rows = bench.samples.calibrate
    limits = {method: ranges(simple, rows, method) for method in methods}
    best = bench.best([bench.measured(m, quantised(simple, limits[m])) for m in methods])
    method, source, limit = best.way, simple, limits[best.way]
    if (even := equalised(simple)) is not None:
        again = ranges(even, rows, method)
        trial = bench.measured(f"{method}, equalised", quantised(even, again))
        if bench.best([best, trial]) is trial:
            best, source, limit = trial, even, again
    best = _with_biases(bench, best, source, rows)
    if best.quality.drop_from(bench.real) <= most_drop or wide == "none":
        return best
    for names in _widened(source, limit, rows):
        trial = bench.measured(f"{method}, {len(names)} in {wide}", quantised(source, limit, names, wide), names)
        best = bench.best([best, _with_biases(bench, trial, source, rows)])
        if best.quality.drop_from(bench.real) <= most_drop:
            break
    return best


def _with_biases(bench: _Bench, trial: Trial, source: onnx.ModelProto, rows: Sequence[Row]) -> Trial:
    model = corrected(trial.model, source, rows[:CORRECTING])
    if model is None:
        return trial
    return bench.best([trial, bench.measured(f"{trial.way}, biases corrected", model, trial.wide)])


def _widened(
    source: onnx.ModelProto, limit: dict[str, tuple[float, float]], rows: Sequence[Row]
) -> Iterator[tuple[str, ...]]:
    """The 1, 2, 4, ... layers that lose most if they alone are quantised, in the order of the network."""
    few = rows[:FEW]
    right = run(source, few)
    names = layers(source)
    alone = {n: quality(quantised(source, limit, tuple(o for o in names if o != n), "float"), few, right, None).sqnr
             for n in names}  # fmt: skip
    worst = sorted(names, key=lambda n: alone[n])
    count = 1
    while count < len(names) * 2:
        chosen = set(worst[:count])
        yield tuple(n for n in names if n in chosen)
        count *= 2


__all__ = ["METHODS", "Quantised", "Trial", "quantise"]
