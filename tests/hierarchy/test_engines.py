"""Ops that an engine computes: bit-exact through its scratchpads, refused where they would not be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import hal_dir, load_target
from edgebuild.cli import main
from edgebuild.model import ops
from edgebuild.model.emit.code import program
from edgebuild.model.emit.report import engine_rows
from edgebuild.model.ir import Graph, Op, Quant, Tensor, verify
from edgebuild.model.kernels.offload import refusal
from edgebuild.model.plan.check.replay import BrokenPlan, replay
from edgebuild.model.plan.choose import plan
from edgebuild.model.plan.dma.assembly import mapped_plan
from edgebuild.model.plan.dma.levels import best_offer
from edgebuild.model.plan.dma.tiles import MappedOp
from edgebuild.model.plan.hierarchy.mapper import NoMapping, dory
from edgebuild.model.plan.printed import TiledOp, UncopiedOp, Wait
from edgebuild.model.plan.search import Plan, form_of
from tests.conftest import ROOT, by_day
from tests.graphs import examples, single_ops, small_graphs
from tests.hierarchy.test_moved import changed as changed_step
from tests.hierarchy.test_moved import check

TARGET = """
inherits: host
description: an engine between small scratchpads
memories:
  ACT: {{origin: 3G, size: {activations}, roles: []}}
  WGT: {{origin: 3500M, size: {weights}, roles: []}}
dma:
  copier: {{between: [ROM, RAM, L1, ACT, WGT], start_cycles: 0, piece_cycles: 0}}
engines:
  digital:
    array: {{K: 16, OX: 16}}
    activations: {activations}
    weights: {weights}
    memories: [ACT, WGT]
    patterns: [{patterns}]
    requantise: {requantise}
    rounding: [{rounding}]
    padding: {padding}
    cycles: "{cycles}"
