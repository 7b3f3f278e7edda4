"""Calls of an engine beside the core: which ops an engine computes bit for bit, and the arguments that it gets.

A shift that rounds halves to even is ONNX's division by a power of two. A shift that rounds down serves where the
result is clamped at its zero point for TFLite's two roundings: with M = 2^30, ((x + 1) >> 1) to the right by r with
halves away from zero is (x + 1 + 2^r) >> (r + 1) for all results that the clamp lets through. The constant is part of
the bias.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....base.levels import LETTERS, Engine
from ...ir import Graph, Op
from ...ops import SPECS
from ...ops.base import PER_CALL, Constant, Form, Kernel, Sums
from ...ops.elementwise import linear_add
from ...ops.reductions import linear_sum
from ...ops.spatial import added, bounds
from ..row import KernelLayer

CALL = "offload/call.c.j2"
OF_SUMS = ("conv2d", "depthwise_conv2d", "dense")
HALF = 2**30  # a mantissa of 1/2: the factor is a power of two
Shape = dict[str, int | str | bool | tuple[int, ...]]
Values = dict[str, int | float]


def pattern_of(op: Op, sums: Sums | None) -> str:
    """The struct of eb_engine.h that an op fills; empty if none does."""
    if op.attrs.get("halves_up", False):
        return ""
    if op.kind in ("add", "max_pool2d", "avg_pool2d"):
        return op.kind.removesuffix("2d")
    if sums is None or op.attrs.get("groups", 1) != 1:
        return ""
    if op.kind == "dense":
        return "dense"
    if sums.depthwise:
        return "depthwise" if sums.weights.shape[3] == 1 and sums.size[2] == sums.out[2] else ""
    return "conv2d"


@dataclass(frozen=True)
class Shift:
    """A right shift: its bits, the number that is added before, and whether halves go to even."""

    bits: int
    constant: int = 0
    to_even: bool = False


def shift_of(s: Sums, rounding: Sequence[str]) -> Shift | str:
    """The shift for all channels on an engine with these modes of rounding; or the reason why there is none."""
    if not (s.mantissa == HALF).all():
        return "its scales are no powers of two, and the engine requantises by a shift"
    if len(set(s.right.tolist())) != 1:
        return "its channels have different shifts, and the engine has one for all"
    right = int(s.right[0])
    if not -1 <= right < 30:
        return f"a shift by {right + 1}"
    if right < 0 or (right == 0 and s.arithmetic.fixed_point):
        return Shift(right + 1, right + 1)
    if not s.arithmetic.fixed_point:
        no = "its halves are rounded to even, and the engine rounds down"
        return Shift(right + 1, to_even=True) if "even" in rounding else no
    if "down" not in rounding:
        return "its halves are not rounded to even, as the engine does it"
    if not s.rectified:
        return "negative halves are rounded away from zero, and the engine rounds down"
    return Shift(right + 1, 1 + (1 << right))


@dataclass(frozen=True)
class Job:
    """A call of an engine: the template's letters and the arguments of the C function around it."""

    pattern: str
    stem: str
    shape: Shape
    constants: tuple[Constant, ...]
    scalars: Values


def job_of(op: Op, graph: Graph, engine: Engine, sums: Sums | None) -> Job | str:
    """The job of an engine for an op with these sums; or the reason why the engine does not compute it exactly."""
    job = _job(op, graph, engine, sums)
    long = {} if isinstance(job, str) else {a: n for a, n in sizes(job).items() if n > engine.largest.get(a, n)}
    return next((f"{a} is {n}, and at most {engine.largest[a]} in {engine.name}" for a, n in long.items()), job)


def _job(op: Op, graph: Graph, engine: Engine, sums: Sums | None) -> Job | str:
    pattern = pattern_of(op, sums)
    if not pattern and (t := graph.operands(op)[0]).dtype != "int8" and op.kind in OF_SUMS:
        return f"its input is {t.dtype}, and {engine.name} computes int8"
    if not pattern:
        return f"{engine.name} has no pattern for {op.kind}"
    if pattern not in engine.patterns:
        return f"{pattern} is no pattern of {engine.name}"
    if pattern == "add":
        return _addition(op, graph, engine)
    if sums is None:
        return _pool(op, graph, engine, pattern)
    if why := _sums_refused(sums, engine):
        return why
    job = _products(sums, engine, pattern)
    return job if sums.added is None else _with_added(job, op, graph, sums)


