"""The conflict graph of accesses (BFACG) of each function, and its access regions.

Two accesses conflict if they cannot be merged into one. The report lists the reason of each conflict. Colouring the
graph gives access regions: accesses of one kind that may all be merged, if they lie in one register (Stahl, section
6.4.2). Accesses are coloured in program order, each with the first colour that fits, so regions consist of neighbours.

A merged read is made at the region's first read, a merged write at its last write. The code in between must allow it:

* a read moves up over anything but a change of its field, of its address, a barrier or an unknown call;
* a write moves down over nothing that could observe its delay: accesses to its field, side effects of its device,
  barriers, loops, and calls that do one of these; and it must execute exactly when the last write does;
* a write with a side effect stays alone, and so does a second read of a field whose reads have one.

Fields of silicon are *ordered*: no store of such a field replaces another, and no access of one crosses another outside
of its region. A field that is stored more than once without a wait in between is a sequence, such as an enable around
a change: each of its stores stays alone. *Independent* fields keep their stores, but not their order.

Accesses that a declared interrupt may see (`cdfg.Visible`) keep their order, too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod

from ..source.clang import Place
from ..source.dialect import Child, Dialect, Field, FieldId
from ..source.ir import Expression
from .cdfg import MEMORY, Access, Cdfg, Function, Node, Prefix, Visible, visible

Path = tuple[tuple[str, tuple[int, ...]], ...]  # member names with their indices


@dataclass(frozen=True)
class Leaf:
    """A field that gets a place in the layout. `dims` is not empty for an array that is indexed dynamically."""

    name: str
    field: FieldId
    width: int
    dims: tuple[int, ...]
    path: Path
    info: Field | None = None

    @property
    def count(self) -> int:
        return prod(self.dims)


@dataclass(frozen=True)
class Part:
    """A group, or an array of groups, that stays a type of its own inside of another."""

    name: str
    group: str
    dims: tuple[int, ...]
    path: Path
    stride: int = 0

    @property
    def count(self) -> int:
        return prod(self.dims)


@dataclass(frozen=True)
class Shape:
    """A group after simplification."""

    group: str
    leaves: tuple[Leaf, ...]
    parts: tuple[Part, ...]
    glued: tuple[frozenset[str], ...] = ()  # leaves that are accessed as a whole: they share one register


@dataclass(frozen=True)
class Ref:
    """Where an access goes: a leaf of a group, the expression of the group, and the index of an array leaf."""

    group: str
    leaf: str
    base: Prefix
    base_key: str | None
    indices: tuple[Expression, ...]
    index_dims: tuple[int, ...]
    index_key: str | None
    array: str  # the leaf, or the array of which that is one element


@dataclass(frozen=True)
class Facts:
    """Looks up the attributes of an access's field, including those that differ between instances."""

    dialect: Dialect
    refs: Mapping[Access, Ref]

    def of(self, a: Access) -> Field:
        ref = self.refs[a]
        return self.dialect.at(ref.group, ref.leaf, a.field)


@dataclass(frozen=True)
class Shapes:
    """The leaves of all groups."""

    groups: dict[str, Shape]  # inner groups first
    arrays: frozenset[FieldId]
    idle: frozenset[str] = frozenset()  # groups that are only kept because they contain a kept one
    packed: frozenset[tuple[str, str]] = frozenset()  # (group, leaf) of arrays that silicon has in one register

    def leaf(self, group: str, name: str) -> Leaf:
        return next(leaf for leaf in self.groups[group].leaves if leaf.name == name)


