"""Facts that each folder of this package tells of its format, so that the rest of the house can read its models."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..ir import Graph
    from .builder import Reader

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
Bound = tuple[tuple[str, tuple[int | float, ...]], ...]


@dataclass(frozen=True)
class Wanted:
    """A request's wishes for the graph, apart from the file.

    `shapes`: of inputs that the file leaves open. `outputs`: tensors at which the graph ends, instead of the file's
    own. `bound`: numbers of inputs that become constants. All by name.
    """

    shapes: Shapes = ()
    outputs: tuple[str, ...] = ()
    bound: Bound = ()


@dataclass(frozen=True)
class Operators:
    """The operators that a format has.

    `by_kind`: names in the file by the kind of op that they come to, with the reader of a node; under "" those that are
    read as other operators. `others`: the latter as a list, by domain. `title` and `note`: first and last line of a
    list for people.
    """

    title: str
    by_kind: Mapping[str, Mapping[str, Reader]]
    others: Mapping[str, Sequence[str]] = field(default_factory=lambda: MappingProxyType({}))
    note: str = ""

    def names(self, kind: str) -> list[str]:
        return sorted(self.by_kind.get(kind, ()))


@dataclass(frozen=True)
class Format:
    """A format of model files.

    `name`: of the folder, and in reports. `suffix`: of files. `holds`: whether the content of a file is surely of this
    format, whatever its name is. `read`: a file as a graph; what is wrong with it is an EdgebuildError that names it.
    `beside`: other files that a model reads. `bind`: write a copy of a model in which inputs are constants, for
    interpreters that know no such option.
    """

    name: str
    title: str
    suffix: str
    holds: Callable[[bytes], bool]
    read: Callable[[Path, Wanted], Graph]
    operators: Callable[[], Operators] | None  # None: those of the registry
    beside: Callable[[Path], list[Path]] = lambda path: []
    bind: Callable[[Path, Bound, Path], None] | None = None


# Files that are no model which edgebuild reads, by their first bytes: what they are, and how to come to one.

HDF5, ZIP, GZIP = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04", b"\x1f\x8b"
CONVERT = "convert it with tf.lite.TFLiteConverter, and name the .tflite file"
KERAS = ("a Keras model", CONVERT)
SAVED = ("a SavedModel of TensorFlow", CONVERT)
TORCH = ("a file of PyTorch", "export the model with torch.onnx.export, and name the .onnx file")
WEIGHTS = "it holds weights and no operators; export the model as .onnx or .tflite"

HEADS = {  # first bytes -> what it is, what to do
    HDF5: KERAS,
    GZIP: ("compressed by gzip", "unpack it first"),
    b"\x80\x02": TORCH,
    b"GGUF": ("a GGUF file", WEIGHTS),
    b"version https://git-lfs": ("a pointer of Git LFS, not the file itself", "fetch it with git lfs pull"),
    b"<": ("a text in XML or HTML", "a download may have given a page of the server; fetch the model again"),
}
FIFTH = {  # bytes from the fifth on, where FlatBuffers have their identifier
    b"ORTM": ("a model in onnxruntime's own format", "name the .onnx file that it was made from"),
    b"ET": ("a program of ExecuTorch", "export the model with torch.onnx.export, and name the .onnx file"),
}
ENDS = {  # of names
    ".pb": ("a graph of TensorFlow", CONVERT),
    ".safetensors": ("a safetensors file", WEIGHTS),
    ".ckpt": ("a checkpoint", WEIGHTS),
    ".pt": TORCH,
    ".pth": TORCH,
}


def file_kind(path: Path, data: bytes) -> tuple[str, str] | None:
    """Name the kind of a file that is no model of ours, and the remedy; None if nobody knows."""
    if not data:
        return "empty", "fetch or export it again"
    if data.startswith(ZIP):
        return _archive(path)
    heads = [kind for head, kind in HEADS.items() if data.lstrip().startswith(head)]
    heads += [kind for head, kind in FIFTH.items() if data[4:].startswith(head)]
    return heads[0] if heads else ENDS.get(path.suffix.lower())


def folder_kind(path: Path) -> tuple[str, str] | None:
    """Format and version of a folder, or None."""
    return SAVED if os.path.exists(path / "saved_model.pb") else None


def _archive(path: Path) -> tuple[str, str]:
    import zipfile  # late: few files are archives

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        names = []
    if any(name.endswith("data.pkl") for name in names):
        return TORCH
    if "config.json" in names and any(name.endswith(".h5") for name in names):
        return KERAS
    return ENDS.get(path.suffix.lower(), ("a zip archive", "unpack it first"))
