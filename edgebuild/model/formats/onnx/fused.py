"""Nodes that stand for many: recurrent cells, and what onnxruntime's optimiser makes of several standard operators."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

from ....base.dataclass import dataclass
from ....base.errors import EdgebuildError, fail
from ...ir import Array, Tensor, real_values
from .onnx_operators import OnnxNode

# LSTM, GRU and RNN nodes as the nodes that they are by definition, step by step: MatMul, Add, Slice, Sigmoid, Tanh.
#
# DynamicQuantizeLSTM of com.microsoft is an LSTM whose products are DynamicQuantizeLinear and MatMulInteger, as
# onnxruntime computes it: the whole sequence is quantised at once, and each state by itself.
#
# The formulas and the order of the gates are those of the ONNX operators' documentation: iofc, zrh. A step shares its
# nodes with no other. So a network that is called step by step has the cell once. One that is called with a sequence
# has it as often as the sequence is long.

DYNAMIC = "DynamicQuantizeLSTM"
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1, DYNAMIC: 4}
LSTM_FUNCTIONS = ("Sigmoid", "Tanh", "Tanh")
DEFAULTS = {"LSTM": LSTM_FUNCTIONS, "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",), DYNAMIC: LSTM_FUNCTIONS}
TWO_STATES = ("LSTM", DYNAMIC)
BENT = {"HardSigmoid": {"alpha": 0.2, "beta": 0.5}}  # activations with parameters, and their defaults
PLAIN = ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus")  # activations without parameters
LONGEST = 256  # steps
WAYS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}  # whether a direction is backwards


# From the products of a step's input and the states to the new states.
Step = Callable[[str, list[str]], list[str]]


@dataclass
class Cell:
    """One direction of a node: constants by role, and the nodes made so far."""

    node: OnnxNode
    shape: tuple[int, ...]  # of X: steps, batch, features
    prefix: str
    at: int = 0  # which direction
    made: list[onnx.NodeProto] = field(default_factory=list)
    constants: int = 0

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{self.prefix}{len(self.made)}"
        self.made.append(helper.make_node(kind, list(inputs), [name], self.node.name, **attributes))
        return name

    def constant(self, data: Array) -> str:
        name, self.constants = f"{self.prefix}c{self.constants}", self.constants + 1
        self.node.builder.tensors[name] = Tensor(name, data.shape, str(data.dtype), None, np.ascontiguousarray(data))
        return name

    def parts(self, x: str, size: int, count: int) -> list[str]:
        """Equal parts of the last dimension."""
        axes = self.constant(np.array([1], np.int64))
        cuts = [self.constant(np.array([i * size], np.int64)) for i in range(count + 1)]
        return [self.op("Slice", x, cuts[i], cuts[i + 1], axes) for i in range(count)]

    def known(self, position: int) -> Array | None:
        """A constant operand in float32, None where it is left out."""
        found = self.stored(position)
        return None if found is None else found.astype(np.float32)

    def stored(self, position: int) -> Array | None:
        if position >= len(self.node.inputs) or not self.node.inputs[position]:
            return None
        t = self.node.constant(position, "parameter")
        return np.asarray(t.data) if t.quant is None else real_values(t)

    def gate(self, name: str, x: str) -> str:
        """The activation of a sum, which is clipped where the node says so."""
        if clip := self.node.attr("clip", 0):
            x = self.op("Clip", x, *(self.constant(np.array(v, np.float32)) for v in (-clip, clip)))
        return self.activation(name, x)

    def activation(self, name: str, x: str) -> str:
        if name in BENT and not {"activation_alpha", "activation_beta"} & self.node.attributes.keys():
            return self.op(name, x, **BENT[name])
        if name not in PLAIN:
            raise self.node.error(f"activation {name}", f"supported: {', '.join(PLAIN)}, HardSigmoid with its defaults")
        return self.op(name, x)

    def product(self, position: int, way: int) -> Callable[[str], str]:
        """Products with the weights of this operand, in one direction."""
        w = self.stored(position)
        assert w is not None
        if self.node.origin != DYNAMIC:
            weights = self.constant(w[way].astype(np.float32).T)
            return lambda x: self.op("MatMul", x, weights)
        scale, zero = self.stored(6 + 2 * position), self.stored(7 + 2 * position)
        assert scale is not None and zero is not None
        zeros = zero[way] if zero.ndim else zero
        weights, points = self.constant(w[way]), self.constant(zeros.astype(w.dtype))
        factors = self.constant((scale[way] if scale.ndim else scale).astype(np.float32))

        def times(x: str) -> str:
            names = [f"{self.prefix}{len(self.made)}{part}" for part in ("", "scale", "zero")]
            self.made.append(helper.make_node("DynamicQuantizeLinear", [x], names, self.node.name))
            sums = self.op("MatMulInteger", names[0], weights, names[2], points)
            return self.op("Mul", self.op("Cast", sums, to=onnx.TensorProto.FLOAT), self.op("Mul", names[1], factors))

        return times


def _lstm(cell: Cell, hidden: int, functions: Sequence[str]) -> Step:
    f, g, h = functions
    d = cell.at
    b, peepholes = cell.known(3), cell.known(7)
    bias = np.zeros((d + 1, 8 * hidden), np.float32) if b is None else b
    start = cell.constant(bias[d][: 4 * hidden] + bias[d][4 * hidden :])
    holes = [cell.constant(p) for p in peepholes[d].reshape(3, hidden)] if peepholes is not None else []

    def seen(gate: str, memory: str, at: int) -> str:
        """The gate's sum with its peephole; these stand in the order input, output, forget."""
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


