"""Planted faults that an oracle with a step of slack lets pass, and correct code that a saturating one condemns."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import edgebuild.model.verify
from edgebuild.base.artifacts import Artifact
from edgebuild.base.errors import Diagnostic, EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.cli import main
from edgebuild.model import ops
from edgebuild.model.cluster.products import ClusterRequest
from edgebuild.model.compile import compile_model, prepare
from edgebuild.model.ir import Array
from edgebuild.model.ops import fixedpoint
from edgebuild.model.verify import cluster, oracles, verify
from edgebuild.model.verify.oracles import reference
from edgebuild.model.verify.recording import Plot, Round, directed_rounds, real_steps, source_of
from edgebuild.model.verify.rounding import moves, near_file
from tests.conftest import ROOT
from tests.exporters.writer import Net
from tests.importers.test_quantised import Quantised


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edgebuild.model.verify, "SANITIZERS", ())


def layers() -> onnx.ModelProto:
    """A convolution, a depthwise one, an addition, a table, a pool, a dense layer and a softmax."""
    net = Quantised()
    x = net.q(net.input("x", (1, 4, 8, 8)), 0.02)
    w = net.q(net.weight(8, 4, 3, 3), 0.01)
    a = net.q(net.op("Relu", net.op("Conv", x, w, kernel_shape=[3, 3], pads=[1, 1, 1, 1])), 0.06)
    d = net.op("Conv", a, net.q(net.weight(8, 1, 3, 3), 0.01), kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=8)
    s = net.q(net.op("Sigmoid", net.q(net.op("Add", a, net.q(d, 0.07)), 0.08)), 0.005)
    pooled = net.q(net.op("AveragePool", s, kernel_shape=[4, 4], strides=[4, 4]), 0.005)
    flat = net.q(net.op("Flatten", pooled), 0.005)
    last = net.q(net.op("MatMul", flat, net.q(net.weight(32, 5), 0.1)), 0.0213)
    return net.done(net.q(net.op("Softmax", last), 0.003))


def compiled(model: onnx.ModelProto, folder: Path, target: str = "host", **options: Any) -> tuple[Path, list[Artifact]]:
    file = folder / "net.onnx"
    file.write_bytes(model.SerializeToString())
    return file, list(compile_model(model_request(file, "model", target, {"tile": "off", "weights": "asm", **options})))


def plotted(file: Path, artifacts: Sequence[Artifact]) -> Plot:
    return Plot(prepare(file), json.loads(artifacts[-1].data), source_of(artifacts))


def changed(artifacts: Sequence[Artifact], edit: Any, name: str = "model.c") -> list[Artifact]:
    """The artifacts with one file edited; it must not be what it was."""
    edited = [replace(a, data=edit(a.data)) if a.name == name else a for a in artifacts]
    assert edited != list(artifacts)
    return edited


HOW: dict[str, dict[str, Any]] = {
    "whole": {},
    "rolling": {"tile": "rolling"},
    "parts of channels": {"tile": "fdt"},
    "parts of rows": {"tile": "ffmt"},
    "tiles by DMA": {"tile": None, "map": "layer", "limit": "L1=2048"},
}


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("form", HOW)
def test_every_step_is_seen_and_right(form: str, tmp_path: Path) -> None:
    file, artifacts = compiled(layers(), tmp_path, **HOW[form])
    result = verify(file, load_target("host"), artifacts)
    assert result["equal"] and result["first_difference"] is None, result
    computed = [op.outputs[0] for op in prepare(file).ops if not ops.SPECS[op.kind].view]
    assert set(computed) <= set(result["compared"]) and result["unseen"] == []
    reached, bounds = result["bounds_reached"]
    # no directed operands for parts, and for a sum in a run with others
    least = bounds // 2 if "parts" in form else bounds - (5 if form == "rolling" else 3)
    assert reached >= least, "an average of values of one scale, a table: not all can be reached"


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("fault", [0, 1])
def test_rows_that_are_read_as_a_line_are_seen(fault: int, tmp_path: Path) -> None:
    """The line is a view of what the same step makes: it does not stand in the arena as the step begins."""
    net = Quantised()
    net.zero = 0
    w, dense = (net.q(net.weight(*shape), 0.01) for shape in ((8, 3, 3, 3), (512, 5)))
    net.zero = 5
    x = net.q(net.input("x", (1, 3, 8, 8)), 0.02)
    rows = net.q(net.op("Conv", x, w, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), 0.06)
    scores = net.q(net.op("MatMul", net.q(net.op("Flatten", rows), 0.06), dense), 0.5)
    file, artifacts = compiled(net.done(scores, net.op("GlobalAveragePool", rows)), tmp_path, tile="rolling")
    if fault:
        artifacts = changed(artifacts, lambda data: data.replace(b"sums[k] = sum;", b"sums[k] = sum + 400;"))
    result = verify(file, load_target("host"), artifacts)
    assert result["equal"] == (not fault) and result["unseen"] == []


@pytest.mark.needs("gcc")
def test_what_is_not_seen_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Steps over inputs that come by rows: their results are judged through those behind them."""
    command = ["verify", str(ROOT / "sample_projects" / "digits" / "digits.onnx"), "--target", "host"]
    assert main([*command, "--stream-input", "rows", "--json", str(tmp_path / "r.json")]) == 0
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["unseen"] and not {*result["unseen"]} & {*result["compared"]}
    assert f"{len(result['unseen'])} results only through those behind them" in capsys.readouterr().out


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("form", ["parts of channels", "tiles by DMA"])
def test_a_fault_inside_of_what_is_cut_is_reported_where_it_is(form: str, tmp_path: Path) -> None:
    """A zero point of the depthwise convolution, or of one part of it."""
    file, artifacts = compiled(layers(), tmp_path, **HOW[form])
    call = re.compile(rb"(depthwise[^;]*?/\* y_zero \*/ )3,")
    result = verify(file, load_target("host"), changed(artifacts, lambda c: call.sub(rb"\g<1>4,", c, count=1)))
    named = [op.name for op in prepare(file).ops if op.kind == "depthwise_conv2d"]
    assert not result["equal"] and [result["first_difference"]["op"]] == named, result["first_difference"]


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("host", marks=pytest.mark.needs("gcc")),
        pytest.param("pulp-cluster", marks=pytest.mark.needs("riscv64-unknown-elf-gcc", "qemu-system-riscv32")),
    ],
)
def test_a_run_in_the_first_level_is_seen_as_a_whole(target: str, tmp_path: Path) -> None:
    """On one core and on several: its calls have no fences, so results inside are judged by those behind them."""
    file, artifacts = compiled(layers(), tmp_path, target, tile=None, map="auto", limit="L1=1200")
    run = next(step for step in plotted(file, artifacts).steps if step[0].kind == "depthwise_conv2d")
    assert len(run) > 1
    result = verify(file, load_target(target), artifacts)
    assert result["equal"] and result["directed"] and run[0].outputs[0] in result["unseen"], result
    call = re.compile(rb"(depthwise[^;]*?/\* y_zero \*/ )3,")
    result = verify(file, load_target(target), changed(artifacts, lambda c: call.sub(rb"\g<1>4,", c, count=1)))
    assert not result["equal"] and result["first_difference"]["op"] == run[-1].name, result["first_difference"]


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("fault", ["clamp", "zero point", "multiplier", "bias", "weight", "table"])
def test_a_fault_of_one_step_is_noticed(fault: str, tmp_path: Path) -> None:
    """Each moves some results by one step: onnxruntime's slack."""
    file, artifacts = compiled(layers(), tmp_path)
    source = source_of(artifacts)

    def off(name: str, byte: int, by: int) -> list[Artifact]:
        """One byte of a constant changed in the weights file."""
        at = byte + int(source.split(f"{name} = ")[1].split(",")[0])
        return changed(artifacts, lambda d: d[:at] + bytes([d[at] ^ by]) + d[at + 1 :], "model_weights.bin")

    constants = sorted(set(re.findall(r"^ +(MODEL_\w+) = \d+, /\* \d", source, re.MULTILINE)))
    named = {end: next(n for n in constants if n.endswith(end)) for end in ("_MULTIPLIER", "_BIAS", "_W", "_TABLE")}
    match fault:
        case "clamp":
            planted = changed(artifacts, lambda c: c.replace(b"/* high */ 127", b"/* high */ 126", 1))
        case "zero point":
            planted = changed(artifacts, lambda c: c.replace(b"/* y_zero */ 3", b"/* y_zero */ 4", 1))
        case "multiplier":  # by up to 1 %
            planted = off(named["_MULTIPLIER"], 2, 0xC0)
        case "bias":
            planted = off(named["_BIAS"], 0, 64)
        case "weight":
            planted = off(named["_W"], 0, 16)
        case _:
            planted = off(named["_TABLE"], 0, 1)
    result = verify(file, load_target("host"), planted)
    assert not result["equal"] and result["first_difference"]["op"]


