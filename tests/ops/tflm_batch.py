"""Many models through the TFLite Micro interpreter, each in a process of its own: folders with N.tflite and N.npz.

Run as a script, which reads a folder a line and answers each with a line once its models have run. N.npz has inputs
`v<vector>_i<input>`; `N.out.npz` gets `v<vector>_o<output>`, `N.txt` what the interpreter says. A model that it refuses
or dies of gets no results. Processes are forked, because the interpreter has been seen to corrupt its heap. For the
same reason none may live for ever, and what dies is tried again.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path

import numpy as np
import tflite
from tflite_micro.python.tflite_micro import runtime

ARENA_BYTES = 16 << 20
LIMIT_S = 60  # the largest of our models takes one
TRIES = 3  # for processes that a signal ended


def invoke(model: Path) -> None:
    vectors = np.load(model.with_suffix(".npz"))
    rows = sorted({name.split("_")[0] for name in vectors.files})
    outputs = tflite.Model.GetRootAsModel(model.read_bytes(), 0).Subgraphs(0).OutputsLength()
    interpreter = runtime.Interpreter.from_bytes(model.read_bytes(), arena_size=ARENA_BYTES)
    results = {}
    for row in rows:
        for i in range(sum(name.startswith(f"{row}_") for name in vectors.files)):
            interpreter.set_input(vectors[f"{row}_i{i}"], i)
        interpreter.invoke()
        for o in range(outputs):
            results[f"{row}_o{o}"] = np.array(interpreter.get_output(o))
    np.savez(model.with_suffix(".out.npz"), **results)


def main(folder: str) -> None:
    for model in sorted(Path(folder).glob("*.tflite")):
        for _ in range(TRIES):
            if not os.WIFSIGNALED(ended(model)):
                break


def ended(model: Path) -> int:
    """The status of a process that ran the model."""
    child = os.fork()
    if child == 0:
        status = 1
        signal.alarm(LIMIT_S)  # its default action ends the process, whatever it waits for
        os.dup2(os.open(model.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        try:
            invoke(model)
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


if __name__ == "__main__":
    for line in sys.stdin:
        main(line.rstrip("\n"))
        print(flush=True)
