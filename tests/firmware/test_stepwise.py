"""A deep quantised network op by op: its own steps are allowed, a wrong op is not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgebuild.base.artifacts import Artifact
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.compile import compile_model, prepare
from edgebuild.model.emit import code
from edgebuild.model.ir import Array, Graph, Tensor, origin_of
from edgebuild.model.verify import verify
from edgebuild.model.verify.oracles import Reference, reference
from edgebuild.model.verify.stepwise import Walk, stepwise, value_of
from edgebuild.model.verify.vectors import random_inputs
from tests.exporters import exported
from tests.importers.test_quantised import Quantised
from tests.zoo.builders import ZOO, quantized

Case = tuple[Graph, list[list[Array]], Reference]


def compiled(file: Path) -> list[Artifact]:
    return list(compile_model(model_request(file, "model", "host", {"tile": "off"})))


def case(model: onnx.ModelProto, file: Path, count: int = 5) -> Case:
    """The canonical graph, the vectors that `verify` takes, what onnxruntime makes of them."""
    file.write_bytes(model.SerializeToString())
    report = json.loads(compiled(file)[-1].data)
    vectors = random_inputs(file, report, count)
    return prepare(file), vectors, reference(file, vectors, report)


def steep() -> onnx.ModelProto:
    """An average pool, whose ties may fall to either side, and a dense layer that makes many steps of one."""
    net = Quantised()
    x = net.q(net.input("x", (1, 24, 2, 4)), 0.023)
    pooled = net.q(net.op("AveragePool", x, kernel_shape=[2, 4]), 0.023)
    flat = net.q(net.op("Flatten", pooled), 0.023)
    return net.done(net.q(net.op("MatMul", flat, net.q(net.weight(24, 5), 0.01)), 0.002))


def two_scales() -> onnx.ModelProto:
    """A concatenation whose operands are brought to one scale."""
    net = Quantised()
    x, y = (net.q(net.input(name, (1, 3, 4, 5)), scale) for name, scale in (("x", 0.02), ("y", 0.05)))
    fine, coarse = (net.q(net.op("Relu", v), scale) for v, scale in ((x, 0.01), (y, 0.05)))
    return net.done(net.q(net.op("Concat", fine, coarse, axis=1), 0.05))


def turned() -> onnx.ModelProto:
    """Convolutions over rows, a flattening of channels that came last, a square image of as many channels."""
    net = Quantised()
    x = net.q(net.input("x", (1, 3, 3, 3)), 0.02)
    image = net.q(net.op("Conv", x, net.q(net.weight(3, 3, 1, 1), 0.01), kernel_shape=[1, 1]), 0.03)
    row = net.op("Reshape", image, net.longs(1, 3, 9))
    row = net.q(net.op("Conv", row, net.q(net.weight(3, 3, 3), 0.01), kernel_shape=[3], pads=[1, 1]), 0.04)
    flat = net.op("Flatten", net.q(net.op("Relu", net.op("Reshape", row, net.longs(1, 3, 3, 3))), 0.04))
    return net.done(net.q(net.op("MatMul", flat, net.q(net.weight(27, 4), 0.01)), 0.05))


def thinned() -> onnx.ModelProto:
    """A convolution, some of whose channels have no weights, and an average pool before the next one."""
    net = Quantised()
    w = np.random.default_rng(1).normal(size=(12, 3, 1, 1)).astype(np.float32)
    w[1::3] = 0
    image = net.op("Conv", net.q(net.input("x", (1, 3, 4, 4)), 0.02), net.q(net.stored(w), 0.02), kernel_shape=[1, 1])
    pooled = net.op("AveragePool", net.q(image, 0.05), kernel_shape=[2, 2])
    y = net.op("Conv", net.q(pooled, 0.05), net.q(net.weight(2, 12, 1, 1), 0.02), kernel_shape=[1, 1])
    return net.done(net.q(y, 0.01))


def test_sums_of_many_equal_terms_may_be_rounded_one_by_one(tmp_path: Path) -> None:
    net = Quantised()
    onnx.save(net.done(net.op("ReduceSum", net.input("x", (1, 1040)), keepdims=0)), tmp_path / "net.onnx")
    graph = prepare(tmp_path / "net.onnx")
    x = np.repeat(np.array([7.3, -7.31], np.float32), 520).reshape(1, -1)
    one_by_one = np.cumsum(x, dtype=np.float32)[-1]
    assert abs(one_by_one - x.astype(np.float64).sum()) > 0.004
    for observed in (one_by_one, one_by_one + np.float32(0.05)):
        right = Walk(graph, {graph.inputs[0]: x}).step(graph.ops[0], np.array(observed))
        assert bool(right == observed) == (observed is one_by_one)


def seen(graph: Graph, expected: Reference) -> list[Tensor]:
    """The results that the judge compares."""
    results = [graph.result(op) for op in graph.ops]
    return [t for t in results if value_of(t, expected.tensors[0], expected.reals[0]) is not None]


def test_every_op_is_compared_with_the_oracle(tmp_path: Path) -> None:
    graph, vectors, expected = case(quantized(ZOO["ds_cnn"]()), tmp_path / "net.onnx", count=2)
    own = stepwise(graph, vectors, expected)
    assert own is not None and own.slack == 0
    for mine, theirs in zip(own.outputs, expected.outputs, strict=True):
        assert np.abs(mine[0].astype(int) - theirs[0].reshape(mine[0].shape).astype(int)).max() < 20
    judged = seen(graph, expected)
    assert len(judged) == len(graph.ops)
    for t in judged:
        name, right, held = origin_of(t).name, expected.tensors[1], expected.reals[1]
        kept = right.get(name), held.get(name)
        if (integers := kept[0]) is not None and integers.dtype == np.int8:
            right[name] = np.where(integers < 0, integers + 3, integers - 3).astype(np.int8)
        if (reals := kept[1]) is not None and t.quant is not None:
            scale, zero = t.quant.scale[0], t.quant.zero_point[0]
            held[name] = np.where(reals < -zero * scale, reals + 3 * scale, reals - 3 * scale)
        assert stepwise(graph, vectors, expected) is None, name
        right.update({name: integers} if integers is not None else {})
        held.update({name: reals} if reals is not None else {})


def test_a_step_that_one_op_may_miss_is_no_fault_of_the_next(tmp_path: Path) -> None:
    graph, vectors, expected = case(steep(), tmp_path / "net.onnx")
    own = stepwise(graph, vectors, expected)
    assert own is not None
    distances = [
        np.abs(m[0].astype(int) - t[0].astype(int)).max() for m, t in zip(own.outputs, expected.outputs, strict=True)
    ]
    assert max(distances) > expected.slack  # what a fixed allowance would refuse
    assert verify(tmp_path / "net.onnx", load_target("host"), compiled(tmp_path / "net.onnx"))["equal"]


@pytest.mark.parametrize("build", [steep, two_scales, turned, thinned])
def test_a_wrong_op_is_noticed_wherever_it_is(build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of op that computes, three steps off at one element, of which the allowance may take one."""
    graph, vectors, expected = case(build(), tmp_path / "net.onnx")
    assert stepwise(graph, vectors, expected) is not None
    for op in graph.ops:
        right = ops.SPECS[op.kind].reference

        def wrong(at: Any, g: Graph, *operands: Array, right: Any = right, planted: Any = op) -> Array:
            y = np.array(right(at, g, *operands), order="C")
            if at is planted:
                first = y.reshape(-1)[:1]
                y.reshape(-1)[:1] = np.where(first < 0, first + 3, first - 3)
            return y

        with monkeypatch.context() as patch:
            patch.setitem(ops.SPECS, op.kind, replace(ops.SPECS[op.kind], reference=wrong))
            fault = stepwise(graph, vectors, expected)
        if graph.result(op) in seen(graph, expected):
            assert fault is None, op.name


