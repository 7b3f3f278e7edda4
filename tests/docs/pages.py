"""The pages of the documentation as scripts.

An indented or fenced block is one of three things: commands, if its lines begin with `$ `; a file, if its first line is
a comment with nothing but a file's path; else an example that is only shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

ELSEWHERE = ("drivers.md", "board.md")  # tests/drivers/test_docs.py runs it; it needs a board
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "sample_projects").glob("*/README.md")])
FILE = re.compile(r"(?:#|//|/\*)\s*([\w./-]+\.\w+|[\w./-]*(?:SConstruct|SConscript|Makefile))\s*(?:\*/)?")
COMMAND = "$ "
OWN_TESTS = "./sconsw"  # it makes the checkout's own environment, and has tests of its own


@dataclass(frozen=True)
class Block:
    line: int  # in the page, counted from 1
    text: str

    @property
    def file(self) -> str:
        """The path of the file that the block is, or nothing."""
        match = FILE.fullmatch(self.text.splitlines()[0])
        return match[1] if match and len(self.text.splitlines()) > 1 else ""

    @property
    def commands(self) -> list[str]:
        joined = self.text.replace("\\\n", " ")
        return [line.removeprefix(COMMAND) for line in joined.splitlines() if line.startswith(COMMAND)]


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, with four spaces in front of each line or between fences."""
    lines, start, fenced = [], 0, False
    for number, line in enumerate([*page.read_text().splitlines(), "end"], 1):
        is_fence = line.startswith("```")
        inside = not is_fence if fenced else line.startswith("    ") or (bool(lines) and not line.strip())
        if inside:
            start = start or number
            lines.append(line if fenced else line[4:])
        elif lines:
            yield from _parts(start, "\n".join(lines))
            lines, start = [], 0
        fenced ^= is_fence


def _parts(line: int, text: str) -> Iterator[Block]:
    """A block, cut where commands begin and end: a blank line alone does not end a block of a page."""
    for part in re.split(r"\n\n(?=\$ )|(?<=\n)(?=(?:#|//|/\*) \S+\.\w+(?: \*/)?\n)", text):
        if part.strip():
            yield Block(line, part.strip("\n") + "\n")
        line += part.count("\n") + 2


def script(page: Path) -> str:
    """A bash script that writes the page's files and runs its commands, in order; empty without commands."""
    parts = []
    for block in blocks(page):
        if block.file:
            parts.append(f"mkdir -p $(dirname {block.file})\ncat >{block.file} <<'END'\n{block.text}END")
        parts += [c for c in block.commands if not c.startswith(OWN_TESTS)]
    return "\n".join(parts) + "\n" if any(b.commands for b in blocks(page)) else ""
