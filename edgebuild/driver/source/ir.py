"""C and C++ as typed values: types and declarations, and bodies of functions as expressions and statements.

`lowering` makes them from libclang's tree, once; analysis and prover read only these values. Operands are in the order
of the text. Constants and positions are requested from libclang when they are needed, and cached.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, dataclass_transform

from clang.cindex import Cursor, Type

from ...base.errors import EdgebuildError
from . import clang
from .clang import Place

Span = tuple[int, int]  # [begin, end) in bytes of the unit's text


@dataclass_transform(frozen_default=True, eq_default=False)
class Value:
    """A frozen value that is compared by identity."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False, repr=False)(cls)


class Lowering(Protocol):
    """The lowering that values call for parts that are made on demand."""

    unit: clang.Unit

    def type(self, origin: Type) -> CType: ...
    def record(self, type_: Type) -> Record | None: ...
    def fields(self, type_: Type) -> tuple[Member, ...]: ...
    def parameters(self, function: Cursor, expected: bool) -> tuple[Variable, ...]: ...
    def body(self, function: Cursor) -> Block | None: ...
    def declared_as(self, c: Cursor, word: str) -> bool: ...
    def initialisers(self, constructor: Cursor) -> tuple[Initialiser, ...]: ...
    def default(self, declaration: Cursor) -> Expression | None: ...


class CType(Value):
    """A type. Attributes are those of the canonical type, except where they say "as written".

    `kind` is "pointer", "array", "open array", "variable array", "reference", "rvalue reference", "record", "void",
    "bool", "real", "atomic", "dependent" (on a template), or "number" for all others.
    """

    program: Lowering
    origin: Type
    kind: str
    written: str  # the kind as written: a typedef of an array is a "number"
    name: str  # as written
    text: str  # the name without typedefs
    size: int  # bytes; negative if unknown
    count: int  # elements of an array
    signed: bool
    is_volatile: bool  # as written, or by a typedef
    is_const: bool
    is_pod: bool
    changes: bool  # whether an object of this type may change by itself
    group: tuple[str, bool]  # (struct or union that it is or points to, or ""; whether it is a pointer)

    @property
    def is_reference(self) -> bool:
        return self.kind in ("reference", "rvalue reference")

    @property
    def is_address(self) -> bool:
        return self.is_reference or self.kind in ("pointer", "array", "open array")

    @property
    def has_effects(self) -> bool:
        """Whether each access of an object of this type is a side effect."""
        return self.is_volatile or self.written == "atomic"

    @property
    def plain_text(self) -> str:
        """Text of the type without typedefs, namespaces, and the positions of anonymous structs."""
        return re.sub(r"\b\w+::", "", re.sub(r"\((unnamed|anonymous)[^)]*\)", r"(\1)", self.text))

    @cached_property
    def canonical(self) -> CType:
        return self.program.type(self.origin.get_canonical())

    @cached_property
    def to(self) -> CType:
        """The type that a pointer or a reference points to."""
        return self.program.type(self.canonical.origin.get_pointee())

    @cached_property
    def element(self) -> CType:
        """The type of an array's elements, as written."""
        return self.program.type((self if "array" in self.written else self.canonical).origin.element_type)

    @cached_property
    def record(self) -> Record | None:
        return self.program.record(self.canonical.origin)

    @cached_property
    def fields(self) -> tuple[Member, ...]:
        """The members of a struct, without those of its bases."""
        return self.program.fields(self.canonical.origin)


# ---- declarations


class Declaration(Value):
    """A named declaration."""

    program: Lowering
    origin: Cursor
    name: str

    @cached_property
    def type(self) -> CType:
        return self.program.type(self.origin.type)

    @cached_property
    def span(self) -> Span:
        return clang.span(self.origin)

    @property
    def where(self) -> Place:
        """The position of its name."""
        return clang.place(self.origin.location)

    @property
    def owner(self) -> str:
        """The struct that contains it, or "" (groups are structs)."""
        return self.program.unit.member(self.origin)[0]

    @cached_property
    def default(self) -> Expression | None:
        """The default argument of a parameter, or the initial value of a variable or a member in its declaration."""
        return self.program.default(self.origin)

    def error(self, message: str, *hints: str) -> EdgebuildError:
        return clang.error_at(self.origin, self.program.unit.text, message, *hints)


