"""The text form of a graph, which `edgebuild inspect --after STAGE -o F.txt` writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ....base.errors import fail, visible
from ..format import Format, Wanted

if TYPE_CHECKING:
    from ...ir import Graph

GRAPH_TEXT = b"edgebuild graph "


def is_graph_text(data: bytes) -> bool:
    """Whether a file begins as the text form of a graph."""
    return data.startswith(GRAPH_TEXT)


def data_file(text: Path) -> Path:
    """Path of the file with the constants of a graph's text form."""
    return text.with_suffix(".bin")


def _read(path: Path, wanted: Wanted) -> Graph:
    from .graph_text import read_text

    if wanted != Wanted():
        raise fail("options 'shape', 'outputs' and 'bind': not for the text of a graph", file=visible(path.name))
    if path.suffix != FORMAT.suffix:
        raise fail("the name of a graph's text ends in .txt", file=visible(path.name))
    return read_text(path)


def _beside(path: Path) -> list[Path]:
    return [data_file(path)] if data_file(path).exists() else []


FORMAT = Format("text", "Text of a graph", ".txt", is_graph_text, _read, None, _beside)