@pytest.mark.needs("gcc")
def test_the_compilers_own_factors_are_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A factor that is 1 % off in the generated code and in the operator's meaning alike."""
    right = fixedpoint.quantize_multiplier
    monkeypatch.setattr(fixedpoint, "quantize_multiplier", lambda real: right(real * 1.01))
    file, artifacts = compiled(layers(), tmp_path)
    assert not verify(file, load_target("host"), artifacts)["equal"]


@pytest.mark.needs("gcc")
def test_a_tensor_that_another_step_writes_over_is_noticed(tmp_path: Path) -> None:
    """The value that a step gets is the one that was made."""
    file, artifacts = compiled(layers(), tmp_path)
    plot = plotted(file, artifacts)
    late = max(range(len(plot.steps)), key=lambda k: len(plot.reads(k)))  # the addition
    first = next(n for n in plot.reads(late) if plot.buffers[n]["first"] < late - 1)
    at = plot.buffers[first]["offset"]
    mark = f"    EB_STEP();\n    /* {late}  ".encode()
    spoilt = changed(artifacts, lambda c: c.replace(mark, b"    *AT(int8_t, %d) ^= 64;\n" % at + mark, 1))
    result = verify(file, load_target("host"), spoilt)
    assert not result["equal"] and first in result["differs"]


