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

UNSIGNED = ("uint32", "uint64")  # types of TFLM's audio front end; other operators only move them


@dataclass(frozen=True)
class Constant:
    """An array of the weights file: `name` is the parameter's name in the kernel."""

    name: str
    data: Array
    note: str = ""  # contents, for the comment in C


class FourBytes(int):
    """A signed 32-bit scalar that packs four bytes; C prints it in hexadecimal."""


PORTABLE = "portable"


@dataclass(frozen=True)
class Wish:
    """The user's options for kernels: `optimize` as in the request; `calls`: a library that kernels may call, or ""."""

    optimize: str = "balanced"
    calls: str = ""


@dataclass(frozen=True)
class Form:
    """The circumstances that a kernel is made for.

    `core`: the core's instruction set and extensions, as words; PORTABLE alone allows plain C only.
    `choice`: pairs of a layer and the variant that was measured to be its fastest.

    A row is all elements that share an index of the second dimension. Row by row, a call computes one row of the
    output, to which y points. Activation operand i is a ring of `rings[i]` rows, with row r in slot r modulo rings[i];
    0: it is whole. `Kernel` says whether a kernel gets the number `row` or the address of that row. `separate[i]`: the
    ring holds only the rows before number `kept`; row `kept`, the newest, lies elsewhere, at `newest`. A reduction over
    rows is called for each of the `rows` rows of its operand. It starts its sums at row 0, keeps them in its scratch
    buffer, and writes y at the last row.
    """

    core: frozenset[str] = frozenset()
    wish: Wish = Wish()
    choice: frozenset[tuple[str, str]] = frozenset()
    rings: tuple[int, ...] | None = None
    separate: tuple[bool, ...] = ()
    rows: int = 0
    scratch_limit: int | None = None  # bytes; a kernel that needs more is replaced by a slower one
    granularity: int = 0  # channels or columns that a decoupled kernel gathers at once; 0: not decoupled
    lfo: bool = False  # whether a decoupled kernel gathers at the low clock
    in_place: bool = False  # the result shares bytes with the first operand, as `Kernel.in_place` allows
    variant: str = ""  # chosen by the plan instead of the fastest; "": the fastest
    engine: Engine | None = None  # computes the op instead of the core, from the engine's scratchpads
    engines: tuple[Engine, ...] = ()  # may compute the op on operands in ordinary memory
    cycles_per_instruction: float = 1.0  # core cycles per instruction of a kernel, to compare with engines' cycles
    tile: bool = False  # one of many parts of an op, none of which is worth a long search

    @property
    def small(self) -> bool:
        """Whether code size counts more than speed."""
        return self.wish.optimize == "size"

    @property
    def rolled(self) -> bool:
        return self.rings is not None


# How a kernel works in place. SAME: the result takes exactly the bytes of the operand.
# PIXELS: the kernel writes each pixel after its last read of the operand up to that pixel. So the result may share
# bytes with the operand if no pixel of it ends above the end of the same pixel of the operand.
SAME, PIXELS = "same", "pixels"


@dataclass(frozen=True)
class Traffic:
    """Memory accesses of a call, which models of time need besides the count of instructions.

    The call reads its constants `passes` times from end to end, in pieces of `piece` bytes (0: all), each `repeats`
    times in a row. It traverses the input once for every `channels_in` channels of a pixel, and the output once for
    every `channels_out` (0: all at once). A decoupled kernel alternates `rounds` times between gathering operands, for
    which it executes `gather` instructions, and computing with them.
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

    `shape` holds the compile-time numbers; kernels of equal template and shape are one C function. Its parameters are,
    in this order: the activations (x, or x0, x1, ...), the output y, in row form the number `row`, the constants, the
    scalars, and the scratch buffer if there is one. In row form a `placed` kernel gets the address of the operand's
    row, and `row` only if it is `counted`. A kernel that is not placed gets `newest` and `kept` after `row` if the
    newest row of its operand is separate.
    """

    template: str  # a file of ops/ or kernels/
    stem: str  # readable start of the C function's name
    shape: Mapping[str, int | str | bool | tuple[int, ...]]
    constants: tuple[Constant, ...] = ()
    scalars: Mapping[str, int | float] = field(default_factory=dict)
    scratch: int = 0  # bytes
    variant: str = "portable"
    estimate: float = 0.0  # instructions of one call
    pace: float = 1.0  # cycles that an instruction takes, as a multiple of what the core's fastest kernels take
    alternatives: tuple[Kernel, ...] = ()  # by estimate
    placed: bool = False  # row form: operands point to their row, as y does
    counted: bool = False  # row form, placed: the kernel gets the number of the row, too
    in_place: str = ""  # SAME or PIXELS: how a result that is not elementwise may overwrite the first operand
    traffic: Traffic = Traffic()
    computes: tuple[str, Mapping[str, Any]] | None = None  # kind and attributes, if they differ from its op's
    fails: bool = False  # the C function returns an error code; the model stops with it if it is not 0

    @property
    def reads_separate_rows(self) -> bool:
        """Whether its operand's newest row may be separate: the kernel gets that row's address, or both places."""
        return self.placed or "separate" in self.shape

    @property
    def cost(self) -> float:
        """Instructions of one call, weighted by their cycles. The planner compares kernels by it."""
        return self.estimate * self.pace


