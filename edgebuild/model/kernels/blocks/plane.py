"""Depthwise convolution with any window, channel by channel through a plane: the algorithm, for any instruction set.

A channel of the operand is copied into a plane with its padding around it. So no window needs a test of borders, and
the result may lie over the operand. Outputs of a line of the plane come in blocks, which share what they read of
the weights and of the plane. The whole layer is one function in assembly, printed for its shape, from which the
estimate is counted. A `Core` has the instructions.

Lines of the plane are rows of the image, or columns where that takes fewer instructions. Row by row, the plane has the
rows under the window alone. Where the result has several channels for each of the operand, one plane serves them all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

import numpy as np

from ....base.dataclass import dataclass
from ...ir import Array
from ...ops import spatial
from ...ops.base import Constant, Form, Kernel, Sums, Traffic
from ...ops.spatial import in_place, kept, words
from ..micro import Function, Loop, Part

MOST_PRODUCTS = 60  # multiplications of a block that are written out; more of them go through a loop over rows
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
        """Elements that are copied."""
        return min(self.size + min(0, self.before), self.reach - self.left)


@dataclass(frozen=True)
class Plane:
    """A layer as its function sees it: `times` results for each of `channels`, `together` outputs of a line at a time.

    `listed`: the operand is a list of rows. `clears`: there is padding. `turn`: rows of the window that are written
    out. `finish`: how sums become results, as the core names it.
    """

    lines: Axis
    run: Axis
    channels: int
    times: int
    listed: bool
    clears: bool
    together: int
    turn: int
    finish: str

    @property
    def taps(self) -> int:
        return self.lines.taps * self.run.taps

    @property
    def looped(self) -> bool:
        """A loop goes through the rows of the window."""
        return self.turn < self.lines.taps


@dataclass(frozen=True)
class Ends:
    """How sums become results: a name, int32 for each channel, int8 for each channel, and scalars of the function."""

    name: str
    words: Array
    bytes: Array
    scalars: Numbers


class Core(ABC):
    """An instruction set: its registers, and what the algorithm asks for, as lines of assembly."""

    variant: ClassVar[str] = "plane"
    blocks: ClassVar[tuple[int, ...]] = (4, 3, 2)  # outputs at a time to try
    width: ClassVar[int] = 1  # taps that a multiplication takes
    each: ClassVar[int] = 8  # elements that a turn of a copying loop takes
    over: ClassVar[int] = 0  # bytes that are read behind the stream
    far: ClassVar[int]  # the largest offset of a load from the plane
    x: ClassVar[str]  # registers: the place in the plane, that of the weights, and where these end in a loop over rows
    w: ClassVar[str]
    past: ClassVar[str]
    source: ClassVar[str]  # registers while the plane is filled: places in the operand and the plane
    to: ClassVar[str]
    rows: ClassVar[str]  # the place in the list of rows
    count: ClassVar[str]
    end: ClassVar[str]
    spare: ClassVar[str]
    scalars: ClassVar[tuple[str, ...]]  # parameters of ends

    def __init__(self, p: Plane) -> None:
        self.p = p
        self.begun = set[int]()  # outputs of a block that have a sum

    @classmethod
    @abstractmethod
    def ends(cls, s: Sums) -> Ends | None:
        """None where sums have no end in few instructions."""

    @classmethod
    def stream(cls, rows: Array, dilation: int) -> Array:
        """Weights, channels x rows of the window x taps, as the core reads a row."""
        return rows

    @classmethod
    def serves(cls, p: Plane) -> bool:
        """Whether its instructions reach."""
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
        """Of the scratch. Vectors and words may be read over the end of the plane."""
        return -(-(self.lead + self.p.lines.reach * self.line + 16) // 16) * 16

    @property
    def row_bytes(self) -> int:
        """Of the stream, for a row of weights."""
        return self.p.run.taps

    def copied(self, used: int) -> int:
        """Elements by which both places move when so many are copied."""
        return used

    # Instructions --------------------------------------------------------------------------------

    @abstractmethod
    def enter(self, arguments: Sequence[str]) -> list[Part]: ...

    @abstractmethod
    def leave(self) -> list[Part]: ...

    @abstractmethod
    def get(self, register: str, name: str) -> list[str]:
        """An argument, or a number of the function, to a register."""

    @abstractmethod
    def put(self, register: str, name: str) -> list[str]: ...

    @abstractmethod
    def set(self, register: str, number: int) -> list[str]: ...

    @abstractmethod
    def add(self, to: str, of: str, number: int | str) -> list[str]:
        """A number, or a register, is added."""

    @abstractmethod
    def until(self, a: str, b: str, label: str) -> list[str]:
        """To the label, unless both registers are equal."""

    @abstractmethod
    def back(self, register: str, label: str) -> list[str]:
        """One less; to the label unless it is 0."""

    @abstractmethod
    def jump(self, label: str) -> list[str]: ...

    def prepared(self) -> list[str]:
        """Before a plane is filled."""
        return []

    @abstractmethod
    def clear(self) -> list[Part]:
        """The scratch becomes padding."""

    @abstractmethod
    def listed(self) -> list[str]:
        """The next address of the list becomes the source, from the channel on."""

    @abstractmethod
    def few(self, count: int) -> list[str]:
        """So many elements from the source to the plane; both places move on."""

    def copy(self) -> list[Part]:
        """A line of them."""
        each, used = self.each, self.p.run.used
        turns, behind = divmod(used, each) if used > 2 * each else (0, used)
        code: list[Part] = [*self.add(self.end, self.to, turns * each * self.item)] if turns else []
        body = ("0:", *self.few(each), *self.until(self.to, self.end, "0b"))
        return [*code, *([Loop(turns, body)] if turns else []), *self.few(behind)]

    @abstractmethod
    def begin(self) -> list[str]:
        """The weights and the end of the next channel."""

    @abstractmethod
    def starts(self, count: int) -> list[str]:
        """Sums begin, before a loop."""

    @abstractmethod
    def row(self, count: int, row: int) -> list[str]:
        """Products of a row of the window, `row` rows behind where registers point."""

    @abstractmethod
    def results(self, count: int) -> list[Part]:
        """Sums become results; the place in the result moves on."""

    @abstractmethod
    def next_line(self, number: int) -> list[str]:
        """The place in the result moves on."""

    def bump(self, name: str, number: int) -> list[str]:
        return [*self.get(self.spare, name), *self.add(self.spare, self.spare, number), *self.put(self.spare, name)]

    def down(self, name: str, label: str) -> list[str]:
        """One less of a number of the function; to the label unless it is 0."""
        last = self.back(self.spare, label)
        return [*self.get(self.spare, name), last[0], *self.put(self.spare, name), *last[1:]]


def _filled(c: Core) -> list[Part]:
    """A channel comes to its plane."""
    p, moved = c.p, c.copied(c.p.run.used)
    on = c.add(c.to, c.to, c.line - moved * c.item)
    if p.listed:
        head = [*c.get(c.rows, "x"), *c.get(c.to, "to"), *c.get(c.spare, "rows_end"), *c.until(c.rows, c.spare, "2f")]
        line = ["2:", *c.listed(), *c.copy(), *on, *c.get(c.spare, "rows_end"), *c.until(c.rows, c.spare, "2b")]
        return [*c.prepared(), *head, *c.jump("3f"), Loop("rows", tuple(line)), "3:", *c.bump("channel", 1)]
    line = ["2:", *c.copy(), *on, *c.add(c.source, c.source, p.lines.step - moved * p.run.step), *c.back(c.count, "2b")]
    head = [*c.get(c.source, "x"), *c.get(c.to, "plane"), *c.add(c.to, c.to, c.corner), *c.set(c.count, p.lines.used)]
    return [*c.prepared(), *head, Loop(p.lines.used, tuple(line)), *c.bump("x", 1)]


def _block(c: Core, count: int) -> list[Part]:
    """`count` neighbouring outputs."""
    p, code, on = c.p, list[Part](), count * c.p.run.stride * c.item
    row = p.lines.dilation * c.line
    c.begun.clear()
    if p.looped:
        code += c.starts(count)
        c.begun |= set(range(count))
    rows = [line for row in range(p.turn) for line in c.row(count, row)]
    if p.looped:
        turn = ["7:", *rows, *c.add(c.x, c.x, p.turn * row), *c.add(c.w, c.w, p.turn * c.row_bytes)]
        code.append(Loop(p.lines.taps // p.turn, (*turn, *c.until(c.w, c.past, "7b"))))
        code += c.add(c.w, c.w, -p.lines.taps * c.row_bytes)
    else:
        code += [*rows, *c.add(c.w, c.w, 0)]
    return [*code, *c.add(c.x, c.x, on - p.looped * p.lines.taps * row), *c.results(count)]


def _lines(c: Core) -> list[Part]:
    """All outputs of a channel, line by line."""
    p, on = c.p, c.p.run.stride * c.item
    whole, rest = divmod(p.run.count, p.together)
    line: list[Part] = ["5:"]
    if whole > 1:
        line += [*c.add(c.spare, c.x, whole * p.together * on), *c.put(c.spare, "end")]
        blocks = ["6:", *_block(c, p.together), *c.get(c.spare, "end"), *c.until(c.x, c.spare, "6b")]
        line.append(Loop(whole, tuple(blocks)))
    elif whole:
        line += _block(c, p.together)
    line += _block(c, rest) if rest else []
    if p.lines.count > 1:
        line += c.add(c.x, c.x, p.lines.stride * c.line - p.run.count * on)
        line += [*c.next_line(p.lines.step_y - p.run.count * p.run.step_y), *c.down("lines", "5b")]
        return [*c.set(c.spare, p.lines.count), *c.put(c.spare, "lines"), Loop(p.lines.count, tuple(line))]
    return line


@lru_cache(maxsize=1 << 10)
def function(core: type[Core], p: Plane, name: str) -> Function:
    """The whole layer."""
    c = core(p)
    names = arguments(core, p)
    entered = c.enter(names)
    kinds = {"x": "const int8_t *const *" if p.listed else "const int8_t *", "taps": "const int8_t *",
             "ends": "const int32_t *", "y": "int8_t *", "plane": "int8_t *", "to": "int8_t *",
             "rows_end": "const int8_t *const *"}  # fmt: skip
    result = ["8:", *c.begin(), *_lines(c)]
    if p.times > 1:
        result = [*c.set(c.spare, p.times), *c.put(c.spare, "times"), Loop(p.times, (*result, *c.down("times", "8b")))]
    channel = Loop(p.channels, ("1:", *_filled(c), *result, *c.down("channels", "1b")))
    begin = [*c.set(c.spare, p.channels), *c.put(c.spare, "channels")]
    begin += [*c.set(c.spare, 0), *c.put(c.spare, "channel")] if p.listed else []
    remark = (
        f"Channels through a plane with lines of {c.line} bytes, {p.together} outputs of a line at a time. "
        f"{'x: the rows that are there; to: where the first of them goes. ' if p.listed else ''}"
        "taps: weights by channel; ends: the start value and the factors."
    )
    return Function(
        name, tuple(f"EB_REG {kinds.get(n, 'int32_t ')}{n}" for n in names), remark,
        (*entered, *(c.clear() if p.clears else ()), *begin, channel, *c.leave()),
    )  # fmt: skip


def arguments(core: type[Core], p: Plane) -> tuple[str, ...]:
    """Names of the function's parameters."""
    scalars = [n for n in core.scalars if n not in ("low", "high") or p.finish.endswith("_clamped")]
    scalars = [n for n in scalars if n != "unit" or "2" not in p.finish]
    return ("x", "taps", "ends", "y", "plane", "pad", *(("to", "rows_end") if p.listed else ()), *scalars)


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
        """Of its call, behind the list of rows or the image."""
        given = {"taps": "w", "plane": "scratch", "pad": "(int32_t)(((uint32_t)x_zero & 0xFFU) * 0x01010101U)"}
        given |= {"zero": "y_zero"}
        return ", ".join(given.get(n, n) for n in arguments(self.core, self.plane)[1:])


