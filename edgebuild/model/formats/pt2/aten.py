"""Read programs of torch.export as graphs: nodes with named arguments, constants and state."""

from __future__ import annotations

import io
import json
import re
import zipfile
from abc import abstractmethod
from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf, prod
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from ....base.errors import EdgebuildError, did_you_mean, fail, visible
from ....base.inputs import JSON, MODEL, read_bytes
from ...ir import Arithmetic, Array, Graph, Quant, Tensor
from ...ops.pointwise import attributes
from .. import compose
from ..builder import MAX_OPS, GraphBuilder, Node, Reader, checked_size, needed
from ..channels_first import ChannelsFirstNode
from ..compose import axis_of
from ..onnx.onnx_operators import READERS as ONNX


class Name(str):
    """The name of a tensor, as the value of an argument."""

    __slots__ = ()


class NamedArgumentsNode(ChannelsFirstNode):
    """A node with named arguments: Python values, a Name for a tensor, None if left out. `read`: those readers used."""

    def __init__(
        self, builder: GraphBuilder, name: str, origin: str, arguments: Mapping[str, Any], outputs: Sequence[str]
    ):
        self.arguments, self.read, self.attributes = dict(arguments), set[str](), dict[str, Any]()
        inputs = [name for value in arguments.values() for name in tensors_of(value)]
        super().__init__(builder, name, origin, inputs, outputs)
        self.opset = 21

    def attr(self, name: str, default: Any) -> Any:
        """An attribute of the ONNX operator whose reader reads this node."""
        value = self.attributes.get(name)
        return default if value is None else value

    def argument(self, name: str, default: Any = None) -> Any:
        """An argument's value, a constant tensor's values as a list; the default if it is left out or empty."""
        self.read.add(name)
        value = self.arguments.get(name)
        if isinstance(value, Name):
            if (t := self.builder.tensors[value]).data is None:
                raise self.error(f"argument {name} is computed by the graph", "it must be a constant")
            value = t.data.tolist()
        return default if value is None or value == [] else value

    def operands(self, *names: str) -> None:
        """Set the operands to these arguments, `a|b` for alternative names. Numbers become constants; missing: ""."""
        keys = [next((n for n in name.split("|") if n in self.arguments), name) for name in names]
        self.read.update(keys)
        values, self.inputs = [self.arguments.get(key) for key in keys], []
        like = next((self.builder.tensors[v].dtype for v in values if isinstance(v, Name)), "float32")
        for value in values:
            if value is not None and not tensors_of(value):
                kind = "float32" if isinstance(value, float) else "int64" if isinstance(value, list) else like
                value = self.array(np.array(value, kind))
            self.inputs += value if isinstance(value, list) else [value or ""]

    def in_type(self, dtype: str, *positions: int) -> None:
        """Cast operands without a scale to `dtype`."""
        for position in positions:
            x = self.tensor(position)
            if x.dtype != dtype and x.quant is None:
                self.inputs[position] = self.inner("cast", [x.name], to=dtype)

    def in_one_type(self, result: str) -> None:
        """Cast the last two operands to the type of the result, or to their common type for comparisons."""
        places = range(len(self.inputs) - 2, len(self.inputs))
        if result == "bool":
            types = {self.tensor(i).dtype for i in places}
            result = "float32" if "float32" in types else str(np.result_type(*types))
        self.in_type(result, *places)

    def sides(self, value: Any, ends: int = 1) -> list[int]:
        """A number per spatial dimension, from a list or one number for all, repeated `ends` times; 0 for words."""
        listed = value if isinstance(value, list) else [0 if isinstance(value, str) else value]
        return (listed * (len(self.tensor(0).shape) - 2) if len(listed) == 1 else listed) * ends

    @abstractmethod
    def result_type(self) -> str:
        """The type of the first result in the file."""


def tensors_of(value: Any) -> list[str]:
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, Name)]


