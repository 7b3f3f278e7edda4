"""The gate of planted faults: it finds places for them, and says of each whether a test noticed.

Faults of the house itself are in here as far as their tests take a second. `./sconsw mutants` draws from all rooms.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

from tests.conftest import ROOT
from tests.mutants import __main__ as command
from tests.mutants import checkout, covered, rooms
from tests.mutants.faults import Fault, c_faults, python_faults
from tests.mutants.hooks import marks
from tests.mutants.rooms import ROOMS, Room

PYTHON = '''
    """A text with < and not."""
    def bounded(x: int | None, low=2) -> int:
        if x is not None and x < low:
            raise ValueError("less than 2")
        y = min(x << 1, 7)
        y += sum(x, key=-1)
        log(y)
        return y - low if not x else y
'''
C = """
    /* a < b */
    {% if s.ring and not s.separate %}
    y[i] = (int8_t)({{ use.eb_clamp }}(x[i] - s, low, high) >> 3);
    {% endif %}
    "ldrsb  r0, [r1], #4\\n\\t"
"""


def kinds(faults: list[Fault]) -> set[tuple[str, bytes, bytes]]:
    return {(f.kind, f.was, f.now) for f in faults}


def test_faults_of_python() -> None:
    text = dedent(PYTHON).encode()
    faults = python_faults(text, with_c=False)
    assert kinds(faults) >= {
        ("logic", b"and", b"or"), ("comparison", b"<", b"<="), ("comparison", b"is not", b"is"),
        ("constant", b"2", b"3"), ("constant", b"7", b"6"), ("min and max", b"min", b"max"), ("shift", b"<<", b">>"),
        ("dropped clamp", b"min(x << 1, 7)", b"(x << 1)"), ("arithmetic", b"-", b"+"), ("dropped not", b"not ", b""),
        ("deleted statement", b"log(y)", b"pass"), ("deleted statement", b"y += sum(x, key=-1)", b"pass"),
        ("deleted statement", b'raise ValueError("less than 2")', b"pass"), ("dropped argument", b", key=-1", b""),
        ("swapped operands", b"y - low", b"low - y"), ("swapped operands", b"y - low if not x else y",
                                                       b"y if not x else y - low"),
    }  # fmt: skip
    assert all(f.line(text) > 2 and f.was != b"|" for f in faults)  # documentation and annotations mean nothing
    for fault in faults:
        assert ast.dump(ast.parse(fault.planted(text))) != ast.dump(ast.parse(text))


def test_faults_of_c() -> None:
    faults = c_faults(C.encode())
    assert kinds(faults) >= {
        ("logic", b" and ", b" or "), ("dropped not", b" not ", b" "), ("index", b"i", b"i + 1"),
        ("arithmetic", b" - ", b" + "), ("shift", b" >> ", b" << "), ("type", b"int", b"uint"),
        ("constant", b"3", b"4"), ("constant", b"4", b"3"),
        ("dropped clamp", b"{{ use.eb_clamp }}(x[i] - s, low, high)", b"(x[i] - s)"),
        ("instruction", b"ldrsb", b"ldrb"),
    }  # fmt: skip
    assert not any(f.was == b" < " for f in faults)  # a comment
    assert any(f.kind == "deleted statement" and f.was.lstrip().startswith(b"y[i]") for f in faults)


def test_every_file_lies_in_a_room() -> None:
    """But for pictures, constants of the package, and drivers that are samples."""
    inside = [file for room in ROOMS.values() for file in rooms.files(room)]
    every = {p.relative_to(ROOT).as_posix() for kind in ("py", "j2") for p in ROOT.glob(f"edgebuild/**/*.{kind}")}
    every |= {p.relative_to(ROOT).as_posix() for kind in "chS" for p in ROOT.glob(f"hal/**/*.{kind}")}
    left = {f for f in every - set(inside) if not f.endswith(".svg.j2") and not f.startswith("hal/drivers/")}
    assert left <= {"hal/analysis/stdatomic.h"}, "tests/mutants/rooms.py"
    assert len(inside) == len(set(inside))
    tests = {test.partition("::")[0] for room in ROOMS.values() for test in (*room.tests, *room.keyed)}
    assert not [test for test in tests if not (ROOT / test).exists()], "tests/mutants/rooms.py"


def test_a_draw_depends_on_its_seed_only() -> None:
    names = ("merge", "hal", "passes")
    draws = [[(p.file, p.fault) for p in command.drawn(12, seed, names)] for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    assert len(draws[0]) == len(set(draws[0])) == 12


PROJECT = {
    "edgebuild/__init__.py": "",
    "edgebuild/counts.py": (
        "def down(n):\n    while n > 0:\n        n -= 1\n    return n\n\n\ndef idle(x):\n    return x % 9\n"
    ),
    "tests/test_counts.py": "from edgebuild.counts import down\n\n\ndef test_down():\n    assert down(3) == 0\n",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of a function with a test and of one without."""
    folder = tmp_path / "project"
    for name, text in PROJECT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")  # somebody else's, above the copy
    for module in (checkout, command, rooms):
        monkeypatch.setattr(module, "ROOT", folder)
    monkeypatch.setattr(checkout, "TEST_S", 3)
    (folder / ".venv").mkdir()
    monkeypatch.setattr(command, "ROOMS", {"counts": Room(("edgebuild/counts.py",), ("tests/test_counts.py",))})
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


