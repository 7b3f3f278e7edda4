"""Overlays: what a register description does not say, in a file beside it (`chip.overlay.yaml` for `chip.svd`).

fields:
  GPIO.CTRL.EN: {plain: true}            # stored, and nothing else changes it
  GPIO.SCRATCH.*: {memory: true}         # as memory: stores that are overwritten may be left out, in any order
  "GPIO.*.DONE": {rse: [self], back: "0"}  # patterns of PERIPHERAL.REGISTER.FIELD
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from edgebuild.base.errors import did_you_mean, fail
from edgebuild.driver.registers.regmap import Block, FieldInfo, RegisterInfo, RegisterMap


@dataclass(frozen=True)
class Words:
    """Facts of an overlay about fields; None: nothing. `rse` and `wse` hold `self` and patterns of other fields."""

    plain: bool | None = None  # nothing but a write changes it
    memory: bool | None = None  # plain, and stores may be left out or change their order
    independent: bool | None = None  # its accesses need not keep their order with those of other fields
    shared: bool | None = None  # a race between its writers is meant
    volatile: bool | None = None  # it may change by itself
    rse: tuple[str, ...] | None = None
    wse: tuple[str, ...] | None = None
    access: str | None = None
    back: str | None = None

    def __post_init__(self) -> None:
        for key, words, known in (
            ("access", (self.access,), ("r", "w", "rw", None)),
            ("back", (self.back,), ("keep", "0", "1", "never", None)),
        ):
            for word in words:
                if word not in known:
                    raise ValueError(f"{key}: '{word}' is none of " + ", ".join(k for k in known if k))


@dataclass(frozen=True)
class Overlay:
    """The file beside a register description. Its keys are patterns as in file names: BLOCK.REGISTER.FIELD.

    `bytes`: the bus takes accesses to a part of a register, which no description says.
    """

    fields: Mapping[str, Words] = field(default_factory=dict)
    bytes: bool = False

    def of(self, block: Block, register: RegisterInfo, info: FieldInfo) -> Words:
        """Facts of all entries that fit the field; of two with the same key, the later one counts."""
        name = field_name(block, register, info)
        found = Words()
        for pattern, words in self.fields.items():
            if fnmatchcase(name, pattern):
                found = replace(found, **{k: v for k, v in vars(words).items() if v is not None})
        return found


def field_name(block: Block, register: RegisterInfo, info: FieldInfo) -> str:
    return f"{block.name}.{register.full_name}.{info.name}"


def whole_field(register: RegisterInfo) -> FieldInfo:
    """The field that a register without fields is."""
    return FieldInfo(register.name, 0, register.bits, register.access)


def field_names(map_: RegisterMap) -> set[str]:
    """All names that an overlay may speak of."""
    return {field_name(b, r, f) for b in map_.blocks for r in b.registers for f in r.fields or (whole_field(r),)}


def check_keys(overlay: Overlay, file: Path, map_: RegisterMap, described: Path) -> None:
    """Every key of the overlay in `file` is about something that the map, read from `described`, has."""
    silicon = field_names(map_)
    for pattern in overlay.fields:
        if not any(fnmatchcase(name, pattern) for name in silicon):
            lines = file.read_text().splitlines()
            line = next((i for i, text in enumerate(lines, 1) if pattern in text), 0)
            text = f"'{pattern}' fits no PERIPHERAL.REGISTER.FIELD of {described.name}"
            raise fail(text + did_you_mean(pattern, silicon), file=str(file), line=line)
