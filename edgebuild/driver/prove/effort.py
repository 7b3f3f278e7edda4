"""How much a proof may do, counted in steps of the interpreter and of the solver: no clock decides a verdict."""

from __future__ import annotations

from typing import Any

import z3

from edgebuild.base.dataclass import dataclass

LIMIT, PHASE = 20_000_000, 8_000_000  # for one function: some 20 s of a processor of 2022; for one method of proof
QUESTION = 3_000_000  # solver steps for one question
ASKED, STEP = 400, 30  # what a question costs besides, and an expression of the program


class Unknown(Exception):
    """Something that the proof cannot follow, and why."""


@dataclass
class Effort:
    """The steps that were spent on a function, and the solver's own count, which goes on over all functions."""

    limit: int = LIMIT  # of what is spent, for the phase
    spent: int = 0
    counted: int = 0

    def begin(self) -> None:
        """A function begins."""
        self.limit, self.spent = LIMIT, 0

    def phase(self) -> None:
        """Another method of proof begins."""
        self.limit = min(LIMIT, self.spent + PHASE)

    def spend(self, amount: int) -> None:
        """Raise Unknown if too much was spent."""
        self.spent += amount
        if self.spent > self.limit:
            raise Unknown(f"the proof is not at its end after {self.spent // 1_000_000} million steps")


EFFORT = Effort()


def solver_of(*conditions: Any) -> z3.Solver:
    solver = z3.Solver()
    solver.set("rlimit", QUESTION)
    solver.add(*conditions)
    return solver


def ask(solver: z3.Solver, *conditions: Any) -> Any:
    """The solver's answer: `z3.sat`, `z3.unsat` or `z3.unknown`. Raises Unknown if the effort is spent."""
    answer = solver.check(*conditions)
    statistics = solver.statistics()
    names = {statistics[i][0]: i for i in range(len(statistics))}
    count = statistics[names["rlimit count"]][1] if "rlimit count" in names else EFFORT.counted
    used, EFFORT.counted = max(0, count - EFFORT.counted), count
    EFFORT.spend(ASKED + used)
    return answer
