"""Ops that run row by row or tile by tile: tables of calls and copies in order, and functions that execute them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import indent
from typing import TYPE_CHECKING, cast

from ...base.templates import plus, render
from ...base.text import remark, wrapped
from ..ops.base import C_TYPES, Kernel
from ..plan.printed import Copy, CoreWork, Operation, Share, Stream, StreamedRun, TiledOp, Wait
from ..plan.rolling import Rolled, rows_of
from ..plan.search import Plan
from ..plan.section import calls_in_slice
from .addresses import (
    Named,
    address,
    block_of,
    comment,
    far_address,
    keep,
    kept,
    label,
    level1_macro,
    level1_place,
    ring,
    row_offset,
    scalar,
    stage_at,
    tile_places,
)
from .call_loops import Arg, Call, Step
from .weights_file import Weights

if TYPE_CHECKING:
    from ..plan.dma.tiles import MappedOp

MAX_REPEATS = 255  # repeats of a line, and numbers in it: each is a byte


@dataclass(frozen=True)
class Line:
    """A line of a table: `numbers` are executed in order, `count` times."""

    count: int
    numbers: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return 2 + len(self.numbers)


@dataclass(frozen=True)
class Order:
    """The table of a rolled run. `labels`: by number, the op that computes its next row; `names`: its C constants."""

    lines: tuple[Line, ...]
    labels: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def bytes(self) -> int:
        return sum(line.bytes for line in self.lines)

    @property
    def printed(self) -> list[str]:
        """The table as C; a comment before each line lists the rows that its first execution computes."""
        table = []
        for line, words in zip(self.lines, in_words(self.lines, self.labels), strict=True):
            table += wrapped("/* ", words, " */", 112).splitlines()
            head = f"{line.count}, {len(line.numbers)}, "
            table += wrapped(head, [self.names[n] for n in line.numbers], ",", 112).splitlines()
        return table


def lines(order: Sequence[int], longest: int = 64) -> list[Line]:
    """The lines of fewest bytes that give the order; lines that repeat have at most `longest` numbers."""
    end = len(order)
    same = [[0] * (longest + 1) for _ in range(end + 1)]  # from `at` on, how many numbers equal those `length` later
    best = [(0, 0, 0)] * (end + 1)  # from `at` on: bytes, and count and length of the first line
    for at in reversed(range(end)):  # dynamic programming: `best[at]` follows from those behind it
        choices = []
        for length in range(1, min(MAX_REPEATS, end - at) + 1):
            choices.append((2 + length + best[at + length][0], 1, length))
            if length <= longest and at + length < end and order[at] == order[at + length]:
                same[at][length] = same[at + 1][length] + 1
                turns = min(MAX_REPEATS, 1 + same[at][length] // length)
                choices.append((2 + length + best[at + turns * length][0], turns, length))
        best[at] = min(choices)
    result, at = list[Line](), 0
    while at < end:
        _, count, length = best[at]
        result.append(Line(count, tuple(order[at : at + length])))
        at += count * length
    return result


def in_words(order: Sequence[Line], labels: Sequence[str]) -> list[list[str]]:
    """By line, the rows of each op that its first execution computes. `labels`: of the ops."""
    rows, line_words = [0] * len(labels), []
    for line in order:
        counters, words = list(rows), list[str]()
        for number, calls in groupby(line.numbers):
            count = len(list(calls))
            last = counters[number] + count - 1
            words.append(f"{labels[number]} {counters[number]}" + (f"-{last}" if count > 1 else ""))
            counters[number] += count
        rows = [before + line.count * (after - before) for before, after in zip(rows, counters, strict=True)]
        if line.count > 1:
            words[0] = f"{line.count} times: {words[0]}"
        line_words.append(words)
    return line_words


@dataclass(frozen=True)
class Case:
    """A case of the table's switch: its constant, and statements in C."""

    name: str
    comment: str
    text: str


def switch(on: str, cases: Sequence[Case], margin: int) -> str:
    """A C switch statement; the last case is its default."""
    blanks, lines = margin * " ", [f"{margin * ' '}switch ({on}) {{"]
    for number, case in enumerate(cases):
        head, words = f"{blanks}case {case.name}:", case.comment
        if number + 1 == len(cases):
            head, words = f"{blanks}default:", case.comment and f"{case.name}: {case.comment}"
        lines += [
            remark(f"{head} ", words) if words else head,
            indent(case.text, f"{blanks}    "),
            f"{blanks}    break;",
        ]
    return "\n".join([*lines, f"{blanks}}}"])