def simplify(dialect: Dialect, cdfg: Cdfg) -> Shapes:
    """Flatten groups and arrays that are never accessed dynamically into their parents (Stahl, section 6.4.3).

    A group stays a type of its own if a pointer to it exists, or if an array of it has an index that is not constant.
    It then has one layout for all instances. All others dissolve: `pads[3].out` becomes the leaf `pads_3_out`. In the
    same way an array of fields that is only indexed by constants becomes single fields.
    """
    kept = {d.group for d in dialect.devices.values()}
    arrays: set[FieldId] = set()
    for function in cdfg.functions.values():
        kept |= set(function.pointers)
        for access in function.accesses:
            chain = access.chain
            if not chain.device:
                kept.add(chain.prefixes[0].group)
            for prefix, depth in zip(chain.prefixes[1:], chain.depths[1:], strict=True):
                if any(not s.member and s.constant is None for s in chain.steps[:depth]):
                    kept.add(prefix.group)
            if any(not s.member and s.constant is None for s in chain.steps[chain.depths[-1] :]):
                arrays.add(access.field)
    used = frozenset(_within(dialect, kept))
    for group in _inner_first(dialect):  # a parent of a kept group is kept, so that C can name the path
        if any(c.group in kept for c in dialect.groups[group].children):
            kept.add(group)
    shapes = {g: _shape(g, dialect, kept, frozenset(arrays)) for g in _inner_first(dialect) if g in kept}
    return _glued(Shapes(shapes, frozenset(arrays), frozenset(shapes) - used), cdfg)


def _within(dialect: Dialect, groups: Iterable[str]) -> set[str]:
    """The groups, and all groups nested in them."""
    reached: set[str] = set()
    todo = list(groups)
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += [c.group for c in dialect.groups[name].children]
    return reached


def _glued(shapes: Shapes, cdfg: Cdfg) -> Shapes:
    """The shapes with `glued`: leaves that an access of a whole register reads or writes together."""
    sets: dict[str, list[frozenset[str]]] = {}
    for site in (s for f in cdfg.functions.values() for s in f.sites if s.form in ("group", "load", "store")):
        refs = [resolve(a, shapes) for a, _ in site.parts]
        glued = sets.setdefault(refs[0].group, [])
        whole = frozenset(r.leaf for r in refs).union(*(s for s in glued if s & {r.leaf for r in refs}))
        sets[refs[0].group] = [*(s for s in glued if not s & whole), whole]
    groups = {n: replace(shape, glued=tuple(sets.get(n, ()))) for n, shape in shapes.groups.items()}
    return replace(shapes, groups=groups)


def resolve(access: Access, shapes: Shapes) -> Ref:
    """The leaf that an access is about."""
    chain = access.chain
    at = max(i for i, p in enumerate(chain.prefixes) if p.group in shapes.groups)
    depth, end = chain.depths[at], chain.end
    assert isinstance(end, Field)
    tail = len(chain.steps) - len(end.dims)  # from here on the steps are subscripts of the field
    words = [s.member or str(s.constant) for s in chain.steps[depth:tail]]
    indices: list[Expression] = []
    group, leaf = chain.prefixes[at].group, "_".join(words)
    constant = len(end.dims) == 1 and chain.steps[-1].constant is not None
    alone = constant and not access.whole and (group, leaf) in shapes.packed  # an element as a field of its own
    if access.field in shapes.arrays and not alone:
        indices = [s.index for s in chain.steps[tail:] if s.index is not None]
    else:
        words += [str(s.constant) for s in chain.steps[tail:]]
    whole = "_".join(words)
    return Ref(
        chain.prefixes[at].group,
        whole,
        chain.prefixes[at],
        _joined_key(access.key[: depth + 1]),
        tuple(indices),
        end.dims if indices else (),
        _joined_key(access.key[tail + 1 :] if indices else ()),
        leaf if alone else whole,
    )


def _joined_key(parts: tuple[str | None, ...]) -> str | None:
    return None if None in parts else "".join(p or "" for p in parts)


