"""Depthwise 3x3 for Armv7E-M with DSP and one instruction at a time: four outputs of a line of a channel's plane.

The assembly is printed for each layer, so that its loads and additions hold the distances. Words are loaded one by one,
because a load behind a load takes one cycle (Cortex-M4 TRM, 3.3.2).
"""

from __future__ import annotations

from ....base.dataclass import dataclass
from ....base.target import DUAL_ISSUE
from ...ops import spatial
from ...ops.base import Constant, Form, Kernel, Sums, Traffic
from ...ops.spatial import in_place
from .depthwise import CLEAR, ZEROS, three_rows

WORDS = ("r11", "r12", "lr")  # word n of a line of the plane is in the register n modulo three
SUMS = ("r7", "r8", "r9", "r10")
WEIGHTS = (("r1", "r2"), ("r3", "r4"), ("r5", "r6"))  # of each line of the window: taps 0 and 1, taps 1 and 2
TURN = 14  # elements that a turn of a copying loop takes
PACE = 0.85  # of what compiled code takes (`bench-cycles`), whose loads stand one by one
REACH = 4095  # of the offset of a load or store


@dataclass(frozen=True)
class Axis:
    """An axis of a depthwise layer: elements of the operand and the result, from one to the next, padding, stride."""

    size: int
    step: int
    made: int
    step_y: int
    before: int
    stride: int

    @property
    def used(self) -> int:
        """Elements of the operand that windows cover."""
        return min(self.size, (self.made - 1) * self.stride + 3 - self.before)


def products(outputs: int, stride: int) -> list[tuple[str, int, int, int]]:
    """Products of a line of the window: instruction, sum, register of the line's weights, word of the plane."""
    found = []
    for i in range(outputs):
        column, odd = divmod(i * stride, 2)
        found += [("smlabt", i, 0, column), ("smlad ", i, 1, column + 1)] if odd else [
            ("smlad ", i, 0, column), ("smlatb", i, 1, column + 1)
        ]  # fmt: skip
    return found


def sums(outputs: int, stride: int, line: int, advance: int) -> tuple[str, ...]:
    """Instructions for sums of neighbouring outputs; r0 is in their window and goes on by `advance` bytes.

    `line`: bytes of a line of the plane. The last sum's register has the start value until its own products come.
    """
    last, made = SUMS[outputs - 1], [f"ldr    {SUMS[outputs - 1]}, [sp, #8]"]
    begun: set[int] = set()
    for row, weights in enumerate(WEIGHTS):
        waiting, loaded = products(outputs, stride), 0
        words = 1 + max(word for *_, word in waiting)
        while waiting:
            while loaded < min(words, waiting[0][3] + len(WORDS)):
                at = row * line + 4 * loaded
                first = row == loaded == 0 and advance > 0
                place = f"[r0], #{advance}" if first else f"[r0, #{at - advance}]"
                made.append(f"ldr    {WORDS[loaded % 3]}, {place}")
                loaded += 1
            while waiting and waiting[0][3] < loaded:
                name, i, weight, word = waiting.pop(0)
                start = SUMS[i] if i in begun else last
                made.append(f"{name} {SUMS[i]}, {weights[weight]}, {WORDS[word % 3]}, {start}")
                begun.add(i)
    return tuple(made)


