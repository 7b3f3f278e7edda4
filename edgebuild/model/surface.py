"""The C interface of a model, and the header that declares it.

The interface depends on the inputs and outputs of the model and on the request, not on a plan. So a build can print the
header before the search for a plan begins. This file imports neither numpy nor Jinja: the header is a step of its own
in builds, and takes a few hundredths of a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from struct import error, unpack, unpack_from
from typing import NamedTuple

from ..base import text as written
from ..base.text import LICENCE, comment, remark

INTEGERS = ("int8", "uint8", "int16", "int32", "int64", "uint32", "uint64")
RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}
C_TYPES = {"bool": "uint8_t", **{name: f"{name}_t" for name in INTEGERS}, "float32": "float"}


class Surface(NamedTuple):
    """An input or output as the graph has it. `scale`, `zero`: if it is quantised per tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    scale: float | None = None
    zero: int = 0


class Ports(NamedTuple):
    """Tensors that the application writes and reads, in order."""

    inputs: tuple[Surface, ...]
    outputs: tuple[Surface, ...]


class Link(NamedTuple):
    """The place of a device in a cluster: see `ir.Link`."""

    entry: str
    timeout_us: int
    is_source: bool


class Array(NamedTuple):
    """An array of the application that is an input or output. `elements`: up to whole words. `align`: in bytes."""

    symbol: str
    tensor: str
    side: str
    dtype: str
    elements: int
    align: int


class Interface(NamedTuple):
    """All facts that the header of a model shows.

    `file`, `target`: names. `caller`: every function takes the arena. `states`: the model keeps states between calls.
    `stream_rows`: rows of the input that the application pushes; 0: the input is written whole. `output_rows`: rows of
    the output that the application takes as they are made; 0: it reads the output whole. `budgets`: times in ms among
    which the application chooses, or none. `steps`: an inference can run step by step.
    `selftest`: a vector comes with the model. `set_weights`: its weights can be replaced while the program runs.
    `arrays`: inputs and outputs outside of the arena.
    """

    name: str
    file: str
    target: str
    ports: Ports
    caller: bool = False
    states: bool = False
    stream_rows: int = 0
    output_rows: int = 0
    budgets: tuple[str, ...] = ()
    link: Link | None = None
    steps: bool = False
    selftest: bool = False
    set_weights: bool = False
    arrays: tuple[Array, ...] = ()


def access_functions(name: str, ports: Ports) -> tuple[list[str], list[str]]:
    """Names of the C functions that give the addresses of inputs and of outputs, in order."""
    return _functions(name, "input", ports.inputs), _functions(name, "output", ports.outputs)


def _functions(name: str, what: str, ports: Iterable[Surface]) -> list[str]:
    tensors, macros, functions = [p.name for p in ports], set[str](), list[str]()
    for tensor in tensors:
        rest = written.identifier(tensor.split(";")[0])
        while rest.upper() in macros:  # macros have the names in upper case
            rest += "_"
        macros.add(rest.upper())
        functions.append(f"{name}_{what}" + (f"_{rest}" if len(tensors) > 1 else ""))
    return functions


def float_literal(value: float) -> str:
    """The shortest C literal of type float that is this float32; of several the nearest."""
    exact = _as_float32(value)
    for digits in range(9):
        mantissa, _, exponent = f"{exact:.{digits}e}".partition("e")
        rounded = int(mantissa.replace(".", ""))
        # Beside a power of two the next lower float32 is nearer than the next higher one.
        for number in map(str, (rounded, rounded + 1, rounded - 1)):
            if _as_float32(float(f"{number}e{int(exponent) - digits}")) == exact:
                whole, rest = number[:-digits] if digits else number, number[-digits:] if digits else "0"
                return f"{whole}.{rest}e{int(exponent):+d}f"
    raise ValueError(f"{value} is no number")


def _as_float32(value: float) -> float:
    from struct import pack, unpack

    try:
        return float(unpack("f", pack("f", value))[0])
    except OverflowError:
        return float("inf")


def label(name: str) -> str:
    """A tensor's name in a comment; of TFLite's lists of fused names the first."""
    return comment(name.split(";")[0])


