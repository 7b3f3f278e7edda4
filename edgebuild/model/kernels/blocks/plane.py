"""Depthwise convolution with any window, channel by channel through a plane: the algorithm, for any instruction set.

A channel of the operand is copied into a plane with its padding around it. So no window needs a test of borders, and
the result may overwrite the operand. Outputs of a line of the plane are computed in blocks, which share their loads of
weights and of the plane; where blocks do not divide a line, the last one computes some outputs again. The whole
layer is one function in assembly, from which the estimate is counted. A `Core` has the instructions.

Sizes and steps are `numbers` of the layer. Cores that load them from a table share one function between all layers
with the same window; others have them printed into a function of each layer.

Lines of the plane are rows of the image, or columns where that takes fewer instructions. Row by row, the plane has only
rows under the window alone. Where the result has several channels for each of the operand, one plane serves them all.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import ClassVar

import numpy as np

from ...ir import Array
from ...ops import spatial
from ...ops.base import Constant, Form, Kernel, Sums, Traffic
from ...ops.spatial import computed_once, in_place, words
from ..micro import Function, Loop, Part
from . import sum_kernels

LABELS = {"piece": "0", "block": "6"}  # labels of the loops along a line
MAX_PRODUCTS = 60  # multiplications of a block that are written out; more of them go through a loop over rows
CALL, LISTED = 20, 14  # instructions of compiled C: a call with its arguments, a row of a list
Numbers = dict[str, int | float]


@dataclass(frozen=True)
class Axis:
    """An axis of the window, the operand and the result. `step`, `step_y`: bytes from an element to the next."""

    taps: int
    dilation: int
    stride: int
    before: int  # padding; below 0, elements that no window covers
    size: int
    step: int
    count: int
    step_y: int

    @property
    def reach(self) -> int:
        """Elements of the plane under all windows."""
        return (self.count - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    @property
    def left(self) -> int:
        """Elements of padding before the operand."""
        return max(0, self.before)

    @property
    def used(self) -> int:
        """Elements of the operand that are copied."""
        return min(self.size + min(0, self.before), self.reach - self.left)


@dataclass(frozen=True)
class Plane:
    """The parameters of a layer's function: `times` results per channel, `together` outputs of a line at a time.

    `listed`: the operand is a list of rows. `clears`: the plane has padding. `piece`: elements of a line copied at a
    time. `turn`: rows of the window that are written out. `finish`: the core's name of how sums become results.
    """

    lines: Axis
    run: Axis
    channels: int
    times: int
    listed: bool
    clears: bool
    together: int
    piece: int
    turn: int
    finish: str

    @property
    def taps(self) -> int:
        return self.lines.taps * self.run.taps

    @property
    def looped(self) -> bool:
        """Whether a loop goes through the rows of the window."""
        return self.turn < self.lines.taps

    def moves(self, row: int) -> bool:
        """Whether another row of the window is read after `row`."""
        return self.looped or row + 1 < self.turn

    @property
    def window(self) -> Plane:
        """The plane without the numbers that a function loads: layers that differ in these alone share the function."""
        run = replace(self.run, before=0, size=0, step=0, count=0, step_y=0)
        lines = Axis(self.lines.taps, 0, 0, 0, 0, 0, 0, 0)
        return replace(self, lines=lines, run=run, channels=0, times=min(2, self.times))


@dataclass(frozen=True)
class Ends:
    """The rescaling of sums: its name, int32 for each channel, int8 for each channel, and scalars of the function."""

    name: str
    words: Array
    bytes: Array
    scalars: Numbers


def rounded(s: Sums) -> Ends | None:
    """Ends with start, multiplier and rounding as words, the shift as bytes: see `sum_kernels.finish`; or None."""
    how, rest = sum_kernels.finish(s)
    if how == "general":
        return None
    multiplier, rounding, shift = (constant.data for constant in rest)
    name = f"{'away' if how == 'signed' else 'up'}{'' if s.full_range else '_clamped'}"
    return Ends(name, np.stack([s.start, multiplier, rounding], axis=1).astype(np.int64), shift[:, None],
                s.bounds(not s.full_range))  # fmt: skip


class Core(ABC):
    """An instruction set: its registers, and the operations of the algorithm as lines of assembly."""

    variant: ClassVar[str] = "plane"
    loads: ClassVar[bool] = False  # numbers come from a table; pointers move from row to row of the window
    in_registers: ClassVar[dict[str, str]] = {}  # numbers in registers while the plane is filled
    blocks: ClassVar[tuple[int, ...]] = (4, 3, 2, 1)  # outputs at a time to try
    width: ClassVar[int] = 1  # taps that a multiplication takes
    each: ClassVar[int] = 8  # elements that an iteration of a printed loop copies
    over: ClassVar[int] = 0  # bytes that are read past the end of the stream
    far: ClassVar[int]  # the largest offset of a load from the plane
    x: ClassVar[str]  # registers: pointers to the plane and the weights, and the weights' end in a loop over rows
    w: ClassVar[str]
    past: ClassVar[str]
    source: ClassVar[str]  # registers while the plane is filled: pointers to operand and plane
    to: ClassVar[str]
    rows: ClassVar[str]  # pointer to the list of rows
    count: ClassVar[str]
    end: ClassVar[str]
    spare: ClassVar[str]
    kept: ClassVar[str] = ""  # the spare register, if the blocks of a line preserve it
    scalars: ClassVar[tuple[str, ...]]  # parameters of ends

    # Instructions: lines of assembly, those of `text` with "; " between them. get, put: a register and a stack offset.
    # until: branch unless both registers are equal; equal: branch to a near label if they are; within: branch unless
    # the pointer is past the last one; back: decrement, and branch unless 0.

    text: ClassVar[Mapping[str, str]]
    at: dict[str, int]  # bytes from the stack pointer to arguments and numbers of the function

    enter: Callable[[Sequence[str]], list[Part]]
    leave: Callable[[], list[Part]]
    set: Callable[[str, int], list[str]]
    add: Callable[[str, str, int | str], list[str]]  # to one register the sum of another and a number, or a register
    temporary: Callable[[str], str]  # a register for the addend of a pointer
    clear: Callable[[], list[Part]]  # fill the scratch with padding
    listed: Callable[[], list[str]]  # load the next address of the list as the source, at the channel
    few: Callable[[int], list[Part]]  # copy so many elements from source to plane; advance both
    begin: Callable[[], list[str]]  # load the weights and the ends of the next channel
    starts: Callable[[int], list[str]]  # start so many sums, before a loop
    row: Callable[[int, int], list[str]]  # products of a row, counted from the pointers, for some outputs
    results: Callable[[int], list[Part]]  # store the results of so many sums; advance the pointer
    out_on: Callable[[str], list[str]]  # advance the result's pointer by a number of the layer

    def __init__(self, p: Plane) -> None:
        self.p = p
        self.numbers = {} if self.loads else numbers(self)
        self.begun = set[int]()  # outputs of a block that have a sum

    def emit(self, name: str, *operands: object) -> list[str]:
        """The instructions of `text` with these operands."""
        return self.text[name].format(*operands).split("; ")

    def get(self, register: str, name: str) -> list[str]:
        return self.emit("get", register, self.at[name])

    def put(self, register: str, name: str) -> list[str]:
        return self.emit("put", register, self.at[name])

    @classmethod
    def ends(cls, s: Sums) -> Ends | None:
        """Ends of sums; None if they take more than a few instructions."""
        return rounded(s)

    @classmethod
    def stream(cls, rows: Array, dilation: int) -> Array:
        """Weights, channels x rows of the window x taps, as the core reads a row."""
        return rows

    @classmethod
    def serves(cls, p: Plane) -> bool:
        """Whether the offsets of its instructions reach."""
        return True

    def pace(self, form: Form) -> float:
        return 1.0

    @classmethod
    def item_of(cls, run: Axis) -> int:
        """Bytes of an element of the plane."""
        return 1

    # Sizes ---------------------------------------------------------------------------------------

    @property
    def item(self) -> int:
        return self.item_of(self.p.run)

    @property
    def line(self) -> int:
        """Bytes of a line of the plane; lines begin at even elements."""
        return (self.p.run.reach + self.p.run.reach % 2) * self.item

    @property
    def lead(self) -> int:
        """Bytes of the scratch before the plane."""
        return 0

    @property
    def corner(self) -> int:
        """Bytes of the scratch before the first element that is copied."""
        return self.lead + self.p.lines.left * self.line + self.p.run.left * self.item

    @property
    def bytes(self) -> int:
        """Bytes of the scratch. Vectors and words may be read past the end of the plane."""
        return -(-(self.lead + self.p.lines.reach * self.line + 16) // 16) * 16

    @property
    def row_bytes(self) -> int:
        """Bytes of the stream for a row of weights."""
        return self.p.run.taps

    def copied(self, used: int) -> int:
        """Elements by which both pointers advance when `used` are copied."""
        return used

    def number(self, register: str, name: str) -> list[str]:
        return self.get(register, name) if self.loads else self.set(register, self.numbers[name])

    def move(self, place: str, name: str) -> list[str]:
        """Advance a pointer by a number of the layer."""
        if not self.loads:
            return self.add(place, place, self.numbers[name])
        if name in self.in_registers:
            return self.add(place, place, self.in_registers[name])
        by = self.temporary(place)
        return [*self.add(place, place, 0), *self.get(by, name), *self.add(place, place, by)]

    def prepared(self) -> list[str]:
        """Instructions before a plane is filled: load the numbers that registers hold."""
        there = [name for name in self.in_registers if name in numbers(self)]
        return [line for name in there for line in self.get(self.in_registers[name], name)]

    def copy(self) -> list[Part]:
        """Copy one line into the plane."""
        return _along(self, "piece", self.few, (self.to, self.end), self.p.run.used, self.p.piece, self.item)

    def steps(self) -> list[str]:
        """Instructions before the rows of a window, for pointers that move from row to row."""
        return []

    def next_row(self) -> list[str]:
        """Advance the plane's pointer to the next row of the window; nothing if offsets reach it."""
        return []

    def written_rows(self, count: int) -> Sequence[str]:
        """Products of the rows of the window that are written out, for `count` outputs."""
        code = list[str]()
        for row in range(self.p.turn):
            code += [*self.row(count, row), *(self.next_row() if self.p.moves(row) else [])]
        return code

    def increment(self, name: str) -> list[str]:
        return [*self.get(self.spare, name), *self.add(self.spare, self.spare, 1), *self.put(self.spare, name)]

    def counter(self, name: str) -> list[str]:
        """Initialise a loop's counter with a number of the layer."""
        return [*self.number(self.spare, name), *self.put(self.spare, f"{name} left")]

    def down(self, name: str, label: str) -> list[str]:
        """Decrement the counter; branch to the label unless it is 0."""
        last = self.emit("back", self.spare, label)
        return [*self.get(self.spare, f"{name} left"), last[0], *self.put(self.spare, f"{name} left"), *last[1:]]


