"""Readers of ai.onnx.ml operators, which converters of scikit-learn, LightGBM and XGBoost write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, product
from typing import Any

import numpy as np
import onnx

from ...ir import Array
from ...ops.classifiers import TABLES
from ..compose import kept_shape
from .onnx_operators import READERS

# TreeEnsemble, TreeEnsembleClassifier and TreeEnsembleRegressor of ai.onnx.ml: forests and boosted trees of
# scikit-learn, LightGBM, XGBoost. Where the standard does not define scores and labels, they are onnxruntime's.

OPEN = (None, None)
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC")
AGGREGATES = ("SUM", "AVERAGE")
NODES = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids", "missing_value_tracks_true")
# Comparisons as "not above": whether the branches are swapped, and whether the bound becomes the next lower float.
MODES = dict(zip(("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"), product((False, True), repeat=2), strict=True))
EQUAL = {"BRANCH_EQ": False, "BRANCH_NEQ": True}  # comparisons of categories: whether the branches are swapped


def _numbers(node: Any, name: str, dtype: Any) -> Array:
    """An attribute with a list of numbers, or the attribute `name`_as_tensor, which files with doubles have."""
    tensor = node.attr(f"{name}_as_tensor", None)
    return np.array(node.attr(name, []) if tensor is None else onnx.numpy_helper.to_array(tensor).ravel(), dtype)


def _not_above(bound: float, before: bool) -> Any:
    """The largest float32 number that is not above a double bound, or less than it if `before`.

    Comparisons of a float32 operand with it and with the double bound have the same result.
    """
    with np.errstate(over="ignore"):
        number = np.float32(bound)
    above = number >= bound if before else number > bound
    return np.nextafter(number, np.float32(-np.inf)) if above else number


@dataclass(frozen=True)
class Forest:
    """The tables of the trees as operands of `trees`; targets and weights of all leaves; the number of trees."""

    tables: list[str]
    target: Array
    weight: Array
    trees: int


def _forest(node: Any, of: str) -> Forest:
    """The forest of a node. `of`: prefix of the attributes with the leaves' targets."""
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
            leaf = entries.get(at, [])
            tables.leaf(at, len(target), len(target) + len(leaf))
            target += [k for k, _ in leaf]
            weight += [v for _, v in leaf]
            continue
        yes, no = (place[tree, ids[name][at]] for name in ("truenodeids", "falsenodeids"))
        tracks = bool(ids["missing_value_tracks_true"][at]) if ids["missing_value_tracks_true"].size else False
        tables.branch(at, ids["featureids"][at], mode, (yes, no), tracks)
    # The root of every tree is its first node in files.
    first = dict(zip(ids["treeids"][::-1], ids["nodeids"][::-1], strict=True))
    roots = [place[tree, first[tree]] for tree in dict.fromkeys(ids["treeids"])]
    return tables.forest(node, roots, np.array(target), np.array(weight, np.float32))


class _Tables:
    """The tables of nodes, filled node by node. `bounds`: threshold of each. `more`: number of nodes to be added."""

    def __init__(self, bounds: Array, more: int) -> None:
        self.next, count = bounds.size, bounds.size + more
        self.of = {name: np.zeros(count, np.int64) for name in ("feature", "yes", "no", "missing")}
        self.bounds = np.append(bounds, np.zeros(more))
        self.threshold = self.bounds.astype(np.float32)

    def leaf(self, at: int, first: int, past: int) -> None:
        """Make a node a leaf with entries `first` to `past` of the tables target and weight."""
        self.of["feature"][at], self.of["yes"][at], self.of["no"][at] = -1, first, past

    def branch(self, at: int, feature: int, mode: str, targets: tuple[int, int], tracks: bool) -> None:
        """Make a node a branch. `targets`: next node if the comparison is true, and if not. `tracks`: true for NaN."""
        if mode in EQUAL:
            return self._equal(at, feature, targets[::-1] if EQUAL[mode] else targets, tracks and not EQUAL[mode])
        swapped, before = MODES[mode]
        self.of["yes"][at], self.of["no"][at] = targets[::-1] if swapped else targets
        self.of["feature"][at], self.of["missing"][at] = feature, tracks != swapped
        self.threshold[at] = _not_above(self.bounds[at], before)

    def _equal(self, at: int, feature: int, targets: tuple[int, int], tracks: bool) -> None:
        """Two nodes for equality: not above the bound, and above the next lower float. NaN is above both."""
        second, self.next = self.next, self.next + 1
        self.bounds[second] = self.bounds[at]
        self.branch(at, feature, "BRANCH_LEQ", (second, targets[1]), tracks)
        self.branch(second, feature, "BRANCH_LT", targets[::-1], False)

    def forest(self, node: Any, roots: Any, target: Array, weight: Array) -> Forest:
        x, most = node.tensor(0), self.of["feature"].max(initial=0)
        if len(x.shape) != 2 or most >= x.shape[1]:
            raise node.error(f"feature {most} of an input of shape {x.shape}", "rows of features")
        tables = self.of | {"threshold": self.threshold, "target": target, "weight": weight, "root": np.array(roots)}
        names = [n for n in TABLES if n != "missing" or tables["missing"].any()]
        small = np.int16 if max(self.threshold.size, len(target)) < 2**15 else np.int32
        types = {"threshold": np.float32, "weight": np.float32, "missing": np.bool_, "target": np.int16}
        operands = [node.array(tables[n].astype(types.get(n, small))) for n in names]
        return Forest(operands, target, weight, len(tables["root"]))


