"""The one intermediate representation: a frozen graph of ops over tensors.

Conventions that hold from the formats on, whatever the model file says:

* activations of spatial ops are NHWC, weights are laid out as each op's docstring says;
* a tensor with `data` is a constant, every other tensor is an activation;
* `Quant` means real = scale * (q - zero_point), per tensor or along one axis;
* `ops` is in a valid (topological) order: the order of the file.

A pass takes a `Graph` and returns a new one; `verify` holds between any two passes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

# The arithmetic of a model's format: the rounding of quantised ops, and where its real numbers differ.


class Arithmetic(StrEnum):
    """How the integers of a graph are rounded, named after the file format. Code reads its properties, not its name."""

    TFLITE = "tflite"
    ONNX = "onnx"

    @property
    def rounds_once(self) -> bool:
        """Whether an integer result is the exact real one, rounded once, halves to even, as QuantizeLinear rounds."""
        return self is Arithmetic.ONNX

    @property
    def fixed_point(self) -> bool:
        """Whether integer results equal those of TFLite Micro's and CMSIS-NN's kernels (gemmlowp's fixedpoint.h)."""
        return self is Arithmetic.TFLITE

    @property
    def wide_bits(self) -> int:
        """Bits of the factor of 64-bit sums: 15 in MultiplyByQuantizedMultiplier of an int64, 23 in a float32."""
        return 15 if self.fixed_point else 23

    @property
    def bias_slack(self) -> float:
        """How far a bias's scale may differ from its products' scale, as a share of one step of the result."""
        return 0.02 if self.fixed_point else 0.0

    @property
    def finite(self) -> bool:
        """Whether real extremes and open activation bounds begin at the largest finite numbers instead of infinity."""
        return self is Arithmetic.TFLITE

    @property
    def saturating_casts(self) -> bool:
        """Whether casts of reals to 8 or 16 bits saturate; otherwise they keep the low bits."""
        return self is Arithmetic.TFLITE

    @property
    def passes_nan(self) -> bool:
        """Whether functions of a NaN return a NaN."""
        return self is Arithmetic.ONNX


Array = NDArray[Any]
ITEM_BYTES = {"int8": 1, "uint8": 1, "int16": 2, "int32": 4, "int64": 8, "float32": 4, "bool": 1}
ITEM_BYTES |= {"uint32": 4, "uint64": 8}


@dataclass(frozen=True)
class Quant:
    """Affine quantisation. One scale and zero point, or one per index of `axis`."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None

    @property
    def per_tensor(self) -> bool:
        return len(self.scale) == 1


@dataclass(frozen=True)
class Origin:
    """The tensor of the model's file whose values a tensor has: real numbers if `quant` is None, else integers.

    `moves` reorder the file's elements: ("transpose", permutation), ("reshape", shape), or ("take", indices of the last
    dimension that are kept).
    """

    name: str
    moves: tuple[tuple[str, tuple[int, ...]], ...] = ()
    quant: Quant | None = None


@dataclass(frozen=True)
class Tensor:
    """A value of the graph: `shape` in elements, `dtype` one of ITEM_BYTES.

    `origin`: the tensor of the file that it holds, set by passes that derive it from another tensor; None: the one
    called `name`. Only the verifier reads it, and it checks the quantisation, which a later pass may change.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    quant: Quant | None = None
    data: Array | None = field(default=None, repr=False, compare=False)
    origin: Origin | None = field(default=None, repr=False, compare=False)

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * ITEM_BYTES[self.dtype]

    @property
    def constant(self) -> bool:
        return self.data is not None

    @property
    def array(self) -> Array:
        """The stored numbers of a constant. Raises AssertionError for an activation."""
        assert self.data is not None, self.name
        return self.data


@dataclass(frozen=True)
class Op:
    """One operation. `kind` is a name of the op registry, `origin` the file's own operator name."""

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    origin: str = ""


@dataclass(frozen=True)
class Removed:
    """Channels of a tensor: of `total` in the model, `constant` never vary and `channels` are not computed.

    The counts differ: an op may need a constant channel, and a channel that no op reads is removed as well.
    """

    tensor: str
    constant: int
    channels: int
    total: int


@dataclass(frozen=True)
class State:
    """A tensor kept between inferences: input number `read` holds what output number `write` held before.

    `start`: its value at the first inference; None: zeros.
    """

    read: int
    write: int
    start: Array | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Link:
    """The place of a device in a cluster: its number, the number of the source, and a mask of all that take part.

    `plan` is a hash by which devices check that their firmware has the same plan; `entry` is the C function's name.
    """

    plan: int
    device: int
    source: int
    peers: int
    timeout_us: int
    entry: str


