"""Diagnostics: what is wrong, where, and what would be right.

Every mistake in the user's input ends as one `Diagnostic`, printed the way compilers
print theirs, so that editors and build logs can follow it:

    kws.tflite: node 'conv_3' (CONV_2D): error: dilation 2 with stride 2
      try: ...
    board.yaml:12:3: error: unknown key 'memorys'; did you mean 'memories'?
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Diagnostic:
    """One finding. `line` and `column` count from 1; 0 means unknown."""

    text: str
    file: str = ""
    line: int = 0
    column: int = 0
    node: str = ""  # name of the op in the model file
    kind: str = ""  # its operator, in the file's own spelling
    hints: tuple[str, ...] = ()  # what would be right, one line each
    severity: str = "error"

    def __str__(self) -> str:
        where = self.file
        if self.line:
            where += f":{self.line}"
            where += f":{self.column}" if self.column else ""
        parts = [where] if where else []
        if self.node or self.kind:
            parts.append(f"node '{self.node}'" + (f" ({self.kind})" if self.kind else ""))
        parts += [self.severity, self.text]
        return "\n  ".join([": ".join(parts), *self.hints])


class EdgebuildError(Exception):
    """The user's input is wrong. Exit status 1."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        self.diagnostics = diagnostics
        super().__init__("\n".join(map(str, diagnostics)))


class MissingTool(EdgebuildError):
    """A program or package that the command needs is not installed. Exit status 3."""


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


def caret(line: str, column: int, length: int = 1) -> tuple[str, str]:
    """A line of a source, and below it a mark under `length` characters from `column`, which counts from 1."""
    line = line.rstrip("\r\n")
    pad = "".join("\t" if c == "\t" else " " for c in line[: column - 1])
    return "  " + line, "  " + pad + "^" + "~" * (min(length, len(line) - len(pad)) - 1)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """'; did you mean 'x'?' for the nearest known word, or an empty string."""
    import difflib  # late: most runs find nothing wrong

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""
