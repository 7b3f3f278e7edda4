"""Names, literals and addresses of the generated C: where tensors, rows and newest rows of rings lie."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from ...base import text as written
from ...base.templates import times
from ...base.text import remark
from .. import surface
from ..interface_of import ports_of
from ..ir import Tensor
from ..ops.base import C_TYPES, Constant, FourBytes, Kernel
from ..plan.printed import Moves, RolledCalls, Start, Stream, StreamedRun, TiledOp, Transfer, Wait, newest_name
from ..plan.rolling import row_bytes, rows_of
from ..plan.search import Plan
from .call_loops import Arg
from .weights_file import Weights

if TYPE_CHECKING:
    from ..plan.dma.tiles import MappedOp


LARGEST = {float(np.finfo(np.float32).max): "FLT_MAX", math.inf: "EB_INFINITY"}
# Names of functions of C's library: compilers refuse other functions with these names.
MATHS = {
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos", "cosh", "div", "erf",
    "exp", "exp2", "expm1", "floor", "fmod", "hypot", "index", "isnan", "labs", "log", "log10", "log1p",
    "log2", "pow", "remainder", "rint", "round", "signbit", "sin", "sinh", "sqrt", "tan", "tanh", "tgamma",
    "trunc",
}  # fmt: skip


def literal(value: int | float) -> str:
    """A C literal of type int32_t or float."""
    if isinstance(value, FourBytes):
        return f"(int32_t)0x{value & 0xFFFFFFFF:08x}u"
    if not isinstance(value, float):
        return str(value) if value > -(2**31) else "(-2147483647 - 1)"
    text = np.format_float_scientific(np.float32(value), unique=True, trim="0", exp_digits=1)
    return f"{text}f"


def scalar(value: int | float) -> str:
    """A scalar argument in C; the largest floats and infinity have names."""
    name = LARGEST.get(abs(value)) if isinstance(value, float) else None
    return literal(value) if name is None else name if value > 0 else f"-{name}"


def comment(text: str) -> str:
    """A name made safe for a C comment; of a TFLite list of fused names, the first."""
    return written.comment(text.split(";")[0])


def shape_text(t: Tensor) -> str:
    dims = t.shape[1:] if len(t.shape) > 1 and t.shape[0] == 1 else t.shape
    return "x".join(map(str, dims)) or "1"


def first_memory(plan: Plan) -> str:
    """The memory whose arena is `N_arena`."""
    heights = plan.layout.heights
    return next((m for m, height in heights.items() if height), next(iter(heights)))


def at_macro(plan: Plan, memory: str) -> str:
    """The macro that makes a pointer into the arena of a memory."""
    return "AT" if memory == first_memory(plan) else f"AT_{memory.upper()}"


def label(plan: Plan, tensor: str) -> str:
    """The short name of a tensor, in comments on the schedule."""
    return plan.offset_names[tensor].removeprefix(f"{plan.name.upper()}_").lower()


def scratch_constant(plan: Plan, result: Tensor) -> str:
    """The C constant with the offset of the scratch buffer of the op that writes a tensor."""
    return f"{plan.offset_names[result.name]}_SCRATCH"


def newest_constant(plan: Plan, tensor: str) -> str:
    """The C constant with the offset of a ring's newest row, if that is separate."""
    return f"{plan.offset_names[tensor]}_NEWEST"


def access_functions(plan: Plan) -> dict[str, str]:
    """Name of the C function that gives the address of each input and output."""
    ports = ports_of(plan.graph)
    functions = surface.access_functions(plan.name, ports)
    if plan.request.stream_output:
        functions = functions[0], [f"{plan.name}_output_row"]
    names = [[port.name for port in side] for side in ports]
    return {name: function for side in zip(names, functions, strict=True) for name, function in zip(*side, strict=True)}


def address(plan: Plan, t: Tensor, behind: str = "") -> Arg:
    """A C pointer to a tensor or its ring. `behind`: C that is added to the pointer."""
    root, start = plan.rolling.views[t.name]
    place = plan.places[home := plan.homes.get(root, root)]
    if (array := plan.rolling.arrays.get(home)) is not None:
        return Arg(f"IN_ARRAY({C_TYPES[t.dtype]}, {array}, {{}}){behind}", start)
    text = f"{at_macro(plan, place.memory)}({C_TYPES[t.dtype]}, {{}}){behind}"
    return Arg(text, start, plan.offset_names[root], place.offset)


