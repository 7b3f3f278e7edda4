"""The control-data-flow graph of a function: every access of a field, in the order in which C evaluates it.

The graph is at the level of expressions: a node for each field access, call, barrier and change of a variable, and
edges in the order of evaluation. Data flow is what the nodes name: the fields read and written, and the variables that
an access's address depends on (Stahl, section 6.4.1, there built on Clang's own graph)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeVar, cast

from edgebuild.driver.source.clang import Place
from edgebuild.driver.source.dialect import Child, Field, FieldId, Offset
from edgebuild.driver.source.ir import Declared, Expression

Ask = TypeVar("Ask", bound=Callable[..., Any])
MEMORY = "*"  # stands for all objects that a pointer may reach, among the variables of a key


@dataclass(frozen=True)
class Step:
    """One step of a member chain, from the root outwards: `->pads`, then `[i]`."""

    member: str = ""  # of a group
    index: Expression | None = None
    constant: int | None = None  # the index's value, where it is known


@dataclass(frozen=True)
class Prefix:
    """A chain up to a group; `pointer` tells whether the expression is a pointer to the group or the group itself."""

    expression: Expression
    pointer: bool
    group: str


@dataclass(frozen=True)
class Chain:
    """A member chain such as `gpio->pads[i + 1].out`."""

    root: Expression
    device: str  # name of the device at the root; "" for a pointer
    prefixes: tuple[Prefix, ...]  # one per group that the chain goes through, the root's first
    depths: tuple[int, ...]  # number of steps in front of each prefix
    steps: tuple[Step, ...]
    end: Field | Child | None  # None: the root itself
    missing: int  # subscripts that the end still needs to be one element
    local: str = ""  # the variable that holds a register's value, where the root is one

    @property
    def group(self) -> str:
        return self.end.group if isinstance(self.end, Child) else self.prefixes[-1].group

    @property
    def is_field(self) -> bool:
        return isinstance(self.end, Field)

    @property
    def end_name(self) -> str:
        return self.end.name if self.end else ""


@dataclass(eq=False)
class Access:
    """A read or write of one field.

    `key` names the parts of the address, the root's and one per step; equal keys are equal addresses as long as
    `variables` keep their values. A part that has no such name is None.
    """

    kind: str  # "r", "w"
    field: FieldId
    chain: Chain
    key: tuple[str | None, ...]
    variables: frozenset[str]
    where: Place
    site: Site
    node: Node
    full: int  # number of the full expression
    path: tuple[tuple[str, int], ...]  # position in it; "s" for sequenced operands, "u" for unsequenced ones

    @property
    def whole(self) -> bool:
        """Whether it is a part of an access to a whole register, which stands alone."""
        return self.site.form in ("group", "load", "store")

    @property
    def constants(self) -> tuple[int | None, ...]:
        return tuple(s.constant for s in self.chain.steps if not s.member)


@dataclass(eq=False)
class Site:
    """A piece of text that is replaced: a field's member chain, or an assignment to one."""

    form: str
    """"read", "assign", "compound", "step" (++ and --), "unevaluated"; of a whole register "group" (a write) and "load"
    (into a variable), and of such a variable "hold" (its declaration), "make" (from a literal), "copy" (of another),
    "get", "set" and "store" (a write of it)."""
    extent: tuple[int, int]
    left: Expression | Declared
    operator: str = ""
    right: Expression | None = None
    used: bool = True  # whether the expression's value is used
    read: Access | None = None
    write: Access | None = None
    type: str = ""  # that of a pointer to an unevaluated expression; "first", "next": declares a variable
    parts: tuple[
        tuple[Access, Expression | None], ...
    ] = ()  # of a whole register: each field, and its value if it has one
    does: str = ""  # what the right side does: "" (nothing that others see), "reads" fields, "changes" something
    inner: tuple[int, ...] = ()  # the parts whose values do something
    of: Site | None = None  # the load or store of the register that a variable holds
    variable: str = ""
    key: str = ""  # the variable's name, which no other has
    source: str = ""  # in a copy, that of the other one
    field: Chain | None = None  # of a variable that is read or changed
    is_number: bool = False  # whether a whole register is read or written as a number