def _shape(group: str, dialect: Dialect, kept: set[str], arrays: frozenset[FieldId]) -> Shape:
    leaves: list[Leaf] = []
    parts: list[Part] = []

    def add(name: str, path: Path) -> None:
        for member in dialect.groups[name].members:
            if isinstance(member, Child) and member.group in kept:
                whole = (*path, (member.name, ()))
                parts.append(Part(_joined(whole), member.group, member.dims, whole, member.stride))
            elif isinstance(member, Field) and member.id in arrays:
                whole = (*path, (member.name, ()))
                leaves.append(Leaf(_joined(whole), member.id, member.width, member.dims, whole, member))
            else:
                for index in product(*(range(n) for n in member.dims)):
                    whole = (*path, (member.name, index))
                    if isinstance(member, Child):
                        add(member.group, whole)
                    else:
                        leaves.append(Leaf(_joined(whole), member.id, member.width, (), whole, member))

    add(group, ())
    return Shape(group, tuple(leaves), tuple(parts))


def _joined(path: Path) -> str:
    return "_".join(word for name, index in path for word in (name, *map(str, index)))


def _inner_first(dialect: Dialect) -> Iterator[str]:
    done: set[str] = set()

    def visit(name: str) -> Iterator[str]:
        if name not in done:
            done.add(name)
            for child in dialect.groups[name].children:
                yield from visit(child.group)
            yield name

    for name in dialect.groups:
        yield from visit(name)


@dataclass(frozen=True)
class Summary:
    """Effects of a call on fields. `unknown`: why they cannot be determined; empty if they are."""

    reads: frozenset[FieldId] = frozenset()
    writes: frozenset[FieldId] = frozenset()
    unknown: str = ""
    stores: bool = False  # writes memory that other code may access
    acts: bool = False  # may wait, or has side effects: earlier writes must be done before it


@dataclass(frozen=True)
class Region:
    """Accesses that merge into one, in program order: a read at the first of them, a write at the last.

    `hoisted`: the first read is made in front of its full expression, because C leaves the order of its operands open.
    """

    accesses: tuple[Access, ...]
    hoisted: bool = False

    @property
    def kind(self) -> str:
        return self.accesses[0].kind

    @property
    def place(self) -> Access:
        return self.accesses[0] if self.kind == "r" else self.accesses[-1]


@dataclass(frozen=True)
class Unmerged:
    """An access that was not merged with an earlier one, and the reason."""

    where: Place
    why: str


@dataclass(frozen=True)
class Conflicts:
    """The access regions of each function, and the accesses that stay separate, with reasons."""

    refs: dict[Access, Ref]
    regions: dict[str, tuple[Region, ...]]
    unmerged: tuple[Unmerged, ...]


Home = Callable[[Access], Hashable]


def find_conflicts(
    dialect: Dialect, cdfg: Cdfg, shapes: Shapes, home: Home = lambda a: None, first: Conflicts | None = None
) -> Conflicts:
    """Find the regions of all functions. Only accesses with equal `home` (such as the register) share a region.

    `first`: an earlier result for the same functions, whose `refs` are used again.
    """
    refs = first.refs if first else {a: resolve(a, shapes) for f in cdfg.functions.values() for a in f.accesses}
    summaries = summarise(cdfg, Facts(dialect, refs))
    seen = visible(cdfg)
    kept: list[Unmerged] = []
    regions: dict[str, tuple[Region, ...]] = {}
    for name, function in cdfg.functions.items():
        graph = Graph(function, dialect, refs, summaries, seen.get(name, Visible()))
        regions[name] = graph.regions(home, kept)
    return Conflicts(refs, regions, tuple(dict.fromkeys(kept)))


def summarise(cdfg: Cdfg, facts: Facts) -> dict[str, Summary]:
    """Callee summaries: the fixed point over the call graph, recursion included."""
    acting = {name for name, f in cdfg.functions.items() if _acts(f, cdfg, facts)}
    summaries = {name: Summary() for name in cdfg.functions}
    changed = True
    while changed:
        changed = False
        for name, f in cdfg.functions.items():
            reads = {a.field for a in f.accesses if a.kind == "r"}
            writes = {a.field for a in f.accesses if a.kind == "w"}
            for a in f.accesses:
                writes |= facts.of(a).effects(a.kind)
            stores, acts = f.stores, name in acting
            unknown = next((n.text for n in f.nodes if n.kind == "barrier"), "")
            for callee in f.callees:
                inner = summaries.get(callee)
                unknown = unknown or (_unknown_call(callee) if inner is None else inner.unknown)
                reads |= inner.reads if inner else set()
                writes |= inner.writes if inner else set()
                stores = stores or (inner is not None and inner.stores)
                acts = acts or (inner is not None and inner.acts)
            new = Summary(frozenset(reads), frozenset(writes), unknown, stores, acts)
            changed = changed or new != summaries[name]
            summaries[name] = new
    return summaries


