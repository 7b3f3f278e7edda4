"""Units side by side: one that ends its process is found out, and the others are done."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.fuzz.machine import Failure

SCRIPT = """
import os, sys
from pathlib import Path
from types import SimpleNamespace
from tests.fuzz import units
from tests.fuzz.__main__ import work
from tests.fuzz.journal import Journal

deadly = {int(n) for n in sys.argv[3:]}

def part(unit, place, scores):
    if unit.seed in deadly:
        os._exit(3)
    return iter(())

units.OTHERS["energy"] = part
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    options = SimpleNamespace(jobs=int(sys.argv[2]), seconds=None, output=folder, programs=0, no_vnni=False)
    options.scheduler = None
    for result in work([units.Unit("energy", n) for n in range(6)], options, Journal(folder, False), 0.0):
        print(result.unit.split()[1], len(result.failures), flush=True)
"""


def pool(folder: Path, jobs: int, *deadly: int) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(folder), str(jobs), *map(str, deadly)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, text=True, capture_output=True, timeout=300)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_unit_that_ends_its_process_is_the_only_one_blamed(jobs: int, tmp_path: Path) -> None:
    done = pool(tmp_path, jobs, 2)
    assert done.returncode == 0, done.stderr[-2000:]
    assert sorted(done.stdout.split("\n")) == ["", *(f"{n} {int(n == 2)}" for n in range(6))]


@pytest.mark.slow
def test_a_pool_that_breaks_again_and_again_ends_the_run(tmp_path: Path) -> None:
    done = pool(tmp_path, 1, *range(6))
    assert done.returncode != 0
    assert "3 processes in a row" in done.stderr
    assert len(done.stdout.split("\n")) < 4


def test_a_failure_goes_from_one_process_to_another() -> None:
    """It takes a traceback, as every exception, and arrives as it was."""
    failure = Failure("wrong", "1 of 2", "differs")
    try:
        raise failure
    except Failure as caught:
        caught.__traceback__ = None
    again = pickle.loads(pickle.dumps(failure))
    assert (again.kind, again.where, again.text, again.cause) == ("wrong", "1 of 2", "differs", "wrong 1 of 2")


@pytest.mark.slow
def test_a_folder_relative_to_here(tmp_path: Path) -> None:
    """Compilers run in folders of their own, where a relative path leads elsewhere."""
    command = [sys.executable, "-m", "tests.fuzz", "--only", "networks", "--forms", "tflite", "--targets", "host"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command += ["--seed", "21", "--count", "1", "--programs", "1", "-o", "out"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "out" / "fuzz.json").exists()
