"""Choose the register layout: Stahl's heuristic (section 6.4.4) and an exact optimiser.

Both solve one group at a time, since accesses to different groups never merge. Within a group they solve one *class* of
leaves at a time: the single fields, or the arrays of one length, which are laid out element by element. The objective
is lexicographic: bus accesses over all access regions, weighted by a profile if there is one, then bytes of the
register map. A read region costs one access per register that it touches. A write region costs one per register that
it fills, and two per register that it shares. Between layouts of equal accesses, fewer read-modify-writes decide.
Fields with side effects have a register of their own. Fields that this driver never accesses share registers among
themselves only.

A field that is written and never accessed together with another one gains nothing from sharing a register: each write
would need a read first. It is alone in every best layout, so the solver leaves it out.

The exact optimiser does set partitioning by column generation, with integer programs solved by CP-SAT.

The cost of a layout is a sum over its registers. So the best layout is the cheapest choice of *columns* (possible
registers) that covers every leaf. The linear relaxation over all columns gives the bound. Only columns that lower it
are generated: from the leaves' dual prices, an integer program finds the register of least reduced cost (Gilmore and
Gomory, "A linear programming approach to the cutting-stock problem", 1961). When no reduced cost is negative, the
prices prove the bound. The best choice among the columns may stay above it. Then further columns are generated, in the
order of their reduced cost, until no remaining column can improve the choice.

A local search improves results without a proof of optimality, and replaces the optimiser in classes of more than
`EXACT` leaves. There the bound assumes full registers.

All limits are numbers of steps, not times, so the result depends on the problem alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ortools.linear_solver import pywraplp

from ...base.errors import EdgebuildError, fail
from ...base.inputs import read_json
from ...base.text import xml
from ..analysis.cdfg import MAIN, Cdfg, contexts
from ..analysis.conflicts import Conflicts, Leaf, Shape, Shapes
from ..source.dialect import Dialect
from .registers import (
    Bins,
    Bus,
    Column,
    Costs,
    GroupLayout,
    Layout,
    Problem,
    Register,
    Slot,
    Solution,
    Sub,
    Uses,
    heuristic,
    improved,
    least_bound,
    packed,
    register,
    register_bits,
    singles,
    slot,
)

COLUMNS = 40  # generated per problem, besides the initial ones
MISSES = 1  # pricing programs per problem that may reach LIMIT without a proof
LIMIT = "num_workers:1 catch_sigint_signal:false random_seed:0 max_deterministic_time:0.2 linearization_level:2"


def solve_exactly(problem: Problem, starts: Iterable[Bins], largest: int | None = None) -> Solution | None:
    """Minimise accesses, then read-modify-writes, then bytes. Return None if no partition within `largest` is found.

    `starts`: initial partitions. `largest`: limit of the map in bytes.
    """
    costs = Costs(problem)
    columns: dict[Column, None] = dict.fromkeys((i,) for i in range(len(problem.leaves)))
    for bins in starts:
        columns.update(dict.fromkeys(tuple(sorted(problem.leaves.index(leaf) for leaf in b)) for b in bins))
    pool = {c: costs.of(c) for c in columns}
    pricing, misses = _Pricing(costs), 0
    best, prices, missing = None, _converged(costs, pool, largest), True
    bound = 0
    for _ in range(COLUMNS):
        column, reduced, exact = pricing.cheapest(prices, pool)
        bound = max(bound, prices.proven(costs, reduced, largest))
        misses += not exact
        if reduced >= 0 and best is None:  # the relaxation is solved: its bound is proven
            best, _ = _choice(costs, pool, largest)
        if best is not None:
            total = sum(pool[c] for c in best)
            missing = reduced < total - prices.bound  # columns that could help
            if not missing or total // costs.access == prices.bound // costs.access:  # least accesses: bytes may differ
                break
        if column is None or misses > MISSES:
            break
        pool[column] = costs.of(column)
        if best is None:
            prices = _converged(costs, pool, largest)
    best, exact = _choice(costs, pool, largest)
    if best is None:
        return None
    if exact and not missing:
        bound = sum(pool[c] for c in best)
    bins = tuple(tuple(problem.leaves[i] for i in c) for c in sorted(best))
    accesses = problem.accesses(bins)
    proven = min(accesses, max(least_bound(problem), bound // costs.access))
    return Solution(bins, proven, proven == accesses)


# ---- which columns to take


@dataclass(frozen=True)
class _Prices:
    """Dual prices of each leaf, rounded down, and of each byte of a layout. No layout costs less than `bound`, provided
    that no column has a negative reduced cost."""

    leaves: tuple[int, ...]
    byte: int
    bound: int
    used: tuple[Column, ...]  # columns of the linear program's solution

    def reduced(self, costs: Costs, column: Column, cost: int) -> int:
        return cost + self.byte * costs.bytes(column) - sum(self.leaves[i] for i in column)

    def proven(self, costs: Costs, reduced: int, largest: int | None) -> int:
        """A lower bound of the cost of every layout, if no column has a reduced cost below `reduced`.

        All prices are scaled down until no reduced cost is negative: Farley, "A note on bounding a class of linear
        programming problems, including cutting stock problems", 1990.
        """
        if reduced >= 0:
            return self.bound
        least = min(costs.of((i,)) for i in range(len(self.leaves)))  # a column costs what its dearest leaf costs
        return sum(self.leaves) * least // (least - reduced) - self.byte * (largest or 0)


def _converged(costs: Costs, pool: dict[Column, int], largest: int | None) -> _Prices:
    """Prices at which no neighbour of a used column has a negative reduced cost. Those that had one join `pool`."""
    while True:
        prices = _prices(costs, pool, largest)
        near = {n for column in prices.used for n in _neighbours(costs.problem, column)} - pool.keys()
        better = {n: cost for n in sorted(near) if prices.reduced(costs, n, cost := costs.of(n)) < 0}
        if not better:
            return prices
        pool.update(better)


def _neighbours(problem: Problem, column: Column) -> Iterator[Column]:
    """The column without each of its leaves, and with each further leaf that fits into the register."""
    if len(column) > 1:
        yield from (column[:k] + column[k + 1 :] for k in range(len(column)))
    free = problem.bus.width - sum(problem.leaves[i].width for i in column)
    for i, leaf in enumerate(problem.leaves):
        if leaf.width <= free and i not in column:
            yield tuple(sorted((*column, i)))


def _program(solver: str, costs: Costs, pool: dict[Column, int], largest: int | None, whole: bool) -> Any:
    """Choose columns so that every leaf is covered: (solver, variables, rows of the leaves, row of the bytes)."""
    program = pywraplp.Solver.CreateSolver(solver)
    make = program.BoolVar if whole else (lambda name: program.NumVar(0, program.infinity(), name))
    chosen = {c: make("") for c in pool}
    for c, variable in chosen.items():
        program.Objective().SetCoefficient(variable, pool[c])
    rows = [program.Constraint(1, 1 if whole else program.infinity()) for _ in costs.problem.leaves]
    for c, variable in chosen.items():
        for i in c:
            rows[i].SetCoefficient(variable, 1)
    small = None
    if largest is not None:
        small = program.Constraint(-program.infinity(), largest)
        for c, variable in chosen.items():
            small.SetCoefficient(variable, costs.bytes(c))
    return program, chosen, rows, small


def _prices(costs: Costs, pool: dict[Column, int], largest: int | None) -> _Prices:
    program, chosen, rows, small = _program("GLOP", costs, pool, largest, whole=False)
    if small is not None:  # a variable for bytes above the limit, dearer than any access, keeps the program feasible
        over = program.NumVar(0, program.infinity(), "")
        small.SetCoefficient(over, -1)
        program.Objective().SetCoefficient(over, costs.access * (1 + sum(times for *_, times in costs.uses)))
    program.Solve()
    leaves = tuple(max(0, floor(row.dual_value())) for row in rows)
    byte = max(0, floor(-small.dual_value())) if small is not None else 0
    used = tuple(c for c, variable in chosen.items() if variable.solution_value() > 1e-6)
    return _Prices(leaves, byte, sum(leaves) - byte * (largest or 0), used)


def _choice(costs: Costs, pool: dict[Column, int], largest: int | None) -> tuple[list[Column] | None, bool]:
    """(the cheapest partition, or None if all exceed `largest`; whether it is proven to be the cheapest)."""
    program, chosen, *_ = _program("SAT", costs, pool, largest, whole=True)
    program.SetSolverSpecificParametersAsString(LIMIT)
    status = program.Solve()
    if status not in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE):
        return None, False
    columns = [c for c, variable in chosen.items() if variable.solution_value() > 0.5]
    return columns, status == pywraplp.Solver.OPTIMAL


class _Pricing:
    """The pricing program: it finds the register of least reduced cost.

    takes[i]: leaf i is in it. touched: a region accesses it. shared: a region writes it and keeps some of its leaves.
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        problem = costs.problem
        self.program = p = pywraplp.Solver.CreateSolver("SAT")
        p.SetSolverSpecificParametersAsString(LIMIT)
        self.takes = [p.BoolVar("") for _ in problem.leaves]
        p.Add(sum(self.takes) >= 1)
        self.sizes = {bits: p.BoolVar("") for bits in _sizes(problem)}
        p.Add(sum(self.sizes.values()) == 1)
        used = sum(leaf.width * take for leaf, take in zip(problem.leaves, self.takes, strict=True))
        p.Add(used <= sum(bits * size for bits, size in self.sizes.items()))
        for kind, members, times in costs.uses:
            self._region(kind, members, times)
        self.excluded: set[Column] = set()

    def _region(self, kind: str, members: list[int], times: int) -> None:
        p, costs = self.program, self.costs
        touched = p.BoolVar("") if len(members) > 1 else self.takes[members[0]]
        for i in members if len(members) > 1 else ():
            p.Add(touched >= self.takes[i])
        objective = p.Objective()
        if len(members) > 1:
            objective.SetCoefficient(touched, costs.access * times)
        others = [t for i, t in enumerate(self.takes) if i not in members]
        if kind == "w" and others:
            shared = p.BoolVar("")
            for other in others:
                p.Add(shared >= touched + other - 1)
            objective.SetCoefficient(shared, costs.access * times + costs.modify)

    def cheapest(self, prices: _Prices, pool: dict[Column, int]) -> tuple[Column | None, int, bool]:
        """(a column outside of the pool, a lower bound of all such columns' reduced costs, whether it is attained)."""
        costs, objective = self.costs, self.program.Objective()
        for column in [c for c in pool if c not in self.excluded]:
            self.excluded.add(column)
            inside = sum(self.takes[i] for i in column)
            outside = sum(t for i, t in enumerate(self.takes) if i not in column)
            self.program.Add(inside - outside <= len(column) - 1)
        direct = [0] * len(self.takes)  # cost of regions with one leaf, for which `takes` serves as `touched`
        for _, members, times in costs.uses:
            if len(members) == 1:
                direct[members[0]] += costs.access * times
        for i, take in enumerate(self.takes):
            objective.SetCoefficient(take, direct[i] - prices.leaves[i])
        for bits, size in self.sizes.items():
            objective.SetCoefficient(size, costs.problem.count * bits // 8 * (1 + prices.byte))
        status = self.program.Solve()
        if status == pywraplp.Solver.INFEASIBLE:
            return None, 1 << 62, True
        if status not in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE):
            return None, -sum(prices.leaves), False  # BestBound() is 0 then, and proves nothing
        bound = floor(objective.BestBound() + 0.5)
        column = tuple(i for i, take in enumerate(self.takes) if take.solution_value() > 0.5)
        return column, bound, status == pywraplp.Solver.OPTIMAL


