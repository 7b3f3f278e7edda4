"""Declarations of an op module, and the small types that they use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, wraps
from math import prod
from typing import Any

import numpy as np

from ...base.errors import EdgebuildError, fail, note_place
from ...base.levels import Engine
from ..ir import Arithmetic, Array, Dim, Graph, Nest, Op, Quant, Same, Tensor, Whole
from ..surface import C_TYPES as C_TYPES

UNSIGNED = ("uint32", "uint64")  # of TFLM's audio front end; other operators move them, but do not compute with them


@dataclass(frozen=True)
class Constant:
    """An array of the weights file: `name` is the parameter's name in the kernel."""

    name: str
    data: Array
    note: str = ""  # what it holds, for the comment


class FourBytes(int):
    """A scalar of 32 bits, with a sign, that holds four bytes: its C is hexadecimal."""


PORTABLE = "portable"


@dataclass(frozen=True)
class Wish:
    """The user's wishes for kernels: `optimize` as in the request; `calls`: a library that they may call, or none."""

    optimize: str = "balanced"
    calls: str = ""


@dataclass(frozen=True)
class Form:
    """The use that a kernel is wanted for.

    `core`: words of the target's core, the instruction set and its extensions; PORTABLE alone if only plain C will do.
    `choice`: pairs of a layer and its variant, where a variant was measured to be the fastest.

    A row is all that shares an index of the second dimension. Row by row, a call computes one row of the output, to
    which y then points. Activation operand i is a ring of `rings[i]` rows in which row r stands at r modulo rings[i],
    or there whole if that is 0. `Kernel` says whether a kernel gets the number `row`, or the address of that row.
    `separate[i]`: the ring holds rows below the number `kept` alone, and row `kept` lies outside of it, at `newest`.
    An op that reduces over rows is instead called for each of the `rows` rows of its operand: it
    starts its sums at row 0 and writes y at the last; its scratch buffer holds them in between.
    """

    core: frozenset[str] = frozenset()
    wish: Wish = Wish()
    choice: frozenset[tuple[str, str]] = frozenset()
    rings: tuple[int, ...] | None = None
    separate: tuple[bool, ...] = ()
    rows: int = 0
    scratch_limit: int | None = None  # bytes; a kernel that wants more gives way to a slower one
    granularity: int = 0  # channels or columns that a decoupled kernel gathers at once; 0: not decoupled
    lfo: bool = False  # whether a decoupled kernel gathers at the low clock
    over: bool = False  # the result lies over the first operand, as `Kernel.in_place` of the kernel says
    variant: str = ""  # that the plan takes in place of the fastest kernel
    engine: Engine | None = None  # that computes the op in the core's stead, from its scratchpads
    engines: tuple[Engine, ...] = ()  # that may be called in place of a kernel, on operands where they lie
    per_cost: float = 1.0  # cycles that the core takes for an instruction of its kernels, as engines count cycles
    tile: bool = False  # one of many parts of an op, none of which is worth a long search

    @property
    def small(self) -> bool:
        """Few instructions in memory count for more than few executed."""
        return self.wish.optimize == "size"

    @property
    def rolled(self) -> bool:
        return self.rings is not None


