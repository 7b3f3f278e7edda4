"""Float networks become int8 ones: what is tried, what is kept, and what the firmware then makes of the samples."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.cli import main
from edgebuild.model.quantizer import METHODS, corrected, equalised, quantise, quantised, ranges
from edgebuild.model.quantizer.samples import folded, read_rows, run, signal_to_noise
from edgebuild.model.verify.vectors import auc, classes, rebuilds

pytest.importorskip("onnxruntime")
Array = NDArray[np.float32]
CLASSES = 5


def network(seed: int, spread: float = 0.0, activation: str = "Relu") -> onnx.ModelProto:
    """Convolutions, one depthwise, and a dense layer; channels between them with scales that differ by exp(spread)."""
    rng = np.random.default_rng(seed)
    nodes, constants = [], []
    channels, x, before = 3, "image", np.ones(3, np.float32)
    if activation == "Clip":
        constants += [numpy_helper.from_array(np.float32(v), n) for n, v in (("low", 0), ("high", 1e6))]

    def constant(name: str, value: Array) -> str:
        constants.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    for i, (outputs, size, groups) in enumerate([(8, 3, 1), (8, 3, 8), (12, 1, 1)]):
        scale = np.exp(rng.normal(0, spread if i < 2 else 0, outputs)).astype(np.float32)
        w = rng.normal(0, 1 / np.sqrt(size * size * channels / groups), (outputs, channels // groups, size, size))
        w = (
            w
            * scale[:, None, None, None]
            / (before[:, None, None, None] if groups > 1 else before[None, :, None, None])
        )
        bias = constant(f"b{i}", rng.normal(0, 0.3, outputs) * scale)
        inputs, pads = [x, constant(f"w{i}", w), bias], [size // 2] * 4
        nodes.append(helper.make_node("Conv", inputs, [f"c{i}"], f"conv{i}", group=groups, pads=pads))
        more = ["low", "high"] if activation == "Clip" else []
        nodes.append(helper.make_node(activation, [f"c{i}", *more], [f"a{i}"], f"act{i}"))
        channels, x, before = outputs, f"a{i}", scale
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"], "pool"))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"))
    dense = rng.normal(0, 1, (CLASSES, channels)) / before
    inputs = ["flat", constant("wd", dense), constant("bd", rng.normal(0, 0.1, CLASSES))]
    nodes.append(helper.make_node("Gemm", inputs, ["scores"], "dense", transB=1))
    ports = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 8, 8])]
    ends = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", CLASSES])]
    graph = helper.make_graph(nodes, "net", ports, ends, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def files(folder: Path, model: onnx.ModelProto, count: int = 60) -> tuple[Path, Path, Path]:
    """The network, samples, and as labels the classes that the network gives them: it is right in all."""
    rng = np.random.default_rng(5)
    images = rng.normal(0, 1, (count, 3, 8, 8)).astype(np.float32) * rng.uniform(0.2, 2, (count, 1, 1, 1))
    images = images.astype(np.float32)
    rows = [{"image": x[None]} for x in images]
    bias = next(t for t in model.graph.initializer if t.name == "bd")  # no class shall win each time
    centred = numpy_helper.to_array(bias) - run(model, rows)[0].mean((0, 1))
    bias.CopyFrom(numpy_helper.from_array(centred.astype(np.float32), "bd"))
    paths = folder / "net.onnx", folder / "samples.npz", folder / "labels.npy"
    onnx.save(model, paths[0])
    np.savez(paths[1], image=images)
    np.save(paths[2], classes(run(model, rows)[0]).astype(np.int64))
    return paths


def test_every_trial_is_measured_and_the_best_is_kept(tmp_path: Path) -> None:
    model, data, labels = files(tmp_path, network(1))
    outcome = quantise(model, data, labels)
    ways = [t.way for t in outcome.trials]
    assert ways[:4] == list(METHODS) and any("equalised" in w for w in ways) and any("biases" in w for w in ways)
    key = [(min(t.quality.accuracy or 0, outcome.real.accuracy or 0), t.quality.sqnr) for t in outcome.trials]
    assert outcome.trials[key.index(max(key))] is outcome.chosen
    assert outcome.real.accuracy == 1 and outcome.drop <= 4 and outcome.chosen.quality.sqnr > 25
    assert (outcome.calibrated, outcome.judged) == (30, 30)
    kinds = {n.op_type for n in outcome.chosen.model.graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= kinds


def test_samples_that_judge_do_not_calibrate(tmp_path: Path) -> None:
    """Every other sample is huge: if it took part in calibration, scales would be."""
    model, data, labels = files(tmp_path, network(1), 40)
    images = np.load(data)["image"]
    usual = quantise(model, data, labels, ["minmax"]).trials[0].model
    images[1::2] *= 100
    np.savez(data, image=images)
    again = quantise(model, data, labels, ["minmax"]).trials[0]
    assert again.quality.sqnr < 10 and again.model == usual


def test_equalised_weights_are_the_same_function(tmp_path: Path) -> None:
    """And int8 then loses little, where channels of other scales made it useless."""
    model = network(2, spread=1.5)
    rows = [{"image": x[None]} for x in np.random.default_rng(3).normal(0, 1, (24, 3, 8, 8)).astype(np.float32)]
    simple = folded(model, rows[0])
    even = equalised(simple)
    assert even is not None
    right = run(simple, rows)[0]
    np.testing.assert_allclose(run(even, rows)[0], right, rtol=1e-4, atol=1e-4)

    def noise(m: onnx.ModelProto) -> float:
        return signal_to_noise(right, run(quantised(m, ranges(m, rows, "minmax")), rows)[0])

    assert noise(even) > noise(simple) + 10


@pytest.mark.parametrize("change", ["output", "second reader", "shared weights"])
def test_only_layers_that_nobody_else_reads_are_equalised(change: str) -> None:
    model = network(2, spread=1.5)
    row = {"image": np.ones((1, 3, 8, 8), np.float32)}
    if change == "output":
        model.graph.output.append(helper.make_tensor_value_info("a0", TensorProto.FLOAT, None))
    elif change == "second reader":
        model.graph.node.append(helper.make_node("Identity", ["c0"], ["again"]))
        model.graph.output.append(helper.make_tensor_value_info("again", TensorProto.FLOAT, None))
    else:
        model.graph.node.append(helper.make_node("Conv", ["image", "w0"], ["again"], pads=[1] * 4))
        model.graph.output.append(helper.make_tensor_value_info("again", TensorProto.FLOAT, None))
    even = equalised(model)
    values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    changed = {
        t.name
        for t in (even or model).graph.initializer
        if not np.array_equal(values[t.name], numpy_helper.to_array(t))
    }
    assert "w0" not in changed and "w1" in changed
    names = [v.name for v in model.graph.output]
    for a, b in zip(run(model, [row], names), run(even or model, [row], names), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_transpose_convolutions_in_groups_stay_real() -> None:
    """onnxruntime's quantiser makes scales of one group alone, and fails at the bias."""
    rng, ports = np.random.default_rng(2), {"x": (1, 4, 5), "y": (1, 6, 7)}
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], group=2)
    stored = [
        (n, rng.normal(0, 1, s).astype(np.float32)) for n, s in (("w", (4, 3, 3)), ("b", (6,)), ("x", ports["x"]))
    ]
    x, y = ([helper.make_tensor_value_info(n, TensorProto.FLOAT, s)] for n, s in ports.items())
    graph = helper.make_graph([node], "net", x, y, [numpy_helper.from_array(v, n) for n, v in stored[:2]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    rows = [dict(stored[2:])]
    integers = quantised(model, ranges(model, rows, "minmax"))
    np.testing.assert_array_equal(run(integers, rows)[0], run(model, rows)[0])


@pytest.mark.parametrize("absent", [-np.inf, np.finfo(np.float32).min, -1e9])
def test_scores_with_a_mask_stay_real(absent: float) -> None:
    """An int8 scale that covers the mask rounds all scores to one number, and -inf has none."""
    rng, mask = np.random.default_rng(4), np.triu(np.full((5, 5), absent, np.float32), 1)
    stored = [("wq", rng.normal(0, 1, (8, 8))), ("wv", rng.normal(0, 1, (8, 8))), ("mask", mask)]
    nodes = [
        helper.make_node("MatMul", ["x", "wq"], ["q"], "query"),
        helper.make_node("MatMul", ["x", "wv"], ["v"], "value"),
        helper.make_node("Transpose", ["x"], ["k"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Add", ["s", "mask"], ["masked"], "masked"),
        helper.make_node("Softmax", ["masked"], ["p"], "softmax"),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    x, y = ([helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 5, 8))] for n in "xy")
    graph = helper.make_graph(nodes, "net", x, y, [numpy_helper.from_array(v.astype(np.float32), n) for n, v in stored])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    rows = [{"x": v.astype(np.float32)} for v in rng.normal(0, 0.5, (32, 1, 5, 8))]
    for method in METHODS:
        integers = quantised(model, ranges(model, rows, method))
        assert signal_to_noise(run(model, rows)[0], run(integers, rows)[0]) > 25, method
        assert sum(n.op_type == "QuantizeLinear" for n in integers.graph.node) >= 6, method


def test_weights_of_two_operators_have_scales_of_either() -> None:
    """A convolution has its channels along another axis than a transpose convolution with the same weights."""
    rng, ports = np.random.default_rng(2), {"x": (1, 4, 5, 5), "y": (1, 4, 5, 5)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], pads=[1] * 4),
        helper.make_node("ConvTranspose", ["a", "w"], ["c"], pads=[1] * 4),
        helper.make_node("Conv", ["c", "w", "b"], ["d"], pads=[1] * 4),
        helper.make_node("ConvTranspose", ["d", "w"], ["y"], pads=[1] * 4),
    ]
    stored = [("w", rng.normal(0, 0.3, (6, 4, 3, 3))), ("b", rng.normal(0, 1, 6))]
    x, y = ([helper.make_tensor_value_info(n, TensorProto.FLOAT, s)] for n, s in ports.items())
    graph = helper.make_graph(nodes, "net", x, y, [numpy_helper.from_array(v.astype(np.float32), n) for n, v in stored])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    rows = [{"x": v.astype(np.float32)} for v in rng.normal(0, 1, (16, *ports["x"]))]
    integers = quantised(model, ranges(model, rows, "minmax"))
    assert signal_to_noise(run(model, rows)[0], run(integers, rows)[0]) > 30
    weights = [t for t in integers.graph.initializer if t.dims == [6, 4, 3, 3]]
    assert len(weights) == 2 and {t.data_type for t in weights} == {TensorProto.INT8}


def test_corrected_biases_take_off_the_mean_error() -> None:
    """A bias that is 40 steps of the result too large becomes what it was, to a step."""
    rows = [{"image": x[None]} for x in np.random.default_rng(3).normal(0, 1, (32, 3, 8, 8)).astype(np.float32)]
    simple = folded(network(4), rows[0])
    limits = {name: (2 * a - b, 2 * b - a) for name, (a, b) in ranges(simple, rows, "minmax").items()}  # has room
    model = quantised(simple, limits)
    right = run(model, rows)[0]
    constants = {t.name: t for t in model.graph.initializer}
    step = float(numpy_helper.to_array(constants["scores_scale"]))
    numbers = numpy_helper.to_array(constants["bd_quantized"])
    units = numpy_helper.to_array(constants["bd_quantized_scale"])
    moved = (numbers + np.rint(40 * step / units)).astype(np.int32)
    constants["bd_quantized"].CopyFrom(numpy_helper.from_array(moved, "bd_quantized"))
    assert np.abs((run(model, rows)[0] - right).mean((0, 1)) - 40 * step).max() < step
    better = corrected(model, simple, rows)
    assert better is not None
    assert np.abs((run(better, rows)[0] - run(simple, rows)[0]).mean((0, 1))).max() < step


@pytest.mark.parametrize("activation", ["Relu", "Clip"])
@pytest.mark.parametrize("wide", [(), ("conv0", "conv1", "conv2", "dense")])
def test_corrected_biases_lessen_the_noise(wide: tuple[str, ...], activation: str) -> None:
    """Also of layers in int16, whose results before the activation have the range of those behind it."""
    rows = [{"image": x[None]} for x in np.random.default_rng(3).normal(0, 1, (64, 3, 8, 8)).astype(np.float32)]
    for seed in range(3):
        simple = folded(network(seed, 0.0, activation), rows[0])
        model = quantised(simple, ranges(simple, rows, "minmax"), wide, "int16" if wide else "none")
        better = corrected(model, simple, rows)
        assert better is not None
        right, before, after = (run(m, rows)[0] for m in (simple, model, better))
        assert signal_to_noise(right, after) > signal_to_noise(right, before)


@pytest.mark.parametrize("wide", ["int16", "float"])
def test_layers_become_wide_where_int8_loses_too_much(tmp_path: Path, wide: str) -> None:
    model, data, labels = files(tmp_path, network(2, 3.0, "Clip"))
    outcome = quantise(model, data, labels, ["minmax"], 0.0, wide)  # type: ignore[arg-type]
    plain = quantise(model, data, labels, ["minmax"], 0.0, "none").chosen
    assert plain.quality.accuracy is not None and plain.quality.accuracy < 0.95, "int8 alone must lose something"
    assert outcome.chosen.wide and {*outcome.chosen.wide} <= {"conv0", "conv1", "conv2", "dense"}
    assert (outcome.chosen.quality.accuracy or 0) > plain.quality.accuracy
    types = {t.data_type for t in outcome.chosen.model.graph.initializer if t.name.endswith("zero_point")}
    assert (TensorProto.INT16 in types) == (wide == "int16")


@pytest.mark.needs("gcc")
def test_the_command_and_the_firmware_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`verify` runs every sample on the generated code: its classes are those that onnxruntime gave the network."""
    model, data, labels = files(tmp_path, network(1))
    out = tmp_path / "int8.onnx"
    words = ["quantize", str(model), "--data", str(data), "--labels", str(labels), "-o", str(out), "--method", "mse"]
    assert main([*words, "--json", "-"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["chosen"]["way"].startswith("mse") and figures["samples"] == {"calibrated": 30, "judged": 30}
    judged = ["--data", str(data), "--labels", str(labels), "--reference", str(model), "--json", "-"]
    assert main(["verify", str(out), "--target", "host", *judged]) == 0
    samples = json.loads(capsys.readouterr().out)
    proto = onnx.load(out)
    theirs = classes(run(proto, [{"image": x[None]} for x in np.load(data)["image"]])[0])
    right = np.load(labels)
    assert samples["reference_accuracy"] == 1 and abs(samples["accuracy"] - float(np.mean(theirs == right))) <= 1 / 60
    assert np.sum(samples["confusion"]) == 60 and np.trace(samples["confusion"]) == round(60 * samples["accuracy"])
    assert samples["same_class"] == samples["accuracy"] and samples["snr_db"] > 15
    assert 1 <= len(samples["worst_layers"]) <= 5 and min(w["snr_db"] for w in samples["worst_layers"]) > 15
    assert main(["verify", str(out), "--target", "host", "--scales", "power-of-two", *judged]) == 0
    others = json.loads(capsys.readouterr().out)
    assert others["snr_db"] <= samples["snr_db"] and others["loss"]["snr_db"] > others["snr_db"]
    assert "worst_layers" not in others, "those of the file's scales say nothing of others"


MISTAKES = {
    "labels of another length": ("labels", np.zeros(7, np.int64), "7 labels of 60 samples"),
    "labels that are no classes": ("labels", np.zeros(60, np.float32), "labels are float32"),
    "samples of another shape": ("data", np.zeros((60, 3, 8, 9), np.float32), "has shape [60, 3, 8, 9]"),
    "samples of bytes": ("data", np.zeros((60, 3, 8, 8), np.uint8), "is uint8"),
    "labels of no class": ("labels", np.full(60, CLASSES), f"label {CLASSES} is none of the {CLASSES} classes"),
    "labels below 0": ("labels", np.full(60, -1), "with -1 among them"),
    "no samples": ("data", np.zeros((0, 3, 8, 8), np.float32), "has shape [0, 3, 8, 8]"),
    "no numbers": ("data", np.full((60, 3, 8, 8), np.nan, np.float32), "no finite numbers"),
    "huge numbers": ("data", np.resize(np.float32([-3e38, 3e38]), (60, 3, 8, 8)), "near the largest float32"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_does_not_fit_is_an_error(tmp_path: Path, mistake: str) -> None:
    which, value, words = MISTAKES[mistake]
    model, data, labels = files(tmp_path, network(1))
    np.save(tmp_path / "wrong.npy", value)
    paths = {"data": data, "labels": labels, which: tmp_path / "wrong.npy"}
    with pytest.raises(EdgebuildError) as problem:
        quantise(model, paths["data"], paths["labels"])
    assert words in str(problem.value)


def test_a_network_without_inputs_takes_no_samples(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 3), np.float32))
    with pytest.raises(EdgebuildError, match="no input"):
        read_rows(tmp_path / "x.npy", None, ())


@pytest.mark.parametrize("name", ["net.pt2", "net.keras", "net.tflite", "int8.onnx", "weightless.onnx"])
def test_networks_that_cannot_be_quantised(tmp_path: Path, name: str) -> None:
    model, data, _ = files(tmp_path, network(1))
    file = tmp_path / name
    file.write_bytes(b"")
    words = "is no ONNX file"
    if name == "int8.onnx":
        onnx.save(quantise(model, data, None, ["minmax"]).chosen.model, file)
        words = "is quantised already"
    elif name == "weightless.onnx":
        bare = network(1)
        del bare.graph.node[:]
        bare.graph.node.append(helper.make_node("Relu", ["image"], ["scores"]))
        bare.graph.output[0].CopyFrom(helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3, 8, 8]))
        onnx.save(bare, file)
        words = "no convolution or matrix product"
    with pytest.raises(EdgebuildError) as problem:
        quantise(file, data)
    assert words in str(problem.value)


def autoencoder(folder: Path) -> tuple[Path, Path, Path]:
    """Six values through two, which rebuild samples of one plane; label 1: those beside it, some of them just."""
    rng = np.random.default_rng(3)
    plane = np.linalg.qr(rng.normal(0, 1, (6, 2)))[0].astype(np.float32)
    labels = np.arange(60) % 3 // 2
    beside = labels[:, None] * rng.normal(0, 0.2, (60, 6)) * rng.uniform(0, 1, (60, 1))
    samples = (rng.normal(0, 1, (60, 2)) @ plane.T + beside + rng.normal(0, 0.05, (60, 6))).astype(np.float32)
    constants = [numpy_helper.from_array(np.ascontiguousarray(w), n) for n, w in (("in", plane), ("out", plane.T))]
    nodes = [helper.make_node("MatMul", ["x", "in"], ["code"]), helper.make_node("MatMul", ["code", "out"], ["y"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 6]) for name in ("x", "y")]
    model = helper.make_model(
        helper.make_graph(nodes, "net", ports[:1], ports[1:], constants),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    paths = folder / "net.onnx", folder / "samples.npy", folder / "labels.npy"
    onnx.save(model, paths[0])
    np.save(paths[1], samples)
    np.save(paths[2], labels)
    return paths


@pytest.mark.needs("gcc")
def test_an_autoencoder_is_judged_by_the_errors_of_its_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data, labels = autoencoder(tmp_path)
    samples, bad = np.load(data), np.load(labels) == 1
    errors = ((run(onnx.load(model), [{"x": x[None]} for x in samples])[0][:, 0] - samples) ** 2).mean(1)
    pairs = [(float(b), float(g)) for b in errors[bad] for g in errors[~bad]]
    right = sum(1.0 if b > g else 0.5 if b == g else 0.0 for b, g in pairs) / len(pairs)
    assert 0.7 < right < 0.99, "neither all nor none of the pairs are told from each other"
    out = tmp_path / "int8.onnx"
    words = ["quantize", str(model), "--data", str(data), "--labels", str(labels), "-o", str(out), "--method", "mse"]
    assert main(words) == 0
    assert "AUC" in capsys.readouterr().out
    judged = ["--data", str(data), "--labels", str(labels), "--reference", str(model), "--json", "-"]
    assert main(["verify", str(out), "--target", "host", *judged]) == 0
    figures = json.loads(capsys.readouterr().out)
    rebuilt = run(onnx.load(out), [{"x": x[None]} for x in samples])[0]
    assert figures["reference_auc"] == pytest.approx(right)
    assert figures["auc"] == pytest.approx(auc(samples, rebuilt, np.load(labels)), abs=0.01)
    assert "accuracy" not in figures
    assert main(["verify", str(out), "--target", "host", *judged, "--min-accuracy", "0.99"]) == 1
    assert "AUC 0." in capsys.readouterr().err


def test_equal_errors_count_half_and_three_labels_are_classes() -> None:
    """Two pairs: one of equal errors, one in which label 1 has the larger."""
    inputs, outputs = np.zeros((3, 4)), np.array([[1.0], [0.0], [-1.0]]).repeat(4, 1)
    assert auc(inputs, outputs, np.array([0, 0, 1])) == 0.75
    assert rebuilds(inputs, outputs, np.array([0, 0, 1])) and not rebuilds(inputs, outputs, np.array([0, 2, 1]))
    assert not rebuilds(None, outputs, np.array([0, 0, 1])) and not rebuilds(inputs[:, :2], outputs[:, :2], np.ones(3))


def test_two_classes_of_one_number() -> None:
    assert list(classes(np.array([[0.4], [0.6]]))) == [0, 1]
    assert list(classes(np.array([[-0.4], [0.6], [7.0]]))) == [0, 1, 1]
