"""Lower libclang's tree to the values of `ir`. Only this module distinguishes kinds of cursors in function bodies.

It refuses code that a driver must not have: computed goto, exceptions, and statements that libclang does not show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

from clang.cindex import Cursor, CursorKind, Type, TypeKind, conf

from . import clang, ir

K = CursorKind
ASSEMBLY = (K.ASM_STMT, K.MS_ASM_STMT)
WORD = r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|\w+|\S'  # a token of C
T = TypeVar("T")
KINDS = {
    TypeKind.POINTER: "pointer",
    TypeKind.CONSTANTARRAY: "array",
    TypeKind.INCOMPLETEARRAY: "open array",
    TypeKind.VARIABLEARRAY: "variable array",
    TypeKind.LVALUEREFERENCE: "reference",
    TypeKind.RVALUEREFERENCE: "rvalue reference",
    TypeKind.RECORD: "record",
    TypeKind.VOID: "void",
    TypeKind.BOOL: "bool",
    TypeKind.FLOAT: "real",
    TypeKind.DOUBLE: "real",
    TypeKind.ATOMIC: "atomic",
    TypeKind.UNEXPOSED: "dependent",
}
SIGNED = (TypeKind.INT, TypeKind.LONG, TypeKind.LONGLONG, TypeKind.SHORT, TypeKind.SCHAR, TypeKind.CHAR_S)
FORMS = {
    K.FUNCTION_DECL: "function",
    K.CXX_METHOD: "method",
    K.CONSTRUCTOR: "constructor",
    K.DESTRUCTOR: "destructor",
    K.CONVERSION_FUNCTION: "conversion",
    K.LAMBDA_EXPR: "lambda",
}
CASTS = {
    K.CSTYLE_CAST_EXPR: "c",
    K.CXX_STATIC_CAST_EXPR: "static",
    K.CXX_REINTERPRET_CAST_EXPR: "static",
    K.CXX_CONST_CAST_EXPR: "constant",
    K.CXX_FUNCTIONAL_CAST_EXPR: "value",
}
NUMBERS = (K.INTEGER_LITERAL, K.CHARACTER_LITERAL, K.CXX_BOOL_LITERAL_EXPR)
REFUSED = {
    K.INDIRECT_GOTO_STMT: "computed goto is not supported in a driver",
    K.CXX_TRY_STMT: "exceptions are not supported in a driver",
    K.CXX_THROW_EXPR: "exceptions are not supported in a driver",
    K.ADDR_LABEL_EXPR: "the address of a label is not supported in a driver",
}


class Program:
    """One lowered unit. Types and declarations are cached, so that each is one value; bodies are lowered on demand."""

    def __init__(self, unit: clang.Unit) -> None:
        self.unit = unit
        self._kept: dict[tuple[str, int], Any] = {}
        self._around: Cursor | None = None  # the function whose body is being lowered

    def _once(self, kind: str, key: int, make: Callable[[], T]) -> T:
        if (kind, key) not in self._kept:
            self._kept[kind, key] = make()
        return self._kept[kind, key]

    # ---- types and declarations; their addresses in libclang's `data` are the cache's keys

    def type(self, origin: Type) -> ir.CType:
        return self._once("type", origin.data[0], lambda: self._type(origin))

    def _type(self, t: Type) -> ir.CType:
        c = t.get_canonical()
        number = c.get_declaration().enum_type.get_canonical() if c.kind == TypeKind.ENUM else c
        kind = KINDS.get(c.kind, "number")
        volatile, const = (bool(q(t) or q(c)) for q in (Type.is_volatile_qualified, Type.is_const_qualified))
        return ir.CType(
            self,
            t,
            kind,
            KINDS.get(t.kind, "number"),
            str(t.spelling),
            str(c.spelling),
            int(c.get_size()),
            int(c.element_count) if kind == "array" else 0,
            number.kind in SIGNED,
            volatile,
            const,
            bool(c.is_pod()),
            volatile or kind == "atomic",
            clang.record(t),
        )

    def record(self, type_: Type) -> ir.Record | None:
        if type_.get_canonical().kind != TypeKind.RECORD:
            return None
        return self._record_of(type_.get_canonical().get_declaration())

    def _record_of(self, c: Cursor) -> ir.Record:
        return self._once("record", c.data[0], lambda: self._record(c))

    def _record(self, c: Cursor) -> ir.Record:
        parts, own = clang.members(c), clang.children(c)
        specifiers = [m for m in parts if m.kind == K.CXX_BASE_SPECIFIER]
        bases = tuple(self.type(m.type) for m in specifiers)
        destructor = next((m for m in parts if m.kind == K.DESTRUCTOR and not m.is_default_method()), None)
        virtual = any(m.is_virtual_method() for m in parts if m.kind in (K.CXX_METHOD, K.DESTRUCTOR))
        return ir.Record(
            self,
            str(c.spelling),
            tuple(self.member(m) for m in own if m.kind == K.FIELD_DECL),
            bases,
            self.function(destructor) if destructor is not None else None,
            any(conf.lib.clang_isVirtualBase(m) for m in specifiers),
            any(m.kind == K.CONSTRUCTOR and not m.is_default_method() for m in own),
            virtual or any(b.record.has_table for b in bases if b.record),
        )

    def fields(self, type_: Type) -> tuple[ir.Member, ...]:
        return tuple(map(self.member, type_.get_fields()))

    def member(self, c: Cursor) -> ir.Member:
        def make() -> ir.Member:
            bits = int(c.get_bitfield_width()) if c.is_bitfield() else None
            union = c.semantic_parent.kind == K.UNION_DECL
            offset, at = clang.offset(c.location), int(c.get_field_offsetof())
            around = self.member(outer) if (outer := clang.nameless(c.semantic_parent)) is not None else None
            name = "" if clang.nameless(c.type.get_declaration()) is not None else str(c.spelling)
            return ir.Member(self, c, name, offset, union, bits, at, around)

        return self._once("member", c.data[0], make)

    def variable(self, c: Cursor) -> ir.Variable:
        return self._once("variable", c.data[0], lambda: self._variable(c))

    def _variable(self, c: Cursor) -> ir.Variable:
        parent, cleanup = c.semantic_parent, None
        if any(x.kind == K.UNEXPOSED_ATTR for x in clang.children(c)):
            cleanup = re.search(r"\bcleanup\((\w+)\)", clang.pretty(c))
        function = clang.qualified(parent) if parent is not None and parent.kind in clang.FUNCTIONS else ""
        return ir.Variable(
            self,
            c,
            str(c.spelling),
            clang.offset(c.location),
            c.kind == K.PARM_DECL,
            parent is not None and parent.kind in clang.OUTSIDE,
            str(c.storage_class.name),
            function,
            clang.qualified(c),
            cleanup[1] if cleanup else None,
        )

    def function(self, c: Cursor) -> ir.Function:
        return self._once("function", c.data[c.kind == K.LAMBDA_EXPR], lambda: self._function(c))

    def _function(self, c: Cursor) -> ir.Function:
        form, default = FORMS[c.kind], bool(c.is_default_method())
        attributes = (x.spelling for x in clang.children(c) if x.kind == K.ANNOTATE_ATTR)
        interrupts = (s.rpartition(":")[2] for s in attributes if s.startswith("edgebuild:interrupt:"))
        declared = form == "constructor" and any(m == c for m in clang.children(c.semantic_parent))
        return ir.Function(
            self,
            c,
            str(c.spelling),
            form,
            self.unit.function_name(c),
            c.storage_class.name == "STATIC" and form == "function",
            form == "method" and not c.is_static_method(),
            form == "method" and bool(c.is_virtual_method()),
            bool(c.is_copy_constructor() or c.is_move_constructor()),
            default,
            declared and not default,
            next(interrupts, None),
        )

    def declared_as(self, c: Cursor, word: str) -> bool:
        """Whether a declaration of a function has an attribute or a specifier, such as `weak` or `noreturn`."""
        shown = [x for x in (c, c.canonical) if any(a.kind == K.UNEXPOSED_ATTR for a in clang.children(x))]
        texts = [c.type.spelling, *(clang.pretty(x).partition("{")[0] for x in shown)]
        return any(re.search(rf"(?i)\b_*{word}_*\b", text) for text in texts)

    def parameters(self, function: Cursor, expected: bool) -> tuple[ir.Variable, ...]:
        """The parameters of a function. `expected`: those for a call, also if it is an instance of a template."""
        declared = (p for p in clang.children(function) if p.kind == K.PARM_DECL)
        return tuple(self.variable(p) for p in (function.get_arguments() or () if expected else declared) if p)

    def default(self, declaration: Cursor) -> ir.Expression | None:
        values = [x for x in clang.children(declaration) if clang.is_expression(x)]
        if declaration.kind == K.FIELD_DECL and declaration.type.get_canonical().kind == TypeKind.CONSTANTARRAY:
            values = [x for x in values if x.kind == K.INIT_LIST_EXPR]
        return self.expression(values[-1]) if values else None

    def declaration(self, c: Cursor | None) -> ir.Declaration | None:
        """The lowered declaration of a cursor."""
        if c is None:
            return None
        if c.kind in (K.VAR_DECL, K.PARM_DECL):
            return self.variable(c)
        if c.kind in clang.FUNCTIONS:
            return self.function(c)
        if c.kind == K.ENUM_CONSTANT_DECL:
            return ir.Constant(self, c, str(c.spelling), int(c.enum_value))
        return self.member(c) if c.kind == K.FIELD_DECL else ir.Declaration(self, c, str(c.spelling))

    # ---- contents of the unit

    @cached_property
    def functions(self) -> tuple[ir.Function, ...]:
        """The functions that the text itself defines, those of classes included."""
        return tuple(map(self.function, self.unit.functions))

    @cached_property
    def lambdas(self) -> dict[int, tuple[ir.Function, ir.Function]]:
        """The lambdas in functions of the text: (lambda, enclosing function), by the offset of their begin."""
        pairs = self.unit.lambdas.items()
        return {start: (self.function(c), self.function(around)) for start, (c, around) in pairs}

    @cached_property
    def definitions(self) -> dict[str, ir.Function]:
        """The functions with a body, by name; in C also those of headers."""
        if self.unit.cpp:
            return {f.full_name: f for f in self.functions}
        own = (f for f in self.unit.top if f.kind == K.FUNCTION_DECL and f.is_definition())
        return {f.spelling: self.function(f) for f in own}

    @property
    def statics(self) -> tuple[ir.Declared, ...]:
        """Global variables that the text itself declares, and static variables in functions."""
        own = [d for d in self.unit.top if d.kind == K.VAR_DECL and self.unit.own(d)]
        inner = (d for f in self.unit.functions for d in clang.preorder(f) if d.kind == K.VAR_DECL)
        return tuple(map(self._declared, (*own, *(d for d in inner if d.storage_class.name == "STATIC"))))

    @property
    def records(self) -> tuple[ir.Record, ...]:
        """Structs, unions and classes that the text itself defines outside of functions."""
        kinds = (K.STRUCT_DECL, K.UNION_DECL, K.CLASS_DECL)
        return tuple(self._record_of(d) for d in self.unit.top if d.kind in kinds and self.unit.own(d))

    @cached_property
    def names(self) -> frozenset[str]:
        """All functions that the unit declares, and those that it defines."""
        return frozenset(
            [f.spelling for f in self.unit.top if f.kind == K.FUNCTION_DECL] + [f.full_name for f in self.functions]
        )

    def body(self, function: Cursor) -> ir.Block | None:
        own = next((c for c in clang.children(function) if c.kind == K.COMPOUND_STMT), None)
        outer, self._around = self._around, function
        block = self.block(own) if own is not None else None
        self._around = outer
        return block

    def initialisers(self, constructor: Cursor) -> tuple[ir.Initialiser, ...]:
        initialisers = []
        for before, value in pairwise([None, *clang.children(constructor)]):
            if value is None or not clang.is_expression(value):
                continue
            kind = before.kind if before is not None else None
            member = before.spelling if before is not None and kind == K.MEMBER_REF else ""
            base = self.record(before.type) if before is not None and kind == K.TYPE_REF else None
            initialisers.append(ir.Initialiser(member, base, self.expression(value)))
        return tuple(initialisers)

    # ---- expressions

    def expression(self, c: Cursor) -> ir.Expression:
        kind = c.kind
        handler = EXPRESSIONS.get(kind)
        if handler:
            return handler(self, c)
        if kind in REFUSED:
            raise clang.error_at(c, self.unit.text, REFUSED[kind])
        if kind in NUMBERS:
            return ir.Number(self, c)
        if kind in CASTS:
            return ir.Cast(self, c, [ir.Other(self, c, ()), *self._inside(c)][-1], CASTS[kind])
        if kind.is_expression() or kind.is_reference() or kind.is_declaration():
            return ir.Other(self, c, self._inside(c))
        text = f"this expression ({kind.name.lower()}) is not supported in a driver"
        raise clang.error_at(c, self.unit.text, text)

    def _inside(self, c: Cursor) -> tuple[ir.Expression, ...]:
        return tuple(self.expression(x) for x in clang.children(c) if clang.is_expression(x))

    def _unexposed(self, c: Cursor) -> ir.Expression:
        """Lower an expression that libclang has no kind for: a conversion, `a ?: b`, `offsetof`, a designator..."""
        children = clang.children(c)
        members = [x.referenced for x in children if x.kind == K.MEMBER_REF]
        inside = self._inside(c)
        if clang.is_offset(c):
            return ir.OffsetOf(self, c, tuple(map(self.member, members)), inside)
        if len(inside) == 4 and len({x.span for x in inside[:3]}) == 1:  # `a ?: b`: libclang repeats the first operand
            return ir.Choice(self, c, inside[0], None, inside[3])
        if members:
            named = tuple(self.member(m) for m in members)
            return ir.Designated(self, c, named, inside[:-1], inside[-1])
        if len(inside) == 1:
            return ir.Converted(self, c, inside[0], len(children) == 1)
        return ir.Intrinsic(self, c, inside)

    def _member(self, c: Cursor) -> ir.Expression:
        inside = self._inside(c)
        return ir.MemberOf(self, c, inside[0] if inside else None, self.declaration(c.referenced))

    def _unary(self, c: Cursor) -> ir.Expression:
        (operand,), operator = self._inside(c), clang.unary(c)
        if operator.endswith(("++", "--")):
            return ir.Step(self, c, operator[-1], operand, operator.startswith("post"))
        return ir.Unary(self, c, operator, operand)

    def _binary(self, c: Cursor) -> ir.Expression:
        (left, right), operator = self._inside(c), clang.binary(c)
        if operator == "=":
            return ir.Assignment(self, c, left, right)
        if operator == ",":
            return ir.Comma(self, c, left, right)
        return (ir.Logical if operator in ("&&", "||") else ir.Binary)(self, c, left, right, operator)

    def _compound(self, c: Cursor) -> ir.Expression:
        left, right = self._inside(c)
        return ir.Assignment(self, c, left, right, clang.binary(c)[:-1])

    def _lambda(self, c: Cursor) -> ir.Expression:
        function = self.function(c)
        head = (x for x in clang.children(c) if x.kind not in (K.COMPOUND_STMT, K.PARM_DECL))
        captured = (self.expression(x) for x in head if clang.is_expression(x) or x.kind == K.VARIABLE_REF)
        assert function.body is not None
        return ir.Lambda(self, c, tuple(captured), function.body, function)

    def _call(self, c: Cursor) -> ir.Expression:
        """Lower a call: of a function, through a pointer, of a method, of an operator, or of a constructor."""
        parts = [x for x in clang.children(c) if clang.is_expression(x)]
        if not self.unit.cpp:
            callee, *arguments = map(self.expression, parts)
            named = clang.bare(parts[0]).referenced
            to = self.function(named) if named is not None and named.kind == K.FUNCTION_DECL else None
            return ir.Call(self, c, to, callee, None, tuple(arguments))
        referenced = c.referenced
        if referenced is None or referenced.kind not in clang.FUNCTIONS:  # through a pointer
            inside = self._inside(c) or (ir.Other(self, c, ()),)
            return ir.Call(self, c, None, inside[0], None, inside[1:])
        to = self.function(referenced)
        if to.form == "constructor":
            return ir.Call(self, c, to, None, None, self._inside(c))
        method = bool(parts) and parts[0].kind == K.MEMBER_REF_EXPR and parts[0].referenced == referenced
        if method:
            objects = self._inside(parts[0])
            arguments = list(map(self.expression, parts[1:]))
            return ir.Call(self, c, to, None, next(iter(objects), None), tuple(arguments))
        named = next((x for x in parts if _names(x, referenced)), parts[0] if parts else None)
        rest = [self.expression(x) for x in parts if x is not named]
        if to.has_object and rest:  # an operator
            return ir.Call(self, c, to, None, rest[0], tuple(rest[1:]))
        return ir.Call(self, c, to, self.expression(named) if named is not None else None, None, tuple(rest))

    # ---- statements

    def block(self, c: Cursor) -> ir.Block:
        return ir.Block(self, c, tuple(map(self.statement, clang.children(c))))

    def statement(self, c: Cursor) -> ir.Statement:
        handler = STATEMENTS.get(c.kind)
        if handler:
            return handler(self, c)
        if c.kind in REFUSED and not clang.is_expression(c):
            raise clang.error_at(c, self.unit.text, REFUSED[c.kind])
        if clang.is_expression(c):
            return ir.Evaluation(self, c, self.expression(c))
        text = f"this statement ({c.kind.name.lower()}) is not supported in a driver"
        raise clang.error_at(c, self.unit.text, text)

    def _attributed(self, c: Cursor) -> ir.Statement:
        """A statement with attributes, such as `__attribute__((fallthrough));`."""
        own = [x for x in clang.children(c) if not x.kind.is_attribute()]
        return self.statement(own[0]) if len(own) == 1 else ir.Block(self, c, tuple(map(self.statement, own)))

    def _declared(self, d: Cursor) -> ir.Declared:
        """Lower a variable. Its initial value is an expression after the name; but so is the length of an array."""
        parts = [x for x in clang.children(d) if clang.is_expression(x)]
        value = None
        if parts and clang.span(parts[-1])[0] >= clang.offset(d.location):
            last, array = parts[-1], d.type.get_canonical().kind
            listed = last.kind == K.INIT_LIST_EXPR or last.type.get_canonical().kind == TypeKind.CONSTANTARRAY
            length = array == TypeKind.VARIABLEARRAY or (array == TypeKind.CONSTANTARRAY and not listed)
            value = None if length else last
        sizes = tuple(self.expression(x) for x in parts if x is not value)
        return ir.Declared(self, d, self.variable(d), sizes, self.expression(value) if value is not None else None)

    def _declarations(self, c: Cursor) -> ir.Statement:
        own = [d for d in clang.children(c) if d.kind == K.VAR_DECL]
        others = (x for d in clang.children(c) if d not in own and self.unit.cpp for x in clang.preorder(d))
        uses = tuple(self.expression(x) for x in others if x.kind == K.MEMBER_REF_EXPR)
        return ir.Declarations(self, c, tuple(map(self._declared, own)), uses)

    def _parts(self, c: Cursor) -> tuple[tuple[ir.Statement, ...], list[Cursor]]:
        """(statements of C++ in front of the condition of an if, while or switch, the other parts)."""
        parts, before = clang.children(c), list[ir.Statement]()
        start = self.unit.text[clang.span(c)[0] : clang.span(parts[0])[0]]
        if self.unit.cpp and c.kind == K.SWITCH_STMT and b";" in start:
            text = "a statement in front of a switch's value is not supported"  # libclang does not show it
            raise clang.error_at(c, self.unit.text, text, "  write it in front of the switch")
        while self.unit.cpp and len(parts) > 2:
            gap = self.unit.text[clang.span(parts[0])[1] : clang.span(parts[1])[0]].strip()
            if parts[0].kind == K.VAR_DECL:
                before.append(self._declared(parts[0]))
            elif parts[0].kind == K.DECL_STMT or gap.startswith(b";"):
                before.append(self.statement(parts[0]))
            else:
                break
            parts = parts[1:]
        return tuple(before), parts

    def _if(self, c: Cursor) -> ir.Statement:
        before, (condition, then, *rest) = self._parts(c)
        otherwise = self.statement(rest[0]) if rest else None
        return ir.If(self, c, before, self.expression(condition), self.statement(then), otherwise)

    def _while(self, c: Cursor) -> ir.Statement:
        before, (condition, body) = self._parts(c)
        return ir.Loop(self, c, before, self.expression(condition), None, self.statement(body), again=bool(before))

    def _do(self, c: Cursor) -> ir.Statement:
        body, condition = clang.children(c)
        return ir.Loop(self, c, (), self.expression(condition), None, self.statement(body), first=True)

    def _for(self, c: Cursor) -> ir.Statement:
        """Lower a `for`. Missing parts have no cursor, so the positions of the semicolons identify the others."""
        *parts, body = clang.children(c)
        start, condition, step = parts[:1], parts[1:2], parts[2:]
        if len(parts) in (1, 2):
            places = list(_semicolons(c))
            if len(places) < 2:
                raise clang.error_at(c, self.unit.text, "this loop comes out of a macro and cannot be read")
            start, condition, step = ([p for p in parts if _turn(p, places) == i] for i in range(3))
        once = any(d.spelling == "bf_state_" for p in parts[:1] for d in clang.children(p))
        tested, stepped = (self.expression(p[0]) if p else None for p in (condition, step))
        return ir.Loop(self, c, tuple(map(self.statement, start)), tested, stepped, self.statement(body), once=once)

    def _range(self, c: Cursor) -> ir.Statement:
        *parts, body = clang.children(c)
        over = tuple(self.expression(p) for p in parts if clang.is_expression(p))
        declared = tuple(self.variable(p) for p in parts if p.kind == K.VAR_DECL)
        return ir.RangeLoop(self, c, over, self.statement(body), declared)

    def _switch(self, c: Cursor) -> ir.Statement:
        before, (value, body) = self._parts(c)
        return ir.Switch(self, c, before, self.expression(value), self.statement(body))

    def _case(self, c: Cursor) -> ir.Statement:
        *values, body = clang.children(c)
        return ir.Case(self, c, tuple(map(self.expression, values)), self.statement(body))

    def _label(self, c: Cursor) -> ir.Statement:
        inner = clang.children(c)
        return ir.Label(self, c, c.spelling, self.statement(inner[0]) if inner else ir.Empty(self, c))

    def _goto(self, c: Cursor) -> ir.Statement:
        label = clang.children(c)[0]
        return ir.Goto(self, c, label.spelling, clang.span(label.referenced)[0] < clang.span(c)[0])

    def _assembly(self, c: Cursor) -> ir.Statement:
        text = _assembly_text(self._around, c) if self._around is not None else None
        return ir.Assembly(self, c, self._inside(c), text)


def _names(c: Cursor, to: Cursor) -> bool:
    """Whether an operand of a call is the name of the called function."""
    value = clang.bare(c)
    return value.kind == K.DECL_REF_EXPR and value.referenced is not None and value.referenced == to


def _semicolons(c: Cursor) -> Iterator[int]:
    """Offsets of the semicolons between the parts of a `for`."""
    depth = 0
    for token in c.get_tokens():
        word = token.spelling
        depth += (word in "([{") - (word in ")]}")
        if word == ";" and depth == 1:
            yield token.extent.start.offset


def _turn(part: Cursor, semicolons: list[int]) -> int:
    """The number of a `for`'s semicolons in front of one of its parts."""
    start, (first, second, *_) = clang.span(part)[0], semicolons
    return 0 if start < first else 1 if start <= second else 2


