"""Images at other places or of another size."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..ir import Array, Graph, Op, lines
from . import base
from .base import Constant, Form, Kernel, Spec, is_float, lettered
from .indexing import OUTSIDE

# Resize, Upsample, RESIZE_BILINEAR: each dimension by itself, as sums of neighbours with weights.
#
# `blend` works along `axis`: out[i] = offset[i] + sum over k of weight[i][k] * in[index[i][k]]. OUTSIDE is the index of
# no element. One of weight 0 counts: 0 times an infinity is no number, in onnxruntime and TFLM, too. To the nearest is
# `take`.


def resize_reference(op: Op, graph: Graph, x: Array) -> Array:
    line = np.moveaxis(x.astype(np.float64), op.attrs["axis"], 0)
    index, weight = np.array(op.attrs["index"]), np.array(op.attrs["weight"])
    rows = [(i[i != OUTSIDE], w[i != OUTSIDE]) for i, w in zip(index, weight, strict=True)]
    with np.errstate(all="ignore"):
        parts = [np.tensordot(w, line[i], 1) + o for (i, w), o in zip(rows, op.attrs["offset"], strict=True)]
        return np.moveaxis(np.stack(parts), 0, op.attrs["axis"]).astype(np.float32)


def resize_real(op: Op, graph: Graph) -> str | None:
    """Values are float32."""
    x = graph.operands(op)[0]
    return None if is_float(x) else f"'{x.name}' is {x.dtype}"


def resize_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,), y, axis = graph.operands(op), graph.result(op), op.attrs["axis"]
    index, weight = np.array(op.attrs["index"]), np.array(op.attrs["weight"], np.float32)
    offset = np.array(op.attrs["offset"], np.float32)
    inner = base.steps(x.shape)[axis]
    shape: dict[str, Any] = {
        "outer": prod(x.shape[:axis]),
        "N": x.shape[axis],
        "M": len(index),
        "K": index.shape[1],
        "inner": inner,
        "offset": bool(offset.any()),
        "gaps": bool((index == OUTSIDE).any()),
    }
    constants = [
        Constant("index", index.astype(np.int16 if x.shape[axis] < 2**15 else np.int32), "of neighbours"),
        Constant("weight", weight, "of neighbours"),
    ]
    constants += [Constant("offset", offset, "of values outside")] if offset.any() else []
    cost = 6.0 * y.elements * shape["K"]
    return Kernel("resampling.c:blend", f"blend_{shape['K']}_along_{axis}", shape, tuple(constants), estimate=cost)


RESIZE = Spec(
    "blend", lambda op, graph: lines(graph.operands(op)[0].shape, op.attrs["axis"], len(op.attrs["index"])),
    resize_reference, resize_kernel, float_only=True, limits=(resize_real,),
)  # fmt: skip


# RESIZE_BILINEAR of int8 and int16: rows and columns at once, places and weights in steps of 1/1024.
#
# kernels/internal/reference/resize_bilinear.h (ResizeBilinearInteger); TFLM calls it for int8 alone. `rows` and
# `columns` are tables of (before, after, weight of after). Files in uint8, whose elements are 128 less here, have
# weights in float32, and each product and sum rounds in the order of the same file's ResizeBilinear.

ONE = 1 << 10
INTEGERS = ("int8", "int16")


Table = tuple[tuple[int, int, int], ...]
RealTable = tuple[tuple[int, int, float], ...]


def real_table(n: int, m: int, corners: bool, half: bool) -> RealTable:
    """The same as `table`, with places and weights in float32."""
    step, shift = np.float32(n) / np.float32(m), np.float32(0.5 if half else 0.0)
    if corners and m > 1:
        step = np.float32(n - 1) / np.float32(m - 1)
    places = (np.arange(m, dtype=np.float32) + shift) * step - shift
    before = np.maximum(np.floor(places), 0)
    after, weights = np.minimum(np.ceil(places), n - 1), places - before
    return tuple((int(b), int(a), float(w)) for b, a, w in zip(before, after, weights, strict=True))


def table(n: int, m: int, corners: bool, half: bool) -> Table:
    """Neighbours and the weight of the later one, for n elements that become m."""
    step = (ONE * (n - 1) + (m - 1) // 2) // (m - 1) if corners and m > 1 else (ONE * n + m // 2) // m
    rows = []
    for i in range(m):
        at = i * step + (step // 2 - ONE // 2 if half else 0)
        before = max(int(at / ONE), 0)
        rows.append((before, min(-(-at // ONE) if at > 0 else int((at + ONE - 1) / ONE), n - 1), at - ONE * before))
    return tuple(rows)


def in_float(op: Op) -> bool:
    """Whether the weights are real numbers."""
    return isinstance(op.attrs["rows"][0][2], float)


def bilinear_reference(op: Op, graph: Graph, x: Array) -> Array:
    kind: Any = np.float32 if in_float(op) else np.int64
    (top, bottom, down), (left, right, across) = (np.array(op.attrs[name], kind).T for name in ("rows", "columns"))
    top, bottom, left, right = (at.astype(np.int64) for at in (top, bottom, left, right))
    down, across, whole = down[:, None, None], across[:, None], x.astype(kind)
    rows = [whole[:, at] for at in (top, bottom)]
    if in_float(op):
        above, below = ((r + kind(128)) * weight for r, weight in zip(rows, (1 - down, down), strict=True))
        total = above[:, :, left] * (1 - across) + below[:, :, left] * (1 - across)
        total = total + above[:, :, right] * across + below[:, :, right] * across
        return np.asarray((total + kind(0.5)).astype(np.int32) - 128, np.int8)
    parts = [r[:, :, left] * (ONE - across) + r[:, :, right] * across for r in rows]
    total = parts[0] * (ONE - down) + parts[1] * down
    return np.trunc((total + np.where(total > 0, 1 << 19, -(1 << 19))) / (1 << 20)).astype(x.dtype)


def same_scale_images(op: Op, graph: Graph) -> str | None:
    """Images are N x H x W x C in int8 or int16; the result has the input's scale."""
    x, y = graph.operands(op)[0], graph.result(op)
    bad = x.dtype not in INTEGERS or len(x.shape) != 4 or x.quant != y.quant
    return f"{x.dtype} of shape {x.shape}, {x.quant} to {y.quant}" if bad else None


