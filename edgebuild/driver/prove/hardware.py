"""The registers as a solver sees them: a value for each field at each place, and the accesses that matter.

A field holds an array from places (address of the group, index of the element) to values. What matters is told by the
declarations alone: an access with a side effect is an event, and so is each store of ordered silicon. All other
accesses matter only through the values that are found later. Source and generated code share nothing here but the
layout: a source accesses fields, generated code the bytes of registers.

On silicon, bits of no field may read as anything, another value at each load. A store that reads first puts them back,
and one of a whole register gives them their values after reset. A layout of our own has zeros there. Nothing is known
of what a load finds of fields that can only be written, whatever the layout. Both sides name what a load finds by the
number of the bus access, for their accesses are compared one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import z3

from ..analysis.conflicts import Region
from ..emit.hal import Hal
from ..layout.registers import Layout, Register, Slot
from ..merge.merging import Driver, Merged
from ..source.dialect import NEUTRAL, Dialect, Field, FieldId
from ..source.ir import Expression

# How much a proof may do, counted in steps of the interpreter and of the solver: no clock decides a verdict.

LIMIT, PHASE = 20_000_000, 8_000_000  # for one function: some 20 s of a processor of 2022; for one method of proof
QUESTION = 3_000_000  # solver steps for one question
ASKED, STEP = 400, 30  # what a question costs besides, and an expression of the program


class Unknown(Exception):
    """Something that the proof cannot follow, and why."""


@dataclass
class Effort:
    """The steps that were spent on a function, and the solver's own count, which goes on over all functions."""

    limit: int = LIMIT  # of what is spent, for the phase
    spent: int = 0
    counted: int = 0

    def begin(self) -> None:
        """A function begins."""
        self.limit, self.spent = LIMIT, 0

    def phase(self) -> None:
        """Another method of proof begins."""
        self.limit = min(LIMIT, self.spent + PHASE)

    def spend(self, amount: int) -> None:
        """Raise Unknown if too much was spent."""
        self.spent += amount
        if self.spent > self.limit:
            raise Unknown(f"the proof is not at its end after {self.spent // 1_000_000} million steps")


EFFORT = Effort()


def solver_of(*conditions: Any) -> z3.Solver:
    solver = z3.Solver()
    solver.set("rlimit", QUESTION)
    solver.add(*conditions)
    return solver


def ask(solver: z3.Solver, *conditions: Any) -> Any:
    """The solver's answer: `z3.sat`, `z3.unsat` or `z3.unknown`. Raises Unknown if the effort is spent."""
    answer = solver.check(*conditions)
    statistics = solver.statistics()
    names = {statistics[i][0]: i for i in range(len(statistics))}
    count = statistics[names["rlimit count"]][1] if "rlimit count" in names else EFFORT.counted
    used, EFFORT.counted = max(0, count - EFFORT.counted), count
    EFFORT.spend(ASKED + used)
    return answer


# Names for what reads find of fields that may change by themselves: the same on both sides, another one for each read.
#
# A read of the source has the name of the function that is to make it in the generated code, and its number among all
# reads by that function. Names decide nothing but which values are taken for equal; that the reads stand at the same
# places among the other accesses is compared apart.

Span = tuple[int, int]
Home = tuple[str, Register]  # with its group


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
    homes: Mapping[str, Home] = field(default_factory=dict)  # registers that variables hold, by the variables' keys

    def of(self, c: Expression) -> tuple[str, bool]:
        return self.reads.get(c.bare.span, ("", False))


def views_of(driver: Driver) -> Views:
    """The functions that are to read registers of one bus access, and those that write fields."""
    hal, merged = Hal(driver.layout), driver.merged
    reads: dict[tuple[int, int], tuple[str, bool]] = {}
    leaves: dict[str, frozenset[tuple[str, str]]] = {}
    again = set(merged.reused.values())
    for region in (r for regions in merged.conflicts.regions.values() for r in regions if r.kind == "r"):
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
    for region in (r for regions in merged.conflicts.regions.values() for r in regions if r.kind == "w"):
        if not region.place.whole:
            group, names = merged.ref(region.place).group, merged.leaves(region)
            written[hal.write(group, names, loaded=region in merged.reused)] = frozenset((group, n) for n in names)
    held = ((s.key, s.of.parts[0][0]) for f in driver.cdfg.functions.values() for s in f.sites if s.key and s.of)
    homes = {key: (merged.ref(a).group, merged.register(a)) for key, a in held}
    return Views(reads, leaves, written, *_planned(driver), homes)