def header(i: Interface) -> str:
    """The text of `NAME.h`."""
    prefix, argument = i.name.upper(), "void *arena" if i.caller else "void"
    readers, writers = access_functions(i.name, i.ports)
    inputs = list(zip(i.ports.inputs, readers, strict=True))
    outputs = list(zip(i.ports.outputs, writers, strict=True))
    lines = [f"/* {comment(i.file)} for {comment(i.target)}.", " *", *(f" * {line}" for line in LICENCE), " *"]
    lines += [*_use(i), " */", f"#ifndef {prefix}_H", f"#define {prefix}_H", "", "#include <stdint.h>"]
    if i.caller:
        lines += ["", "/* The size of the arena, which follows from the plan. */", f'#include "{i.name}_arena.h"']
    lines += ["", "#ifdef __cplusplus", 'extern "C" {', "#endif"]
    for port, function in inputs + outputs:
        lines += ["", *_values(port, function.upper())]
    if i.caller:
        lines += ["", f"/* Every function takes the arena: {prefix}_ARENA_BYTES bytes on a multiple of 16. */"]
    lines += [line for array in i.arrays for line in _own_array(array, i.name)]
    lines.append("")
    if i.stream_rows:
        lines += _pushed(i)
    else:
        lines += [f"{C_TYPES[port.dtype]} *{function}({argument});" for port, function in inputs]
    if i.output_rows:
        lines += _output_rows(i)
    else:
        lines += [f"const {C_TYPES[port.dtype]} *{function}({argument});" for port, function in outputs]
    lines += _called(i, argument)
    lines += _conversions(i.name, inputs, outputs)
    lines += ["", "#ifdef __cplusplus", "}", "#endif", "", "#endif", ""]
    return "\n".join(lines)


def arena_header(name: str, file: str, target: str, arena_bytes: int) -> str:
    """The text of `NAME_arena.h`: bytes of the arena, which depend on the plan, for applications that include it."""
    prefix = name.upper()
    lines = [f"/* Memory for the activations of {comment(file)} on {comment(target)}.", " *"]
    lines += [*(f" * {line}" for line in LICENCE), " */", f"#ifndef {prefix}_ARENA_H", f"#define {prefix}_ARENA_H", ""]
    return "\n".join([*lines, f"#define {prefix}_ARENA_BYTES {arena_bytes}", "", "#endif", ""])


def _use(i: Interface) -> list[str]:
    """Lines about how an application uses the model."""
    if i.stream_rows:
        return [" * Push rows of the input as they come; the input never exists whole. One inference at a time."]
    if i.link is None or i.link.is_source:
        end = "take rows of the output" if i.output_rows else "read the output"
        do = f"Fill the input, call {i.name}_invoke(), {end}."
    else:
        do = f"A part of the network; call {i.link.entry}() again and again."
    once = "" if i.caller and not i.states else " One inference at a time."
    return [
        f" * {do} The arena is shared by all tensors: an input does not",
        f" * survive the call, an output stands until the next input is written.{once}",
    ]


def _own_array(array: Array, name: str) -> list[str]:
    """The declaration of an array that the application defines; compilers give its definition the alignment, too."""
    does = (
        f"{name}_invoke() reads it and leaves it as it is" if array.side == "input" else "it stands until the next one"
    )
    text = (
        f"The application defines this array, on a multiple of {array.align}: {label(array.tensor)}, the {array.side}; "
        f"{does}. The last of its elements may only make words whole."
    )
    declared = f"extern {C_TYPES[array.dtype]} {array.symbol}[{array.elements}]"
    lines = ["", remark("", text), "#if defined(__GNUC__)", f"{declared} __attribute__((aligned({array.align})));"]
    return [*lines, "#else", f"{declared};", "#endif"]


def _values(port: Surface, macro: str) -> list[str]:
    shape = "x".join(map(str, port.shape)) or "1"
    real = ", real = scale * (q - zero point)" if port.scale is not None else ""
    lines = [remark("", f"{label(port.name)}: {shape}{real}"), f"#define {macro}_SIZE {prod(port.shape)}"]
    if port.scale is not None:
        lines += [f"#define {macro}_SCALE {float_literal(port.scale)}", f"#define {macro}_ZERO_POINT ({port.zero})"]
    return lines


