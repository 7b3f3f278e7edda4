"""Read TFLite files: tensors, nodes, variables and control flow.

FlatBuffers has no verifier in Python, so any access may fail on a damaged file.
Quantised uint8 becomes int8: 128 is subtracted from values and zero points. float16 constants become float32, int4 ones
int8.

Sparse constants become dense. Their format (schema.fbs, SparsityParameters; TACO's) has levels in the order of
traversal, each dense or with a list of indices. Dimensions after the tensor's own are those of blocks.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from math import isfinite, prod
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from ....base.errors import EdgebuildError, did_you_mean, fail
from ...ir import Arithmetic, Array, Graph, Quant, Tensor
from ...ops.pointwise import attributes
from ..builder import MAX_OPS, MAX_TURNS, GraphBuilder, Node, checked_size, needed
from ..compose import emit_branch
from .tflite_operators import READERS

# The schema of TFLite files, a module at a time.
#
# `import tflite` runs all 187 modules of the package, in 30 ms; a model needs ten of them. So its own `__init__` runs
# only when a name is read that no module has.


class _Package(ModuleType):
    """The package `tflite`, which imports a class from the module of the same name when it is first read."""

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
    13: "resource", 14: "resource", 15: "uint32",
}  # fmt: skip
NAMES = {5: "text", 8: "complex", 10: "float64", 11: "complex", 16: "uint16", 17: "computed int4"}
INT4 = 17
MAX_SCALE = 2.0**96  # the largest 32-bit integer times it is a finite float32
MIN_SCALE = float(np.finfo(np.float32).smallest_subnormal)  # products with other scales cannot overflow
PLAIN = ("float32", "float16", "bool")  # types for which a scale in the file is ignored
REMEDIES = {"complex": "; compute spectra (RFFT) in the application, and begin the model behind them"}
OPERATORS = {code: name for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)}


def ints(array: Any) -> list[int]:
    return [] if isinstance(array, int) else [int(n) for n in array]


def tensors_of(model: Any, subgraph: Any, file: str, file_size: int) -> list[Tensor]:
    """All tensors of a subgraph, by number. `file_size` bounds the sizes of their data.

    Unused tensors are not checked, because the converter stores ranges of an LSTM as such.
    Raises EdgebuildError for unsupported types, dynamic shapes and damaged data.
    """
    tensors, names, used, writers = [], set[str](), _used(subgraph), _writers(model, subgraph)
    for index in range(subgraph.TensorsLength()):
        t = subgraph.Tensors(index)
        name = (t.Name() or b"").decode() or f"tensor_{index}"
        name = name if name not in names else f"{name}#{index}"
        names.add(name)
        if index not in used:
            tensors.append(Tensor(name, (), "float32"))
            continue
        shape = tuple(ints(t.ShapeAsNumpy())) if t.ShapeLength() else ()
        halves = t.Type() == INT4 and bool(model.Buffers(t.Buffer()).DataLength())
        dtype = "int8" if halves else TYPES.get(t.Type())
        if dtype is None or (halves and t.Sparsity() is not None):
            what = "sparse int4" if dtype else NAMES.get(t.Type(), f"of type {t.Type()}")
            hint = f"supported: {', '.join(v for v in TYPES.values() if v != 'resource')}"
            hint += REMEDIES.get(what, "")
            kind = writers.get(index, "")
            text, node = f"tensor '{name}' is {what}, which is not supported", name.split(";")[0] if kind else ""
            raise fail(text, file=file, node=node, kind=kind, hints=[hint])
        is_empty_list = shape == (0,) and dtype in ("int32", "int64") and index not in writers  # sizes of a scalar
        if any(n < 1 for n in shape) and not is_empty_list:
            hint = "export the model with static shapes and batch size 1"
            raise fail(f"tensor '{name}' has a dynamic or empty shape {shape}", file=file, hints=[hint])
        own = checked_size(Tensor(name, shape, dtype), file)
        data = np.zeros(0, dtype) if is_empty_list else _data(model, t, own, file, file_size, halves)
        own = replace(own, data=data, quant=_quant(t, len(shape), name, file, data))
        if own.dtype in ("int8", "uint8", "int16") and own.quant and not t.Quantization().ZeroPointLength():
            text = f"tensor '{name}' has a scale and no zero point"
            raise fail(text, file=file, hints=["TFLite Micro takes it for not quantised; give it both"])
        if own.constant and t.IsVariable():
            text = f"tensor '{name}' is a constant and a variable"
            raise fail(text, file=file, hints=["a variable tensor has no data; it begins with zeros"])
        tensors.append(_in_own_type(own))
    return tensors


def _used(subgraph: Any) -> set[int]:
    """Numbers of the tensors that are operands or results of an operator or of the subgraph."""
    operators = (subgraph.Operators(i) for i in range(subgraph.OperatorsLength()))
    return {n for side in (subgraph, *operators) for n in ints(side.InputsAsNumpy()) + ints(side.OutputsAsNumpy())}


def _writers(model: Any, subgraph: Any) -> dict[int, str]:
    """Names of the operators that compute a tensor, by its number; "" for the subgraph's inputs."""
    operators = (subgraph.Operators(i) for i in range(subgraph.OperatorsLength()))
    results = ((operator_name(model, op), ints(op.OutputsAsNumpy())) for op in operators)
    return dict.fromkeys(ints(subgraph.InputsAsNumpy()), "") | {n: name for name, each in results for n in each}