def _planned(
    driver: Driver,
) -> tuple[dict[tuple[str, Span], Planned | None], dict[Span, tuple[Planned, ...]]]:
    """The bus accesses that merging leaves, by the places of the source where they are made; None: none is made.

    A proof asks for these besides all that it compares by itself, so a wrong plan can refuse, and never accept.
    """
    planned: dict[tuple[str, Span], Planned | None] = {}
    hoisted: dict[Span, tuple[Planned, ...]] = {}
    for name, regions in driver.merged.conflicts.regions.items():
        for region in regions:
            for a in region.accesses:
                planned.setdefault((region.kind, a.site.left.bare.span), None)
            plan = _plan(driver.merged, region)
            if region.hoisted:
                extent = driver.cdfg.functions[name].fulls[region.place.full]
                assert extent is not None
                hoisted[extent] = (*hoisted.get(extent, ()), plan)
            else:
                planned[region.kind, region.place.site.left.bare.span] = plan
    return planned, hoisted


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


Key = tuple[str, str]  # (group, leaf)
Placed = tuple[Key, Slot, Any, int]  # a field, its place, and its lowest bit in an access
ADDRESS, INDEX = 32, 32
PLACE = z3.BitVecSort(ADDRESS + INDEX)


class Different(Exception):
    """A difference between the source and the generated code.

    `case`: conditions of the inputs that show it; `events`: those of both sides that differ, and `path` all of the
    source's.
    """

    case: tuple[Any, ...] = ()
    events: tuple[Event | None, Event | None] | None = None
    path: tuple[Event, ...] = ()


@dataclass(frozen=True)
class Pointer:
    """An address as its parts: base + constant + sum of stride * index."""

    base: Any
    group: str = ""
    constant: int = 0
    scaled: tuple[tuple[int, Any], ...] = ()

    @property
    def value(self) -> Any:
        total = self.base + z3.BitVecVal(self.constant, ADDRESS)
        for stride, index in self.scaled:
            total = total + z3.BitVecVal(stride, ADDRESS) * index
        return z3.simplify(total)

    def moved(self, constant: int = 0, stride: int = 0, index: Any = None) -> Pointer:
        scaled = self.scaled if index is None else (*self.scaled, (stride, index))
        return Pointer(self.base, self.group, self.constant + constant, scaled)


@dataclass(frozen=True)
class Outside:
    """Objects in memory and variables outside of functions, behind a number of unknown calls."""

    calls: int
    memory: dict[Any, Any]
    globals: dict[str, Any]


@dataclass(frozen=True)
class Event:
    """`kind`: "r", "w", "store" (of ordered silicon, in one bus access with others of its `batch`), "call", or these.

    "load" is a read of ordered silicon that may change by itself: what stands before it is to be there. "idle" is a
    write of a value that does nothing: its store may be there, as it is by hand, or not.
    """

    kind: str
    key: Key
    values: tuple[Any, ...]
    state: dict[Key, Any]
    device: tuple[int, int] | None  # addresses that it is about; None: any
    batch: int = 0  # number of the access
    before: Any = None
    beside: frozenset[Key] = frozenset()  # of an idle write: the fields of its register
    outside: Outside | None = None  # of a call: what it finds besides registers
    text: str = ""  # of a volatile object: what the source calls it
    size: int = 0  # and its bytes
    seen: Outside | None = None  # of a store of a volatile object: what an interrupt then finds besides registers


@dataclass(frozen=True)
class BusAccess:
    """`kind`: "r", "w", or "call" with a name, which stands between accesses. `matters`: whether the hardware, by its
    description, sees a difference.

    `fields`: of a store in generated code (field, its slot, its place, what it gets, what it had); `state` and
    `stored`: of one that the source plans, all fields and the leaves that are written (None: all). `value`: what a
    store in generated code stores; `rest`: (lowest bit, value) of all bits of no field in one that the source plans.
    """

    kind: str
    address: Any
    size: int = 0
    name: str = ""
    matters: bool = False
    fields: tuple[tuple[Key, Slot, Any, Any, Any], ...] = ()
    state: dict[Key, Any] | None = None
    stored: frozenset[str] | None = frozenset()
    value: Any = None
    rest: tuple[tuple[int, Any], ...] = ()