class Variable(Declaration):
    """A variable or a parameter."""

    offset: int  # of its name in the text, in bytes
    is_parameter: bool
    is_global: bool
    storage: str  # libclang's storage class: "STATIC", "EXTERN"...
    function: str  # enclosing function, with its classes; "" for a global variable
    qualified: str  # its name with its namespaces and classes
    cleanup: str | None  # the function that `__attribute__((cleanup(f)))` calls at the end of its scope

    @property
    def key(self) -> str:
        """A name that is unique in the unit."""
        return f"{self.name}@{self.offset}"

    def lives_in(self, function: Function) -> bool:
        """Whether it is a local variable of the function. A lambda's captures are not its local variables."""
        if function.form == "lambda" and self.offset < function.span[0]:
            return False
        return self.is_parameter or (self.storage not in ("STATIC", "EXTERN") and bool(self.function))


class Member(Declaration):
    """A data member of a struct, a class or a union."""

    offset: int  # of its name in the text, in bytes
    in_union: bool
    bits: int | None  # the width of a bit field
    at_bit: int  # its lowest bit in the struct
    around: Member | None = None  # the nameless struct or union that declares it, as a member of the struct around that

    @property
    def at(self) -> int:
        """Its byte offset in the struct."""
        return self.at_bit // 8


class Constant(Declaration):
    """A constant of an enumeration."""

    value: int


class Record(Value):
    """A struct, a class or a union."""

    program: Lowering
    name: str
    members: tuple[Member, ...]  # data members, in order; empty for a template's instance
    bases: tuple[CType, ...]
    destructor: Function | None  # if user-declared and not defaulted
    has_virtual_base: bool
    is_constructed: bool  # whether a constructor is user-declared and not defaulted
    has_table: bool  # whether its objects begin with a vtable pointer


class Function(Declaration):
    """A function, a method, or the body of a lambda.

    `form` is "function", "method", "constructor", "destructor", "conversion" or "lambda".
    """

    form: str
    full_name: str  # unique in the unit
    is_static: bool  # whether it has internal linkage
    has_object: bool  # whether it is a non-static method
    is_virtual: bool
    is_copy: bool  # whether it is a copy or move constructor
    is_default: bool
    is_written: bool  # whether it is a constructor, user-declared and not defaulted
    interrupt: str | None  # name of the interrupt (possibly "") if declared as its handler

    @property
    def is_operator(self) -> bool:
        return self.name.startswith("operator")

    @cached_property
    def parameters(self) -> tuple[Variable, ...]:
        return self.program.parameters(self.origin, False)

    @cached_property
    def expected(self) -> tuple[Variable, ...]:
        """The parameters for a call, also if it is an instance of a template."""
        return self.program.parameters(self.origin, True)

    @cached_property
    def result(self) -> CType:
        return self.program.type(self.origin.result_type)

    @cached_property
    def is_weak(self) -> bool:
        """Whether the linker may replace it by another function."""
        return self.program.declared_as(self.origin, "weak")

    @cached_property
    def returns(self) -> bool:
        """Whether calls may return: the function is not declared `noreturn`."""
        return not self.program.declared_as(self.origin, "noreturn")

    @cached_property
    def class_(self) -> Record | None:
        """The class of a method."""
        return self.program.record(self.origin.semantic_parent.type)

    @cached_property
    def body(self) -> Block | None:
        return self.program.body(self.origin)

    @cached_property
    def initialisers(self) -> tuple[Initialiser, ...]:
        """The member initialisers of a constructor."""
        return self.program.initialisers(self.origin)


@dataclass(frozen=True)
class Initialiser:
    """A member initialiser of a constructor: the initial value of a member or a base."""

    member: str  # "" for a base
    base: Record | None
    value: Expression


# ---- nodes


class Node(Value):
    """An expression or statement of a function's body."""

    program: Lowering
    origin: Cursor

    @cached_property
    def span(self) -> Span:
        return clang.span(self.origin)

    @cached_property
    def where(self) -> Place:
        return clang.place(self.origin.extent.start)

    @property
    def bare(self) -> Node:
        """The expression inside of parentheses and implicit conversions."""
        return self

    @property
    def source(self) -> bytes:
        """Its text."""
        return self.program.unit.text[slice(*self.span)]

    @cached_property
    def parts(self) -> tuple[Node, ...]:
        """The nodes directly below it, in order."""
        values = (value if isinstance(value, tuple) else (value,) for value in vars(self).values())
        return tuple(x for value in values for x in value if isinstance(x, Node))

    def all(self) -> Iterator[Node]:
        """This node and all below it, in order."""
        yield self
        for part in self.parts:
            yield from part.all()

    def error(self, message: str, *hints: str) -> EdgebuildError:
        return clang.error_at(self.origin, self.program.unit.text, message, *hints)


