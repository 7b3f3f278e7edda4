"""Rows that do not serve a layer, and the condition that excludes each: for people who write kernels.

A row's `make` answers None where a condition does not hold. The condition is read from its source, at the line where
the None comes from, so a row needs no second text for it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from ..ir import Graph, Op
from ..ops.base import Form
from . import ROWS, layer_of
from .row import KernelLayer, Row

FOLDER = Path(__file__).parent
WRAPPER = FOLDER / "row.py"


@dataclass(frozen=True)
class Refusal:
    """A row that does not serve.

    `place`: file and line below `kernels/` of the reason, empty where the row itself says it. `lacks`: words of cores
    that the target's has not.
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
    """One for each row of the op's kind, or of its sums, that makes no kernel for this form."""
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
        elif form.over and not kernel.in_place:
            yield Refusal(f"{kernel.variant}: it does not work in place")


def _asked(row: Row, layer: KernelLayer) -> tuple[Any, Refusal]:
    """The row's kernel, and where a missing one comes from."""
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
    reason = "only for sums of products in int8" if last.file == WRAPPER else _condition(last) or "always"
    return None, Refusal(reason, f"{last.file.relative_to(FOLDER)}:{last.line}")


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
