"""Work on several processes of dask: the same results with any number of workers, and after one is lost."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgebuild.base import progress, workers
from edgebuild.base.errors import Diagnostic, EdgebuildError, MissingTool, fail
from edgebuild.base.request import ModelRequest
from edgebuild.base.workers import results
from edgebuild.cli import main
from edgebuild.model.compile import prepare
from edgebuild.model.fitting import chosen_targets, fit_rows
from tests.conftest import ROOT
from tests.fuzz.__main__ import work as fuzz_results
from tests.fuzz.journal import Journal
from tests.fuzz.units import Unit

distributed = pytest.importorskip("distributed", reason="not installed: distributed")
DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:
        yield cluster.scheduler_address


def _square(number: int) -> int:
    if number == 3:
        progress.warn(Diagnostic("three is odd", severity="warning"))
    return number * number


def _refuse(number: int) -> int:
    if number == 2:
        raise fail("two is refused", file="numbers", line=2)
    return number


def _lack(number: int) -> int:
    raise MissingTool(Diagnostic("qemu is not installed"))


def _end_once(folder: Path, number: int) -> int:
    """End the process the first time that this piece is tried."""
    mark = folder / f"{number}"
    if number % 3 == 1 and not mark.exists():
        mark.touch()
        os._exit(1)
    return number * number


def test_results_and_warnings_are_those_of_one_process(scheduler: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(results(_square, range(20), scheduler)) == list(results(_square, range(20), None))
    assert capsys.readouterr().err.count("warning: three is odd") == 2


def test_an_error_is_that_of_the_piece(scheduler: str) -> None:
    with pytest.raises(EdgebuildError, match="numbers:2: error: two is refused"):
        list(results(_refuse, range(5), scheduler))
    with pytest.raises(MissingTool, match="qemu is not installed"):
        list(results(_lack, range(5), scheduler))


def test_a_lost_worker_costs_time_only(scheduler: str, tmp_path: Path) -> None:
    work = functools.partial(_end_once, tmp_path)
    assert list(results(work, range(6), scheduler)) == [n * n for n in range(6)]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_worker_with_other_code_is_refused(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "code_digest", lambda: "other")
    with pytest.raises(EdgebuildError, match="a worker has another version of edgebuild"):
        list(results(_square, range(3), scheduler))


def test_chips_that_fit_are_the_same(scheduler: str) -> None:
    targets = chosen_targets("stm32f4*,rp2040,esp32c3")
    request = ModelRequest(DIGITS, "digits", "host")
    graph = prepare(DIGITS)
    assert fit_rows(graph, request, targets, scheduler) == fit_rows(graph, request, targets)


def test_random_networks_are_the_same(scheduler: str, tmp_path: Path) -> None:
    reports = []
    for name, address in (("here", None), ("there", scheduler)):
        options = argparse.Namespace(
            scheduler=address, jobs=1, seconds=None, no_vnni=False, programs=0, output=tmp_path / name
        )
        units, journal = [Unit("energy", n) for n in range(4)], Journal(tmp_path / name, False)
        reports.append({result.unit: result.failures for result in fuzz_results(units, options, journal, 0.0)})
    assert reports[0] == reports[1] and len(reports[0]) == 4


def test_schedulers_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "ENOUGH_S", 1)
    for address in ("tcp://127.0.0.1:1", "nonsense:x"):
        assert main(["fit", str(DIGITS), "--scheduler", address]) == 1
        assert f"option 'scheduler': cannot reach {address}" in capsys.readouterr().err
    with distributed.LocalCluster(n_workers=0, dashboard_address=None, silence_logs=50) as cluster:
        assert main(["fit", str(DIGITS), "--scheduler", cluster.scheduler_address]) == 1
    assert "has no workers" in capsys.readouterr().err


def test_without_dask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(workers, "import_module", absent)
    assert main(["fit", str(DIGITS), "--scheduler", "tcp://127.0.0.1:1"]) == 3
    assert "pip install edgebuild[workers]" in capsys.readouterr().err
