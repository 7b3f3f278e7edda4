"""Load and check ONNX files, and report each fault in a sentence."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from ....base.errors import Diagnostic, EdgebuildError, fail, grouped
from ....base.inputs import MODEL, read_bytes
from ..builder import MAX_BYTES, needed
from .control_flow import bodies, check_operators, graphs, reads
from .external import load_external

# Rules on parameters that the onnx package's checker does not check; `parameters.toml` states them.

RULES: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "parameters.toml").read_text(encoding="utf-8")
)
VECTOR, SINGLE = (1,), (0, 1)
# Operator: ranks of its parameter operands by their position.
RANKS: Mapping[str, Mapping[int, Sequence[int]]] = {
    operator: dict.fromkeys(positions, ranks)
    for kind, ranks in (("vectors", VECTOR), ("singles", SINGLE))
    for operator, positions in RULES[kind].items()
}
TABLES = "ai.onnx.ml"
ROWS = ("LayerNormalization", "RMSNormalization")
SMOOTH = ("antialias", "exclude_outside")  # attributes of an interpolating Resize only


def broken(node: onnx.NodeProto, shapes: Mapping[str, Sequence[int]]) -> str | None:
    """The error in a node's parameters, or None. `shapes`: of constants and inputs of the graph, by name."""
    for at, allowed in RANKS.get(node.op_type, {}).items():
        name = node.input[at] if at < len(node.input) else ""
        if name in shapes and len(shapes[name]) not in allowed:
            most = "a vector" if allowed == VECTOR else "one number or a vector"
            return f"operand {at} '{name}' has {len(shapes[name])} dimensions; it must be {most}"
    if node.op_type == "QLinearMatMul" and node.input[3] in shapes:
        matrix = tuple(shapes[node.input[3]])
        for name in node.input[4:6]:
            if len(shapes.get(name, ())) > 1 and tuple(shapes[name]) != (*matrix[:-2], 1, matrix[-1]):
                return f"'{name}' has the shape {tuple(shapes[name])}; it must be one number or one for each column"
    own = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    for a in node.attribute:  # elements of tensors and tables may be NaN
        if node.op_type != "Constant" and node.domain != TABLES and np.isnan([a.f, *a.floats]).any():
            return f"attribute '{a.name}' holds a value that is no number"
    for name, values in RULES["values"].get(node.op_type, {}).items():
        value = own[name].decode(errors="replace") if isinstance(own.get(name), bytes) else own.get(name)
        if name in own and value not in values:
            return f"attribute '{name}' is {value!r}; allowed: {', '.join(map(repr, values))}"
    if node.op_type in ROWS and node.input[0] in shapes:  # normalises all dimensions from the axis on
        axis, rank = own.get("axis", -1), len(shapes[node.input[0]])
        if not -rank <= axis < rank:
            return f"axis {axis} of an operand of {rank} dimensions"
        wide = [n for n in node.input[1:] if len(shapes.get(n, ())) > rank]
        return f"'{wide[0]}' has {len(shapes[wide[0]])} dimensions, the operand {rank}" if wide else None
    if node.op_type == "Resize" and own.get("mode", b"nearest") == b"nearest":
        wrong = [name for name in SMOOTH if own.get(name, 0)]
        return f"attribute '{wrong[0]}' of a Resize that takes the nearest" if wrong else None
    return None


