"""Member chains, such as `gpio->pads[i + 1].out`: a root, steps, and an end; and keys, which name addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from ...base.errors import EdgebuildError
from ..source import ir
from ..source.dialect import Child, Dialect, Field
from ..source.ir import Declared, Expression, Span, Variable
from ..source.ir import Node as Piece
from .cdfg import MEMORY, Access, Chain, Function, Node, Prefix, Site, Step, link


class Chains:
    """Parses member chains of one unit. `function`: its variables are local ones in keys."""

    def __init__(self, dialect: Dialect, function: ir.Function | None = None) -> None:
        self.dialect, self.function = dialect, function
        self.locals: set[str] = set()  # variables that hold the value of a register
        self._chains: dict[Expression, Chain | None] = {}

    def read(self, expression: Expression) -> Chain | None:
        """The chain that an expression denotes; None if it is no part of a group."""
        bare = expression.bare
        if bare not in self._chains:
            self._chains[bare] = self._read(bare)
        return self._chains[bare]

    def number(self, c: Expression) -> Expression | None:
        """The group whose register an expression accesses as a number: `*(unsigned int *)&x->R`."""
        cast = c.operand.bare if isinstance(c, ir.Unary) and c.operator == "*" else None
        address = cast.inside.bare if isinstance(cast, ir.Cast) else None
        if not isinstance(address, ir.Unary) or address.operator != "&" or c.type.kind != "number":
            return None
        chain = self.read(address.operand)
        return address.operand if chain and not chain.is_field else None

    def discarded(self, c: Expression) -> Expression | None:
        """The group that is read only for the side effect: `(void)x->R`."""
        if not isinstance(c, ir.Cast) or c.type.kind != "void":
            return None
        chain = self.read(c.inside)
        return c.inside.bare if chain and not (chain.is_field or chain.missing or chain.local) else None

    def effect(self, right: Expression) -> str:
        """Whether the right side "changes" something, only "reads" fields, or may be evaluated at any time ("")."""
        return ir.effect(right, self.read)

    def _read(self, c: Expression) -> Chain | None:
        name, pointer = "", False
        if isinstance(c, ir.MemberOf):
            return self._member(c)
        if isinstance(c, ir.Subscript):
            inner = self.read(c.base)
            if inner and inner.missing:
                return self._indexed(inner, c, c.index)
            name, pointer = self.dialect.group_of(c.type)
        if isinstance(c, ir.Unary) and c.operator == "*":
            name, pointer = self.dialect.group_of(c.type)
            through = self._through(c.operand) if name and not pointer else None
            if through:
                return through
        return self._root(c, name, False) if name and not pointer else None

    def _through(self, pointer: Expression) -> Chain | None:
        """The chain that a pointer points to, if that is computed from a chain: `&a->b`, or the array `a->b`."""
        inner = pointer.bare
        if isinstance(inner, ir.Unary) and inner.operator == "&":
            return self.read(inner.operand)
        chain = self.read(inner)
        if chain and isinstance(chain.end, Child) and chain.missing == 1:
            return self._indexed(chain, inner, None)
        return None

    def _member(self, c: ir.MemberOf) -> Chain | None:
        member, base = c.value_member, c.base
        group = self.dialect.groups.get(member.owner) if member and base else None
        if group is None or base is None or member is None:
            return None
        name, pointer = self.dialect.group_of(base.type)
        inner = self._through(base) if pointer or base.type.written == "array" else self.read(base)
        if inner is None:
            root = base.bare
            variable = root.variable if isinstance(root, ir.Name) else None
            inner = self._root(base, group.name, pointer)
            if variable and variable.key in self.locals:
                inner = replace(self._root(base, group.name, False), local=variable.key)
            elif not pointer and not is_place(root):
                raise c.error(f"a '{name}' that is no part of a device: use a pointer")
        if isinstance(inner.end, Child) and inner.end.dims and inner.steps[-1].constant == inner.end.dims[-1]:
            size = inner.end.dims[-1]
            raise _outside(inner.steps[-1].index or c, size, inner.end.name, size)
        return self._extended(inner, group.member(member.name), base, pointer)

    def _extended(self, inner: Chain, member: Field | Child, base: Expression, pointer: bool) -> Chain:
        prefixes, depths = inner.prefixes, inner.depths
        if isinstance(inner.end, Child) and depths[-1] != len(inner.steps):  # a single child: its group starts here
            prefixes += (Prefix(base, pointer, inner.group),)
            depths += (len(inner.steps),)
        steps = (*inner.steps, Step(member=member.name))
        return Chain(inner.root, inner.device, prefixes, depths, steps, member, len(member.dims), inner.local)

    def elements(self, inner: Chain, at: Expression) -> Iterator[Chain]:
        """The chains of all fields of the group that a chain ends at, with every element of arrays."""
        for member in self.dialect.groups[inner.group].members:
            if isinstance(member, Child):
                raise at.error(f"'{inner.group}' holds other groups: name one that is a register")
            chain = self._extended(inner, member, at, False)
            for index in product(*(range(n) for n in member.dims)):
                steps = (*chain.steps, *(Step(constant=i) for i in index))
                yield replace(chain, steps=steps, missing=0)

    def _indexed(self, inner: Chain, c: Expression, index: Expression | None) -> Chain:
        value = 0 if index is None else index.constant
        assert inner.end is not None
        size = inner.end.dims[len(inner.end.dims) - inner.missing]
        beyond = isinstance(inner.end, Child) and inner.missing == 1  # `&a->b[size]`, one past the end, is legal
        if value is not None and not 0 <= value < size + beyond:
            raise _outside(index or c, value, inner.end.name, size)
        prefixes, depths = inner.prefixes, inner.depths
        steps = (*inner.steps, Step(index=index, constant=value))
        if inner.missing == 1 and isinstance(inner.end, Child):
            prefixes += (Prefix(c, index is None, inner.end.group),)
            depths += (len(steps),)
        return Chain(inner.root, inner.device, prefixes, depths, steps, inner.end, inner.missing - 1, inner.local)

    def _root(self, c: Expression, group: str, pointer: bool) -> Chain:
        bare = c.bare
        variable = bare.variable if isinstance(bare, ir.Name) else None
        is_device = variable is not None and variable.name in self.dialect.devices
        device = variable.name if variable and is_device and variable.is_global else ""  # no local of the same name
        return Chain(c, device, (Prefix(c, pointer, group),), (0,), (), None, 0)

    # ---- keys: accesses with equal keys have one address as long as the key's variables keep their values

    def key(self, chain: Chain) -> tuple[tuple[str | None, ...], frozenset[str]]:
        """The key of a chain, and the variables that it depends on."""
        variables: set[str] = set()
        parts = [f"device:{chain.device}" if chain.device else self._pure(chain.root, variables)]
        for step in chain.steps:
            if step.member:
                parts.append("." + step.member)
            elif step.constant is not None:
                parts.append(f"[{step.constant}]")
            else:
                assert step.index is not None
                index = self._pure(step.index, variables)
                parts.append(None if index is None else f"[{index}]")
        return tuple(parts), frozenset(variables)

    def _pure(self, c: Expression, variables: set[str]) -> str | None:
        """A text that names the expression's value as long as `variables` keep theirs; None if there is none."""
        c = c.bare
        if c.constant is not None:
            return f"({c.constant})"
        match c:
            case ir.Name(to=ir.Variable() as d):
                assert self.function is not None
                local = d.lives_in(self.function)
                if d.name in self.dialect.devices and not local:
                    return f"(device:{d.name})"
                if not self._steady(c, d):
                    return None
                variables |= {d.key} if local else {d.key, MEMORY}
                return f"({d.key})"
            case ir.This():
                return "(this)"
            case ir.MemberOf():
                return self._pure_member(c, variables)
            case ir.Subscript() | ir.Unary(operator="&" | "*"):
                return self._pure_address(c, variables)
            case ir.Binary(operator=operator) | ir.Logical(operator=operator) | ir.Unary(operator=operator):
                pass
            case ir.Cast(form="c" | "static" | "value"):
                operator = c.type.name
            case _:
                return None
        return self._pure_parts(operator, "", c.parts, variables)

    def _pure_parts(self, word: str, between: str, parts: tuple[ir.Node, ...], variables: set[str]) -> str | None:
        names = [self._pure(x, variables) for x in parts if isinstance(x, Expression)]
        return None if None in names else f"({word}{between.join(n or '' for n in names)})"

    def _steady(self, c: Expression, d: ir.Declaration) -> bool:
        """Whether a variable keeps its value until it is assigned. A reference may change with its object."""
        return not c.type.changes and not (d.type.is_reference and not self.dialect.group_of(c.type)[0])

    def _pure_member(self, c: ir.MemberOf, variables: set[str]) -> str | None:
        """`p->hw`, a member of an ordinary struct: a load, whose value stays until something is stored to memory."""
        d = c.value_member
        if d is None or d.bits is not None or c.in_union or not self._steady(c, d) or d.owner in self.dialect.groups:
            return None
        inside = self._pure(c.base, variables) if c.base else "(this)"
        variables |= set() if d.type.is_const or d.type.is_reference else {MEMORY}
        return None if inside is None else f"({inside}.{d.offset})"

    def _pure_address(self, c: Expression, variables: set[str]) -> str | None:
        """`&g->pads[i]`, and `p[i]` and `*p` if they are groups, are addresses. All other forms would be loads."""
        inner = c.operand if isinstance(c, ir.Unary) and c.operator == "&" else c
        chain = self.read(inner)
        if chain and chain.steps:
            parts, used = self.key(chain)
            variables |= used
            return None if None in parts else f"(&{''.join(p or '' for p in parts)})"
        name, pointer = self.dialect.group_of(c.type)
        return self._pure_parts("*", "+", c.parts, variables) if name and not pointer else None


