"""GridSample: out[n, h, w, c] is the image at the place grid[n, h, w], a column and a row from -1 to 1.

`taps` is how many neighbours of a place count in each direction: 2 linearly, 4 by a cubic (Keys, Cubic convolution
interpolation, 1981, with a = -0.75), 1 the nearest, halves to the even one. `corners`: -1 and 1 are the centres of the
outer pixels, else the image's edges. `padding`: what stands outside: zeros, the border's pixels, or the image mirrored
there. AffineGrid makes such places of a matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Nest, Same, Whole
from .base import Constant, Form, Kernel, Spec, is_float

SHARPNESS = -0.75  # of the cubic, as onnxruntime and PyTorch have it
FAR = 1 << 20  # pixels beyond the image: places that are farther off are taken for this far


def nest(op: Op, graph: Graph) -> Nest:
    x, grid = graph.operands(op)
    extents = dict(zip("nhwc", (*grid.shape[:3], x.shape[3]), strict=True))
    image = (Same("n"), Whole(x.shape[1]), Whole(x.shape[2]), Same("c"))
    return Nest(extents, tuple("nhwc"), (image, (Same("n"), Same("h"), Same("w"), Whole(2))))


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


def reference(op: Op, graph: Graph, x: Array, grid: Array) -> Array:
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
    """Of the neighbours of a place, `ratio` behind the one before it."""
    t = ratio[..., None]
    if taps == 2:
        return [1 - t, t]
    far, near = ([curve(d) for d in ds] for curve, ds in ((_far, (t + 1, 2 - t)), (_near, (t, 1 - t))))
    return [np.asarray(w, np.float32) for w in (far[0], *near, far[1])]


def _near(d: Array) -> Array:
    """The cubic's weight of a neighbour at most 1 from a place."""
    return ((SHARPNESS + 2) * d - (SHARPNESS + 3)) * d * d + 1


def _far(d: Array) -> Array:
    """That of one between 1 and 2 from it."""
    return ((SHARPNESS * d - 5 * SHARPNESS) * d + 8 * SHARPNESS) * d - 4 * SHARPNESS


def real(op: Op, graph: Graph) -> str | None:
    """Image and places are float32."""
    bad = [t for t in graph.operands(op) if not is_float(t)]
    return f"'{bad[0].name}' is {bad[0].dtype}" if bad else None


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    x, grid = graph.operands(op)
    names = [("image", "x0"), ("grid", "x1")]
    alone = x.constant or grid.constant
    operands = [
        fixed if t.constant else "x" if alone else own for t, (fixed, own) in zip((x, grid), names, strict=True)
    ]
    constants = [
        Constant(n, t.data, "operand") for t, (n, _) in zip((x, grid), names, strict=True) if t.data is not None
    ]
    shape: dict[str, Any] = dict(zip(("N", "H", "W", "C"), x.shape, strict=True))
    shape |= {"image": operands[0], "grid": operands[1], "places": grid.shape[1] * grid.shape[2], "far": FAR}
    shape |= {name: op.attrs[name] for name in ("taps", "corners", "padding")}
    stem = f"grid_sample_{grid.shape[1]}x{grid.shape[2]}"
    cost = (40.0 + 5.0 * max(op.attrs["taps"], 2) ** 2 * x.shape[3]) * grid.elements
    return Kernel("grid_sample.c.j2", stem, shape, tuple(constants), estimate=cost)


SPEC = Spec(
    kind="grid_sample",
    nest=nest,
    reference=reference,
    kernel=kernel,
    float_only=True,
    limits=(real,),
)