def _sums_refused(s: Sums, engine: Engine) -> str:
    """Why an engine does not compute these sums; empty if it does."""
    if s.added is not None and (engine.requantise == "shift" or "added" not in engine.rounding):
        return f"numbers are added to its products, which {engine.name} does not do"
    if s.dilation != (1, 1):
        return f"its window is dilated, which {engine.name} does not know"
    if engine.padding == "zero" and s.x_zero and (s.padded_rows or s.padded_columns):
        return f"padding is {s.x_zero} in its input, and 0 in {engine.name}"
    shifts = engine.requantise == "shift"
    if isinstance(shift := shift_of(s, engine.rounding) if shifts else Shift(0), str):
        return shift
    bits = min(engine.sum_bits, 31 if shifts else 32)
    if (s.bound + shift.constant >= 2 ** (bits - 1)).any():
        return f"its sums may leave {bits} bits"
    if (abs(s.weights + 0.5) >= 2 ** (engine.weight_bits - 1)).any():
        return f"its weights leave {engine.weight_bits} bits"
    if not shifts and s.added is None and not s.arithmetic.fixed_point and "even" not in engine.rounding:
        return f"its halves are rounded to even, which {engine.name} does not do"
    several = len({*zip(s.mantissa.tolist(), s.right.tolist(), strict=True)}) > 1
    if several and engine.requantise == "multiply-per-tensor":
        return f"its channels have different factors, and {engine.name} has one for all"
    return ""


def _products(s: Sums, engine: Engine, pattern: str) -> Job:
    (h, w, c), (oh, ow, k), (fh, fw) = s.size, s.out, s.window
    multiplies = engine.requantise != "shift"
    shape: Shape = {
        "H": h, "W": w, "C": c, "OH": oh, "OW": ow, "K": k, "FH": fh, "FW": fw,
        "SY": s.stride[0], "SX": s.stride[1], "PY": s.pad[0], "PX": s.pad[1], "multiplies": multiplies,
        "pads": s.x_zero if engine.padding == "value" and (s.padded_rows or s.padded_columns) else 0,
        "to_even": not s.arithmetic.fixed_point, "adds": False,
    }  # fmt: skip
    constants: tuple[Constant, ...] = (Constant("w", s.weights, "weights"),)
    scalars: Values = {"y_zero": s.y_zero, "low": s.low, "high": s.high}
    if multiplies:
        start = Constant("bias", s.start.astype(np.int32), "with the zero point folded in")
        return Job(pattern, s.stem, shape, (*constants, start, *s.rescaling), scalars)
    shift = shift_of(s, engine.rounding)
    assert not isinstance(shift, str), shift
    start = Constant("bias", (s.start + shift.constant).astype(np.int32), "with zero point and rounding folded in")
    shape["to_even"] = shift.to_even
    return Job(pattern, s.stem, shape, (*constants, start), {"shift": shift.bits, **scalars})


