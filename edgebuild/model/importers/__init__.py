"""Model files to graphs. Only these modules know file formats; only op modules know what a node means."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...base.errors import fail, visible
from ...base.inputs import MODEL, read_bytes
from .foreign import foreign, foreign_folder

if TYPE_CHECKING:  # a build without changes asks for a model's files, and needs no graphs
    from ..ir import Graph

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
Bound = tuple[tuple[str, tuple[int | float, ...]], ...]


def read_model(path: Path, shapes: Shapes = (), outputs: tuple[str, ...] = (), bound: Bound = ()) -> Graph:
    """The model file as a graph. Raises EdgebuildError for anything that is wrong with it.

    `shapes`: of inputs that the file leaves open, by name. `outputs`: tensors at which the graph ends, instead of the
    file's own. `bound`: numbers of inputs that are constants, by name.
    """
    known = foreign_folder(path)
    data = b"" if known else read_bytes(path, "cannot read the model", MODEL)
    if data[4:8] != b"TFL3":
        known = known or foreign(path, data)
    if known:
        raise fail(f"not a model that edgebuild reads: {known[0]}", file=str(path), hints=[known[1]])
    if data[4:8] == b"TFL3" or path.suffix == ".tflite":
        from .tflite import read_tflite

        if shapes:
            raise fail("option 'shape': the shapes of a TFLite file are fixed", file=visible(path.name))
        if bound:
            raise fail("option 'bind': the inputs of a TFLite file stay what they are", file=visible(path.name))
        return printable(read_tflite(data, visible(path.name), outputs))
    if path.suffix == ".onnx":
        from .onnx import read_onnx

        del data  # as large as the model
        return printable(read_onnx(path, dict(shapes), outputs, dict(bound)))
    raise fail("not a model that edgebuild reads", file=str(path), hints=["use a .tflite or .onnx file"])


@contextmanager
def bound_file(path: Path, bound: Bound) -> Iterator[Path]:
    """The file, or a copy of it in which these inputs are constants, for interpreters that know no such option."""
    if not bound:
        yield path
        return
    import onnx  # late: few requests bind inputs

    from .onnx_forms import bind
    from .onnx_standard import load

    model = load(path, visible(path.name))
    bind(model.graph, visible(path.name), dict(bound))
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, Path(folder, path.name))
        yield Path(folder, path.name)


def printable(graph: Graph) -> Graph:
    """The graph with names that may stand on a terminal and in a source: characters that nobody sees are escaped."""
    from ..ir import origin_of

    names = {name: visible(name) for name in graph.tensors}
    if all(old == new for old, new in names.items()) and all(op.name == visible(op.name) for op in graph.ops):
        return graph
    if len(set(names.values())) < len(names):
        raise fail("two tensors have names that differ only in characters that nobody sees", file=graph.file)
    ops = tuple(
        replace(
            op,
            name=visible(op.name),
            inputs=tuple(names[n] for n in op.inputs),
            outputs=tuple(names[n] for n in op.outputs),
        )
        for op in graph.ops
    )
    return replace(
        graph,
        ops=ops,
        tensors={names[n]: replace(t, name=names[n], origin=origin_of(t)) for n, t in graph.tensors.items()},
        inputs=tuple(names[n] for n in graph.inputs),
        outputs=tuple(names[n] for n in graph.outputs),
    )
