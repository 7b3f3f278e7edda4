"""Symbolic execution of C and C++: one run follows one path through a function, and records its conditions.

A source in the dialect and generated code run in the same interpreter. A `Side` implements their difference: an access
is a member chain of a group, or a volatile object at an address. `objects` has the implicit code of C++: constructors,
destructors, and lambdas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any

import z3

from ..layout.registers import Layout
from ..source import ir
from ..source.dialect import Dialect
from ..source.ir import CType, Expression, Statement
from ..source.lowering import Program
from . import objects
from .hardware import ADDRESS, EFFORT, STEP, Hardware, Pointer, Unknown, Views
from .places import WHOLES, Memory, Places, body_of, pieces
from .values import (
    DEPTH,
    POLLS,
    TURNS,
    Answers,
    Break,
    Continue,
    Decisions,
    EndlessWait,
    Goto,
    Int,
    Pruned,
    Real,
    Return,
    bits_of,
    compared,
    converted,
    flag,
    negated,
    number,
    operated,
    product_of,
    sized,
    symbol,
    truth,
    typed,
    width_of,
)

BRANCHING = (
    ir.Logical
    | ir.Choice
    | ir.If
    | ir.Loop
    | ir.RangeLoop
    | ir.Switch
    | ir.Goto
    | ir.Assembly
    | ir.Intrinsic
    | ir.Other
)
JOIN = 2  # in place of a loop's turn: the end of a statement in a function's outermost block
POLL = "the condition of a loop that waits"


class Side:
    """The meaning of accesses. This class has none beyond plain C; subclasses are in `verdicts`."""

    run: Interpreter
    in_order: bool = True  # whether the order of accesses within an expression counts

    def begin(self) -> None:
        """Reset the state at the beginning of a run."""

    def value(self, c: Expression) -> Any:
        """The value of an expression."""
        return self.run.evaluate(c)

    def address(self, c: Expression) -> Pointer:
        """The address of an expression that is no reference."""
        return self.run.places.object(c)

    def offset(self, c: ir.OffsetOf) -> int | None:
        """The value of an `offsetof`."""
        return c.constant

    def device(self, d: ir.Variable) -> Pointer:
        """The address of a device, as declared in the source."""
        return Pointer(z3.BitVecVal(self.run.dialect.devices[d.name].address, ADDRESS))

    def cast(self, value: Any, c: ir.Cast) -> Any:
        """The value of the operand of a cast, converted to its type."""
        return converted(value, c.type)

    def declare(self, d: ir.Declared) -> bool:
        """Begin the life of a variable that holds a register. False for any other variable."""
        return False

    def assign(self, left: Expression, right: Expression) -> Any:
        """Execute `left = right`; returns the value of `left` after it."""
        return self.store(left, self.run.value(right))

    def store(self, left: Expression, value: Any) -> Any:
        """Store a value to an lvalue; returns the value after conversion."""
        return self.run.places.store(left, value)

    def modify(self, c: ir.Assignment | ir.Step) -> tuple[Any, Any]:
        """Execute `x op= v` or `x++`: (old value, new value) of `x`, whose address is evaluated once."""
        run, left = self.run, c.operand if isinstance(c, ir.Step) else c.left
        by: list[Callable[[], Any]] = [lambda: Int(z3.BitVecVal(1, 32), True)]
        if isinstance(c, ir.Assignment):
            by = [lambda: run.value(c.right)]
        if not run.places.is_stored(left):
            old, right = run.unordered(lambda: run.value(left), *by)
            return old, self.store(left, run.arithmetic(c.operator, old, right, left.type))
        at = list[Pointer]()

        def load() -> Any:
            at.append(run.places.object(left))
            return run.places.load(left, at[0])

        old, right = run.unordered(load, *by)
        new = converted(run.arithmetic(c.operator, old, right, left.type), left.type)
        return old, run.places.store_object(left, new, at[0])


class Interpreter:
    """Runs functions of one unit.

    `heads` is called at the head of a loop. `separate`: whether callees with loops or recursion are proved separately.
    `supposed`: functions that were called as if they were proved. `pruned`: whether a path was cut off.
    """

    heads: Callable[[Interpreter, ir.Node, int], None] | None = None
    pruned: bool = False
    separate: bool = False

    def __init__(self, program: Program, dialect: Dialect, layout: Layout, views: Views, side: Side) -> None:
        self.program, self.dialect, self.layout, self.views = program, dialect, layout, views
        self.side, side.run, self.places = side, self, Places(self)
        self.cpp = program.unit.cpp
        self.functions = dict(program.definitions)
        self.answers: Answers = {}
        self.hints: list[Any] = []  # bounds of the indices in this program
        self.assumed: list[Any] = []  # bounds of the indices in the other side's program
        self.given: tuple[Any, ...] = ()  # conditions that hold for all runs
        self.supposed: set[str] = set()
        self.unfinished: list[Any] = []  # paths that were cut off (`compare.Unfinished`)
        self.aliases: dict[str, str] = {}  # the other side's names of local variables
        self.passed: set[int] = set()  # numbers of lambdas that were passed on
        self._loops: dict[str, bool] = {}
        self._begin([])

    def _begin(self, choices: list[bool]) -> None:
        self.hardware = Hardware(self.dialect, self.layout, hints=self.assumed, views=self.views)
        self.memory = Memory(self.hardware)
        self.decisions = Decisions(choices, self.answers, given=self.given)
        self.env: dict[str, Any] = {}
        self.active: list[ir.Function] = []  # the call stack
        self.jumps = self.inside = 0  # jumps back so far; nesting of statement expressions
        self.missing = 0  # returns without a value from functions that have one
        self.this = Pointer(z3.BitVec("this", ADDRESS))
        self.lives = objects.Lives()
        self.side.begin()

    def run(self, name: str, choices: list[bool]) -> Any:
        """Run one path through a function with symbolic parameters; returns its result."""
        self._begin(choices)
        self.hardware.touch_all()
        if name not in self.functions:
            raise Unknown("the generated code has another name for it")
        function = self.functions[name]
        arguments = [symbol(f"argument {i}", p.type) for i, p in enumerate(function.parameters)]
        if function.form == "lambda":
            return objects.run_alone(self, function, arguments)
        return self.call(function, arguments)

    def local_variables(self, name: str) -> Iterator[ir.Variable]:
        """The parameters of a function, and the variables that its body declares."""
        function = self.functions[name]
        yield from function.parameters
        yield from (x.variable for x in body_of(function).all() if isinstance(x, ir.Declared))

    def shared_names(self) -> dict[str, Any]:
        """The local variables, under names that both sides have."""
        words = ((*key.partition("@"), value) for key, value in self.env.items())
        return {f"{self.aliases.get(word, word)}@{at}": value for word, _, at, value in words}

    def restart(self) -> None:
        """Continue with arbitrary values of all registers and objects."""
        self.hardware = Hardware(self.dialect, self.layout, hints=self.hardware.hints, views=self.views)
        self.hardware.touch_all()
        self.memory = Memory(self.hardware, created=self.memory.created)
        self.decisions.path = []

    # ---- expressions

    def value(self, c: Expression) -> Any:
        """The value of an expression."""
        return self.side.value(c)

    def evaluate(self, c: Expression) -> Any:
        """The value of an expression that is no access."""
        EFFORT.spend(STEP)
        handler: Callable[[Interpreter, Any], Any] | None = EXPRESSIONS.get(type(c))
        if handler is None:
            raise Unknown(f"an expression: {c.word}")
        return handler(self, c)

    def decide(self, c: Expression) -> bool:
        return self.decisions.decide(truth(self.value(c)))

    def constant(self, c: Expression, what: str) -> Int:
        value = c.constant
        if value is None:
            raise Unknown(f"{what} of something")
        return Int(z3.BitVecVal(value, width_of(c.type)), c.type.signed)

    def integer(self, c: ir.Number) -> Int:
        return Int(z3.BitVecVal(c.constant or 0, width_of(c.type)), c.type.signed)

    def real_number(self, c: ir.RealNumber) -> Any:
        text = c.source.decode("utf-8", "replace")
        if not text[:1].isdigit() and text[:1] != ".":
            raise Unknown("a floating-point number whose text is not at hand")
        return typed(z3.BitVec(f"real {text}", width_of(c.type)), c.type)

    def list_value(self, c: ir.ListValue) -> Any:
        """`int x{3};`"""
        if len(c.items) > 1 or c.type.kind in WHOLES:
            raise Unknown("a list of values")
        return self.value(c.items[0]) if c.items else Int(z3.BitVecVal(0, width_of(c.type)), False)

    def conversion(self, c: ir.Converted) -> Any:
        target = c.bare
        refers = isinstance(target, ir.Call) and target.to is not None and target.to.result.is_reference
        if self.cpp and refers and not c.type.is_reference and c.type.kind != "record":
            return converted(self.places.load(target), c.type)
        if isinstance(target, ir.Name) and isinstance(target.to, ir.Function):
            return self.value(target)
        return converted(self.value(c.inside), c.type)

    def intrinsic(self, c: ir.Intrinsic) -> Any:
        """An atomic operation: a barrier, after which its object has an arbitrary value."""
        if not c.operands or c.operands[0].type.kind != "pointer":
            raise Unknown(f"an expression of the compiler's own: {c.pretty}")
        places = [x.bare for x in c.operands]
        targets = [x.operand.bare for x in places if isinstance(x, ir.Unary | ir.Step)]
        plain = [x for x, p in zip(c.operands, places, strict=True) if not isinstance(p, ir.Unary | ir.Step)]
        values = tuple(bits_of(self.value(x)) for x in plain)
        variables = [(x.name, x.variable) for x in targets if isinstance(x, ir.Name)]
        call = self.hardware.call(f"atomic {' '.join([c.name, *(name for name, _ in variables)])}", values)
        for name, variable in variables:
            if variable is not None:
                scope, key = self.places.scope(variable)
                scope[key] = symbol(f"{name}?{call}", variable.type)
        if len(variables) < len(targets) or None in [v for _, v in variables]:
            raise Unknown("an atomic object in memory")
        return None if c.type.kind == "void" else symbol(f"atomic?{call}", c.type)

    def offset(self, c: ir.OffsetOf) -> Int:
        value = self.side.offset(c)
        if value is None:
            raise Unknown("offsetof of something")
        return Int(z3.BitVecVal(value, width_of(c.type)), False)

    def name(self, c: ir.Name) -> Any:
        d = c.to
        if isinstance(d, ir.Function):
            return Pointer(z3.BitVec(f"function {d.full_name}", ADDRESS))
        if isinstance(d, ir.Constant):
            return Int(z3.BitVecVal(d.value, width_of(c.type)), c.type.signed)
        if not isinstance(d, ir.Variable):
            raise Unknown(f"the name '{c.name}'")
        if self.places.in_memory(d) or (self.cpp and d.type.is_reference):
            return self.places.load(c)
        if d.name in self.dialect.devices and d.key not in self.env:
            return self.side.device(d)
        if c.type.is_volatile:
            return symbol(f"read?{self.memory.access('r', self.places.own_name(d), d.type.size, (), d.name)}", d.type)
        if (constant := self.places.constant_of(c)) is not None:
            return constant
        variables, name = self.places.scope(d)
        if name not in variables:
            calls = f"!{self.hardware.calls}" if variables is self.memory.globals else ""
            variables[name] = symbol(f"global {name}{calls}", d.type)
        return variables[name]

    def unary(self, c: ir.Unary) -> Any:
        if c.operator == "&":
            return self.places.address(c.operand)
        if c.operator == "*":
            return self.places.load(c)
        value = self.value(c.operand)
        return flag(z3.Not(truth(value))) if c.operator == "!" else negated(c.operator, value)

    def step(self, c: ir.Step) -> Any:
        return self.side.modify(c)[not c.after]

    def assignment(self, c: ir.Assignment) -> Any:
        if not c.operator:
            if c.left.type.kind == "record" and not self.dialect.group_of(c.left.type)[0]:
                at = self.places.plain_object(c.left)
                return self.memory.copy(at, self.places.plain_object(c.right), c.left.type)
            return self.side.assign(c.left, c.right)
        return self.side.modify(c)[1]

    def comma(self, c: ir.Comma) -> Any:
        self.value(c.left)
        return self.value(c.right)

    def logical(self, c: ir.Logical) -> Int:
        first = self.decide(c.left)
        decided = first == (c.operator == "||")
        return flag(z3.BoolVal(first if decided else self.decide(c.right)))

    def binary(self, c: ir.Binary) -> Any:
        left, right = self.unordered(lambda: self.value(c.left), lambda: self.value(c.right))
        return self.arithmetic(c.operator, left, right, c.left.type)

    def unordered(self, *parts: Callable[[], Any]) -> list[Any]:
        """The values of parts of an expression whose order C leaves open, evaluated from left to right.

        If several parts have events, a compiler may choose another order: `open_orders` records where each part ends.
        """
        values, ends = list[Any](), [self.hardware.count]
        for part in parts:
            values.append(part())
            ends += [self.hardware.count] if self.hardware.count != ends[-1] else []
        if len(ends) > 2 and self.side.in_order:
            self.hardware.open_orders.append(tuple(ends))
        return values

    def choice(self, c: ir.Choice) -> Any:
        first = self.value(c.condition)
        yes = self.decisions.decide(truth(first))
        chosen = c.yes if yes else c.no
        return converted(first if chosen is None else self.value(chosen), c.type)

    def arithmetic(self, operator: str, a: Any, b: Any, type_: CType) -> Any:
        if not isinstance(a, Pointer) and not isinstance(b, Pointer):
            return operated(operator, a, b)
        if operator in ("==", "!="):
            x, y = (v.value if isinstance(v, Pointer) else sized(v, ADDRESS) for v in (a, b))
            return flag(x == y if operator == "==" else x != y)
        if operator not in ("+", "-") or not isinstance(a, Pointer) or isinstance(b, Pointer):
            if type_.is_address:
                raise Unknown("arithmetic on addresses")
            return operated(operator, *(Int(v.value, False) if isinstance(v, Pointer) else v for v in (a, b)))
        if not type_.is_address:  # an address as a number
            amount = z3.simplify(b.bits)
            return a.moved(amount.as_long()) if z3.is_bv_value(amount) else a.moved(0, *product_of(b.bits))
        index = number(b)
        return self.places.element(a, Int(index if operator == "+" else -index, True), type_.to)

    # ---- calls

    def call_expression(self, c: ir.Call) -> Any:
        if self.cpp:
            if c.is_construction:
                self.places.object(c)
                return None
            closure = objects.called_closure(self, c)
            if closure is not None:
                return objects.run_closure(self, closure, c)
            objects.check_arguments(c)
            if c.to is not None and c.to.form not in ("function", "method"):
                raise Unknown("an object")
        to = c.to
        if to is not None and self.cpp and to.is_operator:
            group, pointer = self.dialect.group_of(c.type)
            if to.name == "operator=" and group and not pointer:
                return self.side.assign(c.target or c.arguments[0], c.arguments[-1])
            if to.name.endswith("=") and to.name[8:] not in ("==", "!=", "<=", ">="):
                raise Unknown("an operator that assigns")
        this = self.places.object_of(c.target) if c.target and to and to.has_object else self.this
        values = self.arguments(c)
        if to is not None and to.full_name in self.functions and not (to.is_virtual or to.is_weak):
            outer, self.this = self.this, this
            result = self.call(self.functions[to.full_name], values)
            self.this = outer
            return result
        name = to.name if to is not None else "a pointer"
        through = [bits_of(self.value(c.callee))] if to is None and c.callee else []
        through += [this.value] if to is not None and to.has_object else []
        call = self.memory.call(name, (*through, *map(bits_of, values)))
        if to is not None and not to.returns:
            raise EndlessWait
        return None if c.type.kind == "void" else symbol(f"{name}?{call}", c.type)

    def arguments(self, c: ir.Call) -> list[Any]:
        """The values of a call's arguments; for a reference parameter, the address of the object."""
        if not self.cpp or c.to is None:
            return self.unordered(*(partial(self.value, a) for a in c.arguments))
        refers = [p.type.is_reference for p in c.to.expected]
        if len(refers) != len(c.arguments):
            raise Unknown("a call with other arguments than the function has")
        return [objects.bound(self, a) if r else self.value(a) for a, r in zip(c.arguments, refers, strict=True)]

    def call(self, function: ir.Function, arguments: list[Any]) -> Any:
        """Run a function with these arguments; returns its result."""
        if self.separate and self.active and all(isinstance(a, Int | Pointer | Real) for a in arguments):
            again = any(f is function for f in self.active) or self._has_loops(function) or self.has_joins(function)
            if again and function.form in ("function", "method"):
                return self._supposed(function, arguments)
        outer, self.env = self.env, {}
        self.enter(function)
        for p, value in zip(function.parameters, arguments, strict=True):
            self.places.set_parameter(p, value)
        result = None
        try:
            if function.form == "constructor":
                objects.begin_members(self)
            self.statement(body_of(function))
        except Return as done:
            result = done.value
        except Goto:
            raise Unknown("a jump to a label that is nowhere in the function") from None
        self.env = outer
        self.active.pop()
        if result is None and self.active and function.result.kind != "void":  # any value, if its caller uses it
            self.missing += 1
            return symbol(f"no value of {function.full_name}?{self.missing}", function.result)
        return result if result is None else converted(result, function.result)

    def enter(self, function: ir.Function) -> None:
        """Push a function on the call stack. Raises Pruned if it is nested in more than `DEPTH` calls of itself."""
        self.active.append(function)
        if sum(f.name == function.name for f in self.active) > DEPTH:
            raise Pruned

    def has_joins(self, function: ir.Function) -> bool:
        """Whether plain C has joins between which cuts save paths: to one join lead as many as to the end."""
        return self.side.in_order and isinstance(function.body, ir.Block) and len(list(joins(function.body))) > 1

    def _has_loops(self, function: ir.Function) -> bool:
        """Whether a function, or one that it calls, has a loop."""
        name = function.full_name
        if name not in self._loops:
            self._loops[name] = False  # ends the recursion of a function that calls itself
            inside = [x for root in pieces(function) for x in root.all()]
            called = (self.functions.get(x.to.full_name) for x in inside if isinstance(x, ir.Call) and x.to)
            loops = any(isinstance(x, ir.Loop | ir.RangeLoop | ir.Goto) for x in inside)
            self._loops[name] = loops or any(f is not None and self._has_loops(f) for f in called)
        return self._loops[name]

    def _supposed(self, function: ir.Function, arguments: list[Any]) -> Any:
        """Call a function that is supposed to be equal on both sides: the same state and arguments, the same effects.

        A proof that uses it is valid only if that function is proved, too.
        """
        name = function.full_name
        self.supposed.add(name)
        this = (self.this.value,) if function.form != "function" else ()
        call = self.memory.call(name, (*this, *map(bits_of, arguments)))
        return None if function.result.kind == "void" else symbol(f"{name}?{call}", function.result)

    def statement_expression(self, c: ir.Statements) -> Any:
        *statements, last = c.block.statements
        self.inside += 1
        for s in statements:
            self.statement(s)
        value = self.value(last.value) if isinstance(last, ir.Evaluation) else self.statement(last)  # type: ignore[func-returns-value]
        self.inside -= 1
        return value

    # ---- statements

    def statement(self, c: Statement) -> None:
        with self._scope(c):
            STATEMENTS[type(c)](self, c)

    def _scope(self, c: ir.Node) -> AbstractContextManager[None]:
        """The scope that a statement opens in C++."""
        opens = self.cpp and isinstance(c, ir.Block | ir.If | ir.Switch | ir.Loop)
        return objects.scope(self) if opens else nullcontext()

    def evaluation(self, c: ir.Evaluation) -> None:
        with objects.full_expression(self):
            self.value(c.value)

    def block(self, c: ir.Block, label: ir.Node | None = None) -> None:
        """Run the statements of a block, from `label` on if it is given."""
        at = 0
        while at < len(c.statements):
            try:
                if label is not None:
                    at, inner, label = next(i for i, s in enumerate(c.statements) if holds(s, label)), label, None
                    self.enter_at(c.statements[at], inner)
                else:
                    self.statement(c.statements[at])
                if self.heads is not None and self.is_cut() and c is self.active[0].body:
                    self.heads(self, c.statements[at], JOIN)
                at += 1
            except Goto as jump:
                label = next((x for x in c.all() if isinstance(x, ir.Label) and x.name == jump.label), None)
                if label is None:
                    raise

    def label(self, c: ir.Label) -> None:
        """Run a labelled statement. A label that is the target of a backward jump is the head of a loop."""
        if self.heads is not None and self.is_cut() and is_head(body_of(self.active[0]), c):
            self.heads(self, c, 0)
        self.statement(c.body)

    def is_cut(self) -> bool:
        """Whether loops are cut at their heads here: only those of the function itself, not of its callees."""
        return self.heads is not None and len(self.active) == 1 and not self.inside

    def goto(self, c: ir.Goto) -> None:
        self.jumps += c.back and not self.is_cut()
        if self.jumps > POLLS:
            raise Pruned
        raise Goto(c.label)

    def declare(self, d: ir.Declared) -> None:
        """Give a variable its initial value."""
        variable, type_ = d.variable, d.variable.type
        if variable.cleanup:
            raise Unknown("a variable with a cleanup function")
        if variable.storage == "STATIC" or self.side.declare(d):
            return  # a static variable has an arbitrary value, like a global one
        closure = objects.closure_in(self, d.value) if self.cpp and d.value else None
        if closure is not None:
            self.env[variable.key] = closure
        elif self.cpp and type_.is_reference:
            assert d.value is not None
            self.env[variable.key] = objects.bound(self, d.value)
        elif type_.kind == "variable array":
            lengths = [bits_of(self.value(p)) for p in d.sizes]
            name, sorts = f"&{variable.name} #{self.memory.created}", [x.sort() for x in lengths]
            self.memory.created += 1
            at = z3.Function(name, *sorts, z3.BitVecSort(ADDRESS))(*lengths) if lengths else z3.BitVec(name, ADDRESS)
            self.env[variable.key] = Pointer(at)
        elif self.places.in_memory(variable):
            at = self.places.new_object(variable)
            if d.value:
                with objects.full_expression(self):
                    self.places.initialise(at, type_, d.value)
            objects.live(self, at, type_)
        elif d.value:
            self.env[variable.key] = converted(self.value(d.value), type_)
        else:
            self.env[variable.key] = symbol(f"uninitialised {variable.name}", type_)

    def return_(self, c: ir.Return) -> None:
        result = None
        with objects.full_expression(self):
            if c.value:
                refers = self.cpp and self.active[-1].result.is_reference
                result = objects.bound(self, c.value) if refers else self.value(c.value)
        raise Return(result)

    def each(self, statements: tuple[Statement, ...]) -> None:
        for s in statements:
            self.statement(s)

    def if_(self, c: ir.If) -> None:
        self.each(c.before)
        if self.decide(c.condition):
            self.statement(c.then)
        elif c.otherwise:
            self.statement(c.otherwise)

    def ended_by(self, body: Statement, label: ir.Node | None = None) -> bool:
        """Run a loop's body once (from `label` on, if given); returns whether it breaks out of the loop."""
        try:
            if label is None:
                self.statement(body)
            else:
                self.enter_at(body, label)
        except Break:
            return True
        except Continue:
            pass
        return False

    def loop(self, c: ir.Loop, label: ir.Node | None = None) -> None:
        """Run a loop. `label`: where the first turn enters the body."""
        if c.again:
            raise Unknown("a declaration in a condition")
        self.each(c.before)
        if label is None and self.is_poll(c):
            return self._poll(c)
        open_, last, polled = 0, None, (0, 0)
        cut = self.is_cut()
        if label is not None and self.ended_by(c.body, label):
            return
        for turn in range(label is not None, TURNS):
            if cut and self.heads:
                self.heads(self, c.body, min(turn, 1) if c.first else 0)
            before, now = len(self.decisions.asked), self.progress()
            if now == last and not (cut or self.side.in_order):  # it waits for a field: let all fields change
                self.hardware.call("wait", ())
                open_, now = open_ + 1, self.progress()
            last, earlier, polled = now, polled, (before, sum(self.hardware.turns.values()))
            if c.condition is None and turn and not cut:  # the body tests what it has read
                open_ += all(x > y for x, y in zip(polled, earlier, strict=True))
            tested = c.condition if turn or not c.first else None
            if tested is not None and not self.decide(tested):
                return
            open_ += len(self.decisions.asked) > before and not cut
            if open_ > POLLS:
                raise Pruned
            if self.ended_by(c.body):
                return
            if c.step is not None:
                self.value(c.step)
        raise Pruned

    def is_poll(self, c: ir.Node) -> bool:
        """Whether a loop of plain C only evaluates its condition, which has one path and no side effects."""
        if not self.side.in_order or not isinstance(c, ir.Loop) or c.condition is None or c.step or c.before:
            return False
        idle = all(isinstance(x, ir.Block | ir.Empty | ir.Continue) for x in c.body.all())
        return idle and self._is_straight(c.condition, ())

    def _is_straight(self, c: ir.Node, around: tuple[ir.Function, ...]) -> bool:
        for x in c.all():
            to = self.functions.get(x.to.full_name) if isinstance(x, ir.Call) and x.to else None
            if isinstance(x, ir.Call) and (to is None or to.body is None or to in around):
                return False
            if to is not None and not self._is_straight(body_of(to), (*around, to)):
                return False
            if (isinstance(x, BRANCHING) or ir.is_busy(x)) and to is None:
                return False
        return True

    def _poll(self, c: ir.Loop) -> None:
        """Run a loop that waits: one event stands for all turns, and only the last turn is followed.

        The event has the condition for arbitrary values of its reads. If the loop lasts forever, the path ends here.
        """
        assert c.condition is not None
        before = self.hardware.count
        again = truth(self.value(c.condition))
        bit = z3.If(again, z3.BitVecVal(1, 1), z3.BitVecVal(0, 1))
        number = self.hardware.call(f"poll of {self.hardware.count - before} reads", (bit,), text=POLL)
        if self.decisions.decide(z3.BitVec(f"lasts?{number}", 1) == 1):
            raise EndlessWait
        self.decisions.path.append(z3.simplify(z3.Not(again)))

    def range_loop(self, c: ir.RangeLoop) -> None:
        """Run a loop over an array of at most `TURNS` elements, unrolled."""
        d, over = c.declared[0], c.over[0]
        if over.type.kind != "array" or over.type.count > TURNS or self.places.in_memory(d):
            raise Unknown("a loop over a range that is no short array")
        element = over.type.canonical.element
        if element.kind in ("record", "array") or element.is_volatile:
            raise Unknown("a loop over a range of objects")
        for turn in range(over.type.count):
            at = self.places.element(self.places.object(over), Int(z3.BitVecVal(turn, 32), False), element)
            if d.type.is_reference:
                self.env[d.key] = at
            else:
                bits = self.memory.load(width_of(element), at.value)
                self.env[d.key] = converted(typed(bits, element), d.type)
            if self.ended_by(c.body):
                return

    def progress(self) -> tuple[Any, ...]:
        """A summary of the state, equal before and after a turn without effect. Conditions count even if decided."""
        values = [(n, v.bits.get_id()) for n, v in sorted(self.env.items()) if isinstance(v, Int | Real)]
        state = ((key, array.get_id()) for key, array in sorted(self.hardware.state.items()))
        memory = sorted((str(key), array.get_id()) for key, array in self.memory.arrays.items())
        seen = len(self.decisions.asked), self.hardware.count  # stores may repeat
        return *seen, tuple(values), tuple(state), tuple(memory)

    def break_(self, c: ir.Break) -> None:
        raise Break

    def continue_(self, c: ir.Continue) -> None:
        raise Continue

    def switch(self, c: ir.Switch) -> None:
        self.each(c.before)
        chosen = self.value(c.value)
        labels = list(ir.labels(c.body))
        start = next((x for x in labels if x.values and self._is(chosen, x)), None)
        start = start or next((x for x in labels if not x.values), None)
        if start is not None:
            with suppress(Break):
                self.enter_at(c.body, start)

    def _is(self, chosen: Int, label: ir.Case) -> bool:
        """Whether a value matches `case first` or `case first ... last`."""
        first, *last = (x.constant for x in label.values)
        if not last:
            return self.decisions.decide(chosen.bits == first)
        low, high = (compared(o, chosen.bits, x, chosen.signed) for o, x in ((">=", first), ("<=", last[0])))
        return self.decisions.decide(z3.And(low, high))

    def enter_at(self, c: ir.Node, label: ir.Node) -> None:
        """Run a statement from a label inside of it on. Raises Unknown if that is not supported."""
        with self._scope(c):
            if c is label and isinstance(c, ir.Label):
                self.label(c)
            elif c is label and isinstance(c, ir.Case):
                self.statement(c.body)
            elif isinstance(c, ir.Block):
                self.block(c, label)
            elif isinstance(c, ir.Case | ir.Label | ir.If):
                self.enter_at(next(x for x in c.parts if holds(x, label)), label)
            elif isinstance(c, ir.Loop) and c.condition and not (c.before or c.step) and holds(c.body, label):
                self.loop(c, label)
            else:
                raise Unknown("a jump into a statement")

    def assembly(self, c: ir.Assembly) -> None:
        """Treat assembly as an unknown call with the values of all operands, which may change each of them."""
        if c.text is None:
            raise Unknown("assembly whose text is not at hand")
        call = self.memory.call(f"asm {c.text}", tuple(bits_of(self.value(x)) for x in c.operands))
        for i, x in enumerate(o.bare for o in c.operands):
            d = x.variable if isinstance(x, ir.Name) else None
            if d and not self.places.in_memory(d) and not x.type.is_volatile:
                variables, name = self.places.scope(d)
                variables[name] = symbol(f"asm {i}?{call}", d.type)