def _in_own_type(t: Tensor) -> Tensor:
    """The tensor in a type that ops support."""
    if t.dtype == "float16" and t.data is not None:
        return replace(t, dtype="float32", data=t.data.astype(np.float32))
    if t.dtype == "uint8" and t.quant is not None:
        quant = replace(t.quant, zero_point=tuple(z - 128 for z in t.quant.zero_point))
        data = None if t.data is None else (t.data.astype(np.int16) - 128).astype(np.int8)
        return replace(t, dtype="int8", quant=quant, data=data)
    return t


def _data(model: Any, t: Any, like: Tensor, file: str, file_size: int, halves: bool) -> Any:
    """Data of a constant, None for other tensors. `halves`: two 4-bit numbers per byte, the first in the lower half."""
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
    """A sparse constant as a dense array: its values at the flat indices `where`, and 0 elsewhere."""
    kind = np.dtype(like.dtype).newbyteorder("<")
    values = np.frombuffer(buffer.DataAsNumpy().tobytes(), kind)
    if len(values) != len(where):
        raise ValueError(f"{len(values)} numbers of a sparse tensor at {len(where)} places")
    data = np.zeros(like.elements, like.dtype)
    data[where] = values
    return data.reshape(like.shape)


def _quant(t: Any, rank: int, name: str, file: str, data: Array | None) -> Quant | None:
    """Scales and zero points. For all-zero constants the converter writes scale 0, which is replaced by MIN_SCALE."""
    q = t.Quantization()
    if q is None or not q.ScaleLength() or TYPES.get(t.Type()) in PLAIN:
        return None
    scale = tuple(float(s) for s in q.ScaleAsNumpy())
    zero = tuple(ints(q.ZeroPointAsNumpy())) if q.ZeroPointLength() else (0,) * len(scale)
    if len(zero) == 1:
        zero *= len(scale)
    if len(zero) != len(scale):
        raise fail(f"tensor '{name}' has {len(scale)} scales and {len(zero)} zero points", file=file)
    if scale == (0.0,) and data is not None and (data == zero[0]).all():
        scale = (MIN_SCALE,)
    if not all(0 <= s < float("inf") for s in scale) or (len(scale) == 1 and scale[0] == 0):
        raise fail(f"tensor '{name}' has scale {min(scale)}; scales must be positive and finite", file=file)
    if max(scale, default=0) > MAX_SCALE:
        raise fail(f"tensor '{name}' has scale {max(scale):g}; at most {MAX_SCALE:g}", file=file)
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
    """Flat index in the dense tensor of shape `shape` for every stored value.

    Raises ValueError if levels and shape disagree.
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
    for block, d in enumerate(blocks, len(shape)):  # a blocked dimension has a block number and an index in the block
        index[d] = index[d] * levels[order.index(block)].DenseSize() + index_of[block]
    return np.ravel_multi_index(tuple(index), tuple(shape)) if shape else entries


def _entered(level: Any, entries: Array, most: int) -> tuple[Array, Array, Array]:
    """Entries of a level, their indices along its dimension, and the number of entries per entry of the level above."""
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


# Variables of TFLite files: VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE, and CALL_ONCE, whose graph has initial values.
#
# A variable is identified by its name in the file. Its value at the start of an inference is an input of the graph, and
# the last assigned value an output; the builder joins both to a state.


Special = dict[str, Callable[[Any], None]]  # readers of nodes that are not ops
Handle = str | tuple[str, ...]  # a variable's name, or the tensors of a list's elements, "" if not written yet


@dataclass
class Variables:
    """`first`: values before the first inference. `handles`: resource tensor -> its variable or list."""

    first: Mapping[str, Array]
    handles: dict[str, Handle] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)  # variable -> tensor with its value at the start
    assigned: dict[str, str] = field(default_factory=dict)  # variable -> tensor that was assigned last

    def handle(self, node: Any) -> None:
        self.handles[node.outputs[0]] = node.shared_name()

    def read_node(self, node: Any) -> None:
        name, value = self._of(node), node.written[0]
        if name not in self.now():
            self.read[name] = value.name
            node.builder.tensors[value.name] = replace(value, data=None)
        elif self.now()[name] != value.name:
            node.emit("reshape", [self.now()[name]], shape=value.shape)

    def assign_node(self, node: Any) -> None:
        """Note an assignment. A variable that is assigned before it is read is no state."""
        name, value = self._of(node), node.tensor(1)
        before = self.now().get(name)
        if before is not None and value.shape != node.builder.tensors[before].shape:
            raise node.error(f"variable '{name}' changes its shape to {value.shape}")
        self.assigned[name] = value.name

    def now(self) -> dict[str, str]:
        """The tensor with the current value of each variable."""
        return self.read | self.assigned

    def choose(self, node: Any, branches: Sequence[Callable[[], list[str]]]) -> list[list[str]]:
        """Read all branches and return their results. Variables become selections by the node's condition."""
        before, results, ends = dict(self.assigned), list[list[str]](), list[dict[str, str]]()
        for branch in branches:
            self.assigned = dict(before)
            results.append(branch())
            ends.append(self.assigned)
        self.assigned = before
        for name in dict.fromkeys(name for end in ends for name in end):
            values = [end.get(name, self.now().get(name)) for end in ends]
            if None in values:
                text = f"one branch alone assigns variable '{name}', which nothing reads before"
                raise node.error(text, "read the variable before the branches")
            self.assigned[name] = _selected(node, [str(value) for value in values])
        return results

    def _of(self, node: Node) -> str:
        name = self.handles.get(node.inputs[0])
        if not isinstance(name, str):
            raise node.error("the variable is not known", "VAR_HANDLE must come first")
        return name

    def finish(self, builder: GraphBuilder) -> None:
        for name, first in self.read.items():
            value = self.first.get(name)
            builder.states.append((first, self.now()[name], zero(builder.tensors[first]) if value is None else value))


