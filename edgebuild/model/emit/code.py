"""The model's C: one function for each distinct kernel, its calls, and the invoke function, which is the schedule.

Also the vector of `NAME_selftest()`: random inputs, and the outputs that the ops' numpy references compute from them.

Clock figures are modelled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from textwrap import indent
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...base.artifacts import Artifact
from ...base.templates import fitted, render, times
from ...base.text import identifier, wrapped
from .. import kernels, ops, surface
from ..interface_of import interface_of
from ..ir import Op, Tensor
from ..kernels import CONDITIONS, SHARED_FROM, Helper, printed
from ..kernels.offload import engine_call
from ..ops.base import C_TYPES, Constant, FourBytes, Kernel
from ..plan.printed import Moves, RolledCalls, Share, StreamedRun, TiledOp
from ..plan.search import Plan, form_of
from ..plan.section import Section, scratch_name
from . import addresses
from .addresses import (
    LARGEST,
    MATHS,
    access_functions,
    address,
    at_macro,
    comment,
    first_memory,
    label,
    literal,
    newest_constant,
    places,
    scalar,
    scratch_constant,
    shape_text,
    stages,
    transfers,
)
from .call_loops import Arg, Call, Letter, Loop, Step, looped, shared
from .runs import rolled_step, stream_tables, streamed_step, tile_tables, tiled_step
from .weights_file import ALIGN, Weights, arenas, pack, weights_align

if TYPE_CHECKING:
    from ..energy.layer_cost import Selection
    from ..energy.select import ClockSchedule
    from ..plan.dma.tiles import MappedOp


@dataclass(frozen=True)
class Use:
    """An op's kernel at a step of the plan. `rolled`: the run that it is part of."""

    step: int
    op: Op
    kernel: Kernel
    rolled: RolledCalls | None
    run: StreamedRun | None = None  # set for a run in the first memory level
    share: Share | None = None  # the part of a row that the kernel computes


@dataclass(frozen=True)
class Function:
    """A C function and the ops that call it."""

    name: str
    prototype: str
    text: str
    uses: frozenset[str]  # names of helpers that the text uses, and memcpy
    users: tuple[str, ...]  # a comment line for each op


@dataclass(frozen=True)
class Program:
    """A plan in terms of C. `uses`: kernels by step, before they are merged into shared functions."""

    plan: Plan
    uses: tuple[tuple[Use, ...], ...]
    weights: Weights
    constants: tuple[addresses.Named, ...]  # places in the weights
    functions: tuple[Function, ...]
    steps: tuple[Step, ...]
    definitions: tuple[str, ...]  # C of the functions of steps, and their common code
    helpers: tuple[Helper, ...]
    engines: tuple[tuple[str, str], ...]  # engines' functions that kernels call, and their patterns


def program(plan: Plan) -> Program:
    """The plan as C: names are chosen, equal kernels shared, constants packed, calls printed."""
    by_step = tuple(tuple(kernel_uses(plan, step, section)) for step, section in enumerate(plan.steps))
    uses = _shared(plan, [use for some in by_step for use in some])
    align = max(ALIGN, plan.target.dma_align if plan.moves else 1)
    weights = pack((constant for _, constant in constants_of(plan, uses)), align)
    names = _names(plan, uses)
    functions, sharing = [], defaultdict[str, list[Use]](list)
    for use, name in zip(uses, names, strict=True):
        sharing[name].append(use)
    for name, sharers in sharing.items():
        text, used = _function(plan, sharers[0], name)
        used = used.union(*map(_limits, sharers))
        users = tuple(_user(plan, use) for use in sharers)
        words = [kind + parameter for kind, parameter in _parameters(plan, sharers[0])]
        prototype = wrapped(f"static {_returns(sharers[0])} {name}(", words, ");")
        functions.append(Function(name, prototype, text, used, users))
    steps = _steps(plan, uses, names, weights)
    constants = _named(plan, uses, weights, {arg.base for step in steps for call in step.calls for arg in call.args})
    helpers = kernels.used_helpers((name for f in functions for name in f.uses), plan.graph.arithmetic)
    engines = sorted({call for use in uses if (call := engine_call(use.kernel))})
    definitions: tuple[str, ...] = ()  # each kind after its common code: rolled runs, tiles, streamed runs
    for kind, tables in (("", None), ("tiles", tile_tables), ("streams", stream_tables)):
        texts = tuple(step.definition for step in steps if step.function and step.tables == kind)
        definitions += (tables(plan), *texts) if tables and texts else texts
    return Program(plan, by_step, weights, constants, tuple(functions), steps, definitions, helpers, tuple(engines))


