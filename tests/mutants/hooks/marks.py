"""Marks functions of Python and macros of templates, so that each writes a byte to a shared file when it is executed.

Beginnings alone are marked, so tests take about as long as without. Numbers of a file's functions count from its base
on, in the order in which they are visited. Nothing of edgebuild is imported here: this runs before it.
"""

from __future__ import annotations

import ast
import builtins
import json
import mmap
import os
import re
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

FOLDER = "EDGEBUILD_MARKS"  # the variable of the environment that names the folder of both files
BASES, MARKS = "bases.json", "marks"
MACRO = re.compile(r"\{%-?\s*(?:macro\s+(\w+)|(endmacro))")


def install() -> None:
    """Mark what this process imports from now on, if the environment says so."""
    if FOLDER not in os.environ:
        return
    folder = Path(os.environ[FOLDER])
    root, bases = json.loads((folder / BASES).read_text())
    with open(folder / MARKS, "r+b") as file:
        setattr(builtins, "_marks", mmap.mmap(file.fileno(), 0))  # noqa: B010
    compiled = SourceFileLoader.source_to_code

    def source_to_code(self: Any, data: Any, path: Any, **more: Any) -> Any:
        base = bases.get(os.path.relpath(os.fsdecode(path), root))
        if base is None or not isinstance(data, bytes):
            return compiled(self, data, path, **more)
        return compiled(self, marked(ast.parse(data), base), path, **more)

    SourceFileLoader.source_to_code = source_to_code  # type: ignore[method-assign]
    _mark_templates(root, bases)


def functions(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, Any]]:
    """Functions and lambdas of a module with their names, in the order of the text."""
    for child in ast.iter_child_nodes(tree):
        name = outer
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            name = f"{outer}.{getattr(child, 'name', '<lambda>')}".lstrip(".")
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield name, child
        yield from functions(child, name)


def marked(tree: ast.Module, base: int) -> ast.Module:
    for number, (_, node) in enumerate(list(functions(tree)), start=base):
        call = ast.parse(f"_marks.__setitem__({number}, 1)").body[0]
        assert isinstance(call, ast.Expr)
        if isinstance(node, ast.Lambda):
            pair = ast.Tuple([call.value, node.body], ast.Load())
            node.body = ast.Subscript(pair, ast.Constant(1), ast.Load())
        else:
            node.body.insert(int(ast.get_docstring(node, clean=False) is not None), call)
        for part in ast.walk(call):
            if isinstance(part, (ast.expr, ast.stmt)):
                ast.copy_location(part, node)
    return ast.fix_missing_locations(tree)


def macros(text: str) -> list[tuple[str, int, int]]:
    """Macros of a template, with first and last line."""
    ranges, open_ = list[tuple[str, int, int]](), list[tuple[str, int]]()
    for match in MACRO.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match[1]:
            open_.append((match[1], line))
        elif open_:
            name, first = open_.pop()
            ranges.append((name, first, line))
    return sorted(ranges, key=lambda macro: macro[1])


def _mark_templates(root: str, bases: dict[str, int]) -> None:
    try:
        import jinja2
        from jinja2 import nodes
    except ImportError:
        return
    parsed = jinja2.Environment._parse

    def _parse(self: Any, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = parsed(self, source, name, filename)
        base = bases.get(os.path.relpath(filename, root)) if filename else None
        if base is not None:
            inside = sorted(template.find_all(nodes.Macro), key=lambda macro: macro.lineno)
            for number, node in enumerate((template, *inside), start=base):
                mark = nodes.ExprStmt(nodes.Call(nodes.Name("eb_mark", "load"), [nodes.Const(number)], [], None, None))
                node.body.insert(0, mark.set_environment(self).set_lineno(node.lineno))
        return template

    def eb_mark(number: int) -> None:
        getattr(builtins, "_marks")[number] = 1  # noqa: B009

    jinja2.Environment._parse = _parse  # type: ignore[method-assign]
    jinja2.defaults.DEFAULT_NAMESPACE["eb_mark"] = eb_mark
