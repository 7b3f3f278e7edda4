"""Cores with the XpulpV2 instructions: CV32E40P (`corev`), RI5CY in GAP8 and PULP clusters (`gap8`).

This module has elementwise sums, pools, and planes that become pixels. Sums of two int8 operands are one linear form in
int32, y = clip((f0 x0 + f1 x1 + offset) >> shift).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

from ...ir import ITEM_BYTES
from ...ops import elementwise, fixedpoint, spatial
from ...ops.base import Kernel, scale_of
from .. import arm_dsp
from ..blocks import elements
from ..micro import Function
from ..row import CONVOLUTION, DEPTHWISE, KernelLayer, Row, of_sums
from . import depthwise, dot
from .encoding import ENCODINGS, encoded, hardware_loop, printed

PER_CALL, PER_ELEMENT, CLAMPED = 30, 7, 1  # cycles


def total(encoding: str, layer: KernelLayer) -> Kernel | None:
    """A sum without broadcasting, if a linear form gives the reference's result for every pair of values."""
    op, graph, k = layer.op, layer.graph, layer.plain
    (a, b), y = graph.operands(op), graph.result(op)
    if (a.dtype, b.dtype, y.dtype) != ("int8",) * 3 or not k.shape["flat"]:
        return None
    values, (low, high) = fixedpoint.INT8, spatial.bounds(op, y)
    first, second = (scale_of(t) / scale_of(y) for t in (a, b))
    terms = (fixedpoint.Term(values[:, None], first, 0), fixedpoint.Term(values, second, 0))
    form = fixedpoint.fit_terms(terms, elementwise.add_reference(op, graph, values[:, None], values), low, high)
    if form is None:
        return None
    clamped = (low, high) != (-128, 127)
    function = _function(encoding, form.shift, clamped)
    shape: dict[str, Any] = {"N": k.shape["N"], "function": function.name, "clamped": clamped}
    scalars: dict[str, int | float] = dict(zip(("x0_mul", "x1_mul"), form.factors, strict=True))
    scalars |= {"offset": form.offset} | ({"low": low, "high": high} if clamped else {})
    estimate = PER_CALL + (PER_ELEMENT + CLAMPED * clamped) * float(str(shape["N"]))
    return replace(
        k, template="xpulp/kernels.c:add", shape=shape, scalars=scalars, variant="xpulp linear", estimate=estimate
    )


def pixels(encoding: str, layer: KernelLayer) -> Kernel | None:
    """A transposition of three planes of bytes, as of an image, to pixels, four at a time."""
    sizes, (x,) = elements.matrix(layer), layer.graph.operands(layer.op)
    if layer.form.in_place or sizes is None or sizes[0] != 3 or sizes[1] < 4 or ITEM_BYTES[x.dtype] != 1:
        return None
    four, rest = divmod(sizes[1], 4)
    return replace(
        layer.plain,
        template="xpulp/kernels.c:pixels",
        shape={"function": planes_to_pixels(encoding).name, "four": four, "length": sizes[1], "dtype": x.dtype},
        variant="xpulp pixels",
        estimate=PER_CALL + FOUR_PIXELS * four + 18 * rest,
    )


def pool(encoding: str, layer: KernelLayer) -> Kernel | None:
    """A pool of four channels at a time; sums are products with a one at the channel's byte."""
    k, x, y = arm_dsp.pool(layer, most=POOLED), layer.graph.operands(layer.op)[0], layer.graph.result(layer.op)
    if k is None:
        return None
    average, (height, width) = bool(k.shape["average"]), layer.op.attrs["window"]
    code = "cv.sdotsp.b %0, %1, %2" if average else "cv.max.b %0, %0, %1"
    unbounded = not average and k.scalars["high"] == 127
    shape = {**k.shape, "xpulp": encoded(code, encoding), "unbounded": unbounded}
    scalars = {name: value for name, value in k.scalars.items() if name != "high" or not unbounded}
    four = 95 + 3.7 * height + 10.3 * width * height if average else 6.0 * width * height
    windows = y.shape[2] * (1 if layer.form.rolled else y.shape[1])
    cost = windows * (17 + x.shape[3] / 4 * four)
    return replace(k, shape=shape, scalars=scalars, variant="xpulp four at once", estimate=cost)


POOLED = 1 << 16  # pixels, whose sums are far below 2^31
FOUR_PIXELS = 14
# Bytes of two registers for shuffles, 0 to 3 of the one that is written: red and green, then with blue.
SELECTORS = {"a6": 0x05010400, "a7": 0x07030602, "t3": 0x02040100, "t4": 0x00000503, "t5": 0x07030206}


@cache
def planes_to_pixels(encoding: str) -> Function:
    body = ["cv.lw t0, (a0), 4", "cv.lw t1, (a4), 4", "cv.lw t2, (a5), 4", "mv t6, t0"]
    body += ["cv.shuffle2.b t0, t1, a6", "cv.shuffle2.b t6, t1, a7", "mv t1, t0", "cv.shuffle2.b t0, t2, t3"]
    body += ["cv.shuffle2.b t1, t2, t4", "cv.pack t1, t6, t1", "cv.shuffle2.b t6, t2, t5"]
    body += ["cv.sw t0, (a1), 4", "cv.sw t1, (a1), 4", "cv.sw t6, (a1), 4"]
    assert len(body) == FOUR_PIXELS
    head = ["add a4, a0, a3", "add a5, a4, a3", *(f"li {r}, {value:#x}" for r, value in SELECTORS.items())]
    parts = [*head, *hardware_loop(0, "a2", "four", body), "ret"]
    kinds = ("const int8_t *x", "int8_t *y", "int32_t four", "int32_t length")
    remark = "Three planes of `length` bytes become pixels, `four` times four of them."
    return printed(encoding, f"eb_{encoding}_pixels", kinds, remark, parts)


@cache
def _function(encoding: str, shift: int, clamped: bool) -> Function:
    kinds = ["const int8_t *x0", "const int8_t *x1", "int8_t *y", "int32_t n", "int32_t x0_mul", "int32_t x1_mul"]
    kinds += ["int32_t offset", *(["int32_t low", "int32_t high"] if clamped else [])]
    ends = ["cv.max t2, t2, a7", "cv.min t2, t2, t3"] if clamped else ["cv.clip t2, t2, 8"]
    body = ["cv.lb t0, (a0), 1", "cv.lb t1, (a1), 1", "mul t2, t0, a4", "cv.mac t2, t1, a5"]
    body += [f"cv.addN t2, t2, a6, {shift}", *ends, "cv.sb t2, (a2), 1"]
    parts = [*(["lw t3, 0(sp)"] if clamped else []), *hardware_loop(0, "a3", "n", body), "ret"]
    remark = f"n sums of products with x0_mul and x1_mul and an offset, shifted by {shift}."
    name = f"eb_{encoding}_add_{shift}{'_clamped' if clamped else ''}"
    return printed(encoding, name, kinds, remark, parts)


ROWS = (
    *(
        Row(CONVOLUTION, frozenset({encoding}), of_sums(partial(dot.convolution, encoding, block)), shifts=True)
        for encoding in ENCODINGS
        for block in dot.BLOCKS
    ),
    *(Row(DEPTHWISE, frozenset({e}), of_sums(partial(depthwise.depthwise, e)), shifts=True) for e in ENCODINGS),
    *(
        Row(kind, frozenset({encoding}), partial(make, encoding))
        for kind, make in (("add", total), ("avg_pool2d", pool), ("max_pool2d", pool), ("transpose", pixels))
        for encoding in ENCODINGS
    ),
)
