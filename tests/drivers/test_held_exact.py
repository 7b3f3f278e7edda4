"""Held out: every access of these drivers is that of code by hand, one by one and in order."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.drivers import held_chips, held_chips2, held_chips3, held_exact, held_exact2
from tests.drivers.silicon import Part, compare

PARTS = (*held_exact.PARTS, *held_exact2.PARTS, *held_chips.PARTS, *held_chips2.PARTS, *held_chips3.PARTS)
STRICT = ("-std=c11", "-ffreestanding", "-fsyntax-only", "-O2", "-Wall", "-Wextra", "-Werror", "case.c")


@pytest.mark.one_in(2)
@pytest.mark.needs("riscv64-unknown-elf-gcc", "clang")
@pytest.mark.parametrize("part", PARTS, ids=lambda p: p.name.replace(" ", "_"))
def test_the_accesses_are_those_by_hand(part: Part, tmp_path: Path) -> None:
    if not part.present:
        pytest.skip(f"{part.file} is not beside the checkout")
    hand, generated = compare(part, tmp_path)
    assert generated.trace == hand.trace
    assert generated == hand
    for compiler in (("gcc",), ("clang", "--target=riscv32-unknown-elf")):
        result = subprocess.run([*compiler, *STRICT], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert not result.stderr
