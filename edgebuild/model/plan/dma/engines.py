"""Ops that an engine computes from its scratchpads, and tensors that stay there for the next op.

The scratchpads are one range of addresses, first that of activations, then that of weights. Tensors that stay lie at
the two ends of the scratchpad in turn, and the tiles of an op between what it reads and what it makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from ....base.dataclass import dataclass
from ....base.errors import fail
from ....base.levels import Engine
from ....base.target import Memory, Target
from ...ir import Graph, Op, Tensor
from ...ir.axes import Nest, Window
from ...kernels import offload
from ...kernels.unstated import PER_CALL
from ...ops import SPECS
from ...ops.base import Form
from ..hierarchy.costs import compute_cycles
from ..hierarchy.mapper import NoMapping, best
from ..hierarchy.nest import Compute, TiledLayer
from ..memory.problem import Place
from ..printed import Region
from ..search import Plan, form_of
from .levels import channel_to, layer_of_op
from .tiles import ALIGN, MOST_COPIES, TRIES, MappedOp, tiles_of


@dataclass(frozen=True)
class Offer:
    """An op in tiles on an engine, or None, and why. `whole`: its cycles in one call, if nothing was copied."""

    moved: MappedOp | None
    why: str
    whole: float = 0.0


def engines_of(target: Target) -> tuple[Engine, ...]:
    """The engines whose scratchpads programs can use."""
    return tuple(e for e in target.engines if e.memories)


def scratchpads(target: Target) -> frozenset[str]:
    """Names of the memories that belong to engines."""
    return frozenset(name for engine in engines_of(target) for name in engine.memories)


def regions_of(engine: Engine) -> tuple[Region, Region]:
    """Activations, then weights."""
    activations, weights = engine.memories
    return Region(activations, 0, engine.activations), Region(weights, engine.activations, engine.weights)


def letters(nest: Nest) -> dict[str, str]:
    """The letters of a layer by the axes of an op: channels are last in the result, columns and rows before them."""
    named = dict(zip(reversed(nest.out), ("K", "OX", "OY"), strict=False))
    taps = [d.tap for d in nest.operands[0] if isinstance(d, Window)]
    named |= dict(zip(reversed(taps), ("FX", "FY"), strict=False))
    rest = [a for a in nest.extents if a not in named and a not in nest.out]
    return named | dict(zip(rest, "C", strict=False))


def engine_layer(
    op: Op,
    graph: Graph,
    target: Target,
    engine: Engine,
    form: Form,
    spaces: tuple[Memory, Memory],
    held: frozenset[str] = frozenset(),
) -> TiledLayer:
    """An op as a nest between an engine's scratchpads and the memories of activations and of weights (`spaces`)."""
    near, store = (target.memory_named(name) for name in engine.memories)
    layer = layer_of_op(op, graph, target, form, (near, *spaces), held)
    operands = [
        replace(o, space=store.name, channel=channel_to(target, store, spaces[1])) if o.packed else o
        for o in layer.operands
    ]
    named = letters(layer.nest)
    axes = {letter: axis for axis, letter in named.items()}

    formula = engine.cycles_for(offload.pattern_of(op, SPECS[op.kind].sums(op, graph)))

    def cycles(lengths: Mapping[str, Any]) -> Any:
        ones = dict.fromkeys(("K", "C", "OY", "OX", "FY", "FX"), 1)
        return formula({**ones, **{named[a]: n for a, n in lengths.items() if a in named}})

    rows = (axes["OY"], axes["FY"]) if "OY" in axes and "FY" in axes else None
    units = {axes[letter]: n for letter, n in engine.array.items() if letter in axes}
    compute = Compute(cycles, PER_CALL, rows)
    return replace(layer, operands=tuple(operands), compute=compute, units=units, cores=1, estimated=False)


