"""Programs of torch.export (.pt2), also with the quantise and dequantise operators that ExecuTorch reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ....base.errors import fail, visible
from ..format import Format, Operators, Wanted

if TYPE_CHECKING:
    from ...ir import Graph


def _holds(data: bytes) -> bool:
    """A zip archive whose list of files, at its end, has those of torch.export, also of its first versions."""
    end = data[-(1 << 22) :] if data.startswith(b"PK") else b""
    return b"/archive_format" in end or b"serialized_exported_program.json" in end


def _read(path: Path, wanted: Wanted) -> Graph:
    from .aten import read_pt2

    for option, given in (("shape", wanted.shapes), ("bind", wanted.bound)):
        if given:
            raise fail(f"option '{option}': the inputs of a .pt2 file stay what they are", file=visible(path.name))
    return read_pt2(path, visible(path.name), wanted.outputs)


def _operators() -> Operators:
    from .aten import READERS

    return Operators("PyTorch (.pt2), read as operators of ONNX", {"": READERS}, {"": sorted(READERS)})


FORMAT = Format("pt2", "PyTorch", ".pt2", _holds, _read, _operators)
