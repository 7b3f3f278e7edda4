"""The rows of `edgebuild fit` as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...base.request import ModelRequest
from .chips import CYCLES, FitRow

SCHEMA = 1
BEST = 3  # rows that stand first by themselves
UNITS = {"ram_bytes": ("RAM", "B"), "flash_bytes": ("flash", "B"), "time_us": ("time", "us")}


def as_json(rows: Sequence[FitRow], request: ModelRequest) -> str:
    """All rows in their order. What is not known is null; `short_of` is empty for a target that fits."""
    data = {
        "schema": SCHEMA,
        "model": request.source.name,
        "basis": {"arena_bytes": "as compiled", "flash_bytes": "code estimated", "time_us": CYCLES},
        "rows": [_row(row) for row in rows],
    }
    return json.dumps(data, indent=1) + "\n"


def _row(row: FitRow) -> dict[str, Any]:
    return {
        "target": row.target.name,
        "description": row.target.description,
        "fits": row.fits,
        "arena_bytes": row.arena_bytes,
        "flash_bytes": row.flash_bytes,
        "time_us": _rounded(row.time_us),
        "energy_uj": _rounded(row.energy_uj),
        "tiled": row.tiled,
        "ram_bytes": row.ram,
        "rom_bytes": row.flash,
        "short_of": dict(row.short_of),
    }


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 1)


def as_text(rows: Sequence[FitRow], request: ModelRequest, short: bool) -> str:
    """A line for each row, the best by themselves first; `short`: without head and end."""
    fitting = sum(row.fits for row in rows)
    width = max((len(row.target.name) for row in rows), default=6)
    head = f"  {'target':{width}} {'arena':>9} {'of RAM':>6} {'flash':>10} {'of':>5} {'ms':>9} {'uJ':>9}"
    lines = [] if short else [f"{request.source.name}: fits {fitting} of {len(rows)} targets"]
    lines.append(head)
    lines += [_line(row, width) for row in rows[:BEST]]
    lines += ["", *(_line(row, width) for row in rows[BEST:])] if len(rows) > BEST else []
    if not short:
        lines += ["", f"{CYCLES}; energy: at that clock", "first: the chips of least memory that the model fits"]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _line(row: FitRow, width: int) -> str:
    words = [f"{row.arena_bytes:>9,} {_share(row.arena_bytes, row.ram)}" if row.arena_bytes is not None else " " * 16]
    words += [f"{row.flash_bytes:>10,} {_share(row.flash_bytes, row.flash, 5)}" if row.flash_bytes else " " * 16]
    words.append(f"{row.time_us / 1000:>9.2f}" if row.time_us is not None else " " * 9)
    words.append(f"{row.energy_uj:>9.1f}" if row.energy_uj is not None else " " * 9)
    missing = [
        f"{UNITS[key][0]} by {n:,} {UNITS[key][1]}" if n is not None else f"a model of {UNITS[key][0]}"
        for key, n in row.short_of.items()
    ]
    note = f"short of {', '.join(missing)}" if missing else "tiled" if row.tiled else ""
    return f"{'+' if row.fits else '-'} {row.target.name:{width}} {' '.join(words)}  {note}"


def _share(part: int, whole: int, width: int = 6) -> str:
    return f"{100 * part / max(whole, 1):.0f}%".rjust(width)
