"""Outputs of a model as independent interpreters compute them: TFLite Micro, LiteRT and onnxruntime.

Each gets the inputs that the firmware gets and returns intermediate results by tensor name.
"""

from __future__ import annotations

import importlib.util
import signal
import struct
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from ...base import programs, progress
from ...base.errors import Diagnostic, EdgebuildError, MissingTool, fail
from .. import ops
from ..compile import prepare
from ..formats.format import Shapes
from ..formats.onnx.control_flow import graphs, reads
from ..formats.onnx.fused import BODIES, Fused
from ..formats.onnx.integer_nodes import ENDS, NODES, Operands
from ..formats.onnx.integers import DOMAIN, REQUANT, WHOLE_TYPES, Numbers, bounds_of, name_domain
from ..formats.onnx.onnx_checks import QONNX, opset_of
from ..ir import Arithmetic, Array, Graph
from ..ops.base import zero_of
from ..ops.fixedpoint import limits, quotient_factor, quotient_is_open
from . import judges
from .rounding import Rng, in_one_sign, near_file, near_graph

ZEROED = {"MALLOC_PERTURB_": "255"}  # glibc gives zeros: TFLM's CIRCULAR_BUFFER returns what its arena held before
PYTHON: dict[str, tuple[str, ...]] = dict.fromkeys(judges.JUDGES, (sys.executable, "-P"))  # tests have others
MAX_SECONDS = 600  # that an interpreter may run

Port = dict[str, Any]  # an entry of `inputs` or `outputs` in the report
# How a file is read: shapes of its inputs, and the tensors that are the firmware's outputs instead of the file's.
Reading = tuple[Shapes, tuple[str, ...]]
NHWC, NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
FLOAT, UINT8, UINT16, DOUBLE = 1, 2, 4, 11  # types of ONNX
OFF_STEP = 1e-2  # steps by which a float may miss a multiple of its scale; float32 of 2^15 steps misses by 2e-3


class NoJudge(EdgebuildError):
    """The interpreter of the file's format cannot run the model, so the firmware cannot be checked."""

    def __init__(self, text: str, model: Path, hints: Sequence[str] = ()) -> None:
        super().__init__(Diagnostic(text, file=str(model), hints=tuple(hints)))


@dataclass(frozen=True)
class Reference:
    """Per input vector: the outputs, and all results of operators by name. `slack`: allowed integer difference.

    `reals`: per vector, the results that are floats in the file; `tensors` may have their quantised values.
    """

    outputs: list[list[Array]]
    tensors: list[dict[str, Array]]
    slack: int
    reals: list[dict[str, Array]] = field(default_factory=list)
    notes: tuple[str, ...] = ()  # for the user
    judge: str = ""  # name of the interpreter that computed the values


def reference(
    model: Path, inputs: list[list[Array]], report: dict[str, Any], reading: Reading = ((), ()), rng: Rng | None = None
) -> Reference:
    """Run the model on `inputs` (per vector, one array per input) with the interpreter of its format.

    Formats without an interpreter are computed by the ops' meanings in numpy. `rng`: move each float constant one step
    up or down. Raises MissingTool without the interpreter's package, NoJudge if it cannot run the model.
    """
    form = report["model"]["format"]
    judge = {"onnx": _onnx, "tflite": _tflite}.get(form)
    if judge is None:
        graph = prepare(model, *reading, scales=form)
        return _by_meanings(near_graph(graph, rng) if rng else graph, inputs, "the ops' meanings in numpy")
    if rng is None:
        return judge(model, inputs, report, reading[1])
    with tempfile.TemporaryDirectory() as folder:
        return judge(near_file(model, form, rng, Path(folder)), inputs, report, reading[1])


