"""Ops that run tile by tile, as loops over static tables of copies and turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ops.base import C_TYPES, Kernel
from ..plan.moved.moves import Call, Copy, MovedLayer, Turn
from ..plan.search import Plan
from ..plan.storage import view_starts
from .names import at_macro, comment, literal, offset_names
from .storage import Weights


@dataclass(frozen=True)
class MovedStep:
    """View of the template: rows of both tables, and the calls of the kernels, whose pointers `turn` has."""

    step: int
    comment: str
    copies: tuple[str, ...]
    turns: tuple[str, ...]
    parts: tuple[str, ...]  # calls of several cores, turn by turn; none where one core makes a turn's call
    width: int  # places in a call
    cases: tuple[tuple[str, tuple[str, ...]], ...]  # function, arguments
    mask: str  # of all channels in use


def moved_step(
    plan: Plan, step: int, moved: MovedLayer, kernels: Sequence[tuple[Kernel, str]], weights: Weights
) -> MovedStep:
    """`kernels`: the op's kernels as they are printed, and their C functions."""
    loops = " > ".join(f"{a} {moved.layer.nest.extents[a]}/{moved.mapped.tile[a]}" for a in moved.mapped.order)
    where = f" on {moved.engine}" if moved.regions else ""
    text = f"{moved.op.kind} {comment(moved.op.name)}{where}: {loops or 'whole'}, {len(moved.turns)} calls"
    several = plan.target.cores > 1 and not moved.regions
    of = "part" if several else "turn"
    cases = [_case(plan, moved, number, *row, of) for number, row in enumerate(kernels)]
    width = max(len(call.at) for turn in moved.turns for call in turn.calls)
    made: dict[tuple[str, ...], int] = {}  # parts of a turn, and the number of the first; turns of equal parts share
    parts, first = list[str](), list[int]()
    for turn in moved.turns if several else ():
        rows = tuple(f"{{{_call(plan, moved, call, width)}}}" for call in turn.calls)
        if rows not in made:
            made[rows] = len(parts)
            parts += rows
        first.append(made[rows])
    return MovedStep(
        step,
        text,
        tuple(_copy(plan, moved, c, weights) for c in moved.copies),
        tuple(_turn(plan, moved, turn, width, first[i] if several else None) for i, turn in enumerate(moved.turns)),
        tuple(parts),
        width,
        tuple(cases),
        f"{sum(1 << c for c in moved.last_waits):#x}",
    )


def _copy(plan: Plan, moved: MovedLayer, c: Copy, weights: Weights) -> str:
    macro, offset = _near(plan, moved, c.near)
    near = f"{macro}(uint8_t, {offset})"
    if c.tensor:
        root = plan.rolling.storage[c.tensor]
        start = c.far + view_starts(plan.graph).get(c.tensor, 0)
        place = offset_names(plan)[root] + (f" + {start}" if start else "")
        far = f"{at_macro(plan, plan.places[root].memory)}(uint8_t, {place})"
    else:
        far = f"WEIGHTS(uint8_t, {weights.offset(moved.blocks[c.block])})"
    to, from_ = (near, far) if c.fetch else (far, near)
    steps = (c.near_row, c.far_row, c.near_plane, c.far_plane)
    if not c.fetch:
        steps = (c.far_row, c.near_row, c.far_plane, c.near_plane)
    numbers = ", ".join(map(str, (c.bytes, c.rows, c.planes, *steps)))
    return f"{{{c.channel}, {{{to}, {from_}, {numbers}}}}}"


def _near(plan: Plan, moved: MovedLayer, near: int) -> tuple[str, int]:
    """The macro of the memory that an address belongs to, and the offset in it."""
    region = moved.region(near)
    if region is None:
        return at_macro(plan, moved.layer.operands[0].space), near
    return at_macro(plan, region.memory), near - region.base


def _turn(plan: Plan, moved: MovedLayer, turn: Turn, width: int, first: int | None) -> str:
    """`first`: number of the turn's first part; None: one core makes its call."""
    mask = sum(1 << channel for channel in turn.waits)
    calls = _call(plan, moved, turn.calls[0], width) if first is None else f"{first}, {len(turn.calls)}"
    return f"{{{turn.fetched}, {turn.stored}, {mask:#x}, {calls}}}"


def _call(plan: Plan, moved: MovedLayer, call: Call, width: int) -> str:
    places = [_near(plan, moved, near)[1] for near in call.at]
    at = ", ".join(map(str, (*places, *[0] * (width - len(call.at)))))
    return f"{call.kernel}, {{{at}}}"


def _case(
    plan: Plan, moved: MovedLayer, number: int, kernel: Kernel, name: str, of: str
) -> tuple[str, tuple[str, ...]]:
    op = moved.op
    read = [plan.graph.tensors[n] for n in op.inputs if not plan.graph.tensors[n].constant]
    types = [C_TYPES[t.dtype] for t in (*read, plan.graph.result(op))]
    types += [C_TYPES[str(c.data.dtype)] for c in kernel.constants]
    places = next(call.at for turn in moved.turns for call in turn.calls if call.kernel == number)
    macros = [_near(plan, moved, near)[0] for near in places]
    words = [f"{macro}({kind}, {of}->at[{i}])" for i, (macro, kind) in enumerate(zip(macros, types, strict=True))]
    words += [f"/* {n} */ {literal(v)}" for n, v in kernel.scalars.items()]
    macro, place = _near(plan, moved, moved.scratch)
    scratch = f"{place} + core * {moved.scratch_each}" if of == "part" else str(place)
    words += [f"{macro}(int8_t, {scratch})"] if kernel.scratch else []
    return name, tuple(word + ("," if i + 1 < len(words) else "") for i, word in enumerate(words))
