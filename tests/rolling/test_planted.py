"""Mistakes planted into the planner and the kernels, each of which replay or the interpreter has to find.

Every network here is planned without a complaint first. A mistake that is not found is one that a user would find.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from edgebuild.model import ir, ops
from edgebuild.model.ir import Graph, Op, Tensor
from edgebuild.model.ops import moves, reductions, spatial
from edgebuild.model.ops.base import Form, Kernel
from edgebuild.model.plan import cuts, rolling, search, section
from edgebuild.model.plan.check.replay import BrokenPlan
from edgebuild.model.plan.memory.problem import Place
from edgebuild.model.plan.rolling import Event, Rolled, Trace
from tests.rolling.test_networks import UNIT, Net
from tests.rolling.test_rolling import check

Patch = pytest.MonkeyPatch
OPEN = (None, None)


def residual() -> Graph:
    """An inverted residual that names the skip first, in a chain."""
    net = Net(1, 12, 6, 3)
    y = net.conv("x", 4, 3)
    y = net.add("add", y, net.conv(net.conv(net.conv(y, 10, 1), 10, 5), 4, 1), clamp=OPEN)
    return net.graph(net.conv(y, 2, 3, 2))


def pooled(kind: str, window: tuple[int, int]) -> Graph:
    net = Net(1, 8, 6, 2)
    return net.graph(net.pool(kind, net.conv("x", 9, 3), window, (1, 1)))


def growing() -> Graph:
    """Convolutions of a pixel each that make more channels."""
    net = Net(1, 8, 6, 4)
    return net.graph(net.conv(net.conv(net.conv("x", 8, 1), 16, 1), 4, 1))


def branches() -> Graph:
    """Two branches of other windows, put together along the channels; their operand is read for longer."""
    net = Net(1, 10, 6, 2)
    y = net.conv("x", 6, 3)
    left, right = net.conv(y, 3, 3), net.conv(y, 5, 1)
    return net.graph(net.conv(net.add("concat", left, right, axis=3), 4, 3))


def averaged() -> Graph:
    """Convolution, mean over the image."""
    net = Net(1, 9, 5, 2)
    return net.graph(net.add("mean", net.conv("x", 8, 3), axes=(1, 2)))


def multiplied(height: int = 8) -> Graph:
    """A depthwise convolution that makes three channels of each."""
    net = Net(1, height, 6, 4)
    data = np.random.default_rng(1).standard_normal((1, 3, 3, 12)).astype(np.float32)
    net.tensors["w"] = Tensor("w", data.shape, "float32", None, data)
    return net.graph(net.conv(net.add("depthwise_conv2d", "x", "w", **UNIT, pad=(1,) * 4), 4, 1))


def grouped() -> Graph:
    """A convolution in two groups of channels, of two images."""
    net = Net(2, 8, 6, 4)
    data = np.random.default_rng(1).standard_normal((6, 3, 3, 2)).astype(np.float32)
    net.tensors["w"] = Tensor("w", data.shape, "float32", None, data)
    return net.graph(net.add("conv2d", "x", "w", **UNIT, groups=2, pad=(1,) * 4))


# Each function plants a mistake; the network is one that it spoils.


def wider_reduction(patch: Patch) -> None:
    """An average over all rows counts as one of the whole image, whatever its width."""

    def rows(op: Op, graph: Graph) -> str:
        return "reduce" if op.attrs["window"][0] == graph.operands(op)[0].shape[1] else "each"

    patch.setitem(ops.SPECS, "avg_pool2d", replace(reductions.AVERAGE, rows=rows))
    patch.setattr(reductions, "average_rows", rows)


def maximum_by_sums(patch: Patch) -> None:
    """A max pool is taken up row by row as an average is."""
    patch.setitem(ops.SPECS, "max_pool2d", replace(reductions.MAX, rows=reductions.average_rows, kernel=as_average))


def as_average(op: Op, graph: Graph, form: Form) -> Kernel:
    return reductions.pool2d_kernel(replace(op, kind="avg_pool2d"), graph, form)


def average_for_maximum(patch: Patch) -> None:
    patch.setitem(ops.SPECS, "max_pool2d", replace(reductions.MAX, kernel=as_average))


def with_letter(kind: str, **letters: int) -> Callable[[Patch], None]:
    """Kernels of a kind with other numbers printed into them."""

    def plant(patch: Patch) -> None:
        spec = ops.SPECS[kind]

        def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
            assert spec.kernel is not None
            chosen = spec.kernel(op, graph, form)
            return replace(chosen, shape={**chosen.shape, **letters})

        patch.setitem(ops.SPECS, kind, replace(spec, kernel=kernel))

    return plant


def with_rings(change: Callable[[int], int]) -> Callable[[Patch], None]:
    """Kernels that look for rows in rings of another size."""

    def plant(patch: Patch) -> None:
        right = section.rings_of
        patch.setattr(section, "rings_of", lambda *a: tuple(change(n) if n else 0 for n in right(*a)))

    return plant


def early_rings(patch: Patch) -> None:
    """The ring of an operand is measured before the operands after it are made."""
    right = rolling.simulate

    def simulate(graph: rolling.RollingGraph, run: Sequence[Op]) -> Trace:
        trace = right(graph, run)
        short = {n: max(1, rows - 2) if rows > 2 else rows for n, rows in trace.rings.items()}
        return replace(trace, rings=short)

    patch.setattr(cuts, "simulate", simulate)


def changed_tail(change: Callable[[Rolled], Rolled]) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        right = Trace.tail
        patch.setattr(Trace, "tail", lambda self, start: change(right(self, start)))

    return plant


def one_call_each(rolled: Rolled) -> Rolled:
    """Rings are thought to be in use only while the op is called that fills them."""
    index = {op.outputs[0]: number for number, op in enumerate(rolled.ops)}
    spans = {n: (index.get(n, a), index.get(n, a)) for n, (a, _) in rolled.spans.items()}
    return replace(rolled, spans=spans)


def events(change: Callable[[tuple[Event, ...]], Sequence[Event]]) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        right = Rolled.events.func  # type: ignore[attr-defined]
        patch.setattr(Rolled, "events", property(lambda self: tuple(change(right(self)))))

    return plant


def exchanged(order: tuple[Event, ...]) -> Sequence[Event]:
    """The first two calls of different ops in the other order."""
    at = next(i for i in range(1, len(order)) if order[i].op != order[0].op)
    return *order[: at - 1], order[at], order[at - 1], *order[at + 1 :]


def no_shift(patch: Patch) -> None:
    """A result may lie over its operand from the same byte on."""
    patch.setattr(section, "least_distance", lambda *a: 0)


def all_in_place(patch: Patch) -> None:
    """Every operand counts as read element by element."""
    patch.setattr(ir, "elementwise", lambda *a: True)  # the checker keeps its own


def claimed(how: str) -> Callable[[Patch], None]:
    """Kernels of convolutions state that they work in place in a way in which they do not."""

    def plant(patch: Patch) -> None:
        spec = ops.SPECS["conv2d"]

        def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
            assert spec.kernel is not None
            return replace(spec.kernel(op, graph, form), in_place=how if form.in_place else "")

        patch.setitem(ops.SPECS, "conv2d", replace(spec, kernel=kernel))

    return plant


def no_distance(patch: Patch) -> None:
    """The result of a kernel that goes pixel by pixel lies over its operand from the same byte on, and is larger."""
    claimed("pixels")(patch)
    patch.setattr(cuts, "distance", lambda *a: 0)


def short_lives(patch: Patch) -> None:
    """A tensor is thought to die when it is read for the first time."""
    right = cuts.Cutter.life.func  # type: ignore[attr-defined]

    def life(self: cuts.Cutter) -> dict[str, tuple[int, int]]:
        first_read: dict[str, int] = {}
        for at, op in enumerate(self.order):
            for name in op.inputs:
                first_read.setdefault(self.rolling.storage.get(name, ""), at)
        return {n: (a, min(b, first_read.get(n, b))) for n, (a, b) in right(self).items()}

    patch.setattr(cuts.Cutter, "life", property(life))


def few_rows(patch: Patch) -> None:
    """The index relation is asked for a row less."""
    right = ir.input_range
    patch.setattr(
        rolling,
        "input_range",
        lambda nest, i, d, a, b: (lambda r: (r[0], max(r[0], r[1] - 1)))(right(nest, i, d, a, b)),
    )


def little_scratch(patch: Patch) -> None:
    right = section.aligned
    for room in (cuts, section):
        patch.setattr(room, "aligned", lambda size: right(size) - 4 if size > 4 else right(size))


def moved(patch: Patch) -> None:
    """All buffers of a plan lie at the start of the arena."""
    right = search._place

    def place(*arguments: Any) -> Any:
        steps, layout, places = right(*arguments)
        return steps, layout, {n: Place(p.memory, 0) for n, p in places.items()}

    patch.setattr(search, "_place", place)


def wrong_padding(patch: Patch) -> None:
    """Parts of a convolution pad at cuts as they do at the border."""
    for kind in ("conv2d", "depthwise_conv2d"):
        spec = ops.SPECS[kind]
        patch.setitem(ops.SPECS, kind, replace(spec, part=squeezed))


def squeezed(op: Op, graph: Graph, out: Any, x: Any) -> Mapping[str, Any]:
    attrs = dict(spatial.part(op, graph, out, x))
    top, left, bottom, right = attrs["pad"]
    return attrs | {"pad": (bottom, left, top, right)}


def misplaced_parts(patch: Patch) -> None:
    """Parts are put where their neighbour belongs."""

    def reference(op: Op, graph: Graph, *operands: Any) -> Any:
        begin = tuple(0 for _ in op.attrs["begin"])
        return moves.INSERT.reference(replace(op, attrs={**op.attrs, "begin": begin}), graph, *operands)

    patch.setitem(ops.SPECS, "insert", replace(moves.INSERT, reference=reference))


def early_end(patch: Patch) -> None:
    """A reduction makes its result a row too early."""
    spec = ops.SPECS["mean"]

    def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
        assert spec.kernel is not None
        chosen = spec.kernel(op, graph, form)
        return replace(chosen, shape={**chosen.shape, "rows": form.rows - 1}) if form.rolled else chosen

    patch.setitem(ops.SPECS, "mean", replace(spec, kernel=kernel))


def widened() -> Graph:
    """A wide tensor between two convolutions: in parts it never exists whole."""
    net = Net(1, 16, 16, 3)
    return net.graph(net.conv(net.conv("x", 16, 3), 4, 3))


ROLL, OFF = {"tile": "rolling"}, {"tile": "off"}
PARTS = {"tile": "ffmt", "max_mac_overhead": 50}
WINDOWED = partial(pooled, "max", (3, 3))
PLANTED: dict[str, tuple[Callable[[Patch], None], Callable[[], Graph], dict[str, Any]]] = {
    "an average of some columns is summed up by rows": (wider_reduction, partial(pooled, "avg", (8, 2)), ROLL),
    "a maximum is summed up by rows": (maximum_by_sums, partial(pooled, "max", (8, 6)), ROLL),
    "an average in place of a maximum": (average_for_maximum, WINDOWED, ROLL),
    "another stride": (with_letter("conv2d", SX=2), residual, ROLL),
    "another padding above": (with_letter("conv2d", PY=0), residual, ROLL),
    "another padding at the left": (with_letter("conv2d", PX=0), residual, OFF),
    "another dilation": (with_letter("max_pool2d", DX=2), partial(pooled, "max", (3, 2)), OFF),
    "a pool that skips rows": (with_letter("max_pool2d", SY=2), WINDOWED, OFF),
    "the multiplier of a depthwise convolution left out": (with_letter("depthwise_conv2d", M=1), multiplied, OFF),
    "the multiplier left out of rows": (with_letter("depthwise_conv2d", M=1), partial(multiplied, 16), ROLL),
    "a window without its last row": (with_letter("conv2d", FH=2), residual, ROLL),
    "a channel that is not made": (with_letter("conv2d", K=3), residual, OFF),
    "groups that read each other's channels": (with_letter("conv2d", CG=4), grouped, OFF),
    "the first image alone": (with_letter("conv2d", N=1), grouped, OFF),
    "a column that is not made": (with_letter("max_pool2d", OW=3), WINDOWED, OFF),
    "a ring read as if it were whole": (with_rings(lambda n: 0), residual, ROLL),
    "a ring read with a row too many": (with_rings(lambda n: n + 1), residual, ROLL),
    "rings measured too early": (early_rings, residual, ROLL),
    "rings that share bytes while both are in use": (changed_tail(one_call_each), residual, ROLL),
    "the last call left out": (events(lambda order: order[:-1]), residual, ROLL),
    "the calls in another order": (events(lambda order: order[::-1]), residual, ROLL),
    "two calls exchanged": (events(exchanged), residual, ROLL),
    "a result over what is still read": (no_shift, residual, ROLL),
    "in place without being element by element": (all_in_place, branches, OFF),
    "a pixel larger than that which it takes the place of": (no_distance, growing, OFF),
    "a tensor that dies too early": (short_lives, residual, OFF),
    "a row too few asked for": (few_rows, residual, ROLL),
    "buffers a word too short": (little_scratch, averaged, ROLL),
    "everything in one place": (moved, branches, OFF),
    "parts with the padding of the other end": (wrong_padding, widened, PARTS),
    "parts in the wrong place": (misplaced_parts, widened, PARTS),
    "sums that end too early": (early_end, averaged, ROLL),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_planted_mistakes_are_noticed(name: str, monkeypatch: Patch) -> None:
    plant, make, options = PLANTED[name]
    graph = make()
    check(graph, **options)
    plant(monkeypatch)
    with pytest.raises(BrokenPlan):
        check(graph, **options)


def test_there_are_enough_of_them() -> None:
    assert len(PLANTED) >= 20
