"""The control-data-flow graph of a function: every access of a field, in the order in which C evaluates it.

The graph is at the level of expressions: a node for each field access, call, barrier and change of a variable, and
edges in the order of evaluation. Data flow is what the nodes name: the fields read and written, and the variables that
an access's address depends on (Stahl, section 6.4.1, there built on Clang's own graph)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ..source.clang import Place
from ..source.dialect import Child, Field, FieldId, Offset
from ..source.ir import Declared, Expression

MEMORY = "*"  # among the variables of a key: all objects that a pointer may reach


@dataclass(frozen=True)
class Step:
    """One step of a member chain, from the root outwards: `->pads`, then `[i]`."""

    member: str = ""  # of a group
    index: Expression | None = None
    constant: int | None = None  # value of the index, if it is constant


@dataclass(frozen=True)
class Prefix:
    """A chain up to a group. `pointer`: whether the expression is a pointer to the group, or the group itself."""

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
    missing: int  # subscripts that still lack to reach one element of `end`
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
    `variables` keep their values. A part that cannot be compared is None.
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
        """Whether it is a part of an access to a whole register, which is never merged."""
        return self.site.form in ("group", "load", "store")

    @property
    def constants(self) -> tuple[int | None, ...]:
        return tuple(s.constant for s in self.chain.steps if not s.member)


@dataclass(eq=False)
class Site:
    """A piece of the source that is rewritten: a field's member chain, or an assignment to one."""

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
    type: str = ""  # of a pointer to an unevaluated expression; "first" or "next" variable of a declaration
    parts: tuple[
        tuple[Access, Expression | None], ...
    ] = ()  # of a whole register: each field, and its value if it has one
    does: str = ""  # effect of the right side: "" (none), "reads" fields, "changes" something
    inner: tuple[int, ...] = ()  # indices of the parts whose values have an effect
    of: Site | None = None  # the load or store of the register that a variable holds
    variable: str = ""
    key: str = ""  # unique name of the variable
    source: str = ""  # of a copy: `key` of the variable that is copied
    field: Chain | None = None  # field of the variable that is read or changed
    node: Node | None = None  # where a variable gets its value, or is used
    is_number: bool = False  # whether a whole register is read or written as a number


@dataclass(eq=False)
class Node:
    """`kind`: entry, exit, start (of a full expression), access, call, barrier, assign (of a variable) or join."""

    kind: str
    where: Place | None = None
    access: Access | None = None
    text: str = ""  # the callee, the variable, or why it is a barrier
    succ: list[Node] = field(default_factory=list, repr=False)
    pred: list[Node] = field(default_factory=list, repr=False)


@dataclass(eq=False)
class Function:
    """One function: its graph, its accesses, and the pieces of source that are rewritten."""

    name: str
    where: Place
    body: tuple[int, int]  # bytes of the compound statement
    opens: Place  # its opening brace
    handler: bool  # whether its name looks like that of an interrupt handler
    interrupt: str | None  # name of the interrupt (possibly "") if declared as its handler
    static: bool
    around: str  # enclosing function of a lambda
    entry: Node = field(default_factory=lambda: Node("entry"))
    exit: Node = field(default_factory=lambda: Node("exit"))
    nodes: list[Node] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    pointers: list[str] = field(default_factory=list)  # groups whose address is taken
    starts: dict[int, Node] = field(default_factory=dict)  # where each full expression begins
    fulls: dict[int, tuple[int, int] | None] = field(default_factory=dict)  # span of each; None: cannot be wrapped

    @cached_property
    def reachability(self) -> Reachability:
        return Reachability(self.nodes, self.entry, self.exit)

    @property
    def stores(self) -> bool:
        """Whether it writes memory, other than registers, that other code may access."""
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


