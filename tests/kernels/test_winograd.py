"""Winograd's convolutions: the transformation is exact, and layers of any shape equal tflite-micro."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import kernels
from edgebuild.model.compile import compile_model, plan_model
from edgebuild.model.kernels import kernel_of
from edgebuild.model.kernels.arm_dsp import winograd
from edgebuild.model.kernels.arm_dsp.weight_words import two_words
from edgebuild.model.kernels.arm_dsp.winograd import transformed
from edgebuild.model.ops import SPECS
from edgebuild.model.plan.kernel_selection import flash
from edgebuild.model.verify import verify
from tests.graphs.tflite_models import SAME, VALID, output_size
from tests.kernels.test_pairs import Layers, compared
from tests.kernels.test_processors import NEEDS, preferring
from tests.layer_models import conv
from tests.zoo.builders import OPSET, Net, quantized

onnx = pytest.importorskip("onnx")
schema = pytest.importorskip("tflite_micro.tensorflow.lite.micro.python.schema_py_generated")
B = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
TARGETS = ("mps2-an386", "m4-flash-model", "mps2-an500")
A = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])


@given(st.integers(0, 2**32 - 1))
def test_four_outputs_of_sixteen_products(seed: int) -> None:
    """Four times the sums of products, from operands that fit int16 whatever the weights and inputs are."""
    rng = np.random.default_rng(seed)
    ends = [-128, 127] if seed % 2 else range(-128, 128)
    weights, tile = rng.choice(ends, (1, 3, 3, 1)).astype(np.int8), rng.choice(ends, (4, 4))
    u, v = transformed(weights)[0, :, :, 0], B @ tile @ B.T
    assert max(np.abs(u).max(), np.abs(v).max()) < 2**15
    wanted = [[(tile[y : y + 3, x : x + 3] * weights[0, :, :, 0]).sum() for x in (0, 1)] for y in (0, 1)]
    assert (A @ (u * v) @ A.T == 4 * np.array(wanted)).all()


class Convolutions(Layers):
    """Of 3x3 and stride 1, with weights of all kinds, or of one sign at the end of int8, where sums are the largest."""

    def three_by_three(self, c: int, k: int, ends: bool) -> None:
        rng, options = self.rng, schema.Conv2DOptionsT()
        options.padding = int(rng.choice([SAME, VALID]))
        options.strideH = options.strideW = options.dilationHFactor = options.dilationWFactor = 1
        size = [int(v) for v in rng.integers(4, 9, 2)]
        shape = (1, *output_size(size, [3, 3], [1, 1], options.padding), k)
        draws = np.full((k, 3, 3, c), rng.choice([-128, 127])) if ends else rng.integers(-127, 128, (k, 3, 3, c))
        self.sum("CONV_2D", (1, *size, c), draws.astype(np.int8), shape, options)


@pytest.mark.one_in(6)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("words", [1, 2])
@pytest.mark.parametrize("target", TARGETS)
def test_layers_equal_tflite_micro(target: str, words: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even and odd sizes, with padding and without, channels in fours and eights; so many `words` are a factor."""
    monkeypatch.setattr(kernels, "by_cost", preferring("dsp winograd"))
    if words == 2:
        monkeypatch.setattr(winograd, "factors", two_words)
    file = Convolutions(11)
    for i in range(16):
        file.three_by_three(4 * (1 + i % 7), 2 * (1 + i % 5), i % 4 == 3)
    for i in range(2):
        file.three_by_three(160, 2, bool(i))
    source = compared(file, target, tmp_path / "model.tflite")
    used = {word for word in source.replace("(", " ").split() if word.startswith("eb_winograd")}
    assert {name[:12] for name in used} == {"eb_winograd2", "eb_winograd4", "eb_winograd_"}
    for name in used - {"eb_winograd_tile"}:
        assert ("dual" in name) == (target == "mps2-an500") and ("2" in name[12:]) == (words == 2)


@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_network_of_onnx(target: str, tmp_path: Path) -> None:
    """One rounding, as onnxruntime."""
    net = Net("plain", (8, 11, 12), 5, OPSET)
    x = net.conv(net.conv("input", 32, (3, 3), relu=False), 16, (3, 3))
    model, chip = tmp_path / "model.onnx", load_target(target)
    onnx.save(quantized(net.model(x)), model)
    artifacts = compile_model(model_request(model, "model", target, {"tile": "off", "optimize": "speed"}))
    source = next(a.data.decode() for a in artifacts if a.name == "model.c")
    assert re.search(r"eb_winograd4_(dual_)?once\w*\(\s*v,", source)
    assert verify(model, chip, artifacts)["equal"]


def layer(folder: Path) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(conv(10, 10, 24, 32, (3, 3))())
    return path


def variant(model: Path, **options: Any) -> tuple[str, int]:
    """Of the layer's kernel, and the flash that it takes, as estimated."""
    plan = plan_model(model_request(model, "model", "mps2-an386", options), load_target("mps2-an386"))
    ((op,), (form,)) = plan.steps[0].ops, plan.steps[0].forms
    kernel = kernel_of(op, plan.graph, form)
    return kernel.variant, flash(plan.graph, [kernel], form)


def test_only_where_flash_is_free(tmp_path: Path) -> None:
    """`--optimize speed` asks for it; `--flash` takes it back, and so does memory that the tiles do not fit."""
    model = layer(tmp_path)
    name, bytes_ = variant(model, optimize="speed")
    assert name == "dsp winograd"
    assert variant(model)[0] == variant(model, optimize="size")[0] == "dsp 2 pixels"
    less, fewer = variant(model, optimize="speed", flash=bytes_ - 1)
    assert less == "dsp 2 pixels" and fewer < bytes_ / 2
    for tile in (None, "off"):
        assert variant(model, optimize="speed", ram=4800, tile=tile)[0] == "dsp 2 pixels"
    with pytest.raises(EdgebuildError, match="flash"):
        variant(model, optimize="speed", flash=1000)


def test_four_times_a_sum_fits_int32(tmp_path: Path) -> None:
    request = model_request(layer(tmp_path), "model", "mps2-an386", {"optimize": "speed"})
    plan = plan_model(request, load_target("mps2-an386"))
    (op,), (form,) = plan.steps[0].ops, plan.steps[0].forms
    s = SPECS[op.kind].sums(op, plan.graph)
    assert s is not None and winograd.winograd(s, form) is not None
    large = replace(s, start=s.start + 2**29)
    assert large.fits and winograd.winograd(large, form) is None


@pytest.mark.one_in(3)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target, most", [("mps2-an386", 0.7), ("m4-flash-model", 0.7), ("mps2-an500", 0.65)])
def test_fewer_cycles(target: str, most: float, tmp_path: Path) -> None:
    """Modelled cycles against those of the kernels that serve otherwise, for 64 channels."""
    path, chip = tmp_path / "model.tflite", load_target(target)
    path.write_bytes(conv(8, 8, 64, 64, (3, 3))())
    cycles = {}
    for optimize in ("balanced", "speed"):
        request = model_request(path, "model", target, {"tile": "off", "optimize": optimize})
        result = verify(path, chip, compile_model(request), by_cycles=True)
        assert result["equal"]
        cycles[optimize] = result["cycles"]
    assert cycles["speed"] < most * cycles["balanced"]
