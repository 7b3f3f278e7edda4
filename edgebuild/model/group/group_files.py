"""A group as files: its arena, the places of its models and buffers in it, scripts for linkers, a report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...base.artifacts import Artifact
from ...base.request import PLACE, GroupRequest
from ...base.target import Target, load_target
from ...base.templates import render
from ..emit.weights_file import arena_symbols, sections_of
from .group_check import check_group
from .shared_arena import shared_arena
from .shared_values import Report, SharedArena, Spot

TOGETHER = {
    "exclusive": "One model is at work at a time; what the others had in the arena is gone then.",
    "pipeline": "Each model finds its input where the one before it left its output: call one after the other.",
    "concurrent": "All models may be at work at the same time.",
}


def group_files(group: GroupRequest, artifacts: Mapping[str, Sequence[Artifact]]) -> tuple[Artifact, ...]:
    """The files of the group, and those of its models as they are, by name. Raises EdgebuildError."""
    target = load_target(group.target)
    data = {a.name: a.data for each in artifacts.values() for a in each}
    reports = {m.name: json.loads(data[f"{m.name}_report.json"]) for m in group.models}
    arena = shared_arena(group, target, reports)
    own = report_of_group(group, target, reports, arena)
    check_group(group, reports, own)
    sections = sections_of(group.name, arena.heights)
    symbols = {memory: symbol for memory, symbol, _, _ in sections}
    view = {"name": group.name, "prefix": group.name.upper(), "file": group.name, "target": target.name}
    texts = {
        ".h": _header(group, arena, sections, symbols, view),
        "_arena.c": render("weights.c.j2", used=True, lines=[], align=max(arena.aligns.values()), **view,
                           arenas=[(symbol, size, section) for _, symbol, size, section in sections]),
        "_memory.ld": render("memory.ld.j2", used=target.firmware is not None, weights_memory="", arenas=sections,
                             **view),
        "_check.ld": render("check.ld.j2", used=target.core.isa != "native", sections=[s[3] for s in sections], **view),
        "_report.json": json.dumps(own, indent=1, sort_keys=True) + "\n",
    }  # fmt: skip
    data |= {group.name + suffix: text.encode() for suffix, text in texts.items()}
    for model in group.models:
        mine = sorted((s for s in arena.spots if s.owner == model.name and s.home), key=lambda s: _rank(target, s.home))
        names = arena_symbols(model.name, [s.home for s in mine])
        places = [(name, symbols[s.memory], s.offset) for name, s in zip(names, mine, strict=True)]
        shown = [(symbol, size) for memory, symbol, size, _ in sections if memory in {s.memory for s in mine}]
        text = render("place.h.j2", name=model.name, group=group.name, arenas=shown, places=places)
        data[model.name + PLACE] = text.encode()
    return tuple(Artifact(name, data[name]) for name in group.outputs)


def _rank(target: Target, memory: str) -> int:
    return [m.name for m in target.memories].index(memory)


def _header(
    group: GroupRequest,
    arena: SharedArena,
    sections: Sequence[tuple[str, str, int, str]],
    symbols: Mapping[str, str],
    view: Mapping[str, Any],
) -> str:
    rows = []
    for b in group.buffers:
        spot = _buffer_spot(arena, b.name)
        note = f"Holds something {'at' if b.alive else 'always'}{'' if not b.alive else ' ' + ', '.join(b.alive)}."
        rows.append({"name": b.name, "bytes": b.bytes, "symbol": symbols[spot.memory], "offset": spot.offset})
        rows[-1]["note"] = note + f" On a multiple of {b.align}."
    names = [m.name for m in group.models]
    title = f"{', '.join(names[:-1])}{' and ' if names[:-1] else ''}{names[-1]} in one arena"
    return render("group.h.j2", title=title, together=TOGETHER[str(group.share)], live=arena.live, models=names,
                  arenas=sections, buffers=rows, **view)  # fmt: skip


def _buffer_spot(arena: SharedArena, name: str) -> Spot:
    return next(s for s in arena.spots if s.owner == name and not s.home)


def report_of_group(
    group: GroupRequest, target: Target, reports: Mapping[str, Report], arena: SharedArena
) -> dict[str, Any]:
    separate = sum(r["ram"]["arena_bytes"] for r in reports.values()) + sum(b.bytes for b in group.buffers)
    arenas = [
        {"model": s.owner, "home": s.home, "memory": s.memory, "offset": s.offset, "bytes": s.bytes}
        for s in arena.spots
        if s.home
    ]
    buffers = [
        {
            "name": b.name,
            "memory": s.memory,
            "offset": s.offset,
            "bytes": s.bytes,
            "align": b.align,
            "alive": [*b.alive],
        }
        for b in group.buffers
        for s in [_buffer_spot(arena, b.name)]
    ]
    return {
        "schema": 1,
        "group": group.name,
        "target": target.name,
        "share": group.share,
        "ram": {
            "arena_bytes": sum(arena.heights.values()),
            "separate_bytes": separate,
            "lower_bound_bytes": arena.bound,
            "by_memory": dict(arena.heights),
            "align": dict(arena.aligns),
        },
        "layout": {"method": arena.method, "optimal": arena.optimal},
        "live_bytes": dict(arena.live),
        "arenas": arenas,
        "buffers": buffers,
    }


def group_summary(artifacts: Sequence[Artifact]) -> str:
    """Summary of a group in two lines: a view of its report, which is the fifth file."""
    r = json.loads(artifacts[len(GroupRequest.SUFFIXES) - 1].data)
    ram, models = r["ram"], dict.fromkeys(row["model"] for row in r["arenas"])
    proof = "optimal" if r["layout"]["optimal"] else f"bound {ram['lower_bound_bytes']} B"
    what = f"{', '.join(models)} {r['share']}, {len(r['buffers'])} buffers"
    where = ", ".join(f"{size} B in {memory}" for memory, size in sorted(ram["by_memory"].items()))
    lines = f"{r['group']} -> {r['target']}: {what}", f"arena {where} ({proof}); separate {ram['separate_bytes']} B"
    return "\n".join(f"[edgebuild] {line}" for line in lines)
