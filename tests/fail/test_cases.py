"""Every folder here holds a command that fails: exit status 1, one clear diagnostic, nothing written."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
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
        match = re.search(line, rest)
        assert match, f"{line!r} is not in\n{diagnostics}"
        rest = rest[match.end() :]


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


def words_of(node: ast.expr, names: dict[str, ast.expr]) -> str:
    """The text of an expression, with `1` where a value is printed; `names`: what local names were assigned."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(
                words_of(part.value if isinstance(part, ast.FormattedValue) else part, names) for part in parts
            )
        case ast.BinOp(left=left, right=right):
            return words_of(left, names) + words_of(right, names)
        case ast.IfExp(body=body):
            return words_of(body, names)
        case ast.Name(id=name) if name in names:
            return words_of(names[name], {})
    return "1"


def texts_of_errors(function: ast.FunctionDef) -> Iterator[str]:
    """First lines of the errors that a function makes, as they are printed of a file `f`."""
    inside = [*ast.walk(function)]
    assigned = ((n.targets[0], n.value) for n in inside if isinstance(n, ast.Assign))
    names = {target.id: value for target, value in assigned if isinstance(target, ast.Name)}
    for call in (n for n in inside if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)):
        given = {keyword.arg for keyword in call.keywords}
        if isinstance(call.func, ast.Name) and call.func.id in ("fail", "Diagnostic") and call.args:
            text = words_of(call.args[0], names)
            if "severity" not in given and re.search("[a-z]{3}", text):
                yield "f: " + "node '1': " * ("node" in given) + f"error: {text}"


def test_every_text_of_an_error_is_of_a_kind() -> None:
    sources = [file.read_text() for file in (ROOT / "edgebuild").rglob("*.py")]
    files = [ast.parse(source) for source in sources if re.search(r"\b(fail|Diagnostic)\(", source)]
    functions = [n for file in files for n in ast.walk(file) if isinstance(n, ast.FunctionDef)]
    texts = {text for function in functions for text in texts_of_errors(function)}
    assert len(texts) > 300
    assert not [text for text in texts if code_of(text) == [*error_kinds()][-1]]


def test_as_a_process(tmp_path: Path) -> None:
    """One of them from the shell: status and streams are those of the function."""
    case = "weights_with_a_zero_point"
    command = [sys.executable, "-P", "-m", "edgebuild", *prepare(case, tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (1, "")
    check(case, done.stderr, tmp_path)


def test_cases_are_what_make_cases_makes() -> None:
    from tests.fail.make_cases import CASES as cases

    assert sorted(cases) == CASES
