"""Words for a model that does not fit: by how much, where, and which options would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ...base.errors import EdgebuildError, fail
from .cuts import Cutter
from .fed_input import with_rows
from .live import NEWEST, RING, SCRATCH, Live, live_set
from .memory.problem import DoesNotFit
from .rolling import RollingGraph, rows_of
from .section import Section
from .storage import storages


@dataclass(frozen=True)
class OtherWays:
    """Ways that might fit where others do not, looked at once. `beside`: options that rows of the input ask for."""

    cutter: Cutter
    beside: str

    @cached_property
    def peaks(self) -> dict[str, int | None]:
        """By option, the bytes that would be live; None where there is no such way."""
        rolled = max(self.cutter.profile(self.cutter.cut()), default=sum(self.cutter.sizes.values()))
        return {"--tile auto": rolled, f"--stream-input rows{self.beside}": self._streamed()}

    def _streamed(self) -> int | None:
        """If the application pushed rows."""
        graph = self.cutter.graph
        if len(graph.inputs) != 1 or rows_of(graph := with_rows(graph), graph.inputs[0]) < 2:
            return None
        same = {op.outputs[0]: op for op in graph.ops}
        order = tuple(same[op.outputs[0]] for op in self.cutter.order)
        streamed = Cutter(RollingGraph(graph, storages(graph), graph.inputs[0]), order, self.cutter.form)
        try:
            return max(streamed.profile(streamed.cut()), default=None)
        except EdgebuildError:
            return None


def does_not_fit(
    reason: DoesNotFit, cutter: Cutter, steps: Sequence[Section], others: OtherWays, taken: int
) -> EdgebuildError:
    """Which memory, by how much, at which node, what lives there, and what would help.

    `taken`: bytes of the memory that stack and states take.
    """
    graph, profile = cutter.graph, cutter.profile(steps)
    highest = max(range(len(steps)), key=lambda i: profile[i], default=None)
    op = steps[highest].ops[-1] if highest is not None else None  # inputs that are outputs need no step
    least = "at least " if reason.proven else ""
    text = f"does not fit: arena {least}{reason.needed} B, memory {reason.memory} has {reason.capacity} B"
    text += f" beside {taken} B of stack and states" if taken > 0 else ""
    hints = [_live(cutter, steps, highest, reason.needed)] if highest is not None else []
    known = {f"{way} ({size} B)": size for way, size in others.peaks.items() if size is not None}
    fitting = [text for text, size in known.items() if size <= reason.capacity]
    if fitting:
        hints.append(f"try: {', or '.join(fitting)}")
    else:
        over = reason.needed - reason.capacity
        hints.append(f"over by {over} B; {' and '.join(known)} do not fit either; use a target with more RAM")
    if op is None:
        return fail(text, file=graph.file, hints=hints)
    return fail(text, file=graph.file, node=op.name, kind=op.origin or op.kind, hints=hints)


def _live(cutter: Cutter, steps: Sequence[Section], step: int, needed: int) -> str:
    """All that is live in a step, which adds up to what it needs; and what the layout of `needed` bytes adds."""
    live = live_set(cutter, steps, step)
    parts = [_described(cutter, part) for part in live.parts]
    parts += [f"less {live.saved} B as {_short(live.result)} lies over {_short(live.operand)}"] if live.saved else []
    parts += [f"{needed - live.bytes} B between them"] if needed > live.bytes else []
    return f"live at this step: {', '.join(parts)}"


def _described(cutter: Cutter, part: Live) -> str:
    tensor = cutter.graph.tensors[part.tensor]
    if part.kind == SCRATCH:
        return f"scratch of {_short(part.tensor)} ({part.bytes} B)"
    if part.kind == NEWEST:
        return f"newest row of {_short(part.tensor)} ({part.bytes} B)"
    rows = f"{part.rows} rows of " if part.kind == RING else ""
    return f"{_short(part.tensor)} ({part.bytes} B, {rows}{'x'.join(map(str, tensor.shape))})"


def _short(tensor: str) -> str:
    return tensor.split(";")[0]
