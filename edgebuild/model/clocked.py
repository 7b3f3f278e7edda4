"""Least energy under a time budget: a plan whose steps each have a clock configuration and a granularity.

The model is planned first as for any objective. The costs of its steps, in every configuration and decoupled or not,
make a selection problem. The chosen granularities need buffers, so the model is planned again with these. A buffer that
does not fit, or moves any tensor into another memory so that costs change, is not offered to the selection.
All times and energies are modelled (energy/layer_cost.py has the model and its assumptions).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, prod

from ..base.errors import EdgebuildError, fail
from ..base.request import ModelRequest
from ..base.target import Target
from ..clock.configs import PowerModel, clock_plan
from ..clock.emit import target_tree
from ..clock.tree import Timing
from . import ops
from .energy import layer_cost
from .energy.select import SLACKS, ClockSchedule, StepForms, compare, select_all
from .ir import Graph, Op
from .kernels import kernel_of
from .ops.base import Kernel
from .plan.choose import plan
from .plan.search import Plan, arena_memories
from .plan.section import Decoupled, Section, scratch_name

CODE = "flash"  # the preferred placement of code, if the tree has currents for it


def clocked_plan(graph: Graph, target: Target, request: ModelRequest) -> Plan:
    """The plan of least modelled energy within `--qos`. Raises EdgebuildError if the target lacks facts for that,
    or no plan keeps to the budget."""
    try:
        return _clocked_plan(graph, target, request)
    except EdgebuildError as error:
        raise EdgebuildError(*(d if d.file else replace(d, file=graph.file) for d in error.diagnostics)) from None


def _clocked_plan(graph: Graph, target: Target, request: ModelRequest) -> Plan:
    budgets = _budgets_us(request)
    options = choices(graph, target, request, power_model(target, request))
    while True:
        best = select_all(options.layers, options.forms, options.model, budgets)
        chosen = _decoupled(options.whole, best.step_forms)
        planned = replan(options.whole, chosen, options.model) if chosen else options.whole
        if planned is not None:
            comparisons = tuple(compare(options.plain, options.layers, options.model, slack) for slack in SLACKS)
            first, *others = zip(best.problems, best.selections, strict=True)
            return replace(planned, clocks=ClockSchedule(options.model, *first, comparisons, tuple(others)))
        formed = zip(options.forms, best.step_forms, strict=True)  # each of its buffers fits, but not all together
        largest = max(w.buffer_bytes for each, (g, _) in formed for w in each if w.g == g and g)
        options = options.within(largest // 2)


@dataclass(frozen=True)
class Choices:
    """A plan, and the work of its steps in every form that there is room for: as it is, then decoupled."""

    whole: Plan
    model: PowerModel
    forms: tuple[tuple[layer_cost.Work, ...], ...]

    @cached_property
    def layers(self) -> tuple[layer_cost.EnergyLayer, ...]:
        return layer_cost.layers_of(self.forms, self.model)

    @cached_property
    def plain(self) -> tuple[layer_cost.EnergyLayer, ...]:
        """The layers when nothing is decoupled: the same kernels, each in one phase at one clock.

        A kernel that gathers is among them if it executes fewer instructions, so that decoupling is credited only with
        shorter waits for memory. If the request chooses kernels, the plan is compared with these.
        """
        fixed = bool(self.whole.request.choices)
        fastest = (
            each[0] if fixed else min(each, key=lambda w: w.in_one_phase.execute.instructions) for each in self.forms
        )
        return layer_cost.layers_of([[w.in_one_phase] for w in fastest], self.model)

    def within(self, room: int) -> Choices:
        """The choices whose buffers take at most `room` bytes."""
        return replace(self, forms=tuple(tuple(w for w in e if not w.g or w.buffer_bytes <= room) for e in self.forms))


def choices(graph: Graph, target: Target, request: ModelRequest, model: PowerModel) -> Choices:
    """The plan of a graph and the work of its steps. Raises EdgebuildError if the model does not fit the target."""
    whole = plan(graph, target, request)
    if not whole.steps:
        raise fail("nothing runs, so there is nothing to choose clocks for")
    forms = []
    for step, section in enumerate(whole.steps):
        room = _room(whole, step, model)
        forms.append(tuple(w for w in _forms(whole, section, model) if not w.g or w.buffer_bytes <= room))
    return Choices(whole, model, tuple(forms))


def _results(whole: Plan) -> list[str]:
    """The result that names each step; a rolled run has that of its first op, and is never decoupled."""
    return [section.ops[0].outputs[0] for section in whole.steps]


def _room(whole: Plan, step: int, model: PowerModel) -> float:
    """Bytes free for a buffer while a step runs, in a memory without waits: tightly coupled if there is one, else as
    much as stays in the cache."""
    coupled = {m.name for m in whole.target.memories if m.tightly_coupled}
    memories = {m.name: m.capacity for m in arena_memories(whole.graph, whole.target, whole.request)}
    waits = layer_cost.require_timing(model).sram_line_cycles > 0
    near = [name for name in memories if name in coupled or not waits] or list(memories)
    used = Counter(dict.fromkeys(near, 0))
    for b in whole.buffers:
        if b.first <= step <= b.last and b.view_of is None and not b.scratch and b.place.memory in used:
            used[b.place.memory] += b.bytes
    room = max((memories[name] or inf) - used[name] for name in near)
    return room if coupled & set(near) or not waits else min(room, _cached(model))


def power_model(target: Target, request: ModelRequest) -> PowerModel:
    """The target's clock tree at the HSE of the request. Raises EdgebuildError if the tree lacks facts."""
    if not target.clocks:
        hints = ["its YAML names one with `clocks: NAME`", "without one, use --objective latency or ram"]
        raise fail(f"--objective energy: target {target.name} has no clock tree", hints=hints)
    tree = target_tree(target)
    if request.calibration:
        tree = layer_cost.calibrated(tree, layer_cost.read_calibration(request.calibration, tree))
    placements = tree.power.run_ma if tree.power else ()
    model = PowerModel(clock_plan(tree, request.hse), CODE if CODE in placements else next(iter(placements), CODE))
    layer_cost.require_timing(model)
    return model