def _steps(plan: Plan, uses: Sequence[Use], names: Sequence[str], weights: Weights) -> tuple[Step, ...]:
    steps: list[Call | Loop | Step] = []
    of_step: list[list[tuple[Use, str]]] = [[] for _ in plan.steps]
    for use, name in zip(uses, names, strict=True):
        of_step[use.step].append((use, name))
    for step, (section, used) in enumerate(zip(plan.steps, of_step, strict=True)):
        moved = section.moves
        if isinstance(moved, StreamedRun):
            rows = [[_call(plan, use, n, weights) for use, n in used if use.op is op] for op in moved.ops]
            steps.append(streamed_step(plan, step, moved, rows))
        elif isinstance(moved, TiledOp):
            named = [(use.kernel, name) for use, name in used]
            steps.append(tiled_step(plan, step, cast("MappedOp", moved), named, weights))
        else:
            calls = [_call(plan, use, name, weights) for use, name in used]
            steps.append(rolled_step(plan, step, section.rolled, calls) if section.rolled else calls[0])
    loops = plan.tiling is not None and plan.clocks is None and not plan.request.stepwise
    steps = looped(steps) if loops else steps
    single = [Step(s.comment, s.text, (s,)) if isinstance(s, Call) else s for s in steps]
    return tuple(Step("", s.text, s.calls) if isinstance(s, Loop) else s for s in single)


def _named(plan: Plan, uses: Iterable[Use], weights: Weights, used: Container[str]) -> tuple[addresses.Named, ...]:
    """The named places in the weights that calls use, and the blocks that are fetched."""
    offsets = []
    for use in uses:
        for c in use.kernel.constants:
            shape = "x".join(map(str, c.data.shape)) or "1"
            note = f"{shape} {c.data.dtype}{': ' if c.note else ''}{c.note}"
            if (name := _constant_name(plan, use, c)) in used:
                offsets.append(addresses.Named(name, weights.offset(c), note))
    return (*offsets, *addresses.blocks(plan, weights).values())


def _constant_name(plan: Plan, use: Use, constant: Constant) -> str:
    return f"{plan.offset_names[use.op.outputs[0]]}_{constant.name.upper()}"


def constants_of(plan: Plan, uses: Iterable[Use]) -> Iterator[tuple[Op, Constant]]:
    """All constants in order, each with its op; those of moved ops in the blocks in which they are fetched."""
    for use in uses:
        section = plan.steps[use.step]
        if isinstance(moved := section.moves, Moves):
            blocks = addresses.fetched(plan, use.step, moved)
            is_each = isinstance(moved, StreamedRun) and len(blocks) == len(moved.ops)
            owners = moved.ops if is_each else section.ops[:1] * len(blocks)
            yield from ((op, b) for op, b in zip(owners, blocks, strict=True) if b.data.nbytes)
        else:
            yield from ((use.op, constant) for constant in use.kernel.constants)


def kernel_uses(plan: Plan, step: int, section: Section) -> list[Use]:
    """The kernels of a step in the order of its ops, each for an op or a part of it."""
    moved = section.moves
    if isinstance(moved, StreamedRun):
        op_parts = zip(moved.ops, moved.parts, strict=True)
        return [Use(step, op, share.kernel, moved.rolled, moved, share) for op, parts in op_parts for share in parts]
    if isinstance(moved, TiledOp):
        return [Use(step, moved.op, kernel, None) for kernel in moved.kernels]
    formed = zip(section.ops, section.kernels(plan.graph), strict=True)
    return [Use(step, op, kernel, section.rolled) for op, kernel in formed]