def _sizes(problem: Problem) -> list[int]:
    """Sizes of registers in bits: a bus word, and parts of it if the bus has byte accesses."""
    width = problem.bus.width
    return [bits for bits in (8, 16, 32) if bits < width and problem.bus.bytes] + [width]


EXACT = 60  # most leaves per class for the exact optimiser


Writers = Mapping[tuple[str, str], frozenset[str]]  # (group, leaf) -> contexts that write the leaf


def writers(cdfg: Cdfg, conflicts: Conflicts) -> Writers:
    """The contexts that write each leaf; empty if no interrupt is declared."""
    if not any(f.interrupt is not None for f in cdfg.functions.values()):
        return {}
    contexts_of: dict[tuple[str, str], frozenset[str]] = {}
    runs = contexts(cdfg)
    for name, f in cdfg.functions.items():
        for a in f.accesses:
            if a.kind == "w":
                ref = conflicts.refs[a]
                contexts_of[ref.group, ref.leaf] = contexts_of.get((ref.group, ref.leaf), frozenset()) | runs[name]
    return contexts_of


def optimize(
    dialect: Dialect,
    shapes: Shapes,
    uses: Mapping[str, Uses],
    bus: Bus,
    by: Writers = MappingProxyType({}),
    exact: bool = True,
) -> Layout:
    """Lay out all groups. Fields that different contexts write get separate registers: a shared one would be a race."""
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
    """The access regions of each group, counted. `weights`: runs of each function; 1 for functions that it lacks."""
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
    """One problem per class of leaves. With `split`, each leaf that is alone in every best layout is one by itself."""
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
            touched = names & {leaf.name for leaf in leaves}
            used |= touched
            written |= touched if kind == "w" else set()
            together.update(touched if len(touched) > 1 else ())
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
    return Problem(tuple(leaves), _restricted(uses, {leaf.name for leaf in leaves}), bus, leaves[0].count)


