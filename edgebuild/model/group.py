"""Several models and buffers of the application in one arena, and the files of such a group.

A model's arena is a buffer in three moments: `input`, while the application writes the inputs, and only these are live;
`run`, when all of it may be live; and `output`, while the application reads the outputs. At `idle` no model
runs. `share` states which models run together. The layout is that of `plan/memory`, exact and with its bound.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ..base.artifacts import Artifact
from ..base.errors import EdgebuildError, did_you_mean, fail
from ..base.levels import CACHE_LINE
from ..base.request import IDLE, PHASES, PLACE, GroupRequest, ModelRequest
from ..base.target import Target, load_target
from ..base.templates import render
from .emit.weights_file import arena_symbols, sections_of
from .group_check import check_group
from .ir import ITEM_BYTES
from .plan.memory.check import check_layout
from .plan.memory.layout import layout
from .plan.memory.problem import Buffer, BufferMemory, DoesNotFit, MemoryProblem, Phase, aligned

ANY = "any"  # part of a model that runs beside another
ALIGN = 16  # bytes, of arenas and buffers
WORD = 4  # bytes: least alignment within an arena
EFFORT = 1.0  # deterministic time of the exact search, about 5 s of processor time
Span = tuple[int, int]  # live bytes, [first, end)
Report = Mapping[str, Any]  # of a model: the content of NAME_report.json
Moments = Mapping[str, Mapping[str, str]]  # by moment, the models with live bytes, and the part of their work


@dataclass(frozen=True)
class _Member:
    """A model's arena in the memory `home` (`owner` is the model), or a buffer, which has no `home`."""

    owner: str
    home: str
    offset: int  # from the start of its block
    bytes: int


@dataclass(frozen=True)
class _Block:
    """Bytes that get one place: an arena, arenas that hand over in place, or a buffer. `live`: by number of moment."""

    members: tuple[_Member, ...]
    live: Mapping[int, Span]
    align: int
    memories: tuple[str, ...]

    @property
    def name(self) -> str:
        return " and ".join(m.owner for m in self.members)


def shared_arena(group: GroupRequest, target: Target, reports: Mapping[str, Report]) -> dict[str, Any]:
    """Lay out the shared arena, and return the group's report.

    `reports`: of the models by name. Raises EdgebuildError if it does not fit, or a pipeline's models do not match.
    """
    if group.share == "pipeline":
        for before, after in pairwise(group.models):
            _check_ends(group, reports[before.name], reports[after.name])
    moments, memories = _moments(group), _memories(group, target, reports)
    shared = tuple(m.name for m in target.memories if "arena" in m.roles and m.access == "cpu")
    blocks = [*_arenas(group, target, reports, moments, shared), *_buffers(group, moments, shared)]
    # Concurrent arenas are stacked anyway: rounded sizes leave no gaps, and less to search.
    unit = ALIGN if group.share == "concurrent" else 1
    problem = MemoryProblem(tuple(_as_buffer(n, b, unit) for n, b in enumerate(blocks)), memories)
    try:
        result = layout(problem, effort=EFFORT)
    except DoesNotFit as error:
        raise _does_not_fit(group, error, blocks, list(moments), reports) from None
    check_layout(problem, result)
    arenas, buffers, aligns = list[dict[str, Any]](), dict[str, dict[str, Any]](), dict[str, int]()
    for n, block in enumerate(blocks):
        place = result.places[str(n)]
        aligns[place.memory] = max(block.align, aligns.get(place.memory, ALIGN))
        for m in block.members:
            row = {"memory": place.memory, "offset": place.offset + m.offset, "bytes": m.bytes}
            if m.home:
                arenas.append({"model": m.owner, "home": m.home, **row})
            else:
                buffers[m.owner] = row
    separate = sum(r["ram"]["arena_bytes"] for r in reports.values()) + sum(b.bytes for b in group.buffers)
    return {
        "schema": 1,
        "group": group.name,
        "target": target.name,
        "share": group.share,
        "ram": {
            "arena_bytes": result.height,
            "separate_bytes": separate,
            "lower_bound_bytes": result.bound,
            "by_memory": {memory: height for memory, height in result.heights.items() if height},
            "align": aligns,
        },
        "layout": {"method": result.method, "optimal": result.optimal},
        "live_bytes": {moment: _live(blocks, n) for n, moment in enumerate(moments)},
        "arenas": arenas,
        "buffers": [{"name": b.name, **buffers[b.name], "align": b.align, "alive": [*b.alive]} for b in group.buffers],
    }


