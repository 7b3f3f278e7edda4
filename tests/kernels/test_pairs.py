"""Two pixels or channels in one multiplication: groups of taps, and layers of any shape against tflite-micro."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import kernels
from edgebuild.model.compile import compile_model
from edgebuild.model.ir import Arithmetic, Array, Quant
from edgebuild.model.kernels.blocks import pairs, two_in_one
from edgebuild.model.kernels.blocks.pairs import MAX_WEIGHT, SIZES, groups, sizes
from edgebuild.model.ops.base import Form, Kernel
from edgebuild.model.verify import verify
from tests.graphs.tflite_models import ACTIVATIONS, SAME, VALID, File, output_size
from tests.kernels.test_processors import NEEDS
from tests.ops.host import checked

schema = pytest.importorskip("tflite_micro.tensorflow.lite.micro.python.schema_py_generated")


def weights(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Weights of one of several kinds: of all sizes, small ones with outliers, or nothing but the ends of int8."""
    kind = rng.integers(0, 4)
    if kind == 0:
        return rng.integers(-127, 128, shape).astype(np.int8)
    if kind == 1:
        return rng.choice([-127, 127], shape).astype(np.int8)
    small = np.clip(np.rint(rng.normal(0, 12, shape)), -127, 127).astype(np.int8)
    return np.where(rng.random(shape) < 0.03, np.int8(-127), small).astype(np.int8)


@pytest.mark.parametrize("seed", range(20))
def test_groups(seed: int) -> None:
    """Every tap once, no channel of a group above what 16 bits hold, and fewer groups than taps where that is easy."""
    rng = np.random.default_rng(seed)
    w = weights(rng, (int(rng.integers(1, 70)), int(rng.integers(1, 700))))
    if seed % 5 == 0:
        w[rng.integers(0, len(w))] = -128
    allowed = SIZES if seed % 2 else tuple(size for (size,) in two_in_one.FOURS)
    parts = groups(w, allowed)
    assert sorted(tap for group in parts for tap in group) == list(range(w.shape[1]))
    for group in parts:
        assert len(group) in allowed
        assert np.abs(w[:, group].astype(int)).sum(axis=1).max() <= MAX_WEIGHT
    assert [len(g) for g in parts] == [size for size, count in sizes(parts) for _ in range(count)]
    assert all(0 < count < 256 for _, count in sizes(parts))
    assert len(groups(np.ones((3, 12), np.int8))) == 12 // max(SIZES)