Ranges = tuple[tuple[int, int], ...]  # by dimension, half open
Part = Callable[[Op, Graph, Ranges, Ranges], Mapping[str, Any]]  # (op, graph, ranges of the result, of operand 0)
Interval = tuple[Array, Array]  # least and largest value of every element, both inclusive
Transfer = Callable[..., Interval | None]  # (op, graph, interval of each operand); None: unbounded
Limit = Callable[[Op, Graph], str | None]  # docstring: the limit, quoted in messages; result: the violation
Total = Callable[[Op, Graph, Array, Array], Array]  # (op, graph, x, w) -> int64 sums of (x - zero point) * w


def unchanged(op: Op, graph: Graph, out: Ranges, x: Ranges) -> Mapping[str, Any]:
    """`Spec.part` of an op whose parts have its own attributes."""
    return op.attrs


@dataclass(frozen=True)
class Sums:
    """int8 sums of products in the form that kernels take: convolutions, depthwise convolutions and dense layers.

    H x W x C to OH x OW x K through a window of FH x FW; `weights` are K x FH x FW x (channels of one sum).
    The input's zero point is folded into the bias: sum of (x - z) * w + b = sum of x * w + (b - z * sum of w). That is
    exact at borders too as long as padding reads as z. `start` is the folded bias, `mantissa` and `right` the factor M
    / 2^31 / 2^right; the result is clamped to [low, high] after `y_zero` is added. `stem`: start of C functions' names.
    `added`: per channel, added to the product before it is rounded down; few kernels do that. None: the arithmetic
    rounds.
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

    def bounds(self, stated: bool) -> dict[str, int | float]:
        """Scalars of a kernel that is given the bounds of results, if they are `stated`."""
        return {"low": self.low, "high": self.high} if stated else {}

    @property
    def depthwise(self) -> bool:
        """Whether each sum reads one of several input channels."""
        return self.weights.shape[3] != self.size[2]

    @property
    def pointwise(self) -> bool:
        """Whether output pixel p needs input pixel p alone."""
        return self.window == (1, 1) and self.stride == (1, 1) and self.size[:2] == self.out[:2]

    @cached_property
    def computed(self) -> dict[Any, Any]:
        """Cache of functions that depend on this value alone, by function and other arguments: see `computed_once`."""
        return {}

    @cached_property
    def row(self) -> Sums:
        """One row of a pointwise layer, as an image of height 1."""
        return replace(self, size=(1, *self.size[1:]), out=(1, *self.out[1:]))

    @property
    def padded_rows(self) -> bool:
        """Whether some window covers rows of padding."""
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
        """Whether every partial sum stays in int32."""
        return bool((self.bound < 2**31).all())

    @property
    def rectified(self) -> bool:
        """Whether results below the zero point are clamped, so that the rounding of negative halves has no effect."""
        return self.low >= self.y_zero

    @property
    def full_range(self) -> bool:
        return (self.low, self.high) == (-128, 127)

    @property
    def shifts_right(self) -> bool:
        """Whether every channel rounds twice, the second time in a right shift of 1 to 31 bits."""
        return self.arithmetic.fixed_point and bool(((self.right >= 1) & (self.right <= 31)).all())

    @property
    def rounds_once(self) -> bool:
        """Whether every channel has ONNX's single rounding by a right shift, with no sum halfway between two results.

        A half, x M = 2^(30 + right) mod 2^(31 + right), requires |x| >= 2^(30 + right - t), where 2^t divides M. If no
        sum reaches that, halves need not be rounded to even.
        """
        divides = self.mantissa & -self.mantissa
        between = (self.right >= 1) & (self.right <= 31)
        return self.arithmetic.rounds_once and bool((between & (self.bound * divides < 2.0 ** (30 + self.right))).all())

    @cached_property
    def finish(self) -> str:
        """The short fixed-point sequence that turns sums into results; "sums": no sequence gives equal results.

        "relu": rounded twice, halves up, which is exact where negative results are clamped. "signed": rounded twice,
        halves away from zero. "once": rounded down, then once, halves up. Suffix "_clamped": bounds other than int8's.
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
        """The factors as eb_requantize's parameters: mantissas, and shifts that are left if positive."""
        multiplier = Constant("multiplier", self.mantissa.astype(np.int32), "Q0.31")
        return multiplier, Constant("shift", (-self.right).astype(np.int8), "left if positive")


