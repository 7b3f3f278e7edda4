"""Held out: drivers that the generator was not made with do what code by hand does, with no more accesses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drivers import held_own, held_vendors
from tests.drivers.silicon import Part, compare

PARTS = (*held_vendors.PARTS, *held_own.PARTS)


@pytest.mark.one_in(3)
@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("cpp", [False, True], ids=["c", "c++"])
@pytest.mark.parametrize("part", PARTS, ids=lambda p: p.name.replace(" ", "_"))
def test_as_good_as_by_hand(part: Part, cpp: bool, tmp_path: Path) -> None:
    if not part.present:
        pytest.skip(f"{part.file} is not beside the checkout")
    hand, generated = compare(part, tmp_path, cpp)
    assert [v for v, _ in generated.calls] == [v for v, _ in hand.calls]
    assert (generated.values, generated.sent) == (hand.values, hand.sent)
    for (_, by_hand), (_, now) in zip(hand.calls, generated.calls, strict=True):
        assert now <= by_hand, (hand.calls, generated.calls)
