"""The registers as a solver sees them: a value for each field at each place, and the accesses that matter.

Each field is an array from places (address of the group, index of the element) to values. The declarations alone decide
which accesses matter: an access with a side effect is an event, and so is each store of ordered silicon. All other
accesses matter only through the values that are read later. Source and generated code share only the layout here: a
source accesses fields, generated code accesses bytes of registers.

On silicon, bits outside of fields read as arbitrary values, different at each load. A store that reads first puts them
back, and a store of a whole register gives them their reset values. In a layout of our own they are zero. Write-only
fields read as arbitrary values in every layout. Both sides name these values by the number of the bus access, since
their bus accesses are compared one by one."""

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

# The effort of a proof, counted in steps of the interpreter and of the solver: verdicts do not depend on a clock.

LIMIT, PHASE = 20_000_000, 8_000_000  # for one function: some 20 s of a processor of 2022; for one method of proof
QUESTION = 3_000_000  # solver steps for one question
ASKED, STEP = 400, 30  # steps for each question besides the solver's, and for each evaluated expression


class Unknown(Exception):
    """The proof cannot follow some code; the text is the reason."""


@dataclass
class Effort:
    """Steps spent on the current function, and the solver's own count, which runs over all functions."""

    most: int = LIMIT  # of `spent` for the function
    limit: int = LIMIT  # of `spent` at the end of the phase
    spent: int = 0
    counted: int = 0

    def begin(self, most: int | None = None) -> None:
        """Start counting for a function."""
        self.most = self.limit = LIMIT if most is None else most
        self.spent = 0

    def phase(self) -> None:
        """Start counting for another method of proof."""
        self.limit = min(self.most, self.spent + PHASE)

    def spend(self, amount: int) -> None:
        """Add steps. Raises Unknown beyond the limit."""
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
    try:
        count = solver.statistics().get_key_value("rlimit count")
    except z3.Z3Exception:  # it has counted nothing yet
        count = EFFORT.counted
    used, EFFORT.counted = max(0, count - EFFORT.counted), count
    EFFORT.spend(ASKED + used)
    return answer


# Names of the values that reads of volatile fields return: equal on both sides, and different for each read.
#
# A read of the source is named after the function that makes it in the generated code, and its number among all reads
# by that function. Names only decide which values are equal; the order of the reads among the other accesses is
# compared separately.

Span = tuple[int, int]
Home = tuple[str, Register]  # (group, register)


@dataclass(frozen=True)
class Planned:
    """Bus accesses planned for the accesses of one register. `parts`: (kind, byte offset in the register, bytes).

    `stored`: leaves that get a value from the source; None: all of them. `keeps`: a store puts back bits outside of
    fields as the load before it read them.
    """

    group: str
    register: Register
    parts: tuple[tuple[str, int, int], ...]
    stored: frozenset[str] | None = frozenset()
    keeps: bool = False


@dataclass(frozen=True)
class Views:
    """`reads`: (function, whether this read is the first one of its load), by the place of the read in the source.
    `leaves`: fields that each function reads; `written`: fields that it writes with new values, by its name."""

    reads: Mapping[tuple[int, int], tuple[str, bool]] = field(default_factory=dict)
    leaves: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    written: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    planned: Mapping[tuple[str, Span], Planned | None] = field(default_factory=dict)  # by kind and place of a site
    hoisted: Mapping[Span, tuple[Planned, ...]] = field(default_factory=dict)  # by the expression they stand before
    homes: Mapping[str, Home] = field(default_factory=dict)  # registers that variables hold, by the variables' keys

    def of(self, c: Expression) -> tuple[str, bool]:
        return self.reads.get(c.bare.span, ("", False))


def views_of(driver: Driver) -> Views:
    """The generated functions for reads (of registers up to bus width) and writes, and the planned bus accesses."""
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


def _planned(driver: Driver) -> tuple[dict[tuple[str, Span], Planned | None], dict[Span, tuple[Planned, ...]]]:
    """The bus accesses after merging, by the place in the source where each is made; None: none is made there.

    A proof requires these in addition to its own comparison. So a wrong plan can prevent a proof, but never allow one.
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
Placed = tuple[Key, Slot, Any, int]  # (field, slot, place, lowest bit in an access)
ADDRESS, INDEX = 32, 32
PLACE = z3.BitVecSort(ADDRESS + INDEX)


class Different(Exception):
    """A difference between the source and the generated code.

    `case`: conditions of inputs that show it; `events`: the events of both sides that differ; `path`: all events of the
    source.
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
    """Objects in memory and global variables, after a number of unknown calls."""

    calls: int
    memory: dict[Any, Any]
    globals: dict[str, Any]


