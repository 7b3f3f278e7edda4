"""Read model files as graphs. Each format has a folder here; only these modules know file formats.

The rest of edgebuild uses only the FORMAT in the folder's `__init__`: docs/add-a-format.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from ...base.errors import fail, visible
from ...base.inputs import MODEL, read_bytes
from .format import Bound, Format, Shapes, Wanted

if TYPE_CHECKING:  # the check of an unchanged build uses this module and needs no graphs
    from ..ir import Graph


@cache
def formats() -> Mapping[str, Format]:
    """The formats by name, one per folder of this package."""
    folders = sorted(module.name for module in iter_modules(__path__) if module.ispkg)
    return {name: import_module(f"{__name__}.{name}").FORMAT for name in folders}


def exported() -> Mapping[str, Format]:
    """The formats that exporters write, which have their own operators; the text form of a graph is not one."""
    return {name: form for name, form in formats().items() if form.operators is not None}


def format_of(path: Path, data: bytes = b"") -> Format | None:
    """The format of a file, by content, else by suffix; None if unknown. The text form is detected by content only."""
    every = formats().values()
    named = exported().values() if data else every
    return next((f for f in every if f.holds(data)), None) or next((f for f in named if f.suffix == path.suffix), None)


def read_model(path: Path, shapes: Shapes = (), outputs: tuple[str, ...] = (), bound: Bound = ()) -> Graph:
    """The model file as a graph; see `Wanted` for the options. Raises EdgebuildError if it cannot be read."""
    remedy = folder_kind(path)
    data = b"" if remedy else read_bytes(path, "cannot read the model", MODEL)
    if not any(f.holds(data) for f in formats().values()):
        remedy = remedy or file_kind(path, data)
    if remedy:
        raise fail(f"not a model that edgebuild reads: {remedy[0]}", file=str(path), hints=[remedy[1]])
    form = format_of(path, data)
    if form is None:
        suffixes = " or ".join(f.suffix for f in sorted(exported().values(), key=lambda f: f.name, reverse=True))
        raise fail("not a model that edgebuild reads", file=str(path), hints=[f"use a {suffixes} file"])
    del data  # as large as the model
    return replace(printable(form.read(path, Wanted(shapes, outputs, bound))), format=form.name)


def files_beside(path: Path) -> list[Path]:
    """Further files that a model consists of, sorted; none if it cannot be read."""
    form = format_of(path)
    return form.beside(path) if form is not None else []


@contextmanager
def bound_file(path: Path, bound: Bound) -> Iterator[Path]:
    """The file, or a temporary copy in which the inputs of `bound` are constants, for interpreters without `bind`."""
    form = format_of(path)
    if not bound or form is None or form.bind is None:
        yield path
        return
    from tempfile import TemporaryDirectory  # imported late because cache hits do not need it

    with TemporaryDirectory() as folder:
        form.bind(path, bound, Path(folder, path.name))
        yield Path(folder, path.name)


def printable(graph: Graph) -> Graph:
    """The graph with invisible characters of names escaped. Raises EdgebuildError if names differ only in these."""
    from ..ir import origin_of

    names = {name: visible(name) for name in graph.tensors}
    if all(old == new for old, new in names.items()) and all(op.name == visible(op.name) for op in graph.ops):
        return graph
    if len(set(names.values())) < len(names):
        raise fail("two tensors have names that differ only in characters that nobody sees", file=graph.file)

    def shown(tensors: Sequence[str]) -> tuple[str, ...]:
        return tuple(names[n] for n in tensors)

    ops = (replace(op, name=visible(op.name), inputs=shown(op.inputs), outputs=shown(op.outputs)) for op in graph.ops)
    tensors = {names[n]: replace(t, name=names[n], origin=origin_of(t)) for n, t in graph.tensors.items()}
    return replace(graph, ops=tuple(ops), tensors=tensors, inputs=shown(graph.inputs), outputs=shown(graph.outputs))


# Files that are no models for edgebuild, by their first bytes: a name for the user and a remedy.

HDF5, ZIP, GZIP = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04", b"\x1f\x8b"
CONVERT = "convert it with tf.lite.TFLiteConverter, and name the .tflite file"
KERAS = ("a Keras model", CONVERT)
SAVED = ("a SavedModel of TensorFlow", CONVERT)
TORCH = ("a file of PyTorch", "export the model with torch.onnx.export, and name the .onnx file")
ARRAYS = ("arrays of numpy", "name the model here; samples are given by --data, labels by --labels")
WEIGHTS = "it holds weights and no operators; export the model as .onnx or .tflite"

HEADS = {  # first bytes -> name, remedy
    HDF5: KERAS,
    GZIP: ("compressed by gzip", "unpack it first"),
    b"\x80\x02": TORCH,
    b"GGUF": ("a GGUF file", WEIGHTS),
    b"\x93NUMPY": ARRAYS,
    b"version https://git-lfs": ("a pointer of Git LFS, not the file itself", "fetch it with git lfs pull"),
    b"<": ("a text in XML or HTML", "a download may have given a page of the server; fetch the model again"),
}
FIFTH = {  # bytes from the fifth on, where FlatBuffers have their identifier
    b"ORTM": ("a model in onnxruntime's own format", "name the .onnx file that it was made from"),
    b"ET": ("a program of ExecuTorch", "export the model with torch.onnx.export, and name the .onnx file"),
}
ENDS = {  # suffix -> name, remedy
    ".pb": ("a graph of TensorFlow", CONVERT),
    ".safetensors": ("a safetensors file", WEIGHTS),
    ".ckpt": ("a checkpoint", WEIGHTS),
    ".pt": TORCH,
    ".pth": TORCH,
}


def file_kind(path: Path, data: bytes) -> tuple[str, str] | None:
    """Name and remedy of a file that is no model for edgebuild; None if its kind is unknown."""
    if not data:
        return "empty", "fetch or export it again"
    if data.startswith(ZIP):
        return _archive(path)
    heads = [kind for head, kind in HEADS.items() if data.lstrip().startswith(head)]
    heads += [kind for head, kind in FIFTH.items() if data[4:].startswith(head)]
    return heads[0] if heads else ENDS.get(path.suffix.lower())


def folder_kind(path: Path) -> tuple[str, str] | None:
    """Name and remedy if `path` is the folder of a SavedModel, else None."""
    return SAVED if os.path.exists(path / "saved_model.pb") else None


def _archive(path: Path) -> tuple[str, str]:
    import zipfile  # late: few files are archives

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        names = []
    if names and all(name.endswith(".npy") for name in names):
        return ARRAYS
    if any(name.endswith("data.pkl") for name in names):
        return TORCH
    if "config.json" in names and any(name.endswith(".h5") for name in names):
        return KERAS
    return ENDS.get(path.suffix.lower(), ("a zip archive", "unpack it first"))