def _summed(node: Any, forest: Forest, targets: int, aggregate: str = "") -> str:
    """Name of the sum or average of all trees' outputs per target, plus the base values."""
    total: str = node.inner("trees", [_real(node), *forest.tables], targets=targets)
    if (aggregate or node.attr("aggregate_function", "SUM")) == "AVERAGE":
        total = node.inner("mul", [total, node.array(np.float32(1 / forest.trees))], clamp=OPEN)
    base = _numbers(node, "base_values", np.float32)
    base = base[-1:] if targets == 1 else base
    return node.inner("add", [total, node.array(base)], clamp=OPEN) if base.any() else total


def _transformed(node: Any, name: str, output: int) -> None:
    """Emit an output from raw scores, transformed by post_transform."""
    transform = node.attr("post_transform", "NONE") or "NONE"
    if transform not in TRANSFORMS:
        raise node.error(f"post_transform {transform}", f"supported: {', '.join(TRANSFORMS)}")
    if transform == "SOFTMAX":
        node.emit("softmax", [name], output=output, beta=1.0)
    elif transform == "LOGISTIC":
        node.emit_function("sigmoid", name, output=output)
    else:
        node.emit("reshape", [name], output=output, shape=node.builder.tensors[name].shape)


def ensemble(node: Any) -> None:
    """Read TreeEnsemble, which replaces the other two in version 5 of the domain. Leaves are in a separate list."""
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
        targets = [
            int(ids[f"nodes_{side}nodeids"][at] + count * ids[f"nodes_{side}leafs"][at]) for side in ("true", "false")
        ]
        branch = ids["nodes_featureids"][at], ENSEMBLE_MODES[mode], (targets[0], targets[1])
        tables.branch(at, *branch, bool(tracks.size and tracks[at]))
    for leaf in range(len(weight)):
        tables.leaf(count + leaf, leaf, leaf + 1)
    forest = tables.forest(node, _numbers(node, "tree_roots", np.int64), ids["leaf_targetids"], weight)
    aggregate = ("AVERAGE", "SUM")[node.attr("aggregate_function", 1)]
    _transformed(node, _summed(node, forest, node.attr("n_targets", 1), aggregate), 0)


POSITIONS = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
ENSEMBLE_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def _stored(node: Any, name: str) -> Array:
    """The values of a tensor attribute."""
    return onnx.numpy_helper.to_array(node.attr(name, onnx.TensorProto()))


def tree_classifier(node: Any) -> None:
    """Read TreeEnsembleClassifier: label and scores. String labels are not supported; end the model at the scores."""
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
        _label_of_largest(node, raw, labels)
    if len(node.outputs) > 1 and node.outputs[1]:
        _transformed(node, raw, 1)


def _label_of_largest(node: Any, scores: str, labels: Array) -> None:
    best = node.inner("arg", [scores], axis=1, largest=True, last=False, to="int64")
    node.emit("gather", [node.array(labels), best], axis=0, batch=0)


