"""QuantizeLinear and DequantizeLinear of computed values with several scales, as nodes that there are.

Kernels know one scale of a tensor. With one for each channel or block, the steps are numbers without a scale, and these
nodes compute them.
"""

from __future__ import annotations

import numpy as np
import onnx

from ...ir import Array
from .onnx_node import TYPES, OnnxNode
from .windows import Parts


def quantised(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """saturate(round(x / scale) + zero point), halves to even; None for one scale."""
    scales = _spread(node)
    if scales is None:
        return None
    (scale, zero), parts = scales, Parts(node)
    kind = onnx.helper.np_dtype_to_tensor_dtype(zero.dtype)
    if kind not in TYPES:
        raise node.error(f"quantised type {zero.dtype}", "with a scale for each channel: integers of 8 to 32 bits")
    limits = np.iinfo(zero.dtype)
    y = parts.op("Round", parts.op("Div", node.inputs[0], node.array(scale)))
    y = parts.op("Add", y, node.array(zero.astype(np.float32)))
    y = parts.op("Clip", y, *(node.array(np.array(end, np.float32)) for end in (limits.min, limits.max)))
    return parts.done(parts.op("Cast", y, to=kind))


def dequantised(node: OnnxNode) -> list[onnx.NodeProto] | None:
    """(x - zero point) * scale; None for one scale."""
    scales = _spread(node)
    if scales is None or node.tensor(0).quant is not None:
        return None
    (scale, zero), parts = scales, Parts(node)
    y = parts.op("Cast", node.inputs[0], to=onnx.TensorProto.FLOAT)
    y = parts.op("Sub", y, node.array(zero.astype(np.float32)))
    return parts.done(parts.op("Mul", y, node.array(scale)))


def _spread(node: OnnxNode) -> tuple[Array, Array] | None:
    """Scales and zero points in shapes that are broadcast to the operand's; None for one scale."""
    x, scale = node.tensor(0), node.constant(1, "scale").data
    assert scale is not None
    if scale.size == 1 and not node.attr("block_size", 0):
        return None
    given = node.constant(2, "zero point").data if len(node.inputs) > 2 and node.inputs[2] else None
    like = x.dtype if node.origin == "DequantizeLinear" else "uint8"
    zero = np.zeros(scale.shape, like) if given is None else given
    rank, block = len(x.shape), node.attr("block_size", 0)
    axis = node.attr("axis", 1) + (rank if node.attr("axis", 1) < 0 else 0)
    if not 0 <= axis < rank:
        raise node.error(f"axis {node.attr('axis', 1)} of an operand of {rank} dimensions")
    wanted = tuple(-(-n // block) if d == axis else n for d, n in enumerate(x.shape)) if block else (x.shape[axis],)
    if scale.shape != wanted or zero.shape != wanted or not (np.isfinite(scale).all() and (scale > 0).all()):
        raise node.error(
            f"scales of shape {scale.shape} and zero points of {zero.shape} along axis {axis} of {x.shape}"
        )
    if block:
        cut = tuple(slice(n) for n in x.shape)
        return np.repeat(scale, block, axis)[cut].astype(np.float32), np.repeat(zero, block, axis)[cut]
    shape = [x.shape[axis] if d == axis else 1 for d in range(rank)]
    return scale.reshape(shape).astype(np.float32), zero.reshape(shape)
