"""The cache of compiled models: same content, same bytes; anything else, another entry."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from edgebuild import cache
from edgebuild.artifacts import Artifact
from edgebuild.request import ModelRequest, model_outputs, model_request
from tests.conftest import ROOT

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ModelRequest]:
    monkeypatch.setenv("EDGEBUILD_CACHE", str(tmp_path / "cache"))
    return []


def compiled(made: list[ModelRequest], source: Path, **options: Any) -> tuple[Artifact, ...]:
    def compile_model(request: ModelRequest) -> tuple[Artifact, ...]:
        made.append(request)
        return tuple(Artifact(name, f"{len(made)} {name}".encode()) for name in model_outputs(request.name))

    return cache.compiled(model_request(source, "digits", "host", options), compile_model)


def test_a_hit_needs_the_same_content(made: list[ModelRequest], tmp_path: Path) -> None:
    first = compiled(made, DIGITS)
    elsewhere = tmp_path / "elsewhere" / DIGITS.name
    elsewhere.parent.mkdir()
    shutil.copy(DIGITS, elsewhere)
    assert compiled(made, elsewhere) == first and len(made) == 1
    assert compiled(made, DIGITS, tile="rolling") != first and len(made) == 2
    elsewhere.write_bytes(DIGITS.read_bytes() + b"\0")
    assert compiled(made, elsewhere) != first and len(made) == 3
    assert len(list(cache.entries())) == 3


def test_what_a_calibration_says_counts_and_where_it_is_does_not(made: list[ModelRequest], tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "c.yaml").write_text("1")
        compiled(made, DIGITS, calibration=str(tmp_path / folder / "c.yaml"))
    assert len(made) == 1
    (tmp_path / "b" / "c.yaml").write_text("2")
    compiled(made, DIGITS, calibration=str(tmp_path / "b" / "c.yaml"))
    assert len(made) == 2


def test_half_an_entry_is_none(made: list[ModelRequest]) -> None:
    compiled(made, DIGITS)
    (entry,) = cache.entries()
    (entry / "digits.c").unlink()
    compiled(made, DIGITS)
    assert len(made) == 2


def test_what_is_not_kept(made: list[ModelRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of a time limit depend on the machine; with the cache off nothing is written."""
    compiled(made, DIGITS, time_limit=5)
    assert not list(cache.entries())
    monkeypatch.setenv("EDGEBUILD_CACHE", "")
    compiled(made, DIGITS)
    compiled(made, DIGITS)
    assert len(made) == 3 and cache.folder() is None


def test_clear(made: list[ModelRequest]) -> None:
    compiled(made, DIGITS)
    assert cache.clear() == 1 and cache.clear() == 0
