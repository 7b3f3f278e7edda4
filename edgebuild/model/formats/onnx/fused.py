"""Expand complex nodes to standard ones: recurrent cells, and operators that onnxruntime's optimiser fuses."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

from ....base.errors import EdgebuildError, fail
from ....base.inputs import sections
from ...ir import Array, real_values
from .onnx_checks import MICROSOFT, OWN_DOMAINS, TABLE
from .onnx_layers import OnnxNode
from .other_nodes import Parts

# LSTM, GRU and RNN nodes are unrolled by their definition to MatMul, Add, Slice, Sigmoid, Tanh and others.
#
# DynamicQuantizeLSTM of com.microsoft is an LSTM whose products are DynamicQuantizeLinear and MatMulInteger, as in
# onnxruntime: the whole sequence is quantised at once, and each state separately.
#
# Formulas and the order of the gates are those of the ONNX operators' documentation: iofc, zrh. Every step has its own
# copy of the cell's nodes, so a network that gets one step per inference has the cell once.

DYNAMIC = "DynamicQuantizeLSTM"
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1, DYNAMIC: 4}
LSTM_FUNCTIONS = ("Sigmoid", "Tanh", "Tanh")
DEFAULTS = {"LSTM": LSTM_FUNCTIONS, "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",), DYNAMIC: LSTM_FUNCTIONS}
TWO_STATES = ("LSTM", DYNAMIC)
# Activations with parameters, and their defaults. A node lists the values in the order of activations that have one.
PARAMETRIC_ACTIVATIONS = {
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "LeakyRelu": {"alpha": 0.01},
    "Elu": {"alpha": 1.0},
    "ThresholdedRelu": {"alpha": 1.0},
}
PLAIN = ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus")  # activations without parameters
MAX_STEPS = 256  # steps
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}  # per direction: runs backwards


# An activation: an operator and its attributes.
Function = tuple[str, Mapping[str, float]]
# A step: (products of its input, states) -> new states, all as names.
Step = Callable[[str, list[str]], list[str]]


class Cell(Parts):
    """A recurrent node while it is unrolled. `shape`: steps, batch, features of its input. `at`: current direction."""

    def __init__(self, node: OnnxNode, shape: tuple[int, ...]) -> None:
        super().__init__(node, f"{node.outputs[0] or node.name}@")
        self.shape, self.at, self.constants = shape, 0, 0

    def constant(self, data: Array) -> str:
        name, self.constants = f"{self.prefix}c{self.constants}", self.constants + 1
        return self.node.store(name, np.ascontiguousarray(data).reshape(data.shape))

    def parts(self, x: str, size: int, count: int) -> list[str]:
        """Split the last dimension into `count` parts of `size`."""
        axes = self.longs(1)
        cuts = [self.longs(i * size) for i in range(count + 1)]
        return [self.op("Slice", x, cuts[i], cuts[i + 1], axes) for i in range(count)]

    def floats(self, position: int) -> Array | None:
        """A constant operand in float32; None if it is left out."""
        data = self.stored(position)
        return None if data is None else data.astype(np.float32)

    def stored(self, position: int) -> Array | None:
        if not self.node.has(position):
            return None
        t = self.node.constant(position, "parameter")
        return t.array if t.quant is None else real_values(t)

    def gate(self, function: Function, x: str) -> str:
        """The activation of a gate's sum, which is clipped first if the node has `clip`."""
        if clip := self.node.attr("clip", 0):
            x = self.op("Clip", x, *(self.constant(np.array(v, np.float32)) for v in (-clip, clip)))
        return self.activation(function, x)

    def activation(self, function: Function, x: str) -> str:
        return self.op(function[0], x, **function[1])

    def functions(self, directions: int) -> list[list[Function]]:
        """The activations of each direction. Raises EdgebuildError for unsupported ones."""
        names = [a.decode() for a in self.node.attr("activations", [])] or [*DEFAULTS[self.node.origin] * directions]
        values = {key: [*self.node.attr(f"activation_{key}", [])] for key in ("alpha", "beta")}
        functions = list[Function]()
        for name in names:
            if name not in PLAIN and name not in PARAMETRIC_ACTIVATIONS:
                raise self.node.error(
                    f"activation {name}", f"supported: {', '.join((*PLAIN, *PARAMETRIC_ACTIVATIONS))}"
                )
            own = PARAMETRIC_ACTIVATIONS.get(name, {})
            functions.append((name, {key: values[key].pop(0) if values[key] else own[key] for key in own}))
        count = len(DEFAULTS[self.node.origin])
        if len(functions) != count * directions:
            text = f"{len(functions)} activations for {directions} direction{'s' * (directions > 1)}"
            raise self.node.error(text, f"it takes {count} of each")
        return [functions[at * count : (at + 1) * count] for at in range(directions)]

    def product(self, position: int, direction: int) -> Callable[[str], str]:
        """A function that multiplies a tensor by the weights of this operand, in one direction."""
        w = self.stored(position)
        assert w is not None
        if self.node.origin != DYNAMIC:
            weights = self.constant(w[direction].astype(np.float32).T)
            return lambda x: self.op("MatMul", x, weights)
        scale, zero = self.stored(6 + 2 * position), self.stored(7 + 2 * position)
        assert scale is not None and zero is not None
        zeros = zero[direction] if zero.ndim else zero
        weights, points = self.constant(w[direction]), self.constant(zeros.astype(w.dtype))
        factors = self.constant((scale[direction] if scale.ndim else scale).astype(np.float32))

        def times(x: str) -> str:
            names = [f"{self.prefix}{len(self.nodes)}{part}" for part in ("", "scale", "zero")]
            self.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], names, self.node.name))
            sums = self.op("MatMulInteger", names[0], weights, names[2], points)
            return self.op("Mul", self.op("Cast", sums, to=onnx.TensorProto.FLOAT), self.op("Mul", names[1], factors))

        return times


