"""Accesses out of macros: the statements around them are printed as they are without macros.

An access is replaced in the text, so the text has to show where each part of it begins and ends. `UART->CR1.EN = 1`
does that though UART is a macro; `ENABLE(h)` does not. clang prints declarations only, so that a unit with whole
functions is parsed first. The smallest statements with such an access go into the text; all else stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from clang.cindex import Cursor, CursorKind, SourceLocation

from edgebuild.base.dataclass import dataclass
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import Dialect, group_of

K = CursorKind
ASSIGNMENTS = (K.BINARY_OPERATOR, K.COMPOUND_ASSIGNMENT_OPERATOR)
VALUES = (K.COMPOUND_LITERAL_EXPR, K.INIT_LIST_EXPR)
LOOPS = (K.WHILE_STMT, K.DO_STMT, K.FOR_STMT, K.CXX_FOR_RANGE_STMT)
BLOCKS = (K.COMPOUND_STMT, K.IF_STMT, K.SWITCH_STMT, *LOOPS, K.CASE_STMT, K.DEFAULT_STMT, K.LABEL_STMT)
ENDED = (K.DO_STMT, K.RETURN_STMT, K.BREAK_STMT, K.CONTINUE_STMT, K.GOTO_STMT)  # by a semicolon of their own
COMMENT = rb"\s|/\*.*?\*/|//[^\n]*\n"
SEMICOLON = re.compile(rb"(?:%s)*;" % COMMENT, re.S)
DEFINED = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.M)
NAME = re.compile(r"\b[A-Za-z_]\w*")


@dataclass(frozen=True)
class Printed:
    """A piece of the text, and what it is without macros. `hidden`: macros that have the name of something in it."""

    start: int
    end: int
    text: str
    hidden: tuple[str, ...]


def functions_to_print(unit: clang.Unit, dialect: Dialect) -> list[Cursor]:
    """The functions with an access of which a part comes out of a macro and has no text of its own."""
    return [f for f in unit.functions if _hides(f, unit.text, dialect)]


def whole(f: Cursor, text: bytes) -> Printed:
    """A function without macros. Its head stays as it is: C takes attributes in front of the name only."""
    start, end = clang.span(f)
    printed, body = clang.pretty(f), _body(f)
    if body is None or f.kind == K.CONSTRUCTOR or in_macro(body.extent.start):
        return _printed(start, end, printed, text)
    return _printed(clang.span(body)[0], end, printed[printed.index("{") :], text)


def statements(f: Cursor, g: Cursor, unit: clang.Unit, printed: clang.Unit, dialect: Dialect) -> list[Printed]:
    """The pieces of the function `f` that are printed as in `g`, the same function without macros."""
    mine, other = _body(f), _body(g)
    if mine is None or other is None or in_macro(mine.extent.start):
        return [whole(f, unit.text)]
    return [_piece(x, y, unit, printed) for x, y in _smallest(mine, other, unit.text, dialect)]


def _piece(x: Cursor, y: Cursor, unit: clang.Unit, printed: clang.Unit) -> Printed:
    (start, end), (first, last) = clang.span(x), clang.span(y)
    inside = " ".join(line.strip() for line in printed.text[first:last].decode().split("\n"))
    needs = (clang.is_expression(x) or x.kind in ENDED) and not SEMICOLON.match(unit.text, end)
    condition = unit.text[end:].lstrip()[:1] == b")"
    inside += ";" * (needs and not condition) + "\n" * unit.text.count(b"\n", start, end)
    return _printed(start, end, inside, unit.text)


def _printed(start: int, end: int, inside: str, text: bytes) -> Printed:
    names = {m[1].decode() for m in DEFINED.finditer(text)}
    inside = re.sub(r"(?m)(^|[{;:] *)asm\b", r"\1__asm__", inside)  # known in every mode of C
    return Printed(start, end, inside, tuple(sorted(names.intersection(NAME.findall(inside)))))


def _body(f: Cursor) -> Cursor | None:
    return next((c for c in clang.children(f) if c.kind == K.COMPOUND_STMT), None)


def _smallest(x: Cursor, y: Cursor, text: bytes, dialect: Dialect) -> Iterator[tuple[Cursor, Cursor]]:
    """Pairs of statements, or of conditions, that can be replaced alone; `x` has what has to be."""
    mine, others = clang.children(x), clang.children(y)
    hiding = [i for i, c in enumerate(mine) if _hides(c, text, dialect)]
    same = [c.kind for c in mine] == [c.kind for c in others]
    if x.kind not in BLOCKS or not same or not hiding or not all(_alone(x, mine, i, text) for i in hiding):
        yield x, y
        return
    for i in hiding:
        yield from _smallest(mine[i], others[i], text, dialect)


def _alone(x: Cursor, parts: list[Cursor], i: int, text: bytes) -> bool:
    """Whether the text of a part of a statement is all of it and nothing else."""
    (start, end), (first, last) = clang.span(parts[i]), clang.span(x)
    if in_macro(x.extent.start) and in_macro(parts[i].extent.start):
        return False
    before = clang.span(parts[i - 1])[1] if i else first
    after = clang.span(parts[i + 1])[0] if i + 1 < len(parts) else last
    if not before <= start < end <= after:
        return False
    if x.kind == K.COMPOUND_STMT:
        return first < start and end < last
    if x.kind == K.IF_STMT and i == len(parts) - 1 and i > 1:
        return b"else" in text[before:start]
    bodies = {K.DO_STMT: 0, K.IF_STMT: 1}
    if i == bodies.get(x.kind, len(parts) - 1):
        return first < start
    return text[first:start].rstrip()[-1:] in (b"(", b";") and text[end:last].lstrip()[:1] in (b")", b";")


def _hides(f: Cursor, text: bytes, dialect: Dialect) -> bool:
    return any(_hidden(c, text, dialect) for c in clang.preorder(f))


def _hidden(c: Cursor, text: bytes, dialect: Dialect) -> bool:
    if c.kind == K.MEMBER_REF_EXPR:
        return bool(_of_group(c, dialect) or group_of(c.type, dialect)[0]) and _hidden_member(c, text)
    if c.kind == K.ARRAY_SUBSCRIPT_EXPR:
        return bool(group_of(c.type, dialect)[0]) and _hidden_element(c, text)
    if c.kind in VALUES:
        return bool(group_of(c.type, dialect)[0]) and any(map(_begins_in_macro, (c, *clang.children(c))))
    if c.kind in (*ASSIGNMENTS, K.UNARY_OPERATOR) and _begins_in_macro(c):
        return not _plain_operator(c, text) and any(_of_group(x, dialect) for x in clang.preorder(c))
    return False


def _of_group(c: Cursor, dialect: Dialect) -> bool:
    """Whether the cursor is a member of a group: a field, or a group in it."""
    decl = c.referenced if c.kind == K.MEMBER_REF_EXPR else None
    parent = decl.semantic_parent if decl is not None else None
    return parent is not None and parent.spelling in dialect.groups


def _hidden_member(c: Cursor, text: bytes) -> bool:
    if in_macro(c.location):
        return True
    base = clang.children(c)[:1]
    if not base or not _begins_in_macro(c):
        return False
    return text[clang.span(base[0])[1] : clang.offset(c.location)].strip() not in (b".", b"->")


def _hidden_element(c: Cursor, text: bytes) -> bool:
    base, index = clang.children(c)
    if not _begins_in_macro(base) and not _begins_in_macro(index):
        return False
    (_, left), (start, end) = clang.span(base), clang.span(index)
    return (text[left:start].strip(), text[end : clang.span(c)[1]].strip()) != (b"[", b"]")


def _plain_operator(c: Cursor, text: bytes) -> bool:
    """Whether the text shows the operator beside its operands."""
    start, end = clang.span(c)
    operands = clang.children(c)
    if c.kind != K.UNARY_OPERATOR:
        between = text[clang.span(operands[0])[1] : clang.span(operands[1])[0]]
        return between.strip() == clang.binary(c).encode()
    first, last = clang.span(operands[0])
    around = text[start:first].strip() + text[last:end].strip()
    return around == clang.unary(c).removeprefix("post").encode()


def _begins_in_macro(c: Cursor) -> bool:
    return in_macro(c.extent.start)


def in_macro(location: SourceLocation) -> bool:
    """Whether a macro's expansion has the place: clang marks such places in the highest of the 32 bits."""
    return bool(location.int_data >> 31)
