"""Every measured number of the pages names its command, and what others measured is as peers.yaml has it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.figures.given import GIVEN, GIVEN_TABLES
from tests.figures.measure import peers
from tests.figures.pages import WITH_UNIT, Number, page_texts, prose, tables
from tests.figures.register import MODELS, PEER, Checked, MeasuredTable, Sentence, checks

TABLES = {(c.page, c.head): c for c in checks() if isinstance(c, MeasuredTable)}
SENTENCES = [c for c in checks() if isinstance(c, Sentence)]
PAGES = page_texts()


@pytest.mark.parametrize("page", PAGES)
def test_every_table_of_numbers_is_measured(page: str) -> None:
    for table in tables(page, PAGES[page]):
        key = (page, table.header[0])
        if any(True for _ in table.numbers()) and key not in GIVEN_TABLES:
            assert key in TABLES, f"{page}:{table.rows[0].line}: name the command in tests/figures/register.py"


@pytest.mark.parametrize("page", PAGES)
def test_every_number_with_a_unit_is_measured_or_given(page: str) -> None:
    text = PAGES[page]
    patterns = [s.pattern.replace(" ", r"\s+") for s in SENTENCES if s.page == page]
    patterns += [pattern.replace(" ", r"\s+") for given, pattern, _ in GIVEN if given == page]
    spans = [match.span() for pattern in patterns for match in re.finditer(pattern, text)]
    for match in WITH_UNIT.finditer(prose(text)):
        line = text.count("\n", 0, match.start()) + 1
        covered = any(begin < match.end() and match.start() < end for begin, end in spans)
        assert covered, f"{page}:{line}: {match[0]!r}: add it to tests/figures/register.py, or to given.py"


@pytest.mark.parametrize("check", checks(), ids=lambda c: f"{c.page}: {getattr(c, 'head', '') or c.pattern[:40]}")
def test_what_is_registered_is_there(check: MeasuredTable | Sentence) -> None:
    numbers = [n for *_, n in check.cells()] if isinstance(check, MeasuredTable) else check.numbers()
    assert numbers


@pytest.mark.parametrize(("page", "pattern", "kind"), GIVEN, ids=lambda x: str(x)[:40])
def test_what_is_given_is_there(page: str, pattern: str, kind: str) -> None:
    for part in pattern.split("|"):
        assert re.search(part.replace(" ", r"\s+"), PAGES[page]), (
            f"{page} no longer says {part!r}: drop it from given.py"
        )


def test_figures_of_others_are_those_of_their_file() -> None:
    rows = peers()["tflm"]["rows"]
    columns = {"arena": "arena", "code": "code", "instructions per MAC": "M4"}
    for (name, how), column, number in TABLES["README.md", "int8 model, Cortex-M4"].cells():
        if how.startswith(PEER):
            assert number.value == rows[MODELS[name]][columns[column]], str(number)
    for (core, name), column, number in TABLES["README.md", "core"].cells():
        if column == PEER:
            assert number.value == rows[MODELS[name]][core], str(number)
    boards = peers()["boards"]["rows"]
    for (core, name), column, number in TABLES["README.md", "cycles per MAC"].cells():
        if column in ("ST", "Plumerai", "Bosch"):
            assert number.value == boards[MODELS[name]][f"{core} {column}"], str(number)


def test_a_number_is_compared_as_it_is_printed() -> None:
    number = Number("README.md", 1, "", "1.09")
    assert Checked(number, 1.0949).holds and Checked(number, 1.0851).holds
    assert not Checked(number, 1.096).holds and not Checked(number, 1.084).holds
    assert Checked(replace(number, text="8,392"), 8392).holds
    assert not Checked(replace(number, text="8,392"), 8393).holds
    assert Checked(replace(number, text="4.4"), 5.1, tolerance=0.5).holds
