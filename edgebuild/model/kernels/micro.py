"""Micro-kernels: the innermost loops of kernels as values, from which both their assembly and their cost follow.

A `Function` is a tree of instructions and loops. Printed, it is a whole function in assembly. Counted, it gives the
instructions that a call executes, for iterations of loops that the caller gives. Instruction sets build such trees from
a `Micro`, which describes the computation: see `arm_dsp/dot.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import ceil
from textwrap import dedent, wrap

COLUMNS = 120  # longest line of C


@dataclass(frozen=True)
class Loop:
    """`body`, executed `turns` times: a number, or the name of one. A loop's body ends with its branch."""

    turns: str | float
    body: tuple[Part, ...]

    @cached_property
    def counted(self) -> Counted:
        return counted(self.body)


@dataclass(frozen=True)
class Unrolled:
    """An unrolled loop that executes `turns` bodies; its first iteration may enter in the middle, at the last bodies.

    `entries`: instructions of `enter` that run if 0, 1, 2, ... bodies are left over for the first iteration.
    """

    turns: str
    enter: tuple[str, ...]
    entries: tuple[int, ...]
    bodies: tuple[tuple[str, ...], ...]
    end: tuple[str, ...]

    @cached_property
    def lengths(self) -> tuple[list[int], int]:
        """Instructions of each body, and of the end."""
        return [length(body) for body in self.bodies], length(self.end)


@dataclass(frozen=True)
class Cases:
    """A dispatcher that executes each run by the loop for its size: `runs` names a sequence of (size, turns).

    Instructions: `dispatch` before each run and once at the end, `turn` by size, `back` from a loop to the next run.
    """

    runs: str
    text: tuple[str, ...]
    dispatch: int
    turn: Mapping[object, int]
    back: int


Part = str | Loop | Unrolled | Cases
Turns = Mapping[str, float | Sequence[tuple[object, int]]]
Counted = tuple[int, list[Loop | Unrolled | Cases]]  # instructions that run once, and the loops beside them


def asm(text: str) -> tuple[str, ...]:
    """Lines of assembly: instructions, labels, directives, comments, and lines that begin with EB_CFI."""
    return tuple(" ".join(line.split()) for line in dedent(text).splitlines() if line.strip())


def is_instruction(line: str) -> bool:
    """Whether a line is neither a label nor a directive nor a note for debuggers; `.insn` spells an instruction out."""
    return line[0].islower() or line.startswith(".insn ")


def lines(parts: Sequence[Part]) -> list[str]:
    """All lines in the order in which they are printed."""
    listed = list[str]()
    for part in parts:
        match part:
            case str():
                listed.append(part)
            case Loop():
                listed += lines(part.body)
            case Unrolled():
                listed += [*part.enter, *(line for body in part.bodies for line in body), *part.end]
            case Cases():
                listed += part.text
    return listed


def length(body: Sequence[str]) -> int:
    """Instructions of some lines."""
    return sum(map(is_instruction, body))


def counted(parts: Sequence[Part]) -> Counted:
    """The number of instructions that run once, and the loops; computed once for many estimates."""
    return length([part for part in parts if isinstance(part, str)]), [p for p in parts if not isinstance(p, str)]


def executed(counted: Counted, turns: Turns) -> float:
    """Instructions that a call executes, from the iterations of all loops."""
    total = float(counted[0])
    for part in counted[1]:
        match part:
            case Loop():
                total += _number(turns, part.turns) * executed(part.counted, turns)
            case Unrolled():
                count, (each, end) = int(_number(turns, part.turns)), part.lengths
                whole, rest = divmod(count, len(each))
                total += part.entries[rest] + whole * sum(each) + sum(each[len(each) - rest :])
                total += ceil(count / len(each)) * end
            case Cases():
                runs = turns[part.runs]
                assert isinstance(runs, Sequence)
                total += (len(runs) + 1) * part.dispatch
                total += sum(count * part.turn[size] + part.back for size, count in runs)
    return total


