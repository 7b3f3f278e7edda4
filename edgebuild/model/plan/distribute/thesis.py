"""Distribution as in Stahl 2024, chapter 5: element counts of a chain of layers, equal devices, 4 bytes a value.

Only layers with weights that are convolutions count (`counted`); the others end the reuse of data and cost nothing.
Both ILPs, eq. 5.12 to 5.15 and 5.16 to 5.23, have one free variable a layer, so dynamic programs solve them exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....base.dataclass import dataclass

BYTES = 4


@dataclass(frozen=True)
class Counts:
    """Elements of a layer's input, output and weights: M, K and Q of the thesis; all zero where it does not count."""

    m: int
    k: int
    q: int
    counted: bool = True


def single(layers: Sequence[Counts]) -> int:
    """F of one device: all weights, and the largest input and output of a layer."""
    return max(x.m + x.k for x in layers) + sum(x.q for x in layers)


def full(layers: Sequence[Counts], n: int) -> tuple[float, int]:
    """Eq. 5.12 to 5.15: least F of a device, and how many layers before that are split by rows (the switch).

    A layer that does not count cannot be named as the first with split weights, so the switch moves past it.
    """
    options = [(footprint(layers, n, at), at) for at in range(len(layers) + 1)]
    best, at = min(options)
    while at < len(layers) and not layers[at].counted:
        at += 1
    return best, at


def footprint(layers: Sequence[Counts], n: int, switch: int) -> float:
    """F of a device where the layers before `switch` are split by rows and the others by weights."""
    values = [(x.m + x.k) / (n if i < switch else 1) for i, x in enumerate(layers)]
    return max(values) + sum(x.q if i < switch else x.q / n for i, x in enumerate(layers))


def sequential(layers: Sequence[Counts]) -> int:
    """F of the largest layer by itself: no mapping of whole layers to devices needs less."""
    return max(x.m + x.k + x.q for x in layers)


def fan_out(layers: Sequence[Counts], n: int) -> float:
    """C of fan-out in every layer, eq. 5.7 and 5.8."""
    return communication(layers, n, ["out" if x.counted else "" for x in layers])


def fan_in(layers: Sequence[Counts], n: int) -> float:
    """C of fan-in in every layer, eq. 5.9."""
    return communication(layers, n, ["in" if x.counted else "" for x in layers])


def communication(layers: Sequence[Counts], n: int, methods: Sequence[str]) -> float:
    """C of a method for each layer: out, in, first and second of a fused pair, or "" for none; eq. 5.16.

    In eq. 5.8 the first summand counts where there is *no* reuse, as its figure shows.
    """
    total, reused = 0.0, False
    for i, (x, method) in enumerate(zip(layers, methods, strict=True)):
        after = methods[i + 1] if i + 1 < len(layers) else ""
        reuse = method == "out" and after in ("out", "first")
        scattered = 0.0 if reused else float(x.m * (n - 1))
        if method == "out":
            total += scattered + (x.k * (n - 1) if reuse else x.k * (n - 1) / n)
        elif method == "in":
            total += x.m * (n - 1) / n + x.k * (n - 1)
        elif method == "first":
            total += scattered
        elif method == "second":
            total += x.k * (n - 1)
        reused = reuse
    return total


def optimized(layers: Sequence[Counts], n: int) -> tuple[float, list[str]]:
    """C and methods of Optimized Weight Partitioning, eq. 5.17 to 5.23."""
    # The state after a layer is its method; what it costs depends on the next one, so costs are of pairs.
    best: dict[str, tuple[float, list[str]]] = {"": (0.0, [])}
    for x in layers:
        after: dict[str, tuple[float, list[str]]] = {}
        for before, (_, chosen) in best.items():
            for method in _next(before, x.counted):
                methods = [*chosen, method]
                total = communication(layers[: len(methods)], n, methods)
                if method not in after or total < after[method][0]:
                    after[method] = total, methods
        best = after
    best.pop("first", None)
    return min(best.values(), key=lambda option: option[0])


def _next(before: str, counted: bool) -> tuple[str, ...]:
    if before == "first":
        return ("second",) if counted else ()
    return ("out", "in", "first") if counted else ("",)
