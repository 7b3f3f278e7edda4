"""Integer operators of other tools: requantisations in several nodes, normalisations, softmax, activations.

NEMO, DORY and older quantlib write a requantisation as (github.com/pulp-platform/dory_examples 60dd66b, 2023-01-24):
Mul by kappa, Add of lambda, Mul by a factor, Div by 2^k or 2^k - 1, Floor or a Cast to int64, Clip. A `Form` is the
exact composition of such nodes. The float32 nodes of the file would round products above 2^24.

The other formulas are those of Deeploy's kernels (github.com/pulp-platform/Deeploy bf64cfa, 2026-08-04, TargetLibraries
and Deeploy/Targets/Generic): quotients are rounded towards 0, shifts down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd, lcm, prod

import numpy as np
import onnx

from ...ir import Array
from .fused import Fused

Range = tuple[int, int]  # least and largest integer
INT32, MAX_BITS, FAR = np.iinfo(np.int32), 46, 1 << 33
ENDS = -(1 << 62), 1 << 62  # range of unbounded numbers
MAX_LEVELS = 1 << 20  # results of all channels up to which `_by_thresholds` is tried


def integers(data: Array) -> Array:
    """`data` as Python's integers, which do not overflow."""
    return np.array([int(v) for v in data.ravel()], object).reshape(data.shape)


UNCHANGED = integers(np.array(1)), integers(np.array(0))  # factor and addend of the identity


def _array(numbers: object) -> Array:
    return np.asarray(numbers, object)  # numpy's arithmetic returns no array for a single integer


