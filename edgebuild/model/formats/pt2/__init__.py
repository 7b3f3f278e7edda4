"""Programs of torch.export (.pt2), also with the quantise and dequantise operators that ExecuTorch reads."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ....base.errors import EdgebuildError, fail, visible
from ..exporting import exported, missing, read_exported
from ..format import Format, Operators, Wanted

if TYPE_CHECKING:
    from ...ir import Graph


def _holds(data: bytes) -> bool:
    """Whether this is a zip archive whose directory, at the end, has files of torch.export, of any version."""
    end = data[-(1 << 22) :] if data.startswith(b"PK") else b""
    return b"/archive_format" in end or b"serialized_exported_program.json" in end


def _read(path: Path, wanted: Wanted) -> Graph:
    from .aten import UNKNOWN, read_pt2

    for option, given in (("shape", wanted.shapes), ("bind", wanted.bound)):
        if given:
            raise fail(f"option '{option}': the inputs of a .pt2 file stay what they are", file=visible(path.name))
    try:
        return read_pt2(path, visible(path.name), wanted.outputs)
    except EdgebuildError as problem:
        if missing("torch") or not any(UNKNOWN in d.hints for d in problem.diagnostics):
            raise
        with suppress(EdgebuildError):
            return read_exported(FORMAT, path, wanted)
        raise


def _onnx(path: Path) -> bytes:
    import numpy as np

    from .aten import admitted

    program, constants = admitted(path, file := visible(path.name))
    arrays = io.BytesIO()
    np.savez(arrays, **{str(number): array for number, array in enumerate(constants)})  # type: ignore[arg-type]
    given = {"program.json": json.dumps(program).encode(), "constants.npz": arrays.getvalue()}
    return exported("torch", file, given)


def _operators() -> Operators:
    from .aten import READERS

    return Operators("PyTorch (.pt2), read as operators of ONNX", {"": READERS}, {"": sorted(READERS)})


FORMAT = Format("pt2", "PyTorch", ".pt2", _holds, _read, _operators, to_onnx=_onnx)