def _outside(index: Expression, value: int, name: str, size: int) -> EdgebuildError:
    return index.error(f"index {value} of '{name}' is not in 0..{size - 1}")


def is_place(root: Expression) -> bool:
    """Whether an expression names an object: an element, `*p`, or a reference of C++."""
    if isinstance(root, ir.Subscript):
        return True
    if isinstance(root, ir.Unary):
        return root.operator == "*"
    to = root.to if isinstance(root, ir.Name | ir.Call) else root.member if isinstance(root, ir.MemberOf) else None
    if to is None:
        return False
    type_ = to.result if isinstance(root, ir.Call) and isinstance(to, ir.Function) else to.type
    return type_.kind == "reference"


# The CDFG of a function under construction: nodes, accesses, and the pieces of source that will be rewritten.

Path = tuple[tuple[str, int], ...]


@dataclass
class Recorder:
    """The graph of one function so far. `path`: the place of an expression in its full expression."""

    chains: Chains
    function: Function
    current: Node | None
    path: Path = ()

    def node(self, kind: str, at: Piece | Variable | None = None, text: str = "") -> Node:
        """A new node behind the current one."""
        before, node = self.current, self.floating(kind, at, text)
        if before:
            link(before, node)
        self.current = node
        return node

    def floating(self, kind: str = "join", at: Piece | Variable | None = None, text: str = "") -> Node:
        """A new node that nothing leads to yet."""
        node = Node(kind, at.where if at is not None else None, text=text)
        self.function.nodes.append(node)
        return node

    def join(self, *ends: Node | None) -> Node:
        """A node after all of `ends`, or after the current one; it becomes the current one."""
        node = self.floating()
        for end in ends or (self.current,):
            if end:
                link(end, node)
        self.current = node
        return node

    def goto(self, target: Node) -> None:
        if self.current:
            link(self.current, target)
        self.current = None

    def start(self, extent: Span | None) -> None:
        """Begin a full expression. `extent`: its span; None if no code can be put in front of it."""
        number = len(self.function.fulls) + 1
        self.path = ()
        self.function.fulls[number] = extent
        self.function.starts[number] = self.node("start", text=str(number))

    def access(self, kind: str, chain: Chain, site: Site) -> Access:
        key, variables = self.chains.key(chain)
        assert isinstance(chain.end, Field)
        node, full = self.node("access", at=site.left, text=kind), len(self.function.fulls)
        assert node.where is not None
        access = Access(kind, chain.end.id, chain, key, variables, node.where, site, node, full, self.path)
        node.access = access
        self.function.accesses.append(access)
        return access

    def escaped(self, chain: Chain) -> None:
        """Record that the address of a nested group is taken, so that `simplify` keeps the group."""
        self.function.pointers += [chain.group, *([] if chain.device else [chain.prefixes[0].group])]

    def site(
        self,
        form: str,
        c: Expression | Declared,
        left: Expression | Declared,
        operator: str = "",
        right: Expression | None = None,
        used: bool = True,
    ) -> Site:
        site = Site(form, c.span, left, operator, right, used)
        self.function.sites.append(site)
        return site


