"""Signals: the Fourier transform of real lines, and TFLite Micro's audio front end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import isqrt, pi
from typing import Any

import numpy as np

from ..ir import Array, Graph, Nest, Op, Tensor, Whole, lines, numbered, same
from .base import C_TYPES, Constant, Form, Kernel, Spec

# SignalRfft, SignalIrfft: Fourier transforms of real lines, of int16, int32 or float32, bit for bit as TFLM's.
#
# `rfft` gives `length` / 2 + 1 complex numbers, as pairs of real and imaginary parts, of lines that zeros fill up to
# `length`. `irfft` is the inverse. TFLM calls KISS FFT: a transform of half the length whose elements are pairs of
# neighbours, in stages of four and at last of two, then one step that separates both halves. Integers are divided by
# the radix before each stage, by a product with a rounded reciprocal; all products are rounded, halves up.

FRACTION = {"int16": 15, "int32": 31, "float32": 0}
WIDE = {"int16": "int32_t", "int32": "int64_t", "float32": "float"}
MAX_LENGTH = 1 << 14


@dataclass(frozen=True)
class Plan:
    """Plan of a complex transform: radices from the outer stage to the inner one, and the order of the elements."""

    radices: tuple[int, ...]
    order: Array  # element of the input for each place


@cache
def plan_of(count: int) -> Plan:
    radices, rest = list[int](), count
    while rest > 1:
        radices.append(4 if rest % 4 == 0 else 2)
        rest //= radices[-1]
    order, step = np.zeros(1, np.int64), 1
    blocks = []
    for radix in radices:
        blocks.append((radix, step))
        step *= radix
    for radix, step in reversed(blocks):
        order = np.concatenate([order + i * step for i in range(radix)])
    return Plan(tuple(radices), order)


def turns(phases: Array, dtype: str) -> Array:
    """Points (cos, sin) of the unit circle in the transform's type; integers round halves up."""
    points = np.stack([np.cos(phases), np.sin(phases)], axis=-1)
    if dtype == "float32":
        return points.astype(np.float32)
    return np.floor(0.5 + float(2 ** FRACTION[dtype] - 1) * points).astype(dtype)


