"""The error for a model that does not fit: by how much, where, and which options would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ...base.errors import EdgebuildError, fail
from .cuts import Cutter
from .memory.problem import DoesNotFit
from .rolling import RollingGraph, rows_of, with_rows
from .section import Section
from .storage import NEWEST, RING, SCRATCH, Live, live_set, storages


@dataclass(frozen=True)
class Alternatives:
    """Options that might fit where others do not, computed once. `beside`: options that rows of the input ask for."""

    cutter: Cutter
    beside: str

    @cached_property
    def peaks(self) -> dict[str, int]:
        """By option that is possible, the bytes that would be live."""
        rolled = max(self.cutter.profile(self.cutter.cuts.tight()), default=sum(self.cutter.sizes.values()))
        streamed = self._streamed()
        more = {} if streamed is None else {f"--stream-input rows{self.beside}": streamed}
        return {"--tile auto": rolled, **more}

    def _streamed(self) -> int | None:
        """Bytes live if the application pushed rows; None: it cannot."""
        graph = self.cutter.graph
        if len(graph.inputs) != 1 or rows_of(graph := with_rows(graph), graph.inputs[0]) < 2:
            return None
        same = {op.outputs[0]: op for op in graph.ops}
        order = tuple(same[op.outputs[0]] for op in self.cutter.order)
        streamed = Cutter(RollingGraph(graph, storages(graph), graph.inputs[0]), order, self.cutter.form)
        try:
            return max(streamed.profile(streamed.cuts.tight()), default=None)
        except EdgebuildError:
            return None


def does_not_fit(
    reason: DoesNotFit, cutter: Cutter, steps: Sequence[Section], alternatives: Alternatives, used: int
) -> EdgebuildError:
    """Which memory, by how much, at which node, what lives there, and what would help.

    `used`: bytes of the memory that stack and states take.
    """
    graph, profile = cutter.graph, cutter.profile(steps)
    highest = max(range(len(steps)), key=lambda i: profile[i], default=None)
    op = steps[highest].ops[-1] if highest is not None else None  # inputs that are outputs need no step
    least = "at least " if reason.proven else ""
    text = f"does not fit: arena {least}{reason.needed} B, memory {reason.memory} has {reason.capacity} B"
    text += f" beside {used} B of stack and states" if used > 0 else ""
    hints = [_live(cutter, steps, highest, reason.needed)] if highest is not None else []
    sizes = {f"{option} ({size} B)": size for option, size in alternatives.peaks.items()}
    if fitting := [option for option, size in sizes.items() if size <= reason.capacity]:
        hints.append(f"try: {', or '.join(fitting)}")
    else:
        over = reason.needed - reason.capacity
        hints.append(f"over by {over} B; {' and '.join(sizes)} do not fit either; use a target with more RAM")
    node, kind = (op.name, op.origin or op.kind) if op is not None else ("", "")
    return fail(text, file=graph.file, node=node, kind=kind, hints=hints)


def _live(cutter: Cutter, steps: Sequence[Section], step: int, needed: int) -> str:
    """All that is live in a step, which adds up to what it needs; and what the layout of `needed` bytes adds."""
    live = live_set(cutter, steps, step)
    parts = [_described(cutter, part) for part in live.parts]
    if (o := live.overlap) is not None:
        parts.append(f"less {o.saved} B as {_short(o.result)} lies over {_short(o.operand)}")
    parts += [f"{needed - live.bytes} B between them"] if needed > live.bytes else []
    return f"live at this step: {', '.join(parts)}"


def _described(cutter: Cutter, part: Live) -> str:
    tensor = cutter.graph.tensors[part.tensor]
    if part.kind in (SCRATCH, NEWEST):
        return f"{part.kind} of {_short(part.tensor)} ({part.bytes} B)"
    rows = f"{part.rows} rows of " if part.kind == RING else ""
    return f"{_short(part.tensor)} ({part.bytes} B, {rows}{'x'.join(map(str, tensor.shape))})"


def _short(tensor: str) -> str:
    return tensor.split(";")[0]
