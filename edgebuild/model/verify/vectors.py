"""Input vectors of `verify`, from the user's file or random, and the accuracy of outputs against labels.

Random indices are drawn below the sizes of the tensors that they index.

A .npz is a zip archive of .npy files: a kilobyte of it may unpack to gigabytes, and its directory alone may be large.
So names, types and shapes of its arrays are checked before any is unpacked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, log10, prod
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np

from ...base.errors import EdgebuildError, fail, from_os
from ...base.inputs import check_file
from .. import ops
from ..compile import prepare
from ..formats import format_of
from ..ir import Array, Graph, Tensor, reals_of
from ..passes.powers import FORMAT
from .oracles import Port, Reading

LOOKUPS = ("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND")  # operand 1 indexes operand 0
MOVES = ("Cast", "Concat", "Expand", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


def bounds(model: Path) -> tuple[int | None, dict[str, int]]:
    """Rows of the smallest constant table with a computed index (None: no table), and sizes that inputs index.

    The sizes are by name of an input whose values are indices: the smallest dimension that they index.
    """
    form = format_of(model, model.read_bytes())
    if form is None or form.name not in ("tflite", "onnx"):
        return None, {}
    if form.name == "tflite":
        return min(_tflite_tables(model), default=None), {}
    import onnx

    from ..formats.onnx.integers import name_domain

    file = onnx.load(str(model), load_external_data=False)
    name_domain(file)
    tables = {tensor.name: tensor.dims for tensor in file.graph.initializer}
    sizes: dict[str, int] = {}
    rows = []
    for node, extents in _lookups(file):
        if node.op_type == "Gather" and node.input[0] in tables:
            rows.append(tables[node.input[0]][0])
        for name in _sources(file.graph, node.input[1]):
            sizes[name] = min([*extents, sizes.get(name, extents[0])])
    return min(rows, default=None), sizes


def _lookups(file: Any) -> Iterator[tuple[Any, list[int]]]:
    """Nodes with a computed index, and the sizes of the dimensions that it indexes."""
    import onnx

    shapes = {tensor.name: list(tensor.dims) for tensor in file.graph.initializer}
    constants = set(shapes)
    inferred = onnx.shape_inference.infer_shapes(file).graph
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        shapes.setdefault(value.name, [d.dim_value for d in value.type.tensor_type.shape.dim])
    for node in file.graph.node:
        if node.op_type not in LOOKUPS or node.input[1] in constants:
            continue
        shape, own = shapes.get(node.input[0], []), {a.name: a.i for a in node.attribute}
        extents = shape[own.get("axis", 0) :][:1]
        if node.op_type.endswith("ND"):
            first = own.get("batch_dims", 0)
            extents = shape[first : first + (shapes.get(node.input[1]) or [0])[-1]]
        if extents and min(extents) > 0:
            yield node, extents


def _sources(graph: Any, name: str) -> set[str]:
    """Inputs of the graph whose values reach this tensor unchanged."""
    producers = {result: node for node in graph.node for result in node.output}
    surface, sources, seen, open_names = {value.name for value in graph.input}, set(), set[str](), [name]
    while open_names:
        name = open_names.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in surface:
            sources.add(name)
        elif name in producers and producers[name].op_type in MOVES:
            node = producers[name]
            open_names += node.input if node.op_type == "Concat" else node.input[:1]
    return sources


def _tflite_tables(model: Path) -> list[int]:
    import tflite

    file = tflite.Model.GetRootAsModel(model.read_bytes(), 0)
    graph = file.Subgraphs(0)
    rows = []
    for n in range(graph.OperatorsLength()):
        op = graph.Operators(n)
        code = file.OperatorCodes(op.OpcodeIndex())
        kind = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        if kind in (tflite.BuiltinOperator.GATHER, tflite.BuiltinOperator.EMBEDDING_LOOKUP):
            table, index = (0, 1) if kind == tflite.BuiltinOperator.GATHER else (1, 0)
            if file.Buffers(graph.Tensors(op.Inputs(index)).Buffer()).DataLength() == 0:
                rows.append(int(graph.Tensors(op.Inputs(table)).Shape(0)))
    return rows


MAX_BYTES = 1 << 30  # bytes of all arrays
DIRECTORY_END, SIZES_END, COMMENT = b"PK\x05\x06", b"PK\x06\x07", 1 << 16  # a zip archive ends with these


@dataclass(frozen=True)
class Packed:
    """An array of a .npz file that is not unpacked yet."""

    file: Path
    member: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool

    @property
    def size(self) -> int:
        return prod(self.shape)

    def unpacked(self) -> np.ndarray[Any, Any]:
        """The array. Raises EdgebuildError if its bytes are damaged."""
        count = self.size * self.dtype.itemsize
        try:
            with ZipFile(self.file) as archive, archive.open(self.member) as stream:
                _header(stream)
                data = stream.read(count)
        except Exception:  # zipfile, zlib and numpy have no common base class
            data = b""
        if len(data) != count:
            raise fail(f"array '{self.member}' is damaged", file=str(self.file))
        return np.frombuffer(data, self.dtype).reshape(self.shape, order="F" if self.fortran else "C")


def packed(file: Path) -> dict[str, Packed]:
    """The arrays of a .npz file by name. Raises OSError, and EdgebuildError if not numeric or above MAX_BYTES bytes."""
    try:
        _check_directory(file)
        with ZipFile(file) as archive:
            arrays = dict[str, Packed]()
            for info in archive.infolist():
                name = info.filename.removesuffix(".npy")
                if name in arrays or info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                    raise ValueError(name)
                with archive.open(info) as stream:
                    arrays[name] = Packed(file, info.filename, *_header(stream))
    except OSError:
        raise
    except Exception:  # as above; numpy parses headers as Python literals
        hints = ["write it with numpy.savez"]
        raise fail("not a .npy or .npz file of numbers", file=str(file), hints=hints) from None
    for name, array in arrays.items():
        check_numbers(array.dtype, f"'{name}'", file)
    size = sum(array.size * array.dtype.itemsize for array in arrays.values())
    if size > MAX_BYTES:
        text = f"its arrays have {size} bytes once they are unpacked"
        raise fail(text, file=str(file), hints=[f"at most {MAX_BYTES}"])
    return arrays


def check_numbers(dtype: np.dtype[Any], what: str, file: Path) -> None:
    """Raise EdgebuildError for a type of anything but numbers."""
    if dtype.kind not in "iufb":
        raise fail(f"{what} holds values of type {dtype}", file=str(file), hints=["numbers are expected"])


def _check_directory(file: Path) -> None:
    """Raise ValueError for an archive in zip64 format, which alone can have more than 65,535 members."""
    with file.open("rb") as stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - COMMENT - 64))
        tail = stream.read()
    end = tail.rfind(DIRECTORY_END)
    if end < 0 or tail[max(0, end - 20) : max(0, end - 16)] == SIZES_END:
        raise ValueError("no plain archive")


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Read a .npy header: shape, type and whether the order is Fortran's. Raises ValueError if it is malformed."""
    version = np.lib.format.read_magic(stream)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(version)
    shape, fortran, dtype = read(stream)
    if min(shape, default=0) < 0:
        raise ValueError(shape)
    return shape, dtype, fortran


