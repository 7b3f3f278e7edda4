"""Damage a model in many ways and compile each: FOLDER MODEL COUNT [SEED].

Prints what ends in anything but a diagnostic or the whole list of products. Run as a script, because it limits its own
memory and time, so that a hang or a blow-up is an exception too.
"""

from __future__ import annotations

import random
import resource
import signal
import sys
import traceback
from pathlib import Path

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest, model_outputs
from edgebuild.model.compile import compile_model

MAPPED = 3 << 30  # bytes of addresses; the libraries alone map more than one
MEMORY = 1 << 30  # bytes in use
SECONDS = 10  # of work, which a machine that is busy with other things does not stretch
WAITED = 20 * SECONDS  # by the clock, for what hangs without working


def damaged(data: bytes, rng: random.Random) -> bytes:
    """One to eight bytes changed, or the end cut off."""
    if rng.random() < 0.1:
        return data[: rng.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(changed))
        changed[at] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256), changed[at] ^ 1 << rng.randrange(8)))
    return bytes(changed)


def most_in_use() -> int:
    """The most bytes that this program held at once. `getrusage` would count the process that started it, too."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:"))


def main(folder: str, model: str, count: str, first: str = "0") -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MAPPED, MAPPED))
    data, bad, refused = Path(model).read_bytes(), 0, 0
    for seed in range(int(first), int(first) + int(count)):
        file = Path(folder, f"{seed}{Path(model).suffix}")
        file.write_bytes(damaged(data, random.Random(seed)))
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(WAITED)
        try:
            names = [artifact.name for artifact in compile_model(ModelRequest(file, "n", "host"))]
            assert sorted(names) == sorted(model_outputs("n")), names
        except EdgebuildError:
            refused += 1
        except BaseException:
            bad += 1
            print(f"{file}:\n{traceback.format_exc()}")
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        if most_in_use() > MEMORY:
            bad += 1
            print(f"{file}: more than {MEMORY} bytes in use")
            break
    print(f"{refused} of {count} refused")
    return bad


def too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds of work, or {WAITED} of waiting")


if __name__ == "__main__":
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, too_long)
    sys.exit(min(main(*sys.argv[1:]), 100))