def test_the_judge_sees_what_was_moved(tmp_path: Path) -> None:
    for build in (steep, turned):
        graph, _, expected = case(build(), tmp_path / "net.onnx", count=1)
        blind = [op.kind for op in graph.ops if graph.result(op) not in seen(graph, expected)]
        assert set(blind) <= {"transpose", "reshape"}, (build, blind)
        marked = [t for t in seen(graph, expected) if t.name not in expected.tensors[0]]
        assert len(marked) >= 2


def test_the_judge_sees_channels_that_are_left(tmp_path: Path) -> None:
    """Where they are compared, a step that the pool may miss is no fault of the convolution behind it."""
    graph, vectors, expected = case(thinned(), tmp_path / "net.onnx")
    assert stepwise(graph, vectors, expected) is not None
    left = [t for t in seen(graph, expected) if t.shape[-1] == 8]
    assert [graph.producers[t.name].kind for t in left] == ["conv2d", "avg_pool2d"]
    for t in left:
        theirs = value_of(t, expected.tensors[0], expected.reals[0])
        assert theirs is not None and not (theirs == 3).all(axis=(0, 1, 2)).any()  # the zero point: without weights


def test_a_value_in_another_scale_is_not_compared(tmp_path: Path) -> None:
    graph, vectors, expected = case(two_scales(), tmp_path / "net.onnx")
    brought = [graph.result(op) for op in graph.ops if op.kind == "requantize"]
    assert brought and not set(brought) & set(seen(graph, expected))
    assert stepwise(graph, vectors, expected) is not None
    for t in seen(graph, expected):
        assert t.quant is not None
        other = replace(t, quant=replace(t.quant, scale=(t.quant.scale[0] * 1.37,)), origin=origin_of(t))
        assert value_of(other, {}, expected.reals[0]) is None
        assert value_of(other, expected.tensors[0], {}) is None


