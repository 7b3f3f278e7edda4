"""Record operands and results of every step of a model in the arena while its test program runs on the target.

The program is the model's own source, in which the fences between steps call harness/trace.c. A script tells trace.c
which bytes of the arena to copy out, and which to overwrite, at each fence. `Plot` derives their places from the report
and from the tables of rows in the source.

In directed rounds every step gets operands chosen for it, so that each step is tested separately. They reach its
bounds, every entry of its table and ties between two results, even if no input of the network produces such values.
Sums of products get windows of two kinds. Some drive a filter's sum beyond an end of its clamp. The others bring the
sum close to the middle between two results, with operands at ends of their range: then a small error of a weight, a
bias or a factor changes the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...base.artifacts import Artifact
from ...base.errors import fail
from ...base.target import hal_dir
from .. import ops
from ..ir import Array, Graph, Op, Tensor, reals_of
from ..ops.base import quant_of, scale_of, zero_of
from ..ops.fixedpoint import limits
from ..ops.spatial import bounds
from .harness import NAME, Builder, arenas, run_program, sources
from .rounding import largest

GO_ON, TAKE, PUT = range(3)  # commands of trace.c
TABLE = r"_order_{step}\[\d+\] = \{{(.*?)\}};"
ONE = r"model_rows_{step}\(\w*[ *]*\w*\)\n\{{\n(?:    static .*\n)?    for \([^;]*;.*\brow < (\d+);"

Row = tuple[str, int]  # tensor, number of its row
Place = tuple[str, int, int]  # memory, offset and bytes
Where = tuple[slice, ...]  # part of a tensor; ALL: the whole tensor
ALL: Where = ()


@dataclass
class Seen:
    """Recorded values of an inference. `before[k]`: operands when step k begins; `after[k]`: its results at its end."""

    before: list[dict[str, Array]]
    after: list[dict[str, Array]]

    def read(self, name: str) -> Array | None:
        """The value of a tensor when the first step that reads it begins, else at the end of its own step."""
        return next((values[name] for values in (*self.before, *self.after) if name in values), None)


@dataclass
class Round:
    """Values written before each step, by tensor name; those of step 0 include the inputs."""

    puts: list[dict[str, Array]]
    directed: bool


@dataclass(frozen=True)
class Plot:
    """The steps of a plan and places of their tensors. `source`: generated C. `hidden`: memories no core reaches."""

    graph: Graph
    report: dict[str, Any]
    source: str
    hidden: frozenset[str] = frozenset()

    @cached_property
    def buffers(self) -> dict[str, dict[str, Any]]:
        """Buffers of the report that are tensors of the graph."""
        values = (b for b in self.report["layout"]["buffers"] if not b.keys() & {"scratch_of", "newest_of"})
        tensors = self.graph.tensors
        return {b["name"]: b for b in values if b["name"] in tensors and tuple(b["shape"]) == tensors[b["name"]].shape}

    @cached_property
    def steps(self) -> list[list[Op]]:
        """The ops that each step computes whole; ops that the plan split into parts are left out."""
        ops: list[list[Op]] = [[] for _ in self.report["schedule"]["steps"]]
        for op in self.graph.ops:
            b = self.buffers.get(op.outputs[0])
            if b is not None and b["first"] < len(ops):
                step = self.report["schedule"]["steps"][b["first"]]
                if (op.name, op.kind) in zip(step["ops"], step["kinds"], strict=True):
                    ops[b["first"]].append(op)
        return ops

    def is_whole(self, name: str) -> bool:
        b = self.buffers.get(name)
        seen = b is not None and not b.get("rows") and b["memory"] not in self.hidden
        return seen and b is not None and b["bytes"] == self.graph.tensors[name].bytes > 0

    def reads(self, step: int) -> list[str]:
        """Operands of a step that are whole in the arena as it begins."""
        results = {op.outputs[0] for op in self.steps[step]}
        names = [n for op in self.steps[step] for n in op.inputs if self.viewed(n) not in results and self.is_whole(n)]
        return list(dict.fromkeys(names))

    def viewed(self, name: str) -> str:
        """The tensor whose bytes this one shows in another shape; itself if it is no view."""
        while (b := self.buffers.get(name)) is not None and "view_of" in b:
            name = b["view_of"]
        return name

    def makes(self, step: int) -> list[str]:
        """Results of a step that are whole in the arena when it has ended, except those recorded by rows."""
        last = self.steps[step][-1:] if self.rows[step] else self.steps[step]
        by_rows = {name for name, _ in filter(None, self.rows[step])}
        return [op.outputs[0] for op in last if self.is_whole(op.outputs[0]) and op.outputs[0] not in by_rows]

    @cached_property
    def parts(self) -> dict[int, list[tuple[str, Place, Where]]]:
        """Parts of tensors that each step computes: name, place, and slices of the tensor.

        Rings and overlapping parts are left out: the report does not say which rows the latter have.
        """
        split = ((b["name"].rpartition(":"), b) for b in self.report["layout"]["buffers"])
        pieces = dict[str, dict[int, dict[str, Any]]]()
        for (name, _, number), b in split:
            if name in self.graph.tensors and number.isdecimal() and b["name"] not in self.graph.tensors:
                pieces.setdefault(name, {})[int(number)] = b
        by_step = dict[int, list[tuple[str, Place, Where]]]()
        for name, numbered in pieces.items():
            those, at = [numbered[n] for n in sorted(numbered)], 0
            cut = [(axis, [b["shape"][axis] for b in those]) for axis in range(len(self.graph.tensors[name].shape))
                   if those[0]["shape"][axis] != self.graph.tensors[name].shape[axis]]  # fmt: skip
            if len(cut) != 1 or sum(cut[0][1]) != self.graph.tensors[name].shape[cut[0][0]]:
                continue
            if any(b.keys() & {"rows", "view_of"} for b in those):
                continue
            for b, size in zip(those, cut[0][1], strict=True):
                where = (*(slice(None),) * cut[0][0], slice(at, at + size))
                by_step.setdefault(b["first"], []).append((name, (b["memory"], b["offset"], b["bytes"]), where))
                at += size
        return by_step

    @cached_property
    def rows(self) -> list[list[Row | None]]:
        """Per step that rolls several ops, the row that each call computes; None: no whole row.

        Empty for runs in the first memory level, which have no fences between calls.
        """
        return [self._rows_of(step) for step in range(len(self.steps))]

    def _rows_of(self, step: int) -> list[Row | None]:
        if (one := re.search(ONE.format(step=step), self.source)) is not None:
            return [None] * int(one[1])
        table = re.search(TABLE.format(step=step), self.source, re.DOTALL)
        if table is None or f"{NAME}_rows_{step}(" not in self.source:
            return []
        names = re.findall(r"\w+", self.source[: table.start()].rpartition("enum {")[2].partition("}")[0])
        words = re.findall(r"\w+", re.sub(r"/\*.*?\*/", "", table[1], flags=re.DOTALL))
        calls, at = list[int](), 0
        while at < len(words):
            times, length = int(words[at]), int(words[at + 1])
            calls += [names.index(word) for word in words[at + 2 : at + 2 + length]] * times
            at += 2 + length
        producers = {op.name: op for op in self.steps[step]}
        own = [producers.get(name) for name in self.report["schedule"]["steps"][step]["ops"]]
        rows, by_call = [0] * len(names), list[Row | None]()
        for call in calls:
            op = own[call] if call < len(own) else None
            whole = op is not None and calls.count(call) == self._count(op) and self._keeps_rows(op)
            by_call.append((op.outputs[0], rows[call]) if op is not None and whole else None)
            rows[call] += 1
        return by_call

    def _count(self, op: Op) -> int:
        shape = self.graph.result(op).shape
        return shape[1] if len(shape) > 1 else 0

    def _keeps_rows(self, op: Op) -> bool:
        b = self.buffers.get(op.outputs[0])
        return b is not None and "view_of" not in b

    def place(self, name: str, row: int | None = None) -> Place:
        """Memory, offset and bytes of a tensor, or of one of its rows right after it has been computed."""
        b, t = self.buffers[name], self.graph.tensors[name]
        if row is None:
            return b["memory"], b["offset"], t.bytes
        size = t.bytes // t.shape[1]
        newest = next((n for n in self.report["layout"]["buffers"] if n.get("newest_of") == name), None)
        if newest is not None:
            return newest["memory"], newest["offset"], size
        inside = b.get("rows") == 1 and "calls" not in b  # computed in the ring of its reader's result
        ring = self.buffers[b["overlaps"]].get("rows") if inside else b.get("rows")
        return b["memory"], b["offset"] + (row % ring if ring else row) * size, size


@dataclass
class Script:
    """Commands for trace.c. `takes`: round, step, whether after the step, tensor, part and bytes of each TAKE."""

    plot: Plot
    numbers: Mapping[str, int]  # of arenas, by memory
    data: list[bytes] = field(default_factory=list)
    takes: list[tuple[int, int, bool, str, Where, int]] = field(default_factory=list)

    def _command(self, what: int, place: Place = ("", 0, 0)) -> None:
        memory, offset, size = place
        self.data.append(np.array([what, self.numbers.get(memory, 0), offset, size], "<u4").tobytes())

    def _take(self, number: int, step: int, after: bool, name: str, place: Place, where: Where = ALL) -> None:
        self._command(TAKE, place)
        self.takes.append((number, step, after, name, where, place[2]))

    def add(self, number: int, round_: Round) -> None:
        """Add an inference: commands at the fences before each step, before each call of a row and at the end."""
        plot, pending = self.plot, list[tuple[int, str, Place, Where]]()  # since the last fence
        for step in range(len(plot.steps) + 1):
            pending += [(step - 1, name, plot.place(name), ALL) for name in (plot.makes(step - 1) if step else ())]
            pending += [(step - 1, *part) for part in plot.parts.get(step - 1, ())]
            self._take_all(number, pending)
            if step == len(plot.steps):
                self._command(GO_ON)
                break
            for name, value in round_.puts[step].items():
                self._command(PUT, plot.place(name))
                self.data.append(np.ascontiguousarray(value).tobytes())
            for name in plot.reads(step):
                self._take(number, step, False, name, plot.place(name))
            self._command(GO_ON)
            for row in plot.rows[step]:
                self._take_all(number, pending)
                self._command(GO_ON)
                if row is not None:
                    pending.append((step, row[0], plot.place(*row), (slice(None), slice(row[1], row[1] + 1))))

    def _take_all(self, number: int, pending: list[tuple[int, str, Place, Where]]) -> None:
        for step, name, place, where in pending:
            self._take(number, step, True, name, place, where)
        pending.clear()

    def read(self, trace: bytes, rounds: int) -> list[Seen]:
        """Parse the program's output. A tensor in parts counts as a result of the step of its last part."""
        plot, steps = self.plot, len(self.plot.steps)
        seen = [Seen([{} for _ in range(steps)], [{} for _ in range(steps)]) for _ in range(rounds)]
        last = {name: step for _, step, after, name, where, _ in self.takes if after and where}
        at = 0
        for number, step, after, name, where, size in self.takes:
            t = plot.graph.tensors[name]
            values = seen[number].after[last[name] if where else step] if after else seen[number].before[step]
            piece = np.frombuffer(trace, np.dtype(t.dtype), size // np.dtype(t.dtype).itemsize, at)
            at += size
            if where:
                whole = values.setdefault(name, np.zeros(t.shape, t.dtype))
                whole[where] = piece.reshape(whole[where].shape)
            else:
                values[name] = piece.reshape(t.shape)
        return seen


def record(plot: Plot, rounds: Sequence[Round], builder: Builder) -> list[Seen]:
    """Build the program in the builder's folder, run it on its target and return the recorded values per round.

    `write_sources` must have written the files of `plot.report` there. Raises EdgebuildError if it fails.
    """
    target, folder = builder.target, builder.folder
    numbers = {a.memory: i for i, a in enumerate(arenas(target, plot.report))}
    script = Script(plot, numbers)
    for number, round_ in enumerate(rounds):
        script.add(number, round_)
    (folder / "script.bin").write_bytes(b"".join(script.data))
    with (folder / "harness_model.h").open("a", encoding="utf-8") as file:
        file.write(f"#define ROUNDS {len(rounds)}\n")
    model, *rest = sources(target, plot.report)
    io = target.runner.sources if target.runner else ("src/semihost_host.c",)
    hal = [hal_dir() / name for name in ("harness/trace.c", *io)]
    flags = ("-g1", "-include", str(hal_dir() / "harness/layers.h"), "-DEB_ROWS")  # gcc takes a sixth longer with -g
    elf = builder.program("trace", [*rest, *hal], {model: flags})
    run_program(elf, target)
    data = (folder / "trace.bin").read_bytes()
    if len(data) != sum(size for *_, size in script.takes):
        raise fail(f"the traced program wrote {len(data)} bytes")
    return script.read(data, len(rounds))


def source_of(artifacts: Sequence[Artifact]) -> str:
    return next(a.data for a in artifacts if a.name == f"{NAME}.c").decode()


# Ops with operands that cannot be chosen freely: computed indices, which must be in range, and states.
UNBOUNDED = frozenset(
    ("gather", "gather_nd", "scatter", "scatter_reduce", "insert", "lstm", "svdf", "svdf_state", "span")
)
MAX_MACS, MIN_ROUNDS, MAX_ROUNDS = 12_000_000, 2, 128  # multiply-accumulates of all directed rounds; rounds
DRAWN, MAX_DRAWS = 4096, 256  # results of random operands from which those near ties are chosen; draws
LEVELS = 256  # results near an end of the range, of which the one whose sum is nearest to its tie is chosen
PHASES = 4  # below and above a tie near the upper bound; the same near the lower one


def directed_rounds(plot: Plot, first: Round) -> list[Round]:
    """Inferences on the inputs of `first` with directed operands in every step; empty for graphs with UNBOUNDED ops."""
    if any(op.kind in UNBOUNDED for op in plot.graph.ops):
        return []
    count = int(np.clip(MAX_MACS // max(1, plot.report["macs"]["generated"]), MIN_ROUNDS, _useful(plot)))
    rounds = [Round([{**given} for given in first.puts], directed=True) for _ in range(count)]
    for step, step_ops in enumerate(plot.steps):
        read = plot.reads(step)
        for op in step_ops:
            for round_, operands in zip(rounds, _directed(op, plot.graph, count), strict=True):
                round_.puts[step] |= {n: x for n, x in operands.items() if n in read}
    return rounds


def _useful(plot: Plot) -> int:
    """Number of rounds after which every filter has had all its windows."""
    most = MIN_ROUNDS
    for op in (op for step_ops in plot.steps for op in step_ops):
        if ops.SPECS[op.kind].total is not None:
            windows = Windows.of(op, plot.graph)
            most = max(most, 2 + -(-PHASES * windows.filters // max(1, len(windows.places))) if windows else MIN_ROUNDS)
    return max(8, min(most, MAX_ROUNDS))


def _directed(op: Op, graph: Graph, rounds: int) -> list[dict[str, Array]]:
    """Per round, directed values of an op's quantised operands by tensor name."""
    rng = np.random.default_rng(7)
    tensors = [t for t in graph.operands(op) if not t.constant and t.quant is not None and t.dtype in ("int8", "int16")]
    windows = Windows.of(op, graph) if ops.SPECS[op.kind].total is not None else None
    values = [{t.name: _plain(t, number, rng) for t in tensors} for number in range(rounds)]
    if windows is not None and tensors and tensors[0].name == op.inputs[0]:
        windows.put([operands[op.inputs[0]] for operands in values])
    elif tensors and graph.result(op).quant and not ops.SPECS[op.kind].exact:
        for operands, near in zip(values[1::4], _near_ties(op, graph, len(values[1::4]), rng), strict=False):
            operands |= near
    return values


def _near_ties(op: Op, graph: Graph, count: int, rng: np.random.Generator) -> list[dict[str, Array]]:
    """Of many random operands, `count` for which a result is nearest to a tie, from below and from above in turn.

    Such a result changes with a small error of a factor. Empty for large results, of which some are near one anyway,
    and for ops with other operands than quantised ones.
    """
    tensors, y = graph.operands(op), graph.result(op)
    free = {t.name: t for t in tensors if not t.constant}
    if count * y.elements > DRAWN or any(t.quant is None for t in free.values()):
        return []
    draws = [{n: _narrow(t, rng) for n, t in free.items()} for _ in range(min(DRAWN // max(1, y.elements), MAX_DRAWS))]
    steps_of, (low, high) = real_steps(op, graph), (end - zero_of(y) for end in limits(y.dtype))
    below, above = list[float](), list[float]()
    for values in draws:
        steps, tie = steps_of([values[t.name] if t.data is None else t.data for t in tensors])
        with np.errstate(invalid="ignore"):  # infinite results are near no tie
            aside = steps - np.floor(steps) - 0.5
        counts = (np.abs(aside) > 2 * tie) & (steps > low) & (steps < high)
        room = np.abs(aside) / (1 + np.abs(steps))
        below.append(np.min(room, where=counts & (aside < 0), initial=np.inf))
        above.append(np.min(room, where=counts & (aside > 0), initial=np.inf))
    pairs = zip(np.argsort(below, kind="stable"), np.argsort(above, kind="stable"), strict=True)
    return [draws[n] for pair in pairs for n in pair][:count]


def _narrow(t: Tensor, rng: np.random.Generator) -> Array:
    """Random values between two random ends, since many functions are flat where their operands differ much."""
    low, high = np.sort(rng.integers(*limits(t.dtype), 2, endpoint=True))
    return rng.integers(low, high, t.shape, t.dtype, endpoint=True)


def _plain(t: Tensor, number: int, rng: np.random.Generator) -> Array:
    """Values without windows, by `number` modulo 4: all integers in turn; random; extremes; pixels of one extreme."""
    low, high = limits(t.dtype)
    match number % 4:
        case 0:
            turn = np.arange(t.elements) + number // 4 * t.elements
            return np.asarray(turn % (high - low + 1) + low).astype(t.dtype).reshape(t.shape)
        case 1:
            return rng.integers(low, high + 1, t.shape).astype(t.dtype)
        case 2:
            return rng.choice(np.array([low, high]), t.shape).astype(t.dtype)
    pixels = rng.choice(np.array([low, high]), (*t.shape[:-1], 1) if t.shape else ())
    return np.broadcast_to(pixels, t.shape).astype(t.dtype)


class Windows:
    """Windows of an op that sums products, side by side on its operand. `places`: row and column of their first pixels.

    `weights`: [groups, filters of a group, window's rows, columns, channels].
    """

    def __init__(self, op: Op, graph: Graph, weights: Array, places: list[tuple[int, int]]) -> None:
        x, y = graph.operands(op)[0], graph.result(op)
        groups = weights.shape[0]
        zeros = np.broadcast_to(np.array(quant_of(graph.operands(op)[1]).zero_point), y.shape[-1])
        self.weights = weights.astype(np.int64) - zeros.reshape(groups, -1, 1, 1, 1)
        self.places = places
        self.low, self.high = limits(x.dtype)
        self.zero, self.filters = zero_of(x), weights.shape[1]
        bias = graph.operands(op)[2].data if len(op.inputs) > 2 else None
        self.start = np.broadcast_to(0 if bias is None else bias.astype(np.int64).ravel(), y.shape[-1]).reshape(
            groups, -1
        )
        scales = np.broadcast_to(np.array(quant_of(graph.operands(op)[1]).scale), y.shape[-1]).reshape(groups, -1)
        self.factor = scale_of(x) * scales / scale_of(y)
        self.least, self.most = (end - zero_of(y) for end in bounds(op, y))

    @staticmethod
    def of(op: Op, graph: Graph) -> Windows | None:
        """Windows of an op; None if weights are computed, a tensor is of floats, or no window fits on the operand."""
        (x, w), y = graph.operands(op)[:2], graph.result(op)
        if w.data is None or y.quant is None or x.quant is None:
            return None
        if op.kind == "dense":
            return Windows(op, graph, w.data[None, :, None, None, :], [(n, 0) for n in range(x.shape[0])])
        if tuple(op.attrs.get("dilation", (1, 1))) != (1, 1):
            return None
        each = w.data if op.kind != "depthwise_conv2d" else w.data.transpose(3, 1, 2, 0)
        weights = each.reshape(x.shape[3] // each.shape[3], -1, *each.shape[1:])
        firsts = []
        for size, taps, out, step, pad in zip(x.shape[1:3], w.shape[1:3], y.shape[1:3], op.attrs["stride"],
                                              op.attrs["pad"][:2], strict=True):  # fmt: skip
            begins = range(-pad, min(size - taps, (out - 1) * step - pad) + 1, -(-taps // step) * step)
            firsts.append([begin for begin in begins if begin >= 0])
        places = [(row, column) for row in firsts[0] for column in firsts[1]]
        return Windows(op, graph, weights, places) if places else None

    def put(self, values: Sequence[Array]) -> None:
        """Write each round's windows into the operand's values."""
        rows, columns = self.weights.shape[2:4]
        for operand, windows in zip(values, self._pixels(len(values)), strict=True):
            image = operand[:, None] if operand.ndim == 2 else operand[0]
            for (row, column), pixels in zip(self.places, windows, strict=True):
                image[row : row + rows, column : column + columns] = pixels

    def _pixels(self, rounds: int) -> Array:
        """Pixels of each window in each round: [rounds, places, rows, columns, channels].

        The first two rounds reach the ends of all sums; the others come close to ties, filter by filter.
        """
        count, groups = len(self.places), self.weights.shape[0]
        starts = [number if number < 2 else (number - 2) * count for number in range(rounds)]
        turn = (np.array(starts)[:, None] + np.arange(count)).ravel()
        phase, one = turn // self.filters % PHASES, turn % self.filters
        w = self.weights[:, one].swapaxes(0, 1).reshape(len(turn) * groups, -1)
        start, factor = (np.swapaxes(v[:, one], 0, 1).ravel() for v in (self.start, self.factor))
        phase, end, first = (np.repeat(v, groups) for v in (phase, turn % 2, np.arange(len(turn)) < 2 * count))
        finest = np.min(np.where(w == 0, 1 << 20, np.abs(w)), axis=1, initial=1 << 20)
        close = self._close(phase, start, factor, finest)
        pixels = self._balanced(w, np.where(first, np.where(end == 0, np.inf, -np.inf), close))
        shape = (rounds, count, groups, *self.weights.shape[2:])
        return np.moveaxis(pixels.reshape(shape), 2, -2).reshape(rounds, count, *shape[3:5], -1)

    def _close(self, phase: Array, start: Array, factor: Array, finest: Array) -> Array:
        """Sums [windows] next to a tie, on the side that `phase` says. `finest`: the smallest weight of each window.

        With a weight of 1 every whole sum can be met. Then it is that of many results that is nearest to its tie.
        """
        span = self.most - self.least
        near, below = max(2, span // 16), phase % 2 == 0
        back = np.arange(max(1, min(span // 4, LEVELS)))
        results = np.where((phase < 2)[:, None], self.most - near - back, self.least + near + back)
        ties = (results + 0.5) / factor[:, None] - start[:, None]
        sums = np.where(below[:, None], np.ceil(ties) - 1, np.floor(ties) + 1)
        aside = np.abs(ties - sums) * factor[:, None]
        best = np.where(aside > 2 * (STEPS + SHARE * np.abs(results)), aside, np.inf).argmin(1)[:, None]
        # Other sums meet a target to half the smallest weight. They stay within a quarter step of the tie.
        far = np.where(below, -1, 1) * np.minimum(finest // 2 + 1, 0.25 / factor)
        return np.where(finest == 1, np.take_along_axis(sums, best, 1)[:, 0], ties[:, 0] + far)

    def _balanced(self, w: Array, target: Array) -> Array:
        """Operands [windows, weights] whose products sum to about `target` [windows]: extremes, except a few."""
        x, rest = np.empty(w.shape, np.int64), target.astype(np.float64)
        order = np.argsort(-np.abs(w), axis=1, kind="stable")
        lines = np.arange(len(w))
        for at in order.T:  # the largest weights first take the extreme towards the target
            weight = w[lines, at]
            x[lines, at] = np.where((rest > 0) == (weight >= 0), self.high, self.low)
            rest = rest - weight * (x[lines, at] - self.zero)
        finite = np.isfinite(rest)
        rest = np.where(finite, rest, 0.0)
        for at in order.T[::-1]:  # the smallest weights correct the rest
            weight, now = w[lines, at], x[lines, at]
            if not rest.any():
                break
            new = np.clip(now + np.rint(rest / np.where(weight == 0, 1, weight)), self.low, self.high).astype(np.int64)
            new = np.where(weight == 0, now, new)
            rest, x[lines, at] = rest - weight * (new - now), new
        return x


# Half-width of a tie around the middle between two steps: STEPS plus SHARE of the result in steps. Factors of 31 bits
# are off by 2^-31 of a result, those of 64-bit sums and float32 by 2^-24.
STEPS, SHARE = 2.0**-20, 2.0**-22
AS_THEY_ARE = ("quantize", "requantize")  # ops that change the storage of numbers, not their values


def real_steps(op: Op, graph: Graph) -> Callable[[Sequence[Array]], tuple[Array, Array]]:
    """A function of an op's quantised operands: its exact result in steps from the zero point, and half of a tie."""
    y, tensors = graph.result(op), graph.operands(op)
    own = {t.name: replace(t, dtype="float32", quant=None, data=None if t.data is None else _real(t.data, t))
           for t in (*tensors, y) if t.quant is not None}  # fmt: skip
    twin = replace(graph, tensors={**graph.tensors, **own})

    def of(operands: Sequence[Array]) -> tuple[Array, Array]:
        given = ((x, t, own.get(t.name, t).data) for x, t in zip(operands, tensors, strict=True))
        real = [_real(x, t) if data is None else data for x, t, data in given]
        with np.errstate(all="ignore"):
            value = real[0] if op.kind in AS_THEY_ARE else ops.SPECS[op.kind].reference(op, twin, *real)
            steps = value.reshape(y.shape).astype(np.float64) / scale_of(y)
        size = np.abs(steps)
        if ops.SPECS[op.kind].total is None:  # terms may cancel: then operands bound the error, not the small result
            terms = [largest(x) for x, t in zip(real, tensors, strict=True) if not t.constant]
            size = np.maximum(size, max(terms, default=0.0) / scale_of(y))
        return steps, STEPS + SHARE * np.where(np.isfinite(size), size, 0.0)

    return of


def _real(x: Array, t: Tensor) -> Array:
    """Dequantised values in float64; other values as they are."""
    if t.quant is None or x.dtype.kind not in "iu":
        return x.astype(np.float64) if x.dtype.kind == "f" else x
    return reals_of(x, t)
