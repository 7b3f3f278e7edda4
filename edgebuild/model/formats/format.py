"""Facts that each folder of this package tells of its format, so that the rest of the house can read its models."""

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
    interpreters that know no such option. `to_onnx`: a file as ONNX, by the exporter of its own framework.
    """

    name: str
    title: str
    suffix: str
    holds: Callable[[bytes], bool]
    read: Callable[[Path, Wanted], Graph]
    operators: Callable[[], Operators] | None  # None: those of the registry
    beside: Callable[[Path], list[Path]] = lambda path: []
    bind: Callable[[Path, Bound, Path], None] | None = None
    to_onnx: Callable[[Path], bytes] | None = None