def _by_meanings(graph: Graph, inputs: list[list[Array]], judge: str) -> Reference:
    """Outputs and tensors of each vector, computed by the operators' meanings in numpy; states carry over."""
    states, runs = graph.first_states, list[dict[str, Array]]()
    for vector in inputs:
        given = states | dict(zip(graph.ports_in, vector, strict=True))
        runs.append(ops.run(graph, *(given[name] for name in graph.inputs)))
        states = {graph.inputs[s.read]: runs[-1][graph.outputs[s.write]] for s in graph.states}
    return Reference([[run[name] for name in graph.ports_out] for run in runs], runs, 0, judge=judge)


def judge_of_open_c(model: Path, graph: Graph, inputs: list[list[Array]], expected: Reference) -> Reference:
    """`expected`, or the operators' meanings in numpy if TFLite Micro's C is undefined for an int8 DIV of `inputs`."""
    divisions = [op for op in graph.ops if op.kind == "pointwise" and op.attrs["function"] == "quotient"]
    divisions = [op for op in divisions if graph.result(op).dtype == "int8"]
    if not divisions or graph.arithmetic is not Arithmetic.TFLITE:
        return expected
    own = _by_meanings(graph, inputs, "the operators' meanings in numpy")
    for op, run in ((op, run) for op in divisions for run in own.tensors):
        a, b = (run[t.name].astype(np.int64) - zero_of(t) for t in graph.operands(op))
        if quotient_is_open(a, b, quotient_factor(op, graph)):
            text = f"DIV '{op.name}' divides by 0 or shifts by more than 31 bits, which TFLite Micro's C leaves open"
            _warn(
                model.name,
                f"{text}: the operators' meanings in numpy judge",
                "of the shift they take what a Cortex-M makes of it",
            )
            return own
    return expected


def fit(value: Array, shape: Sequence[int]) -> Array | None:
    """`value` with the layout of generated code for `shape`: as it is, or from NCHW; None if sizes differ."""
    target = tuple(shape)
    if value.shape != target and value.ndim == 4 and value.transpose(NHWC).shape == target:
        return value.transpose(NHWC)
    return value.reshape(target) if value.size == int(np.prod(target)) else None


