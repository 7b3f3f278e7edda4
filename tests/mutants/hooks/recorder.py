"""A plugin of pytest: which functions each test of a file executes, and which files of hal it or its programs read.

Of each function of tests a case runs in turn, until the file's time is over, so that few cases show most.
"""

from __future__ import annotations

import builtins
import json
import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BUDGET, OUTPUT, HAL = (f"EDGEBUILD_MARKS_{name}" for name in ("BUDGET", "OUTPUT", "HAL"))

passed: dict[str, bool] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    turns, keys = Counter[str](), dict[pytest.Item, int]()
    for item in items:
        test = item.nodeid.partition("[")[0]
        keys[item] = turns[test]
        turns[test] += 1
    items.sort(key=keys.__getitem__)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    passed[report.nodeid] = passed.get(report.nodeid, True) and report.passed


def seconds() -> float:
    """Of the processor, with those of programs that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    marks: Any = getattr(builtins, "_marks")  # noqa: B009
    sources = sorted(Path(os.environ[HAL]).rglob("*.[chS]"))
    marks[:] = bytes(len(marks))
    for file in sources:  # a file that is older than its last change is noted as read when it is
        os.utime(file, (0, file.stat().st_mtime))
    begin = seconds()
    outcome = yield
    spent = seconds() - begin
    if passed.get(item.nodeid):
        executed = np.flatnonzero(np.frombuffer(bytes(marks), np.uint8)).tolist()
        read = [f.relative_to(Path(os.environ[HAL]).parent).as_posix() for f in sources if f.stat().st_atime > 0]
        with open(os.environ[OUTPUT], "a", encoding="utf-8") as file:
            file.write(json.dumps([item.nodeid, round(spent, 2), executed, read]) + "\n")
    if seconds() > float(os.environ[BUDGET]):
        item.session.shouldstop = "its time is over"
    return outcome