def _selected(node: Any, values: list[str]) -> str:
    """Name of a selection among these tensors by the node's condition, one choice for all elements."""
    first, *others = (node.builder.tensors[name] for name in values)
    if {t.name for t in others} == {first.name}:
        return values[0]
    if {(t.shape, t.dtype, t.quant) for t in others} != {(first.shape, first.dtype, first.quant)}:
        raise node.error("branches assign a variable values of two forms", "give them one shape, type and scale")
    condition = node.reshaped(node.inputs[0], (1,) * len(first.shape))
    return str(node.inner("pointwise", [condition, *values], first.quant, **attributes("where", to=first.dtype)))


def zero(state: Tensor) -> Array | None:
    """The initial value, its zero point, that TFLM gives to a variable without one; None if that is 0."""
    if state.dtype != "int8" or state.quant is None or not any(state.quant.zero_point):
        return None
    return np.full(state.shape, state.quant.zero_point[0], np.int8)


# Lists of tensors, in which Keras's recurrent layers collect results if the batch is dynamic: operators of TensorFlow,
# or of TFLite under the same names. Indices are constants in each unrolled turn of a loop, so a list is just the names
# of its elements and needs no ops.


class Lists:
    """Readers of list operators. `handles`: list -> names of its elements."""

    def __init__(self, handles: dict[str, Handle]) -> None:
        self.handles = handles

    def special(self) -> Special:
        readers = {"Reserve": self.reserve, "FromTensor": self.split, "SetItem": self.write, "GetItem": self.read}
        readers |= {"Stack": self.stack, "Length": self.count}
        return {f"custom {flex}TensorList{name}": reader for name, reader in readers.items() for flex in ("Flex", "")}

    def reserve(self, node: Any) -> None:
        (count,) = node.numbers(1, "the length of the list")
        if not 0 < count <= MAX_COUNTS:
            raise node.error(f"a list of {count} tensors", f"lists have 1 to {MAX_COUNTS}")
        self.handles[node.outputs[0]] = ("",) * count

    def split(self, node: Any) -> None:
        x = node.tensor(0)
        if not x.shape or x.shape[0] > MAX_COUNTS:
            raise node.error(f"a list made of a tensor of shape {x.shape}", f"lists have 1 to {MAX_COUNTS} tensors")
        size, rest = (1, *x.shape[1:]), (0,) * (len(x.shape) - 1)
        rows = [node.inner("slice", [x.name], begin=(i, *rest), size=size) for i in range(x.shape[0])]
        self.handles[node.outputs[0]] = tuple(node.reshaped(row, x.shape[1:]) for row in rows)

    def write(self, node: Any) -> None:
        names, at = list(self._of(node)), self._place(node)
        names[at] = node.tensor(2).name
        self.handles[node.outputs[0]] = tuple(names)

    def read(self, node: Any) -> None:
        node.emit("reshape", [self._written(node, self._place(node))], shape=node.written[0].shape)

    def stack(self, node: Any) -> None:
        names = [self._written(node, i) for i in range(len(self._of(node)))]
        rows = [node.reshaped(name, (1, *node.builder.tensors[name].shape)) for name in names]
        node.emit("concat", rows, axis=0)

    def count(self, node: Any) -> None:
        node.builder.tensors[node.outputs[0]] = replace(node.written[0], data=np.array(len(self._of(node)), np.int32))

    def _of(self, node: Any) -> tuple[str, ...]:
        names = self.handles.get(node.inputs[0])
        if not isinstance(names, tuple):
            raise node.error("operand 0 is no list that was made before")
        return names

    def _place(self, node: Any) -> int:
        (at,) = node.numbers(1, "the place in the list")
        if not 0 <= at < len(self._of(node)):
            raise node.error(f"place {at} of a list of {len(self._of(node))} tensors")
        return int(at)

    def _written(self, node: Any, at: int) -> str:
        if name := self._of(node)[at]:
            return name
        raise node.error(f"element {at} of the list is read before it is written")