def _live(blocks: Iterable[_Block], moment: int) -> int:
    return sum(end - first for b in blocks for first, end in [b.live.get(moment, (0, 0))])


def _moments(group: GroupRequest) -> Moments:
    """All moments, in order. In a pipeline the output of a model is the input of the next."""
    names = [m.name for m in group.models]
    moments = {f"{name}.{part}": {name: part} for name in names for part in PHASES} | {IDLE: {}}
    if group.share == "concurrent":
        return {moment: dict.fromkeys(names, ANY) | work for moment, work in moments.items()}
    for before, after in pairwise(names) if group.share == "pipeline" else ():
        moments[f"{before}.output"] |= moments.pop(f"{after}.input")
    return moments


def _arenas(
    group: GroupRequest, target: Target, reports: Mapping[str, Report], moments: Moments, shared: tuple[str, ...]
) -> list[_Block]:
    """The arenas of the models, one in each memory; those of a pipeline are one block where they hand over."""
    blocks = [
        _arena(target, model, home, moments, reports[model.name], shared)
        for model in group.models
        for home, size in reports[model.name]["ram"]["by_memory"].items()
        if size
    ]
    for before, after in pairwise(group.models) if group.share == "pipeline" else ():
        source, goal = _ports(reports[before.name], "outputs")[0], _ports(reports[after.name], "inputs")[0]
        one, first = _holder(blocks, before.name, source["memory"])
        other, then = _holder(blocks, after.name, goal["memory"])
        shift = first + source["offset"] - then - goal["offset"]
        if shift % (step := _step(target, after, reports[after.name])):
            text = f"pipeline: '{after.name}' cannot begin where '{before.name}' leaves its output: its arena lies on a"
            hints = [f"output at {source['offset']}, input at {goal['offset']}: use share: exclusive and copy"]
            raise fail(f"{text} multiple of {step}", file=str(group.file or ""), hints=hints)
        joined = _joined_blocks(one, other, shift)
        if not joined.memories:
            text = (
                f"pipeline: '{before.name}' leaves its output in {source['memory']}, and '{after.name}' cannot have it"
            )
            raise fail(f"{text} there", file=str(group.file or ""), hints=["use share: exclusive and copy"])
        blocks = [joined, *(b for b in blocks if b not in (one, other))]
    return blocks


def _step(target: Target, model: ModelRequest, report: Report) -> int:
    """Alignment in bytes that the offsets in a model's arena require of its address."""
    if model.map != "off":
        return max(ALIGN, CACHE_LINE if any(m.cached for m in target.memories) else 1, target.dma_align)
    return max([WORD, *(ITEM_BYTES[b["dtype"]] for b in report["layout"]["buffers"] if "dtype" in b)])


def _holder(blocks: Sequence[_Block], owner: str, home: str) -> tuple[_Block, int]:
    """The block with an arena, and the offset of the arena in it."""
    return next((b, m.offset) for b in blocks for m in b.members if (m.owner, m.home) == (owner, home))