# Ways of a kernel to work in place. SAME: the result takes exactly the bytes of the operand.
# PIXELS: results are made pixel by pixel, each after all that is read of the operand up to its own pixel. So the result
# may lie over the operand if the end of each of its pixels is not above the end of the same pixel of the operand.
SAME, PIXELS = "same", "pixels"


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

    `shape` holds the compile-time numbers; kernels of equal template and shape are one C function. The function takes,
    in this order, the activations (x, or x0, x1, ...), the output y, and in row form the number `row`. Behind them
    stand the constants, the scalars, and the scratch buffer if there is one. In row form a `placed` kernel gets the
    address of the operand's row, and no `row` unless it is `counted`. One that is not gets `newest` and `kept` behind
    `row` where the newest row of the form's operand is separate.
    """

    template: str  # a file of ops/ or kernels/
    stem: str  # readable start of the C function's name
    shape: Mapping[str, int | str | bool | tuple[int, ...]]
    constants: tuple[Constant, ...] = ()
    scalars: Mapping[str, int | float] = field(default_factory=dict)
    scratch: int = 0  # bytes
    summary: str = ""  # one line for the function's comment
    variant: str = "portable"
    estimate: float = 0.0  # instructions of one call
    pace: float = 1.0  # cycles that an instruction takes, as a multiple of what the core's fastest kernels take
    others: tuple[Kernel, ...] = ()  # that would do as well, by estimate
    placed: bool = False  # row form: operands point to the row, as y does to that of the result
    counted: bool = False  # row form, placed: the number of the row counts all the same
    in_place: str = ""  # how the result may lie over the first operand though elements depend on others (SAME, PIXELS)
    traffic: Traffic = Traffic()
    computes: tuple[str, Mapping[str, Any]] | None = None  # kind and attributes of what it computes, if not its op's
    fails: bool = False  # the C function returns a code; the model ends with it if it is not 0

    @property
    def reads_separate_rows(self) -> bool:
        """Whether the newest row of its operand may be separate: it gets its address, or asks for both places."""
        return self.placed or "separate" in self.shape

    @property
    def cost(self) -> float:
        """Instructions of one call, more of them where they take longer: what kernels and plans are chosen by."""
        return self.estimate * self.pace


Ranges = tuple[tuple[int, int], ...]  # of every dimension, half open
Part = Callable[[Op, Graph, Ranges, Ranges], Mapping[str, Any]]  # (op, graph, ranges of the result, of operand 0)
Interval = tuple[Array, Array]  # least and largest value of every element, both inclusive
Transfer = Callable[..., Interval | None]  # (op, graph, interval of each operand); None: nothing is known
Limit = Callable[[Op, Graph], str | None]  # docstring: the limit; result: what broke it
Total = Callable[[Op, Graph, Array, Array], Array]  # (op, graph, x, w) -> int64 sums of (x - zero point) * w


def unchanged(op: Op, graph: Graph, out: Ranges, x: Ranges) -> Mapping[str, Any]:
    """Attributes of the op are those of each of its parts."""
    return op.attrs


@dataclass(frozen=True)
class Sums:
    """int8 sums of products as kernels see them: one description for convolutions, depthwise ones, and dense layers.

    H x W x C to OH x OW x K through a window of FH x FW; `weights` are K x FH x FW x (channels of one sum).
    The input's zero point is folded into the bias: sum of (x - z) * w + b = sum of x * w + (b - z * sum of w). That is
    exact at borders too as long as padding reads as z. `start` is the folded bias, `mantissa` and `right` the factor
    M / 2^31 / 2^right; the result is clamped to [low, high] after `y_zero` is added. `stem`: of C functions' names.
    `added`: by channel to the product, which is rounded down then; few kernels do that. None: the arithmetic rounds.
    """

    stem: str
    size: tuple[int, int, int]
    out: tuple[int, int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    dilation: tuple[int, int]
    weights: Array
    start: Array
    mantissa: Array
    right: Array
    x_zero: int
    y_zero: int
    low: int
    high: int
    arithmetic: Arithmetic
    added: Array | None = None

    @property
    def window(self) -> tuple[int, int]:
        return self.weights.shape[1], self.weights.shape[2]

    @property
    def macs(self) -> int:
        return self.out[0] * self.out[1] * int(self.weights.size)

    @property
    def depthwise(self) -> bool:
        """A sum goes over one of several channels."""
        return self.weights.shape[3] != self.size[2]

    @property
    def pointwise(self) -> bool:
        """Output pixel p needs input pixel p and no other."""
        return self.window == (1, 1) and self.stride == (1, 1) and self.size[:2] == self.out[:2]

    @cached_property
    def following(self) -> dict[Any, Any]:
        """Results of functions of these numbers alone, by function and other arguments: see `kept`."""
        return {}

    @cached_property
    def row(self) -> Sums:
        """One row of what is pointwise, as an image of its own."""
        return replace(self, size=(1, *self.size[1:]), out=(1, *self.out[1:]))

    @property
    def padded_rows(self) -> bool:
        """Whether some window lies over rows of padding."""
        reach = (self.window[0] - 1) * self.dilation[0]
        return self.pad[0] > 0 or (self.out[0] - 1) * self.stride[0] - self.pad[0] + reach >= self.size[0]

    @property
    def padded_columns(self) -> bool:
        reach = (self.window[1] - 1) * self.dilation[1]
        return self.pad[1] > 0 or (self.out[1] - 1) * self.stride[1] - self.pad[1] + reach >= self.size[1]

    @cached_property
    def bound(self) -> Array:
        """The largest absolute value that each channel's sum can take, in any order of summing."""
        weights = np.abs(self.weights.astype(np.int64)).reshape(len(self.start), -1)
        return np.abs(self.start) + 128 * weights.sum(axis=1)

    @property
    def fits(self) -> bool:
        """No partial sum leaves int32."""
        return bool((self.bound < 2**31).all())

    @property
    def rectified(self) -> bool:
        """Values below the zero point are clamped, so how negative halves are rounded does not show."""
        return self.low >= self.y_zero

    @property
    def full_range(self) -> bool:
        return (self.low, self.high) == (-128, 127)

    @property
    def shifts_right(self) -> bool:
        """Two roundings, the second over at least one bit, in every channel."""
        return self.arithmetic.fixed_point and bool(((self.right >= 1) & (self.right <= 31)).all())

    @property
    def rounds_once(self) -> bool:
        """ONNX's one rounding, in every channel to the right, and no sum lies halfway between two results.

        x M = 2^(30 + right) mod 2^(31 + right) asks for |x| >= 2^(30 + right - t), where 2^t divides M. So halves
        need not be rounded to even.
        """
        divides = self.mantissa & -self.mantissa
        between = (self.right >= 1) & (self.right <= 31)
        return self.arithmetic.rounds_once and bool((between & (self.bound * divides < 2.0 ** (30 + self.right))).all())

    @cached_property
    def finish(self) -> str:
        """How sums become results in a few instructions of fixed-point arithmetic; "sums": in none that is equal.

        "relu": rounded twice, halves up, which is right where negative results are clamped. "signed": rounded twice,
        halves away from zero. "once": rounded down and then once, halves up. "_clamped": bounds other than int8's.
        """
        if self.added is not None:
            return "sums"
        if self.shifts_right:
            how = "relu" if self.rectified else "signed"
        elif self.rounds_once:
            how = "once"
        else:
            return "sums"
        return how if self.full_range else f"{how}_clamped"

    @property
    def scalars(self) -> dict[str, int | float]:
        return {"x_zero": self.x_zero, "y_zero": self.y_zero, "low": self.low, "high": self.high}

    @property
    def rescaling(self) -> tuple[Constant, Constant]:
        """The factors as eb_requantize takes them."""
        multiplier = Constant("multiplier", self.mantissa.astype(np.int32), "Q0.31")
        return multiplier, Constant("shift", (-self.right).astype(np.int8), "left if positive")


