"""docs/add-a-pass.md: its example is a rule, and does what it says."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

from edgebuild.model.ir import Graph, Op, Tensor
from edgebuild.model.ops import pointwise
from edgebuild.model.passes.canonicalize import Edit, rewrite
from tests.conftest import ROOT


def negations(count: int) -> Graph:
    """So many negations one behind the other, and a sine."""
    names = [f"t{i}" for i in range(count + 2)]
    functions = ["neg"] * count + ["sin"]
    ops = [
        Op("pointwise", y, (x,), (y,), pointwise.attributes(f))
        for x, y, f in zip(names, names[1:], functions, strict=False)
    ]
    tensors = {name: Tensor(name, (2, 3), "float32") for name in names}
    return Graph("m", tuple(ops), tensors, (names[0],), (names[-1],), "onnx")


def test_the_rule_of_the_page_takes_two_negations_away() -> None:
    text = (ROOT / "docs" / "add-a-pass.md").read_text()
    (rule,) = re.findall(r"^(    def twice_negated.*?\n)\n(?!    )", text, re.M | re.S)
    names: dict[str, Any] = {"Edit": Edit, "Op": Op, "Graph": Graph}
    exec(dedent(rule), names)
    for count, left in ((0, 0), (1, 1), (2, 0), (3, 1), (4, 0)):
        graph = rewrite(negations(count), [names["twice_negated"]])
        assert len(graph.ops) == left + 1
        assert graph.ops[0].inputs == ("t0",)
