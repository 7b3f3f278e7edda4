"""Reports: read from a file, compared with limits at which a build fails, and shown as a page of HTML.

A file of another schema is refused. Comparisons cover figures, ops and interfaces; results can be JUnit's XML.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from ...base.errors import did_you_mean, fail
from ...base.inputs import read_json
from ...base.options import parse_size
from ...base.templates import render
from .drawing import Drawing, bar_picture, brief, memory_picture, roofline, trade_picture

SCHEMA = 2
FIGURES = {
    "arena": "B",
    "flash": "B",
    "weights": "B",
    "code": "B",
    "macs": "",
    "instructions": "",
    "cycles": "",
    "time": "us",
    "energy": "uJ",
}


def is_report(file: Path) -> bool:
    """Whether a file is meant as a report and not as a model."""
    return file.suffix == ".json"


def read_report(file: Path) -> dict[str, Any]:
    """A report of this schema. Raises EdgebuildError for any other file."""
    data = read_json(file, "not a report")
    if not isinstance(data, dict) or "schedule" not in data or "layout" not in data:
        raise fail("not a report of a model", file=str(file), hints=["NAME_report.json is one"])
    if data.get("schema") != SCHEMA:
        text = f"a report of schema {data.get('schema')}, and this is edgebuild with schema {SCHEMA}"
        raise fail(text, file=str(file), hints=["compile the model again, or name the model instead"])
    return data


@contextmanager
def checked_reports(*files: Path | None) -> Iterator[None]:
    """Raise EdgebuildError if one of the files is a report whose members are not those that edgebuild writes."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reports = [str(file) for file in files if file and is_report(file)]
        if not reports:
            raise
        text = f"not a report as edgebuild writes it: {type(error).__name__}: {error}"
        raise fail(text, file=reports[0], hints=[f"or it is {', '.join(reports[1:])}"][: len(reports) - 1]) from error


def figures(report: Report) -> dict[str, float]:
    """The figures that the report has, by the names of FIGURES."""
    rom, totals = report["rom"], report["totals"]
    stated: dict[str, float | None] = {
        "arena": report["ram"]["arena_bytes"],
        "flash": rom["weights_bytes"] + rom["estimated_code_bytes"],
        "weights": rom["weights_bytes"],
        "code": rom["estimated_code_bytes"],
        "macs": report["macs"]["generated"],
        "instructions": totals["estimated_instructions"],
        "cycles": totals.get("estimated_cycles"),
        "time": report["energy"]["time_us"] if "energy" in report else totals.get("estimated_time_us"),
        "energy": report.get("energy", {}).get("energy_uj"),
    }
    return {name: number for name, number in stated.items() if number is not None}


# ---- Trace events: steps, ops and copies over time, in the JSON format of Chrome's tracing


Report = Mapping[str, Any]
STEPS, OPS, DMA = 1, 2, 3  # threads


def trace(reports: Sequence[Report]) -> str:
    events = [event for pid, report in enumerate(reports, 1) for event in _events(report, pid)]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, indent=0) + "\n"


def _events(report: Report, pid: int) -> Iterator[dict[str, Any]]:
    yield _named(pid, 0, "process_name", f"{report['model']['name']} on {report['target']}")
    for tid, name in ((STEPS, "steps"), (OPS, "ops"), (DMA, "DMA")):
        yield _named(pid, tid, "thread_name", name)
    copies = {row["node"]: row["dma_cycles"] for row in report.get("hierarchy", {}).get("layers", ())}
    timed = "estimated_cycles" in report["totals"] and report["clock_hz"]
    per_us, at = report["clock_hz"] / 1e6 if timed else 1000.0, 0.0  # cycles, or instructions
    for step, facts in enumerate(report["schedule"]["steps"]):
        rows = [row for row in report["layers"] if row["step"] == step]
        spans = [_cost(row) / per_us for row in rows]
        name = report["schedule"]["order"][step]
        live = {m: sum(b["bytes"] for b in _live(report, step) if b["memory"] == m) for m in report["ram"]["by_memory"]}
        for memory, size in live.items():
            yield {"name": f"{memory} bytes", "ph": "C", "pid": pid, "ts": at, "args": {"live": size}}
        args = {"step": step, "macs": facts["macs"], "calls": facts["calls"], "live_bytes": facts["live_bytes"]}
        yield _span(name, pid, STEPS, at, sum(spans), args)
        if copies.get(name):
            yield _span(f"copies of {name}", pid, DMA, at, copies[name] / per_us, {"cycles": copies[name]})
        for row, span in zip(rows, spans, strict=True):
            shown = {key: row[key] for key in ("kind", "kernel", "calls", "macs", "weights_bytes")}
            yield _span(row["name"], pid, OPS, at, span, shown)
            at += span
    for memory in report["ram"]["by_memory"]:
        yield {"name": f"{memory} bytes", "ph": "C", "pid": pid, "ts": at, "args": {"live": 0}}


