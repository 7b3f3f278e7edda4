"""Group simplification: what is never accessed dynamically is flattened into its parent (Stahl, section 6.4.3).

A group stays a type of its own if a pointer to it exists, or if an array of it has an index that is not constant. It
then has one layout for all instances. All others dissolve: `pads[3].out` becomes the leaf `pads_3_out`. In the same way
an array of fields that is only indexed by constants becomes single fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from edgebuild.driver.analysis.cdfg import Access, Cdfg, Prefix
from edgebuild.driver.source.dialect import Child, Dialect, Field, FieldId
from edgebuild.driver.source.ir import Expression

Path = tuple[tuple[str, tuple[int, ...]], ...]  # member names with their indices


@dataclass(frozen=True)
class Leaf:
    """A field as the layout sees it. `dims` is not empty for an array that is indexed dynamically."""

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
    """The facts of the field that an access is about, at the place where it is."""

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
    idle: frozenset[str] = frozenset()  # those that only hold others, and that nothing uses
    packed: frozenset[tuple[str, str]] = frozenset()  # (group, leaf) of arrays that silicon has in one register

    def leaf(self, group: str, name: str) -> Leaf:
        return next(leaf for leaf in self.groups[group].leaves if leaf.name == name)


def simplify(dialect: Dialect, cdfg: Cdfg) -> Shapes:
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
    for group in _inner_first(dialect):  # what contains a type of its own is one, so that C can name the way there
        if any(c.group in kept for c in dialect.groups[group].children):
            kept.add(group)
    shapes = {g: _shape(g, dialect, kept, frozenset(arrays)) for g in _inner_first(dialect) if g in kept}
    return _glued(Shapes(shapes, frozenset(arrays), frozenset(shapes) - used), cdfg)


def _within(dialect: Dialect, groups: Iterable[str]) -> set[str]:
    """The groups, and all that they hold."""
    reached: set[str] = set()
    todo = list(groups)
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += [c.group for c in dialect.groups[name].children]
    return reached


def _glued(shapes: Shapes, cdfg: Cdfg) -> Shapes:
    """The shapes with the leaves that a group write or a group read has as one."""
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