def rolled_step(plan: Plan, step: int, rolled: Rolled, calls: Sequence[Call]) -> Step:
    """The step of a rolled run whose rings lie in the arena. `calls`: of its ops."""
    labels = [label(plan, op.outputs[0]) for op in rolled.ops]
    names = (*map(_row_constant, labels), "PUSHED_ROW", *(kept(plan, name) for name in rolled.separate))
    called = (*labels, "the input", *(f"keep {label(plan, name)}" for name in rolled.separate))
    order = Order(tuple(lines(rolled.numbers)), called, names)
    pushed = _pushed(plan, rolled)
    cases = [Case(name, call.comment, call.text) for name, call in zip(names, calls, strict=False)]
    for name in rolled.separate:
        among = f"the newest row of {comment(name)} among the others"
        cases.append(Case(kept(plan, name), among, keep(plan, rolled, name)))
    cases += [Case("PUSHED_ROW", "a row of the input", pushed)] if pushed else []
    first, last = calls[0].comment, calls[-1].comment
    count, end = (f"{len(calls)} ops ", f" to {last}") if len(calls) > 1 else ("", "")
    far = ", as far as the rows of the input go" if pushed else ""
    text = f"{count}row by row{far}, {plan.schedule.profile[step]} B live: {first}{end}"
    alone = sum(line.count * len(line.numbers) for line in order.lines) if len(calls) == 1 and not pushed else 0
    caller = plan.request.arena == "caller"
    name, argument = f"{plan.name}_rows_{step}", "void *arena" if caller else "void"
    function, statement = f"static void {name}({argument})", f"{name}({'arena' if caller else ''});"
    sliced = calls_in_slice(plan.graph, plan.steps[step], plan.target, plan.request.max_slice)
    if sliced:
        function, statement = function.replace("void", "int32_t", 1), f"done = {name}();"
    if pushed:
        item = C_TYPES[plan.graph.tensors[plan.graph.inputs[0]].dtype]
        function = f"static int32_t {name}(const {item} *pushed, int32_t count)"
        statement = f"if ({name}(rows, count) == 0) {{\n    return 0;\n}}"
    printed = names if pushed else (*names[: len(calls)], *names[len(calls) + 1 :])
    definition = render(
        "rows.c:rows", name=plan.name, step=step, comment=text, function=function, order=order, names=printed,
        pushed=bool(pushed), sliced=sliced, kept=bool(rolled.separate), alone=alone, call=calls[0],
        switch=switch("call", cases, 12),
        others="the input" if pushed else "", streamed=None,
    )  # fmt: skip
    return Step(text, statement, tuple(calls), function, definition, sliced=bool(sliced))


def _pushed(plan: Plan, rolled: Rolled) -> str:
    """C that copies a row that the application pushes; empty if it pushes none to this run."""
    streamed = plan.rolling.streamed
    if streamed is None or streamed not in {**rolled.rings, **rolled.inside}:
        return ""
    t = plan.graph.tensors[streamed]
    x, rows = plan.graph.tensors[plan.graph.inputs[0]], rows_of(plan.graph, plan.graph.inputs[0])
    to = address(plan, t, row_offset(plan, rolled, t))
    return f"memcpy({to}, pushed, {x.bytes // rows});\npushed += {x.elements // rows};"


def _row_constant(name: str) -> str:
    """The C constant of an op's next row in the order's table."""
    return f"{name.upper()}_ROW"


