"""C and C++ as typed values: types and declarations, and bodies of functions as expressions and statements.

`lowering` makes them from libclang's tree, once, and analysis and prover read these values alone. Operands stand in the
order of the text. What libclang finds out on request (constants, positions) is asked when it is needed, and kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, dataclass_transform

from clang.cindex import Cursor, CursorKind, Type, TypeKind, conf

from edgebuild.base.errors import EdgebuildError
from edgebuild.driver.source import clang
from edgebuild.driver.source.clang import Place

Span = tuple[int, int]  # bytes of the unit's text: first, and one behind the last
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
REFERENCES = ("reference", "rvalue reference")
ADDRESSES = ("pointer", "array", "open array", *REFERENCES)  # types whose values are addresses


@dataclass_transform(frozen_default=True, eq_default=False)
class Value:
    """A frozen value, which is equal to itself alone."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False, repr=False)(cls)


class CType(Value):
    """A type. `kind` is one of KINDS, or "number"; it is that of the type behind all typedefs."""

    program: ProgramLike
    origin: Type

    @cached_property
    def _canonical(self) -> Type:
        return self.origin.get_canonical()

    @cached_property
    def kind(self) -> str:
        return KINDS.get(self._canonical.kind, "number")

    @cached_property
    def written(self) -> str:
        """The kind of the type as it is written: a typedef of an array is a "number" here."""
        return KINDS.get(self.origin.kind, "number")

    @cached_property
    def size(self) -> int:
        """Bytes; negative where it is not known."""
        return int(self._canonical.get_size())

    @cached_property
    def signed(self) -> bool:
        type_ = self._canonical
        if type_.kind == TypeKind.ENUM:
            type_ = type_.get_declaration().enum_type.get_canonical()
        return type_.kind in SIGNED

    @cached_property
    def name(self) -> str:
        """The type as it is written."""
        return str(self.origin.spelling)

    @cached_property
    def text(self) -> str:
        """The type without typedefs."""
        return str(self._canonical.spelling)

    @property
    def is_reference(self) -> bool:
        return self.kind in REFERENCES

    @cached_property
    def is_address(self) -> bool:
        return self.kind in ADDRESSES

    @cached_property
    def is_volatile(self) -> bool:
        return bool(self.origin.is_volatile_qualified())

    @cached_property
    def changes(self) -> bool:
        """Whether an object of this type may change by itself."""
        canonical = self._canonical
        return self.is_volatile or canonical.is_volatile_qualified() or canonical.kind == TypeKind.ATOMIC

    @cached_property
    def has_effects(self) -> bool:
        """Whether each access of an object of this type counts."""
        return self.is_volatile or self.origin.kind == TypeKind.ATOMIC

    @cached_property
    def is_const(self) -> bool:
        return bool(self.origin.is_const_qualified())

    @cached_property
    def is_pod(self) -> bool:
        return bool(self._canonical.is_pod())

    @cached_property
    def canonical(self) -> CType:
        return self.program.type(self._canonical)

    @cached_property
    def to(self) -> CType:
        """What a pointer or a reference points to."""
        return self.program.type(self._canonical.get_pointee())

    @cached_property
    def element(self) -> CType:
        """The elements of an array, as they are written."""
        of = self.origin if self.written in ("array", "variable array", "open array") else self._canonical
        return self.program.type(of.element_type)

    @cached_property
    def count(self) -> int:
        """Elements of an array."""
        return int(self._canonical.element_count)

    @cached_property
    def record(self) -> Record | None:
        return self.program.record(self._canonical.get_declaration()) if self.kind == "record" else None

    @cached_property
    def fields(self) -> tuple[Member, ...]:
        """The members of a struct, without those of its bases."""
        return tuple(self.program.member(f) for f in self._canonical.get_fields())

    @cached_property
    def group(self) -> tuple[str, bool]:
        """(name of the struct or union that it is or points to, whether it points); ("", False) for other types."""
        return clang.record(self.origin)


