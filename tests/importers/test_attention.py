"""Operators of transformers that are read as their standard's bodies: C against the standard's own tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench_onnx import cases, compile_case, run_batch

LEAST = {"Attention": 76, "RotaryEmbedding": 8}  # tests that are not refused, as those of windows are


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("operator", LEAST)
def test_equals_the_standard(operator: str, tmp_path: Path) -> None:
    """Among them masks of -inf, whole rows of them, and slices without elements."""
    chosen = list(cases(operator))
    for number, case in enumerate(chosen):
        compile_case(case, number, tmp_path)
    run_batch(chosen, 0, tmp_path)
    assert not [f"{case.name}: {case.why}" for case in chosen if case.verdict in ("wrong", "crashed")]
    assert sum(case.verdict == "passed" for case in chosen) >= LEAST[operator]
