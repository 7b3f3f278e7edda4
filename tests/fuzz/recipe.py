"""A random network as a recipe: layers that know their operands and the seed of their own choices.

A layer takes its sizes from its operands when it is written, and one that does not fit stands for its first operand. So
any layer can be taken away and what is left is a network still: that is how failures are made small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar

import numpy as np

from tests.graphs.source import Source

# TFLite in int8, float32, int16 activations and uint8; ONNX in float32, as QDQ and in operators of its own.
FORMS = ("tflite", "tflite_float", "tflite_int16", "tflite_uint8", "float", "qdq", "qoperator")
INTEGERS = {"tflite": "int8", "tflite_int16": "int16", "tflite_uint8": "int8"}  # types of activations
BATCHES = (*(1,) * 10, 2, 3)
IMAGE = 4000  # elements
# Layers side by side: how many, and those that kernels serve in most ways.
BESIDE = 12
KERNELS = (
    *("depthwise",) * 4, *("conv",) * 2, *("window_of_groups",) * 3,
    "conv_same", "depthwise_same", "square", "expand", "dense", "pool", "mean",
    "global_pool",
)  # fmt: skip
T = TypeVar("T")


@dataclass(frozen=True)
class Layer:
    """`word`: a method of the writer or an operator; `operands`: earlier layers; `most`: bounds of sizes, by name."""

    number: int
    word: str
    operands: tuple[int, ...]
    seed: int
    most: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Recipe:
    """`outputs`: layers that are outputs although others read them; a layer that none reads is always one."""

    form: str
    seed: int
    layers: tuple[Layer, ...]
    outputs: tuple[int, ...] = ()

    def without(self, number: int) -> Recipe:
        """The recipe less one layer: its readers read its first operand."""
        gone = next(layer for layer in self.layers if layer.number == number)
        first = gone.operands[:1]

        def new(names: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(m for n in names for m in (first if n == number else (n,)))

        kept = (replace(layer, operands=new(layer.operands)) for layer in self.layers if layer is not gone)
        return replace(self, layers=tuple(kept), outputs=tuple(n for n in self.outputs if n != number))

    def bounded(self, number: int, name: str, most: int) -> Recipe:
        """The recipe with one size of one layer bounded."""

        def new(layer: Layer) -> Layer:
            return replace(layer, most=tuple({**dict(layer.most), name: most}.items()))

        return replace(self, layers=tuple(new(x) if x.number == number else x for x in self.layers))

    @property
    def rows(self) -> str:
        """The form whose operators are drawn: uint8 is another way to write int8."""
        return "tflite" if self.form == "tflite_uint8" else self.form

    @property
    def suffix(self) -> str:
        return "tflite" if self.form.startswith("tflite") else "onnx"

    def described(self) -> str:
        return " ".join(
            f"{layer.number}:{layer.word}{list(layer.operands) or ''}{dict(layer.most) or ''}" for layer in self.layers
        )


class DoesNotFit(Exception):
    """A layer cannot work on its operands; it is left out."""


class Sizes:
    """Sizes that a layer draws: `most` bounds them by name, `used` tells what they were."""

    def __init__(self, most: Mapping[str, int]) -> None:
        self.most, self.used = most, dict[str, int]()

    def of(self, name: str, drawn: int) -> int:
        self.used[name] = min(drawn, self.most.get(name, drawn))
        return self.used[name]


@dataclass(frozen=True)
class Choice(Source):
    """The draws of the tests' strategies, from a seed instead of from hypothesis."""

    def pick(self, *choices: T) -> T:
        return choices[int(self.rng.integers(len(choices)))]

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))


def common_divisors(a: int, b: int) -> tuple[int, ...]:
    return tuple(n for n in range(1, min(a, b) + 1) if a % n == b % n == 0)


