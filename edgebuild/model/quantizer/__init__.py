"""Quantise float networks to int8: try several methods and measure each on samples that calibration did not use.

`against_float` compares the firmware with the float network: accuracy of both, and the layers with the most noise.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from ...base.artifacts import Artifact
from ...base.errors import Diagnostic, fail, visible
from ...base.progress import warn
from ...base.target import Target
from ..ir import Array
from ..passes.powers import FORMAT
from ..verify import outputs_on_target, real_values, report_of
from ..verify.vectors import accuracy, auc, check_classes, classes
from .samples import (
    Port,
    Quality,
    Row,
    Samples,
    float_model,
    folded,
    only_input,
    ports,
    quality,
    read_rows,
    read_samples,
    run,
    runtime,
    signal_to_noise,
)

# QDQ networks by onnxruntime's quantiser: int8, weights symmetric and per channel, some layers in int16 or float.
#
# Calibration: ranges of activations from samples.

Ranges = dict[str, tuple[float, float]]  # by name of a tensor
METHODS = ("minmax", "percentile", "entropy", "mse")
PERCENTILE = 99.99  # per cent of the values that the range covers
BINS = 2048
CHUNK = 16  # samples whose activations are all in memory at once
FAR = 1e30  # larger numbers are masks; differences of smaller ones, and their squares, are finite
EXPONENTS = 1000.0  # a softmax gives 0 for operands this far below 0: they are masks
WHOLE = (-np.inf, np.inf)  # range of a tensor with a mask, which no scale fits
STEPS = 255  # of an int8 scale
DOUBTFUL = 0.5  # accuracy of the float network below which a warning doubts the scaling of the samples
SHARES = np.linspace(0.2, 1, 81)  # shares of the whole range that the mse method tries


def ranges(model: onnx.ModelProto, rows: Sequence[Row], method: str) -> Ranges:
    """The range of each activation by one of METHODS; WHOLE for tensors with a mask (`_masked`).

    minmax, percentile and entropy are onnxruntime's. mse chooses the share of the whole range with the least squared
    error of rounding and clipping, from the histogram of values. Raises EdgebuildError if masks touch every layer.
    """
    whole = _calibrated(model, rows, "minmax")
    masked = dict.fromkeys(_masked(model, whole), WHOLE)
    if {*layers(model)} <= {*_beside_masks(model, masked)}:
        hint = "give the samples in the units that the network was trained with"
        raise fail("samples give activations near the largest float32", hints=[hint])
    return (whole if method == "minmax" else _calibrated(model, rows, method, masked)) | masked


def _masked(model: onnx.ModelProto, limits: Ranges) -> Iterator[str]:
    """Tensors with values that mark elements as absent: infinities, and operands of a softmax that it makes 0."""
    scores = {node.input[0] for node in model.graph.node if node.op_type == "Softmax"}
    for name, (low, high) in limits.items():
        if not max(-low, high) < FAR or (name in scores and low < -EXPONENTS):
            yield name


def _calibrated(model: onnx.ModelProto, rows: Sequence[Row], method: str, left_out: Collection[str] = ()) -> Ranges:
    from onnxruntime.quantization import calibrate

    kinds = {"minmax": calibrate.MinMaxCalibrater, "entropy": calibrate.EntropyCalibrater}
    options: dict[str, Any] = {"percentile": {"percentile": PERCENTILE, "num_bins": BINS}, "mse": {"num_bins": BINS}}
    with TemporaryDirectory() as folder, redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values that are no numbers; and it prints what it does
        file, seen = Path(folder) / "model.onnx", Path(folder) / "seen.onnx"
        onnx.save(model, file)
        kind = kinds.get(method, calibrate.PercentileCalibrater)
        calibrator = kind(file, augmented_model_path=seen, **options.get(method, {}))
        names, values = calibrator.select_tensors_to_calibrate(calibrator.model)
        calibrator.select_tensors_to_calibrate = lambda _: (names.difference(left_out), values)
        calibrator.augment_graph()
        calibrator.create_inference_session()
        for start in range(0, len(rows), CHUNK):
            calibrator.collect_data(_Reader(rows[start : start + CHUNK]))
        if method == "mse":
            return {name: _least_error(*seen[:4]) for name, seen in calibrator.collector.histogram_dict.items()}
        data = calibrator.compute_data()
    return {name: (float(np.min(low)), float(np.max(high))) for name, (low, high) in _limits(data)}


def _limits(data: Any) -> Iterator[tuple[str, tuple[Array, Array]]]:
    for name in data.keys():  # noqa: SIM118  (not a mapping)
        yield name, data[name].range_value


class _Reader:
    """Samples in the interface of onnxruntime's CalibrationDataReader."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = iter(rows)

    def get_next(self) -> Row | None:
        return next(self._rows, None)

    def __iter__(self) -> Iterator[Row]:
        return self._rows


