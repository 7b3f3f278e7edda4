"""Support vector machines as skl2onnx writes them, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.compile import compile_model
from edgebuild.model.formats import read_model
from edgebuild.model.passes.canonicalize import canonicalize
from edgebuild.model.verify import verify
from tests.importers.test_onnx import onnxruntime_outputs

ROWS, FEATURES = 4, 5
PARAMETERS = {"LINEAR": [0.1, 0.0, 3.0], "RBF": [0.3, 0.0, 3.0], "POLY": [0.4, 0.5, 3.0], "SIGMOID": [0.2, -0.1, 3.0]}


def classifier(kernel: str, classes: int, probabilities: bool, seed: int = 0, **more: Any) -> onnx.ModelProto:
    rng = np.random.default_rng(seed)
    own = rng.integers(1, 4, classes).tolist()
    pairs = classes * (classes - 1) // 2
    attributes: dict[str, Any] = {
        "classlabels_ints": [int(n) for n in rng.permutation(9)[:classes]],
        "vectors_per_class": own,
        "coefficients": rng.normal(size=(classes - 1) * sum(own)).tolist(),
        "rho": rng.normal(0, 0.3, pairs).tolist(),
    }
    if probabilities:
        attributes |= {"prob_a": (-rng.uniform(0.5, 2, pairs)).tolist(), "prob_b": rng.normal(0, 0.2, pairs).tolist()}
    scores = classes if probabilities or classes == 2 else pairs
    return _model("SVMClassifier", kernel, sum(own), rng, scores, **{**attributes, **more})


def regressor(kernel: str, one_class: int, seed: int = 0, **more: Any) -> onnx.ModelProto:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 8))
    attributes = {"coefficients": rng.normal(size=count).tolist(), "rho": [float(rng.normal(0, 0.2))]}
    numbers = {"n_supports": count, "one_class": one_class}
    return _model("SVMRegressor", kernel, count, rng, 1, **{**attributes, **numbers, **more})


def _model(operator: str, kernel: str, count: int, rng: Any, scores: int, **attributes: Any) -> onnx.ModelProto:
    vectors = {"support_vectors": rng.normal(size=count * FEATURES).tolist(), "kernel_type": kernel}
    vectors |= {"kernel_params": PARAMETERS[kernel]} if PARAMETERS.get(kernel) else {}
    results = ["label", "scores"] if operator == "SVMClassifier" else ["scores"]
    node = helper.make_node(operator, ["x"], results, "svm", domain="ai.onnx.ml", **{**vectors, **attributes})
    values = {
        "x": (TensorProto.FLOAT, [ROWS, FEATURES]),
        "label": (TensorProto.INT64, [ROWS]),
        "scores": (TensorProto.FLOAT, [ROWS, scores]),
    }
    infos = {name: helper.make_tensor_value_info(name, *value) for name, value in values.items()}
    graph = helper.make_graph([node], "svm", [infos["x"]], [infos[name] for name in results])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def same(proto: onnx.ModelProto, folder: Path, seed: int) -> None:
    onnx.save(proto, folder / "m.onnx")
    graph = canonicalize(read_model(folder / "m.onnx"))
    x = np.random.default_rng(seed).normal(size=(ROWS, FEATURES)).astype(np.float32)
    have = ops.run(graph, x)
    for name, want in zip(graph.outputs, onnxruntime_outputs(proto, [x]), strict=True):
        np.testing.assert_allclose(have[name], want, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("kernel", PARAMETERS)
def test_classes_equal_onnxruntime(kernel: str, classes: int, probabilities: bool, tmp_path: Path) -> None:
    for seed in range(4):
        same(classifier(kernel, classes, probabilities, seed), tmp_path, seed)


@pytest.mark.parametrize("proto", [classifier("LINEAR", 3, False), regressor("LINEAR", 0)], ids=["classes", "numbers"])
def test_a_linear_machine_has_no_vectors(proto: onnx.ModelProto, tmp_path: Path) -> None:
    """Sums over hundreds of vectors, large ones that cancel, were rounded a hundred times as much as onnxruntime's."""
    onnx.save(proto, tmp_path / "m.onnx")
    graph = canonicalize(read_model(tmp_path / "m.onnx"))
    (first,) = [op for op in graph.ops if op.kind == "dense" and op.inputs[0] in graph.inputs]
    assert graph.result(first).shape == (ROWS, 3 if "label" in graph.outputs else 1)


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("kernel", PARAMETERS)
def test_numbers_equal_onnxruntime(kernel: str, one_class: int, tmp_path: Path) -> None:
    for seed in range(4):
        same(regressor(kernel, one_class, seed), tmp_path, seed)


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
@pytest.mark.parametrize("proto", [classifier("RBF", 4, True), classifier("POLY", 2, False), regressor("RBF", 1)])
def test_on_a_cortex_m4(proto: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(proto, tmp_path / "m.onnx")
    artifacts = compile_model(model_request(tmp_path / "m.onnx", "model", "mps2-an386", {}))
    result = verify(tmp_path / "m.onnx", load_target("mps2-an386"), artifacts)
    assert result["equal"], result


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (classifier("RBF", 3, False, post_transform="SOFTMAX"), "post_transform"),
        (classifier("RBF", 3, False, rho=[0.1]), "1 rho"),
        (classifier("LINEAR", 3, False, support_vectors=[0.1]), "support vectors"),
        (regressor("POLY", 0, kernel_params=[0.1, 0.2, 2.5]), "degree"),
        (regressor("RBF", 0, kernel_type="COSINE"), "kernel COSINE"),
    ],
)
def test_what_is_refused_says_why(proto: onnx.ModelProto, message: str, tmp_path: Path) -> None:
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match=message):
        read_model(tmp_path / "m.onnx")
