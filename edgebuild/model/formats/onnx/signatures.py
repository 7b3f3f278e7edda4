"""Operand counts, attributes and types of ONNX nodes against their operators' signatures.

Those of the standard are in the onnx package, whose checker leaves out every node behind an operator that it does not
know. Those of `com.microsoft` are in this file's table, as onnxruntime's own schemas tell them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import onnx
from onnx import AttributeProto, TensorProto, helper

from ....base.dataclass import dataclass
from ....base.errors import EdgebuildError, fail
from .parameters import broken, known_shapes

MICROSOFT = "com.microsoft"
OWN_DOMAINS = ("", "ai.onnx")
FormalParameterOption = onnx.defs.OpSchema.FormalParameterOption


@dataclass(frozen=True)
class Port:
    """A formal operand or result. `variable`: ports of one name have one type, which is among `types`."""

    variable: str
    types: frozenset[int]
    optional: bool = False
    variadic: bool = False
    alike: bool = True  # of a variadic one: all of one type


@dataclass(frozen=True)
class Signature:
    """`attributes`: name -> (type, whether it must be there); None: not known. `again`: operands that may follow again
    and again as the last ones do. `scalars`: scales and zero points that have a dimension are refused."""

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
POOL = "kernel_shape:I! auto_pad:s pads:I strides:I ceil_mode:i count_include_pad:i channels_last:i"
CONV = "kernel_shape:I auto_pad:s pads:I strides:I dilations:I group:i"
GEMM = "transA:i transB:i alpha:f beta:f activation:s activation_alpha:f activation_beta:f activation_gamma:f"
HEADS = "num_heads:i! unidirectional:i mask_filter_value:f scale:f"
ROTARY = "do_rotary:i rotary_embedding_dim:i past_present_share_buffer:i"
CELL = "hidden_size:i direction:s activations:S activation_alpha:F activation_beta:F clip:f input_forget:i"
# Operator: operands; results; attributes. A port is a type of KINDS with the name of its variable, `?` if it may be
# left out, `*` if it and those behind it may follow again. An attribute that must be there ends in `!`.
TABLE = {
    "QLinearAdd": ("bT fS bT? bT fS bT? fS bT?", "bT", ""),
    "QLinearMul": ("bT fS bT? bT fS bT? fS bT?", "bT", ""),
    "QGemm": ("bA fS bA bB fS bB iC? fS? bY?", "eY", "transA:i transB:i alpha:f"),
    "QLinearGlobalAveragePool": ("bT fS bT fS bT", "bT", "channels_last:i"),
    "QLinearAveragePool": ("bT fS bT? fS bT?", "bT", POOL),
    "QLinearSigmoid": ("bT fS bT? fS bT?", "bT", ""),
    "QLinearLeakyRelu": ("bT fS bT? fS bT?", "bT", "alpha:f"),
    "QLinearSoftmax": ("bT fS bT? fS bT", "bT", "opset:i! axis:i"),
    "QLinearReduceMean": ("bT fS bT? fS bT?", "bT", "axes:I! keepdims:i!"),
    "QLinearConv": ("bA fS bA bB fS bB fS bY iC?", "bY", f"{CONV} channels_last:i"),
    "QLinearWhere": ("oC bT fS bT bT fS bT fS bT", "bT", ""),
    "NhwcMaxPool": ("bT", "bT", "kernel_shape:I! auto_pad:s pads:I strides:I dilations:I ceil_mode:i"),
    "QLinearConcat": ("fS bT bT* fS bT", "bT", "axis:i!"),
    "MatMulIntegerToFloat": ("bA bB hF hF bA? bB? hF?", "hF", ""),
    "DynamicQuantizeMatMul": ("fF bB fF bB? fF?", "fF", ""),
    "DynamicQuantizeLSTM": ("fT bW bW fT? iL? fT? fT? fT? fT bW fT bW", "fT? fT? fT?", CELL),
    "Gelu": ("gT", "gT", ""),
    "BiasGelu": ("gT gT", "gT", ""),
    "FastGelu": ("gT gT?", "gT", ""),
    "QuickGelu": ("gT", "gT", "alpha:f"),
    "FusedMatMul": ("gT gT", "gT", "alpha:f transA:i transB:i transBatchA:i transBatchB:i"),
    "FusedConv": ("dT dT dT? dT?", "dT", f"{CONV} activation:s activation_params:F"),
    "FusedGemm": ("nT nT nT?", "nT", GEMM),
    "SkipLayerNormalization": ("lT lT lT lT? lT?", "lT fU? fU? lT?", "epsilon:f"),
    "LayerNormalization": ("gT gV gV?", "gV rU? rU?", "axis:i epsilon:f stash_type:i"),
    "SimplifiedLayerNormalization": ("gT gV", "gV rU?", "axis:i epsilon:f stash_type:i"),
    "SkipSimplifiedLayerNormalization": ("lT lT lT lT?", "lT fU? fU? lT?", "epsilon:f"),
    "EmbedLayerNormalization": ("iM iM? hT hT hT? hT hT iM? iM?", "hT iM? hT?", "epsilon:f mask_index_type:i"),
    "MatMulNBits": ("lT yB lT zQ? iI? lT?", "lT", "K:i! N:i! bits:i block_size:i! accuracy_level:i weight_prepacked:i"),
    "Attention": ("lT lT lT? iM? lT? lT? iM?", "lT lT?", f"{HEADS} {ROTARY} qkv_hidden_sizes:I"),
    "MultiHeadAttention": ("lT lT? lT? lT? iM? lT? lT? lT? iM? iM?", "lT lT? lT? lQ?", HEADS),
    "QuantizeLinear": ("hF hF sT?", "sT", "axis:i"),
    "DequantizeLinear": ("tT hF tT?", "hF", "axis:i"),
}
SCALARS = ("QLinearAdd", "QLinearMul", "QLinearAveragePool")  # whose shape inference in onnxruntime asks for them


def _ports(text: str) -> tuple[Port, ...]:
    """The ports of a table's text; a repeated one has a variable for itself."""
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
    """An operator's signature; None if nobody tells it."""
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