def readers(table: str, onnx: Mapping[str, Reader], own: Mapping[str, Reader]) -> dict[str, Reader]:
    """Readers by operator name, from a table with lines `names; operator; operands; attributes`.

    `operator` is ONNX's; a leading equals sign casts operands to one type. A name may give its own operator, as
    `name>Operator`; the default is the name with a capital. Attributes are ONNX's, each as
    `attribute=argument|alternative:default`, or with the default alone. A star behind an argument: a number per spatial
    dimension, or one for all; two stars: for both ends of each. `own`: the format's own readers, by
    `names; operands; arguments that may stay unread`.
    """
    by_name = dict[str, Reader]()
    for line in filter(None, table.split("\n")):
        names, operator, operands, *rules = (part.strip() for part in line.split(";"))
        for name, _, inline in (name.partition(">") for name in names.split()):
            other = inline or operator.strip("=") or name.capitalize()
            by_name[name] = _reader(onnx[other], operator[:1] == "=", operands.split(), " ".join(rules).split())
    for rows, reader in own.items():
        listed, operands, *others = rows.split(";")
        by_name |= dict.fromkeys(listed.split(), _reader(reader, False, operands.split(), (), " ".join(others).split()))
    return by_name


def _reader(
    reader: Reader, typed: bool, operands: Sequence[str], rules: Sequence[str], others: Sequence[str] = ()
) -> Reader:
    def read(node: NamedArgumentsNode) -> None:
        node.read.update(others)
        node.operands(*operands)
        if typed:
            node.in_one_type(node.result_type())
        for name, rule in (rule.split("=", 1) for rule in rules):
            argument, _, default = rule.partition(":")
            values = [node.argument(one) for one in argument.rstrip("*").split("|")]
            value = next((v for v in values if v is not None), literal_eval(default or "None"))
            node.attributes[name] = node.sides(value, argument.count("*")) if "*" in argument else value
        reader(node)

    return read


# The archive of torch.export.save: a zip file with the program as JSON and each weight as the bytes of its storage.
#
# Layout and type numbers are those of torch/export/pt2_archive and torch/_export/serde/schema.py of PyTorch 2.13.
# Nothing of an archive is run or unpickled, and its sizes are checked before memory is allocated.

NAMES = ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]  # type numbers from 1 on
TYPES = dict(enumerate(NAMES, 1)) | {12: "bool", 13: "bfloat16"}
REALS = ("float16", "float32", "float64", "bfloat16")  # all are read as float32
IGNORED = ("momentum", "cudnn_enabled", "device", "pin_memory", "non_blocking", "implicit", "copy", "padding_idx")
AGAIN = "export it again with torch.export.export and torch.export.save of PyTorch 2.8 or later"


