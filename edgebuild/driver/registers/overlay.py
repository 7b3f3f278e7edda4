"""Overlays: attributes that a register description lacks, in a file beside it (`chip.overlay.yaml` for `chip.svd`).

    fields:
      GPIO.CTRL.EN: {plain: true}            # stored, and nothing else changes it
      GPIO.SCRATCH.*: {memory: true}         # as memory: stores that are overwritten may be left out, in any order
      "GPIO.*.DONE": {rse: [self], back: "0"}  # patterns of PERIPHERAL.REGISTER.FIELD

`hal/overlays` has ready-made ones. Those whose `parts` match the device's name are layers below the user's overlay,
which overrides them. The lowest layer is what names and descriptions suggest (`assumed`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from ...base.errors import did_you_mean, fail
from ...base.facts import read_facts
from ...base.inputs import read_text
from ...base.target import hal_dir
from ...base.text import comment, yaml_key
from ..analysis.cdfg import Cdfg
from ..layout.registers import Layout, Slot
from ..source.dialect import NEUTRAL
from .regmap import Block, FieldInfo, RegisterInfo, RegisterMap

READS = ("clear", "set", "modify")  # side effects of a read (SVD's readAction)


@dataclass(frozen=True)
class Words:
    """Attributes of fields in an overlay; None: not stated. `rse`, `wse`: `self` and patterns of other fields."""

    plain: bool | None = None  # only a write changes it
    memory: bool | None = None  # plain, and stores may be left out or reordered
    independent: bool | None = None  # its accesses need not keep their order with those of other fields
    shared: bool | None = None  # a race between its writers is intended
    volatile: bool | None = None  # hardware may change it
    bytes: bool | None = None  # the bus accepts accesses to a part of it, as wide as the source's field
    rse: tuple[str, ...] | None = None
    wse: tuple[str, ...] | None = None
    access: str | None = None
    back: str | None = None
    write: str | None = None  # effect of a write (SVD's modifiedWriteValues)
    read: str | None = None

    def __post_init__(self) -> None:
        for key, word, allowed in (
            ("access", self.access, ("r", "w", "rw")),
            ("back", self.back, ("keep", "0", "1", "never")),
            ("write", self.write, tuple(NEUTRAL)),
            ("read", self.read, READS),
        ):
            if word not in (*allowed, None):
                raise ValueError(f"{key}: '{word}' is none of {', '.join(allowed)}")

    @property
    def stored(self) -> bool:
        """Whether only writes change the field."""
        return bool(self.plain or self.memory)

    def over(self, below: Words) -> Words:
        """These attributes, completed by those of the layer below that do not contradict them."""
        own_words = {k: v for k, v in vars(self).items() if v is not None}
        if self.stored:
            below = replace(below, write=None, read=None, back=None, volatile=None, rse=None, wse=None)
        if self.write or self.back:
            below = replace(below, write=None, back=None, plain=None, memory=None)
        return replace(below, **own_words)


ACTING = tuple(word for word, neutral in NEUTRAL.items() if neutral in ("0", "1"))


@dataclass(frozen=True)
class Alias:
    """A second view of peripheral `of` at another address, where a write has the effect `write`."""

    of: str
    address: int
    write: str

    def __post_init__(self) -> None:
        if self.write not in ACTING:
            raise ValueError(f"write: '{self.write}' is none of {', '.join(ACTING)}")


@dataclass(frozen=True)
class Overlay:
    """One overlay file. Keys of `fields` are shell patterns of BLOCK.REGISTER.FIELD.

    `aliases`: further views of peripherals that the description has once. `devices`: peripherals whose registers a
    device of the source has at another address. `bytes`: the bus accepts accesses to parts of all registers, which no
    description states. `inherits`: ready-made overlays below this one. Of a ready-made one, `parts`: patterns of the
    names of devices that it is for; `source`: the document that states its facts.
    """

    fields: Mapping[str, Words] = field(default_factory=dict)
    aliases: Mapping[str, Alias] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)
    bytes: bool = False
    inherits: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    source: str = ""

    def of(self, name: str) -> Words:
        """Attributes from all entries that match PERIPHERAL.REGISTER.FIELD; later entries override earlier ones."""
        all_ = Words()
        for pattern, words in self.fields.items():
            if fnmatchcase(name, pattern):
                all_ = words.over(all_)
        return all_


@dataclass(frozen=True)
class Facts:
    """Attributes of a map's fields from all layers: the user's overlay, ready-made ones, and guesses from names."""

    map: RegisterMap
    layers: tuple[Overlay, ...]  # the lowest first

    def of(self, block: Block, register: RegisterInfo, info: FieldInfo) -> tuple[Words, str]:
        """(attributes of a field, why one of them is only assumed; empty if none is)."""
        words, name = Words(), field_name(block, register, info)
        for layer in self.layers:
            words = layer.of(name).over(words)
        guess, why = ("", "") if info.complete or words.stored else assumed(register, info, self.map.says_effects)
        if (
            not guess
            or block.acts(register, info)
            or (words.write or words.back or (info.modified and guess != "read"))
        ):
            return words, ""
        if guess == "read":
            below = Words(read="modify") if not info.read_action else Words()
        else:
            below = Words(volatile=True) if guess == "changes" else Words(write=guess)
        return words.over(below), why


def ready_overlays(names: Iterable[str], file: Path) -> list[Overlay]:
    """Read ready-made overlays by name, each with those that it inherits below it.

    Raises EdgebuildError for an unknown name.
    """
    folder, layers = hal_dir() / "overlays", list[Overlay]()
    for name in names:
        path = folder / f"{name}.yaml"
        if not path.is_file():
            names_ = [p.stem for p in folder.glob("*.yaml")]
            raise fail(f"inherits: there is no ready overlay '{name}'{did_you_mean(name, names_)}", file=str(file))
        overlay = read_facts(Overlay, path)
        layers += [*ready_overlays(overlay.inherits, path), overlay]
    return layers


def overlays_of(map_: RegisterMap, own: Overlay, file: Path) -> tuple[Overlay, ...]:
    """All layers, the lowest first: ready-made ones for the device, those that `own` (in `file`) inherits, `own`."""
    fitting = [p for p in sorted((hal_dir() / "overlays").glob("*.yaml")) if _is_for(p, map_.name)]
    return (*ready_overlays([*(p.stem for p in fitting), *own.inherits], file), own)


def _is_for(path: Path, device: str) -> bool:
    head = re.search(r"^parts: *\[([^\]]*)\]", read_text(path), re.M)  # only a matching one is parsed
    return head is not None and any(fnmatchcase(device.upper(), p.upper()) for p in re.findall('"([^"]*)"', head[1]))


def with_aliases(map_: RegisterMap, overlay: Overlay, file: Path) -> RegisterMap:
    """The map with the overlay's aliases. Raises EdgebuildError for an unknown peripheral, or a name in use."""
    named = {b.name: b for b in map_.blocks}
    blocks, mistakes = list(map_.blocks), list(map_.mistakes)
    for name, alias in overlay.aliases.items():
        if alias.of not in named or name in named:
            text = f"there is no peripheral '{alias.of}'{did_you_mean(alias.of, named)}"
            raise fail(
                f"alias '{name}': {text if alias.of not in named else 'a peripheral has this name'}", file=str(file)
            )
        blocks.append(replace(named[alias.of], name=name, base=alias.address, group="",
                              registers=tuple(_acting(r, alias.write) for r in named[alias.of].registers)))  # fmt: skip
        start = f"{alias.of}."
        mistakes += [(f"{name}.{at.removeprefix(start)}", e) for at, e in map_.mistakes if at.startswith(start)]
    return replace(map_, blocks=tuple(blocks), mistakes=tuple(mistakes))


