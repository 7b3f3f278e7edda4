"""Generated files as values, and the one place that writes them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from edgebuild.base.errors import fail, from_os


@dataclass(frozen=True)
class Artifact:
    """A file to be: its name relative to the output folder, and its bytes."""

    name: str
    data: bytes


def write_atomic(path: Path, data: bytes) -> bool:
    """Write `data` to `path` unless it already holds it; say whether it was written.

    An interrupted run leaves either the old file or the new one, never half of one. Raises EdgebuildError that names
    the file if the operating system refuses.
    """
    if is_written(path, data):
        return False
    publish([Artifact(path.name, data)], path.parent)
    return True


def is_written(path: Path, data: bytes) -> bool:
    """Whether the file holds these bytes."""
    try:
        return path.read_bytes() == data
    except OSError:
        return False


def publish(artifacts: Iterable[Artifact], folder: Path) -> list[str]:
    """Write the artifacts below `folder`; return the names of those that changed.

    All bytes go to temporary files in the same folder, which take their names when the last one is written. A full disk
    leaves the folder as it was. Raises EdgebuildError that names the file if the operating system refuses.
    """
    changed = [a for a in artifacts if not is_written(folder / a.name, a.data)]
    waiting: list[tuple[str, Path]] = []
    path = folder
    try:
        for a in changed:
            path = folder / a.name
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            waiting.append((_temporary(path, a.data), path))
        while waiting:
            temporary, path = waiting[-1]
            os.replace(temporary, path)
            waiting.pop()
    except FileExistsError as error:
        raise fail(f"cannot write it: {path.parent} is not a folder", file=str(path)) from error
    except OSError as error:
        raise from_os(error, "cannot write it", str(path)) from error
    finally:
        for temporary, _ in waiting:
            os.unlink(temporary)
    return [a.name for a in changed]


def _temporary(path: Path, data: bytes) -> str:
    """A new file beside `path` that holds the bytes. `tempfile` brings modules that cost more than the file."""
    for number in count():
        name = str(path.parent / f".{path.name[:100]}.{os.getpid()}.{number}")
        try:
            handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
            break
        except FileExistsError:  # of a process that ended early, or of another thread
            continue
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    except BaseException:
        os.unlink(name)
        raise
    return name
