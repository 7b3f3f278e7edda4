"""Bring a graph into the one form that all later stages expect.

This package is the only place that knows pairs of operators: each rule is a named pattern with the
condition under which it leaves every output unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....base.errors import grouped
from ... import ops
from ...ir import Graph, verify
from ...ops.base import check_limits
from ..rewrite import drop_dead, rewrite
from . import fuse, qdq

STAGES = (
    ("transposes", fuse.TRANSPOSES),
    ("fold", (*fuse.TRANSPOSES, *fuse.RULES)),
    ("quantise", (*qdq.RULES, *fuse.TRANSPOSES, *fuse.RULES)),
    ("surface", (*qdq.SURFACE, *fuse.TRANSPOSES, *fuse.RULES)),
    ("float", (*qdq.REMAINS, *fuse.RULES)),
)


def stages(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """The graph after each stage, by name. A stage that breaks the graph is a bug and says so."""
    for name, rules in STAGES:
        graph = rewrite(drop_dead(graph), rules)
        verify(graph, ops.result_shape)
        yield name, graph


def canonicalize(graph: Graph) -> Graph:
    """Fold constants, fuse what runs as one kernel, make quantised ops of QDQ groups, free the reshapes.

    Raises EdgebuildError naming every node that has no kernel in this form.
    """
    *_, (_, final) = stages(graph)
    problems = [p for op in final.ops if (p := check_limits(ops.SPECS[op.kind], op, final)) is not None]
    if problems:
        raise grouped([d for p in problems for d in p.diagnostics])
    return final
