"""Instructions by layer: they are those of the layer, and together those of the whole."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from tests.zoo.builders import Net, quantized

DIGITS = Path(__file__).parents[2] / "sample_projects" / "digits" / "digits.onnx"


def wide() -> onnx.ModelProto:
    """A picture whose channels grow and shrink again, so that parts of the picture take less memory than all of it."""
    net = Net("wide", (32, 16, 2), 1, 18)
    x = net.conv(net.add("Transpose", ["input"], (2, 32, 16), perm=(0, 3, 1, 2)), 8, (3, 3))
    x = net.conv(x, 16, (3, 3))
    x = net.flatten(net.global_average_pool(net.conv(x, 2, (1, 1))))
    return quantized(net.model(net.dense(x, 4)))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["mps2-an386", "riscv-virt"])
@pytest.mark.parametrize("tile", ["off", "rolling", "fdt", "ffmt"])
def test_the_layers_take_what_the_whole_takes(name: str, tile: str, tmp_path: Path) -> None:
    """Also where steps stand in a loop, as parts of a path do."""
    model = DIGITS
    if tile == "ffmt":  # of which that network has nothing to gain
        model = tmp_path / "wide.onnx"
        onnx.save(wide(), model)
    artifacts = compile_model(model_request(model, "model", name, {"tile": tile}))
    assert (b"/* steps from " in artifacts[0].data) == (tile in ("fdt", "ffmt"))
    result = verify(model, load_target(name), artifacts, by_layer=True)
    layers = result["layers"]
    macs = json.loads(next(a.data for a in artifacts if a.name == "model_report.json"))["macs"]
    assert sum(layer["macs"] for layer in layers) == macs["generated"]
    assert (macs["generated"] > macs["model"]) == (tile == "ffmt")  # edges of parts are computed twice
    total = sum(layer["instructions"] for layer in layers)
    # A tick of the counter is 40 instructions on Cortex-M; the call of the model itself belongs to no layer.
    assert abs(total - result["instructions"]) < 0.01 * result["instructions"]
    if tile == "off":
        assert all(layer["instructions"] > layer["macs"] / 4 for layer in layers)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("host", {}, "has no simulator that counts instructions"),
        ("riscv-virt", {"stream_input": "rows"}, "of an input that is there whole"),
    ],
)
def test_where_layers_cannot_be_counted(name: str, options: dict[str, str], words: str) -> None:
    artifacts = compile_model(model_request(DIGITS, "model", name, options))
    with pytest.raises(EdgebuildError, match=words):
        verify(DIGITS, load_target(name), artifacts, by_layer=True)