class Layers(File):
    """Convolutions side by side, each of an input of its own."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = np.random.default_rng(seed)
        self.inputs: list[int] = []
        self.outputs: list[int] = []

    def quant(self, scale: float) -> Quant:
        return Quant((float(np.float32(scale)),), (int(self.rng.choice([-128, 127, 0, self.rng.integers(-128, 128)])),))

    def convolution(self) -> None:
        rng = self.rng
        taps, stride = [int(v) for v in rng.integers(1, 4, 2)], [int(v) for v in rng.integers(1, 3, 2)]
        if len(self.outputs) % 3 == 0:
            taps, stride = [1, 1], [1, 1]
        size = [t + int(v) for t, v in zip(taps, rng.integers(2, 7, 2), strict=True)]
        c, k = int(rng.integers(1, 20)), int(rng.choice((1, *range(1, 10))))
        options: Any = schema.Conv2DOptionsT()
        options.padding = int(rng.choice([SAME, VALID]))
        (options.strideH, options.strideW), options.dilationHFactor, options.dilationWFactor = stride, 1, 1
        shape = (1, *output_size(size, taps, stride, options.padding), k)
        self.sum("CONV_2D", (1, *size, c), weights(rng, (k, *taps, c)), shape, options)

    def depthwise(self) -> None:
        rng = self.rng
        taps, stride, c = [int(v) for v in rng.integers(1, 4, 2)], int(rng.integers(1, 3)), int(rng.integers(1, 12))
        size = [t + int(v) for t, v in zip(taps, rng.integers(1, 8, 2), strict=True)]
        options: Any = schema.DepthwiseConv2DOptionsT()
        options.padding, options.depthMultiplier = int(rng.choice([SAME, VALID])), 1
        options.strideH = options.strideW = stride
        options.dilationHFactor = options.dilationWFactor = 1
        shape = (1, *output_size(size, taps, [stride, stride], options.padding), c)
        self.sum("DEPTHWISE_CONV_2D", (1, *size, c), weights(rng, (1, *taps, c)), shape, options)

    def dense(self, multiple: int = 1) -> None:
        c, k = multiple * int(self.rng.integers(1, 90)), int(self.rng.integers(8, 30))
        self.dense_of(weights(self.rng, (k, c)))

    def dense_of(self, data: Array) -> None:
        k, c = data.shape
        options: Any = schema.FullyConnectedOptionsT()
        self.sum("FULLY_CONNECTED", (1, c), data, (1, k), options)

    def sum(self, name: str, size: tuple[int, ...], data: Array, shape: tuple[int, ...], options: Any) -> None:
        """An operator with an input of its own; results spread over int8."""
        rng, n, axis = self.rng, len(self.outputs), 3 if name == "DEPTHWISE_CONV_2D" else 0
        k = data.shape[axis]
        options.fusedActivationFunction = int(rng.choice(ACTIVATIONS))
        scales = tuple(float(v) for v in (rng.uniform(0.1, 1, k) * 2.0**-7).astype(np.float32))
        scales = scales[:1] if name == "FULLY_CONNECTED" else scales
        zeros = (0,) * len(scales)
        x = self.tensor(f"x{n}", size, "int8", self.quant(0.05))
        w = self.tensor(f"w{n}", data.shape, "int8", Quant(scales, zeros, axis), data)
        products = tuple(float(np.float32(self.tensors[x].quantization.scale[0] * s)) for s in scales)
        bias = rng.integers(-4000, 4000, k).astype(np.int32)
        b = self.tensor(f"b{n}", bias.shape, "int32", Quant(products, zeros, 0), bias)
        reach = np.abs(data.astype(float)).mean() * 70 * np.sqrt(data.size // k) / 60 + 1
        y = self.tensor(f"y{n}", shape, "int8", self.quant(max(products) * reach))
        self.operator(name, [x, w, b], [y], options)
        self.inputs.append(x)
        self.outputs.append(y)


def compared(file: Layers, target: str, model: Path) -> str:
    """Run the layers on the target: equal to tflite-micro, element by element. Returns the C."""
    model.write_bytes(file.pack(file.inputs, file.outputs))
    artifacts = compile_model(model_request(model, "model", target, {"tile": "off", "optimize": "speed"}))
    result = verify(model, load_target(target), artifacts)
    assert result["equal"], result["differences"]
    return next(a.data.decode() for a in artifacts if a.name == "model.c")


def preferring_pairs(candidates: list[Kernel], form: Form) -> list[Kernel]:
    """Kernels for two at once first, blocks of any size among them."""

    def order(k: Kernel) -> tuple[bool, int]:
        return not k.variant.startswith(("pairs", "two channels")), crc32(f"{k.variant} {k.stem} {k.scalars}".encode())

    return sorted(candidates, key=order)


@pytest.mark.one_in(4)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "target, layers", [("riscv-virt", 24), ("mps2-an385", 24), ("mps2-an521", 12), ("microbit", 6)]
)
def test_layers_of_any_shape(
    target: str, layers: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Odd channels, odd pixels, any zero points and activations."""
    monkeypatch.setattr(kernels, "by_cost", preferring_pairs)
    file = Layers(seed)
    for n in range(layers):
        (file.dense if n % 4 == 3 else file.convolution)()
    text = compared(file, target, tmp_path / "model.tflite")
    assert text.count("eb_pairs_") >= layers // 3 and text.count("eb_fours_") >= layers // 4
    assert len(set(re.findall(r"eb_pairs_\w+?_(\dx\d)_", text))) == (4 if target == "riscv-virt" else 2)


