"""From a canonical graph to a plan: schedule, sections, layout, check."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from . import ops, progress
from .energy.schedule import ClockSchedule
from .errors import EdgebuildError, fail
from .ir import Graph, rename
from .memory.check import check_layout, check_schedule
from .memory.layout import layout
from .memory.problem import DoesNotFit, Layout, Memory, Place, Schedule
from .memory.schedule import EFFORT, as_given, schedule
from .ops.base import PORTABLE
from .pareto import Point, front, point_of
from .replay import replay
from .request import ModelRequest
from .rolling import RollingGraph, rows_of
from .sections import COUPLED, Cutter, Decoupled, Section, frugal, untiled
from .storage import Placed, layout_problem, placed_buffers, storages, task_graph
from .strips import in_strips
from .target import Target
from .tiling.critical import Piece
from .tiling.search import Evaluated, Limits, Outcome, explore

METHODS = {"fdt": frozenset(["fdt"]), "ffmt": frozenset(["ffmt"])}  # of cutting ops into parts, by --tile
MACS_OF_METHODS = 10.0  # percent that these may compute twice where nothing else is said
EVERY_METHOD = frozenset(["fdt", "ffmt", "both"])
LEAST_CODE, CODE_SHARE = 2048, 0.05  # what code of parts may take: bytes in any case, share of the constants
EFFORT_OF_PARTS = 1000  # of scheduling: parts of one path are interchangeable and come one after the other already


@dataclass(frozen=True)
class Plan:
    """All that code generation needs. `steps` run in order; views do not run."""

    name: str
    graph: Graph
    rolling: RollingGraph
    cutter: Cutter  # which knows all other ways to cut the same order of ops
    target: Target
    request: ModelRequest
    steps: tuple[Section, ...]
    places: Mapping[str, Place]  # of storages, and of what a step needs for itself
    buffers: tuple[Placed, ...]
    schedule: Schedule
    layout: Layout
    weights_memory: str
    untiled_bytes: int  # peak of the same ops run whole
    decoupled: Decoupled = field(default_factory=dict)
    clocks: ClockSchedule | None = None  # where least energy was asked for
    fused: Outcome | None = None  # how ops were cut into parts

    @property
    def arena_bytes(self) -> int:
        return self.layout.height

    @property
    def features(self) -> frozenset[str]:
        return features_of(self.target, self.request)

    @property
    def tiled(self) -> bool:
        return any(s.rolled for s in self.steps) or bool(self.fused and self.fused.tilings)

    @property
    def extra_macs(self) -> int:
        """Multiply-accumulates that parts do again because they overlap."""
        return self.fused.extra_macs if self.fused else 0

    @cached_property
    def trade_off(self) -> tuple[Point, ...]:
        """All ways to run this order of ops that none betters in both memory and instructions, least memory first.

        Parts of ops run as they are: the graph of parts is one way of many already.
        """
        return front(self.cutter) if self.fused is None else (point_of(self.cutter, self.steps),)


def features_of(target: Target, request: ModelRequest | None = None) -> frozenset[str]:
    """What kernels may use, the instruction set and its extensions; and what they are to be (see Form)."""
    core = (target.core.isa, *target.core.features)
    if request is None:
        return frozenset(core)
    wishes = {request.optimize, request.backend, *request.choices} - {"balanced", "edgebuild"}
    return frozenset((*((PORTABLE,) if request.portable else core), *wishes))


def plan(graph: Graph, target: Target, request: ModelRequest, decoupled: Decoupled = COUPLED) -> Plan:
    """The best plan found for a canonical graph. Raises EdgebuildError if it does not fit the target.

    `decoupled` says which ops that run whole gather their operands first, and how many channels or columns at once.
    """
    if request.tile is not None and request.tile in METHODS:
        return _plan(graph, target, request, decoupled, fuse(graph, target, request, METHODS[request.tile]), False)
    try:
        found, failure = _plan(graph, target, request, decoupled), None
    except EdgebuildError as reason:
        found, failure = None, reason
    automatic = request.tile == "auto" or (request.tile is None and (request.objective == "ram" or found is None))
    if automatic and request.stream_input is None and (found is None or request.ram is None):
        if found is not None:
            progress.say(f"{found.arena_bytes} B row by row; looking at parts of ops")
        for cut in (_strips, fuse):
            parts = cut(graph, target, request, EVERY_METHOD, found.arena_bytes if found is not None else None)
            if parts.tilings:
                with contextlib.suppress(EdgebuildError):
                    other = _plan(graph, target, request, decoupled, parts, by_rows=cut is _strips)
                    found = other if found is None or other.arena_bytes < found.arena_bytes else found
    if found is None:
        assert failure is not None
        raise failure
    return found


def _plan(
    graph: Graph,
    target: Target,
    request: ModelRequest,
    decoupled: Decoupled,
    fused: Outcome | None = None,
    by_rows: bool = True,
) -> Plan:
    """The plan of a graph, or of the one that was cut into parts, whose ops run whole if they must not go by rows."""
    graph = with_rows(graph) if request.stream_input else graph
    original, graph = graph, fused.graph if fused is not None else graph
    if fused is not None and by_rows:
        cutter, order = _scheduled_strips(graph, target, request, decoupled)
    else:
        cutter, order = _scheduled(graph, target, request, decoupled, EFFORT_OF_PARTS if fused is not None else EFFORT)
    rolling, whole = cutter.rolling, _whole(cutter, request, not by_rows)
    peak = fused.peak if fused is not None else order.peak
    found, memories, failure = None, arena_memories(target, request), None
    for steps in _candidates(cutter, whole, memories, request, by_rows):
        try:
            found = _place(cutter, steps, memories, request)
            break
        except DoesNotFit as reason:
            others = cutter if fused is None else _scheduled(original, target, request, decoupled)[0]
            failure = failure or _does_not_fit(reason, cutter, steps, others)
    if found is None:
        assert failure is not None
        raise failure
    steps, placed, places = found
    profile = cutter.profile(steps)
    if any(s.rolled for s in steps):
        order = Schedule(tuple(range(len(steps))), profile, max(profile), max(profile), False, "rolling sections", ())
    result = Plan(
        name=request.name,
        graph=graph,
        rolling=rolling,
        cutter=cutter,
        target=target,
        request=request,
        steps=steps,
        places=places,
        buffers=placed_buffers(cutter, steps, places),
        schedule=replace(order, order=tuple(range(len(steps))), profile=profile, peak=max(profile, default=0)),
        layout=placed,
        weights_memory=next(m.name for m in target.memories if "weights" in m.roles),
        untiled_bytes=peak,
        decoupled=decoupled,
        fused=fused,
    )
    replay(rolling, steps, places)
    return result


def _scheduled(
    graph: Graph, target: Target, request: ModelRequest, decoupled: Decoupled = COUPLED, effort: int | None = EFFORT
) -> tuple[Cutter, Schedule]:
    """The ops of a graph in an order of least memory; no effort: as they are."""
    rolling = RollingGraph(graph, storages(graph), streamed_input(graph, request))
    running = [op for op in graph.ops if not ops.SPECS[op.kind].view]
    tasks = task_graph(rolling, running)
    order = as_given(tasks) if effort is None else schedule(tasks, effort)
    check_schedule(tasks, order)
    cutter = Cutter(rolling, tuple(running[i] for i in order.order), features_of(target, request), decoupled=decoupled)
    return cutter, order


def _scheduled_strips(
    graph: Graph, target: Target, request: ModelRequest, decoupled: Decoupled = COUPLED
) -> tuple[Cutter, Schedule]:
    """Strip after strip, or in an order of least memory of whole ops: what takes less once it is rolled."""
    orders = (_scheduled(graph, target, request, decoupled, effort) for effort in (None, EFFORT_OF_PARTS))
    return min(orders, key=lambda found: found[0].least_peak)


def fuse(
    graph: Graph, target: Target, request: ModelRequest, methods: frozenset[str], below: int | None = None
) -> Outcome:
    """The graph with runs of ops cut into parts, as `--ram` and `--max-mac-overhead` ask; an arena `below` that."""

    def evaluate(candidate: Graph) -> Evaluated:
        cutter, _ = _scheduled(candidate, target, request, effort=EFFORT_OF_PARTS)
        steps = _whole(cutter, request, parts=True)
        _, placed, places = _place(cutter, steps, (Memory("arena"),), request)
        sizes, lives = dict(cutter.sizes), dict(cutter.steps_of(steps))
        for step, section in enumerate(steps):
            sizes |= section.inner
            lives |= dict.fromkeys(section.inner, (step, step))
        pieces = [Piece(n, p.offset, p.offset + sizes[n], *lives[n]) for n, p in places.items()]
        profile = cutter.profile(steps)
        storage = cutter.rolling.storage
        return Evaluated(candidate, placed.height, cutter.order, storage, cutter.life, sizes, profile, tuple(pieces))

    budget = _budget(graph, request)
    deadline = None if request.time_limit is None else time.monotonic() + request.time_limit
    constants = sum(t.bytes for t in graph.tensors.values() if t.constant)
    limits = Limits(budget, max(LEAST_CODE, round(constants * CODE_SHARE)), request.ram, below, deadline)
    return explore(graph, evaluate, methods, limits)


def _strips(
    graph: Graph, target: Target, request: ModelRequest, methods: frozenset[str], below: int | None = None
) -> Outcome:
    """The graph with rolled runs cut into strips of columns."""
    cutter, _ = _scheduled(graph, target, request)

    def again(other: Graph) -> Cutter:
        return _scheduled_strips(other, target, request)[0]

    deadline = None if request.time_limit is None else time.monotonic() + request.time_limit
    return in_strips(graph, cutter, again, _budget(graph, request), deadline)


def mac_overhead(request: ModelRequest) -> float:
    """Percent of the MACs that may be computed twice. Not said: none, but where a method is asked for that needs it."""
    if request.max_mac_overhead is not None:
        return request.max_mac_overhead
    return MACS_OF_METHODS if request.tile in METHODS else 0.0


def _budget(graph: Graph, request: ModelRequest) -> int:
    """Multiply-accumulates that may be computed twice."""
    return int(ops.macs(graph) * mac_overhead(request) / 100)


def with_rows(graph: Graph) -> Graph:
    """The graph with its input in the shape in which it is read first, so that its rows are those of the first op."""
    x = graph.inputs[0]
    readers = graph.consumers()[x]
    if len(readers) != 1 or not ops.SPECS[readers[0].kind].view:
        return graph
    shape = graph.result(readers[0]).shape
    kept = [op for op in graph.ops if op is not readers[0]]
    tensors = {**graph.tensors, x: replace(graph.tensors[x], shape=shape)}
    return rename(replace(graph, ops=tuple(kept), tensors=tensors), {readers[0].outputs[0]: x})


def streamed_input(graph: Graph, request: ModelRequest) -> str | None:
    """The input that the application brings row by row, if that is asked for."""
    if request.stream_input is None:
        return None
    rows = rows_of(graph, graph.inputs[0])
    if len(graph.inputs) != 1 or rows < 2:
        text = f"cannot stream: {len(graph.inputs)} inputs, the first has {rows} rows"
        hint = "--stream-input needs one input whose second dimension are the rows; NCHW files: transpose the input"
        raise fail(text, file=graph.file, hints=[hint])
    if request.arena == "caller" or request.tile in ("off", *METHODS):
        raise fail("--stream-input needs --arena static and tiling", file=graph.file)
    return graph.inputs[0]


def arena_memories(target: Target, request: ModelRequest) -> tuple[Memory, ...]:
    """Where activations may go, best first, less the stack; `--ram` limits what the first may give."""
    stack = target.firmware.stack if target.firmware is not None else 0
    home = next((m.name for m in target.memories if "stack" in m.roles), "")
    memories = [
        Memory(m.name, m.size - (stack if m.name == home else 0)) for m in target.memories if "arena" in m.roles
    ]
    if request.ram is not None:
        return (Memory(memories[0].name, min(request.ram, memories[0].capacity or request.ram)),)
    return tuple(memories[:1] if request.arena == "caller" else memories)


def _whole(cutter: Cutter, request: ModelRequest, parts: bool = False) -> tuple[Section, ...]:
    """Every op whole; with slower kernels if those save memory where parts of ops are to take the least."""
    return frugal(cutter) if parts and request.ram is None else untiled(cutter)


def _candidates(
    cutter: Cutter, whole: tuple[Section, ...], memories: Sequence[Memory], request: ModelRequest, by_rows: bool
) -> Iterator[tuple[Section, ...]]:
    """The cuts to try until one fits.

    Tiling on: the fewest calls within `--ram` if that is given, else the least peak. Not said: so
    for objective ram; else the whole ops if they fit, and only then tiled within the memory.
    """
    if request.tile == "off" or not by_rows or not cutter.order:
        yield whole
        return
    wanted = request.tile is not None or request.objective == "ram" or request.stream_input is not None
    if not wanted:
        yield whole
    if request.ram is not None or not wanted:
        room = sum(m.capacity or 0 for m in memories)
        yield from (cutter.cut(limit) for limit in (room, room - room // 16))
    yield cutter.cut()


def _place(
    cutter: Cutter, steps: tuple[Section, ...], memories: Sequence[Memory], request: ModelRequest
) -> tuple[tuple[Section, ...], Layout, dict[str, Place]]:
    problem, inside = layout_problem(cutter, steps, memories)
    found = layout(problem, time_limit=request.time_limit)
    check_layout(problem, found)
    places = {}
    for name, (group, offset) in inside.items():
        base = found.places[group]
        places[name] = Place(base.memory, base.offset + offset)
    return steps, found, places


def _streamed_peak(cutter: Cutter) -> int | None:
    """What would be live if the application pushed rows; None where it cannot."""
    graph = with_rows(cutter.graph)
    if len(graph.inputs) != 1 or rows_of(graph, graph.inputs[0]) < 2:
        return None
    same = {op.outputs[0]: op for op in graph.ops}
    order = tuple(same[op.outputs[0]] for op in cutter.order)
    streamed = Cutter(RollingGraph(graph, storages(graph), graph.inputs[0]), order, cutter.features)
    try:
        return max(streamed.profile(streamed.cut()))
    except EdgebuildError:
        return None


def _does_not_fit(reason: DoesNotFit, cutter: Cutter, steps: Sequence[Section], others: Cutter) -> EdgebuildError:
    """Which memory, by how much, at which node, what lives there, and what would help: `others` knows other ways."""
    graph, profile = cutter.graph, cutter.profile(steps)
    op = steps[max(range(len(steps)), key=lambda i: profile[i])].ops[-1]
    least = "at least " if reason.proven else ""
    text = f"does not fit: arena {least}{reason.needed} B, memory {reason.memory} has {reason.capacity} B"
    live = [graph.tensors[n] for n in reason.buffers if n in graph.tensors]
    shown = ", ".join(f"{t.name.split(';')[0]} ({t.bytes} B, {'x'.join(map(str, t.shape))})" for t in live)
    hints = [f"live at this step: {shown}"] if shown else []
    ways = {"--tile auto": max(others.profile(others.cut())), "--stream-input rows": _streamed_peak(others)}
    known = [f"{way} ({size} B)" for way, size in ways.items() if size is not None]
    if any(size is not None and size <= reason.capacity for size in ways.values()):
        hints.append(f"try: {', or '.join(known)}")
    else:
        over = reason.needed - reason.capacity
        hints.append(f"over by {over} B, and so with {' and '.join(known)}; use a target with more RAM")
    return fail(text, file=graph.file, node=op.name, kind=op.origin or op.kind, hints=hints)
