"""Which accesses become one on a given layout, and what each of them becomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from edgebuild.base.errors import EdgebuildError
from edgebuild.driver.analysis.cdfg import Access, Cdfg, Function, Site
from edgebuild.driver.analysis.conflicts import Conflicts, Region, Unmerged, find_conflicts
from edgebuild.driver.analysis.simplify import Ref, Shapes
from edgebuild.driver.layout.registers import (
    Layout,
    Register,
    Window,
    leaf_mask,
    read_window,
    whole_window,
    words,
    write_window,
)
from edgebuild.driver.source.dialect import Dialect, Field


@dataclass(frozen=True)
class Merged:
    """The final regions: each is one access to one register."""

    conflicts: Conflicts
    layout: Layout
    reused: Mapping[Region, Region] = field(default_factory=dict)  # write -> read whose load has the bits to keep
    _windows: dict[Region, Window] = field(default_factory=dict, init=False, repr=False, compare=False)

    def ref(self, access: Access) -> Ref:
        return self.conflicts.refs[access]

    def register(self, access: Access) -> Register:
        ref = self.ref(access)
        return self.layout.groups[ref.group].register_of(ref.leaf)

    def leaves(self, region: Region) -> tuple[str, ...]:
        """The leaves of a region, in the order of their bits."""
        names = {self.ref(a).leaf for a in region.accesses}
        return tuple(s.name for s in self.register(region.place).slots if s.name in names)

    def element(self, access: Access) -> int:
        """The element of an array in one register that an access with constant subscripts is about; else 0."""
        assert isinstance(access.chain.end, Field)
        dims, flat = access.chain.end.dims, 0
        if self.register(access).slot(self.ref(access).leaf).count == 1:
            return 0
        for size, index in zip(dims, access.constants[len(access.constants) - len(dims) :], strict=True):
            flat = flat * size + (index or 0)
        return flat

    def named(self, site: Site) -> tuple[tuple[str, int], ...]:
        """(leaf, element) of all that a write of a whole register gives a value, in the order of their bits."""
        parts = [a for a, value in site.parts if value is not None]
        if self.translated(site):
            parts = [a for a, _ in site.parts if "w" in self.register(a).slot(self.ref(a).leaf).access]
        given = {(self.ref(a).leaf, self.element(a)) for a in parts}
        slots = self.register(site.parts[0][0]).slots
        return tuple((s.name, i) for s in slots for i in range(s.count) if (s.name, i) in given)

    def translated(self, site: Site) -> bool:
        """Whether a variable that was read from one register is stored to another one, whose bits may be others."""
        if site.form != "store" or site.of is None:
            return False
        a, b = (s.parts[0][0] for s in (site, site.of))
        return (self.ref(a).group, self.register(a).name) != (self.ref(b).group, self.register(b).name)

    def window(self, region: Region) -> Window:
        if region not in self._windows:
            register = self.register(region.place)
            if region.place.whole:
                named = sum(register.slot(name).element(i) for name, i in self.named(region.place.site))
                window = whole_window(register, named, region.kind)
            elif region in self.reused.values():
                window = Window(0, register.bits, True)
            else:
                choose = read_window if region.kind == "r" else write_window
                window = choose(register, self.leaves(region), self.layout.bus)
            self._windows[region] = window
        return self._windows[region]

    def keeps(self, region: Region, other: Region) -> bool:
        """Whether a write puts back bits, as it read them, that another write of the same register stores."""
        register = self.register(region.place)
        stored = (1 << register.bits) - 1 if other.place.whole else leaf_mask(register, self.leaves(other))
        window = self.window(region)
        return bool(window.keep << 8 * window.offset & stored)

    def word(self, a: Access) -> tuple[int, int]:
        """The part of a register, as the bus takes it, that an access is about."""
        return words(self.register(a), leaf_mask(self.register(a), [self.ref(a).leaf]), self.layout.bus)

    def cost(self, region: Region) -> int:
        times = max(1, self.window(region).bits // self.layout.bus.width)
        reads = region.kind == "w" and self.window(region).read and region not in self.reused
        return times * (2 if reads else 1)

    def all(self) -> Iterator[tuple[str, Region]]:
        for name, regions in self.conflicts.regions.items():
            for region in regions:
                yield name, region


def merge(dialect: Dialect, cdfg: Cdfg, shapes: Shapes, layout: Layout, first: Conflicts) -> Merged:
    """Merge what lies in one register. Two plain stores never become a read-modify-write: that would be a new race."""
    one = Merged(first, layout)

    conflicts = find_conflicts(dialect, cdfg, shapes, lambda a: (one.register(a), one.word(a)), first)
    merged = Merged(conflicts, layout)
    _check_held(cdfg, merged)
    kept = list(conflicts.unmerged)
    regions: dict[str, tuple[Region, ...]] = {}
    for name in conflicts.regions:
        merged_regions: list[Region] = []
        for region in conflicts.regions[name]:
            if region.place.whole:
                _check_whole(merged, region)
                merged_regions.append(region)
                continue
            singles = [Region((a,)) for a in region.accesses]
            race = region.kind == "w" and merged.window(region).read and not any(merged.window(s).read for s in singles)
            if race:
                kept.append(Unmerged(region.place.where, "one store for both would have to read first"))
            merged_regions += singles if race else [region]
        regions[name] = tuple(merged_regions)
    merged = Merged(Conflicts(conflicts.refs, regions, tuple(kept)), layout)
    return replace(merged, reused=_reused(cdfg, merged))


def _check_whole(merged: Merged, region: Region) -> None:
    """A whole register is one access: all of its fields lie in one register that the bus takes at once."""
    registers = {merged.register(a).name for a in region.accesses}
    register, text = merged.register(region.place), ""
    if region.place.site.is_number and merged.layout.method != "fixed":
        text = f"'{region.place.field[0]}' has no number: only a fixed layout says where its bits lie"
    elif register.dims:
        text = f"the elements of '{region.place.field[1]}' lie in several registers"
    elif len(registers) > 1:
        text = f"the fields of '{region.place.field[0]}' lie in several registers: {', '.join(sorted(registers))}"
    elif register.bits > merged.layout.bus.width:
        text = (
            f"register '{register.name}' has {register.bits} bits, and the bus takes {merged.layout.bus.width} at once:"
            " access its fields one by one"
        )
    if text:
        raise EdgebuildError(region.place.where.says(text))


def _check_held(cdfg: Cdfg, merged: Merged) -> None:
    """A variable holds the value of one register: elsewhere, the fields may have other bits."""
    sites = [s for f in cdfg.functions.values() for s in f.sites if s.key]
    literals = {s.key for s in sites if s.form == "make"}  # what they do not name has the reset value of the home
    for site in (s for s in sites if s.form in ("load", "copy") or (s.form == "store" and s.key in literals)):
        here = site.read if site.form == "copy" else site.parts[0][0]
        assert here and site.of
        home = site.of.parts[0][0]
        if (merged.ref(here).group, merged.register(here)) != (merged.ref(home).group, merged.register(home)):
            text = f"'{site.variable}' holds register '{merged.register(home).name}'"
            text += f", and not '{merged.register(here).name}': use a variable for each"
            raise EdgebuildError(site.left.where.says(text))


def _reused(cdfg: Cdfg, merged: Merged) -> dict[Region, Region]:
    """Writes that must keep their neighbours right after a read of the same register: its load serves both."""
    reused: dict[Region, Region] = {}
    for name, regions in merged.conflicts.regions.items():
        reads = [r for r in regions if r.kind == "r" and not r.hoisted and not r.place.whole]
        for write in regions:
            register = merged.register(write.place)
            whole = register.bits <= merged.layout.bus.width and not any(s.sensitive for s in register.slots)
            if write.kind == "r" or not merged.window(write).read or not whole:
                continue
            near = (r for r in reads if merged.register(r.place) == register and _one_place(merged, r, write))
            read = next((r for r in near if _next(cdfg.functions[name], r, write)), None)
            if read:
                reused[write] = read
    return reused


def _one_place(merged: Merged, read: Region, write: Region) -> bool:
    a, b = merged.ref(read.place), merged.ref(write.place)
    comparable = None not in (a.base_key, b.base_key, a.index_key, b.index_key)
    same = comparable and (a.base_key, a.index_key) == (b.base_key, b.index_key)
    return a.group == b.group and (same or read.place.site is write.place.site)


def _next(f: Function, read: Region, write: Region) -> bool:
    """Whether nothing that could change the register, or the address, lies between a read and a write of it."""
    a, b, ways = read.place, write.place, f.ways
    if not ways.dominates(a.node, b.node) or ways.on_cycle_without(b.node, a.node):
        return False
    harmless = {n for n in f.nodes if n.kind in ("start", "join") or (n.kind == "assign" and n.text not in b.variables)}
    return not ways.between(a.node, b.node) & ~ways.set_of(harmless.union(x.node for x in write.accesses))
