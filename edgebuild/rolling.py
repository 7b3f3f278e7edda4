"""Rolling execution: a run of ops computed row by row, each row when it is first wanted.

A row is all that shares an index of a tensor's second dimension. Tensors inside of the run are
never whole: each is a ring of as many rows as lie between the oldest that a reader still wants and
the newest made. Nothing is computed twice. Operands from outside are there whole; a result may grow
into one of them, behind the rows that have been read (Blacker, Bridges, Hadfield 2020 call this
diagonal memory optimisation; here it holds for a whole run instead of one op).

All follows from the ops' index relations: which rows of an operand an output row needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from . import ops
from .axes import Same, Window, elementwise, input_range
from .ir import Graph, Op

Reads = tuple[tuple[str, int, int], ...]  # storage, first row, one past the last


@dataclass(frozen=True)
class Event:
    """One call: op number `op` of the run makes row `row` (or takes it up, if it reduces over rows).

    `writes` is None while a reduction is not complete; then it writes all rows at once. The number
    one past the last op stands for the application, which brings the next row of a streamed input.
    """

    op: int
    row: int
    reads: Reads
    writes: tuple[str, int, int] | None  # storage, first row, one past the last


@dataclass(frozen=True)
class Rolled:
    """A run of ops and the order of their calls.

    `rings`: rows kept of each inner tensor's storage. `inside`: inner tensors that need no ring of
    their own, because their one reader takes each row up element by element as soon as it is made:
    row r is made where row r of the reader's result will stand.
    """

    ops: tuple[Op, ...]
    events: tuple[Event, ...]
    rings: Mapping[str, int]
    inside: Mapping[str, str]
    results: tuple[str, ...]  # storages that are wanted outside, whole
    operands: tuple[str, ...]  # storages from outside
    reductions: frozenset[int]  # numbers of the ops that take up one row a call

    @cached_property
    def spans(self) -> dict[str, tuple[int, int]]:
        """For every ring the numbers of the first and the last op during whose calls it holds rows still wanted.

        Rings whose spans do not meet may lie in the same place.
        """
        numbers = [event.op for event in self.events]
        written: dict[tuple[str, int], int] = {}
        until: dict[tuple[str, int], int] = {}
        for at, event in enumerate(self.events):
            for name, first, past in (*event.reads, *([event.writes] if event.writes else [])):
                home = self.inside.get(name, name)
                if home in self.rings:
                    for row in range(first, past):
                        written.setdefault((name, row), at)
                        until[name, row] = at
        most, found = (min(numbers), max(numbers)), dict[str, tuple[int, int]]()
        for (name, row), at in written.items():
            home = self.inside.get(name, name)
            low, high = found.get(home, (most[1], most[0]))
            if (low, high) != most:
                during = numbers[at : until[name, row] + 1]
                found[home] = (min(low, *during), max(high, *during))
        return found

    def span_of_calls(self, number: int) -> tuple[int, int]:
        """The numbers of the first and the last op that are called from the first to the last call of this one."""
        numbers = [event.op for event in self.events]
        last = len(numbers) - numbers[::-1].index(number)
        during = numbers[numbers.index(number) : last]
        return min(during), max(during)

    def shift(self, graph: Graph, operand: str, result: str) -> int:
        """The least distance in bytes by which `operand` must start above `result` so that they may overlap.

        Writing a row of the result must stay below every row of the operand that is read in the
        same call or later.
        """
        step_in, step_out = row_bytes(graph, operand), row_bytes(graph, result)
        wanted, distance = rows_of(graph, operand), 0
        for event in reversed(self.events):
            for name, first, _ in event.reads:
                wanted = min(wanted, first) if name == operand else wanted
            name, _, past = event.writes or ("", 0, 0)
            if self.inside.get(name, name) == result:
                distance = max(distance, past * step_out - wanted * step_in)
        return distance


def rows_of(graph: Graph, tensor: str) -> int:
    shape = graph.tensors[tensor].shape
    return shape[1] if len(shape) > 1 else 1


def row_bytes(graph: Graph, tensor: str) -> int:
    return graph.tensors[tensor].bytes // rows_of(graph, tensor)


@dataclass(frozen=True)
class RollingGraph:
    """A graph with what rolling asks of it again and again. `storage` maps tensors to what they are views of.

    `streamed`: the storage of an input that the application brings row by row, in order.
    """

    graph: Graph
    storage: Mapping[str, str]
    streamed: str | None = None

    @cached_property
    def readers(self) -> dict[str, list[Op]]:
        found: dict[str, list[Op]] = {}
        for op in self.graph.ops:
            if not ops.SPECS[op.kind].view:
                for name in dict.fromkeys(self.storage[n] for n in op.inputs if n in self.storage):
                    found.setdefault(name, []).append(op)
        return found

    @cached_property
    def outputs(self) -> set[str]:
        return {self.storage[n] for n in self.graph.outputs}

    @cached_property
    def modes(self) -> dict[str, str]:
        return {op.outputs[0]: ops.SPECS[op.kind].rows(op, self.graph) for op in self.graph.ops}

    @cached_property
    def needs(self) -> dict[str, list[tuple[str, str, list[tuple[int, int]]]]]:
        """For each op its activation operands: tensor, storage, and the rows that each output row needs."""
        return {op.outputs[0]: self._needs(op) for op in self.graph.ops}

    def _needs(self, op: Op) -> list[tuple[str, str, list[tuple[int, int]]]]:
        relation, found = ops.nest(op, self.graph), []
        count = rows_of(self.graph, op.outputs[0])
        for position, name in enumerate(op.inputs):
            if name not in self.storage:
                continue
            whole = (0, rows_of(self.graph, name))
            dims = relation.operands[position]
            along = dims[1] if len(dims) > 1 and len(relation.out) > 1 else None
            follows = isinstance(along, Same | Window) and along.axis == relation.out[1]
            ranges = [input_range(relation, position, 1, r, r + 1) if follows else whole for r in range(count)]
            found.append((name, self.storage[name], [self._of_storage(name, *rows) for rows in ranges]))
        return found

    def _of_storage(self, view: str, first: int, past: int) -> tuple[int, int]:
        """The rows of the storage that hold the rows [first, past) of a view of it."""
        small, large = row_bytes(self.graph, view), row_bytes(self.graph, self.storage[view])
        return first * small // large, -(-past * small // large)


def roll(rolling: RollingGraph, run: Sequence[Op]) -> Rolled | None:
    """Execute the run of ops by rows, on demand of its results; None if it cannot be done."""
    graph = rolling.graph
    index = {op.outputs[0]: i for i, op in enumerate(run)}
    members = set(index)
    results = tuple(
        op.outputs[0]
        for op in run
        if op.outputs[0] in rolling.outputs
        or any(r.outputs[0] not in members for r in rolling.readers.get(op.outputs[0], []))
    )
    if not all(_possible(rolling, op, members) for op in run):
        return None
    made = [0] * (len(run) + 1)
    rings = {op.outputs[0]: 0 for op in run if op.outputs[0] not in results}
    if rolling.streamed is not None and all(r.outputs[0] in members for r in rolling.readers[rolling.streamed]):
        rings[rolling.streamed], index[rolling.streamed] = 0, len(run)
    events: list[Event] = []

    def take(rows: int) -> None:
        assert rolling.streamed is not None
        while made[-1] < rows:
            made[-1] += 1
            events.append(Event(len(run), made[-1] - 1, (), (rolling.streamed, made[-1] - 1, made[-1])))

    def pull(number: int, rows: int) -> None:
        op = run[number]
        reduces = rolling.modes[op.outputs[0]] == "reduce"
        while made[number] < rows:
            row, reads = made[number], []
            for _, root, ranges in rolling.needs[op.outputs[0]]:
                total = rows_of(graph, root)
                first, past = (row, row + 1) if reduces and root in rings else (0, total) if reduces else ranges[row]
                if root in index:
                    pull(index[root], past) if root in members else take(past)
                    if root in rings:
                        rings[root] = max(rings[root], made[index[root]] - first)
                reads.append((root, first, past))
            made[number] = row + 1
            writes: tuple[str, int, int] | None = (op.outputs[0], row, row + 1)
            if reduces:
                complete = row + 1 == calls(rolling, op)
                writes = (op.outputs[0], 0, rows_of(graph, op.outputs[0])) if complete else None
            events.append(Event(number, row, tuple(reads), writes))

    for name in sorted(results, key=lambda name: -index[name]):
        pull(index[name], calls(rolling, run[index[name]]))
    if rolling.streamed in rings:
        take(rows_of(graph, str(rolling.streamed)))
    operands = dict.fromkeys(root for op in run for _, root, _ in rolling.needs[op.outputs[0]] if root not in index)
    inside = _inside(rolling, run, rings)
    kept = {name: rows for name, rows in rings.items() if name not in inside}
    reductions = frozenset(i for i, op in enumerate(run) if rolling.modes[op.outputs[0]] == "reduce")
    return Rolled(tuple(run), tuple(events), kept, inside, results, tuple(operands), reductions)


def _inside(rolling: RollingGraph, run: Sequence[Op], rings: Mapping[str, int]) -> dict[str, str]:
    """Inner tensors of one row that can be made in the place of their reader's result, and that place.

    It is free: the reader makes row r at once, and the row that stood there before is older than
    any that is still wanted, or the ring of the result would have to be larger.
    """
    found: dict[str, str] = {}
    for op in reversed(run):
        y, relation = op.outputs[0], ops.nest(op, rolling.graph)
        for position, name in enumerate(op.inputs):
            root = rolling.storage.get(name)
            if root is None or rings.get(root) != 1 or len(rolling.readers[root]) > 1 or y in found.values():
                continue
            if elementwise(relation, position) and row_bytes(rolling.graph, root) == row_bytes(rolling.graph, y):
                found[root] = found.get(y, y)
    return found


def calls(rolling: RollingGraph, op: Op) -> int:
    """How often an op is called: for each row of its result, or of the ring that it reduces."""
    if rolling.modes[op.outputs[0]] != "reduce":
        return rows_of(rolling.graph, op.outputs[0])
    root = next(root for _, root, _ in rolling.needs[op.outputs[0]])
    return rows_of(rolling.graph, root)


def _possible(rolling: RollingGraph, op: Op, members: set[str]) -> bool:
    """Can this op run by rows among these? A reduction must end the run; a view must keep the rows."""
    y = op.outputs[0]
    mode = rolling.modes[y]
    if mode == "reduce":
        inside = all(root in members for _, root, _ in rolling.needs[y])
        return inside and not any(r.outputs[0] in members for r in rolling.readers.get(y, []))
    same = all(
        name == root or root not in members or rows_of(rolling.graph, name) == rows_of(rolling.graph, root)
        for name, root, _ in rolling.needs[y]
    )
    return mode == "each" and same
