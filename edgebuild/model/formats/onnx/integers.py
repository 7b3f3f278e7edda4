"""Integer networks stored as floats, as NEMO, quantlib, DORY and Deeploy write them.

RequantShift is (x * mul + add) / div, rounded to nearest, halves up. It clamps to `n_levels` integers, from 0 on or, if
`signed`, from -n_levels / 2 (pulp-platform/quantlib d3c829e, algorithms/pact/pact_ops.py). Other exports write a
requantisation as several nodes, see `integer_nodes`.

All tensors are floats in the file, but their values are integers, those of weights and inputs, too. They become
quantised tensors of scale 1 here, so that sums of products are sums of integers. A QuantizeLinear that reads an input
states whether it is signed. An input without one is assumed to be uint8, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from math import prod

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ....base.errors import Diagnostic
from ....base.progress import warn
from ...ir import Array, Quant, Tensor
from .control_flow import graphs, reads
from .fused import INTEGER, Fused
from .integer_nodes import ENDS, NODES, UNCHANGED, Form, Operands, Range, integers, joined, shift_of
from .onnx_checks import OWN_DOMAINS, QONNX, opset_of, sort
from .onnx_layers import OnnxNode

REQUANT, DOMAIN = "RequantShift", "quantlib"  # the domain that we give it
UNSIGNED = "input '{}' is taken for uint8: no QuantizeLinear says whether its integers are signed"
UNSAID = "put QuantizeLinear and DequantizeLinear behind '{}', of scale 1 and a zero point 0 in int8 or uint8"
BYTE = np.iinfo(np.int8)
OF_OTHER_SHAPE = ("Add", "IntegerDiv", "IntegerMean")  # operators whose result's shape is not operand 0's
KINDS = (np.int8, np.uint8, np.int16, np.int32)


class Numbers:
    """Rewrites a graph's nodes, and tracks the tensors with integer values.

    `ranges`: ranges of tensors that are stored as quantised integers. `forms`: tensors that are a `Form` of one of
    these; their nodes are rewritten only when the values are needed. `sums`: sums of products. `typed`: tensors that
    have an integer type in the file.
    """

    def __init__(self, model: onnx.ModelProto, file: str) -> None:
        self.model, self.graph, self.file = model, model.graph, file
        self.warnings, self.requantises = list[Diagnostic](), False
        self.nodes, self.places = list[onnx.NodeProto | None](), dict[str, int]()
        self.constants = {t.name: t for t in self.graph.initializer}
        self.ranges, self.forms = dict[str, Range](), dict[str, Form]()
        self.sums, self.typed = set[str](), set[str]()

    @cached_property
    def types(self) -> dict[str, onnx.TypeProto.Tensor]:
        """Types and shapes that the onnx package infers, with nodes of DOMAIN, which it lacks, as Identity."""
        copy = onnx.ModelProto()
        copy.CopyFrom(self.model)
        for node in (n for n in copy.graph.node if n.domain == DOMAIN and n.op_type not in OF_OTHER_SHAPE):
            node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))
        graph = onnx.shape_inference.infer_shapes(copy).graph
        values = (*graph.input, *graph.value_info)
        return {v.name: v.type.tensor_type for v in values}

    def kind(self, name: str) -> int:
        """The type of a tensor of the file; 0 if unknown."""
        return self.types[name].elem_type if name in self.types else 0

    def shape(self, name: str) -> list[int]:
        """The shape of a tensor, with 0 for a dynamic size; empty if unknown."""
        return [d.dim_value for d in self.types[name].shape.dim] if name in self.types else []

    def read(self, handlers: Mapping[str, Callable[[Numbers, Fused], bool]]) -> None:
        """Read all nodes. A handler returns whether it has rewritten its node as an integer one; others are kept."""
        inputs = self._inputs()
        for original in list(self.graph.node):
            node = onnx.NodeProto()
            node.CopyFrom(original)
            node.input[:] = [inputs.get(n, n) for n in node.input]
            f = Fused(node, self.graph, self.file)
            handler = handlers.get(node.op_type) if node.domain in (*OWN_DOMAINS, DOMAIN) else None
            if handler is None or not handler(self, f):
                for name in reads(node):
                    self.store_form(name)
                self.add(node)
        for value in self.graph.output:
            self.store_form(value.name)

    def node(self, operator: str, x: str, output: str) -> Fused:
        """A new node, wrapped for expansion."""
        return Fused(helper.make_node(operator, [x], [output]), self.graph, self.file)

    def add(self, *nodes: onnx.NodeProto) -> bool:
        """Append nodes; they replace earlier ones that write the same tensors. Returns True."""
        for node in nodes:
            for name in filter(None, node.output):
                if name in self.places:
                    self.nodes[self.places[name]] = None
                self.places[name] = len(self.nodes)
            self.nodes.append(node)
        return True

    def _inputs(self) -> dict[str, str]:
        """Quantise float inputs that no node quantises, as uint8. Returns old name -> new name."""
        readers = {name: [n for n in self.graph.node if name in n.input] for name in (v.name for v in self.graph.input)}
        renamed = dict[str, str]()
        for value in self.graph.input:
            own = value.name not in self.constants and value.type.tensor_type.elem_type == TensorProto.FLOAT
            if own and not any(n.op_type == "QuantizeLinear" for n in readers[value.name]):
                text, hints = UNSIGNED.format(value.name), (UNSAID.format(value.name),)
                self.warnings.append(Diagnostic(text, self.file, severity="warning", hints=hints))
                renamed[value.name] = f"{value.name}@whole"
                self.types[renamed[value.name]] = value.type.tensor_type
                self.store(self.node("Identity", value.name, renamed[value.name]), value.name, (0, 255))
        return renamed

    def unit(self, kind: type, zero: int = 0) -> list[str]:
        """Names of constants for a scale of 1 and a zero point of this type."""
        values = {"1@scale": np.float32(1), f"{zero}@{np.dtype(kind)}": kind(zero)}
        for name in values.keys() - self.constants.keys():
            self.constants[name] = numpy_helper.from_array(np.asarray(values[name]), name)
            self.graph.initializer.append(self.constants[name])
        return list(values)

    def keep(self, f: Fused, form: Form) -> bool:
        """Keep the node and note its result's form. False if the result overflows the file's own int32."""
        typed = bool(self.typed.intersection(f.node.input))
        low, high = form.reach(self.ranges[form.base]) if typed else (0, 0)
        if self.kind(f.node.output[0]) == TensorProto.INT32 and not (INT32[0] <= low and high <= INT32[1]):
            return False
        self.forms[f.node.output[0]] = form
        self.typed |= {*f.node.output} if typed else set()
        return self.add(f.node)

    def store(self, f: Fused, name: str, of: Range, wide: bool = False) -> bool:
        """Make the node's result the values of float tensor `name`, within `of`, stored as integers. `wide`: in int32.

        False if no type holds them.
        """
        kind = kind_of(of)
        if kind is not None and wide:
            kind = np.int32
        if kind is None:
            return False
        scale = self.unit(kind)
        self.ranges[f.node.output[0]] = of
        self.add(f.op("QuantizeLinear", [name, *scale], f.between("steps")))
        return self.add(f.op("DequantizeLinear", [f.between("steps"), *scale]))

    def in_type(self, f: Fused, name: str, to: int) -> bool:
        """Make the node's result the values of float tensor `name` in integer type `to`; False if they do not fit."""
        kind, of = helper.tensor_dtype_to_np_dtype(to).type, self.ranges[name]
        if of[0] < np.iinfo(kind).min or np.iinfo(kind).max < of[1]:
            return False
        self.typed |= {*f.node.output}
        self.forms[f.node.output[0]] = Form(name, *UNCHANGED)
        return self.add(f.op("QuantizeLinear", [name, *self.unit(kind)]))

    def words(self, name: str) -> Array | None:
        """The values of a constant in int64; None if it is no constant, or not of integers below 2^62."""
        data = numpy_helper.to_array(self.constants[name]) if name in self.constants else None
        if data is None or data.dtype.kind not in "fiu" or not data.size:
            return None
        if not (abs(data.astype(np.float64)) < ENDS[1]).all():  # which float16 cannot hold
            return None
        return data.astype(np.int64) if (data == np.rint(data)).all() else None

    def number(self, name: str) -> Array | None:
        """`words` as Python's integers, which do not overflow."""
        words = self.words(name)
        return None if words is None else integers(words)

    def form(self, name: str, rounded: bool = False) -> Form | None:
        """The form of a tensor, None if it has none. Unless `rounded`, a rounded form is stored first as a new base."""
        form = self.forms.get(name)
        if form is not None and form.rounds and not rounded:
            if not self.requantise(self.node("Floor", name, f"{name}@rounded"), form, *ENDS):
                return None
            form = self.forms[name] = Form(f"{name}@rounded", *UNCHANGED)
        return form or (Form(name, *UNCHANGED) if name in self.ranges else None)

    def store_form(self, name: str) -> None:
        """Store the values of a tensor that has a form as integers, if possible; else keep its nodes."""
        form = self.forms.get(name)
        if form is None or name in self.typed or (form.divisor > 1 and not form.rounds):
            return
        self.requantise(self.node("Floor", name, name), form, *ENDS)

    def requantise(self, f: Fused, form: Form, low: int, high: int) -> bool:
        """Make the node's result the form clamped to low..high. False if this needs more than 32 bits."""
        of = self.ranges[form.base]
        if form.is_base and low <= of[0] and of[1] <= high:
            self.forms.pop(f.node.output[0], None)
            return self.store(f, form.base, of)
        shift = shift_of(form, of, low, high)
        kind = kind_of((shift.low, shift.high)) if shift is not None else None
        if shift is None or kind is None:
            return False
        self.requantises |= bool(form.rounds) and form.base in self.sums
        x = form.base
        if shift.before.any():
            self.add(f.op("QuantizeLinear", [x, *self.unit(np.int32)], f.between("base")))
            x = f.between("moved")
            self.add(f.op("Sum", [f.between("base"), f.constant("before", shift.before)], x))
        self.forms.pop(f.node.output[0], None)
        names = [f.constant("factor", shift.factor), f.constant("added", shift.added)]
        self.shifted(f, x, names, shift.bits, (shift.low, shift.high))
        return True

    def shifted(self, f: Fused, x: str, numbers: list[str], bits: int, of: Range) -> None:
        """Add a RequantShift of integers and a DequantizeLinear of its result, which is within `of`."""
        kind = kind_of(of)
        assert kind is not None
        stored, zero = (np.int8, BYTE.min) if kind is np.uint8 else (kind, 0)
        code = helper.np_dtype_to_tensor_dtype(np.dtype(stored))
        own = {"bits": bits, "low": of[0], "high": of[1], "to": code}
        scale = self.unit(stored, zero)
        self.ranges[f.node.output[0]] = of
        self.add(f.op(REQUANT, [x, *numbers], f.between("steps"), **own))
        self.add(f.op("DequantizeLinear", [f.between("steps"), *scale]))


