"""Expressions and objects of C++ in a driver: references, constructors, destructors, methods, and what is left out.

What runs unseen becomes a node of the graph, too: a destructor at the end of its scope, a conversion, an iterator.
Calls of functions that the text does not define are calls of unknown functions.
"""

from __future__ import annotations

from clang.cindex import Cursor, CursorKind, Type, TypeKind

from edgebuild.driver.analysis.cdfg import MEMORY, Chain, Node
from edgebuild.driver.analysis.chains import BUSY, CHAINS, cleanup, variable_name
from edgebuild.driver.analysis.evaluate import Evaluator
from edgebuild.driver.analysis.keys import REFERENCES
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import Dialect, group_of

K = CursorKind


class Objects(Evaluator):
    """Expressions of C++. Of C, they are those of `Evaluator`."""

    def __init__(self, cursor: Cursor, unit: clang.Unit, dialect: Dialect) -> None:
        super().__init__(cursor, unit, dialect)
        self.scopes: list[list[str]] = []  # the destructors of the objects in each scope that is open
        self.temporaries = False  # whether the full expression makes objects that it destroys
        variables = (c for c in clang.preorder(cursor) if c.kind == K.VAR_DECL)
        self.ends = unit.cpp or any(cleanup(d) for d in variables)  # whether scopes may end in calls

    # ---- scopes and destructors

    def open_scope(self) -> None:
        self.scopes.append([])

    def close_scope(self) -> None:
        self.leave(len(self.scopes) - 1)
        self.scopes.pop()

    def leave(self, depth: int) -> None:
        """Destroy the objects of all scopes but the outermost `depth`, where control gets here."""
        for names in reversed(self.scopes[depth:]):
            for name in reversed(names):
                if self.current:
                    self.node("call", text=name)

    def no_objects(self, c: Cursor) -> None:
        if any(self.scopes):
            raise clang.error_at(c, self.unit.text, "goto past objects that have destructors")

    def destructor(self, type_: Type) -> str | None:
        """The name of the function that ends an object's life; None where nothing happens."""
        while type_.kind == TypeKind.CONSTANTARRAY:
            type_ = type_.element_type
        canonical = type_.get_canonical()
        if canonical.kind == TypeKind.UNEXPOSED:
            return f"~{type_.spelling}"  # what a parameter of a template stands for is not known
        class_ = canonical.get_declaration() if canonical.kind == TypeKind.RECORD else None
        if class_ is None or group_of(type_, self.dialect)[0]:
            return None
        members = clang.members(class_)
        own = next((m for m in members if m.kind == K.DESTRUCTOR), None)
        if own is not None and not own.is_default_method():
            return self.unit.function_name(own)
        bases = [m.type for m in members if m.kind == K.CXX_BASE_SPECIFIER]
        inner = [*bases, *(f.type for f in canonical.get_fields())]
        return f"~{class_.spelling}" if any(self.destructor(t) for t in inner) else None

    def full_expression(
        self, c: Cursor, used: bool = True, wrap: bool = True, targets: tuple[Node, Node] | None = None
    ) -> None:
        super().full_expression(c, used, wrap, targets)
        if self.temporaries and self.current:
            self.node("call", at=c, text="")
        self.temporaries = False

    # ---- declarations and statements

    def variable(self, d: Cursor) -> None:
        refers = d.type.get_canonical().kind in REFERENCES
        parts = [x for x in clang.children(d) if clang.is_expression(x)]
        if self.unit.cpp and refers and parts:
            self.no_field(clang.bare(parts[-1]))
        super().variable(d)
        name = self._ends(parts[-1]) if refers and parts else None
        if not refers and self.unit.cpp:
            name = self.destructor(d.type)
        name = cleanup(d) or name
        if name is not None and self.scopes:
            self.temporaries = False
            self.scopes[-1].append(name)

    def _ends(self, value: Cursor) -> str | None:
        """The destructor of an object without a name that a reference keeps alive."""
        made = (x for x in clang.preorder(value) if x.kind in (K.CALL_EXPR, K.CXX_FUNCTIONAL_CAST_EXPR))
        return next((n for n in (self.destructor(x.type) for x in made) if n is not None), None)

    def e_init_list_expr(self, c: Cursor, used: bool) -> None:
        super().e_init_list_expr(c, used)
        type_ = c.type.get_canonical()
        if self.unit.cpp and type_.kind == TypeKind.RECORD and not group_of(c.type, self.dialect)[0]:
            self.temporaries = self.temporaries or self.destructor(c.type) is not None
            if not type_.is_pod():  # members that are not named may call what their class says
                self.node("call", at=c, text="")

    def initialiser(self, c: Cursor) -> None:
        """The value of a member in front of a constructor's body, or the constructor of a base."""
        before = len(self.sites)
        self.full_expression(c, wrap=False)
        if len(self.sites) > before:
            text = "a field in front of a constructor's body is not supported"
            raise clang.error_at(c, self.unit.text, text, "  assign it in the body")

    def no_fields_below(self, c: Cursor, what: str) -> None:
        inside = next((x for x in clang.preorder(c) if is_field(x, self.unit, self.dialect)), None)
        if inside is not None:
            raise clang.error_at(inside, self.unit.text, f"{what} cannot use a field", "  read it into a variable")

    # ---- expressions

    def no_field(self, c: Cursor) -> None:
        """An error where a reference would be bound to a field."""
        chain = self.chains.read(c) if c.kind in CHAINS else None
        if chain and chain.is_field and not chain.local:
            text = f"a bit field has no address, and no reference: '{chain.end.name if chain.end else ''}'"
            raise clang.error_at(c, self.unit.text, text, "  read it into a variable")

    def read_chain(self, c: Cursor, chain: Chain) -> None:
        if self.unit.cpp and not (chain.local or chain.is_field or chain.missing):
            self.evaluate_chain(chain)  # what would copy a group is a call of its constructor
            self.escaped(chain)
            return
        super().read_chain(c, chain)

    def e_unexposed_expr(self, c: Cursor, used: bool) -> None:
        value = clang.bare(c)
        if self.unit.cpp and value.kind == K.DECL_REF_EXPR:
            self.no_register(value)
            self.check_volatile(value)
            return
        super().e_unexposed_expr(c, used)

    def e_decl_ref_expr(self, c: Cursor, used: bool) -> None:
        """A name whose value is not loaded: something may be bound to the variable."""
        super().e_decl_ref_expr(c, used)
        d = c.referenced
        variable = d is not None and d.kind in (K.VAR_DECL, K.PARM_DECL)
        if self.unit.cpp and d is not None and variable and d.type.get_canonical().kind not in REFERENCES:
            self.addressed.add(variable_name(d))

    def assigned(self, left: Cursor) -> None:
        """Whatever the place of an assignment in C++ may be: `(a ? b : c) = 1` and `++(++a)` are places, too."""
        super().assigned(left)
        if self.unit.cpp and clang.bare(left).kind != K.DECL_REF_EXPR:
            for x in clang.preorder(left):
                if x.kind == K.DECL_REF_EXPR and x.referenced is not None and x.referenced.kind != K.FUNCTION_DECL:
                    self.node("assign", at=x, text=variable_name(x.referenced))

    def e_call_expr(self, c: Cursor, used: bool) -> None:
        to = c.referenced
        if not self.unit.cpp:
            super().e_call_expr(c, used)
            return
        parts = [x for x in clang.children(c) if clang.is_expression(x)]
        operands = [x for x in parts if not _is_function(x)]
        if to is not None and to.kind == K.CONSTRUCTOR:
            self._constructed(c, to, operands)
        elif to is not None and to.spelling == "operator=" and group_of(c.type, self.dialect)[0]:
            self.assign(c, operands[0], operands[-1], used)
        elif to is not None and (to.kind in clang.FUNCTIONS[1:] or to.spelling.startswith("operator")):
            self._bound(operands)
            method = operands and operands[0].kind == K.MEMBER_REF_EXPR and operands[0].referenced == to
            objects = [x for x in clang.children(operands[0]) if clang.is_expression(x)] if method else []
            self.operands([*objects, *(operands[1:] if method else operands)], "u")
            virtual = to.kind == K.CXX_METHOD and to.is_virtual_method()
            self.node("call", at=c, text="" if virtual else self.unit.function_name(to))
        else:
            self._bound(operands)
            super().e_call_expr(c, used)
        if any(clang.span(x)[0] == clang.span(x)[1] for x in operands) and _calls_by_default(to):
            self.node("call", at=c, text="")
        self.temporaries = self.temporaries or self.destructor(c.type) is not None

    def _bound(self, arguments: list[Cursor]) -> None:
        for a in arguments:
            self.no_field(a)

    def _constructed(self, c: Cursor, to: Cursor, arguments: list[Cursor]) -> None:
        if group_of(c.type, self.dialect)[0]:
            raise clang.error_at(c, self.unit.text, "a group is not a value", "  use a pointer or a reference to it")
        self._bound(arguments)
        self.operands(arguments, "u")
        if not c.type.get_canonical().is_pod():
            self.node("call", at=c, text=self.unit.function_name(to))

    def cast(self, c: Cursor, used: bool) -> None:
        if group_of(c.type, self.dialect) == (c.type.get_canonical().spelling, False):
            raise clang.error_at(c, self.unit.text, "a group is not a value", "  use a pointer or a reference to it")
        self.e_cstyle_cast_expr(c, used)

    e_cxx_static_cast_expr = e_cxx_reinterpret_cast_expr = e_cxx_const_cast_expr = cast
    e_cxx_functional_cast_expr = cast

    def e_lambda_expr(self, c: Cursor, used: bool) -> None:
        for x in clang.children(c):  # its body is a function of its own
            if x.kind != K.COMPOUND_STMT:
                self.no_fields_below(x, "what a lambda captures, or a default argument,")
        for x in clang.preorder(c):
            if x.kind == K.DECL_REF_EXPR and x.referenced is not None:
                self.addressed.add(variable_name(x.referenced))
        self.node("assign", at=c, text=MEMORY)

    def e_cxx_new_expr(self, c: Cursor, used: bool) -> None:
        self.operands([x for x in clang.children(c) if clang.is_expression(x)], "u")
        self.node("call", at=c, text="")

    e_cxx_delete_expr = e_cxx_new_expr

    def e_cxx_throw_expr(self, c: Cursor, used: bool) -> None:
        raise clang.error_at(c, self.unit.text, "exceptions are not supported in a driver")


