"""The files in which an ONNX model keeps large tensors, beside itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...base.errors import EdgebuildError
from ...base.inputs import read_bytes


def external_files(source: Path) -> list[Path]:
    """The files that an ONNX model names as the place of tensors, sorted; none for other formats.

    A model that cannot be read names none: whoever reads it next says what is wrong.
    """
    try:
        if source.suffix != ".onnx" or b"location" not in read_bytes(source):
            return []
    except EdgebuildError:
        return []
    import onnx  # late: few models have such files

    try:
        graph = onnx.load(source, load_external_data=False).graph
    except Exception:  # protobuf has no common base class
        return []
    return sorted({source.parent / place for tensor in _tensors(graph) if (place := _location(tensor))})


def _location(tensor: Any) -> str:
    external = tensor.data_location == type(tensor).EXTERNAL
    return next((entry.value for entry in tensor.external_data if external and entry.key == "location"), "")


def _tensors(graph: Any) -> Iterator[Any]:
    """Initialisers and tensor attributes of a graph and the graphs inside of its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors)
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _tensors(inner)
