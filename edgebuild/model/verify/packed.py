"""Arrays of a .npz file. Their names, types and shapes are read first, so that nothing is unpacked that nobody wants.

A .npz is a zip archive of .npy files: a kilobyte of it may unpack to gigabytes, and its directory alone may be large.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np

from ...base.errors import fail

MOST = 1 << 30  # bytes of all arrays
DIRECTORY_END, SIZES_END, COMMENT = b"PK\x05\x06", b"PK\x06\x07", 1 << 16  # a zip archive ends with these


@dataclass(frozen=True)
class Packed:
    """An array that is still packed."""

    file: Path
    member: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool

    @property
    def size(self) -> int:
        return prod(self.shape)

    def unpacked(self) -> np.ndarray[Any, Any]:
        """The array. Raises EdgebuildError where its bytes are damaged."""
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
    """The arrays of a .npz file by name. Raises EdgebuildError for anything but numbers, OSError."""
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
    except Exception:  # as above; numpy's reader of headers is that of Python's literals
        hints = ["write it with numpy.savez"]
        raise fail("not a .npy or .npz file of numbers", file=str(file), hints=hints) from None
    for name, array in arrays.items():
        check_numbers(array.dtype, f"'{name}'", file)
    size = sum(array.size * array.dtype.itemsize for array in arrays.values())
    if size > MOST:
        raise fail(f"its arrays have {size} bytes once they are unpacked", file=str(file), hints=[f"at most {MOST}"])
    return arrays


def check_numbers(dtype: np.dtype[Any], what: str, file: Path) -> None:
    """Raise EdgebuildError for a type of anything but numbers."""
    if dtype.kind not in "iufb":
        raise fail(f"{what} holds values of type {dtype}", file=str(file), hints=["numbers are expected"])


def _check_directory(file: Path) -> None:
    """Raise ValueError for an archive whose list of members is longer than a plain one can be, 65,535."""
    with file.open("rb") as stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - COMMENT - 64))
        tail = stream.read()
    end = tail.rfind(DIRECTORY_END)
    if end < 0 or tail[max(0, end - 20) : max(0, end - 16)] == SIZES_END:
        raise ValueError("no plain archive")


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """The shape, the type and the order of the array that follows. Raises ValueError."""
    version = np.lib.format.read_magic(stream)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(version)
    shape, fortran, dtype = read(stream)
    if min(shape, default=0) < 0:
        raise ValueError(shape)
    return shape, dtype, fortran