def _acting(register: RegisterInfo, write: str) -> RegisterInfo:
    fields = register.fields or (register.whole,)
    return replace(register, fields=tuple(replace(f, modified=write) if "w" in f.access else f for f in fields))


def field_name(block: Block, register: RegisterInfo, info: FieldInfo) -> str:
    return f"{block.name}.{register.full_name}.{info.name}"


def field_names(map_: RegisterMap) -> set[str]:
    """The names of all fields to which an overlay may refer."""
    return {field_name(b, r, f) for b in map_.blocks for r in b.registers for f in r.fields or (r.whole,)}


def check_devices(overlay: Overlay, file: Path, map_: RegisterMap, devices: Collection[str]) -> None:
    """Raise EdgebuildError if the overlay in `file` names a device or a peripheral that does not exist."""
    blocks = [b.name for b in map_.blocks]
    for name, block in overlay.devices.items():
        if name not in devices:
            raise fail(f"devices: the source has no device '{name}'{did_you_mean(name, devices)}", file=str(file))
        if block not in blocks:
            raise fail(f"devices: there is no peripheral '{block}'{did_you_mean(block, blocks)}", file=str(file))


def check_keys(overlay: Overlay, file: Path, map_: RegisterMap, described: Path) -> None:
    """Raise EdgebuildError if a key of the overlay matches no field of the map, or its attributes contradict."""
    silicon = field_names(map_)
    for pattern, words in overlay.fields.items():
        text = ""
        if not any(fnmatchcase(name, pattern) for name in silicon):
            text = f"'{pattern}' fits no PERIPHERAL.REGISTER.FIELD of {described.name}{did_you_mean(pattern, silicon)}"
        elif words.volatile and words.stored:
            text = f"'{pattern}': what only writes change (plain, memory) does not change by itself (volatile)"
        elif words.write and words.stored:
            text = f"'{pattern}': what is stored as it is written (plain, memory) has no 'write'"
        if text:
            lines = read_text(file).splitlines()
            line = next((i for i, text_line in enumerate(lines, 1) if pattern in text_line), 0)
            raise fail(text, file=str(file), line=line)


