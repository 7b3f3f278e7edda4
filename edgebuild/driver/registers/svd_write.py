"""CMSIS-SVD: the writer. `dim` arrays and clusters are written as such."""

from __future__ import annotations

from collections.abc import Iterator

from edgebuild.base.text import xml
from edgebuild.driver.registers.regmap import Array, Cluster, FieldInfo, RegisterInfo, RegisterMap, clusters
from edgebuild.driver.registers.svd import ONCE, WORD


def write_svd(map_: RegisterMap, comment: str = "") -> str:
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        *([f"<!-- {xml(comment)} -->"] if comment else []),
        '<device schemaVersion="1.3" xmlns:xs="http://www.w3.org/2001/XMLSchema-instance">',
        f"  <name>{xml(map_.name)}</name>",
        "  <version>1.0</version>",
        "  <description>Register map</description>",
        "  <addressUnitBits>8</addressUnitBits>",
        "  <width>32</width>",
        "  <peripherals>",
    ]
    for block in map_.blocks:
        size = max((r.offset + r.bits // 8 for r in block.registers), default=4)
        lines += ["    <peripheral>", f"      <name>{xml(block.name)}</name>"]
        lines += [f"      <groupName>{xml(block.group)}</groupName>"] if block.group else []
        lines += [
            f"      <baseAddress>{block.base:#x}</baseAddress>",
            f"      <addressBlock><offset>0</offset><size>{size:#x}</size><usage>registers</usage></addressBlock>",
        ]
        if block.registers:
            lines += ["      <registers>", *_inside(block.registers, "        "), "      </registers>"]
        lines.append("    </peripheral>")
    return "\n".join([*lines, "  </peripherals>", "</device>", ""])


def _inside(registers: tuple[RegisterInfo, ...], pad: str) -> Iterator[str]:
    for item in clusters(registers):
        if isinstance(item, Cluster):
            yield f"{pad}<cluster>"
            yield from _named(item, item.name, pad)
            yield f"{pad}  <addressOffset>{item.offset:#x}</addressOffset>"
            yield from _inside(item.registers, pad + "  ")
            yield f"{pad}</cluster>"
        else:
            yield from _register(item, pad)


def _named(item: RegisterInfo | Array | Cluster, name: str, pad: str) -> Iterator[str]:
    """Dimensions of an array, and the name."""
    if isinstance(item, RegisterInfo) or not item.count:
        yield f"{pad}  <name>{xml(name)}</name>"
        return
    yield f"{pad}  <dim>{item.count}</dim>"
    yield f"{pad}  <dimIncrement>{item.stride:#x}</dimIncrement>"
    yield f"{pad}  <name>{xml(name)}_%s</name>"


def _register(item: RegisterInfo | Array, pad: str) -> Iterator[str]:
    r = item.first if isinstance(item, Array) else item
    yield f"{pad}<register>"
    yield from _named(item, r.name, pad)
    if r.alternate:
        yield f"{pad}  <alternateGroup>views</alternateGroup>"
    yield f"{pad}  <addressOffset>{r.offset:#x}</addressOffset>"
    yield f"{pad}  <size>{r.bits}</size>"
    yield f"{pad}  <access>{WORD[r.access]}</access>"
    yield f"{pad}  <resetValue>{r.reset:#x}</resetValue>"
    if r.fields:
        yield f"{pad}  <fields>"
        for f in r.fields:
            effects = (f"<modifiedWriteValues>{f.modified}</modifiedWriteValues>" if f.modified else "") + (
                f"<readAction>{f.read_action}</readAction>" if f.read_action else ""
            )
            yield (
                f"{pad}    <field><name>{xml(f.name)}</name><bitOffset>{f.lsb}</bitOffset><bitWidth>{f.width}"
                f"</bitWidth><access>{(ONCE if f.once else WORD)[f.access]}</access>{effects}{_values(f)}</field>"
            )
        yield f"{pad}  </fields>"
    yield f"{pad}</register>"


def _values(f: FieldInfo) -> str:
    rows = (f"<enumeratedValue><name>{xml(n)}</name><value>{v}</value></enumeratedValue>" for n, v in f.values)
    return f"<enumeratedValues>{''.join(rows)}</enumeratedValues>" if f.values else ""
