"""Member chains: `gpio->pads[i + 1].out` as a root, steps, and what it ends at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from clang.cindex import Cursor, CursorKind, TypeKind

from edgebuild.base.errors import EdgebuildError
from edgebuild.driver.analysis.cdfg import Chain, Prefix, Step
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import Child, Dialect, Field, group_of

K = CursorKind
CHAINS = frozenset((K.MEMBER_REF_EXPR, K.ARRAY_SUBSCRIPT_EXPR, K.UNARY_OPERATOR))
BUSY = frozenset(
    (
        K.CALL_EXPR,
        K.COMPOUND_ASSIGNMENT_OPERATOR,
        K.StmtExpr,
        K.LAMBDA_EXPR,
        K.CXX_NEW_EXPR,
        K.CXX_DELETE_EXPR,
    )
)


class Chains:
    """Reads chains of one unit."""

    def __init__(self, unit: clang.Unit, dialect: Dialect) -> None:
        self.unit, self.dialect = unit, dialect
        self.locals: set[str] = set()  # variables that hold the value of a register

    def read(self, cursor: Cursor) -> Chain | None:
        """The chain that this expression is; None if it is no part of a group."""
        cursor = clang.bare(cursor)
        reader, chain = getattr(cursor, "_chain", (None, None))
        if reader is not self:
            cursor._chain = self, (chain := self._read(cursor))
        return chain

    def does(self, right: Cursor) -> str:
        """Whether the right side "changes" something, only "reads" fields, or may be evaluated at any time ("")."""
        found = ""
        for x in clang.preorder(right):
            kind = x.kind
            if (
                kind in BUSY
                or (kind == K.BINARY_OPERATOR and clang.binary(x) == "=")
                or (kind == K.UNARY_OPERATOR and clang.unary(x).endswith(("++", "--")))
            ):
                return "changes"
            if kind in CHAINS and not found and self.read(x):
                found = "reads"
        return found

    def _read(self, cursor: Cursor) -> Chain | None:
        kind = cursor.kind
        if kind == CursorKind.MEMBER_REF_EXPR:
            return self._member(cursor)
        if kind == CursorKind.ARRAY_SUBSCRIPT_EXPR:
            base, index = clang.children(cursor)
            inner = self.read(base)
            if inner and inner.missing:
                return self._indexed(inner, cursor, index)
            name, pointer = group_of(cursor.type, self.dialect)
            return self._root(cursor, name, False) if name and not pointer else None
        if kind == CursorKind.UNARY_OPERATOR and clang.unary(cursor) == "*":
            name, pointer = group_of(cursor.type, self.dialect)
            if name and not pointer:
                (operand,) = clang.children(cursor)
                return self._through(operand) or self._root(cursor, name, False)
        return None

    def _through(self, pointer: Cursor) -> Chain | None:
        """The chain behind a pointer expression that itself is made of a chain: `&a->b` and the array `a->b`."""
        inner = clang.bare(pointer)
        if inner.kind == CursorKind.UNARY_OPERATOR and clang.unary(inner) == "&":
            return self.read(clang.children(inner)[0])
        chain = self.read(inner)
        if chain and isinstance(chain.end, Child) and chain.missing == 1:
            return self._indexed(chain, inner, None)
        return None

    def _member(self, cursor: Cursor) -> Chain | None:
        children = clang.children(cursor)
        decl = cursor.referenced
        if not children or decl is None:
            return None
        owner, own = self.unit.member(decl)
        group = self.dialect.groups.get(owner)
        if group is None:
            return None
        base = children[0]
        name, pointer = group_of(base.type, self.dialect)
        inner = self._through(base) if pointer or base.type.kind == TypeKind.CONSTANTARRAY else self.read(base)
        if inner is None:
            root = clang.bare(base)
            local = root.kind == CursorKind.DECL_REF_EXPR and variable_name(root.referenced) in self.locals
            if local:
                inner = replace(self._root(base, group.name, False), local=variable_name(root.referenced))
            elif not pointer and not (root.kind in PLACES or _is_deref(root) or _is_reference(root)):
                raise clang.error_at(cursor, self.unit.text, f"a '{name}' that is no part of a device: use a pointer")
            inner = inner or self._root(base, group.name, pointer)
        if isinstance(inner.end, Child) and inner.end.dims and inner.steps[-1].constant == inner.end.dims[-1]:
            size = inner.end.dims[-1]
            raise self._outside(inner.steps[-1].index or cursor, size, inner.end.name, size)
        return self._extended(inner, group.member(own), base, pointer)

    def _extended(self, inner: Chain, member: Field | Child, base: Cursor, pointer: bool) -> Chain:
        prefixes, depths = inner.prefixes, inner.depths
        if isinstance(inner.end, Child) and depths[-1] != len(inner.steps):  # a single child: its group starts here
            prefixes += (Prefix(base, pointer, inner.group),)
            depths += (len(inner.steps),)
        steps = (*inner.steps, Step(member=member.name))
        return Chain(inner.root, inner.device, prefixes, depths, steps, member, len(member.dims), inner.local)

    def elements(self, inner: Chain, at: Cursor) -> Iterator[Chain]:
        """The chains of all fields of the group that a chain ends at, with every element of arrays."""
        for member in self.dialect.groups[inner.group].members:
            if isinstance(member, Child):
                text = f"'{inner.group}' holds other groups: name one that is a register"
                raise clang.error_at(at, self.unit.text, text)
            chain = self._extended(inner, member, at, False)
            for index in product(*(range(n) for n in member.dims)):
                steps = (*chain.steps, *(Step(constant=i) for i in index))
                yield replace(chain, steps=steps, missing=0)

    def _indexed(self, inner: Chain, cursor: Cursor, index: Cursor | None) -> Chain:
        value = 0 if index is None else clang.constant(index)
        assert inner.end is not None
        size = inner.end.dims[len(inner.end.dims) - inner.missing]
        beyond = isinstance(inner.end, Child) and inner.missing == 1  # `&a->b[size]` is a pointer, if to nothing
        if value is not None and not 0 <= value < size + beyond:
            raise self._outside(index or cursor, value, inner.end.name, size)
        prefixes, depths = inner.prefixes, inner.depths
        steps = (*inner.steps, Step(index=index, constant=value))
        if inner.missing == 1 and isinstance(inner.end, Child):
            prefixes += (Prefix(cursor, index is None, inner.end.group),)
            depths += (len(steps),)
        missing = inner.missing - 1
        return Chain(inner.root, inner.device, prefixes, depths, steps, inner.end, missing, inner.local)

    def _outside(self, index: Cursor, value: int, name: str, size: int) -> EdgebuildError:
        return clang.error_at(index, self.unit.text, f"index {value} of '{name}' is not in 0..{size - 1}")

    def _root(self, cursor: Cursor, group: str, pointer: bool) -> Chain:
        bare = clang.bare(cursor)
        device = ""
        if bare.kind == CursorKind.DECL_REF_EXPR and bare.spelling in self.dialect.devices:
            referenced = bare.referenced
            if referenced.semantic_parent.kind in OUTSIDE:  # not a local of the same name
                device = bare.spelling
        return Chain(cursor, device, (Prefix(cursor, pointer, group),), (0,), (), None, 0)


def cleanup(variable: Cursor) -> str | None:
    """The function that `__attribute__((cleanup(f)))` calls at the end of a variable's scope."""
    if all(x.kind != CursorKind.UNEXPOSED_ATTR for x in clang.children(variable)):
        return None
    found = re.search(r"\bcleanup\((\w+)\)", clang.pretty(variable))
    return found[1] if found else None


