"""LSTM, GRU and RNN nodes as the nodes that they are by definition, step by step: MatMul, Add, Slice, Sigmoid, Tanh.

The formulas and the order of the gates are those of the ONNX operators' documentation: iofc, zrh. A step's nodes are
shared by no other, so a network that is called step by step has the cell once, and one that is called with a sequence
has it as often as the sequence is long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...base.errors import EdgebuildError, fail
from ..ir import Array

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
PLAIN = ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus")  # activations without parameters
LONGEST = 256  # steps


@dataclass
class Cell:
    """One direction of a node: constants by role, and the nodes made so far."""

    node: onnx.NodeProto
    graph: onnx.GraphProto
    file: str
    shape: tuple[int, ...]  # of X: steps, batch, features
    prefix: str
    attributes: Mapping[str, Any]
    made: list[onnx.NodeProto] = field(default_factory=list)

    def error(self, text: str, hint: str) -> EdgebuildError:
        name = self.node.name or self.node.output[0]
        return fail(text, file=self.file, node=name, kind=self.node.op_type, hints=[hint])

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{self.prefix}{len(self.made)}"
        self.made.append(
            helper.make_node(kind, list(inputs), [name], self.node.name or self.node.output[0], **attributes)
        )
        return name

    def constant(self, data: Array) -> str:
        name = f"{self.prefix}c{len(self.graph.initializer)}"
        self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(data), name))
        return name

    def parts(self, x: str, size: int, count: int) -> list[str]:
        """Equal parts of the last dimension."""
        axes = self.constant(np.array([1], np.int64))
        cuts = [self.constant(np.array([i * size], np.int64)) for i in range(count + 1)]
        return [self.op("Slice", x, cuts[i], cuts[i + 1], axes) for i in range(count)]

    def known(self, position: int) -> Array | None:
        """A constant operand, None where it is left out."""
        name = self.node.input[position] if position < len(self.node.input) else ""
        if not name:
            return None
        found = next((t for t in self.graph.initializer if t.name == name), None)
        if found is None:
            raise self.error(f"operand {position} is computed by the graph", "weights must be constants")
        return numpy_helper.to_array(found).astype(np.float32)

    def activation(self, name: str, x: str) -> str:
        if name not in PLAIN:
            raise self.error(f"activation {name}", f"supported: {', '.join(PLAIN)}")
        return self.op(name, x)


def _lstm(cell: Cell, hidden: int, functions: Sequence[str]) -> Callable[[str, list[str]], list[str]]:
    f, g, h = functions
    w, r = cell.known(1), cell.known(2)
    assert w is not None and r is not None
    b = cell.known(3)
    bias = np.zeros((len(w), 8 * hidden), np.float32) if b is None else b
    if (peepholes := cell.known(7)) is not None and peepholes.any():
        raise cell.error("peepholes", "LSTM without peepholes is supported")
    d = cell.attributes["at"]
    weights, recurrent = cell.constant(w[d].T), cell.constant(r[d].T)
    start = cell.constant(bias[d][: 4 * hidden] + bias[d][4 * hidden :])

    def step(x: str, state: list[str]) -> list[str]:
        total = cell.op(
            "Add", cell.op("Add", cell.op("MatMul", x, weights), start), cell.op("MatMul", state[0], recurrent)
        )
        i, o, forget, c = cell.parts(total, hidden, 4)
        old = cell.op("Mul", cell.activation(f, forget), state[1])
        new = cell.op("Add", old, cell.op("Mul", cell.activation(f, i), cell.activation(g, c)))
        return [cell.op("Mul", cell.activation(f, o), cell.activation(h, new)), new]

    return step


def _gru(cell: Cell, hidden: int, functions: Sequence[str]) -> Callable[[str, list[str]], list[str]]:
    f, g = functions
    w, r, b = cell.known(1), cell.known(2), cell.known(3)
    assert w is not None and r is not None
    d, n = cell.attributes["at"], 2 * hidden
    bias = np.zeros((len(w), 6 * hidden), np.float32) if b is None else b
    own, back = bias[d][: 3 * hidden], bias[d][3 * hidden :]
    late = bool(cell.attributes.get("linear_before_reset", 0))
    weights, start = (
        cell.constant(w[d].T),
        cell.constant(own + np.where(np.arange(3 * hidden) < n, back, 0.0 if late else back)),
    )
    gates, candidate = cell.constant(r[d][:n].T), cell.constant(r[d][n:].T)
    last, one = cell.constant(back[n:]), cell.constant(np.array(1, np.float32))

    def step(x: str, state: list[str]) -> list[str]:
        z, reset, c = cell.parts(cell.op("Add", cell.op("MatMul", x, weights), start), hidden, 3)
        from_z, from_r = cell.parts(cell.op("MatMul", state[0], gates), hidden, 2)
        z, reset = (cell.activation(f, cell.op("Add", a, b)) for a, b in ((z, from_z), (reset, from_r)))
        if late:
            past = cell.op("Mul", reset, cell.op("Add", cell.op("MatMul", state[0], candidate), last))
        else:
            past = cell.op("MatMul", cell.op("Mul", reset, state[0]), candidate)
        new = cell.activation(g, cell.op("Add", c, past))
        return [cell.op("Add", cell.op("Mul", cell.op("Sub", one, z), new), cell.op("Mul", z, state[0]))]

    return step


def _rnn(cell: Cell, hidden: int, functions: Sequence[str]) -> Callable[[str, list[str]], list[str]]:
    w, r, b = cell.known(1), cell.known(2), cell.known(3)
    assert w is not None and r is not None
    d = cell.attributes["at"]
    bias = np.zeros((len(w), 2 * hidden), np.float32) if b is None else b
    weights, recurrent, start = (cell.constant(v) for v in (w[d].T, r[d].T, bias[d][:hidden] + bias[d][hidden:]))

    def step(x: str, state: list[str]) -> list[str]:
        own = cell.op("Add", cell.op("MatMul", x, weights), start)
        return [cell.activation(functions[0], cell.op("Add", own, cell.op("MatMul", state[0], recurrent)))]

    return step


STEPS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


def unrolled(
    node: onnx.NodeProto, graph: onnx.GraphProto, file: str, shape: tuple[int, ...] | None
) -> Iterator[onnx.NodeProto]:
    """The nodes of a recurrent node in all its directions. `shape`: that of its first operand, if it is known."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    whole = Cell(node, graph, file, shape or (), f"{node.output[0] or node.output[1]}@", attributes)
    way = attributes.get("direction", b"forward").decode()
    if shape is None or len(shape) != 3:
        raise whole.error("its input has no known shape of three dimensions", "export the model with static shapes")
    if attributes.get("layout", 0) or attributes.get("input_forget", 0) or attributes.get("clip", 0):
        raise whole.error("layout, input_forget or clip", "these attributes must have their defaults")
    if shape[0] > LONGEST:
        raise whole.error(f"{shape[0]} steps", f"at most {LONGEST}; call the network step by step")
    lengths = whole.known(4)
    if lengths is not None and (lengths != shape[0]).any():
        raise whole.error("sequences shorter than the input", "leave out sequence_lens")
    names = [a.decode() for a in attributes.get("activations", [])]
    count = len(DEFAULTS[node.op_type])
    ways = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[way]
    outputs = [
        _direction(whole, at, backwards, names[at * count : (at + 1) * count] or DEFAULTS[node.op_type], len(ways))
        for at, backwards in enumerate(ways)
    ]
    yield from whole.made
    for position, name in enumerate(node.output):
        if name:
            axis = 1 if position == 0 else 0
            yield helper.make_node("Concat", [o[position] for o in outputs], [name], node.name or name, axis=axis)


