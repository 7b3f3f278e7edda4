"""The page about a model, or several: tables and pictures of their reports in one file that needs no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...base.templates import render
from .drawing import Drawing, bar_picture, brief, memory_picture, roofline, trade_picture
from .reports import FIGURES, comparison, figures

Report = dict[str, Any]
MOST_ROWS = 300  # of a table; the rest is one row
BARS = (
    ("estimated_cycles", "cycles", "Estimated cycles"),
    ("weights_bytes", "B", "Bytes of constants"),
    ("energy_uj", "uJ", "Energy"),
)


@dataclass(frozen=True)
class Table:
    """`numeric`: which columns are numbers. `total`: the last line, whose numbers are the sums of the rows'."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    total: tuple[Any, ...] = ()
    note: str = ""

    @property
    def numeric(self) -> tuple[bool, ...]:
        columns = range(len(self.head))
        return tuple(any(isinstance(row[column], (int, float)) for row in self.rows) for column in columns)


@dataclass(frozen=True)
class Part:
    """Tables and pictures under one title."""

    title: str
    items: tuple[Table | Drawing, ...]


def page(reports: Sequence[Report], earlier: Report | None = None) -> str:
    """HTML. `earlier`: a report that the first one is compared with."""
    parts = [_overview(reports)] if len(reports) > 1 else []
    for report in reports:
        parts += _parts(report, f"{report['model']['name']}: " if len(reports) > 1 else "")
    if earlier is not None:
        parts.insert(0, _changes(earlier, reports[0]))
    names = ", ".join(report["model"]["file"] for report in reports)
    return render("report.html.j2", title=names, parts=parts, kind_of=lambda item: type(item).__name__)


def _overview(reports: Sequence[Report]) -> Part:
    rows = [(r["model"]["file"], r["target"], *(figures(r).get(name, "") for name in FIGURES)) for r in reports]
    head = ("model", "target", *(f"{name} {unit}".strip() for name, unit in FIGURES.items()))
    return Part("Models", (Table("Figures", head, tuple(rows)),))


def _parts(report: Report, prefix: str) -> list[Part]:
    layers = report["layers"]
    bars = [bar_picture(layers, *bar) for bar in BARS if layers and bar[0] in layers[0]]
    if layers and "estimated_cycles" not in layers[0]:
        bars.insert(0, bar_picture(layers, "estimated_instructions", "instructions", "Estimated instructions"))
    roof = roofline(layers)
    trade = report.get("trade_off", ())
    parts = [
        Part(f"{prefix}summary", (_facts(report), _ram(report), _flash(report))),
        Part(f"{prefix}memory over time", (memory_picture(report), _buffers(report))),
        Part(f"{prefix}layers", (_layers(report), *bars, *([roof] if roof else []))),
    ]
    if report["tiling"]:
        parts.append(Part(f"{prefix}what was tiled", (_tiling(report),)))
    if len(trade) > 1:
        parts.append(Part(f"{prefix}memory against time", (trade_picture(trade, report["model"]["file"]),)))
    return parts


def _facts(report: Report) -> Table:
    rows = [("model", report["model"]["file"]), ("format", report["model"]["format"]), ("target", report["target"])]
    rows += [(name, _number(n, FIGURES[name])) for name, n in figures(report).items()]
    untiled, bound = report["ram"]["untiled_arena_bytes"], report["ram"]["lower_bound_bytes"]
    rows += [("arena with every layer whole", f"{untiled:,} B"), ("no layout takes less than", f"{bound:,} B")]
    rows += [(p["name"], f"{p['dtype']} {'x'.join(map(str, p['shape']))}") for p in report["inputs"]]
    rows += [(p["name"], f"{p['dtype']} {'x'.join(map(str, p['shape']))}") for p in report["outputs"]]
    return Table("Facts", ("what", "value"), tuple(rows))


def _number(number: float, unit: str) -> str:
    return f"{number:,.0f} {unit}".strip() if number >= 100 or number == int(number) else f"{number:.3g} {unit}"


