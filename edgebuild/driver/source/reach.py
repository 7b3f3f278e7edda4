"""Files that the preprocessor will open, looked at before: it would read a device without an end, and wait for a pipe.

Headers that a directive names in plain words are looked at by name. Where a macro makes the name, nobody but the
preprocessor knows it. Then it runs in a process first that has limits of memory and time.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from edgebuild.base.errors import fail
from edgebuild.base.inputs import read_bytes

# Strings stay, comments become a blank; a line that ends in a backslash goes on in the next one.
WORDS = re.compile(r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|//[^\n]*|/\*.*?\*/""", re.S)
DIRECTIVE = re.compile(r"^[ \t]*(?:#|%:|\?\?=)[ \t]*(?:include|include_next|import|embed)\b([^\n]*)$", re.M)
NAME = re.compile(r"""[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)""")
MEMORY, SECONDS = 1 << 30, 20  # that the process which runs first may take


def check_headers(files: Sequence[Path], folders: Sequence[Path], preprocess: Callable[[], object]) -> None:
    """Refuse a device, a pipe or a file that is too large, wherever one of the files or what it includes names it.

    `folders`: where headers are besides beside the file that names them. `preprocess` reads all as it is read later.
    Headers of the compiler and of the C library are passed over. Raises EdgebuildError.
    """
    seen, todo, made = set[str](), [*files], ""
    while todo:
        path = todo.pop()
        if (real := os.path.realpath(path)) in seen:
            continue
        seen.add(real)
        names, by_macro = named(read_bytes(path).decode("utf-8", "replace"))
        todo += [p for name in names for p in (at / name for at in (path.parent, *folders)) if _is_there(p)]
        made = made or (str(path) if by_macro else "")
    if made and not _ends(preprocess):
        hints = [f"a header that a macro names is a device, a pipe, or too large: {MEMORY >> 30} GiB, {SECONDS} s"]
        raise fail("its headers cannot be read", file=made, hints=hints)


def named(text: str) -> tuple[set[str], bool]:
    """The files that directives of the text name, and whether there is one whose file a macro names."""
    spliced = re.sub(r"\\[ \t]*\r?\n", "", text.replace("??/", "\\"))
    plain = WORDS.sub(lambda m: m[0] if m[0][0] in "\"'" else " ", spliced)
    operands = [m[1] for t in (text, spliced, plain) for m in DIRECTIVE.finditer(t)]
    names = [NAME.match(operand) for operand in operands]
    return {m[1] or m[2] for m in names if m}, not all(names)


def _is_there(path: Path) -> bool:
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):  # no name that the system knows
        return False


def _ends(work: Callable[[], object]) -> bool:
    """Whether the work ends within its limits and without an exception, in a process of its own."""
    if not hasattr(os, "fork"):
        return True
    import resource

    child = os.fork()
    if not child:
        status = 1
        with suppress(BaseException):
            resource.setrlimit(resource.RLIMIT_AS, (_mapped() + MEMORY,) * 2)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            work()
            status = 0
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _mapped() -> int:
    """Bytes of the address space that this process has already."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 2 << 30
