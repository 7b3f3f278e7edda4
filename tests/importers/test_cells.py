"""Recurrent nodes with sequences that end early and with clipped gates, pools and pads of rare forms: onnxruntime's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.model import ops
from edgebuild.model.formats import read_model
from edgebuild.model.ir import Array
from tests.importers.test_onnx import onnxruntime_outputs

STEPS, BATCH, FEATURES, HIDDEN = 5, 2, 4, 3
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(kind: str, direction: str, lengths: list[int] | None, computed: bool, **more: Any) -> onnx.ModelProto:
    rng, ways, rows = np.random.default_rng(0), 1 + (direction == "bidirectional"), GATES[kind] * HIDDEN
    shapes = {"w": (ways, rows, FEATURES), "r": (ways, rows, HIDDEN), "b": (ways, 2 * rows)}
    values = {name: rng.normal(0, 2, shape).astype(np.float32) for name, shape in shapes.items()}
    stored = [numpy_helper.from_array(value, name) for name, value in values.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (STEPS, BATCH, FEATURES))]
    if computed:
        inputs.append(helper.make_tensor_value_info("n", TensorProto.INT32, (BATCH,)))
    elif lengths is not None:
        stored.append(numpy_helper.from_array(np.array(lengths, np.int32), "n"))
    outputs = ["y", "h", *(["c"] if kind == "LSTM" else [])]
    operands = ["x", "w", "r", "b", "n" if lengths is not None else ""]
    node = helper.make_node(kind, operands, outputs, "node", hidden_size=HIDDEN, direction=direction, **more)
    ranks = (4, 3, 3)
    results = [
        helper.make_tensor_value_info(o, TensorProto.FLOAT, [None] * r) for o, r in zip(outputs, ranks, strict=False)
    ]
    graph = helper.make_graph([node], "one", inputs, results, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(proto: onnx.ModelProto, folder: Path, *more: Array) -> None:
    onnx.save(proto, folder / "m.onnx")
    graph = read_model(folder / "m.onnx")
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    feeds = [np.random.default_rng(1).normal(0, 1, shape).astype(np.float32), *more]
    values = ops.run(graph, *feeds)
    for name, want in zip(graph.outputs, onnxruntime_outputs(proto, feeds), strict=True):
        np.testing.assert_allclose(values[name], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lengths", [[3, 5], [2, 2], [5, 1]])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_sequences_that_end_early(kind: str, direction: str, lengths: list[int], tmp_path: Path) -> None:
    check(recurrent(kind, direction, lengths, False), tmp_path)


def test_lengths_that_the_graph_computes(tmp_path: Path) -> None:
    proto = recurrent("GRU", "bidirectional", [1], True, linear_before_reset=1)
    check(proto, tmp_path, np.array([4, 2], np.int32))


@pytest.mark.parametrize("kind", GATES)
def test_weights_that_nodes_make_of_constants(kind: str, tmp_path: Path) -> None:
    """PyTorch's exporter brings the gates of large cells into ONNX's order by Slice and Concat."""
    proto = recurrent(kind, "forward", None, False)
    stored = {t.name: t for t in proto.graph.initializer}
    rows, half = stored["r"].dims[1], stored["r"].dims[1] // 2
    whole = numpy_helper.to_array(stored["r"])
    stored["r"].CopyFrom(numpy_helper.from_array(np.roll(whole, half, 1), "rolled"))
    for name, value in {"zero": [0], "one": [1], "cut": [half], "end": [rows]}.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    for at, node in enumerate(
        [
            helper.make_node("Slice", ["rolled", "cut", "end", "one"], ["first"]),
            helper.make_node("Slice", ["rolled", "zero", "cut", "one"], ["last"]),
            helper.make_node("Concat", ["first", "last"], ["r"], axis=1),
        ]
    ):
        proto.graph.node.insert(at, node)
    check(proto, tmp_path)


def test_a_cell_in_the_body_of_a_condition(tmp_path: Path) -> None:
    proto = recurrent("GRU", "forward", None, False)
    body = helper.make_graph(list(proto.graph.node), "body", [], list(proto.graph.output)[:1])
    other = helper.make_graph([helper.make_node("Identity", ["none"], ["y2"])], "other", [], [
        helper.make_tensor_value_info("y2", TensorProto.FLOAT, (STEPS, 1, BATCH, HIDDEN))])  # fmt: skip
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros((STEPS, 1, BATCH, HIDDEN), np.float32), "none"))
    proto.graph.input.append(helper.make_tensor_value_info("if", TensorProto.BOOL, ()))
    node = helper.make_node("If", ["if"], ["out"], then_branch=body, else_branch=other)
    value = helper.make_tensor_value_info("out", TensorProto.FLOAT, (STEPS, 1, BATCH, HIDDEN))
    graph = helper.make_graph([node], "g", list(proto.graph.input), [value], list(proto.graph.initializer))
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for condition in (True, False):
        check(whole, tmp_path, np.array(condition))


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_clipped_gates(kind: str, direction: str, tmp_path: Path) -> None:
    """The sums of gates are clipped, the memory is not."""
    check(recurrent(kind, direction, None, False, clip=0.4), tmp_path)


PARAMETRIC_ACTIVATIONS = [
    ("LSTM", ["HardSigmoid", "Relu", "Tanh"], {"activation_alpha": [0.3], "activation_beta": [0.4]}),
    ("LSTM", ["HardSigmoid", "LeakyRelu", "Elu"], {"activation_alpha": [0.3, 0.2, 0.7], "activation_beta": [0.4]}),
    ("LSTM", ["HardSigmoid", "LeakyRelu", "HardSigmoid"], {}),
    ("GRU", ["HardSigmoid", "Softsign"], {"activation_alpha": [0.15], "activation_beta": [0.6]}),
    ("RNN", ["ThresholdedRelu"], {"activation_alpha": [0.5]}),
]


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize(("kind", "names", "values"), PARAMETRIC_ACTIVATIONS)
def test_activations_with_parameters(
    kind: str, names: list[str], values: dict[str, list[float]], direction: str, tmp_path: Path
) -> None:
    """Values go to the activations that take one, in their order; of two directions, those of the second follow."""
    ways = 1 + (direction == "bidirectional")
    both = {key: [v + 0.05 * side for side in range(ways) for v in own] for key, own in values.items()}
    check(recurrent(kind, direction, None, False, activations=names * ways, **both), tmp_path)


@pytest.mark.parametrize(("names", "text"), [(["Affine"], "activation Affine"), (["Tanh"] * 3, "3 activations for 1")])
def test_activations_that_are_refused(names: list[str], text: str, tmp_path: Path) -> None:
    onnx.save(recurrent("RNN", "forward", None, False, activations=names), tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match=text):
        read_model(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("kind", "constants", "attributes"),
    [
        ("AveragePool", [], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("AveragePool", [], {"kernel_shape": [2, 3], "strides": [2, 3], "pads": [1, 0, 0, 1]}),
        ("AveragePool", [], {"kernel_shape": [4, 2], "strides": [3, 2], "pads": [0, 1, 2, 0], "dilations": [1, 2]}),
        ("Pad", [np.array([0, 0, -1, 2, 0, 0, 1, -2], np.int64), np.array(1.5, np.float32)], {}),
        ("Pad", [np.array([0, -1, 0, -2, 0, 0, -3, 0], np.int64), np.array(-2.0, np.float32)], {}),
    ],
)
def test_windows_and_borders(kind: str, constants: list[Array], attributes: dict[str, Any], tmp_path: Path) -> None:
    """The file's own padding counts, what ceil_mode adds does not. A border is cut off and added in one node."""
    if kind == "AveragePool":
        attributes = {**attributes, "ceil_mode": 1, "count_include_pad": 1}
    names = [f"c{i}" for i in range(len(constants))]
    stored = [numpy_helper.from_array(c, n) for c, n in zip(constants, names, strict=True)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 2, 8, 10))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)
    graph = helper.make_graph([helper.make_node(kind, ["x", *names], ["y"], "n", **attributes)], "g", [x], [y], stored)
    check(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), tmp_path)
