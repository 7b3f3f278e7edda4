"""Convert ONNX models to the form that the reader supports: opset 13 on, QDQ, no functions, static shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ....base.errors import did_you_mean, fail
from ...ir import Array, Tensor, real_values
from ..builder import needed
from .control_flow import graphs, reads
from .fused import LIKE, Fused, real_form
from .integers import stored_integers
from .onnx_checks import NORMALISES, OWN_DOMAINS, QONNX
from .onnx_layers import OnnxNode

# Older opsets are converted by the onnx package; some cases that its converter misses are handled here.

OLDEST, LOWEST = 13, 7  # oldest opset that is read, and oldest that the onnx package converts to it
CONVERTED = ("Upsample",)  # operators that only older opsets have
PLACES = 11  # first opset whose Resize has attributes for coordinates


def newer(model: onnx.ModelProto, file: str) -> onnx.ModelProto:
    """The model, converted by the onnx package if its opset is older than OLDEST. Raises EdgebuildError if it fails."""
    opset = next((o.version for o in model.opset_import if o.domain in OWN_DOMAINS), 0)
    if opset < LOWEST and not _same(model, opset):
        return model
    if opset < LOWEST:
        for own in model.opset_import:
            own.version = LOWEST if own.domain in OWN_DOMAINS else own.version
    if opset >= OLDEST:
        return model
    from onnx import version_converter

    for graph in graphs(model.graph):
        _replace_nodes(graph, file, _of_a_matrix)
    try:
        model = version_converter.convert_version(model, OLDEST)
    except Exception as problem:  # the converter raises C++ exceptions
        first = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        text = f"opset {opset} cannot be converted to {OLDEST}: {first}"
        raise fail(text, file=file, hints=[f"export it with opset {OLDEST} or later"]) from None
    resizes = [
        n for part in graphs(model.graph) for n in part.node if n.op_type == "Resize" and n.domain in OWN_DOMAINS
    ]
    for node in resizes if opset < PLACES else ():  # the converter omits the coordinate mode of old opsets
        node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
        node.attribute.append(helper.make_attribute("nearest_mode", "simple"))
    return model


def _same(model: onnx.ModelProto, opset: int) -> bool:
    """Whether all operators have the same definition in this old opset as in LOWEST."""
    nodes = [node for part in graphs(model.graph) for node in part.node if node.domain in OWN_DOMAINS]
    defined = all(onnx.defs.has(node.op_type, opset) for node in nodes)
    return opset > 0 and defined and all(_since(node.op_type, opset) == _since(node.op_type, LOWEST) for node in nodes)


def _since(operator: str, opset: int) -> int:
    return int(onnx.defs.get_schema(operator, opset).since_version)


Rewrite = Callable[[onnx.NodeProto, onnx.GraphProto, str], Iterator[onnx.NodeProto]]


def _replace_nodes(graph: onnx.GraphProto, file: str, nodes_of: Rewrite) -> None:
    """Replace each node by those that `nodes_of` returns for it."""
    nodes = [new for node in graph.node for new in nodes_of(node, graph, file)]
    del graph.node[:]
    graph.node.extend(nodes)


def _of_a_matrix(node: onnx.NodeProto, graph: onnx.GraphProto, file: str) -> Iterator[onnx.NodeProto]:
    """Rewrite Hardmax, which before opset 13 flattens the dimensions from its axis on; other nodes are kept."""
    if node.op_type != "Hardmax" or node.domain not in OWN_DOMAINS:
        yield node
        return
    yield from Fused(node, graph, file).body("""x -> y
        shape = Shape(x)
        matrix = Flatten<axis = {axis:1}>(x)
        hardmax = Hardmax<axis = 1>(matrix)
        y = Reshape(hardmax, shape)
    """)


# Missing zero points and border values, and casts of quantised integers.
#
# A missing zero point is 0, in a type that the standard or an earlier node defines. Borders of quantised integers are
# integer 0. Unsigned integers, from which we subtract half of their range, get it back before a Cast.

# Operators whose result has type and scale of operand 0.
PASS_THROUGH = (
    *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Identity", "Expand", "Tile", "Gather"),
    *("Split", "Clip", "Max", "Min", "MaxPool", "Pad", "Concat", "Resize", "DepthToSpace", "SpaceToDepth"),
)
OF_SHAPES = ("EyeLike", "Shape", "Size")  # operators that read no element of their operand
HALF: Mapping[int, int] = {TensorProto.UINT8: 2**7, TensorProto.UINT16: 2**15}


def add_zero_points(graph: onnx.GraphProto) -> None:
    """Add missing zero points of QuantizeLinear and DequantizeLinear as constants, if their type is known."""
    constants = {t.name: t for t in graph.initializer}
    types = {v.name: v.type.tensor_type.elem_type for v in graph.input} | {n: t.data_type for n, t in constants.items()}
    writers = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        kind = _type(node.output[0] if node.op_type == "QuantizeLinear" else node.input[0], writers, types)
        for at in reversed([i for i, a in enumerate(node.attribute) if a.name == LIKE]):
            del node.attribute[at]
        if not kind or (len(node.input) > 2 and node.input[2]) or node.input[1] not in constants:
            continue
        zero = f"{node.output[0]}@zero_point"
        data = np.zeros(tuple(constants[node.input[1]].dims), helper.tensor_dtype_to_np_dtype(kind))
        graph.initializer.append(numpy_helper.from_array(data, zero))
        node.input[2:] = [zero]
        types[zero] = kind


def add_borders_and_halves(graph: onnx.GraphProto, file: str) -> None:
    """After add_zero_points: pad quantised integers with integer 0, and add half of the range before unsigned Cast."""
    constants = {t.name: t for t in graph.initializer}
    computed = _computed(graph)
    writers = {name: node for node in graph.node for name in node.output if name not in computed}

    def nodes_of(node: onnx.NodeProto, graph: onnx.GraphProto, file: str) -> Iterator[onnx.NodeProto]:
        kind = _stored_type(node.input[0], writers, constants) if node.op_type in ("Pad", "Cast") else 0
        f = Fused(node, graph, file)
        if kind and node.op_type == "Pad":
            zero = f.constant("zero", np.zeros((), helper.tensor_dtype_to_np_dtype(kind)))
            node.input[:] = [*node.input[:2], f.at(2) or zero, *node.input[3:]]
        elif half := HALF.get(kind, 0):
            signed, whole, added = (f.between(part) for part in ("signed", "whole", "half"))
            f.constant("half", np.int32(half))
            yield f.op("Cast", node.input[:1], signed, to=TensorProto.INT32)
            yield f.op("Add", [signed, added], whole)
            node.input[0] = whole
        yield node

    _replace_nodes(graph, file, nodes_of)


def _computed(graph: onnx.GraphProto) -> set[str]:
    """Names of constants and of results that are folded from them, which keep the type of the file."""
    names = {t.name for t in graph.initializer}
    for node in graph.node:
        if node.op_type in OF_SHAPES or all(name in names for name in node.input if name):
            names |= {*node.output}
    return names


def _stored_type(name: str, writers: Mapping[str, onnx.NodeProto], constants: Mapping[str, onnx.TensorProto]) -> int:
    """The type of integers of a QuantizeLinear that were only moved or compared since; 0 for other tensors."""
    while (node := writers.get(name)) is not None and node.op_type in PASS_THROUGH:
        name = node.input[0]
    if node is None or node.op_type != "QuantizeLinear" or len(node.input) < 3 or node.input[2] not in constants:
        return 0
    zero = constants[node.input[2]]
    return zero.data_type if prod(zero.dims) == 1 else 0  # integers of several scales keep their unsigned type


def _type(name: str, writers: Mapping[str, onnx.NodeProto], types: Mapping[str, int]) -> int:
    """The type of an integer tensor, traced through operand 0 of nodes up to a QuantizeLinear; 0 if unknown."""
    while name not in types:
        node = writers.get(name)
        if node is None or not node.input or node.op_type == "Cast":
            return 0
        given = {a.name: a for a in node.attribute}
        if node.op_type != "QuantizeLinear":
            name = node.input[0]
        elif len(node.input) > 2 and node.input[2]:
            name = node.input[2]
        elif LIKE in given:
            name = given[LIKE].s.decode()
        else:
            return given["output_dtype"].i if "output_dtype" in given else int(TensorProto.UINT8)
    return types[name]


# Constant folding: nodes whose operands are all constants are computed by the onnx package's evaluator.
#
# The evaluator computes a node as a whole, in Python, so nodes with too many elements or products are refused before.

MAX_GROWN = 1 << 22  # elements of a result that is larger than its operands; no flash holds more
MAX_AT_ALL = 1 << 26  # elements of all folded constants
MAX_PRODUCTS = 1 << 30  # products in matrix products, which the evaluator computes in numpy
MAX_TAPS = 1 << 25  # elements under all windows, which the evaluator copies or visits one by one
MAX_SIZES = 1024  # elements of an operand whose values may determine the result's shape
PRECISIONS = ("float16", "bfloat16", "float64")
PRODUCTS, WINDOWS = ("MatMul", "Gemm", "MatMulInteger"), ("Conv", "ConvTranspose", "ConvInteger")


def in_float32(data: Array) -> Array:
    """Floats of other precisions in float32, the only float type of the generated C."""
    with np.errstate(over="ignore"):  # a number beyond float32 becomes an infinity, as in onnxruntime
        return data.astype(np.float32) if str(data.dtype) in PRECISIONS else data


def fold(node: OnnxNode, reader: Callable[[OnnxNode], None] | None) -> None:
    """Compute a node whose operands are all constants. Raises EdgebuildError if it is too large or fails.

    `reader`: reader of the operator, if any. It is used if the evaluator fails, as for an axis of CumSum that is a list
    of one, or a newer attribute of CastLike.
    """
    tensors = node.builder.tensors
    read = [tensors[name] for name in node.inputs if name]
    values = {t.name: np.asarray(t.data) if t.quant is None else real_values(t) for t in read}
    _refuse_large(node, values)
    names = [n for n in node.outputs if n]
    try:
        if node.proto.op_type == "QuantizeLinear":
            values |= {node.inputs[0]: _within_steps(node, values)}
        results = _evaluated(node.proto, values, node.opset)
    except Exception as problem:  # the evaluator of any operator may raise anything
        if reader is not None:
            first = len(node.builder.ops)
            reader(node)
            return node.builder.compute(first)
        text = str(problem).strip().splitlines()
        raise node.error(f"cannot be computed from its constants: {text[0] if text else type(problem).__name__}"
                         ) from None  # fmt: skip
    for name, data in zip(names, results, strict=True):
        data = in_float32(np.asarray(data))
        node.builder.computed += data.size
        tensors[name] = Tensor(name, data.shape, str(data.dtype), None, data)


def _evaluated(proto: onnx.NodeProto, values: dict[str, Array], opset: int) -> list[Any]:
    """The results of a node, computed by the evaluator of the onnx package."""
    from onnx.reference import ReferenceEvaluator

    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), None) for n, v in values.items()
    ]
    results = [onnx.ValueInfoProto(name=n) for n in proto.output if n]
    body = helper.make_graph([proto], "constant", given, results)
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", opset)])
    return list(ReferenceEvaluator(model).run(None, values))


FAR_STEPS = 1 << 20  # beyond the range of all of QuantizeLinear's types, but within int32
DEQUANTISES = 19  # first opset whose DequantizeLinear the evaluator supports; older ones are equivalent


def _within_steps(node: OnnxNode, values: dict[str, Array]) -> Array:
    """The operand of QuantizeLinear, clipped so that the evaluator's result is the same on every processor.

    It casts steps to int32, whose overflow depends on the processor. NaN becomes the type's lower end.
    """
    x, scale = values[node.inputs[0]], node.inputs[1]
    options = {name: value for name, value in node.attributes.items() if name in ("axis", "block_size")}
    proto = helper.make_node("DequantizeLinear", ["far", scale], ["real"], **options)
    operands = {"far": np.full(x.shape, FAR_STEPS, np.int32), scale: values[scale]}
    with np.errstate(over="ignore"):
        real = _evaluated(proto, operands, max(node.opset, DEQUANTISES))[0]
        far = np.minimum(real, np.finfo(x.dtype).max).astype(x.dtype)
    return np.asarray(np.where(np.isnan(x), -far, np.clip(x, -far, far)))


def _refuse_large(node: OnnxNode, values: dict[str, Array]) -> None:
    given = sum(v.size for v in values.values())
    for shape in _shapes(node, values):
        if prod(shape) > min(max(MAX_GROWN, given), MAX_AT_ALL - node.builder.computed):
            raise node.error(f"a constant of shape {'x'.join(map(str, shape))} is too large")
        for what, count, most in _work(node, values, prod(shape)):
            if count > most:
                raise node.error(f"a constant of {count} {what} is too large", "compute it when the model is exported")


def _shapes(node: OnnxNode, values: dict[str, Array]) -> Iterator[tuple[int, ...]]:
    """Shapes of the results as far as they can be inferred; unknown sizes count as 1."""
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
    sizes = {n: numpy_helper.from_array(v, n) for n, v in values.items() if v.size <= MAX_SIZES}
    opsets = [helper.make_opsetid("", node.opset)]
    inferred: dict[str, onnx.TypeProto] = {}
    with suppress(Exception):  # for sequences, and for errors that the evaluator reports
        inferred = onnx.shape_inference.infer_node_outputs(schema, node.proto, types, sizes, opset_imports=opsets)
    for kind in inferred.values():
        yield tuple(d.dim_value if d.HasField("dim_value") else 1 for d in kind.tensor_type.shape.dim)


def _turns(node: OnnxNode, first: float, end: float, step: float) -> int:
    count = (end - first) / step if step else np.inf
    if not np.isfinite(count):
        raise node.error(f"a range from {first} to {end} in steps of {step}", "it has no end")
    return max(int(count), 0)


def _letters(equation: str, operands: Sequence[Array]) -> tuple[int, ...]:
    """Sizes of all letters of an Einsum, whose product bounds the number of its terms."""
    sizes = dict[str, int]()
    for letters, x in zip(equation.split("->")[0].replace(" ", "").split(","), operands, strict=False):
        sizes |= dict(zip(letters, x.shape, strict=False)) if "." not in letters else {letters: x.size}
    return tuple(sizes.values())


def _work(node: OnnxNode, values: dict[str, Array], elements: int) -> Iterator[tuple[str, int, int]]:
    """Names, counts and limits of the node's operations."""
    read = [values[name] for name in node.inputs if name]
    if node.origin in PRODUCTS:
        yield "products", elements * (read[0].size // max(prod(read[0].shape[:-1]), 1)), MAX_PRODUCTS
    taps = prod(node.attr("kernel_shape", [1]))
    if node.origin in WINDOWS and len(read) > 1:
        taps = prod(read[1].shape[1:])
    yield "elements under its windows", elements * taps if taps > 1 else 0, MAX_TAPS


MOVES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Gather", "Slice", "Identity", "Expand", "Tile")


def prepared(
    model: onnx.ModelProto, file: str, shapes: Mapping[str, Sequence[int]], outputs: Sequence[str]
) -> onnx.ModelProto:
    """The model with these shapes of inputs, up to these outputs, in the reader's form. Raises EdgebuildError."""
    if not any(o.domain in OWN_DOMAINS for o in model.opset_import):  # a file with ai.onnx.ml operators only
        model.opset_import.append(helper.make_opsetid("", OLDEST))
    if model.functions:
        from onnx import inliner

        model = inliner.inline_local_functions(model)
    cut(model.graph, file, outputs)
    set_shapes(model.graph, file, shapes)
    model = newer(model, file)
    _constants_first(model.graph)
    stored_integers(model, file)
    for part in reversed(list(graphs(model.graph))):  # bodies first, because expanding outer nodes copies their bodies
        _replace_nodes(part, file, expand_qonnx)
        _replace_nodes(part, file, real_form)
        open_ = [n for n in part.node if any(a.name == LIKE for a in n.attribute)] if part is not model.graph else []
        if open_:  # types of outer tensors are unknown in a body
            raise fail("a zero point is left out in a body", file=file, node=open_[0].name, hints=["give it"])
    if any(node.op_type == "LayerNormalization" for part in graphs(model.graph) for node in part.node):
        for own in model.opset_import:  # first opset with its body; the operators that are read mean the same there
            own.version = max(own.version, NORMALISES) if own.domain in OWN_DOMAINS else own.version
    add_zero_points(model.graph)
    _turn_stored(model.graph)
    add_borders_and_halves(model.graph, file)
    _dequantised_first(model.graph)
    return model


def cut(graph: onnx.GraphProto, file: str, outputs: Sequence[str]) -> None:
    """Make `outputs` the graph's outputs, and drop unneeded nodes. Raises EdgebuildError if no node writes one."""
    if not outputs:
        return
    written = {name for node in graph.node for name in node.output}
    for name in outputs:
        if name not in written:
            raise fail(f"option 'outputs': no node writes '{name}'{did_you_mean(name, sorted(written))}", file=file)
    nodes, used = list(graph.node), needed([(reads(node), node.output) for node in graph.node], outputs)
    kept = [node for node, is_used in zip(nodes, used, strict=True) if is_used]
    inputs = [v for v in graph.input if v.name in {*outputs, *(name for node in kept for name in reads(node))}]
    del graph.node[:], graph.output[:], graph.input[:]
    graph.node.extend(kept)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    graph.input.extend(inputs)


def set_shapes(graph: onnx.GraphProto, file: str, shapes: Mapping[str, Sequence[int]]) -> None:
    """Set the shapes of inputs; a dynamic first dimension without one is a batch of 1.

    Dynamic sizes of one name are equal in all inputs, as in the standard. Raises EdgebuildError if shapes do not fit.
    """
    values, sizes = {value.name: value for value in graph.input}, dict[str, int]()
    for name, shape in shapes.items():
        if name not in values:
            text = f"option 'shape': the model has no input '{name}'{did_you_mean(name, sorted(values))}"
            raise fail(text, file=file, hints=["inputs: " + ", ".join(sorted(values))])
        own = values[name].type.tensor_type.shape
        fits = len(own.dim) == len(shape) and all(
            not d.HasField("dim_value") or d.dim_value in (0, n) for d, n in zip(own.dim, shape, strict=True)
        )
        if own.dim and not fits:
            shown = "x".join(str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in own.dim)
            raise fail(f"option 'shape': input '{name}' is {shown}, not {'x'.join(map(str, shape))}", file=file)
        sizes = {d.dim_param: n for d, n in zip(own.dim, shape, strict=False) if d.dim_param} | sizes
        own.Clear()
        for n in shape:
            own.dim.add().dim_value = n
    open_ = [value.type.tensor_type.shape.dim for name, value in values.items() if name not in shapes]
    for dims in open_:
        if len(dims) > 1 and not dims[0].HasField("dim_value"):
            dims[0].dim_value = sizes.setdefault(dims[0].dim_param, 1) if dims[0].dim_param else 1
    for d in (d for dims in open_ for d in dims if d.dim_param in sizes):
        d.dim_value = sizes[d.dim_param]


def bind(graph: onnx.GraphProto, file: str, values: Mapping[str, Sequence[int | float]]) -> None:
    """Make inputs constants, in place. One number fills an input; a dynamic size fits the numbers, or is 1."""
    inputs = {value.name: value for value in graph.input}
    for name, numbers in values.items():
        if name not in inputs:
            text = f"option 'bind': the model has no input '{name}'{did_you_mean(name, sorted(inputs))}"
            raise fail(text, file=file, hints=["inputs: " + ", ".join(sorted(inputs))])
        try:
            graph.initializer.append(_bound(inputs[name], numbers))
        except (OverflowError, TypeError, ValueError) as problem:
            raise fail(f"option 'bind': input '{name}': {problem}", file=file) from None
        graph.input.remove(inputs[name])


def _bound(value: onnx.ValueInfoProto, numbers: Sequence[int | float]) -> onnx.TensorProto:
    """A constant that replaces an input. Raises OverflowError, TypeError or ValueError for numbers that do not fit."""
    kind = value.type.tensor_type
    sizes = [d.dim_value for d in kind.shape.dim]
    if sizes.count(0) == 1:
        sizes[sizes.index(0)] = len(numbers) // prod(n for n in sizes if n)
    shape = [n or 1 for n in sizes]
    if len(numbers) not in (1, prod(shape)):
        raise ValueError(f"{len(numbers)} numbers for the shape {'x'.join(map(str, shape))}")
    exact = np.array(numbers, np.int64 if all(isinstance(n, int) for n in numbers) else np.float64)
    with np.errstate(all="ignore"):
        data = exact.astype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    if (data.dtype.kind in "biu" and (data != exact).any()) or not np.isfinite(data.astype(np.float64)).all():
        name = onnx.TensorProto.DataType.Name(kind.elem_type)
        raise ValueError(f"{','.join(map(str, numbers))} is not of type {name}")
    whole = data.reshape(shape) if len(numbers) > 1 else np.broadcast_to(data[0], shape)
    return numpy_helper.from_array(np.ascontiguousarray(whole).reshape(shape), value.name)


def _constants_first(graph: onnx.GraphProto) -> None:
    """Make tensors of Constant nodes initialisers, so that all constants are in one list."""
    for at in reversed(range(len(graph.node))):
        node = graph.node[at]
        value = next((a.t for a in node.attribute if a.name == "value"), None)
        if node.op_type == "Constant" and node.domain in OWN_DOMAINS and value is not None:
            graph.initializer.add().CopyFrom(value)
            graph.initializer[-1].name = node.output[0]
            del graph.node[at]


def _turn_stored(graph: onnx.GraphProto) -> None:
    """Replace Transpose of a dequantised constant by a transposed constant, so that weights stay quantised."""
    constants, writers = {t.name: t for t in graph.initializer}, {node.output[0]: node for node in graph.node}
    for node in (n for n in graph.node if n.op_type == "Transpose" and n.domain in OWN_DOMAINS):
        real = writers.get(node.input[0])
        if real is None or real.op_type != "DequantizeLinear" or real.input[0] not in constants:
            continue
        steps = numpy_helper.to_array(constants[real.input[0]])
        own = {a.name: helper.get_attribute_value(a) for a in real.attribute}
        order = [a for attribute in node.attribute for a in attribute.ints] or [*range(steps.ndim)][::-1]
        own["axis"] = order.index(own.get("axis", 1) % steps.ndim) if steps.ndim > 1 else 0
        name = f"{node.output[0]}@steps"
        if steps.dtype.name not in ("int8", "uint8", "int16", "uint16") or own.get("block_size", 0):
            continue
        graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(steps.transpose(order)), name))
        node.CopyFrom(helper.make_node(real.op_type, [name, *real.input[1:]], node.output, node.name, **own))


