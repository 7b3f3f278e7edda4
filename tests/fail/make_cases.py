"""Makes the folders beside this file: `python -m tests.fail.make_cases`. A case is a spoiled input and its diagnostic.

<case>/command.txt    the words after `edgebuild`, as in a shell
<case>/expected.txt   regular expressions, one a line, that the diagnostics must match
<case>/...            the files that the command reads
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.ir import Quant
from tests.fail import clocks, drivers  # noqa: F401  (their cases register themselves)
from tests.fail.registry import CASES, case
from tests.graphs import Tiny, tiny_tflite
from tests.graphs.onnx_models import OnnxFile
from tests.layer_models import Layer

HERE = Path(__file__).parent
MODEL = "model {} --name n --target host -o out"


def tflite(folder: Path, change: Callable[[Tiny], Any], name: str = "tiny.tflite") -> str:
    """The small model with a change; the command that compiles it."""
    model = Tiny()
    change(model)
    (folder / name).write_bytes(model.pack())
    return MODEL.format(name)


def tensor(model: Tiny, name: str) -> Any:
    return next(t for t in model.file.tensors if t.name == name.encode())


def small_onnx(operator: str = "Relu", shape: tuple[Any, ...] = (1, 4), **attributes: Any) -> onnx.ModelProto:
    """A model of one operator of one operand; it need not be a valid one."""
    file = OnnxFile(np.random.default_rng(0))
    x = file.input(shape)
    return file.model([file.node(operator, [x], shape, **attributes)])


def save(model: onnx.ModelProto, folder: Path) -> str:
    onnx.save(model, folder / "m.onnx")
    return MODEL.format("m.onnx")


# Files that are none --------------------------------------------------------------------------


@case
def tflite_truncated(folder: Path) -> tuple[str, str]:
    (folder / "cut.tflite").write_bytes(tiny_tflite()[:900])
    return MODEL.format("cut.tflite"), r"cut\.tflite: error: not a whole TFLite file \(900 bytes\)"


@case
def tflite_empty(folder: Path) -> tuple[str, str]:
    (folder / "empty.tflite").write_bytes(b"")
    return MODEL.format("empty.tflite"), r"empty\.tflite: error: not a model that edgebuild reads: empty"


@case
def onnx_truncated(folder: Path) -> tuple[str, str]:
    data = small_onnx().SerializeToString()
    (folder / "cut.onnx").write_bytes(data[: len(data) // 2])
    return MODEL.format("cut.onnx"), r"cut\.onnx: error: not a valid ONNX model"


@case
def not_a_model(folder: Path) -> tuple[str, str]:
    (folder / "notes.txt").write_text("not a model\n")
    text = r"notes\.txt: error: not a model that edgebuild reads\n.*\.tflite or \.pt2 or \.onnx"
    return MODEL.format("notes.txt"), text


@case
def file_is_missing(folder: Path) -> tuple[str, str]:
    return MODEL.format("nowhere.tflite"), r"nowhere\.tflite: error: cannot read the model: No such file"


# What is not supported ------------------------------------------------------------------------


@case
def tflite_custom_operator(folder: Path) -> tuple[str, str]:
    def change(model: Tiny) -> None:
        code = model.file.codes[1]
        code.builtinCode, code.deprecatedBuiltinCode, code.customCode = 32, 32, b"Spectrogram"

    return tflite(
        folder, change
    ), r"tiny\.tflite: node 'depthwise' .*: error: operator custom Spectrogram is not supported"


@case
def tflite_compiled_for_an_npu(folder: Path) -> tuple[str, str]:
    def change(model: Tiny) -> None:
        code = model.file.codes[1]
        code.builtinCode, code.deprecatedBuiltinCode, code.customCode = 32, 32, b"ethos-u"

    return tflite(folder, change), r"custom ethos-u is not supported\n  the file was compiled for an Ethos-U NPU"


@case
def tflite_two_unknown_operators(folder: Path) -> tuple[str, str]:
    """Both are told at once."""

    def change(model: Tiny) -> None:
        for at, name in ((0, "SPARSE_TO_DENSE"), (2, "SKIP_GRAM")):
            code = model.file.codes[at]
            code.builtinCode = code.deprecatedBuiltinCode = getattr(schema.BuiltinOperator, name)

    return tflite(
        folder, change
    ), "node 'conv' .*operator SPARSE_TO_DENSE is not supported\nnode 'pool' .*operator SKIP_GRAM is not supported"


@case
def tflite_uint8(folder: Path) -> tuple[str, str]:
    return tflite(folder, lambda model: setattr(tensor(model, "conv"), "type", 3)), (
        r"node 'conv' \(CONV_2D\): error: tensor 'conv' has zero point -131\n.*-128..127"
    )


@case
def tflite_two_subgraphs(folder: Path) -> tuple[str, str]:
    unpacked = schema.ModelT.InitFromObj(schema.Model.GetRootAs(tiny_tflite(), 0))
    empty = schema.SubGraphT()
    empty.tensors, empty.inputs, empty.outputs, empty.operators = [], [], [], []
    unpacked.subgraphs.append(empty)
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    builder.Finish(unpacked.Pack(builder), b"TFL3")
    (folder / "two.tflite").write_bytes(bytes(builder.Output()))
    return MODEL.format("two.tflite"), r"two\.tflite: error: 2 subgraphs"


@case
def onnx_foreign_domain(folder: Path) -> tuple[str, str]:
    model = small_onnx()
    model.graph.node[0].domain = "com.example"
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    return save(model, folder), r"node 'relu0' \(Relu\): error: operator com\.example\.Relu is not supported"


@case
def onnx_unknown_operator(folder: Path) -> tuple[str, str]:
    model = small_onnx(shape=(4, 4))
    model.graph.node[0].op_type = "Det"
    return save(model, folder), r"node 'relu0' \(Det\): error: operator Det is not supported\n.*edgebuild ops"


@case
def onnx_random(folder: Path) -> tuple[str, str]:
    return (
        save(small_onnx("RandomNormalLike"), folder),
        r"node 'randomnormallike0' \(RandomNormalLike\): error: operator \w+ is not supported\n.*random",
    )


@case
def onnx_operator_of_nobody(folder: Path) -> tuple[str, str]:
    model = small_onnx()
    model.graph.node[0].op_type = "Frobnicate"
    return (
        save(model, folder),
        r"node 'relu0' \(Frobnicate\): error: operator Frobnicate is not supported: the ONNX standard has none",
    )


@case
def onnx_operator_of_a_newer_opset(folder: Path) -> tuple[str, str]:
    model = small_onnx()
    model.graph.node[0].op_type = "Swish"
    model.opset_import[0].version = 17
    return save(model, folder), r"node 'relu0' \(Swish\): error: .* not supported in opset 17: .* from 24 on"


@case
def onnx_circle(folder: Path) -> tuple[str, str]:
    model = small_onnx()
    node = model.graph.node.add(op_type="Add", input=["y1", model.graph.node[0].output[0]], output=["y2"], name="late")
    node = model.graph.node.add(op_type="Neg", input=["y2"], output=["y1"], name="early")
    model.graph.output[0].name = node.output[0]
    return save(model, folder), r"node '\w+' \(\w+\): error: its result is needed to compute it: (late|early) <- "


@case
def onnx_undefined(folder: Path) -> tuple[str, str]:
    model = small_onnx()
    model.graph.node[0].input[0] = "nowhere"
    return save(model, folder), r"node 'relu0' \(Relu\): error: reads 'nowhere', which nothing computes"


@case
def onnx_without_its_data(folder: Path) -> tuple[str, str]:
    model = small_onnx()
    tensor = model.graph.initializer.add(name="w", dims=[4], data_type=1, data_location=1)
    tensor.external_data.add(key="location", value="weights.bin")
    model.graph.node[0].op_type = "Add"
    model.graph.node[0].input.append("w")
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return MODEL.format("m.onnx"), r"weights\.bin: error: cannot read the data of tensor 'w': No such file"


@case
def onnx_shapes_that_do_not_fit(folder: Path) -> tuple[str, str]:
    model = small_onnx()
    model.graph.initializer.add().CopyFrom(helper.make_tensor("w", 1, [3], [0.0, 1.0, 2.0]))
    model.graph.node[0].op_type = "Add"
    model.graph.node[0].input.append("w")
    reason = r"node 'relu0' \(Add\): error: not a valid ONNX model: Incompatible dimensions"
    return save(model, folder), reason + r"\n.*whole, but breaks the ONNX standard"


@case
def onnx_dropout_in_training(folder: Path) -> tuple[str, str]:
    model = small_onnx()
    model.graph.node[0].op_type = "Dropout"
    for name, value in (("ratio", np.float32(0.5)), ("training", np.True_)):
        model.graph.initializer.add().CopyFrom(numpy_helper.from_array(np.asarray(value), name))
        model.graph.node[0].input.append(name)
    return save(model, folder), r"node 'relu0' \(Dropout\): error: training_mode is true.*\n.*inference"


@case
def onnx_opset_6(folder: Path) -> tuple[str, str]:
    model = small_onnx()
    model.opset_import[0].version = 6
    model.graph.node[0].op_type = "Dropout"  # which opset 7 changes
    return save(model, folder), r"m\.onnx: error: opset 6; edgebuild reads 7 and later\n.*version_converter"


@case
def onnx_opset_of_63_bits(folder: Path) -> tuple[str, str]:
    model = small_onnx()
    model.opset_import[0].version = -(2**62)
    return save(model, folder), r"m\.onnx: error: not a valid ONNX model: Opset import version -\d+ is out"


@case
def onnx_computed_bias(folder: Path) -> tuple[str, str]:
    file = OnnxFile(np.random.default_rng(0))
    operands = [file.input((1, 4, 3, 3)), file.normal(4, 4, 1, 1), file.input((4,))]
    model = file.model([file.node("Conv", operands, (1, 4, 3, 3))])
    return save(model, folder), r"node 'conv0' \(Conv\): error: 'in1' is computed by the graph\n.*bias are constants"


@case
def tflite_computed_weights(folder: Path) -> tuple[str, str]:
    return tflite(folder, computed_weights), r"node 'conv' \(CONV_2D\): error: '.*' is computed by the graph"


def computed_weights(model: Tiny) -> None:
    weights = tensor(model, "conv/weights")
    source = model.file.tensor("source", (72,), "int8", Quant((0.0078125,), (0,)))
    model.file.operator("RESHAPE", [source], [model.file.tensors.index(weights)], schema.ReshapeOptionsT())
    model.file.operators.insert(0, model.file.operators.pop())
    weights.buffer = 0
    model.inputs = [model.input, source]


@case
def onnx_pool_of_padding_only(folder: Path) -> tuple[str, str]:
    file = OnnxFile(np.random.default_rng(0))
    attributes = {"kernel_shape": [1, 1], "pads": [1, 1, 1, 1]}
    model = file.model([file.node("AveragePool", [file.input((1, 1, 3, 3))], (1, 1, 5, 5), **attributes)])
    return save(
        model, folder
    ), r"node 'averagepool0' \(AveragePool\): error: padding \(1, 1, 1, 1\) of a window of \(1, 1\)"


@case
def onnx_name_of_an_inner_tensor(folder: Path) -> tuple[str, str]:
    """The pool's result has the name of what edgebuild transposes to make the pool's result."""
    file = OnnxFile(np.random.default_rng(0))
    model = file.model([file.node("MaxPool", [file.input((1, 1, 3, 3))], (1, 1, 3, 3), kernel_shape=[1, 1])])
    result = model.graph.output[0].name
    model.graph.node.append(helper.make_node("Relu", [result], [f"{result}@nhwc"], "relu"))
    model.graph.output[0].name = f"{result}@nhwc"
    return save(model, folder), r"m\.onnx: error: '\w+@nhwc' is the name of two tensors\n.*rename"


# Shapes ---------------------------------------------------------------------------------------


@case
def onnx_empty_shape(folder: Path) -> tuple[str, str]:
    return save(small_onnx(shape=(1, 0)), folder), r"m\.onnx: error: input 'in0' has the empty shape 1x0\n.*at least 1"


@case
def onnx_axis_out_of_range(folder: Path) -> tuple[str, str]:
    """Neither shape inference nor the checker looks at it."""
    return save(small_onnx("Flatten", axis=1 << 40), folder), r"Flatten.*error: axis 1099511627776 of 2 dimensions"


@case
def onnx_attribute_that_is_no_number(folder: Path) -> tuple[str, str]:
    model = small_onnx("LeakyRelu", alpha=float("nan"))
    return save(model, folder), r"LeakyRelu.*error: attribute 'alpha' holds a value that is no number"


@case
def onnx_scales_along_no_axis(folder: Path) -> tuple[str, str]:
    file = OnnxFile(np.random.default_rng(0))
    scales = file.constant(np.full(3, 0.1, np.float32))
    weights = file.node("DequantizeLinear", [file.constant(np.ones((4, 3), np.int8)), scales], (4, 3), axis=7)
    model = file.model([file.node("MatMul", [file.input((1, 4)), weights], (1, 3))])
    return save(model, folder), r"DequantizeLinear.*error: axis 7 of an operand of 2 dimensions"


@case
def tflite_scale_of_no_use(folder: Path) -> tuple[str, str]:
    def change(model: Tiny) -> None:
        tensor(model, "image").quantization.scale = [3e38]

    return tflite(folder, change), r"error: tensor 'image' has scale 3e\+38; at most"


@case
def tflite_wide_sigmoid_of_large_steps(folder: Path) -> tuple[str, str]:
    layer = Layer("int16")
    layer.quant = Quant((6.0,), (0,))
    y = Quant((2.0**-15,), (0,))
    (folder / "m.tflite").write_bytes(layer.done("LOGISTIC", [layer.input((1, 4))], (1, 4), y, None))
    return MODEL.format("m.tflite"), r"LOGISTIC.*sigmoid of int16 with scale 6: its steps times 12288 do not fit"


@case
def tflite_log_softmax_of_small_steps(folder: Path) -> tuple[str, str]:
    layer = Layer("int8")
    layer.quant = Quant((1e-20,), (0,))
    y = Quant((1 / 16,), (127,))
    (folder / "m.tflite").write_bytes(layer.done("LOG_SOFTMAX", [layer.input((1, 4))], (1, 4), y, None))
    return MODEL.format("m.tflite"), r"LOG_SOFTMAX.*a step of 'x0' is 1e-20"


@case
def onnx_without_outputs(folder: Path) -> tuple[str, str]:
    model = small_onnx()
    del model.graph.output[:]
    return save(model, folder), r"m\.onnx: error: the model has no output"


@case
def onnx_dynamic_shape(folder: Path) -> tuple[str, str]:
    model = small_onnx(shape=(1, "size"))
    return save(model, folder), r"m\.onnx: error: input 'in0' has the dynamic shape 1xsize\n.*--shape in0=1,"


@case
def tflite_dynamic_shape(folder: Path) -> tuple[str, str]:
    return tflite(folder, lambda model: setattr(tensor(model, "image"), "shape", [-1, 8, 8, 2])), (
        r"tensor 'image' has a dynamic or empty shape \(-1, 8, 8, 2\)\n.*batch size 1"
    )


@case
def tflite_wrong_shape(folder: Path) -> tuple[str, str]:
    return tflite(folder, lambda model: setattr(tensor(model, "conv"), "shape", [1, 8, 7, 4])), (
        r"node 'conv' \(CONV_2D\): error: output 'conv' has shape \(1, 8, 7, 4\) in the file, "
        r"its operands make it \(1, 8, 8, 4\)"
    )


# Quantisation ---------------------------------------------------------------------------------


def quantised(folder: Path, name: str, **fields: Any) -> str:
    def change(model: Tiny) -> None:
        for field, value in fields.items():
            setattr(tensor(model, name).quantization, field, value)

    return tflite(folder, change)


@case
def weights_with_a_zero_point(folder: Path) -> tuple[str, str]:
    return quantised(folder, "conv/weights", zeroPoint=[3]), (
        r"node 'conv' \(CONV_2D\): error: zero point 3 of the weights\n.*weights have zero point 0"
    )


@case
def bias_with_another_scale(folder: Path) -> tuple[str, str]:
    return quantised(folder, "dense/bias", scale=[0.5]), (
        r"node 'dense' \(FULLY_CONNECTED\): error: scale 0\.5 of the bias, scale\(x\) \* scale\(w\) is 0\.000488281"
    )


@case
def activation_per_channel(folder: Path) -> tuple[str, str]:
    fields = {"scale": [0.1, 0.2, 0.3, 0.4], "zeroPoint": [0] * 4, "quantizedDimension": 3}
    return quantised(
        folder, "conv", **fields
    ), r"node 'conv' \(CONV_2D\): error: int8 tensor 'conv' has .*one per channel"


@case
def weights_with_three_scales_for_four_channels(folder: Path) -> tuple[str, str]:
    return quantised(folder, "conv/weights", scale=[0.1] * 3, zeroPoint=[0] * 3), (
        r"node 'conv' \(CONV_2D\): error: 3 weight scales for 4 output channels"
    )


@case
def scale_is_not_a_number(folder: Path) -> tuple[str, str]:
    return quantised(
        folder, "pool", scale=[float("nan")]
    ), r"tensor 'pool' has scale nan; scales must be positive and finite"


@case
def activation_without_a_scale(folder: Path) -> tuple[str, str]:
    return tflite(folder, lambda model: setattr(tensor(model, "depthwise"), "quantization", None)), (
        r"node 'depthwise' \(DEPTHWISE_CONV_2D\): error: int8 tensor 'depthwise' has no scale"
    )


@case
def softmax_with_another_scale(folder: Path) -> tuple[str, str]:
    return quantised(folder, "classes", scale=[0.01]), (
        r"node 'classes' \(SOFTMAX\): error: output is .*0\.0\d+.*\n.*output scale 1/256 and zero point -128"
    )


# Size -----------------------------------------------------------------------------------------


@case
def too_much_ram(folder: Path) -> tuple[str, str]:
    file = OnnxFile(np.random.default_rng(0))
    x = file.input((1, 2, 40, 40))
    for channels in (4, 2):
        shape = (1, channels, 40, 40)
        x = file.node("Conv", [x, file.normal(channels, file.shapes[x][1], 1, 1)], shape)
    save(file.model([x]), folder)
    return "model m.onnx --name n --target microbit --tile off -o out", (
        r"node 'conv\d' \(Conv\): error: does not fit: arena (at least )?\d+ B, memory RAM has \d+ B\n"
        r".*live at this step: .*40x40.*\n"
    )


@case
def too_little_ram_asked_for(folder: Path) -> tuple[str, str]:
    command = tflite(folder, lambda model: None)
    return (
        f"{command} --ram 200 --tile off",
        r"does not fit: arena (at least )?\d+ B, memory RAM has 200 B\n.*live at this step: ",
    )


@case
def too_much_flash(folder: Path) -> tuple[str, str]:
    tflite(folder, lambda model: None)
    (folder / "small.yaml").write_text(
        "inherits: cortex-m0\ndescription: hardly any flash\nmemories:\n"
        "  FLASH: {origin: 0, size: 256, roles: [code, weights]}\n"
        "  RAM: {origin: 0x20000000, size: 16K, roles: [arena, data, stack]}\n"
    )
    return "model tiny.tflite --name n --target small.yaml -o out", (
        r"tiny\.tflite: error: does not fit: weights \d+ B, memory FLASH of small has 256 B\n.*over by \d+ B"
    )


# Targets and options --------------------------------------------------------------------------


@case
def target_with_an_unknown_key(folder: Path) -> tuple[str, str]:
    tflite(folder, lambda model: None)
    (folder / "board.yaml").write_text(
        "inherits: cortex-m4\ndescription: a board\nmemorys:\n  RAM: {origin: 0, size: 1K}\n"
    )
    return "model tiny.tflite --name n --target board.yaml -o out", (
        r"board\.yaml:3:1: error: unknown key 'memorys'; did you mean 'memories'\?"
    )


@case
def target_with_a_mistyped_name(folder: Path) -> tuple[str, str]:
    tflite(folder, lambda model: None)
    return "model tiny.tflite --name n --target mps2-an38 -o out", r"mps2-an38.*did you mean 'mps2-an38[56]'\?"


@case
def name_that_is_no_identifier(folder: Path) -> tuple[str, str]:
    tflite(folder, lambda model: None)
    return "model tiny.tflite --name 2nd-try --target host -o out", r"error: name: '2nd-try' is not a C identifier"


@case
def size_that_is_none(folder: Path) -> tuple[str, str]:
    return f"{tflite(folder, lambda model: None)} --ram 16Q", r"error: option 'ram': '16Q' is not a size\n.*16384"


def main() -> None:
    for name, make in CASES.items():
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        command, expected = make(folder)
        (folder / "command.txt").write_text(command + "\n")
        (folder / "expected.txt").write_text(expected.replace(r"\n", "\n") + "\n")
        for file in folder.iterdir():
            assert file.stat().st_size < 4096, file


if __name__ == "__main__":
    main()