# The standard's own texts for types of tensors.
CODES = {f"tensor({name.lower()})": code for name, code in TensorProto.DataType.items() if code}


def check_types(model: onnx.ModelProto, file: str) -> None:
    """Raise EdgebuildError where a node breaks its operator's signature, or a type is not what the file declares."""
    versions = {o.domain: o.version for o in model.opset_import}
    versions[""] = next((versions[d] for d in OWN_DOMAINS if d in versions), 1)
    graph = model.graph
    declared = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.output, *graph.value_info)}
    types = {v.name: v.type.tensor_type.elem_type for v in graph.input}
    types |= {t.name: t.data_type for t in graph.initializer}
    shapes = known_shapes(graph)
    for node in graph.node:
        domain = "" if node.domain in OWN_DOMAINS else node.domain
        found = signature(domain, node.op_type, versions.get(domain, 1))
        if found is None:
            continue
        for name, made in _checked(node, found, types, shapes, versions[""], file).items():
            told = declared.get(name, 0)
            if made and told and made != told:
                text = f"'{name}' is declared as {_shown(told)} and computed as {_shown(made)}"
                raise _error(node, file, text, "correct the type in the file's list of values")
            types[name] = made or told


def _error(node: onnx.NodeProto, file: str, text: str, hint: str) -> EdgebuildError:
    return fail(text, file=file, node=node.name or next(iter(node.output), ""), kind=node.op_type, hints=[hint])


def _shown(code: int) -> str:
    return str(TensorProto.DataType.Name(code))


def _checked(
    node: onnx.NodeProto,
    wanted: Signature,
    types: Mapping[str, int],
    shapes: Mapping[str, tuple[int, ...]],
    version: int,
    file: str,
) -> dict[str, int]:
    """The types of a node's results by name, 0 where nothing tells. Raises EdgebuildError."""
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
            allowed = ", ".join(sorted(map(_shown, port.types)))
            raise _error(node, file, f"operand {at} '{name}' is {_shown(own)}", f"allowed: {allowed}")
        if port.alike and bound.setdefault(port.variable, own) != own:
            text = f"operand {at} '{name}' is {_shown(own)}, and one before it {_shown(bound[port.variable])}"
            raise _error(node, file, text, "both must be of one type")
    made = [_result(port, bound, node.domain == MICROSOFT) for port in _results(node, wanted)]
    if not all(made) and node.domain in OWN_DOMAINS:
        made = _inferred(node, types, version) or made
    return {name: kind for name, kind in zip(node.output, made, strict=True) if name}


def _port(wanted: Signature, at: int) -> Port:
    """The formal operand of the operand at this position."""
    count = len(wanted.inputs)
    return wanted.inputs[at if at < count else count - wanted.again + (at - count) % wanted.again]


def _results(node: onnx.NodeProto, wanted: Signature) -> list[Port]:
    return [wanted.outputs[min(at, len(wanted.outputs) - 1)] for at in range(len(node.output))]


def _miscounted(node: onnx.NodeProto, wanted: Signature) -> str | None:
    """A number of operands or results that the ports do not allow, or an operand that is left out."""
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


def _attributes(node: onnx.NodeProto, known: Mapping[str, tuple[int, bool]] | None) -> str | None:
    if known is None:  # the onnx package's checker has seen to it
        return None
    own = {a.name: a.type for a in node.attribute}
    for name, kind in own.items():
        if name not in known or kind != known[name][0]:
            return f"attribute '{name}' of type {AttributeProto.AttributeType.Name(kind)} is none of this operator"
    missing = [name for name, (_, required) in known.items() if required and name not in own]
    return f"attribute '{missing[0]}' is missing" if missing else None


def _vectors(node: onnx.NodeProto, wanted: Signature, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """A scale or zero point with a dimension, or a zero point left out between others, where neither may be."""
    scale = False
    for at, name in enumerate(node.input) if wanted.scalars else ():
        zero, scale = scale, _port(wanted, at).types == FLOAT
        if (scale or zero) and (shapes.get(name) or not name):
            return f"operand {at} is no scalar"
    return None


def _result(port: Port, bound: Mapping[str, int], defaults: bool) -> int:
    """The type of a result; 0: not known. `defaults`: where no zero point tells, real or uint8."""
    if port.alike and port.variable in bound:
        return bound[port.variable]
    if defaults:
        return TensorProto.FLOAT if port.types >= FLOAT else TensorProto.UINT8
    return next(iter(port.types)) if len(port.types) == 1 else 0


def _inferred(node: onnx.NodeProto, types: Mapping[str, int], version: int) -> list[int] | None:
    """Types of results that follow from attributes, as the onnx package infers them; None if it cannot."""
    known = {n: helper.make_tensor_type_proto(types[n], None) for n in node.input if types.get(n)}
    schema = onnx.defs.get_schema(node.op_type, version, "")
    try:
        found = onnx.shape_inference.infer_node_outputs(schema, node, known)
    except Exception:  # exceptions of C++, one for each operator
        return None
    return [found[n].tensor_type.elem_type if n in found else 0 for n in node.output]