def halfway() -> onnx.ModelProto:
    """erf(sign(x)), 20.5 steps of its scale as nearly as float32 can tell."""
    net = Quantised()
    value = net.op("Erf", net.op("Sign", net.input("x", (1, 6))))
    return net.done(net.q(value, 0.84270079 / 20.5))


@pytest.mark.parametrize(("output", "right"), [(20, True), (21, True), (19, False), (22, False)])
def test_the_last_bit_of_a_real_function_decides(output: int, right: bool, tmp_path: Path) -> None:
    """Either of the two nearest steps is right, and no other is."""
    graph, vectors, expected = case(halfway(), tmp_path / "net.onnx", count=1)
    up = vectors[0][0].reshape(graph.tensors[graph.outputs[0]].shape) > 0
    assert up.any() and not up.all()
    seen = [{graph.outputs[0]: np.where(up, output + 3, 3 - output).astype(np.int8)}]
    judged = stepwise(graph, vectors, expected, seen)
    assert judged is not None
    assert np.array_equal(judged.outputs[0][0], seen[0][graph.outputs[0]]) == right


def selected() -> onnx.ModelProto:
    """The largest differences of values that are 20.5 steps as nearly as float32 can tell."""
    net, scale = Quantised(), 0.84270079 / 20.5
    value = net.q(net.op("Erf", net.op("Sign", net.op("Abs", net.input("x", (1, 6))))), scale)
    turned = net.op("Gather", value, net.longs(5, 4, 3, 2, 1, 0), axis=1)
    difference = net.q(net.op("Sub", value, net.q(turned, scale)), scale)
    largest, _ = net.ops("TopK", difference, net.longs(3), count=2)
    return net.done(net.q(largest, scale))


@pytest.mark.parametrize(("output", "right"), [([1, 0, 0], True), ([0, -1, -1], True), ([2, 0, 0], False)])
def test_ties_behind_a_selection(output: list[int], right: bool, tmp_path: Path) -> None:
    """Each value may be either of its two nearest steps, so differences may be a step to either side."""
    graph, vectors, expected = case(selected(), tmp_path / "net.onnx", count=1)
    seen = [{graph.outputs[0]: np.array([output], np.int8) + np.int8(3)}]
    judged = stepwise(graph, vectors, expected, seen)
    assert judged is not None
    assert np.array_equal(judged.outputs[0][0], seen[0][graph.outputs[0]]) == right


