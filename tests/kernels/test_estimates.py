"""Estimates of plans against the instructions that simulators count, for networks that no constant was fitted to."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model, plan_model
from edgebuild.model.ir import Quant
from edgebuild.model.plan.section import instructions
from edgebuild.model.verify import verify
from tests.kernels.test_processors import NEEDS
from tests.layer_models import function
from tests.zoo.builders import ZOO, Net, quantized

OFF = 0.1  # of the count


def tiny_conv() -> onnx.ModelProto:
    """A large window over the one channel of a spectrogram, and a dense layer, as for a few spoken words."""
    net = Net("tiny_conv", (1, 49, 40), 5, 13)
    return net.model(net.dense(net.flatten(net.conv("input", 8, (10, 8), stride=2)), 4))


@pytest.fixture(scope="module", params=[ZOO["resnet8"], tiny_conv], ids=["resnet8", "tiny_conv"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("zoo") / "model.onnx"
    file.write_bytes(quantized(request.param(), 3).SerializeToString())
    return file


@pytest.mark.one_in(9)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("options", [{"tile": "rolling"}, {"objective": "ram"}], ids=["rolling", "ram"])
@pytest.mark.parametrize("target", ["riscv-virt", "mps2-an385", "mps2-an386", "microbit"])
def test_rolled_runs(target: str, options: dict[str, str], model: Path) -> None:
    request, chip = model_request(model, "model", target, options), load_target(target)
    planned = plan_model(request, chip)
    assert planned.tiled
    result = verify(model, chip, compile_model(request))
    assert result["equal"]
    assert abs(instructions(planned.steps) / result["instructions"] - 1) < OFF


@pytest.mark.needs(*NEEDS)
def test_clamps_without_long_products(tmp_path: Path) -> None:
    """Of fewer elements than a table is worth: each product of a Cortex-M0 is a call of the compiler's library."""
    file, target = tmp_path / "model.tflite", load_target("microbit")
    file.write_bytes(function("RELU", (1, 5, 5, 8), Quant((0.03,), (-128,)), None)())
    request = model_request(file, "model", target.name, {})
    result = verify(file, target, compile_model(request), by_layer=True)
    assert result["equal"]
    (layer,) = result["layers"]
    assert abs(instructions(plan_model(request, target).steps) / layer["instructions"] - 1) < OFF
