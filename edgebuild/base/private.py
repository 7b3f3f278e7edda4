"""Access to a folder that only this user may write to, so that its files are trusted.

The folder is opened and checked once; all further accesses go through its descriptor. So a folder that is put in its
place meanwhile is not used, and neither is a link, a pipe or a device in it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
BY_FOLDER = os.open in os.supports_dir_fd  # False on Windows: there is no cache then


class Refused(OSError):
    """A folder or a file that other users may have written; the text is the reason."""


def of_others(status: os.stat_result) -> str:
    """The reason why other users may write a file or folder; "" if only this user may."""
    if status.st_uid != os.geteuid():
        return f"it belongs to another user (uid {status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it (mode {stat.S_IMODE(status.st_mode):03o})"
    return ""


@contextmanager
def opened(path: Path, make: bool = False) -> Iterator[int]:
    """Open a folder and yield its descriptor; `make`: create it if it is missing.

    The path itself may be a link, since the user has named it. Raises OSError; Refused if others may write to it.
    """
    if not BY_FOLDER:
        raise FileNotFoundError("folders cannot be opened on this system")
    if make:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
    with _closing(os.open(path, FOLDER | os.O_NONBLOCK)) as folder:
        yield folder


@contextmanager
def inside(folder: int, name: str, make: bool = False) -> Iterator[int]:
    """Open a folder in an opened one and yield its descriptor; a link is refused."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
    with _closing(os.open(name, FOLDER | NO_LINK, dir_fd=folder)) as inner:
        yield inner


@contextmanager
def _closing(folder: int) -> Iterator[int]:
    try:
        if why := of_others(os.fstat(folder)):
            raise Refused(why)
        yield folder
    finally:
        os.close(folder)


def read(folder: int, name: str, most: int) -> bytes:
    """Read a file in an opened folder. Raises OSError if it is missing, not private, or larger than `most` bytes."""
    with open(name, "rb", opener=lambda name, flags: os.open(name, os.O_RDONLY | NO_LINK, dir_fd=folder)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or of_others(status) or status.st_size > most:
            raise Refused(f"{name} is not a file that was written here")
        return file.read(most)


def write(folder: int, name: str, data: bytes) -> None:
    """Create a file in an opened folder. Raises OSError, also if it exists."""
    with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK, 0o600, dir_fd=folder), "wb") as file:
        file.write(data)


def replace(folder: int, name: str, data: bytes) -> None:
    """Replace a file in an opened folder atomically. Raises OSError."""
    aside = f".{name}.{os.getpid()}"
    with suppress(FileNotFoundError):  # left by a process that was killed
        os.unlink(aside, dir_fd=folder)
    write(folder, aside, data)
    os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
