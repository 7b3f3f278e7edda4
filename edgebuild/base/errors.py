"""Diagnostics: the error, its place, and a remedy.

Every mistake in the user's input becomes a `Diagnostic`, printed as compilers
print theirs, so that editors and build logs can follow it:

    kws.tflite: node 'conv_3' (CONV_2D): error: dilation 2 with stride 2
      try: ...
    board.yaml:12:3: error: unknown key 'memorys'; did you mean 'memories'?
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from .text import visible as visible


@dataclass(frozen=True)
class Diagnostic:
    """An error or a warning. `line` and `column` count from 1; 0 means unknown."""

    text: str
    file: str = ""
    line: int = 0
    column: int = 0
    node: str = ""  # name of the op in the model file
    kind: str = ""  # its operator, in the file's own spelling
    hints: tuple[str, ...] = ()  # remedies, one line each
    severity: str = "error"
    others: int = 0  # number of further nodes with the same error

    @property
    def places(self) -> list[str]:
        """The file with its line, and the node, as far as they are known: they are printed in front of the text."""
        where = visible(self.file)
        if self.line:
            where += f":{self.line}"
            where += f":{self.column}" if self.column else ""
        parts = [where] if where else []
        if self.node or self.kind:
            more = f" and {self.others} more" if self.others else ""
            parts.append(visible(f"node '{self.node}'{more}" + (f" ({self.kind})" if self.kind else "")))
        return parts

    def __str__(self) -> str:
        parts = [*self.places, self.severity, visible(self.text)]
        return "\n  ".join([": ".join(parts), *map(visible, self.hints)])


class EdgebuildError(Exception):
    """The user's input is wrong. Exit status 1."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        self.diagnostics = diagnostics
        super().__init__("\n".join(map(str, diagnostics)))


class Refusal(EdgebuildError):
    """An error whose text is expensive to compute: it is computed on demand, since most are caught unread."""

    def __init__(self, words: Callable[[], EdgebuildError]) -> None:
        self._words = words
        Exception.__init__(self)

    @cached_property
    def diagnostics(self) -> tuple[Diagnostic, ...]:  # type: ignore[override]
        return self._words().diagnostics

    def __str__(self) -> str:
        return "\n".join(map(str, self.diagnostics))


class MissingTool(EdgebuildError):
    """A program or package that the command needs is not installed. Exit status 3."""


def from_os(error: OSError, text: str = "", file: str = "", hints: Sequence[str] = ()) -> EdgebuildError:
    """An error of the operating system, as a diagnostic. `text`: the failed action, such as "cannot write it"."""
    named = file or (os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "")
    reason = error.strerror or str(error) or type(error).__name__
    text = text or ("cannot write it" if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EROFS) else "")
    hints = hints or (_near_files(named) if isinstance(error, FileNotFoundError | NotADirectoryError) else ())
    hints = hints or (["name a file in it"] if isinstance(error, IsADirectoryError) else ())
    return fail(f"{text}: {reason}" if text else reason, file=named, hints=hints)


def _near_files(path: str) -> list[str]:
    """A hint for a missing file: a file of similar name beside it, or the part of its path that is no folder."""
    folder, name = os.path.split(path)
    try:
        there = os.listdir(folder or os.curdir)
    except OSError:
        while (parent := os.path.dirname(folder)) and not os.path.isdir(parent):
            folder = parent
        return [f"'{folder}' is no folder" if os.path.lexists(folder) else f"there is no folder '{folder}'"]
    stem = os.path.splitext(name)[0]
    near = did_you_mean(name, (other for other in there if os.path.splitext(other)[0] == stem), 0)
    near = near or did_you_mean(name, there, 0.75)
    return [near.removeprefix("; ")] if near else []


STRICT = "EDGEBUILD_STRICT"  # environment variable: internal faults end with a traceback, as tests need it


def is_strict() -> bool:
    return bool(os.environ.get(STRICT))


def note_place(bug: Exception, file: str, node: str, kind: str) -> None:
    """Attach the current node to an internal exception, for `fault`. Only the first call has an effect."""
    if not hasattr(bug, "place"):
        bug.place = file, node, kind  # type: ignore[attr-defined]


