"""Programs of torch.export as data that PyTorch's exporter to ONNX may be given: operators of ATen, numbers, tensors.

PyTorch's own `torch.export.load` unpickles, looks targets up by `getattr` from the module `torch` on, and evaluates
expressions of sizes. So it never sees a file: whoever wrote that chooses here among operators, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from ....base.errors import EdgebuildError, fail, visible
from ....base.inputs import MODEL
from ...ir import Array
from ..builder import MOST_OPS
from ..named_arguments import tensors_of
from .aten import AGAIN, REALS, TYPES, Archive, damaged, value_of

INNER = ("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "_log_softmax", "_native_batch_norm_legit_no_training",
         "_prelu_kernel", "_softmax", "_to_copy", "_unsafe_view", "_weight_norm_interface")  # fmt: skip
CHECKS = ("_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size")
TARGET = re.compile(rf"torch\.ops\.aten\.((?:[a-z][a-z0-9_]*|{'|'.join((*INNER, *CHECKS))})\.[A-Za-z0-9_]+)")
TEXTS = ("", "none", "tanh", "constant", "reflect", "replicate", "circular", "mean", "sum", "same", "valid", "floor",
         "trunc", "bilinear", "bicubic", "nearest", "left", "right")  # fmt: skip  # no operator takes one for a file
PLACES = ("as_none", "as_memory_format", "as_layout", "as_device")
SIMPLE = ("as_int", "as_ints", "as_float", "as_floats", "as_bool", "as_bools")
SHAPES = "its program has operators of the graph's control flow, or values that are no tensors and no numbers"


def admitted(path: Path, file: str) -> tuple[dict[str, Any], list[Array]]:
    """The program as JSON for `exporter_process.py`, and its constants in their order.

    Sizes that the file leaves open: 1 for the first one of an input, which is the batch; of others, those of the
    example that it was exported with. Raises EdgebuildError for all that is not operators of ATen on tensors.
    """
    with damaged(file):
        return _program(Archive(path, file), file)


def _program(archive: Archive, file: str) -> tuple[dict[str, Any], list[Array]]:
    graph, signature = (archive.program["graph_module"][part] for part in ("graph", "signature"))
    inputs, constants = dict[str, Any](), dict[str, Array]()
    for kind, own in (item for spec in signature["input_specs"] for item in spec.items()):
        if kind in ("parameter", "buffer", "tensor_constant"):
            constants[own["arg"]["name"]] = archive.constant(own[f"{kind}_name"])
        elif kind == "user_input" and "as_tensor" in own["arg"]:
            name = own["arg"]["as_tensor"]["name"]
            inputs[name] = _input(archive, graph["tensor_values"][name], name)
        else:
            raise fail(f"the program has an input of kind {kind}", file=file, hints=["supported: tensors"])
    results = [item for spec in signature["output_specs"] for item in spec.items()]
    if others := sorted({kind for kind, _ in results} - {"user_output"}):
        hint = "a network whose state changes is read without an exporter, and not quantised"
        raise fail(f"the program has results of kind {others[0]}", file=file, hints=[hint])
    if len(graph["nodes"]) > MOST_OPS:
        raise fail(f"the program has {len(graph['nodes'])} nodes", file=file, hints=[f"supported: {MOST_OPS}"])
    nodes, seen = [_node(entry, file) for entry in graph["nodes"]], {*inputs, *constants}
    nodes = [node for node in nodes if node["target"].partition(".")[0] not in CHECKS]
    for node in nodes:
        if missing := sorted(_names(node["arguments"].values()) - seen):
            raise _error(node, file, f"reads '{visible(missing[0])}', which nothing computes")
        seen |= {*node["outputs"]}
    ends = [name for _, own in results for name in tensors_of(value_of(own["arg"]))]
    if not ends or not inputs or not seen.issuperset(ends):
        raise fail("the program has no input, or no result that it computes", file=file, hints=[AGAIN])
    program = {"inputs": inputs, "constants": list(constants), "nodes": nodes, "outputs": ends}
    return program, list(constants.values())


def _input(archive: Archive, meta: Mapping[str, Any], name: str) -> dict[str, Any]:
    sizes = [
        size if "as_int" in size else {"as_int": 1} if not axis else size["as_expr"]["hint"]
        for axis, size in enumerate(meta["sizes"])
    ]
    dtype, shape = archive.type_of({**meta, "sizes": sizes}, name)
    if prod(shape) > MODEL:
        raise fail(f"input '{visible(name)}' has the shape {shape}", file=archive.file, hints=["give a smaller one"])
    return {"shape": shape, "dtype": dtype}


def _node(entry: Mapping[str, Any], file: str) -> dict[str, Any]:
    target = TARGET.fullmatch(str(entry["target"]))
    outputs = [name for out in entry["outputs"] for name in tensors_of(value_of(out)) or _numbers(out)]
    node: dict[str, Any] = {
        "target": target[1] if target else str(entry["target"]),
        "outputs": outputs,
        "arguments": {},
    }
    if target is None:
        raise _error(node, file, "is no operator of ATen", "PyTorch's exporter is given these alone")
    node["several"] = any("as_tensors" in out for out in entry["outputs"])
    for one in entry["inputs"]:
        ((kind, value),) = one["arg"].items()
        if kind in PLACES:
            continue
        if one["name"] in ("train", "training") and value:
            raise _error(node, file, "is one of training", "export the model behind model.eval()")
        node["arguments"][str(one["name"])] = _argument(node, kind, value, file)
    return node


def _numbers(out: Mapping[str, Any]) -> list[str]:
    """The name of a result that is a size of a shape."""
    return [str(value["as_name"]) for value in out.values() if isinstance(value, Mapping) and "as_name" in value]


def _argument(node: Mapping[str, Any], kind: str, value: Any, file: str) -> Any:
    """An argument: numbers as they are, `{"of": name}` for a value of the graph, `{"dtype": name}`."""
    match kind:
        case "as_tensor" | "as_tensors" | "as_optional_tensor" | "as_optional_tensors":
            if isinstance(value, list):
                return [_argument(node, "as_optional_tensor", one, file) for one in value]
            if "name" in value:
                return {"of": str(value["name"])}
            return {"of": str(value["as_tensor"]["name"])} if "as_tensor" in value else None
        case "as_sym_int" | "as_sym_float" | "as_sym_bool":
            ((inner, number),) = value.items()
            return {"of": str(number)} if inner == "as_name" else _argument(node, inner, number, file)
        case "as_sym_ints":
            return [_argument(node, "as_sym_int", one, file) for one in value]
        case "as_scalar_type" if value in TYPES:
            return {"dtype": "float32" if TYPES[value] in REALS else TYPES[value]}
        case "as_string" if value in TEXTS:
            return value
        case _ if kind in SIMPLE and all(isinstance(n, (int, float)) for n in _listed(value)):
            return value
    raise _error(node, file, f"an argument of kind {kind} is {str(value)[:60]}", SHAPES)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _names(arguments: Iterable[Any]) -> set[str]:
    every = [one for argument in arguments for one in _listed(argument)]
    return {one["of"] for one in every if isinstance(one, dict) and "of" in one}


def _error(node: Mapping[str, Any], file: str, text: str, *hints: str) -> EdgebuildError:
    name, target = visible((node["outputs"] or [""])[0]), visible(str(node["target"]))[:80]
    return fail(text, file=file, node=name, kind=target, hints=hints)
