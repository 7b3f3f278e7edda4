"""Layers of the bench against the interpreter, where sizes and scales are those of no other test."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from tests.layer_models import written


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", ["SVDF"])
def test_layer(name: str, tmp_path: Path) -> None:
    """SVDF: the product of its scales is one in float32 and another one in double."""
    model = written(name, tmp_path)
    artifacts = compile_model(model_request(model, "model", "host", {"tile": "off"}))
    assert verify(model, load_target("host"), artifacts)["equal"]
