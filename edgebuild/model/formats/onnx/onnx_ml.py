"""Operators of the domain ai.onnx.ml that the converters of scikit-learn, LightGBM and XGBoost write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from ...ir import Array
from ...ops.pointwise import attributes
from ..compose import kept_shape
from .onnx_operators import READERS
from .onnx_svm import SVM_READERS
from .onnx_trees import TREE_READERS

DOMAIN = "ai.onnx.ml"
OPEN = (None, None)
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC")


def _real(node: Any) -> str:
    """The first operand in float32."""
    name: str = node.inputs[0]
    return name if node.tensor(0).dtype == "float32" else node.inner("cast", [name], to="float32")


def array_feature_extractor(node: Any) -> None:
    """Columns of the last dimension; of a vector they make a row."""
    x, index = node.tensor(0), node.tensor(1)
    flat = node.reshaped(node.inputs[1], (index.elements,))
    gather = node.before("columns") if len(x.shape) == 1 else node
    gather.inputs = [node.inputs[0], flat]
    gather.attributes = {"axis": len(x.shape) - 1}
    READERS["Gather"](gather)
    if gather is not node:
        node.emit("reshape", gather.outputs, shape=(1, index.elements))


def scaler(node: Any) -> None:
    """(x - offset) * scale, each for all columns or for one."""
    less = node.inner("pointwise", [_real(node), node.array(node.floats("offset"))], **attributes("difference"))
    node.emit("mul", [less, node.array(node.floats("scale"))], clamp=OPEN)


def binarizer(node: Any) -> None:
    """1 where x is above the threshold, else 0."""
    bound = node.array(np.float32(node.attr("threshold", 0.0)))
    node.emit("cast", [node.inner("pointwise", [_real(node), bound], **attributes("greater"))], to="float32")


def imputer(node: Any) -> None:
    """Elements that stand for what is not known, most often NaN, become the number of their column."""
    values, missing = node.floats("imputed_value_floats"), np.float32(node.attr("replaced_value_float", 0.0))
    if not values.size:
        raise node.error("no imputed_value_floats", "numbers in float32 are supported")
    x = _real(node)
    if np.isnan(missing):
        unknown = node.inner("pointwise", [x], **attributes("is_nan"))
    else:
        unknown = node.inner("pointwise", [x, node.array(missing)], **attributes("equal"))
    node.emit("pointwise", [unknown, node.array(values), x], **{**attributes("where"), "to": "float32"})


def label_encoder(node: Any) -> None:
    """Whole numbers become others by a table from below the least key to above the largest."""
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
        x = node.inner("pointwise", [x, node.array(np.array(bound, like))], **attributes(function))
    node.emit("gather", [node.array(table), x], axis=0, batch=0)


WIDEST = 1 << 16


def _listed(node: Any, name: str) -> Array:
    """Keys or values, whichever attribute holds them; of no type that is a number if there are none."""
    for suffix, dtype in (("int64s", np.int64), ("floats", np.float32)):
        if node.attr(f"{name}_{suffix}", None) is not None:
            return np.array(node.attr(f"{name}_{suffix}", []), dtype)
    stored = node.attr(f"{name}_tensor", None)
    data = np.array([], "U1") if stored is None else onnx.numpy_helper.to_array(stored).ravel()
    return (
        data.astype(np.int64) if data.dtype.kind == "i" else data.astype(np.float32) if data.dtype.kind == "f" else data
    )


def _default(node: Any) -> Any:
    stored = node.attr("default_tensor", None)
    if stored is not None:
        return onnx.numpy_helper.to_array(stored).ravel()[0]
    return (
        node.attr("default_int64", -1)
        if _listed(node, "values").dtype.kind == "i"
        else node.attr("default_float", -0.0)
    )


def one_hot_encoder(node: Any) -> None:
    """A further dimension with 1 where the element, cut off to a whole number, is the category; elsewhere 0."""
    categories, x = np.array(node.attr("cats_int64s", []), np.int64), node.tensor(0)
    if not categories.size or x.dtype not in ("float32", "int32", "int64"):
        raise node.error("categories that are words", "whole numbers are supported; encode words in the application")
    whole = node.inputs[0] if x.dtype == "int64" else node.inner("cast", [node.inputs[0]], to="int64")
    line = node.reshaped(whole, (*x.shape, 1))
    node.emit("cast", [node.inner("pointwise", [line, node.array(categories)], **attributes("equal"))], to="float32")


def normalizer(node: Any) -> None:
    """Rows divided by the sum of their sizes, their length, or their largest element."""
    x, norm = _real(node), node.attr("norm", "MAX")
    axes = (len(node.tensor(0).shape) - 1,)
    if norm == "MAX":
        total = node.inner("reduce_max", [x], axes=axes)
    else:
        sizes = node.inner("pointwise", [x], **attributes("abs" if norm == "L1" else "square"))
        total = node.inner("reduce_sum", [sizes], axes=axes)
        total = total if norm == "L1" else node.inner("pointwise", [total], **attributes("sqrt"))
        least = node.array(np.float32(np.finfo(np.float32).tiny))
        total = node.inner("pointwise", [total, least], **attributes("maximum"))
    node.emit("pointwise", [x, node.reshaped(total, kept_shape(node.tensor(0), axes, True))], **attributes("quotient"))


def _linear(node: Any, rows: int) -> list[str]:
    """Operands of the dense layer."""
    weights = node.floats("coefficients")
    if rows < 1 or weights.size % rows or weights.size // rows != node.tensor(0).shape[-1]:
        raise node.error(f"{weights.size} coefficients for {rows} results of {node.tensor(0).shape[-1]} features")
    bias = node.floats("intercepts")
    operands = [_real(node), node.array(weights.reshape(rows, -1))]
    return [*operands, node.array(bias)] if bias.size else operands


def linear_regressor(node: Any) -> None:
    if node.attr("post_transform", "NONE") != "NONE":
        raise node.error(f"post_transform {node.attr('post_transform', '')}", "NONE is supported")
    node.emit("dense", _linear(node, node.attr("targets", 1)), clamp=OPEN)


def linear_classifier(node: Any) -> None:
    """The label of the largest score, and the scores. Labels that are words have no type here: cut the label off."""
    labels = np.array(node.attr("classlabels_ints", []), np.int64)
    count = labels.size or len(node.attr("classlabels_strings", []))
    transform = node.attr("post_transform", "NONE")
    if transform not in TRANSFORMS:
        raise node.error(f"post_transform {transform}", f"supported: {', '.join(TRANSFORMS)}")
    raw = node.inner("dense", _linear(node, count), clamp=OPEN)
    if transform == "SOFTMAX":
        node.emit("softmax", [raw], output=1, beta=1.0)
    elif transform == "LOGISTIC":
        node.emit("pointwise", [raw], output=1, **attributes("sigmoid"))
    else:
        node.emit("reshape", [raw], output=1, shape=node.builder.tensors[raw].shape)
    if labels.size:
        best = node.inner("arg", [raw], axis=1, largest=True, last=False, to="int64")
        node.emit("gather", [node.array(labels), best], axis=0, batch=0)


def zip_map(node: Any) -> None:
    """Scores under their labels. C has no dictionaries: the scores stay a row, in the order of the labels."""
    node.emit("reshape", node.inputs, shape=node.tensor(0).shape)


ML_READERS: Mapping[str, Callable[[Any], None]] = {
    "ArrayFeatureExtractor": array_feature_extractor,
    "Binarizer": binarizer,
    "Imputer": imputer,
    "LabelEncoder": label_encoder,
    "LinearClassifier": linear_classifier,
    "LinearRegressor": linear_regressor,
    "Normalizer": normalizer,
    "OneHotEncoder": one_hot_encoder,
    "Scaler": scaler,
    "ZipMap": zip_map,
    **SVM_READERS,
    **TREE_READERS,
}