def streamed_step(plan: Plan, step: int, run: StreamedRun, calls: Sequence[Sequence[Call]]) -> Step:
    """The step of a run in the first level. `calls`: for each op, in order, the calls for its parts."""
    results, brought = ([label(plan, name) for name in names] for names in (
        [op.outputs[0] for op in run.ops], [s.storage for s in run.inputs]))  # fmt: skip
    names = (*map(_row_constant, results), *(f"{_row_constant(name)}_FOR_{step}" for name in brought))
    order = Order(tuple(lines(run.events)), (*results, *(f"bring {name}" for name in brought)), names)
    pairs = {s.storage: f"&streams[{i}], {plus('under_way', 2 * i)}" for i, s in enumerate(run.streams)}
    cores, cases, work = run.together * run.shares, list[Case](), list[Case]()
    for number, (name, op, same_op, count) in enumerate(zip(names, run.ops, calls, run.counts, strict=False)):
        shared = cores > 1 and plan.rolling.modes[op.outputs[0]] != "reduce"
        text = same_op[0].text
        if shared:
            work.append(Case(name, same_op[0].comment, _work(run.parts[number] if run.shares > 1 else (), same_op)))
            rows = [f"row < {(count - 1) // run.together} ? (row + 1) * {run.together} : {count}"]
            rows = [name, f"row * {run.together}", *rows]
            text = f"eb_cores_run(\n    {plan.name}_make_{step},\n    &({plan.name}_rows){{{', '.join(rows)}}});"
        stream = next((s for s in run.outputs if s.storage == op.outputs[0]), None)
        if stream is not None:
            store = f"{plan.name}_row({pairs[stream.storage]}, {'0' if stream.whole else 'row'});"
            if stream.whole:
                text += f"\nif (row == {count - 1}) {{\n    {store}\n}}"
            else:
                free = f"{plan.name}_free(&streams[{run.streams.index(stream)}], row);"
                text = f"{free}\n{text}\n{store}" if stream.copies > 2 else f"{text}\n{store}"
        cases.append(Case(name, same_op[0].comment, text))
    what = "a row" if run.together == 1 else "rows"
    for name, stream in zip(names[len(run.ops) :], run.inputs, strict=True):
        cases.append(
            Case(name, f"{what} of {comment(stream.storage)}", f"{plan.name}_bring({pairs[stream.storage]}, row);")
        )
    by = "row by row" if run.together == 1 else f"by {run.together} rows"
    by += f", each in at most {run.shares} parts" if run.shares > 1 else ""
    first, last = comment(run.ops[0].name), comment(run.ops[-1].name)
    text = f"{len(run.ops)} ops from {first} to {last}, {by}, {len(run.events)} calls"
    streamed = {  # besides the table: statements before it, channels to wait for at the end, and each core's work
        "streams": [_stream(plan, step, s) for s in run.streams],
        "first": [f"{plan.name}_row({pairs[s.storage]}, 0);" for s in run.inputs],
        "waits": [s.channel + odd for s in run.streams for odd in range(min(2, s.copies))],
        "shares": run.shares,
        "work": switch("rows->call", work, 4) if work else "",
    }
    function = f"static void {plan.name}_fed_{step}(void)"
    definition = render(
        "rows.c:rows", name=plan.name, step=step, comment=text, function=function, order=order, names=names,
        pushed=False, sliced=0, kept=False, alone=0, call=None, switch=switch("call", cases, 12),
        others="what comes from a farther memory", streamed=streamed,
    )  # fmt: skip
    return Step(text, f"{plan.name}_fed_{step}();", (), function, definition, "streams")


def stream_tables(plan: Plan) -> str:
    """Types and functions that all runs in the first level share."""
    runs = [run for run in plan.moves.values() if isinstance(run, StreamedRun)]
    freed = any(s.copies > 2 for run in runs for s in run.outputs)
    return render(
        "rows.c:stream_tables", name=plan.name, several=any(run.together * run.shares > 1 for run in runs),
        streams=any(run.streams for run in runs), fetched=any(run.inputs for run in runs), freed=freed,
    )  # fmt: skip


def _work(parts: Sequence[Share], calls: Sequence[Call]) -> str:
    """C for a core's calls, each guarded by its parts of a row; without parts, one call for the whole row."""
    if not parts:
        return calls[0].text
    pairs = zip(map(_parts, parts), calls, strict=True)
    return "\n".join(f"if ({condition}) {{\n{indent(call.text, '    ')}\n}}" for condition, call in pairs)


def _parts(share: Share) -> str:
    """The C condition that a part of a row is one of these."""
    if share.past == share.first + 1:
        return f"part == {share.first}"
    return f"part < {share.past}" if share.first == 0 else f"part >= {share.first} && part < {share.past}"