def _shared(plan: Plan, uses: list[Use]) -> list[Use]:
    """The uses, with kernels merged into shared C functions as far as `optimize` or `--flash` asks for it."""
    kinds = [tuple(_parameters(plan, use)) for use in uses]
    merged = shared(
        [use.kernel for use in uses],
        kinds,
        lambda kernel: _printed(plan, uses[0].op, kernel, "")[0],
        SHARED_FROM[plan.form.wish.optimize],
    )
    return [replace(use, kernel=kernel) for use, kernel in zip(uses, merged, strict=True)]


def _activations(plan: Plan, op: Op) -> list[Tensor]:
    return [plan.graph.tensors[n] for n in op.inputs if not plan.graph.tensors[n].constant]


def _names(plan: Plan, uses: Iterable[Use]) -> list[str]:
    """A C name for each kernel; equal kernels share one, different kernels never do."""
    by_identity: dict[object, str] = {}
    names = []
    for use in uses:
        types = tuple(kind for kind, _ in _parameters(plan, use))
        shape, scalars = tuple(sorted(use.kernel.shape.items())), tuple(use.kernel.scalars)
        key = use.kernel.template, shape, types, scalars
        if key not in by_identity:
            stem = use.kernel.stem + ("_row" if use.rolled and not use.kernel.placed else "")
            stem += "_values" if stem in MATHS else ""
            count = sum(name == stem or name.startswith(f"{stem}_v") for name in by_identity.values())
            by_identity[key] = f"{stem}_v{count + 1}" if count else stem
        names.append(by_identity[key])
    return names


def _parameters(plan: Plan, use: Use) -> list[tuple[str, str]]:
    """C type and name of each parameter, in the order that `Kernel` documents."""
    kernel, read = use.kernel, _activations(plan, use.op)
    single = len(read) + sum(c.name.startswith("x") for c in kernel.constants) == 1
    names = ["x"][: len(read)] if single else [f"x{i}" for i in range(len(read))]
    y = plan.graph.result(use.op)
    parameters = [(f"const {C_TYPES[t.dtype]} *", name) for t, name in zip(read, names, strict=True)]
    parameters.append((f"{C_TYPES[y.dtype]} *", "y"))
    parameters += [("int32_t ", "row")] if use.rolled and (kernel.counted or not kernel.placed) else []
    parameters += [(parameters[0][0], "newest"), ("int32_t ", "kept")] if _finds_newest(use) else []
    parameters += [(f"const {C_TYPES[str(c.data.dtype)]} *", c.name) for c in kernel.constants]
    parameters += [("float " if isinstance(v, float) else "int32_t ", n) for n, v in kernel.scalars.items()]
    return [*parameters, ("int8_t *", "scratch")] if kernel.scratch else parameters


def _finds_newest(use: Use) -> bool:
    """Whether the kernel itself selects the newest row of its operand."""
    return use.rolled is not None and not use.kernel.placed and use.kernel.shape.get("separate") is True


def _function(plan: Plan, use: Use, name: str) -> tuple[str, frozenset[str]]:
    """The function's definition and the names of helpers that it uses."""
    words = [kind + parameter for kind, parameter in _parameters(plan, use)]
    once = ["EB_ONCE"] if any(isinstance(v, Letter) for v in use.kernel.shape.values()) else []
    head = " ".join([*once, f"static {_returns(use)} {name}("])
    signature = wrapped(head, words, ")")
    text, used = _printed(plan, use.op, use.kernel, signature)
    before, after = text.split(f"{signature}\n{{\n")  # the fence tells compilers that the function writes: EB_STEP
    return fitted(f"{before}{signature}\n{{\n    EB_STEP();\n{after}"), used.union(once)