def shapes_of(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Shapes of the graph's inputs and constants by name; 0 for a dynamic size."""
    inputs = [(v.name, v.type.tensor_type.shape) for v in graph.input if v.type.tensor_type.HasField("shape")]
    shapes = {name: tuple(d.dim_value for d in shape.dim) for name, shape in inputs}
    shapes |= {t.name: tuple(t.dims) for t in graph.initializer}
    for node in (n for n in graph.node if n.op_type == "Constant" and n.output):
        for value in map(helper.get_attribute_value, node.attribute):
            shapes[node.output[0]] = tuple(value.dims) if isinstance(value, onnx.TensorProto) else np.shape(value)
    return shapes


# Check of operand counts, attributes and types of nodes against their operators' signatures.
#
# The onnx package has the standard's signatures, but its checker skips all nodes after an unknown operator. Signatures
# of `com.microsoft` are in microsoft.toml, from onnxruntime's schemas.

MICROSOFT = "com.microsoft"
QONNX = ("onnx.brevitas", "finn.custom_op.general", "qonnx.custom_op.general")  # domains of QONNX's nodes
OWN_DOMAINS = ("", "ai.onnx")
FormalParameterOption = onnx.defs.OpSchema.FormalParameterOption


@dataclass(frozen=True)
class Port:
    """A formal operand or result. `variable`: type variable; ports that share it have the same one of `types`."""

    variable: str
    types: frozenset[int]
    optional: bool = False
    variadic: bool = False
    alike: bool = True  # whether all operands of a variadic port have one type


@dataclass(frozen=True)
class Signature:
    """`attributes`: name -> (type, whether it is required); None: not checked here. `again`: number of last operands
    that may repeat. `scalars`: whether scales and zero points must have no dimensions."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    attributes: Mapping[str, tuple[int, bool]] | None = None
    again: int = 0
    scalars: bool = False


FLOAT, BYTES = frozenset({TensorProto.FLOAT}), frozenset({TensorProto.INT8, TensorProto.UINT8})
HALVES = FLOAT | {TensorProto.FLOAT16}
STEPS = BYTES | {TensorProto.INT16, TensorProto.UINT16, TensorProto.INT4, TensorProto.UINT4}
KINDS = {"f": FLOAT, "b": BYTES, "h": HALVES, "s": STEPS, "i": frozenset({TensorProto.INT32}), "e": FLOAT | BYTES}
KINDS["y"] = frozenset({TensorProto.UINT8})
KINDS["o"] = frozenset({TensorProto.BOOL})
KINDS["t"] = STEPS | KINDS["i"]
KINDS["d"] = HALVES | {TensorProto.DOUBLE}
KINDS["g"] = KINDS["d"] | {TensorProto.BFLOAT16}
KINDS["l"] = HALVES | {TensorProto.BFLOAT16}
KINDS["z"] = KINDS["l"] | KINDS["y"]
KINDS["r"] = FLOAT | {TensorProto.DOUBLE}
KINDS["n"] = KINDS["d"] | KINDS["i"] | {TensorProto.INT64, TensorProto.UINT32, TensorProto.UINT64}
TYPES = {"i": AttributeProto.INT, "f": AttributeProto.FLOAT, "s": AttributeProto.STRING, "I": AttributeProto.INTS,
         "F": AttributeProto.FLOATS, "S": AttributeProto.STRINGS}  # fmt: skip
# Signatures of the operators of com.microsoft.
TABLE: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "microsoft.toml").read_text(encoding="utf-8"))
SCALARS = ("QLinearAdd", "QLinearMul", "QLinearAveragePool")  # onnxruntime's shape inference needs their scalars


def _ports(text: str) -> tuple[Port, ...]:
    """The ports of a table's text; operands of a repeated port may differ in type."""
    return tuple(
        Port(
            word[1:].rstrip("?*"), KINDS[word[0]], word.endswith("?"), word.endswith("*"), alike=not word.endswith("*")
        )
        for word in text.split()
    )


def _named(text: str) -> dict[str, tuple[int, bool]]:
    words = [word.partition(":") for word in text.split()]
    return {name: (TYPES[kind[0]], kind.endswith("!")) for name, _, kind in words}


@cache
def signature(domain: str, operator: str, version: int) -> Signature | None:
    """An operator's signature; None if it is unknown."""
    if domain == MICROSOFT:
        row = TABLE.get(operator)
        if row is None:
            return None
        again = len(row[0][row[0].index("*") :].split()) if "*" in row[0] else 0
        return Signature(_ports(row[0]), _ports(row[1]), _named(row[2]), again, operator in SCALARS)
    domain = "" if domain in OWN_DOMAINS else domain
    if not onnx.defs.has(operator, version, domain):
        return None
    schema = onnx.defs.get_schema(operator, version, domain)
    again = 1 if schema.inputs and schema.inputs[-1].option == FormalParameterOption.Variadic else 0
    return Signature(_standard(schema.inputs), _standard(schema.outputs), again=again)


def _standard(formal: Sequence[onnx.defs.OpSchema.FormalParameter]) -> tuple[Port, ...]:
    return tuple(
        Port(
            p.type_str,
            frozenset(CODES[t] for t in p.types if t in CODES),
            p.option == FormalParameterOption.Optional,
            p.option == FormalParameterOption.Variadic,
            p.is_homogeneous,
        )
        for p in formal
    )


# The standard's strings for types of tensors.
CODES = {f"tensor({name.lower()})": code for name, code in TensorProto.DataType.items() if code}


def check_types(model: onnx.ModelProto, file: str) -> None:
    """Raise EdgebuildError if a node breaks its operator's signature, or a type is not the declared one."""
    versions = {o.domain: o.version for o in model.opset_import}
    versions[""] = next((versions[d] for d in OWN_DOMAINS if d in versions), 1)
    graph = model.graph
    declared = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.output, *graph.value_info)}
    types = {v.name: v.type.tensor_type.elem_type for v in graph.input}
    types |= {t.name: t.data_type for t in graph.initializer}
    shapes = shapes_of(graph)
    for node in graph.node:
        domain = "" if node.domain in OWN_DOMAINS else node.domain
        wanted = signature(domain, node.op_type, versions.get(domain, 1))
        if wanted is None:
            continue
        for name, result in _checked(node, wanted, types, shapes, versions[""], file).items():
            noted = declared.get(name, 0)
            if result and noted and result != noted:
                text = f"'{name}' is declared as {_type_name(noted)} and computed as {_type_name(result)}"
                raise _error(node, file, text, "correct the type in the file's list of values")
            types[name] = result or noted


