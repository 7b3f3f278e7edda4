"""Files that are written whole or not at all, folders for one process, and rules of depfiles, in few milliseconds.

It imports nothing that Python has not loaded when it starts.
"""

from __future__ import annotations

import os
from _collections_abc import Iterable  # without what the package of that name loads
from itertools import count

_held: set[tuple[int, ...]] = set()  # threads and folders: a thread that holds one may enter again


class Alone:
    """Within `with`, a folder for this thread alone. Nobody waits where that cannot be had, as on some file systems.

    A build that is killed may leave its runs at work: ninja gives each a process group. They, and the runs of the next
    build, would write the same products. The system ends the hold of a process that ends.
    """

    def __init__(self, folder: str) -> None:
        self._folder, self._handle = folder, -1
        self._key: tuple[int, ...] = ()

    def __enter__(self) -> None:
        try:
            import _thread
            import fcntl

            handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        except (ImportError, OSError):
            return
        status = os.fstat(handle)
        self._key = _thread.get_ident(), status.st_dev, status.st_ino
        try:
            if self._key not in _held:
                fcntl.flock(handle, fcntl.LOCK_EX)
                _held.add(self._key)
                self._handle, handle = handle, -1
        except OSError:  # a file system without locks
            pass
        finally:
            if handle >= 0:
                os.close(handle)

    def __exit__(self, *error: object) -> None:
        if self._handle >= 0:
            _held.discard(self._key)
            os.close(self._handle)


def temporary(path: str, data: bytes) -> str:
    """A new file beside `path` that holds the bytes. `tempfile` brings modules that cost more than the file."""
    folder, name = os.path.split(path)
    for number in count():
        aside = os.path.join(folder, f".{name[:100]}.{os.getpid()}.{number}")
        try:
            handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
            break
        except FileExistsError:  # of a process that ended early, or of another thread
            continue
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    except BaseException:
        os.unlink(aside)
        raise
    return aside


def replace_file(path: str, data: bytes) -> None:
    """Write a file in one move. Raises OSError; then the old one stays."""
    aside = temporary(path, data)
    try:
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise


def rule(target: str, prerequisites: Iterable[str]) -> str:
    """Each prerequisite on a line. A blank at the end of a path would be lost at the end of the line."""
    words = [f"{target}:", *prerequisites]
    return "".join(f"{word} " if word[-1] in " \t" else f"{word} \\\n  " for word in words[:-1]) + f"{words[-1]}\n"


def in_cmake(path: str) -> str:
    """A path as CMake reads it in a depfile."""
    return path.replace("$", "$$").replace("#", "\\#").replace(" ", "\\ ")