def row_offset(plan: Plan, rolled: RolledCalls, t: Tensor, sums: bool = False) -> str:
    """C for the offset of a row from the begin of its tensor or ring, in elements.

    `sums`: for a reduction, which takes rows of the storage, not of a view of it. Its result has no such offset: each
    call works on the whole.
    """
    graph, root = plan.graph, plan.rolling.storage[t.name]
    seen = root if sums else t.name
    rows = rolled.rings.get(rolled.inside.get(root, root), 0)
    if rows_of(graph, seen) != rows_of(graph, root):  # a view with other rows: the storage is whole
        rows = 0
    size = t.elements // rows_of(graph, seen)
    at = f"row % {rows}" if rows > 1 else "row"
    return "" if rows == 1 else f" + {times(at, size)}"


def newest(plan: Plan, t: Tensor) -> str:
    """A C pointer to the newest row of a ring, if that is separate."""
    place = plan.places[newest_name(t.name)]
    return f"{at_macro(plan, place.memory)}({C_TYPES[t.dtype]}, {newest_constant(plan, t.name)})"


def keep(plan: Plan, rolled: RolledCalls, name: str) -> str:
    """C that copies the separate newest row of a ring into the ring."""
    t = plan.graph.tensors[name]
    to = address(plan, t, row_offset(plan, rolled, t))
    return f"memcpy({to}, {newest(plan, t)}, {row_bytes(plan.graph, name)});"


def kept(plan: Plan, name: str) -> str:
    """The C constant of a row's copy into its ring: its number in the order's table, and the index of its counter."""
    return f"{label(plan, name).upper()}_KEPT"


def with_separate_rows(
    plan: Plan, rolled: RolledCalls, kernel: Kernel, tensors: Sequence[Tensor], ring_args: Sequence[Arg]
) -> list[Arg]:
    """Arguments of a call for `tensors`, of which the last is the result, if newest rows are separate.

    A row is written to its separate place. A `placed` kernel gets the address of the row that it reads, others both.
    """
    args = list(ring_args)
    for i, t in enumerate(tensors):
        if (root := plan.rolling.storage[t.name]) not in rolled.separate:
            continue
        own = plan.graph.tensors[root]
        if t is tensors[-1]:
            args[i] = Arg(newest(plan, own))
        elif kernel.placed:
            args[i] = Arg(f"row < rows[{kept(plan, root)}] ? {ring_args[i]} : {newest(plan, own)}")
    return args


# C for places in the first memory level and beyond: tiles, rings, constants, and copies of these before steps.

SCRATCH = "scratch"


@dataclass(frozen=True)
class Named:
    """A C constant for an offset in bytes; `note`: what lies there, or "" if the constant is defined elsewhere.

    `filled`: the kernel's constants are copied there.
    """

    name: str
    offset: int
    note: str = ""
    filled: bool = False

    def at(self, offset: int) -> str:
        """C for another offset, relative to this one."""
        more = offset - self.offset
        return self.name + (f" {'-' if more < 0 else '+'} {abs(more)}" if more else "")


def level1_place(plan: Plan, moved: MappedOp, at: int) -> tuple[str, int]:
    """The macro of the memory with this address, and the offset in that memory."""
    region = moved.region(at)
    if region is None:
        return at_macro(plan, moved.operands[0].space), at
    return at_macro(plan, region.memory), at - region.base


def tile_places(plan: Plan, moved: MappedOp) -> tuple[Named, ...]:
    """The first byte of the buffers for each argument of a call, and last of its scratch."""
    most = max(moved.kernels, key=lambda kernel: len(kernel.constants))
    stem, owners = f"{plan.offset_names[moved.op.outputs[0]]}_NEAR", moved.at_operands
    offsets = []
    for i in range(max(len(call.at) for call in moved.calls)):
        least = min(level1_place(plan, moved, c.at[i])[1] for c in moved.calls if i < len(c.at))
        if i >= len(owners):
            constant = most.constants[i - len(owners)].name
            note = f"{constant} of {comment(moved.op.name)}"
            offsets.append(Named(f"{stem}_{constant.upper()}", least, note, True))
            continue
        tensor = moved.operands[owners[i]].name
        root = plan.rolling.storage[tensor]
        letter = "Y" if i + 1 == len(owners) else "X" if len(owners) == 2 else f"X{i}"
        if moved.operands[owners[i]].held:
            offsets.append(Named(plan.offset_names[root], plan.places[root].offset))
        else:
            offsets.append(Named(f"{stem}_{letter}", least, f"tiles of {comment(tensor)}"))
    note = f"scratch of {comment(moved.op.name)}" if any(kernel.scratch for kernel in moved.kernels) else ""
    return (*offsets, Named(f"{stem}_SCRATCH", level1_place(plan, moved, moved.scratch)[1], note))


