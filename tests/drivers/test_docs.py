"""docs/drivers.md: its files are written, its commands run, in their order."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT, run

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
NAME = re.compile(r"(?:/\*|#|<!--) (\S+\.\S+)")


def test_all_commands_work(tmp_path: Path) -> None:
    ran = 0
    for language, text in BLOCK.findall((ROOT / "docs" / "drivers.md").read_text()):
        if language != "sh":
            named = NAME.match(text)
            assert named, text
            (tmp_path / named[1]).write_text(text)
            continue
        for line in text.splitlines():
            command = [sys.executable, "-m", *shlex.split(line)]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{line}\n{done.stderr}"
            ran += 1
    assert ran >= 7
    sources = ["-I", tmp_path / "build", tmp_path / "test_uart.c"]
    run("gcc", "-include", tmp_path / "build/uart_mock.h", "-c", tmp_path / "build/uart.c", "-o", tmp_path / "uart.o")
    run("gcc", *sources, tmp_path / "uart.o", "-o", tmp_path / "test_uart")
    run(tmp_path / "test_uart")
