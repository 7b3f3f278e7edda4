"""The interface of a canonical graph under a request."""

from __future__ import annotations

from collections.abc import Iterable

from ..base.request import ModelRequest
from ..base.text import FILE, NAME
from .ir import Graph
from .ops import SPECS
from .plan.rolling import read_outside, rows_of, with_output_rows, with_rows
from .surface.interface import Interface, Link, Ports, Surface


def ports_of(graph: Graph) -> Ports:
    return Ports(_surfaces(graph, graph.ports_in), _surfaces(graph, read_outside(graph)))


def _surfaces(graph: Graph, names: Iterable[str]) -> tuple[Surface, ...]:
    surfaces = list[Surface]()
    for t in map(graph.tensors.__getitem__, names):
        quant = (float(t.quant.scale[0]), t.quant.zero_point[0]) if t.quant is not None else ()
        surfaces.append(Surface(t.name, t.dtype, t.shape, *quant))
    return tuple(surfaces)


def interface_of(graph: Graph, request: ModelRequest, target: str) -> Interface:
    """The interface of the graph, also where a plan has cut it into parts. `target`: its name."""
    streamed = request.stream_input is not None
    graph = with_rows(graph) if streamed else graph
    ends = any(SPECS[op.kind].link == "output" for op in graph.ops)
    graph = with_output_rows(graph, request.name) if request.stream_output and not ends else graph
    link = graph.link
    budgets = request.budgets_ms if request.objective == "energy" and len(request.budgets_ms) > 1 else ()
    return Interface(
        request.name,
        FILE if request.name == NAME else graph.file,
        target,
        ports_of(graph),
        caller=request.arena == "caller",
        states=bool(graph.states),
        stream_rows=rows_of(graph, graph.inputs[0]) if streamed else 0,
        output_rows=rows_of(graph, read_outside(graph)[0]) if request.stream_output else 0,
        budgets=tuple(f"{ms:g}" for ms in budgets),
        link=Link(link.entry, link.timeout_us, link.device == link.source) if link is not None else None,
        steps=request.stepwise,
        selftest=request.selftest,
        set_weights=request.set_weights,
    )
