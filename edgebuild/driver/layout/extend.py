"""Layouts that grow: what an earlier report has keeps its place, what is new comes behind it.

FILE is the `N_report.json` of the driver whose hardware exists. Fields that the source no longer has keep their bits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgebuild.base.dataclass import dataclass
from edgebuild.base.errors import EdgebuildError, fail
from edgebuild.base.inputs import read_json
from edgebuild.driver.analysis.simplify import Leaf, Shape, Shapes
from edgebuild.driver.layout.optimize import Writers, optimize
from edgebuild.driver.layout.problem import Uses, slot
from edgebuild.driver.layout.registers import Bus, GroupLayout, Layout, Register, Slot, Sub
from edgebuild.driver.source.dialect import Dialect


@dataclass(frozen=True)
class Old:
    """Facts of a report about one group."""

    size: int
    registers: tuple[Mapping[str, Any], ...]
    members: tuple[Mapping[str, Any], ...]


def extend(path: Path, dialect: Dialect, shapes: Shapes, uses: Mapping[str, Uses], bus: Bus, by: Writers) -> Layout:
    """Raises EdgebuildError if the report cannot be read, or a field does not fit into what is there."""
    old = _read(path)
    known = {name: {f["name"] for r in o.registers for f in r["fields"]} for name, o in old.items()}
    fresh = {name: _fresh(path, shape, known.get(name, set())) for name, shape in shapes.groups.items()}
    for name, shape in fresh.items():
        _same_way(path, shape, shapes.groups[name], known.get(name, set()), old.get(name))
    mine = {name: {x.name for x in shape.leaves} for name, shape in fresh.items()}
    rest: dict[str, Uses] = {}
    for name, group in uses.items():
        rest[name] = Counter()
        for (kind, names), times in group.items():
            if names & mine[name]:
                rest[name][kind, names & mine[name]] += times
    new = optimize(dialect, Shapes(fresh, shapes.arrays), rest, bus, by)
    groups: dict[str, GroupLayout] = {}
    for name, shape in shapes.groups.items():  # inner groups come first
        groups[name] = _grown(path, shape, old.get(name), new.groups[name], groups, bus)
    size = sum(groups[d.group].size for d in dialect.devices.values())
    return Layout(groups, bus, "extend", False, new.cost, new.bound, size)


NO_REPORT = "is not the report of a driver (NAME_report.json)"


def _read(path: Path) -> dict[str, Old]:
    try:
        layout = read_json(path, NO_REPORT)["layout"]
        return {
            g["name"]: Old(
                g["bytes"], tuple(r for r in layout["registers"] if r["group"] == g["name"]), tuple(g["members"])
            )
            for g in layout["groups"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise fail(NO_REPORT, file=str(path)) from error


def _fresh(path: Path, shape: Shape, known: set[str]) -> Shape:
    """Fields that a layout does not have yet."""
    for names in shape.glued:
        new = sorted(names - known)
        if new and names & known:
            raise _wrong(path, f"'{shape.group}.{new[0]}' is new in a register that is accessed as a whole")
    glued = tuple(names for names in shape.glued if not names & known)
    return replace(shape, leaves=tuple(x for x in shape.leaves if x.name not in known), parts=(), glued=glued)


def _same_way(path: Path, fresh: Shape, shape: Shape, known: set[str], old: Old | None) -> None:
    """Keep split fields split and whole fields whole: else they would be laid out anew."""
    members = {m["name"] for m in old.members} if old else set()
    for leaf in fresh.leaves:
        for other in sorted(known | members):
            apart = re.fullmatch(re.escape(leaf.name) + r"(_\d+)+", other) if leaf.dims else None
            whole = re.fullmatch(re.escape(other) + (r"(_\d+)+" if other in known else r"_.+"), leaf.name)
            if apart or whole:
                raise _wrong(path, f"'{shape.group}.{leaf.name}' is accessed in another way than '{other}' was")
    for part in shape.parts:
        other = next((n for n in sorted(known) if n.startswith(f"{part.name}_")), "")
        if part.name not in members and other:
            raise _wrong(path, f"'{shape.group}.{part.name}' is accessed in another way than '{other}' was")


def _grown(
    path: Path, shape: Shape, old: Old | None, new: GroupLayout, inner: Mapping[str, GroupLayout], bus: Bus
) -> GroupLayout:
    if old is None:
        old = Old(0, (), ())
    leaves = {leaf.name: leaf for leaf in shape.leaves}
    registers = [_kept(path, r, leaves) for r in old.registers]
    members = {m["name"]: m for m in old.members}
    subs, end = [], old.size
    for part in shape.parts:
        size, m = inner[part.group].size, members.get(part.name)
        if m is None:
            end = -(-end // 4) * 4
            subs.append(Sub(part.name, part.group, end, size, part.dims))
            end += size * part.count
            continue
        if tuple(m["count"]) != part.dims:
            now, before = ("".join(f"[{n}]" for n in dims) or "one" for dims in (part.dims, m["count"]))
            raise _wrong(path, f"'{shape.group}.{part.name}' is {now}, and {before} in the layout")
        if size > (m["stride"] or size):
            raise _wrong(path, f"'{shape.group}.{part.name}' has no room: {size} bytes, {m['stride']} are there")
        subs.append(Sub(part.name, part.group, m["offset"], m["stride"], part.dims))
    if new.registers:
        unit = max(bus.width // 8, *(min(r.bits, bus.width) // 8 for r in new.registers))
        end = -(-end // unit) * unit
        registers += [replace(r, offset=r.offset + end) for r in new.registers]
        end += new.size
    return GroupLayout(shape.group, end, tuple(registers), tuple(subs))


def _kept(path: Path, r: Mapping[str, Any], leaves: Mapping[str, Leaf]) -> Register:
    slots: list[Slot] = []
    dims: tuple[int, ...] = ()
    reset = 0
    for f in r["fields"]:
        leaf = leaves.get(f["name"])
        if leaf is None:
            slots.append(Slot(f["name"], f["lsb"], f["width"], back="keep"))
            continue
        if leaf.width != f["width"] or leaf.count != r["count"]:
            text = f"'{leaf.name}' has {leaf.count} x {leaf.width} bits, and {r['count']} x {f['width']} in the layout"
            raise _wrong(path, text)
        slots.append(slot(leaf, f["lsb"]))
        dims, reset = leaf.dims, reset | (slots[-1].reset or 0) << f["lsb"]
    if r["count"] > 1 and not dims:
        dims = (r["count"],)
    return Register(r["name"], r["offset"], r["bits"], tuple(slots), r["count"], r["stride"], reset, dims)


def _wrong(path: Path, text: str) -> EdgebuildError:
    return fail(text, file=str(path), hints=["hardware that exists keeps its addresses"])
