"""Factors of channels in one word: the same results as with two, for every sum that can occur."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import kernels
from edgebuild.model.compile import compile_model
from edgebuild.model.ir import Arithmetic, Array
from edgebuild.model.kernels.arm_dsp import weight_words
from edgebuild.model.kernels.arm_dsp.weight_words import Factors, factors, factors_within
from edgebuild.model.ops import fixedpoint
from edgebuild.model.ops.base import Sums
from edgebuild.model.plan.search import form_of
from tests.kernels.test_lines import eights, network
from tests.kernels.test_processors import NEEDS, check, integer, preferring, variants_of
from tests.zoo.builders import ZOO, quantized

WAYS = [(Arithmetic.TFLITE, True), (Arithmetic.TFLITE, False), (Arithmetic.ONNX, False)]


def drawn(rng: np.random.Generator, arithmetic: Arithmetic, rectified: bool, right: Array) -> Sums:
    """Sums of any start values and factors, with weights that make some results unreachable."""
    k = len(right)
    weights = rng.integers(-127, 128, (k, 1, 1, int(rng.choice([8, 64, 256])))).astype(np.int8)
    zero = int(rng.choice([-128, rng.integers(-128, 128)]))
    low = int(rng.choice([zero, rng.integers(zero, 128)])) if rectified else int(rng.choice([-128, -100]))
    high = max(low, int(rng.choice([127, 100])))
    mantissa = np.where(rng.random(k) < 0.2, 2**30 + rng.integers(0, 2, k) * 2**29, rng.integers(2**30, 2**31, k))
    mantissa |= arithmetic.rounds_once  # no sum lies halfway between two results
    size = (1, 1, weights.shape[3])
    return Sums(
        "", size, (1, 1, k), (1, 1), (0, 0), (1, 1), weights, rng.integers(-(2**17), 2**17, k), mantissa, right, -128,
        zero, low, high, arithmetic,
    )  # fmt: skip


def high_word(product: Array) -> Array:
    """The upper halves of products of two registers as SMMLA adds them up, in Python's integers."""
    return np.array([int(value) >> 32 for value in product.ravel()], object).reshape(product.shape)


def scaled(s: Sums, factored: Factors, x: Array) -> Array:
    """Results of sums K x n by the instructions that the kernels use."""
    word, x = factored.words[:, :1].astype(object), x.astype(object)
    unit = factored.unit & 0xFFFFFFFF
    turned = [(unit << 32 | unit) >> (int(w) & 31) & 0xFFFFFFFF for w in word.ravel()]
    assert all(t < 2**31 for t in turned)
    q = high_word((x << 32) + x * word + (0 if s.arithmetic.rounds_once else 2**31))
    if s.finish.startswith("signed"):
        q = q - (q < 0)
    y = high_word(q * np.array(turned, object)[:, None] + (s.y_zero << 32) + 2**31)
    return np.clip(y.astype(np.int64), s.low, s.high)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("arithmetic, rectified", WAYS)
def test_one_word_gives_what_two_give(arithmetic: Arithmetic, rectified: bool) -> None:
    """At sums where results begin, around them, at the ends, and at random ones."""
    rng = np.random.default_rng(3)
    units, single, checked = set[int](), 0, 0
    for _ in range(60):
        s = drawn(rng, arithmetic, rectified, rng.integers(2, rng.choice([4, 10, 10, 23]), 64))
        if s.finish == "sums":
            continue
        checked += 1
        factored = factors(s)
        single += factored.words.shape[1] == 1
        if not factored.unit:
            continue
        units.add(factored.unit)
        per = (s.mantissa * 2.0**-31 / 2.0**s.right)[:, None]
        begins = np.rint((np.arange(-255, 256) + 0.5) / per).astype(np.int64)
        near = np.concatenate([begins + d for d in (-2, -1, 0, 1, 2)], axis=1)
        ends = s.bound[:, None] * np.array([-1, 0, 1])
        x = np.concatenate([near, ends, rng.integers(-(2**20), 2**20, (64, 200))], axis=1)
        x = np.clip(x, -s.bound[:, None], s.bound[:, None])
        exact = fixedpoint.requantize(x, s.mantissa[:, None], -s.right[:, None], arithmetic) + s.y_zero
        np.testing.assert_array_equal(scaled(s, factored, x), np.clip(exact, s.low, s.high))
    assert single > checked / 2 > 15 and len(units) > 1, (single, checked, units)


def test_factors_that_no_word_holds() -> None:
    """Shifts that ROR of a positive unit does not give, and sums that are too long for the proof."""
    rng = np.random.default_rng(0)
    for right in (1, 23):
        factored = factors(drawn(rng, Arithmetic.TFLITE, True, np.full(4, right)))
        assert factored.unit == 0 and factored.words.shape == (4, 2) and factored.finish.startswith("relu2")
    s = drawn(rng, Arithmetic.TFLITE, True, np.full(4, 8))
    assert factors(s).unit != 0
    assert factors_within(s, np.full(4, 2**30)).unit == 0


@pytest.mark.one_in(4)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target, variant", [
    ("mps2-an386", "dsp 2 pixels"), ("mps2-an386", "dsp 1 pixel"), ("mps2-an386", "dsp 2 pixels, int8"),
    ("mps2-an386", "dsp taps"), ("mps2-an386", "dsp plane"),
    ("m4-flash-model", "dsp 4 pixels"),
    ("m4-flash-model", "dsp 8 channels"), ("mps2-an500", "dsp 2 pixels"),
])  # fmt: skip
def test_kernels_of_two_words(target: str, variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As layers get them for which one word does not do."""
    monkeypatch.setattr(kernels, "by_cost", preferring(variant))
    monkeypatch.setattr(weight_words, "_one_word", lambda *_: None)
    form = form_of(load_target(target))
    count = 250 if variant == "dsp 4 pixels" else 60  # few layers suit it
    layers = [g for kind in ("conv2d", "depthwise_conv2d", "dense") for g in integer(kind, count)]
    layers += [build(seed) for build in (network, eights) for seed in range(20)]
    chosen = [g for g in layers if variant in variants_of(g, form)]
    assert len(chosen) > 2
    check(target, chosen[:20], tmp_path)


def test_constants_take_little_more_than_the_tensors(tmp_path: Path) -> None:
    """Weights and biases of DS-CNN, without the scales of the file."""
    (tmp_path / "model.onnx").write_bytes(quantized(ZOO["ds_cnn"]()).SerializeToString())
    request = model_request(tmp_path / "model.onnx", "model", "mps2-an386", {"tile": "off"})
    report = next(json.loads(a.data) for a in compile_model(request) if a.name == "model_report.json")
    rom = report["rom"]
    assert rom["tensors_bytes"] == 24368  # 9 * 64 + 12 biases, 22,016 weights
    assert rom["weights_bytes"] - rom["header_bytes"] <= 1.08 * rom["tensors_bytes"]