def _needs(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        packages = {"tflite_micro": "--pre tflite-micro"}  # it has development releases only
        hint = f"pip install {packages.get(module, module)}"
        raise MissingTool(Diagnostic(f"Python package '{module}' is not installed", hints=(hint,)))


# ---- TFLite


def _tflite(model: Path, inputs: list[list[Array]], report: dict[str, Any], outputs: tuple[str, ...]) -> Reference:
    """Run TFLite Micro's interpreter, or LiteRT if TFLite Micro misreads the model or cannot run it.

    If LiteRT is missing or cannot run it either, the operators' meanings in numpy judge a misread model.
    Where the file begins with QUANTIZE or ends with DEQUANTIZE, the firmware's inputs and outputs are int8.
    """
    misread = _misread(model)
    if misread == LISTS or (misread and not _has_litert()):
        hints = ["they share the file's reader with the generated code"]
        hints += ["pip install ai-edge-litert: LiteRT then judges"] if misread != LISTS else []
        _warn(model.name, f"the model has {misread}: the operators' meanings in numpy judge", *hints)
        return _by_meanings(prepare(model, (), outputs), inputs, "the operators' meanings in numpy")
    judge = "LiteRT" if misread else "TFLite Micro"
    _needs("tflite_micro")
    types = _tflite_input_types(model)
    given = [[_as_file(*x) for x in zip(row, report["inputs"], types, strict=True)] for row in inputs]
    try:
        results = _interpreted(judge, model, model.read_bytes(), given)
    except EdgebuildError as error:
        if judge == "LiteRT" or not _has_litert():
            raise
        text = "the TFLite Micro interpreter cannot run this model, so LiteRT judges"
        _warn(model.name, text, *error.diagnostics[0].hints[:1], "LiteRT rounds some integers to a neighbouring step")
        results = _interpreted(judge := "LiteRT", model, model.read_bytes(), given)
    rows: list[list[Array]] = []
    tensors: list[dict[str, Array]] = []
    for v in range(len(inputs)):
        named = {key.split("_", 1)[1]: value for key, value in results.items() if key.startswith(f"v{v}_")}
        own = [named[f"o{o}"] for o in range(sum(key.startswith("o") for key in named))]
        results_of = [
            named.get(f"t_{port['name']}", own[min(o, len(own) - 1)]) for o, port in enumerate(report["outputs"])
        ]
        rows.append([_as_firmware(x, port) for x, port in zip(results_of, report["outputs"], strict=True)])
        tensors.append({key[2:]: value for key, value in named.items() if key.startswith("t_")})
    return Reference(rows, tensors, slack=int(judge == "LiteRT"), judge=judge)


def _interpreted(judge: str, model: Path, data: bytes, given: list[list[Array]]) -> dict[str, Array]:
    """Run an interpreter in its own process; results are named as in judges.py. Raises NoJudge if it fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model").write_bytes(data)
        arrays = {f"v{v}_i{i}": x for v, row in enumerate(given) for i, x in enumerate(row)}
        np.savez(folder / "in.npz", vectors=np.array(len(given)), **arrays)  # type: ignore[arg-type]
        try:
            done = programs.run(
                [*PYTHON[judge], judges.__file__, judge, "model", "in.npz", "out.npz"], folder, MAX_SECONDS, ZEROED
            )
        except TimeoutExpired:
            raise NoJudge(f"{judge} does not end within {MAX_SECONDS} seconds", model) from None
        if done.returncode:
            words = [h for h in (done.stdout + done.stderr).splitlines() if h.strip() and not h.startswith(" ")]
            died = [f"it ended by {signal.Signals(-done.returncode).name}"] if done.returncode < 0 else []
            remedy = ["pip install ai-edge-litert: LiteRT then judges"] if judge == "TFLite Micro" else []
            text = f"{'the TFLite Micro interpreter' if remedy else judge} cannot run this model"
            if done.returncode == judges.BAD_INPUTS:
                text += " with these inputs"
                remedy.append(
                    "--inputs F gives it inputs of yours: numbers that are drawn may be no indices of a table"
                )
            raise NoJudge(text, model, [*died, *words[-5:], *remedy])
        with np.load(folder / "out.npz") as file:
            return {key: file[key] for key in file.files}


@cache
def _warn(model: str, text: str, *hints: str) -> None:
    """Warn once per model and text, because moved copies of the model run, too."""
    progress.warn(Diagnostic(text, file=model, hints=hints, severity="warning"))


def _has_litert() -> bool:
    return importlib.util.find_spec("ai_edge_litert") is not None


LISTS = "lists of tensors, and neither TFLite Micro nor LiteRT runs them"


def _misread(path: Path) -> str:
    """Name the part of a file for which TFLite Micro's result differs from TensorFlow's, or LISTS; "" if none.

    Such parts are float loops (Keras's LSTMs), int32 biases of int16 results, which it reads as int64, and detections
    of one box by class.
    """
    import tflite

    try:
        file = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
        graphs = [file.Subgraphs(i) for i in range(file.SubgraphsLength())]
        every = [file.OperatorCodes(i) for i in range(file.OperatorCodesLength())]
        codes, custom = [code.BuiltinCode() for code in every], [code.CustomCode() or b"" for code in every]
        tensors = [graph.Tensors(i) for graph in graphs for i in range(graph.TensorsLength())]
        computed = {t.Type() for t in tensors if not file.Buffers(t.Buffer()).DataLength()}
        narrow = any(_has_narrow_biases(graph, codes) for graph in graphs)
        single = any(_has_single_detections(file, graph) for graph in graphs)
    except (struct.error, AttributeError, LookupError, TypeError, ValueError):
        return ""
    if any(b"TensorList" in name for name in custom):
        return LISTS
    integers = {tflite.TensorType.INT8, tflite.TensorType.UINT8, tflite.TensorType.INT16}
    elsewhere = "TFLite Micro runs {} to another result than TensorFlow"
    if tflite.BuiltinOperator.WHILE in codes and not computed & integers:
        return f"a loop of real numbers, and {elsewhere.format('some of them')}"
    if single:
        return "one detection by class, and TFLite Micro, which overwrites its boxes, computes another than TensorFlow"
    return f"a bias of int32 beside int16, and {elsewhere.format('it')}" if narrow else ""


def _has_narrow_biases(graph: Any, codes: list[int]) -> bool:
    import tflite

    kinds = tflite.BuiltinOperator
    bias_at = {kinds.DEPTHWISE_CONV_2D: 2, kinds.FULLY_CONNECTED: 2, kinds.TRANSPOSE_CONV: 3}
    for op in (graph.Operators(i) for i in range(graph.OperatorsLength())):
        at = bias_at.get(codes[op.OpcodeIndex()], op.InputsLength())
        if at < op.InputsLength() and op.Inputs(at) >= 0:
            result, bias = graph.Tensors(op.Outputs(0)), graph.Tensors(op.Inputs(at))
            if result.Type() == tflite.TensorType.INT16 and bias.Type() == tflite.TensorType.INT32:
                return True
    return False


def _has_single_detections(file: Any, graph: Any) -> bool:
    """Whether TFLite_Detection_PostProcess selects one box by class.

    TFLite Micro's lists hold max_detections * boxes; it puts max_detections + boxes into them, and destroys the boxes
    (tensorflow/lite/micro/kernels/detection_postprocess.cc, Prepare, commit 0b7d9af).
    """
    from flatbuffers import flexbuffers

    for op in (graph.Operators(i) for i in range(graph.OperatorsLength())):
        if file.OperatorCodes(op.OpcodeIndex()).CustomCode() == b"TFLite_Detection_PostProcess":
            options = flexbuffers.Loads(bytes(bytearray(op.CustomOptionsAsNumpy())))
            if options.get("use_regular_nms") and options["max_detections"] == 1 < options["num_classes"]:
                return True
    return False


def _tflite_input_types(model: Path) -> list[str]:
    """The type of every input of the file where it differs from that of the firmware's input; else ''."""
    import tflite

    names = {tflite.TensorType.FLOAT32: "float32", tflite.TensorType.UINT8: "uint8"}
    try:
        graph = tflite.Model.GetRootAsModel(model.read_bytes(), 0).Subgraphs(0)
        return [names.get(graph.Tensors(graph.Inputs(i)).Type(), "") for i in range(graph.InputsLength())]
    except (struct.error, AttributeError, IndexError, TypeError, ValueError):
        raise NoJudge("the TFLite Micro interpreter cannot run this model", model) from None


# ---- from the firmware's types to the file's and back


def _as_file(x: Array, port: Port, kind: str) -> Array:
    """Convert the firmware's int8 or int16 input to the file's type `kind`: dequantise it or make it unsigned."""
    if x.dtype in (np.int8, np.int16) and kind == "float32":
        return ((x.astype(np.float32) - np.float32(port["zero_point"])) * np.float32(port["scale"])).astype(np.float32)
    if x.dtype == np.int8 and kind == "uint8":
        return (x.astype(np.int16) + 128).astype(np.uint8)
    if x.dtype == np.int16 and kind == "uint16":
        return (x.astype(np.int32) + 2**15).astype(np.uint16)
    return x


def _as_firmware(value: Array, port: Port) -> Array:
    """Convert the file's output to the firmware's type. Raises EdgebuildError for floats off the scale's steps."""
    dtype = np.dtype(port["dtype"])
    if dtype not in (np.int8, np.int16) or value.dtype == dtype:
        return value
    if value.dtype in (np.uint8, np.uint16):
        return _signed(value)
    steps = value.astype(np.float64) / port["scale"]
    if float(np.max(np.abs(steps - np.rint(steps)), initial=0.0)) > OFF_STEP:
        raise fail(f"output '{port['name']}': the oracle's values are no multiples of the scale {port['scale']}")
    low, high = limits(port["dtype"])
    return np.clip(np.rint(steps) + port["zero_point"], low, high).astype(dtype)


# ---- ONNX


def _onnx(model: Path, inputs: list[list[Array]], report: dict[str, Any], outputs: tuple[str, ...]) -> Reference:
    """Run onnxruntime without graph optimisation, with the results of all nodes added to the graph's outputs."""
    _needs("onnxruntime")
    import onnx

    proto = onnx.load(str(model))
    if outputs:
        _end_at(proto.graph, outputs)
    in_standard(proto)
    for part in (proto.graph, *proto.functions):
        _in_float32(part)
    _in_rows(proto)
    mixed = in_one_sign(proto)
    ends = outputs or [value.name for value in proto.graph.output]
    constants = {t.name for t in proto.graph.initializer}
    surface = [value for value in proto.graph.input if value.name not in constants]
    feeds = [
        [_feed(x, port, value.type.tensor_type) for value, x, port in zip(surface, row, report["inputs"], strict=True)]
        for row in inputs
    ]
    rows: list[list[Array]] = []
    tensors: list[dict[str, Array]] = []
    reals: list[dict[str, Array]] = []
    for values in _ran(proto, feeds, model):
        integers = _integers(proto.graph, values)
        row = []
        for name, port in zip(ends, report["outputs"], strict=True):
            as_it_is = port["dtype"].startswith("float") or port["dtype"] == values[name].dtype.name
            value = values[name] if as_it_is else integers.get(name)
            row.append(_as_firmware(values[name], port) if value is None else value)
        rows.append(row)
        tensors.append({**values, **integers})
        reals.append({name: value for name, value in values.items() if value.dtype.kind == "f"})
    return Reference(rows, tensors, slack=1, reals=reals, notes=_of_saturation(mixed), judge="onnxruntime")


def _end_at(graph: Any, outputs: tuple[str, ...]) -> None:
    """Drop nodes, inputs and outputs that these outputs do not need, as the importer does. Nodes are in any order."""
    wanted, more = set[str](), set(outputs)
    while more := more - wanted:
        wanted |= more
        more = {name for node in graph.node if wanted & {*node.output} for name in reads(node)}
    nodes = [node for node in graph.node if wanted & {*node.output}]
    kept = ((graph.node, nodes), *((v, [x for x in v if x.name in wanted]) for v in (graph.input, graph.output)))
    for values, some in kept:
        del values[:]
        values.extend(some)


def _of_saturation(mixed: list[str]) -> tuple[str, ...]:
    """A note on nodes whose products onnxruntime does not compute exactly on every processor; empty if none."""
    if not mixed:
        return ()
    more = f" and {len(mixed) - 1} more" if len(mixed) > 1 else ""
    what = f"products of uint8 and int8 ({mixed[0]}{more})"
    return (f"onnxruntime saturates {what} on processors without VNNI, so they were judged by exact ones",)


def _in_float32(part: Any) -> None:
    """Change float16 and bfloat16 of a graph or function to float32, in which the firmware computes them."""
    import onnx

    halves, real = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16), onnx.TensorProto.FLOAT
    tensors, values = list(getattr(part, "initializer", ())), []
    for name in ("input", "output", "value_info"):
        values += [v for v in getattr(part, name) if isinstance(v, onnx.ValueInfoProto)]
    for attribute in (a for node in part.node for a in node.attribute):
        if attribute.name in ("to", "dtype") and attribute.i in halves:
            attribute.i = real
        tensors += [attribute.t] if attribute.HasField("t") else []
        for inner in [attribute.g] if attribute.HasField("g") else []:
            _in_float32(inner)
    for value in values:
        if value.type.tensor_type.elem_type in halves:
            value.type.tensor_type.elem_type = real
    for tensor in tensors:
        if tensor.data_type in halves:
            data = onnx.numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(data, tensor.name))