def _least_error(counts: Array, edges: Array, low: float, high: float) -> tuple[float, float]:
    """The range whose int8 scale has the least squared error on a histogram of values in low..high."""
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
INT16_OPSET = 21  # first opset whose QuantizeLinear has int16


def layers(model: onnx.ModelProto) -> list[str]:
    """Names of the convolutions and products with constant weights, in order. Gives unnamed nodes of `model` a name."""
    constants = {t.name for t in model.graph.initializer}
    for i, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{i}"
    return [n.name for n in model.graph.node if n.op_type in PRODUCTS and not constants.isdisjoint(n.input)]


def quantised(
    model: onnx.ModelProto, ranges: Ranges, names: Sequence[str] = (), wide: Wide = "none"
) -> onnx.ModelProto:
    """The network with QuantizeLinear and DequantizeLinear around its operators.

    `names`: layers that are `wide`: in float, or with int16 activations. `ranges`: of every activation. Operators that
    read or compute a tensor with a mask stay in float.
    """
    from onnxruntime.quantization import CalibrationMethod, QDQQuantizer, QuantType
    from onnxruntime.quantization.calibrate import TensorsData
    from onnxruntime.quantization.registry import QDQRegistry

    copy = _by_role(model)
    left_out = [*_beside_masks(copy, ranges), *_transposed_in_groups(copy), *(names if wide == "float" else ())]
    names = [name for name in names if name not in left_out]
    ranges = {name: limits for name, limits in ranges.items() if limits != WHOLE}
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
        nodes_to_exclude=left_out,
        op_types_to_quantize=list(QDQRegistry),
        extra_options=options,
    )
    logging.disable(logging.WARNING)  # warnings about constants that it does not quantise
    try:
        quantiser.quantize_model()
    finally:
        logging.disable(logging.NOTSET)
    result = quantiser.model.model
    result.producer_name = "edgebuild"
    return result


def _by_role(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which a constant is the same operand of one operator: onnxruntime gives it one axis of channels."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    layers(copy)
    constants = {t.name: t for t in copy.graph.initializer if _is_real(t)}
    used = {name for node in copy.graph.node for name in (*node.input, *node.output)}
    names: dict[tuple[str, str, int], str] = {}
    for node in copy.graph.node:
        for i, name in ((i, name) for i, name in enumerate(node.input) if name in constants):
            role = (name, node.op_type, i)
            if role not in names and name in names.values():
                own = next(n for k in count() if (n := f"{name}_{node.op_type}_{k}") not in used)
                copy.graph.initializer.add().CopyFrom(constants[name])
                copy.graph.initializer[-1].name = names[role] = own
                used.add(own)
            node.input[i] = names.setdefault(role, name)
    return copy


def _beside_masks(model: onnx.ModelProto, ranges: Ranges) -> list[str]:
    """Names of the nodes that read or make a tensor with a mask."""
    masks = {name for name, limits in ranges.items() if limits == WHOLE}
    constants = ((t.name, numpy_helper.to_array(t)) for t in model.graph.initializer if _is_real(t))
    masks |= {name for name, value in constants if not np.max(np.abs(value), initial=0) < FAR}
    return [node.name for node in model.graph.node if not masks.isdisjoint((*node.input, *node.output))]


def _transposed_in_groups(model: onnx.ModelProto) -> list[str]:
    """Names of grouped transpose convolutions, which onnxruntime misquantises: it uses one group's scales for all."""
    transposed = [node for node in model.graph.node if node.op_type == "ConvTranspose"]
    return [n.name for n in transposed if any(a.name == "group" and a.i > 1 for a in n.attribute)]


def _opset(model: onnx.ModelProto) -> int:
    return max(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))