class Expression(Node):
    """An expression, evaluated for its value or its effects."""

    @cached_property
    def type(self) -> CType:
        return self.program.type(self.origin.type)

    @cached_property
    def constant(self) -> int | None:
        """The value of an integer constant expression; None for any other."""
        return clang.constant(self.origin)

    @property
    def bare(self) -> Expression:
        return self

    @property
    def word(self) -> str:
        """A word for it in messages."""
        return str(self.origin.kind.name.lower())

    @property
    def is_left_out(self) -> bool:
        """Whether it is a default argument, which has no text in the call."""
        return self.span[0] == self.span[1]


class Number(Expression):
    """An integer, a character or a truth value."""


class RealNumber(Expression):
    """A floating-point number."""


class NullPointer(Expression):
    """`nullptr`."""


class String(Expression):
    """A string literal; `text` is as written."""

    text: str

    @property
    def plain(self) -> str | None:
        """The characters of an ASCII literal without escapes; None for other literals."""
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
    """An expression that contains exactly one other."""

    inside: Expression


class Parenthesised(Wrapped):
    """`(x)`."""

    @property
    def bare(self) -> Expression:
        return self.inside.bare


class Converted(Wrapped):
    """An implicit conversion. `transparent`: its cursor has no child but the expression."""

    transparent: bool

    @property
    def bare(self) -> Expression:
        return self.inside.bare if self.transparent else self


class Cast(Wrapped):
    """An explicit conversion. `form`: "c", or in C++ "static", "constant" or "value" (`T(x)`)."""

    form: str


class MemberOf(Expression):
    """`base.member` and `base->member`; without a base, a member of the method's own object."""

    base: Expression | None
    member: Declaration | None

    @property
    def value_member(self) -> Member | None:
        return self.member if isinstance(self.member, Member) else None

    @property
    def written_base(self) -> Expression | None:
        """The base without members that have no name."""
        base = self.base
        while isinstance(base, MemberOf) and base.value_member and not base.value_member.name:
            base = base.base
        return base

    @property
    def at(self) -> int:
        """The member's byte offset from the base. libclang leaves out a nameless struct or union between them."""
        return sum(m.at for m in self._through)

    @property
    def in_union(self) -> bool:
        return any(m.in_union for m in self._through)

    @property
    def _through(self) -> tuple[Member, ...]:
        member = self.value_member
        return tuple(m for m in (member, member and member.around) if m)


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
    """A call. `to` is None for a call through a pointer. `callee`: the pointer, or the name of a C function.

    `target`: the object of a method or an operator; None also for the calling method's own object.
    """

    to: Function | None
    callee: Expression | None
    target: Expression | None
    arguments: tuple[Expression, ...]

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
    """`sizeof`, `_Alignof`: the operands are not evaluated."""

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
    """An operation built into the compiler, as those of <stdatomic.h>."""

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
    """A statement."""


class Evaluation(Statement):
    """An expression as a statement."""

    value: Expression


class Block(Statement):
    """`{ ... }`."""

    statements: tuple[Statement, ...]


class Empty(Statement):
    """`;`."""


class Declared(Statement):
    """The declaration of a variable. `sizes`: expressions in its type; `value`: its initial value."""

    variable: Variable
    sizes: tuple[Expression, ...]
    value: Expression | None

    @property
    def type_text(self) -> str:
        """The type of the variable without namespaces."""
        return self.variable.type.plain_text

    def first_text(self, offsets: Iterable[int | None]) -> str:
        """The text of the initial value, with macros expanded and `offsets` in place of its `offsetof`s."""
        text = clang.pretty(self.origin).partition("=")[2] if self.value else ""
        for offset in offsets:
            text = re.sub(r"(?:__builtin_)?offsetof\([^)]*\)", f"{offset}U", text, count=1)
        return " ".join(text.split())


class Declarations(Statement):
    """The declarations of one statement. `uses`: members that declarations other than variables name, as a class."""

    variables: tuple[Declared, ...]
    uses: tuple[Expression, ...] = ()


class If(Statement):
    """`if`. `before`: declarations and statements in front of the condition."""

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
    """`for (T x : range)`. `declared`: all variables that it declares, with `x`."""

    over: tuple[Expression, ...]
    body: Statement
    declared: tuple[Variable, ...]


class Switch(Statement):
    """`switch`. `before`: as in `If`."""

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
    """`goto label;`. `back`: whether the jump is backward."""

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
    """An assembly statement. `text`: its strings and colons, with macros expanded; None if clang prints none."""

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
    """Whether a node itself may have an effect: a call, an assignment, an allocation..."""
    return isinstance(x, Call | Assignment | Step | Statements | Lambda | Allocation)


def labels(body: Node) -> Iterator[Case]:
    """The case labels in a part of a switch's body, without those of nested switches."""
    if isinstance(body, Case):
        yield body
    for x in body.parts if not isinstance(body, Switch | Lambda) else ():
        yield from labels(x)
