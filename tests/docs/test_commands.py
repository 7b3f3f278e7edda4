"""docs/commands.md has every command and option of today, and each says what it is for."""

from __future__ import annotations

import re

from tests.commands_page import PAGE, page


def test_the_page_of_commands_is_current() -> None:
    assert PAGE.read_text().splitlines() == page().splitlines(), "python -m tests.commands_page"


def test_every_argument_has_a_meaning() -> None:
    assert not re.findall(r"^\| .* \| +\|$", page(), re.MULTILINE)