class ProgramLike(Protocol):
    """What the values of this file ask of `lowering.Program`."""

    unit: clang.Unit

    def type(self, origin: Type) -> CType: ...
    def record(self, origin: Cursor) -> Record: ...
    def member(self, origin: Cursor) -> Member: ...
    def variable(self, origin: Cursor) -> Variable: ...
    def function(self, origin: Cursor) -> Function: ...
    def expression(self, c: Cursor) -> Expression: ...
    def body(self, function: Cursor) -> Block | None: ...
    def initialisers(self, constructor: Cursor) -> tuple[Initialiser, ...]: ...


# ---- declarations


class Declaration(Value):
    """Something with a name."""

    program: ProgramLike
    origin: Cursor

    @cached_property
    def name(self) -> str:
        return str(self.origin.spelling)

    @cached_property
    def type(self) -> CType:
        return self.program.type(self.origin.type)

    @cached_property
    def offset(self) -> int:
        """Where its name stands, in bytes."""
        return clang.offset(self.origin.location)

    @cached_property
    def span(self) -> Span:
        return clang.span(self.origin)

    @cached_property
    def where(self) -> Place:
        """Where its name stands."""
        return clang.place(self.origin.location)

    @cached_property
    def starts(self) -> Place:
        return clang.place(self.origin.extent.start)

    @cached_property
    def qualified(self) -> str:
        """The name with its namespaces and classes."""
        return clang.qualified(self.origin)

    @cached_property
    def owner(self) -> str:
        """The struct that it is in, or "" (groups are structs)."""
        return self.program.unit.member(self.origin)[0]

    @cached_property
    def _values(self) -> tuple[Cursor, ...]:
        return tuple(x for x in clang.children(self.origin) if clang.is_expression(x))

    def error(self, message: str, *hints: str) -> EdgebuildError:
        return clang.error_at(self.origin, self.program.unit.text, message, *hints)


class Variable(Declaration):
    """A variable or a parameter."""

    @cached_property
    def key(self) -> str:
        """A name that no other variable of the unit has."""
        return f"{self.name}@{self.offset}"

    @cached_property
    def is_parameter(self) -> bool:
        return self.origin.kind == CursorKind.PARM_DECL

    @cached_property
    def storage(self) -> str:
        """ "STATIC", "EXTERN", or another word."""
        return str(self.origin.storage_class.name)

    @cached_property
    def function(self) -> str:
        """The function that it stands in, with its classes; "" for one outside of functions."""
        parent = self.origin.semantic_parent
        return clang.qualified(parent) if parent is not None and parent.kind in clang.FUNCTIONS else ""

    @cached_property
    def is_global(self) -> bool:
        return self.origin.semantic_parent.kind in clang.OUTSIDE

    def lives_in(self, function: Function) -> bool:
        """Whether it lives in a call of the function only. What a lambda captures is not its own."""
        if function.form == "lambda" and self.offset < function.span[0]:
            return False
        return self.is_parameter or (self.storage not in ("STATIC", "EXTERN") and bool(self.function))

    @cached_property
    def cleanup(self) -> str | None:
        """The function that `__attribute__((cleanup(f)))` calls at the end of its scope."""
        if all(x.kind != CursorKind.UNEXPOSED_ATTR for x in clang.children(self.origin)):
            return None
        match = re.search(r"\bcleanup\((\w+)\)", clang.pretty(self.origin))
        return match[1] if match else None

    @cached_property
    def default(self) -> Expression | None:
        """The value of a parameter that a call leaves out."""
        return self.program.expression(self._values[-1]) if self._values else None