@dataclass(frozen=True)
class Event:
    """`kind`: "r", "w", "store" (of ordered silicon; one bus access makes all of a `batch`), "call", "load" or "idle".

    "load" is a read of ordered silicon that is volatile: events before it must stay before it. "idle" is a write of a
    value without effect: the generated code may make or omit its store.
    """

    kind: str
    key: Key
    values: tuple[Any, ...]
    state: dict[Key, Any]
    device: tuple[int, int] | None  # (address, bytes) of its device; None: any
    batch: int = 0  # number of the access
    before: Any = None
    beside: frozenset[Key] = frozenset()  # of an idle write: the fields of its register
    outside: Outside | None = None  # of a call: objects and globals before it
    text: str = ""  # of a volatile object: its name in the source
    size: int = 0  # of a volatile object: bytes
    seen: Outside | None = None  # of a store of a volatile object: objects and globals that an interrupt then sees


@dataclass(frozen=True)
class BusAccess:
    """`kind`: "r", "w", or "call" with a name, between accesses. `matters`: whether the hardware, by its description,
    sees if the access is made.

    Of a store in generated code: `fields` (field, slot, place, new value, old value) and the stored `value`. Of a store
    that is planned for the source: `state` (all fields), `stored` (written leaves; None: all) and `rest` ((lowest bit,
    value) of bits outside of fields).
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
    obligations: list[tuple[Any, str]] = field(default_factory=list)  # (condition to prove, error if it fails)
    halves: dict[tuple[Key, str], Any] = field(default_factory=dict)  # fields wider than the bus, stored in part
    views: Views = field(default_factory=Views)
    turns: dict[str, int] = field(default_factory=dict)  # how often each function has read
    last_reads: dict[tuple[Key, str], Any] = field(default_factory=dict)  # values of volatile fields
    bus: list[BusAccess] = field(default_factory=list)  # made by generated code, or planned for the source
    loads_beside: dict[tuple[str, str, str, int], Any] = field(default_factory=dict)  # bits outside of fields
    open_orders: list[tuple[int, ...]] = field(default_factory=list)  # where C leaves the order of events open
    count: int = 0  # events so far, without those whose number may differ between the sides
    calls: int = 0  # unknown calls so far that may change objects in memory (barriers do not)

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
        """Create the arrays of all fields, so that both sides have the same ones."""
        for key, slot in self.leaves:
            self.array(key, slot.width)

    def forget(self, fields: frozenset[FieldId] | None) -> None:
        """Give the fields (None: all) new values: equal on both sides if the events so far are."""
        self.last_reads = {k: v for k, v in self.last_reads.items() if fields is not None}
        number = self.count
        for key, slot in self.leaves:
            if fields is None or slot.field in fields:
                EFFORT.spend(STEP)
                self.state[key] = z3.Array(f"{'.'.join(key)}!{number}", PLACE, z3.BitVecSort(slot.width))

    def happens(self, e: Event) -> None:
        """Record an event."""
        self.events.append(e)
        self.count += e.kind not in ("store", "load", "idle")
        self.calls += e.outside is not None

    # ---- accesses of fields

    def facts(self, key: Key, slot: Slot) -> Field | None:
        """The field's declaration at this leaf; None for fields that only the silicon has."""
        return self.dialect.at(key[0], key[1], slot.field) if slot.field else None

    def effects(self, key: Key, slot: Slot, kind: str) -> frozenset[FieldId]:
        """Fields that an access changes."""
        facts = self.facts(key, slot)
        return facts.effects(kind) if facts else frozenset()

    def ordered(self, key: Key, slot: Slot) -> bool:
        """Whether each store counts. A field that only the silicon has is as its neighbours are."""
        facts = self.facts(key, slot)
        if facts:
            return facts.order == "ordered"
        here = (r for r in self.layout.groups[key[0]].registers if leaf_of(r, slot) == key[1] and slot in r.slots)
        return any(s.field and self.ordered((key[0], s.name), s) for r in here for s in r.slots)

    def turn(self, view: str, leads: bool = True) -> str:
        """A name for the values of a function's next read; without `leads`, of its last read."""
        self.turns[view] = self.turns.get(view, 0) + leads
        return f"{view} {self.turns[view]}"

    def now(self, key: Key, width: int, place: Any) -> Any:
        """The value of a field; for a volatile field, the value that was read last."""
        value = self.last_reads.get((key, z3.simplify(place).sexpr()))
        return z3.Select(self.array(key, width), place) if value is None else value

    def read(self, key: Key, slot: Slot, place: Any, device: tuple[int, int] | None, turn: str = "") -> Any:
        """Read a field; a side effect is an event. `turn`: a name for the value of a volatile field."""
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
        """Write an element of an array. If its index is not constant, and the array lies in one register, write all
        elements, as generated code does: the others get the value without effect, or else their old value."""
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
        """Write a field. `back`: a neighbour is written, and this field's old value is put back."""
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
        again = z3.is_store(array) and array.arg(1).eq(place) and array.arg(2).eq(value)  # as in a loop that waits
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
        """Whether a condition follows from the bounds of indices. It becomes an obligation of each path."""
        if not self.hints or ask(solver_of(*self.hints, z3.Not(condition))) != z3.unsat:
            return False
        self.obligations.append((condition, "a store of an array's element changes what lies beside the array"))
        return True

    def call(self, name: str, values: tuple[Any, ...], outside: Outside | None = None, **about: Any) -> int:
        """Record an unknown call, which may read and change all fields; returns its number.

        `about`: attributes of the `Event` for a volatile object.
        """
        number = self.count
        self.touch_all()
        self.happens(Event("call", ("", name), values, dict(self.state), None, outside=outside, **about))
        self.bus.append(BusAccess("call", None, name=name))
        self.forget(None)
        return number

    # ---- bus accesses

    def plan(self, planned: Planned, place: Any = None, word: Any = None) -> None:
        """Record the planned bus accesses of the source at a place (address of the group, index of the register).
        Without a place they are hoisted, and the address is not compared. `word`: value of a whole-register store."""
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
        """Bits outside of fields as a store must leave them: as read before, as in `word`, or as after reset."""
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
        """Whether an additional or missing access is a difference: it has an effect, or the silicon may see it."""
        keys = (((group, leaf_of(register, s)), s) for s in register.slots if kind in s.access)
        if kind == "w":
            return any(self.ordered(key, s) or self.effects(key, s, "w") for key, s in keys)
        read = ((s, self.facts(key, s)) for key, s in keys)
        return any(s.volatile or s.sensitive or (f and (f.volatile or f.effects("r"))) for s, f in read)

    # ---- accesses of bytes, as generated code has them

    def load(self, at: Pointer, size: int, view: str = "") -> Any:
        """Load `size` bytes. `view`: the accessing function, whose name distinguishes registers of one address."""
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
        """The word of `size` bytes of `registers`, from byte `first` on, that the last recorded load reads."""
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
        for key, slot, place, low in window:  # sorted: side effects come after the stores of neighbours
            if "w" not in slot.access:
                continue
            part = key, z3.simplify(place).sexpr()
            old = self.halves.pop(part, self.now(key, slot.width, place))
            new = _after_store(value, old, low)
            if low + slot.width > 8 * size:  # the field continues in the next word of the bus
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
        """Require that a store leaves bits outside of fields 0, in a layout of our own. Loads read 0 there."""
        if self.layout.method == "fixed":  # there `compare` checks these bits against those that were read
            return
        registers, bits, covered = self._registers(at, size, view), value.size(), 0
        for _, slot, _, low in self._window(at, size, view):
            covered |= (1 << slot.width + low) - 1 & ~((1 << max(low, 0)) - 1)
        held = z3.simplify(value & z3.BitVecVal(~covered & ((1 << bits) - 1), bits) == 0)
        if not z3.is_true(held):
            self.obligations.append((held, f"a store sets bits of '{registers[0][0].name}' that are of no field"))

    def _registers(self, at: Pointer, size: int, view: str) -> list[tuple[Register, Any, int]]:
        """(register, index of its element, first byte of the access in it) of the registers that an access means.

        Raises Different unless it lies in one register, and is as wide as the bus and the description allow.
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
        """Whether an access of `size` bytes of a register is legal: a whole word, or less if the bus has bytes."""
        word = min(_size(r), self.layout.bus.width // 8)
        whole = size == word if not self.layout.bus.bytes else size <= word
        return whole and first % size == 0 and first + size <= _size(r)

    def _window(self, at: Pointer, size: int, view: str) -> Iterator[Placed]:
        """All fields in the bytes of an access."""
        for r, index, first in self._registers(at, size, view):
            for slot in r.slots:
                for i in range(slot.count):
                    low = slot.lsb + i * slot.stride - 8 * first
                    if low < 8 * size and low + slot.width > 0:
                        at_index = z3.BitVecVal(i, INDEX) if slot.count > 1 else index
                        yield (at.group, leaf_of(r, slot)), slot, z3.Concat(at.base, at_index), low

    @staticmethod
    def _index(r: Register, at: Pointer) -> tuple[Any, int]:
        """(index in an array of registers, or None if the address is outside of it; constant part of the address)."""
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
    """The number of characters in an access function's name that match a register: it selects among several of one
    address."""
    rest = view.partition(f"_{group}_")[2]
    names = [r.name, *(s.name for s in r.slots if s.field)]
    return max((len(n) for n in names if rest == n or rest.startswith(f"{n}_")), default=0)


def leaf_of(register: Register, slot: Slot) -> str:
    """A name that is unique in the group: silicon's own fields often have equal names in several registers."""
    return slot.name if slot.field else f"{register.name}.{slot.name}"