def _direction(cell: Cell, at: int, backwards: bool, functions: Sequence[str], ways: int) -> list[str]:
    """Y (steps, 1, batch, hidden) and the last states (1, batch, hidden) of one direction."""
    cell.attributes = {**cell.attributes, "at": at}
    w = cell.known(1)
    assert w is not None
    steps, batch, features = cell.shape
    hidden = w.shape[1] // GATES[cell.node.op_type]
    step = STEPS[cell.node.op_type](cell, hidden, functions)
    states = [
        _first(cell, position, at, batch, hidden) for position in ((5, 6) if cell.node.op_type == "LSTM" else (5,))
    ]
    zero, flat = cell.constant(np.array([0], np.int64)), cell.constant(np.array([batch, features], np.int64))
    made: dict[int, str] = {}
    for t in reversed(range(steps)) if backwards else range(steps):
        ends = cell.constant(np.array([t], np.int64)), cell.constant(np.array([t + 1], np.int64))
        x = cell.op("Reshape", cell.op("Slice", cell.node.input[0], *ends, zero), flat)
        states = step(x, states)
        made[t] = states[0]
    wide = cell.constant(np.array([1, 1, batch, hidden], np.int64))
    rows = [cell.op("Reshape", made[t], wide) for t in range(steps)]
    last = cell.constant(np.array([1, batch, hidden], np.int64))
    return [cell.op("Concat", *rows, axis=0), *(cell.op("Reshape", s, last) for s in states)]


def _first(cell: Cell, position: int, at: int, batch: int, hidden: int) -> str:
    """The state before the first step: an operand, or zeros."""
    name = cell.node.input[position] if position < len(cell.node.input) else ""
    if not name:
        return cell.constant(np.zeros((batch, hidden), np.float32))
    ends = cell.constant(np.array([at], np.int64)), cell.constant(np.array([at + 1], np.int64))
    own = cell.op("Slice", name, *ends, cell.constant(np.array([0], np.int64)))
    return cell.op("Reshape", own, cell.constant(np.array([batch, hidden], np.int64)))
