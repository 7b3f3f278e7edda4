"""`edgebuild tune`: what was measured is kept, and taken by compilations for such a processor and no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgebuild.base import cache
from edgebuild.base.artifacts import Artifact
from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest, model_request
from edgebuild.base.target import Target, load_target
from edgebuild.model import choices
from edgebuild.model.compile import compile_model, plan_model
from edgebuild.model.kernels import kernel_of, layer_name
from edgebuild.model.verify import report_of, verify
from edgebuild.model.verify.tune import CYCLES, tune
from tests.conftest import ROOT

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEBUILD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def request(target: str = "riscv-virt", **options: str) -> ModelRequest:
    return model_request(DIGITS, "model", target, {"tile": "off", **options})


def second_best(asked: ModelRequest) -> tuple[str, str]:
    """A layer of the model and a variant for it that the estimates do not prefer."""
    decided = plan_model(asked, load_target(asked.target))
    for section in decided.steps:
        (op,), (form,) = section.ops, section.forms
        kernel = kernel_of(op, decided.graph, form)
        for other in kernel.alternatives:
            if other.variant != kernel.variant:
                return layer_name(kernel, op, decided.graph), other.variant
    raise AssertionError("every layer has one variant only")


def source(asked: ModelRequest) -> bytes:
    return next(a.data for a in compile_model(asked) if a.name == "model.c")


def test_a_choice_holds_where_it_was_measured() -> None:
    layer, variant = second_best(request())
    assert choices.with_choices(request()) == request()
    assert choices.store(request(), {layer: variant}) is not None
    tuned = choices.with_choices(request())
    assert tuned.choices == (f"{layer}={variant}",)
    assert source(tuned) != source(request()) and cache.key(tuned, [str(DIGITS)]) != cache.key(request(), [str(DIGITS)])
    assert source(replace(tuned, choices=(f"{layer}=no such variant",))) == source(request())
    for other in (request("mps2-an386"), request(optimize="size")):
        assert choices.with_choices(other) == other
    assert choices.clear() == 1 and choices.with_choices(request()) == request()


@pytest.mark.slow
@pytest.mark.needs("qemu-system-riscv32", "riscv64-unknown-elf-gcc")
def test_what_is_kept_is_faster() -> None:
    messages: list[str] = []
    kept = tune(request(), messages.append)
    by_estimate, measured = (int(w.replace(",", "")) for w in messages[-1].split() if w[0].isdigit())
    assert len(messages) > 1 and measured <= by_estimate
    assert choices.read(request()) == kept and bool(kept) == (measured < by_estimate)


@pytest.mark.slow
@pytest.mark.needs("qemu-system-arm", "arm-none-eabi-gcc")
def test_cycles_are_measured_instead() -> None:
    messages: list[str] = []
    tune(request("mps2-an386"), messages.append, CYCLES)
    by_estimate, measured = (int(w.replace(",", "")) for w in messages[-1].split() if w[0].isdigit())
    counted = verify(DIGITS, load_target("mps2-an386"), compile_model(request("mps2-an386")), by_cycles=True)
    assert by_estimate == pytest.approx(counted["cycles"], rel=0.02) and " cycles " in messages[-1]
    assert bool(choices.read(request("mps2-an386"))) == (measured < by_estimate)


def test_a_variant_that_computes_other_values_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no variant that lacks room, which is passed over."""
    calls = list[int]()

    def verdict(model: Path, target: Target, artifacts: Sequence[Artifact], **more: Any) -> dict[str, Any]:
        calls.append(len(report_of(artifacts)["schedule"]["steps"]))
        rows = [{"instructions": 1000}] * calls[-1]
        return {"equal": len(calls) == 1, "max_abs_diff": 3, "layers": rows}

    monkeypatch.setattr("edgebuild.model.verify.tune.verify", verdict)
    with pytest.raises(EdgebuildError, match="differs from the reference by up to 3"):
        tune(request())
    assert len(calls) > 1


def test_without_a_cache_there_is_nothing_to_tune(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEBUILD_CACHE", "")
    with pytest.raises(EdgebuildError, match="the cache is off"):
        tune(request())
