"""The report: all decisions about a model, as JSON without times or paths."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from .. import ops
from ..ir import Graph, Op, Tensor
from ..kernels import cycles_of
from ..kernels.offload import engine_call, in_one_line, refusal
from ..plan.choose import mac_overhead
from ..plan.printed import SLOTS, Copy, Start, TiledOp, UncopiedOp, newest_name
from ..plan.rolling import read_outside, rows_of
from ..plan.search import Plan, state_bytes
from ..plan.section import Section, scratch_name, slice_us
from ..plan.storage import NEWEST, RING, SCRATCH, Live, live_set
from .addresses import access_functions, comment, shape_text, starts
from .code import Program, constants_of
from .weights_file import HEADER, Weights

if TYPE_CHECKING:
    from ..energy.select import ClockSchedule
    from ..plan.dma.streamed import PlannedRun
    from ..plan.dma.tiles import MappedOp

# A plan in words, for a terminal.

MAX_LINES = 8  # tensors of a live set that are shown, the largest first


def steps(plan: Plan) -> str:
    """A line for each op: step, bytes live, calls, multiply-accumulates."""
    rows = [f"{'step':>4} {'live B':>9} {'calls':>6} {'MACs':>10}  op"]
    for step, section in enumerate(plan.steps):
        for i, op in enumerate(section.ops):
            head = f"{step:>4} {plan.schedule.profile[step]:>9} {section.calls:>6}" if i == 0 else " " * 21
            rows.append(f"{head} {ops.nest(op, plan.graph).mac_count:>10}  {op.kind} '{comment(op.name)}'")
    rows.append(f"arena {plan.arena_bytes} B, peak {plan.schedule.peak} B, bound {plan.schedule.bound} B")
    return "\n".join(rows) + "\n"


def tiling_words(plan: Plan) -> str:
    """Words on what is tiled and saves how much, on the live set at the peak, and on the next limit."""
    lines = [f"{plan.graph.file}: arena {plan.arena_bytes} B; every op whole: {plan.untiled_bytes} B"]
    for step, section in enumerate(plan.steps):
        if section.rolled is not None:
            first, last = comment(section.ops[0].name), comment(section.ops[-1].name)
            held = max(section.in_use)
            lines.append(
                f"  step {step}: {len(section.ops)} ops from '{first}' to '{last}' row by row: {section.calls} calls,"
                f" {held} B of rings, sums and scratch, nothing computed twice"
            )
    lines += _fused_lines(plan)
    if not plan.tiled and plan.tiling is None:
        lines.append("  nothing is tiled: no run of ops takes less memory row by row than its ops take whole")
    return "\n".join([*lines, *_limit(plan), *trade_words(plan)]) + "\n"


def _fused_lines(plan: Plan) -> list[str]:
    """Lines on the paths that are cut into parts, and on why the search ended."""
    if plan.tiling is None:
        return []
    lines = []
    for choice in plan.tiling.tilings:
        assert choice.tiling is not None
        path, counts = choice.tiling.path, "x".join(map(str, choice.tiling.counts))
        along = {"fdt": "channels", "ffmt": "rows or columns", "both": "rows or columns, and channels"}[path.method]
        end = "their sums added up" if path.fan_in else "put together"
        twice = f"{choice.extra_macs} MACs done twice" if choice.extra_macs > 0 else "nothing computed twice"
        saved = f"{choice.saved} B less between them, " if choice.saved else ""
        lines.append(
            f"  {len(path.ops)} ops from '{comment(path.ops[0].name)}' to '{comment(path.ops[-1].name)}'"
            f" in {counts} parts along {along}, {end}: {saved}{twice}"
        )
    percent = mac_overhead(plan.request)
    limit = f"at most {percent:g} % of the MACs twice" if percent else "no MACs twice (--max-mac-overhead allows some)"
    none = "" if lines else "  nothing is tiled: "
    why = f"no path of {plan.tiling.estimated} looked at takes less memory with {limit}"
    return [*lines, f"{none or '  '}{why}{'' if none else ' than these'}"]


def _limit(plan: Plan) -> list[str]:
    """Lines on the step with the most live bytes, and the tensors that add up to them."""
    if not plan.steps:
        return []
    at = max(range(len(plan.steps)), key=lambda i: plan.schedule.profile[i])
    live = live_set(plan.cutter, plan.steps, at)
    lines = [f"  the most is live in step {at}, {plan.schedule.profile[at]} B:"]
    lines += [f"    {part.bytes:>8} B  {_described(plan, part)}" for part in live.parts[:MAX_LINES]]
    if more := live.parts[MAX_LINES:]:
        lines.append(f"    {sum(part.bytes for part in more):>8} B  in {len(more)} more")
    if (overlap := live.overlap) is not None:
        lines.append(f"    {-overlap.saved:>8} B  as {comment(overlap.result)} grows into {comment(overlap.operand)}")
    if live.parts[0].tensor in plan.graph.inputs:
        lines.append(f"  next limit: the input tensor itself, {live.parts[0].bytes} B")
    return lines


def _described(plan: Plan, part: Live) -> str:
    """Words for the contents of live bytes."""
    if part.kind == SCRATCH:
        return f"what the kernel of {comment(plan.graph.producers[part.tensor].name)} works on"
    name, shape = comment(part.tensor), shape_text(plan.graph.tensors[part.tensor])
    if part.kind == NEWEST:
        return f"the newest row of {name}"
    return f"{name} (ring of {part.rows} rows of {shape})" if part.kind == RING else f"{name} ({shape})"


SCHEMA = 2
NO_TILE = "no tile fits: the core reaches its operands where they lie"


def report(program: Program, sha256: str, code_bytes: int) -> str:
    """The report as JSON. `sha256`: of the model file. `code_bytes`: estimated, of the smallest program with it."""
    plan, weights = program.plan, program.weights
    graph, arena = plan.graph, plan.arena_bytes
    layers = layer_rows(program)
    macs = sum(row["macs"] for row in layers)
    of_steps = [list(rows) for _, rows in groupby(layers, key=lambda row: row["step"])]
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "model": {"name": plan.name, "file": plan.file, "sha256": sha256, "format": graph.format or graph.arithmetic},
        "target": plan.target.name,
        "clock_hz": plan.target.clock_hz,
        **_ports(plan),
        "ram": {
            "arena_bytes": arena,
            "untiled_arena_bytes": plan.untiled_bytes,
            "peak_bytes": plan.schedule.peak,
            "lower_bound_bytes": plan.lower_bound,
            "by_memory": {m: height for m, height in plan.layout.heights.items() if height},
        },
        "rom": _rom(plan, weights, code_bytes),
        "macs": {"model": macs + graph.removed_macs - plan.extra_macs, "generated": macs},
        "constant_channels": _constant_channels(graph),
        "schedule": {
            "method": plan.schedule.method,
            "optimal": plan.schedule.optimal,
            "bound_bytes": plan.schedule.bound,
            "order": [section.name for section in plan.steps],
            "steps": [_step(plan, i, rows) for i, rows in enumerate(of_steps)],
        },
        "layout": {
            "method": plan.layout.method,
            "optimal": plan.layout.optimal,
            "bound_bytes": plan.layout.bound,
            "buffers": _buffers(plan),
        },
        "tiling": [_tiling(plan, i) for i, section in enumerate(plan.steps) if section.run] + _fused(plan),
        "layers": layers,
        "totals": totals(layers, plan, weights),
        "state_bytes": state_bytes(graph),
        "needs_libm": False,
        "arena": plan.request.arena,
        "stream_rows": rows_of(graph, graph.inputs[0]) if plan.rolling.streamed else 0,
    }
    if plan.tiled or (plan.request.tile == "auto" and plan.clocks is None):
        data["trade_off"] = trade_rows(plan)
        data["price"] = dict(zip(("instructions", "cycles"), (round(more - 1, 4) for more in plan.price), strict=True))
    if plan.moves or any(isinstance(s.moves, UncopiedOp) and s.moves.why for s in plan.steps):
        data["hierarchy"] = _levels(plan, weights)
    if plan.target.engines:
        data["engines"] = engine_rows(program)
    if plan.clocks is not None:
        data["energy"] = _energy(plan.clocks)
    if plan.request.stepwise and plan.target.clock_hz and plan.steps:
        data["slices"] = _slices(plan)
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def _slices(plan: Plan) -> dict[str, Any]:
    """The longest call of NAME_step(), modelled."""
    limit = plan.request.max_slice
    times = [slice_us(plan.graph, section, plan.target, limit) for section in plan.steps]
    row = {"longest_us": round(max(times), 3), "step": times.index(max(times))}
    return row if limit is None else row | {"limit_us": limit}


def _energy(clocks: ClockSchedule) -> dict[str, Any]:
    from ..energy.select import budget_row, iso_latency, section  # late: few plans have clocks

    data: dict[str, Any] = {
        **section(clocks.problem, clocks.selection),
        "hse_hz": clocks.clocks.base_hz,
        "sources": clocks.sources,
        "iso_latency": [iso_latency(c) for c in clocks.comparisons],
    }
    if clocks.other_budgets:
        data["budgets"] = [budget_row(*each) for each in clocks.budgets]
    return data


def _rom(plan: Plan, weights: Weights, code: int) -> dict[str, Any]:
    tensors = {t.name: t.bytes for op in plan.graph.ops for t in plan.graph.operands(op) if t.constant}
    return {
        "weights_bytes": weights.linked_bytes,
        "header_bytes": HEADER if weights.offsets else 0,
        "tensors_bytes": sum(tensors.values()),
        "estimated_code_bytes": code,
        "memory": plan.weights_memory,
    }


def _step(plan: Plan, step: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "ops": [row["name"] for row in rows],
        "kinds": [row["kind"] for row in rows],
        "live_bytes": plan.schedule.profile[step],
        "macs": sum(row["macs"] for row in rows),
        "calls": plan.steps[step].calls,
    }


def _tiling(plan: Plan, step: int) -> dict[str, Any]:
    """Row on a rolled run. It computes nothing twice, so it has no extra MACs."""
    section = plan.steps[step]
    assert section.rolled is not None
    rings = section.rolled.rings
    whole = sum(plan.graph.tensors[name].bytes for name in (*rings, *section.rolled.inside))
    return {
        "kind": "rolling",
        "ops": [op.name for op in section.ops],
        "parts": section.calls,
        "saved_bytes": whole
        - sum(section.inner[name] for name in (*rings, *map(newest_name, section.rolled.separate))),
        "extra_macs": 0,
    }


def _fused(plan: Plan) -> list[dict[str, Any]]:
    """Rows on paths whose ops are cut into parts."""
    rows = []
    for choice in plan.tiling.tilings if plan.tiling else ():
        assert choice.tiling is not None
        path = choice.tiling.path
        row: dict[str, Any] = {"kind": path.method, "ops": [op.name for op in path.ops]}
        row |= {"parts": choice.tiling.parts, "saved_bytes": choice.saved, "extra_macs": choice.extra_macs}
        rows.append(row)
    return rows


def _constant_channels(graph: Graph) -> dict[str, Any]:
    """By tensor, channels that never vary and those not computed; the multiply-accumulates that this saves."""
    rows = [(r.tensor, r.constant, r.channels, r.total) for r in graph.removed]
    keys = ("name", "constant", "removed", "channels")
    return {"macs": graph.removed_macs, "tensors": [dict(zip(keys, row, strict=True)) for row in rows]}


def _buffers(plan: Plan) -> list[dict[str, Any]]:
    rows = []
    for b in plan.buffers:
        t = plan.graph.tensors[b.tensor]
        name = scratch_name(b.tensor) if b.scratch else newest_name(b.tensor) if b.newest else b.tensor
        row: dict[str, Any] = {"name": name, "bytes": b.bytes, "memory": b.place.memory, "offset": b.place.offset}
        row |= {"first": b.first, "last": b.last}
        row |= {"scratch_of": b.tensor} if b.scratch else {"dtype": t.dtype, "shape": list(t.shape)}
        row |= {"newest_of": b.tensor} if b.newest else {}
        row |= {"view_of": b.view_of} if b.view_of else {}
        row |= {"overlaps": b.overlaps} if b.overlaps else {}
        row |= {"rows": b.rows} if b.rows else {}
        row |= {"calls": list(b.calls)} if b.calls else {}
        rows.append(row)
    return rows


def _ports(plan: Plan) -> dict[str, Any]:
    """Inputs and outputs, and the number of rows of an output that the application takes row by row."""
    graph, functions, written = plan.graph, access_functions(plan), read_outside(plan.graph)
    sides = {"inputs": graph.ports_in, "outputs": written}
    arrays = dict(graph.arrays)
    ports = {
        side: [_surface(graph.tensors[n], functions[n]) | ({"array": arrays[n]} if n in arrays else {}) for n in names]
        for side, names in sides.items()
    }
    return {**ports, **({"output_rows": rows_of(graph, written[0])} if plan.request.stream_output else {})}


def _surface(t: Tensor, function: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": t.name,
        "function": function,
        "dtype": t.dtype,
        "shape": list(t.shape),
        "bytes": t.bytes,
    }
    if t.quant is not None:
        row |= {"scale": t.quant.scale[0], "zero_point": t.quant.zero_point[0]}
    return row


def _levels(plan: Plan, weights: Weights) -> dict[str, Any]:
    """Memory levels, the steps that run in the first of them, and totals of their cycles and copies."""
    layers = level_steps(plan)
    near = {name for engine in plan.target.engines for name in engine.memories}
    levels = [*plan.target.levels, *(m for m in plan.target.memories if m.name in near and not m.level)]
    heights = Counter(plan.layout.heights)
    heights[plan.weights_memory] += weights.linked_bytes
    moved = [row for row in layers if row["operands"]]
    keys = ("transfers", "bytes", "pieces")
    total = sum(row["cycles"] for row in layers)
    alone = sum(cycles for section in plan.steps if section.moves is not None for cycles in section.moves.whole)
    bound = min(total, alone)  # kernels may be faster on tiles than on whole tensors
    return {
        "modelled": True,
        "method": plan.request.map,
        "levels": [{"name": m.name, "bytes": m.size, "used_bytes": heights[m.name]} for m in levels],
        "cycles": {
            "total": total,
            "compute": sum(row["compute_cycles"] for row in layers),
            "moved": sum(row["dma_cycles"] for row in layers),
            "bound": bound,
            "gap_percent": round(100 * (total / bound - 1), 3) if bound else 0.0,
            "optimal": total <= bound,
        },
        **({"energy_uj": sum(row["energy_uj"] for row in layers)} if all("energy_uj" in r for r in layers) else {}),
        "moved": {key: sum(o[key] for row in moved for o in row["operands"]) for key in keys},
        "activation_bytes": sum(o["bytes"] for row in moved for o in row["operands"] if o["tensor"] != "weights"),
        "layers": layers,
        "residency": [
            {"tensor": b.tensor, "level": b.place.memory, "first": b.first, "last": b.last}
            for b in plan.buffers
            if b.view_of is None
        ],
    }


def level_steps(plan: Plan) -> list[dict[str, Any]]:
    """Rows on the steps of a plan with `--map`; `energy_uj` if the target states energies of all that a step uses."""
    rows = [_level_step(plan, i) for i in range(len(plan.steps))]
    energies = [_step_uj(plan, i, row) for i, row in enumerate(rows)]
    return [row | ({} if uj is None else {"energy_uj": uj}) for row, uj in zip(rows, energies, strict=True)]


def _step_uj(plan: Plan, step: int, row: Mapping[str, Any]) -> float | None:
    """Modelled energy of a step in uJ; None if the target states no energies."""
    from ..plan.dma.levels import hop_pj, power_of  # late: few plans move operands between memory levels

    target, section = plan.target, plan.steps[step]
    engine = next((e for e in target.engines if e.name == row["engine"]), None)
    power = power_of(target, engine, sum(ops.nest(op, plan.graph).mac_count for op in section.ops))
    if power is None:
        return None
    copied = sum(o["bytes"] * hop_pj(target, o["from"], o["to"]) for o in row["operands"])
    return float(power.picojoules(row["compute_cycles"], row["cycles"], copied)) / 1e6


def _level_step(plan: Plan, step: int) -> dict[str, Any]:
    section = plan.steps[step]
    moved = section.moves
    if isinstance(moved, UncopiedOp):
        why, (cycles,) = moved.why or NO_TILE, moved.whole
        figures = {"calls": 1, "compute_cycles": cycles, "dma_cycles": 0, "cycles": cycles}
        return {"node": section.name, "engine": CORE, "why": why, "loops": [], "operands": [], **figures}
    cost, inside = cast("MappedOp | PlannedRun", moved).cycles, list[Copy]()
    if isinstance(moved, TiledOp):
        row = _tiled(plan, cast("MappedOp", moved))
        inside = [c for c in moved.copies if c.into and not c.tensor]
    else:
        row = _run(plan, cast("PlannedRun", moved))
    begun = [[(i, s) for i, s in starts(plan) if s.step == step and s.copy.into == into] for into in (False, True)]
    early = [_fetched(plan, step, some, more) for some, more in zip(begun, ([], inside), strict=True) if some]
    row |= {"node": section.name, "calls": cost.calls, "compute_cycles": cost.compute, "dma_cycles": cost.dma}
    cycles = cost.total + sum(operand["cycles"] for operand in early)
    return row | {"operands": row["operands"] + early, "cycles": cycles}


def _fetched(plan: Plan, step: int, begun: Sequence[tuple[int, Start]], inside: Sequence[Copy]) -> dict[str, Any]:
    """Row on the copies of a step's constants that begin between steps, and on such copies `inside` the step."""
    first, copy = begun[0][0], begun[0][1].copy
    ends = copy.stage or plan.weights_memory, plan.target.levels[0].name
    ends = (plan.weights_memory, copy.stage) if copy.into else ends
    copies, cycles = [*(s.copy for _, s in begun), *inside], sum(s.waited for _, s in begun)
    row = _copied("weights", ends, (0, SLOTS if inside else 1), copies, cycles)
    return row | {"ahead": plan.steps[first].name} if first < step else row