def _dequantised_first(graph: onnx.GraphProto) -> None:
    """Put DequantizeLinear of an input or constant before nodes that move it, so that all its readers see its scale."""
    given = {value.name for value in (*graph.input, *graph.initializer)}
    writers = {name: node for node in graph.node for name in node.output}
    nodes = list[onnx.NodeProto]()
    for node in graph.node:
        moves = list[onnx.NodeProto]()
        while node.op_type == "DequantizeLinear" and (move := writers.get((moves or [node])[-1].input[0])):
            if move.op_type not in MOVES or move.domain not in OWN_DOMAINS:
                break
            moves.append(move)
        if moves and moves[-1].input[0] in given:
            name = f"{node.output[0]}@moved"
            nodes.append(helper.make_node(node.op_type, [moves[-1].input[0], *node.input[1:]], [f"{name}{len(moves)}"]))
            nodes[-1].attribute.extend(node.attribute)
            for at in reversed(range(len(moves))):
                copy = onnx.NodeProto()
                copy.CopyFrom(moves[at])
                copy.input[0], copy.output[0] = f"{name}{at + 1}", f"{name}{at}" if at else node.output[0]
                nodes.append(copy)
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


STORED = (np.int8, np.uint8, np.int16, np.uint16)  # types of Quant's integers: the first that holds all is used