@dataclass(eq=False)
class Node:
    """`kind`: entry, exit, access, call, barrier, assign (of a variable) or join."""

    kind: str
    where: Place | None = None
    access: Access | None = None
    text: str = ""  # the callee, the variable, or why it is a barrier
    succ: list[Node] = field(default_factory=list, repr=False)
    pred: list[Node] = field(default_factory=list, repr=False)
    answers: dict[Any, Any] = field(default_factory=dict, repr=False)  # `remembered`


@dataclass(eq=False)
class Function:
    """One function: its graph, its accesses, and the pieces of text that they replace."""

    name: str
    where: Place
    body: tuple[int, int]  # bytes of the compound statement
    opens: Place  # its opening brace
    entry: Node
    exit: Node
    nodes: list[Node]
    accesses: list[Access]
    sites: list[Site]
    pointers: list[str]  # groups of which a pointer is made
    starts: dict[int, Node]  # where each full expression begins
    fulls: dict[int, tuple[int, int] | None]  # its text; None where it cannot be wrapped
    handler: bool = False  # by its name an interrupt handler
    interrupt: str | None = None  # declared as one; the name of the interrupt, which may be empty
    static: bool = False
    around: str = ""  # of a lambda, the function that it stands in
    answers: dict[Any, Any] = field(default_factory=dict, repr=False)  # `remembered`

    @property
    def stores(self) -> bool:
        """Whether it changes memory that others may know of, besides registers."""
        return any(n.kind == "assign" and n.text == MEMORY for n in self.nodes)

    @property
    def callees(self) -> set[str]:
        return {n.text for n in self.nodes if n.kind == "call"}


@dataclass(frozen=True)
class Cdfg:
    """All functions of the unit that have a body, by name."""

    functions: dict[str, Function]
    offsets: tuple[Offset, ...] = ()


def link(before: Node, after: Node) -> None:
    if after not in before.succ:
        before.succ.append(after)
        after.pred.append(before)


def reach(
    starts: Iterable[Node], step: Callable[[Node], list[Node]], avoid: AbstractSet[Node] = frozenset()
) -> set[Node]:
    """The nodes that can be reached from `starts` (these included) without going through one of `avoid`."""
    seen = {n for n in starts if n not in avoid}
    todo = list(seen)
    while todo:
        for node in step(todo.pop()):
            if node not in seen and node not in avoid:
                seen.add(node)
                todo.append(node)
    return seen


def remembered(question: Ask) -> Ask:
    """Keep the answers with the function or node that is asked, so that they go when it goes.

    Finished graphs are asked again and again: once for the layout, once for the merging.
    """

    def ask(asked: Function | Node, *rest: Node) -> Any:
        key = (question, *rest)
        try:
            return asked.answers[key]
        except KeyError:
            answer = asked.answers[key] = question(asked, *rest)
            return answer

    return cast(Ask, ask)


forward: Callable[[Node], list[Node]] = attrgetter("succ")
backward: Callable[[Node], list[Node]] = attrgetter("pred")


@remembered
def reachable(f: Function) -> set[Node]:
    return reach([f.entry], forward)


@remembered
def _before(f: Function, a: Node) -> set[Node]:
    """The nodes that are reached without `a`."""
    return reach([f.entry], forward, {a})


@remembered
def dominates(f: Function, a: Node, b: Node) -> bool:
    """Every path from the entry to `b` goes through `a`."""
    return a is not b and b not in _before(f, a) and b in reachable(f)


@remembered
def postdominates(f: Function, b: Node, a: Node) -> bool:
    """Every path from `a` to the exit goes through `b`. Endless loops count as paths that never get there."""
    around = reach(a.succ, forward, {b})
    return f.exit not in around and not has_cycle(around)


@remembered
def between(a: Node, b: Node) -> frozenset[Node]:
    """The nodes on paths from `a` to `b`, without both."""
    return frozenset((reach(a.succ, forward, {a}) & reach(b.pred, backward, {a})) - {a, b})


@remembered
def _after(a: Node) -> set[Node]:
    return reach(a.succ, forward)


def follows(a: Node, b: Node) -> bool:
    """Whether one of the two can be reached from the other."""
    return b in _after(a) or a in _after(b)