def _gru(cell: Cell, hidden: int, functions: Sequence[str]) -> Step:
    f, g = functions
    r, b = cell.known(2), cell.known(3)
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


def _rnn(cell: Cell, hidden: int, functions: Sequence[str]) -> Step:
    d, b = cell.at, cell.known(3)
    bias = np.zeros((d + 1, 2 * hidden), np.float32) if b is None else b
    recurrent, start = cell.product(2, d), cell.constant(bias[d][:hidden] + bias[d][hidden:])

    def step(own: str, state: list[str]) -> list[str]:
        return [cell.gate(functions[0], cell.op("Add", cell.op("Add", own, start), recurrent(state[0])))]

    return step


STEPS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn, DYNAMIC: _lstm}


def unrolled(node: OnnxNode) -> list[onnx.NodeProto]:
    """The nodes of a recurrent node in all its directions."""
    shape, batches_first = node.tensor(0).shape, bool(node.attr("layout", 0))
    if len(shape) != 3:
        raise node.error(f"an input of shape {shape}", "steps, batch and features are three dimensions")
    if node.attr("input_forget", 0):
        raise node.error("input_forget", "this attribute must have its default")
    whole = Cell(node, (shape[1], shape[0], shape[2]) if batches_first else shape, f"{node.outputs[0] or node.name}@")
    if whole.shape[0] > LONGEST:
        raise node.error(f"{whole.shape[0]} steps", f"at most {LONGEST}; call the network step by step")
    names = [a.decode() for a in node.attr("activations", [])]
    count, ways = len(DEFAULTS[node.origin]), WAYS[node.attr("direction", "forward")]
    _check_shapes(whole, len(ways))
    x = whole.op("Transpose", node.inputs[0], perm=[1, 0, 2]) if batches_first else node.inputs[0]
    outputs = [
        _direction(whole, x, at, backwards, names[at * count : (at + 1) * count] or DEFAULTS[node.origin])
        for at, backwards in enumerate(ways)
    ]
    for position, name in enumerate(node.outputs):
        if name:
            parts, axis = [o[position] for o in outputs], 1 if position == 0 else 0
            if batches_first:  # (steps, ways, batch, hidden) and (ways, batch, hidden) become batch first
                joined = whole.op("Concat", *parts, axis=axis)
                turned = [2, 0, 1, 3] if position == 0 else [1, 0, 2]
                whole.made.append(helper.make_node("Transpose", [joined], [name], node.name, perm=turned))
            else:
                whole.made.append(helper.make_node("Concat", parts, [name], node.name, axis=axis))
    return whole.made


