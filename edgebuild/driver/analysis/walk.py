"""Build the CDFG of a function from its body, in C's order of evaluation.

Where C leaves the order open (operands of most operators, arguments), nodes are in order from left to right, and `path`
records which operands the language sequences. Implicit code of C++ has nodes, too: a destructor at the end of its
scope, a conversion, an iterator. Calls of functions that the text does not define are calls of unknown functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ..source import ir
from ..source.ir import CType, Expression, Statement
from ..source.sources import Source
from .cdfg import MEMORY, Cdfg, Chain, Function, Node, Site, link
from .chains import Chains, Recorder, WholeRegisters, holds_register

HANDLER = re.compile(r"(?i)(^|_)(isr|irq|irq_?handler|interrupt_?handler)$|_handler$")
COPIERS = {"memcpy", "memmove", "memset", "memcmp", "bcopy", "bzero"} | {
    f"__builtin_{f}" for f in ("memcpy", "memmove", "memset", "memcmp")
}
JUMPERS = {"setjmp", "_setjmp", "sigsetjmp", "longjmp", "__builtin_setjmp", "__builtin_longjmp"}
# Instructions that turn interrupts off and on. `cdfg.guarded` recognises them by the end of the node's text.
SWITCHES = (
    (r"\b(cpsid|csrr?ci\b.*mstatus|mstatus.*csrr?ci)", " that turns interrupts off"),
    (r"\b(cpsie|msr\s+primask|csrr?si?\b.*mstatus)", " that turns interrupts on"),
)
NO_VALUE = "a group is not a value", "  use a pointer or a reference to it"


def read_functions(source: Source) -> Cdfg:
    """The CDFG of every function that the unit's own text defines. Raises EdgebuildError for unsupported code."""
    program = source.program
    lambdas = [f for f, _ in program.lambdas.values()]
    functions = {f.full_name: Walker(f, source).run() for f in [*program.functions, *lambdas]}
    return Cdfg(functions, source.offsets)


