"""Template of an overlay: fields that a driver uses and a register description leaves open, with a suggestion."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from edgebuild.base.text import comment, yaml_key
from edgebuild.driver.analysis.cdfg import Cdfg
from edgebuild.driver.registers.regmap import FieldInfo
from edgebuild.driver.source.dialect import FieldId

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