@dataclass(frozen=True)
class Spec:
    """All that the rest of the house may ask of an op.

    `view` ops only give the bytes of their first operand another shape; they cost nothing and have
    no kernel. `float_only` ops have no quantised form; `exact` ops move or select values without arithmetic,
    so that they work on any dtype and keep their operand's quantisation. `part` is asked only for
    dimensions that the index relation allows to cut. `interval` bounds an int8 or int16
    result (see intervals.py; `exact` ops need none). `moved` is `reference` with the real numbers that it rounds moved
    by a share of the largest: (op, graph, share, *operands). `total` are the sums of an op on (x, w, bias) to which it
    adds the bias before it requantises. `sums` describes an int8 op to kernels that make sums of products, where it is
    one.
    """

    kind: str
    nest: Callable[[Op, Graph], Nest]
    reference: Callable[..., Array]
    kernel: Callable[[Op, Graph, Form], Kernel] | None = None
    view: bool = False
    rows: Callable[[Op, Graph], str] = lambda op, graph: ""  # how it can run row by row: "each", "reduce" or not
    any_rows: bool = False  # of "reduce": rows of the operand may have any length, as those behind a view
    exact: bool = False
    part: Part = unchanged  # attributes of the op that computes only a part of its result
    start: Callable[[Op, Graph], int] = lambda op, graph: 0  # of a view: its first byte in the operand
    float_only: bool = False
    integers: tuple[str, ...] = ("int8",)  # types in which it is quantised; `exact` ops are in all
    clamps: bool = False  # takes a `clamp` attribute: a fused activation
    plain: bool = False  # takes int8 without a scale as whole numbers, beside quantised int8; `exact` ops do so anyway
    interval: Transfer | None = None
    moved: Callable[..., Array] | None = None
    total: Total | None = None
    fan_in: Callable[[Op, Graph], bool] = lambda op, graph: True  # of a `total`: it may be added up part by part
    sums: Callable[[Op, Graph], Sums | None] = lambda op, graph: None
    link: str = ""  # "send", "receive" or "output": it talks to devices or the application; these ops keep their order
    limits: tuple[Limit, ...] = ()