def _restricted(uses: Uses, names: set[str]) -> Uses:
    """The regions, restricted to the leaves in `names`."""
    restricted: Uses = Counter()
    for (kind, used), times in uses.items():
        if used & names:
            restricted[(kind, used & names)] += times
    return restricted


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
        start = min(start, singles(problem), key=problem.rank)
        few = solve_exactly(problem, [start]) if len(problem.leaves) <= EXACT else None
        if few and few.optimal:
            return few
        better, bound = improved(problem, few.bins if few else start), few.bound if few else least_bound(problem)
        return Solution(better, bound, problem.accesses(better) == bound)
    return Solution(start, least_bound(problem), False)


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
    """Place inner groups, then arrays, then single registers, the large ones first to avoid padding.

    Indexed members come first because at offset 0 their computed address needs no addition.
    `stride`: least bytes between two elements of an array of this group.
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


# Extended layouts: fields of an earlier report keep their places, new fields follow behind them.
#
# FILE is the `N_report.json` of the driver whose hardware exists. Fields that the source no longer has keep their bits.


@dataclass(frozen=True)
class Old:
    """One group as a report describes it."""

    size: int
    registers: tuple[Mapping[str, Any], ...]
    members: tuple[Mapping[str, Any], ...]


def extend(path: Path, dialect: Dialect, shapes: Shapes, uses: Mapping[str, Uses], bus: Bus, by: Writers) -> Layout:
    """Extend a report's layout by new fields. Raises EdgebuildError if it is invalid, or a field does not fit."""
    old = _read(path, bus)
    laid_out = {name: {f["name"] for r in o.registers for f in r["fields"]} for name, o in old.items()}
    fresh = {name: _fresh(path, shape, laid_out.get(name, set())) for name, shape in shapes.groups.items()}
    for name, shape in fresh.items():
        _check_split_unchanged(path, shape, shapes.groups[name], laid_out.get(name, set()), old.get(name))
    new_leaves = {name: {x.name for x in shape.leaves} for name, shape in fresh.items()}
    rest = {name: _restricted(group, new_leaves[name]) for name, group in uses.items()}
    new = optimize(dialect, Shapes(fresh, shapes.arrays), rest, bus, by)
    groups: dict[str, GroupLayout] = {}
    for name, shape in shapes.groups.items():  # inner groups come first
        groups[name] = _grown(path, shape, old.get(name), new.groups[name], groups, bus)
    size = sum(groups[d.group].size for d in dialect.devices.values())
    return Layout(groups, bus, "extend", False, new.cost, new.bound, size)