def _check_shapes(cell: Cell, ways: int) -> None:
    """Raise EdgebuildError where a parameter has another shape than the operator's documentation gives it."""
    hidden, kind = cell.node.attr("hidden_size", 0), cell.node.origin
    if hidden < 1:
        raise cell.node.error(f"hidden_size {hidden or 'is missing'}", "give the number of elements of a state")
    rows, features = GATES[kind] * hidden, cell.shape[2]
    wanted = {1: (ways, rows, features), 2: (ways, rows, hidden), 3: (ways, 2 * rows), 7: (ways, 3 * hidden)}
    if kind == DYNAMIC:
        wanted |= {1: (ways, features, rows), 2: (ways, hidden, rows)}
    for position, shape in wanted.items():
        found = cell.stored(position)
        if found is not None and found.shape != shape:
            text = f"operand {position} of shape {found.shape} with hidden_size {hidden}"
            raise cell.node.error(text, f"it must have the shape {shape}")


def _direction(cell: Cell, x: str, at: int, backwards: bool, functions: Sequence[str]) -> list[str]:
    """Y (steps, 1, batch, hidden) and the last states (1, batch, hidden) of one direction."""
    cell.at = at
    r, kind = cell.stored(2), cell.node.origin
    assert r is not None
    steps, batch, features = cell.shape
    hidden = r.shape[1] if kind == DYNAMIC else r.shape[2]
    own, step = cell.product(1, at), STEPS[kind](cell, hidden, functions)
    states = [_first(cell, position, at, batch, hidden) for position in ((5, 6) if kind in TWO_STATES else (5,))]
    if kind == DYNAMIC:
        x, features = own(x), GATES[kind] * hidden
    zero, flat = cell.constant(np.array([0], np.int64)), cell.constant(np.array([batch, features], np.int64))
    made: dict[int, str] = {}
    lasts, nothing = _lasting(cell, steps, batch), cell.constant(np.zeros((), np.float32))
    for t in reversed(range(steps)) if backwards else range(steps):
        ends = cell.constant(np.array([t], np.int64)), cell.constant(np.array([t + 1], np.int64))
        part = cell.op("Reshape", cell.op("Slice", x, *ends, zero), flat)
        new = step(part if kind == DYNAMIC else own(part), states)
        if t in lasts:  # a sequence that has ended keeps its state and gives zeros
            new = [cell.op("Where", lasts[t], a, b) for a, b in zip(new, states, strict=True)]
            made[t] = cell.op("Where", lasts[t], new[0], nothing)
        states, made[t] = new, made.get(t, new[0])
    wide = cell.constant(np.array([1, 1, batch, hidden], np.int64))
    rows = [cell.op("Reshape", made[t], wide) for t in range(steps)]
    last = cell.constant(np.array([1, batch, hidden], np.int64))
    return [cell.op("Concat", *rows, axis=0), *(cell.op("Reshape", s, last) for s in states)]


def _lasting(cell: Cell, steps: int, batch: int) -> dict[int, str]:
    """By step, whether the sequences of a batch still last; the steps at which all surely do are left out."""
    name = cell.node.inputs[4] if len(cell.node.inputs) > 4 else ""
    if not name:
        return {}
    known = cell.node.tensor(4).data
    column = cell.op("Reshape", name, cell.constant(np.array([batch, 1], np.int64)))
    wanted = [t for t in range(steps) if known is None or (known <= t).any()]
    return {t: cell.op("Greater", column, cell.constant(np.array(t, np.int32))) for t in wanted}


