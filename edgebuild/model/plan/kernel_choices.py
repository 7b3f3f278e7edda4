"""The kernels that an op of a section may have, the fastest first, and the least that rows cost with them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, product
from math import prod

from .. import ops
from ..ir import Graph, Op
from ..kernels import kernel_of
from ..kernels.unstated import PER_CALL, PER_ROW_CALL, PER_TURN
from ..ops.base import Form
from .rolling import Rolled, RollingGraph, Trace, calls
from .section import Choice, Decoupled, aligned, apart_of, rings_of, whole_form

Key = tuple[str, tuple[int, ...] | None, tuple[bool, ...], bool]  # result, rings, apart, over
MOST_STATES = 16  # of the operands of an op together; one with more may cost nothing


@dataclass(frozen=True)
class Choices:
    """Kernels for the ops of a graph. `form`: for which core they are, and what was asked for of them."""

    rolling: RollingGraph
    form: Form
    decoupled: Decoupled = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        return self.rolling.graph

    @cached_property
    def known(self) -> dict[Key, tuple[Choice, ...]]:
        return {}

    def whole(self, op: Op, over: bool = False) -> tuple[Choice, ...]:
        """Those of an op that runs whole. `over`: that work in place, all in the same way; there may be none."""
        key = (op.outputs[0], None, (), over)
        if key not in self.known:
            form = replace(whole_form(op, self.form, self.decoupled), over=over)
            self.known[key] = self._found(op, form)
        return self.known[key]

    def in_run(self, op: Op, rolled: Rolled) -> tuple[Choice, ...]:
        """Those of an op of a rolled run. They are the same where rows stand apart, and find them there."""
        apart = apart_of(self.rolling, rolled, op) if rolled.apart else ()
        rings = rings_of(self.rolling, rolled, op)
        if not apart:
            return self.by_rows(op, rings)
        key = (op.outputs[0], rings, apart, False)
        if key not in self.known:
            together = self.in_run(op, rolled.together)
            self.known[key] = tuple(replace(c, form=replace(c.form, rings=rings, apart=apart)) for c in together)
        return self.known[key]

    def by_rows(self, op: Op, rings: tuple[int, ...]) -> tuple[Choice, ...]:
        """Those of an op whose operands are rings of so many rows; 0: there whole."""
        key = (op.outputs[0], rings, (), False)
        if key not in self.known:
            rows = self.rolling.operands[op.outputs[0]][0][1]
            self.known[key] = self._found(op, replace(self.form, rings=rings, rows=rows))
        return self.known[key]

    def _found(self, op: Op, form: Form) -> tuple[Choice, ...]:
        stated = float(PER_TURN * prod(ops.nest(op, self.graph).extents.values()))
        stated, call = (stated / calls(self.rolling, op), PER_ROW_CALL) if form.rolled else (stated, PER_CALL)
        kernel, limit, found = kernel_of(op, self.graph, form), None, list[Choice]()
        how = kernel.in_place if form.over else ""
        gathers = form.granularity > 0 and kernel_of(op, self.graph, replace(form, over=False)).traffic.rounds > 0
        while not found or aligned(kernel.scratch) < found[-1].scratch:
            if (form.over and (not how or how != kernel.in_place)) or (gathers and not kernel.traffic.rounds):
                break
            form = replace(form, scratch_limit=limit)
            count = kernel.estimate or stated
            found.append(Choice(form, aligned(kernel.scratch), count + call, count * kernel.pace + call))
            limit = aligned(kernel.scratch) - 1
            kernel = kernel_of(op, self.graph, replace(form, scratch_limit=limit)) if kernel.scratch else kernel
        return tuple(found)

    def least(self, trace: Trace) -> list[float]:
        """By number of an op, what it and those behind it cost by rows at least, whichever ops before it run whole."""
        each = [n * self._least(trace, op) for n, op in zip(trace.counts, trace.run, strict=False)]
        return list(accumulate(reversed(each)))[::-1]

    def _least(self, trace: Trace, op: Op) -> float:
        states = [self._states(trace, root, rows) for root, rows in self.rolling.operands[op.outputs[0]]]
        if prod(map(len, states)) > MOST_STATES:
            return 0.0
        return min(c.cost for rings in product(*states) for c in self.by_rows(op, rings))

    def _states(self, trace: Trace, root: str, rows: int) -> set[int]:
        """Rows of the rings that an operand may be: its own, or one that it is made in the place of; 0: it is whole."""
        found, waiting = {0}, [root]
        while waiting:
            name = waiting.pop()
            ring = trace.rings.get(name, 0)
            found.add(0 if ring >= rows else ring)
            if ring == 1:
                readers = (op.outputs[0] for op in self.rolling.readers.get(name, []))
                waiting += [y for y in readers if name in self.rolling.taken_up[y]]
        return found
