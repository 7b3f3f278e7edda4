"""The cases by name. What a case is, tests.fail.make_cases says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

CASES: dict[str, Callable[[Path], tuple[str, str]]] = {}


def case(make: Callable[[Path], tuple[str, str]]) -> Callable[[Path], tuple[str, str]]:
    """`make` writes the files of the case of its name and returns command and expectation."""
    CASES[make.__name__] = make
    return make