@dataclass(frozen=True)
class Graph:
    """Ops in a valid order over named tensors.

    `arithmetic`: the rounding of quantised ops, and where real numbers differ. `arrays`: inputs and outputs that are
    arrays of the application, with their C symbols. `removed` and `removed_macs` count channels and
    multiply-accumulates of the model that this graph does not compute.
    """

    file: str
    ops: tuple[Op, ...]
    tensors: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    arithmetic: Arithmetic = Arithmetic.TFLITE
    removed: tuple[Removed, ...] = ()
    removed_macs: int = 0
    states: tuple[State, ...] = ()
    link: Link | None = None  # this device's place, if the network is split over several
    arrays: tuple[tuple[str, str], ...] = ()
    format: str = ""  # name of the file format's folder in model/formats

    def __post_init__(self) -> None:
        object.__setattr__(self, "arithmetic", Arithmetic(self.arithmetic))  # accepts the name, too

    @property
    def ports_in(self) -> tuple[str, ...]:
        """The inputs that the application writes."""
        kept = {state.read for state in self.states}
        return tuple(name for i, name in enumerate(self.inputs) if i not in kept)

    @property
    def ports_out(self) -> tuple[str, ...]:
        """The outputs that the application reads."""
        kept = {state.write for state in self.states}
        return tuple(name for i, name in enumerate(self.outputs) if i not in kept)

    @property
    def first_states(self) -> dict[str, Array]:
        """The value at the first inference of each input that is a state."""
        states = dict[str, Array]()
        for state in self.states:
            t = self.tensors[self.inputs[state.read]]
            states[t.name] = np.zeros(t.shape, t.dtype) if state.start is None else state.start.reshape(t.shape)
        return states

    def operands(self, op: Op) -> tuple[Tensor, ...]:
        return tuple(self.tensors[name] for name in op.inputs)

    def result(self, op: Op) -> Tensor:
        return self.tensors[op.outputs[0]]

    @cached_property
    def producers(self) -> dict[str, Op]:
        """The op that writes each computed tensor."""
        return {name: op for op in self.ops for name in op.outputs}

    @cached_property
    def consumers(self) -> dict[str, list[Op]]:
        """The ops that read each tensor, in order; graph outputs are not counted."""
        readers: dict[str, list[Op]] = {name: [] for name in self.tensors}
        for op in self.ops:
            for name in dict.fromkeys(op.inputs):
                readers[name].append(op)
        return readers

    @cached_property
    def nests(self) -> dict[str, Nest]:
        """Cache of index relations, by result: see `ops.nest`."""
        return {}

    @cached_property
    def kernels(self) -> dict[Any, Any]:
        """Cache of kernels, by result and form: see `kernels.kernel_of`."""
        return {}

    def producer(self, name: str, kind: str) -> Op | None:
        """The op that writes `name` if it is of this kind."""
        op = self.producers.get(name)
        return op if op is not None and op.kind == kind else None

    def only_consumer(self, name: str) -> Op | None:
        """The one op that reads `name`, if there is exactly one and it is no output of the graph."""
        readers = self.consumers[name]
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def with_ops(self, ops: Iterable[Op], new: Iterable[Tensor] = (), **changes: Any) -> Graph:
        """The graph with `ops` in place of its ops and `new` tensors added or replaced; drops unused tensors."""
        ops = tuple(ops)
        pool = {**self.tensors, **{t.name: t for t in new}}
        changed = replace(self, ops=ops, **changes)
        used = [n for op in ops for n in (*op.inputs, *op.outputs)] + [*changed.inputs, *changed.outputs]
        return replace(changed, tensors={name: pool[name] for name in dict.fromkeys(used)})


def after_move(t: Tensor, kind: str, how: tuple[int, ...]) -> Origin:
    """The origin of a tensor that holds the elements of `t` after a "transpose", "reshape" or "take" by `how`."""
    origin = origin_of(t)
    return replace(origin, moves=(*origin.moves, (kind, how)))


def origin_of(t: Tensor) -> Origin:
    """The tensor of the file that `t` holds: by default the one of its name."""
    return t.origin or Origin(t.name, (), t.quant)


def real_values(t: Tensor) -> Array:
    """Real values of a constant: its data, dequantised to float32. Raises AssertionError for an activation."""
    assert t.data is not None
    return t.data if t.quant is None else reals_of(t.data, t).astype(np.float32)


