"""What both importers share: a graph under construction, and the view of one node that op modules read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import ops
from ..errors import EdgebuildError, fail
from ..ir import Graph, Op, Quant, Tensor
from ..ops.base import check_limits


class Builder:
    """Tensors and ops so far. `graph` is a live view of them for the op modules' functions."""

    def __init__(self, file: str, arithmetic: str) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.ops: list[Op] = []
        self.graph = Graph(file, (), self.tensors, (), (), arithmetic)

    def finish(self, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        for name in outputs:
            if name not in self.tensors:
                raise fail(f"output '{name}' is never computed", file=self.graph.file)
        graph = Graph(
            self.graph.file, tuple(self.ops), dict(self.tensors), tuple(inputs), tuple(outputs), self.graph.arithmetic
        )
        return graph.with_ops(graph.ops)


class Node:
    """One node of a model file, as op modules see it. Missing optional operands are ''."""

    def __init__(self, builder: Builder, name: str, origin: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.builder, self.name, self.origin = builder, name, origin
        self.inputs, self.outputs = list(inputs), list(outputs)
        self.opset = 0

    def error(self, text: str, hint: str = "") -> EdgebuildError:
        hints = [hint] if hint else []
        return fail(text, file=self.builder.graph.file, node=self.name, kind=self.origin, hints=hints)

    def tensor(self, position: int) -> Tensor:
        if position >= len(self.inputs) or self.inputs[position] not in self.builder.tensors:
            raise self.error(f"operand {position} is missing")
        return self.builder.tensors[self.inputs[position]]

    def constant(self, position: int, what: str) -> Tensor:
        t = self.tensor(position)
        if t.data is None:
            raise self.error(f"{what} '{t.name}' is computed by the graph", f"{what} must be a constant")
        return t

    def emit(self, kind: str, inputs: Sequence[str], **attrs: Any) -> None:
        """Add the op that computes this node's output; its shape must be the file's."""
        shape = self._shape(kind, inputs, attrs)
        self._add(kind, inputs, self.result(self.outputs[0], shape, kind, inputs, attrs), attrs)

    def emit_as(self, kind: str, inputs: Sequence[str], shape: tuple[int, ...], **attrs: Any) -> None:
        """Like emit, for an op whose own result has the node's elements under another shape."""
        own = self._shape(kind, inputs, attrs)
        if own == shape:
            return self.emit(kind, inputs, **attrs)
        final = self.result(self.outputs[0], shape, kind, inputs, attrs)
        inner = Tensor(f"{self.outputs[0]}@{kind}", own, final.dtype, final.quant)
        self._add(kind, inputs, inner, attrs)
        self._add("reshape", [inner.name], final, {"shape": shape})

    def reshaped(self, name: str, shape: tuple[int, ...]) -> str:
        """A view of tensor `name` under another shape."""
        x = self.builder.tensors[name]
        if x.shape == shape:
            return name
        view = Tensor(f"{self.outputs[0]}@rows", shape, x.dtype, x.quant)
        self._add("reshape", [name], view, {"shape": shape})
        return view.name

    def result(
        self, name: str, shape: tuple[int, ...], kind: str, inputs: Sequence[str], attrs: dict[str, Any]
    ) -> Tensor:
        """The tensor `name` that an op of this kind writes; the importers know its type."""
        raise NotImplementedError

    def _shape(self, kind: str, inputs: Sequence[str], attrs: dict[str, Any]) -> tuple[int, ...]:
        op = Op(kind, self.name, tuple(n for n in inputs if n), (), attrs, self.origin)
        try:
            return ops.result_shape(op, self.builder.graph)
        except (ArithmeticError, IndexError, KeyError, ValueError):
            shapes = ", ".join(str(self.builder.tensors[n].shape) for n in op.inputs if n in self.builder.tensors)
            raise self.error(f"operands of shapes {shapes} do not fit together") from None

    def _add(self, kind: str, inputs: Sequence[str], result: Tensor, attrs: dict[str, Any]) -> None:
        op = Op(kind, self.name, tuple(n for n in inputs if n), (result.name,), attrs, self.origin)
        self.builder.tensors[result.name] = result
        self.builder.ops.append(op)
        problem = check_limits(ops.SPECS[kind], op, self.builder.graph)
        if problem:
            raise problem


def single(quant: Quant | None) -> Quant | None:
    """An activation's quantisation must be per tensor; anything else is none of ours."""
    return quant if quant is None or quant.per_tensor else None


def check_surface(graph: Graph) -> None:
    """Static shapes, batch 1, supported types at the graph's inputs and outputs."""
    problems = []
    for what, names in (("input", graph.inputs), ("output", graph.outputs)):
        for name in names:
            t = graph.tensors[name]
            if len(t.shape) > 1 and t.shape[0] > 1:
                hint = "export the model with batch size 1; edgebuild runs one sample at a time"
                problems.append(fail(f"{what} '{name}' has batch size {t.shape[0]}", file=graph.file, hints=[hint]))
            if t.constant and what == "output":
                problems.append(fail(f"output '{name}' is a constant", file=graph.file))
    if problems:
        raise EdgebuildError(*(d for p in problems for d in p.diagnostics))
