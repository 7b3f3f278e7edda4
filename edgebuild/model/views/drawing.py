"""Drawings as values: boxes, lines, words and dots, which one template prints as SVG.

Colours of ink, grid and ground are roles, which the style of a page or of a file by itself sets for light and dark.
Boxes have colours of their own; their words are black or white, whichever has the higher contrast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any

from ...base.errors import fail
from ...base.templates import render

if TYPE_CHECKING:
    from ..ir import Graph, Op, Tensor

COLOURS = ("#2f6db3", "#f0a030", "#3f8f4f", "#b05fa8", "#d9534f", "#4fa8a0", "#8a6a52", "#e3c93c")
LETTER = 6.4  # pixels of a letter of ten pixels, at most on average


@dataclass(frozen=True)
class Shape:
    """A rectangle, line, word, dot or polyline. `role`: its style; `fill`: its own colour; `title`: its tooltip."""

    kind: str
    x: float
    y: float
    width: float = 0.0
    height: float = 0.0
    text: str = ""
    title: str = ""
    role: str = ""
    fill: str = ""
    anchor: str = "start"
    points: str = ""


@dataclass(frozen=True)
class Drawing:
    """Shapes on an area of pixels. `title`: the text for screen readers."""

    title: str
    width: int
    height: int
    shapes: tuple[Shape, ...]

    def svg(self) -> str:
        """The drawing as an SVG file of its own."""
        return render("drawing.svg.j2", drawing=self, alone=True)


def box(x: float, y: float, width: float, height: float, fill: str, title: str, label: str = "") -> Iterator[Shape]:
    """A coloured rectangle with as much of its label as fits inside."""
    yield Shape("rect", _r(x), _r(y), _r(width), _r(height), title=title, fill=fill)
    if label and height >= 11 and (text := fitted(label, width - 6)):
        yield Shape("text", _r(x + 3), _r(y + min(height / 2 + 3.5, 11)), text=text, fill=ink_on(fill), title=title)


def line(x: float, y: float, x2: float, y2: float, role: str = "grid") -> Shape:
    return Shape("line", _r(x), _r(y), _r(x2), _r(y2), role=role)


def words(x: float, y: float, text: str, anchor: str = "start", role: str = "ink") -> Shape:
    return Shape("text", _r(x), _r(y), text=text, anchor=anchor, role=role)


def dot(x: float, y: float, title: str, fill: str, radius: float = 4.0) -> Shape:
    return Shape("dot", _r(x), _r(y), radius, title=title, fill=fill)


def polyline(points: Iterable[tuple[float, float]]) -> Shape:
    return Shape("polyline", 0.0, 0.0, points=" ".join(f"{_r(x)},{_r(y)}" for x, y in points), role="curve")


def legend(x: float, y: float, entries: Iterable[tuple[str, str]]) -> Iterator[Shape]:
    """Squares with words after them, in a row: (colour, text)."""
    for colour, text in entries:
        yield Shape("rect", _r(x), _r(y - 9), 10.0, 10.0, fill=colour)
        yield words(x + 14, y, text, role="muted")
        x += 28 + LETTER * len(text)


def fitted(text: str, width: float) -> str:
    """The text, or its beginning and an ellipsis, within `width` pixels; empty if not even three letters fit."""
    room = int(width / LETTER)
    if len(text) <= room:
        return text
    return f"{text[: room - 1]}\u2026" if room >= 4 else ""


def ticks(most: float, count: int = 5) -> list[float]:
    """About `count` round numbers from zero to `most`."""
    if most <= 0:
        return [0.0]
    raw = most / count
    power = 10.0 ** floor(log10(raw))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= raw)
    return [i * step for i in range(int(most / step + 1e-9) + 1)]


def short(number: float) -> str:
    """A number in few letters: 950, 12.5K, 3.1M."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if abs(number) >= factor:
            return f"{number / factor:.3g}{letter}"
    return f"{number:.3g}"


def ink_on(fill: str) -> str:
    """Black or white, whichever is easier to read on a colour `#rrggbb`."""
    return "#000000" if contrast("#000000", fill) >= contrast("#ffffff", fill) else "#ffffff"


