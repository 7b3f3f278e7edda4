"""The check of the cycle model against CMSIS-NN on a board: what it counts, and that it holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.model.compile import prepare
from tests.bench_peers import LIBRARY, LIMIT, available, description, furthest, macs, measured
from tests.zoo.builders import ZOO

# Multiply-accumulates of the reference models: MLPerf Tiny's raw results are throughput, cycles come from these.
REFERENCE = {"ds_cnn": 2_656_768, "resnet8": 12_501_632, "mobilenet_v1": 7_489_664, "autoencoder": 264_192}


@pytest.mark.parametrize("name", REFERENCE)
def test_layers_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(ZOO[name]().SerializeToString())
    graph = prepare(file)
    assert macs(graph) == REFERENCE[name]
    text, *_ = description(graph)
    weighted = sum(op.kind in ("conv2d", "depthwise_conv2d", "dense") for op in graph.ops)
    assert sum(text.count(f"{layer}(") for layer in ("conv", "depthwise", "dense")) == weighted


@pytest.mark.slow
@pytest.mark.needs("qemu-system-arm", "arm-none-eabi-gcc")
@pytest.mark.skipif(not available(LIBRARY), reason="needs CMSIS-NN and the models of MLPerf Tiny")
def test_ratios_of_models_are_those_of_the_board() -> None:
    assert furthest(measured(LIBRARY), "flash")[0] < LIMIT
