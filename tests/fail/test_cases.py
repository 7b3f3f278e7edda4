"""Every folder here holds a command that fails: exit status 1, one clear diagnostic, nothing written."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgebuild.cli import main
from edgebuild.cli.common import code_of, error_kinds
from tests.conftest import ROOT
from tests.fail.test_mistakes import MISTAKES

HERE = Path(__file__).parent
CASES = sorted(folder.name for folder in HERE.iterdir() if (folder / "command.txt").exists())


def prepare(case: str, folder: Path) -> list[str]:
    shutil.copytree(HERE / case, folder, dirs_exist_ok=True)
    return shlex.split((folder / "command.txt").read_text())


def check(case: str, diagnostics: str, folder: Path) -> None:
    assert "Traceback" not in diagnostics
    assert not (folder / "out").exists() or not list((folder / "out").iterdir())
    rest = diagnostics
    for line in (HERE / case / "expected.txt").read_text().splitlines():
        found = re.search(line, rest)
        assert found, f"{line!r} is not in\n{diagnostics}"
        rest = rest[found.end() :]


@pytest.mark.parametrize("case", CASES)
def test_case(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    command = prepare(case, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(command) == 1
    output = capsys.readouterr()
    assert output.out == ""
    check(case, output.err, tmp_path)
    (code,) = re.findall(r"\n  `edgebuild explain (E\d{4})` says more$", output.err.rstrip())
    assert main(["explain", code]) == 0
    assert capsys.readouterr().out.startswith(f"{code}: ")


def test_cases_are_of_many_kinds() -> None:
    """Most kinds have a case whose expected text begins as they do, or a mistake that names them."""
    texts = [(HERE / case / "expected.txt").read_text().replace("\\", "") for case in CASES]
    mistakes = {code for _, *rows in MISTAKES for code in re.findall("explain (E.*)", rows[-1])}
    assert code_of("x: error: something else") == [*error_kinds()][-1]
    missing = error_kinds().keys() - {code_of(text) for text in texts} - mistakes
    assert missing <= {"E0101", "E0102", "E0103", "E0104", "E0204"}, missing


def test_as_a_process(tmp_path: Path) -> None:
    """One of them from the shell: status and streams are those of the function."""
    case = "weights_with_a_zero_point"
    command = [sys.executable, "-P", "-m", "edgebuild", *prepare(case, tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (1, "")
    check(case, done.stderr, tmp_path)


def test_cases_are_what_make_cases_makes() -> None:
    from tests.fail.make_cases import CASES as made

    assert sorted(made) == CASES