@dataclass(frozen=True)
class Spec:
    """The facts about a kind of op that the rest of the package may use.

    `view` ops only give the bytes of their first operand another shape; they cost nothing and have no kernel.
    `float_only` ops have no quantised form; `exact` ops move or select values without arithmetic, so that they work on
    any dtype and keep their operand's quantisation. `part` is called only for dimensions that the index relation allows
    to cut. `interval` bounds an int8 or int16 result (see spatial.py; `exact` ops need none). `moved` is `reference`
    with its real results shifted by a share of the largest before they are rounded: (op, graph, share, *operands).
    `total` gives the sums of an op on (x, w, bias) without the bias, before requantisation. `sums` describes an int8 op
    that is a sum of products, for kernels that compute those; None for other ops.
    """

    kind: str
    nest: Callable[[Op, Graph], Nest]
    reference: Callable[..., Array]
    kernel: Callable[[Op, Graph, Form], Kernel] | None = None
    view: bool = False
    rows: Callable[[Op, Graph], str] = lambda op, graph: ""  # how it can run row by row: "each", "reduce", or ""
    any_rows: bool = False  # "reduce" accepts operand rows of any length, as after a view
    exact: bool = False
    part: Part = unchanged  # attributes of the op that computes only a part of its result
    start: Callable[[Op, Graph], int] = lambda op, graph: 0  # for a view: its first byte in the operand
    float_only: bool = False
    integers: tuple[str, ...] = ("int8",)  # types that it takes quantised; `exact` ops take all
    clamps: bool = False  # takes a `clamp` attribute: a fused activation
    plain: bool = False  # takes int8 without a scale as whole numbers, beside quantised int8; `exact` ops do so anyway
    interval: Transfer | None = None
    moved: Callable[..., Array] | None = None
    total: Total | None = None
    fan_in: Callable[[Op, Graph], bool] = lambda op, graph: True  # for a `total`: whether sums of parts may be added up
    sums: Callable[[Op, Graph], Sums | None] = lambda op, graph: None
    link: str = ""  # "send", "receive" or "output": it talks to devices or the application; these ops keep their order
    limits: tuple[Limit, ...] = ()


def named(spec: Spec) -> Spec:
    """The spec with its functions wrapped: exceptions that they raise name the op."""
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
    """A diagnostic of the first limit that this op breaks; None if it breaks none."""
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
    """The tensor's quantisation; scale 1 and zero point 0 if it has none."""
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

    A star marks a dimension of which a result may need all; so are all dimensions of an operand without a word.
    `extents`: sizes of letters that no operand has.
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


# Loop nests over tensors, with a step for each tensor and as few levels as possible.

Loop = tuple[int, ...]  # extent, then the step of each operand
PART = 256  # float32 values of a partial sum: of equal values, rounding loses 3e-6 of the sum


def steps(shape: Sequence[int]) -> list[int]:
    """Stride of each dimension in elements, in row-major order."""
    return [prod(shape[d + 1 :]) for d in range(len(shape))]


def broadcast_steps(shape: Sequence[int], rank: int) -> list[int]:
    """Strides of a tensor that is broadcast to `rank` dimensions: 0 where it repeats."""
    own = [step if n > 1 else 0 for n, step in zip(shape, steps(shape), strict=True)]
    return [0] * (rank - len(shape)) + own


def collapsed(extents: Sequence[int], *operands: Sequence[int]) -> tuple[Loop, ...]:
    """Loops over `extents`, outermost first: neighbours that are contiguous are merged, those of extent 1 dropped."""
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


def real_loops(extents: Sequence[int], *operands: Sequence[int]) -> tuple[Loop, ...]:
    """The loops of `collapsed` that have more than one iteration."""
    return tuple(loop for loop in collapsed(extents, *operands) if loop[0] > 1)


def parts(count: int, is_float: bool) -> int:
    """Values of each partial sum of a sum over `count`; 0: it is summed as a whole."""
    return PART if is_float and count > PART else 0


def runs(sizes: Sequence[int], whole: Sequence[int]) -> tuple[tuple[Loop, ...], int]:
    """Loops over a part of a tensor, with strides in the tensor, and the contiguous elements in the innermost."""
    *outer, last = collapsed(sizes, steps(whole))
    if last[0] == 1 or last[1] == 1:
        return tuple(outer), last[0]
    return (*outer, last), 1


# Instructions that no kernel estimates: those of a call, and of kernels without an estimate.
#
# PER_CALL and PER_ROW_CALL: `./sconsw bench-calls` counts 3 to 12 and 36 to 39 with two arguments. Kernels with
# constants and scratch take up to ten arguments and save all registers, which is 20 to 40 more.
#
# PER_TURN: per multiply-accumulate of a float network in plain C (`--optimize size`) a Cortex-M4 executes 6 of a dense
# layer, 11 of a convolution and 15 of a depthwise one; RV32IMC 7 of a convolution of int16.

PER_CALL = 40  # a call of a whole op
PER_ROW_CALL = 60  # a call for a row, with the order's table and the addresses of rows
PER_TURN = 8  # an iteration of the innermost loop
PER_ROW_KEPT, PER_BYTE_KEPT = 60, 0.6  # copy of a row into its ring: memcpy of newlib, a word at a time
