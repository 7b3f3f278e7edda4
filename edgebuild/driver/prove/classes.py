"""Objects of classes: constructors, what their members begin with, and destructors at the end of their scopes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import z3
from clang.cindex import Cursor, CursorKind, Type, TypeKind, conf

from edgebuild.driver.analysis.keys import REFERENCES
from edgebuild.driver.prove.effort import Unknown
from edgebuild.driver.prove.hardware import ADDRESS, Pointer
from edgebuild.driver.prove.lambdas import Lambdas
from edgebuild.driver.prove.values import Break, Continue, Goto, Return
from edgebuild.driver.source import clang

K = CursorKind
SCOPES = (K.COMPOUND_STMT, K.FOR_STMT, K.IF_STMT, K.SWITCH_STMT)
VALUES = (K.INTEGER_LITERAL, K.CHARACTER_LITERAL, K.BINARY_OPERATOR, K.CXX_BOOL_LITERAL_EXPR)


class Interpreter(Lambdas):
    """C and C++, with the objects that functions make."""

    alive: list[list[tuple[Pointer, Cursor]]]  # of each scope that is open: objects, and their destructors
    temporaries: list[tuple[Pointer, Cursor]]  # of the full expression

    @contextmanager
    def scope_of_objects(self) -> Iterator[None]:
        """Destroy what is made inside at the end, however control leaves."""
        self.alive.append([])
        try:
            yield
        except (Return, Break, Continue, Goto):
            self._destroy(self.alive[-1])
            self.alive.pop()
            raise
        self._destroy(self.alive[-1])
        self.alive.pop()

    @contextmanager
    def full_expression(self) -> Iterator[None]:
        outer, self.temporaries = self.temporaries, []
        yield
        self._destroy(self.temporaries)
        self.temporaries = outer

    def _destroy(self, objects: list[tuple[Pointer, Cursor]]) -> None:
        while objects:
            at, destructor = objects.pop()
            self._method(destructor, at, [])

    def run(self, name: str, taken: list[bool]) -> Any:
        self.alive, self.temporaries, self.firsts = [], [], []
        return super().run(name, taken)

    def body(self, function: Cursor) -> None:
        if function.kind == K.CONSTRUCTOR and self.firsts:
            self.begin_members()
        super().body(function)

    def statement(self, c: Cursor) -> None:
        if self.unit.cpp and c.kind in SCOPES:
            with self.scope_of_objects():
                super().statement(c)
        else:
            super().statement(c)

    def entered(self, c: Cursor, label: Cursor) -> None:
        if self.unit.cpp and c.kind in SCOPES:
            with self.scope_of_objects():
                super().entered(c, label)
        else:
            super().entered(c, label)

    def begin(self, d: Cursor, parts: list[Cursor]) -> None:
        """An object lives to the end of its scope."""
        super().begin(d, parts)
        destructor = self._destructor(d.type) if self.in_memory(d) else None
        if destructor is not None:
            self.alive[-1].append((self.variable(d), destructor))

    def _destructor(self, type_: Type) -> Cursor | None:
        canonical = type_.get_canonical()
        if canonical.kind == TypeKind.CONSTANTARRAY and self._destructor(canonical.element_type):
            raise Unknown("an array of objects with destructors")
        if canonical.kind == TypeKind.UNEXPOSED:
            raise Unknown("an object of a template's parameter")
        if canonical.kind != TypeKind.RECORD:
            return None
        members = clang.members(canonical.get_declaration())
        own = next((m for m in members if m.kind == K.DESTRUCTOR and not m.is_default_method()), None)
        inner = [
            *(m.type for m in members if m.kind == K.CXX_BASE_SPECIFIER),
            *(f.type for f in canonical.get_fields()),
        ]
        if any(self._destructor(t) is not None for t in inner):
            raise Unknown("an object of a class whose members have destructors")
        return own

    def _method(self, function: Cursor, at: Pointer, values: list[Any]) -> Any:
        """Call a method of an object, known or not."""
        name = self.unit.function_name(function)
        if name not in self.functions:
            self.called(name, (at.value,))
            return None
        outer, self.this = self.this, at
        result = self.call(self.functions[name], values)
        self.this = outer
        return result

    # ---- constructors

    def initialise(self, at: Pointer, type_: Type, value: Cursor) -> None:
        inner = _construction(value) if self.unit.cpp else None
        if inner is None:
            super().initialise(at, type_, value)
            return
        self.construct(at, inner)

    def construct(self, at: Pointer, call: Cursor) -> None:
        """Run the constructor that an expression calls."""
        to = call.referenced
        arguments = [x for x in clang.children(call) if clang.is_expression(x)]
        if to.is_copy_constructor() or to.is_move_constructor():
            if not to.is_default_method():
                raise Unknown("a copy of an object")
            self.copy(at, self.object(arguments[0]), call.type)
            return
        parameters = list(to.get_arguments())
        values = []
        for p, a in zip(parameters, arguments, strict=True):
            given = a if clang.span(a)[1] > clang.span(a)[0] else _default(p)
            refers = p.type.get_canonical().kind in REFERENCES
            values.append(self.bound(given) if refers else self.value(given))
        self._begin(at, to, values)

    def _begin(self, at: Pointer, to: Cursor, values: list[Any]) -> None:
        class_ = to.semantic_parent
        members = clang.children(class_)
        written = any(m == to for m in members) and not to.is_default_method()
        body = None
        if written:
            body = self.functions.get(self.unit.function_name(to))
            if body is None:
                self.called(self.unit.function_name(to), (at.value,))
                return
        self.firsts.append((at, body, class_))
        outer, self.this = self.this, at
        if body is not None and any(c.kind == K.COMPOUND_STMT for c in clang.children(body)):
            self.call(body, values)
        else:
            self.begin_members()
        self.this = outer

    firsts: list[tuple[Pointer, Cursor | None, Cursor]]  # objects, their constructors and classes

    def _begin_base(self, at: Pointer, constructor: Cursor | None, class_: Cursor) -> None:
        """Construct the base of an object, which lies at its start where nothing is virtual."""
        bases = [m for m in clang.children(class_) if m.kind == K.CXX_BASE_SPECIFIER]
        if not bases:
            return
        base = bases[0].type.get_canonical().get_declaration()
        if len(bases) > 1 or conf.lib.clang_isVirtualBase(bases[0]):
            raise Unknown("an object of a class with several bases, or a virtual one")
        if _has_table(class_) and not _has_table(base):
            raise Unknown("an object whose base lies behind the table of its methods")
        parts = clang.children(constructor) if constructor is not None else []
        call = next(
            (value for name, value in pairwise(parts) if name.kind == K.TYPE_REF and name.referenced == base), None
        )
        inside = _construction(call) if call is not None else None
        if inside is not None:
            self.construct(at, inside)
            return
        written = [m for m in clang.children(base) if m.kind == K.CONSTRUCTOR]
        if call is not None or any(not m.is_default_method() for m in written):
            raise Unknown("a base that is constructed without a word")
        self.firsts.append((at, None, base))
        self.begin_members()

    def begin_members(self) -> None:
        """Give the members of the object under construction their first values."""
        at, constructor, class_ = self.firsts.pop()
        self._begin_base(at, constructor, class_)
        given = _initialisers(constructor)
        for f in (m for m in clang.children(class_) if m.kind == K.FIELD_DECL):
            place = at.moved(f.get_field_offsetof() // 8)
            default = [x for x in clang.children(f) if clang.is_expression(x)]
            if f.type.get_canonical().kind == TypeKind.CONSTANTARRAY:
                default = [x for x in default if x.kind == K.INIT_LIST_EXPR]
            value = given.get(f.spelling) or next(iter(default[-1:]), None)
            if f.type.get_canonical().kind in REFERENCES:
                if value is None:
                    raise Unknown("a reference without a value")
                self.memory[ADDRESS] = z3.Store(self.words(ADDRESS), place.value, self.bound(value).value)
            elif value is not None:
                self.initialise(place, f.type, value)
            elif f.type.get_canonical().kind == TypeKind.RECORD and not f.type.get_canonical().is_pod():
                raise Unknown("an object in an object")

    # ---- objects without a name

    def e_call_expr(self, c: Cursor) -> Any:
        if self.unit.cpp and c.referenced is not None and c.referenced.kind == K.CONSTRUCTOR:
            self.object(c)
            return None
        return super().e_call_expr(c)

    def bound(self, c: Cursor) -> Pointer:
        """The address that a reference is bound to; a value becomes an object."""
        if self.unit.cpp and clang.bare(c).kind in VALUES:
            self.made += 1
            at = Pointer(z3.BitVec(f"&value {self.made}", ADDRESS))
            self.put(at, c.type, self.value(c))
            return at
        return super().bound(c)

    def object(self, c: Cursor) -> Pointer:
        made = _construction(c) if self.unit.cpp else None
        listed = c.kind == K.CXX_FUNCTIONAL_CAST_EXPR and clang.children(c)[-1].kind == K.INIT_LIST_EXPR
        if made is None and not listed:
            return super().object(c)
        self.made += 1
        at = Pointer(z3.BitVec(f"&temporary {self.made}", ADDRESS))
        if made is None:
            self.initialise(at, c.type, clang.children(c)[-1])
        else:
            self.construct(at, made)
        destructor = self._destructor(c.type)
        if destructor is not None:
            self.temporaries.append((at, destructor))
        return at


def _construction(c: Cursor) -> Cursor | None:
    """The call of a constructor that an expression is, inside of conversions."""
    while c.kind in (K.UNEXPOSED_EXPR, K.PAREN_EXPR, K.CXX_FUNCTIONAL_CAST_EXPR):
        inside = [x for x in clang.children(c) if clang.is_expression(x)]
        if len(inside) != 1:
            return None
        c = inside[0]
    made = c.kind == K.CALL_EXPR and c.referenced is not None and c.referenced.kind == K.CONSTRUCTOR
    return c if made else None


def _has_table(class_: Cursor) -> bool:
    """Whether objects of a class begin with a pointer to the table of its virtual methods."""
    members = clang.members(class_)
    own = (m.is_virtual_method() for m in members if m.kind in (K.CXX_METHOD, K.DESTRUCTOR))
    bases = (m.type.get_canonical().get_declaration() for m in members if m.kind == K.CXX_BASE_SPECIFIER)
    return any(own) or any(_has_table(b) for b in bases)


def _default(p: Cursor) -> Cursor:
    found = [x for x in clang.children(p) if clang.is_expression(x)]
    if not found:
        raise Unknown("a default argument")
    return found[-1]


def _initialisers(constructor: Cursor | None) -> dict[str, Cursor]:
    """Members that stand in front of a constructor's body, and their first values."""
    found: dict[str, Cursor] = {}
    parts = clang.children(constructor) if constructor is not None else []
    for member, value in pairwise(parts):
        if member.kind == K.MEMBER_REF:
            found[member.spelling] = value
    return found
