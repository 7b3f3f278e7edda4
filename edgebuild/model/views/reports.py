"""Reports as views read them: from a file, of this schema or refused, and their figures by name."""

from __future__ import annotations

import json
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
