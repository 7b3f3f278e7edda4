"""Work that all ways to compile one network have in common: reading the file, the order of its ops as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from edgebuild.model import compile as pipeline
from edgebuild.model.ir import Graph
from edgebuild.model.plan import search
from edgebuild.model.plan.memory.problem import Layout, MemoryProblem


class Shared:
    """Results of pure functions, kept for the last file. Graphs of parts, and streamed ones, are not kept."""

    def __init__(self) -> None:
        self.file: tuple[str, bytes] = ("", b"")
        self.graph: Graph | None = None
        self.cached: dict[tuple[object, ...], Any] = {}
        self.target = cache(pipeline.load_target)
        self.prepare, self.scheduled, self.layout = pipeline.prepare, search._scheduled, search.layout

    @contextmanager
    def of(self, model: Path) -> Iterator[None]:
        """Compilations of this model share what they can."""
        file = str(model), model.read_bytes()
        if file != self.file:
            self.file, self.graph, self.cached = file, None, {}
        with (
            patch.object(pipeline, "prepare", self._prepare),
            patch.object(pipeline, "load_target", self.target),
            patch.object(search, "_scheduled", self._scheduled),
            patch.object(search, "layout", self._layout),
            patch.object(search.Planner, "_untiled", property(self._untiled)),
        ):
            yield

    def _prepare(self, source: Path, shape: Any, outputs: Any, bound: Any, scales: str) -> Graph:
        assert not (shape or outputs or bound) and scales == "file", "networks of the fuzzer are compiled as they are"
        self.graph = self.graph or self.prepare(source, shape, outputs)
        return self.graph

    def _kept(self, key: tuple[object, ...], make: Callable[[], Any]) -> Any:
        if key not in self.cached:
            self.cached[key] = make()
        return self.cached[key]

    def _scheduled(self, graph: Graph, target: Any, request: Any, *more: Any, **named: Any) -> Any:
        make = partial(self.scheduled, graph, target, request, *more, **named)
        if graph is not self.graph or request.stream_input is not None:
            return make()
        key = tuple(tuple(v.items()) if isinstance(v, Mapping) else v for v in more)
        return self._kept(("order", search.form_of(target, request), key, *sorted(named.items())), make)

    def _layout(self, problem: MemoryProblem, **named: Any) -> Layout:
        """Ways to run one network mostly end in the same few layouts, and some of these take seconds to search."""
        return self._kept(("layout", problem, *sorted(named.items())), partial(self.layout, problem, **named))

    def _untiled(self, planner: search.Planner) -> Any:
        make = partial(planner._evaluate, planner.graph)
        if planner.graph is not self.graph:
            return make()
        form, frugal = search.form_of(planner.target, planner.request), planner.request.ram is None
        return self._kept(("untiled", form, frugal), make)
