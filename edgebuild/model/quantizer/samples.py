"""Samples and labels of the user's files, as the float network takes them.

How near a quantised network is to its float one, on samples that took no part in its making.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...base.errors import Diagnostic, fail, visible
from ...base.progress import warn
from ..verify.accuracy import classes, read_labels
from ..verify.vectors import read_inputs
from .float_models import Array, Port, Row, run

MOST_DB = 120.0  # of equal results


@dataclass(frozen=True)
class Quality:
    """`accuracy`: share of right classes, None without labels. `sqnr`: signal to quantisation noise in dB."""

    accuracy: float | None
    sqnr: float

    def drop_from(self, real: Quality) -> float:
        """Points of accuracy lost against the float network; below 0 where it is better."""
        return 100 * ((real.accuracy or 0.0) - (self.accuracy or 0.0))


def signal_to_noise(right: Array, value: Array) -> float:
    """10 log10 of the power of `right` over that of the difference, in dB, at most MOST_DB."""
    signal = float(np.sum(right.astype(np.float64) ** 2))
    noise = float(np.sum((right.astype(np.float64) - value) ** 2))
    return min(MOST_DB, 10 * float(np.log10(max(signal, 1e-30) / noise))) if noise else MOST_DB


def quality(model: onnx.ModelProto, rows: Sequence[Row], right: Sequence[Array], labels: Array | None) -> Quality:
    """Of a network on `rows`, of which the float network makes `right` (per output). Classes are the first output's."""
    outputs = run(model, rows)
    sqnr = min(signal_to_noise(a, b) for a, b in zip(right, outputs, strict=True))
    return Quality(None if labels is None else float(np.mean(classes(outputs[0]) == labels)), sqnr)


FEW = 16  # samples, below which a warning says so
MOST = 256  # samples that calibrate, and as many that judge


@dataclass(frozen=True)
class Samples:
    """`calibrate` and `judge` have no sample in common where there are two. `labels`: of those that judge."""

    calibrate: Sequence[Row]
    judge: Sequence[Row]
    labels: Array | None


def read_samples(data: Path, labels: Path | None, ports: Sequence[Port]) -> Samples:
    """Every other sample calibrates, the others judge; of many, MOST evenly spread ones each."""
    rows, right = read_rows(data, labels, ports)
    if len(rows) < FEW:
        what = f"{len(rows)} samples are few" if len(rows) > 1 else "one sample, which calibrates and judges, is few"
        text = f"{what}: the ranges of activations may be wrong for others"
        warn(Diagnostic(text, str(data), severity="warning", hints=(f"give {FEW} or more, of every kind",)))
    judges = _spread(range(1 if len(rows) > 1 else 0, len(rows), 2))
    calibrate = [rows[i] for i in _spread(range(0, len(rows), 2))]
    return Samples(calibrate, [rows[i] for i in judges], None if right is None else right[judges])


def _spread(numbers: range) -> list[int]:
    places = np.linspace(0, len(numbers) - 1, min(len(numbers), MOST)).round().astype(int)
    return [numbers[place] for place in places]


def read_rows(data: Path, labels: Path | None, ports: Sequence[Port]) -> tuple[list[Row], Array | None]:
    """All samples, and the class of each.

    Raises EdgebuildError for samples of another shape or type and labels of another length.
    """
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
    """[samples, *shape of the input], in float32. The batch of 1 may be left out in the file."""
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
