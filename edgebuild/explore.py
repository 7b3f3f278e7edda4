"""From a canonical graph to a plan: schedule, layout, check.

`memory/` knows no networks and `ops/` knows no memory; this module puts the one in terms of the
other. A *storage* is a run of bytes that one tensor, its views and whatever overwrites it in place
share; it is named after its first tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from . import ops
from .axes import elementwise
from .errors import EdgebuildError, fail
from .ir import ITEM_BYTES, Graph, Op
from .memory.check import check_layout, check_schedule
from .memory.layout import layout
from .memory.problem import Buffer, DoesNotFit, Layout, Memory, Place, Problem, Schedule, Task, TaskGraph
from .memory.schedule import schedule
from .ops.base import WHOLE
from .request import ModelRequest
from .target import Target

ALIGN = 4  # bytes; every buffer starts and ends on it, so kernels may use word accesses


@dataclass(frozen=True)
class Placed:
    """Where a tensor lies while it lives: steps `first` to `last` of the schedule, both inclusive."""

    tensor: str
    bytes: int
    place: Place
    first: int
    last: int
    view_of: str | None = None  # the tensor whose bytes these are
    overlaps: str | None = None  # the tensor that it overwrites in place


@dataclass(frozen=True)
class Plan:
    """All that code generation needs. `steps` are the ops that run, in order; views do not run."""

    name: str
    graph: Graph
    target: Target
    request: ModelRequest
    steps: tuple[Op, ...]
    scratch: Mapping[str, Place]  # by op output
    buffers: tuple[Placed, ...]
    schedule: Schedule
    layout: Layout
    weights_memory: str

    @property
    def arena_bytes(self) -> int:
        return self.layout.height

    def place(self, tensor: str) -> Place:
        return next(b.place for b in self.buffers if b.tensor == tensor)


def plan(graph: Graph, target: Target, request: ModelRequest) -> Plan:
    """The best plan found for a canonical graph. Raises EdgebuildError if it does not fit the target."""
    storage = storages(graph)
    running = [op for op in graph.ops if not ops.SPECS[op.kind].view]
    scratch = {op.outputs[0]: kernel_scratch(op, graph) for op in running}
    tasks = task_graph(graph, running, storage, scratch)
    order = schedule(tasks)
    check_schedule(tasks, order)
    steps = tuple(running[i] for i in order.order)
    problem, merged = layout_problem(tasks, order, arena_memories(target, request))
    try:
        found = layout(problem, time_limit=request.time_limit)
    except DoesNotFit as reason:
        raise _does_not_fit(reason, graph, steps, order) from None
    check_layout(problem, found)
    places = {name: found.places[merged[name]] for name in tasks.sizes if merged[name] in found.places}
    return Plan(
        name=request.name,
        graph=graph,
        target=target,
        request=request,
        steps=steps,
        scratch={name: places[_scratch_name(name)] for name, size in scratch.items() if size},
        buffers=_placed(graph, steps, storage, places, order),
        schedule=order,
        layout=found,
        weights_memory=next(m.name for m in target.memories if "weights" in m.roles),
    )


def storages(graph: Graph) -> dict[str, str]:
    """The storage of every activation: the tensor itself, or what it is a view of."""
    root = {t.name: t.name for t in graph.tensors.values() if not t.constant}
    for op in graph.ops:
        if ops.SPECS[op.kind].view:
            root[op.outputs[0]] = root[op.inputs[0]]
    return root


def kernel_scratch(op: Op, graph: Graph) -> int:
    """Bytes of working memory that the op's kernel asks for."""
    kernel = ops.SPECS[op.kind].kernel
    return kernel(op, graph, WHOLE).scratch if kernel is not None else 0


def task_graph(graph: Graph, running: list[Op], storage: Mapping[str, str], scratch: Mapping[str, int]) -> TaskGraph:
    """The graph as tasks on storages. A result may overwrite an operand that it reads element by element."""
    sizes = {root: _aligned(graph.tensors[root].bytes) for root in dict.fromkeys(storage.values())}
    tasks = []
    for op in running:
        y, reads = op.outputs[0], dict.fromkeys(storage[n] for n in op.inputs if n in storage)
        relation, writes = ops.nest(op, graph), [y]
        pairs = tuple(
            (storage[n], y)
            for position, n in enumerate(op.inputs)
            if n in storage and elementwise(relation, position) and _narrows(graph, n, y)
        )
        if scratch[y]:
            writes.append(_scratch_name(y))
            sizes[writes[-1]] = _aligned(scratch[y])
        tasks.append(Task(op.name, tuple(reads), tuple(writes), tuple(dict.fromkeys(pairs))))
    inputs = tuple(dict.fromkeys(storage[n] for n in graph.inputs if n in storage))
    outputs = tuple(dict.fromkeys(storage[n] for n in graph.outputs))
    return TaskGraph(tuple(tasks), sizes, inputs, outputs)


