"""Measurements of a profiled model on a chip: the file that `edgebuild calibrate --fit` reads.

CSV with the header `what,config,step,phase,value`, or JSON, a list of objects with these members. Lines that begin
with # are passed over, so the output of the profiling firmware is such a file as it stands.

    what      cycles     of the core's clock, of one step in one configuration (or `us`, its time in microseconds)
              run_ma     supply current while the model runs
              sleep_ma   in Sleep mode with the clocks running
              lfo_ma     while SYSCLK is the HSE by the quick mux and the PLL runs on
              stop_ma    in a Stop mode
    config    as `edgebuild clock` names it: 216MHZ; of stop_ma the mode: main, low_power
    step      of cycles and us: the number of the step in the schedule, from 0
    phase     of these: access or execute of a decoupled step; empty: the whole step
    value     above 0; currents in mA

Several rows for the same thing are all used.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgebuild.base.errors import did_you_mean, fail
from edgebuild.base.inputs import JSON, read_text

from ...base.dataclass import dataclass

COLUMNS = ("what", "config", "step", "phase", "value")
KINDS = ("cycles", "us", "run_ma", "sleep_ma", "lfo_ma", "stop_ma")
PHASES = ("", "access", "execute")


@dataclass(frozen=True)
class Measurement:
    """One row; `line` is where it stands, of JSON its place in the list."""

    what: str
    config: str
    step: int | None
    phase: str
    value: float
    line: int


def read_measurements(file: Path) -> tuple[Measurement, ...]:
    """All rows of the file. Raises EdgebuildError with file and line."""
    text = read_text(file, "cannot read the measurements", JSON)
    rows = _json(text, file) if file.suffix == ".json" else _csv(text, file)
    measurements = tuple(_measurement(row, line, str(file)) for line, row in rows)
    if not measurements:
        raise fail("there are no measurements in it", file=str(file))
    return measurements


def read_supply_log(file: Path, configs: Sequence[str]) -> list[Measurement]:
    """`run_ma` of every configuration, from a record of the supply's current while the profiling firmware runs.

    CSV with the columns `ma` and `pin` (0 or 1), a line for each sample, as a program that reads an INA219 writes them;
    other columns are passed over. The pin is high once for each configuration, in their order. The first and the last
    sample of each time are of two states and left out. Raises EdgebuildError where there are not so many times.
    """
    text = read_text(file, "cannot read the log")
    try:
        rows = list(csv.DictReader(text.splitlines()))
    except csv.Error as error:
        raise fail(str(error), file=str(file)) from None
    if not rows or not {"ma", "pin"} <= rows[0].keys():
        raise fail("the first line does not name the columns ma and pin", file=str(file), line=1)
    times: list[list[tuple[int, float]]] = []
    before = False
    for line, row in enumerate(rows, 2):
        try:
            high, ma = bool(int(row["pin"])), float(row["ma"])
        except (TypeError, ValueError):
            raise fail(f"'{row['ma']}', '{row['pin']}': a current and 0 or 1 are expected", file=str(file),
                       line=line) from None  # fmt: skip
        if high:
            times += [] if before else [[]]
            times[-1].append((line, ma))
        before = high
    if len(times) != len(configs) or any(len(t) < 3 for t in times):
        shortest = min(map(len, times), default=0)
        raise fail(
            f"the pin is high {len(times)} times, for at least {shortest} samples",
            file=str(file),
            hints=[f"{len(configs)} times of 3 samples or more are expected: {', '.join(configs)}"],
        )
    inner = [t[1:-1] for t in times]
    return [Measurement("run_ma", c, None, "", sum(ma for _, ma in t) / len(t), t[0][0])
            for c, t in zip(configs, inner, strict=True)]  # fmt: skip


def _csv(text: str, file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.startswith("#")]
    if not lines:
        return
    header = tuple(word.strip() for word in lines[0][1].split(","))
    if header != COLUMNS:
        raise fail("the first line is not the header of a file of measurements", file=str(file), line=lines[0][0],
                   hints=["it is: " + ",".join(COLUMNS)])  # fmt: skip
    for n, line in lines[1:]:
        cells = next(csv.reader([line]))
        if len(cells) != len(COLUMNS):
            raise fail(f"{len(cells)} columns, not {len(COLUMNS)}", file=str(file), line=n,
                       hints=["they are: " + ",".join(COLUMNS)])  # fmt: skip
        yield n, dict(zip(COLUMNS, (c.strip() for c in cells), strict=True))


def _json(text: str, file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0)
        raise fail(f"not JSON: {getattr(error, 'msg', error)}", file=str(file), line=line) from None
    if not isinstance(data, list) or not all(isinstance(row, dict) for row in data):
        raise fail("a list of objects is expected", file=str(file), hints=["with the members " + ", ".join(COLUMNS)])
    for n, row in enumerate(data, 1):
        for key in row.keys() - set(COLUMNS):
            raise fail(f"object {n}: unknown member '{key}'{did_you_mean(key, COLUMNS)}", file=str(file))
        yield n, {c: "" if row.get(c) is None else str(row[c]) for c in COLUMNS}


def _measurement(row: dict[str, str], line: int, file: str) -> Measurement:
    what, config, phase = row["what"], row["config"], row["phase"]
    if what not in KINDS:
        hints = ["known: " + ", ".join(KINDS)]
        raise fail(f"'{what}' is not measured{did_you_mean(what, KINDS)}", file=file, line=line, hints=hints)
    if phase not in PHASES:
        raise fail(f"phase '{phase}'", file=file, line=line, hints=["access, execute, or nothing for the whole step"])
    of_step = what in ("cycles", "us")
    if of_step != row["step"].isdigit():
        text = (
            "the number of a step is missing" if of_step else f"{what} is not of a step, but there is '{row['step']}'"
        )
        raise fail(text, file=file, line=line)
    try:
        value = float(row["value"])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise fail(f"'{row['value']}' is not a number above 0", file=file, line=line)
    return Measurement(what, config, int(row["step"]) if of_step else None, phase, value, line)
