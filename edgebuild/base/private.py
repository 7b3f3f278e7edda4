"""A folder that nobody else may write to: what is read from it was written by this user.

It is opened once and looked at then, and all that follows goes through what was opened. So another folder that takes
its place meanwhile is not used, nor is a link, a pipe or a device in it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
BY_FOLDER = os.open in os.supports_dir_fd  # elsewhere, as on Windows, nothing is kept


class Refused(OSError):
    """A folder or a file that others may have written; the text says why."""


def of_others(status: os.stat_result) -> str:
    """Why a file or folder is not this user's alone, or nothing."""
    if status.st_uid != os.geteuid():
        return f"it belongs to another user (uid {status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it (mode {stat.S_IMODE(status.st_mode):03o})"
    return ""


@contextmanager
def opened(path: Path, make: bool = False) -> Iterator[int]:
    """The folder, as a descriptor; `make`: it is made if it is not there. Raises OSError, of these Refused for others'.

    The path itself may be a link: the user has named it.
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
    """The bytes of a file in an opened folder. Raises OSError if there is none, or no file of this user's alone."""
    with open(name, "rb", opener=lambda name, flags: os.open(name, os.O_RDONLY | NO_LINK, dir_fd=folder)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or of_others(status) or status.st_size > most:
            raise Refused(f"{name} is not a file that was written here")
        return file.read(most)


def write(folder: int, name: str, data: bytes) -> None:
    """A new file in an opened folder. Raises OSError, also where there is one."""
    with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK, 0o600, dir_fd=folder), "wb") as file:
        file.write(data)


def replace(folder: int, name: str, data: bytes) -> None:
    """A file in an opened folder in place of the one that is there, in one move. Raises OSError."""
    aside = f".{name}.{os.getpid()}"
    with suppress(FileNotFoundError):  # of a process that ended early
        os.unlink(aside, dir_fd=folder)
    write(folder, aside, data)
    os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
