"""docs/template: an operator and a kernel to copy are compiled and compared as they are."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import jinja2
import numpy as np
import pytest

from edgebuild.base.templates import environment
from edgebuild.model import kernels, ops
from edgebuild.model.ir import Graph, Op, Tensor, verify
from edgebuild.model.kernels import kernel_of
from edgebuild.model.ops.base import Form, check_limits, named
from tests.conftest import ROOT
from tests.ops.host import run_on_host
from tests.ops.test_host import compare

FOLDER = ROOT / "docs" / "template"


def module(package: ModuleType, name: str) -> ModuleType:
    """A file of the folder, as if it lay in a package."""
    spec = importlib.util.spec_from_file_location(f"{package.__name__}.{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(autouse=True)
def template(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The registry with the operator in it."""
    loaded, loader = module(ops, "template_op"), environment().loader
    assert loader is not None
    monkeypatch.setitem(ops.SPECS, "template", named(loaded.SPEC))
    monkeypatch.setattr(environment(), "loader", jinja2.ChoiceLoader([loader, jinja2.FileSystemLoader(FOLDER)]))
    yield loaded


def graph(shape: tuple[int, ...], dtype: str = "float32") -> Graph:
    tensors = {name: Tensor(name, shape, dtype) for name in "xy"}
    return Graph("template", (Op("template", "template", ("x",), ("y",)),), tensors, ("x",), ("y",))


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("with_kernel", [False, True])
def test_the_template_computes_what_it_says(with_kernel: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if with_kernel:
        row = module(kernels, "template_kernel").ROW
        monkeypatch.setattr(kernels, "ROWS", (*kernels.ROWS, row))
    graphs = [graph(shape) for shape in ((1, 6), (3, 2, 4), (2, 5), (1, 1, 1, 2))]
    rng = np.random.default_rng(2)
    vectors = [[[rng.normal(size=g.tensors["x"].shape).astype(np.float32)]] for g in graphs]
    for g in graphs:
        verify(g, ops.result_shape)
        even = g.tensors["x"].shape[-1] % 2 == 0
        assert kernel_of(g.ops[0], g, Form()).variant == ("template pairs" if with_kernel and even else "portable")
    for g, (vector,), (printed,) in zip(graphs, vectors, run_on_host(graphs, vectors, tmp_path), strict=True):
        compare(g, vector, printed)


def test_the_template_says_what_it_does_not_do() -> None:
    g = graph((1, 6), "int32")
    problem = check_limits(ops.SPECS["template"], g.ops[0], g)
    assert problem is not None and "int32 of 2 dimensions\n  supported: Rows of float32" in str(problem)
