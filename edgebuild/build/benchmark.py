"""A table of figures over models and targets: counted if an emulator runs the target, else modelled.

Columns are fixed, and two runs on the same input differ only in `seconds`. `change` columns are in percent, against the
row of the same model and target in an earlier table.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.errors import EdgebuildError, MissingTool, fail
from ..base.inputs import read_json
from ..base.progress import say, warn
from ..base.request import ModelRequest
from ..base.target import load_target
from ..model.compile import compile_model
from ..model.verify import report_of, verify
from ..model.views.reports import change, figures

SCHEMA = 1
NAMES, STATE = ("model", "target"), ("basis", "fits", "equal")
SIZES = ("arena", "flash", "code", "weights", "stack")
WORK = ("macs", "instructions", "cycles", "time", "energy")
COMPARED = ("arena", "flash", "instructions", "time")
COLUMNS = (*NAMES, *STATE, *SIZES, *WORK, *(f"{name} change" for name in COMPARED), "seconds")
UNITS = {**dict.fromkeys(SIZES, "B"), "time": "us", "energy": "uJ", "seconds": "s"}
COUNTED = {"arena": "arena_bytes", "flash": "flash_bytes", "code": "code_bytes", "weights": "weights_bytes",
           "stack": "stack_bytes", "instructions": "instructions", "macs": "macs"}  # fmt: skip
Row = dict[str, Any]


def table(requests: Iterable[ModelRequest], base: Path | None) -> dict[str, Any]:
    """A row for each request, in order. Raises EdgebuildError if a model or the table `base` cannot be read."""
    before = {(row["model"], row["target"]): row for row in (_rows_of(base) if base else ())}
    rows = []
    for request in requests:
        say(f"{request.source.name} on {request.target}")
        rows.append(_compared(measured(request), before))
    return {"schema": SCHEMA, "kind": "bench", "columns": list(COLUMNS), "units": UNITS, "rows": rows}


def measured(request: ModelRequest) -> Row:
    """The figures of one model on one target. `basis`: whether code and instructions are counted or modelled."""
    began = time.perf_counter()
    row: Row = dict.fromkeys(COLUMNS)
    row |= {"model": request.source.name, "target": load_target(request.target).name, "basis": "modelled"}
    try:
        artifacts = compile_model(request)
    except EdgebuildError as problem:
        if not problem.diagnostics[0].text.startswith("does not fit"):
            raise
        return row | {"fits": False, "seconds": round(time.perf_counter() - began, 2)}
    row |= {name: _rounded(n) for name, n in figures(report_of(artifacts)).items() if name in COLUMNS} | {"fits": True}
    target = load_target(request.target)
    if target.firmware is not None and target.runner is not None and not target.runner.port:
        try:
            result = verify(request.source, target, artifacts, reading=(request.shape, request.outputs))
            row |= {name: result[key] for name, key in COUNTED.items()} | {"basis": "counted", "equal": result["equal"]}
        except MissingTool as missing:
            warn(missing.diagnostics[0])
    return row | {"seconds": round(time.perf_counter() - began, 2)}


def _rounded(number: float) -> float:
    return number if isinstance(number, int) else round(number, 1)


def _rows_of(base: Path) -> list[Row]:
    data = read_json(base, "not a table of `edgebuild bench`")
    rows = data.get("rows") if isinstance(data, dict) and data.get("kind") == "bench" else None
    names = (*NAMES, *COMPARED)
    if data.get("schema") != SCHEMA if rows is not None else True:
        raise fail("not a table of `edgebuild bench`", file=str(base), hints=["name the bench.json of an earlier run"])
    if not isinstance(rows, list) or not all(isinstance(r, dict) and r.keys() >= {*names} for r in rows):
        raise fail("not a table of `edgebuild bench`: rows lack columns", file=str(base), hints=["run bench again"])
    return rows


def _compared(row: Row, before: Mapping[tuple[str, str], Row]) -> Row:
    """The row with its changes; None if a figure is missing in either table, or has another basis."""
    old = before.get((row["model"], row["target"]))
    for name in COMPARED if old is not None else ():
        was, now = ({name: r[name]} if isinstance(r[name], (int, float)) else {} for r in (old or {}, row))
        same = name == "arena" or (old or {}).get("basis") == row["basis"]
        row[f"{name} change"] = change(was, now, name) if same else None
    return row


def as_csv(data: Mapping[str, Any]) -> str:
    """The table as CSV; an empty cell is a missing figure."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(data["rows"])
    return text.getvalue()


def as_markdown(data: Mapping[str, Any]) -> str:
    """The table in Markdown, with changes beside their figures."""
    shown = [name for name in COLUMNS if not name.endswith(" change")]
    head = [f"{name} [{UNITS[name]}]" if name in UNITS else name for name in shown]
    body = [[_cell(row, name) for name in shown] for row in data["rows"]]
    widths = [max(map(len, cells)) for cells in zip(head, *body, strict=True)]
    left = len(NAMES) + len(STATE)
    rule = [("-" * w if i < left else "-" * (w - 1) + ":") for i, w in enumerate(widths)]
    lines = [[f"{c:<{w}}" if i < left else f"{c:>{w}}" for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
             for cells in (head, *body)]  # fmt: skip
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (lines[0], rule, *lines[1:]))


def _cell(row: Row, name: str) -> str:
    value, changed = row[name], row.get(f"{name} change")
    text = "" if value is None else {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        text = f"{value:,}"
    words: Sequence[str] = [text] if changed is None else [text, "(=)" if not changed else f"({changed:+.2f} %)"]
    return " ".join(words).replace("|", "\\|")
