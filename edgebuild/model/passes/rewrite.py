"""Pattern rewriting: rules look at one op and its neighbours and answer with an edit."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace

from ..ir import Graph, Op, Tensor, rename, sort_ops


@dataclass(frozen=True)
class Edit:
    """Replace the ops `remove` by the ops `insert`; then read `rename[x]` wherever `x` was read."""

    remove: tuple[Op, ...]
    insert: tuple[Op, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    rename: dict[str, str] = field(default_factory=dict)


def unused(name: str, graph: Graph, new: Container[str] = ()) -> str:
    """`name`, or one like it that no tensor has, nor any of the `new` that are not in the graph yet."""
    while name in graph.tensors or name in new:
        name += "'"
    return name


Rule = Callable[[Op, Graph], Edit | None]


def rewrite(graph: Graph, rules: Sequence[Rule]) -> Graph:
    """Apply the rules until none fits. Edits that touch the same op wait for the next sweep."""
    while True:
        edits, touched = [], set[str]()
        for op in graph.ops:
            if op.outputs[0] in touched:
                continue
            edit = next((e for rule in rules if (e := rule(op, graph)) is not None), None)
            if edit is None or touched & (reach := _reach(edit, graph)):
                continue
            edits.append(edit)
            touched |= reach
        if not edits:
            return graph
        graph = _apply(graph, edits)


def _reach(edit: Edit, graph: Graph) -> set[str]:
    """The tensors whose producers or readers an edit changes, and those that it makes.

    Nothing produces an input of the graph, and many ops may read it: edits of these do not touch each other.
    """
    ops = (*edit.remove, *edit.insert)
    read = {n for op in ops for n in op.inputs}.difference(graph.inputs)
    written = {n for op in ops for n in op.outputs} | {t.name for t in edit.tensors}
    return read | written | edit.rename.keys() | set(edit.rename.values())


def _apply(graph: Graph, edits: Sequence[Edit]) -> Graph:
    removed = {op.outputs[0] for e in edits for op in e.remove}
    inserted = {e.remove[-1].outputs[0]: e.insert for e in edits}
    ops: list[Op] = []
    for op in graph.ops:
        ops += inserted.get(op.outputs[0], ()) if op.outputs[0] in removed else (op,)
    names = {old: new for e in edits for old, new in e.rename.items()}
    pool = {**graph.tensors, **{t.name: t for e in edits for t in e.tensors}}
    return drop_dead(sort_ops(rename(replace(graph, ops=tuple(ops), tensors=pool), names)))


def drop_dead(graph: Graph) -> Graph:
    """Remove ops that no output needs."""
    needed, kept = set(graph.outputs), list[Op]()
    for op in reversed(graph.ops):
        if needed.intersection(op.outputs):
            kept.append(op)
            needed.update(op.inputs)
    return graph.with_ops(reversed(kept))
