"""The compiler's choices of kernels in words: costs of variants, and the conditions that exclude all other rows.

A row's `make` returns None if a condition does not hold. The condition is read from its source, at the line that
returned None, so a row needs no second text for it.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from ..base.request import ModelRequest
from ..base.target import load_target
from ..base.text import comment
from .compile import plan_model
from .ir import Graph, Op
from .kernels import ROWS, code_bytes, kernel_of, layer_name, layer_of
from .kernels.row import KernelLayer, Row
from .ops.base import Form, Kernel
from .plan.search import Plan

FOLDER = Path(__file__).parent / "kernels"


@dataclass(frozen=True)
class Refusal:
    """A row that makes no kernel for a layer.

    `place`: file and line of the reason, below FOLDER; empty if the row itself states it. `lacks`: features that the
    row needs of a core and the target's does not have.
    """

    reason: str
    place: str = ""
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Return:
    """A call that returned None: its function's file, the line, and the call that it was made from."""

    file: Path
    line: int
    frame: FrameType
    caller: FrameType | None


def refusals(op: Op, graph: Graph, form: Form) -> list[Refusal]:
    """A refusal for each row of the op's kind, or of its sums, that makes no kernel for this form."""
    layer = layer_of(op, graph, form)
    return [refusal for row in ROWS if row.kind in layer.kinds for refusal in _refusal(row, layer)]


def _refusal(row: Row, layer: KernelLayer) -> Iterator[Refusal]:
    form = layer.form
    if missing := row.core - form.core:
        yield Refusal("for another core", lacks=tuple(sorted(missing)))
    elif row.calls not in ("", form.wish.calls):
        yield Refusal(f"it calls {row.calls}: --backend")
    elif row.gathers and not form.granularity:
        yield Refusal("it gathers operands first, which plans for energy want")
    elif layer.cropped and not row.crops:
        yield Refusal("it does not begin within a row of its operand")
    else:
        kernel, place = _asked(row, layer)
        if kernel is None:
            yield place
        elif any(form.separate) and not kernel.reads_separate_rows:
            yield Refusal(f"{kernel.variant}: it finds no row that lies by itself")
        elif form.in_place and not kernel.in_place:
            yield Refusal(f"{kernel.variant}: it does not work in place")


def _asked(row: Row, layer: KernelLayer) -> tuple[Any, Refusal]:
    """The row's kernel; or None, and the place that returned None."""
    returns = list[_Return]()

    def watch(frame: FrameType, event: str, value: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "return" and value is None and file.is_relative_to(FOLDER):
            returns.append(_Return(file, frame.f_lineno, frame, frame.f_back))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        kernel = row.make(layer)
    finally:
        sys.setprofile(before)
    if kernel is not None or not returns:
        return kernel, Refusal("")
    last = returns[-1]  # the outermost call; it may have passed on what another returned
    while (inner := [r for r in returns if r.caller is last.frame]) and not isinstance(_value(last), ast.Constant):
        last = inner[-1]
    return None, Refusal(_condition(last) or "always", f"{last.file.relative_to(FOLDER)}:{last.line}")


def _statement(place: _Return) -> ast.Return | None:
    here = (n for n in _parents(place.file) if isinstance(n, ast.Return))
    return next((n for n in here if n.lineno <= place.line <= (n.end_lineno or 0)), None)


def _value(place: _Return) -> ast.expr | None:
    """The expression whose value is None."""
    statement = _statement(place)
    return statement.value if statement is not None else None


def _condition(place: _Return) -> str | None:
    """The condition under which a line returns None; None if there is none at this line."""
    statement, value = _statement(place), _value(place)
    if isinstance(value, ast.IfExp):
        otherwise = isinstance(value.orelse, ast.Constant) and value.orelse.value is None
        return f"not ({ast.unparse(value.test)})" if otherwise else ast.unparse(value.test)
    above = _parents(place.file).get(statement) if statement is not None else None
    if isinstance(above, ast.If):
        test = ast.unparse(above.test)
        return test if statement in above.body else f"not ({test})"
    return None


@cache
def _parents(file: Path) -> dict[ast.AST, ast.AST]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}


WIDTH = 34  # columns of a variant's name


