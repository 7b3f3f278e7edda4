"""The compiler's choices in words, for people who write kernels or wonder where the time goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..base.request import ModelRequest
from ..base.target import load_target
from ..base.text import comment
from .compile import plan_model
from .ir import Graph, Op
from .kernels import kernel_of, layer_name
from .kernels.code_bytes import code_bytes
from .kernels.refusals import refusals
from .ops.base import Form, Kernel
from .plan.search import Plan

WIDTH = 34  # columns of a variant's name


def kernel_words(request: ModelRequest) -> str:
    """Of each op of the plan: its kernel and why, the costs of the others, and what excludes the rest.

    Instructions and cycles are estimates of one call; bytes of code are estimates, too.
    """
    plan = plan_model(request, load_target(request.target))
    lines = [f"{plan.graph.file} on {plan.target.name}: estimates of one call"]
    for number, section in enumerate(plan.steps):
        calls = f", {section.calls} calls" if section.rolled is not None else ""
        for op, form in zip(section.ops, section.forms, strict=True):
            lines += [f"step {number}: {op.kind} '{comment(op.name)}'{calls}", *_of_op(plan, op, form)]
    return "\n".join(lines) + "\n"


def _of_op(plan: Plan, op: Op, form: Form) -> Iterator[str]:
    graph, kernel = plan.graph, kernel_of(op, plan.graph, form)
    fastest = kernel_of(op, graph, Form(form.core, form.wish, rings=form.rings, separate=form.separate, rows=form.rows))
    yield f"  {_line(kernel, kernel, graph, form)}"
    yield f"    taken: {_why(kernel, fastest, op, graph, form)}"
    names = {kernel.variant}
    for other in (kernel, *kernel.others, fastest, *fastest.others):
        if other.variant not in names:
            names.add(other.variant)
            yield f"  {_line(other, kernel, graph, form)}"
    excluded = refusals(op, graph, form)
    counted = Counter((r.reason, r.place) for r in excluded if not r.lacks)
    for (reason, place), count in counted.items():
        times = f"{count} variants, " if count > 1 else ""
        yield f"    not {times}{place}{': ' if place else ''}{reason}"
    if foreign := [r for r in excluded if r.lacks]:
        words = sorted({word for r in foreign for word in r.lacks})
        yield f"    not {len(foreign)} variant{'s' * (len(foreign) > 1)} for other cores: {', '.join(words)}"


def _line(kernel: Kernel, chosen: Kernel, graph: Graph, form: Form) -> str:
    """Costs of one variant, and how many more cycles it takes than the chosen one."""
    constants = sum(c.data.nbytes for c in kernel.constants)
    code = code_bytes([kernel], graph.arithmetic, form)
    if not kernel.estimate:
        costs = "no estimate"
    else:
        costs = f"{kernel.estimate:,.0f} instructions, {kernel.cost:,.0f} cycles"
        if chosen.cost and kernel is not chosen:
            costs += f" ({kernel.cost / chosen.cost - 1:+.1%})"
    return f"{kernel.variant:{WIDTH}} {costs}; scratch {kernel.scratch} B, constants {constants} B, code {code} B"


def _why(kernel: Kernel, fastest: Kernel, op: Op, graph: Graph, form: Form) -> str:
    if form.engine is not None:
        return f"the plan gives it to {form.engine.name}"
    if (layer_name(kernel, op, graph), kernel.variant) in form.choice:
        return "it was measured to be the fastest (edgebuild tune)"
    if kernel.variant == fastest.variant:
        return "it takes the fewest cycles" if fastest.others else "no other serves"
    if form.over:
        return "its result lies over its operand"
    if form.scratch_limit is not None:
        return f"the plan leaves it {form.scratch_limit} B of scratch"
    if form.granularity:
        return "it gathers its operands first, at a lower clock"
    return "the plan needs fewer bytes of flash" if form.variant else "it takes the fewest cycles in this form"