# As QuantizeLinear of ONNX: real / scale in float, ties to even, then the zero point; values beyond saturate.
NEAREST = """
#ifdef __cplusplus
#define {macro}_AS(type, x) static_cast<type>(x)
#else
#define {macro}_AS(type, x) ((type)(x))
#endif

/* The integer for a real number: the nearest, of two the even one, within the type's bounds. Needs no libm. */
static inline int32_t {name}_nearest(float real, float scale, int32_t zero, int32_t low, int32_t high)
{{
    const float x = real / scale, least = {macro}_AS(float, low - zero), most = {macro}_AS(float, high - zero);
    const float q = x > least ? (x < most ? x : most) : least;
    const int32_t n = {macro}_AS(int32_t, q);
    const float rest = q - {macro}_AS(float, n);
    const int32_t odd = n & 1;
    return zero + n + (rest >= 0.5f && (rest > 0.5f || odd)) - (rest <= -0.5f && (rest < -0.5f || odd));
}}"""

Named = tuple[Surface, str]  # with the function that gives its address


def _conversions(name: str, inputs: list[Named], outputs: list[Named]) -> list[str]:
    """Functions between real numbers and the integers of inputs and outputs."""
    lines, cast = list[str](), f"{name.upper()}_AS"
    for port, function in [*inputs, *outputs]:
        if port.scale is None or port.dtype not in RANGES:
            continue
        lines += [] if lines else NEAREST.format(name=name, macro=name.upper()).splitlines()
        kind, short, macro = C_TYPES[port.dtype], function.removeprefix(name), function.upper()
        if (port, function) in inputs:
            bounds = ", ".join(map(str, RANGES[port.dtype]))
            value = f"{name}_nearest(real, {macro}_SCALE, {macro}_ZERO_POINT, {bounds})"
            lines += ["", f"static inline {kind} {name}_quantize{short}(float real)", "{"]
            lines += [f"    return {cast}({kind}, {value});", "}"]
        else:
            lines += ["", f"static inline float {name}_real{short}({kind} q)", "{"]
            lines += [f"    return {macro}_SCALE * {cast}(float, q - {macro}_ZERO_POINT);", "}"]
    return lines


def _pushed(i: Interface) -> list[str]:
    prefix, x = i.name.upper(), i.ports.inputs[0]
    text = (
        f"Bring the next rows of {label(x.name)}: {prefix}_INPUT_ROWS of them, {prefix}_INPUT_ROW_SIZE elements each, "
        "are one inference. Returns 1 when its last row was among them: then the output stands, until the next row is "
        "brought."
    )
    return [
        remark("", text),
        f"#define {prefix}_INPUT_ROWS {i.stream_rows}",
        f"#define {prefix}_INPUT_ROW_SIZE {prod(x.shape) // i.stream_rows}",
        f"int32_t {i.name}_push_rows(const {C_TYPES[x.dtype]} *rows, int32_t count);",
    ]


def _output_rows(i: Interface) -> list[str]:
    prefix, y = i.name.upper(), i.ports.outputs[0]
    text = (
        f"The application defines this function. It is called for each row of {label(y.name)}, in order, as soon as it "
        f"is made: {prefix}_OUTPUT_ROWS of them, {prefix}_OUTPUT_ROW_SIZE elements each, from number 0 on. "
        "The row stands until the function returns."
    )
    return [
        remark("", text),
        f"#define {prefix}_OUTPUT_ROWS {i.output_rows}",
        f"#define {prefix}_OUTPUT_ROW_SIZE {prod(y.shape) // i.output_rows}",
        f"void {i.name}_output_row(const {C_TYPES[y.dtype]} *row, int32_t number);",
    ]