# Accesses of whole registers: `u->CTRL = (bfGroup Ctrl){ .en = 1 };` and `bfGroup Status s = u->STATUS;`.
#
# Each is exactly one bus access of all fields of a group, is never split, and never merged with another. A
# variable of a group holds the value of one register, its *home*: the first that it, or a copy of it, is read from,
# else the first that it is stored to. Its fields are read and changed there, and `u->CTRL = s;` writes it as it is.


@dataclass
class WholeRegisters:
    """Reads and writes of whole registers in one function, and the variables that hold them.

    `evaluate` and `evaluate_chain` walk an expression, and the parts of a chain.
    """

    graph: Recorder
    cpp: bool
    evaluate: Callable[[Expression], None]
    evaluate_chain: Callable[[Chain], None]
    uses: list[tuple[Site, Expression | Declared]] = field(default_factory=list)  # of variables, and where

    def write(self, c: Expression, left: Expression, right: Expression, used: bool) -> bool:
        """Record an assignment of a whole register, or to a variable that holds one. False for any other."""
        graph, chains = self.graph, self.graph.chains
        name, pointer = chains.dialect.group_of(c.type)
        if not name or pointer:
            return False
        target, value = left.bare, group_value(right)
        if used:
            raise c.error("an assignment of a whole register has no value")
        literal = is_literal(value)
        source = None if literal else chains.read(value)
        variable = self._variable(value)
        if not (literal or variable or source):
            return False
        if to := self._variable(target):
            self._to_variable(c, to, value)
            return True
        site = graph.site("group" if literal else "store", c, left)
        chain, elements = self._elements(left)
        values = _values(value, elements) if literal else [None] * len(elements)
        if source:  # from one register to another
            site.right = value
        elif variable:
            self._about(site, value, variable)

        def right_side() -> None:
            if source:
                graph.path = (*outer, ("u", 0))
                site.of = self._load(value, "", value)
            for i, v in enumerate(values):
                if v is not None:
                    graph.path = (*outer, ("u", i + 1))
                    self.evaluate(v)

        outer = graph.path
        self._sides(chain, right_side)
        places = [chain.root, *(s.index for s in chain.steps if s.index is not None)]
        site.does = next((d for x in places if (d := chains.effect(x))), "")
        site.inner = tuple(i for i, v in enumerate(values) if v is not None and chains.effect(v))
        site.parts = tuple((graph.access("w", x, site), v) for x, v in zip(elements, values, strict=True))
        return True

    def _sides(self, chain: Chain, right: Callable[[], None]) -> None:
        """Walk the sides of a store: C leaves their order open, C++ evaluates the right one first."""

        def left() -> None:
            self.graph.path = (*outer, ("u", 0))
            self.evaluate_chain(chain)

        outer = self.graph.path
        for side in (right, left) if self.cpp else (left, right):
            side()
        self.graph.path = outer

    def read_number(self, group: Expression, at: Expression) -> None:
        """Record one load of a register as a number; `at` is the piece of source to rewrite."""
        self._load(group, "", at).is_number = True

    def write_number(self, c: Expression, left: Expression, group: Expression, right: Expression, used: bool) -> None:
        """Record one store of a number to a register."""
        if used:
            raise c.error("an assignment of a whole register has no value")
        site = self.graph.site("store", c, left, right=right)
        chain, elements = self._elements(group)
        site.is_number, site.does = True, self.graph.chains.effect(right)

        def right_side() -> None:
            self.graph.path = (*outer, ("u", 1))
            self.evaluate(right)

        outer = self.graph.path
        self._sides(chain, right_side)
        site.parts = tuple((self.graph.access("w", x, site), None) for x in elements)

    def _variable(self, c: Expression) -> ir.Variable | None:
        """The variable that an expression is, if it holds a register."""
        variable = c.variable if isinstance(c, ir.Name) else None
        return variable if variable and variable.key in self.graph.chains.locals else None

    def _about(self, site: Site, at: Expression | Declared, variable: ir.Variable) -> None:
        """Record that a site uses a variable at this point of the graph."""
        site.key, site.variable, site.node = variable.key, variable.name, self.graph.join()
        self.uses.append((site, at))

    def _load(self, value: Expression, operator: str, at: Expression | Declared) -> Site:
        """Record one load of a register. `operator`: "=" of an assignment, else ""; `at`: the source to rewrite."""
        chain, elements = self._elements(value)
        site = Site("load", at.span, value, operator)
        self.graph.function.sites.append(site)
        self.evaluate_chain(chain)
        site.parts = tuple((self.graph.access("r", x, site), None) for x in elements)
        return site

    def _to_variable(
        self, c: Expression | Declared, variable: ir.Variable, value: Expression, declares: str = ""
    ) -> None:
        """Record that a variable gets a value: a register, a literal, or that of another variable."""
        other = self._variable(value)
        if is_literal(value):
            site = self.graph.site("make", c, value, "=")
            site.right = value
            for v in literal_items(value):
                self.evaluate(v.value if isinstance(v, ir.Designated) else v)
        elif other:
            site = self.graph.site("copy", c, value, "=")
            site.source, site.right = other.key, value
        else:
            site = self._load(value, "=", c)
        site.type = declares
        self._about(site, c, variable)

    def _elements(self, c: Expression) -> tuple[Chain, list[Chain]]:
        """The chain of a register, and those of its fields."""
        chain = self.graph.chains.read(c)
        if chain is None or chain.is_field or chain.missing or chain.local:
            raise c.error("one register of a device is expected here")
        return chain, list(self.graph.chains.elements(chain, c))

    def declare(self, d: Declared) -> bool:
        """Record a declaration such as `bfGroup Status s = u->STATUS;`. False if its type is no group."""
        chains = self.graph.chains
        if not holds_register(d.variable, chains.dialect):
            return False
        value = group_value(d.value) if d.value else None
        declares = "first" if d.span[0] < d.variable.offset else "next"
        if value is None or (isinstance(value, ir.Call) and not value.parts):
            site = self.graph.site("hold", d, d)
            site.type = declares
            self._about(site, d, d.variable)
            return True
        if not (is_literal(value) or self._variable(value) or chains.read(value)):
            return False
        self.graph.start(None)
        self._to_variable(d, d.variable, value, declares)
        return True

    def check_value(self, c: Expression) -> None:
        """Raise EdgebuildError where a variable that holds a register is used as a value."""
        if variable := self._variable(c):
            raise c.error(f"'{variable.name}' holds a register: use its fields, or write it back as a whole")

    def use(
        self,
        form: str,
        c: Expression,
        chain: Chain,
        operator: str = "",
        right: Expression | None = None,
        used: bool = True,
    ) -> None:
        """Record that a field of a variable that holds a register is read ("get") or changed ("set")."""
        if form == "set" and used:
            raise c.error("this assignment has no value: the register is in a variable")
        site = self.graph.site(form, c, c, operator, right, used)
        site.field = chain
        variable = self._variable(chain.root.bare)
        assert variable
        if right is not None:
            self.evaluate(right)
        self._about(site, c, variable)

    def find_homes(self) -> None:
        """Find the home of each variable, and the home's fields that its uses are about."""
        alike = {site.key: {site.key} for site, _ in self.uses}  # copies share one home
        for site in (s for s, _ in self.uses if s.form == "copy"):
            both = alike[site.key] | alike.setdefault(site.source, {site.source})
            alike.update((key, both) for key in both)
        homes: dict[str, Site] = {}
        for form in ("load", "store"):
            for site in (s for s, _ in self.uses if s.form == form):
                for key in sorted(alike[site.key]):
                    homes.setdefault(key, site)
        for site, at in self.uses:
            if site.key not in homes:
                text = f"'{site.variable}': a group cannot be a variable that no register is read into or stored from"
                raise at.error(text, f"  use a pointer: bfGroup ... *{site.variable}")
            self._with_home(site, at, homes)

    def _with_home(self, site: Site, at: Expression | Declared, homes: Mapping[str, Site]) -> None:
        home = site.of = homes[site.key]
        if site.form == "copy":
            site.read = homes[site.source].parts[0][0]
        if site.form == "make":
            assert site.right is not None
            values = _values(site.right, [a.chain for a, _ in home.parts])
            site.parts = tuple((a, v) for (a, _), v in zip(home.parts, values, strict=True))
            site.inner = tuple(i for i, v in enumerate(values) if v is not None and self.graph.chains.effect(v))
        if site.form in ("get", "set"):
            chain = site.field
            assert chain and isinstance(chain.end, Field)
            constants = tuple(s.constant for s in chain.steps if not s.member)
            site.read = next((a for a, _ in home.parts if _is_of(a, chain.end, constants)), None)
            if site.read is None or chain.missing:
                text = f"'{chain.end.name}' of a variable that holds a register: the index must be a constant"
                raise at.error(text)