def _first(cell: Cell, position: int, at: int, batch: int, hidden: int) -> str:
    """The state before the first step: an operand, or zeros."""
    name = cell.node.inputs[position] if position < len(cell.node.inputs) else ""
    if not name:
        return cell.constant(np.zeros((batch, hidden), np.float32))
    axis = cell.constant(np.array([1 if cell.node.attr("layout", 0) else 0], np.int64))
    ends = cell.constant(np.array([at], np.int64)), cell.constant(np.array([at + 1], np.int64))
    own = cell.op("Slice", name, *ends, axis)
    return cell.op("Reshape", own, cell.constant(np.array([batch, hidden], np.int64)))


CELLS: Mapping[str, Callable[[OnnxNode], list[onnx.NodeProto]]] = dict.fromkeys(GATES, unrolled)


# Operators of com.microsoft that onnxruntime's optimiser makes of several standard ones, as these again.

# Activations of fused products, and their attributes in the order in which the node tells their numbers.
ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Clip": (),
    "Elu": ("alpha",), "Selu": ("alpha", "gamma"), "Softplus": (), "Softsign": (), "ThresholdedRelu": ("alpha",),
}  # fmt: skip
OWN = ("activation", "activation_params", "activation_alpha", "activation_beta", "activation_gamma")


class Fused:
    """A node that is read as several: `file` for errors, `graph` for constants."""

    def __init__(self, node: onnx.NodeProto, graph: onnx.GraphProto, file: str) -> None:
        self.node, self.graph, self.file = node, graph, file
        self.name = node.name or node.output[0]
        self.attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}

    def at(self, position: int) -> str:
        return self.node.input[position] if position < len(self.node.input) else ""

    def between(self, what: str) -> str:
        return f"{self.node.output[0]}@{what}"

    def made(self, operator: str, inputs: list[str], output: str = "", **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(operator, inputs, [output or self.node.output[0]], self.name, **attributes)

    def constant(self, what: str, value: Any) -> str:
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(value, np.float32), self.between(what)))
        return self.between(what)

    def list_of(self, what: str, *values: int) -> str:
        self.graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), self.between(what)))
        return self.between(what)

    def refuse(self, text: str, hint: str) -> EdgebuildError:
        return fail(text, file=self.file, node=self.name, kind=self.node.op_type, hints=[hint])

    def body(self, text: str, **names: str) -> Iterator[onnx.NodeProto]:
        """The nodes of a function body in ONNX's text, as onnx.parser reads it, with the node's operands and results.

        The first line names these, `x bias -> y`; all other names are the node's own, but for `names`. A line behind
        `bias?` counts if there is such an operand, one behind `!bias?` if there is not. `{alpha:1.702}` is an attribute
        with its default, and `name := number or list` a constant.
        """
        first, *lines = (line.strip() for line in text.strip().splitlines())
        operands, _, results = (part.split() for part in first.partition("->"))
        given = dict(zip(operands, self.node.input, strict=False)) | dict(zip(results, self.node.output, strict=False))
        known = {name: value for name, value in given.items() if value} | names
        for line in filter(None, lines):
            condition, _, rest = line.rpartition("? ")
            if condition and (condition.lstrip("!") in known) == condition.startswith("!"):
                continue
            rest = ATTRIBUTE.sub(lambda m: str(self.attributes.get(m[1], m[2])), rest)
            name, is_constant, value = rest.partition(" := ")
            if is_constant:
                number = literal_eval(value)
                known[name] = self.list_of(name, *number) if isinstance(number, list) else self.constant(name, number)
                continue
            try:
                node = onnx.parser.parse_node(rest)
            except onnx.parser.ParseError:  # of what an attribute makes of the line, such as nan
                raise self.refuse(f"an attribute in '{rest}'", "attributes are finite numbers") from None
            for ports in (node.input, node.output):
                ports[:] = [known.get(port, self.between(port)) if port else "" for port in ports]
            node.name = self.name
            yield node