def _limits(use: Use) -> set[str]:
    """Names of the largest floats among the arguments of a call; another call of the function may have others."""
    return {scalar(v).removeprefix("-") for v in use.kernel.scalars.values()} & set(LARGEST.values())


def _returns(use: Use) -> str:
    return "int" if use.kernel.fails else "void"


def _printed(plan: Plan, op: Op, kernel: Kernel, signature: str) -> tuple[str, frozenset[str]]:
    """A kernel's template as C, and the names in it that are defined elsewhere."""
    read, y = _activations(plan, op), plan.graph.result(op)
    item = C_TYPES[(*read, *plan.graph.operands(op), y)[0].dtype]
    return printed(kernel, signature, item, C_TYPES[y.dtype], "float" if y.dtype == "float32" else "int32_t")


def _user(plan: Plan, use: Use) -> str:
    """The comment on an op that calls a kernel: name, shapes, step and lifetime of its result."""
    y = plan.results[use.op.outputs[0]]
    shapes = ", ".join(map(shape_text, _activations(plan, use.op))), shape_text(plan.graph.result(use.op))
    kept = f"ring of {y.rows} rows" if y.rows > 1 else "one row kept" if y.rows else f"result lives to step {y.last}"
    return f"{comment(use.op.name)}: {shapes[0]} -> {shapes[1]}, step {use.step}, {kept}"


def _call(plan: Plan, use: Use, name: str, weights: Weights) -> Call:
    kernel, y = use.kernel, plan.graph.result(use.op)
    sums = plan.rolling.modes[y.name] == "reduce"
    placed = [*(_activations(plan, use.op) if kernel.placed else []), *([] if sums else [y])]
    at_row = {t.name: addresses.row_offset(plan, use.rolled, t, sums) for t in placed} if use.rolled else {}
    where = partial(addresses.level1_address, plan, use.step, use.run) if use.run else partial(addresses.address, plan)
    places = [
        where(t, at_row.get(t.name, "") + _columns(use.share, t, t is y)) for t in (*_activations(plan, use.op), y)
    ]
    places = (
        addresses.with_separate_rows(plan, use.rolled, kernel, (*_activations(plan, use.op), y), places)
        if use.rolled
        else places
    )
    places += [Arg("row")] if use.rolled and (kernel.counted or not kernel.placed) else []
    if _finds_newest(use):  # the place of the newest row, and how many rows are in the ring
        x = plan.graph.tensors[plan.rolling.storage[_activations(plan, use.op)[0].name]]
        places += [Arg(addresses.newest(plan, x)), Arg(f"rows[{addresses.kept(plan, x.name)}]")]
    constants = _near_constants(plan, use) or [
        Arg(f"WEIGHTS({C_TYPES[str(c.data.dtype)]}, {{}})", 0, _constant_name(plan, use, c), weights.offset(c))
        for c in kernel.constants
    ]
    scalars = [
        Arg(f"/* {n} */ {scalar(v)}")
        if isinstance(v, float | FourBytes) or v <= -(2**31)
        else Arg(f"/* {n} */ {{}}", v)
        for n, v in kernel.scalars.items()
    ]
    groups = [places, *([c] for c in constants), scalars]
    if kernel.scratch and use.run:
        each = use.run.scratch_each[use.run.ops.index(use.op)]
        several = use.run.together * use.run.shares > 1 and plan.rolling.modes[y.name] != "reduce"
        core = f" + core * {each}" if several else ""
        at = addresses.run_places(plan, use.step, use.run)[y.name, addresses.SCRATCH]
        groups.append([Arg(f"{addresses.level1_macro(plan)}(int8_t, {{}}{core})", 0, at.name, at.offset)])
    elif kernel.scratch:
        place = plan.places[scratch_name(y.name)]
        macro = at_macro(plan, place.memory)
        groups.append([Arg(f"{macro}(int8_t, {{}})", 0, scratch_constant(plan, y), place.offset)])
    live = "" if use.rolled else f"; {plan.schedule.profile[use.step]} B live"
    called = tuple(tuple(group) for group in groups if group)
    return Call(f"{use.op.kind} {comment(use.op.name)}{live}", name, called, kernel.fails)


