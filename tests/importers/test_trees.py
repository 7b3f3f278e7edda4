"""Forests and boosted trees as scikit-learn's, LightGBM's and XGBoost's converters write them, against onnxruntime."""

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
from tests.importers.test_dynamic import agrees
from tests.importers.test_onnx import onnxruntime_outputs

FEATURES, ROWS = 5, 3
CATEGORIES = ("BRANCH_EQ", "BRANCH_NEQ")
Nodes = dict[str, list[Any]]


def grown(rng: np.random.Generator, mode: str, trees: int) -> tuple[Nodes, list[tuple[int, int]]]:
    """Nodes of random trees, and (tree, node) of every leaf."""
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    nodes: Nodes = {name: [] for name in (*names, "missing_value_tracks_true")}
    leaves = []
    for tree in range(trees):
        depth = int(rng.integers(1, 4))
        for number in range(2 ** (depth + 1) - 1):
            leaf = number >= 2**depth - 1
            value = float(rng.integers(-1, 2)) if mode in CATEGORIES else float(np.float32(rng.normal()))
            row = (tree, number, int(rng.integers(FEATURES)), value,
                   "LEAF" if leaf else mode, *((0, 0) if leaf else (2 * number + 1, 2 * number + 2)),
                   int(rng.integers(2)))  # fmt: skip
            for name, value in zip(nodes, row, strict=True):
                nodes[name].append(value)
            leaves += [(tree, number)] if leaf else []
    return nodes, leaves