"""
PORT = str(hal_dir() / "src" / "engine_model.c")
KINDS = ("conv2d", "depthwise_conv2d", "dense", "add", "max_pool2d", "avg_pool2d")
ALL, ALL_ROUNDING = "conv2d, depthwise, dense, add, max_pool, avg_pool", "down, even"


def target_file(folder: Path, **changes: Any) -> Path:
    words = {"activations": "2K", "weights": "2K", "patterns": ALL, "requantise": "shift", "cycles": "K"} | {
        "rounding": "down",
        "padding": "value",
    }
    file = folder / "engine.yaml"
    file.write_text(TARGET.format(**words | changes).replace("3500M", "0xE0000000").replace("3G", "0xC0000000"))
    return file


def planner(file: Path, method: str = "layer") -> Callable[[Graph, str, int], Plan]:
    def planned(graph: Graph, name: str, seed: int = 0) -> Plan:
        request = ModelRequest(Path("random"), name, str(file), tile="off", map=method)
        return mapped_plan(graph, load_target(str(file)), request)

    return planned


def engines(plans: list[Plan]) -> list[MappedOp]:
    return [m for p in plans for m in p.moves.values() if isinstance(m, MappedOp) and m.engine != "cpu"]


def network(seed: int, factor: float = 1.0) -> Graph:
    """Convolutions, depthwise ones and a dense layer with scales that are powers of two, and ReLU behind each.

    `factor`: of the scales of results.
    """
    r = np.random.default_rng(seed)

    def scale(low: int, high: int) -> float:
        return float(2.0 ** -int(r.integers(low, high)))

    size, channels = [int(n) for n in r.integers(5, 14, 2)], int(r.integers(1, 9))
    tensors = {"x": Tensor("x", (1, *size, channels), "int8", Quant((scale(3, 6),), (0,)))}
    chain, last = [], "x"
    for i, kind in enumerate([*r.choice(["conv2d", "conv2d", "depthwise_conv2d"], 3), "dense"]):
        x, out = tensors[last], int(r.integers(1, 24))
        taps, stride = r.integers(1, 4, 2).tolist(), r.integers(1, 3, 2).tolist()
        pad = tuple(int(r.integers(0, taps[j % 2])) for j in range(4))
        if kind == "dense":
            flat = Tensor(f"flat{i}", (1, x.elements), "int8", x.quant)
            tensors[flat.name] = flat
            chain.append(Op("reshape", flat.name, (last,), (flat.name,), {"shape": flat.shape}))
            x, shape, attrs = flat, (out, flat.elements), dict[str, Any]()
        else:
            shape = (out, *taps, x.shape[3]) if kind == "conv2d" else (1, *taps, x.shape[3])
            attrs = {"stride": tuple(stride), "dilation": (1, 1), "pad": pad}
        out = shape[3] if kind == "depthwise_conv2d" else out
        assert x.quant is not None
        w = Tensor(f"w{i}", shape, "int8", Quant((scale(6, 8),), (0,)), r.integers(-127, 128, shape).astype(np.int8))
        assert w.quant is not None
        product = x.quant.scale[0] * w.quant.scale[0]
        bias = r.integers(-2000, 2000, out).astype(np.int32)
        b = Tensor(f"b{i}", (out,), "int32", Quant((product,), (0,)), bias)
        zero = -128 if kind == "dense" else 0  # nothing pads behind it
        y = Quant((product * factor * 2.0 ** int(r.integers(0, 11)),), (zero,))
        op = Op(str(kind), f"op{i}", (x.name, w.name, b.name), (f"y{i}",), {**attrs, "clamp": (0.0, None)})
        draft = Graph("", (op,), {t.name: t for t in (x, w, b, Tensor(f"y{i}", (), "int8", y))}, (x.name,), (f"y{i}",))
        tensors |= {t.name: t for t in (w, b, Tensor(f"y{i}", ops.result_shape(op, draft), "int8", y))}
        chain.append(op)
        last = f"y{i}"
    graph = Graph("powers", tuple(chain), tensors, ("x",), (last,))
    verify(graph, ops.result_shape)
    return graph


@pytest.mark.one_in(4)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize(
    ("requantise", "factor", "arithmetic"),
    [("shift", 1.0, "tflite"), ("shift", 1.0, "onnx"), ("multiply", 1.3, "tflite")],
)
def test_networks_run_on_an_engine(requantise: str, factor: float, arithmetic: str, tmp_path: Path) -> None:
    """Every layer, in several tiles each; with a factor no scale of a result is a power of two."""
    graphs = [replace(network(i, factor), arithmetic=arithmetic) for i in range(6)]
    file = target_file(tmp_path, requantise=requantise, rounding="down, even")
    plans = check(graphs, tmp_path, planner(file), [PORT])
    layers = engines(plans)
    assert len(layers) > 16
    assert sum(len(m.calls) > 1 for m in layers) > 5


@pytest.mark.needs("gcc")
def test_tensors_stay_in_a_scratchpad(tmp_path: Path) -> None:
    """With `auto`: never slower than layer by layer, fewer bytes, the same results."""
    graphs, file = by_day(map(network, range(6))), target_file(tmp_path, activations="3K", weights="4K")
    plans = check(graphs, tmp_path, planner(file, "auto"), [PORT])
    layers = [planner(file)(graph, "g") for graph in graphs]
    held = sum(any(o.held for o in m.layer.operands) for m in engines(plans))
    assert held > len(graphs)
    for jointly, alone in zip(plans, layers, strict=True):
        cost = [sum(m.cycles.total for m in p.moves.values()) for p in (jointly, alone)]
        size = [sum(c.total for m in engines([p]) for c in m.copies) for p in (jointly, alone)]
        assert cost[0] <= cost[1]
        assert size[0] <= size[1]
    assert any(p.places[n].memory == "ACT" and p.places[n].offset for p in plans for n in p.places)


@pytest.mark.one_in(2)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("requantise", ["shift", "multiply"])
def test_any_layer_is_equal_wherever_it_runs(requantise: str, tmp_path: Path) -> None:
    """Layers of all kinds of scales, roundings and padding: what the engine takes is right, what it refuses as well."""
    file = target_file(
        tmp_path, requantise=requantise, activations="300", weights="300", cycles="1", rounding=ALL_ROUNDING
    )
    graphs = [g for kind in KINDS for g in examples(single_ops(kind), 5)]
    check(graphs, tmp_path, planner(file), [PORT])


@pytest.mark.needs("gcc")
def test_networks_run_on_both(tmp_path: Path) -> None:
    file = target_file(tmp_path, requantise="multiply", activations="200", weights="300", cycles="1")
    plans = check(examples(small_graphs(), 7), tmp_path, planner(file), [PORT])
    assert engines(plans)
    assert any(m.engine == "cpu" for p in plans for m in p.moves.values() if isinstance(m, MappedOp))


CALLED = """
inherits: host
description: an engine that reaches operands where they lie
engines:
  digital: {{patterns: [{patterns}], requantise: {requantise}, rounding: [down, even], padding: {padding}, cycles: "1"}}
