"""Choosing the layout: Stahl's heuristic (section 6.4.4) and an exact optimiser.

Both work on one group at a time, since accesses to different groups never become one, and on one *class* of leaves at a
time: single fields, and arrays by their length, which are laid out element by element. The objective is lexicographic:
bus accesses over all access regions, each counted once or as often as a profile says, then bytes of the register map. A
read region costs one access per register that it touches; a write region one per register that it fills and two per
register that it shares (of two layouts with as many accesses, the one with fewer read-modify-writes counts as better).
Fields with side effects have a register of their own, and fields that this driver never accesses share registers among
themselves only.

A field that is written and never accessed together with another one gains nothing from company, and each of its writes
would cost a read: it is alone in every best layout, and the solver does not see it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from edgebuild.drivers.conflicts import Conflicts
from edgebuild.drivers.dialect import Dialect
from edgebuild.drivers.layout import Bus, GroupLayout, Layout, Sub
from edgebuild.drivers.problem import (
    Bins,
    Problem,
    Solution,
    Uses,
    heuristic,
    least_bound,
    packed,
    register,
    register_bits,
    singles,
)
from edgebuild.drivers.settled import settled
from edgebuild.drivers.simplify import Leaf, Shape, Shapes

EXACT = 60  # leaves of one class that the solver takes on


def optimize(dialect: Dialect, shapes: Shapes, uses: Mapping[str, Uses], bus: Bus, exact: bool = True) -> Layout:
    bins: dict[str, list[tuple[Leaf, ...]]] = {}
    total, bound, optimal = 0, 0, True
    for name, shape in shapes.groups.items():
        bins[name] = []
        for problem in problems(shape, uses.get(name, Counter()), dialect, bus):
            solution = solve(problem, exact)
            bins[name] += solution.bins
            total += problem.accesses(solution.bins)
            bound += solution.bound
            optimal = optimal and solution.optimal
    groups = placed(shapes, bins, bus)
    size = sum(groups[d.group].size for d in dialect.devices.values())
    return Layout(groups, bus, "optimize" if exact else "heuristic", optimal and exact, total, bound, size)


def group_uses(conflicts: Conflicts, weights: Mapping[str, int]) -> dict[str, Uses]:
    """The regions of each group. `weights`: how often a function runs; those that are not named count once."""
    uses: dict[str, Uses] = {}
    for function, regions in conflicts.regions.items():
        for region in regions:
            names = frozenset(conflicts.refs[a].leaf for a in region.accesses)
            uses.setdefault(conflicts.refs[region.place].group, Counter())[(region.kind, names)] += weights.get(
                function, 1
            )
    return uses


def problems(shape: Shape, uses: Uses, dialect: Dialect, bus: Bus, split: bool = True) -> Iterable[Problem]:
    """One for each class of leaves; with `split`, leaves that are alone in every best layout are taken apart."""
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
            if _effects(leaf, dialect)
            or leaf.width > bus.width
            or (split and leaf.name in written and not together[leaf.name])
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
        return Solution(packed(problem), 0, True)
    start = heuristic(problem)
    if len(problem.leaves) == 1:
        return Solution(start, problem.accesses(start), True)
    if exact:
        found = settled(problem)
        if found:
            return _with(found, problem)
        start = min(start, singles(problem), key=problem.rank)
        if len(problem.leaves) <= EXACT:
            from edgebuild.drivers.exact import solve_exactly  # late: loads the solver

            return solve_exactly(problem, [start]) or Solution(start, least_bound(problem), False)
    return Solution(start, least_bound(problem), False)


def _with(found: Bins, problem: Problem) -> Solution:
    """The best layout that has these registers."""
    taken = {leaf.name for b in found for leaf in b}
    rest = [leaf for leaf in problem.leaves if leaf.name not in taken]
    inner = solve(_problem(rest, problem.uses, problem.bus), exact=True) if rest else Solution((), 0, True)
    return Solution(found + inner.bins, problem.accesses(found) + inner.bound, inner.optimal)


# ---- from bins to places


def placed(shapes: Shapes, bins: Mapping[str, Sequence[tuple[Leaf, ...]]], bus: Bus) -> dict[str, GroupLayout]:
    """The layouts of all groups from the registers of each."""
    groups: dict[str, GroupLayout] = {}
    for name, shape in shapes.groups.items():  # inner groups come first
        groups[name] = _placed(shape, bins[name], groups, bus)
    return groups


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
    for b in sorted(bins, key=lambda b: (b[0].count == 1, -min(register_bits(b, bus), bus.width), order[b[0].name])):
        unit = min(register_bits(b, bus), bus.width) // 8
        align = max(align, unit)
        at = -(-at // unit) * unit
        registers.append(register(b, bus, at))
        at += register_bits(b, bus) // 8 * b[0].count
    return GroupLayout(shape.group, -(-at // align) * align, tuple(registers), tuple(subs))


def _alignment(group: GroupLayout, inner: Mapping[str, GroupLayout], bus: Bus) -> int:
    units = [min(r.bits, bus.width) // 8 for r in group.registers]
    units += [_alignment(inner[s.group], inner, bus) for s in group.subs]
    return max([1 if bus.bytes else bus.width // 8, *units])