def bilinear_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,), y = graph.operands(op), graph.result(op)
    shape: dict[str, Any] = {"wide": x.dtype == "int16", "real": in_float(op)}
    shape |= dict(zip(("N", "H", "W", "C", "OH", "OW"), (*x.shape, *y.shape[1:3]), strict=True))
    numbers = np.float32 if in_float(op) else np.int16
    constants = tuple(
        Constant(name, np.array(op.attrs[name], numbers).ravel(), "before, after, weight of after")
        for name in ("rows", "columns")
    )
    stem = f"bilinear_{y.shape[1]}x{y.shape[2]}"
    return Kernel("resampling.c:bilinear", stem, shape, constants, estimate=20.0 * y.elements)


BILINEAR = Spec(
    "bilinear",
    lettered("n**c -> nhwc", h=lambda op, g: len(op.attrs["rows"]), w=lambda op, g: len(op.attrs["columns"])),
    bilinear_reference, bilinear_kernel, integers=INTEGERS, limits=(same_scale_images,),
)  # fmt: skip


# GridSample: out[n, h, w, c] is the image at the place grid[n, h, w], a column and a row from -1 to 1.
#
# `taps` is how many neighbours of a place count in each direction: 2 linearly, 4 by a cubic (Keys, Cubic convolution
# interpolation, 1981, with a = -0.75), 1 the nearest, halves to the even one. `corners`: -1 and 1 are the centres of
# the outer pixels, else the image's edges. `padding`: what stands outside: zeros, the border's pixels, or the image
# mirrored there. AffineGrid makes such places of a matrix.

SHARPNESS = -0.75  # of the cubic, as onnxruntime and PyTorch have it
FAR = 1 << 20  # pixels beyond the image: places that are farther off are taken for this far


def _at(place: Array, size: int, corners: bool) -> Array:
    """Pixels from the first one, as float32; what is no number lies far before it."""
    one = np.float32(1)
    at = (place + one) / np.float32(2) * np.float32(size - 1) if corners else ((place + one) * size - one) / 2
    inside = np.where(at > -FAR, np.where(at < size + FAR, at, size + FAR), -FAR)
    return np.asarray(inside, np.float32)