def _assembly_text(function: Cursor, statement: Cursor) -> str | None:
    """The strings and colons of an assembly statement, with macros expanded; None if clang does not print them."""
    number = [x for x in clang.preorder(function) if x.kind in ASSEMBLY].index(statement)
    words = re.findall(WORD, clang.pretty(function))
    starts = [i for i, w in enumerate(words) if w == "asm"]
    if number >= len(starts):
        return None
    inside = words[starts[number] : starts[number + 1] if number + 1 < len(starts) else None]
    end = inside.index(";") if ";" in inside else len(inside)
    return " ".join(w for w in inside[:end] if w[0] in '":')


Lowered = TypeVar("Lowered", bound=ir.Node)
Handler = Callable[[Program, Cursor], Lowered]
EXPRESSIONS: dict[CursorKind, Handler[ir.Expression]] = {
    K.PAREN_EXPR: lambda p, c: ir.Parenthesised(p, c, *p._inside(c)),
    K.UNEXPOSED_EXPR: Program._unexposed,
    K.FLOATING_LITERAL: ir.RealNumber,
    K.CXX_NULL_PTR_LITERAL_EXPR: ir.NullPointer,
    K.CXX_THIS_EXPR: ir.This,
    K.STRING_LITERAL: lambda p, c: ir.String(p, c, c.spelling),
    K.DECL_REF_EXPR: lambda p, c: ir.Name(p, c, p.declaration(c.referenced)),
    K.VARIABLE_REF: lambda p, c: ir.Name(p, c, p.declaration(c.referenced)),
    K.MEMBER_REF_EXPR: Program._member,
    K.ARRAY_SUBSCRIPT_EXPR: lambda p, c: ir.Subscript(p, c, *p._inside(c)),
    K.UNARY_OPERATOR: Program._unary,
    K.BINARY_OPERATOR: Program._binary,
    K.COMPOUND_ASSIGNMENT_OPERATOR: Program._compound,
    K.CONDITIONAL_OPERATOR: lambda p, c: ir.Choice(p, c, *p._inside(c)),
    K.CALL_EXPR: Program._call,
    K.INIT_LIST_EXPR: lambda p, c: ir.ListValue(p, c, p._inside(c)),
    K.COMPOUND_LITERAL_EXPR: lambda p, c: ir.CompoundLiteral(p, c, p._inside(c)[-1]),
    K.CXX_UNARY_EXPR: lambda p, c: ir.Unevaluated(p, c, p._inside(c)),
    K.GENERIC_SELECTION_EXPR: lambda p, c: ir.Generic(p, c, (x := p._inside(c))[0], x[1:]),
    K.StmtExpr: lambda p, c: ir.Statements(p, c, p.block(clang.children(c)[0])),
    K.LAMBDA_EXPR: Program._lambda,
    K.CXX_NEW_EXPR: lambda p, c: ir.Allocation(p, c, p._inside(c)),
    K.CXX_DELETE_EXPR: lambda p, c: ir.Allocation(p, c, p._inside(c)),
}
STATEMENTS: dict[CursorKind, Handler[ir.Statement]] = {
    K.COMPOUND_STMT: Program.block,
    K.NULL_STMT: ir.Empty,
    K.UNEXPOSED_STMT: Program._attributed,
    K.DECL_STMT: Program._declarations,
    K.IF_STMT: Program._if,
    K.WHILE_STMT: Program._while,
    K.DO_STMT: Program._do,
    K.FOR_STMT: Program._for,
    K.CXX_FOR_RANGE_STMT: Program._range,
    K.SWITCH_STMT: Program._switch,
    K.CASE_STMT: Program._case,
    K.DEFAULT_STMT: Program._case,
    K.LABEL_STMT: Program._label,
    K.GOTO_STMT: Program._goto,
    K.BREAK_STMT: ir.Break,
    K.CONTINUE_STMT: ir.Continue,
    K.RETURN_STMT: lambda p, c: ir.Return(p, c, *(p._inside(c) or (None,))),
    K.ASM_STMT: Program._assembly,
    K.MS_ASM_STMT: Program._assembly,
}