def _values(limits: tuple[float, float]) -> Any:
    import numpy as np

    return tuple(np.array(v, np.float32) for v in limits)


def _int16(model: onnx.ModelProto, names: Sequence[str], types: Any) -> dict[str, list[dict[str, Any]]]:
    """Overrides that make operands and results of these layers int16, with int8 copies for other readers."""
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


RANKING_SAMPLES = 32  # samples for ranking layers by their loss
CORRECTING = 64  # samples over which the error that biases correct is averaged


@dataclass(frozen=True)
class Trial:
    """A quantised network. `way`: its method, for the user. `wide`: names of the layers that are not int8."""

    way: str
    model: onnx.ModelProto
    quality: Quality
    wide: tuple[str, ...] = ()


@dataclass(frozen=True)
class Quantised:
    """The trials in order, and the chosen one. `real`: of the float network. `calibrated`, `judged`: sample counts."""

    real: Quality
    trials: list[Trial]
    chosen: Trial
    calibrated: int
    judged: int

    @property
    def drop(self) -> float:
        """Percentage points of accuracy that the chosen trial loses; 0 without labels."""
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
    percentage points of accuracy, the layers that lose most become `wide`. `report` is called with each measured trial.
    Raises EdgebuildError if files cannot be read or the network cannot be run, MissingTool without onnxruntime.
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
    """Measures trials and keeps them. `real`: quality of the float network."""

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
        """The most accurate trial, then the one with the least noise. Accuracy above the float network's is luck."""
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
            best, method, source, limit = trial, trial.way, even, again
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
    """The 1, 2, 4, ... layers with the most noise if each alone is quantised, in the order of the network."""
    few = rows[:RANKING_SAMPLES]
    right = run(source, few)
    names = layers(source)
    alone = {n: quality(quantised(source, limit, tuple(o for o in names if o != n), "float"), few, right, None).sqnr
             for n in names}  # fmt: skip
    worst = sorted(names, key=lambda n: alone[n])
    most = 1
    while most < len(names) * 2:
        chosen = set(worst[:most])
        yield tuple(n for n in names if n in chosen)
        most *= 2


__all__ = ["METHODS", "Quantised", "Trial", "quantise"]


TURNS = 20  # most passes over all pairs; scaling one pair changes the ranges of the next
NEAR = 1e-3  # largest change of a scale at which the passes end


@dataclass(frozen=True)
class Pair:
    """Names of the weights of two layers with at most a ReLU between them. `bias`: of the first layer, or empty."""

    weights: str
    bias: str
    after: str
    depthwise: bool  # whether the second layer is


