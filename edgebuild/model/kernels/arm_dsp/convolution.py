"""Sums over all channels for Armv7E-M with DSP: variants by the pixels at a time and by how taps are prepared.

A variant is a value: a micro-kernel, and a function that tells how a window becomes its operand. Its estimate adds the
instructions of the micro-kernel and those of the C around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from ....base.target import DUAL_ISSUE, SLOW_FLASH
from ...ir import Array, Graph, Op
from ...ops.base import C_TYPES, PIXELS, Constant, Form, Kernel, Sums, Traffic, zero_of
from ...ops.spatial import sums_shape
from .. import phases
from ..row import KernelLayer
from . import wide
from .dot import COUNTS, FEW, MICROS, Micro, micro
from .weight_words import (
    Factors,
    bounds,
    factors,
    factors_within,
    of_channels,
    of_channels_with,
    of_few,
    of_nibbles,
    of_pixels,
    of_single_channels,
    requantised,
    whole_words,
)

Shape = dict[str, int | str | bool | tuple[int, ...]]

# Fitted numbers below are instructions of compiled C, from random layers: `python -m tests.bench_estimates`.
CALL = 7  # a call of a micro-kernel
COPIED = 4  # copying the results of a last group, for a pixel
GENERAL = 40  # a result that the caller computes from a sum
LESS = 5  # adding up four values of a pixel


@dataclass(frozen=True)
class Borders:
    """Numbers of calls that compute a layer's pixels, and of those that read padding.

    `passes`: all calls; `columns`: those whose windows cover columns of padding; `part`: any padding. `missing`: the
    share of rows of windows that are padding.
    """

    passes: float
    columns: float
    part: float
    missing: float


def borders(s: Sums, form: Form, together: int, last: int | None = None) -> Borders:
    """The borders for `together` pixels at a time. `last`: the last column at which a window may begin."""
    (h, w, _), (oh, ow, _), (fh, fw) = s.size, s.out, s.window
    last = w - fw if last is None else last
    begins = [
        [min(at + i, ow - 1) * s.stride[1] - s.pad[1] for i in (0, together - 1)] for at in range(0, ow, together)
    ]
    across = sum(first < 0 or end > last for first, end in begins)
    tops = [row * s.stride[0] - s.pad[0] for row in range(oh)]
    missing = [sum(not 0 <= top + fy * s.dilation[0] < h for fy in range(fh)) for top in tops]
    share = sum(n > 0 for n in missing) / oh
    rows = 1 if form.rolled else oh
    part = rows * (across + (len(begins) - across) * share)
    return Borders(rows * len(begins), rows * across, part, sum(missing) / (oh * fh))


@dataclass(frozen=True)
class Gathered:
    """How the operands of a layer's micro-kernels are prepared.

    `rows`: of the window, each of which is padded to whole words. `groups`: of four taps of a pixel, in `runs`
    pieces. `passes`: calls for all channels; the last `left` of them take one pixel, by the micro-kernel `alone`.
    `cost`: instructions to prepare all operands.
    """

    rows: int
    groups: int
    passes: int
    shape: Shape
    cost: float
    scratch: int = 0
    runs: int = 1
    left: int = 0
    alone: str = ""
    padded: bool = False  # reads padding: the zero point is a parameter
    in_place: str = ""


STREAMS = {
    "channels": of_channels, "halves": of_few, "nibbles": of_nibbles, "pixels": of_pixels, "": of_single_channels,
}  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """A template, its micro-kernel, and the function that describes the micro-kernel's operands.

    `paces`: cycles of an instruction, as a multiple of what the core's fastest kernels take, by words of the core
    (`bench-cycles`).
    """

    name: str
    template: str
    micro: str
    gather: Callable[[Sums, Form], Gathered | None]
    paces: dict[str, float] = field(default_factory=dict)

    def kernel(self, s: Sums, form: Form) -> Kernel | None:
        """The kernel of the variant for these sums; None if the variant does not apply."""
        gathered = self.gather(s, form)
        if gathered is None:
            return None
        m = suited(self.micro, s, form)
        stream = STREAMS[m.packs](s, m.channels, gathered.rows)
        if stream is None or (s.finish == "sums" and "sums" not in m.ends):
            return None
        group = "pairs" if m.channels == 2 else f"groups of {COUNTS[m.channels]}"
        constants, scalars = requantised(s, stream, group)
        k, step, nibbles = s.out[2], stream.shape[1], m.packs == "nibbles"
        full = k // m.channels * m.channels
        shape = gathered.shape | factors(s).shape | {
            "dot": m.name, "alone": gathered.alone, "blocks": k // m.channels, "tail": k - full, "full": full,
            "tail_at": k // m.channels * step, "step": step if nibbles else step // m.channels, "nibbles": nibbles,
        }  # fmt: skip
        cost = gathered.cost + (gathered.passes - gathered.left) * instructions(m.name, s, gathered)
        cost += gathered.left * instructions(gathered.alone, s, gathered) if gathered.left else 0
        cost += LESS * gathered.passes * m.pixels * gathered.groups if nibbles else 0
        pace = prod(factor for word, factor in self.paces.items() if word in form.core)
        return Kernel(
            self.template, s.stem, shape, constants, {"x_zero": s.x_zero, **scalars} if gathered.padded else scalars,
            scratch=gathered.scratch, variant=self.name, estimate=cost, pace=pace, in_place=gathered.in_place,
            traffic=Traffic(passes=gathered.passes),
        )  # fmt: skip


def suited(stem: str, s: Sums, form: Form) -> Micro:
    """The micro-kernel with the loads that suit the core: ahead of products, one by one, or as few as possible."""
    manner = "dual" if DUAL_ISSUE in form.core and s.finish != "sums" else "single" if SLOW_FLASH in form.core else ""
    return MICROS.get(f"{stem}_{manner}") or MICROS[stem]


def instructions(name: str, s: Sums, gathered: Gathered) -> float:
    """Instructions of all channels of as many pixels as the micro-kernel takes at once, with its calls."""
    m, f, k = MICROS[name], micro(name, factors(s).finish), s.out[2]
    turns = {"groups": gathered.groups / gathered.runs, "runs": gathered.runs}
    if s.finish == "sums":
        each = f.executed(blocks=1, **turns) + CALL
        return -(-k // m.channels) * each + k * m.pixels * GENERAL
    whole, last = k // m.channels, k % m.channels > 0
    cost = f.executed(blocks=whole, **turns) + CALL if whole else 0.0
    return cost + (f.executed(blocks=1, **turns) + CALL + COPIED * m.pixels if last else 0)


def _rows(s: Sums, form: Form) -> int:
    """Rows of the result that a call computes."""
    return 1 if form.rolled else s.out[0]


def _whole(s: Sums) -> bool:
    """Whether sums go over all channels."""
    return s.weights.shape[3] == s.size[2]


def _near(s: Sums) -> bool:
    """Whether taps of a row of the window are neighbours."""
    return s.dilation[1] == 1 or s.window[1] == 1


def in_place_bytes(s: Sums, form: Form) -> Gathered | None:
    """Operands that are read in place: pixels that are their own window."""
    c, pixels = s.size[2], s.size[0] * s.size[1]
    if not s.pointwise or c % 4:
        return None
    shape: Shape = {"C": c, "K": s.out[2], "pixels": pixels, "widened": False, "copied": 0}
    return Gathered(1, c // 4, pixels, shape, 6 + 4.3 * pixels)


def copied_once(s: Sums, form: Form) -> Gathered | None:
    """A copy of the only pixel: words may reach past its last byte, where weights are zero."""
    c = s.size[2]
    if not s.pointwise or s.size[:2] != (1, 1) or c % 4 == 0:
        return None
    n = whole_words(c)
    shape: Shape = {"C": c, "K": s.out[2], "pixels": 1, "widened": False, "copied": n}
    return Gathered(1, n // 4, 1, shape, 12 + 0.83 * c, scratch=n)


def widened_once(s: Sums, form: Form) -> Gathered | None:
    """The only pixel, widened to int16 once for all channels, as the operand."""
    c = s.size[2]
    if not s.pointwise or s.size[:2] != (1, 1) or c % 4:
        return None
    shape: Shape = {"C": c, "K": s.out[2], "widened": True}
    return Gathered(1, c // 4, 1, shape, 10 + 2 * c, scratch=2 * c)


def widened_once_of_eights(s: Sums, form: Form) -> Gathered | None:
    """Operands as of `widened_once`, for channels in eights."""
    return widened_once(s, form) if s.out[2] % 8 == 0 and DUAL_ISSUE not in form.core else None


def widened_pairs(s: Sums, form: Form) -> Gathered | None:
    """Operands of two pixels, widened to int16, row by row of the window."""
    (_, w, c), (oh, ow, _), (fh, fw) = s.size, s.out, s.window
    n = whole_words(fw * c)
    pointwise = s.pointwise and c % 4 == 0
    pixels = ow if form.rolled else oh * ow
    if not _near(s) or not _whole(s) or (pointwise and pixels == 1):
        return None
    outside, edges = s.padded_rows, s.padded_columns or n > fw * c
    copied_rows = edges and c % 4 > 0
    odd = (pixels if pointwise else ow) % 2
    shape = sums_shape(s, form) | {
        "pointwise": pointwise, "pixels": pixels, "words": fh * n, "odd": bool(odd),
        "kept": bool(odd) and form.in_place,
    }  # fmt: skip
    if not pointwise:
        shape |= {"n": n, "copied_rows": copied_rows, "edges": edges, "padded_rows": outside}
        shape |= {"padded": outside or (edges and not copied_rows), "inner_last": (w * c - n) // c - s.stride[1]}
    passes = pixels // 2 + odd if pointwise else -(-ow // 2) * _rows(s, form)
    edge, groups, run = borders(s, form, 2, (w * c - n) // c), fh * n // 4, fw * c
    inside, there = edge.passes - edge.columns, 1 - edge.missing
    if pointwise:
        cost = passes * (2 + 16.3 * groups)
    elif copied_rows:
        cost = edge.passes * 87 + groups * (9.6 * inside * there + 11 * edge.columns)
        cost += 15.6 * edge.columns * there * fh * run
    else:
        cost = edge.passes * (53.6 + 19.9 * fh + 21.6 * edge.missing * groups) + 11.8 * inside * there * groups
        cost += edge.columns * there * fh * (42.5 + 3.9 * run)
    return Gathered(
        fh, groups, passes, shape, cost, 4 * fh * n + (2 * n if copied_rows else 0),
        left=odd * (1 if pointwise else _rows(s, form)), padded=not pointwise and (outside or edges),
        alone=("eb_dot1" if pointwise else "eb_dot1i") if odd else "",
        in_place=PIXELS if pointwise and (form.in_place or not odd) else "",
    )  # fmt: skip


def widened_pairs_alone(s: Sums, form: Form) -> Gathered | None:
    """Operands of pairs whose last pixel is computed twice, because no micro-kernel for one pixel reads the weights."""
    gathered = widened_pairs(s, form)
    return gathered and replace(gathered, left=0, alone="", in_place=PIXELS if gathered.shape["pointwise"] else "")


MAX_CHANNELS, MAX_ROWS = 8, 5  # most channels of a pixel and rows of a window whose copies are unrolled


def packed_taps(s: Sums, form: Form) -> Gathered | None:
    """Operands of two pixels whose rows of taps have no gaps, if each row by itself would be padded to four taps."""
    c, ow, (fh, fw) = s.size[2], s.out[1], s.window
    n, run = whole_words(fh * fw * c), fw * c
    if n >= fh * whole_words(run) or c > MAX_CHANNELS or s.dilation[1] != 1 or not _whole(s):
        return None
    edges, outside = s.padded_columns, s.padded_rows
    shape = sums_shape(s, form) | {
        "n": n, "run": run, "odd": bool(ow % 2), "edges": edges, "padded_rows": outside,
        "whole_windows": not (form.rings and form.rings[0]) and fh <= MAX_ROWS, "line": s.dilation[0] * s.size[1] * c,
    }  # fmt: skip
    passes = -(-ow // 2) * _rows(s, form)
    edge = borders(s, form, 2)
    cost = edge.passes * (42 + 13.4 * n / 4) + edge.part * 3.2 * fh * run
    return Gathered(1, n // 4, passes, shape, cost, 6 * n, padded=edges or outside)


# By pixels, instructions of a call, a row of the window, four taps; at borders of a row, a byte, and four zeros.
BYTES = {1: (9, 2, 4.6, 29.5, 2.2, 7.9), 2: (47, 0, 10.8, 9.5, 4.2, 27)}


def _bytes(together: int) -> Callable[[Sums, Form], Gathered | None]:
    def gather(s: Sums, form: Form) -> Gathered | None:
        """Operands of two pixels in int8, or one: a half or a quarter of the scratch of two in int16.

        They are widened anew for each four channels, and weights of one pixel serve no other.
        """
        (_, w, c), ow, (fh, fw) = s.size, s.out[1], s.window
        n = whole_words(fw * c)
        copied = together == 1 and s.size[:2] == (1, 1)
        if not _near(s) or not _whole(s) or (s.pointwise and (copied or c % 4 == 0)):
            return None
        edges, outside = s.padded_columns or n > fw * c, s.padded_rows
        shape = sums_shape(s, form) | {
            "pixels": together, "n": n, "row_words": n // 4 * together, "words": fh * n // 4 * together,
            "odd": bool(ow % together), "edges": edges, "padded_rows": outside, "inner_last": (w * c - n) // c,
        }  # fmt: skip
        passes = -(-ow // together) * _rows(s, form)
        edge, groups, run = borders(s, form, together, (w * c - n) // c), fh * n // 4, fw * c
        each, row, group, side, tap, cleared = BYTES[together]
        inside, there = edge.passes - edge.columns, 1 - edge.missing
        cost = edge.passes * (each + row * fh) + group * inside * there * groups
        cost += edge.columns * there * fh * (side + tap * run) + cleared * edge.part * groups
        return Gathered(fh, groups, passes, shape, cost, fh * n * together, padded=edges or outside)

    return gather


MAX_TAPS = 25  # most taps of a window whose rows are listed on the stack


def row_pointers(s: Sums, form: Form) -> Gathered | None:
    """Operands of one pixel, read in place: the scratch is a pixel of padding, or none."""
    c, ow, (fh, fw) = s.size[2], s.out[1], s.window
    if c % 4 or s.pointwise or s.dilation[1] != 1 or not _whole(s) or fh * fw > MAX_TAPS:
        return None
    padded = s.padded_columns or s.padded_rows
    shape = sums_shape(s, form) | {"padded_columns": s.padded_columns, "padded_rows": s.padded_rows}
    edge = borders(s, form, 1)
    rows = fh * edge.passes
    plain = fh * (edge.passes - edge.columns) * (1 - edge.missing)
    cost = 9 * edge.passes + 7.8 * plain + (rows - plain) * (117 + 10.4 * fw) + (3 * c if padded else 0)
    return Gathered(1, fh * fw * c // 4, ow * _rows(s, form), shape, cost, c if padded else 0, runs=fh, padded=padded)


def zipped(s: Sums, form: Form) -> Gathered | None:
    """Operands of four zipped pixels, for channels in fours and taps that are neighbours, on single-issue cores."""
    (_, w, c), (oh, ow, _), (fh, fw) = s.size, s.out, s.window
    pixels = oh * ow if s.pointwise and not form.rolled else ow
    if not _whole(s) or c % 4 or not _near(s) or pixels < 4 or DUAL_ISSUE in form.core:
        return None
    n = fw * c
    padded = not s.pointwise and (s.padded_rows or s.padded_columns)
    edge, groups = borders(s, form, 4), fh * n // 4
    shape = sums_shape(s, form) | {
        "pointwise": s.pointwise, "pixels": pixels, "n": n, "words": fh * n,
        "padded_rows": s.padded_rows, "padded_columns": s.padded_columns, "inner_last": w - fw - 3 * s.stride[1],
        "rest": bool((pixels if s.pointwise else ow) % 4),
        "whole": edge.part < edge.passes and not (form.rings and form.rings[0]),  # some windows lie in the image
    }  # fmt: skip
    passes = pixels // 4 + pixels % 4 if s.pointwise else -(-ow // 4) * _rows(s, form)
    if s.pointwise:
        cost = passes * (27 + 21.3 * groups)
    else:
        cost = edge.passes * (19 * groups + 27 * fh) + edge.part * 64 * fh + edge.columns * 54 * fh * fw
    return Gathered(
        1, groups, passes, shape, cost, 4 * fh * n + (c if padded else 0),
        padded=padded, in_place=PIXELS if s.pointwise else "",
    )  # fmt: skip


# With slow flash, weights that are read repeatedly stall. On dual-issue cores, instructions of the tuned forms pair,
# and the widening of pixels stalls.
TUNED, ONCE = {DUAL_ISSUE: 0.93, SLOW_FLASH: 1.12}, {SLOW_FLASH: 1.03}
PLAIN, WIDENED = {SLOW_FLASH: 1.3}, {DUAL_ISSUE: 1.2, SLOW_FLASH: 1.3}
TWO_PIXELS = Variant("dsp 2 pixels", "arm_dsp/convolution.c:conv_pairs", "eb_dot2", widened_pairs, TUNED)
VARIANTS = (
    Variant("dsp 1 pixel", "arm_dsp/convolution.c:dense", "eb_dot1", in_place_bytes, PLAIN),
    Variant("dsp 1 pixel", "arm_dsp/convolution.c:dense", "eb_dot1", copied_once, PLAIN),
    Variant("dsp 1 pixel, int16", "arm_dsp/convolution.c:dense", "eb_dot1w", widened_once, ONCE),
    TWO_PIXELS,
    Variant("dsp 2 pixels, packed taps", "arm_dsp/convolution.c:conv_packed", "eb_dot2", packed_taps, TUNED),
    Variant("dsp 2 pixels, int8", "arm_dsp/convolution.c:conv_bytes", "eb_dot2n", _bytes(2), WIDENED),
    Variant("dsp 1 pixel", "arm_dsp/convolution.c:conv_bytes", "eb_dot1", _bytes(1), WIDENED),
    Variant("dsp 1 pixel, large sums", "arm_dsp/convolution.c:dense", "eb_single4", in_place_bytes, PLAIN),
    Variant("dsp 1 pixel, large sums", "arm_dsp/convolution.c:dense", "eb_single4", copied_once, PLAIN),
    Variant("dsp 1 pixel, large sums", "arm_dsp/convolution.c:conv_bytes", "eb_single4", _bytes(1), PLAIN),
    Variant("dsp 1 pixel, row pointers", "arm_dsp/convolution.c:conv_rows", "eb_dot1r", row_pointers, WIDENED),
    *(
        Variant("dsp 1 pixel, few channels", f"arm_dsp/convolution.c:{template}", f"eb_few{n}{end}", gather, paces)
        for n in FEW
        for template, end, gather, paces in (
            ("dense", "", in_place_bytes, PLAIN),
            ("dense", "", copied_once, PLAIN),
            ("conv_bytes", "", _bytes(1), WIDENED),
            ("conv_rows", "r", row_pointers, WIDENED),
        )
    ),
    Variant("dsp 1 pixel, 4-bit weights", "arm_dsp/convolution.c:dense", "eb_dot1h", in_place_bytes, ONCE),
    Variant("dsp 1 pixel, int16, 4-bit weights", "arm_dsp/convolution.c:dense", "eb_dot1wh", widened_once, ONCE),
    Variant("dsp 2 pixels, 4-bit weights", "arm_dsp/convolution.c:conv_pairs", "eb_dot2h", widened_pairs_alone),
    Variant("dsp 2 pixels, packed taps, 4-bit weights", "arm_dsp/convolution.c:conv_packed", "eb_dot2h", packed_taps),
)
WAITING = (  # for cores with slow flash
    Variant("dsp 4 pixels", "arm_dsp/convolution.c:conv_four", "eb_dot4", zipped, {SLOW_FLASH: 0.98}),
    Variant("dsp 8 channels", "arm_dsp/convolution.c:dense", "eb_dot8", widened_once_of_eights, ONCE),
)


# Grouped, dilated and transposed convolutions, and those of int16 values: two pixels at a time.
#
# A list has the address of the pixel under each tap; its values are widened group by group. See kernels/phases.py.
# Channels that are no multiple of four have no gaps: the taps together are padded to one, instead of each by itself.


@dataclass(frozen=True)
class PhaseSums:
    """The sums of a phase of outputs.

    `streams`: weights for each group, of which blocks of channels take the first `full` words. `run`: how many taps lie
    side by side in each row. `ends`: how sums become results, with the scalars that this takes.
    """

    taps: int
    run: int
    streams: tuple[Array, ...]
    full: int
    ends: dict[str, str | bool]
    scalars: dict[str, int | float]

    @property
    def finish(self) -> str:
        return str(self.ends["finish"])

    def alike(self, other: PhaseSums) -> bool:
        """Whether both phases rescale their sums in the same way."""
        return (self.ends, self.scalars) == (other.ends, other.scalars)


def convolution(layer: KernelLayer) -> Kernel | None:
    """The kernel for layers that others do not serve (groups, dilated columns, int16), and for few channels."""
    (x, w), s = layer.graph.operands(layer.op)[:2], layer.sums
    neighbours = x.dtype == "int8" and (layer.op.attrs["dilation"][1] == 1 or w.shape[2] == 1)
    served = layer.op.attrs.get("groups", 1) == 1 and neighbours
    return None if served and (s is None or s.size[2] % 4 == 0 or s.out[2] not in FEW) else gathered(layer)


def _phases(op: Op, graph: Graph, taps: list[list[phases.Tap]], paired: bool) -> list[PhaseSums]:
    """The sums of each phase; none unless all phases have this form and rescale alike.

    `paired`: channels come in twos, whose sums may be large: each word has weights of one channel.
    """
    (x, w), runs = graph.operands(op)[:2], [phases.run(op, some) for some in taps]
    if wide.fits(op, graph) and x.shape[0] == 1:
        weights = [phases.weights(w.array, some) for some in taps]
        return [_wide_phase(op, graph, *phase) for phase in zip(weights, runs, strict=True)]
    sums = phases.int8_sums(op, graph, taps)
    if not sums:
        return []
    most = np.max([s.bound for s in sums], axis=0)
    ends = [factors_within(s, most) for s in sums]
    described = [_phase(op, *phase, paired) for phase in zip(sums, ends, runs, strict=True)]
    first = described[0]
    alike = [p for p in described if p is not None and first is not None and p.alike(first)]
    return alike if len(alike) == len(taps) else []


def _wide_phase(op: Op, graph: Graph, weights: Array, run: int) -> PhaseSums:
    """Sums of a phase of int16."""
    own, first, ends = phases.groups(op, len(weights)), wide.start(op, graph), wide.rescaling(op, graph)
    flat, (end, scalars) = weights.reshape(len(weights), 1, -1), wide.ends(op, graph)
    packed = [wide.stream(flat[part], first[part], ends[part], 2) for part in own]
    full = len(weights) // len(own) // 2 * packed[0].shape[1]
    form: dict[str, str | bool] = {"finish": f"wide{end}", "unit": False, "paired": False}
    streams = tuple(stream.ravel() for stream in packed)
    return PhaseSums(weights.shape[1], run, streams, full, form, scalars)


def _phase(op: Op, s: Sums, ends: Factors, run: int, paired: bool) -> PhaseSums | None:
    """Sums of a phase of int8; None if there is no stream for a group."""
    own, count = phases.groups(op, len(s.weights)), s.weights.shape[1]
    rows = 1 if s.weights.shape[3] % 4 else count
    blocks = _twos if paired else _blocks
    possible = [blocks(phases.group(s, part), rows, ends.words[part]) for part in own]
    packed = [each for each in possible if each is not None]
    if len(packed) < len(own) or s.finish == "sums":
        return None
    streams, scalars = tuple(stream for stream, _ in packed), {"y_zero": s.y_zero, **ends.scalars, **bounds(s)}
    return PhaseSums(count, run, streams, packed[0][1], {**ends.shape, "paired": paired}, scalars)


def _twos(s: Sums, rows: int, ends: Array) -> tuple[Array, int] | None:
    """Streams as of `_blocks`, for channels in twos and a last one by itself."""
    k = len(s.weights)
    weights, full = s.weights.reshape(k, rows, -1), k // 2 * 2
    parts = [wide.stream(weights[own], s.start[own], ends[own], count, range(4)).ravel()
             for own, count in ((slice(full), 2), (slice(full, k), 1)) if len(weights[own])]  # fmt: skip
    return (np.concatenate(parts), parts[0].size if full else 0) if s.fits else None


def _blocks(s: Sums, rows: int, ends: Array) -> tuple[Array, int] | None:
    """The stream of a group, and where its last channels begin: one or two by themselves, three as four."""
    k = len(s.weights)
    full, rest = k // 4 * 4, k % 4
    if rest not in (1, 2):
        stream = of_channels_with(s, 4, rows, ends)
        return None if stream is None else (stream.ravel(), full // 4 * stream.shape[1])
    last = phases.group(s, slice(full, k))
    words = wide.stream(last.weights.reshape(rest, rows, -1), last.start, ends[full:], rest, range(4)).ravel()
    blocks = of_channels_with(phases.group(s, slice(full)), 4, rows, ends[:full]) if full else np.empty(0, words.dtype)
    if blocks is None or not s.fits:
        return None
    return np.concatenate([blocks.ravel(), words]), blocks.size


def gathered(layer: KernelLayer) -> Kernel | None:
    """The kernel that gathers the taps of two pixels; None unless all phases rescale alike."""
    (op, graph), form = phases.joined(layer.op, layer.graph), layer.form
    taps = phases.taps(op, graph)
    alike = _phases(op, graph, taps, False) or _phases(op, graph, taps, True)
    if not alike:
        return None
    (x, w), finish = graph.operands(op)[:2], alike[0].finish
    item, block = (2, 2) if finish.startswith("wide") else (1, 2 if alike[0].ends["paired"] else 4)
    most, run, (k, _, _, c) = max(p.taps for p in alike), max(p.run for p in alike), w.shape
    flat, groups, n = item == 2 or c % 4 > 0, op.attrs.get("groups", 1), -(-c // 4) * 4
    kg, inner = k // groups, -(-most * c // 4) * 4
    table = phases.places(taps, _heads(alike, flat))
    lines, zeros = 4 * inner + 8 * most, max(-(-x.shape[3] // 4) * 4, run * c)
    zeros_at = lines + (2 * inner if flat and item == 1 else 0)
    shape = phases.shape(layer, op, graph, table) | {
        "blocks": kg // block, "tail": kg % block, "full": kg // block * block,
        "gather": f"_{c}" if c in (4, 8) else "",
        "rest": kg % block if item == 1 and kg % block < 3 else 0, "n": n, "flat": flat, "run": run if flat else 1,
        "item": C_TYPES[x.dtype], "bytes": item, "wide": item == 2, **alike[0].ends, "padding": zeros,
        "bounds": finish.endswith("_clamped"), "list": 4 * inner, "lines": lines, "zeros": zeros_at,
    }  # fmt: skip
    stream = np.concatenate([part for p in alike for part in p.streams])
    head = "its weights, a group's last, the next group's, " + ("how many taps are neighbours, " if flat else "")
    constants = (
        Constant("w", stream, "start values, weights and factors by phases, groups and some channels"),
        Constant("places", table.ravel(), f"of each phase: {head}taps"),
    )
    pair = sum(_pair(p, c, groups, kg, flat) for p in alike) / len(alike)
    pairs = phases.pairs(op, graph, form)
    return Kernel(
        "arm_dsp/windows.c:gathered", layer.plain.stem, shape, constants, {"x_zero": zero_of(x), **alike[0].scalars},
        scratch=zeros_at + item * zeros, variant="dsp gathered taps", estimate=60 + 3 * x.shape[3] + pairs * pair,
        traffic=Traffic(passes=pairs),
    )  # fmt: skip


def _heads(described: list[PhaseSums], flat: bool) -> list[tuple[int, ...]]:
    """Offsets of each phase's weights, of those of a group's last channels, and of the next group's."""
    heads, at = [], 0
    for p in described:
        heads.append((at, p.full, p.streams[0].size, *([p.run] if flat else [])))
        at += sum(stream.size for stream in p.streams)
    return heads