# ---- template of an overlay: assumed attributes, and fields of the driver that a description leaves open

SETTING = re.compile("EN|MODE|DIV|BAUD|PARITY|LEN|SEL|PIN|PORT|CFG|CONF|PRESC|SPEED|MASK|DIR|POL|PHA")


def overlay_template(layout: Layout, cdfg: Cdfg) -> str:
    """An overlay that states the assumptions that hold without one, for the user to correct.

    It has the fields that the driver uses, and the neighbours with assumed attributes.
    """
    accesses = [a for f in cdfg.functions.values() for a in f.accesses]
    slots = {s.key: s for g in layout.groups.values() for r in g.registers for s in r.slots}
    lines = list[str]()
    for name, slot in sorted(slots.items()):
        places = [(a.kind, a.where.line) for a in accesses if a.field == slot.field]
        if not slot.assumed and not (slot.open and places):
            continue
        bits = f"bit {slot.lsb}" if slot.width == 1 else f"bits {slot.lsb + slot.width - 1}:{slot.lsb}"
        access = {"r": "read-only", "w": "write-only", "rw": "read-write"}[slot.access]
        uses = [f"{w} at {_lines(places, k)}" for k, w in (("w", "written"), ("r", "read")) if _lines(places, k)]
        words, why = _stated(slot)
        about = comment("; ".join([f"{access}, {bits}", ", ".join(uses) or "not used", why]))
        lines.append(f"  {'' if slot.assumed else '# '}{yaml_key(name)}: {{{words}}}  # {about}")
    if not lines:
        return "# The register description says all that the driver needs.\nfields: {}\n"
    head = "# Lines without a sign in front are assumed, and hold without this file. Others say more than is known."
    return "\n".join([head, "fields:" if any(s.assumed for s in slots.values()) else "fields: {}", *lines, ""])


def _stated(slot: Slot) -> tuple[str, str]:
    """(entry of an overlay, reason)."""
    if slot.assumed:
        words = f"write: {slot.modified}" if slot.modified else "read: modify" if slot.action else "volatile: true"
        return words, f"assumed: {slot.assumed}"
    if slot.access == "r":
        return "volatile: true", "only silicon changes it"
    if SETTING.search(slot.name.upper()):
        return "plain: true", "the name suggests a setting"
    return "plain: true", "if only writes change it"


def _lines(places: Iterable[tuple[str, int]], kind: str) -> str:
    numbers = sorted({str(line) for k, line in places if k == kind}, key=int)
    return ("line " if len(numbers) == 1 else "lines ") + ", ".join(numbers) if numbers else ""


# ---- effects that names, descriptions and kinds of access suggest, where the file states none
#
# A wrong guess that a field has an effect costs the user a line of an overlay. A wrong guess that it is a setting
# destroys flags. So a possible flag counts as one. If its harmless value is unknown, it is `modify`: no write of a
# neighbour is allowed. If a file states effects (`modifiedWriteValues`) anywhere, fields without one have none, unless
# their descriptions say so.

ONE, ZERO = r"(?:a |an |with |it to |by )*\W?(?:1|one)\b\W?", r"(?:a |an |with |it to |by )*\W?(?:0|zero)\b\W?"
WRITE = r"\bwrit(?:e|es|ing|ten)\b:? *(?:as )?"
CLEAR, SET = r"(?:clear|reset)(?:s|ed|ing)?\b", r"sets?\b"
BY_WRITE = r"\b[^.;]{0,40}?(?:by|when|with|if|,) *(?:it is |software |\()* *"
STATED = (  # (pattern of a description, effect of a write)
    (rf"\brc_w1\b|\bw1c\b|\br/?wc1?\b|{WRITE}{ONE}[^.;,]{{0,30}}?{CLEAR}|{CLEAR}{BY_WRITE}{WRITE}{ONE}", "oneToClear"),
    (rf"\brc_w0\b|\bw0c\b|{WRITE}{ZERO}[^.;,]{{0,30}}?{CLEAR}|{CLEAR}{BY_WRITE}{WRITE}{ZERO}", "zeroToClear"),
    (rf"{WRITE}{ONE}[^.;,]{{0,20}}?toggle|toggled?{BY_WRITE}{WRITE}{ONE}", "oneToToggle"),
    (rf"\bw1s\b|{WRITE}{ONE}[^.;,]{{0,12}}?{SET}(?! to)", "oneToSet"),
)
THIS = r"(?: of)?(?: (?:this|it|the (?:register|bit|field))\b| *[.,;)(]| *$)"
STATED_READ = re.compile(
    rf"{CLEAR}[^.;]{{0,20}}(?:on|by|after|when) (?:a |it is |being )?read(?:ing)?{THIS}|read to clear"
)
CHANGING = re.compile(r"cleared (?:automatically )?by (?:the )?hardware|self[- ]clear|hardware (?:then )?clears")

