"""Checkers share no code with what they check: they import facts of the language and of operators, and values.

A fault in a function that both sides call would hide itself. So modules that checkers share with planners hold values
alone, and what a checker works out for itself is of no use to the planner.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.house.test_floors import PACKAGE, files, imports, module, tree

FACTS = {"base", "model.ir", "model.ops", "model.kernels"}
VALUES = {"model.plan.printed", "model.plan.memory.problem"}
ANALYSED = {
    "driver.analysis.cdfg.Access",
    "driver.analysis.cdfg.Cdfg",
    "driver.analysis.cdfg.Function",
    "driver.analysis.cdfg.Node",
    "driver.analysis.conflicts.Region",
    "driver.analysis.cdfg.OFF",
    "driver.analysis.cdfg.ON",
    "driver.analysis.conflicts.Facts",
    "driver.layout.registers.GroupLayout",
    "driver.layout.registers.Layout",
    "driver.merge.merging.Merged",
    "driver.source.dialect.Dialect",
}
# Each checker, and the modules or names that it may import besides itself.
CHECKERS = {
    "model.plan.check": FACTS | VALUES,
    "model.plan.memory.check": {"model.plan.memory.problem"},
    "model.cluster.together": FACTS | {"model.plan.check", "model.cluster.cut.Message"},
    "model.group_check": FACTS,
    "driver.merge.check": ANALYSED,
}
# What others may import of checkers: the ways in, and what they raise.
WAYS_IN = {
    "model.plan.check.interpret",
    "model.plan.check.replay.replay",
    "model.plan.check.replay.BrokenPlan",
    "model.plan.memory.check.check_layout",
    "model.plan.memory.check.check_schedule",
    "model.cluster.together.check_together",
    "model.group_check.check_group",
    "driver.merge.check.check",
}


def within(name: str, roots: set[str]) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in roots)


def checker_of(file: Path) -> str | None:
    return next((checker for checker in CHECKERS if within(".".join(module(file)), {checker})), None)


@pytest.mark.parametrize("checker", CHECKERS)
def test_checkers_import_facts_and_values(checker: str) -> None:
    mine = [file for file in files() if checker_of(file) == checker]
    assert mine, f"{checker} is not there"
    for file in mine:
        for line, there in imports(file):
            name = ".".join(there)
            assert within(name, CHECKERS[checker] | {checker}), f"{file}:{line}: a checker imports {name}"


@pytest.mark.parametrize("values", sorted(VALUES))
def test_values_that_checkers_take_come_without_a_planner(values: str) -> None:
    file = PACKAGE.joinpath(*values.split(".")).with_suffix(".py")
    file = file if file.exists() else file.with_suffix("") / "__init__.py"
    for line, there in imports(file):
        name = ".".join(there)
        assert within(name, FACTS | VALUES), f"{file}:{line}: {values} imports {name}"
    loops = [n.lineno for n in ast.walk(tree(file)) if isinstance(n, ast.While | ast.AugAssign)]
    assert not loops, f"{file}:{loops}: {values} computes"


def test_others_use_checkers_by_their_ways_in() -> None:
    for file in files():
        mine = checker_of(file)
        for line, there in imports(file):
            name = ".".join(there)
            if mine is None and within(name, set(CHECKERS)):
                assert within(name, WAYS_IN), f"{file}:{line}: imports {name} of a checker"
