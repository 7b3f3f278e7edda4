"""A group as files: its arena, the places of its models and buffers in it, scripts for linkers, a report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ...base.artifacts import Artifact
from ...base.request import PLACE, GroupRequest
from ...base.target import load_target
from ...base.templates import render
from ..emit.weights_file import arena_symbols, sections_of
from .group_check import check_group
from .shared_arena import shared_arena


def group_files(group: GroupRequest, artifacts: Mapping[str, Sequence[Artifact]]) -> tuple[Artifact, ...]:
    """The files of the group, and those of its models as they are, by name. Raises EdgebuildError."""
    target = load_target(group.target)
    data = {a.name: a.data for each in artifacts.values() for a in each}
    reports = {m.name: json.loads(data[f"{m.name}_report.json"]) for m in group.models}
    own = shared_arena(group, target, reports)
    check_group(group, reports, own)
    sections = sections_of(group.name, own["ram"]["by_memory"])
    symbols = {memory: symbol for memory, symbol, _, _ in sections}
    view = {"name": group.name, "prefix": group.name.upper(), "file": group.name, "target": target.name}
    texts = {
        ".h": render("headers.h:group", models=[*reports], arenas=sections, symbols=symbols, report=own, **view),
        "_arena.c": render("weights:c", used=True, lines=[], align=max(own["ram"]["align"].values()), **view,
                           arenas=[(symbol, size, section) for _, symbol, size, section in sections]),
        "_memory.ld": render("linker:memory", used=target.firmware is not None, weights_memory="", arenas=sections,
                             **view),
        "_check.ld": render("linker:check", used=target.core.isa != "native", sections=[s[3] for s in sections],
                            **view),
        "_report.json": json.dumps(own, indent=1, sort_keys=True) + "\n",
    }  # fmt: skip
    data |= {group.name + suffix: text.encode() for suffix, text in texts.items()}
    order = [m.name for m in target.memories]
    for name in reports:
        of_model = sorted((a for a in own["arenas"] if a["model"] == name), key=lambda a: order.index(a["home"]))
        macros = arena_symbols(name, [a["home"] for a in of_model])
        places = [(macro, symbols[a["memory"]], a["offset"]) for macro, a in zip(macros, of_model, strict=True)]
        shown = [(symbol, size) for memory, symbol, size, _ in sections if memory in {a["memory"] for a in of_model}]
        text = render("headers.h:place", name=name, group=group.name, arenas=shown, places=places)
        data[name + PLACE] = text.encode()
    return tuple(Artifact(name, data[name]) for name in group.outputs)


def group_summary(artifacts: Sequence[Artifact]) -> str:
    """Summary of a group in two lines: a view of its report, which is the fifth file."""
    r = json.loads(artifacts[len(GroupRequest.SUFFIXES) - 1].data)
    ram, models = r["ram"], dict.fromkeys(row["model"] for row in r["arenas"])
    proof = "optimal" if r["layout"]["optimal"] else f"bound {ram['lower_bound_bytes']} B"
    what = f"{', '.join(models)} {r['share']}, {len(r['buffers'])} buffers"
    where = ", ".join(f"{size} B in {memory}" for memory, size in sorted(ram["by_memory"].items()))
    lines = f"{r['group']} -> {r['target']}: {what}", f"arena {where} ({proof}); separate {ram['separate_bytes']} B"
    return "\n".join(f"[edgebuild] {line}" for line in lines)
