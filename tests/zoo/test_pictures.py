"""The networks of fused tiling are valid, whole, and of the size that they are meant to have."""

from __future__ import annotations

import onnx
import pytest

from .pictures import PICTURES
from .test_zoo import macs, shapes

MACS = {"radar": 225_360, "posenet_like": 44_130_304, "ssdlite_like": 22_497_792}


@pytest.mark.parametrize("name", PICTURES)
def test_valid_and_whole(name: str) -> None:
    network = PICTURES[name]()
    onnx.checker.check_model(network, full_check=True)
    sizes, graph = shapes(network), network.graph
    assert all(0 not in sizes[tensor] for node in graph.node for tensor in node.output)
    read = {tensor for node in graph.node for tensor in node.input} | {output.name for output in graph.output}
    assert {tensor for node in graph.node for tensor in node.output} <= read
    assert macs(network) == MACS[name]
