"""Inputs and outputs of an ONNX file, read from the protobuf itself: no weights, neither onnx nor numpy.

It reads plain files only, whose inputs and outputs are floats of static shapes, or are quantised next to them. For all
others the answer is None, and the file is read as a whole.
"""

from __future__ import annotations

from struct import error, unpack

from .interface import Ports, Surface

FLOAT, UINT8, INT8 = 1, 2, 3  # TensorProto.DataType
TYPES = {FLOAT: "float32", 6: "int32", 9: "bool"}
# Numbers of fields (onnx.proto of ONNX).
GRAPH, FUNCTIONS = 7, 25
NODE, INITIALIZER, INPUT, OUTPUT, SPARSE_INITIALIZER = 1, 5, 11, 12, 15
NODE_INPUT, NODE_OUTPUT, OP_TYPE, ATTRIBUTE, DOMAIN = 1, 2, 4, 5, 7
ATTRIBUTE_GRAPH, ATTRIBUTE_GRAPHS = 6, 11
VALUE_NAME, VALUE_TYPE, TENSOR_TYPE, ELEMENT, SHAPE, DIM, DIM_VALUE = 1, 2, 1, 1, 2, 1, 1
DIMS, DATA_TYPE, FLOAT_DATA, INT32_DATA, TENSOR_NAME, RAW_DATA = 1, 2, 4, 5, 8, 9
SMALL = 64  # bytes: scales and zero points that are looked at


def surface(data: bytes) -> Ports | None:
    """The inputs and outputs of a model; None if only a reader of the whole can tell."""
    try:
        return _surface(data)
    except (error, ValueError, IndexError):
        return None


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
    """`fields`: by number the wire type of each, and where its bytes lie; of a number itself the value twice."""

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


def _surface(data: bytes) -> Ports | None:
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
        dtype = TYPES.get([0, *tensor.numbers(ELEMENT)][-1], dtype)
        for dims in tensor.messages(SHAPE):
            sizes = [dim.numbers(DIM_VALUE) for dim in dims.messages(DIM)]
            is_static = all(len(n) == 1 and 0 < n[0] < 1 << 31 for n in sizes)
            shape += [n for one in sizes for n in one]
    plain = bool(name) and name.isascii() and name.isprintable()
    return Surface(name, dtype, tuple(shape)) if plain and dtype and is_static else None


def _read_as(
    port: Surface, readers: dict[str, list[_Node]], constants: dict[str, _Message], ends: set[str]
) -> Surface | None:
    """An input as the graph has it: quantised if its one reader does nothing else."""
    nodes = readers.get(port.name, [])
    if not nodes or not any(n.kind == "QuantizeLinear" for n in nodes):
        return port if nodes else None
    if len(nodes) > 1 or port.dtype != "float32" or not ends.isdisjoint(nodes[0].outputs):
        return None
    return _quantised(port, nodes[0], constants)


def _written_as(
    port: Surface, readers: dict[str, list[_Node]], writers: dict[str, _Node], constants: dict[str, _Message]
) -> Surface | None:
    """An output as the graph has it: quantised if it is made of integers and nobody else reads it."""
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
    """The port under the scale and the zero point of a node, if these are single numbers."""
    if len(node.inputs) != 3 or not {*node.inputs[1:]} <= constants.keys():
        return None
    (kind, scale), (type_, zero) = (_single_number(constants[name]) for name in node.inputs[1:])
    if kind != FLOAT or type_ not in (INT8, UINT8) or scale is None or zero is None or not 0 < scale < float("inf"):
        return None
    return port._replace(dtype="int8", scale=scale, zero=int(zero) - (128 if type_ == UINT8 else 0))


def _single_number(m: _Message) -> tuple[int, float | None]:
    """The type and the number of a constant that has one."""
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