def _copied(
    tensor: str, ends: tuple[str, str], nesting: tuple[int, int], copies: Sequence[Copy], cycles: float
) -> dict[str, Any]:
    """Row on copies of a tensor, or of constants, between two memories. `nesting`: loops around them, and buffers."""
    sizes, pieces = [c.total for c in copies], sum(c.rows * c.planes for c in copies)
    row: dict[str, Any] = {"tensor": tensor, "from": ends[0], "to": ends[1], "pieces": pieces, "cycles": cycles}
    row |= {"tile_bytes": max(sizes, default=0), "transfers": len(sizes), "bytes": sum(sizes)}
    return row | {"depth": nesting[0], "buffers": nesting[1]}


def _run(plan: Plan, run: PlannedRun) -> dict[str, Any]:
    """Row on a run in the first level."""
    near, operands = plan.target.levels[0].name, list[dict[str, Any]]()
    for s, cost in zip(run.streams, run.cycles.operands, strict=True):
        figures, ends = asdict(cost), (plan.places[s.storage].memory, near)[:: 1 if s.fetched else -1]
        operands.append({"tensor": figures.pop("operand"), "from": ends[0], "to": ends[1], **figures})
    why, nodes = "a run by rows, which the DMA feeds and drains", [op.name for op in run.ops]
    row: dict[str, Any] = {"nodes": nodes, "engine": CORE, "why": why, "loops": [], "operands": operands}
    row["near_bytes"] = run.level1_bytes
    return row