def _narrows(graph: Graph, x: str, y: str) -> bool:
    """Elements do not grow, so writing result i never reaches operand i + 1."""
    return ITEM_BYTES[graph.tensors[y].dtype] <= ITEM_BYTES[graph.tensors[x].dtype]


def _scratch_name(output: str) -> str:
    return f"{output} (scratch)"


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def arena_memories(target: Target, request: ModelRequest) -> tuple[Memory, ...]:
    """Where activations may go, best first; `--ram` limits what the first may give."""
    memories = [Memory(m.name, m.size) for m in target.memories if "arena" in m.roles]
    if request.ram is not None:
        return (Memory(memories[0].name, request.ram),)
    return tuple(memories[:1] if request.arena == "caller" else memories)


def layout_problem(tasks: TaskGraph, order: Schedule, memories: tuple[Memory, ...]) -> tuple[Problem, dict[str, str]]:
    """Buffers with their lifetimes, and the buffer of every storage: those used in place are one."""
    life = lifetimes(tasks, order)
    merged = {name: name for name in tasks.sizes}
    for read, written in sorted(order.in_place, key=lambda pair: life[pair[1]][0]):
        merged[written] = merged[read]
    members: dict[str, list[str]] = {}
    for name, buffer in merged.items():
        members.setdefault(buffer, []).append(name)
    buffers = tuple(
        Buffer(
            buffer,
            max(tasks.sizes[n] for n in names),
            min(life[n][0] for n in names),
            max(life[n][1] for n in names) + 1,
            ALIGN,
        )
        for buffer, names in members.items()
    )
    return Problem(buffers, memories), merged


def lifetimes(tasks: TaskGraph, order: Schedule) -> dict[str, tuple[int, int]]:
    """First and last step of every storage, both inclusive."""
    end = max(len(order.order) - 1, 0)
    life: dict[str, tuple[int, int]] = {name: (0, 0) for name in tasks.inputs}
    for step, index in enumerate(order.order):
        task = tasks.tasks[index]
        for name in (*task.reads, *task.writes):
            life[name] = (life.get(name, (step, step))[0], step)
    used = {name for task in tasks.tasks for name in task.reads}
    keep = {*tasks.outputs, *(n for n in tasks.inputs if n not in used)}
    return {name: (first, end if name in keep else last) for name, (first, last) in life.items()}


def _placed(
    graph: Graph, steps: tuple[Op, ...], storage: Mapping[str, str], places: Mapping[str, Place], order: Schedule
) -> tuple[Placed, ...]:
    """Every activation with its place and life, in the order of first use."""
    end = max(len(steps) - 1, 0)
    life: dict[str, tuple[int, int]] = {name: (0, 0) for name in graph.inputs}
    for step, op in enumerate(steps):
        for name in (*op.inputs, *op.outputs):
            if name in storage:
                root = storage[name]
                life[root] = (life.get(root, (step, step))[0], step)
                life[name] = (life.get(name, life[root])[0], step)
    for name in graph.outputs:
        for alias in {name, storage[name]}:
            life[alias] = (life.get(alias, (0, end))[0], end)
    over = {written: read for read, written in order.in_place}
    found = []
    for name in storage:
        first, last = life.get(name, life[storage[name]])
        view = storage[name] if storage[name] != name else None
        size = graph.tensors[name].bytes
        found.append(Placed(name, size, places[storage[name]], first, last, view, over.get(name)))
    return tuple(sorted(found, key=lambda b: (b.first, b.last)))


def _does_not_fit(reason: DoesNotFit, graph: Graph, steps: tuple[Op, ...], order: Schedule) -> EdgebuildError:
    """Which memory, by how much, at which node, and what lives there."""
    at = max(range(len(steps)), key=lambda i: order.profile[i]) if steps else 0
    op = steps[at] if steps else None
    least = "at least " if reason.proven else ""
    text = f"does not fit: arena {least}{reason.needed} B, memory {reason.memory} has {reason.capacity} B"
    live = [graph.tensors[n] for n in reason.buffers if n in graph.tensors]
    shown = ", ".join(f"{t.name} ({t.bytes} B, {'x'.join(map(str, t.shape))})" for t in live)
    hints = [f"live at this step: {shown}"] if shown else []
    hints.append(f"over by {reason.needed - reason.capacity} B; use a target with more RAM or a smaller model")
    name, kind = (op.name, op.origin or op.kind) if op is not None else ("", "")
    return fail(text, file=graph.file, node=name, kind=kind, hints=hints)
