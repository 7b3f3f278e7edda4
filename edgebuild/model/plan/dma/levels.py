"""Translate graphs and targets for `hierarchy/`: ops as loop nests between two memory levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Any

from ....base.errors import EdgebuildError, did_you_mean, fail
from ....base.levels import Dma, Engine
from ....base.target import Memory, Target
from ... import ops
from ...ir import ITEM_BYTES, Dim, Graph, Grouped, Nest, Op, Same, Window, separable
from ...kernels import kernel_of, offload
from ...ops import SPECS
from ...ops.base import PER_CALL, PER_TURN, Form
from ..hierarchy.mapper import NoMapping, best
from ..hierarchy.nest import Channel, Compute, Hardware, MappingCost, Operand, Power, TiledLayer, compute_cycles
from ..printed import Region
from ..rolling import RollingGraph
from .tiles import ALIGN, HANDOVER, MAX_COPIES, MAX_CORES, TRIES, MappedOp, Tiles, busiest


def check_levels(target: Target) -> None:
    """Raise EdgebuildError for a target without memory levels, without DMA, or with a cached first level."""
    if len(target.levels) < 2 or not target.dma:
        hint = "give its memories `level: 1`, `level: 2`... and add `dma:`, as hal/targets/gap8.yaml does"
        raise fail(f"target {target.name} has no memory levels", file=target.files[0], hints=[hint])
    if (near := target.levels[0]).cached:
        text = f"the first level {near.name} is cached: the core would not see what a DMA unit brings"
        raise fail(text, file=target.files[0], hints=["take away `cached: true`, or give it `level: 2`"])


def limited(target: Target, limits: Iterable[tuple[str, int]]) -> Target:
    """The target with memories limited to these bytes. Raises EdgebuildError for a memory that it does not have."""
    sizes, names = dict(limits), [m.name for m in target.memories]
    for name in sizes:
        if name not in names:
            text = f"option 'limit': no memory '{name}'{did_you_mean(name, names)}"
            raise fail(text, file=target.files[0], hints=["known: " + ", ".join(names)])
    memories = [replace(m, size=min(m.size, sizes.get(m.name, m.size))) for m in target.memories]
    return replace(target, memories=tuple(memories))


def resized(target: Target, sizes: Iterable[tuple[str, int]]) -> Target:
    """The target with these sizes of memories in bytes; the others stay."""
    by_name = dict(sizes)
    return replace(target, memories=tuple(replace(m, size=by_name.get(m.name, m.size)) for m in target.memories))


def no_tile(op: Op, file: str, near: Memory, room: int, layer: TiledLayer, reason: NoMapping) -> EdgebuildError:
    """The error for an op no tile of which fits, and whose operands the core cannot reach."""
    needed, align = reason.needed.get(near.name, 0), max(o.channel.align for o in layer.operands)
    text = f"does not fit: its smallest tile needs {needed} B of {near.name}, which has {room} B"
    hint = f"over by {needed - room} B; a larger {near.name}, or `--limit` that leaves more of it"
    if not reason.needed:
        text = f"no tiles of it can be moved: too many operands ({len(layer.operands)}), or copies"
        hint = f"fewer operands, or a larger {near.name}"
    if needed <= room and align > 1:
        text, hint = (
            f"no tile of it begins and ends at multiples of {align} B, as the DMA asks for",
            "a smaller `align:`",
        )
    return fail(text, file=file, node=op.name, kind=op.origin or op.kind, hints=[hint])


def channel_between(target: Target, near: Memory, far: Memory) -> Channel | None:
    """The channel of the DMA unit between two memories, at the bandwidth of the slower one; None: there is no unit."""
    dma = next((d for d in target.dma if near.name in d.between and far.name in d.between), None)
    if dma is None:
        return None
    bandwidth = min((m.bytes_per_cycle for m in (near, far) if m.bytes_per_cycle), default=4.0)
    fetch_pj, store_pj = copy_pj(far, near, dma), copy_pj(near, far, dma)
    return Channel(
        bandwidth, dma.start_cycles, dma.piece_cycles, dma.dimensions, dma.align, dma.largest, dma.overlap,
        fetch_pj, store_pj,
    )  # fmt: skip


# Energies, if a target states those of all memories between which it copies, of its DMA units, and of core or engine.


def copy_pj(source: Memory, goal: Memory, dma: Dma) -> float:
    """Picojoules of a copied byte: read, transfer and write; parts without a stated energy count 0."""
    read = source.energy.read_pj if source.energy else 0.0
    written = goal.energy.write_pj if goal.energy else 0.0
    return read + written + (dma.energy.byte_pj if dma.energy else 0.0)


def hop_pj(target: Target, source: str, goal: str) -> float:
    """Picojoules of a byte that a DMA unit copies from one memory to another."""
    dma = next(d for d in target.dma if source in d.between and goal in d.between)
    return copy_pj(target.memory_named(source), target.memory_named(goal), dma)


def unstated_energies(target: Target, engines: Sequence[Engine] = ()) -> list[str]:
    """Memories, units and engines without an `energy:` that layers on these engines or, with none, the core need."""
    near = {name for e in engines for name in e.memories}
    memories = [*target.levels, target.memory("weights"), *(m for m in target.memories if m.name in near)]
    keys = [f"memory {m.name}" for m in dict.fromkeys(memories) if m.energy is None]
    keys += [f"DMA unit {d.name}" for d in target.dma if d.energy is None]
    keys += [f"engine {e.name}" for e in engines if e.energy is None]
    return keys + (["the core"] if not engines and target.core.energy is None else [])


def power_of(target: Target, engine: Engine | None, macs: int, least: bool = False) -> Power | None:
    """Energy of a layer of `macs` multiply-accumulates on an engine or on all cores; None: not stated.

    `least`: the search minimises energy. Cores and engines that do not compute idle all the time.
    """
    if unstated_energies(target, [engine] if engine else []):
        return None
    cores, own = target.core.energy, engine.energy if engine else target.core.energy
    assert own is not None
    waiting = sum(e.energy.idle_pj for e in target.engines if e.energy and e.name != (engine.name if engine else ""))
    if engine is not None:
        waiting += cores.idle_pj * target.cores if cores else 0.0
    number = 1 if engine else target.cores
    return Power(own.mac_pj * macs, own.busy_pj * number + waiting, own.idle_pj * number + waiting, least)


def check_energies(target: Target, engines: Sequence[Engine]) -> None:
    """Raise EdgebuildError if `--objective energy` needs energies that the target does not state."""
    if missing := unstated_energies(target, engines):
        text = f"--objective energy: target {target.name} states no `energy:` of {', '.join(missing)}"
        raise fail(text, file=target.files[0], hints=["give it with its `source:`, as hal/targets/diana.yaml does"])


def nearest(target: Target) -> tuple[Memory, Memory]:
    """The first level, and the nearest memory that a DMA unit joins with it; else the next in order."""
    check_levels(target)
    near, *others = target.levels
    return near, next((m for m in others if channel_between(target, near, m)), others[0])


def channel_to(target: Target, near: Memory, far: Memory) -> Channel:
    """The channel between two levels. Raises EdgebuildError if no DMA reaches both."""
    channel = channel_between(target, near, far)
    if channel is None and (stages := [m for m in target.levels if near.level < m.level < far.level]):
        channel = channel_through(target, near, stages[0], far)
    if channel is None:
        raise fail(f"no DMA of target {target.name} reaches both {near.name} and {far.name}", file=target.files[0])
    return channel


def constants_channel(target: Target, near: Memory, home: Memory) -> Channel:
    """The channel of constants that pass through the second level, aligned for all DMA units."""
    return replace(channel_to(target, near, home), align=target.dma_align)


def channel_through(target: Target, near: Memory, stage: Memory, far: Memory) -> Channel | None:
    """The channel of two DMA units in sequence, at the bandwidth of the slower one; None: one of them is missing."""
    first, second = channel_between(target, near, stage), channel_between(target, stage, far)
    if first is None or second is None:
        return None
    starts, pieces = first.start_cycles + second.start_cycles, first.piece_cycles + second.piece_cycles
    rate, dimensions = min(first.bytes_per_cycle, second.bytes_per_cycle), min(first.dimensions, second.dimensions)
    align, overlap = max(first.align, second.align), first.overlap and second.overlap
    largest = min((c.largest for c in (first, second) if c.largest), default=0)
    fetch_pj, store_pj = first.fetch_pj + second.fetch_pj, first.store_pj + second.store_pj
    return Channel(rate, starts, pieces, dimensions, align, largest, overlap, fetch_pj, store_pj)


def engine_hardware(target: Target, engine: Engine) -> Hardware:
    """An engine between its scratchpads and the second level."""
    near, far = nearest(target)
    weights = target.memory_named(engine.memories[1]) if engine.memories else near
    channels = dict.fromkeys("IO", channel_to(target, near, far)) | {"W": channel_to(target, weights, far)}
    return Hardware(
        {"I": "activations", "O": "activations", "W": "weights"},
        channels,
        engine.cycles,
        engine.cycles_for("depthwise"),
        engine.array,
        channels_first=True,
    )


def core_hardware(target: Target) -> Hardware:
    """The cores for files of layers, which have no kernels: one multiply-accumulate per core and cycle."""
    near, far = nearest(target)

    def compute(lengths: Mapping[str, Any]) -> Any:
        return prod(lengths.values()) / target.cores

    channel = channel_to(target, near, far)
    spaces = dict.fromkeys("IWO", near.name)
    return Hardware(spaces, dict.fromkeys("IWO", channel), compute, compute, {}, False, PER_CALL)


def rooms(target: Target, engine: Engine | None) -> dict[str, int]:
    """Bytes of each space that operands are kept in: an engine's scratchpads, or the first level."""
    if engine is not None:
        return {"activations": engine.activations, "weights": engine.weights}
    near = nearest(target)[0]
    reserved = target.firmware.stack if target.firmware is not None and "stack" in near.roles else 0
    return {near.name: near.size - reserved}