@dataclass(frozen=True)
class Form:
    """(base * factor + added) / divisor, rounded as `rounds` says: "", "Floor", or "Cast" towards zero."""

    base: str
    factor: Array
    added: Array
    divisor: int = 1
    rounds: str = ""

    def times(self, number: Array) -> Form:
        return replace(self, factor=_array(self.factor * number), added=_array(self.added * number)).reduced()

    def plus(self, number: Array) -> Form:
        return replace(self, added=_array(self.added + number * self.divisor))

    def over(self, number: int) -> Form:
        return replace(self, divisor=self.divisor * number).reduced()

    def rounded(self, how: str) -> Form:
        return replace(self, rounds=how) if self.divisor > 1 and not self.rounds else self

    def reduced(self) -> Form:
        common = gcd(self.divisor, *self.factor.ravel().tolist(), *self.added.ravel().tolist())
        return replace(
            self,
            factor=_array(self.factor // common),
            added=_array(self.added // common),
            divisor=self.divisor // common,
        )

    @property
    def is_base(self) -> bool:
        return self.divisor == 1 and bool((self.factor == 1).all()) and not self.added.any()

    def reach(self, of: Range) -> Range:
        """The least and the largest result for bases within `of`, rounded down."""
        ends = [(self.factor * end + self.added) // self.divisor for end in of]
        return int(min(np.min(e) for e in ends)), int(max(np.max(e) for e in ends))


def joined(a: Form, b: Form, name: str) -> tuple[Form, list[tuple[str, int]]] | None:
    """The sum of two forms, as a form with base `name`, and the weighted tensors whose sum that base must be.

    None if factors differ between channels.
    """
    divisor = lcm(a.divisor, b.divisor)
    own = [_array(form.factor * (divisor // form.divisor)) for form in (a, b)]
    if any((factor != factor.ravel()[0]).any() for factor in own):
        return None
    first = [int(factor.ravel()[0]) for factor in own]
    common = gcd(*first) or 1
    added = sum(form.added * (divisor // form.divisor) for form in (a, b))
    form = Form(name, _array(common), _array(added), divisor)
    return form.reduced(), [(form.base, factor // common) for form, factor in zip((a, b), first, strict=True)]


@dataclass(frozen=True)
class Shift:
    """((base + before) * factor + added + half) >> bits, from `low` to `high`; all arrays are int32."""

    before: Array
    factor: Array
    added: Array
    bits: int
    low: int
    high: int


def shift_of(form: Form, of: Range, low: int, high: int) -> Shift | None:
    """An exact equivalent, for bases within `of`, of the form clamped to low..high: a multiplication and a shift.

    If the divisor is a power of two, it has the form's own numbers, else numbers with equal thresholds of every result.
    None if 32-bit numbers do not suffice.
    """
    first, last = form.reach(of)
    if form.rounds == "Cast" and form.divisor > 1 and first < 0 and low < 0:
        return None  # a shift cannot round negative results up and positive ones down
    low, high = int(np.clip(first, low, high)), int(np.clip(last, low, high))
    factor, added = np.broadcast_arrays(form.factor, form.added)
    bits = form.divisor.bit_length() - 1
    own = added - ((1 << bits) >> 1)
    if form.divisor == 1 << bits and bits <= 31 and _fits(factor, own):
        before, factor, added = _words(0 * own, factor, own)
        return Shift(before, factor, added, bits, low, high)
    return _by_thresholds(form, of, low, high) if (high - low) * factor.size <= MAX_LEVELS else None


def _fits(*numbers: Array) -> bool:
    return all(INT32.min <= np.min(n) and np.max(n) <= INT32.max for n in numbers)


def _words(*numbers: Array) -> Array:
    return np.stack(numbers).astype(np.int32)


def _by_thresholds(form: Form, of: Range, low: int, high: int) -> Shift | None:
    """A multiplication and a shift, with as many bits as fit, with the form's thresholds: where each result begins.

    An integer is added to the base first, so that the addend of the products is small.
    """
    factor, added = (a.ravel() for a in np.broadcast_arrays(form.factor, form.added))
    half = form.divisor // 2  # the shift adds it for rounding
    before = np.where(factor == 0, 0, (added - half) // np.where(factor == 0, 1, factor))
    if not _fits(before + of[0], before + of[1]):
        return None
    rest, results = added - before * factor, np.arange(low + 1, high + 1)
    size, sign = np.abs(factor), np.where(factor < 0, -1, 1)
    # Thresholds of the results, and ends of the range, both for bases times the factor's sign.
    begin = -(-(np.multiply.outer(results.astype(object), [form.divisor]) - rest) // np.where(size == 0, 1, size))
    begin = np.clip(begin, -FAR, FAR).astype(np.int64)
    ends = np.sort(np.stack([(before + end) * sign for end in of]).astype(np.int64), axis=0)
    constant = np.clip(rest // form.divisor, low, high).astype(np.int64)
    for bits in range(MAX_BITS, -1, -1):
        wanted = (size * (2 << bits) + form.divisor) // (2 * form.divisor)
        if not _fits(wanted) or wanted[size > 0].min(initial=INT32.max) < 1 << max(bits - 30, 0):
            continue  # factors of few bits are inexact, and the rounding half must fit in 64 bits with the products
        wanted = wanted.astype(np.int64)
        starts = results[:, None] << bits
        least = np.where((size > 0) & (begin <= ends[1]), starts - wanted * np.maximum(begin, ends[0]), -FAR << 29)
        most = np.where((size > 0) & (begin > ends[0]), starts - 1 - wanted * np.minimum(begin - 1, ends[1]), FAR << 29)
        least = np.where((size == 0) & (results[:, None] <= constant), starts, least)
        most = np.where((size == 0) & (results[:, None] > constant), starts - 1, most)
        lowest, highest = least.max(axis=0, initial=-FAR << 29), most.min(axis=0, initial=FAR << 29)
        own = np.clip(0, lowest - ((1 << bits) >> 1), highest - ((1 << bits) >> 1))
        if (lowest <= highest).all() and _fits(own):
            shape = np.broadcast_shapes(form.factor.shape, form.added.shape)
            before, factor, added = (a.reshape(shape) for a in _words(before, wanted * sign, own))
            return Shift(before, factor, added, bits, low, high)
    return None


LARGEST, TABLE = 2**31, 512


@dataclass(frozen=True)
class Meaning:
    """floor((r * factor + added) / divisor) clamped to `ends`, where the nodes of `text` compute the integer r.

    Operands are named x and d in `text`; `constants` are int32. `reach`: range of r.
    """

    reach: Range
    text: str = ""
    constants: Mapping[str, Array] = field(default_factory=dict)
    factor: Array = field(default_factory=lambda: UNCHANGED[0])
    added: Array = field(default_factory=lambda: UNCHANGED[1])
    divisor: int = 1
    ends: Range = ENDS

    def nodes(self, f: Fused, operands: Sequence[str]) -> Iterator[onnx.NodeProto]:
        """The nodes of `text` for these operands; their result is `f.between("r")`."""
        names = {name: f.constant(name, np.asarray(data, np.int32)) for name, data in self.constants.items()}
        yield from f.body(f"-> \n{self.text}", **names, **dict(zip("xd", operands, strict=False)))


@dataclass(frozen=True)
class Operands:
    """A node, ranges of its operands, shape of operand 0 (empty if unknown), values of constants, and the opset."""

    f: Fused
    ranges: Sequence[Range]
    shape: Sequence[int]
    numbers: Mapping[int, Array]
    opset: int

    def attributes(self, *names: str) -> list[int]:
        values = {name: self.f.whole(name) for name in names}
        for name in [n for n in ("D", "n_levels") if values.get(n, 1) < 1]:
            raise self.f.refuse(f"{name} is {values[name]}", "it must be at least 1")
        return [*values.values()]

    def constant(self, at: int, what: str) -> Array:
        if at not in self.numbers:
            raise self.f.refuse(f"{what} is no constant of whole numbers", "supported: constants")
        return self.numbers[at]

    def reduced(self, operator: str, x: str, y: str, axes: str = "-1") -> str:
        """Lines of a body for a reduction of x to y; from some opset on, axes are an operand."""
        if self.opset < (13 if operator == "ReduceSum" else 18):
            return f"{y} = {operator}<axes = [{axes}], keepdims = 1>({x})\n"
        return f"{y}_axes := [{axes}]\n{y} = {operator}<keepdims = 1>({x}, {y}_axes)\n"

    def numbers_of(self, operand: int) -> Array:
        """All integers in an operand's range. Raises EdgebuildError for ranges above TABLE."""
        low, high = self.ranges[operand]
        if high - low >= TABLE:
            raise self.f.refuse(f"numbers from {low} to {high}", "supported: 8 bits")
        return integers(np.arange(low, high + 1))

    @property
    def size(self) -> int:
        return max(map(abs, self.ranges[0]))


def _largest(numbers: Array) -> int:
    return max(map(abs, np.ravel(numbers).tolist()))


def _normalised(o: Operands, x: str) -> str:
    """Lines of a body: x * w / sqrt(mean square + 1), with mean and root rounded down."""
    return f"""square = Mul({x}, {x})
        {o.reduced("ReduceSum", "square", "squares")}
        mean = Div(squares, count)
        more = Add(mean, one)
        real = Cast<to = 1>(more)
        root = Sqrt(real)
        down = Floor(root)
        size = Cast<to = 6>(down)
        scaled = Mul({x}, w)
        share = Div(scaled, size)
    """


def _norm(o: Operands) -> Meaning:
    """iRMSNorm, and iLayerNorm, which also subtracts the mean and adds a bias."""
    centred, w = o.f.node.op_type == "iLayerNorm", o.constant(1, "the weight")
    divisor, levels = o.attributes("D", "n_levels")
    bias = o.constant(2, "the bias") if centred else UNCHANGED[1]
    size, count = o.size * (2 if centred else 1), int(w.shape[-1]) if w.ndim else 1
    most = size * _largest(w) + _largest(bias)
    if most >= LARGEST or size**2 * count >= LARGEST or size > 2**11:  # below 2^22 roots differ in float32
        raise o.f.refuse(f"numbers up to {size} times weights up to {_largest(w)}", "supported: products in 32 bits")
    mean = f"{o.reduced('ReduceSum', 'x', 'total')}\nmiddle = Div(total, count)\nrest = Sub(x, middle)\n"
    text = (
        mean + _normalised(o, "rest") + "r = Add(share, b)" if centred else _normalised(o, "x") + "r = Identity(share)"
    )
    constants = {"w": w, "b": bias, "count": np.array(count), "one": np.array(1)}
    return Meaning((-most, most), text, constants, divisor=divisor, ends=(-levels // 2, levels // 2 - 1))


def _softmax(o: Operands) -> Meaning:
    """iSoftmax and ITAMax, as a table over the distance from the largest: 2^-z, for iSoftmax times a polynomial."""
    far = integers(np.arange(len(o.numbers_of(0))))
    (levels,) = o.attributes("n_levels")
    if o.f.node.op_type == "ITAMax":
        table = 256 >> np.minimum(far + 16 >> 5, 31)
        last = "shares = Div(most, sum)\nr = Div(shares, bits)"
        constants = {"most": np.array((levels - 1) * 256), "table": table, "shifts": 1 << (far + 16 >> 5)}
        last = f"bits = Gather(shifts, far)\n{last}"
    else:
        a, b, c, step = o.attributes("coeffA", "coeffB", "coeffC", "log2")
        if step < 1:
            raise o.f.refuse(f"log2 is {step}", "it must be at least 1")
        z = np.minimum(far // step, 31)
        table = (a * (z * step - far + b) ** 2 + c) >> z
        constants = {"most": np.array(levels - 1), "table": table}
        last = "scaled = Mul(terms, most)\nr = Div(scaled, sum)"
    count, most = (o.shape or [LARGEST])[-1] or LARGEST, int(table.max())
    if most * max(levels, count) >= LARGEST or table.min() < 0 or not 2 <= levels <= 256:
        text = f"sums of {o.shape[-1]} terms" if o.shape else "lines whose length the file does not tell"
        raise o.f.refuse(f"{text} up to {most}", "supported: sums in 32 bits")
    text = f"""{o.reduced("ReduceMax", "x", "top")}
        far = Sub(top, x)
        terms = Gather(table, far)
        {o.reduced("ReduceSum", "terms", "sum")}
        {last}
    """
    return Meaning((0, levels - 1), text, constants, ends=(0, levels - 1))


def _gelu(o: Operands, x: Array) -> Array:
    b, one = o.attributes("b", "one")
    rest = np.minimum(np.abs(x), -b) + b
    return x * ((one + np.sign(x) * (one - rest * rest)) >> 1)


def _hard_swish(o: Operands, x: Array) -> Array:
    sixth, three, six = o.attributes("one_over_six", "three", "six")
    return x * np.clip(x + three, 0, six) * sixth


def _curve(function: Callable[[Operands, Array], Array]) -> Callable[[Operands], Meaning]:
    """A unary function, as a table."""

    def meaning(o: Operands) -> Meaning:
        numbers = o.numbers_of(0)
        table = function(o, numbers)
        if _largest(table) >= LARGEST:
            raise o.f.refuse(f"results up to {_largest(table)}", "supported: 32 bits")
        text = "place = Sub(x, low)\nr = Gather(table, place)"
        return Meaning((int(table.min()), int(table.max())), text, {"table": table, "low": numbers[:1].reshape(())})

    return meaning


def _no_norm(o: Operands) -> Meaning:
    divisor, factor, levels = o.attributes("D", "mul", "n_levels")
    ends = -levels // 2, levels // 2 - 1
    w, b = o.constant(1, "the weight"), o.constant(2, "the bias")
    return Meaning(o.ranges[0], factor=w * factor, added=b * factor, divisor=divisor, ends=ends)


def _share(o: Operands) -> Meaning:
    """TrueIntegerDiv, which Deeploy computes as x times an integer."""
    delta, eta, eps, y = o.attributes("Delta", "eta", "eps", "y")
    if y * eta + eps <= 0:
        raise o.f.refuse(f"the divisor {y} * {eta} + {eps}", "it must be more than 0")
    return Meaning(o.ranges[0], factor=integers(np.array(delta * eta // (y * eta + eps))))


def _quotient(o: Operands) -> Meaning:
    """IntegerDiv: the quotient rounded to nearest, halves away from 0."""
    delta, eta, eps = o.attributes("Delta", "eta", "eps")
    least = o.ranges[1][0] * eta + eps
    most = (o.size * abs(delta * eta) + least) // max(least, 1)
    if least <= 0 or most >= LARGEST or max(abs(delta * eta), eta, eps) >= LARGEST or eta < 0:
        raise o.f.refuse(f"divisors from {least} on, quotients up to {most}", "supported: above 0, and of 32 bits")
    text = """wide = Cast<to = 7>(x)
        large = Cast<to = 7>(factor)
        over = Mul(wide, large)
        more = Cast<to = 7>(d)
        times = Cast<to = 7>(eta)
        least = Cast<to = 7>(eps)
        product = Mul(more, times)
        under = Add(product, least)
        two := [2]
        zero := [0]
        half = Div(under, two)
        other = Neg(half)
        negative = Less(over, zero)
        moved = Where(negative, other, half)
        sum = Add(over, moved)
        result = Div(sum, under)
        r = Cast<to = 6>(result)
    """
    constants = {name: np.array(n) for name, n in (("factor", delta * eta), ("eta", eta), ("eps", eps))}
    return Meaning((-most, most), text, constants)


def _mean(o: Operands) -> Meaning:
    """IntegerMean: the mean rounded to nearest; halves up for a power of two of elements, else away from 0."""
    axes = [int(a) for a in np.ravel(o.f.attributes.get("axes", []))]
    if not o.shape or not all(o.shape) or not axes or not all(-len(o.shape) <= a < len(o.shape) for a in axes):
        raise o.f.refuse(f"axes {axes} of a shape {[*o.shape]}", "supported: axes of a shape that the file tells")
    count, reach = prod(o.shape[a] for a in axes), (o.ranges[0][0], o.ranges[0][1])
    text = o.reduced("ReduceSum", "x", "sum", ", ".join(map(str, axes)))
    if not o.attributes("keepdims")[0]:
        text = text.replace("keepdims = 1", "keepdims = 0")
    if o.size * count * 2 >= LARGEST:
        raise o.f.refuse(f"a mean of {count} numbers up to {o.size}", "supported: sums in 32 bits")
    if count & (count - 1) == 0:
        ends = reach[0] * count, reach[1] * count
        return Meaning(ends, text + "r = Identity(sum)", added=integers(np.array(count // 2)), divisor=count)
    text += """negative = Less(sum, zero)
        moved = Where(negative, other, half)
        more = Add(sum, moved)
        r = Div(more, count)
    """
    numbers = {"zero": 0, "half": count // 2, "other": -(count // 2), "count": count}
    return Meaning(reach, text, {name: np.array(n) for name, n in numbers.items()})


NODES: Mapping[str, Callable[[Operands], Meaning]] = {
    **dict.fromkeys(("iRMSNorm", "iLayerNorm"), _norm),
    **dict.fromkeys(("iSoftmax", "ITAMax"), _softmax),
    "iGELU": _curve(_gelu),
    "iHardswish": _curve(_hard_swish),
    "iNoNorm": _no_norm,
    "TrueIntegerDiv": _share,
    "IntegerDiv": _quotient,
    "IntegerMean": _mean,
}