def _lstm(cell: Cell, hidden: int, functions: Sequence[Function]) -> Step:
    f, g, h = functions
    d = cell.at
    b, peepholes = cell.floats(3), cell.floats(7)
    bias = np.zeros((d + 1, 8 * hidden), np.float32) if b is None else b
    start = cell.constant(bias[d][: 4 * hidden] + bias[d][4 * hidden :])
    holes = [cell.constant(p) for p in peepholes[d].reshape(3, hidden)] if peepholes is not None else []

    def seen(gate: str, memory: str, at: int) -> str:
        """The gate's sum with its peephole, if any; their order is input, output, forget."""
        return cell.op("Add", gate, cell.op("Mul", memory, holes[at])) if holes else gate

    recurrent = cell.product(2, d)

    def step(own: str, state: list[str]) -> list[str]:
        total = cell.op("Add", cell.op("Add", own, start), recurrent(state[0]))
        i, o, forget, c = cell.parts(total, hidden, 4)
        i, forget = seen(i, state[1], 0), seen(forget, state[1], 2)
        old = cell.op("Mul", cell.gate(f, forget), state[1])
        new = cell.op("Add", old, cell.op("Mul", cell.gate(f, i), cell.gate(g, c)))
        out = cell.gate(f, seen(o, new, 1))
        return [cell.op("Mul", out, cell.activation(h, new)), new]

    return step


def _gru(cell: Cell, hidden: int, functions: Sequence[Function]) -> Step:
    f, g = functions
    r, b = cell.floats(2), cell.floats(3)
    assert r is not None
    d, n = cell.at, 2 * hidden
    bias = np.zeros((len(r), 6 * hidden), np.float32) if b is None else b
    own, back = bias[d][: 3 * hidden], bias[d][3 * hidden :]
    late = bool(cell.node.attr("linear_before_reset", 0))
    start = cell.constant(own + np.where(np.arange(3 * hidden) < n, back, 0.0 if late else back))
    gates, candidate = cell.constant(r[d][:n].T), cell.constant(r[d][n:].T)
    last, one = cell.constant(back[n:]), cell.constant(np.array(1, np.float32))

    def step(x: str, state: list[str]) -> list[str]:
        z, reset, c = cell.parts(cell.op("Add", x, start), hidden, 3)
        from_z, from_r = cell.parts(cell.op("MatMul", state[0], gates), hidden, 2)
        z, reset = (cell.gate(f, cell.op("Add", a, b)) for a, b in ((z, from_z), (reset, from_r)))
        if late:
            past = cell.op("Mul", reset, cell.op("Add", cell.op("MatMul", state[0], candidate), last))
        else:
            past = cell.op("MatMul", cell.op("Mul", reset, state[0]), candidate)
        new = cell.gate(g, cell.op("Add", c, past))
        return [cell.op("Add", cell.op("Mul", cell.op("Sub", one, z), new), cell.op("Mul", z, state[0]))]

    return step


def _rnn(cell: Cell, hidden: int, functions: Sequence[Function]) -> Step:
    d, b = cell.at, cell.floats(3)
    bias = np.zeros((d + 1, 2 * hidden), np.float32) if b is None else b
    recurrent, start = cell.product(2, d), cell.constant(bias[d][:hidden] + bias[d][hidden:])

    def step(own: str, state: list[str]) -> list[str]:
        return [cell.gate(functions[0], cell.op("Add", cell.op("Add", own, start), recurrent(state[0])))]

    return step


STEPS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn, DYNAMIC: _lstm}


