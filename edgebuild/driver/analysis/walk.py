"""From the syntax tree of a function to its CDFG: statements. Expressions are in `evaluate`."""

from __future__ import annotations

import re

from clang.cindex import Cursor, CursorKind, StorageClass

from edgebuild.driver.analysis.cdfg import Cdfg, Function, Node, link
from edgebuild.driver.analysis.chains import variable_name
from edgebuild.driver.analysis.keys import no_punning, read_offsets
from edgebuild.driver.analysis.objects import Objects, all_are_read
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import Dialect
from edgebuild.driver.source.for_parts import for_parts

K = CursorKind
HANDLER = re.compile(r"(?i)(^|_)(isr|irq|irq_?handler|interrupt_?handler)$|_handler$")


def read_functions(unit: clang.Unit, dialect: Dialect) -> Cdfg:
    """The CDFG of every function that the unit's own text defines."""
    no_punning(unit, dialect)
    offsets = read_offsets(unit, dialect)
    lambdas = [c for c, _ in unit.lambdas.values()]
    functions = {unit.function_name(c): Walker(c, unit, dialect).run() for c in [*unit.functions, *lambdas]}
    if unit.cpp:
        all_are_read(unit, dialect)
    return Cdfg(functions, offsets)


SCOPED = (
    K.COMPOUND_STMT,
    K.IF_STMT,
    K.WHILE_STMT,
    K.DO_STMT,
    K.FOR_STMT,
    K.CXX_FOR_RANGE_STMT,
    K.SWITCH_STMT,
)

# Instructions that turn interrupts off and on, as `contexts` knows them by the text of the node.
SWITCHES = (
    (r"\b(cpsid|csrr?ci\b.*mstatus|mstatus.*csrr?ci)", " that turns interrupts off"),
    (r"\b(cpsie|msr\s+primask|csrr?si?\b.*mstatus)", " that turns interrupts on"),
)