def _ram(report: Report) -> Table:
    rows = tuple(report["ram"]["by_memory"].items())
    return Table("Arena", ("memory", "bytes"), rows, ("total", report["ram"]["arena_bytes"]))


def _flash(report: Report) -> Table:
    rom, totals = report["rom"], report["totals"]
    rows = (
        ("constants of layers", totals["weights_bytes"]),
        ("header", rom["header_bytes"]),
        ("padding", totals["padding_bytes"]),
        ("code, estimated", rom["estimated_code_bytes"]),
    )
    return Table("Flash", ("what", "bytes"), rows, ("total", rom["weights_bytes"] + rom["estimated_code_bytes"]))


def _layers(report: Report) -> Table:
    layers, totals = report["layers"], report["totals"]
    sums = ["calls", "macs", "weights_bytes", "estimated_instructions"]
    sums += [key for key in ("estimated_cycles",) if key in totals]
    keys = ["step", "name", "kind", "kernel", *sums]
    rows = [tuple(row[key] for key in keys) for row in layers[:MOST_ROWS]]
    if rest := layers[MOST_ROWS:]:
        rows.append(("", f"{len(rest)} further layers", "", "", *(sum(row[key] for row in rest) for key in sums)))
    head = tuple(key.replace("estimated_", "").replace("_bytes", " B") for key in keys)
    note = "Instructions and cycles are estimates. A click on a head sorts."
    return Table("Layers", head, tuple(rows), ("", "total", "", "", *(totals[key] for key in sums)), note)


def _buffers(report: Report) -> Table:
    rows, own = [], [b["name"] for b in report["layout"]["buffers"] if "view_of" not in b]
    for b in report["layout"]["buffers"][:MOST_ROWS]:
        notes = [f"view of {brief(b['view_of'])}"] if "view_of" in b else []
        notes += [f"over {brief(b['overlaps'])}"] if "overlaps" in b else []
        notes += [f"ring of {b['rows']} rows"] if "rows" in b else []
        number = own.index(b["name"]) if "view_of" not in b else ""
        rows.append(
            (number, brief(b["name"]), b["memory"], b["offset"], b["bytes"], b["first"], b["last"], ", ".join(notes))
        )
    more = len(report["layout"]["buffers"]) - len(rows)
    note = f"{more} further buffers are in the report." if more else ""
    return Table(
        "Buffers of the picture",
        ("box", "name", "memory", "offset", "bytes", "first", "last", "note"),
        tuple(rows),
        (),
        note,
    )


def _tiling(report: Report) -> Table:
    rows = [(t["kind"], ", ".join(t["ops"]), t["parts"], t["saved_bytes"], t["extra_macs"]) for t in report["tiling"]]
    sums = (sum(t[key] for t in report["tiling"]) for key in ("parts", "saved_bytes", "extra_macs"))
    total = ("total", "", *sums)
    return Table("Runs and paths", ("kind", "ops", "parts", "saved B", "extra macs"), tuple(rows), total)


def _changes(old: Report, new: Report) -> Part:
    compared = comparison(old, new)
    rows = [(row["figure"], *(_shown(row[key]) for key in ("old", "new", "change"))) for row in compared["figures"]]
    ops: list[tuple[Any, ...]] = [("added", name, "") for name in compared["ops"]["added"]]
    ops += [("removed", name, "") for name in compared["ops"]["removed"]]
    ops += [("changed", row["name"], _words(row)) for row in compared["ops"]["changed"]]
    tables = [Table("Figures", ("figure", "old", "new", "change %"), tuple(rows))]
    tables += [Table("Layers that differ", ("how", "name", "old -> new"), tuple(ops[:MOST_ROWS]))] if ops else []
    return Part(f"changes since {old['model']['file']} on {old['target']}", tuple(tables))


def _shown(number: float | None) -> float | str:
    return "" if number is None else round(number, 2)


def _words(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {pair[0]} -> {pair[1]}" for key, pair in row.items() if isinstance(pair, list))
