"""`edgebuild verify --port`: the test programs on a board behind a serial line.

The board is QEMU, whose UART is joined to a pseudo-terminal. The command that would write the flash starts it.
"""

from __future__ import annotations

import binascii
import contextlib
import fcntl
import json
import os
import pty
import socket
import struct
import subprocess
import sys
import threading
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.cli import main
from edgebuild.model.verify.harness import Board, run_on_board
from tests.graphs.tiny import tiny_tflite

UART = Path(__file__).parent / "mps2_uart.c"
START = """import os, signal, subprocess, sys
pid = {folder!r} + "/qemu.pid"
if os.path.exists(pid):
    os.kill(int(open(pid).read()), signal.SIGKILL)
qemu = ["qemu-system-arm", "-machine", "mps2-an386", "-icount", "shift=0", "-nographic", "-monitor", "none"]
line = ["-chardev", "socket,id=s,path={folder}/line", "-serial", "chardev:s"]
started = subprocess.Popen([*qemu, *line, "-kernel", os.path.abspath(sys.argv[1])], stdin=subprocess.DEVNULL,
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
open(pid, "w").write(str(started.pid))
"""


@pytest.fixture
def port(tmp_path: Path) -> Iterator[str]:
    """A pseudo-terminal whose other end is the socket `line` in the folder, for one program after another."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "line"))
    listener.listen()

    boards: list[socket.socket] = []

    def from_boards() -> None:
        with contextlib.suppress(OSError):
            while True:
                boards.append(listener.accept()[0])
                with contextlib.suppress(ConnectionError):
                    while data := boards[-1].recv(4096):
                        os.write(ours, data)

    def to_board() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(ours, 4096):
                boards[-1].sendall(data)

    for end in (from_boards, to_board):
        threading.Thread(target=end, daemon=True).start()
    (tmp_path / "start.py").write_text(START.format(folder=str(tmp_path)))
    yield os.ttyname(theirs)
    listener.close()
    if (tmp_path / "qemu.pid").exists():
        subprocess.run(["kill", "-9", (tmp_path / "qemu.pid").read_text()], check=False)
    os.close(ours)
    os.close(theirs)


def verify(tmp_path: Path, port: str, *words: str) -> int:
    model = tmp_path / "net.tflite"
    model.write_bytes(tiny_tflite())
    flash = f"{sys.executable} {tmp_path}/start.py {{elf}}"
    command = ["verify", str(model), "--target", "mps2-an386", "--port", port, "--board-io", str(UART)]
    return main([*command, "--flash-with", flash, "--json", str(tmp_path / "result.json"), *words])


@pytest.mark.needs("qemu-system-arm", "arm-none-eabi-gcc")
def test_a_board_gives_what_the_simulator_gives(
    tmp_path: Path, port: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Board._send

    def send_late(board: Board, letter: bytes, data: bytes) -> None:
        """Greetings are answered twice, as by a host that was slow: the board has sent another one."""
        for _ in range(2 if letter == b"H" else 1):
            send(board, letter, data)

    monkeypatch.setattr(Board, "_send", send_late)
    assert verify(tmp_path, port, "--layers") == 0, capsys.readouterr().err
    result = json.loads((tmp_path / "result.json").read_text())
    model = str(tmp_path / "net.tflite")
    assert main(["verify", model, "--target", "mps2-an386", "--layers", "--json", str(tmp_path / "qemu.json")]) == 0
    simulated = json.loads((tmp_path / "qemu.json").read_text())
    same = ("equal", "output", "compared", "stack_bytes", "arena_bytes", "arena_touched_bytes", "macs")
    assert {k: result[k] for k in same} == {k: simulated[k] for k in same}
    assert result["instructions"] is None and result["cycles"] > 0 and "SysTick" in result["cycles_model"]
    assert len(result["layers"]) == len(simulated["layers"]) and all("cycles" in row for row in result["layers"])


def served(port: str, ours: int, tmp_path: Path, sent: bytes, silence_s: float = 0.5) -> str:
    """The error of a board that sends these bytes and no more."""
    with pytest.raises(EdgebuildError) as refused:
        run_on_board(port, 7, tmp_path, silence_s, lambda: os.write(ours, sent))
    return str(refused.value)


def message(letter: bytes, data: bytes) -> bytes:
    head = letter + struct.pack("<I", len(data)) + data
    return b"\xeb" + head + binascii.crc_hqx(head, 0xFFFF).to_bytes(2, "big")


def test_what_a_line_may_bring(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    port, hello = os.ttyname(theirs), message(b"H", struct.pack("<I", 7))
    assert "nothing came from the board in 0.5 seconds" in served(port, ours, tmp_path, b"")
    assert "5 bytes came and no message" in served(port, ours, tmp_path, b"boot\n")
    assert "program of another model" in served(port, ours, tmp_path, message(b"H", struct.pack("<I", 8)))
    assert "not its beginning" in served(port, ours, tmp_path, message(b"P", b"text"))
    assert "lost or changed" in served(port, ours, tmp_path, hello[:-1] + b"\0")
    assert "no message" in served(port, ours, tmp_path, b"\xebW\xff\xff\xff\xff")
    stopped = served(port, ours, tmp_path, b"noise" + hello + message(b"P", b"fault: cause 3\n"))
    assert "the board stopped" in stopped and "fault: cause 3" in stopped
    failed = served(port, ours, tmp_path, hello + message(b"X", struct.pack("<I", 125)))
    assert "ended with status 125" in failed
    away = hello + message(b"O", b"\x05../away") + message(b"W", struct.pack("<I", 0) + b"data")
    run_on_board(port, 7, tmp_path, 1, lambda: os.write(ours, away + message(b"X", bytes(4))))
    assert (tmp_path / "away").read_bytes() == b"data", "paths of a board stay in the folder"
    os.close(ours)
    os.close(theirs)


def test_ports_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert verify(tmp_path, str(tmp_path / "none")) == 1 and "cannot open the port" in capsys.readouterr().err
    assert verify(tmp_path, str(tmp_path / "file")) == 1 and "no serial line" in capsys.readouterr().err
    assert verify(tmp_path, "/dev/null:31") == 1 and "no baud rate 31" in capsys.readouterr().err
    ours, theirs = pty.openpty()
    fcntl.flock(theirs, fcntl.LOCK_EX)
    assert verify(tmp_path, os.ttyname(theirs)) == 1 and "the port is busy" in capsys.readouterr().err
    for words, text in ((["--flash-with", "x"], "need --port"), (["--port", "x"], "needs --board-io")):
        with pytest.raises(SystemExit):
            main(["verify", str(tmp_path / "net.tflite"), "--target", "mps2-an386", *words])
        assert text in capsys.readouterr().err
    os.close(ours)
    os.close(theirs)