class Walker:
    """Builds the graph of one function, with one handler per kind of expression or statement."""

    def __init__(self, function: ir.Function, source: Source) -> None:
        self.function, self.source, self.dialect = function, source, source.dialect
        self.cpp = source.unit.cpp
        self.chains = Chains(source.dialect, function)
        if function.body is None:
            raise function.error("a function with a try block is not supported")
        _, around = source.program.lambdas.get(function.span[0], (None, None))
        graph = Function(
            function.full_name,
            function.where,
            function.body.span,
            function.body.where,
            bool(HANDLER.search((around or function).name)),
            function.interrupt,
            function.is_static,
            around.full_name if around is not None else "",
        )
        graph.nodes.append(graph.entry)
        self.graph = Recorder(self.chains, graph, graph.entry)
        self.whole = WholeRegisters(self.graph, self.cpp, self.expression, self.evaluate_chain)
        variables = [x.variable for x in function.body.all() if isinstance(x, ir.Declared)]
        self.chains.locals |= {v.key for v in variables if holds_register(v, self.dialect)}
        self.addressed: set[str] = set()
        self.depth = 0  # nesting of full expressions (statement expressions)
        self.statements = 0
        self.scopes: list[list[str]] = []  # the destructors of the objects in each scope that is open
        self.temporaries = False  # whether the full expression makes objects that it destroys
        self.ends = self.cpp or any(v.cleanup for v in variables)  # whether scopes may end in calls
        self.breaks: list[tuple[Node, int]] = []  # where `break` leads, and how many scopes are open there
        self.continues: list[tuple[Node, int]] = []
        self.labels: dict[str, Node] = {}
        self.cases: list[list[tuple[ir.Case, Node]]] = []  # of the enclosing switches
        self.critical: list[int] = []  # length of `breaks` inside of each enclosing bf_critical

    def run(self) -> Function:
        f, graph = self.function, self.graph.function
        for p in f.parameters:
            self.check_no_group(p)
        for first in f.initialisers if self.cpp and f.form != "lambda" else ():
            self.initialiser(first.value)
        assert f.body
        self.statement(f.body)
        self.whole.find_homes()
        self.graph.goto(graph.exit)
        graph.nodes.append(graph.exit)
        for access in graph.accesses:  # a variable whose address is taken may change at any time
            if access.variables & self.addressed:
                access.key = (None,) * len(access.key)
        return graph

    # ---- code that a driver must not have

    def check_no_group(self, d: ir.Variable) -> None:
        """Raise EdgebuildError for a variable that is a group, which C would take for memory."""
        element = d.type
        name, pointer = self.dialect.group_of(element)
        while element.written in ("array", "variable array"):
            element = element.element
            name, pointer = self.dialect.group_of(element)
        if name and not pointer:
            text = f"'{d.name}': a group cannot be a variable or be passed by value"
            raise d.error(text, f"  use a pointer: bfGroup {name} *{d.name}")

    def check_no_fields(self, roots: Iterable[ir.Node], what: str) -> None:
        for x in (x for root in roots for x in root.all() if isinstance(x, ir.MemberOf)):
            if x.member and x.member.owner in self.dialect.groups:
                raise x.error(f"{what} cannot use a field", "  read it into a variable")

    def check_not_bound(self, c: Expression) -> None:
        """Raise EdgebuildError where a reference would be bound to a field."""
        chain = self.chains.read(c) if isinstance(c, ir.MemberOf | ir.Subscript | ir.Unary) else None
        if chain and chain.is_field and not chain.local:
            raise c.error(
                f"a bit field has no address, and no reference: '{chain.end_name}'", "  read it into a variable"
            )

    # ---- full expressions, declarations, and objects that are destroyed

    def full_expression(
        self, c: Expression, used: bool = True, wrap: bool = True, targets: tuple[Node, Node] | None = None
    ) -> None:
        """Walk an expression that is no part of another one. With `targets` (true, false) it is a condition."""
        graph, outer = self.graph, self.graph.path
        self.statements += 1
        if self.depth:  # inside of a statement expression
            graph.path = (*outer, ("s", self.statements))
        else:
            graph.start(c.span if wrap and not c.is_left_out else None)
        self.depth += 1
        if targets:
            self.condition(c, *targets)
        else:
            self.expression(c, used)
        self.depth -= 1
        graph.path = outer
        if self.temporaries and graph.current:
            graph.node("call", at=c)
        self.temporaries = False

    def declared(self, d: ir.Declared) -> None:
        type_, value = d.variable.type, d.value
        if self.cpp and type_.is_reference and value:
            self.check_not_bound(value.bare)
        if not self.whole.declare(d):
            self.check_no_group(d.variable)
            for size in d.sizes:
                if type_.written == "variable array":
                    self.full_expression(size, wrap=False)
                else:
                    self.unevaluated(size)
            listed = isinstance(value, ir.ListValue)
            if value and type_.written == "array" and not listed:
                self.unevaluated(value)
            elif value:
                self.full_expression(value, wrap=not listed)
            self.graph.node("assign", at=d, text=d.variable.key)
        name = None
        if type_.is_reference:
            name = self.kept_alive(value) if value else None
        elif self.cpp:
            name = self.destructor(type_)
        name = d.variable.cleanup or name
        if name is not None and self.scopes:
            self.temporaries = False
            self.scopes[-1].append(name)

    def kept_alive(self, value: Expression) -> str | None:
        """The destructor of a temporary object whose life a reference extends."""
        objects = (x for x in value.all() if isinstance(x, ir.Call) or (isinstance(x, ir.Cast) and x.form == "value"))
        return next((n for n in (self.destructor(x.type) for x in objects) if n is not None), None)

    def destructor(self, type_: CType) -> str | None:
        """The name of the function that ends an object's life; None where nothing happens."""
        while type_.written == "array":
            type_ = type_.element
        if type_.kind == "dependent":
            return f"~{type_.name}"  # a template parameter's type is not known here
        class_ = type_.record
        if class_ is None or self.dialect.group_of(type_)[0]:
            return None
        if class_.destructor is not None:
            return class_.destructor.full_name
        inner = [*class_.bases, *(f.type for f in type_.fields)]
        return f"~{class_.name}" if any(self.destructor(t) for t in inner) else None

    def initialiser(self, c: Expression) -> None:
        """Walk a member initialiser of a constructor, or the call of a base's constructor."""
        before = len(self.graph.function.sites)
        self.full_expression(c, wrap=False)
        if len(self.graph.function.sites) > before:
            raise c.error("a field in front of a constructor's body is not supported", "  assign it in the body")

    def leave(self, depth: int) -> None:
        """Destroy the objects of all scopes but the outermost `depth`, if this point is reachable."""
        for names in reversed(self.scopes[depth:]):
            for name in reversed(names):
                if self.graph.current:
                    self.graph.node("call", text=name)

    # ---- expressions

    def expression(self, c: Expression, used: bool = True) -> None:
        """Walk an expression by its handler; without one, its operands in order."""
        chain = self.chains.read(c) if isinstance(c, ir.MemberOf | ir.Subscript | ir.Unary) else None
        register = self.chains.number(c)
        handler: Callable[[Walker, Any, bool], None] | None = EXPRESSIONS.get(type(c))
        if chain:
            self.read_chain(c, chain)
        elif register:
            self.whole.read_number(register, c)
        elif handler:
            handler(self, c, used)
        else:
            self.operands([x for x in c.parts if isinstance(x, Expression)])
            self.check_volatile(c)

    def operands(self, operands: Iterable[Expression]) -> None:
        self.in_turn([("u", i, partial(self.expression, x)) for i, x in enumerate(operands)])

    def in_turn(self, steps: Iterable[tuple[str, int, Callable[[], None]]]) -> None:
        """Walk parts of an expression, each with "s" (sequenced) or "u" (unsequenced) and its number in `path`."""
        outer = self.graph.path
        for sequencing, number, step in steps:
            self.graph.path = (*outer, (sequencing, number))
            step()
        self.graph.path = outer

    def sides(self, left: Callable[[], None], right: Callable[[], None]) -> None:
        """Walk the sides of an assignment: C leaves their order open, C++ evaluates the right side first."""
        steps = [("u", 0, left), ("u", 1, right)]
        self.in_turn(reversed(steps) if self.cpp else steps)

    def check_volatile(self, c: Expression) -> None:
        if c.type.has_effects:
            self.graph.node("barrier", at=c, text="a volatile access")

    def read_chain(self, c: Expression, chain: Chain) -> None:
        """Walk a chain whose value is used."""
        if chain.local:
            self.whole.use("get", c, chain)
        elif chain.is_field and chain.missing:
            raise c.error(f"an array of bit fields has no address: '{chain.end_name}'")
        elif chain.is_field:
            site = self.graph.site("read", c, c)
            self.evaluate_chain(chain)
            site.read = self.graph.access("r", chain, site)
        elif chain.missing or self.cpp:  # C++ copies a group by a call of its constructor
            self.evaluate_chain(chain)
            self.graph.escaped(chain)
        else:
            raise c.error(f"a group is not a value: '{chain.group}'", "  use a pointer to it")

    def evaluate_chain(self, chain: Chain) -> None:
        root = chain.root.bare
        steps: list[tuple[str, int, Callable[[], None]]] = []
        if isinstance(root, ir.Subscript):
            steps.append(("u", 0, lambda: self.operands([root.base, root.index])))
        elif isinstance(root, ir.Unary) and root.operator == "*":
            steps.append(("u", 0, lambda: self.expression(root.operand)))
        else:
            steps.append(("u", 0, lambda: self.expression(chain.root)))
        indices = [(i, s.index) for i, s in enumerate(chain.steps) if s.index is not None]
        rest = [("u", i + 1, partial(self.expression, x)) for i, x in indices]
        self.in_turn([*(steps if not chain.device else ()), *rest])

    def unevaluated(self, c: ir.Node) -> None:
        """sizeof, typeof, _Generic: the expression has a type but is no access."""
        chain = self.chains.read(c) if isinstance(c, ir.MemberOf | ir.Subscript) else None
        if chain and chain.is_field and isinstance(c, Expression):
            self.graph.site("unevaluated", c, c).type = _pointer_to(c.type.canonical)
            return
        for x in c.parts:
            self.unevaluated(x)

    def wrapped(self, c: ir.Wrapped, used: bool) -> None:
        self.expression(c.inside, used)

    def converted(self, c: ir.Converted, used: bool) -> None:
        value = c.bare
        if self.cpp and isinstance(value, ir.Name):  # its value is loaded, and nothing is bound to it
            self.whole.check_value(value)
            self.check_volatile(value)
        else:
            self.expression(c.inside, used)

    def intrinsic(self, c: ir.Intrinsic | ir.OffsetOf, used: bool) -> None:
        self.operands(c.operands)
        if len(c.operands) > 1:  # operations of <stdatomic.h>, which have no kind of their own
            self.graph.node("barrier", at=c, text="an atomic operation")

    def designated(self, c: ir.Designated, used: bool) -> None:
        self.operands([*c.indices, c.value])
        if c.indices:
            self.graph.node("barrier", at=c, text="an atomic operation")

    def name(self, c: ir.Name, used: bool) -> None:
        self.whole.check_value(c)
        self.check_volatile(c)
        if self.cpp and c.variable and not c.variable.type.is_reference:  # a reference may be bound to the variable
            self.addressed.add(c.variable.key)

    def logical(self, c: ir.Logical, used: bool) -> None:
        graph = self.graph
        more, end = graph.floating(), graph.floating()
        targets = (more, end) if c.operator == "&&" else (end, more)

        def right() -> None:
            graph.current = more
            self.expression(c.right)

        self.in_turn([("s", 0, lambda: self.condition(c.left, *targets)), ("s", 1, right)])
        graph.goto(end)
        graph.current = end

    def comma(self, c: ir.Comma, used: bool) -> None:
        left, right = (lambda: self.expression(c.left, used=False)), (lambda: self.expression(c.right, used))
        self.in_turn([("s", 0, left), ("s", 1, right)])

    def condition(self, c: Expression, yes: Node, no: Node) -> None:
        """Walk a condition that branches to `yes` or `no`. An operand of && or || that decides branches at once."""
        inner, graph = c.bare, self.graph
        if isinstance(inner, ir.Logical):
            both, more = inner, graph.floating()
            targets = (more, no) if both.operator == "&&" else (yes, more)

            def right() -> None:
                graph.current = more
                self.condition(both.right, yes, no)

            self.in_turn([("s", 0, lambda: self.condition(both.left, *targets)), ("s", 1, right)])
        elif isinstance(inner, ir.Unary) and inner.operator == "!":
            self.condition(inner.operand, no, yes)
        else:
            self.expression(c)
            value = c.constant
            for target in [yes, no] if value is None else [yes if value else no]:
                if graph.current:
                    link(graph.current, target)
            graph.current = None

    def choice(self, c: ir.Choice, used: bool) -> None:
        graph = self.graph
        starts = [graph.floating(), graph.floating()]
        ends: list[Node | None] = []

        def decide() -> None:
            if c.yes:
                self.condition(c.condition, *starts)
                return
            self.expression(c.condition)
            branch = graph.join()
            link(branch, starts[0])
            ends.append(branch)

        def arm(i: int, value: Expression) -> None:
            graph.current = starts[i]
            self.expression(value)
            ends.append(graph.current)

        arms = [x for x in (c.yes, c.no) if x]
        rest = [("s", i + 1, partial(arm, i, x)) for i, x in enumerate(arms)]
        self.in_turn([("s", 0, decide), *rest])
        graph.join(*ends)

    def assignment(self, c: ir.Assignment, used: bool) -> None:
        if c.operator:
            self.compound(c, used)
        else:
            self.assign(c, c.left, c.right, used)

    def assign(self, c: Expression, left: Expression, right: Expression, used: bool) -> None:
        chain, register = self.chains.read(left), self.chains.number(left.bare)
        if register:
            self.whole.write_number(c, left, register, right, used)
        elif chain and chain.local:
            self.whole.use("set", c, chain, "=", right, used)
        elif self.whole.write(c, left, right, used):
            pass
        elif chain and chain.is_field and not chain.missing:
            site = self.graph.site("assign", c, left, "=", right, used)
            self.sides(lambda: self.evaluate_chain(chain), lambda: self.expression(right))
            site.write = self.graph.access("w", chain, site)
            site.does = self.chains.effect(right)
        else:
            name, pointer = self.dialect.group_of(c.type)
            if chain or (name and not pointer):
                raise c.error("a group cannot be copied", "  assign its fields one by one")
            self.in_turn([("u", 0, lambda: self.lvalue(left)), ("u", 1, lambda: self.expression(right))])
            self.assigned(left)

    def compound(self, c: ir.Assignment, used: bool) -> None:
        chain = self.chains.read(c.left)
        if self.chains.number(c.left.bare):
            text = f"  write: place = place {c.operator} value, which is a load and a store"
            raise c.error("the number of a register is assigned, and not changed", text)
        if chain is None:
            self.lvalue(c.left)
            self.expression(c.right)
            self.assigned(c.left)
        elif chain.local:
            self.whole.use("set", c, chain, c.operator + "=", c.right, used)
        else:
            self.check_single(c, chain)
            site = self.graph.site("compound", c, c.left, c.operator + "=", c.right, used)
            site.does = self.chains.effect(c.right)
            self.sides(lambda: self.read_of(site, chain), lambda: self.expression(c.right))
            site.write = self.graph.access("w", chain, site)

    def step(self, c: ir.Step, used: bool) -> None:
        chain = self.chains.read(c.operand)
        if chain is None:
            self.lvalue(c.operand)
            self.assigned(c.operand)
        elif chain.local:
            self.whole.use("set", c, chain, c.word, None, used)
        else:
            self.check_single(c, chain)
            site = self.graph.site("step", c, c.operand, c.word, None, used)
            self.read_of(site, chain)
            site.write = self.graph.access("w", chain, site)

    def read_of(self, site: Site, chain: Chain) -> None:
        self.evaluate_chain(chain)
        site.read = self.graph.access("r", chain, site)

    def check_single(self, c: Expression, chain: Chain) -> None:
        if not chain.is_field or chain.missing:
            raise c.error("only a single bit field can be assigned to")

    def unary(self, c: ir.Unary, used: bool) -> None:
        chain = self.chains.read(c.operand)
        if chain and chain.local:
            self.operands([c.operand])
        elif c.operator == "&" and chain:
            if chain.is_field:
                text = f"a bit field has no address: '{chain.end_name}'"
                raise c.error(text, "  pass its group, or read it into a variable")
            self.evaluate_chain(chain)
            self.graph.escaped(chain)
        elif c.operator == "&":
            target = c.operand.bare
            if isinstance(target, ir.Name) and target.variable:
                self.whole.check_value(target)
                self.addressed.add(target.variable.key)
            self.lvalue(c.operand)
        else:
            self.expression(c.operand)
            self.check_volatile(c)

    def call(self, c: ir.Call, used: bool) -> None:
        to, arguments = c.to, c.arguments
        objects = (c.target,) if c.target else ()
        for a in (*objects, *arguments) if self.cpp else ():
            if not (to and to.name == "operator=" and self.dialect.group_of(c.type)[0]):
                self.check_not_bound(a)
        if c.is_construction:
            self.constructed(c)
        elif self.cpp and to and to.name == "operator=" and self.dialect.group_of(c.type)[0]:
            self.assign(c, c.target or arguments[0], arguments[-1], used)
        elif self.cpp and to and (to.form != "function" or to.is_operator):
            self.operands([*objects, *arguments])
            self.graph.node("call", at=c, text="" if to.is_virtual else to.full_name)
        else:
            self.plain_call(c)
        if self.cpp:
            if any(x.is_left_out for x in arguments) and _calls_by_default(to):
                self.graph.node("call", at=c)
            self.temporaries = self.temporaries or self.destructor(c.type) is not None

    def plain_call(self, c: ir.Call) -> None:
        name = c.to.name if c.to else ""
        if name in JUMPERS:
            raise c.error(f"{name}() is not supported in a driver")
        if name in COPIERS and any(self.dialect.group_of(a.bare.type)[0] for a in c.arguments):
            raise c.error(f"{name}() on a group: registers are not memory", "  assign its fields one by one")
        if not c.to and c.callee:
            self.expression(c.callee)
        self.operands(c.arguments)
        if c.to and c.to.is_weak:  # the linker may put an unknown function in its place
            self.graph.node("call", at=c)
        self.graph.node("call", at=c, text=name)

    def constructed(self, c: ir.Call) -> None:
        if self.dialect.group_of(c.type)[0]:
            raise c.error(*NO_VALUE)
        self.operands(c.arguments)
        if not c.type.is_pod:
            assert c.to
            self.graph.node("call", at=c, text=c.to.full_name)

    def cast(self, c: ir.Cast, used: bool) -> None:
        if c.form != "c" and self.dialect.group_of(c.type) == (c.type.text, False):
            raise c.error(*NO_VALUE)
        if (group := self.chains.discarded(c)) is not None:
            self.whole.read_number(group, c.inside)
            return
        name, pointer = self.dialect.group_of(c.inside.bare.type)
        plain = c.type.kind == "void" or (c.type.kind == "pointer" and c.type.to.kind == "void")  # `(void)p;`: unused
        if pointer and not plain and self.dialect.group_of(c.type)[0] != name:
            text = f"this cast takes a '{name}' for '{c.type.name}'"
            raise c.error(text, "  the layout of a group is not known in C")
        self.expression(c.inside, c.type.written != "void")

    def list_value(self, c: ir.ListValue, used: bool) -> None:
        self.operands(c.items)
        if self.cpp and c.type.kind == "record" and not self.dialect.group_of(c.type)[0]:
            self.temporaries = self.temporaries or self.destructor(c.type) is not None
            if not c.type.is_pod:  # members without a value may call constructors
                self.graph.node("call", at=c)

    def sizeof(self, c: ir.Unevaluated, used: bool) -> None:
        for x in c.operands:
            self.unevaluated(x)

    def generic(self, c: ir.Generic, used: bool) -> None:
        self.unevaluated(c.controller)
        for x in c.chosen:
            if any(self.chains.read(y) for y in x.all() if isinstance(y, ir.MemberOf)):
                text = "a field in the selected part of _Generic is not supported"
                raise x.error(text, "  read it into a variable first")
            self.expression(x)

    def statement_expression(self, c: ir.Statements, used: bool) -> None:
        self.statement(c.block)

    def closure(self, c: ir.Lambda, used: bool) -> None:
        """Walk the creation of a lambda; its body is a function of its own."""
        defaults = (p.default for p in c.function.parameters)
        self.check_no_fields(
            [*c.captured, *(x for x in defaults if x)], "what a lambda captures, or a default argument,"
        )
        names = (x.variable for x in c.body.all() if isinstance(x, ir.Name))
        self.addressed |= {v.key for v in names if v}
        self.graph.node("assign", at=c, text=MEMORY)

    def allocation(self, c: ir.Allocation, used: bool) -> None:
        self.operands(c.operands)
        self.graph.node("call", at=c)

    def lvalue(self, c: Expression) -> None:
        """Walk the operands of an lvalue that is written, or whose address is taken."""
        inner = c.bare
        if isinstance(inner, ir.Name):
            self.whole.check_value(inner)
        else:
            self.operands([x for x in inner.parts if isinstance(x, Expression)])

    def assigned(self, left: Expression) -> None:
        """Record that an lvalue gets a value. In C++, `(a ? b : c) = 1` and `++(++a)` have one, too."""
        target = left.bare
        variable = target.variable if isinstance(target, ir.Name) else None
        if target.type.has_effects:
            self.check_volatile(target)
        elif variable:
            self.graph.node("assign", at=target, text=variable.key)
            refers = any(t.kind == "record" or t.is_reference for t in (target.type, variable.type))
            if refers or not variable.lives_in(self.function):
                self.graph.node("assign", at=target, text=MEMORY)
        else:
            self.graph.node("assign", at=target, text=MEMORY)
        if self.cpp and not isinstance(target, ir.Name):
            for x in left.all():
                if isinstance(x, ir.Name) and x.variable:
                    self.graph.node("assign", at=x, text=x.variable.key)

    # ---- statements

    def statement(self, c: Statement) -> None:
        handler: Callable[[Walker, Any], None] = STATEMENTS[type(c)]
        if not self.ends or not isinstance(c, ir.Block | ir.If | ir.Loop | ir.RangeLoop | ir.Switch):
            handler(self, c)
            return
        self.scopes.append([])
        handler(self, c)
        self.leave(len(self.scopes) - 1)
        self.scopes.pop()

    def each(self, statements: Iterable[Statement]) -> None:
        for s in statements:
            self.statement(s)

    def declarations(self, c: ir.Declarations) -> None:
        plain = next((d.variable for d in c.variables if not holds_register(d.variable, self.dialect)), None)
        if plain and any(holds_register(d.variable, self.dialect) for d in c.variables):
            text = f"'{plain.name}' holds no register, and is declared with a variable that does: declare it alone"
            raise plain.error(text)
        self.each(c.variables)
        self.check_no_fields(c.uses, "a declaration inside of a function")

    def branch(self, condition: Expression) -> tuple[Node, Node]:
        yes, no = self.graph.floating(), self.graph.floating()
        self.full_expression(condition, targets=(yes, no))
        return yes, no

    def if_(self, c: ir.If) -> None:
        self.each(c.before)
        yes, no = self.branch(c.condition)
        self.graph.current = yes
        self.statement(c.then)
        end, self.graph.current = self.graph.current, no
        if c.otherwise:
            self.statement(c.otherwise)
        self.graph.join(end, self.graph.current)

    def loop(self, c: ir.Loop) -> None:
        graph = self.graph
        if not c.again:
            self.each(c.before)
        top = graph.join()
        if c.again:
            self.each(c.before)
        tested = c.condition if not c.once else None  # a bf_critical section runs once
        yes, end = self.branch(tested) if tested and not c.first else (top, graph.floating())
        bottom = graph.floating()
        graph.current = yes
        if c.once:
            self.critical.append(len(self.breaks) + 1)
        self.inside(c.body, end, bottom)
        if c.once:
            self.critical.pop()
        graph.goto(bottom)
        graph.current = bottom
        if c.step:
            self.full_expression(c.step, used=False)
        if c.first and tested:
            self.full_expression(tested, targets=(top, end))
        else:
            graph.goto(end if c.once else top)
        graph.current = end

    def inside(self, body: Statement, end: Node, again: Node) -> None:
        self.breaks.append((end, len(self.scopes)))
        self.continues.append((again, len(self.scopes)))
        self.statement(body)
        self.breaks.pop()
        self.continues.pop()

    def range_loop(self, c: ir.RangeLoop) -> None:
        """`for (T x : range)`: the steps of its iterator are calls of unknown functions."""
        graph = self.graph
        for d in c.declared:
            self.check_no_group(d)
        for x in c.over:
            self.full_expression(x, wrap=False)
        top = graph.join()
        for d in c.declared:
            graph.node("assign", at=d, text=d.key)
        graph.node("call", at=c)
        yes, end = graph.floating(), graph.floating()
        for target in (yes, end):
            link(graph.current or top, target)
        graph.current = yes
        self.inside(c.body, end, top)
        graph.goto(top)
        graph.current = end

    def switch(self, c: ir.Switch) -> None:
        graph = self.graph
        self.each(c.before)
        self.full_expression(c.value)
        top, end = graph.join(), graph.floating()
        self.cases.append([])
        self.breaks.append((end, len(self.scopes)))
        graph.current = None
        self.statement(c.body)
        self.breaks.pop()
        cases = self.cases.pop()
        for _, node in cases:
            link(top, node)
        if all(case.values for case, _ in cases):  # no default: possibly no case matches
            link(top, end)
        graph.goto(end)
        graph.current = end

    def case(self, c: ir.Case) -> None:
        self.cases[-1].append((c, self.graph.join()))
        self.statement(c.body)

    def check_stays(self, c: Statement, word: str, leaves: bool = True) -> None:
        if self.critical and leaves:
            raise c.error(f"{word} out of bf_critical: interrupts would stay off")

    def break_(self, c: ir.Break) -> None:
        self.check_stays(c, "break", len(self.breaks) in self.critical[-1:])
        self.jump(*self.breaks[-1])

    def continue_(self, c: ir.Continue) -> None:
        self.jump(*self.continues[-1])

    def jump(self, target: Node, scopes: int) -> None:
        self.leave(scopes)
        self.graph.goto(target)

    def return_(self, c: ir.Return) -> None:
        self.check_stays(c, "return")
        if c.value:
            self.full_expression(c.value)
        self.jump(self.graph.function.exit, 0)

    def goto(self, c: ir.Goto) -> None:
        self.check_stays(c, "goto")
        if any(self.scopes):
            raise c.error("goto past objects that have destructors")
        self.graph.goto(self.target(c.label))

    def label(self, c: ir.Label) -> None:
        label = self.target(c.name)
        self.graph.goto(label)
        self.graph.current = label
        self.statement(c.body)

    def target(self, name: str) -> Node:
        if name not in self.labels:
            self.labels[name] = self.graph.floating()
        return self.labels[name]

    def assembly(self, c: ir.Assembly) -> None:
        for x in c.all():
            if isinstance(x, Expression) and (self.dialect.group_of(x.type)[0] or self.chains.read(x)):
                raise x.error("an asm statement cannot use a group")
        text = c.source.decode("utf-8", "replace")
        switch = next((word for pattern, word in SWITCHES if re.search(pattern, text)), "")
        self.graph.node("barrier", at=c, text=f"an asm statement{switch}")


