"""Files that are written whole or not at all, and rules of depfiles: what steps of a few milliseconds need.

It imports nothing that Python has not loaded when it starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import count


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