def _tiled(plan: Plan, moved: MappedOp) -> dict[str, Any]:
    operands = [_tiles(plan, moved, i) for i, operand in enumerate(moved.operands) if not operand.held]
    through = sorted({c.channel for c in moved.copies if c.tensor and c.into})
    row: dict[str, Any] = {"engine": moved.engine, "why": moved.why or "tiles by DMA", "loops": moved.loops}
    row["operands"] = operands + [_passing(plan, moved, channel) for channel in through]
    row["near_bytes"] = sum(moved.used(r) for r in moved.regions) or moved.level1_bytes
    return row


def _tiles(plan: Plan, moved: MappedOp, number: int) -> dict[str, Any]:
    """Row on the copies of an operand's tiles."""
    o, move = moved.operands[number], moved.mapped.moves[number]
    copies = [c for c in moved.copies if c.channel // 2 == number]
    stage = next((c.stage for c in copies if c.stage), "")
    far = stage or (plan.weights_memory if o.packed else plan.places[plan.rolling.storage[o.name]].memory)
    ends, cycles = (o.space, far) if o.result else (far, o.space), moved.cycles.operands[number].cycles
    return _copied(o.name, ends, (move.depth, move.buffers), copies, cycles)


def _passing(plan: Plan, moved: MappedOp, channel: int) -> dict[str, Any]:
    """Row on an operand's copies between the second level and the third, with the cycles of their DMA unit."""
    from ..plan.dma.levels import channel_to  # late: few plans move operands between memory levels
    from ..plan.hierarchy.nest import copy_cycles

    copies, target = [c for c in moved.copies if c.channel == channel], plan.target
    name, stage, fetch = copies[0].tensor, copies[0].stage, copies[0].fetch
    number = next(i for i, o in enumerate(moved.operands) if o.name == name and o.result != fetch)
    far, move = plan.places[plan.rolling.storage[name]].memory, moved.mapped.moves[number]
    unit = channel_to(target, target.memory_named(stage), target.memory_named(far))
    cycles = sum(copy_cycles(unit, 1, c.total, c.rows * c.planes) for c in copies)
    return _copied(name, (far, stage) if fetch else (stage, far), (move.depth, move.buffers), copies, cycles)


# The trade between memory and time.

SHOWN = 8  # cuts in the words


def trade_words(plan: Plan) -> list[str]:
    """A line for each of at most a few cuts, evenly spaced over the range."""
    points, own = plan.trade_off, plan.point
    step = max(1, -(-(len(points) - 1) // (SHOWN - 1)))
    shown = [p for i, p in enumerate(points) if i % step == 0 or i == len(points) - 1 or p is own]
    lines = [f"  {len(points)} cuts of this order of ops, with estimates:"]
    for p in shown:
        mark = "  <- this plan" if p is own else ""
        more = f"{100 * (p.cost / max(own.cost, 1) - 1):+.1f} %"
        lines.append(
            f"    {p.peak_bytes:>8} B {p.instructions:>12,} instructions {more:>8} time {p.calls:>5} calls{mark}"
        )
    return lines


def trade_rows(plan: Plan) -> list[dict[str, Any]]:
    """Rows on the plan and on other cuts, for the report."""
    return [
        {
            "peak_bytes": p.peak_bytes,
            "estimated_instructions": p.instructions,
            "time": round(p.cost / max(plan.point.cost, 1), 4),
            "calls": p.calls,
            "table_bytes": p.table_bytes,
            "flash_bytes": p.flash_bytes,
            "macs_twice": plan.extra_macs,
            "chosen": p is plan.point,
        }
        for p in plan.trade_off
    ]


# ---- Rows for each op


def layer_rows(program: Program) -> list[dict[str, Any]]:
    """Rows on ops in the order of steps. Constants that ops share count at the first of them.

    Instructions and cycles are estimates; cycles only where the core has a figure, energy where clocks were chosen.
    """
    plan, rows, sizes = program.plan, list[dict[str, Any]](), _constant_bytes(program)
    points = zip(plan.clocks.problem.layers, plan.clocks.points, strict=True) if plan.clocks else ()
    energy = {layer.name: point.energy_uj for layer, point in points}
    for step, section in enumerate(plan.steps):
        costs = list[float]()
        for op, kernel, calls in zip(section.ops, section.kernels(plan.graph), section.calls_of, strict=True):
            touched = plan.graph.operands(op)
            row: dict[str, Any] = {
                "name": op.name,
                "kind": op.kind,
                "step": step,
                "kernel": kernel.variant,
                "calls": calls,
                "macs": ops.nest(op, plan.graph).mac_count,
                "read_bytes": sum(t.bytes for t in touched if not t.constant),
                "written_bytes": plan.graph.result(op).bytes,
                "weights_bytes": sizes[op.outputs[0]],
                "estimated_instructions": round(calls * kernel.estimate),
            }
            costs.append(calls * kernel.cost)
            if (cycles := cycles_of(plan.target, costs[-1])) is not None:
                row["estimated_cycles"] = round(cycles)
            rows.append(row)
        if section.name in energy:  # a step has one clock, so its energy is shared among its ops by their cost
            for row, cost in zip(rows[-len(costs) :], costs, strict=True):
                row["energy_uj"] = energy[section.name] * (cost / sum(costs) if sum(costs) else 1 / len(costs))
    return rows


def totals(rows: list[dict[str, Any]], plan: Plan, weights: Weights) -> dict[str, Any]:
    """Sums of the columns. The weights file also has a header, and padding between constants."""
    keys = ("calls", "macs", "weights_bytes", "estimated_instructions")
    sums = {key: sum(row[key] for row in rows) for key in keys}
    if rows and "estimated_cycles" in rows[0]:
        sums["estimated_cycles"] = sum(row["estimated_cycles"] for row in rows)
        if plan.target.clock_hz:
            sums["estimated_time_us"] = round(sums["estimated_cycles"] / plan.target.clock_hz * 1e6, 3)
    header = HEADER if weights.offsets else 0
    return {**sums, "padding_bytes": weights.linked_bytes - header - sums["weights_bytes"]}


def _constant_bytes(program: Program) -> Counter[str]:
    """By result of an op, bytes of the constants that the op is the first to use."""
    sizes, packed = Counter[str](), set[tuple[str, bytes]]()
    for op, constant in constants_of(program.plan, (use for uses in program.uses for use in uses)):
        key = str(constant.data.dtype), constant.data.tobytes()
        if key not in packed:
            packed.add(key)
            sizes[op.outputs[0]] += constant.data.nbytes
    return sizes


# ---- Which ops run on an engine, and why the others do not

CORE = "cpu"


def engine_rows(program: Program) -> list[dict[str, Any]]:
    """A row for each op in the order of the plan: MACs, the core or engine that computes it, and why no engine does."""
    plan, rows = program.plan, []
    for section, of_step in zip(plan.steps, program.uses, strict=True):
        for op, uses in groupby(of_step, key=lambda use: use.op):
            engine = next((use.kernel.variant for use in uses if engine_call(use.kernel)), CORE)
            macs = ops.nest(op, plan.graph).mac_count
            why = "" if engine != CORE else _why(plan, section, op)
            rows.append({"node": op.name, "kind": op.kind, "macs": macs, "engine": engine, "why": why})
    return rows


def _why(plan: Plan, section: Section, op: Op) -> str:
    if isinstance(section.moves, TiledOp | UncopiedOp) and section.moves.why:
        return section.moves.why
    refused = [(e, refusal(op, plan.graph, e)) for e in plan.target.engines]
    if all(why for _, why in refused):
        return in_one_line(refused)
    if section.rolled is not None:
        return "it runs by rows, whose operands lie in rings"
    if not any(e.called or e.memories for e in plan.target.engines):
        return "the target names no memories of its engine"
    with_levels = all(not e.called for e in plan.target.engines)
    return "engines with scratchpads need --map" if with_levels and not plan.moves else "the core takes fewer cycles"
