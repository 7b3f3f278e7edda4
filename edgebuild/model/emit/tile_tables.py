"""Ops that run tile by tile, as loops over static tables of copies and turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import indent

from ...base.dataclass import dataclass
from ...base.templates import render
from ...base.text import remark
from ..ops.base import C_TYPES, Kernel
from ..plan.printed import PARTS, Copy, CoreWork, TiledOp, Turn
from ..plan.search import Plan
from .call_loops import Arg, Call, Step
from .level1 import Named, block_of, far_address, level1_place, stage_at, tile_places
from .names import comment, scalar
from .runs import Case, switch
from .weights_file import Weights

SLOTS = 32  # copies under way that a table's player keeps at most, on the stack


@dataclass(frozen=True)
class _Turn:
    """Copies that a turn starts before its calls and behind them, a mask of channels to wait for; its calls."""

    fetched: int
    stored: int
    waits: str
    base: int  # number of the row of places
    first: int  # number of its first call
    parts: int
    arrived: str  # a mask of channels to wait for first, of those of parts
    staged: int  # copies started behind the wait


@dataclass(frozen=True)
class _Turns:
    """Tables of an op's turns."""

    kinds: tuple[_Turn, ...]  # turns that differ
    order: tuple[int, ...]  # of every turn the number of its kind
    bases: tuple[tuple[int, ...], ...]  # where operands, result and constants of a turn lie
    parts: tuple[tuple[int, tuple[int, ...]], ...]  # calls by kernel and what they add to that; equal ones once


def tiled_step(plan: Plan, step: int, moved: TiledOp, kernels: Sequence[tuple[Kernel, str]], weights: Weights) -> Step:
    """`kernels`: the op's kernels as they are printed, and their C functions."""
    loops = " > ".join(f"{loop.axis} {loop.extent}/{loop.tile}" for loop in moved.loops)
    where = f" on {moved.engine}" if moved.regions else ""
    calls = f"{len(moved.turns)} calls" if len(moved.turns) > 1 else "1 call"
    text = f"{moved.op.kind} {comment(moved.op.name)}{where}: {loops or 'whole'}, {calls}"
    places = tile_places(plan, moved)
    turns = _turns(plan, moved, len(places) - 1)
    alike = len({kernel for kernel, _ in turns.parts}) == 1 and not any(any(at) for _, at in turns.parts)
    bases = [_braced(n.at(b) for n, b in zip(places, row, strict=False)) for row in turns.bases]
    several = plan.target.cores > 1 and not moved.regions
    cases = [
        Case(str(number), "", _call(plan, moved, number, *row, turns, places, several).text)
        for number, row in enumerate(kernels)
    ]
    forms, copies = _copies(plan, step, moved, weights, places)
    flying = under_way(moved.copies, moved.turns)
    function = f"static void {plan.name}_tiles_{step}(void)"
    definition = render(
        "tiles.c.j2", name=plan.name, step=step, comment=text, function=function, forms=forms, copies=copies,
        slots=max(1, min(flying, SLOTS)), turns=turns, several=several, width=len(places) - 1,
        bases=bases if len(bases) > 1 else (),
        parts=() if alike else [f"{{{kernel}, {_braced(map(str, at))}}}" for kernel, at in turns.parts],
        call=switch("part->kernel", cases, 4) if len(cases) > 1 else indent(cases[0].text, "    "),
        mask=_mask(moved.last_waits), in_blocks=_in_blocks(moved), any_in_blocks=any(map(_in_blocks, _tiled(plan))),
        first_channel=PARTS, once=turns.kinds[0] if _once(plan, moved) else None,
        turn_type="uint8_t" if len(turns.kinds) <= 256 else "uint16_t",
    )  # fmt: skip
    return Step(text, f"{plan.name}_tiles_{step}();", (), function, definition, "tiles")


def tile_tables(plan: Plan) -> str:
    """The types of the tables of all ops in tiles, and the functions that go through them."""
    tiled = _tiled(plan)
    return render(
        "tile_tables.c.j2", name=plan.name, cores=plan.target.cores, most_slots=SLOTS,
        turns=not all(_once(plan, m) for m in tiled), in_blocks=any(map(_in_blocks, tiled)),
        copies=any(m.copies for m in tiled), waits_for_slots=any(under_way(m.copies, m.turns) > SLOTS for m in tiled),
    )  # fmt: skip


def _tiled(plan: Plan) -> list[TiledOp]:
    return [m for m in plan.moves.values() if isinstance(m, TiledOp)]


def _once(plan: Plan, moved: TiledOp) -> bool:
    """Whether there is one turn of one core, which needs no table."""
    return len(moved.turns) == 1 and (plan.target.cores == 1 or bool(moved.regions))


def _in_blocks(moved: TiledOp) -> bool:
    """Whether constants come to the second level block by block."""
    return any(turn.staged for turn in moved.turns)


def _mask(channels: Iterable[int], first: int = 0) -> str:
    return f"{sum(1 << channel - first for channel in channels):#x}"


def under_way(copies: Sequence[Copy], turns: Sequence[Turn]) -> int:
    """The longest row of copies, by number, of which the first is not waited for when the last is started."""
    first, most, started = dict[int, int](), 0, 0  # by channel: the oldest copy that nobody waited for
    for turn in turns:
        for channel in turn.arrived:
            first.pop(channel, None)
        called = max(turn.fetched, turn.staged)
        for end, done in ((turn.fetched, turn.waits), (called, ()), (turn.stored, ())):
            for number in range(started, end):
                first.setdefault(copies[number].channel, number)
                most = max(most, number + 1 - min(first.values()))
            started = end
            for channel in done:
                first.pop(channel, None)
    return most