Given = Array | Mapping[str, Array | Packed]  # of all inputs one after another, or by name of an input
HINTS = ["write it with numpy.save or numpy.savez"]


def read_inputs(file: Path) -> Given:
    """The array of a .npy file, or those of a .npz by name; each [vectors, ...] in the dtype of the C interface.

    In a .npy file every row has the elements of all inputs one after another. Arrays of a .npz are returned packed, so
    that names, types and shapes are checked first. Raises EdgebuildError for other files and for non-numeric arrays.
    """
    try:
        check_file(file, "cannot read the inputs")
        with file.open("rb") as stream:
            archive = stream.read(2) == b"PK"
        if archive:
            return packed(file)
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except EdgebuildError:
        raise
    except OSError as error:
        raise from_os(error, "cannot read the inputs", str(file)) from None
    except Exception:  # numpy parses headers as Python literals, so many classes of exceptions can come
        raise fail("not a .npy or .npz file of numbers", file=str(file), hints=HINTS) from None
    check_numbers(array.dtype, "it", file)
    return array


def split_vectors(inputs: Given, report: dict[str, Any]) -> list[list[Array]]:
    """Per vector, one array for each of the model's inputs. Raises EdgebuildError for wrong sizes, types or names."""
    if isinstance(inputs, Mapping):
        return _by_name(inputs, report["inputs"])
    ports = report["inputs"]
    total = sum(int(np.prod(port["shape"])) for port in ports)
    if inputs.size == 0 or inputs.size % total:
        hints = [f"the model takes {total} for each vector"]
        raise fail(f"the inputs have {inputs.size} elements", file=_file(inputs), hints=hints)
    for port in ports:
        _check_type(inputs, port, "the inputs are", several=len({port["dtype"] for port in ports}) > 1)
    vectors = []
    for row in inputs.reshape(-1, total):
        arrays, at = [], 0
        for port in ports:
            count = int(np.prod(port["shape"]))
            arrays.append(np.ascontiguousarray(row[at : at + count]).reshape(port["shape"]))
            at += count
        vectors.append(arrays)
    return vectors