def ring(plan: Plan, step: int, stream: Stream) -> Named:
    """The ring to which rows of a stream are copied, or from which they leave."""
    name = f"{plan.offset_names[stream.storage]}_NEAR_{step}"
    return Named(name, stream.near, f"{stream.slots} rows of {comment(stream.storage)}")


def constant_key(constant: Constant, at: int) -> str:
    """The name in `run_places` of a constant that lies so far in the first level."""
    return f"{constant.name} at {at}"


def run_places(plan: Plan, step: int, run: StreamedRun) -> dict[tuple[str, str], Named]:
    """Places of a run: rings by (storage, ""), constants of its ops by (result, name), scratch by (result, SCRATCH)."""
    names, offsets = plan.offset_names, dict[tuple[str, str], Named]()
    for storage, at in run.places.items():
        if storage in run.held:
            offsets[storage, ""] = Named(names[storage], plan.places[storage].offset)
        else:
            offsets[storage, ""] = Named(f"{names[storage]}_NEAR", at, f"rows of {comment(storage)}")
    for stream in run.streams:
        offsets[stream.storage, ""] = ring(plan, step, stream)
    for op, parts, part_places in zip(run.ops, run.parts, run.constants, strict=True):
        stem, (y, *_) = f"{names[op.outputs[0]]}_NEAR", op.outputs
        first = {c.name: at for c, at in zip(parts[0].kernel.constants, part_places[0], strict=True)}
        for share, places in zip(parts, part_places, strict=True):
            for constant, at in zip(share.kernel.constants, places, strict=True):
                own = first.get(constant.name) != at
                note = f"{constant.name} of {comment(op.name)}{f' for part {share.first}' if own else ''}"
                name = f"{stem}_{constant.name.upper()}{f'_{share.first}' if own else ''}"
                offsets.setdefault((y, constant_key(constant, at)), Named(name, at, note, True))
        if y in run.scratch:
            offsets[y, SCRATCH] = Named(f"{stem}_SCRATCH", run.scratch[y], f"scratch of {comment(op.name)}")
    return offsets


def near_places(plan: Plan, step: int) -> list[Named]:
    """All places of a step in the first level."""
    moved = plan.moves[step]
    if isinstance(moved, StreamedRun):
        return list(run_places(plan, step, moved).values())
    return list(tile_places(plan, cast("MappedOp", moved)))


def places(plan: Plan) -> Iterator[Named]:
    """All places in the first level but those of the arena's tensors."""
    return (named for step in plan.moves for named in near_places(plan, step) if named.note)


def blocks(plan: Plan, weights: Weights) -> Mapping[int, Named]:
    """By step, the first byte in the weights of the constants that are fetched for it."""
    every = ((step, block_of(plan, step, moved, weights)) for step, moved in plan.moves.items())
    return {step: named for step, named in every if named is not None}


def block_of(plan: Plan, step: int, moved: Moves, weights: Weights) -> Named | None:
    """The first byte in the weights of the constants that are fetched for a step, if there are any."""
    filled = [block for block in fetched(plan, step, moved) if block.data.nbytes]
    if not filled:
        return None
    op = moved.ops[0]
    size = sum(block.data.nbytes for block in filled)
    note = f"{size} B: constants of step {step}, {comment(op.name)}"
    first = min(weights.offset(block) for block in filled)
    return Named(f"{plan.offset_names[op.outputs[0]]}_BLOCK", first, note)


def starts(plan: Plan) -> Iterator[tuple[int, Start]]:
    """The copies of constants that begin between steps, with the step before which each begins."""
    return ((i, t) for i, section in enumerate(plan.steps) for t in section.before if isinstance(t, Start))


def fetched(plan: Plan, step: int, moved: Moves) -> tuple[Constant, ...]:
    """The constants of a step as the weights hold them: in one piece if they come to the second level that way."""
    staged = {id(s.block): s.block for _, s in starts(plan) if s.copy.into and s.step == step}
    return moved.blocks if any(id(b) in staged for b in moved.blocks) or not staged else tuple(staged.values())


