"""Which tests execute a function: a map, built once, test file by test file, and kept in build/mutants-map."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conftest import ROOT
from tests.mutants.checkout import Checkout
from tests.mutants.hooks import marks, recorder

MODULE = ""  # what is in no function runs when the module is imported: any of its functions tells who does
FOLDER = "mutants-map"
LONGEST_S = 420  # of one test: what takes longer hangs, and the rest of its file is left out
MAX_TESTS = 150  # tests of a fault: hundreds of cases of one test say little more


@dataclass
class Map:
    """`tests`: of each "file:function", seconds of the processor by test."""

    tests: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))

    def of(self, file: str, function: str) -> list[str]:
        """Tests that execute a function, the quickest of each group of cases first, then the second of each."""
        groups = defaultdict[str, list[tuple[float, str]]](list)
        for test, seconds in self.tests.get(f"{file}:{function}", {}).items():
            groups[test.partition("[")[0]].append((seconds, test))
        turns = zip_longest(*(sorted(group) for group in groups.values()))
        return [test for turn in turns for _, test in sorted(filter(None, turn))][:MAX_TESTS]


def names(root: Path) -> list[str]:
    """Of all that is marked, "file:function", in the order of its number. A template is its own first function."""
    marked = list[str]()
    for file in _sources(root):
        text = (root / file).read_text(encoding="utf-8")
        if file.endswith(".py"):
            marked += [f"{file}:{name}" for name, _ in marks.functions(ast.parse(text))]
        else:
            marked += [f"{file}:{name}" for name in (MODULE, *(name for name, _, _ in marks.macros(text)))]
    return marked


def function_at(file: str, text: bytes, line: int) -> str:
    """The innermost function of a line, as `names` names it; "" if there is none."""
    if file.endswith(".py"):
        spans = [(node.lineno, node.end_lineno, name) for name, node in marks.functions(ast.parse(text))
                 if not isinstance(node, ast.Lambda)]  # fmt: skip
    else:
        spans = [(first, last, name) for name, first, last in marks.macros(text.decode())]
    inside = [(last - first, name) for first, last, name in spans if first <= line <= last]
    return min(inside)[1] if inside else MODULE


def build(folder: Path, budget_s: float, tests: Iterable[str] | None = None) -> Iterator[str]:
    """Record the test files that have changed since they were recorded; gives their names."""
    with TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as place:
        copy = Checkout(Path(place), budget_s * 3)
        table = names(copy.root)
        bases: dict[str, int] = {}
        for number, name in enumerate(table):
            bases.setdefault(name.partition(":")[0], number)
        (copy.scratch / marks.BASES).write_text(json.dumps([str(copy.root), bases]))
        (copy.scratch / marks.MARKS).write_bytes(bytes(len(table)))
        for test in tests or test_files():
            if not _holds(folder, test):
                _record(folder, test, copy, table, budget_s)
                yield test


def test_files() -> list[str]:
    paths = sorted((ROOT / "tests").glob("*/test_*.py"))
    return [p.relative_to(ROOT).as_posix() for p in paths if p.parent.name not in ("mutants", "house")]


def load(folder: Path) -> Map:
    """Parts of the map that still hold."""
    loaded = Map()
    for test in test_files():
        if _holds(folder, test):
            content = json.loads(_part(folder, test).read_text())
            for name, seconds, executed in content["tests"]:
                for number in executed:
                    function = content["functions"][number]
                    loaded.tests[function][name] = seconds
                    loaded.tests[f"{function.partition(':')[0]}:{MODULE}"][name] = seconds
    return loaded


def _sources(root: Path) -> list[str]:
    paths = [p for kind in ("py", "j2") for p in (root / "edgebuild").rglob(f"*.{kind}")]
    return sorted(p.relative_to(root).as_posix() for p in paths if "__pycache__" not in p.parts)


def _part(folder: Path, test: str) -> Path:
    return folder / FOLDER / (test.replace("/", ".") + ".json")


def _holds(folder: Path, test: str) -> bool:
    """Whether a test file is in the map as it is now."""
    part = _part(folder, test)
    return part.exists() and json.loads(part.read_text())["digest"] == _digest(test)


def _digest(test: str) -> str:
    return hashlib.sha256((ROOT / test).read_bytes()).hexdigest()


def _record(folder: Path, test: str, copy: Checkout, table: list[str], budget_s: float) -> None:
    output = copy.scratch / "rows"
    output.write_text("")
    environment = {**os.environ, **copy.environment, marks.FOLDER: str(copy.scratch), recorder.BUDGET: str(budget_s)}
    environment |= {recorder.OUTPUT: str(output), recorder.HAL: str(copy.root / "hal")}
    environment["PYTHONPATH"] = f"{Path(marks.__file__).parent}{os.pathsep}{copy.root}"
    command = [*copy.pytest, "-p", "recorder", f"--timeout={LONGEST_S}", test]
    subprocess.run(command, cwd=copy.root, env=environment,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    executed = [(name, seconds, [*(table[n] for n in marked), *(f"{file}:{MODULE}" for file in read)])
                for name, seconds, marked, read in rows]  # fmt: skip
    functions = sorted({function for *_, some in executed for function in some})
    numbers = {function: number for number, function in enumerate(functions)}
    tests = [[name, seconds, [numbers[function] for function in some]] for name, seconds, some in executed]
    part = _part(folder, test)
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_text(json.dumps({"digest": _digest(test), "functions": functions, "tests": tests}))
