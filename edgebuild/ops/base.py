"""What an op module declares, and the small types it declares it with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..axes import Nest
from ..errors import EdgebuildError, fail
from ..ir import Array, Graph, Op, Quant, Tensor

C_TYPES = {"int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "int32": "int32_t", "float32": "float"}


@dataclass(frozen=True)
class Constant:
    """An array of the weights file: `name` is the parameter's name in the kernel."""

    name: str
    data: Array
    note: str = ""  # what it holds, for the comment


PORTABLE = "portable"


@dataclass(frozen=True)
class Form:
    """What a kernel is wanted for: the core's features, whether the op runs row by row, and what counts.

    `features` are the words of the target's core, or PORTABLE alone if only plain C will do; with them `size` or
    `speed` if that is what was asked for, `cmsis-nn` if it may be called, and LAYER=VARIANT for what was measured to be
    the fastest.

    A row is all that shares an index of the second dimension. Row by row, a call takes the number
    `row` and computes that row of the output, to which y then points; activation operand i is a
    ring of `rings[i]` rows in which row r stands at r modulo rings[i], or there whole if that is 0.
    An op that reduces over rows is instead called for each of the `rows` rows of its operand: it
    starts its sums at row 0 and writes y at the last; its scratch buffer holds them in between.
    """

    features: frozenset[str] = frozenset()
    rings: tuple[int, ...] | None = None
    rows: int = 0
    scratch_limit: int | None = None  # bytes; a kernel that wants more gives way to a slower one
    granularity: int = 0  # channels or columns that a decoupled kernel gathers at once; 0: not decoupled
    lfo: bool = False  # whether a decoupled kernel gathers at the low clock

    @property
    def small(self) -> bool:
        """Few instructions in memory count for more than few executed."""
        return "size" in self.features

    @property
    def rolled(self) -> bool:
        return self.rings is not None

    def at(self, row: str, operand: int = 0) -> str:
        """C for the place of a row in an operand."""
        ring = self.rings[operand] if self.rings is not None else 0
        return f"(({row}) % {ring})" if ring else f"({row})"


WHOLE = Form()


@dataclass(frozen=True)
class Traffic:
    """How a call goes about its operands: what models of time need to know besides the count of instructions.

    The constants are read `passes` times from end to end, in pieces of `piece` bytes (0: all) that are each read
    `repeats` times in a row. Of each pixel `channels_in` of the input are reached at once and `channels_out` of the
    output (0: all), so these are gone through once for every such group. A decoupled kernel changes `rounds` times from
    gathering operands, which takes `gather` of the instructions, to computing with them.
    """

    passes: int = 1
    piece: int = 0
    repeats: int = 1
    channels_in: int = 0
    channels_out: int = 0
    gather: float = 0.0
    rounds: int = 0


@dataclass(frozen=True)
class Kernel:
    """How an op is printed as C.

    `shape` holds the compile-time numbers; kernels of equal template and shape are one C function.
    The function takes the activations (x, or x0, x1, ...), the output y, in row form the number
    `row`, the constants, the scalars, and the scratch buffer if there is one, in this order.
    """

    template: str  # file beside the op module
    stem: str  # readable start of the C function's name
    shape: Mapping[str, int | str | bool | tuple[int, ...]]
    constants: tuple[Constant, ...] = ()
    scalars: Mapping[str, int | float] = field(default_factory=dict)
    scratch: int = 0  # bytes
    summary: str = ""  # one line for the function's comment
    variant: str = "portable"
    estimate: float = 0.0  # instructions of one call
    others: tuple[Kernel, ...] = ()  # that would do as well, by estimate
    placed: bool = False  # row form: x points to the row of the operand, as y does to that of the result; no `row`
    in_place: bool = False  # the result may lie over the first operand though elements depend on their neighbours
    traffic: Traffic = Traffic()


Ranges = tuple[tuple[int, int], ...]  # of every dimension, half open
Part = Callable[[Op, Graph, Ranges, Ranges], Mapping[str, Any]]  # (op, graph, ranges of the result, of operand 0)
Interval = tuple[Array, Array]  # least and largest value of every element, both inclusive
Transfer = Callable[..., Interval | None]  # (op, graph, interval of each operand); None: nothing is known
Total = Callable[[Op, Graph, Array, Array], Array]  # (op, graph, x, w) -> int64 sums of (x - zero point) * w


@dataclass(frozen=True)
class Spec:
    """All that the rest of the house may ask of an op.

    `view` ops only give the bytes of their first operand another shape; they cost nothing and have
    no kernel. `tflite` and `onnx` map operator names of the files to functions that read one node.
    `float_only` ops have no quantised form; `exact` ops move or select values without arithmetic,
    so that they work on any dtype and keep their operand's quantisation. `part` is asked only for
    dimensions that the index relation allows to cut. `interval` bounds an int8 result
    (see intervals.py; `exact` ops need none). `total` are the sums of an op on (x, w, bias) to which it adds the bias
    before it requantises.
    """

    kind: str
    nest: Callable[[Op, Graph], Nest]
    reference: Callable[..., Array]
    kernel: Callable[[Op, Graph, Form], Kernel] | None = None
    tflite: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    onnx: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    view: bool = False
    rows: Callable[[Op, Graph], str] = lambda op, graph: ""  # how it can run row by row: "each", "reduce" or not
    exact: bool = False
    part: Part = lambda op, graph, out, x: op.attrs  # attributes of the op that computes only a part of its result
    start: Callable[[Op, Graph], int] = lambda op, graph: 0  # of a view: its first byte in the operand
    float_only: bool = False
    clamps: bool = False  # takes a `clamp` attribute: a fused activation
    interval: Transfer | None = None
    total: Total | None = None
    limits: tuple[Callable[[Op, Graph], str | None], ...] = ()  # docstring: the limit; result: what broke it


def check_limits(spec: Spec, op: Op, graph: Graph) -> EdgebuildError | None:
    """The first limit of the op that this use of it breaks, as a diagnostic."""
    for limit in spec.limits:
        seen = limit(op, graph)
        if seen:
            rule = " ".join((limit.__doc__ or "").split())
            return fail(seen, file=graph.file, node=op.name, kind=op.origin or op.kind, hints=[f"supported: {rule}"])
    return None


def scale_of(t: Tensor) -> float:
    assert t.quant is not None
    return t.quant.scale[0]


def zero_of(t: Tensor) -> int:
    return t.quant.zero_point[0] if t.quant is not None else 0


def quant_of(t: Tensor) -> Quant:
    assert t.quant is not None
    return t.quant


def is_float(t: Tensor) -> bool:
    return t.dtype == "float32"


def clip_float(y: Array, clamp: Sequence[float | None]) -> Array:
    low, high = clamp
    return np.clip(y, low, high).astype(np.float32) if clamp != (None, None) else y.astype(np.float32)
