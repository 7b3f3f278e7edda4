"""The time of a simulated cluster: counted instructions at the clock of each core, bytes at the rate of the medium."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...base.target import Target
from ..cluster.products import BuiltCluster
from ..ops.moves import EVERYONE
from ..plan.distribute.timeline import ComputeSpan, Receive, Send, Step, Timeline, simulate
from .relay import RECEIVE, SEND, LinkEvent


def instructions_of(ticks: int, target: Target) -> float:
    """Executed instructions: an Arm board's timer ticks at its rate, while an instruction takes a nanosecond."""
    rate = target.runner.tick_hz if target.runner else 0
    return ticks * 1e9 / rate if rate else float(ticks)


def simulated_times(
    made: BuiltCluster, events: Mapping[int, Sequence[LinkEvent]]
) -> tuple[dict[str, float | bool], dict[int, int]]:
    """Microseconds of an inference, as predicted and as simulated; and instructions of each device, waits left out.

    An inference lasts from one START of the source to its next, so the first and the last one do not count.
    """
    cluster, parts = made.chosen.plan.cluster, {p.number: p for p in made.parts}
    programs: list[list[Step]] = [[] for _ in cluster.devices]
    for k, some in events.items():
        programs[k] = _program(k, some, parts[k].target, cluster.devices[k].hz, sorted(parts))
    found = simulate(programs, cluster.medium)
    marks = _starts(events[made.source], found, made.source)
    rounds = len(marks) - 1
    simulated = (marks[-1] - marks[0]) / rounds
    predicted = made.report["time_us"]
    counted = {
        k: sum(instructions_of(e.ticks, parts[k].target) for e in _between(some, k == made.source)) / rounds
        for k, some in events.items()
    }
    found_times = {
        "one_device": predicted["one_device"],
        "predicted": predicted["cluster"],
        "simulated": round(simulated, 3),
        "error": round(predicted["cluster"] / simulated - 1, 4),
        "faster": simulated < predicted["one_device"],
    }
    return found_times, {k: round(n) for k, n in counted.items()}


def unsent_times(made: BuiltCluster) -> dict[str, float | bool | None]:
    """The same keys where nothing is sent: there is no message between which to count, so nothing is simulated."""
    predicted = made.report["time_us"]
    known = {"one_device": predicted["one_device"], "predicted": predicted["cluster"]}
    return {**known, "simulated": None, "error": None, "faster": False}


def _program(k: int, events: Sequence[LinkEvent], target: Target, hz: float, everyone: Sequence[int]) -> list[Step]:
    steps: list[Step] = []
    for e in events:
        steps.append(ComputeSpan(instructions_of(e.ticks, target) / hz * 1e6))
        if e.what == SEND:
            to = tuple(p for p in everyone if p != k) if e.device == EVERYONE else (e.device,)
            steps.append(Send(to, e.bytes, e.begins))
        elif e.what == RECEIVE:
            steps.append(Receive(e.device, e.bytes))
    return steps


def _first_starts(events: Sequence[LinkEvent]) -> list[int]:
    """Places of the events with which the source begins an inference: the first of a row of START frames."""
    at = [i for i, e in enumerate(events) if e.kind == "start"]
    sends = [i for i, e in enumerate(events) if e.what == SEND]
    before = {i: sends[n - 1] if n else -1 for n, i in enumerate(sends)}
    return [i for i in at if before[i] < 0 or events[before[i]].kind != "start"]


def _starts(events: Sequence[LinkEvent], found: Timeline, source: int) -> list[float]:
    """When the source begins to send the first START of each inference."""
    place, times = set(_first_starts(events)), list[float]()
    at = 0
    for i, e in enumerate(events):
        at += 1  # its computing
        if i in place:
            times.append(next(s.start for s in found.spans[source] if s.step == at and s.kind == "send"))
        at += e.what in (SEND, RECEIVE)
    return times


def _between(events: Sequence[LinkEvent], is_source: bool) -> Sequence[LinkEvent]:
    """The events of whole inferences: from the first START or READY to the last."""
    marks = _first_starts(events) if is_source else [i for i, e in enumerate(events) if e.kind == "ready"]
    return events[marks[0] + 1 : marks[-1] + 1] if marks else ()
