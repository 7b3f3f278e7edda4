"""Networks of integers that are stored as real numbers, as quantlib and Deeploy write them.

RequantShift is (x * mul + add) / div, rounded to the nearest and halves up. It keeps within `n_levels` integers, from 0
on or, if `signed`, from -n_levels / 2 (pulp-platform/quantlib d3c829e, algorithms/pact/pact_ops.py).

All tensors are real in the file, though their values are whole: weights, too, and inputs. They become quantised numbers
of scale 1 here, so that sums of products are sums of integers. A file says whether an input is signed by a
QuantizeLinear that reads it. One without is taken for uint8, and a warning says so.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ....base.errors import Diagnostic
from ....base.progress import warn
from ...ir import Array, Quant, Tensor
from .control_flow import graphs
from .fused import Fused
from .onnx_operators import OnnxNode

REQUANT, DOMAIN = "RequantShift", "quantlib"  # the domain that it gets, whatever the file says
WEIGHTED = ("Conv", "Gemm", "MatMul")
ALIKE = ("MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze")  # hand their operand's numbers on
UNSAID = "put QuantizeLinear and DequantizeLinear behind '{}', of scale 1 and a zero point 0 in int8 or uint8"
BYTE, WORD = np.iinfo(np.int8), np.iinfo(np.int32)


def name_domain(model: onnx.ModelProto) -> None:
    """Give RequantShift a domain of its own: the ONNX standard has no such operator."""
    nodes = [n for part in graphs(model.graph) for n in part.node if n.op_type == REQUANT]
    for node in nodes:
        node.domain = DOMAIN
    if nodes and not any(o.domain == DOMAIN for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))


def stored_integers(graph: onnx.GraphProto, file: str) -> None:
    """Quantise inputs, weights and what is handed on, and make RequantShift an op on int32."""
    if all(node.op_type != REQUANT for node in graph.node):
        return
    constants = {t.name: t for t in graph.initializer}
    kinds, nodes = dict[str, type[np.signedinteger] | type[np.unsignedinteger]](), list[onnx.NodeProto]()
    readers = {name: [n for n in graph.node if name in n.input] for name in (v.name for v in graph.input)}
    for value in graph.input:
        own = value.name not in constants and value.type.tensor_type.elem_type == TensorProto.FLOAT
        if own and not any(n.op_type == "QuantizeLinear" for n in readers[value.name]):
            text = f"input '{value.name}' is taken for uint8: no QuantizeLinear says whether its integers are signed"
            warn(Diagnostic(text, file, severity="warning", hints=(UNSAID.format(value.name),)))
            f = Fused(helper.make_node("Identity", [value.name], [f"{value.name}@whole"]), graph, file)
            nodes += _whole(f, value.name, np.uint8)
            kinds[f.node.output[0]] = np.uint8
    for node in graph.node:
        node.input[:] = [f"{n}@whole" if f"{n}@whole" in kinds else n for n in node.input]
        f, handed_on = Fused(node, graph, file), kinds.get(next(iter(node.input), ""))
        if node.op_type == REQUANT:
            kinds[node.output[0]] = np.int8 if _number(f, "signed") else np.uint8
            nodes += _shifted(f, constants)
        elif node.op_type in ALIKE and handed_on:
            kinds[node.output[0]] = handed_on
            moved = f.op(node.op_type, list(node.input), f.between("moved"), **f.attributes)
            nodes += [moved, *_whole(f, moved.output[0], handed_on)]
        elif node.op_type == "Add" and all(name in kinds for name in node.input):
            nodes += _sum(f)
        else:
            nodes += [*_weights(f, constants), node]
    del graph.node[:]
    graph.node.extend(nodes)


def _whole(f: Fused, name: str, kind: type) -> Iterator[onnx.NodeProto]:
    """The node's result, as whole numbers of this type."""
    scale = [f.constant("one", np.float32(1)), f.constant("zero", kind(0))]
    yield f.op("QuantizeLinear", [name, *scale], f.between("steps"))
    yield f.op("DequantizeLinear", [f.between("steps"), *scale])


def _sum(f: Fused) -> Iterator[onnx.NodeProto]:
    """The sum of two results, in int32."""
    scale, names = [f.constant("one", np.float32(1)), f.constant("zero", np.int32(0))], [f.between("a"), f.between("b")]
    yield from (f.op("QuantizeLinear", [f.at(i), *scale], name) for i, name in enumerate(names))
    yield f.op("Sum", names, f.between("sum"))
    yield f.op("DequantizeLinear", [f.between("sum"), *scale])


def _weights(f: Fused, constants: dict[str, onnx.TensorProto]) -> Iterator[onnx.NodeProto]:
    """Weights as int8, where they are such numbers."""
    if f.node.op_type not in WEIGHTED or f.at(1) not in constants:
        return
    data = numpy_helper.to_array(constants[f.at(1)])
    if data.dtype == np.float32 and data.size and (data == np.clip(np.rint(data), BYTE.min, BYTE.max)).all():
        scale = [f.constant("one", np.float32(1)), f.constant("zero", np.int8(0))]
        yield f.op("DequantizeLinear", [f.constant("weights", data.astype(np.int8)), *scale], f.between("w"))
        f.node.input[1] = f.between("w")


