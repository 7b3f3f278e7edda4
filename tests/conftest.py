"""Helpers that all tests share: where the checkout is, and running programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import hypothesis
import pytest
import pytest_timeout
from hypothesis.internal.conjecture import providers

from tests.judging import fork_judges, judge_without_vnni

T = TypeVar("T")
ROOT = Path(__file__).parents[1]
EVERY_CASE = "EDGEBUILD_TESTS_EVERY_CASE"
os.environ["EDGEBUILD_STRICT"] = "1"  # a plan that fails is a mistake to mend, not to go around
os.environ["EDGEBUILD_CACHE"] = ""  # tests look at what is made, not at what was made before
for name in ("CI", "BUILD_NUMBER"):  # with these pytest prints differences whole; of 448 KB of memory that takes hours
    os.environ.pop(name, None)
hypothesis.settings.register_profile("same", derandomize=True)  # what fails once fails again; the fuzzers draw anew
hypothesis.settings.load_profile("same")
# hypothesis also draws constants that it reads in the modules that happen to be loaded: what a process ran before, and
# every change of ours, would change what is drawn
setattr(providers, "_get_local_constants", lambda: providers._local_constants)  # noqa: B010


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run the onnxruntime that judges on a processor without VNNI, which QEMU models (package qemu-user)"
    parser.addoption("--no-vnni", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    fork_judges()
    if config.getoption("--no-vnni"):
        judge_without_vnni()
    if config.getoption("-m") != "not slow":
        os.environ[EVERY_CASE] = "1"


def by_day(cases: Iterable[T], part: int = 2) -> list[T]:
    """One in `part` of a test's random cases, its first one among them; all of them if slow tests run, too."""
    return list(cases)[:: 1 if EVERY_CASE in os.environ else part]


def pytest_timeout_set_timer(item: Any, settings: Any) -> bool:
    """Count the seconds in which this process ran: the clock goes on while a virtual machine is paused."""
    ended = threading.Event()
    item.cancel_timeout = ended.set  # pytest-timeout calls it

    def watch() -> None:
        if not any(ended.wait(1) for _ in range(int(settings.timeout))):
            pytest_timeout.timeout_timer(item, settings)

    threading.Thread(target=watch, daemon=True).start()
    return True


@pytest.hookimpl(tryfirst=True)  # before the slow ones are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`@pytest.mark.needs("cmake", "ninja")`: skip, with a reason, where a program is missing.

    `@pytest.mark.one_in(3)`: of a test's cases each third; the others are slow.
    """
    cases = Counter[str]()
    for item in items:
        test = item.nodeid.partition("[")[0]
        if any(cases[test] % mark.args[0] for mark in item.iter_markers("one_in")):
            item.add_marker(pytest.mark.slow)
        cases[test] += 1
        programs = [p for mark in item.iter_markers("needs") for p in mark.args]
        missing = [p for p in programs if shutil.which(p) is None]
        if missing:
            item.add_marker(pytest.mark.skip(reason=f"not installed: {', '.join(missing)}"))


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None, status: int = 0) -> str:
    """Run a program; return what it printed, both streams together. Its exit status must be `status`."""
    environment = {**os.environ, **(env or {})}
    result = subprocess.run([str(c) for c in command], cwd=cwd, env=environment, text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    assert result.returncode == status, f"exit status {result.returncode}: {command}\n{result.stdout}"
    return result.stdout
