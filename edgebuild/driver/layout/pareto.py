"""Map size against accesses: the layouts of which none is better in both, and a picture of them.

Every class of leaves gives the best layouts by size, from the optimum downwards. Each is found under a limit of one
byte less than the one before (the epsilon-constraint method). Sums over the classes of all groups give the fronts of
the device's whole map. Dominated points drop out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from edgebuild.base.text import xml
from edgebuild.driver.analysis.simplify import Shapes
from edgebuild.driver.layout.exact import solve_exactly
from edgebuild.driver.layout.optimize import EXACT, placed, problems
from edgebuild.driver.layout.problem import Bins, Problem, Uses, heuristic, packed
from edgebuild.driver.layout.registers import Bus
from edgebuild.driver.source.dialect import Dialect

STEPS = 12  # layouts per class of leaves

Point = tuple[int, int]  # (bytes, accesses)
Choice = tuple[tuple[str, Bins], ...]  # the registers of one class of leaves, for each class, with the group's name


def front(dialect: Dialect, shapes: Shapes, uses: Mapping[str, Uses], bus: Bus) -> tuple[Point, ...]:
    """(bytes of all devices, accesses), the largest map first."""
    instances = _instances(dialect, shapes)
    sums: dict[Point, Choice] = {(0, 0): ()}
    for name, shape in shapes.groups.items():
        for problem in problems(shape, uses.get(name, Counter()), dialect, bus, split=False):
            layouts = [(problem.bytes(b) * instances[name], problem.accesses(b), b) for b in _by_size(problem)]
            sums = {
                (size + more, accesses + extra): (*chosen, (name, bins))
                for (size, accesses), chosen in sums.items()
                for more, extra, bins in layouts
            }
            sums = {point: sums[point] for point in _undominated(sums)}
    points = {(_bytes(chosen, dialect, shapes, bus), accesses) for (_, accesses), chosen in sums.items()}
    return tuple(sorted(_undominated(points), reverse=True))


def _by_size(problem: Problem) -> list[Bins]:
    """The best layout, then the best one of each smaller size."""
    if problem.glued:
        return [(problem.leaves,)]
    if not problem.uses or len(problem.leaves) == 1:
        return [packed(problem)]
    if len(problem.leaves) > EXACT:
        return [heuristic(problem), packed(problem)]
    found: list[Bins] = []
    largest = None
    while len(found) < STEPS:
        solution = solve_exactly(problem, [heuristic(problem), *found[-1:]], largest)
        if solution is None:
            break
        found.append(solution.bins)
        largest = problem.bytes(solution.bins) - 1
    return found


def _undominated(points: Iterable[Point]) -> list[Point]:
    best: list[Point] = []
    for point in sorted(points):  # the smallest map first: a larger one must have fewer accesses
        if not best or point[1] < best[-1][1]:
            best.append(point)
    return best


def _instances(dialect: Dialect, shapes: Shapes) -> Counter[str]:
    """How many of each group all devices have together."""
    count: Counter[str] = Counter(d.group for d in dialect.devices.values())
    for name in reversed(shapes.groups):  # inner groups come first, so this is outside in
        for part in shapes.groups[name].parts:
            count[part.group] += count[name] * part.count
    return count


def _bytes(choice: Choice, dialect: Dialect, shapes: Shapes, bus: Bus) -> int:
    groups = placed(shapes, {n: [b for name, bins in choice if name == n for b in bins] for n in shapes.groups}, bus)
    return sum(groups[d.group].size for d in dialect.devices.values())


# ---- the picture

WIDTH, HEIGHT, LEFT, BELOW, TOP = 480, 300, 48, 44, 16


def picture(points: Iterable[Point], chosen: Point, title: str) -> str:
    """SVG: accesses over bytes of the map; the chosen layout is filled."""
    points = sorted({*points, chosen})
    most, highest = max(b for b, _ in points), max(a for _, a in points)

    def at(point: Point) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - 24) * point[0] / max(1, most)
        return round(x, 1), round(HEIGHT - BELOW - (HEIGHT - BELOW - TOP) * point[1] / max(1, highest), 1)

    base = HEIGHT - BELOW
    size = f'width="{WIDTH}" height="{HEIGHT}"'
    line = " ".join(f"{x},{y}" for x, y in map(at, points))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect {size} fill="#ffffff"/>',
        '<g font-size="10" fill="#444444">',
        f'<polyline points="{line}" fill="none" stroke="#4c78a8" stroke-opacity="0.4"/>',
        f'<path d="M{LEFT},{TOP} V{base} H{WIDTH - 16}" fill="none" stroke="#444444"/>',
    ]
    for point in points:
        x, y = at(point)
        text = f"{point[0]} B, {point[1]} accesses"
        fill = "#4c78a8" if point == chosen else "#ffffff"
        lines.append(f'<circle cx="{x}" cy="{y}" r="4" fill="{fill}" stroke="#4c78a8"><title>{text}</title></circle>')
    lines += [
        f'<text x="{LEFT - 6}" y="{TOP + 4}" text-anchor="end">{highest}</text>',
        f'<text x="{LEFT - 6}" y="{base}" text-anchor="end">0</text>',
        f'<text x="{WIDTH - 24}" y="{base + 14}" text-anchor="middle">{most} B</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 8}">{xml(title)}: accesses of the source over bytes of the map</text>',
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