def _in_rows(proto: Any) -> None:
    """Replace each ZipMap, which returns dictionaries, by an Identity: the firmware returns its row of scores."""
    import onnx

    zipped = [node for node in proto.graph.node if node.op_type == "ZipMap"]
    for node in zipped:
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
    names = {node.output[0] for node in zipped}
    for value in (v for v in proto.graph.output if v.name in names):
        value.type.CopyFrom(onnx.helper.make_tensor_type_proto(FLOAT, None))
    if zipped and not any(o.domain in ("", "ai.onnx") for o in proto.opset_import):
        proto.opset_import.append(onnx.helper.make_opsetid("", 13))


def _ran(proto: Any, feeds: list[list[Array]], model: Path) -> list[dict[str, Array]]:
    """Per vector, the results of all nodes by name, without sequences. Changes the model's list of outputs."""
    names = _tell_all(proto.graph)
    results = _interpreted("onnxruntime", model, proto.SerializeToString(), feeds)
    return [
        {n: results[f"v{v}_o{o}"] for o, n in enumerate(names) if f"v{v}_o{o}" in results} for v in range(len(feeds))
    ]


def _tell_all(graph: Any) -> list[str]:
    """Add results of all nodes except constants to the outputs; return the outputs' names."""
    import onnx

    results = [name for node in graph.node if node.op_type != "Constant" for name in node.output if name]
    declared = {value.name: value for value in graph.output}
    names = list(dict.fromkeys([*declared, *results]))
    values = [declared.get(name, onnx.ValueInfoProto(name=name)) for name in names]
    del graph.output[:]
    graph.output.extend(values)
    return names