def model(operator: str, mode: str = "BRANCH_LEQ", seed: int = 0, classes: int = 0, **more: Any) -> onnx.ModelProto:
    """`classes`: 1 is a score for two classes; 0 a regressor of two targets. `positive`: no weight is negative."""
    rng = np.random.default_rng(seed)
    nodes, leaves = grown(rng, mode, 4)
    positive = more.pop("positive", False)
    first = 0 if classes == 2 else 3  # of labels
    of = "class" if operator.endswith("Classifier") else "target"
    weights = rng.uniform(0 if positive else -1, 0.3, len(leaves))
    ids = [tree % max(classes, 1 if of == "class" else 2) for tree, _ in leaves]  # every tree is for one, as boosted
    attributes = {f"nodes_{name}": values for name, values in nodes.items()}
    attributes |= {f"{of}_treeids": [t for t, _ in leaves], f"{of}_nodeids": [n for _, n in leaves]}
    attributes |= {f"{of}_ids": ids, f"{of}_weights": [float(w) for w in weights]}
    attributes |= (
        {"classlabels_int64s": list(range(first, first + max(classes, 2)))} if of == "class" else {"n_targets": 2}
    )
    results = ["label", "scores"] if of == "class" else ["scores"]
    node = helper.make_node(operator, ["x"], results, "forest", domain="ai.onnx.ml", **attributes, **more)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, FEATURES])
    y = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [ROWS, max(classes, 2)])
    label = helper.make_tensor_value_info("label", TensorProto.INT64, [ROWS])
    graph = helper.make_graph([node], "forest", [x], [label, y] if of == "class" else [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8)


def ensemble(seed: int = 0, mode: int = 0, **more: Any) -> onnx.ModelProto:
    """TreeEnsemble, whose leaves are a list of their own. `mode`: of the comparisons, 0 to 3."""
    rng = np.random.default_rng(seed)
    nodes: dict[str, list[int]] = {n: [] for n in ("truenodeids", "falsenodeids", "trueleafs", "falseleafs")}
    roots, targets = [], []
    for _ in range(5):
        depth, base, leaf = int(rng.integers(1, 4)), len(nodes["trueleafs"]), len(targets)
        roots.append(base)
        inner = 2**depth - 1
        for number in range(inner):
            for branch, child in (("true", 2 * number + 1), ("false", 2 * number + 2)):
                nodes[f"{branch}leafs"].append(int(child >= inner))
                nodes[f"{branch}nodeids"].append(leaf + child - inner if child >= inner else base + child)
        targets += [int(rng.integers(3)) for _ in range(inner + 1)]
    count = len(nodes["trueleafs"])
    attributes: dict[str, Any] = {f"nodes_{name}": ids for name, ids in nodes.items()}
    attributes |= {"nodes_featureids": rng.integers(0, FEATURES, count).tolist(), "n_targets": 3, "tree_roots": roots}
    attributes |= {"nodes_missing_value_tracks_true": rng.integers(0, 2, count).tolist(), "leaf_targetids": targets}
    splits = rng.integers(-1, 2, count) if mode > 3 else rng.normal(size=count)
    stored = {"nodes_splits": splits.astype(np.float32), "nodes_modes": np.full(count, mode, np.uint8)}
    stored |= {"leaf_weights": rng.normal(size=len(targets)).astype(np.float32)}
    attributes |= {name: onnx.numpy_helper.from_array(data, name) for name, data in stored.items()}
    node = helper.make_node("TreeEnsemble", ["x"], ["scores"], "forest", domain="ai.onnx.ml", **attributes, **more)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, FEATURES])
    y = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [ROWS, 3])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 5)]
    return helper.make_model(helper.make_graph([node], "forest", [x], [y]), opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("mode", range(6))
@pytest.mark.parametrize("more", [{}, {"aggregate_function": 0}], ids=str)
def test_version_5_equals_onnxruntime(mode: int, more: dict[str, Any], tmp_path: Path) -> None:
    for seed in range(4):
        proto = ensemble(seed, mode, **more)
        onnx.save(proto, tmp_path / "m.onnx")
        graph = canonicalize(read_model(tmp_path / "m.onnx"))
        rng = np.random.default_rng(seed)
        bounds = onnx.numpy_helper.to_array(
            next(a.t for a in proto.graph.node[0].attribute if a.name == "nodes_splits")
        )
        x = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
        x = np.rint(x) if mode > 3 else x
        x[0, :3], x[1, 2], x[2, :] = bounds[:3], np.nan, rng.choice(bounds, FEATURES)
        want = onnxruntime_outputs(proto, [x])[0]
        np.testing.assert_allclose(ops.run(graph, x)[graph.outputs[0]], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("more", "message"),
    [({"aggregate_function": 3}, "aggregate_function"), ({"mode": 6}, "modes"), ({"post_transform": 1}, "NONE")],
)
def test_version_5_refuses(more: dict[str, int], message: str, tmp_path: Path) -> None:
    onnx.save(ensemble(**more), tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match=message):
        read_model(tmp_path / "m.onnx")


CASES: dict[str, dict[str, Any]] = {
    **{mode: {"operator": "TreeEnsembleRegressor", "mode": mode}
       for mode in ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE", *CATEGORIES)},
    "average": {"operator": "TreeEnsembleRegressor", "aggregate_function": "AVERAGE", "base_values": [0.5, -1.0]},
    "three classes": {"operator": "TreeEnsembleClassifier", "classes": 3},
    "softmax": {"operator": "TreeEnsembleClassifier", "classes": 3, "post_transform": "SOFTMAX",
                "base_values": [0.1, 0.2, -0.3]},
    "two classes": {"operator": "TreeEnsembleClassifier", "classes": 1, "positive": True},
    "boosted": {"operator": "TreeEnsembleClassifier", "classes": 1, "post_transform": "LOGISTIC", "base_values": [0.2]},
    "raw scores": {"operator": "TreeEnsembleClassifier", "classes": 1, "mode": "BRANCH_LT"},
    "two scores": {"operator": "TreeEnsembleClassifier", "classes": 2, "post_transform": "LOGISTIC"},
    "two shares": {"operator": "TreeEnsembleClassifier", "classes": 2, "positive": True},
    "two of a softmax": {"operator": "TreeEnsembleClassifier", "classes": 2, "post_transform": "SOFTMAX"},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_equals_onnxruntime(name: str, tmp_path: Path) -> None:
    """Numbers, such that are a threshold, and NaN."""
    for seed in range(6):
        proto = model(**CASES[name], seed=seed)
        onnx.save(proto, tmp_path / "m.onnx")
        graph = canonicalize(read_model(tmp_path / "m.onnx"))
        rng = np.random.default_rng(seed)
        bounds = next(a.floats for a in proto.graph.node[0].attribute if a.name == "nodes_values")
        x = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
        x = np.rint(x) if CASES[name].get("mode") in CATEGORIES else x
        x[0, :3], x[1, 2], x[2, :] = bounds[:3], np.nan, rng.choice(bounds, FEATURES)
        values = ops.run(graph, x)
        for output, want in zip(graph.outputs, onnxruntime_outputs(proto, [x]), strict=True):
            np.testing.assert_allclose(values[output], want, rtol=1e-5, atol=1e-6)


def in_doubles(proto: onnx.ModelProto, x: np.ndarray) -> onnx.ModelProto:
    """The model with its numbers in double precision: bounds lie a little below, at or above numbers of `x`."""
    (node,), graph = proto.graph.node, proto.graph
    for attribute in list(node.attribute):
        of = {"nodes_values": attribute.floats, "target_weights": attribute.floats}.get(attribute.name)
        if attribute.name in ("nodes_splits", "leaf_weights"):
            of = onnx.numpy_helper.to_array(attribute.t)
        if of is None:
            continue
        doubles = np.array(of, np.float64)
        if attribute.name in ("nodes_values", "nodes_splits"):
            doubles = np.resize(x, doubles.shape).astype(np.float64)
            doubles += np.resize([0, -1e-12, 1e-12, 2.0**-60], doubles.shape) * np.abs(doubles)
        node.attribute.remove(attribute)
        name = attribute.name + ("" if attribute.HasField("t") else "_as_tensor")
        node.attribute.append(helper.make_attribute(name, onnx.numpy_helper.from_array(doubles, name)))
    node.input[0] = "doubles"
    graph.node.insert(0, helper.make_node("Cast", ["x"], ["doubles"], to=TensorProto.DOUBLE))
    if node.op_type == "TreeEnsemble":
        node.output[0] = "sums"
        graph.node.append(helper.make_node("Cast", ["sums"], ["scores"], to=TensorProto.FLOAT))
    if all(o.domain for o in proto.opset_import):
        proto.opset_import.append(helper.make_opsetid("", 17))
    return proto


@pytest.mark.parametrize("mode", range(6))
@pytest.mark.parametrize("version", [3, 5])
def test_bounds_of_double_precision(version: int, mode: int, tmp_path: Path) -> None:
    names = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", *CATEGORIES)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(ROWS, FEATURES)).astype(np.float32) if mode < 4 else np.eye(ROWS, FEATURES, 1, np.float32)
        proto = ensemble(seed, mode) if version == 5 else model("TreeEnsembleRegressor", names[mode], seed)
        onnx.save(in_doubles(proto, x), tmp_path / "m.onnx")
        graph = canonicalize(read_model(tmp_path / "m.onnx"))
        want = onnxruntime_outputs(proto, [x])[0]
        np.testing.assert_allclose(ops.run(graph, x)[graph.outputs[0]], want, rtol=1e-5, atol=1e-6)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", ["softmax", "boosted", "average"])
def test_compiled(name: str, tmp_path: Path) -> None:
    agrees(model(**CASES[name]), tmp_path)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("words", [False, True])
def test_scores_under_their_labels_stay_a_row(words: bool, tmp_path: Path) -> None:
    """ZipMap, which converters add if nobody says otherwise; `verify` compares the row."""
    proto, keys = model("TreeEnsembleClassifier", classes=3), ["a", "b", "c"]
    labels = {"classlabels_strings": keys} if words else {"classlabels_int64s": [3, 4, 5]}
    proto.graph.node.append(helper.make_node("ZipMap", ["scores"], ["under"], domain="ai.onnx.ml", **labels))
    scores = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    kind = helper.make_map_type_proto(TensorProto.STRING if words else TensorProto.INT64, scores)
    proto.graph.output[1].CopyFrom(helper.make_value_info("under", helper.make_sequence_type_proto(kind)))
    onnx.save(proto, tmp_path / "m.onnx")
    artifacts = compile_model(model_request(tmp_path / "m.onnx", "model", "host", {}))
    result = verify(tmp_path / "m.onnx", load_target("host"), artifacts)
    assert result["equal"] and "under" in result["compared"]


@pytest.mark.parametrize("classes", [[0], [0, 1]], ids=["one score", "two scores"])
@pytest.mark.parametrize("bound", [0.0, 0.5])
def test_a_score_on_the_bound_of_two_classes(classes: list[int], bound: float, tmp_path: Path) -> None:
    """A stump whose left leaf gives the bound itself: the label is that of the first class."""
    attributes = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.0] * 3, "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0], "class_treeids": [0, 0] * len(classes), "class_ids": [*classes, *classes],
        "class_nodeids": [1] * len(classes) + [2] * len(classes), "classlabels_int64s": [0, 1],
        "class_weights": [bound] * len(classes) + [bound + 0.25 if bound else -0.25] * len(classes),
    }  # fmt: skip
    names = ["label", "scores"]
    node = helper.make_node("TreeEnsembleClassifier", ["x"], names, domain="ai.onnx.ml", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 1])
    outputs = [helper.make_tensor_value_info("label", TensorProto.INT64, [2])]
    outputs.append(helper.make_tensor_value_info("scores", TensorProto.FLOAT, [2, 2]))
    graph = helper.make_graph([node], "stump", [x], outputs)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8)
    onnx.save(proto, tmp_path / "m.onnx")
    numbers = np.array([[-1], [1]], np.float32)
    values, read = onnxruntime_outputs(proto, [numbers]), read_model(tmp_path / "m.onnx")
    have = ops.run(read, numbers)
    for output, want in zip(read.outputs, values, strict=True):
        np.testing.assert_allclose(have[output], want, atol=1e-6)


def test_labels_of_two_classes_that_onnxruntime_does_not_tell(tmp_path: Path) -> None:
    proto = model("TreeEnsembleClassifier", classes=2)
    next(a for a in proto.graph.node[0].attribute if a.name == "classlabels_int64s").ints[:] = [3, 8]
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match="result 1, 'label', is not supported"):
        read_model(tmp_path / "m.onnx")
    assert read_model(tmp_path / "m.onnx", outputs=["scores"]).outputs == ("scores",)


def test_what_is_refused_says_why(tmp_path: Path) -> None:
    onnx.save(model("TreeEnsembleRegressor", aggregate_function="MAX"), tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match="MAX"):
        read_model(tmp_path / "m.onnx")
