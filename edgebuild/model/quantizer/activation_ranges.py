"""Ranges of activations, from samples: what a scale has to cover, and what it may cut off."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

from .float_models import Array, Row

Ranges = dict[str, tuple[float, float]]  # by name of a tensor
METHODS = ("minmax", "percentile", "entropy", "mse")
PERCENTILE = 99.99  # per cent of the values that the range covers
BINS = 2048
CHUNK = 16  # samples of which all activations are in memory at once
STEPS = 255  # of an int8 scale
SHARES = np.linspace(0.2, 1, 81)  # of the whole range, tried for the least square error


def ranges(model: onnx.ModelProto, rows: Sequence[Row], method: str) -> Ranges:
    """The range of each activation by one of METHODS.

    minmax, percentile and entropy are onnxruntime's. mse takes the share of the whole range with the least square
    error of rounding and clipping, after the histogram of values.
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
