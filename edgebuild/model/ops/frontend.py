"""The audio front end of TensorFlow Lite Micro (signal/src): from samples to log energies of bands, in integers.

Bit for bit as TFLM's kernels, in this order: `signal_window` (a product and a shift), `signal_headroom` (by how many
bits a frame can be raised) and `signal_raise`, then `rfft`, `signal_energy` (of each frequency from `first` on, before
`end`; 0 elsewhere, which TFLM leaves unwritten), `signal_bank` (bands of them), `signal_root` (shifted back by the
headroom), `signal_noise` (a smoothed estimate of each band, the state of which the next frame begins with),
`signal_denoise` (what is above it), `signal_gain` (per-channel amplitude normalisation) and `signal_log`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...base.dataclass import dataclass
from ..ir import Array, Graph, Op, Tensor
from ..ir.axes import Dim, Nest, Same, Whole
from .base import Constant, Form, Kernel, Spec

LOG_SEGMENTS = 128
LOG_OF_E = 45426  # ln(2) in units of 2^-16
SNR_BITS, GAIN_BITS = 12, 6  # fractions of a ratio of signal to noise, and of what is made of it


@dataclass(frozen=True)
class Stage:
    """One kind. `operands`: their types; those named in `held` are constants. `numbers`: attributes of the C function.

    `along`: results are made element by element; else each may need all of the first operand.
    """

    operands: tuple[str, ...]
    result: str
    meaning: Callable[..., Array]
    numbers: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    along: bool = True


def bits(x: Any) -> Array:
    """Significant bits of whole numbers from 0 on."""
    return np.array([int(n).bit_length() for n in np.ravel(x)], np.int64).reshape(np.shape(x))


def _window(op: Op, x: Array, w: Array) -> Array:
    return np.clip((x.astype(np.int32) * w) >> op.attrs["shift"], -(2**15), 2**15 - 1)


def _headroom(op: Op, x: Array) -> Array:
    """An absolute value of 2^15 is taken for no room."""
    most = int(np.abs(x.astype(np.int64)).max())
    return np.array(max(15 - most.bit_length(), 0))


def _raise(op: Op, x: Array, by: Array) -> Array:
    return np.asarray(x.astype(np.int64) << int(by.ravel()[0]))


def _energy(op: Op, x: Array) -> Array:
    both = x.reshape(*x.shape[:-1], -1, 2).astype(np.int64)
    at = np.arange(both.shape[-2])
    return np.where((at >= op.attrs["first"]) & (at < op.attrs["end"]), (both * both).sum(axis=-1), 0)


def _bank(op: Op, x: Array, weight: Array, other: Array, *places: Array) -> Array:
    """A band is the rising side of its own filter and the falling one of the filter before it."""
    rising, falling = np.zeros((2, len(places[0])), np.uint64)
    for band, (frequency, own, width) in enumerate(zip(*(p.astype(int) for p in places), strict=True)):
        energy = x.ravel()[frequency : frequency + width].astype(np.uint64)
        sides = (w[own : own + width].astype(np.int64).astype(np.uint64) for w in (weight, other))
        rising[band], falling[band] = ((energy * side).sum(dtype=np.uint64) for side in sides)
    return rising[1:] + falling[:-1]


def root(x: int) -> int:
    """The nearest whole number to the root, within 16 bits if x has no more than 32, else within 32."""
    low = int(x) >> 32 == 0
    found = _floor_root(int(x))
    return min(found + (int(x) - found * found > found), 0xFFFF if low else 0xFFFFFFFF)


def _floor_root(x: int) -> int:
    found = 0
    for bit in range(31, -1, -1):
        found |= (1 << bit) if (found | 1 << bit) ** 2 <= x else 0
    return found


def _root(op: Op, x: Array, by: Array) -> Array:
    """A shift that uint32 does not have gives 0: C leaves it open, and TFLM with it."""
    bits = int(by.ravel()[0])
    roots = np.array([root(n) for n in x.ravel()], np.uint32).reshape(x.shape)
    return roots >> np.uint32(bits) if 0 <= bits < 32 else np.zeros_like(roots)


def _noise(op: Op, x: Array, state: Array, smoothing: Array, rest: Array) -> Array:
    signal = x << np.uint32(op.attrs["smoothing_bits"])
    total = signal.astype(np.uint64) * smoothing + state.astype(np.uint64) * rest
    found = (total >> np.uint64(op.attrs["bits"])).astype(np.uint32)
    return np.minimum(found, signal) if op.attrs["clamping"] else found


def _denoise(op: Op, x: Array, noise: Array) -> Array:
    signal = x << np.uint32(op.attrs["smoothing_bits"])
    above = (signal - np.minimum(noise, signal)) >> np.uint32(op.attrs["smoothing_bits"])
    least = (x.astype(np.uint64) * np.uint64(op.attrs["least"])) >> np.uint64(op.attrs["bits"])
    return np.maximum(above, least.astype(np.uint32))


def gain_of(table: Array, x: int) -> int:
    """A parabola for each power of two: three numbers of the table, the fourth is not used."""
    if x <= 2:
        return int(table[x])
    size = int(x).bit_length()
    at = 4 * size - 6
    part = (x << (11 - size) if size < 11 else x >> (size - 11)) & 0x3FF
    value = ((int(table[at + 2]) * part) >> 5) + (int(table[at + 1]) << 5)
    value = _signed(value * part, 32)
    return _signed(((value + (1 << 14)) >> 15) + int(table[at]), 16)


def _signed(x: int, width: int) -> int:
    return (x + (1 << (width - 1))) % (1 << width) - (1 << (width - 1))


def _gain(op: Op, x: Array, noise: Array, table: Array) -> Array:
    found = []
    for signal, n in zip(x.ravel().tolist(), noise.ravel().tolist(), strict=True):
        gain = gain_of(table, n) % 2**32
        ratio = (signal * gain % 2**64 >> op.attrs["shift"]) % 2**32
        if ratio < 2 << SNR_BITS:
            found.append(ratio * ratio >> (2 + 2 * SNR_BITS - GAIN_BITS))
        else:
            found.append((ratio >> (SNR_BITS - GAIN_BITS)) - (1 << GAIN_BITS))
    return np.array(found, np.uint32).reshape(x.shape)


def log_table() -> Array:
    """log2(1 + f) - f at the ends of equal parts of 0 to 1, in units of 2^-16."""
    f = np.arange(LOG_SEGMENTS + 1) / LOG_SEGMENTS
    return np.rint(2**16 * (np.log2(1 + f) - f)).astype(np.int16)


def _log(op: Op, x: Array) -> Array:
    table, found = log_table().astype(int), []
    for value in x.ravel().tolist():
        value = (value << op.attrs["correction"]) % 2**32
        if value <= 1:
            found.append(0)
            continue
        whole = value.bit_length() - 1
        rest = value - (1 << whole)
        part = rest << (16 - whole) if whole < 16 else rest >> (whole - 16)
        at = part >> 9
        step = ((table[at + 1] - table[at]) * (part - (at << 9))) >> 16
        log = (whole << 16) + part + table[at] + step
        natural = (LOG_OF_E * log + (1 << 15)) >> 16
        found.append(min((op.attrs["scale"] * natural + (1 << 15)) % 2**32 >> 16, 2**15 - 1))
    return np.array(found).reshape(x.shape)


PLACES = ("frequencies", "weight_starts", "widths")
STAGES = {
    "signal_window": Stage(("int16", "int16"), "int16", _window, ("shift",), ("window",)),
    "signal_add": Stage(2 * ("int16",), "int16", lambda op, a, b: np.clip(a.astype(int) + b, -(2**15), 2**15 - 1)),
    "signal_headroom": Stage(("int16",), "int32", _headroom, along=False),
    "signal_raise": Stage(("int16", "int32"), "int16", _raise),
    "signal_energy": Stage(("int16",), "uint32", _energy, ("first", "end"), along=False),
    "signal_bank": Stage(("uint32",) + 5 * ("int16",), "uint64", _bank, (), ("weights", "unweights", *PLACES), False),
    "signal_root": Stage(("uint64", "int32"), "uint32", _root),
    "signal_noise": Stage(4 * ("uint32",), "uint32", _noise, ("smoothing_bits", "bits"), ("smoothing", "rest")),
    "signal_denoise": Stage(2 * ("uint32",), "uint32", _denoise, ("smoothing_bits", "bits", "least")),
    "signal_gain": Stage(("uint32", "uint32", "int16"), "uint32", _gain, ("shift",), ("gains",)),
    "signal_log": Stage(("uint32",), "int16", _log, ("correction", "scale")),
}


def nest(op: Op, graph: Graph) -> Nest:
    """Element by element; numbers for all elements, tables and what is summed up are read whole."""
    operands, stage = graph.operands(op), STAGES[op.kind]
    x = operands[0]
    whole = tuple(tuple(Whole(n) for n in t.shape) for t in operands)
    if op.kind == "signal_headroom":
        return Nest({}, (), whole)
    if op.kind == "signal_bank":
        return Nest({"b": operands[3].elements - 1}, ("b",), whole)
    names = tuple(f"i{d}" for d in range(len(x.shape)))
    if not stage.along:
        extents = dict(zip(names, (*x.shape[:-1], x.shape[-1] // 2), strict=True))
        return Nest(extents, names, ((*(Same(n) for n in names[:-1]), Whole(x.shape[-1])), *whole[1:]))
    own: list[tuple[Dim, ...]] = [tuple(Same(n) for n in names)]
    for t, read in zip(operands[1:], whole[1:], strict=True):
        tail = names[len(names) - len(t.shape) :]
        own.append(tuple(Same(n) for n in tail) if t.shape == x.shape[len(x.shape) - len(t.shape) :] else read)
    return Nest(dict(zip(names, x.shape, strict=True)), names, tuple(own))


def reference(op: Op, graph: Graph, *operands: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(STAGES[op.kind].meaning(op, *operands)).astype(graph.result(op).dtype)


def of_its_types(op: Op, graph: Graph) -> str | None:
    """Types and shapes are those of TensorFlow Lite Micro's kernels; tables are constants and long enough."""
    operands, stage = graph.operands(op), STAGES[op.kind]
    types = tuple(t.dtype for t in operands)
    if types != stage.operands or graph.result(op).dtype != stage.result:
        return f"{', '.join(types)} to {graph.result(op).dtype}"
    first = len(operands) - len(stage.held)
    if any((t.data is None) == (i >= first) for i, t in enumerate(operands)):
        return "tables that the graph computes, or data that it does not"
    return _does_not_fit(op, operands)