def _label_of_two(node: Any, raw: str, labels: Array) -> None:
    """Emit the label of two classes that both have leaves: 1 if the second score is above 0, as in onnxruntime.

    onnxruntime gives 0 and 1 for any labels, so other labels than these are not supported.
    """
    if labels.tolist() != [0, 1]:
        return
    rows = node.builder.tensors[raw].shape[0]
    score = node.reshaped(node.inner("slice", [raw], begin=(0, 1), size=(rows, 1)), (rows,))
    above = node.apply("greater", score, node.array(np.float32(0)))
    node.emit("cast", [above], to="int64")


def _two_classes(node: Any, forest: Forest, labels: Array) -> None:
    """Emit label and scores from one score s: 1 - s and s if no weight is negative, else -s and s, transformed."""
    if forest.target.size:
        zeros = np.zeros(forest.target.size, np.int16)
        forest.tables[TABLES.index("target")] = node.array(zeros)
    raw, positive = _summed(node, forest, 1), bool((forest.weight >= 0).all())
    rows = node.builder.tensors[raw].shape[0]
    if node.outputs[0] and labels.size:
        bound = node.array(np.float32(0.5 if positive else 0.0))
        above = node.apply("greater", node.reshaped(raw, (rows,)), bound)
        node.emit("gather", [node.array(labels), node.inner("cast", [above], to="int32")], axis=0, batch=0)
    if len(node.outputs) < 2 or not node.outputs[1]:
        return
    other = node.apply("difference", node.array(np.float32(1 if positive else 0)), raw)
    both = node.inner("concat", [other, raw], axis=1)
    if positive:
        node.emit("reshape", [both], output=1, shape=(rows, 2))
    else:
        _transformed(node, both, 1)


TREE_READERS: Mapping[str, Callable[[Any], None]] = {
    "TreeEnsemble": ensemble,
    "TreeEnsembleClassifier": tree_classifier,
    "TreeEnsembleRegressor": lambda node: _transformed(
        node, _summed(node, _forest(node, "target"), node.attr("n_targets", 1)), 0
    ),
}


# SVMClassifier and SVMRegressor of ai.onnx.ml, as skl2onnx writes SVC, NuSVC, SVR, NuSVR and OneClassSVM of
# scikit-learn: a kernel function of all support vectors, a matrix of coefficients, and votes.

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
MAX_DEGREE = 8


def _operands(node: Any, count: int, weights: Array) -> list[str]:
    """Operands of the dense layer that weights the kernel function of samples and support vectors.

    For a linear kernel the vectors are folded into the weights, which is smaller and rounds less.
    """
    kind, degree, vectors = node.attr("kernel_type", "LINEAR"), _parameters(node)[2], node.floats("support_vectors")
    if kind not in KERNELS or (kind == "POLY" and degree not in range(1, MAX_DEGREE + 1)):
        raise node.error(f"kernel {kind}, degree {degree}", f"supported: {', '.join(KERNELS)}; degrees 1 to 8")
    if count < 1 or len(node.tensor(0).shape) != 2 or vectors.size != count * node.tensor(0).shape[1]:
        seen = f"{vectors.size} numbers of {count} support vectors, input of shape {node.tensor(0).shape}"
        raise node.error(seen, "rows of features; for a machine without support vectors export a linear model")
    x, vectors = _real(node), vectors.reshape(count, -1)
    if kind == "LINEAR":
        return [x, node.array((weights.astype(np.float64) @ vectors.astype(np.float64)).astype(np.float32))]
    return [_kernels(node, x, vectors), node.array(weights)]


def _kernels(node: Any, x: str, vectors: Array) -> str:
    kind, count = node.attr("kernel_type", "LINEAR"), len(vectors)
    gamma, offset, degree = _parameters(node)
    if kind == "RBF":
        squares = node.inner("distances", [x, node.array(vectors)])
        scaled = node.inner("mul", [squares, node.array(np.float32(-gamma))], clamp=OPEN)
        return str(node.apply("exp", scaled))
    weights = node.array(vectors * np.float32(gamma))
    inner = node.inner("dense", [x, weights, node.array(np.full(count, offset, np.float32))], clamp=OPEN)
    if kind == "SIGMOID":
        return str(node.apply("tanh", inner))
    power = inner
    for _ in range(int(degree) - 1):
        power = node.inner("mul", [power, inner], clamp=OPEN)
    return str(power)


