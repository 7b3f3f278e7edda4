"""One layout problem: which leaves share a register, and what that costs.

A layout is a partition of the leaves into registers, here called bins. Its cost is a sum over the bins. A region of
accesses costs one read or one write for each bin that it touches. It costs two if it writes a bin with other leaves
that have to be kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgebuild.base.errors import did_you_mean, fail
from edgebuild.base.facts import read_facts
from edgebuild.base.inputs import read_text
from edgebuild.driver.analysis.cdfg import Cdfg
from edgebuild.driver.analysis.simplify import Leaf
from edgebuild.driver.layout.registers import Bus, Register, Slot, cost

Uses = Counter[tuple[str, frozenset[str]]]  # (kind, leaves of one region) -> how often
Bins = tuple[tuple[Leaf, ...], ...]


@dataclass(frozen=True)
class Problem:
    """One class of leaves of a group that may share registers, with the regions restricted to them."""

    leaves: tuple[Leaf, ...]
    uses: Uses
    bus: Bus
    count: int  # elements; 1 for single fields
    glued: bool = False  # all in one register, because the source accesses them as a whole

    def bytes(self, bins: Bins) -> int:
        return self.count * sum(register_bits(b, self.bus) // 8 for b in bins)

    def accesses(self, bins: Bins) -> int:
        total = 0
        for (kind, names), times in self.uses.items():
            for b in bins:
                touched = {leaf.name for leaf in b} & names
                if touched:
                    total += times * cost(kind, register(b, self.bus), touched, self.bus)
        return total

    def rank(self, bins: Bins) -> tuple[int, int]:
        """Objective: least accesses, then least bytes."""
        return self.accesses(bins), self.bytes(bins)


@dataclass(frozen=True)
class Solution:
    """`bound`: no partition has fewer accesses."""

    bins: Bins
    bound: int
    optimal: bool


def heuristic(problem: Problem) -> Bins:
    """Combinations by their number of uses, then by size; each field goes with the first combination that has it.

    This is the heuristic of Stahl, section 6.4.4.
    """
    counts: Counter[frozenset[str]] = Counter()
    for (_, names), times in problem.uses.items():
        if len(names) > 1:
            counts[names] += times
    combinations = sorted(counts, key=lambda c: (-counts[c], -len(c), sorted(c)))
    placed: set[str] = set()
    bins: list[tuple[Leaf, ...]] = []
    for leaf in problem.leaves:
        if leaf.name in placed:
            continue
        company = next((c for c in combinations if leaf.name in c), frozenset([leaf.name]))
        chosen, free = [leaf], problem.bus.width - leaf.width
        for other in problem.leaves:
            if other.name in company and other.name not in placed and other is not leaf and other.width <= free:
                chosen.append(other)
                free -= other.width
        placed |= {c.name for c in chosen}
        bins.append(tuple(sorted(chosen, key=problem.leaves.index)))
    return tuple(bins)


def singles(problem: Problem) -> Bins:
    return tuple((leaf,) for leaf in problem.leaves)


def packed(problem: Problem) -> Bins:
    """Registers in the order of declaration, each filled as far as it goes."""
    bins: list[tuple[Leaf, ...]] = []
    for leaf in problem.leaves:
        if bins and sum(x.width for x in bins[-1]) + leaf.width <= problem.bus.width:
            bins[-1] += (leaf,)
        else:
            bins.append((leaf,))
    return tuple(bins)


def least_bound(problem: Problem) -> int:
    """No region costs less than the registers that its bits fill."""
    widths = {leaf.name: leaf.width for leaf in problem.leaves}
    return sum(
        times * -(-sum(widths[n] for n in names) // problem.bus.width) for (_, names), times in problem.uses.items()
    )


# ---- from bins to registers


def register_bits(leaves: Sequence[Leaf], bus: Bus) -> int:
    """Size of the register: whole bus words, or the least of 8, 16, 32 where the bus has bytes."""
    need = sum(leaf.width for leaf in leaves)
    for bits in (8, 16, 32) if bus.bytes else ():
        if need <= bits <= bus.width:
            return bits
    return bus.width * -(-need // bus.width)


def register(leaves: Sequence[Leaf], bus: Bus, offset: int = 0) -> Register:
    bits = register_bits(leaves, bus)
    slots, at = [], 0
    for i, leaf in enumerate(leaves):
        rest = sum(x.width for x in leaves[i + 1 :])
        aligned = -(-at // 8) * 8
        if leaf.width >= 8 and aligned + leaf.width + rest <= bits:  # a whole byte costs no shift on most cores
            at = aligned
        slots.append(slot(leaf, at))
        at += leaf.width
    name = "_".join(leaf.name for leaf in leaves)
    name = name if len(name) <= 40 else f"{leaves[0].name}_and_{len(leaves) - 1}_more"
    stride = max([bits // 8, *(leaf.info.stride for leaf in leaves if leaf.info)]) if leaves[0].dims else 0
    reset = sum((s.reset or 0) << s.lsb for s in slots)
    return Register(name, offset, bits, tuple(slots), leaves[0].count, stride, reset, leaves[0].dims)


def slot(leaf: Leaf, lsb: int) -> Slot:
    """A leaf at its place, with what the source says of its field."""
    field = leaf.info
    if field is None:
        return Slot(leaf.name, lsb, leaf.width, leaf.field)
    return Slot(
        leaf.name,
        lsb,
        leaf.width,
        leaf.field,
        field.access,
        field.back,
        bool(field.rse),
        reset=field.reset,
        modified=field.modified,
        action=field.action,
    )


# Profiles: how often each function of a driver runs, for a layout that is best where it matters.
#
# functions: {set_gpio_pin_value: 50000, get_gpio_irq_status: 900}

MOST = 10**9


@dataclass(frozen=True)
class Profile:
    """Runs in any unit of time. Functions that are not named count once."""

    functions: Mapping[str, int]

    def __post_init__(self) -> None:
        for name, count in self.functions.items():
            if not 1 <= count <= MOST:
                raise ValueError(f"'{name}' runs {count} times: from 1 to {MOST} are possible")


def read_profile(path: Path, cdfg: Cdfg) -> Mapping[str, int]:
    """Raises EdgebuildError if the file is not right, or names a function that the driver does not have."""
    functions = read_facts(Profile, path).functions
    for name in functions:
        if name not in cdfg.functions:
            lines = read_text(path).splitlines()
            line = next((i for i, text in enumerate(lines, 1) if name in text), 0)
            raise fail(
                f"the driver has no function '{name}'{did_you_mean(name, cdfg.functions)}", file=str(path), line=line
            )
    return functions
