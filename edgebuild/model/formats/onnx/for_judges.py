"""Files of whole numbers that are stored as real ones as a judge computes them: nodes of the standard, in doubles.

float32 rounds products above 2^24, which the integers of the firmware do not.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper

from .control_flow import graphs
from .fused import Fused
from .integer_nodes import ENDS, NODES, Operands
from .integers import DOMAIN, REQUANT, WHOLE_TYPES, Numbers, bounds_of, name_domain
from .onnx_checks import opset_of

LINEAR = ("Mul", "Add", "Div")
BYTES, POSITIVE = (-128, 255), (0, 255)  # of an operand of either sign, for the judge sees no types, and of a divisor


def in_standard(model: onnx.ModelProto) -> None:
    """Put operators of the standard in the place of others, and compute in doubles what is rounded to integers."""
    name_domain(model)
    numbers = Numbers(model, "")
    for graph in graphs(model.graph):
        foreign = [node for node in graph.node if node.domain == DOMAIN]
        wide = _before_rounding([node for node in graph.node if node not in foreign])
        if not foreign and not wide:
            continue
        nodes = [new for node in graph.node for part in _standard(node, numbers) for new in _in_doubles(part, wide)]
        del graph.node[:]
        graph.node.extend(nodes)
        for node in graph.node:  # whose names must differ
            node.name = ""


def _standard(node: onnx.NodeProto, numbers: Numbers) -> Iterator[onnx.NodeProto]:
    """A node of whole numbers, in integers and doubles; other nodes as they are."""
    f = Fused(node, numbers.graph, "")
    if node.domain != DOMAIN:
        yield node
        return
    if node.op_type == REQUANT:
        names = [f.between(f"wide{at}") for at in range(3)]
        yield from (f.op("Cast", [f.at(at)], names[at], to=TensorProto.DOUBLE) for at in range(3))
        yield from _scaled(f, names, f.whole("div"), bounds_of(f), 0.5, f.between("own"))
    else:
        yield from _factored(f) if node.op_type == "Add" else _of_integers(f, numbers)
    yield f.op("Cast", [f.between("own")], to=TensorProto.FLOAT)


def _factored(f: Fused) -> Iterator[onnx.NodeProto]:
    """An Add with factors: each operand, and then the sum, is first requantised where the node says so."""
    names = list[str]()
    for which, x in (("in1", f.at(0)), ("in2", f.at(1)), ("out", f.between("sum"))):
        if which == "out":
            yield f.op("Add", names, x)
        names.append(f.between("own" if which == "out" else which))
        wide = f.between(f"{which}@wide")
        yield f.op("Cast", [x], wide, to=TensorProto.DOUBLE)
        scaled = f.attributes.get(f"{which}_rq", 0)
        own = {n: f.whole(f"{which}_{n}") if scaled else 0 for n in ("mul", "add", "shift", "n_levels")}
        constants = [f.constant(f"{which}@{n}", np.float64(own[n] if scaled else n == "mul")) for n in ("mul", "add")]
        ends = (0, own["n_levels"] - 1) if scaled else ENDS
        yield from _scaled(f, [wide, *constants], 1 << own["shift"], ends, 0.0, names[-1])


def _of_integers(f: Fused, numbers: Numbers) -> Iterator[onnx.NodeProto]:
    """A node of `integer_nodes`, of which this computes the same text."""
    names = list(f.node.input)
    constants = {at: number for at, name in enumerate(names) if (number := numbers.number(name)) is not None}
    whole = [f.between(f"whole{at}") for at in range(len(names))]
    yield from (f.op("Cast", [name], y, to=TensorProto.INT32) for name, y in zip(names, whole, strict=True))
    shape, opset = numbers.shapes.get(names[0], []), opset_of(numbers.model)
    meaning = NODES[f.node.op_type](Operands(f, [BYTES, POSITIVE], shape, constants, opset))
    yield from meaning.nodes(f, [name for at, name in enumerate(whole) if at not in constants])
    result, wide = f.between("r") if meaning.text else whole[0], f.between("r in doubles")
    yield f.op("Cast", [result], wide, to=TensorProto.DOUBLE)
    factors = [f.constant(f"factor{at}", n.astype(np.float64)) for at, n in enumerate((meaning.factor, meaning.added))]
    yield from _scaled(f, [wide, *factors], meaning.divisor, meaning.ends, 0.0, f.between("own"))


def _scaled(
    f: Fused, operands: list[str], div: int, ends: tuple[int, int], half: float, output: str
) -> Iterator[onnx.NodeProto]:
    """floor((x * mul + add) / div + half) between the ends."""
    numbers = {"div": div, "half": half, "low": ends[0], "high": ends[1]}
    named = [f.constant(f"{output}@{name}", np.float64(number)) for name, number in numbers.items()]
    steps = (
        ("Mul", operands[1]),
        ("Add", operands[2]),
        *zip(("Div", "Add", "Floor", "Max", "Min"), [*named[:2], "", *named[2:]], strict=True),
    )
    x = operands[0]
    for number, (operator, other) in enumerate(steps):
        result = output if number == len(steps) - 1 else f"{output}@{number}"
        yield f.op(operator, [x, other] if other else [x], result)
        x = result


def _before_rounding(nodes: list[onnx.NodeProto]) -> set[str]:
    """Results of products, sums and quotients of reals that come to a Floor or a Cast to integers, and of the Floor."""
    makers = {name: node for node in nodes for name in node.output}
    typed = set[str]()
    for node in nodes:
        to = next((a.i for a in node.attribute if a.name == "to"), None)
        if to in WHOLE_TYPES or (node.op_type in LINEAR and typed.intersection(node.input)):
            typed |= {*node.output}
    ends = [n for n in nodes if n.op_type == "Floor" or (n.op_type == "Cast" and typed.intersection(n.output))]
    todo = [name for n in ends for name in (n.output if n.op_type == "Floor" else n.input)]
    wide = set[str]()
    while todo:
        name = todo.pop()
        if name in makers and name not in wide | typed and makers[name].op_type in (*LINEAR, "Floor"):
            wide.add(name)
            todo += makers[name].input
    return wide


def _in_doubles(node: onnx.NodeProto, wide: set[str]) -> Iterator[onnx.NodeProto]:
    """The node, whose result is a double if it is one of these; readers of others than these get it in float32."""
    if node.op_type == "Cast" and node.input[0] in wide:
        node.input[0] += "@double"
    if wide.isdisjoint(node.output):
        yield node
        return
    y = node.output[0]
    for at, name in enumerate(list(node.input)):
        node.input[at] = f"{name}@double" if name in wide else f"{y}@operand{at}"
        if name not in wide:
            yield helper.make_node("Cast", [name], [node.input[at]], to=TensorProto.DOUBLE)
    node.output[0] += "@double"
    yield node
    yield helper.make_node("Cast", [node.output[0]], [y], to=TensorProto.FLOAT)
