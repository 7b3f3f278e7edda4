"""The modules of the driver generator import each other in one direction, type hints included."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import edgebuild.drivers

HERE = Path(edgebuild.drivers.__file__).parent


def test_no_import_cycle() -> None:
    names = {file.stem for file in HERE.glob("*.py")}
    graph: dict[str, set[str]] = {}
    for file in HERE.glob("*.py"):
        nodes = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.ImportFrom)]
        modules = {n.module[18:] for n in nodes if n.module and n.module.startswith("edgebuild.drivers.")}
        packages = {a.name for n in nodes if n.module == "edgebuild.drivers" for a in n.names}
        graph[file.stem] = (modules | packages) & names
    assert list(TopologicalSorter(graph).static_order())