def _live(report: Report, step: int) -> Iterator[Report]:
    """Buffers of a step, without those that lie over another buffer of the step."""
    buffers = [b for b in report["layout"]["buffers"] if "view_of" not in b and b["first"] <= step <= b["last"]]
    names = {b["name"] for b in buffers}
    return (b for b in buffers if b.get("overlaps") not in names)


def _cost(row: Report) -> float:
    return float(row.get("estimated_cycles", row["estimated_instructions"]))


def _named(pid: int, tid: int, what: str, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _span(name: str, pid: int, tid: int, at: float, span: float, args: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "X", "pid": pid, "tid": tid, "ts": at, "dur": span, "args": dict(args)}


COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
LIMIT = re.compile(r"\s*([a-z]+)\s*(>=|<=|>|<)\s*([+-]?)\s*([0-9][^%\s]*)\s*(%?)\s*")


@dataclass(frozen=True)
class Limit:
    """A condition under which a comparison fails, such as `arena>+2%`.

    With a sign, the change is compared: in percent of the old figure, or as a number; without one, the new figure.
    """

    text: str
    figure: str
    compare: str
    sign: str
    number: float
    percent: bool

    def broken(self, old: Mapping[str, float], new: Mapping[str, float]) -> bool:
        """Whether the new report breaks the limit. Raises EdgebuildError if a report does not have the figure."""
        for which, figures_of in (("old", old), ("new", new)):
            if self.figure not in figures_of:
                hints = ["it has: " + ", ".join(figures_of)]
                raise fail(f"option 'fail-if': the {which} report has no '{self.figure}'", hints=hints)
        value = new[self.figure]
        if self.sign:
            value -= old[self.figure]
            value *= 100 / (old[self.figure] or 1) if self.percent else 1
        return bool(COMPARE[self.compare](value, -self.number if self.sign == "-" else self.number))


def limit_of(text: str) -> Limit:
    """Parse a condition. Raises EdgebuildError for an invalid one."""
    hints = ["such as 'arena>+2%', 'flash>+1K' or 'cycles>3000000'"]
    match = LIMIT.fullmatch(text)
    if match is None:
        raise fail(f"option 'fail-if': '{text}' is no condition", hints=hints)
    name, compare, sign, number, percent = match.groups()
    if name not in FIGURES:
        hints = ["figures: " + ", ".join(FIGURES)]
        raise fail(f"option 'fail-if': no figure '{name}'{did_you_mean(name, FIGURES)}", hints=hints)
    if percent and not sign:
        raise fail(f"option 'fail-if': '{text}': a percentage is of the old figure, so it has a sign", hints=hints)
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", number):
        value = float(number)
    elif percent:
        raise fail(f"option 'fail-if': '{number}' is no number", hints=hints)
    else:
        value = float(parse_size("fail-if", number))
    return Limit(text.strip(), name, compare, sign, value, bool(percent))


def comparison(old: Report, new: Report, limits: Sequence[Limit] = ()) -> dict[str, Any]:
    """All differences of two reports; each row of `limits` has whether the new report breaks it."""
    before, after = figures(old), figures(new)
    rows = [
        {"figure": name, "old": before.get(name), "new": after.get(name), "change": change(before, after, name)}
        for name in FIGURES
        if name in before or name in after
    ]
    return {
        "schema": 1,
        "models": [old["model"]["file"], new["model"]["file"]],
        "targets": [old["target"], new["target"]],
        "figures": rows,
        "ops": _ops(old, new),
        "surface": _surface(old, new),
        "limits": [{"limit": limit.text, "broken": limit.broken(before, after)} for limit in limits],
    }


def change(before: Mapping[str, float], after: Mapping[str, float], name: str) -> float | None:
    """Change of a figure in percent of the old one; None: a report lacks it, or the old one is 0."""
    if name not in before or name not in after:
        return None
    if not before[name]:
        return 0.0 if not after[name] else None
    return round(100 * (after[name] / before[name] - 1), 4)


def _ops(old: Report, new: Report) -> dict[str, Any]:
    """Ops that only one report has, and those whose work, constants or kernel differ."""
    new_rows, old_rows = ({row["name"]: row for row in report["layers"]} for report in (new, old))
    keys = ("kind", "kernel", "calls", "macs", "weights_bytes", "estimated_instructions")
    changed = []
    for name in new_rows.keys() & old_rows.keys():
        differing = {
            k: [old_rows[name].get(k), new_rows[name].get(k)]
            for k in keys
            if old_rows[name].get(k) != new_rows[name].get(k)
        }
        if differing:
            changed.append({"name": name, **differing})
    return {
        "added": [name for name in new_rows if name not in old_rows],
        "removed": [name for name in old_rows if name not in new_rows],
        "changed": sorted(changed, key=lambda row: list(new_rows).index(row["name"])),
    }


def _surface(old: Report, new: Report) -> list[dict[str, Any]]:
    """Inputs and outputs by position whose name, type, shape or quantisation differ."""
    changed = list[dict[str, Any]]()
    for side in ("inputs", "outputs"):
        for number in range(max(len(old[side]), len(new[side]))):
            a, b = (r[side][number] if number < len(r[side]) else {} for r in (old, new))
            differing = {k: [a.get(k), b.get(k)] for k in sorted(a.keys() | b.keys()) if a.get(k) != b.get(k)}
            if differing:
                changed.append({"port": f"{side[:-1]} {number}", **differing})
    return changed


def as_text(compared: Mapping[str, Any]) -> str:
    """A table of the figures, then all other differences."""
    lines = [f"{' -> '.join(dict.fromkeys(compared['models']))} on {' -> '.join(dict.fromkeys(compared['targets']))}"]
    lines.append(f"  {'figure':13} {'old':>14} {'new':>14} {'change':>10}")
    for row in compared["figures"]:
        old, new = ("" if n is None else f"{n:,.0f}" for n in (row["old"], row["new"]))
        change = "" if row["change"] is None else f"{row['change']:+.2f} %" if row["change"] else "="
        lines.append(f"  {row['figure']:13} {old:>14} {new:>14} {change:>10}")
    ops = compared["ops"]
    lines += [f"  + op {name}" for name in ops["added"]] + [f"  - op {name}" for name in ops["removed"]]
    for row in (*ops["changed"], *compared["surface"]):
        what = row.get("port") or f"op {row['name']}"
        words = [f"{k} {v[0]} -> {v[1]}" for k, v in row.items() if isinstance(v, list)]
        lines.append(f"  ~ {what}: {', '.join(words)}")
    lines += [f"  {'BROKEN' if each['broken'] else 'kept  '} {each['limit']}" for each in compared["limits"]]
    return "\n".join(lines) + "\n"


def as_junit(compared: Mapping[str, Any]) -> str:
    """A test case for each limit, or one for the comparison if there are none."""
    suite, cases = quoteattr(f"edgebuild diff {' '.join(dict.fromkeys(compared['models']))}"), list[str]()
    rows = {row["figure"]: row for row in compared["figures"]}
    for each in compared["limits"]:
        row = rows[limit_of(each["limit"]).figure]
        was_is = f"{row['figure']} was {row['old']:g}, is {row['new']:g}"
        failure = f"<failure message={quoteattr(was_is)}/>" if each["broken"] else ""
        cases.append(f"  <testcase classname={suite} name={quoteattr(each['limit'])}>{failure}</testcase>")
    cases = cases or [f'  <testcase classname={suite} name="compared"></testcase>']
    broken = sum(each["broken"] for each in compared["limits"])
    head = f'<testsuite name={suite} tests="{len(cases)}" failures="{broken}" errors="0">'
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *cases, "</testsuite>", ""])


