"""Exponentials of floats, against numpy; those of integers in place of a table, and plans that weigh them."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import kernels
from edgebuild.model.compile import plan_model
from edgebuild.model.ir import Arithmetic
from edgebuild.model.kernels import kernel_of
from edgebuild.model.ops import normalization
from edgebuild.model.plan.search import form_of
from tests.graphs import thrown
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


FLOATS = """
#include <stdint.h>
#include <stdio.h>
{helpers}
int main(void)
{{
    float x;
    while (fread(&x, sizeof x, 1, stdin) == 1) {{
        const float y[2] = {{eb_exp(x), eb_exponential(x)}};
        fwrite(y, sizeof y, 1, stdout);
    }}
    return 0;
}}
"""


@pytest.mark.needs("gcc")
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_exponentials_of_floats(tmp_path: Path) -> None:
    helpers = kernels.used_helpers(["eb_exp", "eb_exponential"], Arithmetic.TFLITE)
    (tmp_path / "floats.c").write_text(FLOATS.format(helpers="\n".join(h.text for h in helpers)))
    flags = ["-std=c11", "-O1", "-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
    checked(["gcc", *flags, "floats.c", "-o", "floats"], tmp_path)
    x = np.arange(0, 2**32, 9973).astype(np.uint32).view(np.float32)
    x = np.concatenate([x, np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, -87.0, -103.9, 88.72])])
    run = subprocess.run(["./floats"], input=x.tobytes(), cwd=tmp_path, capture_output=True, check=True)
    below, everywhere = np.frombuffer(run.stdout, np.float32).reshape(-1, 2).T.astype(np.float64)
    truth = np.exp(x.astype(np.float64))
    normal = (x >= -87) & (x < 88.72)
    assert np.all(np.abs(everywhere - truth)[normal] <= 3e-7 * truth[normal])
    assert np.all(np.abs(below - truth)[normal & (x <= 0)] <= 3e-7 * truth[normal & (x <= 0)])
    assert not below[x < -87].any()
    assert np.all(np.abs(everywhere - truth)[x < -87] <= 3e-7 * truth[x < -87] + 2.0**-149)
    assert np.all(np.isposinf(everywhere[x > 88.73]))
    assert np.all(np.isnan(below[np.isnan(x)])) and np.all(np.isnan(everywhere[np.isnan(x)]))


@pytest.mark.needs("gcc")
def test_exponentials_are_those_of_the_table(tmp_path: Path) -> None:
    scales = np.exp(np.random.default_rng(0).uniform(np.log(1e-5), np.log(8.0), 60))
    scales = np.concatenate([scales, [2.0**-k for k in range(-2, 12)]])
    tables = [normalization._exp_table(float(scale)) for scale in scales]
    factors = [normalization.distance_factor(float(scale)) for scale in scales]
    helpers = kernels.used_helpers(["eb_exp_of_distance"], Arithmetic.TFLITE)
    calls = (CALL.format(n=len(t), m=m.mantissa, shift=m.shift) for t, m in zip(tables, factors, strict=True))
    text = PROGRAM.format(helpers="\n".join(h.text for h in helpers), calls="\n".join(calls))
    (tmp_path / "exponentials.c").write_text(text)
    flags = ["-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    checked(["gcc", *flags, "exponentials.c", "-o", "exponentials"], tmp_path)
    printed = checked(["./exponentials"], tmp_path).split()
    assert [int(line) for line in printed] == [value for table in tables for value in table]


@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize(("target", "variant"), [("mps2-an386", "by value"), ("microbit", "computed exponentials")])
def test_other_kernels_of_softmax(target: str, variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "by_cost", preferring(variant))
    check(target, integer("softmax", 6), tmp_path)


def test_counts_of_values_fit_in_16_bits() -> None:
    for classes, chosen in ((2**16 - 1, True), (2**16, False)):
        graph = thrown("softmax", 1)[0]
        graph = replace(graph, tensors={n: replace(t, shape=(1, classes)) for n, t in graph.tensors.items()})
        first = kernel_of(graph.ops[0], graph, form_of(load_target("mps2-an386")))
        assert ("by value" in {k.variant for k in (first, *first.alternatives)}) == chosen


def test_a_plan_weighs_the_table_against_instructions(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(quantized(ZOO["ds_cnn"]()).SerializeToString())
    variants = {}
    for optimize in ("speed", "balanced"):
        options = {"tile": "off", "optimize": optimize}
        plan = plan_model(model_request(file, "model", "mps2-an386", options), load_target("mps2-an386"))
        pairs = [pair for s in plan.steps for pair in zip(s.ops, s.forms, strict=True)]
        softmaxes = [kernel_of(op, plan.graph, form) for op, form in pairs if op.kind == "softmax"]
        variants[optimize] = [(k.variant, len(k.constants)) for k in softmaxes]
    assert variants == {"speed": [("portable", 1)], "balanced": [("computed exponentials", 0)]}