def reals_of(x: Array, t: Tensor) -> Array:
    """The integers `x` of a quantised tensor, dequantised to float64. Raises AssertionError without quantisation."""
    assert t.quant is not None
    scale, zero = np.array(t.quant.scale, np.float64), np.array(t.quant.zero_point, np.int64)
    if t.quant.axis is not None and not t.quant.per_tensor:
        shape = [1] * x.ndim
        shape[t.quant.axis] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return np.asarray((x.astype(np.float64) - zero) * scale)


def rename(graph: Graph, names: Mapping[str, str]) -> Graph:
    """Replace tensor names in all ops' inputs and in the graph's outputs."""

    def new(name: str) -> str:
        while name in names:
            name = names[name]
        return name

    ops = [replace(op, inputs=tuple(map(new, op.inputs))) for op in graph.ops]
    return graph.with_ops(ops, outputs=tuple(map(new, graph.outputs)))


def sort_ops(graph: Graph) -> Graph:
    """Sort ops topologically, near their present order. Raises ValueError on a cycle or a missing producer."""
    ready = set(graph.inputs) | {t.name for t in graph.tensors.values() if t.constant}
    waiting, ordered = list(graph.ops), list[Op]()
    while waiting:
        at = next((i for i, op in enumerate(waiting) if ready.issuperset(op.inputs)), None)
        if at is None:
            raise ValueError(f"cycle or missing producer at {waiting[0].name}")
        op = waiting.pop(at)
        ordered.append(op)
        ready.update(op.outputs)
    return replace(graph, ops=tuple(ordered))


def verify(graph: Graph, result_of: Callable[[Op, Graph], tuple[int, ...]]) -> None:
    """Raise ValueError if the graph is not well formed.

    `result_of(op, graph)` is the shape that the op's index relation gives its output.
    """
    ready = set(graph.inputs) | {t.name for t in graph.tensors.values() if t.constant}
    for op in graph.ops:
        for name in op.inputs:
            if name not in ready:
                raise ValueError(f"{op.name}: reads {name} before it is written")
        for name in op.outputs:
            if name in ready:
                raise ValueError(f"{op.name}: writes {name} a second time")
        ready.update(op.outputs)
        want, have = result_of(op, graph), graph.result(op).shape
        if tuple(want) != tuple(have):
            raise ValueError(f"{op.name} ({op.kind}): output is {have}, its operands make it {want}")
    for name in graph.outputs:
        if name not in ready:
            raise ValueError(f"output {name} is never written")


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Display names, by name: TFLite joins names by `;`; of these, the first and the last part of the last.

    Names whose short forms collide stay whole.
    """
    short = {n: re.sub(r";.*?([^;/]*)$", r";..\1", n, flags=re.DOTALL) for n in names}
    count = Counter(short.values())
    return {n: s if count[s] == 1 else n for n, s in short.items()}


def dump(graph: Graph) -> str:
    """The graph as text, one op a line; equal graphs give equal text."""
    short = short_names(graph.tensors)

    def show(name: str) -> str:
        t = graph.tensors[name]
        return f"{short[name]}:{'x'.join(map(str, t.shape))}:{t.dtype}{'=const' if t.constant else ''}"

    lines = [f"graph {graph.file} ({graph.arithmetic} arithmetic)", f"  inputs  {', '.join(map(show, graph.inputs))}"]
    for i, op in enumerate(graph.ops):
        attrs = " ".join(f"{k}={v}" for k, v in sorted(op.attrs.items()))
        lines.append(f"  {i:3} {op.kind} '{op.name}' {attrs}".rstrip())
        lines.append(f"        {', '.join(map(show, op.inputs))} -> {', '.join(map(show, op.outputs))}")
    return "\n".join([*lines, f"  outputs {', '.join(map(show, graph.outputs))}", ""])


# The index relation of an op, and the facts that follow from it for every op alike.
#
# An op is a loop nest over named axes. Its relation says, for each dimension of each operand, which axes index it. All
# else is derived here once: shapes, multiply-accumulates, the input range that an output range needs, whether the
# result may overwrite an operand, and the ways to cut the op. So no pass has to know an operator by name.


@dataclass(frozen=True)
class Same:
    """Indexed by one axis, unchanged."""

    axis: str


@dataclass(frozen=True)
class Window:
    """Indexed by stride * axis + dilation * tap - pad; indices outside of [0, size) read padding."""

    axis: str
    tap: str
    stride: int
    dilation: int
    pad: int
    size: int


@dataclass(frozen=True)
class Spread:
    """Indexed by (axis + pad - dilation * tap) / stride where that is whole and in [0, size); else not read."""

    axis: str
    tap: str
    stride: int
    dilation: int
    pad: int
    size: int


@dataclass(frozen=True)
class Offset:
    """Indexed by axis - start where that lies in [0, size); elsewhere this operand is not read."""

    axis: str
    start: int
    size: int


@dataclass(frozen=True)
class Grouped:
    """Indexed by axis // group: neighbouring output indices share one."""

    axis: str
    group: int