def variable_name(d: Cursor) -> str:
    """A name for a variable, which no other of the unit has."""
    try:
        return d._variable
    except AttributeError:
        d._variable = f"{d.spelling}@{clang.offset(d.location)}"
        return d._variable


PLACES = (CursorKind.ARRAY_SUBSCRIPT_EXPR,)
OUTSIDE = (CursorKind.TRANSLATION_UNIT, CursorKind.NAMESPACE, CursorKind.LINKAGE_SPEC)


def _is_reference(cursor: Cursor) -> bool:
    """Whether the expression is a reference of C++, or calls something that returns one."""
    to = cursor.referenced
    if to is None or cursor.kind not in (CursorKind.DECL_REF_EXPR, CursorKind.MEMBER_REF_EXPR, CursorKind.CALL_EXPR):
        return False
    type_ = to.result_type if cursor.kind == CursorKind.CALL_EXPR else to.type
    return bool(type_.get_canonical().kind == TypeKind.LVALUEREFERENCE)


def _is_deref(cursor: Cursor) -> bool:
    return cursor.kind == CursorKind.UNARY_OPERATOR and clang.unary(cursor) == "*"


def is_elvis(operands: list[Cursor]) -> bool:
    """Whether these are the operands of `a ?: b`, which repeats its first one."""
    return len(operands) == 4 and len({clang.span(x) for x in operands[:3]}) == 1
