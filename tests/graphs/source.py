"""Draws that all strategies share: sizes, quantisations, tensors of random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from edgebuild.model.ir import Array, Graph, Quant, Tensor, dump
from edgebuild.model.ops.base import is_float
from edgebuild.model.ops.fixedpoint import limits

T = TypeVar("T")
HALVES = (0.5, -0.5, 0.0, -0.0, 1.5, -1.5, 2.5, -2.5, 1.0, -1.0, 3.0, 0.25)
# Of `examples`. Without it, hypothesis would draw by the text of the function, so a rename would change all networks.
SEED = 0x2596C6CFA53F6F82CF486B96EE689BDD805FE820063B5E1B930FB1DFE8DD55D22361F581B2B0A533D5DD127EF7A157FB
LARGEST_MULTIPLIER = 2.0**8  # beyond it a sum of products may leave int32, in TFLM as well as in ours


def examples(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """`count` examples, the same in every run. For tests that pay per batch rather than per example."""
    drawn: list[T] = []

    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @seed(SEED)
    @given(strategy)
    def collect(example: T) -> None:
        drawn.append(example)

    collect()
    return drawn[:count]


def random_inputs(graph: Graph, count: int, seed: int = 0) -> list[list[Array]]:
    """`count` vectors, each with an array per input: full-range int8 and its two ends, floats N(0, 3), small int32."""
    rng = np.random.default_rng(seed)
    vectors = [[_random(rng, graph.tensors[name]) for name in graph.inputs] for _ in range(count)]
    for vector, end in zip(vectors[1:], (-128, 127), strict=False):
        vector[:] = [_end(x, end) for x in vector]
    return vectors


def edges(graph: Graph, seed: int = 0) -> list[list[Array]]:
    """Two vectors of few values, so that many are equal: halves and zeros, ends of integers, neighbours of 0."""
    rng = np.random.default_rng(seed)
    return [[_edge(rng, graph.tensors[name], few) for name in graph.inputs] for few in (HALVES, HALVES[:3])]


def _edge(rng: np.random.Generator, t: Tensor, few: Sequence[float]) -> Array:
    if is_float(t):
        return rng.choice(np.array(few, np.float32), t.shape)
    if t.dtype not in ("int8", "int16"):
        return rng.integers(0, len(few) // 3, t.shape).astype(t.dtype)
    low, high = limits(t.dtype)
    zero = t.quant.zero_point[0] if t.quant is not None else 0
    values = [low, low + 1, -1, 0, 1, high - 1, high, zero, max(low, zero - 1)]
    return rng.choice(np.array(values[: 3 * len(few)], t.dtype), t.shape)


def _end(x: Array, end: int) -> Array:
    """All elements at the end of int8 or int16 that lies where `end` is; others as they are."""
    if x.dtype not in (np.int8, np.int16):
        return x
    return np.full_like(x, limits(str(x.dtype))[end > 0])


def _random(rng: np.random.Generator, t: Tensor) -> Array:
    if is_float(t):
        return (3 * rng.standard_normal(t.shape)).astype(np.float32)
    if t.dtype in ("uint32", "uint64"):  # of all magnitudes
        drawn = rng.integers(0, 2**63, t.shape, np.uint64) * np.uint64(2) + np.uint64(1)
        return (drawn >> rng.integers(0, 64, t.shape).astype(np.uint64)).astype(t.dtype)
    low, high = limits(t.dtype) if t.dtype in ("int8", "int16") else (-3, 11)
    return rng.integers(low, high + 1, t.shape).astype(t.dtype)


def described(graph: Graph) -> str:
    """The graph as text, with its quantisations."""
    quants = "\n".join(f"{t.name}: {t.quant}" for t in graph.tensors.values())
    return f"{dump(graph)}{quants}"


@dataclass(frozen=True)
class Source:
    """Where a strategy takes its choices from. `real`: float tensors, else those of type `integer` in `arithmetic`."""

    draw: st.DrawFn
    rng: np.random.Generator
    arithmetic: str
    real: bool
    integer: str = "int8"

    def pick(self, *choices: T) -> T:
        return self.draw(st.sampled_from(choices))

    def between(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def order(self, count: int) -> tuple[int, ...]:
        return tuple(self.draw(st.permutations(range(count))))

    def pair(self, low: int, high: int) -> tuple[int, int]:
        return self.between(low, high), self.between(low, high)

    def shape(self, low: int, high: int, most: int = 5) -> tuple[int, ...]:
        """A shape of `low` to `high` dimensions."""
        return tuple(self.between(1, most) for _ in range(self.between(low, high)))

    def scale(self) -> float:
        """A float32 between 2^-12 and 4, often a power of two."""
        exponent = self.between(-12, 1)
        return float(np.float32(2.0**exponent * self.pick(1.0, 1.0, float(self.rng.uniform(1, 2)))))

    def quant(self, scale: float | None = None) -> Quant | None:
        """One scale, and a zero point that may be at either end of int8; that of int16 is 0."""
        if self.real:
            return None
        if self.integer == "int16":
            return Quant((scale or self.scale(),), (0,))
        return Quant((scale or self.scale(),), (self.pick(0, -128, 127, self.between(-128, 127)),))

    def multiplier(self, typical: float) -> float:
        """Draw scale(x) * scale(w) / scale(y): mostly `typical`, or a left shift, or as good as zero."""
        return self.pick(
            typical,
            typical,
            typical,
            self.rng.uniform(1, LARGEST_MULTIPLIER),
            2.0 ** -self.between(1, 12),
            2.0 ** -self.between(28, 40),
        )

    def clamp(self) -> tuple[float | None, float | None]:
        return self.pick((None, None), (None, None), (0.0, None), (0.0, 6.0), (-1.0, 1.0), (None, 0.25))

    def tensor(self, name: str, shape: Sequence[int], quant: Quant | None = None) -> Tensor:
        """An activation."""
        return Tensor(name, tuple(shape), "float32" if self.real else self.integer, quant)

    def constant(self, name: str, shape: Sequence[int], quant: Quant | None = None) -> Tensor:
        """A constant of the same type as the activations, full range."""
        if self.real:
            data = self.rng.standard_normal(tuple(shape)).astype(np.float32)
        else:
            low, high = limits(self.integer)
            data = self.rng.integers(low, high + 1, tuple(shape)).astype(self.integer)
        return Tensor(name, data.shape, str(data.dtype), quant, data)

    def weights(self, name: str, shape: Sequence[int], axis: int, bound: int = 127) -> Tensor:
        """Symmetric weights with one scale, or one per index of `axis`; single channels may be all but dead."""
        if self.real:
            return self.constant(name, shape)
        data = self.rng.integers(-bound, bound + 1, tuple(shape)).astype(np.int8)
        count = self.pick(1, shape[axis])
        scale = self.scale() * self.rng.uniform(0.25, 1, count)
        if count > 1 and self.between(0, 3) == 0:
            scale[0] *= 2.0**-30
        scales = tuple(float(s) for s in scale.astype(np.float32))
        return Tensor(
            name, data.shape, "int8", Quant(scales, (0,) * count, axis % len(shape) if count > 1 else None), data
        )

    def bias(self, name: str, x: Tensor, w: Tensor, channels: int) -> Tensor:
        if self.real:
            return self.constant(name, (channels,))
        wide = self.integer == "int16"
        reach = 2 ** self.between(0, 34 if wide else 18)
        data = self.rng.integers(-reach, reach + 1, channels).astype(np.int64 if wide else np.int32)
        quant = product_quant(x, w)
        return Tensor(name, data.shape, str(data.dtype), quant, data)

    def graph(self, ops: Sequence[Any], tensors: Sequence[Tensor], outputs: Sequence[str]) -> Graph:
        """The graph of these ops; its inputs are the activations that no op writes."""
        pool = {t.name: t for t in tensors}
        written = {name for op in ops for name in op.outputs}
        inputs = tuple(t.name for t in tensors if not t.constant and t.name not in written)
        return Graph("random", tuple(ops), pool, inputs, tuple(outputs), self.arithmetic)


@dataclass(frozen=True)
class Dice(Source):
    """Choices that do not depend on each other. hypothesis repeats what it has drawn, so rare pairs do not come up."""

    def pick(self, *choices: T) -> T:
        return choices[self.rng.integers(len(choices))]

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def order(self, count: int) -> tuple[int, ...]:
        return tuple(int(n) for n in self.rng.permutation(count))


def product_quant(x: Tensor, w: Tensor) -> Quant:
    """The quantisation of a sum of products of `x` and `w`."""
    assert x.quant is not None and w.quant is not None
    scales = tuple(x.quant.scale[0] * s for s in w.quant.scale)
    return Quant(scales, (0,) * len(scales), 0 if len(scales) > 1 else None)


@st.composite
def sources(draw: st.DrawFn, forms: Sequence[tuple[Any, ...]]) -> Source:
    """A source of one of these (arithmetic, real) or (arithmetic, real, integer type)."""
    arithmetic, real, *integer = draw(st.sampled_from(list(forms)))
    return Source(draw, np.random.default_rng(draw(st.integers(0, 2**32 - 1))), arithmetic, real, *integer)
