"""The op registry: the specs of all op modules."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from types import ModuleType

from .. import ir
from ..ir import ITEM_BYTES, Array, Graph, Nest, Op
from . import (
    classifiers,
    contractions,
    elementwise,
    indexing,
    moves,
    normalization,
    pointwise,
    recurrent,
    reductions,
    signals,
)
from .base import Spec, named

ROOMS = (
    classifiers, contractions, elementwise, indexing, moves, normalization, pointwise, recurrent, reductions, signals,
)  # fmt: skip


def specs(room: ModuleType) -> Iterator[Spec]:
    """Every Spec that an op module binds, by itself or in a tuple."""
    for value in vars(room).values():
        yield from (spec for spec in (value if isinstance(value, tuple) else (value,)) if isinstance(spec, Spec))


SPECS = {spec.kind: named(spec) for spec in sorted(chain.from_iterable(map(specs, ROOMS)), key=lambda spec: spec.kind)}


def nest(op: Op, graph: Graph) -> Nest:
    """The op's index relation, cached in the graph for the graph's own ops."""
    make = SPECS[op.kind].nest
    if not op.outputs or graph.producers.get(op.outputs[0]) is not op:
        return make(op, graph)
    if op.outputs[0] not in graph.nests:
        graph.nests[op.outputs[0]] = make(op, graph)
    return graph.nests[op.outputs[0]]


def overwritable(op: Op, graph: Graph) -> tuple[int, ...]:
    """Positions of activations that the result may overwrite with any kernel: they are read element by element.

    Result elements are no larger than the operand's, so writing result i never reaches operand element i + 1.
    """
    relation, item = nest(op, graph), ITEM_BYTES[graph.result(op).dtype]
    operands = enumerate(graph.operands(op))
    return tuple(
        i for i, t in operands if not t.constant and ir.elementwise(relation, i) and item <= ITEM_BYTES[t.dtype]
    )


def result_shape(op: Op, graph: Graph) -> tuple[int, ...]:
    return nest(op, graph).out_shape


def macs(graph: Graph) -> int:
    """Multiply-accumulates of one inference."""
    return sum(nest(op, graph).mac_count for op in graph.ops)


def run(graph: Graph, *inputs: Array) -> dict[str, Array]:
    """The value of every tensor for these inputs, computed by the ops' numpy references."""
    values = {t.name: t.data for t in graph.tensors.values() if t.data is not None}
    values |= {name: x.reshape(graph.tensors[name].shape) for name, x in zip(graph.inputs, inputs, strict=True)}
    for op in graph.ops:
        y = SPECS[op.kind].reference(op, graph, *(values[name] for name in op.inputs))
        values[op.outputs[0]] = y.reshape(graph.result(op).shape)
    return values