def _budgets_us(request: ModelRequest) -> list[float]:
    if not request.budgets_ms:
        raise fail("--objective energy needs --qos MS", hints=["the time from one inference's begin to the next one's"])
    if len(request.budgets_ms) > 1 and request.arena == "caller":
        raise fail("several budgets need --arena static", hints=["the generated code keeps the one that was chosen"])
    if request.stream_input is not None:
        raise fail("--objective energy cannot plan the clocks of a streamed input: its rows come when they come")
    return [ms * 1000 for ms in request.budgets_ms]


def replan(whole: Plan, chosen: Decoupled, model: PowerModel) -> Plan | None:
    """The plan with these ops decoupled; None if it does not fit, or if the costs of its steps change."""
    try:
        planned = plan(whole.graph, whole.target, whole.request, chosen)
    except EdgebuildError:
        return None
    if [s.name for s in planned.steps] != [s.name for s in whole.steps] or not all(_as_chosen(planned, chosen)):
        return None
    same = all(planned.places[n].memory == place.memory for n, place in whole.places.items() if n in planned.places)
    buffers = {n: size for s in planned.steps for n, size in s.inner.items() if n in map(scratch_name, chosen)}
    waits = layer_cost.require_timing(model).sram_line_cycles > 0
    near = not waits or all(_coupled(planned, n) or size <= _cached(model) for n, size in buffers.items())
    return planned if same and near else None


def _as_chosen(planned: Plan, chosen: Decoupled) -> Iterator[bool]:
    """For each op to be decoupled, whether its kernel gathers, or False if one without a buffer took its place."""
    for section in planned.steps:
        for op, kernel in zip(section.ops, section.kernels(planned.graph), strict=True):
            if op.outputs[0] in chosen:
                yield kernel.traffic.rounds > 0


def _cached(model: PowerModel) -> float:
    """Bytes that stay in the cache."""
    return layer_cost.CACHE_SHARE * layer_cost.require_timing(model).cache_bytes


def _decoupled(whole: Plan, step_forms: StepForms) -> Decoupled:
    """For each result that is computed decoupled the granularity, and whether its operands are gathered at the HSE."""
    return {name: form for name, form in zip(_results(whole), step_forms, strict=True) if form[0]}


# ---- Costs of steps


def _forms(whole: Plan, section: Section, model: PowerModel) -> list[layer_cost.Work]:
    """The step's work as it is, and decoupled with each granularity that its kernel can have."""
    timing = layer_cost.require_timing(model)
    forms = []
    for g in layer_cost.GRANULARITIES:
        uses = uses_of(whole, section, g)
        if g == 0 or any(u.kernel.traffic.rounds for u in uses):
            forms.append(layer_cost.work(section.name, uses, timing, g))
    return forms


def works(planned: Plan, timing: Timing) -> list[layer_cost.Work]:
    """Work of the steps of a plan, each in the form that it has there."""
    forms = [0 if s.rolled else s.forms[0].granularity for s in planned.steps]
    return [
        layer_cost.work(s.name, uses_of(planned, s, g), timing, g) for s, g in zip(planned.steps, forms, strict=True)
    ]


def uses_of(whole: Plan, section: Section, g: int) -> list[layer_cost.KernelUse]:
    """The kernels of a step and their work, decoupled with granularity g; none for a rolled run with g > 0."""
    if section.rolled is None:
        (op,) = section.ops
        form = section.forms[0] if g == 0 else replace(section.forms[0], granularity=g, lfo=False, variant="")
        return [_use(whole, op, kernel_of(op, whole.graph, form), 1)]
    if g:
        return []
    uses = zip(section.ops, section.kernels(whole.graph), section.calls_of, strict=True)
    return [_use(whole, *use) for use in uses]


def _use(whole: Plan, op: Op, kernel: Kernel, calls: int) -> layer_cost.KernelUse:
    graph = whole.graph
    reads = tuple(_operand(whole, n) for n in op.inputs if not graph.tensors[n].constant)
    iterations = prod(ops.nest(op, graph).extents.values())
    return layer_cost.KernelUse(kernel, calls, iterations, reads, _operand(whole, op.outputs[0]))


def _operand(whole: Plan, name: str) -> layer_cost.Activation:
    t, root = whole.graph.tensors[name], whole.rolling.storage[name]
    inside: Mapping[str, str] = {k: v for s in whole.steps if s.rolled for k, v in s.rolled.inside.items()}
    pixel = t.shape[-1] * (t.bytes // max(t.elements, 1)) if t.shape else t.bytes
    return layer_cost.Activation(t.bytes, max(pixel, 1), _coupled(whole, inside.get(root, root)))


def _coupled(planned: Plan, storage: str) -> bool:
    memory = planned.places[storage].memory
    return planned.target.memory_named(memory).tightly_coupled
