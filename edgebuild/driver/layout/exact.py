"""The exact optimiser: set partitioning by column generation, with integer programs solved by CP-SAT.

The cost of a layout is a sum over its registers, so the best one is the cheapest choice of *columns*, which are
possible registers, in which every leaf occurs. The linear relaxation over all columns gives the bound. Only columns
that lower it are made. With the leaves' dual prices at hand, an integer program finds the register that is cheapest
below the prices of its leaves. Gilmore and Gomory describe it in "A linear programming approach to the cutting-stock
problem", 1961. When there is none, the prices prove the bound. The best choice among the columns may stay above it.
Then more are made, the one of least reduced cost first, until what is left is too dear to be of help.

All limits are numbers of steps, so the result is a function of the problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import floor
from typing import Any

from ortools.linear_solver import pywraplp

from edgebuild.driver.layout.problem import Bins, Problem, Solution, least_bound, register_bits

COLUMNS = 40  # that are made per problem, besides those to begin with
MISSES = 1  # integer programs of one problem that may reach their limit
LIMIT = "num_workers:1 random_seed:0 max_deterministic_time:0.2 linearization_level:2"

Column = tuple[int, ...]  # indices of the leaves that share a register, ascending


def solve_exactly(problem: Problem, starts: Iterable[Bins], largest: int | None = None) -> Solution | None:
    """The least accesses, then the fewest read-modify-writes, then the least bytes.

    `starts` are partitions to begin with. `largest` bounds the bytes of the map; None if nothing that small is found.
    """
    costs = _Costs(problem)
    columns: dict[Column, None] = dict.fromkeys((i,) for i in range(len(problem.leaves)))
    for bins in starts:
        columns.update(dict.fromkeys(tuple(sorted(problem.leaves.index(leaf) for leaf in b)) for b in bins))
    pool = {c: costs.of(c) for c in columns}
    pricing, misses = _Pricing(costs), 0
    best, prices, missing = None, _converged(costs, pool, largest), True
    for _ in range(COLUMNS):
        column, reduced, exact = pricing.cheapest(prices, pool)
        bound = prices.bound + min(0, reduced) * len(problem.leaves)
        misses += not exact
        if reduced >= 0 and best is None:
            best, _ = _choice(costs, pool, largest)
        if best is not None:
            total = sum(pool[c] for c in best)
            missing = reduced < total - prices.bound  # columns that could help
            if not missing or total // costs.access == prices.bound // costs.access:
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


class _Costs:
    """Whole numbers: one read-modify-write counts more than all bytes, one access more than all of both."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        names = [leaf.name for leaf in problem.leaves]
        self.uses = sorted(
            (kind, sorted(names.index(n) for n in members), times) for (kind, members), times in problem.uses.items()
        )
        bits = [register_bits([leaf], problem.bus) for leaf in problem.leaves]
        self.modify = 1 + problem.count * sum(bits) // 8
        self.access = self.modify * (1 + sum(len(members) for _, members, _ in self.uses))

    def bytes(self, column: Column) -> int:
        problem = self.problem
        return problem.count * register_bits([problem.leaves[i] for i in column], problem.bus) // 8

    def of(self, column: Column) -> int:
        total, in_column = self.bytes(column), set(column)
        for kind, members, times in self.uses:
            if not in_column.isdisjoint(members):
                shared = kind == "w" and not in_column.issubset(members)
                total += self.access * times * (1 + shared) + self.modify * shared
        return total


# ---- which columns to take


@dataclass(frozen=True)
class _Prices:
    """Prices of each leaf, rounded down, and of each byte of a layout; a sum that no layout is below while no column
    is cheaper than its leaves."""

    leaves: tuple[int, ...]
    byte: int
    bound: int
    used: tuple[Column, ...]  # columns of the linear program's solution

    def reduced(self, costs: _Costs, column: Column, cost: int) -> int:
        return cost + self.byte * costs.bytes(column) - sum(self.leaves[i] for i in column)


