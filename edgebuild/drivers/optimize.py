"""Choosing the layout: Stahl's heuristic (section 6.4.4) and an exact optimiser.

Both work on one group at a time, since accesses to different groups never become one, and on one *class* of leaves at a
time: single fields, and arrays by their length, which are laid out element by element. The objective is lexicographic:
bus accesses over all access regions (each counted once), then bytes of the register map. A read region costs one
access per register that it touches; a write region one per register that it fills and two per register that it shares
(of two layouts with as many accesses, the one with fewer read-modify-writes counts as better). Fields with side effects
have a register of their own, and fields that this driver never accesses share registers among themselves only.

A field that is written and never accessed together with another one gains nothing from company, and each of its writes
would cost a read: it is alone in every best layout, and the solver does not see it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgebuild.drivers.conflicts import Conflicts
from edgebuild.drivers.dialect import Dialect
from edgebuild.drivers.layout import Bus, GroupLayout, Layout, Register, Slot, Sub, cost
from edgebuild.drivers.simplify import Leaf, Shape, Shapes

EXACT = 40  # leaves of one class that the solver takes on
EFFORT = 20.0  # deterministic time per problem, roughly seconds

Uses = Counter[tuple[str, frozenset[str]]]  # (kind, leaves of one region) -> how often
Bins = tuple[tuple[Leaf, ...], ...]


@dataclass(frozen=True)
class Problem:
    """One class of leaves of a group that may share registers, with the regions restricted to them."""

    leaves: tuple[Leaf, ...]
    uses: Uses
    bus: Bus
    count: int  # elements; 1 for single fields

    def bytes(self, bins: Bins) -> int:
        return self.count * sum(_bits(b, self.bus) // 8 for b in bins)

    def accesses(self, bins: Bins) -> int:
        total = 0
        for (kind, names), times in self.uses.items():
            for b in bins:
                mine = {leaf.name for leaf in b} & names
                if mine:
                    total += times * cost(kind, _register(b, self.bus), mine, self.bus)
        return total


@dataclass(frozen=True)
class Solution:
    bins: Bins
    bound: int
    optimal: bool
    curve: tuple[tuple[int, int], ...] = ()


def optimize(dialect: Dialect, shapes: Shapes, conflicts: Conflicts, bus: Bus, exact: bool = True) -> Layout:
    uses = group_uses(conflicts)
    groups: dict[str, GroupLayout] = {}
    total, bound, optimal = 0, 0, True
    curves = []
    for name, shape in shapes.groups.items():
        bins: list[tuple[Leaf, ...]] = []
        for problem in _problems(shape, uses.get(name, Counter()), dialect, bus):
            solution = solve(problem, exact)
            bins += solution.bins
            total += problem.accesses(solution.bins)
            bound += solution.bound
            optimal = optimal and solution.optimal
            curves.append(solution.curve)
        groups[name] = _placed(shape, bins, groups, bus)
    size = sum(groups[d.group].size for d in dialect.devices.values())
    return Layout(
        groups,
        bus,
        "optimize" if exact else "heuristic",
        optimal and exact,
        total,
        bound,
        size,
        max(curves, key=len, default=()),
    )


def group_uses(conflicts: Conflicts) -> dict[str, Uses]:
    uses: dict[str, Uses] = {}
    for regions in conflicts.regions.values():
        for region in regions:
            names = frozenset(conflicts.refs[a].leaf for a in region.accesses)
            uses.setdefault(conflicts.refs[region.place].group, Counter())[(region.kind, names)] += 1
    return uses


def _problems(shape: Shape, uses: Uses, dialect: Dialect, bus: Bus) -> Iterable[Problem]:
    classes: dict[tuple[int, ...], list[Leaf]] = {}
    for leaf in shape.leaves:
        classes.setdefault(leaf.dims, []).append(leaf)
    for leaves in classes.values():
        together: Counter[str] = Counter()
        written: set[str] = set()
        used: set[str] = set()
        for kind, names in uses:
            mine = names & {leaf.name for leaf in leaves}
            used |= mine
            written |= mine if kind == "w" else set()
            together.update(mine if len(mine) > 1 else ())
        alone = [
            leaf
            for leaf in leaves
            if _effects(leaf, dialect) or leaf.width > bus.width or (leaf.name in written and not together[leaf.name])
        ]
        for leaf in alone:
            yield _problem([leaf], uses, bus)
        rest = [leaf for leaf in leaves if leaf not in alone]
        for part in ([x for x in rest if x.name in used], [x for x in rest if x.name not in used]):
            if part:
                yield _problem(part, uses, bus)


def _problem(leaves: Sequence[Leaf], uses: Uses, bus: Bus) -> Problem:
    names = {leaf.name for leaf in leaves}
    mine: Uses = Counter()
    for (kind, used), times in uses.items():
        if used & names:
            mine[(kind, used & names)] += times
    return Problem(tuple(leaves), mine, bus, leaves[0].count)


def _effects(leaf: Leaf, dialect: Dialect) -> bool:
    field = dialect.field(leaf.field)
    return bool(field.effects("r") or field.effects("w"))


def solve(problem: Problem, exact: bool) -> Solution:
    if not problem.uses:
        return Solution(_packed(problem), 0, True)
    start = heuristic(problem)
    start = min(start, _singles(problem), key=lambda b: (problem.accesses(b), problem.bytes(b))) if exact else start
    if len(problem.leaves) == 1:
        return Solution(start, problem.accesses(start), True)
    bound = _bound(problem)
    if not exact or len(problem.leaves) > EXACT:
        return Solution(start, bound, False)
    from edgebuild.drivers.exact import solve_exactly

    return solve_exactly(problem, start)


def _bound(problem: Problem) -> int:
    """No region costs less than the registers that its bits fill."""
    widths = {leaf.name: leaf.width for leaf in problem.leaves}
    return sum(
        times * -(-sum(widths[n] for n in names) // problem.bus.width) for (_, names), times in problem.uses.items()
    )


def _packed(problem: Problem) -> Bins:
    """In the order of declaration, each register filled as far as it goes."""
    bins: list[tuple[Leaf, ...]] = []
    for leaf in problem.leaves:
        if bins and sum(x.width for x in bins[-1]) + leaf.width <= problem.bus.width:
            bins[-1] += (leaf,)
        else:
            bins.append((leaf,))
    return tuple(bins)


def _singles(problem: Problem) -> Bins:
    return tuple((leaf,) for leaf in problem.leaves)


def heuristic(problem: Problem) -> Bins:
    """Combinations by their number of uses, then by size; each field goes with the first combination that has it."""
    counts: Counter[frozenset[str]] = Counter()
    for (_, names), times in problem.uses.items():
        if len(names) > 1:
            counts[names] += times
    combinations = sorted(counts, key=lambda c: (-counts[c], -len(c), sorted(c)))
    leaves = {leaf.name: leaf for leaf in problem.leaves}
    placed: set[str] = set()
    bins: list[tuple[Leaf, ...]] = []
    for leaf in problem.leaves:
        if leaf.name in placed:
            continue
        company = next((c for c in combinations if leaf.name in c), frozenset([leaf.name]))
        chosen, free = [leaf], problem.bus.width - leaf.width
        for other in problem.leaves:
            if other.name in company and other.name not in placed and other is not leaf and other.width <= free:
                chosen.append(leaves[other.name])
                free -= other.width
        placed |= {c.name for c in chosen}
        bins.append(tuple(sorted(chosen, key=problem.leaves.index)))
    return tuple(bins)


# ---- from bins to registers


def _bits(leaves: Sequence[Leaf], bus: Bus) -> int:
    """Size of the register: whole bus words, or the least of 8, 16, 32 where the bus has bytes."""
    need = sum(leaf.width for leaf in leaves)
    for bits in (8, 16, 32) if bus.bytes else ():
        if need <= bits <= bus.width:
            return bits
    return bus.width * -(-need // bus.width)


def _register(leaves: Sequence[Leaf], bus: Bus, offset: int = 0) -> Register:
    bits = _bits(leaves, bus)
    slots, at = [], 0
    for i, leaf in enumerate(leaves):
        rest = sum(x.width for x in leaves[i + 1 :])
        aligned = -(-at // 8) * 8
        if leaf.width >= 8 and aligned + leaf.width + rest <= bits:  # a whole byte costs no shift on most cores
            at = aligned
        slots.append(Slot(leaf.name, at, leaf.width, leaf.field))
        at += leaf.width
    name = "_".join(leaf.name for leaf in leaves)
    name = name if len(name) <= 40 else f"{leaves[0].name}_and_{len(leaves) - 1}_more"
    stride = bits // 8 if leaves[0].dims else 0
    return Register(name, offset, bits, tuple(slots), leaves[0].count, stride, 0, leaves[0].dims)


def _placed(shape: Shape, bins: Iterable[tuple[Leaf, ...]], inner: Mapping[str, GroupLayout], bus: Bus) -> GroupLayout:
    """Inner groups first, then arrays, then single registers, the large ones first so that no byte is lost.

    What is indexed begins at offset 0 where it can: its address is computed, and there is nothing left to add.
    """
    order = {leaf.name: i for i, leaf in enumerate(shape.leaves)}
    at, align = 0, bus.width // 8 if not bus.bytes else 1
    subs = []
    for part in shape.parts:
        sub = inner[part.group]
        unit = _alignment(sub, inner, bus)
        align = max(align, unit)
        at = -(-at // unit) * unit
        subs.append(Sub(part.name, part.group, at, sub.size, part.dims))
        at += sub.size * part.count
    registers = []
    for b in sorted(bins, key=lambda b: (b[0].count == 1, -min(_bits(b, bus), bus.width), order[b[0].name])):
        unit = min(_bits(b, bus), bus.width) // 8
        align = max(align, unit)
        at = -(-at // unit) * unit
        registers.append(_register(b, bus, at))
        at += _bits(b, bus) // 8 * b[0].count
    return GroupLayout(shape.group, -(-at // align) * align, tuple(registers), tuple(subs))


def _alignment(group: GroupLayout, inner: Mapping[str, GroupLayout], bus: Bus) -> int:
    units = [min(r.bits, bus.width) // 8 for r in group.registers]
    units += [_alignment(inner[s.group], inner, bus) for s in group.subs]
    return max([1 if bus.bytes else bus.width // 8, *units])
