"""Constant channels: what is proven holds, what is removed changes no output, and what must stay stays."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from edgebuild.base.request import model_request
from edgebuild.model import ops
from edgebuild.model.compile import compile_model, inspect
from edgebuild.model.ir import Array, Graph, Op, Quant, Tensor, dump, verify
from edgebuild.model.passes.canonicalize import canonicalize
from edgebuild.model.passes.constants import intervals, remove_constants
from tests.conftest import by_day
from tests.fuzz.recipe import choice
from tests.graphs import examples, random_inputs, small_graphs
from tests.graphs.chains import FORMS, Chain
from tests.graphs.source import sources

GRAPHS, VECTORS = len(by_day(range(150))), 4
HELLO = Path(__file__).parents[3] / "shared" / "models" / "hello_world.tflite"


@st.composite
def sandwiches(draw: st.DrawFn) -> Graph:
    """Sums at both ends and, between them, ops that carry channels from operand to result."""
    s = draw(sources(FORMS[:2]))
    chain = Chain(s)
    x = chain.conv(chain.input((1, s.between(3, 6), s.between(3, 6), s.between(1, 4))))
    for _ in range(s.between(0, 4)):
        word = s.pick("depthwise", "grouped", "pool", "pad", "clamp", "beside", "reshape")
        if word == "beside":
            other = chain.depthwise(x)
            if other.shape == x.shape:
                x = chain.concat(x, other) if s.pick(True, False) else chain.two(x, other)
        else:
            x = getattr(chain, word)(x)
    y = chain.conv(x) if s.pick(True, False) else chain.head(x)
    graph = s.graph(chain.ops, list(chain.tensors.values()), [y.name])
    verify(graph, ops.result_shape)
    return graph


def deadened(graph: Graph, rng: np.random.Generator) -> Graph:
    """The graph with some channels of its sums without weights, and some with biases out of all proportion."""
    tensors = dict(graph.tensors)
    for op in graph.ops:
        if ops.SPECS[op.kind].total is None:
            continue
        _, w, bias = graph.operands(op)
        assert w.data is not None and bias.data is not None
        weights, start = w.data.copy(), bias.data.copy()
        by_channel = np.moveaxis(weights, 3 if op.kind == "depthwise_conv2d" else 0, 0)
        for k in range(len(start)):
            kind = rng.choice(["live", "no weights", "low", "high", "wrapping"], p=[0.35, 0.25, 0.2, 0.1, 0.1])
            if kind == "no weights":
                by_channel[k] = 0
            elif kind != "live" and w.dtype == "int8":
                start[k] = {"low": -(2**29), "high": 2**29, "wrapping": 2**31 - 1}[kind]
        tensors |= {w.name: replace(w, data=weights), bias.name: replace(bias, data=start)}
    return replace(graph, tensors=tensors)


def graphs() -> list[Graph]:
    rng = np.random.default_rng(7)
    return [
        canonicalize(deadened(graph, rng))
        for graph in (*examples(small_graphs(), GRAPHS), *examples(sandwiches(), GRAPHS))
    ]


def test_outputs_stay_bit_for_bit() -> None:
    removed = kept = 0
    for seed, graph in enumerate(graphs()):
        small = remove_constants(graph, block=1)
        removed += sum(r.channels for r in small.removed)
        kept += all(t.shape == graph.tensors[n].shape for n, t in small.tensors.items() if n in graph.tensors)
        assert small.removed_macs == ops.macs(graph) - ops.macs(small) >= 0
        for vector in random_inputs(graph, VECTORS, seed):
            before, after = ops.run(graph, *vector), ops.run(small, *vector)
            for name in graph.outputs:
                np.testing.assert_array_equal(after[name], before[name], err_msg=dump(graph) + dump(small))
    assert removed > GRAPHS, "the random graphs have constant channels"
    assert kept > GRAPHS // 20, "and some have none that may go"


def test_an_output_channel_that_chooses_its_group_stays() -> None:
    """Without the channels of one group, those of the others would read the wrong ones."""
    for seed in range(20):
        chain = Chain(choice(seed))
        x = chain.input((1, 4, 4, 4))
        w = chain.s.weights("w", (8, 1, 1, 2), 0)
        assert w.data is not None
        w.data[seed % 2 * 4 :][:4] = 0
        each = {"stride": (1, 1), "pad": (0,) * 4, "dilation": (1, 1)}
        y = chain.conv(chain.sum("conv2d", x, w, 2, **each, groups=2))
        graph = canonicalize(chain.s.graph(chain.ops, list(chain.tensors.values()), [y.name]))
        small = remove_constants(graph)
        for vector in random_inputs(graph, VECTORS, seed):
            before, after = ops.run(graph, *vector), ops.run(small, *vector)
            np.testing.assert_array_equal(after[y.name], before[y.name], err_msg=dump(graph) + dump(small))


def test_intervals_hold_every_value() -> None:
    for seed, graph in enumerate(graphs()):
        ranges = dict(intervals(graph))
        for vector in random_inputs(graph, VECTORS, seed):
            values = ops.run(graph, *vector)
            for name, (low, high) in ranges.items():
                assert (low <= values[name]).all() and (values[name] <= high).all(), f"{name}\n{dump(graph)}"


def test_counts_stay_what_kernels_take_at_once() -> None:
    small = remove_constants(network(), block=4)
    assert small.tensors["a"].shape == (1, 4, 4, 8) and remove_constants(network(), block=1) != small


# By hand ---------------------------------------------------------------------------------------

Q = Quant((0.05,), (-10,))


def constant(name: str, data: Array, scale: float) -> Tensor:
    return Tensor(name, data.shape, str(data.dtype), Quant((scale,), (0,)), data)


def network(pad: int = 0, value: int = -10, dead: int = 5, kind: str = "conv2d") -> Graph:
    """A 1x1 convolution to 12 channels, of which the last `dead` are `value`; then a 3x3 one or an op named `kind`."""
    rng = np.random.default_rng(3)
    w0, w1 = rng.integers(-99, 99, (12, 1, 1, 3), np.int8), rng.integers(-99, 99, (4, 3, 3, 12), np.int8)
    b0, b1 = rng.integers(-500, 500, 12).astype(np.int32), rng.integers(-500, 500, 4).astype(np.int32)
    w0[12 - dead :] = 0
    b0[12 - dead :] = 25 * (value + 10)
    sums = {"clamp": (None, None), "stride": (1, 1), "dilation": (1, 1)}
    first = Op("conv2d", "first", ("x", "w0", "b0"), ("a",), {**sums, "pad": (0, 0, 0, 0)})
    tensors = [Tensor("x", (1, 4, 4, 3), "int8", Q), Tensor("a", (1, 4, 4, 12), "int8", Q)]
    tensors += [constant("w0", w0, 0.002), constant("b0", b0, 0.0001)]
    if kind == "conv2d":
        second = Op("conv2d", "second", ("a", "w1", "b1"), ("y",), {**sums, "pad": (pad,) * 4})
        tensors += [constant("w1", w1, 0.02), constant("b1", b1, 0.001)]
    else:
        second = Op("softmax", "second", ("a",), ("y",), {"beta": 1.0})
    draft = {t.name: t for t in tensors} | {"y": Tensor("y", (), "int8", Quant((1 / 256,), (-128,)))}
    graph = Graph("by hand", (first, second), draft, ("x",), ("y",))
    shape = ops.result_shape(second, graph)
    return replace(graph, tensors={**draft, "y": replace(draft["y"], shape=shape)})


@pytest.mark.parametrize(
    ("graph", "left"),
    [
        pytest.param(network(), 7, id="folded"),
        pytest.param(network(value=33), 7, id="folded, not the zero point"),
        pytest.param(network(pad=1), 7, id="the zero point beside padding"),
        pytest.param(network(pad=1, value=33), 12, id="another value beside padding"),
        pytest.param(network(dead=12), 1, id="one stays of all"),
        pytest.param(network(kind="softmax"), 12, id="the reader takes them together"),
    ],
)
def test_what_goes_and_what_stays(graph: Graph, left: int) -> None:
    small = remove_constants(graph, block=1)
    assert small.tensors["a"].shape[-1] == left, dump(small)
    for vector in random_inputs(graph, VECTORS, 1):
        np.testing.assert_array_equal(ops.run(small, *vector)["y"], ops.run(graph, *vector)["y"])


@pytest.mark.parametrize("begin", [0, 2, 4])
def test_a_slice_takes_channels_by_their_places(begin: int) -> None:
    """They were tied to channels of other tensors, which went or stayed with them, or to none at all."""
    graph = network()
    part = Op("slice", "part", ("a",), ("p",), {"begin": (0, 0, 0, begin), "size": (1, 4, 4, 8)})
    w1 = graph.tensors["w1"]
    assert w1.data is not None
    narrow = constant("w1", w1.data[..., :8], 0.02)
    tensors = {**graph.tensors, "p": Tensor("p", (1, 4, 4, 8), "int8", Q), "w1": narrow}
    first, second = graph.ops
    graph = replace(graph, ops=(first, part, replace(second, inputs=("p", "w1", "b1"))), tensors=tensors)
    small = remove_constants(graph, block=1)
    verify(small, ops.result_shape)
    assert (small.tensors["a"].shape[-1], small.tensors["p"].shape[-1]) == (12, 8)
    for vector in random_inputs(graph, VECTORS, 4):
        np.testing.assert_array_equal(ops.run(small, *vector)["y"], ops.run(graph, *vector)["y"])


def test_scalars_have_no_channels() -> None:
    """Beside channels that go, an op of an operand without dimensions stays as it is."""
    graph = network()
    scalars = {name: Tensor(name, (), "float32") for name in ("s", "r")}
    root = Op("pointwise", "root", ("s",), ("r",), {"function": "sqrt", "clamp": (None, None)})
    tensors = {**graph.tensors, **scalars}
    both = replace(graph, ops=(*graph.ops, root), tensors=tensors, inputs=("x", "s"), outputs=("y", "r"))
    small = remove_constants(both, block=1)
    assert small.tensors["a"].shape[-1] == 7 and root in small.ops


def test_no_bias_leaves_int32() -> None:
    graph = network(value=33)
    full = replace(graph.tensors["b1"], data=np.full(4, 2**31 - 1, np.int32))
    small = remove_constants(replace(graph, tensors={**graph.tensors, "b1": full}), block=1)
    assert small.tensors["a"].shape[-1] == 12


def test_what_must_stay_comes_to_rest() -> None:
    """Beside padding the channels stay, but their biases do not keep the kernel from shared words."""
    graph = network(pad=1, value=33)
    b0 = graph.tensors["b0"]
    assert b0.data is not None
    huge = replace(b0, data=np.where(np.arange(12) < 7, b0.data, 2**30).astype(np.int32))
    graph = replace(graph, tensors={**graph.tensors, "b0": huge})
    small = remove_constants(graph)
    weights, bias = (t.data for t in small.operands(small.ops[0])[1:])
    assert weights is not None and bias is not None
    assert bias.shape == (12,) and abs(bias).max() < 2**20 and not weights[7:].any()
    for vector in random_inputs(graph, VECTORS, 2):
        np.testing.assert_array_equal(ops.run(small, *vector)["y"], ops.run(graph, *vector)["y"])


@pytest.mark.skipif(not HELLO.exists(), reason="the network of TFLite Micro's first example is not at hand")
def test_the_report_tells_what_was_removed(tmp_path: Path) -> None:
    request = model_request(HELLO, "sine", "host", {})
    report = json.loads(next(a.data for a in compile_model(request) if a.name == "sine_report.json"))
    assert report["macs"] == {"model": 288, "generated": 220}
    assert report["constant_channels"]["macs"] == 68
    (tensor,) = report["constant_channels"]["tensors"]
    assert (tensor["constant"], tensor["removed"], tensor["channels"]) == (4, 4, 16)
    assert "1x12:int8" in inspect(model_request(HELLO, "model", "host", {}), "constants")


def test_ops_of_one_name_keep_weights_of_their_own() -> None:
    """The first of the names that TFLite fuses, which an op is called by, may be another op's, too."""
    graph = network()
    named = replace(graph, ops=tuple(replace(op, name="model/BiasAdd") for op in graph.ops))
    for block in (1, 4):
        small = remove_constants(named, block)
        for vector in random_inputs(graph, VECTORS, 3):
            np.testing.assert_array_equal(ops.run(small, *vector)["y"], ops.run(graph, *vector)["y"])


