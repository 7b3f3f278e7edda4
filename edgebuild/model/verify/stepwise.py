"""Check a quantised model op by op, each op on the operands that the firmware computed.

A step is a difference of 1 in a quantised integer. onnxruntime computes QDQ models in float and rounds at the end of
each op, so one op may differ from it by a step. Over many ops, or a softmax, one step grows to several, and no fixed
tolerance separates right from wrong. So the check has two parts. Every op's numpy meaning, applied to the oracle's
values, must be within the tolerance of the oracle. And every op of the firmware must compute its meaning of the
firmware's own operands: bit for bit in TFLite, whose kernels define the integers, and correctly rounded in ONNX.

A C library and numpy differ in the last bit of a float function. Where that bit decides the rounding to an integer,
both integers are right, for each element separately. Sums of such elements have an interval of right results. Rounding
may also decide which of two elements is larger, so an argmax or top-k may have several right results.

For ONNX, `exact` computes an op on dequantised operands in float64 and rounds once to the result's scale, without the
compiler's fixed-point numbers. The generated C multiplies by factors of 31 bits. So where the exact result lies within
`tie` of the middle between two steps, either step is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .. import ops
from ..ir import Array, Graph, Op, Tensor, origin_of
from ..ops.base import Interval, zero_of
from ..ops.fixedpoint import limits
from ..ops.spatial import bounds
from .oracles import OFF_STEP, Reference
from .recording import Plot, Round, Seen, real_steps
from .rounding import MARGIN, Rng, distance, largest, limit, moves


def returns_indices(op: Op) -> bool:
    """Whether the op's result holds indices of elements, not their values."""
    return op.kind == "arg" or (op.kind == "topk" and bool(op.attrs["indices"]))


def possible_places(op: Op, graph: Graph, interval: Interval, own: Array, observed: Array) -> Array:
    """Per line along the op's axis: `observed` indices if values within `interval` can give them, else `own`."""
    axis, last = op.attrs["axis"], op.attrs.get("last", False)
    ends = [end.astype(np.float64) for end in interval]
    low, high = ends if op.attrs["largest"] else (-ends[1], -ends[0])
    low, high = (np.moveaxis(np.flip(x, axis) if last else x, axis, -1) for x in (low, high))
    size = low.shape[-1]

    def rows(places: Array) -> Array:
        turned = np.moveaxis(places, axis, -1) if places.ndim == low.ndim else places[..., None]
        return np.asarray(size - 1 - turned if last else turned)

    shaped = observed.reshape(own.shape).astype(own.dtype)
    likely = np.array([_possible(rows(shaped)[at].tolist(), low[at].tolist(), high[at].tolist())
                       for at in np.ndindex(low.shape[:-1])]).reshape(low.shape[:-1])  # fmt: skip
    return np.where(np.expand_dims(likely, axis) if own.ndim == low.ndim else likely, shaped, own)


def _possible(places: Sequence[int], low: Sequence[float], high: Sequence[float]) -> bool:
    """Whether numbers between `low` and `high` can have their largest at `places`, in this order.

    Of equal numbers the first counts. Greedy: each place takes the largest end of an interval that is left for it.
    """
    if len({*places}) != len(places) or not all(0 <= i < len(low) for i in places):
        return False
    ends = sorted({*low, *high}, reverse=True)
    least, before = np.inf, -1
    for i in places:
        left = (end for end in ends if low[i] <= end <= high[i] and (-end, i) > (-least, before))
        least, before = next(left, -np.inf), i
        if least == -np.inf:
            return False
    return all((-low[i], i) > (-least, before) for i in range(len(low)) if i not in places)


def is_exact(op: Op, graph: Graph) -> bool:
    """Whether the format defines the op's integers as one rounding of real numbers; TFLite's are fixed-point results.

    False for ops that only move or select values.
    """
    y = graph.result(op)
    computes = not ops.SPECS[op.kind].exact and y.dtype in ("int8", "int16") and y.quant is not None
    return computes and graph.arithmetic.rounds_once


def exact(op: Op, graph: Graph, operands: Sequence[Array]) -> Interval:
    """The least and the largest right integer of every element. `operands`: quantised, as the op reads them."""
    y = graph.result(op)
    steps, tie = real_steps(op, graph)(operands)
    ends, zero = limits(y.dtype), zero_of(y)
    low, high = (float(end - zero) for end in ends)
    steps = np.clip(np.nan_to_num(steps, nan=low, posinf=high, neginf=low), low - 1, high + 1)
    least, most = (np.clip(end, low, high) + zero for end in (np.ceil(steps - 0.5 - tie), np.floor(steps + 0.5 + tie)))
    return least.astype(y.dtype), most.astype(y.dtype)


