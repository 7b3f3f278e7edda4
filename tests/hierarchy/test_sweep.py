"""`inspect --sweep`: modelled cycles for sizes of memory levels."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import prepare
from edgebuild.model.mapping import modelled, sizes_of, sweep, sweep_words
from edgebuild.model.plan.dma.levels import resized
from edgebuild.model.plan.search import Planner
from tests.conftest import ROOT
from tests.hierarchy.test_auto import request

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"


@pytest.mark.slow
def test_more_memory_is_never_slower() -> None:
    target = load_target("gap8")
    sizes = sizes_of("L1=2K:8K,L2=12K:24K", target)
    table = sweep(ModelRequest(DIGITS, "model", "gap8"), target, sizes)
    assert table
    for key, cycles in table.items():
        assert all(cycles >= v for other, v in table.items() if all(a >= b for a, b in zip(other, key, strict=True)))
    text = sweep_words(sizes, table)
    assert len(text.splitlines()) == 1 + len(sizes["L1"]) * len(sizes["L2"])


@pytest.mark.slow
def test_what_the_second_level_has_no_room_for_comes_through_it() -> None:
    """A tensor in the third level costs copies, and constants have less room on their way."""
    planned = []
    for size in (1536, 1280):
        chip = resized(load_target("gap8"), [("L1", 1536), ("L2", size)])
        figures, search = modelled(Planner(prepare(DIGITS), chip, request("digits", "auto", "gap8")))
        assert figures is not None
        planned.append((figures.cycles, {memory.name for memory in search.homes.values()}))
    (whole, nothing), (less, third) = planned
    assert nothing == set() and third == {"L3"} and whole < less < 2 * whole


@pytest.mark.parametrize(
    ("text", "words"),
    [("L9=1K:2K", "no level 'L9'"), ("L1=4K:2K", "does not go upwards"), ("L1=x:2K", "is not a size")],
)
def test_wrong_sizes(text: str, words: str) -> None:
    with pytest.raises(EdgebuildError, match=words):
        sizes_of(text, load_target("gap8"))


def test_a_file_is_needed() -> None:
    with pytest.raises(EdgebuildError):
        sweep(ModelRequest(Path("none.onnx"), "m", "gap8"), load_target("gap8"), {"L1": [4096]})