@pytest.mark.slow
def test_the_command_tells_what_survives(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop without end is ended, and counts as noticed."""
    verdicts = {b"n -= 1": "timeout", b">": "failed", b"%": "survived"}
    file = "edgebuild/counts.py"
    text = (project / file).read_bytes()
    faults = {f.was: f for f in python_faults(text, False)}
    monkeypatch.setattr(
        command, "drawn", lambda *_: [command.Planted("counts", file, faults[w], text) for w in verdicts]
    )
    monkeypatch.setattr(sys, "argv", ["mutants", "--seed", "1", "-o", str(project / "build")])
    assert command.main() == 1
    summary = json.loads((project / "build" / "mutants.json").read_text())
    assert [row["why"] for row in summary["rows"]] == list(verdicts.values())
    assert [summary[name] for name in ("planted", "killed", "timeouts")] == [3, 2, 1]
    (survivor,) = summary["survivors"]
    assert [survivor[name] for name in ("file", "line", "was", "is")] == [file, 8, "%", "//"]
    assert {name: (project / name).read_text() for name in PROJECT} == PROJECT
    assert not list((project.parent / "scratch").iterdir())
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--resume"])
    monkeypatch.setattr(command, "judged", None)  # nothing is left to be judged
    assert command.main() == 1
    assert json.loads((project / "build" / "mutants.json").read_text()) == summary


def test_a_test_that_fails_by_itself_is_no_judge(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = project / "tests/test_counts.py"
    test.write_text(test.read_text() + "\n\ndef test_broken():\n    raise AssertionError\n")
    file = "edgebuild/counts.py"
    text = (project / file).read_bytes()
    faults = {f.was: f for f in python_faults(text, False)}
    monkeypatch.setattr(command, "drawn", lambda *_: [command.Planted("counts", file, faults[b"%"], text)])
    monkeypatch.setattr(sys, "argv", ["mutants", "--seed", "1", "-o", str(project / "build")])
    assert command.main() == 1
    summary = json.loads((project / "build" / "mutants.json").read_text())
    assert (summary["killed"], summary["unsound"]) == (0, ["tests/test_counts.py::test_broken"])


MAPPED = {
    "edgebuild/counts.py": '''
from functools import reduce

class Count:
    def down(self, n):
        return n and self.down(n - 1)

def product(some):
    """Of all."""
    return reduce(lambda a, b: a * b, some)

def idle():
    return 1
''',
    "tests/test_counts.py": """
import subprocess, sys, time
import pytest
from edgebuild.counts import Count, product

@pytest.mark.parametrize("n", [3, 4])
def test_slow(n):
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    assert product([1, 2]) == 2

def test_down():
    assert Count().down(3) == 0 and product([2, 3]) == 6

def test_program():
    text = "from edgebuild.counts import Count; Count().down(1)"
    subprocess.run([sys.executable, "-c", text], check=True)

def test_broken():
    assert Count().down(3)
""",
}


def test_a_map_says_which_tests_execute_a_function(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their own process or in one that they start; the quickest of each group of cases first."""
    for name, text in MAPPED.items():
        (project / name).write_text(text)
    (project / "hal").mkdir()
    monkeypatch.setattr(covered, "ROOT", project)
    monkeypatch.setattr(covered, "test_files", lambda: ["tests/test_counts.py"])
    assert list(covered.build(project / "build", 60)) == ["tests/test_counts.py"]
    assert not list(covered.build(project / "build", 60))
    by_function, file, test = covered.load(project / "build"), "edgebuild/counts.py", "tests/test_counts.py::test"
    assert set(by_function.of(file, "Count.down")) == {f"{test}_down", f"{test}_program"}
    tests = by_function.of(file, "product")
    assert (tests[0], {tests[1], tests[2]}) == (f"{test}_down", {f"{test}_slow[3]", f"{test}_slow[4]"})
    assert set(by_function.of(file, "product.<lambda>")) == set(tests)
    assert len(by_function.of(file, covered.MODULE)) == 4 and by_function.of(file, "idle") == []
    text = (project / file).read_bytes()
    assert [covered.function_at(file, text, line) for line in (2, 6, 10, 13)] == ["", "Count.down", "product", "idle"]
    (project / "tests/test_counts.py").write_text("")
    assert not covered.load(project / "build").tests


TEMPLATE = """{% macro first(x) %}
{{ x }}{% endmacro %}
{%- macro second() -%}2{%- endmacro %}
<{{ first(1) }}>
"""


def test_marks_change_no_template(tmp_path: Path) -> None:
    (tmp_path / "t.j2").write_text(TEMPLATE)
    (tmp_path / marks.BASES).write_text(json.dumps([str(tmp_path), {"t.j2": 4}]))
    (tmp_path / marks.MARKS).write_bytes(bytes(8))
    program = ("import jinja2; e = jinja2.Environment(loader=jinja2.FileSystemLoader('.'), trim_blocks=True); "
               "print(e.get_template('t.j2').render())")  # fmt: skip
    outputs = []
    for more in ({}, {marks.FOLDER: str(tmp_path), "PYTHONPATH": str(Path(marks.__file__).parent)}):
        environment = {k: v for k, v in os.environ.items() if k != marks.FOLDER} | more
        outputs.append(subprocess.check_output([sys.executable, "-c", program], cwd=tmp_path, env=environment))
    assert outputs[0] == outputs[1]
    assert (tmp_path / marks.MARKS).read_bytes() == bytes([0, 0, 0, 0, 1, 1, 0, 0])
    assert marks.macros(TEMPLATE) == [("first", 1, 2), ("second", 3, 3)]


def test_a_copy_has_all_that_is_no_product(tmp_path: Path) -> None:
    copy = checkout.Checkout(tmp_path, 60)

    def sources(root: Path) -> set[Path]:
        parts = (root / name for name in ("edgebuild", "hal", "tests", "docs", "sample_projects"))
        files = (f.relative_to(root) for part in parts for f in part.rglob("*") if f.is_file())
        return {f for f in files if "__pycache__" not in f.parts}

    assert sources(copy.root) == sources(ROOT)
    assert (copy.root / "sconsw").exists() and not (copy.root / "build").exists()


TABLE = ("tests/ops/test_table.py::test_integers[int8]", "tests/ops/test_table.py::test_floats[onnx]")


@pytest.mark.needs("gcc")
def test_a_slice_of_the_house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two faults of the table of functions, one of which may mean nothing."""
    monkeypatch.setattr(command, "ROOMS", {"functions": Room(("edgebuild/model/ops/functions.py",), TABLE, c=True)})
    monkeypatch.setattr(sys, "argv", ["mutants", "--seed", "1", "--count", "2", "-o", str(tmp_path)])
    command.main()
    summary = json.loads((tmp_path / "mutants.json").read_text())
    assert summary["planted"] == 2 and summary["killed"] >= 1, summary["survivors"]


def test_whoever_ends_it_finds_nothing_left(tmp_path: Path) -> None:
    """Neither folders nor processes, when the command ends in the midst of a test."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    arguments = ["--count", "1", "--seed", "1", "--rooms", "planner", "-o", str(tmp_path / "build")]
    process = subprocess.Popen([sys.executable, "-m", "tests.mutants", *arguments], cwd=ROOT, env=environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    start = time.monotonic()
    while not (tests := list(tmp_path.glob("mutants-*/scratch/output"))):
        assert process.poll() is None and time.monotonic() - start < 60
        time.sleep(0.1)
    time.sleep(0.5)
    running = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if str(tests[0]) in open_files(pid)]
    assert running
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert [f.name for f in tmp_path.iterdir()] == ["build"]
    assert not [pid for pid in running if Path(f"/proc/{pid}").exists()]


def open_files(pid: int) -> set[str]:
    try:
        return {os.readlink(f) for f in Path(f"/proc/{pid}/fd").iterdir()}
    except OSError:
        return set()