def depthwise(core: type[Core], s: Sums, form: Form) -> Kernel | None:
    """Sums over one channel each. The image has one, or the result as many for each of the image."""
    if s.weights.shape[3] != 1 or s.out[2] % s.size[2] or not s.fits:
        return None
    if form.small and s.size[2] == 1:
        return None  # a function for each layer takes more flash than one that convolutions share
    ends = core.ends(s)
    if ends is None:
        return None
    uprights = (False,) if form.rolled else (False, True)
    blocks = (1,) if form.small else core.blocks
    planes = [(p, up) for up in uprights for n in blocks if (p := _plane(core, s, form, up, n, ends.name)) is not None]
    rows = s.window[0] - _missing(s)
    code = [(function(core, p, "").executed(rows=rows), p, upright) for p, upright in planes]
    if not code:
        return None
    count, p, upright = min(code, key=lambda one: one[0])
    c, shape = core(p), {"H": s.size[0], "W": s.size[1], "C": s.size[2], "SY": s.stride[0], "PY": s.pad[0],
                         "FH": s.window[0], "DY": s.dilation[0], **spatial.rolled(form)}  # fmt: skip
    if not form.rolled:
        shape = spatial.rolled(form)
    shape |= {"function": Printed(core, p), "skip": max(0, -s.pad[1]) * s.size[2], "corner": c.corner, "line": c.line}
    constants = (
        Constant("w", _taps(s, core, upright, ends.bytes.astype(np.int8).tobytes()), "by channel"),
        Constant("ends", words(ends.words).ravel(), "start values and factors by channel"),
    )
    return Kernel(
        "blocks/plane.c.j2", s.stem, shape, constants, {"x_zero": s.x_zero, **ends.scalars}, scratch=c.bytes,
        variant=core.variant,
        estimate=count + CALL + (LISTED * s.window[0] if form.rolled else 0), in_place=in_place(s, form),
        pace=c.pace(form), traffic=Traffic(channels_in=1, channels_out=p.times),
    )  # fmt: skip


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
    if min(lines.used, run.used) < 1 or s.pad[0] < 0 or (upright and s.pad[1] < 0):
        return None
    most = max(1, MOST_PRODUCTS // (1 if form.small else together * -(-run.taps // core.width)))
    item, beside = core.item_of(run), (min(together, run.count) - 1) * run.stride + (run.taps - 1) * run.dilation
    if beside * item > core.far:
        return None
    far = (core.far - beside * item) // (lines.dilation * item * (run.reach + 1)) + 1
    turn = max(n for n in range(1, lines.taps + 1) if lines.taps % n == 0 and n <= max(1, min(most, far)))
    padded = any(a.left or a.reach > a.left + a.used for a in (lines, run)) or (form.rolled and s.padded_rows)
    p = Plane(lines, run, c, k // c, form.rolled, padded, min(together, run.count), turn, finish)
    return p if core.serves(p) else None


@kept
def _taps(s: Sums, core: type[Core], upright: bool, behind: bytes) -> Array:
    """Weights of each channel and what stands behind them."""
    rows = (s.weights.swapaxes(1, 2) if upright else s.weights)[..., 0]
    code = core.stream(rows, s.dilation[0] if upright else s.dilation[1]).reshape(s.out[2], -1).astype(np.int8)
    code = np.concatenate([code, np.frombuffer(behind, np.int8).reshape(s.out[2], -1)], axis=1)
    return np.pad(code.ravel(), (0, core.over))