def _copies(
    plan: Plan, step: int, moved: TiledOp, weights: Weights, places: Sequence[Named]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copies that differ in more than the far side's offset; for every copy its form and that offset."""
    forms, rows = dict[str, int](), list[str]()
    starts = plan.view_starts
    stored = {c.block for c in moved.copies if not c.tensor and (c.into or not c.stage)}
    offsets = {block: weights.offset(moved.blocks[block]) for block in stored}
    fixed, first = min(offsets.values(), default=0), block_of(plan, step, moved, weights) if stored else None
    owners = moved.at_operands
    for c in moved.copies:
        there = stage_at(plan, step, c.near) if c.into else _near(plan, moved, c, owners, places)
        if c.stage and not c.into:
            far, more, what = stage_at(plan, step, c.far), 0, "constants"
        elif c.tensor:
            far = far_address(plan, plan.rolling.storage[c.tensor])
            more, what = c.far + starts.get(c.tensor, 0), comment(c.tensor)
        else:
            far, what = f"WEIGHTS(uint8_t, {first.at(fixed) if first else fixed})", "constants"
            more = offsets[c.block] + c.far - fixed
        to, from_ = (there, far) if c.fetch else (far, there)
        steps = (c.near_row, c.far_row, c.near_plane, c.far_plane)
        if not c.fetch:
            steps = (c.far_row, c.near_row, c.far_plane, c.near_plane)
        numbers = ", ".join(map(str, (c.bytes, c.rows, c.planes, *steps)))
        form = (
            remark("        ", what)
            + f"\n        {{{c.channel}, {int(c.fetch)}, {{{to}, {from_},\n         {numbers}}}}},"
        )
        rows.append(f"{{{forms.setdefault(form, len(forms))}, {more}}}")
    return tuple(forms), tuple(rows)


def _near(plan: Plan, moved: TiledOp, copy: Copy, owners: Sequence[int], places: Sequence[Named]) -> str:
    """C for where a copy goes to or comes from in the first level."""
    macro, offset = level1_place(plan, moved, copy.near)
    number = copy.channel // 2
    owner = places[owners.index(number) if number in owners else len(owners)]
    return f"{macro}(uint8_t, {owner.at(offset)})"


def _turns(plan: Plan, moved: TiledOp, width: int) -> _Turns:
    """The turns of an op. A call's places count from those of its turn, the least of all its calls."""
    made, bases, kinds = dict[object, int](), dict[tuple[int, ...], int](), dict[_Turn, int]()
    parts, turns, started = list[tuple[int, tuple[int, ...]]](), list[int](), 0
    for turn in moved.turns:
        places = [[level1_place(plan, moved, at)[1] for at in call.at] for call in turn.calls]
        least = [min(at[i] for at in places if i < len(at)) for i in range(max(map(len, places)))]
        least += [0] * (width - len(least))
        rows = tuple(_part(call, at, least) for call, at in zip(turn.calls, places, strict=True))
        if rows not in made:
            made[rows] = len(parts)
            parts += rows
        base = bases.setdefault(tuple(least), len(bases))
        called = max(turn.fetched, turn.staged)
        starts = turn.fetched - started, turn.stored - called
        waits, arrived = _mask(turn.waits), _mask(turn.arrived, PARTS)
        kind = _Turn(*starts, waits, base, made[rows], len(rows), arrived, called - turn.fetched)
        turns.append(kinds.setdefault(kind, len(kinds)))
        started = turn.stored
    return _Turns(tuple(kinds), tuple(turns), tuple(bases), tuple(parts))


def _part(call: CoreWork, at: Sequence[int], base: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    more = [a - b for a, b in zip(at, base, strict=False)]
    return call.kernel, (*more, *[0] * (len(base) - len(more)))


def _braced(words: Iterable[str]) -> str:
    return f"{{{', '.join(words)}}}"


def _call(
    plan: Plan,
    moved: TiledOp,
    number: int,
    kernel: Kernel,
    name: str,
    turns: _Turns,
    places: Sequence[Named],
    several: bool,
) -> Call:
    """A kernel's call, whose pointers `base` and `part` have."""
    op = moved.op
    read = [plan.graph.tensors[n] for n in op.inputs if not plan.graph.tensors[n].constant]
    types = [C_TYPES[t.dtype] for t in (*read, plan.graph.result(op))]
    types += [C_TYPES[str(c.data.dtype)] for c in kernel.constants]
    at = next(call.at for turn in moved.turns for call in turn.calls if call.kernel == number)
    macros = [level1_place(plan, moved, place)[0] for place in at]
    words = []
    for i, (macro, kind) in enumerate(zip(macros, types, strict=True)):
        base = f"base[{i}]" if len(turns.bases) > 1 else places[i].at(turns.bases[0][i])
        more = f" + part->at[{i}]" if any(part[i] for _, part in turns.parts) else ""
        words.append(f"{macro}({kind}, {base}{more})")
    words += [f"/* {n} */ {scalar(v)}" for n, v in kernel.scalars.items()]
    each = f" + core * {moved.scratch_each}" if several else ""
    macro = level1_place(plan, moved, moved.scratch)[0]
    words += [f"{macro}(int8_t, {places[-1].name}{each})"] if kernel.scratch else []
    return Call("", name, tuple((Arg(word),) for word in words))
