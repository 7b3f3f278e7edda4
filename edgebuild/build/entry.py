"""Where the command starts, and its short way out.

Build systems call `edgebuild run NAME.req.json` whenever a file has a new date. Most often its bytes are the same, and
then nothing but this file and `stamp` run: they compare what `NAME.stamp` recorded with what is there. They import no
more than `atomic`, `hashlib`, `os`, `sys`, `time` and `own_code` for that. Everything else goes to `edgebuild.cli`.
"""

from __future__ import annotations

import os
import sys

from ..base import own_code
from ..base.atomic import Alone
from .stamp import is_current

MAKEFILES, HEADER_ALONE, CALL = "--makefiles", "--header", "--call="  # of `run`


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    options = [word for word in arguments[1:-1] if not word.startswith(CALL)]
    is_run = arguments[:1] == ["run"] and {*options} <= {MAKEFILES, HEADER_ALONE}
    if is_run:
        with Alone(os.path.dirname(arguments[-1]) or os.curdir):
            return _run(arguments, HEADER_ALONE in options, MAKEFILES in options, argv is None)
    return _command(arguments, argv is None)


def _run(arguments: list[str], header_alone: bool, makefiles: bool, is_process: bool) -> int:
    request = arguments[-1]
    if own_code.record() is None and os.path.exists(own_code.KEPT):
        own_code.code_at_start()  # brings that file up to date: stamps name it
    if is_current(request, ".header" if header_alone else ""):
        return 0
    if header_alone:
        from .header import write_plain

        if write_plain(request, makefiles):
            return 0
    return _command(arguments, is_process)


def _command(arguments: list[str], is_process: bool) -> int:
    """`is_process`: nearly all that it makes is used to its end."""
    import gc

    if is_process:
        gc.set_threshold(1_000_000)
        if arguments[:1] in (["run"], ["model"]):  # multiplies little; threads of BLAS take longer to start
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from ..cli import main as command

    try:
        return command(arguments)
    finally:
        if is_process:  # no last look for cycles
            gc.freeze()
