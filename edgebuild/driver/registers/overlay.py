"""Overlays: what a register description does not say, in a file beside it (`chip.overlay.yaml` for `chip.svd`).

fields:
  GPIO.CTRL.EN: {plain: true}            # stored, and nothing else changes it
  GPIO.SCRATCH.*: {memory: true}         # as memory: stores that are overwritten may be left out, in any order
  "GPIO.*.DONE": {rse: [self], back: "0"}  # patterns of PERIPHERAL.REGISTER.FIELD
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from edgebuild.base.dataclass import dataclass
from edgebuild.base.errors import did_you_mean, fail
from edgebuild.base.inputs import read_text
from edgebuild.base.text import comment, yaml_key
from edgebuild.driver.analysis.cdfg import Cdfg
from edgebuild.driver.registers.regmap import Block, FieldInfo, RegisterInfo, RegisterMap
from edgebuild.driver.source.dialect import NEUTRAL, FieldId


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


ACTING = tuple(word for word, neutral in NEUTRAL.items() if neutral in ("0", "1"))


@dataclass(frozen=True)
class Alias:
    """The registers of peripheral `of` at another address, where each bit that is written acts, as `write` says."""

    of: str
    address: int
    write: str

    def __post_init__(self) -> None:
        if self.write not in ACTING:
            raise ValueError(f"write: '{self.write}' is none of {', '.join(ACTING)}")


@dataclass(frozen=True)
class Overlay:
    """The file beside a register description. Its keys are patterns as in file names: BLOCK.REGISTER.FIELD.

    `aliases`: other views of peripherals, which a description has once. `devices`: the peripherals whose registers
    devices of the source have although they lie elsewhere. `bytes`: the bus takes accesses to a part of a register,
    which no description says.
    """

    fields: Mapping[str, Words] = field(default_factory=dict)
    aliases: Mapping[str, Alias] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)
    bytes: bool = False

    def of(self, block: Block, register: RegisterInfo, info: FieldInfo) -> Words:
        """Facts of all entries that fit the field; of two with the same key, the later one counts."""
        name = field_name(block, register, info)
        found = Words()
        for pattern, words in self.fields.items():
            if fnmatchcase(name, pattern):
                found = replace(found, **{k: v for k, v in vars(words).items() if v is not None})
        return found


def with_aliases(map_: RegisterMap, overlay: Overlay, file: Path) -> RegisterMap:
    """The map with the views that the overlay in `file` adds. Raises EdgebuildError for one of nothing."""
    known = {b.name: b for b in map_.blocks}
    blocks, mistakes = list(map_.blocks), list(map_.mistakes)
    for name, alias in overlay.aliases.items():
        if alias.of not in known or name in known:
            text = f"there is no peripheral '{alias.of}'{did_you_mean(alias.of, known)}"
            raise fail(
                f"alias '{name}': {text if alias.of not in known else 'a peripheral has this name'}", file=str(file)
            )
        blocks.append(replace(known[alias.of], name=name, base=alias.address, group="",
                              registers=tuple(_acting(r, alias.write) for r in known[alias.of].registers)))  # fmt: skip
        start = f"{alias.of}."
        mistakes += [(f"{name}.{at.removeprefix(start)}", e) for at, e in map_.mistakes if at.startswith(start)]
    return replace(map_, blocks=tuple(blocks), mistakes=tuple(mistakes))


def _acting(register: RegisterInfo, write: str) -> RegisterInfo:
    fields = register.fields or (whole_field(register),)
    return replace(register, fields=tuple(replace(f, modified=write) if "w" in f.access else f for f in fields))


def field_name(block: Block, register: RegisterInfo, info: FieldInfo) -> str:
    return f"{block.name}.{register.full_name}.{info.name}"


def whole_field(register: RegisterInfo) -> FieldInfo:
    """The field that a register without fields is."""
    return FieldInfo(register.name, 0, register.bits, register.access)


def field_names(map_: RegisterMap) -> set[str]:
    """All names that an overlay may speak of."""
    return {field_name(b, r, f) for b in map_.blocks for r in b.registers for f in r.fields or (whole_field(r),)}


def check_devices(overlay: Overlay, file: Path, map_: RegisterMap, devices: Collection[str]) -> None:
    """Raise EdgebuildError where the overlay in `file` names a device or a peripheral that does not exist."""
    blocks = [b.name for b in map_.blocks]
    for name, block in overlay.devices.items():
        if name not in devices:
            raise fail(f"devices: the source has no device '{name}'{did_you_mean(name, devices)}", file=str(file))
        if block not in blocks:
            raise fail(f"devices: there is no peripheral '{block}'{did_you_mean(block, blocks)}", file=str(file))


def check_keys(overlay: Overlay, file: Path, map_: RegisterMap, described: Path) -> None:
    """Every key of the overlay in `file` is about something that the map, read from `described`, has."""
    silicon = field_names(map_)
    for pattern, words in overlay.fields.items():
        text = ""
        if not any(fnmatchcase(name, pattern) for name in silicon):
            text = f"'{pattern}' fits no PERIPHERAL.REGISTER.FIELD of {described.name}{did_you_mean(pattern, silicon)}"
        elif words.volatile and (words.plain or words.memory):
            text = f"'{pattern}': what only writes change (plain, memory) does not change by itself (volatile)"
        if text:
            lines = read_text(file).splitlines()
            line = next((i for i, said in enumerate(lines, 1) if pattern in said), 0)
            raise fail(text, file=str(file), line=line)


# ---- template of an overlay: fields that a driver uses and a description leaves open


# (words in a field's name, what they suggest, why)
SUGGESTIONS = (
    (r"BUSY|IDLE|READY|RDY|FULL|EMPTY|LEVEL|LVL|COUNT|DONE|ABRT|STATUS|STATE|ERR|TXFE|RXFE|TXFF|RXFF", "", "a state"),
    (r"CLR|CLEAR|SET$|TOGGLE|XOR|TRIG|START|STOP|TASK|SOFT|RST|RESET|KEY", "", "an action: see the datasheet"),
    (r"INT|IRQ|FLAG|EVENT|_IF$|RIS|MIS", "", "a flag: see how it is cleared"),
    (r"DATA|^DR$|FIFO|RXD|TXD", "", "data: a read may take it out"),
    (
        r"EN|ENABLE|MODE|DIV|BAUD|PARITY|LEN|SEL|PIN|PORT|CFG|CONF|PRESC|SPEED|MASK|DIR|POL|PHA",
        "plain: true",
        "a setting",
    ),
)


def overlay_template(open_: Mapping[str, tuple[FieldId, FieldInfo]], cdfg: Cdfg) -> str:
    """An overlay that says what holds without one; whoever knows the silicon changes the lines that can say more."""
    accesses = [a for f in cdfg.functions.values() for a in f.accesses]
    lines = ["# Fields that the driver uses and the register description leaves open.", "fields:"]
    for name, (id, info) in sorted(open_.items()):
        places = [(a.kind, a.where.line) for a in accesses if a.field == id]
        if not places:
            continue
        words, why = suggestion(name, info)
        bits = f"bit {info.lsb}" if info.width == 1 else f"bits {info.lsb + info.width - 1}:{info.lsb}"
        access = {"r": "read-only", "w": "write-only", "rw": "read-write"}[info.access]
        uses = ", ".join(
            f"{word} at {_lines(places, kind)}"
            for kind, word in (("w", "written"), ("r", "read"))
            if _lines(places, kind)
        )
        lines.append(
            f"  {yaml_key(name)}: {{volatile: true}}  # "
            + comment(f"{access}, {bits}; {uses}; {why}" + (f": {words}" if words else ""))
        )
    if len(lines) == 2:
        return "# The register description says all that the driver needs.\nfields: {}\n"
    return "\n".join([*lines, ""])


def suggestion(name: str, info: FieldInfo) -> tuple[str, str]:
    """(words of an overlay, why) by what is known of a field; no words where nothing but the datasheet helps."""
    if info.access == "r":
        return "", "only silicon changes it"
    if info.modified:
        return f'back: "{info.back}"', f"the description says {info.modified}"
    for words, said, why in SUGGESTIONS:
        if re.search(words, name.rpartition(".")[2].upper()):
            return said, f"the name suggests {why}"
    return "", "nothing suggests more"


def _lines(places: Iterable[tuple[str, int]], kind: str) -> str:
    found = sorted({str(line) for k, line in places if k == kind}, key=int)
    return ("line " if len(found) == 1 else "lines ") + ", ".join(found) if found else ""