RELATIVE = 1e-4  # tolerance of floats, relative to the tensor's largest value
# Rounding of float sums, relative to the tensor's largest value: 8 units in the last place of float32. Relative to
# the sum it may be large, because terms may cancel.
LAST_BITS = 1e-6
MOVES: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "transpose": np.transpose,
    "reshape": np.reshape,
    "take": lambda x, kept: np.take(x, kept, axis=-1),
}
Oracle = tuple[dict[str, Array], dict[str, Array]]  # `tensors` and `reals` of a vector


def stepwise(
    graph: Graph, inputs: Sequence[Sequence[Array]], expected: Reference, seen: Sequence[Mapping[str, Array]] = ()
) -> Reference | None:
    """Outputs that the firmware must give exactly; None if some op's numpy meaning is not near `expected`.

    `graph`: canonical; `inputs`: per vector, one array per input. `seen`: per vector, the firmware's values by tensor
    name. Where last bits of floats leave several right values, the nearest to the firmware's is returned.
    """
    rows, tensors = [], []
    reals = expected.reals or [{}] * len(expected.tensors)
    given = seen or [{}] * len(inputs)
    for vector, oracle, observed in zip(inputs, zip(expected.tensors, reals, strict=True), given, strict=True):
        shaped = [x.reshape(graph.tensors[name].shape) for name, x in zip(graph.inputs, vector, strict=True)]
        if not _ops_are_near(graph, dict(zip(graph.inputs, shaped, strict=True)), oracle, expected.slack):
            return None
        own = _nearest(graph, shaped, observed) if observed else ops.run(graph, *shaped)
        rows.append([own[name] for name in graph.outputs])
        tensors.append(dict(own))
    return Reference(rows, tensors, slack=0)


