"""`--backend cmsis-nn` against a stand-in for the library: the calls pass what its interface asks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from tests.graphs import random_inputs, tiny_tflite
from tests.kernels.test_modes import check, crowds, source
from tests.ops import host

LIBRARY = Path(__file__).parent / "cmsis_nn"
ALWAYS = {"backend": "cmsis-nn", "cmsis_nn": LIBRARY, "optimize": "size"}  # where size counts, for all layers it knows
KINDS = ("conv2d", "depthwise_conv2d", "dense")
CALL = re.compile(r"^ +cmsis_\w+\($", re.M)


@pytest.mark.needs("gcc")
def test_calls_compute_what_the_ops_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "FLAGS", f"{host.FLAGS} -I{LIBRARY / 'Include'}")
    graphs = [g for g in crowds(KINDS) if g.arithmetic == "tflite"]
    calls = [len(CALL.findall(source(g, "host", **ALWAYS))) for g in graphs]
    assert len(graphs) == len(KINDS) and all(calls), calls
    inputs = [random_inputs(graph, 3, seed) for seed, graph in enumerate(graphs)]
    check(graphs, host.run_on_host(graphs, inputs, tmp_path, **ALWAYS), inputs)


def test_the_better_kernel_is_chosen() -> None:
    """On a core with DSP ours are, so that the library is called for what they cannot do."""
    (graph,) = (g for g in crowds(("conv2d",)) if g.arithmetic == "tflite")
    ours = len(CALL.findall(source(graph, "mps2-an386", backend="cmsis-nn", cmsis_nn=LIBRARY)))
    assert ours < len(CALL.findall(source(graph, "mps2-an386", **ALWAYS)))
    onnx = next(g for g in crowds(("conv2d",)) if g.arithmetic == "onnx")
    assert not CALL.search(source(onnx, "mps2-an386", **ALWAYS)), "another rounding"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.tflite"
    file.write_bytes(tiny_tflite())
    return file


@pytest.mark.needs("qemu-system-arm", "arm-none-eabi-gcc")
def test_a_firmware_with_the_library(tiny: Path) -> None:
    request = model_request(tiny, "model", "mps2-an386", {**ALWAYS, "cmsis_nn": str(LIBRARY)})
    artifacts = compile_model(request)
    assert any(CALL.search(a.data.decode()) for a in artifacts if a.name == "model.c")
    assert not any(str(LIBRARY).encode() in a.data for a in artifacts), (
        "the library's place is the build system's affair"
    )
    assert verify(tiny, load_target("mps2-an386"), artifacts, library=LIBRARY)["equal"]


@pytest.mark.parametrize("place", [None, "nowhere", "."])
def test_the_library_must_be_there(place: str | None, tiny: Path) -> None:
    with pytest.raises(EdgebuildError, match=r"Include/arm_nnfunctions\.h"):
        model_request(tiny, "model", "mps2-an386", {"backend": "cmsis-nn", "cmsis_nn": place})
