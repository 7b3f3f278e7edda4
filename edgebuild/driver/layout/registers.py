"""Register layouts: which leaf of a group lies in which register, and what an access to it costs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from pathlib import Path
from random import Random

from ...base.errors import did_you_mean, fail
from ...base.facts import read_facts
from ...base.inputs import read_text
from ..analysis.cdfg import Cdfg
from ..analysis.conflicts import Leaf
from ..source.dialect import FieldId


@dataclass(frozen=True)
class Bus:
    """A bus. `width`: bits of one access. `bytes`: whether bytes and half-words may be accessed by themselves."""

    width: int = 32
    bytes: bool = False


@dataclass(frozen=True)
class Slot:
    """The bits of one field in a register.

    `back`: the value that a write of another field puts here: "keep" (as read), "0", "1", or "never" if no value is
    harmless. `sensitive`: a read has a side effect. Without `field`, the silicon has the slot, but not the source.
    """

    name: str
    lsb: int
    width: int
    field: FieldId | None = None
    access: str = "rw"  # "rw", "r", "w"
    back: str = "keep"
    sensitive: bool = False
    volatile: bool = False
    reset: int | None = None
    modified: str = ""  # effect of a write (SVD's modifiedWriteValues); "" if it stores
    key: str = dataclasses.field(
        default="", compare=False
    )  # PERIPHERAL.REGISTER.FIELD of the description: its name in overlays; "" if it has none
    action: str = ""  # side effect of a read (SVD's readAction)
    open: bool = dataclasses.field(default=False, compare=False)  # whether it is volatile only for lack of facts
    assumed: str = dataclasses.field(default="", compare=False)  # why an attribute is assumed; "" if none is
    stride: int = 0  # bits between two elements of an array that lies in one register
    count: int = 1  # elements of such an array
    values: tuple[tuple[str, int], ...] = dataclasses.field(default=(), compare=False)  # enumeration of the description
    accepts: tuple[tuple[int, int], ...] = dataclasses.field(default=(), compare=False)  # ranges of writable values

    @property
    def mask(self) -> int:
        """Bits of the field; of an array in one register those of its first element."""
        return ((1 << self.width) - 1) << self.lsb

    @cached_property
    def cover(self) -> int:
        """Bits of all elements."""
        return _either(self.element(i) for i in range(self.count))

    def at_element(self, index: int) -> Slot:
        """An element of an array as a field of its own."""
        name, lsb = f"{self.name}_{index}", self.lsb + index * self.stride
        return dataclasses.replace(self, name=name, lsb=lsb, stride=0, count=1)

    def element(self, index: int) -> int:
        """Bits of one element."""
        return self.mask << index * self.stride


@dataclass(frozen=True)
class Register:
    """`count` registers at steps of `stride` bytes. One wider than the bus is several words, the lowest first."""

    name: str
    offset: int
    bits: int
    slots: tuple[Slot, ...]
    count: int = 1
    stride: int = 0
    reset: int = 0
    dims: tuple[int, ...] = ()
    bytes: bool = False  # whether parts of it may be accessed by themselves, even if `Bus.bytes` is False

    def slot(self, name: str) -> Slot:
        return next(s for s in self.slots if s.name == name)

    @cached_property
    def by_elements(self) -> Register:
        """The register with each element of its arrays as a field of its own."""
        slots = (s.at_element(i) if s.count > 1 else s for s in self.slots for i in range(s.count))
        return dataclasses.replace(self, slots=tuple(slots))


@dataclass(frozen=True)
class Sub:
    """Where a group, or an array of groups, lies inside of another."""

    name: str
    group: str
    offset: int
    stride: int
    dims: tuple[int, ...]


@dataclass(frozen=True)
class GroupLayout:
    """The registers of one group, at offsets from its base."""

    group: str
    size: int  # bytes; also the distance of the elements of an array
    registers: tuple[Register, ...]
    subs: tuple[Sub, ...]

    @cached_property
    def _places(self) -> Mapping[str, Register]:
        elements = {s.name: r for r in reversed(self.registers) for s in r.by_elements.slots if s.field}
        whole = {s.name: r for r in reversed(self.registers) for s in r.slots if s.field}
        return {name: r if name in whole else r.by_elements for name, r in (elements | whole).items()}

    def register_of(self, leaf: str) -> Register:
        return self._places[leaf]

    def offset_of(self, field: FieldId) -> int | None:
        """Offset in bytes of the field's register, or of an array's first element. None: not in this group."""
        for r in self.registers:
            for s in r.slots:
                if s.field == field and set(s.name.removeprefix(field[1]).split("_")) <= {"", "0"}:
                    return r.offset
        return None


@dataclass(frozen=True)
class Layout:
    """`cost` and `bound` count bus accesses, each access of the source once; `optimal`: no layout has fewer of them.

    `bytes` is the map of all devices.
    """

    groups: Mapping[str, GroupLayout]
    bus: Bus
    method: str  # "optimize", "heuristic", "fixed"
    optimal: bool
    cost: int
    bound: int
    bytes: int


@dataclass(frozen=True)
class Window:
    """The part of a register that an access touches: byte offset in the register, bits, and whether it reads first."""

    offset: int
    bits: int
    read: bool
    fixed: int = 0  # bits that a write sets for the neighbours
    keep: int = 0  # bits that a write puts back as read


def read_window(register: Register, leaves: Iterable[str], bus: Bus) -> Window:
    leaves = set(leaves)
    mask = leaf_mask(register, leaves)
    for offset, bits in _windows(register, mask, bus):
        others = [s for s in register.slots if s.cover & _span(offset, bits)]
        if bits >= bus.width or bits == register.bits or not any(s.sensitive and s.name not in leaves for s in others):
            return Window(offset, bits, True)
    return Window(0, register.bits, True)


def write_window(register: Register, leaves: Iterable[str], bus: Bus) -> Window:
    """The smallest part of the register with the leaves and no field to keep; else a word that is read first."""
    leaves = set(leaves)
    mask = leaf_mask(register, leaves)
    arrays = [s for s in register.slots if s.name in leaves and s.count > 1]  # their other elements stay
    for offset, bits in _windows(register, mask, bus):
        span = _span(offset, bits)
        others = [s for s in register.slots if s.name not in leaves and s.cover & span & ~mask]
        if all(s.back in "01" and s.cover & ~span == 0 for s in others + arrays):
            ones = _either(s.cover for s in others if s.back == "1")
            named = _either(s.cover for s in register.slots)
            return Window(offset, bits, False, (ones | (register.reset & ~named & span)) >> (8 * offset))
    others = [s for s in register.slots if s.name not in leaves and not s.cover & mask]
    ones = _either(s.cover for s in others if s.back == "1")
    zeros = _either(s.cover for s in others if s.back == "0")
    stored = mask & ~_either(s.cover for s in arrays if s.back not in "01")
    offset, bits = words(register, mask, bus)
    span = _span(offset, bits)
    keep = span & ~stored & ~ones & ~zeros
    return Window(offset, bits, True, (ones & span) >> (8 * offset), keep >> (8 * offset))


def whole_window(register: Register, named: int, kind: str) -> Window:
    """The whole register. A write gives bits outside of `named` their reset value, or a value without effect."""
    if kind == "r":
        return Window(0, register.bits, True)
    values = register.reset
    for s in register.slots:
        if s.back in "01":
            values = values & ~s.cover | (s.cover if s.back == "1" else 0)
    return Window(0, register.bits, False, values & ~named)


def leaf_mask(register: Register, leaves: Iterable[str]) -> int:
    """Bits of a register that hold the leaves; of a packed array those of all elements."""
    return _either(register.slot(name).cover for name in leaves)


def _either(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)


def words(register: Register, mask: int, bus: Bus) -> tuple[int, int]:
    """(byte offset, bits) of the part with the mask: the register; if it is wider than the bus, the smallest part."""
    least = min(register.bits, bus.width)
    return next((at, bits) for at, bits in _windows(register, mask, bus) if bits >= least or register.bytes)


def _windows(register: Register, mask: int, bus: Bus) -> Iterable[tuple[int, int]]:
    """Aligned parts of the register that hold the mask, the smallest first; of a wide register, words of the bus."""
    parts = (bus.width,) if register.bits > bus.width else (8, 16, 32) if bus.bytes or register.bytes else ()
    for bits in parts:
        if bits < register.bits:
            for offset in range(0, register.bits // 8, bits // 8):
                if mask & ~_span(offset, bits) == 0:
                    yield offset, bits
    yield 0, register.bits


def _span(offset: int, bits: int) -> int:
    return ((1 << bits) - 1) << (8 * offset)


def cost(kind: str, register: Register, leaves: Iterable[str], bus: Bus) -> int:
    """Bus accesses of one access to these leaves of a register."""
    if kind == "r":
        return max(1, read_window(register, leaves, bus).bits // bus.width)
    window = write_window(register, leaves, bus)
    return max(1, window.bits // bus.width) * (2 if window.read else 1)


def unlike(first: list[Register], second: list[Register]) -> Iterator[str]:
    """A message on the first two fields that lie at the same bits and differ otherwise; nothing if there are none."""
    for a, b in zip(first, second, strict=False):
        for s, t in zip(a.slots, b.slots, strict=False):
            if s != t and (a.offset, s.mask) == (b.offset, t.mask):
                yield f"what is known of '{s.key}' and of '{t.key}' differs; an overlay may speak of one alone"
                return


# One layout problem: which leaves share a register, and what that costs.
#
# A layout is a partition of the leaves into registers, here called bins. Its cost is a sum over the bins. A region of
# accesses costs one read or one write for each bin that it touches. It costs two if it writes a bin with other leaves
# that have to be kept.

Uses = Counter[tuple[str, frozenset[str]]]  # (kind, leaves of one region) -> how often
Bins = tuple[tuple[Leaf, ...], ...]
Column = tuple[int, ...]  # indices of the leaves that share a register


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
    """Stahl's heuristic (section 6.4.4): each field shares a register with the first combination that has it.

    Combinations are sorted by their number of uses, then by size.
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
    """A leaf at bit `lsb`, with the attributes of its field in the source."""
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