def ranked(kind: str, largest: int) -> onnx.ModelProto:
    """Places of extremes of 20.5 steps, as nearly as float32 can tell, less 0, 1, 0, 2, 0 and 0 steps."""
    net, scale = Quantised(), 0.84270079 / 20.5
    value = net.q(net.op("Erf", net.op("Sign", net.op("Abs", net.input("x", (1, 6))))), scale)
    less = net.q(net.stored(np.array([[0, 1, 0, 2, 0, 0]]) * scale), scale)
    difference = net.op("Sub", value, less) if largest else net.op("Sub", less, value)
    if kind == "TopK":
        _, places = net.ops("TopK", net.q(difference, scale), net.longs(3), count=2, largest=largest)
    else:
        places = net.op(kind, net.q(difference, scale), axis=1, select_last_index=int(not largest))
    return net.done(places)


@pytest.mark.parametrize("largest", [1, 0])
@pytest.mark.parametrize(
    ("output", "right"),
    [([0, 2, 4], True), ([5, 0, 2], True), ([2, 5, 0], True), ([0, 4, 2], True), ([0, 1, 2], True), ([0, 2, 1], True),
     ([5, 4, 0], False), ([4, 5, 1], False), ([1, 0, 4], False), ([3, 0, 2], False), ([2, 2, 4], False),
     ([2, 5, 6], False)],
)  # fmt: skip
def test_places_behind_a_tie(output: list[int], right: bool, largest: int, tmp_path: Path) -> None:
    """Each value may be either of its two nearest steps, of equal ones the first comes first."""
    graph, vectors, expected = case(ranked("TopK", largest), tmp_path / "net.onnx", count=1)
    seen = [{graph.outputs[0]: np.array([output], np.int64)}]
    judged = stepwise(graph, vectors, expected, seen)
    assert judged is not None
    assert np.array_equal(judged.outputs[0][0], seen[0][graph.outputs[0]]) == right


@pytest.mark.parametrize(("kind", "output", "right"), [
    ("ArgMax", 0, True), ("ArgMax", 5, True), ("ArgMax", 1, False), ("ArgMax", 3, False), ("ArgMin", 5, True),
    ("ArgMin", 0, True), ("ArgMin", 1, False),
])  # fmt: skip
def test_the_place_behind_a_tie(kind: str, output: int, right: bool, tmp_path: Path) -> None:
    graph, vectors, expected = case(ranked(kind, int(kind == "ArgMax")), tmp_path / "net.onnx", count=1)
    seen = [{graph.outputs[0]: np.array([[output]], np.int64)}]
    judged = stepwise(graph, vectors, expected, seen)
    assert judged is not None
    assert np.array_equal(np.ravel(judged.outputs[0][0]), [output]) == right


def cancelling() -> onnx.ModelProto:
    """erf(1) less nearly as much: 20.5 steps as nearly as the terms can tell, beside three that are large."""
    net = Quantised()
    value = net.op("Erf", net.op("Sign", net.op("Abs", net.input("x", (1, 6)))))
    return net.done(net.q(net.op("Sub", value, net.stored([0.84270049 - 0.0205] * 3 + [0.0] * 3)), 0.001))


@pytest.mark.parametrize(("output", "right"), [(20, True), (21, True), (19, False), (22, False)])
def test_the_last_bits_of_terms_that_cancel_decide(output: int, right: bool, tmp_path: Path) -> None:
    """A small sum of large terms is rounded as large ones are."""
    graph, vectors, expected = case(cancelling(), tmp_path / "net.onnx", count=1)
    own = stepwise(graph, vectors, expected)
    assert own is not None
    value = np.array(own.outputs[0][0])
    value.flat[:3] = output + 3
    judged = stepwise(graph, vectors, expected, [{graph.outputs[0]: value}])
    assert judged is not None
    assert np.array_equal(judged.outputs[0][0], value) == right