def stages(plan: Plan) -> Mapping[tuple[int, bool], tuple[Named, str, int]]:
    """Staging of each step's constants, or activations (True), in the second level: address, memory, and bytes."""
    by_step = dict[tuple[int, bool], tuple[Named, str, int]]()
    for step, moved in plan.moves.items():
        if isinstance(moved, TiledOp) and (slots := moved.slots) is not None:
            note = f"tiles on their way, step {step}: {comment(moved.op.name)}"
            named = Named(f"{plan.offset_names[moved.op.outputs[0]]}_SLOTS", slots.base, note)
            by_step[step, True] = named, slots.memory, slots.bytes
    for first, s in starts(plan):
        stage, op = plan.moves[s.step].stage, plan.steps[s.step].ops[0]
        if stage is not None and s.copy.into:
            note = f"constants of step {s.step}, steps {first} to {s.step}: {comment(op.name)}"
            named = Named(f"{plan.offset_names[op.outputs[0]]}_STAGE", stage.base, note)
            by_step[s.step, False] = named, stage.memory, stage.bytes
    return dict(sorted(by_step.items()))


def stage_at(plan: Plan, step: int, offset: int, activations: bool = False) -> str:
    """C for the address of constants, or of activations, that are staged in the second level."""
    named, memory, _ = stages(plan)[step, activations]
    return f"{at_macro(plan, memory)}(uint8_t, {named.at(offset)})"


def level1_address(plan: Plan, step: int, run: StreamedRun, t: Tensor, behind: str = "") -> Arg:
    """A C pointer to a tensor in the first level: to its ring in the run, or to its place for the whole inference."""
    root, start = plan.rolling.views[t.name]
    at = run_places(plan, step, run).get((root, "")) or Named(plan.offset_names[root], plan.places[root].offset)
    return Arg(f"{level1_macro(plan)}({C_TYPES[t.dtype]}, {{}}){behind}", start, at.name, at.offset)


def level1_macro(plan: Plan) -> str:
    """The macro of the first level."""
    return at_macro(plan, plan.target.levels[0].name)


def transfers(plan: Plan, weights: Weights) -> tuple[list[str], list[list[str]]]:
    """C initialisers of the copies of constants between steps, second level first, and statements before each step."""
    begun = sorted((s for _, s in starts(plan)), key=lambda s: (not s.copy.into, s.step))
    numbers = {id(s): number for number, s in enumerate(begun)}

    def statement(transfer: Transfer) -> str:
        if isinstance(transfer, Wait):
            return f"    eb_dma_wait({transfer.channel});"
        if isinstance(transfer, Start):
            copy = f"&{plan.name}_ahead[{numbers[id(transfer)]}]"
            return f"    eb_dma_start({transfer.copy.channel}, {copy}); /* constants of step {transfer.step} */"
        name = plan.offset_names.get(transfer.what, str(transfer.place.offset))
        at = f"{at_macro(plan, transfer.place.memory)}(uint8_t, {name})"
        return remark(f"    eb_cache_{transfer.kind}({at}, {transfer.bytes}); ", comment(transfer.what))

    before = [[*map(statement, section.before)] for section in plan.steps]
    end = [statement(t) for section in plan.steps[-1:] for t in section.after]
    return [_transfer(plan, s, weights) for s in begun], [*before, end]


def _transfer(plan: Plan, s: Start, weights: Weights) -> str:
    """The C initialiser of a copy of contiguous constants."""
    copy = s.copy
    if copy.stage and not copy.into:
        from_ = stage_at(plan, s.step, copy.far)
    else:
        from_ = f"WEIGHTS(uint8_t, {blocks(plan, weights)[s.step].at(weights.offset(s.block) + copy.far)})"
    below = [named for named in near_places(plan, s.step) if named.filled and named.offset <= copy.near]
    at = max(below, key=lambda named: named.offset).at(copy.near) if below else str(copy.near)
    to = stage_at(plan, s.step, copy.near) if copy.into else f"{level1_macro(plan)}(uint8_t, {at})"
    return f"{{.to = {to},\n .from = {from_},\n .bytes = {copy.bytes}, .rows = 1, .planes = 1}},"


def far_address(plan: Plan, storage: str) -> str:
    """C for the address of a tensor in a memory beyond the first level."""
    return f"{at_macro(plan, plan.places[storage].memory)}(uint8_t, {plan.offset_names[storage]})"
