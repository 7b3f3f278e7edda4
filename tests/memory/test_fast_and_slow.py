"""Activations over a fast and a slow memory: what fits into the fast one is there, in the plan and in the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.cli import main
from edgebuild.model.compile import plan_model
from tests.conftest import ROOT, run

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"
TARGET = """
inherits: mps2-an386
description: a small fast memory, and a large one
memories:
  TCM: {{origin: 0x20300000, size: {}, roles: [arena], tightly_coupled: true}}
  RAM: {{origin: 0x20000000, size: 3M, roles: [stack, data, arena]}}
"""


@pytest.mark.parametrize("size", [300, 800, 1000, 1300])
@pytest.mark.parametrize("tile", ["off", "rolling"])
def test_no_buffer_is_in_the_slow_memory_that_has_room_in_the_fast_one(tile: str, size: int, tmp_path: Path) -> None:
    file = tmp_path / "board.yaml"
    file.write_text(TARGET.format(size))
    plan = plan_model(model_request(DIGITS, "digits", str(file), {"tile": tile}), load_target(str(file)))
    roots = [b for b in plan.buffers if b.view_of is None]
    fast = [b for b in roots if b.place.memory == "TCM"]
    assert fast and all(b.place.offset + b.bytes <= size for b in fast)
    for b in roots:
        if b.place.memory != "TCM" and b.bytes <= size and not b.overlaps:
            others = [f for f in fast if f.first <= b.last and b.first <= f.last]
            starts = [0, *(-(-(f.place.offset + f.bytes) // 16) * 16 for f in others)]
            free = [
                at
                for at in starts
                if at + b.bytes <= size
                and all(at + b.bytes <= f.place.offset or f.place.offset + f.bytes <= at for f in others)
            ]
            assert not free, f"{b.tensor} has room at {free[0]} of the fast memory"


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
def test_the_program_has_an_arena_in_each_and_is_right(tmp_path: Path) -> None:
    file, folder = tmp_path / "board.yaml", tmp_path / "program"
    file.write_text(TARGET.format(1000))
    command = ["verify", str(DIGITS), "--target", str(file), "--tile", "off", "--keep", str(folder)]
    assert main(command) == 0
    (elf,) = folder.glob("harness.elf")
    lines = [line.split() for line in run("arm-none-eabi-nm", elf).splitlines()]
    symbols = {line[-1]: int(line[0], 16) for line in lines if len(line) == 3}
    assert 0x20300000 <= symbols["model_arena"] < 0x20300000 + 1000
    assert 0x20000000 <= symbols["model_arena_ram"] < 0x20300000
