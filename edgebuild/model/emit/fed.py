"""Runs in the first memory level, printed: an order of calls, rows that are fed and drained between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import indent

from ...base.templates import plus, remark
from ..ir import Tensor
from ..ops.base import C_TYPES
from ..plan.moved.feeding import FedRun
from ..plan.printed import Share, Stream
from ..plan.search import Plan
from .call_loops import Arg, Call
from .names import at_macro, comment
from .near import Named, blocks, constants_at, ring, run_places, stage_at
from .order import Order
from .weights_file import Weights


@dataclass(frozen=True)
class Case:
    """Calls of an op, with the statements before and after them; without calls they bring a row."""

    comment: str
    before: tuple[str, ...]
    calls: tuple[tuple[str, Call], ...]  # with the parts of a row that each is for, in C; empty: all
    after: tuple[str, ...]
    rows: int = 0  # that the call makes in all


@dataclass(frozen=True)
class FedStep:
    """View of the template."""

    step: int
    comment: str
    order: Order
    constants: tuple[str, ...]  # copies
    first: tuple[str, ...]  # starts of first rows
    cases: tuple[Case, ...]
    streams: int
    waits: tuple[int, ...]  # channels to wait for at the end
    together: int  # rows that cores make at once
    shares: int  # of a row

    @property
    def cores(self) -> int:
        return self.together * self.shares


def fed_step(
    plan: Plan, step: int, run: FedRun, order: Order, calls: Sequence[Sequence[Call]], weights: Weights
) -> FedStep:
    """`calls`: of the run's ops, in order, each with those of its parts."""
    numbers = {s.storage: i for i, s in enumerate(run.streams)}
    drained = {s.storage: s for s in run.drained}
    cases = []
    for number, (op, mine, count) in enumerate(zip(run.ops, calls, run.counts, strict=True)):
        stream = drained.get(op.outputs[0])
        before: tuple[str, ...] = ()
        after: tuple[str, ...] = ()
        if stream is not None and stream.whole:
            after = (f"if (row == {count - 1}) {{", indent(_all(plan, step, stream, numbers), "    "), "}")
        elif stream is not None:
            wait = f"    eb_dma_wait({stream.channel} + row % 2); /* its row's buffer is free again */"
            before = ("if (row > 1) {", wait, "}") if stream.copies > 2 else ()
            after = (_row(plan, step, stream, numbers, "row"),)
        reduces = plan.rolling.modes[op.outputs[0]] == "reduce"
        parts = run.parts[number] if run.shares > 1 and not reduces else ()
        conditions = [_parts(share) for share in parts] or [""]
        cases.append(Case(mine[0].comment, before, tuple(zip(conditions, mine, strict=True)), after,
                          0 if reduces else count))  # fmt: skip
    for stream in run.fed:
        ahead: tuple[str, ...] = (
            f"if (row < {stream.copies - 1}) {{",
            indent(_row(plan, step, stream, numbers, "row + 1"), "    "),
            "}",
        )
        ahead = ahead if stream.copies > 1 else ()
        wait = f"eb_dma_wait({stream.channel} + row % 2);"
        what = "a row" if run.together == 1 else "rows"
        cases.append(Case(f"{what} of {comment(stream.storage)}", ahead, (), (wait,)))
    copies = list(_run_constants(plan, step, run, weights))
    first, last = comment(run.ops[0].name), comment(run.ops[-1].name)
    by = "row by row" if run.together == 1 else f"by {run.together} rows"
    by += f", each in at most {run.shares} parts" if run.shares > 1 else ""
    text = f"{len(run.ops)} ops from {first} to {last}, {by}, {len(run.events)} calls"
    waits = tuple(s.channel + odd for s in run.streams for odd in range(min(2, s.copies)))
    starts = tuple(_row(plan, step, s, numbers, "0") for s in run.fed)
    return FedStep(
        step, text, order, tuple(copies), starts, tuple(cases), len(run.streams), waits, run.together, run.shares
    )


def _parts(share: Share) -> str:
    """C for whether a part of a row is one of these."""
    if share.past == share.first + 1:
        return f"part == {share.first}"
    return f"part < {share.past}" if share.first == 0 else f"part >= {share.first} && part < {share.past}"


def near_address(plan: Plan, step: int, run: FedRun, t: Tensor, behind: str = "") -> Arg:
    """A pointer to a tensor in the first level: to its ring in the run, or to where it stays."""
    root = plan.rolling.storage[t.name]
    at = run_places(plan, step, run).get((root, "")) or Named(plan.offset_names[root], plan.places[root].offset)
    start = plan.view_starts.get(t.name, 0)
    return Arg(f"{at_level(plan)}({C_TYPES[t.dtype]}, {{}}){behind}", start, at.name, at.offset)


