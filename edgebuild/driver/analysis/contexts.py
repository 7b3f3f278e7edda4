"""Contexts: which functions interrupts run, which the rest of the program, and where no interrupt is taken.

A context is the name of a declared interrupt function, or MAIN. What an interrupt may preempt is all of the others: the
priorities of interrupts are not known here.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgebuild.base.dataclass import dataclass
from edgebuild.driver.analysis.cdfg import Access, Cdfg, Function, Node
from edgebuild.driver.source.dialect import FieldId

MAIN = ""
OFF = {"bf_critical_enter", "__disable_irq", "__disable_interrupt", "taskENTER_CRITICAL", "vPortEnterCritical"}
ON = {"bf_critical_leave", "__enable_irq", "__enable_interrupt", "taskEXIT_CRITICAL", "vPortExitCritical"}
Contexts = Mapping[str, frozenset[str]]  # of each function


def contexts(cdfg: Cdfg) -> Contexts:
    """The contexts that each function runs in: those of its callers, and MAIN where other files may call it.

    A lambda is called by its function, whatever that passes it to.
    """
    found: dict[str, set[str]] = {}
    called = {callee for f in cdfg.functions.values() for callee in f.callees}
    for name, f in cdfg.functions.items():
        outside = not f.around and (not f.static or name not in called)
        found[name] = {name} if f.interrupt is not None else {MAIN} if outside else set()
    changed = True
    while changed:
        changed = False
        for name, f in cdfg.functions.items():
            for callee in (f.callees & found.keys()) | {n for n, g in cdfg.functions.items() if g.around == name}:
                more = found[name] - found[callee]
                changed = changed or bool(more)
                found[callee] |= more
    return {name: frozenset(c) for name, c in found.items()}


def preempts(theirs: frozenset[str], mine: frozenset[str]) -> bool:
    """Whether an interrupt among `theirs` may be taken while something of `mine` runs."""
    return any(x != MAIN and y != x for x in theirs for y in mine)


@dataclass(frozen=True)
class Visible:
    """Accesses of a function that an interrupt may see: it accesses the same fields, and one of both writes."""

    reads: frozenset[FieldId] = frozenset()  # by functions that may preempt this one
    writes: frozenset[FieldId] = frozenset()
    off: frozenset[Node] = frozenset()  # where interrupts are off

    def __contains__(self, a: Access) -> bool:
        mine = a.field in self.writes or (a.kind == "w" and a.field in self.reads)
        return mine and a.node not in self.off


def visible(cdfg: Cdfg) -> Mapping[str, Visible]:
    """Accesses of each function that interrupts may see; nothing where none is declared."""
    if not any(f.interrupt is not None for f in cdfg.functions.values()):
        return {}
    runs = contexts(cdfg)
    found = {}
    for name, f in cdfg.functions.items():
        others = [g for n, g in cdfg.functions.items() if preempts(runs[n], runs[name])]
        reads, writes = (frozenset(a.field for g in others for a in g.accesses if a.kind == k) for k in "rw")
        found[name] = Visible(reads, writes, guarded(f))
    return found


def guarded(f: Function) -> frozenset[Node]:
    """The nodes at which interrupts are off, whatever way led there."""
    off: dict[Node, bool] = {f.entry: False}
    todo = [f.entry]
    while todo:
        node = todo.pop()
        after = off[node]
        if (node.kind == "call" and node.text in OFF) or node.text.endswith("turns interrupts off"):
            after = True
        elif (node.kind == "call" and node.text in ON) or node.text.endswith("turns interrupts on"):
            after = False
        for s in node.succ:
            new = after and off.get(s, True)
            if s not in off or off[s] != new:
                off[s] = new
                todo.append(s)
    return frozenset(n for n, is_off in off.items() if is_off)
