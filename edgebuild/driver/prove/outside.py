"""Declarations outside of functions on both sides: variables, what they begin with, and which functions there are.

A function is proved for any values of those variables, so what they begin with is compared apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clang.cindex import Cursor, CursorKind, TypeKind

from edgebuild.driver.layout.registers import Layout
from edgebuild.driver.prove.volatiles import HAL
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import Dialect
from edgebuild.driver.source.texts import first_value, type_text
from edgebuild.driver.source.texts import macros as macros_of

K = CursorKind
Variables = Mapping[str, tuple[str, str]]  # by name: the type, and the text of the first value


def unlike(source: clang.Unit, other: clang.Unit, dialect: Dialect, layout: Layout) -> Iterator[tuple[str, str]]:
    """(name, what is wrong) of each variable and function that one side has in another way, or alone."""
    mine, theirs = (_variables(unit, dialect, layout) for unit in (source, other))
    for name in sorted(mine.keys() | theirs.keys()):
        if name not in theirs:
            yield name, "the generated code has no such variable"
        elif name not in mine:
            yield name, "the source has no such variable"
        elif mine[name][0] != theirs[name][0]:
            yield name, f"its type is {mine[name][0]}, in the generated code {theirs[name][0]}"
        elif mine[name] != theirs[name]:
            yield name, "it begins with another value in the generated code"
    macros = macros_of(source.text)
    for name, text in macros_of(other.text).items():
        if text not in macros.get(name, text):
            yield name, "the generated code defines it in another way"
    names = {source.function_name(f) for f in source.functions}
    known = {f.spelling for f in source.top if f.kind == K.FUNCTION_DECL} | names
    for f in other.functions:
        name = other.function_name(f)
        if name not in known and not (f.spelling.startswith(HAL) or other.cpp):
            yield name, "the source has no such function"


def _variables(unit: clang.Unit, dialect: Dialect, layout: Layout) -> Variables:
    """Variables outside of functions, and those that functions keep."""
    own = [d for d in unit.top if d.kind == K.VAR_DECL and unit.own(d)]
    kept = [d for f in unit.functions for d in clang.preorder(f) if d.kind == K.VAR_DECL]
    kept = [d for d in kept if d.storage_class.name == "STATIC"]
    found: dict[str, tuple[str, str]] = {}
    for d in (*own, *kept):
        if d.spelling in dialect.devices:
            continue
        parent = d.semantic_parent
        name = f"{parent.spelling}: {d.spelling}" if parent.kind in clang.FUNCTIONS else clang.qualified(d)
        type_ = type_text(d)
        found[name] = type_, found.get(name, ("", ""))[1] or _first(d, dialect, layout)
    return found


def _first(d: Cursor, dialect: Dialect, layout: Layout) -> str:
    """The text of a variable's first value without macros; an offset of a field as the layout has it."""
    parts = [x for x in clang.children(d) if clang.is_expression(x) and clang.span(x)[0] > clang.offset(d.location)]
    if not parts or (d.type.get_canonical().kind.name == "CONSTANTARRAY" and _is_length(parts)):
        return ""
    offsets: list[int | None] = []
    for x in (x for x in clang.preorder(parts[-1]) if clang.is_offset(x)):
        member = next(m.referenced for m in clang.children(x) if m.kind == K.MEMBER_REF)
        group, name = member.semantic_parent.spelling, member.spelling
        offsets.append(layout.groups[group].offset_of((group, name)) if group in dialect.groups else clang.constant(x))
    return first_value(d, offsets)


def _is_length(parts: list[Cursor]) -> bool:
    """Whether all that stands behind an array's name is its length."""
    kind = parts[-1].type.get_canonical().kind
    return len(parts) == 1 and parts[0].kind != K.INIT_LIST_EXPR and kind != TypeKind.CONSTANTARRAY
