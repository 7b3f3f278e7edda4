"""Register layouts: which leaf of a group lies in which register, and what an access to it costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_

from edgebuild.driver.source.dialect import FieldId


@dataclass(frozen=True)
class Bus:
    """`width`: of a register, in bits. `bytes`: whether a part of a register may be accessed alone."""

    width: int = 32
    bytes: bool = False


@dataclass(frozen=True)
class Slot:
    """Bits of a register.

    `back`: what a write of another field writes here: "keep" (what was read), "0", "1", or "never" if no value is
    harmless. `sensitive`: a read has a side effect. A slot without `field` belongs to the silicon alone.
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
    modified: str = ""  # what a write does, in the words of SVD; "" if it stores
    key: str = dataclasses.field(
        default="", compare=False
    )  # PERIPHERAL.REGISTER.FIELD, where silicon has it: what an overlay calls it
    action: str = ""  # what a read does besides, in the words of SVD
    open: bool = dataclasses.field(default=False, compare=False)  # whether nobody says that it changes by itself
    assumed: str = dataclasses.field(default="", compare=False)  # why something of it is assumed
    stride: int = 0  # bits from one element of an array to the next, where all lie in one register
    count: int = 1  # elements of such an array
    values: tuple[tuple[str, int], ...] = dataclasses.field(default=(), compare=False)  # an enumeration of silicon
    accepts: tuple[tuple[int, int], ...] = dataclasses.field(default=(), compare=False)  # ranges that may be written

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
    """`count` registers, `stride` bytes apart. Bits beyond the bus width are several registers, the lowest first."""

    name: str
    offset: int
    bits: int
    slots: tuple[Slot, ...]
    count: int = 1
    stride: int = 0
    reset: int = 0
    dims: tuple[int, ...] = ()
    bytes: bool = False  # whether a part of it may be accessed alone, whatever the bus takes elsewhere

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
        """Offset in bytes of the field's register, or of an array's first element. None: it lies elsewhere."""
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
    fixed: int = 0  # bits that are written as they are, for the neighbours that need a 1
    keep: int = 0  # bits that are written back as they were read


def read_window(register: Register, leaves: Iterable[str], bus: Bus) -> Window:
    leaves = set(leaves)
    mask = leaf_mask(register, leaves)
    for offset, bits in _windows(register, mask, bus):
        others = [s for s in register.slots if s.cover & _span(offset, bits)]
        if bits >= bus.width or bits == register.bits or not any(s.sensitive and s.name not in leaves for s in others):
            return Window(offset, bits, True)
    return Window(0, register.bits, True)


def write_window(register: Register, leaves: Iterable[str], bus: Bus) -> Window:
    """The least of the register that holds the leaves and nothing that has to be kept; else all of it, after a read."""
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
    """All of a register. In a write, bits that are not named have their reset value, or a value that does nothing."""
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
    """(byte offset, bits) of what holds the mask: a register, or of one that is wider than the bus the least of it."""
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
    """The first fields of two layouts that differ, where both are at the same bits."""
    for a, b in zip(first, second, strict=False):
        for s, t in zip(a.slots, b.slots, strict=False):
            if s != t and (a.offset, s.mask) == (b.offset, t.mask):
                yield f"what is known of '{s.key}' and of '{t.key}' differs; an overlay may speak of one alone"
                return