def _stream(plan: Plan, step: int, s: Stream) -> str:
    """The row of a stream in the table of its run."""
    near = f"{level1_macro(plan)}(uint8_t, {ring(plan, step, s).name})"
    size = s.total if s.whole else s.together * s.bytes
    numbers = (
        s.channel,
        s.copies,
        s.copies if s.whole else -(-s.slots // s.together),
        size,
        s.total - (s.copies - 1) * size,
    )
    return _braced((near, far_address(plan, s.storage), *map(str, numbers), str(int(s.fetched))))


# Ops that run tile by tile, as loops over static tables of copies and turns.

WAITS, CALLS, COPIES = range(3)  # kinds of operations, in their order within a turn
SLOTS = 32  # most copies under way that the tables' C function keeps, on its stack


@dataclass(frozen=True)
class _Turn:
    """A mask of channels to wait for, the calls after that, and the number of copies that start then."""

    waits: str
    started: int
    base: int  # number of the row of places
    first: int  # number of its first call
    parts: int


@dataclass(frozen=True)
class _Turns:
    """Tables of an op's turns. `before`: copies to start before the loop; `after`: the mask to wait for behind it."""

    kinds: tuple[_Turn, ...]  # the different turns
    order: tuple[int, ...]  # the number of each turn's kind
    bases: tuple[tuple[int, ...], ...]  # offsets of operands, result and constants of a turn
    parts: tuple[tuple[int, tuple[int, ...]], ...]  # calls: their kernel and what they add to `bases`; equal calls once
    before: int
    after: int


def tiled_step(plan: Plan, step: int, moved: MappedOp, kernels: Sequence[tuple[Kernel, str]], weights: Weights) -> Step:
    """The step of an op in tiles. `kernels`: the op's kernels as they are printed, and their C functions."""
    loops = " > ".join(f"{loop['axis']} {loop['extent']}/{loop['tile']}" for loop in moved.loops)
    where = f" on {moved.engine}" if moved.regions else ""
    called = sum(isinstance(o, tuple) for o in moved.script)
    calls = f"{called} calls" if called > 1 else "1 call"
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
    flying = under_way(moved.script)
    function = f"static void {plan.name}_tiles_{step}(void)"
    definition = render(
        "tiles.c:tiles", name=plan.name, step=step, comment=text, function=function, forms=forms, copies=copies,
        slots=max(1, min(flying, SLOTS)), turns=turns, several=several, width=len(places) - 1,
        bases=bases if len(bases) > 1 else (),
        parts=() if alike else [f"{{{kernel}, {_braced(map(str, at))}}}" for kernel, at in turns.parts],
        call=switch("part->kernel", cases, 4) if len(cases) > 1 else indent(cases[0].text, "    "),
        pauses=called < len(turns.order), wide=_wide(plan),
        turn_type=_unsigned(len(turns.kinds)),
        part_type=_unsigned(max((max(kernel, *at) for kernel, at in turns.parts), default=0)),
    )  # fmt: skip
    return Step(text, f"{plan.name}_tiles_{step}();", (), function, definition, "tiles")


def tile_tables(plan: Plan) -> str:
    """Types of the tables of all ops in tiles, and the functions that execute the tables."""
    tiled = _tiled(plan)
    return render(
        "tiles.c:tile_tables", name=plan.name, cores=plan.target.cores, most_slots=SLOTS,
        wide=_wide(plan),
        count_type=_unsigned(max(len(m.copies) + 2 * len(m.calls) for m in tiled)),
        copies=any(m.copies for m in tiled), waits_for_slots=any(under_way(m.script) > SLOTS for m in tiled),
    )  # fmt: skip


def _tiled(plan: Plan) -> list[MappedOp]:
    return [cast("MappedOp", m) for m in plan.moves.values() if isinstance(m, TiledOp)]


def _wide(plan: Plan) -> bool:
    """Whether masks of channels have two words."""
    return any(c.channel >= 32 for m in _tiled(plan) for c in m.copies)


def _mask(channels: Iterable[int], wide: bool) -> str:
    mask = sum(1 << channel for channel in set(channels))
    return _braced((f"{mask % (1 << 32):#x}", f"{mask >> 32:#x}")) if wide else f"{mask:#x}"


def under_way(script: Sequence[Operation]) -> int:
    """The most consecutive copies between the oldest that is not waited for and the newest, both included."""
    first, most, number = dict[int, int](), 0, 0  # by channel: the oldest copy that no step has waited for
    for o in script:
        if isinstance(o, Wait):
            first.pop(o.channel, None)
        elif isinstance(o, Copy):
            first.setdefault(o.channel, number)
            number += 1
            most = max(most, number - min(first.values()))
    return most


def _grouped(script: Sequence[Operation]) -> list[tuple[list[int], tuple[CoreWork, ...], int]]:
    """The script by turns: channels to wait for, calls of cores, and the number of copies to start."""
    turns, last = list[tuple[list[int], tuple[CoreWork, ...], int]](), COPIES + 1
    for o in script:
        kind = WAITS if isinstance(o, Wait) else COPIES if isinstance(o, Copy) else CALLS
        if kind < last or kind == last == CALLS:
            turns.append(([], (), 0))
        waits, calls, started = turns[-1]
        if isinstance(o, Wait):
            waits.append(o.channel)
        turns[-1] = (waits, o, 0) if isinstance(o, tuple) else (waits, calls, started + isinstance(o, Copy))
        last = kind
    return turns


def _copies(
    plan: Plan, step: int, moved: MappedOp, weights: Weights, places: Sequence[Named]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copies that differ in more than the far side's offset; and for each copy its form and that offset."""
    forms, rows = dict[str, int](), list[str]()
    stored = {c.block for c in moved.copies if not c.tensor and (c.into or not c.stage)}
    offsets = {block: weights.offset(moved.blocks[block]) for block in stored}
    fixed, first = min(offsets.values(), default=0), block_of(plan, step, moved, weights) if stored else None
    owners = moved.at_operands
    for c in moved.copies:
        through = bool(c.tensor)
        (macro, offset), number = level1_place(plan, moved, c.near), c.channel // 2
        owner = places[owners.index(number) if number in owners else len(owners)]
        there = stage_at(plan, step, c.near, through) if c.into else f"{macro}(uint8_t, {owner.at(offset)})"
        if c.stage and not c.into:
            far, more, what = stage_at(plan, step, c.far, through), 0, comment(c.tensor) or "constants"
        elif c.tensor:
            far = far_address(plan, plan.rolling.storage[c.tensor])
            more, what = c.far + plan.rolling.views[c.tensor][1], comment(c.tensor)
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


def _turns(plan: Plan, moved: MappedOp, width: int) -> _Turns:
    """The turns of an op. A call's places are relative to its turn's, the least of all its calls."""
    first_parts, bases, kinds = dict[object, int](), dict[tuple[int, ...], int](), dict[_Turn, int]()
    parts, turns = list[tuple[int, tuple[int, ...]]](), list[int]()
    wide, groups, before, after = _wide(plan), _grouped(moved.script), 0, list[int]()
    if sum(bool(calls) for _, calls, _ in groups) == 1:  # nothing to loop over
        before = groups.pop(0)[2] if not any(groups[0][:2]) else 0
        after = groups.pop()[0] if not any(groups[-1][1:]) else []
    for waits, calls, started in groups:
        places = [[level1_place(plan, moved, at)[1] for at in call.at] for call in calls]
        least = [min(at[i] for at in places if i < len(at)) for i in range(max(map(len, places), default=0))]
        least += [0] * (width - len(least))
        rows = tuple(_part(call, at, least) for call, at in zip(calls, places, strict=True))
        if rows not in first_parts:
            first_parts[rows] = len(parts)
            parts += rows
        base = bases.setdefault(tuple(least), len(bases)) if rows else 0
        kind = _Turn(_mask(waits, wide), started, base, first_parts[rows], len(rows))
        turns.append(kinds.setdefault(kind, len(kinds)))
    return _Turns(tuple(kinds), tuple(turns), tuple(bases), tuple(parts), before, sum(1 << c for c in after))


def _part(call: CoreWork, at: Sequence[int], base: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    more = [a - b for a, b in zip(at, base, strict=False)]
    return call.kernel, (*more, *[0] * (len(base) - len(more)))


def _unsigned(largest: int) -> str:
    """The narrowest type of C for numbers from 0 to `largest`."""
    return f"uint{8 if largest < 1 << 8 else 16 if largest < 1 << 16 else 32}_t"


def _braced(words: Iterable[str]) -> str:
    return f"{{{', '.join(words)}}}"


def _call(
    plan: Plan,
    moved: MappedOp,
    number: int,
    kernel: Kernel,
    name: str,
    turns: _Turns,
    places: Sequence[Named],
    several: bool,
) -> Call:
    """The call of a kernel, with pointers from the C variables `base` and `part`."""
    op = moved.op
    read = [plan.graph.tensors[n] for n in op.inputs if not plan.graph.tensors[n].constant]
    types = [C_TYPES[t.dtype] for t in (*read, plan.graph.result(op))]
    types += [C_TYPES[str(c.data.dtype)] for c in kernel.constants]
    at = next(call.at for call in moved.calls if call.kernel == number)
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
