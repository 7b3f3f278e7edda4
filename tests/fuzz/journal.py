"""Findings of a run, on disk after every unit: an interrupted run keeps them, and the next one goes on from them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .units import Result, Unit

KINDS = {"wrong": ("wrong", "crash"), "tracebacks": ("traceback", "timeout"), "does_not_compile": ("does_not_compile",)}
OFTEN = 3  # causes that were seen as often as this need no further small case


class Journal:
    """A line of `fuzz/journal.jsonl` for every unit, and `fuzz.json`, which sums up the units of this run."""

    def __init__(self, output: Path, resume: bool) -> None:
        self.output, self.file = output, output / "fuzz" / "journal.jsonl"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.results: dict[str, Result] = {}
        lines = self.file.read_text(encoding="utf-8").splitlines() if resume and self.file.exists() else []
        for line in lines:
            try:
                result = Result(**json.loads(line))
            except (ValueError, TypeError):  # the end of a run that was killed
                continue
            self.results[result.unit] = result
        self.file.write_text("".join(_line(r) for r in self.results.values()), encoding="utf-8")

    def missing(self, units: Iterable[Unit]) -> list[Unit]:
        """Units that have not run, or that failed."""
        return [u for u in units if u.name not in self.results or self.results[u.name].failures]

    def add(self, result: Result) -> None:
        self.results[result.unit] = result
        with self.file.open("a", encoding="utf-8") as file:
            file.write(_line(result))

    def common(self) -> frozenset[str]:
        counts = Counter(cause for result in self.results.values() for cause in result.causes)
        return frozenset(cause for cause, count in counts.items() if count >= OFTEN)

    def summary(self, units: Iterable[Unit]) -> dict[str, Any]:
        """Counts over the units that have run."""
        done = [self.results[u.name] for u in units if u.name in self.results]
        kinds = Counter(failure["kind"] for result in done for failure in result.failures)
        refused, programs, planned, mutants = (Counter[str]() for _ in range(4))
        for result in done:
            refused.update(result.refused)
            programs.update(result.programs)
            planned.update(result.planned)
            mutants.update(result.mutants)
        return {
            **{name: sum(kinds[k] for k in of) for name, of in KINDS.items()},
            "not_least": kinds["not_least"],
            "unexplained": kinds["unexplained"],
            "missed": kinds["missed"],
            "false_alarms": kinds["false_alarm"],
            "cases": [failure["command"] for result in done for failure in result.failures],
            "runs": sum(result.runs for result in done),
            "networks": sum(result.networks for result in done),
            "streams": sum(result.streams for result in done),
            "equal_plans": sum(result.equal_plans for result in done),
            "units": len(done),
            "programs": dict(sorted(programs.items())),
            "planned": dict(sorted(planned.items())),
            "refused": dict(refused.most_common()),
            "mutants": dict(sorted(mutants.items())),
        }

    def write(self, units: Iterable[Unit], more: dict[str, Any]) -> dict[str, Any]:
        """`fuzz.json`, whole at every moment."""
        summary = {**self.summary(units), **more}
        part = self.output / "fuzz.json.part"
        part.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
        part.replace(self.output / "fuzz.json")
        return summary


def _line(result: Result) -> str:
    return json.dumps(asdict(result)) + "\n"