class Member(Declaration):
    """A member of a struct, a class or a union that holds a value."""

    @cached_property
    def is_value(self) -> bool:
        """Whether it is a field; else it is a method, or a variable of the class."""
        return self.origin.kind == CursorKind.FIELD_DECL

    @cached_property
    def in_union(self) -> bool:
        return self.origin.semantic_parent.kind == CursorKind.UNION_DECL

    @cached_property
    def bits(self) -> int | None:
        """The width of a bit field."""
        return int(self.origin.get_bitfield_width()) if self.origin.is_bitfield() else None

    @cached_property
    def at_bit(self) -> int:
        """Its lowest bit in the struct."""
        return int(self.origin.get_field_offsetof())

    @property
    def at(self) -> int:
        """Its byte offset in the struct."""
        return self.at_bit // 8

    @cached_property
    def default(self) -> Expression | None:
        """The first value that its class gives it."""
        values = [self.program.expression(x) for x in self._values]
        if self.type.kind == "array":
            values = [x for x in values if isinstance(x, ListValue)]
        return values[-1] if values else None


class Record(Value):
    """A struct, a class or a union."""

    program: ProgramLike
    origin: Cursor

    @cached_property
    def name(self) -> str:
        return str(self.origin.spelling)

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """Members that hold values, in order; none of a template's instance."""
        own = (c for c in clang.children(self.origin) if c.kind == CursorKind.FIELD_DECL)
        return tuple(self.program.member(c) for c in own)

    @cached_property
    def _all(self) -> list[Cursor]:
        return clang.members(self.origin)

    @cached_property
    def destructor(self) -> Function | None:
        """The destructor that is written, if not as a default."""
        own = (m for m in self._all if m.kind == CursorKind.DESTRUCTOR and not m.is_default_method())
        return next(map(self.program.function, own), None)

    @cached_property
    def bases(self) -> tuple[CType, ...]:
        return tuple(self.program.type(m.type) for m in self._all if m.kind == CursorKind.CXX_BASE_SPECIFIER)

    @cached_property
    def has_virtual_base(self) -> bool:
        specifiers = (m for m in self._all if m.kind == CursorKind.CXX_BASE_SPECIFIER)
        return any(conf.lib.clang_isVirtualBase(m) for m in specifiers)

    @cached_property
    def is_constructed(self) -> bool:
        """Whether a constructor is written, and not as a default."""
        own = (m for m in clang.children(self.origin) if m.kind == CursorKind.CONSTRUCTOR)
        return any(not m.is_default_method() for m in own)

    @cached_property
    def has_table(self) -> bool:
        """Whether its objects begin with a pointer to the table of its virtual methods."""
        methods = (m for m in self._all if m.kind in (CursorKind.CXX_METHOD, CursorKind.DESTRUCTOR))
        return any(m.is_virtual_method() for m in methods) or any(b.record and b.record.has_table for b in self.bases)


FORMS = {
    CursorKind.FUNCTION_DECL: "function",
    CursorKind.CXX_METHOD: "method",
    CursorKind.CONSTRUCTOR: "constructor",
    CursorKind.DESTRUCTOR: "destructor",
    CursorKind.CONVERSION_FUNCTION: "conversion",
    CursorKind.LAMBDA_EXPR: "lambda",
}