def _calls_by_default(to: Cursor | None) -> bool:
    """Whether a default argument, which stands where the function is declared, may do something."""
    parameters = [p for p in clang.children(to) if p.kind == K.PARM_DECL] if to is not None else []
    return not parameters or any(x.kind in BUSY for p in parameters for x in clang.preorder(p))


def _is_function(c: Cursor) -> bool:
    """Whether an operand of a call is the name of the operator's function."""
    value = clang.bare(c)
    known = value.kind == K.DECL_REF_EXPR and value.referenced is not None
    return known and value.referenced.kind in clang.FUNCTIONS and value.referenced.spelling.startswith("operator")


def is_field(c: Cursor, unit: clang.Unit, dialect: Dialect) -> bool:
    known = c.kind == K.MEMBER_REF_EXPR and c.referenced is not None
    return known and unit.member(c.referenced)[0] in dialect.groups


def all_are_read(unit: clang.Unit, dialect: Dialect) -> None:
    """Raise EdgebuildError where a field stands outside of all functions that are read, as in a template."""
    read = [clang.span(f) for f in unit.functions]
    for top in clang.children(unit.tu.cursor):
        for c in clang.preorder(top) if unit.own(top) else ():
            at = clang.span(c)[0]
            if is_field(c, unit, dialect) and not any(start <= at < end for start, end in read):
                text = "a field is used where the generator cannot follow, as in a template or an initialiser"
                raise clang.error_at(c, unit.text, text, "  move it into a function or a method of its own")
