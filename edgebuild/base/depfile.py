"""Depfiles: the inputs of a product, as one rule. GNU make and ninja read one form, CMake reads another."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from glob import glob

from .atomic import in_cmake, rule
from .errors import Diagnostic, fail

WORDS = {"\n": "a line break", "\r": "a carriage return", "\t": "a tab", ";": "a ';'"}


def make_depfile(target: str, prerequisites: Sequence[str]) -> str:
    """One rule for GNU make and ninja. Raises EdgebuildError for a path that make cannot express.

    Paths with `=` come last: make reads `NAME = VALUE` right after the colon as a variable.
    """
    for path in (target, *prerequisites):
        refuse(path, ("\n", ";", *(("\t",) if path == target else ())), "a depfile")
        if re.search(r"\(.*\)$", path):
            raise fail("a path that ends as 'a(b)' cannot stand in a depfile: make looks into an archive", file=path)
    order = sorted(prerequisites, key=lambda path: "=" in path)
    order = [f"./{path}" if path.startswith("~") else path for path in order]  # `~` would be a home folder
    return rule(_in_make(target).replace("%", "\\%"), map(_in_make, order))


def unread_by_make(target: str, prerequisites: Iterable[str]) -> Diagnostic | None:
    """A warning if make, unlike ninja, reads the rule as an assignment."""
    if "=" in target or all("=" in path for path in prerequisites):
        text = "make takes a rule with '=' in its path for an assignment, so changes go unseen; ninja reads it"
        return Diagnostic(text, target, severity="warning", hints=("build in a folder without '=' in its path",))
    return None


def cmake_depfile(target: str, prerequisites: Sequence[str], products: Sequence[str] = ()) -> str:
    """One rule for CMake, which converts it for make or ninja. Paths must not have line breaks or tabs.

    `products`: further words, in one line at the end.
    """
    words = [*map(in_cmake, prerequisites), *([" ".join(map(in_cmake, products))] if products else [])]
    return rule(in_cmake(target), words)


def unread_by_makefiles(paths: Iterable[str]) -> list[Diagnostic]:
    """Warnings on paths that CMake writes into makefiles in a form that make misreads."""
    text = "CMake has no way to write this path into a makefile, so changes of the file go unseen"
    hints = ("rename the file or folder, or build with Ninja",)
    wrong = (p for p in paths if re.search(r"[;|:\\]|\(.*\)$", os.path.splitdrive(p)[1]))
    return [Diagnostic(text, p, severity="warning", hints=hints) for p in wrong]


def refuse(path: str, characters: Iterable[str], where: str) -> None:
    """Raise EdgebuildError if a path has one of the characters."""
    if c := next((c for c in characters if c in path), ""):
        raise fail(f"a path with {WORDS[c]} cannot stand in {where}", file=path, hints=["rename the file or folder"])


def _in_make(path: str) -> str:
    r"""A path for a makefile: special characters are escaped by backslashes; backslashes before them are doubled.

    Wildcards are escaped as in `glob`. ninja does not undo that, and runs the command each time. So a path with `[`
    alone is only escaped if the pattern matches another file.
    """
    fits = glob(path) if "[" in path else []
    if "*" in path or "?" in path or ("[" in path and "\\" in path) or fits not in ([], [path]):
        path = re.sub(r"([*?\[\\])", r"\\\1", path)
    path = re.sub(r"(\\+)(?=[ \t#:|=]|$)", r"\1\1", path)
    return re.sub(r"([ \t#:|])", r"\\\1", path).replace("$", "$$")