@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", ["riscv-virt", "mps2-an385"])
def test_results_with_and_without_relu(target: str, tmp_path: Path) -> None:
    """Depthwise layers of any zero points and activations: results are rounded in one step or two."""
    file = Layers(50)
    for _ in range(20):
        file.depthwise()
    text = compared(file, target, tmp_path / "model.tflite")
    parts = re.split(r"static void (?=depthwise\w*\([^)]*\)[^;]*\{)", text)[1:]
    steps = [bool(re.search(r"asrs? .*#31|srai\s+\w+, \w+, 31", part)) for part in parts]  # halves away from zero
    assert steps.count(True) > 5 and steps.count(False) > 5


@pytest.mark.needs(*NEEDS)
def test_groups_of_any_size(tmp_path: Path) -> None:
    """RV32 enters a row of taps anywhere: layers whose groups have nearly all sizes up to the most."""
    file, entered = Layers(7), set[int]()
    for n in range(6):
        heavy = np.concatenate([np.full(2 * size, MAX_WEIGHT // size) for (size,) in two_in_one.ANY])
        data = np.minimum(heavy, 127)[file.rng.permutation(len(heavy))] * file.rng.choice([-1, 1], (8 + n, len(heavy)))
        file.dense_of(data.astype(np.int8))
        parts = pairs.grouped(
            two_in_one.MICROS["eb_fours_rv32"], "eb_fours_rv32_up", data.astype(np.int8), quickly=n % 2 == 1
        )
        entered |= {len(group) for group in parts}
    assert len(entered) > len(two_in_one.ANY) * 2 // 3
    assert compared(file, "riscv-virt", tmp_path / "model.tflite").count("eb_fours_rv32") >= 6


@pytest.mark.one_in(2)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("seed", range(2))
def test_single_pixels_of_the_dsp_extension(seed: int, tmp_path: Path) -> None:
    """Dense layers, and the last pixels of odd rows."""
    file = Layers(seed)
    for _ in range(12):
        file.dense(multiple=4)
        file.convolution()
    text = compared(file, "mps2-an386", tmp_path / "model.tflite")
    assert text.count("eb_dot1w_") > 3 and text.count("eb_dot1_") > 1


HALVES = """
#include <stdint.h>
#include <stdio.h>
{helpers}
int main(void)
{{
    uint32_t seed = 1;
    for (int32_t i = 0; i < 2000000; ++i) {{
        seed = seed * 1664525u + 1013904223u;
        int32_t x = (int32_t)seed >> (3 + i % 28);
        x = i % 9 == 0 ? (1 << 29) - 1 : i % 9 == 1 ? 1 - (1 << 29) : i % 9 == 2 ? x & ~0x3FFF : x;
        seed = seed * 1664525u + 1013904223u;
        const int32_t m = i % 7 == 0 ? INT32_MAX : (int32_t)(seed >> 2 | 1u << 30);
        const int32_t shift = 1 + (int32_t)(seed & 15u), rounding = 1 << (shift - 1);
        if (eb_rescale_split(x, m, rounding, shift) != eb_rescale(x, m, rounding, shift)) {{
            printf("%ld %ld\\n", (long)x, (long)m);
            return 1;
        }}
    }}
    return 0;
}}
"""


@pytest.mark.needs("gcc")
def test_a_product_in_halves_is_the_long_one(tmp_path: Path) -> None:
    helpers = kernels.used_helpers(["eb_rescale", "eb_rescale_split"], Arithmetic.TFLITE)
    (tmp_path / "halves.c").write_text(HALVES.format(helpers="\n".join(helper.text for helper in helpers)))
    checked(["gcc", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all", "halves.c", "-o", "halves"], tmp_path)
    checked(["./halves"], tmp_path)
