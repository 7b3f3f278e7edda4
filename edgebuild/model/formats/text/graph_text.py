"""The text form of a graph, which can be written after any stage, edited, and read back as a model.

A line is a call with literals, one per tensor, port and op, in the order of the fields of `ir`:

    edgebuild graph 1
    graph('kws.tflite', 'tflite')
    tensor('x', (1, 49, 10, 1), 'int8', ((0.58,), (83,), None))
    tensor('w', (64, 10, 4, 1), 'int8', ((0.01,), (0,), None), 0)
    input('x')
    op('conv2d', 'conv', ('x', 'w'), 'y', 'CONV_2D', {'stride': (2, 2)})
    output('y')

A second file with the same name and the suffix `.bin` has all constants, little-endian. The last number of a tensor is
the offset of its bytes there. Neither file is trusted: text is never run, and sizes are checked before memory is
allocated.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ....base.errors import EdgebuildError, did_you_mean, fail, visible
from ....base.inputs import MODEL, read_bytes
from ... import ops
from ...ir import ITEM_BYTES, Arithmetic, Array, Graph, Op, Quant, Removed, State, Tensor, verify
from ...ops.base import Form, check_limits
from . import data_file

HEAD = "edgebuild graph 1"  # begins with the package's GRAPH_TEXT
TEXT = 64 << 20  # most bytes of a file
LINE = 4 << 20  # most characters of a line, for tables of scales
LARGEST = 2**31 - 1  # of a dimension
BROKEN = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


# Writing -------------------------------------------------------------------------------------


def written(graph: Graph) -> tuple[str, bytes]:
    """The graph as text, and the bytes of its constants. Equal graphs give equal text and bytes.

    Raises EdgebuildError for one device's part of a distributed network, because links have no text form.
    """
    if graph.link is not None:
        raise fail("a part of a network on several devices has no text form", file=graph.file)
    data, size = list[bytes](), 0

    def kept(array: Array | None) -> list[int]:
        nonlocal size
        if array is None:
            return []
        at, raw = size, np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
        data.append(raw)
        size += len(raw)
        return [at]

    lines = [HEAD, _call("graph", graph.file, graph.arithmetic.value)]
    for t in graph.tensors.values():
        quant = None if t.quant is None else (t.quant.scale, t.quant.zero_point, t.quant.axis)
        lines.append(_call("tensor", t.name, t.shape, t.dtype, quant, *kept(t.data)))
    lines += [_call("input", name) for name in graph.inputs]
    lines += [_call("op", o.kind, o.name, o.inputs, o.outputs[0], o.origin, dict(o.attrs)) for o in graph.ops]
    lines += [_call("output", name) for name in graph.outputs]
    lines += [_call("state", s.read, s.write, *kept(s.start)) for s in graph.states]
    lines += [_call("removed", r.tensor, r.constant, r.channels, r.total, graph.removed_macs) for r in graph.removed]
    return "\n".join([*lines, ""]), b"".join(data)


def _call(what: str, *values: Any) -> str:
    return f"{what}({', '.join(map(_literal, values))})"


def _literal(value: Any) -> str:
    """A Python literal for an attribute's value, also for numpy's numbers and infinities. Raises for NaN."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple | list):
        return (
            f"({''.join(f'{_literal(v)}, ' for v in value)[:-1].removesuffix(',') + (',' if len(value) == 1 else '')})"
        )
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(k)}: {_literal(v)}' for k, v in sorted(value.items()))}}}"
    if isinstance(value, float) and not np.isfinite(value):
        if value != value:
            raise fail("an attribute that is not a number has no text form")
        return "1e999" if value > 0 else "-1e999"
    return ascii(value)


# Reading -------------------------------------------------------------------------------------

FORMS = {
    "graph": "graph(file, arithmetic)",
    "tensor": "tensor(name, shape, type, (scales, zero points, axis) or None, place of its bytes)",
    "input": "input(tensor)",
    "output": "output(tensor)",
    "op": "op(kind, name, operands, result, name of the operator in its file, attributes)",
    "state": "state(number of the input, number of the output, place of its first bytes)",
    "removed": "removed(tensor, constant channels, channels that are not computed, all channels, operations saved)",
}
ONE_OF = f"one of: {', '.join(FORMS)}"


