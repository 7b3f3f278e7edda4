"""`edgebuild reproduce`: tables of papers beside ours, without the checkout's tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgebuild.build.papers import COMPUTED, as_text, papers, reproduce
from edgebuild.cli import main
from edgebuild.cli.parsing import TABLE


def test_the_command_knows_all_papers() -> None:
    assert TABLE["reproduce"]["arguments"]["paper"]["choices"] == list(papers()) == list(COMPUTED)
    for paper in papers().values():
        assert all(row.keys() <= paper.figures.keys() for row in paper.rows.values())


def test_the_tables_of_distribution_are_those_of_the_thesis(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """All 24 figures to the digits that are printed."""
    assert main(["reproduce", "deeperthings", "--json", str(tmp_path / "table.json")]) == 0
    assert "yolov2" in capsys.readouterr().out
    table = json.loads((tmp_path / "table.json").read_text())
    for row in table["rows"]:
        assert row["ours"] == pytest.approx(row["paper"], rel=0.005), row["case"]


@pytest.mark.needs("riscv64-unknown-elf-gcc", "gcc")
def test_drivers_need_the_accesses_of_the_thesis_and_less_memory() -> None:
    table = reproduce("drivers")
    for row in table["rows"]:
        assert row["ours"]["accesses"] == row["paper"]["accesses"]
        assert 0 < row["ours"]["map"] < row["paper"]["map"] and 0 < row["ours"]["bytes"] < row["paper"]["bytes"]
    assert table["rows"][2]["ours"]["time"] == sum(row["ours"]["time"] for row in table["rows"][:2])


def test_tiling_saves_more_than_in_the_paper() -> None:
    for case, ours in zip(("TXT", "MW"), COMPUTED["fdt"](["TXT", "MW"]), strict=True):
        paper = papers()["fdt"].rows[case]
        assert ours["fdt"] > paper["fdt"] and ours["ffmt"] >= paper["ffmt"], case


def test_mapping_beats_both_rules_and_says_that_it_is_modelled() -> None:
    table = reproduce("zigzag")
    assert [row["ours"]["layers"] for row in table["rows"]] == [row["paper"]["layers"] for row in table["rows"]]
    assert all(row["ours"]["dory"] > 15 and row["ours"]["loma"] > 0 for row in table["rows"])
    line = next(line for line in as_text(table).splitlines() if line.startswith("B "))
    assert line.count("~") == 2 and "34.55 / ~" in line


def test_a_paper_of_another_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "dori"])
    assert stop.value.code == 2 and "dory" in capsys.readouterr().err
