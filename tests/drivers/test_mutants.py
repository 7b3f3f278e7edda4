"""Faults in generated drivers: a proof accepts none that a random trace shows. `./sconsw fuzz` has more."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgebuild.base.artifacts import Artifact
from tests.drivers import mutants
from tests.drivers.judge import Judge

pytest.importorskip("z3")
from edgebuild.driver.prove import compare, verdicts

pytestmark = pytest.mark.needs("riscv64-unknown-elf-gcc")


SLOW = (1, 7, 13, 22, 27)  # drivers, by their numbers, with proofs of a second and more


@pytest.mark.parametrize("number", [14, 31, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def test_no_fault_that_a_trace_shows_is_proved(number: int, tmp_path: Path) -> None:
    name, build = mutants.subject(number)
    score = mutants.judged(*build(tmp_path), 6, 5, tmp_path)
    assert score.false == [], name
    assert score.planted == 6 and score.refuted, "no mutant was refuted: the test shows nothing"


def test_a_trusting_proof_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that finds all ways alike."""
    for room in (verdicts, compare):
        monkeypatch.setattr(room, "compare", lambda *_: None)
    _, build = mutants.subject(31)
    assert mutants.judged(*build(tmp_path), 6, 5, tmp_path).false


def test_the_judge_distinguishes_programs(tmp_path: Path) -> None:
    _, build = mutants.subject(1)
    driver, artifacts = build(tmp_path)
    judge = Judge(driver, tmp_path)
    assert "spi_open" in judge.judged()
    files = {a.name: a.data for a in artifacts}
    one, same = judge.compiled(files, "one"), judge.compiled(files, "same")
    other = {**files, "case.c": files["case.c"].replace(b"divider", b"(divider + 1)", 2)}
    wrong = judge.compiled({n: d.replace(b"int (divider + 1)", b"int divider") for n, d in other.items()}, "wrong")
    assert one and same and wrong
    assert not any(judge.difference(one, same, f, range(4)) for f in judge.judged())
    assert judge.difference(one, wrong, "spi_open", range(4))
    shutil.rmtree(tmp_path / "wrong")
    assert judge.compiled({"case.c": b"no C"}, "wrong") is None
    assert all(isinstance(a, Artifact) for a in artifacts)
