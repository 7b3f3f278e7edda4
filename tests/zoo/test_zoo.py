"""The zoo's files are valid, of the published sizes, and alive."""

from __future__ import annotations

import math
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from .builders import SWIFTNET_CELLS, ZOO, ds_cnn, quantized, random_inputs
from .mobilenet_v2 import mobilenet_v2
from .others import OTHERS
from .pictures import PICTURES

MACS = {  # of the published networks; that of swiftnet_like is not published, as its wiring is ours
    "ds_cnn": 2_656_768,
    "mobilenet_v1": 7_489_664,
    "resnet8": 12_501_632,
    "autoencoder": 264_192,
}
FORMATS = ["float", "int8"]


@cache
def model(name: str, format: str) -> onnx.ModelProto:
    return quantized(model(name, "float")) if format == "int8" else ZOO[name]()


def shapes(model: onnx.ModelProto) -> dict[str, list[int]]:
    """The shape of every tensor; a missing or symbolic dimension is 0."""
    graph = model.graph
    sizes = {constant.name: list(constant.dims) for constant in graph.initializer}
    for value in [*graph.input, *graph.output, *graph.value_info]:
        sizes[value.name] = [d.dim_value for d in value.type.tensor_type.shape.dim]
    return sizes


def macs(model: onnx.ModelProto) -> int:
    """Multiplications of weights and activations in convolutions and dense layers."""
    shape, total = shapes(model), 0
    for node in model.graph.node:
        if node.op_type in ("Conv", "Gemm"):  # weights [out, in, ...], as transB = 1 in every Gemm here
            total += math.prod(shape[node.output[0]]) * math.prod(shape[node.input[1]][1:])
    return total


def run(model: onnx.ModelProto, inputs: np.ndarray) -> list[np.ndarray]:
    """Every output of `model`, those of all `inputs` stacked."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results = [session.run(None, {"input": x}) for x in inputs]
    return [np.stack(values) for values in zip(*results, strict=True)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ZOO)
def test_valid_and_static(name: str, format: str) -> None:
    network = model(name, format)
    onnx.checker.check_model(network, full_check=True)
    sizes = shapes(network)
    for node in network.graph.node:
        for tensor in node.output:
            assert 0 not in sizes[tensor], tensor


@pytest.mark.parametrize("name", ZOO)
def test_nothing_is_computed_in_vain(name: str) -> None:
    graph = model(name, "float").graph
    read = {tensor for node in graph.node for tensor in node.input} | {output.name for output in graph.output}
    assert {tensor for node in graph.node for tensor in node.output} <= read
    assert {constant.name for constant in graph.initializer} <= read


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", MACS)
def test_macs(name: str, format: str) -> None:
    assert macs(model(name, format)) == MACS[name]


def test_macs_of_mobilenet_v2() -> None:
    assert macs(mobilenet_v2()) == 300_774_272


@pytest.mark.parametrize("opset", [13, 21])
def test_opset(opset: int) -> None:
    network = ds_cnn(opset=opset)
    assert [entry.version for entry in network.opset_import] == [opset]
    inputs = random_inputs(network, 2, seed=1)
    np.testing.assert_allclose(run(network, inputs)[0], run(model("ds_cnn", "float"), inputs)[0], rtol=1e-4, atol=1e-6)


def test_swiftnet_cells_have_the_published_sizes() -> None:
    assert [len(wiring.split()) for _, wiring in SWIFTNET_CELLS.values()] == [21, 19, 22]


@pytest.mark.parametrize("name", ZOO)
def test_activations_neither_die_nor_saturate(name: str) -> None:
    """Every int8 tensor uses its range, and differs from input to input, on inputs not seen in calibration."""
    network = onnx.ModelProto.FromString(model(name, "int8").SerializeToString())
    tensors = [node.output[0] for node in network.graph.node if node.op_type == "QuantizeLinear"]
    network.graph.output.extend(helper.make_tensor_value_info(tensor, TensorProto.INT8, None) for tensor in tensors)
    _, *values = run(network, random_inputs(network, 8, seed=1))
    for tensor, value in zip(tensors, values, strict=True):
        assert value.dtype == np.int8
        assert len(np.unique(value)) >= 10, tensor
        assert np.mean(value == 127) < 0.05, tensor
        assert np.mean(value == -128) < 0.9, tensor
        assert value.std(axis=0).mean() > 1, tensor


@pytest.mark.parametrize("name", ZOO)
def test_quantised_follows_float(name: str) -> None:
    """A tenth of the signal's power is noise in the deepest network; an unrelated output would have one or more."""
    inputs = random_inputs(model(name, "float"), 8, seed=1)
    expected, actual = (run(model(name, format), inputs)[0] for format in FORMATS)
    error, signal = actual - expected, expected - expected.mean()
    assert np.square(error).mean() < 0.25 * np.square(signal).mean()


@pytest.mark.slow
def test_command_is_deterministic(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    for folder in ("a", "b"):
        command = [sys.executable, "-m", "tests.zoo", "-o", str(tmp_path / folder)]
        subprocess.run(command, cwd=root, check=True, capture_output=True)
    written = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert written == sorted(
        [f"{name}{suffix}.onnx" for name in (*ZOO, *PICTURES, *OTHERS) for suffix in ("", "_int8")]
        + ["svdf_spotter.tflite"]
    )
    for name in written:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    assert onnx.load(tmp_path / "a" / "ds_cnn.onnx") == ds_cnn()
    assert ds_cnn(seed=1) != ds_cnn()