def _columns(share: Share | None, t: Tensor, result: bool) -> str:
    """C for the offset of a part of a row in a tensor, from the begin of the row."""
    if share is None or not share.width:
        return ""
    step, before = (share.width, 0) if result else (share.step, share.before)
    channels = t.shape[-1]
    text = f" + {times('part', step * channels)}" if step and share.past > 1 else ""
    return text + (f" - {before * channels}" if before else "")


def _near_constants(plan: Plan, use: Use) -> list[Arg]:
    """Arguments for the constants of an op of a run in the first level."""
    if use.run is None:
        return []
    offsets, y = addresses.run_places(plan, use.step, use.run), use.op.outputs[0]
    number = use.run.ops.index(use.op)
    op_places = zip(use.run.parts[number], use.run.constants[number], strict=True)
    places = next(at for share, at in op_places if share is use.share)
    named = [(c, offsets[y, addresses.constant_key(c, at)]) for c, at in zip(use.kernel.constants, places, strict=True)]
    pairs = [(C_TYPES[str(c.data.dtype)], at) for c, at in named]
    return [Arg(f"{addresses.level1_macro(plan)}({kind}, {{}})", 0, at.name, at.offset) for kind, at in pairs]


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
    """View of each budget if there are several; else an empty list."""
    if plan.clocks is None or not plan.clocks.other_budgets:
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
    """Arguments of N_CLOCK before each step, and after the last: configurations, or change numbers if budgets vary."""
    if (clocks := plan.clocks) is None:
        return [], None
    words = {step: str(n) if clocks.other_budgets else clocks.table[0][n] for n, step in enumerate(clocks.changes)}
    return [words.get(step) for step in range(len(plan.steps))], words.get(len(plan.steps))


def idling(schedule: ClockSchedule, start: str, selection: Selection | None = None) -> str:
    """Describe what the application does until the next inference, which begins in the configuration `start`."""
    mode, low = (selection or schedule.selection).mode.name, schedule.clocks.configs[0].name
    modes = {
        "busy": "wait, with the clocks as they are",
        "gated": "Sleep mode (WFI), with the clocks as they are",
        "sleep": f"eb_clock_switch(EB_CLOCK_{low}), then Sleep mode (WFI)",
    }
    return modes.get(mode, f"Stop mode ({mode.removeprefix('stop_').replace('_', ' ')}), then eb_clock_resume({start})")


def energy_words(plan: Plan) -> str:
    """The clocks of the steps and the energy that they save, for a terminal."""
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
    for problem, other in schedule.other_budgets:
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
    """Function, symbol and bytes of each input and output for the self-test. States have their first values."""
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
    """Views of inputs or outputs: the function that returns the address of each, its C type, and its address."""
    functions, tensors = access_functions(plan), [plan.graph.tensors[n] for n in names]
    return [{"function": functions[t.name], "type": C_TYPES[t.dtype], "at": str(address(plan, t))} for t in tensors]


def _frame(plan: Plan) -> dict[str, Any]:
    """Template values that header and source share."""
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
    """Views of the states: array, addresses during an inference, and first values."""
    graph, rows = plan.graph, []
    for i, state in enumerate(graph.states):
        read, written = graph.tensors[graph.inputs[state.read]], graph.tensors[graph.outputs[state.write]]
        start = [literal(v) for v in state.start.ravel().tolist()] if state.start is not None else []
        row: dict[str, Any] = {"symbol": f"{plan.name}_state_{i}", "type": C_TYPES[read.dtype], "size": read.elements}
        row |= {"bytes": read.bytes, "label": comment(read.name), "start": start}
        rows.append({**row, "read": str(address(plan, read)), "written": str(address(plan, written))})
    return rows


