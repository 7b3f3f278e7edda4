"""Which accesses become one on a given layout, and what each of them becomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from edgebuild.drivers.cdfg import Access, Cdfg
from edgebuild.drivers.conflicts import Conflicts, KeptApart, Region, find_conflicts
from edgebuild.drivers.dialect import Dialect
from edgebuild.drivers.layout import Layout, Register, Window, read_window, write_window
from edgebuild.drivers.simplify import Ref, Shapes
from edgebuild.errors import Diagnostic


@dataclass(frozen=True)
class Merged:
    """The final regions: each is one access to one register."""

    conflicts: Conflicts
    layout: Layout
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

    def window(self, region: Region) -> Window:
        if region not in self._windows:
            choose = read_window if region.kind == "r" else write_window
            self._windows[region] = choose(self.register(region.place), self.leaves(region), self.layout.bus)
        return self._windows[region]

    def cost(self, region: Region) -> int:
        words = max(1, self.register(region.place).bits // self.layout.bus.width)
        return words * (2 if region.kind == "w" and self.window(region).read else 1)

    def all(self) -> Iterator[tuple[str, Region]]:
        for name, regions in self.conflicts.regions.items():
            for region in regions:
                yield name, region


def merge(dialect: Dialect, cdfg: Cdfg, shapes: Shapes, layout: Layout, first: Conflicts) -> Merged:
    """Merge what lies in one register. Two plain stores never become a read-modify-write: that would be a new race."""
    one = Merged(first, layout)

    def together(a: Access, b: Access) -> bool:
        return one.ref(a).group == one.ref(b).group and one.register(a) == one.register(b)

    found = find_conflicts(dialect, cdfg, shapes, together)
    merged = Merged(found, layout)
    kept = list(found.kept_apart)
    regions: dict[str, tuple[Region, ...]] = {}
    for name in found.regions:
        mine: list[Region] = []
        for region in found.regions[name]:
            singles = [Region((a,)) for a in region.accesses]
            race = region.kind == "w" and merged.window(region).read and not any(merged.window(s).read for s in singles)
            if race:
                kept.append(KeptApart(region.place.where, "one store for both would have to read first"))
            mine += singles if race else [region]
        regions[name] = tuple(mine)
    return Merged(Conflicts(found.refs, regions, tuple(kept)), layout)


def hazards(dialect: Dialect, cdfg: Cdfg, merged: Merged) -> tuple[list[Diagnostic], list[Diagnostic]]:
    """(errors, warnings): accesses that this register does not allow, and those that may lose an update."""
    errors: list[Diagnostic] = []
    warnings: list[Diagnostic] = []
    in_handlers = _written_in_handlers(cdfg, merged)
    for name, region in merged.all():
        at, register, leaves = region.place.where, merged.register(region.place), merged.leaves(region)
        window = merged.window(region)
        error, warning = _illegal(register, leaves, region.kind, window)
        if window.read and region.kind == "w" and not cdfg.functions[name].handler:
            shared = in_handlers & {(merged.ref(region.place).group, register.name)}
            if shared:
                warning = f"the interrupt handler also writes register '{register.name}': an update may be lost here"
        for text, list_, severity in ((error, errors, "error"), (warning, warnings, "warning")):
            if text:
                list_.append(Diagnostic(text, at.file, at.line, at.column, severity=severity))
    return errors, warnings


def _written_in_handlers(cdfg: Cdfg, merged: Merged) -> set[tuple[str, str]]:
    return {
        (merged.ref(r.place).group, merged.register(r.place).name)
        for name, r in merged.all()
        if r.kind == "w" and cdfg.functions[name].handler
    }


def _illegal(register: Register, leaves: tuple[str, ...], kind: str, window: Window) -> tuple[str, str]:
    """(error, warning) of an access to `leaves` of a register; both may be empty."""
    what = ", ".join(leaves)
    others = [
        s for s in register.slots if s.name not in leaves and s.mask & (((1 << window.bits) - 1) << 8 * window.offset)
    ]
    mine = [register.slot(n) for n in leaves]
    if kind == "r":
        wrong = next((s for s in mine if "r" not in s.access), None)
        if wrong:
            return f"'{wrong.name}' cannot be read", ""
        popped = next((s for s in others if s.sensitive), None)
        return (f"a read of '{what}' also reads '{popped.name}', which has a side effect" if popped else ""), ""
    wrong = next((s for s in mine if "w" not in s.access), None)
    if wrong:
        return f"'{wrong.name}' cannot be written", ""
    bad = next((s for s in others if s.back == "never"), None)
    if bad:
        return f"a write of '{what}' also writes '{bad.name}', and no value is harmless there", ""
    if not window.read:
        return "", ""
    popped = next((s for s in register.slots if s.sensitive), None)
    if popped:
        return f"a write of '{what}' must read its register first, and a read of '{popped.name}' has a side effect", ""
    blind = next((s for s in others if s.back == "keep" and "r" not in s.access), None)
    if blind:
        return f"a write of '{what}' must keep '{blind.name}', which cannot be read", ""
    racing = next((s for s in others if s.back == "keep" and s.volatile), None)
    return (
        "",
        f"'{racing.name}' may change by itself while '{what}' is written: the change would be lost" if racing else "",
    )
