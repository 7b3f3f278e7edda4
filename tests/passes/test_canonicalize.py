"""Canonicalisation changes no output, of whatever is imported, and is done when it is done."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.model import ops
from edgebuild.model.formats import read_model
from edgebuild.model.formats.tflite.tflite_reader import read_tflite
from edgebuild.model.ir import Array, Graph, Op, Quant, Tensor, dump
from edgebuild.model.passes.canonicalize import canonicalize
from edgebuild.model.verify.rounding import Rng, distance, limit, moves, nudged
from tests.conftest import by_day
from tests.fuzz.recipe import choice
from tests.graphs import (
    KINDS,
    OPERATORS,
    examples,
    feeds,
    onnx_models,
    quantised,
    random_inputs,
    single_ops,
    small_graphs,
    tflite_files,
)
from tests.graphs.tflite_models import Draft, schema
from tests.ops.test_tflm import interpreted

FLOATS, QUANTISED, INTEGERS, CHAINS, FILES = (len(by_day(range(n))) for n in (100, 80, 40, 100, 5))


@cache
def float_models() -> list[onnx.ModelProto]:
    return examples(onnx_models(), FLOATS)


def read_onnx(model: onnx.ModelProto, folder: Path) -> Graph:
    onnx.save(model, folder / "random.onnx")
    return read_model(folder / "random.onnx")


def same_surface(a: Graph, b: Graph) -> None:
    assert (a.inputs, a.outputs) == (b.inputs, b.outputs)
    for name in (*a.inputs, *a.outputs):
        assert a.tensors[name].shape == b.tensors[name].shape


def ran(graph: Graph, vectors: list[list[Array]], rng: Rng | None) -> list[dict[str, Array]]:
    """All tensors for each vector; with `rng`, of constants that moved by one step."""
    tensors = graph.tensors.values()
    data = {t.name: nudged(t.data, rng) for t in tensors if t.data is not None} if rng else {}
    near = replace(graph, tensors={t.name: replace(t, data=data.get(t.name, t.data)) for t in tensors})
    return [ops.run(near, *vector) for vector in vectors]


def test_float_models_keep_their_outputs(tmp_path: Path) -> None:
    """Folded constants are rounded anew: sums whose terms cancel differ by what one step of the operands does."""
    for seed, model in enumerate(float_models()):
        graph = read_onnx(model, tmp_path)
        canonical = canonicalize(graph)
        same_surface(graph, canonical)
        vectors = [list(vector) for vector in feeds(model, 2, seed)]
        rounding = moves(vectors, partial(ran, graph))
        for before, after in zip(ran(graph, vectors, None), ran(canonical, vectors, None), strict=True):
            for name in graph.outputs:
                error = distance(after[name], before[name])
                assert error <= limit(before[name], rounding.get(name, 0.0)), dump(canonical)


@pytest.mark.parametrize("per_channel", [True, False])
def test_no_float_op_is_left_between_dequantize_and_quantize(per_channel: bool, tmp_path: Path) -> None:
    """Ops that the quantiser left in float stay so; most models have none."""
    integer = 0
    for model in examples(onnx_models(), QUANTISED):
        canonical = canonicalize(read_onnx(quantised(model, per_channel), tmp_path))
        integer += all(t.dtype != "float32" for t in canonical.tensors.values())
        writers, readers = canonical.producers, canonical.consumers
        for op in canonical.ops:
            read = [writers.get(t.name) for t in canonical.operands(op) if not t.constant]
            reals = all(source is not None and source.kind == "dequantize" for source in read)
            quantised_only = {reader.kind for reader in readers[op.outputs[0]]} == {"quantize"}
            assert not (reals and quantised_only), f"{op.name}\n{dump(canonical)}"
    assert integer > QUANTISED // 4


def test_chains_keep_their_outputs() -> None:
    for seed, graph in enumerate(examples(small_graphs(), CHAINS)):
        canonical = canonicalize(graph)
        same_surface(graph, canonical)
        for vector in random_inputs(graph, 3, seed):
            before, after = ops.run(graph, *vector), ops.run(canonical, *vector)
            for name in graph.outputs:
                if before[name].dtype == np.float32:
                    np.testing.assert_allclose(after[name], before[name], rtol=1e-5, atol=1e-5, err_msg=dump(graph))
                else:
                    np.testing.assert_array_equal(after[name], before[name], err_msg=dump(graph) + dump(canonical))


def test_twice_is_once(tmp_path: Path) -> None:
    graphs = [read_onnx(model, tmp_path) for model in float_models()]
    graphs += [read_onnx(quantised(model), tmp_path) for model in float_models()[:INTEGERS]]
    for operator in OPERATORS:
        for data in examples(tflite_files(operator), FILES):
            (tmp_path / "random.tflite").write_bytes(data)
            graphs.append(read_model(tmp_path / "random.tflite"))
    for graph in graphs:
        once = canonicalize(graph)
        twice = canonicalize(once)
        assert dump(twice) == dump(once)
        for t in once.tensors.values():
            if t.data is not None:
                np.testing.assert_array_equal(twice.tensors[t.name].data, t.data)


def test_operators_on_quantised_constants_are_computed_beforehand(tmp_path: Path) -> None:
    """A constant that QUANTIZE brings to the scale of the other operand, as TFLM does at every inference."""
    f, shape = Draft(choice(4)), (1, 3, 4)
    q, other = Quant((0.05,), (3,)), Quant((0.11,), (-9,))
    data = np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)
    x, c = f.input(shape, q), f.tensor("c", shape, "int8", other, data)
    computed = f.tensor("made", shape, "int8", q)
    f.operator("QUANTIZE", [c], [computed], schema.QuantizeOptionsT())
    y = f.tensor("y", shape, "int8", q)
    f.operator("MAXIMUM", [x, computed], [y], schema.MaximumMinimumOptionsT())
    file = f.pack([x], [y])
    given = np.random.default_rng(2).integers(-128, 128, shape).astype(np.int8)
    (((want,),),) = interpreted([file], [[[given]]], tmp_path)
    graph = canonicalize(read_tflite(file, "constant.tflite"))
    assert [op.kind for op in graph.ops] == ["pointwise"]
    np.testing.assert_array_equal(ops.run(graph, given)[graph.outputs[0]], want)


@pytest.mark.parametrize("name", ["ADD", "RELU", "TANH", "QUANTIZE"])
def test_real_arithmetic_between_integers_stays_real(name: str, tmp_path: Path) -> None:
    """DEQUANTIZE, an operator on floats, QUANTIZE: TFLM's integer form of the operator would round otherwise."""
    f, shape = Draft(choice(5)), (1, 6, 50)
    q, other, x = (
        Quant((0.037,), (5,)),
        Quant((0.051,), (-11,)),
        f.tensor("x", (1, 6, 50), "int8", Quant((0.037,), (5,))),
    )
    head = f.tensor("head", shape, "int8", q)
    f.operator("RELU", [x], [head])
    real, result = (f.tensor(n, shape, "float32") for n in ("real", "made"))
    f.operator("DEQUANTIZE", [head], [real], schema.DequantizeOptionsT())
    if name != "QUANTIZE":
        f.operator(
            name, [real, real] if name == "ADD" else [real], [result], schema.AddOptionsT() if name == "ADD" else None
        )
    y = f.tensor("y", shape, "int8", other)
    f.operator("QUANTIZE", [real if name == "QUANTIZE" else result], [y], schema.QuantizeOptionsT())
    last = f.tensor("last", shape, "int8", other)
    f.operator("RELU", [y], [last])
    file = f.pack([x], [last])
    given = np.random.default_rng(2).integers(-128, 128, shape).astype(np.int8)
    (((want,),),) = interpreted([file], [[[given]]], tmp_path)
    graph = canonicalize(read_tflite(file, "real.tflite"))
    np.testing.assert_array_equal(ops.run(graph, given)[graph.outputs[0]], want)


