"""TreeEnsemble, TreeEnsembleClassifier and TreeEnsembleRegressor of ai.onnx.ml: forests and boosted trees of
scikit-learn, LightGBM, XGBoost. Scores and labels are onnxruntime's where the standard leaves them open.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from ....base.dataclass import dataclass
from ...ir import Array
from ...ops.pointwise import attributes
from ...ops.trees import TABLES

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
EQUAL = {"BRANCH_EQ": False, "BRANCH_NEQ": True}  # comparisons of categories: whether the ways change places


def _numbers(node: Any, name: str, dtype: Any) -> Array:
    """A list of numbers, or the tensor that is there in its place where they are doubles."""
    tensor = node.attr(f"{name}_as_tensor", None)
    return np.array(node.attr(name, []) if tensor is None else onnx.numpy_helper.to_array(tensor).ravel(), dtype)


def _not_above(bound: float, before: bool) -> Any:
    """The largest number of float32 that is not above a bound of double precision, or `before` it.

    An operand of float32 is not above the one exactly if it is not above the other.
    """
    with np.errstate(over="ignore"):
        number = np.float32(bound)
    above = number >= bound if before else number > bound
    return np.nextafter(number, np.float32(-np.inf)) if above else number


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
    bounds = _numbers(node, "nodes_values", np.float64)
    modes = [m.decode() if isinstance(m, bytes) else m for m in node.attr("nodes_modes", [])]
    unknown = sorted({*modes} - {*MODES, *EQUAL, "LEAF"})
    if unknown or node.attr("aggregate_function", "SUM") not in AGGREGATES:
        raise node.error(f"{', '.join(unknown) or node.attr('aggregate_function', '')}",
                         f"supported: {', '.join((*MODES, *EQUAL, *AGGREGATES))}")  # fmt: skip
    place = {key: at for at, key in enumerate(zip(ids["treeids"], ids["nodeids"], strict=True))}
    entries: dict[int, list[tuple[int, float]]] = {}
    rows = zip(*(_numbers(node, f"{of}_{name}", np.int64) for name in ("treeids", "nodeids", "ids")),
               _numbers(node, f"{of}_weights", np.float32), strict=True)  # fmt: skip
    for tree, number, target, weight in rows:
        entries.setdefault(place[tree, number], []).append((int(target), float(weight)))
    tables = _Tables(bounds, sum(mode in EQUAL for mode in modes))
    target, weight = list[int](), list[float]()
    for at, (tree, mode) in enumerate(zip(ids["treeids"], modes, strict=True)):
        if mode == "LEAF":
            found = entries.get(at, [])
            tables.leaf(at, len(target), len(target) + len(found))
            target += [k for k, _ in found]
            weight += [v for _, v in found]
            continue
        yes, no = (place[tree, ids[name][at]] for name in ("truenodeids", "falsenodeids"))
        tracks = bool(ids["missing_value_tracks_true"][at]) if ids["missing_value_tracks_true"].size else False
        tables.branch(at, ids["featureids"][at], mode, (yes, no), tracks)
    roots = [place[tree, number] for tree, number in _roots(ids)]
    return tables.forest(node, roots, np.array(target), np.array(weight, np.float32))


class _Tables:
    """The tables of nodes, filled one node after the other. `bounds`: a number for each. `more`: nodes behind them."""

    def __init__(self, bounds: Array, more: int) -> None:
        self.next, count = bounds.size, bounds.size + more
        self.of = {name: np.zeros(count, np.int64) for name in ("feature", "yes", "no", "missing")}
        self.bounds = np.append(bounds, np.zeros(more))
        self.threshold = self.bounds.astype(np.float32)

    def leaf(self, at: int, first: int, past: int) -> None:
        """A node that says entries first to past of target and weight."""
        self.of["feature"][at], self.of["yes"][at], self.of["no"][at] = -1, first, past

    def branch(self, at: int, feature: int, mode: str, ways: tuple[int, int], tracks: bool) -> None:
        """`ways`: where to go if the comparison is true, and if not. `tracks`: true for what is not a number."""
        if mode in EQUAL:
            return self._equal(at, feature, ways[::-1] if EQUAL[mode] else ways, tracks and not EQUAL[mode])
        swapped, before = MODES[mode]
        self.of["yes"][at], self.of["no"][at] = ways[::-1] if swapped else ways
        self.of["feature"][at], self.of["missing"][at] = feature, tracks != swapped
        self.threshold[at] = _not_above(self.bounds[at], before)

    def _equal(self, at: int, feature: int, ways: tuple[int, int], tracks: bool) -> None:
        """Equal is not above the bound, and then above the number before. What is not a number is above both."""
        second, self.next = self.next, self.next + 1
        self.bounds[second] = self.bounds[at]
        self.branch(at, feature, "BRANCH_LEQ", (second, ways[1]), tracks)
        self.branch(second, feature, "BRANCH_LT", ways[::-1], False)

    def forest(self, node: Any, roots: Any, target: Array, weight: Array) -> Forest:
        _known_features(node, self.of["feature"])
        tables = self.of | {"threshold": self.threshold, "target": target, "weight": weight, "root": np.array(roots)}
        names = [n for n in TABLES if n != "missing" or tables["missing"].any()]
        small = np.int16 if max(self.threshold.size, len(target)) < 2**15 else np.int32
        types = {"threshold": np.float32, "weight": np.float32, "missing": np.bool_, "target": np.int16}
        operands = [node.array(tables[n].astype(types.get(n, small))) for n in names]
        return Forest(operands, target, weight, len(tables["root"]))


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


def _summed(node: Any, forest: Forest, targets: int, aggregate: str = "") -> str:
    """The sum of what all trees say of every target, with the base values."""
    x = node.inputs[0]
    x = x if node.tensor(0).dtype == "float32" else node.inner("cast", [x], to="float32")
    total: str = node.inner("trees", [x, *forest.tables], targets=targets)
    if (aggregate or node.attr("aggregate_function", "SUM")) == "AVERAGE":
        total = node.inner("mul", [total, node.array(np.float32(1 / forest.trees))], clamp=OPEN)
    base = _numbers(node, "base_values", np.float32)
    base = base[-1:] if targets == 1 else base
    return node.inner("add", [total, node.array(base)], clamp=OPEN) if base.any() else total


def _transformed(node: Any, name: str, output: int) -> None:
    """The node's output from raw scores."""
    transform = node.attr("post_transform", "NONE") or "NONE"
    if transform not in TRANSFORMS:
        raise node.error(f"post_transform {transform}", f"supported: {', '.join(TRANSFORMS)}")
    if transform == "SOFTMAX":
        node.emit("softmax", [name], output=output, beta=1.0)
    elif transform == "LOGISTIC":
        node.emit("pointwise", [name], output=output, **attributes("sigmoid"))
    else:
        node.emit("reshape", [name], output=output, shape=node.builder.tensors[name].shape)