def fault(bug: Exception) -> EdgebuildError:
    """An unexpected exception, as a diagnostic with the node, if known, and the line in edgebuild's code."""
    import traceback  # late: most runs have no fault

    file, node, kind = getattr(bug, "place", ("", "", ""))
    package = os.path.dirname(os.path.dirname(__file__))
    frames = [f for f in traceback.extract_tb(bug.__traceback__) if f.filename.startswith(package)]
    where = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    words = " ".join(str(bug).split())
    text = shortened(f"edgebuild fails here{where}: {type(bug).__name__}{': ' if words else ''}{words}")
    report = "a fault or an internal limit of edgebuild; please report it together with the input"
    return fail(text, file=file, node=node, kind=kind, hints=[report, f"{STRICT}=1 prints the whole traceback"])


NO_MEMORY = "this machine has not enough memory for it"
UNMAPPED = ("failed to map segment", "cannot allocate memory")  # messages of the loader if memory is short


def from_import(error: ImportError) -> EdgebuildError:
    """A failed import, as a diagnostic. It may fail for lack of memory, since libraries are mapped at first use."""
    if any(words in str(error).lower() for words in UNMAPPED):
        return fail(NO_MEMORY, hints=[f"a library does not load: {error}"])
    return MissingTool(Diagnostic(f"a package does not load: {error}", hints=("install edgebuild again, with pip",)))


MAX_GROUPS = 5  # most diagnostics for many nodes


def grouped(problems: Sequence[Diagnostic]) -> EdgebuildError:
    """One error for many nodes: one diagnostic per operator and remedy, and at most `MAX_GROUPS` in all."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[Diagnostic]] = {}
    for p in problems:
        groups.setdefault((p.file, p.kind or p.node or p.text, p.hints), []).append(p)
    diagnostics = [replace(first, others=len(rest)) for first, *rest in groups.values()]
    if len(diagnostics) <= MAX_GROUPS:
        return EdgebuildError(*diagnostics)
    rest = diagnostics[MAX_GROUPS - 1 :]
    kinds = ", ".join(dict.fromkeys(p.kind for p in rest if p.kind))
    count = sum(1 + p.others for p in rest)
    more = f"{count} more nodes are not supported: {kinds}" if kinds else f"{count} more errors"
    return EdgebuildError(*diagnostics[: MAX_GROUPS - 1], Diagnostic(shortened(more), file=rest[0].file))


def shortened(text: str) -> str:
    """The text, cut to 300 characters."""
    return text if len(text) <= 300 else f"{text[:297]}..."


def fail(
    text: str,
    *,
    file: str = "",
    line: int = 0,
    column: int = 0,
    node: str = "",
    kind: str = "",
    hints: Iterable[str] = (),
) -> EdgebuildError:
    """An `EdgebuildError` with one diagnostic, to be raised by the caller."""
    return EdgebuildError(Diagnostic(text, file, line, column, node, kind, tuple(hints)))


MAX_SHOWN = 240  # characters of a line that are shown


def caret(line: str, column: int, length: int = 1) -> tuple[str, str]:
    """A line of a source, and below it a mark under `length` characters from `column`, which counts from 1.

    A line of more than `MAX_SHOWN` characters is cut to those around the mark.
    """
    line = line.rstrip("\r\n")
    if len(line) > MAX_SHOWN:
        first = max(0, min(column - 1 - MAX_SHOWN // 2, len(line) - MAX_SHOWN))
        line, column = line[first : first + MAX_SHOWN], column - first
    pad = "".join("\t" if c == "\t" else " " for c in line[: column - 1])
    return "  " + line, "  " + pad + "^" + "~" * (min(length, len(line) - len(pad)) - 1)


def did_you_mean(word: str, candidates: Iterable[str], cutoff: float = 0.6) -> str:
    """'; did you mean 'x'?' for the nearest candidate, or "". A candidate with which the word begins is the nearest.

    `cutoff`: the least similarity, from 0 to 1.
    """
    import difflib  # late: most runs have no errors

    names, text = {name.casefold(): name for name in candidates}, word.casefold()
    begun = sorted((name for name in names if len(name) > 3 and text.startswith(name)), key=len, reverse=True)
    near = begun or difflib.get_close_matches(text, names, n=1, cutoff=cutoff)
    return f"; did you mean '{names[near[0]]}'?" if near else ""
