"""Registers that every best layout has, found without the solver, which is then loaded for the other leaves only.

Leaves are *connected* if regions of accesses join them, one to the next. What is not connected gains no access from
one register: there each write that filled its register would have to keep the others. So it is enough to look at each
connected *part* of the leaves, and in it at the connected sets that fit into a register:

* if all writes of a part are writes of all of it, it is a register: each region costs one access, the least there is;
* a leaf that is written, and of which each such set costs more accesses (or as many, and more read-modify-writes) in
  one register than in registers of their own, is alone: wherever it has company, taking its set apart pays.

Both say *more*, not *as much*: what is found here is what the solver would find.
"""

from __future__ import annotations

from edgebuild.driver.layout.problem import Bins, Problem

LIMIT = 1000  # sets that are looked at; of more, none is settled

Sets = list[tuple[int, bool, int]]  # regions: bits of the leaves, whether they are written, how often


def settled(problem: Problem) -> Bins:
    """Registers of every best layout of a problem; what is left can be solved without them."""
    if problem.alone:
        return ()
    number = {leaf.name: i for i, leaf in enumerate(problem.leaves)}
    regions = [(sum(1 << number[n] for n in names), kind == "w", t) for (kind, names), t in problem.uses.items()]
    near = [_joined(1 << i, regions) for i in range(len(problem.leaves))]
    company: int | None = None
    found: list[int] = []
    for part in _parts(near):
        writes = [names for names, write, _ in regions if write and names & part]
        if writes and all(names == part for names in writes) and _width(part, problem) <= problem.bus.width:
            found.append(part)
            continue
        company = _company(problem, regions, near) if company is None else company
        written = _joined(part, [r for r in regions if r[1]])
        found += [1 << i for i in _bits(written & part & ~company)]
    return tuple(tuple(problem.leaves[i] for i in _bits(register)) for register in found)


def _company(problem: Problem, regions: Sets, near: list[int]) -> int:
    """The leaves of all connected sets that cost no more in one register than in registers of their own."""
    todo = [1 << i for i in range(len(near))]
    seen, company = set(todo), 0
    while todo:
        leaves = todo.pop()
        for i in _bits(_union(near, leaves) & ~leaves):
            larger = leaves | 1 << i
            if larger in seen or _width(larger, problem) > problem.bus.width:
                continue
            if len(seen) == LIMIT:
                return (1 << len(near)) - 1
            seen.add(larger)
            todo.append(larger)
            if _loss(larger, regions) <= (0, 0):
                company |= larger
    return company


def _loss(leaves: int, regions: Sets) -> tuple[int, int]:
    """(accesses, read-modify-writes) that these leaves cost more in one register than in one each."""
    accesses = modifies = 0
    for names, write, times in regions:
        mine = names & leaves
        if mine:
            shared = write and mine != leaves
            accesses += times * (1 + shared - mine.bit_count())
            modifies += shared
    return accesses, modifies


def _parts(near: list[int]) -> list[int]:
    parts: list[int] = []
    for i in range(len(near)):
        part = 1 << i
        if not any(part & p for p in parts):
            while (more := _union(near, part)) != part:
                part = more
            parts.append(part)
    return parts


def _joined(leaves: int, regions: Sets) -> int:
    """The leaves, if any region has them, and all that are in a region with them."""
    joined = 0
    for names, *_ in regions:
        joined |= names if names & leaves else 0
    return joined


def _union(near: list[int], leaves: int) -> int:
    joined = leaves
    for i in _bits(leaves):
        joined |= near[i]
    return joined


def _width(leaves: int, problem: Problem) -> int:
    return sum(problem.leaves[i].width for i in _bits(leaves))


def _bits(leaves: int) -> list[int]:
    return [i for i in range(leaves.bit_length()) if leaves >> i & 1]