def _error(node: onnx.NodeProto, file: str, text: str, hint: str) -> EdgebuildError:
    return fail(text, file=file, node=node.name or next(iter(node.output), ""), kind=node.op_type, hints=[hint])


def _type_name(code: int) -> str:
    return str(TensorProto.DataType.Name(code))


def _checked(
    node: onnx.NodeProto,
    wanted: Signature,
    types: Mapping[str, int],
    shapes: Mapping[str, tuple[int, ...]],
    version: int,
    file: str,
) -> dict[str, int]:
    """The types of a node's results by name, 0 if unknown. Raises EdgebuildError if it breaks its signature."""
    problem = _miscounted(node, wanted) or _attributes(node, wanted.attributes)
    problem = problem or _vectors(node, wanted, shapes) or broken(node, shapes)
    if problem:
        raise _error(node, file, problem, "the file breaks the operator's definition")
    bound = dict[str, int]()
    for at, name in enumerate(node.input):
        own, port = types.get(name, 0), _port(wanted, at)
        if not own or not port.types:
            continue
        if own not in port.types:
            allowed = ", ".join(sorted(map(_type_name, port.types)))
            raise _error(node, file, f"operand {at} '{name}' is {_type_name(own)}", f"allowed: {allowed}")
        if port.alike and bound.setdefault(port.variable, own) != own:
            text = f"operand {at} '{name}' is {_type_name(own)}, and one before it {_type_name(bound[port.variable])}"
            raise _error(node, file, text, "both must be of one type")
    results = [_result(port, bound, node.domain == MICROSOFT) for port in _results(node, wanted)]
    if not all(results) and node.domain in OWN_DOMAINS:
        results = _inferred(node, types, version) or results
    return {name: kind for name, kind in zip(node.output, results, strict=True) if name}


def _port(wanted: Signature, at: int) -> Port:
    """The formal operand for the operand at this position."""
    count = len(wanted.inputs)
    return wanted.inputs[at if at < count else count - wanted.again + (at - count) % wanted.again]


def _results(node: onnx.NodeProto, wanted: Signature) -> list[Port]:
    return [wanted.outputs[min(at, len(wanted.outputs) - 1)] for at in range(len(node.output))]


def _miscounted(node: onnx.NodeProto, wanted: Signature) -> str | None:
    """The error if the ports do not allow the number of operands or results, or a required operand is missing."""
    most, count = len(wanted.inputs), len(node.input)
    if count > most and not (wanted.again and (count - most) % wanted.again == 0):
        return f"{count} operands; {'' if wanted.again else 'at most '}{most} are allowed"
    if len(node.output) > len(wanted.outputs) and not (wanted.outputs and wanted.outputs[-1].variadic):
        return f"{len(node.output)} results; at most {len(wanted.outputs)} are allowed"
    for at in range(max(count, most)):
        port = _port(wanted, at)
        needed = not (port.optional or (port.variadic and at >= count))
        if needed and not (at < count and node.input[at]):
            return f"operand {at} is missing"
    return None


def _attributes(node: onnx.NodeProto, formal: Mapping[str, tuple[int, bool]] | None) -> str | None:
    if formal is None:  # checked by the onnx package
        return None
    own = {a.name: a.type for a in node.attribute}
    for name, kind in own.items():
        if name not in formal or kind != formal[name][0]:
            return f"attribute '{name}' of type {AttributeProto.AttributeType.Name(kind)} is none of this operator"
    missing = [name for name, (_, required) in formal.items() if required and name not in own]
    return f"attribute '{missing[0]}' is missing" if missing else None


