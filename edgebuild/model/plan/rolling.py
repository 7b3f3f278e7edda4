"""Rolling execution: a run of ops computed row by row, each row when it is first wanted.

A row is all elements that share an index of a tensor's second dimension. Tensors inside a run are
never whole: each is a ring that holds the rows from the oldest that a reader still wants to the
newest. Nothing is computed twice. Operands from outside the run are whole.

A ring has one row more than its readers need between their calls: the newest. If the run makes that row in a
*separate* place, other rings can use the place while this one waits. Once no reader wants the oldest row, the newest
is copied over it. So the ring itself has a row less.

Everything follows from the ops' index relations: which rows of an operand an output row needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from ...base.errors import fail
from .. import ops
from ..ir import Graph, Op, Same, Spread, Tensor, Window, input_range, rename
from .memory.problem import aligned

Reads = tuple[tuple[str, int, int], ...]  # storage, first row, one past the last
HAND_ROWS = "hand_rows"  # the kind of op that hands rows of the output to the application
Span = tuple[int, int]  # numbers of a first and a last op, both inclusive


class Event(NamedTuple):
    """One call: op number `op` of the run makes row `row` (or adds it to its sums, if it reduces over rows).

    `writes` is None while a reduction is not complete; its last call writes all rows. The number one past the
    last op means that the application brings the next row of a streamed input. Higher numbers mean that
    the separate newest row of a ring is copied into the ring.
    """

    op: int
    row: int
    reads: Reads
    writes: tuple[str, int, int] | None  # storage, first row, one past the last


def rows_of(graph: Graph, tensor: str) -> int:
    shape = graph.tensors[tensor].shape
    return shape[1] if len(shape) > 1 else 1


def row_bytes(graph: Graph, tensor: str) -> int:
    return graph.tensors[tensor].bytes // rows_of(graph, tensor)


def with_rows(graph: Graph) -> Graph:
    """The graph without a view of its input, which gets the view's shape: its rows are those of the first op.

    Raises EdgebuildError for a graph without an input.
    """
    if not graph.inputs:
        raise fail("cannot stream: no input", file=graph.file, hints=["leave --stream-input out"])
    x = graph.inputs[0]
    readers = graph.consumers[x]
    if len(readers) != 1 or not ops.SPECS[readers[0].kind].view:
        return graph
    shape = graph.result(readers[0]).shape
    others = [op for op in graph.ops if op is not readers[0]]
    tensors = {**graph.tensors, x: replace(graph.tensors[x], shape=shape)}
    return rename(replace(graph, ops=tuple(others), tensors=tensors), {readers[0].outputs[0]: x})


def with_output_rows(graph: Graph, name: str) -> Graph:
    """The graph with a last op that calls the application's `NAME_output_row` for each row of its one output.

    A view at its end is left out, so that rows are those of the last op. Raises EdgebuildError if there are no rows.
    """
    y = graph.outputs[0]
    if len(graph.ports_out) != 1 or graph.states:
        what = "the model keeps a state" if graph.states else f"{len(graph.ports_out)} outputs"
        raise fail(f"no rows of the output: {what}", file=graph.file, hints=["leave --stream-output out"])
    last = graph.producers.get(y)
    before = graph.tensors[last.inputs[0]] if last is not None and ops.SPECS[last.kind].view else None
    if before is not None and before.name in graph.producers and before.elements == graph.tensors[y].elements:
        others = [
            replace(op, outputs=(y,)) if op.outputs == (before.name,) else op for op in graph.ops if op is not last
        ]
        x = replace(graph.tensors[y], shape=before.shape)
        graph = rename(replace(graph, ops=tuple(others), tensors={**graph.tensors, y: x}), {before.name: y})
    if rows_of(graph, y) < 2 or y in graph.inputs:
        hints = ["its second dimension are the rows; NCHW files: transpose the output, or leave --stream-output out"]
        raise fail(f"no rows of the output: '{y}' has {rows_of(graph, y)}", file=graph.file, hints=hints)
    end = Tensor(f"{y} (rows)", (0,), "int8")
    op = Op(HAND_ROWS, end.name, (y,), (end.name,), {"function": f"{name}_output_row"})
    return replace(graph, ops=(*graph.ops, op), tensors={**graph.tensors, end.name: end}, outputs=(end.name,))


def read_outside(graph: Graph) -> tuple[str, ...]:
    """The tensors that the application reads as outputs, whole or row by row."""
    makers = ((name, graph.producers.get(name)) for name in graph.ports_out)
    return tuple(
        op.inputs[0] if op is not None and ops.SPECS[op.kind].link == "output" else name for name, op in makers
    )


@dataclass(frozen=True)
class Rolled:
    """A run of ops that is executed row by row.

    `rings`: rows kept of each inner tensor's storage. `inside`: inner tensors without a ring, and the result that each
    lies in. The one reader of such a tensor reads each row element by element as soon as it is made. So row r is made
    in the place of row r of the reader's result. `spans`: for every ring, the first and the last op during whose calls
    it may hold rows that are still wanted; for sums of a reduction, from its first call to its last. Rings whose spans
    do not meet may share bytes. `newest`: spans of newest rows that may be `separate`. Rings in `separate` count a row
    less in `rings`.
    """

    rolling: RollingGraph
    ops: tuple[Op, ...]
    rings: Mapping[str, int]
    inside: Mapping[str, str]
    results: tuple[str, ...]  # storages that are read outside of the run, whole
    operands: tuple[str, ...]  # storages from outside
    spans: Mapping[str, Span]
    counts: tuple[int, ...]  # calls of each op, then calls that bring rows of the streamed input, if any
    fed: tuple[str, ...] | None = None  # storages whose rows come from outside; None: the streamed input, if read here
    newest: Mapping[str, Span] = field(default_factory=dict)
    separate: tuple[str, ...] = ()

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """The order of the calls."""
        events = simulate(self.rolling, self.ops, self.fed).events
        return with_copies(events, {name: self.rings[name] for name in self.separate}, len(self.ops) + 1)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The number of each call, in order: the table that is printed."""
        return tuple(event.op for event in self.events)

    @cached_property
    def joined(self) -> Rolled:
        """The run without separate newest rows: all rows of a ring lie in one place."""
        return replace(self, rings={n: rows + (n in self.separate) for n, rows in self.rings.items()}, separate=())


