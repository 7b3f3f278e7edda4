"""Contexts: which functions interrupts run, which the rest of the program, and where no interrupt is taken.

A context is the name of a declared interrupt function, or MAIN. What an interrupt may preempt is all of the others: the
priorities of interrupts are not known here.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgebuild.driver.analysis.cdfg import Cdfg, Function, Node

MAIN = ""
OFF = {"bf_critical_enter", "__disable_irq", "__disable_interrupt", "taskENTER_CRITICAL", "vPortEnterCritical"}
ON = {"bf_critical_leave", "__enable_irq", "__enable_interrupt", "taskEXIT_CRITICAL", "vPortExitCritical"}
Contexts = Mapping[str, frozenset[str]]  # of each function


def contexts(cdfg: Cdfg) -> Contexts:
    """The contexts that each function runs in: those of its callers, and MAIN where other files may call it."""
    found: dict[str, set[str]] = {}
    called = {callee for f in cdfg.functions.values() for callee in f.callees}
    for name, f in cdfg.functions.items():
        outside = not f.static or name not in called
        found[name] = {name} if f.interrupt is not None else {MAIN} if outside else set()
    changed = True
    while changed:
        changed = False
        for name, f in cdfg.functions.items():
            for callee in f.callees & found.keys():
                more = found[name] - found[callee]
                changed = changed or bool(more)
                found[callee] |= more
    return {name: frozenset(c) for name, c in found.items()}


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
