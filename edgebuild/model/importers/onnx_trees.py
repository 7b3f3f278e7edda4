"""TreeEnsembleClassifier and TreeEnsembleRegressor of ai.onnx.ml: forests and boosted trees of scikit-learn, LightGBM,
XGBoost. Scores and labels are onnxruntime's where the standard leaves them open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir import Array
from ..ops.pointwise import attributes
from ..ops.trees import TABLES

OPEN = (None, None)
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC")
AGGREGATES = ("SUM", "AVERAGE")
NODES = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids", "missing_value_tracks_true")
# Comparisons as "not above": whether the ways change places, and whether the bound is the number before.
MODES = {
    "BRANCH_LEQ": (False, False),
    "BRANCH_LT": (False, True),
    "BRANCH_GT": (True, False),
    "BRANCH_GTE": (True, True),
}


def _numbers(node: Any, name: str, dtype: Any) -> Array:
    if node.attr(f"{name}_as_tensor", None) is not None:
        raise node.error(f"{name}_as_tensor", "numbers in float32 are supported")
    return np.array(node.attr(name, []), dtype)


@dataclass(frozen=True)
class Forest:
    """The tables of the trees as operands; the targets and the weights of all leaves."""

    tables: list[str]
    target: Array
    weight: Array
    trees: int


def _forest(node: Any, of: str) -> Forest:
    """`of`: what the attributes of the leaves' targets begin with."""
    ids = {name: _numbers(node, f"nodes_{name}", np.int64) for name in NODES}
    bounds = _numbers(node, "nodes_values", np.float32)
    modes = [m.decode() if isinstance(m, bytes) else m for m in node.attr("nodes_modes", [])]
    unknown = sorted({*modes} - {*MODES, "LEAF"})
    if unknown or node.attr("aggregate_function", "SUM") not in AGGREGATES:
        raise node.error(f"{', '.join(unknown) or node.attr('aggregate_function', '')}",
                         f"supported: {', '.join((*MODES, *AGGREGATES))}")  # fmt: skip
    place = {key: at for at, key in enumerate(zip(ids["treeids"], ids["nodeids"], strict=True))}
    entries: dict[int, list[tuple[int, float]]] = {}
    rows = zip(*(_numbers(node, f"{of}_{name}", np.int64) for name in ("treeids", "nodeids", "ids")),
               _numbers(node, f"{of}_weights", np.float32), strict=True)  # fmt: skip
    for tree, number, target, weight in rows:
        entries.setdefault(place[tree, number], []).append((int(target), float(weight)))
    count = len(modes)
    tables = {name: np.zeros(count, np.int64) for name in ("feature", "yes", "no", "missing")}
    threshold, target, weight = bounds.copy(), list[int](), list[float]()
    for at, (tree, mode) in enumerate(zip(ids["treeids"], modes, strict=True)):
        if mode == "LEAF":
            found = entries.get(at, [])
            tables["feature"][at], tables["yes"][at] = -1, len(target)
            target += [k for k, _ in found]
            weight += [v for _, v in found]
            tables["no"][at] = len(target)
            continue
        swapped, before = MODES[mode]
        ways = [place[tree, ids[name][at]] for name in ("truenodeids", "falsenodeids")]
        tables["yes"][at], tables["no"][at] = ways[::-1] if swapped else ways
        tables["feature"][at] = ids["featureids"][at]
        tracks = bool(ids["missing_value_tracks_true"][at]) if ids["missing_value_tracks_true"].size else False
        tables["missing"][at] = tracks != swapped
        if before:
            threshold[at] = np.nextafter(threshold[at], np.float32(-np.inf))
    _known_features(node, tables["feature"])
    tables |= {"threshold": threshold, "target": np.array(target), "weight": np.array(weight, np.float32)}
    tables["root"] = np.array([place[tree, number] for tree, number in _roots(ids)])
    names = [n for n in TABLES if n != "missing" or tables["missing"].any()]
    small = np.int16 if max(count, len(target)) < 2**15 else np.int32
    types = {"threshold": np.float32, "weight": np.float32, "missing": np.bool_, "target": np.int16}
    operands = [node.array(tables[n].astype(types.get(n, small))) for n in names]
    return Forest(operands, tables["target"], tables["weight"], len(tables["root"]))