def test_directed_operands_reach_ties(tmp_path: Path) -> None:
    file, artifacts = compiled(layers(), tmp_path)
    plot = plotted(file, artifacts)
    graph, rounds = plot.graph, directed_rounds(plot, Round([{} for _ in plot.steps], directed=False))
    for step, op in ((k, op) for k, step_ops in enumerate(plot.steps) for op in step_ops):
        free = [t.name for t in graph.operands(op) if not t.constant]
        if ops.SPECS[op.kind].exact or {n for r in rounds for n in r.puts[step]} < {*free}:
            continue
        values = ({t.name: t.data for t in graph.operands(op)} | r.puts[step] for r in rounds)
        steps = np.stack([real_steps(op, graph)([v[n] for n in op.inputs])[0] for v in values])
        aside = ((steps % 1 - 0.5) / (1 + np.abs(steps))).reshape(-1, steps.shape[-1] if op.kind == "dense" else 1)
        nearest = [np.min(side, axis=0, where=side > 0, initial=1).max() for side in (-aside, aside)]
        assert max(nearest) < 5e-5, op.name


# ---- a processor without VNNI, in numpy


def saturating(a: Array, b: Array) -> Array:
    """Sums of pairs of products of uint8 and int8 in int16, as `vpmaddubsw` makes them; exact for other types."""
    wide = a.astype(np.int32)[..., :, None] * b.astype(np.int32)[..., None, :, :].swapaxes(-1, -2).swapaxes(-1, -2)
    if {a.dtype, b.dtype} == {np.dtype(np.uint8), np.dtype(np.int8)}:
        odd = np.zeros((*wide.shape[:-2], wide.shape[-2] % 2, wide.shape[-1]), np.int32)
        wide = np.concatenate([wide, odd], axis=-2)
        wide = np.clip(wide[..., 0::2, :] + wide[..., 1::2, :], -(2**15), 2**15 - 1)
    return np.asarray(wide.sum(axis=-2, dtype=np.int32))


class MatMulInteger(OpRun):  # type: ignore[misc,unused-ignore]
    op_domain = ""

    def _run(self, a: Array, b: Array, a_zero: Any = None, b_zero: Any = None) -> tuple[Array]:
        less = saturating(a, b)
        za, zb = (0 if z is None else z.astype(np.int32) for z in (a_zero, b_zero))
        sums = a.astype(np.int32).sum(-1, keepdims=True), b.astype(np.int32).sum(-2, keepdims=True)
        return (np.asarray(less - zb * sums[0] - za * sums[1] + a.shape[-1] * za * zb).astype(np.int32),)


def without_vnni(proto: Any, feeds: list[list[Array]], model: Path) -> list[dict[str, Array]]:
    """`oracles._ran` with the products of such a processor."""
    names = oracles._tell_all(proto.graph)
    run = ReferenceEvaluator(proto, new_ops=[MatMulInteger])
    inputs = [value.name for value in proto.graph.input]
    return [dict(zip(names, run.run(names, dict(zip(inputs, row, strict=True))), strict=True)) for row in feeds]