def read_text(path: Path) -> Graph:
    """The graph of a text and its `.bin` file. Raises EdgebuildError that names the wrong line."""
    text = read_bytes(path, "cannot read the graph", TEXT).decode("utf-8", "replace")
    if text.partition("\n")[0].strip() != HEAD:
        raise fail("a graph of another version", file=visible(path.name), line=1, column=1, hints=[f"this one: {HEAD}"])
    reader = _Reader(path)
    for number, line in enumerate(text.split("\n")[1:], 2):
        if line.strip():
            reader.take(line, number)
    return reader.graph()


class _Reader:
    """Parts of a graph from the lines read so far."""

    def __init__(self, path: Path) -> None:
        self.path, self.file, self.number = path, visible(path.name), 0
        self.name, self.arithmetic = "", Arithmetic.TFLITE
        self.tensors = dict[str, Tensor]()
        self.inputs, self.outputs = list[str](), list[str]()
        self.ops, self.places = list[Op](), list[int]()
        self.states, self.removed, self.saved = list[State](), list[Removed](), 0

    @cached_property
    def data(self) -> bytes:
        return read_bytes(data_file(self.path), "cannot read the constants of the graph", MODEL)

    def wrong(self, text: str, *hints: str, number: int | None = None) -> EdgebuildError:
        return fail(text, file=self.file, line=number or self.number, column=1, hints=list(hints))

    def take(self, line: str, number: int) -> None:
        self.number = number
        what, values = self._call(line)
        if what not in FORMS:
            raise self.wrong(f"unknown word '{visible(what)}'{did_you_mean(what, FORMS)}", ONE_OF)
        if not self.name and what != "graph":
            raise self.wrong("the first line is not that of the graph", FORMS["graph"])
        try:
            getattr(self, f"_{what}")(*values)
        except BROKEN as error:
            raise self.wrong(f"{what}: {visible(str(error))}", FORMS[what]) from None

    def _call(self, line: str) -> tuple[str, tuple[Any, ...]]:
        """Parse a line as a word and its literals, without evaluating it."""
        try:
            call = ast.parse(line.strip(), mode="eval").body if len(line) <= LINE else None
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.keywords:
                return call.func.id, tuple(map(ast.literal_eval, call.args))
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
            pass
        raise self.wrong("not a word and literals in parentheses", ONE_OF)

    def _graph(self, name: str, arithmetic: str) -> None:
        _check(bool(name) and isinstance(name, str), "the file's name is a text")
        _check(arithmetic in tuple(Arithmetic), f"the arithmetic is {' or '.join(Arithmetic)}")
        self.name, self.arithmetic = visible(name), Arithmetic(arithmetic)

    def _tensor(self, name: str, shape: tuple[int, ...], dtype: str, quant: Any = None, at: int | None = None) -> None:
        _check(isinstance(name, str) and name not in self.tensors, "a name is a text, and no other tensor has it")
        _check(isinstance(shape, tuple) and all(map(_is_size, shape)), f"sizes are whole numbers from 1 to {LARGEST}")
        _check(isinstance(dtype, str) and dtype in ITEM_BYTES, f"types are {', '.join(ITEM_BYTES)}")
        tensor = Tensor(name, shape, dtype, None if quant is None else _quant(quant, shape))
        self.tensors[name] = tensor if at is None else replace(tensor, data=self._bytes(tensor, at))

    def _bytes(self, t: Tensor, place: int) -> Array:
        _check(isinstance(place, int) and place >= 0, "the place of its bytes is a whole number")
        _check(place + t.bytes <= len(self.data), f"there are {len(self.data)} bytes, and the tensor ends behind them")
        stored = np.frombuffer(self.data, np.dtype(t.dtype).newbyteorder("<"), t.elements, place)
        _check(t.dtype != "bool" or bool((stored.view(np.uint8) <= 1).all()), "truths are 0 or 1")
        return stored.astype(t.dtype).reshape(t.shape)

    def _input(self, name: str) -> None:
        _check(not self.tensors[name].constant and name not in self.inputs, "a constant, or an input twice")
        self.inputs.append(name)

    def _output(self, name: str) -> None:
        self.outputs.append(self.tensors[name].name)

    def _op(
        self, kind: str, name: str, inputs: tuple[str, ...], result: str, origin: str, attributes: dict[str, Any]
    ) -> None:
        if kind not in ops.SPECS:
            raise self.wrong(f"unknown kind '{visible(str(kind))}'{did_you_mean(str(kind), ops.SPECS)}")
        _check(isinstance(name, str) and isinstance(origin, str) and isinstance(inputs, tuple), "names are texts")
        _check(
            isinstance(attributes, dict) and all(isinstance(key, str) for key in attributes), "attributes have names"
        )
        missing = [n for n in (*inputs, result) if n not in self.tensors]
        _check(not missing, f"there is no tensor {', '.join(map(repr, missing))}")
        self.ops.append(Op(kind, visible(name), inputs, (result,), attributes, visible(origin)))
        self.places.append(self.number)

    def _state(self, read: int, write: int, place: int | None = None) -> None:
        _check(read in range(len(self.inputs)) and write in range(len(self.outputs)), "no such input or output")
        t = self.tensors[self.inputs[read]]
        self.states.append(State(read, write, None if place is None else self._bytes(t, place)))

    def _removed(self, tensor: str, constant: int, channels: int, total: int, saved: int) -> None:
        _check(
            all(isinstance(n, int) and n >= 0 for n in (constant, channels, total, saved)), "counts are whole numbers"
        )
        self.removed.append(Removed(str(tensor), constant, channels, total))
        self.saved = saved

    def graph(self) -> Graph:
        """The graph of all lines. Raises EdgebuildError for an op or graph that is not valid."""
        if not self.outputs:
            raise self.wrong("the graph has no output")
        ports = tuple(self.inputs), tuple(self.outputs)
        graph = Graph(self.name, tuple(self.ops), self.tensors, *ports, self.arithmetic)
        graph = replace(graph, removed=tuple(self.removed), removed_macs=self.saved, states=tuple(self.states))
        for op, number in zip(self.ops, self.places, strict=True):
            try:
                _check(ops.result_shape(op, graph) == graph.result(op).shape, "its operands give another shape")
                problem = check_limits(ops.SPECS[op.kind], op, graph)
                _check_attributes(op, graph)
            except BROKEN as error:
                text = f"operands or attributes that '{op.kind}' does not have: {visible(str(error))}"
                raise self.wrong(text, number=number) from None
            if problem is not None:
                raise problem
        try:
            verify(graph, ops.result_shape)
        except BROKEN as error:
            raise self.wrong(visible(str(error))) from None
        return graph


def _check_attributes(op: Op, graph: Graph) -> None:
    """Create the op's kernel, which reads all attributes. Raises one of BROKEN for missing or wrong ones."""
    make = ops.SPECS[op.kind].kernel
    try:
        if make is not None:
            make(op, graph, Form())
    except AssertionError:
        pass  # an op that a later stage changes may have no kernel yet


def _check(holds: bool, text: str) -> None:
    if not holds:
        raise ValueError(text)


def _is_size(number: Any) -> bool:
    return type(number) is int and 1 <= number <= LARGEST


def _quant(values: Any, shape: tuple[int, ...]) -> Quant:
    scales, zeros, axis = values
    count = 1 if axis is None else shape[axis]
    _check(
        isinstance(scales, tuple) and len(scales) == len(zeros) == count, "a scale and a zero point for each channel"
    )
    _check(all(isinstance(s, float) and 0 < s < np.inf for s in scales), "scales are real numbers above 0")
    _check(all(type(z) is int and abs(z) <= LARGEST for z in zeros), "zero points are whole numbers")
    return Quant(scales, tuple(zeros), axis)
