"""Ops that run tile by tile, as loops over static tables of copies and turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..ops.base import C_TYPES, Kernel
from ..plan.moved.moves import Call, Copy, MovedLayer, Turn
from ..plan.search import Plan
from ..plan.storage import view_starts
from .names import at_macro, comment, offset_names, scalar
from .storage import Weights

SLOTS = 32  # copies under way that a table's player keeps at most, on the stack


@dataclass(frozen=True)
class _Turns:
    """Tables of an op's turns."""

    kinds: tuple[str, ...]  # turns that differ
    order: tuple[int, ...]  # of every turn the number of its kind
    bases: tuple[str, ...]  # where operands, result and constants of a turn lie
    parts: tuple[str, ...]  # calls of kernels, of one core or several; turns of equal calls share them


@dataclass(frozen=True)
class MovedStep:
    """View of the template: rows of the tables, and the calls of the kernels, whose pointers `base` and `part` have."""

    step: int
    comment: str
    forms: tuple[str, ...]  # copies without what differs from tile to tile
    copies: tuple[str, ...]  # number of the form, bytes that are added to the far side
    slots: int  # copies that are kept until they are done
    waits_for_slots: bool  # there are more under way than slots
    turns: _Turns
    several: bool  # cores that share a turn
    width: int  # places in a call
    cases: tuple[tuple[str, tuple[str, ...]], ...]  # function, arguments
    mask: str  # of all channels in use

    @property
    def turn_type(self) -> str:
        return "uint8_t" if len(self.turns.kinds) <= 256 else "uint16_t"


def moved_step(
    plan: Plan, step: int, moved: MovedLayer, kernels: Sequence[tuple[Kernel, str]], weights: Weights
) -> MovedStep:
    """`kernels`: the op's kernels as they are printed, and their C functions."""
    loops = " > ".join(f"{a} {moved.layer.nest.extents[a]}/{moved.mapped.tile[a]}" for a in moved.mapped.order)
    where = f" on {moved.engine}" if moved.regions else ""
    text = f"{moved.op.kind} {comment(moved.op.name)}{where}: {loops or 'whole'}, {len(moved.turns)} calls"
    several = plan.target.cores > 1 and not moved.regions
    cases = [_case(plan, moved, number, *row, several) for number, row in enumerate(kernels)]
    forms, copies = _copies(plan, moved, weights)
    width = max(len(call.at) for turn in moved.turns for call in turn.calls)
    flying = under_way(moved.copies, moved.turns)
    mask = f"{sum(1 << c for c in moved.last_waits):#x}"
    return MovedStep(step, text, forms, copies, max(1, min(flying, SLOTS)), flying > SLOTS,
                     _turns(plan, moved, width), several, width, tuple(cases), mask)  # fmt: skip


def under_way(copies: Sequence[Copy], turns: Sequence[Turn]) -> int:
    """The longest row of copies, by number, of which the first is not waited for when the last is started."""
    first, most, started = dict[int, int](), 0, 0  # by channel: the oldest copy that nobody waited for
    for turn in turns:
        for end, done in ((turn.fetched, turn.waits), (turn.stored, ())):
            for number in range(started, end):
                first.setdefault(copies[number].channel, number)
                most = max(most, number + 1 - min(first.values()))
            started = end
            for channel in done:
                first.pop(channel, None)
    return most