def _does_not_fit(op: Op, operands: tuple[Tensor, ...]) -> str | None:
    """A shape, or a number of the node, with which an element that does not exist would be read."""
    x, shapes = operands[0], [t.shape for t in operands]
    limits = {"shift": 47, "smoothing_bits": 31, "bits": 47, "correction": 31, "least": 2**31 - 1, "scale": 2**31 - 1}
    for name, most in limits.items():
        if not 0 <= op.attrs.get(name, 0) <= most:
            return f"{name} {op.attrs[name]}"
    if op.kind == "signal_window" and shapes[1] != x.shape[-1:]:
        return f"a window of shape {shapes[1]} for {x.shape}"
    if op.kind in ("signal_raise", "signal_root") and operands[1].elements != 1:
        return f"bits of shape {shapes[1]}"
    if op.kind in ("signal_add", "signal_noise", "signal_denoise", "signal_gain") and shapes[1] != x.shape:
        return f"shapes {shapes[:2]}"
    if op.kind == "signal_energy" and (not x.shape or x.shape[-1] % 2 or not 0 <= op.attrs["first"] <= op.attrs["end"]):
        return f"frequencies {op.attrs['first']} to {op.attrs['end']} of shape {x.shape}"
    if op.kind == "signal_gain" and operands[2].elements < 4 * 32 - 6 + 3:
        return f"a table of {operands[2].elements} gains"
    return _bands_do_not_fit(operands) if op.kind == "signal_bank" else None


