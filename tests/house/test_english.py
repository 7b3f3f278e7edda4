"""Plain English: at most 25 words a sentence is the rule, and less than 3 % of the sentences have more than 30."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from tests.conftest import ROOT

LONG = 30  # words
MAX_LONG = 0.03
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "sample_projects").glob("*/README.md")])
SOURCES = sorted(f for folder in ("edgebuild", "tests", "site_scons") for f in (ROOT / folder).rglob("*.py"))
ITEM = re.compile(r"^\s*(?:[*-]|\d+\.) ")


def paragraphs(text: str) -> Iterator[str]:
    """Prose without tables, headings and blocks of code; every item of a list is a paragraph."""
    lines: list[str] = []
    for line in [*re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines(), ""]:
        code = line.startswith("    ") and not lines
        if (
            not line.strip()
            or line.lstrip().startswith(("|", "#", "!"))
            or ITEM.match(line)
            or re.search(r"\S {2,}\S", line)
        ):
            yield " ".join(lines)
            lines = []
        if line.strip() and not code and not line.lstrip().startswith(("|", "#", "!")):
            lines.append(ITEM.sub("", line).strip())


def sentences(texts: Iterable[str]) -> Iterator[str]:
    """Names in backquotes and targets of links count as one word."""
    for text in texts:
        for paragraph in paragraphs(text):
            plain = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "X", paragraph))
            yield from (s for s in re.split(r"(?<=[.!?:])\s+", plain) if s)


def words(sentence: str) -> int:
    return len(re.findall(r"[\w'-]+", sentence))


def check(texts: Iterable[str]) -> None:
    prose = list(sentences(texts))
    long = sorted((s for s in prose if words(s) > LONG), key=words, reverse=True)
    assert len(prose) > 100
    assert len(long) < MAX_LONG * len(prose), f"{len(long)} of {len(prose)}:\n" + "\n".join(long[:20])


def test_sentences_of_pages_are_short() -> None:
    check(page.read_text() for page in PAGES)


def test_sentences_of_docstrings_are_short() -> None:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    nodes = (node for file in SOURCES for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds))
    check(text for node in nodes if (text := ast.get_docstring(node)))


def test_the_measure_counts_words_of_prose() -> None:
    text = (
        "A sentence. One with `a lot of code` in it.\n\n    $ a command\n\n| a | table |\n- item one\n- item two: `x`\n"
    )
    assert [words(s) for s in sentences([text])] == [2, 5, 2, 2, 1]
