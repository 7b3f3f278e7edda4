"""Model files to graphs. A format is a folder here; only these modules know file formats.

A folder's `__init__` has a FORMAT, which is all that the rest of the house knows of it: docs/add-a-format.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from ...base.errors import fail, visible
from ...base.inputs import MODEL, read_bytes
from .format import Bound, Format, Shapes, Wanted, file_kind, folder_kind

if TYPE_CHECKING:  # a build without changes asks for a model's files, and needs no graphs
    from ..ir import Graph


@cache
def formats() -> Mapping[str, Format]:
    """The formats by name: one of each folder of this package."""
    folders = sorted(module.name for module in iter_modules(__path__) if module.ispkg)
    return {name: import_module(f"{__name__}.{name}").FORMAT for name in folders}


def exported() -> Mapping[str, Format]:
    """The formats that exporters write, which have operators of their own; the text of a graph is none."""
    return {name: form for name, form in formats().items() if form.operators is not None}


def format_of(path: Path, data: bytes = b"") -> Format | None:
    """The format of a file, by its content or else by its name; a text is one of a graph by its content alone."""
    every = formats().values()
    named = exported().values() if data else every
    return next((f for f in every if f.holds(data)), None) or next((f for f in named if f.suffix == path.suffix), None)


def read_model(path: Path, shapes: Shapes = (), outputs: tuple[str, ...] = (), bound: Bound = ()) -> Graph:
    """The model file as a graph; see `Wanted` for the options. Raises EdgebuildError for all that is wrong with it."""
    remedy = folder_kind(path)
    data = b"" if remedy else read_bytes(path, "cannot read the model", MODEL)
    if not any(f.holds(data) for f in formats().values()):
        remedy = remedy or file_kind(path, data)
    if remedy:
        raise fail(f"not a model that edgebuild reads: {remedy[0]}", file=str(path), hints=[remedy[1]])
    form = format_of(path, data)
    if form is None:
        suffixes = " or ".join(f.suffix for f in sorted(exported().values(), key=lambda f: f.name, reverse=True))
        raise fail("not a model that edgebuild reads", file=str(path), hints=[f"use a {suffixes} file"])
    del data  # as large as the model
    return replace(printable(form.read(path, Wanted(shapes, outputs, bound))), format=form.name)


def files_beside(path: Path) -> list[Path]:
    """The files that a model reads besides its own, sorted; none if it cannot be read."""
    form = format_of(path)
    return form.beside(path) if form is not None else []


@contextmanager
def bound_file(path: Path, bound: Bound) -> Iterator[Path]:
    """The file, or a copy of it in which these inputs are constants, for interpreters that know no such option."""
    form = format_of(path)
    if not bound or form is None or form.bind is None:
        yield path
        return
    from tempfile import TemporaryDirectory  # late: a look into the cache does without

    with TemporaryDirectory() as folder:
        form.bind(path, bound, Path(folder, path.name))
        yield Path(folder, path.name)


def printable(graph: Graph) -> Graph:
    """The graph with names that may stand on a terminal and in a source: characters that nobody sees are escaped."""
    from ..ir import origin_of

    names = {name: visible(name) for name in graph.tensors}
    if all(old == new for old, new in names.items()) and all(op.name == visible(op.name) for op in graph.ops):
        return graph
    if len(set(names.values())) < len(names):
        raise fail("two tensors have names that differ only in characters that nobody sees", file=graph.file)

    def shown(tensors: Sequence[str]) -> tuple[str, ...]:
        return tuple(names[n] for n in tensors)

    ops = (replace(op, name=visible(op.name), inputs=shown(op.inputs), outputs=shown(op.outputs)) for op in graph.ops)
    tensors = {names[n]: replace(t, name=names[n], origin=origin_of(t)) for n, t in graph.tensors.items()}
    return replace(graph, ops=tuple(ops), tensors=tensors, inputs=shown(graph.inputs), outputs=shown(graph.outputs))
