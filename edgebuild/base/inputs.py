"""Reading of the user's files: all modules use these functions.

Only regular files are read, up to a size that no legitimate file of their kind has. A pipe would block, and a device
such as /dev/zero would never end.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterable
from math import isfinite
from pathlib import Path
from typing import Any, Generic, TypeVar

from .errors import EdgebuildError, fail, from_os

T = TypeVar("T")
MODEL = 512 << 20  # most bytes of a model, and of its external tensors
TEXT = 64 << 20  # most bytes of a source, a header, a register description, a table
YAML, JSON = 1 << 20, 16 << 20  # smaller: parsed values take a hundred times, or twenty times, the bytes of the text
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


class Kept(Generic[T]):
    """Values that are read from files. Each is kept until one of its files changes; at most `most` of them."""

    def __init__(self, most: int) -> None:
        self.most, self._rows = most, dict[tuple[str, str], tuple[tuple[object, ...], T]]()

    def get(self, path: str, read: Callable[[str], T], files: Callable[[T], Iterable[str]]) -> T:
        """The value of `read(path)`, kept as long as `files` of it are unchanged."""
        key = path, os.getcwd()
        states, value = self._rows.pop(key, ((), None))
        if value is None or states != _states(files(value)):
            value = read(path)
            states = _states(files(value))
        self._rows[key] = states, value
        if len(self._rows) > self.most:
            del self._rows[next(iter(self._rows))]
        return value


def _states(files: Iterable[str]) -> tuple[object, ...]:
    """(modification time, size, inode) of each file; None for missing ones."""
    stats = (os.stat(file) if os.path.exists(file) else None for file in files)
    return tuple(s and (s.st_mtime_ns, s.st_size, s.st_ino) for s in stats)


def read_bytes(path: str | Path, text: str = "cannot read it", most: int = TEXT) -> bytes:
    """The bytes of a file. Raises EdgebuildError that begins with `text`, also for more than `most` bytes."""
    data = _read(path, text, most, 0, most + 1)
    if len(data) > most:
        raise _too_large(path, text, most)
    return data


def read_part(path: str | Path, text: str, offset: int, length: int) -> bytes:
    """`length` bytes of a file, from byte `offset` on. Raises EdgebuildError that begins with `text`."""
    data = _read(path, text, None, offset, length)
    if len(data) < length:
        raise fail(f"{text}: it ends before", file=str(path))
    return data


def _read(path: str | Path, text: str, most: int | None, offset: int, length: int) -> bytes:
    try:
        check_file(path, text, most)
        with open(path, "rb", opener=_opened) as file:
            _check_kind(os.fstat(file.fileno()), path, text, most)  # the file may have been replaced meanwhile
            file.seek(offset)
            return file.read(length)
    except OSError as error:
        raise from_os(error, text, str(path)) from None


def read_text(path: str | Path, text: str = "cannot read it", most: int = TEXT) -> str:
    r"""The text of a file in UTF-8, with line ends as `\n`. Raises EdgebuildError."""
    try:
        return read_bytes(path, text, most).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise fail("is not UTF-8 text", file=str(path), hints=["a text file is expected in its place"]) from None


def read_json(path: str | Path, wrong: str, text: str = "cannot read it") -> Any:
    """The value of a JSON file. Raises EdgebuildError, which begins with `wrong` if it is no JSON.

    NaN, infinity and numbers beyond the range of floats, which Python's module accepts, are errors.
    """
    data = read_bytes(path, text, JSON)
    try:
        return json.loads(data, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise fail(f"{wrong}: {error}", file=str(path)) from None


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        raise ValueError(f"{text} is no number")
    return number


def check_file(path: str | Path, text: str = "cannot read it", most: int | None = None) -> None:
    """Check that a path is a regular file or a folder, and has at most `most` bytes.

    Raises EdgebuildError that begins with `text`, and OSError if the file is missing.
    """
    _check_kind(os.stat(path), path, text, most)


def check_replaced(outputs: Iterable[str | Path], inputs: Iterable[str | Path]) -> None:
    """Raise EdgebuildError if an output is the same file as an input, under any name or link."""
    read = {(s.st_dev, s.st_ino): str(path) for path in inputs if (s := _status(path)) is not None}
    for path in outputs:
        status = _status(path)
        source = read.get((status.st_dev, status.st_ino)) if status is not None else None
        if source is not None:
            same = "" if source == str(path) else f", as {source}"
            hints = ["give another name, or another folder with -o"]
            raise fail(f"it is read{same}, and edgebuild does not write over it", file=str(path), hints=hints)


def _status(path: str | Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _opened(path: str, flags: int) -> int:
    return os.open(path, _FLAGS)


def _check_kind(status: os.stat_result, path: str | Path, text: str, most: int | None) -> None:
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise fail(f"{text}: it is a pipe or a device, and no file", file=str(path))
    if most is not None and stat.S_ISREG(status.st_mode) and status.st_size > most:
        raise _too_large(path, text, most)


def _too_large(path: str | Path, text: str, most: int) -> EdgebuildError:
    return fail(f"{text}: it is larger than {most >> 20} MiB", file=str(path))


PACKAGE = Path(__file__).resolve().parents[1]


def cmsis_nn_sources(library: Path) -> list[Path]:
    """The sources in CMSIS-NN's folder that its int8 convolutions need, sorted."""
    groups = ("ConvolutionFunctions", "NNSupportFunctions", "TransposeFunctions")
    sources = [file for group in groups for file in (library / "Source" / group).glob("*.c")]
    return sorted(file for file in sources if not file.stem.endswith(("_f16", "_f32")))


def hal_dir() -> Path:
    """The folder with the C files, linker scripts and targets that ship with edgebuild."""
    checkout = PACKAGE.parent / "hal"
    return checkout if (checkout / "targets").is_dir() else PACKAGE / "hal"


def sections(file: Path) -> dict[str, str]:
    """The text below each line `[NAME ...]` of a data file of edgebuild, by each of these names."""
    _, *parts = re.split(r"^\[(.+)\]\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text for names, text in zip(parts[::2], parts[1::2], strict=True) for name in names.split()}