class Reachability:
    """Reachability and dominance in a finished graph.

    A set of nodes is an integer with a bit for each index in `nodes`. So sets of thousands of nodes are intersected in
    one operation, and queries about two nodes need no walk through the graph.
    """

    def __init__(self, nodes: list[Node], entry: Node, exit: Node) -> None:
        self.nodes = nodes
        self.numbers = {n: i for i, n in enumerate(nodes)}
        self.entry, self.exit = self.numbers[entry], self.numbers[exit]
        self.edges = {False: self._numbered("succ"), True: self._numbered("pred")}
        self.inner_first = self._inner_first()
        self.after, self.before = self.reached(), self.reached(back=True)
        self.cycles = self.cycles_avoiding(0)
        self._without: dict[int, int] = {}  # `cycles_without`
        self._last: tuple[int, list[int]] = -1, []  # `_dominated_towards`

    def _numbered(self, side: str) -> list[list[int]]:
        return [[self.numbers[n] for n in getattr(node, side)] for node in self.nodes]

    def _inner_first(self) -> list[int]:
        """All nodes in postorder: each after its successors, except along the back edges of loops."""
        order: list[int] = []
        seen = set[int]()
        for first in (self.entry, *range(len(self.nodes))):
            todo = [] if first in seen else [(first, iter(self.edges[False][first]))]
            seen.add(first)
            while todo:
                rest = todo[-1][1]
                following = next((s for s in rest if s not in seen), None)
                if following is None:
                    order.append(todo.pop()[0])
                else:
                    seen.add(following)
                    todo.append((following, iter(self.edges[False][following])))
        return order

    def _fixed_point(self, values: list[int], order: list[int], value: Callable[[int], int]) -> list[int]:
        """Compute the value of each node, which depends on those of its neighbours, up to the fixed point."""
        changed = True
        while changed:
            changed = False
            for n in order:
                new = value(n)
                if new != values[n]:
                    values[n], changed = new, True
        return values

    def reached(self, avoid: int = 0, back: bool = False) -> list[int]:
        """The nodes after each node (`back`: before it), on paths that avoid the nodes `avoid`."""
        edges, order = self.edges[back], self.inner_first[::-1] if back else self.inner_first
        values = [0] * len(self.nodes)

        def value(n: int) -> int:
            result = 0
            for s in edges[n]:
                if not avoid >> s & 1:
                    result |= 1 << s | values[s]
            return result

        return self._fixed_point(values, order, value)

    def cycles_avoiding(self, avoid: int) -> int:
        """The nodes on cycles that avoid the nodes `avoid`."""
        return sum(nodes & 1 << n for n, nodes in enumerate(self.reached(avoid)))

    def set_of(self, nodes: Iterable[Node]) -> int:
        return sum(1 << n for n in {self.numbers[x] for x in nodes})

    def first(self, nodes: int) -> Node:
        return self.nodes[(nodes & -nodes).bit_length() - 1]

    @cached_property
    def _dominators(self) -> list[int]:
        return self._on_all_paths(self.entry, [n for n in self.inner_first[::-1] if n != self.entry], back=True)

    def _on_all_paths(self, end: int, order: list[int], back: bool = False) -> list[int]:
        """For each node of `order`, itself and those that all its paths to `end` (`back`: from there) go through."""
        values = [-1] * len(self.nodes)
        values[end] = 1 << end

        def value(n: int) -> int:
            result = -1
            for s in self.edges[back][n]:
                result &= values[s]
            return result | 1 << n

        return self._fixed_point(values, order, value)

    @cached_property
    def _postdominators(self) -> list[int]:
        """For each node, those that all paths from it go through. A dead end other than the exit excludes none."""
        values = [0] * len(self.nodes)

        def value(n: int) -> int:
            result = 0 if n == self.exit else -1
            for s in self.edges[False][n]:
                result &= values[s] | 1 << s
            return result

        return self._fixed_point(values, self.inner_first, value)

    def dominates(self, a: Node, b: Node) -> bool:
        """Whether every path from the entry to `b` goes through `a`, and there is one."""
        i, j = self.numbers[a], self.numbers[b]
        return (
            i != j and self._dominators[j] >> i & 1 == 1 and (j == self.entry or self.after[self.entry] >> j & 1 == 1)
        )

    def postdominates(self, b: Node, a: Node) -> bool:
        """Whether every path from `a` goes through `b`. An endless loop without `b` is such a path."""
        return self._postdominators[self.numbers[a]] >> self.numbers[b] & 1 == 1

    def between(self, a: Node, b: Node) -> int:
        """The nodes on paths from `a` to `b`, without both. `a` must dominate `b` and be on all cycles of `b`."""
        i, j = self.numbers[a], self.numbers[b]
        if not self.cycles >> i & 1:
            return self.after[i] & self.before[j] & ~(1 << j)
        if self._last[0] != j:
            self._last = j, self._dominated_towards(j)
        return self.after[i] & self.before[j] & ~(self._last[1][i] | 1 << j)

    def on_cycle_without(self, b: Node, a: Node) -> bool:
        """Whether `b` can follow itself without `a` in between."""
        return self.cycles_without(a) >> self.numbers[b] & 1 == 1

    def cycles_without(self, a: Node) -> int:
        """The nodes that can follow themselves without `a` in between."""
        i = self.numbers[a]
        if not self.cycles >> i & 1:
            return self.cycles
        first = self._lines[i]
        if first not in self._without:
            self._without[first] = self.cycles_avoiding(1 << first)
        return self._without[first]

    @cached_property
    def _lines(self) -> list[int]:
        """For each node, the first one of its basic block: a sequence without branches into it or out of it."""
        firsts = list(range(len(self.nodes)))
        for n in self.inner_first[::-1]:
            before = self.edges[True][n]
            if len(before) == 1 and len(self.edges[False][before[0]]) == 1:
                firsts[n] = firsts[before[0]]
        return firsts

    def _dominated_towards(self, end: int) -> list[int]:
        """For each node, itself and those whose paths to `end` all go through it: subtrees of the dominator tree."""
        order = [n for n in self.inner_first if n != end and self.before[end] >> n & 1]
        values = self._on_all_paths(end, order)
        owners = {values[n]: n for n in (*order, end)}
        through = [1 << n for n in range(len(self.nodes))]
        for n in sorted(order, key=lambda n: -values[n].bit_count()):
            through[owners[values[n] & ~(1 << n)]] |= through[n]
        return through


