"""Where tensors, rows and newest rows of rings lie, as C."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.dataclass import dataclass
from ...base.templates import times
from ..ir import Tensor
from ..ops.base import C_TYPES, Kernel
from ..plan.printed import RolledCalls, newest_name
from ..plan.rolling import row_bytes, rows_of
from ..plan.search import Plan
from .call_loops import Arg
from .names import at_macro, comment, label, newest_constant


@dataclass(frozen=True)
class Kept:
    """A copy of the newest row of a ring, which stands apart: C of both places, and bytes."""

    name: str
    comment: str
    to: str
    newest: str
    bytes: int


def address(plan: Plan, t: Tensor, behind: str = "") -> Arg:
    """A pointer to a tensor, or to the ring that it is. `behind`: C for what is added to it."""
    root = plan.rolling.storage[t.name]
    home = next((s.rolled.inside[root] for s in plan.steps if s.rolled and root in s.rolled.inside), root)
    place = plan.places[home]
    text = f"{at_macro(plan, place.memory)}({C_TYPES[t.dtype]}, {{}}){behind}"
    return Arg(text, plan.view_starts.get(t.name, 0), plan.offset_names[root], place.offset)


def row_offset(plan: Plan, rolled: RolledCalls, t: Tensor, sums: bool = False) -> str:
    """Offset of a row from the place of its tensor.

    `sums`: for a reduction, which takes up the rows in which the values were made, also behind a view. Its result has
    no such offset, for each call works on the whole.
    """
    graph, root = plan.graph, plan.rolling.storage[t.name]
    seen = root if sums else t.name
    rows = rolled.rings.get(rolled.inside.get(root, root), 0)
    if rows_of(graph, seen) != rows_of(graph, root):  # a view of other rows: the whole is there
        rows = 0
    size = t.elements // rows_of(graph, seen)
    at = f"row % {rows}" if rows > 1 else "row"
    return "" if rows == 1 else f" + {times(at, size)}"


def newest(plan: Plan, t: Tensor) -> str:
    """A pointer to the newest row of a ring, where that stands apart."""
    place = plan.places[newest_name(t.name)]
    return f"{at_macro(plan, place.memory)}({C_TYPES[t.dtype]}, {newest_constant(plan, t.name)})"


def kept_row(plan: Plan, rolled: RolledCalls, name: str) -> Kept:
    t = plan.graph.tensors[name]
    text = f"the newest row of {comment(name)} among the others"
    to = str(address(plan, t, row_offset(plan, rolled, t)))
    return Kept(_kept(plan, name), text, to, newest(plan, t), row_bytes(plan.graph, name))


def _kept(plan: Plan, name: str) -> str:
    """The constant by which a table calls for the copy of a row, and by which the copies are counted."""
    return f"{label(plan, name).upper()}_KEPT"


def beside_apart(
    plan: Plan, rolled: RolledCalls, kernel: Kernel, tensors: Sequence[Tensor], found: Sequence[Arg]
) -> list[Arg]:
    """Addresses of tensors for a call, where newest rows stand apart. The last of the tensors is the result.

    A row is made apart. A `placed` kernel gets the address of the row that it reads, others find it by themselves.
    """
    args = list(found)
    for i, t in enumerate(tensors):
        if (root := plan.rolling.storage[t.name]) not in rolled.separate:
            continue
        own = plan.graph.tensors[root]
        if t is tensors[-1]:
            args[i] = Arg(newest(plan, own))
        elif kernel.placed:
            args[i] = Arg(f"row < rows[{_kept(plan, root)}] ? {found[i]} : {newest(plan, own)}")
    return args


def where_apart(plan: Plan, x: Tensor) -> list[Arg]:
    """Arguments for a kernel that finds the newest row of its operand by itself: where it is, and how many are not."""
    root = plan.graph.tensors[plan.rolling.storage[x.name]]
    return [Arg(newest(plan, root)), Arg(f"rows[{_kept(plan, root.name)}]")]