def _nearest(graph: Graph, inputs: Sequence[Array], observed: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor's right value that is nearest to the one observed, within what last bits of floats can change.

    Later ops read that value of an observed tensor, since each element may be rounded up or down independently. An
    unobserved tensor keeps an interval per element, so results of later ops are intervals, too.
    """
    walk = Walk(graph, dict(zip(graph.inputs, inputs, strict=True)))
    observed = dict(observed)
    for op in reversed(graph.ops):  # a reshape's operand was observed with its result, which has the same bytes
        if op.kind == "reshape" and op.outputs[0] in observed:
            observed.setdefault(op.inputs[0], observed[op.outputs[0]])
    return {**walk.values, **{op.outputs[0]: walk.step(op, observed.get(op.outputs[0])) for op in graph.ops}}


class Walk:
    """Computes right values of a graph's tensors, op by op. `open_`: intervals of tensors with several right values."""

    def __init__(self, graph: Graph, inputs: Mapping[str, Array]) -> None:
        self.graph = graph
        self.values = {t.name: t.data for t in graph.tensors.values() if t.data is not None} | dict(inputs)
        self.by_rounding = {share: dict(self.values) for share in (0.0, -LAST_BITS, LAST_BITS)}
        self.open_: dict[str, Interval] = {}
        self.seen = set[str]()

    def know(self, name: str, value: Array) -> None:
        """Set the value that later ops read of a tensor, whether it is right or wrong."""
        self.open_.pop(name, None)
        self.seen.add(name)
        for values in self.by_rounding.values():
            values[name] = value

    def step(self, op: Op, observed: Array | None) -> Array:
        """The right result nearest to `observed`, or the op's own result without one. Later ops read it."""
        graph, name, y = self.graph, op.outputs[0], self.graph.result(op)
        results = self._results(op)
        own = results[0]
        if observed is not None:
            observed = observed.reshape(y.shape) if observed.size == own.size else None
        if returns_indices(op) and observed is not None:
            operand = self.open_.get(op.inputs[0]) or _extremes(
                [values[op.inputs[0]] for values in self.by_rounding.values()]
            )
            self.know(name, possible_places(op, graph, operand, own, observed))
            return self.by_rounding[0.0][name]
        # Right results span all ways of rounding the operands; exact bounds apply only to operands that are certain.
        ends = _extremes([*results, *_result_range(op, graph, self.by_rounding[0.0], self.open_)])
        if is_exact(op, graph) and all(map(self._is_sure, graph.operands(op))):
            ends = _intersection(ends, exact(op, graph, [self.by_rounding[0.0][n] for n in op.inputs]))
        if observed is None:
            for values, value in zip(self.by_rounding.values(), results, strict=True):
                values[name] = np.clip(value, *ends)
            if not np.array_equal(*ends, equal_nan=y.dtype == "float32"):
                self.open_[name] = ends
            return self.by_rounding[0.0][name]
        right = np.clip(observed, *ends).astype(own.dtype)
        if own.dtype.kind == "f" and distance(observed, right) <= self._rounding(op, own, observed, right):
            right = observed
        self.know(name, right)
        return right

    def _is_sure(self, t: Tensor) -> bool:
        """Whether the firmware's value of a tensor is certain: recorded, or an integer with one right value."""
        computed = t.name in self.graph.producers
        return t.name in self.seen or (t.name not in self.open_ and not (computed and t.dtype == "float32"))

    def _results(self, op: Op) -> list[Array]:
        """The op's result for each entry of `by_rounding`: as computed, and with floats moved down and up."""
        first, *others = self.by_rounding.values()
        own = _rounded(op, self.graph, first, 0.0)
        if not _rounds_reals(op, self.graph) and all(values[n] is first[n] for values in others for n in op.inputs):
            return [own, own, own]
        return [own, *(_rounded(op, self.graph, values, share) for share, values in [*self.by_rounding.items()][1:])]

    def _rounding(self, op: Op, own: Array, observed: Array, right: Array) -> float:
        """Difference of float results that rounding explains: `limit`, else the effect of moving operands a bit.

        It grows with the root of the number of terms: directed operands repeat, so do the roundings of their sum.
        """
        if distance(observed, right) <= limit(own):
            return limit(own)
        operands = [self.by_rounding[0.0][n] for n in op.inputs]

        def run(near: list[list[Array]], rng: Rng | None) -> list[dict[str, Array]]:
            values = near[0] if rng else operands
            return [{"": ops.SPECS[op.kind].reference(op, self.graph, *values)}]

        terms = max(x.size for x in operands) / max(1, own.size)
        return moves([operands], run)[""] * max(1.0, terms**0.5 / MARGIN)


def _intersection(own: Interval, right: Interval) -> Interval:
    """Common part of both intervals; `right` where they are disjoint, because the op's own meaning is wrong there."""
    low, high = np.maximum(own[0], right[0]), np.minimum(own[1], right[1])
    disjoint = low > high
    return np.where(disjoint, right[0], low), np.where(disjoint, right[1], high)


def rounds_to_steps(graph: Graph) -> bool:
    """Whether the model is quantised: some op computes quantised values or sums of integer products."""
    results = [graph.result(op) for op in graph.ops if not ops.SPECS[op.kind].exact]
    return any(t.quant is not None for t in results) or any(op.kind == "integer_sums" for op in graph.ops)


@dataclass(frozen=True)
class Wrong:
    """A result that rounding does not explain: its largest difference, and one of the elements that differ.

    `round`: number of the inference; directed ones come last. `op`: the op that computed it, "" if a correct result
    was overwritten before a later step read it.
    """

    tensor: str
    op: str
    round: int
    difference: float
    index: tuple[int, ...]
    value: float
    right: float


@dataclass(frozen=True)
class Judgement:
    """Names of the tensors that were judged, and wrong results by inference and, within it, in the order of ops.

    `bounds`: number of clamp ends, two per quantised result of an op. `reached`: how many of them some element has.
    """

    names: list[str]
    wrong: list[Wrong]
    reached: int
    bounds: int


def judged(plot: Plot, rounds: Sequence[Round], seen: Sequence[Seen]) -> Judgement:
    """Judge all recorded results of all inferences."""
    results = [
        (number, *each) for number, r in enumerate(rounds) if not r.directed for each in _judged(plot, r, seen[number])
    ]
    numbers = [number for number, r in enumerate(rounds) if r.directed]
    for step in range(len(plot.steps)):
        results += _directed(plot, step, numbers, seen)
    wrong = [_wrong(tensor, op, number, *pair) for number, tensor, op, *pair in results if distance(*pair)]
    values = dict[str, list[Array]]()
    for _, tensor, _, value, _ in results:
        values.setdefault(tensor, []).append(value)
    reached = [r for name, of in values.items() for r in _reached_ends(plot.graph, name, of)]
    return Judgement(list(values), sorted(wrong, key=lambda w: w.round), sum(reached), len(reached))


def _reached_ends(graph: Graph, name: str, values: Sequence[Array]) -> Sequence[bool]:
    """Whether values of a tensor reach the lower and the upper end of its op's clamp; empty without a clamp."""
    y, op = graph.tensors[name], graph.producers[name]
    if y.quant is None or ops.SPECS[op.kind].exact or not y.elements:
        return ()
    low, high = bounds(op, y) if "clamp" in op.attrs else limits(y.dtype)
    return min(int(v.min()) for v in values) <= low, max(int(v.max()) for v in values) >= high


def _directed(
    plot: Plot, step: int, numbers: Sequence[int], seen: Sequence[Seen]
) -> Iterator[tuple[int, str, str, Array, Array]]:
    """Results of a step's ops in directed rounds, computed from recorded operands, as `_judged` yields them."""
    graph, step_ops = plot.graph, plot.steps[step]
    alone = len(step_ops) == 1 and ops.SPECS[step_ops[0].kind].total is not None
    if alone and sum(not t.constant for t in graph.operands(step_ops[0])) == 1:
        yield from _directed_sums(plot, step, step_ops[0], numbers, seen)
        return
    for number in numbers:
        walk, results = Walk(graph, {}), seen[number].after[step]
        for name, value in seen[number].before[step].items():
            walk.know(name, value)
        for op in (op for op in step_ops if all(n in walk.by_rounding[0.0] for n in op.inputs)):
            name = op.outputs[0]
            right = walk.step(op, results.get(name))
            if name in results:
                yield number, name, op.name, results[name], right
                walk.know(name, results[name])


def _directed_sums(
    plot: Plot, step: int, op: Op, numbers: Sequence[int], seen: Sequence[Seen]
) -> Iterator[tuple[int, str, str, Array, Array]]:
    """Judge sums of products of all rounds as one batch, which is faster than round by round."""
    graph, name = plot.graph, op.outputs[0]
    (x,) = (t.name for t in graph.operands(op) if not t.constant)
    values = [{**seen[number].after[step], **seen[number].before[step]} for number in numbers]
    if not values or not values[0].keys() >= {x, name}:
        return
    count = graph.tensors[name].shape[0]
    many = [
        replace(t, shape=(len(numbers) * t.shape[0], *t.shape[1:])) for t in (graph.tensors[x], graph.tensors[name])
    ]
    together = replace(graph, tensors={**graph.tensors, **{t.name: t for t in many}})
    all_of = {n: np.concatenate([each[n] for each in values]) for n in (x, name)}
    walk = Walk(together, {})
    walk.know(x, all_of[x])
    right = walk.step(op, all_of[name])
    for i, number in enumerate(numbers):
        yield number, name, op.name, values[i][name], right[i * count : (i + 1) * count]


def _wrong(tensor: str, op: str, number: int, value: Array, right: Array) -> Wrong:
    differing = value != right
    if value.dtype.kind == "f":
        differing &= ~(np.isnan(value) & np.isnan(right))
        beyond = differing & ~(np.abs(value - right) <= limit(right))  # prefer an element beyond what rounding explains
        differing = beyond if beyond.any() else differing
    index = tuple(int(i) for i in np.argwhere(differing)[0])
    return Wrong(tensor, op, number, distance(value, right), index, float(value[index]), float(right[index]))


def _judged(plot: Plot, round_: Round, seen: Seen) -> Iterator[tuple[str, str, Array, Array]]:
    """Tensor, op, recorded value and nearest right value of all results that were recorded."""
    graph = plot.graph
    walk = Walk(graph, {name: value for puts in round_.puts for name, value in puts.items()})
    at = {op.outputs[0]: k for k, step_ops in enumerate(plot.steps) for op in step_ops}
    for name in graph.inputs:
        if (value := seen.read(name)) is not None:
            walk.know(name, value)
    for op in graph.ops:
        name, step = op.outputs[0], at.get(op.outputs[0])
        for operand, value in (seen.before[step] if step is not None else {}).items():
            walk.know(operand, value)
        observed = seen.after[step].get(name) if step is not None else None
        if observed is None:
            observed = seen.read(name)
        if any(n not in walk.by_rounding[0.0] for n in op.inputs):
            continue
        right = walk.step(op, observed)
        if observed is not None:
            yield name, op.name, observed, right
            walk.know(name, observed)
            yield from _changed(seen, name, observed)


def _changed(seen: Seen, name: str, original: Array) -> Iterator[tuple[str, str, Array, Array]]:
    """Steps that read another value of a tensor than its op computed: its bytes were overwritten."""
    for values in seen.before:
        if name in values and not np.array_equal(values[name], original, equal_nan=True):
            yield name, "", values[name], original


def _extremes(values: Sequence[Array]) -> Interval:
    return np.minimum.reduce(values), np.maximum.reduce(values)


def _result_range(op: Op, graph: Graph, values: Mapping[str, Array], open_: Mapping[str, Interval]) -> Sequence[Array]:
    """The least and the largest result for operands within their intervals; empty if the op's spec has no intervals."""
    spec, y = ops.SPECS[op.kind], graph.result(op)
    transfer = ops.spatial.rising(spec.reference) if spec.exact else spec.interval
    moved = spec.exact or op.kind in ("dequantize", "topk")  # float results that are multiples of a scale
    has_ends = y.dtype in ("int8", "int16") or (moved and y.dtype == "float32")
    if transfer is None or not has_ends or not any(name in open_ for name in op.inputs):
        return ()
    operands = [open_.get(name, (values[name], values[name])) for name in op.inputs]
    return [end.reshape(y.shape) for end in transfer(op, graph, *operands) or ()]


def _rounds_reals(op: Op, graph: Graph) -> bool:
    """Whether the op computes floats and rounds them to integers."""
    spec, y = ops.SPECS[op.kind], graph.result(op)
    real = [t for t in graph.operands(op) if t.dtype == "float32" and t.name in graph.producers]
    integer = y.dtype not in ("float32", "bool") and not spec.exact and not returns_indices(op)
    return integer and bool(real or spec.moved is not None)


def _rounded(op: Op, graph: Graph, values: Mapping[str, Array], share: float) -> Array:
    """The op's result if floats move by `share` of the largest before they are rounded to integers."""
    spec, operands = ops.SPECS[op.kind], [values[name] for name in op.inputs]
    if share and spec.moved is not None and graph.operands(op)[0].dtype != "float32":
        return spec.moved(op, graph, share, *operands).reshape(graph.result(op).shape)
    if share and _rounds_reals(op, graph):
        operands = [
            x + np.float32(share * largest(x)) if t.dtype == "float32" and t.name in graph.producers else x
            for t, x in zip(graph.operands(op), operands, strict=True)
        ]
    return spec.reference(op, graph, *operands).reshape(graph.result(op).shape)


def _ops_are_near(graph: Graph, values: dict[str, Array], oracle: Oracle, slack: int) -> bool:
    """Whether every op is near the oracle on the oracle's values. `values`: those of inputs; results are added."""
    for op in graph.ops:
        operands = [values[t.name] if t.data is None else t.data for t in graph.operands(op)]
        value = ops.SPECS[op.kind].reference(op, graph, *operands)
        right = value_of(graph.result(op), *oracle)
        if right is not None and not _is_near(value, right, slack + _cancelled(op, graph)):
            return False
        values[op.outputs[0]] = value if right is None else right
    return True


def _cancelled(op: Op, graph: Graph) -> float:
    """Steps of error of an oracle that computes e^x - 1 in float32, where the last bit of 1 is lost.

    For scales far below that bit its result is 0, though the function is nearly x.
    """
    y, names = graph.result(op), op.attrs
    if op.kind != "pointwise" or names["function"] not in ("elu", "selu", "celu") or y.quant is None:
        return 0
    return 2.0**-23 * abs(names["alpha"] * names.get("gamma", 1.0)) / y.quant.scale[0]


def value_of(t: Tensor, tensors: dict[str, Array], reals: dict[str, Array]) -> Array | None:
    """The oracle's value of a tensor, in the tensor's axis order; None if the oracle has none.

    `tensors`: the oracle's by name. `reals`: those that are floats in the file; they must be multiples of the tensor's
    scale. Integers of the file must have the tensor's scale and zero point.
    """
    origin = origin_of(t)
    value = None
    if t.quant is not None and origin.name in reals:
        value = _in_steps(reals[origin.name], t)
    if value is None and origin.quant == t.quant:
        value = tensors.get(origin.name)
    if value is None:
        return None
    try:
        for kind, how in origin.moves:
            value = MOVES[kind](value, how)
    except (ValueError, IndexError):  # the file's tensor has another shape
        return None
    return value if (value.shape, value.dtype.name) == (t.shape, t.dtype) else None


def _in_steps(real: Array, t: Tensor) -> Array | None:
    """Floats quantised with the tensor's scale and zero point; None if they are no multiples of the scale."""
    assert t.quant is not None
    if not t.quant.per_tensor:
        return None
    exact = real.astype(np.float64) / t.quant.scale[0] + t.quant.zero_point[0]
    steps, (low, high) = np.rint(exact), limits(t.dtype)
    fits = np.all(np.abs(exact - steps) <= OFF_STEP) and np.all((low <= steps) & (steps <= high))
    return steps.astype(t.dtype) if fits else None


def _is_near(value: Array, right: Array, slack: float) -> bool:
    return distance(value, right) <= (RELATIVE * largest(right) if value.dtype.kind == "f" else slack)
