"""No plan is taken that another plan of the same command undercuts: less of one quantity, and no more of any other.

Quantities are the arena, estimated cycles, estimated flash, and multiply-accumulates. Random networks of the fuzzer are
planned for all objectives, ways of tiling, and limits of memory. The ways that a command may use are those of `USES`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.compile import prepare
from edgebuild.model.ir import Graph
from edgebuild.model.plan.choose import plan
from edgebuild.model.plan.search import Plan
from edgebuild.model.plan.section import cost
from tests.fuzz.networks import WRITERS, drawn
from tests.fuzz.recipe import FORMS

PERCENT = 0.99
TILES = (None, "off", "auto", "rolling", "fdt", "ffmt")
# By --tile, whose plans may be compared: those of the ways that the command may use.
USES = {None: (None, "off"), "off": ("off",), "rolling": ("off", "rolling"), "fdt": ("off", "fdt"),
        "ffmt": ("off", "ffmt"), "auto": TILES}  # fmt: skip
TARGETS = ("mps2-an386", "mps3-an547", "riscv-virt", "mps2-an385")
QUICK = 3  # networks by day


@dataclass(frozen=True)
class Answer:
    """A plan and its command: objective, --tile, --ram."""

    command: tuple[str, str | None, int | None]
    plan: Plan

    @property
    def quantities(self) -> tuple[float, ...]:
        return self.plan.arena_bytes, cost(self.plan.steps), self.plan.flash_bytes, ops.macs(self.plan.graph)

    @property
    def tries_all(self) -> bool:
        """Whether the command looks at all ways to run the network."""
        objective, tile, _ = self.command
        return tile == "auto" or (tile is None and (objective == "ram" or self.plan.tiled))

    def may_be(self, other: Answer) -> bool:
        """Whether the command allows the plan of another one."""
        _, tile, ram = self.command
        if ram is not None and other.plan.arena_bytes > ram:
            return False
        return self.tries_all or (other.command[1] in USES[tile] and (tile is not None or not other.plan.tiled))


def undercuts(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    """Whether all of `a` is at most what `b` is, and something is less by a percent."""
    pairs = list(zip(a, b, strict=True))
    return all(x <= y for x, y in pairs) and any(x < y and x <= PERCENT * y for x, y in pairs)


def answer(graph: Graph, target: str, **options: Any) -> Answer | None:
    request = ModelRequest(Path("x"), "x", target, **options)
    command = options.get("objective", "latency"), options.get("tile"), options.get("ram")
    try:
        return Answer(command, plan(graph, load_target(target), request))
    except EdgebuildError:
        return None


def commands(graph: Graph, target: str) -> Iterator[Answer]:
    """Plans without a limit of memory, and with limits between the least and the most that these take."""
    free = [answer(graph, target, objective=o, tile=t) for o in ("latency", "ram") for t in TILES]
    yield from filter(None, free)
    sizes = sorted({each.plan.arena_bytes for each in free if each is not None})
    limits = {sizes[0], (sizes[0] + sizes[-1]) // 2, sizes[-1], 4 * sizes[-1]} if sizes else set()
    for ram in sorted(limits):
        limited = (answer(graph, target, objective=o, tile=t, ram=ram) for o in ("latency", "ram") for t in TILES)
        yield from filter(None, limited)


def faults(plans: list[Answer]) -> list[str]:
    messages = [
        f"{a.command} {a.quantities} undercuts {b.command} {b.quantities}"
        for b in plans
        for a in plans
        if b.may_be(a) and undercuts(a.quantities, b.quantities)
    ]
    for each in plans:
        own = each.plan.point
        mine = own.peak_bytes, own.cost, own.flash_bytes
        shown = [(p.peak_bytes, p.cost, p.flash_bytes) for p in each.plan.trade_off] if each.tries_all else []
        messages += [f"{each.command}: its report shows {p}, less than {mine}" for p in shown if undercuts(p, mine)]
    return messages


def network(number: int, folder: Path) -> Graph | None:
    """A random network; None where its form cannot write it, or a reader refuses it."""
    form = FORMS[number % len(FORMS)]
    recipe = drawn(form, 7000 + number)
    try:
        file = folder / f"n{number}.{recipe.suffix}"
        file.write_bytes(WRITERS[form].write(recipe))
        return prepare(file)
    except (ValueError, EdgebuildError):
        return None


def check(number: int, folder: Path) -> None:
    graph = network(number, folder)
    if graph is not None and graph.ops:
        plans = list(commands(graph, TARGETS[number % len(TARGETS)]))
        assert not (messages := faults(plans)), "\n".join([f"{len(messages)} of {len(plans)} plans", *messages[:5]])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("number", range(QUICK))
def test_no_plan_is_undercut_by_another_of_its_command(number: int, tmp_path: Path) -> None:
    check(number, tmp_path)


# Pairs of commands of a network, one of which once took a plan that the other's undercut.
PAIRS: dict[int, tuple[dict[str, Any], ...]] = {
    1010: ({"tile": "fdt"}, {"tile": "fdt", "ram": 2052}),  # the search that ended within the limit was slower
    1011: ({}, {"tile": "off"}),  # the arena kept the scratch of a kernel that had given way
    1013: ({"tile": "off", "ram": 386}, {"tile": "fdt", "ram": 386}),  # only `off` knew kernels of less scratch
    1019: ({"tile": "off", "ram": 2784}, {"tile": "ffmt"}),  # every op by itself took less, and fewer cycles
    30004: ({"tile": "fdt"}, {"tile": "fdt", "ram": 750}),  # fewer parts take as little, by more of an estimate
    30018: ({"tile": "fdt"}, {"tile": "fdt", "ram": 17100}),  # a layout took more than its tensors do
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", PAIRS)
def test_plans_of_two_commands_do_not_undercut_each_other(number: int, tmp_path: Path) -> None:
    graph, target = network(number, tmp_path), TARGETS[number % len(TARGETS)]
    assert graph is not None
    plans = [answer(graph, target, **options) for options in PAIRS[number]]
    assert all(plans)
    assert not faults([each for each in plans if each is not None])


@pytest.mark.slow
@pytest.mark.parametrize("number", [*range(QUICK, 48), *PAIRS])
def test_no_plan_of_many_networks_is_undercut(number: int, tmp_path: Path) -> None:
    check(number, tmp_path)
