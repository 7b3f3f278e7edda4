"""Names for what reads find of fields that may change by themselves: the same on both sides, another one for each read.

A read of the source has the name of the function that is to make it in the generated code, and its number among all
reads by that function. Names decide nothing but which values are taken for equal; that the reads stand at the same
places among the other accesses is compared apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from edgebuild.base.dataclass import dataclass
from edgebuild.driver.analysis.conflicts import Region
from edgebuild.driver.emit.hal import Hal
from edgebuild.driver.layout.registers import Register
from edgebuild.driver.merge.merging import Merged
from edgebuild.driver.source.ir import Expression
from edgebuild.driver.stages import Driver

Span = tuple[int, int]


@dataclass(frozen=True)
class Planned:
    """Bus accesses that stand for the accesses of one register. `parts`: (kind, byte in the register, bytes).

    `stored`: the leaves that get a value of the source; None: all of them. `keeps`: a store puts back the bits of no
    field, as the load before it found them.
    """

    group: str
    register: Register
    parts: tuple[tuple[str, int, int], ...]
    stored: frozenset[str] | None = frozenset()
    keeps: bool = False


@dataclass(frozen=True)
class Views:
    """`reads`: (function, whether this read stands for a load of its own), by the place of the read in the source;
    `leaves`: the fields that a function is to read; `written`: those that it is to write, and not to put back."""

    reads: Mapping[tuple[int, int], tuple[str, bool]] = field(default_factory=dict)
    leaves: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    written: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    planned: Mapping[tuple[str, Span], Planned | None] = field(default_factory=dict)  # by kind and place of a site
    hoisted: Mapping[Span, tuple[Planned, ...]] = field(default_factory=dict)  # by the expression they stand before

    def of(self, c: Expression) -> tuple[str, bool]:
        return self.reads.get(c.bare.span, ("", False))


def views_of(driver: Driver) -> Views:
    """The functions that are to read registers of one bus access, and those that write fields."""
    hal, merged = Hal(driver.layout), driver.merged
    reads: dict[tuple[int, int], tuple[str, bool]] = {}
    leaves: dict[str, frozenset[tuple[str, str]]] = {}
    again = set(merged.reused.values())
    for region in (r for found in merged.conflicts.regions.values() for r in found if r.kind == "r"):
        first = region.place
        group, register = merged.ref(first).group, merged.register(first)
        if register.bits > driver.layout.bus.width:
            continue
        if len(region.accesses) > 1 or first.whole or region in again:
            name = hal.load(group, register, merged.leaves(region), merged.window(region))
        else:
            name = hal.read(group, merged.ref(first).leaf)
        leaves[name] = leaves.get(name, frozenset()) | {(group, merged.ref(a).leaf) for a in region.accesses}
        for a in reversed(region.accesses):
            reads[a.site.left.bare.span] = name, a is first
    written: dict[str, frozenset[tuple[str, str]]] = {}
    for region in (r for found in merged.conflicts.regions.values() for r in found if r.kind == "w"):
        if not region.place.whole:
            group, names = merged.ref(region.place).group, merged.leaves(region)
            written[hal.write(group, names, loaded=region in merged.reused)] = frozenset((group, n) for n in names)
    return Views(reads, leaves, written, *_planned(driver))


def _planned(
    driver: Driver,
) -> tuple[dict[tuple[str, Span], Planned | None], dict[Span, tuple[Planned, ...]]]:
    """The bus accesses that merging leaves, by the places of the source where they are made; None: none is made.

    A proof asks for these besides all that it compares by itself, so a wrong plan can refuse, and never accept.
    """
    found: dict[tuple[str, Span], Planned | None] = {}
    hoisted: dict[Span, tuple[Planned, ...]] = {}
    for name, regions in driver.merged.conflicts.regions.items():
        for region in regions:
            for a in region.accesses:
                found.setdefault((region.kind, a.site.left.bare.span), None)
            plan = _plan(driver.merged, region)
            if region.hoisted:
                extent = driver.cdfg.functions[name].fulls[region.place.full]
                assert extent is not None
                hoisted[extent] = (*hoisted.get(extent, ()), plan)
            else:
                found[region.kind, region.place.site.left.bare.span] = plan
    return found, hoisted


def _plan(merged: Merged, region: Region) -> Planned:
    window, width = merged.window(region), merged.layout.bus.width
    size = _bytes(min(window.bits, width))
    at = [window.offset + i * size for i in range(max(1, window.bits // width))]
    loads = [("r", first, size) for first in at] if window.read and region not in merged.reused else []
    stores = [("w", first, size) for first in at] if region.kind == "w" else []
    stored = None if region.place.whole else frozenset(merged.leaves(region))
    group = merged.ref(region.place).group
    keeps = region.kind == "w" and window.read and not region.place.whole
    return Planned(group, merged.register(region.place), (*loads, *stores), stored, keeps)


def _bytes(bits: int) -> int:
    return next(n for n in (1, 2, 4, 8) if bits <= 8 * n)