NO_REPORT = "is not the report of a driver (NAME_report.json)"


MAX_BYTES = 1 << 20  # size of the largest group that a report may have
WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def _read(path: Path, bus: Bus) -> dict[str, Old]:
    """Read a report's groups by name. The file is not trusted: raises EdgebuildError if no driver can have it."""
    try:
        layout = read_json(path, NO_REPORT)["layout"]
        old = {
            g["name"]: Old(
                g["bytes"], tuple(r for r in layout["registers"] if r["group"] == g["name"]), tuple(g["members"])
            )
            for g in layout["groups"]
        }
        for name, group in old.items():
            _check_old(name, group, bus)
    except (ValueError, KeyError, TypeError) as error:
        raise fail(NO_REPORT, file=str(path)) from error
    return old


def _check_old(name: str, old: Old, bus: Bus) -> None:
    """Check that names are words of C, and that no two fields share a bit. Raises ValueError, TypeError, KeyError."""
    fields = [f for r in old.registers for f in r["fields"]]
    words = [name, *(row["name"] for row in (*old.registers, *old.members, *fields))]
    numbers = [old.size, *(r[key] for r in old.registers for key in ("offset", "bits", "count", "stride"))]
    numbers += [n for m in old.members for n in (m["offset"], m["stride"], *m["count"])]
    numbers += [f[key] for f in fields for key in ("lsb", "width")]
    if not all(map(WORD.fullmatch, words)) or not all(type(n) is int and 0 <= n <= MAX_BYTES for n in numbers):
        raise ValueError(name)
    occupied = [(m["offset"], m["offset"] + prod(m["count"]) * m["stride"]) for m in old.members]
    occupied = [(first, last) for first, last in occupied if first < last]
    for r in old.registers:
        starts, size = (r["offset"] + i * r["stride"] for i in range(r["count"])), r["bits"] // 8
        occupied += [(start, start + size) for start in starts]
        bits = sorted((f["lsb"], f["lsb"] + f["width"]) for f in r["fields"])
        is_placed = r["bits"] in (8, 16, 32, 64) and r["count"] and r["offset"] % min(size, bus.width // 8) == 0
        if not is_placed or not _disjoint(bits, r["bits"]):
            raise ValueError(r["name"])
    if not _disjoint(sorted(occupied), old.size):
        raise ValueError(name)


def _disjoint(ranges: Sequence[tuple[int, int]], end: int) -> bool:
    """Whether sorted ranges are not empty, do not overlap, and end by `end`."""
    ends = (*(first for first, _ in ranges[1:]), end)
    return all(first < last <= then for (first, last), then in zip(ranges, ends, strict=bool(ranges)))


def _fresh(path: Path, shape: Shape, laid_out: set[str]) -> Shape:
    """The fields of a group that the old layout lacks. Raises EdgebuildError if one belongs into an old register."""
    for names in shape.glued:
        new = sorted(names - laid_out)
        if new and names & laid_out:
            raise _wrong(path, f"'{shape.group}.{new[0]}' is new in a register that is accessed as a whole")
    glued = tuple(names for names in shape.glued if not names & laid_out)
    return replace(shape, leaves=tuple(x for x in shape.leaves if x.name not in laid_out), parts=(), glued=glued)


def _check_split_unchanged(path: Path, fresh: Shape, shape: Shape, laid_out: set[str], old: Old | None) -> None:
    """Raise EdgebuildError if an array was split and is whole now, or the reverse: it would be laid out twice."""
    members = {m["name"] for m in old.members} if old else set()
    for leaf in fresh.leaves:
        for other in sorted(laid_out | members):
            split = re.fullmatch(re.escape(leaf.name) + r"(_\d+)+", other) if leaf.dims else None
            whole = re.fullmatch(re.escape(other) + (r"(_\d+)+" if other in laid_out else r"_.+"), leaf.name)
            if split or whole:
                raise _wrong(path, f"'{shape.group}.{leaf.name}' is accessed in another way than '{other}' was")
    for part in shape.parts:
        other = next((n for n in sorted(laid_out) if n.startswith(f"{part.name}_")), "")
        if part.name not in members and other:
            raise _wrong(path, f"'{shape.group}.{part.name}' is accessed in another way than '{other}' was")


def _grown(
    path: Path, shape: Shape, old: Old | None, new: GroupLayout, inner: Mapping[str, GroupLayout], bus: Bus
) -> GroupLayout:
    if old is None:
        old = Old(0, (), ())
    leaves = {leaf.name: leaf for leaf in shape.leaves}
    registers = [_kept(path, r, leaves) for r in old.registers]
    members = {m["name"]: m for m in old.members}
    subs, end = [], old.size
    for part in shape.parts:
        size, m = inner[part.group].size, members.get(part.name)
        if m is None:
            end = -(-end // 4) * 4
            subs.append(Sub(part.name, part.group, end, size, part.dims))
            end += size * part.count
            continue
        if tuple(m["count"]) != part.dims:
            now, before = ("".join(f"[{n}]" for n in dims) or "one" for dims in (part.dims, m["count"]))
            raise _wrong(path, f"'{shape.group}.{part.name}' is {now}, and {before} in the layout")
        if size > (m["stride"] or size):
            raise _wrong(path, f"'{shape.group}.{part.name}' has no room: {size} bytes, {m['stride']} are there")
        subs.append(Sub(part.name, part.group, m["offset"], m["stride"], part.dims))
    if new.registers:
        unit = max(bus.width // 8, *(min(r.bits, bus.width) // 8 for r in new.registers))
        end = -(-end // unit) * unit
        registers += [replace(r, offset=r.offset + end) for r in new.registers]
        end += new.size
    return GroupLayout(shape.group, end, tuple(registers), tuple(subs))


def _kept(path: Path, r: Mapping[str, Any], leaves: Mapping[str, Leaf]) -> Register:
    slots: list[Slot] = []
    dims: tuple[int, ...] = ()
    reset = 0
    for f in r["fields"]:
        leaf = leaves.get(f["name"])
        if leaf is None:
            slots.append(Slot(f["name"], f["lsb"], f["width"], back="keep"))
            continue
        if leaf.width != f["width"] or leaf.count != r["count"]:
            text = f"'{leaf.name}' has {leaf.count} x {leaf.width} bits, and {r['count']} x {f['width']} in the layout"
            raise _wrong(path, text)
        slots.append(slot(leaf, f["lsb"]))
        dims, reset = leaf.dims, reset | (slots[-1].reset or 0) << f["lsb"]
    if r["count"] > 1 and not dims:
        dims = (r["count"],)
    return Register(r["name"], r["offset"], r["bits"], tuple(slots), r["count"], r["stride"], reset, dims)


def _wrong(path: Path, text: str) -> EdgebuildError:
    return fail(text, file=str(path), hints=["hardware that exists keeps its addresses"])


# Map size against accesses: the Pareto front of layouts, and a picture of it.
#
# Each class of leaves is solved for fewest accesses, then again with one byte less than the last solution allowed (the
# epsilon-constraint method). Sums over the classes of all groups give the front of the whole register map, without
# dominated points.

STEPS = 12  # most layouts per class of leaves

Point = tuple[int, int]  # (bytes, accesses)
Choice = tuple[tuple[str, Bins], ...]  # (group, registers of one class of its leaves), for each class


def front(dialect: Dialect, shapes: Shapes, uses: Mapping[str, Uses], bus: Bus) -> tuple[Point, ...]:
    """The Pareto front: (bytes of all devices, accesses), the largest map first."""
    instances = _instances(dialect, shapes)
    sums: dict[Point, Choice] = {(0, 0): ()}
    for name, shape in shapes.groups.items():
        for problem in problems(shape, uses.get(name, Counter()), dialect, bus, split=False):
            layouts = [(problem.bytes(b) * instances[name], problem.accesses(b), b) for b in _by_size(problem)]
            sums = {
                (size + more, accesses + extra): (*chosen, (name, bins))
                for (size, accesses), chosen in sums.items()
                for more, extra, bins in layouts
            }
            sums = {point: sums[point] for point in _undominated(sums)}
    points = {(_bytes(chosen, dialect, shapes, bus), accesses) for (_, accesses), chosen in sums.items()}
    return tuple(sorted(_undominated(points), reverse=True))


def _by_size(problem: Problem) -> list[Bins]:
    """The best layout, then the best one of each smaller size."""
    if problem.glued:
        return [(problem.leaves,)]
    if not problem.uses or len(problem.leaves) == 1:
        return [packed(problem)]
    if len(problem.leaves) > EXACT:
        return [improved(problem, heuristic(problem)), packed(problem)]
    layouts: list[Bins] = []
    largest = None
    while len(layouts) < STEPS:
        solution = solve_exactly(problem, [heuristic(problem), *layouts[-1:]], largest)
        if solution is None:
            break
        layouts.append(solution.bins)
        largest = problem.bytes(solution.bins) - 1
    return layouts


def _undominated(points: Iterable[Point]) -> list[Point]:
    best: list[Point] = []
    for point in sorted(points):  # the smallest map first: a larger one must have fewer accesses
        if not best or point[1] < best[-1][1]:
            best.append(point)
    return best


def _instances(dialect: Dialect, shapes: Shapes) -> Counter[str]:
    """The number of instances of each group in all devices."""
    count: Counter[str] = Counter(d.group for d in dialect.devices.values())
    for name in reversed(shapes.groups):  # inner groups come first, so this is outside in
        for part in shapes.groups[name].parts:
            count[part.group] += count[name] * part.count
    return count


def _bytes(choice: Choice, dialect: Dialect, shapes: Shapes, bus: Bus) -> int:
    groups = placed(shapes, {n: [b for name, bins in choice if name == n for b in bins] for n in shapes.groups}, bus)
    return sum(groups[d.group].size for d in dialect.devices.values())


# ---- the picture

WIDTH, HEIGHT, LEFT, BELOW, TOP = 480, 300, 48, 44, 16


def picture(points: Iterable[Point], chosen: Point, title: str) -> str:
    """SVG: accesses over bytes of the map; the chosen layout is filled."""
    points = sorted({*points, chosen})
    most, highest = max(b for b, _ in points), max(a for _, a in points)

    def at(point: Point) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - 24) * point[0] / max(1, most)
        return round(x, 1), round(HEIGHT - BELOW - (HEIGHT - BELOW - TOP) * point[1] / max(1, highest), 1)

    base = HEIGHT - BELOW
    size = f'width="{WIDTH}" height="{HEIGHT}"'
    line = " ".join(f"{x},{y}" for x, y in map(at, points))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect {size} fill="#ffffff"/>',
        '<g font-size="10" fill="#444444">',
        f'<polyline points="{line}" fill="none" stroke="#4c78a8" stroke-opacity="0.4"/>',
        f'<path d="M{LEFT},{TOP} V{base} H{WIDTH - 16}" fill="none" stroke="#444444"/>',
    ]
    for point in points:
        x, y = at(point)
        text = f"{point[0]} B, {point[1]} accesses"
        fill = "#4c78a8" if point == chosen else "#ffffff"
        lines.append(f'<circle cx="{x}" cy="{y}" r="4" fill="{fill}" stroke="#4c78a8"><title>{text}</title></circle>')
    lines += [
        f'<text x="{LEFT - 6}" y="{TOP + 4}" text-anchor="end">{highest}</text>',
        f'<text x="{LEFT - 6}" y="{base}" text-anchor="end">0</text>',
        f'<text x="{WIDTH - 24}" y="{base + 14}" text-anchor="middle">{most} B</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 8}">{xml(title)}: accesses of the source over bytes of the map</text>',
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