def named(spec: Spec) -> Spec:
    """The spec with facts that name their op in whatever they fail with."""
    facts = {f.name: getattr(spec, f.name) for f in fields(spec)}
    changed: dict[str, Any] = {
        name: _named(fact) for name, fact in facts.items() if callable(fact) and fact is not unchanged
    }
    return replace(spec, **changed, limits=tuple(map(_named, spec.limits)))


def _named(fact: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(fact)
    def of(op: Op, graph: Graph, *more: Any) -> Any:
        try:
            return fact(op, graph, *more)
        except EdgebuildError:
            raise
        except Exception as bug:
            note_place(bug, graph.file, op.name, op.origin or op.kind)
            raise

    return of


HALF_SCALED = "supported: an operand and a result that both have a scale and a zero point, or neither"


def check_limits(spec: Spec, op: Op, graph: Graph) -> EdgebuildError | None:
    """The first limit of the op that this use of it breaks, as a diagnostic."""
    bare = [t.name for t in (*graph.operands(op)[:1], graph.result(op)) if t.dtype == "int8" and t.quant is None]
    if bare and not (spec.exact or spec.plain):
        hints = ["supported: int8 with a scale and a zero point (in ONNX: between QuantizeLinear and DequantizeLinear)"]
        return fail(f"'{bare[0]}' is int8 without a scale", file=graph.file, node=op.name, kind=op.origin, hints=hints)
    ends = [t for t in (*graph.operands(op)[:1], graph.result(op)) if t.dtype in ("int8", "int16")]
    if not (spec.exact or spec.plain) and 0 < sum(t.quant is None for t in ends) < len(ends):
        name = next(t.name for t in ends if t.quant is None)
        return fail(f"'{name}' has no scale", file=graph.file, node=op.name, kind=op.origin, hints=[HALF_SCALED])
    for t in (*graph.operands(op), graph.result(op)):
        if t.dtype == "int16" and t.quant is not None and not (t.constant or spec.exact or t.dtype in spec.integers):
            hints = [f"supported: {', '.join(spec.integers)} and float32"]
            return fail(f"'{t.name}' is {t.dtype}", file=graph.file, node=op.name, kind=op.origin, hints=hints)
    for limit in spec.limits:
        seen = limit(op, graph)
        if seen:
            rule = " ".join((limit.__doc__ or "").split())
            return fail(seen, file=graph.file, node=op.name, kind=op.origin or op.kind, hints=[f"supported: {rule}"])
    return None


def scale_of(t: Tensor) -> float:
    return quant_of(t).scale[0]


def zero_of(t: Tensor) -> int:
    return t.quant.zero_point[0] if t.quant is not None else 0


def quant_of(t: Tensor) -> Quant:
    """The quantisation of int8; that of int8 without a scale is that of whole numbers."""
    return t.quant if t.quant is not None else Quant((1.0,), (0,))


def is_float(t: Tensor) -> bool:
    return t.dtype == "float32"


def clip_float(y: Array, clamp: Sequence[float | None]) -> Array:
    low, high = clamp
    return np.clip(y, low, high).astype(np.float32) if clamp != (None, None) else y.astype(np.float32)


def operand_names(operands: Sequence[Tensor], constants: Sequence[str] = ()) -> tuple[str, ...]:
    """Parameters of a kernel: activations are x, or x0, x1, ...; constants have these names, or are c0, c1, ..."""
    computed = sum(not t.constant for t in operands)
    activations = iter(["x"] if computed == 1 else [f"x{i}" for i in range(computed)])
    numbered = (f"c{i}" for i in range(len(operands)))
    own = constants or [next(numbered) if t.constant else "" for t in operands]
    return tuple(name if t.constant else next(activations) for t, name in zip(operands, own, strict=True))


def constants_of(operands: Sequence[Tensor], names: Sequence[str], note: str = "operand") -> tuple[Constant, ...]:
    """The operands that are constants, as the kernel's parameters of these names."""
    return tuple(Constant(n, t.data, note) for n, t in zip(names, operands, strict=True) if t.data is not None)


Count = Callable[[Op, Graph], int]


def lettered(rule: str, inside: Count = lambda op, graph: 0, **extents: Count) -> Callable[[Op, Graph], Nest]:
    """An index relation by letters, as einsum has them: `n* v* -> nv`, a word for each operand and one for the result.

    A star: of this dimension all may be needed, as of all of an operand without a word. `extents`: of letters that no
    operand has.
    """
    words, result = (side.split() for side in rule.split("->"))

    def nest(op: Op, graph: Graph) -> Nest:
        own, dims = {c: extent(op, graph) for c, extent in extents.items()}, list[tuple[Dim, ...]]()
        for position, t in enumerate(graph.operands(op)):
            letters = words[position] if position < len(words) else "*" * len(t.shape)
            own |= {c: t.shape[d] for d, c in enumerate(letters) if c != "*"}
            dims.append(tuple(Whole(t.shape[d]) if c == "*" else Same(c) for d, c in enumerate(letters)))
        return Nest({c: own[c] for c in result[0]}, tuple(result[0]), tuple(dims), inside=inside(op, graph))

    return nest


# Loops over tensors that step differently through each: with as few levels as can be.

Loop = tuple[int, ...]  # extent, then the step of each operand
PART = 256  # float32 values that are added up at a time: of equal ones, 3e-6 of the sum is rounded away


def steps(shape: Sequence[int]) -> list[int]:
    """Elements from one index of each dimension to the next."""
    return [prod(shape[d + 1 :]) for d in range(len(shape))]


def broadcast_steps(shape: Sequence[int], rank: int) -> list[int]:
    """Steps of a tensor that is broadcast to `rank` dimensions: 0 where it repeats."""
    own = [step if n > 1 else 0 for n, step in zip(shape, steps(shape), strict=True)]
    return [0] * (rank - len(shape)) + own


def collapsed(extents: Sequence[int], *operands: Sequence[int]) -> tuple[Loop, ...]:
    """Loops over `extents`, outermost first; those that go on where the inner one ends are one, those of 1 are none."""
    loops: list[Loop] = []
    for extent, *moves in reversed(list(zip(extents, *operands, strict=True))):
        if extent == 1:
            continue
        inner = loops[-1] if loops else None
        if inner is not None and all(m == step * inner[0] for m, step in zip(moves, inner[1:], strict=True)):
            loops[-1] = (extent * inner[0], *inner[1:])
        else:
            loops.append((extent, *moves))
    return tuple(reversed(loops)) or ((1, *(0 for _ in operands)),)


def turning(extents: Sequence[int], *operands: Sequence[int]) -> tuple[Loop, ...]:
    """Loops as of `collapsed` that turn more than once."""
    return tuple(loop for loop in collapsed(extents, *operands) if loop[0] > 1)


def parts(count: int, is_float: bool) -> int:
    """Values of each part of a sum of `count`; 0: it is summed as a whole."""
    return PART if is_float and count > PART else 0


def runs(sizes: Sequence[int], whole: Sequence[int]) -> tuple[tuple[Loop, ...], int]:
    """A part of a tensor: loops with the tensor's step, and how many elements lie side by side in the innermost."""
    *outer, last = collapsed(sizes, steps(whole))
    if last[0] == 1 or last[1] == 1:
        return tuple(outer), last[0]
    return (*outer, last), 1


# Instructions that no kernel states: those of a call, and of kernels that have no estimate.
#
# PER_CALL and PER_ROW_CALL: `./sconsw bench-calls` counts 3 to 12 and 36 to 39 with two arguments. Kernels with
# constants and scratch take up to ten arguments and save all registers, which is 20 to 40 more.
#
# PER_TURN: per multiply-accumulate of a float network in plain C (`--optimize size`) a Cortex-M4 executes 6 of a dense
# layer, 11 of a convolution and 15 of a depthwise one; RV32IMC 7 of a convolution of int16.

PER_CALL = 40  # of a whole op
PER_ROW_CALL = 60  # of a row: with the order's table and the addresses of rows
PER_TURN = 8  # of the innermost loop
PER_ROW_KEPT, PER_BYTE_KEPT = 60, 0.6  # of a row that is copied into its ring: memcpy of newlib, a word at a time
