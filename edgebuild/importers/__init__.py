"""Model files to graphs. Only these modules know file formats; only op modules know what a node means."""

from __future__ import annotations

from pathlib import Path

from ..errors import fail
from ..ir import Graph


def read_model(path: Path) -> Graph:
    """The model file as a graph. Raises EdgebuildError for anything that is wrong with it."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise fail(f"cannot read the model: {problem.strerror}", file=str(path)) from None
    if data[4:8] == b"TFL3" or path.suffix == ".tflite":
        from .tflite import read_tflite

        return read_tflite(data, path.name)
    if path.suffix == ".onnx":
        from .onnx import read_onnx

        return read_onnx(path)
    raise fail("not a model that edgebuild reads", file=str(path), hints=["use a .tflite or .onnx file"])
