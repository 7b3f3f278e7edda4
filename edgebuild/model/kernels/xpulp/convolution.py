"""Sums over all channels for XpulpV2: how what is under a window becomes the operand of a micro-kernel of `dot.py`.

Pixels that are their own window, or whose rows need no padding, are read where they lie. Else the rows under a window
are copied to lines with their padding, each once. Where a row of a window has few words, or its taps are no
neighbours, the words of several pixels are gathered side by side first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...ir import Array
from ...ops.base import Constant, Form, FourBytes, Kernel, Sums, Traffic
from ...ops.spatial import sums_shape, words
from .dot import Dot, cycles
from .ends import Ends, ends, raw_ends

BLOCKS = ((5, 4), (4, 4), (3, 4), (2, 4), (1, 16), (1, 12), (1, 8), (1, 4))  # pixels and channels
FEW_WORDS = 8  # of a row of a window, which are gathered rather than read row by row
CALL = (
    30  # cycles of C around a micro-kernel, with its arguments; this and those below: from `edgebuild verify --layers`
)
ROW_OF_CALL = 4  # of a pointer in its list
PER_ROW, PER_WORD_COPIED, PER_PIECE, PER_WORD_GATHERED = 60, 4.5, 14, 4.0


@dataclass(frozen=True)
class Operand:
    """How pixels lie for a micro-kernel.

    `pieces`: taps that are neighbours, of `words` words each, of which a window has `count`. `copied`: rows are copied
    to lines. `gathered`: words of pixels are brought side by side. `lines`: in the scratch, of `line` bytes.
    """

    count: int
    words: int
    bytes: int  # of a piece
    copied: bool
    gathered: bool
    lines: int = 0
    line: int = 0


def _whole(n: int) -> int:
    return -(-n // 4) * 4


def operands(s: Sums, form: Form) -> Iterator[Operand]:
    """Ways that serve the layer."""
    (_, w, c), (fh, fw) = s.size, s.window
    near = s.dilation[1] == 1 or fw == 1
    size = fw * c if near else c
    count, each = (fh if near else fh * fw), _whole(size) // 4
    if s.pointwise and c % 4 == 0:
        yield Operand(1, c // 4, c, False, False)
        return
    # Words that begin with the last tap of a row read beyond it: only lines have room for that.
    copied = s.padded_columns or size % 4 > 0
    lines = fh if form.rolled else (fh - 1) * s.dilation[0] + 1
    columns = max(s.pad[1] + w, (s.out[1] - 1) * s.stride[1] + (fw - 1) * s.dilation[1] + 1)
    line = _whole(columns * c) + 4
    room = (lines if copied else 0, line)
    if near:
        yield Operand(count, each, size, copied, False, *room)
    if not near or each < FEW_WORDS:
        yield Operand(count, each, size, copied, True, *room)


def stream(s: Sums, e: Ends, channels: int, count: int, started: bool) -> Array:
    """By blocks of channels: start values where sums have them, words of weights, factors. The last repeats some."""
    k = s.out[2]
    order = [*range(k // channels * channels), *(range(k - channels, k) if k % channels else ())]
    taps = s.weights.reshape(k, count, -1)[order]
    taps = np.pad(taps, ((0, 0), (0, 0), (0, -taps.shape[2] % 4)))
    packed = np.ascontiguousarray(taps).view("<i4").reshape(len(order) // channels, channels, -1)
    start = s.start[order].reshape(-1, channels)[:, : channels * started]
    factors = e.words[order].reshape(len(start), -1)
    return words(np.concatenate([start, packed.transpose(0, 2, 1).reshape(len(start), -1), factors], axis=1))


def convolution(encoding: str, block: tuple[int, int], s: Sums, form: Form) -> Kernel | None:
    """The way of least cycles for so many pixels and channels at a time."""
    c, (oh, ow, k), wanted = s.size[2], s.out, block[0]
    e = (raw_ends(s) or ends(s)) if s.weights.shape[3] == c and min(s.pad) >= 0 else None
    line = (ow if form.rolled else oh * ow) if s.pointwise and c % 4 == 0 else ow
    if e is None or line < wanted or (wanted == 1 and line > 1) or (k < block[1] and block != _smallest(wanted)):
        return None
    pixels, channels = wanted, min(block[1], k)
    ways = [_kernel(encoding, pixels, channels, s, e, form, o) for o in operands(s, form)]
    return min((m for m in ways if m is not None), key=lambda m: m.estimate, default=None)


def _smallest(pixels: int) -> tuple[int, int]:
    return min(b for b in BLOCKS if b[0] == pixels)


def _kernel(
    encoding: str, pixels: int, channels: int, s: Sums, e: Ends | None, form: Form, o: Operand
) -> Kernel | None:
    (h, _, c), (oh, ow, k) = s.size, s.out
    direct = s.pointwise and c % 4 == 0
    spacing, step = (4, 4 * pixels) if o.gathered else (s.stride[1] * c if not direct else c, 4)
    clamped = not s.full_range
    rows, words_of_row = not (direct or o.gathered), o.words * (o.count if o.gathered else 1)
    if e is raw_ends(s) and not rows and words_of_row < 2:
        e = ends(s)
    if e is None:
        return None
    started = e is not raw_ends(s)
    d = Dot(encoding, pixels, channels, spacing if pixels > 1 else 0, step, rows, started, e.product, clamped)
    out_rows = 1 if form.rolled else oh
    if not d.serves or h * s.size[1] * c >= 2**31:
        return None
    count = (ow if form.rolled else oh * ow) if direct else ow
    calls = (1 if direct else out_rows) * -(-count // pixels)
    blocks = [k // channels, *([1] if k % channels else [])]
    turns = {"words": words_of_row, "rows": o.count}
    # Words that lie across two take two accesses, three of four where pixels have an odd number of bytes.
    across = 0 if o.gathered or direct else {0: 0, 2: 0.5}.get(spacing % 4, 0.75) * pixels * o.words * o.count
    work = (
        sum(across * b for b in blocks)
        + sum(cycles(d, blocks=b, **turns) + CALL for b in blocks)
        + (0 if direct else ROW_OF_CALL * o.count)
    )
    bring = pixels * o.count * (PER_PIECE + PER_WORD_GATHERED * o.words) if o.gathered else 0
    copies = o.count if form.rolled else h
    copying = copies * (PER_ROW + PER_WORD_COPIED * o.line / 4) if o.copied else 0
    weights = stream(s, e, channels, o.count, d.started)
    padded = s.padded_rows or s.padded_columns
    lines = o.lines * o.line if o.copied else 0
    zeros = o.line if s.padded_rows else 0
    columns = 4 * pixels * o.count * o.words if o.gathered else 0
    shape = sums_shape(s, form) | {
        "dot": d.name, "direct": direct, "gathered": o.gathered, "copied": o.copied, "clamped": clamped,
        "pixels": pixels, "count": count, "blocks": blocks[0], "tail": len(blocks) > 1,
        "tail_at": blocks[0] * weights.shape[1], "last_k": k - channels, "words": o.words,
        "turns": words_of_row - d.first, "pieces": o.count, "across": o.count // s.window[0],
        "lines": o.lines, "line": o.line, "zeros_at": lines, "columns_at": lines + zeros,
        "padded_rows": s.padded_rows, "outside": o.copied or s.padded_rows,
        "base": d.base if o.gathered else d.base * spacing,
        "row_bytes": min(s.size[1], (ow - 1) * s.stride[1] + (s.window[1] - 1) * s.dilation[1] + 1 - s.pad[1]) * c,
        "before": s.pad[1] * c,
    }  # fmt: skip
    scalars: dict[str, int | float] = {"x_zero": s.x_zero} if shape["outside"] and padded else {}
    shape["padded"] = bool(scalars)
    if clamped:
        scalars |= {name: _four(bound) for name, bound in (("low4", s.low), ("high4", s.high))}
    note = f"start values, weights and factors by {channels} channels"
    return Kernel(
        "xpulp/conv.c.j2", s.stem, shape, (Constant("w", weights.ravel(), note),), scalars,
        scratch=lines + zeros + columns, variant=f"xpulp {pixels} pixels x {channels} channels",
        estimate=calls * (work + bring) + copying + 60, traffic=Traffic(passes=calls),
    )  # fmt: skip


def _four(bound: int) -> FourBytes:
    word = (bound & 0xFF) * 0x01010101
    return FourBytes(word - (word >> 31 << 32))
