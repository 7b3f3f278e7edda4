"""Softmax whose exponentials are computed: the table's values, and plans that take it where the table takes flash."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import kernels
from edgebuild.model.arithmetic import Arithmetic
from edgebuild.model.compile import plan_model
from edgebuild.model.kernels import kernel_of
from edgebuild.model.ops import normalization
from tests.kernels.test_processors import NEEDS, check, integer, preferring
from tests.ops.host import checked
from tests.zoo.builders import ZOO, quantized

PROGRAM = """
#include <stdint.h>
#include <stdio.h>
{helpers}
int main(void)
{{
{calls}
    return 0;
}}
"""
CALL = '    for (int32_t d = 0; d < {n}; ++d) printf("%ld\\n", (long)eb_exp_of_distance(d, {m}, {shift}));'


@pytest.mark.needs("gcc")
def test_exponentials_are_those_of_the_table(tmp_path: Path) -> None:
    scales = np.exp(np.random.default_rng(0).uniform(np.log(1e-5), np.log(8.0), 60))
    scales = np.concatenate([scales, [2.0**-k for k in range(-2, 12)]])
    tables = [normalization._exp_table(float(scale)) for scale in scales]
    factors = [normalization.distance_factor(float(scale)) for scale in scales]
    found = kernels.used_helpers(["eb_exp_of_distance"], Arithmetic.TFLITE)
    calls = (CALL.format(n=len(t), m=m.mantissa, shift=m.shift) for t, m in zip(tables, factors, strict=True))
    text = PROGRAM.format(helpers="\n".join(h.text for h in found), calls="\n".join(calls))
    (tmp_path / "exponentials.c").write_text(text)
    flags = ["-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    checked(["gcc", *flags, "exponentials.c", "-o", "exponentials"], tmp_path)
    printed = checked(["./exponentials"], tmp_path).split()
    assert [int(line) for line in printed] == [value for table in tables for value in table]


@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", ["mps2-an386", "microbit"])
def test_softmax_without_a_table(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "by_cost", preferring("computed exponentials"))
    check(target, integer("softmax", 6), tmp_path)


def test_a_plan_weighs_the_table_against_instructions(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(quantized(ZOO["ds_cnn"]()).SerializeToString())
    taken = {}
    for optimize in ("speed", "balanced"):
        options = {"tile": "off", "optimize": optimize}
        plan = plan_model(model_request(file, "model", "mps2-an386", options), load_target("mps2-an386"))
        pairs = [pair for s in plan.steps for pair in zip(s.ops, s.forms, strict=True)]
        made = [kernel_of(op, plan.graph, form) for op, form in pairs if op.kind == "softmax"]
        taken[optimize] = [(k.variant, len(k.constants)) for k in made]
    assert taken == {"speed": [("portable", 1)], "balanced": [("computed exponentials", 0)]}
