"""Where the command starts, and its short way out.

Build systems call `edgebuild run NAME.req.json` whenever a file has a new date. Most often its bytes are the same, and
then nothing but this file runs: it compares what `NAME.stamp` recorded with what is there, and imports no more than
`hashlib`, `os`, `sys`, `time` and `own_code` for that. Everything else goes to `edgebuild.cli`.

A stamp is text: one line `sha256 mtime_ns size path` for each file that the outputs were made from (the request first)
and for each output, between a header and the line `end`. A file that would have been read has `-` in place of the hash.
`edgebuild.build.run` writes it.
"""

from __future__ import annotations

import os
import sys
import time

from edgebuild.base import own_code

HEADER, END = "edgebuild stamp 2", "end"
REQUEST_SUFFIX = ".req.json"
MAKEFILES, HEADER_ALONE = "--makefiles", "--header"  # of `run`
SETTLED_NS = 2_000_000_000  # no file system has a coarser clock


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    options = arguments[1:-1]
    is_run = arguments[:1] == ["run"] and {*options} <= {MAKEFILES, HEADER_ALONE}
    held = _hold(arguments[-1]) if is_run else None
    try:
        if is_run and own_code.record() is None and os.path.exists(own_code.KEPT):
            own_code.code_digest()  # brings that file up to date: stamps name it
        if is_run and is_current(arguments[-1], ".header" if HEADER_ALONE in options else ""):
            return 0
        if is_run and HEADER_ALONE in options:
            from edgebuild.build.header import write_plain

            if write_plain(arguments[-1], MAKEFILES in options):
                return 0
        import gc

        if argv is None:  # a process of its own: nearly all that it makes is used to its end
            gc.set_threshold(100_000)
        from edgebuild.cli import main as command

        try:
            return command(arguments)
        finally:
            if argv is None:  # no last look for cycles
                gc.freeze()
    finally:
        if held is not None:
            os.close(held)


def _hold(request: str) -> int | None:
    """The folder of a request, for this process alone until it ends or closes it; None where that cannot be had.

    A build that is killed may leave its runs at work: ninja gives each a process group. They and the runs of the next
    build would write the same products.
    """
    try:
        import fcntl

        folder = os.open(os.path.dirname(os.path.abspath(request)), os.O_RDONLY)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
    except OSError:  # a file system without locks
        os.close(folder)
        return None
    return folder


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