def equalised(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The equivalent network with equalised weights; None if it has no pair of successive layers.

    Scaling the channels between two layers equalises the ranges of their weights: Nagel et al., "Data-Free Quantization
    Through Weight Equalization and Bias Correction", ICCV 2019, equations 6 to 11.
    """
    pairs = list(_pairs(model.graph))
    if not pairs:
        return None
    values = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer if _is_real(t)}
    for _ in range(TURNS):
        if max([_equalise(pair, values) for pair in pairs]) < NEAR:
            break
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    for tensor in copy.graph.initializer:
        if tensor.name in values:
            tensor.CopyFrom(numpy_helper.from_array(values[tensor.name].astype(np.float32), tensor.name))
    return copy


def _is_real(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.data_type == onnx.TensorProto.FLOAT)


def _equalise(pair: Pair, values: dict[str, NDArray[np.float64]]) -> float:
    """Scale the channels of one pair in place. Returns the largest distance of a scale from 1."""
    first, second = values[pair.weights], values[pair.after]
    into = second.reshape(len(second), -1) if pair.depthwise else np.moveaxis(second, 1, 0).reshape(second.shape[1], -1)
    leaving, entering = np.abs(first).reshape(len(first), -1).max(1), np.abs(into).max(1)
    used = (leaving > 0) & (entering > 0)
    scale = np.where(used, np.sqrt(np.where(used, leaving, 1) / np.where(used, entering, 1)), 1.0)  # s of equation 11

    def along(array: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        return scale.reshape([-1 if i == axis else 1 for i in range(array.ndim)])

    values[pair.weights] = first / along(first, 0)
    if pair.bias:
        values[pair.bias] = values[pair.bias] / scale
    axis = 0 if pair.depthwise else 1
    values[pair.after] = second * along(second, axis)
    return float(np.abs(scale - 1).max())


def _pairs(graph: onnx.GraphProto) -> Iterator[Pair]:
    """Pairs of convolutions, where only the second reads the first's result, directly or through a ReLU."""
    shapes = {t.name: tuple(t.dims) for t in graph.initializer if _is_real(t)}
    reads = Counter(name for node in graph.node for name in node.input)
    reads.update(value.name for value in graph.output)
    readers = {name: node for node in graph.node for name in node.input}
    for node in graph.node:
        if not _is_layer(node, shapes) or (len(node.input) > 2 and node.input[2] not in shapes):
            continue
        after, through = readers.get(node.output[0]), node.output[0]
        if after is not None and after.op_type == "Relu" and reads[through] == 1:
            through = after.output[0]
            after = readers.get(through)
        if after is None or reads[through] != 1 or after.input[0] != through or not _is_layer(after, shapes):
            continue
        groups = next((a.i for a in after.attribute if a.name == "group"), 1)
        names = (node.input[1], after.input[1], *node.input[2:3])
        depthwise = groups > 1
        channels = shapes[after.input[1]][0 if depthwise else 1]
        alone = all(reads[name] == 1 for name in names)
        if alone and channels == shapes[node.input[1]][0] and (not depthwise or groups == channels):
            yield Pair(node.input[1], node.input[2] if len(node.input) > 2 else "", after.input[1], depthwise)


def _is_layer(node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]]) -> bool:
    return node.op_type == "Conv" and node.domain in ("", "ai.onnx") and node.input[1] in shapes


AXES = {"Conv": 1, "Gemm": 1}  # of a result's channels
ACTIVATIONS = ("Relu", "Clip")  # activations that are fused into the layer before them
LIMIT = 2**31 - 1
BACK = "_DequantizeLinear_Output"  # suffix of onnxruntime's quantiser for a tensor that was quantised and dequantised


def clipped(graph: onnx.GraphProto) -> dict[str, str]:
    """Operand -> result of activations that alone read their operand: onnxruntime gives it the result's range."""
    reads = Counter(name for node in graph.node for name in node.input)
    reads.update(value.name for value in graph.output)
    return {n.input[0]: n.output[0] for n in graph.node if n.op_type in ACTIVATIONS and reads[n.input[0]] == 1}


@dataclass(frozen=True)
class Bias:
    """Names of a layer's result in the float and in the quantised network, and of the constants of its bias.

    If an activation of `clipped` reads the result, these are names of the activation's result.
    """

    right: str
    rounded: str
    axis: int
    numbers: str  # of the int32 bias
    scale: str


