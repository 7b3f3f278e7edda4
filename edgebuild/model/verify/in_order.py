"""Modelled cycles of RISC-V cores that execute in order: results that come late, branches, caches.

`hal/cycles` has the tables, each with its source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property

from ...base.dataclass import dataclass
from .cycles import NO_CACHES, Block, Caches, Class, Instruction, Shape, Step

REGISTER = re.compile(r"\b(?:zero|ra|sp|gp|tp|t[0-6]|s1[01]|s\d|a[0-7])\b")
STORES = ("sb", "sh", "sw")
BRANCHES = ("beq", "bne", "blt", "bge", "bltu", "bgeu", "beqz", "bnez", "blez", "bgez", "bltz", "bgtz", "bgt", "ble",
            "bgtu", "bleu")  # fmt: skip
JUMPS, REGISTER_JUMPS = ("j", "jal"), ("jr", "jalr", "ret")


@dataclass(frozen=True)
class CacheTable:
    """A cache of `bytes`, in lines of `ways`; `refill`: cycles that a line takes which is not there."""

    bytes: int
    line_bytes: int
    ways: int
    refill: int

    @property
    def shape(self) -> Shape:
        return Shape(self.bytes // self.line_bytes // self.ways, self.ways)


@dataclass(frozen=True)
class PipelineTable:
    """Cycles of a core that issues one instruction a cycle, in order.

    `late`: how many cycles later than a sum's the results of instructions may be used. `busy`: cycles for which
    instructions take the core beyond their own. Lost cycles: `taken_back` and `taken_ahead` by branches that are taken,
    `missed_back` by one back that is not, `jump` and `register_jump` by jumps; `straddled` by a first instruction of
    four bytes that begins in the middle of a word, behind a jump; `reload` by a load from the word that one of the
    last two instructions stored.
    """

    core: str
    source: str
    taken_back: int
    taken_ahead: int
    jump: int
    register_jump: int
    missed_back: int = 0
    straddled: int = 0
    reload: int = 0
    late: tuple[Class, ...] = ()
    busy: tuple[Class, ...] = ()
    instruction_cache: CacheTable | None = None
    data_cache: CacheTable | None = None

    @cached_property
    def _late(self) -> dict[str, int]:
        return {name: c.cycles for c in self.late for name in c.names}

    @cached_property
    def _busy(self) -> dict[str, int]:
        return {name: c.cycles for c in self.busy for name in c.names}

    @property
    def caches(self) -> Caches:
        code, data = self.instruction_cache, self.data_cache
        if code is None or data is None:
            return NO_CACHES
        return Caches(code.line_bytes, code.shape, data.shape)

    def misses(self, step: Step) -> int:
        """Cycles of a step for lines of the caches and for words that were just stored."""
        code, data = self.instruction_cache, self.data_cache
        refills = step.instruction_misses * code.refill if code else 0
        refills += step.data_misses * data.refill if data else 0
        return refills + step.reloads * self.reload

    def block_to_block(self, here: Block, there: Block) -> int:
        """Cycles from the first instruction of a block to the first of the one behind it."""
        ready, now = self._run(here.code, {}, 0)
        lost = self._jump(here, there)
        # What comes late from one block makes the first instructions of the next wait, but for the cycles lost anyway.
        head = there.code[:2]
        pending = {r: at - now - lost for r, at in ready.items() if at > now + lost}
        waits = self._run(head, pending, 0)[1] - self._run(head, {}, 0)[1] if pending else 0
        return now + lost + waits

    def _run(self, code: Sequence[Instruction], pending: Mapping[str, int], now: int) -> tuple[dict[str, int], int]:
        """When results may be used, and when the instruction behind `code` may begin."""
        ready = dict(pending)
        for i in code:
            reads, writes = operands(i)
            now = max([now, *(ready.get(r, 0) for r in reads)])
            if writes:
                ready[writes] = now + 1 + self._late.get(i.name, 0)
            now += 1 + self._busy.get(i.name, 0)
        return ready, now

    def _jump(self, here: Block, there: Block) -> int:
        """Cycles lost on the way from the last instruction of one block to the next."""
        last, ahead = here.code[-1], here.end == there.begin
        if last.name in BRANCHES:
            back = int(last.operands.split(",")[-1], 16) < here.end
            if ahead:
                return self.missed_back if back else 0
            lost = self.taken_back if back else self.taken_ahead
        elif last.name in REGISTER_JUMPS:
            lost = self.register_jump
        elif last.name in JUMPS:
            lost = self.jump
        else:
            return 0
        return lost + (self.straddled if there.begin % 4 and there.first_bytes == 4 else 0)


def operands(i: Instruction) -> tuple[list[str], str]:
    """Registers that an instruction reads, and the one that it writes; empty: none."""
    named = REGISTER.findall(i.operands)
    if i.name in STORES or i.name in BRANCHES or i.name in ("jr", "j"):
        return named, ""
    if i.name == "ret":
        return ["ra"], ""
    if i.name in ("jal", "jalr") and len(named) < 2:
        return named if i.name == "jalr" else [], "ra"
    return named[1:], named[0] if named and named[0] != "zero" else ""
