"""Models that are no networks, as converters of scikit-learn and LightGBM write them: machines, forests, mixtures."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from .writer import ML, Net

NAMES = "{kind}_{number}"
CLASSES = [0, 1, 2]


def _scaled(net: Net, features: int) -> str:
    x = net.input("X", (1, features))
    offset, scale = net.rng.normal(0, 1, features), net.rng.uniform(0.5, 2, features)
    (x,) = net.ops("Scaler", x, count=1, domain=ML, offset=offset, scale=scale)
    return x


def svc() -> onnx.ModelProto:
    """StandardScaler, SVC(kernel='rbf', probability=True)."""
    net, own = Net(NAMES, 15), [4, 3, 5]
    draw = net.rng.normal
    label, shares = net.ops(
        "SVMClassifier", _scaled(net, 6), count=2, domain=ML, classlabels_ints=CLASSES, vectors_per_class=own,
        support_vectors=draw(0, 1, 6 * sum(own)), coefficients=draw(0, 1, 2 * sum(own)), rho=draw(0, 0.3, 3),
        prob_a=-net.rng.uniform(0.8, 1.5, 3), prob_b=draw(0, 0.1, 3), kernel_type="RBF", kernel_params=[0.2, 0.0, 3.0],
    )  # fmt: skip
    return net.done(label, shares)


def one_class() -> onnx.ModelProto:
    """OneClassSVM: inside or outside, and how far."""
    net = Net(NAMES, 15)
    machine: dict[str, Any] = {"coefficients": net.rng.uniform(0, 1, 7), "rho": [-1.5], "n_supports": 7}
    machine |= {"support_vectors": net.rng.normal(0, 1, 35), "kernel_type": "RBF", "kernel_params": [0.3, 0.0, 3.0]}
    (score,) = net.ops("SVMRegressor", _scaled(net, 5), count=1, domain=ML, **machine)
    inside = net.op("Greater", score, net.stored([0.0]))
    label = net.op("Where", inside, net.stored([1], np.int64), net.stored([-1], np.int64))
    return net.done(net.op("Reshape", label, net.stored([-1], np.int64)), score)


def forest() -> onnx.ModelProto:
    """LGBMClassifier with a feature of categories: trees of depth 2, the first split by category."""
    net, nodes = Net(NAMES, 15), dict[str, list[Any]]()
    for tree in range(6):
        for number in range(7):
            leaf, first = number > 2, number == 0
            row = {
                "treeids": tree, "nodeids": number, "featureids": 0 if first else int(net.rng.integers(1, 5)),
                "values": float(net.rng.integers(-1, 2)) if first else float(np.float32(net.rng.normal())),
                "modes": "LEAF" if leaf else "BRANCH_EQ" if first else "BRANCH_LEQ",
                "truenodeids": 0 if leaf else 2 * number + 1, "falsenodeids": 0 if leaf else 2 * number + 2,
                "missing_value_tracks_true": 1,
            }  # fmt: skip
            for name, value in row.items():
                nodes.setdefault(f"nodes_{name}", []).append(value)
    leaves = [(tree, number) for tree in range(6) for number in range(3, 7)]
    label, raw = net.ops(
        "TreeEnsembleClassifier", net.input("X", (1, 5)), count=2, domain=ML, **nodes, classlabels_int64s=CLASSES,
        class_treeids=[t for t, _ in leaves], class_nodeids=[n for _, n in leaves],
        class_ids=[t % 3 for t, _ in leaves], class_weights=net.rng.normal(0, 0.5, len(leaves)),
        post_transform="SOFTMAX",
    )  # fmt: skip
    return net.done(label, raw)


def mixture() -> onnx.ModelProto:
    """GaussianMixture(covariance_type='diag'): squares of scaled distances by products, ReduceLogSumExp."""
    net, count, features = Net(NAMES, 15), 3, 4
    x = net.input("X", (1, features))
    far = net.op("Add", net.op("MatMul", net.op("Mul", x, x), net.spread(features, count)), net.spread(count))
    far = net.op("Sub", far, net.op("MatMul", x, net.weight(features, count, fan=features)))
    scores = net.op("Add", net.op("Mul", far, net.stored(-0.5)), net.stored(np.log([[0.2, 0.5, 0.3]])))
    total = net.op("ReduceLogSumExp", scores, axes=[1], keepdims=1)
    shares = net.op("Exp", net.op("Sub", scores, total))
    return net.done(net.op("ArgMax", scores, axis=1, keepdims=0), shares, total)


def naive_bayes() -> onnx.ModelProto:
    """GaussianNB: squares of distances to means by broadcasting, ReduceSum, the best class."""
    net, features = Net(NAMES, 13), 5
    x = net.op("Reshape", net.input("X", (1, features)), net.stored([-1, 1, features], np.int64))
    deviation = net.op("Sub", x, net.stored(net.rng.normal(0, 1, (1, 3, features))))
    far = net.op("Div", net.op("Pow", deviation, net.stored([2.0])), net.spread(1, 3, features))
    scores = net.op("Mul", net.op("ReduceSum", far, net.stored([2], np.int64), keepdims=0), net.stored([-0.5]))
    scores = net.op("Add", scores, net.stored(np.log([0.3, 0.3, 0.4])))
    best = net.op("ArgMax", scores, axis=1, keepdims=0)
    (label,) = net.ops("ArrayFeatureExtractor", net.stored(CLASSES, np.int64), best, count=1, domain=ML)
    label = net.op("Cast", net.op("Reshape", label, net.stored([-1], np.int64)), to=TensorProto.INT64)
    rest = net.op("Sub", scores, net.op("ReduceLogSumExp", scores, axes=[1], keepdims=1))
    return net.done(label, net.op("Exp", rest))


def binned() -> onnx.ModelProto:
    """KBinsDiscretizer(encode='onehot'), LogisticRegression: each column's number of bin, one of them hot."""
    net, parts = Net(NAMES, 15), list[str]()
    x = net.input("X", (1, 3))
    for column in range(3):
        (one,) = net.ops("ArrayFeatureExtractor", x, net.stored([column], np.int64), count=1, domain=ML)
        edges = net.stored(np.sort(net.rng.normal(0, 1, (1, 3))))
        below = net.op("Cast", net.op("Less", net.op("Cast", one, to=TensorProto.FLOAT), edges), to=TensorProto.FLOAT)
        last = net.op("Add", net.op("Mul", one, net.stored([0.0])), net.stored([1.0]))
        place = net.op("ArgMax", net.op("Concat", below, last, axis=1), axis=1)
        (hot,) = net.ops("OneHotEncoder", place, count=1, domain=ML, cats_int64s=[0, 1, 2, 3])
        parts.append(net.op("Reshape", hot, net.stored([-1, 4], np.int64)))
    label, scores = net.ops(
        "LinearClassifier", net.op("Concat", *parts, axis=1), count=2, domain=ML, classlabels_ints=CLASSES,
        coefficients=net.rng.normal(0, 1, 36), intercepts=net.rng.normal(0, 1, 3), multi_class=1,
        post_transform="SOFTMAX",
    )  # fmt: skip
    (shares,) = net.ops("Normalizer", scores, count=1, domain=ML, norm="L1")
    return net.done(label, shares)


NETWORKS = {f"sklearn {f.__name__}": f for f in (svc, one_class, forest, mixture, naive_bayes, binned)}
