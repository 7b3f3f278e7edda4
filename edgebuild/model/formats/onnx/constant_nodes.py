"""Nodes whose operands are all constants: computed while the file is read, by the ONNX package's own evaluator.

The evaluator computes them as a whole and in Python. Hence a node that asks for too many elements or products is
refused before it is begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...ir import Array, Tensor, real_values
from .onnx_node import OnnxNode

MOST = 1 << 22  # elements of a result that is larger than its operands; no flash takes more
MOST_AT_ALL = 1 << 26  # of all constants that are computed
MOST_PRODUCTS = 1 << 30  # of matrices, which the evaluator leaves to numpy
MOST_TAPS = 1 << 25  # elements under all windows: the evaluator keeps them, or looks at them one by one
MOST_SIZES = 1024  # elements of an operand that may say how large the result is
PRECISIONS = ("float16", "bfloat16", "float64")
PRODUCTS, WINDOWS = ("MatMul", "Gemm", "MatMulInteger"), ("Conv", "ConvTranspose", "ConvInteger")


def single(data: Array) -> Array:
    """Real numbers of other precisions in single precision, which is all that the generated C has."""
    return data.astype(np.float32) if str(data.dtype) in PRECISIONS else data


def fold(node: OnnxNode, reader: Callable[[OnnxNode], None] | None) -> None:
    """Compute a node whose operands are all constants. Raises EdgebuildError for one that is too large.

    `reader`: of an operator that there is an op for. Its meaning serves where the evaluator fails: that wants an axis
    of CumSum to be no list of one, and knows no attribute that a newer opset gives CastLike.
    """
    from onnx.reference import ReferenceEvaluator

    tensors = node.builder.tensors
    read = [tensors[name] for name in node.inputs if name]
    values = {t.name: np.asarray(t.data) if t.quant is None else real_values(t) for t in read}
    _refuse_large(node, values)
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), None) for n, v in values.items()
    ]
    names = [n for n in node.outputs if n]
    body = helper.make_graph([node.proto], "constant", given, [onnx.ValueInfoProto(name=n) for n in names])
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", node.opset)])
    try:
        results = ReferenceEvaluator(model).run(None, values)
    except Exception as problem:  # any operator on any operands: there is no list of what may go wrong
        if reader is not None:
            return _computed_by_ops(node, reader)
        text = str(problem).strip().splitlines()
        raise node.error(f"cannot be computed from its constants: {text[0] if text else type(problem).__name__}"
                         ) from None  # fmt: skip
    for name, data in zip(names, results, strict=True):
        data = single(np.asarray(data))
        node.builder.computed += data.size
        tensors[name] = Tensor(name, data.shape, str(data.dtype), None, data)


def _computed_by_ops(node: OnnxNode, reader: Callable[[OnnxNode], None]) -> None:
    """The meanings of the ops that the node is read as; the graph gets their results alone."""
    builder, first = node.builder, len(node.builder.ops)
    reader(node)
    builder.compute(first)


def _refuse_large(node: OnnxNode, values: dict[str, Array]) -> None:
    known = sum(v.size for v in values.values())
    for shape in _shapes(node, values):
        if prod(shape) > min(max(MOST, known), MOST_AT_ALL - node.builder.computed):
            raise node.error(f"a constant of shape {'x'.join(map(str, shape))} is too large")
        for what, count, most in _work(node, values, prod(shape)):
            if count > most:
                raise node.error(f"a constant of {count} {what} is too large", "compute it when the model is exported")


def _shapes(node: OnnxNode, values: dict[str, Array]) -> Iterator[tuple[int, ...]]:
    """Shapes of the results as far as the standard knows them; sizes that it does not know count as 1."""
    read = [values.get(name) for name in node.inputs]
    if node.origin == "OneHot" and len(read) > 1 and read[0] is not None and read[1] is not None:
        yield (*read[0].shape, *(abs(int(n)) for n in np.ravel(read[1])))
    if node.origin == "Range" and len(read) == 3:
        yield (_turns(node, *(float(np.ravel(v)[0]) for v in read if v is not None)),)
    if node.origin == "Einsum":
        yield _letters(node.attr("equation", ""), [v for v in read if v is not None])
    if not onnx.defs.has(node.origin, node.proto.domain):
        return
    schema = onnx.defs.get_schema(node.origin, node.opset, node.proto.domain)
    types = {
        n: helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in values.items()
    }
    sizes = {n: numpy_helper.from_array(v, n) for n, v in values.items() if v.size <= MOST_SIZES}
    opsets = [helper.make_opsetid("", node.opset)]
    found: dict[str, onnx.TypeProto] = {}
    with suppress(Exception):  # sequences, and what the evaluator has a message for
        found = onnx.shape_inference.infer_node_outputs(schema, node.proto, types, sizes, opset_imports=opsets)
    for kind in found.values():
        yield tuple(d.dim_value if d.HasField("dim_value") else 1 for d in kind.tensor_type.shape.dim)


def _turns(node: OnnxNode, first: float, end: float, step: float) -> int:
    count = (end - first) / step if step else np.inf
    if not np.isfinite(count):
        raise node.error(f"a range from {first} to {end} in steps of {step}", "it has no end")
    return max(int(count), 0)


def _letters(equation: str, operands: Sequence[Array]) -> tuple[int, ...]:
    """Of an Einsum: the sizes of all its letters, which are as many terms as it sums up at most."""
    sizes = dict[str, int]()
    for letters, x in zip(equation.split("->")[0].replace(" ", "").split(","), operands, strict=False):
        sizes |= dict(zip(letters, x.shape, strict=False)) if "." not in letters else {letters: x.size}
    return tuple(sizes.values())


def _work(node: OnnxNode, values: dict[str, Array], elements: int) -> Iterator[tuple[str, int, int]]:
    """Name and count of what it does, and how many are too many."""
    read = [values[name] for name in node.inputs if name]
    if node.origin in PRODUCTS:
        yield "products", elements * (read[0].size // max(prod(read[0].shape[:-1]), 1)), MOST_PRODUCTS
    taps = prod(node.attr("kernel_shape", [1]))
    if node.origin in WINDOWS and len(read) > 1:
        taps = prod(read[1].shape[1:])
    yield "elements under its windows", elements * taps if taps > 1 else 0, MOST_TAPS
