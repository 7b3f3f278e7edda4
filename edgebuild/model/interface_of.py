"""The interface of a canonical graph under a request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..base.errors import did_you_mean, fail
from ..base.request import ModelRequest
from ..base.text import FILE, NAME
from .ir import ITEM_BYTES, Graph
from .ops import SPECS
from .plan.memory.problem import ALIGN, aligned
from .plan.rolling import read_outside, rows_of, with_output_rows, with_rows
from .surface import Array, Interface, Link, Ports, Surface


def ports_of(graph: Graph) -> Ports:
    return Ports(_surfaces(graph, graph.ports_in), _surfaces(graph, read_outside(graph)))


def _surfaces(graph: Graph, names: Iterable[str]) -> tuple[Surface, ...]:
    surfaces = list[Surface]()
    for t in map(graph.tensors.__getitem__, names):
        quant = (float(t.quant.scale[0]), t.quant.zero_point[0]) if t.quant is not None else ()
        surfaces.append(Surface(t.name, t.dtype, t.shape, *quant))
    return tuple(surfaces)


def with_arrays(graph: Graph, request: ModelRequest) -> Graph:
    """The graph with `arrays`: its inputs and outputs that the request places in arrays of the application.

    Raises EdgebuildError for unknown tensors, for a tensor or array named twice, and for conflicting options.
    """
    sides = {"input_at": (graph.ports_in, "stream_input"), "output_at": (graph.ports_out, "stream_output")}
    arrays = list[tuple[str, str]]()
    for option, (names, stream) in sides.items():
        wanted = getattr(request, option)
        others = {stream: getattr(request, stream) is not None, "cluster": request.cluster is not None,
                  "map": request.map != "off", "objective energy": request.objective == "energy"}  # fmt: skip
        if wanted and (other := next((o for o, is_there in others.items() if is_there), None)):
            text = f"option '{option}': not with --{other.replace('_', '-')}"
            raise fail(text, file=graph.file, hints=["leave one of them out"])
        for tensor, symbol in wanted:
            if (len(names) != 1 and not tensor) or (tensor and tensor not in names):
                text = f"option '{option}': " + (
                    f"no tensor '{tensor}'" if tensor else f"{symbol} is one of {len(names)}"
                )
                hints = [f"write TENSOR={symbol}; tensors: {', '.join(names)}"]
                raise fail(text + did_you_mean(tensor, names), file=graph.file, hints=hints)
            arrays.append((tensor or names[0], symbol))
    for i, (tensor, symbol) in enumerate(arrays):
        if any(tensor == other or symbol == array for other, array in arrays[:i]):
            raise fail(f"option 'input_at' or 'output_at': {symbol} or '{tensor}' is named twice", file=graph.file)
    return replace(graph, arrays=tuple(arrays))


def _arrays(graph: Graph) -> tuple[Array, ...]:
    """Arrays of the application, with their elements rounded up to whole words."""
    sides, arrays = (("input", graph.ports_in), ("output", graph.ports_out)), list[Array]()
    for side, names in sides:
        for t in (graph.tensors[name] for name, _ in graph.arrays if name in names):
            size, symbol = ITEM_BYTES[t.dtype], dict(graph.arrays)[t.name]
            arrays.append(Array(symbol, t.name, side, t.dtype, aligned(t.bytes) // size, max(ALIGN, size)))
    return tuple(arrays)


def interface_of(graph: Graph, request: ModelRequest, target: str) -> Interface:
    """The interface of the graph, whole or cut into parts by a plan. `target`: the target's name."""
    streamed = request.stream_input is not None
    arrays = _arrays(with_arrays(graph, request))
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
        arrays=arrays,
    )