def kernel_rows(request: ModelRequest) -> list[dict[str, Any]]:
    """Kernels of each op of the plan: `variants` with costs, the chosen one first; reason; and conditions of the rest.

    `instructions` and `cycles` are estimates of one call, None without an estimate; `code_bytes` is estimated, too.
    """
    plan = plan_model(request, load_target(request.target))
    return [
        {
            "step": number,
            "kind": op.kind,
            "name": op.name,
            "calls": section.calls if section.rolled is not None else 1,
            **_of_op(plan, op, form),
        }
        for number, section in enumerate(plan.steps)
        for op, form in zip(section.ops, section.forms, strict=True)
    ]


def kernel_words(rows: Sequence[Mapping[str, Any]], model: str, target: str) -> str:
    """The rows of `kernel_rows` as lines of text."""
    lines = [f"{comment(model)} on {target}: estimates of one call"]
    for row in rows:
        calls = f", {row['calls']} calls" if row["calls"] > 1 else ""
        lines.append(f"step {row['step']}: {row['kind']} '{comment(row['name'])}'{calls}")
        chosen, *others = row["variants"]
        lines += [f"  {_line(chosen, chosen)}", f"    taken: {row['taken']}"]
        lines += [f"  {_line(other, chosen)}" for other in others]
        for refused in row["excluded"]:
            times = f"{refused['variants']} variants, " if refused["variants"] > 1 else ""
            lines.append(f"    not {times}{refused['place']}{': ' if refused['place'] else ''}{refused['reason']}")
        if count := row["for_other_cores"]:
            lines.append(f"    not {count} variant{'s' * (count > 1)} for other cores: {', '.join(row['they_need'])}")
    return "\n".join(lines) + "\n"


def _of_op(plan: Plan, op: Op, form: Form) -> dict[str, Any]:
    graph, kernel = plan.graph, kernel_of(op, plan.graph, form)
    fastest = kernel_of(op, graph, Form(form.core, form.wish, rings=form.rings, separate=form.separate, rows=form.rows))
    variants = dict[str, Kernel]()
    for one in (kernel, *kernel.alternatives, fastest, *fastest.alternatives):
        variants.setdefault(one.variant, one)
    excluded = refusals(op, graph, form)
    counted = Counter((r.reason, r.place) for r in excluded if not r.lacks)
    foreign = [r for r in excluded if r.lacks]
    return {
        "taken": _why(kernel, fastest, op, graph, form),
        "variants": [_costs(k, graph, form) for k in variants.values()],
        "excluded": [{"reason": r, "place": place, "variants": n} for (r, place), n in counted.items()],
        "for_other_cores": len(foreign),
        "they_need": sorted({word for r in foreign for word in r.lacks}),
    }


def _costs(kernel: Kernel, graph: Graph, form: Form) -> dict[str, Any]:
    return {
        "variant": kernel.variant,
        "instructions": kernel.estimate or None,
        "cycles": kernel.cost if kernel.estimate else None,
        "scratch_bytes": kernel.scratch,
        "constants_bytes": sum(c.data.nbytes for c in kernel.constants),
        "code_bytes": code_bytes([kernel], graph.arithmetic, form),
    }


def _line(of: Mapping[str, Any], chosen: Mapping[str, Any]) -> str:
    """Costs of one variant, and how many more cycles it takes than the chosen one."""
    costs = "no estimate"
    if of["instructions"]:
        costs = f"{of['instructions']:,.0f} instructions, {of['cycles']:,.0f} cycles"
        if chosen["cycles"] and of is not chosen:
            costs += f" ({of['cycles'] / chosen['cycles'] - 1:+.1%})"
    sizes = f"scratch {of['scratch_bytes']} B, constants {of['constants_bytes']} B, code {of['code_bytes']} B"
    return f"{of['variant']:{WIDTH}} {costs}; {sizes}"


def _why(kernel: Kernel, fastest: Kernel, op: Op, graph: Graph, form: Form) -> str:
    if form.engine is not None:
        return f"the plan gives it to {form.engine.name}"
    if (layer_name(kernel, op, graph), kernel.variant) in form.choice:
        return "it was measured to be the fastest (edgebuild tune)"
    if kernel.variant == fastest.variant:
        return "it takes the fewest cycles" if fastest.alternatives else "no other serves"
    if form.in_place:
        return "its result is placed in the memory of its operand"
    if form.scratch_limit is not None:
        return f"the plan leaves it {form.scratch_limit} B of scratch"
    if form.granularity:
        return "it gathers its operands first, at a lower clock"
    return "the plan needs fewer bytes of flash" if form.variant else "it takes the fewest cycles in this form"
