"""ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ....base.errors import visible
from ..format import Bound, Format, Operators, Wanted
from .external import external_files

if TYPE_CHECKING:
    from ...ir import Graph


def _read(path: Path, wanted: Wanted) -> Graph:
    from .onnx_reader import read_onnx

    return read_onnx(path, dict(wanted.shapes), wanted.outputs, dict(wanted.bound))


def _operators() -> Operators:
    from .onnx_operators import OPERATORS, read_as_others

    note = "Operators of which all operands are constants are computed beforehand, whatever they are."
    return Operators("ONNX, opset 13 and later", OPERATORS, read_as_others(), note)


def _bind(path: Path, bound: Bound, copy: Path) -> None:
    import onnx

    from .onnx_checks import load
    from .preparation import bind

    model = load(path, visible(path.name))
    bind(model.graph, visible(path.name), dict(bound))
    onnx.save(model, copy)


FORMAT = Format("onnx", "ONNX", ".onnx", lambda data: False, _read, _operators, external_files, _bind)