def _called(i: Interface, argument: str) -> list[str]:
    """Declarations of the functions that compute, and of those that configure them."""
    prefix, lines = i.name.upper(), list[str]()
    if i.link is not None:
        macro = f"{prefix}_LINK_TIMEOUT_US"
        lines += ["", "/* Other devices of the cluster are waited for as long as this, each time. */"]
        lines += [f"#ifndef {macro}", f"#define {macro} {i.link.timeout_us}u", "#endif", ""]
        one = "One inference with all devices: 0 (EB_OK) or a code of eb_link.h; then there is no output, and the next"
        part = "Takes part in one inference, for which it waits: 0 (EB_OK) or a code of eb_link.h. Call it again and"
        lines += [f"/* {one} call works. */" if i.link.is_source else f"/* {part} again. */"]
        lines += [f"int {i.link.entry}(void);"]
    elif not i.stream_rows:
        lines += [f"void {i.name}_invoke({argument});"]
    if i.steps:
        text = (
            f"Do one step of an inference: 1 while there is more to do, 0 when the output stands. From the first call "
            f"on until then inputs stay as they are. {i.name}_invoke() does all steps that are left. Compiled with "
            f"-DEDGEBUILD_ON_STEP the model calls {i.name}_on_step() of yours after each call's work, with the step's "
            "number."
        )
        lines += ["", remark("", text), f"int {i.name}_step(void);", f"void {i.name}_on_step(int32_t step);"]
    if i.selftest:
        text = "Run a vector that comes with the model: 0, or how many bytes of the outputs are wrong. Inputs are lost."
        lines += ["", remark("", text + (" States begin anew." if i.states else "")), f"int {i.name}_selftest(void);"]
    if i.set_weights:
        text = (
            f"From the next inference on, weights are those of another {i.name}_weights.bin, which stays where it is: "
            "0; 1: it is not aligned as the linked ones are, 2: it was packed for another program, 3: it is damaged. "
            "Where it is not 0 nothing changes. A null pointer brings back the linked ones."
        )
        lines += ["", remark("", text), f"int {i.name}_set_weights(const void *weights);"]
    if i.budgets:
        first = "From the next inference on, clocks are those of one of these budgets; the first holds at start. Others"
        lines += ["", f"/* {first} change nothing.", *(f" * {n}: {ms} ms" for n, ms in enumerate(i.budgets)), " */"]
        lines += [f"#define {prefix}_QOS_COUNT {len(i.budgets)}", f"void {i.name}_set_qos(int32_t budget);"]
    if i.states:
        first = f"The next call of {i.name}_invoke() is the first of a sequence: what lasts from call to call begins"
        lines += ["", f"/* {first} anew. */", f"void {i.name}_reset(void);"]
    return lines


FLOAT, UINT8, INT8 = 1, 2, 3  # TensorProto.DataType
TFLITE_MARK = b"TFL3"
ONNX_TYPES = {FLOAT: "float32", 6: "int32", 9: "bool"}
# Numbers of fields (onnx.proto of ONNX).
GRAPH, FUNCTIONS = 7, 25
NODE, INITIALIZER, INPUT, OUTPUT, SPARSE_INITIALIZER = 1, 5, 11, 12, 15
NODE_INPUT, NODE_OUTPUT, OP_TYPE, ATTRIBUTE, DOMAIN = 1, 2, 4, 5, 7
ATTRIBUTE_GRAPH, ATTRIBUTE_GRAPHS = 6, 11
VALUE_NAME, VALUE_TYPE, TENSOR_TYPE, ELEMENT, SHAPE, DIM, DIM_VALUE = 1, 2, 1, 1, 2, 1, 1
DIMS, DATA_TYPE, FLOAT_DATA, INT32_DATA, TENSOR_NAME, RAW_DATA = 1, 2, 4, 5, 8, 9
SMALL = 64  # bytes: larger constants are not read, as scales and zero points are smaller


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number without an end")


