"""Reports as views read them: from a file, of this schema or refused, and their figures by name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.errors import fail
from ...base.inputs import read_bytes

SCHEMA = 2
MOST = 1 << 28  # bytes of a report
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
    try:
        data = json.loads(read_bytes(file, most=MOST))
    except (ValueError, RecursionError) as error:
        raise fail(f"not a report: {error}", file=str(file), hints=["NAME_report.json is one"]) from None
    if not isinstance(data, dict) or "schedule" not in data or "layout" not in data:
        raise fail("not a report of a model", file=str(file), hints=["NAME_report.json is one"])
    if data.get("schema") != SCHEMA:
        text = f"a report of schema {data.get('schema')}, and this is edgebuild with schema {SCHEMA}"
        raise fail(text, file=str(file), hints=["compile the model again, or name the model instead"])
    return data


def figures(report: dict[str, Any]) -> dict[str, float]:
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


# ---- x


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
    per_us, at = _rate(report), 0.0
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
    """Buffers of a step; one that lies over another counts for what it has besides."""
    buffers = [b for b in report["layout"]["buffers"] if "view_of" not in b and b["first"] <= step <= b["last"]]
    names = {b["name"] for b in buffers}
    return (b for b in buffers if b.get("overlaps") not in names)


def _rate(report: Report) -> float:
    """Cycles, or instructions, of a microsecond."""
    return report["clock_hz"] / 1e6 if "estimated_cycles" in report["totals"] and report["clock_hz"] else 1000.0


def _cost(row: Report) -> float:
    return float(row.get("estimated_cycles", row["estimated_instructions"]))


def _named(pid: int, tid: int, what: str, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _span(name: str, pid: int, tid: int, at: float, span: float, args: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "X", "pid": pid, "tid": tid, "ts": at, "dur": span, "args": dict(args)}