class Function(Declaration):
    """A function, a method, or the body of a lambda."""

    @cached_property
    def form(self) -> str:
        """One of FORMS; "" for a template."""
        return FORMS.get(self.origin.kind, "")

    @cached_property
    def full_name(self) -> str:
        """A name that no other function of the unit has."""
        return self.program.unit.function_name(self.origin)

    @cached_property
    def is_operator(self) -> bool:
        return self.name.startswith("operator")

    @cached_property
    def parameters(self) -> tuple[Variable, ...]:
        own = (p for p in clang.children(self.origin) if p.kind == CursorKind.PARM_DECL)
        return tuple(self.program.variable(p) for p in own)

    @cached_property
    def expected(self) -> tuple[Variable, ...]:
        """Its parameters as a call has them: also those of an instance of a template."""
        return tuple(self.program.variable(p) for p in self.origin.get_arguments() or () if p is not None)

    @cached_property
    def result(self) -> CType:
        return self.program.type(self.origin.result_type)

    @cached_property
    def is_static(self) -> bool:
        """Whether other files cannot call it."""
        return self.origin.storage_class.name == "STATIC" and self.form == "function"

    @cached_property
    def has_object(self) -> bool:
        """Whether it is called for an object."""
        return self.form == "method" and not self.origin.is_static_method()

    @cached_property
    def is_virtual(self) -> bool:
        return self.form == "method" and bool(self.origin.is_virtual_method())

    @cached_property
    def is_copy(self) -> bool:
        """Whether it is a constructor that copies or moves an object."""
        return bool(self.origin.is_copy_constructor() or self.origin.is_move_constructor())

    @cached_property
    def is_default(self) -> bool:
        return bool(self.origin.is_default_method())

    @cached_property
    def is_written(self) -> bool:
        """Whether its class declares it, and not as a default."""
        declared = any(m == self.origin for m in clang.children(self.origin.semantic_parent))
        return declared and not self.is_default

    @cached_property
    def class_(self) -> Record:
        """The class of a constructor."""
        return self.program.record(self.origin.semantic_parent)

    @cached_property
    def interrupt(self) -> str | None:
        """The interrupt that it is declared to serve; "" if that has no name."""
        said = (c.spelling for c in clang.children(self.origin) if c.kind == CursorKind.ANNOTATE_ATTR)
        return next((s.rpartition(":")[2] for s in said if s.startswith("edgebuild:interrupt:")), None)

    @cached_property
    def body(self) -> Block | None:
        return self.program.body(self.origin)

    @cached_property
    def initialisers(self) -> tuple[Initialiser, ...]:
        """What stands between a constructor's head and its body."""
        return self.program.initialisers(self.origin)


@dataclass(frozen=True)
class Initialiser:
    """The first value of a member or a base in front of a constructor's body."""

    member: str  # "" for a base
    base: Record | None
    value: Expression


class Constant(Declaration):
    """A constant of an enumeration."""

    @cached_property
    def value(self) -> int:
        return int(self.origin.enum_value)


# ---- nodes


class Node(Value):
    """A piece of a body."""

    program: ProgramLike
    origin: Cursor

    @cached_property
    def span(self) -> Span:
        return clang.span(self.origin)

    @cached_property
    def where(self) -> Place:
        return clang.place(self.origin.extent.start)

    @property
    def bare(self) -> Node:
        """Of an expression, the one inside of parentheses and implicit conversions."""
        return self

    @property
    def source(self) -> bytes:
        """Its text."""
        return self.program.unit.text[slice(*self.span)]

    @cached_property
    def parts(self) -> tuple[Node, ...]:
        """The nodes that it is made of, in order."""
        values = (value if isinstance(value, tuple) else (value,) for value in vars(self).values())
        return tuple(x for value in values for x in value if isinstance(x, Node))

    def all(self) -> Iterator[Node]:
        """It and all below it, in order."""
        yield self
        for part in self.parts:
            yield from part.all()

    def error(self, message: str, *hints: str) -> EdgebuildError:
        return clang.error_at(self.origin, self.program.unit.text, message, *hints)


class Expression(Node):
    """Something that has a value, or that is evaluated for what it does."""

    @cached_property
    def type(self) -> CType:
        return self.program.type(self.origin.type)

    @cached_property
    def constant(self) -> int | None:
        """The value of an integer constant expression."""
        return clang.constant(self.origin)

    @property
    def bare(self) -> Expression:
        return self

    @property
    def word(self) -> str:
        """What it is, for messages."""
        return str(self.origin.kind.name.lower())

    @property
    def is_left_out(self) -> bool:
        """Whether it is a default argument: it has no text here."""
        return self.span[0] == self.span[1]


class Number(Expression):
    """An integer, a character or a truth value."""


class RealNumber(Expression):
    """A floating-point number."""


class NullPointer(Expression):
    """`nullptr`."""


class String(Expression):
    """A string literal; `text` is as it is written."""

    text: str

    @property
    def plain(self) -> str | None:
        """The characters, without escapes; None where there are some."""
        match = re.fullmatch(r'"([^"\\]*)"', self.text)
        return match[1] if match and match[1].isascii() else None


