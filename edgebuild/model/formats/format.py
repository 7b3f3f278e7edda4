"""The description of a format that each folder of this package provides."""

from __future__ import annotations

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
    """The user's options for reading a file, by tensor name.

    `shapes`: of inputs with dynamic shapes. `outputs`: tensors that are the graph's outputs instead of the file's.
    `bound`: values of inputs that become constants.
    """

    shapes: Shapes = ()
    outputs: tuple[str, ...] = ()
    bound: Bound = ()


@dataclass(frozen=True)
class Operators:
    """The operators of a format.

    `by_kind`: kind of op -> operator name in the file -> reader of a node; "" has operators composed of several kinds.
    `others`: the names of the latter, by domain. `title` and `note`: first and last line of the list for users.
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

    `name`: of the folder, also in reports. `suffix`: of files. `holds`: whether a file's content is certainly of this
    format, whatever its name. `read`: read a file as a graph; raises EdgebuildError that names the file. `beside`:
    further files of a model. `bind`: write a copy of a model in which inputs are constants, for interpreters without
    such an option. `to_onnx`: convert a file to ONNX with its framework's exporter.
    """

    name: str
    title: str
    suffix: str
    holds: Callable[[bytes], bool]
    read: Callable[[Path, Wanted], Graph]
    operators: Callable[[], Operators] | None  # None: not listed for users
    beside: Callable[[Path], list[Path]] = lambda path: []
    bind: Callable[[Path, Bound, Path], None] | None = None
    to_onnx: Callable[[Path], bytes] | None = None