def corrected(quantised: onnx.ModelProto, real: onnx.ModelProto, rows: Sequence[Row]) -> onnx.ModelProto | None:
    """A copy of the QDQ network with corrected biases; None if no layer has one. `real`: the float network.

    The mean error of each channel's results on `rows` is subtracted from the bias (Nagel et al., section 4.2, with
    measured means). Layers are corrected in order, so each is measured after the correction of those before it.
    """
    biases = list(_biases(quantised.graph))
    if not biases:
        return None
    copy = onnx.ModelProto.FromString(quantised.SerializeToString())
    wanted = run(real, rows, [b.right for b in biases])
    constants = {t.name: t for t in copy.graph.initializer}
    for bias, right in zip(biases, wanted, strict=True):
        (value,) = run(copy, rows, [bias.rounded])
        axes = tuple(i for i in range(value.ndim) if i != bias.axis + 1)  # axis 0 is samples
        error = np.mean(value.astype(np.float64) - right, axis=axes)
        scale = numpy_helper.to_array(constants[bias.scale]).astype(np.float64)
        numbers = numpy_helper.to_array(constants[bias.numbers]).astype(np.float64) - error / scale
        moved = np.clip(np.rint(numbers), -LIMIT, LIMIT).astype(np.int32)
        constants[bias.numbers].CopyFrom(numpy_helper.from_array(moved, bias.numbers))
    return copy


def _biases(graph: onnx.GraphProto) -> Iterator[Bias]:
    makers = {name: node for node in graph.node for name in node.output}
    readers = {name: node for node in graph.node for name in node.input}
    constants = {t.name: t for t in graph.initializer}
    behind = clipped(graph)
    for node in graph.node:
        if node.op_type not in AXES or len(node.input) < 3:
            continue
        maker = makers.get(node.input[2])
        if maker is None or maker.op_type != "DequantizeLinear" or maker.input[0] not in constants:
            continue
        if constants[maker.input[0]].data_type == onnx.TensorProto.INT32 and maker.input[1] in constants:
            result = node.output[0]
            stored = readers.get(result)  # a QuantizeLinear, whose scale also clips as the activation does
            back = readers.get(stored.output[0]) if stored is not None and stored.op_type == "QuantizeLinear" else None
            rounded = back.output[0] if back is not None and back.op_type == "DequantizeLinear" else result
            rounded = behind.get(rounded, rounded)
            yield Bias(rounded.removesuffix(BACK), rounded, AXES[node.op_type], maker.input[0], maker.input[1])


WORST = 5  # layers in the report
NOISE_SAMPLES = 32  # samples on which the noise of each layer is measured
NHWC = (0, 2, 3, 1)


def against_float(
    model: Path,
    target: Target,
    artifacts: Sequence[Artifact],
    data: Path,
    labels: Path | None,
    reference: Path | None,
    library: Path | None = None,
) -> dict[str, Any]:
    """Run the firmware on every sample of `data`, float32 as for `quantise`, and compare it with the float network.

    Returns `samples`. With labels: `accuracy` and `confusion` (rows: right classes, columns: the firmware's), or `auc`
    for an autoencoder. With a float `reference` network: `snr_db`, and with labels `reference_accuracy` and
    `same_class` (a share), or `reference_auc`. For an ONNX `model` at its own scales also `worst_layers`, by their
    signal-to-noise ratio on the build machine.
    Raises EdgebuildError if samples, labels and networks do not fit each other.
    """
    report = report_of(artifacts)
    real = float_model(reference) if reference else None
    rows, right = read_rows(data, labels, ports(real) if real else [_port(p) for p in report["inputs"]])
    vectors = [_vector(row, report["inputs"]) for row in rows]
    outputs = outputs_on_target(target, artifacts, vectors, library)
    values = [real_values(np.stack([o[i] for o in outputs]), port) for i, port in enumerate(report["outputs"])]
    result: dict[str, Any] = {"samples": len(rows)}
    inputs = only_input(rows)
    if right is not None and labels is not None:
        result = accuracy(inputs, values[0], right, labels)
    if real is None:
        return result
    simple = folded(real, rows[0])
    theirs = run(simple, rows)
    if [x.size for x in theirs] != [x.size for x in values]:
        raise fail("has other outputs than the network", file=visible(reference.name if reference else ""))
    chosen = classes(theirs[0])
    if right is not None and inputs is not None and "auc" in result:
        result["reference_auc"] = auc(inputs, theirs[0], right)
    elif right is not None:
        same = float(np.mean(chosen == classes(values[0])))
        result |= {"reference_accuracy": float(np.mean(chosen == right)), "same_class": same}
    noise = [signal_to_noise(_like(a, b), b) for a, b in zip(theirs, values, strict=True)]
    result["snr_db"] = round(min(noise), 2)
    if model.suffix == ".onnx" and report["model"]["format"] != FORMAT:
        result["worst_layers"] = _worst(model, simple, rows[:NOISE_SAMPLES])
    return result


