"""ONNX files as the onnx package loads and checks them; what is wrong with one, in a sentence for each fault."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from ....base.errors import Diagnostic, EdgebuildError, fail, grouped
from ....base.inputs import MODEL, read_bytes
from ..builder import needed
from .control_flow import bodies, check_operators, graphs, reads
from .external import load_external
from .signatures import MICROSOFT, OWN_DOMAINS

UNLISTED = 4  # format of files whose constants are not among the inputs
NORMALISES = 17  # opset that first has LayerNormalization
# Operators that onnxruntime knows in the standard's domain; opset from which the standard does.
UNKNOWN_BEFORE = {"LayerNormalization": NORMALISES, "SimplifiedLayerNormalization": 1 << 31}
NOBODYS = "edgebuild.unknown"  # domain that the checker gets for operators that the standard has not
CUT = "the file is truncated or damaged; fetch or export it again"
FORBIDDEN = "the file is whole, but breaks the ONNX standard: onnx.checker.check_model refuses it, too; export it again"
UNKNOWN = "edgebuild ops lists what is supported; on constants any operator is computed beforehand"


def load(path: Path, file: str) -> onnx.ModelProto:
    """The model with its tensors from other files."""
    data = read_bytes(path, "cannot read the model", MODEL)
    try:
        model = onnx.load_model_from_string(data)
    except Exception:  # of protobuf, whose classes differ by its implementation
        raise fail("not a valid ONNX model: no whole message of protobuf", file=file, hints=[CUT]) from None
    if not model.HasField("graph"):
        raise fail("not a valid ONNX model: it has no graph", file=file, hints=[CUT])
    if any(isinstance(name, bytes) for name in _names(model)):  # how protobuf gives what is no UTF-8
        raise fail("not a valid ONNX model: a name is not UTF-8", file=file, hints=[FORBIDDEN])
    if b"location" in data:
        load_external(model, path, file)
    check_operators(model, file)
    return model


def opset_of(model: onnx.ModelProto) -> int:
    """The model's opset of the standard's own operators; 0 if it has none."""
    return next((o.version for o in model.opset_import if o.domain in OWN_DOMAINS), 0)


def as_checked(model: onnx.ModelProto, file: str) -> None:
    """Bring what onnxruntime reads and its tools write into what the standard's checker accepts.

    Nodes stand behind those that they read. Operators of its own that it counts to the standard are of its domain.
    Constants of old files need not be inputs, too. Sizes below 0 are open.
    Raises EdgebuildError if nodes read each other or what is not there.
    """
    model.ir_version = UNLISTED if model.ir_version == UNLISTED - 1 else model.ir_version
    opset = opset_of(model)
    nodes = [node for part in graphs(model.graph) for node in part.node]
    strange = [n for n in nodes if n.domain in OWN_DOMAINS and opset < UNKNOWN_BEFORE.get(n.op_type, 0)]
    for node in strange:
        node.domain = MICROSOFT
    if strange and not any(o.domain == MICROSOFT for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    for value in (v for part in graphs(model.graph) for v in (*part.input, *part.value_info, *part.output)):
        for dim in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
            if dim.dim_value < 0:  # how Paddle writes a size that is open
                dim.ClearField("dim_value")
    if problems := list(_undefined(model.graph, frozenset(), file)):
        raise grouped(problems)
    _sort(model.graph, file)


def _undefined(graph: onnx.GraphProto, outer: frozenset[str], file: str) -> Iterator[Diagnostic]:
    """Names that nodes read and nothing computes. `outer`: those from around a body."""
    own = {*(v.name for v in graph.input), *(t.name for t in graph.initializer)}
    own |= {t.values.name for t in graph.sparse_initializer}
    names = outer | own | {name for node in graph.node for name in node.output}
    for node in graph.node:
        for name in (name for name in node.input if name and name not in names):
            yield _of(node, f"reads '{name}', which nothing computes", file)
        for body in bodies(node):
            yield from _undefined(body, names, file)


def _sort(graph: onnx.GraphProto, file: str) -> None:
    """Bring the nodes of the graph into an order in which each stands behind those that it reads."""
    nodes = list(graph.node)
    maker = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    before = {at: {maker[name] for name in reads(node) if name in maker} for at, node in enumerate(nodes)}
    if any(max(makers, default=-1) >= at for at, makers in before.items()):
        try:
            order = list(TopologicalSorter(before).static_order())
        except CycleError as circle:
            ways = [nodes[at].name or nodes[at].output[0] for at in circle.args[1]]
            text = f"its result is needed to compute it: {' <- '.join(reversed(ways))}"
            raise EdgebuildError(_of(nodes[circle.args[1][-1]], text, file)) from None
        del graph.node[:]
        graph.node.extend(nodes[at] for at in order)


def _of(node: onnx.NodeProto, text: str, file: str, hints: Sequence[str] = (FORBIDDEN,)) -> Diagnostic:
    name = node.name or next(iter(node.output), "")
    return Diagnostic(text, file, node=name, kind=node.op_type, hints=tuple(hints))


def check(model: onnx.ModelProto, file: str, outputs: Sequence[str]) -> None:
    """Raise EdgebuildError for what breaks the standard, and for unknown operators that these outputs need.

    Shapes that the file notes of results do not count, nor notes of constants: tf2onnx rounds some sizes otherwise than
    onnx does; skl2onnx notes some ranks wrongly, or none of an output.
    """
    wanted = needed([(reads(node), node.output) for node in model.graph.node], outputs)
    nodes = [node for node, used in zip(model.graph.node, wanted, strict=True) if used]
    if problems := [_of(node, text, file, [UNKNOWN]) for node in nodes if (text := unknown(model, node))]:
        raise grouped(problems)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in (node for part in graphs(copy.graph) for node in part.node if unknown(model, node)):
        node.domain = NOBODYS  # of a body, which may never run
    copy.opset_import.append(helper.make_opsetid(NOBODYS, 1))
    for value in copy.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(copy)
        _forget_shapes(copy)
        onnx.shape_inference.infer_shapes(copy, check_type=True, strict_mode=True)
    except Exception as problem:  # the checker and the inference have no common base class
        raise EdgebuildError(_told(problem, file)) from None


def unknown(model: onnx.ModelProto, node: onnx.NodeProto) -> str:
    """The error for a node of the standard's domain whose operator its opset does not have."""
    opset = opset_of(model)
    if node.domain not in OWN_DOMAINS or not opset or onnx.defs.has(node.op_type, opset):
        return ""
    if not onnx.defs.has(node.op_type):
        return f"operator {node.op_type} is not supported: the ONNX standard has none of this name"
    first = min(s.since_version for s in onnx.defs.get_all_schemas_with_history()
                if (s.name, s.domain) == (node.op_type, ""))  # fmt: skip
    return f"operator {node.op_type} is not supported in opset {opset}: the ONNX standard has it from {first} on"


