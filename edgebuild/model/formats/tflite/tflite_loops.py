"""WHILE of TFLite files whose turns are known beforehand, such as Keras' recurrent layers, is unrolled; and IF.

Its counters are constants in each turn, so that the condition is one, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...ops.pointwise import attributes
from ..builder import MOST_OPS, MOST_TURNS
from .tflite_variables import Variables

Read = Callable[[int, Sequence[str], str], list[str]]  # number of a subgraph, inputs, prefix of names -> outputs


def unroll(node: Any, read: Read, variables: Variables) -> None:
    """Read the body once for each turn, on the values of the turn before."""
    options, tensors = node.options("WhileOptions"), node.builder.tensors
    values = [name if name in variables.handles else node.tensor(i).name for i, name in enumerate(node.inputs)]
    if min(options.CondSubgraphIndex(), options.BodySubgraphIndex()) < 1:
        raise node.error("a loop around the whole model", "the file is damaged; fetch or export it again")
    for turn in range(MOST_TURNS + 1):
        (condition,) = read(options.CondSubgraphIndex(), values, f"{node.name}/condition{turn}")
        if tensors[condition].data is None:
            raise node.error("the number of turns is computed by the graph", "loops are unrolled; give them a constant")
        if not tensors[condition].data.all():
            break
        values = read(options.BodySubgraphIndex(), values, f"{node.name}/{turn}")
        if len(node.builder.ops) > MOST_OPS:
            raise node.error(f"more than {MOST_OPS} operators once its loops are unrolled")
    else:
        raise node.error(f"more than {MOST_TURNS} turns", f"loops are unrolled, up to {MOST_TURNS} turns")
    _ends(node, values, variables)


def choose(node: Any, read: Read, variables: Variables) -> None:
    """IF: one branch where the condition is known, else both, of which each element of the result takes one."""
    options, tensors, condition = node.options("IfOptions"), node.builder.tensors, node.tensor(0)
    numbers = options.ThenSubgraphIndex(), options.ElseSubgraphIndex()
    if min(numbers) < 1:
        raise node.error("a branch around the whole model", "the file is damaged; fetch or export it again")
    given = node.inputs[1:]
    if condition.data is not None:
        taken = numbers[not condition.data.all()]
        return _ends(node, read(taken, given, f"{node.name}/{taken}"), variables)
    branches = [partial(read, number, given, f"{node.name}/{i}/{number}") for i, number in enumerate(numbers)]
    for i, (yes, no) in enumerate(zip(*variables.choose(node, branches), strict=True)):
        a, b = tensors[yes], tensors[no]
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            seen = f"branches give {a.dtype} of shape {a.shape} and {b.dtype} of shape {b.shape}"
            raise node.error(seen, "both are computed where the condition is; give them one type and shape")
        name = node.reshaped(node.inputs[0], (1,) * len(a.shape))
        node.emit("pointwise", [name, yes, no], output=i, **{**attributes("where"), "to": a.dtype})


def _ends(node: Any, values: Sequence[str], variables: Variables) -> None:
    """The node's outputs are these tensors, or the variables behind these handles."""
    tensors = node.builder.tensors
    for i, (name, y) in enumerate(zip(values, node.written, strict=True)):
        if name in variables.handles:
            variables.handles[y.name] = variables.handles[name]
            continue
        value = tensors[name]
        if value.constant:
            tensors[y.name] = replace(y, data=value.data)
        else:
            node.emit("reshape", [name], output=i, shape=y.shape)
