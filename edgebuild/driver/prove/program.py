"""Symbolic execution of C: one run follows one way through a function, and says on which conditions it depends.

A source in the dialect and generated code run in the same interpreter, which extends this one by what C++ has besides.
They differ in what an access is: a member chain of a group, or a volatile object at an address (`sides`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import z3
from clang.cindex import Cursor, CursorKind, TypeKind

from edgebuild.driver.analysis.chains import cleanup, variable_name
from edgebuild.driver.layout.registers import Layout
from edgebuild.driver.prove.effort import Unknown
from edgebuild.driver.prove.expressions import Expressions
from edgebuild.driver.prove.hardware import ADDRESS, Hardware, Pointer
from edgebuild.driver.prove.reals import Real
from edgebuild.driver.prove.values import (
    DEPTH,
    POLLS,
    TURNS,
    Break,
    Continue,
    Decisions,
    Goto,
    Int,
    Pruned,
    Return,
    bits_of,
    compared,
)
from edgebuild.driver.prove.views import Views
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import Dialect
from edgebuild.driver.source.for_parts import for_parts
from edgebuild.driver.source.texts import assembly

K = CursorKind
LOOPS = (K.WHILE_STMT, K.DO_STMT, K.FOR_STMT, K.CXX_FOR_RANGE_STMT)


class Program(Expressions):
    """The functions and statements of one unit."""

    heads: Callable[[Program, Cursor, int], None] | None = None  # what happens at the head of a loop; None: nothing
    pruned: bool = False  # whether a way was not followed to its end
    apart: bool = False  # whether functions with loops, and those that call themselves, are proved apart

    def __init__(self, unit: clang.Unit, dialect: Dialect, layout: Layout, views: Views) -> None:
        super().__init__(unit, dialect, layout, views)
        self.supposed: set[str] = set()  # functions that were called as if they were proved
        self._loops: dict[str, bool] = {}

    def run(self, name: str, taken: list[bool]) -> Any:
        """One way through a function with symbolic parameters; its value."""
        self.hardware = Hardware(self.dialect, self.layout, hints=self.assumed, views=self.views)
        self.hardware.touch_all()
        self.decisions, self.env, self.globals = Decisions(taken, self.answers, given=self.given), {}, {}
        self.active, self.memory, self.jumps, self.inside, self.made = [], {}, 0, 0, 0
        if name not in self.functions:
            raise Unknown("the generated code has another name for it")
        self.this = Pointer(z3.BitVec("this", ADDRESS))
        arguments = []
        for i, p in enumerate(x for x in clang.children(self.functions[name]) if x.kind == K.PARM_DECL):
            arguments.append(self.symbol(f"argument {i}", p.type))
        return self.call(self.functions[name], arguments)

    def call(self, function: Cursor, arguments: list[Any]) -> Any:
        if self.apart and self.active and all(isinstance(a, Int | Pointer | Real) for a in arguments):
            again = any(f is function for f in self.active) or self._has_loops(function)
            if again and function.kind in (K.FUNCTION_DECL, K.CXX_METHOD):
                return self._supposed(function, arguments)
        outer, self.env = self.env, {}
        self.active.append(function)
        if sum(f.spelling == function.spelling for f in self.active) > DEPTH:
            self.decisions.bounded = True
            raise Pruned
        parameters = [p for p in clang.children(function) if p.kind == K.PARM_DECL]
        for p, value in zip(parameters, arguments, strict=True):
            if self.in_memory(p):
                self.put(self.new_object(p), p.type, value)
            else:
                self.env[variable_name(p)] = self.converted(value, p.type)
        try:
            self.body(function)
            result = None
        except Return as done:
            result = done.value
        except Goto:
            raise Unknown("a jump to a label that is nowhere in the function") from None
        self.env = outer
        self.active.pop()
        return result if result is None else self.converted(result, function.result_type)

    def _has_loops(self, function: Cursor) -> bool:
        """Whether a function, or one that it calls, has a loop, but for a section without interrupts."""
        name = self.unit.function_name(function)
        if name not in self._loops:
            self._loops[name] = False  # as long as it calls itself alone
            calls = (x.referenced for x in clang.preorder(function) if x.kind == K.CALL_EXPR and x.referenced)
            called = (self.functions.get(self.unit.function_name(to)) for to in calls)
            loops = any(x.kind in (*LOOPS, K.GOTO_STMT) for x in clang.preorder(function))
            self._loops[name] = loops or any(f is not None and self._has_loops(f) for f in called)
        return self._loops[name]

    def _supposed(self, function: Cursor, arguments: list[Any]) -> Any:
        """Call a function that both sides are supposed to have alike: it finds the same, so it does the same.

        Whoever asks for a verdict has to prove that function, too.
        """
        name = self.unit.function_name(function)
        self.supposed.add(name)
        this = (self.this.value,) if function.kind != K.FUNCTION_DECL else ()
        number = self.called(name, (*this, *map(bits_of, arguments)))
        if function.result_type.get_canonical().kind == TypeKind.VOID:
            return None
        return self.symbol(f"{name}?{number}", function.result_type)

    def body(self, function: Cursor) -> None:
        """Run what stands between a function's braces."""
        self.statement(next(c for c in clang.children(function) if c.kind == K.COMPOUND_STMT))

    @contextmanager
    def full_expression(self) -> Iterator[None]:
        """An expression that is no part of another one. In C, nothing is done at its end."""
        yield

    def e_call_expr(self, c: Cursor) -> Any:
        callee, *arguments = clang.children(c) or [c]
        target = clang.bare(callee).referenced
        values = [self.value(a) for a in arguments]
        if target is not None and target.kind == K.FUNCTION_DECL and target.spelling in self.functions:
            return self.call(self.functions[target.spelling], values)
        name, through = "a pointer", list[Any]()
        if target is not None and target.kind == K.FUNCTION_DECL:
            name = target.spelling
        else:
            through = [bits_of(self.value(callee))]
        number = self.called(name, (*through, *map(bits_of, values)))
        if c.type.get_canonical().kind == TypeKind.VOID:
            return None
        return self.symbol(f"{name}?{number}", c.type)

    def e_stmtexpr(self, c: Cursor) -> Any:
        *statements, last = clang.children(clang.children(c)[0])
        self.inside += 1
        for s in statements:
            self.statement(s)
        value = self.value(last) if clang.is_expression(last) else self.statement(last)  # type: ignore[func-returns-value]
        self.inside -= 1
        return value

    # ---- statements

    def statement(self, c: Cursor) -> None:
        handler: Callable[[Cursor], None] | None = getattr(self, clang.method("s", c.kind), None)
        if handler:
            handler(c)
        elif clang.is_expression(c) or c.kind == K.UNEXPOSED_EXPR:
            with self.full_expression():
                self.value(c)
        else:
            raise Unknown(f"a statement: {c.kind.name.lower()}")

    def s_compound_stmt(self, c: Cursor, label: Cursor | None = None) -> None:
        """The statements of a block; from a label in one of them on, if there is one."""
        statements, at = clang.children(c), 0
        while at < len(statements):
            try:
                if label is not None:
                    at, inner, label = next(i for i, s in enumerate(statements) if holds(s, label)), label, None
                    self.entered(statements[at], inner)
                else:
                    self.statement(statements[at])
                at += 1
            except Goto as jump:
                named = (x for x in clang.preorder(c) if x.kind == K.LABEL_STMT and x.spelling == jump.label)
                label = next(named, None)
                if label is None:
                    raise

    def s_null_stmt(self, c: Cursor) -> None:
        pass

    def s_unexposed_stmt(self, c: Cursor) -> None:
        for child in clang.children(c):  # a statement with attributes
            if not child.kind.is_attribute():
                self.statement(child)

    def s_label_stmt(self, c: Cursor) -> None:
        """A label to which a jump goes back is the head of a loop."""
        if self.heads is not None and len(self.active) == 1 and not self.inside and is_head(self.active[0], c):
            self.heads(self, c, 0)
        for inner in clang.children(c):
            self.statement(inner)

    def s_goto_stmt(self, c: Cursor) -> None:
        back = clang.span(clang.children(c)[0].referenced)[0] < clang.span(c)[0]
        cut = self.heads is not None and len(self.active) == 1 and not self.inside
        self.jumps += back and not cut
        if self.jumps > POLLS:
            self.decisions.bounded = True
            raise Pruned
        raise Goto(clang.children(c)[0].spelling)

    def s_decl_stmt(self, c: Cursor) -> None:
        for d in clang.children(c):
            if d.kind == K.VAR_DECL:
                self.declared(d)

    def declared(self, d: Cursor) -> None:
        if cleanup(d):
            raise Unknown("a variable with a cleanup function")
        if d.storage_class.name == "STATIC":
            return  # it has some value, as a variable outside of functions has
        self.begin(d, [x for x in clang.children(d) if clang.is_expression(x)])

    def begin(self, d: Cursor, parts: list[Cursor]) -> None:
        """Give a variable its first value. `parts`: the expressions of its declaration."""
        if d.type.get_canonical().kind == TypeKind.VARIABLEARRAY:
            lengths = [bits_of(self.value(p)) for p in parts]
            name, sorts = f"&{d.spelling} #{self.made}", [x.sort() for x in lengths]
            self.made += 1
            at = z3.Function(name, *sorts, z3.BitVecSort(ADDRESS))(*lengths) if lengths else z3.BitVec(name, ADDRESS)
            self.env[variable_name(d)] = Pointer(at)
        elif self.in_memory(d):
            at = self.new_object(d)
            if parts and clang.span(parts[-1])[0] >= clang.offset(d.location) and not _is_size(d, parts):
                with self.full_expression():
                    self.initialise(at, d.type, parts[-1])
        elif parts and clang.span(parts[-1])[0] > clang.offset(d.location):
            self.env[variable_name(d)] = self.converted(self.value(parts[-1]), d.type)
        else:
            self.env[variable_name(d)] = self.symbol(f"uninitialised {d.spelling}", d.type)

    def s_return_stmt(self, c: Cursor) -> None:
        values = clang.children(c)
        with self.full_expression():
            result = self.returned(values[0]) if values else None
        raise Return(result)

    def returned(self, c: Cursor) -> Any:
        """The value that a function returns."""
        return self.value(c)

    def s_if_stmt(self, c: Cursor) -> None:
        condition, then, *other = self.parts(c)
        if self.decisions.decide(self.truth(self.value(condition))):
            self.statement(then)
        elif other:
            self.statement(other[0])

    def s_while_stmt(self, c: Cursor) -> None:
        condition, body = self.parts(c)
        self.loop(condition, body, None)

    def parts(self, c: Cursor) -> list[Cursor]:
        """The parts of an if, while or switch."""
        return clang.children(c)

    def s_do_stmt(self, c: Cursor) -> None:
        body, condition = clang.children(c)
        self.loop(condition, body, None, first=True)

    def s_for_stmt(self, c: Cursor) -> None:
        *_, body = clang.children(c)
        known = for_parts(c)
        if known is None:
            raise Unknown("a for loop without all of its parts")
        start, condition, step = known
        for p in start:
            self.statement(p)
        self.loop(next(iter(condition), None), body, next(iter(step), None))

    def ended_by(self, body: Cursor, label: Cursor | None = None) -> bool:
        """Whether a loop's body, executed once, maybe from a label on, breaks out of it."""
        try:
            if label is None:
                self.statement(body)
            else:
                self.entered(body, label)
        except Break:
            return True
        except Continue:
            pass
        return False

    def loop(
        self,
        condition: Cursor | None,
        body: Cursor,
        step: Cursor | None,
        first: bool = False,
        label: Cursor | None = None,
    ) -> None:
        """`first`: the condition is tested behind the body; `label`: where the body is entered at first."""
        open_, last, polled = 0, None, (0, 0)
        cut = self.heads is not None and len(self.active) == 1 and not self.inside
        if label is not None and self.ended_by(body, label):
            return
        for turn in range(label is not None, TURNS):
            if cut and self.heads:
                self.heads(self, body, min(turn, 1) if first else 0)
            before, now = len(self.decisions.asked), self.progress()
            if now == last and not cut:  # it waits for a field: let all of them change
                self.hardware.call("wait", ())
                open_, now = open_ + 1, self.progress()
            last, earlier, polled = now, polled, (before, sum(self.hardware.turns.values()))
            if condition is None and turn and not cut:  # the body asks for what it has read
                open_ += all(x > y for x, y in zip(polled, earlier, strict=True))
            tested = condition if turn or not first else None
            if tested is not None and not self.decisions.decide(self.truth(self.value(tested))):
                return
            open_ += len(self.decisions.asked) > before and not cut
            if open_ > POLLS:
                self.decisions.bounded = True
                raise Pruned
            if self.ended_by(body):
                return
            if step is not None:
                self.value(step)
        self.decisions.bounded = True
        raise Pruned

    def progress(self) -> tuple[Any, ...]:
        """Equal as long as nothing happens. What the other side's way has settled counts as if it were open."""
        values = [(n, "", v.bits.get_id()) for n, v in sorted(self.env.items()) if isinstance(v, Int | Real)]
        held = ((n, v) for n, v in sorted(self.env.items()) if isinstance(v, dict))
        values += [(n, str(key), bits.get_id()) for n, fields in held for key, bits in fields.items()]
        state = ((key, array.get_id()) for key, array in sorted(self.hardware.state.items()))
        memory = ((str(key), array.get_id()) for key, array in sorted(self.memory.items(), key=str))
        seen = len(self.decisions.asked), self.hardware.count  # stores may repeat
        return *seen, tuple(values), tuple(state), tuple(memory)

    def s_break_stmt(self, c: Cursor) -> None:
        raise Break

    def s_continue_stmt(self, c: Cursor) -> None:
        raise Continue

    def s_switch_stmt(self, c: Cursor) -> None:
        value, body = self.parts(c)
        chosen = self.value(value)
        labels = list(_labels(body))
        start = next((x for x in labels if x.kind == K.CASE_STMT and self._is(chosen, x)), None)
        start = start or next((x for x in labels if x.kind == K.DEFAULT_STMT), None)
        if start is None:
            return
        with suppress(Break):
            self.entered(body, start)

    def _is(self, chosen: Int, label: Cursor) -> bool:
        """Whether a value is that of a `case`, or one of `case first ... last`."""
        first, *last = (clang.constant(x) for x in clang.children(label)[:-1])
        if not last:
            return self.decisions.decide(chosen.bits == first)
        low, high = (compared(o, chosen.bits, x, chosen.signed) for o, x in ((">=", first), ("<=", last[0])))
        return self.decisions.decide(z3.And(low, high))

    def s_case_stmt(self, c: Cursor) -> None:
        self.statement(clang.children(c)[-1])

    s_default_stmt = s_case_stmt

    def entered(self, c: Cursor, label: Cursor) -> None:
        """A statement from a label inside of it on."""
        if c is label:
            if c.kind == K.LABEL_STMT:
                self.s_label_stmt(c)
            else:
                self.statement(clang.children(c)[-1])
            return
        part = next(x for x in clang.children(c) if holds(x, label))
        if c.kind == K.COMPOUND_STMT:
            self.s_compound_stmt(c, label)
        elif c.kind in (K.CASE_STMT, K.DEFAULT_STMT, K.LABEL_STMT, K.IF_STMT):
            self.entered(part, label)
        elif c.kind in (K.WHILE_STMT, K.DO_STMT):
            condition = next(x for x in clang.children(c) if x is not part)
            self.loop(condition, part, None, c.kind == K.DO_STMT, label)
        else:
            raise Unknown("a jump into a statement")

    def s_asm_stmt(self, c: Cursor) -> None:
        """Call something unknown with the values of all operands, each of which it may change."""
        operands = [x for x in clang.children(c) if clang.is_expression(x)]
        text = assembly(self.active[-1], c)
        if text is None:
            raise Unknown("assembly whose text is not at hand")
        number = self.called(f"asm {text}", tuple(bits_of(self.value(x)) for x in operands))
        for i, x in enumerate(clang.bare(o) for o in operands):
            variable = x.kind == K.DECL_REF_EXPR and x.referenced.kind in (K.VAR_DECL, K.PARM_DECL)
            if variable and not self.in_memory(x.referenced) and not x.type.is_volatile_qualified():
                variables, name = self.scope(x.referenced)
                variables[name] = self.symbol(f"asm {i}?{number}", x.referenced.type)

    s_gcc_asm_stmt = s_ms_asm_stmt = s_asm_stmt


def is_head(function: Cursor, label: Cursor) -> bool:
    """Whether a jump of a function goes back to a label."""
    jumps = (x for x in clang.preorder(function) if x.kind == K.GOTO_STMT)
    names = {clang.children(x)[0].spelling for x in jumps if clang.span(x)[0] > clang.span(label)[0]}
    return label.spelling in names


def holds(c: Cursor, inner: Cursor) -> bool:
    return any(x is inner for x in clang.preorder(c))


def _labels(c: Cursor) -> Iterator[Cursor]:
    """The labels of a switch whose body this is a part of."""
    if c.kind in (K.CASE_STMT, K.DEFAULT_STMT):
        yield c
    for x in clang.children(c) if c.kind not in (K.SWITCH_STMT, K.LAMBDA_EXPR) else ():
        yield from _labels(x)


def _is_size(d: Cursor, parts: list[Cursor]) -> bool:
    """Whether what stands behind the name of an array is the number of its elements."""
    array = d.type.get_canonical().kind == TypeKind.CONSTANTARRAY
    value = parts[-1].kind == K.INIT_LIST_EXPR or parts[-1].type.get_canonical().kind == TypeKind.CONSTANTARRAY
    return array and not value and len(parts) == 1