def _vectors(node: onnx.NodeProto, wanted: Signature, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """The error if a scale or zero point of SCALARS has dimensions or is left out."""
    scale = False
    for at, name in enumerate(node.input) if wanted.scalars else ():
        zero, scale = scale, _port(wanted, at).types == FLOAT
        if (scale or zero) and (shapes.get(name) or not name):
            return f"operand {at} is no scalar"
    return None


def _result(port: Port, bound: Mapping[str, int], defaults: bool) -> int:
    """The type of a result, 0 if unknown. `defaults`: if no zero point states it, assume float or uint8."""
    if port.alike and port.variable in bound:
        return bound[port.variable]
    if defaults:
        return TensorProto.FLOAT if port.types >= FLOAT else TensorProto.UINT8
    return next(iter(port.types)) if len(port.types) == 1 else 0


def _inferred(node: onnx.NodeProto, types: Mapping[str, int], version: int) -> list[int] | None:
    """Types of results that depend on attributes, as the onnx package infers them; None if it cannot."""
    operands = {n: helper.make_tensor_type_proto(types[n], None) for n in node.input if types.get(n)}
    schema = onnx.defs.get_schema(node.op_type, version, "")
    try:
        inferred = onnx.shape_inference.infer_node_outputs(schema, node, operands)
    except Exception:  # C++ exceptions, different ones per operator
        return None
    return [inferred[n].tensor_type.elem_type if n in inferred else 0 for n in node.output]


UNLISTED = 4  # first IR version in which constants need not be inputs
NORMALISES = 17  # opset that first has LayerNormalization
# Operators that onnxruntime accepts in the standard's domain, and the opsets in which the standard lacks them. In those
# of GroupNormalization the standard's is deprecated: scale and offset are per group, later per channel.
ONNXRUNTIMES = {"LayerNormalization": range(NORMALISES), "SimplifiedLayerNormalization": range(1 << 31),
                "GroupNormalization": range(18, 21)}  # fmt: skip
UNKNOWN_DOMAIN = "edgebuild.unknown"  # domain for operators that the standard lacks, so that the checker skips them
CUT = "the file is truncated or damaged; fetch or export it again"
FORBIDDEN = "the file is whole, but breaks the ONNX standard: onnx.checker.check_model refuses it, too; export it again"
UNKNOWN = "edgebuild ops lists what is supported; on constants any operator is computed beforehand"


def load(path: Path, file: str) -> onnx.ModelProto:
    """The model, with external tensors loaded. Raises EdgebuildError if it is damaged."""
    data = read_bytes(path, "cannot read the model", MODEL)
    try:
        model = onnx.load_model_from_string(data)
    except Exception:  # protobuf's exception classes differ by its implementation
        raise fail("not a valid ONNX model: no whole message of protobuf", file=file, hints=[CUT]) from None
    if not model.HasField("graph"):
        raise fail("not a valid ONNX model: it has no graph", file=file, hints=[CUT])
    if any(isinstance(name, bytes) for name in _names(model)):  # protobuf returns bytes if it is not UTF-8
        raise fail("not a valid ONNX model: a name is not UTF-8", file=file, hints=[FORBIDDEN])
    if b"location" in data:
        load_external(model, path, file)
    check_operators(model, file)
    return model


def opset_of(model: onnx.ModelProto) -> int:
    """The model's opset of the standard's operators, as a number of 32 bits; 0 if it has none."""
    version = next((o.version for o in model.opset_import if o.domain in OWN_DOMAINS), 0)
    return min(max(version, 0), 2**31 - 1)


def in_checked_form(model: onnx.ModelProto, file: str) -> None:
    """Change a model that onnxruntime accepts, in place, so that the standard's checker accepts it, too.

    Nodes are sorted topologically. onnxruntime's operators in the standard's domain move to its own. Constants of old
    files need not be inputs. Negative sizes become dynamic, sparse constants dense. Value infos without a type go.
    Raises EdgebuildError for cycles, for operands that nothing computes, and for damaged sparse constants.
    """
    _make_dense(model, file)
    model.ir_version = UNLISTED if model.ir_version == UNLISTED - 1 else model.ir_version
    opset = opset_of(model)
    nodes = [node for part in graphs(model.graph) for node in part.node]
    strange = [n for n in nodes if n.domain in OWN_DOMAINS and opset in ONNXRUNTIMES.get(n.op_type, ())]
    for node in strange:
        node.domain = MICROSOFT
    if strange and not any(o.domain == MICROSOFT for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    for part in graphs(model.graph):
        for value in [v for v in part.value_info if not _is_typed(v)]:
            part.value_info.remove(value)
    for value in (v for part in graphs(model.graph) for v in (*part.input, *part.value_info, *part.output)):
        for dim in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
            if dim.dim_value < 0:  # Paddle writes dynamic sizes so
                dim.ClearField("dim_value")
    if problems := list(_undefined(model.graph, frozenset(), file)):
        raise grouped(problems)
    sort(model.graph, file)


def _is_typed(value: onnx.ValueInfoProto) -> bool:
    kind = value.type.WhichOneof("value")
    return bool(value.type.tensor_type.elem_type) if kind == "tensor_type" else kind is not None


def _make_dense(model: onnx.ModelProto, file: str) -> None:
    """Make sparse constants dense, in place: shape inference and ops do not support them."""
    left = MAX_BYTES
    for part in (part for top in (model.graph, *model.functions) for part in graphs(top)):
        for sparse in getattr(part, "sparse_initializer", ()):
            part.initializer.append(_dense(sparse, sparse.values.name, left, file))
            left -= len(part.initializer[-1].raw_data)
        if isinstance(part, onnx.GraphProto):
            part.ClearField("sparse_initializer")
        for node in part.node:
            for attribute in (a for a in node.attribute if a.HasField("sparse_tensor")):
                dense = _dense(attribute.sparse_tensor, node.output[0] if node.output else "", left, file)
                left -= len(dense.raw_data)
                attribute.CopyFrom(helper.make_attribute("value", dense))


def _dense(sparse: onnx.SparseTensorProto, name: str, most: int, file: str) -> onnx.TensorProto:
    """A dense copy of a sparse tensor, of at most `most` bytes. Its indices are flat or rows of coordinates."""
    shape = tuple(sparse.dims)
    try:
        values, places = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
        if min(shape, default=1) < 0 or prod(shape) * values.itemsize > most:
            text = f"sparse constant '{name}' of shape {'x'.join(map(str, shape))}: at most {most} bytes"
            raise fail(text, file=file, hints=["is one of its sizes wrong?"])
        index = tuple(places.T) if places.ndim == 2 else np.unravel_index(places, shape)
        if any(at.min(initial=0) < 0 for at in index) or len(places) != len(values) or len(index) != len(shape):
            raise IndexError
        data = np.zeros(shape, values.dtype)
        data[index] = values
    except (IndexError, KeyError, TypeError, ValueError):
        raise fail(f"sparse constant '{name}' is damaged: shape, places and values disagree", file=file) from None
    return numpy_helper.from_array(data, name)


def _undefined(graph: onnx.GraphProto, outer: frozenset[str], file: str) -> Iterator[Diagnostic]:
    """Errors for names that nodes read and nothing computes. `outer`: names visible around a body."""
    own = {*(v.name for v in graph.input), *(t.name for t in graph.initializer)}
    names = outer | own | {name for node in graph.node for name in node.output}
    for node in graph.node:
        for name in (name for name in node.input if name and name not in names):
            yield _diagnostic(node, f"reads '{name}', which nothing computes", file)
        for body in bodies(node):
            yield from _undefined(body, names, file)


def sort(graph: onnx.GraphProto, file: str) -> None:
    """Sort the nodes of the graph topologically, in place. Raises EdgebuildError for a cycle."""
    nodes = list(graph.node)
    maker = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    before = {at: {maker[name] for name in reads(node) if name in maker} for at, node in enumerate(nodes)}
    if any(max(makers, default=-1) >= at for at, makers in before.items()):
        try:
            order = list(TopologicalSorter(before).static_order())
        except CycleError as circle:
            names = [nodes[at].name or nodes[at].output[0] for at in circle.args[1]]
            text = f"its result is needed to compute it: {' <- '.join(reversed(names))}"
            raise EdgebuildError(_diagnostic(nodes[circle.args[1][-1]], text, file)) from None
        del graph.node[:]
        graph.node.extend(nodes[at] for at in order)


def _diagnostic(node: onnx.NodeProto, text: str, file: str, hints: Sequence[str] = (FORBIDDEN,)) -> Diagnostic:
    name = node.name or next(iter(node.output), "")
    return Diagnostic(text, file, node=name, kind=node.op_type, hints=tuple(hints))


def check(model: onnx.ModelProto, file: str, outputs: Sequence[str]) -> None:
    """Raise EdgebuildError if the model breaks the standard, or if these outputs need unknown operators.

    Declared shapes of results and constants are ignored: tf2onnx rounds some sizes differently from onnx, and skl2onnx
    declares wrong ranks or no output shapes. Types of outputs may be missing, as in scripts of onnxscript. Names of
    graphs are ignored, as in onnxruntime.
    """
    wanted = needed([(reads(node), node.output) for node in model.graph.node], outputs)
    nodes = [node for node, used in zip(model.graph.node, wanted, strict=True) if used]
    if problems := [_diagnostic(node, text, file, [UNKNOWN]) for node in nodes if (text := unknown(model, node))]:
        raise grouped(problems)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for part in graphs(copy.graph):
        part.name = "graph"
    for node in (node for part in graphs(copy.graph) for node in part.node if unknown(model, node)):
        node.domain = UNKNOWN_DOMAIN  # an unknown operator in a body may never run
    copy.opset_import.append(helper.make_opsetid(UNKNOWN_DOMAIN, 1))
    untyped = [value for part in graphs(copy.graph) for value in part.output if not value.HasField("type")]
    for value in untyped:  # the checker wants some type; inference computes the right one
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for value in (*copy.graph.output, *untyped):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(copy)
        for value in untyped:
            value.ClearField("type")
        _forget_shapes(copy)
        onnx.shape_inference.infer_shapes(copy, check_type=True, strict_mode=True)
    except Exception as problem:  # the checker and the inference have no common base class
        raise EdgebuildError(_diagnosed(problem, file)) from None


def unknown(model: onnx.ModelProto, node: onnx.NodeProto) -> str:
    """The error for a node of the standard's domain whose operator its opset lacks, else ""."""
    opset = opset_of(model)
    if node.domain not in OWN_DOMAINS or not opset or onnx.defs.has(node.op_type, opset):
        return ""
    if not onnx.defs.has(node.op_type):
        return f"operator {node.op_type} is not supported: the ONNX standard has none of this name"
    first = min(s.since_version for s in onnx.defs.get_all_schemas_with_history()
                if (s.name, s.domain) == (node.op_type, ""))  # fmt: skip
    return f"operator {node.op_type} is not supported in opset {opset}: the ONNX standard has it from {first} on"


def _forget_shapes(model: onnx.ModelProto) -> None:
    """Remove shapes of results and constants, and sizes 0 of inputs, which some exporters write if dynamic."""
    for dim in (d for v in model.graph.input if v.type.HasField("tensor_type") for d in v.type.tensor_type.shape.dim):
        if dim.HasField("dim_value") and not dim.dim_value:
            dim.ClearField("dim_value")
    of_functions = (body for f in model.functions for node in f.node for body in bodies(node))
    for part in (*graphs(model.graph), *(part for body in of_functions for part in graphs(body))):
        constants = {t.name for t in part.initializer}
        kept = [value for value in part.value_info if value.name not in constants]
        del part.value_info[:]
        part.value_info.extend(kept)
        for value in (*part.value_info, *part.output):
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.ClearField("shape")


def _names(model: onnx.ModelProto) -> Iterator[Any]:
    yield from (opset.domain for opset in model.opset_import)
    for part in graphs(model.graph):
        for node in part.node:
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            yield from (attribute.name for attribute in node.attribute)
        yield from (value.name for value in (*part.input, *part.output, *part.value_info, *part.initializer))


NODE = re.compile(r"Name: (?P<node>.*?) OpType: (?P<kind>\w+)")
INFERENCE = re.compile(r"\(op_type:(?P<kind>\w+)(?:, node name: (?P<node>.*?))?\): (?:\[\w+\] )?(?P<text>[^\n]*)")


def _diagnosed(problem: Exception, file: str) -> Diagnostic:
    """The onnx package's exception as an error, with the node that its text names."""
    words = str(problem)
    text = next(iter(words.strip().splitlines()), type(problem).__name__)
    seen = INFERENCE.search(words) or NODE.search(words)
    parts = seen.groupdict() if seen else {}
    node, kind = parts.get("node") or "", parts.get("kind") or ""
    text = f"not a valid ONNX model: {parts.get('text') or text}"
    return Diagnostic(text, file, node=node, kind=kind, hints=(FORBIDDEN,))
