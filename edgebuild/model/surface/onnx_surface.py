"""Inputs and outputs of an ONNX file, read from the protobuf itself: no weights, neither onnx nor numpy.

It reads plain files only, whose inputs and outputs are floats of static shapes, or are quantised next to them. For all
others the answer is None, and the file is read as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
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

Field = tuple[int, int, int, int]  # number, wire type, and the place of its bytes; of a number itself the value twice


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


def _fields(data: bytes, at: int, end: int) -> Iterator[Field]:
    """The fields of a message that lies between two places."""
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, kind, value, value
            continue
        length, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind] if kind in (1, 5) else -1, at)
        if length < 0 or at + length > end:
            raise ValueError("a field that ends behind its message")
        yield key >> 3, kind, at, at + length
        at += length


def _parts(data: bytes, message: Field, number: int) -> list[Field]:
    return [f for f in _fields(data, message[2], message[3]) if f[0] == number]


def _text(data: bytes, field: Field) -> str:
    return data[field[2] : field[3]].decode()


class _Node:
    """Names that a node reads and writes, and its operator."""

    def __init__(self, data: bytes, message: Field) -> None:
        self.inputs, self.outputs, self.kind, self.domain, self.nested = list[str](), list[str](), "", "", False
        for f in _fields(data, message[2], message[3]):
            if f[0] == NODE_INPUT:
                self.inputs.append(_text(data, f))
            elif f[0] == NODE_OUTPUT:
                self.outputs.append(_text(data, f))
            elif f[0] == OP_TYPE:
                self.kind = _text(data, f)
            elif f[0] == DOMAIN:
                self.domain = _text(data, f)
            elif f[0] == ATTRIBUTE:
                inner = (a[0] for a in _fields(data, f[2], f[3]))
                self.nested |= any(a in (ATTRIBUTE_GRAPH, ATTRIBUTE_GRAPHS) for a in inner)


def _surface(data: bytes) -> Ports | None:
    model = (0, 2, 0, len(data))
    graphs = _parts(data, model, GRAPH)
    if len(graphs) != 1 or _parts(data, model, FUNCTIONS):
        return None
    by_number = dict[int, list[Field]]()
    for f in _fields(data, graphs[0][2], graphs[0][3]):
        by_number.setdefault(f[0], []).append(f)
    nodes = [_Node(data, f) for f in by_number.get(NODE, [])]
    if SPARSE_INITIALIZER in by_number or not nodes or any(n.nested or n.domain for n in nodes):
        return None
    constants = {name: f for f in by_number.get(INITIALIZER, []) if (name := _name(data, f))}
    inputs = [_value(data, f) for f in by_number.get(INPUT, [])]
    given = [v for v in inputs if v is None or v.name not in constants]
    outputs = [_value(data, f) for f in by_number.get(OUTPUT, [])]
    names = [v.name for v in (*given, *outputs) if v is not None]
    if len(set(names)) < len(given) + len(outputs) or not given or not outputs:
        return None
    ends = set(names[len(given) :])
    readers, writers = dict[str, list[_Node]](), dict[str, _Node]()
    for node in nodes:
        for name in dict.fromkeys(node.inputs):
            readers.setdefault(name, []).append(node)
        writers.update(dict.fromkeys(node.outputs, node))
    first = [_read_as(data, v, readers, constants, ends) for v in given if v is not None]
    last = [_written_as(data, v, readers, writers, constants) for v in outputs if v is not None]
    sides = (tuple(p for p in side if p is not None) for side in (first, last))
    ports = Ports(*sides)
    return ports if len(ports.inputs) == len(given) and len(ports.outputs) == len(outputs) else None


def _name(data: bytes, tensor: Field) -> str:
    return next((_text(data, f) for f in _fields(data, tensor[2], tensor[3]) if f[0] == TENSOR_NAME), "")


def _value(data: bytes, message: Field) -> Surface | None:
    """A tensor of static shape; None if it is something else."""
    name, dtype, shape, is_static = "", "", list[int](), False
    for f in _fields(data, message[2], message[3]):
        if f[0] == VALUE_NAME:
            name = _text(data, f)
        elif f[0] == VALUE_TYPE:
            for tensor in _parts(data, f, TENSOR_TYPE):
                for part in _fields(data, tensor[2], tensor[3]):
                    if part[0] == ELEMENT:
                        dtype = TYPES.get(part[2], "")
                    elif part[0] == SHAPE:
                        is_static = True
                        for dim in _parts(data, part, DIM):
                            sizes = [d[2] for d in _parts(data, dim, DIM_VALUE)]
                            is_static &= len(sizes) == 1 and 0 < sizes[0] < 1 << 31
                            shape += sizes
    plain = bool(name) and name.isascii() and name.isprintable()
    return Surface(name, dtype, tuple(shape)) if plain and dtype and is_static else None


def _read_as(
    data: bytes, port: Surface, readers: dict[str, list[_Node]], constants: dict[str, Field], ends: set[str]
) -> Surface | None:
    """An input as the graph has it: quantised if its one reader does nothing else."""
    mine = readers.get(port.name, [])
    if not mine or not any(n.kind == "QuantizeLinear" for n in mine):
        return port if mine else None
    if len(mine) > 1 or port.dtype != "float32" or not ends.isdisjoint(mine[0].outputs):
        return None
    return _quantised(data, port, mine[0], constants)


def _written_as(
    data: bytes,
    port: Surface,
    readers: dict[str, list[_Node]],
    writers: dict[str, _Node],
    constants: dict[str, Field],
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
    return _quantised(data, port, writer, constants)


def _quantised(data: bytes, port: Surface, node: _Node, constants: dict[str, Field]) -> Surface | None:
    """The port under the scale and the zero point of a node, if these are single numbers."""
    if len(node.inputs) != 3 or not {*node.inputs[1:]} <= constants.keys():
        return None
    (kind, scale), (type_, zero) = (_single(data, constants[name]) for name in node.inputs[1:])
    if kind != FLOAT or type_ not in (INT8, UINT8) or scale is None or zero is None or not 0 < scale < float("inf"):
        return None
    return port._replace(dtype="int8", scale=scale, zero=int(zero) - (128 if type_ == UINT8 else 0))


def _single(data: bytes, tensor: Field) -> tuple[int, float | None]:
    """The type and the number of a constant that has one."""
    kind, number, dims = 0, None, list[int]()
    for f in _fields(data, tensor[2], tensor[3]):
        size = f[3] - f[2]
        if f[0] == DATA_TYPE:
            kind = f[2]
        elif f[0] == DIMS:
            dims += [f[2]] if f[1] == 0 else [2]
        elif f[0] == RAW_DATA and size <= SMALL:
            form = {FLOAT: "<f", INT8: "b", UINT8: "B"}.get(kind, "")  # the type stands before the data
            number = float(unpack(form, data[f[2] : f[3]])[0])
        elif f[0] == FLOAT_DATA and size == 4:
            number = unpack("<f", data[f[2] : f[3]])[0]
        elif f[0] == INT32_DATA:
            value = f[2] if f[1] == 0 else _varint(data, f[2])[0]
            number = float(value - (1 << 64) if value >> 63 else value)
    return kind, number if not dims or dims == [1] else None
