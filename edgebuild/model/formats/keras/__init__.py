"""Networks that Keras 3 saved (.keras), as its own exporter to ONNX writes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ....base.errors import visible
from ..exporting import exported, read_exported
from ..format import Format, Wanted

if TYPE_CHECKING:
    from ...ir import Graph


def _holds(data: bytes) -> bool:
    """A zip archive whose list of files, at its end, has those of Keras."""
    end = data[-(1 << 22) :] if data.startswith(b"PK") else b""
    return b"config.json" in end and b"model.weights.h5" in end


def _onnx(path: Path) -> bytes:
    from .archive import admitted

    file = visible(path.name)
    return exported("keras", file, {"net.keras": admitted(path, file)})


def _read(path: Path, wanted: Wanted) -> Graph:
    return read_exported(FORMAT, path, wanted)


FORMAT = Format("keras", "Keras", ".keras", _holds, _read, None, to_onnx=_onnx)
