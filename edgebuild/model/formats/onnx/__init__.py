"""ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ....base.errors import visible
from ..format import Bound, Format, Operators, Wanted
from .external import external_files

if TYPE_CHECKING:
    from ...ir import Graph


def _graph(path: Path, wanted: Wanted) -> Graph:
    from .onnx_reader import read_onnx

    return read_onnx(path, dict(wanted.shapes), wanted.outputs, dict(wanted.bound))


def _operators() -> Operators:
    """Operators by domain, including composed ones. Some names are in onnxruntime's domain and in the standard's."""
    import onnx

    from .control_flow import CONTROL
    from .fused import FUSED, INTEGER, QUANTISED
    from .integer_nodes import NODES
    from .integers import REQUANT
    from .onnx_checks import MICROSOFT
    from .onnx_ml import DOMAIN, ML_READERS
    from .onnx_operators import OPERATORS
    from .onnx_reader import EXPANDED, SPECIAL
    from .preparation import CONVERTED

    every = {*SPECIAL, *EXPANDED, *CONTROL, *OPERATORS[""], *QUANTISED, *INTEGER, *CONVERTED}
    own = {name for name in every if onnx.defs.has(name)}
    others = {"": sorted(own), MICROSOFT: sorted({*(every - own), *FUSED} - {REQUANT}), DOMAIN: sorted(ML_READERS)}
    others["quantlib and Deeploy"] = sorted((REQUANT, *NODES))
    note = "Operators of which all operands are constants are computed beforehand, whatever they are."
    return Operators("ONNX, opset 13 and later", OPERATORS, others, note)


def _bind(path: Path, bound: Bound, copy: Path) -> None:
    import onnx

    from .onnx_checks import load
    from .preparation import bind

    model = load(path, visible(path.name))
    bind(model.graph, visible(path.name), dict(bound))
    onnx.save(model, copy)


FORMAT = Format("onnx", "ONNX", ".onnx", lambda data: False, _graph, _operators, external_files, _bind)