def _shifted(f: Fused, constants: dict[str, onnx.TensorProto]) -> Iterator[onnx.NodeProto]:
    """RequantShift of whole numbers, and the real numbers that its result stands for."""
    divisor, (low, high) = _number(f, "div"), _bounds(f)
    bits = divisor.bit_length() - 1
    if divisor != 1 << max(bits, 0) or bits > 31:
        raise f.refuse(f"div is {divisor}", "it must be a power of two up to 2^31")
    factors = [_integers(f, at, word, constants) for at, word in ((1, "mul"), (2, "add"))]
    yield f.op(REQUANT, [f.at(0), *factors], f.between("steps"), bits=bits, low=low, high=high)
    scale = [f.constant("one", np.float32(1)), f.constant("zero", np.int8(0 if low else BYTE.min))]
    yield f.op("DequantizeLinear", [f.between("steps"), *scale])


def read_shifted(node: OnnxNode) -> None:
    """RequantShift as `_shifted` leaves it. Real numbers are whole, and become int32."""
    x = node.tensor(0)
    if x.dtype not in ("float32", "int32", "int16", "int8", "uint8"):
        raise node.error(f"values of {x.dtype}", "supported: float32, and integers of up to 32 bits")
    if x.dtype == "float32":
        whole = Tensor(node.fresh("sums"), x.shape, "int32", Quant((1.0,), (0,)))
        node.add("quantize", [x.name], whole, {})
        node.inputs = [whole.name, *node.inputs[1:]]
    node.emit_function("shifted_product", **{name: node.attr(name, 0) for name in ("bits", "low", "high")})


def _bounds(f: Fused) -> tuple[int, int]:
    """The least and the largest result."""
    levels = _number(f, "n_levels_out", "n_levels")
    if not 2 <= levels <= 256:
        raise f.refuse(f"{levels} levels", "supported: 2 to 256")
    half = (levels + 1) // 2
    return (-half, half - 1) if _number(f, "signed") else (0, levels - 1)


def _integers(f: Fused, at: int, word: str, constants: dict[str, onnx.TensorProto]) -> str:
    if f.at(at) not in constants:
        raise f.refuse(f"'{word}' is computed by the graph", "constants are supported")
    data: Array = numpy_helper.to_array(constants[f.at(at)]).astype(np.float64)
    if not (data == np.clip(np.rint(data), WORD.min, WORD.max)).all():
        raise f.refuse(f"'{word}' is not of whole numbers in 32 bits")
    return f.constant(word, data.astype(np.int32))


def _number(f: Fused, *names: str) -> int:
    """A whole number, which some exporters write as a tensor of one real."""
    value = next((f.attributes[n] for n in names if n in f.attributes), None)
    data = np.ravel(numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.array(value, object))
    if value is None or data.size != 1 or int(data[0]) != data[0]:
        raise f.refuse(f"attribute '{names[0]}' is no whole number")
    return int(data[0])


def in_standard(model: onnx.ModelProto) -> None:
    """Put operators of the standard in the place of RequantShift, in double precision: for judges."""
    for graph in (part for part in graphs(model.graph) if any(n.op_type == REQUANT for n in part.node)):
        nodes = list[onnx.NodeProto]()
        for node in graph.node:
            nodes += _in_doubles(Fused(node, graph, "")) if node.op_type == REQUANT else [node]
        del graph.node[:]
        graph.node.extend(nodes)
        for node in graph.node:  # whose names must differ
            node.name = ""


def _in_doubles(f: Fused) -> Iterator[onnx.NodeProto]:
    low, high = _bounds(f)
    numbers = {"half": 0.5, "low": low, "high": high, "div": _number(f, "div")}
    named = {name: f.constant(name, np.float64(number)) for name, number in numbers.items()}
    wide = [f.between(f"wide{at}") for at in range(3)]
    yield from (f.op("Cast", [f.at(at)], wide[at], to=TensorProto.DOUBLE) for at in range(3))
    yield f.op("Mul", wide[:2], f.between("product"))
    yield f.op("Add", [f.between("product"), wide[2]], f.between("sum"))
    yield f.op("Div", [f.between("sum"), named["div"]], f.between("share"))
    yield f.op("Add", [f.between("share"), named["half"]], f.between("more"))
    yield f.op("Floor", [f.between("more")], f.between("floor"))
    yield f.op("Max", [f.between("floor"), named["low"]], f.between("above"))
    yield f.op("Min", [f.between("above"), named["high"]], f.between("within"))
    yield f.op("Cast", [f.between("within")], to=TensorProto.FLOAT)
