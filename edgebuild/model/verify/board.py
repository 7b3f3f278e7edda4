"""Run a test program on a board: the program asks for files over a serial line, and this answers.

`hal/src/serial_files.c` has the messages. The line is raw, with eight data bits.
"""

from __future__ import annotations

import binascii
import contextlib
import os
import select
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from ...base.errors import EdgebuildError, fail, from_os
from ...base.progress import say

BEGIN, HEAD, TAIL = b"\xeb", 6, 2
MOST = 1 << 20  # bytes of a message
BAUD = 115200
MODES = {1: "rb", 5: "wb"}
PROGRAM = "EB_PROGRAM"  # the macro with the program's number


def split_port(port: str) -> tuple[str, int]:
    """The device and the baud rate of `DEVICE[:BAUD]`. Raises EdgebuildError for a rate that there is not."""
    import termios

    device, _, rate = port.rpartition(":")
    if not device or not rate.isdecimal():
        return port, BAUD
    if not hasattr(termios, f"B{rate}"):
        raise fail(f"option 'port': no baud rate {rate}", hints=["such as 9600, 115200, 921600"])
    return device, int(rate)


@contextlib.contextmanager
def opened(port: str) -> Iterator[int]:
    """The line, raw, for this program alone. Raises EdgebuildError for what cannot be opened, or is no serial line."""
    try:
        import fcntl
        import termios
        import tty
    except ImportError:
        raise fail("option 'port': serial lines are read on Linux and macOS only") from None
    device, rate = split_port(port)
    try:
        line = os.open(device, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        ports = sorted(map(str, Path("/dev").glob("tty[AU][CS][MB]*")))
        hints = [f"ports: {', '.join(ports)}" if ports else "no board is connected by USB"]
        raise from_os(error, "cannot open the port", device, hints) from None
    try:
        fcntl.flock(line, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tty.setraw(line)
        attributes: list[Any] = termios.tcgetattr(line)
        attributes[4] = attributes[5] = getattr(termios, f"B{rate}")
        termios.tcsetattr(line, termios.TCSANOW, attributes)
        termios.tcflush(line, termios.TCIOFLUSH)
    except BlockingIOError:
        os.close(line)
        raise fail(
            "the port is busy", file=device, hints=["end the program that has it open, such as a terminal"]
        ) from None
    except termios.error:
        os.close(line)
        raise fail("this is no serial line", file=device) from None
    try:
        yield line
    finally:
        os.close(line)


class Board:
    """Serves a program's questions until it ends. `number`: its EB_PROGRAM; paths are names in `folder`."""

    def __init__(self, line: int, port: str, folder: Path, number: int, silence_s: float) -> None:
        self.line, self.port, self.folder, self.number, self.silence_s = line, port, folder, number, silence_s
        self.files: list[BinaryIO] = []
        self.printed = ""
        self.skipped = 0  # bytes that began no message
        self.identified = False  # the program has said its number

    def serve(self) -> int:
        """The exit status. Raises EdgebuildError for a line without messages, and for another program."""
        with contextlib.ExitStack() as stack:
            while True:
                letter, data = self._message()
                if letter == b"X":
                    return int.from_bytes(data, "little")
                if letter == b"H":
                    self._check_program(int.from_bytes(data, "little"))
                    self.identified = True
                elif not self.identified:
                    self._refuse("the board runs already, and this is not its beginning", "reset the board")
                self._send(letter, self._answer(letter, data, stack))

    def _answer(self, letter: bytes, data: bytes, stack: contextlib.ExitStack) -> bytes:
        if letter == b"P":
            self.printed += data.decode("ascii", "replace")
        elif letter == b"O":
            name = Path(data[1:].decode("ascii", "replace")).name
            try:
                self.files.append(stack.enter_context((self.folder / name).open(MODES[data[0]])))  # type: ignore[arg-type]
            except (OSError, KeyError):
                return struct.pack("<i", -1)
            return struct.pack("<i", len(self.files) - 1)
        elif letter in b"RW":
            file, rest = self.files[int.from_bytes(data[:4], "little")], data[4:]
            say(f"{self.port}: {file.tell():,} B of {Path(file.name).name}")
            if letter == b"R":
                return file.read(int.from_bytes(rest, "little"))
            return struct.pack("<i", file.write(rest))
        elif letter == b"C":
            self.files[int.from_bytes(data, "little")].close()
        return struct.pack("<i", 0)

    def _check_program(self, number: int) -> None:
        if number != self.number:
            self._refuse("the board runs the program of another model, target or options",
                         "write this one into its flash: --flash-with 'COMMAND {elf}'")  # fmt: skip

    def _message(self) -> tuple[bytes, bytes]:
        until = time.monotonic() + self.silence_s
        while self._read(1, until) != BEGIN:
            self.skipped += 1
        head = self._read(HEAD - 1, until)
        size = int.from_bytes(head[1:], "little")
        if size > MOST:
            self._refuse("what comes is no message", "is the baud rate the board's? --port DEVICE:BAUD")
        data, check = self._read(size, until), self._read(TAIL, until)
        if binascii.crc_hqx(head + data, 0xFFFF) != int.from_bytes(check, "big"):
            self._refuse("bytes were lost or changed on the line", "try a lower baud rate")
        return head[:1], data

    def _read(self, size: int, until: float) -> bytes:
        data = b""
        while len(data) < size:
            ready, _, _ = select.select([self.line], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                self._silent()
            try:
                data += os.read(self.line, size - len(data))
            except OSError as error:
                raise from_os(error, "the port was closed", self.port) from None
        return data

    def _send(self, letter: bytes, data: bytes) -> None:
        head = letter + struct.pack("<I", len(data))
        rest = BEGIN + head + data + binascii.crc_hqx(head + data, 0xFFFF).to_bytes(2, "big")
        while rest:
            select.select([], [self.line], [], self.silence_s)
            rest = rest[os.write(self.line, rest) :]

    def _silent(self) -> NoReturn:
        if self.identified:
            self._refuse(f"the board stopped: nothing more for {self.silence_s:g} seconds", *self.printed.splitlines())
        if self.skipped:
            self._refuse(f"{self.skipped} bytes came and no message: another firmware, or another baud rate",
                         "--port DEVICE:BAUD; default: 115200")  # fmt: skip
        self._refuse(f"nothing came from the board in {self.silence_s:g} seconds",
                     "does it run the test program? --flash-with 'COMMAND {elf}' writes it")  # fmt: skip

    def _refuse(self, text: str, *hints: str) -> NoReturn:
        raise fail(text, file=self.port, hints=hints)


def run_on_board(port: str, number: int, folder: Path, silence_s: float, start: Any) -> None:
    """Open the port, then `start` the program, and serve it until it ends. Raises EdgebuildError where it fails."""
    with opened(port) as line:
        start()
        board = Board(line, split_port(port)[0], folder, number, silence_s)
        status = board.serve()
    if status:
        hints = board.printed.splitlines()
        raise EdgebuildError(*fail(f"the test program ended with status {status}", file=port, hints=hints).diagnostics)
