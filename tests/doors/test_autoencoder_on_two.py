"""The sample whose network no board holds alone: both build systems make it, and two boards in QEMU compute it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgebuild.base.target import load_target
from tests.conftest import ROOT, run

SAMPLE = ROOT / "sample_projects" / "autoencoder_on_two"
SCONSTRUCT = """\
import os
import edgebuild.build.scons
env = Environment(tools=["default", edgebuild.build.scons.generate], ENV=os.environ)
SConscript("SConscript", "env", variant_dir="build", duplicate=False)
"""
WALL_S = 240
PRODUCTS = [
    f"{name}{suffix}" for name in ("autoencoder_left", "autoencoder_right") for suffix in (".c", "_weights.bin")
]


def built(folder: Path, tool: str) -> Path:
    """The folder of the two programs."""
    shutil.copytree(SAMPLE, folder)
    if tool == "scons":
        (folder / "SConstruct").write_text(SCONSTRUCT)
        run(sys.executable, "-m", "SCons", "-Q", cwd=folder)
    else:
        door = ROOT / "edgebuild" / "build" / "cmake"
        options = [f"-DEdgeBuild_DIR={door}", f"-DCMAKE_TOOLCHAIN_FILE={door / 'toolchain-arm-none-eabi.cmake'}"]
        options += ["-DEDGEBUILD_TARGET=microbit", f"-DEDGEBUILD_PYTHON={sys.executable}", "-Werror=dev"]
        run("cmake", "-G", tool, "-B", "build", *options, cwd=folder)
        run("cmake", "--build", "build", cwd=folder)
    return folder / "build"


def command(elf: Path, socket: str) -> list[str]:
    """QEMU with the UART of the board at a socket."""
    runner = load_target("microbit").runner
    assert runner is not None
    words = [w.replace("{elf}", str(elf)) for w in runner.command]
    at = words.index("-serial")
    return [*words[:at], "-chardev", f"socket,id=uart,path={socket}", "-serial", "chardev:uart", *words[at + 2 :]]


@pytest.mark.slow
@pytest.mark.needs("arm-none-eabi-gcc", "cmake", "ninja", "qemu-system-arm")
def test_two_boards_compute_what_none_holds(tmp_path: Path) -> None:
    folders = [built(tmp_path / tool, tool) for tool in ("scons", "Ninja")]
    for name in PRODUCTS:
        one, other = (next(folder.rglob(name)).read_bytes() for folder in folders)
        assert one == other, name
    left = command(folders[1] / "left.elf", "uart,server=on,wait=on")
    right = command(folders[1] / "right.elf", "uart,server=off,reconnect=1")
    with subprocess.Popen(right, cwd=tmp_path, stdin=subprocess.DEVNULL) as other_board:
        try:
            done = subprocess.run(left, cwd=tmp_path, stdin=subprocess.DEVNULL, timeout=WALL_S)
        finally:
            other_board.kill()
    assert done.returncode == 0