def _cuts(size: int) -> tuple[int, int, int]:
    """Turns of a loop that copies a line, elements of a turn, elements behind it: short lines have no loop."""
    return (0, TURN, size) if size <= 2 * TURN else (size // TURN, TURN, size % TURN)


def fours(s: Sums, form: Form) -> Kernel | None:
    """Windows of 3x3; lines of the plane are rows of the image, or columns if that is less work.

    All channels of the result may have one of the image: that goes through the plane row by row, once for all.
    """
    single = s.weights.shape[3] == 1 and s.size[2] in (1, s.out[2])  # each sum is over one channel
    plain = s.window == (3, 3) and max(s.stride) <= 2 and s.dilation == (1, 1) and single
    if not plain or not s.fits or s.finish == "sums" or DUAL_ISSUE in form.core:
        return None
    made = [k for upright in (False, True) if (k := _fours(s, form, upright)) is not None]
    return min(made, key=lambda k: k.estimate, default=None)


def _fours(s: Sums, form: Form, upright: bool) -> Kernel | None:
    """`upright`: lines are columns. None: a distance is too far for an instruction, or there is nothing to copy."""
    (h, w, c), (oh, ow, k) = s.size, s.out
    one = c < k
    by_rows = form.rolled or one
    axes = (
        Axis(h, w * c, 1 if by_rows else oh, ow * k, 0 if by_rows else s.pad[0], s.stride[0]),
        Axis(w, c, ow, k, s.pad[1], s.stride[1]),
    )
    lines, run = axes[::-1] if upright else axes
    fours, rest = divmod(run.made, 4)
    columns = max(run.before + run.used, run.made * run.stride + 4 - run.stride)
    columns += columns % 2
    rows = max(lines.before + lines.used, (lines.made - 1) * lines.stride + 3)
    bare = by_rows and (s.pad[0] > 2 or (oh - 1) * s.stride[0] - s.pad[0] >= h)  # a window may see no row
    far = 6 * columns > REACH or 3 * run.step_y > REACH
    if (upright and by_rows) or bare or far or min(lines.used, run.used) < 1:
        return None
    packed, ends = three_rows(s, upright)
    turns, turn, behind = _cuts(run.used)
    few = sums(rest, run.stride, 2 * columns, 0) if rest else ()
    shape: dict[str, int | str | bool | tuple[int, ...]] = {
        "H": h, "row": w * c, "upright": upright, **spatial.rolled(form),
        "SY": s.stride[0], "PY": s.pad[0], "OH": oh, "row_y": ow * k, "plane": rows * columns // 2,
        "by_rows": by_rows, "one": one,
    }  # fmt: skip
    shape |= {  # what the assembly has for numbers: tuples are no parameters of a shared function
        "channels": (k,), "stride": (columns,), "before": (lines.before, run.before),
        "copy": (turns, turn, behind, run.step, min(7, REACH // run.step + 1)),
        "lines_x": (lines.used, lines.step - run.used * run.step, 2 * (columns - run.used)),
        "fours": (fours, 8 * run.stride, run.step_y), "rest": (rest,), "lines": (lines.made,),
        "next": (2 * (lines.stride * columns - 4 * run.stride * fours), 2 * lines.stride * columns),
        "next_y": (lines.step_y - run.made * run.step_y,),
        "four": "\n".join(sums(4, run.stride, 2 * columns, 8 * run.stride)), "few": "\n".join(few),
        **ends.shape, "zeros": ZEROS, "record": (packed.shape[1],), "bounds": s.finish.endswith("_clamped"),
    }  # fmt: skip
    scalars: dict[str, int | float] = {"x_zero": s.x_zero, "y_zero": s.y_zero, **ends.scalars}
    scalars |= {"low": s.low, "high": s.high} if shape["bounds"] else {}
    end = {"relu": 4, "signed": 5, "once": 4}[s.finish.partition("_")[0]] + (6 if shape["bounds"] else 0)
    line = 5 + (3 if fours else 0) + fours * (43 + 4 * end) + (11 + rest * (8 + end) if rest else 0)
    copied = lines.used * (6 + 2 * run.used + run.used // 8)
    clear, channel = CLEAR / 2 * rows * columns + 20, 48 + lines.made * line
    cost = oh * (40 + copied + k * channel) + clear if one and not form.rolled else clear + copied + k * channel
    cost += 0 if one else (k - 1) * copied
    return Kernel(
        "arm_dsp/depthwise_four.c.j2", s.stem, shape, (Constant("w", packed.ravel(), "by channel"),), scalars,
        scratch=2 * rows * columns, variant="dsp four outputs", in_place=in_place(s, form), estimate=cost,
        pace=PACE, traffic=Traffic(channels_in=1, channels_out=1),
    )  # fmt: skip