SETTING_TEXT = re.compile(r"enable|disable|mode\b|\bmask|select|polarity|prescal|threshold|level\b|priority|config")
SETTING_NAME = re.compile(r"(EN|IE|IM|MSK|MASK|MODE|SEL|CFG|DIS)\d*$|^(EN|IE|IM)_?[A-Z0-9]+$")
FLAG = re.compile(r"\b(?:flags?|pending|occurred|status bits?|correct transfer|transfer completed?|overrun|overflow)\b")
FLAG_NAME = re.compile(r"(IF|FLAG|FLG)\d*$|(?<=[A-Z])_F$")
STATUS = re.compile(r"(?:.*_)?(?:[A-Z]{0,4}SR|[A-Z]*STAT(?:US|R)?|[A-Z]*STS|[A-Z]*FLAGS?|IFR?|[FR]?PR|RIS|MIS)\d*")
STATUS_TEXT = re.compile(r"\b(?:status|pending|flags?) (?:flags? )?register")
CONTROL_TEXT = re.compile(r"control|config|prescaler|period|priority|enable|mask|mode|preload")
ACTS = re.compile(r"clear|reset|\bset\b|trigger|generat|start|stop|abort|flush|request|toggle|launch")
ACTS_NAME = re.compile(r".*(?:CLR|CLEAR|SET|EGR|ICR|FCR|BSRR|BRR|BSR|BCR|BOP|BC|TRIG|SWIER|SWEV|SWTRIG).*")
TOGGLE = re.compile(r"D?TOG|TGL")
DATA = re.compile(r"(?:.*_)?(?:U?ART)?(?:RX?|X|RXF|TRX)?(?:DR|DATA|DATAR|FIFO|RBR|RHR|BUF|BUFFER|RXD|RDR)\d*")


def assumed(register: RegisterInfo, info: FieldInfo, stated: bool) -> tuple[str, str]:
    """(effect of a write, or "changes" (hardware changes it), or "read" (a read changes it); reason); ("", "") if none.

    `stated`: whether the file states effects of other fields.
    """
    description, name = " ".join(info.description.lower().split()), info.name.upper()
    if "r" in info.access and not info.read_action:
        if len(register.fields) > 1 and STATED_READ.search(description):
            return "read", "its description says that a read clears it"
        if not stated and len(register.fields) > 1 and info.width > 3 and DATA.fullmatch(register.name.upper()):
            return "read", "a read of data may take it out"
    if "w" not in info.access or info.modified:
        return "", ""
    for words, write in STATED:
        if re.search(words, description):
            return write, "its description says so"
    if CHANGING.search(description) and info.access == "rw":
        return "changes", "its description says that hardware clears it"
    return ("", "") if stated else _by_name(register, info, description, name)


def _by_name(register: RegisterInfo, info: FieldInfo, description: str, name: str) -> tuple[str, str]:
    """(effect of a write, reason) as names suggest it, for a field whose description states none."""
    text = register.description.lower()
    if info.access == "w":
        no_value = register.reset >> info.lsb & ((1 << info.width) - 1)
        acts = ACTS.search(description) or ACTS_NAME.fullmatch(register.name.upper())
        return (
            ("oneToSet", "it can only be written, and a 1 acts")
            if acts and info.width == 1 and not no_value
            else ("", "")
        )
    if re.match(r"clears? .*(?:flag|pending|status|error)", description) and info.width == 1:
        return "oneToClear", "its description begins with 'clear'"
    if SETTING_TEXT.search(description) or SETTING_NAME.search(name):
        return "", ""
    if TOGGLE.match(name) or (re.search(r"\btoggles?\b", description) and info.width == 1):
        return "modify", "a write may toggle it"
    status = STATUS.fullmatch(register.name.upper()) or STATUS_TEXT.search(text)
    if (status and not CONTROL_TEXT.search(text)) or FLAG.search(description) or FLAG_NAME.search(name):
        return "modify", "it looks like a flag, and nothing says how it is cleared"
    return "", ""
