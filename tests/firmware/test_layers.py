"""Instructions by layer: they are those of the layer, and together those of the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify

DIGITS = Path(__file__).parents[2] / "sample_projects" / "digits" / "digits.onnx"


@pytest.mark.parametrize("name", ["mps2-an386", "riscv-virt"])
@pytest.mark.parametrize("tile", ["off", "rolling", "fdt"])
def test_the_layers_take_what_the_whole_takes(name: str, tile: str) -> None:
    """Also where steps stand in a loop, as parts of a path do."""
    artifacts = compile_model(model_request(DIGITS, "model", name, {"tile": tile}))
    assert (b"/* steps from " in artifacts[0].data) == (tile == "fdt")
    result = verify(DIGITS, load_target(name), artifacts, by_layer=True)
    layers = result["layers"]
    assert sum(layer["macs"] for layer in layers) == result["macs"]
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