def offer(op: Op, graph: Graph, target: Target, engine: Engine, form: Form, spaces: tuple[Memory, Memory]) -> Offer:
    """The op in the tiles that take least. `form`: of kernels of the core."""
    if why := offload.refusal(op, graph, engine):
        return Offer(None, why)
    form = replace(form, engine=engine)
    layer = engine_layer(op, graph, target, engine, form, spaces)
    found = _fitted(op, graph, layer, form, {r.memory: r.bytes for r in regions_of(engine)})
    if isinstance(found, str):
        return Offer(None, found)
    return Offer(found, "", compute_cycles(layer, {}) + layer.compute.call)


def in_tiles(
    op: Op, graph: Graph, target: Target, form: Form, spaces: tuple[Memory, Memory], held: frozenset[str], room: int
) -> MappedOp | None:
    """The op on the engine of `form`, with tensors that are held and `room` bytes for tiles of the others."""
    assert form.engine is not None
    layer = engine_layer(op, graph, target, form.engine, form, spaces, held)
    activations, weights = regions_of(form.engine)
    found = _fitted(op, graph, layer, form, {activations.memory: room, weights.memory: weights.bytes})
    return None if isinstance(found, str) else found


def _fitted(op: Op, graph: Graph, layer: TiledLayer, form: Form, most: Mapping[str, int]) -> MappedOp | str:
    """The tiles that take least of those whose kernels fit into `most` bytes; or why there are none."""
    assert form.engine is not None
    regions, room = regions_of(form.engine), dict(most)
    for _ in range(TRIES):
        try:
            mapped, _ = best(layer, room)
        except NoMapping as reason:
            over = ", ".join(f"{n} B of {s}, which has {room[s]} B" for s, n in reason.needed.items() if n > room[s])
            return f"its smallest tile needs {over or 'another alignment'}"
        moved = tiles_of(op, graph, layer, mapped, form, regions)
        over_by = {r.memory: moved.used(r) - most[r.memory] for r in regions}
        if all(n <= 0 for n in over_by.values()) and len(moved.copies) <= MOST_COPIES:
            return moved
        room = {name: n - max(over_by[name], n // 16 if over_by[name] > 0 else 0) for name, n in room.items()}
    return f"no tiles fit into the scratchpads of {form.engine.name}"


def best_offer(op: Op, graph: Graph, target: Target, form: Form, spaces: tuple[Memory, Memory], cpu: float) -> Offer:
    """The offer of the engine that takes least, if that is less than the `cpu` cycles of the core."""
    offers = [offer(op, graph, target, engine, form, spaces) for engine in engines_of(target)]
    made = [o for o in offers if o.moved is not None]
    if not made:
        return Offer(None, offload.in_one_line(zip(engines_of(target), (o.why for o in offers), strict=True)))
    found = min(made, key=lambda o: o.moved.cost.total if o.moved else 0.0)
    assert found.moved is not None
    total = found.moved.cost.total
    if total >= cpu:
        return Offer(None, f"{found.moved.engine} would take {total:,.0f} cycles, the core {cpu:,.0f}")
    why = f"{total:,.0f} cycles, {cpu:,.0f} on the core"
    return Offer(replace(found.moved, why=why), why, found.whole)


def check_engines(target: Target) -> None:
    """Raise EdgebuildError for an engine whose scratchpads no DMA unit fills."""
    for engine in engines_of(target):
        for name in engine.memories:
            if not any(name in d.between for d in target.dma):
                text = f"no DMA of target {target.name} reaches {name}, a scratchpad of engine {engine.name}"
                raise fail(text, file=target.files[0], hints=["add it to `between` of one in `dma:`"])


@dataclass
class _Chain:
    """The steps of a plan, with the tensors that stay: by step that makes them, where they lie."""

    plan: Plan
    moved: dict[str, MappedOp]
    stay: dict[int, Place] = field(default_factory=dict)

    @property
    def ops(self) -> list[Op]:
        return [section.ops[0] for section in self.plan.steps]

    @property
    def align(self) -> int:
        return max(ALIGN, self.plan.target.dma_align)

    def aligned(self, t: Tensor) -> int:
        return -(-t.bytes // self.align) * self.align

    def engine(self, step: int) -> Engine | None:
        found = self.moved.get(self.ops[step].outputs[0])
        return found.form.engine if found is not None else None

    def may_stay(self, step: int) -> bool:
        """Both ops run on one engine, and nothing else wants the tensor."""
        graph, y = self.plan.graph, self.ops[step].outputs[0]
        reader, engine = self.ops[step + 1], self.engine(step)
        alone = list(graph.consumers.get(y, ())) == [reader] and y not in graph.outputs
        same = engine is not None and engine == self.engine(step + 1)
        return alone and same and self.plan.rolling.storage[y] == y

    def attempt(self, step: int) -> None:
        """Let the result of a step stay if both steps then take less together."""
        engine = self.engine(step)
        assert engine is not None
        size = self.aligned(self.plan.graph.tensors[self.ops[step].outputs[0]])
        offset = engine.activations // self.align * self.align - size if step % 2 else 0
        if offset < 0:
            return
        before, names = dict(self.stay), [self.ops[s].outputs[0] for s in (step, step + 1)]
        self.stay[step] = Place(engine.memories[0], offset)
        found = [self.remade(s, engine) for s in (step, step + 1)]
        both = [m for m in found if m is not None]
        if len(both) < 2 or sum(m.cost.total for m in both) >= sum(self.moved[n].cost.total for n in names):
            self.stay = before
            return
        self.moved |= dict(zip(names, both, strict=True))

    def remade(self, step: int, engine: Engine) -> MappedOp | None:
        """An op with its tiles between the tensors that stay."""
        op, graph = self.ops[step], self.plan.graph
        here = {self.ops[s].outputs[0]: self.stay[s] for s in (step - 1, step) if s in self.stay}
        sizes = {name: self.aligned(graph.tensors[name]) for name in here}
        below = sum(size for name, size in sizes.items() if here[name].offset == 0)
        room = engine.activations // self.align * self.align - sum(sizes.values())
        if room <= 0:
            return None
        form = replace(form_of(self.plan.target, self.plan.request), engine=engine)
        spaces = self.plan.home(op.outputs[0]), self.plan.target.memory("weights")
        made = in_tiles(op, graph, self.plan.target, form, spaces, frozenset(here), room)
        if made is None:
            return None
        places = {i: here[o.name].offset for i, o in enumerate(made.operands) if o.held}
        kept = self.moved[op.outputs[0]]
        return replace(_between(made, places, below), why=kept.why, whole=kept.whole)


def _between(moved: MappedOp, held: Mapping[int, int], below: int) -> MappedOp:
    """The op with its tiles of activations higher by so many bytes, and operands that are held where they lie."""
    return moved.shifted([held.get(i, 0 if o.packed else below) for i, o in enumerate(moved.operands)])


def with_residents(plan: Plan) -> Plan:
    """The plan with tensors that stay in scratchpads, as far as that saves cycles. It is not replayed yet."""
    layers = {s.ops[0].outputs[0]: s.moves for s in plan.steps if isinstance(s.moves, MappedOp)}
    chain = _Chain(plan, layers)
    for step in range(len(plan.steps) - 1):
        if chain.may_stay(step):
            chain.attempt(step)
    if not chain.stay:
        return plan
    stay = {chain.ops[step].outputs[0]: place for step, place in chain.stay.items()}
    heights = dict(plan.layout.heights)
    for region in (r for m in layers.values() for r in m.regions):
        taken = max(m.used(region) for m in layers.values() if region in m.regions)
        whole = any(place.memory == region.memory for place in stay.values())
        heights[region.memory] = region.bytes if whole else taken
    buffers = tuple(b if b.scratch else replace(b, place=stay.get(b.tensor, b.place)) for b in plan.buffers)
    layout = replace(plan.layout, heights=heights)
    steps = tuple(replace(s, moves=layers.get(s.ops[0].outputs[0], s.moves)) for s in plan.steps)
    return replace(plan, steps=steps, places={**plan.places, **stay}, buffers=buffers, layout=layout)
