"""The networks of fused tiling are valid, whole, and of the size that they are meant to have."""

from __future__ import annotations

import onnx
import pytest

from .pictures import PICTURES
from .test_zoo import macs, shapes

MACS = {"radar": 225_360, "posenet_like": 44_130_304, "ssdlite_like": 22_497_792}


@pytest.mark.parametrize("name", PICTURES)
def test_valid_and_whole(name: str) -> None:
    made = PICTURES[name]()
    onnx.checker.check_model(made, full_check=True)
    known, graph = shapes(made), made.graph
    assert all(0 not in known[tensor] for node in graph.node for tensor in node.output)
    read = {tensor for node in graph.node for tensor in node.input} | {output.name for output in graph.output}
    assert {tensor for node in graph.node for tensor in node.output} <= read
    assert macs(made) == MACS[name]
