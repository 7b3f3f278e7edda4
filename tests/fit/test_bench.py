"""The table over models and targets: its columns, what an earlier run changes of it, and what cannot be compared."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from edgebuild.build.benchmark import COLUMNS, COMPARED
from edgebuild.cli import main
from tests.conftest import ROOT

DIGITS = str(ROOT / "sample_projects/digits/digits.onnx")
CHIPS = ["--targets", "stm32f411,nrf51822"]


def bench(folder: Path, *words: str) -> list[dict[str, Any]]:
    assert main(["bench", DIGITS, *words, "-o", str(folder)]) == 0
    data = json.loads((folder / "bench.json").read_text())
    assert data["columns"] == list(COLUMNS) and all(list(row) == list(COLUMNS) for row in data["rows"])
    rows: list[dict[str, Any]] = data["rows"]
    return rows


def test_two_runs_differ_in_seconds_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = bench(tmp_path, *CHIPS)
    again = bench(tmp_path, *CHIPS, "--base", str(tmp_path / "bench.json"))
    changes = {f"{name} change" for name in COMPARED}
    for old, new in zip(first, again, strict=True):
        assert {k: v for k, v in old.items() if k not in changes | {"seconds"}}.items() <= new.items()
        assert {new[name] for name in changes} == {0.0} and {old[name] for name in changes} == {None}
        assert new["fits"] and new["basis"] == "modelled" and new["equal"] is None
    table = capsys.readouterr().out.splitlines()[-4:]
    assert table == (tmp_path / "bench.md").read_text().splitlines() and "(=)" in table[-1]
    with open(tmp_path / "bench.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["arena"] for row in rows] == [str(row["arena"]) for row in again]


def test_changes_are_percent_of_the_row_of_the_base(tmp_path: Path) -> None:
    first = bench(tmp_path, *CHIPS)
    rolled = bench(tmp_path, *CHIPS, "--tile", "rolling", "--base", str(tmp_path / "bench.json"))
    for old, new in zip(first, rolled, strict=True):
        assert new["arena"] < old["arena"] and new["arena change"] == round(100 * (new["arena"] / old["arena"] - 1), 4)


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
def test_what_an_emulator_runs_is_counted(tmp_path: Path) -> None:
    (row,) = bench(tmp_path, "--targets", "mps2-an386")
    assert row["basis"] == "counted" and row["equal"] and row["instructions"] > row["macs"] and row["stack"] > 0


def test_what_does_not_fit_is_a_row(tmp_path: Path) -> None:
    (row,) = bench(tmp_path, "--targets", "stm32f411", "--ram", "100")
    assert row["fits"] is False and row["arena"] is None


@pytest.mark.parametrize("text", ["{}", "no JSON", '{"kind": "bench", "schema": 9, "rows": []}',
                                  '{"kind": "bench", "schema": 1, "rows": [{"model": "x"}]}'])  # fmt: skip
def test_other_files_are_no_base(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old.json").write_text(text)
    assert main(["bench", DIGITS, *CHIPS, "--base", str(tmp_path / "old.json"), "-o", str(tmp_path / "out")]) == 1
    assert "not a table of `edgebuild bench`" in capsys.readouterr().err and not (tmp_path / "out").exists()