def numbers(c: Core) -> dict[str, int]:
    """Sizes and steps of a layer, in bytes: distances in the plane, the operand and the result.

    `last_piece`, `last_block`: from the begin of a line to the begin of the last one; `piece_back`, `block_back`: how
    far the other pointer moves back if the last one overlaps the one before. `row`: to the next row under a window.
    """
    p, on, row = c.p, c.p.run.stride * c.item, c.p.lines.dilation * c.line
    copied = c.copied(p.run.used)
    behind = p.lines.taps if p.looped else p.lines.taps - 1  # rows by which a block has moved
    image = {} if p.listed else {
        "corner": c.corner, "filled": p.lines.used, "source_on": p.lines.step - copied * p.run.step,
        "lines": p.lines.count, "line_next": p.lines.stride * c.line - p.run.count * on,
        "out_next": p.lines.step_y - p.run.count * p.run.step_y,
    }  # fmt: skip
    return {
        **image, "bytes": c.bytes // 16 * 16, "line_on": c.line - copied * c.item, "step": p.run.step,
        "last_piece": (p.run.used - p.piece) * c.item, "piece_back": -(-p.run.used % p.piece) * p.run.step,
        "channels": p.channels, "times": p.times,
        "last_block": (p.run.count - p.together) * on, "block_back": -(-p.run.count % p.together) * p.run.step_y,
        "step_y": p.run.step_y, "row": row,
        "block_on": p.together * on - behind * row,
    }  # fmt: skip