def strip(size: int, taps: int, stride: int, dilation: int, pad: int, depthwise: bool) -> Graph | None:
    """A float convolution of images of one row, whose window is `taps` rows tall; None where it has no result."""
    rows = (2 * pad + 1 - (taps - 1) * dilation - 1) // stride + 1
    if rows < 1 or pad > taps * dilation:
        return None
    r = np.random.default_rng(taps)
    data = r.standard_normal((1 if depthwise else 3, taps, 3, 2)).astype(np.float32)
    columns, channels = size - 2, 2 if depthwise else 3
    x, y = Tensor("x", (1, 1, size, 2), "float32"), Tensor("y", (1, rows, columns, channels), "float32")
    attrs = {"stride": (stride, 1), "dilation": (dilation, 1), "pad": (pad, 0, pad, 0), "clamp": (-inf, inf)}
    w, bias = Tensor("w", data.shape, "float32", None, data), np.ones(channels, np.float32)
    b = Tensor("b", bias.shape, "float32", None, bias)
    op = Op("depthwise_conv2d" if depthwise else "conv2d", "conv", ("x", "w", "b"), ("y",), attrs)
    graph = Graph("m", (op,), {t.name: t for t in (x, w, b, y)}, ("x",), ("y",))
    verify(graph, ops.result_shape)
    return graph


def test_taps_that_always_meet_padding_are_left_out() -> None:
    """The smaller window computes the same; its multiply-accumulates and those that it lacks are the model's."""
    dropped = 0
    for case in product(range(3, 6), range(1, 6), (1, 2, 3), (1, 2), range(4), (False, True)):
        graph = strip(*case)
        if graph is None:
            continue
        small = remove_constants(graph)
        assert ops.macs(small) + small.removed_macs == ops.macs(graph)
        dropped += small.operands(small.ops[0])[1].shape[1] < case[1]
        (vector,) = random_inputs(graph, 1, 3)
        np.testing.assert_array_equal(ops.run(small, *vector)["y"], ops.run(graph, *vector)["y"])
    assert dropped > 100