def _number(turns: Turns, name: str | float) -> float:
    value = turns[name] if isinstance(name, str) else name
    assert isinstance(value, int | float)
    return value


@dataclass(frozen=True)
class Function:
    """A whole function in assembly. `parameters`: C for each of them; `remark`: the comment on what it computes."""

    name: str
    parameters: tuple[str, ...]
    remark: str
    parts: tuple[Part, ...]
    uses: tuple[str, ...] = ()  # names in its C that are defined elsewhere, besides EB_CFI and EB_REG

    @property
    def before(self) -> str:
        """The comment and the attributes, before the head."""
        text = "\n".join(wrap(self.remark, COLUMNS, initial_indent="/* ", subsequent_indent=" * ")) + " */\n"
        return f"{text}__attribute__((naked, noinline, used, no_instrument_function)) "

    @property
    def head(self) -> str:
        """The C declaration."""
        listed = wrap(", ".join(self.parameters), COLUMNS, initial_indent=4 * " ", subsequent_indent=4 * " ")
        return f"static void {self.name}(\n" + "\n".join(listed) + ")"

    @property
    def body(self) -> str:
        """The braces after the head, and the assembly between them."""
        inside = "\n".join(map(_quoted, lines(self.parts)))
        return f"\n{{\n    __asm__(\n{inside});\n}}\n"

    @property
    def text(self) -> str:
        """The whole function in C."""
        return self.before + self.head + self.body

    def executed(self, **turns: float | Sequence[tuple[object, int]]) -> float:
        """Instructions of a call."""
        return executed(self._counted, turns)

    @cached_property
    def _counted(self) -> Counted:
        return counted(self.parts)


def _quoted(line: str) -> str:
    """A line of assembly as a line of C."""
    if line.startswith(("EB_CFI", "/*", ".cfi")):
        return f"        {line}"
    text, slash, comment = line.partition(" /*")
    if is_instruction(text):
        name, _, operands = text.partition(" ")
        text = f"{name:6} {operands}" if operands else name
    return f'        "{text}\\n\\t"{slash}{comment}'


def pushed(registers: Sequence[str]) -> str:
    """Directives for debuggers after a push of these registers, the first at the lowest address."""
    saved = [f".cfi_rel_offset {r}, {4 * i}" for i, r in enumerate(registers) if r not in ("r0", "r1", "r2", "r3")]
    texts = [f".cfi_adjust_cfa_offset {4 * len(registers)}", *saved]
    return "EB_CFI(" + "\n               ".join(f'"{text}\\n\\t"' for text in texts) + ")"


def framed(name: str, parameters: str, remark: str, saved: Sequence[str], parts: Sequence[Part]) -> Function:
    """A Thumb function that saves lr and these registers. `parameters`: in C, with commas between them."""
    listed = ", ".join(saved)
    named = tuple(f"EB_REG {each}" for each in parameters.split(", "))
    inside = (f"push {{{listed}, lr}}", pushed((*saved, "lr")), *parts, f"pop {{{listed}, pc}}")
    return Function(name, named, remark, inside)


def moved(count: int) -> str:
    """Directives for debuggers after any other change of the stack pointer; `count`: how many more bytes are in use."""
    return f'EB_CFI(".cfi_adjust_cfa_offset {count}\\n\\t")'


# An order of RISC-V instructions with few pipeline stalls, for cores that begin one instruction at a time.
#
# Loads, products and shifts give their results some cycles late, and an instruction that reads one too early stalls.
# List scheduling (P. Gibbons and S. Muchnick, "Efficient instruction scheduling for a pipelined architecture", PLDI
# 1986) puts other instructions between. Temporaries, written %name, are assigned once and get a register of a pool.

