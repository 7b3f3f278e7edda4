"""Kernels for Armv8.1-M with MVE (Helium): dot products of sixteen int8 and requantisation of four channels at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...ir import Array
from ...ops.base import PIXELS, Constant, Form, Kernel, Sums, Traffic
from ...ops.spatial import in_place, sums_shape
from . import lanes
from .lanes import LANES
from .windows import Columns, RowOfColumns, Words

SHARED, COLUMNS, ROW = 1.35, 1.55, 1.75  # pace, where loads stand close to what waits for them (`bench-cycles`)
MOST_OVER = 32  # pixels that are copied before their results are written over them


def stream(s: Sums, taps: Array) -> Array:
    """Weights as eb_mve1 and eb_mve2 read them, K x taps; channels behind K in the last group are 0."""
    k, n = taps.shape
    groups = -(-k // 4)
    missing = 4 * groups - k
    w = np.pad(taps, ((0, missing), (0, 0))).reshape(groups, 4, n)
    full = n // LANES * LANES
    sixteens = w[:, :, :full].reshape(groups, 4, -1, LANES).transpose(0, 2, 1, 3).reshape(groups, -1)
    numbers = (np.pad(a, (0, missing)).reshape(groups, 4) for a in (s.start, s.mantissa))
    start, mantissa = (a.astype("<i4").view(np.int8) for a in numbers)
    shift = np.pad(-s.right, (0, missing)).reshape(groups, 4).astype(np.int8)
    parts = (start, sixteens.astype(np.int8), w[:, :, full:].reshape(groups, -1).astype(np.int8), mantissa, shift)
    return np.concatenate(parts, axis=1).view("<i4").astype(np.int32)


def convolution(lean: int, own: bool, s: Sums, form: Form) -> Kernel | None:
    """Two pixels at a time: straight from x where a window is one piece, else from a row of outputs' columns.

    `lean`: with little scratch, the columns of so many outputs; 0: of a row. `own`: by a function for this layer alone.
    Pixels that results may lie over are copied, too, in blocks of more.
    """
    over = s.pointwise and form.over
    if over:
        pixels = s.size[0] * s.size[1]  # side by side
        s, lean = replace(s, size=(1, pixels, s.size[2]), out=(1, pixels, s.out[2])), 4 * lean or MOST_OVER
    (h, w, c), (oh, ow, _), (fh, fw) = s.size, s.out, s.window
    if not s.fits or s.weights.shape[3] != c or (s.dilation[1] != 1 and fw > 1):
        return None
    inside = s.pad == (0, 0) and (ow - 1) * s.stride[1] + fw <= w and (oh - 1) * s.stride[0] < h
    lines, pixels = (1, ow if form.rolled else oh * ow) if s.pointwise else (1 if form.rolled else oh, ow)
    shape: dict[str, Any] = sums_shape(s, form)
    blocks = 1
    if fh == 1 and inside and not over:
        if lean:
            return None
        shape |= {"gather": "direct", "advance": s.stride[1] * c}
        scratch, gathering = 0, 0.0
    else:
        if lean:
            blocks, pixels = -(-ow // lean), min(ow, lean)
        columns = _columns(s, pixels)
        shape |= {"gather": "columns", "advance": s.stride[1] * fh * c, **columns}
        scratch = columns["column"] * columns["columns"]
        each = 0.2 * c if fh == 1 else 15 * c / columns["piece"] if c < LANES else 9 + 0.2 * c
        copied = columns["columns"] - columns["kept"] * (blocks > 1)
        gathering = lines * blocks * (40 + fh * (15 + copied * each) + 0.2 * columns["kept"] * fh * c)
    shape |= {"lines": lines, "pixels": pixels}
    name = f"mve {shape['gather']}{f' of {lean}' if lean else ''}{', own' if own else ''}"
    return _convolution(s, s.weights.transpose(0, 2, 1, 3), shape, name, own, scratch, gathering, blocks, over)


def strips(s: Sums, form: Form) -> Kernel | None:
    """Outputs that lie one below the other, two at a time, from a strip of x that is as wide as the window."""
    (h, w, c), (oh, ow, _), (fh, fw) = s.size, s.out, s.window
    if form.rolled or not s.fits or s.weights.shape[3] != c or s.dilation != (1, 1):
        return None
    piece, rows = fw * c, (oh - 1) * s.stride[0] + fh
    copied = max(0, min(h, rows - s.pad[0]))
    padded_columns = s.pad[1] > 0 or (ow - 1) * s.stride[1] - s.pad[1] + fw > w
    shape = sums_shape(s, form) | {
        "gather": "strips", "advance": s.stride[0] * piece, "lines": ow, "pixels": oh, "piece": piece, "rows": rows,
        "copied": copied, "padded_columns": padded_columns, "padded": padded_columns or copied < rows,
    }  # fmt: skip
    gathering = ow * (30 + copied * (16 + 3 * (piece // LANES)))
    return _convolution(s, s.weights, shape, "mve strips, own", True, rows * piece, gathering, 1, False)


def _convolution(
    s: Sums,
    weights: Array,
    shape: dict[str, Any],
    name: str,
    own: bool,
    scratch: int,
    gathering: float,
    blocks: int,
    over: bool,
) -> Kernel | None:
    """From what says how pixels are gathered, at a cost of `gathering` instructions, to the kernel."""
    k, how, lines, pixels = s.out[2], s.finish, shape["lines"], shape["pixels"]
    taps = weights.reshape(k, -1)
    packed = stream(s, taps)
    step = s.out[1] * k if shape["gather"] == "strips" else k  # from a pixel's results to the next one's
    bytes_ = 4 * packed.shape[1]
    if own and (how == "sums" or k < 4 or pixels < 2 or max(step, bytes_ // 16, shape["advance"] // 8) >= 2**12):
        return None
    if own:
        two = lanes.pairs(taps.shape[1], shape["advance"], 7 + (step >= 128) + 4 * how.endswith("_clamped"))
        shape["pairs"] = lanes.Own(two, k // 4 * 4, taps.shape[1], bytes_, how, step, shape["advance"])
    shape |= {
        "own": own, "finish": how, "taps": taps.shape[1], "step": packed.shape[1], "beside": step,
        "full": k // 4 * 4, "tail": k % 4, "full_words": k // 4 * packed.shape[1],
    }  # fmt: skip
    scalars: dict[str, int | float] = {"x_zero": s.x_zero} if shape.get("padded") else {}
    scalars["y_zero"] = s.y_zero
    if how == "sums" or how.endswith("_clamped"):
        scalars |= {"low": s.low, "high": s.high}
    products = lines * blocks * _products(s, pixels, taps.shape[1], shape.get("pairs"))
    return Kernel(
        "arm_mve/sum_kernels.c:conv", s.stem, shape, (Constant("w", packed.ravel(), "by groups of four channels"),),
        scalars, scratch=scratch, variant=name, estimate=(30 if gathering else 0) + gathering + products,
        pace=1.0 if own else SHARED, traffic=Traffic(passes=lines * blocks * -(-pixels // 2)),
        in_place=PIXELS if over else "",
    )  # fmt: skip


def _columns(s: Sums, pixels: int) -> dict[str, Any]:
    """How the columns under the windows of some outputs side by side lie in the scratch: FH x C bytes for each column.

    The next outputs keep `kept` of the columns. `offsets`: where the bytes of one vector go.
    """
    (h, w, c), (oh, ow, _), (fh, fw) = s.size, s.out, s.window
    columns, column = (pixels - 1) * s.stride[1] + fw, fh * c
    last = (oh - 1) * s.stride[0] - s.pad[0] + (fh - 1) * s.dilation[0]
    across = next(n for n in range(max(1, LANES // c), 0, -1) if n == 1 or (n - 1) * column + c <= 256)
    offsets = [i // c * column + i % c for i in range(across * c)] if c < LANES else []
    padded_rows = s.pad[0] > 0 or last >= h
    outputs = -(-ow // pixels) * pixels  # outputs of whole blocks
    padded_columns = s.pad[1] > 0 or (outputs - 1) * s.stride[1] - s.pad[1] + fw > w
    return {
        "column": column, "columns": columns, "kept": max(0, fw - s.stride[1]),
        "padded_rows": padded_rows, "padded_columns": padded_columns, "padded": padded_rows or padded_columns,
        "piece": across * c, "offsets": tuple(offsets + [0] * (LANES - len(offsets))),
    }  # fmt: skip


# Fitted to `./sconsw bench-kernels`: a call, a sum's result in C, a pixel's last group.
CALL, GENERAL, COPIED = 14, 40, 4


def _products(s: Sums, pixels: int, taps: int, own: lanes.Own | None) -> float:
    """Instructions for a line of pixels: of the layer's own function, and of those that layers share."""
    turns = {"sixteens": taps // LANES, "rest": int(taps % LANES > 0)}
    k, whole, last = s.out[2], s.out[2] // 4, s.out[2] % 4 > 0

    def shared(together: int, groups: int, tail: bool) -> float:
        f = lanes.micro(together, s.finish)
        if s.finish == "sums":
            return -(-k // 4) * (f.executed(groups=1, **turns) + CALL) + k * together * GENERAL
        instructions = f.executed(groups=groups, **turns) + CALL if groups else 0.0
        return instructions + (f.executed(groups=1, **turns) + CALL + COPIED * together if tail else 0)

    one = pixels % 2 * shared(1, whole, last)
    if own is None:
        return one + pixels // 2 * shared(2, whole, last)
    tails = pixels // 2 * shared(2, 0, True) if last else 0.0
    return one + tails + own.function("").executed(groups=whole, pairs=pixels // 2) + CALL


def depthwise(s: Sums, form: Form) -> Kernel | None:
    """Four channels at a time through columns of the rows under the window, so that a window is one vector."""
    (_, w, c), (oh, ow, k), (fh, fw) = s.size, s.out, s.window
    how, taps, advance = s.finish, fh * fw, s.stride[1] * fh
    total = (ow - 1) * s.stride[1] + fw
    plane = total * fh
    used = max(0, min(w, total - s.pad[1]))
    unfit = taps > LANES or advance > 127 or 4 * (plane + 2 * fh) >= 2**12 or c * 7 >= 2**16 or k >= 2**12
    if unfit or s.dilation != (1, 1) or not s.fits or how == "sums":
        return None
    fours = c == k and c % 4 == 0
    spread = [pixel * fh + channel * plane for channel in range(4 if fours else 1) for pixel in range(8)]
    turned = [
        [lane // fh * fh + (lane - turn) % fh if lane < taps else 0 for lane in range(LANES)] for turn in range(fh)
    ]
    columns = 4 * plane + LANES  # the last window is read as sixteen bytes
    clamped = how.endswith("_clamped")
    shape: dict[str, Any] = sums_shape(s, form) | {
        "clamped": clamped, "plane": plane, "used": used, "function": Columns(taps, plane, ow, advance, k, how),
        "fours": fours, "M": k // c, "row_by_itself": False, "turned": tuple(map(tuple, turned)),
        "places": (*(pixel * c for pixel in range(8)), *spread),
        "ends": -(-columns // 4) * 4,
    }  # fmt: skip
    packed = _fours(s)
    shape["step"] = packed.shape[1] * 4
    scalars: dict[str, int | float] = {"x_zero": s.x_zero, "y_zero": s.y_zero}
    if clamped:
        scalars |= {"low": s.low, "high": s.high}
    fill = 25 + (12 if fours else 20) * -(-used // 8)
    fills = fh if form.rolled else min(s.stride[0], fh)
    rows = 1 if form.rolled else oh
    row = 14 + fills * fill + shape["function"].function("").executed(outputs=ow)
    cost = 30 + 0.7 * plane + -(-k // 4) * rows * row
    constant = Constant("w", packed.ravel().view(np.int8), "by fours of channels")
    return Kernel(
        "arm_mve/sum_kernels.c:depthwise", s.stem, shape, (constant,), scalars,
        scratch=shape["ends"] + 48 * clamped, variant="mve columns", estimate=cost,
        pace=ROW if form.rolled else COLUMNS, in_place=in_place(s, form) if fours else "",
        traffic=Traffic(channels_in=4, channels_out=4),
    )  # fmt: skip


def depthwise_lines(upright: bool, s: Sums, form: Form) -> Kernel | None:
    """Four channels of two outputs at a time, all lines of an image: rows, or columns if `upright`; or a row by itself.

    Windows are words of four channels, which VLD4 takes apart; two outputs side by side share them.
    """
    (_, w, c), (_, ow, k) = s.size, s.out
    how, taps = s.finish, s.window[0] * s.window[1]
    line, beside = (c, w * c) if upright else (w * c, c)  # bytes from a line of x to the next, from a pixel to the next
    down, ahead = (k, ow * k) if upright else (ow * k, k)
    along = 0 if upright else 1
    across = 1 - along
    (fi, fo), (si, so), (pi, po) = ((v[along], v[across]) for v in (s.window, s.stride, s.pad))
    (size, lines), (inner, outer) = ((v[along], v[across]) for v in (s.size, s.out))
    outside = po > 0 or (outer - 1) * so - po + fo > lines
    if form.rolled:  # a list of rows, without those before the image
        line, po, outer = 4, 0, 1
    total = (inner - 1) * si + fi
    used = max(0, min(size, total - pi))
    unfit = taps + fo * si > LANES or inner < 2 or c != k or c % 4 or not used or max(fi, fo, so) + pi + po > 40
    if unfit or (form.rolled and upright) or s.dilation != (1, 1) or not s.fits or how == "sums":
        return None
    clamped = how.endswith("_clamped")
    packed = _fours(s, upright)
    function = Words(
        taps, fo, so, si, po, pi, lines, used, total - pi - used, line, beside, ahead, down, outer, inner, k,
        packed.shape[1] * 4, outside, form.rolled, how,
    )  # fmt: skip
    shape: dict[str, Any] = sums_shape(s, form) if form.rolled else {"rolled": False}
    shape |= {"function": function, "upright": upright, "outside": outside, "clamped": clamped}
    words = (outer - 1) * so + fo * max(total, si * (inner + 1)) + LANES
    scalars: dict[str, int | float] = {"x_zero": s.x_zero, "y_zero": s.y_zero}
    if clamped:
        scalars |= {"low": s.low, "high": s.high}
    filled = (outer - 1) * so + fo
    per_pair = 46 + 2 * clamped + 4 * how.startswith("signed")
    cost = 80 + k // 4 * (45 + filled * (24 + 2.5 * used + total - used) + outer * (32 + (inner + 1) // 2 * per_pair))
    constant = Constant("w", packed.ravel().view(np.int8), "by fours of channels")
    return Kernel(
        "arm_mve/sum_kernels.c:depthwise_lines", s.stem, shape, (constant,), scalars,
        scratch=128 + 32 * clamped + 4 * words, variant=f"mve {'columns' if upright else 'rows'} of words",
        estimate=cost, in_place=in_place(s, form), traffic=Traffic(channels_in=4, channels_out=4),
    )  # fmt: skip


def depthwise_row(s: Sums, form: Form) -> Kernel | None:
    """The same for a row by itself, all of whose channels one loop makes: no more than it gathers is done anew."""
    kernel = depthwise(s, form) if form.rolled else None
    if kernel is None or not kernel.shape["fours"] or kernel.shape["used"] == 0:
        return None
    (_, w, c), (_, ow, k), (fh, fw) = s.size, s.out, s.window
    total = (ow - 1) * s.stride[1] + fw
    used = min(w, total - s.pad[1])
    narrow = used <= 8  # lanes behind the row's end copy its last pixel once more
    if not narrow and 8 * max(c, fh) >= 2**12:
        return None
    pixels = [min(pixel, used - 1) if narrow else pixel for pixel in range(8)]
    places = (*(pixel * c for pixel in pixels), *((s.pad[1] + pixel) * fh for pixel in pixels))
    whole = kernel.shape["function"]
    assert isinstance(whole, Columns)
    function = RowOfColumns(
        whole.taps, whole.plane, whole.outputs, whole.advance, whole.channels, whole.finish, fh, used, c, narrow,
        int(str(kernel.shape["step"])),
    )  # fmt: skip
    cost = 70 + 15 * fh + 0.7 * total * fh
    cost += function.function("").executed(fours=k // 4, rows=fh, eights=-(-used // 8), outputs=ow)
    shape: dict[str, Any] = {**kernel.shape, "function": function, "places": places, "row_by_itself": True}
    return replace(kernel, shape=shape, variant="mve row of columns", estimate=cost, pace=ROW)


def depthwise_channels(s: Sums, form: Form) -> Kernel | None:
    """Eight channels at a time: windows of one column or one row, without padding, where few outputs lie beside."""
    (_, w, c), (oh, ow, k), (fh, fw) = s.size, s.out, s.window
    taps, how = fh * fw, s.finish
    if c != k or c % 8 or min(fh, fw) > 1 or s.padded_rows or s.padded_columns or form.rolled or not s.fits:
        return None
    if how == "sums":
        return None
    along = w * c * s.dilation[0] if fh > 1 else c * s.dilation[1]
    groups = c // 8
    halves = [a.reshape(groups, 4, 2).transpose(0, 2, 1).reshape(groups, 8) for a in (s.start, s.mantissa, -s.right)]
    start, mantissa = (a.astype("<i4").view(np.int8) for a in halves[:2])
    weights = s.weights.reshape(groups, 8, taps).transpose(0, 2, 1).reshape(groups, -1).astype(np.int8)
    packed = np.concatenate([start, weights, mantissa, halves[2].astype(np.int8)], axis=1)
    clamped = how.endswith("_clamped")
    scalars: dict[str, int | float] = {"y_zero": s.y_zero}
    scalars |= {"low": s.low, "high": s.high} if clamped else {}
    shape = sums_shape(s, form) | {"finish": how, "taps": taps, "along": along}
    each = groups * (24 + 8 * taps + 3 * clamped + 4 * how.startswith("signed"))
    return Kernel(
        "arm_mve/sum_kernels.c:depthwise_channels", s.stem, shape,
        (Constant("w", packed.ravel(), "by eights of channels"),), scalars,
        variant="mve channels", estimate=30 + oh * ow * (12 + each), traffic=Traffic(passes=oh * ow),
    )  # fmt: skip


def _fours(s: Sums, by_rows: bool = False) -> Array:
    """For each four channels start values, multipliers, shifts and weights by columns, or rows.

    The last four end with the last channel, which comes more than once if there are fewer.
    """
    k = s.out[2]
    first = [min(at, max(0, k - 4)) for at in range(0, k, 4)]
    channels = np.minimum(np.array(first)[:, None] + np.arange(4), k - 1)
    weights = s.weights[..., 0] if by_rows else s.weights[..., 0].transpose(0, 2, 1)
    weights = weights.reshape(k, -1)[channels].astype(np.int8)
    numbers = [a[channels].astype("<i4").view(np.int8) for a in (s.start, s.mantissa)]
    parts = (*numbers, (-s.right)[channels].astype(np.int8), weights.reshape(len(first), -1))
    return np.concatenate(parts, axis=1).view("<i4").astype(np.int32)