# ---- costs, and a local search

STEPS = 200_000  # moves that the search evaluates after its first descent
SEED = 1

Move = tuple[frozenset[int], ...]  # new registers; their leaves are removed from their old ones


class Costs:
    """Integer costs: one read-modify-write outweighs all bytes, and one access outweighs both together."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        index = {leaf.name: i for i, leaf in enumerate(problem.leaves)}
        self.uses = sorted(
            (kind, sorted(index[n] for n in names), times) for (kind, names), times in problem.uses.items()
        )
        bits = [register_bits([leaf], problem.bus) for leaf in problem.leaves]
        self.modify = 1 + problem.count * sum(bits) // 8
        self.access = self.modify * (1 + sum(len(members) for _, members, _ in self.uses))
        self._members = [frozenset(members) for _, members, _ in self.uses]
        self._of = [[u for u, members in enumerate(self._members) if i in members] for i in index.values()]

    def bytes(self, column: Column) -> int:
        problem = self.problem
        return problem.count * register_bits([problem.leaves[i] for i in column], problem.bus) // 8

    def of(self, column: Column) -> int:
        total = self.bytes(column)
        for u in {u for i in column for u in self._of[i]}:
            kind, _, times = self.uses[u]
            shared = kind == "w" and not self._members[u].issuperset(column)
            total += self.access * times * (1 + shared) + self.modify * shared
        return total

    def company(self, i: int) -> list[int]:
        """The leaves that are accessed together with this one, ascending."""
        return sorted({j for u in self._of[i] for j in self._members[u]} - {i})


def improved(problem: Problem, bins: Bins) -> Bins:
    """Improve a layout by iterated local search. The result has no more accesses than `bins`.

    A descent moves or exchanges leaves and unites registers while that gains. Then the search takes random leaves of
    one region out of their registers, descends again, and keeps the result unless it is worse. The seed is fixed.
    """
    search = _Search(problem, bins)
    search.descend(range(len(problem.leaves)))
    random, best, total = Random(SEED), list(search.at), search.total()
    limit = search.steps + STEPS
    while search.steps < limit:
        region = random.choice(search.costs.uses)[1]
        out = random.sample(region, random.randint(1, min(len(region), 4)))
        search.move(tuple(frozenset([i]) for i in out))
        search.descend(out)
        now = search.total()
        if now <= total:
            best, total = list(search.at), now
        else:
            search.at = list(best)
    return tuple(tuple(problem.leaves[i] for i in c) for c in sorted({tuple(sorted(c)) for c in best}))


class _Search:
    """State of the search. at[i]: the leaves of the register that holds leaf i. steps: moves evaluated so far."""

    def __init__(self, problem: Problem, bins: Bins) -> None:
        self.costs, self.steps = Costs(problem), 0
        self.widths, self.room = [leaf.width for leaf in problem.leaves], problem.bus.width
        self.company = [self.costs.company(i) for i in range(len(problem.leaves))]
        index = {leaf.name: i for i, leaf in enumerate(problem.leaves)}
        self.at = [frozenset[int]()] * len(problem.leaves)
        self.move(tuple(frozenset(index[leaf.name] for leaf in b) for b in bins))
        self.sums: dict[frozenset[int], int] = {frozenset(): 0}

    def total(self) -> int:
        return sum(map(self._sum, set(self.at)))

    def descend(self, leaves: Iterable[int]) -> None:
        """Make the best move of each leaf, and again of the leaves that it affects, until no move gains."""
        waiting = dict.fromkeys(leaves)
        while waiting:
            i = next(iter(waiting))
            del waiting[i]
            gain, move = max(((self._gain(m), m) for m in self._moves(i)), key=lambda x: x[0], default=(0, ()))
            if gain > 0:
                self.move(move)
                waiting.update(
                    dict.fromkeys(j for c in move for leaf in sorted(c) for j in (leaf, *self.company[leaf]))
                )

    def move(self, move: Move) -> None:
        for column in move:
            for c in {self.at[i] for i in column}:
                for i in c - column:
                    self.at[i] = c - column
            for i in column:
                self.at[i] = column

    def _moves(self, i: int) -> Iterator[Move]:
        mine, width = self.at[i], self.widths[i]
        if len(mine) > 1:
            yield (frozenset([i]),)
        used = self._width(mine)
        for c in dict.fromkeys(self.at[j] for j in self.company[i] if j not in mine):
            free = self.room - self._width(c)
            if width <= free:
                yield (c | {i},)
            if used <= free and len(mine) > 1:
                yield (c | mine,)
            for j in sorted(c) if len(c) > 1 else ():
                if width <= free + self.widths[j] and used - width + self.widths[j] <= self.room:
                    yield (c - {j} | {i}, mine - {i} | {j})

    def _width(self, c: frozenset[int]) -> int:
        return sum(self.widths[i] for i in c)

    def _gain(self, move: Move) -> int:
        self.steps += 1
        moved = frozenset[int]().union(*move)
        before = {self.at[i] for i in moved}
        return sum(self._sum(c) - self._sum(c - moved) for c in before) - sum(map(self._sum, move))

    def _sum(self, c: frozenset[int]) -> int:
        if c not in self.sums:
            self.sums[c] = self.costs.of(tuple(c))
        return self.sums[c]


# Profiles: how often each function of a driver runs. The optimiser weights its accesses by that.
#
# functions: {set_gpio_pin_value: 50000, get_gpio_irq_status: 900}

MAX_RUNS = 10**9


@dataclass(frozen=True)
class Profile:
    """Runs of each function, in any unit of time. A function without an entry counts once."""

    functions: Mapping[str, int]

    def __post_init__(self) -> None:
        for name, count in self.functions.items():
            if not 1 <= count <= MAX_RUNS:
                raise ValueError(f"'{name}' runs {count} times: from 1 to {MAX_RUNS} are possible")


def read_profile(path: Path, cdfg: Cdfg) -> Mapping[str, int]:
    """Read a profile. Raises EdgebuildError if the file is invalid, or names a function that the driver lacks."""
    functions = read_facts(Profile, path).functions
    for name in functions:
        if name not in cdfg.functions:
            lines = read_text(path).splitlines()
            line = next((i for i, text in enumerate(lines, 1) if name in text), 0)
            raise fail(
                f"the driver has no function '{name}'{did_you_mean(name, cdfg.functions)}", file=str(path), line=line
            )
    return functions
