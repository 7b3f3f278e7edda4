"""How tests start the interpreters of `judges.py`: forked from a process that has imported them, or without VNNI.

Imports take 0.3 s (onnxruntime) to 0.8 s (TFLite Micro), more than most models of tests. Each model still has a process
of its own. As a script, this is the client that stands for `python -P` (arguments: the socket, then those of Python).
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path

IMPORTS = {
    "TFLite Micro": (
        "tflite",
        "flatbuffers",
        "tflite_micro.python.tflite_micro.runtime",
        "tflite_micro.tensorflow.lite.micro.python.schema_py_generated",
    ),
    "LiteRT": ("tflite", "ai_edge_litert.interpreter"),
    "onnxruntime": ("onnxruntime",),
}


def fork_judges() -> None:
    """From here on this process starts judges by fork."""
    from edgebuild.model.verify import oracles

    place = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{place}/judges")
        listener.listen()
        # Without this process's output, whose reader would wait for the server, too, where this process is killed.
        server = subprocess.Popen(
            [sys.executable, "-P", __file__, str(os.getpid())], env={**os.environ, **oracles.ZEROED},
            stdin=listener.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        atexit.register(server.kill)
    oracles.PYTHON = dict.fromkeys(IMPORTS, (sys.executable, "-IS", __file__, f"{place}/judges"))


def judge_without_vnni() -> None:
    """From here on onnxruntime judges on a processor without VNNI, which QEMU models."""
    from edgebuild.model.verify import oracles

    oracles.PYTHON["onnxruntime"] = ("qemu-x86_64", "-cpu", "Haswell", sys.executable, "-P")


def _serve(parent: int) -> None:
    listener = socket.socket(fileno=0)
    listener.settimeout(5)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for judges
    while os.getppid() == parent:
        with suppress(TimeoutError):
            connection, _ = listener.accept()
            _answer(connection)


def _answer(connection: socket.socket) -> None:
    text, streams, _, _ = socket.recv_fds(connection, 1 << 16, 2)
    folder, script, judge, *files = text.decode().split("\0")
    for name in IMPORTS[judge]:
        with suppress(ImportError):  # the script says so
            importlib.import_module(name)
    if not os.fork():  # a judge that hangs delays no other
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        runner = os.fork()
        if not runner:
            os.chdir(folder)
            os.dup2(streams[0], 1)
            os.dup2(streams[1], 2)
            _run([script, judge, *files])
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(runner, 0)[1])).encode())
        os._exit(0)
    for number in (*streams, connection.detach()):
        os.close(number)


def _run(command: list[str]) -> None:
    sys.argv, status = command, 1
    try:
        runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        status = int(end.code or 0)
    except Exception:
        traceback.print_exc()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)
    os._exit(status)  # without onnxruntime's last word, which waits for a thread of the server


def _ask(place: str, *command: str) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        socket.send_fds(connection, ["\0".join((str(Path.cwd()), *command)).encode()], [1, 2])
        status = int(connection.recv(16))
    if status < 0:
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(_ask(*sys.argv[1:]) if sys.argv[2:] else _serve(int(sys.argv[1])))
