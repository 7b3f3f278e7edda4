"""If, Loop and Scan against onnxruntime on the file as it is, and what of them is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from edgebuild.base.errors import EdgebuildError
from edgebuild.model import ops
from edgebuild.model.formats import read_model
from edgebuild.model.passes.canonicalize import canonicalize
from tests.importers.test_onnx import onnxruntime_outputs

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(3)
W = RNG.standard_normal((4, 4)).astype(np.float32)


def value(name: str, kind: int = FLOAT, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def body(nodes: list[Any], inputs: list[Any], outputs: list[Any], **constants: Any) -> onnx.GraphProto:
    values = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    return helper.make_graph(nodes, "body", inputs, outputs, values)


def model(nodes: list[Any], shape: tuple[int, ...], outputs: tuple[str, ...] = ("y",), **constants: Any) -> bytes:
    graph = body(nodes, [value("x", FLOAT, shape)], [value(name) for name in outputs], **constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    proto = shape_inference.infer_shapes(proto)
    for output in proto.graph.output:
        if not output.type.tensor_type.HasField("shape"):  # a loop's, which are matrices here
            output.CopyFrom(value(output.name, FLOAT, [None, None]))
    return bytes(proto.SerializeToString())


def branch(tag: str, *operators: str) -> onnx.GraphProto:
    """Operators one behind the other on `m`, which is computed around it; both branches use the same names."""
    names = ["m", *(f"b{i}" for i in range(len(operators)))]
    nodes = [helper.make_node(name, [a], [b]) for name, a, b in zip(operators, names, names[1:], strict=False)]
    nodes.append(helper.make_node("Mul", [names[-1], "factor"], ["z"]))
    return body(nodes, [], [value("z")], factor=np.float32(0.5 if tag == "then" else 3.0))


def chosen(where: list[Any], **constants: Any) -> bytes:
    branches = {"then_branch": branch("then", "Relu", "Exp"), "else_branch": branch("else", "Neg")}
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Sub", ["a", "one"], ["m"]), *where]
    return model([*nodes, helper.make_node("If", ["yes"], ["y"], **branches)], (2, 3), one=np.float32(1), **constants)


def by_shape(size: int) -> bytes:
    """A condition on the shape, as exporters write it in front of Squeeze."""
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Gather", ["s", "at"], ["n"])]
    nodes.append(helper.make_node("Equal", ["n", "size"], ["yes"]))
    return chosen(nodes, at=np.array(1, np.int64), size=np.array(size, np.int64))


def by_value(size: float) -> bytes:
    nodes = [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0), helper.make_node("Greater", ["s", "b"], ["yes"])]
    return chosen(nodes, b=np.float32(size))


def repeated(turns: int) -> bytes:
    """v = tanh(v W + turn), and the sums of all turns side by side."""
    nodes = [
        helper.make_node("MatMul", ["v", "w"], ["p"]),
        helper.make_node("Cast", ["turn"], ["t"], to=FLOAT),
        helper.make_node("Add", ["p", "t"], ["q"]),
        helper.make_node("Tanh", ["q"], ["v1"]),
        helper.make_node("ReduceSum", ["v1", "axes"], ["s"], keepdims=0),
        helper.make_node("Identity", ["go"], ["go1"]),
    ]
    inputs = [value("turn", INT64, []), value("go", BOOL, []), value("v", FLOAT, [2, 4])]
    inner = body(nodes, inputs, [value("go1", BOOL, []), value("v1"), value("s")], axes=np.array([1], np.int64))
    loop = helper.make_node("Loop", ["turns", "yes", "x"], ["y", "z"], body=inner)
    return model([loop], (2, 4), ("y", "z"), turns=np.array(turns, np.int64), yes=np.array(True), w=W)


def until() -> bytes:
    """A condition that follows from the number of the turn; a note of what is around the body, without a type."""
    nodes = [helper.make_node("Add", ["v", "r"], ["v1"]), helper.make_node("Less", ["turn", "last"], ["go1"])]
    nodes.insert(0, helper.make_node("Reshape", ["b", "size"], ["r"]))
    inputs = [value("turn", INT64, []), value("go", BOOL, []), value("v", FLOAT, [2, 4])]
    constants = {"last": np.array(4, np.int64), "size": np.array([1], np.int64)}
    inner = body(nodes, inputs, [value("go1", BOOL, []), value("v1")], **constants)
    inner.value_info.add(name="b")
    loop = helper.make_node("Loop", ["", "yes", "x"], ["y"], body=inner)
    return model([helper.make_node("Neg", ["one"], ["b"]), loop], (2, 4), yes=np.array(True), one=np.float32(1))


def scanned(**attributes: Any) -> bytes:
    """A cell h = tanh(h W + x), one step for each index of the operand."""
    nodes = [
        helper.make_node("MatMul", ["h", "w"], ["p"]),
        helper.make_node("Add", ["p", "step"], ["q"]),
        helper.make_node("Tanh", ["q"], ["h1"]),
        helper.make_node("Neg", ["h1"], ["out"]),
    ]
    inner = body(nodes, [value("h", FLOAT, [3, 4]), value("step", FLOAT, [3, 4])], [value("h1"), value("out")])
    scan = helper.make_node("Scan", ["first", "x"], ["y", "z"], body=inner, num_scan_inputs=1, **attributes)
    axis = attributes.get("scan_input_axes", [0])[0]
    shape = (*(3, 4)[:axis], 5, *(3, 4)[axis:])
    return model([scan], shape, ("y", "z"), first=np.zeros((3, 4), np.float32), w=W)


CASES: dict[str, Callable[[], bytes]] = {
    "if of a shape, true": lambda: by_shape(3),
    "if of a shape, false": lambda: by_shape(2),
    "if of a value": lambda: by_value(0.0),
    "loop": lambda: repeated(5),
    "loop of one turn": lambda: repeated(1),
    "loop with a condition": until,
    "scan": scanned,
    "scan along columns": lambda: scanned(scan_input_axes=[1], scan_output_axes=[1]),
    "scan from behind": lambda: scanned(scan_input_directions=[1], scan_output_directions=[1]),
}


@pytest.mark.parametrize("case", CASES)
def test_control_flow(case: str, tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(CASES[case]())
    graph = canonicalize(read_model(file))
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal(graph.tensors["x"].shape).astype(np.float32)
        values = ops.run(graph, x)
        for name, want in zip(graph.outputs, onnxruntime_outputs(onnx.load(file), [x]), strict=True):
            np.testing.assert_allclose(values[name], want, rtol=1e-5, atol=1e-6)


def test_both_branches_of_a_computed_condition_run(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(by_value(0.0))
    graph = read_model(file)
    x = np.array([[1, -2, 0.5], [2, 0.1, 1]], np.float32)
    first, second = (ops.run(graph, v)[graph.outputs[0]] for v in (x, -x))
    np.testing.assert_allclose(first, np.exp(np.maximum(np.abs(x) - 1, 0)) * 0.5, rtol=1e-6)
    np.testing.assert_allclose(second, (np.abs(x) - 1) * -3, rtol=1e-6)


def computed_turns() -> bytes:
    inputs = [value("turn", INT64, []), value("go", BOOL, []), value("v", FLOAT, [2, 4])]
    nodes = [helper.make_node("Identity", ["go"], ["go1"]), helper.make_node("Neg", ["v"], ["v1"])]
    inner = body(nodes, inputs, [value("go1", BOOL, []), value("v1")])
    count = [helper.make_node("ReduceMax", ["x"], ["f"], keepdims=0), helper.make_node("Cast", ["f"], ["n"], to=INT64)]
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], body=inner)
    return model([*count, loop], (2, 4))


def test_bodies_that_hide_names_from_around_them(tmp_path: Path) -> None:
    """Each branch calls its result alike, and reads the one from around it. Names do not double with the depth."""
    within = other = body([helper.make_node("Neg", ["x"], ["o"])], [], [value("o")])
    for _ in range(20):
        nodes = [helper.make_node("If", ["yes"], ["o"], then_branch=within, else_branch=other),
                 helper.make_node("Add", ["o", "x"], ["p"]), helper.make_node("Add", ["p", "x"], ["o2"])]  # fmt: skip
        within = body(nodes, [], [value("o2")])
    data = model([helper.make_node("If", ["yes"], ["y"], then_branch=within, else_branch=other)], (2, 3), yes=True)
    (tmp_path / "m.onnx").write_bytes(data)
    graph = read_model(tmp_path / "m.onnx")
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_allclose(ops.run(graph, x)["y"], 39 * x, rtol=1e-5)
    assert max(map(len, graph.tensors)) < 500


def test_computed_turns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(computed_turns())
    with pytest.raises(EdgebuildError, match="number of turns is computed") as refusal:
        read_model(tmp_path / "m.onnx")
    assert "unrolled" in refusal.value.diagnostics[0].hints[0]


def test_branches_of_different_shapes_are_refused(tmp_path: Path) -> None:
    flat = body([helper.make_node("ReduceMax", ["m"], ["z"], keepdims=0)], [], [value("z")])
    data = onnx.load_from_string(by_value(0.0))
    (choice,) = (node for node in data.graph.node if node.op_type == "If")
    next(a for a in choice.attribute if a.name == "else_branch").g.CopyFrom(flat)
    onnx.save(data, tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match="branches give float32 of shape"):
        read_model(tmp_path / "m.onnx")