def _acts(f: Function, cdfg: Cdfg, facts: Facts) -> bool:
    """Whether a function loops, is recursive, accesses whole registers, or makes accesses with side effects."""
    todo, seen = list(f.callees), set[str]()
    while todo:
        name = todo.pop()
        if name in cdfg.functions and name not in seen:
            seen.add(name)
            todo += cdfg.functions[name].callees
    more = any(a.whole or facts.of(a).effects(a.kind) for a in f.accesses)
    return more or f.name in seen or f.reachability.cycles != 0


def _unknown_call(callee: str) -> str:
    return f"call to {callee}()" if callee else "call through a pointer"


class Graph:
    """The conflict graph of one function."""

    def __init__(
        self,
        function: Function,
        dialect: Dialect,
        refs: dict[Access, Ref],
        summaries: dict[str, Summary],
        seen: Visible,
    ) -> None:
        self.function, self.dialect, self.refs, self.summaries = function, dialect, refs, summaries
        self.facts, self.seen, self.reachability = Facts(dialect, refs), seen, function.reachability
        numbers: dict[Hashable, int] = {}
        self.natures = {a: numbers.setdefault(self._nature(a), len(numbers)) for a in function.accesses}
        self.loads: dict[Node, list[Access]] = {}  # where merged reads are made
        self.joined = 0  # bit set of the nodes of the region that is being extended: its writes move together
        self._effects: dict[int, frozenset[FieldId]] = {}
        self.stops: dict[int, tuple[int, int]] = {}
        self.alike: list[tuple[Node, int]] = []

    def _nature(self, a: Access) -> Hashable:
        """All attributes of an access but its place in the graph. Equal ones may move over the same nodes."""
        ref = self.refs[a]
        parts = a.kind, a.whole, a.field, ref.group, ref.leaf, a.key, a.variables, a.chain.device, a.constants
        return (*parts, a in self.seen)

    def regions(self, home: Home, kept: list[Unmerged]) -> tuple[Region, ...]:
        """Colour reads first: a write must not move over a merged read of its field, wherever that read is made."""
        reads = self.coloured("r", home, kept)
        for region in reads:
            node = self.function.starts[region.place.full] if region.hoisted else region.place.node
            self.loads.setdefault(node, []).extend(region.accesses)
        return reads + self.coloured("w", home, kept)

    def coloured(self, kind: str, home: Home, kept: list[Unmerged]) -> tuple[Region, ...]:
        self.stops, self.alike = {}, self._alike()
        open_: list[list[Access]] = []
        near: dict[Hashable, list[list[Access]]] = {}  # the regions of each home, and the nodes of each region
        nodes: dict[Access, int] = {}
        accesses = [a for a in self.function.accesses if a.kind == kind]
        wholes = dict.fromkeys(a.site for a in accesses if a.whole)
        for access in (a for a in accesses if not a.whole):
            ref, bit = self.refs[access], self.reachability.set_of([access.node])
            regions = near.setdefault((home(access), ref.group, ref.index_dims), [])
            reasons: dict[str, None] = {}
            for members in regions:
                self.joined = nodes[members[0]]
                why = self.conflict_with(members, access)
                if not why:
                    members.append(access)
                    nodes[members[0]] |= bit
                    break
                reasons[why] = None
            else:
                regions.append([access])
                open_.append(regions[-1])
                nodes[access] = bit
            kept += [Unmerged(access.where, why) for why in reasons if why != ELSEWHERE]
        result = tuple(Region(tuple(m), self.needs_hoist(m)) for m in open_)
        return result + tuple(Region(tuple(a for a, _ in site.parts)) for site in wholes)

    def _alike(self) -> list[tuple[Node, int]]:
        """The nodes that may stop a move: one of each kind, with the bit set of all nodes of that kind."""
        kinds: dict[Hashable, tuple[Node, int]] = {}
        for number, node in enumerate(self.function.nodes):
            loads = frozenset(self.natures[a] for a in self.loads.get(node, ()))
            if loads or node.kind in ("access", "call", "barrier", "assign"):
                nature = node.kind, node.text, node.access and self.natures[node.access], loads
                first, nodes = kinds.get(nature, (node, 0))
                kinds[nature] = first, nodes | 1 << number
        return list(kinds.values())

    def conflict_with(self, members: list[Access], new: Access) -> str:
        """Why `new` cannot join the region; empty if it can."""
        reads = new.kind == "r"
        for partner in members:
            if partner is members[0] or not reads or self.each_counts(partner, new):
                why = self.conflict(partner, new)
                if why:
                    return why
        if reads and self.needs_hoist([*members, new]) and not self.can_hoist(members[0]):
            return "C leaves the order of these operands open"
        return ""

    def conflict(self, a: Access, b: Access) -> str:
        """An edge of the graph: why the earlier access `a` and the later `b` cannot be one; empty if they can."""
        ra, rb = self.refs[a], self.refs[b]
        if None in (ra.base_key, rb.base_key, ra.index_key, rb.index_key):
            return f"the address of '{b.field[1]}' is not known to be that of '{a.field[1]}'"
        if ra.base_key != rb.base_key or ra.index_key != rb.index_key:
            return ELSEWHERE
        name = b.field[1]
        if a.kind == "w" and (self.effects(a) or self.effects(b)):
            return f"a write of '{name if self.effects(b) else a.field[1]}' has a side effect"
        if a.field == b.field and a.kind == "r" and ra.leaf == rb.leaf:
            if self.effects(a):
                return f"each read of '{name}' has a side effect"
            if self.facts.of(a).volatile:
                return f"'{name}' may change by itself"
        if a.kind == "w":
            again = next((x for x in (a, b) if x in self.repeated), None)
            if again:
                return f"'{again.field[1]}' is stored more than once, and each store counts"
        reachability = self.reachability
        if not reachability.dominates(a.node, b.node):
            return f"'{name}' is also reached without '{a.field[1]}'"
        if reachability.on_cycle_without(b.node, a.node):
            return f"'{name}' is in a loop"
        strict = a.kind == "w" or bool(self.effects(b))  # others may be read on paths where the source does not
        if strict and (reachability.on_cycle_without(a.node, b.node) or not reachability.postdominates(b.node, a.node)):
            return f"'{a.field[1]}' is also reached without '{name}'"
        inside = reachability.between(a.node, b.node)
        if a.kind == "w" and inside & reachability.cycles_without(a.node):  # `b` is on none of these
            return "a loop lies in between"
        if a.kind == "w" and not sequenced(a, b):
            return "C leaves the order of these operands open"
        return self.stopped(inside, a if a.kind == "w" else b)

    def stopped(self, inside: int, moved: Access) -> str:
        """Why an access cannot move over the nodes `inside`: the first obstacle's reason; empty if there is none."""
        nature = self.natures[moved]
        if nature not in self.stops:
            always, others = 0, 0  # nodes that stop it in any case; unless they are in its region
            for node, nodes in self.alike:
                always |= nodes if self.blocks(node, moved, True) else 0
                others |= nodes if self.blocks(node, moved, False) else 0
            self.stops[nature] = always, others
        always, others = self.stops[nature]
        stopping = inside & (always | (others & ~self.joined))
        if not stopping:
            return ""
        node = self.reachability.first(stopping)
        why = self.blocks(node, moved, self.reachability.set_of([node]) & self.joined != 0)
        return f"{why} (line {node.where.line})" if node.where else why

    def each_counts(self, early: Access, new: Access) -> bool:
        """Whether a read must be compared with an earlier one that is not the first of its region."""
        again = early.field == new.field and self.facts.of(new).volatile
        return again or bool(self.effects(early) or self.effects(new))

    def effects(self, a: Access) -> frozenset[FieldId]:
        nature = self.natures[a]
        if nature not in self._effects:
            self._effects[nature] = self.facts.of(a).effects(a.kind)
        return self._effects[nature]

    @cached_property
    def repeated(self) -> frozenset[Access]:
        """Writes of silicon's fields that are written again, before or after, without a wait in between."""
        near: dict[Hashable, list[Access]] = {}
        for a in self.function.accesses:
            if a.kind == "w":
                near.setdefault((self.refs[a].array, a.field), []).append(a)
        ordered = {a for writes in near.values() for a in writes if self.facts.of(a).order != "memory"}
        after = self.reachability.reached(avoid=self.waits) if ordered else []

        def at_once(a: Access, b: Access) -> bool:
            x, y = self.reachability.numbers[a.node], self.reachability.numbers[b.node]
            return bool(after[x] >> y & 1 or after[y] >> x & 1)

        return frozenset(
            a
            for a in ordered
            if any(a is not b and self.may_alias(a, b) and at_once(a, b) for b in near[self.refs[a].array, a.field])
        )

    @cached_property
    def waits(self) -> int:
        """Bit set of nodes that wait: reads in loops that store nothing, barriers, and calls that may wait."""
        nodes, reachability = self.function.nodes, self.reachability
        stores = reachability.set_of(n for n in nodes if n.access and n.access.kind == "w")
        quick = {name: s for name, s in self.summaries.items() if not (s.unknown or s.acts)}
        waiting = {n for n in nodes if n.kind == "barrier" or (n.kind == "call" and n.text not in quick)}
        reads = reachability.set_of(n for n in nodes if n.access and n.access.kind == "r")
        return reachability.set_of(waiting) | (reads & reachability.cycles_avoiding(stores))

    def in_order(self, a: Access, b: Access) -> bool:
        """Whether the two must stay in the order of the source although neither has a known side effect."""
        ordered = self.facts.of(a).order == self.facts.of(b).order == "ordered"
        return ordered or (a in self.seen and b in self.seen)

    # ---- what a moving access must not cross

    def blocks(self, node: Node, moved: Access, joined: bool) -> str:
        """Why an access cannot move over a node, which may be `joined` with it; empty if it can."""
        return (self.blocks_read if moved.kind == "r" else self.blocks_write)(node, moved, joined)

    def blocks_read(self, node: Node, r: Access, joined: bool) -> str:
        why = self.blocks_any(node, r)
        if why or node.kind not in ("access", "call"):
            return why
        if node.access:
            n, name = node.access, r.field[1]
            if not joined and (self.in_order(n, r) or (n.whole and not self.other_device(n, r))):
                return f"'{n.field[1]}' is {'read' if n.kind == 'r' else 'written'} in between"
            if n.kind == "w" and self.may_alias(n, r):
                return f"'{name}' is written in between"
            if r.field in self.effects(n) and not self.other_device(n, r):
                return f"'{name}' may change by the access of '{n.field[1]}'"
            if self.effects(r) and (n.kind == "w" or self.effects(n)):
                return f"the read of '{name}' has a side effect"
            return ""
        summary = self.summaries[node.text]
        crossed = self.effects(r) or self.facts.of(r).order == "ordered" or r in self.seen
        if r.field in summary.writes or (crossed and (summary.reads or summary.writes)):
            return f"'{r.field[1]}' may change by the call to {node.text}()"
        return ""

    def blocks_write(self, node: Node, w: Access, joined: bool) -> str:
        why = self.blocks_any(node, w)
        if why:
            return why
        name = w.field[1]
        for n in [*([node.access] if node.access else []), *self.loads.get(node, ())]:
            is_joined = joined and n is node.access
            if not is_joined and (self.in_order(n, w) or (n.whole and not self.other_device(n, w))):
                return f"'{n.field[1]}' is {'read' if n.kind == 'r' else 'written'} in between"
            same_place = None not in n.key and (self.refs[n].leaf, n.key) == (self.refs[w].leaf, w.key)
            if self.may_alias(n, w) and not (is_joined and same_place):
                return f"'{name}' is {'read' if n.kind == 'r' else 'written'} in between"
            if self.effects(n) and not self.other_device(n, w):
                return f"the access of '{n.field[1]}' has a side effect and must find '{name}' written"
        if node.kind != "call":
            return ""
        summary = self.summaries[node.text]
        used = summary.reads | summary.writes
        close = summary.acts or self.facts.of(w).order == "ordered" or w in self.seen or w.field in used
        return f"call to {node.text}(), which uses the device" if used and close else ""

    def blocks_any(self, node: Node, a: Access) -> str:
        if node.kind == "barrier":
            return f"'{a.field[1]}' may change by {node.text}"
        if node.kind == "call":
            summary = self.summaries.get(node.text)
            unknown = _unknown_call(node.text) if summary is None else summary.unknown
            if summary and summary.stores and MEMORY in a.variables:
                return f"the address of '{a.field[1]}' may change by the call to {node.text}()"
            return f"'{a.field[1]}' may change between ({unknown})" if unknown else ""
        if node.kind == "assign" and node.text in a.variables:
            what = "an object of memory" if node.text == MEMORY else f"'{node.text.split('@')[0]}'"
            return f"{what} changes in between"
        return ""

    # ---- aliasing

    def may_alias(self, a: Access, b: Access) -> bool:
        """Whether two accesses may be about the same bits. Pointers to one type may be equal."""
        if a.field != b.field or self.other_device(a, b) or other_element(a, b):
            return False
        if a.chain.device and a.chain.device == b.chain.device and len(a.constants) == len(b.constants):
            return not _differ(a.constants, b.constants)
        return True

    def other_device(self, a: Access, b: Access) -> bool:
        da, db = a.chain.device, b.chain.device
        if not (da and db and da != db):
            return False
        devices = self.dialect.devices
        return devices[da].group == devices[db].group or a.field[0] == b.field[0]

    # ---- the order that C leaves open

    def needs_hoist(self, members: list[Access]) -> bool:
        return members[0].kind == "r" and any(not sequenced(members[0], m) for m in members[1:])

    def can_hoist(self, leader: Access) -> bool:
        """Whether the first read may be made in front of its full expression."""
        f, reachability, start = self.function, self.reachability, self.function.starts[leader.full]
        if f.fulls[leader.full] is None or self.effects(leader) or reachability.on_cycle_without(leader.node, start):
            return False
        return reachability.postdominates(leader.node, start) and not self.stopped(
            reachability.between(start, leader.node), leader
        )


def other_element(a: Access, b: Access) -> bool:
    """Whether two accesses of a field are about different elements, in whatever groups: groups never overlap."""
    assert isinstance(a.chain.end, Field)
    tail = len(a.chain.end.dims)
    return _differ(a.constants[len(a.constants) - tail :], b.constants[len(b.constants) - tail :])


def _differ(a: tuple[int | None, ...], b: tuple[int | None, ...]) -> bool:
    """Whether some subscript is constant on both sides and differs."""
    return any(None not in (x, y) and x != y for x, y in zip(a, b, strict=True))


ELSEWHERE = "elsewhere"  # other groups, instances or elements: never merged, and not worth a message


def sequenced(a: Access, b: Access) -> bool:
    """Whether C or C++ evaluates `a` before `b`."""
    if a.full != b.full:
        return True
    for x, y in zip(a.path, b.path, strict=False):
        if x != y:
            return x[0] == "s"
    return True  # one is an operand of the other
