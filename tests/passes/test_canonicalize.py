"""Canonicalisation changes no output, of whatever is imported, and is done when it is done."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgebuild.model import ops
from edgebuild.model.importers import read_model
from edgebuild.model.ir import Graph, dump
from edgebuild.model.passes.canonicalize import canonicalize
from tests.graphs import (
    OPERATORS,
    examples,
    feeds,
    onnx_models,
    quantised,
    random_inputs,
    small_graphs,
    tflite_files,
)

FLOATS, INTEGERS, CHAINS, FILES = 60, 40, 100, 5


@cache
def float_models() -> list[onnx.ModelProto]:
    return examples(onnx_models(), FLOATS)


def read_onnx(model: onnx.ModelProto, folder: Path) -> Graph:
    onnx.save(model, folder / "random.onnx")
    return read_model(folder / "random.onnx")


def same_surface(a: Graph, b: Graph) -> None:
    assert (a.inputs, a.outputs) == (b.inputs, b.outputs)
    for name in (*a.inputs, *a.outputs):
        assert a.tensors[name].shape == b.tensors[name].shape


def test_float_models_keep_their_outputs(tmp_path: Path) -> None:
    for seed, model in enumerate(float_models()):
        graph = read_onnx(model, tmp_path)
        canonical = canonicalize(graph)
        same_surface(graph, canonical)
        for vector in feeds(model, 2, seed):
            before, after = ops.run(graph, *vector), ops.run(canonical, *vector)
            for name in graph.outputs:
                size = float(abs(before[name]).max())
                np.testing.assert_allclose(after[name], before[name], 1e-5, 1e-5 * size, err_msg=dump(canonical))


@pytest.mark.parametrize("per_channel", [True, False])
def test_no_float_op_is_left_between_dequantize_and_quantize(per_channel: bool, tmp_path: Path) -> None:
    """Ops that the quantiser left in float stay so; most models have none."""
    integer = 0
    for model in float_models():
        canonical = canonicalize(read_onnx(quantised(model, per_channel), tmp_path))
        integer += all(t.dtype != "float32" for t in canonical.tensors.values())
        writers, readers = canonical.producers(), canonical.consumers()
        for op in canonical.ops:
            read = [writers.get(t.name) for t in canonical.operands(op) if not t.constant]
            reals = all(source is not None and source.kind == "dequantize" for source in read)
            quantised_only = {reader.kind for reader in readers[op.outputs[0]]} == {"quantize"}
            assert not (reals and quantised_only), f"{op.name}\n{dump(canonical)}"
    assert integer > FLOATS // 3


def test_chains_keep_their_outputs() -> None:
    for seed, graph in enumerate(examples(small_graphs(), CHAINS)):
        canonical = canonicalize(graph)
        same_surface(graph, canonical)
        for vector in random_inputs(graph, 3, seed):
            before, after = ops.run(graph, *vector), ops.run(canonical, *vector)
            for name in graph.outputs:
                if before[name].dtype == np.float32:
                    np.testing.assert_allclose(after[name], before[name], rtol=1e-5, atol=1e-5, err_msg=dump(graph))
                else:
                    np.testing.assert_array_equal(after[name], before[name], err_msg=dump(graph) + dump(canonical))


def test_twice_is_once(tmp_path: Path) -> None:
    graphs = [read_onnx(model, tmp_path) for model in float_models()]
    graphs += [read_onnx(quantised(model), tmp_path) for model in float_models()[:INTEGERS]]
    for operator in OPERATORS:
        for data in examples(tflite_files(operator), FILES):
            (tmp_path / "random.tflite").write_bytes(data)
            graphs.append(read_model(tmp_path / "random.tflite"))
    for graph in graphs:
        once = canonicalize(graph)
        twice = canonicalize(once)
        assert dump(twice) == dump(once)
        for t in once.tensors.values():
            if t.data is not None:
                np.testing.assert_array_equal(twice.tensors[t.name].data, t.data)