def ensemble(node: Any) -> None:
    """TreeEnsemble, which version 5 of the domain has in place of the other two. Leaves are a list of their own."""
    ids = {name: _numbers(node, name, np.int64) for name in (*(f"nodes_{n}" for n in POSITIONS), "leaf_targetids")}
    tracks = _numbers(node, "nodes_missing_value_tracks_true", np.bool_)
    modes, bounds, weight = (_stored(node, name) for name in ("nodes_modes", "nodes_splits", "leaf_weights"))
    if max(modes, default=0) >= len(ENSEMBLE_MODES) or node.attr("aggregate_function", 1) not in (0, 1):
        kinds = f"modes {sorted(set(modes.tolist()))}, aggregate_function {node.attr('aggregate_function', 1)}"
        raise node.error(kinds, f"supported: {', '.join(ENSEMBLE_MODES)}; AVERAGE and SUM")
    if node.attr("post_transform", 0) != 0:
        hint = "NONE is supported: the standard and onnxruntime number the others differently; add the operator itself"
        raise node.error(f"post_transform {node.attr('post_transform', 0)}", hint)
    count = len(modes)
    equal = sum(ENSEMBLE_MODES[mode] in EQUAL for mode in modes)
    tables = _Tables(np.concatenate([bounds, np.zeros(len(weight))]).astype(np.float64), equal)
    for at, mode in enumerate(modes):
        ways = [int(ids[f"nodes_{way}nodeids"][at] + count * ids[f"nodes_{way}leafs"][at]) for way in ("true", "false")]
        branch = ids["nodes_featureids"][at], ENSEMBLE_MODES[mode], (ways[0], ways[1])
        tables.branch(at, *branch, bool(tracks.size and tracks[at]))
    for leaf in range(len(weight)):
        tables.leaf(count + leaf, leaf, leaf + 1)
    forest = tables.forest(node, _numbers(node, "tree_roots", np.int64), ids["leaf_targetids"], weight)
    aggregate = ("AVERAGE", "SUM")[node.attr("aggregate_function", 1)]
    _transformed(node, _summed(node, forest, node.attr("n_targets", 1), aggregate), 0)


POSITIONS = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
ENSEMBLE_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def _stored(node: Any, name: str) -> Array:
    """A tensor attribute."""
    return onnx.numpy_helper.to_array(node.attr(name, onnx.TensorProto()))


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
    if count < 2:
        raise node.error(f"{count} classes with leaves for {spoken.size}", "two or more classes are needed")
    raw = _summed(node, forest, count)
    if node.outputs[0] and count == 2:
        _label_of_two(node, raw, labels)
    elif node.outputs[0] and labels.size:
        best = node.inner("arg", [raw], axis=1, largest=True, last=False, to="int64")
        node.emit("gather", [node.array(labels), best], axis=0, batch=0)
    if len(node.outputs) > 1 and node.outputs[1]:
        _transformed(node, raw, 1)


def _label_of_two(node: Any, raw: str, labels: Array) -> None:
    """Whether the second of two classes with leaves of their own has a score above 0, as in onnxruntime.

    It tells 0 and 1 whatever the labels are, so others are not told here.
    """
    if labels.tolist() != [0, 1]:
        return
    rows = node.builder.tensors[raw].shape[0]
    score = node.reshaped(node.inner("slice", [raw], begin=(0, 1), size=(rows, 1)), (rows,))
    above = node.inner("pointwise", [score, node.array(np.float32(0))], **attributes("greater"))
    node.emit("cast", [above], to="int64")


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


TREE_READERS = {"TreeEnsemble": ensemble, "TreeEnsembleClassifier": classifier, "TreeEnsembleRegressor": regressor}