class _Message:
    """A protobuf message. `fields`: by number, the wire type and the bytes [first, past) of each; a varint twice."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.fields = data, dict[int, list[tuple[int, int, int]]]()
        while at < end:
            key, at = _varint(data, at)
            kind = key & 7
            if kind == 0:
                value, at = _varint(data, at)
                first = past = value
            else:
                length, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind] if kind in (1, 5) else -1, at)
                if length < 0 or at + length > end:
                    raise ValueError("a field that ends behind its message")
                first = at
                past = at = at + length
            self.fields.setdefault(key >> 3, []).append((kind, first, past))

    def messages(self, number: int) -> list[_Message]:
        return [_Message(self.data, first, past) for _, first, past in self.fields.get(number, [])]

    def texts(self, number: int) -> list[str]:
        return [self.data[first:past].decode() for _, first, past in self.fields.get(number, [])]

    def text(self, number: int) -> str:
        return ["", *self.texts(number)][-1]

    def numbers(self, number: int) -> list[int]:
        return [value for _, value, _ in self.fields.get(number, [])]


class _Node:
    """Names that a node reads and writes, and its operator. `nested`: it has a body."""

    def __init__(self, m: _Message) -> None:
        self.inputs, self.outputs = m.texts(NODE_INPUT), m.texts(NODE_OUTPUT)
        self.kind, self.domain = m.text(OP_TYPE), m.text(DOMAIN)
        self.nested = any({ATTRIBUTE_GRAPH, ATTRIBUTE_GRAPHS} & a.fields.keys() for a in m.messages(ATTRIBUTE))


def _of_onnx(data: bytes) -> Ports | None:
    model = _Message(data, 0, len(data))
    graphs = model.messages(GRAPH)
    if len(graphs) != 1 or FUNCTIONS in model.fields:
        return None
    (graph,) = graphs
    nodes = [_Node(m) for m in graph.messages(NODE)]
    if SPARSE_INITIALIZER in graph.fields or not nodes or any(n.nested or n.domain for n in nodes):
        return None
    constants = {name: m for m in graph.messages(INITIALIZER) if (name := m.text(TENSOR_NAME))}
    inputs = [_value(m) for m in graph.messages(INPUT)]
    given = [v for v in inputs if v is None or v.name not in constants]
    outputs = [_value(m) for m in graph.messages(OUTPUT)]
    names = [v.name for v in (*given, *outputs) if v is not None]
    if len(set(names)) < len(given) + len(outputs) or not given or not outputs:
        return None
    ends = set(names[len(given) :])
    readers, writers = dict[str, list[_Node]](), dict[str, _Node]()
    for node in nodes:
        for name in dict.fromkeys(node.inputs):
            readers.setdefault(name, []).append(node)
        writers.update(dict.fromkeys(node.outputs, node))
    first = [_read_as(v, readers, constants, ends) for v in given if v is not None]
    last = [_written_as(v, readers, writers, constants) for v in outputs if v is not None]
    sides = (tuple(p for p in side if p is not None) for side in (first, last))
    ports = Ports(*sides)
    return ports if len(ports.inputs) == len(given) and len(ports.outputs) == len(outputs) else None


def _value(m: _Message) -> Surface | None:
    """A tensor of static shape; None if it is something else."""
    name, dtype, shape, is_static = m.text(VALUE_NAME), "", list[int](), False
    for tensor in (t for kind in m.messages(VALUE_TYPE) for t in kind.messages(TENSOR_TYPE)):
        dtype = ONNX_TYPES.get([0, *tensor.numbers(ELEMENT)][-1], dtype)
        for dims in tensor.messages(SHAPE):
            sizes = [dim.numbers(DIM_VALUE) for dim in dims.messages(DIM)]
            is_static = all(len(n) == 1 and 0 < n[0] < 1 << 31 for n in sizes)
            shape += [n for one in sizes for n in one]
    plain = bool(name) and name.isascii() and name.isprintable()
    return Surface(name, dtype, tuple(shape)) if plain and dtype and is_static else None


def _read_as(
    port: Surface, readers: dict[str, list[_Node]], constants: dict[str, _Message], ends: set[str]
) -> Surface | None:
    """An input as the graph has it: quantised if its one reader is a QuantizeLinear; None if that is not clear."""
    nodes = readers.get(port.name, [])
    if not nodes or not any(n.kind == "QuantizeLinear" for n in nodes):
        return port if nodes else None
    if len(nodes) > 1 or port.dtype != "float32" or not ends.isdisjoint(nodes[0].outputs):
        return None
    return _quantised(port, nodes[0], constants)


def _written_as(
    port: Surface, readers: dict[str, list[_Node]], writers: dict[str, _Node], constants: dict[str, _Message]
) -> Surface | None:
    """An output as the graph has it: quantised if a DequantizeLinear makes it, whose operand nothing else reads."""
    writer = writers.get(port.name)
    if writer is None or readers.get(port.name) or port.name in constants:
        return None
    if writer.kind != "DequantizeLinear":
        return port if writer.kind != "QuantizeLinear" else None
    maker = writers.get(writer.inputs[0])
    alone = len(readers.get(writer.inputs[0], [])) == 1
    if maker is None or maker.kind != "QuantizeLinear" or not alone or port.dtype != "float32":
        return None
    return _quantised(port, writer, constants)


def _quantised(port: Surface, node: _Node, constants: dict[str, _Message]) -> Surface | None:
    """The port with the scale and the zero point of a node; None if these are not single numbers."""
    if len(node.inputs) != 3 or not {*node.inputs[1:]} <= constants.keys():
        return None
    (kind, scale), (type_, zero) = (_single_number(constants[name]) for name in node.inputs[1:])
    if kind != FLOAT or type_ not in (INT8, UINT8) or scale is None or zero is None or not 0 < scale < float("inf"):
        return None
    return port._replace(dtype="int8", scale=scale, zero=int(zero) - (128 if type_ == UINT8 else 0))


def _single_number(m: _Message) -> tuple[int, float | None]:
    """The type of a constant, and its number; None if it has not exactly one."""
    kind, number = [0, *m.numbers(DATA_TYPE)][-1], None
    dims = [size if wire == 0 else 2 for wire, size, _ in m.fields.get(DIMS, [])]  # packed: of more than one
    for _, first, past in m.fields.get(RAW_DATA, []):
        if past - first <= SMALL:
            form = {FLOAT: "<f", INT8: "b", UINT8: "B"}.get(kind, "")
            number = float(unpack(form, m.data[first:past])[0])
    for _, first, past in m.fields.get(FLOAT_DATA, []):
        number = unpack("<f", m.data[first:past])[0] if past - first == 4 else number
    for wire, first, _ in m.fields.get(INT32_DATA, []):
        value = first if wire == 0 else _varint(m.data, first)[0]
        number = float(value - (1 << 64) if value >> 63 else value)
    return kind, number if not dims or dims == [1] else None


TFLITE_TYPES = {0: "float32", 2: "int32", 3: "uint8", 6: "bool", 7: "int16", 9: "int8"}
# Control flow and variables: VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE, CALL_ONCE, WHILE, IF, and custom operators.
UNREAD = (32, 118, 119, 129, 142, 143, 144)
CONVERTING = (6, 114)  # DEQUANTIZE, QUANTIZE: next to an input or output they become part of it
# Numbers of fields (schema.fbs of TensorFlow).
OPERATOR_CODES, SUBGRAPHS, BUFFERS = 1, 2, 4
DEPRECATED_CODE, CODE = 0, 3
TENSORS, INPUTS, OUTPUTS = 0, 1, 2
TENSOR_SHAPE, TYPE, BUFFER, NAME, QUANTIZATION, IS_VARIABLE = 0, 1, 2, 3, 4, 5
SCALE, ZERO_POINT = 2, 3
DATA, OFFSET = 0, 1


class _Table:
    """A table of the flatbuffer at a place in the data."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self.fields = at - unpack_from("<i", data, at)[0]
        self.count = unpack_from("<H", data, self.fields)[0] // 2 - 2

    def place(self, field: int) -> int:
        """Where a field lies; 0: it has its default."""
        relative: int = unpack_from("<H", self.data, self.fields + 4 + 2 * field)[0] if field < self.count else 0
        return self.at + relative if relative else 0

    def number(self, field: int, form: str) -> int:
        place = self.place(field)
        return int(unpack_from(form, self.data, place)[0]) if place else 0

    def _to(self, place: int) -> int:
        to: int = place + unpack_from("<I", self.data, place)[0]
        return to

    def table(self, field: int) -> _Table | None:
        place = self.place(field)
        return _Table(self.data, self._to(place)) if place else None

    def vector(self, field: int) -> tuple[int, int]:
        """The place of the first element, and how many there are."""
        place = self.place(field)
        if not place:
            return 0, 0
        at = self._to(place)
        return at + 4, unpack_from("<I", self.data, at)[0]

    def numbers(self, field: int, form: str) -> tuple[float, ...]:
        first, count = self.vector(field)
        return unpack_from(f"<{count}{form}", self.data, first) if count else ()

    def tables(self, field: int) -> list[_Table]:
        first, count = self.vector(field)
        if count * 4 > len(self.data):
            raise ValueError("more tables than the file can hold")
        return [_Table(self.data, self._to(first + 4 * i)) for i in range(count)]

    def text(self, field: int) -> str:
        first, count = self.vector(field)
        return self.data[first : first + count].decode() if first else ""


