"""Steps of a schedule: ops that run whole, and runs that are rolled, each with its kernels and what it works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from types import MappingProxyType

from ..ir import Graph, Op
from ..kernels.unstated import PER_BYTE_KEPT, PER_ROW_KEPT
from ..ops.base import PIXELS, Form
from .printed import Moves, ReachedOp, Transfer, newest_name
from .printed import scratch_name as scratch_name
from .rolling import Rolled, RollingGraph

Decoupled = Mapping[str, tuple[int, bool]]  # by result: how many channels or columns, and whether at the low clock
COUPLED: Decoupled = MappingProxyType({})

ALIGN = 4  # bytes; every buffer starts and ends on it, so kernels may use word accesses


@dataclass(frozen=True)
class Overlap:
    """`result` may share bytes with `operand` if it starts at least `distance` bytes below it; below 0: above it."""

    operand: str
    result: str
    distance: int


@dataclass(frozen=True)
class Section:
    """One step of the schedule: an op that runs whole (`rolled` None), or a rolled run."""

    ops: tuple[Op, ...]
    rolled: Rolled | None
    reads: tuple[str, ...]  # storages
    results: tuple[str, ...]
    forms: tuple[Form, ...]  # of the ops' kernels
    inner: Mapping[str, int]  # bytes of rings and scratch, which live in this step alone
    spans: Mapping[str, tuple[int, int]]  # numbers of the first and the last op during whose calls they are in use
    overlaps: tuple[Overlap, ...]
    guests: Mapping[str, tuple[str, int]] = field(
        default_factory=dict
    )  # of `inner`: the operand that each is over, place
    instructions: float = 0.0  # estimated
    cost: float = 0.0  # the same, more where they take longer (`Kernel.cost`)
    moves: Moves | ReachedOp | None = None  # how it runs between memory levels
    before: tuple[Transfer, ...] = ()
    after: tuple[Transfer, ...] = ()

    def host(self, name: str) -> str | None:
        """The operand that a ring, a newest row or sums lie over."""
        return self.guests[name][0] if name in self.guests else None

    @property
    def name(self) -> str:
        return self.ops[-1].name

    @property
    def over(self) -> bool:
        """Whether the op runs whole and its kernel works in place."""
        return self.rolled is None and any(form.over for form in self.forms)

    @property
    def run(self) -> bool:
        """Whether several ops are rolled together; one op may go by rows to lie over its operand."""
        return self.rolled is not None and len(self.ops) > 1

    @property
    def calls(self) -> int:
        return sum(self.rolled.counts) if self.rolled else 1

    @property
    def calls_of(self) -> list[int]:
        """How often each op is called."""
        return list(self.rolled.counts[: len(self.ops)]) if self.rolled else [1]

    @property
    def callers(self) -> int:
        """How many numbers `spans` may name: the ops, and behind them the application that brings rows."""
        return len(self.ops) + any(last >= len(self.ops) for _, last in self.spans.values())

    @cached_property
    def in_use(self) -> list[int]:
        """Bytes of `inner` in use during the calls of each op, beside those that lie over an operand."""
        changes = [0] * (self.callers + 1)
        for name, size in self.inner.items():
            if name in self.guests:
                continue
            first, last = self.spans[name]
            changes[first] += size
            changes[last + 1] -= size
        return list(accumulate(changes[:-1]))


def aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def whole_form(op: Op, form: Form, decoupled: Decoupled = COUPLED) -> Form:
    """The form of the kernel of an op that runs whole; `form` says for which core."""
    granularity, lfo = decoupled.get(op.outputs[0], (0, False))
    return replace(form, granularity=granularity, lfo=lfo)


def apart_of(rolling: RollingGraph, rolled: Rolled, op: Op) -> tuple[bool, ...]:
    """Whether the newest row of each operand stands apart; empty if none does."""
    found = tuple(root in rolled.apart for root, _ in rolling.operands[op.outputs[0]])
    return found if any(found) else ()


def rings_of(rolling: RollingGraph, rolled: Rolled, op: Op) -> tuple[int, ...]:
    """Rows of the ring that each operand is, beside one that stands apart; 0 where it is there whole."""
    rings, inside = rolled.rings, rolled.inside
    kept = [(rings.get(inside.get(root, root), 0), rows) for root, rows in rolling.operands[op.outputs[0]]]
    return tuple(0 if n >= rows else n for n, rows in kept)


def distance(op: Op, graph: Graph, in_place: str) -> int | None:
    """By how many bytes the first operand must start above the result of a kernel that works in place as it states.

    None: it cannot lie over it, because it has other bytes.
    """
    x, y = graph.operands(op)[0], graph.result(op)
    if in_place == PIXELS:
        return aligned(max(0, y.bytes - x.bytes)) if x.shape[:-1] == y.shape[:-1] else None
    return 0 if x.bytes == y.bytes else None


@dataclass(frozen=True)
class Choice:
    """A kernel that an op may have."""

    form: Form
    scratch: int  # bytes, aligned
    instructions: float  # of a call
    cost: float  # of a call: instructions, more where they take longer


def with_kernels(section: Section, chosen: Sequence[Choice]) -> Section:
    """The section with these kernels, and their scratch.

    Sums of a reduction stay from its first call to its last, all other scratch is free after each call.
    """
    scratch = {op.outputs[0]: scratch_name(op.outputs[0]) for op in section.ops}
    own = set(scratch.values())
    inner = {name: size for name, size in section.inner.items() if name not in own}
    spans, calls = {name: section.spans[name] for name in inner}, section.calls_of
    for number, (name, choice) in enumerate(zip(scratch, chosen, strict=True)):
        if choice.scratch:
            inner[scratch[name]] = choice.scratch
            reduced = section.rolled is not None and name in section.results and section.rolled.spans.get(name)
            spans[scratch[name]] = reduced or (number, number)
    kept = keeping(section)
    instructions, cost = (
        sum(n * each for n, each in zip(calls, of_call, strict=True)) + kept
        for of_call in ([c.instructions for c in chosen], [c.cost for c in chosen])
    )
    forms = tuple(choice.form for choice in chosen)
    return replace(section, forms=forms, inner=inner, spans=spans, instructions=instructions, cost=cost)


def keeping(section: Section) -> float:
    """Instructions that put the newest rows of rings among the others."""
    if section.rolled is None:
        return 0.0
    made = {op.outputs[0]: n for op, n in zip(section.ops, section.calls_of, strict=True)}
    each = {name: PER_ROW_KEPT + PER_BYTE_KEPT * section.inner[newest_name(name)] for name in section.rolled.apart}
    return sum(made[name] * each[name] for name in section.rolled.apart)


def instructions(sections: Sequence[Section]) -> float:
    """Estimated, of all sections."""
    return sum(s.instructions for s in sections)


def cost(sections: Sequence[Section]) -> float:
    """Of all sections: what plans are chosen by."""
    return sum(s.cost for s in sections)