def steps_of(f: Fused) -> tuple[int, int]:
    """The least and the largest integer of a Quant node. Raises EdgebuildError unless 2 to 16 bits, rounded to even."""
    constants = {t.name: numpy_helper.to_array(t) for t in f.graph.initializer}
    width, mode = np.ravel(constants.get(f.at(3), [0])), f.attributes.get("rounding_mode", b"ROUND").decode().upper()
    if width.size != 1 or not (2 <= width[0] <= 16 and float(width[0]).is_integer()):
        raise f.refuse("a width that is computed, or other than 2 to 16 whole bits", "BipolarQuant has 1 bit")
    if mode not in ("ROUND", "HALF_EVEN"):
        raise f.refuse(f"rounding mode {mode}", "supported: ROUND, HALF_EVEN")
    count, narrow = 1 << int(width[0]), bool(f.attributes.get("narrow", 0))
    return (narrow - count // 2, count // 2 - 1) if f.attributes.get("signed", 1) else (0, count - 1 - narrow)


def expand_quant(f: Fused) -> Iterator[onnx.NodeProto]:
    """Expand Quant: x quantised with a scale, clamped to a number of bits, and dequantised."""
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
    """Expand BipolarQuant: the scale where x >= 0, else its negative. Constants are stored as int8."""
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


def expand_qonnx(node: onnx.NodeProto, graph: onnx.GraphProto, file: str) -> Iterator[onnx.NodeProto]:
    """Expand a node of QONNX; other nodes are kept. Raises EdgebuildError for unsupported parameters.

    QKeras, FINN and Brevitas write QONNX, which stores integers of few bits as dequantised floats. The meaning is that
    of fastmachinelearning/qonnx, docs/qonnx-custom-ops, version 1.0.
    """
    form = FORMS.get(node.op_type) if node.domain in QONNX else None
    yield from [node] if form is None else form(Fused(node, graph, file))


FORMS = {"Quant": expand_quant, "BipolarQuant": of_one_bit}
