"""Stamps: what files were when a run read and wrote them, by which the next one sees that there is nothing to do.

A stamp is text: one line `sha256 mtime_ns size path` for each file that the outputs were made from (the request first)
and for each output, between a header and the line `end`. A file that would have been read has `-` in place of the hash.
`edgebuild.build.run` writes it.
"""

from __future__ import annotations

import os
import time

HEADER, END = "edgebuild stamp 2", "end"
REQUEST_SUFFIX = ".req.json"
SETTLED_NS = 2_000_000_000  # no file system has a coarser clock


def is_current(request: str, part: str = "") -> bool:
    """Whether all that the stamp of `request` names is as it was; if so, the stamp is dated as of this look.

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
        if lines[0].split(" ", 3)[3] != os.path.abspath(request):  # a copy of a folder, whose stamp tells of the other
            return False
        if not all(map(_matches, lines)):
            return False
        os.utime(stamp, ns=(began, began))
    except (OSError, ValueError, IndexError):
        return False
    return True


def stamp_of(request: str, part: str = "") -> str:
    """The stamp of what a request becomes; `part`: of its header alone, ".header"."""
    return f"{request.removesuffix(REQUEST_SUFFIX)}{part}.stamp"


def fingerprint(path: str, settled_ns: int) -> str:
    """The stamp line of a file. Later dates than `settled_ns` are left out, so that bytes are compared in their place:
    a file that was just written may be written again within the same tick of the file system's clock.
    """
    status = os.stat(path)
    date = status.st_mtime_ns if status.st_mtime_ns <= settled_ns else 0
    return f"{_sha256(path)} {date} {status.st_size} {path}"


def never(path: str) -> str:
    """The stamp line of a file of which nobody knows the bytes that were read: no file is as it says."""
    return f"0 0 0 {path}"


def absent(path: str) -> str:
    """The stamp line of a file that would have been read."""
    return f"- 0 0 {path}"


def _matches(line: str) -> bool:
    digest, date, size, path = line.split(" ", 3)
    if digest == "-":
        return not os.path.exists(path)
    if digest == "0":
        return False
    status = os.stat(path)
    if status.st_size != int(size) or not _is_file(status):  # a pipe would block
        return False
    return status.st_mtime_ns == int(date) or _sha256(path) == digest


def _is_file(status: os.stat_result) -> bool:
    return status.st_mode & 0o170000 == 0o100000  # as `stat.S_ISREG` has it, without the module


def _sha256(path: str) -> str:
    import hashlib  # late: not all commands compare

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
