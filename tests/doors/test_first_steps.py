"""A newcomer's project: the first lines of the README as they stand, and a board of one's own beside the sources."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgebuild.doors import cmake_dir
from tests.conftest import ROOT, run
from tests.graphs import tiny_tflite

HEAD = "cmake_minimum_required(VERSION 3.20)\nproject(app LANGUAGES C)\n"
BOARD = """\
inherits: cortex-m4
description: our board
memories:
  FLASH: {origin: 0x08000000, size: 512K, roles: [code, weights]}
  RAM: {origin: 0x20000000, size: 96K, roles: [stack, data, arena]}
"""


def listings() -> tuple[str, str, str]:
    """CMakeLists.txt, SConstruct and the body of main() of the README's first screen."""
    lines = (ROOT / "README.md").read_text().splitlines()

    def block(head: str) -> str:
        at = lines.index(head) + 2
        return "\n".join(line[4:] for line in lines[at : lines.index("", at)])

    body = next(line.strip() for line in lines if "kws_invoke()" in line)
    return block("With CMake:"), block("With SCons:"), body


def project(folder: Path) -> Path:
    folder.mkdir()
    cmake, scons, body = listings()
    (folder / "kws.tflite").write_bytes(tiny_tflite())
    (folder / "CMakeLists.txt").write_text(HEAD + cmake + "\n")
    (folder / "SConstruct").write_text(scons + "\n")
    used = "static void fill(int8_t *x) { *x = 1; }\nstatic void use(const int8_t *y) { (void)y; }\n"
    (folder / "main.c").write_text(f'#include "kws.h"\n{used}int main(void)\n{{\n    {body}\n    return 0;\n}}\n')
    return folder


@pytest.mark.needs("cmake", "gcc")
def test_the_readme_builds(tmp_path: Path) -> None:
    folder = project(tmp_path / "app")
    options = [f"-DEdgeBuild_DIR={cmake_dir()}", f"-DEDGEBUILD_PYTHON={sys.executable}"]
    run("cmake", "-S", ".", "-B", "build", *options, cwd=folder)
    run("cmake", "--build", "build", cwd=folder)
    run(str(folder / "build" / "app"), cwd=folder)
    run(sys.executable, "-m", "SCons", "-Q", cwd=folder)
    run(str(folder / "app.elf"), cwd=folder)


@pytest.mark.needs("cmake", "arm-none-eabi-gcc")
def test_a_board_beside_the_sources(tmp_path: Path) -> None:
    """Its path is relative to them, wherever CMake tries the compiler."""
    folder = project(tmp_path / "app")
    (folder / "board.yaml").write_text(BOARD)
    with (folder / "CMakeLists.txt").open("a") as file:
        file.write("edgebuild_firmware(app)\n")
    options = [
        f"-DEdgeBuild_DIR={cmake_dir()}",
        f"-DEDGEBUILD_PYTHON={sys.executable}",
        "-DEDGEBUILD_TARGET=board.yaml",
    ]
    chain = cmake_dir() / "toolchain-arm-none-eabi.cmake"
    run("cmake", "-S", ".", "-B", "build", f"-DCMAKE_TOOLCHAIN_FILE={chain}", *options, cwd=folder)
    run("cmake", "--build", "build", cwd=folder)
    assert "ARM" in run("readelf", "-h", str(folder / "build" / "app"), cwd=folder)