def is_head(body: ir.Node, label: ir.Label) -> bool:
    """Whether a backward jump in a function's body leads to the label."""
    jumps = (x for x in body.all() if isinstance(x, ir.Goto))
    return any(x.label == label.name and x.span[0] > label.span[0] for x in jumps)


def heads(run: Interpreter, body: ir.Node) -> Iterator[ir.Node]:
    """The heads of loops in a body: loops other than polls, and labels that are targets of backward jumps."""
    for c in body.all():
        if (isinstance(c, ir.Loop) and not run.is_poll(c)) or (isinstance(c, ir.Label) and is_head(body, c)):
            yield c


def joins(body: ir.Block) -> Iterator[ir.Node]:
    """The statements of a function's outermost block behind which paths meet again."""
    for c in body.statements:
        if any(isinstance(x, ir.If | ir.Switch | ir.Choice | ir.Logical) for x in c.all()):
            yield c


def holds(c: ir.Node, inner: ir.Node) -> bool:
    return any(x is inner for x in c.all())


EXPRESSIONS: dict[type[Expression], Callable[[Interpreter, Any], Any]] = {
    ir.Number: Interpreter.integer,
    ir.RealNumber: Interpreter.real_number,
    ir.NullPointer: lambda self, c: Pointer(z3.BitVecVal(0, ADDRESS)),
    ir.String: lambda self, c: Pointer(z3.BitVec(f"text {c.text}", ADDRESS)),
    ir.This: lambda self, c: self.this,
    ir.Name: Interpreter.name,
    ir.ListValue: Interpreter.list_value,
    ir.Parenthesised: lambda self, c: self.value(c.inside),
    ir.Converted: Interpreter.conversion,
    ir.Cast: lambda self, c: self.side.cast(self.value(c.inside), c),
    ir.Intrinsic: Interpreter.intrinsic,
    ir.OffsetOf: Interpreter.offset,
    ir.Generic: lambda self, c: self.constant(c, "_Generic"),
    ir.Unevaluated: lambda self, c: self.constant(c, "sizeof"),
    ir.MemberOf: lambda self, c: self.places.load(c),
    ir.Subscript: lambda self, c: self.places.load(c),
    ir.Unary: Interpreter.unary,
    ir.Step: Interpreter.step,
    ir.Binary: Interpreter.binary,
    ir.Logical: Interpreter.logical,
    ir.Comma: Interpreter.comma,
    ir.Assignment: Interpreter.assignment,
    ir.Choice: Interpreter.choice,
    ir.Call: Interpreter.call_expression,
    ir.Statements: Interpreter.statement_expression,
    ir.Lambda: objects.pass_on,
}
STATEMENTS: dict[type[Statement], Callable[[Interpreter, Any], None]] = {
    ir.Evaluation: Interpreter.evaluation,
    ir.Block: Interpreter.block,
    ir.Empty: lambda self, c: None,
    ir.Declared: Interpreter.declare,
    ir.Declarations: lambda self, c: self.each(c.variables),
    ir.If: Interpreter.if_,
    ir.Loop: Interpreter.loop,
    ir.RangeLoop: Interpreter.range_loop,
    ir.Switch: Interpreter.switch,
    ir.Case: lambda self, c: self.statement(c.body),
    ir.Label: Interpreter.label,
    ir.Goto: Interpreter.goto,
    ir.Break: Interpreter.break_,
    ir.Continue: Interpreter.continue_,
    ir.Return: Interpreter.return_,
    ir.Assembly: Interpreter.assembly,
}
