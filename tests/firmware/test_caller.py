"""`verify` of a model whose functions take the arena as an argument."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from tests.graphs import tiny_tflite


@pytest.mark.one_in(2)
@pytest.mark.needs("gcc", "arm-none-eabi-gcc", "qemu-system-arm")
@pytest.mark.parametrize("target", ["host", "mps2-an386"])
def test_the_harness_brings_the_arena(target: str, tmp_path: Path) -> None:
    """Equal to the oracle, and as large as an arena of the model's own."""
    model = tmp_path / "tiny.tflite"
    model.write_bytes(tiny_tflite())
    own, given = (
        verify(model, load_target(target), compile_model(model_request(model, "model", target, {"arena": arena})))
        for arena in ("static", "caller")
    )
    assert own["equal"] and given["equal"]
    assert own["arena_bytes"] == given["arena_bytes"] > 0
    assert own["ram_bytes"] == given["ram_bytes"]
