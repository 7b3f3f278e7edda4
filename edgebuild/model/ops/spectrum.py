"""SignalRfft, SignalIrfft: Fourier transforms of real lines, of int16, int32 or float32, bit for bit as TFLM's.

`rfft` gives `length` / 2 + 1 complex numbers, as pairs of real and imaginary parts, of lines that zeros fill up to
`length`. `irfft` takes them back. TFLM calls KISS FFT: a transform of half the length whose elements are pairs of
neighbours, in stages of four and at last of two, then one step that takes both halves apart. Integers are divided by
the radix before each stage, by a product with a rounded reciprocal; all products are rounded, halves up.
"""

from __future__ import annotations

from functools import cache
from math import pi
from typing import Any

import numpy as np

from ...base.dataclass import dataclass
from ..ir import Array, Graph, Op
from ..ir.axes import Nest, Same, Whole
from .base import C_TYPES, Constant, Form, Kernel, Spec

FRACTION = {"int16": 15, "int32": 31, "float32": 0}
WIDE = {"int16": "int32_t", "int32": "int64_t", "float32": "float"}
LONGEST = 1 << 14


@dataclass(frozen=True)
class Plan:
    """Of a complex transform: radices from the outer stage to the inner one, and where elements go."""

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
    """Points of the unit circle as pairs, in the transform's type; those of integers round halves up."""
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
    """Products and divisions of a type; numpy holds integers in 64 bits."""

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
        """Integers that leave their type go on at its other end."""
        return x if self.dtype == "float32" else x.astype(self.dtype).astype(np.int64)


def transformed(t: Array, dtype: str, factors: Array, back: bool) -> Array:
    """The complex transform of pairs that are in their places; innermost stage first."""
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


def reference(op: Op, graph: Graph, x: Array) -> Array:
    y = graph.result(op)
    lines = [_line(op, y.dtype, line) for line in x.reshape(-1, x.shape[-1])]
    return np.stack(lines).reshape(y.shape).astype(y.dtype)


def nest(op: Op, graph: Graph) -> Nest:
    """Each line by itself; every frequency needs all of it."""
    (x,) = graph.operands(op)
    names = tuple(f"i{d}" for d in range(len(x.shape)))
    last = op.attrs["length"] + (2 if op.kind == "rfft" else 0)
    extents = dict(zip(names, (*x.shape[:-1], last), strict=True))
    return Nest(extents, names, ((*(Same(n) for n in names[:-1]), Whole(x.shape[-1])),))


def of_two(op: Op, graph: Graph) -> str | None:
    """The length is a power of two from 4 to 16384, lines are not longer; values are int16, int32 or float32."""
    x, y, length = graph.operands(op)[0], graph.result(op), op.attrs["length"]
    if x.dtype not in FRACTION or y.dtype != x.dtype:
        return f"{x.dtype} to {y.dtype}"
    if not 4 <= length <= LONGEST or length & (length - 1):
        return f"a length of {length}"
    fits = x.shape[-1] <= length if op.kind == "rfft" else x.shape[-1] == length + 2
    return None if fits else f"lines of {x.shape[-1]} for a length of {length}"


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
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
    return Kernel("spectrum.c.j2", stem, shape, constants, scratch=scratch, estimate=count * 4 * shape["lines"])


RFFT = Spec(
    kind="rfft", nest=nest, reference=reference, kernel=kernel, plain=True, limits=(of_two,),
)  # fmt: skip
IRFFT = Spec(
    kind="irfft", nest=nest, reference=reference, kernel=kernel, plain=True, limits=(of_two,),
)  # fmt: skip
