"""A command that is told to end takes with it the programs that it runs, and what these have started."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edgebuild.base import programs
from tests.conftest import ROOT

# The script of a board that never answers, and a program that it has started. Whatever goes on says so in the end.
RUNNER = """\
exec 3> "$1" 4< "$2"
echo started >&3
(read word <&4; echo "its program goes on" >&3)
echo "it goes on" >&3
"""
BOARD = """\
inherits: mps2-an386
runner:
  command: [sh, {0}/runner.sh, {0}/said, {0}/asked]
"""


def pipe(path: Path) -> int:
    """A named pipe, open at both ends, so that nobody waits for the other one."""
    os.mkfifo(path)
    return os.open(path, os.O_RDWR)


@pytest.mark.one_in(3)
@pytest.mark.needs("arm-none-eabi-gcc")
@pytest.mark.parametrize("name, status", [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_programs_end_with_the_command(name: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "runner.sh").write_text(RUNNER)
    (tmp_path / "board.yaml").write_text(BOARD.format(tmp_path))
    (tmp_path / "tmp").mkdir()
    started, asked = pipe(tmp_path / "said"), pipe(tmp_path / "asked")
    model = ROOT / "sample_projects/digits/digits.onnx"
    command = [Path(sys.executable).with_name("edgebuild"), "verify", model, "--target", "board.yaml"]
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_DFL)  # what a process ignores, its programs ignore, too
    env = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    signal.signal(number, before)
    with process:
        assert process.stdout is not None
        ready, _, _ = select.select([started, process.stdout], [], [])
        assert started in ready, process.stdout.read().decode()
        assert os.read(started, 99) == b"started\n"
        process.send_signal(number)
        assert process.wait() == status, process.stdout.read().decode()
    rest = os.open(tmp_path / "said", os.O_RDONLY)
    os.close(started)
    os.close(asked)
    with open(rest) as remaining:
        assert remaining.read() == ""
    assert not [left for left in (tmp_path / "tmp").iterdir() if left.is_dir()]


def test_a_time_limit_counts_seconds_of_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """One wait of three seconds would end at once where a virtual machine was paused for longer."""
    waits: list[float] = []

    def late(self: object, timeout: float) -> None:
        waits.append(timeout)
        raise subprocess.TimeoutExpired("true", timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", late)
    with pytest.raises(subprocess.TimeoutExpired):
        programs.run(["true"], timeout=2.5)
    assert waits == [1, 1, 1]
