"""Check the memory layout of a group of models, byte by byte, from the reports of the models and of the group.

The check shares no code with the choice of the layout. For every set of models that may be active together, it tags
each byte in use with its owner. It fails if a byte has two owners.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations, product
from typing import Any

from ..base.request import IDLE, PHASES, GroupRequest

Row = Mapping[str, Any]  # of a report


class BrokenGroup(AssertionError):
    """Two owners share bytes, or an arena or buffer is outside its memory, misaligned or of wrong size."""


def check_group(group: GroupRequest, reports: Mapping[str, Row], arena_report: Row) -> None:
    """Raise BrokenGroup unless the `arena_report` of the group places all arenas and buffers correctly."""
    rows = {(a["model"], a["home"]): a for a in arena_report["arenas"]}
    buffers = {b["name"]: b for b in arena_report["buffers"]}
    homes = {(m, home): n for m in reports for home, n in reports[m]["ram"]["by_memory"].items() if n}
    _require({k: r["bytes"] for k, r in rows.items()} == homes, "the arenas are not those of the models")
    sizes = {b.name: b.bytes for b in group.buffers}
    _require({n: b["bytes"] for n, b in buffers.items()} == sizes, "the buffers are not those that were asked for")
    ends = arena_report["ram"]["by_memory"]
    for row in (*rows.values(), *buffers.values()):
        fits = 0 <= row["offset"] <= row["offset"] + row["bytes"] <= ends.get(row["memory"], -1)
        _require(fits, f"{row} leaves the arena")
    for b in group.buffers:
        row = buffers[b.name]
        whole = row["offset"] % b.align == 0 and arena_report["ram"]["align"][row["memory"]] % b.align == 0
        _require(whole, f"{b.name} is not on a multiple of {b.align}")
        _require(b.memory in ("", row["memory"]), f"{b.name} lies in {row['memory']}")
    for row in rows.values():
        wide = any("64" in b.get("dtype", "") for b in reports[row["model"]]["layout"]["buffers"])
        step = 16 if group.share != "pipeline" else 8 if wide else 4
        _require(row["offset"] % step == 0, f"{row} is not on a multiple of {step}")
    for world in worlds(group):
        _check_world(group, reports, arena_report, rows, world)


def worlds(group: GroupRequest) -> Iterator[dict[str, str]]:
    """Sets of models that may be active at the same time, each with its phase, one of PHASES.

    For concurrent models these are all pairs, which suffices because a conflict is between two owners.
    """
    names = [m.name for m in group.models]
    if group.share == "concurrent":
        pairs = permutations(names, 2) if len(names) > 1 else [(names[0],)]
        for pair in pairs:
            yield from (dict(zip(pair, parts, strict=True)) for parts in product(PHASES, repeat=len(pair)))
        return
    yield {}
    for at, name in enumerate(names):
        for part in PHASES:
            after = names[at + 1] if at + 1 < len(names) and part == "output" else ""
            yield {name: part, **({after: "input"} if after and group.share == "pipeline" else {})}


def _check_world(
    group: GroupRequest,
    reports: Mapping[str, Row],
    arena_report: Row,
    rows: Mapping[tuple[str, str], Row],
    world: Mapping[str, str],
) -> None:
    owners = {memory: [""] * size for memory, size in arena_report["ram"]["by_memory"].items()}
    before: list[tuple[str, int, int]] = []
    for name, part in world.items():
        spans = list(_spans(reports[name], name, part, rows))
        if group.share == "pipeline" and before:
            _require(spans == before, f"{name} does not find its input where the output before it is")
            continue
        before = spans
        for memory, first, end in spans:
            _write(owners, memory, first, end, name, world)
    for b in group.buffers:
        words = {IDLE} if not world else {*world, *(f"{n}.{part}" for n, part in world.items())}
        if not b.alive or words & {*b.alive}:
            row = next(r for r in arena_report["buffers"] if r["name"] == b.name)
            _write(owners, row["memory"], row["offset"], row["offset"] + b.bytes, b.name, world)


def _spans(report: Row, name: str, part: str, rows: Mapping[tuple[str, str], Row]) -> Iterator[tuple[str, int, int]]:
    """Memory, first byte and end of the bytes that a model uses in phase `part`."""
    if part == "run" or report["stream_rows"]:
        placed = [row for (model, _), row in rows.items() if model == name]
        yield from ((row["memory"], row["offset"], row["offset"] + row["bytes"]) for row in placed)
        return
    ports = {port["name"] for port in report[f"{part}s"]}
    for b in report["layout"]["buffers"]:
        if b["name"] in ports:
            base = rows[name, b["memory"]]
            yield base["memory"], base["offset"] + b["offset"], base["offset"] + b["offset"] + b["bytes"]


def _write(
    owners: Mapping[str, list[str]], memory: str, first: int, end: int, owner: str, world: Mapping[str, str]
) -> None:
    there = {*owners[memory][first:end]} - {"", owner}
    _require(not there, f"{owner} at {first} of {memory} lies over {', '.join(sorted(there))} while {dict(world)}")
    owners[memory][first:end] = [owner] * (end - first)


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise BrokenGroup(text)