def _pair(p: PhaseSums, c: int, groups: int, kg: int, flat: bool) -> float:
    """Instructions for two pixels; besides micro-kernels they are medians of `./sconsw bench-kernels`."""
    entries, wide = p.taps / p.run, p.finish.startswith("wide")
    inner, together = -(-p.taps * c // 4) * 4, c * p.run * (2 if wide else 1)
    if flat:
        gather = 20 + entries * (15 if together <= 8 else 18 + 1.5 * together) + (0 if wide else 20 + 2.25 * inner)
    else:
        gather = 20 + p.taps * (3 + 1.75 * c if c <= 8 else 6 + 2.25 * c)
    if wide:
        products = -(-kg // 2) * (22 + 4 * (9 if p.ends["finish"] == "wide_clamped" else 5) + 3.9 * inner) + 25 * (
            kg % 2
        )
    else:
        rest = kg % 2 if p.ends["paired"] else kg % 4 if kg % 4 < 3 else 0
        products, turns = 0.0, inner // 4
        if p.ends["paired"]:
            products = kg // 2 * (micro("eb_rest2", p.finish).executed(groups=turns) + CALL)
        elif kg > rest:
            blocks = micro("eb_dot2", p.finish).executed(blocks=-(-(kg - rest) // 4), groups=turns)
            products += blocks + CALL + COPIED * 2 * (kg % 4 == 3)
        products += micro(f"eb_rest{rest}", p.finish).executed(groups=turns) + CALL if rest else 0
    return 30 + 22 * entries + groups * (gather + products)
