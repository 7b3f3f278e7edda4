"""Where the command starts, and its short way out.

Build systems call `edgebuild run NAME.req.json` whenever a file has a new date. Most often its bytes are the same, and
then nothing but this file and `stamp` run: they compare what `NAME.stamp` recorded with what is there. They import no
more than `hashlib`, `os`, `sys`, `time` and `own_code` for that. Everything else goes to `edgebuild.cli`.
"""

from __future__ import annotations

import os
import sys

from edgebuild.base import own_code
from edgebuild.build.stamp import is_current

MAKEFILES, HEADER_ALONE, CALL = "--makefiles", "--header", "--call="  # of `run`


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    options = [word for word in arguments[1:-1] if not word.startswith(CALL)]
    is_run = arguments[:1] == ["run"] and {*options} <= {MAKEFILES, HEADER_ALONE}
    held = _hold(arguments[-1]) if is_run else None
    try:
        if is_run and own_code.record() is None and os.path.exists(own_code.KEPT):
            own_code.code_at_start()  # brings that file up to date: stamps name it
        if is_run and is_current(arguments[-1], ".header" if HEADER_ALONE in options else ""):
            return 0
        if is_run and HEADER_ALONE in options:
            from edgebuild.build.header import write_plain

            if write_plain(arguments[-1], MAKEFILES in options):
                return 0
        import gc

        if argv is None:  # a process of its own: nearly all that it makes is used to its end
            gc.set_threshold(1_000_000)
            if is_run or arguments[:1] == ["model"]:  # multiplies little; threads of BLAS take longer to start
                os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
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