def header(p: Program) -> str:
    """The header, which depends on the interface alone."""
    plan = p.plan
    return surface.header(interface_of(plan.graph, plan.request, plan.target.name))


def arena_header(plan: Plan) -> str:
    return surface.arena_header(plan.name, plan.file, plan.target.name, plan.arena_bytes)


def source(p: Program) -> str:
    plan = p.plan
    is_callers = plan.request.arena == "caller"
    arrays = {first_memory(plan): ("arena", plan.arena_bytes)} if is_callers else arenas(plan)
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
        arrays=bool(plan.graph.arrays),
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
    """The head of the function that executes the schedule."""
    if plan.rolling.streamed is not None:
        item = C_TYPES[plan.graph.tensors[plan.graph.inputs[0]].dtype]
        return f"int32_t {plan.name}_push_rows(const {item} *rows, int32_t count)"
    argument, link = "void *arena" if plan.request.arena == "caller" else "void", plan.graph.link
    return f"int {link.entry}({argument})" if link else f"void {plan.name}_invoke({argument})"


def _schedule(p: Program, before: Sequence[Sequence[str]], switches: Sequence[str | None]) -> list[list[str]]:
    """Statements of each step, with those before it; last, the statements after the last step."""
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
    """The preprocessor condition that the compiler's core is another one, and the error text; None: no check."""
    core = form_of(plan.target, plan.request).core - (set() if _has_floats(plan) else {"fpu"})
    flags = " ".join(flag for flag in plan.target.toolchain.cflags if flag.startswith("-m"))
    text = f"{plan.name}.c is for {plan.target.name}; compile it with {flags}, or generate it for this core"
    wanted = dict.fromkeys(condition for word, condition in CONDITIONS.items() if word in core)
    return (" || ".join(wanted), text) if wanted else None


def _has_floats(plan: Plan) -> bool:
    """Whether the C computes with floats, which compilers' options may make inexact."""
    graph = plan.graph
    ports = (graph.tensors[name] for op in graph.ops for name in (*op.inputs, *op.outputs))
    return any(t.dtype == "float32" for t in ports)


def _offsets(plan: Plan, sizes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Rows of the C table of offsets: one for each tensor that is not a view, and for each scratch buffer."""
    names, rows = plan.offset_names, list[dict[str, Any]]()
    for b in plan.buffers:
        if plan.rolling.storage.get(b.tensor) in plan.rolling.arrays and not b.scratch:
            continue
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
    """Words for the calls that use a ring, from op `first` to op `last` (past the ops: the caller); "" if all do."""
    if first == 0 and last + 1 >= len(ops):
        return ""
    who = [label(plan, ops[i].outputs[0]) if i < len(ops) else "the caller's rows" for i in (first, last)]
    return ", {} to {}".format(*who)


def clock_header(plan: Plan) -> str:
    return render("headers.h:clock", **_frame(plan))


# N_cluster.h: facts that all devices of a cluster share.


def cluster_header(
    name: str,
    file: str,
    plan_hash: int,
    source: int,
    devices: Sequence[tuple[str, str]],
    messages: Sequence[tuple[int, int, int, int, str]],
) -> Artifact:
    """`devices`: names and roles. `plan_hash`: 32 bits. `messages`: number, sender, receiver, bytes, tensor."""
    ids = [identifier(n).upper() for n, _ in devices]
    ids = [f"{own}_{k}" if ids.count(own) > 1 else own for k, own in enumerate(ids)]
    rows_of = zip(ids, devices, strict=True)
    shown = [{"id": own, "name": comment(n), "does": comment(does)} for own, (n, does) in rows_of]
    text = render("headers.h:cluster", name=name, prefix=name.upper(), file=file, hash=plan_hash,
                  source=source, devices=shown, messages=messages)  # fmt: skip
    return Artifact(f"{name}_cluster.h", text.encode())