def _by_name(inputs: Mapping[str, Array | Packed], ports: list[Port]) -> list[list[Array]]:
    names = [port["name"] for port in ports]
    wanted, file = f"the model's inputs: {', '.join(names)}", _file(next(iter(inputs.values()))) if inputs else ""
    if missing := [name for name in names if name not in inputs]:
        raise fail(f"the inputs have no array '{missing[0]}'", file=file, hints=[wanted])
    if unknown := [name for name in inputs if name not in names]:
        raise fail(f"the model has no input '{unknown[0]}'", file=file, hints=[wanted])
    columns = [_rows(inputs[port["name"]], port) for port in ports]
    if len(lengths := {len(column) for column in columns}) > 1:
        counts = ", ".join(f"{len(column)} of '{name}'" for name, column in zip(names, columns, strict=True))
        raise fail(f"the inputs have {len(lengths)} numbers of vectors", file=file, hints=[counts])
    return [list(row) for row in zip(*columns, strict=True)]


def _rows(array: Array | Packed, port: Port) -> Array:
    """The vectors of one input, [vectors, *shape]. The file's may be flat or differ in dimensions of 1."""
    name, shape = port["name"], tuple(port["shape"])
    _check_type(array, port, f"'{name}' is", several=False)
    one, flat = [n for n in shape if n > 1], int(np.prod(shape))
    given = [n for n in array.shape[1:] if n > 1]
    if not array.shape or not array.shape[0] or (given != one and given != [flat]):
        takes = ", ".join(map(str, ("vectors", *shape)))
        raise fail(f"'{name}' has shape {list(array.shape)}", file=_file(array), hints=[f"the model takes [{takes}]"])
    return np.ascontiguousarray(array.unpacked() if isinstance(array, Packed) else array).reshape(-1, *shape)


def _file(array: Array | Packed) -> str:
    """The user's file that an array is from."""
    mapped = getattr(array, "filename", None)
    return os.path.relpath(mapped) if mapped else str(getattr(array, "file", ""))