def _forget_shapes(model: onnx.ModelProto) -> None:
    """Of results, of constants, and sizes of inputs that are 0, which some exporters write for open ones."""
    for dim in (d for v in model.graph.input if v.type.HasField("tensor_type") for d in v.type.tensor_type.shape.dim):
        if dim.HasField("dim_value") and not dim.dim_value:
            dim.ClearField("dim_value")
    for part in (*graphs(model.graph), *(graph for f in model.functions for graph in _bodies_of(f.node))):
        constants = {t.name for t in part.initializer}
        kept = [value for value in part.value_info if value.name not in constants]
        del part.value_info[:]
        part.value_info.extend(kept)
        for value in (*part.value_info, *part.output):
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.ClearField("shape")


def _bodies_of(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    yield from (part for node in nodes for body in bodies(node) for part in graphs(body))


def _names(model: onnx.ModelProto) -> Iterator[Any]:
    yield from (opset.domain for opset in model.opset_import)
    for part in graphs(model.graph):
        for node in part.node:
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            yield from (attribute.name for attribute in node.attribute)
        yield from (value.name for value in (*part.input, *part.output, *part.value_info, *part.initializer))


NODE = re.compile(r"Name: (?P<node>.*?) OpType: (?P<kind>\w+)")
INFERENCE = re.compile(r"\(op_type:(?P<kind>\w+)(?:, node name: (?P<node>.*?))?\): (?:\[\w+\] )?(?P<text>[^\n]*)")


def _told(problem: Exception, file: str) -> Diagnostic:
    """The error for what the onnx package says of a model, with the node that it names."""
    words, text = str(problem), _first_line(problem)
    seen = INFERENCE.search(words) or NODE.search(words)
    parts = seen.groupdict() if seen else {}
    return Diagnostic(
        f"not a valid ONNX model: {parts.get('text') or text}",
        file,
        node=parts.get("node") or "",
        kind=parts.get("kind") or "",
        hints=(FORBIDDEN,),
    )


def _first_line(problem: Exception) -> str:
    lines = str(problem).strip().splitlines()
    return lines[0] if lines else type(problem).__name__