@pytest.mark.parametrize("whole", [True, False])
def test_values_at_their_own_places_behind_a_view(whole: bool) -> None:
    """A take has a table for each dimension that it has, so it does not move over a change of rank."""
    shapes = {"x": (1, 2, 4), "a": (1, 2, 4, 1), "b": (1, 2, 4, 1), "y": (8,)}
    tensors = {name: Tensor(name, shape, "int8", Quant((0.5,), (0,))) for name, shape in shapes.items()}
    index = (None, None, None, None) if whole else (None, (1, 0), None, None)
    nodes = [
        Op("reshape", "view", ("x",), ("a",), {"shape": shapes["a"]}),
        Op("take", "take", ("a",), ("b",), {"index": index}),
        Op("reshape", "flat", ("b",), ("y",), {"shape": shapes["y"]}),
    ]
    graph = Graph("", (), tensors, ("x",), ("y",), "tflite").with_ops(nodes)
    canonical, values = canonicalize(graph), np.arange(8, dtype=np.int8).reshape(1, 2, 4)
    assert ("take" in [op.kind for op in canonical.ops]) is not whole
    assert np.array_equal(ops.run(canonical, values)["y"], ops.run(graph, values)["y"])


@pytest.mark.parametrize(("kind", "steps"), [("Mul", 0), ("Add", 0), ("Mul", 8), ("Add", 8)])
def test_real_constants_in_quantised_models_lose_nothing(kind: str, steps: int, tmp_path: Path) -> None:
    """Exporters leave some constants real. In int8 they may be only where the result hardly tells.

    `steps`: of the result for the largest constant, fine (0) or so coarse that int8 will do.
    """
    constant = np.random.default_rng(3).uniform(-2, 2, 40).astype(np.float32)
    scale = 2 / steps * (128 * 0.05 if kind == "Mul" else 1) if steps else 0.004
    text = f"""<ir_version: 8, opset_import: ["": 13]> g (float[3, 40] x) => (float[3, 40] y)
        <float s = {{0.05}}, int8 z = {{3}}, float t = {{{scale}}}, int8 u = {{-7}}> {{
        a = QuantizeLinear(x, s, z)  b = DequantizeLinear(a, s, z)  c = {kind}(b, constant)
        d = QuantizeLinear(c, t, u)  y = DequantizeLinear(d, t, u) }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(constant, "constant"))
    graph = canonicalize(read_onnx(model, tmp_path))
    given = np.random.default_rng(4).integers(-128, 128, (3, 40)).astype(np.int8)
    real = (given.astype(np.int32) - 3) * np.float32(0.05)
    real = real * constant if kind == "Mul" else real + constant
    want = np.clip(np.rint(real / np.float32(scale)) - 7, -128, 127)
    assert abs(ops.run(graph, given)[graph.outputs[0]] - want).max() <= (1 if steps else 0)
    assert (len(graph.ops) == 1) == bool(steps)


PLANNED = ("finish_sum", "partial_sum", "join_sums")  # kinds that only the planner makes, with a vector for channels


@pytest.mark.parametrize("move", ["reshape", "transpose"])
def test_every_kind_behind_a_move(move: str) -> None:
    """A move that passes an op takes the op's attributes along, or does not pass it."""
    dice, tried = random.Random(7), 0
    for kind in (kind for kind in KINDS if kind not in (*PLANNED, "quantize", "dequantize")):
        for graph in examples(single_ops(kind), 3):
            behind = _behind(graph, move, dice)
            try:
                final = canonicalize(behind)
            except EdgebuildError:
                continue
            tried += 1
            (vector,) = random_inputs(behind, 1, dice.randrange(1 << 30))
            want, have = ops.run(behind, *vector), ops.run(final, *vector)
            for old, new in zip(behind.outputs, final.outputs, strict=True):
                np.testing.assert_allclose(have[new], want[old], rtol=1e-3, atol=1e-3, err_msg=dump(behind))
    assert tried > 100


def _behind(graph: Graph, move: str, dice: random.Random) -> Graph:
    """The graph with each input behind a reshape or a transpose."""
    moves, tensors, inputs, perms = list[Op](), dict(graph.tensors), list[str](), dict[int, list[int]]()
    for name in graph.inputs:
        x, source = graph.tensors[name], f"{name}_before"
        if move == "reshape":
            shape = dice.choice([(x.elements,), (*x.shape, 1), (1, *x.shape), tuple(n for n in x.shape if n > 1)])
            moves.append(Op(move, source, (source,), (name,), {"shape": x.shape}))
        else:
            perm = perms.setdefault(len(x.shape), dice.sample(range(len(x.shape)), len(x.shape)))
            shape = tuple(x.shape[perm.index(d)] for d in range(len(perm)))
            moves.append(Op(move, source, (source,), (name,), {"perm": tuple(perm)}))
        tensors[source] = replace(x, name=source, shape=shape)
        inputs.append(source)
    return replace(graph, ops=(*moves, *graph.ops), tensors=tensors, inputs=tuple(inputs))
