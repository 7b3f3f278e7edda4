"""The entry of the command, with the fast path for builds without changes.

Build systems call `edgebuild run NAME.req.json` whenever a file has a new date. Mostly its bytes are unchanged. Then
only this module and `stamp` run: they compare the files with the record in `NAME.stamp`. For that they only import
`atomic`, `hashlib`, `os`, `sys`, `time` and `own_code`. All other commands go to `edgebuild.cli`.
"""

from __future__ import annotations

import os
import sys

from ..base import own_code
from ..base.atomic import FolderLock
from .stamp import is_current

MAKEFILES, HEADER_ALONE, CALL = "--makefiles", "--header", "--call="  # options of `run`


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    options = [word for word in arguments[1:-1] if not word.startswith(CALL)]
    is_run = arguments[:1] == ["run"] and {*options} <= {MAKEFILES, HEADER_ALONE}
    try:
        if is_run:
            with FolderLock(os.path.dirname(arguments[-1]) or os.curdir):
                return _run(arguments, HEADER_ALONE in options, MAKEFILES in options, argv is None)
        return _command(arguments, argv is None)
    except KeyboardInterrupt:
        return 130


def _run(arguments: list[str], header_alone: bool, makefiles: bool, is_process: bool) -> int:
    request = arguments[-1]
    if own_code.installed_record() is None and os.path.exists(own_code.KEPT):
        own_code.code_at_start()  # updates that file, which stamps list
    if is_current(request, ".header" if header_alone else ""):
        return 0
    if header_alone:
        from .header import write_plain

        if write_plain(request, makefiles):
            return 0
    return _command(arguments, is_process)


def _command(arguments: list[str], is_process: bool) -> int:
    """Run the command. `is_process`: this process ends with it, so garbage collection hardly helps."""
    import gc

    if is_process:
        gc.set_threshold(1_000_000)
        if arguments[:1] in (["run"], ["model"]):  # few products of matrices: starting BLAS threads takes longer
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from ..cli import main as command

    try:
        return command(arguments)
    finally:
        if is_process:  # skips the last collection
            gc.freeze()
