"""A plan whose ops run tile by tile between memory levels: the network level of `--map`."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace

from ....base.dataclass import dataclass
from ....base.errors import fail
from ....base.request import ModelRequest
from ....base.target import Memory, Target
from ...ir import Op
from ...kernels import kernel_of
from ...ops.base import Form
from ..check.replay import BrokenPlan, replay
from ..hierarchy.baselines import dory
from ..hierarchy.mapper import NoMapping
from ..hierarchy.nest import Mapped, TiledLayer
from ..memory.problem import DoesNotFit
from ..printed import ReachedOp
from ..search import Plan, Planner, form_of
from .assembly import SearchPath, assembled, search_of
from .engines import best_offer, check_engines, engines_of, scratchpads, with_residents
from .levels import channel_between, check_levels, layer_of_op, nearest, no_tile, rooms, whole_cycles
from .prefetch import coherence, staging_channel, with_transfers
from .residency import BareOp, Step
from .tiles import MOST_COPIES, MOST_OPERANDS, MappedOp, cheapest_tiles, fitting_tiles


def check_request(target: Target, request: ModelRequest) -> None:
    """Raise EdgebuildError for what does not go together with `--map`."""
    check_levels(target)
    check_engines(target)
    other = request.tile not in (None, "off") or request.objective == "energy"
    if other or request.arena == "caller" or request.stream_input is not None:
        raise fail("--map goes with --tile off and --arena static, not with --stream-input or --objective energy")
    (near, home), store = nearest(target), target.memory("weights")
    if (room := rooms(target, None).get(near.name, 0)) < 0:
        text = f"{near.name} has {near.size} B, and the stack in it takes {near.size - room} B"
        raise fail(text, file=target.files[0], hints=[f"a larger --limit {near.name}=BYTES"])
    by_way = staging_channel(target, near, home, store) is not None and not engines_of(target)
    if channel_between(target, near, store) is None and not by_way:
        text = f"no DMA of target {target.name} reaches both {near.name} and {store.name}, where weights lie"
        raise fail(text, file=target.files[0], hints=["`edgebuild map` tells what tiles would cost there"])


def reached(target: Target) -> Target:
    """The target with activations only where a DMA unit copies between them and the first level.

    Raises EdgebuildError where no memory is left for them.
    """
    near = nearest(target)[0]
    memories = [
        m if channel_between(target, near, m) else replace(m, roles=tuple(r for r in m.roles if r != "arena"))
        for m in target.memories
    ]
    if not any("arena" in m.roles and m.level != 1 for m in memories):
        text = f"no DMA of target {target.name} joins {near.name} with a memory that has the role 'arena'"
        raise fail(text, file=target.files[0], hints=["add one to `between` of a unit in `dma:`"])
    return replace(target, memories=tuple(memories))


@dataclass(frozen=True)
class _Decided:
    """An op as a loop nest, its tiles if some fit, and what it is where the core reaches its operands instead."""

    op: Op
    layer: TiledLayer
    tiles: MappedOp | None
    reached: ReachedOp


def layerwise_plan(plan: Plan, choose: Callable[[TiledLayer], Mapped] | None = None) -> Plan:
    """The plan with every op tile by tile that fits so, on the core or on an engine; the others reach the second level.

    `choose` maps a layer of the core; not given: the best mapping, or the rule that the request names.

    Raises EdgebuildError where an op does not fit and the core cannot reach its operands.
    """
    target = plan.target
    near, second = nearest(target)
    decided = [_decided(plan, op, choose) for section in plan.steps for op in section.ops]
    if staging_channel(target, near, second, target.memory("weights")) is not None:
        return _through_second_level(plan, decided)
    made = _sound(plan, decided)
    heights = _heights(plan, near.name, [m for m in made.moves.values() if isinstance(m, MappedOp)])
    made = replace(made, layout=replace(plan.layout, heights=heights))
    return made if plan.request.map != "auto" else _checked(with_residents(made))


def _decided(plan: Plan, op: Op, choose: Callable[[TiledLayer], Mapped] | None) -> _Decided:
    target, (y,) = plan.target, op.outputs
    form, near, store = form_of(target, plan.request), nearest(target)[0], target.memory("weights")
    homes = {name: plan.home(name) for name in (*op.inputs, y) if name in plan.rolling.storage}
    spaces = near, homes[y], store
    layer = layer_of_op(op, plan.graph, target, form, spaces, homes=homes)
    found = _by_core(plan, op, form, layer, spaces, choose)
    whole, why = layer.alone if found is None else whole_cycles(layer), ""
    if engines_of(target):
        cpu = layer.alone if found is None else found.cost.total
        offer = best_offer(op, plan.graph, target, form, spaces[1:], cpu)
        found, whole, why = (offer.moved, offer.whole, offer.why) if offer.moved else (found, whole, offer.why)
    return _Decided(op, layer, found and replace(found, whole=(whole,), why=why or found.why), ReachedOp(why, (whole,)))


def _through_second_level(plan: Plan, decided: Sequence[_Decided]) -> Plan:
    """The same steps with constants that come by way of the second level; DORY's come under the layer before."""
    planner = Planner(plan.graph, plan.target, plan.request)
    search = search_of(planner, rooms(plan.target, None)[nearest(plan.target)[0].name])
    made = {d.op.outputs[0]: d.tiles or BareOp.of(d.layer, d.reached.whole) for d in decided}
    order = enumerate(planner.cutter.order)
    steps = tuple(Step(at, at + 1, frozenset(), made[op.outputs[0]]) for at, op in order)
    try:
        return assembled(planner, search, SearchPath(steps, ()), 1 if plan.request.map == "dory" else 0)
    except DoesNotFit as reason:
        hints = ["use --map auto, or a target with more of it"]
        text = f"does not fit: {reason}, also for constants on their way"
        raise fail(text, file=plan.graph.file, hints=hints) from None