class Archive:
    """A .pt2 archive. `program`: the exported program. Damaged archives raise EdgebuildError or one of BROKEN."""

    def __init__(self, path: Path, file: str) -> None:
        self.file, self._zip = file, zipfile.ZipFile(io.BytesIO(read_bytes(path, "cannot read the model", MODEL)))
        infos = self._zip.infolist()
        if any(i.compress_type != zipfile.ZIP_STORED for i in infos) or sum(i.file_size for i in infos) > MODEL:
            raise fail(
                "its parts are compressed or too large; PyTorch stores them as they are", file=file, hints=[AGAIN]
            )
        names = [info.filename for info in infos]
        models = [name for name in names if "/models/" in name and name.endswith(".json")]
        if len(models) != 1:
            raise fail(f"the archive has {len(models)} exported programs, not one", file=file, hints=[AGAIN])
        self._root, self._stored = models[0].partition("/models/")[0], dict[str, str]()
        self._meta: dict[str, Any] = {}
        for name in names:
            if name.startswith(f"{self._root}/data/") and name.endswith("_config.json"):
                self._meta |= (listed := self._json(name)["config"])
                self._stored |= dict.fromkeys(listed, name.rpartition("/")[0])
        if f"{self._root}/byteorder" in names and self._zip.read(f"{self._root}/byteorder") != b"little":
            raise fail("its numbers have the most significant byte first", file=file, hints=[AGAIN])
        self.program: Mapping[str, Any] = self._json(models[0])

    def _json(self, name: str) -> Any:
        if self._zip.getinfo(name).file_size > JSON:
            raise fail(f"{name} has more than {JSON >> 20} MiB", file=self.file)
        return json.loads(self._zip.read(name))

    def constant(self, name: str) -> Array:
        """A parameter, buffer or constant by its name in the module; floats of all sizes become float32."""
        own = self._meta[name]
        if own["use_pickle"]:
            raise fail(f"constant '{name}' is pickled: a tensor of a class of its own", file=self.file, hints=[AGAIN])
        meta, (usual, shape) = own["tensor_meta"], self.type_of(own["tensor_meta"], name)
        dtype = TYPES[meta["dtype"]]
        stored = np.dtype("uint16" if dtype == "bfloat16" else dtype).newbyteorder("<")
        data = np.frombuffer(self._zip.read(f"{self._stored[name]}/{own['path_name']}"), stored)
        steps, first = [n["as_int"] for n in meta["strides"]], meta["storage_offset"]["as_int"]
        past = first + sum((n - 1) * step for n, step in zip(shape, steps, strict=True)) + 1
        if min(first, *steps, 0) < 0 or past > len(data) or np.prod(shape, dtype=object) > MODEL:
            raise fail(f"constant '{name}' of shape {shape} is not in its {len(data)} elements", file=self.file)
        bytes_ = [step * stored.itemsize for step in steps]
        view = np.lib.stride_tricks.as_strided(data[first:], shape, bytes_, writeable=False)
        whole = (view.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else view  # its upper half
        return np.array(whole, usual)

    def type_of(self, meta: Mapping[str, Any], name: str) -> tuple[str, tuple[int, ...]]:
        """Type of a tensor in the graph, and its shape. Raises EdgebuildError for dynamic or empty shapes."""
        sizes = [n.get("as_int", "?") for n in meta["sizes"]]
        if meta["dtype"] not in TYPES or not all(isinstance(n, int) and n > 0 for n in sizes):
            text = f"tensor '{name}' of type {TYPES.get(meta['dtype'], meta['dtype'])} has the shape {sizes}"
            hint = f"supported: {', '.join(TYPES.values())}; shapes that are neither open (dynamic_shapes) nor empty"
            raise fail(text, file=self.file, hints=[hint])
        return "float32" if TYPES[meta["dtype"]] in REALS else TYPES[meta["dtype"]], tuple(sizes)


class AtenNode(NamedArgumentsNode):
    def __init__(self, builder: GraphBuilder, entry: Mapping[str, Any], archive: Archive) -> None:
        target = ".".join(entry["target"].removeprefix("torch.ops.").split(".")[:2])
        outputs = [name for out in entry["outputs"] for name in tensors_of(value_of(out)) or [""]]
        arguments = {one["name"]: value_of(one["arg"]) for one in entry["inputs"]}
        super().__init__(builder, entry.get("name") or (outputs or [target])[0], target, arguments, outputs)
        self._archive = archive

    def output_type(self, output: int = 0) -> tuple[str, tuple[int, ...]]:
        """Type and shape of a result in the file."""
        name, values = self.outputs[output], self._archive.program["graph_module"]["graph"]["tensor_values"]
        return self._archive.type_of(values[name], name)

    def result_type(self) -> str:
        return self.output_type()[0]

    def check(self) -> None:
        """Raise EdgebuildError for arguments that the reader ignored, and for results that differ from the file's."""
        for name in list(self.arguments)[1:]:
            if name not in {*self.read, *IGNORED} and self.arguments[name] not in (None, False, []):
                raise self.error(f"argument {name} {self.arguments[name]} is not supported")
        for output, name in enumerate(self.outputs):
            y = self.builder.tensors.get(name)
            if y is not None and y.quant is None and (y.dtype, y.shape) != (own := self.output_type(output)):
                raise self.error(f"result '{name}' is {y.dtype} of shape {y.shape}, in the file {own[0]} of {own[1]}")


def value_of(arg: Mapping[str, Any]) -> Any:
    """A serialised argument as a Python value: a tensor as a Name, a missing one as None."""
    ((kind, value),) = arg.items()
    match kind.removeprefix("as_").replace("optional_", ""):
        case "tensor":
            return Name(value["name"]) if "name" in value else value_of(value)
        case "tensors":
            return [value_of({"as_tensor": one}) for one in value]
        case "scalar_type":
            return TYPES.get(value, f"type {value}")
        case "none" | "memory_format" | "layout" | "device":
            return None
        case "sym_int" | "sym_float" | "sym_bool":
            return value_of(value)
    return [value_of(one) for one in value] if kind == "as_sym_ints" else value


# PyTorch's operators, most of which are read as ONNX operators with renamed arguments.
#
# Arguments and defaults are those of aten/src/ATen/native/native_functions.yaml of PyTorch 2.13. Overloads are ignored.

TABLE = (Path(__file__).parent / "aten.txt").read_text(encoding="utf-8").replace("\n  ", " ")


def total(node: AtenNode) -> None:
    """Read add, sub, rsub, whose second operand may have a factor `alpha`."""
    node.in_one_type(node.result_type())
    if (alpha := node.argument("alpha", 1)) != 1:
        factor = node.array(np.array(alpha, node.tensor(1).dtype))
        node.inputs[1] = node.apply("product", node.inputs[1], factor)
    node.inputs = node.inputs[:: -1 if node.origin == "aten.rsub" else 1]
    ONNX["Add" if node.origin == "aten.add" else "Sub"](node)


def function(node: AtenNode) -> None:
    """Read an elementwise function that ONNX lacks."""
    name = node.origin.removeprefix("aten.")
    if name == "ne":
        node.in_one_type(node.result_type())
    if name == "log1p":
        node.inputs[0] = compose.plus(node, node.inputs[0], 1.0)
    if name == "expm1":
        node.inputs = [node.apply("exp", node.inputs[0]), node.array(np.float32(1))]
    names = {"ne": "not_equal", "log1p": "log", "expm1": "difference"}
    node.emit("pointwise", [n for n in node.inputs if n], **attributes(names.get(name, name)))


def convolution(node: AtenNode) -> None:
    turned, padding = "transpose" in node.origin or node.argument("transposed"), node.argument("padding", 0)
    node.attributes = {"group": node.argument("groups", 1), "auto_pad": "SAME_UPPER" if padding == "same" else "NOTSET"}
    node.attributes |= {name: node.sides(node.argument(name[:-1], 1)) for name in ("strides", "dilations")}
    more = node.sides(node.argument("output_padding", 0))
    node.attributes |= {"pads": node.sides(padding, 2)} | ({"output_padding": more} if turned else {})
    ONNX["ConvTranspose" if turned else "Conv"](node)


def adaptive_pool(node: AtenNode) -> None:
    """Read a pool to a given output size, which must divide the image's."""
    size, out = node.tensor(0).shape[2:], node.sides(node.argument("output_size"))
    if len(out) != len(size) or any(not n or n < 1 or m % n for m, n in zip(size, out, strict=True)):
        raise node.error(f"an image of {size} to {out}", "supported: sizes that divide the image's")
    window = [m // n for m, n in zip(size, out, strict=True)]
    node.attributes = {"kernel_shape": window, "strides": window}
    ONNX["MaxPool" if "max" in node.origin else "AveragePool"](node)


def batch_norm(node: AtenNode) -> None:
    if node.argument("training"):
        raise node.error("it normalises by the batch's own statistics", "export the model behind model.eval()")
    compose.batch_normalised(node, node.argument("eps"))


def layer_norm(node: AtenNode) -> None:
    axes = np.arange(len(node.tensor(0).shape))[-len(node.argument("normalized_shape")) :]
    compose.layer_normalised(node, tuple(axes.tolist()), node.inputs[1:], node.argument("eps", 1e-5))


def reduction(kind: str) -> Reader:
    """A reader of reductions over some or all dimensions; max and min along one dimension also return indices."""

    def read(node: AtenNode) -> None:
        node.in_type(node.output_type()[0] if kind != "arg" else node.tensor(0).dtype, 0)
        x, dim = node.tensor(0), node.argument("dim")
        axes = compose.axes_of(node, dim, len(x.shape))
        shape = compose.kept_shape(x, axes, node.argument("keepdim", False))
        place: dict[str, Any] = {"largest": "max" in node.origin, "last": False, "to": "int64"}
        if kind == "arg":
            name, axis = (node.reshaped(x.name, (x.elements,)), 0) if dim is None else (x.name, axes[0])
            return node.emit_as("arg", [name], shape, axis=axis, **place)
        node.emit_as(kind, [x.name], shape, axes=axes)
        if len(node.outputs) > 1 and node.outputs[1]:
            node.emit("reshape", [node.inner("arg", [x.name], axis=axes[0], **place)], output=1, shape=shape)

    return read


def softmax(node: AtenNode) -> None:
    kind, rank = node.origin.removeprefix("aten.").strip("_"), len(node.tensor(0).shape)
    more = {"beta": 1.0} if kind == "softmax" else {}
    compose.along_last(node, axis_of(node, node.argument("dim"), rank), kind, **more)


def view(node: AtenNode) -> None:
    node.emit("reshape", node.inputs, shape=node.output_type()[1])


def identity(node: AtenNode) -> None:
    """Read copies, also to another type or device, and Dropout, which has no effect in inference."""
    if node.argument("train"):
        raise node.error("it drops elements at random", "export the model behind model.eval()")
    if node.tensor(0).dtype == (dtype := node.output_type()[0]):
        return compose.identity(node)
    node.emit("cast", node.inputs[:1], to=dtype)


def permute(node: AtenNode) -> None:
    """Read permute, transpose, t. A constant keeps its scales."""
    x, rank, dims = node.tensor(0), len(node.tensor(0).shape), node.argument("dims")
    perm = list(range(rank)) if dims is None else [axis_of(node, d, rank) for d in dims]
    if dims is None and rank > 1:
        a, b = (axis_of(node, node.argument(f"dim{d}", d), rank) for d in range(2))
        perm[a], perm[b] = b, a
    if not x.constant:
        return node.emit("transpose", [x.name], perm=tuple(perm))
    turned = node.builder.tensors[node.permuted(x, perm)]
    node.builder.tensors[node.outputs[0]] = replace(turned, name=node.outputs[0])


def cut(node: AtenNode) -> None:
    x, index, at = node.tensor(0), compose.whole_index(node.tensor(0)), node.argument("index")
    axis = axis_of(node, node.argument("dim", 0), len(x.shape))
    index[axis] = range(x.shape[axis])[node.argument("start") : node.argument("end") : node.argument("step")]
    index[axis] = index[axis] if at is None else [axis_of(node, at, x.shape[axis])]
    compose.values_at(node, x.name, index, node.output_type()[1])


def split(node: AtenNode) -> None:
    x, start = node.tensor(0), 0
    axis = axis_of(node, node.argument("dim", 0), len(x.shape))
    for output in range(len(node.outputs)):
        shape, index = node.output_type(output)[1], compose.whole_index(x)
        index[axis] = range(start, start := start + prod(shape) * x.shape[axis] // x.elements)
        compose.values_at(node, x.name, index, shape, output)


def pad(node: AtenNode) -> None:
    """Read pads, which the file lists from the last dimension to the first."""
    ends, rank = np.reshape(node.argument("pad"), (-1, 2))[::-1], len(node.tensor(0).shape)
    mode = {"replicate": "edge", "circular": "wrap"}.get(name := node.argument("mode", "constant"), name)
    compose.border(node, np.pad(ends, ((rank - len(ends), 0), (0, 0))), mode, node.argument("value") or None)


def upsample(node: AtenNode) -> None:
    """Read upsampling to the nearest element, with indices rounded down."""
    sizes = zip(node.tensor(0).shape, node.output_type()[1], strict=True)
    compose.values_at(node, node.inputs[0], [np.floor(np.arange(m) * np.float32(n / m)).astype(int) for n, m in sizes])


def filled(node: AtenNode) -> None:
    dtype, size = node.output_type()
    node.store(node.outputs[0], np.full(size, node.argument("fill_value", float("ones" in node.origin)), dtype))


def quantisation(node: AtenNode) -> tuple[Quant, str, int]:
    """Scale and zero point, the type in the graph, and the number subtracted from values for it: 128 for uint8."""
    many = "s" * ("per_channel" in node.origin)
    scales, zeros = (np.ravel(node.argument(f"{name}{many}")) for name in ("scale", "zero_point"))
    dtype, axis, fits = node.argument("dtype"), node.argument("axis"), len(scales) == len(zeros)
    if dtype not in ("int8", "uint8", "int16", "int32") or not fits or not all(0 < s < inf for s in scales):
        hint = "supported: int8, uint8, int16 and int32; scales are positive and finite, with a zero point each"
        raise node.error(f"{dtype} of scale {min(scales, default=0)}", hint)
    less = 128 if dtype == "uint8" else 0
    points = tuple(int(z) - less for z in zeros)
    along = compose.axis_of(node, axis, len(node.tensor(0).shape)) if len(scales) > 1 else None
    return Quant(tuple(map(float, scales)), points, along), "int8" if less else dtype, less


def quantize(node: AtenNode) -> None:
    compose.quantize(node, *quantisation(node), [node.argument(f"quant_{end}") for end in ("min", "max")])


def dequantize(node: AtenNode) -> None:
    compose.dequantize(node, *quantisation(node))


OWN: dict[str, Reader] = {
    "add sub rsub; self other": total,
    "rsqrt square log1p expm1 ne; self other": function,
    "conv1d conv2d convolution conv_transpose1d conv_transpose2d; input weight bias": convolution,
    "adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d adaptive_max_pool2d; self": adaptive_pool,
    "linear; input weight bias": lambda node: compose.rows_times(node, node.inputs[1], node.inputs[2]),
    "batch_norm _native_batch_norm_legit_no_training; input weight bias running_mean running_var": batch_norm,
    "layer_norm native_layer_norm; input weight bias": layer_norm,
    "mean; self; dtype": reduction("mean"),
    "sum; self; dtype": reduction("reduce_sum"),
    "amax max; self": reduction("reduce_max"),
    "amin min; self": reduction("reduce_min"),
    "argmax argmin; self": reduction("arg"),
    "softmax _softmax log_softmax _log_softmax; self": softmax,
    "view reshape _unsafe_view flatten unflatten squeeze unsqueeze; self; size shape start_dim end_dim dim sizes": view,
    "contiguous clone alias detach detach_ to _to_copy type_as lift_fresh_copy; self; dtype other": identity,
    "dropout; input; p": identity,
    "permute transpose t; self": permute,
    "stack; tensors": lambda node: compose.stacked(node, node.argument("dim", 0)),
    "flip; self": lambda node: compose.reversed_along(node, node.argument("dims")),
    "slice select; self": cut,
    "split split_with_sizes chunk unbind; self; split_size split_sizes chunks": split,
    "expand expand_as; self; size other": lambda node: compose.expanded(node, node.output_type()[1]),
    "constant_pad_nd pad; self": pad,
    "upsample_nearest2d; self|input; output_size scale_factors scales_h scales_w": upsample,
    "full full_like zeros zeros_like ones ones_like; ; self size dtype": filled,
    "quantize_per_tensor quantize_per_channel; input": quantize,
    "dequantize_per_tensor dequantize_per_channel; input; quant_min quant_max out_dtype": dequantize,
}
READERS = {("quantized_decomposed." if "quantize_per" in name else "aten.") + name: reader
           for name, reader in readers(TABLE, ONNX, OWN).items()}  # fmt: skip


UNKNOWN = (
    "edgebuild ops pt2 lists what is supported; with torch and onnxscript installed, PyTorch's exporter reads more"
)
MAX_COMPUTED = 1 << 24  # most elements of a constant that is folded while reading
BROKEN = (ArithmeticError, AttributeError, EOFError, LookupError, RuntimeError, TypeError, ValueError, BadZipFile)


def read_pt2(path: Path, file: str, outputs: Sequence[str] = ()) -> Graph:
    """An exported program, up to its outputs or `outputs`, as a graph in ONNX arithmetic. Raises EdgebuildError."""
    with damaged(file):
        return _read(Archive(path, file), file, outputs)


@contextmanager
def damaged(file: str) -> Iterator[None]:
    """Convert exceptions of BROKEN, which missing or mistyped values of a damaged file cause, to EdgebuildError."""
    try:
        yield
    except EdgebuildError:
        raise
    except BROKEN as problem:
        text = f"not a valid .pt2 file: {type(problem).__name__}: {str(problem)[:200]}"
        raise fail(text, file=file, hints=[f"the file is damaged; {AGAIN}"]) from None


def _read(archive: Archive, file: str, wanted: Sequence[str]) -> Graph:
    module, builder = archive.program["graph_module"], GraphBuilder(file, Arithmetic.ONNX)
    graph, signature = module["graph"], module["signature"]
    results = [(kind, own) for spec in signature["output_specs"] for kind, own in spec.items()]
    states = {own["buffer_name"]: own["arg"]["name"] for kind, own in results if kind == "buffer_mutation"}
    ends = [name for kind, own in results if kind == "user_output" for name in tensors_of(value_of(own["arg"]))]
    if len(graph["nodes"]) > MAX_OPS or (others := {k for k, _ in results} - {"buffer_mutation", "user_output"}):
        text = f"a program of {len(graph['nodes'])} nodes with results of the kinds {sorted(others)}"
        raise fail(text, file=file, hints=[f"supported: {MAX_OPS} nodes, tensors, buffers that change"])
    inputs = []
    for kind, own in ((kind, own) for spec in signature["input_specs"] for kind, own in spec.items()):
        if kind in ("parameter", "buffer", "tensor_constant"):
            name, key = own["arg"]["name"], own[f"{kind}_name"]
            data = archive.constant(key)
            t = Tensor(name, data.shape, str(data.dtype), None, None if key in states else data)
            if key in states:
                builder.states.append((name, states[key], data))
        elif "as_tensor" in own.get("arg", ()):
            inputs.append(name := own["arg"]["as_tensor"]["name"])
            dtype, shape = archive.type_of(graph["tensor_values"][name], name)
            t = Tensor(name, shape, dtype)
        elif kind in ("user_input", "constant_input"):
            continue  # a number, which the arguments of nodes repeat
        else:
            raise fail(f"the program has an input of kind {kind}", file=file, hints=["supported: tensors"])
        builder.tensors[name] = checked_size(t, file)
    nodes = [AtenNode(builder, entry, archive) for entry in graph["nodes"]]
    written = {name for node in nodes for name in node.outputs}
    for name in set(wanted) - written:
        raise fail(f"option 'outputs': no node writes '{name}'{did_you_mean(name, sorted(written))}", file=file)
    ends = list(wanted) or ends
    serving = needed([(n.inputs, n.outputs) for n in nodes], [*ends, *states.values()])
    builder.read([n for n, used in zip(nodes, serving, strict=True) if used], _check_operator, _read_node, ends)
    return builder.finish(inputs, ends)


def _check_operator(node: Node) -> None:
    if node.origin not in READERS:
        raise node.error(f"operator {node.origin} is not supported", UNKNOWN)


def _read_node(node: Node) -> None:
    assert isinstance(node, AtenNode)
    for name in node.inputs:
        if name in node.builder.unsupported_results or name not in node.builder.tensors:
            raise node.builder.unsupported_results.get(name) or node.error(f"reads '{name}', which nothing computes")
    read, first = [node.builder.tensors[name] for name in node.inputs], len(node.builder.ops)
    constant, shape = all(t.constant and t.quant is None for t in read), node.output_type()[1]
    if constant and prod(shape) > MAX_COMPUTED:
        raise node.error(f"a constant of shape {shape} is too large", "compute it in the application")
    READERS[node.origin](node)
    if constant:
        node.builder.compute(first)
    node.check()


INNER = ("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "_log_softmax", "_native_batch_norm_legit_no_training",
         "_prelu_kernel", "_softmax", "_to_copy", "_unsafe_view", "_weight_norm_interface")  # fmt: skip
CHECKS = ("_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size")
TARGET = re.compile(rf"torch\.ops\.aten\.((?:[a-z][a-z0-9_]*|{'|'.join((*INNER, *CHECKS))})\.[A-Za-z0-9_]+)")
TEXTS = ("", "none", "tanh", "constant", "reflect", "replicate", "circular", "mean", "sum", "same", "valid", "floor",
         "trunc", "bilinear", "bicubic", "nearest", "left", "right")  # fmt: skip  # no operator takes one for a file
PLACES = ("as_none", "as_memory_format", "as_layout", "as_device")
SIMPLE = ("as_int", "as_ints", "as_float", "as_floats", "as_bool", "as_bools")
SHAPES = "its program has operators of the graph's control flow, or values that are no tensors and no numbers"


def admitted(path: Path, file: str) -> tuple[dict[str, Any], list[Array]]:
    """The program as JSON for `exporter_process.py`, and its constants in order.

    Dynamic sizes become 1 for an input's first dimension, the batch, else the size of the example at export. Raises
    EdgebuildError for anything but ATen operators on tensors.
    PyTorch's `torch.export.load` unpickles, resolves targets by `getattr` from the module `torch`, and evaluates
    expressions of sizes. So the file is never passed to it: its author can only choose among ATen operators.
    """
    with damaged(file):
        return _program(Archive(path, file), file)


def _program(archive: Archive, file: str) -> tuple[dict[str, Any], list[Array]]:
    graph, signature = (archive.program["graph_module"][part] for part in ("graph", "signature"))
    inputs, constants = dict[str, Any](), dict[str, Array]()
    for kind, own in (item for spec in signature["input_specs"] for item in spec.items()):
        if kind in ("parameter", "buffer", "tensor_constant"):
            constants[own["arg"]["name"]] = archive.constant(own[f"{kind}_name"])
        elif kind == "user_input" and "as_tensor" in own["arg"]:
            name = own["arg"]["as_tensor"]["name"]
            inputs[name] = _input(archive, graph["tensor_values"][name], name)
        else:
            raise fail(f"the program has an input of kind {kind}", file=file, hints=["supported: tensors"])
    results = [item for spec in signature["output_specs"] for item in spec.items()]
    if others := sorted({kind for kind, _ in results} - {"user_output"}):
        hint = "a network whose state changes is read without an exporter, and not quantised"
        raise fail(f"the program has results of kind {others[0]}", file=file, hints=[hint])
    if len(graph["nodes"]) > MAX_OPS:
        raise fail(f"the program has {len(graph['nodes'])} nodes", file=file, hints=[f"supported: {MAX_OPS}"])
    nodes, seen = [_node(entry, file) for entry in graph["nodes"]], {*inputs, *constants}
    nodes = [node for node in nodes if node["target"].partition(".")[0] not in CHECKS]
    for node in nodes:
        if missing := sorted(_names(node["arguments"].values()) - seen):
            raise _error(node, file, f"reads '{visible(missing[0])}', which nothing computes")
        seen |= {*node["outputs"]}
    ends = [name for _, own in results for name in tensors_of(value_of(own["arg"]))]
    if not ends or not inputs or not seen.issuperset(ends):
        raise fail("the program has no input, or no result that it computes", file=file, hints=[AGAIN])
    program = {"inputs": inputs, "constants": list(constants), "nodes": nodes, "outputs": ends}
    return program, list(constants.values())


def _input(archive: Archive, meta: Mapping[str, Any], name: str) -> dict[str, Any]:
    sizes = [
        size if "as_int" in size else {"as_int": 1} if not axis else size["as_expr"]["hint"]
        for axis, size in enumerate(meta["sizes"])
    ]
    dtype, shape = archive.type_of({**meta, "sizes": sizes}, name)
    if prod(shape) > MODEL:
        raise fail(f"input '{visible(name)}' has the shape {shape}", file=archive.file, hints=["give a smaller one"])
    return {"shape": shape, "dtype": dtype}


def _node(entry: Mapping[str, Any], file: str) -> dict[str, Any]:
    target = TARGET.fullmatch(str(entry["target"]))
    outputs = [name for out in entry["outputs"] for name in tensors_of(value_of(out)) or _numbers(out)]
    node: dict[str, Any] = {
        "target": target[1] if target else str(entry["target"]),
        "outputs": outputs,
        "arguments": {},
    }
    if target is None:
        raise _error(node, file, "is no operator of ATen", "PyTorch's exporter is given these alone")
    node["several"] = any("as_tensors" in out for out in entry["outputs"])
    for one in entry["inputs"]:
        ((kind, value),) = one["arg"].items()
        if kind in PLACES:
            continue
        if one["name"] in ("train", "training") and value:
            raise _error(node, file, "is one of training", "export the model behind model.eval()")
        node["arguments"][str(one["name"])] = _argument(node, kind, value, file)
    return node


def _numbers(out: Mapping[str, Any]) -> list[str]:
    """The names of results that are sizes of shapes."""
    return [str(value["as_name"]) for value in out.values() if isinstance(value, Mapping) and "as_name" in value]


def _argument(node: Mapping[str, Any], kind: str, value: Any, file: str) -> Any:
    """An argument for the JSON: numbers unchanged, `{"of": name}` for a value of the graph, `{"dtype": name}`."""
    match kind:
        case "as_tensor" | "as_tensors" | "as_optional_tensor" | "as_optional_tensors":
            if isinstance(value, list):
                return [_argument(node, "as_optional_tensor", one, file) for one in value]
            if "name" in value:
                return {"of": str(value["name"])}
            return {"of": str(value["as_tensor"]["name"])} if "as_tensor" in value else None
        case "as_sym_int" | "as_sym_float" | "as_sym_bool":
            ((inner, number),) = value.items()
            return {"of": str(number)} if inner == "as_name" else _argument(node, inner, number, file)
        case "as_sym_ints":
            return [_argument(node, "as_sym_int", one, file) for one in value]
        case "as_scalar_type" if value in TYPES:
            return {"dtype": "float32" if TYPES[value] in REALS else TYPES[value]}
        case "as_string" if value in TEXTS:
            return value
        case _ if kind in SIMPLE and all(isinstance(n, (int, float)) for n in _listed(value)):
            return value
    raise _error(node, file, f"an argument of kind {kind} is {str(value)[:60]}", SHAPES)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _names(arguments: Iterable[Any]) -> set[str]:
    every = [one for argument in arguments for one in _listed(argument)]
    return {one["of"] for one in every if isinstance(one, dict) and "of" in one}


def _error(node: Mapping[str, Any], file: str, text: str, *hints: str) -> EdgebuildError:
    name, target = visible((node["outputs"] or [""])[0]), visible(str(node["target"]))[:80]
    return fail(text, file=file, node=name, kind=target, hints=hints)
