"""The shape in which an application brings the rows of an input."""

from __future__ import annotations

from dataclasses import replace

from .. import ops
from ..ir import Graph, rename


def with_rows(graph: Graph) -> Graph:
    """The graph with its input in the shape in which it is read first, so that its rows are those of the first op."""
    x = graph.inputs[0]
    readers = graph.consumers[x]
    if len(readers) != 1 or not ops.SPECS[readers[0].kind].view:
        return graph
    shape = graph.result(readers[0]).shape
    kept = [op for op in graph.ops if op is not readers[0]]
    tensors = {**graph.tensors, x: replace(graph.tensors[x], shape=shape)}
    return rename(replace(graph, ops=tuple(kept), tensors=tensors), {readers[0].outputs[0]: x})