def between_steps() -> onnx.ModelProto:
    """The sigmoid of 1 in int16: 20000.5 steps as nearly as float32 can tell, computed from integers in one go."""
    net = Quantised(np.int16)
    one = net.q(net.op("Abs", net.op("Sign", net.input("x", (1, 6)))), 2.0**-14)
    return net.done(net.q(net.op("Sigmoid", one), 0.731058579 / 20000.5))


@pytest.mark.parametrize(("output", "right"), [(20000, True), (20001, True), (19999, False), (20002, False)])
def test_the_last_bit_of_a_quantised_function_decides(output: int, right: bool, tmp_path: Path) -> None:
    graph, vectors, expected = case(between_steps(), tmp_path / "net.onnx", count=1)
    seen = [{graph.outputs[0]: np.full(graph.tensors[graph.outputs[0]].shape, output, np.int16)}]
    judged = stepwise(graph, vectors, expected, seen)
    assert judged is not None
    assert np.array_equal(judged.outputs[0][0], seen[0][graph.outputs[0]]) == right


@pytest.mark.parametrize(
    "name, kinds",
    [
        ("unet", {"conv2d", "transpose_conv2d", "max_pool2d", "requantize", "concat", "pointwise", "transpose"}),
        ("implicit", {"batch_matmul", "dense", "mul", "add"}),
    ],
)
def test_intervals_of_int16_hold_every_value_between(name: str, kinds: set[str], tmp_path: Path) -> None:
    """Of every op of a network: any operands between two ends give a result between its own; equal ends give it."""
    file, rng, judged = tmp_path / "net.onnx", np.random.default_rng(5), set()
    onnx.save(exported(f"torch {name}", "qdq int16"), file)
    graph = prepare(file)
    for op in graph.ops:
        spec, operands, y = ops.SPECS[op.kind], graph.operands(op), graph.result(op)
        transfer = ops.spatial.rising(spec.reference) if spec.exact else spec.interval
        if transfer is None or y.dtype != "int16":
            continue
        low = [t.data if t.data is not None else rng.integers(-32768, 32768, t.shape, np.int16) for t in operands]
        far = rng.choice([1, 9, 65535])
        high = [
            x if t.constant else np.minimum(x + rng.integers(0, far, x.shape, endpoint=True), 32767).astype(np.int16)
            for t, x in zip(operands, low, strict=True)
        ]
        ends = transfer(op, graph, *zip(low, high, strict=True))
        exact = transfer(op, graph, *zip(low, low, strict=True))
        assert ends is not None and exact is not None, op.kind
        for end in exact:
            np.testing.assert_array_equal(end, spec.reference(op, graph, *low), op.kind)
        for between in (low, high, *([rng.integers(a, b, endpoint=True).astype(a.dtype)
                                      for a, b in zip(low, high, strict=True)] for _ in range(20))):  # fmt: skip
            result = spec.reference(op, graph, *between)
            assert np.all((ends[0] <= result) & (result <= ends[1])), op.kind
        judged.add(op.kind)
    assert judged >= kinds


def behind_halfway() -> onnx.ModelProto:
    """20.5 steps of either sign, and a dense layer that makes many steps of one."""
    net = Quantised()
    value = net.op("Erf", net.op("Sign", net.input("x", (1, 6))))
    return net.done(net.q(net.op("MatMul", net.q(value, 0.84270079 / 20.5), net.q(net.weight(6, 4), 0.01)), 0.01))


@pytest.mark.parametrize(("far", "seen", "right"), [(21, True, True), (22, True, False), (21, False, True),
                                                    (24, False, False)])  # fmt: skip