class Walker(Objects):
    """Statements: where control goes."""

    def __init__(self, cursor: Cursor, unit: clang.Unit, dialect: Dialect) -> None:
        super().__init__(cursor, unit, dialect)
        self.breaks: list[Node] = []
        self.scopes_around: list[int] = []  # how many scopes are open around each place that `break` leaves
        self.loop_scopes: list[int] = []  # the same for `continue`
        self.continues: list[Node] = []
        self.labels: dict[str, Node] = {}
        self.cases: list[list[Node]] = []  # of the switches around
        self.defaults: list[bool] = []
        self.critical: list[int] = []  # of each bf_critical around, how many loops and switches are around that

    def run(self) -> Function:
        body = None
        for child in clang.children(self.function):
            if child.kind == K.PARM_DECL:
                self.limits.no_group_value(child)
            if child.kind == K.COMPOUND_STMT:
                body = child
            elif self.unit.cpp and clang.is_expression(child) and self.function.kind != K.LAMBDA_EXPR:
                self.initialiser(child)
        if body is None:
            raise clang.error_at(self.function, self.unit.text, "a function with a try block is not supported")
        self.statement(body)
        self.settle()
        if self.current:
            link(self.current, self.exit)
        for access in self.accesses:  # a variable whose address is known elsewhere may change at any time
            if access.variables & self.addressed:
                access.key = (None,) * len(access.key)
        _, around = self.unit.lambdas.get(clang.span(self.function)[0], (None, None))
        return Function(
            self.unit.function_name(self.function),
            clang.place(self.function.location),
            clang.span(body),
            clang.place(body.extent.start),
            self.entry,
            self.exit,
            [*self.nodes, self.exit],
            self.accesses,
            self.sites,
            self.pointers,
            self.starts,
            self.fulls,
            bool(HANDLER.search((around or self.function).spelling)),
            self._interrupt(),
            self.function.storage_class == StorageClass.STATIC and self.function.kind == K.FUNCTION_DECL,
            self.unit.function_name(around) if around is not None else "",
        )

    def _interrupt(self) -> str | None:
        for c in clang.children(self.function):
            if c.kind == K.ANNOTATE_ATTR and c.spelling.startswith("edgebuild:interrupt:"):
                return str(c.spelling.rpartition(":")[2])
        return None

    def statement(self, c: Cursor) -> None:
        """One statement. Whatever is not in the table is an expression."""
        if not self.ends or c.kind not in SCOPED:
            self._statement(c)
            return
        self.open_scope()
        self._statement(c)
        self.close_scope()

    def _statement(self, c: Cursor) -> None:
        handler = getattr(self, clang.method("s", c.kind), None)
        if handler:
            handler(c)
        elif clang.is_expression(c) or c.kind == K.UNEXPOSED_EXPR:
            self.full_expression(c, used=False)
        else:
            raise clang.error_at(
                c, self.unit.text, f"this statement ({c.kind.name.lower()}) is not supported in a driver"
            )

    def e_stmtexpr(self, c: Cursor, used: bool) -> None:
        for x in clang.children(c):
            self.statement(x)

    def s_compound_stmt(self, c: Cursor) -> None:
        for child in clang.children(c):
            self.statement(child)

    def s_null_stmt(self, c: Cursor) -> None:
        pass

    def s_unexposed_stmt(self, c: Cursor) -> None:
        """A statement with attributes, such as `__attribute__((fallthrough));`."""
        for child in clang.children(c):
            if not child.kind.is_attribute():
                self.statement(child)

    def s_decl_stmt(self, c: Cursor) -> None:
        names = [d for d in clang.children(c) if d.kind == K.VAR_DECL]
        other = next((d for d in names if not self.holds(d)), None)
        if other is not None and any(self.holds(d) for d in names):
            text = f"'{other.spelling}' holds no register, and is declared with a variable that does: declare it alone"
            raise clang.error_at(other, self.unit.text, text)
        for d in clang.children(c):
            if d.kind == K.VAR_DECL:
                self.variable(d)
            elif self.unit.cpp:
                self.no_fields_below(d, "a declaration inside of a function")

    def s_if_stmt(self, c: Cursor) -> None:
        condition, then, *other = self.prepared(c)
        yes, no = self.branch(condition)
        self.current = yes
        self.statement(then)
        ends = [self.current]
        self.current = no
        if other:
            self.statement(other[0])
        self.join(*ends, self.current)

    def branch(self, condition: Cursor) -> tuple[Node, Node]:
        yes, no = self.node("join", floating=True), self.node("join", floating=True)
        self.full_expression(condition, targets=(yes, no))
        return yes, no

    def prepared(self, c: Cursor) -> list[Cursor]:
        """The parts of an if, while or switch; what it declares or does in front of its condition is evaluated."""
        parts = clang.children(c)
        if (
            self.unit.cpp
            and c.kind == K.SWITCH_STMT
            and b";" in self.unit.text[clang.span(c)[0] : clang.span(parts[0])[0]]
        ):
            text = "a statement in front of a switch's value is not supported"  # libclang does not show it
            raise clang.error_at(c, self.unit.text, text, "  write it in front of the switch")
        while self.unit.cpp and len(parts) > 2:
            gap = self.unit.text[clang.span(parts[0])[1] : clang.span(parts[1])[0]].strip()
            if parts[0].kind == K.VAR_DECL:
                self.variable(parts[0])
            elif parts[0].kind == K.DECL_STMT or gap.startswith(b";"):
                self.statement(parts[0])
            else:
                break
            parts = parts[1:]
        return parts

    def s_while_stmt(self, c: Cursor) -> None:
        top = self.join()
        condition, body = self.prepared(c)
        yes, end = self.branch(condition)
        self.current = yes
        self._inside(body, end, top)
        self.goto(top)
        self.current = end

    def s_do_stmt(self, c: Cursor) -> None:
        body, condition = clang.children(c)
        top, test, end = self.join(), self.node("join", floating=True), self.node("join", floating=True)
        self._inside(body, end, test)
        self.goto(test)
        self.current = test
        self.full_expression(condition, targets=(top, end))
        self.current = end

    def s_for_stmt(self, c: Cursor) -> None:
        *parts, body = clang.children(c)
        critical = any(d.spelling == "bf_state_" for p in parts[:1] for d in clang.children(p))
        known = for_parts(c)
        if known is None:
            raise clang.error_at(c, self.unit.text, "this loop comes out of a macro and cannot be read")
        init, condition, step = known
        for p in init:
            self.statement(p)
        top = self.join()
        looped = condition and not critical  # a section runs once
        yes, end = self.branch(condition[0]) if looped else (top, self.node("join", floating=True))
        bottom = self.node("join", floating=True)
        self.current = yes
        if critical:
            self.critical.append(len(self.breaks) + 1)
        self._inside(body, end, bottom)
        if critical:
            self.critical.pop()
        self.goto(bottom)
        self.current = bottom
        for p in step:
            self.full_expression(p, used=False)
        self.goto(end if critical else top)
        self.current = end

    def _inside(self, body: Cursor, end: Node, again: Node) -> None:
        self.breaks.append(end)
        self.continues.append(again)
        self.scopes_around.append(len(self.scopes))
        self.loop_scopes.append(len(self.scopes))
        self.statement(body)
        self.loop_scopes.pop()
        self.scopes_around.pop()
        self.breaks.pop()
        self.continues.pop()

    def s_switch_stmt(self, c: Cursor) -> None:
        value, body = self.prepared(c)
        self.full_expression(value)
        top, end = self.join(), self.node("join", floating=True)
        self.cases.append([])
        self.defaults.append(False)
        self.breaks.append(end)
        self.scopes_around.append(len(self.scopes))
        self.current = None
        self.statement(body)
        self.scopes_around.pop()
        self.breaks.pop()
        for case in self.cases.pop():
            link(top, case)
        if not self.defaults.pop():
            link(top, end)
        self.goto(end)
        self.current = end

    def s_case_stmt(self, c: Cursor) -> None:
        *_, inner = clang.children(c)
        self.cases[-1].append(self.join())
        self.statement(inner)

    def s_default_stmt(self, c: Cursor) -> None:
        self.cases[-1].append(self.join())
        self.defaults[-1] = True
        for inner in clang.children(c):
            self.statement(inner)

    def _stays(self, c: Cursor, word: str, leaves: bool) -> None:
        if self.critical and leaves:
            raise clang.error_at(c, self.unit.text, f"{word} out of bf_critical: interrupts would stay off")

    def s_break_stmt(self, c: Cursor) -> None:
        self._stays(c, "break", len(self.breaks) in self.critical[-1:])
        self.leave(self.scopes_around[-1])
        self.goto(self.breaks[-1])

    def s_continue_stmt(self, c: Cursor) -> None:
        self.leave(self.loop_scopes[-1])
        self.goto(self.continues[-1])

    def s_return_stmt(self, c: Cursor) -> None:
        self._stays(c, "return", True)
        for value in clang.children(c):
            self.full_expression(value)
        self.leave(0)
        self.goto(self.exit)

    def s_goto_stmt(self, c: Cursor) -> None:
        self._stays(c, "goto", True)
        self.no_objects(c)
        self.goto(self._label(clang.children(c)[0].spelling))

    def s_label_stmt(self, c: Cursor) -> None:
        label = self._label(c.spelling)
        self.goto(label)
        self.current = label
        for inner in clang.children(c):
            self.statement(inner)

    def _label(self, name: str) -> Node:
        if name not in self.labels:
            self.labels[name] = self.node("join", floating=True)
        return self.labels[name]

    def s_indirect_goto_stmt(self, c: Cursor) -> None:
        raise clang.error_at(c, self.unit.text, "computed goto is not supported in a driver")

    def s_cxx_for_range_stmt(self, c: Cursor) -> None:
        """`for (T x : range)`: the steps of an iterator are calls of functions that nobody knows."""
        *parts, body = clang.children(c)
        for p in parts:
            if p.kind == K.VAR_DECL:
                self.limits.no_group_value(p)
            elif clang.is_expression(p):
                self.full_expression(p, wrap=False)
        top = self.join()
        for p in parts:
            if p.kind == K.VAR_DECL:
                self.node("assign", at=p, text=variable_name(p))
        yes, end = self.node("join", floating=True), self.node("join", floating=True)
        self.node("call", at=c)
        for target in (yes, end):
            link(self.current or top, target)
        self.current = yes
        self._inside(body, end, top)
        self.goto(top)
        self.current = end

    def s_cxx_try_stmt(self, c: Cursor) -> None:
        raise clang.error_at(c, self.unit.text, "exceptions are not supported in a driver")

    def s_asm_stmt(self, c: Cursor) -> None:
        self.limits.no_groups_below(c, "an asm statement")
        start, end = clang.span(c)
        text = self.unit.text[start:end].decode("utf-8", "replace")
        switch = next((word for pattern, word in SWITCHES if re.search(pattern, text)), "")
        self.node("barrier", at=c, text=f"an asm statement{switch}")

    s_ms_asm_stmt = s_asm_stmt
    s_gcc_asm_stmt = s_asm_stmt