def _run_constants(plan: Plan, step: int, run: FedRun, weights: Weights) -> Iterator[str]:
    """The copies of constants with which a run begins."""
    far = run.stage_at or (0,) * len(run.blocks)
    for block, near, at in zip(run.blocks, run.block_at, far, strict=True):
        if block.data.nbytes and not run.prefetched:
            from_ = stage_at(plan, step, at) if run.stage else _stored(plan, step, weights.offset(block), weights)
            to = f"{at_level(plan)}(uint8_t, {constants_at(plan, step, near)})"
            yield _constants(to, from_, block.data.nbytes)


def at_level(plan: Plan) -> str:
    """The macro of the first level."""
    return at_macro(plan, plan.target.levels[0].name)


def early_constants(plan: Plan, weights: Weights) -> tuple[tuple[str, ...], Mapping[int, tuple[str, ...]]]:
    """The copies of constants that are fetched under earlier steps, and the statements before each step."""
    copies, before = list[str](), dict[int, list[str]]()

    def start(step: int, channel: int, what: int, copy: str) -> None:
        line = f"    eb_dma_start({channel}, &{plan.name}_ahead[{len(copies)}]); /* constants of step {what} */"
        before.setdefault(step, []).append(line)
        copies.append(copy)

    def wait(step: int, channel: int) -> None:
        line, known = f"    eb_dma_wait({channel});", before.setdefault(step, [])
        began = [i for i, other in enumerate(known) if other.startswith(f"    eb_dma_start({channel},")]
        if line not in known[began[-1] if began else 0 :]:
            known.append(line)

    for staged in (s for s in plan.staged if s.first < s.until):
        wait(staged.until, staged.channel)
    for staged in plan.staged:
        to, offset = stage_at(plan, staged.step, staged.at.offset), weights.offset(staged.block) + staged.offset
        copy = _constants(to, _stored(plan, staged.step, offset, weights), staged.bytes)
        start(staged.first, staged.channel, staged.step, copy)
    for staged in (s for s in plan.staged if s.first == s.until):
        wait(staged.until, staged.channel)
    for early in plan.ahead:
        to = f"{at_level(plan)}(uint8_t, {constants_at(plan, early.step, early.near)})"
        if early.stage:
            from_ = stage_at(plan, early.step, early.far)
        else:
            from_ = _stored(plan, early.step, weights.offset(early.block), weights)
        start(early.first, early.channel, early.step, _constants(to, from_, early.block.data.nbytes))
    for early in plan.ahead:
        wait(early.step, early.channel)
    for kept in reversed(plan.caches.steps):
        name = plan.offset_names.get(kept.what, str(kept.place.offset))
        at = f"{at_macro(plan, kept.place.memory)}(uint8_t, {name})"
        line = remark(f"    eb_cache_{kept.kind}({at}, {kept.bytes}); ", comment(kept.what))
        before.setdefault(kept.step, []).insert(0, line)
    return tuple(copies), {step: tuple(before.get(step, ())) for step in range(len(plan.steps) + 1)}


def _stored(plan: Plan, step: int, offset: int, weights: Weights) -> str:
    """C for the address of constants of a step in their store."""
    return f"WEIGHTS(uint8_t, {blocks(plan, weights)[step].at(offset)})"


def _constants(to: str, from_: str, size: int) -> str:
    return f"{{.to = {to},\n .from = {from_},\n .bytes = {size}, .rows = 1, .planes = 1}},"


def _far(plan: Plan, storage: str) -> str:
    return f"{at_macro(plan, plan.places[storage].memory)}(uint8_t, {plan.offset_names[storage]})"


def _row(plan: Plan, step: int, s: Stream, numbers: Mapping[str, int], row: str) -> str:
    number, size, slots = f"({row})" if " " in row else row, s.together * s.bytes, s.slots // s.together
    slot = f" + {number} % {slots} * {size}" if s.slots < s.rows else f" + {number} * {size}"
    near, far = f"{at_level(plan)}(uint8_t, {ring(plan, step, s).name})", _far(plan, s.storage)
    if row != "0":
        near, far = f"{near}{slot}", f"{far} + {number} * {size}"
    to, from_ = (near, far) if s.fed else (far, near)
    rest = s.total - (s.copies - 1) * size  # bytes of the last copy
    taken = str(size) if rest == size else f"{number} == {s.copies - 1} ? {rest} : {size}"
    if row == "0":
        taken = str(s.most)
    return f"{_start(plan, s, numbers)}, {row},\n    {to},\n    {from_}, {taken});"


def _start(plan: Plan, s: Stream, numbers: Mapping[str, int]) -> str:
    """The begin of a call that starts a copy: its slots and its channel."""
    return f"{plan.name}_row({plus('under_way', 2 * numbers[s.storage])}, {s.channel}"


def _all(plan: Plan, step: int, s: Stream, numbers: Mapping[str, int]) -> str:
    to, from_ = _far(plan, s.storage), f"{at_level(plan)}(uint8_t, {ring(plan, step, s).name})"
    return f"{_start(plan, s, numbers)}, 0,\n    {to},\n    {from_}, {s.total});"
