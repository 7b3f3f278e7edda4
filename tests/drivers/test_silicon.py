"""Drivers of real peripherals: no more accesses than by hand, and nothing that the silicon would not take."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drivers.silicon import PARTS, Part, compare


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("part", PARTS, ids=lambda p: p.name.replace(" ", "_"))
def test_as_good_as_by_hand(part: Part, tmp_path: Path) -> None:
    if not part.present:
        pytest.skip(f"{part.file} is not beside the checkout")
    hand, generated = compare(part, tmp_path)
    assert [v for v, _ in generated.calls] == [v for v, _ in hand.calls]
    assert (generated.values, generated.sent) == (hand.values, hand.sent)
    for (_, by_hand), (_, now) in zip(hand.calls, generated.calls, strict=True):
        assert now <= by_hand, (hand.calls, generated.calls)


def test_there_are_12() -> None:
    assert len(PARTS) == 12
