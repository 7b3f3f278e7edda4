"""Cycles for which a core waits for flash: programs by hand, whose lines are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgebuild.model.verify
from edgebuild.base.errors import EdgebuildError
from edgebuild.base.target import load_target
from edgebuild.cli import main
from edgebuild.model.ir import Array, Graph
from edgebuild.model.verify import verify
from edgebuild.model.verify.harness import flash_of
from edgebuild.model.verify.oracles import Reference
from tests.firmware import fake

TABLE = "static const uint32_t table[64] __attribute__((aligned(64))) = {1};"  # 16 lines of 16 bytes
NOP = '__asm__ volatile(".rept 200\\n nop.w\\n.endr");'  # 800 bytes of code


@pytest.fixture(autouse=True)
def oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """An oracle for the model by hand, which has no model file."""

    def reference(_: Path, inputs: list[list[Array]], *__: Any) -> Reference:
        results = [np.clip(row[0].astype(int) + 1, -128, 127).astype(np.int8) for row in inputs]
        return Reference([[y] for y in results], [{"sum": y} for y in results], slack=0)

    monkeypatch.setattr(edgebuild.model.verify, "reference", reference)
    monkeypatch.setattr(edgebuild.model.verify, "prepare", lambda *_, **__: Graph("fake", (), {}, (), ()))


def lines(statement: str) -> int:
    """That a program with this statement fetches from the flash of stm32f429."""
    target = load_target("mps2-an386")
    artifacts = fake.model(target, fake.code(statement, declare=TABLE))
    verdict = verify(Path("fake.tflite"), target, artifacts, np.zeros((1, fake.SIZE), np.int8), by_cycles=True,
                   flash_of="stm32f429")  # fmt: skip
    assert verdict["equal"] and "5 wait states" in verdict["cycles_model"]
    assert verdict["cycles_waited"] % flash_of("stm32f429").wait_states == 0
    return int(verdict["cycles_waited"]) // flash_of("stm32f429").wait_states


def reading(words: int, times: int) -> str:
    read = "(void)*(const volatile uint32_t *)&table[i];"
    return f"for (int n = 0; n < {times}; ++n) for (int i = 0; i < {words}; ++i) {read}"


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm", "gcc")
def test_lines_of_data() -> None:
    """Eight lines are fetched once; more are fetched anew in each turn. Code may differ by a few."""
    assert lines(reading(64, 9)) - lines(reading(64, 2)) == pytest.approx(7 * 16, abs=4)
    assert lines(reading(16, 9)) == pytest.approx(lines(reading(16, 2)), abs=4)


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm", "gcc")
def test_lines_of_code() -> None:
    """A loop of 800 bytes stays in the 64 lines that are kept, one of 1,600 bytes does not."""
    short, long = (f"for (volatile int n = 0; n < {{}}; ++n) {{{{ {NOP * count} }}}}" for count in (1, 2))
    assert lines(short.format(9)) == pytest.approx(lines(short.format(3)), abs=4)
    assert lines(long.format(9)) - lines(long.format(3)) == pytest.approx(6 * 100, abs=6 * 4)


def test_targets_that_do_not_state_their_flash_are_refused() -> None:
    with pytest.raises(EdgebuildError, match="does not state its flash"):
        flash_of("mps2-an386")


def test_the_option_needs_cycles() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["verify", "x.tflite", "--target", "mps2-an386", "--flash-of", "stm32f429"])
    assert caught.value.code == 2