EXPRESSIONS: dict[type[Expression], Callable[[Walker, Any, bool], None]] = {
    ir.Parenthesised: Walker.wrapped,
    ir.Converted: Walker.converted,
    ir.Intrinsic: Walker.intrinsic,
    ir.OffsetOf: Walker.intrinsic,
    ir.Designated: Walker.designated,
    ir.Name: Walker.name,
    ir.Binary: lambda self, c, used: self.operands([c.left, c.right]),
    ir.Logical: Walker.logical,
    ir.Comma: Walker.comma,
    ir.Choice: Walker.choice,
    ir.Assignment: Walker.assignment,
    ir.Step: Walker.step,
    ir.Unary: Walker.unary,
    ir.Call: Walker.call,
    ir.Cast: Walker.cast,
    ir.ListValue: Walker.list_value,
    ir.Unevaluated: Walker.sizeof,
    ir.Generic: Walker.generic,
    ir.Statements: Walker.statement_expression,
    ir.Lambda: Walker.closure,
    ir.Allocation: Walker.allocation,
}
STATEMENTS: dict[type[Statement], Callable[[Walker, Any], None]] = {
    ir.Evaluation: lambda self, c: self.full_expression(c.value, used=False),
    ir.Block: lambda self, c: self.each(c.statements),
    ir.Empty: lambda self, c: None,
    ir.Declared: Walker.declared,
    ir.Declarations: Walker.declarations,
    ir.If: Walker.if_,
    ir.Loop: Walker.loop,
    ir.RangeLoop: Walker.range_loop,
    ir.Switch: Walker.switch,
    ir.Case: Walker.case,
    ir.Label: Walker.label,
    ir.Goto: Walker.goto,
    ir.Break: Walker.break_,
    ir.Continue: Walker.continue_,
    ir.Return: Walker.return_,
    ir.Assembly: Walker.assembly,
}


def _pointer_to(type_: CType) -> str:
    """C's name of the type of a pointer to `type_`."""
    dims = ""
    while type_.written == "array":
        dims, type_ = f"{dims}[{type_.count}]", type_.element
    return f"{type_.name} (*){dims}" if dims else f"{type_.name} *"


def _calls_by_default(to: ir.Function | None) -> bool:
    """Whether a default argument in the function's declaration may have an effect."""
    defaults = [p.default for p in to.parameters] if to else []
    return not defaults or any(d and any(map(ir.is_busy, d.all())) for d in defaults)