def holds_register(variable: ir.Variable, dialect: Dialect) -> bool:
    """Whether it is an automatic variable of a group type."""
    name, pointer = dialect.group_of(variable.type)
    lives = not variable.is_parameter and variable.storage not in ("STATIC", "EXTERN")
    return lives and bool(name) and not pointer and not variable.type.is_reference


def group_value(c: Expression) -> Expression:
    """The expression of a group's value, without the copy constructor that C++ has around it."""
    value = c.bare
    while isinstance(value, ir.Call) and len(value.parts) == 1 and isinstance(value.parts[0], Expression):
        value = value.parts[0].bare
    return value


def is_literal(value: Expression) -> bool:
    """Whether it is a literal of a group: a compound literal of C, or `G{...}` of C++."""
    return isinstance(value, ir.CompoundLiteral | ir.ListValue) or (
        isinstance(value, ir.Cast) and value.form == "value"
    )


def literal_items(literal: Expression) -> tuple[Expression, ...]:
    return next((x.items for x in literal.all() if isinstance(x, ir.ListValue)), ())  # `G{}` of C++ has none


def is_zero(literal: Expression) -> bool:
    """Whether it is `{0}`, C's idiom for all zeros."""
    items = literal_items(literal)
    return len(items) == 1 and not isinstance(items[0], ir.Designated) and items[0].constant == 0


def _values(literal: Expression, chains: Sequence[Chain]) -> list[Expression | None]:
    """The value of each field; None if the literal does not name it. Raises EdgebuildError for unnamed items."""
    values: list[Expression | None] = [None] * len(chains)
    names = [(x.end.name, tuple(s.constant for s in x.steps if not s.member)) for x in chains if x.end]
    items = literal_items(literal)
    if is_zero(literal):
        return [items[0] for _ in chains]
    for item in items:
        if not isinstance(item, ir.Designated) or len(item.members) != 1 or isinstance(item.value.bare, ir.ListValue):
            raise item.error("name each field: { .field = value }, and each element: { .array[1] = value }")
        name, index = item.members[0].name, tuple(x.constant for x in item.indices)
        fits = [i for i, (n, at) in enumerate(names) if n == name and at[len(at) - len(index) :] == index]
        if len(fits) != 1 or values[fits[0]] is not None:
            raise item.error(f"'{name}' is not one field that is free")
        values[fits[0]] = item.value
    return values


def _is_of(a: Access, field: Field, constants: tuple[int | None, ...]) -> bool:
    """Whether an access is one of the element of `field` with these subscripts."""
    own = a.constants
    return a.field == field.id and own[len(own) - len(field.dims) :] == constants