# Control flow: IF, and WHILE with a constant number of turns, as in Keras's recurrent layers, which is unrolled.
#
# Counters are constants in each turn, so the condition is one, too.

Read = Callable[[int, Sequence[str], str], list[str]]  # number of a subgraph, inputs, prefix of names -> outputs


def unroll(node: Any, read: Read, variables: Variables) -> None:
    """Read the body once for each turn, on the results of the turn before. Raises EdgebuildError for too many turns."""
    options, tensors = node.options("WhileOptions"), node.builder.tensors
    values = [name if name in variables.handles else node.tensor(i).name for i, name in enumerate(node.inputs)]
    if min(options.CondSubgraphIndex(), options.BodySubgraphIndex()) < 1:
        raise node.error("a loop around the whole model", "the file is damaged; fetch or export it again")
    for turn in range(MAX_TURNS + 1):
        (condition,) = read(options.CondSubgraphIndex(), values, f"{node.name}/condition{turn}")
        if tensors[condition].data is None:
            raise node.error("the number of turns is computed by the graph", "loops are unrolled; give them a constant")
        if not tensors[condition].data.all():
            break
        values = read(options.BodySubgraphIndex(), values, f"{node.name}/{turn}")
        if len(node.builder.ops) > MAX_OPS:
            raise node.error(f"more than {MAX_OPS} operators once its loops are unrolled")
    else:
        raise node.error(f"more than {MAX_TURNS} turns", f"loops are unrolled, up to {MAX_TURNS} turns")
    _ends(node, values, variables)


KEEP_OUT = "give tensors from branches, and write the list or the variable behind them"


def choose(node: Any, read: Read, variables: Variables) -> None:
    """Read IF: one branch if the condition is constant, else both branches and a selection of their results."""
    options, tensors, condition = node.options("IfOptions"), node.builder.tensors, node.tensor(0)
    numbers = options.ThenSubgraphIndex(), options.ElseSubgraphIndex()
    if min(numbers) < 1:
        raise node.error("a branch around the whole model", "the file is damaged; fetch or export it again")
    given = node.inputs[1:]
    if condition.data is not None:
        number_of_branch = numbers[not condition.data.all()]
        return _ends(node, read(number_of_branch, given, f"{node.name}/{number_of_branch}"), variables)
    branches = [partial(read, number, given, f"{node.name}/{i}/{number}") for i, number in enumerate(numbers)]
    for i, (yes, no) in enumerate(zip(*variables.choose(node, branches), strict=True)):
        if not {yes, no} <= tensors.keys():
            raise node.error("a branch gives a list or a variable, and the condition is computed", KEEP_OUT)
        emit_branch(node, node.reshaped(node.inputs[0], (1,) * len(tensors[yes].shape)), yes, no, i)


