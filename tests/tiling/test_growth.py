"""The work of compiling grows with the parts of a network, not with their square. Lines of Python are counted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from edgebuild.base.request import model_request
from edgebuild.model.compile import compile_model

PARTS = 60
MOST = 2.5  # times the lines, for twice the parts: 4 is quadratic


def chain(n: int) -> list[onnx.NodeProto]:
    return [helper.make_node("Sigmoid", [f"v{i}" if i else "x"], [f"v{i + 1}"]) for i in range(n)]


def joined(n: int) -> list[onnx.NodeProto]:
    return [helper.make_node("Concat", ["x"] * n, ["y"], axis=1)]


def heads(n: int) -> list[onnx.NodeProto]:
    return [helper.make_node("Sigmoid", ["x"], [f"y{i}"]) for i in range(n)]


def fan(n: int) -> list[onnx.NodeProto]:
    return [*heads(n), helper.make_node("Concat", [f"y{i}" for i in range(n)], ["y"], axis=1)]


def lines(nodes: list[onnx.NodeProto], file: Path) -> int:
    """Lines that Python executes while it compiles a network of these nodes."""
    read = {name for node in nodes for name in node.input}
    results = [name for node in nodes for name in node.output if name not in read]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4))]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    graph = helper.make_graph(nodes, "drawn", ports, ends)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), str(file))
    request, count = model_request(file, "net", "host", {}), 0

    def trace(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        compile_model(request)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.one_in(3)
@pytest.mark.parametrize("nodes", [chain, joined, fan])
def test_twice_the_parts_take_about_twice_the_work(
    tmp_path: Path, nodes: Callable[[int], list[onnx.NodeProto]]
) -> None:
    lines(nodes(2), tmp_path / "first.onnx")  # what is done once for all
    small, large = (lines(nodes(n), tmp_path / f"{n}.onnx") for n in (PARTS, 2 * PARTS))
    assert large < MOST * small