# Cycles that a result is late on VexRiscv: `hal/cycles/vexriscv-imac.yaml`. Other cores are at most as late, so an
# order that suits it suits them, too.
LOADS = ("lw", "lh", "lhu", "lb", "lbu")
LATE = dict.fromkeys((*LOADS, "mul", "mulh"), 2)
LATE |= dict.fromkeys(("sll", "slli", "srl", "srli", "sra", "srai"), 1)
AHEAD = (0, 3, 6, 9, 12, 18)  # instructions that may overtake the oldest one: more of them need more registers

Instruction = tuple[str | int, ...]  # its name and its operands, the register that it writes first


@dataclass
class _Node:
    """`after`: its predecessors, each with the fewest cycles from the predecessor's start to its own."""

    instruction: Instruction
    after: dict[int, int] = field(default_factory=dict)
    before: list[tuple[int, int]] = field(default_factory=list)  # its successors, with these cycles
    height: int = 0  # cycles from its start to the end of all its successors

    def __post_init__(self) -> None:
        self.writes = str(self.instruction[1])
        self.reads = tuple(dict.fromkeys(r for r in self.instruction[2:] if isinstance(r, str)))

    @property
    def late(self) -> int:
        return LATE.get(str(self.instruction[0]), 0)


@lru_cache(maxsize=1 << 12)
def in_order(code: tuple[Instruction, ...], pool: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Lines of a straight piece of code in a better order, with registers of the pool for temporaries.

    The code must have no stores, and the pool must suffice for the given order.
    """
    nodes = _dependent([_Node(i) for i in code])
    tries = [order for ahead in AHEAD if (order := _listed(nodes, pool, ahead)) is not None]
    return min(tries, key=lambda order: order[0])[1]


def _dependent(nodes: list[_Node]) -> list[_Node]:
    """Order each node after the writers of its operands, and after the last writer and the readers of its result."""
    writer, readers = dict[str, int](), dict[str, list[int]]()
    for at, node in enumerate(nodes):
        last = [writer[node.writes]] if node.writes in writer else []
        node.after = dict.fromkeys([*last, *readers.get(node.writes, ())], 1)
        node.after |= {writer[r]: 1 + nodes[writer[r]].late for r in node.reads if r in writer}
        for r in node.reads:
            readers.setdefault(r, []).append(at)
        writer[node.writes], readers[node.writes] = at, []
    for at, node in reversed(list(enumerate(nodes))):
        for first, cycles in node.after.items():
            nodes[first].height = max(nodes[first].height, cycles + node.height)
            nodes[first].before.append((at, cycles))
    return nodes


def _listed(nodes: list[_Node], pool: tuple[str, ...], ahead: int) -> tuple[int, tuple[str, ...]] | None:
    """Cycles and lines of an order; None if the pool is too small for moving instructions `ahead` so far."""
    lines, left = list[str](), list(range(len(nodes)))
    waits, earliest = [len(node.after) for node in nodes], [0] * len(nodes)  # for how many others, and until when
    free, places = list(pool), dict[str, str]()
    uses = Counter(r for node in nodes for r in node.reads if r[0] == "%")
    now = 0
    while left:
        ready = list[tuple[int, int, int]]()
        for n in left[: bisect_right(left, left[0] + ahead)]:
            node = nodes[n]
            if not waits[n] and (free or node.writes[0] != "%" or any(uses[r] == 1 for r in node.reads)):
                ready.append((max(now, earliest[n]), -node.height, n))
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
        now = start + 1
        for later, cycles in node.before:
            waits[later], earliest[later] = waits[later] - 1, max(earliest[later], start + cycles)
    return now, tuple(lines)


def _line(node: _Node, to: str, sources: Mapping[str, str]) -> str:
    name = str(node.instruction[0])
    operands = [sources[o] if isinstance(o, str) else str(o) for o in node.instruction[2:]]
    return f"{name} {to}, {operands[0]}({operands[1]})" if name in LOADS else f"{name} {', '.join([to, *operands])}"
