"""Choosing the layout: Stahl's heuristic (section 6.4.4) and an exact optimiser.

Both work on one group at a time, since accesses to different groups never become one. In it they work on one *class* of
leaves at a time: single fields, and arrays by their length, which are laid out element by element. The objective is
lexicographic: bus accesses over all access regions, each counted once or as often as a profile says, then bytes of the
register map. A read region costs one access per register that it touches. A write region costs one per register that it
fills and two per register that it shares. Of two layouts with as many accesses, the one with fewer read-modify-writes
is better. Fields with side effects have a register of their own, and fields that this driver never accesses share
registers among themselves only.

A field that is written and never accessed together with another one gains nothing from company. Each of its writes
would cost a read. So it is alone in every best layout, and the solver does not see it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from edgebuild.driver.analysis.cdfg import Cdfg
from edgebuild.driver.analysis.conflicts import Conflicts
from edgebuild.driver.analysis.contexts import MAIN, contexts
from edgebuild.driver.analysis.simplify import Leaf, Shape, Shapes
from edgebuild.driver.layout.problem import (
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
from edgebuild.driver.layout.registers import Bus, GroupLayout, Layout, Sub
from edgebuild.driver.layout.settled import settled
from edgebuild.driver.source.dialect import Dialect

EXACT = 60  # leaves of one class that the solver takes on


Writers = Mapping[
    tuple[str, str], frozenset[str]
]  # of a group's leaf: the contexts that write it, if there are several


def writers(cdfg: Cdfg, conflicts: Conflicts) -> Writers:
    """Which contexts write which leaf; nothing where no interrupt is declared."""
    if not any(f.interrupt is not None for f in cdfg.functions.values()):
        return {}
    found: dict[tuple[str, str], frozenset[str]] = {}
    runs = contexts(cdfg)
    for name, f in cdfg.functions.items():
        for a in f.accesses:
            if a.kind == "w":
                ref = conflicts.refs[a]
                found[ref.group, ref.leaf] = found.get((ref.group, ref.leaf), frozenset()) | runs[name]
    return found


def optimize(
    dialect: Dialect,
    shapes: Shapes,
    uses: Mapping[str, Uses],
    bus: Bus,
    by: Writers = MappingProxyType({}),
    exact: bool = True,
) -> Layout:
    """No register holds fields that are written by different contexts: to keep one would be to race with the other."""
    bins: dict[str, list[tuple[Leaf, ...]]] = {}
    total, bound, optimal = 0, 0, True
    for name, shape in shapes.groups.items():
        bins[name] = []
        for problem in problems(shape, uses.get(name, Counter()), dialect, bus, by):
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


def problems(
    shape: Shape, uses: Uses, dialect: Dialect, bus: Bus, by: Writers = MappingProxyType({}), split: bool = True
) -> Iterable[Problem]:
    """One for each class of leaves; with `split`, leaves that are alone in every best layout are taken apart."""
    for names in shape.glued:
        yield replace(_problem([leaf for leaf in shape.leaves if leaf.name in names], uses, bus), glued=True)
    glued = frozenset[str]().union(*shape.glued)
    classes: dict[tuple[int, ...], list[Leaf]] = {}
    for leaf in (x for x in shape.leaves if x.name not in glued):
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
            or len(by.get((shape.group, leaf.name), ())) > 1
            or (split and leaf.name in written and not together[leaf.name])
        ]
        for leaf in alone:
            yield _problem([leaf], uses, bus)
        rest = [leaf for leaf in leaves if leaf not in alone]
        parts: dict[tuple[bool, frozenset[str]], list[Leaf]] = {}
        for x in rest:
            context = by.get((shape.group, x.name), frozenset([MAIN]))
            parts.setdefault((x.name not in used, context), []).append(x)
        for _, part in sorted(parts.items(), key=lambda p: (p[0][0], sorted(p[0][1]))):
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
    return bool(field.effects("r") or field.effects("w")) or "r" not in field.access


def solve(problem: Problem, exact: bool) -> Solution:
    if not problem.uses and not problem.glued:
        return Solution(packed(problem), 0, True)
    if problem.glued:
        bins = (problem.leaves,)
        return Solution(bins, problem.accesses(bins), True)
    start = heuristic(problem)
    if len(problem.leaves) == 1:
        return Solution(start, problem.accesses(start), True)
    if exact:
        found = settled(problem)
        if found:
            return _with(found, problem)
        start = min(start, singles(problem), key=problem.rank)
        if len(problem.leaves) <= EXACT:
            from edgebuild.driver.layout.exact import solve_exactly  # late: loads the solver

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
    strides = [(p.group, p.stride) for s in shapes.groups.values() for p in s.parts]
    for name, shape in shapes.groups.items():  # inner groups come first
        groups[name] = _placed(shape, bins[name], groups, bus, max((n for g, n in strides if g == name), default=0))
    return groups


def _placed(
    shape: Shape, bins: Iterable[tuple[Leaf, ...]], inner: Mapping[str, GroupLayout], bus: Bus, stride: int
) -> GroupLayout:
    """`stride`: the least bytes from one element of an array of this group to the next.

    Inner groups first, then arrays, then single registers, the large ones first so that no byte is lost.

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
        at += (registers[-1].stride or registers[-1].bits // 8) * b[0].count
    return GroupLayout(shape.group, max(-(-at // align) * align, stride), tuple(registers), tuple(subs))


def _alignment(group: GroupLayout, inner: Mapping[str, GroupLayout], bus: Bus) -> int:
    units = [min(r.bits, bus.width) // 8 for r in group.registers]
    units += [_alignment(inner[s.group], inner, bus) for s in group.subs]
    return max([1 if bus.bytes else bus.width // 8, *units])