ATTRIBUTE = re.compile(r"\{(\w+):([^}]*)\}")
BIASED = """
    bias? biased = Add(x, bias)
    !bias? biased = Identity(x)
"""
BY_ROOT = """
    square = Mul(x, x)
    mean = ReduceMean<axes = [-1], keepdims = 1>(square)
    more = Add(mean, epsilon)
    root = Sqrt(more)
    rate = Reciprocal(root)
    unit = Mul(x, rate)
    y = Mul(unit, scale)
"""
# Operators that one body states.
BODIES = {
    "Gelu": "x bias -> y" + BIASED + "y = Gelu<approximate = \"none\">(biased)",
    "FastGelu": "x bias -> y" + BIASED + "y = Gelu<approximate = \"tanh\">(biased)",
    "QuickGelu": """x -> y
        alpha := {alpha:1.702}
        scaled = Mul(x, alpha)
        gate = Sigmoid(scaled)
        y = Mul(x, gate)
    """,
    "QLinearWhere": """c a a_scale a_zero b b_scale b_zero scale zero -> y
        one = DequantizeLinear(a, a_scale, a_zero)
        other = DequantizeLinear(b, b_scale, b_zero)
        chosen = Where(c, one, other)
        y = QuantizeLinear(chosen, scale, zero)
    """,
    "SkipSimplifiedLayerNormalization": """a skip scale bias -> y _ _ x
        bias? skipped = Add(a, skip)
        bias? x = Add(skipped, bias)
        !bias? x = Add(a, skip)
        epsilon := {epsilon:1e-12}
    """ + BY_ROOT,
}  # fmt: skip
BODIES["BiasGelu"] = BODIES["Gelu"]


def product(f: Fused) -> Iterator[onnx.NodeProto]:
    """MatMul with its last two dimensions turned, times alpha."""
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
    """SkipLayerNormalization: x + skip + bias, and that normalised; the sum is the fourth result."""
    yield from f.body("""a skip scale offset bias -> y mean rate sum
        bias? skipped = Add(a, skip)
        bias? sum = Add(skipped, bias)
        !bias? sum = Add(a, skip)
    """)
    outputs = [*f.node.output, "", "", ""][:4]
    operands = [name for name in (outputs[3] or f.between("sum"), f.at(2), f.at(3)) if name]
    kept = outputs[:3] if any(outputs[1:3]) else outputs[:1]
    epsilon = f.attributes.get("epsilon", 1e-12)
    yield helper.make_node("LayerNormalization", operands, kept, f.name, axis=-1, epsilon=epsilon)


def root_mean_square(f: Fused) -> Iterator[onnx.NodeProto]:
    """SimplifiedLayerNormalization: x over the root of its mean square; that root's reciprocal is the second result."""
    if f.attributes.get("axis", -1) != -1:
        raise f.refuse(f"axis {f.attributes['axis']}", "supported: -1")
    yield from f.body("x scale -> y rate\nepsilon := {epsilon:1e-5}" + BY_ROOT)


def embedded(f: Fused) -> Iterator[onnx.NodeProto]:
    """EmbedLayerNormalization: rows for words, places and kinds, their sum, and that normalised."""
    if f.at(7) or any(f.node.output[1:2]) or f.attributes.get("mask_index_type", 0):
        raise f.refuse("a mask, or its index as a result", "supported: without them")
    yield from f.body("""ids segment table where_table kind_table scale offset mask position -> y _ sum
        words = Gather<axis = 0>(table, ids)
        position? places = Gather<axis = 0>(where_table, position)
        !position? count = Shape<start = 1>(ids)
        !position? from := [0]
        !position? axis := [0]
        !position? places = Slice(where_table, from, count, axis)
        segment? placed = Add(words, places)
        segment? kinds = Gather<axis = 0>(kind_table, segment)
        segment? sum = Add(placed, kinds)
        !segment? sum = Add(words, places)
        y = LayerNormalization<axis = -1, epsilon = {epsilon:1e-12}>(sum, scale, offset)
    """)