# The page about a model, or several: tables and pictures of their reports in one file that needs no other.

MAX_ROWS = 300  # of a table; the rest is one row
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
    """The page of the reports as HTML. `earlier`: a report that the first one is compared with."""
    parts = list[Part]()
    if len(reports) > 1:
        rows = [(r["model"]["file"], r["target"], *(figures(r).get(name, "") for name in FIGURES)) for r in reports]
        head = ("model", "target", *(f"{name} {unit}".strip() for name, unit in FIGURES.items()))
        parts.append(Part("Models", (Table("Figures", head, tuple(rows)),)))
    for report in reports:
        parts += _parts(report, f"{report['model']['name']}: " if len(reports) > 1 else "")
    if earlier is not None:
        parts.insert(0, _changes(earlier, reports[0]))
    names = ", ".join(report["model"]["file"] for report in reports)
    return render("report.html.j2", title=names, parts=parts, kind_of=lambda item: type(item).__name__)


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
    rows = [tuple(row[key] for key in keys) for row in layers[:MAX_ROWS]]
    if rest := layers[MAX_ROWS:]:
        rows.append(("", f"{len(rest)} further layers", "", "", *(sum(row[key] for row in rest) for key in sums)))
    head = tuple(key.replace("estimated_", "").replace("_bytes", " B") for key in keys)
    note = "Instructions and cycles are estimates. A click on a head sorts."
    return Table("Layers", head, tuple(rows), ("", "total", "", "", *(totals[key] for key in sums)), note)


def _buffers(report: Report) -> Table:
    rows, own = [], [b["name"] for b in report["layout"]["buffers"] if "view_of" not in b]
    for b in report["layout"]["buffers"][:MAX_ROWS]:
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
    rows = [
        (row["figure"], *("" if row[key] is None else round(row[key], 2) for key in ("old", "new", "change")))
        for row in compared["figures"]
    ]
    ops: list[tuple[Any, ...]] = [("added", name, "") for name in compared["ops"]["added"]]
    ops += [("removed", name, "") for name in compared["ops"]["removed"]]
    ops += [("changed", row["name"], _words(row)) for row in compared["ops"]["changed"]]
    tables = [Table("Figures", ("figure", "old", "new", "change %"), tuple(rows))]
    tables += [Table("Layers that differ", ("how", "name", "old -> new"), tuple(ops[:MAX_ROWS]))] if ops else []
    return Part(f"changes since {old['model']['file']} on {old['target']}", tuple(tables))


def _words(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {pair[0]} -> {pair[1]}" for key, pair in row.items() if isinstance(pair, list))
