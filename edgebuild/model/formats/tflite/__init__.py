"""TFLite files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ....base.errors import fail, visible
from ....base.inputs import MODEL, read_bytes
from ..format import Format, Operators, Wanted

if TYPE_CHECKING:
    from ...ir import Graph


def _read(path: Path, wanted: Wanted) -> Graph:
    from .tflite_reader import read_tflite

    file = visible(path.name)
    if wanted.shapes:
        hints = ["leave it out, or convert the network again with these shapes"]
        raise fail("option 'shape': the shapes of a TFLite file are fixed", file=file, hints=hints)
    if wanted.bound:
        hints = ["leave it out, or make the inputs constants before the network is converted"]
        raise fail("option 'bind': the inputs of a TFLite file stay what they are", file=file, hints=hints)
    return read_tflite(read_bytes(path, "cannot read the model", MODEL), file, wanted.outputs)


def _operators() -> Operators:
    from .tflite_operators import OPERATORS

    return Operators("TFLite", OPERATORS, {"": sorted(OPERATORS[""])})


FORMAT = Format("tflite", "TFLite", ".tflite", lambda data: data[4:8] == b"TFL3", _read, _operators)
