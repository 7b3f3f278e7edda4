"""Names for what reads find of fields that may change by themselves: the same on both sides, another one for each read.

A read of the source has the name of the function that is to make it in the generated code, and its number among all
reads by that function. Names decide nothing but which values are taken for equal; that the reads stand at the same
places among the other accesses is compared apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from clang.cindex import Cursor

from edgebuild.driver.emit.hal import Hal
from edgebuild.driver.source import clang
from edgebuild.driver.stages import Driver


@dataclass(frozen=True)
class Views:
    """`reads`: (function, whether this read stands for a load of its own), by the place of the read in the source;
    `leaves`: the fields that a function is to read; `written`: those that it is to write, and not to put back."""

    reads: Mapping[tuple[int, int], tuple[str, bool]] = field(default_factory=dict)
    leaves: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    written: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)

    def of(self, c: Cursor) -> tuple[str, bool]:
        return self.reads.get(clang.span(clang.bare(c)), ("", False))


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
            reads[clang.span(clang.bare(a.site.left))] = name, a is first
    written: dict[str, frozenset[tuple[str, str]]] = {}
    for region in (r for found in merged.conflicts.regions.values() for r in found if r.kind == "w"):
        if not region.place.whole:
            group, names = merged.ref(region.place).group, merged.leaves(region)
            written[hal.write(group, names, loaded=region in merged.reused)] = frozenset((group, n) for n in names)
    return Views(reads, leaves, written)
