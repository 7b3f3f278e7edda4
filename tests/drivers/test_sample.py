"""The samples through CMake; tests.drivers.test_prototype builds them through SCons."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, run

HAL = ROOT / "hal" / "drivers"
SAMPLES = ROOT / "sample_projects"
ADC = ["--layout", f"fixed:{SAMPLES}/rp2040_fixed/rp2040_adc.svd"]
# sample, toolchain, target, sources of its drivers, options, program
CASES = [
    (
        "pulpino_gpio_spi",
        "riscv",
        "pulpino",
        {n: HAL / f"pulpino_{n}.bf.c" for n in ("gpio", "spi")},
        [],
        "pulpino.elf",
    ),
    ("rp2040_fixed", "arm-none-eabi", "microbit", {"adc": SAMPLES / "rp2040_fixed" / "adc.bf.c"}, ADC, "adc.elf"),
]


@pytest.mark.needs("riscv64-unknown-elf-gcc", "arm-none-eabi-gcc", "cmake", "ninja")
@pytest.mark.parametrize(
    ("sample", "tools", "target", "drivers", "options", "program"), CASES, ids=[c[0] for c in CASES]
)
def test_cmake_makes_the_bytes_of_the_command(
    sample: str, tools: str, target: str, drivers: dict[str, Path], options: list[str], program: str, tmp_path: Path
) -> None:
    build = tmp_path / "cmake"
    places = [f"-DEdgeBuild_DIR={ROOT / 'edgebuild' / 'build' / 'cmake'}", f"-DEDGEBUILD_PYTHON={sys.executable}"]
    toolchain = f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'edgebuild' / 'build' / 'cmake' / f'toolchain-{tools}.cmake'}"
    env = {"PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    project = shutil.copytree(SAMPLES / sample, tmp_path / "project")  # nothing of a checkout is beside it
    command = ["cmake", "-G", "Ninja", "-B", build, "-S", project, toolchain, f"-DEDGEBUILD_TARGET={target}"]
    run(*command, *places, env=env)
    run("cmake", "--build", build, env=env)
    assert "no work to do" in run("cmake", "--build", build, env=env)
    for name, source in drivers.items():
        out = tmp_path / name
        words = ["driver", source, "--name", name, "--target", target, *options, "-o", out]
        run(sys.executable, "-m", "edgebuild", *words, env=env)
        for file in out.iterdir():
            assert file.read_bytes() == (build / "edgebuild" / name / file.name).read_bytes(), file.name
    assert (build / program).stat().st_size > 1000