def _arena(
    target: Target, model: ModelRequest, home: str, moments: Moments, report: Report, shared: tuple[str, ...]
) -> _Block:
    """A model's arena in one memory. An arena that DMA fills stays there; others may lie where there is room."""
    size, live = report["ram"]["by_memory"][home], dict[int, Span]()
    for number, work in enumerate(moments.values()):
        part = work.get(model.name, "")
        ports = _ports(report, f"{part}s") if part in ("input", "output") and not report["stream_rows"] else []
        spans = [(p["offset"], p["offset"] + p["bytes"]) for p in ports if p["memory"] == home]
        if part in ("run", ANY) or (part and report["stream_rows"]):
            live[number] = (0, size)
        elif spans:
            live[number] = min(first for first, _ in spans), max(end for _, end in spans)
    memories = (home,) if model.map != "off" else shared
    return _Block((_Member(model.name, home, 0, size),), live, max(ALIGN, _step(target, model, report)), memories)


def _ports(report: Report, side: str) -> list[Mapping[str, Any]]:
    """The buffers of the inputs or outputs."""
    rows = {b["name"]: b for b in report["layout"]["buffers"] if "scratch_of" not in b and "newest_of" not in b}
    return [rows[port["name"]] for port in report[side]]


def _joined_blocks(one: _Block, other: _Block, shift: int) -> _Block:
    """Two blocks as one, the second `shift` bytes further up than the first."""
    moves = [(one, max(-shift, 0)), (other, max(shift, 0))]
    members = tuple(replace(m, offset=m.offset + by) for block, by in moves for m in block.members)
    live = dict[int, Span]()
    for block, by in moves:
        for moment, (first, end) in block.live.items():
            low, high = live.get(moment, (first + by, end + by))
            live[moment] = min(low, first + by), max(high, end + by)
    memories = tuple(m for m in one.memories if m in other.memories)
    return _Block(members, live, max(one.align, other.align), memories)


def _buffers(group: GroupRequest, moments: Moments, shared: tuple[str, ...]) -> list[_Block]:
    blocks = []
    for b in group.buffers:
        if b.memory and b.memory not in shared:
            text = f"buffer '{b.name}': no arena may lie in memory '{b.memory}'{did_you_mean(b.memory, shared)}"
            raise fail(text, file=str(group.file or ""), hints=[f"memories of {group.target}: {', '.join(shared)}"])
        live = dict[int, Span]()
        for number, (moment, work) in enumerate(moments.items()):
            words = {moment, *work, *(f"{model}.{part}" for model, part in work.items())}
            words |= {w for w in b.alive if work.get(w.partition(".")[0]) == ANY}
            if not b.alive or not words.isdisjoint(b.alive):
                live[number] = 0, b.bytes
        blocks.append(_Block((_Member(b.name, "", 0, b.bytes),), live, b.align, (b.memory,) if b.memory else shared))
    return blocks


def _as_buffer(number: int, block: _Block, unit: int) -> Buffer:
    """The block as a buffer of a layout. Its phases may have no gaps, so some of them have 0 bytes.

    Ends of live bytes are rounded up to multiples of `unit`.
    """
    first, last = min(block.live), max(block.live)
    size = aligned(max(m.offset + m.bytes for m in block.members), unit)
    spans = [(n, *block.live.get(n, (0, 0))) for n in range(first, last + 1)]
    phases = tuple(Phase(n, n + 1, low, aligned(high, unit) - low) for n, low, high in spans)
    whole = all((p.offset, p.size) == (0, size) for p in phases)
    return Buffer(str(number), size, first, last + 1, block.align, block.memories, () if whole else phases)


def _memories(group: GroupRequest, target: Target, reports: Mapping[str, Report]) -> tuple[BufferMemory, ...]:
    """Memories of arenas, best first, less the stack and the states of models."""
    used = dict[str, int]()
    states = sum(reports[m.name]["state_bytes"] for m in group.models)
    for role, size in (("stack", target.firmware.stack if target.firmware else 0), ("data", states)):
        name = next((m.name for m in target.memories if role in m.roles), "")
        used[name] = used.get(name, 0) + size
    homes = {home for r in reports.values() for home, size in r["ram"]["by_memory"].items() if size}
    return tuple(
        BufferMemory(m.name, max(1, m.size - used.get(m.name, 0)))
        for m in target.memories
        if m.name in homes or ("arena" in m.roles and m.access == "cpu")
    )


