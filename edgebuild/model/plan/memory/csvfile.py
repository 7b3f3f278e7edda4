"""Layout problems as CSV files: columns id, lower, upper, size, and offset in a solution."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

from edgebuild.base.artifacts import write_atomic
from edgebuild.base.errors import fail
from edgebuild.base.inputs import check_replaced, read_text
from edgebuild.model.plan.memory.check import check_layout
from edgebuild.model.plan.memory.layout import layout
from edgebuild.model.plan.memory.problem import Buffer, DoesNotFit, Layout, MemoryProblem

_COLUMNS = ("id", "lower", "upper", "size")


def read(path: Path) -> MemoryProblem:
    """The problem in a CSV file; further columns are ignored. Raises EdgebuildError."""
    try:
        rows = csv.reader(read_text(path, "cannot be read").splitlines(), strict=True)
        header = [name.strip() for name in next(rows, [])]
        if missing := [name for name in _COLUMNS if name not in header]:
            raise fail(f"no column {missing[0]!r}", file=str(path), line=1, hints=[f"expected: {','.join(_COLUMNS)}"])
        buffers = dict[str, Buffer]()
        for cells in rows:
            if any(cell.strip() for cell in cells):
                buffer = _buffer(dict(zip(header, cells, strict=False)), path, rows.line_num)
                if buffer.name in buffers:
                    raise fail(f"a second buffer {buffer.name!r}", file=str(path), line=rows.line_num)
                buffers[buffer.name] = buffer
    except csv.Error as error:
        raise fail(str(error), file=str(path), line=rows.line_num) from None
    return MemoryProblem(tuple(buffers.values()))


def _buffer(row: dict[str, str], path: Path, line: int) -> Buffer:
    numbers = list[int]()
    for column in _COLUMNS[1:]:
        text = row.get(column, "").strip()
        try:
            numbers.append(int(text))
        except ValueError:
            what = f"{column} is {text!r}, not a whole number" if text else f"no value for {column}"
            raise fail(what, file=str(path), line=line) from None
    lower, upper, size = numbers
    if lower >= upper:
        raise fail(f"upper {upper} is not above lower {lower}: live is [lower, upper)", file=str(path), line=line)
    if size < 0:
        raise fail(f"size {size} is negative", file=str(path), line=line)
    if not (name := row.get("id", "").strip()):
        raise fail("no value for id", file=str(path), line=line)
    return Buffer(name, size, lower, upper)


def text_of(problem: MemoryProblem, result: Layout) -> str:
    """The problem and its offsets as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*_COLUMNS, "offset"))
    for b in problem.buffers:
        writer.writerow((b.name, b.lower, b.upper, b.size, result.places[b.name].offset))
    return out.getvalue()


def solve_file(
    path: Path, capacity: int | None = None, out: Path | None = None, time_limit: float | None = None
) -> int:
    """Lay out the buffers of a CSV file, print how well, and write the offsets to `out`.

    With `capacity` (bytes) it is decided whether they fit. Returns the exit status: 1 if they
    do not, or no layout was found. Raises EdgebuildError for a file that makes no sense.
    """
    problem = read(path)
    check_replaced([out] if out else [], [path])
    try:
        result = layout(problem, capacity, time_limit=time_limit)
    except DoesNotFit as error:
        why = "which is proven to be impossible" if error.proven else "and none was found; it may exist"
        proof = f"at least {error.needed} B are needed" if error.proven else f"the best found takes {error.needed} B"
        live = ", ".join(error.buffers[:8]) + (", ..." if len(error.buffers) > 8 else "")
        finding = fail(
            f"no layout within {capacity} B, {why}: {proof}", file=str(path), hints=[f"most are live with {live}"]
        )
        print(finding, file=sys.stderr)
        return 1
    check_layout(problem, result)
    gap = 100 * (result.height - result.bound) / result.bound if result.bound else 0.0
    print(f"height {result.height} B")
    print(f"bound {result.bound} B")
    print("optimal" if result.optimal else f"gap {gap:.2f} %")
    print(f"method {result.method}")
    if out is not None:
        write_atomic(out, text_of(problem, result).encode())
    return 0
