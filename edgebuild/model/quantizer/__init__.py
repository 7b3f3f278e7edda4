"""Float networks become int8 ones: the ways to quantise are tried, and measured on samples that none of them saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from ...base.errors import fail, visible
from ..verify.accuracy import check_classes
from .corrections import corrected, equalised
from .samples import Quality, Row, Samples, float_model, folded, ports, quality, read_samples, run, runtime
from .to_qdq import METHODS, Wide, layers, quantised, ranges

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