def with_copies(events: Sequence[Event], rings: Mapping[str, int], first: int) -> tuple[Event, ...]:
    """The calls, with those that copy separate newest rows into their rings.

    `rings`: rows of each such ring; the numbers of their copies begin with `first`, in this order. Rows that no later
    call reads are not copied.
    """
    if not rings:
        return tuple(events)
    makers, last_reads = dict[tuple[str, int], int](), dict[tuple[str, int], int]()
    for at, event in enumerate(events):
        if event.writes is not None and event.writes[0] in rings:
            name, low, high = event.writes
            makers.update(dict.fromkeys(((name, row) for row in range(low, high)), at))
        last_reads.update((((n, row), at) for n, low, high in event.reads if n in rings for row in range(low, high)))
    numbers = {name: first + i for i, name in enumerate(rings)}
    end = {name: max(at for (n, _), at in last_reads.items() if n == name) for name in rings}
    copies: list[list[Event]] = [[] for _ in events]
    for (name, row), at in makers.items():
        free = max(at, last_reads.get((name, row - rings[name]), at))  # last read of the row that is overwritten
        if free < end[name]:
            copies[free].append(Event(numbers[name], row, ((name, row, row + 1),), (name, row, row + 1)))
    return tuple(each for event, more in zip(events, copies, strict=True) for each in (event, *more))