def contrast(a: str, b: str) -> float:
    """Contrast ratio of two colours (WCAG 2.1, relative luminance), from 1 to 21."""
    low, high = sorted((_luminance(a), _luminance(b)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def drawn(title: str, width: int, height: int, shapes: Iterable[Shape] | Sequence[Shape]) -> Drawing:
    return Drawing(title, width, height, tuple(shapes))


def _r(number: float) -> float:
    return round(number, 1)


# ---- Pictures of a report: memory over time, layers as bars, roofline, memory against time of other plans


WIDTH, LEFT, RIGHT = 900, 64, 14  # pixels
LANE, GAP, AXIS, TOP = 240, 26, 34, 22  # of a memory's lane, between lanes, below the last, above the first
MAX_BOXES, MAX_BARS = 700, 60
LABEL = 14  # pixels of a line of words
BAR, NAME = 16, 260  # height of a layer's bar, width of its name
Report = Mapping[str, Any]


def memory_picture(report: Report, scale: int | None = None) -> Drawing:
    """A lane for each memory: addresses upwards, steps to the right, a box for each buffer.

    A step is as wide as it has ops. Hatched: two buffers share bytes in this step, because the result is made over the
    operand. `scale`: bytes of a lane's height; by default those used of the memory.
    """
    edges = _edges(report)
    lanes = [name for name, size in report["ram"]["by_memory"].items() if size] or ["RAM"]
    across = (WIDTH - LEFT - RIGHT) / max(edges[-1], 1)
    own = [b for b in report["layout"]["buffers"] if "view_of" not in b]
    shown = sorted(own, key=lambda b: -b["bytes"])[:MAX_BOXES]
    shapes, top = list[Shape](), TOP
    for lane in lanes:
        used = report["ram"]["by_memory"].get(lane, 0)
        full = max(scale or used, 1)
        in_lane = [b for b in own if b["memory"] == lane and b in shown]
        shapes += _lane(lane, used, full, top)
        shapes += _boxes(in_lane, edges, across, LANE / full, top + LANE, own)
        top += LANE + GAP
    shapes += _step_axis(edges, across, top - GAP)
    caption = f"{report['model']['file']}: arena {report['ram']['arena_bytes']:,} B, {len(edges) - 1} steps"
    caption += f"; the largest {MAX_BOXES} of {len(own)} buffers" if len(own) > len(shown) else ""
    shapes.append(words(LEFT, 13, fitted(caption, WIDTH - LEFT)))
    return drawn(f"Memory over time: {caption}", WIDTH, top - GAP + AXIS, shapes)


def _edges(report: Report) -> list[int]:
    """Where each step begins, in ops; the last: where they end."""
    buffers, steps = report["layout"]["buffers"], report["schedule"]["steps"]
    widths = [max(1, len(step["ops"])) for step in steps]
    for b in buffers:
        if "calls" in b:
            widths[b["last"]] = max(widths[b["last"]], b["calls"][1] + 1)
    return [*accumulate(widths, initial=0)] if widths else [0, 1]


def _lane(name: str, used: int, full: int, top: float) -> Iterator[Shape]:
    up = LANE / full
    for mark in ticks(full):
        y = top + LANE - mark * up
        yield line(LEFT, y, WIDTH - RIGHT, y)
        yield words(LEFT - 5, y + 3.5, short(mark), "end", "muted")
    yield words(4, top + 8, fitted(name, LEFT - 8), role="muted")
    yield words(4, top + 20, "bytes", role="muted")
    yield line(LEFT, top + LANE - used * up, WIDTH - RIGHT, top + LANE - used * up, "limit")


def _boxes(
    buffers: Sequence[Report], edges: Sequence[int], across: float, up: float, ground: float, own: Sequence[Report]
) -> Iterator[Shape]:
    places = {b["name"]: _span(b, edges) for b in own}
    for b in buffers:
        first, past = places[b["name"]]
        name = f"{own.index(b)} {brief(b['name'])}"
        what = f"{name}, {b['rows']} rows" if "rows" in b else name
        title = f"{b['name']}: {b['bytes']:,} B at {b['offset']:,}, steps {b['first']} to {b['last']}"
        title += f", over {b['overlaps']}" if "overlaps" in b else ""
        x, y = LEFT + first * across, ground - (b["offset"] + b["bytes"]) * up
        yield from box(x, y, (past - first) * across, b["bytes"] * up, colour(own.index(b)), title, what)
    by_name = {b["name"]: b for b in own}
    for b in buffers:
        operand = by_name.get(b.get("overlaps", ""))
        if operand is not None and operand["memory"] == b["memory"]:
            yield from _overlap(b, operand, places, across, up, ground)


def brief(name: str) -> str:
    """The first of the names that exporters joined by `;`, with only the last two of its folders."""
    first, *others = name.split(";")
    mark = name[name.index(" (") :] if others and " (" in name else ""
    return "/".join(first.split("/")[-2:]) + mark


def _overlap(
    b: Report, operand: Report, places: Mapping[str, tuple[int, int]], across: float, up: float, ground: float
) -> Iterator[Shape]:
    """The steps and bytes that a result and the operand that it is made over have in common."""
    first = max(places[b["name"]][0], places[operand["name"]][0])
    past = min(places[b["name"]][1], places[operand["name"]][1])
    low = max(b["offset"], operand["offset"])
    high = min(b["offset"] + b["bytes"], operand["offset"] + operand["bytes"])
    if first < past and low < high:
        title = f"in place: {b['name']} is made over {operand['name']}"
        x, height = round(LEFT + first * across, 1), (high - low) * up
        label = LABEL if height > 2 * LABEL else 0  # left free for the name
        yield Shape("rect", x, round(ground - high * up + label, 1), round((past - first) * across, 1),
                    round(height - label, 1), title=title, role="shared")  # fmt: skip


def _span(b: Report, edges: Sequence[int]) -> tuple[int, int]:
    within = b.get("calls") or (0, edges[b["last"] + 1] - edges[b["last"]] - 1)
    return edges[b["first"]] + within[0], edges[b["last"]] + within[1] + 1


def _step_axis(edges: Sequence[int], across: float, y: float) -> Iterator[Shape]:
    yield line(LEFT, y, WIDTH - RIGHT, y, "axis")
    last = -LETTER * 4
    for step, at in enumerate(edges[:-1]):
        x = LEFT + at * across
        yield line(x, y, x, y + 4, "axis")
        if x - last >= LETTER * 4:
            yield words(x + 1, y + 14, str(step), role="muted")
            last = x
    yield words(WIDTH - RIGHT, y + 27, "step", "end", "muted")
    yield Shape("rect", LEFT, y + 18, 10.0, 10.0, role="shared")
    yield words(LEFT + 14, y + 27, "made over its operand", role="muted")


def bar_picture(rows: Sequence[Report], key: str, unit: str, title: str) -> Drawing:
    """A quantity of each layer as a bar, with its name and share; the last bar is the sum of all further layers."""
    named = [(row["name"], row["kind"], float(row.get(key, 0))) for row in rows]
    shown, rest = named[:MAX_BARS], named[MAX_BARS:]
    shown += [(f"{len(rest)} further layers", "", sum(n for *_, n in rest))] if rest else []
    total, most = sum(n for *_, n in named), max((n for *_, n in shown), default=0.0)
    across = (WIDTH - NAME - 150) / (most or 1)
    kinds = [*dict.fromkeys(kind for _, kind, _ in shown)]
    shapes = [words(4, 12, f"{title}: {total:,.0f} {unit} in all")]
    for number, (name, kind, n) in enumerate(shown):
        y = TOP + number * BAR
        label = fitted(f"{number} {name.split(';')[0]}", NAME - 10)
        shapes.append(words(NAME - 6, y + 11, label, "end", "ink"))
        hint = f"{name} ({kind}): {n:,.0f} {unit}"
        shapes += box(NAME, y + 2, max(n * across, 0.5), BAR - 4, colour(kinds.index(kind)), hint)
        shapes.append(
            words(NAME + n * across + 5, y + 11, f"{short(n)} ({100 * n / (total or 1):.1f} %)", role="muted")
        )
    end = TOP + len(shown) * BAR + 16
    shapes += legend(NAME, end, [(colour(i), kind) for i, kind in enumerate(kinds) if kind][:8])
    return drawn(title, WIDTH, end + 8, shapes)


def roofline(rows: Sequence[Report]) -> Drawing | None:
    """Work for each byte against speed, both logarithmic; the roofs are the best that layers of this build reach.

    None: no layer multiplies.
    """
    unit = "estimated_cycles" if rows and "estimated_cycles" in rows[0] else "estimated_instructions"
    points = []
    for row in rows:
        moved = row["read_bytes"] + row["written_bytes"] + row["weights_bytes"]
        if row["macs"] and moved and row[unit]:
            points.append((row["name"], row["kind"], row["macs"] / moved, row["macs"] / row[unit], moved / row[unit]))
    if not points:
        return None
    speed, rate = max(p[3] for p in points), max(p[4] for p in points)
    low_x, high_x = _decades([p[2] for p in points])
    low_y, high_y = _decades([p[3] for p in points])
    height, kinds = 300, [*dict.fromkeys(p[1] for p in points)]
    right, up = (WIDTH - LEFT - RIGHT) / (high_x - low_x), (height - 70) / (high_y - low_y)

    def at(x: float, y: float) -> tuple[float, float]:
        return LEFT + (log10(x) - low_x) * right, height - 46 - (log10(y) - low_y) * up

    shapes = [words(LEFT, 13, f"MACs a byte against MACs a {unit[10:-1]}; roofs: best of these layers")]
    for power in range(low_x, high_x + 1):
        x, y = at(10.0**power, 10.0**low_y)
        shapes += [line(x, 20, x, y), words(x, y + 13, f"{10.0**power:g}", "middle", "muted")]
    for power in range(low_y, high_y + 1):
        x, y = at(10.0**low_x, 10.0**power)
        shapes += [line(x, y, WIDTH - RIGHT, y), words(x - 5, y + 3.5, f"{10.0**power:g}", "end", "muted")]
    corner = min(max(speed / rate, 10.0**low_x), 10.0**high_x)
    start = max(10.0**low_x, 10.0**low_y / rate)
    shapes.append(polyline([at(start, start * rate), at(corner, speed), at(10.0**high_x, speed)]))
    for name, kind, x, y, _ in points:
        title = f"{name} ({kind}): {x:.2f} MACs a byte, {y:.3f} a {unit[10:-1]}"
        shapes.append(dot(*at(x, y), title, colour(kinds.index(kind)), 5.0))
    shapes += legend(LEFT, height - 8, [(colour(i), kind) for i, kind in enumerate(kinds)][:8])
    return drawn("Roofline of the layers", WIDTH, height, shapes)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    return low, max(high, low + 1)


def trade_picture(rows: Sequence[Report], file: str) -> Drawing:
    """Memory to the right, instructions upwards, both from zero; the plan's own cut in another colour."""
    height, most = 300, max(r["peak_bytes"] for r in rows)
    longest = max(r["estimated_instructions"] for r in rows)
    right, up = (WIDTH - LEFT - 40) / max(most, 1), (height - 76) / max(longest, 1)

    def at(row: Report) -> tuple[float, float]:
        return LEFT + row["peak_bytes"] * right, height - 46 - row["estimated_instructions"] * up

    shapes = [words(LEFT, 13, fitted(f"{file}: estimated instructions over bytes live at once", WIDTH - LEFT))]
    for mark in ticks(longest, 4):
        y = height - 46 - mark * up
        shapes += [line(LEFT, y, WIDTH - RIGHT, y), words(LEFT - 5, y + 3.5, short(mark), "end", "muted")]
    for mark in ticks(most, 8):
        x = LEFT + mark * right
        shapes += [line(x, height - 46, x, height - 42, "axis"), words(x, height - 31, short(mark), "middle", "muted")]
    shapes.append(polyline(at(row) for row in rows))
    for row in rows:
        title = f"{row['peak_bytes']:,} B, {row['estimated_instructions']:,} instructions, {row['calls']} calls"
        shapes.append(dot(*at(row), title, COLOURS[4] if row["chosen"] else COLOURS[0], 5.5 if row["chosen"] else 4.0))
    shapes += legend(LEFT, height - 8, [(COLOURS[4], "this plan"), (COLOURS[0], "other cuts")])
    shapes.append(words(WIDTH - RIGHT, height - 8, "bytes live at once", "end", "muted"))
    return drawn("Memory against time", WIDTH, height, shapes)


DOMAIN = "edgebuild"
IR_VERSION = 10  # the first in which nodes have metadata
MAX_MESSAGE = (1 << 31) - (1 << 20)  # bytes of a protobuf message, less room for names
INT64 = 1 << 63
NOT_OF_OPS = ("kind", "name")  # columns of a report's layers that the node says itself


def onnx_file(graph: Graph, report: Mapping[str, Any] | None = None) -> bytes:
    """The graph, valid for `onnx.checker`. With a report, each node has its row of layers and its result's place.

    Scales and zero points are quantisation annotations. Raises EdgebuildError for constants of over 2 GB.
    """
    from onnx import GraphProto, helper, numpy_helper

    read = dict.fromkeys(n for op in graph.ops for n in op.inputs)
    constants = [t for n in (*read, *graph.outputs) if (t := graph.tensors[n]).data is not None]
    if sum(t.bytes for t in constants) > MAX_MESSAGE:
        raise fail("constants of more than 2 GB do not go into an ONNX file", file=graph.file)
    drawn = GraphProto(name=graph.file)
    drawn.input.extend(_value(graph.tensors[name]) for name in graph.inputs)
    drawn.output.extend(_value(graph.tensors[name]) for name in dict.fromkeys(graph.outputs))
    results = [graph.result(op) for op in graph.ops]
    drawn.value_info.extend(_value(t) for t in results if t.name not in graph.outputs)
    drawn.initializer.extend(numpy_helper.from_array(t.array, t.name) for t in {t.name: t for t in constants}.values())
    drawn.node.extend(_nodes(graph, report or {"layers": (), "layout": {"buffers": ()}}))
    for name in dict.fromkeys((*graph.inputs, *read, *(t.name for t in results))):
        _annotate(drawn, graph.tensors[name])
    domains = [helper.make_opsetid(DOMAIN, 1), helper.make_opsetid("", 21)]
    model = helper.make_model(drawn, opset_imports=domains, ir_version=IR_VERSION, producer_name="edgebuild")
    if report:
        helper.set_model_props(model, {k: str(v) for k, v in {**report["totals"], **report["ram"]}.items()})
    return bytes(model.SerializeToString(deterministic=True))


def _value(t: Tensor) -> Any:
    import numpy as np
    from onnx import helper

    return helper.make_tensor_value_info(t.name, helper.np_dtype_to_tensor_dtype(np.dtype(t.dtype)), t.shape)


def _nodes(graph: Graph, report: Mapping[str, Any]) -> Iterator[Any]:
    from onnx import helper

    rows = {(row["kind"], row["name"]): row for row in report["layers"]}
    count = Counter((op.kind, op.name) for op in graph.ops)  # a node of the file may have become several ops
    places = {b["name"]: b for b in report["layout"]["buffers"]}
    for op in graph.ops:
        node = helper.make_node(op.kind, op.inputs, op.outputs, op.name, op.origin, DOMAIN)
        node.attribute.extend(helper.make_attribute(k, v) for k, v in sorted(_attributes(op)))
        place = {f"arena_{k}": places.get(op.outputs[0], {}).get(k) for k in ("memory", "offset", "bytes", "rows")}
        row = rows.get((op.kind, op.name), {}) if count[op.kind, op.name] == 1 else {}
        for key, value in {**row, **place}.items():
            if value is not None and key not in NOT_OF_OPS:
                node.metadata_props.add(key=key, value=str(value))
        yield node


def _attributes(op: Op) -> Iterator[tuple[str, Any]]:
    """Numbers, texts and rows of numbers as they are; values without an ONNX type as text; None is left out."""
    for key, value in op.attrs.items():
        of = {type(v) for v in value} if isinstance(value, tuple) else {type(value)}
        fits = of in ({int}, {bool}) and all(abs(v) < INT64 for v in (value if isinstance(value, tuple) else (value,)))
        if value is not None:
            yield key, value if fits or of in ({float}, {str}) else str(value)


def _annotate(drawn: Any, t: Tensor) -> None:
    """Add scales and zero points of a tensor, as initialisers that its annotation names."""
    import numpy as np
    from onnx import numpy_helper

    if t.quant is None:
        return
    note = drawn.quantization_annotation.add(tensor_name=t.name)
    for key, values, kind in (("SCALE", t.quant.scale, "f4"), ("ZERO_POINT", t.quant.zero_point, "i4")):
        name = f"{t.name} {key.lower().replace('_', ' ')}"
        drawn.initializer.append(numpy_helper.from_array(np.array(values, kind), name))
        note.quant_parameter_tensor_names.add(key=f"{key}_TENSOR", value=name)
