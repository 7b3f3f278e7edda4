"""Graphs of one op of the audio front end, or of two where the second needs what the first finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgebuild.model.ir import Graph, Op, Tensor
from edgebuild.model.ops.signals import STAGES

from .single import KINDS, single
from .source import Source

ATTRIBUTES: dict[str, Callable[[Source, Tensor], dict[str, Any]]] = {
    "signal_window": lambda s, x: {"shift": s.between(0, 15)},
    "signal_energy": lambda s, x: {"first": s.between(0, 3), "end": s.between(3, x.shape[-1])},
    "signal_noise": lambda s, x: {"smoothing_bits": s.between(0, 10), "bits": 14, "clamping": s.pick(True, False)},
    "signal_denoise": lambda s, x: {"smoothing_bits": s.between(0, 10), "bits": 14, "least": s.between(0, 16384)},
    "signal_gain": lambda s, x: {"shift": s.between(0, 12)},
    "signal_log": lambda s, x: {"correction": s.between(0, 5), "scale": s.pick(1, 64, 1600)},
}


def _table(s: Source, name: str, dtype: str, size: int, low: int = 0, high: int = 16384) -> Tensor:
    return Tensor(name, (size,), dtype, None, s.rng.integers(low, high, size).astype(dtype))


def _held(s: Source, kind: str, x: Tensor) -> list[Tensor]:
    """Constants behind the data."""
    if kind == "signal_window":
        return [_table(s, "w", "int16", x.shape[-1], -(2**15), 2**15)]
    if kind == "signal_noise":
        return [_table(s, name, "uint32", x.shape[-1]) for name in ("smoothing", "rest")]
    if kind == "signal_gain":
        return [_table(s, "gains", "int16", 125, -(2**15), 2**15)]
    if kind != "signal_bank":
        return []
    bands, most = s.between(2, 6), x.elements
    first = s.rng.integers(0, most, bands)
    width = np.array([s.rng.integers(0, most - f + 1) for f in first])
    starts = np.cumsum(width) - width
    weights = [_table(s, name, "int16", int(max(width.sum(), 1)), -4096, 4096) for name in ("weights", "unweights")]
    places = {"frequencies": first, "starts": starts, "widths": width}
    return [*weights, *(Tensor(n, v.shape, "int16", None, v.astype(np.int16)) for n, v in places.items())]


def staged(kind: str) -> Callable[[Source], Graph]:
    def make(s: Source) -> Graph:
        stage = STAGES[kind]
        front = () if kind in ("signal_bank", "signal_gain", "signal_noise") else s.shape(0, 1, 3)
        x = Tensor("x", (*front, 2 * s.between(2, 12)), stage.operands[0])
        attrs = ATTRIBUTES[kind](s, x) if kind in ATTRIBUTES else {}
        held = _held(s, kind, x)
        data = [Tensor(f"x{i}", x.shape, t) for i, t in enumerate(stage.operands[1 : len(stage.operands) - len(held)])]
        if kind not in ("signal_raise", "signal_root"):
            return single(s, kind, [x, *data, *held], None, stage.result, **attrs)
        frame = Tensor("frame", x.shape, "int16") if kind == "signal_root" else x
        bits, y = Tensor("bits", (), "int32"), Tensor("y", x.shape, stage.result)
        steps = [Op("signal_headroom", "bits", (frame.name,), ("bits",), {}), Op(kind, kind, ("x", "bits"), ("y",), {})]
        return s.graph(steps, list({t.name: t for t in (x, frame, bits, y)}.values()), ["y"])

    return make


def spectrum(kind: str) -> Callable[[Source], Graph]:
    def make(s: Source) -> Graph:
        length, dtype = 2 ** s.between(2, 7), s.pick("int16", "int32", "float32")
        size = s.between(1, length) if kind == "rfft" else length + 2
        return single(s, kind, [Tensor("x", (*s.shape(0, 2, 3), size), dtype)], None, dtype, length=length)

    return make


KINDS |= {kind: staged(kind) for kind in STAGES}
KINDS |= {kind: spectrum(kind) for kind in ("rfft", "irfft")}