def _port(port: dict[str, Any]) -> Port:
    return Port(port["name"], tuple(port["shape"]))


def _vector(row: Row, wanted: Sequence[dict[str, Any]]) -> list[Array]:
    """One sample in the firmware's types and layouts, quantised with the scale of each input."""
    by_order = list(row.values())
    vector = []
    for i, port in enumerate(wanted):
        value = row.get(port["name"], by_order[i] if len(by_order) == len(wanted) else None)
        if value is None or value.size != int(np.prod(port["shape"])):
            raise fail(f"no sample fits input '{visible(port['name'])}' of the network: {port['shape']}")
        dtype = np.dtype(port["dtype"])
        fitted = _like(value[None], np.empty((1, *port["shape"])))[0]
        if dtype.kind == "f":
            vector.append(np.ascontiguousarray(fitted, dtype))
            continue
        limits = np.iinfo(dtype)
        steps = np.rint(fitted / np.float32(port["scale"])) + port["zero_point"]
        vector.append(np.ascontiguousarray(np.clip(steps, limits.min, limits.max).astype(dtype)))
    return vector


def _like(value: Array, other: Array) -> Array:
    """[samples, ...] in the layout of `other`: as it is, or with the channels last."""
    if value.shape != other.shape and value.ndim == 5:
        turned = value.transpose(0, *(1 + axis for axis in NHWC))
        value = turned if turned.shape == other.shape else value
    return value.reshape(other.shape)


def _worst(model: Path, real: onnx.ModelProto, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The tensors with the most noise in the quantised network, compared with the float network on this machine."""
    quantised = onnx.load(model)
    computed = {name for node in quantised.graph.node for name in node.output}
    inner = clipped(real.graph)
    names = [n for node in real.graph.node for n in node.output if n + BACK in computed and n not in inner]
    if not names:
        return []
    right, value = run(real, rows, names), run(quantised, rows, [name + BACK for name in names])
    pairs = [(n, a, b) for n, a, b in zip(names, right, value, strict=True) if a.shape == b.shape]
    noise = {n: round(signal_to_noise(a, _scaled(b, a)), 2) for n, a, b in pairs}
    worst = sorted(noise, key=lambda n: noise[n])[:WORST]
    return [{"tensor": name, "snr_db": noise[name]} for name in worst]


def _scaled(value: Array, right: Array) -> Array:
    """`value` with each channel times the factor of least squares to `right`: equalised layers have other scales."""
    if value.ndim < 3:
        return value
    axes = tuple(i for i in range(value.ndim) if i != 2)  # samples, the batch of 1, channels
    power = np.sum(value.astype(np.float64) ** 2, axis=axes, keepdims=True)
    factor = np.sum(value.astype(np.float64) * right, axis=axes, keepdims=True) / np.where(power > 0, power, 1)
    return value * factor
