"""The exact optimiser: which leaves share a register, as a constraint problem for CP-SAT.

x[f, c] says that leaf f lies in the register that leaf c leads, c being its first leaf. A region touches a register if
one of its leaves is there, and shares it if, besides, a leaf is there that the region does not write. One worker and a
deterministic limit make the result a function of the problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ortools.sat.python import cp_model

if TYPE_CHECKING:
    from edgebuild.drivers.optimize import Bins, Problem, Solution

CURVE_POINTS = 6


def solve_exactly(problem: Problem, start: Bins) -> Solution:
    """The least accesses, then the least bytes; and how accesses grow as the map is made smaller."""
    from edgebuild.drivers.optimize import Solution

    first = _Model(problem, start)
    bins, accesses, bound, optimal = first.best()
    curve = [(problem.bytes(bins), accesses)]
    while optimal and len(curve) < CURVE_POINTS:  # the Pareto front, from the largest map downwards
        smaller = _Model(problem, None, largest=curve[-1][0] - 1).best(required=False)
        if not smaller[0] or not smaller[3]:
            break
        curve.append((problem.bytes(smaller[0]), smaller[1]))
    return Solution(bins, bound, optimal, tuple(curve))


class _Model:
    def __init__(self, problem: Problem, start: Bins | None, largest: int | None = None) -> None:
        self.problem = problem
        self.model = m = cp_model.CpModel()
        leaves, n = problem.leaves, len(problem.leaves)
        self.x = {(f, c): m.new_bool_var(f"x{f}_{c}") for c in range(n) for f in range(c, n)}
        for f in range(n):
            m.add_exactly_one(self.x[f, c] for c in range(f + 1))
            for c in range(f):
                m.add_implication(self.x[f, c], self.x[c, c])
        self.bytes = self._sizes(largest)
        self.accesses: list[Any] = []
        self.modifies: list[Any] = []  # the read-modify-writes among them
        index = {leaf.name: i for i, leaf in enumerate(leaves)}
        for (kind, names), times in sorted(problem.uses.items(), key=lambda u: (u[0][0], sorted(u[0][1]))):
            self._region(kind, {index[name] for name in names}, times)
        most_bytes = 1 + problem.count * n * problem.bus.width // 8
        self.weight = most_bytes * (1 + 2 * n * sum(problem.uses.values()))
        m.minimize(self.weight * sum(self.accesses) + most_bytes * sum(self.modifies) + sum(self.bytes))
        for b in start or ():
            lead = min(index[leaf.name] for leaf in b)
            for leaf in b:
                m.add_hint(self.x[index[leaf.name], lead], 1)

    def _sizes(self, largest: int | None) -> list[Any]:
        """Bytes of each register: the bus width, or 1, 2 or 4 where the bus has bytes."""
        p, m = self.problem, self.model
        sizes = [s for s in (8, 16, 32) if s < p.bus.width] + [p.bus.width] if p.bus.bytes else [p.bus.width]
        total = []
        for c in range(len(p.leaves)):
            chosen = [m.new_bool_var(f"s{c}_{s}") for s in sizes]
            m.add(sum(chosen) == self.x[c, c])
            used = sum(p.leaves[f].width * self.x[f, c] for f in range(c, len(p.leaves)))
            m.add(used <= sum(s * v for s, v in zip(sizes, chosen, strict=True)))
            total += [p.count * s // 8 * v for s, v in zip(sizes, chosen, strict=True)]
        if largest is not None:
            m.add(sum(total) <= largest)
        return total

    def _region(self, kind: str, members: set[int], times: int) -> None:
        m, n = self.model, len(self.problem.leaves)
        for c in range(n):
            mine = [f for f in members if f >= c]
            if not mine:
                continue
            touched = m.new_bool_var("")
            for f in mine:
                m.add_implication(self.x[f, c], touched)
            self.accesses.append(times * touched)
            others = [g for g in range(c, n) if g not in members]
            if kind == "w" and others:
                shared = m.new_bool_var("")
                for g in others:
                    m.add_bool_or(touched.negated(), self.x[g, c].negated(), shared)
                self.accesses.append(times * shared)
                self.modifies.append(times * shared)

    def best(self, required: bool = True) -> tuple[Bins, int, int, bool]:
        """(registers, accesses, bound, optimal)."""
        from edgebuild.drivers.optimize import EFFORT

        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        solver.parameters.max_deterministic_time = EFFORT
        status = solver.solve(self.model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            assert not required
            return (), 0, 0, False
        leaves = self.problem.leaves
        bins = tuple(
            tuple(leaves[f] for f in range(c, len(leaves)) if solver.value(self.x[f, c]))
            for c in range(len(leaves))
            if solver.value(self.x[c, c])
        )
        accesses = self.problem.accesses(bins)
        bound = min(accesses, int(solver.best_objective_bound) // self.weight)
        return bins, accesses, bound, status == cp_model.OPTIMAL