class Name(Expression):
    """A variable, a function, or a constant of an enumeration."""

    to: Declaration | None

    @property
    def name(self) -> str:
        return str(self.origin.spelling)

    @property
    def variable(self) -> Variable | None:
        return self.to if isinstance(self.to, Variable) else None


class This(Expression):
    """The object that a method is called for."""


class Wrapped(Expression):
    """An expression inside of something."""

    inside: Expression


class Parenthesised(Wrapped):
    """`(x)`."""

    @property
    def bare(self) -> Expression:
        return self.inside.bare


class Converted(Wrapped):
    """An implicit conversion. `transparent`: libclang shows nothing in it but the expression."""

    transparent: bool

    @property
    def bare(self) -> Expression:
        return self.inside.bare if self.transparent else self


class Cast(Wrapped):
    """A conversion that is written. `form`: that of C ("c"), or of C++ ("static", "value")."""

    form: str


class MemberOf(Expression):
    """`base.member` and `base->member`; without a base, a member of the method's own object."""

    base: Expression | None
    member: Declaration | None

    @property
    def value_member(self) -> Member | None:
        return self.member if isinstance(self.member, Member) and self.member.is_value else None


class Subscript(Expression):
    """`base[index]`."""

    base: Expression
    index: Expression


class Unary(Expression):
    """An operator in front of its operand: `*`, `&`, `-`..."""

    operator: str
    operand: Expression


class Step(Expression):
    """`++` and `--`, as an `operator` of one letter. `after`: the value is the old one."""

    operator: str
    operand: Expression
    after: bool

    @property
    def word(self) -> str:
        return "post" * self.after + 2 * self.operator


class Binary(Expression):
    """An operator between two operands that C evaluates in any order."""

    left: Expression
    right: Expression
    operator: str


class Logical(Expression):
    """`&&` and `||`."""

    left: Expression
    right: Expression
    operator: str


class Comma(Expression):
    """`left, right`."""

    left: Expression
    right: Expression


class Assignment(Expression):
    """`left = right`, or with an operator (`|`) `left |= right`."""

    left: Expression
    right: Expression
    operator: str = ""


class Choice(Expression):
    """`condition ? yes : no`; without `yes`, `condition ?: no`."""

    condition: Expression
    yes: Expression | None
    no: Expression


class Call(Expression):
    """A call. `to` is None where a pointer is called; then, and for a function of C, `callee` names what is called.

    `target`: the object of a method or an operator; None also stands for the method's own object.
    """

    to: Function | None
    callee: Expression | None
    target: Expression | None
    arguments: tuple[Expression, ...]
    own_object: bool = False  # whether it calls a method of the object itself

    @property
    def is_construction(self) -> bool:
        return self.to is not None and self.to.form == "constructor"


class CompoundLiteral(Wrapped):
    """`(T){a, b}`."""


class ListValue(Expression):
    """`{a, b, .c = d}`."""

    items: tuple[Expression, ...]


class Designated(Expression):
    """`.member[index] = value` in a list of values."""

    members: tuple[Declaration, ...]
    indices: tuple[Expression, ...]
    value: Expression


class Unevaluated(Expression):
    """`sizeof`, `_Alignof`: the operands have types, and nothing happens."""

    operands: tuple[Expression, ...]


class OffsetOf(Expression):
    """`offsetof(T, member)`."""

    members: tuple[Member, ...]
    operands: tuple[Expression, ...]


class Generic(Expression):
    """`_Generic(controller, ...)`."""

    controller: Expression
    chosen: tuple[Expression, ...]


class Statements(Expression):
    """`({ ... })`."""

    block: Block


class Lambda(Expression):
    """A lambda; `captured` are the expressions of its captures."""

    captured: tuple[Expression, ...]
    body: Block
    function: Function