# Contexts: which functions interrupts run, which the rest of the program runs, and where interrupts are off.
#
# A context is the name of a declared interrupt function, or MAIN. An interrupt may preempt every other context, since
# priorities of interrupts are not known here.

MAIN = ""
OFF = {"bf_critical_enter", "__disable_irq", "__disable_interrupt", "taskENTER_CRITICAL", "vPortEnterCritical"}
ON = {"bf_critical_leave", "__enable_irq", "__enable_interrupt", "taskEXIT_CRITICAL", "vPortExitCritical"}
Contexts = Mapping[str, frozenset[str]]  # of each function


def contexts(cdfg: Cdfg) -> Contexts:
    """The contexts that each function runs in: those of its callers, and MAIN where other files may call it.

    A lambda counts as called by its enclosing function, wherever that passes it.
    """
    runs: dict[str, set[str]] = {}
    called = {callee for f in cdfg.functions.values() for callee in f.callees}
    for name, f in cdfg.functions.items():
        outside = not f.around and (not f.static or name not in called)
        runs[name] = {name} if f.interrupt is not None else {MAIN} if outside else set()
    changed = True
    while changed:
        changed = False
        for name, f in cdfg.functions.items():
            for callee in (f.callees & runs.keys()) | {n for n, g in cdfg.functions.items() if g.around == name}:
                more = runs[name] - runs[callee]
                changed = changed or bool(more)
                runs[callee] |= more
    return {name: frozenset(c) for name, c in runs.items()}


def preempts(others: frozenset[str], own: frozenset[str]) -> bool:
    """Whether an interrupt among `others` may be taken while one of the contexts `own` runs."""
    return any(x != MAIN and y != x for x in others for y in own)


@dataclass(frozen=True)
class Visible:
    """Accesses of a function that an interrupt may see: it accesses the same fields, and one of both writes."""

    reads: frozenset[FieldId] = frozenset()  # fields that functions read which may preempt this one
    writes: frozenset[FieldId] = frozenset()
    off: frozenset[Node] = frozenset()  # where interrupts are off

    def __contains__(self, a: Access) -> bool:
        changes = a.field in self.writes or (a.kind == "w" and a.field in self.reads)
        return changes and a.node not in self.off


def visible(cdfg: Cdfg) -> Mapping[str, Visible]:
    """Accesses of each function that interrupts may see; empty if no interrupt is declared."""
    if not any(f.interrupt is not None for f in cdfg.functions.values()):
        return {}
    runs = contexts(cdfg)
    by_function = {}
    for name, f in cdfg.functions.items():
        others = [g for n, g in cdfg.functions.items() if preempts(runs[n], runs[name])]
        reads, writes = (frozenset(a.field for g in others for a in g.accesses if a.kind == k) for k in "rw")
        by_function[name] = Visible(reads, writes, guarded(f))
    return by_function


def guarded(f: Function) -> frozenset[Node]:
    """The nodes at which interrupts are off on every path."""
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
