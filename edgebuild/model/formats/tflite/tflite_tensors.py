"""Tensors of TFLite files, and the names of their operators.

Sparse constants become dense. Their format (schema.fbs, SparsityParameters; TACO's) has levels in the order of
traversal, each dense or with the indices that are there. Dimensions behind the tensor's own are those of blocks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from ....base.errors import fail
from ...ir import Array, Quant, Tensor
from ..builder import checked_size

# The schema of TFLite files, a module at a time.
#
# `import tflite` runs all 187 modules of the package, in 30 ms; a model needs ten of them. So its own `__init__` is not
# run before somebody asks for a name that no module has.


class _Package(ModuleType):
    """The package `tflite`: each class is looked for in the module of its name, and stands in the module's place."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if find_spec(f"tflite.{name}") is not None:
            import_module(f"tflite.{name}")
        else:
            self.__class__ = ModuleType  # type: ignore[assignment]
            self.__loader__.exec_module(self)  # type: ignore[union-attr]
        return getattr(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, getattr(value, name, value) if isinstance(value, ModuleType) else value)


def _package() -> ModuleType:
    spec = find_spec("tflite")
    if "tflite" in sys.modules or spec is None:
        return import_module("tflite")
    package = module_from_spec(spec)
    package.__class__ = _Package
    sys.modules["tflite"] = package
    return package


tflite: Any = _package()


TYPES = {
    0: "float32", 1: "float16", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16", 9: "int8", 12: "uint64",
    13: "resource", 15: "uint32",
}  # fmt: skip
NAMES = {5: "text", 8: "complex", 10: "float64", 11: "complex", 16: "uint16", 17: "computed int4"}
INT4 = 17
PLAIN = ("float32", "float16", "bool")  # of which a scale in the file says nothing
SPECTRA = "; compute spectra (RFFT) in the application, and begin the model behind them"
OPERATORS = {code: name for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)}


def ints(array: Any) -> list[int]:
    return [] if isinstance(array, int) else [int(n) for n in array]


def tensors_of(model: Any, subgraph: Any, file: str, file_size: int) -> list[Tensor]:
    """All tensors of a subgraph, by number. `file_size` bounds what they say of their own sizes."""
    tensors, names = [], set[str]()
    for index in range(subgraph.TensorsLength()):
        t = subgraph.Tensors(index)
        name = (t.Name() or b"").decode() or f"tensor_{index}"
        name = name if name not in names else f"{name}#{index}"
        names.add(name)
        shape = tuple(ints(t.ShapeAsNumpy())) if t.ShapeLength() else ()
        halves = t.Type() == INT4 and bool(model.Buffers(t.Buffer()).DataLength())
        dtype = "int8" if halves else TYPES.get(t.Type())
        if dtype is None or (halves and t.Sparsity() is not None):
            what = "sparse int4" if dtype else NAMES.get(t.Type(), f"of type {t.Type()}")
            hint = f"supported: {', '.join(v for v in TYPES.values() if v != 'resource')}"
            hint += SPECTRA if what == "complex" else ""
            kind = _writer(model, subgraph, index)
            text, node = f"tensor '{name}' is {what}, which is not supported", name.split(";")[0] if kind else ""
            raise fail(text, file=file, node=node, kind=kind, hints=[hint])
        if any(n < 1 for n in shape):
            hint = "export the model with static shapes and batch size 1"
            raise fail(f"tensor '{name}' has a dynamic or empty shape {shape}", file=file, hints=[hint])
        own = checked_size(Tensor(name, shape, dtype, _quant(t, len(shape), name, file)), file)
        own = replace(own, data=_data(model, t, own, file, file_size, halves))
        if own.dtype in ("int8", "uint8", "int16") and own.quant and not t.Quantization().ZeroPointLength():
            text = f"tensor '{name}' has a scale and no zero point"
            raise fail(text, file=file, hints=["TFLite Micro takes it for not quantised; give it both"])
        if own.constant and t.IsVariable():
            text = f"tensor '{name}' is a constant and a variable"
            raise fail(text, file=file, hints=["a variable tensor has no data; it begins with zeros"])
        tensors.append(_in_own_type(own))
    return tensors


def _writer(model: Any, subgraph: Any, number: int) -> str:
    """The operator that writes a tensor, or none."""
    operators = (subgraph.Operators(i) for i in range(subgraph.OperatorsLength()))
    return next((operator_name(model, op) for op in operators if number in ints(op.OutputsAsNumpy())), "")


def _in_own_type(t: Tensor) -> Tensor:
    """The tensor in one of the types that ops know."""
    if t.dtype == "float16" and t.data is not None:
        return replace(t, dtype="float32", data=t.data.astype(np.float32))
    if t.dtype == "uint8" and t.quant is not None:
        quant = replace(t.quant, zero_point=tuple(z - 128 for z in t.quant.zero_point))
        data = None if t.data is None else (t.data.astype(np.int16) - 128).astype(np.int8)
        return replace(t, dtype="int8", quant=quant, data=data)
    return t