def _copies(plan: Plan, moved: MovedLayer, weights: Weights) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copies that differ in more than the far side's offset, and for every copy its form and that offset."""
    forms, rows = dict[str, int](), list[str]()
    starts = view_starts(plan.graph)
    fixed = min((weights.offset(moved.blocks[c.block]) for c in moved.copies if not c.tensor), default=0)
    for c in moved.copies:
        macro, offset = _near(plan, moved, c.near)
        near = f"{macro}(uint8_t, {offset})"
        if c.tensor:
            root = plan.rolling.storage[c.tensor]
            far = f"{at_macro(plan, plan.places[root].memory)}(uint8_t, {offset_names(plan)[root]})"
            more, what = c.far + starts.get(c.tensor, 0), comment(c.tensor)
        else:
            far, what = f"WEIGHTS(uint8_t, {fixed})", "constants"
            more = weights.offset(moved.blocks[c.block]) + c.far - fixed
        to, from_ = (near, far) if c.fetch else (far, near)
        steps = (c.near_row, c.far_row, c.near_plane, c.far_plane)
        if not c.fetch:
            steps = (c.far_row, c.near_row, c.far_plane, c.near_plane)
        numbers = ", ".join(map(str, (c.bytes, c.rows, c.planes, *steps)))
        form = f"{{{c.channel}, {int(c.fetch)}, {{{to}, {from_}, {numbers}}}}}, /* {what} */"
        rows.append(f"{{{forms.setdefault(form, len(forms))}, {more}}}")
    return tuple(forms), tuple(rows)


def _turns(plan: Plan, moved: MovedLayer, width: int) -> _Turns:
    """The turns of an op. A call's places count from those of its turn, the least of all its calls."""
    made, bases, kinds = dict[tuple[str, ...], int](), dict[str, int](), dict[str, int]()
    parts, turns, started = list[str](), list[int](), 0
    for turn in moved.turns:
        places = [[_near(plan, moved, near)[1] for near in call.at] for call in turn.calls]
        least = [min(at[i] for at in places if i < len(at)) for i in range(max(map(len, places)))]
        least += [0] * (width - len(least))
        rows = [_part(call, at, least) for call, at in zip(turn.calls, places, strict=True)]
        if tuple(rows) not in made:
            made[tuple(rows)] = len(parts)
            parts += rows
        base = bases.setdefault(_braced(least), len(bases))
        mask = sum(1 << channel for channel in turn.waits)
        fetched, stored = turn.fetched - started, turn.stored - turn.fetched
        kind = f"{{{fetched}, {stored}, {mask:#x}, {base}, {made[tuple(rows)]}, {len(rows)}}}"
        turns.append(kinds.setdefault(kind, len(kinds)))
        started = turn.stored
    return _Turns(tuple(kinds), tuple(turns), tuple(bases), tuple(parts))


def _part(call: Call, at: Sequence[int], base: Sequence[int]) -> str:
    more = [a - b for a, b in zip(at, base, strict=False)]
    return f"{{{call.kernel}, {_braced([*more, *[0] * (len(base) - len(more))])}}}"


def _braced(numbers: Iterable[int]) -> str:
    return f"{{{', '.join(map(str, numbers))}}}"


def _near(plan: Plan, moved: MovedLayer, near: int) -> tuple[str, int]:
    """The macro of the memory that an address belongs to, and the offset in it."""
    region = moved.region(near)
    if region is None:
        return at_macro(plan, moved.layer.operands[0].space), near
    return at_macro(plan, region.memory), near - region.base


def _case(
    plan: Plan, moved: MovedLayer, number: int, kernel: Kernel, name: str, several: bool
) -> tuple[str, tuple[str, ...]]:
    op = moved.op
    read = [plan.graph.tensors[n] for n in op.inputs if not plan.graph.tensors[n].constant]
    types = [C_TYPES[t.dtype] for t in (*read, plan.graph.result(op))]
    types += [C_TYPES[str(c.data.dtype)] for c in kernel.constants]
    places = next(call.at for turn in moved.turns for call in turn.calls if call.kernel == number)
    macros = [_near(plan, moved, near)[0] for near in places]
    words = [
        f"{macro}({kind}, base[{i}] + part->at[{i}])" for i, (macro, kind) in enumerate(zip(macros, types, strict=True))
    ]
    words += [f"/* {n} */ {scalar(v)}" for n, v in kernel.scalars.items()]
    macro, place = _near(plan, moved, moved.scratch)
    scratch = f"{place} + core * {moved.scratch_each}" if several else str(place)
    words += [f"{macro}(int8_t, {scratch})"] if kernel.scratch else []
    return name, tuple(word + ("," if i + 1 < len(words) else "") for i, word in enumerate(words))
