"""Tensors that stay in an engine's scratchpad from the op that makes them to the only one that reads them.

Tensors lie at the two ends of the scratchpad in turn, and the tiles of an op between what it reads and what it makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ....base.levels import Engine
from ....base.target import Memory
from ...ir import Op, Tensor
from ..memory.problem import Place
from ..search import Plan, form_of
from .copies import ALIGN, MovedLayer
from .offload import in_tiles, used


@dataclass
class _Chain:
    """The steps of a plan, with the tensors that stay: by step that makes them, where they lie."""

    plan: Plan
    moved: dict[str, MovedLayer]
    spaces: Mapping[str, tuple[Memory, Memory]]  # by result: memories of activations and of weights
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

    def remade(self, step: int, engine: Engine) -> MovedLayer | None:
        """An op with its tiles between the tensors that stay."""
        op, graph = self.ops[step], self.plan.graph
        here = {self.ops[s].outputs[0]: self.stay[s] for s in (step - 1, step) if s in self.stay}
        sizes = {name: self.aligned(graph.tensors[name]) for name in here}
        below = sum(size for name, size in sizes.items() if here[name].offset == 0)
        room = engine.activations // self.align * self.align - sum(sizes.values())
        if room <= 0:
            return None
        form = replace(form_of(self.plan.target, self.plan.request), engine=engine)
        made = in_tiles(op, graph, self.plan.target, form, self.spaces[op.outputs[0]], frozenset(here), room)
        if made is None:
            return None
        places = {i: here[o.name].offset for i, o in enumerate(made.layer.operands) if o.held}
        kept = self.moved[op.outputs[0]]
        return replace(_shifted(made, places, below), why=kept.why)


def _shifted(moved: MovedLayer, held: Mapping[int, int], below: int) -> MovedLayer:
    """The op with its tiles of activations higher by so many bytes, and operands that are held where they lie."""
    packed = {i for i, o in enumerate(moved.layer.operands) if o.packed}
    width = max(len(c.at) for t in moved.turns for c in t.calls)
    owners = (*moved.at_operands, *[next(iter(packed), -1)] * (width - len(moved.at_operands)))
    shift = [held.get(i, 0 if i in packed or i < 0 else below) for i in owners]
    turns = [
        replace(t, calls=tuple(replace(c, at=tuple(a + s for a, s in zip(c.at, shift, strict=False))) for c in t.calls))
        for t in moved.turns
    ]
    copies = [c if c.channel // 2 in packed else replace(c, near=c.near + below) for c in moved.copies]
    return replace(moved, copies=tuple(copies), turns=tuple(turns))


def with_residents(plan: Plan, spaces: Mapping[str, tuple[Memory, Memory]]) -> Plan:
    """The plan with tensors that stay in scratchpads, as far as that saves cycles. It is not replayed yet."""
    layers = {name: m for name, m in plan.moved.items() if isinstance(m, MovedLayer)}
    chain = _Chain(plan, layers, spaces)
    for step in range(len(plan.steps) - 1):
        if chain.may_stay(step):
            chain.attempt(step)
    if not chain.stay:
        return plan
    stay = {chain.ops[step].outputs[0]: place for step, place in chain.stay.items()}
    heights = dict(plan.layout.heights)
    for region in (r for m in layers.values() for r in m.regions):
        taken = max(used(m, region) for m in layers.values() if region in m.regions)
        whole = any(place.memory == region.memory for place in stay.values())
        heights[region.memory] = region.bytes if whole else taken
    buffers = tuple(b if b.scratch else replace(b, place=stay.get(b.tensor, b.place)) for b in plan.buffers)
    layout = replace(plan.layout, heights=heights)
    return replace(plan, moved=layers, places={**plan.places, **stay}, buffers=buffers, layout=layout)
