# ruff: noqa: E501  (C on one line reads better here)
"""The sample through both build systems, and what happens when a file changes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, run

SAMPLE = ROOT / "sample_projects" / "pulpino_gpio_spi"
SCONSTRUCT = """import os
env = Environment(tools=["default", "edgebuild"], ENV=os.environ, toolpath=[{toolpath!r}])
env.EdgeBuildTarget("pulpino")
env.Program("app.elf", ["main.c", env.BfDriver("gpio", "gpio.bf.c"), env.BfDriver("other", "other.bf.c")])
"""


def project(folder: Path) -> None:
    (folder / "pad.h").write_text("bfGroup Pad { bit a; bit b; };\nmake_device(Pad, pad, 0x1A101000);\n")
    (folder / "gpio.bf.c").write_text('#include "pad.h"\nvoid on(void) { pad->a = 1; pad->b = 1; }\n')
    (folder / "other.bf.c").write_text(
        "bfGroup O { bit a; };\nmake_device(O, o, 0x1A102000);\nvoid off(void) { o->a = 0; }\n"
    )
    (folder / "main.c").write_text("void on(void); void off(void);\nint main(void) { on(); off(); return 0; }\n")
    (folder / "SConstruct").write_text(SCONSTRUCT.format(toolpath=str(ROOT / "edgebuild" / "scons" / "site_tools")))


def scons(folder: Path) -> str:
    return run(sys.executable, "-m", "SCons", "-Q", cwd=folder, env={"PYTHONPATH": str(ROOT)})


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_scons_rebuilds_what_changed(tmp_path: Path) -> None:
    project(tmp_path)
    scons(tmp_path)
    assert "is up to date" in scons(tmp_path)
    source = tmp_path / "gpio.bf.c"
    source.write_text(source.read_text().replace("{ pad", "{ /* both */ pad"))
    said = scons(tmp_path)
    assert "driver gpio" in said and "driver other" not in said and "-c edgebuild/other" not in said
    assert "both" in (tmp_path / "edgebuild" / "gpio" / "gpio.c").read_text()
    header = tmp_path / "pad.h"
    header.write_text(header.read_text().replace("bit b;", "bit b; uint8 c;"))
    said = scons(tmp_path)
    assert "driver gpio" in said and "driver other" not in said
    assert "is up to date" in scons(tmp_path)


@pytest.mark.needs("riscv64-unknown-elf-gcc", "cmake", "ninja")
def test_cmake_makes_the_same_bytes(tmp_path: Path) -> None:
    build = tmp_path / "cmake"
    toolchain = ROOT / "edgebuild" / "cmake" / "toolchain-riscv.cmake"
    environment = {"PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run("cmake", "-G", "Ninja", "-B", build, "-S", SAMPLE, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", "-DEDGEBUILD_TARGET=pulpino",
        f"-DEdgeBuild_DIR={ROOT / 'edgebuild' / 'cmake'}", f"-DEDGEBUILD_PYTHON={sys.executable}", env=environment)  # fmt: skip
    run("cmake", "--build", build, env=environment)
    assert "no work to do" in run("cmake", "--build", build, env=environment)
    for name in ("gpio", "spi"):
        out = tmp_path / name
        run(sys.executable, "-m", "edgebuild", "driver", ROOT / "hal" / "drivers" / f"pulpino_{name}.bf.c", "--name", name,
            "--target", "pulpino", "-o", out, env={"PYTHONPATH": str(ROOT)})  # fmt: skip
        for file in out.iterdir():
            assert file.read_bytes() == (build / "edgebuild" / name / file.name).read_bytes(), file.name
    assert (build / "pulpino.elf").stat().st_size > 1000
