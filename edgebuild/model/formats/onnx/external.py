"""External data files of ONNX models, which hold large tensors.

Their names, offsets and lengths come from the model, which is not trusted. A file is read only if it is below the
model's folder, is no link, and has the bytes that the tensor's shape needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

from ....base.errors import EdgebuildError, fail
from ....base.inputs import MODEL, check_file, read_bytes, read_part

# Protobuf messages that may contain tensors.
HOLDERS = ("GraphProto", "NodeProto", "AttributeProto", "FunctionProto", "TrainingInfoProto", "SparseTensorProto",
           "TensorProto")  # fmt: skip
SMALL = {"INT2": 2, "UINT2": 2, "INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4}  # bits of types with several values per byte


def external_files(source: Path) -> list[Path]:
    """The external data files of an ONNX model, sorted; none for other formats.

    Also none for a model that cannot be read; the importer reports the error later.
    """
    try:
        data = b"" if source.suffix != ".onnx" else read_bytes(source, most=MODEL)
        if b"location" not in data:
            return []
    except EdgebuildError:
        return []
    import onnx  # imported late, because few models have such files

    try:
        tensors = [t for t in _tensors(onnx.load_model_from_string(data)) if _is_external(t)]
        return sorted({place_of(source, _fields(t).get("location", "")) for t in tensors})
    except Exception:  # protobuf's exceptions have no common base class; the importer refuses wrong locations
        return []


def load_external(model: Any, source: Path, file: str) -> None:
    """Load external data of all tensors into the model. Raises EdgebuildError that names the model as `file`."""
    total = 0
    for tensor in filter(_is_external, _tensors(model)):
        fields, where = _fields(tensor), f"tensor '{tensor.name}'"
        try:
            place = place_of(source, fields.get("location", ""))
        except ValueError as error:
            raise fail(f"{where}: {error}", file=file, hints=["the data of a model lies in its folder"]) from None
        try:
            offset, length = (int(fields.get(key) or 0) for key in ("offset", "length"))
        except ValueError:
            raise fail(f"{where}: its offset or its length is no number", file=file) from None
        bits = _bits(tensor.data_type)
        if not bits:
            raise fail(f"{where} is of a type that no file can hold", file=file)
        needed = -(-prod(tensor.dims) * bits // 8)
        total += needed
        if min((offset, length, *tensor.dims), default=0) < 0 or total > MODEL:
            text = f"{where} has {needed} bytes at offset {offset}"
            raise fail(text, file=file, hints=[f"a model has at most {MODEL >> 20} MiB of data"])
        tensor.raw_data = _read(place, offset, length, needed, where)
        tensor.ClearField("external_data")
        tensor.data_location = type(tensor).DEFAULT


def _bits(kind: int) -> int:
    """Bits of an element of this type; 0 for text and unknown types."""
    import onnx

    try:
        name, dtype = onnx.TensorProto.DataType.Name(kind), onnx.helper.tensor_dtype_to_np_dtype(kind)
    except (KeyError, TypeError, ValueError):
        return 0
    return 0 if dtype.kind == "O" else SMALL.get(name, 8 * dtype.itemsize)


def place_of(source: Path, location: str) -> Path:
    """Path of an external data file. Raises ValueError if it is outside the model's folder, or is a link."""
    parts = PurePosixPath(location).parts
    if not parts or "\0" in location or "\\" in location or PurePosixPath(location).is_absolute() or ".." in parts:
        raise ValueError(f"its data is in '{location}', which is no file in the folder of the model")
    place = source.parent
    for part in parts:
        place = place / part
        if os.path.islink(place):
            raise ValueError(f"its data is in '{location}', which is a link")
    return place


def _read(place: Path, offset: int, length: int, needed: int, where: str) -> bytes:
    """The bytes of one tensor; the rest of the file is not read. Raises EdgebuildError for a wrong length."""
    text = f"cannot read the data of {where}"
    try:
        check_file(place, text)
        size = os.stat(place).st_size
    except OSError as error:
        raise fail(f"{text}: {error.strerror}", file=str(place)) from None
    length = length or size - offset
    if length != needed or offset + length > size:
        seen = f"{length} bytes at offset {offset} of {size}"
        raise fail(f"{text}: {seen}; its shape needs {needed}", file=str(place), hints=["fetch or export both again"])
    return read_part(place, text, offset, length)


def _is_external(tensor: Any) -> bool:
    return bool(tensor.data_location == type(tensor).EXTERNAL)


def _fields(tensor: Any) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _tensors(model: Any) -> Iterator[Any]:
    """All tensors of a model, in graphs, attributes and functions."""
    todo = [model]
    while todo:
        message = todo.pop()
        if message.DESCRIPTOR.name == "TensorProto":
            yield message
            continue
        for kind, value in message.ListFields():
            if kind.message_type is not None and kind.message_type.name in HOLDERS:
                todo += [value] if hasattr(value, "DESCRIPTOR") else value