def turns(c: Core) -> dict[str, float]:
    """Iterations of the loops of a layer, by name."""
    p = c.p
    return {
        "bytes": c.bytes // 16, "filled": p.lines.used, "channels": p.channels, "times": p.times,
        "lines": p.lines.count, "pieces": -(-p.run.used // p.piece), "odd piece": p.run.used % p.piece > 0,
        "blocks": -(-p.run.count // p.together), "odd block": p.run.count % p.together > 0,
    }  # fmt: skip


def _along(
    c: Core, name: str, body: Callable[[int], list[Part]], places: tuple[str, str], count: int, each: int, step: int
) -> list[Part]:
    """Code along a line of `count` elements, `each` at a time; a rest is shorter or, if numbers are loaded, overlaps.

    `places`: registers of the pointer, which the body advances by `step` an element, and of the last body's begin.
    """
    (at, last), label = places, LABELS[name]
    keep, load = (c.put(last, "last"), c.get(last, "last")) if last == c.spare != c.kept else ([], [])
    if not c.loads:
        whole, rest = divmod(count, each)
        loop = [f"{label}:", *body(each), *load, *c.emit("until", at, last, f"{label}b")] if whole > 1 else body(each)
        begin = [*c.add(last, at, whole * each * step), *keep] if whole > 1 else []
        return [*begin, Loop(whole, tuple(loop)), *(body(rest) if rest else [])]
    code: list[Part] = [*c.add(last, at, 0), *c.move(last, f"last_{name}"), *keep]
    code.append(Loop(f"{name}s", (f"{label}:", *body(each), *load, *c.emit("within", at, last, f"{label}b"))))
    back = c.move(c.source, "piece_back") if name == "piece" else c.out_on("block_back")
    again = [*c.add(last, last, -each * step), *c.add(at, last, 0), *back, *c.emit("jump", f"{label}b")]
    return [
        *code,
        *c.add(last, last, each * step),
        *c.emit("equal", at, last, "10f"),
        Loop(f"odd {name}", tuple(again)),
        "10:",
    ]


def _filled(c: Core) -> list[Part]:
    """Copy a channel into its plane."""
    on = c.move(c.to, "line_on")
    if c.p.listed:
        head = [
            *c.get(c.rows, "x"),
            *c.get(c.to, "to"),
            *c.get(c.spare, "rows_end"),
            *c.emit("until", c.rows, c.spare, "2f"),
        ]
        line = ["2:", *c.listed(), *c.copy(), *on, *c.get(c.spare, "rows_end"), *c.emit("until", c.rows, c.spare, "2b")]
        return [*c.prepared(), *head, *c.emit("jump", "3f"), Loop("rows", tuple(line)), "3:", *c.increment("channel")]
    line = ["2:", *c.copy(), *on, *c.move(c.source, "source_on"), *c.emit("back", c.count, "2b")]
    head = [*c.get(c.source, "x"), *c.get(c.to, "plane"), *c.move(c.to, "corner"), *c.number(c.count, "filled")]
    return [*c.prepared(), *head, Loop("filled", tuple(line)), *c.increment("x")]


def _block(c: Core, count: int) -> list[Part]:
    """Compute `count` neighbouring outputs."""
    p, code = c.p, list[Part]()
    c.begun.clear()
    if p.looped:
        code += c.starts(count)
        c.begun |= set(range(count))
    code += c.steps()
    rows = c.written_rows(count)
    printed = 0 if c.loads else c.numbers["row"]
    if p.looped:
        turn = ["7:", *rows, *c.add(c.x, c.x, p.turn * printed), *c.add(c.w, c.w, p.turn * c.row_bytes)]
        code.append(Loop(p.lines.taps // p.turn, (*turn, *c.emit("until", c.w, c.past, "7b"))))
        code += c.add(c.w, c.w, -p.lines.taps * c.row_bytes)
    else:
        code += [*rows, *c.add(c.w, c.w, 0)]
    on = count * p.run.stride * c.item - p.looped * p.lines.taps * printed
    return [*code, *(c.move(c.x, "block_on") if c.loads else c.add(c.x, c.x, on)), *c.results(count)]


def _lines(c: Core) -> list[Part]:
    """Compute all outputs of a channel, line by line."""
    p = c.p
    places = c.x, c.spare
    line = _along(c, "block", partial(_block, c), places, p.run.count, p.together, p.run.stride * c.item)
    if p.listed or (p.lines.count == 1 and not c.loads):
        return line
    line = ["5:", *line, *c.move(c.x, "line_next"), *c.out_on("out_next"), *c.down("lines", "5b")]
    return [*c.counter("lines"), Loop("lines", tuple(line))]


@lru_cache(maxsize=1 << 10)
def function(core: type[Core], p: Plane, name: str) -> Function:
    """The function of a whole layer in assembly."""
    c = core(p)
    names = arguments(core, p)
    entered = c.enter(names)
    kinds = {"x": "const int8_t *const *" if p.listed else "const int8_t *", "taps": "const int8_t *",
             "ends": "const int32_t *", "y": "int8_t *", "plane": "int8_t *", "to": "int8_t *",
             "rows_end": "const int8_t *const *", "numbers": "const int32_t *"}  # fmt: skip
    result = ["8:", *c.begin(), *_lines(c)]
    if p.times > 1:
        result = [*c.counter("times"), Loop("times", (*result, *c.down("times", "8b")))]
    channel = Loop("channels", ("1:", *_filled(c), *result, *c.down("channels", "1b")))
    begin = c.counter("channels")
    begin += [*c.set(c.spare, 0), *c.put(c.spare, "channel")] if p.listed else []
    remark = (
        f"Channels through a plane, {p.together} outputs of a line at a time. "
        f"{'x: the rows that are there; to: where the first of them goes. ' if p.listed else ''}"
        "taps: weights by channel; ends: the start value and the factors."
        f"{' numbers: ' + ', '.join(numbers(c)) + '.' if c.loads else ''}"
    )
    return Function(
        name, tuple(f"EB_REG {kinds.get(n, 'int32_t ')}{n}" for n in names), remark,
        (*entered, *(c.clear() if p.clears else ()), *begin, channel, *c.leave()),
    )  # fmt: skip


def arguments(core: type[Core], p: Plane) -> tuple[str, ...]:
    """Names of the function's parameters."""
    scalars = [n for n in core.scalars if n not in ("low", "high") or p.finish.endswith("_clamped")]
    scalars = [n for n in scalars if n != "unit" or "2" not in p.finish]
    loaded = ("numbers",) if core.loads else ()
    return ("x", "taps", "ends", "y", "plane", "pad", *loaded, *(("to", "rows_end") if p.listed else ()), *scalars)


@dataclass(frozen=True)
class Printed:
    """The function of a layer, in templates: kernels of equal shape share it."""

    core: type[Core]
    plane: Plane

    def text(self, name: str) -> str:
        f = function(self.core, self.plane, name)
        return f.before + f.head + f.body

    @property
    def arguments(self) -> str:
        """C arguments of its call, after the list of rows or the image."""
        given = {"taps": "w", "plane": "scratch", "pad": "(int32_t)(((uint32_t)x_zero & 0xFFU) * 0x01010101U)"}
        given |= {"zero": "y_zero"}
        return ", ".join(given.get(n, n) for n in arguments(self.core, self.plane)[1:])


def depthwise(core: type[Core], together: tuple[int, ...], s: Sums, form: Form) -> Kernel | None:
    """The kernel of sums over one channel each, with the number of outputs in `together` that costs least.

    The image has one channel, or the result equally many for each of the image's. None if the core cannot compute it.
    """
    if s.weights.shape[3] != 1 or s.out[2] % s.size[2] or not s.fits:
        return None
    if form.small and s.size[2] == 1:
        return None  # a function for each layer takes more flash than one that convolutions share
    ends = core.ends(s)
    if ends is None:
        return None
    uprights = (False,) if form.rolled else (False, True)
    blocks = [(up, n) for up in uprights for n in together if n == 1 or not form.small]
    planes = [(p, up) for up, n in blocks if (p := _plane(core, s, form, up, n, ends.name)) is not None]
    rows = s.window[0] - _missing(s)
    costs = [(_executed(core, p, rows), p, upright) for p, upright in planes]
    if not costs:
        return None
    count, p, upright = min(costs, key=lambda one: one[0])
    c, shape = core(p), {"H": s.size[0], "W": s.size[1], "C": s.size[2], "SY": s.stride[0], "PY": s.pad[0],
                         "FH": s.window[0], "DY": s.dilation[0], **spatial.rolled(form)}  # fmt: skip
    shape = {**shape, "corner": c.corner, "line": c.line} if form.rolled else spatial.rolled(form)
    shape |= {"function": Printed(core, _of_text(core, p)), "skip": max(0, -s.pad[1]) * s.size[2]}
    constants = (
        Constant("w", _taps(s, core, upright, ends.bytes.astype(np.int8).tobytes()), "by channel"),
        Constant("ends", words(ends.words).ravel(), "start values and factors by channel"),
        *((Constant("numbers", words(table(c)), "sizes and steps"),) if core.loads else ()),
    )
    outputs = f", {p.together} outputs" if len(together) == 1 else ""
    return Kernel(
        "blocks/sum_kernels.c:plane", s.stem, shape, constants, {"x_zero": s.x_zero, **ends.scalars}, scratch=c.bytes,
        variant=f"{core.variant}{outputs}",
        estimate=count + CALL + (LISTED * s.window[0] if form.rolled else 0), in_place=in_place(s, form),
        pace=c.pace(form), traffic=Traffic(channels_in=1, channels_out=p.times),
    )  # fmt: skip


def table(c: Core) -> Array:
    """The numbers of a layer, as many as `Core.enter` copies at a time."""
    values = np.array(list(numbers(c).values()))
    return np.pad(values, (0, -len(values) % 4))


def _of_text(core: type[Core], p: Plane) -> Plane:
    return p.window if core.loads else p


def _function(core: type[Core], p: Plane) -> Function:
    return function(core, _of_text(core, p), "")


@lru_cache(maxsize=1 << 12)
def _executed(core: type[Core], p: Plane, rows: float) -> float:
    """Instructions of a call, cached for layers of one shape."""
    return _function(core, p).executed(rows=rows, **turns(core(p)))


def _missing(s: Sums) -> float:
    """Rows of a window that are padding, on average."""
    under = [row * s.stride[0] - s.pad[0] + fy * s.dilation[0] for row in range(s.out[0]) for fy in range(s.window[0])]
    return sum(not 0 <= row < s.size[0] for row in under) / s.out[0]


def _plane(core: type[Core], s: Sums, form: Form, upright: bool, together: int, finish: str) -> Plane | None:
    (h, w, c), (oh, ow, k), (fh, fw) = s.size, s.out, s.window
    down = Axis(fh, s.dilation[0], s.stride[0], s.pad[0], h, w * c, oh, ow * k)
    if form.rolled:
        down = Axis(fh, 1, 1, 0, fh, 0, 1, 0)
    across = Axis(fw, s.dilation[1], s.stride[1], s.pad[1], w, c, ow, k)
    lines, run = (across, down) if upright else (down, across)
    if min(lines.used, run.used) < 1 or together > run.count or s.pad[0] < 0 or (upright and s.pad[1] < 0):
        return None
    most = max(1, MAX_PRODUCTS // (1 if form.small else together * -(-run.taps // core.width)))
    item, beside = core.item_of(run), (together - 1) * run.stride + (run.taps - 1) * run.dilation
    if beside * item > core.far and not core.loads:
        return None
    far = (core.far - beside * item) // (lines.dilation * item * (run.reach + 1)) + 1
    most = most if core.loads else max(1, min(most, far))
    turn = max(n for n in range(1, lines.taps + 1) if lines.taps % n == 0 and n <= most)
    padded = any(a.left or a.reach > a.left + a.used for a in (lines, run)) or (form.rolled and s.padded_rows)
    printed = run.used if run.used <= 2 * core.each else core.each
    piece = min(max(3, together), run.used) if core.loads else printed
    p = Plane(lines, run, c, k // c, form.rolled, padded, together, piece, turn, finish)
    return p if core.serves(p) else None


@computed_once
def _taps(s: Sums, core: type[Core], upright: bool, behind: bytes) -> Array:
    """Weights of each channel, followed by its bytes of `behind`."""
    rows = (s.weights.swapaxes(1, 2) if upright else s.weights)[..., 0]
    code = core.stream(rows, s.dilation[0] if upright else s.dilation[1]).reshape(s.out[2], -1).astype(np.int8)
    code = np.concatenate([code, np.frombuffer(behind, np.int8).reshape(s.out[2], -1)], axis=1)
    return np.pad(code.ravel(), (0, core.over))
