"""The vectors that `verify` runs a model on: those of the user's file, or random ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...base.errors import EdgebuildError, fail, from_os
from ...base.inputs import check_file
from .indices import bounds
from .oracles import Array, Port
from .packed import Packed, check_numbers, packed

Given = Array | Mapping[str, Array | Packed]  # of all inputs one after another, or by name of an input
HINTS = ["write it with numpy.save or numpy.savez"]


def read_inputs(file: Path) -> Given:
    """The array of a .npy file, or those of a .npz by name; each [vectors, ...] in the dtype of the C interface.

    In a .npy file every row has the elements of all inputs one after another. The arrays of a .npz are unpacked when
    their names, types and shapes are known to be right.
    Raises EdgebuildError for what is neither, or holds anything but numbers.
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
    except Exception:  # numpy's reader of headers is that of Python's literals: it raises what that does
        raise fail("not a .npy or .npz file of numbers", file=str(file), hints=HINTS) from None
    check_numbers(array.dtype, "it", file)
    return array


def split_vectors(inputs: Given, report: dict[str, Any]) -> list[list[Array]]:
    """Per vector, one array for each of the model's inputs."""
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
    """The vectors of one input. A vector has its shape, or is flat; dimensions of 1 do not count."""
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
    """`count` seeded vectors: integers over their full range, floats N(0, 1), indices inside of what they look into."""
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
