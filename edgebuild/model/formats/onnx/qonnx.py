"""Nodes of QONNX, which QKeras, FINN and Brevitas write: numbers of few bits, as the real numbers that they stand for.

Their meaning is that of fastmachinelearning/qonnx, docs/qonnx-custom-ops, version 1.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from .fused import Fused
from .onnx_checks import QONNX

STORED = (np.int8, np.uint8, np.int16, np.uint16)  # types of steps, the first that has all of them


def steps_of(f: Fused) -> tuple[int, int]:
    """The least and the largest step of a Quant node. Its width must be constant, of 2 to 16 bits and rounded."""
    constants = {t.name: numpy_helper.to_array(t) for t in f.graph.initializer}
    width, mode = np.ravel(constants.get(f.at(3), [0])), f.attributes.get("rounding_mode", b"ROUND").decode().upper()
    if width.size != 1 or not (2 <= width[0] <= 16 and float(width[0]).is_integer()):
        raise f.refuse("a width that is computed, or other than 1 to 16 whole bits", "BipolarQuant has 1 bit")
    if mode not in ("ROUND", "HALF_EVEN"):
        raise f.refuse(f"rounding mode {mode}", "supported: ROUND, HALF_EVEN")
    count, narrow = 1 << int(width[0]), bool(f.attributes.get("narrow", 0))
    return (narrow - count // 2, count // 2 - 1) if f.attributes.get("signed", 1) else (0, count - 1 - narrow)


def of_few_bits(f: Fused) -> Iterator[onnx.NodeProto]:
    """Quant: x in steps of a scale, clamped to a number of bits."""
    constants = {t.name: numpy_helper.to_array(t) for t in f.graph.initializer}
    scale, zero, (low, high) = constants.get(f.at(1)), constants.get(f.at(2)), steps_of(f)
    if scale is None or zero is None or zero.size != 1 or float(np.ravel(zero)[0]) not in range(low, high + 1):
        raise f.refuse("a scale that is computed, or a zero point that is no constant step", "give it constants")
    axes = [at - scale.ndim for at, size in enumerate(scale.shape) if size > 1]
    if len(axes) > 1 or not (np.isfinite(scale) & (scale > 0)).all():
        raise f.refuse(f"scales of shape {scale.shape}", "supported: one, or one for each channel, above 0")
    kind = next(t for t in STORED if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
    factors = scale.astype(np.float32).reshape(-1 if axes else ())
    form = [f.constant("scale", factors), f.constant("zero", np.full(factors.shape, np.ravel(zero)[0], kind))]
    own: dict[str, Any] = {"axis": axes[0]} if axes else {}
    if f.at(0) in constants:
        real = constants[f.at(0)].astype(np.float32) / scale.astype(np.float32) + np.ravel(zero)[0]
        steps = f.constant("steps", np.clip(np.rint(real), low, high).astype(kind))
    else:
        narrow = (low, high) != (np.iinfo(kind).min, np.iinfo(kind).max)
        yield f.op("QuantizeLinear", [f.at(0), *form], steps := f.between("all" if narrow else "steps"), **own)
        if narrow:
            bounds = [f.constant(name, kind(bound)) for name, bound in (("low", low), ("high", high))]
            yield f.op("Clip", [steps, *bounds], steps := f.between("steps"))
    yield f.op("DequantizeLinear", [steps, *form], **own)


def of_one_bit(f: Fused) -> Iterator[onnx.NodeProto]:
    """BipolarQuant: the scale for numbers from 0 on, and its negative for those below. Constants are stored as int8."""
    constants = {t.name: numpy_helper.to_array(t) for t in f.graph.initializer}
    scale = constants.get(f.at(1))
    if f.at(0) in constants and scale is not None and scale.size == 1:
        steps = f.constant("steps", np.where(constants[f.at(0)] >= 0, 1, -1).astype(np.int8))
        one = f.constant("scale", scale.astype(np.float32).reshape(()))
        yield f.op("DequantizeLinear", [steps, one, f.constant("zero", np.int8(0))])
        return
    yield from f.body("""x scale -> y
        zero := 0.0
        below = Less(x, zero)
        negated = Neg(scale)
        y = Where(below, negated, scale)
    """)


def of_stored(node: onnx.NodeProto, graph: onnx.GraphProto, file: str) -> Iterator[onnx.NodeProto]:
    """Nodes that dequantise what a node of QONNX stores; another node as it is. Raises EdgebuildError."""
    form = FORMS.get(node.op_type) if node.domain in QONNX else None
    yield from [node] if form is None else form(Fused(node, graph, file))


FORMS = {"Quant": of_few_bits, "BipolarQuant": of_one_bit}