def image_size(s: Choice, of: Callable[[str, int], int]) -> tuple[int, int, int]:
    """Rows, columns and channels of an image, of more shapes than whole networks have room for."""
    rows, columns = of("rows", s.between(1, 24)), of("columns", s.between(1, 24))
    channels = s.pick(1, 2, 3, 4, 5, 6, 8, 12, 16, 17, 20, 24, 32, 48, 64)
    return rows, columns, of("channels", min(channels, max(1, IMAGE // (rows * columns))))


@dataclass(frozen=True)
class GroupWindow:
    """A convolution: sizes as rows x columns; channels of the result; whether the image is padded to keep its size."""

    taps: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    results: int
    padded: bool

    def terms(self, channels: int) -> int:
        """Products of a sum."""
        return self.taps[0] * self.taps[1] * channels // self.groups


def group_window(
    s: Choice, of: Callable[[str, int], int], image: tuple[int, int, int], grouped: bool = True
) -> GroupWindow:
    """Every property has a draw of its own, each of its values as often as the others."""
    rows, columns, channels = image
    taps = s.pick((1, 1), (1, s.between(2, 5)), (s.between(2, 5), 1), s.pair(2, 5))
    taps = of("window 0", min(taps[0], rows)), of("window 1", min(taps[1], columns))
    stride, wide, padded = s.pick((1, 1), s.pick((2, 2), (1, 2), (2, 1))), s.pick(1, 2, 3), s.pick(True, False)
    dilated = stride == (1, 1) and (padded or all((n - 1) * wide < m for n, m in zip(taps, image[:2], strict=True)))
    some = [n for n in range(2, channels) if channels % n == 0]
    groups = s.pick(1, s.pick(*some), channels) if some else s.pick(1, channels)
    groups = groups if grouped else 1
    most = max(1, 4 * IMAGE // (rows * columns * groups))
    results = groups * of("results of a group", min(most, s.pick(1, 2, 3, 4, 5, 8, 16)))
    return GroupWindow(taps, stride, (wide, wide) if dilated else (1, 1), groups, results, padded)


def choice(seed: int, arithmetic: str = "tflite", real: bool = False, integer: str = "int8") -> Choice:
    draw: Any = None
    return Choice(draw, np.random.default_rng(seed), arithmetic, real, integer)


class Drawing:
    """A recipe that grows. `images` are the values that later layers may read."""

    def __init__(self, seed: int, words: Sequence[str], operators: Sequence[str]) -> None:
        self.random, self.words, self.operators = Random(seed), words, operators
        self.layers: list[Layer] = []
        self.images = [self.add("input")]

    def add(self, word: str, *operands: int) -> int:
        self.layers.append(Layer(len(self.layers), word, operands, self.random.getrandbits(32)))
        return len(self.layers) - 1

    def both(self, word: str, a: int, b: int) -> int:
        """A layer of two operands, in either order."""
        return self.add(word, *((a, b) if self.random.random() < 0.5 else (b, a)))

    def value(self) -> int:
        return self.random.choice(self.images[-3:])

    def block(self) -> None:
        self.images.append(self.random.choice(BLOCKS)(self, self.value()))

    def single(self, x: int) -> int:
        return self.add(self.random.choice(self.words), x)

    def operator(self, x: int) -> int:
        """Any operators, one behind the other; where one reads several values, an earlier one may be the second."""
        for _ in range(self.random.randint(1, 3)):
            others = (self.value(),) if self.random.random() < 0.5 else ()
            x = self.add(self.random.choice(self.operators), x, *others)
        return x

    def convolution(self, x: int) -> int:
        return self.add(self.random.choice(("conv", "conv", "depthwise", "depthwise", "pool", "activation")), x)

    def squares(self, x: int) -> int:
        """One or two layers of a ResNet."""
        x = self.add("square", x)
        return self.add("square", x) if self.random.random() < 0.5 else x

    def residual(self, x: int) -> int:
        y = x
        for _ in range(self.random.randint(1, 3)):
            y = self.add(self.random.choice(("conv_same", "depthwise_same", "pool_same", "activation")), y)
        y = self.both("binary", x, self.add("conv_like", y, x))
        return self.add("activation", y) if self.random.random() < 0.4 else y

    def inverted(self, x: int) -> int:
        """An inverted residual (MobileNetV2), perhaps behind a stem that is the skip's own producer."""
        x = self.add("conv_same", x) if self.random.random() < 0.5 else x
        y = self.add("depthwise_same", self.add("expand", x))
        return self.both("add", x, self.add("conv_like", y, x))

    def squeeze(self, x: int) -> int:
        """Squeeze and excite: channels scaled by what their means say."""
        y = self.add("conv_same", self.add("global_pool", x))
        return self.both("mul", x, self.add("gate", self.add("conv_like", y, x)))

    def branches(self, x: int) -> int:
        """Two to five ways from one value, put side by side."""
        words = ("conv_same", "depthwise_same", "pool_same", "activation", "identity")
        ways = [self.add(self.random.choice(words), x) for _ in range(self.random.choice((2, 2, 2, 3, 3, 4, 5)))]
        ways = [self.add("conv_same", y) if self.random.random() < 0.3 else y for y in ways]
        return self.add("concat", *ways)

    def dense_block(self, x: int) -> int:
        """Each convolution reads all that was computed before it (DenseNet)."""
        values = [x]
        for _ in range(self.random.randint(1, 3)):
            y = self.add("concat", *values) if len(values) > 1 else x
            values.append(self.add("conv_same", y))
        return self.add("concat", *values)

    def nested(self, x: int) -> int:
        """A residual over blocks that have branches of their own."""
        y = x
        for _ in range(self.random.randint(1, 3)):
            y = self.random.choice((Drawing.residual, Drawing.inverted, Drawing.branches, Drawing.squeeze))(self, y)
        return self.both("binary", x, self.add("conv_like", y, x))

    def twice(self, x: int) -> int:
        """An operator that reads one value twice."""
        return self.add(self.random.choice(("binary", "concat")), x, x)

    def turned(self, x: int) -> int:
        """Transpositions in a chain, perhaps with something between."""
        for _ in range(self.random.randint(2, 3)):
            x = self.add("turn", x)
            x = self.add("activation", x) if self.random.random() < 0.3 else x
        return x

    def shuffled(self, x: int) -> int:
        """Parts of the channels on ways of their own, in another order (ShuffleNet)."""
        return self.add("shuffle", x)

    def combine(self, x: int) -> int:
        return self.both(self.random.choice(("binary", "concat")), x, self.value())

    def second_input(self, x: int) -> int:
        return self.both(self.random.choice(("binary", "concat")), x, self.add("input_like", x))

    def head(self, x: int) -> int:
        x = self.add(self.random.choice(("mean", "global_pool", "flatten")), x)
        x = self.add("dense", x)
        x = self.add("dense", x) if self.random.random() < 0.3 else x
        return self.add("softmax", x) if self.random.random() < 0.5 else x


BLOCKS: tuple[Callable[[Drawing, int], int], ...] = (
    *(Drawing.single,) * 3,
    *(Drawing.operator,) * 14,
    *(Drawing.convolution,) * 9,
    *(Drawing.residual,) * 3,
    *(Drawing.inverted,) * 2,
    Drawing.squeeze,
    *(Drawing.branches,) * 2,
    *(Drawing.shuffled,) * 2,
    Drawing.dense_block,
    Drawing.nested,
    Drawing.twice,
    Drawing.turned,
    Drawing.combine,
    Drawing.second_input,
)


def draw(form: str, seed: int, words: Sequence[str], operators: Sequence[str], blocks: int = 0) -> Recipe:
    """A network of so many blocks; with 0, of 1 to 5, which are about 2 to 16 layers.

    `words`, `operators`: the layers that the writer knows for this form.
    """
    drawing = Drawing(Random(f"{form} {seed}").getrandbits(64), words, operators)
    for _ in range(blocks or drawing.random.choice((1, 2, 2, 3, 3, 4, 5))):
        drawing.block()
    if Random(f"squares {form} {seed}").random() < 0.2:  # by itself, so that other networks stay what they were
        drawing.images.append(drawing.squares(drawing.value()))
    if Random(f"groups {form} {seed}").random() < 0.2:
        drawing.images.append(drawing.add("window_of_groups", drawing.value()))
    for _ in range(drawing.random.choice((0, 0, 0, 1, 1, 1, 2, 3))):  # a network may have several heads
        drawing.head(drawing.random.choice(drawing.images[-2:]))
    more = [layer.number for layer in drawing.layers[1:] if drawing.random.random() < 0.04]
    return Recipe(form, seed, tuple(drawing.layers), tuple(more))


def draw_beside(form: str, seed: int) -> Recipe:
    """Layers side by side, each of an image of its own: many kernels in one program, with next to no search."""
    drawing = Drawing(Random(f"beside {form} {seed}").getrandbits(64), (), ())
    drawing.layers.clear()
    for _ in range(BESIDE):
        drawing.add(drawing.random.choice(KERNELS), drawing.add("field"))
    return Recipe(form, seed, tuple(drawing.layers))
