"""Numbers of the documentation: cells of its tables, and numbers with a unit in its sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.conftest import ROOT
from tests.docs.pages import PAGES

NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
UNITS = r"B|kB|KB|MB|bytes|ms|seconds|s|cycles|instructions|accesses|million|times|%"
WITH_UNIT = re.compile(rf"(?<![\w.:/-])\d[\d,]*(?:\.\d+)?(?: and \d[\d.,]*)* (?:{UNITS})(?![\w/])")


@dataclass(frozen=True)
class Number:
    """A number as a page prints it."""

    page: str  # path below the checkout
    line: int
    what: str  # row and column, or the words around it
    text: str

    @property
    def value(self) -> float:
        return float(self.text.replace(",", ""))

    @property
    def step(self) -> float:
        """The unit of its last digit."""
        return 10.0 ** -len(self.text.partition(".")[2])

    def equals(self, measured: float, tolerance: float = 0.0) -> bool:
        """The measured value, rounded as the page rounds, is this number; `tolerance` as a share of it."""
        return abs(measured - self.value) <= 0.5000001 * self.step + tolerance * abs(self.value)


@dataclass(frozen=True)
class Row:
    line: int
    cells: tuple[str, ...]  # without marks of emphasis and code


@dataclass(frozen=True)
class Table:
    page: str
    header: tuple[str, ...]
    rows: tuple[Row, ...]

    def numbers(self) -> Iterator[tuple[Row, tuple[str, ...], str, str]]:
        """Every number: its row, the cells that lead the row, its column, and its digits."""
        for row in self.rows:
            first = next((i for i, cell in enumerate(row.cells) if i and is_number(cell)), len(row.cells))
            for column, cell in zip(self.header[first:], row.cells[first:], strict=True):
                if is_number(cell):
                    yield row, tuple(cell for cell in row.cells[:first] if cell), column, cell.split()[0]


def page_texts() -> dict[str, str]:
    """All pages but the history, by their path below the checkout."""
    return {str(p.relative_to(ROOT)): p.read_text() for p in PAGES if p.name not in ("CHANGELOG.md", "CONTRIBUTING.md")}


def tables(page: str, text: str) -> Iterator[Table]:
    """The Markdown tables of a page."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if re.fullmatch(r"\|(?:-+\|)+", line):
            rows, below = [], at + 1
            while below < len(lines) and lines[below].startswith("|"):
                rows.append(Row(below + 1, _cells(lines[below])))
                below += 1
            yield Table(page, _cells(lines[at - 1]), tuple(rows))


def _cells(line: str) -> tuple[str, ...]:
    return tuple(re.sub(r"[*`]", "", cell).strip() for cell in line.strip().strip("|").split("|"))


def is_number(cell: str) -> bool:
    """The cell is one number, with or without its unit."""
    return re.fullmatch(rf"{NUMBER.pattern}(?: ?(?:{UNITS}))?", cell) is not None


def prose(text: str) -> str:
    """The page without its blocks and tables; offsets and lines stay."""
    lines, fenced = [], False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        shown = not fenced and not line.startswith(("    ", "|", "```"))
        lines.append(line if shown else " " * len(line))
    return "\n".join(lines)