def products(folder: Path) -> Path:
    """y = x times weights of int8 at the end of their range."""
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, [2, 3, 8])
    y = helper.make_tensor_value_info("y", TensorProto.INT32, [2, 3, 5])
    net = Net("t{number}", 17)
    w = net.stored(np.full((8, 5), 127), np.int8)
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["x", w], ["y"])], "sums", [x], [y], net.constants)
    file = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("mended", [True, False])
def test_a_saturating_onnxruntime_condemns_nothing(
    mended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = products(tmp_path)
    monkeypatch.setattr(oracles, "_ran", without_vnni)
    if not mended:
        monkeypatch.setattr(oracles, "in_one_sign", lambda proto: [])
    report = json.loads(compile_model(model_request(file, "model", "host", {}))[-1].data)
    vectors = [[np.full((2, 3, 8), 255, np.uint8)]]
    (row,) = reference(file, vectors, report).outputs
    assert np.array_equal(row[0], np.full((2, 3, 5), 8 * 255 * 127)) == mended
    if mended:
        result = verify(file, load_target("host"), compile_model(model_request(file, "model", "host", {})))
        assert result["equal"] and "saturates products" in result["notes"][0]


def test_every_form_of_products_gets_one_sign(tmp_path: Path) -> None:
    """Weights that are constants, that the graph computes, and in the body of an If; zero points that are left out."""
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, [4, 8])
    v = helper.make_tensor_value_info("v", TensorProto.INT8, [8, 5])
    which = helper.make_tensor_value_info("which", TensorProto.BOOL, [])
    out = [helper.make_tensor_value_info(n, TensorProto.INT32, [4, 5]) for n in ("a", "b", "c")]
    zero = onnx.numpy_helper.from_array(np.array([1, -2, 3, 4, -128], np.int8), "zero")
    w = onnx.numpy_helper.from_array(np.random.default_rng(1).integers(-128, 128, (8, 5)).astype(np.int8), "w")
    branch = [
        helper.make_graph([helper.make_node("MatMulInteger", ["x", "w"], [name])], name, [], [
            helper.make_tensor_value_info(name, TensorProto.INT32, [4, 5])]) for name in ("then", "else")
    ]  # fmt: skip
    nodes = [
        helper.make_node("MatMulInteger", ["x", "w", "", "zero"], ["a"]),
        helper.make_node("MatMulInteger", ["x", "v"], ["b"]),
        helper.make_node("If", ["which"], ["c"], then_branch=branch[0], else_branch=branch[1]),
    ]
    graph = helper.make_graph(nodes, "g", [x, v, which], out, [zero, w])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    rng = np.random.default_rng(2)
    feeds = {"x": rng.integers(0, 256, (4, 8)).astype(np.uint8), "v": rng.integers(-128, 128, (8, 5)).astype(np.int8)}
    right = ReferenceEvaluator(proto).run(None, {**feeds, "which": np.array(True)})
    assert len(oracles.in_one_sign(proto)) == 4
    outputs = ReferenceEvaluator(proto, new_ops=[MatMulInteger]).run(None, {**feeds, "which": np.array(True)})
    assert all(np.array_equal(a, b) for a, b in zip(outputs, right, strict=True))


# ---- judges that are known to be wrong, copies that no oracle runs


def test_what_tflite_micro_misreads_it_does_not_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.firmware.test_oracles import tflite_relus

    file = tmp_path / "m.tflite"
    tflite_relus(file)
    monkeypatch.setattr(oracles, "_misread", lambda path: "a loop, and TFLite Micro runs it to another result")
    monkeypatch.setattr(oracles, "_has_litert", lambda: False)
    monkeypatch.setattr(oracles, "_interpreted", lambda *_: pytest.fail("the wrong judge was asked"))
    report = json.loads(compile_model(model_request(file, "model", "host", {}))[-1].data)
    expected = reference(file, [[np.array([[-128, -10, 0, 127]], np.int8)]], report)
    assert expected.outputs[0][0].tolist() == [[5, 5, 15, 127]] and "numpy" in expected.judge