"""


def called(
    folder: Path, requantise: str, padding: str = "value", tile: str | None = None
) -> Callable[[Graph, str, int], Plan]:
    file = folder / "called.yaml"
    file.write_text(CALLED.format(patterns=ALL, requantise=requantise, padding=padding))

    def planned(graph: Graph, name: str, seed: int = 0) -> Plan:
        return plan(graph, load_target(str(file)), ModelRequest(Path("random"), name, str(file), tile=tile))

    return planned


@pytest.mark.one_in(2)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize(
    ("requantise", "padding", "tile"),
    [
        ("multiply", "value", "off"),
        ("shift", "zero", "auto"),
        ("multiply-per-tensor", "zero", "rolling"),
        ("multiply", "value", "fdt"),
    ],
)
def test_any_layer_is_equal_on_an_engine_without_scratchpads(
    requantise: str, padding: str, tile: str, tmp_path: Path
) -> None:
    """Of both arithmetics, in plans of all kinds; layers that the engine refuses run on the core."""
    graphs = [g for kind in KINDS for g in examples(single_ops(kind), 3)] + examples(small_graphs(), 6)
    plans = check(graphs, tmp_path, called(tmp_path, requantise, padding, tile), [PORT])
    on_engine = sum(row["engine"] != "cpu" for p in plans for row in engine_rows(program(p)))
    assert on_engine > 4


def a_layer(tmp_path: Path) -> tuple[Plan, MappedOp]:
    p = planner(target_file(tmp_path))(network(3), "g0")
    moved = max((m for m in p.moves.values() if isinstance(m, MappedOp)), key=lambda m: len(m.calls))
    assert len(moved.calls) > 1
    assert moved.engine == "digital"
    return p, moved


def spoilt(moved: MappedOp, what: str) -> MappedOp:
    if what == "weights beyond their scratchpad":
        weights = replace(moved.regions[1], bytes=8)
        return replace(moved, regions=(moved.regions[0], weights))
    if what == "activations beyond theirs":
        return replace(moved, regions=(replace(moved.regions[0], bytes=8), moved.regions[1]))
    if what == "weights among activations":
        copies = [replace(c, near=c.near - moved.regions[1].base) if not c.tensor else c for c in moved.copies]
        return moved.with_copies(copies)
    return replace(moved, script=tuple(o for o in moved.script if not isinstance(o, Wait)))


@pytest.mark.parametrize(
    "what", ["weights beyond their scratchpad", "activations beyond theirs", "weights among activations", "no wait"]
)
def test_replay_refuses(what: str, tmp_path: Path) -> None:
    p, moved = a_layer(tmp_path)
    replay(p.graph, p.steps, p.places, p.target)
    broken = changed_step(p, MappedOp, lambda m: spoilt(m, what) if m is moved else m)
    with pytest.raises(BrokenPlan):
        replay(p.graph, broken.steps, p.places, p.target)


# ---- why a layer is where it is


def reasons(graph: Graph, file: Path) -> str:
    p = planner(file)(graph, "g0")
    step, moves = p.steps[0], p.steps[0].moves
    assert isinstance(moves, TiledOp | UncopiedOp)
    if isinstance(moves, UncopiedOp) or moves.engine != "cpu":
        return moves.why
    spaces = p.home(step.ops[0].outputs[0]), p.target.memory("weights")
    offer = best_offer(step.ops[0], p.graph, p.target, form_of(p.target, p.request), spaces, moves.cycles)
    return offer if isinstance(offer, str) else offer.why


def changed(graph: Graph, tensor: str, quant: Quant | None = None, **attrs: Any) -> Graph:
    """The first op alone, with a tensor quantised otherwise, or other attributes."""
    op = graph.ops[0]
    op = replace(op, attrs={**op.attrs, **attrs})
    names = (*op.inputs, *op.outputs)
    tensors = {n: graph.tensors[n] for n in names}
    if quant is not None:
        tensors[tensor] = replace(tensors[tensor], quant=quant)
    op = replace(op, kind=op.kind)
    y = op.outputs[0]
    draft = Graph("", (op,), tensors, (op.inputs[0],), (y,))
    tensors[y] = replace(tensors[y], shape=ops.result_shape(op, draft))
    return replace(draft, tensors=tensors)


def padded() -> Graph:
    return next(g for i in range(99) if any((g := network(i)).ops[0].attrs["pad"])
                and g.ops[0].kind == "conv2d")  # fmt: skip


def test_why_a_layer_stays_on_the_core(tmp_path: Path) -> None:
    graph, file = padded(), target_file(tmp_path)
    y = graph.ops[0].outputs[0]
    quant = graph.tensors[y].quant
    assert quant is not None
    assert "on the core" in reasons(changed(graph, y), file)
    assert "no powers of two" in reasons(changed(graph, y, Quant((quant.scale[0] * 1.1,), (0,))), file)
    assert "away from zero" in reasons(changed(graph, y, Quant((quant.scale[0] * 4,), (0,)), clamp=(None, None)), file)
    assert "padding is 3" in reasons(changed(graph, "x", Quant((0.25,), (3,))), target_file(tmp_path, padding="zero"))
    file = target_file(tmp_path)
    onnx = replace(changed(graph, y, Quant((quant.scale[0] * 4,), (0,))), arithmetic="onnx")
    assert "to even" in reasons(onnx, file)
    assert "on the core" in reasons(onnx, target_file(tmp_path, rounding="even"))
    file = target_file(tmp_path)
    channels = graph.tensors["w0"].shape[0]
    scales = Quant(tuple(2.0 ** -(7 + i % 2) for i in range(channels)), (0,) * channels, 0)
    bias = replace(graph.tensors["b0"], quant=None)
    several = changed(replace(graph, tensors={**graph.tensors, "b0": bias}), "w0", scales)
    assert channels < 2 or "different shifts" in reasons(several, file)
    assert "would take" in reasons(changed(graph, y), target_file(tmp_path, cycles="1000000 * OY"))
    assert "no pattern" in reasons(changed(graph, y), target_file(tmp_path, patterns="dense"))
    assert "smallest tile needs" in reasons(changed(graph, y), target_file(tmp_path, weights="8"))
    plain = changed(graph, y)
    sums = ops.SPECS["conv2d"].sums(plain.ops[0], plain)
    assert sums is not None
    bits = int(sums.bound.max()).bit_length()
    taps = int(max(sums.weights.max(), -1 - sums.weights.min())).bit_length() + 1
    for key, width, enough in (("sum_bits", bits, bits + 2), ("weight_bits", taps - 1, taps)):
        assert f"leave {width} bits" in reasons(plain, target_file(tmp_path, padding=f"value\n    {key}: {width}"))
        assert "on the core" in reasons(plain, target_file(tmp_path, padding=f"value\n    {key}: {enough}"))
    real = replace(graph, tensors={**graph.tensors, "x": replace(graph.tensors["x"], dtype="float32", quant=None)})
    assert "its input is float32" in refusal(graph.ops[0], real, load_target(str(file)).engines[0])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"patterns": "conv3d"}, "unknown word 'conv3d'; did you mean 'conv2d'?"),
        ({"cycles": "K * Q"}, "unknown letter 'Q' in the formula"),
        ({"requantise": "round"}, "unknown word 'round'"),
        ({"activations": "0"}, "expected a number from 1 upwards"),
    ],
)
def test_wrong_facts(words: dict[str, str], text: str, tmp_path: Path) -> None:
    file = target_file(tmp_path, **words)
    with pytest.raises(EdgebuildError) as caught:
        load_target(str(file))
    assert text in str(caught.value)
    assert re.search(r"engine\.yaml:\d+", str(caught.value))


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("ACT: {origin: 0xC0000000, size: 2K", "ACT: {origin: 0xC0000000, size: 1K", "a scratchpad of 2048 B"),
        ("[ACT, WGT]\n", "[ACT, WEIGHTS]\n", "no memory 'WEIGHTS'"),
        ("[ACT, WGT]\n", "[ACT]\n", "names 1 memories"),
        ("[ACT, WGT]\n", "[ACT, WGT, ACT]\n", "names 3 memories"),
        ("[ACT, WGT]\n", "[WGT, WGT]\n", "names WGT for activations and for weights"),
    ],
)
def test_wrong_scratchpads(before: str, after: str, text: str, tmp_path: Path) -> None:
    file = target_file(tmp_path)
    written = file.read_text()
    assert before in written
    file.write_text(written.replace(before, after))
    with pytest.raises(EdgebuildError) as caught:
        load_target(str(file))
    assert text in str(caught.value)
    assert re.search(r"engine\.yaml:\d+", str(caught.value))


def test_a_scratchpad_that_no_dma_fills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = target_file(tmp_path)
    file.write_text(file.read_text().replace("L1, ACT, WGT]", "L1, ACT]"))
    digits = ROOT / "sample_projects" / "digits" / "digits.onnx"
    assert main(["model", str(digits), "--target", str(file), "--map", "layer", "-o", str(tmp_path)]) == 1
    assert "reaches WGT, a scratchpad of engine digital" in capsys.readouterr().err


# ---- files


def power_of_two_file(file: Path) -> None:
    """A TFLite model of 32x32x16 with two convolutions on the engine, one that is not, and a dense layer."""
    pytest.importorskip("tflite_micro")
    from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

    from tests.graphs.tflite_models import SAME, File
    from tests.graphs.tiny import window

    r, f = np.random.default_rng(5), File()
    x = first = f.tensor("x", (1, 32, 32, 16), "int8", Quant((1 / 16,), (0,)))
    scale, channels = 1 / 16, 16
    for i, (out, taps, step, relu) in enumerate([(32, 3, 1 / 4, 1), (32, 3, 1 / 2, 1), (16, 1, 0.3, 0)]):
        w = r.integers(-127, 128, (out, taps, taps, channels)).astype(np.int8)
        bias = r.integers(-3000, 3000, out).astype(np.int32)
        product = Quant((scale / 128,), (0,))
        operands = [x, f.tensor(f"w{i}", w.shape, "int8", Quant((1 / 128,), (0,)), w)]
        operands.append(f.tensor(f"b{i}", bias.shape, "int32", product, bias))
        x = f.tensor(f"y{i}", (1, 32, 32, out), "int8", Quant((step,), (0,)))
        options = window(schema.Conv2DOptionsT(), SAME, 1)
        options.fusedActivationFunction = relu
        f.operator("CONV_2D", operands, [x], options)
        scale, channels = step, out
    file.write_bytes(f.pack([first], [x]))


def residual_file(file: Path) -> None:
    """A TFLite model with scales like those of a trained one: two convolutions, a depthwise one, an addition, dense."""
    pytest.importorskip("tflite_micro")
    from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

    from tests.graphs.tflite_models import SAME, File
    from tests.graphs.tiny import window

    r, f = np.random.default_rng(7), File()

    def layer(kind: str, x: int, in_scale: float, scale: float, zero: int, shape: tuple[int, ...], relu: int) -> int:
        depthwise, dense = kind == "DEPTHWISE_CONV_2D", kind == "FULLY_CONNECTED"
        out = shape[3] if depthwise else shape[0]
        scales = tuple((r.random(out) * 0.01 + 0.002).tolist()) if not dense else (0.0071,)
        axis = 3 if depthwise else 0
        w = f.tensor("w", shape, "int8", Quant(scales, (0,) * len(scales), axis if len(scales) > 1 else None),
                     r.integers(-127, 128, shape).astype(np.int8))  # fmt: skip
        product = tuple(in_scale * s for s in scales)
        b = f.tensor("b", (out,), "int32", Quant(product, (0,) * len(product), 0 if len(product) > 1 else None),
                     r.integers(-300, 300, out).astype(np.int32))  # fmt: skip
        y = f.tensor("y", (1, out) if dense else (1, 8, 8, out), "int8", Quant((scale,), (zero,)))
        if dense:
            options = schema.FullyConnectedOptionsT()
        else:
            options = window(schema.DepthwiseConv2DOptionsT() if depthwise else schema.Conv2DOptionsT(), SAME, 1)
            if depthwise:
                options.depthMultiplier = 1
        options.fusedActivationFunction = relu
        f.operator(kind, [x, w, b], [y], options)
        return y

    x = f.tensor("x", (1, 8, 8, 3), "int8", Quant((0.0078,), (-1,)))
    a = layer("CONV_2D", x, 0.0078, 0.021, -128, (16, 3, 3, 3), 1)
    b = layer("DEPTHWISE_CONV_2D", a, 0.021, 0.05, -128, (1, 3, 3, 16), 1)
    c = layer("CONV_2D", b, 0.05, 0.11, 4, (16, 1, 1, 16), 0)
    y = f.tensor("sum", (1, 8, 8, 16), "int8", Quant((0.12,), (-128,)))
    options = schema.AddOptionsT()
    options.fusedActivationFunction = 1
    f.operator("ADD", [a, c], [y], options)
    flat = f.tensor("flat", (1, 1024), "int8", Quant((0.12,), (-128,)))
    f.operator("RESHAPE", [y, f.tensor("shape", (2,), "int32", None, np.array([1, 1024], np.int32))], [flat], None)
    out = layer("FULLY_CONNECTED", flat, 0.12, 2.3, 7, (5, 1024), 0)
    file.write_bytes(f.pack([x], [out]))


@pytest.mark.slow
def test_no_layer_takes_more_than_by_the_rule_of_dory(tmp_path: Path) -> None:
    """Strides leave columns that no window reaches; tiles of all columns are contiguous nevertheless."""
    file, compared = target_file(tmp_path), 0
    graphs = [g for g in map(network, range(16)) if all(t.elements for t in g.tensors.values())]
    for moved in engines([planner(file)(graph, "g") for graph in graphs]):
        with suppress(NoMapping):
            assert moved.cycles.total <= dory(moved.layer, {r.memory: r.bytes for r in moved.regions}, False)[1].total
            compared += 1
    assert compared > 15


def test_map_shows_the_layers_of_the_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    power_of_two_file(tmp_path / "powers.tflite")
    options = ["--target", "diana", "--limit", "ACT=12K,WGT=4K", "--json", "-"]
    assert main(["map", str(tmp_path / "powers.tflite"), *options]) == 0
    rows = json.loads(capsys.readouterr().out)["layers"]
    assert len(rows) == 2
    for row in rows:
        assert row["tile_bytes"]["weights"] <= 4 << 10
        assert sum(n for name, n in row["tile_bytes"].items() if name != "weights") <= 12 << 10
    digits = ROOT / "sample_projects" / "digits" / "digits.onnx"
    assert main(["map", str(digits), "--target", "diana"]) == 1
    error = capsys.readouterr().err
    assert "no layer runs on engine digital" in error
    assert "stem and 3 more: padding is -128" in error


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("dma", ["eager", "random:5"])
def test_a_model_on_diana(dma: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Equal to TFLite Micro, with two layers on the engine, and as many bytes copied as the report says."""
    power_of_two_file(tmp_path / "powers.tflite")
    options = ["--target", "diana-model", "--map", "layer", "--dma", dma, "--keep", str(tmp_path / "k"), "--json", "-"]
    assert main(["verify", str(tmp_path / "powers.tflite"), *options]) == 0
    verdict = json.loads(capsys.readouterr().out)
    section = json.loads((tmp_path / "k" / "model_report.json").read_text())["hierarchy"]
    assert [row["engine"] for row in section["layers"]] == ["digital", "digital", "cpu"]
    assert "no powers of two" in section["layers"][2]["why"]
    assert verdict["dma"] == section["moved"]
    assert {row["name"]: row["used_bytes"] > 0 for row in section["levels"]} == {"L2": True, "ACT": True, "WGT": True}


