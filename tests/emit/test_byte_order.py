"""Processors with the other byte order: what would compute something else there does not compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.artifacts import publish
from edgebuild.base.request import DriverRequest, ModelRequest
from edgebuild.driver.pipeline import compile_driver
from edgebuild.model.compile import compile_model
from tests.conftest import ROOT, run
from tests.graphs import tiny_tflite

CHECK = ("clang", "-ffreestanding", "-fsyntax-only")
BIG = ("--target=aarch64_be-linux-gnu", "--target=armeb-none-eabi", "--target=powerpc-none-eabi")
OTHERS = ("-D__big_endian__", "-U__BYTE_ORDER__ -D__LITTLE_ENDIAN__=0")  # as compilers of TI and IAR say it
LITTLE = ("--target=aarch64-linux-gnu", "--target=armv7em-none-eabi", "-U__BYTE_ORDER__", "-D__LITTLE_ENDIAN__=1")


@pytest.mark.needs("clang")
def test_a_model_for_little_endian_alone(tmp_path: Path) -> None:
    (tmp_path / "tiny.tflite").write_bytes(tiny_tflite())
    publish(compile_model(ModelRequest(tmp_path / "tiny.tflite", "tiny", "host")), tmp_path)
    for flags in (*BIG, *OTHERS):
        output = run(*CHECK, *flags.split(), "tiny.c", cwd=tmp_path, status=1)
        assert "tiny.c reads weights in little endian; no big-endian processor runs it" in output
    for flags in LITTLE:
        run(*CHECK, *flags.split(), "tiny.c", cwd=tmp_path)


@pytest.mark.needs("clang")
@pytest.mark.parametrize(("target", "status"), [("host", 1), ("pulpino", 0)])
def test_a_driver_that_accesses_bytes_of_registers(target: str, status: int, tmp_path: Path) -> None:
    """Whole registers are the same words to all processors."""
    source = ROOT / "hal" / "drivers" / "pulpino_gpio.bf.c"
    publish(compile_driver(DriverRequest((source,), "gpio", target))[0], tmp_path)
    check = (*CHECK, "-I", str(source.parent))
    output = run(*check, BIG[0], "gpio.c", cwd=tmp_path, status=status)
    assert ("gpio_hal.h accesses bytes of registers in little endian" in output) == bool(status)
    run(*check, LITTLE[0], "gpio.c", cwd=tmp_path)
