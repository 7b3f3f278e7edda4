"""Code that all importers share: a graph under construction, and the node of a file as operator readers see it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from ...base.errors import NO_MEMORY, Diagnostic, EdgebuildError, fail, grouped, shortened
from .. import ops
from ..ir import ITEM_BYTES, Arithmetic, Array, Graph, Op, Quant, State, Tensor, after_move, real_values
from ..ops.base import check_limits
from ..ops.pointwise import attributes

COMPUTED = f"types of computed tensors: {', '.join(ITEM_BYTES)}; float16 in constants alone"
UNREAD = "it breaks the format's rules where no check looks, or edgebuild has a fault: please report it with the model"
MAX_BYTES = 1 << 30  # bytes of a tensor; the generated C counts in int32_t


def checked_size(t: Tensor, file: str) -> Tensor:
    """`t`. Raises EdgebuildError if it has more than MAX_BYTES bytes."""
    size = math.prod(t.shape) * ITEM_BYTES.get(t.dtype, 1)
    if size > MAX_BYTES:
        text = f"tensor '{t.name}' of shape {'x'.join(map(str, t.shape))} has {size} bytes"
        raise fail(text, file=file, hints=[f"at most {MAX_BYTES} bytes; is one of its sizes wrong?"])
    return t


class GraphBuilder:
    """Tensors and ops read so far. `graph` is a live view of them for functions on graphs."""

    def __init__(self, file: str, arithmetic: Arithmetic) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.ops: list[Op] = []
        self.computed = 0  # elements of constants that were folded while reading
        self.broken = set[str]()  # results of nodes that cannot be read
        self.unsupported_results: dict[
            str, EdgebuildError
        ] = {}  # results that the reader of their node does not support
        self.states: list[tuple[str, str, Array | None]] = []  # tensor read, tensor written, initial value
        self.graph = Graph(file, (), self.tensors, (), (), arithmetic)

    def read(
        self,
        nodes: Sequence[Node],
        check: Callable[[Node], None],
        reader: Callable[[Node], None],
        ends: Sequence[str] | None = None,
    ) -> None:
        """Read all nodes. Raises one EdgebuildError with the errors of all nodes that fail `check` or `reader`.

        Nodes that only lack operands of failed nodes add no errors. Nothing is raised if all `ends` can be computed,
        because failed nodes may be in a branch that never runs. `ends` None: every failure is raised.
        """
        problems, missing = list[Diagnostic](), False
        for node in nodes:
            try:
                check(node)
                if not self.broken.intersection(node.inputs):
                    node.read_by(reader)
                    self._note_unsupported(node)
                    continue
            except EdgebuildError as error:
                problems += error.diagnostics
            missing = True
            self.broken.update(name for name in node.outputs if name)
        if missing and (ends is None or self.broken.intersection(ends)):
            raise grouped(problems)

    def _note_unsupported(self, node: Node) -> None:
        for number, name in enumerate(node.outputs, 1):
            if name and name not in self.tensors:
                hint = "end the model at other results with --outputs"
                self.unsupported_results[name] = node.error(f"result {number}, '{name}', is not supported", hint)

    def compute(self, first: int) -> None:
        """Fold the ops from number `first` on, whose operands are constants: later nodes may need the values."""
        for op in self.ops[first:]:
            operands, y = self.graph.operands(op), self.graph.result(op)
            value = ops.SPECS[op.kind].reference(op, self.graph, *(np.asarray(t.data) for t in operands))
            self.tensors[y.name] = replace(y, data=np.ascontiguousarray(value, y.dtype).reshape(y.shape))
            self.computed += y.elements
        del self.ops[first:]

    def finish(self, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        """The graph. An output that is an input, a constant or another output is copied. Raises EdgebuildError."""
        own: list[str] = []
        if not outputs:
            hint = "export it with its results as outputs, or name tensors of it with --outputs"
            raise fail("the model has no outputs", file=self.graph.file, hints=[hint])
        self._each_is_written_once()
        for at, name in enumerate(inputs):
            if name in inputs[:at]:
                raise fail(f"input '{name}' stands twice in the list of inputs", file=self.graph.file)
            t = self.tensors.get(name)
            if t is not None and t.constant:
                raise fail(f"input '{name}' is a constant", file=self.graph.file)
            if t is not None and t.dtype not in ITEM_BYTES:
                raise fail(f"input '{name}' is {t.dtype}", file=self.graph.file, hints=[COMPUTED])
        inputs = [*inputs, *(read for read, _, _ in self.states)]
        for name in (*outputs, *(written for _, written, _ in self.states)):
            if name in self.unsupported_results:
                raise self.unsupported_results[name]
            if name not in self.tensors:
                raise fail(f"output '{name}' is never computed", file=self.graph.file)
            t = self.tensors[name]
            if not t.elements:
                raise fail(f"output '{name}' has the empty shape {'x'.join(map(str, t.shape))}", file=self.graph.file)
            if name in inputs or name in own or t.constant:
                copies = (f"{name}@output{number or ''}" for number in count(own.count(name)))
                y = replace(t, name=next(n for n in copies if n not in self.tensors), data=None)
                self.tensors[y.name] = y
                self.ops.append(Op("copy", name, (name,), (y.name,), {}, "output"))
                name = y.name
            own.append(name)
        self._refuse_nan()
        graph = Graph(
            self.graph.file, tuple(self.ops), dict(self.tensors), tuple(inputs), tuple(own), self.graph.arithmetic
        )
        first = len(inputs) - len(self.states), len(own) - len(self.states)
        starts = enumerate(start for _, _, start in self.states)
        graph = replace(graph, states=tuple(State(first[0] + i, first[1] + i, start) for i, start in starts))
        return graph.with_ops(graph.ops)

    def _refuse_nan(self) -> None:
        """Raise EdgebuildError if an op computes with a constant that holds NaN; to choose or copy it is right."""
        computing = (op for op in self.ops if op.kind != "copy" and op.attrs.get("function") != "where")
        for name in dict.fromkeys(name for op in computing for name in op.inputs):
            data = self.tensors[name].data
            if data is not None and data.dtype.kind == "f" and np.isnan(data).any():
                hint = "training that diverged leaves such a file: train again, or put a number in their place"
                raise fail(f"constant '{name}' holds values that are not numbers", file=self.graph.file, hints=[hint])

    def _each_is_written_once(self) -> None:
        """Raise EdgebuildError if a tensor of the file has the name of a tensor that this importer inserted."""
        seen = {name for name, t in self.tensors.items() if t.constant}
        for name in (name for op in self.ops for name in op.outputs):
            if name in seen:
                hints = ["edgebuild's own tensors have an '@' in their names: rename this one"]
                raise fail(f"'{name}' is the name of two tensors", file=self.graph.file, hints=hints)
            seen.add(name)


Reader = Callable[[Any], None]  # adds the ops of one node of the file, a Node of its format, to the graph
MAX_TURNS = 256  # iterations of a loop
MAX_OPS = 1 << 15  # in the whole model, so that reading nested loops of a damaged file ends


class Node(ABC):
    """One node of a model file, as operator readers see it. Missing optional operands are ''."""

    damaged: tuple[type[Exception], ...] = ()
    bound = ""  # hint how to make the input '{}' a constant, if the format can

    def __init__(
        self, builder: GraphBuilder, name: str, origin: str, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        self.builder, self.name, self.origin = builder, name, origin
        self.inputs, self.outputs = list(inputs), list(outputs)
        self.opset = 0

    def error(self, text: str, hint: str = "") -> EdgebuildError:
        hints = [hint] if hint else []
        return fail(text, file=self.builder.graph.file, node=self.name, kind=self.origin, hints=hints)

    def read_by(self, reader: Callable[[Any], None]) -> None:
        """Read the node. Exceptions become an EdgebuildError that names it, except `damaged` ones of a broken file."""
        try:
            reader(self)
        except EdgebuildError:
            raise
        except Exception as problem:
            if isinstance(problem, self.damaged):
                raise
            if isinstance(problem, MemoryError):
                raise self.error(NO_MEMORY, "is one of its sizes wrong?") from None
            words = shortened(" ".join(str(problem).split()))
            raise self.error(
                f"cannot be read: {type(problem).__name__}{': ' if words else ''}{words}", UNREAD
            ) from None

    def tensor(self, position: int) -> Tensor:
        if position >= len(self.inputs) or self.inputs[position] not in self.builder.tensors:
            raise self.error(f"operand {position} is missing")
        return self.builder.tensors[self.inputs[position]]

    def constant(self, position: int, what: str) -> Tensor:
        t = self.tensor(position)
        if t.data is None:
            computed = any(t.name in op.outputs for op in self.builder.ops)
            source = "computed by the graph" if computed else "an input of the model"
            remedy = self.bound.format(t.name) if not computed else ""
            raise self.error(f"{what} '{t.name}' is {source}", f"{what} must be a constant{remedy}")
        return t

    def has(self, position: int) -> bool:
        """Whether the node has an operand at this position."""
        return position < len(self.inputs) and bool(self.inputs[position])

    def given(self, position: int, what: str) -> Array | None:
        """The stored values of a constant operand; None if it is left out."""
        return self.constant(position, what).array if self.has(position) else None

    def numbers(self, position: int, what: str, default: Sequence[int] | None = None) -> list[int]:
        """Values of a constant operand as integers, or `default` if it is left out."""
        if default is not None and not self.has(position):
            return list(default)
        return [int(n) for n in np.ravel(self.constant(position, what).array)]

    def emit(self, kind: str, inputs: Sequence[str], *, output: int = 0, **attrs: Any) -> None:
        """Add the op that computes this node's output number `output`; its shape must be the file's."""
        shape = self._shape(kind, inputs, attrs)
        self._add(kind, inputs, self.result(self.outputs[output], shape, kind, inputs, attrs), attrs)

    def add(self, kind: str, inputs: Sequence[str], result: Tensor, attrs: dict[str, Any]) -> None:
        """Add an op whose result is the new tensor `result`, which later ops of the node read."""
        self._shape(kind, inputs, attrs)
        self._add(kind, inputs, result, attrs)

    def inner(self, kind: str, inputs: Sequence[str], quant: Quant | None = None, **attrs: Any) -> str:
        """Add an intermediate op and return its result's name. The result has the type of the first operand."""
        first = self.builder.tensors[inputs[0]]
        shape = self._shape(kind, inputs, attrs)
        result = Tensor(self.fresh(kind), shape, attrs.get("to", first.dtype), quant or first.quant)
        self._add(kind, inputs, result, attrs)
        return result.name

    def apply(self, function: str, *operands: str, to: str = "") -> str:
        """Add an intermediate elementwise function and return its result's name. `to`: type of the result."""
        return self.inner("pointwise", operands, **attributes(function, to))

    def emit_function(self, function: str, *operands: str, output: int = 0, to: str = "", **parameters: Any) -> None:
        """Emit the node's output as an elementwise function, by default of all its operands."""
        self.emit("pointwise", operands or self.inputs, output=output, **attributes(function, to, **parameters))

    def check_size(self, shape: Sequence[int], dtype: str) -> None:
        """Raise EdgebuildError if the node's result exceeds MAX_BYTES, before tables of its elements are built."""
        checked_size(Tensor(self.outputs[0], tuple(shape), dtype), self.builder.graph.file)

    def array(self, data: Any, like: Tensor | None = None) -> str:
        """Add a constant, with the type and quantisation of `like` if given, and return its name."""
        data = np.asarray(data, like.dtype if like is not None else None, order="C")
        return self.store(self.fresh("constant"), data, like.quant if like is not None else None)

    def store(self, name: str, data: Array, quant: Quant | None = None) -> str:
        """Add a constant of this name, and return the name."""
        self.builder.tensors[name] = Tensor(name, data.shape, str(data.dtype), quant, data)
        return name

    def chained(self, inputs: Sequence[str], kind: str, last: bool, **attrs: Any) -> str:
        """Combine the inputs pairwise from the left, and return the result. `last`: it is the node's output."""
        total = inputs[0]
        for position, name in enumerate(inputs[1:], start=2):
            if position == len(inputs) and last:
                self.emit(kind, [total, name], **attrs)
                return self.outputs[0]
            total = self.inner(kind, [total, name], **attrs)
        if last:
            self.emit("reshape", [total], shape=self.builder.tensors[total].shape)
        return total

    def fresh(self, tag: str) -> str:
        """A name that no tensor has yet."""
        number, stem = 0, self.outputs[0] if self.outputs else self.name
        while (name := f"{stem}@{tag}{number or ''}") in self.builder.tensors:
            number += 1
        return name

    def emit_as(self, kind: str, inputs: Sequence[str], shape: tuple[int, ...], **attrs: Any) -> None:
        """Like `emit`, for an op whose result needs a reshape to `shape`, the shape of the node's output."""
        own = self._shape(kind, inputs, attrs)
        if own == shape:
            return self.emit(kind, inputs, **attrs)
        final = self.result(self.outputs[0], shape, kind, inputs, attrs)
        before = after_move(final, "reshape", own)
        inner = Tensor(f"{self.outputs[0]}@{kind}", own, final.dtype, final.quant, origin=before)
        self._add(kind, inputs, inner, attrs)
        self._add("reshape", [inner.name], final, {"shape": shape})

    def reshaped(self, name: str, shape: tuple[int, ...]) -> str:
        """Name of a view of tensor `name` with another shape."""
        x = self._whole(name)
        if x.shape == shape:
            return name
        origin = after_move(x, "reshape", shape)
        view = Tensor(self.fresh("view"), shape, x.dtype, x.quant, origin=origin)
        if x.data is not None:
            self.builder.tensors[view.name] = replace(view, data=x.data.reshape(shape))
            return view.name
        self._add("reshape", [name], view, {"shape": shape})
        return view.name

    def _whole(self, name: str) -> Tensor:
        """The tensor; a constant with per-channel scales is dequantised, because its axes are about to change."""
        x = self.builder.tensors[name]
        if x.data is None or x.quant is None or x.quant.per_tensor:
            return x
        return replace(x, dtype="float32", quant=None, data=real_values(x))

    def scaled_along(self, t: Tensor, axis: int) -> Tensor:
        """Weights as their kernels read them: real numbers if constants have scales along another axis than `axis`."""
        if t.data is None or t.quant is None or t.quant.axis in (None, axis) or t.quant.per_tensor:
            return t
        return self.builder.tensors[self.store(f"{t.name}@real", real_values(t))]

    def turned(self, name: str, perm: tuple[int, ...]) -> str:
        """Name of a transpose of tensor `name`."""
        x = self._whole(name)
        view = Tensor(self.fresh("turned"), tuple(x.shape[p] for p in perm), x.dtype, x.quant)
        if x.data is not None:
            self.builder.tensors[view.name] = replace(view, data=np.asarray(x.data.transpose(perm), order="C"))
        else:
            self._add("transpose", [name], view, {"perm": perm})
        return view.name

    @abstractmethod
    def result(
        self, name: str, shape: tuple[int, ...], kind: str, inputs: Sequence[str], attrs: dict[str, Any]
    ) -> Tensor:
        """The tensor `name` that an op of this kind writes, with the type and quantisation that the format defines."""

    def _shape(self, kind: str, inputs: Sequence[str], attrs: dict[str, Any]) -> tuple[int, ...]:
        op = Op(kind, self.name, tuple(n for n in inputs if n), (), attrs, self.origin)
        try:
            return ops.result_shape(op, self.builder.graph)
        except (ArithmeticError, IndexError, KeyError, ValueError):
            shapes = ", ".join(str(self.builder.tensors[n].shape) for n in op.inputs if n in self.builder.tensors)
            raise self.error(f"operands of shapes {shapes} do not fit together") from None

    def _add(self, kind: str, inputs: Sequence[str], result: Tensor, attrs: dict[str, Any]) -> None:
        op = Op(kind, self.name, tuple(n for n in inputs if n), (result.name,), attrs, self.origin)
        first = self.builder.tensors[inputs[0]] if inputs else result
        real = first.constant and first.quant is not None  # a quantised constant, as DequantizeLinear leaves it
        if ops.SPECS[kind].exact and first.dtype != result.dtype and not real:
            raise self.error(f"'{first.name}' is {first.dtype} and '{result.name}' {result.dtype}")
        if result.dtype not in ITEM_BYTES:
            raise self.error(f"result '{result.name}' is {result.dtype}", COMPUTED)
        if not result.elements:
            raise self.error(f"result of shape {result.shape}", "empty tensors are not supported")
        self.builder.tensors[result.name] = checked_size(result, self.builder.graph.file)
        self.builder.ops.append(op)
        problem = check_limits(ops.SPECS[kind], op, self.builder.graph)
        if problem:
            raise problem


def needed(nodes: Sequence[tuple[Sequence[str], Sequence[str]]], outputs: Sequence[str]) -> list[bool]:
    """For each node, a pair of names it reads and writes, whether an output needs it. Nodes are in a valid order."""
    wanted, used = set(outputs), list[bool]()
    for reads, writes in reversed(nodes):
        used.append(not wanted.isdisjoint(writes))
        if used[-1]:
            wanted.update(reads)
    return used[::-1]
