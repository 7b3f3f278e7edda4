"""The order of RISC-V instructions in which a pipeline waits least, for cores that begin one instruction at a time.

Loads, products and shifts give their results some cycles late, and an instruction that wants one of them waits. List
scheduling (P. Gibbons and S. Muchnick, "Efficient instruction scheduling for a pipelined architecture", PLDI 1986)
puts others between. Temporaries, written %name, are assigned once and get a register of a pool until their last use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

# Cycles that a result is late on VexRiscv: `hal/cycles/vexriscv-imac.yaml`. Other cores are at most as late, so an
# order that is good there is good on them.
LOADS = ("lw", "lh", "lhu", "lb", "lbu")
LATE = dict.fromkeys((*LOADS, "mul", "mulh"), 2)
LATE |= dict.fromkeys(("sll", "slli", "srl", "srli", "sra", "srai"), 1)
AHEAD = (0, 3, 6, 9, 12, 18)  # instructions that may overtake the oldest one: more of them need more registers

Instruction = tuple[str | int, ...]  # its name and its operands, the register that it writes first


@dataclass
class _Node:
    """`after`: those that come before it, and cycles from the start of each to the earliest of this one."""

    instruction: Instruction
    after: dict[int, int] = field(default_factory=dict)
    height: int = 0  # cycles from its start to the end of all that wait for it

    @property
    def writes(self) -> str:
        return str(self.instruction[1])

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(r for r in self.instruction[2:] if isinstance(r, str)))

    @property
    def late(self) -> int:
        return LATE.get(str(self.instruction[0]), 0)


@lru_cache(maxsize=1 << 12)
def in_order(code: tuple[Instruction, ...], pool: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Lines of a straight piece of code in a better order, with registers of the pool for temporaries.

    Nothing is stored in it, and the pool suffices for the order given.
    """
    nodes = _dependent([_Node(i) for i in code])
    tries = [order for ahead in AHEAD if (order := _listed(nodes, pool, ahead)) is not None]
    return min(tries, key=lambda order: order[0])[1]


def _dependent(nodes: list[_Node]) -> list[_Node]:
    """Each behind the writers of what it reads, and behind the last writer and the readers of what it writes."""
    writer, readers = dict[str, int](), dict[str, list[int]]()
    for at, node in enumerate(nodes):
        last = [writer[node.writes]] if node.writes in writer else []
        node.after = dict.fromkeys([*last, *readers.get(node.writes, ())], 1)
        node.after |= {writer[r]: 1 + nodes[writer[r]].late for r in node.reads if r in writer}
        for r in node.reads:
            readers.setdefault(r, []).append(at)
        writer[node.writes], readers[node.writes] = at, []
    for node in reversed(nodes):
        for before, cycles in node.after.items():
            nodes[before].height = max(nodes[before].height, cycles + node.height)
    return nodes


def _listed(nodes: list[_Node], pool: tuple[str, ...], ahead: int) -> tuple[int, tuple[str, ...]] | None:
    """Cycles and lines of an order; None where the pool is too small for so much overtaking."""
    started, lines, left = dict[int, int](), list[str](), list(range(len(nodes)))
    free, places = list(pool), dict[str, str]()
    uses = Counter(r for node in nodes for r in node.reads if r[0] == "%")
    now = 0
    while left:
        ready = list[tuple[int, int, int]]()
        for n in (n for n in left if n <= left[0] + ahead):
            node = nodes[n]
            room = node.writes[0] != "%" or free or any(uses[r] == 1 for r in node.reads)
            if room and node.after.keys() <= started.keys():
                start = max([now, *(started[before] + cycles for before, cycles in node.after.items())])
                ready.append((start, -node.height, n))
        if not ready:
            return None
        start, _, n = min(ready)
        node = nodes[n]
        sources = {r: places.get(r, r) for r in node.reads}
        for r in node.reads:
            uses[r] -= 1
            free += [places[r]] if r[0] == "%" and not uses[r] else []
        if node.writes[0] == "%":
            places[node.writes] = free.pop(0)
        lines.append(_line(node, places.get(node.writes, node.writes), sources))
        left.remove(n)
        started[n], now = start, start + 1
    return now, tuple(lines)


def _line(node: _Node, to: str, sources: Mapping[str, str]) -> str:
    name = str(node.instruction[0])
    operands = [sources[o] if isinstance(o, str) else str(o) for o in node.instruction[2:]]
    return f"{name} {to}, {operands[0]}({operands[1]})" if name in LOADS else f"{name} {', '.join([to, *operands])}"