def _feed(x: Array, port: Port, surface: Any) -> Array:
    """Convert the firmware's input to the file's layout and type.

    A streamed input may have the shape of its first reader, with the elements in the file's order.
    """
    dims = surface.shape.dim
    alike = len(dims) == x.ndim
    shape = [d.dim_value if d.HasField("dim_value") else x.shape[i] if alike else 1 for i, d in enumerate(dims)]
    turned = x.transpose(NCHW) if x.ndim == 4 and list(x.shape) != shape else x
    x = np.ascontiguousarray(turned) if list(turned.shape) == shape else x.reshape(shape)
    kinds = {DOUBLE: "float64", FLOAT: "float32", UINT8: "uint8", UINT16: "uint16"}
    kind = kinds.get(surface.elem_type, "")
    return x.astype(np.float64) if kind == "float64" else _as_file(x, port, kind)


def _integers(graph: Any, values: dict[str, Array]) -> dict[str, Array]:
    """Integer values by name: a float tensor beside QuantizeLinear or DequantizeLinear has its quantised values.

    uint8 becomes int8 and uint16 int16, as in the importer.
    """
    integers = {name: _signed(value) for name, value in values.items() if value.dtype.kind in "iub"}
    for node in graph.node:
        source, result = node.input[0] if node.input else "", node.output[0]
        if node.op_type == "QuantizeLinear" and result in integers:
            integers.setdefault(source, integers[result])
    for node in graph.node:  # overrides the first loop: the operand of a DequantizeLinear is the exact value
        if node.op_type == "DequantizeLinear" and node.input[0] in integers:
            integers[node.output[0]] = integers[node.input[0]]
    return integers


