"""scikit-learn through skl2onnx, and JAX through jax2onnx or jax2tf."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from .writer import ML, Net

SKLEARN = "{kind}_{number}"
JAX = "jax_{kind}_{number}:0"


def _labelled(net: Net, scores: str, labels: list[int]) -> list[str]:
    """The label with the best score: ArgMax, ArrayFeatureExtractor, Reshape, as skl2onnx ends classifiers."""
    best = net.op("ArgMax", scores, axis=1, keepdims=0)
    (label,) = net.ops("ArrayFeatureExtractor", net.stored(labels, np.int64), best, count=1, domain=ML)
    label = net.op("Cast", net.op("Cast", label, to=TensorProto.INT64), to=TensorProto.INT64)
    return [net.op("Reshape", label, net.stored([-1], np.int64)), scores]


def sklearn_mlp() -> onnx.ModelProto:
    """MLPClassifier: Cast, MatMul, Add, Relu, ..., Softmax."""
    net = Net(SKLEARN, 15)
    x = net.op("Cast", net.input("X", (None, 6)), to=TensorProto.FLOAT)  # type: ignore[arg-type]
    x = net.op("Relu", net.projected(x, 6, 10))
    x = net.op("Tanh", net.projected(x, 10, 8))
    return net.done(*_labelled(net, net.op("Softmax", net.projected(x, 8, 4), axis=1), [3, 5, 7, 11]))


def sklearn_binary_mlp() -> onnx.ModelProto:
    """MLPClassifier of two classes: Sigmoid, 1 - p, Concat."""
    net = Net(SKLEARN, 15)
    x = net.op("Cast", net.input("X", (1, 5)), to=TensorProto.FLOAT)
    p = net.op("Sigmoid", net.projected(net.op("Relu", net.projected(x, 5, 8)), 8, 1))
    both = net.op("Concat", net.op("Sub", net.stored([1.0]), p), p, axis=1)
    return net.done(*_labelled(net, both, [0, 1]))


def sklearn_pipeline() -> onnx.ModelProto:
    """StandardScaler, PCA, LogisticRegression: Scaler, Sub, MatMul, LinearClassifier, Normalizer."""
    net = Net(SKLEARN, 15)
    x = net.input("X", (1, 6))
    draw = net.rng.normal
    (x,) = net.ops("Scaler", x, count=1, domain=ML, offset=draw(0, 1, 6), scale=net.rng.uniform(0.5, 2, 6))
    x = net.op("MatMul", net.op("Sub", x, net.weight(6, fan=6)), net.weight(6, 3))
    label, scores = net.ops(
        "LinearClassifier", x, count=2, domain=ML, classlabels_ints=[1, 2, 4], multi_class=1,
        coefficients=draw(0, 1, 9), intercepts=draw(0, 1, 3), post_transform="SOFTMAX",
    )  # fmt: skip
    (shares,) = net.ops("Normalizer", scores, count=1, domain=ML, norm="L1")
    return net.done(label, shares)


def sklearn_kmeans() -> onnx.ModelProto:
    """KMeans: squared distances by ReduceSumSquare and Gemm, ArgMin, Sqrt."""
    net = Net(SKLEARN, 13)
    x, centres = net.input("X", (1, 4)), net.rng.normal(0, 1, (5, 4))
    own = net.op("ReduceSumSquare", x, axes=[1], keepdims=1)
    cross = net.op("Gemm", x, net.stored(centres), own, alpha=-2.0, transB=1)
    far = net.op("Add", net.stored((centres**2).sum(1)[None]), cross)
    return net.done(net.op("ArgMin", far, axis=1, keepdims=0), net.op("Sqrt", net.op("Abs", far)))


def sklearn_regressor() -> onnx.ModelProto:
    """Ridge behind PolynomialFeatures of degree 2: products of columns, LinearRegressor."""
    net = Net(SKLEARN, 15)
    x = net.input("X", (1, 3))
    columns = [net.ops("ArrayFeatureExtractor", x, net.stored([i], np.int64), count=1, domain=ML)[0] for i in range(3)]
    products = [net.op("Mul", columns[i], columns[j]) for i in range(3) for j in range(i, 3)]
    wide = net.op("Concat", net.stored([[1.0]]), x, *products, axis=1)
    (y,) = net.ops("LinearRegressor", wide, count=1, domain=ML, coefficients=net.rng.normal(0, 1, 10), intercepts=[0.5])
    return net.done(net.op("Reshape", y, net.stored([-1, 1], np.int64)))


def jax_mlp() -> onnx.ModelProto:
    """Flax Dense layers: a product, a bias that is broadcast by Reshape and Expand; GELU by tanh, by parts."""
    net = Net(JAX, 17)
    x, inner = net.input("x", (1, 8)), 8
    for out in (12, 5):
        y = net.op("MatMul", x, net.weight(inner, out, fan=inner))
        bias = net.op("Reshape", net.weight(out, fan=20), net.stored([1, out], np.int64))
        y = net.op("Add", y, net.op("Expand", bias, net.stored([1, out], np.int64)))
        cube = net.op("Mul", net.op("Mul", y, y), y)
        inside = net.op("Mul", net.op("Add", y, net.op("Mul", cube, net.stored(0.044715))), net.stored(0.7978846))
        half = net.op("Mul", net.op("Add", net.op("Tanh", inside), net.stored(1.0)), net.stored(0.5))
        x, inner = net.op("Mul", y, half), out
    return net.done(x)


def jax_cnn() -> onnx.ModelProto:
    """lax.conv_general_dilated between Transposes, avg_pool as a scaled pool, log_softmax by parts."""
    net = Net(JAX, 17)
    x = net.input("x", (1, 10, 10, 2))
    for inner, out in ((2, 6), (6, 6)):
        y = net.op("Transpose", x, perm=[0, 3, 1, 2])
        y = net.op(
            "Conv", y, net.weight(out, inner, 3, 3), pads=[1, 1, 1, 1], strides=[1, 1], dilations=[1, 1], group=1
        )
        y = net.op("Add", net.op("Transpose", y, perm=[0, 2, 3, 1]), net.weight(1, 1, 1, out, fan=20))
        x = net.op("Max", y, net.stored(np.zeros((1, 1, 1, 1))))
    x = net.op("Transpose", x, perm=[0, 3, 1, 2])
    x = net.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Reshape", net.op("Transpose", x, perm=[0, 2, 3, 1]), net.stored([1, 150], np.int64))
    x = net.projected(x, 150, 4)
    rest = net.op("Sub", x, net.op("ReduceMax", x, axes=[-1], keepdims=1))
    total = net.op("Log", net.op("ReduceSum", net.op("Exp", rest), net.stored([-1], np.int64), keepdims=1))
    return net.done(net.op("Sub", rest, total))


def jax_attention() -> onnx.ModelProto:
    """Flax self-attention: dot_general as Einsum, softmax by parts, a mask by Where, RMSNorm by parts."""
    net = Net(JAX, 17)
    x = net.input("x", (1, 5, 8))
    mean = net.op("ReduceMean", net.op("Mul", x, x), axes=[-1], keepdims=1)
    root = net.op("Div", net.stored(1.0), net.op("Sqrt", net.op("Add", mean, net.stored(1e-6))))
    y = net.op("Mul", net.op("Mul", x, root), net.spread(8))
    q, k, v = (
        net.op("Reshape", net.op("MatMul", y, net.weight(8, 8)), net.stored([1, 5, 2, 4], np.int64)) for _ in range(3)
    )
    scores = net.op("Div", net.op("Einsum", q, k, equation="bqhd,bkhd->bhqk"), net.stored(2.0))
    mask = net.stored(np.tril(np.ones((1, 1, 5, 5), bool)), bool)
    scores = net.op("Where", mask, scores, net.stored(np.full((1, 1, 1, 1), -1e9)))
    top = net.op("ReduceMax", scores, axes=[-1], keepdims=1)
    powers = net.op("Exp", net.op("Sub", scores, top))
    shares = net.op("Div", powers, net.op("ReduceSum", powers, net.stored([-1], np.int64), keepdims=1))
    seen = net.op("Reshape", net.op("Einsum", shares, v, equation="bhqk,bkhd->bqhd"), net.stored([1, 5, 8], np.int64))
    return net.done(net.op("Add", x, net.op("MatMul", seen, net.weight(8, 8))))


def jax_rnn() -> onnx.ModelProto:
    """A scan that was unrolled: an LSTM cell of one matrix on joined input and state, three steps, one state out."""
    net = Net(JAX, 17)
    x, h, c = net.input("x", (1, 3, 4)), net.input("h", (1, 5)), net.input("c", (1, 5))
    w, b, one = net.weight(9, 20, fan=9), net.weight(20, fan=20), net.stored([1], np.int64)
    for t in range(3):
        now = net.op("Slice", x, net.stored([0, t, 0], np.int64), net.stored([1, t + 1, 4], np.int64))
        joined = net.op("Concat", net.op("Squeeze", now, one), h, axis=-1)
        gates = net.op("Add", net.op("MatMul", joined, w), b)
        i, g, f, o = net.ops("Split", gates, count=4, axis=1)
        forget = net.op("Sigmoid", net.op("Add", f, net.stored(1.0)))
        c = net.op("Add", net.op("Mul", forget, c), net.op("Mul", net.op("Sigmoid", i), net.op("Tanh", g)))
        h = net.op("Mul", net.op("Sigmoid", o), net.op("Tanh", c))
    return net.done(h, c)


NETWORKS = {
    f.__name__.replace("_", " ", 1): f
    for f in (
        sklearn_mlp, sklearn_binary_mlp, sklearn_pipeline, sklearn_kmeans, sklearn_regressor, jax_mlp, jax_cnn,
        jax_attention, jax_rnn,
    )
}  # fmt: skip
