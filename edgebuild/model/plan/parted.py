"""Rolled runs whose rings have their newest row apart, see `events`: the last row of several rings in one place."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from itertools import accumulate

from ..ir import Graph, Op
from ..kernels import kernel_of
from .events import newest_name
from .rolling import Rolled
from .section import Section, aligned


def parted(section: Section, row_bytes: Mapping[str, int], unable: Container[str] = ()) -> Section | None:
    """A rolled section, yet without kernels, with rings parted where that lowers the most in use; None: it does not.

    `unable`: results of the ops with a kernel that does not find a row that stands apart.
    """
    rolled = section.rolled
    if rolled is None or not rolled.newest or (names := _worth(section, rolled, row_bytes, unable)) == ():
        return None
    rings = {name: rows - (name in names) for name, rows in rolled.rings.items()}
    inner = {name: aligned(rows * row_bytes[name]) for name, rows in rings.items()}
    inner |= {newest_name(name): aligned(row_bytes[name]) for name in names}
    spans = {**rolled.spans, **{newest_name(name): rolled.newest[name] for name in names}}
    return replace(section, rolled=replace(rolled, rings=rings, apart=names), inner=inner, spans=spans)


def unable_in(whole: Section, other: Section, graph: Graph) -> set[str]:
    """Results of the ops that read a ring which is parted in `other`, by a kernel that looks in the ring alone."""
    apart, found = other.rolled.apart if other.rolled is not None else (), set[str]()
    for op, form in zip(whole.ops, whole.forms, strict=True):
        kernel = kernel_of(op, graph, form) if not set(apart).isdisjoint(_read(other, op)) else None
        if kernel is not None and not all(k.finds_apart for k in (kernel, *kernel.others)):
            found.add(op.outputs[0])
    return found


def _read(section: Section, op: Op) -> list[str]:
    assert section.rolled is not None
    return [root for root, _ in section.rolled.rolling.operands[op.outputs[0]]]


def least_rings(rolled: Rolled, row_bytes: Mapping[str, int]) -> int:
    """Most bytes of rings that are in use at once, with all newest rows apart; no row may be apart yet."""
    changes = [0] * (max((last for _, last in rolled.spans.values()), default=0) + 2)
    for name, rows in rolled.rings.items():
        size = aligned((rows - (name in rolled.newest)) * row_bytes[name])
        first, last = rolled.spans[name]
        changes[first] += size
        changes[last + 1] -= size
    return max(accumulate(changes))


def _worth(section: Section, rolled: Rolled, row_bytes: Mapping[str, int], unable: Container[str]) -> tuple[str, ...]:
    """The rings to part: those without which more would be in use. None where all together save nothing."""
    in_use, before = list(section.in_use), max(section.in_use)
    names = [name for name in rolled.newest if not any(reader in unable for reader in _readers(rolled, name))]

    def move(name: str, sign: int) -> None:
        """Take the newest row out of the ring to a place of its own, or back."""
        rows, size = rolled.rings[name], row_bytes[name]
        less, more = aligned(rows * size) - aligned((rows - 1) * size), aligned(size)
        for (first, last), change in ((rolled.spans[name], -less), (rolled.newest[name], more)):
            for at in range(first, min(last + 1, len(in_use))):
                in_use[at] += sign * change

    for name in names:
        move(name, 1)
    if (least := max(in_use)) >= before:
        return ()
    for name in tuple(names):
        move(name, -1)
        if max(in_use) <= least:
            names.remove(name)
        else:
            move(name, 1)
    return tuple(names)


def _readers(rolled: Rolled, name: str) -> list[str]:
    operands, made = rolled.rolling.operands, [op.outputs[0] for op in rolled.ops]
    return [y for y in made if any(root == name for root, _ in operands[y])]