def cut_axes(nest: Nest) -> tuple[str, ...]:
    """Axes of the result along which an op can be made in parts, the innermost of the result's dimensions last."""
    axes = []
    for axis in nest.out:
        relations = [d for dims in nest.operands for d in dims if d.axis == axis]
        fits = all(isinstance(d, Same | Window) or (isinstance(d, Grouped) and d.group == 1) for d in relations)
        if fits and relations and nest.extents[axis] > 1 and nest.out.count(axis) == 1:
            axes.append(axis)
    axes = [axis for axis in axes if separable(nest, axis)]
    if all({d.axis for d in dims} >= set(axes) for dims in nest.operands):
        axes = axes[:2]  # element by element: cutting inner dimensions only makes more pieces
    return tuple(axes)


def layer_of_op(
    op: Op,
    graph: Graph,
    target: Target,
    form: Form,
    spaces: tuple[Memory, Memory, Memory],
    held: frozenset[str] = frozenset(),
    homes: Mapping[str, Memory] = MappingProxyType({}),
    least: bool = False,
) -> TiledLayer:
    """An op that runs by itself, as a loop nest between the first level and the memories of its operands.

    `form`: of its kernel. `spaces`: the first level, the memory of activations, the memory of weights. `held`: tensors
    that lie whole in the first level. `homes`: memories of tensors that lie elsewhere than the other activations.
    `least`: minimise energy, not cycles.
    """
    near, home, store = spaces
    nest, y, views = ops.nest(op, graph), graph.result(op), RollingGraph(graph).views
    axes = cut_axes(nest)
    kernel = kernel_of(op, graph, form)
    activations = [i for i, n in enumerate(op.inputs) if not graph.tensors[n].constant]
    operands = []
    for i in activations:
        x = graph.tensors[op.inputs[i]]
        channel = channel_to(target, near, homes.get(x.name, home))
        operand = Operand(x.name, nest.operands[i], x.shape, ITEM_BYTES[x.dtype], near.name, channel)
        operands.append(replace(operand, held=x.name in held, start=views[x.name][1]))
    if (weights := _weights(op, graph, nest, sum(c.data.nbytes for c in kernel.constants))) is not None:
        dims, sizes, item, extra, extra_dim = weights
        channel = channel_between(target, near, store) or constants_channel(target, near, home)
        operands.append(Operand("weights", dims, sizes, item, near.name, channel, False, True, extra, extra_dim))
    out = tuple(Same(a) for a in nest.out)
    channel = channel_to(target, near, homes.get(y.name, home))
    result = Operand(y.name, out, y.shape, ITEM_BYTES[y.dtype], near.name, channel, True)
    operands.append(replace(result, held=y.name in held))
    points = prod(nest.extents.values())
    each = form.cycles_per_instruction * max(kernel.cost or PER_TURN * points, 1.0) / points
    call = form.cycles_per_instruction * PER_CALL
    cores = min(target.cores, MAX_CORES)
    alone = call + points * each
    layer = TiledLayer(
        op.name,
        nest,
        tuple(operands),
        axes,
        Compute(lambda lengths: 0.0, call),
        {},
        True,
        cores,
        True,
        alone,
        align=max(ALIGN, target.dma_align),
        power=power_of(target, None, nest.mac_count, least),
    )
    share = busiest(layer, cores)

    def cycles(lengths: Mapping[str, Any]) -> Any:
        return prod(lengths.values()) * each * share(lengths)

    return replace(layer, compute=Compute(cycles, call + (HANDOVER if cores > 1 else 0)))