def few_bits(f: Fused) -> Iterator[onnx.NodeProto]:
    """MatMulNBits: weights of 4 or 8 bits with a scale for each block of a row, as real numbers."""
    bits, block, k, n = (f.attributes.get(name, 0) for name in ("bits", "block_size", "K", "N"))
    known = {t.name: numpy_helper.to_array(t) for t in f.graph.initializer}
    stored = [known.get(f.at(i)) for i in (1, 2, 3)]
    computed = any(f.at(i) and f.at(i) not in known for i in (1, 2, 3)) or f.attributes.get("weight_prepacked", 0)
    if bits not in (4, 8) or f.at(4) or computed or (stored[2] is not None and stored[2].dtype != np.uint8):
        text = "weights that are computed, packed, sorted by an index, or of other than 4 or 8 bits"
        raise f.refuse(text, "supported: constant, 4 or 8 bits")
    blocks, (packed, scales, zeros) = -(-k // block), stored

    def unpacked(data: Any, count: int) -> Any:
        """Numbers of each row of bytes, the lower half of a byte first."""
        rows = np.asarray(data, np.uint8).reshape(n, -1)
        both = rows if bits == 8 else np.stack([rows & 15, rows >> 4], axis=-1).reshape(n, -1)
        return both[:, :count].astype(np.float32)

    middle = np.float32(1 << (bits - 1)) if zeros is None else unpacked(zeros, blocks)[..., None]
    steps = unpacked(packed, blocks * block).reshape(n, blocks, block) - middle
    weights = (steps * np.asarray(scales, np.float32).reshape(n, blocks, 1)).reshape(n, -1)[:, :k]
    product = f.between("product") if f.at(5) else f.node.output[0]
    yield f.made("MatMul", [f.at(0), f.constant("weights", np.ascontiguousarray(weights.T))], product)
    if f.at(5):
        yield f.made("Add", [product, f.at(5)])


def activated(operator: str) -> Callable[[Fused], Iterator[onnx.NodeProto]]:
    """FusedConv and FusedGemm: the product, for a convolution plus a fourth operand, and an activation."""

    def parts(f: Fused) -> Iterator[onnx.NodeProto]:
        own = f.attributes
        kind = own.get("activation", b"").decode()
        if kind and kind not in ACTIVATIONS:
            raise f.refuse(f"activation {kind}", f"supported: {', '.join(ACTIVATIONS)}")
        numbers, names = list(own.get("activation_params", [])), ACTIVATIONS.get(kind, ())
        told = dict(zip(names, numbers, strict=False))
        told |= {name: own[f"activation_{name}"] for name in names if f"activation_{name}" in own}
        product, added = f.between("product"), f.at(3)
        inputs = [*f.node.input][:3] if f.at(2) else [*f.node.input][:2]
        yield f.made(operator, inputs, product, **{n: v for n, v in own.items() if n not in OWN})
        if added:
            yield f.made("Add", [product, added], f.between("sum"))
        last = f.between("sum") if added else product
        if kind == "Clip":
            yield f.made("Clip", [last, *(f.constant(f"bound{i}", v) for i, v in enumerate(numbers[:2]))])
        else:
            yield f.made(kind or "Identity", [last], **told)

    return parts


def pool_of_last(f: Fused) -> Iterator[onnx.NodeProto]:
    """NhwcMaxPool: of images whose channels stand last."""
    first, last = channels_first(2 + len(f.attributes["kernel_shape"]))
    yield f.made("Transpose", [f.at(0)], f.between("first"), perm=first)
    yield f.made("MaxPool", [f.between("first")], f.between("pooled"), **f.attributes)
    yield f.made("Transpose", [f.between("pooled")], perm=last)


def channels_first(rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The order of N ... C as N C ..., and the one back."""
    return (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)


def part(f: Fused, name: str, which: int, axis: int) -> Iterator[onnx.NodeProto]:
    """Query, key or value of three that lie side by side along `axis`, the last one; as tensor `part` of its name."""
    whole, out = f.between(f"{name}.three{which}"), f.between(f"{name}.{which}")
    sizes, index, flat = (f.list_of(f"{name}.{what}{which}", *values) for what, values in (
        ("sizes", [*[0] * axis, 3, -1]), ("index", [which]), ("flat", [*[0] * axis, -1])))  # fmt: skip
    yield from f.body(f"""-> _
        whole = Reshape(name, sizes)
        kept = Gather<axis = {axis}>(whole, index)
        out = Reshape(kept, flat)
    """, name=name, whole=whole, kept=f"{out}.kept", out=out, sizes=sizes, index=index, flat=flat)  # fmt: skip


def attended(f: Fused, names: list[str], added: str) -> Iterator[onnx.NodeProto]:
    """softmax(Q K^T * scale + added) V for each head. Scale: one over the root of a head's channels.

    Operands are batch x length x channels; of another rank the first transpose refuses them.
    """
    own, given = f.attributes, {f"operand{i}": name for i, name in enumerate(names)}
    for which, turned in enumerate(("[0, 2, 1, 3]", "[0, 2, 3, 1]", "[0, 2, 1, 3]")):
        yield from f.body(f"""-> _
            flat{which} = Transpose<perm = [0, 1, 2]>(operand{which})
            split{which} := [0, 0, {own["num_heads"]}, -1]
            apart{which} = Reshape(flat{which}, split{which})
            heads{which} = Transpose<perm = {turned}>(apart{which})
        """, **given)  # fmt: skip
    last = "added" if added else "causal" if own.get("unidirectional", 0) else "scores"
    conditions = {"told": own.get("scale", 0), "ahead": own.get("unidirectional", 0), "more": added}
    yield from f.body(f"""-> y
        told? scale := {own.get("scale", 0)}
        !told? shape = Shape(heads0)
        !told? last := [3]
        !told? channels = Gather(shape, last)
        !told? real = Cast<to = 1>(channels)
        !told? root = Sqrt(real)
        !told? scale = Reciprocal(root)
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
    """Refuse operands, results and rotations that no part knows, and forms that leave others out."""
    unknown = [f"operand {name}" for name, position in missing.items() if f.at(position)]
    unknown += [f"result '{name}'" for name in f.node.output[1:] if name]
    unknown += [name for name in ("do_rotary",) if f.attributes.get(name, 0)]
    for text in unknown[:1]:
        raise f.refuse(text, "supported: without it")
    for name, position in needed.items():
        if not f.at(position):
            raise f.refuse(f"no operand {name}", "supported: query, key and value as operands of their own")


def attention(f: Fused) -> Iterator[onnx.NodeProto]:
    """Query, key and value by one matrix: three products."""
    without(f, {"mask_index": 3, "past": 4, "past_sequence_length": 6}, {"weights": 1})
    if len(set(f.attributes.get("qkv_hidden_sizes", ()))) > 1:
        raise f.refuse("qkv_hidden_sizes", "supported: equal sizes")
    names = [f.between(f"operand{which}") for which in range(3)]
    for which, name in enumerate(names):
        yield from part(f, f.at(1), which, 1)
        product = f.between(f"product{which}") if f.at(2) else name
        yield f.made("MatMul", [f.at(0), f.between(f"{f.at(1)}.{which}")], product)
        if f.at(2):
            yield from part(f, f.at(2), which, 0)
            yield f.made("Add", [product, f.between(f"{f.at(2)}.{which}")], name)
    yield from attended(f, names, f.at(5))


def heads_of_attention(f: Fused) -> Iterator[onnx.NodeProto]:
    """MultiHeadAttention: operands of batch x length x channels, each plus its third of the bias."""
    unread = {"key_padding_mask": 4, "past_key": 6, "past_value": 7, "past_sequence_length": 8, "cache_indirection": 9}
    without(f, unread, {"key": 1, "value": 2})
    names = [f.at(which) for which in range(3)]
    if f.at(3):
        for which in range(3):
            yield from part(f, f.at(3), which, 0)
            biased = f.between(f"operand{which}")
            yield f.made("Add", [names[which], f.between(f"{f.at(3)}.{which}")], biased)
            names[which] = biased
    yield from attended(f, names, f.at(5))


FUSED: Mapping[str, Callable[[Fused], Iterator[onnx.NodeProto]]] = {
    **{name: partial(Fused.body, text=text) for name, text in BODIES.items()},
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