def _of_tflite(data: bytes) -> Ports | None:
    model = _Table(data, unpack_from("<I", data, 0)[0])
    graphs = model.tables(SUBGRAPHS)
    codes = {max(c.number(DEPRECATED_CODE, "<b"), c.number(CODE, "<i")) for c in model.tables(OPERATOR_CODES)}
    if len(graphs) != 1 or not set(UNREAD).isdisjoint(codes):
        return None
    tensors, buffers = graphs[0].tables(TENSORS), model.tables(BUFFERS)
    sides = [[int(n) for n in graphs[0].numbers(field, "i")] for field in (INPUTS, OUTPUTS)]
    both, names = [n for side in sides for n in side], [t.text(NAME) for t in tensors]
    if len(set(both)) < len(both) or not all(sides) or any(t.number(IS_VARIABLE, "<b") for t in tensors):
        return None
    if any(names.count(names[n]) > 1 for n in both) or min(both) < 0:
        return None
    ports = [[_port(tensors[n], names[n], buffers) for n in side] for side in sides]
    inputs, outputs = (tuple(p for p in side if p is not None) for side in ports)
    if any(p.dtype == "float32" for p in inputs + outputs) and not codes.isdisjoint(CONVERTING):
        return None
    return Ports(inputs, outputs) if len(inputs) + len(outputs) == len(both) else None