def powers_of_two(model: Any) -> None:
    """Make all scales of a QDQ model powers of two, and all zero points 0; biases keep their values."""
    import onnx
    from onnx import numpy_helper

    values = {t.name: t for t in model.graph.initializer}
    quantisers = [n for n in model.graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear")]
    old = {n.input[1]: float(numpy_helper.to_array(values[n.input[1]]).ravel()[0]) for n in quantisers}
    new = {name: 2.0 ** np.ceil(np.log2(2 * scale)) for name, scale in old.items()}
    scale_of = {n.output[0]: n.input[1] for n in quantisers if n.op_type == "DequantizeLinear"}
    source = {n.input[1]: n.input[0] for n in quantisers if n.op_type == "DequantizeLinear"}
    for node in model.graph.node:
        if node.op_type in ("Conv", "Gemm") and len(node.input) > 2:
            x, w, b = (scale_of[name] for name in node.input)
            bias = values[source[b]]
            new[b] = new[x] * new[w]
            kept = np.rint(numpy_helper.to_array(bias) * old[b] / new[b]).astype(np.int32)
            bias.CopyFrom(numpy_helper.from_array(kept, bias.name))
    for n in quantisers:
        scale, zero = values[n.input[1]], values[n.input[2]]
        one = np.full_like(numpy_helper.to_array(scale), new[n.input[1]])
        scale.CopyFrom(numpy_helper.from_array(one, scale.name))
        zero.CopyFrom(numpy_helper.from_array(np.zeros_like(numpy_helper.to_array(zero)), zero.name))
    onnx.checker.check_model(model)


@pytest.mark.needs("gcc")
def test_a_network_of_the_zoo_on_diana(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ResNet-8 with scales that are powers of two: all but transposes and the average, equal to onnxruntime."""
    pytest.importorskip("onnxruntime")
    from tests.zoo.builders import ZOO, quantized

    model = quantized(ZOO["resnet8"](0), 0)
    for case, expected in (("as it is", 0), ("powers", 13)):
        if case == "powers":
            powers_of_two(model)
        (tmp_path / "resnet8.onnx").write_bytes(model.SerializeToString(deterministic=True))
        options = ["--target", "diana-model", "--map", "layer", "--keep", str(tmp_path / "k"), "--json", "-"]
        assert main(["verify", str(tmp_path / "resnet8.onnx"), *options]) == 0
        assert json.loads(capsys.readouterr().out)["max_abs_diff"] == 0
        rows = json.loads((tmp_path / "k" / "model_report.json").read_text())["hierarchy"]["layers"]
        digital = [row for row in rows if row["engine"] == "digital"]
        assert len(digital) == expected, [(row["node"], row["why"]) for row in rows]