def _signed(value: Array) -> Array:
    if value.dtype == np.uint16:
        return (value.astype(np.int32) - 2**15).astype(np.int16)
    return (value.astype(np.int16) - 128).astype(np.int8) if value.dtype == np.uint8 else value


# ---- whole numbers
#
# Files that store whole numbers as floats are rewritten to standard nodes in doubles before onnxruntime runs them.
# float32 would round products above 2^24, which are exact in the firmware's integers.


LINEAR = ("Mul", "Add", "Div")
BYTES, POSITIVE = (-128, 255), (0, 255)  # ranges of an operand, int8 or uint8, and of a divisor


def _ends_of(f: Fused) -> dict[str, str]:
    """Names of new constants for the least and the largest integer of a Quant node."""
    if f.node.op_type != "Quant":
        return {}
    stored = {t.name: t for t in f.graph.initializer}
    stored |= {n.output[0]: n.attribute[0].t for n in f.graph.node if n.op_type == "Constant"}
    width = int(np.ravel(onnx.numpy_helper.to_array(stored[f.at(3)]))[0])
    signed, narrow = f.attributes.get("signed", 1), f.attributes.get("narrow", 0)
    high = 2 ** (width - 1) - 1 if signed else 2**width - 1 - narrow
    return {"low": f.constant("low", -high - 1 + narrow if signed else 0), "high": f.constant("high", high)}