def _port(t: _Table, name: str, buffers: list[_Table]) -> Surface | None:
    shape, dtype = tuple(int(n) for n in t.numbers(TENSOR_SHAPE, "i")), TFLITE_TYPES.get(t.number(TYPE, "<b"))
    buffer = buffers[t.number(BUFFER, "<I")]
    holds = buffer.vector(DATA)[1] or buffer.place(OFFSET)
    plain = bool(name) and name.isascii() and name.isprintable()
    if dtype is None or holds or not plain or min(shape, default=1) < 1:
        return None
    quant = t.table(QUANTIZATION)
    scales, zeros = (quant.numbers(SCALE, "f"), quant.numbers(ZERO_POINT, "q")) if quant is not None else ((), ())
    if dtype not in ("int8", "uint8", "int16") or not scales:
        odd = dtype in ("uint8", "int16") or (bool(scales) and dtype not in ("float32", "bool"))
        return None if odd else Surface(name, dtype, shape)
    if len(scales) != 1 or len(zeros) != 1 or not 0 < scales[0] < float("inf"):
        return None
    zero = int(zeros[0]) - (128 if dtype == "uint8" else 0)
    return Surface(name, "int8" if dtype == "uint8" else dtype, shape, scales[0], zero)


def surface(data: bytes) -> Ports | None:
    """The inputs and outputs of a model, a TFLite file by its mark, else ONNX; None if only the full reader can tell.

    Reads the bytes directly, without weights, `tflite`, `onnx` or numpy. Handles plain files, with inputs and outputs
    of static shapes.
    """
    try:
        return (_of_tflite if data[4:8] == TFLITE_MARK else _of_onnx)(data)
    except (error, ValueError, IndexError):
        return None
