"""Child processes of the command: they end when the command does, together with their own children.

A compiler, a simulator or a script that flashes a board would otherwise go on after SIGTERM. Each program leads a
process group, which is killed as a whole. Only SIGKILL leaves the command no time for that.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any, NoReturn

GROUP: dict[str, Any] = {"process_group": 0} if hasattr(os, "killpg") else {}  # Windows has no process groups
ENDING = ("SIGINT", "SIGTERM", "SIGHUP")
Start = Callable[..., "subprocess.Popen[Any]"]


@contextmanager
def together() -> Iterator[Start]:
    """Yield a function that starts programs, with the parameters of `Popen`. The end of the block kills all of them.

    A terminating signal raises KeyboardInterrupt or SystemExit here, so that temporary folders are removed. A signal
    that is ignored from the start, as under `nohup`, stays ignored.
    """
    started, asked, busy = list[subprocess.Popen[Any]](), list[int](), False

    def leave() -> NoReturn:
        raise KeyboardInterrupt if asked[0] == signal.SIGINT else SystemExit(128 + asked[0])

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if len(asked) == 1 and not busy:
            leave()

    def start(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
        nonlocal busy
        busy = True  # delays signals: a program that is started, but not in the list yet, would survive
        try:
            started.append(subprocess.Popen(command, **GROUP, **options))
        finally:
            busy = False
        if asked:
            leave()
        return started[-1]

    before = _handled_by(note)
    try:
        yield start
    finally:
        busy = True
        for program in started:
            _end(program)
        for number, handler in before.items():
            signal.signal(number, handler)
    if asked:
        leave()


def run(
    command: Sequence[str | Path],
    folder: Path | None = None,
    timeout: float | None = None,
    env: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; `env` is added to the environment. Raises the exceptions of `subprocess.run`.

    `timeout`: seconds in which this process waited. The clock would go on while a virtual machine is paused.
    """
    with together() as start:
        program = start(own(command), cwd=folder, env={**os.environ, **env}, encoding="utf-8", errors="replace",
                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        for seconds in [1] * math.ceil(timeout) if timeout else [None]:
            with suppress(subprocess.TimeoutExpired):
                out, err = program.communicate(timeout=seconds)
                return subprocess.CompletedProcess(command, program.returncode, out, err)
    raise subprocess.TimeoutExpired(command, timeout or 0)


def own(command: Sequence[str | Path]) -> Sequence[str | Path]:
    """The command with this installation in place of `edgebuild`, which need not be on the PATH."""
    return [sys.executable, "-m", "edgebuild", *command[1:]] if command[:1] == ["edgebuild"] else command


def _handled_by(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Set the handler of terminating signals; returns the previous handlers. Only the main thread can do this."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    numbers = [getattr(signal, name) for name in ENDING if hasattr(signal, name)]
    prior = {number: signal.getsignal(number) for number in numbers}
    return {number: signal.signal(number, handler) for number in numbers if prior[number] not in (signal.SIG_IGN, None)}


def _end(program: subprocess.Popen[Any]) -> None:
    """Kill a running program with its group. The id of one that has ended may belong to another group already."""
    with program:
        if program.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL) if GROUP else program.kill()