class Allocation(Expression):
    """`new` and `delete`."""

    operands: tuple[Expression, ...]


class Intrinsic(Expression):
    """An operation of the compiler's own, as those of <stdatomic.h>."""

    operands: tuple[Expression, ...]

    @property
    def name(self) -> str:
        return next((token.spelling for token in self.origin.get_tokens()), "")

    @property
    def pretty(self) -> str:
        return clang.pretty(self.origin)


class Other(Expression):
    """An expression of another kind, whose operands are evaluated in order."""

    operands: tuple[Expression, ...]


# ---- statements


class Statement(Node):
    """Something that is done."""


class Evaluation(Statement):
    """An expression as a statement."""

    value: Expression


class Block(Statement):
    """`{ ... }`."""

    statements: tuple[Statement, ...]


class Empty(Statement):
    """`;`."""


class Declared(Statement):
    """A variable begins to live. `sizes`: expressions in its type; `value`: what it begins with."""

    variable: Variable
    sizes: tuple[Expression, ...]
    value: Expression | None

    def first_text(self, offsets: Iterable[int | None]) -> str:
        """The text of the first value without macros; `offsets` stand for the `offsetof`s in it."""
        text = clang.pretty(self.origin).partition("=")[2] if self.value else ""
        for offset in offsets:
            text = re.sub(r"(?:__builtin_)?offsetof\([^)]*\)", f"{offset}U", text, count=1)
        return " ".join(text.split())


class Declarations(Statement):
    """The declarations of one statement. `uses`: members that others than variables name, as a class does."""

    variables: tuple[Declared, ...]
    uses: tuple[Expression, ...] = ()


class If(Statement):
    """`before`: what is declared or done in front of the condition."""

    before: tuple[Statement, ...]
    condition: Expression
    then: Statement
    otherwise: Statement | None


class Loop(Statement):
    """`while`, `do` and `for`. `first`: the body comes before the condition. `once`: a section of `bf_critical`."""

    before: tuple[Statement, ...]
    condition: Expression | None
    step: Expression | None
    body: Statement
    first: bool = False
    again: bool = False  # `before` is done on each turn: `while (int x = f())`
    once: bool = False


class RangeLoop(Statement):
    """`for (T x : range)`. `declared`: all that it declares, `x` among it."""

    over: tuple[Expression, ...]
    body: Statement
    declared: tuple[Variable, ...]


class Switch(Statement):
    """`before` as in `If`."""

    before: tuple[Statement, ...]
    value: Expression
    body: Statement


class Case(Statement):
    """`case low:` and `case low ... high:`; without values, `default:`."""

    values: tuple[Expression, ...]
    body: Statement


class Label(Statement):
    """`name: body`."""

    name: str
    body: Statement


class Goto(Statement):
    """`goto label;`. `back`: the label stands in front of it."""

    label: str
    back: bool


class Break(Statement):
    """`break;`."""


class Continue(Statement):
    """`continue;`."""


class Return(Statement):
    """`return value;`."""

    value: Expression | None


class Assembly(Statement):
    """An assembly statement. `text`: its strings and colons without macros; None if they are not at hand."""

    operands: tuple[Expression, ...]
    text: str | None


def effect(expression: Node, reads: Callable[[Expression], object]) -> str:
    """Whether an expression "changes" something, only "reads" fields, or may be evaluated at any time ("")."""
    kind = ""
    for x in expression.all():
        if is_busy(x):
            return "changes"
        if isinstance(x, MemberOf | Subscript | Unary) and not kind and reads(x):
            kind = "reads"
    return kind


def is_busy(x: Node) -> bool:
    """Whether a node itself changes something, or calls what may."""
    return isinstance(x, Call | Assignment | Step | Statements | Lambda | Allocation)


def labels(body: Node) -> Iterator[Case]:
    """The labels of a switch whose body this is a part of."""
    if isinstance(body, Case):
        yield body
    for x in body.parts if not isinstance(body, Switch | Lambda) else ():
        yield from labels(x)
