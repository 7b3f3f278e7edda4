"""Words for a model that does not fit: by how much, where, and which options would help."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.errors import EdgebuildError, fail
from .cuts import Cutter
from .fed_input import with_rows
from .memory.problem import DoesNotFit
from .rolling import RollingGraph, rows_of
from .section import Section
from .storage import storages


def _streamed_peak(cutter: Cutter) -> int | None:
    """Bytes that would be live if the application pushed rows; None where it cannot."""
    if len(cutter.graph.inputs) != 1:
        return None
    graph = with_rows(cutter.graph)
    if rows_of(graph, graph.inputs[0]) < 2:
        return None
    same = {op.outputs[0]: op for op in graph.ops}
    order = tuple(same[op.outputs[0]] for op in cutter.order)
    streamed = Cutter(RollingGraph(graph, storages(graph), graph.inputs[0]), order, cutter.form)
    try:
        return max(streamed.profile(streamed.cut()), default=None)
    except EdgebuildError:
        return None


def does_not_fit(
    reason: DoesNotFit, cutter: Cutter, steps: Sequence[Section], others: Cutter, rows: str, taken: int
) -> EdgebuildError:
    """Which memory, by how much, at which node, what lives there, and what would help: `others` knows other ways.

    `rows`: the options that bring the input in rows, beside those of this request. `taken`: bytes of the memory that
    stack and states take.
    """
    graph, profile = cutter.graph, cutter.profile(steps)
    highest = max(range(len(steps)), key=lambda i: profile[i], default=None)
    op = steps[highest].ops[-1] if highest is not None else None  # inputs that are outputs need no step
    least = "at least " if reason.proven else ""
    text = f"does not fit: arena {least}{reason.needed} B, memory {reason.memory} has {reason.capacity} B"
    text += f" beside {taken} B of stack and states" if taken > 0 else ""
    live = [graph.tensors[n] for n in reason.buffers if n in graph.tensors]
    shown = ", ".join(f"{t.name.split(';')[0]} ({t.bytes} B, {'x'.join(map(str, t.shape))})" for t in live)
    hints = [f"live at this step: {shown}"] if shown else []
    ways = {
        "--tile auto": max(others.profile(others.cut()), default=reason.needed),
        rows: _streamed_peak(others),
    }
    known = {f"{way} ({size} B)": size for way, size in ways.items() if size is not None}
    fitting = [text for text, size in known.items() if size <= reason.capacity]
    if fitting:
        hints.append(f"try: {', or '.join(fitting)}")
    else:
        over = reason.needed - reason.capacity
        hints.append(f"over by {over} B; {' and '.join(known)} do not fit either; use a target with more RAM")
    if op is None:
        return fail(text, file=graph.file, hints=hints)
    return fail(text, file=graph.file, node=op.name, kind=op.origin or op.kind, hints=hints)