def neutral_of(slot: Slot) -> int | None:
    """The value whose write has no effect; None if there is none."""
    back = slot.back if slot.back in ("0", "1") else NEUTRAL.get(slot.modified, "")
    return {"0": 0, "1": (1 << slot.width) - 1}.get(back)


def _placed(value: Any, low: int, bits: int) -> Any:
    """A word of `bits` bits with the value from bit `low` on; bits outside of the word are cut off."""
    if low < 0:
        value, low = z3.Extract(value.size() - 1, -low, value), 0
    width = min(value.size(), bits - low)
    value = z3.Extract(width - 1, 0, value) if width < value.size() else value
    wide = z3.ZeroExt(bits - width, value) if bits > width else value
    return wide << low if low else wide


def _after_store(value: Any, old: Any, low: int) -> Any:
    """A field's value after a store of a word in which it lies at bit `low`; bits outside of the word stay."""
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


# ---- bits outside of fields


def unowned(layout: Layout, register: Register) -> tuple[Slot, ...]:
    """The bits outside of fields in a register of silicon, as slots without a field."""
    if layout.method != "fixed":
        return ()
    named = _cover(register.slots)
    rest = ((1 << register.bits) - 1) & ~named
    return tuple(Slot(f"bits {low} to {low + width - 1}", low, width) for low, width in _runs(rest, register.bits))


def unexplained(layout: Layout, registers: Iterable[Register], first: int, size: int) -> tuple[tuple[int, int], ...]:
    """(lowest bit, width) of the bits outside of readable fields, in a load of `size` bytes from byte `first` on."""
    rest = (1 << 8 * size) - 1
    for r in registers:
        open_ = _cover(s for s in r.slots if "r" not in s.access) | _cover(unowned(layout, r))
        rest &= (open_ & ~_cover(s for s in r.slots if "r" in s.access)) >> 8 * first
    return tuple(_runs(rest, 8 * size))


def anything(number: int, bits: int) -> Any:
    """The value of such bits in a load: equal on both sides for accesses of the same number."""
    return z3.BitVec(f"beside fields by access {number}", bits)


def _cover(slots: Iterable[Slot]) -> int:
    mask = 0
    for s in slots:
        mask |= s.cover
    return mask


def _runs(mask: int, bits: int) -> Iterable[tuple[int, int]]:
    """(lowest bit, width) of each run of ones in a mask."""
    low = 0
    while low < bits:
        width = 0
        while low + width < bits and mask >> low + width & 1:
            width += 1
        if width:
            yield low, width
        low += max(width, 1)
