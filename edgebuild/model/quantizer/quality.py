"""How near a quantised network is to its float one, on samples that took no part in its making."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from ..verify.accuracy import classes
from .float_models import Array, Row, run

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
