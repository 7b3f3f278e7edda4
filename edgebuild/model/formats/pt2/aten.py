"""Exported programs of PyTorch as graphs: nodes with their arguments by name, constants and state."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from zipfile import BadZipFile

from ....base.errors import EdgebuildError, did_you_mean, fail
from ...arithmetic import Arithmetic
from ...ir import Graph, Tensor
from ..builder import MOST_OPS, GraphBuilder, Node, checked_size, needed
from ..named_arguments import tensors_of
from .archive import AGAIN, Archive, AtenNode, value_of
from .aten_operators import READERS

UNKNOWN = "edgebuild ops pt2 lists what is supported; ExportedProgram.run_decompositions() makes simpler operators"
MOST_COMPUTED = 1 << 24  # elements of a constant that is computed while the file is read
BROKEN = (ArithmeticError, AttributeError, EOFError, LookupError, RuntimeError, TypeError, ValueError, BadZipFile)


def read_pt2(path: Path, file: str, outputs: Sequence[str] = ()) -> Graph:
    """An exported program, up to its outputs or these, as a graph in "onnx" arithmetic: halves are rounded to even."""
    try:
        return _read(Archive(path, file), file, outputs)
    except EdgebuildError:
        raise
    except BROKEN as problem:
        text = f"not a valid .pt2 file: {type(problem).__name__}: {str(problem)[:200]}"
        raise fail(text, file=file, hints=[f"the file is damaged; {AGAIN}"]) from None


def _read(archive: Archive, file: str, wanted: Sequence[str]) -> Graph:
    module, builder = archive.program["graph_module"], GraphBuilder(file, Arithmetic.ONNX)
    graph, signature = module["graph"], module["signature"]
    results = [(kind, own) for spec in signature["output_specs"] for kind, own in spec.items()]
    states = {own["buffer_name"]: own["arg"]["name"] for kind, own in results if kind == "buffer_mutation"}
    ends = [name for kind, own in results if kind == "user_output" for name in tensors_of(value_of(own["arg"]))]
    if len(graph["nodes"]) > MOST_OPS or (others := {k for k, _ in results} - {"buffer_mutation", "user_output"}):
        text = f"a program of {len(graph['nodes'])} nodes with results of the kinds {sorted(others)}"
        raise fail(text, file=file, hints=[f"supported: {MOST_OPS} nodes, tensors, buffers that change"])
    inputs = []
    for kind, own in ((kind, own) for spec in signature["input_specs"] for kind, own in spec.items()):
        if kind in ("parameter", "buffer", "tensor_constant"):
            name, key = own["arg"]["name"], own[f"{kind}_name"]
            data = archive.constant(key)
            t = Tensor(name, data.shape, str(data.dtype), None, None if key in states else data)
            if key in states:
                builder.states.append((name, states[key], data))
        elif "as_tensor" in own.get("arg", ()):
            inputs.append(name := own["arg"]["as_tensor"]["name"])
            dtype, shape = archive.type_of(graph["tensor_values"][name], name)
            t = Tensor(name, shape, dtype)
        elif kind in ("user_input", "constant_input"):
            continue  # a number that the nodes' arguments have, too
        else:
            raise fail(f"the program has an input of kind {kind}", file=file, hints=["supported: tensors"])
        builder.tensors[name] = checked_size(t, file)
    nodes = [AtenNode(builder, entry, archive) for entry in graph["nodes"]]
    written = {name for node in nodes for name in node.outputs}
    for name in set(wanted) - written:
        raise fail(f"option 'outputs': no node writes '{name}'{did_you_mean(name, sorted(written))}", file=file)
    ends = list(wanted) or ends
    serving = needed([(n.inputs, n.outputs) for n in nodes], [*ends, *states.values()])
    builder.read([n for n, used in zip(nodes, serving, strict=True) if used], _known, _read_node, ends)
    return builder.finish(inputs, ends)


def _known(node: Node) -> None:
    if node.origin not in READERS:
        raise node.error(f"operator {node.origin} is not supported", UNKNOWN)


def _read_node(node: Node) -> None:
    assert isinstance(node, AtenNode)
    for name in node.inputs:
        if name in node.builder.unmade or name not in node.builder.tensors:
            raise node.builder.unmade.get(name) or node.error(f"reads '{name}', which nothing computes")
    read, first = [node.builder.tensors[name] for name in node.inputs], len(node.builder.ops)
    constant, shape = all(t.constant and t.quant is None for t in read), node.output_type()[1]
    if constant and prod(shape) > MOST_COMPUTED:
        raise node.error(f"a constant of shape {shape} is too large", "compute it in the application")
    READERS[node.origin](node)
    if constant:
        node.builder.compute(first)
    node.check()