@dataclass(frozen=True)
class RollingGraph:
    """A graph with cached facts for planning: storages, their rows and readers, and the rows that each op reads.

    `streamed`: the storage of an input that the application brings row by row, in order.
    """

    graph: Graph
    streamed: str | None = None

    @cached_property
    def views(self) -> dict[str, tuple[str, int]]:
        """For each activation its storage, and its offset there in bytes."""
        views = {t.name: (t.name, 0) for t in self.graph.tensors.values() if not t.constant}
        for op in self.graph.ops:
            if (spec := ops.SPECS[op.kind]).view:
                storage, start = views[op.inputs[0]]
                views[op.outputs[0]] = storage, start + spec.start(op, self.graph)
        return views

    @cached_property
    def storage(self) -> dict[str, str]:
        """The storage of every activation."""
        return {name: storage for name, (storage, _) in self.views.items()}

    @cached_property
    def arrays(self) -> dict[str, str]:
        """Symbols of storages that are arrays of the application. Raises EdgebuildError if a storage has two."""
        arrays = dict[str, str]()
        for name, symbol in self.graph.arrays:
            if arrays.setdefault(self.storage[name], symbol) != symbol:
                text = (
                    f"'{name}' cannot lie in {symbol}: its bytes are those of a tensor in {arrays[self.storage[name]]}"
                )
                raise fail(text, file=self.graph.file, hints=["an output that is an input has its array"])
        return arrays

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Arena bytes of each storage; 0 for an array of the application, so that no overlap with it saves anything."""
        tensors, arrays = self.graph.tensors, self.arrays
        return {root: 0 if root in arrays else aligned(tensors[root].bytes) for root in self.storage.values()}

    @cached_property
    def readers(self) -> dict[str, list[Op]]:
        readers: dict[str, list[Op]] = {}
        for op in self.graph.ops:
            if not ops.SPECS[op.kind].view:
                for name in dict.fromkeys(self.storage[n] for n in op.inputs if n in self.storage):
                    readers.setdefault(name, []).append(op)
        return readers

    @cached_property
    def outputs(self) -> set[str]:
        return {self.storage[n] for n in self.graph.outputs}

    def overwritten(self, op: Op) -> list[str]:
        """The storages that the op's result may overwrite: those that the op reads only element by element."""
        positions = ops.overwritable(op, self.graph)
        others = {self.storage[n] for i, n in enumerate(op.inputs) if n in self.storage and i not in positions}
        return [root for i in positions if (root := self.storage[op.inputs[i]]) not in others]

    @cached_property
    def modes(self) -> dict[str, str]:
        return {op.outputs[0]: self._mode(op) for op in self.graph.ops}

    def _mode(self, op: Op) -> str:
        """How the op runs by rows: "each", "reduce", or "" if it cannot. Batches of several samples cannot."""
        tensors = (self.graph.tensors[n] for n in (*op.inputs, *op.outputs))
        if any(t.shape[:1] > (1,) and len(t.shape) > 1 for t in tensors if not t.constant):
            return ""
        return ops.SPECS[op.kind].rows(op, self.graph)

    @cached_property
    def row_bytes(self) -> dict[str, int]:
        return {root: row_bytes(self.graph, root) for root in self.storage.values()}

    @cached_property
    def operands(self) -> dict[str, list[tuple[str, int]]]:
        """For each op the storages of its activation operands, and their rows."""
        return {y: [(root, rows_of(self.graph, root)) for _, root in needs] for y, needs in self.needs.items()}

    @cached_property
    def needs(self) -> dict[str, list[tuple[str, str]]]:
        """For each op its activation operands: tensor and storage."""
        return {op.outputs[0]: [(n, self.storage[n]) for n in op.inputs if n in self.storage] for op in self.graph.ops}

    def reads(self, op: Op) -> list[Reads]:
        """For each row of an op's result the rows that it needs."""
        y = op.outputs[0]
        if y not in self._reads:
            self._reads[y] = self._rows_read(op)
        return self._reads[y]

    @cached_property
    def _reads(self) -> dict[str, list[Reads]]:
        return {}

    @cached_property
    def in_place_rows(self) -> dict[str, list[str]]:
        """For each op the operands with rows of the result's size that only this op reads, element by element."""
        rows: dict[str, list[str]] = {}
        for op in self.graph.ops:
            y = op.outputs[0]
            alone = [root for root in self.overwritten(op) if len(self.readers.get(root, [])) == 1]
            rows[y] = [root for root in alone if row_bytes(self.graph, root) == row_bytes(self.graph, y)]
        return rows

    def by_row(self, name: str) -> bool:
        """Whether all readers see the storage in its own rows, with no view that splits it otherwise."""
        seen = [n for op in self.readers.get(name, []) for n, root in self.needs[op.outputs[0]] if root == name]
        return all(rows_of(self.graph, n) == rows_of(self.graph, name) for n in seen)

    def _rows_read(self, op: Op) -> list[Reads]:
        relation, columns = ops.nest(op, self.graph), []
        count = rows_of(self.graph, op.outputs[0])
        for position, name in enumerate(op.inputs):
            if name not in self.storage:
                continue
            dims = relation.operands[position]
            along = dims[1] if len(dims) > 1 and len(relation.out) > 1 else None
            ranges = [(0, rows_of(self.graph, name))] * count
            if isinstance(along, Same | Window | Spread) and along.axis == relation.out[1]:
                ranges = [input_range(relation, position, 1, r, r + 1) for r in range(count)]
            root = self.storage[name]  # rows of a view become ranges of its storage's rows
            small, large = row_bytes(self.graph, name), row_bytes(self.graph, root)
            columns.append([(root, first * small // large, -(-past * small // large)) for first, past in ranges])
        return list(zip(*columns, strict=True)) if columns else [()] * count


@dataclass(frozen=True)
class Trace:
    """The calls of a run executed by rows on demand of its results; `tail` gives the run of its last ops.

    The results pull the rows. So the ops of a tail have the same calls in the same order, whether the ops
    before them are rolled as well or run whole.
    """

    rolling: RollingGraph
    run: tuple[Op, ...]
    events: tuple[Event, ...]
    rings: Mapping[str, int]  # rows kept of all inner storages
    results: tuple[str, ...]
    kept: Mapping[str, int]  # rows of each result that ops of the run still read

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of the op that makes each storage; that of the application for a streamed input."""
        index = {op.outputs[0]: number for number, op in enumerate(self.run)}
        return index | {n: len(self.run) for n in self.rings if n == self.rolling.streamed}

    def tail(self, start: int) -> Rolled:
        """The run of the ops from number `start` on, which has to be one of `possible_starts`."""
        streamed = self.rolling.streamed
        brought = streamed in self.rings and all(reader >= start for _, reader, _ in self.reads[str(streamed)])
        end = len(self.run) if brought else len(self.run) - 1
        rings = {n: rows for n, rows in self.rings.items() if start <= self.index[n] <= end}
        inside = self._inside(start, rings)
        kept = {name: rows for name, rows in rings.items() if name not in inside}
        spans: dict[str, Span] = {}
        for name in (*rings, *(n for n in self._sums if self.index[n] >= start)):
            low, high = self._spans[name]
            home = inside.get(name, name)
            if home in kept or name in self._sums:
                before = spans.get(home, (end, 0))
                spans[home] = min(before[0], max(low - start, 0)), max(before[1], min(high, end) - start)
        here = {op.outputs[0] for op in self.run[start:]}
        roots = (root for op in self.run[start:] for root, _ in self.rolling.operands[op.outputs[0]])
        operands = tuple(dict.fromkeys(r for r in roots if r not in rings and r not in here))
        results = tuple(name for name in self.results if name in here)
        counts = tuple(self.counts[start : end + 1])
        newest = {
            name: (max(low - start, 0), high - start)
            for name, (low, high) in self._newest.items()
            if name in kept and name not in inside.values()
        }
        return Rolled(self.rolling, self.run[start:], kept, inside, results, operands, spans, counts, newest=newest)

    def sums(self, name: str) -> bool:
        """Whether the op that makes a storage reads its operand row by row."""
        return self.rolling.modes[name] == "reduce"

    @cached_property
    def first(self) -> dict[int, int]:
        """The first call of each op."""
        return {event.op: at for at, event in reversed(list(enumerate(self.events)))}

    @cached_property
    def reads(self) -> dict[str, list[tuple[int, int, int]]]:
        """For each storage the events that read it: number, reader, first row."""
        reads: dict[str, list[tuple[int, int, int]]] = {}
        for at, event in enumerate(self.events):
            for name, first, _ in event.reads:
                reads.setdefault(name, []).append((at, event.op, first))
        return reads

    @cached_property
    def writes(self) -> dict[str, list[tuple[int, int]]]:
        """For each storage the events that write it: number, one past the last row."""
        writes: dict[str, list[tuple[int, int]]] = {}
        for at, event in enumerate(self.events):
            if event.writes is not None:
                writes.setdefault(event.writes[0], []).append((at, event.writes[2]))
        return writes

    @cached_property
    def counts(self) -> list[int]:
        """Calls of each op, then those of the application."""
        counted = Counter(self._numbers)
        return [counted[number] for number in range(len(self.run) + 1)]

    @cached_property
    def _numbers(self) -> list[int]:
        return [event.op for event in self.events]

    @cached_property
    def _sums(self) -> list[str]:
        return [op.outputs[0] for op in self.run if self.sums(op.outputs[0])]

    @cached_property
    def _until(self) -> dict[str, dict[int, int]]:
        """The last event that reads each row of each inner storage."""
        until: dict[str, dict[int, int]] = {name: {} for name in self.rings}
        for at, event in enumerate(self.events):
            for name, first, past in event.reads:
                if name in self.rings:
                    until[name].update(dict.fromkeys(range(first, past), at))
        return until

    @cached_property
    def _newest(self) -> dict[str, Span]:
        """Span of ops called while a ring's newest row is in use, where it is shorter than the span of the ring."""
        newest = dict[str, Span]()
        for name, rows in self.rings.items():
            inner = self.index[name] < len(self.run) and self.rolling.by_row(name)
            if inner and 1 < rows < rows_of(self.rolling.graph, name):
                until = self._until[name]
                waits = [self._numbers[at : max(at, until.get(p - rows, at)) + 1] for at, p in self.writes[name]]
                low, high = min(map(min, waits)), max(map(max, waits))
                if high - low < self._spans[name][1] - self._spans[name][0]:
                    newest[name] = low, high
        return newest

    @cached_property
    def _spans(self) -> dict[str, Span]:
        """First and last op called while each inner storage, or the sums of a reduction, is in use."""
        numbers, spans = self._numbers, dict[str, Span]()
        most = min(numbers), max(numbers)
        for name in self.rings:
            low, high, seen = most[1], most[0], 0
            for at, past in self.writes.get(name, []):
                last = self._until[name].get(past - 1, at)
                if during := numbers[max(at, seen) : last + 1]:
                    low, high, seen = min(low, *during), max(high, *during), last + 1
                if (low, high) == most:
                    break
            spans[name] = (low, high) if low <= high else (self.index[name], self.index[name])
        for name in self._sums:
            first = numbers.index(self.index[name])
            last = len(numbers) - numbers[::-1].index(self.index[name])
            spans[name] = min(numbers[first:last]), max(numbers[first:last])
        return spans

    def _inside(self, start: int, rings: Mapping[str, int]) -> dict[str, str]:
        """Inner tensors of one row that can be made in the place of their reader's result, and that place.

        That place is free: the reader makes row r at once. The row that was there before is older than any that is
        still wanted; otherwise the ring of the result would be larger.
        """
        inside: dict[str, str] = {}
        for op in reversed(self.run[start:]):
            y = op.outputs[0]
            root = next((r for r in self.rolling.in_place_rows[y] if rings.get(r) == 1), None)
            if root is not None:
                inside[root] = inside.get(y, y)
        return inside


def possible_starts(rolling: RollingGraph, run: Sequence[Op]) -> list[int]:
    """Numbers of the ops from which the run can be rolled to its end, the last op first."""
    index = {op.outputs[0]: number for number, op in enumerate(run)}
    low, high = 0, len(run) - 1
    starts = []
    for number in reversed(range(len(run))):
        y = run[number].outputs[0]
        roots = [(name, index.get(root, -1), root) for name, root in rolling.needs[y]]
        # An operand that a view splits into other rows has to be whole.
        other = [at for n, at, r in roots if n != r and rows_of(rolling.graph, n) != rows_of(rolling.graph, r)]
        if rolling.modes[y] == "reduce":  # it ends the run, and begins none
            last = any(r.outputs[0] in index for r in rolling.readers.get(y, []))
            whole = [] if ops.SPECS[run[number].kind].any_rows else other
            low = max(low, number + 1 if last else 0, *(at + 1 for at in whole))
            high = min(high, *(at for _, at, _ in roots), high)
        elif rolling.modes[y] == "each":
            low = max(low, 0, *(at + 1 for at in other))
        else:
            low = max(low, number + 1)
        if number < low:
            break
        if number <= high:
            starts.append(number)
    return starts


def simulate(
    rolling: RollingGraph,
    run: Sequence[Op],
    fed: tuple[str, ...] | None = None,
    together: int = 1,
    of: Sequence[int] = (),
) -> Trace:
    """Execute the run of ops by rows, on demand of its results.

    `fed`: storages whose rows come from outside when they are first wanted, by calls whose numbers follow those of the
    ops; None: the streamed input, if all its readers are here. Each call makes or brings `together` rows, or those that
    are left of the op's `of` rows; a reduction adds one row.
    """
    index = {op.outputs[0]: i for i, op in enumerate(run)}

    def wanted(y: str) -> bool:
        return y in rolling.outputs or any(r.outputs[0] not in index for r in rolling.readers.get(y, []))

    results = tuple(filter(wanted, index))
    if fed is None:
        here = rolling.streamed is not None and all(r.outputs[0] in index for r in rolling.readers[rolling.streamed])
        fed = (rolling.streamed,) if here and rolling.streamed is not None else ()
    index |= {name: len(run) + i for i, name in enumerate(fed)}
    reads = [_reads(rolling, op, set(index).difference(results)) for op in run]
    sources = [[index.get(root) for _, root in rolling.needs[op.outputs[0]]] for op in run]
    done = _Rows(rolling, run, fed, reads, sources, together, of, [0] * len(index), [1] * len(index))
    for name in sorted(results, key=lambda name: -index[name]):
        done.make(index[name], calls(rolling, run[index[name]]))
    if rolling.streamed in index:
        done.bring(index[rolling.streamed], rows_of(rolling.graph, rolling.streamed))
    rings, kept = ({n: done.rings[i] for n, i in index.items() if (n in results) == end} for end in (False, True))
    return Trace(rolling, tuple(run), tuple(done.events), rings, results, kept)


@dataclass
class _Rows:
    """State of a simulation: rows made so far by each number, and the calls. `reads`: rows read by each call."""

    rolling: RollingGraph
    run: Sequence[Op]
    fed: tuple[str, ...]
    reads: Sequence[Sequence[Reads]]
    sources: Sequence[Sequence[int | None]]  # the number that makes each operand; None: it is whole
    together: int
    of: Sequence[int]
    count: list[int]
    rings: list[int]  # rows that are kept; a row needs a place even if unread
    events: list[Event] = field(default_factory=list)

    def bring(self, number: int, rows: int) -> None:
        """Record the calls that bring rows from outside, until there are `rows`."""
        for row in range(self.count[number], rows, self.together):
            end = row + 1 if self.together == 1 else min(row + self.together, self.of[number])
            self.events.append(Event(number, row, (), (self.fed[number - len(self.run)], row, end)))
            self.count[number] = end

    def make(self, number: int, rows: int) -> None:
        """Call op `number` until it has made `rows` rows. No recursion: runs may be long."""
        count, waiting = self.count, [(number, rows)]
        while waiting:
            number, rows = waiting[-1]
            row = count[number]
            if row >= rows:
                waiting.pop()
                continue
            alone = self.together == 1 or self.rolling.modes[self.run[number].outputs[0]] == "reduce"
            end = row + 1 if alone else min(row + self.together, self.of[number])
            for (_, _, past), source in zip(self.reads[number][end - 1], self.sources[number], strict=True):
                if source is not None and count[source] < past:
                    if source < len(self.run):
                        waiting.append((source, past))
                        break
                    self.bring(source, past)
            else:
                self.call(number, row, end)

    def call(self, number: int, row: int, end: int) -> None:
        """Record one call of an op whose operand rows have been made."""
        y, each = self.run[number].outputs[0], self.reads[number]
        for (_, first, _), source in zip(each[row], self.sources[number], strict=True):
            # only now: a call for one operand may have made more rows of another
            if source is not None and self.count[source] - first > self.rings[source]:
                self.rings[source] = self.count[source] - first
        self.count[number] = end
        writes: tuple[str, int, int] | None = (y, row, end)
        if self.rolling.modes[y] == "reduce":
            writes = (y, 0, rows_of(self.rolling.graph, y)) if end == len(each) else None
        ends = zip(each[row], each[end - 1], strict=True)
        rows_read = each[row] if end == row + 1 else tuple((name, low, past) for (name, low, _), (_, _, past) in ends)
        self.events.append(Event(number, row, rows_read, writes))


def _reads(rolling: RollingGraph, op: Op, rings: Container[str]) -> Sequence[Reads]:
    """For each call of an op the rows that it reads. A reduction reads rings row by row, other operands whole."""
    y = op.outputs[0]
    if rolling.modes[y] != "reduce":
        return rolling.reads(op)
    roots = [(root, root in rings, rows_of(rolling.graph, root)) for _, root in rolling.needs[y]]
    return [
        tuple((root, row, row + 1) if ring else (root, 0, rows) for root, ring, rows in roots)
        for row in range(calls(rolling, op))
    ]


def calls(rolling: RollingGraph, op: Op) -> int:
    """How often an op is called: once for each row of its result, or of the operand that it reduces."""
    if rolling.modes[op.outputs[0]] != "reduce":
        return rows_of(rolling.graph, op.outputs[0])
    root = next(root for _, root in rolling.needs[op.outputs[0]])
    return rows_of(rolling.graph, root)