def _converged(costs: _Costs, pool: dict[Column, int], largest: int | None) -> _Prices:
    """Prices by which no column that is one leaf away from a used one is too cheap; such columns join the pool."""
    while True:
        prices = _prices(costs, pool, largest)
        near = {n for column in prices.used for n in _neighbours(costs.problem, column)} - pool.keys()
        better = {n: cost for n in sorted(near) if prices.reduced(costs, n, cost := costs.of(n)) < 0}
        if not better:
            return prices
        pool.update(better)


def _neighbours(problem: Problem, column: Column) -> Iterator[Column]:
    """The column without one of its leaves, and with one more, where that may share the register."""
    if len(column) > 1:
        yield from (column[:k] + column[k + 1 :] for k in range(len(column)))
    free = problem.bus.width - sum(problem.leaves[i].width for i in column)
    for i, leaf in enumerate(problem.leaves):
        if leaf.width <= free and i not in column:
            yield tuple(sorted((*column, i)))


def _program(solver: str, costs: _Costs, pool: dict[Column, int], largest: int | None, whole: bool) -> Any:
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


def _prices(costs: _Costs, pool: dict[Column, int], largest: int | None) -> _Prices:
    program, chosen, rows, small = _program("GLOP", costs, pool, largest, whole=False)
    if small is not None:  # bytes above the limit, dearer than any access, so that there is a solution
        over = program.NumVar(0, program.infinity(), "")
        small.SetCoefficient(over, -1)
        program.Objective().SetCoefficient(over, costs.access * (1 + sum(times for *_, times in costs.uses)))
    program.Solve()
    leaves = tuple(max(0, floor(row.dual_value())) for row in rows)
    byte = max(0, floor(-small.dual_value())) if small is not None else 0
    used = tuple(c for c, variable in chosen.items() if variable.solution_value() > 1e-6)
    return _Prices(leaves, byte, sum(leaves) - byte * (largest or 0), used)


def _choice(costs: _Costs, pool: dict[Column, int], largest: int | None) -> tuple[list[Column] | None, bool]:
    """(the cheapest partition, or None if all are too large; whether that is proven)."""
    program, chosen, *_ = _program("SAT", costs, pool, largest, whole=True)
    program.SetSolverSpecificParametersAsString(LIMIT)
    status = program.Solve()
    if status not in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE):
        return None, False
    columns = [c for c, variable in chosen.items() if variable.solution_value() > 0.5]
    return columns, status == pywraplp.Solver.OPTIMAL


class _Pricing:
    """The register that costs least beyond the prices of its leaves.

    takes[i]: leaf i is in it. touched: the region touches it. shared: the region writes it and keeps some of it.
    """

    def __init__(self, costs: _Costs) -> None:
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
        """(a column that is not in the pool, a sum that no such column is below, whether the column has that sum)."""
        costs, objective = self.costs, self.program.Objective()
        for column in [c for c in pool if c not in self.excluded]:
            self.excluded.add(column)
            inside = sum(self.takes[i] for i in column)
            outside = sum(t for i, t in enumerate(self.takes) if i not in column)
            self.program.Add(inside - outside <= len(column) - 1)
        direct = [0] * len(self.takes)  # of regions with one leaf, which the leaf itself stands for
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
        bound = floor(objective.BestBound() + 0.5)
        if status not in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE):
            return None, min(bound, -1), False
        column = tuple(i for i, take in enumerate(self.takes) if take.solution_value() > 0.5)
        return column, bound, status == pywraplp.Solver.OPTIMAL


def _sizes(problem: Problem) -> list[int]:
    """The sizes of registers that may be shared: a bus word, or a part of it where the bus has bytes."""
    width = problem.bus.width
    return [bits for bits in (8, 16, 32) if bits < width and problem.bus.bytes] + [width]