def _parameters(node: Any) -> Sequence[float]:
    """Gamma, offset and degree of the kernel."""
    return (*node.attr("kernel_params", []), 0.0, 0.0, 3.0)[:3]


def _fitting(node: Any, name: str, size: int) -> Array:
    values = node.floats(name)
    if values.size != size:
        raise node.error(f"{values.size} {name}", f"{size} are needed")
    return values


def _check_untransformed(node: Any) -> None:
    if node.attr("post_transform", "NONE") != "NONE":
        raise node.error(f"post_transform {node.attr('post_transform', '')}", "NONE is supported")


def svm_regressor(node: Any) -> None:
    """Read SVMRegressor: the sum of weighted kernels; for one_class 1 inside and -1 outside."""
    _check_untransformed(node)
    count = node.attr("n_supports", 0)
    operands = _operands(node, count, _fitting(node, "coefficients", count)[None])
    operands.append(node.array(_fitting(node, "rho", 1)))
    if not node.attr("one_class", 0):
        return node.emit("dense", operands, clamp=OPEN)
    total = node.inner("dense", operands, clamp=OPEN)
    inside = node.apply("greater", total, node.array(np.float32(0)))
    signs = (node.array(np.full((1, 1), v, np.float32)) for v in (1, -1))
    node.emit_function("where", inside, *signs, to="float32")


def svm_classifier(node: Any) -> None:
    """Read SVMClassifier: each pair of classes has a vote; the label is the first class with most votes.

    Scores are those of the pairs, -s and s for two classes; or probabilities, if the file has their parameters.
    """
    own = node.attr("vectors_per_class", [])
    labels = np.array(node.attr("classlabels_ints", []), np.int64)
    classes = labels.size or len(node.attr("classlabels_strings", []))
    if classes < 2 or len(own) != classes or min(own) < 0 or node.attr("post_transform", "NONE") != "NONE":
        seen = f"{classes} classes, support vectors of {len(own)}, post_transform {node.attr('post_transform', 'NONE')}"
        raise node.error(seen, "classes have support vectors; post_transform is NONE")
    pairs = list(combinations(range(classes), 2))
    weights = _pair_weights(_fitting(node, "coefficients", (classes - 1) * sum(own)), own, pairs)
    rho = node.array(_fitting(node, "rho", len(pairs)))
    scores = node.inner("dense", [*_operands(node, sum(own), weights), rho], clamp=OPEN)
    if labels.size and node.outputs[0]:
        _label(node, scores, labels, pairs)
    if len(node.outputs) < 2 or not node.outputs[1]:
        return
    if node.attr("prob_a", []):
        a, b = (node.array(_fitting(node, name, len(pairs))) for name in ("prob_a", "prob_b"))
        line = node.inner("add", [node.inner("mul", [scores, a], clamp=OPEN), b], clamp=OPEN)
        node.emit("coupling", [line], output=1, classes=classes)
    elif classes == 2:
        both = node.array(np.array([[-1.0, 1.0]], np.float32))
        node.emit("mul", [scores, both], output=1, clamp=OPEN)
    else:
        node.emit("reshape", [scores], output=1, shape=node.builder.tensors[scores].shape)


def _pair_weights(coefficients: Array, own: list[int], pairs: list[tuple[int, int]]) -> Array:
    """Weights (pairs, vectors). The file has a row per opposing class, which skips the vector's own class."""
    table, ends = coefficients.reshape(-1, sum(own)), list(accumulate(own))
    weights = np.zeros((len(pairs), sum(own)), np.float32)
    for row, (i, j) in zip(weights, pairs, strict=True):
        for of, against in ((i, j - 1), (j, i)):
            place = slice(ends[of] - own[of], ends[of])
            row[place] = table[against, place]
    return weights


def _label(node: Any, scores: str, labels: Array, pairs: list[tuple[int, int]]) -> None:
    won = node.apply("greater", scores, node.array(np.float32(0)))
    votes = np.zeros((labels.size, len(pairs)), np.float32)
    for p, (i, j) in enumerate(pairs):
        votes[i, p], votes[j, p] = 1, -1
    start = node.array(np.maximum(-votes, 0).sum(1))
    total = node.inner("dense", [node.inner("cast", [won], to="float32"), node.array(votes), start], clamp=OPEN)
    _label_of_largest(node, total, labels)


