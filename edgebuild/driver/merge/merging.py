"""Merge accesses on a given layout, and diagnose those that its registers do not allow or that race."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...base.errors import Diagnostic, EdgebuildError
from ...base.request import DriverRequest
from ..analysis.cdfg import Access, Cdfg, Function, Node, Site, contexts, guarded, preempts
from ..analysis.conflicts import Conflicts, Facts, Ref, Region, Shapes, Unmerged, find_conflicts
from ..layout.registers import (
    Layout,
    Register,
    Slot,
    Uses,
    Window,
    leaf_mask,
    read_window,
    whole_window,
    words,
    write_window,
)
from ..source import ir
from ..source.dialect import NEUTRAL, Dialect, Field, type_width
from ..source.ir import CType, Expression
from ..source.lowering import Program
from ..source.sources import Source


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
        """The index of the element in an array that lies in one register; 0 for any other access."""
        assert isinstance(access.chain.end, Field)
        dims, flat = access.chain.end.dims, 0
        if self.register(access).slot(self.ref(access).leaf).count == 1:
            return 0
        for size, index in zip(dims, access.constants[len(access.constants) - len(dims) :], strict=True):
            flat = flat * size + (index or 0)
        return flat

    def named(self, site: Site) -> tuple[tuple[str, int], ...]:
        """(leaf, element) of all fields to which a write of a whole register gives a value, in the order of bits."""
        parts = [a for a, value in site.parts if value is not None]
        if self.translated(site):
            parts = [a for a, _ in site.parts if "w" in self.register(a).slot(self.ref(a).leaf).access]
        given = {(self.ref(a).leaf, self.element(a)) for a in parts}
        slots = self.register(site.parts[0][0]).slots
        return tuple((s.name, i) for s in slots for i in range(s.count) if (s.name, i) in given)

    def translated(self, site: Site) -> bool:
        """Whether a value loaded from one register is stored to another, whose fields may lie at other bits."""
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
        """Whether a write puts back, as read, bits that another write of the same register stores."""
        register = self.register(region.place)
        stored = (1 << register.bits) - 1 if other.place.whole else leaf_mask(register, self.leaves(other))
        window = self.window(region)
        return bool(window.keep << 8 * window.offset & stored)

    def word(self, a: Access) -> tuple[int, int]:
        """(byte offset, bits) of the part of a register that the bus transfers for an access."""
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
    """Merge accesses of one register. Two plain stores never become a read-modify-write: that would be a new race."""
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
    """Raise EdgebuildError unless the fields of a whole-register access lie in one register that is one bus access."""
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
    """Raise EdgebuildError if a variable is used for two registers, whose fields may lie at different bits."""
    sites = [s for f in cdfg.functions.values() for s in f.sites if s.key]
    literals = {s.key for s in sites if s.form == "make"}  # fields that they lack get the home's reset value
    for site in (s for s in sites if s.form in ("load", "copy") or (s.form == "store" and s.key in literals)):
        here = site.read if site.form == "copy" else site.parts[0][0]
        assert here and site.of
        home = site.of.parts[0][0]
        if (merged.ref(here).group, merged.register(here)) != (merged.ref(home).group, merged.register(home)):
            text = f"'{site.variable}' holds register '{merged.register(home).name}'"
            text += f", and not '{merged.register(here).name}': use a variable for each"
            raise EdgebuildError(site.left.where.says(text))


def _reused(cdfg: Cdfg, merged: Merged) -> dict[Region, Region]:
    """Read-modify-writes right after a read of the same register, each with that read: its load serves both."""
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
    """Whether nothing between a read and a write of a register can change the register or its address."""
    a, b, reachability = read.place, write.place, f.reachability
    if not reachability.dominates(a.node, b.node) or reachability.on_cycle_without(b.node, a.node):
        return False
    harmless = {n for n in f.nodes if n.kind in ("start", "join") or (n.kind == "assign" and n.text not in b.variables)}
    return not reachability.between(a.node, b.node) & ~reachability.set_of(
        harmless.union(x.node for x in write.accesses)
    )


MAX_NAMED = 6  # fields that one warning names


def hazards(cdfg: Cdfg, merged: Merged) -> tuple[list[Diagnostic], list[Diagnostic]]:
    """(errors, warnings): accesses that their register does not allow, and those that may lose an update.

    There is at most one warning per register, and one warning for all assumed attributes.
    """
    errors: list[Diagnostic] = []
    warnings: list[Diagnostic] = []
    warned, guessed = set[tuple[str, str]](), dict[str, Access]()
    in_handlers = _written_in_handlers(cdfg, merged)
    for name, region in merged.all():
        at, register, leaves = region.place.where, merged.register(region.place), merged.leaves(region)
        window = merged.window(region)
        if region.place.whole and region.kind == "w":
            leaves = tuple(dict.fromkeys(name for name, _ in merged.named(region.place.site)))
            wrong = next((n for n in leaves if "w" not in register.slot(n).access), None)
            error, warning = (f"'{wrong}' cannot be written" if wrong else ""), ""
        elif region.place.whole:
            error, warning = _loaded(register, leaves, region.place.site.is_number), ""
        else:
            error, warning = _illegal(register, leaves, region.kind, window)
            error = error or _read_back(merged, region)
        if window.read and region.kind == "w" and not cdfg.functions[name].handler:
            others = in_handlers.get((merged.ref(region.place).group, register.name), ())
            if any(merged.keeps(region, other) or _shared(region, other) for other in others):
                warning = f"the interrupt handler also writes register '{register.name}': an update may be lost here"
        if region.kind == "w" and not error:
            guessed = {s.key: region.place for s in _assumed(register, leaves, window)} | guessed
        place = merged.ref(region.place).group, register.name
        if warning and place in warned:
            warning = ""
        warned |= {place} if warning else set()
        for text, list_, severity in ((error, errors, "error"), (warning, warnings, "warning")):
            if text:
                list_.append(at.says(text, severity=severity))
    errors += (e for f in cdfg.functions.values() for e in _unreadable(f, merged))
    if guessed:
        at, names = next(iter(guessed.values())).where, sorted(guessed)
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        text = f"what a write does to its neighbours is assumed of {', '.join(names[:MAX_NAMED])}{more}; "
        text += "--overlay-template says what, and why"
        warnings.append(at.says(text, severity="warning"))
    return errors, warnings


def _assumed(register: Register, leaves: tuple[str, ...], window: Window) -> list[Slot]:
    """The neighbours that a write also writes, with a value that is only assumed to have no effect."""
    span = ((1 << window.bits) - 1) << 8 * window.offset
    others = (s for s in register.slots if s.name not in leaves and s.cover & span and "w" in s.access)
    return [s for s in others if s.assumed and (s.modified or window.read)]


def _written_in_handlers(cdfg: Cdfg, merged: Merged) -> dict[tuple[str, str], list[Region]]:
    """Writes of interrupt handlers, by group and register."""
    writes: dict[tuple[str, str], list[Region]] = {}
    for name, r in merged.all():
        if r.kind == "w" and cdfg.functions[name].handler:
            writes.setdefault((merged.ref(r.place).group, merged.register(r.place).name), []).append(r)
    return writes


def _shared(region: Region, other: Region) -> bool:
    """Whether the other region writes a field that this one reads, changes and writes."""
    changed = {a.field for a in region.accesses if a.site.form in ("compound", "step")}
    return any(a.field in changed for a in other.accesses)


def _read_back(merged: Merged, region: Region) -> str:
    """An error if an operator such as `|=` writes flags back as read, which would act on every flag that was set."""
    for a in region.accesses:
        modified = merged.register(a).slot(merged.ref(a).leaf).modified
        if region.kind == "w" and modified and a.site.form in ("compound", "step"):
            text = f"'{a.field[1]}' is no stored value ({modified}): '{a.site.operator}' writes back what was read;"
            return f"{text} assign the bits that are meant"
    return ""


def _loaded(register: Register, leaves: tuple[str, ...], is_number: bool) -> str:
    """The error of a load of a whole register. A load as a number is meant to have the side effects of all fields."""
    if not any("r" in s.access for s in register.slots if is_number or s.name in leaves):
        return f"'{leaves[0]}' cannot be read"
    popped = next((s for s in register.slots if s.sensitive and s.name not in leaves and not is_number), None)
    return f"a read of '{', '.join(leaves)}' also reads '{popped.name}', which has a side effect" if popped else ""


def _unreadable(f: Function, merged: Merged) -> Iterator[Diagnostic]:
    """Errors where a variable holds a loaded register, and a field that cannot be read is used as loaded.

    A load gives such a field its harmless value, if the description has one, so the variable may be stored.
    """
    at_sites = _as_loaded(f)
    for site in (s for s in f.sites if s.of and s.form in ("get", "set", "store") and s.operator != "="):
        loaded = at_sites.get(site, frozenset())
        slots = {a: merged.register(a).slot(merged.ref(a).leaf) for a in loaded if a}
        if site.form != "store":
            if (a := site.read) in slots and "r" not in slots[a].access:
                yield site.left.where.says(f"'{slots[a].name}' cannot be read")
            continue
        harmless = () if merged.translated(site) else ("0", "1")
        blind = [s for s in slots.values() if "r" not in s.access and s.back not in harmless]
        lowest = min((s.lsb, s.name) for s in blind)[1] if blind else ""
        text = f"the store writes back '{lowest}', which cannot be read: assign it first" if blind else ""
        if None in loaded and not merged.translated(site):
            text = text or _kept(merged.register(site.parts[0][0]))
        if text:
            yield site.left.where.says(text)


def _kept(register: Register) -> str:
    """An error if a store of a loaded register writes back fields that the source lacks and that have no such value."""
    own = [s for s in register.slots if not s.field and "w" in s.access]
    wrong = next((s for s in own if s.back == "never" or (s.back == "keep" and "r" not in s.access)), None)
    why = "and no value is harmless there" if wrong and wrong.back == "never" else "which cannot be read"
    return f"the store writes back '{wrong.name}', {why}" + _overlay(wrong, 'back: "0"') if wrong else ""


def _as_loaded(f: Function) -> Mapping[Site, frozenset[Access | None]]:
    """Fields of each site's variable that may still be as loaded, on some path; None stands for fields without a name.

    A declaration without a value counts as a load. Unreachable sites have no entry.
    """
    sites = {s.node: s for s in f.sites if s.node}
    before: dict[Node, frozenset[tuple[str, Access | None]]] = {f.entry: frozenset()}
    todo = [f.entry]
    while todo:
        node = todo.pop()
        after = _after(sites[node], before[node]) if node in sites else before[node]
        for following in node.succ:
            joined = after | before.get(following, frozenset())
            if before.get(following) != joined:
                before[following] = joined
                todo.append(following)
    held = {s: frozenset(a for key, a in before[n] if key == s.key) for n, s in sites.items() if n in before}
    moved = (s for s in f.sites if s.form == "store" and s.of and not s.key)  # from one register to another
    return held | {s: _parts(s) for s in moved}


def _parts(site: Site) -> frozenset[Access | None]:
    return frozenset((None, *(a for a, _ in site.of.parts))) if site.of else frozenset()


def _after(site: Site, before: frozenset[tuple[str, Access | None]]) -> frozenset[tuple[str, Access | None]]:
    """(variable, field that is still as loaded) after a site."""
    if site.form == "set":
        return before - {(site.key, site.read)} if site.operator == "=" else before
    if site.form in ("get", "store"):
        return before
    others = frozenset(x for x in before if x[0] != site.key)
    if site.form == "copy":
        return others | {(site.key, a) for key, a in before if key == site.source}
    return others if site.form == "make" else others | {(site.key, a) for a in _parts(site)}


def _illegal(register: Register, leaves: tuple[str, ...], kind: str, window: Window) -> tuple[str, str]:
    """(error, warning) of an access to `leaves` of a register; both may be empty."""
    what = ", ".join(leaves)
    span = ((1 << window.bits) - 1) << 8 * window.offset
    others = [s for s in register.slots if (s.name not in leaves or s.count > 1) and s.cover & span]
    slots = [register.slot(n) for n in leaves]
    if kind == "r":
        wrong = next((s for s in slots if "r" not in s.access), None)
        if wrong:
            return f"'{wrong.name}' cannot be read", ""
        popped = next((s for s in others if s.sensitive), None)
        text = f"a read of '{what}' also reads '{popped.name}', which has a side effect" if popped else ""
        return (text + _overlay(popped, "plain: true") if popped else ""), ""
    wrong = next((s for s in slots if "w" not in s.access), None)
    if wrong:
        return f"'{wrong.name}' cannot be written", ""
    bad = next((s for s in others if s.back == "never"), None)
    if bad and bad.assumed:
        text = f"a write of '{what}' also writes '{bad.name}', and may destroy it: {bad.assumed}"
        return f"{text}; the overlay says what a write does, as '{bad.key}: {{write: oneToClear}}'", ""
    if bad:
        text = f"a write of '{what}' also writes '{bad.name}', and no value is harmless there"
        return text + _overlay(bad, 'back: "0"'), ""
    if not window.read:
        return "", ""
    popped = next((s for s in register.slots if s.sensitive and s.cover & span), None)
    if popped:
        text = f"a write of '{what}' must read its register first, and a read of '{popped.name}' has a side effect"
        return text + _overlay(popped, "plain: true"), ""
    blind = next((s for s in others if s.back == "keep" and "r" not in s.access), None)
    if blind:
        text = f"a write of '{what}' must keep '{blind.name}', which cannot be read"
        return text + _overlay(blind, 'back: "0"'), ""
    racing = [s for s in others if s.back == "keep" and s.volatile and not s.open]
    if not racing:
        return "", ""
    names = "', '".join(s.name for s in racing)
    text = f"'{names}' may change while '{register.name}' is read, changed and written: the change would be lost"
    return "", text + _overlay(racing[0], "plain: true")


def _overlay(slot: Slot, words: str) -> str:
    """The hint that an overlay can correct what a register description says or leaves open."""
    return f"; if that is not so, the overlay says '{slot.key}: {{{words}}}'" if slot.key else ""


# ---- races between contexts


def races(dialect: Dialect, cdfg: Cdfg, merged: Merged) -> tuple[list[Diagnostic], list[Diagnostic]]:
    """(errors, warnings). An error: a register is read, changed and written while another context may write it too.

    A warning: the source does that itself, with one field.
    """
    errors: list[Diagnostic] = []
    warnings: list[Diagnostic] = []
    if not any(f.interrupt is not None for f in cdfg.functions.values()):
        return errors, warnings
    runs = contexts(cdfg)
    off = {name: guarded(f) for name, f in cdfg.functions.items()}
    facts = Facts(dialect, merged.conflicts.refs)
    writes = [
        (name, r) for name, r in merged.all() if r.kind == "w" and not all(facts.of(a).shared for a in r.accesses)
    ]
    for name, region in writes:
        a = region.place
        if a.node in off[name]:
            continue
        changes = next((x for x in region.accesses if x.site.form in ("compound", "step")), None)
        reads = merged.window(region).read or changes is not None
        for other, write in writes if reads else ():
            if not preempts(runs[other], runs[name]) or not _one_register(merged, region, write):
                continue
            same = changes and any(x.field == changes.field for x in write.accesses)
            if not same and not merged.keeps(region, write):
                continue  # it writes back nothing that the other one stores
            text = _text(merged, a, other, write)
            if same and not merged.window(region).read:
                text += "; bf_critical protects it, bf_shared says that it is meant"
                warnings.append(a.where.says(text, severity="warning"))
            else:
                key = merged.register(a).slot(merged.ref(a).leaf).key
                way = f"the overlay '{key}: {{shared: true}}'" if key else "bf_shared"
                errors.append(a.where.says(f"{text}; bf_critical protects it, {way} says that it is meant"))
            break
    return errors, warnings


def _one_register(merged: Merged, a: Region, b: Region) -> bool:
    x, y = a.place, b.place
    other_devices = x.chain.device and y.chain.device and x.chain.device != y.chain.device
    same = merged.ref(x).group == merged.ref(y).group and merged.register(x).name == merged.register(y).name
    return same and not other_devices


def _text(merged: Merged, a: Access, other: str, write: Region) -> str:
    name, line = merged.register(a).name, write.place.where.line
    return f"register '{name}' is changed here and by {other}() in an interrupt (line {line}): an update may be lost"


# ---- constants that a field does not accept, or whose write has no effect


def refused(cdfg: Cdfg, merged: Merged) -> list[Diagnostic]:
    """A warning for each constant that a field does not accept (`writeConstraint`), or whose write has no effect."""
    warnings = []
    sites = (s for f in cdfg.functions.values() for s in f.sites if s.form not in ("compound", "set"))
    for a, value, alone in ((a, v, s.form == "assign") for s in sites for a, v in _writes(s)):
        slot, number = merged.register(a).slot(merged.ref(a).leaf), value.constant
        if number is None:
            continue
        stored, ones = number & ((1 << slot.width) - 1), (1 << slot.width) - 1
        text = ""
        if slot.accepts and not any(low <= stored <= high for low, high in slot.accepts):
            ranges = ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in slot.accepts)
            text = f"'{slot.key}' takes {ranges} by its description, and {stored} is written"
        elif alone and stored == {"0": 0, "1": ones}.get(NEUTRAL.get(slot.modified, "")):
            text = f"'{slot.key or slot.name}' is {slot.modified}: a write of {stored} does nothing"
            text += f"; if it stores, the overlay says '{slot.key}: {{plain: true}}'" if slot.key else ""
        warnings += [a.where.says(text, severity="warning")] if text else []
    return warnings


def oversized_constants(dialect: Dialect, cdfg: Cdfg, program: Program) -> Iterator[Diagnostic]:
    """An error for each constant that has more bits than its field, or belongs to an enumeration of another field.

    A negative number fits if the field holds all of its bits but copies of the sign: `-1` fits each field. The same
    holds for variables of a bit field's type. In comparisons a negative number never fits: no field equals it.
    """
    written = (
        (dialect.field(a.field), v, True) for f in cdfg.functions.values() for s in f.sites for a, v in _writes(s)
    )
    functions = [*program.functions, *(f for f, _ in program.lambdas.values())]
    others = (x for f in functions if f.body for node in f.body.all() for x in _expected(dialect, f, node))
    for place, value, stored in (*written, *others):
        for c in _constants(value):
            if text := _misfit(place, c, stored):
                yield from c.error(text).diagnostics


def _misfit(field: Field, c: Expression, stored: bool) -> str:
    """Why a constant is no value of a field; empty if it is one."""
    number, most, names = c.constant or 0, (1 << field.width) - 1, [n for n, _ in field.values]
    if isinstance(c, ir.Name) and names and c.name not in names:
        return f"'{c.name}' is no value of '{field.name}', which takes {', '.join(names)}"
    if (-(most + 1) // 2 if stored else 0) <= number <= most:
        return ""
    one = f"the bit '{field.name}', which takes 0 and 1"
    more = f"the {field.width} bits of '{field.name}', which take 0 to {most}"
    return f"{number} does not fit into {one if field.width == 1 else more}"


def _expected(dialect: Dialect, f: ir.Function, x: ir.Node) -> Iterator[tuple[Field, Expression, bool]]:
    """(field, value, whether it is stored there) of a comparison, a case, and variables of a bit field's type."""

    def variable(name: str, type_: CType, value: Expression | None) -> Iterator[tuple[Field, Expression, bool]]:
        while type_.written == "array":
            type_ = type_.element
        width, bare = type_width(type_.origin), value.bare if value else None
        for v in bare.items if isinstance(bare, ir.ListValue) else (bare,):
            if width and v is not None:
                yield Field("", name, width), v.value if isinstance(v, ir.Designated) else v, True

    match x:
        case ir.Binary(left=a, right=b, operator="==" | "!="):
            yield from ((field, v, False) for c, v in ((a, b), (b, a)) if (field := _field_of(dialect, c)))
        case ir.Switch() if field := _field_of(dialect, x.value):
            yield from ((field, v, False) for case in ir.labels(x.body) for v in case.values)
        case ir.Declared():
            yield from variable(x.variable.name, x.variable.type, x.value)
        case ir.Assignment(left=ir.Name(to=ir.Variable() as to), operator="" | "|" | "^"):
            yield from variable(to.name, to.type, x.right)
        case ir.Return():
            yield from variable(f.name, f.result, x.value)
        case ir.Call(to=ir.Function() as to):
            for p, value in zip(to.expected, x.arguments, strict=False):
                yield from variable(p.name, p.type, value)