def _bands_do_not_fit(operands: tuple[Tensor, ...]) -> str | None:
    x, weights, others, *places = operands
    frequency, own, width = (np.asarray(t.data).astype(int) for t in places)
    if not (len(frequency) == len(own) == len(width) > 1 and min(frequency.min(), own.min(), width.min()) >= 0):
        return f"bands {[t.shape for t in places]}"
    reach = (frequency + width).max() <= x.elements and (own + width).max() <= min(weights.elements, others.elements)
    return None if reach else f"bands beyond {x.elements} frequencies or {weights.elements} weights"


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    operands, stage, y = graph.operands(op), STAGES[op.kind], graph.result(op)
    own = operands[len(operands) - len(stage.held) :] if stage.held else ()
    constants = [Constant(n, np.asarray(t.data), "of the front end") for n, t in zip(stage.held, own, strict=True)]
    if op.kind == "signal_log":
        constants.append(Constant("table", log_table(), "log2(1 + f) - f"))
    name = op.kind.removeprefix("signal_")
    shape: dict[str, Any] = {"stage": name, "N": operands[0].elements, "count": y.elements}
    shape |= {"last": operands[0].shape[-1], "clamping": bool(op.attrs.get("clamping", False))}
    numbers = {n: int(op.attrs[n]) for n in stage.numbers}
    stem = f"{op.kind}_{operands[0].elements}"
    return Kernel("frontend.c.j2", stem, shape, tuple(constants), numbers, estimate=30.0 * operands[0].elements)


# Files ---------------------------------------------------------------------------------------


BASE = Spec(kind="", nest=nest, reference=reference, kernel=kernel, plain=True, limits=(of_its_types,))
SPECS = tuple(replace(BASE, kind=kind) for kind in STAGES)