def _check_type(array: Array | Packed, port: Port, what: str, several: bool) -> None:
    if (dtype := np.dtype(array.dtype)) == np.dtype(port["dtype"]):
        return
    hints = [f"quantised: round(x / {port['scale']}) + {port['zero_point']}"] if port.get("scale") else []
    hints += ["inputs of several types: a .npz file has an array for each"] if several else []
    end = f", input '{port['name']}' is {port['dtype']}" if what == "the inputs are" else f", not {port['dtype']}"
    raise fail(f"{what} {dtype}{end}", file=_file(array), hints=hints)


def random_inputs(model: Path, report: dict[str, Any], count: int, seed: int = 1) -> list[list[Array]]:
    """`count` seeded vectors: integers over their full range, floats N(0, 1), indices within their tables."""
    rng = np.random.default_rng(seed)
    rows, sizes = bounds(model)
    return [[_draw(rng, port, sizes.get(port["name"], rows)) for port in report["inputs"]] for _ in range(count)]


def _draw(rng: np.random.Generator, port: Port, rows: int | None) -> Array:
    dtype, shape = np.dtype(port["dtype"]), tuple(port["shape"])
    if dtype.itemsize >= 4 and (rows is not None or dtype.kind == "i"):
        return np.asarray(rng.integers(0, rows or 10, shape)).astype(dtype)
    if dtype.kind == "f":
        return np.asarray(rng.standard_normal(shape)).astype(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(dtype)
    return np.frombuffer(rng.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)


MAX_DB = 200.0  # dB


def scale_loss(model: Path, graph: Graph, vectors: list[list[Array]], reading: Reading) -> dict[str, Any]:
    """Compare outputs of a graph whose scales were changed to powers of two with those at the file's scales.

    Both are computed by the ops' meanings in numpy. Returns `loss`: the signal-to-noise ratio in dB, and the share of
    outputs whose largest element is at the same place. Empty for a graph with the scales of the file.
    """
    if graph.format != FORMAT:
        return {}
    first = prepare(model, *reading)

    def outputs(g: Graph, vector: list[Array]) -> list[Array]:
        values = ops.run(g, *vector)
        return [np.ravel(real_values(values[name], g.tensors[name])).astype(np.float64) for name in g.outputs]

    before, after = list[Array](), list[Array]()
    for vector in vectors:
        reals = [real_values(x, graph.tensors[n]) for x, n in zip(vector, graph.inputs, strict=True)]
        given = [stored(x, first.tensors[n]) for x, n in zip(reals, first.inputs, strict=True)]
        again = [stored(real_values(x, first.tensors[n]), graph.tensors[n])
                 for x, n in zip(given, graph.inputs, strict=True)]  # fmt: skip
        before += outputs(first, given)
        after += outputs(graph, again)
    noise = sum(float(((a - b) ** 2).sum()) for a, b in zip(before, after, strict=True))
    signal = sum(float((a**2).sum()) for a in before)
    same = sum(int(a.argmax() == b.argmax()) for a, b in zip(before, after, strict=True))
    snr = inf if not noise else 10 * log10(signal / noise) if signal else 0.0
    return {"loss": {"snr_db": round(min(snr, MAX_DB), 2), "same_largest": same / max(1, len(before))}}


def real_values(x: Array, t: Tensor) -> Array:
    return x if t.quant is None else reals_of(x, t)


def stored(real: Array, t: Tensor) -> Array:
    if t.quant is None:
        return real
    ends = np.iinfo(t.dtype)
    whole = np.rint(real / t.quant.scale[0]) + t.quant.zero_point[0]
    return np.clip(whole, ends.min, ends.max).astype(t.dtype)


HALF = 0.5
ANOMALY = (0, 1)  # labels of a normal and of an anomalous sample


def classes(output: Array) -> Array:
    """The class of each vector of [vectors, ...] floats: the index of the largest score, of equal ones the first.

    A single score per vector is of class 1 above a threshold: 1/2 if all scores are in 0..1, else 0.
    """
    scores = output.reshape(len(output), -1)
    if scores.shape[1] > 1:
        return scores.argmax(1)
    middle = HALF if scores.min() >= 0 and scores.max() <= 1 else 0.0
    return (scores[:, 0] > middle).astype(np.int64)


def read_labels(file: Path) -> Array:
    """The classes in a .npy file, or in a .npz file of one array. Raises EdgebuildError if not integers from 0."""
    given: Any = read_inputs(file)
    if isinstance(given, Mapping):
        if len(given) != 1:
            raise fail(f"{len(given)} arrays; labels are one", file=str(file))
        given = next(iter(given.values()))
    labels = np.asarray(given.unpacked() if hasattr(given, "unpacked") else given)
    if labels.dtype.kind not in "iu" or labels.size == 0 or labels.min() < 0:
        least = f" with {labels.min()} among them" if labels.dtype.kind == "i" and labels.size else ""
        raise fail(f"labels are {labels.dtype}{least}, not whole numbers from 0", file=str(file),
                   hints=["give the number of each vector's class, written with numpy.save"])  # fmt: skip
    return labels.reshape(-1).astype(np.int64)


def rebuilds(inputs: Array | None, outputs: Array, labels: Array) -> bool:
    """Whether a network is an autoencoder: as many outputs as inputs, more than two, and labels that are all 0 or 1.

    `inputs`: [samples, ...] of the only input, else None.
    """
    sizes = {x.size // len(x) for x in (inputs, outputs) if x is not None and len(x)}
    return inputs is not None and len(sizes) == 1 and max(sizes) > len(ANOMALY) and bool(np.isin(labels, ANOMALY).all())


def auc(inputs: Array, outputs: Array, labels: Array) -> float:
    """Area under the ROC curve of an autoencoder whose mean square error separates label 1 from label 0.

    It is the share of pairs, one sample of each label, in which the error of label 1 is larger; equal ones count half.
    Without samples of both labels it is 0.
    """
    count = len(inputs)
    errors = ((outputs.reshape(count, -1) - inputs.reshape(count, -1).astype(np.float64)) ** 2).mean(1)
    good, bad = np.sort(errors[labels == 0]), errors[labels == 1]
    below = np.searchsorted(good, bad, "left") + np.searchsorted(good, bad, "right")
    return float(below.sum() / 2 / max(1, len(good) * len(bad)))


def check_classes(labels: Array, outputs: Array, file: Path) -> None:
    """Raise EdgebuildError, which names `file`, for labels of classes that `outputs` [samples, ...] lack."""
    if labels.max() >= (count := max(outputs[0].size, 2)):
        hints = [f"the network's first output has {outputs[0].size} values for a sample"]
        text = f"label {labels.max()} is none of the {count} classes, 0 to {count - 1}"
        raise fail(text, file=str(file), hints=hints)


def accuracy(inputs: Array | None, outputs: Array, labels: Array, file: Path) -> dict[str, Any]:
    """How often an output, [samples, ...] floats, is of its label's class. `file`: of the labels, for messages.

    Returns `samples`, `accuracy` (a share) and `confusion` (rows: the labels' classes, columns: the outputs').
    Returns `samples` and `auc` for an autoencoder (see `rebuilds`).
    Raises EdgebuildError for labels of another number of samples, or of classes that the output lacks.
    """
    if len(labels) != len(outputs):
        raise fail(f"{len(labels)} labels for {len(outputs)} vectors", file=str(file),
                   hints=["one whole number for each"])  # fmt: skip
    check_classes(labels, outputs, file)
    if inputs is not None and rebuilds(inputs, outputs, labels):
        return {"samples": len(outputs), "auc": auc(inputs, outputs, labels)}
    predicted = classes(outputs)
    confusion = np.zeros((int(max(labels.max(), predicted.max())) + 1,) * 2, int)
    np.add.at(confusion, (labels, predicted), 1)
    return {"samples": len(outputs), "accuracy": float(np.mean(predicted == labels)), "confusion": confusion.tolist()}
