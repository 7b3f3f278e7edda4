"""Stamps: fingerprints of the files that a run read and wrote, by which the next run sees that nothing has changed.

A stamp is text: between a header and the line `end`, one line `sha256 mtime_ns size path` for each input (the request
first) and each output. A missing file that would have been read has `-` in place of the hash. `edgebuild.build.run`
writes stamps.
"""

from __future__ import annotations

import os
import time
from _collections_abc import Iterable  # `collections` would load more modules

HEADER, END = "edgebuild stamp 2", "end"
REQUEST_SUFFIX = ".req.json"
SETTLED_NS = 2_000_000_000  # the coarsest file system's clock


def is_current(request: str, part: str = "") -> bool:
    """Whether all files in the stamp of `request` are unchanged; if so, the stamp gets the present date.

    `part`: see `stamp_of`.
    """
    began = time.time_ns()
    stamp = stamp_of(request, part)
    try:
        if not _is_file(os.stat(stamp)):
            return False
        with open(stamp, encoding="utf-8", errors="surrogateescape") as file:
            header, *lines, end, rest = file.read().split("\n")
        if (header, end, rest) != (HEADER, END, "") or not lines:
            return False
        if lines[0].split(" ", 3)[3] != os.path.abspath(request):  # a copied folder: the stamp is about the original
            return False
        if not all(_matches(line, began) for line in lines):
            return False
        os.utime(stamp, ns=(began, began))
    except (OSError, ValueError, IndexError):
        return False
    return True


def stamp_of(request: str, part: str = "") -> str:
    """The path of a request's stamp. `part`: ".header" for that of the header alone."""
    return f"{request.removesuffix(REQUEST_SUFFIX)}{part}.stamp"


def fingerprint(path: str, settled_ns: int) -> str:
    """The stamp line of a file. A date later than `settled_ns` is written as 0, so that bytes are compared instead: the
    file may be written again within the same tick of the file system's clock.
    """
    status = os.stat(path)
    date = status.st_mtime_ns if status.st_mtime_ns <= settled_ns else 0
    return f"{_sha256(path)} {date} {status.st_size} {path}"


def never(path: str) -> str:
    """A stamp line that never matches, for a file of which the bytes that were read are unknown."""
    return f"0 0 0 {path}"


def absent(path: str) -> str:
    """The stamp line of a missing file that would have been read."""
    return f"- 0 0 {path}"


def is_ahead(paths: Iterable[str]) -> bool:
    """Whether a file is dated in the future. Ninja 1.11 notes that date for a rule if a product keeps its own, and then
    misses later edits. So all products get a new date, and each build runs again, as with C.
    """
    now = time.time_ns()
    return any(os.stat(path).st_mtime_ns > now for path in paths)


def _matches(line: str, now: int) -> bool:
    digest, date, size, path = line.split(" ", 3)
    if digest == "-":
        return not os.path.exists(path)
    if digest == "0":
        return False
    status = os.stat(path)
    if status.st_size != int(size) or not _is_file(status):  # a pipe would block
        return False
    if status.st_mtime_ns > now:  # see `is_ahead`
        return False
    return status.st_mtime_ns == int(date) or _sha256(path) == digest


def _is_file(status: os.stat_result) -> bool:
    return status.st_mode & 0o170000 == 0o100000  # `stat.S_ISREG`, without importing `stat`


def _sha256(path: str) -> str:
    import hashlib  # late: not all commands need it

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