def tables(length: int, dtype: str, back: bool) -> tuple[Array, Array]:
    """Factors of the stages, and those of the step that joins both halves."""
    half, sign = length // 2, 1 if back else -1
    stages = turns(sign * 2 * pi * np.arange(half) / half, dtype)
    joined = turns(sign * pi * ((np.arange(half // 2) + 1) / half + 0.5), dtype)
    return stages, joined


@dataclass(frozen=True)
class Arithmetic:
    """Products and divisions in a type; numpy holds its integers in 64 bits."""

    dtype: str

    def rounded(self, x: Array) -> Array:
        if self.dtype == "float32":
            return np.asarray(x, np.float32)
        bits = FRACTION[self.dtype]
        return np.asarray((x + (1 << (bits - 1))) >> bits).astype(self.dtype).astype(np.int64)

    def divided(self, x: Array, by: int) -> Array:
        return x if self.dtype == "float32" else self.rounded(x * ((2 ** FRACTION[self.dtype] - 1) // by))

    def times(self, a: Array, b: Array) -> Array:
        (ar, ai), (br, bi) = np.moveaxis(a, -1, 0), np.moveaxis(b, -1, 0)
        return np.stack([self.rounded(ar * br - ai * bi), self.rounded(ar * bi + ai * br)], axis=-1)

    def halved(self, x: Array) -> Array:
        return np.asarray(x * np.float32(0.5) if self.dtype == "float32" else x >> 1)

    def kept(self, x: Array) -> Array:
        """Wrap integers around in their type."""
        return x if self.dtype == "float32" else x.astype(self.dtype).astype(np.int64)


def transformed(t: Array, dtype: str, factors: Array, back: bool) -> Array:
    """The complex transform of pairs in the plan's order; the innermost stage is first."""
    a, size, count = Arithmetic(dtype), 1, len(t)
    for radix in reversed(plan_of(count).radices):
        step = count // (size * radix)
        k = np.arange(size)
        parts = a.divided(t.reshape(step, radix, size, 2), radix)
        scaled = [parts[:, 0]] + [a.times(parts[:, i], factors[k * step * i]) for i in range(1, radix)]
        if radix == 2:
            joined = [scaled[0] + scaled[1], scaled[0] - scaled[1]]
        else:
            even, odd = a.kept(scaled[0] + scaled[2]), a.kept(scaled[0] - scaled[2])
            both, turned = a.kept(scaled[1] + scaled[3]), a.kept(scaled[1] - scaled[3])
            turned = np.stack([turned[..., 1], -turned[..., 0]], axis=-1) * (-1 if back else 1)
            joined = [even + both, odd + turned, even - both, odd - turned]
        t = a.kept(np.stack(joined, axis=1).reshape(count, 2))
        size *= radix
    return t


def _line(op: Op, dtype: str, x: Array) -> Array:
    length = op.attrs["length"]
    half, wide = length // 2, np.float32 if dtype == "float32" else np.int64
    stages, joined = (t.astype(wide) for t in tables(length, dtype, op.kind == "irfft"))
    return (_back if op.kind == "irfft" else _forth)(x.astype(wide), half, dtype, stages, joined)


def _forth(x: Array, half: int, dtype: str, stages: Array, joined: Array) -> Array:
    a = Arithmetic(dtype)
    filled = np.concatenate([x, np.zeros(2 * half - len(x), x.dtype)]).reshape(half, 2)
    t = transformed(filled[plan_of(half).order], dtype, stages, False)
    y = np.zeros((half + 1, 2), x.dtype)
    first = a.divided(t[0], 2)
    y[0, 0], y[half, 0] = a.kept(first[0] + first[1]), a.kept(first[0] - first[1])
    k = np.arange(1, half // 2 + 1)
    low, high = a.divided(t[k], 2), a.divided(t[half - k] * np.array([1, -1], x.dtype), 2)
    total, turned = a.kept(low + high), a.times(a.kept(low - high), joined)
    y[k] = a.halved(total + turned)
    y[half - k, 0], y[half - k, 1] = a.halved(total[:, 0] - turned[:, 0]), a.halved(turned[:, 1] - total[:, 1])
    return y.ravel()


def _back(x: Array, half: int, dtype: str, stages: Array, joined: Array) -> Array:
    a = Arithmetic(dtype)
    x = x.reshape(half + 1, 2)
    t = np.zeros((half, 2), x.dtype)
    t[0] = a.divided(a.kept(np.array([x[0, 0] + x[half, 0], x[0, 0] - x[half, 0]], x.dtype)), 2)
    k = np.arange(1, half // 2 + 1)
    low, high = a.divided(x[k], 2), a.divided(a.kept(x[half - k] * np.array([1, -1], x.dtype)), 2)
    even, odd = a.kept(low + high), a.times(a.kept(low - high), joined)
    t[k] = a.kept(even + odd)
    t[half - k] = a.kept(a.kept(even - odd) * np.array([1, -1], x.dtype))
    y = transformed(t[plan_of(half).order], dtype, stages, True).ravel()
    return y * np.float32(1 / (2 * half)) if dtype == "float32" else y


def spectrum_reference(op: Op, graph: Graph, x: Array) -> Array:
    y = graph.result(op)
    lines = [_line(op, y.dtype, line) for line in x.reshape(-1, x.shape[-1])]
    return np.stack(lines).reshape(y.shape).astype(y.dtype)


def spectrum_nest(op: Op, graph: Graph) -> Nest:
    """Index relation: every frequency needs its whole line."""
    return lines(graph.operands(op)[0].shape, -1, op.attrs["length"] + (2 if op.kind == "rfft" else 0))


def of_two(op: Op, graph: Graph) -> str | None:
    """The length is a power of two from 4 to 16384, lines are not longer; values are int16, int32 or float32."""
    x, y, length = graph.operands(op)[0], graph.result(op), op.attrs["length"]
    if x.dtype not in FRACTION or y.dtype != x.dtype:
        return f"{x.dtype} to {y.dtype}"
    if not 4 <= length <= MAX_LENGTH or length & (length - 1):
        return f"a length of {length}"
    fits = x.shape[-1] <= length if op.kind == "rfft" else x.shape[-1] == length + 2
    return None if fits else f"lines of {x.shape[-1]} for a length of {length}"


def spectrum_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,), y, length = graph.operands(op), graph.result(op), op.attrs["length"]
    half, back = length // 2, op.kind == "irfft"
    stages, joined = tables(length, y.dtype, back)
    plan, blocks, size = plan_of(half), [], 1
    for radix in reversed(plan.radices):
        blocks.append((radix, size, half // (size * radix)))
        size *= radix
    shape: dict[str, Any] = {"half": half, "in": x.shape[-1], "out": y.shape[-1], "lines": x.elements // x.shape[-1]}
    shape |= {"stages": tuple(blocks), "bits": FRACTION[y.dtype], "back": back, "wide": WIDE[y.dtype]}
    constants = (
        Constant("order", plan.order.astype(np.int16), "of elements before the first stage"),
        Constant("turns", stages, "of the stages"),
        Constant("joints", joined, "of the step that joins both halves"),
    )
    count = 4.0 * length * len(plan.radices) + 8.0 * length
    scratch = y.bytes // shape["lines"] if back else 0
    stem = f"{op.kind}_{length}_{C_TYPES[y.dtype].removesuffix('_t')}"
    return Kernel("signals.c:spectrum", stem, shape, constants, scratch=scratch, estimate=count * 4 * shape["lines"])


SPECTRA = tuple(
    Spec(kind, spectrum_nest, spectrum_reference, spectrum_kernel, plain=True, limits=(of_two,))
    for kind in ("rfft", "irfft")
)


# The audio front end of TensorFlow Lite Micro (signal/src): from samples to log energies of bands, in integers.
#
# Bit for bit as TFLM's kernels, in this order: `signal_window` (a product and a shift), `signal_headroom` (by how many
# bits a frame can be raised) and `signal_raise`, then `rfft`, `signal_energy` (of each frequency from `first` on,
# before `end`; 0 elsewhere, which TFLM leaves unwritten), `signal_bank` (bands of them), `signal_root` (shifted back by
# the headroom), `signal_noise` (a smoothed estimate of each band, the state of which the next frame begins with),
# `signal_denoise` (the signal above it), `signal_gain` (per-channel amplitude normalisation) and `signal_log`.

LOG_SEGMENTS = 128
LOG_OF_E = 45426  # ln(2) in units of 2^-16
SNR_BITS, GAIN_BITS = 12, 6  # fraction bits of a ratio of signal to noise, and of its result


@dataclass(frozen=True)
class Stage:
    """A kind of op. `operands`: their types; the last are constants, by name in `held`. `numbers`: attributes for C.

    `along`: results are made element by element; else each may need all of the first operand.
    """

    operands: tuple[str, ...]
    result: str
    meaning: Callable[..., Array]
    numbers: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    along: bool = True


def _window(op: Op, x: Array, w: Array) -> Array:
    return np.clip((x.astype(np.int32) * w) >> op.attrs["shift"], -(2**15), 2**15 - 1)


def _headroom(op: Op, x: Array) -> Array:
    """By how many bits the frame can be raised; an absolute value of 2^15 counts as no headroom."""
    most = int(np.abs(x.astype(np.int64)).max())
    return np.array(max(15 - most.bit_length(), 0))


def _energy(op: Op, x: Array) -> Array:
    both = x.reshape(*x.shape[:-1], -1, 2).astype(np.int64)
    at = np.arange(both.shape[-2])
    return np.where((at >= op.attrs["first"]) & (at < op.attrs["end"]), (both * both).sum(axis=-1), 0)


def _bank(op: Op, x: Array, weight: Array, other: Array, *places: Array) -> Array:
    """Energies of bands: the rising side of a band's own filter plus the falling side of the filter before it."""
    rising, falling = np.zeros((2, len(places[0])), np.uint64)
    for band, (frequency, own, width) in enumerate(zip(*(p.astype(int) for p in places), strict=True)):
        energy = x.ravel()[frequency : frequency + width].astype(np.uint64)
        sides = (w[own : own + width].astype(np.int64).astype(np.uint64) for w in (weight, other))
        rising[band], falling[band] = ((energy * side).sum(dtype=np.uint64) for side in sides)
    return rising[1:] + falling[:-1]


def root(x: int) -> int:
    """The nearest whole number to the square root, saturated to 16 bits if x has at most 32, else to 32."""
    below = isqrt(x)
    return min(below + (x - below * below > below), 0xFFFFFFFF if x >> 32 else 0xFFFF)


def _root(op: Op, x: Array, by: Array) -> Array:
    """Roots, shifted right. A shift outside 0 to 31, which C and TFLM leave undefined, gives 0."""
    bits = int(by.ravel()[0])
    roots = np.array([root(int(n)) for n in x.ravel()], np.uint32).reshape(x.shape)
    return roots >> np.uint32(bits) if 0 <= bits < 32 else np.zeros_like(roots)


def _noise(op: Op, x: Array, state: Array, smoothing: Array, rest: Array) -> Array:
    signal = x << np.uint32(op.attrs["smoothing_bits"])
    total = signal.astype(np.uint64) * smoothing + state.astype(np.uint64) * rest
    noise = (total >> np.uint64(op.attrs["bits"])).astype(np.uint32)
    return np.minimum(noise, signal) if op.attrs["clamping"] else noise


def _denoise(op: Op, x: Array, noise: Array) -> Array:
    signal = x << np.uint32(op.attrs["smoothing_bits"])
    above = (signal - np.minimum(noise, signal)) >> np.uint32(op.attrs["smoothing_bits"])
    least = (x.astype(np.uint64) * np.uint64(op.attrs["least"])) >> np.uint64(op.attrs["bits"])
    return np.maximum(above, least.astype(np.uint32))


def gain_of(table: Array, x: int) -> int:
    """The gain, by a parabola for each power of two: three numbers of the table; the fourth is not used."""
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
    gains = []
    for signal, n in zip(x.ravel().tolist(), noise.ravel().tolist(), strict=True):
        gain = gain_of(table, n) % 2**32
        ratio = (signal * gain % 2**64 >> op.attrs["shift"]) % 2**32
        if ratio < 2 << SNR_BITS:
            gains.append(ratio * ratio >> (2 + 2 * SNR_BITS - GAIN_BITS))
        else:
            gains.append((ratio >> (SNR_BITS - GAIN_BITS)) - (1 << GAIN_BITS))
    return np.array(gains, np.uint32).reshape(x.shape)


def log_table() -> Array:
    """log2(1 + f) - f at the ends of equal parts of 0 to 1, in units of 2^-16."""
    f = np.arange(LOG_SEGMENTS + 1) / LOG_SEGMENTS
    return np.rint(2**16 * (np.log2(1 + f) - f)).astype(np.int16)


def _log(op: Op, x: Array) -> Array:
    table, logs = log_table().astype(int), []
    for value in x.ravel().tolist():
        value = (value << op.attrs["correction"]) % 2**32
        if value <= 1:
            logs.append(0)
            continue
        whole = value.bit_length() - 1
        rest = value - (1 << whole)
        part = rest << (16 - whole) if whole < 16 else rest >> (whole - 16)
        at = part >> 9
        step = ((table[at + 1] - table[at]) * (part - (at << 9))) >> 16
        log = (whole << 16) + part + table[at] + step
        natural = (LOG_OF_E * log + (1 << 15)) >> 16
        logs.append(min((op.attrs["scale"] * natural + (1 << 15)) % 2**32 >> 16, 2**15 - 1))
    return np.array(logs).reshape(x.shape)


PLACES = ("frequencies", "weight_starts", "widths")
STAGES = {
    "signal_window": Stage(("int16", "int16"), "int16", _window, ("shift",), ("window",)),
    "signal_add": Stage(2 * ("int16",), "int16", lambda op, a, b: np.clip(a.astype(int) + b, -(2**15), 2**15 - 1)),
    "signal_headroom": Stage(("int16",), "int32", _headroom, along=False),
    "signal_raise": Stage(("int16", "int32"), "int16", lambda op, x, by: x.astype(np.int64) << int(by.ravel()[0])),
    "signal_energy": Stage(("int16",), "uint32", _energy, ("first", "end"), along=False),
    "signal_bank": Stage(("uint32",) + 5 * ("int16",), "uint64", _bank, (), ("weights", "unweights", *PLACES), False),
    "signal_root": Stage(("uint64", "int32"), "uint32", _root),
    "signal_noise": Stage(4 * ("uint32",), "uint32", _noise, ("smoothing_bits", "bits"), ("smoothing", "rest")),
    "signal_denoise": Stage(2 * ("uint32",), "uint32", _denoise, ("smoothing_bits", "bits", "least")),
    "signal_gain": Stage(("uint32", "uint32", "int16"), "uint32", _gain, ("shift",), ("gains",)),
    "signal_log": Stage(("uint32",), "int16", _log, ("correction", "scale")),
}


def frontend_nest(op: Op, graph: Graph) -> Nest:
    """Index relation: element by element; shared numbers, tables and summed operands are read whole."""
    operands, stage = graph.operands(op), STAGES[op.kind]
    x, extents = operands[0], numbered(operands[0].shape)
    whole = tuple(tuple(Whole(n) for n in t.shape) for t in operands)
    if op.kind == "signal_headroom":
        return Nest({}, (), whole)
    if op.kind == "signal_bank":
        return Nest({"b": operands[3].elements - 1}, ("b",), whole)
    if not stage.along:
        relation = lines(x.shape, -1, x.shape[-1] // 2)
        return replace(relation, operands=(*relation.operands, *whole[1:]))
    own = [same(*extents)]
    for t, read in zip(operands[1:], whole[1:], strict=True):
        first = len(x.shape) - len(t.shape)
        own.append(same(*extents)[first:] if t.shape == x.shape[first:] else read)
    return Nest(extents, tuple(extents), tuple(own))


def frontend_reference(op: Op, graph: Graph, *operands: Array) -> Array:
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
    """A shape or a number of the node with which the kernel would read beyond an operand; None if all fit."""
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


def frontend_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
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
    return Kernel("signals.c:frontend", stem, shape, tuple(constants), numbers, estimate=30.0 * operands[0].elements)


SPECS = tuple(
    Spec(kind, frontend_nest, frontend_reference, frontend_kernel, plain=True, limits=(of_its_types,))
    for kind in STAGES
)  # fmt: skip