def _check_ends(group: GroupRequest, before: Report, after: Report) -> None:
    """Raise EdgebuildError if the output of a pipeline's model is not the input of the next."""
    one, other = before["model"]["name"], after["model"]["name"]
    where = str(group.file or "")
    for report, side in ((before, "outputs"), (after, "inputs")):
        pushed = bool(report["stream_rows"]) and side == "inputs"
        if pushed or len(report[side]) != 1:
            count = "its rows are pushed" if pushed else f"{len(report[side])} {side}"
            name = report["model"]["name"]
            text = f"pipeline: '{one}' hands over to '{other}': {name} must have one of its {side} whole, {count}"
            raise fail(text, file=where, hints=["name one with the option outputs, or use share: exclusive and copy"])
    source, goal = before["outputs"][0], after["inputs"][0]
    different = [
        f"{key} {_value_words(source.get(key))} and {_value_words(goal.get(key))}"
        for key in ("dtype", "shape", "scale", "zero_point")
        if source.get(key) != goal.get(key)
    ]
    if different:
        text = f"pipeline: output '{source['name']}' of '{one}' is not input '{goal['name']}' of '{other}': "
        hints = [f"make them equal, or use share: exclusive and convert between {one} and {other}"]
        raise fail(text + "; ".join(different), file=where, hints=hints)


def _value_words(value: Any) -> str:
    return "none" if value is None else "x".join(map(str, value)) if isinstance(value, list) else str(value)


def _does_not_fit(
    group: GroupRequest,
    error: DoesNotFit,
    blocks: Sequence[_Block],
    moments: Sequence[str],
    reports: Mapping[str, Report],
) -> EdgebuildError:
    """The error for a group that does not fit: live blocks, their moment and step, and the excess in bytes."""
    placed = [blocks[int(name)] for name in error.buffers]
    moment = max(range(len(moments)), key=lambda n: _live(placed, n))
    there = [(b, b.live[moment][1] - b.live[moment][0]) for b in placed if moment in b.live]
    owner, _, part = moments[moment].partition(".")
    when = f"while {owner} runs" if part == "run" else f"at {moments[moment]}"
    if part == "run":
        steps = [step["live_bytes"] for step in reports[owner]["schedule"]["steps"]]
        when += f" (it needs most at its step {steps.index(max(steps))})" if steps else ""
    least = "at least " if error.proven else ""
    text = f"does not fit: {least}{error.needed} B {when}, memory {error.memory} has {error.capacity} B: "
    hints = [f"live: {', '.join(f'{b.name} ({size} B)' for b, size in there)}"]
    room = (error.capacity or 0) - sum(size for b, size in there if b.name != owner)
    if part == "run" and room > 0:
        hints.append(f"try: the option ram of {owner}, {room} B, or buffers that live only in a part of its work")
    return fail(f"{text}{error.needed - (error.capacity or 0)} B too much", file=str(group.file or ""), hints=hints)


def group_files(group: GroupRequest, artifacts: Mapping[str, Sequence[Artifact]]) -> tuple[Artifact, ...]:
    """The files of the group, and those of its models unchanged. Raises EdgebuildError as `shared_arena` does."""
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
        "_arena.c": render("weights:c", used=True, lines=[], note=(), align=max(own["ram"]["align"].values()), **view,
                           arenas=[(symbol, size, section) for _, symbol, size, section in sections]),
        "_memory.ld": render("linker:memory", used=target.firmware is not None, weights_memory="", arenas=sections,
                             **view),
        "_check.ld": render("linker:check", used=target.core.isa != "native", arrays=(),
                            sections=[s[3] for s in sections], **view),
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
