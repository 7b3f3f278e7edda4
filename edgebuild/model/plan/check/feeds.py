"""The part of `replay` for runs whose rows are fed and drained: the same bytes, copies and waits as for tiles.

The order of the calls, the places and the sizes of rings are taken as they are printed. Which bytes a call reads and
writes follows from the index relations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir import Array
from ...kernels import kernel_of
from ...ops.base import Kernel
from ..printed import CONSTANTS, Ahead, Copy, RowMoves, Share, Staged, Stream
from .part_kernels import COLUMNS, kernel_of_columns, same_function
from .relations import Callee, Stored
from .tile_copies import BYTE, NOTHING, BrokenPlan, Called, Transfers


def ahead_copy(ahead: Ahead) -> Copy:
    """The copy of a block of constants that is fetched under an earlier step."""
    return Copy(ahead.channel, True, "", 0, ahead.far, ahead.near, ahead.block.data.nbytes, stage=ahead.stage)


def staged_copy(staged: Staged) -> Copy:
    """A copy of constants to the memory that they come by way of."""
    place = staged.at
    return Copy(staged.channel, True, "", 0, staged.offset, place.offset, staged.bytes, stage=place.memory, into=True)


def row_copy(stream: Stream, number: int) -> Copy:
    """A copy of rows, or of all rows if they are made at once."""
    if stream.whole:
        return Copy(stream.channel, False, stream.storage, 0, 0, stream.near, stream.total)
    row, channel = number * stream.together, stream.channel + number % 2
    size = min(stream.together, stream.rows - row) * stream.bytes
    near = stream.near + row % stream.slots * stream.bytes
    return Copy(channel, stream.fed, stream.storage, 0, row * stream.bytes, near, size)


class Feeds(Transfers):
    """Runs the copies and calls of a run."""

    def between(self, step: int, ahead: Sequence[Ahead], staged: Sequence[Staged]) -> None:
        """The copies of constants that are begun and awaited before a step."""
        for copy in (s for s in staged if s.until == step and s.first < step):
            self.wait(copy.channel)
        for copy in (s for s in staged if s.first == step):
            self.start(staged_copy(copy), copy.block.data)
        for copy in (s for s in staged if s.until == s.first == step):
            self.wait(copy.channel)
        for early in (a for a in ahead if a.first == step):
            self.start(ahead_copy(early), early.block.data)
        for early in (a for a in ahead if a.step == step):
            self.wait(early.channel)

    def run_rows(self, run: RowMoves) -> None:
        """Raise BrokenPlan unless every call finds its rows and all results arrive."""
        self.fed, self.name, relations = run, run.section.name, self.relations
        callees = [Callee.of(self.graph, op, form) for op, form in zip(run.ops, run.section.forms, strict=True)]
        self.kernels: dict[tuple[int, int], Kernel] = {}
        drained = {s.storage: s for s in run.drained}
        far = run.stage_at or (0,) * len(run.blocks)
        for block, near, at in zip(run.blocks, run.block_at, far, strict=True):
            if block.data.nbytes and not run.prefetched:
                self.start(Copy(CONSTANTS, True, "", 0, at, near, block.data.nbytes, stage=run.stage), block.data)
        for fed in run.fed:
            self.start(row_copy(fed, 0), NO_DATA)
        self.wait(CONSTANTS)
        rows = [0] * (len(run.ops) + len(run.fed))
        made = [0] * len(run.ops)
        for number in run.events:
            call, rows[number] = rows[number], rows[number] + 1
            if number >= len(run.ops):
                self.bring(run.fed[number - len(run.ops)], call)
                continue
            callee = callees[number]
            stream = drained.get(callee.op.outputs[0])
            if stream is not None and not stream.whole and call > 1:
                self.wait(stream.channel + call % 2)
            made[number] += len(self.rows(callee, number, call))
            last = made[number] == relations.calls(callee)
            self.call_rows(callee, number, call, last)
            if stream is not None and (last or not stream.whole):
                self.start(row_copy(stream, call), NO_DATA)
        for callee, count in zip(callees, made, strict=True):
            if not relations.finds_rings(callee, run.seen):
                raise BrokenPlan(f"{callee.op.name} looks for rows in rings of other sizes")
            if count > relations.calls(callee) or (callee.reduces and count < relations.calls(callee)):
                raise BrokenPlan(f"{callee.op.name} is called {count} times, not {relations.calls(callee)}")
        channels = {s.channel + odd for s in run.streams for odd in (0, 1)}
        for channel in sorted(channels):
            self.wait(channel)
        for name in run.section.results:
            self.complete(name, channels, name in run.held)

    def bring(self, stream: Stream, call: int) -> None:
        if call + 1 < stream.copies:
            self.start(row_copy(stream, call + 1), NO_DATA)
        self.wait(stream.channel + call % 2)

    def rows(self, callee: Callee, number: int, call: int) -> range:
        """The rows that cores make in a call of an op; a reduction takes up one."""
        together = 1 if callee.reduces else self.fed.together
        return range(call * together, min((call + 1) * together, self.fed.counts[number]))

    def call_rows(self, callee: Callee, number: int, call: int, last: bool) -> None:
        """The rows of a call, which cores make at once: none may write what another one reads or writes."""
        found, run = list[Called](), self.fed
        for at, row in enumerate(self.rows(callee, number, call)):
            parts = [(share, part) for share in run.parts[number] for part in range(share.first, share.past)]
            if [part for _, part in parts] != list(range(len(parts))) or len(parts) > max(1, run.shares):
                raise BrokenPlan(f"{callee.op.name} has no core for each part of a row")
            for share, part in parts:
                found.append(self.call_part(callee, number, at * run.shares + part, row, last, share, part))
        self.apart(found)
        for one in found:
            self.near[one.scratch] = NOTHING - 1 - number
            self.near[one.written] = one.made

    def call_part(
        self, callee: Callee, number: int, core: int, row: int, last: bool, share: Share, part: int
    ) -> Called:
        """A core's call, which may read all of the rows; sums must still stand where earlier calls left them."""
        run, op = self.fed, callee.op
        columns = self.columns(callee, share, part)
        if (number, part) not in self.kernels:
            self.kernels[number, part] = self.kernel(callee, share, part, columns)
        kernel = self.kernels[number, part]
        read = [self.found(self.relations.needed(callee, position, row)) for position in callee.operands]
        read += self.constants(kernel, iter(run.constants[number]))
        scratch = NOWHERE
        if kernel.scratch:
            scratch = run.scratch[op.outputs[0]] + core * run.scratch_each[number] + np.arange(kernel.scratch)
            if callee.reduces and row and not np.all(self.near[scratch] == NOTHING - 1 - number):
                raise BrokenPlan(f"{op.name} finds its sums of row {row} spoilt")
        if callee.reduces and not last:
            return Called(read, NOWHERE, NOWHERE, scratch)
        made = self.relations.made(callee, row)
        if columns is not None:
            low, high = columns
            size = (made.past - made.first) // self.graph.result(op).shape[COLUMNS]
            made = Stored(made.storage, made.first + low * size, made.first + high * size)
        return Called(read, self.at_near(made), self.owners(made), scratch)

    def columns(self, callee: Callee, share: Share, part: int) -> tuple[int, int] | None:
        """The columns of the result that a part makes; None: the whole row."""
        if not share.width:
            return None
        every = self.graph.result(callee.op).shape[COLUMNS]
        low, high = part * share.width, min((part + 1) * share.width, every)
        if low >= high:
            raise BrokenPlan(f"part {part} of a row of {callee.op.name} begins behind its end")
        return low, high

    def kernel(self, callee: Callee, share: Share, part: int, columns: tuple[int, int] | None) -> Kernel:
        """The kernel that the part must have, with its constants. Raises BrokenPlan if its own is another."""
        if columns is None:
            wanted = kernel_of(callee.op, self.graph, callee.form)
        else:
            begin = part * share.step - share.before
            wanted = kernel_of_columns(callee.op, self.graph, callee.form, *columns, begin)
        if not same_function(share.kernel, wanted):
            raise BrokenPlan(f"part {part} of a row of {callee.op.name} has the kernel of another one")
        return wanted

    def owners(self, stored: Stored) -> Array:
        return np.arange(stored.first, stored.past) + (self.owner(stored.storage, 0) | BYTE)

    def at_near(self, stored: Stored) -> Array:
        """Where bytes of a storage lie in the first level: in the ring of the run, or whole."""
        run, at = self.fed, np.arange(stored.first, stored.past)
        ring = next((s.near for s in run.streams if s.storage == stored.storage), run.places.get(stored.storage))
        if ring is None:
            return at + self.places[stored.storage].offset
        size = self.relations.row_bytes(stored.storage)
        return ring + at % (run.seen.rings[stored.storage] * size)

    def found(self, stored: Stored) -> Array:
        there = self.at_near(stored)
        if there.max(initial=0) >= len(self.near) or not np.array_equal(self.near[there], self.owners(stored)):
            raise BrokenPlan(f"{self.name} does not find bytes {stored.first} to {stored.past} of {stored.storage}")
        return there


NO_DATA = np.zeros(0, np.uint8)
NOWHERE = np.zeros(0, np.int64)
