"""If, Loop and Scan of ONNX files: bodies are read into the graph around them, those of loops once per turn.

Counters are constants in each turn, so conditions and shapes that depend on them are constants, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
import onnx

from ....base.errors import fail
from ...ir import Tensor
from ..builder import MAX_OPS, MAX_TURNS
from ..compose import axis_of, emit_branch

Read = Callable[[Any, onnx.GraphProto, Sequence[str], str], list[str]]  # node, body, inputs, prefix of names -> outputs
UNROLLED = f"loops are unrolled, up to {MAX_TURNS} turns"


def check_operators(model: onnx.ModelProto, file: str) -> None:
    """Raise EdgebuildError if inlining all functions gave more than MAX_OPS nodes, or if functions are recursive.

    Nodes are counted without inlining, because nested calls may grow exponentially.
    """
    calls = {(f.domain, f.name): [_called(node) for part in graphs(f) for node in part.node] for f in model.functions}
    counts = dict[tuple[str, str], int]()
    try:
        for name in TopologicalSorter(calls).static_order():
            counts[name] = sum(counts[called] for called in calls[name]) if name in calls else 1
    except CycleError:
        raise fail("functions of the model call each other in a circle", file=file) from None
    count = sum(counts.get(_called(node), 1) for part in graphs(model.graph) for node in part.node)
    if count > MAX_OPS:
        raise fail(f"the model has {count} operators; at most {MAX_OPS} are read", file=file)


def _called(node: onnx.NodeProto) -> tuple[str, str]:
    return node.domain, node.op_type


def copied(body: onnx.GraphProto, given: Sequence[str], prefix: str) -> tuple[onnx.GraphProto, list[str]]:
    """A copy of the body on the inputs `given`, with `prefix` before its own names, and the names of its outputs."""
    copy = onnx.GraphProto()
    copy.CopyFrom(body)
    ports = dict(zip((v.name for v in body.input), given, strict=True))
    names = {name: prefix + name for name in _body_names(body) if name not in ports} | ports
    for constant in copy.initializer:
        constant.name = names[constant.name]
    for node in copy.node:
        node.name = prefix + (node.name or node.output[0])
    _rename(copy, names)
    return copy, [names.get(v.name, v.name) for v in body.output]


def _body_names(graph: onnx.GraphProto) -> set[str]:
    """Names of a body's results, constants and inputs."""
    results = {name for node in graph.node for name in node.output if name}
    return results | {value.name for value in (*graph.initializer, *graph.input)}


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename tensors in nodes and their bodies. A body's own names hide equal outer ones."""
    for node in graph.node:
        for ports in (node.input, node.output):
            ports[:] = [names.get(name, name) for name in ports]
        for body in bodies(node):
            hidden = _body_names(body)
            outer = {name: new for name, new in names.items() if name not in hidden}
            _rename(body, outer)
            for value in body.output:
                value.name = outer.get(value.name, value.name)


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    yield from (a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)


def graphs(graph: Any) -> Iterator[Any]:
    """The graph or function, and the bodies of its nodes at any depth."""
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from graphs(body)


def reads(node: onnx.NodeProto) -> list[str]:
    """All names that a node and its bodies read."""
    inner = [name for body in bodies(node) for part in body.node for name in reads(part)]
    return [*node.input, *inner, *(value.name for body in bodies(node) for value in body.output)]


def choice(node: Any, read: Read) -> None:
    """Read If: one branch if the condition is constant, else both branches and a selection of their results."""
    branches = [node.attributes[name] for name in ("then_branch", "else_branch")]
    condition_value = node.tensor(0).data
    if condition_value is not None:
        index = int(not condition_value.any())
        return _emit_outputs(node, read(node, branches[index], [], f"{node.name}/{index}/"))
    condition = node.reshaped(node.inputs[0], ())
    results = zip(*(read(node, branch, [], f"{node.name}/{i}/") for i, branch in enumerate(branches)), strict=True)
    for output, (yes, no) in enumerate(results):
        if node.outputs[output]:
            emit_branch(node, condition, yes, no, output)


def loop(node: Any, read: Read) -> None:
    """Read Loop, unrolled. Raises EdgebuildError if the number of turns or the condition is computed."""
    most = _constant(node, 0, "the number of turns") if node.inputs[0] else None
    go = _constant(node, 1, "the condition") if node.has(1) else True
    body, values, turns = node.attributes["body"], list(node.inputs[2:]), list[list[str]]()
    while go and (most is None or len(turns) < most):
        _bounded(node, len(turns) + 1)
        turn, carried = len(turns), len(node.inputs) - 2
        counters = [
            node.store(f"{node.outputs[0]}@turn{turn}", np.array(turn)),
            node.store(f"{node.outputs[0]}@go{turn}", np.array(True)),
        ]
        again, *results = read(node, body, [*counters, *values], f"{node.name}/{turn}/")
        values = results[:carried]
        turns.append(results[carried:])
        ended = node.builder.tensors[again].data
        if ended is None:
            raise node.error("the condition is computed by the graph", UNROLLED)
        go = bool(ended.all())
    scans = len(node.outputs) - len(values)
    _emit_outputs(node, [*values, *(_stacked(node, [t[i] for t in turns], 0) for i in range(scans))])


