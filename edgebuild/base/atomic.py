"""Atomic writes, locks of folders, and rules of depfiles, with little start-up time.

The module imports nothing that Python has not loaded when it starts.
"""

from __future__ import annotations

import os
from _collections_abc import Iterable  # `collections` would load more modules
from itertools import count

_held: set[tuple[int, ...]] = set()  # (thread, device, inode) of locked folders: locks are reentrant


class FolderLock:
    """A lock of a folder for this thread, for use in `with`. On file systems without locks it does nothing.

    A killed build may leave processes running, since ninja gives each a process group. Without the lock they, and those
    of the next build, would write the same products. The system releases the lock when a process ends.
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
    """Write the bytes to a new file beside `path`; returns its path. Importing `tempfile` would take longer."""
    folder, name = os.path.split(path)
    for number in count():
        aside = os.path.join(folder, f".{name[:100]}.{os.getpid()}.{number}")
        try:
            with open(aside, "xb") as file:
                file.write(data)
            break
        except FileExistsError:  # left by a killed process, or written by another thread
            continue
        except BaseException as error:
            discard(aside)
            if isinstance(error, OSError):  # of a full disk, which names no file
                error.filename = path
            raise
    return aside


def replace_file(path: str, data: bytes) -> None:
    """Replace a file atomically. Raises OSError; the old file then stays."""
    aside = temporary(path, data)
    try:
        os.replace(aside, path)
    except BaseException:
        discard(aside)
        raise


def discard(path: str) -> None:
    """Remove a file that may not exist: nobody knows what an interrupted call did."""
    try:  # noqa: SIM105 (importing contextlib would take longer)
        os.unlink(path)
    except OSError:
        pass


def rule(target: str, prerequisites: Iterable[str]) -> str:
    """A rule with one prerequisite per line, except after a path that ends in a blank, which a line end would lose."""
    words = [f"{target}:", *prerequisites]
    return "".join(f"{word} " if word[-1] in " \t" else f"{word} \\\n  " for word in words[:-1]) + f"{words[-1]}\n"


def in_cmake(path: str) -> str:
    """A path, escaped for a depfile of CMake."""
    return path.replace("$", "$$").replace("#", "\\#").replace(" ", "\\ ")