SVM_READERS = {"SVMClassifier": svm_classifier, "SVMRegressor": svm_regressor}


DOMAIN = "ai.onnx.ml"


def _real(node: Any, at: int = 0) -> str:
    """An operand in float32."""
    name: str = node.inputs[at]
    return name if node.tensor(at).dtype == "float32" else node.inner("cast", [name], to="float32")


def feature_vectorizer(node: Any) -> None:
    """Rows of all operands side by side, each cut off at its dimension or filled up with zeros, as by onnxruntime."""
    sizes = node.attr("inputdimensions", [])
    if len(sizes) != len(node.inputs):
        raise node.error(f"{len(sizes)} inputdimensions of {len(node.inputs)} inputs")
    parts = list[str]()
    for at, size in enumerate(sizes):
        x = node.tensor(at)
        rows = x.shape[0] if len(x.shape) > 1 else 1
        part, has = node.reshaped(_real(node, at), (rows, x.elements // rows)), x.elements // rows
        if has > size > 0:
            part = node.inner("slice", [part], begin=(0, 0), size=(rows, size))
        parts += [part] if size > 0 else []
        parts += [node.array(np.zeros((rows, size - has), np.float32))] if size > has else []
    node.emit("concat", parts, axis=1)


def array_feature_extractor(node: Any) -> None:
    """Read ArrayFeatureExtractor: elements along the last dimension; those of a vector become a row."""
    x, index = node.tensor(0), node.tensor(1)
    flat = node.reshaped(node.inputs[1], (index.elements,))
    gather = node.before("columns") if len(x.shape) == 1 else node
    gather.inputs = [node.inputs[0], flat]
    gather.attributes = {"axis": len(x.shape) - 1}
    READERS["Gather"](gather)
    if gather is not node:
        node.emit("reshape", gather.outputs, shape=(1, index.elements))


def scaler(node: Any) -> None:
    """Read Scaler: (x - offset) * scale, each one number or one per column."""
    less = node.apply("difference", _real(node), node.array(node.floats("offset")))
    node.emit("mul", [less, node.array(node.floats("scale"))], clamp=OPEN)


def binarizer(node: Any) -> None:
    """Read Binarizer: 1 where x is above the threshold, else 0."""
    bound = node.array(np.float32(node.attr("threshold", 0.0)))
    node.emit("cast", [node.apply("greater", _real(node), bound)], to="float32")


def imputer(node: Any) -> None:
    """Read Imputer: replace elements equal to the marker of missing values, mostly NaN, by their column's number."""
    values, missing = node.floats("imputed_value_floats"), np.float32(node.attr("replaced_value_float", 0.0))
    if not values.size:
        raise node.error("no imputed_value_floats", "numbers in float32 are supported")
    x = _real(node)
    unknown = node.apply("is_nan", x) if np.isnan(missing) else node.apply("equal", x, node.array(missing))
    node.emit_function("where", unknown, node.array(values), x, to="float32")


def label_encoder(node: Any) -> None:
    """Read LabelEncoder of integers, as a table from one below the least key to one above the largest."""
    keys, values, default = _listed(node, "keys"), _listed(node, "values"), _default(node)
    if not keys.size or keys.size != values.size or {keys.dtype.kind, values.dtype.kind} - set("if"):
        raise node.error("keys or values that are words", "numbers are supported; encode words in the application")
    if keys.dtype.kind != "i" or node.tensor(0).dtype not in ("int64", "int32"):
        raise node.error(f"keys in {keys.dtype}, an input in {node.tensor(0).dtype}", "whole numbers are supported")
    low, high = int(keys.min()) - 1, int(keys.max()) + 1
    if high - low > WIDEST or abs(low) > 2**30:
        raise node.error(f"keys from {low + 1} to {high - 1}", f"at most {WIDEST} lie between two of them")
    table = np.full(high - low + 1, default, values.dtype)
    table[keys[::-1] - low] = values[::-1]  # the first of equal keys counts
    x, like = node.inputs[0], node.tensor(0).dtype
    for function, bound in (("maximum", low), ("minimum", high), ("difference", low)):
        x = node.apply(function, x, node.array(np.array(bound, like)))
    node.emit("gather", [node.array(table), x], axis=0, batch=0)


WIDEST = 1 << 16


def _listed(node: Any, name: str) -> Array:
    """Keys or values, from any of their attributes; an empty array of strings if there are none."""
    for suffix, dtype in (("int64s", np.int64), ("floats", np.float32)):
        if node.attr(f"{name}_{suffix}", None) is not None:
            return np.array(node.attr(f"{name}_{suffix}", []), dtype)
    stored = node.attr(f"{name}_tensor", None)
    data = np.array([], "U1") if stored is None else onnx.numpy_helper.to_array(stored).ravel()
    return data.astype({"i": np.int64, "f": np.float32}.get(data.dtype.kind, data.dtype))


def _default(node: Any) -> Any:
    stored = node.attr("default_tensor", None)
    if stored is not None:
        return onnx.numpy_helper.to_array(stored).ravel()[0]
    whole = _listed(node, "values").dtype.kind == "i"
    return node.attr("default_int64", -1) if whole else node.attr("default_float", -0.0)


def one_hot_encoder(node: Any) -> None:
    """Read OneHotEncoder: a new dimension with 1 where the element, truncated, equals the category, else 0."""
    categories, x = np.array(node.attr("cats_int64s", []), np.int64), node.tensor(0)
    if not categories.size or x.dtype not in ("float32", "int32", "int64"):
        raise node.error("categories that are words", "whole numbers are supported; encode words in the application")
    whole = node.inputs[0] if x.dtype == "int64" else node.inner("cast", [node.inputs[0]], to="int64")
    line = node.reshaped(whole, (*x.shape, 1))
    node.emit("cast", [node.apply("equal", line, node.array(categories))], to="float32")


def normalizer(node: Any) -> None:
    """Read Normalizer: divide rows by their L1 norm, L2 norm or largest element."""
    x, norm = _real(node), node.attr("norm", "MAX")
    axes = (len(node.tensor(0).shape) - 1,)
    if norm == "MAX":
        total = node.inner("reduce_max", [x], axes=axes)
    else:
        sizes = node.apply("abs" if norm == "L1" else "square", x)
        total = node.inner("reduce_sum", [sizes], axes=axes)
        total = total if norm == "L1" else node.apply("sqrt", total)
        least = node.array(np.float32(np.finfo(np.float32).tiny))
        total = node.apply("maximum", total, least)
    node.emit_function("quotient", x, node.reshaped(total, kept_shape(node.tensor(0), axes, True)))


def _linear(node: Any, rows: int) -> list[str]:
    """Operands of the dense layer of a linear model."""
    weights = node.floats("coefficients")
    if rows < 1 or weights.size % rows or weights.size // rows != node.tensor(0).shape[-1]:
        raise node.error(f"{weights.size} coefficients for {rows} results of {node.tensor(0).shape[-1]} features")
    bias = node.floats("intercepts")
    operands = [_real(node), node.array(weights.reshape(rows, -1))]
    return [*operands, node.array(bias)] if bias.size else operands


def linear_regressor(node: Any) -> None:
    _check_untransformed(node)
    node.emit("dense", _linear(node, node.attr("targets", 1)), clamp=OPEN)


def linear_classifier(node: Any) -> None:
    """Read LinearClassifier: label of the largest score, and scores. For string labels, end the model at the scores."""
    labels = np.array(node.attr("classlabels_ints", []), np.int64)
    count = labels.size or len(node.attr("classlabels_strings", []))
    raw = node.inner("dense", _linear(node, count), clamp=OPEN)
    _transformed(node, raw, 1)
    if labels.size:
        _label_of_largest(node, raw, labels)


ML_READERS: Mapping[str, Callable[[Any], None]] = {
    "ArrayFeatureExtractor": array_feature_extractor,
    "Binarizer": binarizer,
    "FeatureVectorizer": feature_vectorizer,
    "Imputer": imputer,
    "LabelEncoder": label_encoder,
    "LinearClassifier": linear_classifier,
    "LinearRegressor": linear_regressor,
    "Normalizer": normalizer,
    "OneHotEncoder": one_hot_encoder,
    "Scaler": scaler,
    # C has no dictionaries, so scores stay a row in the order of labels.
    "ZipMap": lambda node: node.emit("reshape", node.inputs, shape=node.tensor(0).shape),
    **SVM_READERS,
    **TREE_READERS,
}