def whole_cycles(layer: TiledLayer) -> float:
    """Cycles of an op in one call on operands that the core reaches."""
    return float(layer.compute.cycles(layer.nest.extents)) + layer.compute.call


def _weights(
    op: Op, graph: Graph, nest: Nest, size: int
) -> tuple[tuple[Dim, ...], tuple[int, ...], int, int, int] | None:
    """Relations and sizes of an op's constants as one operand; `size`: bytes of all that its kernel reads."""
    constant = [(i, graph.tensors[n]) for i, n in enumerate(op.inputs) if graph.tensors[n].constant]
    if not size:
        return None
    if not constant:
        return (), (), size, 0, 0
    i, w = max(constant, key=lambda pair: pair[1].bytes)
    dims, item = nest.operands[i], ITEM_BYTES[w.dtype]
    by = [d for d, relation in enumerate(dims) if isinstance(relation, Same) and relation.axis in nest.out]
    if not by or len(dims) != len(w.shape):
        return (), (), size, 0, 0
    channel = max(by, key=lambda d: w.shape[d])
    return dims, w.shape, item, -(-max(0, size - w.bytes) // w.shape[channel]), channel


# Ops that an engine computes from its scratchpads, and tensors that stay there for the next op.
#
# The scratchpads are one range of addresses, first that of activations, then that of weights. Tensors that stay lie at
# the two ends of the scratchpad alternately, and the tiles of an op lie between its operand and its result.


def engines_of(target: Target) -> tuple[Engine, ...]:
    """The engines whose scratchpads programs can use."""
    return tuple(e for e in target.engines if e.memories)


def scratchpads(target: Target) -> frozenset[str]:
    """Names of the memories that belong to engines."""
    return frozenset(name for engine in engines_of(target) for name in engine.memories)


def regions_of(engine: Engine) -> tuple[Region, Region]:
    """The scratchpad of activations, then that of weights."""
    activations, weights = engine.memories
    return Region(activations, 0, engine.activations), Region(weights, engine.activations, engine.weights)


def letters(nest: Nest) -> dict[str, str]:
    """The letter (K, OX, OY, FX, FY, C) of each axis of an op; channels are the last axis of the result."""
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
    least: bool = False,
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
    compute = Compute(cycles, form.cycles_per_instruction * PER_CALL, rows)
    power = power_of(target, engine, layer.nest.mac_count, least)
    return replace(layer, operands=tuple(operands), compute=compute, units=units, cores=1, estimated=False, power=power)


def offer(
    op: Op, graph: Graph, target: Target, engine: Engine, form: Form, spaces: tuple[Memory, Memory],
    held: frozenset[str] = frozenset(), room: int | None = None, least: bool = False,
) -> MappedOp | str:  # fmt: skip
    """The op in its cheapest tiles that fit into the engine's scratchpads; or the reason why there are none.

    `form`: of kernels of the core. `held`: tensors that lie there. `room`: bytes for tiles of the other activations.
    """
    if why := offload.refusal(op, graph, engine):
        return why
    form, regions = replace(form, engine=engine), regions_of(engine)
    layer = engine_layer(op, graph, target, engine, form, spaces, held, least)
    most = {r.memory: r.bytes if room is None or r.base else room for r in regions}
    left = dict(most)
    for _ in range(TRIES):
        try:
            mapped, _ = best(layer, left)
        except NoMapping as reason:
            over = ", ".join(f"{n} B of {s}, which has {left[s]} B" for s, n in reason.needed.items() if n > left[s])
            return f"its smallest tile needs {over or 'another alignment'}"
        moved = Tiles(op, graph, layer, mapped, form, regions).build()
        over_by = {r.memory: moved.used(r) - most[r.memory] for r in regions}
        if all(n <= 0 for n in over_by.values()) and len(moved.copies) <= MAX_COPIES:
            return replace(moved, whole=(compute_cycles(layer, {}) + layer.compute.call,))
        left = {name: n - max(over_by[name], n // 16 if over_by[name] > 0 else 0) for name, n in left.items()}
    return f"no tiles fit into the scratchpads of {engine.name}"


def best_offer(
    op: Op, graph: Graph, target: Target, form: Form, spaces: tuple[Memory, Memory], cpu: MappingCost
) -> MappedOp | str:
    """The op on the engine that takes least cycles, or energy; or why none takes less than the core (`cpu`)."""
    least = cpu.power is not None and cpu.power.least
    offers = {e: offer(op, graph, target, e, form, spaces, least=least) for e in engines_of(target)}
    feasible = [moved for moved in offers.values() if isinstance(moved, MappedOp)]
    if not feasible:
        return offload.in_one_line((e, str(why)) for e, why in offers.items())
    cheapest = min(feasible, key=lambda moved: moved.cycles.score)
    cost, unit = cheapest.cycles.score, "pJ" if least else "cycles"
    if cost >= cpu.score:
        return f"{cheapest.engine} would take {cost:,.0f} {unit}, the core {cpu.score:,.0f}"
    return replace(cheapest, why=f"{cost:,.0f} {unit}, {cpu.score:,.0f} on the core")


def check_engines(target: Target) -> None:
    """Raise EdgebuildError for an engine whose scratchpads no DMA unit fills."""
    for engine in engines_of(target):
        for name in engine.memories:
            if not any(name in d.between for d in target.dma):
                text = f"no DMA of target {target.name} reaches {name}, a scratchpad of engine {engine.name}"
                raise fail(text, file=target.files[0], hints=["add it to `between` of one in `dma:`"])
