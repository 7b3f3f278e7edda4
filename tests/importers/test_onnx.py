"""ONNX models, imported and canonical, against onnxruntime without its optimisations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.model import ops
from edgebuild.model.formats import read_model
from edgebuild.model.ir import Array, Graph, dump
from edgebuild.model.passes.canonicalize import canonicalize
from tests.graphs import LAYERS, described, examples, feeds, onnx_layers, onnx_models, powers_of_two, quantised

MODELS, PER_LAYER, VECTORS = 60, 10, 3
DIVIDING = {"avg_pool2d", "mean", "softmax"}  # by numbers that are no powers of two


def imported(model: onnx.ModelProto, folder: Path) -> Graph:
    onnx.save(model, folder / "random.onnx")
    return canonicalize(read_model(folder / "random.onnx"))


def onnxruntime_outputs(model: onnx.ModelProto, vector: list[Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {i.name: x for i, x in zip(session.get_inputs(), vector, strict=True)}))


def own_outputs(graph: Graph, vector: list[Array]) -> list[Array]:
    """Outputs for real inputs, as real numbers: what an application does at a quantised surface is done here."""
    inputs = []
    for name, x in zip(graph.inputs, vector, strict=True):
        if q := graph.tensors[name].quant:
            x = np.clip(np.rint(x / np.float32(q.scale[0])) + q.zero_point[0], -128, 127).astype(np.int8)
        inputs.append(x)
    results = ops.run(graph, *inputs)
    values = []
    for name in graph.outputs:
        q, y = graph.tensors[name].quant, results[name]
        values.append(y if q is None else ((y.astype(np.float32) - q.zero_point[0]) * np.float32(q.scale[0])))
    return values


def compare(model: onnx.ModelProto, graph: Graph, seed: int, steps: int) -> None:
    """Quantised outputs differ by at most `steps` in the last place, float ones by 1e-5 of the largest."""
    for vector in feeds(model, VECTORS, seed):
        wanted = onnxruntime_outputs(model, vector)
        for name, want, have in zip(graph.outputs, wanted, own_outputs(graph, vector), strict=True):
            assert have.shape == want.shape
            q = graph.tensors[name].quant
            slack = 1e-5 * float(abs(want).max()) if q is None else q.scale[0] * (steps + 0.01)
            np.testing.assert_allclose(have, want, rtol=1e-5, atol=slack, err_msg=f"{name}\n{described(graph)}")


def test_float_models(tmp_path: Path) -> None:
    for seed, model in enumerate(examples(onnx_models(), MODELS)):
        compare(model, imported(model, tmp_path), seed, 0)


@pytest.mark.parametrize("unsigned", [False, True], ids=["int8", "uint8"])
def test_quantised_models_with_scales_that_are_powers_of_two(unsigned: bool, tmp_path: Path) -> None:
    """All arithmetic is exact then, so there is no difference, however deep the model."""
    exact = 0
    for seed, model in enumerate(examples(onnx_models(), MODELS)):
        rounded = powers_of_two(quantised(model, unsigned=unsigned))
        graph = imported(rounded, tmp_path)
        if not DIVIDING & {op.kind for op in graph.ops}:
            compare(rounded, graph, seed, 0)
            exact += 1
    assert exact > MODELS // 5


@pytest.mark.parametrize("per_channel", [True, False], ids=["channel", "tensor"])
@pytest.mark.parametrize("layer", LAYERS)
def test_quantised_layer(layer: str, per_channel: bool, tmp_path: Path) -> None:
    """A layer differs by at most one step for each requantisation; the head of a model has up to five of them."""
    for seed, model in enumerate(examples(onnx_layers(layer), PER_LAYER)):
        integer = quantised(model, per_channel)
        compare(integer, imported(integer, tmp_path), seed, 5 if layer == "head" else 1)
        rounded = powers_of_two(integer)
        graph = imported(rounded, tmp_path)
        if not DIVIDING & {op.kind for op in graph.ops}:
            compare(rounded, graph, seed, 0)


def test_names_and_shapes_of_the_surface_are_those_of_the_file(tmp_path: Path) -> None:
    for model in examples(onnx_models(), MODELS):
        for proto in (model, quantised(model)):
            graph = imported(proto, tmp_path)
            for names, values in ((graph.inputs, proto.graph.input), (graph.outputs, proto.graph.output)):
                assert list(names) == [value.name for value in values], dump(graph)
                for name, value in zip(names, values, strict=True):
                    shape = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
                    assert graph.tensors[name].shape == shape


@pytest.mark.parametrize("bounds", [("low", ""), ("", "high"), ("low", "high"), ("low", "three")])
def test_clip_between_bounds_that_the_graph_computes(bounds: tuple[str, str], tmp_path: Path) -> None:
    """Where they cross, the upper one counts. Melspectrograms keep 80 dB below their largest value so."""
    nodes = [
        helper.make_node("ReduceMin", ["x"], ["least"], keepdims=0),
        helper.make_node("Mul", ["least", "half"], ["low"]),
        helper.make_node("Neg", ["low"], ["high"]),
        helper.make_node("Clip", ["x", *bounds], ["y"]),
    ]
    stored = [numpy_helper.from_array(np.array(v, np.float32), n) for n, v in (("half", 0.5), ("three", -3.0))]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (2, 3, 4)) for n in "xy")
    model = helper.make_model(helper.make_graph(nodes, "clip", [x], [y], stored), ir_version=8,
                              opset_imports=[helper.make_opsetid("", 17)])  # fmt: skip
    onnx.save(model, tmp_path / "model.onnx")
    graph = read_model(tmp_path / "model.onnx")
    values = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
    (right,) = onnxruntime_outputs(model, [values])
    np.testing.assert_array_equal(ops.run(graph, values)[graph.outputs[0]].reshape(right.shape), right)


# Places of the values 1 and 2 in a 3 x 4 matrix; text of the error.
SPARSE = [([1, 11], ""), ([[0, 1], [2, 3]], ""), ([11, 1], ""), ([3, 3], ""),
          *[(places, "sparse constant 'w' is damaged") for places in ([1, 12], [-1, 3], [[0, 1], [3, 0]], [1, 2, 3])],
          ([1, 2], "at most 1073741824 bytes")]  # fmt: skip


@pytest.mark.parametrize("inside", ["graph", "node"])
@pytest.mark.parametrize("places, text", SPARSE)
def test_sparse_constants_are_dense_ones(places: Any, text: str, inside: str, tmp_path: Path) -> None:
    values = numpy_helper.from_array(np.array([1, 2], np.float32), "w")
    shape = [1 << 20, 1 << 20] if "at most" in text else [3, 4]
    w = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(places, np.int64)), shape)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 3]), ("y", None)))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    nodes = [helper.make_node("Constant", [], ["w"], sparse_value=w)] * (inside == "node") + nodes
    graph = helper.make_graph(nodes, "g", [x], [y], sparse_initializer=[w] * (inside == "graph"))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    if text:
        with pytest.raises(EdgebuildError, match=text):
            read_model(tmp_path / "m.onnx")
        return
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = ops.run(canonicalize(read_model(tmp_path / "m.onnx")), rows)["y"]
    np.testing.assert_array_equal(result, onnxruntime_outputs(model, [rows])[0])


def test_a_model_without_outputs_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "none", [x], [])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), file)
    with pytest.raises(EdgebuildError, match=r"model\.onnx: error: the model has no outputs\n.*--outputs"):
        read_model(file)
    assert len(read_model(file, outputs=("y",)).ops) == 1
