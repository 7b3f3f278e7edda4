"""Nodes of whole numbers that quantlib and Deeploy write for normalisations, softmax and curves.

The formulas are those of Deeploy's kernels (github.com/pulp-platform/Deeploy bf64cfa, 2026-08-04, TargetLibraries and
Deeploy/Targets/Generic): quotients are rounded towards 0, shifts down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import onnx

from ...ir import Array
from .fused import Fused
from .requantised import ENDS, UNCHANGED, Range, integers

LARGEST, TABLE = 2**31, 512


@dataclass(frozen=True)
class Meaning:
    """floor((r * factor + added) / divisor) within `ends`, where `text` makes r, in integers, of the operands.

    Operands are named x and d; `constants` are int32. `reach`: between which numbers r is.
    """

    reach: Range
    text: str = ""
    constants: Mapping[str, Array] = field(default_factory=dict)
    factor: Array = field(default_factory=lambda: UNCHANGED[0])
    added: Array = field(default_factory=lambda: UNCHANGED[1])
    divisor: int = 1
    ends: Range = ENDS

    def nodes(self, f: Fused, operands: Sequence[str]) -> Iterator[onnx.NodeProto]:
        """The nodes of the text for these operands; the result is `r` between the node's own."""
        names = {name: f.constant(name, np.asarray(data, np.int32)) for name, data in self.constants.items()}
        yield from f.body(f"-> \n{self.text}", **names, **dict(zip("xd", operands, strict=False)))


@dataclass(frozen=True)
class Operands:
    """A node, ranges and shapes of its operands (empty if not known), the numbers of its constants, and the opset."""

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
        """A line of a body; the axes are an operand from an opset on."""
        if self.opset < (13 if operator == "ReduceSum" else 18):
            return f"{y} = {operator}<axes = [{axes}], keepdims = 1>({x})\n"
        return f"{y}_axes := [{axes}]\n{y} = {operator}<keepdims = 1>({x}, {y}_axes)\n"

    def numbers_of(self, operand: int) -> Array:
        """All numbers that an operand may be."""
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
    """x * w over the root of its mean square plus 1, rounded down as that mean is."""
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
    """iRMSNorm; iLayerNorm, which takes the mean out first and adds a bias."""
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
    """iSoftmax: 2^-z times a square of the rest. ITAMax: 2^-z. Both know numbers by their distance from the largest."""
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
    """A function of one number, as a table."""

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
    """TrueIntegerDiv: Deeploy takes x times a whole number for it."""
    delta, eta, eps, y = o.attributes("Delta", "eta", "eps", "y")
    if y * eta + eps <= 0:
        raise o.f.refuse(f"the divisor {y} * {eta} + {eps}", "it must be more than 0")
    return Meaning(o.ranges[0], factor=integers(np.array(delta * eta // (y * eta + eps))))


def _quotient(o: Operands) -> Meaning:
    """IntegerDiv: the nearest quotient, halves away from 0."""
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
    """IntegerMean: the nearest, halves up; that of a number of elements that is no power of two halves away from 0."""
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
