"""Tensors of whole numbers among the real ones of an ONNX file, and nodes that store them as integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ....base.errors import Diagnostic
from ...ir import Array
from .control_flow import reads
from .fused import Fused
from .onnx_checks import OWN_DOMAINS
from .requantised import ENDS, UNCHANGED, Form, Range, integers, shift_of

REQUANT, DOMAIN = "RequantShift", "quantlib"  # the domain that it gets, whatever the file says
UNSIGNED = "input '{}' is taken for uint8: no QuantizeLinear says whether its integers are signed"
UNSAID = "put QuantizeLinear and DequantizeLinear behind '{}', of scale 1 and a zero point 0 in int8 or uint8"
BYTE = np.iinfo(np.int8)
OF_OTHER_SHAPE = ("Add", "IntegerDiv", "IntegerMean")  # than that of their first operand
KINDS = (np.int8, np.uint8, np.int16, np.int32)


class Numbers:
    """The nodes so far, and the tensors that hold whole numbers.

    `ranges`: between which numbers those are that nodes here store. `forms`: what others are made of; their nodes stay
    as they are until the numbers are needed. `sums`: of products. `typed`: those that are integers in the file, too.
    """

    def __init__(self, model: onnx.ModelProto, file: str) -> None:
        self.model, self.graph, self.file = model, model.graph, file
        self.warnings, self.requantises = list[Diagnostic](), False
        self.nodes, self.places = list[onnx.NodeProto | None](), dict[str, int]()
        self.constants = {t.name: t for t in self.graph.initializer}
        self.ranges, self.forms = dict[str, Range](), dict[str, Form]()
        self.sums, self.typed = set[str](), set[str]()

    @cached_property
    def shapes(self) -> dict[str, list[int]]:
        """Shapes as far as the onnx package infers them, which knows none of the nodes of whole numbers; else 0."""
        copy = onnx.ModelProto()
        copy.CopyFrom(self.model)
        for node in (n for n in copy.graph.node if n.domain == DOMAIN and n.op_type not in OF_OTHER_SHAPE):
            node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))
        graph = onnx.shape_inference.infer_shapes(copy).graph
        values = (*graph.input, *graph.value_info)
        return {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}

    def read(self, handlers: Mapping[str, Callable[[Numbers, Fused], bool]]) -> None:
        """Read all nodes. A handler tells whether its node is one of whole numbers; else that stays as it is."""
        inputs = self._inputs()
        for original in list(self.graph.node):
            node = onnx.NodeProto()
            node.CopyFrom(original)
            node.input[:] = [inputs.get(n, n) for n in node.input]
            f = Fused(node, self.graph, self.file)
            handler = handlers.get(node.op_type) if node.domain in (*OWN_DOMAINS, DOMAIN) else None
            if handler is None or not handler(self, f):
                for name in reads(node):
                    self.settle(name)
                self.add(node)
        for value in self.graph.output:
            self.settle(value.name)

    def node(self, operator: str, x: str, output: str) -> Fused:
        """A node that is none of the file."""
        return Fused(helper.make_node(operator, [x], [output]), self.graph, self.file)

    def add(self, *nodes: onnx.NodeProto) -> bool:
        """The nodes behind those so far, in the place of others that write the same tensors."""
        for node in nodes:
            for name in filter(None, node.output):
                if name in self.places:
                    self.nodes[self.places[name]] = None
                self.places[name] = len(self.nodes)
            self.nodes.append(node)
        return True

    def _inputs(self) -> dict[str, str]:
        """Inputs of the graph that no node quantises, as whole numbers: new names by old ones."""
        readers = {name: [n for n in self.graph.node if name in n.input] for name in (v.name for v in self.graph.input)}
        renamed = dict[str, str]()
        for value in self.graph.input:
            own = value.name not in self.constants and value.type.tensor_type.elem_type == TensorProto.FLOAT
            if own and not any(n.op_type == "QuantizeLinear" for n in readers[value.name]):
                text, hints = UNSIGNED.format(value.name), (UNSAID.format(value.name),)
                self.warnings.append(Diagnostic(text, self.file, severity="warning", hints=hints))
                renamed[value.name] = f"{value.name}@whole"
                self.store(self.node("Identity", value.name, renamed[value.name]), value.name, (0, 255))
        return renamed

    def unit(self, kind: type, zero: int = 0) -> list[str]:
        """A scale of 1 and a zero point of this type."""
        values = {"1@scale": np.float32(1), f"{zero}@{np.dtype(kind)}": kind(zero)}
        for name in values.keys() - self.constants.keys():
            self.constants[name] = numpy_helper.from_array(np.asarray(values[name]), name)
            self.graph.initializer.append(self.constants[name])
        return list(values)

    def keep(self, f: Fused, form: Form) -> bool:
        """Leave the node as it is, whose result has this form."""
        self.forms[f.node.output[0]] = form
        self.typed |= {*f.node.output} if self.typed.intersection(f.node.input) else set()
        return self.add(f.node)

    def store(self, f: Fused, name: str, of: Range, wide: bool = False) -> bool:
        """Numbers of a real tensor within `of` as the result of the node, stored as whole ones; `wide`: in int32."""
        kind = kind_of(of)
        if kind is not None and wide:
            kind = np.int32
        if kind is None:
            return False
        scale = self.unit(kind)
        self.ranges[f.node.output[0]] = of
        self.add(f.op("QuantizeLinear", [name, *scale], f.between("steps")))
        return self.add(f.op("DequantizeLinear", [f.between("steps"), *scale]))

    def words(self, name: str) -> Array | None:
        """The numbers of a constant in int64; None where it is none, or not of whole numbers below 2^62."""
        data = numpy_helper.to_array(self.constants[name]) if name in self.constants else None
        if data is None or data.dtype.kind not in "fi" or not data.size or not (abs(data) < ENDS[1]).all():
            return None
        return data.astype(np.int64) if (data == np.rint(data)).all() else None

    def number(self, name: str) -> Array | None:
        """The same as integers that do not overflow."""
        words = self.words(name)
        return None if words is None else integers(words)

    def form(self, name: str, rounded: bool = False) -> Form | None:
        """The form of a tensor; with `rounded` it may be rounded, else its numbers are stored first."""
        form = self.forms.get(name)
        if form is not None and form.rounds and not rounded:
            if not self.requantise(self.node("Floor", name, f"{name}@rounded"), form, *ENDS):
                return None
            form = self.forms[name] = Form(f"{name}@rounded", *UNCHANGED)
        return form or (Form(name, *UNCHANGED) if name in self.ranges else None)

    def settle(self, name: str) -> None:
        """Store the numbers of a tensor that has a form, if that is possible: its nodes stay as they are otherwise."""
        form = self.forms.get(name)
        if form is None or name in self.typed or (form.divisor > 1 and not form.rounds):
            return
        self.requantise(self.node("Floor", name, name), form, *ENDS)

    def requantise(self, f: Fused, form: Form, low: int, high: int) -> bool:
        """The node's result: the form between two numbers. False if it has none in 32 bits."""
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
        """RequantShift of whole numbers, and the real numbers that its result stands for."""
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
    """The smallest type of whole numbers between these two, which may be less than 0."""
    fitting = (kind for kind in KINDS if np.iinfo(kind).min <= of[0] and of[1] <= np.iinfo(kind).max)
    return next(fitting, None)