def kind_of(of: Range) -> type[np.signedinteger] | type[np.unsignedinteger] | None:
    """The smallest of KINDS that holds these integers; None if none does."""
    fitting = (kind for kind in KINDS if np.iinfo(kind).min <= of[0] and of[1] <= np.iinfo(kind).max)
    return next(fitting, None)


BITS = ("weight_bits", "bias_bits", "mult_bits", "add_bits", "out_bits")  # attributes of exports for DORY
NARROW = KINDS[:3]  # of operands of sums of products
STATED = (TensorProto.INT8, TensorProto.UINT8)
INT32 = -(1 << 31), (1 << 31) - 1
OPERANDS = "supported: inputs, results of RequantShift, and sums of products of these"
WHOLE_TYPES = (TensorProto.INT32, TensorProto.INT64)


def name_domain(model: onnx.ModelProto) -> None:
    """Put RequantShift, nodes of `integer_nodes` and Add with factors in DOMAIN, because the standard lacks them.

    Attributes of BITS, which the standard also lacks, are dropped. Missing imports of QONNX's domains are added.
    """
    imported = {o.domain for o in model.opset_import}
    used = {node.domain for part in graphs(model.graph) for node in part.node}
    model.opset_import.extend(helper.make_opsetid(domain, 1) for domain in sorted(used & {*QONNX} - imported))
    functions = {(f.domain, f.name) for f in model.functions}
    nodes = [n for part in graphs(model.graph) for n in part.node if (n.domain, n.op_type) not in functions]
    for node in nodes:
        for at in reversed([at for at, a in enumerate(node.attribute) if a.name in BITS]):
            del node.attribute[at]
    for node in (
        n for n in nodes if n.op_type == "RMSNorm" and n.domain in OWN_DOMAINS
    ):  # of Deeploy; onnxruntime's name for it
        node.op_type = "SimplifiedLayerNormalization"
        for attribute in (a for a in node.attribute if a.name == "eps"):
            attribute.name = "epsilon"
    own = [n for n in nodes if n.op_type in (REQUANT, *NODES) or any(a.name == "in1_rq" for a in n.attribute)]
    for node in own:
        node.domain = DOMAIN
    if own and not any(o.domain == DOMAIN for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    _in_standard_types(model)


# Operators whose result has the first operand's type, even if the standard defines them on floats only.
LIKE_FIRST = ("Add", "Clip", "Div", "Flatten", "Floor", "Identity", "MatMul", "MaxPool", "Mul", "Reshape", "Sub",
              "Transpose")  # fmt: skip
PRODUCTS = {"Conv": "ConvInteger", "MatMul": "MatMulInteger"}  # in int32; the standard has them from opset 10 on
BOUNDS_INTEGERS = 12  # the opset that first defines Clip and MaxPool on integers


def _in_standard_types(model: onnx.ModelProto) -> None:
    """Replace operators on integers that the standard defines on floats only.

    MATCH's networks have these (github.com/eml-eda/match b499427, 2026-03-12, test/models): TVM computes operators on
    any type, and MATCH adds up products of 8 bits in int32.
    """
    graph, opset, nodes = model.graph, opset_of(model), list[onnx.NodeProto]()
    types = {v.name: v.type.tensor_type.elem_type for v in graph.input}
    types |= {t.name: t.data_type for t in graph.initializer}
    for node in graph.node:
        parts = _in_integers(node, [types.get(name, 0) for name in node.input], opset)
        nodes += [part for part, _ in parts]
        types |= {name: kind for part, kind in parts for name in part.output}
    if len(nodes) == len(graph.node) and all(a is b for a, b in zip(nodes, graph.node, strict=True)):
        return
    for value in (*graph.output, *graph.value_info):
        value.type.tensor_type.elem_type = types.get(value.name) or value.type.tensor_type.elem_type
    del graph.node[:]
    graph.node.extend(nodes)


def _in_integers(node: onnx.NodeProto, own: list[int], opset: int) -> list[tuple[onnx.NodeProto, int]]:
    """The node or its replacements, each with its result's type, 0 if unknown. `own`: types of the operands.

    A Clip in float32 is exact, because its bounds are at most 2^24.
    """
    first, values = own[0] if own else 0, {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type in ("Cast", "Constant") and node.domain in OWN_DOMAINS:
        return [(node, values["to"] if "to" in values else getattr(values.get("value"), "data_type", 0))]
    if node.domain not in OWN_DOMAINS or len(node.output) != 1 or first not in (*STATED, *WHOLE_TYPES):
        return [(node, first if node.domain in OWN_DOMAINS and node.op_type in LIKE_FIRST else 0)]
    if node.op_type in PRODUCTS and len(own) == 2 and {*own} <= {*STATED} and opset >= 10:
        product = helper.make_node(PRODUCTS[node.op_type], node.input, node.output, node.name, **values)
        return [(product, TensorProto.INT32)]
    x, y, ends = node.input[0], node.output[0], np.iinfo(helper.tensor_dtype_to_np_dtype(first))
    bounds = [values.get(name, 0.5) for name in ("min", "max") if node.op_type == "Clip"]
    whole = all(float(b).is_integer() and abs(b) <= 1 << 24 and ends.min <= b <= ends.max for b in bounds)
    if node.op_type == "Floor":
        return [(helper.make_node("Cast", [x], [y], node.name, to=first), first)]
    if opset < BOUNDS_INTEGERS and whole and (bounds or (node.op_type == "MaxPool" and first in STATED)):
        real = helper.make_node(node.op_type, [f"{y}@operand"], [f"{y}@real"], node.name, **values)
        before = helper.make_node("Cast", [x], real.input, to=TensorProto.FLOAT)
        after = helper.make_node("Cast", real.output, [y], to=first)
        return [(before, TensorProto.FLOAT), (real, TensorProto.FLOAT), (after, first)]
    return [(node, first if node.op_type in LIKE_FIRST else 0)]


def stored_integers(model: onnx.ModelProto, file: str) -> None:
    """Quantise inputs, weights and moved values, and make each requantisation an op on int32, in place."""
    # Without these operators there is no requantisation, so the model is no integer one.
    kinds, numbers = {n.op_type for n in model.graph.node}, Numbers(model, file)
    if not ({"Div", "Floor"} <= kinds or {"Div", "Cast"} <= kinds or any(n.domain == DOMAIN for n in model.graph.node)):
        return
    numbers.read(HANDLERS)
    if numbers.requantises:
        for diagnostic in numbers.warnings:
            warn(diagnostic)
        del model.graph.node[:]
        model.graph.node.extend(node for node in numbers.nodes if node is not None)
        sort(model.graph, file)


def integer_node(numbers: Numbers, f: Fused) -> bool:
    """Rewrite a node of `integer_nodes`. Raises EdgebuildError if its operands or results do not fit 32 bits."""
    ranges, whole, constants = list[Range](), list[str](), dict[int, Array]()
    for at, name in enumerate(f.node.input):
        numbers.store_form(name)
        number = numbers.number(name)
        if number is not None:
            constants[at] = number
        elif name in numbers.ranges:
            ranges.append(numbers.ranges[name])
            whole.append(f.between(f"whole{at}"))
            numbers.add(f.op("QuantizeLinear", [name, *numbers.unit(np.int32)], whole[-1]))
        else:
            raise f.refuse(f"'{name}' is not of whole numbers that are known to fit into 32 bits", OPERANDS)
    shape = numbers.shape(f.at(0))
    meaning = NODES[f.node.op_type](Operands(f, ranges, shape, constants, opset_of(numbers.model)))
    x, numbers.requantises = f.at(0), True
    if meaning.text:
        x = f.between("numbers")
        numbers.add(*meaning.nodes(f, whole))
        numbers.add(f.op("DequantizeLinear", [f.between("r"), *numbers.unit(np.int32)], x))
        numbers.ranges[x] = meaning.reach
    form = Form(x, meaning.factor, meaning.added).over(meaning.divisor).rounded("Floor")
    if not numbers.requantise(f, form, *meaning.ends):
        raise f.refuse("its results have no form in 32 bits", "supported: results of 32 bits")
    return True


# Handlers of nodes: each returns whether it has rewritten its node, which is kept otherwise.


def requant_shift(numbers: Numbers, f: Fused) -> bool:
    divisor, (low, high) = f.whole("div"), bounds_of(f)
    bits = divisor.bit_length() - 1
    if divisor != 1 << max(bits, 0) or bits > 31:
        raise f.refuse(f"div is {divisor}", "it must be a power of two up to 2^31")
    factors = [_integers(f, at, word, numbers.constants) for at, word in ((1, "mul"), (2, "add"))]
    numbers.store_form(f.at(0))
    numbers.shifted(f, f.at(0), factors, bits, (low, high))
    numbers.requantises = True
    return True


def dequantised(numbers: Numbers, f: Fused) -> bool:
    """DequantizeLinear of scale 1, whose zero point states the type."""
    scale, zero = numbers.number(f.at(1)), numbers.constants.get(f.at(2))
    if scale is None or scale.size != 1 or scale.ravel()[0] != 1 or zero is None or zero.data_type not in STATED:
        return False
    start, kind = int(numpy_helper.to_array(zero).ravel()[0]), np.iinfo(helper.tensor_dtype_to_np_dtype(zero.data_type))
    numbers.ranges[f.node.output[0]] = (int(kind.min) - start, int(kind.max) - start)
    return numbers.add(f.node)


def moved_values(numbers: Numbers, f: Fused) -> bool:
    """A node that moves or selects values; values of integer type are moved as floats."""
    form, operator = numbers.forms.get(f.at(0)), f.node.op_type
    if f.at(0) in numbers.typed and form is not None and form.is_base and operator != "Pad":
        names, kind = [form.base, *f.node.input[1:]], numbers.kind(f.at(0))
        real = Fused(f.op(operator, names, f.between("real"), **f.attributes), f.graph, f.file)
        return kind in STATED and moved_values(numbers, real) and numbers.in_type(f, f.between("real"), kind)
    numbers.store_form(f.at(0))
    of = numbers.ranges.get(f.at(0))
    border = numbers.number(f.at(2)) if f.node.op_type == "Pad" and f.at(2) else UNCHANGED[1]
    if of is None or f.node.output[1:] or border is None or border.size != 1:
        return False
    if f.node.op_type == "Pad":
        of = min(of[0], int(border.ravel()[0])), max(of[1], int(border.ravel()[0]))
    moved = f.op(f.node.op_type, list(f.node.input), f.between("moved"), **f.attributes)
    return numbers.add(moved) and numbers.store(f, moved.output[0], of)


def weighted(numbers: Numbers, f: Fused) -> bool:
    """A sum of products of integers with constant 8-bit weights, plus a bias."""
    numbers.store_form(f.at(0))
    of = numbers.ranges.get(f.at(0))
    w, bias = (numbers.words(f.at(at)) if of is not None else None for at in (1, 2))
    own = {n: f.attributes.get(n, default) for n, default in (("alpha", 1), ("beta", 1), ("transA", 0))}
    if of is None or kind_of(of) not in NARROW or w is None or list(own.values()) != [1, 1, 0]:
        return False
    axis = 0 if f.node.op_type == "Conv" or f.attributes.get("transB", 0) else w.ndim - 1
    kind = kind_of((int(np.min(w)), int(np.max(w))))
    if kind not in (np.int8, np.uint8) or (f.at(2) and bias is None) or w.ndim < 2:
        return False
    rows = np.moveaxis(w, axis, 0).reshape(w.shape[axis], -1)
    above, below = np.maximum(rows, 0).sum(axis=1), np.minimum(rows, 0).sum(axis=1)
    low, high = min(of[0], 0), max(of[1], 0)  # padding adds zeros
    start = 0 if bias is None else bias
    reach = int(np.min(above * low + below * high + start)), int(np.max(above * high + below * low + start))
    scale = numbers.unit(kind)
    numbers.add(f.op("DequantizeLinear", [f.constant("weights", w.astype(kind)), *scale], f.between("w")))
    f.node.input[1] = f.between("w")
    numbers.sums.add(f.node.output[0])
    numbers.add(f.op(f.node.op_type, list(f.node.input), f.between("real"), **f.attributes))
    return numbers.store(f, f.between("real"), reach, wide=True) or numbers.add(f.op("Identity", [f.between("real")]))


def integer_product(numbers: Numbers, f: Fused) -> bool:
    """ConvInteger or MatMulInteger without zero points: keep it, and add a float node with the same sums."""
    kind = 0 if any(f.inputs(2, 4)) else numbers.kind(f.at(0))
    if kind not in STATED:
        return False
    zero = helper.tensor_dtype_to_np_dtype(kind)
    numbers.add(f.op("DequantizeLinear", [f.at(0), *numbers.unit(zero.type)], f.between("x")))
    numbers.ranges[f.between("x")] = int(np.iinfo(zero).min), int(np.iinfo(zero).max)
    real = helper.make_node(INTEGER[f.node.op_type], [f.between("x"), f.at(1)], [f.between("sums")], **f.attributes)
    if not weighted(numbers, Fused(real, f.graph, f.file)) or f.between("sums") not in numbers.ranges:
        return False
    numbers.typed |= {*f.node.output}
    return numbers.keep(f, Form(f.between("sums"), *UNCHANGED))


def averaged(numbers: Numbers, f: Fused) -> bool:
    """An average pool, as a convolution with weights of 1, divided by the number of elements."""
    own, shape = f.attributes, numbers.shape(f.at(0))
    window = own.get("kernel_shape", shape[2:])
    padded = any(own.get("pads", ())) and not own.get("count_include_pad", 0)
    odd = own.get("ceil_mode", 0) or own.get("auto_pad", b"NOTSET") != b"NOTSET" or {*own.get("dilations", ())} - {1}
    numbers.store_form(f.at(0))
    if f.at(0) not in numbers.ranges or padded or odd or len(shape) < 3 or not shape[1]:
        return False
    if len(window) != len(shape) - 2 or any(not 0 < k <= n for k, n in zip(window, shape[2:], strict=True)):
        return False
    ones = f.constant("ones", np.ones((shape[1], 1, *window), np.float32))
    numbers.constants[ones] = f.graph.initializer[-1]
    kept = {name: own[name] for name in ("pads", "strides") if name in own}
    sums = f.op("Conv", [f.at(0), ones], f.between("sum"), group=shape[1], kernel_shape=window, **kept)
    if not weighted(numbers, Fused(sums, f.graph, f.file)):
        return False
    form = numbers.form(sums.output[0])
    return form is not None and numbers.keep(f, form.over(prod(window)))


def product(numbers: Numbers, f: Fused) -> bool:
    """A product with constant integers."""
    at = next((at for at in range(2) if f.at(at) in numbers.constants), 0)
    form = numbers.form(f.at(1 - at))
    number = numbers.number(f.at(at)) if form is not None else None
    return number is not None and form is not None and numbers.keep(f, form.times(number))


def quotient(numbers: Numbers, f: Fused) -> bool:
    """A quotient by one positive constant; of integer type it is rounded towards 0."""
    form = numbers.form(f.at(0))
    number = numbers.number(f.at(1)) if form is not None else None
    divisor = int(np.ravel(number)[0]) if number is not None and np.unique(number).size == 1 else 0
    if form is None or divisor < 1:
        return False
    form = form.over(divisor)
    return numbers.keep(f, form.rounded("Cast") if f.at(0) in numbers.typed else form)


def total(numbers: Numbers, f: Fused) -> bool:
    """A sum with constant integers, or of two tensors."""
    names = list(f.node.input)
    forms = [numbers.form(name) for name in names]
    for form, other in zip(forms, reversed(names), strict=True):
        number = numbers.number(other) if form is not None else None
        if form is not None and number is not None:
            return numbers.keep(f, form.plus(number))
    both = joined(forms[0], forms[1], f.between("sum")) if forms[0] is not None and forms[1] is not None else None
    return both is not None and _weighted_sum(numbers, f, *both)


def _weighted_sum(numbers: Numbers, f: Fused, form: Form, terms: list[tuple[str, int]]) -> bool:
    """Compute the weighted sum `terms` of tensors in int32 as `form.base`; the node's result is `form`."""
    ends = [sorted(end * factor for end in numbers.ranges[name]) for name, factor in terms]
    reach = ends[0][0] + ends[1][0], ends[0][1] + ends[1][1]
    if not all(kind_of((low, high)) for low, high in (*ends, reach)):
        return False
    parts, scale = list[str](), numbers.unit(np.int32)
    for at, ((name, factor), (low, high)) in enumerate(zip(terms, ends, strict=True)):
        if factor != 1:
            constants = [f.constant(f"{word}{at}", np.int32(n)) for word, n in (("factor", factor), ("none", 0))]
            scaled = numbers.node("Mul", name, f.between(f"product{at}"))
            numbers.shifted(scaled, name, constants, 0, (low, high))
            name = scaled.node.output[0]
        parts.append(f.between(f"part{at}"))
        numbers.add(f.op("QuantizeLinear", [name, *scale], parts[-1]))
    numbers.add(f.op("Sum", parts, f.between("whole")))
    numbers.add(f.op("DequantizeLinear", [f.between("whole"), *scale], form.base))
    numbers.ranges[form.base] = reach
    return numbers.keep(f, form)


def factored_sum(numbers: Numbers, f: Fused) -> bool:
    """Add with factors: each operand, and then the sum, is requantised if the node has attributes for it."""
    names = [_requantised(numbers, f, f"in{at + 1}", f.at(at), f.between(f"operand{at}")) for at in range(2)]
    inner = Fused(helper.make_node("Add", names, [f.between("total")], f.name), numbers.graph, numbers.file)
    if not total(numbers, inner):
        raise f.refuse("operands that are no whole numbers", "supported: results of requantisations")
    result = _requantised(numbers, f, "out", f.between("total"), f.between("own"))
    form = numbers.form(result)
    return form is not None and numbers.keep(numbers.node("Identity", result, f.node.output[0]), form)


def _requantised(numbers: Numbers, f: Fused, which: str, name: str, output: str) -> str:
    """Name of (x * mul + add) / 2^shift, rounded down, clamped to 0..`n_levels` - 1, if `rq` is 1; else x."""
    if not f.attributes.get(f"{which}_rq", 0):
        return name
    mul, add, bits, levels = (f.whole(f"{which}_{word}") for word in ("mul", "add", "shift", "n_levels"))
    form = numbers.form(name)
    if form is None or not 0 <= bits <= 31:
        raise f.refuse(f"{which}_shift {bits}, or an operand of no whole numbers", "supported: shifts of 0 to 31")
    form = form.times(integers(np.array(mul))).plus(integers(np.array(add))).over(1 << bits).rounded("Floor")
    if not numbers.requantise(numbers.node("Floor", name, output), form, 0, levels - 1):
        raise f.refuse(f"{which}_mul {mul} and {which}_add {add} lead out of 32 bits")
    return output


def rounded(numbers: Numbers, f: Fused) -> bool:
    """Floor, or Cast between floats and integers, which rounds towards 0."""
    form = numbers.form(f.at(0), rounded=True)
    to = f.attributes.get("to", TensorProto.FLOAT)
    if form is not None and form.is_base and to in STATED:
        return numbers.in_type(f, form.base, to)
    if form is None or to not in (*WHOLE_TYPES, TensorProto.FLOAT, TensorProto.DOUBLE):
        return False
    whole = f.node.op_type == "Floor" or to in WHOLE_TYPES
    if not numbers.keep(f, form.rounded(f.node.op_type) if whole else form):
        return False
    numbers.typed -= {*f.node.output}
    numbers.typed |= {*f.node.output} if to in WHOLE_TYPES else set()
    return True


def bounded(numbers: Numbers, f: Fused) -> bool:
    """Clip with integer bounds, or Relu."""
    form, ends = numbers.form(f.at(0), rounded=True), [*ENDS]
    for at in (1, 2):
        number = numbers.number(f.at(at))
        if f.at(at) and (number is None or number.size != 1):
            return False
        ends[at - 1] = int(number.ravel()[0]) if number is not None else ends[at - 1]
    low, high = (0, ENDS[1]) if f.node.op_type == "Relu" else ends
    if form is None or not (form.rounds or form.divisor == 1) or low > high:
        return False
    if f.at(0) not in numbers.typed:
        return numbers.requantise(f, form, low, high)
    real, kind = numbers.node("Clip", f.at(0), f.between("real")), numbers.kind(f.at(0))
    narrow = kind in (*STATED, TensorProto.INT32) and numbers.requantise(real, form, low, high)
    return narrow and numbers.in_type(f, f.between("real"), kind)


HANDLERS: Mapping[str, Callable[[Numbers, Fused], bool]] = {
    REQUANT: requant_shift,
    "DequantizeLinear": dequantised,
    **dict.fromkeys(("Conv", "Gemm", "MatMul"), weighted),
    **dict.fromkeys(INTEGER, integer_product),
    **dict.fromkeys(
        ("MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Slice", "Pad"), moved_values
    ),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool"), averaged),
    "Mul": product,
    "Add": lambda numbers, f: (factored_sum if f.node.domain == DOMAIN else total)(numbers, f),
    "Div": quotient,
    **dict.fromkeys(("Floor", "Cast"), rounded),
    **dict.fromkeys(("Clip", "Relu"), bounded),
    **dict.fromkeys(NODES, integer_node),
}


def read_shifted(node: OnnxNode) -> None:
    """Read RequantShift as `Numbers.shifted` writes it. Floats, whose values are integers, become int32."""
    x = node.tensor(0)
    if x.dtype not in ("float32", "int32", "int16", "int8", "uint8"):
        raise node.error(f"values of {x.dtype}", "supported: float32, and integers of up to 32 bits")
    if x.dtype == "float32":
        whole = Tensor(node.fresh("sums"), x.shape, "int32", Quant((1.0,), (0,)))
        node.add("quantize", [x.name], whole, {})
        node.inputs = [whole.name, *node.inputs[1:]]
    for at in (1, 2):
        node.inputs[at] = _by_channel(node, node.tensor(at), x.shape)
    parameters = {name: node.attr(name, 0) for name in ("bits", "low", "high")}
    node.emit_function("shifted_product", to=node.dtype_of(node.attr("to", 0)), **parameters)


def _by_channel(node: OnnxNode, t: Tensor, shape: tuple[int, ...]) -> str:
    """Name of a constant per channel, reshaped to broadcast along dimension 1 of `shape`."""
    fits = len(t.shape) <= len(shape) and all(n in (1, m) for n, m in zip(t.shape[::-1], shape[::-1], strict=False))
    if fits or t.data is None or t.elements != shape[1] or t.elements != max(t.shape):
        return t.name
    return node.reshaped(t.name, (t.elements, *(1 for _ in shape[2:])))


def bounds_of(f: Fused) -> tuple[int, int]:
    """The least and the largest result of a RequantShift. Raises EdgebuildError unless 2 to 256 levels."""
    levels = f.whole("n_levels_out", "n_levels")
    if not 2 <= levels <= 256:
        raise f.refuse(f"{levels} levels", "supported: 2 to 256")
    half = (levels + 1) // 2
    return (-half, half - 1) if f.whole("signed") else (0, levels - 1)


def _integers(f: Fused, at: int, word: str, constants: dict[str, onnx.TensorProto]) -> str:
    if f.at(at) not in constants:
        raise f.refuse(f"'{word}' is computed by the graph", "constants are supported")
    data: Array = numpy_helper.to_array(constants[f.at(at)]).astype(np.float64)
    if not (data == np.clip(np.rint(data), *INT32)).all():
        raise f.refuse(f"'{word}' is not of whole numbers in 32 bits")
    return f.constant(word, data.astype(np.int32))