@remembered
def on_cycle_without(b: Node, a: Node) -> bool:
    """Whether `b` can follow itself without `a` in between."""
    return b in reach(b.succ, forward, {a})


def has_cycle(nodes: AbstractSet[Node]) -> bool:
    degree = {n: sum(p in nodes for p in n.pred) for n in nodes}
    ready = [n for n, d in degree.items() if d == 0]
    done = 0
    while ready:
        node = ready.pop()
        done += 1
        for s in node.succ:
            if s in degree:
                degree[s] -= 1
                if degree[s] == 0:
                    ready.append(s)
    return done < len(nodes)


# Contexts: which functions interrupts run, which the rest of the program, and where no interrupt is taken.
#
# A context is the name of a declared interrupt function, or MAIN. What an interrupt may preempt is all of the others:
# the priorities of interrupts are not known here.

MAIN = ""
OFF = {"bf_critical_enter", "__disable_irq", "__disable_interrupt", "taskENTER_CRITICAL", "vPortEnterCritical"}
ON = {"bf_critical_leave", "__enable_irq", "__enable_interrupt", "taskEXIT_CRITICAL", "vPortExitCritical"}
Contexts = Mapping[str, frozenset[str]]  # of each function


def contexts(cdfg: Cdfg) -> Contexts:
    """The contexts that each function runs in: those of its callers, and MAIN where other files may call it.

    A lambda is called by its function, whatever that passes it to.
    """
    found: dict[str, set[str]] = {}
    called = {callee for f in cdfg.functions.values() for callee in f.callees}
    for name, f in cdfg.functions.items():
        outside = not f.around and (not f.static or name not in called)
        found[name] = {name} if f.interrupt is not None else {MAIN} if outside else set()
    changed = True
    while changed:
        changed = False
        for name, f in cdfg.functions.items():
            for callee in (f.callees & found.keys()) | {n for n, g in cdfg.functions.items() if g.around == name}:
                more = found[name] - found[callee]
                changed = changed or bool(more)
                found[callee] |= more
    return {name: frozenset(c) for name, c in found.items()}


def preempts(theirs: frozenset[str], mine: frozenset[str]) -> bool:
    """Whether an interrupt among `theirs` may be taken while something of `mine` runs."""
    return any(x != MAIN and y != x for x in theirs for y in mine)


@dataclass(frozen=True)
class Visible:
    """Accesses of a function that an interrupt may see: it accesses the same fields, and one of both writes."""

    reads: frozenset[FieldId] = frozenset()  # by functions that may preempt this one
    writes: frozenset[FieldId] = frozenset()
    off: frozenset[Node] = frozenset()  # where interrupts are off

    def __contains__(self, a: Access) -> bool:
        mine = a.field in self.writes or (a.kind == "w" and a.field in self.reads)
        return mine and a.node not in self.off


def visible(cdfg: Cdfg) -> Mapping[str, Visible]:
    """Accesses of each function that interrupts may see; nothing where none is declared."""
    if not any(f.interrupt is not None for f in cdfg.functions.values()):
        return {}
    runs = contexts(cdfg)
    found = {}
    for name, f in cdfg.functions.items():
        others = [g for n, g in cdfg.functions.items() if preempts(runs[n], runs[name])]
        reads, writes = (frozenset(a.field for g in others for a in g.accesses if a.kind == k) for k in "rw")
        found[name] = Visible(reads, writes, guarded(f))
    return found


def guarded(f: Function) -> frozenset[Node]:
    """The nodes at which interrupts are off, whatever way led there."""
    off: dict[Node, bool] = {f.entry: False}
    todo = [f.entry]
    while todo:
        node = todo.pop()
        after = off[node]
        if (node.kind == "call" and node.text in OFF) or node.text.endswith("turns interrupts off"):
            after = True
        elif (node.kind == "call" and node.text in ON) or node.text.endswith("turns interrupts on"):
            after = False
        for s in node.succ:
            new = after and off.get(s, True)
            if s not in off or off[s] != new:
                off[s] = new
                todo.append(s)
    return frozenset(n for n, is_off in off.items() if is_off)
