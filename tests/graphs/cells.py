"""The registry as a product: graphs of one op that together have each form of its kind, and most pairs of forms.

The form of a graph is a set of facts: types, arithmetic, and what each attribute is in words. A fault in one row of a
kind's table shows in the graphs that have this row; one that needs a type besides shows where both meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, cycle
from typing import Any

import numpy as np

from edgebuild.model.ir import Graph

from .single import KINDS, forms
from .source import Dice

DRAWN = 160  # graphs to choose from
Fact = tuple[str, Any]
FEW = 8  # numbers of an attribute, such as paddings


def covering(kind: str, most: int) -> list[Graph]:
    """At most `most` graphs of this kind. Each fact that is drawn is in one of them, the rarest if not all can be."""
    graphs = [_drawn(kind, seed, form) for seed, form in zip(range(DRAWN), cycle(forms(kind)), strict=False)]
    todo = [_parts(facts(graph)) for graph in graphs]
    chosen = list[Graph]()
    seen = set[frozenset[Fact]]()
    while len(chosen) < most:
        gains = [sum(1 if len(part) > 1 else len(graphs) for part in parts - seen) for parts in todo]
        best = int(np.argmax(gains))
        if not gains[best]:
            break
        chosen.append(graphs[best])
        seen |= todo[best]
    return chosen


def _drawn(kind: str, seed: int, form: tuple[Any, ...]) -> Graph:
    return KINDS[kind](Dice(None, np.random.default_rng(seed), *form))  # type: ignore[arg-type]


def _parts(facts: frozenset[Fact]) -> set[frozenset[Fact]]:
    """Each fact, and each pair of facts."""
    ordered = sorted(facts, key=repr)
    return {frozenset(part) for count in (1, 2) for part in combinations(ordered, count)}


def facts(graph: Graph) -> frozenset[Fact]:
    """Facts of a graph, in words that few graphs share."""
    words: set[Fact] = {("arithmetic", graph.arithmetic), ("ops", len(graph.ops))}
    for op in graph.ops:
        operands, y = graph.operands(op), graph.result(op)
        last = y.shape[-1] if y.shape else 0
        words |= {("result", y.dtype), ("operands", len(operands)), ("rank", len(y.shape))}
        words |= {("last", last.bit_length() // 2), ("single", y.elements == 1)}
        for at, t in enumerate(operands):
            words |= {(f"{at} type", t.dtype), (f"{at} constant", t.constant), (f"{at} shape", t.shape == y.shape)}
            if t.quant is not None:
                words |= {(f"{at} scales", len(t.quant.scale) > 1), (f"{at} zero", t.quant.zero_point[0] != 0)}
        words |= {(name, _word(value)) for name, value in op.attrs.items() if not isinstance(value, Mapping)}
    return frozenset(words)


def _word(value: Any) -> Any:
    """A text, a truth or nothing as it is; a number as 0, 1 or one of three sorts; a few numbers as a set."""
    if isinstance(value, str | bool) or value is None:
        return value
    if isinstance(value, int | float | np.number):
        return "below" if value < 0 else value if value in (0, 1) else "part" if value % 1 else "more"
    if isinstance(value, list | tuple) and all(isinstance(v, int | float | None) for v in value) and len(value) <= FEW:
        return frozenset(map(_word, value))
    return type(value).__name__
