"""The report: accesses before and after, the layout, and what was kept apart and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from edgebuild.base.text import terminal, xml
from edgebuild.driver.analysis.cdfg import Access
from edgebuild.driver.analysis.conflicts import Region
from edgebuild.driver.analysis.simplify import Facts
from edgebuild.driver.layout.registers import GroupLayout, Register
from edgebuild.driver.stages import Driver

# A picture of the access graph (BFACG): per function, accesses in program order, and which of them became one.
#
# Each row of dots is a function. Dots of one access are joined by an arc: blue for reads, orange for writes. A dot with
# a ring has a side effect. The title of a dot names the field and its line.

LEFT, STEP, ROW, TOP = 200, 26, 84, 40
COLOURS = {"r": "#4c78a8", "w": "#f58518"}


def picture(driver: Driver) -> str:
    """SVG of all functions that access fields."""
    names = [n for n, f in driver.cdfg.functions.items() if f.accesses]
    widest = max((len(driver.cdfg.functions[n].accesses) for n in names), default=1)
    width, height = LEFT + STEP * (widest + 1), TOP + ROW * len(names)
    size = f'width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect {size} fill="#ffffff"/>',
        f'<text x="8" y="20" font-size="12">{xml(driver.request.name)}: accesses that became one</text>',
    ]
    for row, name in enumerate(names):
        lines += _function(driver, name, TOP + ROW * row + ROW // 2)
    return "\n".join([*lines, "</svg>", ""])


def _function(driver: Driver, name: str, y: int) -> Iterator[str]:
    places = {a: LEFT + STEP * i for i, a in enumerate(driver.cdfg.functions[name].accesses)}
    yield f'<text x="8" y="{y + 4}" font-size="11">{xml(name[:28])}</text>'
    for region in driver.merged.conflicts.regions[name]:
        yield from _arcs(region, places, y)
    for access, x in places.items():
        yield _dot(driver, access, x, y)


def _arcs(region: Region, places: dict[Access, int], y: int) -> Iterator[str]:
    """Arcs from the place of an access to all that became one with it: reads above, writes below."""
    at = places[region.place]
    for a in region.accesses:
        if a is not region.place:
            height = min(34, 10 + abs(places[a] - at) // 6) * (-1 if region.kind == "r" else 1)
            path = f"M{at},{y} Q{(at + places[a]) // 2},{y + 2 * height} {places[a]},{y}"
            yield f'<path d="{path}" fill="none" stroke="{COLOURS[region.kind]}"/>'


def _dot(driver: Driver, a: Access, x: int, y: int) -> str:
    effect = bool(Facts(driver.dialect, driver.merged.conflicts.refs).of(a).effects(a.kind))
    word = "read" if a.kind == "r" else "write"
    title = f"{word} of {a.field[0]}.{a.field[1]}, line {a.where.line}" + (", side effect" if effect else "")
    ring = ' stroke="#000000" stroke-width="2"' if effect else ""
    return f'<circle cx="{x}" cy="{y}" r="5" fill="{COLOURS[a.kind]}"{ring}><title>{xml(title)}</title></circle>'


def as_dict(name: str, driver: Driver) -> dict[str, Any]:
    layout = driver.layout
    profile = f" weighted by {driver.request.profile.name}" if driver.request.profile else ""
    kept = dict.fromkeys([*driver.merged.conflicts.unmerged, *driver.conflicts.unmerged])
    return {
        "schema": 1,
        "driver": name,
        "target": driver.target,
        "bus": {"width": layout.bus.width, "bytes": layout.bus.bytes},
        "functions": [
            {"name": f, "accesses_before": before(driver, f), "accesses_after": after(driver, f)}
            for f in driver.cdfg.functions
        ],
        "layout": {
            "method": layout.method,
            "optimal": layout.optimal,
            "accesses": layout.cost,
            "accesses_bound": layout.bound,
            "objective": f"bus accesses over all access regions{profile}, then bytes of the map",
            "map_bytes": layout.bytes,
            "registers": [_register(g, r) for g in layout.groups.values() for r in g.registers],
            "groups": [_group(g) for g in layout.groups.values()],
        },
        "devices": [
            {"name": d.name, "group": d.group, "address": d.address, "bytes": layout.groups[d.group].size}
            for d in driver.dialect.devices.values()
        ],
        "merged": [
            {
                "where": _where(r.place),
                "kind": "read" if r.kind == "r" else "write",
                "fields": list(driver.merged.leaves(r)),
                "accesses": driver.merged.cost(r),
            }
            for _, r in driver.merged.all()
            if len(r.accesses) > 1 and not r.place.whole
        ],
        "dropped": [{"where": _where(a), "field": a.field[1], "why": why} for a, why in dropped(driver)],
        "moved": [
            {
                "where": _where(a),
                "to": _where(r.place),
                "kind": "read" if r.kind == "r" else "write",
                "field": a.field[1],
            }
            for a, r in moved(driver)
        ],
        "kept_apart": [{"where": f"{_name(k.where.file)}:{k.where.line}:{k.where.column}", "why": k.why} for k in kept],
        "warnings": [f"{_name(w.file)}:{w.line}: {w.text}" for w in driver.warnings],
    }


def _group(g: GroupLayout) -> dict[str, Any]:
    members = [
        {"name": s.name, "group": s.group, "offset": s.offset, "stride": s.stride, "count": list(s.dims)}
        for s in g.subs
    ]
    return {"name": g.group, "bytes": g.size, "members": members}


def dropped(driver: Driver) -> Iterator[tuple[Access, str]]:
    """Stores that a later one overwrites, and reads whose value is at hand already."""
    for _, region in driver.merged.all():
        kept: dict[str, Access] = {}
        for a in region.accesses if region.kind == "r" else reversed(region.accesses):
            leaf = driver.merged.ref(a).leaf
            if leaf in kept:
                word = "overwritten by the store" if region.kind == "w" else "read already"
                yield a, f"{word} at line {kept[leaf].where.line}"
            kept.setdefault(leaf, a)


def moved(driver: Driver) -> Iterator[tuple[Access, Region]]:
    """Accesses that take place where another one of their region stands."""
    for _, region in driver.merged.all():
        yield from ((a, region) for a in region.accesses if a is not region.place and not a.whole)


def before(driver: Driver, function: str) -> int:
    """Bus accesses on this layout if nothing were merged."""
    f = driver.cdfg.functions[function]
    whole = sum(s.form in ("group", "load", "store") for s in f.sites)
    return whole + sum(driver.merged.cost(Region((a,))) for a in f.accesses if not a.whole)


def after(driver: Driver, function: str) -> int:
    return sum(driver.merged.cost(r) for r in driver.merged.conflicts.regions[function])


def _register(group: GroupLayout, r: Register) -> dict[str, Any]:
    return {
        "group": group.group,
        "name": r.name,
        "offset": r.offset,
        "bits": r.bits,
        "count": r.count,
        "stride": r.stride,
        "fields": [{"name": s.name, "lsb": s.lsb, "width": s.width} for s in r.slots],
    }


def _where(a: Access) -> str:
    return f"{_name(a.where.file)}:{a.where.line}:{a.where.column}"


def _name(file: str) -> str:
    return file.rpartition("/")[2]


def as_json(report: dict[str, Any]) -> str:
    return json.dumps(report, indent=1) + "\n"


def as_text(r: dict[str, Any], driver: Driver) -> str:
    """The report for people, with a picture of each register, the highest bit on the left."""
    layout = r["layout"]
    proof = "optimal" if layout["optimal"] else f"bound {layout['accesses_bound']}"
    lines = [
        f"{r['driver']} for {r['target']}: layout {layout['method']} ({proof}), map {layout['map_bytes']} B",
        "",
        f"{'function':32} {'accesses before':>16} {'after':>6}",
    ]
    lines += [f"{f['name']:32} {f['accesses_before']:>16} {f['accesses_after']:>6}" for f in r["functions"]]
    for group in driver.layout.groups.values():
        lines += ["", f"{group.group}, {group.size} B"]
        lines += [
            f"  {reg.offset:#06x} {_picture(reg)}" + (f"  x{reg.count}" if reg.count > 1 else "")
            for reg in group.registers
        ]
        lines += [f"  {s.offset:#06x} {s.name}: {s.group} x{list(s.dims) or 1}, every {s.stride} B" for s in group.subs]
    rows = {
        "merged": [f"{m['kind']} of {', '.join(m['fields'])}: {m['accesses']} accesses" for m in r["merged"]],
        "dropped": [f"{d['field']}: {d['why']}" for d in r["dropped"]],
        "moved": [f"{m['kind']} of {m['field']}" for m in r["moved"]],
        "kept_apart": [k["why"] for k in r["kept_apart"]],
    }
    for key, texts in rows.items():
        places = [f"{x['where']} -> {x['to']}" if "to" in x else x["where"] for x in r[key]]
        lines += ["", key.replace("_", " ")] if texts else []
        lines += [f"  {place}: {text}" for place, text in zip(places, texts, strict=True)]
    if r["warnings"]:
        lines += ["", "warnings", *(f"  {w}" for w in r["warnings"])]
    return terminal("\n".join(lines) + "\n")


def _picture(r: Register) -> str:
    cells, top = [], r.bits
    for s in sorted(r.slots, key=lambda s: -s.lsb):
        if s.lsb + s.width < top:
            cells.append(f"-:{top - s.lsb - s.width}")
        cells.append(f"{s.name}:{s.width}")
        top = s.lsb
    if top > 0:
        cells.append(f"-:{top}")
    return "[" + "|".join(cells) + "]"
