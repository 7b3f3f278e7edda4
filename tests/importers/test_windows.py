"""Windows that are read as other nodes: in three dimensions, or with weights that the graph computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.compile import compile_model
from edgebuild.model.formats import read_model
from edgebuild.model.passes.canonicalize import canonicalize
from edgebuild.model.verify import verify
from tests.exporters.writer import quantised
from tests.importers.test_onnx import onnxruntime_outputs

# Operator; shape of the input; shapes of weights and bias; attributes.
Case = tuple[str, tuple[int, ...], list[tuple[int, ...]], dict[str, Any]]
CUBE = (1, 4, 5, 6, 7)
IN_SPACE: dict[str, Case] = {
    "conv": ("Conv", CUBE, [(6, 4, 2, 3, 3), (6,)], {"pads": [1, 0, 1, 0, 1, 1], "strides": [1, 2, 2]}),
    "conv in groups": ("Conv", (2, *CUBE[1:]), [(6, 2, 3, 2, 1), (6,)], {"group": 2, "dilations": [2, 1, 1]}),
    "conv of channels": ("Conv", CUBE, [(4, 1, 3, 3, 3)], {"group": 4, "auto_pad": "SAME_UPPER"}),
    "conv, same below": ("Conv", CUBE, [(2, 4, 2, 2, 2)], {"auto_pad": "SAME_LOWER", "strides": [2, 1, 3]}),
    "max": ("MaxPool", CUBE, [], {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2], "pads": [1, 1, 0, 0, 1, 1]}),
    "max, last ones too": ("MaxPool", CUBE, [], {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2], "ceil_mode": 1}),
    "average": ("AveragePool", CUBE, [], {"kernel_shape": [3, 2, 2], "pads": [1, 0, 1, 1, 1, 0], "strides": [2, 1, 1]}),
    "average of padding": (
        "AveragePool", CUBE, [], {"kernel_shape": [3, 3, 3], "pads": [1] * 6, "count_include_pad": 1, "ceil_mode": 1,
                                  "strides": [2, 2, 2]},
    ),
    "average of all": ("GlobalAveragePool", CUBE, [], {}),
    "maximum of all": ("GlobalMaxPool", CUBE, [], {}),
}  # fmt: skip
COMPUTED: dict[str, Case] = {
    "lines": ("Conv", (2, 3, 11), [(4, 3, 3), (4,)], {"pads": [2, 1], "strides": [2]}),
    "images": ("Conv", (1, 4, 6, 7), [(6, 4, 3, 2), (6,)], {"pads": [1, 0, 1, 2], "dilations": [2, 1]}),
    "correlation": ("Conv", (1, 3, 8, 8), [(3, 1, 4, 4)], {"group": 3}),
    "groups": ("Conv", (2, 4, 5, 5), [(6, 2, 3, 3), (6,)], {"group": 2, "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "space": ("Conv", (1, 2, 4, 5, 4), [(3, 2, 2, 3, 2)], {"strides": [1, 2, 1]}),
}


def model(case: Case, computed: bool) -> onnx.ModelProto:
    """The node; weights are constants, or inputs beside the first one."""
    operator, shape, operands, attributes = case
    rng, names = np.random.default_rng(5), [f"c{i}" for i in range(len(operands))]
    stored = [
        numpy_helper.from_array(rng.normal(0, 0.4, s).astype(np.float32), n)
        for n, s in zip(names, operands, strict=True)
    ]
    inputs = {"x": shape, **(dict(zip(names, operands, strict=True)) if computed else {})}
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))
    node = helper.make_node(operator, ["x", *names], ["y"], "node", **attributes)
    graph = helper.make_graph([node], "one", values, [y], [] if computed else stored)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return onnx.shape_inference.infer_shapes(proto)


def check(proto: onnx.ModelProto, folder: Path) -> None:
    onnx.save(proto, folder / "m.onnx")
    graph, rng = canonicalize(read_model(folder / "m.onnx")), np.random.default_rng(0)
    shapes = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in proto.graph.input]
    feeds = [rng.normal(0, 1, shape).astype(np.float32) for shape in shapes]
    values = ops.run(graph, *feeds)
    want = onnxruntime_outputs(proto, feeds)[0]
    np.testing.assert_allclose(values[graph.outputs[0]], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", IN_SPACE)
def test_three_dimensions(name: str, tmp_path: Path) -> None:
    check(model(IN_SPACE[name], False), tmp_path)


@pytest.mark.parametrize("name", COMPUTED)
def test_computed_weights(name: str, tmp_path: Path) -> None:
    check(model(COMPUTED[name], True), tmp_path)


@pytest.mark.needs("gcc")
def test_quantised_weights_stay_so(tmp_path: Path) -> None:
    """Depth goes beside the channels: the scale of each output channel is that of the file."""
    file = tmp_path / "m.onnx"
    onnx.save(quantised(model(IN_SPACE["conv"], False)), file)
    assert verify(file, load_target("host"), compile_model(model_request(file, "model", "host", {})))["equal"]
    graph = canonicalize(read_model(file))
    (conv,) = (op for op in graph.ops if op.kind == "conv2d")
    assert [graph.tensors[n].dtype for n in conv.inputs[:2]] == ["int8", "int8"]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (("Conv", (1, 4, 5, 5), [(6, 3, 3, 3)], {}), "do not fit together|in 1 groups|broken|not a valid"),
        (("Conv", (1, 4, 3, 3, 3), [(6, 4, 5, 3, 3)], {}), "must fit into the padded input|not a valid"),
    ],
)
def test_what_does_not_fit(case: Case, message: str, tmp_path: Path) -> None:
    onnx.save(model(case, True), tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match=message):
        read_model(tmp_path / "m.onnx")