def _roots(ids: dict[str, Array]) -> list[tuple[int, int]]:
    """The node of every tree that no other node leads to: in files it is the first of its tree."""
    found: dict[int, int] = {}
    for tree, number in zip(ids["treeids"], ids["nodeids"], strict=True):
        found.setdefault(int(tree), int(number))
    return list(found.items())


def _known_features(node: Any, features: Array) -> None:
    x = node.tensor(0)
    if len(x.shape) != 2 or int(features.max(initial=0)) >= x.shape[1]:
        raise node.error(f"feature {features.max(initial=0)} of an input of shape {x.shape}", "rows of features")


def _summed(node: Any, forest: Forest, targets: int) -> str:
    """The sum of what all trees say of every target, with the base values."""
    x = node.inputs[0]
    x = x if node.tensor(0).dtype == "float32" else node.inner("cast", [x], to="float32")
    total = node.inner("trees", [x, *forest.tables], targets=targets)
    if node.attr("aggregate_function", "SUM") == "AVERAGE":
        total = node.inner("mul", [total, node.array(np.float32(1 / forest.trees))], clamp=OPEN)
    base = _numbers(node, "base_values", np.float32)
    base = base[-1:] if targets == 1 else base
    return node.inner("add", [total, node.array(base)], clamp=OPEN) if base.any() else total


def _transformed(node: Any, name: str, output: int) -> None:
    """The node's output from raw scores."""
    transform = node.attr("post_transform", "NONE")
    if transform not in TRANSFORMS:
        raise node.error(f"post_transform {transform}", f"supported: {', '.join(TRANSFORMS)}")
    if transform == "SOFTMAX":
        node.emit("softmax", [name], output=output, beta=1.0)
    elif transform == "LOGISTIC":
        node.emit("pointwise", [name], output=output, **attributes("sigmoid"))
    else:
        node.emit("reshape", [name], output=output, shape=node.builder.tensors[name].shape)


def regressor(node: Any) -> None:
    forest, targets = _forest(node, "target"), node.attr("n_targets", 1)
    _transformed(node, _summed(node, forest, targets), 0)


def classifier(node: Any) -> None:
    """Label and scores. Labels that are words have no type here: end the model at the scores."""
    forest = _forest(node, "class")
    labels = np.array(node.attr("classlabels_int64s", []), np.int64)
    count = labels.size or len(node.attr("classlabels_strings", []))
    spoken = np.unique(forest.target)
    if count == 2 and spoken.size == 1:
        return _two_classes(node, forest, labels)
    if count < 3:
        raise node.error(f"{count} classes with leaves for {spoken.size}", "two classes share one score")
    raw = _summed(node, forest, count)
    if node.outputs[0] and labels.size:
        best = node.inner("arg", [raw], axis=1, largest=True, last=False, to="int64")
        node.emit("gather", [node.array(labels), best], axis=0, batch=0)
    if len(node.outputs) > 1 and node.outputs[1]:
        _transformed(node, raw, 1)


def _two_classes(node: Any, forest: Forest, labels: Array) -> None:
    """One score s. If no weight is negative the scores are 1 - s and s, else -s and s, and those are transformed."""
    if forest.target.size:
        zeros = np.zeros(forest.target.size, np.int16)
        forest.tables[TABLES.index("target")] = node.array(zeros)
    raw, positive = _summed(node, forest, 1), bool((forest.weight >= 0).all())
    rows = node.builder.tensors[raw].shape[0]
    if node.outputs[0] and labels.size:
        bound = node.array(np.float32(0.5 if positive else 0.0))
        above = node.inner("pointwise", [node.reshaped(raw, (rows,)), bound], **attributes("greater"))
        node.emit("gather", [node.array(labels), node.inner("cast", [above], to="int32")], axis=0, batch=0)
    if len(node.outputs) < 2 or not node.outputs[1]:
        return
    other = node.inner("pointwise", [node.array(np.float32(1 if positive else 0)), raw], **attributes("difference"))
    both = node.inner("concat", [other, raw], axis=1)
    if positive:
        node.emit("reshape", [both], output=1, shape=(rows, 2))
    else:
        _transformed(node, both, 1)


TREE_READERS = {"TreeEnsembleClassifier": classifier, "TreeEnsembleRegressor": regressor}
