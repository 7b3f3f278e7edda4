"""docs/operators.md is what the registry says, and docs/add-an-operator.md does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from edgebuild.model import ops
from edgebuild.model.ir import Graph, Op, Tensor
from edgebuild.model.ops import functions, pointwise
from edgebuild.model.ops.functions import _unary
from tests.conftest import ROOT
from tests.operators_page import PAGE, page
from tests.ops.host import run_on_host


def test_the_page_of_operators_is_current() -> None:
    assert PAGE.read_text() == page(), "python -m tests.operators_page"


@pytest.mark.needs("gcc")
def test_a_row_of_the_table_is_an_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "add-an-operator.md").read_text()
    (row,) = re.findall(r'^    "cube": (_unary\(.*\)),$', text, re.M)
    monkeypatch.setitem(functions.FUNCTIONS, "cube", eval(row, {"_unary": _unary}))
    x = Tensor("x", (2, 3, 4), "float32")
    op = Op("pointwise", "cube", ("x",), ("y",), pointwise.attributes("cube"))
    graph = Graph("cube", (op,), {"x": x, "y": Tensor("y", (2, 3, 4), "float32")}, ("x",), ("y",))
    value = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4)
    ((results,),) = run_on_host([graph], [[[value]]], tmp_path)
    np.testing.assert_allclose(results[0], ops.run(graph, value)["y"], rtol=1e-6)