def unrolled(node: OnnxNode) -> list[onnx.NodeProto]:
    """The standard nodes of a recurrent node, for all its directions."""
    shape, batches_first = node.tensor(0).shape, bool(node.attr("layout", 0))
    if len(shape) != 3:
        raise node.error(f"an input of shape {shape}", "steps, batch and features are three dimensions")
    if node.attr("input_forget", 0):
        raise node.error("input_forget", "this attribute must have its default")
    whole = Cell(node, (shape[1], shape[0], shape[2]) if batches_first else shape)
    if whole.shape[0] > MAX_STEPS:
        raise node.error(f"{whole.shape[0]} steps", f"at most {MAX_STEPS}; call the network step by step")
    directions = DIRECTIONS[node.attr("direction", "forward")]
    _check_shapes(whole, len(directions))
    functions = whole.functions(len(directions))
    x = whole.op("Transpose", node.inputs[0], perm=[1, 0, 2]) if batches_first else node.inputs[0]
    outputs = [_direction(whole, x, at, backwards, functions[at]) for at, backwards in enumerate(directions)]
    for position, name in enumerate(node.outputs):
        if name:
            parts, axis = [o[position] for o in outputs], 1 if position == 0 else 0
            if batches_first:  # (steps, directions, batch, hidden) and (directions, batch, hidden) become batch first
                turned = [2, 0, 1, 3] if position == 0 else [1, 0, 2]
                whole.end(name, "Transpose", whole.op("Concat", *parts, axis=axis), perm=turned)
            else:
                whole.end(name, "Concat", *parts, axis=axis)
    return whole.nodes


def _check_shapes(cell: Cell, directions: int) -> None:
    """Raise EdgebuildError for a parameter whose shape is not that of the operator's documentation."""
    hidden, kind = cell.node.attr("hidden_size", 0), cell.node.origin
    if hidden < 1:
        raise cell.node.error(f"hidden_size {hidden or 'is missing'}", "give the number of elements of a state")
    rows, features = GATES[kind] * hidden, cell.shape[2]
    wanted = {
        1: (directions, rows, features),
        2: (directions, rows, hidden),
        3: (directions, 2 * rows),
        7: (directions, 3 * hidden),
    }
    if kind == DYNAMIC:
        wanted |= {1: (directions, features, rows), 2: (directions, hidden, rows)}
    for position, shape in wanted.items():
        data = cell.stored(position)
        if data is not None and data.shape != shape:
            text = f"operand {position} of shape {data.shape} with hidden_size {hidden}"
            raise cell.node.error(text, f"it must have the shape {shape}")


def _direction(cell: Cell, x: str, at: int, backwards: bool, functions: Sequence[Function]) -> list[str]:
    """Y (steps, 1, batch, hidden) and the last states (1, batch, hidden) of one direction."""
    cell.at = at
    r, kind = cell.stored(2), cell.node.origin
    assert r is not None
    steps, batch, features = cell.shape
    hidden = r.shape[1] if kind == DYNAMIC else r.shape[2]
    own, step = cell.product(1, at), STEPS[kind](cell, hidden, functions)
    states = [_start_state(cell, position, at, batch, hidden) for position in ((5, 6) if kind in TWO_STATES else (5,))]
    if kind == DYNAMIC:
        x, features = own(x), GATES[kind] * hidden
    zero, flat = cell.longs(0), cell.longs(batch, features)
    rows_by_step: dict[int, str] = {}
    lasts, nothing = _lasting_steps(cell, steps, batch), cell.constant(np.zeros((), np.float32))
    for t in reversed(range(steps)) if backwards else range(steps):
        ends = cell.longs(t), cell.longs(t + 1)
        part = cell.op("Reshape", cell.op("Slice", x, *ends, zero), flat)
        new = step(part if kind == DYNAMIC else own(part), states)
        if t in lasts:  # a sequence that has ended keeps its state and outputs zeros
            new = [cell.op("Where", lasts[t], a, b) for a, b in zip(new, states, strict=True)]
            rows_by_step[t] = cell.op("Where", lasts[t], new[0], nothing)
        states, rows_by_step[t] = new, rows_by_step.get(t, new[0])
    wide = cell.longs(1, 1, batch, hidden)
    rows = [cell.op("Reshape", rows_by_step[t], wide) for t in range(steps)]
    last = cell.longs(1, batch, hidden)
    return [cell.op("Concat", *rows, axis=0), *(cell.op("Reshape", s, last) for s in states)]


def _lasting_steps(cell: Cell, steps: int, batch: int) -> dict[int, str]:
    """Step -> name of whether each sequence of the batch is longer; steps that all sequences have are left out."""
    name = cell.node.inputs[4] if len(cell.node.inputs) > 4 else ""
    if not name:
        return {}
    lengths = cell.node.tensor(4).data
    column = cell.reshape(name, batch, 1)
    wanted = [t for t in range(steps) if lengths is None or (lengths <= t).any()]
    return {t: cell.op("Greater", column, cell.constant(np.array(t, np.int32))) for t in wanted}


def _start_state(cell: Cell, position: int, at: int, batch: int, hidden: int) -> str:
    """The state before the first step: an operand, or zeros."""
    name = cell.node.inputs[position] if position < len(cell.node.inputs) else ""
    if not name:
        return cell.constant(np.zeros((batch, hidden), np.float32))
    axis = cell.longs(1 if cell.node.attr("layout", 0) else 0)
    ends = cell.longs(at), cell.longs(at + 1)
    own = cell.op("Slice", name, *ends, axis)
    return cell.reshape(own, batch, hidden)


