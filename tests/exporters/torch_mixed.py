"""Networks of PyTorch that mix fields: linear attention, experts, graphs, points, greedy decoders, fused sensors."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from .torch_vision import DYNAMO, TRACED
from .writer import Net


def linear_attention() -> onnx.ModelProto:
    """Elu plus one of queries and keys, torch.einsum of three operands, a circular convolution, scaled back."""
    net = Net(TRACED, 17)
    x = net.input("x", (1, 16, 4))
    mean = net.op("ReduceMean", x, axes=[1], keepdims=1)
    less = net.op("Sub", x, mean)
    variance = net.op("ReduceMean", net.op("Mul", less, less), axes=[1], keepdims=1)
    spread = net.op("Sqrt", net.op("Add", variance, net.value(1e-5)))
    z = net.op("Div", less, spread)
    q, k = (net.op("Add", net.op("Elu", net.projected(z, 4, 6)), net.value(1.0)) for _ in range(2))
    memory = net.op("Einsum", k, net.projected(z, 4, 6), equation="btd,bte->bde")
    total = net.op("Einsum", q, net.op("ReduceSum", k, net.longs(1), keepdims=0), equation="btd,bd->bt")
    share = net.op("Div", net.value(1.0), net.op("Add", total, net.value(1e-6)))
    y = net.op("Transpose", net.op("Einsum", q, memory, share, equation="btd,bde,bt->bte"), perm=[0, 2, 1])
    last = net.op("Slice", y, net.longs(-1), net.longs(np.iinfo(np.int64).max), net.longs(2), net.longs(1))
    first = net.op("Slice", y, net.longs(0), net.longs(1), net.longs(2), net.longs(1))
    y = net.op("Elu", net.conv(net.op("Concat", last, y, first, axis=2), 6, 6, (3,), pads=[0, 0]))
    y = net.op("MaxPool", y, kernel_shape=[3], strides=[2], pads=[1, 1])
    y = net.linear(net.op("Flatten", y, axis=1), 4, 48)
    back = [net.op("Squeeze", each, net.longs(1)) for each in (spread, mean)]
    return net.done(net.op("Add", net.op("Mul", y, back[0]), back[1]))


def experts() -> onnx.ModelProto:
    """A gate chooses two of four experts by TopK; zeros with its shares scattered weigh all of them. Places go out."""
    net = Net(TRACED, 17)
    x = net.op("Relu", net.conv(net.input("x", (1, 3, 9, 9)), 8, 3, (3, 3), strides=[3, 3]))
    x = net.op("ReduceMax", x, axes=[2, 3], keepdims=0)
    best, places = net.ops("TopK", net.linear(x, 4, 8), net.longs(2), count=2, axis=-1, largest=1, sorted=1)
    shares = net.op("ScatterElements", net.value(np.zeros((1, 4))), places, net.op("Softmax", best, axis=-1), axis=1)
    each = net.op("Einsum", x, net.weight(4, 8, 5, fan=8), equation="bi,eio->beo")
    weighed = net.op("Mul", net.op("Unsqueeze", shares, net.longs(-1)), each)
    return net.done(net.op("ReduceSum", weighed, net.longs(1), keepdims=0), places)


def graph_attention() -> onnx.ModelProto:
    """Neighbours or oneself, scores of all pairs by Expand, a mask by Where, log_softmax of each node."""
    net, n = Net(DYNAMO, 18), 6
    x, edges = net.input("x", (1, n, 4)), net.input("edges", (1, n, n), TensorProto.INT64)
    near = net.op("Or", net.op("Greater", edges, net.value(5, np.int64)), net.stored(np.eye(n), np.bool_))
    h = net.projected(x, 4, 5)
    pairs = [net.op("Expand", net.op("Unsqueeze", h, net.longs(axis)), net.longs(1, n, n, 5)) for axis in (2, 1)]
    scores = net.op("Squeeze", net.projected(net.op("Concat", *pairs, axis=-1), 10, 1), net.longs(-1))
    scores = net.op("Where", near, net.op("LeakyRelu", scores, alpha=0.2), net.value(-1e4))
    h = net.op("Relu", net.op("MatMul", net.op("Softmax", scores, axis=-1), h))
    return net.done(net.op("LogSoftmax", net.projected(h, 5, 3), axis=-1))


def point_net() -> onnx.ModelProto:
    """A matrix that the network computes turns the points; 1 x 1 convolutions; the largest of each channel."""
    net = Net(TRACED, 13)
    x = net.input("points", ("batch", 6, 20))
    place = net.op("Slice", x, net.longs(0), net.longs(3), net.longs(1))
    rest = net.op("Slice", x, net.longs(3), net.longs(6), net.longs(1))
    t = net.op("Relu", net.normalised(net.conv(place, 8, 3, (1,)), 8))
    t = net.linear(net.op("ReduceMax", t, axes=[2], keepdims=0), 9, 8)
    turn = net.op("Reshape", net.op("Add", t, net.value(np.eye(3).ravel())), net.longs(-1, 3, 3))
    turned = net.op("MatMul", net.op("Transpose", place, perm=[0, 2, 1]), turn)
    y = net.op("Concat", net.op("Transpose", turned, perm=[0, 2, 1]), rest, axis=1)
    y = net.op("Relu", net.normalised(net.conv(y, 12, 6, (1,)), 12))
    both = [net.op(kind, y, axes=[2], keepdims=0) for kind in ("ReduceMax", "ReduceMean")]
    return net.done(net.linear(net.op("Concat", *both, axis=1), 4, 24))


def involution() -> onnx.ModelProto:
    """F.unfold as a trace has it, Pad and two Gathers of a grid of places, weighed by what a convolution computes."""
    net, side = Net(TRACED, 17), 6
    x = net.input("x", (1, 4, side, side))
    w = net.conv(net.op("Relu", net.conv(x, 3, 4, (1, 1))), 2 * 9, 3, (1, 1))
    w = net.op("Reshape", w, net.longs(1, 2, 1, 9, side, side))
    grid = net.value(np.arange(side) + np.arange(3)[:, None], np.int64)
    y = net.op("Gather", net.op("Pad", x, net.longs(0, 0, 1, 1, 0, 0, 1, 1)), grid, axis=2)
    y = net.op("Transpose", net.op("Gather", y, grid, axis=4), perm=[0, 1, 2, 4, 3, 5])
    y = net.op("Reshape", net.op("Reshape", y, net.longs(1, 36, -1)), net.longs(1, 2, 2, 9, side, side))
    y = net.op("ReduceSum", net.op("Mul", w, y), net.longs(3), keepdims=0)
    return net.done(net.conv(net.op("Reshape", y, net.longs(1, 4, side, side)), 3, 4, (1, 1)))


def deeplab() -> onnx.ModelProto:
    """Dilated branches, one of the whole image that Resize spreads, the class of each pixel in uint8."""
    net = Net(TRACED, 17)
    x = net.op("Relu", net.conv(net.input("x", (1, 3, 17, 17)), 6, 3, (3, 3), strides=[2, 2], pads=[1, 1, 1, 1]))
    branches = [net.conv(x, 4, 6, (3, 3), dilations=[d, d], pads=[d] * 4) for d in (1, 2, 3)]
    whole = net.op("Relu", net.conv(net.op("GlobalAveragePool", x), 4, 6, (1, 1)))
    branches.append(net.op("Resize", whole, "", "", net.longs(1, 4, 9, 9), mode="linear",
                           coordinate_transformation_mode="half_pixel"))  # fmt: skip
    y = net.conv(net.op("Relu", net.op("Concat", *branches, axis=1)), 3, 16, (1, 1))
    y = net.op("Resize", y, "", "", net.longs(1, 3, 17, 17), mode="linear",
               coordinate_transformation_mode="align_corners")  # fmt: skip
    return net.done(net.op("Cast", net.op("ArgMax", y, axis=1, keepdims=0), to=TensorProto.UINT8))


def greedy_decoder() -> onnx.ModelProto:
    """nn.GRU reads; nn.GRUCell writes three words, each from the row of the most likely one before."""
    net = Net(TRACED, 17)
    x = net.op("Transpose", net.input("x", (1, 5, 4)), perm=[1, 0, 2])
    weights = [net.weight(1, 18, n, fan=n) for n in (4, 6)]
    _, h = net.ops("GRU", x, *weights, net.weight(1, 36, fan=20), count=2, hidden_size=6, linear_before_reset=1)
    h, word = net.op("Squeeze", h, net.longs(0)), net.value([0], np.int64)
    table, own, back, out = net.weight(7, 5), net.weight(18, 5), net.weight(18, 6), net.weight(7, 6)
    bias, logits = net.weight(18, fan=20), []
    for _ in range(3):
        a = net.op("Gemm", net.op("Gather", table, word), own, bias, transB=1)
        b = net.op("Gemm", h, back, bias, transB=1)
        (r, z, n), (hr, hz, hn) = (net.ops("Split", v, net.longs(6, 6, 6), count=3, axis=1) for v in (a, b))
        new = net.op("Tanh", net.op("Add", n, net.op("Mul", net.op("Sigmoid", net.op("Add", r, hr)), hn)))
        keep = net.op("Sigmoid", net.op("Add", z, hz))
        h = net.op("Add", net.op("Mul", net.op("Sub", h, new), keep), new)
        logits.append(net.op("Gemm", h, out, transB=1))
        word = net.op("ArgMax", logits[-1], axis=-1, keepdims=0, select_last_index=0)
    return net.done(net.op("Concat", *(net.op("Unsqueeze", s, net.longs(1)) for s in logits), axis=1))


def sensor_fusion() -> onnx.ModelProto:
    """A unit quaternion turns an acceleration by cross products; atan2 by Atan and Where; steps as int32."""
    net = Net(TRACED, 17)
    x = net.input("x", (1, 9))
    a, g, m = net.ops("Split", x, net.longs(3, 3, 3), count=3, axis=1)
    q = net.linear(x, 4, 9)
    q = net.op("Div", q, net.op("Clip", net.op("ReduceL2", q, axes=[-1], keepdims=1), net.value(1e-12)))
    w, v = net.ops("Split", q, net.longs(1, 3), count=2, axis=1)

    def cross(left: str, right: str) -> str:
        places = [net.longs(1, 2, 0), net.longs(2, 0, 1)]
        parts = [[net.op("Gather", side, place, axis=1) for place in places] for side in (left, right)]
        one, other = net.op("Mul", parts[0][0], parts[1][1]), net.op("Mul", parts[0][1], parts[1][0])
        return net.op("Sub", one, other)

    inner = net.op("Add", cross(v, a), net.op("Mul", w, a))
    turned = net.op("Add", a, net.op("Mul", net.value(2.0), cross(v, inner)))
    up, along = (net.op("Gather", turned, net.longs(i), axis=1) for i in (1, 2))
    angle = net.op("Atan", net.op("Div", up, along))
    half = net.op("Where", net.op("Greater", up, net.value(0.0)), net.value(np.pi), net.value(-np.pi))
    behind = net.op("Where", net.op("Less", along, net.value(0.0)), half, net.value(0.0))
    steps = net.op("Cast", net.op("Floor", net.op("Mul", m, net.value(4.0))), to=TensorProto.INT32)
    phase = net.op("Sub", g, net.op("Mul", net.op("Floor", net.op("Div", g, net.value(1.5))), net.value(1.5)))
    return net.done(net.op("Concat", turned, net.op("Add", angle, behind), phase, axis=1), steps)


NETWORKS = {
    f"torch {f.__name__}": f
    for f in (
        linear_attention, experts, graph_attention, point_net, involution, deeplab, greedy_decoder, sensor_fusion,
    )
}  # fmt: skip