@dataclass(frozen=True)
class Fixed:
    """Always index 0: a dimension that is broadcast. No axis indexes it."""

    axis: ClassVar[str] = ""


@dataclass(frozen=True)
class Whole:
    """Any output element may need all `size` indices."""

    size: int
    axis: ClassVar[str] = ""


Dim = Same | Window | Spread | Offset | Grouped | Fixed | Whole


@dataclass(frozen=True)
class Nest:
    """`extents` of all axes, the axes of the output's dimensions, and a relation per operand.

    `macs` says whether one step of the innermost loop is a multiply-accumulate. `inside`: the multiply-accumulates of
    an op whose steps contain loops of their own.
    """

    extents: Mapping[str, int]
    out: tuple[str, ...]
    operands: tuple[tuple[Dim, ...], ...]
    macs: bool = False
    inside: int = 0

    @property
    def out_shape(self) -> tuple[int, ...]:
        return tuple(self.extents[axis] for axis in self.out)

    @property
    def mac_count(self) -> int:
        """Multiply-accumulates. An input of relation `Spread` is multiplied by every tap once."""
        extents = {**self.extents, **{d.axis: d.size for dims in self.operands for d in dims if isinstance(d, Spread)}}
        return prod(extents.values()) if self.macs else self.inside


def same(*axes: str) -> tuple[Dim, ...]:
    """The dimensions of an operand that these axes index, each unchanged."""
    return tuple(map(Same, axes))


def numbered(shape: Sequence[int]) -> dict[str, int]:
    """Extents of an axis for each dimension: i0, i1, ..."""
    return {f"i{d}": n for d, n in enumerate(shape)}


def lines(shape: Sequence[int], axis: int, extent: int | None = None) -> Nest:
    """Index relation of `extent` results along `axis` (default: its size), each of which needs the whole axis."""
    extents = numbered(shape)
    names, dims = tuple(extents), list(same(*extents))
    dims[axis] = Whole(shape[axis])
    extents[names[axis]] = shape[axis] if extent is None else extent
    return Nest(extents, names, (tuple(dims),))


def input_range(nest: Nest, operand: int, dim: int, start: int, stop: int) -> tuple[int, int]:
    """Half-open range of an operand's dimension that output indices [start, stop) need.

    The range refers to the output axis that indexes the dimension and is clipped to the operand,
    so padding is never part of it. A dimension that no output axis indexes is needed whole.
    """
    return range_through(nest, nest.operands[operand][dim], start, stop)


def range_through(nest: Nest, relation: Dim, start: int, stop: int) -> tuple[int, int]:
    """`input_range` of a dimension with this relation to the output's axes."""
    match relation:
        case Same(axis):
            return (start, stop) if axis in nest.out else (0, nest.extents[axis])
        case Window(_, tap, stride, dilation, pad, size):
            first = start * stride - pad
            last = (stop - 1) * stride + (nest.extents[tap] - 1) * dilation - pad
            return max(0, first), max(0, min(size, last + 1))
        case Spread(_, tap, stride, dilation, pad, size):
            first = -(-(start + pad - (nest.extents[tap] - 1) * dilation) // stride)
            low = max(0, min(size, first))
            return low, max(low, min(size, (stop - 1 + pad) // stride + 1))
        case Offset(_, begin, size):
            return max(0, min(size, start - begin)), max(0, min(size, stop - begin))
        case Grouped(_, group):
            return start // group, (stop - 1) // group + 1
        case Fixed():
            return 0, 1
        case Whole(size):
            return 0, size


def separable(nest: Nest, axis: str) -> bool:
    """Whether the relations determine what a part of the result along `axis` needs.

    They do not where an operand is read whole and the axis indexes nothing in the first operand. The axis may then
    select what is read, as an output channel selects its group of input channels.
    """
    whole = any(isinstance(d, Whole) for dims in nest.operands for d in dims)
    return not whole or any(d.axis == axis for d in nest.operands[0])


def elementwise(nest: Nest, operand: int) -> bool:
    """Whether output element i depends on element i of the operand alone, so that the result may overwrite it."""
    return nest.operands[operand] == tuple(Same(axis) for axis in nest.out)
