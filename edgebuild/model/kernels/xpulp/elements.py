"""Sums of two int8 operands for XpulpV2: one linear form in int32, y = clip((f0 x0 + f1 x1 + offset) >> shift)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from ...ops import elementwise, fixedpoint, spatial
from ...ops.base import Kernel, scale_of
from ..micro import Function, Part
from ..row import KernelLayer
from .encoding import all_encoded, hardware_loop

PER_CALL, PER_ELEMENT, CLAMPED = 30, 7, 1  # cycles


def total(encoding: str, layer: KernelLayer) -> Kernel | None:
    """Without broadcasting, where a form gives the reference's result for every pair of values."""
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
    shape: dict[str, Any] = {
        "N": k.shape["N"], "function": f"eb_{encoding}_add_{form.shift}{'_clamped' if clamped else ''}",
        "clamped": clamped,
    }  # fmt: skip
    scalars: dict[str, int | float] = dict(zip(("x0_mul", "x1_mul"), form.factors, strict=True))
    scalars |= {"offset": form.offset} | ({"low": low, "high": high} if clamped else {})
    estimate = PER_CALL + (PER_ELEMENT + CLAMPED * clamped) * float(str(shape["N"]))
    return replace(
        k, template="xpulp/add.c.j2", shape=shape, scalars=scalars, variant="xpulp linear", estimate=estimate
    )


def of_name(name: str) -> Function | None:
    """The function of this name."""
    words = name.split("_")
    return _function(words[1], int(words[3]), len(words) > 4) if words[2:3] == ["add"] and words[0] == "eb" else None


@cache
def _function(encoding: str, shift: int, clamped: bool) -> Function:
    kinds = ["const int8_t *x0", "const int8_t *x1", "int8_t *y", "int32_t n", "int32_t x0_mul", "int32_t x1_mul"]
    kinds += ["int32_t offset", *(["int32_t low", "int32_t high"] if clamped else [])]
    ends = ["cv.max t2, t2, a7", "cv.min t2, t2, t3"] if clamped else ["cv.clip t2, t2, 8"]
    body = ["cv.lb t0, (a0), 1", "cv.lb t1, (a1), 1", "mul t2, t0, a4", "cv.mac t2, t1, a5"]
    body += [f"cv.addN t2, t2, a6, {shift}", *ends, "cv.sb t2, (a2), 1"]
    parts: list[Part] = [
        ".option push", ".option norvc", ".balign 4", *(["lw t3, 0(sp)"] if clamped else []),
        *hardware_loop(0, "a3", "n", body), "ret", ".option pop",
    ]  # fmt: skip
    remark = f"n sums of products with x0_mul and x1_mul and an offset, shifted by {shift}."
    name = f"eb_{encoding}_add_{shift}{'_clamped' if clamped else ''}"
    return Function(name, tuple(f"EB_REG {k}" for k in kinds), remark, all_encoded(parts, encoding))