def _heights(plan: Plan, near: str, moved: Iterable[MappedOp]) -> dict[str, int]:
    """Bytes of each memory: of the plan without moves, and of the largest op that has its tiles there."""
    heights = {**plan.layout.heights}
    for layer in moved:
        taken = {r.memory: layer.used(r) for r in layer.regions} or {near: layer.level1_bytes}
        heights |= {name: max(heights.get(name, 0), size) for name, size in taken.items()}
    heights.setdefault(near, 0)
    return {m.name: heights[m.name] for m in plan.target.memories if m.name in heights}


def _by_core(
    plan: Plan,
    op: Op,
    form: Form,
    layer: TiledLayer,
    spaces: tuple[Memory, Memory, Memory],
    choose: Callable[[TiledLayer], Mapped] | None,
) -> MappedOp | None:
    """The op in tiles in the first level, or None. Raises EdgebuildError if that is the only way and does not fit."""
    near, _, store = spaces
    if near.name in scratchpads(plan.target):
        return None
    room = rooms(plan.target, None)[near.name]
    if len(layer.operands) > MOST_OPERANDS:
        return None
    try:
        free = room - (-(-kernel_of(op, plan.graph, form).scratch // 8) * 8)
        mapped = choose(layer) if choose else None
        if plan.request.map == "dory":
            mapped = dory(layer, {near.name: max(1, free)}, True)[0]
        if mapped is not None:
            found = fitting_tiles(op, plan.graph, layer, form, room, mapped)
        else:
            found = cheapest_tiles(op, plan.graph, layer, form, room)
    except NoMapping as reason:
        roots = {plan.home(o.name) for o in layer.operands if not o.packed}
        if any(memory.access == "dma" for memory in (*roots, store)):
            raise no_tile(op, plan.graph.file, near, room, layer, reason) from None
        return None
    return found if len(found.copies) <= MOST_COPIES else None


def _sound(plan: Plan, decided: Sequence[_Decided]) -> Plan:
    """The plan with these ops in tiles, without those whose result grows over an operand that later tiles want."""

    def made(without: Container[str]) -> Plan:
        moves = ((d.op.outputs[0] not in without and d.tiles) or d.reached for d in decided)
        steps = tuple(replace(s, moves=m) for s, m in zip(plan.steps, moves, strict=True))
        return _checked(replace(plan, steps=steps))

    try:
        return made(())
    except BrokenPlan:
        return made({s.overlap.result for s in plan.steps if s.overlap is not None})


def _checked(plan: Plan) -> Plan:
    """The plan with caches cleaned and invalidated, replayed."""
    steps = with_transfers(plan.steps, coherence(plan.target, plan.rolling, plan.steps, plan.places))
    replay(plan.graph, steps, plan.places, plan.target)
    return replace(plan, steps=steps)
