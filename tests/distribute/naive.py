"""The same problem solved naively: every sequence of methods, and transfers counted element by element."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from edgebuild.model.plan.distribute.forms import (
    ALL,
    SOURCE,
    SUMS,
    Cluster,
    Device,
    DeviceLimits,
    Layer,
    Medium,
    Network,
    RowWindow,
    Sizes,
    Split,
)
from edgebuild.model.plan.distribute.joint import Search


def cluster(n: int, medium: Medium | None = None, shares: tuple[float, ...] | None = None) -> Cluster:
    devices = tuple(Device(f"d{i}", "host", 1 << 40, 1 << 40, 1.0 if shares is None else shares[i]) for i in range(n))
    return Cluster(devices, 0, medium or Medium())


def chain(seed: int, most: int = 4, residual: bool = False, joined: bool = False) -> Network:
    """A random chain of convolutions, depthwise layers and dense layers.

    `residual`: with one addition. `joined`: the last two tensors side by side, which another layer reads.
    """
    rng = random.Random(seed)
    rows, channels = rng.choice((1, 4, 6)), rng.choice((2, 4, 5))
    tensors, layers = [Sizes("t0", rows, 2 * channels, channels)], []
    for i in range(rng.randint(2, most)):
        last = tensors[-1]
        kind = rng.choice(("conv", "conv", "carry")) if last.rows > 1 else rng.choice(("dense", "dense", "carry"))
        out = rng.choice((2, 4, 6)) if kind != "carry" else last.channels
        columns = last.row // last.channels
        tensors.append(Sizes(f"t{i + 1}", last.rows, columns * out, out))
        weights = 9 * last.channels * out if kind != "carry" else 9 * out
        sums = kind != "carry"
        window = RowWindow(rng.choice((1, 3)), 1, 1) if last.rows > 1 else None
        window = RowWindow() if window is not None and window.size == 1 else window
        macs = weights * last.rows
        layer = Layer(f"l{i}", kind, (i,), i + 1, weights, macs, sums, sums, not sums, window, rng.choice((3, 4)))
        layers.append(layer)
    if residual and len(layers) > 1:
        last, skip = len(tensors) - 1, next(
            (i for i, t in enumerate(tensors[:-1]) if (t.rows, t.row, t.channels) == _shape(tensors[-1])), None
        )  # fmt: skip
        if skip is not None:
            tensors.append(Sizes("sum", tensors[last].rows, tensors[last].row, tensors[last].channels))
            window = RowWindow() if tensors[last].rows > 1 else None
            layers.append(Layer("add", "add", (skip, last), last + 1, by_channel=True, window=window))
    if joined:
        a, b = tensors[-2:]
        wide = a.channels + b.channels
        tensors.append(Sizes("both", a.rows, a.row // a.channels * wide, wide))
        pair, window = (len(tensors) - 3, len(tensors) - 2), RowWindow() if a.rows > 1 else None
        layers.append(Layer("join", "concat", pair, len(tensors) - 1, window=window, joins=(0, a.channels)))
        tensors.append(Sizes("last", a.rows, a.row // a.channels * 4, 4))
        layers.append(Layer("end", "dense", (len(tensors) - 2,), len(tensors) - 1, 90 * wide, 1, True, True, partial=3))
    return Network(tuple(tensors), tuple(layers), (0,), (len(tensors) - 1,))


def _shape(t: Sizes) -> tuple[int, int, int]:
    return t.rows, t.row, t.channels


def least(search: Search) -> int | None:
    """Bytes of the best plan, by trying all."""
    network, limits = search.network, search.limits
    best: int | None = None

    def within(own: list[int]) -> bool:
        return all(w <= f + 1e-6 for w, f in zip(own, limits.flash, strict=True))

    def step(number: int, live: dict[int, Split], weights: tuple[float, ...], so_far: int) -> None:
        nonlocal best
        if best is not None and so_far >= best:
            return
        if number == len(network.layers):
            total = so_far + sum(sent(network.tensors[t], live[t], SOURCE, search.cluster) for t in network.results)
            *alone, copied = weights
            rest = network.weights - sum(alone) - copied
            own = [copied + share * rest + alone[k] for k, share in enumerate(search.cluster.shares)]
            if within(own) and (best is None or total < best):  # type: ignore[arg-type]
                best = total
            return
        layer = network.layers[number]
        for method, wanted, makes, kept in search.options[number]:
            reads = dict(zip(layer.inputs, wanted, strict=True))
            moved = sum(sent(network.tensors[t], live[t], want, search.cluster) for t, want in reads.items())
            more = [0] * len(weights)
            if method in ("whole", "stage"):
                more[_alone(makes, search.cluster)] = layer.weights
            elif method in ("copies", "rows"):
                more[-1] = layer.weights
            for form in kept:
                summed = sent(network.tensors[layer.output], SUMS, form, search.cluster, layer.partial)
                total = so_far + moved + (summed if makes == SUMS else 0)
                for stays in _stays(live, reads):
                    after = {**stays, layer.output: form}
                    step(number + 1, after, tuple(w + m for w, m in zip(weights, more, strict=True)), total)

    step(0, dict.fromkeys(network.inputs, SOURCE), (0,) * (len(search.cluster.devices) + 1), 0)
    return best


def _alone(makes: Split, group: Cluster) -> int:
    return next((k for k, (first, past) in enumerate(makes.ranges) if past > first), group.source)


def _stays(live: dict[int, Split], reads: dict[int, Split]) -> Iterator[dict[int, Split]]:
    yield live
    gained = {t: f for t, f in reads.items() if f == ALL != live[t]}
    if gained:
        yield {**live, **gained}


def sent(tensor: Sizes, have: Split, want: Split, group: Cluster, partial: int = 4) -> int:
    """Bytes that have to be sent, from which device holds which row and channel before and needs it after."""
    columns = tensor.row // tensor.channels
    n = len(group.devices)
    if have == want:
        return 0
    if have == SUMS:
        if want == ALL:
            return (n - 1) * tensor.elements * (partial + tensor.item)
        return int(sum(_has(tensor, want, k, group).sum() for k in range(n)) * columns * (n - 1) * partial)
    before = np.array([_has(tensor, have, k, group) for k in range(n)])
    after = np.array([_has(tensor, want, k, group) for k in range(n)])
    return int((after & ~before).sum()) * columns * tensor.item


def _has(tensor: Sizes, form: Split, device: int, group: Cluster) -> np.ndarray:
    held = np.zeros((tensor.rows, tensor.channels), bool)
    match form.letter:
        case "A":
            held[:] = True
        case "S":
            held[:] = device == group.source
        case "P":
            held[:, slice(*form.ranges[device])] = True
        case "F":
            held[slice(*form.ranges[device])] = True
    return held


def limits(network: Network, n: int, seed: int) -> DeviceLimits:
    """Flash between an even part and all of the weights."""
    part = random.Random(seed).uniform(1 / n, 1.0)
    return DeviceLimits((network.weights * part + 20,) * n, (float("inf"),) * n)