def _ends(node: Any, values: Sequence[str], variables: Variables) -> None:
    """Emit these tensors as the node's outputs; handles of variables and lists are passed on."""
    tensors = node.builder.tensors
    for i, (name, y) in enumerate(zip(values, node.written, strict=True)):
        if name in variables.handles:
            variables.handles[y.name] = variables.handles[name]
            continue
        value = tensors[name]
        if value.constant:
            tensors[y.name] = replace(y, data=value.data)
        else:
            node.emit("reshape", [name], output=i, shape=y.shape)


COMPILED = {"custom edgetpu-custom-op": "an Edge TPU", "custom ethos-u": "an Ethos-U NPU"}
ACTIVATIONS = ("int8", "int16", "int32", "float32")
MAY_MISS = (  # operators whose operands after the first may be missing
    "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "SVDF", "TRANSPOSE_CONV", "UNIDIRECTIONAL_SEQUENCE_LSTM",
)  # fmt: skip
DEEPEST, MAX_COPIES = 40, 1 << 13  # nesting depth of subgraphs, and copies in all: a loop of 256 turns has 513
MAX_COUNTS = 1024  # elements of constants that are folded while reading, and of lists
BROKEN = (struct.error, LookupError, TypeError, OverflowError, MemoryError, AttributeError, UnicodeError)