def test_constants_of_shapes_do_not_move(tmp_path: Path) -> None:
    """Factors of a Resize, and those of which a graph makes them; the file keeps its name."""
    nodes = [
        helper.make_node("Mul", ["half", "four"], ["twice"]),
        helper.make_node("Concat", ["ones", "twice", "twice"], ["scales"], axis=0),
        helper.make_node("Resize", ["x", "", "scales"], ["r"], mode="nearest"),
        helper.make_node("Add", ["r", "c"], ["y"]),
    ]
    constants = {"half": [0.5], "four": [4.0], "ones": [1.0, 1.0], "c": [0.1]}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 8, 8])],
        [onnx.numpy_helper.from_array(np.array(v, np.float32), n) for n, v in constants.items()],
    )  # fmt: skip
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx"
    )
    (tmp_path / "near").mkdir()
    near = near_file(tmp_path / "net.onnx", "onnx", np.random.default_rng(1), tmp_path / "near")
    moved = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(str(near)).graph.initializer}
    assert near.name == "net.onnx" and moved["c"] != np.float32(0.1)
    assert all(np.array_equal(moved[n], np.array(constants[n], np.float32)) for n in ("half", "four", "ones"))


def test_a_copy_that_the_oracle_refuses_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, artifacts = compiled(layers(), tmp_path)

    def refused(*_: Any) -> Any:
        raise EdgebuildError(())

    monkeypatch.setattr(edgebuild.model.verify, "reference", refused)
    report = json.loads(artifacts[-1].data)
    assert edgebuild.model.verify._moves(file, [], report, ()) == {}


def test_constants_of_a_branch_are_moved_as_well(tmp_path: Path) -> None:
    """Rounding of the results of an If is known by moving what its branches hold."""
    half = onnx.numpy_helper.from_array(np.array(0.5, np.float32), "half")
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 4))
    body = onnx.helper.make_graph([onnx.helper.make_node("Mul", ["x", "half"], ["y"])], "branch", [], [y], [half])
    choice = onnx.helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 4))
    c = onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, ())
    z = onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, (1, 4))
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([choice], "g", [x, c], [z])), tmp_path / "model.onnx")
    (tmp_path / "near").mkdir()
    near = onnx.load(near_file(tmp_path / "model.onnx", "onnx", np.random.default_rng(0), tmp_path / "near"))
    for attribute in near.graph.node[0].attribute:
        assert float(onnx.numpy_helper.to_array(attribute.g.initializer[0])) != 0.5


def test_an_exponent_is_no_number_that_rounding_moves(tmp_path: Path) -> None:
    """A power of 2.0000002 of a negative number is not a number, and tells nothing of rounding."""
    two, half = (onnx.numpy_helper.from_array(np.array(v, np.float32), n) for v, n in ((2.0, "two"), (0.5, "half")))
    nodes = [onnx.helper.make_node("Pow", ["x", "two"], ["p"]), onnx.helper.make_node("Mul", ["p", "half"], ["y"])]
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, (1, 4)) for n in "xy")
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y], [two, half]))
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "near").mkdir()
    near = onnx.load(near_file(tmp_path / "model.onnx", "onnx", np.random.default_rng(0), tmp_path / "near"))
    moved = {t.name: float(onnx.numpy_helper.to_array(t)) for t in near.graph.initializer}
    assert moved["two"] == 2.0 and moved["half"] != 0.5


def test_a_mean_that_cancels_may_be_off_by_a_step_of_its_terms() -> None:
    terms = np.linspace(-1, 1, 64, dtype=np.float32)[None]
    far = moves([[terms]], lambda near, rng: [{"y": np.mean(near[0][0], dtype=np.float64, keepdims=True)}])
    assert 1e-7 < far["y"] < 1e-5


def test_a_cluster_is_not_judged_only_where_no_interpreter_runs_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure of the program itself is no reason to call it equal."""
    request = ClusterRequest(tmp_path / "m.onnx", tmp_path / "c.yaml", "net")

    def judged(error: EdgebuildError) -> Any:
        monkeypatch.setattr(cluster, "verify", lambda *given, **more: (_ for _ in ()).throw(error))
        return cluster._judged_alone(request, (), None)

    alone = judged(oracles.NoJudge("onnxruntime cannot run this model", request.source))
    assert alone["judge"] == "" and "onnxruntime" in alone["notes"][0]
    with pytest.raises(EdgebuildError, match="ended with status 1"):
        judged(EdgebuildError(Diagnostic("the test program ended with status 1")))