def in_standard(model: onnx.ModelProto) -> None:
    """Replace foreign operators by standard ones, and compute in doubles what is later rounded to integers."""
    name_domain(model)
    numbers, whole = Numbers(model, ""), _whole(model)
    for graph in graphs(model.graph):
        foreign = [node for node in graph.node if node.domain in (DOMAIN, *QONNX)]
        wide = _before_rounding([node for node in graph.node if node not in foreign], whole)
        if foreign or wide:
            nodes = [new for node in graph.node for part in _standard(node, numbers) for new in _in_doubles(part, wide)]
            del graph.node[:]
            graph.node.extend(nodes)
        for node in graph.node:  # onnxruntime wants distinct names; some writers give several nodes the same
            node.name = ""


def _standard(node: onnx.NodeProto, numbers: Numbers) -> Iterator[onnx.NodeProto]:
    """Standard nodes, in integers and doubles, of a foreign node; other nodes unchanged."""
    f = Fused(node, numbers.graph, "")
    if node.domain in QONNX:
        yield from f.body(BODIES[node.op_type], **_ends_of(f))
        return
    if node.domain != DOMAIN:
        yield node
        return
    if node.op_type == REQUANT:
        names = [f.between(f"wide{at}") for at in range(3)]
        yield from (f.op("Cast", [f.at(at)], names[at], to=TensorProto.DOUBLE) for at in range(3))
        yield from _scaled(f, names, f.whole("div"), bounds_of(f), 0.5, f.between("own"))
    else:
        yield from _factored(f) if node.op_type == "Add" else _of_integers(f, numbers)
    yield f.op("Cast", [f.between("own")], to=TensorProto.FLOAT)


def _factored(f: Fused) -> Iterator[onnx.NodeProto]:
    """An Add with factors: each operand, and then the sum, is requantised if the node has a factor for it."""
    names = list[str]()
    for which, x in (("in1", f.at(0)), ("in2", f.at(1)), ("out", f.between("sum"))):
        if which == "out":
            yield f.op("Add", names, x)
        names.append(f.between("own" if which == "out" else which))
        wide = f.between(f"{which}@wide")
        yield f.op("Cast", [x], wide, to=TensorProto.DOUBLE)
        scaled = f.attributes.get(f"{which}_rq", 0)
        own = {n: f.whole(f"{which}_{n}") if scaled else 0 for n in ("mul", "add", "shift", "n_levels")}
        constants = [f.constant(f"{which}@{n}", np.float64(own[n] if scaled else n == "mul")) for n in ("mul", "add")]
        ends = (0, own["n_levels"] - 1) if scaled else ENDS
        yield from _scaled(f, [wide, *constants], 1 << own["shift"], ends, 0.0, names[-1])


