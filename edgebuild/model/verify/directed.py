"""Operands that bring each step to its bounds, to every entry of its table, and to ties between two results.

An op is judged on the operands that it gets, so these need not be what the network's inputs can make of them. Sums of
products get windows of two kinds. Some drive a filter's sum beyond an end of its clamp. The others bring it as near as
its weights allow to the middle between two results, from below or from above, with every operand at an end of its
range: then a weight, a bias or a factor that is off by little turns the result.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .. import ops
from ..ir import Array, Graph, Op, Tensor
from ..ops.base import quant_of, scale_of, zero_of
from ..ops.fixedpoint import limits
from ..ops.spatial import bounds
from .recording import Plot, Round

# Ops with computed operands that are indices, which have bounds of their own, or states, which last.
UNBOUNDED = frozenset(
    ("gather", "gather_nd", "scatter", "scatter_reduce", "insert", "lstm", "svdf", "svdf_state", "span")
)
MOST_MACS, LEAST, MOST = 12_000_000, 2, 128  # multiply-accumulates of all directed rounds; rounds
PHASES = 4  # below and above a tie near the upper bound; the same near the lower one


def directed_rounds(plot: Plot, first: Round) -> list[Round]:
    """Inferences in which every step that stands by itself gets directed operands; inputs are those of the first."""
    if any(op.kind in UNBOUNDED for op in plot.graph.ops):
        return []
    count = int(np.clip(MOST_MACS // max(1, plot.report["macs"]["generated"]), LEAST, _useful(plot)))
    rounds = [Round([{**given} for given in first.puts], directed=True) for _ in range(count)]
    for step, step_ops in enumerate(plot.steps):
        own = {op.outputs[0] for op in step_ops}
        for op in step_ops:
            values = _directed(op, plot.graph)
            for round_ in rounds:
                operands = next(values)
                round_.puts[step] |= {n: x for n, x in operands.items() if n not in own and plot.is_whole(n)}
    return rounds


def _useful(plot: Plot) -> int:
    """Rounds in which every filter has had all its windows."""
    most = LEAST
    for op in (op for step_ops in plot.steps for op in step_ops):
        if ops.SPECS[op.kind].total is not None:
            windows = Windows.of(op, plot.graph)
            most = max(most, 2 + -(-PHASES * windows.filters // max(1, len(windows.places))) if windows else LEAST)
    return max(8, min(most, MOST))


def _directed(op: Op, graph: Graph) -> Iterator[dict[str, Array]]:
    """Values of the quantised operands that an op's step gets, round by round, without end."""
    rng = np.random.default_rng(7)
    tensors = [t for t in graph.operands(op) if not t.constant and t.quant is not None and t.dtype in ("int8", "int16")]
    windows = Windows.of(op, graph) if ops.SPECS[op.kind].total is not None else None
    number = 0
    while True:
        operands = {t.name: _plain(t, number, rng) for t in tensors}
        if windows is not None and tensors and tensors[0].name == op.inputs[0]:
            windows.put(operands[tensors[0].name], number)
        yield operands
        number += 1


def _plain(t: Tensor, number: int, rng: np.random.Generator) -> Array:
    """All integers in turn; any; extremes; pixels of one extreme."""
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
    """Windows of an op that makes sums of products, side by side on its operand: `places` of their first pixels.

    `weights`: filter by filter, [groups, filters of a group, window's rows, columns, channels].
    """

    def __init__(self, op: Op, graph: Graph, weights: Array, places: list[tuple[int, int]]) -> None:
        x, y = graph.operands(op)[0], graph.result(op)
        groups = weights.shape[0]
        self.weights, self.places, self.turn = weights.astype(np.int64), places, 0
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
        """Windows of an op; None if weights are computed, a result is real, or no whole window fits on the operand."""
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

    def put(self, values: Array, number: int) -> None:
        """Write a round's windows into the operand's values."""
        image = values[:, None] if values.ndim == 2 else values[0]
        rows, columns = self.weights.shape[2:4]
        windows = self._values(number)
        for (row, column), pixels in zip(self.places, windows, strict=True):
            image[row : row + rows, column : column + columns] = pixels
        self.turn += len(self.places) if number >= 2 else 0

    def _values(self, number: int) -> Array:
        """Pixels of each place: [places, rows, columns, channels]."""
        count, groups = len(self.places), self.weights.shape[0]
        turn = np.arange(count) + (self.turn if number >= 2 else number)
        phase = turn // self.filters % PHASES
        one = turn % self.filters
        w = self.weights[:, one].swapaxes(0, 1).reshape(count * groups, -1)
        start, factor = (np.swapaxes(v[:, one], 0, 1).ravel() for v in (self.start, self.factor))
        phase, end = np.repeat(phase, groups), np.repeat(turn % 2, groups)
        if number < 2:
            target = np.where(end == 0, np.inf, -np.inf)
        else:
            near = max(2, (self.most - self.least) // 16)
            result = np.where(phase < 2, self.most - near, self.least + near)
            finest = np.min(np.where(w == 0, 1 << 20, np.abs(w)), axis=1, initial=1 << 20)
            aside = np.minimum(finest // 2 + 1, 0.25 / factor)
            target = (result + 0.5) / factor - start + np.where(phase % 2 == 0, -aside, aside)
        pixels = self._balanced(w, target)
        shape = (count, groups, *self.weights.shape[2:])
        return np.moveaxis(pixels.reshape(shape), 1, -2).reshape(count, *shape[2:4], -1)

    def _balanced(self, w: Array, target: Array) -> Array:
        """Operands with which each row of weights sums up to about its target: extremes, but for a few that adjust."""
        x, rest = np.empty(w.shape, np.int64), target.astype(np.float64)
        order = np.argsort(-np.abs(w), axis=1, kind="stable")
        lines = np.arange(len(w))
        for at in order.T:
            weight = w[lines, at]
            x[lines, at] = np.where((rest > 0) == (weight >= 0), self.high, self.low)
            rest = rest - weight * (x[lines, at] - self.zero)
        finite = np.isfinite(rest)
        rest = np.where(finite, rest, 0.0)
        for at in order.T[::-1]:
            weight, now = w[lines, at], x[lines, at]
            if not rest.any():
                break
            new = np.clip(now + np.rint(rest / np.where(weight == 0, 1, weight)), self.low, self.high).astype(np.int64)
            new = np.where(weight == 0, now, new)
            rest, x[lines, at] = rest - weight * (new - now), new
        return x
