"""A picture of the access graph (BFACG): per function, accesses in program order, and which of them became one.

Each row of dots is a function. Dots of one access are joined by an arc: blue for reads, orange for writes. A dot with
a ring has a side effect. The title of a dot names the field and its line.
"""

from __future__ import annotations

from collections.abc import Iterator

from edgebuild.base.text import xml
from edgebuild.driver.analysis.cdfg import Access
from edgebuild.driver.analysis.conflicts import Region
from edgebuild.driver.analysis.simplify import Facts
from edgebuild.driver.stages import Driver

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
