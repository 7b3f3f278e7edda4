"""Uses of groups that libclang's tree does not show: in templates and generic lambdas, once their types are known.

The text is parsed once more, with members that cannot be used and groups that cannot be copied. clang then tells every
use. What the tree shows, too, is read by the analysis; each other one would be left out of the generated code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from clang import cindex
from clang.cindex import Cursor, CursorKind

from edgebuild.base.errors import Diagnostic, EdgebuildError
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import Dialect, group_of

K = CursorKind
UNAVAILABLE = re.compile(r"'(\w+)' is unavailable: bfGroup (\w+)")
DELETED = re.compile(r"deleted (?:constructor|operator|copy|move)")


def no_hidden_uses(unit: clang.Unit, dialect: Dialect, parse: Callable[[bytes], clang.Unit]) -> None:
    """Raise EdgebuildError where C++ uses a group in a way that the tree does not show. `parse` takes wrong texts."""
    marks = _marks(unit, dialect)
    known = _shown(unit, dialect)
    found: dict[int, Diagnostic] = {}
    marked = parse(_marked(unit.text, marks))  # has to live as long as its errors
    for error in marked.errors:
        here = clang.place(error.location)
        own = error.location.file is not None and error.location.file.name == unit.tu.spelling
        if own:
            here = replace(here, offset=_unmarked(here.offset, marks))
            if here.offset in known:
                continue
        hints = clang.caret(here, unit.text) if own else ()
        found.setdefault(here.offset, Diagnostic(_message(error), here.file, here.line, here.column, hints=hints))
    if found:
        remedy = "  name the group's type, as in `void f(bfGroup G *p)`, once for each group"
        first, *others = found.values()
        raise EdgebuildError(replace(first, hints=(*first.hints, remedy)), *others)


def _message(error: cindex.Diagnostic) -> str:
    where = ", as where a parameter of a template or of a generic lambda is one, or in front of a switch's value"
    member = UNAVAILABLE.match(error.spelling)
    if member:
        return f"a field of a group, '{member[2]}::{member[1]}', is used where the generator cannot follow{where}"
    if DELETED.search(error.spelling):
        return f"a group is copied where the generator cannot follow{where}"
    return f"{error.spelling}: groups have no members in templates and in generic lambdas"


def _marks(unit: clang.Unit, dialect: Dialect) -> dict[int, str]:
    """Pieces that are put into the text, by where."""
    marks: dict[int, str] = {}
    for c in unit.top:
        if c.kind != K.STRUCT_DECL or not c.is_definition() or c.spelling not in dialect.groups:
            continue
        name = c.spelling
        text = f" {name}() = default; {name}(const {name} &) = delete; {name} &operator=(const {name} &) = delete; "
        marks[unit.text.index(b"{", clang.span(c)[0]) + 1] = text
        for m in clang.children(c):
            if m.kind == K.FIELD_DECL:
                marks[clang.span(m)[0]] = f'__attribute__((unavailable("bfGroup {name}"))) '
    return marks


def _marked(text: bytes, marks: dict[int, str]) -> bytes:
    pieces, at = list[bytes](), 0
    for place in sorted(marks):
        pieces += [text[at:place], marks[place].encode()]
        at = place
    return b"".join([*pieces, text[at:]])


def _unmarked(offset: int, marks: dict[int, str]) -> int:
    """The place in the text that a place of the marked text stands for."""
    added = 0
    for place in sorted(marks):
        if place + added < offset:
            added += len(marks[place])
    return offset - added


def _shown(unit: clang.Unit, dialect: Dialect) -> set[int]:
    """Places where the tree shows that a member is named, or a group copied in a function that is read."""
    shown: set[int] = set()
    for top in clang.children(unit.tu.cursor):
        if unit.own(top):
            shown |= {clang.offset(c.location) for c in clang.preorder(top) if _names_member(c, unit, dialect)}
    for f in unit.functions:
        shown |= {clang.offset(c.location) for c in clang.preorder(f) if _copies(c, dialect)}
    return shown


def _names_member(c: Cursor, unit: clang.Unit, dialect: Dialect) -> bool:
    known = c.kind in (K.MEMBER_REF_EXPR, K.MEMBER_REF) and c.referenced is not None
    return known and unit.member(c.referenced)[0] in dialect.groups


def _copies(c: Cursor, dialect: Dialect) -> bool:
    if c.kind == K.DECL_REF_EXPR and c.spelling == "operator=":
        return True
    name, pointer = group_of(c.type, dialect) if c.kind in (K.VAR_DECL, K.CALL_EXPR) else ("", False)
    return bool(name) and not pointer


def no_unread_uses(unit: clang.Unit, dialect: Dialect) -> None:
    """Raise EdgebuildError where a field stands outside of all functions that are read, as in a template."""
    read = [clang.span(f) for f in unit.functions]
    for top in clang.children(unit.tu.cursor):
        for c in clang.preorder(top) if unit.own(top) else ():
            at = clang.span(c)[0]
            own = c.kind == K.MEMBER_REF_EXPR and _names_member(c, unit, dialect)
            if own and not any(start <= at < end for start, end in read):
                text = "a field is used where the generator cannot follow, as in a template or an initialiser"
                raise clang.error_at(c, unit.text, text, "  move it into a function or a method of its own")