def _of_integers(f: Fused, numbers: Numbers) -> Iterator[onnx.NodeProto]:
    """A node of `integer_nodes`, expanded from the same text as the importer's."""
    names = list(f.node.input)
    constants = {at: number for at, name in enumerate(names) if (number := numbers.number(name)) is not None}
    whole = [f.between(f"whole{at}") for at in range(len(names))]
    yield from (f.op("Cast", [name], y, to=TensorProto.INT32) for name, y in zip(names, whole, strict=True))
    shape, opset = numbers.shape(names[0]), opset_of(numbers.model)
    meaning = NODES[f.node.op_type](Operands(f, [BYTES, POSITIVE], shape, constants, opset))
    yield from meaning.nodes(f, [name for at, name in enumerate(whole) if at not in constants])
    result, wide = f.between("r") if meaning.text else whole[0], f.between("r in doubles")
    yield f.op("Cast", [result], wide, to=TensorProto.DOUBLE)
    factors = [f.constant(f"factor{at}", n.astype(np.float64)) for at, n in enumerate((meaning.factor, meaning.added))]
    yield from _scaled(f, [wide, *factors], meaning.divisor, meaning.ends, 0.0, f.between("own"))


def _scaled(
    f: Fused, operands: list[str], div: int, ends: tuple[int, int], half: float, output: str
) -> Iterator[onnx.NodeProto]:
    """floor((x * mul + add) / div + half), clamped to `ends`. `operands`: names of x, mul and add."""
    numbers = {"div": div, "half": half, "low": ends[0], "high": ends[1]}
    named = [f.constant(f"{output}@{name}", np.float64(number)) for name, number in numbers.items()]
    steps = (
        ("Mul", operands[1]),
        ("Add", operands[2]),
        *zip(("Div", "Add", "Floor", "Max", "Min"), [*named[:2], "", *named[2:]], strict=True),
    )
    x = operands[0]
    for number, (operator, other) in enumerate(steps):
        result = output if number == len(steps) - 1 else f"{output}@{number}"
        yield f.op(operator, [x, other] if other else [x], result)
        x = result


def _whole(model: onnx.ModelProto) -> set[str]:
    """Names of inputs and computed tensors of integer types."""
    parts = list(graphs(onnx.shape_inference.infer_shapes(model).graph))
    values = (v for part in parts for v in (*part.input, *part.value_info, *part.output))
    return {v.name for v in values if v.type.tensor_type.elem_type in WHOLE_TYPES}


def _before_rounding(nodes: list[onnx.NodeProto], typed: set[str]) -> set[str]:
    """Results of float products, sums and quotients that feed a Floor or a Cast to integers, and of the Floor.

    `typed`: names of integer tensors.
    """
    makers = {name: node for node in nodes for name in node.output}
    ends = [n for n in nodes if n.op_type == "Floor" or (n.op_type == "Cast" and typed.intersection(n.output))]
    todo = [name for n in ends for name in (n.output if n.op_type == "Floor" else n.input)]
    wide = set[str]()
    while todo:
        name = todo.pop()
        if name in makers and name not in wide | typed and makers[name].op_type in (*LINEAR, "Floor"):
            wide.add(name)
            todo += makers[name].input
    return wide


def _in_doubles(node: onnx.NodeProto, wide: set[str]) -> Iterator[onnx.NodeProto]:
    """The node, with a result in double if `wide` has it, and a Cast to float32 for readers outside `wide`."""
    if node.op_type == "Cast" and node.input[0] in wide:
        node.input[0] += "@double"
    if wide.isdisjoint(node.output):
        yield node
        return
    y = node.output[0]
    for at, name in enumerate(list(node.input)):
        node.input[at] = f"{name}@double" if name in wide else f"{y}@operand{at}"
        if name not in wide:
            yield helper.make_node("Cast", [name], [node.input[at]], to=TensorProto.DOUBLE)
    node.output[0] += "@double"
    yield node
    yield helper.make_node("Cast", [node.output[0]], [y], to=TensorProto.FLOAT)
