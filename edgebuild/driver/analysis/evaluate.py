"""From the syntax tree of a function to its CDFG: expressions, in C's order of evaluation.

Where C leaves the order open (operands of most operators, arguments), it is left to right here; `path` keeps what is
sequenced by the language and what is not.
"""

from __future__ import annotations

from collections.abc import Callable

from clang.cindex import Cursor, CursorKind, TypeKind

from edgebuild.driver.analysis.cdfg import MEMORY, Chain, Node, Site, link
from edgebuild.driver.analysis.chains import is_elvis, variable_name
from edgebuild.driver.analysis.keys import REFERENCES, is_local
from edgebuild.driver.analysis.whole import Whole
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import group_of

COPIERS = {"memcpy", "memmove", "memset", "memcmp", "bcopy", "bzero"} | {
    f"__builtin_{f}" for f in ("memcpy", "memmove", "memset", "memcmp")
}
JUMPERS = {"setjmp", "_setjmp", "sigsetjmp", "longjmp", "__builtin_setjmp", "__builtin_longjmp"}
K = CursorKind


class Evaluator(Whole):
    """Expressions: what is evaluated in which order."""

    # ---- full expressions and declarations

    def full_expression(
        self, c: Cursor, used: bool = True, wrap: bool = True, targets: tuple[Node, Node] | None = None
    ) -> None:
        """An expression that is no part of another one; with `targets` (true, false) it is a condition."""
        outer = self.path
        self.statements += 1
        if self.depth:  # inside of a statement expression
            self.path = (*outer, ("s", self.statements))
        else:
            self.path = ()
            number = len(self.fulls) + 1
            start, end = clang.span(c)
            self.fulls[number] = (start, end) if wrap and end > start else None
            self.starts[number] = self.node("start", text=str(number))
        self.depth += 1
        if targets:
            self.condition(c, *targets)
        else:
            self.expression(c, used)
        self.depth -= 1
        self.path = outer

    def variable(self, d: Cursor) -> None:
        if self.loaded(d):
            return
        self.limits.no_group_value(d)
        parts = [c for c in clang.children(d) if clang.is_expression(c)]
        is_array = d.type.kind in (TypeKind.VARIABLEARRAY, TypeKind.CONSTANTARRAY)
        has_init = bool(parts) and (not is_array or parts[-1].kind == K.INIT_LIST_EXPR)
        for p in parts[: len(parts) - has_init]:
            if d.type.kind == TypeKind.VARIABLEARRAY:
                self.full_expression(p, wrap=False)
            else:
                self.unevaluated(p)
        if has_init and self._is_typeof_only(d, parts[-1]):
            self.unevaluated(parts[-1])
        elif has_init:
            self.full_expression(parts[-1], wrap=parts[-1].kind != K.INIT_LIST_EXPR)
        self.node("assign", at=d, text=variable_name(d))

    def _is_typeof_only(self, d: Cursor, part: Cursor) -> bool:
        """`typeof(e) x;`: the expression stands in front of the name."""
        return clang.span(part)[0] < clang.offset(d.location)

    # ---- expressions

    def e_paren_expr(self, c: Cursor, used: bool) -> None:
        for x in clang.children(c):
            self.expression(x, used)

    def e_unexposed_expr(self, c: Cursor, used: bool) -> None:
        children = [x for x in clang.children(c) if clang.is_expression(x)]
        if is_elvis(children):
            self._choice([children[0], children[3]], elvis=True)
            return
        if len(children) == 1:
            self.expression(children[0], used)
            return
        self.operands(children, "u")
        if len(children) > 1:  # operations of <stdatomic.h> have no kind of their own, and nothing else is like them
            self.node("barrier", at=c, text="an atomic operation")

    def e_binary_operator(self, c: Cursor, used: bool) -> None:
        left, right = clang.children(c)
        operator = clang.binary(c)
        if operator == "=":
            self.assign(c, left, right, used)
        elif operator in ("&&", "||"):
            outer = self.path
            more, end = self.node("join", floating=True), self.node("join", floating=True)
            self.path = (*outer, ("s", 0))
            self.condition(left, *((more, end) if operator == "&&" else (end, more)))
            self.current = more
            self.path = (*outer, ("s", 1))
            self.expression(right)
            self.goto(end)
            self.current = end
            self.path = outer
        elif operator == ",":
            outer = self.path
            self.path = (*outer, ("s", 0))
            self.expression(left, used=False)
            self.path = (*outer, ("s", 1))
            self.expression(right, used)
            self.path = outer
        else:
            self.operands([left, right], "u")

    def condition(self, c: Cursor, yes: Node, no: Node) -> None:
        """Evaluate for control: go to `yes` or `no`. A part of && and || that decides goes there at once."""
        inner = clang.bare(c)
        operator = clang.binary(inner) if inner.kind == K.BINARY_OPERATOR else ""
        if operator in ("&&", "||"):
            left, right = clang.children(inner)
            outer, more = self.path, self.node("join", floating=True)
            self.path = (*outer, ("s", 0))
            self.condition(left, *((more, no) if operator == "&&" else (yes, more)))
            self.current = more
            self.path = (*outer, ("s", 1))
            self.condition(right, yes, no)
            self.path = outer
        elif inner.kind == K.UNARY_OPERATOR and clang.unary(inner) == "!":
            self.condition(clang.children(inner)[0], no, yes)
        else:
            self.expression(c)
            value = clang.constant(c)
            for target in [yes, no] if value is None else [yes if value else no]:
                if self.current:
                    link(self.current, target)
            self.current = None

    def e_conditional_operator(self, c: Cursor, used: bool) -> None:
        self._choice(clang.children(c), elvis=False)

    def _choice(self, children: list[Cursor], elvis: bool) -> None:
        outer = self.path
        condition, *arms = children
        self.path = (*outer, ("s", 0))
        starts = [self.node("join", floating=True) for _ in range(2)]
        if elvis:
            self.expression(condition)
            branch = self.join()
            link(branch, starts[0])
            ends: list[Node | None] = [branch]
        else:
            self.condition(condition, *starts)
            ends = []
        for i, arm in enumerate(arms):
            self.current = starts[i]
            self.path = (*outer, ("s", i + 1))
            self.expression(arm)
            ends.append(self.current)
        self.join(*ends)
        self.path = outer

    def assign(self, c: Cursor, left: Cursor, right: Cursor, used: bool) -> None:
        chain = self.chains.read(left)
        outer = self.path
        if chain and chain.local:
            self.local("set", c, chain, "=", right, used)
            return
        if self.group_write(c, left, right, used):
            return
        if chain and chain.is_field and not chain.missing:
            site = self.site("assign", c, left, "=", right, used)
            steps = [(0, lambda: self.evaluate_chain(chain)), (1, lambda: self.expression(right))]
            self._in_turn(outer, steps)
            site.write = self.access("w", chain, site)
            site.does = self.chains.does(right)
            return
        name, pointer = group_of(c.type, self.dialect)
        if chain or (name and not pointer):
            raise clang.error_at(c, self.unit.text, "a group cannot be copied", "  assign its fields one by one")
        self.path = (*outer, ("u", 0))
        self.lvalue(left)
        self.path = (*outer, ("u", 1))
        self.expression(right)
        self.path = outer
        self.assigned(left)

    def _in_turn(self, outer: tuple[tuple[str, int], ...], steps: list[tuple[int, Callable[[], None]]]) -> None:
        """The left and the right side of an assignment: C leaves their order open, C++ has the right side first."""
        for number, step in reversed(steps) if self.unit.cpp else steps:
            self.path = (*outer, ("u", number))
            step()
        self.path = outer

    def e_compound_assignment_operator(self, c: Cursor, used: bool) -> None:
        left, right = clang.children(c)
        chain = self.chains.read(left)
        outer = self.path
        if chain is None:
            self.lvalue(left)
            self.expression(right)
            self.assigned(left)
            return
        if chain.local:
            self.local("set", c, chain, clang.binary(c), right, used)
            return
        site = self._modified(c, left, chain, "compound", clang.binary(c), right, used)
        site.does = self.chains.does(right)

        def read() -> None:
            self.evaluate_chain(chain)
            site.read = self.access("r", chain, site)

        self._in_turn(outer, [(0, read), (1, lambda: self.expression(right))])
        site.write = self.access("w", chain, site)

    def e_unary_operator(self, c: Cursor, used: bool) -> None:
        (operand,) = clang.children(c)
        operator = clang.unary(c)
        chain = self.chains.read(operand)
        if chain and chain.local:
            if not operator.endswith(("++", "--")):
                self.operands([operand], "u")
                return
            self.local("set", c, chain, operator, None, used)
            return
        if operator == "&" and chain:
            if chain.is_field:
                text = f"a bit field has no address: '{chain.end_name}'"
                raise clang.error_at(c, self.unit.text, text, "  pass its group, or read it into a variable")
            self.evaluate_chain(chain)
            self.escaped(chain)
        elif operator == "&":
            target = clang.bare(operand)
            if target.kind == K.DECL_REF_EXPR and target.referenced is not None:
                self.no_register(target)
                self.addressed.add(variable_name(target.referenced))
            self.lvalue(operand)
        elif operator.endswith(("++", "--")):
            if chain is None:
                self.lvalue(operand)
                self.assigned(operand)
                return
            site = self._modified(c, operand, chain, "step", operator, None, used)
            self.evaluate_chain(chain)
            site.read = self.access("r", chain, site)
            site.write = self.access("w", chain, site)
        else:
            self.expression(operand)
            self.check_volatile(c)

    def _modified(
        self, c: Cursor, left: Cursor, chain: Chain, form: str, operator: str, right: Cursor | None, used: bool
    ) -> Site:
        if not chain.is_field or chain.missing:
            raise clang.error_at(c, self.unit.text, "only a single bit field can be assigned to")
        return self.site(form, c, left, operator, right, used)

    def e_array_subscript_expr(self, c: Cursor, used: bool) -> None:
        self.operands(clang.children(c), "u")
        self.check_volatile(c)

    def e_member_ref_expr(self, c: Cursor, used: bool) -> None:
        self.operands([x for x in clang.children(c) if clang.is_expression(x)], "u")
        self.check_volatile(c)

    def e_decl_ref_expr(self, c: Cursor, used: bool) -> None:
        self.no_register(c)
        self.check_volatile(c)

    def e_call_expr(self, c: Cursor, used: bool) -> None:
        callee, *arguments = clang.children(c) or [c]
        target = clang.bare(callee).referenced
        known = target is not None and target.kind == K.FUNCTION_DECL
        name = target.spelling if known and target is not None else ""
        if name in JUMPERS:
            raise clang.error_at(c, self.unit.text, f"{name}() is not supported in a driver")
        for a in arguments:
            if name in COPIERS and group_of(clang.bare(a).type, self.dialect)[0]:
                raise clang.error_at(
                    c,
                    self.unit.text,
                    f"{name}() on a group: registers are not memory",
                    "  assign its fields one by one",
                )
        if not known:
            self.expression(callee)
        self.operands(arguments, "u")
        self.node("call", at=c, text=name)

    def e_cstyle_cast_expr(self, c: Cursor, used: bool) -> None:
        operand = [x for x in clang.children(c) if clang.is_expression(x)][-1]
        name, pointer = group_of(clang.bare(operand).type, self.dialect)
        to = c.type.get_canonical()
        if (
            pointer
            and group_of(c.type, self.dialect)[0] != name
            and not (to.kind == TypeKind.POINTER and to.get_pointee().kind == TypeKind.VOID)
            and to.kind != TypeKind.VOID  # `(void)p;` says that a parameter is not used
        ):
            raise clang.error_at(
                c,
                self.unit.text,
                f"this cast takes a '{name}' for '{c.type.spelling}'",
                "  the layout of a group is not known in C",
            )
        self.expression(operand, c.type.kind != TypeKind.VOID)

    def e_init_list_expr(self, c: Cursor, used: bool) -> None:
        self.operands([x for x in clang.children(c) if clang.is_expression(x)], "u")

    def e_cxx_unary_expr(self, c: Cursor, used: bool) -> None:
        for x in clang.children(c):
            if clang.is_expression(x):
                self.unevaluated(x)

    def e_generic_selection_expr(self, c: Cursor, used: bool) -> None:
        controller, *rest = [x for x in clang.children(c) if clang.is_expression(x)]
        self.unevaluated(controller)
        for x in rest:
            if any(self.chains.read(y) for y in clang.preorder(x) if y.kind == K.MEMBER_REF_EXPR):
                raise clang.error_at(
                    x,
                    self.unit.text,
                    "a field in the selected part of _Generic is not supported",
                    "  read it into a variable first",
                )
            self.expression(x)

    def e_addr_label_expr(self, c: Cursor, used: bool) -> None:
        raise clang.error_at(c, self.unit.text, "the address of a label is not supported in a driver")

    # ---- lvalues and volatile objects

    def lvalue(self, c: Cursor) -> None:
        """The operands of something that is written or whose address is taken."""
        inner = clang.bare(c)
        if inner.kind == K.DECL_REF_EXPR:
            self.no_register(inner)
        else:
            self.operands([x for x in clang.children(inner) if clang.is_expression(x)], "u")

    def assigned(self, left: Cursor) -> None:
        target = clang.bare(left)
        if clang.is_volatile(target.type):
            self.check_volatile(target)
        elif target.kind == K.DECL_REF_EXPR and target.referenced is not None:
            self.node("assign", at=target, text=variable_name(target.referenced))
            kinds = {t.get_canonical().kind for t in (target.type, target.referenced.type)}
            if not is_local(target.referenced, self.function) or kinds & {TypeKind.RECORD, *REFERENCES}:
                self.node("assign", at=target, text=MEMORY)
        else:
            self.check_volatile(target)
            self.node("assign", at=target, text=MEMORY)