@dataclass
class Hardware:
    dialect: Dialect
    layout: Layout
    state: dict[Key, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    loads: dict[Key, int] = field(default_factory=dict)  # how often each volatile field was read
    batch: int = 0
    hints: list[Any] = field(default_factory=list)  # bounds of indices that may hold
    obligations: list[tuple[Any, str]] = field(default_factory=list)  # what has to hold, and what is wrong if it fails
    halves: dict[tuple[Key, str], Any] = field(default_factory=dict)  # fields wider than the bus, stored in part
    views: Views = field(default_factory=Views)
    turns: dict[str, int] = field(default_factory=dict)  # how often each function has read
    last_reads: dict[tuple[Key, str], Any] = field(default_factory=dict)  # of fields that may change by themselves
    bus: list[BusAccess] = field(default_factory=list)  # what is made, or in the source what is planned
    loads_beside: dict[tuple[str, str, str, int], Any] = field(default_factory=dict)  # bits of no field, as planned
    open_orders: list[tuple[int, ...]] = field(default_factory=list)  # where C leaves the order of events open
    count: int = 0  # events so far, without those whose number may differ between the sides
    calls: int = 0  # unknown calls so far that may change objects in memory, which barriers do not

    # ---- state

    def array(self, key: Key, width: int) -> Any:
        if key not in self.state:
            self.state[key] = z3.Array(".".join(key), z3.BitVecSort(ADDRESS + INDEX), z3.BitVecSort(width))
        return self.state[key]

    @cached_property
    def leaves(self) -> tuple[tuple[Key, Slot], ...]:
        """All fields of all groups."""
        groups = self.layout.groups.values()
        return tuple(((g.group, leaf_of(r, s)), s) for g in groups for r in g.registers for s in r.slots)

    def touch_all(self) -> None:
        """Make all arrays, so that both sides have the same."""
        for key, slot in self.leaves:
            self.array(key, slot.width)

    def forget(self, fields: frozenset[FieldId] | None) -> None:
        """New values for the fields, or for all: they are the same on both sides if the events were."""
        self.last_reads = {k: v for k, v in self.last_reads.items() if fields is not None}
        number = self.count
        for key, slot in self.leaves:
            if fields is None or slot.field in fields:
                EFFORT.spend(STEP)
                self.state[key] = z3.Array(f"{'.'.join(key)}!{number}", PLACE, z3.BitVecSort(slot.width))

    def happens(self, e: Event) -> None:
        """Note an event."""
        self.events.append(e)
        self.count += e.kind not in ("store", "load", "idle")
        self.calls += e.outside is not None

    # ---- accesses of fields

    def facts(self, key: Key, slot: Slot) -> Field | None:
        """The field at its place; None of what belongs to the silicon alone."""
        return self.dialect.at(key[0], key[1], slot.field) if slot.field else None

    def effects(self, key: Key, slot: Slot, kind: str) -> frozenset[FieldId]:
        """Fields that an access changes."""
        facts = self.facts(key, slot)
        return facts.effects(kind) if facts else frozenset()

    def ordered(self, key: Key, slot: Slot) -> bool:
        """Whether each store counts; of what belongs to the silicon alone where those of a neighbour do."""
        facts = self.facts(key, slot)
        if facts:
            return facts.order == "ordered"
        here = (r for r in self.layout.groups[key[0]].registers if leaf_of(r, slot) == key[1] and slot in r.slots)
        return any(s.field and self.ordered((key[0], s.name), s) for r in here for s in r.slots)

    def turn(self, view: str, leads: bool = True) -> str:
        """A name for what a function finds when it reads now; without `leads` when it has read before."""
        self.turns[view] = self.turns.get(view, 0) + leads
        return f"{view} {self.turns[view]}"

    def now(self, key: Key, width: int, place: Any) -> Any:
        """The value of a field as it is, or as it was found last."""
        value = self.last_reads.get((key, z3.simplify(place).sexpr()))
        return z3.Select(self.array(key, width), place) if value is None else value

    def read(self, key: Key, slot: Slot, place: Any, device: tuple[int, int] | None, turn: str = "") -> Any:
        """The value of a field; an event if the read changes anything. `turn`: a name for what it finds."""
        value = z3.Select(self.array(key, slot.width), place)
        facts = self.facts(key, slot)
        effects = self.effects(key, slot, "r")
        if facts and (facts.volatile or slot.volatile):
            self.loads[key] = self.loads.get(key, 0) + 1
            if facts.order == "ordered":
                self.happens(Event("load", key, (place,), {}, device, self.batch))
            spot = key, z3.simplify(place).sexpr()
            self.last_reads.pop(spot, None)
            if turn and not effects and slot.count == 1:
                value = self.last_reads[spot] = z3.BitVec(f"{'.'.join(key)} by {turn}", slot.width)
        if effects:
            number = self.count
            self.happens(Event("r", key, (place,), dict(self.state), device))
            if slot.field in effects:
                value = z3.BitVec(f"{'.'.join(key)}?{number}", slot.width)
            self.forget(effects)
        return value

    def write_element(self, key: Key, slot: Slot, place: Any, value: Any, device: tuple[int, int] | None) -> None:
        """A write of an element that is not known of an array in one register: of all others a value that does nothing.

        Generated code stores all of them at once.
        """
        index = z3.simplify(z3.Extract(INDEX - 1, 0, place))
        if slot.count == 1 or z3.is_bv_value(index):
            self.write(key, slot, place, value, device)
            return
        base, neutral = z3.Extract(ADDRESS + INDEX - 1, INDEX, place), neutral_of(slot)
        for i in range(slot.count):
            at = z3.simplify(z3.Concat(base, z3.BitVecVal(i, INDEX)))
            other = z3.Select(self.array(key, slot.width), at) if neutral is None else z3.BitVecVal(neutral, slot.width)
            self.write(key, slot, at, z3.If(index == i, value, other), device)

    def write(
        self, key: Key, slot: Slot, place: Any, value: Any, device: tuple[int, int] | None, back: bool = False
    ) -> None:
        """`back`: a neighbour is written, and what this field has is put back."""
        neutral = neutral_of(slot)
        array, old = self.array(key, slot.width), self.now(key, slot.width, place)
        effects = self.effects(key, slot, "w")
        harmless = neutral is not None and (
            z3.is_true(z3.simplify(value == neutral)) or bool(effects and self._follows(value == neutral))
        )
        if effects and back and slot.back == "keep":
            harmless = harmless or z3.is_true(z3.simplify(value == self.now(key, slot.width, place)))
        if harmless:
            beside = self._beside(key)
            self.happens(Event("idle", key, (place, value), {}, device, self.batch, beside=beside))
            return
        if effects:
            self.happens(Event("w", key, (place, value), dict(self.state), device, self.batch))
        elif self.ordered(key, slot):
            self.happens(Event("store", key, (place, value), {}, device, self.batch, old))
        again = z3.is_store(array) and array.arg(1).eq(place) and array.arg(2).eq(value)  # as a loop that waits does
        unchanged = not z3.is_select(old) and z3.is_true(z3.simplify(value == old))
        if not (slot.modified or slot.field in effects or again or unchanged):
            self.state[key] = z3.Store(array, place, value)
            self.last_reads = {k: v for k, v in self.last_reads.items() if k[0] != key}
        self.forget(effects)

    def _beside(self, key: Key) -> frozenset[Key]:
        """All fields of the registers that hold a field."""
        registers = self.layout.groups[key[0]].registers
        leaves = ([leaf_of(r, s) for s in r.slots] for r in registers)
        return frozenset((key[0], leaf) for names in leaves if key[1] in names for leaf in names)

    def _follows(self, condition: Any) -> bool:
        """Whether a condition follows from the bounds of indices. Then it is still to be proved for each path."""
        if not self.hints or ask(solver_of(*self.hints, z3.Not(condition))) != z3.unsat:
            return False
        self.obligations.append((condition, "a store of an array's element changes what lies beside the array"))
        return True

    def call(self, name: str, values: tuple[Any, ...], outside: Outside | None = None, **about: Any) -> int:
        """Something unknown happens: it finds all fields as they are, and leaves none as it was.

        `about`: of a volatile object, what an `Event` has of it.
        """
        number = self.count
        self.touch_all()
        self.happens(Event("call", ("", name), values, dict(self.state), None, outside=outside, **about))
        self.bus.append(BusAccess("call", None, name=name))
        self.forget(None)
        return number

    # ---- bus accesses

    def plan(self, planned: Planned, place: Any = None, word: Any = None) -> None:
        """The bus accesses of the source at a place: of an element where the registers are an array. Without a place
        they stand before their expression, and the address is not compared. `word`: what a whole register gets."""
        start = None
        if place is not None:
            base, index = z3.Extract(ADDRESS + INDEX - 1, INDEX, place), z3.Extract(INDEX - 1, 0, place)
            start = base + planned.register.offset
            start = start + index * planned.register.stride if planned.register.dims else start
        for kind, first, size in planned.parts:
            matters = self._matters(planned.group, planned.register, kind)
            address = None if start is None else z3.simplify(start + first)
            state = dict(self.state) if kind == "w" else None
            rest: tuple[tuple[int, Any], ...] = ()
            spot = planned.group, planned.register.name, "" if address is None else address.sexpr(), first
            if kind == "r":
                self.loads_beside[spot] = anything(len(self.bus), 8 * size)
            else:
                rest = self._rest(planned, first, size, self.loads_beside.get(spot), word)
            name, stored = planned.register.name, planned.stored
            self.bus.append(BusAccess(kind, address, size, name, matters, (), state, stored, rest=rest))

    def _rest(self, planned: Planned, first: int, size: int, beside: Any, word: Any) -> tuple[tuple[int, Any], ...]:
        """Bits of no field as a store is to leave them: as read before, as a word has them, or as after reset."""
        rows = []
        for s in unowned(self.layout, planned.register):
            low, high = max(s.lsb, 8 * first), min(s.lsb + s.width, 8 * (first + size))
            if low >= high:
                continue
            if not planned.keeps:
                whole = z3.BitVecVal(planned.register.reset, planned.register.bits) if word is None else word
                rows.append((low - 8 * first, z3.Extract(high - 1, low, whole)))
            elif beside is None:
                raise Unknown(f"a store of '{planned.register.name}' that puts back what no load was planned for")
            else:
                rows.append((low - 8 * first, z3.Extract(high - 1 - 8 * first, low - 8 * first, beside)))
        return tuple(rows)

    def _matters(self, group: str, register: Register, kind: str) -> bool:
        """Whether one access more or less is a difference: it has an effect, or the silicon may see it."""
        keys = (((group, leaf_of(register, s)), s) for s in register.slots if kind in s.access)
        if kind == "w":
            return any(self.ordered(key, s) or self.effects(key, s, "w") for key, s in keys)
        read = ((s, self.facts(key, s)) for key, s in keys)
        return any(s.volatile or s.sensitive or (f and (f.volatile or f.effects("r"))) for s, f in read)

    # ---- accesses of bytes, as generated code has them

    def load(self, at: Pointer, size: int, view: str = "") -> Any:
        """`view`: the function that accesses it, whose name tells registers apart that share an address."""
        self.batch += 1
        asked = self.views.leaves.get(view, frozenset())
        turn = self.turn(view) if asked else ""
        self._on_bus("r", at, size, view)
        meant, fields = self._registers(at, size, view), self._window(at, size, view)
        return self.loaded(
            [r for r, *_ in meant], meant[0][2], size, fields, None, lambda k: turn if k in asked else ""
        )

    def loaded(
        self,
        registers: list[Register],
        first: int,
        size: int,
        fields: Iterable[Placed],
        device: tuple[int, int] | None,
        turn: Callable[[Key], str],
    ) -> Any:
        """Fields, and other bits, that the load just noted finds in some bytes of registers, from byte `first` on."""
        drawn, value = anything(len(self.bus) - 1, 8 * size), z3.BitVecVal(0, 8 * size)
        for low, width in unexplained(self.layout, registers, first, size):
            value = value | _placed(z3.Extract(low + width - 1, low, drawn), low, 8 * size)
        for key, slot, place, low in sorted(fields, key=lambda f: bool(self.effects(f[0], f[1], "r"))):
            if "r" in slot.access:
                value = value | _placed(self.read(key, slot, place, device, turn(key)), low, 8 * size)
        return value

    def store(self, at: Pointer, size: int, value: Any, view: str = "") -> None:
        self.batch += not self.halves  # words that hold one field are one access
        window = sorted(self._window(at, size, view), key=lambda w: (bool(self.effects(w[0], w[1], "w")), w[1].lsb))
        self._reserved(at, size, value, view)
        fields = []
        for key, slot, place, low in window:  # whatever has a side effect finds its neighbours written
            if "w" not in slot.access:
                continue
            part = key, z3.simplify(place).sexpr()
            old = self.halves.pop(part, self.now(key, slot.width, place))
            new = _after_store(value, old, low)
            if low + slot.width > 8 * size:  # the rest of it is in the next word of the bus
                if not z3.is_true(z3.simplify(new == old)):
                    self.halves[part] = new
            else:
                fields.append((key, slot, place, new, old))
                self.write(key, slot, place, new, None, back=key not in self.views.written.get(view, (key,)))
        self._on_bus("w", at, size, view, tuple(fields), value)

    def _on_bus(
        self,
        kind: str,
        at: Pointer,
        size: int,
        view: str,
        fields: tuple[tuple[Key, Slot, Any, Any, Any], ...] = (),
        value: Any = None,
    ) -> None:
        register = self._registers(at, size, view)[0][0]
        matters = self._matters(at.group, register, kind)
        self.bus.append(BusAccess(kind, at.value, size, register.name, matters, fields, value=value))

    def _reserved(self, at: Pointer, size: int, value: Any, view: str) -> None:
        """In a layout of our own, bits that are of no field are to be stored as 0. A load finds 0 there."""
        if self.layout.method == "fixed":  # what is right there depends on what was read (`compare`)
            return
        registers, bits, covered = self._registers(at, size, view), value.size(), 0
        for _, slot, _, low in self._window(at, size, view):
            covered |= (1 << slot.width + low) - 1 & ~((1 << max(low, 0)) - 1)
        held = z3.simplify(value & z3.BitVecVal(~covered & ((1 << bits) - 1), bits) == 0)
        if not z3.is_true(held):
            self.obligations.append((held, f"a store sets bits of '{registers[0][0].name}' that are of no field"))

    def _registers(self, at: Pointer, size: int, view: str) -> list[tuple[Register, Any, int]]:
        """(register, its element, first byte of the access in it) of those that an access of some bytes means.

        An access lies in one register, and is as wide as the bus and the description allow.
        """
        group = self.layout.groups.get(at.group)
        if group is None:
            raise Unknown("an access to an address of no group")
        candidates, near = [], ""
        for r in group.registers:
            index, constant = self._index(r, at)
            first = constant - r.offset
            if index is not None and 0 <= first < _size(r):
                near = near or f"where '{r.name}' has {_size(r)}"
                if self._allowed(r, first, size):
                    candidates.append((r, index, first))
        if not candidates:
            what = f"{size} bytes at offset {at.constant:#x} of {at.group}, {near or 'where no register is'}"
            raise Different(f"the generated code accesses {what}")
        meant = [_evidence_of(view, at.group, r) for r, *_ in candidates]
        return [x for x, match in zip(candidates, meant, strict=True) if match == max(meant)]

    def _allowed(self, r: Register, first: int, size: int) -> bool:
        """Whether the bus takes an access of so many bytes of a register; of silicon all of it, without `bytes`."""
        word = min(_size(r), self.layout.bus.width // 8)
        whole = size == word if not self.layout.bus.bytes else size <= word
        return whole and first % size == 0 and first + size <= _size(r)

    def _window(self, at: Pointer, size: int, view: str) -> Iterator[Placed]:
        """All fields in some bytes."""
        for r, index, first in self._registers(at, size, view):
            for slot in r.slots:
                for i in range(slot.count):
                    low = slot.lsb + i * slot.stride - 8 * first
                    if low < 8 * size and low + slot.width > 0:
                        at_index = z3.BitVecVal(i, INDEX) if slot.count > 1 else index
                        yield (at.group, leaf_of(r, slot)), slot, z3.Concat(at.base, at_index), low

    @staticmethod
    def _index(r: Register, at: Pointer) -> tuple[Any, int]:
        """(element of an array of registers, constant part of the address); no element if it is of another register."""
        if not r.dims:
            return (None if at.scaled else z3.BitVecVal(0, INDEX)), at.constant
        if at.scaled:
            same = len(at.scaled) == 1 and at.scaled[0][0] == r.stride
            return (at.scaled[0][1] if same else None), at.constant
        element, rest = divmod(at.constant - r.offset, r.stride)
        inside = 0 <= element < r.count
        return (z3.BitVecVal(element, INDEX) if inside else None), r.offset + rest


def _size(r: Register) -> int:
    """Bytes of a register."""
    return next(n for n in (1, 2, 4, 8) if r.bits <= 8 * n) if r.bits <= 64 else r.bits // 8


def _evidence_of(view: str, group: str, r: Register) -> int:
    """How much of the name of a function that accesses registers is about one: views of one address differ in that."""
    rest = view.partition(f"_{group}_")[2]
    names = [r.name, *(s.name for s in r.slots if s.field)]
    return max((len(n) for n in names if rest == n or rest.startswith(f"{n}_")), default=0)


def leaf_of(register: Register, slot: Slot) -> str:
    """A name that no other field of the group has: silicon's own fields often have one name in some registers."""
    return slot.name if slot.field else f"{register.name}.{slot.name}"


def neutral_of(slot: Slot) -> int | None:
    """The value of a field whose write does nothing; None if there is none."""
    back = slot.back if slot.back in ("0", "1") else NEUTRAL.get(slot.modified, "")
    return {"0": 0, "1": (1 << slot.width) - 1}.get(back)


def _placed(value: Any, low: int, bits: int) -> Any:
    """The value's bits at `low` of a wider or narrower word."""
    if low < 0:
        value, low = z3.Extract(value.size() - 1, -low, value), 0
    width = min(value.size(), bits - low)
    value = z3.Extract(width - 1, 0, value) if width < value.size() else value
    wide = z3.ZeroExt(bits - width, value) if bits > width else value
    return wide << low if low else wide


def _after_store(value: Any, old: Any, low: int) -> Any:
    """A field's new value after a store of a word in which it lies at bit `low`; what is outside stays."""
    width = old.size()
    first, last = max(0, -low), min(width, value.size() - low)  # bits of the field that are in the word
    part = z3.Extract(last + low - 1, first + low, value)
    pieces = []
    if last < width:
        pieces.append(z3.Extract(width - 1, last, old))
    pieces.append(part)
    if first > 0:
        pieces.append(z3.Extract(first - 1, 0, old))
    return z3.Concat(*pieces) if len(pieces) > 1 else part


# ---- bits of no field


def unowned(layout: Layout, register: Register) -> tuple[Slot, ...]:
    """Bits of no field of a register of silicon, as fields that belong to the silicon alone."""
    if layout.method != "fixed":
        return ()
    named = _cover(register.slots)
    rest = ((1 << register.bits) - 1) & ~named
    return tuple(Slot(f"bits {low} to {low + width - 1}", low, width) for low, width in _runs(rest, register.bits))


def unexplained(layout: Layout, registers: Iterable[Register], first: int, size: int) -> tuple[tuple[int, int], ...]:
    """(lowest bit, width) in a load of `size` bytes, from byte `first` on, of bits that no readable field holds."""
    rest = (1 << 8 * size) - 1
    for r in registers:
        open_ = _cover(s for s in r.slots if "r" not in s.access) | _cover(unowned(layout, r))
        rest &= (open_ & ~_cover(s for s in r.slots if "r" in s.access)) >> 8 * first
    return tuple(_runs(rest, 8 * size))


def anything(number: int, bits: int) -> Any:
    """The bits that a load finds there: the same on both sides for accesses of the same number."""
    return z3.BitVec(f"beside fields by access {number}", bits)


def _cover(slots: Iterable[Slot]) -> int:
    mask = 0
    for s in slots:
        mask |= s.cover
    return mask


def _runs(mask: int, bits: int) -> Iterable[tuple[int, int]]:
    """(lowest bit, width) of neighbouring bits in a mask."""
    low = 0
    while low < bits:
        width = 0
        while low + width < bits and mask >> low + width & 1:
            width += 1
        if width:
            yield low, width
        low += max(width, 1)