CELLS: Mapping[str, Callable[[OnnxNode], list[onnx.NodeProto]]] = dict.fromkeys(GATES, unrolled)


# Operators of com.microsoft, which onnxruntime's optimiser fuses from standard ones, are expanded to these.

# Activations of fused products, and their attributes in the order of the node's activation_params.
ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Clip": (),
    "Elu": ("alpha",), "Selu": ("alpha", "gamma"), "Softplus": (), "Softsign": (), "ThresholdedRelu": ("alpha",),
}  # fmt: skip
OWN = ("activation", "activation_params", "activation_alpha", "activation_beta", "activation_gamma")


class Fused:
    """A node that is expanded to several. `file`: for errors. `graph`: gets new constants."""

    def __init__(self, node: onnx.NodeProto, graph: onnx.GraphProto, file: str) -> None:
        self.node, self.graph, self.file = node, graph, file
        self.name = node.name or node.output[0]
        self.attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}

    def at(self, position: int) -> str:
        return self.node.input[position] if position < len(self.node.input) else ""

    def between(self, what: str) -> str:
        return f"{self.node.output[0]}@{what}"

    def op(self, operator: str, inputs: list[str], output: str = "", **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(operator, inputs, [output or self.node.output[0]], self.name, **attributes)

    def inputs(self, first: int, past: int) -> list[str]:
        return [self.at(i) for i in range(first, past)]

    def constant(self, what: str, value: Any) -> str:
        """Add a constant, in float32 unless `value` is of numpy's types, and return its name."""
        data = np.asarray(value) if isinstance(value, np.ndarray | np.generic) else np.asarray(value, np.float32)
        self.graph.initializer.append(numpy_helper.from_array(data, self.between(what)))
        return self.between(what)

    def real(self, at: int, inputs: Sequence[str], axis: int = 1) -> onnx.NodeProto:
        """A DequantizeLinear node of operand `at`. `inputs`: names of its value, scale and zero point."""
        return self.op("DequantizeLinear", list(filter(None, inputs)), self.between(f"real{at}"), axis=axis)

    def list_of(self, what: str, *values: int) -> str:
        return self.constant(what, np.array(values, np.int64))

    def refuse(self, text: str, hint: str = "") -> EdgebuildError:
        return fail(text, file=self.file, node=self.name, kind=self.node.op_type, hints=[hint] if hint else [])

    def whole(self, *names: str) -> int:
        """An integer attribute under one of these names, which some exporters write as a tensor with one float."""
        value = next((self.attributes[n] for n in names if n in self.attributes), None)
        numbers = np.ravel(
            numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.array(value, object)
        )
        if value is None or numbers.size != 1 or not float(numbers[0]).is_integer():
            raise self.refuse(f"attribute '{names[0]}' is no whole number")
        return int(numbers[0])

    def body(self, text: str, **names: str) -> Iterator[onnx.NodeProto]:
        """The nodes of a function body in ONNX's text format, connected to the node's operands and results.

        The first line names these, `x bias -> y`. `names` maps further names to tensors; all others are made unique. A
        line after `bias?` is used only if there is such an operand, after `!bias?` only if not. `{alpha:1.702}` is an
        attribute with its default, and `name := number or list` a constant.
        """
        first, *lines = (line.strip() for line in text.strip().splitlines())
        operands, _, results = (part.split() for part in first.partition("->"))
        given = dict(zip(operands, self.node.input, strict=False)) | dict(zip(results, self.node.output, strict=False))
        tensors = {name: value for name, value in given.items() if value} | names
        missing = {*operands} - {*tensors}
        for line in filter(None, lines):
            condition, _, rest = line.rpartition("? ")
            if condition and (condition.lstrip("!") in tensors) == condition.startswith("!"):
                continue
            rest = ATTRIBUTE.sub(lambda m: str(self.attributes.get(m[1], m[2])), rest)
            name, is_constant, value = rest.partition(" := ")
            if is_constant:
                number = literal_eval(value)
                tensors[name] = self.list_of(name, *number) if isinstance(number, list) else self.constant(name, number)
                continue
            try:
                node = onnx.parser.parse_node(rest)
            except onnx.parser.ParseError:  # a value such as nan was inserted for an attribute
                raise self.refuse(f"an attribute in '{rest}'", "attributes are finite numbers") from None
            for ports in (node.input, node.output):
                ports[:] = [tensors.get(p, "" if p in missing else self.between(p)) if p else "" for p in ports]
            node.name = self.name
            yield node


ATTRIBUTE = re.compile(r"\{(\w+):([^}]*)\}")
TEXTS = sections(Path(__file__).parent / "bodies.txt")
BODIES = {name: re.sub(r"^<(\w+)>\n", lambda m: TEXTS[m[1]], text, flags=re.MULTILINE) for name, text in TEXTS.items()}


def product(f: Fused) -> Iterator[onnx.NodeProto]:
    """Expand FusedMatMul: a product with transposed operands, times alpha."""
    own = f.attributes
    if own.get("transBatchA", 0) or own.get("transBatchB", 0):
        raise f.refuse("transBatchA or transBatchB", "supported: transA and transB")
    product = "y" if own.get("alpha", 1.0) == 1 else "product"
    left, right = "ba" if own.get("transA", 0) else "ab", "cb" if own.get("transB", 0) else "bc"
    turned = f'{product} = Einsum<equation = "...{left},...{right}->...ac">(a, b)'
    text = turned if left + right != "abbc" else f"{product} = MatMul(a, b)"
    more = "" if product == "y" else "alpha := {alpha:1.0}\ny = Mul(product, alpha)"
    yield from f.body(f"a b -> y\n{text}\n{more}".strip())


def normalised_sum(f: Fused) -> Iterator[onnx.NodeProto]:
    """Expand SkipLayerNormalization: normalise x + skip + bias; the sum is result 3."""
    yield from f.body(BODIES[f.node.op_type])
    outputs = [*f.node.output, "", "", ""][:4]
    operands = [name for name in (outputs[3] or f.between("sum"), f.at(2), f.at(3)) if name]
    kept = outputs[:3] if any(outputs[1:3]) else outputs[:1]
    epsilon = f.attributes.get("epsilon", 1e-12)
    yield helper.make_node("LayerNormalization", operands, kept, f.name, axis=-1, epsilon=epsilon)


def root_mean_square(f: Fused) -> Iterator[onnx.NodeProto]:
    """Expand SimplifiedLayerNormalization: x over the root of its mean square; the root's reciprocal is result 1."""
    if f.attributes.get("axis", -1) != -1:
        raise f.refuse(f"axis {f.attributes['axis']}", "supported: -1")
    yield from f.body(BODIES[f.node.op_type])


def embedded(f: Fused) -> Iterator[onnx.NodeProto]:
    """Expand EmbedLayerNormalization: normalise the sum of embeddings of words, positions and segments."""
    if f.at(7) or any(f.node.output[1:2]) or f.attributes.get("mask_index_type", 0):
        raise f.refuse("a mask, or its index as a result", "supported: without them")
    yield from f.body(BODIES[f.node.op_type])


def few_bits(f: Fused) -> Iterator[onnx.NodeProto]:
    """Expand MatMulNBits: dequantise weights of 2, 4 or 8 bits, which have a scale per block of a row.

    Zero points are packed as weights are, or real numbers, as Half-Quadratic Quantization (HQQ) has them.
    """
    bits, block, k, n = (f.attributes.get(name, 0) for name in ("bits", "block_size", "K", "N"))
    constants = {t.name: numpy_helper.to_array(t) for t in f.graph.initializer}
    stored = [constants.get(f.at(i)) for i in (1, 2, 3)]
    computed = any(f.at(i) and f.at(i) not in constants for i in (1, 2, 3)) or f.attributes.get("weight_prepacked", 0)
    if bits not in (2, 4, 8) or f.at(4) or computed:
        text = "weights that are computed, packed, sorted by an index, or of other than 2, 4 or 8 bits"
        raise f.refuse(text, "supported: constant, 2, 4 or 8 bits")
    blocks, (packed, scales, zeros) = -(-k // block), stored

    def unpacked(data: Any, count: int) -> Any:
        """`count` values of each row of bytes, the lowest bits of a byte first."""
        rows = np.asarray(data, np.uint8).reshape(n, -1)
        fields = np.stack([rows >> low & (1 << bits) - 1 for low in range(0, 8, bits)], axis=-1)
        return fields.reshape(n, -1)[:, :count].astype(np.float32)

    middle = np.full((n, blocks), 1 << (bits - 1), np.float32) if zeros is None else np.asarray(zeros)
    middle = (unpacked(middle, blocks) if middle.dtype == np.uint8 else middle).reshape(n, blocks, 1)
    steps = unpacked(packed, blocks * block).reshape(n, blocks, block) - middle
    weights = (steps * np.asarray(scales, np.float32).reshape(n, blocks, 1)).reshape(n, -1)[:, :k]
    product = f.between("product") if f.at(5) else f.node.output[0]
    yield f.op("MatMul", [f.at(0), f.constant("weights", np.ascontiguousarray(weights.T))], product)
    if f.at(5):
        yield f.op("Add", [product, f.at(5)])


def activated(operator: str) -> Callable[[Fused], Iterator[onnx.NodeProto]]:
    """Expansion of FusedConv and FusedGemm: the product, operand 3 added for a convolution, and an activation."""

    def parts(f: Fused) -> Iterator[onnx.NodeProto]:
        own = f.attributes
        kind = own.get("activation", b"").decode()
        if kind and kind not in ACTIVATIONS:
            raise f.refuse(f"activation {kind}", f"supported: {', '.join(ACTIVATIONS)}")
        numbers, names = list(own.get("activation_params", [])), ACTIVATIONS.get(kind, ())
        parameters = dict(zip(names, numbers, strict=False))
        parameters |= {name: own[f"activation_{name}"] for name in names if f"activation_{name}" in own}
        product, added = f.between("product"), f.at(3)
        inputs = [*f.node.input][:3] if f.at(2) else [*f.node.input][:2]
        yield f.op(operator, inputs, product, **{n: v for n, v in own.items() if n not in OWN})
        if added:
            yield f.op("Add", [product, added], f.between("sum"))
        last = f.between("sum") if added else product
        if kind == "Clip":
            yield f.op("Clip", [last, *(f.constant(f"bound{i}", v) for i, v in enumerate(numbers[:2]))])
        else:
            yield f.op(kind or "Identity", [last], **parameters)

    return parts


def pool_of_last(f: Fused) -> Iterator[onnx.NodeProto]:
    """Expand NhwcMaxPool: a pool of channels-last images, between two transposes."""
    first, last = channels_first(2 + len(f.attributes["kernel_shape"]))
    yield f.op("Transpose", [f.at(0)], f.between("first"), perm=first)
    yield f.op("MaxPool", [f.between("first")], f.between("pooled"), **f.attributes)
    yield f.op("Transpose", [f.between("pooled")], perm=last)


def channels_first(rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The permutation from N ... C to N C ..., and its inverse."""
    return (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)


def part(f: Fused, name: str, which: int, axis: int) -> Iterator[onnx.NodeProto]:
    """Nodes that extract query, key or value (`which`: 0, 1, 2) from tensor `name`, which has them along `axis`."""
    whole, out = f.between(f"{name}.three{which}"), f.between(f"{name}.{which}")
    sizes, index, flat = (f.list_of(f"{name}.{what}{which}", *values) for what, values in (
        ("sizes", [*[0] * axis, 3, -1]), ("index", [which]), ("flat", [*[0] * axis, -1])))  # fmt: skip
    yield from f.body(f"""-> _
        whole = Reshape(name, sizes)
        kept = Gather<axis = {axis}>(whole, index)
        out = Reshape(kept, flat)
    """, name=name, whole=whole, kept=f"{out}.kept", out=out, sizes=sizes, index=index, flat=flat)  # fmt: skip


def attended(f: Fused, names: list[str], added: str) -> Iterator[onnx.NodeProto]:
    """softmax(Q K^T * scale + added) V for each head. The default scale is 1 / sqrt(channels of a head).

    Operands `names` are batch x length x channels; the first transpose fails for other ranks.
    """
    own, given = f.attributes, {f"operand{i}": name for i, name in enumerate(names)}
    for which, turned in enumerate(("[0, 2, 1, 3]", "[0, 2, 3, 1]", "[0, 2, 1, 3]")):
        yield from f.body(f"""-> _
            flat{which} = Transpose<perm = [0, 1, 2]>(operand{which})
            split{which} := [0, 0, {own["num_heads"]}, -1]
            parts{which} = Reshape(flat{which}, split{which})
            heads{which} = Transpose<perm = {turned}>(parts{which})
        """, **given)  # fmt: skip
    last = "added" if added else "causal" if own.get("unidirectional", 0) else "scores"
    conditions = {"fixed": own.get("scale", 0), "ahead": own.get("unidirectional", 0), "more": added}
    yield from f.body(f"""-> y
        fixed? scale := {own.get("scale", 0)}
        !fixed? shape = Shape(heads0)
        !fixed? last := [3]
        !fixed? channels = Gather(shape, last)
        !fixed? real = Cast<to = 1>(channels)
        !fixed? root = Sqrt(real)
        !fixed? scale = Reciprocal(root)
        scaled = Mul(heads0, scale)
        scores = MatMul(scaled, heads1)
        ahead? sizes = Shape(scores)
        ahead? low = ConstantOfShape<value = float[1] {{{own.get("mask_filter_value", -10000.0)}}}>(sizes)
        ahead? above := [1]
        ahead? later = Trilu<upper = 1>(low, above)
        ahead? causal = Add(scores, later)
        more? added = Add({"causal" if conditions["ahead"] else "scores"}, more)
        shares = Softmax<axis = -1>({last})
        mixed = MatMul(shares, heads2)
        together = Transpose<perm = [0, 2, 1, 3]>(mixed)
        merged := [0, 0, -1]
        y = Reshape(together, merged)
    """, **{name: str(value) for name, value in conditions.items() if value})  # fmt: skip


def without(f: Fused, missing: Mapping[str, int], needed: Mapping[str, int]) -> None:
    """Raise EdgebuildError for operands in `missing`, further results and rotations, or if operands `needed` lack."""
    unknown = [f"operand {name}" for name, position in missing.items() if f.at(position)]
    unknown += [f"result '{name}'" for name in f.node.output[1:] if name]
    unknown += [name for name in ("do_rotary",) if f.attributes.get(name, 0)]
    for text in unknown[:1]:
        raise f.refuse(text, "supported: without it")
    for name, position in needed.items():
        if not f.at(position):
            raise f.refuse(f"no operand {name}", "supported: query, key and value as operands of their own")


def attention(f: Fused) -> Iterator[onnx.NodeProto]:
    """Expand Attention, whose query, key and value are three parts of one matrix, to three products."""
    without(f, {"mask_index": 3, "past": 4, "past_sequence_length": 6}, {"weights": 1})
    if len(set(f.attributes.get("qkv_hidden_sizes", ()))) > 1:
        raise f.refuse("qkv_hidden_sizes", "supported: equal sizes")
    names = [f.between(f"operand{which}") for which in range(3)]
    for which, name in enumerate(names):
        yield from part(f, f.at(1), which, 1)
        product = f.between(f"product{which}") if f.at(2) else name
        yield f.op("MatMul", [f.at(0), f.between(f"{f.at(1)}.{which}")], product)
        if f.at(2):
            yield from part(f, f.at(2), which, 0)
            yield f.op("Add", [product, f.between(f"{f.at(2)}.{which}")], name)
    yield from attended(f, names, f.at(5))


def heads_of_attention(f: Fused) -> Iterator[onnx.NodeProto]:
    """Expand MultiHeadAttention: operands are batch x length x channels, each plus its third of the bias."""
    unread = {"key_padding_mask": 4, "past_key": 6, "past_value": 7, "past_sequence_length": 8, "cache_indirection": 9}
    without(f, unread, {"key": 1, "value": 2})
    names = [f.at(which) for which in range(3)]
    if f.at(3):
        for which in range(3):
            yield from part(f, f.at(3), which, 0)
            biased = f.between(f"operand{which}")
            yield f.op("Add", [names[which], f.between(f"{f.at(3)}.{which}")], biased)
            names[which] = biased
    yield from attended(f, names, f.at(5))


# Quantised operators are expanded to DequantizeLinear, the float operator and QuantizeLinear, their definition. The
# canonicaliser fuses these to one integer op.

LIKE = "like"  # attribute of a QuantizeLinear that we insert: the tensor whose type the result has
# QOperator: float operator, positions where (value, scale, zero point) of operands begin, position of (scale, zero
# point) of the result, and position of an int32 bias.
QUANTISED: Mapping[str, tuple[str, tuple[int, ...], int, int | None]] = {
    "QLinearConv": ("Conv", (0, 3), 6, 8),
    "QLinearMatMul": ("MatMul", (0, 3), 6, None),
    "QLinearAdd": ("Add", (0, 3), 6, None),
    "QLinearMul": ("Mul", (0, 3), 6, None),
    "QGemm": ("Gemm", (0, 3), 7, 6),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", (0,), 3, None),
    "QLinearAveragePool": ("AveragePool", (0,), 3, None),
    "QLinearSigmoid": ("Sigmoid", (0,), 3, None),
    "QLinearLeakyRelu": ("LeakyRelu", (0,), 3, None),
    "QLinearSoftmax": ("Softmax", (0,), 3, None),
    "QLinearReduceMean": ("ReduceMean", (0,), 3, None),
}
UNREAD = ("channels_last", "opset")  # attributes that the float operators do not have
INTEGER = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}


def real_form(node: onnx.NodeProto, graph: onnx.GraphProto, file: str) -> Iterator[onnx.NodeProto]:
    """The expansion of a node, or the node itself if the importer reads it directly."""
    if node.op_type in ("QuantizeLinear", "DequantizeLinear", DYNAMIC) and node.domain == MICROSOFT:
        node.domain = ""
    own = node.domain in OWN_DOMAINS and onnx.defs.has(node.op_type)
    f = Fused(node, graph, file)
    if own and node.op_type in INTEGER and {*filter(None, f.inputs(2, 4))} <= {t.name for t in graph.initializer}:
        yield from integer_product(f)  # computed zero points cannot be part of a quantised tensor
    elif node.op_type in FUSED and node.domain == MICROSOFT:
        yield from FUSED[node.op_type](f)
    elif node.op_type in QUANTISED and (own or (node.domain == MICROSOFT and node.op_type in TABLE)):
        yield from (_channels_last if f.attributes.get("channels_last", 0) else quantised)(f)
    else:
        yield node


def quantised(f: Fused) -> Iterator[onnx.NodeProto]:
    """Expand a QOperator: dequantised operands, the float operator, and its result quantised."""
    operator, operands, result, bias = QUANTISED[f.node.op_type]
    own, names = {n: v for n, v in f.attributes.items() if n not in UNREAD}, list[str]()
    axes = {"Conv": 0, "MatMul": 1, "Gemm": 0 if own.get("transB") else 1}
    for number, at in enumerate(operands):
        yield f.real(at, f.inputs(at, at + 3), axes.get(operator, 1) if number else 1)
        names.append(f.between(f"real{at}"))
    if bias is not None and f.at(bias):
        yield _bias(f, operator, operands, bias)
        names.append(f.between("bias"))
    if operator == "Gemm" and not f.at(result + 1):  # without a zero point the result of QGemm is float
        yield f.op(operator, names, **own)
        return
    yield f.op(operator, names, f.between("real"), **own)
    like = {} if f.at(result + 1) else {LIKE: f.at(operands[0])}
    yield f.op("QuantizeLinear", [f.between("real"), *filter(None, f.inputs(result, result + 2))], **like)


def _channels_last(f: Fused) -> Iterator[onnx.NodeProto]:
    """Expand a channels-last QOperator to the one on N x C x H x W between two transposes; weights are N C H W."""
    _, operands, _, bias = QUANTISED[f.node.op_type]
    kernel = next((t.dims for t in f.graph.initializer if bias and t.name == f.at(operands[1])), ())
    first, back = channels_first(len(kernel) or 2 + len(f.attributes.get("kernel_shape", (0, 0))))
    inner, y = onnx.NodeProto(), f.node.output[0]
    inner.CopyFrom(f.node)
    inner.input[0], inner.output[0] = f.between("first"), f.between("last")
    yield f.op("Transpose", [f.at(0)], inner.input[0], perm=first)
    yield from quantised(Fused(inner, f.graph, f.file))
    yield f.op("Transpose", [inner.output[0]], y, perm=back)


def _bias(f: Fused, operator: str, operands: Sequence[int], bias: int) -> onnx.NodeProto:
    """A DequantizeLinear of the int32 bias, with the scale of the products, including QGemm's alpha."""
    constants = {t.name: t for t in f.graph.initializer}
    names = [f.at(at + 1) for at in operands]
    if not all(name in constants for name in names):
        raise f.refuse("its scales are computed by the graph")
    if operator == "Conv" and f.at(bias) in constants and len(constants[f.at(bias)].dims) != 1:
        raise f.refuse(f"bias of {len(constants[f.at(bias)].dims)} dimensions")
    scales = [numpy_helper.to_array(constants[name]).astype(np.float32) for name in names]
    product = np.ravel(scales[0] * scales[1] * np.float32(f.attributes.get("alpha", 1.0))).astype(np.float32)
    product = np.asarray(product[0] if product.size == 1 else product)
    inputs = [f.at(bias), f.constant("bias_scale", product), f.constant("bias_zero", np.zeros_like(product, np.int32))]
    return f.op("DequantizeLinear", inputs, f.between("bias"), axis=0)


def quantised_concat(f: Fused) -> Iterator[onnx.NodeProto]:
    """Expand QLinearConcat: inputs are scale and zero point of the result, then three per operand."""
    places = range(2, len(f.node.input), 3)
    yield from (f.real(at, f.inputs(at, at + 3)) for at in places)
    yield f.op("Concat", [f.between(f"real{at}") for at in places], f.between("real"), **f.attributes)
    yield f.op("QuantizeLinear", [f.between("real"), *f.node.input[:2]])


def integer_product(f: Fused) -> Iterator[onnx.NodeProto]:
    """Expand ConvInteger and MatMulInteger as QOperators with scales of 1 and an int32 result."""
    one, zero = f.constant("one", np.float32(1)), f.constant("zero", np.int32(0))
    constants = {t.name: numpy_helper.to_array(t) for t in f.graph.initializer}
    for at in range(2):
        own, axis = f.at(at + 2), 1 if f.node.op_type == "MatMulInteger" else 0
        many = own in constants and constants[own].size > 1
        scale = f.constant(f"ones{at}", np.ones_like(constants[own], np.float32)) if many else one
        yield f.real(at, [f.at(at), scale, own], axis)
    yield f.op(INTEGER[f.node.op_type], [f.between(f"real{i}") for i in range(2)], f.between("real"), **f.attributes)
    yield f.op("QuantizeLinear", [f.between("real"), one, zero])


def real_product(f: Fused) -> Iterator[onnx.NodeProto]:
    """Expand a dynamically quantised product: MatMulInteger, its sums times both scales, and the bias."""
    sizes, text = {t.name: tuple(t.dims) for t in f.graph.initializer}, BODIES[f.node.op_type]
    weights, added = sizes.get(f.at(1), ()), sizes.get(f.at(text.split().index("bias")))
    if weights and added is not None and prod(added) != weights[-1]:
        raise f.refuse(f"bias of shape {added} for {weights[-1]} outputs")
    yield from f.body(text)


FUSED: Mapping[str, Callable[[Fused], Iterator[onnx.NodeProto]]] = {
    **{name: partial(Fused.body, text=text) for name, text in BODIES.items() if name in TABLE},
    **dict.fromkeys(("MatMulIntegerToFloat", "DynamicQuantizeMatMul"), real_product),
    "QLinearConcat": quantised_concat,
    "FusedMatMul": product,
    "NhwcMaxPool": pool_of_last,
    "FusedConv": activated("Conv"),
    "FusedGemm": activated("Gemm"),
    "SkipLayerNormalization": normalised_sum,
    "LayerNormalization": lambda f: iter(
        [helper.make_node("LayerNormalization", f.node.input, f.node.output, f.name, **f.attributes)]
    ),
    "SimplifiedLayerNormalization": root_mean_square,
    "EmbedLayerNormalization": embedded,
    "MatMulNBits": few_bits,
    "Attention": attention,
    "MultiHeadAttention": heads_of_attention,
}
