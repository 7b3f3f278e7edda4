"""Texts of C that libclang's tree does not hold: assembly, first values of variables, definitions of macros."""

from __future__ import annotations

import re

from clang.cindex import Cursor, CursorKind

from edgebuild.driver.source import clang

ASSEMBLY = (CursorKind.ASM_STMT, CursorKind.MS_ASM_STMT)
WORD = r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|\w+|\S'


def assembly(function: Cursor, statement: Cursor) -> str | None:
    """The strings and colons of an assembly statement, without macros; None if they are not at hand."""
    number = [x for x in clang.preorder(function) if x.kind in ASSEMBLY].index(statement)
    words = re.findall(WORD, clang.pretty(function))
    starts = [i for i, w in enumerate(words) if w == "asm"]
    if number >= len(starts):
        return None
    inside = words[starts[number] : starts[number + 1] if number + 1 < len(starts) else None]
    end = inside.index(";") if ";" in inside else len(inside)
    return " ".join(w for w in inside[:end] if w[0] in '":')


def plain_string(literal: Cursor) -> str | None:
    """The characters of a string literal without escapes; None for any other."""
    found = re.fullmatch(r'"([^"\\]*)"', literal.spelling) if literal.kind == CursorKind.STRING_LITERAL else None
    return found[1] if found and found[1].isascii() else None


def first_value(variable: Cursor, offsets: list[int | None]) -> str:
    """The text of a variable's first value without macros; `offsets` stand for the `offsetof`s in it."""
    text = clang.pretty(variable).partition("=")[2]
    for offset in offsets:
        text = re.sub(r"(?:__builtin_)?offsetof\([^)]*\)", f"{offset}U", text, count=1)
    return " ".join(text.split())


def type_text(variable: Cursor) -> str:
    """The type of a variable without namespaces."""
    return re.sub(r"\b\w+::", "", variable.type.get_canonical().spelling)


def macros(text: bytes) -> dict[str, str]:
    """Definitions of macros by their names; those of one name are one text."""
    found: dict[str, str] = {}
    define = r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\n|[^\n])*)"
    for m in re.finditer(define, text.decode("utf-8", "replace"), re.MULTILINE):
        found[m[1]] = found.get(m[1], "") + " ".join(m[2].split())
    return found
