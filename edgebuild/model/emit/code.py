"""The model's C: one function for each distinct kernel, and the invoke function, which is the schedule.

The vector of `NAME_selftest()`: inputs that are drawn, and the outputs that the operators' meanings make of them.

Figures of the clocks are modelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import indent
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.artifacts import Artifact
from ...base.templates import render
from ...base.text import identifier
from .. import ops
from ..interface_of import interface_of
from ..ir import Op
from ..kernels import CONDITIONS
from ..ops.base import C_TYPES
from ..plan.search import Plan, form_of
from ..plan.section import scratch_name
from ..surface import interface
from .addresses import (
    access_functions,
    address,
    at_macro,
    comment,
    first_memory,
    label,
    literal,
    newest_constant,
    places,
    scratch_constant,
    shape_text,
    stages,
    transfers,
)
from .program import Program
from .weights_file import arenas, weights_align

if TYPE_CHECKING:
    from ..energy.layer_cost import Selection
    from ..energy.select import ClockSchedule


def header_view(plan: Plan) -> dict[str, Any] | None:
    """View of N_clock.h; None for a plan without clocks."""
    if plan.clocks is None:
        return None
    schedule, selection = plan.clocks, plan.clocks.selection
    return {
        "budgets": budget_views(plan),
        "hse": schedule.hse,
        "hse_hz": schedule.clocks.base_hz,
        "budget": f"{schedule.problem.budget_us / 1000:g}",
        "budget_us": round(schedule.problem.budget_us),
        "time_us": round(selection.time_us),
        "energy_nj": round(selection.energy_uj * 1000),
        "start": selection.start,
        "idle": idling(schedule, f"{plan.name.upper()}_CLOCK_START"),
        "layers": _layers(plan, selection),
    }


def _layers(plan: Plan, selection: Selection) -> list[dict[str, str]]:
    """View of the steps under one budget."""
    return [
        {
            "call": f"{step}, {p.config}, {p.g}, {int(p.lfo)}, {round(p.time_us)}, {round(p.energy_uj * 1000)}",
            "name": comment(section.name),
        }
        for step, (section, p) in enumerate(zip(plan.steps, selection.points, strict=True))
    ]


def budget_views(plan: Plan) -> list[dict[str, Any]]:
    """View of each budget where there are several; else nothing."""
    if plan.clocks is None or not plan.clocks.others:
        return []
    views: list[dict[str, Any]] = []
    for (problem, s), clocks in zip(plan.clocks.budgets, plan.clocks.table, strict=True):
        figures = f"{round(problem.budget_us)}, {s.start}, {round(s.time_us)}, {round(s.energy_uj * 1000)}"
        views.append({
            "ms": f"{problem.budget_us / 1000:g}", "call": f"{len(views)}, {figures}", "layers": _layers(plan, s),
            "idle": idling(plan.clocks, f"EB_CLOCK_{s.start}", s), "clocks": [f"EB_CLOCK_{name}" for name in clocks],
        })  # fmt: skip
    return views


def switch_points(plan: Plan) -> tuple[list[str | None], str | None]:
    """Arguments of N_CLOCK before each step, and after the last: configurations, or numbers of changes for several."""
    if plan.clocks is None:
        return [], None
    if not plan.clocks.others:
        return list(plan.clocks.switch_points), plan.clocks.returns_to
    numbers = {step: str(number) for number, step in enumerate(plan.clocks.changes)}
    return [numbers.get(step) for step in range(len(plan.steps))], numbers.get(len(plan.steps))


def idling(schedule: ClockSchedule, start: str, selection: Selection | None = None) -> str:
    """Say what the application does until the next inference, which begins in the configuration `start`."""
    mode, low = (selection or schedule.selection).mode.name, schedule.clocks.configs[0].name
    modes = {
        "busy": "wait, with the clocks as they are",
        "gated": "Sleep mode (WFI), with the clocks as they are",
        "sleep": f"eb_clock_switch(EB_CLOCK_{low}), then Sleep mode (WFI)",
    }
    return modes.get(mode, f"Stop mode ({mode.removeprefix('stop_').replace('_', ' ')}), then eb_clock_resume({start})")


def energy_words(plan: Plan) -> str:
    """The clocks of the steps, and what they are worth, for a terminal."""
    assert plan.clocks is not None
    schedule, s = plan.clocks, plan.clocks.selection
    spent = f"{s.time_us / 1000:.2f} ms at work, {s.idle_us / 1000:.2f} ms idle ({s.mode.name})"
    energy = f"{s.energy_uj / 1000:.3f} mJ in {schedule.problem.budget_us / 1000:g} ms"
    lines = [
        f"{plan.graph.file} on {plan.target.name}, HSE {schedule.hse}: everything here is modelled",
        f"  currents: {schedule.sources['currents']}; stalls: {schedule.sources['stalls']}",
        f"  {energy}: {spent}; no plan takes less than {s.bound_uj / 1000:.3f} mJ",
        f"{'step':>6} {'config':>9} {'g':>3} {'gather':>7} {'us':>9} {'uJ':>9}  layer",
    ]
    for step, (section, p) in enumerate(zip(plan.steps, schedule.points, strict=True)):
        gather = ("HSE" if p.lfo else "as is") if p.g else "-"
        numbers = f"{step:>6} {p.config:>9} {p.g or '-':>3} {gather:>7} {p.time_us:>9.1f} {p.energy_uj:>9.2f}"
        lines.append(f"{numbers}  {comment(section.name)}")
    for start, end in s.switched:
        cost = schedule.problem.switch(start, end)
        lines.append(f"  switch {start} -> {end}: {cost.time_us:.0f} us, {cost.energy_uj:.1f} uJ")
    for problem, other in schedule.others:
        spent = f"{other.time_us / 1000:.2f} ms at work, {other.mode.name}"
        clocks = ", ".join(dict.fromkeys(p.config for p in other.points))
        lines.append(f"  {other.energy_uj / 1000:.3f} mJ in {problem.budget_us / 1000:g} ms: {spent}, {clocks}")
    lines.append(
        "saved at equal latency, against the fastest clock and then idling busily / gated / in the best stop mode:"
    )
    for c in schedule.comparisons:
        saved = " / ".join(f"{c.saving(b):.1%}" for b in c.baselines)
        parts = ", ".join(f"{name} {share:.1%}" for name, share in c.shares.items())
        lines.append(f"  slack {c.slack:.0%} ({c.budget_us / 1000:.1f} ms): {saved}; of the first: {parts}")
    return "\n".join(lines) + "\n"


def self_test(plan: Plan) -> dict[str, list[dict[str, Any]]]:
    """Function, symbol and bytes of each input and output. States have their first values."""
    graph, rng, functions = plan.graph, np.random.default_rng(1), access_functions(plan)
    inputs = graph.first_states
    for t in map(graph.tensors.__getitem__, graph.ports_in):
        low, high = (0, 2) if t.dtype == "bool" else (np.iinfo(t.dtype).min, int(np.iinfo(t.dtype).max) + 1)
        inputs[t.name] = rng.integers(low, high, t.shape).astype(t.dtype)
    values = ops.run(graph, *(inputs[name] for name in graph.inputs))

    def port(name: str, symbol: str) -> dict[str, Any]:
        data = np.ascontiguousarray(values[name]).tobytes()
        return {"function": functions[name], "symbol": f"{plan.name}_{symbol}", "data": [*data]}

    return {
        "inputs": [port(name, f"inputs_{i}") for i, name in enumerate(graph.ports_in)],
        "outputs": [port(name, f"outputs_{i}") for i, name in enumerate(graph.ports_out)],
    }


def _ports(plan: Plan, names: Iterable[str]) -> list[dict[str, str]]:
    """Inputs or outputs: the function that gives the address of each, its element, and where it lies."""
    functions, tensors = access_functions(plan), [plan.graph.tensors[n] for n in names]
    return [{"function": functions[t.name], "type": C_TYPES[t.dtype], "at": str(address(plan, t))} for t in tensors]


def _frame(plan: Plan) -> dict[str, Any]:
    """Values that both header and source show."""
    caller = plan.request.arena == "caller"
    return {
        "name": plan.name,
        "prefix": plan.name.upper(),
        "file": plan.file,
        "target": plan.target.name,
        "caller": caller,
        "shared": plan.request.arena == "shared",
        "argument": "void *arena" if caller else "void",
        "inputs": _ports(plan, plan.graph.ports_in),
        "outputs": _ports(plan, () if plan.request.stream_output else plan.graph.ports_out),
        "clocks": header_view(plan),
        "budgets": budget_views(plan),
        "states": _states(plan),
        "stream": plan.rolling.streamed is not None,
        "link": plan.graph.link,
    }


def _states(plan: Plan) -> list[dict[str, Any]]:
    """Every tensor that lasts: its array, where it lies during an inference, and its first values."""
    graph, rows = plan.graph, []
    for i, state in enumerate(graph.states):
        read, written = graph.tensors[graph.inputs[state.read]], graph.tensors[graph.outputs[state.write]]
        start = [literal(v) for v in state.start.ravel().tolist()] if state.start is not None else []
        row: dict[str, Any] = {"symbol": f"{plan.name}_state_{i}", "type": C_TYPES[read.dtype], "size": read.elements}
        row |= {"bytes": read.bytes, "label": comment(read.name), "start": start}
        rows.append({**row, "read": str(address(plan, read)), "written": str(address(plan, written))})
    return rows


def header(p: Program) -> str:
    """The header, which follows from the interface alone."""
    plan = p.plan
    return interface.header(interface_of(plan.graph, plan.request, plan.target.name))


def arena_header(plan: Plan) -> str:
    return interface.arena_header(plan.name, plan.file, plan.target.name, plan.arena_bytes)


def source(p: Program) -> str:
    plan = p.plan
    arrays = arenas(plan) or {first_memory(plan): ("arena", plan.arena_bytes)}
    macros = [(at_macro(plan, memory), symbol, size) for memory, (symbol, size) in arrays.items()]
    ahead, before = transfers(plan, p.weights)
    switches, after = switch_points(plan)
    schedule = _schedule(p, before, switches)
    return render(
        "model.c.j2",
        functions=p.functions,
        steps=p.steps,
        entry=_entry(plan),
        schedule=schedule,
        stepwise=plan.request.stepwise,
        vectors=self_test(plan) if plan.request.selftest else None,
        sliced=any(step.sliced for step in p.steps),
        definitions=p.definitions,
        dma=bool(plan.moves),
        ahead=ahead,
        guard=guard(plan),
        exact=_has_floats(plan),
        above=[helper.text for helper in p.helpers if not helper.head],
        below=[helper for helper in p.helpers if helper.head],
        constants=p.constants,
        near=tuple(places(plan)),
        arenas=macros,
        offsets=_offsets(plan, {memory: size for memory, (_, size) in arrays.items()}),
        engines=p.engines,
        uses_memcpy=bool(plan.rolling.streamed or plan.graph.states or plan.request.selftest)
        or any("memcpy" in f.uses for f in p.functions)
        or any(section.rolled and section.rolled.separate for section in plan.steps),
        uses_weights=bool(p.weights.offsets),
        set_weights=plan.request.set_weights,
        weights_align=weights_align(plan),
        weights_bytes=len(p.weights.blob),
        returns_to=after,
        peak=plan.schedule.profile.index(plan.schedule.peak) if plan.steps else 0,
        **_frame(plan),
    )


def _entry(plan: Plan) -> str:
    """The head of the function that is the schedule."""
    if plan.rolling.streamed is not None:
        item = C_TYPES[plan.graph.tensors[plan.graph.inputs[0]].dtype]
        return f"int32_t {plan.name}_push_rows(const {item} *rows, int32_t count)"
    argument, link = "void *arena" if plan.request.arena == "caller" else "void", plan.graph.link
    return f"int {link.entry}({argument})" if link else f"void {plan.name}_invoke({argument})"


def _schedule(p: Program, before: Sequence[Sequence[str]], switches: Sequence[str | None]) -> list[list[str]]:
    """Statements of each step with those before it, and of what stands behind the last."""
    margin, steps = "        " if p.plan.request.stepwise else "    ", list[list[str]]()
    for number, step in enumerate(p.steps):
        lines = [f"{margin}EB_STEP();"] if step.comment else []
        if step.sliced:
            lines = [f"{margin}if ({p.plan.name}_slice == 0) {{", f"{margin}    EB_STEP();", f"{margin}}}"]
        if switches and switches[number]:
            lines.append(f"{margin}{p.plan.name.upper()}_CLOCK({switches[number]});")
        steps.append([*lines, *(indent(line, margin[4:]) for line in before[number]), step.text(number, margin)])
    return [*steps, [*before[len(p.steps)]]]


def guard(plan: Plan) -> tuple[str, str] | None:
    """The condition under which the compiler's core is another one, in the preprocessor's words, and what to say."""
    core = form_of(plan.target, plan.request).core - (set() if _has_floats(plan) else {"fpu"})
    flags = " ".join(flag for flag in plan.target.toolchain.cflags if flag.startswith("-m"))
    text = f"{plan.name}.c is for {plan.target.name}; compile it with {flags}, or generate it for this core"
    wanted = dict.fromkeys(condition for word, condition in CONDITIONS.items() if word in core)
    return (" || ".join(wanted), text) if wanted else None


def _has_floats(plan: Plan) -> bool:
    """Whether the C computes with floating-point values: compilers may be told to compute something else."""
    graph = plan.graph
    ports = (graph.tensors[name] for op in graph.ops for name in (*op.inputs, *op.outputs))
    return any(t.dtype == "float32" for t in ports)


def _offsets(plan: Plan, sizes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Rows of the table of offsets: one for each tensor that is not a view, and for each scratch buffer."""
    names, rows = plan.offset_names, list[dict[str, Any]]()
    for b in plan.buffers:
        if b.newest:
            note = f"the newest row of that{_calls(plan, plan.steps[b.first].ops, *b.calls) if b.calls else ''}"
            row = {"name": newest_constant(plan, b.tensor), "offset": b.place.offset, "bytes": b.bytes, "note": note}
            rows.append({**row, "arena": sizes[b.place.memory]})
        elif b.view_of is None and not b.scratch:
            kept = f", ring of {b.rows}" if b.rows else ""
            when = f"steps {b.first} to {b.last}" if b.first < b.last else f"step {b.first}"
            if b.calls is not None and b.first == b.last:
                when += _calls(plan, plan.steps[b.first].ops, *b.calls)
            note = f"{shape_text(plan.graph.tensors[b.tensor])}{kept}, {when}: {comment(b.tensor)}"
            note += f", over {names[b.overlaps]}" if b.overlaps else ""
            rows.append({"name": names[b.tensor], "offset": b.place.offset, "bytes": b.bytes, "note": note})
            rows[-1]["arena"] = sizes[b.place.memory]
    for step, section in enumerate(plan.steps):
        for op in section.ops:
            scratch, y = scratch_name(op.outputs[0]), plan.graph.result(op)
            if scratch in plan.places and scratch in section.inner:
                place, size = plan.places[scratch], section.inner[scratch]
                note = f"scratch of step {step}: {comment(op.name)}"
                row = {"name": scratch_constant(plan, y), "offset": place.offset, "bytes": size, "note": note}
                rows.append({**row, "arena": sizes[place.memory]})
    for named, memory, size in stages(plan).values():
        row = {"name": named.name, "offset": named.offset, "bytes": size, "note": named.note}
        rows.append({**row, "arena": sizes[memory]})
    return rows


