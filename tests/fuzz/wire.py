"""Streams of frames that a medium harms, for the receiver in hal/src/cluster.c: over bytes as they come, and over each
port that compiles for the build machine, with a model of its hardware. The C of it lies in `streams`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgebuild.base.target import hal_dir
from edgebuild.model.verify.harness import SANITIZERS

from .others import Trouble

PORTS = ("bytes", "udp", "can", "spi", "uart")
STREAMS = 100_000  # of a unit
HERE = Path(__file__).parent / "streams"
FAKES = Path(__file__).parents[1] / "distribute" / "links"
LEAST = 5  # payloads that are accepted of each stream, in the mean: what accepts nothing is never wrong
WALL_S = 1200
FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-DEB_LINK_RING=1024u", f"-I{HERE}", f"-I{FAKES}")


def program(port: str, folder: Path, hal: Path | None = None, optimize: str = "-O2") -> Path:
    """The program for a port, of the sources of `hal`; None: the project's. Raises CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    hal = hal or hal_dir()
    flags = [*SANITIZERS, optimize, *FLAGS, f"-I{hal / 'include'}", f"-I{hal / 'src'}"]
    flags += [f"-DPORT_{port.upper()}", f"-DSENDERS={1 if port == 'spi' else 2}"]
    own, receiver, objects = HERE / "node.c", hal / "src" / "cluster.c", []
    for device in range(3):
        for source, more in ((own, []), (receiver, ["-DOF_CLUSTER", "-include", str(HERE / "node.h")])):
            objects.append(f"{port}_{source.stem}{device}.o")
            one = ["gcc", *flags, f"-DNODE={device}", *more, "-c", str(source), "-o", objects[-1]]
            subprocess.run(one, cwd=folder, check=True)
    subprocess.run(["gcc", *flags, "-o", port, str(HERE / "streams.c"), *objects], cwd=folder, check=True)
    return folder / port


def run(file: Path, first: int, count: int) -> tuple[dict[str, Any], str]:
    """Counts of so many streams, and what is said of those that failed; no counts of a program that broke off."""
    done = subprocess.run([file, str(first), str(count), "1"], timeout=WALL_S, capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode in (0, 1) and done.stdout else {}, done.stderr


def harmed_streams(port: str, seed: int, folder: Path) -> Iterator[Trouble]:
    """Streams number `seed` times `STREAMS` and those behind it."""
    file = folder / port
    try:
        if not file.exists():
            program(port, folder)
        counts, text = run(file, seed * STREAMS, STREAMS)
    except (subprocess.SubprocessError, ValueError) as problem:
        yield Trouble("traceback", f"wire {port} {seed}", repr(problem))
        return
    kind = "wrong" if counts else "crash"
    if not counts or counts["wrong"] or counts["not_recovered"] or counts["accepted"] < LEAST * STREAMS:
        yield Trouble(kind, f"{file} {seed * STREAMS} {STREAMS} 1", f"{counts}\n{text}")
