"""One file that represents all code of this installation in depfiles: it changes whenever the code does.

For an installed package it is `RECORD`, which installers rewrite. For a checkout, also an editable install, it is
`__pycache__/edgebuild.code` with a digest of all code. Every command that generates files updates it, so it gets a new
date when a byte of the code changes. `edgebuild.index` beside it caches the digests of files.

Builds without changes use this module, so it imports nothing that Python has not loaded when it starts.
"""

from __future__ import annotations

import os
import time

from .atomic import replace_file

PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
FOLDER = os.path.join(PACKAGE, "__pycache__")
KEPT, INDEX = os.path.join(FOLDER, "edgebuild.code"), os.path.join(FOLDER, "edgebuild.index")
SETTLED_NS = 2_000_000_000  # the coarsest file system's clock: a younger file may change without a new date
NO_CODE = (".pyc", ".md", "py.typed")
NO_FOLDER = ("__pycache__", "cmake", "scons")  # build systems track their own scripts


def code_folders() -> tuple[str, ...]:
    """The folders with code: the package and, in a checkout, the folder of C files beside it."""
    hal = os.path.join(os.path.dirname(PACKAGE), "hal")
    return (PACKAGE, hal) if os.path.isdir(os.path.join(hal, "targets")) else (PACKAGE,)


def code_files() -> tuple[str, ...]:
    """All files of this installation on which products depend, sorted: modules, templates, C files."""
    files = list[str]()
    for top in code_folders():
        for folder, folders, names in os.walk(top):
            folders[:] = [f for f in folders if f not in NO_FOLDER]
            files += [os.path.join(folder, name) for name in names if not name.endswith(NO_CODE)]
    return tuple(sorted(files))


def code_digest() -> str:
    """Hex digest of the names and bytes of all code. It also updates the file of a checkout.

    Only files whose state differs from the index are read.
    """
    import hashlib  # late: not all builds need it

    began, place = time.time_ns(), os.path.dirname(PACKAGE) + os.sep
    digests = {line[65:]: line[:64] for line in _read(INDEX).splitlines()}
    lines, rows = list[str](), list[str]()
    for file in code_files():
        status = os.stat(file)
        name = file[len(place) :].replace(os.sep, "/")
        state = f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_size} {name}"
        digest = digests.get(state, "")
        if not digest:
            with open(file, "rb") as opened:
                digest = hashlib.sha256(opened.read()).hexdigest()
        rows.append(f"{digest} {name}\n")
        if max(status.st_mtime_ns, status.st_ctime_ns) <= began - SETTLED_NS:
            lines.append(f"{digest} {state}\n")
    digest = hashlib.sha256("".join(rows).encode("utf-8", "surrogateescape")).hexdigest()
    for file, text in ((INDEX, "".join(lines)), (KEPT, f"{digest}\n")):
        if _read(file) != text:
            _replace(file, text)
    return digest


def code_at_start() -> str:
    """`code_digest` at the first call in this process, since its loaded modules do not change later."""
    if PACKAGE not in _AT_START:
        _AT_START[PACKAGE] = code_digest()
    return _AT_START[PACKAGE]


_AT_START = dict[str, str]()


def code_inputs() -> tuple[str, ...]:
    """The files that represent the code in depfiles and stamps: one file, or all if that cannot be written."""
    file = installed_record() or kept_file()
    return (file,) if file else code_files()


def with_code(files: list[str] | tuple[str, ...], code: tuple[str, ...]) -> list[str]:
    """The absolute paths of files that were read, with `code_inputs()` in place of the files of this installation."""
    inside = tuple(top + os.sep for top in code_folders())
    paths = map(os.path.abspath, files)
    return list(dict.fromkeys([*(p for p in paths if not os.path.realpath(p).startswith(inside)), *code]))


def installed_record() -> str | None:
    """The path of `RECORD` of an installed package; None for a checkout."""
    site = os.path.dirname(PACKAGE)
    folders = [f for f in os.listdir(site) if f.startswith("edgebuild-") and f.endswith(".dist-info")]
    file = os.path.join(site, folders[0], "RECORD") if len(folders) == 1 else ""
    return file if os.path.isfile(file) else None


def kept_file() -> str | None:
    """The file of a checkout; None if it is not of the code at the start, or cannot be written."""
    digest = code_at_start()  # also updates the file
    return KEPT if _read(KEPT) == f"{digest}\n" else None


def _read(file: str) -> str:
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as opened:
            return opened.read()
    except OSError:
        return ""


def _replace(file: str, text: str) -> None:
    """Replace a file atomically, for concurrent readers. Does nothing if the folder cannot be written."""
    try:
        os.makedirs(FOLDER, exist_ok=True)
        replace_file(file, text.encode("utf-8", "surrogateescape"))
    except OSError:
        pass
