"""Steps cut at rows, so that no call of `NAME_step()` takes longer than the application may wait (modelled)."""

from __future__ import annotations

from ...base.errors import fail
from ...base.request import ModelRequest
from ...base.target import Target
from ..ir import Graph
from ..kernels import kernel_of
from ..kernels.costs import cycles_of
from .cuts import Cutter
from .rolling import possible_starts, simulate
from .section import Section


def check_steps(request: ModelRequest, target: Target) -> None:
    """Refuse what keeps its place in an inference by itself, and slices without a clock."""
    if not request.stepwise:
        return
    is_cut = request.max_slice is not None
    option = "max_slice" if is_cut else "steps"
    _check_alone(request, option)
    for other, is_there in (("map", request.map != "off"), ("objective energy", request.objective == "energy")):
        if is_cut and is_there:
            raise fail(f"option '{option}': not with --{other}", hints=["leave one of them out"])
    if request.max_slice is not None and not target.clock_hz:
        hints = ["add clock_hz to its YAML, or give --steps alone"]
        raise fail(f"option 'max_slice': target {target.name} states no clock", hints=hints)
    if request.max_slice == 0:
        raise fail("option 'max_slice': 0 us is no time for anything", hints=["write microseconds, as 2000"])


def _check_alone(request: ModelRequest, option: str, file: str = "") -> None:
    """Refuse what the option needs and these leave to the application or to other devices: arena and whole input."""
    others = {
        "--arena caller": request.arena == "caller",
        "--stream-input": request.stream_input is not None,
        "--cluster": request.device is not None,
    }
    if other := next((name for name, is_there in others.items() if is_there), ""):
        raise fail(f"option '{option}': not with {other}", file=file, hints=["leave one of them out"])


def check_self_test(request: ModelRequest, graph: Graph) -> None:
    """Refuse vectors where results may differ in the last place, and where nobody can write the input."""
    if not request.selftest:
        return
    _check_alone(request, "selftest", graph.file)
    if request.stream_output:
        raise fail("option 'selftest': not with --stream-output", file=graph.file, hints=["leave one of them out"])
    ports = [graph.tensors[n] for n in (*graph.ports_in, *graph.ports_out)]
    if wide := next((t for t in ports if t.dtype not in ("int8", "uint8", "int16", "bool")), None):
        text = f"option 'selftest': '{wide.name}' is {wide.dtype}; vectors are for quantised models"
        raise fail(text, file=graph.file, hints=["quantise it: `edgebuild quantize`"])


def call_us(graph: Graph, section: Section, target: Target) -> list[float]:
    """Time of one call of each op of a section, modelled; an instruction a cycle where the core has no figure."""
    costs = [kernel_of(op, graph, form).cost for op, form in zip(section.ops, section.forms, strict=True)]
    cycles = (cycles_of(target, cost) or cost for cost in costs)
    return [1e6 * n / (target.clock_hz or 1e6) for n in cycles]


def calls_in_slice(graph: Graph, section: Section, target: Target, limit: float | None) -> int:
    """How many calls of a rolled section one slice makes; 0: all."""
    if limit is None or section.rolled is None:
        return 0
    each = call_us(graph, section, target)
    total = sum(n * us for n, us in zip(section.calls_of, each, strict=True))
    return max(1, int(limit / max(each))) if total > limit else 0


def slice_us(graph: Graph, section: Section, target: Target, limit: float | None) -> float:
    """Time of the longest slice of a section."""
    each = call_us(graph, section, target)
    total = sum(n * us for n, us in zip(section.calls_of, each, strict=True))
    count = calls_in_slice(graph, section, target, limit)
    return min(total, count * max(each)) if count else total


def sliced(cutter: Cutter, steps: tuple[Section, ...], target: Target, limit: float) -> tuple[Section, ...]:
    """The steps with ops by rows in place of those that run whole and take longer than the limit, us."""
    cut, at = list[Section](), 0
    for section in steps:
        alone = cutter.order[at : at + len(section.ops)]
        long = section.rolled is None and slice_us(cutter.graph, section, target, limit) > limit
        if long and possible_starts(cutter.rolling, alone):
            rows = cutter.by_rows(simulate(cutter.rolling, alone), at, at + 1)
            quick = [i.within(i.ample) for i in rows]
            section = min(quick, key=lambda s: slice_us(cutter.graph, s, target, limit))
        cut.append(section)
        at += len(section.ops)
    return tuple(cut)