def _calls(plan: Plan, ops: Sequence[Op], first: int, last: int) -> str:
    """During whose calls a ring is in use, if not during all: op `first` to op `last` or, behind them, the caller."""
    if first == 0 and last + 1 >= len(ops):
        return ""
    who = [label(plan, ops[i].outputs[0]) if i < len(ops) else "the caller's rows" for i in (first, last)]
    return ", {} to {}".format(*who)


def clock_header(plan: Plan) -> str:
    return render("headers.h:clock", **_frame(plan))


# N_cluster.h: facts that all devices of a cluster have in common.


def cluster_header(
    name: str,
    file: str,
    plan_hash: int,
    source: int,
    devices: Sequence[tuple[str, str]],
    messages: Sequence[tuple[int, int, int, int, str]],
) -> Artifact:
    """`devices`: names, and what they do. `plan_hash`: 32 bits. `messages`: number, sender, receiver, bytes, tensor."""
    ids = [identifier(n).upper() for n, _ in devices]
    ids = [f"{own}_{k}" if ids.count(own) > 1 else own for k, own in enumerate(ids)]
    rows_of = zip(ids, devices, strict=True)
    shown = [{"id": own, "name": comment(n), "does": comment(does)} for own, (n, does) in rows_of]
    text = render("headers.h:cluster", name=name, prefix=name.upper(), file=file, hash=plan_hash,
                  source=source, devices=shown, messages=messages)  # fmt: skip
    return Artifact(f"{name}_cluster.h", text.encode())