class TfliteNode(Node):
    damaged = (struct.error,)  # the flatbuffer ends too early

    def __init__(
        self,
        builder: GraphBuilder,
        name: str,
        origin: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        table: Any,
        written: Sequence[Tensor],
        legacy: frozenset[str] = frozenset(),
        unsized: frozenset[str] = frozenset(),
    ) -> None:
        """`written`: the results. `legacy`: tensors that are uint8 in the file. `unsized`: those with dynamic sizes."""
        super().__init__(builder, name, origin, inputs, outputs)
        self._table, self.written, self.legacy, self.unsized = table, written, legacy, unsized

    def options(self, type_name: str) -> Any:
        """The node's options as the schema's type `type_name`. Raises EdgebuildError if they are missing or damaged."""
        if (options := _options(self._table, type_name)) is None:
            raise self.error(f"{type_name} are missing", "the file is damaged or was cut")
        if self._table.BuiltinOptionsType() != getattr(tflite.BuiltinOptions, type_name):
            raise self.error(f"it has the options of another operator, not {type_name}", "export the file again")
        for name in _numbers(type(options)):
            if isinstance(value := getattr(options, name)(), float) and not isfinite(value):
                raise self.error(f"option {name} is {value}", "the file is damaged; export it again")
        return options

    def fields(self, type_name: str, *names: str) -> list[Any]:
        """These fields of the node's options."""
        options = self.options(type_name)
        return [getattr(options, name)() for name in names]

    def custom_options(self) -> bytes:
        """The options of a custom operator."""
        data = self._table.CustomOptionsAsNumpy()
        return b"" if isinstance(data, int) else data.tobytes()

    def shared_name(self) -> str:
        """Name of the variable of a VAR_HANDLE."""
        return _shared_name(self._table)

    def after(self, state: Tensor) -> Tensor:
        """A new tensor for the value of a variable tensor after the inference, joined to it as a state."""
        written = replace(state, name=f"{state.name}@after", data=None)
        self.builder.tensors[written.name] = written
        self.builder.states.append((state.name, written.name, zero(state)))
        return written

    def open_shape(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Shape of a view: `sizes` if the file's is dynamic, of which one may be -1 for the rest of operand 0."""
        if self.written[0].name not in self.unsized:
            return self.written[0].shape
        rest = prod(n for n in sizes if n != -1)
        return tuple(self.tensor(0).elements // max(rest, 1) if n == -1 else int(n) for n in sizes)

    def result(
        self, name: str, shape: tuple[int, ...], kind: str, inputs: Sequence[str], attrs: dict[str, Any]
    ) -> Tensor:
        written = next(t for t in self.written if t.name == name)
        if shape != written.shape and name in self.unsized and len(shape) == len(written.shape):
            return replace(written, shape=shape)  # a dynamic batch is 1 in the file, but SPACE_TO_BATCH enlarges it
        if shape != written.shape:
            raise self.error(f"output '{name}' has shape {written.shape} in the file, its operands make it {shape}")
        return written


def read_tflite(data: bytes, file: str, outputs: Sequence[str] = ()) -> Graph:
    """A TFLite model, up to its outputs or `outputs`, as a graph in TFLite arithmetic. Raises EdgebuildError."""
    try:
        return _read(data, file, outputs)
    except EdgebuildError:
        raise
    except ValueError as problem:
        hint = "the file is damaged; fetch or export it again"
        raise fail(f"not a valid TFLite file: {problem}", file=file, hints=[hint]) from None
    except BROKEN:
        text = f"not a whole TFLite file ({len(data)} bytes): a place in it lies behind its end"
        raise fail(text, file=file, hints=["the file is truncated or damaged; fetch or export it again"]) from None


def _read(data: bytes, file: str, wanted: Sequence[str]) -> Graph:
    if len(data) < 8 or data[4:8] != b"TFL3":
        hints = ["a file of another format has another suffix, as .onnx; or fetch or export it again"]
        raise fail("not a TFLite file: identifier TFL3 is missing", file=file, hints=hints)
    model = tflite.Model.GetRootAs(data, 0)
    if model.SubgraphsLength() < 1:
        raise fail("a model without a graph", file=file)
    subgraph = model.Subgraphs(0)
    kinds = {operator_name(model, op) for op in _operators(subgraph)}
    _check_entries(model, kinds, file)
    builder = GraphBuilder(file, Arithmetic.TFLITE)
    tensors = tensors_of(model, subgraph, file, len(data))
    surface = ints(subgraph.InputsAsNumpy()), ints(subgraph.OutputsAsNumpy())
    if min((i for numbers in surface for i in numbers), default=0) < 0:
        raise ValueError("an input or output that is no tensor")
    inputs, outputs = ([tensors[i].name for i in numbers] for numbers in surface)
    lasting = {t.name for i, t in enumerate(tensors) if subgraph.Tensors(i).IsVariable()}
    builder.tensors |= {t.name: t for t in tensors if t.constant or t.name in inputs or t.name in lasting}

    every = _nodes(builder, model, subgraph, tensors)
    _check_written(every, inputs, file)
    control = ("IF", "WHILE") if _acts(model) else ()
    acts = [not node.written or node.origin in control for node in every]
    kept = [name for node, own in zip(every, acts, strict=True) if own for name in node.inputs if name]
    ends, names = list(wanted or outputs), {name for node in every for name in node.outputs}
    if other := next((name for name in wanted if name not in names | {*inputs}), ""):
        near = did_you_mean(other, sorted(names))
        raise fail(f"option 'outputs': no operator writes '{other}'{near}", file=file)
    serving = needed([(node.inputs, node.outputs) for node in every], [*ends, *kept])
    nodes = [node for node, used, own in zip(every, serving, acts, strict=True) if used or own]
    variables = Variables(_first_values(model, file, len(data)))
    special: Special = {"VAR_HANDLE": variables.handle, "READ_VARIABLE": variables.read_node}
    special |= {"ASSIGN_VARIABLE": variables.assign_node, "CALL_ONCE": lambda node: None}
    special |= Lists(variables.handles).special()
    inner = _Inner(model, file, len(data), builder, special, variables.handles)
    special["WHILE"] = lambda node: unroll(node, inner.read, variables)
    special["IF"] = lambda node: choose(node, inner.read, variables)
    _read_nodes(builder, nodes, special)
    variables.finish(builder)
    return builder.finish(inputs, ends)


def _check_entries(model: Any, kinds: set[str], file: str) -> None:
    """Raise EdgebuildError for a file with several functions, of which only the first would be read."""
    signatures = [model.SignatureDefs(i) for i in range(model.SignatureDefsLength())]
    elsewhere = any(s.SubgraphIndex() != 0 for s in signatures)
    if elsewhere or (model.SubgraphsLength() > 1 and not {"CALL_ONCE", "IF", "WHILE"} & kinds):
        text = f"{model.SubgraphsLength()} subgraphs; only models of one are supported"
        keys = [f"'{(s.SignatureKey() or b'').decode(errors='replace')}' is {s.SubgraphIndex()}" for s in signatures]
        hint = "convert one function alone: TFLiteConverter.from_saved_model(folder, signature_keys=['KEY'])"
        raise fail(text, file=file, hints=[*(["signatures: " + ", ".join(keys)] if keys else []), hint])


def _read_nodes(builder: GraphBuilder, nodes: Sequence[TfliteNode], special: Special) -> None:
    builder.read(
        nodes,
        lambda node: None if node.origin in special else _check_operator(node),
        lambda node: special.get(node.origin, _read_node)(node),
    )


@dataclass
class _Inner:
    """The subgraphs after the first, which IF and WHILE nodes read, once per use."""

    model: Any
    file: str
    size: int
    builder: GraphBuilder
    special: Special
    handles: dict[str, Handle]  # of variables and lists, which graphs pass to each other
    tensors: dict[int, list[Tensor]] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)  # subgraphs that are being read
    copies: int = 0

    def read(self, number: int, given: Sequence[str], prefix: str) -> list[str]:
        """Read a copy of this subgraph on the inputs `given`; return the names of its outputs.

        Copies share their constants. Names of their other tensors begin with `prefix`.
        """
        self.copies += 1  # a small file may nest subgraphs so that the number of copies is exponential
        if self.copies > MAX_COPIES or len(self.open) > DEEPEST:
            text = f"more than {MAX_COPIES} copies of graphs, or more than {DEEPEST} in one another"
            raise fail(text, file=self.file, hints=["loops and branches are read once for each turn and place"])
        subgraph = self.model.Subgraphs(number)
        if number not in self.tensors:
            self.tensors[number] = tensors_of(self.model, subgraph, self.file, self.size)
        own = [replace(t, name=f"{number if t.constant else prefix}/{t.name}") for t in self.tensors[number]]
        for i, name in zip(ints(subgraph.InputsAsNumpy()), given, strict=True):
            if name in self.handles:
                self.handles[own[i].name] = self.handles[name]
            else:
                own[i] = self.builder.tensors[name]
        self.builder.tensors |= {t.name: t for t in own if t.constant}
        nodes = _nodes(self.builder, self.model, subgraph, own)
        _check_written(nodes, given, self.file)
        if number in self.open:
            raise ValueError("a graph inside of itself")
        self.open.add(number)
        _read_nodes(self.builder, nodes, self.special)
        self.open.discard(number)
        outputs = [own[i].name for i in ints(subgraph.OutputsAsNumpy())]
        if not self.builder.tensors.keys() | self.handles.keys() >= set(outputs):
            raise ValueError("an output that nothing computes")
        return outputs


def _numbers(options: Any) -> tuple[str, ...]:
    """Names of the methods of a schema class that return a field."""
    methods = {name: m for name, m in vars(options).items() if isinstance(m, FunctionType) and name != "Init"}
    return tuple(name for name, m in methods.items() if not name.startswith("_") and m.__code__.co_argcount == 1)


def _nodes(builder: GraphBuilder, model: Any, subgraph: Any, tensors: Sequence[Tensor]) -> list[TfliteNode]:
    """The nodes of a subgraph on these tensors."""
    numbered = [(t.name, subgraph.Tensors(i)) for i, t in enumerate(tensors)]
    legacy = frozenset(name for name, t in numbered if TYPES.get(t.Type()) == "uint8")
    unsized = frozenset(name for name, t in numbered if -1 in ints(t.ShapeSignatureAsNumpy()))
    nodes = []
    for op in _operators(subgraph):
        results = ints(op.OutputsAsNumpy())
        if min(results, default=0) < 0:
            raise ValueError("a node without results")
        read = ["" if i < 0 else tensors[i].name for i in ints(op.InputsAsNumpy())]
        written = [tensors[i] for i in results]
        name = written[0].name.split(";")[0] if written else "a node without results"  # TFLite nodes have none
        names = [t.name for t in written]
        nodes.append(TfliteNode(builder, name, operator_name(model, op), read, names, op, written, legacy, unsized))
    return nodes


def _options(op: Any, type_name: str) -> Any:
    """The options of an operator as schema type `type_name`; None if it has none."""
    table = op.BuiltinOptions()
    if table is not None:
        options = getattr(tflite, type_name)()
        options.Init(table.Bytes, table.Pos)
    return options if table is not None else None


def _operators(subgraph: Any) -> list[Any]:
    return [subgraph.Operators(i) for i in range(subgraph.OperatorsLength())]


def _first_values(model: Any, file: str, size: int) -> dict[str, Array]:
    """Initial values of variables, by name, from the graphs of CALL_ONCE. Raises EdgebuildError if one is computed."""
    values: dict[str, Array] = {}
    for number in _called_once(model):
        graph, handles = model.Subgraphs(number), dict[int, str]()
        tensors = tensors_of(model, graph, file, size)
        for op in _operators(graph):
            kind = operator_name(model, op)
            if kind == "VAR_HANDLE":
                handles[op.Outputs(0)] = _shared_name(op)
            elif kind == "ASSIGN_VARIABLE":
                name, value = handles[op.Inputs(0)], tensors[op.Inputs(1)].data
                if value is None:
                    text, hint = f"the first value of variable '{name}' is computed", "give it a constant"
                    raise fail(text, file=file, hints=[hint])
                values[name] = value
    return values


def _called_once(model: Any) -> list[int]:
    """Numbers of the graphs that CALL_ONCE nodes of the first graph call."""
    calls = (op for op in _operators(model.Subgraphs(0)) if operator_name(model, op) == "CALL_ONCE")
    every = (_options(op, "CallOnceOptions") for op in calls)
    return [options.InitSubgraphIndex() for options in every if options is not None]


def _acts(model: Any) -> bool:
    """Whether a graph of a loop or branch assigns a variable, so that the node must run even if no result is used."""
    inner = {*range(1, model.SubgraphsLength())} - {*_called_once(model)}
    return "ASSIGN_VARIABLE" in {operator_name(model, op) for i in inner for op in _operators(model.Subgraphs(i))}


def _shared_name(op: Any) -> str:
    if (options := _options(op, "VarHandleOptions")) is None:
        return ""
    return ":".join((text or b"").decode() for text in (options.Container(), options.SharedName()))


def _check_written(nodes: Sequence[TfliteNode], given: Sequence[str], file: str) -> None:
    """Raise EdgebuildError if a tensor is written twice, or is written and an input or a constant."""
    names, hints = set(given), ["the file is damaged; export it again"]
    for t in (t for node in nodes for t in node.written):
        if t.name in names or t.constant:
            first = "a constant and " if t.constant else "an input and " if t.name in given else ""
            raise fail(f"tensor '{t.name}' is {first}written{'' if first else ' twice'}", file=file, hints=hints)
        names.add(t.name)


def _check_operator(node: Node) -> None:
    if node.origin not in READERS:
        hint = "edgebuild ops lists what is supported; keep this part of the model in the application"
        if node.origin.startswith("custom Flex"):
            hint = "it is TensorFlow's own: convert without SELECT_TF_OPS, and recurrent layers with a fixed batch of 1"
        if chip := COMPILED.get(node.origin):
            hint = f"the file was compiled for {chip}; give the .tflite file that its compiler was given"
        raise node.error(f"operator {node.origin} is not supported", hint)


def _read_node(node: Node) -> None:
    assert isinstance(node, TfliteNode)
    if not node.written:
        raise node.error("has no result", "the file is damaged; export it again")
    for t in node.written:
        _refuse_types(node, t)
    for position, name in enumerate(node.inputs):
        if name and name not in node.builder.tensors:
            raise node.error(f"reads '{name}', which nothing computes")
        if not name and not (position and node.origin in MAY_MISS):
            raise node.error(f"operand {position} is missing")
    before = len(node.builder.ops)
    READERS[node.origin](node)
    operands = [node.builder.tensors[name] for name in node.inputs if name in node.builder.tensors]
    counts = (t.dtype in ("int32", "int64", "bool") and t.elements <= MAX_COUNTS for t in operands)
    if all(t.constant and t.quant is None for t in operands) and all(counts):  # computations of shapes, for example
        node.builder.compute(before)


def _refuse_types(node: TfliteNode, written: Tensor) -> None:
    for t in (*(node.builder.tensors[n] for n in node.inputs if n in node.builder.tensors), written):
        if not t.constant and t.quant is not None and t.dtype not in ACTIVATIONS:
            raise node.error(f"tensor '{t.name}' is {t.dtype}", "quantise the model to int8 or leave it float32")
        whole = node.origin == "CAST" and t.quant is None  # plain integers, not quantised ones
        if t.dtype == "int8" and not (t.constant or whole) and (t.quant is None or not t.quant.per_tensor):
            raise node.error(f"int8 tensor '{t.name}' has no scale, or one per channel", "activations need one scale")
        if t.quant is None or t.dtype not in ("int8", "int16"):
            continue
        least, most = (-128, 127) if t.dtype == "int8" else (-(2**15), 2**15 - 1)
        if not all(least <= z <= most for z in t.quant.zero_point):
            hint = f"{t.dtype} zero points are {least}..{most}"
            raise node.error(f"tensor '{t.name}' has zero point {t.quant.zero_point[0]}", hint)
