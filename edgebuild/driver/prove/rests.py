"""Bits of registers that a load finds and that no field explains.

On silicon, bits of no field may read as anything, another value at each load. A store that reads first puts them back,
and one of a whole register gives them their values after reset. A layout of our own has zeros there. Nothing is known
of what a load finds of fields that can only be written, whatever the layout.

Both sides name what a load finds by the number of the bus access, for their accesses are compared one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import z3

from edgebuild.driver.layout.registers import Layout, Register, Slot


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


def after_reset(register: Register, slot: Slot) -> Any:
    return z3.BitVecVal(register.reset >> slot.lsb, slot.width)


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