def test_a_step_that_was_accepted_is_carried_on(far: int, seen: bool, right: bool, tmp_path: Path) -> None:
    """Half of the elements rounded down, half up: the layer behind them computes with just these.

    Where nobody has seen them, each of them may be either.
    """
    graph, vectors, expected = case(behind_halfway(), tmp_path / "net.onnx", count=1)
    own = stepwise(graph, vectors, expected)
    assert own is not None
    dense = next(op for op in graph.ops if op.kind == "dense")
    middle, last = own.tensors[0][dense.inputs[0]], dense.outputs[0]
    up = np.asarray(vectors[0][0]).reshape(middle.shape) > 0
    steps = np.resize([20, far], middle.shape)
    mixed = np.where(up, steps + 3, 3 - steps).astype(middle.dtype)  # 3: the zero point
    operands = [mixed, *(graph.tensors[name].data for name in dense.inputs[1:])]
    result = ops.SPECS[dense.kind].reference(dense, graph, *operands)
    assert not np.array_equal(result, own.tensors[0][last].reshape(result.shape))
    judged = stepwise(graph, vectors, expected, [{last: result} | ({dense.inputs[0]: mixed} if seen else {})])
    assert judged is not None
    assert np.array_equal(judged.tensors[0][last].reshape(result.shape), result) == right


@pytest.mark.parametrize(("far", "right"), [(21, True), (22, False)])
def test_a_step_is_carried_on_to_real_numbers(far: int, right: bool, tmp_path: Path) -> None:
    """Behind integers that nobody has seen, their real values tell which way they were rounded."""
    net = Quantised()
    steps = net.q(net.op("Erf", net.op("Sign", net.input("x", (1, 6)))), 0.84270079 / 20.5)
    graph, vectors, expected = case(net.done(net.op("Sin", steps)), tmp_path / "net.onnx", count=1)
    own = stepwise(graph, vectors, expected)
    assert own is not None
    real = next(op.outputs[0] for op in graph.ops if op.kind == "dequantize" and graph.consumers[op.outputs[0]])
    mixed = np.sign(own.tensors[0][real]) * np.resize([20, far], own.tensors[0][real].shape)
    mixed = (mixed * np.float32(0.84270079 / 20.5)).astype(np.float32)
    assert not np.allclose(mixed, own.tensors[0][real])
    judged = stepwise(graph, vectors, expected, [{real: mixed}])
    assert judged is not None
    assert np.allclose(judged.tensors[0][real], mixed, rtol=1e-5) == right


def test_no_other_bit_decides(tmp_path: Path) -> None:
    """Other values than the right ones change nothing in a network of integers."""
    graph, vectors, expected = case(steep(), tmp_path / "net.onnx", count=1)
    own = stepwise(graph, vectors, expected)
    assert own is not None
    for step in (1, -1):
        seen = [{name: own.tensors[0][name] + step for name in own.tensors[0]}]
        judged = stepwise(graph, vectors, expected, seen)
        assert judged is not None
        assert all(np.array_equal(judged.tensors[0][t.name], own.tensors[0][t.name]) for t in graph.tensors.values())


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("kind", ["avg_pool2d", "dense"])
def test_a_wrong_kernel_differs(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of elements of a window, the weights: in the program, behind everything that knows the plan."""
    file = tmp_path / "net.onnx"
    file.write_bytes(steep().SerializeToString())
    right = code.kernel_uses

    def spoiled(use: code.Use) -> code.Use:
        if use.op.kind != kind:
            return use
        kernel = use.kernel
        constants = tuple(replace(c, data=np.roll(c.data, 1)) if c.name == "w" else c for c in kernel.constants)
        shape = {n: v - 1 if n == "FH" else v for n, v in kernel.shape.items()}
        scalars = {n: v - 1 if n == "FH" else v for n, v in kernel.scalars.items()}
        return replace(use, kernel=replace(kernel, constants=constants, shape=shape, scalars=scalars))

    def uses(*arguments: Any) -> Sequence[code.Use]:
        return [spoiled(use) for use in right(*arguments)]

    monkeypatch.setattr(code, "kernel_uses", uses)
    assert not verify(file, load_target("host"), compiled(file))["equal"]