def _data(model: Any, t: Any, like: Tensor, file: str, file_size: int, halves: bool) -> Any:
    """`halves`: two numbers of 4 bits a byte, the first in the lower half."""
    buffer = model.Buffers(t.Buffer())
    if not buffer.DataLength():
        return None
    count, shape = like.elements, like.shape
    if t.Sparsity() is not None:
        return _dense(buffer, like, places(t.Sparsity(), shape))
    size = -(-count // 2) if halves else count * np.dtype(like.dtype).itemsize
    if buffer.DataLength() != size or size > file_size:
        text = f"tensor '{like.name}' has {buffer.DataLength()} bytes of data, {like.dtype} of shape {shape} {size}"
        raise fail(text, file=file, hints=["the file is damaged; fetch or export it again"])
    if halves:
        both = buffer.DataAsNumpy().view(np.int8)
        return np.stack([both << 4 >> 4, both >> 4], axis=-1).ravel()[:count].reshape(shape)
    return np.frombuffer(buffer.DataAsNumpy().tobytes(), np.dtype(like.dtype).newbyteorder("<")).reshape(shape)


def _dense(buffer: Any, like: Tensor, where: Array) -> Array:
    """The numbers of a sparse constant at their places, and 0 elsewhere, as TFLite stores it."""
    kind = np.dtype(like.dtype).newbyteorder("<")
    values = np.frombuffer(buffer.DataAsNumpy().tobytes(), kind)
    if len(values) != len(where):
        raise ValueError(f"{len(values)} numbers of a sparse tensor at {len(where)} places")
    data = np.zeros(like.elements, like.dtype)
    data[where] = values
    return data.reshape(like.shape)


def _quant(t: Any, rank: int, name: str, file: str) -> Quant | None:
    q = t.Quantization()
    if q is None or not q.ScaleLength() or TYPES.get(t.Type()) in PLAIN:
        return None
    scale = tuple(float(s) for s in q.ScaleAsNumpy())
    zero = tuple(ints(q.ZeroPointAsNumpy())) if q.ZeroPointLength() else (0,) * len(scale)
    if len(zero) == 1:
        zero *= len(scale)
    if len(zero) != len(scale):
        raise fail(f"tensor '{name}' has {len(scale)} scales and {len(zero)} zero points", file=file)
    if not all(0 <= s < float("inf") for s in scale) or (len(scale) == 1 and scale[0] == 0):
        raise fail(f"tensor '{name}' has scale {min(scale)}; scales must be positive and finite", file=file)
    axis = q.QuantizedDimension() if q.QuantizedDimension() < rank else 0
    return Quant(scale, zero, axis if len(scale) > 1 else None)


def operator_name(model: Any, op: Any) -> str:
    code = model.OperatorCodes(op.OpcodeIndex())
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    if number == tflite.BuiltinOperator.CUSTOM:
        return f"custom {(code.CustomCode() or b'').decode()}"
    return OPERATORS.get(number, f"operator {number}")


VECTORS = {
    tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
    tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
    tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector,
}


def places(sparsity: Any, shape: Sequence[int]) -> Array:
    """Flat index in the dense tensor of every number that the file holds. Raises ValueError if levels and shape differ.

    `shape`: that of the dense tensor.
    """
    order = [int(n) for n in sparsity.TraversalOrderAsNumpy()]
    blocks = [int(n) for n in sparsity.BlockMapAsNumpy()] if sparsity.BlockMapLength() else []
    levels = [sparsity.DimMetadata(i) for i in range(sparsity.DimMetadataLength())]
    if sorted(order) != list(range(len(shape) + len(blocks))) or len(levels) != len(order):
        raise ValueError("levels of a sparse tensor that are not its dimensions")
    entries, index_of = np.zeros(1, np.int64), dict[int, Array]()
    for dimension, level in zip(order, levels, strict=True):
        entries, chosen, repeat = _entered(level, entries, prod(shape))
        index_of = {d: np.repeat(index, repeat) for d, index in index_of.items()} | {dimension: chosen}
    index = [index_of[d] for d in range(len(shape))]
    for block, d in enumerate(blocks, len(shape)):
        index[d] = index[d] * levels[order.index(block)].DenseSize() + index_of[block]
    return np.ravel_multi_index(tuple(index), tuple(shape)) if shape else entries


def _entered(level: Any, entries: Array, most: int) -> tuple[Array, Array, Array]:
    """Entries of a level below those of the level above, their indices, and how many each of the above has."""
    if level.Format() == tflite.DimensionType.DENSE:
        size = level.DenseSize()
        if size < 1 or size * len(entries) > most:
            raise ValueError(f"a dense level of {size}")
        inner = np.arange(size)
        return (entries[:, None] * size + inner).ravel(), np.tile(inner, len(entries)), np.full(len(entries), size)
    segments, indices = (_vector(level, what) for what in ("ArraySegments", "ArrayIndices"))
    starts, counts = segments[entries], segments[entries + 1] - segments[entries]
    if (counts < 0).any() or counts.sum() > most:
        raise ValueError("segments that go backwards")
    below = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    return below, indices[below], counts


def _vector(level: Any, what: str) -> Array:
    table, vector = getattr(level, what)(), VECTORS[getattr(level, f"{what}Type")()]()
    vector.Init(table.Bytes, table.Pos)
    return vector.ValuesAsNumpy().astype(np.int64)
