"""LSTM, GRU and RNN nodes as the nodes that they are by definition, step by step: MatMul, Add, Slice, Sigmoid, Tanh.

DynamicQuantizeLSTM of com.microsoft is an LSTM whose products are DynamicQuantizeLinear and MatMulInteger, as
onnxruntime computes it: the whole sequence is quantised at once, and each state by itself.

The formulas and the order of the gates are those of the ONNX operators' documentation: iofc, zrh. A step shares its
nodes with no other. So a network that is called step by step has the cell once. One that is called with a sequence has
it as often as the sequence is long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ....base.dataclass import dataclass
from ...ir import Array, Tensor, real_values
from .onnx_node import OnnxNode

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
