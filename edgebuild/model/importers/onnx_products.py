"""Einsum and CumSum of ONNX as the products of matrices that they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...base.errors import EdgebuildError, fail

Shapes = Mapping[str, tuple[int, ...]]


class Rewriter:
    """Makes the nodes that stand for one node; their results are named after its own."""

    def __init__(self, node: onnx.NodeProto, graph: onnx.GraphProto, file: str) -> None:
        self.node, self.graph, self.file, self.made = node, graph, file, list[onnx.NodeProto]()

    def error(self, text: str, hint: str) -> EdgebuildError:
        name = self.node.name or self.node.output[0]
        return fail(text, file=self.file, node=name, kind=self.node.op_type, hints=[hint])

    def constant(self, value: np.ndarray) -> str:
        name = f"{self.node.output[0]}@constant{len(self.graph.initializer)}"
        self.graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{self.node.output[0]}@{len(self.made)}"
        self.made.append(helper.make_node(operator, inputs, [name], self.node.name or name, **attributes))
        return name

    def shaped(self, x: str, sizes: list[int]) -> str:
        return self.add("Reshape", x, self.constant(np.array(sizes, np.int64)))

    def ordered(self, x: str, has: str, wants: str) -> str:
        """x, whose axes are the letters of `has`, with its axes in the order of `wants`."""
        return x if has == wants else self.add("Transpose", x, perm=[has.index(letter) for letter in wants])

    def finished(self) -> list[onnx.NodeProto]:
        """All nodes; the last one writes the result of the node that they stand for."""
        self.made[-1].output[0] = self.node.output[0]
        return self.made


def einsum(node: onnx.NodeProto, graph: onnx.GraphProto, file: str, shapes: Shapes) -> Iterator[onnx.NodeProto]:
    """One operand: sums and a transposition. Two: the product of matrices over the letters that the result lacks."""
    made = Rewriter(node, graph, file)
    operands, result = _letters(node, made)
    sizes = _sizes(node, operands, shapes, made)
    kept = []
    for name, letters, other in zip(node.input, operands, [*operands[1:], *operands[:1]], strict=True):
        own = [at for at, c in enumerate(letters) if c not in result and (c not in other or len(operands) == 1)]
        summed = made.add("ReduceSum", name, made.constant(np.array(own, np.int64)), keepdims=0) if own else name
        kept.append((summed, "".join(c for at, c in enumerate(letters) if at not in own)))
    if len(kept) == 1:
        made.add("Identity", made.ordered(*kept[0], result))
    else:
        (a, first), (b, second) = kept
        batch, inner = ("".join(c for c in first if c in second and (c in result) == stays) for stays in (True, False))
        rows, columns = ("".join(c for c in letters if c not in batch + inner) for letters in (first, second))
        lead = [sizes[c] for c in batch]
        extents = [math.prod(sizes[c] for c in letters) for letters in (rows, inner, columns)]
        left = made.shaped(made.ordered(a, first, batch + rows + inner), [*lead, *extents[:2]])
        right = made.shaped(made.ordered(b, second, batch + inner + columns), [*lead, *extents[1:]])
        product = made.shaped(made.add("MatMul", left, right), [sizes[c] for c in batch + rows + columns])
        made.add("Identity", made.ordered(product, batch + rows + columns, result))
    yield from made.finished()


def _letters(node: onnx.NodeProto, made: Rewriter) -> tuple[list[str], str]:
    """The axes of each operand and of the result, a letter each."""
    equation = next(a.s.decode() for a in node.attribute if a.name == "equation").replace(" ", "")
    left, arrow, result = equation.partition("->")
    operands = left.split(",")
    if not arrow:  # letters that occur once, in the order of the alphabet
        result = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    simple = all(len(set(word)) == len(word) and word.isalpha() for word in operands) and len(set(result)) == len(
        result
    )
    if len(operands) > 2 or len(operands) != len(node.input) or not simple or not set(result) <= set(left):
        raise made.error(f"equation '{equation}'", "one or two operands whose letters differ; no ellipsis")
    return operands, result


def _sizes(node: onnx.NodeProto, operands: list[str], shapes: Shapes, made: Rewriter) -> dict[str, int]:
    sizes = dict[str, int]()
    for name, letters in zip(node.input, operands, strict=True):
        shape = shapes.get(name)
        if shape is None or len(shape) != len(letters):
            raise made.error(f"'{name}' has no known shape of {len(letters)} dimensions", "export with static shapes")
        if any(sizes.setdefault(c, n) != n for c, n in zip(letters, shape, strict=True)):
            raise made.error(f"'{name}' has another size of an axis than the operand before", "broadcast it before")
    return sizes


def cumsum(node: onnx.NodeProto, graph: onnx.GraphProto, file: str, shapes: Shapes) -> Iterator[onnx.NodeProto]:
    """The product with a triangle of ones: element (i, j) is one if j counts element i."""
    made = Rewriter(node, graph, file)
    shape = shapes.get(node.input[0])
    axes = [numpy_helper.to_array(t) for t in graph.initializer if t.name == node.input[1]]
    if not shape or not axes:
        raise made.error("its shape or its axis is computed", "export with static shapes and a constant axis")
    options = {a.name: a.i for a in node.attribute}
    axis, last = int(axes[0].item()) % len(shape), len(shape) - 1
    triangle = np.triu(np.ones((shape[axis],) * 2, np.float32), 1 if options.get("exclusive") else 0)
    triangle = triangle.T.copy() if options.get("reverse") else triangle
    order = list(range(len(shape)))
    order[axis], order[last] = last, axis
    moved = node.input[0] if axis == last else made.add("Transpose", node.input[0], perm=order)
    summed = made.add("MatMul", moved, made.constant(triangle))
    if axis != last:
        made.add("Transpose", summed, perm=order)
    yield from made.finished()


PRODUCTS: dict[str, Callable[[onnx.NodeProto, onnx.GraphProto, str, Shapes], Iterator[onnx.NodeProto]]] = {
    "Einsum": einsum,
    "CumSum": cumsum,
}
