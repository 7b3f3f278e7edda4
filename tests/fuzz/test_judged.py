"""The sweep over verdicts of `verify` misses no fault by itself: where the judge says "equal", it tells."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import edgebuild.model.verify as judge
from tests.fuzz import clusters, judged
from tests.fuzz.units import others

SEED = 4  # a network of few layers


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("verdict", [None, True, False])
def test_verdicts_of_the_judge_are_counted(
    verdict: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of `verify` as it is, of one that calls all equal, and of one that calls nothing equal."""
    scores = dict[str, int]()
    if verdict is not None:
        result: dict[str, Any] = {"equal": verdict, "differs": [], "differences": {}}
        monkeypatch.setattr(judge, "verify", lambda *_: result)
    file = judged.written("qdq", SEED, tmp_path)
    troubles = list(judged.judged(file, {"tile": "off"}, Random(1), tmp_path, scores, 1))
    kinds = {None: [], True: ["missed"], False: ["false_alarm"]}
    assert [t.kind for t in troubles] == kinds[verdict], troubles
    assert scores == {"judged": 1, **{None: {"faults_caught": 1}, True: {"faults_missed": 1}, False: {}}[verdict]}


def test_a_fault_behind_the_end_of_a_part_leaves_it_as_it_is() -> None:
    """An op that is cut along its channels has parts of several sizes and one name."""
    planted = judged.Fault("conv", "bias", 10, 3)
    for size in (4, 24):
        data = np.zeros(size, np.int32)
        assert list(planted._moved(data)) == [3 * (n == 10) for n in range(size)]


def test_units_of_verdicts_and_clusters_have_all_forms() -> None:
    assert {unit.form for unit in others("judge", 1, 2)} == set(judged.FORMS)
    assert {unit.form for unit in others("clusters", 1, 2)} == set(clusters.FORMS)


def test_a_dynamic_network_has_integer_products(tmp_path: Path) -> None:
    import onnx

    files = []
    for seed in range(4):
        try:
            files.append(judged.written("dynamic", seed, tmp_path))
        except ValueError:
            continue
    nodes = [node.op_type for file in files for node in onnx.load(file).graph.node]
    assert {"MatMulInteger", "ConvInteger"} & set(nodes)