def _field_of(dialect: Dialect, c: Expression) -> Field | None:
    """The field that an expression reads."""
    bare = c.bare
    while isinstance(bare, ir.Subscript):
        bare = bare.base.bare
    member = bare.value_member if isinstance(bare, ir.MemberOf) else None
    owned = dialect.groups[member.owner].member(member.name) if member and member.owner in dialect.groups else None
    return owned if isinstance(owned, Field) else None


def _constants(value: Expression) -> Iterator[Expression]:
    """The constants that an expression may have as its value, before they are converted to a field's type."""
    bare = value.bare
    if bare.constant is not None:
        yield bare
    elif isinstance(bare, ir.Choice):
        for arm in (bare.yes or bare.condition, bare.no):
            yield from _constants(arm)
    elif isinstance(bare, ir.Comma):
        yield from _constants(bare.right)


def _writes(site: Site) -> Iterator[tuple[Access, Expression]]:
    """(access, value) of each assignment to a field, and of each `|=` and `^=`."""
    a = site.read if site.form == "set" else site.write
    if site.form in ("assign", "compound", "set") and site.operator in ("=", "|=", "^=") and a and site.right:
        yield a, site.right
    if site.form in ("group", "make"):
        yield from ((a, v) for a, v in site.parts if v is not None)


@dataclass(frozen=True)
class Driver:
    """The results of all stages for one driver."""

    request: DriverRequest
    target: str  # name of the target; the request may have a file instead
    source: Source
    dialect: Dialect  # with the attributes of fields that a register description adds
    cdfg: Cdfg
    shapes: Shapes
    conflicts: Conflicts
    uses: Mapping[str, Uses]  # regions that the layout was optimised for; empty if it was fixed
    layout: Layout
    merged: Merged
    warnings: tuple[Diagnostic, ...]
    files: tuple[str, ...]  # all files that were read
    absent: tuple[str, ...]  # files that would have been read, but do not exist