def _with_added(job: Job, op: Op, graph: Graph, s: Sums) -> Job | str:
    """The job of a `shifted` op: the half by which its shift rounds is a part of the added term.

    If that term leaves 32 bits, the bias takes multiples of the factor: (sum + n) * f + r = sum * f + (n * f + r).
    """
    factor, more = added(op, graph)
    more = more + ((1 << op.attrs["bits"]) >> 1)
    large = (abs(more) >= 2**31) & (factor != 0)
    times = np.where(large, more // np.where(large, factor, 1), 0)
    more = more - times * factor
    if (abs(factor) >= 2**31).any() or (abs(more) >= 2**31).any() or (s.bound + abs(times) >= 2**31).any():
        return "what is added to its products leaves 32 bits"
    start = replace(job.constants[1], data=(s.start + times).astype(np.int32))
    factors = Constant("multiplier", factor.astype(np.int32), "of sums")
    terms = Constant("added", more.astype(np.int32), "to products, with a half")
    shape, scalars = {**job.shape, "adds": True, "to_even": False}, {"shift": op.attrs["bits"], **job.scalars}
    return replace(job, shape=shape, constants=(job.constants[0], start, factors, terms), scalars=scalars)


def _addition(op: Op, graph: Graph, engine: Engine) -> Job | str:
    (a, b), y = graph.operands(op), graph.result(op)
    if {t.dtype for t in (a, b, y)} != {"int8"}:
        return "it is not int8"
    if a.shape != b.shape or a.constant or b.constant:
        return f"{engine.name} adds two tensors of one shape"
    form, to_even = linear_add(op, graph), False
    powers = form is not None and not any(f & (f - 1) for f in form.factors)
    if not powers and "even" in engine.rounding and (even := linear_add(op, graph, to_even=True)) is not None:
        form, to_even, powers = even, True, True
    if form is None:
        return "its rounding is that of no sum of two products"
    if engine.requantise == "shift" and not powers:
        return "its scales are no powers of two, and the engine requantises by a shift"
    low, high = bounds(op, y)
    scalars: Values = {"a_factor": form.factors[0], "b_factor": form.factors[1], "offset": form.offset}
    scalars |= {"shift": form.shift, "low": low, "high": high}
    shape: Shape = dict(zip(("C", "OW", "OH"), (*reversed(y.shape), 1, 1, 1), strict=False))
    return Job("add", f"add_{y.elements}", {**shape, "N": y.elements, "to_even": to_even}, (), scalars)


def _pool(op: Op, graph: Graph, engine: Engine, pattern: str) -> Job | str:
    (x,), y = graph.operands(op), graph.result(op)
    if x.dtype != "int8" or x.shape[0] != 1:
        return "it is not one image in int8"
    if op.attrs.get("dilation", (1, 1)) != (1, 1):
        return "its window is dilated"
    (fh, fw), (sy, sx), pad = op.attrs["window"], op.attrs["stride"], op.attrs["pad"]
    low, high = bounds(op, y)
    shape: Shape = {
        "H": x.shape[1], "W": x.shape[2], "C": x.shape[3], "OH": y.shape[1], "OW": y.shape[2],
        "FH": fh, "FW": fw, "SY": sy, "SX": sx, "PY": pad[0], "PX": pad[1], "average": pattern == "avg_pool",
        "to_even": False,
    }  # fmt: skip
    stem, scalars = f"{pattern}_{fh}x{fw}_c{x.shape[3]}", Values({"low": low, "high": high})
    if pattern == "avg_pool":
        if any(pad):
            return "its windows reach into padding"
        form = linear_sum(op, graph)
        if form is None and "even" in engine.rounding:
            form, shape["to_even"] = linear_sum(op, graph, to_even=True), True
        if form is None:
            return "its rounding is that of no product in 32 bits"
        shape["away"] = form.away
        scalars |= {"factor": form.factor, "offset": form.offset, "shift": form.shift}
    return Job(pattern, stem, shape, (), scalars)


def refusal(op: Op, graph: Graph, engine: Engine) -> str:
    """Why an engine does not compute an op bit for bit; empty if it does."""
    job = job_of(op, graph, engine, SPECS[op.kind].sums(op, graph))
    return job if isinstance(job, str) else ""


def in_one_line(reasons: Iterable[tuple[Engine, str]]) -> str:
    """Join the reasons why engines do not compute an op, each with the engine's name."""
    return "; ".join(why if engine.name in why else f"{engine.name}: {why}" for engine, why in reasons)


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """The kernel that calls the engine of `form` for an op. AssertionError if the engine refuses the op."""
    assert form.engine is not None
    job = job_of(op, graph, form.engine, SPECS[op.kind].sums(op, graph))
    assert not isinstance(job, str), job
    return _call(job, form.engine)


def called(layer: KernelLayer) -> list[Kernel]:
    """Calls of the engines that access the layer's operands in place; none for rows in rings."""
    if layer.form.rolled or not layer.form.engines:
        return []
    jobs = [(e, job_of(layer.op, layer.graph, e, layer.sums)) for e in layer.form.engines]
    return [
        replace(_call(j, e), estimate=PER_CALL + e.cycles_for(j.pattern)(sizes(j)) / layer.form.cycles_per_instruction)
        for e, j in jobs
        if isinstance(j, Job)
    ]


def sizes(job: Job) -> dict[str, int]:
    """The values of the letters in an engine's cost formula."""
    s = job.shape
    if job.pattern == "add":
        named = {"K": s["C"], "OX": s["OW"], "OY": s["OH"]}
    elif job.pattern in ("conv2d", "dense"):
        named = {"K": s["K"], "C": s["C"], "OX": s["OW"], "OY": s["OH"], "FX": s["FW"], "FY": s["FH"]}
    else:
        named = {"K": s["C"], "OX": s["OW"], "OY": s["OH"], "FX": s["FW"], "FY": s["FH"]}
    return {letter: int(str(named.get(letter, 1))) for letter in LETTERS}


def engine_call(kernel: Kernel) -> tuple[str, str] | None:
    """The function of an engine's port that a kernel calls, and its pattern; None for kernels of the core."""
    if kernel.template != CALL:
        return None
    return str(kernel.shape["function"]), str(kernel.shape["pattern"])


def _call(job: Job, engine: Engine) -> Kernel:
    shape = {"function": f"eb_engine_{engine.name}_{job.pattern}", "pattern": job.pattern, **job.shape}
    stem = f"{engine.name}_{job.stem}"
    return Kernel(CALL, stem, shape, job.constants, job.scalars, variant=engine.name, estimate=1.0)
