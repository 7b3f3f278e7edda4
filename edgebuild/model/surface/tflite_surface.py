"""Inputs and outputs of a TFLite file, read from the flatbuffer itself: no tensor's data, no numpy.

It reads plain files only, whose inputs and outputs are those of the graph. For all others the answer is None, and the
file is read as a whole.
"""

from __future__ import annotations

from struct import error, unpack_from

from .interface import Ports, Surface

TYPES = {0: "float32", 2: "int32", 3: "uint8", 6: "bool", 7: "int16", 9: "int8"}
# Control flow and variables: VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE, CALL_ONCE, WHILE, IF, and custom operators.
UNREAD = (32, 118, 119, 129, 142, 143, 144)
CONVERTING = (6, 114)  # DEQUANTIZE, QUANTIZE: next to an input or output they become part of it
# Numbers of fields (schema.fbs of TensorFlow).
OPERATOR_CODES, SUBGRAPHS, BUFFERS = 1, 2, 4
DEPRECATED_CODE, CODE = 0, 3
TENSORS, INPUTS, OUTPUTS = 0, 1, 2
SHAPE, TYPE, BUFFER, NAME, QUANTIZATION, IS_VARIABLE = 0, 1, 2, 3, 4, 5
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


def surface(data: bytes) -> Ports | None:
    """The inputs and outputs of a model; None if only a reader of the whole can tell."""
    try:
        return _surface(data)
    except (error, ValueError, IndexError):
        return None


def _surface(data: bytes) -> Ports | None:
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
    shape, dtype = tuple(int(n) for n in t.numbers(SHAPE, "i")), TYPES.get(t.number(TYPE, "<b"))
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
