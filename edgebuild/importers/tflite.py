"""TFLite files. The flatbuffer has no verifier in Python, so any access to it may fail on a bad file."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import tflite

from ..errors import EdgebuildError, fail
from ..ir import ITEM_BYTES, Graph, Quant, Tensor
from ..ops import TFLITE_READERS
from .builder import Builder, Node, check_surface

TYPES = {0: "float32", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16", 9: "int8"}
OPERATORS = {code: name for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)}
BROKEN = (struct.error, IndexError, TypeError, ValueError, OverflowError, MemoryError, AttributeError, UnicodeError)


class TfliteNode(Node):
    def __init__(
        self,
        builder: Builder,
        name: str,
        origin: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        table: Any,
        written: Tensor,
    ) -> None:
        super().__init__(builder, name, origin, inputs, outputs)
        self._table, self._written = table, written

    def options(self, type_name: str) -> Any:
        """The node's options as the schema's type `type_name`; defaults if the file has none."""
        options = getattr(tflite, type_name)()
        table = self._table.BuiltinOptions()
        if table is None:
            raise self.error(f"{type_name} are missing", "the file is damaged or was cut")
        options.Init(table.Bytes, table.Pos)
        return options

    def output_shape(self) -> tuple[int, ...]:
        return self._written.shape

    def output_dtype(self) -> str:
        return self._written.dtype

    def result(
        self, name: str, shape: tuple[int, ...], kind: str, inputs: Sequence[str], attrs: dict[str, Any]
    ) -> Tensor:
        if shape != self._written.shape:
            raise self.error(
                f"output '{name}' has shape {self._written.shape} in the file, its operands make it {shape}"
            )
        return self._written


def read_tflite(data: bytes, file: str) -> Graph:
    """A TFLite model with one subgraph, as a graph in "tflite" arithmetic."""
    try:
        return _read(data, file)
    except EdgebuildError:
        raise
    except BROKEN as problem:
        text = f"not a whole TFLite file ({len(data)} bytes): {type(problem).__name__}"
        raise fail(text, file=file, hints=["the file is truncated or damaged; fetch or export it again"]) from None


def _read(data: bytes, file: str) -> Graph:
    if len(data) < 8 or data[4:8] != b"TFL3":
        raise fail("not a TFLite file: identifier TFL3 is missing", file=file)
    model = tflite.Model.GetRootAs(data, 0)
    if model.SubgraphsLength() != 1:
        raise fail(f"{model.SubgraphsLength()} subgraphs; only models of one are supported", file=file)
    subgraph = model.Subgraphs(0)
    builder = Builder(file, "tflite")
    tensors = _tensors(model, subgraph, file, len(data))
    inputs = [tensors[i].name for i in _ints(subgraph.InputsAsNumpy())]
    outputs = [tensors[i].name for i in _ints(subgraph.OutputsAsNumpy())]
    builder.tensors |= {t.name: t for t in tensors if t.constant or t.name in inputs}

    operators = [subgraph.Operators(i) for i in range(subgraph.OperatorsLength())]
    names = [_operator_name(model, op) for op in operators]
    _refuse_unknown(operators, names, tensors, file)
    for op, origin in zip(operators, names, strict=True):
        read = ["" if i < 0 else tensors[i].name for i in _ints(op.InputsAsNumpy())]
        written = [tensors[i] for i in _ints(op.OutputsAsNumpy())]
        node = TfliteNode(builder, _node_name(written), origin, read, [t.name for t in written], op, written[0])
        _refuse_types(node, written[0])
        TFLITE_READERS[origin](node)
    graph = builder.finish(inputs, outputs)
    check_surface(graph)
    return graph


def _ints(array: Any) -> list[int]:
    return [] if isinstance(array, int) else [int(n) for n in array]


def _tensors(model: Any, subgraph: Any, file: str, file_size: int) -> list[Tensor]:
    tensors, taken = [], set[str]()
    for index in range(subgraph.TensorsLength()):
        t = subgraph.Tensors(index)
        name = (t.Name() or b"").decode() or f"tensor_{index}"
        name = name if name not in taken else f"{name}#{index}"
        taken.add(name)
        shape = tuple(_ints(t.ShapeAsNumpy())) if t.ShapeLength() else ()
        dtype = TYPES.get(t.Type())
        if dtype is None or t.Sparsity() is not None or t.IsVariable():
            what = "sparse" if t.Sparsity() is not None else "a variable" if t.IsVariable() else f"of type {t.Type()}"
            raise fail(f"tensor '{name}' is {what}, which is not supported", file=file)
        if any(n < 1 for n in shape):
            hint = "export the model with static shapes and batch size 1"
            raise fail(f"tensor '{name}' has a dynamic or empty shape {shape}", file=file, hints=[hint])
        tensors.append(
            Tensor(name, shape, dtype, _quant(t, len(shape), name, file), _data(model, t, shape, dtype, file_size))
        )
    return tensors


def _data(model: Any, t: Any, shape: tuple[int, ...], dtype: str, file_size: int) -> Any:
    buffer = model.Buffers(t.Buffer())
    if not buffer.DataLength():
        return None
    size = int(np.prod(shape, dtype=np.int64)) * ITEM_BYTES[dtype]
    if buffer.DataLength() != size or size > file_size:
        raise ValueError("buffer and shape disagree")
    return np.frombuffer(buffer.DataAsNumpy().tobytes(), np.dtype(dtype).newbyteorder("<")).reshape(shape)


def _quant(t: Any, rank: int, name: str, file: str) -> Quant | None:
    q = t.Quantization()
    if q is None or not q.ScaleLength():
        return None
    scale = tuple(float(s) for s in q.ScaleAsNumpy())
    zero = tuple(_ints(q.ZeroPointAsNumpy())) if q.ZeroPointLength() else (0,) * len(scale)
    if len(zero) == 1:
        zero *= len(scale)
    if len(zero) != len(scale):
        raise fail(f"tensor '{name}' has {len(scale)} scales and {len(zero)} zero points", file=file)
    if not all(0 <= s < float("inf") for s in scale) or (len(scale) == 1 and scale[0] == 0):
        raise fail(f"tensor '{name}' has scale {min(scale)}; scales must be positive and finite", file=file)
    axis = q.QuantizedDimension() if q.QuantizedDimension() < rank else 0
    return Quant(scale, zero, axis if len(scale) > 1 else None)


def _operator_name(model: Any, op: Any) -> str:
    code = model.OperatorCodes(op.OpcodeIndex())
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    if number == tflite.BuiltinOperator.CUSTOM:
        return f"custom {(code.CustomCode() or b'').decode()}"
    return OPERATORS.get(number, f"operator {number}")


def _node_name(written: Sequence[Tensor]) -> str:
    """TFLite nodes have no names; their results do."""
    return written[0].name.split(";")[0]


def _refuse_unknown(operators: Sequence[Any], names: Sequence[str], tensors: Sequence[Tensor], file: str) -> None:
    problems = []
    for op, origin in zip(operators, names, strict=True):
        if origin not in TFLITE_READERS:
            name = _node_name([tensors[i] for i in _ints(op.OutputsAsNumpy())])
            hint = "edgebuild ops lists what is supported; keep this part of the model in the application"
            problems.append(
                fail(f"operator {origin} is not supported", file=file, node=name, kind=origin, hints=[hint])
            )
    if problems:
        raise EdgebuildError(*(d for p in problems for d in p.diagnostics))


def _refuse_types(node: TfliteNode, written: Tensor) -> None:
    for t in (*(node.builder.tensors[n] for n in node.inputs if n in node.builder.tensors), written):
        if not t.constant and t.dtype not in ("int8", "float32", "int32"):
            raise node.error(f"tensor '{t.name}' is {t.dtype}", "quantise the model to int8 or leave it float32")
        if t.dtype == "int8" and not t.constant and (t.quant is None or not t.quant.per_tensor):
            raise node.error(f"int8 tensor '{t.name}' has no scale, or one per channel", "activations need one scale")
        if t.dtype == "int8" and t.quant is not None and not all(-128 <= z <= 127 for z in t.quant.zero_point):
            raise node.error(
                f"tensor '{t.name}' has zero point {t.quant.zero_point[0]}", "int8 zero points are -128..127"
            )