def _mirrored(i: Array, size: int, op: Op) -> tuple[Array, Array]:
    """Indices inside of the image for any, and whether they count."""
    if op.attrs["padding"] == "zeros":
        return np.clip(i, 0, size - 1), (i >= 0) & (i < size)
    if op.attrs["padding"] == "reflection":
        corners = op.attrs["corners"]
        rest = i % max(2 * (size - 1 if corners else size), 1)
        i = np.minimum(rest, 2 * (size - 1) - rest if corners else 2 * size - 1 - rest)
    return np.clip(i, 0, size - 1), np.ones(i.shape, bool)


def grid_sample_reference(op: Op, graph: Graph, x: Array, grid: Array) -> Array:
    _, rows, columns, _ = x.shape
    with np.errstate(all="ignore"):
        down, across = (_at(grid[..., d], n, op.attrs["corners"]) for d, n in ((1, rows), (0, columns)))
    batch = np.arange(len(x))[:, None, None]

    def pixel(h: Array, w: Array) -> Array:
        (h, above), (w, beside) = _mirrored(h, rows, op), _mirrored(w, columns, op)
        return np.where((above & beside)[..., None], x[batch, h, w], np.float32(0)).astype(np.float32)

    taps = op.attrs["taps"]
    if taps == 1:
        return pixel(np.rint(down).astype(np.int64), np.rint(across).astype(np.int64))
    top, left = np.floor(down).astype(np.int64), np.floor(across).astype(np.int64)
    below, beside = (_weights((at - low).astype(np.float32), taps) for at, low in ((down, top), (across, left)))
    first = 1 - taps // 2
    total = np.zeros((*grid.shape[:3], x.shape[3]), np.float32)
    for i, b in enumerate(below, first):
        total += b * sum(r * pixel(top + i, left + j) for j, r in enumerate(beside, first))
    return total


def _weights(ratio: Array, taps: int) -> list[Array]:
    """Weights of the neighbours of a place that lies `ratio` behind the first."""
    t = ratio[..., None]
    if taps == 2:
        return [1 - t, t]
    far, near = ([curve(d) for d in ds] for curve, ds in ((_cubic_far, (t + 1, 2 - t)), (_cubic_near, (t, 1 - t))))
    return [np.asarray(w, np.float32) for w in (far[0], *near, far[1])]


def _cubic_near(d: Array) -> Array:
    """The cubic's weight of a neighbour at most 1 from a place."""
    return ((SHARPNESS + 2) * d - (SHARPNESS + 3)) * d * d + 1


def _cubic_far(d: Array) -> Array:
    """That of one between 1 and 2 from it."""
    return ((SHARPNESS * d - 5 * SHARPNESS) * d + 8 * SHARPNESS) * d - 4 * SHARPNESS


def grid_sample_real(op: Op, graph: Graph) -> str | None:
    """Image and places are float32."""
    bad = [t for t in graph.operands(op) if not is_float(t)]
    return f"'{bad[0].name}' is {bad[0].dtype}" if bad else None


def grid_sample_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x, grid), names = graph.operands(op), base.operand_names(graph.operands(op), ("image", "grid"))
    shape: dict[str, Any] = dict(zip(("N", "H", "W", "C"), x.shape, strict=True))
    shape |= {"image": names[0], "grid": names[1], "places": grid.shape[1] * grid.shape[2], "far": FAR}
    shape |= {name: op.attrs[name] for name in ("taps", "corners", "padding")}
    stem = f"grid_sample_{grid.shape[1]}x{grid.shape[2]}"
    cost = (40.0 + 5.0 * max(op.attrs["taps"], 2) ** 2 * x.shape[3]) * grid.elements
    constants = base.constants_of((x, grid), names)
    return Kernel("resampling.c:grid_sample", stem, shape, constants, estimate=cost)


GRID_SAMPLE = Spec(
    "grid_sample", lettered("n**c nhw* -> nhwc"), grid_sample_reference, grid_sample_kernel, float_only=True,
    limits=(grid_sample_real,),
)  # fmt: skip