def scan(node: Any, read: Read) -> None:
    """Read Scan, unrolled: one turn per index of the scanned operands."""
    count = node.attributes.get("num_scan_inputs", 0)
    if node.opset < 9 or not 0 < count <= len(node.inputs):
        raise node.error(f"Scan of opset {node.opset}", "it is supported from opset 9 on")
    states = len(node.inputs) - count
    along, values = [node.tensor(states + i) for i in range(count)], list(node.inputs[:states])
    axes = [
        axis_of(node, a, len(x.shape)) for a, x in zip(node.attr("scan_input_axes", [0] * count), along, strict=True)
    ]
    backwards = node.attr("scan_input_directions", [0] * count)
    length, turns = along[0].shape[axes[0]], list[list[str]]()
    if len({x.shape[axis] for x, axis in zip(along, axes, strict=True)}) > 1:
        raise node.error(f"operands of shapes {', '.join(str(x.shape) for x in along)}", "they go along one length")
    _bounded(node, length)
    for turn in range(length):
        at = [length - 1 - turn if back else turn for back in backwards]
        slices = [_sliced(node, x, axis, i) for x, axis, i in zip(along, axes, at, strict=True)]
        results = read(node, node.attributes["body"], [*values, *slices], f"{node.name}/{turn}/")
        _bounded(node, length)
        values = results[:states]
        turns.append(results[states:])
    scans = len(node.outputs) - states
    places, turned = (node.attr(f"scan_output_{what}", [0] * scans) for what in ("axes", "directions"))
    scanned = [[t[i] for t in turns][:: -1 if turned[i] else 1] for i in range(scans)]
    _emit_outputs(node, [*values, *(_stacked(node, parts, axis) for parts, axis in zip(scanned, places, strict=True))])


def _constant(node: Any, position: int, what: str) -> int:
    data = node.tensor(position).data
    if data is None:
        raise node.error(f"{what} is computed by the graph", f"give it as a constant: {UNROLLED}")
    return int(np.ravel(data)[0])


def _bounded(node: Any, turns: int) -> None:
    if turns > MAX_TURNS:
        raise node.error(f"more than {MAX_TURNS} turns", UNROLLED)
    if len(node.builder.ops) > MAX_OPS or len(node.builder.tensors) > 2 * MAX_OPS:  # folded loops only add tensors
        raise node.error(f"more than {MAX_OPS} operators once its loops are unrolled")


def _sliced(node: Any, x: Tensor, axis: int, at: int) -> str:
    """Name of the slice at one index of an axis, without that dimension."""
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    if x.data is not None:
        return node.store(f"{node.outputs[0]}@{x.name}{at}", np.ascontiguousarray(x.data.take(at, axis)).reshape(shape))
    begin, size = (tuple(n if d == axis else other for d, other in enumerate(all_)) for n, all_ in
                   ((at, (0,) * len(x.shape)), (1, x.shape)))  # fmt: skip
    return str(node.reshaped(node.inner("slice", [x.name], begin=begin, size=size), shape))


def _stacked(node: Any, parts: list[str], axis: int) -> str:
    """Name of the values of all turns, stacked along a new dimension."""
    if not parts:
        raise node.error("a loop without turns", "its result is empty")
    tensors = [node.builder.tensors[name] for name in parts]
    rank = len(tensors[0].shape) + 1
    axis = axis_of(node, axis, rank)
    if all(t.constant and t.quant is None for t in tensors):
        return node.store(
            f"{node.outputs[0]}@stacked{len(node.builder.tensors)}", np.stack([t.data for t in tensors], axis)
        )
    wide = [node.reshaped(t.name, (*t.shape[:axis], 1, *t.shape[axis:])) for t in tensors]
    return str(node.inner("concat", wide, axis=axis)) if len(wide) > 1 else str(wide[0])


def _emit_outputs(node: Any, names: Sequence[str]) -> None:
    """Emit these tensors as the node's outputs."""
    for output, name in enumerate(names):
        t = node.builder.tensors[name]
        if output >= len(node.outputs) or not node.outputs[output]:
            continue
        if t.constant:
            node.builder.tensors[node.outputs[output]] = replace(t, name=node.outputs[output])
        else:
            node.emit("reshape", [name], output=output, shape=t.shape)


CONTROL: Mapping[str, Callable[[Any, Read], None]] = {"If": choice, "Loop": loop, "Scan": scan}
