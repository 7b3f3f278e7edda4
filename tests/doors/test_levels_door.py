"""The sample whose network is larger than the fast memories: both build systems make it, and its scores are right."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, run

SAMPLE = ROOT / "sample_projects" / "mobilenet_in_levels"
SCONSTRUCT = """\
import os
import edgebuild.build.scons
env = Environment(tools=["default", edgebuild.build.scons.generate], ENV=os.environ)
target = "stm32h743"
SConscript("SConscript", ["env", "target"], variant_dir="build", duplicate=False)
"""


@pytest.mark.slow
@pytest.mark.needs("cmake", "ninja", "riscv64-unknown-elf-gcc", "qemu-system-riscv32")
def test_the_sample_computes_its_scores_on_ten_harts(tmp_path: Path) -> None:
    shutil.copytree(SAMPLE, tmp_path / "sample")
    door = ROOT / "edgebuild" / "build" / "cmake"
    options = [f"-DEdgeBuild_DIR={door}", f"-DCMAKE_TOOLCHAIN_FILE={door / 'toolchain-riscv.cmake'}"]
    options += ["-DEDGEBUILD_TARGET=pulp-cluster", f"-DEDGEBUILD_PYTHON={sys.executable}"]
    run("cmake", "-G", "Ninja", "-B", "build", *options, cwd=tmp_path / "sample")
    run("cmake", "--build", "build", "--target", "run_mobilenet.elf", cwd=tmp_path / "sample")


@pytest.mark.slow
@pytest.mark.needs("arm-none-eabi-gcc")
def test_the_sample_links_for_a_chip_with_mdma(tmp_path: Path) -> None:
    shutil.copytree(SAMPLE, tmp_path / "sample")
    (tmp_path / "sample" / "SConstruct").write_text(SCONSTRUCT)
    run(sys.executable, "-m", "SCons", "-Q", cwd=tmp_path / "sample")
    assert (tmp_path / "sample" / "build" / "mobilenet.elf").exists()
